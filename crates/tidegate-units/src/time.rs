//! Response times and points in time.

use std::fmt;
use std::ops::{Add, Sub};
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::parse::{ParseUnitError, QuantityGrammar};

const NANOS_PER_MILLI: f64 = 1e6;
const NANOS_PER_SEC: f64 = 1e9;

/// A response time, or a delay compared with one. Nanoseconds, never negative, never NaN.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Latency(u64);

impl Latency {
    /// No time at all.
    pub const ZERO: Self = Self(0);
    /// The longest that can be said: about 584 years.
    pub const MAX: Self = Self(u64::MAX);

    /// From whole nanoseconds.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// From whole microseconds; saturates.
    #[must_use]
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros.saturating_mul(1_000))
    }

    /// From whole milliseconds; saturates.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    /// From milliseconds. NaN and negative numbers become zero, what is too large becomes [`Latency::MAX`].
    #[must_use]
    pub fn from_millis_f64(millis: f64) -> Self {
        // A float-to-integer cast saturates and maps NaN to 0: exactly the rule stated above.
        Self((millis * NANOS_PER_MILLI).round() as u64)
    }

    /// From seconds. NaN and negative numbers become zero, what is too large becomes [`Latency::MAX`].
    #[must_use]
    pub fn from_secs_f64(secs: f64) -> Self {
        Self((secs * NANOS_PER_SEC).round() as u64)
    }

    /// Whole nanoseconds.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Milliseconds, for the mathematics and for people.
    #[must_use]
    pub fn as_millis_f64(self) -> f64 {
        self.0 as f64 / NANOS_PER_MILLI
    }

    /// Seconds, for the mathematics.
    #[must_use]
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / NANOS_PER_SEC
    }

    /// The same length as a [`Duration`].
    #[must_use]
    pub const fn to_duration(self) -> Duration {
        Duration::from_nanos(self.0)
    }

    /// The sum, at most [`Latency::MAX`].
    #[must_use]
    pub const fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// The difference, at least zero.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// Returns the nearest latency with zeros in all but the highest `bits` bits. It is off by at most one
    /// part in 2 to the power of `bits`.
    #[must_use]
    pub const fn rounded(self, bits: u32) -> Self {
        let dropped = (u64::BITS - self.0.leading_zeros()).saturating_sub(bits);
        if dropped == 0 {
            return self;
        }
        Self(self.0.saturating_add(1 << (dropped - 1)) >> dropped << dropped)
    }

    /// This latency times a factor, under the rule of [`Latency::from_secs_f64`].
    #[must_use]
    pub fn scale(self, factor: f64) -> Self {
        Self((self.0 as f64 * factor).round() as u64)
    }
}

impl From<Duration> for Latency {
    fn from(duration: Duration) -> Self {
        Self(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl From<Latency> for Duration {
    fn from(latency: Latency) -> Self {
        latency.to_duration()
    }
}

impl fmt::Display for Latency {
    /// Three significant digits or so, in the unit a person would choose: `850µs`, `12.4ms`, `3.20s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0 as f64;
        let (value, unit) = match self.0 {
            0 => return f.write_str("0ms"),
            1..1_000 => return write!(f, "{}ns", self.0),
            1_000..1_000_000 => (nanos / 1e3, "µs"),
            1_000_000..1_000_000_000 => (nanos / 1e6, "ms"),
            _ => (nanos / 1e9, "s"),
        };
        let decimals = if value < 10.0 {
            2
        } else if value < 100.0 {
            1
        } else {
            0
        };
        write!(f, "{value:.decimals$}{unit}")
    }
}

const TIME: QuantityGrammar = QuantityGrammar {
    units: &[("ns", 1.0), ("us", 1e3), ("µs", 1e3), ("ms", 1e6), ("s", 1e9), ("min", 60e9), ("h", 3600e9)],
    expected: "ns, us, ms, s, min, h",
    example: "15ms",
    range: "at most 500 years",
};

impl FromStr for Latency {
    type Err = ParseUnitError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let nanos = TIME.parse(text)?;
        if nanos > 500.0 * 365.0 * 86_400e9 {
            return Err(TIME.out_of_range(text));
        }
        Ok(Self(nanos.round() as u64))
    }
}

/// A point in time on a monotonic clock that belongs to the caller: nanoseconds since an origin of the
/// caller's choice. The simulator's clock, the laboratory's virtual clock and the machine's own all fit, and
/// pure code can tell none of them apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Instant(u64);

impl Instant {
    /// The origin of the clock.
    pub const ZERO: Self = Self(0);
    /// The end of time.
    pub const MAX: Self = Self(u64::MAX);

