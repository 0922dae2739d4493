//! The distribution: the parts of each kind, and length and target, which follow from unregulated runs.

use std::time::Duration;

use tidegate_control::SignalStatistic;
use tidegate_device::{DeviceConfig, HitChange};
use tidegate_sim::scenario::{
    ArrayChange, ChangedArray, NetworkPartition, OperationArrivals, ScenarioSpan, ThinkTime, ThinkTiming,
};
use tidegate_sim::{ConsumerOutcome, Scenario, ScenarioError, SilentRecorder, simulate};
use tidegate_units::{Instant, Latency};

use super::kind::ScenarioKind;
use super::scenario::{ArenaScenario, HEAD, StorageStretch, judged};
use super::sketch::{HostOutage, LONGEST_INTERVAL, Sketch};
use super::storage::with_credits_for;

/// The requests of a run, unless its length is at a bound.
const REQUESTS: f64 = 250_000.0;

/// Requests above which a run becomes shorter than [`SHORTEST`], and the most that any may have.
const MANY_REQUESTS: f64 = 1_000_000.0;
const MOST_REQUESTS: f64 = 1_900_000.0;

/// Bounds of a run's length, in seconds. Runs of fast storage may be shorter, to [`SHORTEST_FAST`].
const SHORTEST: f64 = 40.0;
const LONGEST: f64 = 120.0;
const SHORTEST_FAST: f64 = 10.0;

/// Length of runs with slow storage, in seconds.
const SLOW: f64 = 180.0;

/// The same where the target cannot be reached: laws may take the first minute to find that out.
const UNATTAINABLE_HEAD: f64 = 60.0;

/// Completions of the slowest judged consumer that a judged interval holds on average, or as many as a
/// percentile needs.
const COMPLETIONS: f64 = 10.0;

impl ArenaScenario {
    /// Draws the scenario of a seed.
    ///
    /// # Errors
    /// When the scenario cannot be simulated.
    pub fn draw(seed: u64) -> Result<Self, ScenarioError> {
        let kind = ScenarioKind::of(seed);
        let mut sketch = Sketch::new(kind.name(), seed);
        sketch.build(kind);
        sketch.finish(seed, kind)
    }
}

/// Unregulated runs of a storage in its states.
struct FreeRuns {
    /// The greatest throughput of all states, in requests per second.
    greatest: f64,
    /// The slowest judged consumer's throughput in the slowest state.
    slowest: f64,
    /// The latency of the worst judged consumer in the slowest state, in seconds.
    loaded: f64,
    /// The slowest state.
    state: DeviceConfig,
}

