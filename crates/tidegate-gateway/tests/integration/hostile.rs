//! Clients and storage that misbehave: what they get, and that nobody else notices.

use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command as Program;
use std::time::{Duration, Instant};

use crate::common;
use crate::common::{MIB, Served, emulated_pool, file_pool, name, run, run_any};
use tidegate_gateway::{
    DataStore, ExportConfig, ExportStore, Gateway, GatewayConfig, IoErrors, ListenEndpoint, PoolConfig,
    RefusalReason, StartError,
};
use tidegate_nbd::Errno;
use tidegate_nbd::transmission::NbdCommand;
use tidegate_testing::nbd::{Raw, closed, connect, request};
use tidegate_testing::{Lack, LoopDevice, lacks, until_true};
use tidegate_units::Bytes;

/// Well-behaved, and checks what it reads.
fn good_client_gets_through(served: &Served, export: &str) {
    let said = common::qemu_io(&served.uri(export), &["write -P 3 0 64k", "flush", "read -P 3 0 64k"]);
    assert!(!said.contains("verification failed"), "{said}");
}

/// A little file gateway with two exports.
fn two_files() -> Served {
    Served::start(|directory| vec![file_pool(directory, &["a", "b"], 64 * MIB)])
}

#[test]
fn malformed_handshakes_end_the_connection_and_nothing_else() {
    let served = two_files();
    let flags = 3u32.to_be_bytes();
    let option = |magic: &[u8], number: u32, length: u32| {
        [&flags[..], magic, &number.to_be_bytes(), &length.to_be_bytes()].concat()
    };
    let handshakes = [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec(),
        vec![0xff; 1000],
        u32::MAX.to_be_bytes().to_vec(),
        option(b"IHAVEOPX", 7, 0),
        // An option of 4 GiB.
        option(b"IHAVEOPT", 7, u32::MAX),
        // EXPORT_NAME has no error reply.
        [&option(b"IHAVEOPT", 1, 4)[..], b"nope"].concat(),
        [&option(b"IHAVEOPT", 1, 2)[..], &[0xc3, 0x28]].concat(),
    ];
    let count = handshakes.len() as u64;
    for handshake in handshakes {
        let mut stream = connect(&served.socket());
        stream.write_all(&handshake).unwrap();
        assert!(closed(&mut stream), "{handshake:?}");
    }
    good_client_gets_through(&served, "a");
    served.wait_for_handshakes(count);
}

#[test]
fn a_name_that_is_not_there_is_refused_and_another_may_be_asked_for() {
    let served = two_files();
    assert!(Raw::try_open(&served.socket(), "c").is_none());
    assert!(!run_any("nbdinfo", &["--size", &served.uri("c")]).status.success());
    assert_eq!(run("nbdinfo", &["--size", &served.uri("b")]).trim(), (64 * MIB).to_string());
}

#[test]
fn idlers_in_the_handshake_keep_nobody_out() {
    let mut served = two_files();
    served.config.handshake.waiting = 4;
    served.config.handshake.deadline = Duration::from_millis(500);
    let (directory, config) = (served.directory, served.config);
    drop(served.gateway);
    let served = Served::with(directory, config);
    let mut idlers: Vec<_> = (0..12).map(|_| connect(&served.socket())).collect();
    // Half of the client's flags; those that are displaced already cannot even send that.
    idlers.iter_mut().for_each(|idler| drop(idler.write_all(&[0, 0])));
    let began = Instant::now();
    good_client_gets_through(&served, "a");
    assert!(served.gateway.snapshot().unwrap().handshakes <= 4);
    // Eight were displaced; the deadline ends the other four.
    assert!(idlers.iter_mut().all(closed));
    assert!(began.elapsed() < Duration::from_secs(10));
    served.wait_for_handshakes(12);
}

