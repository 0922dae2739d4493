//! Upstreams that break the protocol, or are broken: every request of every client is answered once, and
//! rightly.

use std::collections::BTreeSet;
use std::net::Shutdown;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::common::{MIB, Served};
use crate::upstream::hostile_server::{Connection, Hostile, byte_at, replied};
use crate::upstream::servers::upstream_pool;
use proptest::prelude::*;
use tempfile::TempDir;
use tidegate_gateway::{BackendConfig, ReplayRule};
use tidegate_nbd::transmission::{MessageStyle, NbdCommand, ReplyFrame, WireRequest};
use tidegate_nbd::{AllocationMap, AllocationState, CommandFlags, Errno};
use tidegate_testing::nbd::Raw;
use tidegate_units::Bytes;

const EIO: u32 = Errno::Io.code();

fn over(server: &Hostile, replay: ReplayRule) -> Served {
    Served::start(|_| {
        let mut pool = upstream_pool(&server.socket, &[("vol", "")]);
        let BackendConfig::Nbd(config) = &mut pool.backend else { unreachable!() };
        config.timeout = Duration::from_millis(400);
        config.reconnect = Duration::from_secs(20);
        config.replay = replay;
        vec![pool]
    })
}

fn expected(offset: u64, length: u32) -> Vec<u8> {
    (offset as usize..offset as usize + length as usize).map(byte_at).collect()
}

/// Answers the first request of all with `misbehave`, and behaves from then on.
fn once(
    misbehave: impl Fn(&mut Connection, &WireRequest, &[u8]) + Send + Sync + 'static,
) -> (Hostile, TempDir) {
    once_up_to(MessageStyle::Simple, misbehave)
}

fn once_up_to(
    richest: MessageStyle,
    misbehave: impl Fn(&mut Connection, &WireRequest, &[u8]) + Send + Sync + 'static,
) -> (Hostile, TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let done = AtomicBool::new(false);
    let act = move |connection: &mut Connection| {
        let Some((request, payload)) = connection.request() else { return };
        if done.swap(true, Ordering::SeqCst) {
            connection.serve(&request, &payload);
        } else {
            misbehave(connection, &request, &payload);
        }
        connection.behave();
    };
    let socket = directory.path().join("u.sock");
    (Hostile::start_up_to(richest, &socket, |_, stream| Some(stream), act), directory)
}

fn nothing_is_left(served: &Served) {
    served.wait_until(|pool| pool.in_flight == 0 && pool.bytes_in_use == Bytes::ZERO);
}

type Misbehaviour = fn(&mut Connection, &WireRequest, &[u8]);

/// Breaches after which the connection is of no use.
const BREACHES: &[(&str, Misbehaviour)] = &[
    ("no reply at all", |connection, _, _| connection.say(&[0xff; 16])),
    ("a reply to nobody", |connection, request, _| connection.reply(request.cookie ^ 1, Ok(()), &[])),
    ("an old cookie", |connection, request, _| connection.reply(request.cookie & 0xffff_ffff, Ok(()), &[])),
    ("an error for nobody", |connection, _, _| connection.reply(u64::MAX, Err(Errno::Io), &[])),
    ("structured though simple was agreed", |connection, request, _| {
        let length = request.length as u32;
        connection.say(&MessageStyle::Structured.data(replied(request), length));
    }),
    ("an end in the head", |connection, request, _| {
        connection.say(&ReplyFrame::simple(request.cookie, Ok(()))[..7]);
        let _ = connection.stream.shutdown(Shutdown::Both);
    }),
    ("an end", |connection, _, _| drop(connection.stream.shutdown(Shutdown::Both))),
    ("silence", |connection, _, _| {
        let _ = std::io::Read::read(&mut connection.stream, &mut [0]);
    }),
];

