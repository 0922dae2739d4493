//! Requests.

use thiserror::Error;

use crate::flags::CommandFlags;

/// The size of a request without its payload, in bytes.
pub const REQUEST_SIZE: usize = 28;

/// The longest payload that a server should read and drop for the sake of an error reply (specification,
/// "Size constraints": up to 32 MiB is no denial of service). Beyond it, or beyond the advertised maximum
/// where that is larger, closing the connection is in order.
pub const TOLERATED_PAYLOAD: u32 = 32 << 20;

const REQUEST_MAGIC: u32 = 0x2560_9513;

/// The bytes are not a request: both sides have lost step, and the connection is beyond repair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("a request begins with {REQUEST_MAGIC:#010x}, not with {0:#010x}")]
pub struct BadMagic(pub u32);

/// The commands that a client can send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NbdCommand {
    /// `NBD_CMD_READ`
    Read,
    /// `NBD_CMD_WRITE`; the payload follows.
    Write,
    /// `NBD_CMD_DISC`; has no reply.
    Disconnect,
    /// `NBD_CMD_FLUSH`
    Flush,
    /// `NBD_CMD_TRIM`
    Trim,
    /// `NBD_CMD_CACHE`; recognised, never offered.
    Cache,
    /// `NBD_CMD_WRITE_ZEROES`
    WriteZeroes,
    /// `NBD_CMD_BLOCK_STATUS`; recognised, never offered.
    BlockStatus,
    /// `NBD_CMD_RESIZE`; recognised, never offered.
    Resize,
    /// A number that the specification does not know.
    Other(u16),
}

impl NbdCommand {
    /// The number on the wire.
    #[must_use]
    pub const fn code(self) -> u16 {
        match self {
            Self::Read => 0,
            Self::Write => 1,
            Self::Disconnect => 2,
            Self::Flush => 3,
            Self::Trim => 4,
            Self::Cache => 5,
            Self::WriteZeroes => 6,
            Self::BlockStatus => 7,
            Self::Resize => 8,
            Self::Other(code) => code,
        }
    }

    /// From the number on the wire.
    #[must_use]
    pub const fn from_code(code: u16) -> Self {
        match code {
            0 => Self::Read,
            1 => Self::Write,
            2 => Self::Disconnect,
            3 => Self::Flush,
            4 => Self::Trim,
            5 => Self::Cache,
            6 => Self::WriteZeroes,
            7 => Self::BlockStatus,
            8 => Self::Resize,
            other => Self::Other(other),
        }
    }
}

/// A request as it stands on the wire, not yet judged: see
/// [`ExportGeometry::check`](crate::ExportGeometry::check).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WireRequest {
    /// The command.
    pub command: NbdCommand,
    /// Its flags.
    pub flags: CommandFlags,
    /// The client's mark, returned with every part of the reply.
    pub cookie: u64,
    /// The offset in bytes.
    pub offset: u64,
    /// The length in bytes.
    pub length: u32,
}

impl WireRequest {
    /// Reads a request.
    ///
    /// # Errors
    /// When the bytes are not one; nothing that follows on this connection can be understood then.
    pub fn parse(bytes: &[u8; REQUEST_SIZE]) -> Result<Self, BadMagic> {
        let [m0, m1, m2, m3, f0, f1, c0, c1, rest @ ..] = *bytes;
        let magic = u32::from_be_bytes([m0, m1, m2, m3]);
        if magic != REQUEST_MAGIC {
            return Err(BadMagic(magic));
        }
        let [k0, k1, k2, k3, k4, k5, k6, k7, o0, o1, o2, o3, o4, o5, o6, o7, l0, l1, l2, l3] = rest;
        Ok(Self {
            command: NbdCommand::from_code(u16::from_be_bytes([c0, c1])),
            flags: CommandFlags::from_bits(u16::from_be_bytes([f0, f1])),
            cookie: u64::from_be_bytes([k0, k1, k2, k3, k4, k5, k6, k7]),
            offset: u64::from_be_bytes([o0, o1, o2, o3, o4, o5, o6, o7]),
            length: u32::from_be_bytes([l0, l1, l2, l3]),
        })
    }

    /// Writes a request, without its payload.
    #[must_use]
    pub fn encode(&self) -> [u8; REQUEST_SIZE] {
        let mut bytes = [0; REQUEST_SIZE];
        bytes[..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes());
        bytes[4..6].copy_from_slice(&self.flags.bits().to_be_bytes());
        bytes[6..8].copy_from_slice(&self.command.code().to_be_bytes());
        bytes[8..16].copy_from_slice(&self.cookie.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.offset.to_be_bytes());
        bytes[24..].copy_from_slice(&self.length.to_be_bytes());
        bytes
    }

    /// Returns the bytes of payload that follow the request: those of a `WRITE`, accepted or not.
    #[must_use]
    pub const fn payload_length(&self) -> u32 {
        match self.command {
            NbdCommand::Write => self.length,
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_request_stands_on_the_wire_as_specified() {
        let request = WireRequest {
            command: NbdCommand::Write,
            flags: CommandFlags::FUA,
            cookie: 0x0102_0304_0506_0708,
            offset: 0x1112_1314_1516_1718,
            length: 0x2122_2324,
        };
        let bytes = [
            0x25, 0x60, 0x95, 0x13, 0, 1, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16,
            0x17, 0x18, 0x21, 0x22, 0x23, 0x24,
        ];
        assert_eq!(request.encode(), bytes);
        assert_eq!(WireRequest::parse(&bytes), Ok(request));
        assert_eq!(request.payload_length(), 0x2122_2324);
        assert_eq!(WireRequest { command: NbdCommand::Read, ..request }.payload_length(), 0);
    }

    #[test]
    fn a_wrong_magic_number_is_fatal() {
        let mut bytes = WireRequest {
            command: NbdCommand::Read,
            flags: CommandFlags::NONE,
            cookie: 1,
            offset: 0,
            length: 1,
        }
        .encode();
        bytes[3] ^= 1;
        assert_eq!(WireRequest::parse(&bytes), Err(BadMagic(0x2560_9512)));
    }

    proptest! {
        #[test]
        fn requests_round_trip(
            code in any::<u16>(), flags in any::<u16>(), cookie in any::<u64>(),
            offset in any::<u64>(), length in any::<u32>(),
        ) {
            let command = NbdCommand::from_code(code);
            prop_assert_eq!(command.code(), code);
            let request = WireRequest { command, flags: CommandFlags::from_bits(flags), cookie, offset,
                length };
            prop_assert_eq!(WireRequest::parse(&request.encode()), Ok(request));
        }
    }
}
