//! A mean number of requests.

use serde::{Deserialize, Serialize};

/// An average number of outstanding requests. Finite, never negative.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default, Serialize, Deserialize)]
#[serde(from = "f64", into = "f64")]
pub struct MeanOutstanding(f64);

impl MeanOutstanding {
    /// Significant bits of a [rounded](Self::rounded) mean.
    pub(crate) const BITS: u32 = 8;

    /// From a number of requests. NaN and negative numbers become zero, +∞ the greatest number.
    #[must_use]
    pub fn new(requests: f64) -> Self {
        Self(if requests.is_nan() { 0.0 } else { requests.clamp(0.0, f64::MAX) })
    }

    /// Returns the nearest mean with the precision of an observation: 8 significant bits.
    #[must_use]
    pub fn rounded(self) -> Self {
        let dropped = f64::MANTISSA_DIGITS - Self::BITS;
        Self::new(f64::from_bits((self.0.to_bits() + (1 << (dropped - 1))) >> dropped << dropped))
    }

    /// The number of requests, for the mathematics.
    #[must_use]
    pub const fn get(self) -> f64 {
        self.0
    }
}

impl From<f64> for MeanOutstanding {
    fn from(value: f64) -> Self {
        Self::new(value)
    }
}

impl From<MeanOutstanding> for f64 {
    fn from(value: MeanOutstanding) -> Self {
        value.0
    }
}
