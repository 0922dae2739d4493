//! An upstream that is killed and started again under load: what goes on, what fails, and what never lies.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::common;
use crate::common::{MIB, Served, file, file_pool};
use crate::upstream::servers;
use crate::upstream::servers::{Server, upstream_pool};
use tidegate_gateway::{BackendConfig, PoolConfig, ReplayRule, UpstreamConfig, UpstreamSnapshot};
use tidegate_nbd::Errno;
use tidegate_nbd::transmission::NbdCommand;
use tidegate_testing::nbd::Raw;
use tidegate_testing::until_true;

const EIO: u32 = Errno::Io.code();

fn config(pool: &mut PoolConfig) -> &mut UpstreamConfig {
    let BackendConfig::Nbd(config) = &mut pool.backend else { panic!("no upstream pool") };
    config
}

fn over(socket: &Path, change: impl FnOnce(&mut UpstreamConfig)) -> Served {
    Served::start(|_| {
        let mut pool = upstream_pool(socket, &[("vol", "")]);
        config(&mut pool).reconnect = Duration::from_secs(20);
        change(config(&mut pool));
        vec![pool]
    })
}

fn upstream(served: &Served) -> UpstreamSnapshot {
    served.pool().consumers[0].upstream.unwrap()
}

/// A server on a file, slow enough that requests are there when it is killed.
fn slow_nbdkit(socket: &Path, image: &Path, delays: &[&str]) -> Server {
    let image = image.to_str().unwrap();
    Server::nbdkit(socket, &[&["--filter=delay", "file", image][..], delays].concat())
}

#[test]
fn reads_in_flight_are_read_again_and_writes_in_flight_fail() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("u.sock");
    let image = file(directory.path(), "image", 16 * MIB);
    std::fs::write(&image, vec![7; 16 * MIB as usize]).unwrap();
    let log = directory.path().join("log");
    // A thread for each request: the log has a request when a thread takes it.
    let options = ["--threads=32", "--filter=log", "--filter=delay", "file", image.to_str().unwrap()];
    let logfile = format!("logfile={}", log.display());
    let server = Server::nbdkit(&socket, &[&options[..], &["rdelay=2", "wdelay=2", &logfile]].concat());
    let served = over(&socket, |_| {});
    let (mut reader, mut writer) = (Raw::open(&served.socket(), "vol"), Raw::open(&served.socket(), "vol"));
    for cookie in 0..20 {
        reader.send(NbdCommand::Read, cookie, cookie * 65_536, 65_536);
    }
    for cookie in 0..5 {
        writer.send_write(cookie, 8 * MIB + cookie * 4096, &[1; 4096]);
    }
    until_true("25 requests at the server", || {
        let log = std::fs::read_to_string(&log).unwrap();
        log.lines().filter(|line| line.contains(" offset=")).count() == 25
    });
    server.kill();
    let mut failed: Vec<_> = (0..5).map(|_| writer.answer()).collect();
    failed.sort_unstable();
    assert_eq!(failed, (0..5).map(|cookie| (cookie, EIO)).collect::<Vec<_>>());
    let _server = slow_nbdkit(&socket, &image, &[]);
    let mut read: Vec<u64> = (0..20)
        .map(|_| {
            let (cookie, data) = reader.data(65_536);
            assert!(data.iter().all(|byte| *byte == 7));
            cookie
        })
        .collect();
    read.sort_unstable();
    assert_eq!(read, (0..20).collect::<Vec<_>>());
    let upstream = upstream(&served);
    assert_eq!(upstream.failed, 5);
    // More than once where the next connection turned out to be dead, too.
    assert!(upstream.replayed >= 20 && upstream.reconnects >= 1, "{upstream:?}");
}

#[test]
fn with_replay_of_everything_no_request_fails() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("u.sock");
    let image = file(directory.path(), "image", 16 * MIB);
    let server = slow_nbdkit(&socket, &image, &["wdelay=2"]);
    let served = over(&socket, |config| config.replay = ReplayRule::All);
    let mut client = Raw::open(&served.socket(), "vol");
    for cookie in 0..8 {
        client.send_write(cookie, cookie * MIB, &vec![cookie as u8 + 1; MIB as usize]);
    }
    served.wait_until(|pool| pool.in_flight == 8);
    server.kill();
    let _server = slow_nbdkit(&socket, &image, &[]);
    let mut answers: Vec<_> = (0..8).map(|_| client.answer()).collect();
    answers.sort_unstable();
    assert_eq!(answers, (0..8).map(|cookie| (cookie, 0)).collect::<Vec<_>>());
    for cookie in 0..8 {
        client.send(NbdCommand::Read, cookie, cookie * MIB, MIB as u32);
        assert!(client.data(MIB as usize).1.iter().all(|byte| *byte == cookie as u8 + 1));
    }
}

