//! The kernel's interface: numbers of commands, and layouts (`include/uapi/linux/ublk_cmd.h`).

use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;

use thiserror::Error;

/// Requests of one device at once. Chosen: the default bound of a session.
pub const DEPTH: u16 = 128;

/// The greatest payload of one request. Chosen: a power of two, as the gateway's buffers are, near the 1,280
/// KiB that the kernel's block layer puts into one request unless told otherwise.
pub const MAX_PAYLOAD: u32 = 1 << 20;

/// The longest range that is discarded or zeroed by one request: 1 GiB.
pub(crate) const MOST_CHANGED_SECTORS: u32 = 1 << 21;

pub(crate) const SECTOR: u64 = 512;

/// The kernel takes no larger logical blocks than its pages.
pub(crate) const LARGEST_BLOCK: u32 = 4096;

/// Numbers of commands that go to the control device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum ControlOperation {
    Add = 0x04,
    Delete = 0x05,
    Start = 0x06,
    Stop = 0x07,
    SetParameters = 0x08,
    GetParameters = 0x09,
    StartRecovery = 0x10,
    EndRecovery = 0x11,
    GetInformation = 0x12,
    GetFeatures = 0x13,
}

impl ControlOperation {
    /// The command's number in the encoding of ioctl: direction, size of the command's structure, type `u`.
    pub(crate) const fn code(self) -> u32 {
        let direction = match self {
            Self::GetParameters | Self::GetInformation | Self::GetFeatures => READ,
            _ => READ | WRITE,
        };
        ioctl_code(direction, CONTROL_COMMAND as u32, self as u8)
    }
}

const READ: u32 = 2;
const WRITE: u32 = 1;

const fn ioctl_code(direction: u32, size: u32, number: u8) -> u32 {
    direction << 30 | size << 16 | (b'u' as u32) << 8 | number as u32
}

/// The size of `struct ublksrv_ctrl_cmd`.
pub(crate) const CONTROL_COMMAND: usize = 32;

/// The size of `struct ublksrv_ctrl_dev_info`.
pub(crate) const DEVICE_INFORMATION: usize = 64;

/// The size of the parameters of a disk: `struct ublk_params` up to those of discard.
pub(crate) const PARAMETERS: usize = 60;

/// The size of `struct ublksrv_io_desc`.
pub(crate) const DESCRIPTOR: usize = 24;

/// Requests wait while there is no server, and are issued again after it has died; data is copied by reads
/// and writes of the channel.
pub(crate) const FEATURES: u64 = USER_RECOVERY | USER_RECOVERY_REISSUE | COMMANDS_LIKE_IOCTL | USER_COPY;
pub(crate) const USER_RECOVERY: u64 = 1 << 3;
pub(crate) const USER_RECOVERY_REISSUE: u64 = 1 << 4;
pub(crate) const COMMANDS_LIKE_IOCTL: u64 = 1 << 6;
pub(crate) const USER_COPY: u64 = 1 << 7;

/// The place of the first request's data in the channel, and the distance of one tag's from the next one's.
const DATA: u64 = 0x8000_0000;
const TAG_SHIFT: u32 = 25;

pub(crate) const fn data_offset(tag: u16) -> u64 {
    DATA + ((tag as u64) << TAG_SHIFT)
}

/// The number of a device: N of `/dev/ublkbN`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceNumber(u32);

/// A text is not the number of a device.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DeviceNumberError {
    /// It is not a whole number.
    #[error(transparent)]
    Number(#[from] ParseIntError),
    /// The kernel has no such device.
    #[error("a device's number is at most {most}", most = DeviceNumber::MOST)]
    TooLarge,
}

impl DeviceNumber {
    /// The greatest number that the kernel gives.
    pub const MOST: u32 = (1 << 20) - 1;

    /// The number as the kernel has it.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The path of the block device.
    #[must_use]
    pub fn block_path(self) -> String {
        format!("/dev/ublkb{}", self.0)
    }

    /// The path of the channel between kernel and server.
    #[must_use]
    pub fn channel_path(self) -> String {
        format!("/dev/ublkc{}", self.0)
    }
}

impl FromStr for DeviceNumber {
    type Err = DeviceNumberError;

    fn from_str(text: &str) -> Result<Self, DeviceNumberError> {
        let number = text.parse()?;
        if number > Self::MOST { Err(DeviceNumberError::TooLarge) } else { Ok(Self(number)) }
    }
}

