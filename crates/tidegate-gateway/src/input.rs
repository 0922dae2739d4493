//! The bytes that a client sends, taken apart: requests, with payloads in buffers of their own.

use std::io::{Cursor, Read};

use tidegate_nbd::transmission::{
    EXTENDED_REQUEST_SIZE, MessageStyle, RepliedRequest, TOLERATED_PAYLOAD, WireRequest,
};
use tidegate_nbd::{CheckedOperation, Errno, SessionTerms};

use crate::buffer::{AlignedBuffer, BufferPool};
use crate::memory::MemoryAllowance;
use crate::request::memory_of;
use crate::ring::BufferPart;

/// The bytes received at once: sixteen writes of 4 KiB, or two thousand reads.
const RECEIVE: usize = 64 * 1024;

/// A payload of which at least this much is missing is received directly to where it belongs; less is cheaper
/// to copy than to receive separately.
const DIRECT: usize = 16 * 1024;

/// The most of a payload that is received at once, so that one that comes slowly is seen to come. As much must
/// come within a deadline.
pub(crate) const PORTION: usize = 1 << 20;

/// One step of taking input apart.
#[derive(Debug)]
pub(crate) enum ParsedStep {
    /// A request to carry out, its payload complete.
    Request { cookie: u64, operation: CheckedOperation, payload: Option<AlignedBuffer>, charged: u64 },
    /// A request that the protocol refuses.
    Refused { request: RepliedRequest, errno: Errno },
    /// The next request, or the rest of a payload, needs memory that was not granted. Nothing was taken: ask
    /// again later, or give the request up with [`SessionInput::refuse`].
    Full,
    /// More bytes are needed: see [`SessionInput::receive_into`].
    More,
    /// Nothing that follows can be understood; the text is for the log.
    Broken(String),
}

/// The place for the next bytes received.
#[derive(Debug)]
pub(crate) struct Receive {
    pub(crate) buffer: AlignedBuffer,
    pub(crate) part: BufferPart,
    /// All of it is wanted, and it is payload.
    pub(crate) whole: bool,
}

#[derive(Debug)]
enum InputState {
    Header,
    /// `buffer` is away while the kernel fills it. It may be shorter than the payload, and grows then.
    Payload {
        cookie: u64,
        operation: CheckedOperation,
        buffer: Option<AlignedBuffer>,
        filled: usize,
        length: usize,
        /// The memory that it is to have.
        whole: u64,
        charged: u64,
        ahead: u64,
    },
    Discard {
        request: RepliedRequest,
        errno: Errno,
        remaining: usize,
    },
}

/// The part of a session's input that is awaited: it changes with each request, and with each portion of a payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AwaitedInput {
    request: u64,
    portion: usize,
}

/// The memory of a payload that will not become complete.
#[derive(Debug, Default)]
pub(crate) struct Abandoned {
    pub(crate) buffer: Option<AlignedBuffer>,
    pub(crate) charged: u64,
    pub(crate) ahead: u64,
}

/// The receiving side of a session.
#[derive(Debug)]
pub(crate) struct SessionInput {
    /// Away while the kernel fills it.
    buffer: Option<AlignedBuffer>,
    /// The start of the bytes that are received and not yet taken; `end` is their end.
    start: usize,
    end: usize,
    state: InputState,
    /// The number of requests that have come.
    requests: u64,
    /// Bytes that are taken before any others are received.
    ahead: Cursor<Vec<u8>>,
}

impl SessionInput {
    /// Begins with what was read before: by the handshake, or by the process that had the session.
    pub(crate) fn new(already: Vec<u8>) -> Self {
        let (buffer, ahead) = (Some(AlignedBuffer::zeroed(RECEIVE)), Cursor::new(already));
        let mut input = Self { buffer, start: 0, end: 0, state: InputState::Header, requests: 0, ahead };
        input.take_ahead();
        input
    }

