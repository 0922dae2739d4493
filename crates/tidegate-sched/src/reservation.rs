//! Reservations: rates that are served first, whatever the shares (mClock's constraint-based phase).

use std::time::Duration;

use tidegate_units::{Instant, Iops};

use crate::cost::{COST_BITS, RequestCost};
use crate::tournament::TournamentTree;

/// Binary digits of a nanosecond in a reservation tag: 1/r is then exact to better than a part in a million
/// up to ten million I/Os per second.
const TAG_BITS: u32 = 16;

/// The longest time between two reserved I/Os, far beyond any use and far from overflow: 39 hours.
const LONGEST_INTERVAL: f64 = 9.2e18;

/// Greatest lag of a reservation before the missed service is forgiven. It must bridge the time between a
/// request and its turn: a full window, or a pause of the gate, of which the longest is a second as well.
/// More would let reservations that could not be kept for long shut all others out for as long afterwards.
const LATEST_NANOS: u64 = 1_000_000_000;

/// Time that bounds the lead over the others' shares to which a reservation may take a flow: the lead is at
/// most what the reservation gives in this time.
///
/// A bound in I/Os alone is not enough. A flow of few shares gets the rest that reservations leave, a
/// request from time to time. In the same time a reservation beyond its flow's share takes that flow
/// farther than the small one comes. So the small one goes before it by shares. With a lead of 256 I/Os and
/// no more, a flow of 1,682 reserved I/Os per second took a quarter of what was due to one of 13.
const AHEAD_NANOS: u64 = 2_000_000_000;

/// The least bound of that lead. Requests that are due come in clumps, as the window opens. Within a clump
/// the tags must keep order, so it is several times the usual number outstanding.
const LEAST_AHEAD: RequestCost = RequestCost::from_ios(256);

/// One part in so many of what goes by reservations is owed to the shares. Strict priority would let
/// reservations beyond the storage's capacity stop everyone else for good; Ceph's mClock had to bound its
/// high-priority queue for that reason (ceph/ceph, pull request 71205). Below a hundredth, so that
/// reservations are kept to 1 % up to the capacity.
const OWED_PART: u32 = 7;

/// A flow's reservation tag, and what it got.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FlowReservation {
    /// 1/r, the time between two I/Os, in 2⁻¹⁶ ns.
    interval: u64,
    /// The number of I/Os that are due at once after a pause.
    burst: u32,
    /// R of the request at the head, in 2⁻¹⁶ ns of [`ReservedFlows`]' time.
    tag: u128,
    /// Since when the flow has had an eligible request.
    since: Option<Instant>,
    backlogged: Duration,
    served: u64,
    missed: Duration,
    /// The cost of the request dispatched last.
    last_cost: u64,
    /// `backlogged` and `served` when they were last compared.
    judged: (Duration, u64),
}

/// So much time with requests waiting is judged at once: shorter stretches hold too few requests, in longer
/// ones a bad second goes unseen.
const JUDGED: Duration = Duration::from_secs(1);

impl FlowReservation {
    /// `None` for a rate of nothing.
    pub(crate) fn new(rate: Iops) -> Option<Self> {
        let interval = interval(rate)?;
        Some(Self {
            interval,
            burst: 1,
            tag: 0,
            since: None,
            backlogged: Duration::ZERO,
            served: 0,
            missed: Duration::ZERO,
            last_cost: 0,
            judged: (Duration::ZERO, 0),
        })
    }

    pub(crate) fn service(mut self, now: Instant) -> ReservedService {
        self.judge(now);
        ReservedService { backlogged: self.backlogged_until(now), missed: self.missed, served: self.served }
    }

    fn backlogged_until(&self, now: Instant) -> Duration {
        self.backlogged + self.since.map_or(Duration::ZERO, |since| now.saturating_since(since))
    }

