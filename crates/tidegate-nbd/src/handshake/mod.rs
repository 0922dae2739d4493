//! The handshake: fixed newstyle negotiation, the server's side and the client's.

mod client;
mod server;
#[cfg(test)]
mod starttls;
#[cfg(test)]
mod tests;

pub use client::{ClientError, ClientEvent, ClientHandshake, ExportListing, OptionRefusal};
pub use server::{ExportAnswer, ServerError, ServerEvent, ServerHandshake, TlsMode};

use crate::export::ExportName;
use crate::terms::SessionTerms;

const NBD_MAGIC: u64 = 0x4e42_444d_4147_4943;
const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;

/// In the server's flags and in the client's alike.
const FIXED_NEWSTYLE: u16 = 1;
/// In the server's flags and in the client's alike: no padding after the answer to `EXPORT_NAME`.
const NO_ZEROES: u16 = 2;
/// The length of that padding.
const ZEROES: usize = 124;

/// The most data of one option, or of one reply to an option, that is ever kept.
const MAX_DATA: u32 = 64 << 10;

/// The outcome of a handshake that leads to transmission. Bytes that arrive after it belong to transmission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opened {
    /// The export's name as the client asked for it.
    pub name: ExportName,
    /// The terms that requests are judged by.
    pub terms: SessionTerms,
}

/// The numbers of options.
mod option {
    pub(super) const EXPORT_NAME: u32 = 1;
    pub(super) const ABORT: u32 = 2;
    pub(super) const LIST: u32 = 3;
    pub(super) const STARTTLS: u32 = 5;
    pub(super) const INFO: u32 = 6;
    pub(super) const GO: u32 = 7;
    pub(super) const STRUCTURED_REPLY: u32 = 8;
    pub(super) const LIST_META_CONTEXT: u32 = 9;
    pub(super) const SET_META_CONTEXT: u32 = 10;
    pub(super) const EXTENDED_HEADERS: u32 = 11;
}

/// The types of replies to options.
mod reply {
    pub(super) const ACK: u32 = 1;
    pub(super) const SERVER: u32 = 2;
    pub(super) const INFO: u32 = 3;
    pub(super) const META_CONTEXT: u32 = 4;
    /// Set in every type that refuses the option.
    pub(super) const ERROR_BIT: u32 = 1 << 31;
    pub(super) const ERR_UNSUP: u32 = ERROR_BIT | 1;
    pub(super) const ERR_POLICY: u32 = ERROR_BIT | 2;
    pub(super) const ERR_INVALID: u32 = ERROR_BIT | 3;
    pub(super) const ERR_PLATFORM: u32 = ERROR_BIT | 4;
    pub(super) const ERR_TLS_REQD: u32 = ERROR_BIT | 5;
    pub(super) const ERR_UNKNOWN: u32 = ERROR_BIT | 6;
    pub(super) const ERR_SHUTDOWN: u32 = ERROR_BIT | 7;
    pub(super) const ERR_BLOCK_SIZE_REQD: u32 = ERROR_BIT | 8;
    pub(super) const ERR_TOO_BIG: u32 = ERROR_BIT | 9;
    pub(super) const ERR_EXT_HEADER_REQD: u32 = ERROR_BIT | 10;
}

/// The types of information about an export.
mod info {
    pub(super) const EXPORT: u16 = 0;
    pub(super) const NAME: u16 = 1;
    pub(super) const DESCRIPTION: u16 = 2;
    pub(super) const BLOCK_SIZE: u16 = 3;
    /// Tidegate's own request: the client knows that what `ESHUTDOWN` answers was not carried out. Servers
    /// ignore requests for what they do not know (specification, "NBD_OPT_GO").
    pub(super) const HEARS_SHUTDOWN: u16 = 0x7467;
}

/// Bytes on their way out.
#[derive(Debug, Default)]
struct Output {
    bytes: Vec<u8>,
}

impl Output {
    fn put(&mut self, bytes: &[u8]) -> &mut Self {
        self.bytes.extend_from_slice(bytes);
        self
    }

    fn sent(&mut self, count: usize) {
        self.bytes.drain(..count.min(self.bytes.len()));
    }
}
