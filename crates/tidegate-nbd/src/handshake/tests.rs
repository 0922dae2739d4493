//! Both sides against each other, however the streams are cut; and each side against a peer that misbehaves.

use proptest::prelude::*;

use super::*;
use crate::transmission::MessageStyle;
use crate::{
    ALLOCATION_CONTEXT, ALLOCATION_NAME, BlockSizes, ExportDescription, ExportGeometry, TransmissionFlags,
};

pub(super) fn name(text: &str) -> ExportName {
    ExportName::new(text).unwrap()
}

pub(super) fn export(size: u64) -> ExportDescription {
    ExportDescription {
        geometry: ExportGeometry {
            size,
            flags: TransmissionFlags::SEND_FLUSH | TransmissionFlags::SEND_DF,
            blocks: BlockSizes::new(512, 4096, 1 << 20).unwrap(),
        },
        description: "a volume".to_owned(),
    }
}

/// A server as its caller would run it: feeds, answers, collects the output.
struct Host<'a> {
    server: ServerHandshake,
    lookup: &'a dyn Fn(&ExportName) -> ExportAnswer,
    list: Vec<(ExportName, String)>,
    sent: Vec<u8>,
    outcome: Option<Result<ServerEvent, ServerError>>,
    /// The bytes left over when the handshake was over.
    rest: Vec<u8>,
}

impl<'a> Host<'a> {
    fn new(lookup: &'a dyn Fn(&ExportName) -> ExportAnswer) -> Self {
        let list = vec![(name("a"), "first".to_owned()), (name("b"), String::new())];
        let mut host = Self {
            server: ServerHandshake::new(),
            lookup,
            list,
            sent: Vec::new(),
            outcome: None,
            rest: Vec::new(),
        };
        host.flush();
        host
    }

    fn flush(&mut self) {
        self.sent.extend_from_slice(self.server.output());
        self.server.sent(self.server.output().len());
    }

    fn feed(&mut self, mut bytes: &[u8]) {
        while self.outcome.is_none() {
            match self.server.receive(bytes) {
                Ok((taken, event)) => {
                    bytes = &bytes[taken..];
                    match event {
                        Some(ServerEvent::ExportWanted { name, .. }) => {
                            self.server.answer((self.lookup)(&name));
                        }
                        Some(ServerEvent::ListWanted) => {
                            self.server.answer_list(self.list.iter().map(|(name, text)| (name, &text[..])));
                        }
                        Some(event) => self.outcome = Some(Ok(event)),
                        None if bytes.is_empty() => {
                            self.flush();
                            break;
                        }
                        None => assert!(!self.server.output().is_empty(), "input is left for no reason"),
                    }
                }
                Err(error) => self.outcome = Some(Err(error)),
            }
            self.flush();
            assert!(self.server.held() <= MAX_DATA as usize);
        }
        if self.outcome.is_some() {
            self.rest.extend_from_slice(bytes);
        }
    }
}

/// Runs client and server against each other; every transfer moves at most the next number of `cuts` bytes.
fn negotiate(
    mut client: ClientHandshake,
    host: &mut Host<'_>,
    cuts: &[usize],
) -> Option<Result<ClientEvent, ClientError>> {
    let mut cuts = cuts.iter().copied().cycle();
    let mut read = 0;
    let mut outcome = None;
    loop {
        let mut moved = false;
        let up = client.output().len().min(cuts.next().unwrap());
        if up > 0 {
            host.feed(&client.output()[..up]);
            client.sent(up);
            moved = true;
        }
        let down = (host.sent.len() - read).min(cuts.next().unwrap());
        if outcome.is_none() && down > 0 {
            moved = true;
            let piece = &host.sent[read..read + down];
            match client.receive(piece) {
                Ok((taken, event)) => {
                    assert!(event.is_some() || taken == down);
                    read += taken;
                    outcome = event.map(Ok);
                }
                Err(error) => outcome = Some(Err(error)),
            }
        }
        if !moved {
            return outcome;
        }
    }
}

fn found(_: &ExportName) -> ExportAnswer {
    ExportAnswer::Found(export(1 << 20))
}

fn cuts() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(1usize..40, 2..20)
}