    /// Counts the time since the last comparison as missed when the flow got less than 99 % of what is
    /// reserved, and that by more than one request.
    fn judge(&mut self, now: Instant) {
        let backlogged = self.backlogged_until(now);
        let stretch = backlogged - self.judged.0;
        if stretch < JUDGED {
            return;
        }
        let reserved = (stretch.as_nanos() << (TAG_BITS + COST_BITS)) / u128::from(self.interval);
        let enough = (reserved - reserved / 100).saturating_sub(u128::from(self.last_cost));
        if u128::from(self.served - self.judged.1) < enough {
            self.missed += stretch;
        }
        self.judged = (backlogged, self.served);
    }

    fn dispatched(&mut self, cost: RequestCost, now: Instant) {
        self.served = self.served.saturating_add(cost.raw());
        self.last_cost = cost.raw();
        self.judge(now);
    }

    /// A request went by shares. The tag stays: the next request is due when this one would have been, so
    /// that what the flow gets by shares is not taken from its reservation (mClock: R tags go back by 1/r).
    pub(crate) fn shared(&mut self, cost: RequestCost, now: Instant) {
        self.dispatched(cost, now);
    }

    fn key(&self) -> u64 {
        u64::try_from(self.tag >> TAG_BITS).unwrap_or(u64::MAX)
    }

    fn not_before(&mut self, time: u64) {
        let saved = u128::from(self.interval) * u128::from(self.burst - 1);
        let saved = saved.min(u128::from(LATEST_NANOS) << TAG_BITS);
        self.tag = self.tag.max((u128::from(time) << TAG_BITS).saturating_sub(saved));
    }

    /// Sets the number of I/Os that are due at once after a pause. Zero counts as one.
    pub(crate) fn set_burst(&mut self, burst: u32) {
        self.burst = burst.max(1);
    }

    /// Returns the greatest lead over the others' shares to which it takes its flow, beyond the request that
    /// goes.
    pub(crate) fn ahead(&self) -> RequestCost {
        let ios = (AHEAD_NANOS << TAG_BITS) / self.interval;
        RequestCost::from_ios(u32::try_from(ios).unwrap_or(u32::MAX)).max(LEAST_AHEAD)
    }

    fn steps(&self, cost: RequestCost) -> u128 {
        (u128::from(self.interval) * u128::from(cost.raw())) >> COST_BITS
    }
}

fn interval(rate: Iops) -> Option<u64> {
    let per_second = rate.per_second();
    (per_second > 0.0).then(|| {
        let nanos = 1e9 * f64::from(1 << TAG_BITS) / per_second;
        nanos.round().clamp(1.0, LONGEST_INTERVAL) as u64
    })
}

/// Service of a flow with a reservation while it had eligible requests, since its reservation was first set.
/// The difference between two readings gives the rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReservedService {
    /// For how long it had eligible requests waiting.
    pub backlogged: Duration,
    /// Part of that time that counts as missed. It is judged a second at a time: a second is missed if the
    /// flow got less than 99 % of its reservation, give or take one request.
    pub missed: Duration,
    served: u64,
}

impl ReservedService {
    /// Returns the service dispatched, by reservation or by shares, in I/Os of average size
    /// ([`RequestCost`]).
    #[must_use]
    pub fn served_ios(self) -> f64 {
        self.served as f64 / RequestCost::ONE.raw() as f64
    }
}

/// Flows with reservations that have eligible requests, by reservation tag, and the time that tags are
/// compared with.
///
/// That time is the scheduler's, less `slip`. It slips where the earliest tag would be later than
/// [`LATEST_NANOS`]: reservations beyond the storage's capacity then fall behind together, each by the same
/// factor (mClock's tags advance by c/r each, and the earliest goes first), and none saves up more than that.
#[derive(Debug)]
pub(crate) struct ReservedFlows {
    heads: TournamentTree,
    slip: u64,
    /// Debt to the shares since they were last served, in cost · 2⁻⁷; negative after a large request.
    owed: i64,
}

