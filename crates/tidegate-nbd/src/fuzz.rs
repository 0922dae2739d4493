//! Fuzz targets: each takes bytes as a peer might send them, and checks what must hold whatever they are.

use crate::handshake::{
    ClientError, ClientEvent, ClientHandshake, ExportAnswer, Opened, ServerError, ServerEvent,
    ServerHandshake,
};
use crate::transmission::{
    ExpectedData, MessageStyle, NbdCommand, PendingReply, ReadCoverage, ReplyError, ReplyEvent, ReplyParser,
    WireRequest,
};
use crate::{
    ALLOCATION_CONTEXT, AllocationExtent, AllocationMap, AllocationState, BlockSizes, CheckedOperation,
    Errno, ExportDescription, ExportGeometry, ExportName, MAX_STRING, SessionTerms, TransmissionFlags,
};

const STYLES: [MessageStyle; 3] = [MessageStyle::Simple, MessageStyle::Structured, MessageStyle::Extended];

/// The most input that either side of a handshake keeps: the longest data of one option.
const MOST_HELD: usize = 64 << 10;

/// The most output of a server: what makes it stop reading, and the replies to one option with the longest
/// strings.
const MOST_SERVER_OUTPUT: usize = (64 << 10) + 4 * (MAX_STRING + 64);

/// The most output of a client: its name in one option, and some options without data.
const MOST_CLIENT_OUTPUT: usize = 2 * MAX_STRING + 256;

/// The most bytes that are kept of a reply in transmission: an error chunk with the longest message.
const MOST_REPLY_HELD: usize = MAX_STRING + 64;

/// The way to cut a stream into the pieces in which it arrives.
#[derive(Debug, Clone, Copy)]
enum Cut {
    Whole,
    Bytes,
    /// Pieces of 1 to 64 bytes, by a sequence that begins here.
    Pieces(u32),
}

impl Cut {
    const ALL: [Self; 4] = [Self::Whole, Self::Bytes, Self::Pieces(1), Self::Pieces(2)];

    fn next(&mut self) -> usize {
        match self {
            Self::Whole => usize::MAX,
            Self::Bytes => 1,
            Self::Pieces(state) => {
                *state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (*state >> 26) as usize + 1
            }
        }
    }
}

fn geometry() -> ExportGeometry {
    ExportGeometry {
        size: (1 << 30) + 512,
        flags: TransmissionFlags::SEND_FLUSH | TransmissionFlags::SEND_DF | TransmissionFlags::SEND_FUA,
        blocks: BlockSizes::DEFAULT,
    }
}

/// An export's name decides the answer, so that the input does.
fn answer(name: &ExportName) -> ExportAnswer {
    match name.as_str().as_bytes().first() {
        None | Some(b'a'..=b'm') => ExportAnswer::Found(ExportDescription {
            geometry: geometry(),
            description: "a volume".to_owned(),
        }),
        Some(b'n'..=b't') => ExportAnswer::AtCapacity,
        Some(b'u'..=b'z') => ExportAnswer::ShuttingDown,
        Some(_) => ExportAnswer::Unknown,
    }
}

/// A handshake from the outside: the bytes sent, the outcome, and the length of the input taken.
#[derive(Debug, PartialEq)]
struct Course<T> {
    sent: Vec<u8>,
    outcome: Option<T>,
    taken: usize,
}

fn serve(input: &[u8], mut cut: Cut) -> Course<Result<ServerEvent, ServerError>> {
    let (mut server, mut sent, mut taken, mut arrived) = (ServerHandshake::new(), Vec::new(), 0, 0);
    let listed = ["first", "second"].map(|name| ExportName::new(name).expect("a valid name"));
    loop {
        assert!(server.output().len() <= MOST_SERVER_OUTPUT, "{} bytes of output", server.output().len());
        sent.extend_from_slice(server.output());
        server.sent(server.output().len());
        let outcome = match server.receive(&input[taken..arrived]) {
            Ok((count, event)) => {
                taken += count;
                match event {
                    Some(ServerEvent::ExportWanted { name, .. }) => {
                        server.answer(answer(&name));
                        continue;
                    }
                    Some(ServerEvent::ListWanted) => {
                        server.answer_list(listed.iter().map(|name| (name, "")));
                        continue;
                    }
                    Some(event) => Some(Ok(event)),
                    None if !server.output().is_empty() => continue,
                    None => None,
                }
            }
            Err(error) => Some(Err(error)),
        };
        assert!(server.held() <= MOST_HELD, "{} bytes of input are kept", server.held());
        if let Some(outcome) = outcome {
            sent.extend_from_slice(server.output());
            server.sent(server.output().len());
            // What is over stays as it is, whatever follows.
            let again = server.receive(b"more");
            assert_eq!(again, outcome.clone().map(|event| (0, Some(event))));
            assert!(server.output().is_empty());
            if outcome.is_err() {
                taken = 0;
            }
            return Course { sent, outcome: Some(outcome), taken };
        }
        assert_eq!(taken, arrived, "without an event everything is taken");
        if arrived == input.len() {
            return Course { sent, outcome: None, taken };
        }
        arrived += cut.next().min(input.len() - arrived);
    }
}

