//! Replies: what the server writes is what the client reads, however the stream is cut.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::Errno;
use crate::allocation::{ALLOCATION_CONTEXT, AllocationExtent, AllocationMap, AllocationState};

/// The outcome of one request, put together from the pieces.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Outcome {
    /// Data by offset in the export; holes are zeroes.
    data: BTreeMap<u64, u8>,
    failures: Vec<(Errno, Option<u64>)>,
    extents: Vec<AllocationExtent>,
    ended: bool,
}

fn to(cookie: u64, offset: u64) -> RepliedRequest {
    RepliedRequest { cookie, offset }
}

fn chunked() -> impl Strategy<Value = MessageStyle> {
    prop_oneof![Just(MessageStyle::Structured), Just(MessageStyle::Extended)]
}

type Outcomes = BTreeMap<u64, Outcome>;

/// Feeds `stream` in pieces of the given lengths (the last one repeats), and puts the outcomes together.
/// Every other piece goes past the parser as far as it is expected data.
fn parse(
    style: MessageStyle,
    stream: &[u8],
    cuts: &[usize],
    pending: &BTreeMap<u64, PendingReply>,
) -> Result<Outcomes, ReplyError> {
    let mut parser = ReplyParser::new(style);
    let mut outcomes = Outcomes::new();
    let mut rest = stream;
    let mut cuts = cuts.iter().copied().chain(std::iter::repeat(cuts.last().copied().unwrap_or(usize::MAX)));
    for past in [false, true].into_iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (mut piece, left) = rest.split_at(cuts.next().unwrap_or(usize::MAX).clamp(1, rest.len()));
        rest = left;
        if past && let Some(ExpectedData { cookie, offset, length }) = parser.expects_data() {
            let (bytes, left) = piece.split_at(piece.len().min(length as usize));
            piece = left;
            parser.received_data(bytes.len() as u32);
            note(&mut outcomes, ReplyEvent::Data { cookie, offset, bytes });
        }
        loop {
            let (taken, event) = parser.receive(piece, |cookie| pending.get(&cookie).copied())?;
            piece = &piece[taken..];
            let Some(event) = event else { break };
            note(&mut outcomes, event);
        }
        assert!(piece.is_empty(), "a parser without news has taken everything");
    }
    assert!(parser.is_between_replies(), "the stream ends with a whole reply");
    Ok(outcomes)
}

fn note(outcomes: &mut Outcomes, event: ReplyEvent<'_>) {
    let (ReplyEvent::Data { cookie, .. }
    | ReplyEvent::Hole { cookie, .. }
    | ReplyEvent::Extent { cookie, .. }
    | ReplyEvent::Failed { cookie, .. }
    | ReplyEvent::End { cookie }) = event;
    let outcome = outcomes.entry(cookie).or_default();
    assert!(!outcome.ended, "nothing follows the end of a reply");
    match event {
        ReplyEvent::Data { offset, bytes, .. } => {
            assert!(!bytes.is_empty());
            outcome.data.extend((offset..).zip(bytes.iter().copied()));
        }
        ReplyEvent::Hole { offset, length, .. } => {
            outcome.data.extend((offset..offset + u64::from(length)).map(|at| (at, 0)));
        }
        ReplyEvent::Extent { extent, .. } => outcome.extents.push(extent),
        ReplyEvent::Failed { errno, offset, .. } => outcome.failures.push((errno, offset)),
        ReplyEvent::End { .. } => outcome.ended = true,
    }
}

/// A piece of a structured reply.
#[derive(Debug, Clone)]
enum Piece {
    Data(Vec<u8>),
    Hole(u32),
    ErrorAt(Errno),
}

fn errno() -> impl Strategy<Value = Errno> {
    prop_oneof![Just(Errno::Io), Just(Errno::NoSpc), Just(Errno::Inval), Just(Errno::Shutdown)]
}

fn pieces() -> impl Strategy<Value = Vec<Piece>> {
    let piece = prop_oneof![
        prop::collection::vec(any::<u8>(), 1..40).prop_map(Piece::Data),
        (1u32..40).prop_map(Piece::Hole),
        errno().prop_map(Piece::ErrorAt),
    ];
    prop::collection::vec(piece, 1..5)
}

fn cuts() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(1usize..50, 1..20)
}

