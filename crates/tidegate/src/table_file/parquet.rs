//! Rows as Parquet: doubles, and two columns of names.
//!
//! A file is a part of the crate's low interface, columns of primitive types: what Arrow's arrays add on top
//! of it would be copied into them only to be taken out again.

use std::fs::File;
use std::io;
use std::sync::Arc;

use parquet::basic::{LogicalType, Repetition, Type as Physical};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::Type;
use tidegate_program::rows::{NAMES, TableRow};

/// Rows that are kept in memory until they are written together: some ten megabytes.
const GROUP: usize = 65_536;

/// A Parquet file that takes rows.
pub(crate) struct ParquetFile {
    writer: SerializedFileWriter<File>,
    times: Vec<f64>,
    first: Vec<ByteArray>,
    second: Vec<ByteArray>,
    numbers: Vec<ParquetColumn>,
}

/// Values that may be missing: those that are there, and for each row whether it has one.
#[derive(Clone, Default)]
struct ParquetColumn {
    values: Vec<f64>,
    levels: Vec<i16>,
}

impl ParquetFile {
    pub(super) fn new(file: File, columns: &[&str]) -> io::Result<Self> {
        let schema = Arc::new(schema(columns).map_err(failed)?);
        let properties = Arc::new(WriterProperties::builder().build());
        Ok(Self {
            writer: SerializedFileWriter::new(file, schema, properties).map_err(failed)?,
            times: Vec::new(),
            first: Vec::new(),
            second: Vec::new(),
            numbers: vec![ParquetColumn::default(); columns.len() - NAMES],
        })
    }

    pub(super) fn write(&mut self, row: &TableRow<'_>) -> io::Result<()> {
        self.times.push(row.time_s);
        let [first, second] = row.names;
        self.first.push(first.into());
        self.second.push(second.into());
        for (column, value) in self.numbers.iter_mut().zip(row.numbers) {
            column.levels.push(i16::from(value.is_some()));
            column.values.extend(value);
        }
        if self.times.len() == GROUP { self.write_group().map_err(failed) } else { Ok(()) }
    }

    pub(super) fn finish(mut self) -> io::Result<()> {
        if !self.times.is_empty() {
            self.write_group().map_err(failed)?;
        }
        self.writer.close().map(drop).map_err(failed)
    }

    fn write_group(&mut self) -> Result<(), ParquetError> {
        let mut group = self.writer.next_row_group()?;
        write_column::<DoubleType>(&mut group, &self.times, None)?;
        write_column::<ByteArrayType>(&mut group, &self.first, None)?;
        write_column::<ByteArrayType>(&mut group, &self.second, None)?;
        for ParquetColumn { values, levels } in &self.numbers {
            write_column::<DoubleType>(&mut group, values, Some(levels))?;
        }
        group.close()?;
        self.times.clear();
        self.first.clear();
        self.second.clear();
        for column in &mut self.numbers {
            column.values.clear();
            column.levels.clear();
        }
        Ok(())
    }
}

fn write_column<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, File>,
    values: &[T::T],
    levels: Option<&[i16]>,
) -> Result<(), ParquetError> {
    let mut column = group.next_column()?.expect("a group is written by the columns of its schema");
    column.typed::<T>().write_batch(values, levels, None)?;
    column.close()
}

fn schema(columns: &[&str]) -> Result<Type, ParquetError> {
    let column = |(position, name): (usize, &&str)| {
        let column = match position {
            0 => Type::primitive_type_builder(name, Physical::DOUBLE).with_repetition(Repetition::REQUIRED),
            1..NAMES => Type::primitive_type_builder(name, Physical::BYTE_ARRAY)
                .with_logical_type(Some(LogicalType::String))
                .with_repetition(Repetition::REQUIRED),
            _ => Type::primitive_type_builder(name, Physical::DOUBLE).with_repetition(Repetition::OPTIONAL),
        };
        column.build().map(Arc::new)
    };
    let columns = columns.iter().enumerate().map(column).collect::<Result<_, _>>()?;
    Type::group_type_builder("series").with_fields(columns).build()
}

/// Returns the system's error if the system caused this one, otherwise one that wraps it.
fn failed(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(source) => match source.downcast::<io::Error>() {
            Ok(system) => *system,
            Err(other) => io::Error::other(other),
        },
        other => io::Error::other(other),
    }
}

#[cfg(test)]
mod tests {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::RowAccessor;

    use super::*;

    #[test]
    fn rows_of_several_groups_are_read_as_they_were_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("series.parquet");
        let columns = ["time_s", "host", "consumer", "window", "outstanding"];
        let mut file = ParquetFile::new(File::create(&path).unwrap(), &columns).unwrap();
        let names = ["h", "vm, \"ä\""];
        let window = |second: usize| second.is_multiple_of(3).then_some(second as f64 / 7.0);
        for second in 0..GROUP + 10 {
            let numbers = [window(second), Some(second as f64)];
            file.write(&TableRow { time_s: second as f64, names, numbers: &numbers }).unwrap();
        }
        file.finish().unwrap();
        let reader = SerializedFileReader::new(File::open(&path).unwrap()).unwrap();
        assert_eq!(reader.metadata().num_row_groups(), 2);
        assert_eq!(reader.metadata().file_metadata().num_rows() as usize, GROUP + 10);
        for (second, row) in reader.get_row_iter(None).unwrap().enumerate() {
            let row = row.unwrap();
            assert_eq!(row.get_double(0).unwrap().to_bits(), (second as f64).to_bits());
            assert_eq!(
                (row.get_string(1).unwrap().as_str(), row.get_string(2).unwrap().as_str()),
                (names[0], names[1])
            );
            assert_eq!(row.get_double(3).ok().map(f64::to_bits), window(second).map(f64::to_bits));
            assert_eq!(row.get_double(4).unwrap().to_bits(), (second as f64).to_bits());
        }
    }
}