/// Every reply to an option is one, up to the answer to `EXPORT_NAME`, which has no head.
fn check_replies(mut sent: &[u8]) {
    sent = sent.strip_prefix(b"NBDMAGICIHAVEOPT\0\x03").expect("a greeting");
    while let Some(rest) = sent.strip_prefix(&0x0003_e889_0455_65a9_u64.to_be_bytes()) {
        let (head, rest) = rest.split_at(12);
        let length = u32::from_be_bytes(head[8..].try_into().expect("four bytes"));
        sent = rest.get(length as usize..).expect("a reply as long as it says");
    }
    assert!([0, 10, 134].contains(&sent.len()), "{} bytes that are no reply", sent.len());
}

fn check_opened(opened: &Opened) {
    let SessionTerms { geometry, style, allocation, .. } = opened.terms;
    let told = |flag| geometry.flags.contains(flag);
    assert!(told(TransmissionFlags::HAS_FLAGS));
    assert_eq!(told(TransmissionFlags::SEND_DF), style.has_chunks(), "whole replies may be asked for");
    assert!(allocation.is_none() || style.has_chunks(), "extents need chunks");
    let filter = style == MessageStyle::Extended && allocation.is_some();
    assert_eq!(told(TransmissionFlags::BLOCK_STATUS_PAYLOAD), filter, "contexts may be named");
    assert!(matches!(answer(&opened.name), ExportAnswer::Found(_)), "`{}` was refused", opened.name);
}

/// A client's handshake, as the server reads it.
pub fn server_handshake(input: &[u8]) {
    let course = serve(input, Cut::Whole);
    check_replies(&course.sent);
    if let Some(Ok(ServerEvent::Opened(opened))) = &course.outcome {
        check_opened(opened);
    }
    for cut in Cut::ALL {
        assert_eq!(serve(input, cut), course, "{cut:?}");
    }
}

fn connect(
    mut client: ClientHandshake,
    input: &[u8],
    mut cut: Cut,
) -> Course<Result<ClientEvent, ClientError>> {
    let (mut sent, mut taken, mut arrived) = (Vec::new(), 0, 0);
    loop {
        let outcome = match client.receive(&input[taken..arrived]) {
            Ok((count, event)) => {
                taken += count;
                event.map(Ok)
            }
            Err(error) => Some(Err(error)),
        };
        assert!(client.held() <= MOST_HELD, "{} bytes of input are kept", client.held());
        sent.extend_from_slice(client.output());
        client.sent(client.output().len());
        if let Some(outcome) = outcome {
            let again = client.receive(b"more");
            assert_eq!(again, outcome.clone().map(|event| (0, Some(event))));
            assert!(client.output().is_empty());
            if outcome.is_err() {
                taken = 0;
            }
            return Course { sent, outcome: Some(outcome), taken };
        }
        assert_eq!(taken, arrived, "without an event everything is taken");
        if arrived == input.len() {
            return Course { sent, outcome: None, taken };
        }
        arrived += cut.next().min(input.len() - arrived);
    }
}

