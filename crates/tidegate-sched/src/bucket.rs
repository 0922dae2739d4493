//! A token bucket in integers: never more than σ + ρ·t in any stretch of time t.

use tidegate_units::{ByteRate, Instant, Iops};

/// Attotokens in a token: nanoseconds times nanotokens per second, so that no remainder is ever lost.
const ATTO: i128 = 1_000_000_000_000_000_000;
const NANO: f64 = 1e9;

/// The greatest rate and the greatest burst, in tokens: a terabyte (per second). Sums of attotokens then stay
/// far from the limits of `i128`.
const GREATEST: u64 = 1_000_000_000_000;

/// Tokens per second, as an integer of nanotokens per second. At most 10¹² tokens per second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct TokenRate(i128);

impl TokenRate {
    fn from_f64(per_second: f64) -> Self {
        // Both units guarantee a finite number that is not negative.
        Self((per_second.min(GREATEST as f64) * NANO).round() as i128)
    }
}

impl From<Iops> for TokenRate {
    fn from(rate: Iops) -> Self {
        Self::from_f64(rate.per_second())
    }
}

impl From<ByteRate> for TokenRate {
    fn from(rate: ByteRate) -> Self {
        Self::from_f64(rate.per_second())
    }
}

/// A bucket that fills at a rate ρ up to a burst σ, and from which every request takes its tokens.
///
/// A request that needs more than σ at once may go when the bucket is full, and leaves a debt that must be
/// refilled before any other goes. In any stretch of time t the tokens taken are thus at most max(σ, largest
/// need) + ρ·t.
///
/// Use: [`TokenBucket::ready_at`] says when; [`TokenBucket::take`] at or after that time.
#[derive(Debug, Clone)]
pub struct TokenBucket {
    rate: TokenRate,
    capacity: i128,
    level: i128,
    filled_at: Instant,
}

impl TokenBucket {
    /// A full bucket. A burst of less than one token counts as one, more than 10¹² as 10¹².
    #[must_use]
    pub fn new(rate: TokenRate, burst: u64, now: Instant) -> Self {
        let capacity = capacity(burst);
        Self { rate, capacity, level: capacity, filled_at: now }
    }

    /// Changes rate and burst from `now` on. What the bucket holds stays, up to the new burst.
    pub fn set(&mut self, rate: TokenRate, burst: u64, now: Instant) {
        self.set_in_ticks(rate, burst, 0, now);
    }

    /// The same for who fills it in ticks of so many nanoseconds: what comes with one fits beside the burst.
    pub(crate) fn set_in_ticks(&mut self, rate: TokenRate, burst: u64, tick: u64, now: Instant) {
        self.fill(now);
        self.rate = rate;
        self.capacity = capacity(burst).saturating_add(rate.0.saturating_mul(i128::from(tick)));
        self.level = self.level.min(self.capacity);
    }

    /// The earliest time at which a request for so many tokens may go: `now`, or the very nanosecond at which
    /// the tokens will be there, or `None` when this rate will never bring them.
    pub fn ready_at(&mut self, tokens: u64, now: Instant) -> Option<Instant> {
        self.fill(now);
        let missing = need(tokens).min(self.capacity) - self.level;
        if missing <= 0 {
            return Some(now);
        }
        if self.rate.0 == 0 {
            return None;
        }
        let nanos = (missing - 1) / self.rate.0 + 1;
        now.as_nanos().checked_add(u64::try_from(nanos).ok()?).map(Instant::from_nanos)
    }

    /// Takes the tokens of a request that goes now.
    pub fn take(&mut self, tokens: u64, now: Instant) {
        self.fill(now);
        self.level -= need(tokens);
    }

    /// A clock that jumps back adds nothing, and filling continues from there.
    fn fill(&mut self, now: Instant) {
        let elapsed = now.as_nanos().saturating_sub(self.filled_at.as_nanos());
        self.filled_at = now;
        let gained = self.rate.0.saturating_mul(i128::from(elapsed));
        self.level = self.level.saturating_add(gained).min(self.capacity);
    }
}

fn capacity(burst: u64) -> i128 {
    i128::from(burst.clamp(1, GREATEST)) * ATTO
}

