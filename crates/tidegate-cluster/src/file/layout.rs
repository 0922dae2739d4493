//! Layout of the shared file. Pure.
//!
//! ```text
//! block 0:     magic "TGHF" · version u16 · slots u16 · cluster: u8 length, text · zeros · CRC-32C u32
//! block 1 + n: length u16 · message · zeros · CRC-32C u32                              (slot n)
//! ```
//!
//! A block has 4096 bytes, its checksum is of all before it. A slot that was never used is all zeros.

use crate::limits::MOST_SLOTS;
use crate::name::ClusterName;
use crate::rejection::MessageRejection;
use crate::wire::{Input, Message};

/// A block: the unit of direct I/O on every device, and written in one piece by most of them.
pub(crate) const BLOCK: usize = 4096;

const MAGIC: [u8; 4] = *b"TGHF";
const VERSION: u16 = 1;
const CHECKSUM: usize = 4;
const LENGTH: usize = 2;

/// A message has room for so many bytes.
pub(crate) const ROOM: usize = BLOCK - LENGTH - CHECKSUM;

/// The content of the first block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FileHeader {
    /// A file for this many hosts of our cluster.
    Ours { slots: u16 },
    /// Nothing yet.
    Zeros,
    /// Not for us, and why.
    Wrong(String),
}

pub(crate) fn write_header(cluster: &ClusterName, slots: u16, block: &mut [u8]) {
    block.fill(0);
    let name = cluster.as_str().as_bytes();
    block[..4].copy_from_slice(&MAGIC);
    block[4..6].copy_from_slice(&VERSION.to_le_bytes());
    block[6..8].copy_from_slice(&slots.to_le_bytes());
    // Invariant: a cluster's name has at most 32 bytes.
    block[8] = name.len() as u8;
    block[9..9 + name.len()].copy_from_slice(name);
    seal(block);
}

pub(crate) fn read_header(cluster: &ClusterName, block: &[u8]) -> FileHeader {
    if block.iter().all(|byte| *byte == 0) {
        return FileHeader::Zeros;
    }
    parse_header(cluster, block).unwrap_or_else(|_| FileHeader::Wrong("its header is damaged".to_owned()))
}

fn parse_header(cluster: &ClusterName, block: &[u8]) -> Result<FileHeader, MessageRejection> {
    let mut input = Input(block);
    if input.take()? != MAGIC {
        return Ok(FileHeader::Wrong("it holds something else, which is not overwritten".to_owned()));
    }
    let version = u16::from_le_bytes(input.take()?);
    if version != VERSION {
        let age = if version < VERSION { "an old" } else { "a newer" };
        return Ok(FileHeader::Wrong(format!(
            "it has {age} version of the format, {version}, and this host knows {VERSION}"
        )));
    }
    let slots = u16::from_le_bytes(input.take()?);
    if !is_sealed(block) || !(1..=MOST_SLOTS).contains(&usize::from(slots)) {
        return Ok(FileHeader::Wrong("its header is damaged".to_owned()));
    }
    let name = input.text()?;
    if name != cluster.as_str() {
        return Ok(FileHeader::Wrong(format!("it belongs to the cluster `{name}`")));
    }
    Ok(FileHeader::Ours { slots })
}

/// Fills the block of a slot. The message must fit into [`ROOM`].
pub(crate) fn write_slot(message: &[u8], block: &mut [u8]) {
    block.fill(0);
    block[..LENGTH].copy_from_slice(&(message.len() as u16).to_le_bytes());
    block[LENGTH..LENGTH + message.len()].copy_from_slice(message);
    seal(block);
}

/// `None`: the slot was never used.
///
/// # Errors
/// When the block is torn or damaged, or its message is not for us.
pub(crate) fn read_slot(cluster: &ClusterName, block: &[u8]) -> Result<Option<Message>, MessageRejection> {
    if block.iter().all(|byte| *byte == 0) {
        return Ok(None);
    }
    if !is_sealed(block) {
        return Err(MessageRejection::Checksum);
    }
    let mut input = Input(block);
    let length = usize::from(u16::from_le_bytes(input.take()?));
    let message = input.0.get(..length.min(ROOM)).ok_or(MessageRejection::Malformed("it ends too early"))?;
    let (message, rest) = Message::read(cluster, message)?;
    if rest.is_empty() {
        Ok(Some(message))
    } else {
        Err(MessageRejection::Malformed("something follows its end"))
    }
}

fn seal(block: &mut [u8]) {
    let (content, checksum) = block.split_at_mut(BLOCK - CHECKSUM);
    checksum.copy_from_slice(&crc32c::crc32c(content).to_le_bytes());
}

fn is_sealed(block: &[u8]) -> bool {
    let (content, checksum) = block.split_at(BLOCK - CHECKSUM);
    checksum == crc32c::crc32c(content).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::wire::tests::{any_report, cluster, message};

    fn header(slots: u16) -> Vec<u8> {
        let mut block = vec![1; BLOCK];
        write_header(&cluster(), slots, &mut block);
        block
    }

    #[test]
    fn a_file_of_another_kind_version_or_cluster_is_told_apart() {
        assert_eq!(read_header(&cluster(), &header(7)), FileHeader::Ours { slots: 7 });
        assert_eq!(read_header(&cluster(), &[0; BLOCK]), FileHeader::Zeros);
        let wrong = |cluster: &ClusterName, block: &[u8]| match read_header(cluster, block) {
            FileHeader::Wrong(why) => why,
            other => panic!("{other:?}"),
        };
        let changed = |place: usize, byte: u8| {
            let mut block = header(7);
            block[place] = byte;
            block
        };
        let foreign = ClusterName::new("other").unwrap();
        assert_eq!(wrong(&foreign, &header(7)), "it belongs to the cluster `test`");
        assert!(wrong(&cluster(), &changed(4, 0)).contains("an old version of the format, 0"));
        assert!(wrong(&cluster(), &changed(4, 9)).contains("a newer version of the format, 9"));
        assert!(wrong(&cluster(), &changed(0, 0)).contains("something else"));
        assert!(wrong(&cluster(), &changed(6, 8)).contains("damaged"));
    }

    proptest! {
        #[test]
        fn a_slot_is_read_as_it_was_written_and_no_torn_one_is(
            first in prop::collection::vec(any_report(), 0..2),
            second in prop::collection::vec(any_report(), 0..2),
            sector in 1usize..8,
        ) {
            let block = |sequence: u64, reports: Vec<_>| {
                let mut bytes = Vec::new();
                message("a", 1, sequence, reports).write(&cluster(), &mut bytes);
                let mut block = vec![0; BLOCK];
                write_slot(&bytes, &mut block);
                block
            };
            prop_assume!(first.len() < 2 || first[0].resource != first[1].resource);
            let (first, second) = (block(1, first), block(2, second));
            prop_assert_eq!(read_slot(&cluster(), &first).unwrap().unwrap().sequence, 1);
            let torn = [&second[..512 * sector], &first[512 * sector..]].concat();
            prop_assert_eq!(read_slot(&cluster(), &torn), Err(MessageRejection::Checksum));
        }

        #[test]
        fn any_block_is_borne(start in prop::collection::vec(any::<u8>(), 0..300), sealed: bool) {
            let mut block = start;
            block.resize(BLOCK, 0);
            if sealed {
                seal(&mut block);
            }
            let _ = read_slot(&cluster(), &block);
            let _ = read_header(&cluster(), &block);
        }
    }
}