/// A server's handshake, as the client reads it: opening with every style, and listing.
pub fn client_handshake(input: &[u8]) {
    let name = || ExportName::new("database").expect("a valid name");
    let clients: [&dyn Fn() -> ClientHandshake; 5] = [
        &|| ClientHandshake::open(name(), MessageStyle::Extended).with_allocation(),
        &|| ClientHandshake::open(name(), MessageStyle::Structured).with_allocation(),
        &|| ClientHandshake::open(name(), MessageStyle::Structured),
        &|| ClientHandshake::open(name(), MessageStyle::Simple),
        &ClientHandshake::list,
    ];
    for client in clients {
        let course = connect(client(), input, Cut::Whole);
        assert!(course.sent.len() <= MOST_CLIENT_OUTPUT, "{} bytes of output", course.sent.len());
        match &course.outcome {
            Some(Ok(ClientEvent::Opened(opened))) => {
                assert_eq!(opened.name, name());
                let SessionTerms { geometry, style, allocation, .. } = opened.terms;
                assert!(allocation.is_none() || style.has_chunks(), "extents need chunks");
                let blocks = geometry.blocks;
                let again = BlockSizes::new(blocks.minimum(), blocks.preferred(), blocks.maximum());
                assert_eq!(again, Ok(blocks), "sizes that the specification allows");
            }
            Some(Ok(ClientEvent::Listed(exports))) => {
                for export in exports {
                    assert!(export.name.as_str().len() <= MAX_STRING);
                    assert!(!export.description.contains(char::is_control), "safe on a terminal");
                }
            }
            Some(Ok(ClientEvent::TlsReady)) => panic!("TLS was not asked for"),
            Some(Err(error)) => assert!(error.to_string().len() <= MOST_HELD + 256),
            None => {}
        }
        for cut in Cut::ALL {
            assert_eq!(connect(client(), input, cut), course, "{cut:?}");
        }
    }
}

/// Exports of different sizes, abilities and block sizes.
fn geometries() -> [ExportGeometry; 4] {
    use TransmissionFlags as F;
    let all =
        F::SEND_FLUSH | F::SEND_FUA | F::SEND_TRIM | F::SEND_WRITE_ZEROES | F::SEND_DF | F::SEND_FAST_ZERO;
    let all = all | F::SEND_CACHE | F::BLOCK_STATUS_PAYLOAD;
    let coarse = BlockSizes::new(512, 4096, 1 << 20).expect("valid sizes");
    [
        ExportGeometry { size: 1 << 30, flags: all, blocks: BlockSizes::DEFAULT },
        ExportGeometry { size: 1 << 20, flags: all | F::READ_ONLY, blocks: coarse },
        ExportGeometry { size: u64::MAX, flags: all, blocks: coarse },
        ExportGeometry { size: 0, flags: F::NONE, blocks: BlockSizes::DEFAULT },
    ]
}

fn check_range(geometry: &ExportGeometry, offset: u64, length: u64) {
    assert!(length > 0, "an empty range");
    let end = offset.checked_add(length).expect("a range within the export");
    assert!(end <= geometry.size, "{offset}+{length} is beyond {}", geometry.size);
    let block = u64::from(geometry.blocks.minimum());
    assert!(offset.is_multiple_of(block) && length.is_multiple_of(block), "{offset}+{length} is not aligned");
}

/// The reply that a server would write, as the client reads it.
fn check_reply(style: MessageStyle, request: &WireRequest, judged: Result<CheckedOperation, Errno>) {
    let WireRequest { cookie, offset, command, .. } = *request;
    let mut body = Vec::new();
    let refused = if command == NbdCommand::Read {
        PendingReply::Read { offset, length: u32::MAX }
    } else {
        PendingReply::Other { offset }
    };
    let (frame, pending) = match judged {
        Ok(CheckedOperation::Disconnect) => return,
        Ok(operation @ CheckedOperation::Read { offset, length }) => {
            (style.data(operation.replied(cookie), length), PendingReply::Read { offset, length })
        }
        Ok(operation @ CheckedOperation::BlockStatus { length, one, .. }) if style.has_chunks() => {
            let mut map = AllocationMap::new(length, one);
            map.push(length / 2, AllocationState::HOLE);
            map.push(length.div_ceil(2), AllocationState::DATA);
            body.resize(AllocationMap::encoded_length(style, map.extents().len()), 0);
            map.encode(style, &mut body);
            let pending = PendingReply::BlockStatus { offset, context: ALLOCATION_CONTEXT };
            (style.allocation(operation.replied(cookie), &map), pending)
        }
        Ok(operation) => (style.success(operation.replied(cookie)), PendingReply::Other { offset }),
        Err(errno) => (style.error(crate::transmission::RepliedRequest { cookie, offset }, errno), refused),
    };
    let mut parser = ReplyParser::new(style);
    let wire = [&frame[..], &body].concat();
    let (mut bytes, mut failed, mut ended, mut told) = (&wire[..], None, false, 0);
    loop {
        let (taken, event) =
            parser.receive(bytes, |asked| (asked == cookie).then_some(pending)).expect("a reply of our own");
        bytes = &bytes[taken..];
        match event {
            Some(ReplyEvent::Failed { errno, .. }) => failed = Some(errno),
            Some(ReplyEvent::Extent { extent, .. }) => told += extent.length,
            Some(ReplyEvent::End { .. }) => ended = true,
            Some(event) => panic!("{event:?}"),
            None => break,
        }
    }
    match (pending, judged) {
        (PendingReply::Read { length, .. }, Ok(_)) => {
            let expected = parser.expects_data().map(|data| data.length);
            assert_eq!(expected, Some(length), "the data of the read");
            parser.received_data(length);
            assert_eq!(
                parser.receive(&[], |_| Some(pending)),
                Ok((0, Some(ReplyEvent::End { cookie }))),
                "the end of the read"
            );
        }
        _ => assert!(ended, "the end of the reply"),
    }
    if let Ok(CheckedOperation::BlockStatus { length, one, .. }) = judged
        && style.has_chunks()
    {
        assert!((1..=length).contains(&told) && (one || told == length), "{told} of {length} bytes");
    }
    assert_eq!(failed, judged.err());
    assert!(parser.is_between_replies());
}

