//! Statistics, the time series, and the outcome.

use super::measure::{LatencyDistribution, PromiseCounts, RequestTally};
use super::plan::nanos;
use super::{ArrayState, EngineEvent, HostStage, NONE, Simulation, VmPort, instant};
use crate::outcome::{
    ConsumerOutcome, ContractOutcome, HostOutcome, ResourceOutcome, SimulationOutcome, WindowOutcome,
};
use crate::recorder::{Recorder, SeriesRow, SeriesSample};
use tidegate_regulate::RateAccount;
use tidegate_units::Latency;

impl Simulation<'_> {
    /// The warm-up is over.
    pub(super) fn measure(&mut self) {
        self.measured_from = self.now;
        for array in &mut self.arrays {
            array.latency = LatencyDistribution::default();
            (array.count, array.bytes) = (0, 0);
            array.dirty = array.device.dirty();
        }
        for stage in &mut self.stages {
            stage.window.restart(self.now);
            stage.promises = PromiseCounts::default();
        }
        for rates in self.ports.iter_mut().filter_map(|port| port.account.rates_mut()) {
            rates.restart_totals(instant(self.now));
        }
        for index in 0..self.vms.len() {
            let integral = self.integral(index);
            let under_way = self.under_way(index);
            let vm = &mut self.vms[index];
            vm.under_way = under_way;
            vm.felt = LatencyDistribution::default();
            // What belongs to the interval under way counts for the time series, and not for the statistics.
            vm.tally = RequestTally::default();
            vm.before_measure = vm.interval;
            (vm.judged, vm.above, vm.dropped) = (0, 0, 0);
            if let Some(latencies) = &mut vm.judged_latencies {
                latencies.measure();
            }
            let _ = vm.measured.mean(integral, instant(self.now));
        }
    }

    /// Request-nanoseconds that a virtual machine had outstanding so far, on all its ports.
    fn integral(&self, vm: usize) -> u128 {
        let now = instant(self.now);
        let ports = &self.ports;
        self.vms[vm].ports.iter().map(|&port| ports[port as usize].account.outstanding().integral(now)).sum()
    }

    /// Number of requests that a virtual machine has under way, on all its ports.
    pub(super) fn under_way(&self, vm: usize) -> u64 {
        self.vms[vm].ports.iter().map(|&port| self.ports[port as usize].account.outstanding().value()).sum()
    }

    /// An interval of the time series is over.
    pub(super) fn sample(&mut self, recorder: &mut dyn Recorder) {
        let length = nanos(self.scenario.series_interval);
        let rows = recorder.wants_rows();
        for vm in 0..self.vms.len() {
            let integral = self.integral(vm);
            let outstanding = self.vms[vm].sampled.mean(integral, instant(self.now)).unwrap_or(0.0);
            if rows {
                let main = self.vms[vm].ports[0] as usize;
                let released_ms = self.ports[main].take_series();
                let sample =
                    SeriesSample { released_ms, ..self.sample_of(vm, outstanding, length as f64 / 1e9) };
                let spec = &self.scenario.vms[vm];
                let time_s = self.now as f64 / 1e9;
                recorder.row(&SeriesRow { time_s, host: &spec.host, consumer: &spec.name, sample });
            }
            self.close_interval(vm);
        }
        recorder.progress(instant(self.now));
        self.queue.push(self.now.saturating_add(length), EngineEvent::Sample);
    }

    /// The numbers of an interval, as the first port (the main disk's) has them where they are the host's.
    fn sample_of(&self, vm: usize, outstanding: f64, seconds: f64) -> SeriesSample {
        let state = &self.vms[vm];
        let stage = self.main_stage(vm);
        let law = stage.steering.as_ref();
        let ms = |latency: Option<Latency>| latency.map(Latency::as_millis_f64);
        SeriesSample {
            window: stage.window.value().filter(|_| !state.protected),
            rate: self.main_rate(vm),
            beta: law.and_then(|law| law.beta),
            latency_local_ms: ms(law.and_then(|law| law.local)),
            latency_cluster_ms: ms(law.and_then(|law| law.together)),
            estimate_ms: ms(law.and_then(|law| law.estimate)),
            device_latency_ms: state.interval.device_ms(),
            latency_ms: state.interval.felt_ms(),
            released_ms: None,
            iops: state.interval.count as f64 / seconds,
            bytes_per_s: state.interval.bytes as f64 / seconds,
            ops_per_s: state.interval.ops as f64 / seconds,
            outstanding,
            device_percentile_ms: state.judged_latencies.as_ref().and_then(|own| own.of_interval_ms()),
        }
    }

    /// Returns the rate to which a virtual machine is throttled, in requests per second.
    fn main_rate(&self, vm: usize) -> Option<f64> {
        let bucket = self.ports[self.vms[vm].ports[0] as usize].account.rates()?.bucket()?;
        Some(bucket.rate.per_second())
    }

    fn main_stage(&self, vm: usize) -> &HostStage {
        &self.stages[self.ports[self.vms[vm].ports[0] as usize].stage as usize]
    }

    /// Judges an interval, and adds it to the statistics.
    fn close_interval(&mut self, vm: usize) {
        let target = self.main_stage(vm).queue.law().map(|law| law.target);
        let state = &mut self.vms[vm];
        let interval = std::mem::take(&mut state.interval);
        let before = std::mem::take(&mut state.before_measure);
        let percentile = state.judged_latencies.as_mut().and_then(|latencies| latencies.end_interval());
        if let Some(target) = target
            && interval.judged > before.judged
        {
            let judged = interval.judged - before.judged;
            let mean = (interval.judged_nanos - before.judged_nanos) / judged;
            state.judged += 1;
            state.above += u64::from(percentile.unwrap_or(mean) > target.as_nanos());
        }
        state.tally.add(&interval);
        state.tally.subtract(&before);
    }

    pub(crate) fn outcome(mut self) -> SimulationOutcome {
        for vm in 0..self.vms.len() {
            self.close_interval(vm);
        }
        for vm in 0..self.vms.len() {
            let host = self.host_of(vm as u32);
            let tally = self.vms[vm].tally;
            self.hosts[host as usize].tally.add(&tally);
        }
        let seconds = (self.end - self.measured_from) as f64 / 1e9;
        let resources = self.arrays.iter_mut().zip(&self.scenario.arrays);
        let resources = resources.map(|(array, spec)| (spec.name.clone(), array.outcome(seconds))).collect();
        let consumers = (0..self.vms.len()).map(|vm| self.consumer(vm, seconds)).collect::<Vec<_>>();
        let consumers = self.scenario.vms.iter().map(|vm| vm.name.clone()).zip(consumers).collect();
        let hosts = (0..self.hosts.len()).map(|host| self.host(host, seconds)).collect::<Vec<_>>();
        let hosts = self.scenario.hosts.iter().map(|host| host.name.clone()).zip(hosts).collect();
        SimulationOutcome {
            scenario: self.scenario.name.clone(),
            seed: self.seed,
            duration_s: self.end as f64 / 1e9,
            warmup_s: self.measured_from as f64 / 1e9,
            resources,
            hosts,
            consumers,
            work: self.work,
        }
    }

    fn consumer(&mut self, vm: usize, seconds: f64) -> ConsumerOutcome {
        let spec = &self.scenario.vms[vm];
        let stage = self.ports[self.vms[vm].ports[0] as usize].stage;
        let window = self.stages[stage as usize].window.outcome(self.end);
        let integral = self.integral(vm);
        let state = &mut self.vms[vm];
        let rates = self.ports[state.ports[0] as usize].account.rates();
        ConsumerOutcome {
            host: spec.host.clone(),
            shares: spec.shares,
            iops: state.tally.count as f64 / seconds,
            bytes_per_s: state.tally.bytes as f64 / seconds,
            ops_per_s: state.tally.ops as f64 / seconds,
            latency_ms: std::mem::take(&mut state.felt).latencies(),
            device_latency_ms: state.tally.device_ms(),
            device_percentile_ms: state.judged_latencies.as_mut().and_then(|own| own.measured_ms()),
            window: (!state.protected).then_some(window),
            outstanding: state.measured.mean(integral, instant(self.end)).unwrap_or(0.0),
            above_target_fraction: (state.judged > 0).then(|| state.above as f64 / state.judged as f64),
            contract: rates.and_then(contract_outcome),
            dropped: state.dropped,
        }
    }

    fn host(&mut self, host: usize, seconds: f64) -> HostOutcome {
        let spec = &self.scenario.hosts[host];
        let state = &self.hosts[host];
        let mut window = WindowOutcome { mean: 0.0, last: 0.0 };
        let mut beta = None;
        let mut promises = PromiseCounts::default();
        for &stage in &state.stages {
            let stage = &mut self.stages[stage as usize];
            if stage.resource != spec.array {
                continue;
            }
            let own = stage.window.outcome(self.end);
            window = WindowOutcome { mean: window.mean + own.mean, last: window.last + own.last };
            if let Some(own) = stage.steering.as_ref().and_then(|steering| steering.beta) {
                beta = Some(beta.unwrap_or(0.0) + own);
            }
            promises.add(&stage.promises);
            debug_assert!(stage.vm == NONE || stage.steering.is_some(), "a stage of one machine has a law");
        }
        HostOutcome {
            resource: spec.array.clone(),
            iops: state.tally.count as f64 / seconds,
            bytes_per_s: state.tally.bytes as f64 / seconds,
            device_latency_ms: state.tally.device_ms(),
            window,
            beta,
            reservations_missed: promises.outcome(),
        }
    }
}

