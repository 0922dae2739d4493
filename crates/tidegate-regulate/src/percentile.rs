//! A percentile of the signal's latencies, from interval to interval.

use std::collections::VecDeque;
use std::time::Duration;

use tidegate_control::{LoopConfig, SignalPercentile, SignalRequests, SignalStatistic};
use tidegate_units::{Instant, Latency};

/// Requests of longer ago say nothing of now.
const MEMORY: Duration = Duration::from_secs(2);

/// The least length of a stretch, and the length after which it ends with fewer requests than its percentile
/// needs. The arena judges intervals of these lengths.
const STRETCH: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(5));

/// A collection of latencies, from which a percentile is read.
///
/// The kernel counts an agent's reads in buckets. The simulator keeps each latency.
pub trait LatencyCollection: Clone + Default {
    /// Returns the number of requests.
    fn count(&self) -> u64;

    /// Adds the requests of another collection.
    fn merge(&mut self, other: &Self);

    /// Returns the latency that this fraction of the requests does not exceed; `None` without requests.
    fn quantile(&self, fraction: f64) -> Option<Latency>;
}

/// A percentile of the latencies of the last intervals.
///
/// An interval may have too few requests for a percentile: six requests cannot tell the latency that 95 % of
/// them keep, and the slowest one alone does not tell it either. So requests of earlier intervals count as
/// well, as many as are needed for 100 / (100 − p) requests, for two seconds at most.
#[derive(Debug)]
pub struct RecentPercentile<C> {
    statistic: SignalStatistic,
    percent: u32,
    /// The requests of the current interval.
    now: C,
    /// The intervals before, the latest first: their lengths and their requests.
    before: VecDeque<(Duration, C)>,
    /// The length of the present stretch, and its requests.
    stretch: (Duration, C),
}

impl<C: LatencyCollection> RecentPercentile<C> {
    /// A percentile without requests; `None` if the statistic is the mean.
    #[must_use]
    pub fn new(statistic: SignalStatistic) -> Option<Self> {
        let percent = statistic.percent()?;
        Some(Self {
            statistic,
            percent,
            now: C::default(),
            before: VecDeque::new(),
            stretch: (Duration::ZERO, C::default()),
        })
    }

    /// Returns the percentile's name.
    #[must_use]
    pub const fn statistic(&self) -> SignalStatistic {
        self.statistic
    }

    /// Returns the requests of the current interval, to add those that completed.
    pub const fn current(&mut self) -> &mut C {
        &mut self.now
    }

    /// Returns the percentile when an interval of that length ends; `None` if no request completed in it.
    pub fn end(&mut self, interval: Duration) -> Option<SignalPercentile> {
        let now = std::mem::take(&mut self.now);
        let count = now.count();
        let stretch = self.end_of_stretch(interval, &now);
        let mut seen = now.clone();
        let mut age = interval;
        self.before.retain(|(length, _)| {
            age = age.saturating_add(*length);
            age <= MEMORY
        });
        for (_, requests) in &self.before {
            if seen.count() >= self.statistic.least_requests() {
                break;
            }
            seen.merge(requests);
        }
        self.before.push_front((interval, now));
        let latency = self.quantile(&seen)?;
        (count > 0).then_some(SignalPercentile { statistic: self.statistic, count, latency, stretch })
    }

    /// Adds an interval to the stretch. Returns the percentile of the stretch if it ends with a request.
    fn end_of_stretch(&mut self, interval: Duration, now: &C) -> Option<Latency> {
        let (length, requests) = &mut self.stretch;
        *length = length.saturating_add(interval);
        requests.merge(now);
        let is_enough = requests.count() >= self.statistic.least_requests();
        if now.count() == 0 || *length < STRETCH.0 || !(is_enough || *length >= STRETCH.1) {
            return None;
        }
        let (_, requests) = std::mem::take(&mut self.stretch);
        self.quantile(&requests)
    }

    fn quantile(&self, requests: &C) -> Option<Latency> {
        requests.quantile(f64::from(self.percent) / 100.0)
    }
}

/// The percentile of the signal's requests, where each request is seen.
#[derive(Debug)]
pub struct SignalLatencies<C> {
    requests: SignalRequests,
    recent: RecentPercentile<C>,
    /// The end of the last control interval.
    since: Instant,
}

impl<C: LatencyCollection> SignalLatencies<C> {
    /// `None` if the law steers by the mean. `is_any_protected`: a consumer is, so that its reads may be the
    /// signal.
    #[must_use]
    pub fn new(law: &LoopConfig, is_any_protected: bool, now: Instant) -> Option<Self> {
        let requests = law.signal.requests(is_any_protected);
        Some(Self { requests, recent: RecentPercentile::new(law.statistic)?, since: now })
    }

    /// Returns the collection of a request that completed, to record its latency. `None`: the signal is of
    /// others.
    pub const fn of_request(&mut self, protected: bool, is_read: bool) -> Option<&mut C> {
        if self.requests.include(protected, is_read) { Some(self.recent.current()) } else { None }
    }

