//! Reload and drain under running clients.

use std::process::{Command as Program, Stdio};
use std::time::{Duration, Instant};

use crate::common;
use crate::common::{MIB, Served, emulated_pool, file, file_pool, name, pool_name, run};
use tidegate_control::{LawConfig, LoopConfig, PidConfig};
use tidegate_gateway::{ApplyError, DrainReport, ExportConfig, ExportStore, ListenEndpoint};
use tidegate_nbd::Errno;
use tidegate_nbd::transmission::NbdCommand;
use tidegate_testing::nbd::Raw;
use tidegate_units::{Latency, Shares};

#[test]
fn no_client_notices_a_reload() {
    let mut served = Served::start(|_| vec![emulated_pool(&["a", "b"], 64 * MIB, 5_000.0)]);
    let mut client = Raw::open(&served.socket(), "a");
    let fio = Program::new("fio")
        .args(["--name=load", "--ioengine=nbd", "--rw=randrw", "--bs=4k", "--iodepth=16", "--size=4m"])
        .args([
            "--verify=crc32c",
            "--verify_fatal=1",
            "--verify_state_save=0",
            &format!("--uri={}", served.uri("b")),
        ])
        .stdout(Stdio::null())
        .spawn();
    let mut fio = fio.expect("fio; install the packages listed in lab/packages");
    let mut reloads = 0u32;
    while fio.try_wait().unwrap().is_none() {
        reloads += 1;
        let pool = &mut served.config.pools[0];
        pool.exports[0].shares = Shares::new(1 + reloads % 1000).unwrap();
        pool.exports[1].protected = reloads.is_multiple_of(2);
        pool.depth = 1 + reloads % 7;
        pool.law = reloads.is_multiple_of(3).then(|| {
            LoopConfig::new(pool_name("array"), Latency::from_millis(2), LawConfig::Pid(PidConfig::default()))
        });
        served.gateway.apply(served.config.clone()).unwrap();
        client.send(NbdCommand::Read, 1, 0, 4096);
        client.data(4096);
    }
    assert!(fio.wait().unwrap().success() && reloads > 10, "{reloads} reloads");
    let pool = served.pool();
    assert_eq!(pool.consumers.iter().map(|consumer| consumer.errors.total()).sum::<u64>(), 0);
    assert_eq!(pool.consumers[0].shares.get(), 1 + reloads % 1000);
    // With the law went what it held.
    served.config.pools[0].law = None;
    served.gateway.apply(served.config.clone()).unwrap();
    let pool = served.pool();
    assert!(pool.consumers.iter().all(|consumer| consumer.delay == Latency::ZERO));
    assert_eq!(pool.window.get() as u32, served.config.pools[0].depth);
}

/// The law's next step may be an hour away.
#[test]
fn a_changed_depth_holds_at_once_under_a_law() {
    let mut served = Served::start(|_| {
        let mut pool = emulated_pool(&["a"], MIB, 1_000.0);
        let mut law = LoopConfig::new(
            pool_name("array"),
            Latency::from_millis(2),
            LawConfig::Pid(PidConfig::default()),
        );
        law.interval = Duration::from_secs(3600);
        (pool.depth, pool.law) = (8, Some(law));
        vec![pool]
    });
    for depth in [2, 16] {
        served.config.pools[0].depth = depth;
        served.gateway.apply(served.config.clone()).unwrap();
        assert_eq!(served.pool().window.get() as u32, depth);
    }
}

#[test]
fn exports_come_and_go_under_a_reload() {
    let mut served = Served::start(|directory| vec![file_pool(directory, &["old"], MIB)]);
    let mut client = Raw::open(&served.socket(), "old");
    let path = file(served.directory.path(), "new", 2 * MIB);
    served.config.pools[0].exports = vec![ExportConfig::new(name("new"), ExportStore::Path(path))];
    served.gateway.apply(served.config.clone()).unwrap();

    assert!(Raw::try_open(&served.socket(), "old").is_none());
    Raw::open(&served.socket(), "new");
    // Whoever uses what is removed goes on.
    client.send_write(1, 0, &[9; 512]);
    assert_eq!(client.answer(), (1, 0));
    assert!(served.pool().consumers.iter().any(|consumer| consumer.removed));
    drop(client);
    let pool = served.wait_until(|pool| pool.consumers.len() == 1);
    assert_eq!(pool.consumers[0].name, name("new"));
}

/// The worker may hear of the removal before it hears of the session.
#[test]
fn a_client_that_was_just_let_in_keeps_an_export_that_is_removed_at_that_moment() {
    let mut served = Served::start(|directory| vec![file_pool(directory, &["stays", "goes"], MIB)]);
    let with = served.config.clone();
    let mut without = served.config.clone();
    without.pools[0].exports.truncate(1);
    for _ in 0..50 {
        let mut client = Raw::open(&served.socket(), "goes");
        served.gateway.apply(without.clone()).unwrap();
        assert_eq!(client.ask(NbdCommand::Flush, 0, 0), 0);
        served.gateway.apply(with.clone()).unwrap();
    }
    served.wait_until(|pool| pool.consumers.len() == 2);
}