/// The chunks of one structured reply, with what a client should make of them.
fn chunked_reply(
    style: MessageStyle,
    to: RepliedRequest,
    pieces: &[Piece],
    trailer: bool,
) -> (Vec<Vec<u8>>, Outcome, u32) {
    let mut expected = Outcome { ended: true, ..Outcome::default() };
    let mut chunks = Vec::new();
    let (start, mut at) = (to.offset, to.offset);
    for (index, piece) in pieces.iter().enumerate() {
        let last = !trailer && index + 1 == pieces.len();
        match piece {
            Piece::Data(bytes) => {
                let mut chunk = ReplyFrame::data(style, to, at, bytes.len() as u32, last).to_vec();
                chunk.extend_from_slice(bytes);
                chunks.push(chunk);
                expected.data.extend((at..).zip(bytes.iter().copied()));
                at += bytes.len() as u64;
            }
            Piece::Hole(length) => {
                chunks.push(ReplyFrame::hole(style, to, at, *length, last).to_vec());
                expected.data.extend((at..at + u64::from(*length)).map(|at| (at, 0)));
                at += u64::from(*length);
            }
            Piece::ErrorAt(errno) => {
                chunks.push(ReplyFrame::error_at(style, to, *errno, at, last).to_vec());
                expected.failures.push((*errno, Some(at)));
            }
        }
    }
    if trailer {
        chunks.push(ReplyFrame::done(style, to).to_vec());
    }
    (chunks, expected, (at - start) as u32)
}

proptest! {
    #[test]
    fn replies_in_chunks_survive_cuts_and_interleaving(
        style in chunked(),
        replies in prop::collection::vec((0u64..1 << 40, pieces(), any::<bool>()), 1..5),
        order in prop::collection::vec(any::<prop::sample::Index>(), 30),
        cuts in cuts(),
    ) {
        let mut pending = BTreeMap::new();
        let mut expected = Outcomes::new();
        let mut queues = Vec::new();
        for (cookie, (start, pieces, trailer)) in replies.iter().enumerate() {
            let (chunks, outcome, length) = chunked_reply(style, to(cookie as u64, *start), pieces, *trailer);
            pending.insert(cookie as u64, PendingReply::Read { offset: *start, length });
            expected.insert(cookie as u64, outcome);
            queues.push(chunks.into_iter());
        }
        let mut stream = Vec::new();
        let mut order = order.iter().cycle();
        while !queues.is_empty() {
            let queue = order.next().unwrap().index(queues.len());
            match queues[queue].next() {
                Some(chunk) => stream.extend(chunk),
                None => drop(queues.remove(queue)),
            }
        }
        prop_assert_eq!(parse(style, &stream, &cuts, &pending), Ok(expected));
    }

    #[test]
    fn every_style_round_trips(
        style in prop_oneof![Just(MessageStyle::Simple), chunked()],
        requests in prop::collection::vec(
            (any::<u64>(), prop::option::of(prop::collection::vec(any::<u8>(), 1..100)),
                prop::option::of(errno())),
            1..8,
        ),
        cuts in cuts(),
    ) {
        let (mut pending, mut expected, mut stream) = (BTreeMap::new(), Outcomes::new(), Vec::new());
        for (cookie, data, errno) in requests {
            if expected.contains_key(&cookie) {
                continue;
            }
            let offset = cookie >> 8;
            let length = data.as_ref().map_or(0, Vec::len) as u32;
            let read = PendingReply::Read { offset, length };
            pending.insert(cookie, if data.is_some() { read } else { PendingReply::Other { offset } });
            let mut outcome = Outcome { ended: true, ..Outcome::default() };
            match (errno, data) {
                (Some(errno), _) => {
                    stream.extend_from_slice(&style.error(to(cookie, offset), errno));
                    outcome.failures.push((errno, None));
                }
                (None, None) => stream.extend_from_slice(&style.success(to(cookie, offset))),
                (None, Some(data)) => {
                    stream.extend_from_slice(&style.data(to(cookie, offset), length));
                    stream.extend_from_slice(&data);
                    outcome.data.extend((offset..).zip(data));
                }
            }
            expected.insert(cookie, outcome);
        }
        prop_assert_eq!(parse(style, &stream, &cuts, &pending), Ok(expected));
    }

    /// Garbage, with a magic number in front so that the interesting states are reached.
    #[test]
    fn arbitrary_bytes_neither_panic_nor_pile_up(
        style in chunked(),
        simple in any::<bool>(),
        flags in 0u16..2,
        kind in prop_oneof![0u16..8, 0x8000u16..0x8004, any::<u16>()],
        cookie in 0u64..4,
        length in prop_oneof![0u32..64, any::<u32>()],
        tail in prop::collection::vec(any::<u8>(), 0..200),
        cuts in cuts(),
    ) {
        let magic = match style {
            _ if simple => SIMPLE_REPLY_MAGIC,
            MessageStyle::Extended => EXTENDED_REPLY_MAGIC,
            _ => STRUCTURED_REPLY_MAGIC,
        };
        let mut stream = magic.to_be_bytes().to_vec();
        stream.extend_from_slice(&flags.to_be_bytes());
        stream.extend_from_slice(&kind.to_be_bytes());
        stream.extend_from_slice(&cookie.to_be_bytes());
        if style == MessageStyle::Extended {
            stream.extend_from_slice(&[0; 12]);
        }
        stream.extend_from_slice(&length.to_be_bytes());
        stream.extend(tail);
        let mut parser = ReplyParser::new(style);
        let mut rest = &stream[..];
        let mut cuts = cuts.iter().cycle();
        'stream: while !rest.is_empty() {
            let (mut piece, left) = rest.split_at((*cuts.next().unwrap()).min(rest.len()));
            rest = left;
            loop {
                let pending = |cookie| match cookie {
                    0 => Some(PendingReply::Other { offset: 0 }),
                    1 => Some(PendingReply::Read { offset: u64::MAX - 9, length: u32::MAX }),
                    2 => Some(PendingReply::BlockStatus { offset: 0, context: 1 }),
                    _ => None,
                };
                match parser.receive(piece, pending) {
                    Ok((taken, Some(_))) => piece = &piece[taken..],
                    Ok((_, None)) => break,
                    Err(error) => {
                        prop_assert_eq!(parser.receive(&[], |_| None), Err(error));
                        break 'stream;
                    }
                }
            }
            prop_assert!(parser.held() < 4200);
        }
    }
}

