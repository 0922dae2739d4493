//! The quality-of-service stage of a pool: the regulated queues of its requests, the times of the law's
//! steps, and the statistics of its consumers.

mod regulations;

use std::collections::VecDeque;

use tidegate_control::{
    ConsumerObservation, Decision, LoopConfig, MeanOutstanding, Observation, SignalPercentile, combine,
};
use tidegate_nbd::{CheckedOperation, Errno};
use tidegate_regulate::{
    CompletedRequest, ConsumerAccount, ConsumerTerms, OperationKind, QueueConfig, SignalLatencies,
};
use tidegate_sched::{BucketRelease, Discipline, PullAnswer, SfqConfig, StorageExtent};
use tidegate_units::{ConsumerName, HostName, Instant, ResourceName, Shares, Window};

use self::regulations::Regulations;
use crate::config::{ExportConfig, LawScope, PoolConfig};
use crate::histogram::FineHistogram;
use crate::io_errors::IoErrors;
use crate::peers::PoolPartners;
use crate::request::ClientRequest;
use crate::stats::{
    ConsumerSnapshot, ContractSnapshot, OpSnapshot, RECENT_DECISIONS, ReservedSnapshot, TenantSnapshot,
};

/// Requests that one consumer may have queued. At this bound its sessions are no longer read from.
pub(crate) const MAX_QUEUED: u32 = 16_384;

/// A consumer's side of the stage.
#[derive(Debug)]
pub(crate) struct StageConsumer {
    /// The place of its queue.
    place: usize,
    account: ConsumerAccount<FineHistogram>,
    /// Its volume hangs: the law does not count it.
    hung: bool,
    /// The time when its volume answered again after it hung. Requests dispatched before are no samples for
    /// the law.
    answered: Instant,
    reads: OpSnapshot,
    writes: OpSnapshot,
    flushes: OpSnapshot,
    trims: u64,
    caches: u64,
    block_statuses: u64,
    pub(crate) errors: IoErrors,
}

/// Queues, laws and measurements of one pool. Times are the worker's.
pub(crate) struct PoolStage {
    resource: ResourceName,
    scope: LawScope,
    /// The name under which laws of exports steer by what all of them measure, while no other host does.
    alone: HostName,
    queues: Regulations,
    /// The times of the law's steps; `None` without a law.
    timer: Option<StepTimer>,
    /// The latencies of the signal's requests, if the law steers by a percentile of them.
    latencies: Option<Box<SignalLatencies<FineHistogram>>>,
    partners: PoolPartners,
    recent: VecDeque<Decision>,
    decisions: u64,
}

/// The times of the law's steps.
struct StepTimer {
    next: Instant,
    /// A consumer with a contract is back from a pause. The law is stepped at once, and not up to an interval
    /// later.
    returned: bool,
}

impl StepTimer {
    fn due(&self) -> Instant {
        if self.returned { Instant::ZERO } else { self.next }
    }
}

impl PoolStage {
    pub(crate) fn new(config: &PoolConfig, partners: PoolPartners, now: Instant) -> Self {
        let scheduler = SfqConfig {
            discipline: config.discipline,
            // Finish tags decide alone: to stay with a flow because its requests are close would go past
            // them.
            batch: (config.discipline == Discipline::StartTags).then_some(config.batch),
            idle_credit: config.idle_credit,
            ..SfqConfig::default()
        };
        let queue = QueueConfig {
            scheduler,
            depth: Window::new(f64::from(config.depth)),
            release: config.release,
            law: config.law.clone(),
            starts_throttled: true,
        };
        let mut stage = Self {
            resource: config.name.clone(),
            scope: config.scope,
            alone: HostName::new("alone").expect("neither empty nor too long"),
            queues: Regulations::new(config.scope, queue, partners.journal.clone(), now),
            timer: None,
            latencies: None,
            partners,
            recent: VecDeque::new(),
            decisions: 0,
        };
        stage.set_timer(now);
        stage.set_statistic(config.exports.iter().any(|export| export.protected), now);
        stage
    }

