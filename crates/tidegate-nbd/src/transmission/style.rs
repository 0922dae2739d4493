//! The style of a session's messages.

use super::reply::{RepliedRequest, ReplyFrame};
use super::request::{EXTENDED_REQUEST_SIZE, REQUEST_SIZE};
use crate::allocation::AllocationMap;
use crate::errno::Errno;

/// The style of a session's requests and replies, as negotiated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MessageStyle {
    /// Compact requests, and simple replies only.
    Simple,
    /// Compact requests, and structured replies wherever data or an error is involved.
    Structured,
    /// Extended requests and replies only.
    Extended,
}

impl MessageStyle {
    /// Returns the size of a request without its payload, in bytes.
    #[must_use]
    pub const fn request_size(self) -> usize {
        match self {
            Self::Simple | Self::Structured => REQUEST_SIZE,
            Self::Extended => EXTENDED_REQUEST_SIZE,
        }
    }

    /// Returns true if replies consist of chunks, so that they can tell of holes and of allocation.
    #[must_use]
    pub const fn has_chunks(self) -> bool {
        !matches!(self, Self::Simple)
    }

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
