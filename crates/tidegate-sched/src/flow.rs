//! A flow: one consumer's queue, and what it is entitled to.

use std::collections::VecDeque;
use std::time::Duration;

use tidegate_units::{Bytes, Instant, Iops, Latency, Shares};

use crate::cost::{COST_BITS, RequestCost};
use crate::leaky_bucket::{BucketOutlet, BucketStatus, LeakyBucket};
use crate::limit::{BeyondLimit, ConsumerLimit, LimitState};
use crate::reservation::{FlowReservation, ReservedService};

/// Binary digits by which a tag is finer than a cost. With the greatest cost (2³²) and the least weight a
/// request advances its flow by 2⁵⁸; with the least cost (2¹⁶) and the greatest weight (10⁶) by 4·10⁶, so
/// that rounding shifts shares by less than one part in a million.
const TAG_BITS: u32 = 26;

/// Names a flow of one scheduler. Never names a later flow: a slot that is used again gets a new generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowId {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

/// Bounds of a flow's queue. A request beyond either bound is refused, except that an empty queue takes any
/// request: else one larger than the bound could never go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowCapacity {
    /// The greatest number of requests.
    pub requests: u32,
    /// The greatest sum of their sizes.
    pub bytes: Bytes,
}

impl Default for FlowCapacity {
    /// 1 024 requests, 64 MiB: several times what a block client keeps outstanding.
    fn default() -> Self {
        Self { requests: 1_024, bytes: Bytes::from_mib(64) }
    }
}

/// Configuration of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct FlowConfig {
    /// φ, relative to the other flows.
    pub weight: Shares,
    /// Outside of the window and ahead of every flow in it: for a protected consumer.
    pub exempt: bool,
    /// A rate that goes before all shares, in I/Os of average size ([`RequestCost`]); zero is none. It
    /// has no effect while the flow is exempt: then all of it goes before.
    pub reservation: Option<Iops>,
    /// Leaky bucket that requests pass before they wait for their turn.
    pub bucket: Option<LeakyBucket>,
    /// A ceiling.
    pub limit: Option<ConsumerLimit>,
    /// Delay of each request after its arrival.
    pub delay: Latency,
    /// Bounds of the queue.
    pub capacity: FlowCapacity,
}

/// Place in the storage that a request reads or writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StorageExtent {
    /// First byte.
    pub offset: u64,
    /// Size in bytes; zero for a flush. 32 bits, as in the block protocols, so that sums never overflow.
    pub bytes: u32,
}

impl StorageExtent {
    /// The first byte after it.
    pub(crate) fn end(self) -> u64 {
        self.offset.saturating_add(u64::from(self.bytes))
    }
}

/// A flow as it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowStatus {
    /// Requests queued.
    pub queued: usize,
    /// Sum of their sizes.
    pub queued_bytes: Bytes,
    /// For how long the oldest of them has been queued.
    pub oldest: Option<Duration>,
    /// True if its limit delays the oldest of them.
    pub is_limited: bool,
    /// Requests dispatched and not complete.
    pub outstanding: u32,
    /// Service under its reservation, if it has one.
    pub reserved: Option<ReservedService>,
    /// Status of its leaky bucket, if it has one.
    pub bucket: Option<BucketStatus>,
}

/// The orders in which requests go, the first one first. A flow belongs to one of the first two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LaneName {
    Exempt,
    Windowed,
    /// Beyond soft limits, under the window: exemption ends at the limit.
    Surplus,
}

impl LaneName {
    pub(crate) fn of(exempt: bool) -> Self {
        if exempt { Self::Exempt } else { Self::Windowed }
    }
}

/// Standing of the request at the head of a flow, as far as delay, bucket and limit are concerned.
pub(crate) enum HeadStanding {
    /// There is none.
    Empty,
    /// It may go.
    Ready,
    /// It may go as surplus, and from this time on as any other.
    Beyond(Instant),
    /// Not before this time; [`Instant::MAX`]: not until one of them changes.
    Held(Instant),
}

#[derive(Debug)]
pub(crate) struct QueuedRequest<T> {
    pub(crate) request: T,
    pub(crate) extent: StorageExtent,
    pub(crate) arrived: Instant,
}

/// See the module. Times are the scheduler's own.
#[derive(Debug)]
pub(crate) struct Flow<T> {
    pub(crate) generation: u32,
    pub(crate) lane: LaneName,
    /// Removed, and waiting for its last completion.
    pub(crate) draining: bool,
    pub(crate) capacity: FlowCapacity,
    /// Virtual time per I/O: the inverse of the weight.
    slope: u64,
    /// Start tag of the request at the head; has a meaning only while the flow is ready.
    pub(crate) start: u128,
    /// Finish tag of the request dispatched last.
    pub(crate) finish: u128,
    pub(crate) delay: Latency,
    pub(crate) terms: Option<Box<FlowTerms>>,
    pub(crate) queue: VecDeque<QueuedRequest<T>>,
    pub(crate) queued_bytes: u64,
    /// Outside of the window and under it, because a flow may change while requests are outstanding.
    pub(crate) outstanding: [u32; 2],
}

