//! A leaky bucket ahead of the fair queue: it decides when a request may begin to wait for its turn.

use std::collections::VecDeque;
use std::time::Duration;

use rand::RngExt;
use rand_pcg::Pcg32;
use tidegate_units::{Instant, Iops, Latency};

use crate::bucket::TokenBucket;

/// The leaky bucket of a flow, ahead of the fair queue (H. D. Lee, Y. J. Nam, K. J. Jung, S. G. Jung, C.
/// Park, *Regulating I/O Performance of Shared Storage with a Control Theoretical Approach*, MSST 2004, §3.1
/// and table 1).
///
/// A request that gets a token is *released*: from then on it is one of those among whom the scheduler
/// chooses, and it has had its token whatever the scheduler does. A [`ConsumerLimit`](crate::ConsumerLimit)
/// in contrast takes its token when a request is dispatched, so that tokens pile up while the flow waits for
/// its turn. Every request takes one token, whatever its size.
///
/// Over any stretch of time t at most `σ + ρ·(t + 2·tick)` requests are released. The ticks are part of the
/// bound: what came with the last may lie beside the σ that have piled up, and a stretch that begins just
/// before one and ends with it has another. With changing rates ρ·(t + tick) is what comes in during the
/// ticks that the stretch touches. With [`dither`](Self::dither) it is one request more.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LeakyBucket {
    /// ρ: tokens per second. Zero releases nothing once the bucket is empty.
    pub rate: Iops,
    /// σ: how many tokens pile up while nothing asks for them. Zero counts as one. What comes with a tick
    /// fits beside them, or no rate beyond σ per tick would be reached. The bucket is full at first.
    pub size: u32,
    /// 1/γ: tokens appear at whole multiples of this time and at no other, as many at once as the rate gives
    /// for the time since the last; zero: as they come. The multiples are counted from the first time that
    /// the scheduler was told.
    pub tick: Duration,
    /// Greatest number of released requests of the flow that may wait undispatched. While so many do, none is
    /// released, and tokens pile up, to σ at most. Zero counts as one. `None`: any number, as published.
    ///
    /// A request released into a queue that has no room has begun to be late. When other consumers come back
    /// after a pause, the queue that has grown meanwhile makes response times leap (the paper's case 3).
    pub ahead: Option<u32>,
    /// Each release that waited for its token comes later than the token, by a random time of up to half of
    /// 1/ρ. Not in the paper.
    ///
    /// Without it, buckets whose rates have a simple ratio release at the same distance from each other for
    /// as long as the rates last. The consumer that waits for the other each time is then decided by the
    /// milliseconds by which one began before the other. At a rate of more than one request in two ticks
    /// there is no dither.
    pub dither: bool,
}

/// Greatest part of 1/ρ by which a release comes after its token. With a half, two consumers whose rates are
/// equal or 2:1 meet at any distance, and no two requests of a consumer are closer than half of 1/ρ. A whole
/// one bunches a consumer's own requests. Chosen on seeds from 1,000,001 on.
const DITHER: f64 = 0.5;

/// Settings for the release of requests by the [buckets](LeakyBucket) of a scheduler, those of all flows
/// alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BucketRelease {
    /// Tokens come at whole multiples of this; zero: at any time.
    pub tick: Duration,
    /// Greatest number of a flow's requests that may be released and wait for their turn; `None`: any number.
    pub ahead: Option<u32>,
}

impl BucketRelease {
    /// The usual σ. Requests released at once wait for each other: with as few as two, a consumer that comes
    /// back from a pause is hardly late by that.
    pub const USUAL_SIZE: u32 = 2;

    /// A bucket of a flow, without dither.
    #[must_use]
    pub const fn bucket(self, rate: Iops, size: u32) -> LeakyBucket {
        LeakyBucket { rate, size, tick: self.tick, ahead: self.ahead, dither: false }
    }
}

impl Default for BucketRelease {
    /// Every millisecond (Lee §4.1), and two ahead.
    fn default() -> Self {
        Self { tick: Duration::from_millis(1), ahead: Some(2) }
    }
}

/// Status of a flow at its [`LeakyBucket`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BucketStatus {
    /// Requests released that wait to be dispatched.
    pub released: usize,
    /// For how long the first of them has waited; `None` where there is none.
    pub waited: Option<Duration>,
    /// Requests that wait in the bucket: their delay is over, and they are not released.
    pub held: usize,
    /// Time so far for which the first request in front of the bucket waited for want of a token, while there
    /// was room behind it. Two readings tell the time between them in which the rate was what constrained the
    /// flow.
    pub short: Duration,
}

/// The state of a [`LeakyBucket`]. Times are the scheduler's own: they never go back.
///
/// Nothing happens here by itself. Each question brings it up to date first, which finds the releases at the
/// times at which they took place.
#[derive(Debug, Clone)]
pub(crate) struct BucketOutlet {
    tokens: TokenBucket,
    tick: u64,
    ahead: usize,
    /// Greatest time of a release after its token.
    dither: Latency,
    /// The next release has this part of it.
    part: f64,
    random: Pcg32,
    /// The token of the first request in front of the bucket, once it has been taken.
    granted: Option<Grant>,
    /// Up to when the tokens have been counted; never more than the last tick.
    counted: Instant,
    /// No release that is yet to be found took place before this time.
    since: Instant,
    short: Duration,
    /// Release times of the requests that wait behind the bucket, the first one first.
    released: VecDeque<Instant>,
}

