//! The transmission phase: requests, replies, and the parser of replies.

mod parser;
mod reply;
mod request;
#[cfg(test)]
mod tests;

pub use parser::{ExpectedData, PendingReply, ReplyError, ReplyEvent, ReplyParser};
pub use reply::{ReplyFrame, ReplyStyle};
pub use request::{BadMagic, NbdCommand, REQUEST_SIZE, TOLERATED_PAYLOAD, WireRequest};

const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;

/// The only flag of a structured chunk: no more chunks follow for this request.
const CHUNK_DONE: u16 = 1;

/// The types of structured chunks.
mod chunk {
    pub(super) const NONE: u16 = 0;
    pub(super) const OFFSET_DATA: u16 = 1;
    pub(super) const OFFSET_HOLE: u16 = 2;
    pub(super) const ERROR: u16 = ERROR_BIT | 1;
    pub(super) const ERROR_OFFSET: u16 = ERROR_BIT | 2;
    /// Set in every type, known or not, that reports an error.
    pub(super) const ERROR_BIT: u16 = 1 << 15;
}
