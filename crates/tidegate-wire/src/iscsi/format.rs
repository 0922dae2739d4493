//! iSCSI's PDUs: 48 bytes of basic header segment, and what follows it (RFC 7143, section 11).

use crate::connection::Towards;
use crate::framing::{PduFormat, PduShape};

/// The length of a basic header segment.
const HEADER: usize = 48;

/// The text of a login PDU that is read. Both peers' offers take a fraction of it.
const MOST_TEXT: u64 = 16 << 10;

const DIGEST: u64 = 4;

/// Opcodes of initiators.
pub(super) mod request {
    pub(crate) const NOP_OUT: u8 = 0x00;
    pub(crate) const COMMAND: u8 = 0x01;
    pub(crate) const TASK_MANAGEMENT: u8 = 0x02;
    pub(crate) const LOGIN: u8 = 0x03;
    pub(crate) const TEXT: u8 = 0x04;
    pub(crate) const DATA_OUT: u8 = 0x05;
    pub(crate) const LOGOUT: u8 = 0x06;
    pub(crate) const SNACK: u8 = 0x10;
}

/// Opcodes of targets.
pub(super) mod response {
    pub(crate) const NOP_IN: u8 = 0x20;
    pub(crate) const COMMAND: u8 = 0x21;
    pub(crate) const TASK_MANAGEMENT: u8 = 0x22;
    pub(crate) const LOGIN: u8 = 0x23;
    pub(crate) const TEXT: u8 = 0x24;
    pub(crate) const DATA_IN: u8 = 0x25;
    pub(crate) const LOGOUT: u8 = 0x26;
    pub(crate) const READY_TO_TRANSFER: u8 = 0x31;
    pub(crate) const ASYNC: u8 = 0x32;
    pub(crate) const REJECT: u8 = 0x3f;
}

/// The digests that a connection's PDUs have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Digests {
    pub(super) header: bool,
    pub(super) data: bool,
}

/// The PDUs of one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IscsiFormat {
    pub(super) towards: Towards,
    pub(super) digests: Digests,
}

/// Returns the opcode of a header, without the mark of immediate delivery.
pub(super) fn opcode(header: &[u8]) -> u8 {
    header[0] & 0x3f
}

/// Returns a field of four bytes.
pub(super) fn number(header: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
}

/// Returns the length of a PDU's data, without its padding.
pub(super) fn data_length(header: &[u8]) -> u64 {
    u64::from(number(header, 4) & 0x00ff_ffff)
}

impl IscsiFormat {
    fn has_opcode(self, header: &[u8]) -> bool {
        match self.towards {
            Towards::Target => {
                header[0] & 0x80 == 0
                    && matches!(opcode(header), request::NOP_OUT..=request::LOGOUT | request::SNACK)
            }
            Towards::Initiator => {
                matches!(
                    header[0],
                    response::NOP_IN
                        ..=response::LOGOUT
                            | response::READY_TO_TRANSFER
                            | response::ASYNC
                            | response::REJECT
                )
            }
        }
    }
}

impl PduFormat for IscsiFormat {
    const HEAD: usize = HEADER;

    fn shape(&self, head: &[u8]) -> Option<PduShape> {
        if !self.has_opcode(head) {
            return None;
        }
        let additional = u64::from(head[4]) * 4;
        let data = data_length(head).next_multiple_of(4);
        let header_digest = if self.digests.header { DIGEST } else { 0 };
        let data_digest = if self.digests.data && data > 0 { DIGEST } else { 0 };
        let rest = additional + header_digest + data + data_digest;
        let is_login = matches!(opcode(head), request::LOGIN | response::LOGIN);
        let kept = if is_login { rest.min(MOST_TEXT) } else { 0 };
        Some(PduShape { kept: kept as u32, skipped: rest - kept })
    }

    /// Reserved bits are zero, and final bits one, in what initiators and targets send.
    fn is_plausible(&self, head: &[u8]) -> bool {
        let (flags, has_data) = (head[1], data_length(head) > 0);
        match opcode(head) {
            request::NOP_OUT => flags == 0x80 && head[2..4] == [0, 0],
            request::COMMAND => flags & 0x18 == 0 && head[2..4] == [0, 0] && head[4] <= 64,
            request::TASK_MANAGEMENT => flags & 0x80 != 0 && head[2..4] == [0, 0] && !has_data,
            request::DATA_OUT => flags & 0x7f == 0 && head[2..5] == [0, 0, 0] && has_data,
            request::LOGOUT => flags & 0x80 != 0 && !has_data,
            response::NOP_IN => flags == 0x80 && head[2..4] == [0, 0],
            response::COMMAND => flags & 0xe1 == 0x80,
            response::TASK_MANAGEMENT | response::LOGOUT => flags == 0x80 && !has_data,
            response::DATA_IN => flags & 0x38 == 0 && head[2] == 0 && (has_data || flags & 1 != 0),
            response::READY_TO_TRANSFER => flags == 0x80 && head[2..4] == [0, 0] && !has_data,
            response::ASYNC | response::REJECT => flags == 0x80,
            request::TEXT | response::TEXT => flags & 0x3f == 0,
            // A session seen from its middle is past its login.
            _ => false,
        }
    }
}
