//! Files of a journal: their names, their headers, and the frames of their blocks.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tidegate_control::Observation;

use crate::error::{JournalError, VersionedPart};
use crate::time::{ClockAnchor, WallTime};

/// Beginning of every segment. The ends of line show a transfer that changed them.
const MAGIC: &[u8; 8] = b"TDGJ\r\n\x1a\n";

/// Version of the layout that this build writes and reads.
pub(crate) const FORMAT: u32 = 2;

const EXTENSION: &str = "tdgj";

/// Magic, format version, length and checksum.
const FIXED: usize = 20;

/// The longest content of a header, in bytes.
const LONGEST_HEADER: usize = 4_096;

/// Length and checksum of a block.
pub(crate) const FRAME: usize = 8;

/// The longest block, in bytes.
pub(crate) const LONGEST_BLOCK: usize = 16 * 1024 * 1024;

/// Content of the header of a segment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SegmentHeader {
    /// Version of [`Observation`].
    pub(crate) observation: u16,
    /// Build that wrote it.
    pub(crate) build: String,
    pub(crate) sequence: u64,
    /// The beginning of the segment.
    pub(crate) began: ClockAnchor,
}

/// A header as it stands in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ParsedHeader {
    pub(crate) header: SegmentHeader,
    /// Length in the file.
    pub(crate) length: usize,
    /// Checksum, from which those of the blocks begin: a block of another segment does not match.
    pub(crate) seed: u32,
}

impl SegmentHeader {
    /// Returns the bytes of the header.
    pub(crate) fn encoded(&self) -> ParsedBytes {
        let content = rmp_serde::to_vec_named(self).unwrap_or_default();
        let mut bytes = Vec::with_capacity(FIXED + content.len());
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&FORMAT.to_le_bytes());
        // A header is far shorter than 4 GiB.
        bytes.extend_from_slice(&(content.len() as u32).to_le_bytes());
        let seed = crc32c::crc32c_append(crc32c::crc32c(&bytes), &content);
        bytes.extend_from_slice(&seed.to_le_bytes());
        bytes.extend_from_slice(&content);
        ParsedBytes { bytes, seed }
    }

    /// Parses the beginning of a file, which is at least its header.
    pub(crate) fn parse(path: &Path, beginning: &[u8]) -> Result<ParsedHeader, JournalError> {
        let truncated =
            || JournalError::Truncated { path: path.to_owned(), offset: 0, dropped: beginning.len() as u64 };
        let foreign = || JournalError::NotAJournal { path: path.to_owned(), offset: 0 };
        let known = beginning.len().min(MAGIC.len());
        if beginning[..known] != MAGIC[..known] {
            return Err(foreign());
        }
        let Some((fixed, rest)) = beginning.split_at_checked(FIXED) else { return Err(truncated()) };
        let format = u32_at(fixed, 8);
        if format != FORMAT {
            return Err(version(path, 8, VersionedPart::Format, format, FORMAT));
        }
        let (length, seed) = (u32_at(fixed, 12) as usize, u32_at(fixed, 16));
        let damaged =
            || JournalError::Checksum { path: path.to_owned(), offset: 0, dropped: beginning.len() as u64 };
        if length > LONGEST_HEADER {
            return Err(damaged());
        }
        let content = rest.get(..length).ok_or_else(truncated)?;
        if crc32c::crc32c_append(crc32c::crc32c(&fixed[..16]), content) != seed {
            return Err(damaged());
        }
        let header: Self = rmp_serde::from_slice(content).map_err(|_| foreign())?;
        if header.observation != Observation::VERSION {
            let found = u32::from(header.observation);
            let place = FIXED as u64;
            let known = u32::from(Observation::VERSION);
            return Err(version(path, place, VersionedPart::Observation, found, known));
        }
        Ok(ParsedHeader { header, length: FIXED + length, seed })
    }

    /// Reads as much of a file as its header takes.
    pub(crate) fn read(mut source: impl Read) -> io::Result<Vec<u8>> {
        let mut beginning = Vec::new();
        (&mut source).take(FIXED as u64).read_to_end(&mut beginning)?;
        if beginning.len() == FIXED {
            let length = (u32_at(&beginning, 12) as usize).min(LONGEST_HEADER);
            source.take(length as u64).read_to_end(&mut beginning)?;
        }
        Ok(beginning)
    }
}

fn version(path: &Path, offset: u64, part: VersionedPart, found: u32, known: u32) -> JournalError {
    let path = path.to_owned();
    if found > known {
        JournalError::NewerVersion { path, offset, part, found, known }
    } else {
        JournalError::OlderVersion { path, offset, part, found, known }
    }
}

fn u32_at(bytes: &[u8], place: usize) -> u32 {
    let mut number = [0; 4];
    number.copy_from_slice(&bytes[place..place + 4]);
    u32::from_le_bytes(number)
}

/// Bytes of a header with their checksum.
#[derive(Debug)]
pub(crate) struct ParsedBytes {
    pub(crate) bytes: Vec<u8>,
    pub(crate) seed: u32,
}

