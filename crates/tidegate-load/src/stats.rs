//! The counters of a running load.

use std::time::Duration;

use hdrhistogram::Histogram;
use tidegate_nbd::Errno;
use tidegate_units::Latency;

/// Response times are told apart from 1 µs up; longer ones than ten minutes count as ten minutes. Three
/// digits.
const LEAST: u64 = 1_000;
const GREATEST: u64 = 600_000_000_000;
const DIGITS: u8 = 3;

/// A day of seconds is kept one by one (some 7 MiB); of a longer run the rest is in the totals only.
const MAX_SECONDS: usize = 86_400;

/// The completions of one kind of operation in some time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OperationSample {
    /// Requests answered with success.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Requests answered with an error; in no other figure.
    pub errors: u64,
    /// The sum of the response times.
    pub latency_sum: Latency,
    /// The greatest response time; zero if there is none.
    pub latency_max: Latency,
}

impl OperationSample {
    /// The mean response time; none without a request.
    #[must_use]
    pub fn latency_mean(&self) -> Option<Latency> {
        self.latency_sum.as_nanos().checked_div(self.count).map(Latency::from_nanos)
    }

    /// The two together.
    fn and(self, other: Self) -> Self {
        Self {
            count: self.count + other.count,
            bytes: self.bytes + other.bytes,
            errors: self.errors + other.errors,
            latency_sum: self.latency_sum.saturating_add(other.latency_sum),
            latency_max: self.latency_max.max(other.latency_max),
        }
    }

    fn record(&mut self, bytes: u32, latency: Latency) {
        self.count += 1;
        self.bytes += u64::from(bytes);
        self.latency_sum = self.latency_sum.saturating_add(latency);
        self.latency_max = self.latency_max.max(latency);
    }
}

/// The completions since the last sample was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LoadSample {
    /// The time since the last sample.
    pub span: Duration,
    /// Reads.
    pub reads: OperationSample,
    /// Writes.
    pub writes: OperationSample,
    /// The number of requests outstanding now.
    pub in_flight: usize,
}

/// An answered request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LoadCompletion {
    pub(crate) read: bool,
    pub(crate) bytes: u32,
    /// The response time, or the error.
    pub(crate) outcome: Result<Latency, Errno>,
}

/// Everything about one kind of operation.
#[derive(Debug)]
pub(crate) struct OperationStats {
    pub(crate) total: OperationSample,
    pub(crate) histogram: Histogram<u64>,
    sample: OperationSample,
}

impl OperationStats {
    fn new() -> Self {
        let histogram = Histogram::new_with_bounds(LEAST, GREATEST, DIGITS)
            .expect("constant bounds, the greater one more than twice the lesser");
        Self { total: OperationSample::default(), histogram, sample: OperationSample::default() }
    }

    /// The two kinds of operation together.
    pub(crate) fn and(&self, other: &Self) -> Self {
        let mut histogram = self.histogram.clone();
        histogram.add(&other.histogram).expect("both have the same bounds");
        Self { total: self.total.and(other.total), histogram, sample: self.sample.and(other.sample) }
    }
}

/// Reads and writes of one second.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Second {
    pub(crate) reads: OperationSample,
    pub(crate) writes: OperationSample,
}

/// All the figures of a load.
#[derive(Debug)]
pub(crate) struct LoadStats {
    pub(crate) reads: OperationStats,
    pub(crate) writes: OperationStats,
    /// By the second in which the requests completed, since the load began.
    pub(crate) seconds: Vec<Second>,
    pub(crate) first_error: Option<Errno>,
    /// The time of the latest completion, since the load began.
    pub(crate) last_completion: Duration,
    sampled: Duration,
}

impl LoadStats {
    pub(crate) fn new() -> Self {
        Self {
            reads: OperationStats::new(),
            writes: OperationStats::new(),
            seconds: Vec::new(),
            first_error: None,
            last_completion: Duration::ZERO,
            sampled: Duration::ZERO,
        }
    }

    /// Counts requests that completed `at` a time since the load began.
    pub(crate) fn record(&mut self, at: Duration, completions: &[LoadCompletion]) {
        if completions.is_empty() {
            return;
        }
        self.last_completion = self.last_completion.max(at);
        let index = usize::try_from(at.as_secs()).unwrap_or(usize::MAX);
        if index < MAX_SECONDS && index >= self.seconds.len() {
            self.seconds.resize(index + 1, Second::default());
        }
        let mut discarded = Second::default();
        let second = self.seconds.get_mut(index).unwrap_or(&mut discarded);
        for completion in completions {
            let (operation, second) = if completion.read {
                (&mut self.reads, &mut second.reads)
            } else {
                (&mut self.writes, &mut second.writes)
            };
            let samples = [&mut operation.total, &mut operation.sample, second];
            match completion.outcome {
                Ok(latency) => {
                    operation.histogram.saturating_record(latency.as_nanos());
                    for sample in samples {
                        sample.record(completion.bytes, latency);
                    }
                }
                Err(errno) => {
                    self.first_error.get_or_insert(errno);
                    for sample in samples {
                        sample.errors += 1;
                    }
                }
            }
        }
    }

    /// Returns the completions since the last call.
    pub(crate) fn sample(&mut self, now: Duration, in_flight: usize) -> LoadSample {
        let span = now.saturating_sub(self.sampled);
        self.sampled = now;
        LoadSample {
            span,
            reads: std::mem::take(&mut self.reads.sample),
            writes: std::mem::take(&mut self.writes.sample),
            in_flight,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(millis: u64) -> LoadCompletion {
        LoadCompletion { read: true, bytes: 4096, outcome: Ok(Latency::from_millis(millis)) }
    }

    #[test]
    fn totals_samples_and_seconds_count_the_same_requests() {
        let mut stats = LoadStats::new();
        let failed = LoadCompletion { read: false, bytes: 4096, outcome: Err(Errno::NoSpc) };
        stats.record(Duration::from_millis(200), &[read(1), read(3)]);
        let first = stats.sample(Duration::from_millis(500), 2);
        stats.record(Duration::from_millis(2_500), &[read(8), failed]);
        let second = stats.sample(Duration::from_secs(3), 0);

        assert_eq!((first.reads.count, second.reads.count), (2, 1));
        assert_eq!(first.reads.latency_mean(), Some(Latency::from_millis(2)));
        assert_eq!((first.span, first.in_flight), (Duration::from_millis(500), 2));
        assert_eq!(second.span, Duration::from_millis(2_500));
        assert_eq!((second.writes.count, second.writes.errors), (0, 1));
        assert_eq!(second.writes.latency_mean(), None);
        assert_eq!(stats.sample(Duration::from_secs(3), 0), LoadSample::default());

        assert_eq!(stats.reads.total.bytes, 3 * 4096);
        assert_eq!(stats.reads.total.latency_max, Latency::from_millis(8));
        assert_eq!(stats.seconds.iter().map(|second| second.reads.count).collect::<Vec<_>>(), [2, 0, 1]);
        assert_eq!(stats.first_error, Some(Errno::NoSpc));
    }

    #[test]
    fn absurd_times_are_counted_and_take_no_room() {
        let mut stats = LoadStats::new();
        let endless = LoadCompletion { outcome: Ok(Latency::MAX), ..read(0) };
        stats.record(Duration::MAX, &[endless, endless]);
        assert_eq!(stats.reads.total.count, 2);
        assert_eq!(stats.reads.total.latency_sum, Latency::MAX);
        assert!(stats.reads.histogram.max() < GREATEST + GREATEST / 1000);
        assert!(stats.seconds.is_empty());
    }
}