    /// Takes more of what was read before, in the place of a receive. Returns true if there was some.
    pub(crate) fn take_ahead(&mut self) -> bool {
        if self.ahead.position() == self.ahead.get_ref().len() as u64 {
            return false;
        }
        let Some(Receive { mut buffer, part, .. }) = self.receive_into() else { return false };
        let target = &mut buffer[part.start..part.start + part.length];
        // Reading from memory does not fail.
        let count = self.ahead.read(target).unwrap_or(0);
        self.received(buffer, count);
        if self.ahead.position() == self.ahead.get_ref().len() as u64 {
            self.ahead = Cursor::default();
        }
        count > 0
    }

    /// Returns what was received and not taken, so that another input can go on with it. `None` while the
    /// kernel receives, and while the payload of a refused request is dropped.
    pub(crate) fn unread(&self, style: MessageStyle) -> Option<Vec<u8>> {
        let received = &self.buffer.as_ref()?[self.start..self.end];
        let begun = match &self.state {
            InputState::Header => Vec::new(),
            InputState::Payload { cookie, operation, buffer, filled, .. } => {
                let payload = &buffer.as_ref()?[..*filled];
                [&operation.request(*cookie).encode(style)[..], payload].concat()
            }
            InputState::Discard { .. } => return None,
        };
        let ahead = &self.ahead.get_ref()[self.ahead.position() as usize..];
        Some([&begun[..], received, ahead].concat())
    }

    /// Takes the next request, if it is here and `allowance` grants the memory that it needs. To be called
    /// only while nothing is being received.
    pub(crate) fn next(
        &mut self,
        terms: &SessionTerms,
        pool: &mut BufferPool,
        allowance: &mut MemoryAllowance<'_>,
    ) -> ParsedStep {
        let Some(received) = &self.buffer else { return ParsedStep::More };
        loop {
            let available = &received[self.start..self.end];
            match &mut self.state {
                InputState::Header => {
                    let Some((header, rest)) = available.split_at_checked(terms.style.request_size()) else {
                        return ParsedStep::More;
                    };
                    let request = match WireRequest::parse(header, terms.style) {
                        Ok(request) => request,
                        Err(error) => return ParsedStep::Broken(error.to_string()),
                    };
                    let Some(query) = rest.get(..terms.query_length(&request)) else {
                        return ParsedStep::More;
                    };
                    let head = header.len() + query.len();
                    let payload = request.payload_length() - query.len() as u64;
                    match terms.check(&request, query) {
                        Ok(operation) => {
                            let occupied = memory_of(&operation, terms.geometry.blocks.minimum());
                            let CheckedOperation::Write { length, .. } = operation else {
                                if occupied > 0 && !allowance.grant(occupied) {
                                    return ParsedStep::Full;
                                }
                                self.start += head;
                                self.requests += 1;
                                return ParsedStep::Request {
                                    cookie: request.cookie,
                                    operation,
                                    payload: None,
                                    charged: occupied,
                                };
                            };
                            let Some(charge) = allowance.begin_payload(occupied) else {
                                return ParsedStep::Full;
                            };
                            self.start += head;
                            self.state = InputState::Payload {
                                cookie: request.cookie,
                                operation,
                                buffer: Some(pool.take(charge.bytes as usize)),
                                filled: 0,
                                length: length as usize,
                                whole: occupied,
                                charged: charge.bytes,
                                ahead: charge.ahead,
                            };
                        }
                        Err(_) if payload > u64::from(TOLERATED_PAYLOAD) => {
                            let text = format!("a refused request announces a payload of {payload} bytes");
                            return ParsedStep::Broken(text);
                        }
                        Err(errno) => {
                            self.start += head;
                            self.state = InputState::Discard {
                                request: replied(&request),
                                errno,
                                remaining: payload as usize,
                            };
                        }
                    }
                }
                InputState::Payload { cookie, operation, buffer, filled, length, whole, charged, ahead } => {
                    // Invariant: the buffer is here, because nothing is being received.
                    let target = buffer.as_mut().expect("a payload's buffer is here between receives");
                    let count = available.len().min(target.len().min(*length) - *filled);
                    target[*filled..*filled + count].copy_from_slice(&available[..count]);
                    *filled += count;
                    self.start += count;
                    if *filled < *length || *charged < *whole {
                        if *filled < target.len().min(*length) {
                            return ParsedStep::More;
                        }
                        let held = *charged;
                        if !allowance.grow_payload(held, held, *whole) {
                            return ParsedStep::Full;
                        }
                        *charged = 2 * held;
                        *buffer = buffer.take().map(|smaller| pool.grow(smaller, *filled, *charged as usize));
                        continue;
                    }
                    allowance.arrived(std::mem::take(ahead));
                    let parsed = ParsedStep::Request {
                        cookie: *cookie,
                        operation: *operation,
                        payload: buffer.take(),
                        charged: *charged,
                    };
                    self.state = InputState::Header;
                    self.requests += 1;
                    return parsed;
                }
                InputState::Discard { request, errno, remaining } => {
                    let count = available.len().min(*remaining);
                    *remaining -= count;
                    self.start += count;
                    if *remaining > 0 {
                        return ParsedStep::More;
                    }
                    let parsed = ParsedStep::Refused { request: *request, errno: *errno };
                    self.state = InputState::Header;
                    self.requests += 1;
                    return parsed;
                }
            }
        }
    }