/// Idlers that have asked for something, and do not go on.
#[test]
fn handshakes_that_do_not_go_on_keep_nobody_out() {
    let mut served = two_files();
    served.config.handshake.concurrent = 4;
    served.config.handshake.deadline = Duration::from_secs(3);
    let (directory, config) = (served.directory, served.config);
    drop(served.gateway);
    let served = Served::with(directory, config);
    let half_an_option = [&3u32.to_be_bytes()[..], b"IHAVEOPT", &7u32.to_be_bytes(), &100u32.to_be_bytes()];
    let mut idlers: Vec<_> = (0..12).map(|_| connect(&served.socket())).collect();
    idlers.iter_mut().for_each(|idler| drop(idler.write_all(&half_an_option.concat())));
    good_client_gets_through(&served, "a");
    assert!(idlers.iter_mut().all(closed));
    served.wait_for_handshakes(12);
    let refused = served.gateway.snapshot().unwrap().refused;
    let count = |wanted| refused.iter().find(|(refusal, _)| *refusal == wanted).unwrap().1;
    assert!(count(RefusalReason::Displaced) >= 8 && count(RefusalReason::TooSlow) >= 1, "{refused:?}");
}

#[test]
fn a_session_that_was_idle_for_long_makes_room_for_a_newcomer() {
    let served = Served::start(|directory| {
        let mut pool = file_pool(directory, &["a"], MIB);
        pool.limits.sessions = 2;
        pool.limits.source_sessions = Some(2);
        pool.limits.idle_timeout = Some(Duration::from_millis(300));
        vec![pool]
    });
    let (mut idle, mut busy) = (Raw::open(&served.socket(), "a"), Raw::open(&served.socket(), "a"));
    assert_eq!(idle.ask(NbdCommand::Flush, 0, 0), 0);
    let mut newcomer = None;
    let began = Instant::now();
    while newcomer.is_none() && began.elapsed() < Duration::from_secs(60) {
        assert_eq!(busy.ask(NbdCommand::Flush, 0, 0), 0);
        newcomer = Raw::try_open(&served.socket(), "a");
    }
    assert_eq!(newcomer.unwrap().ask(NbdCommand::Flush, 0, 0), 0);
    assert!(idle.is_closed());
    assert_eq!(busy.ask(NbdCommand::Flush, 0, 0), 0);
}

#[test]
fn a_session_that_is_idle_stays_while_its_place_is_not_needed_or_may_not_be_had() {
    let served = Served::start(|directory| {
        let mut pool = file_pool(directory, &["a"], MIB);
        pool.limits.sessions = 1;
        vec![pool]
    });
    let mut idle = Raw::open(&served.socket(), "a");
    assert_eq!(idle.ask(NbdCommand::Flush, 0, 0), 0);
    for _ in 0..5 {
        assert!(Raw::try_open(&served.socket(), "a").is_none());
    }
    assert_eq!(idle.ask(NbdCommand::Flush, 0, 0), 0);
}

#[test]
fn requests_out_of_range_are_answered_and_the_session_goes_on() {
    let served = two_files();
    let mut client = Raw::open(&served.socket(), "a");
    let size = 64 * MIB;
    let mib = MIB as u32;
    for (what, command, offset, length, errno) in [
        ("read beyond the end", NbdCommand::Read, size, 512, Errno::Inval),
        ("read across the end", NbdCommand::Read, size - 512, 1024, Errno::Inval),
        ("read that overflows", NbdCommand::Read, u64::MAX - 100, 512, Errno::Inval),
        ("read of nothing", NbdCommand::Read, 0, 0, Errno::Inval),
        ("read of 33 MiB", NbdCommand::Read, 0, 33 * mib, Errno::Inval),
        ("trim beyond the end", NbdCommand::Trim, size, 512, Errno::Inval),
        ("zeroes beyond the end", NbdCommand::WriteZeroes, size, 512, Errno::NoSpc),
        ("unknown command", NbdCommand::Other(77), 0, 0, Errno::Inval),
        ("block status without contexts", NbdCommand::BlockStatus, 0, 4096, Errno::Inval),
    ] {
        assert_eq!(client.ask(command, offset, length), errno.code(), "{what}");
    }
    client.send_write(5, size, &[1; 4096]);
    assert_eq!(client.answer(), (5, Errno::NoSpc.code()));
    client.send_write(6, size - 4096, &[1; 4096]);
    assert_eq!(client.answer(), (6, 0));
    client.send(NbdCommand::Read, 7, size - 4096, 4096);
    assert_eq!(client.data(4096), (7, vec![1; 4096]));
    let errors = served.pool().consumers[0].errors;
    assert_eq!((errors.mistakes(), errors.total()), (10, 0));
}

