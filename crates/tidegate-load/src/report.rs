//! The findings of a load, for people and for programs.

use std::fmt;
use std::time::Duration;

use serde::Serialize;
use tidegate_units::{ByteRate, Iops, Latency};

use crate::stats::{LoadStats, OperationSample, OperationStats};

/// The result of a load. Serialised, its keys carry their units.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LoadReport {
    /// The target's URI.
    pub target: String,
    /// From the beginning to the end, the last answer included, in seconds.
    pub duration_s: f64,
    /// The reads.
    pub reads: OperationReport,
    /// The writes.
    pub writes: OperationReport,
    /// Reads and writes together.
    pub all: OperationReport,
    /// Requests of an open loop that were due and still waited for room at the end: about this many.
    pub unsent: u64,
    /// Requests without an answer when the connections were closed at last.
    pub unanswered: u64,
    /// The first error that a request was answered with.
    pub first_error: Option<String>,
    /// The end of the session before that of the load. `null`: the load ran to its end.
    pub cut_short: Option<CutShort>,
    /// Second by second, by when requests completed; a day at most.
    pub seconds: Vec<SecondReport>,
}

/// The end of a session before that of its load.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CutShort {
    /// The time since the beginning, in seconds.
    pub after_s: f64,
    /// The reason.
    pub reason: String,
}

/// One kind of operation.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct OperationReport {
    /// Requests answered with success.
    pub requests: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Requests answered with an error; in no other figure.
    pub errors: u64,
    /// Requests per second over the whole duration, pauses included.
    pub iops: f64,
    /// Bytes per second over the whole duration, pauses included.
    pub bytes_per_s: f64,
    /// Response times in milliseconds; none without a request.
    pub latency_ms: Option<LatencyReport>,
}

/// Response times in milliseconds. Mean and maximum are exact, percentiles to three digits.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct LatencyReport {
    /// The arithmetic mean.
    pub mean: f64,
    /// The median.
    pub p50: f64,
    /// 95 % are not longer.
    pub p95: f64,
    /// 99 % are not longer.
    pub p99: f64,
    /// 99.9 % are not longer.
    #[serde(rename = "p99.9")]
    pub p99_9: f64,
    /// The longest.
    pub max: f64,
}

/// One second.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct SecondReport {
    /// Reads that completed in it.
    pub reads: u64,
    /// Their bytes.
    pub read_bytes: u64,
    /// Their mean response time in milliseconds.
    pub read_mean_ms: Option<f64>,
    /// Their longest response time in milliseconds.
    pub read_max_ms: Option<f64>,
    /// Writes that completed in it.
    pub writes: u64,
    /// Their bytes.
    pub write_bytes: u64,
    /// Their mean response time in milliseconds.
    pub write_mean_ms: Option<f64>,
    /// Their longest response time in milliseconds.
    pub write_max_ms: Option<f64>,
    /// Requests answered with an error.
    pub errors: u64,
}

impl LoadReport {
    pub(crate) fn new(
        target: String,
        ended: Duration,
        stats: &LoadStats,
        unsent: u64,
        unanswered: u64,
    ) -> Self {
        let duration_s = ended.max(stats.last_completion).as_secs_f64();
        Self {
            target,
            duration_s,
            reads: OperationReport::new(&stats.reads, duration_s),
            writes: OperationReport::new(&stats.writes, duration_s),
            all: OperationReport::new(&stats.reads.and(&stats.writes), duration_s),
            unsent,
            unanswered,
            first_error: stats.first_error.map(|errno| errno.to_string()),
            cut_short: None,
            seconds: stats
                .seconds
                .iter()
                .map(|second| SecondReport::new(&second.reads, &second.writes))
                .collect(),
        }
    }
}

impl OperationReport {
    fn new(operation: &OperationStats, duration_s: f64) -> Self {
        let total = &operation.total;
        let percentile =
            |share| Latency::from_nanos(operation.histogram.value_at_quantile(share)).as_millis_f64();
        let latency_ms = total.latency_mean().map(|mean| LatencyReport {
            mean: mean.as_millis_f64(),
            p50: percentile(0.5),
            p95: percentile(0.95),
            p99: percentile(0.99),
            p99_9: percentile(0.999),
            max: total.latency_max.as_millis_f64(),
        });
        Self {
            requests: total.count,
            bytes: total.bytes,
            errors: total.errors,
            iops: per_second(total.count, duration_s),
            bytes_per_s: per_second(total.bytes, duration_s),
            latency_ms,
        }
    }
}

fn per_second(count: u64, duration_s: f64) -> f64 {
    if duration_s > 0.0 { count as f64 / duration_s } else { 0.0 }
}

