//! Rows for other programs, as CSV.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// Columns that say which row it is: a time in seconds, and two names.
pub const NAMES: usize = 3;

/// One row of a file. Columns after the names are numbers.
#[derive(Debug, Clone, Copy)]
pub struct TableRow<'a> {
    /// The time, in seconds.
    pub time_s: f64,
    /// The two names.
    pub names: [&'a str; 2],
    /// Numbers in the order of the columns. `None` has no value: an empty field of CSV, a null of Parquet.
    pub numbers: &'a [Option<f64>],
}

/// A file of rows: text, as RFC 4180 has it, with a line of names.
#[derive(Debug)]
pub struct CsvFile(BufWriter<File>);

impl CsvFile {
    /// Creates the file with these columns.
    ///
    /// # Errors
    /// When the file cannot be created or written.
    pub fn create(path: &Path, columns: &[&str]) -> io::Result<Self> {
        let mut out = BufWriter::new(File::create(path)?);
        writeln!(out, "{}", columns.join(","))?;
        Ok(Self(out))
    }

    /// Adds a row.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(&mut self, row: &TableRow<'_>) -> io::Result<()> {
        let [first, second] = row.names.map(quoted);
        write!(self.0, "{},{first},{second}", row.time_s)?;
        for value in row.numbers {
            match value {
                // The shortest text that reads back as the same number.
                Some(value) => write!(self.0, ",{value}")?,
                None => self.0.write_all(b",")?,
            }
        }
        writeln!(self.0)
    }

    /// Writes what is left. A file that was not finished is not complete.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn finish(mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// A field as RFC 4180 has it.
fn quoted(text: &str) -> String {
    if text.contains([',', '"']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted_and_missing_numbers_are_empty() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows.csv");
        let mut file = CsvFile::create(&path, &["time_s", "host", "consumer", "iops", "window"]).unwrap();
        file.write(&TableRow { time_s: 0.5, names: ["h", "a,\"b\""], numbers: &[Some(0.1), None] }).unwrap();
        file.finish().unwrap();
        let text = std::fs::read_to_string(path).unwrap();
        assert_eq!(text, "time_s,host,consumer,iops,window\n0.5,h,\"a,\"\"b\"\"\",0.1,\n");
    }
}
