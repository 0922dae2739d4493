//! Interfaces to observe a simulation while it runs.

use serde::Serialize;
use tidegate_control::{Decision, Observation};
use tidegate_units::{ConsumerName, HostName, Instant};

/// Listens to a simulation. A recorder changes nothing in it.
pub trait Recorder {
    /// One row of the time series: one consumer over one interval. Rows come in the order of time, and of the
    /// scenario.
    fn row(&mut self, _row: &SeriesRow<'_>) {}

    /// A decision of a host's law, or of a virtual machine's where each has one.
    fn decision(&mut self, _host: &HostName, _consumer: Option<&ConsumerName>, _decision: &Decision) {}

    /// The observation that a decision follows from, just before it.
    fn observation(&mut self, _host: &HostName, _observation: &Observation) {}

    /// Virtual time has come this far. Called once per interval of the time series.
    fn progress(&mut self, _now: Instant) {}

    /// Returns true if the simulation is no longer wanted. Asked once in some thousand events.
    fn is_stopped(&self) -> bool {
        false
    }

    /// Returns true if rows are to be made at all.
    fn wants_rows(&self) -> bool {
        true
    }
}

/// Listens to nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct SilentRecorder;

impl Recorder for SilentRecorder {
    fn wants_rows(&self) -> bool {
        false
    }
}

/// One consumer over one interval of the time series.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct SeriesRow<'a> {
    /// The end of the interval, in seconds.
    pub time_s: f64,
    /// The consumer's host.
    pub host: &'a HostName,
    /// The consumer.
    pub consumer: &'a ConsumerName,
    /// The numbers.
    #[serde(flatten)]
    pub sample: SeriesSample,
}

/// The numbers of a row. `None` means that there is no value: nothing completed, or there is no such law.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct SeriesSample {
    /// The window that the consumer runs under at the end of the interval.
    pub window: Option<f64>,
    /// The rate at which its requests are released, where a law commands rates.
    pub rate: Option<f64>,
    /// β of the law's last decision.
    pub beta: Option<f64>,
    /// Latency that the law's own host measured in its last control interval.
    pub latency_local_ms: Option<f64>,
    /// Latency that all hosts measured together, as the law was told last.
    pub latency_cluster_ms: Option<f64>,
    /// The smoothed response time that the law compared with its set point last.
    pub estimate_ms: Option<f64>,
    /// The consumer's mean response time at the array.
    pub device_latency_ms: Option<f64>,
    /// The consumer's mean response time as it feels it.
    pub latency_ms: Option<f64>,
    /// Its mean time from a request's release by its bucket to its completion, where a law commands rates.
    pub released_ms: Option<f64>,
    /// Its requests per second.
    pub iops: f64,
    /// Its bytes per second.
    pub bytes_per_s: f64,
    /// Its operations per second.
    pub ops_per_s: f64,
    /// Its mean number of requests outstanding, its host's queue included.
    pub outstanding: f64,
    /// The percentile of its response times at the array over the interval. Of a protected consumer, only
    /// reads count. `None` if its host's statistic is the mean.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_percentile_ms: Option<f64>,
}

/// The time series in memory.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TimeSeries {
    rows: Vec<OwnedRow>,
}

/// A row that outlives the simulation.
#[derive(Debug, Clone, PartialEq)]
pub struct OwnedRow {
    /// The end of the interval, in seconds.
    pub time_s: f64,
    /// The consumer's host.
    pub host: HostName,
    /// The consumer.
    pub consumer: ConsumerName,
    /// The numbers.
    pub sample: SeriesSample,
}

impl TimeSeries {
    /// All rows, in the order of time, and of the scenario.
    #[must_use]
    pub fn rows(&self) -> &[OwnedRow] {
        &self.rows
    }

    /// A consumer's samples with their times in seconds.
    pub fn of_consumer<'a>(&'a self, name: &'a str) -> impl Iterator<Item = (f64, &'a SeriesSample)> {
        self.rows.iter().filter(move |row| row.consumer.as_str() == name).map(|row| (row.time_s, &row.sample))
    }
}

impl Recorder for TimeSeries {
    fn row(&mut self, row: &SeriesRow<'_>) {
        self.rows.push(OwnedRow {
            time_s: row.time_s,
            host: row.host.clone(),
            consumer: row.consumer.clone(),
            sample: row.sample,
        });
    }
}
