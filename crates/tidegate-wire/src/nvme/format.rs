//! PDUs of NVMe/TCP. Each says its own length, digests included, so that nothing is agreed on beforehand.

use crate::connection::Towards;
use crate::framing::{PduFormat, PduShape};

/// The shortest header. The rest of a longer one is kept.
const HEADER: usize = 24;

/// The header of a capsule with a command, in bytes.
pub(super) const CAPSULE: usize = 72;

/// A connect's data: the names of the peers are in it.
const CONNECT_DATA: usize = 1024;

const DIGEST: usize = 4;

/// Types of PDUs.
pub(super) mod kind {
    pub(crate) const INITIALIZE_REQUEST: u8 = 0x00;
    pub(crate) const INITIALIZE_RESPONSE: u8 = 0x01;
    pub(crate) const HOST_TERMINATES: u8 = 0x02;
    pub(crate) const CONTROLLER_TERMINATES: u8 = 0x03;
    pub(crate) const COMMAND: u8 = 0x04;
    pub(crate) const RESPONSE: u8 = 0x05;
    pub(crate) const HOST_DATA: u8 = 0x06;
    pub(crate) const CONTROLLER_DATA: u8 = 0x07;
    pub(crate) const READY_TO_TRANSFER: u8 = 0x09;
}

/// Flags of a PDU's header.
pub(super) mod flag {
    pub(crate) const HEADER_DIGEST: u8 = 0x01;
    pub(crate) const DATA_DIGEST: u8 = 0x02;
    pub(crate) const LAST: u8 = 0x04;
    pub(crate) const SUCCESS: u8 = 0x08;
}

/// The opcode of a fabrics command, and the type of a connect.
const FABRICS: u8 = 0x7f;
const CONNECT: u8 = 0x01;

/// The PDUs of one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NvmeFormat {
    pub(super) towards: Towards,
}

/// Returns a field of four bytes.
pub(super) fn number(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Returns a field of two bytes.
pub(super) fn short(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

/// Returns true if a capsule has a connect.
pub(super) fn is_connect(head: &[u8]) -> bool {
    head[0] == kind::COMMAND && head[8] == FABRICS && head[12] == CONNECT
}

/// Returns the length of a PDU's data, by where they begin and end in it.
pub(super) fn data_length(head: &[u8]) -> u64 {
    let digest = if head[1] & flag::DATA_DIGEST != 0 { DIGEST as u64 } else { 0 };
    match u64::from(head[3]) {
        0 => 0,
        offset => u64::from(number(head, 4)).saturating_sub(offset + digest),
    }
}

impl NvmeFormat {
    /// Returns the length of the header of a PDU that may pass in this direction.
    fn header(self, head: &[u8]) -> Option<usize> {
        let length = match (self.towards, head[0]) {
            (Towards::Target, kind::INITIALIZE_REQUEST) | (Towards::Initiator, kind::INITIALIZE_RESPONSE) => {
                128
            }
            (Towards::Target, kind::COMMAND) => CAPSULE,
            (Towards::Target, kind::HOST_TERMINATES | kind::HOST_DATA) => HEADER,
            (
                Towards::Initiator,
                kind::CONTROLLER_TERMINATES
                | kind::RESPONSE
                | kind::CONTROLLER_DATA
                | kind::READY_TO_TRANSFER,
            ) => HEADER,
            _ => return None,
        };
        let is_whole = number(head, 4) as usize >= length;
        (usize::from(head[2]) == length && is_whole).then_some(length)
    }
}

impl PduFormat for NvmeFormat {
    const HEAD: usize = HEADER;

    fn shape(&self, head: &[u8]) -> Option<PduShape> {
        let header = self.header(head)?;
        let rest = number(head, 4) as usize - HEADER;
        let data = if is_connect(head) { DIGEST + CONNECT_DATA } else { 0 };
        // Of an initialisation nothing is worth reading.
        let kept = if head[0] == kind::COMMAND { rest.min(header - HEADER + data) } else { 0 };
        Some(PduShape { kept: kept as u32, skipped: (rest - kept) as u64 })
    }

    fn is_plausible(&self, head: &[u8]) -> bool {
        let (flags, length) = (head[1], number(head, 4) as usize);
        let digest = if flags & flag::HEADER_DIGEST != 0 { DIGEST } else { 0 };
        let has_data = usize::from(head[3]) >= usize::from(head[2]) + digest;
        match head[0] {
            kind::COMMAND => flags & !3 == 0 && (has_data || length == CAPSULE + digest),
            kind::RESPONSE => flags & !1 == 0 && length == HEADER + digest,
            kind::READY_TO_TRANSFER => flags & !1 == 0 && length == HEADER + digest,
            kind::HOST_DATA => flags & !7 == 0 && has_data,
            kind::CONTROLLER_DATA => flags & !15 == 0 && has_data,
            // A connection seen from its middle is past its initialisation.
            _ => false,
        }
    }
}
