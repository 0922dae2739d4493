//! Fair queueing by start tags or finish tags, with a bound on what is outstanding.

mod cancel;
mod order;

use std::hint::black_box;

use slab::Slab;
use tidegate_units::{Bytes, Instant, Iops, Latency, Shares, Window};

use crate::clock::SchedulerClock;
use crate::cost::{CostModel, RequestCost};
use crate::discipline::{Discipline, RefillTime};
use crate::error::{CompleteError, QueueRefusal, RefusedRequest, UnknownFlow};
use crate::flow::{Flow, FlowConfig, FlowId, FlowStatus, FullBound, LaneName, QueuedRequest, StorageExtent};
use crate::lane::{FlowBatch, ReadyLanes};
use crate::leaky_bucket::LeakyBucket;
use crate::limit::ConsumerLimit;
use crate::reservation::{FlowReservation, ReservedFlows};
use crate::spacing::DispatchSpacing;
use crate::tournament::TournamentTree;
use crate::window::{GateAnswer, WindowGate};

/// Settings of a scheduler as a whole.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SfqConfig {
    /// Tag that decides the order.
    pub discipline: Discipline,
    /// D, how many requests may be outstanding; `None`: any number. Fractions are kept over time.
    pub window: Option<Window>,
    /// Time at which the window is filled up again.
    pub refill: RefillTime,
    /// Rule that turns size into cost.
    pub cost: CostModel,
    /// Bounds for staying with a flow whose requests are close to each other. `None`: the scheduler does not
    /// stay.
    pub batch: Option<FlowBatch>,
    /// Greatest cost that a flow may save up while it is idle, to go first when it comes back (PARDA §3.4: "a
    /// bounded number of credits while idle"). [`RequestCost::ZERO`] is SFQ as published.
    pub idle_credit: RequestCost,
}

impl Default for SfqConfig {
    /// Start tags, no window, 64 KiB per I/O, batches by [`FlowBatch::default`], no credit.
    fn default() -> Self {
        Self {
            discipline: Discipline::StartTags,
            window: None,
            refill: RefillTime::OneByOne,
            cost: CostModel::default(),
            batch: Some(FlowBatch::default()),
            idle_credit: RequestCost::ZERO,
        }
    }
}

impl SfqConfig {
    /// YFQ, with batches to the storage of up to so many requests: finish tags, and nothing that goes out of
    /// their order.
    #[must_use]
    pub fn yfq(batch: Window) -> Self {
        Self {
            discipline: Discipline::FinishTags,
            window: Some(batch),
            refill: RefillTime::InBatches,
            batch: None,
            ..Self::default()
        }
    }
}

/// The answer to [`Sfq::pull`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PullAnswer<T> {
    /// Dispatch this request now, and tell [`Sfq::complete`] when it is done.
    Request {
        /// Flow that it belongs to.
        flow: FlowId,
        /// The request.
        request: T,
        /// Since when it could have gone, on the caller's clock: its delay, as it is now, was over, its
        /// bucket had released it, and its limit did not hold it at the head of its queue. For a flow without
        /// these it is when it arrived.
        released: Instant,
    },
    /// Nothing can go until a request arrives, one completes, or a setting changes.
    Nothing,
    /// Nothing can go before this time (on the caller's clock), unless a request arrives, one completes, or a
    /// setting changes. Always later than the time of asking.
    NotBefore(Instant),
}