impl Sketch {
    fn build(&mut self, kind: ScenarioKind) {
        const MOSTLY_READS: (f64, f64) = (0.5, 1.0);
        const MOSTLY_WRITES: (f64, f64) = (0.0, 0.8);
        match kind {
            ScenarioKind::Written => unreachable!("no seed draws it"),
            ScenarioKind::Servers => {
                self.servers((1, 128), (50.0, 200_000.0));
                self.one_host();
                self.backlogged((1, 8), 0.0, (0.3, 1.0));
            }
            ScenarioKind::Bursts => {
                self.servers((1, 32), (100.0, 4_000.0));
                self.one_host();
                self.varying(2, 6);
            }
            ScenarioKind::Disks => {
                self.disks();
                self.one_host();
                self.backlogged((1, 6), 0.1, MOSTLY_READS);
            }
            ScenarioKind::WriteBack => {
                self.raid5();
                self.one_host();
                self.backlogged((2, 6), 0.3, MOSTLY_WRITES);
            }
            ScenarioKind::WriteBackPromise => {
                self.raid5();
                self.one_host();
                self.reader();
                self.backlogged((1, 4), 0.3, MOSTLY_WRITES);
            }
            ScenarioKind::Promise | ScenarioKind::Percentile => {
                if self.draw.chance(0.5) {
                    self.disks();
                } else {
                    self.servers((2, 32), (300.0, 6_000.0));
                }
                self.one_host();
                let reads = self.reader();
                if kind == ScenarioKind::Percentile {
                    self.percentile(reads);
                }
                if self.draw.chance(0.5) {
                    self.varying(1, 4);
                } else {
                    self.backlogged((1, 4), 0.1, (0.6, 1.0));
                }
            }
            ScenarioKind::Capacity => {
                self.servers((1, 32), (300.0, 5_000.0));
                self.one_host();
                self.backlogged((2, 6), 0.0, (1.0, 1.0));
                self.capacity_changes();
            }
            ScenarioKind::Hosts => {
                self.servers((1, 64), (500.0, 10_000.0));
                self.hosts(2, 32);
                if self.draw.chance(0.3) {
                    self.reader();
                }
                self.backlogged_on_hosts();
            }
            ScenarioKind::BadHosts => {
                if self.draw.chance(0.3) {
                    self.disks();
                } else {
                    self.servers((1, 64), (500.0, 6_000.0));
                }
                self.hosts(3, 10);
                self.backlogged_on_hosts();
                self.misbehave();
            }
            ScenarioKind::Unattainable | ScenarioKind::UnattainablePromise => {
                if self.draw.chance(0.3) {
                    self.disks();
                } else {
                    self.servers((1, 64), (80.0, 4_000.0));
                }
                self.one_host();
                if kind == ScenarioKind::UnattainablePromise {
                    self.reader();
                }
                // Where servers idle, nothing that a law takes makes a response shorter.
                self.loaded((0.4, 8.0), (1, 6), 0.1, (0.8, 1.0));
            }
            ScenarioKind::Slow => {
                self.servers((1, 4), (40.0, 200.0));
                self.one_host();
                self.backlogged((1, 4), 0.0, MOSTLY_READS);
                // Deep enough that a target of hundreds of milliseconds is missed.
                self.deepen(self.capacity_guess());
            }
            ScenarioKind::Mixed => {
                if self.draw.chance(0.5) {
                    self.disks();
                } else {
                    self.raid5();
                }
                self.one_host();
                self.mixed();
            }
            ScenarioKind::Flash => {
                self.flash();
                self.one_host();
                if self.draw.chance(0.4) {
                    self.reader();
                }
                self.backlogged((1, 6), 0.2, (0.2, 1.0));
            }
            ScenarioKind::CloudVolume => {
                self.cloud_volume();
                self.one_host();
                if self.draw.chance(0.3) {
                    self.reader();
                }
                self.backlogged((1, 6), 0.2, MOSTLY_READS);
            }
            ScenarioKind::Tiers => {
                self.tiers();
                self.one_host();
                if self.draw.chance(0.3) {
                    self.reader();
                }
                self.backlogged((1, 6), 0.1, MOSTLY_READS);
            }
            ScenarioKind::Link => {
                self.link();
                self.one_host();
                if self.draw.chance(0.3) {
                    self.reader();
                }
                self.backlogged((1, 6), 0.2, MOSTLY_READS);
            }
        }
    }

    /// Raises what all consumers have outstanding together to this many requests.
    fn deepen(&mut self, requests: f64) {
        let count = self.scenario.vms.len() as f64;
        for workload in self.scenario.vms.iter_mut().flat_map(|vm| &mut vm.workloads) {
            if let OperationArrivals::Closed { outstanding, .. } = &mut workload.arrivals {
                *outstanding = (requests / count).clamp(f64::from(*outstanding), 64.0) as u32;
            }
        }
    }

    /// Chooses length and target by unregulated runs, and completes the scenario.
    fn finish(mut self, seed: u64, kind: ScenarioKind) -> Result<ArenaScenario, ScenarioError> {
        self.fit_disks()?;
        let judged = judged(&self.scenario);
        let free = self.free_runs(seed, &judged)?;
        let unloaded = self.unloaded(seed, &judged, &free.state)?;
        let seconds = length(kind, free.greatest);
        let target = self.target(kind, unloaded, free.loaded);
        let completions = COMPLETIONS.max(self.statistic.least_requests() as f64);
        let interval = (completions / free.slowest).ceil().clamp(1.0, LONGEST_INTERVAL);
        self.scenario.duration = Duration::from_secs_f64(seconds);
        self.scenario.series_interval = Duration::from_secs_f64(interval);
        let stretches = self.stretches(seconds, free.greatest);
        let mut changes: Vec<f64> = stretches.iter().skip(1).map(|stretch| stretch.from).collect();
        changes.extend(self.activity(seconds));
        Ok(ArenaScenario {
            id: format!("{}-{seed}", kind.name()),
            kind,
            seed,
            statistic: self.statistic,
            target: Latency::from_secs_f64(target),
            unloaded: Latency::from_secs_f64(unloaded),
            judged,
            head_s: if kind.is_unattainable() { UNATTAINABLE_HEAD } else { HEAD },
            changes,
            stretches,
            scenario: self.scenario,
        })
    }