impl BucketOutlet {
    /// An outlet that is full of tokens. Outlets with different numbers in `flow` are dithered differently.
    pub(crate) fn new(bucket: LeakyBucket, flow: u32, now: Instant) -> Self {
        let mut random = Pcg32::new(0, flow.into());
        let mut outlet = Self {
            tokens: TokenBucket::new(bucket.rate.into(), bucket.size.into(), now),
            tick: 0,
            ahead: 0,
            dither: Latency::ZERO,
            part: random.random(),
            random,
            granted: None,
            counted: now,
            since: now,
            short: Duration::ZERO,
            released: VecDeque::new(),
        };
        outlet.set_terms(bucket, now);
        outlet
    }

    /// Another rate, size, tick or bound from now on. Tokens and what is released stay.
    pub(crate) fn set(
        &mut self,
        bucket: LeakyBucket,
        now: Instant,
        entered: impl Fn(usize) -> Option<Instant>,
    ) {
        self.settle(now, entered);
        self.counted = self.last_tick(now);
        self.set_terms(bucket, self.counted);
    }

    fn set_terms(&mut self, bucket: LeakyBucket, from: Instant) {
        self.tick = u64::try_from(bucket.tick.as_nanos()).unwrap_or(u64::MAX);
        self.tokens.set_in_ticks(bucket.rate.into(), bucket.size.into(), self.tick, from);
        self.ahead = bucket.ahead.map_or(usize::MAX, |ahead| ahead.max(1) as usize);
        let most = if bucket.dither { DITHER / bucket.rate.per_second() } else { 0.0 };
        self.dither = Latency::from_secs_f64(most);
    }

    /// Returns the time at which the first request in the queue was or will be released, if nothing changes;
    /// [`Instant::MAX`]: never. `entered` says when each request in the queue came or will come to the
    /// bucket.
    pub(crate) fn first_release(
        &mut self,
        now: Instant,
        entered: impl Fn(usize) -> Option<Instant>,
    ) -> Instant {
        let next = self.advance(now, entered);
        let first = self.released.front().copied();
        first.or(next.map(|next| next.at)).unwrap_or(Instant::MAX)
    }

    /// Brings everything up to date before something changes.
    pub(crate) fn settle(&mut self, now: Instant, entered: impl Fn(usize) -> Option<Instant>) {
        if let Some(next) = self.advance(now, entered) {
            self.short += now.saturating_since(next.from);
        }
        self.since = now;
    }

    /// The first request that was released is dispatched, after [`settle`](Self::settle). Says when it was
    /// released.
    pub(crate) fn dispatched(&mut self) -> Option<Instant> {
        self.released.pop_front()
    }

    /// The request at this place in the queue is gone, after [`settle`](Self::settle). Where it was released
    /// it makes room.
    pub(crate) fn cancelled(&mut self, index: usize) {
        if index < self.released.len() {
            self.released.remove(index);
        }
    }

    pub(crate) fn status(&self, now: Instant, entered: impl Fn(usize) -> Option<Instant>) -> BucketStatus {
        let mut then = self.clone();
        then.settle(now, &entered);
        let released = then.released.len();
        let held = (released..).map_while(entered).take_while(|&entered| entered <= now).count();
        let waited = then.released.front().map(|&released| now.saturating_since(released));
        BucketStatus { released, waited, held, short: then.short }
    }

    /// Finds the releases up to now, and then what the next one waits for; `None`: for no token.
    fn advance(&mut self, now: Instant, entered: impl Fn(usize) -> Option<Instant>) -> Option<Next> {
        while self.released.len() < self.ahead {
            let from = entered(self.released.len())?.max(self.since);
            let grant = self.granted.unwrap_or_else(|| self.next_grant(from));
            if self.granted.is_none() && grant.token <= now {
                self.counted = self.last_tick(grant.token);
                self.tokens.take(1, self.counted);
                self.granted = Some(grant);
            }
            let at = if grant.waited { self.dithered(grant.token) } else { grant.token }.max(from);
            if at > now {
                return Some(Next { from, at });
            }
            self.granted = None;
            self.part = self.random.random();
            self.since = at;
            self.short += at.saturating_since(from);
            self.released.push_back(at);
        }
        None
    }

    /// The token of the first request in front of the bucket, which may have it from `from` on.
    fn next_grant(&self, from: Instant) -> Grant {
        let counted = self.last_tick(from);
        // A copy, because this time may not have come yet, and the bucket must not be filled before.
        match self.tokens.clone().ready_at(1, counted) {
            Some(ready) if ready <= counted => Grant { token: from, waited: false },
            Some(ready) => Grant { token: self.next_tick(ready), waited: true },
            None => Grant { token: Instant::MAX, waited: true },
        }
    }

    /// The release by a token that was waited for: whole ticks later, as all releases are.
    fn dithered(&self, token: Instant) -> Instant {
        let delay = self.dither.scale(self.part).as_nanos();
        let past = delay.checked_rem(self.tick).unwrap_or(0);
        token + Latency::from_nanos(delay - past)
    }

    /// The tick that was the last at this time, but never one before those counted: the tick may have
    /// changed.
    fn last_tick(&self, time: Instant) -> Instant {
        let past = time.as_nanos().checked_rem(self.tick).unwrap_or(0);
        Instant::from_nanos(time.as_nanos() - past).max(self.counted)
    }

    fn next_tick(&self, time: Instant) -> Instant {
        if self.tick == 0 {
            return time;
        }
        time.as_nanos().checked_next_multiple_of(self.tick).map_or(Instant::MAX, Instant::from_nanos)
    }
}

/// A token for the first request in front of the bucket.
#[derive(Debug, Clone, Copy)]
struct Grant {
    token: Instant,
    /// The request was there before the token.
    waited: bool,
}

/// The release of the first request in front of the bucket.
#[derive(Debug, Clone, Copy)]
struct Next {
    /// Since when nothing but a token may be missing.
    from: Instant,
    at: Instant,
}