    pub(crate) fn add(&mut self, config: &ExportConfig, now: Instant) -> StageConsumer {
        let (place, account) = self.queues.add(terms(config), now);
        StageConsumer {
            place,
            account,
            hung: false,
            answered: Instant::ZERO,
            reads: OpSnapshot::default(),
            writes: OpSnapshot::default(),
            flushes: OpSnapshot::default(),
            trims: 0,
            caches: 0,
            block_statuses: 0,
            errors: IoErrors::default(),
        }
    }

    /// Forgets a consumer that has nothing queued.
    pub(crate) fn remove(&mut self, consumer: &StageConsumer) {
        self.queues.remove(consumer.place, &consumer.account);
    }

    pub(crate) fn reconfigure_consumer(
        &mut self,
        consumer: &mut StageConsumer,
        config: &ExportConfig,
        now: Instant,
    ) {
        self.queues.set_protected(consumer.place, config.protected);
        self.queues.queue_mut(consumer.place).reconfigure_consumer(&mut consumer.account, terms(config), now);
    }

    /// Takes a new depth and law. The caller then [settles](Self::settle) every consumer.
    pub(crate) fn reconfigure(
        &mut self,
        depth: u32,
        law: Option<&LoopConfig>,
        release: BucketRelease,
        now: Instant,
    ) {
        let depth = Window::new(f64::from(depth));
        self.queues.reconfigure(depth, release, law, now);
        self.set_timer(now);
        // The next step knows which consumers are protected.
        self.set_statistic(false, now);
    }

    /// Gives a consumer the state that the law, as it is now, needs.
    pub(crate) fn settle(&mut self, consumer: &mut StageConsumer, now: Instant) {
        self.queues.queue_mut(consumer.place).settle(&mut consumer.account, now);
    }

    /// Plans the next step no later than an interval from now.
    fn set_timer(&mut self, now: Instant) {
        self.timer = self.queues.law().map(|law| {
            let latest = now + law.interval;
            match &self.timer {
                Some(timer) => StepTimer { next: timer.next.min(latest), ..*timer },
                None => StepTimer { next: latest, returned: false },
            }
        });
    }

    /// Begins to count latencies if the law steers by a percentile that is not counted yet.
    fn set_statistic(&mut self, is_any_protected: bool, now: Instant) {
        let Some(law) = self.queues.law() else {
            self.latencies = None;
            return;
        };
        if self.latencies.as_ref().is_none_or(|known| known.statistic() != law.statistic) {
            self.latencies = SignalLatencies::new(law, is_any_protected, now).map(Box::new);
        }
    }

    /// Has a request, or the next slice of one, wait for its turn. `extent` is what it is charged with.
    pub(crate) fn enqueue(
        &mut self,
        consumer: &mut StageConsumer,
        key: usize,
        extent: StorageExtent,
        now: Instant,
    ) {
        let queue = self.queues.queue_mut(consumer.place);
        let returned = queue.enqueue(&mut consumer.account, key, extent, now);
        if returned && let Some(timer) = &mut self.timer {
            timer.returned = true;
        }
    }

    /// The next request to dispatch, or when to ask again.
    pub(crate) fn pull(&mut self, now: Instant) -> PullAnswer<usize> {
        self.queues.pull(now)
    }