#[test]
fn a_flush_after_a_loss_fails_once_for_every_session_and_never_claims_what_is_lost() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("u.sock");
    let image = file(directory.path(), "image", 16 * MIB);
    let server = slow_nbdkit(&socket, &image, &[]);
    let served = over(&socket, |_| {});
    let (mut one, mut two) = (Raw::open(&served.socket(), "vol"), Raw::open(&served.socket(), "vol"));
    one.send_write(1, 0, &[1; 4096]);
    assert_eq!(one.answer(), (1, 0));
    server.kill();
    let server = slow_nbdkit(&socket, &image, &[]);
    assert_eq!(two.ask(NbdCommand::Flush, 0, 0), EIO, "nobody knows whose write it was");
    assert_eq!(one.ask(NbdCommand::Flush, 0, 0), EIO);
    assert_eq!((one.ask(NbdCommand::Flush, 0, 0), two.ask(NbdCommand::Flush, 0, 0)), (0, 0));
    assert_eq!(upstream(&served).unflushed_losses, 1);
    // What was flushed in time is not lost, and what is written after a loss is none of its.
    one.send_write(2, 0, &[2; 4096]);
    assert_eq!(one.answer(), (2, 0));
    assert_eq!(one.ask(NbdCommand::Flush, 0, 0), 0);
    server.kill();
    let _server = slow_nbdkit(&socket, &image, &[]);
    assert_eq!((one.ask(NbdCommand::Flush, 0, 0), two.ask(NbdCommand::Flush, 0, 0)), (0, 0));
    assert_eq!(upstream(&served).unflushed_losses, 1);
}

#[test]
fn an_upstream_without_a_volatile_cache_loses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("u.sock");
    let image = file(directory.path(), "image", MIB);
    let script = |image: &Path| {
        let image = image.display();
        [
            "eval".to_owned(),
            "get_size=echo 1048576".to_owned(),
            format!("pread=dd if={image} bs=1 skip=$4 count=$3 status=none"),
            "can_write=exit 0".to_owned(),
            format!("pwrite=dd of={image} bs=4096 seek=$4 oflag=seek_bytes conv=notrunc status=none"),
        ]
    };
    let arguments = script(&image);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let server = Server::nbdkit(&socket, &arguments);
    let served = over(&socket, |_| {});
    let mut client = Raw::open(&served.socket(), "vol");
    assert_eq!(client.ask(NbdCommand::Flush, 0, 0), Errno::Inval.code(), "it was not offered");
    client.send_write(1, 4096, &[3; 4096]);
    assert_eq!(client.answer(), (1, 0));
    server.kill();
    let _server = Server::nbdkit(&socket, &arguments);
    client.send(NbdCommand::Read, 2, 4096, 4096);
    assert!(client.data(4096) == (2, vec![3; 4096]));
    assert_eq!(upstream(&served).unflushed_losses, 0);
}

#[test]
fn an_outage_is_bridged_for_as_long_as_is_said_and_no_longer() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("u.sock");
    let image = file(directory.path(), "image", MIB);
    let server = slow_nbdkit(&socket, &image, &[]);
    let outage = Duration::from_secs(2);
    let served = over(&socket, |config| config.reconnect = outage);
    let mut client = Raw::open(&served.socket(), "vol");
    assert_eq!(client.ask(NbdCommand::Trim, 0, 4096), 0);
    server.kill();
    served.wait_until(|pool| pool.consumers[0].upstream.is_some_and(|upstream| upstream.connections == 0));
    let began = Instant::now();
    client.send(NbdCommand::Read, 1, 0, 4096);
    assert_eq!(client.answer(), (1, EIO));
    assert!(began.elapsed() < outage + Duration::from_secs(5), "it waits for the outage's end, not for ever");
    let began = Instant::now();
    for _ in 0..10 {
        assert_eq!(client.ask(NbdCommand::Trim, 0, 4096), EIO);
    }
    assert!(began.elapsed() < outage, "what is known to be gone is not waited for");
    let _server = slow_nbdkit(&socket, &image, &[]);
    served.wait_until(|pool| pool.consumers[0].upstream.is_some_and(|upstream| upstream.connections == 4));
    client.send(NbdCommand::Read, 1, 0, 4096);
    assert_eq!(client.data(4096).0, 1);
}

