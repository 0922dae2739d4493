//! The cost of a request to the storage, for the purpose of sharing it.

use std::fmt;

use tidegate_units::{Bytes, Iops};

/// Binary digits behind the point of a [`RequestCost`].
pub(crate) const COST_BITS: u32 = 16;

/// The cost of a request in I/Os of average size, a fixed-point number with 16 binary digits behind the
/// point. Between 0 and [`RequestCost::MAX`], so that virtual times stay within reach of each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct RequestCost(u64);

impl RequestCost {
    /// Nothing: no batch, no credit.
    pub const ZERO: Self = Self(0);
    /// One I/O, the least that a request costs.
    pub const ONE: Self = Self(1 << COST_BITS);
    /// The greatest cost: 65 536 I/Os. Whatever is larger costs this much.
    pub const MAX: Self = Self(1 << (16 + COST_BITS));

    /// From whole I/Os; at most [`RequestCost::MAX`].
    #[must_use]
    pub const fn from_ios(ios: u32) -> Self {
        let raw = (ios as u64) << COST_BITS;
        if raw > Self::MAX.0 { Self::MAX } else { Self(raw) }
    }

    /// In I/Os, for people and for statistics.
    #[must_use]
    pub fn as_ios(self) -> f64 {
        self.0 as f64 / Self::ONE.0 as f64
    }

    pub(crate) const fn raw(self) -> u64 {
        self.0
    }
}

impl fmt::Display for RequestCost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2} I/Os", self.as_ios())
    }
}

/// Rule that turns a request's size into its cost: the **larger** of its share of the I/Os and its share of
/// the bytes.
///
/// Storage that saturates runs out of operations or out of bandwidth, seldom of both at once. Charging the
/// sum instead halves the throughput of a consumer that loads both dimensions evenly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CostModel {
    bytes_per_io: u64,
}

impl CostModel {
    /// A request costs one I/O for every `bytes_per_io` bytes, and at least one. Zero bytes count as one
    /// byte.
    #[must_use]
    pub const fn new(bytes_per_io: Bytes) -> Self {
        let bytes = bytes_per_io.get();
        Self { bytes_per_io: if bytes == 0 { 1 } else { bytes } }
    }

    /// The cost of a request of this many bytes; a request without data (a flush) costs one I/O.
    #[must_use]
    pub fn cost(self, bytes: u32) -> RequestCost {
        let bytes = u64::from(bytes);
        if bytes <= self.bytes_per_io {
            return RequestCost::ONE;
        }
        RequestCost(((bytes << COST_BITS) / self.bytes_per_io).min(RequestCost::MAX.0))
    }

    /// A rate of I/Os of average size, such as a reservation, in requests per second of a consumer that sends
    /// so many `requests` of so many `bytes` in all: larger ones need fewer. Without any, each counts as one
    /// I/O. Never too little, because the cost of the mean size is at most the mean cost.
    #[must_use]
    pub fn in_requests(self, rate: Iops, requests: u64, bytes: Bytes) -> Iops {
        Iops::new(rate.per_second() / self.mean_cost(requests, bytes).as_ios())
    }

    /// The reverse of [`in_requests`](Self::in_requests): a rate of a consumer's requests, in I/Os of average
    /// size.
    #[must_use]
    pub fn in_ios(self, rate: Iops, requests: u64, bytes: Bytes) -> Iops {
        Iops::new(rate.per_second() * self.mean_cost(requests, bytes).as_ios())
    }

    fn mean_cost(self, requests: u64, bytes: Bytes) -> RequestCost {
        let mean = bytes.get().checked_div(requests).unwrap_or(0);
        self.cost(u32::try_from(mean).unwrap_or(u32::MAX))
    }
}

impl Default for CostModel {
    /// [`Bytes::PER_IO`]; measure and set it where it matters.
    fn default() -> Self {
        Self::new(Bytes::PER_IO)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_larger_share_counts_never_the_sum() {
        let model = CostModel::default();
        assert_eq!(model.cost(0), RequestCost::ONE);
        assert_eq!(model.cost(4 << 10), RequestCost::ONE);
        assert_eq!(model.cost(64 << 10), RequestCost::ONE);
        assert_eq!(model.cost(128 << 10), RequestCost::from_ios(2));
        assert_eq!(model.cost(96 << 10).to_string(), "1.50 I/Os");
        assert_eq!(CostModel::new(Bytes::new(1)).cost(u32::MAX), RequestCost::MAX);
        assert_eq!(CostModel::new(Bytes::ZERO).cost(2), RequestCost::from_ios(2));
        assert_eq!(RequestCost::from_ios(u32::MAX), RequestCost::MAX);
    }

    #[test]
    fn a_reservation_is_fewer_requests_for_who_sends_large_ones() {
        let model = CostModel::default();
        let requests =
            |count, kib| model.in_requests(Iops::new(160.0), count, Bytes::from_kib(kib)).per_second();
        assert!((requests(0, 0) - 160.0).abs() < 1e-9);
        assert!((requests(10, 40) - 160.0).abs() < 1e-9);
        assert!((requests(10, 10_240) - 10.0).abs() < 1e-9);
        let ios = model.in_ios(Iops::new(10.0), 10, Bytes::from_kib(10_240));
        assert!((ios.per_second() - 160.0).abs() < 1e-9);
    }

    proptest! {
        #[test]
        fn cost_never_falls_with_size(a in any::<u32>(), b in any::<u32>(), per_io in any::<u64>()) {
            let model = CostModel::new(Bytes::new(per_io));
            let (small, large) = (a.min(b), a.max(b));
            prop_assert!(model.cost(small) <= model.cost(large));
            prop_assert!(model.cost(small) >= RequestCost::ONE);
        }
    }
}
