//! Replies, as the server writes them.

use std::ops::Deref;

use super::{CHUNK_DONE, SIMPLE_REPLY_MAGIC, STRUCTURED_REPLY_MAGIC, chunk};
use crate::errno::Errno;

/// The longest frame: an error chunk with an offset.
const FRAME_CAPACITY: usize = 34;

/// The bytes of a reply up to its payload, in place: no allocation, and the payload is sent from where it
/// lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplyFrame {
    bytes: [u8; FRAME_CAPACITY],
    length: u8,
}

impl Deref for ReplyFrame {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

impl ReplyFrame {
    fn empty() -> Self {
        Self { bytes: [0; FRAME_CAPACITY], length: 0 }
    }

    fn push<const N: usize>(mut self, field: [u8; N]) -> Self {
        let start = usize::from(self.length);
        self.bytes[start..start + N].copy_from_slice(&field);
        self.length += N as u8;
        self
    }

    /// A simple reply: success (followed by the data if it answers a read), or an error.
    #[must_use]
    pub fn simple(cookie: u64, result: Result<(), Errno>) -> Self {
        let error = result.err().map_or(0, Errno::code);
        Self::empty()
            .push(SIMPLE_REPLY_MAGIC.to_be_bytes())
            .push(error.to_be_bytes())
            .push(cookie.to_be_bytes())
    }

    fn chunk(cookie: u64, kind: u16, length: u32, last: bool) -> Self {
        Self::empty()
            .push(STRUCTURED_REPLY_MAGIC.to_be_bytes())
            .push(if last { CHUNK_DONE } else { 0 }.to_be_bytes())
            .push(kind.to_be_bytes())
            .push(cookie.to_be_bytes())
            .push(length.to_be_bytes())
    }

    /// A chunk without content that ends the reply; success unless an error chunk came before.
    #[must_use]
    pub fn done(cookie: u64) -> Self {
        Self::chunk(cookie, chunk::NONE, 0, true)
    }

    /// The head of a chunk of data; `length` bytes from `offset` of the export follow. `length` is at least 1
    /// and within [`BlockSizes::maximum`](crate::BlockSizes::maximum). The last chunk is to be marked `last`
    /// only once nothing can fail any more.
    #[must_use]
    pub fn data(cookie: u64, offset: u64, length: u32, last: bool) -> Self {
        debug_assert!(length > 0, "the specification forbids chunks without data");
        Self::chunk(cookie, chunk::OFFSET_DATA, length.saturating_add(8), last).push(offset.to_be_bytes())
    }

    /// A chunk that says: `length` bytes (at least 1) from `offset` of the export are zeroes.
    #[must_use]
    pub fn hole(cookie: u64, offset: u64, length: u32, last: bool) -> Self {
        debug_assert!(length > 0, "the specification forbids holes without extent");
        Self::chunk(cookie, chunk::OFFSET_HOLE, 12, last)
            .push(offset.to_be_bytes())
            .push(length.to_be_bytes())
    }

    /// A chunk that ends the reply with an error for the request as a whole.
    #[must_use]
    pub fn error(cookie: u64, errno: Errno) -> Self {
        Self::chunk(cookie, chunk::ERROR, 6, true).push(errno.code().to_be_bytes()).push([0; 2])
    }

    /// A chunk that reports an error at `offset` of the export, which lies within the request.
    #[must_use]
    pub fn error_at(cookie: u64, errno: Errno, offset: u64, last: bool) -> Self {
        Self::chunk(cookie, chunk::ERROR_OFFSET, 14, last)
            .push(errno.code().to_be_bytes())
            .push([0; 2])
            .push(offset.to_be_bytes())
    }
}

/// The style of the replies to a session's requests, as negotiated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReplyStyle {
    /// Simple replies only.
    Simple,
    /// Structured replies wherever data or an error is involved.
    Structured,
}

impl ReplyStyle {
    /// The whole reply to a request that succeeded and has no data. Sixteen bytes in either style: the
    /// specification allows a simple reply here under structured replies too, but it may not answer a read.
    #[must_use]
    pub fn success(self, cookie: u64) -> ReplyFrame {
        ReplyFrame::simple(cookie, Ok(()))
    }

    /// The whole reply to a request that failed, whatever its command.
    #[must_use]
    pub fn error(self, cookie: u64, errno: Errno) -> ReplyFrame {
        match self {
            Self::Simple => ReplyFrame::simple(cookie, Err(errno)),
            Self::Structured => ReplyFrame::error(cookie, errno),
        }
    }

    /// The reply to a read of `length` bytes at `offset` that succeeded; all its data follows.
    #[must_use]
    pub fn data(self, cookie: u64, offset: u64, length: u32) -> ReplyFrame {
        match self {
            Self::Simple => ReplyFrame::simple(cookie, Ok(())),
            Self::Structured => ReplyFrame::data(cookie, offset, length, true),
        }
    }
}