/// SFQ(D) or YFQ, with reservations and limits: flows share what the storage does in proportion to their
/// weights, none gets less than its reservation or more than its limit.
///
/// # Order of calls
///
/// [`add_flow`](Self::add_flow), then [`enqueue`](Self::enqueue) for every request that arrives. After
/// arrivals, completions, changed settings, and when the time of a [`PullAnswer::NotBefore`] has come:
/// [`pull`](Self::pull) until it answers no [`PullAnswer::Request`]. For each request dispatched, once:
/// [`complete`](Self::complete). `now` comes from one clock; one that is set back does no harm.
///
/// # What is scheduled
///
/// A request p of flow f with weight φ and cost c has a start tag `S(p) = max(v, F(p−1))` and a finish tag
/// `F(p) = S(p) + c/φ`; the least start tag goes first; the virtual time v is the start tag of the request
/// dispatched last, and when all is done the greatest finish tag (P. Goyal, H. M. Vin, H. Cheng, *Start-Time
/// Fair Queueing*, SIGCOMM 1996). Up to D requests are outstanding at once, where v follows dispatches (W.
/// Jin, J. S. Chase, J. Kaur, *Interposed Proportional Sharing for a Storage Service Utility*, SIGMETRICS
/// 2004: SFQ(D)).
///
/// That is [`Discipline::StartTags`]. With [`Discipline::FinishTags`] the least finish tag goes first, and v
/// is the least start tag of those that wait and of the one dispatched last: YFQ. Everything else is the
/// same.
///
/// Only the request at the head of a queue has a tag. For a flow that always has an eligible request this is
/// the published rule, since v cannot pass a waiting tag. A flow that its delay or limit stops gets its tag
/// when it becomes eligible, so that it saves up nothing against the others meanwhile.
///
/// # Reservations
///
/// As in mClock (A. Gulati, A. Merchant, P. Varman, *mClock: Handling Throughput Variability for Hypervisor
/// IO Scheduling*, OSDI 2010) a flow with a reservation of r I/Os per second has a reservation tag beside its
/// start tag: `R(p) = R(p−1) + c/r`, and not before now when the flow had no request waiting. Whenever the
/// window lets a request go:
///
/// 1. the flow whose tag is earliest, if it is not later than now: the *constraint-based* phase;
/// 2. else the flow with the least start tag (or finish tag): the *weight-based* phase. Its R stays (mClock:
///    the tags of its further requests go back by c/r), so that a flow does not have to repay what its shares
///    gave it;
/// 3. else, by their weights, flows beyond a [soft limit](crate::BeyondLimit::Surplus).
///
/// A request that goes by reservation advances the flow's start tag by c/φ like any other, and does not make
/// v its own. A flow thus gets the larger of its reservation and its share, and the rest goes by shares. The
/// reservation goes through the same window as everything else; it changes the order, never how much is
/// outstanding. Of a fractional window w it uses ⌈w⌉ places at any time, and others wait longer for it: the
/// pauses that make up the fraction are theirs.
///
/// Departures from mClock, each a bound. Start tags replace real-time P tags: they need no adjustment when a
/// flow comes back from idleness. A waiting request is not due later for having arrived late. What a
/// reservation gave beyond the share counts against a flow for what it gives in two seconds, at least 256
/// I/Os, and not for ever. A reservation falls behind by a second at most, and misses beyond that are
/// forgiven. Of the requests that go by reservation, one part in 128 is owed to the shares. A limit binds
/// reserved requests, too: r ≤ limit.
///
/// A reservation is kept where the storage, at the window in force, completes more than 129/128 of the sum of
/// all of them. Where it does not, they fall behind together: of what is dispatched by reservation each flow
/// gets its part r/Σr, and one request follows by shares for 128 such. An idle flow saves nothing up: when it
/// comes back one request is due at once, or as many as its [burst](Sfq::set_reservation_burst).
///
/// # Buckets
///
/// A [`LeakyBucket`] is ahead of all of this: what it has not released is not there for the rest of the
/// scheduler, as what a delay holds. A request passes the delay first, then the bucket, then the limit.
///
/// - Tags, reservations and shares begin with the release. A reservation beyond the bucket's rate gets the
///   rate.
/// - A [`ConsumerLimit`], soft or hard, applies to released requests. Only they can go as
///   [surplus](crate::BeyondLimit::Surplus): the bucket itself knows no surplus; its owner raises its rate.
/// - An exempt flow passes its bucket like any other. Once released its requests go ahead of the window.
///
/// # What holds
///
/// Over any stretch in which flows i and j always have eligible requests and none goes by reservation, the
/// costs dispatched differ by `|W_i/φ_i − W_j/φ_j| ≤ (c_i + b)/φ_i + (c_j + b)/φ_j + k·max(1/φ_i, 1/φ_j)`,
/// where c is a flow's greatest cost, b the cost of [`FlowBatch`] and k the idle credit. With b = k = 0 that
/// is Goyal's bound. Of the costs *completed* up to D requests are still open, whence the factor D + 1 of
/// Jin's bound.
///
/// With finish tags c_i/φ_i + c_j/φ_j becomes max(c_i/φ_i, c_j/φ_j) + m, where m is the greatest c/φ of
/// **all** flows. A flow that goes by finish tags never gets further ahead of the start tag S of a waiting
/// one than that one's c/φ, since its own finish tag was at most `S + c/φ`. And v, from which an idle flow
/// starts, is the start tag of a waiting flow. So two flows may begin such a stretch m apart, and one may end
/// it c/φ ahead.
///
/// An eligible request goes whenever the window has room (work conservation), except with
/// [`RefillTime::InBatches`]. Within a flow order is first in, first out. Exempt flows share among themselves
/// by tags of their own, ahead of the window and outside of it: it cannot stop them, and they do not move the
/// virtual time of the others.
///
/// # Cost
///
/// O(log n) in the number of flows that have requests. No allocation but the growth of bounded queues.
#[derive(Debug)]
pub struct Sfq<T> {
    cost: CostModel,
    batch: Option<FlowBatch>,
    idle_credit: RequestCost,
    clock: SchedulerClock,
    flows: Slab<Flow<T>>,
    generation: u32,
    lanes: ReadyLanes,
    /// Flows whose head is not eligible yet, or only as surplus, by the time when it will be.
    held: TournamentTree,
    reservations: ReservedFlows,
    gate: WindowGate,
    spacing: DispatchSpacing,
    exempt_outstanding: u32,
    queued: usize,
    queued_bytes: u64,
}

