//! Random scenarios: the documented distribution of the arena.

use std::time::Duration;

use rand::Rng;
use rand_pcg::Pcg64;
use tidegate_device::{DeviceConfig, ExponentialConfig, Preset, RaidLevel, preset::fc_array};
use tidegate_sim::scenario::{
    ActivityCycle, ArrayChange, ArrivalSpacing, ChangedArray, OperationArrivals, OperationStep,
    ReportNetwork, ScenarioArray, ScenarioHost, ScenarioSpan, ThinkTime, ThinkTiming, VirtualDisk,
    VirtualMachine, Workload,
};
use tidegate_sim::{Scenario, ScenarioError, SilentRecorder, simulate};
use tidegate_units::{Bytes, ConsumerName, HostName, Instant, Iops, Latency, ResourceName, Shares};

use super::kind::ScenarioKind;
use super::{ArenaScenario, Attainability};

/// Bounds of a run's requests: shorter ones say little, longer ones take too much time.
const REQUESTS: (f64, f64) = (60_000.0, 250_000.0);

/// Bounds of a run's length in seconds.
const SECONDS: (f64, f64) = (40.0, 120.0);

/// Completions of the slowest consumer that a judged interval holds on average.
const COMPLETIONS: f64 = 10.0;

/// Random numbers of one scenario.
struct Draw(Pcg64);

impl Draw {
    fn new(seed: u64) -> Self {
        let mut random = Pcg64::new(u128::from(seed).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835), 1);
        // Neighbouring seeds begin alike.
        for _ in 0..8 {
            random.next_u64();
        }
        Self(random)
    }

    fn fraction(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    fn uniform(&mut self, from: f64, to: f64) -> f64 {
        from + (to - from) * self.fraction()
    }

    /// Uniform in the logarithm.
    fn scaled(&mut self, from: f64, to: f64) -> f64 {
        (self.uniform(from.ln(), to.ln())).exp()
    }

    fn whole(&mut self, from: u32, to: u32) -> u32 {
        from + (self.fraction() * f64::from(to - from + 1)) as u32
    }

    fn chance(&mut self, part: f64) -> bool {
        self.fraction() < part
    }

    fn pick<T: Copy>(&mut self, among: &[T]) -> T {
        among[((self.fraction() * among.len() as f64) as usize).min(among.len() - 1)]
    }
}

/// A scenario under construction.
struct Sketch {
    draw: Draw,
    scenario: Scenario,
}

/// Draws the scenario of a seed.
pub(super) fn draw(seed: u64) -> Result<ArenaScenario, ScenarioError> {
    let kind = ScenarioKind::of(seed);
    let mut sketch = Sketch { draw: Draw::new(seed), scenario: Scenario::new(kind.name(), Duration::from_secs(60)) };
    sketch.scenario.seed = seed;
    sketch.build(kind);
    sketch.finish(seed, kind)
}