fn need(tokens: u64) -> i128 {
    i128::from(tokens.min(GREATEST)) * ATTO
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    #[test]
    fn says_the_very_nanosecond() {
        let mut bucket = TokenBucket::new(Iops::new(3.0).into(), 1, at(0));
        bucket.take(1, at(0));
        let ready = bucket.ready_at(1, at(0)).unwrap();
        assert_eq!(ready, at(333_333_334));
        assert!(bucket.ready_at(1, at(333_333_333)).unwrap() > at(333_333_333));
        assert_eq!(bucket.ready_at(1, at(333_333_334)), Some(at(333_333_334)));
    }

    #[test]
    fn a_long_idle_time_earns_one_burst_and_no_more() {
        let mut bucket = TokenBucket::new(Iops::new(100.0).into(), 10, at(0));
        bucket.take(10, at(0));
        let late = at(u64::MAX / 2);
        assert_eq!(bucket.ready_at(10, late), Some(late));
        bucket.take(10, late);
        assert!(bucket.ready_at(1, late).unwrap() > late);
    }

    #[test]
    fn a_request_larger_than_the_burst_goes_and_leaves_a_debt() {
        let mut bucket = TokenBucket::new(ByteRate::new(1_000.0).into(), 100, at(0));
        assert_eq!(bucket.ready_at(1_100, at(0)), Some(at(0)));
        bucket.take(1_100, at(0));
        assert_eq!(bucket.ready_at(50, at(0)), Some(at(SECOND + SECOND / 20)));
    }

    #[test]
    fn a_rate_of_nothing_never_brings_a_token() {
        let mut bucket = TokenBucket::new(Iops::ZERO.into(), 1, at(0));
        bucket.take(1, at(0));
        assert_eq!(bucket.ready_at(1, at(u64::MAX)), None);
    }

    #[test]
    fn a_change_of_rate_holds_from_then_on() {
        let mut bucket = TokenBucket::new(Iops::new(1.0).into(), 1, at(0));
        bucket.take(1, at(0));
        bucket.set(Iops::new(10.0).into(), 1, at(SECOND / 2));
        assert_eq!(bucket.ready_at(1, at(SECOND / 2)), Some(at(SECOND / 2 + SECOND / 20)));
        bucket.set(Iops::new(10.0).into(), 100, at(SECOND));
        assert!(bucket.ready_at(2, at(SECOND)).unwrap() > at(SECOND), "a larger bucket is not a fuller one");
    }

    #[test]
    fn a_clock_that_jumps_back_earns_nothing() {
        let mut bucket = TokenBucket::new(Iops::new(1.0).into(), 1, at(0));
        bucket.take(1, at(10 * SECOND));
        assert_eq!(bucket.ready_at(1, at(SECOND)), Some(at(2 * SECOND)));
    }

    proptest! {
        /// The definition of a leaky bucket, checked over every stretch between two grants.
        #[test]
        fn never_more_than_burst_plus_rate_times_time(
            rate in 0.01f64..1e6,
            burst in 1u64..1_000,
            requests in prop::collection::vec((0u64..3, 0u64..2_000_000_000), 1..60),
        ) {
            let mut bucket = TokenBucket::new(Iops::new(rate).into(), burst, at(0));
            let mut now = at(0);
            let mut grants: Vec<(u64, u64)> = Vec::new();
            for (size, pause) in requests {
                let tokens = [1, burst, burst / 2 + 1][size as usize].min(burst);
                now = at(now.as_nanos() + pause);
                now = bucket.ready_at(tokens, now).unwrap();
                prop_assert_eq!(bucket.ready_at(tokens, now), Some(now));
                bucket.take(tokens, now);
                grants.push((now.as_nanos(), tokens));
            }
            for from in 0..grants.len() {
                let mut taken = 0.0;
                for &(time, tokens) in &grants[from..] {
                    taken += tokens as f64;
                    let seconds = (time - grants[from].0) as f64 / 1e9;
                    let allowed = burst as f64 + rate * seconds;
                    prop_assert!(taken <= allowed * (1.0 + 1e-9) + 1e-6, "{taken} tokens, {allowed} allowed");
                }
            }
        }

        /// A caller that always takes at the first moment gets the whole rate.
        #[test]
        fn gives_the_whole_rate(rate in 1.0f64..1e5, burst in 1u64..50) {
            let mut bucket = TokenBucket::new(Iops::new(rate).into(), burst, at(0));
            let mut now = at(0);
            let count = 500 + burst;
            for _ in 0..count {
                now = bucket.ready_at(1, now).unwrap();
                bucket.take(1, now);
            }
            let expected = (count - burst) as f64 / rate;
            prop_assert!((now.as_secs_f64() - expected).abs() <= expected * 1e-4 + 1e-6);
        }
    }
}
