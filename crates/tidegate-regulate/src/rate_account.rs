//! A consumer in a pool whose law commands rates: its bucket, the latency of its requests from their release
//! on, and the fulfilment of its contract.

use std::time::Duration;

use tidegate_control::{ConsumerObservation, Contract, FirstRate};
use tidegate_sched::{FlowId, FlowStatus, LeakyBucket, Release, Sfq};
use tidegate_units::{Instant, Iops, Latency};

use crate::config::ExportConfig;
use crate::histogram::FineHistogram;
use crate::stats::{ContractSnapshot, TenantSnapshot};

/// The part of an interval's requests that the law's percentile is not exceeded by.
const PERCENTILE: f64 = 0.95;

/// The additional state of a consumer in a pool whose law commands rates.
#[derive(Debug)]
pub(crate) struct Tenant {
    promise: Option<Promise>,
    goal: Option<Latency>,
    /// In force; `None`: everything is released at once.
    bucket: Option<LeakyBucket>,
    /// Its bucket when a rate is commanded again.
    terms: LeakyBucket,
    /// From release to dispatch, of what completed since the last observation.
    waited: Latency,
    /// From release to completion, of the same.
    interval: FineHistogram,
    /// From release to completion, since there is a law that commands rates.
    total: FineHistogram,
    /// The time for which the bucket had been short of tokens at the last observation.
    short: Duration,
    /// The time from which on it has had nothing outstanding; `None` while it has.
    quiet_since: Option<Instant>,
}

/// A contract, and its fulfilment since the first one. The counts stay while nothing is promised, as by
/// night.
#[derive(Debug)]
struct Promise {
    contract: Option<Contract>,
    requests: u64,
    late: u64,
    /// The time during which it had something outstanding, without the stretch that is not over yet.
    active: Duration,
    /// The time when that stretch began, or the contract in it.
    since: Option<Instant>,
}

/// σ, which is said in a contract.
const fn size(config: &ExportConfig, first: FirstRate) -> u32 {
    match first {
        FirstRate::AtLeast(_) => config.bucket,
        FirstRate::Released => Release::USUAL_SIZE,
    }
}

impl Promise {
    /// Other terms, or none; with something outstanding or not.
    fn change(&mut self, contract: Option<Contract>, outstanding: bool, now: Instant) {
        if self.contract.is_some() != contract.is_some() {
            self.active = self.active(now);
            self.since = (contract.is_some() && outstanding).then_some(now);
        }
        self.contract = contract;
    }

    fn active(&self, now: Instant) -> Duration {
        self.active + self.since.map_or(Duration::ZERO, |since| now.saturating_since(since))
    }
}

impl Tenant {
    /// Creates the state with the contract's rate, or with the law's first rate (Lee, table 1), or without a
    /// bucket. There is no bucket either if `held` is false or the consumer is protected.
    pub(crate) fn new(
        config: &ExportConfig,
        release: Release,
        first: FirstRate,
        held: bool,
        idle: bool,
        now: Instant,
    ) -> Self {
        let (rate, held) = match first {
            FirstRate::AtLeast(floor) => (config.contract.map_or(floor, |contract| contract.iops()), held),
            FirstRate::Released => (Iops::ZERO, false),
        };
        let terms = release.bucket(rate, size(config, first));
        let mut tenant = Self {
            promise: None,
            goal: config.goal,
            bucket: (held && !config.protected).then_some(terms),
            terms,
            waited: Latency::ZERO,
            interval: FineHistogram::default(),
            total: FineHistogram::default(),
            short: Duration::ZERO,
            quiet_since: idle.then_some(now),
        };
        tenant.reconfigure(config, release, first, now);
        tenant
    }

    /// Takes new terms. The bucket follows with the law's next step.
    pub(crate) fn reconfigure(
        &mut self,
        config: &ExportConfig,
        release: Release,
        first: FirstRate,
        now: Instant,
    ) {
        self.terms = release.bucket(self.terms.rate, size(config, first));
        self.goal = config.goal;
        let (contract, outstanding) = (first.promised(config.contract), self.quiet_since.is_none());
        match &mut self.promise {
            // A law that keeps no contracts does not go on with what another counted.
            promise if first == FirstRate::Released => *promise = None,
            Some(promise) => promise.change(contract, outstanding, now),
            promise @ None => {
                let since = outstanding.then_some(now);
                let begins = |_| Promise { contract, requests: 0, late: 0, active: Duration::ZERO, since };
                *promise = contract.map(begins);
            }
        }
    }

    /// σ of its bucket when a rate is commanded again.
    #[cfg(test)]
    pub(crate) fn size(&self) -> u32 {
        self.terms.size
    }

    pub(crate) fn bucket(&self) -> Option<LeakyBucket> {
        self.bucket
    }

    /// Records the arrival of a request. Returns true if the consumer has a contract and comes back from a
    /// pause of at least this length.
    pub(crate) fn issued(&mut self, now: Instant, pause: Duration) -> bool {
        let Some(since) = self.quiet_since.take() else { return false };
        let Some(promise @ Promise { contract: Some(_), .. }) = &mut self.promise else { return false };
        promise.since = Some(now);
        now.saturating_since(since) >= pause
    }

    /// Nothing of its is outstanding any more.
    pub(crate) fn fell_quiet(&mut self, now: Instant) {
        self.quiet_since = Some(now);
        if let Some(promise) = &mut self.promise {
            promise.active = promise.active(now);
            promise.since = None;
        }
    }

    /// A request of its is done.
    pub(crate) fn completed(&mut self, released: Instant, dispatched: Instant, now: Instant) {
        let took = now.latency_since(released);
        self.waited = self.waited.saturating_add(dispatched.latency_since(released));
        self.interval.record(took);
        self.total.record(took);
        if let Some(Promise { contract: Some(contract), requests, late, .. }) = &mut self.promise {
            *requests += 1;
            *late += u64::from(took > contract.response_time());
        }
    }

    /// Puts a rate into force; without a rate, releases the consumer.
    pub(crate) fn hold<T>(&mut self, rate: Option<Iops>, scheduler: &mut Sfq<T>, flow: FlowId, now: Instant) {
        let bucket = rate.map(|rate| LeakyBucket { rate, ..self.terms });
        if bucket != self.bucket {
            self.bucket = bucket;
            let known = scheduler.set_bucket(flow, bucket, now);
            debug_assert!(known.is_ok(), "the scheduler knows every consumer's flow");
        }
    }

    /// Adds what the law is to know of the time since the last observation.
    pub(crate) fn observe(&mut self, observation: &mut ConsumerObservation, status: Option<FlowStatus>) {
        observation.contract = self.promise.as_ref().and_then(|promise| promise.contract);
        observation.goal = self.goal;
        observation.scheduler_wait = std::mem::take(&mut self.waited);
        observation.release_to_completion = self.interval.quantile(PERCENTILE);
        self.interval.clear();
        let bucket = status.and_then(|status| status.bucket).unwrap_or_default();
        observation.oldest_released = bucket.waited.map(Latency::from);
        let short = bucket.short;
        // A bucket that is lifted and set again counts from the beginning.
        observation.short_of_tokens = short.saturating_sub(self.short).into();
        self.short = short;
    }

    pub(crate) fn snapshot(&self, now: Instant) -> TenantSnapshot {
        let contract = self.promise.as_ref().map(|promise| ContractSnapshot {
            contract: promise.contract,
            requests: promise.requests,
            late: promise.late,
            active: promise.active(now),
        });
        TenantSnapshot { rate: self.bucket.map(|bucket| bucket.rate), released: self.total.clone(), contract }
    }
}