#[test]
fn reads_survive_every_breach_of_the_protocol() {
    let more: &[(&str, Misbehaviour)] = &[
        ("an end in the data", |connection, request, payload| {
            let data = connection.carry_out(request, payload);
            connection.reply(request.cookie, Ok(()), &data[..data.len() - 1]);
            let _ = connection.stream.shutdown(Shutdown::Both);
        }),
        ("silence in the data", |connection, request, payload| {
            let data = connection.carry_out(request, payload);
            connection.reply(request.cookie, Ok(()), &data[..data.len() / 2]);
            let _ = std::io::Read::read(&mut connection.stream, &mut [0]);
        }),
    ];
    for (what, misbehave) in BREACHES.iter().chain(more) {
        for length in [4096, 300_000, 2 * MIB as u32] {
            let (server, _directory) = once(*misbehave);
            let served = over(&server, ReplayRule::Reads);
            let mut client = Raw::open(&served.socket(), "vol");
            client.send(NbdCommand::Read, 1, 8192, length);
            assert!(client.data(length as usize) == (1, expected(8192, length)), "{what}, {length} bytes");
            let upstream = served.pool().consumers[0].upstream.unwrap();
            assert!(upstream.replayed >= 1 && upstream.failed == 0, "{what}: {upstream:?}");
            nothing_is_left(&served);
        }
    }
}

/// A chunk of a read's data, of so many bytes from a place within the read.
fn chunk(connection: &Connection, request: &WireRequest, start: u64, length: u32, last: bool) -> Vec<u8> {
    let at = request.offset + start;
    let frame = ReplyFrame::data(connection.style, replied(request), at, length, last);
    [&frame[..], &expected(at, length)].concat()
}

/// Reads of 64 KiB whose chunks are wrong.
const CHUNK_BREACHES: &[(&str, Misbehaviour)] = &[
    ("simple though chunks were agreed", |connection, request, _| {
        connection.say(&ReplyFrame::simple(request.cookie, Ok(())));
    }),
    ("a gap at the end", |connection, request, _| {
        connection.say(&chunk(connection, request, 0, 60_000, true));
    }),
    ("a gap in the middle", |connection, request, _| {
        connection.say(&chunk(connection, request, 0, 30_000, false));
        connection.say(&chunk(connection, request, 30_001, 35_535, true));
    }),
    ("nothing at all", |connection, request, _| {
        connection.say(&ReplyFrame::done(connection.style, replied(request)));
    }),
    ("the same twice, with a gap", |connection, request, _| {
        connection.say(&chunk(connection, request, 0, 32_768, false));
        connection.say(&chunk(connection, request, 0, 32_768, true));
    }),
    ("an overlap", |connection, request, _| {
        connection.say(&chunk(connection, request, 32_768, 32_768, false));
        connection.say(&chunk(connection, request, 0, 32_769, true));
    }),
    ("a hole over data", |connection, request, _| {
        connection.say(&chunk(connection, request, 0, 65_536, false));
        let hole = ReplyFrame::hole(connection.style, replied(request), request.offset, 4096, true);
        connection.say(&hole);
    }),
    ("data beyond the read", |connection, request, _| {
        connection.say(&chunk(connection, request, 65_535, 2, true));
    }),
    ("extents", |connection, request, _| {
        let mut map = AllocationMap::new(4096, false);
        map.push(4096, AllocationState::HOLE);
        connection.say(&connection.style.allocation(replied(request), &map));
    }),
];

#[test]
fn reads_survive_chunks_that_overlap_or_leave_gaps() {
    for style in [MessageStyle::Structured, MessageStyle::Extended] {
        for (what, misbehave) in CHUNK_BREACHES {
            let (server, _directory) = once_up_to(style, *misbehave);
            let served = over(&server, ReplayRule::Reads);
            let mut client = Raw::open(&served.socket(), "vol");
            client.send(NbdCommand::Read, 1, 8192, 65_536);
            assert!(client.data(65_536) == (1, expected(8192, 65_536)), "{what}, {style:?}");
            let upstream = served.pool().consumers[0].upstream.unwrap();
            assert!(upstream.replayed >= 1 && upstream.failed == 0, "{what}: {upstream:?}");
            nothing_is_left(&served);
        }
    }
}

#[test]
fn a_reply_that_names_another_offset_ends_the_connection() {
    let (server, _directory) = once_up_to(MessageStyle::Extended, |connection, request, _| {
        let other = tidegate_nbd::transmission::RepliedRequest { offset: 0, ..replied(request) };
        connection.say(&connection.style.error(other, Errno::Io));
    });
    let served = over(&server, ReplayRule::Reads);
    let mut client = Raw::open(&served.socket(), "vol");
    client.send(NbdCommand::Read, 1, 8192, 4096);
    assert!(client.data(4096) == (1, expected(8192, 4096)));
    assert!(served.pool().consumers[0].upstream.unwrap().replayed >= 1);
}

