//! The quality-of-service stage of a pool: it picks the next request, measures service times and runs the
//! law.

use std::collections::VecDeque;
use std::sync::Arc;

use tidegate_control::{
    Commands, ConsumerObservation, ControlLoop, Decision, LoopConfig, Observation, Operations, Outstanding,
    combine,
};
use tidegate_nbd::Operation;
use tidegate_sched::{
    Capacity, CostModel, Discipline, Extent, FlowConfig, FlowId, Pull, Release, Sfq, SfqConfig,
};
use tidegate_units::{Bytes, ConsumerName, Instant, Iops, Latency, ResourceName, Window};

use crate::config::{ExportConfig, PoolConfig};
use crate::peers::Peers;
use crate::request::Request;
use crate::stats::{ConsumerSnapshot, OpSnapshot, RECENT_DECISIONS, ReservedSnapshot};
use crate::tenant::Tenant;

/// Requests that one consumer may have queued. At this bound its sessions are no longer read from.
pub(crate) const MAX_QUEUED: usize = 16_384;

/// The kinds of operations that the law and the statistics tell apart: reads, and changes of data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Read,
    Write,
    Trim,
}

/// A consumer's side of the stage.
#[derive(Debug)]
pub(crate) struct Consumer {
    config: ExportConfig,
    flow: FlowId,
    delay: Latency,
    /// In the scheduler's queue.
    queued: usize,
    in_flight: usize,
    /// Requests at the backend whose slots others have, because the volume was silent.
    lent: usize,
    /// Its volume hangs: the law does not count it.
    hung: bool,
    /// The time when its volume answered again after it hung. Requests dispatched before are no samples for
    /// the law.
    answered: Instant,
    /// The requests that the client has outstanding, queued or at the backend.
    outstanding: Integral,
    interval: [Operations; 2],
    /// Requests and bytes that completed in the last interval in which any did.
    sizes: (u64, Bytes),
    /// The state for laws that command rates. It is boxed to save room in the cache under other laws.
    tenant: Option<Box<Tenant>>,
    pub(crate) reads: OpSnapshot,
    pub(crate) writes: OpSnapshot,
    pub(crate) flushes: u64,
    pub(crate) trims: u64,
    pub(crate) errors: u64,
}

/// A number, and its integral over time.
#[derive(Debug, Default)]
struct Integral {
    value: u64,
    request_nanos: u128,
    since: Instant,
    changed: Instant,
}

impl Integral {
    fn add(&mut self, change: i64, now: Instant) {
        self.request_nanos += u128::from(self.value) * now.saturating_since(self.changed).as_nanos();
        self.changed = self.changed.max(now);
        self.value = self.value.saturating_add_signed(change);
    }

    /// The mean since the last call.
    fn mean(&mut self, now: Instant) -> f64 {
        self.add(0, now);
        let nanos = std::mem::take(&mut self.request_nanos);
        let elapsed = now.saturating_since(std::mem::replace(&mut self.since, now)).as_nanos();
        if elapsed == 0 { self.value as f64 } else { nanos as f64 / elapsed as f64 }
    }
}

/// Scheduler, law and measurements of one pool. Times are the worker's.
pub(crate) struct Stage {
    resource: ResourceName,
    scheduler: Sfq<usize>,
    depth: Window,
    release: Release,
    /// The window that the law commands; `None` without a law, or when the law commands none.
    commanded: Option<Window>,
    law: Option<Law>,
    /// The other hosts that share the resource, if any do.
    peers: Option<Arc<dyn Peers>>,
    recent: VecDeque<Decision>,
    decisions: u64,
}

struct Law {
    config: LoopConfig,
    control: ControlLoop,
    next: Instant,
    /// A consumer with a contract is back from a pause. The law is stepped at once, and not up to an interval
    /// later.
    returned: bool,
}

impl Law {
    fn due(&self) -> Instant {
        if self.returned { Instant::ZERO } else { self.next }
    }
}