impl fmt::Display for DeviceNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ublk:{}", self.0)
    }
}

/// A structure of the kernel's, written field by field.
#[derive(Debug)]
struct StructWriter<const SIZE: usize> {
    bytes: [u8; SIZE],
    filled: usize,
}

impl<const SIZE: usize> StructWriter<SIZE> {
    const fn new() -> Self {
        Self { bytes: [0; SIZE], filled: 0 }
    }

    fn put<const LENGTH: usize>(mut self, field: [u8; LENGTH]) -> Self {
        self.bytes[self.filled..self.filled + LENGTH].copy_from_slice(&field);
        self.filled += LENGTH;
        self
    }

    fn u16(self, value: u16) -> Self {
        self.put(value.to_ne_bytes())
    }

    fn u32(self, value: u32) -> Self {
        self.put(value.to_ne_bytes())
    }

    fn u64(self, value: u64) -> Self {
        self.put(value.to_ne_bytes())
    }
}

pub(crate) fn field<const LENGTH: usize>(bytes: &[u8], start: usize) -> [u8; LENGTH] {
    let mut value = [0; LENGTH];
    value.copy_from_slice(&bytes[start..start + LENGTH]);
    value
}

/// `struct ublksrv_ctrl_cmd`, in the form of a submission.
pub(crate) fn control_command(
    device: u32,
    payload: u64,
    length: u16,
    data: u64,
    path_length: u16,
) -> [u8; 80] {
    /// No queue: the command is for the device.
    const NO_QUEUE: u16 = u16::MAX;
    let command = StructWriter::<80>::new().u32(device).u16(NO_QUEUE).u16(length);
    command.u64(payload).u64(data).u16(path_length).bytes
}

/// `struct ublksrv_ctrl_dev_info` of a device to be added, with one queue.
pub(crate) fn device_information(device: u32, flags: u64, mark: u64) -> [u8; DEVICE_INFORMATION] {
    let information = StructWriter::<DEVICE_INFORMATION>::new().u16(1).u16(DEPTH).u32(0);
    let information = information.u32(MAX_PAYLOAD).u32(device).u32(0).u32(0);
    information.u64(flags).u64(mark).bytes
}

/// The disk that a device is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceProperties {
    /// The size in bytes.
    pub size: u64,
    /// The logical block size.
    pub block: u32,
    /// The physical block size.
    pub physical_block: u32,
    /// The greatest payload of a request.
    pub payload: u32,
    /// Refuses every change.
    pub read_only: bool,
    /// True if it has a write cache: it can be flushed, and writes can be durable.
    pub cache: bool,
    /// True if ranges can be discarded.
    pub discard: bool,
    /// True if ranges can be zeroed without data.
    pub zeroes: bool,
}

const READ_ONLY: u32 = 1;
const VOLATILE_CACHE: u32 = 1 << 2;
const FUA: u32 = 1 << 3;

/// The parameters of a disk, and those of discard.
const PARAMETER_TYPES: u32 = 0b11;

impl DeviceProperties {
    /// Properties of a volume that the kernel can have: sizes are multiples of blocks, blocks are of 512 to
    /// 4,096 bytes. `None`: its blocks are larger.
    #[must_use]
    pub fn rounded(self) -> Option<Self> {
        let block = self.block.max(SECTOR as u32);
        if block > LARGEST_BLOCK || !block.is_power_of_two() {
            return None;
        }
        let physical_block = self.physical_block.next_power_of_two().clamp(block, LARGEST_BLOCK);
        let payload = self.payload.min(MAX_PAYLOAD);
        let size = self.size - self.size % u64::from(block);
        Some(Self { size, block, physical_block, payload: payload - payload % LARGEST_BLOCK, ..self })
    }

    pub(crate) fn encode(&self) -> [u8; PARAMETERS] {
        let mut attributes = 0;
        for (is_set, attribute) in [(self.read_only, READ_ONLY), (self.cache, VOLATILE_CACHE | FUA)] {
            attributes |= if is_set { attribute } else { 0 };
        }
        let sectors = |is_able: bool| if is_able { MOST_CHANGED_SECTORS } else { 0 };
        let (block, physical) = (self.block.ilog2() as u8, self.physical_block.ilog2() as u8);
        StructWriter::<PARAMETERS>::new()
            .u32(PARAMETERS as u32)
            .u32(PARAMETER_TYPES)
            .u32(attributes)
            // Logical block, physical block, optimal and least I/O.
            .put([block, physical, physical, physical])
            .u32((u64::from(self.payload) / SECTOR) as u32)
            .u32(0)
            .u64(self.size / SECTOR)
            .u64(0)
            // Of discards: alignment, granularity, most sectors, most sectors of zeroes, segments.
            .u32(0)
            .u32(self.physical_block)
            .u32(sectors(self.discard))
            .u32(sectors(self.zeroes))
            .u16(1)
            .bytes
    }

