//! Tests of a worker that has failed, as seen from outside. They are here rather than among the tests of the
//! whole: nothing that comes in from outside can make a worker fail on purpose.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use rustix::thread::gettid;
use tidegate_control::{LawConfig, LoopConfig, PidConfig};
use tidegate_nbd::transmission::NbdCommand as Nbd;
use tidegate_units::{Bytes, ConsumerName, Latency, ResourceName};

use super::*;
use crate::config::{BackendConfig, ExportConfig, ExportStore, PoolConfig, PoolLimits};
use crate::worker::door::PoolChange;
use tidegate_testing::nbd::Raw;

fn pool(name: &str, directory: &std::path::Path) -> PoolConfig {
    let path = directory.join(name);
    std::fs::File::create(&path).unwrap().set_len(1 << 20).unwrap();
    let export = ExportConfig::new(ConsumerName::new(name).unwrap(), ExportStore::Path(path));
    let backend = BackendConfig::File { direct: false };
    PoolConfig::new(ResourceName::new(name).unwrap(), backend, vec![export])
}

/// A change that breaks the rule that a worker sees only what was validated: it panics.
fn poison() -> WorkerCommand {
    let name = ResourceName::new("bad").unwrap();
    let mut law = LoopConfig::new(name, Latency::from_millis(1), LawConfig::Pid(PidConfig::default()));
    law.interval = Duration::ZERO;
    WorkerCommand::Change(Box::new(PoolChange {
        depth: 1,
        law: Some(law),
        release: tidegate_sched::BucketRelease::default(),
        limits: PoolLimits::default(),
        changed: Vec::new(),
        added: Vec::new(),
        removed: Vec::new(),
        resized: Vec::new(),
    }))
}

#[test]
fn a_worker_that_panics_is_seen_by_its_clients_and_its_owner_and_by_nobody_else() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("nbd.sock");
    let pools = vec![pool("bad", directory.path()), pool("good", directory.path())];
    let config = GatewayConfig::new(vec![ListenEndpoint::Unix(socket.clone())], pools);
    let mut gateway = Gateway::start(config.clone()).unwrap();
    let (mut victim, mut other) = (Raw::open(&socket, "bad"), Raw::open(&socket, "good"));
    assert_eq!(victim.ask(Nbd::Flush, 0, 0), 0);

    assert!(gateway.pools[0].door.send(poison()));
    assert!(victim.is_closed());
    // A client that comes now is not left waiting either.
    assert!(Raw::try_open(&socket, "bad").is_none_or(|mut late| late.is_closed()));
    assert_eq!(other.ask(Nbd::Flush, 0, 0), 0);
    let why = |failure: GatewayError| {
        let GatewayError::WorkerFailed { pool, message } = failure;
        assert!(pool.as_str() == "bad" && message.contains("validated"), "{pool}: {message}");
    };
    why(gateway.snapshot().unwrap_err());
    let Err(ApplyError::Gateway(failure)) = gateway.apply(config) else { panic!("applied to a dead pool") };
    why(failure);
    let good = &gateway.pools[1];
    let answer = good.answer(good.ask(), WallInstant::now() + Duration::from_secs(60)).unwrap();
    assert_eq!(answer.unwrap().bytes_in_use, Bytes::ZERO);
    why(gateway.drain(Duration::from_secs(5)).unwrap_err());
    assert!(other.is_closed());
}

#[test]
fn a_thread_that_waits_for_a_processor_is_told_from_one_that_waits_in_the_kernel() {
    assert_eq!(pool::thread_state(gettid()), Some('R'));
    let (told, thread) = channel();
    let (until, over) = channel::<()>();
    std::thread::spawn(move || {
        told.send(gettid()).unwrap();
        over.recv().unwrap_err();
    });
    let thread = thread.recv().unwrap();
    let give_up = WallInstant::now() + Duration::from_secs(30);
    while pool::thread_state(thread) != Some('S') {
        assert!(WallInstant::now() < give_up, "{:?}", pool::thread_state(thread));
    }
    drop(until);
}
