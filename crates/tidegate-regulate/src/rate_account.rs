//! A consumer's state under a law that commands rates or keeps contracts: its bucket, the times of its
//! requests from their release on, and the fulfilment of its contract.

use std::time::Duration;

use tidegate_control::{ConsumerObservation, Contract, ContractUse, FirstRate};
use tidegate_sched::{BucketRelease, BucketStatus, LeakyBucket};
use tidegate_units::{Instant, Iops, Latency};

use crate::request::CompletedRequest;
use crate::samples::LatencySamples;
use crate::terms::ConsumerTerms;
use crate::virtual_bucket::VirtualBucket;

/// The fraction of an interval's requests that do not exceed the law's percentile (Lee, table 1: RT⁹⁵).
const PERCENTILE: f64 = 0.95;

/// A consumer's state under a law that commands rates or keeps contracts.
#[derive(Debug)]
pub struct RateAccount<S> {
    contracts: ContractUse,
    contract: Option<ContractRecord>,
    /// Tells from when on requests count, where no bucket releases them.
    virtual_bucket: Option<VirtualBucket>,
    /// The bucket in force; `None`: everything is released at once.
    bucket: Option<LeakyBucket>,
    /// The bucket that comes into force with the next rate.
    next_bucket: LeakyBucket,
    /// Late requests since the last observation.
    late: u64,
    /// Time from release to dispatch, of the requests that completed since the last observation.
    scheduler_wait: Latency,
    /// Times from release to completion, of the same requests.
    interval: S,
    /// Times from release to completion, since the account or its totals began.
    total: S,
    /// The time for which the bucket had been short of tokens at the last observation.
    short: Duration,
    /// The time since which nothing has been outstanding; `None` while something is.
    idle_since: Option<Instant>,
}

/// A contract, and its fulfilment since the first one. The counts stay while nothing is promised, as by
/// night.
#[derive(Debug, Clone, Copy)]
pub struct ContractRecord {
    contract: Option<Contract>,
    requests: u64,
    late: u64,
    /// The time with something outstanding, without the stretch that is not over yet.
    active: Duration,
    /// The beginning of that stretch, or of the contract in it.
    active_since: Option<Instant>,
}

/// The account's beginning: in force at once or not, idle or not.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AccountStart {
    pub(crate) rules: AccountRules,
    /// False if no rate is in force before the law's first step.
    pub(crate) throttled: bool,
    /// The time since which nothing has been outstanding; `None`: something is.
    pub(crate) idle_since: Option<Instant>,
}

/// The rules of a law for accounts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AccountRules {
    /// `None`: the law commands no rates.
    pub(crate) first: Option<FirstRate>,
    pub(crate) contracts: ContractUse,
}

impl AccountRules {
    /// Returns true if a consumer on these terms needs an account. One with the counts of a contract keeps it
    /// while nothing is promised.
    pub(crate) fn want_account<S>(self, terms: &ConsumerTerms, account: Option<&RateAccount<S>>) -> bool {
        let counts = account.is_some_and(|account| account.contract.is_some());
        self.first.is_some() || self.contracts.keeps() && (terms.contract.is_some() || counts)
    }
}

impl<S: LatencySamples> RateAccount<S> {
    /// An account that begins at the contract's rate, or at the law's first rate (Lee, table 1), or without a
    /// bucket.
    pub(crate) fn new(
        terms: &ConsumerTerms,
        release: BucketRelease,
        start: AccountStart,
        now: Instant,
    ) -> Self {
        let (rate, throttled) = match start.rules.first {
            Some(FirstRate::AtLeast(floor)) => {
                (terms.contract.map_or(floor, |contract| contract.iops()), start.throttled)
            }
            Some(FirstRate::Released) | None => (Iops::ZERO, false),
        };
        let next_bucket = bucket(rate, terms, release, start.rules.contracts);
        let mut account = Self {
            contracts: start.rules.contracts,
            contract: None,
            virtual_bucket: None,
            bucket: (throttled && !terms.is_exempt()).then_some(next_bucket),
            next_bucket,
            late: 0,
            scheduler_wait: Latency::ZERO,
            interval: S::default(),
            total: S::default(),
            short: Duration::ZERO,
            idle_since: start.idle_since,
        };
        account.reconfigure(terms, release, start.rules.contracts, now);
        account
    }

    /// Takes new terms. The bucket follows with the law's next step.
    pub(crate) fn reconfigure(
        &mut self,
        terms: &ConsumerTerms,
        release: BucketRelease,
        contracts: ContractUse,
        now: Instant,
    ) {
        self.contracts = contracts;
        self.next_bucket = bucket(self.next_bucket.rate, terms, release, contracts);
        let (contract, outstanding) = (contracts.promised(terms.contract), self.idle_since.is_none());
        let counted = contract.filter(|_| contracts == ContractUse::Floor);
        match (&mut self.virtual_bucket, counted) {
            (Some(bucket), Some(contract)) => bucket.set(contract.iops(), terms.bucket, now),
            (bucket, counted) => {
                *bucket = counted.map(|contract| VirtualBucket::new(contract.iops(), terms.bucket, now));
            }
        }
        match &mut self.contract {
            // A law that keeps no contracts does not go on with the counts of another.
            record if !contracts.keeps() => *record = None,
            Some(record) => record.change(contract, outstanding, now),
            record @ None => {
                *record = contract.map(|_| ContractRecord {
                    contract,
                    requests: 0,
                    late: 0,
                    active: Duration::ZERO,
                    active_since: outstanding.then_some(now),
                });
            }
        }
    }