#[test]
fn chunks_in_any_order_make_one_read() {
    for style in [MessageStyle::Structured, MessageStyle::Extended] {
        let (server, _directory) = once_up_to(style, |connection, request, _| {
            let replied = replied(request);
            let hole = ReplyFrame::hole(connection.style, replied, request.offset + 131_072, 65_536, false);
            connection.say(&chunk(connection, request, 196_608, 65_536, false));
            connection.say(&hole);
            connection.say(&chunk(connection, request, 1, 131_071, false));
            connection.say(&chunk(connection, request, 0, 1, false));
            connection.say(&ReplyFrame::done(connection.style, replied));
        });
        let served = over(&server, ReplayRule::Reads);
        let mut client = Raw::open(&served.socket(), "vol");
        client.send(NbdCommand::Read, 1, 0, 262_144);
        let mut data = expected(0, 262_144);
        data[131_072..196_608].fill(0);
        assert!(client.data(262_144) == (1, data), "{style:?}");
        assert_eq!(served.pool().consumers[0].upstream.unwrap().replayed, 0);
    }
}

#[test]
fn writes_fail_after_every_breach_of_the_protocol_and_only_they() {
    for (what, misbehave) in BREACHES {
        let (server, _directory) = once(*misbehave);
        let served = over(&server, ReplayRule::Reads);
        let mut client = Raw::open(&served.socket(), "vol");
        client.send_write(1, 8192, &[1; 300_000]);
        assert_eq!(client.answer(), (1, EIO), "{what}");
        client.send_write(2, 8192, &[2; 300_000]);
        assert_eq!(client.answer(), (2, 0), "{what}");
        client.send(NbdCommand::Read, 3, 8192, 300_000);
        assert!(client.data(300_000) == (3, vec![2; 300_000]), "{what}");
        nothing_is_left(&served);
    }
}

#[test]
fn with_replay_of_everything_writes_survive_too() {
    for (what, misbehave) in BREACHES {
        let (server, _directory) = once(*misbehave);
        let served = over(&server, ReplayRule::All);
        let mut client = Raw::open(&served.socket(), "vol");
        client.send_write(1, 8192, &[1; 300_000]);
        assert_eq!(client.answer(), (1, 0), "{what}");
        assert!(server.data.lock().unwrap()[8192..8192 + 300_000].iter().all(|byte| *byte == 1));
        nothing_is_left(&served);
    }
}

#[test]
fn what_follows_a_right_answer_harms_only_the_connection() {
    let twice: Misbehaviour = |connection, request, payload| {
        connection.serve(request, payload);
        connection.serve(request, payload);
    };
    let too_much: Misbehaviour = |connection, request, payload| {
        let mut data = connection.carry_out(request, payload);
        data.extend([0x55; 1000]);
        connection.reply(request.cookie, Ok(()), &data);
    };
    for misbehave in [twice, too_much] {
        let (server, _directory) = once(misbehave);
        let served = over(&server, ReplayRule::Reads);
        let mut client = Raw::open(&served.socket(), "vol");
        for cookie in 0..20 {
            client.send(NbdCommand::Read, cookie, cookie * 4096, 4096);
            assert_eq!(client.data(4096), (cookie, expected(cookie * 4096, 4096)));
        }
        served.wait_until(|pool| pool.consumers[0].upstream.is_some_and(|upstream| upstream.reconnects == 1));
        nothing_is_left(&served);
    }
}