impl<T> Sfq<T> {
    /// A scheduler without flows.
    #[must_use]
    pub fn new(config: SfqConfig) -> Self {
        Self {
            cost: config.cost,
            batch: config.batch.filter(|batch| batch.requests > 0),
            idle_credit: config.idle_credit,
            clock: SchedulerClock::default(),
            flows: Slab::with_capacity(1),
            generation: 0,
            lanes: ReadyLanes::new(config.discipline),
            held: TournamentTree::new(),
            reservations: ReservedFlows::new(),
            gate: WindowGate::new(config.window, config.refill),
            spacing: DispatchSpacing::default(),
            exempt_outstanding: 0,
            queued: 0,
            queued_bytes: 0,
        }
    }

    /// Adds a flow. It begins level with the others: without credit, without debt.
    pub fn add_flow(&mut self, config: &FlowConfig, now: Instant) -> FlowId {
        let now = self.clock.read(now);
        self.generation = self.generation.wrapping_add(1);
        let virtual_time = self.lanes.virtual_time(LaneName::of(config.exempt));
        let slot = self.flows.insert(Flow::new(config, self.generation, virtual_time, now)) as u32;
        FlowId { slot, generation: self.generation }
    }

    /// Removes a flow and returns what it has queued, oldest first. Its outstanding requests keep their place
    /// in the window and are completed as ever; nothing else accepts the identifier any more.
    ///
    /// # Errors
    /// [`UnknownFlow`].
    pub fn remove_flow(&mut self, id: FlowId) -> Result<Vec<T>, UnknownFlow> {
        let now = self.clock.passed();
        let flow = self.flow_mut(id)?;
        let requests: Vec<T> =
            std::mem::take(&mut flow.queue).into_iter().map(|queued| queued.request).collect();
        let bytes = std::mem::take(&mut flow.queued_bytes);
        flow.draining = true;
        let drained = flow.outstanding == [0; 2];
        self.queued -= requests.len();
        self.queued_bytes -= bytes;
        self.withdraw(id.slot, now);
        if drained {
            self.flows.remove(id.slot as usize);
        }
        Ok(requests)
    }

