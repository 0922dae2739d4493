//! A request of the guest's driver: its descriptors read and judged once, before anything is done for it.

use thiserror::Error;
use virtio_bindings::bindings::virtio_blk::{
    VIRTIO_BLK_ID_BYTES, VIRTIO_BLK_S_IOERR, VIRTIO_BLK_S_OK, VIRTIO_BLK_S_UNSUPP, VIRTIO_BLK_T_DISCARD,
    VIRTIO_BLK_T_FLUSH, VIRTIO_BLK_T_GET_ID, VIRTIO_BLK_T_IN, VIRTIO_BLK_T_OUT, VIRTIO_BLK_T_WRITE_ZEROES,
    VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP,
};
use virtio_queue::desc::split::Descriptor;
use vm_memory::{Address, Bytes, GuestAddress, GuestMemory as _, GuestMemoryMmap, Permissions};

/// The unit of offsets and lengths on the ring.
pub const SECTOR: u64 = 512;

/// Segments of a request, less its header and its status: what fits QEMU's usual ring of 128.
pub(crate) const MOST_SEGMENTS: u32 = 126;

/// Descriptors of one request: those of the most segments, a header and a status, each in parts of any size.
/// Chosen: twice what the guest is told, so that only a hostile one has more.
const MOST_DESCRIPTORS: usize = 2 * MOST_SEGMENTS as usize;

const DESCRIPTOR: u64 = size_of::<Descriptor>() as u64;

const HEADER: u32 = 16;

/// The length of a range to discard or to zero.
const RANGE: u32 = 16;

/// A part of a request's data in the guest's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DataPart {
    /// The guest's physical address.
    pub(crate) address: GuestAddress,
    /// The length in bytes.
    pub(crate) length: u32,
}

/// The meaning of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskCommand {
    /// Read `length` bytes at `offset`.
    Read {
        /// The offset in bytes.
        offset: u64,
        /// The length in bytes.
        length: u32,
    },
    /// Write the data at `offset`.
    Write {
        /// The offset in bytes.
        offset: u64,
        /// The length in bytes.
        length: u32,
    },
    /// Bring to stable storage every write that was completed.
    Flush,
    /// The range is no longer needed.
    Discard {
        /// The offset in bytes.
        offset: u64,
        /// The length in bytes.
        length: u32,
    },
    /// The range shall read as zeroes.
    WriteZeroes {
        /// The offset in bytes.
        offset: u64,
        /// The length in bytes.
        length: u32,
        /// The storage may give the range back.
        unmap: bool,
    },
    /// Tell the disk's name.
    Identify,
    /// Answer with this: no command that is known, or a range that no disk has.
    Refuse(RequestStatus),
}

/// The outcome of a request, as the guest is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestStatus {
    /// Done.
    Done,
    /// Failed.
    Failed,
    /// Not a command of this disk.
    Unsupported,
}

impl RequestStatus {
    pub(crate) fn code(self) -> u8 {
        (match self {
            Self::Done => VIRTIO_BLK_S_OK,
            Self::Failed => VIRTIO_BLK_S_IOERR,
            Self::Unsupported => VIRTIO_BLK_S_UNSUPP,
        }) as u8
    }
}

/// A request out of a ring.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskRequest {
    /// Its first descriptor, by which the ring knows it.
    pub(crate) head: u16,
    /// The meaning of it.
    pub command: DiskCommand,
    /// A write's data, or the place for a read's.
    pub(crate) data: Vec<DataPart>,
    pub(crate) status: GuestAddress,
}

/// A request that is no request: the driver does not keep to the specification, or its memory is damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum MalformedRequest {
    /// It begins with no descriptor of the ring.
    #[error("the ring names descriptor {0}, which it does not have")]
    Head(u16),
    /// The chain ends in the middle: in a circle, outside the table, or in a table that is none.
    #[error("a chain of descriptors is broken")]
    Chain,
    /// The chain is too long, or runs in a circle.
    #[error("a chain has more than {MOST_DESCRIPTORS} descriptors, or 4 GiB")]
    Length,
    /// A part that the device may write comes before one that it may read.
    #[error("a chain has a readable descriptor after a writable one")]
    Order,
    /// There is no whole header.
    #[error("a request has no header")]
    Header,
    /// There is no place for the status, or none for the data.
    #[error("a request has no place for its result")]
    Status,
    /// A part of it is in memory that the guest does not have.
    #[error("a request names memory that is not there")]
    Memory,
}

