//! Files of rows for other programs: CSV or Parquet.

mod parquet;

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::failure::CommandFailure;
use parquet::ParquetFile;

/// Columns that say which row it is: a time in seconds, and two names.
pub(crate) const NAMES: usize = 3;

/// One row of a file. Columns after the names are numbers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TableRow<'a> {
    pub(crate) time_s: f64,
    pub(crate) names: [&'a str; 2],
    /// In the order of the columns. `None` has no value: an empty field of CSV, a null of Parquet.
    pub(crate) numbers: &'a [Option<f64>],
}

/// The format of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TableFormat {
    /// Text, as RFC 4180 has it, with a line of names.
    Csv,
    /// Apache Parquet.
    Parquet,
}

/// A file and its format, which the file's name tells.
#[derive(Debug, Clone)]
pub(crate) struct TablePath {
    path: PathBuf,
    format: TableFormat,
}

/// A name that promises another format would mislead whatever reads the file.
#[derive(Debug, Error)]
#[error("rows are written as CSV or as Parquet: the name must end in `.csv` or `.parquet`")]
pub(crate) struct UnknownFormat;

impl TryFrom<PathBuf> for TablePath {
    type Error = UnknownFormat;

    fn try_from(path: PathBuf) -> Result<Self, UnknownFormat> {
        let ends_in = |name| path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case(name));
        let format = if ends_in("csv") {
            TableFormat::Csv
        } else if ends_in("parquet") {
            TableFormat::Parquet
        } else {
            return Err(UnknownFormat);
        };
        Ok(Self { path, format })
    }
}

impl TablePath {
    pub(crate) fn create(&self, columns: &'static [&'static str]) -> Result<TableFile, CommandFailure> {
        TableFile::create(&self.path, self.format, columns).map_err(|source| self.unwritable(source))
    }

    pub(crate) fn unwritable(&self, source: io::Error) -> CommandFailure {
        CommandFailure::WriteTable { path: self.path.clone(), source }
    }
}

/// A file that takes rows.
pub(crate) enum TableFile {
    Csv(BufWriter<File>),
    Parquet(Box<ParquetFile>),
}

impl TableFile {
    /// Creates the file with these columns.
    pub(crate) fn create(
        path: &Path,
        format: TableFormat,
        columns: &'static [&'static str],
    ) -> io::Result<Self> {
        let file = File::create(path)?;
        match format {
            TableFormat::Csv => {
                let mut out = BufWriter::new(file);
                writeln!(out, "{}", columns.join(","))?;
                Ok(Self::Csv(out))
            }
            TableFormat::Parquet => ParquetFile::new(file, columns).map(|file| Self::Parquet(Box::new(file))),
        }
    }

    pub(crate) fn write(&mut self, row: &TableRow<'_>) -> io::Result<()> {
        match self {
            Self::Csv(out) => write_csv(out, row),
            Self::Parquet(file) => file.write(row),
        }
    }

    /// Writes what is left. A file that was not finished is not complete, and one of Parquet cannot be read
    /// at all.
    pub(crate) fn finish(self) -> io::Result<()> {
        match self {
            Self::Csv(mut out) => out.flush(),
            Self::Parquet(file) => file.finish(),
        }
    }
}

fn write_csv(out: &mut impl Write, row: &TableRow<'_>) -> io::Result<()> {
    let [first, second] = row.names.map(quoted);
    write!(out, "{},{first},{second}", row.time_s)?;
    for value in row.numbers {
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