    /// Changes a flow's weight, from the next request dispatched on, and its place by finish tags at once.
    ///
    /// # Errors
    /// [`UnknownFlow`].
    pub fn set_weight(&mut self, id: FlowId, weight: Shares) -> Result<(), UnknownFlow> {
        self.flow_mut(id)?.set_weight(weight);
        if self.lanes.discipline == Discipline::FinishTags {
            self.retag(id.slot);
        }
        Ok(())
    }

    /// Sets, changes or lifts a flow's reservation, in I/Os of average size per second; zero lifts it. It
    /// counts from now on.
    ///
    /// # Errors
    /// [`UnknownFlow`].
    pub fn set_reservation(
        &mut self,
        id: FlowId,
        reservation: Option<Iops>,
        now: Instant,
    ) -> Result<(), UnknownFlow> {
        let now = self.clock.read(now);
        self.flow_mut(id)?;
        let flow = &mut self.flows[id.slot as usize];
        let wanted = reservation.and_then(|rate| Some((rate, FlowReservation::new(rate)?)));
        match (&mut flow.terms_mut().reservation, wanted) {
            (Some(reservation), Some((rate, _))) => self.reservations.set(id.slot, reservation, rate, now),
            (reservation @ None, Some((_, new))) => {
                let reservation = reservation.insert(new);
                if self.lanes.is_ready(LaneName::Windowed, id.slot) {
                    self.reservations.enter(id.slot, reservation, now);
                }
            }
            (reservation, None) => {
                if let Some(mut reservation) = reservation.take() {
                    self.reservations.leave(id.slot, &mut reservation, now);
                }
            }
        }
        Ok(())
    }

    /// Sets, changes or lifts a flow's limit. Tokens and debts outlive a change.
    ///
    /// # Errors
    /// [`UnknownFlow`].
    pub fn set_limit(
        &mut self,
        id: FlowId,
        limit: Option<ConsumerLimit>,
        now: Instant,
    ) -> Result<(), UnknownFlow> {
        let now = self.clock.read(now);
        self.flow_mut(id)?.terms_mut().set_limit(limit, now);
        self.place(id.slot, now);
        Ok(())
    }

    /// Sets the number of I/Os of a flow's reservation that are due at once after a pause, while it has one.
    /// The default is one.
    ///
    /// # Errors
    /// [`UnknownFlow`].
    pub fn set_reservation_burst(&mut self, id: FlowId, burst: u32) -> Result<(), UnknownFlow> {
        if let Some(reservation) = self.flow_mut(id)?.reservation_mut() {
            reservation.set_burst(burst);
        }
        Ok(())
    }

    /// Sets, changes or lifts a flow's leaky bucket. Tokens and what is released outlive a change. Requests
    /// that are queued when a flow gets its first bucket are in front of it; when it loses it, they count
    /// from their arrival.
    ///
    /// # Errors
    /// [`UnknownFlow`].
    pub fn set_bucket(
        &mut self,
        id: FlowId,
        bucket: Option<LeakyBucket>,
        now: Instant,
    ) -> Result<(), UnknownFlow> {
        let now = self.clock.read(now);
        self.flow_mut(id)?.set_bucket(bucket, now);
        self.place(id.slot, now);
        Ok(())
    }

    /// Sets the delay of each request of a flow after its arrival. Requests already delayed get the new
    /// delay, counted from their arrival; requests that a [bucket](Self::set_bucket) has released stay
    /// released.
    ///
    /// # Errors
    /// [`UnknownFlow`].
    pub fn set_delay(&mut self, id: FlowId, delay: Latency, now: Instant) -> Result<(), UnknownFlow> {
        let now = self.clock.read(now);
        let flow = self.flow_mut(id)?;
        if flow.delay != delay {
            flow.settle_bucket(now);
            flow.delay = delay;
            self.place(id.slot, now);
        }
        Ok(())
    }