/// A table of descriptors in the guest's memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DescriptorTable {
    pub(crate) address: GuestAddress,
    /// The number of descriptors.
    pub(crate) length: u16,
}

impl DescriptorTable {
    /// Visits the descriptors of a chain. `virtio-queue` walks only chains that are in the available ring,
    /// and those of a gateway before this one are not there any more.
    fn walk(
        self,
        memory: &GuestMemoryMmap,
        head: u16,
        mut visit: impl FnMut(&Descriptor) -> Result<(), MalformedRequest>,
    ) -> Result<(), MalformedRequest> {
        let (mut table, mut index, mut is_indirect, mut bytes) = (self, head, false, 0u32);
        for _ in 0..MOST_DESCRIPTORS {
            if index >= table.length {
                return Err(MalformedRequest::Chain);
            }
            let at =
                table.address.checked_add(u64::from(index) * DESCRIPTOR).ok_or(MalformedRequest::Memory)?;
            let descriptor: Descriptor = memory.read_obj(at).map_err(|_| MalformedRequest::Memory)?;
            if descriptor.refers_to_indirect_table() {
                let length = descriptor.len();
                if is_indirect || !u64::from(length).is_multiple_of(DESCRIPTOR) {
                    return Err(MalformedRequest::Chain);
                }
                let length = u16::try_from(u64::from(length) / DESCRIPTOR).unwrap_or(u16::MAX);
                (table, index, is_indirect) = (Self { address: descriptor.addr(), length }, 0, true);
                continue;
            }
            bytes = bytes.checked_add(descriptor.len()).ok_or(MalformedRequest::Length)?;
            visit(&descriptor)?;
            if !descriptor.has_next() {
                return Ok(());
            }
            index = descriptor.next();
        }
        Err(MalformedRequest::Length)
    }
}

impl DiskRequest {
    /// Reads the request that begins with a descriptor of the table.
    ///
    /// # Errors
    /// When it is malformed.
    pub(crate) fn read(
        memory: &GuestMemoryMmap,
        table: DescriptorTable,
        head: u16,
    ) -> Result<Self, MalformedRequest> {
        if head >= table.length {
            return Err(MalformedRequest::Head(head));
        }
        let (mut readable, mut writable) = (Vec::with_capacity(4), Vec::with_capacity(4));
        table.walk(memory, head, |descriptor| {
            let part = DataPart { address: descriptor.addr(), length: descriptor.len() };
            let access = if descriptor.is_write_only() { Permissions::Write } else { Permissions::Read };
            if part.length > 0 && !memory.check_range(part.address, part.length as usize, access) {
                return Err(MalformedRequest::Memory);
            }
            if descriptor.is_write_only() {
                writable.push(part);
            } else if writable.is_empty() {
                readable.push(part);
            } else {
                return Err(MalformedRequest::Order);
            }
            Ok(())
        })?;
        let header = front(memory, &mut readable, HEADER)?.ok_or(MalformedRequest::Header)?;
        let status = take_last_byte(&mut writable).ok_or(MalformedRequest::Status)?;
        let kind = u32::from_le_bytes([header[0], header[1], header[2], header[3]]);
        let mut sector = [0; 8];
        sector.copy_from_slice(&header[8..]);
        let sector = u64::from_le_bytes(sector);
        let (command, data) = command(memory, kind, sector, readable, writable)?;
        Ok(Self { head, command, data, status })
    }

    /// The length of its data in bytes.
    pub(crate) fn length(&self) -> u32 {
        length_of(&self.data)
    }
}

