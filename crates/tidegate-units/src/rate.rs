//! Requests per second and bytes per second.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::parse::{ParseUnitError, QuantityGrammar};
use crate::scale::{saturate, write_scaled_bytes};

/// Requests per second. Finite, never negative.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default, Serialize, Deserialize)]
#[serde(from = "f64", into = "f64")]
pub struct Iops(f64);

impl Iops {
    /// Nothing per second.
    pub const ZERO: Self = Self(0.0);

    /// From a number of requests per second. NaN and negative numbers become zero, +∞ the greatest number.
    #[must_use]
    pub const fn new(per_second: f64) -> Self {
        Self(saturate(per_second))
    }

    /// Requests per second, for the mathematics.
    #[must_use]
    pub const fn per_second(self) -> f64 {
        self.0
    }

    /// The lesser of two rates.
    #[must_use]
    pub const fn min(self, other: Self) -> Self {
        Self(self.0.min(other.0))
    }

    /// The greater of two rates.
    #[must_use]
    pub const fn max(self, other: Self) -> Self {
        Self(self.0.max(other.0))
    }
}

impl From<f64> for Iops {
    fn from(value: f64) -> Self {
        Self::new(value)
    }
}

impl From<Iops> for f64 {
    fn from(value: Iops) -> Self {
        value.0
    }
}

impl fmt::Display for Iops {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            x if x < 10.0 => write!(f, "{x:.1} IO/s"),
            x if x < 10_000.0 => write!(f, "{x:.0} IO/s"),
            x => write!(f, "{:.1} kIO/s", x / 1e3),
        }
    }
}

const IOPS: QuantityGrammar = QuantityGrammar {
    units: &[("IO/s", 1.0), ("kIO/s", 1e3), ("MIO/s", 1e6), ("iops", 1.0)],
    expected: "IO/s, kIO/s",
    example: "500 IO/s",
    range: "a number of requests per second",
};

impl FromStr for Iops {
    type Err = ParseUnitError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        IOPS.parse(text).map(Self)
    }
}

/// Bytes per second. Finite, never negative.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default, Serialize, Deserialize)]
#[serde(from = "f64", into = "f64")]
pub struct ByteRate(f64);

impl ByteRate {
    /// Nothing per second.
    pub const ZERO: Self = Self(0.0);

    /// From a number of bytes per second. NaN and negative numbers become zero, +∞ the greatest number.
    #[must_use]
    pub fn new(per_second: f64) -> Self {
        Self(saturate(per_second))
    }

    /// Bytes per second, for the mathematics.
    #[must_use]
    pub const fn per_second(self) -> f64 {
        self.0
    }
}

impl From<f64> for ByteRate {
    fn from(value: f64) -> Self {
        Self::new(value)
    }
}

impl From<ByteRate> for f64 {
    fn from(value: ByteRate) -> Self {
        value.0
    }
}

impl fmt::Display for ByteRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_scaled_bytes(f, self.0)?;
        f.write_str("/s")
    }
}

const BYTE_RATE: QuantityGrammar = QuantityGrammar {
    units: &[
        ("B/s", 1.0),
        ("KiB/s", 1024.0),
        ("MiB/s", 1_048_576.0),
        ("GiB/s", 1_073_741_824.0),
        ("kB/s", 1e3),
        ("MB/s", 1e6),
        ("GB/s", 1e9),
    ],
    expected: "B/s, KiB/s, MiB/s, GiB/s, kB/s, MB/s, GB/s",
    example: "256KiB/s",
    range: "a number of bytes per second",
};

impl FromStr for ByteRate {
    type Err = ParseUnitError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        BYTE_RATE.parse(text).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reads_and_shows() {
        assert_eq!("500 IO/s".parse(), Ok(Iops::new(500.0)));
        assert_eq!("1.5kIO/s".parse(), Ok(Iops::new(1_500.0)));
        assert_eq!("256KiB/s".parse(), Ok(ByteRate::new(262_144.0)));
        assert_eq!(Iops::new(2.0).max(Iops::new(3.0)), Iops::new(3.0).min(Iops::new(4.0)));
        assert_eq!(Iops::new(1_234.4).to_string(), "1234 IO/s");
        assert_eq!(ByteRate::new(40_894_464.0).to_string(), "39 MiB/s");
        assert_eq!(
            "7 MB".parse::<ByteRate>().unwrap_err().to_string(),
            "`7 MB`: unknown unit `MB`; use one of B/s, KiB/s, MiB/s, GiB/s, kB/s, MB/s, GB/s, for example \
                `256KiB/s`"
        );
    }

    proptest! {
        #[test]
        fn never_negative_never_nan(x in any::<f64>()) {
            prop_assert!(Iops::new(x).per_second().is_finite() && Iops::new(x).per_second() >= 0.0);
            prop_assert!(ByteRate::new(x).per_second().is_finite() && ByteRate::new(x).per_second() >= 0.0);
        }
    }
}
