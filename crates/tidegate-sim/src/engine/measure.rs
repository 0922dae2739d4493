//! Counters and means.

use std::hint::black_box;

use tidegate_control::{ReservationDecision, ReservationShortage};
use tidegate_regulate::LatencySamples;
use tidegate_units::Latency;

use crate::outcome::{LatencySummary, MissedShares, WindowOutcome};

/// Binary digits of a response time that a bucket keeps: buckets are at most 1/64 wide, and their middles off
/// by less than one per cent.
const DIGITS: u32 = 6;

/// Number of response times that wait to be counted in their buckets.
const RECENT: usize = 23;

/// Response times in buckets that grow with them. The mean is exact.
///
/// Thousands of consumers have one each, and every request of theirs touches it. So it has only the buckets
/// between its least value and its greatest. Even so no cache has the buckets. A request only notes its own
/// bucket, and many requests are counted at once. So the memory is waited for once and not for each.
#[derive(Debug, Clone, Default)]
pub(crate) struct LatencyDistribution {
    count: u64,
    nanos: u128,
    /// The buckets of the latest response times. Their number is the remainder of `count`.
    recent: [u16; RECENT],
    /// The first of the buckets; the others follow it.
    first: u16,
    buckets: Vec<u32>,
}

impl LatencyDistribution {
    pub(super) fn record(&mut self, nanos: u64) {
        let at = self.count as usize % RECENT;
        self.recent[at] = bucket(nanos) as u16;
        self.count += 1;
        self.nanos += u128::from(nanos);
        if at + 1 == RECENT {
            self.settle(RECENT);
        }
    }

    /// See [`Simulation::recall`](super::Simulation::recall).
    pub(super) fn recall(&self) {
        black_box((self.count, self.recent[0], self.recent[RECENT - 1]));
    }

    /// Counts the first of the recent ones in their buckets.
    fn settle(&mut self, recent: usize) {
        let recent = &self.recent[..recent];
        let (Some(&least), Some(&greatest)) = (recent.iter().min(), recent.iter().max()) else { return };
        if self.buckets.is_empty() {
            self.first = least;
        } else if least < self.first {
            let missing = usize::from(self.first - least);
            self.buckets.splice(..0, std::iter::repeat_n(0, missing));
            self.first = least;
        }
        let needed = usize::from(greatest - self.first) + 1;
        if needed > self.buckets.len() {
            self.buckets.resize(needed, 0);
        }
        for &bucket in recent {
            let count = &mut self.buckets[usize::from(bucket - self.first)];
            *count = count.saturating_add(1);
        }
    }

    pub(super) fn latencies(mut self) -> Option<LatencySummary> {
        self.settle(self.count as usize % RECENT);
        (self.count > 0).then(|| LatencySummary {
            mean: self.nanos as f64 / self.count as f64 / 1e6,
            p50: self.quantile_ms(0.5),
            p95: self.quantile_ms(0.95),
            p99: self.quantile_ms(0.99),
        })
    }

    /// Returns the least value that this part of all does not exceed, in milliseconds: the middle of its
    /// bucket.
    fn quantile_ms(&self, quantile: f64) -> f64 {
        let found = bucket_of(quantile, self.count, self.buckets.iter().map(|&count| u64::from(count)));
        middle(usize::from(self.first) + found) / 1e6
    }
}

impl LatencySamples for LatencyDistribution {
    fn record(&mut self, latency: Latency) {
        Self::record(self, latency.as_nanos());
    }

    /// Exact to one per cent.
    fn take_quantile(&mut self, fraction: f64) -> Option<Latency> {
        let mut taken = std::mem::take(self);
        taken.settle(taken.count as usize % RECENT);
        (taken.count > 0).then(|| Latency::from_nanos((taken.quantile_ms(fraction) * 1e6).round() as u64))
    }
}

/// Response times of several simulations together.
#[derive(Debug, Clone, Default)]
pub(crate) struct PooledLatencies {
    count: u64,
    nanos: u128,
    /// All buckets up to the last that has any.
    buckets: Vec<u64>,
}

