//! Columns of a time series.

use tidegate_sim::SeriesRow;

/// The columns, in order: when and who ([`NAMES`] of them), then [`numbers`].
pub(super) const COLUMNS: [&str; NAMES + NUMBERS] = [
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
];

/// Columns that say which row it is: the time, the host and the consumer.
pub(super) const NAMES: usize = 3;

/// Columns of numbers, which may have no value.
pub(super) const NUMBERS: usize = 13;

/// The numbers of a row, in the order of the columns. `None` has no value: an empty field of CSV, a null of
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
    ]
}