proptest! {
    #[test]
    fn both_sides_agree_on_what_was_opened(
        wanted in "\\PC{0,40}", size in any::<u64>(), flags in any::<u16>(),
        style in prop_oneof![
            Just(MessageStyle::Simple), Just(MessageStyle::Structured), Just(MessageStyle::Extended)
        ],
        allocation in any::<bool>(), hears in any::<bool>(), shift in 0u32..17, cuts in cuts(),
    ) {
        let blocks = BlockSizes::new(1 << shift, 1 << 16, 1 << 25).unwrap();
        let flags = TransmissionFlags::from_bits(flags);
        let offered = ExportDescription { geometry: ExportGeometry { size, flags, blocks },
            description: String::new() };
        let lookup = |_: &ExportName| ExportAnswer::Found(offered.clone());
        let mut host = Host::new(&lookup);
        let client = ClientHandshake::open(name(&wanted), style);
        let client = if allocation { client.with_allocation() } else { client };
        let client = if hears { client.hearing_shutdown() } else { client };
        let outcome = negotiate(client, &mut host, &cuts);
        let Some(Ok(ClientEvent::Opened(theirs))) = outcome else { panic!("{outcome:?}") };
        prop_assert_eq!(theirs.name.as_str(), &wanted);
        prop_assert_eq!(theirs.terms.geometry.size, size);
        prop_assert_eq!(theirs.terms.geometry.blocks, blocks);
        prop_assert!(theirs.terms.geometry.flags.contains(TransmissionFlags::HAS_FLAGS));
        let chunks = style != MessageStyle::Simple;
        let df = theirs.terms.geometry.flags.contains(TransmissionFlags::SEND_DF);
        prop_assert_eq!(df, chunks && flags.contains(TransmissionFlags::SEND_DF));
        prop_assert_eq!(theirs.terms.style, style);
        let context = (allocation && chunks).then_some(ALLOCATION_CONTEXT);
        prop_assert_eq!(theirs.terms.allocation, context);
        prop_assert_eq!(theirs.terms.hears_shutdown, hears);
        prop_assert_eq!(host.outcome, Some(Ok(ServerEvent::Opened(theirs))));
    }

    #[test]
    fn a_list_arrives_whole(
        exports in prop::collection::vec(("\\PC{0,30}", "\\PC{0,30}"), 0..20), cuts in cuts(),
    ) {
        let mut host = Host::new(&found);
        host.list = exports.iter().map(|(export, text)| (name(export), text.clone())).collect();
        let outcome = negotiate(ClientHandshake::list(), &mut host, &cuts);
        let Some(Ok(ClientEvent::Listed(listed))) = outcome else { panic!("{outcome:?}") };
        let listed: Vec<_> =
            listed.into_iter().map(|listing| (listing.name.as_str().to_owned(), listing.description))
                .collect();
        prop_assert_eq!(listed, exports);
        prop_assert_eq!(host.outcome, Some(Ok(ServerEvent::Aborted)));
    }

    #[test]
    fn a_server_outlives_arbitrary_bytes(
        begins_well in any::<bool>(),
        options in prop::collection::vec(
            (prop_oneof![0u32..12, any::<u32>()], 0u32..80, prop::collection::vec(any::<u8>(), 0..80)), 0..20,
        ),
        tail in prop::collection::vec(any::<u8>(), 0..100), cut in 1usize..100,
    ) {
        let mut stream = Vec::new();
        if begins_well {
            stream.extend_from_slice(&3u32.to_be_bytes());
            for (option, length, data) in options {
                stream.extend_from_slice(&OPTION_MAGIC.to_be_bytes());
                stream.extend_from_slice(&option.to_be_bytes());
                let honest = data.len() as u32;
                stream.extend_from_slice(&if length < 70 { honest } else { length }.to_be_bytes());
                stream.extend(data);
            }
        }
        stream.extend(tail);
        let mut host = Host::new(&|_| ExportAnswer::Unknown);
        for piece in stream.chunks(cut) {
            host.feed(piece);
        }
    }

    #[test]
    fn a_client_outlives_arbitrary_bytes(
        depth in 0usize..3,
        replies in prop::collection::vec(
            (0u32..12, prop_oneof![0u32..6, 0x8000_0000u32..0x8000_000b, any::<u32>()],
             prop::collection::vec(any::<u8>(), 0..40)), 0..10,
        ),
        tail in prop::collection::vec(any::<u8>(), 0..100), cut in 1usize..100,
    ) {
        let mut stream = Vec::new();
        if depth > 0 {
            stream.extend_from_slice(&greeting(if depth == 1 { FIXED_NEWSTYLE } else { 0 }));
        }
        for (option, kind, data) in replies {
            stream.extend_from_slice(&reply_bytes(option, kind, &data));
        }
        stream.extend(tail);
        let structured = ClientHandshake::open(name("x"), MessageStyle::Structured);
        let extended = ClientHandshake::open(name("x"), MessageStyle::Extended).with_allocation();
        for mut client in [structured, extended, ClientHandshake::list()] {
            for piece in stream.chunks(cut) {
                if !matches!(client.receive(piece), Ok((_, None))) {
                    break;
                }
            }
            prop_assert!(client.output().len() < 400);
        }
    }
}