impl PooledLatencies {
    pub(crate) fn add(&mut self, mut part: LatencyDistribution) {
        part.settle(part.count as usize % RECENT);
        self.count += part.count;
        self.nanos += part.nanos;
        let first = usize::from(part.first);
        self.buckets.resize(self.buckets.len().max(first + part.buckets.len()), 0);
        for (own, more) in self.buckets[first..].iter_mut().zip(part.buckets) {
            *own += u64::from(more);
        }
    }

    /// Returns the number of response times.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Returns their mean; `None` when there are none.
    pub(crate) fn mean(&self) -> Option<Latency> {
        let mean = self.nanos.checked_div(u128::from(self.count))?;
        Some(Latency::from_nanos(u64::try_from(mean).unwrap_or(u64::MAX)))
    }

    /// Returns the least value that this part of all does not exceed, exact to one per cent; `None` when
    /// there are none.
    pub(crate) fn quantile(&self, quantile: f64) -> Option<Latency> {
        let found = bucket_of(quantile, self.count, self.buckets.iter().copied());
        (self.count > 0).then(|| Latency::from_nanos(middle(found).round() as u64))
    }
}

/// Returns the bucket of the least value that this part of all `count` does not exceed. It is the last bucket
/// where that is more than there are.
fn bucket_of(quantile: f64, count: u64, buckets: impl ExactSizeIterator<Item = u64>) -> usize {
    let wanted = ((count as f64 * quantile).ceil() as u64).max(1);
    let last = buckets.len().saturating_sub(1);
    let mut seen = 0;
    let mut buckets = buckets;
    let found = buckets.position(|count| {
        seen += count;
        seen >= wanted
    });
    found.unwrap_or(last)
}

/// Returns the bucket of a value: the value itself below 2⁷, then 64 buckets for each power of two. There are
/// fewer than 2¹² in all.
fn bucket(value: u64) -> usize {
    let power = (u64::BITS - value.leading_zeros()).saturating_sub(DIGITS + 1);
    ((power << DIGITS) as usize) + (value >> power) as usize
}

/// The value in the middle of a bucket.
fn middle(bucket: usize) -> f64 {
    let power = ((bucket >> DIGITS) as u32).saturating_sub(1);
    let least = (bucket as u64 - (u64::from(power) << DIGITS)) << power;
    least as f64 + ((1u64 << power) - 1) as f64 / 2.0
}

/// Requests that completed since the last reset. The sums hold 584 years of waiting, each second of each
/// request counted.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RequestTally {
    pub(super) count: u64,
    pub(super) bytes: u64,
    pub(super) ops: u64,
    pub(super) felt_nanos: u64,
    pub(super) device_nanos: u64,
    /// Number of requests that are judged against the target; `judged_nanos` sums their response times at the
    /// array.
    pub(super) judged: u64,
    pub(super) judged_nanos: u64,
}

impl RequestTally {
    pub(super) fn device_ms(&self) -> Option<f64> {
        (self.count > 0).then(|| self.device_nanos as f64 / self.count as f64 / 1e6)
    }

    pub(super) fn felt_ms(&self) -> Option<f64> {
        (self.count > 0).then(|| self.felt_nanos as f64 / self.count as f64 / 1e6)
    }

    /// Subtracts the requests that were counted before.
    pub(super) fn subtract(&mut self, other: &Self) {
        self.count -= other.count;
        self.bytes -= other.bytes;
        self.ops -= other.ops;
        self.felt_nanos -= other.felt_nanos;
        self.device_nanos -= other.device_nanos;
        self.judged -= other.judged;
        self.judged_nanos -= other.judged_nanos;
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.count += other.count;
        self.bytes += other.bytes;
        self.ops += other.ops;
        self.felt_nanos += other.felt_nanos;
        self.device_nanos += other.device_nanos;
        self.judged += other.judged;
        self.judged_nanos += other.judged_nanos;
    }
}

/// A window over time, while there is one.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct WindowTime {
    value: Option<f64>,
    last: f64,
    changed: u64,
    sum: f64,
    seconds: f64,
}

