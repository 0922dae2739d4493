//! The time series as a file.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use tidegate_sim::Row;

/// The columns, in order. The first three are the row's names.
pub(super) const COLUMNS: [&str; 14] = [
    "time_s",
    "host",
    "consumer",
    "window",
    "beta",
    "latency_local_ms",
    "latency_cluster_ms",
    "estimate_ms",
    "device_latency_ms",
    "latency_ms",
    "iops",
    "bytes_per_s",
    "ops_per_s",
    "outstanding",
];

/// A file that takes rows.
pub(crate) struct SeriesFile {
    out: BufWriter<File>,
}

impl SeriesFile {
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        // A name that promises another format would mislead whatever reads the file.
        if path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("parquet")) {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "a time series is written as CSV"));
        }
        let mut out = BufWriter::new(File::create(path)?);
        writeln!(out, "{}", COLUMNS.join(","))?;
        Ok(Self { out })
    }

    pub(crate) fn write(&mut self, row: &Row<'_>) -> io::Result<()> {
        write!(self.out, "{},{},{}", row.time_s, quoted(row.host.as_str()), quoted(row.consumer.as_str()))?;
        for value in numbers(row) {
            match value {
                Some(value) => write!(self.out, ",{value}")?,
                None => self.out.write_all(b",")?,
            }
        }
        writeln!(self.out)
    }

    pub(crate) fn finish(mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// The numbers of a row, in the order of the columns. `None` has no value, which is an empty field.
pub(super) fn numbers(row: &Row<'_>) -> [Option<f64>; 11] {
    let sample = row.sample;
    [
        sample.window,
        sample.beta,
        sample.latency_local_ms,
        sample.latency_cluster_ms,
        sample.estimate_ms,
        sample.device_latency_ms,
        sample.latency_ms,
        Some(sample.iops),
        Some(sample.bytes_per_s),
        Some(sample.ops_per_s),
        Some(sample.outstanding),
    ]
}

/// A field as RFC 4180 has it.
fn quoted(text: &str) -> String {
    if text.contains([',', '"']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}
