//! Replies, as the client reads them.

use thiserror::Error;

use super::{
    CHUNK_DONE, EXTENDED_REPLY_MAGIC, MessageStyle, SIMPLE_REPLY_MAGIC, STRUCTURED_REPLY_MAGIC, chunk,
};
use crate::allocation::{AllocationExtent, AllocationMap, parse_extent};
use crate::errno::Errno;
use crate::export::MAX_STRING;
use crate::input::{MessageCollector, MessageFields};

/// The most bytes that are kept of an error chunk: two numbers, a message, an offset, and room for additions
/// by extensions.
const MAX_ERROR_CHUNK: u64 = MAX_STRING as u64 + 64;

/// The most extents in one chunk: the specification asks servers not to send more.
const MAX_EXTENTS: u64 = 1 << 20;

/// A request that waits for its reply, as far as its reply can be judged by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PendingReply {
    /// A `READ` of this range.
    Read {
        /// The offset in bytes.
        offset: u64,
        /// The length in bytes.
        length: u32,
    },
    /// A `BLOCK_STATUS`.
    BlockStatus {
        /// The offset in bytes.
        offset: u64,
        /// The server's id of the one context that was negotiated.
        context: u32,
    },
    /// Anything else: its reply has no data.
    Other {
        /// The offset in bytes.
        offset: u64,
    },
}

impl PendingReply {
    /// Returns the request's offset, which extended replies repeat.
    const fn offset(self) -> u64 {
        match self {
            Self::Read { offset, .. } | Self::BlockStatus { offset, .. } | Self::Other { offset } => offset,
        }
    }
}

/// A piece of a reply. Pieces of replies to different requests may alternate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyEvent<'a> {
    /// Data of a read, as much as has arrived.
    Data {
        /// The request's mark.
        cookie: u64,
        /// The offset of the bytes in the export.
        offset: u64,
        /// The bytes; never none.
        bytes: &'a [u8],
    },
    /// A range of a read that consists of zeroes.
    Hole {
        /// The request's mark.
        cookie: u64,
        /// The offset of the range in the export.
        offset: u64,
        /// Its length in bytes; never zero.
        length: u32,
    },
    /// The next extent of a block status, behind those told so far.
    Extent {
        /// The request's mark.
        cookie: u64,
        /// The extent, which may reach beyond what was asked about.
        extent: AllocationExtent,
    },
    /// The request failed, as a whole or at `offset`; the reply may go on.
    Failed {
        /// The request's mark.
        cookie: u64,
        /// The error.
        errno: Errno,
        /// The offset in the export, if the server says.
        offset: Option<u64>,
    },
    /// The reply is complete: the cookie is free. The request succeeded unless it was reported as failed.
    /// It is the caller's to count whether a read's data is complete, and whether a block status has extents.
    End {
        /// The request's mark.
        cookie: u64,
    },
}

/// Data of a read whose place is known before it arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExpectedData {
    /// The request's mark.
    pub cookie: u64,
    /// The offset of the bytes in the export.
    pub offset: u64,
    /// The number of bytes still to come; never zero.
    pub length: u32,
}

