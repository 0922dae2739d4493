//! A consumer's account: its requests in a [`RegulatedQueue`](crate::RegulatedQueue) and at the resource, and
//! their measurements since the last observation.

use std::hint::black_box;

use tidegate_control::{ConsumerObservation, ContractUse, MeanOutstanding, OperationTotals};
use tidegate_sched::{CostModel, FlowId, FlowStatus};
use tidegate_units::{Bytes, Instant, Iops, Latency};

use crate::integral::{MeanSince, OutstandingIntegral};
use crate::rate_account::RateAccount;
use crate::request::{CompletedRequest, OperationKind};
use crate::samples::LatencySamples;
use crate::terms::ConsumerTerms;

/// The reservation of a contract over its rate. A consumer that asks for its rate or more, and was late once,
/// would otherwise stay late for ever.
const CATCHES_UP: f64 = 1.05;

/// A consumer's requests in a queue and at the resource, and their measurements since the last observation.
///
/// Its owner keeps it beside its own state of the consumer, and passes it to the queue that made it.
#[derive(Debug)]
pub struct ConsumerAccount<S> {
    pub(crate) flow: FlowId,
    pub(crate) queued: u32,
    pub(crate) in_flight: u32,
    /// Requests at the resource whose slots in the window other consumers have.
    pub(crate) lent: u32,
    /// The state for laws that command rates or keep contracts. It is boxed to save room in the cache
    /// under other laws.
    pub(crate) rates: Option<Box<RateAccount<S>>>,
    /// All requests of the consumer, queued or at the resource.
    pub(crate) outstanding: OutstandingIntegral,
    interval: [OperationTotals; 2],
    /// Needed once per interval, and boxed for the same reason.
    pub(crate) terms: Box<ConsumerTerms>,
    pub(crate) delay: Latency,
    /// The reservation in force in the scheduler, and its burst.
    pub(crate) reserved: Option<(Iops, u32)>,
    observed: MeanSince,
    /// Requests and bytes that completed in the last interval in which any did.
    sizes: (u64, Bytes),
}

impl<S: LatencySamples> ConsumerAccount<S> {
    pub(crate) fn new(
        terms: ConsumerTerms,
        flow: FlowId,
        rates: Option<Box<RateAccount<S>>>,
        now: Instant,
    ) -> Self {
        Self {
            flow,
            queued: 0,
            in_flight: 0,
            lent: 0,
            rates,
            outstanding: OutstandingIntegral::beginning_at(now),
            interval: [OperationTotals::default(); 2],
            terms: Box::new(terms),
            delay: Latency::ZERO,
            reserved: None,
            observed: MeanSince::beginning_at(now),
            sizes: (0, Bytes::ZERO),
        }
    }

    /// Returns its terms.
    #[must_use]
    pub const fn terms(&self) -> &ConsumerTerms {
        &self.terms
    }

    /// Returns the number of its requests that wait in the queue.
    #[must_use]
    pub const fn queued(&self) -> u32 {
        self.queued
    }

    /// Returns the number of its requests at the resource.
    #[must_use]
    pub const fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Returns the number of its requests at the resource whose slots in the window other consumers have.
    #[must_use]
    pub const fn lent(&self) -> u32 {
        self.lent
    }

    /// Returns true if it has nothing queued, and nothing at the resource.
    #[must_use]
    pub const fn is_idle(&self) -> bool {
        self.queued == 0 && self.in_flight == 0
    }

    /// Returns the delay of each of its requests, as the law commands it.
    #[must_use]
    pub const fn delay(&self) -> Latency {
        self.delay
    }

    /// Returns the number of its requests, queued or at the resource, and their integral over time.
    #[must_use]
    pub const fn outstanding(&self) -> &OutstandingIntegral {
        &self.outstanding
    }

    /// Returns the rate that goes before all shares, in I/Os of average size: its reservation, or what its
    /// contract comes to if that is more.
    #[must_use]
    pub fn reserved(&self) -> Option<Iops> {
        self.reserved.map(|(rate, _)| rate)
    }

    /// Returns its state under a law that commands rates, or that keeps its contract; `None` otherwise.
    #[must_use]
    pub fn rates(&self) -> Option<&RateAccount<S>> {
        self.rates.as_deref()
    }

    /// Returns the same, to begin its totals anew.
    pub fn rates_mut(&mut self) -> Option<&mut RateAccount<S>> {
        self.rates.as_deref_mut()
    }

    /// Records that a pulled request goes to the resource. `released` is the time that the queue gave with
    /// it. Returns the time from which on the request counts, for [`CompletedRequest::released`]. It is
    /// another one where a contract is kept without a bucket.
    #[inline]
    #[must_use = "a contract counts from this time"]
    pub fn dispatched(&mut self, kind: Option<OperationKind>, released: Instant, now: Instant) -> Instant {
        self.queued -= 1;
        self.in_flight += 1;
        if let Some(kind) = kind {
            self.interval[kind as usize].in_flight += 1;
        }
        self.rates.as_mut().map_or(released, |rates| rates.counts_from(released, now))
    }