#[test]
fn a_stream_out_of_step_is_cut() {
    let served = two_files();
    let mut other = Raw::open(&served.socket(), "a");
    let mut oversized = Raw::open(&served.socket(), "a");
    oversized.send(NbdCommand::Write, 1, 0, u32::MAX);
    let mut broken = Raw::open(&served.socket(), "a");
    broken.0.write_all(&[0xee; 28]).unwrap();
    assert!(broken.is_closed() && oversized.is_closed());
    assert_eq!(other.ask(NbdCommand::Flush, 0, 0), 0);
    served.wait_until(|pool| pool.sessions == 1);
}

#[test]
fn a_client_that_hangs_up_is_forgotten_and_its_queue_cancelled() {
    // Four requests per second: what is queued would take half a minute.
    let served = Served::start(|_| {
        let mut pool = emulated_pool(&["slow"], 64 * MIB, 4.0);
        pool.depth = 1;
        vec![pool]
    });
    let mut client = Raw::open(&served.socket(), "slow");
    for cookie in 0..100 {
        client.send(NbdCommand::Read, cookie, 0, 4096);
    }
    served.wait_until(|pool| pool.consumers[0].queued >= 90);
    drop(client);
    // What is at the device is waited for, the rest is gone.
    let pool = served.wait_until(|pool| pool.sessions == 0 && pool.consumers[0].queued == 0);
    assert_eq!((pool.bytes_in_use, pool.in_flight), (Bytes::ZERO, 0));
}

#[test]
fn a_half_closed_client_gets_its_answers_and_then_the_end() {
    let served = Served::start(|_| {
        let mut pool = emulated_pool(&["a"], 64 * MIB, 500.0);
        pool.depth = 1;
        // Most requests are still in the socket when the end comes.
        pool.limits.session_requests = 4;
        vec![pool]
    });
    let mut client = Raw::open(&served.socket(), "a");
    for cookie in 0..100 {
        client.send(NbdCommand::Read, cookie, 0, 4096);
    }
    // The beginning of a payload that never becomes complete.
    client.send(NbdCommand::Write, 100, 0, MIB as u32);
    client.0.write_all(&[7; 4096]).unwrap();
    client.0.shutdown(Shutdown::Write).unwrap();
    let mut answered: Vec<u64> = (0..100).map(|_| client.data(4096).0).collect();
    answered.sort_unstable();
    assert_eq!(answered, (0..100).collect::<Vec<_>>());
    assert!(client.is_closed());
    let pool = served.wait_until(|pool| pool.sessions == 0);
    assert_eq!((pool.bytes_in_use, pool.in_flight), (Bytes::ZERO, 0));
}

#[test]
fn a_client_that_vanishes_leaves_nothing_behind_and_disturbs_nobody() {
    let served = Served::start(|_| vec![emulated_pool(&["a", "b"], 64 * MIB, 2_000.0)]);
    for round in 0..20 {
        let mut client = Raw::open(&served.socket(), "a");
        for cookie in 0..50 {
            client.send(NbdCommand::Read, cookie, cookie * 4096, 65_536);
        }
        // In the middle of a payload.
        client.send(NbdCommand::Write, 50, 0, MIB as u32);
        client.0.write_all(&vec![0; round * 4000]).unwrap();
        drop(client);
    }
    good_client_gets_through(&served, "b");
    let pool = served.wait_until(|pool| pool.sessions == 0);
    assert_eq!((pool.bytes_in_use, pool.in_flight), (Bytes::ZERO, 0));
    assert_eq!(pool.consumers[1].errors, IoErrors::default());
}