    /// Moves a flow out of the window, or back into it. Requests outstanding stay accounted for where they
    /// were dispatched.
    ///
    /// # Errors
    /// [`UnknownFlow`].
    pub fn set_exempt(&mut self, id: FlowId, exempt: bool, now: Instant) -> Result<(), UnknownFlow> {
        let now = self.clock.read(now);
        let to = LaneName::of(exempt);
        if self.flow_mut(id)?.lane == to {
            return Ok(());
        }
        self.withdraw(id.slot, now);
        let flow = &mut self.flows[id.slot as usize];
        flow.lane = to;
        // Tags of the two lanes have nothing to do with each other.
        flow.finish = self.lanes.virtual_time(to);
        self.place(id.slot, now);
        Ok(())
    }

    /// Sets D, the number of requests of flows in the window that may be outstanding; `None`: any number. A
    /// larger window acts at once; a smaller one revokes nothing. One of zero lets a request go every second:
    /// a scheduler slows down and never stops the storage.
    pub fn set_window(&mut self, window: Option<Window>, now: Instant) {
        let now = self.clock.read(now);
        self.gate.set(window, now);
    }

    /// Sets the least time between two dispatches of flows in the window, at most a second;
    /// [`Latency::ZERO`]: none. Requests whose [delay](Self::set_delay) ends at the same time then go one by
    /// one.
    pub fn set_spacing(&mut self, least: Latency) {
        self.spacing.set(least);
    }

    /// Queues a request that arrives now.
    ///
    /// # Errors
    /// [`RefusedRequest`] returns the request when the flow's queue is full or the flow is unknown.
    pub fn enqueue(
        &mut self,
        id: FlowId,
        now: Instant,
        request: T,
        extent: StorageExtent,
    ) -> Result<(), RefusedRequest<T>> {
        let now = self.clock.read(now);
        let Ok(flow) = self.flow_mut(id) else {
            return Err(RefusedRequest { request, reason: QueueRefusal::UnknownFlow });
        };
        match flow.has_room_for(extent.bytes) {
            Ok(()) => {}
            Err(FullBound::Requests) => {
                return Err(RefusedRequest { request, reason: QueueRefusal::TooManyRequests });
            }
            Err(FullBound::Bytes) => {
                return Err(RefusedRequest { request, reason: QueueRefusal::TooManyBytes });
            }
        }
        let first = flow.queue.is_empty();
        flow.queued_bytes += u64::from(extent.bytes);
        flow.queue.push_back(QueuedRequest { request, extent, arrived: now });
        self.queued += 1;
        self.queued_bytes += u64::from(extent.bytes);
        if first {
            self.place(id.slot, now);
        }
        Ok(())
    }

    /// The next request to dispatch, or when to ask again.
    pub fn pull(&mut self, now: Instant) -> PullAnswer<T> {
        let now = self.clock.read(now);
        self.release(now);
        if self.lanes.has_ready(LaneName::Exempt) {
            return self.dispatch(LaneName::Exempt, now);
        }
        let mut wake = Instant::MAX;
        let next =
            [LaneName::Windowed, LaneName::Surplus].into_iter().find(|&lane| self.lanes.has_ready(lane));
        if let Some(lane) = next {
            let spaced = self.spacing.open_at(now);
            match self.gate.admit(now) {
                GateAnswer::Open if spaced <= now => return self.dispatch(lane, now),
                GateAnswer::Open => wake = spaced,
                // A fraction of a window is a pause. It is the others that wait for its end.
                GateAnswer::NotBefore(_) if spaced <= now && self.reservations.is_due(now) => {
                    return self.dispatch(lane, now);
                }
                GateAnswer::NotBefore(open) => {
                    let due = self.reservations.next_due().unwrap_or(Instant::MAX);
                    wake = open.min(due).max(spaced);
                }
                GateAnswer::Shut => {}
            }
        } else {
            self.gate.idle(now);
        }
        if let Some((_, eligible)) = self.held.first() {
            wake = wake.min(Instant::from_nanos(eligible));
        }
        if wake == Instant::MAX {
            PullAnswer::Nothing
        } else {
            PullAnswer::NotBefore(self.clock.callers(wake))
        }
    }