impl Stage {
    pub(crate) fn new(config: &PoolConfig, peers: Option<Arc<dyn Peers>>, now: Instant) -> Self {
        let depth = Window::new(f64::from(config.depth));
        let scheduler =
            SfqConfig { discipline: config.discipline, window: Some(depth), ..SfqConfig::default() };
        // Finish tags decide alone: to stay with a flow because its requests are close would go past them.
        let scheduler = Sfq::new(match config.discipline {
            Discipline::StartTags => scheduler,
            Discipline::FinishTags => SfqConfig { batch: None, ..scheduler },
        });
        let mut stage = Self {
            resource: config.name.clone(),
            scheduler,
            depth,
            release: config.release,
            commanded: None,
            law: None,
            peers,
            recent: VecDeque::new(),
            decisions: 0,
        };
        stage.set_law(config.law.as_ref(), now);
        stage
    }

    pub(crate) fn add(&mut self, config: &ExportConfig, now: Instant) -> Consumer {
        let flow = self.scheduler.add_flow(
            &FlowConfig {
                weight: config.shares,
                exempt: config.protected,
                reservation: config.reservation,
                bucket: None,
                limit: config.limit,
                delay: Latency::ZERO,
                // The worker counts requests against MAX_QUEUED, and payload against the pool's memory.
                capacity: Capacity { requests: u32::MAX, bytes: Bytes::new(u64::MAX) },
            },
            now,
        );
        let mut consumer = Consumer {
            config: config.clone(),
            flow,
            delay: Latency::ZERO,
            queued: 0,
            in_flight: 0,
            lent: 0,
            hung: false,
            answered: Instant::ZERO,
            outstanding: Integral { since: now, changed: now, ..Integral::default() },
            interval: [Operations::default(); 2],
            sizes: (0, Bytes::ZERO),
            tenant: None,
            reads: OpSnapshot::default(),
            writes: OpSnapshot::default(),
            flushes: 0,
            trims: 0,
            errors: 0,
        };
        self.settle(&mut consumer, now);
        consumer
    }

    /// Forgets a consumer that has nothing queued.
    pub(crate) fn remove(&mut self, consumer: &Consumer) {
        let left = self.scheduler.remove_flow(consumer.flow);
        debug_assert!(
            left.is_ok_and(|requests| requests.is_empty()),
            "a removed consumer has requests queued"
        );
    }

    pub(crate) fn reconfigure_consumer(
        &mut self,
        consumer: &mut Consumer,
        config: &ExportConfig,
        now: Instant,
    ) {
        let flow = consumer.flow;
        self.scheduler.set_weight(flow, config.shares).expect(OURS);
        self.scheduler.set_reservation(flow, config.reservation, now).expect(OURS);
        self.scheduler.set_limit(flow, config.limit, now).expect(OURS);
        self.scheduler.set_exempt(flow, config.protected, now).expect(OURS);
        if config.protected {
            self.set_delay(consumer, Latency::ZERO, now);
            self.set_rate(consumer, None, now);
        }
        consumer.config = config.clone();
    }

    /// Takes a new depth and law. The caller then [settles](Self::settle) every consumer.
    pub(crate) fn reconfigure(
        &mut self,
        depth: u32,
        law: Option<&LoopConfig>,
        release: Release,
        now: Instant,
    ) {
        self.depth = Window::new(f64::from(depth));
        self.release = release;
        self.set_law(law, now);
        self.apply_window(now);
    }

    fn set_law(&mut self, law: Option<&LoopConfig>, now: Instant) {
        match (&mut self.law, law) {
            (Some(running), Some(config)) if running.config == *config => {}
            (Some(running), Some(config)) => {
                running.control.reconfigure(config.clone()).expect(VALID);
                running.config = config.clone();
                running.next = running.next.min(now + config.interval);
            }
            (None, Some(config)) => {
                let control = ControlLoop::new(config.clone()).expect(VALID);
                self.law = Some(Law {
                    config: config.clone(),
                    control,
                    next: now + config.interval,
                    returned: false,
                });
            }
            (_, None) => {
                self.law = None;
                self.commanded = None;
                self.scheduler.set_spacing(Latency::ZERO);
            }
        }
    }