/// A structured chunk made by hand.
fn chunk_bytes(last: bool, kind: u16, cookie: u64, payload: &[u8]) -> Vec<u8> {
    let mut bytes = STRUCTURED_REPLY_MAGIC.to_be_bytes().to_vec();
    bytes.extend_from_slice(&u16::from(last).to_be_bytes());
    bytes.extend_from_slice(&kind.to_be_bytes());
    bytes.extend_from_slice(&cookie.to_be_bytes());
    bytes.extend_from_slice(&(payload.len() as u32).to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

const READ: u64 = 1;
const WRITE: u64 = 2;
const STATUS: u64 = 3;

/// The request of each of these cookies, as replies name it.
fn of(cookie: u64) -> RepliedRequest {
    to(cookie, 4096)
}

fn one_of_each() -> BTreeMap<u64, PendingReply> {
    BTreeMap::from([
        (READ, PendingReply::Read { offset: 4096, length: 512 }),
        (WRITE, PendingReply::Other { offset: 4096 }),
        (STATUS, PendingReply::BlockStatus { offset: 4096, context: ALLOCATION_CONTEXT }),
    ])
}

fn parsed(style: MessageStyle, stream: &[u8]) -> Result<Outcomes, ReplyError> {
    parse(style, stream, &[], &one_of_each())
}

#[test]
fn a_server_that_breaks_the_protocol_is_found_out() {
    use MessageStyle::{Extended, Simple, Structured};
    let data_at = |offset: u64, length: usize| {
        let mut payload = offset.to_be_bytes().to_vec();
        payload.resize(8 + length, 0);
        payload
    };
    let cases: Vec<(MessageStyle, Vec<u8>, ReplyError)> = vec![
        (Simple, b"junk".to_vec(), ReplyError::BadMagic(0x6a75_6e6b)),
        (Simple, ReplyFrame::done(Structured, of(READ)).to_vec(), ReplyError::NotNegotiated),
        (Structured, ReplyFrame::done(Extended, of(READ)).to_vec(), ReplyError::NotNegotiated),
        (Extended, ReplyFrame::done(Structured, of(READ)).to_vec(), ReplyError::NotNegotiated),
        (Extended, ReplyFrame::simple(WRITE, Ok(())).to_vec(), ReplyError::NotNegotiated),
        (
            Extended,
            ReplyFrame::done(Extended, to(WRITE, 0)).to_vec(),
            ReplyError::WrongOffset { cookie: WRITE, offset: 0 },
        ),
        (Structured, ReplyFrame::simple(STATUS, Ok(())).to_vec(), ReplyError::SimpleReplyToStatus(STATUS)),
        (Simple, ReplyFrame::simple(9, Ok(())).to_vec(), ReplyError::UnknownCookie(9)),
        (Structured, ReplyFrame::done(Structured, of(9)).to_vec(), ReplyError::UnknownCookie(9)),
        (Structured, ReplyFrame::simple(READ, Ok(())).to_vec(), ReplyError::SimpleReplyToRead(READ)),
        (Structured, ReplyFrame::simple(READ, Err(Errno::Io)).to_vec(), ReplyError::SimpleReplyToRead(READ)),
        (
            Structured,
            ReplyFrame::data(Structured, of(WRITE), 4096, 1, true).to_vec(),
            ReplyError::UnexpectedChunk { cookie: WRITE, kind: chunk::OFFSET_DATA },
        ),
        (
            Structured,
            chunk_bytes(true, chunk::BLOCK_STATUS, READ, &[0; 12]),
            ReplyError::UnexpectedChunk { cookie: READ, kind: chunk::BLOCK_STATUS },
        ),
        (
            Structured,
            ReplyFrame::data(Structured, of(READ), 4095, 2, true).to_vec(),
            ReplyError::OutOfRange(READ),
        ),
        (
            Structured,
            ReplyFrame::data(Structured, of(READ), 4096, 513, true).to_vec(),
            ReplyError::OutOfRange(READ),
        ),
        (
            Structured,
            ReplyFrame::hole(Structured, of(READ), 4607, 2, true).to_vec(),
            ReplyError::OutOfRange(READ),
        ),
        (
            Structured,
            chunk_bytes(true, chunk::OFFSET_DATA, READ, &data_at(4096, 0)),
            ReplyError::MalformedChunk { cookie: READ, kind: chunk::OFFSET_DATA, length: 8 },
        ),
        (
            Structured,
            chunk_bytes(true, chunk::OFFSET_HOLE, READ, &data_at(4096, 4)),
            ReplyError::MalformedChunk { cookie: READ, kind: chunk::OFFSET_HOLE, length: 12 },
        ),
        (
            Structured,
            chunk_bytes(false, chunk::NONE, READ, &[]),
            ReplyError::MalformedChunk { cookie: READ, kind: chunk::NONE, length: 0 },
        ),
        (
            Structured,
            chunk_bytes(true, chunk::ERROR, READ, &[0, 0, 0, 5, 0, 1]),
            ReplyError::MalformedChunk { cookie: READ, kind: chunk::ERROR, length: 6 },
        ),
        (
            Structured,
            chunk_bytes(true, chunk::ERROR, READ, &[0; 6]),
            ReplyError::MalformedChunk { cookie: READ, kind: chunk::ERROR, length: 6 },
        ),
        (
            Structured,
            chunk_bytes(true, chunk::ERROR, READ, &[1; 5000]),
            ReplyError::MalformedChunk { cookie: READ, kind: chunk::ERROR, length: 5000 },
        ),
        (
            Structured,
            chunk_bytes(true, chunk::BLOCK_STATUS, STATUS, &[0, 0, 0, 9, 0, 0, 1, 0, 0, 0, 0, 0]),
            ReplyError::MalformedChunk { cookie: STATUS, kind: chunk::BLOCK_STATUS, length: 12 },
        ),
        (
            Structured,
            chunk_bytes(true, chunk::BLOCK_STATUS, STATUS, &[0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]),
            ReplyError::MalformedChunk { cookie: STATUS, kind: chunk::BLOCK_STATUS, length: 12 },
        ),
        (
            Structured,
            chunk_bytes(true, chunk::BLOCK_STATUS, STATUS, &[0, 0, 0, 1]),
            ReplyError::MalformedChunk { cookie: STATUS, kind: chunk::BLOCK_STATUS, length: 4 },
        ),
        (
            Structured,
            chunk_bytes(true, chunk::BLOCK_STATUS_EXTENDED, STATUS, &[0; 24]),
            ReplyError::UnexpectedChunk { cookie: STATUS, kind: chunk::BLOCK_STATUS_EXTENDED },
        ),
    ];
    for (style, stream, error) in cases {
        assert_eq!(parsed(style, &stream), Err(error));
    }
}

#[test]
fn error_chunks_may_carry_a_message_and_unknown_ones_are_errors() {
    let outcome = |stream: &[u8]| parsed(MessageStyle::Structured, stream).unwrap().remove(&READ).unwrap();
    let mut payload = vec![0, 0, 0, 28, 0, 4];
    payload.extend_from_slice(b"full");
    let plain = outcome(&chunk_bytes(true, chunk::ERROR, READ, &payload));
    assert_eq!((plain.failures, plain.ended), (vec![(Errno::NoSpc, None)], true));

    payload.extend_from_slice(&4100u64.to_be_bytes());
    let located = outcome(&chunk_bytes(true, chunk::ERROR_OFFSET, READ, &payload));
    assert_eq!(located.failures, [(Errno::NoSpc, Some(4100))]);

    let unknown = outcome(&chunk_bytes(true, chunk::ERROR_BIT | 77, READ, &payload));
    assert_eq!(unknown.failures, [(Errno::NoSpc, None)]);
}

#[test]
fn frames_stand_on_the_wire_as_specified() {
    assert_eq!(
        ReplyFrame::simple(0x0102_0304_0506_0708, Err(Errno::Inval))[..],
        [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 22, 1, 2, 3, 4, 5, 6, 7, 8]
    );
    assert_eq!(
        ReplyFrame::data(MessageStyle::Structured, to(7, 0), 0x1000, 0x200, true)[..],
        [0x66, 0x8e, 0x33, 0xef, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 2, 8, 0, 0, 0, 0, 0, 0, 0x10, 0]
    );
    assert_eq!(
        ReplyFrame::error_at(MessageStyle::Structured, to(7, 0), Errno::Io, 0x1000, false)[..],
        [
            0x66, 0x8e, 0x33, 0xef, 0, 0, 0x80, 2, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 14, 0, 0, 0, 5, 0, 0, 0,
            0, 0, 0, 0, 0, 0x10, 0
        ]
    );
    assert_eq!(
        ReplyFrame::data(MessageStyle::Extended, to(7, 0x800), 0x1000, 0x200, true)[..],
        [
            0x6e, 0x8a, 0x27, 0x8c, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0,
            0, 0, 2, 8, 0, 0, 0, 0, 0, 0, 0x10, 0
        ]
    );
    let mut map = AllocationMap::new(0x3000, false);
    map.push(0x3000, AllocationState::HOLE);
    assert_eq!(
        MessageStyle::Structured.allocation(to(7, 0), &map)[..],
        [0x66, 0x8e, 0x33, 0xef, 0, 1, 0, 5, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 12, 0, 0, 0, 1]
    );
    assert_eq!(
        MessageStyle::Extended.allocation(to(7, 9), &map)[..],
        [
            0x6e, 0x8a, 0x27, 0x8c, 0, 1, 0, 6, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0,
            0, 0, 0, 24, 0, 0, 0, 1, 0, 0, 0, 1
        ]
    );
}

proptest! {
    #[test]
    fn a_block_status_arrives_as_it_was_told(
        style in chunked(), offset in any::<u64>(), cuts in cuts(),
        extents in prop::collection::vec((1u64..1 << 20, 0u64..4), 1..50),
    ) {
        let mut map = AllocationMap::new(1 << 31, false);
        for (length, bits) in extents {
            map.push(length, AllocationState::from_bits(bits));
        }
        let mut wire = style.allocation(to(7, offset), &map).to_vec();
        let mut body = vec![0; AllocationMap::encoded_length(style, map.extents().len())];
        prop_assert_eq!(map.encode(style, &mut body), body.len());
        wire.extend(body);
        let pending = PendingReply::BlockStatus { offset, context: ALLOCATION_CONTEXT };
        let pending = BTreeMap::from([(7, pending)]);
        let outcome = Outcome { extents: map.extents().to_vec(), ended: true, ..Outcome::default() };
        prop_assert_eq!(parse(style, &wire, &cuts, &pending), Ok(Outcomes::from([(7, outcome)])));
    }
}
