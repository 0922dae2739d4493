//! Sessions that a gateway leaves to the next one: no client notices, or its connection ends.

use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::{MIB, Served, emulated_pool, file_pool, name, pool_name};
use tidegate_gateway::{
    BackendConfig, ExportConfig, ExportName, ExportStore, Gateway, GatewayConfig, ListenEndpoint, PoolConfig,
    UpstreamConfig, load, store,
};
use tidegate_nbd::transmission::NbdCommand;
use tidegate_sched::{BeyondLimit, ConsumerLimit};
use tidegate_testing::nbd::{Raw, request};
use tidegate_units::Iops;

/// A gateway that ends, and another that goes on with its sessions. Returns the numbers of those that the one
/// has left and the other has taken.
fn restart(served: Served, change: impl FnOnce(&mut GatewayConfig)) -> (Served, usize, usize) {
    let Served { gateway, mut config, directory } = served;
    let sessions = gateway.suspend(Duration::from_secs(20)).unwrap().suspended;
    let left = sessions.len();
    let state = store(&sessions).unwrap();
    let sockets: Vec<OwnedFd> =
        sessions.iter().map(|session| session.socket().try_clone_to_owned().unwrap()).collect();
    drop(sessions);
    change(&mut config);
    let gateway = Gateway::start(config.clone()).unwrap();
    let taken = gateway.resume(load(state, sockets).unwrap());
    (Served { gateway, config, directory }, left, taken)
}

/// Waits until the pool has so many sessions. A client knows of the end of its handshake before the pool does.
fn await_sessions(served: &Served, count: usize) {
    served.wait_until(|pool| pool.sessions == count);
}

fn fio(uri: &str, depth: u32) -> Command {
    let mut fio = Command::new("fio");
    fio.args(["--name=load", "--ioengine=nbd", "--rw=randrw", "--bsrange=512-128k", "--size=16m"])
        .args(["--verify=crc32c", "--verify_fatal=1", "--verify_state_save=0", "--fsync=64", "--loops=8"])
        .args([&format!("--iodepth={depth}"), &format!("--uri={uri}")])
        .stdout(Stdio::null());
    fio
}

/// With a limit most requests wait for their turn, and go over as they came.
#[test]
fn a_verifying_client_works_on_through_restarts() {
    let mut served = Served::start(|folder| {
        let mut pool = file_pool(folder, &["a", "b"], 16 * MIB);
        pool.exports[1].limit = Some(ConsumerLimit {
            iops: Some(Iops::new(400.0)),
            bytes_per_s: None,
            burst: Duration::from_millis(100),
            beyond: BeyondLimit::Wait,
        });
        vec![pool]
    });
    let mut clients = [("a", 32), ("b", 32)].map(|(export, depth)| {
        fio(&served.uri(export), depth).spawn().expect("fio; install the packages listed in lab/packages")
    });
    // fio connects twice, and not again where it finds no socket.
    served.wait_until(|pool| pool.consumers.iter().all(|consumer| consumer.writes.count > 0));
    let (mut restarts, mut resumed) = (0, 0);
    let begin = Instant::now();
    while clients.iter_mut().any(|client| client.try_wait().unwrap().is_none()) {
        // The time between two restarts, in which sessions do some work.
        std::thread::sleep(Duration::from_millis(150));
        let (next, left, taken) = restart(served, |_| {});
        assert_eq!(left, taken);
        served = next;
        (restarts, resumed) = (restarts + 1, resumed + taken);
        assert!(begin.elapsed() < Duration::from_secs(120), "{:?}", served.pool());
        if begin.elapsed() > Duration::from_secs(5) {
            // It has seen enough; the rest goes fast.
            served.config.pools[0].exports[1].limit = None;
            served.gateway.apply(served.config.clone()).unwrap();
        }
    }
    assert!(clients.iter_mut().all(|client| client.wait().unwrap().success()));
    assert!(restarts > 10 && resumed > 10, "{resumed} sessions in {restarts} restarts");
}

/// The client's request has begun to arrive: the next gateway reads the rest. A large payload, which the
/// kernel receives to where it belongs, is waited for.
#[test]
fn a_request_that_arrives_in_parts_is_complete_after_a_restart() {
    let mut served = Served::start(|folder| vec![file_pool(folder, &["a"], 4 * MIB)]);
    let mut client = Raw::open(&served.socket(), "a");
    await_sessions(&served, 1);
    for (length, cut) in [(10_000, 10), (10_000, 5_000), (200_000, 100_000)] {
        let data: Vec<u8> = (0..length).map(|at| (at >> 5) as u8).collect();
        let whole = [&request(NbdCommand::Write, 7, 4096, length)[..], &data].concat();
        client.0.write_all(&whole[..cut]).unwrap();
        let (mut rest, tail) = (client.0.try_clone().unwrap(), whole[cut..].to_vec());
        let sent = std::thread::spawn(move || {
            // Long enough for the restart to meet half of a request.
            std::thread::sleep(Duration::from_millis(200));
            rest.write_all(&tail).unwrap();
        });
        let (next, left, taken) = restart(served, |_| {});
        assert_eq!((left, taken), (1, 1), "{length}");
        served = next;
        sent.join().unwrap();
        assert_eq!(client.answer(), (7, 0));
        client.send(NbdCommand::Read, 8, 4096, length);
        assert_eq!(client.data(data.len()), (8, data));
    }
}