    /// Returns the consumer's snapshot.
    pub(crate) fn snapshot(
        &self,
        consumer: &StageConsumer,
        sessions: usize,
        removed: bool,
        now: Instant,
    ) -> ConsumerSnapshot {
        let StageConsumer { account, reads, writes, flushes, trims, caches, block_statuses, errors, .. } =
            consumer;
        let terms = account.terms();
        let queue = self.queues.queue(consumer.place);
        let service = queue.status(account, now).and_then(|status| status.reserved);
        let reserved = account.reserved().zip(service).map(|(rate, service)| ReservedSnapshot {
            rate,
            backlogged: service.backlogged,
            served_ios: service.served_ios(),
            missed: service.missed,
        });
        let tenant = account.rates().map(|rates| TenantSnapshot {
            rate: rates.bucket().map(|bucket| bucket.rate),
            released: rates.total().clone(),
            contract: rates.contract().map(|record| ContractSnapshot {
                contract: record.contract(),
                requests: record.requests(),
                late: record.late(),
                active: record.active(now),
            }),
        });
        ConsumerSnapshot {
            name: terms.name.clone(),
            shares: terms.shares,
            protected: terms.protected,
            released: terms.released,
            removed,
            sessions,
            disks: 0,
            queued: account.queued() as usize,
            waits_for: queue.wait_reason(account, now),
            in_flight: account.in_flight() as usize,
            delay: account.delay(),
            window: self.queues.own_window(consumer.place),
            reads: reads.clone(),
            writes: writes.clone(),
            flushes: flushes.clone(),
            trims: *trims,
            caches: *caches,
            block_statuses: *block_statuses,
            errors: *errors,
            poisoned: false,
            reserved,
            tenant,
            upstream: None,
            hung: false,
            replaced: false,
        }
    }

    /// A pulled request goes to the backend. Returns the time from which on it counts.
    #[must_use = "a contract counts from this time"]
    pub(crate) fn dispatched(
        consumer: &mut StageConsumer,
        operation: &CheckedOperation,
        released: Instant,
        now: Instant,
    ) -> Instant {
        consumer.account.dispatched(kind_of(operation), released, now)
    }

    /// Gives the slots of a consumer's requests at the backend to others: its volume is silent.
    pub(crate) fn lend_slots(&mut self, consumer: &mut StageConsumer, now: Instant) {
        self.queues.queue_mut(consumer.place).lend_slots(&mut consumer.account, now);
    }

    /// Counts a request that is about to go to the backend outside the window, as if it had come from the
    /// queue.
    pub(crate) fn borrow_slot(consumer: &mut StageConsumer, now: Instant) {
        consumer.account.borrow_slot(now);
    }

    /// Returns true if requests wait to be dispatched.
    pub(crate) fn has_queued(&self) -> bool {
        self.queues.has_queued()
    }

    /// Takes out the queued requests that are `gone`, because their session is, and returns them.
    pub(crate) fn cancel(
        &mut self,
        consumer: &mut StageConsumer,
        now: Instant,
        gone: impl Fn(usize) -> bool,
    ) -> Vec<usize> {
        self.queues.queue_mut(consumer.place).cancel(&mut consumer.account, now, |&key| gone(key))
    }

    /// The backend is done with a request that was dispatched; `succeeded` makes it a sample.
    pub(crate) fn completed(
        &mut self,
        consumer: &mut StageConsumer,
        request: &ClientRequest,
        now: Instant,
        succeeded: bool,
    ) {
        let dispatched = request.dispatched.unwrap_or(now);
        let completed = CompletedRequest {
            kind: kind_of(&request.operation),
            bytes: request.slice.charged,
            released: request.released,
            dispatched,
            is_sample: succeeded && dispatched >= consumer.answered,
        };
        self.queues.queue_mut(consumer.place).completed(&mut consumer.account, &completed, now);
        if let Some(kind) = completed.kind.filter(|_| completed.is_sample)
            && let Some(latencies) = self.latencies.as_mut()
            && let Some(counted) =
                latencies.of_request(consumer.account.terms().protected, kind == OperationKind::Read)
        {
            counted.record(now.latency_since(dispatched));
        }
        if succeeded && let Some(statistics) = consumer.statistics_of(&request.operation) {
            statistics.backend.record(now.latency_since(dispatched));
        }
    }

    /// Gives back the slot of a flush. Other flushes may share the sync that it waits for, so this is not the
    /// time of its answer.
    pub(crate) fn free_flush_slot(&mut self, consumer: &mut StageConsumer, now: Instant) {
        let flush =
            CompletedRequest { kind: None, bytes: 0, released: now, dispatched: now, is_sample: false };
        self.queues.queue_mut(consumer.place).completed(&mut consumer.account, &flush, now);
    }