#[test]
fn a_client_that_never_takes_its_replies_is_bounded_and_then_cut() {
    let served = Served::start(|directory| {
        let mut pool = file_pool(directory, &["a", "b"], 64 * MIB);
        pool.limits.pool_bytes = Bytes::from_mib(64);
        pool.limits.session_bytes = Bytes::from_mib(32);
        pool.limits.reply_deadline = Duration::from_millis(700);
        vec![pool]
    });
    let mut hoarders: Vec<Raw> = (0..3).map(|_| Raw::open(&served.socket(), "a")).collect();
    for hoarder in &mut hoarders {
        // A gibibyte of replies each.
        let requests: Vec<u8> =
            (0..1024).flat_map(|cookie| request(NbdCommand::Read, cookie, 0, MIB as u32)).collect();
        hoarder.0.write_all(&requests).unwrap();
    }
    // The export's own 8 MiB, and half of the 48 MiB that are shared.
    served.wait_until(|pool| pool.bytes_in_use >= Bytes::from_mib(24));
    good_client_gets_through(&served, "b");
    let pool = served.wait_until(|pool| pool.sessions == 0);
    assert!(pool.bytes_in_use_peak <= Bytes::from_mib(64), "{}", pool.bytes_in_use_peak);
    assert_eq!(pool.bytes_in_use, Bytes::ZERO);
    assert!(hoarders.iter_mut().all(Raw::is_closed));
}

#[test]
fn payloads_that_never_come_occupy_little_and_not_for_ever() {
    let served = Served::start(|directory| {
        let mut pool = file_pool(directory, &["a", "b"], 64 * MIB);
        pool.limits.pool_bytes = Bytes::from_mib(64);
        pool.limits.reply_deadline = Duration::from_millis(1500);
        vec![pool]
    });
    let mut hoarders: Vec<Raw> = (0..8).map(|_| Raw::open(&served.socket(), "a")).collect();
    for hoarder in &mut hoarders {
        hoarder.send(NbdCommand::Write, 1, 0, 32 * MIB as u32);
        hoarder.0.write_all(&[0; 100_000]).unwrap();
    }
    // Idle between two requests, which is nobody's business.
    let mut idle = Raw::open(&served.socket(), "a");
    let pool = served.wait_until(|pool| pool.bytes_in_use >= Bytes::from_mib(8));
    assert_eq!(pool.bytes_in_use, Bytes::from_mib(8), "one MiB each");
    // Another client of the same export has room for a whole request.
    let mut other = Raw::open(&served.socket(), "a");
    other.send(NbdCommand::Read, 7, 0, 16 * MIB as u32);
    assert_eq!(other.data(16 * MIB as usize).0, 7);
    assert!(hoarders.iter_mut().all(Raw::is_closed));
    assert_eq!(idle.ask(NbdCommand::Flush, 0, 0), 0);
    served.wait_until(|pool| pool.bytes_in_use == Bytes::ZERO);
}

/// The reader of a session that waits is at rest, and nothing is sent to it: it would not notice that its
/// client left.
#[test]
fn a_client_that_leaves_while_it_waits_returns_its_memory() {
    // One request in ten seconds.
    let served = Served::start(|_| {
        let mut pool = emulated_pool(&["slow", "b"], 64 * MIB, 0.1);
        pool.depth = 1;
        pool.limits.session_requests = 4;
        vec![pool]
    });
    let mut client = Raw::open(&served.socket(), "slow");
    for cookie in 0..8 {
        client.send(NbdCommand::Read, cookie, 0, MIB as u32);
    }
    served.wait_until(|pool| pool.bytes_in_use == Bytes::from_mib(4));
    drop(client);
    // The request at the device keeps its memory.
    served.wait_until(|pool| pool.bytes_in_use <= Bytes::from_mib(1));
}