/// The reasons why the server's bytes cannot be understood any more. Close the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ReplyError {
    /// Both sides have lost step.
    #[error("a reply begins with {0:#010x}, which is no magic number of replies")]
    BadMagic(u32),
    /// A reply to something that is not pending.
    #[error("a reply to cookie {0:#x}, which no request carries")]
    UnknownCookie(u64),
    /// A read under structured replies was answered by a simple reply.
    #[error("a simple reply to the read with cookie {0:#x} despite structured replies")]
    SimpleReplyToRead(u64),
    /// A block status was answered by a simple reply that claims success.
    #[error("a simple reply to the block status with cookie {0:#x}")]
    SimpleReplyToStatus(u64),
    /// An extended reply repeats another offset than that of its request.
    #[error("a reply to cookie {cookie:#x} repeats the offset {offset}, which its request did not have")]
    WrongOffset {
        /// The request's mark.
        cookie: u64,
        /// The offset in the reply.
        offset: u64,
    },
    /// A reply of a style that was not negotiated.
    #[error("a reply of a style that was not negotiated")]
    NotNegotiated,
    /// A chunk of a type that makes no sense as an answer to the request.
    #[error("a chunk of type {kind:#06x} for cookie {cookie:#x}, which makes no sense there")]
    UnexpectedChunk {
        /// The request's mark.
        cookie: u64,
        /// The type of the chunk.
        kind: u16,
    },
    /// A chunk whose length or fields do not add up.
    #[error("a malformed chunk of type {kind:#06x} and {length} bytes for cookie {cookie:#x}")]
    MalformedChunk {
        /// The request's mark.
        cookie: u64,
        /// The type of the chunk.
        kind: u16,
        /// Its announced length in bytes.
        length: u64,
    },
    /// Data or a hole outside of what the read asked for.
    #[error("data outside of the range that cookie {0:#x} asked for")]
    OutOfRange(u64),
}

#[derive(Debug, Clone, Copy)]
enum ParserState {
    Magic,
    Simple,
    ChunkHeader,
    /// The head of a chunk was read; its fields in front of the data are to come.
    ChunkFields(Chunk),
    /// Extents of a block status are to come.
    Extents {
        chunk: Chunk,
        remaining: u64,
    },
    /// Data is passing through.
    Data {
        cookie: u64,
        offset: u64,
        remaining: u32,
        last: bool,
    },
    /// [`ReplyEvent::End`] is due.
    Ending {
        cookie: u64,
    },
    Failed(ReplyError),
}

#[derive(Debug, Clone, Copy)]
struct Chunk {
    cookie: u64,
    kind: u16,
    length: u64,
    last: bool,
}

impl Chunk {
    fn malformed(self) -> ReplyError {
        ReplyError::MalformedChunk { cookie: self.cookie, kind: self.kind, length: self.length }
    }

    /// Returns the length of the part of the chunk that is read before anything is reported.
    fn fields_length(self) -> usize {
        match self.kind {
            chunk::OFFSET_DATA | chunk::BLOCK_STATUS_EXTENDED => 8,
            chunk::BLOCK_STATUS => 4,
            // At most that of an error chunk.
            _ => self.length as usize,
        }
    }
}

/// Parses the replies of one connection. It holds no data of reads: those are handed on in pieces as they
/// arrive.
#[derive(Debug)]
pub struct ReplyParser {
    state: ParserState,
    style: MessageStyle,
    input: MessageCollector,
}

impl ReplyParser {
    /// A parser at the beginning of the transmission phase.
    #[must_use]
    pub fn new(style: MessageStyle) -> Self {
        Self { state: ParserState::Magic, style, input: MessageCollector::default() }
    }