/// Fills in the frame of a block, for which `block` has room at its beginning.
pub(crate) fn seal(seed: u32, block: &mut [u8]) {
    // A block is at most `LONGEST_BLOCK` long.
    let length = ((block.len() - FRAME) as u32).to_le_bytes();
    let checksum = crc32c::crc32c_append(crc32c::crc32c_append(seed, &length), &block[FRAME..]);
    block[..4].copy_from_slice(&length);
    block[4..FRAME].copy_from_slice(&checksum.to_le_bytes());
}

/// Returns the length of a block by its frame.
pub(crate) fn block_length(frame: [u8; FRAME]) -> usize {
    u32_at(&frame, 0) as usize
}

/// Returns true if a block is whole.
pub(crate) fn is_whole(seed: u32, frame: [u8; FRAME], content: &[u8]) -> bool {
    let checksum = crc32c::crc32c_append(crc32c::crc32c_append(seed, &frame[..4]), content);
    checksum == u32_at(&frame, 4)
}

/// A file of a journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SegmentFile {
    pub(crate) path: PathBuf,
    pub(crate) sequence: u64,
    /// The beginning by the name of the file, to the millisecond.
    pub(crate) began: WallTime,
    pub(crate) bytes: u64,
}

impl SegmentFile {
    /// Returns the name of a segment: sequence number, and milliseconds since 1970.
    pub(crate) fn name(sequence: u64, began: WallTime) -> String {
        format!("{sequence:010}-{:013}.{EXTENSION}", began.as_nanos() / 1_000_000)
    }

    fn of(path: PathBuf, bytes: u64) -> Option<Self> {
        if path.extension()? != EXTENSION {
            return None;
        }
        let (sequence, millis) = path.file_stem()?.to_str()?.split_once('-')?;
        let millis: u64 = millis.parse().ok()?;
        let began = WallTime::from_nanos(millis.checked_mul(1_000_000)?);
        Some(Self { sequence: sequence.parse().ok()?, began, bytes, path })
    }

    /// Returns the segments of a folder in the order of their sequence numbers.
    pub(crate) fn all(folder: &Path) -> Result<Vec<Self>, JournalError> {
        let mut found = Vec::new();
        for entry in fs::read_dir(folder).map_err(JournalError::io(folder))? {
            let entry = entry.map_err(JournalError::io(folder))?;
            match entry.metadata() {
                Ok(metadata) if metadata.is_file() => {
                    found.extend(Self::of(entry.path(), metadata.len()));
                }
                // The writer removes the oldest segments meanwhile.
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(JournalError::io(&entry.path())(error));
                }
                _ => {}
            }
        }
        found.sort_by_key(|segment| segment.sequence);
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use tidegate_units::Instant;

    use super::*;

    fn header() -> SegmentHeader {
        SegmentHeader {
            observation: Observation::VERSION,
            build: "tidegate 0.1.0".to_owned(),
            sequence: 7,
            began: ClockAnchor { at: Instant::from_nanos(3), wall: WallTime::from_nanos(5) },
        }
    }

    #[test]
    fn a_header_comes_back_and_a_changed_byte_is_noticed() {
        let ParsedBytes { bytes, seed } = header().encoded();
        let parse = |bytes: &[u8]| SegmentHeader::parse(Path::new("s"), bytes);
        let expected = ParsedHeader { header: header(), length: bytes.len(), seed };
        assert_eq!(parse(&bytes).unwrap(), expected);
        for place in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[place] ^= 0x10;
            assert!(parse(&changed).is_err(), "byte {place}");
            assert!(matches!(parse(&bytes[..place]), Err(JournalError::Truncated { .. })), "byte {place}");
        }
    }

    #[test]
    fn other_files_and_versions_are_refused_with_their_place() {
        let parse = |bytes: &[u8]| SegmentHeader::parse(Path::new("s"), bytes).unwrap_err().to_string();
        assert_eq!(parse(b"{\"json\": 1}"), "s: byte 0: this is no segment of a decision journal");
        let mut newer = header().encoded().bytes;
        newer[8] = 3;
        let text = "s: byte 8: written in journal format version 3, this build reads up to 2; read it with a \
                    newer build";
        assert_eq!(parse(&newer), text);
        let newer = SegmentHeader { observation: Observation::VERSION + 1, ..header() }.encoded().bytes;
        assert!(parse(&newer).starts_with("s: byte 20: written in observation version"));
    }

    #[test]
    fn names_say_sequence_and_time() {
        let name = SegmentFile::name(42, WallTime::from_nanos(1_790_000_000_123_456_789));
        assert_eq!(name, "0000000042-1790000000123.tdgj");
        let segment = SegmentFile::of(PathBuf::from(name), 9).unwrap();
        assert_eq!((segment.sequence, segment.bytes), (42, 9));
        assert_eq!(segment.began, WallTime::from_nanos(1_790_000_000_123_000_000));
        assert_eq!(SegmentFile::of(PathBuf::from("0000000042-x.tdgj"), 9), None);
        assert_eq!(SegmentFile::of(PathBuf::from("lock"), 9), None);
    }
}
