//! Exports: their names, their promises, and the requests that those allow.

use std::fmt;

use thiserror::Error;

use crate::errno::Errno;
use crate::flags::{CommandFlags, TransmissionFlags};
use crate::transmission::{NbdCommand, WireRequest};

/// The longest string of the protocol in bytes (specification, "Conventions").
pub const MAX_STRING: usize = 4096;

/// The reasons why a text cannot name an export.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ExportNameError {
    /// It is too long.
    #[error("an export name has at most {MAX_STRING} bytes, this one has {0}")]
    TooLong(usize),
    /// It is not UTF-8.
    #[error("an export name is UTF-8")]
    NotUtf8,
    /// It contains a NUL.
    #[error("an export name does not contain NUL")]
    Nul,
}

/// The name of an export: at most [`MAX_STRING`] bytes of UTF-8 without NUL. The empty name means the
/// server's default export.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ExportName(String);

impl ExportName {
    /// Checks and takes a name.
    ///
    /// # Errors
    /// When it is too long or contains a NUL.
    pub fn new(name: impl Into<String>) -> Result<Self, ExportNameError> {
        let name = name.into();
        if name.len() > MAX_STRING {
            return Err(ExportNameError::TooLong(name.len()));
        }
        if name.contains('\0') {
            return Err(ExportNameError::Nul);
        }
        Ok(Self(name))
    }

    /// Checks and takes a name off the wire.
    pub(crate) fn from_wire(bytes: &[u8]) -> Result<Self, ExportNameError> {
        if bytes.len() > MAX_STRING {
            return Err(ExportNameError::TooLong(bytes.len()));
        }
        Self::new(std::str::from_utf8(bytes).map_err(|_| ExportNameError::NotUtf8)?)
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ExportName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The reasons why three numbers are not size constraints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum BlockSizesError {
    /// The least block.
    #[error("the minimum block size must be a power of two up to 65536, not {0}")]
    Minimum(u32),
    /// The preferred block.
    #[error(
        "the preferred block size must be a power of two, at least 512 and the minimum block size, not {0}"
    )]
    Preferred(u32),
    /// The greatest payload.
    #[error("the maximum payload must be at least the preferred block size, not {0}")]
    Maximum(u32),
}

/// The sizes that a client must keep to, in bytes (specification, "Size constraints").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockSizes {
    minimum: u32,
    preferred: u32,
    maximum: u32,
}

impl BlockSizes {
    /// The constraints if none were negotiated: every byte addressable, 4 KiB preferred, payloads up to 32
    /// MiB.
    pub const DEFAULT: Self = Self { minimum: 1, preferred: 4096, maximum: 32 << 20 };

    /// The most data that fits one structured chunk, whose 32-bit length counts the 8 bytes of the offset
    /// too.
    const MAX_CHUNK_DATA: u32 = u32::MAX - 8;

    /// Checks and takes sizes: every offset and length is a multiple of `minimum`, multiples of `preferred`
    /// are cheap, no payload is longer than `maximum`. A `maximum` that no structured chunk can carry (the
    /// protocol's "no limit" among them) is lowered to what it can.
    ///
    /// # Errors
    /// When the sizes break the specification.
    pub fn new(minimum: u32, preferred: u32, maximum: u32) -> Result<Self, BlockSizesError> {
        if !minimum.is_power_of_two() || minimum > 65_536 {
            return Err(BlockSizesError::Minimum(minimum));
        }
        if !preferred.is_power_of_two() || preferred < minimum.max(512) {
            return Err(BlockSizesError::Preferred(preferred));
        }
        if maximum < preferred {
            return Err(BlockSizesError::Maximum(maximum));
        }
        Ok(Self { minimum, preferred, maximum: maximum.min(Self::MAX_CHUNK_DATA) })
    }

    /// The least block, a power of two.
    #[must_use]
    pub const fn minimum(self) -> u32 {
        self.minimum
    }

