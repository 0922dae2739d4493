//! The transmission phase: requests, replies, the parser of replies, and what a read has covered.

mod coverage;
mod parser;
mod reply;
mod request;
mod style;
#[cfg(test)]
mod tests;

pub use coverage::{CoverageError, ReadCoverage};
pub use parser::{ExpectedData, PendingReply, ReplyError, ReplyEvent, ReplyParser};
pub use reply::{RepliedRequest, ReplyFrame};
pub use request::{
    BadMagic, EXTENDED_REQUEST_SIZE, NbdCommand, REQUEST_SIZE, RequestFrame, TOLERATED_PAYLOAD, WireRequest,
};
pub use style::MessageStyle;

const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;
const EXTENDED_REPLY_MAGIC: u32 = 0x6e8a_278c;

/// The only flag of a chunk: no more chunks follow for this request.
const CHUNK_DONE: u16 = 1;

/// The types of chunks.
mod chunk {
    pub(super) const NONE: u16 = 0;
    pub(super) const OFFSET_DATA: u16 = 1;
    pub(super) const OFFSET_HOLE: u16 = 2;
    pub(super) const BLOCK_STATUS: u16 = 5;
    pub(super) const BLOCK_STATUS_EXTENDED: u16 = 6;
    pub(super) const ERROR: u16 = ERROR_BIT | 1;
    pub(super) const ERROR_OFFSET: u16 = ERROR_BIT | 2;
    /// Set in every type, known or not, that reports an error.
    pub(super) const ERROR_BIT: u16 = 1 << 15;
}
