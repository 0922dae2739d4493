//! A virtual machine that a law limits to a rate: its bucket, and its requests' times from release on.

use std::time::Duration;

use tidegate_control::{ConsumerObservation, Contract, FirstRate};
use tidegate_sched::{FlowId, FlowStatus, LeakyBucket, Release, Sfq};
use tidegate_units::{Instant, Iops, Latency};

use super::Request;
use super::measure::Distribution;
use crate::outcome::ContractOutcome;
use crate::scenario::{GoalChange, Host, Vm};

/// The fraction of an interval's requests that do not exceed the law's percentile.
const PERCENTILE: f64 = 0.95;

/// State of a tenant beside the state that every port keeps.
#[derive(Debug)]
pub(super) struct Tenant {
    contract: Option<Contract>,
    goal: Option<Latency>,
    /// Changes of its goal, in the order of time.
    goal_changes: Vec<GoalChange>,
    /// The bucket in force; `None`: everything is released at once.
    pub(super) bucket: Option<LeakyBucket>,
    /// Its bucket when a rate is commanded again.
    terms: LeakyBucket,
    /// Time from release to dispatch, of the requests that completed since the last observation.
    waited: Latency,
    /// Time from release to completion, of the same requests.
    answered: Distribution,
    /// Time for which the bucket had been short of tokens at the last observation.
    short: Duration,
    /// Time from release to completion, since the statistics began.
    all: Distribution,
    /// Those of `all` that took longer than was promised.
    late: u64,
    done: u64,
    /// Requests of the time series' interval, and the sum of their times from release to completion.
    series: (u64, u64),
    /// Time since which it has had nothing outstanding; `None` while it has something outstanding.
    quiet_since: Option<u64>,
}

impl Tenant {
    /// Begins at the rate promised to it, or at the law's first rate (Lee, table 1), or unthrottled.
    pub(super) fn new(vm: &Vm, host: &Host, first: FirstRate, held: bool) -> Self {
        let contract = first.promised(vm.contract);
        let (rate, size, held) = match first {
            FirstRate::AtLeast(floor) => {
                (contract.map_or(floor, |contract| contract.iops()), vm.bucket, held)
            }
            // σ is said in a contract.
            FirstRate::Released => (Iops::ZERO, Release::USUAL_SIZE, false),
        };
        let terms = host.release.bucket(rate, size);
        Self {
            contract,
            goal: vm.goal,
            goal_changes: {
                let mut changes = vm.goal_changes.clone();
                changes.sort_by_key(|change| change.at);
                changes
            },
            bucket: (held && !vm.protected).then_some(terms),
            terms,
            waited: Latency::ZERO,
            answered: Distribution::default(),
            short: Duration::ZERO,
            all: Distribution::default(),
            late: 0,
            done: 0,
            series: (0, 0),
            quiet_since: Some(0),
        }
    }

    /// Notes that a request of its is issued. Returns true if the machine comes back from a pause of at least
    /// this length, and has a contract.
    pub(super) fn issued(&mut self, now: u64, pause: Duration) -> bool {
        let quiet = self.quiet_since.take().map(|since| Duration::from_nanos(now - since));
        self.contract.is_some() && quiet.is_some_and(|quiet| quiet >= pause)
    }

    /// Nothing of its is outstanding any more.
    pub(super) fn fell_quiet(&mut self, now: u64) {
        self.quiet_since = Some(now);
    }

    /// A request of its is answered.
    pub(super) fn answered(&mut self, request: &Request, now: u64) {
        let took = now - request.released;
        self.waited = self.waited.saturating_add(Latency::from_nanos(request.dispatched - request.released));
        self.answered.record(took);
        self.all.record(took);
        self.done += 1;
        self.series = (self.series.0 + 1, self.series.1 + took);
        self.late +=
            u64::from(self.contract.is_some_and(|contract| took > contract.response_time().as_nanos()));
    }

    /// Puts a rate into force, or releases the virtual machine.
    pub(super) fn hold<T>(&mut self, rate: Option<Iops>, scheduler: &mut Sfq<T>, flow: FlowId, now: Instant) {
        let bucket = rate.map(|rate| LeakyBucket { rate, ..self.terms });
        if bucket != self.bucket {
            self.bucket = bucket;
            let known = scheduler.set_bucket(flow, bucket, now);
            debug_assert!(known.is_ok(), "the scheduler knows every port's flow");
        }
    }

    /// Adds the law's inputs from the time since the last observation.
    pub(super) fn observe(
        &mut self,
        observation: &mut ConsumerObservation,
        status: Option<FlowStatus>,
        now: Instant,
    ) {
        let answered = std::mem::take(&mut self.answered);
        let goal = self.goal_changes.iter().rfind(|change| change.at <= now).map(|change| change.goal);
        (observation.contract, observation.goal) = (self.contract, goal.or(self.goal));
        observation.scheduler_wait = std::mem::take(&mut self.waited);
        observation.release_to_completion = answered.quantile(PERCENTILE);
        let bucket = status.and_then(|status| status.bucket).unwrap_or_default();
        observation.oldest_released = bucket.waited.map(Latency::from);
        let short = bucket.short;
        // A bucket that is lifted and set again counts from the beginning.
        observation.short_of_tokens = short.saturating_sub(self.short).into();
        self.short = short;
    }

    /// The mean time from release to completion over the time series' interval that ends now, in
    /// milliseconds.
    pub(super) fn sample(&mut self) -> Option<f64> {
        let (count, nanos) = std::mem::take(&mut self.series);
        (count > 0).then(|| nanos as f64 / count as f64 / 1e6)
    }

    /// The statistics begin.
    pub(super) fn measure(&mut self) {
        self.all = Distribution::default();
        (self.late, self.done) = (0, 0);
    }

    /// Returns the account of its contract. `None` without a contract.
    pub(super) fn outcome(&mut self) -> Option<ContractOutcome> {
        let contract = self.contract?;
        Some(ContractOutcome {
            iops: contract.iops().per_second(),
            response_time_ms: contract.response_time().as_millis_f64(),
            expected_ms: contract.expected().as_millis_f64(),
            release_to_completion_ms: std::mem::take(&mut self.all).latencies(),
            late_fraction: (self.done > 0).then(|| self.late as f64 / self.done as f64),
        })
    }
}