/// A judged request, as a backend may rely on it.
fn check_judged(geometry: &ExportGeometry, request: &WireRequest, operation: &CheckedOperation) {
    let payload = matches!(operation, CheckedOperation::Write { .. });
    assert!(!payload || request.has_payload, "a write has its payload");
    match *operation {
        CheckedOperation::Read { offset, length } | CheckedOperation::Write { offset, length, .. } => {
            check_range(geometry, offset, length.into());
            assert!(length <= geometry.blocks.maximum());
            assert!(!payload || u64::from(length) == request.payload_length());
        }
        CheckedOperation::Trim { offset, length, .. }
        | CheckedOperation::WriteZeroes { offset, length, .. }
        | CheckedOperation::Cache { offset, length }
        | CheckedOperation::BlockStatus { offset, length, .. } => check_range(geometry, offset, length),
        CheckedOperation::Flush | CheckedOperation::Disconnect => {}
    }
    let changes = matches!(
        operation,
        CheckedOperation::Write { .. } | CheckedOperation::Trim { .. } | CheckedOperation::WriteZeroes { .. }
    );
    assert!(!changes || !geometry.flags.contains(TransmissionFlags::READ_ONLY));
}

/// Requests one after another, without payloads but those that are judged: what is accepted can be carried
/// out, and every answer is understood.
pub fn requests(input: &[u8]) {
    for style in STYLES {
        let mut rest = input;
        while let Some((head, behind)) = rest.split_at_checked(style.request_size()) {
            rest = behind;
            let Ok(request) = WireRequest::parse(head, style) else { break };
            let again = request.encode(style);
            assert_eq!(WireRequest::parse(&again, style), Ok(request), "nothing of a request is lost");
            // But for the flag that a write may lack.
            let is_same = again[..] == *head;
            assert!(is_same || (style == MessageStyle::Extended && request.command == NbdCommand::Write));
            assert!(request.payload_length() == 0 || request.payload_length() == request.length);
            for geometry in geometries() {
                let allocation = style.has_chunks().then_some(ALLOCATION_CONTEXT);
                let terms = SessionTerms { allocation, style, ..SessionTerms::simple(geometry) };
                let query = terms.query_length(&request);
                assert!(query == 0 || query as u64 == request.payload_length());
                let Some(query) = rest.get(..query) else { continue };
                let judged = terms.check(&request, query);
                if let Ok(operation) = &judged {
                    check_judged(&geometry, &request, operation);
                }
                check_reply(style, &request, judged);
            }
        }
    }
}

/// The outcome of the requests that a stream of replies answers.
#[derive(Debug, Default, PartialEq)]
struct Answered {
    /// By cookie and place, in the order of arrival; what continues the piece before is one with it, and
    /// holes are zeroes.
    data: Vec<(u64, u64, Vec<u8>)>,
    failures: Vec<(u64, Errno, Option<u64>)>,
    extents: Vec<(u64, AllocationExtent)>,
    ended: Vec<u64>,
    error: Option<ReplyError>,
}

/// Requests with cookies 0 to 3 read, 4 to 6 have no data, 7 asks for a block status, and others are not
/// pending.
fn pending(cookie: u64) -> Option<PendingReply> {
    match cookie {
        0..=3 => Some(PendingReply::Read { offset: 4096 * cookie, length: 96 << cookie }),
        4..=6 => Some(PendingReply::Other { offset: 0 }),
        7 => Some(PendingReply::BlockStatus { offset: 0, context: 1 }),
        _ => None,
    }
}

impl Answered {
    fn take(&mut self, cookie: u64, offset: u64, bytes: &[u8]) {
        match self.data.last_mut() {
            Some((last, start, data)) if *last == cookie && *start + data.len() as u64 == offset => {
                data.extend_from_slice(bytes);
            }
            _ => self.data.push((cookie, offset, bytes.to_vec())),
        }
    }
}

