//! Files of rows for other programs: CSV or Parquet.

mod parquet;

use std::fs::File;
use std::io;
use std::path::PathBuf;

use thiserror::Error;
use tidegate_program::rows::{CsvFile, TableRow};

use crate::failure::CommandFailure;
use parquet::ParquetFile;

/// The format of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TableFormat {
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
    /// Creates the file with these columns.
    pub(crate) fn create(&self, columns: &[&str]) -> Result<TableFile, CommandFailure> {
        let created = match self.format {
            TableFormat::Csv => CsvFile::create(&self.path, columns).map(TableFile::Csv),
            TableFormat::Parquet => File::create(&self.path)
                .and_then(|file| ParquetFile::new(file, columns))
                .map(|file| TableFile::Parquet(Box::new(file))),
        };
        created.map_err(|source| self.unwritable(source))
    }

    pub(crate) fn unwritable(&self, source: io::Error) -> CommandFailure {
        CommandFailure::WriteTable { path: self.path.clone(), source }
    }
}

/// A file that takes rows.
pub(crate) enum TableFile {
    Csv(CsvFile),
    Parquet(Box<ParquetFile>),
}

impl TableFile {
    pub(crate) fn write(&mut self, row: &TableRow<'_>) -> io::Result<()> {
        match self {
            Self::Csv(file) => file.write(row),
            Self::Parquet(file) => file.write(row),
        }
    }

    /// Writes what is left. A file that was not finished is not complete, and one of Parquet cannot be read
    /// at all.
    pub(crate) fn finish(self) -> io::Result<()> {
        match self {
            Self::Csv(file) => file.finish(),
            Self::Parquet(file) => file.finish(),
        }
    }
}
