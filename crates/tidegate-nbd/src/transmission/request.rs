//! Requests.

use std::ops::Deref;

use thiserror::Error;

use super::MessageStyle;
use crate::flags::CommandFlags;
use crate::input::MessageFields;

/// The size of a compact request without its payload, in bytes.
pub const REQUEST_SIZE: usize = 28;

/// The size of an extended request without its payload, in bytes.
pub const EXTENDED_REQUEST_SIZE: usize = 32;

/// The longest payload that a server should read and drop for the sake of an error reply (specification,
/// "Size constraints": up to 32 MiB is no denial of service). Beyond it, or beyond the advertised maximum
/// where that is larger, closing the connection is in order.
pub const TOLERATED_PAYLOAD: u32 = 32 << 20;

const REQUEST_MAGIC: u32 = 0x2560_9513;
const EXTENDED_REQUEST_MAGIC: u32 = 0x21e4_1c71;

impl MessageStyle {
    /// Returns the size of a request without its payload, in bytes.
    #[must_use]
    pub const fn request_size(self) -> usize {
        match self {
            Self::Simple | Self::Structured => REQUEST_SIZE,
            Self::Extended => EXTENDED_REQUEST_SIZE,
        }
    }
}

/// The bytes are not a request of the negotiated style: both sides have lost step, and the connection is
/// beyond repair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("a request begins with {expected:#010x}, not with {found:#010x}")]
pub struct BadMagic {
    /// The magic number of the negotiated style.
    pub expected: u32,
    /// The number in its place.
    pub found: u32,
}

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
    /// `NBD_CMD_CACHE`
    Cache,
    /// `NBD_CMD_WRITE_ZEROES`
    WriteZeroes,
    /// `NBD_CMD_BLOCK_STATUS`; under extended headers a payload may follow.
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
/// [`SessionTerms::check`](crate::SessionTerms::check).
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
    /// The length in bytes: of the payload that follows, or else of the effect.
    pub length: u64,
    /// A payload of that length follows.
    pub has_payload: bool,
}

impl WireRequest {
    /// A request whose payload is what its command has under any style: that of a `WRITE`.
    #[must_use]
    pub fn new(
        command: NbdCommand,
        flags: CommandFlags,
        cookie: u64,
        offset: u64,
        length: impl Into<u64>,
    ) -> Self {
        let has_payload = command == NbdCommand::Write;
        Self { command, flags, cookie, offset, length: length.into(), has_payload }
    }

    /// Reads a request from its [`MessageStyle::request_size`] bytes. Of extended ones the flag
    /// [`CommandFlags::PAYLOAD_LEN`] becomes [`has_payload`](Self::has_payload); in compact ones it is
    /// unknown.
    ///
    /// # Errors
    /// When the bytes are not one; nothing that follows on this connection can be understood then.
    pub fn parse(bytes: &[u8], style: MessageStyle) -> Result<Self, BadMagic> {
        let mut fields = MessageFields(bytes);
        let expected = magic(style);
        let found = fields.u32().unwrap_or_default();
        if found != expected {
            return Err(BadMagic { expected, found });
        }
        let flags = CommandFlags::from_bits(fields.u16().unwrap_or_default());
        let command = NbdCommand::from_code(fields.u16().unwrap_or_default());
        let cookie = fields.u64().unwrap_or_default();
        let offset = fields.u64().unwrap_or_default();
        Ok(if style == MessageStyle::Extended {
            let length = fields.u64().unwrap_or_default();
            // A `WRITE` must have the flag. QEMU's client omits it, and sends the payload all the same.
            let has_payload = flags.contains(CommandFlags::PAYLOAD_LEN) || command == NbdCommand::Write;
            let flags = flags.without(CommandFlags::PAYLOAD_LEN);
            Self { command, flags, cookie, offset, length, has_payload }
        } else {
            Self::new(command, flags, cookie, offset, fields.u32().unwrap_or_default())
        })
    }

    /// Writes a request, without its payload. The length of a compact one must fit 32 bits, and its payload
    /// is implied by its command.
    #[must_use]
    pub fn encode(&self, style: MessageStyle) -> RequestFrame {
        let mut flags = self.flags;
        if style == MessageStyle::Extended && self.has_payload {
            flags = flags | CommandFlags::PAYLOAD_LEN;
        }
        let mut bytes = [0; EXTENDED_REQUEST_SIZE];
        bytes[..4].copy_from_slice(&magic(style).to_be_bytes());
        bytes[4..6].copy_from_slice(&flags.bits().to_be_bytes());
        bytes[6..8].copy_from_slice(&self.command.code().to_be_bytes());
        bytes[8..16].copy_from_slice(&self.cookie.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.offset.to_be_bytes());
        if style == MessageStyle::Extended {
            bytes[24..].copy_from_slice(&self.length.to_be_bytes());
        } else {
            debug_assert!(u32::try_from(self.length).is_ok(), "{} does not fit", self.length);
            bytes[24..28].copy_from_slice(&(self.length as u32).to_be_bytes());
        }
        RequestFrame { bytes, length: style.request_size() as u8 }
    }