impl SecondReport {
    fn new(reads: &OperationSample, writes: &OperationSample) -> Self {
        let mean = |sample: &OperationSample| sample.latency_mean().map(Latency::as_millis_f64);
        let max = |sample: &OperationSample| (sample.count > 0).then(|| sample.latency_max.as_millis_f64());
        Self {
            reads: reads.count,
            read_bytes: reads.bytes,
            read_mean_ms: mean(reads),
            read_max_ms: max(reads),
            writes: writes.count,
            write_bytes: writes.bytes,
            write_mean_ms: mean(writes),
            write_max_ms: max(writes),
            errors: reads.errors + writes.errors,
        }
    }
}

impl fmt::Display for LoadReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} for {:.1} s", self.target, self.duration_s)?;
        writeln!(
            f,
            "{:6} {:>10} {:>12} {:>12} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}",
            "", "requests", "rate", "throughput", "mean", "p50", "p95", "p99", "p99.9", "max"
        )?;
        for (name, operation) in [("reads", &self.reads), ("writes", &self.writes)] {
            if operation.requests + operation.errors > 0 {
                write_row(f, name, operation)?;
            }
        }
        if self.reads.requests + self.writes.requests == 0 {
            writeln!(f, "no request was answered with success")?;
        }
        let errors = self.reads.errors + self.writes.errors;
        if let Some(first) = &self.first_error {
            writeln!(f, "{errors} requests were answered with an error, the first: {first}")?;
        }
        if self.unanswered > 0 {
            writeln!(f, "{} requests were not answered", self.unanswered)?;
        }
        if self.unsent > 0 {
            writeln!(f, "about {} requests were due and could not be sent", self.unsent)?;
        }
        Ok(())
    }
}

fn write_row(f: &mut fmt::Formatter<'_>, name: &str, operation: &OperationReport) -> fmt::Result {
    let rate = Iops::new(operation.iops).to_string();
    let throughput = ByteRate::new(operation.bytes_per_s).to_string();
    write!(f, "{name:6} {:>10} {rate:>12} {throughput:>12}", operation.requests)?;
    if let Some(latency) = &operation.latency_ms {
        let LatencyReport { mean, p50, p95, p99, p99_9, max } = *latency;
        for millis in [mean, p50, p95, p99, p99_9, max] {
            write!(f, " {:>9}", Latency::from_millis_f64(millis).to_string())?;
        }
    }
    writeln!(f)
}

#[cfg(test)]
mod tests {
    use tidegate_nbd::Errno;

    use super::*;
    use crate::stats::LoadCompletion;

    fn report() -> LoadReport {
        let mut stats = LoadStats::new();
        let completions: Vec<_> = (1..=1000)
            .map(|micros| LoadCompletion {
                read: true,
                bytes: 4096,
                outcome: Ok(Latency::from_micros(micros * 10)),
            })
            .collect();
        stats.record(Duration::from_millis(1_500), &completions);
        let failed = LoadCompletion { read: false, bytes: 4096, outcome: Err(Errno::Io) };
        stats.record(Duration::from_secs(2), &[failed]);
        LoadReport::new("nbd://host:10809/disk".to_owned(), Duration::from_secs(2), &stats, 3, 4)
    }

    #[test]
    fn figures_follow_from_the_samples() {
        let report = report();
        let latency = report.reads.latency_ms.unwrap();
        let near = |value: f64, expected: f64| assert!((value / expected - 1.0).abs() < 0.002, "{value}");
        near(latency.mean, 5.005);
        near(latency.p50, 5.0);
        near(latency.p95, 9.5);
        near(latency.p99, 9.9);
        near(latency.p99_9, 9.99);
        near(latency.max, 10.0);
        near(report.reads.iops, 500.0);
        near(report.reads.bytes_per_s, 500.0 * 4096.0);
        assert_eq!(report.writes.latency_ms, None);
        assert_eq!(report.seconds.len(), 3);
        assert_eq!(report.seconds[0].read_mean_ms, None);
        assert_eq!((report.seconds[1].reads, report.seconds[2].errors), (1000, 1));
    }

    #[test]
    fn people_see_every_figure() {
        let text = report().to_string();
        let expected = [
            "nbd://host:10809/disk for 2.0 s",
            "         requests         rate   throughput      mean       p50       p95       p99     \
                p99.9       max",
            "reads        1000     500 IO/s    2.0 MiB/s    5.00ms    5.00ms    9.50ms    9.90ms    \
                9.99ms    10.0ms",
            "writes          0     0.0 IO/s        0 B/s",
            "1 requests were answered with an error, the first: input/output error",
            "4 requests were not answered",
            "about 3 requests were due and could not be sent",
        ];
        assert_eq!(text.lines().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_load_of_no_time_has_no_rates() {
        let report = LoadReport::new("x".to_owned(), Duration::ZERO, &LoadStats::new(), 0, 0);
        assert!(report.reads.iops.abs() < f64::EPSILON);
        assert!(report.to_string().contains("no request was answered"));
    }
}