    /// The block from which on requests are cheap, a power of two.
    #[must_use]
    pub const fn preferred(self) -> u32 {
        self.preferred
    }

    /// The greatest payload of a request or a reply.
    #[must_use]
    pub const fn maximum(self) -> u32 {
        self.maximum
    }
}

impl Default for BlockSizes {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// An export as the server describes it to clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportDescription {
    /// The geometry that requests are judged by.
    pub geometry: ExportGeometry,
    /// For people; `""` for none. More than [`MAX_STRING`] bytes are not sent.
    pub description: String,
}

/// The part of an export that requests are judged by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExportGeometry {
    /// The size in bytes.
    pub size: u64,
    /// The abilities of the export.
    pub flags: TransmissionFlags,
    /// The sizes that a client must keep to.
    pub blocks: BlockSizes,
}

/// A request that passed [`ExportGeometry::check`]: its range is not empty, lies within the export and is
/// aligned, its payload is within bounds, and the export can do it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckedOperation {
    /// Read `length` bytes at `offset`.
    Read {
        /// The offset in bytes.
        offset: u64,
        /// The length in bytes.
        length: u32,
    },
    /// Write `length` bytes, which follow the request, at `offset`.
    Write {
        /// The offset in bytes.
        offset: u64,
        /// The length in bytes.
        length: u32,
        /// Answer only once the data is on stable storage.
        fua: bool,
    },
    /// Bring to stable storage every write that has been answered.
    Flush,
    /// The range is no longer needed.
    Trim {
        /// The offset in bytes.
        offset: u64,
        /// The length in bytes; not bound by the maximum payload.
        length: u32,
        /// Answer only once the effect is on stable storage.
        fua: bool,
    },
    /// The range shall read as zeroes.
    WriteZeroes {
        /// The offset in bytes.
        offset: u64,
        /// The length in bytes; not bound by the maximum payload.
        length: u32,
        /// Answer only once the effect is on stable storage.
        fua: bool,
        /// The range must stay allocated.
        no_hole: bool,
        /// Fail at once with [`Errno::NotSup`] unless this is faster than writing.
        fast: bool,
    },
    /// The client leaves: answer what is in flight, then close. There is no reply.
    Disconnect,
}

impl ExportGeometry {
    /// Judges a request: what to do, or which error to answer.
    ///
    /// A refused `WRITE` still has its payload on the wire. `DISC` is accepted whatever else it carries,
    /// because it has no reply that could complain.
    ///
    /// # Errors
    /// As the specification says under "Error values": [`Errno::Perm`] for changes to a read-only export,
    /// [`Errno::NoSpc`] for writes (zeroes included) beyond the end, [`Errno::Inval`] for other ranges beyond
    /// the end, for empty or unaligned ones, and for commands and flags that were not offered; a payload that
    /// is too long is [`Errno::Inval`], or [`Errno::Overflow`] for a read where
    /// [`TransmissionFlags::SEND_DF`] was offered.
    pub fn check(&self, request: &WireRequest) -> Result<CheckedOperation, Errno> {
        let WireRequest { command, flags, offset, length, .. } = *request;
        if command == NbdCommand::Disconnect {
            return Ok(CheckedOperation::Disconnect);
        }
        if !self.allowed_flags(command).contains(flags) {
            return Err(Errno::Inval);
        }
        let fua = flags.contains(CommandFlags::FUA);
        match command {
            NbdCommand::Read => {
                self.check_range(offset, length, Errno::Inval)?;
                if length > self.blocks.maximum {
                    let df = self.flags.contains(TransmissionFlags::SEND_DF);
                    return Err(if df { Errno::Overflow } else { Errno::Inval });
                }
                Ok(CheckedOperation::Read { offset, length })
            }
            NbdCommand::Write => {
                self.check_change(TransmissionFlags::NONE)?;
                self.check_range(offset, length, Errno::NoSpc)?;
                if length > self.blocks.maximum {
                    return Err(Errno::Inval);
                }
                Ok(CheckedOperation::Write { offset, length, fua })
            }
            NbdCommand::Flush => {
                self.check_offered(TransmissionFlags::SEND_FLUSH)?;
                // The specification reserves both fields; a flush of a range is not something we could keep.
                if offset == 0 && length == 0 { Ok(CheckedOperation::Flush) } else { Err(Errno::Inval) }
            }
            NbdCommand::Trim => {
                self.check_change(TransmissionFlags::SEND_TRIM)?;
                self.check_range(offset, length, Errno::Inval)?;
                Ok(CheckedOperation::Trim { offset, length, fua })
            }
            NbdCommand::WriteZeroes => {
                self.check_change(TransmissionFlags::SEND_WRITE_ZEROES)?;
                self.check_range(offset, length, Errno::NoSpc)?;
                Ok(CheckedOperation::WriteZeroes {
                    offset,
                    length,
                    fua,
                    no_hole: flags.contains(CommandFlags::NO_HOLE),
                    fast: flags.contains(CommandFlags::FAST_ZERO),
                })
            }
            NbdCommand::Disconnect
            | NbdCommand::Cache
            | NbdCommand::BlockStatus
            | NbdCommand::Resize
            | NbdCommand::Other(_) => Err(Errno::Inval),
        }
    }