/// Terms of a flow beyond its weight. Few flows have any; the others stay within two cache lines.
#[derive(Debug, Default)]
pub(crate) struct FlowTerms {
    pub(crate) reservation: Option<FlowReservation>,
    /// Elsewhere, so that it does not come between the others in memory where there is none.
    bucket: Option<Box<BucketOutlet>>,
    pub(crate) limiter: Option<LimitState>,
    /// The time until which the limit delays, or delayed, the request at the head.
    limited_until: Instant,
    /// True if requests beyond the limit may go as surplus.
    soft: bool,
    /// Finish tag of the surplus request dispatched last.
    pub(crate) surplus_finish: u128,
}

impl FlowTerms {
    fn new(config: &FlowConfig, generation: u32, now: Instant) -> Option<Self> {
        let mut terms =
            Self { reservation: config.reservation.and_then(FlowReservation::new), ..Self::default() };
        terms.bucket = config.bucket.map(|bucket| Box::new(BucketOutlet::new(bucket, generation, now)));
        terms.set_limit(config.limit, now);
        (terms.reservation.is_some() || terms.bucket.is_some() || terms.limiter.is_some()).then_some(terms)
    }

    pub(crate) fn set_limit(&mut self, limit: Option<ConsumerLimit>, now: Instant) {
        self.soft = limit.is_some_and(|limit| limit.beyond == BeyondLimit::Surplus);
        match (&mut self.limiter, limit) {
            (Some(limiter), Some(limit)) => limiter.set(limit, now),
            (None, Some(limit)) => self.limiter = Some(LimitState::new(limit, now)),
            (_, None) => self.limiter = None,
        }
        // Requests that the old limit delayed until later go now, unless the new one delays them again.
        self.limited_until = self.limited_until.min(now);
    }
}

impl<T> Flow<T> {
    /// A flow that begins at virtual time `virtual_time`: it has neither credit nor debt.
    pub(crate) fn new(config: &FlowConfig, generation: u32, virtual_time: u128, now: Instant) -> Self {
        Self {
            generation,
            lane: LaneName::of(config.exempt),
            draining: false,
            capacity: config.capacity,
            slope: slope(config.weight),
            start: virtual_time,
            finish: virtual_time,
            delay: config.delay,
            terms: FlowTerms::new(config, generation, now).map(Box::new),
            queue: VecDeque::new(),
            queued_bytes: 0,
            outstanding: [0; 2],
        }
    }

    pub(crate) fn set_weight(&mut self, weight: Shares) {
        self.slope = slope(weight);
    }

    /// Its reservation, bucket and limit, to be changed.
    pub(crate) fn terms_mut(&mut self) -> &mut FlowTerms {
        self.terms.get_or_insert_default()
    }

    pub(crate) fn reservation_mut(&mut self) -> Option<&mut FlowReservation> {
        self.terms.as_mut()?.reservation.as_mut()
    }

    /// c/φ: how far this cost advances the flow.
    pub(crate) fn advance(&self, cost: RequestCost) -> u128 {
        (u128::from(self.slope) * u128::from(cost.raw())) >> COST_BITS
    }

    #[inline]
    pub(crate) fn standing(&mut self, now: Instant) -> HeadStanding {
        if self.queue.is_empty() {
            return HeadStanding::Empty;
        }
        if self.terms.as_ref().is_some_and(|terms| terms.limiter.is_some() || terms.bucket.is_some()) {
            return self.standing_by_terms(now);
        }
        if self.delay == Latency::ZERO {
            // Whatever it is: it need not be fetched from memory before its turn.
            return HeadStanding::Ready;
        }
        HeadStanding::until(self.queue[0].arrived + self.delay, now)
    }

    /// The same for a flow with a bucket or a limit.
    fn standing_by_terms(&mut self, now: Instant) -> HeadStanding {
        let (Some(head), Some(terms)) = (self.queue.front(), self.terms.as_deref_mut()) else {
            return HeadStanding::Empty;
        };
        let released = match &mut terms.bucket {
            Some(bucket) => bucket.first_release(now, entered(&self.queue, self.delay)),
            None => head.arrived + self.delay,
        };
        let Some(limiter) = &mut terms.limiter else { return HeadStanding::until(released, now) };
        let permitted = limiter.ready_at(head.extent.bytes, now).unwrap_or(Instant::MAX);
        if permitted > now && terms.soft {
            // A request delayed by its delay or bucket may go as surplus after that, whenever the limit
            // permits it.
            return if released > now {
                HeadStanding::Held(released)
            } else {
                HeadStanding::Beyond(permitted)
            };
        }
        terms.limited_until = if permitted > now { permitted } else { terms.limited_until.min(now) };
        HeadStanding::until(released.max(permitted), now)
    }

