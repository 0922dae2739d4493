//! Dispatch order: the standing of each flow, and the changes that a dispatch makes.

use tidegate_units::Instant;

use super::{PullAnswer, Sfq};
use crate::cost::{CostModel, RequestCost};
use crate::flow::{Flow, FlowId, FlowTerms, HeadStanding, LaneName, QueuedRequest};
use crate::lane::ReadyLane;

const READY: &str = "a ready flow has a request";

impl<T> Sfq<T> {
    /// Makes requests ready whose delay is over.
    pub(super) fn release(&mut self, now: Instant) {
        while let Some((slot, eligible)) = self.held.first() {
            if Instant::from_nanos(eligible) > now {
                break;
            }
            self.place(slot, now);
        }
    }

    /// Puts a flow where its head belongs: among the ready, the surplus, the delayed, or nowhere. A flow that
    /// is ready and stays so keeps its tag.
    pub(super) fn place(&mut self, slot: u32, now: Instant) {
        let flow = &mut self.flows[slot as usize];
        match flow.standing(now) {
            HeadStanding::Empty => self.withdraw(slot, now),
            HeadStanding::Held(until) => {
                self.withdraw(slot, now);
                self.held.set(slot, until.as_nanos());
            }
            HeadStanding::Beyond(until) => {
                if !self.lanes.is_ready(LaneName::Surplus, slot) {
                    self.withdraw(slot, now);
                    let lane = self.lanes.get_mut(LaneName::Surplus);
                    tag_surplus(&mut self.flows[slot as usize], lane, slot, self.cost);
                }
                self.held.set(slot, until.as_nanos());
            }
            HeadStanding::Ready => {
                if self.lanes.is_ready(flow.lane, slot) {
                    return;
                }
                self.held.remove(slot);
                self.lanes.withdraw(LaneName::Surplus, slot);
                tag(flow, self.lanes.get_mut(flow.lane), slot, self.cost, self.idle_credit);
                if let (LaneName::Windowed, Some(reservation)) = (flow.lane, flow.reservation_mut()) {
                    self.reservations.enter(slot, reservation, now);
                }
            }
        }
    }

    pub(super) fn withdraw(&mut self, slot: u32, now: Instant) {
        let flow = &mut self.flows[slot as usize];
        self.held.remove(slot);
        self.lanes.withdraw(flow.lane, slot);
        self.lanes.withdraw(LaneName::Surplus, slot);
        if let Some(reservation) = flow.reservation_mut() {
            self.reservations.leave(slot, reservation, now);
        }
    }

    /// Gives a flow whose weight has changed the place that its head now has by its finish tag.
    pub(super) fn retag(&mut self, slot: u32) {
        let flow = &self.flows[slot as usize];
        for name in [flow.lane, LaneName::Surplus] {
            if self.lanes.is_ready(name, slot) {
                self.lanes.get_mut(name).make_ready(slot, flow.start, || head_finish(flow, self.cost));
            }
        }
    }