#[test]
fn what_needs_a_restart_is_said_and_nothing_is_applied() {
    let mut served = Served::start(|directory| vec![file_pool(directory, &["a"], MIB)]);
    let mut config = served.config.clone();
    config.listen.push(ListenEndpoint::Tcp("127.0.0.1:0".parse().unwrap()).into());
    config.pools[0].exports[0].shares = Shares::new(7).unwrap();
    config.pools[0].exports[0].read_only = true;
    let Err(ApplyError::NeedsRestart(things)) = served.gateway.apply(config.clone()) else { panic!() };
    assert_eq!(things, ["the endpoints", "export `a`: read-only"]);
    assert_eq!(served.pool().consumers[0].shares, Shares::DEFAULT);

    let mut config = served.config.clone();
    config.pools[0].exports[0].shares = Shares::new(7).unwrap();
    config.pools[0].exports.push(ExportConfig::new(name("x"), ExportStore::Path("/nonexistent".into())));
    assert!(matches!(served.gateway.apply(config), Err(ApplyError::Start(_))));
    assert_eq!(served.pool().consumers[0].shares, Shares::DEFAULT);
    Raw::open(&served.socket(), "a");
}

#[test]
fn a_drain_answers_what_was_received_and_nothing_more() {
    let served = Served::start(|_| {
        let mut pool = emulated_pool(&["a"], 64 * MIB, 15.0);
        pool.depth = 1;
        vec![pool]
    });
    let socket = served.socket();
    let mut client = Raw::open(&socket, "a");
    let mut idle = Raw::open(&socket, "a");
    for cookie in 0..20 {
        client.send_write(cookie, cookie * 4096, &[1; 4096]);
    }
    served.wait_until(|pool| {
        let consumer = &pool.consumers[0];
        consumer.queued + consumer.in_flight + consumer.writes.count as usize == 20
    });
    let gateway = served.gateway;
    let drain = std::thread::spawn(move || gateway.drain(Duration::from_secs(20)).unwrap());
    // The idle one is let go, which shows that the drain has begun.
    assert!(idle.is_closed() && !drain.is_finished());
    assert!(!socket.exists());
    // An error would reach the client's programs. It asks the next server once the connection has ended.
    client.send(NbdCommand::Read, 1000, 0, 4096);
    let mut answers: Vec<_> = (0..20).map(|_| client.answer()).collect();
    answers.sort_unstable();
    assert_eq!(answers, (0..20).map(|cookie| (cookie, 0)).collect::<Vec<_>>());
    assert!(client.is_closed());
    drop(client);
    let DrainReport { cut_off, stuck, .. } = drain.join().unwrap();
    assert_eq!((cut_off, stuck), (0, Vec::new()));
}

#[test]
fn a_drain_ends_at_its_deadline_whatever_is_left() {
    let served = Served::start(|_| {
        let mut pool = emulated_pool(&["a"], 64 * MIB, 0.01);
        pool.depth = 1;
        vec![pool]
    });
    let mut client = Raw::open(&served.socket(), "a");
    for cookie in 0..20 {
        client.send(NbdCommand::Read, cookie, 0, 4096);
    }
    served.wait_until(|pool| pool.in_flight == 1);
    let began = Instant::now();
    let report = served.gateway.drain(Duration::from_millis(300)).unwrap();
    assert_eq!((report.cut_off, report.stuck), (1, Vec::new()));
    assert!(began.elapsed() < Duration::from_secs(5));
    assert!(client.is_closed());
}

#[test]
fn tcp_serves_as_well_and_tells_its_port() {
    let served = Served::start(|directory| vec![file_pool(directory, &["a"], MIB)]);
    let Served { gateway, mut config, directory } = served;
    drop(gateway);
    config.listen.push(ListenEndpoint::Tcp("127.0.0.1:0".parse().unwrap()).into());
    let served = Served::with(directory, config);
    let addresses = served.gateway.addresses();
    let ListenEndpoint::Tcp(address) = addresses[1] else { panic!("{addresses:?}") };
    let uri = format!("nbd://{address}/a");
    common::qemu_io(&uri, &["write -P 1 0 1M", "read -P 1 0 1M"]);
    common::qemu_io(&served.uri("a"), &["read -P 1 0 1M"]);
}

/// A connection keeps what its client was told.
#[test]
fn after_a_reload_new_connections_see_the_size_that_a_volume_has_now() {
    let mut served = Served::start(|folder| vec![file_pool(folder, &["a"], MIB)]);
    let mut before = Raw::open(&served.socket(), "a");
    let size = |served: &Served| run("nbdinfo", &["--size", &served.uri("a")]).trim().parse::<u64>().unwrap();
    let resize = |served: &mut Served, size: u64| {
        std::fs::File::options().write(true).open(served.path("a")).unwrap().set_len(size).unwrap();
        served.gateway.apply(served.config.clone()).unwrap();
    };
    // One that shrinks has lost what was there.
    for (now, flushed) in [(3 * MIB, 0), (2 * MIB, Errno::Io.code())] {
        // The size is looked at with each flush.
        assert_eq!(before.ask(NbdCommand::Flush, 0, 0), 0);
        resize(&mut served, now);
        assert_eq!(size(&served), now);
        let mut after = Raw::open(&served.socket(), "a");
        after.send(NbdCommand::Read, 1, now - 4096, 4096);
        assert_eq!(after.data(4096), (1, vec![0; 4096]));
        assert_eq!(after.ask(NbdCommand::Flush, 0, 0), flushed);
        assert_eq!(before.ask(NbdCommand::Read, MIB, 4096), Errno::Inval.code(), "beyond what it was told");
    }
}