    /// A request is answered; its reply waits to be sent.
    pub(crate) fn answered(
        consumer: &mut StageConsumer,
        request: &ClientRequest,
        now: Instant,
        result: Result<(), Errno>,
    ) {
        if let Err(errno) = result {
            consumer.errors.count_failed(errno, now);
            return;
        }
        let operation = &request.operation;
        if let Some(statistics) = consumer.statistics_of(operation) {
            statistics.count += 1;
            statistics.bytes += length_of(operation);
            statistics.total.record(now.latency_since(request.arrived));
            if *operation == CheckedOperation::Flush {
                statistics.backend.record(now.latency_since(request.dispatched.unwrap_or(now)));
            }
            return;
        }
        match operation {
            CheckedOperation::Trim { .. } => consumer.trims += 1,
            CheckedOperation::Cache { .. } => consumer.caches += 1,
            CheckedOperation::BlockStatus { .. } => consumer.block_statuses += 1,
            CheckedOperation::Read { .. }
            | CheckedOperation::Write { .. }
            | CheckedOperation::WriteZeroes { .. }
            | CheckedOperation::Flush
            | CheckedOperation::Disconnect => {}
        }
    }

    /// Returns the time of the law's next step.
    pub(crate) fn next_step(&self) -> Option<Instant> {
        self.timer.as_ref().map(StepTimer::due)
    }

    /// Steps the law if it is time. `oldest` tells for an index into `consumers` when the oldest read and the
    /// oldest write at the backend were dispatched.
    pub(crate) fn step<'a>(
        &mut self,
        now: Instant,
        consumers: impl Iterator<Item = (usize, &'a mut StageConsumer)>,
        oldest: impl Fn(usize) -> [Option<Instant>; 2],
    ) {
        let Some(law) = self.queues.law() else { return };
        let (interval, at) = (law.interval, law.observation_time(now));
        let Some(timer) = self.timer.as_mut().filter(|timer| timer.due() <= now) else { return };
        timer.returned = false;
        if timer.next <= now {
            // Steps that were missed are not made up for: the law is told how much time has passed.
            timer.next = (timer.next + interval).max(now + interval / 2);
        }
        let mut consumers: Vec<(usize, &mut StageConsumer)> = consumers.collect();
        let observed =
            consumers.iter_mut().map(|(key, consumer)| self.observe(consumer, oldest(*key), now)).collect();
        let mut observation = Observation::new(self.resource.clone(), at, observed);
        observation.percentile = self.end_of_interval(&observation, now);
        let places: Vec<usize> = consumers.iter().map(|(_, consumer)| consumer.place).collect();
        let peers = self.partners.peers.clone();
        // Laws of exports steer by what all of them measure, also where no other host is heard.
        let report = (peers.is_some() || self.scope == LawScope::Export)
            .then(|| self.queues.report(&observation, &places))
            .flatten();
        observation.cluster = report.as_ref().map(|report| match &peers {
            Some(peers) => combine(peers.host(), report, &peers.heard(), interval),
            None => combine(&self.alone, report, &[], interval),
        });
        let decision = self.queues.decide(&observation, &places, |queue, commands, consumer| {
            queue.carry_out(commands, &mut consumers[consumer].1.account, now);
        });
        let Some(decision) = decision else { return };
        if let (Some(peers), Some(report)) = (&peers, report) {
            peers.publish(self.queues.decided(report));
        }
        self.decisions += 1;
        if self.recent.len() == RECENT_DECISIONS {
            self.recent.pop_front();
        }
        self.recent.push_back(decision);
    }

    /// Returns the percentile of the interval that an observation is of.
    fn end_of_interval(&mut self, observation: &Observation, now: Instant) -> Option<SignalPercentile> {
        let (latencies, law) = (self.latencies.as_mut()?, self.queues.law()?);
        let percentile = latencies.end(now);
        let is_any_protected = observation.consumers.iter().any(|consumer| consumer.protected);
        latencies.set_requests(law.signal.requests(is_any_protected));
        percentile
    }