    fn target(&mut self, kind: ScenarioKind, unloaded: f64, loaded: f64) -> f64 {
        if kind.is_unattainable() {
            return unloaded * self.draw.uniform(0.3, 1.25);
        }
        let least = if kind == ScenarioKind::Slow { (0.2 / unloaded).clamp(1.5, 18.0) } else { 1.5 };
        let most = (0.9 * loaded / unloaded).min(20.0).max(least * 1.05);
        unloaded * self.draw.scaled(least, most)
    }

    /// The statistic of a consumer's latencies that is promised.
    fn promised_ms(&self, consumer: &ConsumerOutcome) -> Option<f64> {
        match self.statistic {
            SignalStatistic::Mean => consumer.device_latency_ms,
            _ => consumer.device_percentile_ms,
        }
    }

    fn trial(&self, device: &DeviceConfig) -> Scenario {
        let mut trial = self.scenario.clone();
        trial.duration = Duration::from_secs(20);
        trial.warmup = Duration::from_secs(5);
        trial.arrays[0].device = device.clone();
        trial
    }

    fn free_runs(&self, seed: u64, judged: &[String]) -> Result<FreeRuns, ScenarioError> {
        let mut runs = FreeRuns { greatest: 1.0, slowest: 1.0, loaded: 0.0, state: self.states[0].clone() };
        for state in &self.states {
            let mut trial = self.trial(state);
            if self.capacity_guess() > 20_000.0 {
                (trial.warmup, trial.duration) = (Duration::from_secs(1), Duration::from_secs(3));
            }
            let outcome = simulate(&trial, seed, &mut SilentRecorder)?;
            let iops = outcome.consumers.iter().map(|(_, consumer)| consumer.iops).sum::<f64>();
            runs.greatest = runs.greatest.max(iops);
            let of_judged = || judged.iter().filter_map(|name| outcome.consumers.get(name.as_str()));
            let loaded = of_judged().filter_map(|one| self.promised_ms(one)).fold(0.0, f64::max) / 1e3;
            if loaded > runs.loaded {
                let rates = of_judged().map(|one| one.iops).filter(|iops| *iops > 0.0);
                runs.slowest = rates.fold(f64::INFINITY, f64::min);
                runs.loaded = loaded;
                runs.state = state.clone();
            }
        }
        Ok(runs)
    }

    /// The unloaded latency of the slowest judged consumer: one request at a time, alone.
    fn unloaded(&self, seed: u64, judged: &[String], state: &DeviceConfig) -> Result<f64, ScenarioError> {
        let mut slowest: f64 = 1e-6;
        let mut known = Vec::new();
        for vm in self.scenario.vms.iter().filter(|vm| judged.iter().any(|name| name == vm.name.as_str())) {
            let steps: Vec<_> = vm.workloads.iter().map(|workload| workload.steps.clone()).collect();
            if known.contains(&steps) {
                continue;
            }
            known.push(steps);
            let mut alone = self.trial(state);
            let mut vm = vm.clone();
            vm.workloads.truncate(1);
            for workload in &mut vm.workloads {
                let think =
                    ThinkTiming { mean: Latency::from_millis(20), distribution: ThinkTime::Exponential };
                workload.arrivals = OperationArrivals::Closed { outstanding: 1, think };
                workload.cycle = None;
            }
            alone.vms = vec![vm];
            let outcome = simulate(&alone, seed, &mut SilentRecorder)?;
            let latency = outcome.consumers.iter().filter_map(|(_, consumer)| self.promised_ms(consumer));
            slowest = slowest.max(latency.sum::<f64>() / 1e3);
        }
        Ok(slowest)
    }

