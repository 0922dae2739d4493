//! Sizes, windows and shares.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::parse::{ParseUnitError, QuantityGrammar};
use crate::scale::{saturate, write_scaled_bytes};

/// A size in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Bytes(u64);

impl Bytes {
    /// Nothing.
    pub const ZERO: Self = Self(0);

    /// Bytes that cost as much as one I/O: 64 KiB, a customary stripe unit. Up to there a request keeps one
    /// disk busy for about one positioning, and beyond it several. An assumption.
    pub const PER_IO: Self = Self::from_kib(64);

    /// From whole bytes.
    #[must_use]
    pub const fn new(bytes: u64) -> Self {
        Self(bytes)
    }

    /// From whole KiB.
    #[must_use]
    pub const fn from_kib(kib: u64) -> Self {
        Self(kib * 1024)
    }

    /// From whole MiB.
    #[must_use]
    pub const fn from_mib(mib: u64) -> Self {
        Self(mib * 1024 * 1024)
    }

    /// From whole GiB.
    #[must_use]
    pub const fn from_gib(gib: u64) -> Self {
        Self(gib * 1024 * 1024 * 1024)
    }

    /// Whole bytes.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_scaled_bytes(f, self.0 as f64)
    }
}

const BYTES: QuantityGrammar = QuantityGrammar {
    units: &[
        ("B", 1.0),
        ("KiB", 1024.0),
        ("MiB", 1_048_576.0),
        ("GiB", 1_073_741_824.0),
        ("TiB", 1_099_511_627_776.0),
        ("kB", 1e3),
        ("MB", 1e6),
        ("GB", 1e9),
        ("TB", 1e12),
    ],
    expected: "B, KiB, MiB, GiB, TiB, kB, MB, GB, TB",
    example: "64KiB",
    range: "at most 9.2e18 bytes",
};

impl FromStr for Bytes {
    type Err = ParseUnitError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bytes = BYTES.parse(text)?;
        if bytes >= 9.2e18 {
            return Err(BYTES.out_of_range(text));
        }
        Ok(Self(bytes.round() as u64))
    }
}

/// An issue queue length: how many requests may be outstanding at a resource. Fractional, because the window
/// law's steps are (PARDA §3.3); who issues requests decides how to make it whole.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default, Serialize, Deserialize)]
#[serde(from = "f64", into = "f64")]
pub struct Window(f64);

impl Window {
    /// From a number of requests. NaN and negative numbers become zero, +∞ the greatest number.
    #[must_use]
    pub fn new(requests: f64) -> Self {
        Self(saturate(requests))
    }

    /// The number of requests, for the mathematics.
    #[must_use]
    pub const fn get(self) -> f64 {
        self.0
    }
}

impl From<f64> for Window {
    fn from(value: f64) -> Self {
        Self::new(value)
    }
}

impl From<Window> for f64 {
    fn from(value: Window) -> Self {
        value.0
    }
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2}", self.0)
    }
}

/// The part of a resource that a consumer is entitled to, relative to the others on it. Between 1 and
/// 1 000 000, so that sums of shares and ratios between them stay exact and bounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct Shares(u32);

impl Shares {
    /// The least.
    pub const MIN: Self = Self(1);
    /// The greatest.
    pub const MAX: Self = Self(1_000_000);
    /// The shares of a consumer if none are configured: room for a tenfold difference both ways.
    pub const DEFAULT: Self = Self(100);

    /// From a number of shares; `None` outside of 1…1 000 000.
    #[must_use]
    pub const fn new(shares: u32) -> Option<Self> {
        if shares >= Self::MIN.0 && shares <= Self::MAX.0 { Some(Self(shares)) } else { None }
    }

    /// The number of shares.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The number of shares, for the mathematics.
    #[must_use]
    pub fn as_f64(self) -> f64 {
        f64::from(self.0)
    }
}

impl Default for Shares {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl TryFrom<u32> for Shares {
    type Error = ParseUnitError;

    fn try_from(shares: u32) -> Result<Self, Self::Error> {
        Self::new(shares).ok_or_else(|| ParseUnitError::Range {
            text: shares.to_string(),
            range: "shares are 1 to 1000000",
        })
    }
}

impl From<Shares> for u32 {
    fn from(shares: Shares) -> Self {
        shares.0
    }
}

impl fmt::Display for Shares {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reads_and_shows_sizes() {
        assert_eq!("64KiB".parse(), Ok(Bytes::from_kib(64)));
        assert_eq!("1.5 MiB".parse(), Ok(Bytes::from_kib(1_536)));
        assert_eq!(Bytes::new(512).to_string(), "512 B");
        assert_eq!(Bytes::from_kib(64).to_string(), "64 KiB");
        assert_eq!(Bytes::from_kib(1_536).to_string(), "1.5 MiB");
        assert!("9000000000GiB".parse::<Bytes>().is_err());
    }

    #[test]
    fn shares_have_bounds() {
        assert_eq!(Shares::new(0), None);
        assert_eq!(Shares::new(1_000_001), None);
        assert_eq!(Shares::new(7).map(Shares::get), Some(7));
        assert_eq!(serde_json::from_str::<Shares>("7").unwrap().get(), 7);
        assert!(serde_json::from_str::<Shares>("0").is_err());
    }

    proptest! {
        #[test]
        fn a_window_is_never_negative_never_nan(x in any::<f64>()) {
            prop_assert!(Window::new(x).get().is_finite() && Window::new(x).get() >= 0.0);
        }
    }
}