    pub(crate) fn decode(bytes: &[u8; PARAMETERS]) -> Self {
        let u32_at = |start| u32::from_ne_bytes(field(bytes, start));
        let attributes = u32_at(8);
        Self {
            size: u64::from_ne_bytes(field::<8>(bytes, 24)).saturating_mul(SECTOR),
            block: 1u32.checked_shl(u32::from(bytes[12])).unwrap_or(0),
            physical_block: 1u32.checked_shl(u32::from(bytes[13])).unwrap_or(0),
            payload: u32_at(16).saturating_mul(SECTOR as u32),
            read_only: attributes & READ_ONLY != 0,
            cache: attributes & VOLATILE_CACHE != 0 && attributes & FUA != 0,
            discard: u32_at(48) > 0,
            zeroes: u32_at(52) > 0,
        }
    }
}

/// A command for the ring of the thread that serves a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RingCommand {
    /// The number of the command.
    pub operation: u32,
    /// Its argument.
    pub argument: [u8; 16],
}

const FETCH: u8 = 0x20;
const COMMIT_AND_FETCH: u8 = 0x21;

const fn ring_code(number: u8) -> u32 {
    ioctl_code(READ | WRITE, 16, number)
}

fn ring_command(number: u8, tag: u16, result: i32) -> RingCommand {
    // The queue, of which there is one; no address, since data is copied.
    let argument = StructWriter::<16>::new().u16(0).u16(tag).put(result.to_ne_bytes()).bytes;
    RingCommand { operation: ring_code(number), argument }
}

/// The command that waits for the first request of a tag.
#[must_use]
pub fn fetch(tag: u16) -> RingCommand {
    ring_command(FETCH, tag, 0)
}

/// The command that gives the result of a tag's request, and waits for the next one. A result is the bytes
/// that were read or written, zero for other requests, or a negative error number.
#[must_use]
pub fn commit(tag: u16, result: i32) -> RingCommand {
    ring_command(COMMIT_AND_FETCH, tag, result)
}

/// The work that a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestKind {
    /// Reads data.
    Read,
    /// Writes data.
    Write,
    /// Brings what was written to stable storage.
    Flush,
    /// Gives a range back.
    Discard,
    /// Zeroes a range; with `unmap` it may be given back.
    WriteZeroes {
        /// The range may be given back.
        unmap: bool,
    },
    /// A request of this number, which disks do not have.
    Unknown(u8),
}

/// A request as the kernel describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestDescriptor {
    /// The work.
    pub kind: RequestKind,
    /// The first byte.
    pub offset: u64,
    /// The number of bytes.
    pub length: u64,
    /// True if it is complete only on stable storage.
    pub fua: bool,
}