/// A server that answers a write as soon as it sees its head has not seen its data.
#[test]
fn a_reply_that_comes_before_the_request_has_left_is_none() {
    let directory = tempfile::tempdir().unwrap();
    let act = |connection: &mut Connection| {
        let mut head = [0; 28];
        if std::io::Read::read_exact(&mut connection.stream, &mut head).is_ok() {
            let request = WireRequest::parse(&head, MessageStyle::Simple).unwrap();
            connection.reply(request.cookie, Ok(()), &[]);
            // The gateway has taken the reply when it closes; or it waits for its data to be taken, in vain.
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    let server = Hostile::start(&directory.path().join("u.sock"), |_, stream| Some(stream), act);
    let served = over(&server, ReplayRule::Reads);
    let mut client = Raw::open(&served.socket(), "vol");
    client.send_write(1, 0, &vec![1; 8 * MIB as usize]);
    assert_eq!(client.answer(), (1, EIO), "said to be done while most of it was still here");
    nothing_is_left(&served);
}

#[test]
fn errors_of_the_upstream_reach_the_client_with_their_meaning() {
    for (said, heard) in [
        (Errno::Io.code(), Errno::Io),
        (Errno::NoSpc.code(), Errno::NoSpc),
        (Errno::Perm.code(), Errno::Perm),
        (Errno::NoMem.code(), Errno::NoMem),
        (Errno::Overflow.code(), Errno::Io),
        (Errno::NotSup.code(), Errno::Io),
        (12_345, Errno::Inval),
    ] {
        let (server, _directory) = once(move |connection, request, _| {
            let mut reply = ReplyFrame::simple(request.cookie, Err(Errno::Io)).to_vec();
            reply[4..8].copy_from_slice(&said.to_be_bytes());
            connection.say(&reply);
        });
        let served = over(&server, ReplayRule::Reads);
        let mut client = Raw::open(&served.socket(), "vol");
        client.send_write(1, 0, &[1; 4096]);
        assert_eq!(client.answer(), (1, heard.code()), "{said}");
        assert_eq!(client.ask(NbdCommand::Trim, 0, 4096), 0);
        assert_eq!(
            served.pool().consumers[0].upstream.unwrap().reconnects,
            0,
            "nothing is wrong with the connection"
        );
    }
}

/// A server that answers the first request that `fails` picks with an error, and all others as it should.
fn failing_once(
    directory: &Path,
    errno: Errno,
    fails: impl Fn(&WireRequest) -> bool + Send + Sync + 'static,
) -> Hostile {
    let failing = AtomicBool::new(true);
    let act = move |connection: &mut Connection| {
        while let Some((request, payload)) = connection.request() {
            if fails(&request) && failing.swap(false, Ordering::SeqCst) {
                connection.reply(request.cookie, Err(errno), &[]);
            } else {
                connection.serve(&request, &payload);
            }
        }
    };
    Hostile::start(&directory.join("u.sock"), |_, stream| Some(stream), act)
}

/// Whether its kernel told of lost data by it, and takes that for clean now, the gateway cannot know.
#[test]
fn after_a_flush_or_fua_that_the_upstream_fails_no_flush_succeeds_whatever_the_error() {
    let flush: fn(&WireRequest) -> bool = |request| request.command == NbdCommand::Flush;
    let fua: fn(&WireRequest) -> bool = |request| request.flags.contains(CommandFlags::FUA);
    for (fails, errno) in [
        (flush, Errno::Io),
        (flush, Errno::Inval),
        (fua, Errno::Io),
        (fua, Errno::NoSpc),
        (fua, Errno::Inval),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let server = failing_once(directory.path(), errno, fails);
        let served = over(&server, ReplayRule::Reads);
        let (mut one, mut two) = (Raw::open(&served.socket(), "vol"), Raw::open(&served.socket(), "vol"));
        for client in [&mut one, &mut two] {
            client.send_write(1, 0, &[1; 4096]);
            assert_eq!(client.answer(), (1, 0));
        }
        let first = if fails(&fua_request()) {
            one.write_fua(0, &[2; 4096])
        } else {
            one.ask(NbdCommand::Flush, 0, 0)
        };
        assert_eq!(first, errno.code());
        for _ in 0..3 {
            assert_eq!(two.ask(NbdCommand::Flush, 0, 0), EIO, "its write may be among those that are lost");
            assert_eq!((one.ask(NbdCommand::Flush, 0, 0), one.write_fua(0, &[3; 4096])), (EIO, EIO));
        }
        assert_eq!(Raw::open(&served.socket(), "vol").ask(NbdCommand::Flush, 0, 0), EIO);
        one.send_write(1, 0, &[4; 4096]);
        assert_eq!(one.answer(), (1, 0), "reads and plain writes go on");
        assert!(served.pool().consumers[0].poisoned);
    }
}

#[test]
fn an_error_that_tells_of_nothing_but_its_own_request_poisons_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let server = failing_once(directory.path(), Errno::NoSpc, |request| request.command == NbdCommand::Write);
    let served = over(&server, ReplayRule::Reads);
    let mut client = Raw::open(&served.socket(), "vol");
    client.send_write(1, 0, &[1; 4096]);
    assert_eq!(client.answer(), (1, Errno::NoSpc.code()));
    assert_eq!((client.ask(NbdCommand::Flush, 0, 0), client.write_fua(0, &[2; 4096])), (0, 0));
    assert!(!served.pool().consumers[0].poisoned);
}

fn fua_request() -> WireRequest {
    WireRequest::new(NbdCommand::Write, CommandFlags::FUA, 0, 0, 0u32)
}

#[test]
fn a_request_that_breaks_every_connection_fails_in_the_end_and_others_do_not() {
    for shutdown in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let act = move |connection: &mut Connection| {
            while let Some((request, payload)) = connection.request() {
                match (request.offset, shutdown) {
                    (4096, true) => connection.reply(request.cookie, Err(Errno::Shutdown), &[]),
                    (4096, false) => return drop(connection.stream.shutdown(Shutdown::Both)),
                    _ => connection.serve(&request, &payload),
                }
            }
        };
        let server = Hostile::start(&directory.path().join("u.sock"), |_, stream| Some(stream), act);
        let served = over(&server, ReplayRule::Reads);
        let mut client = Raw::open(&served.socket(), "vol");
        client.send(NbdCommand::Read, 1, 4096, 4096);
        assert_eq!(client.answer(), (1, EIO));
        assert!(server.connections.load(Ordering::Relaxed) < 100);
        client.send(NbdCommand::Read, 2, 0, 4096);
        assert_eq!(client.data(4096), (2, expected(0, 4096)));
        nothing_is_left(&served);
    }
}