impl ArrayState {
    fn outcome(&mut self, seconds: f64) -> ResourceOutcome {
        ResourceOutcome {
            latency_ms: std::mem::take(&mut self.latency).latencies(),
            iops: self.count as f64 / seconds,
            bytes_per_s: self.bytes as f64 / seconds,
        }
    }
}

impl VmPort {
    /// Returns the mean time from release to completion over the time series' interval that ends now, in
    /// milliseconds. `None` without requests, and where no law commands rates.
    fn take_series(&mut self) -> Option<f64> {
        let (count, nanos) = std::mem::take(&mut self.series);
        (count > 0).then(|| nanos as f64 / count as f64 / 1e6)
    }
}

/// Returns the outcome of a contract; `None` without a contract.
fn contract_outcome(rates: &RateAccount<LatencyDistribution>) -> Option<ContractOutcome> {
    let record = rates.contract()?;
    let contract = record.contract()?;
    let (late, requests) = (record.late(), record.requests());
    Some(ContractOutcome {
        iops: contract.iops().per_second(),
        response_time_ms: contract.response_time().as_millis_f64(),
        expected_ms: contract.expected().as_millis_f64(),
        release_to_completion_ms: rates.total().clone().latencies(),
        late_fraction: (requests > 0).then(|| late as f64 / requests as f64),
    })
}