impl Sketch {
    fn build(&mut self, kind: ScenarioKind) {
        match kind {
            ScenarioKind::Servers => {
                self.servers(1, 128, 50.0, 50_000.0);
                self.one_host();
                self.backlogged(1, 8, 1.0, (0.3, 1.0));
            }
            ScenarioKind::Bursts => {
                self.servers(1, 32, 100.0, 4_000.0);
                self.one_host();
                self.bursts(2, 6);
            }
            ScenarioKind::Disks => {
                self.disks();
                self.one_host();
                self.backlogged(1, 6, 1.0, (0.5, 1.0));
            }
            ScenarioKind::WriteBack => {
                self.raid5();
                self.one_host();
                self.backlogged(2, 6, 0.0, (0.0, 0.8));
            }
            ScenarioKind::WriteBackPromise => {
                self.raid5();
                self.one_host();
                self.reader();
                self.backlogged(1, 4, 0.0, (0.0, 0.8));
            }
            ScenarioKind::Promise => {
                if self.draw.chance(0.5) { self.disks() } else { self.servers(2, 32, 300.0, 6_000.0) }
                self.one_host();
                self.reader();
                if self.draw.chance(0.5) { self.bursts(1, 4) } else { self.backlogged(1, 4, 1.0, (0.6, 1.0)) }
            }
            ScenarioKind::Capacity => {
                self.servers(1, 32, 300.0, 5_000.0);
                self.one_host();
                self.backlogged(2, 6, 1.0, (1.0, 1.0));
                self.capacity_changes();
            }
            ScenarioKind::Hosts => {
                self.servers(1, 64, 500.0, 10_000.0);
                self.hosts(2, 16);
                self.backlogged_on_hosts();
            }
            ScenarioKind::BadHosts => {
                self.servers(1, 64, 500.0, 6_000.0);
                self.hosts(4, 10);
                self.backlogged_on_hosts();
                self.misbehave();
            }
            ScenarioKind::Unattainable => {
                if self.draw.chance(0.3) { self.disks() } else { self.servers(1, 64, 80.0, 8_000.0) }
                self.one_host();
                if self.draw.chance(0.3) {
                    self.reader();
                }
                self.backlogged(1, 6, 1.0, (0.8, 1.0));
            }
            ScenarioKind::Slow => {
                self.servers(1, 4, 40.0, 200.0);
                self.one_host();
                self.backlogged(1, 4, 1.0, (0.5, 1.0));
            }
            ScenarioKind::Mixed => {
                if self.draw.chance(0.5) { self.disks() } else { self.raid5() }
                self.one_host();
                self.mixed();
            }
        }
    }

    fn array(&mut self, device: DeviceConfig) {
        let name = ResourceName::new("array").expect("a valid name");
        self.scenario.arrays.push(ScenarioArray { name, device, changes: Vec::new() });
    }

    /// Exponential servers.
    fn servers(&mut self, least: u32, most: u32, slow: f64, quick: f64) {
        let servers = self.draw.scaled(f64::from(least), f64::from(most) + 0.99) as u32;
        let rate = self.draw.scaled(slow, quick);
        self.array(DeviceConfig::Exponential(ExponentialConfig {
            rate: Iops::new(rate.round()),
            servers,
            capacity: Bytes::new(1 << 50),
        }));
    }

    fn disks(&mut self) {
        let device = match self.draw.whole(0, 3) {
            0 => Preset::Dnes309170w.config(),
            1 => Preset::SataStripe.config(),
            2 => Preset::FcRaid0Of6.config(),
            _ => Preset::FcRaid0Of10.config(),
        };
        self.array(device);
    }

    fn raid5(&mut self) {
        let disks = self.draw.whole(4, 12);
        let mut array = fc_array(disks, RaidLevel::Raid5);
        if let Some(cache) = &mut array.cache {
            cache.size = Bytes::from_mib(u64::from(self.draw.pick(&[16u32, 32, 64, 128, 256])));
        }
        self.array(DeviceConfig::Array(array));
    }

    fn host(&mut self, name: &str) {
        let array = self.scenario.arrays[0].name.clone();
        self.scenario.hosts.push(ScenarioHost::new(HostName::new(name).expect("a valid name"), array));
    }

    fn one_host(&mut self) {
        self.host("host");
    }

    fn hosts(&mut self, least: u32, most: u32) {
        let count = self.draw.scaled(f64::from(least), f64::from(most) + 0.99) as u32;
        for number in 1..=count {
            self.host(&format!("host-{number}"));
        }
        if self.draw.chance(0.5) {
            self.scenario.network = ReportNetwork {
                delay: Latency::from_millis(u64::from(self.draw.whole(1, 40))),
                jitter: Latency::from_millis(u64::from(self.draw.whole(1, 20))),
                loss: self.draw.pick(&[0.0, 0.01, 0.05, 0.1]),
                partitions: Vec::new(),
            };
        }
    }

    fn vm(&mut self, name: &str, host: usize, workload: Workload) -> &mut VirtualMachine {
        let size = match &self.scenario.arrays[0].device {
            DeviceConfig::Disk(_) => Bytes::from_mib(900),
            _ => Bytes::from_gib(8),
        };
        let disk = VirtualDisk {
            place: tidegate_sim::scenario::DiskPlace::InOrder { size },
            ..VirtualDisk::default()
        };
        let name = ConsumerName::new(name).expect("a valid name");
        let mut vm = VirtualMachine::new(name, self.scenario.hosts[host].name.clone(), disk);
        vm.workloads.push(workload);
        self.scenario.vms.push(vm);
        self.scenario.vms.last_mut().expect("one was pushed")
    }