pub(super) fn greeting(flags: u16) -> Vec<u8> {
    [&NBD_MAGIC.to_be_bytes()[..], &OPTION_MAGIC.to_be_bytes(), &flags.to_be_bytes()].concat()
}

pub(super) fn option_bytes(option: u32, data: &[u8]) -> Vec<u8> {
    let length = (data.len() as u32).to_be_bytes();
    [&OPTION_MAGIC.to_be_bytes()[..], &option.to_be_bytes(), &length, data].concat()
}

pub(super) fn reply_bytes(option: u32, kind: u32, data: &[u8]) -> Vec<u8> {
    let length = (data.len() as u32).to_be_bytes();
    [&OPTION_REPLY_MAGIC.to_be_bytes()[..], &option.to_be_bytes(), &kind.to_be_bytes(), &length, data]
        .concat()
}

/// The replies that a server sent behind its greeting: option, type, data.
pub(super) fn replies(mut sent: &[u8]) -> Vec<(u32, u32, Vec<u8>)> {
    let mut found = Vec::new();
    sent = &sent[18..];
    while !sent.is_empty() {
        let number = |at: usize| u32::from_be_bytes(sent[at..at + 4].try_into().unwrap());
        assert_eq!(sent[..8], OPTION_REPLY_MAGIC.to_be_bytes());
        let (option, kind, length) = (number(8), number(12), number(16) as usize);
        found.push((option, kind, sent[20..20 + length].to_vec()));
        sent = &sent[20 + length..];
    }
    found
}

/// The types of the replies to a session of these options by a well-behaved client.
fn verdicts(host: &mut Host<'_>, options: &[(u32, &[u8])]) -> Vec<u32> {
    host.feed(&3u32.to_be_bytes());
    for (option, data) in options {
        host.feed(&option_bytes(*option, data));
    }
    replies(&host.sent).into_iter().map(|(_, kind, _)| kind).collect()
}

fn query(name: &str, requests: &[u16]) -> Vec<u8> {
    let mut data = (name.len() as u32).to_be_bytes().to_vec();
    data.extend_from_slice(name.as_bytes());
    data.extend_from_slice(&(requests.len() as u16).to_be_bytes());
    data.extend(requests.iter().flat_map(|request| request.to_be_bytes()));
    data
}

#[test]
fn options_that_are_unknown_or_malformed_are_refused_and_the_client_goes_on() {
    let mut host = Host::new(&found);
    let latin1 = [0, 0, 0, 1, 0xe9, 0, 0];
    let nul = query("a\0b", &[]);
    let mut leftover = query("a", &[]);
    leftover.push(0);
    let mut truncated = query("a", &[info::NAME, info::DESCRIPTION]);
    truncated.pop();
    let kinds = verdicts(
        &mut host,
        &[
            (5, b""),
            (99, b"some data"),
            (option::LIST, b"x"),
            (option::STRUCTURED_REPLY, b"x"),
            (option::EXTENDED_HEADERS, b"x"),
            (option::GO, b""),
            (option::GO, &[0xff; 6]),
            (option::GO, &latin1),
            (option::INFO, &nul),
            (option::INFO, &leftover),
            (option::INFO, &truncated),
            (option::GO, &query(&"x".repeat(MAX_NAME + 1), &[])),
            (option::GO, &vec![0; MAX_DATA as usize + 1]),
        ],
    );
    let mut expected = vec![reply::ERR_UNSUP; 2];
    expected.extend([reply::ERR_INVALID; 10]);
    expected.push(reply::ERR_TOO_BIG);
    assert_eq!(kinds, expected);
    assert_eq!(host.outcome, None);

    host.feed(&option_bytes(option::GO, &query("x", &[])));
    assert!(matches!(host.outcome, Some(Ok(ServerEvent::Opened(_)))));
}