fn command(
    memory: &GuestMemoryMmap,
    kind: u32,
    sector: u64,
    mut readable: Vec<DataPart>,
    writable: Vec<DataPart>,
) -> Result<(DiskCommand, Vec<DataPart>), MalformedRequest> {
    let refused = |status| Ok((DiskCommand::Refuse(status), Vec::new()));
    match kind {
        VIRTIO_BLK_T_IN | VIRTIO_BLK_T_OUT => {
            let is_read = kind == VIRTIO_BLK_T_IN;
            let data = if is_read { writable } else { readable };
            let length = length_of(&data);
            let Some(offset) = sector.checked_mul(SECTOR).filter(|_| is_whole(length)) else {
                return refused(RequestStatus::Failed);
            };
            let command = if is_read {
                DiskCommand::Read { offset, length }
            } else {
                DiskCommand::Write { offset, length }
            };
            Ok((command, data))
        }
        VIRTIO_BLK_T_FLUSH => Ok((DiskCommand::Flush, Vec::new())),
        VIRTIO_BLK_T_GET_ID if length_of(&writable) >= VIRTIO_BLK_ID_BYTES => {
            Ok((DiskCommand::Identify, writable))
        }
        VIRTIO_BLK_T_GET_ID => Err(MalformedRequest::Status),
        VIRTIO_BLK_T_DISCARD | VIRTIO_BLK_T_WRITE_ZEROES => {
            let Some(range) = front(memory, &mut readable, RANGE)? else {
                return refused(RequestStatus::Failed);
            };
            // The guest was told that there is one range to a request.
            if length_of(&readable) > 0 {
                return refused(RequestStatus::Unsupported);
            }
            let word = |at: usize| {
                let mut word = [0; 4];
                word.copy_from_slice(&range[at..at + 4]);
                u32::from_le_bytes(word)
            };
            let sector = u64::from(word(4)) << 32 | u64::from(word(0));
            let (sectors, flags) = (word(8), word(12));
            let zeroes = kind == VIRTIO_BLK_T_WRITE_ZEROES;
            // Both are as the specification has them: only zeroing knows a flag.
            if flags & !(if zeroes { VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP } else { 0 }) != 0 {
                return refused(RequestStatus::Unsupported);
            }
            let offset = sector.checked_mul(SECTOR);
            let length = sectors.checked_mul(SECTOR as u32);
            let (Some(offset), Some(length)) = (offset, length) else {
                return refused(RequestStatus::Failed);
            };
            let command = if zeroes {
                DiskCommand::WriteZeroes { offset, length, unmap: flags != 0 }
            } else {
                DiskCommand::Discard { offset, length }
            };
            Ok((command, Vec::new()))
        }
        _ => refused(RequestStatus::Unsupported),
    }
}

fn is_whole(length: u32) -> bool {
    length > 0 && u64::from(length).is_multiple_of(SECTOR)
}

/// The sum cannot overflow: a chain has less than 4 GiB.
fn length_of(parts: &[DataPart]) -> u32 {
    parts.iter().map(|part| part.length).sum()
}

/// Takes the first bytes out of the parts, which may be cut anywhere; `None` if there are fewer.
fn front(
    memory: &GuestMemoryMmap,
    parts: &mut Vec<DataPart>,
    length: u32,
) -> Result<Option<[u8; 16]>, MalformedRequest> {
    let mut bytes = [0; 16];
    let mut filled = 0;
    while filled < length {
        let Some(first) = parts.first_mut() else { return Ok(None) };
        let taken = first.length.min(length - filled);
        let into = &mut bytes[filled as usize..(filled + taken) as usize];
        memory.read_slice(into, first.address).map_err(|_| MalformedRequest::Memory)?;
        filled += taken;
        first.length -= taken;
        if first.length == 0 {
            parts.remove(0);
        } else {
            // It lies in memory, so that the address does not overflow.
            first.address.0 += u64::from(taken);
        }
    }
    Ok(Some(bytes))
}