#[test]
fn a_request_that_waits_in_vain_for_memory_ends_and_its_session_goes_on() {
    let served = Served::start(|directory| {
        let mut pool = file_pool(directory, &["a", "b"], 64 * MIB);
        pool.limits.pool_bytes = Bytes::from_mib(64);
        vec![pool]
    });
    let mut hoarders: Vec<Raw> = (0..4).map(|_| Raw::open(&served.socket(), "a")).collect();
    for hoarder in &mut hoarders {
        hoarder.send(NbdCommand::Read, 1, 0, 16 * MIB as u32);
    }
    served.wait_until(|pool| pool.bytes_in_use >= Bytes::from_mib(16));
    let mut waiting = Raw::open(&served.socket(), "a");
    waiting.send_write(7, 0, &[1; 16 * MIB as usize]);
    assert_eq!(waiting.answer(), (7, Errno::NoMem.code()));
    // What is smaller finds room.
    waiting.send_write(8, 0, &[1; 4096]);
    assert_eq!(waiting.answer(), (8, 0));
    good_client_gets_through(&served, "b");
}

#[test]
fn requests_beyond_the_bound_wait_and_none_is_lost() {
    let served = Served::start(|directory| {
        let mut pool = file_pool(directory, &["a"], 64 * MIB);
        pool.limits.session_requests = 3;
        vec![pool]
    });
    let mut client = Raw::open(&served.socket(), "a");
    for cookie in 0..500 {
        let command = if cookie % 3 == 0 { NbdCommand::Flush } else { NbdCommand::Trim };
        client.send(
            command,
            cookie,
            if cookie % 3 == 0 { 0 } else { 4096 },
            if cookie % 3 == 0 { 0 } else { 4096 },
        );
    }
    let mut cookies: Vec<u64> = (0..500)
        .map(|_| client.answer())
        .map(|(cookie, error)| {
            assert_eq!(error, 0);
            cookie
        })
        .collect();
    cookies.sort_unstable();
    assert_eq!(cookies, (0..500).collect::<Vec<u64>>());
}

#[test]
fn a_session_too_many_is_refused_until_another_ends() {
    let served = Served::start(|directory| {
        let mut pool = file_pool(directory, &["a"], MIB);
        pool.limits.sessions = 1;
        vec![pool]
    });
    let first = Raw::open(&served.socket(), "a");
    assert!(Raw::try_open(&served.socket(), "a").is_none());
    // Asking costs no place.
    assert!(!run_any("nbdinfo", &["--json", &served.uri("a")]).status.success());
    run("nbdinfo", &["--list", &served.uri("")]);
    drop(first);
    served.wait_until(|pool| pool.sessions == 0);
    Raw::open(&served.socket(), "a");
}

#[test]
fn a_file_cut_under_the_gateway_is_an_error_to_its_client_alone() {
    let served = two_files();
    let mut victim = Raw::open(&served.socket(), "a");
    std::fs::OpenOptions::new().write(true).open(served.path("a")).unwrap().set_len(MIB + 100).unwrap();
    assert_eq!(victim.ask(NbdCommand::Read, 2 * MIB, 4096), Errno::Io.code());
    // Across the new end: what is there does not pass for the whole.
    assert_eq!(victim.ask(NbdCommand::Read, MIB, 4096), Errno::Io.code());
    victim.send(NbdCommand::Read, 1, 0, 4096);
    assert_eq!(victim.data(4096), (1, vec![0; 4096]));
    good_client_gets_through(&served, "b");
}

/// A file system of so many KiB, unmounted when dropped.
struct Tmpfs<'a>(&'a Path);

impl<'a> Tmpfs<'a> {
    /// Says that the test is skipped, and returns `None`, if it may not mount.
    fn mount(path: &'a Path, size: &str) -> Option<Self> {
        std::fs::create_dir(path).unwrap();
        let options = format!("size={size}");
        let mounted = Program::new("mount").args(["-t", "tmpfs", "-o", &options, "none"]).arg(path).output();
        let mounted = mounted.unwrap();
        if !mounted.status.success() {
            return lacks(Lack::Mount, String::from_utf8_lossy(&mounted.stderr).trim_end());
        }
        Some(Self(path))
    }
}