const MAX_NAME: usize = crate::MAX_STRING;

#[test]
fn the_longest_name_is_a_name() {
    let long = "x".repeat(MAX_NAME);
    for option in [option::GO, option::EXPORT_NAME] {
        let mut host = Host::new(&found);
        host.feed(&3u32.to_be_bytes());
        let data = if option == option::GO { query(&long, &[]) } else { long.clone().into_bytes() };
        host.feed(&option_bytes(option, &data));
        let Some(Ok(ServerEvent::Opened(opened))) = host.outcome else { panic!("{:?}", host.outcome) };
        assert_eq!(opened.name.as_str(), long);
    }
}

#[test]
fn a_client_hears_what_it_asked_about() {
    let mut host = Host::new(&found);
    host.feed(&3u32.to_be_bytes());
    host.feed(&option_bytes(option::INFO, &query("x", &[info::NAME, info::DESCRIPTION, 77, info::NAME])));
    let told: Vec<_> = replies(&host.sent).into_iter().map(|(_, kind, data)| (kind, data)).collect();
    let kinds: Vec<_> = told.iter().map(|(kind, _)| *kind).collect();
    assert_eq!(kinds, [reply::INFO, reply::INFO, reply::INFO, reply::INFO, reply::ACK]);
    assert_eq!(told[2].1, b"\0\x01x");
    assert_eq!(told[3].1, b"\0\x02a volume");
    assert_eq!(host.outcome, None, "INFO does not end the handshake");
}

#[test]
fn bytes_behind_the_handshake_belong_to_transmission() {
    let mut host = Host::new(&found);
    host.feed(&3u32.to_be_bytes());
    let mut bytes = option_bytes(option::GO, &query("x", &[]));
    bytes.extend_from_slice(b"first request");
    host.feed(&bytes);
    assert!(matches!(host.outcome, Some(Ok(ServerEvent::Opened(_)))));
    assert_eq!(host.rest, b"first request");
}

#[test]
fn reasons_not_to_open_an_export_reach_the_client() {
    for (answer, refusal) in [
        (ExportAnswer::Unknown, OptionRefusal::Unknown),
        (ExportAnswer::Unavailable, OptionRefusal::Unknown),
        (ExportAnswer::AtCapacity, OptionRefusal::Policy),
        (ExportAnswer::ShuttingDown, OptionRefusal::Shutdown),
    ] {
        let lookup = |_: &ExportName| answer.clone();
        let mut host = Host::new(&lookup);
        let client = ClientHandshake::open(name("x"), MessageStyle::Structured);
        let outcome = negotiate(client, &mut host, &[1000]);
        let Some(Err(ClientError::Refused { refusal: said, message })) = outcome else {
            panic!("{outcome:?}")
        };
        assert_eq!(said, refusal);
        assert!(!message.is_empty());
        assert_eq!(host.outcome, Some(Ok(ServerEvent::Aborted)), "a client that is refused says goodbye");
    }
}

#[test]
fn export_name_opens_with_and_without_padding_and_cannot_refuse() {
    for (flags, length) in [(3u32, 10), (1, 134), (0, 134)] {
        let mut host = Host::new(&found);
        host.feed(&flags.to_be_bytes());
        host.feed(&option_bytes(option::EXPORT_NAME, b"x"));
        assert_eq!(host.sent.len() - 18, length);
        assert!(matches!(host.outcome, Some(Ok(ServerEvent::Opened(_)))));
    }
    let mut host = Host::new(&|_| ExportAnswer::Unknown);
    host.feed(&3u32.to_be_bytes());
    host.feed(&option_bytes(option::EXPORT_NAME, b"x"));
    assert_eq!(host.outcome, Some(Err(ServerError::Refused(name("x")))));
    assert_eq!(host.sent.len(), 18);
}