fn take_last_byte(parts: &mut Vec<DataPart>) -> Option<GuestAddress> {
    while parts.last()?.length == 0 {
        parts.pop();
    }
    let last = parts.last_mut()?;
    last.length -= 1;
    let address = GuestAddress(last.address.0 + u64::from(last.length));
    if last.length == 0 {
        parts.pop();
    }
    Some(address)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::GuestMemory;

    const NEXT: u16 = 1;
    const WRITE: u16 = 2;

    /// Reads a request of these parts of memory: where they are, how long, and whether they can be written.
    fn read(memory: &GuestMemory, parts: &[(u64, u32, bool)]) -> Result<DiskRequest, MalformedRequest> {
        for (at, (address, length, writable)) in parts.iter().enumerate() {
            let last = at + 1 == parts.len();
            let flags = if *writable { WRITE } else { 0 } | if last { 0 } else { NEXT };
            let descriptor = Descriptor::new(*address, *length, flags, at as u16 + 1);
            memory.mapped().write_obj(descriptor, GuestAddress(at as u64 * DESCRIPTOR)).unwrap();
        }
        let table = DescriptorTable { address: GuestAddress(0), length: 16 };
        DiskRequest::read(memory.mapped(), table, 0)
    }

    fn with_header(kind: u32, sector: u64) -> GuestMemory {
        let memory = GuestMemory::anonymous(1 << 16);
        let header = [&kind.to_le_bytes()[..], &[0; 4], &sector.to_le_bytes()].concat();
        memory.mapped().write_slice(&header, GuestAddress(0x1000)).unwrap();
        memory
    }

    fn part(address: u64, length: u32) -> DataPart {
        DataPart { address: GuestAddress(address), length }
    }

    /// A driver that keeps to version 1 may cut a request anywhere (virtio 1.2, 2.7.4.1).
    #[test]
    fn header_data_and_status_may_be_cut_anywhere() {
        let memory = with_header(VIRTIO_BLK_T_IN, 7);
        let parts = [
            (0x1000, 3, false),
            (0x1003, 0, false),
            (0x1003, 13, false),
            (0x2000, 100, true),
            (0x3000, 413, true),
            (0x4000, 0, true),
        ];
        let request = read(&memory, &parts).unwrap();
        assert_eq!(request.command, DiskCommand::Read { offset: 7 * 512, length: 512 });
        assert_eq!(request.data, [part(0x2000, 100), part(0x3000, 412)]);
        assert_eq!(request.status, GuestAddress(0x3000 + 412));

        let memory = with_header(VIRTIO_BLK_T_OUT, 1);
        let request = read(&memory, &[(0x1000, 16 + 512, false), (0x2000, 1, true)]).unwrap();
        assert_eq!(request.command, DiskCommand::Write { offset: 512, length: 512 });
        assert_eq!(request.data, [part(0x1010, 512)]);
    }

    #[test]
    fn a_range_is_read_as_it_is_written_and_one_that_overflows_is_refused() {
        let range = |kind, sector: u64, sectors: u32, flags: u32| {
            let memory = with_header(kind, 0);
            let range = [&sector.to_le_bytes()[..], &sectors.to_le_bytes(), &flags.to_le_bytes()].concat();
            memory.mapped().write_slice(&range, GuestAddress(0x2000)).unwrap();
            read(&memory, &[(0x1000, 16, false), (0x2000, 16, false), (0x3000, 1, true)]).unwrap().command
        };
        let discard = DiskCommand::Discard { offset: 1 << 40, length: 4096 };
        assert_eq!(range(VIRTIO_BLK_T_DISCARD, 1 << 31, 8, 0), discard);
        let zeroes = DiskCommand::WriteZeroes { offset: 512, length: 512, unmap: true };
        assert_eq!(range(VIRTIO_BLK_T_WRITE_ZEROES, 1, 1, 1), zeroes);
        let refused = DiskCommand::Refuse(RequestStatus::Failed);
        assert_eq!(range(VIRTIO_BLK_T_DISCARD, u64::MAX, 8, 0), refused);
        assert_eq!(range(VIRTIO_BLK_T_DISCARD, 0, u32::MAX, 0), refused);
        let unknown = DiskCommand::Refuse(RequestStatus::Unsupported);
        assert_eq!(range(VIRTIO_BLK_T_DISCARD, 0, 8, 1), unknown, "only zeroing knows the flag");
    }

    #[test]
    fn a_write_that_the_device_is_to_write_into_is_empty() {
        let memory = with_header(VIRTIO_BLK_T_OUT, 0);
        let request = read(&memory, &[(0x1000, 16, false), (0x2000, 513, true)]).unwrap();
        assert_eq!(request.command, DiskCommand::Refuse(RequestStatus::Failed));
    }
}
