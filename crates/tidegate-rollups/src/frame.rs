//! Frames of blocks, and the header before them.
//!
//! A reader that finds a damaged part looks for the next whole block, so that it loses no other minutes.

use std::io::{self, Read};
use std::path::Path;

use crate::calendar::Month;
use crate::code::LONGEST_CONTENT;
use crate::error::RollupError;

/// Beginning of every file. The ends of line show a transfer that changed them.
const MAGIC: &[u8; 8] = b"TDGR\r\n\x1a\n";

/// Version of the layout that this build writes and reads.
const FORMAT: u32 = 1;

/// Magic, format, month and checksum.
pub(crate) const HEADER: usize = 20;

/// Beginning of every block, by which blocks are found after a damaged part.
const MARK: [u8; 2] = [0xB5, 0x1C];

/// Mark, length and checksum of a block.
const FRAME: usize = 8;

/// Returns the header of a file.
pub(crate) fn header(month: Month) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[..8].copy_from_slice(MAGIC);
    header[8..12].copy_from_slice(&FORMAT.to_le_bytes());
    header[12..16].copy_from_slice(&month.index().to_le_bytes());
    let checksum = crc32c::crc32c(&header[..16]);
    header[16..].copy_from_slice(&checksum.to_le_bytes());
    header
}

/// Returns the checksum of a header, from which those of its blocks begin: a block of another month does not
/// match.
pub(crate) fn seed(header: &[u8; HEADER]) -> u32 {
    u32_at(header, 16)
}

/// Checks the beginning of a file, which is of this month by its name.
pub(crate) fn check_header(path: &Path, beginning: &[u8], month: Month) -> Result<u32, RollupError> {
    let path = path.to_owned();
    let known = beginning.len().min(MAGIC.len());
    if beginning[..known] != MAGIC[..known] {
        return Err(RollupError::Foreign { path, offset: 0, reason: "this is no file of rollups" });
    }
    let Some(header) = beginning.first_chunk::<HEADER>() else {
        return Err(RollupError::Truncated { path, offset: 0, bytes: beginning.len() as u64 });
    };
    let format = u32_at(header, 8);
    if format > FORMAT {
        return Err(RollupError::NewerVersion { path, offset: 8, found: format, known: FORMAT });
    }
    if format < FORMAT || crc32c::crc32c(&header[..16]) != seed(header) {
        let reason = "the checksum of the header does not match";
        return Err(RollupError::Foreign { path, offset: 16, reason });
    }
    if u32_at(header, 12) != month.index() {
        return Err(RollupError::Foreign { path, offset: 12, reason: "its name says another month" });
    }
    Ok(seed(header))
}

fn u32_at(bytes: &[u8], place: usize) -> u32 {
    let mut number = [0; 4];
    number.copy_from_slice(&bytes[place..place + 4]);
    u32::from_le_bytes(number)
}

/// Appends a block.
pub(crate) fn push_block(bytes: &mut Vec<u8>, seed: u32, content: &[u8]) {
    // Content has at most `LONGEST_CONTENT` bytes.
    let length = (content.len() as u16).to_le_bytes();
    bytes.extend_from_slice(&MARK);
    bytes.extend_from_slice(&length);
    bytes.extend_from_slice(&checksum(seed, length, content).to_le_bytes());
    bytes.extend_from_slice(content);
}

/// Returns the length in the file of a block with this content.
pub(crate) const fn length(content: &[u8]) -> u64 {
    (FRAME + content.len()) as u64
}

fn checksum(seed: u32, length: [u8; 2], content: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c_append(seed, &length), content)
}

/// A part of a file after its header.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FoundPart<'a> {
    /// A whole block.
    Block {
        /// Its place in the file.
        offset: u64,
        content: &'a [u8],
    },
    /// Bytes that are no whole block.
    Damage {
        /// Their place in the file.
        offset: u64,
        bytes: u64,
        /// True if the file ends with them.
        is_end: bool,
    },
}

/// Reads the blocks of a file.
#[derive(Debug)]
pub(crate) struct BlockReader<R> {
    source: R,
    seed: u32,
    buffer: Vec<u8>,
    /// The place in the buffer that is read next.
    place: usize,
    /// The place in the file of the beginning of the buffer.
    offset: u64,
    is_read: bool,
}

impl<R: Read> BlockReader<R> {
    /// Reads what follows the header.
    pub(crate) fn new(source: R, seed: u32) -> Self {
        Self { source, seed, buffer: Vec::new(), place: 0, offset: HEADER as u64, is_read: false }
    }