    /// A request of this flow that was dispatched is done.
    ///
    /// # Errors
    /// [`CompleteError`], when there is no such request.
    pub fn complete(&mut self, id: FlowId, now: Instant) -> Result<(), CompleteError> {
        let now = self.clock.read(now);
        let flow = self
            .flows
            .get_mut(id.slot as usize)
            .filter(|flow| flow.generation == id.generation)
            .ok_or(CompleteError::UnknownFlow)?;
        // Which of a flow's requests is done is not said. After a change of lanes the exempt ones are taken
        // to be done first, so that the window is never thought emptier than it is.
        let [exempt, windowed] = &mut flow.outstanding;
        if *exempt > 0 {
            *exempt -= 1;
            self.exempt_outstanding -= 1;
        } else if *windowed > 0 {
            *windowed -= 1;
            self.gate.completed(now);
        } else {
            return Err(CompleteError::NothingOutstanding);
        }
        if flow.draining && flow.outstanding == [0; 2] {
            self.flows.remove(id.slot as usize);
        }
        self.lanes.completed(self.exempt_outstanding, self.gate.outstanding());
        Ok(())
    }

    /// Reads the memory that [`complete`](Self::complete), [`enqueue`](Self::enqueue) and
    /// [`pull`](Self::pull) are going to need for this flow, and does nothing with it. A caller with
    /// thousands of schedulers, each of them long out of the caches, calls this first, to wait for all of it
    /// together; for any other it is a waste.
    pub fn recall(&self, id: FlowId) {
        black_box((self.clock.passed(), self.gate.outstanding(), self.spacing.open_at(Instant::ZERO)));
        black_box((self.cost, self.batch, self.queued, self.held.is_empty(), self.reservations.is_empty()));
        self.lanes.recall(id.slot);
        if let Some(flow) = self.flow(id) {
            black_box((flow.finish, flow.delay, flow.outstanding));
            black_box((
                flow.queue.front().map(|queued| queued.extent),
                flow.queue.back().map(|queued| queued.arrived),
            ));
        }
    }