impl ReservedFlows {
    pub(crate) fn new() -> Self {
        Self { heads: TournamentTree::new(), slip: 0, owed: 0 }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.heads.is_empty()
    }

    /// The flow that goes before all others, if one is due.
    pub(crate) fn due(&mut self, now: Instant) -> Option<u32> {
        let (slot, tag) = self.heads.first()?;
        if tag > self.time(now) {
            return None;
        }
        self.slip_behind(tag, now);
        (!self.must_share()).then_some(slot)
    }

    /// Returns true if a flow is due, whether the shares are owed a request or not.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.heads.first().is_some_and(|(_, tag)| tag <= self.time(now))
    }

    /// Returns the time at which the next flow is due, if one has an eligible request.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        let (_, tag) = self.heads.first()?;
        Some(Instant::from_nanos(tag.saturating_add(self.slip).saturating_sub(LATEST_NANOS)))
    }

    /// The flow has an eligible request, and had none before: R = max(R of the one before + c/r, now). While
    /// it has some, R = R of the one before + c/r, late or not. mClock goes back to the arrival for every
    /// request; then who keeps few requests waiting loses what a full window made it wait for, and
    /// reservations beyond the capacity would be served by queue length.
    pub(crate) fn enter(&mut self, slot: u32, flow: &mut FlowReservation, now: Instant) {
        if let Some((_, tag)) = self.heads.first() {
            self.slip_behind(tag, now);
        }
        flow.not_before(self.time(now));
        flow.since.get_or_insert(now);
        self.heads.set(slot, flow.key());
    }

    /// The flow has no eligible request any more.
    pub(crate) fn leave(&mut self, slot: u32, flow: &mut FlowReservation, now: Instant) {
        if let Some(since) = flow.since.take() {
            flow.backlogged += now.saturating_since(since);
            self.heads.remove(slot);
        }
    }

    /// Another rate. No tag lies further ahead than one I/O at that rate.
    pub(crate) fn set(&mut self, slot: u32, flow: &mut FlowReservation, rate: Iops, now: Instant) {
        // What was before is judged by what was reserved then, or not at all.
        flow.judge(now);
        flow.judged = (flow.backlogged_until(now), flow.served);
        if let Some(interval) = interval(rate) {
            flow.interval = interval;
        }
        let latest = (u128::from(self.time(now)) << TAG_BITS) + flow.steps(RequestCost::ONE);
        flow.tag = flow.tag.min(latest);
        if flow.since.is_some() {
            self.heads.set(slot, flow.key());
        }
    }

    /// A request of the flow went because it was due. If the flow has another, [`stay`](Self::stay) comes
    /// next, else [`leave`](Self::leave).
    pub(crate) fn reserved(&mut self, flow: &mut FlowReservation, cost: RequestCost, now: Instant) {
        self.owed = self.owed.saturating_add_unsigned(cost.raw());
        flow.dispatched(cost, now);
        flow.tag += flow.steps(cost);
    }

    /// The flow has another eligible request, after one that was due.
    pub(crate) fn stay(&mut self, slot: u32, flow: &FlowReservation) {
        self.heads.set(slot, flow.key());
    }

    /// Any flow's request went by shares.
    pub(crate) fn shares_served(&mut self, cost: RequestCost) {
        let paid = cost.raw().cast_signed() << OWED_PART;
        self.owed = if self.must_share() { self.owed - paid } else { self.owed.min(0) };
    }

    fn must_share(&self) -> bool {
        self.owed >= RequestCost::ONE.raw().cast_signed() << OWED_PART
    }

    /// The time that tags are compared with. It begins at the longest burst, so that no tag is below zero.
    fn time(&self, now: Instant) -> u64 {
        now.as_nanos().saturating_add(LATEST_NANOS).saturating_sub(self.slip)
    }

    fn slip_behind(&mut self, earliest: u64, now: Instant) {
        let late = self.time(now).saturating_sub(earliest);
        self.slip += late.saturating_sub(LATEST_NANOS);
    }
}