/// What answers after a loss may be anything.
#[test]
fn whatever_answers_in_place_of_a_lost_upstream_is_tried_again() {
    let directory = tempfile::tempdir().unwrap();
    let replies = |replies: &[(u32, u32, u32)]| {
        let mut bytes = b"NBDMAGICIHAVEOPT\x00\x03".to_vec();
        for (option, kind, length) in replies {
            bytes.extend_from_slice(&0x0003_e889_0455_65a9_u64.to_be_bytes());
            [option, kind, length]
                .into_iter()
                .for_each(|field| bytes.extend_from_slice(&field.to_be_bytes()));
        }
        bytes
    };
    let greetings: [Vec<u8>; 4] = [
        b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(),
        Vec::new(),
        // A greeting, then a reply of 4 GiB to the option.
        replies(&[(11, 3, u32::MAX)]),
        // A server that knows nothing but GO, and has no such export.
        replies(&[(11, 0x8000_0001, 0), (8, 0x8000_0001, 0), (7, 0x8000_0006, 0)]),
    ];
    let number_of_greetings = greetings.len();
    let greet = move |number: usize, mut stream: std::os::unix::net::UnixStream| {
        let Some(greeting) = number.checked_sub(1).and_then(|number| greetings.get(number)) else {
            return Some(stream);
        };
        let _ = std::io::Write::write_all(&mut stream, greeting);
        // What the gateway says is taken, so that closing does not reset the connection.
        let _ = stream.set_read_timeout(Some(Duration::from_millis(50)));
        let _ = std::io::Read::read(&mut stream, &mut [0; 4096]);
        None
    };
    let act = |connection: &mut Connection| {
        if connection.number == 0 {
            connection.request();
        } else {
            connection.behave();
        }
    };
    let server = Hostile::start(&directory.path().join("u.sock"), greet, act);
    let served = over(&server, ReplayRule::Reads);
    let mut client = Raw::open(&served.socket(), "vol");
    client.send(NbdCommand::Read, 1, 0, 65_536);
    assert!(client.data(65_536) == (1, expected(0, 65_536)));
    assert!(server.connections.load(Ordering::Relaxed) > number_of_greetings);
}

/// A drain ends though the upstream never will.
#[test]
fn a_drain_does_not_wait_for_an_upstream_beyond_its_deadline() {
    let (server, _directory) = once(|connection, _, _| {
        let _ = std::io::Read::read(&mut connection.stream, &mut [0]);
    });
    let served = Served::start(|_| vec![upstream_pool(&server.socket, &[("vol", "")])]);
    let mut client = Raw::open(&served.socket(), "vol");
    client.send(NbdCommand::Read, 1, 0, 4096);
    served.wait_until(|pool| pool.in_flight == 1);
    let began = Instant::now();
    let report = served.gateway.drain(Duration::from_millis(300)).unwrap();
    assert_eq!(report.cut_off, 1);
    assert!(began.elapsed() < Duration::from_secs(10));
    assert!(client.is_closed());
}

#[derive(Debug, Clone, Copy)]
enum Mood {
    Answer,
    Late,
    Fail,
    Hang,
    Close,
    Garbage,
    Twice,
    Half,
    Leave,
}

