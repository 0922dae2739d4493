//! A percentile of a resource's reads, from interval to interval.

use std::collections::VecDeque;
use std::time::Duration;

use tidegate_control::{SignalPercentile, SignalStatistic};
use tidegate_host::sense::latency::LatencyBuckets;

/// Reads of longer ago say nothing of now.
const MEMORY: Duration = Duration::from_secs(2);

/// A percentile of the reads' response times.
///
/// An interval may have too few reads for a percentile. It cannot be told how long 95 % of six reads take,
/// and the slowest one alone does not tell it. So reads of earlier intervals count as well, as many as are
/// needed for 100 / (100 − p) reads, for two seconds at most.
#[derive(Debug)]
pub(super) struct ReadPercentile {
    statistic: SignalStatistic,
    percent: u32,
    /// The reads of the current interval.
    now: LatencyBuckets,
    /// The intervals before, the latest first: their lengths and their reads.
    before: VecDeque<(Duration, LatencyBuckets)>,
}

impl ReadPercentile {
    /// `None` where the mean will do.
    pub(super) fn new(statistic: SignalStatistic) -> Option<Self> {
        let percent = statistic.percent()?;
        Some(Self { statistic, percent, now: LatencyBuckets::default(), before: VecDeque::new() })
    }

    pub(super) const fn statistic(&self) -> SignalStatistic {
        self.statistic
    }

    /// Takes reads that completed.
    pub(super) fn count(&mut self, reads: &LatencyBuckets) {
        self.now.merge(reads);
    }

    /// Returns the percentile when an interval of that length ends; `None` if no read completed in it.
    pub(super) fn end(&mut self, interval: Duration) -> Option<SignalPercentile> {
        let now = std::mem::take(&mut self.now);
        let count = now.count();
        let mut seen = now.clone();
        let mut age = interval;
        self.before.retain(|(length, _)| {
            age = age.saturating_add(*length);
            age <= MEMORY
        });
        for (_, reads) in &self.before {
            if seen.count() >= u64::from(100 / (100 - self.percent)) {
                break;
            }
            seen.merge(reads);
        }
        self.before.push_front((interval, now));
        let latency = seen.quantile(f64::from(self.percent) / 100.0)?;
        (count > 0).then_some(SignalPercentile { statistic: self.statistic, count, latency })
    }
}

#[cfg(test)]
mod tests {
    use tidegate_units::Latency;

    use super::*;

    const INTERVAL: Duration = Duration::from_millis(100);

    fn reads(millis: &[u64]) -> LatencyBuckets {
        millis.iter().map(|millis| Latency::from_millis(*millis)).collect()
    }

    fn told(percentile: &mut ReadPercentile, millis: &[u64]) -> Option<SignalPercentile> {
        percentile.count(&reads(millis));
        percentile.end(INTERVAL)
    }

    /// Returns true if the percentile is `millis` as histograms count it: at most an eighth too long.
    fn about(told: Option<SignalPercentile>, millis: u64) -> bool {
        let latency = told.unwrap().latency.as_millis_f64();
        (millis as f64..=1.125 * millis as f64).contains(&latency)
    }

    #[test]
    fn the_mean_takes_no_histogram() {
        assert!(ReadPercentile::new(SignalStatistic::Mean).is_none());
    }

    #[test]
    fn of_a_few_reads_the_slowest_is_not_what_nearly_all_take() {
        let mut p95 = ReadPercentile::new(SignalStatistic::P95).unwrap();
        for _ in 0..9 {
            told(&mut p95, &[8, 8]);
        }
        // One of twenty, in the last of ten intervals: 95 % take 8 ms, as they did before.
        let last = told(&mut p95, &[8, 90]);
        assert!(about(last, 8), "{last:?}");
        assert_eq!(last.unwrap().count, 2);
        // Two of twenty.
        let last = told(&mut p95, &[90, 8]);
        assert!(about(last, 90), "{last:?}");
    }

    #[test]
    fn where_there_are_enough_only_the_interval_counts() {
        let mut median = ReadPercentile::new(SignalStatistic::P50).unwrap();
        assert!(about(told(&mut median, &[40, 40, 40]), 40));
        assert!(about(told(&mut median, &[10, 10, 80]), 10));
        let mut p90 = ReadPercentile::new(SignalStatistic::P90).unwrap();
        assert!(about(told(&mut p90, &[40; 20]), 40));
        assert!(about(told(&mut p90, &[10; 10]), 10));
    }

    #[test]
    fn an_interval_without_reads_has_none_and_two_seconds_are_forgotten() {
        let mut p99 = ReadPercentile::new(SignalStatistic::P99).unwrap();
        assert!(about(told(&mut p99, &[70]), 70));
        for _ in 0..18 {
            assert_eq!(told(&mut p99, &[]), None);
        }
        assert!(about(told(&mut p99, &[5]), 70), "19 intervals ago");
        assert!(about(told(&mut p99, &[5]), 5), "20 intervals ago");
    }
}