    /// Returns the place to receive into next, after [`ParsedStep::More`]. The memory comes back by
    /// [`received`](Self::received).
    pub(crate) fn receive_into(&mut self) -> Option<Receive> {
        if let InputState::Payload { buffer, filled, length, .. } = &mut self.state
            && let Some(target) = buffer
            && let room = target.len().min(*length) - *filled
            && room >= DIRECT
        {
            let part = BufferPart { start: *filled, length: room.min(PORTION) };
            return buffer.take().map(|buffer| Receive { buffer, part, whole: true });
        }
        let mut buffer = self.buffer.take()?;
        buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        let part = BufferPart { start: self.end, length: buffer.len() - self.end };
        Some(Receive { buffer, part, whole: false })
    }

    /// Takes back what [`receive_into`](Self::receive_into) gave away, with `count` new bytes.
    pub(crate) fn received(&mut self, memory: AlignedBuffer, count: usize) {
        if self.buffer.is_none() {
            self.buffer = Some(memory);
            self.end += count;
        } else if let InputState::Payload { buffer, filled, .. } = &mut self.state {
            *buffer = Some(memory);
            *filled += count;
        }
    }

    /// Drops what is here; for a session that only waits for its client to hang up.
    pub(crate) fn discard(&mut self) {
        self.ahead = Cursor::default();
        self.start = 0;
        self.end = 0;
    }

    /// Gives up the payload that was being received, and its memory.
    pub(crate) fn abandon(&mut self) -> Abandoned {
        match std::mem::replace(&mut self.state, InputState::Header) {
            InputState::Payload { buffer, charged, ahead, .. } => Abandoned { buffer, charged, ahead },
            InputState::Header | InputState::Discard { .. } => Abandoned::default(),
        }
    }

    /// Gives up the request for which [`next`](Self::next) has just said [`ParsedStep::Full`]: its payload is
    /// dropped as it comes, then it is [`ParsedStep::Refused`]. Returns the memory that it had.
    pub(crate) fn refuse(&mut self, terms: &SessionTerms, errno: Errno) -> Abandoned {
        match &self.state {
            InputState::Payload { cookie, operation, filled, length, .. } => {
                let (request, remaining) = (operation.replied(*cookie), *length - *filled);
                let abandoned = self.abandon();
                self.state = InputState::Discard { request, errno, remaining };
                abandoned
            }
            InputState::Header => {
                let size = terms.style.request_size();
                let header = self.buffer.as_ref().and_then(|received| {
                    let header = received[self.start..self.end].get(..size)?;
                    WireRequest::parse(header, terms.style).ok()
                });
                if let Some(request) = header {
                    self.start += size;
                    let remaining = request.payload_length() as usize;
                    self.state = InputState::Discard { request: replied(&request), errno, remaining };
                }
                Abandoned::default()
            }
            InputState::Discard { .. } => Abandoned::default(),
        }
    }