    /// Has a request, or the next slice of one, wait for its turn. `extent` is what it is charged with.
    pub(crate) fn enqueue(&mut self, consumer: &mut Consumer, key: usize, extent: Extent, now: Instant) {
        consumer.queued += 1;
        consumer.outstanding.add(1, now);
        if let Some(tenant) = &mut consumer.tenant
            && let Some(law) = &mut self.law
        {
            law.returned |= tenant.issued(now, law.config.idle_half_life);
        }
        self.scheduler.enqueue(consumer.flow, now, key, extent).expect(OURS);
    }

    /// The next request to dispatch, or when to ask again.
    pub(crate) fn pull(&mut self, now: Instant) -> Pull<usize> {
        self.scheduler.pull(now)
    }

    /// Returns the consumer's snapshot.
    pub(crate) fn snapshot(
        &self,
        consumer: &Consumer,
        sessions: usize,
        removed: bool,
        now: Instant,
    ) -> ConsumerSnapshot {
        let rate = consumer.config.reservation;
        let service = self.scheduler.status(consumer.flow, now).and_then(|status| status.reserved);
        let reserved = rate.zip(service).map(|(rate, service)| ReservedSnapshot {
            rate,
            backlogged: service.backlogged,
            served_ios: service.served_ios(),
            missed: service.missed,
        });
        let tenant = consumer.tenant.as_ref().map(|tenant| tenant.snapshot(now));
        ConsumerSnapshot { reserved, tenant, ..consumer.snapshot(sessions, removed) }
    }

    /// A pulled request goes to the backend.
    pub(crate) fn dispatched(consumer: &mut Consumer, operation: &Operation) {
        consumer.queued -= 1;
        consumer.in_flight += 1;
        if let Some(interval) = consumer.interval_of(operation) {
            interval.in_flight += 1;
        }
    }

    /// Gives the slots of a consumer's requests at the backend to others: its volume is silent.
    pub(crate) fn lend_slots(&mut self, consumer: &mut Consumer, now: Instant) {
        for _ in consumer.lent..consumer.in_flight {
            self.scheduler.complete(consumer.flow, now).expect(OURS);
        }
        consumer.lent = consumer.in_flight;
    }

    /// Counts a request that is about to go to the backend outside the window, as if it had come from the
    /// queue.
    pub(crate) fn borrow_slot(consumer: &mut Consumer, now: Instant) {
        consumer.queued += 1;
        consumer.lent += 1;
        consumer.outstanding.add(1, now);
    }

    /// Returns true if requests wait to be dispatched.
    pub(crate) fn has_queued(&self) -> bool {
        self.scheduler.queued() > 0
    }

    /// Takes out the queued requests that are `gone`, and says which they are: their session is.
    pub(crate) fn cancel(
        &mut self,
        consumer: &mut Consumer,
        now: Instant,
        gone: impl Fn(usize) -> bool,
    ) -> Vec<usize> {
        let cancelled = self.scheduler.cancel(consumer.flow, now, |&key| gone(key)).expect(OURS);
        consumer.queued -= cancelled.len();
        cancelled.iter().for_each(|_| consumer.has_one_less(now));
        cancelled
    }

