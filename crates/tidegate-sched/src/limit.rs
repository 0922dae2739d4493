//! A consumer's ceiling, in I/Os and in bytes per second.

use std::time::Duration;

use tidegate_units::{ByteRate, Instant, Iops};

use crate::bucket::{TokenBucket, TokenRate};

/// A consumer's ceiling. A request needs a token of the I/O bucket and its size from the byte bucket; the two
/// are separate ceilings and never added up.
///
/// With a burst of one I/O the I/O bucket is mClock's limit tag, `L = max(L of the one before + 1/l, now)`: a
/// request may go when its tag has come. Only that here a limit holds for what goes by reservation, too.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ConsumerLimit {
    /// The greatest number of I/Os per second; `None`: any number. Zero stops the flow.
    pub iops: Option<Iops>,
    /// The greatest number of bytes per second; `None`: any number. Zero stops the flow.
    pub bytes_per_s: Option<ByteRate>,
    /// σ as a time: after being idle, this long's worth of the rate may go at once, but at least one I/O. A
    /// single request that is larger goes too, and is paid for afterwards.
    pub burst: Duration,
    /// Treatment of requests beyond the ceiling.
    pub beyond: BeyondLimit,
}

/// Treatment of requests beyond a [`ConsumerLimit`] (dmclock: `AtLimit`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BeyondLimit {
    /// They wait until the limit allows them, even while the storage is idle: a hard limit.
    #[default]
    Wait,
    /// They wait only while anyone within its limit has requests to dispatch: a soft limit. What goes in this
    /// way is shared among those beyond their limits by weight, and is charged to no limit: else a flow that
    /// had the storage to itself for an hour would be shut out for hours when others come.
    Surplus,
}

/// The state of a [`ConsumerLimit`].
#[derive(Debug)]
pub(crate) struct LimitState {
    requests: Option<TokenBucket>,
    bytes: Option<TokenBucket>,
}

impl LimitState {
    pub(crate) fn new(limit: ConsumerLimit, now: Instant) -> Self {
        let mut limiter = Self { requests: None, bytes: None };
        limiter.set(limit, now);
        limiter
    }

    /// A dimension that was limited before keeps its tokens and its debts; a new one starts full.
    pub(crate) fn set(&mut self, limit: ConsumerLimit, now: Instant) {
        let seconds = limit.burst.as_secs_f64();
        let iops = limit.iops.map(|rate| (rate.into(), (rate.per_second() * seconds).ceil() as u64));
        let bytes = limit.bytes_per_s.map(|rate| (rate.into(), (rate.per_second() * seconds).ceil() as u64));
        set_bucket(&mut self.requests, iops, now);
        set_bucket(&mut self.bytes, bytes, now);
    }

    /// Returns the time at which a request of this size may go; `None`: never under this limit.
    pub(crate) fn ready_at(&mut self, bytes: u32, now: Instant) -> Option<Instant> {
        let requests = self.requests.as_mut().map_or(Some(now), |bucket| bucket.ready_at(1, now))?;
        let bytes = self.bytes.as_mut().map_or(Some(now), |bucket| bucket.ready_at(bytes.into(), now))?;
        Some(requests.max(bytes))
    }

    pub(crate) fn take(&mut self, bytes: u32, now: Instant) {
        if let Some(bucket) = &mut self.requests {
            bucket.take(1, now);
        }
        if let Some(bucket) = &mut self.bytes {
            bucket.take(bytes.into(), now);
        }
    }
}

fn set_bucket(bucket: &mut Option<TokenBucket>, wanted: Option<(TokenRate, u64)>, now: Instant) {
    match (bucket.as_mut(), wanted) {
        (Some(bucket), Some((rate, burst))) => bucket.set(rate, burst, now),
        (None, Some((rate, burst))) => *bucket = Some(TokenBucket::new(rate, burst, now)),
        (_, None) => *bucket = None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds_for(limit: ConsumerLimit, requests: u32, bytes: u32) -> f64 {
        let mut limiter = LimitState::new(limit, Instant::ZERO);
        let mut now = Instant::ZERO;
        for _ in 0..requests {
            now = limiter.ready_at(bytes, now).unwrap();
            limiter.take(bytes, now);
        }
        now.as_secs_f64()
    }

    /// The trap: a sum of both costs would take 20 s.
    #[test]
    fn the_larger_dimension_decides_alone() {
        let limit = ConsumerLimit {
            iops: Some(Iops::new(100.0)),
            bytes_per_s: Some(ByteRate::new(6_553_600.0)),
            burst: Duration::ZERO,
            beyond: BeyondLimit::Wait,
        };
        let seconds = seconds_for(limit, 1_001, 65_536);
        assert!((seconds - 10.0).abs() < 0.05, "{seconds}");
        let small = seconds_for(limit, 1_001, 4_096);
        assert!((small - 10.0).abs() < 0.05, "{small}");
        let large = seconds_for(limit, 101, 655_360);
        assert!((large - 10.0).abs() < 0.2, "{large}");
    }

    #[test]
    fn a_dimension_switched_off_no_longer_holds() {
        let limit = ConsumerLimit {
            iops: Some(Iops::ZERO),
            bytes_per_s: Some(ByteRate::new(1e6)),
            burst: Duration::ZERO,
            beyond: BeyondLimit::Wait,
        };
        let mut limiter = LimitState::new(limit, Instant::ZERO);
        limiter.take(1, Instant::ZERO);
        assert_eq!(limiter.ready_at(1, Instant::ZERO), None);
        limiter.set(ConsumerLimit { iops: None, ..limit }, Instant::ZERO);
        assert!(limiter.ready_at(1, Instant::ZERO).is_some());
    }
}