fn moods() -> impl Strategy<Value = Vec<Mood>> {
    let mood = prop_oneof![
        12 => Just(Mood::Answer),
        6 => Just(Mood::Late),
        1 => Just(Mood::Fail),
        1 => Just(Mood::Hang),
        1 => Just(Mood::Close),
        1 => Just(Mood::Garbage),
        1 => Just(Mood::Twice),
        1 => Just(Mood::Half),
        1 => Just(Mood::Leave),
    ];
    prop::collection::vec(mood, 1..40)
}

/// Answers in an order and a manner that the moods decide.
fn moody(connection: &mut Connection, moods: &[Mood]) {
    let mut late: Vec<(WireRequest, Vec<u8>)> = Vec::new();
    let mut moods = moods.iter().cycle().skip(connection.number * 7);
    while let Ok(next) = connection.request_within(Duration::from_millis(20)) {
        let Some((request, payload)) = next else {
            // What is late is answered when nothing more comes, the last first.
            if let Some((request, payload)) = late.pop() {
                connection.serve(&request, &payload);
            }
            continue;
        };
        match moods.next().unwrap() {
            Mood::Answer => connection.serve(&request, &payload),
            Mood::Late => late.push((request, payload)),
            Mood::Fail => connection.reply(request.cookie, Err(Errno::NoMem), &[]),
            Mood::Leave => connection.reply(request.cookie, Err(Errno::Shutdown), &[]),
            // Silent for longer than the gateway waits.
            Mood::Hang => return std::thread::sleep(Duration::from_millis(600)),
            Mood::Close => return,
            Mood::Garbage => return connection.say(&[0xa5; 64]),
            Mood::Twice => {
                connection.serve(&request, &payload);
                return connection.serve(&request, &payload);
            }
            Mood::Half => {
                let data = connection.carry_out(&request, &payload);
                return connection.reply(request.cookie, Ok(()), &data[..data.len() / 2]);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, max_shrink_iters: 0, ..ProptestConfig::default() })]

    /// Every request is answered exactly once, a read that succeeds brings the right data, and a write that
    /// succeeds is there.
    #[test]
    fn a_moody_upstream_loses_no_request_and_corrupts_none(moods in moods()) {
        let directory = tempfile::tempdir().unwrap();
        let act = move |connection: &mut Connection| moody(connection, &moods);
        let server = Hostile::start(&directory.path().join("u.sock"), |_, stream| Some(stream), act);
        let served = over(&server, ReplayRule::Reads);
        let mut client = Raw::open(&served.socket(), "vol");
        const BLOCK: u64 = 65_536;
        // What each block must hold; nothing certain after a write of it has failed, which may still be
        // carried out.
        let (mut written, mut uncertain) = ([None; 32], BTreeSet::new());
        for round in 0..4u64 {
            // Reads of the first half, which nobody writes; writes, one per block, to the second.
            let mut open: BTreeSet<u64> = (0..32).collect();
            for cookie in 0..32 {
                let at = cookie / 2 * BLOCK;
                if cookie % 2 == 0 {
                    client.send(NbdCommand::Read, cookie, at, BLOCK as u32);
                } else {
                    client.send_write(cookie, 4 * MIB + at, &[(round * 32 + cookie) as u8; BLOCK as usize]);
                }
            }
            while !open.is_empty() {
                let (cookie, error) = client.answer();
                prop_assert!(open.remove(&cookie), "{} was answered twice", cookie);
                if cookie % 2 == 0 && error == 0 {
                    let mut data = vec![0; BLOCK as usize];
                    std::io::Read::read_exact(&mut client.0, &mut data).unwrap();
                    prop_assert!(data == expected(cookie / 2 * BLOCK, BLOCK as u32));
                }
                if cookie % 2 == 1 {
                    written[cookie as usize] = Some((round * 32 + cookie) as u8);
                    if error != 0 {
                        uncertain.insert(cookie as usize);
                    }
                }
            }
        }
        nothing_is_left(&served);
        drop(served);
        let data = server.data.lock().unwrap();
        for (cookie, value) in written.iter().enumerate() {
            let at = 4 * MIB as usize + cookie / 2 * BLOCK as usize;
            let holds = |value: u8| data[at..at + BLOCK as usize].iter().all(|byte| *byte == value);
            prop_assert!(uncertain.contains(&cookie) || value.is_none_or(holds), "block {}", cookie / 2);
        }
    }
}