    /// Sets the times of changes of the storage and the hosts. Returns the stretches between them. `iops` is
    /// the greatest throughput, at which credits are spent.
    fn stretches(&mut self, seconds: f64, iops: f64) -> Vec<StorageStretch> {
        let count = self.states.len();
        let mut stretches: Vec<StorageStretch> = (0..)
            .zip(&self.states)
            .map(|(number, device)| StorageStretch {
                from: (seconds * f64::from(number) / count as f64).round(),
                device: device.clone(),
                down: Vec::new(),
            })
            .collect();
        let later = || stretches.iter().skip(1);
        let array = &mut self.scenario.arrays[0];
        match &mut array.device {
            DeviceConfig::Exponential(_) => {
                array.changes = later()
                    .filter_map(|stretch| match &stretch.device {
                        DeviceConfig::Exponential(servers) => {
                            Some(ArrayChange { at: at(stretch.from), to: ChangedArray::Rate(servers.rate) })
                        }
                        _ => None,
                    })
                    .collect();
            }
            DeviceConfig::Tiers(tiers) => {
                tiers.changes = later()
                    .filter_map(|stretch| match &stretch.device {
                        DeviceConfig::Tiers(next) => {
                            Some(HitChange { after: Latency::from_secs_f64(stretch.from), hits: next.hits })
                        }
                        _ => None,
                    })
                    .collect();
            }
            DeviceConfig::Volume(_) if count > 1 => {
                array.device = with_credits_for(&array.device, iops, stretches[1].from);
            }
            _ => {}
        }
        if let Some(outage) = self.outage {
            stretches = self.interrupted(outage, &stretches[0].device, seconds);
        }
        stretches
    }

    fn interrupted(
        &mut self,
        outage: HostOutage,
        device: &DeviceConfig,
        seconds: f64,
    ) -> Vec<StorageStretch> {
        let (from, to) = ((seconds / 3.0).round(), (seconds * 0.6).round());
        let during = ScenarioSpan { from: at(from), to: at(to) };
        let stretch = |from, down| StorageStretch { from, device: device.clone(), down };
        match outage {
            HostOutage::Down(host) => {
                let host = &mut self.scenario.hosts[host];
                host.down = vec![during];
                let down = vec![host.name.clone()];
                vec![stretch(0.0, Vec::new()), stretch(from, down), stretch(to, Vec::new())]
            }
            HostOutage::CutOff(host) => {
                let hosts = vec![self.scenario.hosts[host].name.clone()];
                self.scenario.network.partitions.push(NetworkPartition { during, hosts });
                // The storage does not notice.
                vec![stretch(0.0, Vec::new())]
            }
        }
    }

    /// Sets the times of ramps and of the common pause. Returns the end of the pause.
    fn activity(&mut self, seconds: f64) -> Option<f64> {
        for &(vm, workload, (from, to)) in &self.stages {
            let span = ScenarioSpan { from: at(seconds * from), to: at(seconds * to) };
            self.scenario.vms[vm].workloads[workload].during = vec![span];
        }
        let (from, to) = self.pause?;
        let (from, to) = ((seconds * from).round(), (seconds * to).round());
        for workload in
            self.scenario.vms.iter_mut().filter(|vm| !vm.protected).flat_map(|vm| &mut vm.workloads)
        {
            workload.during = vec![
                ScenarioSpan { from: Instant::ZERO, to: at(from) },
                ScenarioSpan { from: at(to), to: Instant::MAX },
            ];
        }
        Some(to)
    }
}

fn at(seconds: f64) -> Instant {
    Instant::from_nanos((seconds * 1e9) as u64)
}

/// Returns the length of a run, in seconds, by the greatest throughput that it may have.
fn length(kind: ScenarioKind, iops: f64) -> f64 {
    let usual = match kind {
        ScenarioKind::Slow => SLOW,
        kind if kind.is_unattainable() => {
            UNATTAINABLE_HEAD + (REQUESTS / iops).clamp(SHORTEST, 2.0 * SHORTEST)
        }
        _ => (REQUESTS / iops).clamp(SHORTEST, LONGEST),
    };
    let short = if usual * iops > MANY_REQUESTS && !kind.is_unattainable() {
        (MANY_REQUESTS / iops).max(SHORTEST_FAST)
    } else {
        usual
    };
    short.min(MOST_REQUESTS / iops).round().max(6.0)
}