    fn step(&mut self, reads: (f64, f64), sequential: bool) -> OperationStep {
        let bytes = self.draw.pick(&[4_096u32, 8_192, 16_384, 32_768, 65_536]);
        OperationStep {
            reads: (self.draw.uniform(reads.0, reads.1) * 20.0).round() / 20.0,
            sequential: if sequential && self.draw.chance(0.3) { 0.9 } else { 0.0 },
            ..OperationStep::random_reads(bytes)
        }
    }

    fn closed(&mut self, name: &str, outstanding: u32, step: OperationStep) -> Workload {
        Workload {
            arrivals: OperationArrivals::Closed { outstanding, think: ThinkTiming::NONE },
            steps: vec![step],
            ..Workload::random_reads(name, 1, 4_096)
        }
    }

    fn shares(&mut self) -> Shares {
        Shares::new(self.draw.pick(&[50u32, 100, 100, 100, 200, 400])).expect("within bounds")
    }

    /// The number of servers, or about that of disks.
    fn parallelism(&self) -> f64 {
        match &self.scenario.arrays[0].device {
            DeviceConfig::Exponential(servers) => f64::from(servers.servers),
            DeviceConfig::Disk(_) => 1.0,
            DeviceConfig::Array(array) => f64::from(array.disks),
        }
    }

    /// Consumers that together always have several times as many requests as the storage has servers.
    fn backlogged(&mut self, least: u32, most: u32, random: f64, reads: (f64, f64)) {
        let count = self.draw.whole(least, most);
        let depth = self.draw.scaled(2.0, 16.0) * self.parallelism();
        let each = (depth / f64::from(count)).clamp(2.0, 64.0) as u32;
        for number in 1..=count {
            let sequential = !self.draw.chance(random);
            let step = self.step(reads, sequential);
            let workload = self.closed("load", each, step);
            let shares = self.shares();
            self.vm(&format!("load-{number}"), 0, workload).shares = shares;
        }
    }

    fn backlogged_on_hosts(&mut self) {
        let hosts = self.scenario.hosts.len();
        let depth = self.draw.scaled(3.0, 12.0) * self.parallelism();
        let each = (depth / hosts as f64).clamp(4.0, 64.0) as u32;
        for host in 0..hosts {
            for number in 1..=self.draw.whole(1, 3) {
                let step = self.step((0.5, 1.0), false);
                let workload = self.closed("load", each, step);
                let shares = self.shares();
                self.vm(&format!("load-{}-{number}", host + 1), host, workload).shares = shares;
            }
        }
    }

    /// Consumers that come and go, in a closed loop or by a rate.
    fn bursts(&mut self, least: u32, most: u32) {
        let rate = self.capacity_guess();
        let count = self.draw.whole(least, most);
        for number in 1..=count {
            let on = self.draw.scaled(3.0, 20.0);
            let off = self.draw.scaled(2.0, 20.0);
            let cycle = ActivityCycle {
                on: Latency::from_secs_f64(on),
                off: Latency::from_secs_f64(off),
                delay: Latency::from_secs_f64(self.draw.uniform(0.0, 10.0)),
            };
            let step = self.step((0.7, 1.0), false);
            let outstanding = (self.draw.scaled(2.0, 10.0) * self.parallelism()).clamp(2.0, 64.0) as u32;
            let mut workload = self.closed("load", outstanding, step);
            if self.draw.chance(0.4) {
                let part = self.draw.uniform(0.3, 1.2) / f64::from(count);
                workload.arrivals = OperationArrivals::Open {
                    rate: Iops::new((rate * part).max(2.0).round()),
                    spacing: ArrivalSpacing::Poisson,
                    limit: 64,
                };
            }
            workload.cycle = Some(cycle);
            let shares = self.shares();
            self.vm(&format!("load-{number}"), 0, workload).shares = shares;
        }
    }