    /// Returns the next part; `None` at the end of the file.
    pub(crate) fn next_part(&mut self) -> io::Result<Option<FoundPart<'_>>> {
        let begin = self.offset + self.place as u64;
        loop {
            self.fill()?;
            let offset = self.offset + self.place as u64;
            let rest = &self.buffer[self.place..];
            let length = whole_block(self.seed, rest);
            let is_end = rest.is_empty();
            if length.is_none() && !is_end {
                // The mark can be anywhere from the next byte on.
                let ahead = rest[1..].iter().position(|byte| *byte == MARK[0]);
                self.place += ahead.map_or(rest.len(), |ahead| ahead + 1);
                continue;
            }
            if offset > begin {
                return Ok(Some(FoundPart::Damage { offset: begin, bytes: offset - begin, is_end }));
            }
            let Some(length) = length else { return Ok(None) };
            let content = self.place + FRAME..self.place + length;
            self.place += length;
            return Ok(Some(FoundPart::Block { offset, content: &self.buffer[content] }));
        }
    }

    /// Has the longest block in the buffer, as far as the file goes.
    fn fill(&mut self) -> io::Result<()> {
        const LONGEST: usize = FRAME + LONGEST_CONTENT;
        if self.is_read || self.buffer.len() - self.place >= LONGEST {
            return Ok(());
        }
        self.buffer.drain(..self.place);
        self.offset += self.place as u64;
        self.place = 0;
        // Several times as much, so that the bytes that are moved are few.
        let wanted = 8 * LONGEST - self.buffer.len();
        let read = (&mut self.source).take(wanted as u64).read_to_end(&mut self.buffer)?;
        self.is_read = read < wanted;
        Ok(())
    }
}

/// Returns the length of the block that these bytes begin with, if it is whole.
fn whole_block(seed: u32, bytes: &[u8]) -> Option<usize> {
    let (frame, rest) = bytes.split_at_checked(FRAME)?;
    let length = [frame[2], frame[3]];
    let content = rest.get(..usize::from(u16::from_le_bytes(length)))?;
    (frame[..2] == MARK && checksum(seed, length, content) == u32_at(frame, 4))
        .then_some(FRAME + content.len())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SEED: u32 = 7;

    /// Place, bytes, and true at the end of the file.
    type FoundDamage = (u64, u64, bool);

    fn parts(bytes: &[u8]) -> (Vec<Vec<u8>>, Vec<FoundDamage>) {
        let (mut blocks, mut damage) = (Vec::new(), Vec::new());
        let mut reader = BlockReader::new(bytes, SEED);
        while let Some(part) = reader.next_part().unwrap() {
            match part {
                FoundPart::Block { content, .. } => blocks.push(content.to_vec()),
                FoundPart::Damage { offset, bytes, is_end } => damage.push((offset, bytes, is_end)),
            }
        }
        (blocks, damage)
    }

    proptest! {
        /// Blocks between damaged parts of any bytes. More bytes than the buffer has.
        #[test]
        fn whole_blocks_are_found_around_damaged_parts(
            contents in prop::collection::vec((any::<u8>(), 0..LONGEST_CONTENT), 0..24),
            noise in prop::collection::vec(prop_oneof![Just(0xB5), any::<u8>()], 1..40),
            between in 0_usize..25,
        ) {
            let contents: Vec<_> = contents.into_iter().map(|(byte, length)| vec![byte; length]).collect();
            let (mut bytes, mut at) = (Vec::new(), None);
            for (place, content) in contents.iter().enumerate() {
                if place == between {
                    at = Some(bytes.len());
                    bytes.extend_from_slice(&noise);
                }
                push_block(&mut bytes, SEED, content);
            }
            let (found, damage) = parts(&bytes);
            prop_assert_eq!(&found, &contents);
            let at = at.map(|at| ((HEADER + at) as u64, noise.len() as u64, false));
            prop_assert_eq!(damage, at.into_iter().collect::<Vec<_>>());
        }

        #[test]
        fn a_torn_end_and_a_changed_byte_cost_their_block(
            contents in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..30), 1..6),
            changed in any::<prop::sample::Index>(),
        ) {
            let (mut bytes, mut ends) = (Vec::new(), Vec::new());
            for content in &contents {
                push_block(&mut bytes, SEED, content);
                ends.push(bytes.len());
            }
            let place = changed.index(bytes.len());
            let lost = ends.partition_point(|end| *end <= place);
            let begin = if lost == 0 { 0 } else { ends[lost - 1] };
            let (found, damage) = parts(&bytes[..place]);
            prop_assert_eq!(found.as_slice(), &contents[..lost]);
            let torn = ((HEADER + begin) as u64, (place - begin) as u64, true);
            prop_assert_eq!(damage, if place == begin { vec![] } else { vec![torn] });
            bytes[place] ^= 0x20;
            let mut others = contents.clone();
            others.remove(lost);
            prop_assert_eq!(parts(&bytes).0, others);
        }
    }

    #[test]
    fn other_files_and_versions_are_refused_with_their_place() {
        let month: Month = "2026-11".parse().unwrap();
        let check = |bytes: &[u8]| check_header(Path::new("f"), bytes, month).unwrap_err().to_string();
        let whole = header(month);
        assert_eq!(check_header(Path::new("f"), &whole, month).unwrap(), seed(&whole));
        assert_eq!(
            check(b"{\"json\": 1}"),
            "f: byte 0: this is no file of rollups; move it to another folder"
        );
        assert!(check(&whole[..9]).starts_with("f: byte 0: the file ends within a block; its last 9 bytes"));
        let mut newer = whole;
        newer[8] = 2;
        assert_eq!(
            check(&newer),
            "f: byte 8: written in rollup format version 2, this build reads up to 1; read it with a newer \
             build"
        );
        assert!(check(&header(month.next())).starts_with("f: byte 12: its name says another month"));
        for place in 12..HEADER {
            let mut changed = whole;
            changed[place] ^= 1;
            assert!(check(&changed).starts_with("f: byte 16: "), "byte {place}");
        }
    }
}