    /// Takes bytes: says how many it took, and what they brought. Call it, dropping what it took, until it
    /// reports nothing: then it took everything. `pending` tells which request a cookie marks; its answer
    /// must not change before the request's [`ReplyEvent::End`].
    ///
    /// # Errors
    /// When the server broke the protocol; every further call says the same.
    pub fn receive<'a>(
        &mut self,
        bytes: &'a [u8],
        pending: impl FnMut(u64) -> Option<PendingReply>,
    ) -> Result<(usize, Option<ReplyEvent<'a>>), ReplyError> {
        let mut rest = bytes;
        let outcome = self.advance(&mut rest, pending);
        if let Err(error) = outcome {
            self.state = ParserState::Failed(error);
        }
        Ok((bytes.len() - rest.len(), outcome?))
    }

    /// Returns true if the bytes so far end between two replies or chunks, so that a connection may end here.
    #[must_use]
    pub fn is_between_replies(&self) -> bool {
        matches!(self.state, ParserState::Magic) && self.input.is_empty()
    }

    /// The data that comes next, for callers that receive it to where it belongs without passing it through
    /// here.
    #[must_use]
    pub const fn expects_data(&self) -> Option<ExpectedData> {
        match self.state {
            ParserState::Data { cookie, offset, remaining, .. } if remaining > 0 => {
                Some(ExpectedData { cookie, offset, length: remaining })
            }
            _ => None,
        }
    }

    /// The first `count` bytes of [`expects_data`](Self::expects_data) have been received elsewhere. More
    /// than were expected is a mistake of the caller's, and counts as what was expected.
    pub fn received_data(&mut self, count: u32) {
        if let ParserState::Data { offset, remaining, .. } = &mut self.state {
            debug_assert!(count <= *remaining, "{count} bytes were received where {remaining} were expected");
            let count = count.min(*remaining);
            *offset = offset.saturating_add(u64::from(count));
            *remaining -= count;
        }
    }

    /// Returns the number of bytes kept.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn held(&self) -> usize {
        self.input.held()
    }

    fn advance<'a>(
        &mut self,
        rest: &mut &'a [u8],
        mut pending: impl FnMut(u64) -> Option<PendingReply>,
    ) -> Result<Option<ReplyEvent<'a>>, ReplyError> {
        loop {
            match self.state {
                ParserState::Magic => {
                    let Some(magic) = self.input.take(rest) else { return Ok(None) };
                    self.state = match u32::from_be_bytes(magic) {
                        SIMPLE_REPLY_MAGIC if self.style != MessageStyle::Extended => ParserState::Simple,
                        STRUCTURED_REPLY_MAGIC if self.style == MessageStyle::Structured => {
                            ParserState::ChunkHeader
                        }
                        EXTENDED_REPLY_MAGIC if self.style == MessageStyle::Extended => {
                            ParserState::ChunkHeader
                        }
                        SIMPLE_REPLY_MAGIC | STRUCTURED_REPLY_MAGIC | EXTENDED_REPLY_MAGIC => {
                            return Err(ReplyError::NotNegotiated);
                        }
                        other => return Err(ReplyError::BadMagic(other)),
                    };
                }
                ParserState::Simple => {
                    let Some(fields) = self.input.take(rest) else { return Ok(None) };
                    let (state, event) = simple(fields, self.style, &mut pending)?;
                    self.state = state;
                    if event.is_some() {
                        return Ok(event);
                    }
                }
                ParserState::ChunkHeader => {
                    let length = if self.style == MessageStyle::Extended { 28 } else { 16 };
                    if !self.input.fill(rest, length) {
                        return Ok(None);
                    }
                    self.state = self.input.read(|header| chunk_header(header, &mut pending))?;
                }
                ParserState::ChunkFields(chunk) => {
                    let Some(fields) = self.input.take_vec(rest, chunk.fields_length()) else {
                        return Ok(None);
                    };
                    let (state, event) = chunk_fields(chunk, &fields, &mut pending)?;
                    self.state = state;
                    if event.is_some() {
                        return Ok(event);
                    }
                }
                ParserState::Extents { chunk, remaining: 0 } => self.state = after(chunk.cookie, chunk.last),
                ParserState::Extents { chunk, remaining } => {
                    let length = AllocationMap::encoded_length(self.style, 1);
                    if !self.input.fill(rest, length) {
                        return Ok(None);
                    }
                    let extent = self.input.read(parse_extent).ok_or(chunk.malformed())?;
                    self.state = ParserState::Extents { chunk, remaining: remaining - 1 };
                    return Ok(Some(ReplyEvent::Extent { cookie: chunk.cookie, extent }));
                }
                ParserState::Data { cookie, remaining: 0, last, .. } => self.state = after(cookie, last),
                ParserState::Data { cookie, offset, remaining, last } => {
                    let taken = rest.len().min(remaining as usize);
                    if taken == 0 {
                        return Ok(None);
                    }
                    let (bytes, left) = rest.split_at(taken);
                    *rest = left;
                    let remaining = remaining - taken as u32;
                    self.state = ParserState::Data {
                        cookie,
                        offset: offset.saturating_add(taken as u64),
                        remaining,
                        last,
                    };
                    return Ok(Some(ReplyEvent::Data { cookie, offset, bytes }));
                }
                ParserState::Ending { cookie } => {
                    self.state = ParserState::Magic;
                    return Ok(Some(ReplyEvent::End { cookie }));
                }
                ParserState::Failed(error) => return Err(error),
            }
        }
    }
}