    /// The memory that a payload has which is not complete.
    pub(crate) fn charged(&self) -> u64 {
        match &self.state {
            InputState::Payload { charged, .. } => *charged,
            InputState::Header | InputState::Discard { .. } => 0,
        }
    }

    /// Returns the part of a request that its client owes: it has begun the request. `None` between two requests.
    pub(crate) fn awaited(&self) -> Option<AwaitedInput> {
        let portion = match self.state {
            InputState::Payload { filled, .. } => filled / PORTION,
            // It falls, which is a change as well.
            InputState::Discard { remaining, .. } => remaining / PORTION,
            InputState::Header => 0,
        };
        self.is_within_request().then_some(AwaitedInput { request: self.requests, portion })
    }

    /// Returns true while the kernel receives a payload to where it belongs.
    pub(crate) fn is_filling_payload(&self) -> bool {
        matches!(&self.state, InputState::Payload { buffer: None, .. })
    }

    /// Returns true if a request has begun to arrive and is not complete.
    pub(crate) fn is_within_request(&self) -> bool {
        self.start != self.end
            || !matches!(self.state, InputState::Header)
            || !self.ahead.get_ref().is_empty()
    }
}

/// A request as its reply names it.
fn replied(request: &WireRequest) -> RepliedRequest {
    RepliedRequest { cookie: request.cookie, offset: request.offset }
}

/// The longest that a handshake may read ahead.
pub(crate) const READ_AHEAD: usize = RECEIVE;

