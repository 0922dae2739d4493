//! Columns of a simulation's time series.

use std::io;

use tidegate_sim::SeriesRow;

use crate::rows::{NAMES, TableRow};

/// The columns, in order: when and who ([`NAMES`] of them), then [`numbers`].
const COLUMNS: [&str; NAMES + NUMBERS] = [
    "time_s",
    "host",
    "consumer",
    "window",
    "rate",
    "beta",
    "latency_local_ms",
    "latency_cluster_ms",
    "estimate_ms",
    "device_latency_ms",
    "latency_ms",
    "released_ms",
    "iops",
    "bytes_per_s",
    "ops_per_s",
    "outstanding",
    "device_percentile_ms",
];

/// Returns the columns of a series. The last one is only in series that have percentiles, so that all others
/// are as they were before there were any.
#[must_use]
pub fn columns(has_percentiles: bool) -> &'static [&'static str] {
    if has_percentiles { &COLUMNS } else { &COLUMNS[..COLUMNS.len() - 1] }
}

/// Columns of numbers, which may have no value.
const NUMBERS: usize = 14;

/// Writes a row by `write`, to a file with all [`columns`], or without the last one.
///
/// # Errors
/// The error of `write`.
pub fn write_row(
    row: &SeriesRow<'_>,
    has_percentiles: bool,
    write: impl FnOnce(&TableRow<'_>) -> io::Result<()>,
) -> io::Result<()> {
    let numbers = numbers(row);
    let numbers = if has_percentiles { &numbers[..] } else { &numbers[..NUMBERS - 1] };
    write(&TableRow { time_s: row.time_s, names: [row.host.as_str(), row.consumer.as_str()], numbers })
}

/// Returns the numbers of a row, in the order of all columns.
fn numbers(row: &SeriesRow<'_>) -> [Option<f64>; NUMBERS] {
    let sample = row.sample;
    [
        sample.window,
        sample.rate,
        sample.beta,
        sample.latency_local_ms,
        sample.latency_cluster_ms,
        sample.estimate_ms,
        sample.device_latency_ms,
        sample.latency_ms,
        sample.released_ms,
        Some(sample.iops),
        Some(sample.bytes_per_s),
        Some(sample.ops_per_s),
        Some(sample.outstanding),
        sample.device_percentile_ms,
    ]
}
