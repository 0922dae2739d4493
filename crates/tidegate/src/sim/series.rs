//! The time series as a file.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use thiserror::Error;
use tidegate_sim::SeriesRow;

use super::columns::{NAMES, columns, numbers};
use super::parquet::ParquetFile;
use crate::failure::CommandFailure;

/// The format of a time series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SeriesFormat {
    /// Text, as RFC 4180 has it, with a line of names.
    Csv,
    /// Apache Parquet.
    Parquet,
}

/// The file of a time series and its format, which the file's name tells.
#[derive(Debug, Clone)]
pub(super) struct SeriesPath {
    path: PathBuf,
    format: SeriesFormat,
}

/// A name that promises another format would mislead whatever reads the file.
#[derive(Debug, Error)]
#[error("a time series is written as CSV or as Parquet: the name must end in `.csv` or `.parquet`")]
pub(super) struct UnknownFormat;

impl TryFrom<PathBuf> for SeriesPath {
    type Error = UnknownFormat;

    fn try_from(path: PathBuf) -> Result<Self, UnknownFormat> {
        let ends_in = |name| path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case(name));
        let format = if ends_in("csv") {
            SeriesFormat::Csv
        } else if ends_in("parquet") {
            SeriesFormat::Parquet
        } else {
            return Err(UnknownFormat);
        };
        Ok(Self { path, format })
    }
}

impl SeriesPath {
    pub(super) fn create(&self, has_percentiles: bool) -> Result<SeriesFile, CommandFailure> {
        SeriesFile::create(&self.path, self.format, has_percentiles).map_err(|source| self.unwritable(source))
    }

    pub(super) fn unwritable(&self, source: io::Error) -> CommandFailure {
        CommandFailure::WriteSeries { path: self.path.clone(), source }
    }
}

/// A file that takes rows.
pub(crate) enum SeriesFile {
    Csv { out: BufWriter<File>, columns: &'static [&'static str] },
    Parquet(Box<ParquetFile>),
}

impl SeriesFile {
    /// Creates the file. It has a column for percentiles only if the series has some.
    pub(crate) fn create(path: &Path, format: SeriesFormat, has_percentiles: bool) -> io::Result<Self> {
        let columns = columns(has_percentiles);
        let file = File::create(path)?;
        match format {
            SeriesFormat::Csv => {
                let mut out = BufWriter::new(file);
                writeln!(out, "{}", columns.join(","))?;
                Ok(Self::Csv { out, columns })
            }
            SeriesFormat::Parquet => {
                ParquetFile::new(file, columns).map(|file| Self::Parquet(Box::new(file)))
            }
        }
    }

    pub(crate) fn write(&mut self, row: &SeriesRow<'_>) -> io::Result<()> {
        match self {
            Self::Csv { out, columns } => write_csv(out, row, columns.len() - NAMES),
            Self::Parquet(file) => file.write(row),
        }
    }

    /// Writes what is left. A file that was not finished is not complete, and one of Parquet cannot be read
    /// at all.
    pub(crate) fn finish(self) -> io::Result<()> {
        match self {
            Self::Csv { mut out, .. } => out.flush(),
            Self::Parquet(file) => file.finish(),
        }
    }
}

fn write_csv(out: &mut impl Write, row: &SeriesRow<'_>, count: usize) -> io::Result<()> {
    write!(out, "{},{},{}", row.time_s, quoted(row.host.as_str()), quoted(row.consumer.as_str()))?;
    for value in numbers(row).into_iter().take(count) {
        match value {
            // The shortest text that reads back as the same number.
            Some(value) => write!(out, ",{value}")?,
            None => out.write_all(b",")?,
        }
    }
    writeln!(out)
}

/// A field as RFC 4180 has it.
fn quoted(text: &str) -> String {
    if text.contains([',', '"']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}