    /// The backend is done with a request that was dispatched; `succeeded` makes it a sample.
    pub(crate) fn completed(
        &mut self,
        consumer: &mut Consumer,
        request: &Request,
        now: Instant,
        succeeded: bool,
    ) {
        consumer.in_flight -= 1;
        // Which of its requests has a slot does not matter, only how many.
        if consumer.lent > 0 {
            consumer.lent -= 1;
        } else {
            self.scheduler.complete(consumer.flow, now).expect(OURS);
        }
        let operation = &request.operation;
        let dispatched = request.dispatched.unwrap_or(now);
        let latency = now.latency_since(dispatched);
        let bytes = u64::from(request.slice.charged);
        let answered = consumer.answered;
        if let Some(interval) = consumer.interval_of(operation) {
            interval.in_flight -= 1;
            if succeeded && dispatched >= answered {
                interval.count += 1;
                interval.bytes = Bytes::new(interval.bytes.get() + bytes);
                interval.total_latency = interval.total_latency.saturating_add(latency);
                if let Some(tenant) = &mut consumer.tenant {
                    tenant.completed(request.released, dispatched, now);
                }
            }
        }
        consumer.has_one_less(now);
        if succeeded && let Some(statistics) = consumer.statistics_of(operation) {
            statistics.backend.record(latency);
        }
    }

    /// A request is answered; its reply waits to be sent.
    pub(crate) fn answered(
        consumer: &mut Consumer,
        operation: &Operation,
        arrived: Instant,
        now: Instant,
        succeeded: bool,
    ) {
        if !succeeded {
            consumer.errors += 1;
            return;
        }
        if let Some(statistics) = consumer.statistics_of(operation) {
            statistics.count += 1;
            statistics.bytes += length_of(operation);
            statistics.total.record(now.latency_since(arrived));
        } else if matches!(operation, Operation::Flush) {
            consumer.flushes += 1;
        } else {
            consumer.trims += 1;
        }
    }

    /// Returns the time of the law's next step.
    pub(crate) fn next_step(&self) -> Option<Instant> {
        self.law.as_ref().map(Law::due)
    }

    /// Steps the law if it is time. `oldest` tells for an index into `consumers` when the oldest read and the
    /// oldest write at the backend were dispatched.
    pub(crate) fn step<'a>(
        &mut self,
        now: Instant,
        consumers: impl Iterator<Item = (usize, &'a mut Consumer)>,
        oldest: impl Fn(usize) -> [Option<Instant>; 2],
    ) {
        let Some(law) = self.law.as_mut().filter(|law| law.due() <= now) else { return };
        law.returned = false;
        if law.next <= now {
            // Steps that were missed are not made up for: the law is told how much time has passed.
            law.next = (law.next + law.config.interval).max(now + law.config.interval / 2);
        }
        let scheduler = &self.scheduler;
        let mut consumers: Vec<(usize, &mut Consumer)> = consumers.collect();
        let observed = consumers
            .iter_mut()
            .map(|(key, consumer)| {
                let mut observed = consumer.observe(now, oldest(*key));
                if let Some(tenant) = &mut consumer.tenant {
                    tenant.observe(&mut observed, scheduler.status(consumer.flow, now));
                }
                observed
            })
            .collect();
        let mut observation = Observation::new(self.resource.clone(), now, observed);
        let report = self.peers.as_ref().map(|peers| {
            let report = law.control.report(&observation);
            let heard = peers.heard();
            observation.cluster = Some(combine(peers.host(), &report, &heard, law.config.interval));
            report
        });
        let (commands, decision) = law.control.step(now, &observation);
        if let (Some(peers), Some(report)) = (&self.peers, report) {
            peers.publish(law.control.decided(report));
        }
        self.carry_out(&commands, consumers.into_iter().map(|(_, consumer)| consumer), now);
        self.decisions += 1;
        if self.recent.len() == RECENT_DECISIONS {
            self.recent.pop_front();
        }
        self.recent.push_back(decision);
    }

