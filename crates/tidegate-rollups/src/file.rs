//! Files of rollups: their names, and the one that a service appends to.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use crate::calendar::Month;
use crate::code::{BlockEncoder, generation};
use crate::error::RollupError;
use crate::frame::{BlockReader, FoundPart, HEADER, check_header, header, length, push_block, seed};
use crate::rollup::MinuteBatch;

/// The folder of rollups in that of the decision journal.
const FOLDER: &str = "rollups";

const EXTENSION: &str = "tdgr";

/// The most files of a month. A new one begins where the last one cannot be appended to.
const MOST_FILES: u32 = 9;

/// Returns the folder of rollups beside a decision journal.
pub(crate) fn folder(journal: &Path) -> PathBuf {
    journal.join(FOLDER)
}

/// A file of rollups by its name, `2026-11.1.tdgr`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RollupFile {
    pub(crate) month: Month,
    /// Number of the file within its month, from 1.
    pub(crate) number: u32,
    pub(crate) path: PathBuf,
}

impl RollupFile {
    fn new(folder: &Path, month: Month, number: u32) -> Self {
        Self { month, number, path: folder.join(format!("{month}.{number}.{EXTENSION}")) }
    }

    fn of(path: PathBuf) -> Option<Self> {
        let (month, number) =
            path.file_name()?.to_str()?.strip_suffix(EXTENSION)?.strip_suffix('.')?.split_once('.')?;
        let (month, number) = (month.parse().ok()?, number.parse().ok()?);
        Some(Self { month, number, path })
    }

    /// Returns the files of a folder in the order of their months and numbers.
    pub(crate) fn all(folder: &Path) -> Result<Vec<Self>, RollupError> {
        let mut found = Vec::new();
        for entry in fs::read_dir(folder).map_err(RollupError::io(folder))? {
            let path = entry.map_err(RollupError::io(folder))?.path();
            found.extend(Self::of(path));
        }
        found.sort();
        Ok(found)
    }
}

/// Reads the header of a file, and returns the checksum from which those of its blocks begin.
pub(crate) fn read_header(file: &mut File, path: &Path, month: Month) -> Result<u32, RollupError> {
    let mut beginning = Vec::new();
    let read = Read::take(&mut *file, HEADER as u64).read_to_end(&mut beginning);
    read.map_err(RollupError::io(path))?;
    check_header(path, &beginning, month)
}

/// The file of a month that a service appends to.
#[derive(Debug)]
pub(crate) struct OpenMonth {
    pub(crate) month: Month,
    path: PathBuf,
    file: File,
    seed: u32,
    /// The end of what is written.
    end: u64,
    blocks: BlockEncoder,
}

/// Reason why a minute was not appended.
#[derive(Debug)]
pub(crate) struct AppendError {
    pub(crate) source: io::Error,
    /// True if no part of the minute is in the file.
    pub(crate) is_undone: bool,
}

impl OpenMonth {
    /// Opens the last file of a month, without the torn end that a crash may have left. A file that cannot be
    /// appended to stays as it is, and the next one begins.
    pub(crate) fn open(folder: &Path, month: Month) -> Result<Self, RollupError> {
        let files = RollupFile::all(folder)?;
        let last = files.into_iter().rfind(|file| file.month == month);
        let Some(last) = last else { return Self::create(RollupFile::new(folder, month, 1)) };
        match Self::append_to(&last) {
            Err(error @ RollupError::Io { .. }) => Err(error),
            Err(error) if last.number < MOST_FILES => {
                tracing::warn!("{error}; rollups go on in another file of the month");
                Self::create(RollupFile::new(folder, month, last.number + 1))
            }
            other => other,
        }
    }

    fn create(new: RollupFile) -> Result<Self, RollupError> {
        let RollupFile { month, path, .. } = new;
        let file = OpenOptions::new().append(true).create_new(true).open(&path);
        let mut file = file.map_err(RollupError::io(&path))?;
        let header = header(month);
        if let Err(error) = file.write_all(&header) {
            // A file without its header says nothing.
            let _ = fs::remove_file(&path);
            return Err(RollupError::io(&path)(error));
        }
        let blocks = BlockEncoder::new(month, 0);
        Ok(Self { month, path, file, seed: seed(&header), end: HEADER as u64, blocks })
    }

    fn append_to(existing: &RollupFile) -> Result<Self, RollupError> {
        let RollupFile { month, path, .. } = existing;
        let (month, io) = (*month, RollupError::io(path));
        let mut file = OpenOptions::new().read(true).append(true).open(path).map_err(&io)?;
        let seed = match read_header(&mut file, path, month) {
            Ok(seed) => seed,
            Err(RollupError::Truncated { .. }) => {
                // The machine failed while the file was made: it has nothing yet.
                let header = header(month);
                file.set_len(0).and_then(|()| file.write_all(&header)).map_err(&io)?;
                seed(&header)
            }
            Err(error) => return Err(error),
        };
        file.seek(SeekFrom::Start(HEADER as u64)).map_err(&io)?;
        let (mut end, mut last_generation) = (HEADER as u64, 0);
        let mut reader = BlockReader::new(&file, seed);
        let mut torn = 0;
        while let Some(part) = reader.next_part().map_err(&io)? {
            match part {
                FoundPart::Block { content, .. } => {
                    end += length(content);
                    last_generation = last_generation.max(generation(content).unwrap_or(0));
                }
                FoundPart::Damage { bytes, is_end: true, .. } => torn = bytes,
                FoundPart::Damage { bytes, .. } => end += bytes,
            }
        }
        if torn > 0 {
            file.set_len(end).map_err(&io)?;
            tracing::warn!(
                "{}: cut off {torn} bytes at byte {end}, which a crash left: the minute in them is unknown",
                path.display()
            );
        }
        let blocks = BlockEncoder::new(month, last_generation);
        Ok(Self { month, path: path.clone(), file, seed, end, blocks })
    }

    /// Appends a minute of the month.
    pub(crate) fn append(&mut self, batch: &MinuteBatch) -> Result<(), AppendError> {
        let mut bytes = Vec::new();
        for content in self.blocks.encode(batch) {
            push_block(&mut bytes, self.seed, &content);
        }
        if let Err(source) = self.file.write_all(&bytes) {
            let is_undone = self.file.set_len(self.end).is_ok();
            return Err(AppendError { source, is_undone });
        }
        self.end += bytes.len() as u64;
        Ok(())
    }

    /// Brings what was appended to the disk.
    pub(crate) fn sync(&self) {
        // An error shows at the next write. Until then the page cache has the data.
        let _ = self.file.sync_data();
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    #[cfg(test)]
    pub(crate) fn replace_file(&mut self, file: File) {
        self.file = file;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_month_and_number() {
        let file = RollupFile::new(Path::new("/f"), "2026-11".parse().unwrap(), 1);
        assert_eq!(file.path, Path::new("/f/2026-11.1.tdgr"));
        assert_eq!(RollupFile::of(file.path.clone()), Some(file));
        for name in ["lock", "2026-11.tdgr", "2026-13.1.tdgr", "2026-11.1.tdgj", "2026-11.x.tdgr"] {
            assert_eq!(RollupFile::of(PathBuf::from(name)), None, "{name}");
        }
    }
}