#[test]
fn a_hostile_client_is_cut_off() {
    let failure = |bytes: &[u8]| {
        let mut host = Host::new(&found);
        host.feed(bytes);
        host.outcome.and_then(Result::err)
    };
    assert_eq!(failure(&4u32.to_be_bytes()), Some(ServerError::UnknownFlags(4)));
    let after_flags = |option: &[u8]| failure(&[&3u32.to_be_bytes()[..], option].concat());
    assert_eq!(after_flags(&[0; 16]), Some(ServerError::BadMagic(0)));
    let announces = |option: u32, length: u32| {
        [&OPTION_MAGIC.to_be_bytes()[..], &option.to_be_bytes(), &length.to_be_bytes()].concat()
    };
    assert_eq!(
        after_flags(&announces(99, u32::MAX)),
        Some(ServerError::OptionTooLong { option: 99, length: u32::MAX })
    );
    assert!(matches!(after_flags(&announces(option::EXPORT_NAME, 4097)), Some(ServerError::InvalidName(_))));
    let endless = option_bytes(99, b"").repeat(10_000);
    assert_eq!(after_flags(&endless), Some(ServerError::TooManyOptions));
}

#[test]
fn output_that_nobody_sends_stops_the_server() {
    let mut server = ServerHandshake::new();
    let mut stream = 3u32.to_be_bytes().to_vec();
    stream.extend(option_bytes(99, b"").repeat(5_000));
    let (taken, event) = server.receive(&stream).unwrap();
    assert_eq!(event, None);
    assert!(taken < stream.len());
    assert!(server.output().len() < (64 << 10) + 100);
    assert_eq!(server.receive(&stream[taken..]).unwrap(), (0, None));
    server.sent(server.output().len());
    assert!(server.receive(&stream[taken..]).unwrap().0 > 0);
}

#[test]
fn a_question_is_repeated_until_it_is_answered() {
    let mut server = ServerHandshake::new();
    server.receive(&3u32.to_be_bytes()).unwrap();
    let question = Some(ServerEvent::ExportWanted { name: name("x"), open: true });
    let bytes = option_bytes(option::GO, &query("x", &[]));
    assert_eq!(server.receive(&bytes).unwrap(), (bytes.len(), question.clone()));
    assert_eq!(server.receive(b"more").unwrap(), (0, question));
    server.answer_list([]);
    server.answer(ExportAnswer::Unknown);
    server.answer(found(&name("x")));
    assert_eq!(server.receive(&[]).unwrap(), (0, None), "the second answer finds no question");
}

#[test]
fn a_client_falls_back_for_servers_that_do_not_know_go() {
    let mut client = ClientHandshake::open(name("x"), MessageStyle::Structured);
    let described = [&(1u64 << 20).to_be_bytes()[..], &1u16.to_be_bytes()].concat();
    client.receive(&greeting(FIXED_NEWSTYLE)).unwrap();
    client.receive(&reply_bytes(option::STRUCTURED_REPLY, reply::ERR_UNSUP, b"")).unwrap();
    client.receive(&reply_bytes(option::GO, reply::ERR_UNSUP, b"")).unwrap();
    assert!(client.output().ends_with(&option_bytes(option::EXPORT_NAME, b"x")));
    client.receive(&described).unwrap();
    let Ok((ZEROES, Some(ClientEvent::Opened(opened)))) = client.receive(&[0; ZEROES + 1]) else { panic!() };
    assert_eq!((opened.terms.geometry.size, opened.terms.style), (1 << 20, MessageStyle::Simple));
    assert_eq!(opened.terms.geometry.blocks, BlockSizes::DEFAULT);

    let mut client = ClientHandshake::open(name("x"), MessageStyle::Structured);
    client.receive(&greeting(0)).unwrap();
    assert_eq!(client.output(), [&0u32.to_be_bytes()[..], &option_bytes(option::EXPORT_NAME, b"x")].concat());
}