impl RequestDescriptor {
    pub(crate) fn decode(bytes: &[u8; DESCRIPTOR]) -> Self {
        const FUA: u32 = 1 << 13;
        const KEEP_ALLOCATED: u32 = 1 << 15;
        let operation = u32::from_ne_bytes(field(bytes, 0));
        let sectors = u32::from_ne_bytes(field(bytes, 4));
        let start = u64::from_ne_bytes(field(bytes, 8));
        let kind = match operation as u8 {
            0 => RequestKind::Read,
            1 => RequestKind::Write,
            2 => RequestKind::Flush,
            3 => RequestKind::Discard,
            5 => RequestKind::WriteZeroes { unmap: operation & KEEP_ALLOCATED == 0 },
            other => RequestKind::Unknown(other),
        };
        Self {
            kind,
            offset: start.saturating_mul(SECTOR),
            length: u64::from(sectors) * SECTOR,
            fua: operation & FUA != 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The numbers are those that a C compiler makes of the kernel's header.
    #[test]
    fn commands_have_the_kernels_numbers() {
        assert_eq!(ControlOperation::Add.code(), 0xc020_7504);
        assert_eq!(ControlOperation::EndRecovery.code(), 0xc020_7511);
        assert_eq!(ControlOperation::GetParameters.code(), 0x8020_7509);
        assert_eq!(ControlOperation::GetInformation.code(), 0x8020_7512);
        assert_eq!(fetch(0).operation, 0xc010_7520);
        assert_eq!(commit(0, 0).operation, 0xc010_7521);
        assert_eq!(data_offset(0), 0x8000_0000);
        assert_eq!(data_offset(3), 0x8000_0000 + 3 * (32 << 20));
    }

    #[test]
    fn a_command_has_its_fields_where_the_kernel_reads_them() {
        let command = control_command(7, 0x1122, 60, 0x99, 12);
        assert_eq!(u32::from_ne_bytes(field(&command, 0)), 7);
        assert_eq!(u16::from_ne_bytes(field(&command, 4)), u16::MAX);
        assert_eq!(u16::from_ne_bytes(field(&command, 6)), 60);
        assert_eq!(u64::from_ne_bytes(field(&command, 8)), 0x1122);
        assert_eq!(u64::from_ne_bytes(field(&command, 16)), 0x99);
        assert_eq!(u16::from_ne_bytes(field(&command, 24)), 12);
        assert!(command[CONTROL_COMMAND..].iter().all(|byte| *byte == 0));
        let argument = commit(5, -5).argument;
        assert_eq!(u16::from_ne_bytes(field(&argument, 2)), 5);
        assert_eq!(i32::from_ne_bytes(field(&argument, 4)), -5);
        assert_eq!(argument[8..], [0; 8]);
        let information = device_information(3, FEATURES, 0xabcd);
        assert_eq!(u32::from_ne_bytes(field(&information, 8)), MAX_PAYLOAD);
        assert_eq!(u32::from_ne_bytes(field(&information, 12)), 3);
        assert_eq!(u64::from_ne_bytes(field(&information, 24)), FEATURES);
        assert_eq!(u64::from_ne_bytes(field(&information, 32)), 0xabcd);
    }

    #[test]
    fn a_descriptor_says_what_and_where() {
        let described = |operation: u32| {
            let bytes = StructWriter::<DESCRIPTOR>::new().u32(operation).u32(8).u64(3).bytes;
            RequestDescriptor::decode(&bytes)
        };
        let write = described(1 | 1 << 13);
        assert_eq!(
            (write.kind, write.offset, write.length, write.fua),
            (RequestKind::Write, 1536, 4096, true)
        );
        assert!(!described(1).fua);
        assert_eq!(described(5).kind, RequestKind::WriteZeroes { unmap: true });
        assert_eq!(described(5 | 1 << 15).kind, RequestKind::WriteZeroes { unmap: false });
        assert_eq!(described(4).kind, RequestKind::Unknown(4));
    }

    #[test]
    fn a_number_is_whole_and_within_the_kernels_bound() {
        assert_eq!("0".parse(), Ok(DeviceNumber(0)));
        assert_eq!(
            "1048575".parse::<DeviceNumber>().map(|number| number.to_string()),
            Ok("ublk:1048575".into())
        );
        assert_eq!("1048576".parse::<DeviceNumber>(), Err(DeviceNumberError::TooLarge));
        for wrong in ["", "-1", "a", "0x1", "4294967296"] {
            assert!(wrong.parse::<DeviceNumber>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_volume_of_larger_blocks_than_pages_is_no_device() {
        let volume = DeviceProperties {
            size: 10_000,
            block: 1,
            physical_block: 3000,
            payload: 32 << 20,
            read_only: false,
            cache: true,
            discard: true,
            zeroes: true,
        };
        let rounded = volume.rounded().expect("512 is a block size");
        assert_eq!((rounded.size, rounded.block, rounded.physical_block), (9728, 512, 4096));
        assert_eq!(rounded.payload, MAX_PAYLOAD);
        assert_eq!(DeviceProperties { block: 8192, ..volume }.rounded(), None);
    }

    proptest! {
        #[test]
        fn parameters_come_back_as_they_went(
            sectors in 0u64..1 << 50, block in 9u32..=12, more in 0u32..=3, payload in 8u32..=2048,
            read_only: bool, cache: bool, discard: bool, zeroes: bool,
        ) {
            let properties = DeviceProperties {
                size: sectors * SECTOR,
                block: 1 << block,
                physical_block: 1 << (block + more),
                payload: payload * SECTOR as u32,
                read_only, cache, discard, zeroes,
            };
            prop_assert_eq!(DeviceProperties::decode(&properties.encode()), properties);
        }
    }
}