    /// Counts a request that is about to go to the resource outside the window, as if it had come from the
    /// queue. [`dispatched`](Self::dispatched) follows.
    pub fn borrow_slot(&mut self, now: Instant) {
        self.queued += 1;
        self.lent += 1;
        self.outstanding.add(1, now);
    }

    /// Begins the next mean of outstanding requests now.
    pub fn skip_mean(&mut self, now: Instant) {
        let _ = self.observed.mean(self.outstanding.integral(now), now);
    }

    /// Reads the data that [`RegulatedQueue::completed`](crate::RegulatedQueue::completed) is about to need,
    /// and does nothing with it.
    #[inline]
    pub fn recall(&self) {
        black_box((self.outstanding, self.lent, self.interval[0].count, self.interval[1].count));
    }

    /// Counts a completed request, apart from its slot in the window.
    #[inline]
    pub(crate) fn completed(&mut self, request: &CompletedRequest, now: Instant) {
        self.in_flight -= 1;
        if let Some(kind) = request.kind {
            let operations = &mut self.interval[kind as usize];
            operations.in_flight -= 1;
            if request.is_sample {
                let latency = now.latency_since(request.dispatched);
                operations.count += 1;
                operations.bytes = Bytes::new(operations.bytes.get() + u64::from(request.bytes));
                operations.total_latency = operations.total_latency.saturating_add(latency);
                if let Some(rates) = &mut self.rates {
                    rates.completed(request, now);
                }
            }
        }
        self.has_one_less(now);
    }

    /// Records that one request less is outstanding.
    #[inline]
    pub(crate) fn has_one_less(&mut self, now: Instant) {
        self.outstanding.add(-1, now);
        if let Some(rates) = &mut self.rates
            && self.outstanding.value() == 0
        {
            rates.fell_idle(now);
        }
    }

    /// Forgets its requests: they were in another queue, which is no more.
    pub(crate) fn forget_requests(&mut self, now: Instant) {
        (self.queued, self.in_flight, self.lent) = (0, 0, 0);
        self.outstanding.clear(now);
        self.interval = [OperationTotals::default(); 2];
        self.delay = Latency::ZERO;
    }

    /// Returns the reservation on its terms under a law with this use of contracts, in I/Os of average size,
    /// and its burst: after a pause a contract's bucket is full.
    pub(crate) fn wanted_reservation(&self, contracts: ContractUse) -> Option<(Iops, u32)> {
        let terms = &self.terms;
        // A consumer that no law throttles goes before all reservations.
        let promised = contracts.reserved(terms.contract).filter(|_| !terms.is_exempt());
        let (requests, bytes) = self.sizes;
        let promised = promised.map(|rate| {
            let rate = Iops::new(CATCHES_UP * rate.per_second());
            CostModel::default().in_ios(rate, requests, bytes)
        });
        let burst = if promised.is_some() { terms.bucket } else { 1 };
        let greater = match (terms.reservation, promised) {
            (Some(reservation), Some(promised)) if promised > reservation => Some(promised),
            (reservation, promised) => reservation.or(promised),
        };
        greater.map(|rate| (rate, burst))
    }

    /// Returns the measurements since the last observation. `oldest` are the times when the oldest read and
    /// the oldest write at the resource were dispatched.
    pub(crate) fn observe(
        &mut self,
        oldest: [Option<Instant>; 2],
        status: Option<FlowStatus>,
        contracts: ContractUse,
        now: Instant,
    ) -> ConsumerObservation {
        let [reads, writes] = &mut self.interval;
        let (reads, writes) = (take(reads, oldest[0], now), take(writes, oldest[1], now));
        let requests = reads.count + writes.count;
        if requests > 0 {
            self.sizes = (requests, Bytes::new(reads.bytes.get() + writes.bytes.get()));
        }
        let (requests, bytes) = self.sizes;
        let in_requests = |rate| CostModel::default().in_requests(rate, requests, bytes);
        let mean = self.observed.mean(self.outstanding.integral(now), now);
        let terms = &self.terms;
        let mut observation = ConsumerObservation {
            reservation: self.wanted_reservation(contracts).map(|(rate, _)| in_requests(rate)),
            goal: contracts.goal(terms.goal, terms.contract),
            reads,
            writes,
            mean_outstanding: MeanOutstanding::new(mean.unwrap_or(self.outstanding.value() as f64)),
            queued: self.queued,
            ..ConsumerObservation::idle(terms.name.clone(), terms.shares, terms.protected)
        };
        if let Some(rates) = &mut self.rates {
            rates.observe(&mut observation, status.and_then(|status| status.bucket).unwrap_or_default());
        }
        observation
    }
}

/// Takes the counters of one kind, and begins them anew. Requests in flight stay.
fn take(operations: &mut OperationTotals, oldest: Option<Instant>, now: Instant) -> OperationTotals {
    let fresh = OperationTotals { in_flight: operations.in_flight, ..OperationTotals::default() };
    let taken = std::mem::replace(operations, fresh);
    OperationTotals { oldest_in_flight: oldest.map(|dispatched| now.latency_since(dispatched)), ..taken }
}