#[test]
fn a_server_that_misbehaves_is_named() {
    let failure = |wanted: ClientHandshake, bytes: &[u8]| {
        let mut client = wanted;
        client.receive(bytes).unwrap_err()
    };
    let open = || ClientHandshake::open(name("x"), MessageStyle::Simple);
    let after_greeting = |bytes: &[u8]| failure(open(), &[&greeting(3)[..], bytes].concat());
    let ssh = failure(open(), b"SSH-2.0-OpenSSH_9.2p1 Debian");
    assert_eq!(ssh, ClientError::NotNbd(0x5353_482d_322e_302d));
    let oldstyle = [&NBD_MAGIC.to_be_bytes()[..], &0x0000_4202_8186_1253u64.to_be_bytes(), &[0; 2]].concat();
    assert_eq!(failure(open(), &oldstyle), ClientError::Oldstyle);
    assert_eq!(failure(ClientHandshake::list(), &greeting(0)), ClientError::CannotList);
    assert_eq!(after_greeting(&[7; 20]), ClientError::BadReplyMagic(0x0707_0707_0707_0707));
    assert_eq!(
        after_greeting(&reply_bytes(option::LIST, reply::ACK, b"")),
        ClientError::Unexpected { option: option::LIST, kind: reply::ACK }
    );
    assert_eq!(after_greeting(&reply_bytes(option::GO, reply::ACK, b"")), ClientError::NoExportInfo);
    let sizes = [&info::BLOCK_SIZE.to_be_bytes()[..], &[0; 12]].concat();
    assert!(matches!(
        after_greeting(&reply_bytes(option::GO, reply::INFO, &sizes)),
        ClientError::BlockSizes(_)
    ));
    let mut huge = reply_bytes(option::GO, reply::INFO, b"");
    huge[16..].copy_from_slice(&u32::MAX.to_be_bytes());
    assert_eq!(after_greeting(&huge), ClientError::ReplyTooLong(u32::MAX));
    let endless = reply_bytes(option::GO, reply::INFO, &77u16.to_be_bytes()).repeat(10_001);
    assert_eq!(after_greeting(&endless), ClientError::TooManyReplies);
    let listing = [&1u32.to_be_bytes()[..], b"a", &[b'd'; 4000]].concat();
    let long_list = [greeting(3), reply_bytes(option::LIST, reply::SERVER, &listing).repeat(300)].concat();
    assert_eq!(failure(ClientHandshake::list(), &long_list), ClientError::TooManyReplies);
}

/// The data of an option about metadata contexts.
fn contexts(export: &str, queries: &[&str]) -> Vec<u8> {
    let string = |text: &str| [&(text.len() as u32).to_be_bytes()[..], text.as_bytes()].concat();
    let mut data = string(export);
    data.extend_from_slice(&(queries.len() as u32).to_be_bytes());
    data.extend(queries.iter().flat_map(|query| string(query)));
    data
}

/// The terms of a session that begins after these options.
fn terms_after(options: &[(u32, &[u8])], export: &str) -> SessionTerms {
    let mut host = Host::new(&found);
    verdicts(&mut host, options);
    host.feed(&option_bytes(option::GO, &query(export, &[])));
    let Some(Ok(ServerEvent::Opened(opened))) = host.outcome else { panic!("{:?}", host.outcome) };
    opened.terms
}

#[test]
fn contexts_are_listed_and_selected_by_exact_names() {
    let context =
        |id: u32| (reply::META_CONTEXT, [&id.to_be_bytes()[..], ALLOCATION_NAME.as_bytes()].concat());
    let ack = (reply::ACK, Vec::new());
    for (option, queries, expected) in [
        (option::LIST_META_CONTEXT, &[][..], vec![context(0), ack.clone()]),
        (option::LIST_META_CONTEXT, &["base:"], vec![context(0), ack.clone()]),
        (option::LIST_META_CONTEXT, &["qemu:", "base:allocation", "base:"], vec![context(0), ack.clone()]),
        (option::LIST_META_CONTEXT, &["qemu:dirty-bitmap:x", "base:dirty", "colonless"], vec![ack.clone()]),
        (option::SET_META_CONTEXT, &[], vec![ack.clone()]),
        (option::SET_META_CONTEXT, &["base:"], vec![ack.clone()]),
        (option::SET_META_CONTEXT, &["x-y:z", "base:allocation"], vec![context(1), ack.clone()]),
        (option::SET_META_CONTEXT, &["base:allocation"; 2], vec![context(1), ack.clone()]),
    ] {
        let mut host = Host::new(&found);
        verdicts(&mut host, &[(option::STRUCTURED_REPLY, b""), (option, &contexts("x", queries))]);
        let told = replies(&host.sent).into_iter().skip(1).map(|(_, kind, data)| (kind, data));
        assert_eq!(told.collect::<Vec<_>>(), expected, "{option} {queries:?}");
    }
}