impl Drop for Tmpfs<'_> {
    fn drop(&mut self) {
        // Busy for a moment: a process that another test starts has this one's descriptors until it executes.
        let unmount = || Program::new("umount").arg(self.0).output();
        until_true("the end of a mount", || unmount().is_ok_and(|output| output.status.success()));
    }
}

#[test]
fn a_full_file_system_is_enospc_to_the_writer_and_reads_go_on() {
    let directory = tempfile::tempdir().unwrap();
    let small = directory.path().join("small");
    // Only root can make a file system that is too small; `make test` runs as root in CI.
    let Some(_mount) = Tmpfs::mount(&small, "1M") else { return };
    let pool = file_pool(&small, &["a"], 16 * MIB);
    let config =
        GatewayConfig::new(vec![ListenEndpoint::Unix(directory.path().join("nbd.sock"))], vec![pool]);
    let served = Served::with(directory, config);
    let mut client = Raw::open(&served.socket(), "a");
    let answers: Vec<u32> = (0..8)
        .map(|i| {
            client.send_write(i, i * MIB / 2, &[1; MIB as usize / 2]);
            client.answer().1
        })
        .collect();
    assert_eq!(answers[0], 0);
    assert!(answers.contains(&Errno::NoSpc.code()), "{answers:?}");
    client.send(NbdCommand::Read, 1, 0, 4096);
    assert_eq!(client.data(4096), (1, vec![1; 4096]));
    // tmpfs knows no FALLOC_FL_ZERO_RANGE: zeros are written instead.
    assert_eq!(client.ask(NbdCommand::WriteZeroes, 0, MIB as u32 / 2), 0);
    client.send(NbdCommand::Read, 2, 0, 4096);
    assert_eq!(client.data(4096), (2, vec![0; 4096]));
    drop(client);
    let Served { gateway, directory: _directory, .. } = served;
    drop(gateway);
    drop(_mount);
}

/// The kernel tells of a failed write-back once, and forgets what it could not write.
#[test]
fn after_a_failed_flush_no_later_one_says_that_all_is_well() {
    let directory = tempfile::tempdir().unwrap();
    let small = directory.path().join("small");
    let Some(_mount) = Tmpfs::mount(&small, "1M") else { return };
    let Some(device) = LoopDevice::over(&common::file(&small, "disk", 16 * MIB)) else { return };
    let mut pool = file_pool(directory.path(), &["other"], MIB);
    pool.exports.push(ExportConfig::new(name("disk"), ExportStore::Path(device.path().to_owned())));
    let config =
        GatewayConfig::new(vec![ListenEndpoint::Unix(directory.path().join("nbd.sock"))], vec![pool]);
    let served = Served::with(directory, config);
    let (mut one, mut two) = (Raw::open(&served.socket(), "disk"), Raw::open(&served.socket(), "disk"));
    // Into the page cache, which has room; what is below has not.
    for (client, offset) in [(&mut one, 0), (&mut two, 4 * MIB)] {
        client.send_write(1, offset, &[1; 2 * MIB as usize]);
        assert_eq!(client.answer(), (1, 0));
    }
    assert_ne!(one.ask(NbdCommand::Flush, 0, 0), 0);
    assert_ne!(two.ask(NbdCommand::Flush, 0, 0), 0, "its write is lost as well");
    assert_ne!(one.ask(NbdCommand::Flush, 0, 0), 0, "and does not come back");
    assert_eq!(Raw::open(&served.socket(), "other").ask(NbdCommand::Flush, 0, 0), 0);
    drop((one, two));
    let Served { gateway, directory: _directory, .. } = served;
    drop(gateway);
    drop(device);
    drop(_mount);
}