    /// Applies the law's commands. Consumers without a command are released.
    fn carry_out<'a>(
        &mut self,
        commands: &Commands,
        consumers: impl Iterator<Item = &'a mut Consumer>,
        now: Instant,
    ) {
        self.commanded = commands.window;
        self.apply_window(now);
        self.scheduler.set_spacing(commands.spacing.unwrap_or_default());
        // Commands come in the order of the observation, which is that of `consumers`, less the protected
        // ones.
        let mut commands = commands.consumers.iter().peekable();
        for consumer in consumers {
            let command = commands.next_if(|command| command.name == consumer.config.name);
            self.set_delay(consumer, command.and_then(|command| command.delay).unwrap_or_default(), now);
            self.set_rate(consumer, command.and_then(|command| command.rate), now);
        }
    }

    /// Gives a consumer the state that the law, as it is now, needs of it. Releases it from throttles that no
    /// law commands any more.
    pub(crate) fn settle(&mut self, consumer: &mut Consumer, now: Instant) {
        if self.law.is_none() {
            self.set_delay(consumer, Latency::ZERO, now);
        }
        let rates =
            self.law.as_ref().and_then(|law| Some((law.config.law.first_rate()?, law.config.dry_run)));
        match (&mut consumer.tenant, rates) {
            (None, None) => {}
            (Some(_), None) => {
                self.set_rate(consumer, None, now);
                consumer.tenant = None;
            }
            (Some(tenant), Some((first, _))) => {
                tenant.reconfigure(&consumer.config, self.release, first, now);
            }
            (None, Some((first, dry_run))) => {
                let idle = consumer.outstanding.value == 0;
                let tenant = Tenant::new(&consumer.config, self.release, first, !dry_run, idle, now);
                self.scheduler.set_bucket(consumer.flow, tenant.bucket(), now).expect(OURS);
                consumer.tenant = Some(Box::new(tenant));
            }
        }
    }

    /// Puts a rate into force; without a rate, releases the consumer.
    fn set_rate(&mut self, consumer: &mut Consumer, rate: Option<Iops>, now: Instant) {
        if let Some(tenant) = &mut consumer.tenant {
            tenant.hold(rate, &mut self.scheduler, consumer.flow, now);
        }
    }

    fn set_delay(&mut self, consumer: &mut Consumer, delay: Latency, now: Instant) {
        consumer.delay = delay;
        self.scheduler.set_delay(consumer.flow, delay, now).expect(OURS);
    }

    fn apply_window(&mut self, now: Instant) {
        self.scheduler.set_window(Some(self.window()), now);
    }

    /// The window in force.
    pub(crate) fn window(&self) -> Window {
        self.commanded.filter(|window| *window < self.depth).unwrap_or(self.depth)
    }

    pub(crate) fn decisions(&self) -> u64 {
        self.decisions
    }

    pub(crate) fn recent(&self) -> &VecDeque<Decision> {
        &self.recent
    }
}

impl Consumer {
    pub(crate) fn name(&self) -> &ConsumerName {
        &self.config.name
    }

    /// Returns true if the consumer's queue takes another request.
    pub(crate) fn has_room(&self) -> bool {
        self.queued < MAX_QUEUED
    }

    /// Returns true if the stage has no request of the consumer.
    pub(crate) fn is_idle(&self) -> bool {
        self.queued == 0 && self.in_flight == 0
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight
    }

    pub(crate) fn is_protected(&self) -> bool {
        self.config.protected
    }

    /// Its volume hangs, or answers again.
    pub(crate) fn set_hung(&mut self, hung: bool, now: Instant) {
        self.hung = hung;
        if !hung {
            self.answered = now;
        }
    }

    /// One request less is outstanding.
    fn has_one_less(&mut self, now: Instant) {
        self.outstanding.add(-1, now);
        if self.outstanding.value == 0
            && let Some(tenant) = &mut self.tenant
        {
            tenant.fell_quiet(now);
        }
    }