#[test]
fn contexts_need_chunks_an_export_and_whole_queries() {
    let set = |queries: &[&str]| contexts("x", queries);
    let mut leftover = set(&["base:allocation"]);
    leftover.push(0);
    let mut truncated = set(&["base:allocation"]);
    truncated.pop();
    let long = "x".repeat(MAX_NAME + 1);
    let (long, huge) = (set(&[&long]), vec![0; MAX_DATA as usize + 1]);
    let mut host = Host::new(&|_| ExportAnswer::Unknown);
    let kinds = verdicts(
        &mut host,
        &[
            (option::LIST_META_CONTEXT, &set(&[])),
            (option::SET_META_CONTEXT, &set(&["base:allocation"])),
            (option::EXTENDED_HEADERS, b""),
            (option::SET_META_CONTEXT, b""),
            (option::SET_META_CONTEXT, &leftover),
            (option::SET_META_CONTEXT, &truncated),
            (option::LIST_META_CONTEXT, &long),
            (option::SET_META_CONTEXT, &huge),
            (option::SET_META_CONTEXT, &set(&["base:allocation"])),
            (option::LIST_META_CONTEXT, &set(&["base:allocation"])),
        ],
    );
    let mut expected = vec![reply::ERR_INVALID, reply::ERR_INVALID, reply::ACK];
    expected.extend([reply::ERR_INVALID; 4]);
    expected.extend([reply::ERR_TOO_BIG, reply::ERR_UNKNOWN, reply::ERR_UNKNOWN]);
    assert_eq!(kinds, expected);
}

#[test]
fn options_may_come_in_any_order_and_again() {
    const STRUCTURED: (u32, &[u8]) = (option::STRUCTURED_REPLY, b"");
    const EXTENDED: (u32, &[u8]) = (option::EXTENDED_HEADERS, b"");
    let (select, none) = (contexts("x", &["base:allocation"]), contexts("x", &[]));
    let (select, none) = ((option::SET_META_CONTEXT, &select[..]), (option::SET_META_CONTEXT, &none[..]));
    let terms = |options: &[(u32, &[u8])], export| {
        let terms = terms_after(options, export);
        (terms.style, terms.allocation.is_some())
    };
    use MessageStyle::{Extended, Simple, Structured};
    assert_eq!(terms(&[STRUCTURED, STRUCTURED, select, select], "x"), (Structured, true));
    assert_eq!(terms(&[EXTENDED, select], "x"), (Extended, true));
    assert_eq!(terms(&[STRUCTURED, select, EXTENDED, EXTENDED], "x"), (Extended, true));
    assert_eq!(terms(&[EXTENDED, STRUCTURED, select], "x"), (Extended, true), "it takes precedence");
    assert_eq!(terms(&[select, STRUCTURED], "x"), (Structured, false), "too early");
    assert_eq!(terms(&[select], "x"), (Simple, false));
    assert_eq!(terms(&[STRUCTURED, select, none], "x"), (Structured, false), "replaced");
    let failing = (option::SET_META_CONTEXT, &b"bad"[..]);
    assert_eq!(terms(&[STRUCTURED, select, failing], "x"), (Structured, false), "replaced by a failure");
    assert_eq!(terms(&[STRUCTURED, select], "y"), (Structured, false), "those of another export");

    let mut host = Host::new(&found);
    let kinds = verdicts(&mut host, &[EXTENDED, STRUCTURED, EXTENDED]);
    assert_eq!(kinds, [reply::ACK, reply::ERR_EXT_HEADER_REQD, reply::ACK]);
    host.feed(&option_bytes(option::EXPORT_NAME, b"x"));
    assert_eq!(host.outcome, Some(Err(ServerError::ExtendedExportName)));
}