/// Returns the state after the last byte of a chunk.
fn after(cookie: u64, last: bool) -> ParserState {
    if last { ParserState::Ending { cookie } } else { ParserState::Magic }
}

type Step = (ParserState, Option<ReplyEvent<'static>>);

/// A simple reply behind its magic number.
fn simple(
    fields: [u8; 12],
    style: MessageStyle,
    pending: &mut impl FnMut(u64) -> Option<PendingReply>,
) -> Result<Step, ReplyError> {
    let [e0, e1, e2, e3, cookie @ ..] = fields;
    let error = u32::from_be_bytes([e0, e1, e2, e3]);
    let cookie = u64::from_be_bytes(cookie);
    match pending(cookie).ok_or(ReplyError::UnknownCookie(cookie))? {
        PendingReply::Read { .. } if style.has_chunks() => Err(ReplyError::SimpleReplyToRead(cookie)),
        PendingReply::BlockStatus { .. } if error == 0 => Err(ReplyError::SimpleReplyToStatus(cookie)),
        PendingReply::Read { offset, length } if error == 0 => {
            Ok((ParserState::Data { cookie, offset, remaining: length, last: true }, None))
        }
        _ if error == 0 => Ok((ParserState::Ending { cookie }, None)),
        _ => {
            let failed = ReplyEvent::Failed { cookie, errno: Errno::from_code(error), offset: None };
            Ok((ParserState::Ending { cookie }, Some(failed)))
        }
    }
}

/// The head of a chunk behind its magic number: 16 bytes of a structured one, 28 of an extended one.
fn chunk_header(
    header: &[u8],
    pending: &mut impl FnMut(u64) -> Option<PendingReply>,
) -> Result<ParserState, ReplyError> {
    const WHOLE: &str = "a header is read as a whole";
    let extended = header.len() > 16;
    let mut fields = MessageFields(header);
    let flags = fields.u16().expect(WHOLE);
    let kind = fields.u16().expect(WHOLE);
    let cookie = fields.u64().expect(WHOLE);
    let offset = extended.then(|| fields.u64().expect(WHOLE));
    let length = if extended { fields.u64().expect(WHOLE) } else { fields.u32().expect(WHOLE).into() };
    // Flags that we do not know are to be ignored.
    let chunk = Chunk { cookie, kind, length, last: flags & CHUNK_DONE != 0 };
    let request = pending(cookie).ok_or(ReplyError::UnknownCookie(cookie))?;
    if let Some(offset) = offset.filter(|offset| *offset != request.offset()) {
        return Err(ReplyError::WrongOffset { cookie, offset });
    }
    let is_read = matches!(request, PendingReply::Read { .. });
    let is_status = matches!(request, PendingReply::BlockStatus { .. });
    let plausible = match kind {
        chunk::NONE => length == 0 && chunk.last,
        chunk::OFFSET_DATA if is_read => length > 8,
        chunk::OFFSET_HOLE if is_read => length == 12,
        chunk::BLOCK_STATUS if is_status && !extended => extents_of(length, 4, 8).is_some(),
        chunk::BLOCK_STATUS_EXTENDED if is_status && extended => extents_of(length, 8, 16).is_some(),
        chunk::ERROR_OFFSET => (14..=MAX_ERROR_CHUNK).contains(&length),
        // Whatever its type, a chunk with this bit begins like the plain error chunk.
        kind if kind & chunk::ERROR_BIT != 0 => (6..=MAX_ERROR_CHUNK).contains(&length),
        _ => return Err(ReplyError::UnexpectedChunk { cookie, kind }),
    };
    if plausible { Ok(ParserState::ChunkFields(chunk)) } else { Err(chunk.malformed()) }
}

/// Returns the number of extents in a chunk of this length, if there is one.
fn extents_of(length: u64, fields: u64, each: u64) -> Option<u64> {
    let extents = length.checked_sub(fields)?;
    let count = extents / each;
    (extents.is_multiple_of(each) && (1..=MAX_EXTENTS).contains(&count)).then_some(count)
}

/// The fields of a chunk: all of it but the data of a read and the extents of a block status.
fn chunk_fields(
    chunk: Chunk,
    fields: &[u8],
    pending: &mut impl FnMut(u64) -> Option<PendingReply>,
) -> Result<Step, ReplyError> {
    let Chunk { cookie, kind, length, last } = chunk;
    let mut fields = MessageFields(fields);
    match kind {
        chunk::NONE => Ok((after(cookie, last), None)),
        chunk::OFFSET_DATA => {
            let offset = fields.u64().ok_or(chunk.malformed())?;
            // Not longer than the read, if it is within its range.
            let remaining = u32::try_from(length - 8).map_err(|_| ReplyError::OutOfRange(cookie))?;
            check_range(cookie, offset, remaining, pending)?;
            Ok((ParserState::Data { cookie, offset, remaining, last }, None))
        }
        chunk::OFFSET_HOLE => {
            let offset = fields.u64().ok_or(chunk.malformed())?;
            let extent = fields.u32().filter(|extent| *extent > 0).ok_or(chunk.malformed())?;
            check_range(cookie, offset, extent, pending)?;
            Ok((after(cookie, last), Some(ReplyEvent::Hole { cookie, offset, length: extent })))
        }
        chunk::BLOCK_STATUS | chunk::BLOCK_STATUS_EXTENDED => {
            let context = fields.u32().ok_or(chunk.malformed())?;
            let extended = kind == chunk::BLOCK_STATUS_EXTENDED;
            let (head, each) = if extended { (8, 16) } else { (4, 8) };
            let remaining = extents_of(length, head, each).ok_or(chunk.malformed())?;
            let count = if extended { fields.u32().map(u64::from) } else { Some(remaining) };
            let known = matches!(pending(cookie), Some(PendingReply::BlockStatus { context: asked, .. })
                if asked == context);
            if !known || count != Some(remaining) {
                return Err(chunk.malformed());
            }
            Ok((ParserState::Extents { chunk, remaining }, None))
        }
        _ => {
            let error = fields.u32().filter(|error| *error != 0).ok_or(chunk.malformed())?;
            let message = fields.u16().ok_or(chunk.malformed())?;
            fields.bytes(usize::from(message)).ok_or(chunk.malformed())?;
            let offset = match kind {
                chunk::ERROR_OFFSET => Some(fields.u64().ok_or(chunk.malformed())?),
                _ => None,
            };
            let failed = ReplyEvent::Failed { cookie, errno: Errno::from_code(error), offset };
            Ok((after(cookie, last), Some(failed)))
        }
    }
}

fn check_range(
    cookie: u64,
    offset: u64,
    length: u32,
    pending: &mut impl FnMut(u64) -> Option<PendingReply>,
) -> Result<(), ReplyError> {
    let within = match pending(cookie) {
        Some(PendingReply::Read { offset: from, length: wanted }) => offset
            .checked_sub(from)
            .is_some_and(|skipped| skipped.saturating_add(u64::from(length)) <= u64::from(wanted)),
        _ => false,
    };
    if within { Ok(()) } else { Err(ReplyError::OutOfRange(cookie)) }
}