    /// Takes note of whose requests the signal is from now on.
    pub const fn set_requests(&mut self, requests: SignalRequests) {
        self.requests = requests;
    }

    /// Returns the percentile when a control interval ends.
    pub fn end(&mut self, now: Instant) -> Option<SignalPercentile> {
        let interval = now.saturating_since(self.since);
        self.since = now;
        self.recent.end(interval)
    }

    /// Forgets all requests: nothing was seen until now.
    pub fn begin_anew(&mut self, now: Instant) {
        if let Some(recent) = RecentPercentile::new(self.recent.statistic()) {
            (self.recent, self.since) = (recent, now);
        }
    }

    /// Returns the percentile's name.
    #[must_use]
    pub const fn statistic(&self) -> SignalStatistic {
        self.recent.statistic()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_millis(100);

    /// Latencies in milliseconds, each as it is.
    #[derive(Debug, Clone, Default)]
    struct Millis(Vec<u64>);

    impl LatencyCollection for Millis {
        fn count(&self) -> u64 {
            self.0.len() as u64
        }

        fn merge(&mut self, other: &Self) {
            self.0.extend(&other.0);
        }

        fn quantile(&self, fraction: f64) -> Option<Latency> {
            let mut sorted = self.0.clone();
            sorted.sort_unstable();
            let rank = ((fraction * sorted.len() as f64).ceil() as usize).max(1);
            sorted.get(rank - 1).copied().map(Latency::from_millis)
        }
    }

    fn told(percentile: &mut RecentPercentile<Millis>, millis: &[u64]) -> Option<SignalPercentile> {
        percentile.current().merge(&Millis(millis.to_vec()));
        percentile.end(INTERVAL)
    }

    fn is(told: Option<SignalPercentile>, millis: u64) -> bool {
        told.unwrap().latency == Latency::from_millis(millis)
    }

    #[test]
    fn the_mean_takes_no_collection() {
        assert!(RecentPercentile::<Millis>::new(SignalStatistic::Mean).is_none());
    }

    #[test]
    fn of_a_few_reads_the_slowest_is_not_what_nearly_all_take() {
        let mut p95 = RecentPercentile::new(SignalStatistic::P95).unwrap();
        for _ in 0..9 {
            told(&mut p95, &[8, 8]);
        }
        // One of twenty, in the last of ten intervals: 95 % take 8 ms, as they did before.
        let last = told(&mut p95, &[8, 90]);
        assert!(is(last, 8), "{last:?}");
        assert_eq!(last.unwrap().count, 2);
        // Two of twenty.
        let last = told(&mut p95, &[90, 8]);
        assert!(is(last, 90), "{last:?}");
    }

    #[test]
    fn where_there_are_enough_only_the_interval_counts() {
        let mut median = RecentPercentile::new(SignalStatistic::P50).unwrap();
        assert!(is(told(&mut median, &[40, 40, 40]), 40));
        assert!(is(told(&mut median, &[10, 10, 80]), 10));
        let mut p90 = RecentPercentile::new(SignalStatistic::P90).unwrap();
        assert!(is(told(&mut p90, &[40; 20]), 40));
        assert!(is(told(&mut p90, &[10; 10]), 10));
    }

    #[test]
    fn a_stretch_takes_a_second_and_enough_reads_and_no_read_twice() {
        let mut p90 = RecentPercentile::new(SignalStatistic::P90).unwrap();
        let stretch = |told: Option<SignalPercentile>| told.and_then(|told| told.stretch);
        for second in 0..3 {
            // Ten reads of 1 to 10 ms more than in the second before.
            for read in 1..10 {
                assert_eq!(stretch(told(&mut p90, &[10 * second + read])), None);
            }
            let ended = stretch(told(&mut p90, &[10 * second + 10]));
            assert_eq!(ended, Some(Latency::from_millis(10 * second + 9)));
        }
        // Nine in a second are too few: the stretch waits for the tenth, at the latest for five seconds.
        for _ in 0..9 {
            assert_eq!(stretch(told(&mut p90, &[50])), None);
        }
        for _ in 0..20 {
            assert_eq!(told(&mut p90, &[]), None);
        }
        assert_eq!(stretch(told(&mut p90, &[90])), Some(Latency::from_millis(50)));
        for _ in 0..60 {
            assert_eq!(told(&mut p90, &[]), None);
        }
        assert_eq!(stretch(told(&mut p90, &[70])), Some(Latency::from_millis(70)));
    }

    #[test]
    fn an_interval_without_reads_has_none_and_two_seconds_are_forgotten() {
        let mut p99 = RecentPercentile::new(SignalStatistic::P99).unwrap();
        assert!(is(told(&mut p99, &[70]), 70));
        for _ in 0..18 {
            assert_eq!(told(&mut p99, &[]), None);
        }
        assert!(is(told(&mut p99, &[5]), 70), "19 intervals ago");
        assert!(is(told(&mut p99, &[5]), 5), "20 intervals ago");
    }
}
