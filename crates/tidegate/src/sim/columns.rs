//! Columns of a time series.

use tidegate_sim::SeriesRow;

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
pub(super) fn columns(has_percentiles: bool) -> &'static [&'static str] {
    if has_percentiles { &COLUMNS } else { &COLUMNS[..COLUMNS.len() - 1] }
}

/// Columns that say which row it is: the time, the host and the consumer.
pub(super) const NAMES: usize = 3;

/// Columns of numbers, which may have no value.
const NUMBERS: usize = 14;

/// The numbers of a row, in the order of all columns. `None` has no value: an empty field of CSV, a null of
/// Parquet.
pub(super) fn numbers(row: &SeriesRow<'_>) -> [Option<f64>; NUMBERS] {
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