    /// Takes the next request of a lane that has one ready.
    pub(super) fn dispatch(&mut self, name: LaneName, now: Instant) -> PullAnswer<T> {
        let due = if name == LaneName::Windowed { self.reservations.due(now) } else { None };
        let lane = self.lanes.get_mut(name);
        let following = self.batch.as_ref().filter(|_| due.is_none()).and_then(|batch| {
            lane.following(batch, |slot| {
                let head = self.flows[slot as usize].queue.front().expect(READY);
                (head.extent, self.cost.cost(head.extent.bytes))
            })
        });
        let (slot, _) = lane.ready.first().expect("the caller saw a ready flow");
        let slot = due.or(following).unwrap_or(slot);
        let flow = &mut self.flows[slot as usize];
        let (QueuedRequest { request, extent, .. }, released) = flow.take_head(now).expect(READY);
        let cost = self.cost.cost(extent.bytes);
        let mut finish = flow.start + flow.advance(cost);
        if due.is_some() {
            let ahead = flow.reservation_mut().map_or(RequestCost::ZERO, |reservation| reservation.ahead());
            finish = lane.reserved(slot, finish, flow.advance(cost) + flow.advance(ahead));
        } else if following.is_some() {
            lane.followed(finish, extent, cost);
        } else {
            lane.chose(slot, flow.start, finish, extent, self.batch.as_ref());
        }
        if name == LaneName::Surplus {
            flow.terms_mut().surplus_finish = finish;
        } else {
            flow.finish = finish;
            if let Some(FlowTerms { limiter: Some(limiter), .. }) = flow.terms.as_deref_mut() {
                limiter.take(extent.bytes, now);
            }
        }
        flow.queued_bytes -= u64::from(extent.bytes);
        flow.outstanding[usize::from(name != LaneName::Exempt)] += 1;
        self.queued -= 1;
        self.queued_bytes -= u64::from(extent.bytes);
        let id = FlowId { slot, generation: flow.generation };
        if name == LaneName::Windowed {
            self.account(slot, cost, due.is_some(), now);
        }
        self.follow_up(slot, name, due.is_some(), now);
        if name == LaneName::Exempt {
            self.exempt_outstanding += 1;
        } else {
            self.gate.dispatched(now);
            self.spacing.dispatched(now);
        }
        PullAnswer::Request { flow: id, request, released: self.clock.callers(released) }
    }

    /// Accounts a dispatch under the window to the reservations.
    fn account(&mut self, slot: u32, cost: RequestCost, reserved: bool, now: Instant) {
        let flow = &mut self.flows[slot as usize];
        if !reserved {
            self.reservations.shares_served(cost);
        }
        match flow.reservation_mut() {
            Some(reservation) if reserved => self.reservations.reserved(reservation, cost, now),
            Some(reservation) => reservation.shared(cost, now),
            None => {}
        }
    }

    /// Puts a flow that has just dispatched from a lane where its next head belongs. Like
    /// [`place`](Self::place), only that the head is a new one and must be tagged.
    #[inline]
    fn follow_up(&mut self, slot: u32, name: LaneName, reserved: bool, now: Instant) {
        let flow = &mut self.flows[slot as usize];
        match (flow.standing(now), name) {
            (HeadStanding::Ready, LaneName::Exempt | LaneName::Windowed) => {
                tag(flow, self.lanes.get_mut(name), slot, self.cost, self.idle_credit);
                if let Some(reservation) = flow.reservation_mut().filter(|_| reserved) {
                    self.reservations.stay(slot, reservation);
                }
            }
            (HeadStanding::Beyond(until), LaneName::Surplus) => {
                tag_surplus(flow, self.lanes.get_mut(name), slot, self.cost);
                self.held.set(slot, until.as_nanos());
            }
            (HeadStanding::Empty, _) => self.withdraw(slot, now),
            (HeadStanding::Held(until), _) => {
                self.withdraw(slot, now);
                self.held.set(slot, until.as_nanos());
            }
            (HeadStanding::Ready, LaneName::Surplus) | (HeadStanding::Beyond(_), _) => {
                self.lanes.withdraw(name, slot);
                self.place(slot, now);
            }
        }
    }
}

/// Gives the head of a flow its tags, and its place in the order.
#[inline]
fn tag<T>(flow: &mut Flow<T>, lane: &mut ReadyLane, slot: u32, model: CostModel, idle_credit: RequestCost) {
    let credit = flow.advance(idle_credit);
    flow.start = flow.finish.max(lane.virtual_time().saturating_sub(credit));
    lane.make_ready(slot, flow.start, || head_finish(flow, model));
}

/// The same among those beyond their limits.
fn tag_surplus<T>(flow: &mut Flow<T>, lane: &mut ReadyLane, slot: u32, model: CostModel) {
    let finish = flow.terms.as_ref().map_or(0, |terms| terms.surplus_finish);
    flow.start = finish.max(lane.virtual_time());
    lane.make_ready(slot, flow.start, || head_finish(flow, model));
}

/// Finish tag of the request at the head of a ready flow.
fn head_finish<T>(flow: &Flow<T>, model: CostModel) -> u128 {
    flow.start + flow.advance(model.cost(flow.queue.front().expect(READY).extent.bytes))
}