    /// About what the storage completes.
    fn capacity_guess(&self) -> f64 {
        match &self.scenario.arrays[0].device {
            DeviceConfig::Exponential(servers) => servers.rate.per_second(),
            DeviceConfig::Disk(_) => 80.0,
            DeviceConfig::Array(array) => 130.0 * f64::from(array.disks),
        }
    }

    /// A protected reader that asks for little.
    fn reader(&mut self) {
        let bytes = self.draw.pick(&[4_096u32, 8_192, 16_384]);
        let rate = (self.capacity_guess() * self.draw.scaled(0.03, 0.2)).clamp(10.0, 400.0);
        let arrivals = if self.draw.chance(0.6) {
            OperationArrivals::Open {
                rate: Iops::new(rate.round()),
                spacing: ArrivalSpacing::Poisson,
                limit: 64,
            }
        } else {
            let think = ThinkTiming { mean: Latency::from_secs_f64(4.0 / rate), distribution: ThinkTime::Exponential };
            OperationArrivals::Closed { outstanding: 4, think }
        };
        let workload = Workload { arrivals, ..Workload::random_reads("reads", 1, bytes) };
        self.vm("reader", 0, workload).protected = true;
    }

    fn mixed(&mut self) {
        for (name, reads, sequential, bytes) in
            [("scan", 1.0, 1.0, 65_536u32), ("random", 0.7, 0.0, 8_192), ("batch", 0.5, 0.3, 32_768)]
        {
            for number in 1..=self.draw.whole(1, 2) {
                let step = OperationStep { reads, sequential, ..OperationStep::random_reads(bytes) };
                let outstanding = self.draw.scaled(2.0, 16.0) as u32;
                let workload = self.closed(name, outstanding, step);
                let shares = self.shares();
                self.vm(&format!("{name}-{number}"), 0, workload).shares = shares;
            }
        }
    }

    /// The capacity changes twice, by two to eight times.
    fn capacity_changes(&mut self) {
        let first = self.capacity_guess();
        let mut rate = first;
        for number in 1u32..=2 {
            let factor = self.draw.scaled(2.0, 8.0);
            let up = if rate < first { self.draw.chance(0.8) } else { self.draw.chance(0.3) };
            rate = if up { rate * factor } else { rate / factor }.clamp(50.0, 20_000.0).round();
            // The times are set once the length of the run is known.
            let at = Instant::from_nanos(u64::from(number));
            self.scenario.arrays[0].changes.push(ArrayChange { at, to: ChangedArray::Rate(Iops::new(rate)) });
        }
    }

    /// One host lies, fails, or both.
    fn misbehave(&mut self) {
        let what = self.draw.whole(0, 2);
        let factor = self.draw.pick(&[0.01, 0.1, 3.0, 10.0, 100.0]);
        let host = &mut self.scenario.hosts[1];
        if what != 1 {
            host.reported_factor = factor;
        }
        if what != 0 {
            // The times are set once the length of the run is known.
            host.down = vec![ScenarioSpan { from: Instant::from_nanos(1), to: Instant::from_nanos(2) }];
        }
    }