    /// From nanoseconds since the clock's origin.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the clock's origin.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Seconds since the clock's origin.
    #[must_use]
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / NANOS_PER_SEC
    }

    /// Time passed since `earlier`; zero when the clock jumped back.
    #[must_use]
    pub const fn saturating_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// Like [`Instant::saturating_since`], as a latency.
    #[must_use]
    pub const fn latency_since(self, earlier: Self) -> Latency {
        Latency(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(Latency::from(duration).0))
    }
}

impl Add<Latency> for Instant {
    type Output = Self;

    fn add(self, latency: Latency) -> Self {
        Self(self.0.saturating_add(latency.0))
    }
}

impl Sub<Duration> for Instant {
    type Output = Self;

    fn sub(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(Latency::from(duration).0))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_rounded_latency_keeps_its_highest_bits() {
        for (nanos, rounded) in [(0, 0), (255, 255), (256, 256), (257, 258), (511, 512), (1_000_001, 999_424)]
        {
            assert_eq!(Latency::from_nanos(nanos).rounded(8).as_nanos(), rounded, "{nanos}");
        }
        assert_eq!(Latency::MAX.rounded(8).as_nanos(), 0xff << 56);
        for nanos in (0..60).map(|place| 3_u64.wrapping_pow(place)) {
            let off = Latency::from_nanos(nanos).rounded(5).as_nanos().abs_diff(nanos);
            assert!(off <= nanos / 32, "{nanos} is off by {off}");
        }
    }

    #[test]
    fn reads_what_people_write() {
        assert_eq!("15ms".parse(), Ok(Latency::from_millis(15)));
        assert_eq!(" 1.5 s ".parse(), Ok(Latency::from_millis(1_500)));
        assert_eq!("250us".parse(), Ok(Latency::from_micros(250)));
        assert_eq!("0ms".parse(), Ok(Latency::ZERO));
    }

    #[test]
    fn says_what_is_wrong_and_what_to_write() {
        let error = |text: &str| text.parse::<Latency>().unwrap_err().to_string();
        assert_eq!(
            error("15"),
            "`15`: the unit is missing; use one of ns, us, ms, s, min, h, for example `15ms`"
        );
        assert_eq!(
            error("15 parsecs"),
            "`15 parsecs`: unknown unit `parsecs`; use one of ns, us, ms, s, min, h, for example `15ms`"
        );
        assert_eq!(error("-1ms"), "`-1ms` does not start with a number; write for example `15ms`");
        assert_eq!(error("1.2.3ms"), "`1.2.3ms` does not start with a number; write for example `15ms`");
        assert_eq!(error("9000000h"), "`9000000h` is out of range: at most 500 years");
    }

    #[test]
    fn shows_what_people_read() {
        assert_eq!(Latency::ZERO.to_string(), "0ms");
        assert_eq!(Latency::from_nanos(999).to_string(), "999ns");
        assert_eq!(Latency::from_nanos(12_345_678).to_string(), "12.3ms");
        assert_eq!(Latency::from_millis(3_200).to_string(), "3.20s");
    }

    #[test]
    fn a_clock_that_jumps_back_yields_zero() {
        let (early, late) = (Instant::from_nanos(5), Instant::from_nanos(9));
        assert_eq!(late.saturating_since(early), Duration::from_nanos(4));
        assert_eq!(early.saturating_since(late), Duration::ZERO);
        assert_eq!(Instant::MAX + Duration::MAX, Instant::MAX);
    }

    proptest! {
        #[test]
        fn no_float_escapes_its_range(x in any::<f64>()) {
            let latency = Latency::from_secs_f64(x);
            if x.is_nan() || x <= 0.0 {
                prop_assert_eq!(latency, Latency::ZERO);
            }
            prop_assert!(latency.as_millis_f64().is_finite());
            prop_assert!(latency.scale(x).as_secs_f64().is_finite());
        }

        #[test]
        fn text_round_trips_to_three_digits(nanos in 1u64..1_000_000_000_000) {
            let latency = Latency::from_nanos(nanos);
            let again: Latency = latency.to_string().parse().unwrap();
            let error = again.as_secs_f64() / latency.as_secs_f64() - 1.0;
            prop_assert!(error.abs() < 0.006, "{latency} became {again}");
        }
    }
}