#[test]
fn naming_contexts_is_offered_where_there_are_extended_headers_and_a_context() {
    let select = contexts("x", &["base:allocation"]);
    for (style, selects, offered) in [
        (option::STRUCTURED_REPLY, true, false),
        (option::EXTENDED_HEADERS, false, false),
        (option::EXTENDED_HEADERS, true, true),
    ] {
        let options = [(style, &b""[..]), (option::SET_META_CONTEXT, &select[..])];
        let terms = terms_after(&options[..1 + usize::from(selects)], "x");
        assert_eq!(terms.geometry.flags.contains(TransmissionFlags::BLOCK_STATUS_PAYLOAD), offered);
    }
}

#[test]
fn a_client_goes_on_with_what_an_older_server_knows() {
    let described = [&0u16.to_be_bytes()[..], &(1u64 << 20).to_be_bytes(), &1u16.to_be_bytes()].concat();
    let known = |refused: &[(u32, u32)]| {
        let mut client = ClientHandshake::open(name("x"), MessageStyle::Extended).with_allocation();
        client.receive(&greeting(3)).unwrap();
        for (option, kind) in refused {
            client.receive(&reply_bytes(*option, *kind, b"")).unwrap();
        }
        client.receive(&reply_bytes(option::GO, reply::INFO, &described)).unwrap();
        let outcome = client.receive(&reply_bytes(option::GO, reply::ACK, b""));
        let Ok((_, Some(ClientEvent::Opened(opened)))) = outcome else { panic!("{outcome:?}") };
        (opened.terms.style, opened.terms.allocation)
    };
    let unsupported = |option| (option, reply::ERR_UNSUP);
    let extended = unsupported(option::EXTENDED_HEADERS);
    assert_eq!(known(&[extended, unsupported(option::STRUCTURED_REPLY)]), (MessageStyle::Simple, None));
    let structured = (option::STRUCTURED_REPLY, reply::ACK);
    assert_eq!(
        known(&[extended, structured, unsupported(option::SET_META_CONTEXT)]),
        (MessageStyle::Structured, None)
    );
    let none_selected = (option::SET_META_CONTEXT, reply::ACK);
    assert_eq!(
        known(&[(option::EXTENDED_HEADERS, reply::ACK), none_selected]),
        (MessageStyle::Extended, None)
    );
}

#[test]
fn a_server_does_not_know_styles_beyond_its_own() {
    for richest in [MessageStyle::Simple, MessageStyle::Structured, MessageStyle::Extended] {
        let mut host = Host::new(&found);
        host.server = ServerHandshake::new().up_to(richest);
        host.sent.clear();
        host.flush();
        let client = ClientHandshake::open(name("x"), MessageStyle::Extended).with_allocation();
        let outcome = negotiate(client, &mut host, &[1000]);
        let Some(Ok(ClientEvent::Opened(opened))) = outcome else { panic!("{outcome:?}") };
        assert_eq!(opened.terms.style, richest);
        assert_eq!(opened.terms.allocation.is_some(), richest != MessageStyle::Simple);
    }
}

#[test]
fn a_context_that_was_not_asked_for_is_no_selection() {
    let mut client = ClientHandshake::open(name("x"), MessageStyle::Structured).with_allocation();
    client.receive(&greeting(3)).unwrap();
    client.receive(&reply_bytes(option::STRUCTURED_REPLY, reply::ACK, b"")).unwrap();
    let other = [&1u32.to_be_bytes()[..], b"qemu:allocation-depth"].concat();
    assert!(matches!(
        client.receive(&reply_bytes(option::SET_META_CONTEXT, reply::META_CONTEXT, &other)),
        Err(ClientError::Malformed(_))
    ));
}

#[test]
fn a_servers_words_cannot_reach_into_the_terminal() {
    let mut client = ClientHandshake::open(name("x"), MessageStyle::Simple);
    let refusal = reply_bytes(option::GO, reply::ERR_UNKNOWN, b"no\x1b[2J such\xff export\n");
    let error = client.receive(&[greeting(3), refusal].concat()).unwrap_err();
    assert_eq!(error.to_string(), "the server refuses: no[2J such\u{fffd} export");
}