    /// Without what only the scheduler knows.
    fn snapshot(&self, sessions: usize, removed: bool) -> ConsumerSnapshot {
        ConsumerSnapshot {
            name: self.config.name.clone(),
            shares: self.config.shares,
            protected: self.config.protected,
            removed,
            sessions,
            queued: self.queued,
            in_flight: self.in_flight,
            delay: self.delay,
            reads: self.reads.clone(),
            writes: self.writes.clone(),
            flushes: self.flushes,
            trims: self.trims,
            errors: self.errors,
            poisoned: false,
            reserved: None,
            tenant: None,
            upstream: None,
            hung: false,
        }
    }

    fn observe(&mut self, now: Instant, oldest: [Option<Instant>; 2]) -> ConsumerObservation {
        let [reads, writes] = &mut self.interval;
        let report = |operations: &mut Operations, oldest: Option<Instant>| {
            let fresh = Operations { in_flight: operations.in_flight, ..Operations::default() };
            let report = std::mem::replace(operations, fresh);
            Operations { oldest_in_flight: oldest.map(|dispatched| now.latency_since(dispatched)), ..report }
        };
        let (mut reads, mut writes) = (report(reads, oldest[0]), report(writes, oldest[1]));
        let mut outstanding = self.outstanding.mean(now);
        if self.hung {
            // Its ever older requests say nothing about the load: no throttle would shorten them.
            for operations in [&mut reads, &mut writes] {
                (operations.in_flight, operations.oldest_in_flight) = (0, None);
            }
            outstanding = 0.0;
        }
        let requests = reads.count + writes.count;
        if requests > 0 {
            self.sizes = (requests, Bytes::new(reads.bytes.get() + writes.bytes.get()));
        }
        let (requests, bytes) = self.sizes;
        let in_requests = |rate| CostModel::default().in_requests(rate, requests, bytes);
        ConsumerObservation {
            reservation: self.config.reservation.map(in_requests),
            reads,
            writes,
            mean_outstanding: Outstanding::new(outstanding),
            queued: u32::try_from(self.queued).unwrap_or(u32::MAX),
            ..ConsumerObservation::idle(self.config.name.clone(), self.config.shares, self.config.protected)
        }
    }

    fn interval_of(&mut self, operation: &Operation) -> Option<&mut Operations> {
        match kind(operation) {
            Kind::Read => Some(&mut self.interval[0]),
            Kind::Write => Some(&mut self.interval[1]),
            Kind::Trim => None,
        }
    }

    fn statistics_of(&mut self, operation: &Operation) -> Option<&mut OpSnapshot> {
        match operation {
            Operation::Flush => None,
            _ => match kind(operation) {
                Kind::Read => Some(&mut self.reads),
                Kind::Write => Some(&mut self.writes),
                Kind::Trim => None,
            },
        }
    }
}

/// Returns the index of the operation's kind among the two ages of [`Stage::step`]. Trims have none.
pub(crate) fn age_slot(operation: &Operation) -> Option<usize> {
    match kind(operation) {
        Kind::Read => Some(0),
        Kind::Write => Some(1),
        Kind::Trim => None,
    }
}

fn kind(operation: &Operation) -> Kind {
    match operation {
        Operation::Read { .. } => Kind::Read,
        Operation::Write { .. } | Operation::WriteZeroes { .. } => Kind::Write,
        Operation::Trim { .. } | Operation::Flush | Operation::Disconnect => Kind::Trim,
    }
}

/// The bytes that an operation reads or changes.
pub(crate) fn length_of(operation: &Operation) -> u64 {
    match *operation {
        Operation::Read { length, .. }
        | Operation::Write { length, .. }
        | Operation::Trim { length, .. }
        | Operation::WriteZeroes { length, .. } => u64::from(length),
        Operation::Flush | Operation::Disconnect => 0,
    }
}

const OURS: &str = "the scheduler knows every consumer's flow, and its queue has no bound of its own";
const VALID: &str = "a configuration is validated before a worker sees it";

#[cfg(test)]
mod tests;