#[test]
fn an_upstream_that_comes_back_different_is_refused_until_it_is_the_same_again() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("u.sock");
    let image = file(directory.path(), "image", MIB);
    let other = file(directory.path(), "other", 2 * MIB);
    let server = slow_nbdkit(&socket, &image, &[]);
    let served = over(&socket, |_| {});
    let mut client = Raw::open(&served.socket(), "vol");
    server.kill();
    for different in [
        vec!["file", other.to_str().unwrap()],
        vec!["-r", "file", image.to_str().unwrap()],
        vec!["--filter=multi-conn", "file", image.to_str().unwrap(), "multi-conn-mode=disable"],
    ] {
        let different = Server::nbdkit(&socket, &different);
        client.send(NbdCommand::Read, 1, 0, 4096);
        assert_eq!(client.answer(), (1, EIO), "long before the outage's end");
        assert_eq!(upstream(&served).connections, 0);
        different.kill();
    }
    let _server = slow_nbdkit(&socket, &image, &[]);
    served.wait_until(|pool| pool.consumers[0].upstream.is_some_and(|upstream| upstream.connections == 4));
    client.send(NbdCommand::Read, 1, 0, 4096);
    assert_eq!(client.data(4096).0, 1);
}

/// A restart in order, of a gateway by a gateway: with every request sent again nothing fails, not even
/// writes. (A drained gateway drops what it had not read, and only its administrator knows that; so it takes
/// `replay = "all"`.)
#[test]
fn an_upstream_that_is_drained_and_started_again_is_not_noticed() {
    let own = Served::start(|directory| vec![file_pool(directory, &["vol"], 64 * MIB)]);
    let served = over(&own.socket(), |config| config.replay = ReplayRule::All);
    let uri = served.uri("vol");
    let fio = std::thread::spawn(move || {
        common::run(
            "fio",
            &[
                "--name=restart",
                "--ioengine=nbd",
                &format!("--uri={uri}"),
                "--rw=randwrite",
                "--bs=4k",
                "--iodepth=8",
                "--size=64m",
                "--io_size=512m",
                "--time_based",
                "--runtime=4",
                "--group_reporting",
            ],
        )
    });
    served.wait_until(|pool| pool.consumers[0].writes.count > 1000);
    let (mut gateway, config, directory) = (own.gateway, own.config, own.directory);
    for _ in 0..3 {
        let before = served.pool().consumers[0].writes.count;
        gateway.drain(Duration::from_secs(5)).unwrap();
        gateway = tidegate_gateway::Gateway::start(config.clone()).unwrap();
        served.wait_until(|pool| pool.consumers[0].writes.count > before + 500);
    }
    let said = fio.join().unwrap();
    assert!(said.contains("err= 0"), "{said}");
    let consumer = &served.pool().consumers[0];
    assert_eq!((consumer.errors.total(), consumer.upstream.unwrap().failed), (0, 0));
    drop((gateway, directory));
}

/// Killed and started again, over and over, under a load that checks what it reads.
#[test]
fn a_verifying_load_survives_crashes_of_its_upstream() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("u.sock");
    let image = file(directory.path(), "image", 32 * MIB);
    servers::random_image(&image, 32 * MIB);
    let expected = std::fs::read(&image).unwrap();
    let mut server = slow_nbdkit(&socket, &image, &["rdelay=5ms"]);
    let served = over(&socket, |_| {});
    let stop = std::sync::atomic::AtomicBool::new(false);
    let rounds = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..4)
            .map(|index: u64| {
                let (stop, expected, socket) = (&stop, &expected, served.socket());
                scope.spawn(move || {
                    let mut client = Raw::open(&socket, "vol");
                    let mut rounds = 0u64;
                    while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                        let length = [4096u64, 300_000, 1 << 20][rounds as usize % 3];
                        let at = |cookie: u64| ((rounds * 7 + index * 13 + cookie) * 524_288) % (30 * MIB);
                        for cookie in 0..8 {
                            client.send(NbdCommand::Read, cookie, at(cookie), length as u32);
                        }
                        for _ in 0..8 {
                            let (cookie, data) = client.data(length as usize);
                            let from = at(cookie) as usize;
                            assert!(data == expected[from..from + length as usize]);
                        }
                        rounds += 1;
                    }
                    rounds
                })
            })
            .collect();
        for crash in 1..=5 {
            let before = served.pool().consumers[0].reads.count;
            served.wait_until(|pool| pool.consumers[0].reads.count > before + 100);
            server.kill();
            server = slow_nbdkit(&socket, &image, &["rdelay=5ms"]);
            served.wait_until(|pool| pool.consumers[0].upstream.is_some_and(|up| up.reconnects >= crash));
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        clients.into_iter().map(|client| client.join().unwrap()).sum::<u64>()
    });
    let consumer = &served.pool().consumers[0];
    assert_eq!((consumer.reads.count, consumer.errors.total()), (8 * rounds, 0));
    assert!(consumer.upstream.unwrap().replayed > 0);
}