    /// Chooses length and target by an unregulated run, and completes the scenario.
    fn finish(mut self, seed: u64, kind: ScenarioKind) -> Result<ArenaScenario, ScenarioError> {
        let changes = std::mem::take(&mut self.scenario.arrays[0].changes);
        let down = self.scenario.hosts.get(1).is_some_and(|host| !host.down.is_empty());
        if down {
            self.scenario.hosts[1].down.clear();
        }
        self.scenario.duration = Duration::from_secs(20);
        self.scenario.warmup = Duration::from_secs(5);
        let free = simulate(&self.scenario, seed, &mut SilentRecorder)?;
        let iops: f64 = free.consumers.iter().map(|(_, consumer)| consumer.iops).sum();
        let seconds = (REQUESTS.1 / iops.max(1.0))
            .clamp(SECONDS.0, SECONDS.1)
            .min((REQUESTS.1 * 4.0 / iops.max(1.0)).max(20.0))
            .max((REQUESTS.0 / iops.max(1.0)).min(SECONDS.0));
        let seconds = seconds.round();
        let judged = self.judged();
        let unloaded = self.unloaded(seed)?;
        // After a change the servers may be slower: the target is then one that they can keep, too.
        let slowest_rate = changes.iter().fold(1.0, |slowest: f64, change| match change.to {
            ChangedArray::Rate(rate) => slowest.min(rate.per_second() / self.capacity_guess()),
            ChangedArray::Device(_) => slowest,
        });
        let unloaded = unloaded / slowest_rate;
        let loaded = judged
            .iter()
            .filter_map(|name| free.consumers.get(name.as_str())?.device_latency_ms)
            .fold(0.0, f64::max)
            / 1e3;
        let target = match kind {
            ScenarioKind::Unattainable => unloaded * self.draw.uniform(0.3, 1.1),
            ScenarioKind::Slow => (unloaded * self.draw.scaled(2.0, 12.0)).clamp(0.05, 2.0),
            _ => {
                let most = (0.9 * loaded).max(1.6 * unloaded).min(20.0 * unloaded);
                unloaded * self.draw.scaled(1.5, most / unloaded)
            }
        };
        let instant = |at: f64| Instant::from_nanos((at * 1e9) as u64);
        let mut times = Vec::new();
        for (number, change) in changes.into_iter().enumerate() {
            let at = (seconds * (number + 1) as f64 / 3.0).round();
            times.push(at);
            self.scenario.arrays[0].changes.push(ArrayChange { at: instant(at), ..change });
        }
        if down {
            let (from, to) = ((seconds / 3.0).round(), (seconds * 0.6).round());
            times.extend([from, to]);
            self.scenario.hosts[1].down = vec![ScenarioSpan { from: instant(from), to: instant(to) }];
        }
        let slowest = judged
            .iter()
            .filter_map(|name| free.consumers.get(name.as_str()))
            .map(|consumer| consumer.iops)
            .filter(|iops| *iops > 0.0)
            .fold(f64::INFINITY, f64::min);
        let judged_seconds = (COMPLETIONS / slowest).ceil().clamp(1.0, 5.0);
        self.scenario.duration = Duration::from_secs_f64(seconds);
        self.scenario.warmup = Duration::ZERO;
        self.scenario.series_interval = Duration::from_secs_f64(judged_seconds);
        Ok(ArenaScenario {
            id: format!("{}-{seed}", kind.name()),
            kind,
            seed,
            target: Latency::from_secs_f64(target),
            unloaded: Latency::from_secs_f64(unloaded),
            judged,
            changes: times,
            attainability: if kind == ScenarioKind::Unattainable {
                Attainability::Drawn
            } else {
                Attainability::Measured
            },
            scenario: self.scenario,
        })
    }

    /// The protected consumers; all if none is.
    fn judged(&self) -> Vec<String> {
        let protected = self.scenario.vms.iter().any(|vm| vm.protected);
        let judged = self.scenario.vms.iter().filter(|vm| vm.protected == protected);
        judged.map(|vm| vm.name.to_string()).collect()
    }

    /// The unloaded latency of the slowest judged consumer: one request at a time, alone.
    fn unloaded(&self, seed: u64) -> Result<f64, ScenarioError> {
        let judged = self.judged();
        let mut slowest: f64 = 0.0;
        for vm in self.scenario.vms.iter().filter(|vm| judged.iter().any(|name| name == vm.name.as_str())) {
            let mut alone = self.scenario.clone();
            let mut vm = vm.clone();
            for workload in &mut vm.workloads {
                workload.arrivals = OperationArrivals::Closed {
                    outstanding: 1,
                    think: ThinkTiming { mean: Latency::from_millis(20), distribution: ThinkTime::Exponential },
                };
                workload.cycle = None;
            }
            alone.vms = vec![vm];
            let outcome = simulate(&alone, seed, &mut SilentRecorder)?;
            let latency = outcome.consumers.iter().filter_map(|(_, consumer)| consumer.device_latency_ms).sum::<f64>();
            slowest = slowest.max(latency / 1e3);
        }
        Ok(slowest.max(1e-6))
    }
}
