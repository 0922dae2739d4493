//! Latencies of single requests, where a percentile of them counts.
//!
//! A percentile takes each request's latency, and most scenarios go by means. So this is kept only where a
//! host's statistic is a percentile.

use tidegate_control::SignalStatistic;
use tidegate_regulate::{LatencyCollection, LatencySamples};
use tidegate_units::Latency;

use super::measure::LatencyDistribution;

/// Latencies in nanoseconds, each as it is.
#[derive(Debug, Clone, Default)]
pub(super) struct ExactLatencies(Vec<u64>);

impl ExactLatencies {
    pub(super) fn record(&mut self, nanos: u64) {
        self.0.push(nanos);
    }
}

impl LatencyCollection for ExactLatencies {
    fn count(&self) -> u64 {
        self.0.len() as u64
    }

    fn merge(&mut self, other: &Self) {
        self.0.extend(&other.0);
    }

    fn quantile(&self, fraction: f64) -> Option<Latency> {
        quantile(&self.0, fraction).map(Latency::from_nanos)
    }
}

/// Returns the least of the values that this fraction of them does not exceed.
fn quantile(values: &[u64], fraction: f64) -> Option<u64> {
    let last = values.len().checked_sub(1)?;
    // 0.95 · 20 is a little more than 19 in some roundings, and the rank is 19 all the same.
    let rank = (fraction * values.len() as f64 - 1e-9).ceil() as usize;
    let mut values = values.to_vec();
    Some(*values.select_nth_unstable(rank.saturating_sub(1).min(last)).1)
}

/// The latencies by which a virtual machine is judged.
#[derive(Debug)]
pub(super) struct JudgedLatencies {
    fraction: f64,
    /// Those of the time series' interval.
    interval: Vec<u64>,
    /// The number of them from before the statistics began.
    before_measure: usize,
    /// Those of the statistics.
    measured: LatencyDistribution,
}

impl JudgedLatencies {
    /// `None` if the mean is judged.
    pub(super) fn new(statistic: SignalStatistic) -> Option<Self> {
        let fraction = f64::from(statistic.percent()?) / 100.0;
        let measured = LatencyDistribution::default();
        Some(Self { fraction, interval: Vec::new(), before_measure: 0, measured })
    }

    pub(super) fn record(&mut self, nanos: u64) {
        self.interval.push(nanos);
        self.measured.record(nanos);
    }

    /// The warm-up is over.
    pub(super) fn measure(&mut self) {
        self.before_measure = self.interval.len();
        self.measured = LatencyDistribution::default();
    }

    /// Returns the percentile of the interval so far, in milliseconds.
    pub(super) fn of_interval_ms(&self) -> Option<f64> {
        quantile(&self.interval, self.fraction).map(|nanos| nanos as f64 / 1e6)
    }

    /// Ends an interval of the time series. Returns the percentile of the part that the statistics have, in
    /// nanoseconds.
    pub(super) fn end_interval(&mut self) -> Option<u64> {
        let judged = quantile(&self.interval[self.before_measure..], self.fraction);
        self.interval.clear();
        self.before_measure = 0;
        judged
    }

    /// Returns the percentile of all requests of the statistics, in milliseconds.
    pub(super) fn measured_ms(&mut self) -> Option<f64> {
        self.measured.take_quantile(self.fraction).map(Latency::as_millis_f64)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Against its definition: the least value with at least this part of the values at or below it.
        #[test]
        fn a_percentile_is_the_least_value_that_so_many_do_not_exceed(
            values in prop::collection::vec(0_u64..50, 1..300),
            percent in prop::sample::select(vec![50_u32, 90, 95, 99]),
        ) {
            let within = |bound: u64| values.iter().filter(|value| **value <= bound).count() as u64;
            let is_enough = |bound: &u64| within(*bound) * 100 >= values.len() as u64 * u64::from(percent);
            let expected = (0..50).find(is_enough);
            prop_assert_eq!(quantile(&values, f64::from(percent) / 100.0), expected);
        }
    }

    #[test]
    fn an_interval_in_which_the_statistics_begin_is_judged_by_its_later_part() {
        let mut judged = JudgedLatencies::new(SignalStatistic::P90).unwrap();
        (1..=10).for_each(|ms| judged.record(100 * ms * 1_000_000));
        judged.measure();
        (1..=10).for_each(|ms| judged.record(ms * 1_000_000));
        assert_eq!(judged.of_interval_ms(), Some(800.0));
        assert_eq!(judged.end_interval(), Some(9_000_000));
        assert!((judged.measured_ms().unwrap() - 9.0).abs() < 0.09);
        assert_eq!((judged.end_interval(), judged.measured_ms()), (None, None));
    }
}