#[test]
fn an_emulated_device_without_room_is_enospc_to_the_writer() {
    let served = Served::start(|_| {
        let mut pool = emulated_pool(&["a"], 64 * MIB, 20_000.0);
        if let tidegate_gateway::BackendConfig::Emulated { data, .. } = &mut pool.backend {
            *data = DataStore::Memory { limit: Bytes::from_mib(1) };
        }
        vec![pool]
    });
    let mut client = Raw::open(&served.socket(), "a");
    client.send_write(1, 0, &[1; MIB as usize]);
    assert_eq!(client.answer(), (1, 0));
    client.send_write(2, MIB, &[1; 4096]);
    assert_eq!(client.answer(), (2, Errno::NoSpc.code()));
    assert_eq!(client.ask(NbdCommand::Trim, 0, 4096), 0);
    client.send_write(3, MIB, &[1; 4096]);
    assert_eq!(client.answer(), (3, 0));
}

#[test]
fn what_cannot_be_served_is_said_at_the_start() {
    let directory = tempfile::tempdir().unwrap();
    let endpoint = ListenEndpoint::Unix(directory.path().join("nbd.sock"));
    let start = |pool: PoolConfig| Gateway::start(GatewayConfig::new(vec![endpoint.clone()], vec![pool]));
    let with = |store: &str| {
        let mut pool = file_pool(directory.path(), &[], 0);
        pool.exports.push(ExportConfig::new(name("x"), ExportStore::Path(store.into())));
        start(pool)
    };
    assert!(matches!(with("/nonexistent"), Err(StartError::Open { .. })));
    assert!(matches!(with("/dev/null"), Err(StartError::Open { .. })));
    assert!(matches!(with("/"), Err(StartError::Open { .. })));
    assert!(matches!(start(emulated_pool(&["x", "y"], 3 << 30, 10.0)), Err(StartError::Space { .. })));
    assert!(matches!(start(emulated_pool(&["x", "x"], MIB, 10.0)), Err(StartError::Config(_))));
    // Nothing of the failed starts is left.
    let gateway = start(emulated_pool(&["x"], MIB, 10.0)).unwrap();
    assert!(matches!(start(emulated_pool(&["x"], MIB, 10.0)), Err(StartError::Listen { .. })));
    drop(gateway);
    assert!(!directory.path().join("nbd.sock").exists());
    // A socket that a crash has left behind is replaced; a file that is none is not.
    drop(std::os::unix::net::UnixListener::bind(directory.path().join("nbd.sock")).unwrap());
    drop(start(emulated_pool(&["x"], MIB, 10.0)).unwrap());
    std::fs::write(directory.path().join("nbd.sock"), "precious").unwrap();
    assert!(matches!(start(emulated_pool(&["x"], MIB, 10.0)), Err(StartError::Listen { .. })));
    assert_eq!(std::fs::read(directory.path().join("nbd.sock")).unwrap(), b"precious");
}

#[test]
fn changes_of_a_client_that_ended_came_after_those_that_it_sent_again_elsewhere() {
    let mut pool = emulated_pool(&["a"], 64 * MIB, 20.0);
    pool.depth = 1;
    let mut config = GatewayConfig::new(Vec::new(), vec![pool]);
    config.listen.push(ListenEndpoint::Tcp("127.0.0.1:0".parse().unwrap()).into());
    let served = Served::with(tempfile::tempdir().unwrap(), config);
    let ListenEndpoint::Tcp(address) = served.gateway.addresses()[0] else { panic!("no TCP address") };
    // The type has no part in what is read and written.
    let stream = UnixStream::from(OwnedFd::from(TcpStream::connect(address).unwrap()));
    let mut client = Raw::over(stream, "a").unwrap();
    for cookie in 0..50 {
        client.send_write(cookie, cookie * 4096, &[9; 4096]);
    }
    served.wait_until(|pool| pool.consumers[0].queued >= 40);
    drop(client);
    // Over TCP the kernel does not tell this end from a half-closed connection.
    let pool = served.wait_until(|pool| pool.sessions == 0);
    assert_eq!(pool.consumers[0].queued, 0, "what waited is not carried out");
    assert!(pool.consumers[0].writes.count < 10, "{}", pool.consumers[0].writes.count);
}