impl WindowTime {
    pub(super) fn set(&mut self, value: Option<f64>, now: u64) {
        if let Some(value) = self.value {
            let seconds = (now - self.changed) as f64 / 1e9;
            self.sum += value * seconds;
            self.seconds += seconds;
        }
        self.changed = now;
        self.value = value;
        self.last = value.unwrap_or(self.last);
    }

    pub(super) fn restart(&mut self, now: u64) {
        self.set(self.value, now);
        (self.sum, self.seconds) = (0.0, 0.0);
    }

    pub(super) fn value(&self) -> Option<f64> {
        self.value
    }

    pub(super) fn outcome(&mut self, now: u64) -> WindowOutcome {
        self.set(self.value, now);
        let mean = if self.seconds > 0.0 { self.sum / self.seconds } else { self.last };
        WindowOutcome { mean, last: self.last }
    }
}

/// Number of decisions that judged reservations, and of those that reported missed ones, by cause.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PromiseCounts {
    judged: u64,
    window: u64,
    storage: u64,
}

impl PromiseCounts {
    pub(super) fn judge(&mut self, reserved: &ReservationDecision) {
        self.judged += 1;
        match reserved.missed {
            Some(ReservationShortage::Window) => self.window += 1,
            Some(ReservationShortage::Storage) => self.storage += 1,
            None => {}
        }
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.judged += other.judged;
        self.window += other.window;
        self.storage += other.storage;
    }

    pub(super) fn outcome(&self) -> Option<MissedShares> {
        let part = |count| count as f64 / self.judged as f64;
        (self.judged > 0).then(|| MissedShares { window: part(self.window), storage: part(self.storage) })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn buckets_are_contiguous_and_narrow() {
        let mut last = 0;
        for value in (0..4_096u64).chain([u64::MAX / 3, u64::MAX]) {
            let at = bucket(value);
            assert!(at == last || at == last + 1 || value >= 4_096, "{value}");
            last = at;
            let off = (middle(at) - value as f64).abs();
            assert!(off <= value as f64 * 0.0079, "{value} is {}", middle(at));
        }
    }

    proptest! {
        /// Against a sorted list.
        #[test]
        fn quantiles_are_exact_to_one_per_cent(mut values in prop::collection::vec(0u64..1 << 45, 1..300)) {
            let mut distribution = LatencyDistribution::default();
            for value in &values {
                distribution.record(*value);
            }
            values.sort_unstable();
            let found = distribution.latencies().unwrap();
            for (quantile, found) in [(0.5, found.p50), (0.95, found.p95), (0.99, found.p99)] {
                let rank = ((values.len() as f64 * quantile).ceil() as usize).max(1) - 1;
                let expected = values[rank] as f64 / 1e6;
                prop_assert!((found - expected).abs() <= expected * 0.01, "{found} instead of {expected}");
            }
            let mean = values.iter().map(|value| *value as f64).sum::<f64>() / values.len() as f64 / 1e6;
            prop_assert!((found.mean - mean).abs() <= mean * 1e-9);
        }

        /// Response times may come in any number of parts.
        #[test]
        fn pooled_they_are_what_they_are_together(
            parts in prop::collection::vec(prop::collection::vec(0u64..1 << 45, 0..80), 1..6),
        ) {
            let (mut together, mut pooled) = (LatencyDistribution::default(), PooledLatencies::default());
            for part in &parts {
                let mut own = LatencyDistribution::default();
                for &value in part {
                    together.record(value);
                    own.record(value);
                }
                pooled.add(own);
            }
            prop_assert_eq!(pooled.count(), parts.iter().map(|part| part.len() as u64).sum::<u64>());
            let ms = |latency: Option<Latency>| latency.map(Latency::as_millis_f64);
            let found = [pooled.mean(), pooled.quantile(0.5), pooled.quantile(0.95), pooled.quantile(0.99)]
                .map(ms);
            match together.latencies() {
                None => prop_assert_eq!(found, [None; 4]),
                Some(LatencySummary { mean, p50, p95, p99 }) => {
                    for (found, expected) in found.into_iter().zip([mean, p50, p95, p99]) {
                        prop_assert!((found.unwrap() - expected).abs() < 2e-6, "{found:?} instead of \
                            {expected}");
                    }
                }
            }
        }
    }
}
