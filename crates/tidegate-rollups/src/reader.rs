//! Reading a month back.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use crate::calendar::{Minute, Month};
use crate::code::BlockDecoder;
use crate::error::RollupError;
use crate::file::{RollupFile, folder, read_header};
use crate::frame::{BlockReader, FoundPart};
use crate::rollup::{MinuteCounts, RollupKey};

/// The rollups beside a decision journal. They can be read while they are written.
#[derive(Debug)]
pub struct RollupReader {
    folder: PathBuf,
    /// In the order of their months.
    files: Vec<RollupFile>,
}

impl RollupReader {
    /// Finds the rollups in the folder of a decision journal.
    ///
    /// # Errors
    /// When the folder cannot be read, or has none.
    pub fn open(journal: &Path) -> Result<Self, RollupError> {
        let folder = folder(journal);
        let files = match RollupFile::all(&folder) {
            Err(RollupError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => Vec::new(),
            other => other?,
        };
        if files.is_empty() {
            return Err(RollupError::Empty(journal.to_owned()));
        }
        Ok(Self { folder: journal.to_owned(), files })
    }

    /// Returns the months of which something is kept, in their order.
    #[must_use]
    pub fn months(&self) -> Vec<Month> {
        let mut months: Vec<_> = self.files.iter().map(|file| file.month).collect();
        months.dedup();
        months
    }

    /// Gives all counts of a month, in the order in which they were written. A minute that comes twice is to
    /// be added up. Returns the damaged parts, beside which the rest was read.
    ///
    /// # Errors
    /// When the month is not kept, or the system does not give a file.
    pub fn read(
        &self,
        month: Month,
        mut visit: impl FnMut(Minute, &RollupKey, &MinuteCounts),
    ) -> Result<Vec<RollupError>, RollupError> {
        let files: Vec<_> = self.files.iter().filter(|file| file.month == month).collect();
        if files.is_empty() {
            let (folder, kept) = (self.folder.clone(), self.months());
            return Err(RollupError::OutsideRetention { folder, month, kept });
        }
        let mut damage = Vec::new();
        for file in files {
            match read_file(file, &mut visit, &mut damage) {
                Err(error @ RollupError::Io { .. }) => return Err(error),
                Err(error) => damage.push(error),
                Ok(()) => {}
            }
        }
        Ok(damage)
    }
}

fn read_file(
    found: &RollupFile,
    visit: &mut impl FnMut(Minute, &RollupKey, &MinuteCounts),
    damage: &mut Vec<RollupError>,
) -> Result<(), RollupError> {
    let RollupFile { month, path, .. } = found;
    let mut file = File::open(path).map_err(RollupError::io(path))?;
    let seed = read_header(&mut file, path, *month)?;
    read_blocks(file, seed, found, visit, damage).map_err(RollupError::io(path))
}

/// Reads what follows the header.
pub(crate) fn read_blocks(
    source: impl io::Read,
    seed: u32,
    found: &RollupFile,
    visit: &mut impl FnMut(Minute, &RollupKey, &MinuteCounts),
    damage: &mut Vec<RollupError>,
) -> io::Result<()> {
    let (mut blocks, mut decoder) = (BlockReader::new(source, seed), BlockDecoder::new(found.month));
    while let Some(part) = blocks.next_part()? {
        let path = || found.path.clone();
        match part {
            FoundPart::Block { offset, content } => {
                if let Err(error) = decoder.decode(content, visit) {
                    let bytes = content.len() as u64;
                    tell(damage, RollupError::Damaged { path: path(), offset, bytes, reason: error.0 });
                }
            }
            FoundPart::Damage { offset, bytes, is_end: true } => {
                damage.push(RollupError::Truncated { path: path(), offset, bytes });
            }
            FoundPart::Damage { offset, bytes, .. } => {
                let reason = "a checksum does not match";
                tell(damage, RollupError::Damaged { path: path(), offset, bytes, reason });
            }
        }
    }
    Ok(())
}

/// The most damaged parts that are told of in a file. The others are counted with the last one.
const MOST_DAMAGE: usize = 20;

fn tell(damage: &mut Vec<RollupError>, found: RollupError) {
    if damage.len() < MOST_DAMAGE {
        return damage.push(found);
    }
    if let (Some(RollupError::Damaged { bytes: sum, .. }), RollupError::Damaged { bytes, .. }) =
        (damage.last_mut(), found)
    {
        *sum = sum.saturating_add(bytes);
    }
}