    /// Returns a consumer's measurements since the last observation, as exact as decisions need them.
    fn observe(
        &mut self,
        consumer: &mut StageConsumer,
        oldest: [Option<Instant>; 2],
        now: Instant,
    ) -> ConsumerObservation {
        let mut observed = self.queues.queue_mut(consumer.place).observe(&mut consumer.account, oldest, now);
        if consumer.hung {
            // Its ever older requests say nothing about the load: no throttle would shorten them.
            for operations in [&mut observed.reads, &mut observed.writes] {
                (operations.in_flight, operations.oldest_in_flight) = (0, None);
            }
            observed.mean_outstanding = MeanOutstanding::default();
        }
        observed.rounded()
    }

    /// The window in force; where each export has one, all of them together.
    pub(crate) fn window(&self) -> Window {
        self.queues.window()
    }

    pub(crate) fn decisions(&self) -> u64 {
        self.decisions
    }

    pub(crate) fn recent(&self) -> &VecDeque<Decision> {
        &self.recent
    }
}

impl StageConsumer {
    pub(crate) fn name(&self) -> &ConsumerName {
        &self.account.terms().name
    }

    /// Returns true if the consumer's queue takes another request.
    pub(crate) fn has_room(&self) -> bool {
        self.account.queued() < MAX_QUEUED
    }

    /// Returns true if the stage has no request of the consumer.
    pub(crate) fn is_idle(&self) -> bool {
        self.account.is_idle()
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.account.in_flight() as usize
    }

    pub(crate) fn is_protected(&self) -> bool {
        self.account.terms().protected
    }

    pub(crate) fn shares(&self) -> Shares {
        self.account.terms().shares
    }

    /// Its volume hangs, or answers again.
    pub(crate) fn set_hung(&mut self, hung: bool, now: Instant) {
        self.hung = hung;
        if !hung {
            self.answered = now;
        }
    }

    fn statistics_of(&mut self, operation: &CheckedOperation) -> Option<&mut OpSnapshot> {
        match kind_of(operation) {
            Some(OperationKind::Read) => Some(&mut self.reads),
            Some(OperationKind::Write) => Some(&mut self.writes),
            None if *operation == CheckedOperation::Flush => Some(&mut self.flushes),
            None => None,
        }
    }
}

/// The terms of an export, as the queue needs them.
fn terms(config: &ExportConfig) -> ConsumerTerms {
    ConsumerTerms {
        name: config.name.clone(),
        shares: config.shares,
        protected: config.protected,
        released: config.released,
        reservation: config.reservation,
        limit: config.limit,
        contract: config.contract,
        goal: config.goal,
        bucket: config.bucket,
    }
}

/// Returns the kind of an operation, as the law and the statistics distinguish them; `None` for all others.
/// An operation that fills the cache is none of them, although it reads: no client waits for its latency, and
/// its slices are longer than most reads. Neither is a flush: its time says how much was written before it.
pub(crate) fn kind_of(operation: &CheckedOperation) -> Option<OperationKind> {
    match operation {
        CheckedOperation::Read { .. } => Some(OperationKind::Read),
        CheckedOperation::Write { .. } | CheckedOperation::WriteZeroes { .. } => Some(OperationKind::Write),
        _ => None,
    }
}

/// The bytes that an operation reads, changes or asks about.
pub(crate) fn length_of(operation: &CheckedOperation) -> u64 {
    match *operation {
        CheckedOperation::Read { length, .. } | CheckedOperation::Write { length, .. } => u64::from(length),
        CheckedOperation::Trim { length, .. }
        | CheckedOperation::WriteZeroes { length, .. }
        | CheckedOperation::Cache { length, .. }
        | CheckedOperation::BlockStatus { length, .. } => length,
        CheckedOperation::Flush | CheckedOperation::Disconnect => 0,
    }
}

#[cfg(test)]
mod tests;
