//! Response-time histograms with fixed buckets: no allocation per sample, no configuration, mergeable, and
//! their bounds are the same in every process that ever runs, so that series from different days can be
//! added.

use serde::Serialize;
use tidegate_regulate::{LatencyCollection, LatencySamples};
use tidegate_units::Latency;

/// Eight buckets per octave: a bucket is 6 % to 12.5 % wide.
pub type TimeHistogram = LogLinear<3>;

/// 64 buckets per octave: a bucket is 0.8 % to 1.6 % wide. For laws that steer by a percentile: differences
/// within a bucket are invisible to them.
pub type FineHistogram = LogLinear<6>;

/// Below 1.024 µs everything is one bucket; no storage reached through a socket answers faster.
const MIN_BITS: u32 = 10;
/// Above 2^36 ns (68.7 s) everything is one bucket.
const MAX_BITS: u32 = 36;

/// Counts of response times in log-linear buckets from 1 µs to 69 s, 2^`SUB_BITS` of them per octave.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LogLinear<const SUB_BITS: u32> {
    counts: Vec<u64>,
    count: u64,
    sum_nanos: u64,
    max: Latency,
}

impl<const SUB_BITS: u32> Default for LogLinear<SUB_BITS> {
    fn default() -> Self {
        Self { counts: vec![0; buckets(SUB_BITS)], count: 0, sum_nanos: 0, max: Latency::ZERO }
    }
}

impl<const SUB_BITS: u32> LogLinear<SUB_BITS> {
    /// Adds one sample.
    pub fn record(&mut self, latency: Latency) {
        self.counts[bucket_of(latency, SUB_BITS)] += 1;
        self.count += 1;
        self.sum_nanos = self.sum_nanos.saturating_add(latency.as_nanos());
        self.max = self.max.max(latency);
    }

    /// Forgets every sample.
    pub fn clear(&mut self) {
        if self.count > 0 {
            self.counts.fill(0);
            (self.count, self.sum_nanos, self.max) = (0, 0, Latency::ZERO);
        }
    }

    /// Samples.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The sum of all samples, exact.
    #[must_use]
    pub fn sum(&self) -> Latency {
        Latency::from_nanos(self.sum_nanos)
    }

    /// The greatest sample, exact.
    #[must_use]
    pub fn max(&self) -> Latency {
        self.max
    }

    /// The mean; `None` without samples.
    #[must_use]
    pub fn mean(&self) -> Option<Latency> {
        self.sum_nanos.checked_div(self.count).map(Latency::from_nanos)
    }

    /// The bound below which a share of `quantile` (0 to 1, clamped) of the samples lies, to a bucket's upper
    /// bound and never above the greatest sample; `None` without samples.
    #[must_use]
    pub fn quantile(&self, quantile: f64) -> Option<Latency> {
        if self.count == 0 {
            return None;
        }
        let rank = ((quantile.clamp(0.0, 1.0) * self.count as f64).ceil() as u64).clamp(1, self.count);
        let mut seen = 0;
        for (index, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return Some(upper_bound(index, SUB_BITS).min(self.max));
            }
        }
        Some(self.max)
    }

    /// The buckets: (upper bound, samples at or below it), cumulative as Prometheus wants them, ascending.
    /// The last bound is [`Latency::MAX`] and its number is [`count`](Self::count).
    pub fn cumulative(&self) -> impl Iterator<Item = (Latency, u64)> + '_ {
        self.counts.iter().enumerate().scan(0, |seen, (index, count)| {
            *seen += count;
            Some((upper_bound(index, SUB_BITS), *seen))
        })
    }

    /// The samples of `self` that were not yet in `earlier`, an older copy of it: what happened in between.
    /// The maximum is that of the whole time, because it cannot be known for a part of it.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            counts: self
                .counts
                .iter()
                .zip(&earlier.counts)
                .map(|(now, then)| now.saturating_sub(*then))
                .collect(),
            count: self.count.saturating_sub(earlier.count),
            sum_nanos: self.sum_nanos.saturating_sub(earlier.sum_nanos),
            max: self.max,
        }
    }
}

impl<const SUB_BITS: u32> LatencySamples for LogLinear<SUB_BITS> {
    fn record(&mut self, latency: Latency) {
        Self::record(self, latency);
    }

    fn take_quantile(&mut self, fraction: f64) -> Option<Latency> {
        let quantile = self.quantile(fraction);
        self.clear();
        quantile
    }
}

impl<const SUB_BITS: u32> LatencyCollection for LogLinear<SUB_BITS> {
    fn count(&self) -> u64 {
        Self::count(self)
    }

