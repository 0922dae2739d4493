//! Response times that were counted in buckets.

use tidegate_ebpf::latency::{BUCKETS, upper_bound};
use tidegate_regulate::LatencyCollection;
use tidegate_units::Latency;

/// Numbers of requests by latency: eight buckets per octave from 1 µs to 69 s.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LatencyBuckets {
    counts: Vec<u64>,
    nanos: u64,
}

impl Default for LatencyBuckets {
    fn default() -> Self {
        Self { counts: vec![0; BUCKETS], nanos: 0 }
    }
}

impl LatencyBuckets {
    /// Adds what a processor counted: the sum of nanoseconds, and the buckets.
    pub(super) fn add(&mut self, (nanos, counts): (u64, &[u64])) {
        self.nanos = self.nanos.saturating_add(nanos);
        for (sum, more) in self.counts.iter_mut().zip(counts) {
            *sum = sum.saturating_add(*more);
        }
    }

    /// Returns the number of requests.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The sum of their response times, exact.
    #[must_use]
    pub fn sum(&self) -> Latency {
        Latency::from_nanos(self.nanos)
    }

    /// Their mean response time, exact; `None` without requests.
    #[must_use]
    pub fn mean(&self) -> Option<Latency> {
        self.nanos.checked_div(self.count()).map(Latency::from_nanos)
    }

    /// The response time within which a share of `quantile` (0 to 1, clamped) of the requests were answered:
    /// never too short, and at most an eighth too long where it is between 1 µs and 69 s. `None` without
    /// requests. [`Latency::MAX`] for one that took longer than 69 s.
    #[must_use]
    pub fn quantile(&self, quantile: f64) -> Option<Latency> {
        let count = self.count();
        let rank = ((quantile.clamp(0.0, 1.0) * count as f64).ceil() as u64).clamp(1, count.max(1));
        self.cumulative().find(|(_, within)| *within >= rank).map(|(bound, _)| bound)
    }

    /// The buckets: (upper bound, requests at or below it), cumulative as Prometheus wants them, ascending.
    /// The last bound is [`Latency::MAX`] and its number is [`count`](Self::count).
    pub fn cumulative(&self) -> impl Iterator<Item = (Latency, u64)> + '_ {
        self.counts.iter().enumerate().scan(0, |within, (bucket, count)| {
            *within += count;
            Some((Latency::from_nanos(upper_bound(bucket)), *within))
        })
    }

    /// The requests that were not yet in `earlier`, an older reading of the same: what happened in between.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let counts = self.counts.iter().zip(&earlier.counts);
        Self {
            counts: counts.map(|(now, then)| now.saturating_sub(*then)).collect(),
            nanos: self.nanos.saturating_sub(earlier.nanos),
        }
    }

    /// Adds the requests of another one, such as of another device of the same group.
    pub fn merge(&mut self, other: &Self) {
        self.add((other.nanos, &other.counts));
    }
}

impl LatencyCollection for LatencyBuckets {
    fn count(&self) -> u64 {
        Self::count(self)
    }

    fn merge(&mut self, other: &Self) {
        Self::merge(self, other);
    }

    fn quantile(&self, fraction: f64) -> Option<Latency> {
        Self::quantile(self, fraction)
    }
}

/// Counts as the program in the kernel does: in the bucket whose bounds enclose the value.
impl FromIterator<Latency> for LatencyBuckets {
    fn from_iter<I: IntoIterator<Item = Latency>>(samples: I) -> Self {
        let mut latencies = Self::default();
        for nanos in samples.into_iter().map(Latency::as_nanos) {
            // The last bucket has no bound.
            let bucket = (0..BUCKETS - 1).find(|bucket| nanos <= upper_bound(*bucket)).unwrap_or(BUCKETS - 1);
            latencies.counts[bucket] += 1;
            latencies.nanos = latencies.nanos.saturating_add(nanos);
        }
        latencies
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tidegate_ebpf::latency::RELATIVE_ERROR;

    use super::*;

    fn of(samples: &[u64]) -> LatencyBuckets {
        samples.iter().map(|nanos| Latency::from_nanos(*nanos)).collect()
    }

    #[test]
    fn without_requests_nothing_is_known() {
        let none = LatencyBuckets::default();
        assert_eq!((none.count(), none.mean(), none.quantile(0.5)), (0, None, None));
    }

    #[test]
    fn what_took_longer_than_all_bounds_is_not_said_to_be_shorter() {
        let one = of(&[100_000_000_000]);
        assert_eq!(
            (one.quantile(1.0), one.mean()),
            (Some(Latency::MAX), Some(Latency::from_secs_f64(100.0)))
        );
    }

    proptest! {
        #[test]
        fn a_quantile_is_at_most_an_eighth_too_long(
            mut samples in prop::collection::vec(1_025_u64..1 << 36, 1..200),
            quantile in 0.0..=1.0,
        ) {
            let read = of(&samples).quantile(quantile).unwrap().as_nanos();
            samples.sort_unstable();
            let rank = ((quantile * samples.len() as f64).ceil() as usize).max(1);
            let truth = samples[rank - 1];
            prop_assert!(read >= truth && (read - truth) as f64 <= RELATIVE_ERROR * truth as f64, "{read}, \
                {truth}");
        }

        #[test]
        fn what_was_merged_can_be_taken_out_again(
            before in prop::collection::vec(0_u64..1 << 38, 0..50),
            after in prop::collection::vec(0_u64..1 << 38, 0..50),
        ) {
            let (before, after) = (of(&before), of(&after));
            let mut both = before.clone();
            both.merge(&after);
            prop_assert_eq!(both.count(), before.count() + after.count());
            prop_assert_eq!(both.cumulative().last(), Some((Latency::MAX, both.count())));
            prop_assert_eq!(both.since(&before), after);
        }
    }
}