fn note(answered: &mut Answered, event: ReplyEvent<'_>) {
    match event {
        ReplyEvent::Data { cookie, offset, bytes } => {
            assert!(!bytes.is_empty());
            answered.take(cookie, offset, bytes);
        }
        ReplyEvent::Hole { cookie, offset, length } => {
            answered.take(cookie, offset, &vec![0; length as usize]);
        }
        ReplyEvent::Extent { cookie, extent } => answered.extents.push((cookie, extent)),
        ReplyEvent::Failed { cookie, errno, offset } => answered.failures.push((cookie, errno, offset)),
        ReplyEvent::End { cookie } => answered.ended.push(cookie),
    }
}

/// `past`: data that is expected goes past the parser, as a client's does that receives it to where it
/// belongs.
fn answered(style: MessageStyle, input: &[u8], mut cut: Cut, past: bool) -> Answered {
    let (mut parser, mut answered, mut rest) = (ReplyParser::new(style), Answered::default(), input);
    while !rest.is_empty() {
        let (mut piece, left) = rest.split_at(cut.next().min(rest.len()));
        rest = left;
        if past && let Some(ExpectedData { cookie, offset, length }) = parser.expects_data() {
            let (bytes, left) = piece.split_at(piece.len().min(length as usize));
            piece = left;
            parser.received_data(bytes.len() as u32);
            note(&mut answered, ReplyEvent::Data { cookie, offset, bytes });
        }
        loop {
            let ended = &answered.ended;
            let outcome =
                parser.receive(piece, |cookie| pending(cookie).filter(|_| !ended.contains(&cookie)));
            assert!(parser.held() <= MOST_REPLY_HELD, "{} bytes are kept", parser.held());
            match outcome {
                Ok((taken, event)) => {
                    piece = &piece[taken..];
                    let Some(event) = event else { break };
                    note(&mut answered, event);
                }
                Err(error) => {
                    assert_eq!(parser.receive(b"more", pending), Err(error), "a failure is for good");
                    answered.error = Some(error);
                    return answered;
                }
            }
        }
        assert!(piece.is_empty(), "a parser without news has taken everything");
    }
    answered
}

/// The coverage of each read agrees with the pieces of its data: none overlaps another that counts.
fn check_coverage(answered: &Answered) {
    let mut coverages: [ReadCoverage; 4] = Default::default();
    let mut taken: [Vec<std::ops::Range<u64>>; 4] = Default::default();
    for (cookie, at, data) in &answered.data {
        let Some(PendingReply::Read { offset, length }) = pending(*cookie) else { continue };
        let (coverage, taken) = (&mut coverages[*cookie as usize], &mut taken[*cookie as usize]);
        let range = at - offset..at - offset + data.len() as u64;
        let free = taken.iter().all(|other| range.end <= other.start || other.end <= range.start);
        let is_taken = coverage.take(range.start as u32, data.len() as u32).is_ok();
        assert_eq!(is_taken, free, "{range:?} beside {taken:?}");
        if is_taken {
            taken.push(range);
        }
        let covered: u64 = taken.iter().map(|range| range.end - range.start).sum();
        assert_eq!(coverage.is_complete(length), covered == u64::from(length));
    }
}

/// A server's replies, as the client reads them, under every style.
pub fn replies(input: &[u8]) {
    for style in STYLES {
        let whole = answered(style, input, Cut::Whole, false);
        for (cookie, at, data) in &whole.data {
            let Some(PendingReply::Read { offset, length }) = pending(*cookie) else {
                panic!("data for {cookie}, which reads nothing");
            };
            let end = at + data.len() as u64;
            assert!(offset <= *at && end <= offset + u64::from(length), "{at} to {end} was not asked for");
        }
        check_coverage(&whole);
        assert!(whole.extents.iter().all(|(cookie, extent)| *cookie == 7 && extent.length > 0));
        for cut in Cut::ALL {
            for past in [false, true] {
                assert_eq!(answered(style, input, cut, past), whole, "{cut:?}, past the parser: {past}");
            }
        }
    }
}

#[cfg(test)]
#[path = "../../../fuzz/replay.rs"]
mod replay;

#[cfg(test)]
mod corpus {
    use super::replay::replay;

    #[test]
    fn every_kept_input_keeps_the_invariants() {
        replay("nbd-server-handshake", super::server_handshake);
        replay("nbd-client-handshake", super::client_handshake);
        replay("nbd-requests", super::requests);
        replay("nbd-replies", super::replies);
    }
}