/// One client does not send what it has announced. It is not waited for longer than a second.
#[test]
fn a_client_that_is_too_slow_does_not_keep_the_others() {
    let served = Served::start(|folder| vec![file_pool(folder, &["a"], 64 * MIB)]);
    let (mut slow, mut good) = (Raw::open(&served.socket(), "a"), Raw::open(&served.socket(), "a"));
    await_sessions(&served, 2);
    // In one piece: if something arrived during the restart, the next gateway would go on with it.
    let begun = [&request(NbdCommand::Write, 1, 0, 32 << 20)[..], &[1; 16 << 10]].concat();
    slow.0.write_all(&begun).unwrap();
    served.wait_until(|pool| pool.bytes_in_use.get() > 1 << 20);
    let begin = Instant::now();
    let (served, left, taken) = restart(served, |_| {});
    assert_eq!((left, taken), (1, 1));
    assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
    assert!(slow.is_closed());
    assert_eq!(good.ask(NbdCommand::Flush, 0, 0), 0);
    assert_eq!(served.pool().sessions, 1);
}

#[test]
fn a_session_ends_where_its_client_was_told_otherwise() {
    type Change = fn(&mut GatewayConfig);
    let changes: [(&str, Change); 3] = [
        ("read-only", |config| config.pools[0].exports[0].read_only = true),
        ("another name", |config| config.pools[0].exports[0].name = name("b")),
        ("shorter", |config| {
            let ExportStore::Path(path) = &config.pools[0].exports[0].store else { unreachable!() };
            std::fs::File::options().write(true).open(path).unwrap().set_len(MIB).unwrap();
        }),
    ];
    for (what, change) in changes {
        let served = Served::start(|folder| vec![file_pool(folder, &["a"], 4 * MIB)]);
        let mut client = Raw::open(&served.socket(), "a");
        await_sessions(&served, 1);
        let (served, left, taken) = restart(served, change);
        assert_eq!((left, taken), (1, 0), "{what}");
        assert!(client.is_closed(), "{what}");
        assert_eq!(served.pool().sessions, 0, "{what}");
    }
}

/// Its data is in the memory of the process.
#[test]
fn sessions_of_an_emulated_device_end() {
    let served = Served::start(|_| vec![emulated_pool(&["a"], MIB, 1_000.0)]);
    let mut client = Raw::open(&served.socket(), "a");
    await_sessions(&served, 1);
    let (_served, left, _) = restart(served, |_| {});
    assert_eq!(left, 0);
    assert!(client.is_closed());
}

/// An upstream's cache is flushed by the connections that wrote to it: nothing else could say later whether
/// it is lost.
#[test]
fn what_an_upstream_has_not_flushed_is_flushed_before_a_restart() {
    let upstream = Served::start(|folder| vec![file_pool(folder, &["far"], 4 * MIB)]);
    let address = ListenEndpoint::Unix(upstream.socket());
    let served = Served::start(|_| {
        let export = ExportConfig::new(name("a"), ExportStore::Upstream(ExportName::new("far").unwrap()));
        let backend = BackendConfig::Nbd(UpstreamConfig::new(address));
        vec![PoolConfig::new(pool_name("chain"), backend, vec![export])]
    });
    let mut client = Raw::open(&served.socket(), "a");
    client.send_write(1, 0, &[7; 4096]);
    assert_eq!(client.answer(), (1, 0));
    let flushes = || upstream.pool().consumers[0].flushes.count;
    assert_eq!(flushes(), 0);
    let (served, left, taken) = restart(served, |_| {});
    assert_eq!((left, taken), (1, 1));
    assert_eq!(flushes(), 1);
    // Without changes there is nothing to flush.
    let (_served, left, taken) = restart(served, |_| {});
    assert_eq!((left, taken, flushes()), (1, 1, 1));
    client.send(NbdCommand::Read, 2, 0, 4096);
    assert_eq!(client.data(4096), (2, vec![7; 4096]));
    assert_eq!(client.ask(NbdCommand::Flush, 0, 0), 0);
}