    /// Returns the bytes of payload that follow the request, accepted or not.
    #[must_use]
    pub const fn payload_length(&self) -> u64 {
        if self.has_payload { self.length } else { 0 }
    }
}

fn magic(style: MessageStyle) -> u32 {
    match style {
        MessageStyle::Simple | MessageStyle::Structured => REQUEST_MAGIC,
        MessageStyle::Extended => EXTENDED_REQUEST_MAGIC,
    }
}

/// The bytes of a request up to its payload, in place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestFrame {
    bytes: [u8; EXTENDED_REQUEST_SIZE],
    length: u8,
}

impl Deref for RequestFrame {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_request_stands_on_the_wire_as_specified() {
        let (cookie, offset) = (0x0102_0304_0506_0708, 0x1112_1314_1516_1718);
        let request = WireRequest::new(NbdCommand::Write, CommandFlags::FUA, cookie, offset, 0x2122_2324u32);
        let bytes = [
            0x25, 0x60, 0x95, 0x13, 0, 1, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16,
            0x17, 0x18, 0x21, 0x22, 0x23, 0x24,
        ];
        for style in [MessageStyle::Simple, MessageStyle::Structured] {
            assert_eq!(request.encode(style)[..], bytes);
            assert_eq!(WireRequest::parse(&bytes, style), Ok(request));
        }
        assert_eq!(request.payload_length(), 0x2122_2324);
        assert_eq!(WireRequest { has_payload: false, ..request }.payload_length(), 0);
        let extended = [
            0x21, 0xe4, 0x1c, 0x71, 0, 0x21, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8, 0x11, 0x12, 0x13, 0x14, 0x15,
            0x16, 0x17, 0x18, 0, 0, 0, 0, 0x21, 0x22, 0x23, 0x24,
        ];
        assert_eq!(request.encode(MessageStyle::Extended)[..], extended);
        assert_eq!(WireRequest::parse(&extended, MessageStyle::Extended), Ok(request));
    }

    #[test]
    fn only_extended_headers_say_whether_a_payload_follows() {
        let flagged = WireRequest::new(NbdCommand::Read, CommandFlags::PAYLOAD_LEN, 1, 0, 512u32);
        let compact = WireRequest::parse(&flagged.encode(MessageStyle::Simple), MessageStyle::Simple);
        assert_eq!(compact, Ok(flagged), "an unknown flag, and no payload");
        let extended = WireRequest::parse(&flagged.encode(MessageStyle::Extended), MessageStyle::Extended);
        assert_eq!(extended.map(|request| request.payload_length()), Ok(512));
    }

    #[test]
    fn a_write_that_qemu_sends_without_the_flag_has_its_payload() {
        let write = WireRequest::new(NbdCommand::Write, CommandFlags::FUA, 1, 0, 512u32);
        let mut bytes = write.encode(MessageStyle::Extended).to_vec();
        assert_eq!(bytes[5], 0x21);
        bytes[5] = 1;
        assert_eq!(WireRequest::parse(&bytes, MessageStyle::Extended), Ok(write));
    }

    #[test]
    fn a_wrong_magic_number_is_fatal() {
        let request = WireRequest::new(NbdCommand::Read, CommandFlags::NONE, 1, 0, 1u32);
        let mut bytes = request.encode(MessageStyle::Simple).to_vec();
        let wrong = |found, expected| Err(BadMagic { expected, found });
        bytes.resize(EXTENDED_REQUEST_SIZE, 0);
        assert_eq!(
            WireRequest::parse(&bytes, MessageStyle::Extended),
            wrong(0x2560_9513, 0x21e4_1c71),
            "a compact one where extended ones were negotiated"
        );
        bytes[3] ^= 1;
        assert_eq!(WireRequest::parse(&bytes, MessageStyle::Simple), wrong(0x2560_9512, 0x2560_9513));
    }

    proptest! {
        #[test]
        fn requests_round_trip(
            code in any::<u16>(), flags in any::<u16>(), cookie in any::<u64>(),
            offset in any::<u64>(), length in any::<u64>(), extended in any::<bool>(),
        ) {
            let command = NbdCommand::from_code(code);
            prop_assert_eq!(command.code(), code);
            let (style, length) = if extended {
                (MessageStyle::Extended, length)
            } else {
                (MessageStyle::Structured, length & u64::from(u32::MAX))
            };
            let request = WireRequest::new(command, CommandFlags::from_bits(flags), cookie, offset, length);
            let request = WireRequest::parse(&request.encode(style), style).unwrap();
            prop_assert_eq!(WireRequest::parse(&request.encode(style), style), Ok(request));
        }
    }
}