    /// Returns true if its counts go on under a law with this use of contracts. Another measure of response
    /// times begins anew.
    pub(crate) fn goes_on_under(&self, contracts: ContractUse) -> bool {
        (self.contracts == ContractUse::Floor) == (contracts == ContractUse::Floor)
    }

    /// Returns the bucket in force; `None` if everything is released at once.
    #[must_use]
    pub const fn bucket(&self) -> Option<LeakyBucket> {
        self.bucket
    }

    /// Returns the bucket that comes into force with the next rate, whatever that will be.
    #[must_use]
    pub const fn next_bucket(&self) -> LeakyBucket {
        self.next_bucket
    }

    /// Returns the fulfilment of its contract; `None` if there never was one.
    #[must_use]
    pub const fn contract(&self) -> Option<ContractRecord> {
        self.contract
    }

    /// Returns the times of its requests from release to completion, since the account or its totals began.
    #[must_use]
    pub const fn total(&self) -> &S {
        &self.total
    }

    /// Begins the totals anew, those of the contract included.
    pub fn restart_totals(&mut self, now: Instant) {
        self.total = S::default();
        if let Some(record) = &mut self.contract {
            (record.requests, record.late, record.active) = (0, 0, Duration::ZERO);
            record.active_since = record.active_since.map(|_| now);
        }
    }

    /// Records the arrival of a request. Returns true if others are to give the consumer its rate back: it
    /// comes back from a pause of at least this length, and its contract is kept by rates.
    pub(crate) fn arrived(&mut self, now: Instant, pause: Duration) -> bool {
        let Some(since) = self.idle_since.take() else { return false };
        let Some(record @ ContractRecord { contract: Some(_), .. }) = &mut self.contract else {
            return false;
        };
        record.active_since = Some(now);
        self.contracts == ContractUse::Rate && now.saturating_since(since) >= pause
    }

    /// Returns the time from which on a request counts that is dispatched now, given the time from which
    /// on it could have been.
    pub(crate) fn counts_from(&mut self, released: Instant, now: Instant) -> Instant {
        self.virtual_bucket.as_mut().map_or(released, |bucket| bucket.dispatched(released, now))
    }

    /// Records that nothing is outstanding any more.
    pub(crate) fn fell_idle(&mut self, now: Instant) {
        self.idle_since = Some(now);
        if let Some(record) = &mut self.contract {
            record.active = record.active(now);
            record.active_since = None;
        }
    }

    /// Records the completion of a request.
    pub(crate) fn completed(&mut self, request: &CompletedRequest, now: Instant) {
        let latency = now.latency_since(request.released);
        let waited = request.dispatched.latency_since(request.released);
        self.scheduler_wait = self.scheduler_wait.saturating_add(waited);
        self.interval.record(latency);
        self.total.record(latency);
        if let Some(ContractRecord { contract: Some(contract), requests, late, .. }) = &mut self.contract {
            let is_late = u64::from(latency > contract.response_time());
            *requests += 1;
            *late += is_late;
            self.late += is_late;
        }
    }

    /// Puts a rate into force; without a rate, releases the consumer. Returns true if that changed the
    /// bucket.
    pub(crate) fn set_rate(&mut self, rate: Option<Iops>) -> bool {
        let bucket = rate.map(|rate| LeakyBucket { rate, ..self.next_bucket });
        let changed = bucket != self.bucket;
        self.bucket = bucket;
        changed
    }

    /// Adds the law's inputs from the time since the last observation.
    pub(crate) fn observe(&mut self, observation: &mut ConsumerObservation, bucket: BucketStatus) {
        observation.contract = self.contract.and_then(|record| record.contract);
        observation.late = std::mem::take(&mut self.late);
        observation.scheduler_wait = std::mem::take(&mut self.scheduler_wait);
        observation.release_to_completion = self.interval.take_quantile(PERCENTILE);
        observation.oldest_released = bucket.waited.map(Latency::from);
        // A bucket that is lifted and set again counts from the beginning.
        observation.short_of_tokens = bucket.short.saturating_sub(self.short).into();
        self.short = bucket.short;
    }
}

impl ContractRecord {
    /// Returns the terms in force; `None` where nothing is promised at this time.
    #[must_use]
    pub const fn contract(&self) -> Option<Contract> {
        self.contract
    }

    /// Returns the number of requests completed under a contract.
    #[must_use]
    pub const fn requests(&self) -> u64 {
        self.requests
    }

    /// Returns the number of these that took longer than promised, from release to completion.
    #[must_use]
    pub const fn late(&self) -> u64 {
        self.late
    }

    /// Returns the time under a contract during which something was outstanding.
    #[must_use]
    pub fn active(&self, now: Instant) -> Duration {
        self.active + self.active_since.map_or(Duration::ZERO, |since| now.saturating_since(since))
    }

    /// Takes other terms, or none.
    fn change(&mut self, contract: Option<Contract>, outstanding: bool, now: Instant) {
        if self.contract.is_some() != contract.is_some() {
            self.active = self.active(now);
            self.active_since = (contract.is_some() && outstanding).then_some(now);
        }
        self.contract = contract;
    }
}

/// The bucket of a consumer. A contract says its σ; without contracts it is the usual one. Rates that follow
/// contracts have simple ratios for long, and are dithered, unless releases are as published.
fn bucket(rate: Iops, terms: &ConsumerTerms, release: BucketRelease, contracts: ContractUse) -> LeakyBucket {
    let size = if contracts.keeps() { terms.bucket } else { BucketRelease::USUAL_SIZE };
    let dither = contracts == ContractUse::Rate && release.ahead.is_some();
    LeakyBucket { dither, ..release.bucket(rate, size) }
}