    fn allowed_flags(&self, command: NbdCommand) -> CommandFlags {
        let offered = |flag, command_flag| {
            if self.flags.contains(flag) { command_flag } else { CommandFlags::NONE }
        };
        // Clients are known to set FUA on commands that write nothing; the specification lets them.
        let fua = offered(TransmissionFlags::SEND_FUA, CommandFlags::FUA);
        match command {
            NbdCommand::Read => fua | offered(TransmissionFlags::SEND_DF, CommandFlags::DF),
            NbdCommand::WriteZeroes => {
                fua | CommandFlags::NO_HOLE
                    | offered(TransmissionFlags::SEND_FAST_ZERO, CommandFlags::FAST_ZERO)
            }
            _ => fua,
        }
    }

    fn check_change(&self, needed: TransmissionFlags) -> Result<(), Errno> {
        if self.flags.contains(TransmissionFlags::READ_ONLY) {
            return Err(Errno::Perm);
        }
        self.check_offered(needed)
    }

    fn check_offered(&self, needed: TransmissionFlags) -> Result<(), Errno> {
        if self.flags.contains(needed) { Ok(()) } else { Err(Errno::Inval) }
    }

    fn check_range(&self, offset: u64, length: u32, beyond: Errno) -> Result<(), Errno> {
        let block = self.blocks.minimum;
        // A minimum block is a power of two, so that one test sees the low bits of both numbers.
        if length == 0 || (offset | u64::from(length)) & u64::from(block - 1) != 0 {
            return Err(Errno::Inval);
        }
        match offset.checked_add(u64::from(length)) {
            Some(end) if end <= self.size => Ok(()),
            _ => Err(beyond),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const EVERYTHING: TransmissionFlags = TransmissionFlags::HAS_FLAGS
        .with(TransmissionFlags::SEND_FLUSH)
        .with(TransmissionFlags::SEND_FUA)
        .with(TransmissionFlags::SEND_TRIM)
        .with(TransmissionFlags::SEND_WRITE_ZEROES)
        .with(TransmissionFlags::SEND_DF)
        .with(TransmissionFlags::SEND_FAST_ZERO);

    const SIZE: u64 = 1 << 30;

    fn geometry() -> ExportGeometry {
        ExportGeometry { size: SIZE, flags: EVERYTHING, blocks: BlockSizes::new(512, 4096, 1 << 20).unwrap() }
    }

    fn request(command: NbdCommand, offset: u64, length: u32) -> WireRequest {
        WireRequest { command, flags: CommandFlags::NONE, cookie: 7, offset, length }
    }

    #[test]
    fn block_sizes_keep_to_the_specification() {
        assert!(BlockSizes::new(1, 512, 512).is_ok());
        assert!(BlockSizes::new(65_536, 65_536, 1 << 20).is_ok());
        assert_eq!(BlockSizes::new(0, 512, 512), Err(BlockSizesError::Minimum(0)));
        assert_eq!(BlockSizes::new(3, 512, 512), Err(BlockSizesError::Minimum(3)));
        assert_eq!(BlockSizes::new(131_072, 131_072, 1 << 20), Err(BlockSizesError::Minimum(131_072)));
        assert_eq!(BlockSizes::new(1, 256, 512), Err(BlockSizesError::Preferred(256)));
        assert_eq!(BlockSizes::new(4096, 2048, 4096), Err(BlockSizesError::Preferred(2048)));
        assert_eq!(BlockSizes::new(1, 4096, 2048), Err(BlockSizesError::Maximum(2048)));
        assert_eq!(BlockSizes::new(1, 4096, u32::MAX).unwrap().maximum(), u32::MAX - 8);
    }

    #[test]
    fn the_end_of_the_export_is_exact_and_the_error_depends_on_the_command() {
        let geometry = geometry();
        for (command, beyond) in [
            (NbdCommand::Read, Errno::Inval),
            (NbdCommand::Trim, Errno::Inval),
            (NbdCommand::Write, Errno::NoSpc),
            (NbdCommand::WriteZeroes, Errno::NoSpc),
        ] {
            assert!(geometry.check(&request(command, SIZE - 4096, 4096)).is_ok());
            assert_eq!(geometry.check(&request(command, SIZE - 4096, 4608)), Err(beyond));
            assert_eq!(geometry.check(&request(command, SIZE, 512)), Err(beyond));
            assert_eq!(geometry.check(&request(command, u64::MAX - 511, 512)), Err(beyond));
        }
    }

    #[test]
    fn unaligned_and_empty_ranges_are_einval() {
        for command in [NbdCommand::Read, NbdCommand::Write, NbdCommand::Trim, NbdCommand::WriteZeroes] {
            for (offset, length) in [(1, 512), (512, 511), (0, 0), (256, 256)] {
                assert_eq!(geometry().check(&request(command, offset, length)), Err(Errno::Inval));
            }
        }
    }

    #[test]
    fn payloads_are_bound_and_effects_are_not() {
        let mut geometry = geometry();
        let long = (1 << 20) + 512;
        assert!(geometry.check(&request(NbdCommand::Write, 0, 1 << 20)).is_ok());
        assert_eq!(geometry.check(&request(NbdCommand::Write, 0, long)), Err(Errno::Inval));
        assert_eq!(geometry.check(&request(NbdCommand::Read, 0, long)), Err(Errno::Overflow));
        assert!(geometry.check(&request(NbdCommand::Trim, 0, long)).is_ok());
        assert!(geometry.check(&request(NbdCommand::WriteZeroes, 0, 1 << 29)).is_ok());
        geometry.flags = geometry.flags.without(TransmissionFlags::SEND_DF);
        assert_eq!(geometry.check(&request(NbdCommand::Read, 0, long)), Err(Errno::Inval));
    }

    #[test]
    fn a_read_only_export_refuses_changes_and_still_flushes() {
        let mut geometry = geometry();
        geometry.flags = geometry.flags | TransmissionFlags::READ_ONLY;
        for command in [NbdCommand::Write, NbdCommand::Trim, NbdCommand::WriteZeroes] {
            assert_eq!(geometry.check(&request(command, 0, 512)), Err(Errno::Perm));
        }
        assert!(geometry.check(&request(NbdCommand::Read, 0, 512)).is_ok());
        assert_eq!(geometry.check(&request(NbdCommand::Flush, 0, 0)), Ok(CheckedOperation::Flush));
    }

    #[test]
    fn what_was_not_offered_is_refused() {
        let bare = ExportGeometry { flags: TransmissionFlags::HAS_FLAGS, ..geometry() };
        for command in [NbdCommand::Trim, NbdCommand::WriteZeroes] {
            assert_eq!(bare.check(&request(command, 0, 512)), Err(Errno::Inval));
        }
        assert_eq!(bare.check(&request(NbdCommand::Flush, 0, 0)), Err(Errno::Inval));
        for command in [NbdCommand::Cache, NbdCommand::BlockStatus, NbdCommand::Resize, NbdCommand::Other(99)]
        {
            assert_eq!(geometry().check(&request(command, 0, 512)), Err(Errno::Inval));
        }
        let flagged = |command, flags| WireRequest { flags, ..request(command, 0, 512) };
        for (command, flags) in [
            (NbdCommand::Write, CommandFlags::FUA),
            (NbdCommand::Read, CommandFlags::DF),
            (NbdCommand::WriteZeroes, CommandFlags::FAST_ZERO),
        ] {
            assert!(geometry().check(&flagged(command, flags)).is_ok());
            assert_eq!(bare.check(&flagged(command, flags)), Err(Errno::Inval));
        }
        for (command, flags) in [
            (NbdCommand::Write, CommandFlags::DF),
            (NbdCommand::Read, CommandFlags::NO_HOLE),
            (NbdCommand::Trim, CommandFlags::FAST_ZERO),
            (NbdCommand::Read, CommandFlags::REQ_ONE),
            (NbdCommand::Write, CommandFlags::from_bits(1 << 15)),
        ] {
            assert_eq!(geometry().check(&flagged(command, flags)), Err(Errno::Inval));
        }
        assert!(geometry().check(&flagged(NbdCommand::Read, CommandFlags::FUA)).is_ok());
    }

    #[test]
    fn flush_reserves_its_range_and_disconnect_always_goes_through() {
        assert_eq!(geometry().check(&request(NbdCommand::Flush, 512, 0)), Err(Errno::Inval));
        assert_eq!(geometry().check(&request(NbdCommand::Flush, 0, 512)), Err(Errno::Inval));
        let goodbye =
            WireRequest { flags: CommandFlags::from_bits(u16::MAX), ..request(NbdCommand::Disconnect, 9, 9) };
        assert_eq!(geometry().check(&goodbye), Ok(CheckedOperation::Disconnect));
    }

    proptest! {
        /// A backend can carry out every accepted request without looking again.
        #[test]
        fn an_accepted_range_is_within_aligned_and_bound(
            code in 0u16..10, flags in 0u16..64, offset in any::<u64>(), length in any::<u32>(),
            near_end in any::<bool>(), size in any::<u64>(), export_flags in any::<u16>(), shift in 0u32..17,
        ) {
            let minimum = 1 << shift;
            let blocks = BlockSizes::new(minimum, minimum.max(512), 1 << 20).unwrap();
            let geometry = ExportGeometry { size, flags: TransmissionFlags::from_bits(export_flags), blocks };
            let (offset, length) =
                if near_end { (size.saturating_sub(offset % 8192), length % 8192) } else { (offset, length) };
            let request = WireRequest {
                command: NbdCommand::from_code(code), flags: CommandFlags::from_bits(flags), cookie: 0,
                    offset, length,
            };
            let payload = match geometry.check(&request) {
                Ok(CheckedOperation::Read { .. } | CheckedOperation::Write { .. }) => true,
                Ok(CheckedOperation::Trim { .. } | CheckedOperation::WriteZeroes { .. }) => false,
                Ok(CheckedOperation::Flush | CheckedOperation::Disconnect) | Err(_) => return Ok(()),
            };
            prop_assert!(length > 0);
            prop_assert!(u128::from(offset) + u128::from(length) <= u128::from(size));
            prop_assert!(offset % u64::from(minimum) == 0 && length % minimum == 0);
            prop_assert!(!payload || length <= 1 << 20);
            let read_only = geometry.flags.contains(TransmissionFlags::READ_ONLY);
            prop_assert!(request.command == NbdCommand::Read || !read_only);
        }
    }
}