    fn merge(&mut self, other: &Self) {
        if other.count > 0 {
            self.counts.iter_mut().zip(&other.counts).for_each(|(count, other)| *count += other);
            self.count += other.count;
            self.sum_nanos = self.sum_nanos.saturating_add(other.sum_nanos);
            self.max = self.max.max(other.max);
        }
    }

    fn quantile(&self, fraction: f64) -> Option<Latency> {
        Self::quantile(self, fraction)
    }
}

const fn buckets(sub_bits: u32) -> usize {
    (((MAX_BITS - MIN_BITS) << sub_bits) + 2) as usize
}

fn bucket_of(latency: Latency, sub_bits: u32) -> usize {
    let nanos = latency.as_nanos();
    if nanos <= 1 << MIN_BITS {
        return 0;
    }
    // Bounds are inclusive above, as Prometheus has it: a sample of exactly 2^n belongs to the bucket that
    // ends there.
    let below = nanos - 1;
    let octave = below.ilog2();
    if octave >= MAX_BITS {
        return buckets(sub_bits) - 1;
    }
    let sub = (below >> (octave - sub_bits)) & ((1 << sub_bits) - 1);
    1 + (u64::from((octave - MIN_BITS) << sub_bits) + sub) as usize
}

fn upper_bound(index: usize, sub_bits: u32) -> Latency {
    if index == buckets(sub_bits) - 1 {
        return Latency::MAX;
    }
    if index == 0 {
        return Latency::from_nanos(1 << MIN_BITS);
    }
    let (octave, sub) = ((index as u64 - 1) >> sub_bits, (index as u64 - 1) & ((1 << sub_bits) - 1));
    let base = 1u64 << (octave + u64::from(MIN_BITS));
    Latency::from_nanos(base + (sub + 1) * (base >> sub_bits))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn bounds_ascend_and_end_at_infinity() {
        let bounds: Vec<Latency> = TimeHistogram::default().cumulative().map(|(bound, _)| bound).collect();
        assert!(bounds.windows(2).all(|pair| pair[0] < pair[1]));
        assert_eq!(bounds.first(), Some(&Latency::from_nanos(1_024)));
        assert_eq!(bounds.last(), Some(&Latency::MAX));
    }

    #[test]
    fn without_samples_nothing_is_known() {
        let empty = TimeHistogram::default();
        assert_eq!((empty.mean(), empty.quantile(0.5)), (None, None));
    }

    #[test]
    fn what_happened_in_both() {
        let millis = |range: std::ops::RangeInclusive<u64>| {
            let mut histogram = FineHistogram::default();
            range.for_each(|millis| histogram.record(Latency::from_millis(millis)));
            histogram
        };
        let mut both = millis(1..=60);
        both.merge(&millis(61..=100));
        assert_eq!(both, millis(1..=100));
        let p95 = both.quantile(0.95).unwrap().as_millis_f64();
        assert!((95.0..97.0).contains(&p95), "{p95}");
    }

    #[test]
    fn what_happened_in_between() {
        let mut now = TimeHistogram::default();
        now.record(Latency::from_millis(1));
        let then = now.clone();
        now.record(Latency::from_millis(3));
        let between = now.since(&then);
        assert_eq!((between.count(), between.mean()), (1, Some(Latency::from_millis(3))));
    }

    proptest! {
        #[test]
        fn a_sample_lies_in_the_bucket_whose_bounds_enclose_it(nanos in any::<u64>(), fine: bool) {
            let sub_bits = if fine { 6 } else { 3 };
            let bucket = bucket_of(Latency::from_nanos(nanos), sub_bits);
            prop_assert!(nanos <= upper_bound(bucket, sub_bits).as_nanos());
            if bucket > 0 {
                prop_assert!(nanos > upper_bound(bucket - 1, sub_bits).as_nanos());
            }
        }

        #[test]
        fn quantiles_are_within_a_bucket_of_the_truth(
            mut samples in prop::collection::vec(2_000u64..60_000_000_000, 1..200),
            q in 0.0f64..1.0,
        ) {
            let (mut histogram, mut fine) = (TimeHistogram::default(), FineHistogram::default());
            fine.record(Latency::from_millis(1));
            fine.clear();
            for nanos in &samples {
                histogram.record(Latency::from_nanos(*nanos));
                fine.record(Latency::from_nanos(*nanos));
            }
            samples.sort_unstable();
            let rank = ((q * samples.len() as f64).ceil() as usize).clamp(1, samples.len());
            let truth = samples[rank - 1] as f64;
            for (read, width) in [(histogram.quantile(q), 1.126), (fine.quantile(q), 1.016)] {
                let read = read.unwrap().as_nanos() as f64;
                prop_assert!(read >= truth && read <= truth * width, "{read} against {truth}");
            }
        }
    }
}
