//! Exports: their names, what they promise, and what that allows a client to ask.

use std::fmt;

use thiserror::Error;

use crate::errno::Errno;
use crate::flags::{CommandFlags, TransmissionFlags};
use crate::transmission::{Command, Request};

/// The longest string of the protocol in bytes (specification, "Conventions").
pub const MAX_STRING: usize = 4096;

/// Why a text cannot name an export.
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

/// The name of an export: at most [`MAX_STRING`] bytes of UTF-8 without NUL. The empty name means the server's
/// default export.
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

/// Why three numbers are not size constraints.
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
    /// What holds where nothing was negotiated: every byte addressable, 4 KiB preferred, payloads up to 32 MiB.
    pub const DEFAULT: Self = Self { minimum: 1, preferred: 4096, maximum: 32 << 20 };

    /// The most data that fits one structured chunk, whose 32-bit length counts the 8 bytes of the offset too.
    const MAX_CHUNK_DATA: u32 = u32::MAX - 8;

    /// Checks and takes sizes: every offset and length is a multiple of `minimum`, multiples of `preferred` are
    /// cheap, no payload is longer than `maximum`. A `maximum` that no structured chunk can carry (the protocol's
    /// "no limit" among them) is lowered to what it can.
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
pub struct Export {
    /// What requests are judged by.
    pub geometry: Geometry,
    /// For people; `""` for none. More than [`MAX_STRING`] bytes are not sent.
    pub description: String,
}

/// The part of an export that requests are judged by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// The size in bytes.
    pub size: u64,
    /// What the export can do.
    pub flags: TransmissionFlags,
    /// What sizes a client must keep to.
    pub blocks: BlockSizes,
}

/// A request that passed [`Geometry::check`]: its range is not empty, lies within the export and is aligned, its
/// payload is within bounds, and the export can do it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Read `length` bytes at `offset`.
    Read {
        /// From where, in bytes.
        offset: u64,
        /// How much, in bytes.
        length: u32,
    },
    /// Write `length` bytes, which follow the request, at `offset`.
    Write {
        /// To where, in bytes.
        offset: u64,
        /// How much, in bytes.
        length: u32,
        /// Answer only once the data is on stable storage.
        fua: bool,
    },
    /// Bring to stable storage every write that has been answered.
    Flush,
    /// The range is no longer needed.
    Trim {
        /// From where, in bytes.
        offset: u64,
        /// How much, in bytes; not bound by the maximum payload.
        length: u32,
        /// Answer only once the effect is on stable storage.
        fua: bool,
    },
    /// The range shall read as zeroes.
    WriteZeroes {
        /// From where, in bytes.
        offset: u64,
        /// How much, in bytes; not bound by the maximum payload.
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

impl Geometry {
    /// Judges a request: what to do, or which error to answer.
    ///
    /// A refused `WRITE` still has its payload on the wire. `DISC` is accepted whatever else it carries, because
    /// it has no reply that could complain.
    ///
    /// # Errors
    /// As the specification says under "Error values": [`Errno::Perm`] for changes to a read-only export,
    /// [`Errno::NoSpc`] for writes (zeroes included) beyond the end, [`Errno::Inval`] for other ranges beyond the
    /// end, for empty or unaligned ones, and for commands and flags that were not offered; a payload that is too
    /// long is [`Errno::Inval`], or [`Errno::Overflow`] for a read where [`TransmissionFlags::SEND_DF`] was offered.
    pub fn check(&self, request: &Request) -> Result<Operation, Errno> {
        let Request { command, flags, offset, length, .. } = *request;
        if command == Command::Disconnect {
            return Ok(Operation::Disconnect);
        }
        if !self.allowed_flags(command).contains(flags) {
            return Err(Errno::Inval);
        }
        let fua = flags.contains(CommandFlags::FUA);
        match command {
            Command::Read => {
                self.check_range(offset, length, Errno::Inval)?;
                if length > self.blocks.maximum {
                    let df = self.flags.contains(TransmissionFlags::SEND_DF);
                    return Err(if df { Errno::Overflow } else { Errno::Inval });
                }
                Ok(Operation::Read { offset, length })
            }
            Command::Write => {
                self.check_change(TransmissionFlags::NONE)?;
                self.check_range(offset, length, Errno::NoSpc)?;
                if length > self.blocks.maximum {
                    return Err(Errno::Inval);
                }
                Ok(Operation::Write { offset, length, fua })
            }
            Command::Flush => {
                self.check_offered(TransmissionFlags::SEND_FLUSH)?;
                // The specification reserves both fields; a flush of a range is not something we could keep.
                if offset == 0 && length == 0 { Ok(Operation::Flush) } else { Err(Errno::Inval) }
            }
            Command::Trim => {
                self.check_change(TransmissionFlags::SEND_TRIM)?;
                self.check_range(offset, length, Errno::Inval)?;
                Ok(Operation::Trim { offset, length, fua })
            }
            Command::WriteZeroes => {
                self.check_change(TransmissionFlags::SEND_WRITE_ZEROES)?;
                self.check_range(offset, length, Errno::NoSpc)?;
                Ok(Operation::WriteZeroes {
                    offset,
                    length,
                    fua,
                    no_hole: flags.contains(CommandFlags::NO_HOLE),
                    fast: flags.contains(CommandFlags::FAST_ZERO),
                })
            }
            Command::Disconnect
            | Command::Cache
            | Command::BlockStatus
            | Command::Resize
            | Command::Other(_) => Err(Errno::Inval),
        }
    }

    fn allowed_flags(&self, command: Command) -> CommandFlags {
        let offered = |flag, command_flag| {
            if self.flags.contains(flag) { command_flag } else { CommandFlags::NONE }
        };
        // Clients are known to set FUA on commands that write nothing; the specification lets them.
        let fua = offered(TransmissionFlags::SEND_FUA, CommandFlags::FUA);
        match command {
            Command::Read => fua | offered(TransmissionFlags::SEND_DF, CommandFlags::DF),
            Command::WriteZeroes => {
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
