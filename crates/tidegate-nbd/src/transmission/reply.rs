//! Replies, as the server writes them.

use std::ops::Deref;

use super::{
    CHUNK_DONE, EXTENDED_REPLY_MAGIC, MessageStyle, SIMPLE_REPLY_MAGIC, STRUCTURED_REPLY_MAGIC, chunk,
};
use crate::allocation::{ALLOCATION_CONTEXT, AllocationMap};
use crate::errno::Errno;

/// The longest frame: an extended error chunk with an offset.
const FRAME_CAPACITY: usize = 46;

/// The request that a reply answers, as every part of the reply names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RepliedRequest {
    /// The client's mark.
    pub cookie: u64,
    /// The request's offset, which extended replies repeat.
    pub offset: u64,
}

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

    /// The head of a chunk, extended or structured.
    fn chunk(style: MessageStyle, to: RepliedRequest, kind: u16, length: u32, last: bool) -> Self {
        debug_assert!(style.has_chunks(), "simple replies have no chunks");
        let extended = style == MessageStyle::Extended;
        let head = Self::empty()
            .push(if extended { EXTENDED_REPLY_MAGIC } else { STRUCTURED_REPLY_MAGIC }.to_be_bytes())
            .push(if last { CHUNK_DONE } else { 0 }.to_be_bytes())
            .push(kind.to_be_bytes())
            .push(to.cookie.to_be_bytes());
        if extended {
            head.push(to.offset.to_be_bytes()).push(u64::from(length).to_be_bytes())
        } else {
            head.push(length.to_be_bytes())
        }
    }

    /// A chunk without content that ends the reply; success unless an error chunk came before.
    #[must_use]
    pub fn done(style: MessageStyle, to: RepliedRequest) -> Self {
        Self::chunk(style, to, chunk::NONE, 0, true)
    }

    /// The head of a chunk of data; `length` bytes from `at` in the export follow. `length` is at least 1
    /// and within [`BlockSizes::maximum`](crate::BlockSizes::maximum). The last chunk is to be marked `last`
    /// only once nothing can fail any more.
    #[must_use]
    pub fn data(style: MessageStyle, to: RepliedRequest, at: u64, length: u32, last: bool) -> Self {
        debug_assert!(length > 0, "the specification forbids chunks without data");
        Self::chunk(style, to, chunk::OFFSET_DATA, length.saturating_add(8), last).push(at.to_be_bytes())
    }

    /// A chunk that says: `length` bytes (at least 1) from `at` in the export are zeroes.
    #[must_use]
    pub fn hole(style: MessageStyle, to: RepliedRequest, at: u64, length: u32, last: bool) -> Self {
        debug_assert!(length > 0, "the specification forbids holes without extent");
        Self::chunk(style, to, chunk::OFFSET_HOLE, 12, last).push(at.to_be_bytes()).push(length.to_be_bytes())
    }

    /// The head of the one chunk of a block status; so many extents follow.
    pub(super) fn allocation(style: MessageStyle, to: RepliedRequest, extents: u32) -> Self {
        debug_assert!(extents > 0, "the specification demands an extent");
        let length = AllocationMap::encoded_length(style, extents as usize) as u32;
        if style == MessageStyle::Extended {
            Self::chunk(style, to, chunk::BLOCK_STATUS_EXTENDED, 8 + length, true)
                .push(ALLOCATION_CONTEXT.to_be_bytes())
                .push(extents.to_be_bytes())
        } else {
            Self::chunk(style, to, chunk::BLOCK_STATUS, 4 + length, true)
                .push(ALLOCATION_CONTEXT.to_be_bytes())
        }
    }

    /// A chunk that ends the reply with an error for the request as a whole.
    #[must_use]
    pub fn error(style: MessageStyle, to: RepliedRequest, errno: Errno) -> Self {
        Self::chunk(style, to, chunk::ERROR, 6, true).push(errno.code().to_be_bytes()).push([0; 2])
    }

    /// A chunk that reports an error at `at` in the export, which lies within the request.
    #[must_use]
    pub fn error_at(style: MessageStyle, to: RepliedRequest, errno: Errno, at: u64, last: bool) -> Self {
        Self::chunk(style, to, chunk::ERROR_OFFSET, 14, last)
            .push(errno.code().to_be_bytes())
            .push([0; 2])
            .push(at.to_be_bytes())
    }
}

/// Replies in the style of a session.
impl MessageStyle {
    /// The whole reply to a request that succeeded and has no data. Under structured replies it is a simple
    /// one: the specification allows that, but for a read, and it is shorter.
    #[must_use]
    pub fn success(self, to: RepliedRequest) -> ReplyFrame {
        match self {
            Self::Simple | Self::Structured => ReplyFrame::simple(to.cookie, Ok(())),
            Self::Extended => ReplyFrame::done(self, to),
        }
    }

    /// The whole reply to a request that failed, whatever its command.
    #[must_use]
    pub fn error(self, to: RepliedRequest, errno: Errno) -> ReplyFrame {
        match self {
            Self::Simple => ReplyFrame::simple(to.cookie, Err(errno)),
            Self::Structured | Self::Extended => ReplyFrame::error(self, to, errno),
        }
    }

    /// The reply to a read of `length` bytes that succeeded; all its data follows.
    #[must_use]
    pub fn data(self, to: RepliedRequest, length: u32) -> ReplyFrame {
        match self {
            Self::Simple => ReplyFrame::simple(to.cookie, Ok(())),
            Self::Structured | Self::Extended => ReplyFrame::data(self, to, to.offset, length, true),
        }
    }

    /// The whole reply to a read of `length` bytes that are all zeroes, where replies consist of chunks.
    #[must_use]
    pub fn hole(self, to: RepliedRequest, length: u32) -> ReplyFrame {
        ReplyFrame::hole(self, to, to.offset, length, true)
    }

    /// The reply to a block status; its extents follow, as [`AllocationMap::encode`] writes them.
    #[must_use]
    pub fn allocation(self, to: RepliedRequest, map: &AllocationMap) -> ReplyFrame {
        ReplyFrame::allocation(self, to, map.extents().len() as u32)
    }
}