    /// Requests queued, in all flows.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.queued
    }

    /// Sum of the sizes of all requests queued.
    #[must_use]
    pub fn queued_bytes(&self) -> Bytes {
        Bytes::new(self.queued_bytes)
    }

    /// Requests outstanding under the window.
    #[must_use]
    pub fn outstanding(&self) -> u32 {
        self.gate.outstanding()
    }

    /// Requests outstanding of exempt flows.
    #[must_use]
    pub fn exempt_outstanding(&self) -> u32 {
        self.exempt_outstanding
    }

    /// Returns the status of a flow; `None` for an unknown one.
    #[must_use]
    pub fn status(&self, id: FlowId, now: Instant) -> Option<FlowStatus> {
        let flow = self.flow(id)?;
        Some(FlowStatus {
            queued: flow.queue.len(),
            queued_bytes: Bytes::new(flow.queued_bytes),
            oldest: flow.queue.front().map(|head| self.clock.peek(now).saturating_since(head.arrived)),
            is_limited: flow.is_limited(self.clock.peek(now))
                || self.lanes.is_ready(LaneName::Surplus, id.slot),
            outstanding: flow.outstanding.iter().sum(),
            reserved: flow
                .terms
                .as_ref()
                .and_then(|terms| terms.reservation.as_ref())
                .map(|reservation| reservation.service(self.clock.peek(now))),
            bucket: flow.bucket_status(self.clock.peek(now)),
        })
    }

    fn flow(&self, id: FlowId) -> Option<&Flow<T>> {
        self.flows.get(id.slot as usize).filter(|flow| flow.generation == id.generation && !flow.draining)
    }

    fn flow_mut(&mut self, id: FlowId) -> Result<&mut Flow<T>, UnknownFlow> {
        self.flows
            .get_mut(id.slot as usize)
            .filter(|flow| flow.generation == id.generation && !flow.draining)
            .ok_or(UnknownFlow)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The order of 600 requests of four flows when virtual time begins at `origin`.
    fn order(discipline: Discipline, origin: u128) -> Vec<u32> {
        let mut scheduler = Sfq::new(SfqConfig { discipline, batch: None, ..SfqConfig::default() });
        scheduler.lanes.get_mut(LaneName::Windowed).start_at(origin);
        for (flow, shares) in (0..4).zip([1, 7, 100, 999_983]) {
            let weight = Shares::new(shares).unwrap();
            let id = scheduler.add_flow(&FlowConfig { weight, ..FlowConfig::default() }, Instant::ZERO);
            for request in 0..150u32 {
                let extent =
                    StorageExtent { offset: 0, bytes: request.wrapping_mul(0x9e37_79b9) >> (flow * 3) };
                scheduler.flows[id.slot as usize].capacity.bytes = Bytes::from_gib(1 << 20);
                scheduler.enqueue(id, Instant::ZERO, flow, extent).unwrap();
            }
        }
        std::iter::from_fn(|| match scheduler.pull(Instant::ZERO) {
            PullAnswer::Request { request, .. } => Some(request),
            _ => None,
        })
        .collect()
    }

    #[test]
    fn requests_held_together_go_one_by_one_and_exempt_ones_do_not_wait() {
        let at = |millis: u64| Instant::from_nanos(millis * 1_000_000);
        let extent = StorageExtent { offset: 0, bytes: 4_096 };
        let mut scheduler = Sfq::new(SfqConfig { batch: None, ..SfqConfig::default() });
        scheduler.set_spacing(Latency::from_millis(10));
        let held: Vec<_> = (0..3)
            .map(|_| {
                let delay = Latency::from_millis(50);
                scheduler.add_flow(&FlowConfig { delay, ..FlowConfig::default() }, at(0))
            })
            .collect();
        for &flow in &held {
            scheduler.enqueue(flow, at(0), 0, extent).unwrap();
        }
        assert_eq!(scheduler.pull(at(0)), PullAnswer::NotBefore(at(50)));
        for millis in [50, 60, 70] {
            assert!(matches!(scheduler.pull(at(millis)), PullAnswer::Request { .. }), "at {millis} ms");
            if millis < 70 {
                assert_eq!(scheduler.pull(at(millis + 1)), PullAnswer::NotBefore(at(millis + 10)));
            }
        }
        let protected = scheduler.add_flow(&FlowConfig { exempt: true, ..FlowConfig::default() }, at(71));
        for _ in 0..2 {
            scheduler.enqueue(protected, at(71), 1, extent).unwrap();
            assert_eq!(
                scheduler.pull(at(71)),
                PullAnswer::Request { flow: protected, request: 1, released: at(71) }
            );
        }
    }

    /// Only the low half of a tag is compared; this crosses its ends.
    #[test]
    fn order_does_not_depend_on_where_virtual_time_stands() {
        for discipline in [Discipline::StartTags, Discipline::FinishTags] {
            let expected = order(discipline, 0);
            assert_eq!(expected.len(), 600);
            for origin in
                [u128::from(u64::MAX), u128::from(u64::MAX) - (1 << 50), (1 << 63) - 1, (1 << 100) - 12_345]
            {
                assert_eq!(order(discipline, origin), expected, "{discipline:?}, origin {origin}");
            }
        }
    }
}