const _: () = assert!(DIRECT >= EXTENDED_REQUEST_SIZE + 12 && RECEIVE > DIRECT);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tidegate_nbd::transmission::{NbdCommand, REQUEST_SIZE};
    use tidegate_nbd::{ALLOCATION_CONTEXT, BlockSizes, CommandFlags, ExportGeometry, TransmissionFlags};

    use super::*;
    use crate::buffer::class_bytes;
    use crate::config::PoolLimits;
    use crate::memory::{AccountKey, PoolMemory};

    /// The memory of a pool with one export.
    fn memory() -> (PoolMemory, AccountKey) {
        let mut memory = PoolMemory::new(&PoolLimits::default());
        let account = memory.open(false);
        (memory, account)
    }

    fn terms() -> SessionTerms {
        SessionTerms::simple(ExportGeometry {
            size: 1 << 30,
            flags: TransmissionFlags::SEND_FLUSH,
            blocks: BlockSizes::DEFAULT,
        })
    }

    fn extended_terms() -> SessionTerms {
        let mut terms = terms();
        terms.geometry.flags = TransmissionFlags::BLOCK_STATUS_PAYLOAD;
        SessionTerms { style: MessageStyle::Extended, allocation: Some(ALLOCATION_CONTEXT), ..terms }
    }

    fn write(cookie: u64, offset: u64, length: usize) -> Vec<u8> {
        write_as(MessageStyle::Simple, cookie, offset, length)
    }

    fn write_as(style: MessageStyle, cookie: u64, offset: u64, length: usize) -> Vec<u8> {
        let request = WireRequest::new(NbdCommand::Write, CommandFlags::NONE, cookie, offset, length as u64);
        let mut wire = request.encode(style).to_vec();
        wire.extend((0..length).map(|i| (i as u64 ^ cookie) as u8));
        wire
    }

    /// Plays the socket: hands over `stream` in pieces no longer than `piece`, and collects what is parsed.
    fn run(stream: &[u8], piece: usize) -> Vec<ParsedStep> {
        let (mut memory, account) = memory();
        run_within(&terms(), &mut memory.allowance(account, &mut 0), stream, piece)
    }

    fn run_within(
        terms: &SessionTerms,
        allowance: &mut MemoryAllowance<'_>,
        stream: &[u8],
        piece: usize,
    ) -> Vec<ParsedStep> {
        let (mut pool, mut input, mut parsed) =
            (BufferPool::new(1 << 20), SessionInput::new(Vec::new()), Vec::new());
        let mut rest = stream;
        loop {
            match input.next(terms, &mut pool, allowance) {
                ParsedStep::More if rest.is_empty() => return parsed,
                ParsedStep::More => {
                    let Receive { mut buffer, part, .. } = input.receive_into().unwrap();
                    let count = piece.min(rest.len()).min(part.length);
                    buffer[part.start..part.start + count].copy_from_slice(&rest[..count]);
                    rest = &rest[count..];
                    input.received(buffer, count);
                }
                ParsedStep::Broken(text) => panic!("{text}"),
                other => parsed.push(other),
            }
        }
    }

    proptest! {
        #[test]
        fn requests_come_out_whole_however_the_stream_is_cut(
            lengths in prop::collection::vec(prop_oneof![1usize..100, 4000usize..5000, 15_000usize..200_000],
                1..8),
            piece in 1usize..100_000,
        ) {
            let stream: Vec<u8> =
                lengths.iter().enumerate().flat_map(|(i, length)| write(i as u64, 0, *length)).collect();
            let parsed = run(&stream, piece);
            prop_assert_eq!(parsed.len(), lengths.len());
            for (i, (parsed, length)) in parsed.iter().zip(&lengths).enumerate() {
                let ParsedStep::Request { cookie, payload: Some(payload), charged, .. } = parsed else {
                    panic!("{parsed:?}");
                };
                prop_assert_eq!(*cookie, i as u64);
                prop_assert_eq!(*charged, class_bytes(*length) as u64);
                prop_assert!(payload[..*length].iter().enumerate().all(|(k, byte)| *byte == (k ^ i) as u8));
            }
        }
    }

    #[test]
    fn a_refused_write_is_dropped_with_its_payload_and_the_next_request_understood() {
        let mut stream = write(1, 1 << 30, 70_000);
        stream.extend(write(2, 0, 10));
        let parsed = run(&stream, 5_000);
        assert!(
            matches!(parsed[0], ParsedStep::Refused { errno: Errno::NoSpc, request } if request.cookie == 1)
        );
        assert!(matches!(parsed[1], ParsedStep::Request { cookie: 2, .. }));
    }

    #[test]
    fn payloads_under_extended_headers_belong_to_their_requests() {
        let style = MessageStyle::Extended;
        let request = |command, length: u64, has_payload| {
            let request = WireRequest::new(command, CommandFlags::NONE, 9, 4096, length);
            WireRequest { has_payload, ..request }.encode(style).to_vec()
        };
        let query = [&8192u64.to_be_bytes()[..], &ALLOCATION_CONTEXT.to_be_bytes()].concat();
        let mut stream = request(NbdCommand::BlockStatus, 12, true);
        stream.extend(query);
        stream.extend(request(NbdCommand::BlockStatus, 1 << 20, false));
        stream.extend([request(NbdCommand::Read, 5_000, true), vec![7; 5_000]].concat());
        stream.extend([request(NbdCommand::Write, 512, false), vec![7; 512]].concat());
        stream.extend(write_as(style, 9, 4096, 10_000));
        for piece in [1, 7, 100_000] {
            let (mut memory, account) = memory();
            let parsed =
                run_within(&extended_terms(), &mut memory.allowance(account, &mut 0), &stream, piece);
            let [first, second, read, bare, written] = &parsed[..] else { panic!("{parsed:?}") };
            for (status, wanted) in [(first, 8192), (second, 1 << 20)] {
                let ParsedStep::Request { operation, .. } = status else { panic!("{status:?}") };
                let expected = CheckedOperation::BlockStatus { offset: 4096, length: wanted, one: false };
                assert_eq!(*operation, expected);
            }
            let request = RepliedRequest { cookie: 9, offset: 4096 };
            let refused = ParsedStep::Refused { request, errno: Errno::Inval };
            assert_eq!(format!("{read:?}"), format!("{refused:?}"));
            for write in [bare, written] {
                assert!(matches!(write, ParsedStep::Request { payload: Some(_), .. }), "{write:?}");
            }
        }
    }

    proptest! {
        /// Wherever a stream is cut, another input goes on with what is unread, and nothing is lost or twice.
        #[test]
        fn what_is_unread_goes_on_elsewhere(
            lengths in prop::collection::vec(prop_oneof![1usize..100, 15_000usize..200_000], 1..6),
            cut in 0.0..1.0, extended in any::<bool>(),
        ) {
            let terms = if extended { extended_terms() } else { terms() };
            let style = terms.style;
            let numbered = (0..).zip(&lengths);
            let stream: Vec<u8> =
                numbered.flat_map(|(cookie, length)| write_as(style, cookie, 0, *length)).collect();
            let (here, later) = stream.split_at((stream.len() as f64 * cut) as usize);
            let (mut memory, account) = memory();
            let (mut pool, mut bytes) = (BufferPool::new(1 << 20), 0);
            let mut parsed = Vec::new();
            let mut take = |input: &mut SessionInput| {
                let mut allowance = memory.allowance(account, &mut bytes);
                loop {
                    match input.next(&terms, &mut pool, &mut allowance) {
                        ParsedStep::Request { cookie, payload, .. } => parsed.push((cookie, payload)),
                        ParsedStep::More if input.take_ahead() => {}
                        _ => return,
                    }
                }
            };
            let mut first = SessionInput::new(here.to_vec());
            take(&mut first);
            let unread = first.unread(style).unwrap();
            take(&mut SessionInput::new([&unread[..], later].concat()));
            prop_assert_eq!(parsed.len(), lengths.len());
            for ((place, (cookie, payload)), length) in parsed.iter().enumerate().zip(&lengths) {
                prop_assert_eq!(*cookie, place as u64);
                let payload = &payload.as_ref().unwrap()[..*length];
                prop_assert!(payload.iter().enumerate().all(|(k, byte)| *byte == (k ^ place) as u8));
            }
        }
    }

    /// Payloads grow where another session has charged ahead of arrival what may be charged so.
    #[test]
    fn a_payload_with_parts_of_blocks_has_room_for_the_whole_ones() {
        let mut terms = terms();
        terms.geometry.blocks = BlockSizes::new(4096, 4096, 32 << 20).unwrap().with_parts();
        for (length, room) in [(100, 16 << 10), (65_536, 128 << 10), (1 << 20, 2 << 20)] {
            let (mut memory, account) = memory();
            let (stream, mut session) = (write(7, 512, length), 0);
            let mut allowance = memory.allowance(account, &mut session);
            let parsed = run_within(&terms, &mut allowance, &stream, 10_000);
            let [ParsedStep::Request { payload: Some(payload), charged, .. }] = &parsed[..] else {
                panic!("{parsed:?}");
            };
            assert_eq!((payload.len(), *charged, session), (room, room as u64, room as u64));
            assert_eq!(payload[..length], stream[REQUEST_SIZE..]);
        }
    }

    #[test]
    fn a_payload_that_grows_comes_out_whole() {
        let (mut memory, account) = memory();
        let mut other = 0;
        assert_eq!(memory.allowance(account, &mut other).begin_payload(32 << 20).unwrap().ahead, 32 << 20);
        for length in [(1 << 20) + 1, 5_000_000, 32 << 20] {
            for piece in [10_000, 1 << 20] {
                let (stream, mut session) = (write(7, 0, length), 0);
                let parsed =
                    run_within(&terms(), &mut memory.allowance(account, &mut session), &stream, piece);
                let [ParsedStep::Request { cookie: 7, payload: Some(payload), charged, .. }] = &parsed[..]
                else {
                    panic!("{parsed:?}");
                };
                assert_eq!((*charged, session), (class_bytes(length) as u64, class_bytes(length) as u64));
                assert_eq!(payload[..length], stream[REQUEST_SIZE..]);
                memory.release(account, &mut session, class_bytes(length) as u64);
            }
        }
    }

    #[test]
    fn an_announced_payload_occupies_little_until_it_arrives() {
        let (mut memory, account) = memory();
        let sessions: Vec<u64> = (0..8)
            .map(|_| {
                let (mut pool, mut bytes) = (BufferPool::new(1 << 20), 0);
                let mut input = SessionInput::new(write(1, 0, 32 << 20)[..REQUEST_SIZE].to_vec());
                let mut allowance = memory.allowance(account, &mut bytes);
                assert!(matches!(input.next(&terms(), &mut pool, &mut allowance), ParsedStep::More));
                bytes
            })
            .collect();
        assert_eq!(sessions.iter().sum::<u64>(), (32 + 7) << 20);
    }

    #[test]
    fn without_memory_nothing_is_taken() {
        let wire = write(7, 0, 10);
        let (mut memory, account) = memory();
        let (mut pool, mut input) = (BufferPool::new(1 << 20), SessionInput::new(wire));
        // As much as a session may have.
        let mut bytes = PoolLimits::default().session_bytes.get();
        let full = input.next(&terms(), &mut pool, &mut memory.allowance(account, &mut bytes));
        assert!(matches!(full, ParsedStep::Full));
        let mut bytes = 0;
        let mut allowance = memory.allowance(account, &mut bytes);
        assert!(matches!(
            input.next(&terms(), &mut pool, &mut allowance),
            ParsedStep::Request { cookie: 7, charged: 4096, .. }
        ));
    }

    #[test]
    fn a_request_given_up_is_refused_once_its_payload_has_come() {
        let (mut memory, account) = memory();
        let mut pool = BufferPool::new(1 << 20);
        let wire = [write(7, 0, 5_000), write(8, 0, 10)].concat();
        let mut input = SessionInput::new(wire[..3_000].to_vec());
        let mut full = PoolLimits::default().session_bytes.get();
        let mut allowance = memory.allowance(account, &mut full);
        assert!(matches!(input.next(&terms(), &mut pool, &mut allowance), ParsedStep::Full));
        assert_eq!(input.refuse(&terms(), Errno::NoMem).charged, 0);
        let mut bytes = 0;
        let mut allowance = memory.allowance(account, &mut bytes);
        assert!(matches!(input.next(&terms(), &mut pool, &mut allowance), ParsedStep::More));
        let Receive { mut buffer, part, .. } = input.receive_into().unwrap();
        let rest = &wire[3_000..];
        buffer[part.start..part.start + rest.len()].copy_from_slice(rest);
        input.received(buffer, rest.len());
        let refused = input.next(&terms(), &mut pool, &mut allowance);
        assert!(
            matches!(refused, ParsedStep::Refused { errno: Errno::NoMem, request } if request.cookie == 7)
        );
        let next = input.next(&terms(), &mut pool, &mut allowance);
        assert!(matches!(next, ParsedStep::Request { cookie: 8, .. }));
    }

    #[test]
    fn a_stream_out_of_step_is_broken() {
        let (mut pool, mut input) = (BufferPool::new(1 << 20), SessionInput::new(vec![0xff; 28]));
        let (mut memory, account) = memory();
        let mut bytes = 0;
        let mut allowance = memory.allowance(account, &mut bytes);
        assert!(matches!(input.next(&terms(), &mut pool, &mut allowance), ParsedStep::Broken(_)));
    }
}