    /// Takes the request at the head, which goes now, and says since when it could have gone as far as delay,
    /// bucket and limit are concerned.
    #[inline]
    pub(crate) fn take_head(&mut self, now: Instant) -> Option<(QueuedRequest<T>, Instant)> {
        let by_terms = if self.terms.is_some() { self.leave_terms(now) } else { None };
        let head = self.queue.pop_front()?;
        let released = by_terms.unwrap_or(head.arrived + self.delay);
        Some((head, released))
    }

    /// The request at the head leaves bucket and limit. Returns since when it could have gone as far as they
    /// are concerned, unless neither delayed it.
    fn leave_terms(&mut self, now: Instant) -> Option<Instant> {
        let terms = self.terms.as_deref_mut()?;
        let limited = std::mem::take(&mut terms.limited_until);
        if terms.bucket.is_none() && limited == Instant::ZERO {
            return None;
        }
        let released = match &mut terms.bucket {
            None => self.queue.front()?.arrived + self.delay,
            Some(bucket) => {
                bucket.settle(now, entered(&self.queue, self.delay));
                bucket.dispatched()?
            }
        };
        Some(released.max(limited))
    }

    /// Returns true if its limit delays the request at the head now.
    pub(crate) fn is_limited(&self, now: Instant) -> bool {
        let limited = |terms: &FlowTerms| terms.limiter.is_some() && terms.limited_until > now;
        !self.queue.is_empty() && self.terms.as_deref().is_some_and(limited)
    }

    /// Brings the bucket up to date, before a request goes or the delay changes.
    pub(crate) fn settle_bucket(&mut self, now: Instant) {
        if let Some(bucket) = self.terms.as_mut().and_then(|terms| terms.bucket.as_mut()) {
            bucket.settle(now, entered(&self.queue, self.delay));
        }
    }

    pub(crate) fn set_bucket(&mut self, bucket: Option<LeakyBucket>, now: Instant) {
        let terms = self.terms.get_or_insert_default();
        match (&mut terms.bucket, bucket) {
            (Some(outlet), Some(bucket)) => outlet.set(bucket, now, entered(&self.queue, self.delay)),
            (outlet, bucket) => {
                *outlet = bucket.map(|bucket| Box::new(BucketOutlet::new(bucket, self.generation, now)));
            }
        }
    }

    /// Takes out the requests that are gone, after [`settle_bucket`](Self::settle_bucket). Says what they
    /// are, and the sum of their sizes.
    pub(crate) fn cancel(&mut self, mut gone: impl FnMut(&T) -> bool) -> (Vec<T>, u64) {
        let (mut requests, mut bytes) = (Vec::new(), 0);
        let mut terms = self.terms.as_deref_mut();
        if let Some(terms) =
            terms.as_deref_mut().filter(|_| self.queue.front().is_some_and(|head| gone(&head.request)))
        {
            terms.limited_until = Instant::ZERO;
        }
        for queued in std::mem::take(&mut self.queue) {
            if gone(&queued.request) {
                if let Some(bucket) = terms.as_deref_mut().and_then(|terms| terms.bucket.as_mut()) {
                    // Those before it that are gone are not counted any more.
                    bucket.cancelled(self.queue.len());
                }
                bytes += u64::from(queued.extent.bytes);
                requests.push(queued.request);
            } else {
                self.queue.push_back(queued);
            }
        }
        self.queued_bytes -= bytes;
        (requests, bytes)
    }

    pub(crate) fn bucket_status(&self, now: Instant) -> Option<BucketStatus> {
        let bucket = self.terms.as_ref()?.bucket.as_ref()?;
        Some(bucket.status(now, entered(&self.queue, self.delay)))
    }

    pub(crate) fn has_room_for(&self, bytes: u32) -> Result<(), FullBound> {
        if self.queue.is_empty() {
            Ok(())
        } else if self.queue.len() >= self.capacity.requests as usize {
            Err(FullBound::Requests)
        } else if self.queued_bytes + u64::from(bytes) > self.capacity.bytes.get() {
            Err(FullBound::Bytes)
        } else {
            Ok(())
        }
    }
}

impl HeadStanding {
    fn until(eligible: Instant, now: Instant) -> Self {
        if eligible <= now { Self::Ready } else { Self::Held(eligible) }
    }
}

/// Returns the time at which each request in a queue came or will come to the bucket: its delay is then over.
fn entered<T>(
    queue: &VecDeque<QueuedRequest<T>>,
    delay: Latency,
) -> impl Fn(usize) -> Option<Instant> + Copy {
    move |index| queue.get(index).map(|queued| queued.arrived + delay)
}

/// Bound that a request would have gone beyond.
pub(crate) enum FullBound {
    Requests,
    Bytes,
}

fn slope(weight: Shares) -> u64 {
    (1 << (COST_BITS + TAG_BITS)) / u64::from(weight.get())
}
