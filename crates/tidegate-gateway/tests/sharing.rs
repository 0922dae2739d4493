//! Consumers against each other on one slow device, with real clients. Margins are wide where other programs of the
//! machine can move the result; the exact behaviour is tested in the pure crates.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod common;

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::{MIB, Served, emulated_pool};
use tidegate_control::{Law, LoopConfig, PidConfig, WindowConfig};
use tidegate_gateway::{ConsumerSnapshot, PoolSnapshot};
use tidegate_sched::Limit;
use tidegate_units::{Iops, Latency, Shares};

/// A client that keeps `depth` requests outstanding; ended when dropped.
struct Fio(Child);

impl Fio {
    fn start(uri: &str, rw: &str, depth: u32) -> Self {
        let child = Command::new("fio")
            .args(["--name=load", "--ioengine=nbd", "--bs=4k", "--size=16m", "--time_based", "--runtime=60"])
            .args(["--norandommap", "--thread", &format!("--uri={uri}"), &format!("--rw={rw}")])
            .arg(format!("--iodepth={depth}"))
            .stdout(Stdio::null())
            .spawn()
            .expect("fio; install the packages listed in lab/packages");
        Self(child)
    }
}

impl Drop for Fio {
    fn drop(&mut self) {
        // It may have ended by itself, which is what is wanted.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until every consumer has had this many requests answered.
fn wait_for(served: &Served, requests: u64) -> PoolSnapshot {
    served.wait_until(|pool| pool.consumers.iter().all(|consumer| answered(consumer) >= requests))
}

fn answered(consumer: &ConsumerSnapshot) -> u64 {
    consumer.reads.count + consumer.writes.count
}

#[test]
fn three_backlogged_clients_get_throughput_by_their_shares() {
    let served = Served::start(|_| {
        let mut pool = emulated_pool(&["one", "two", "four"], 16 * MIB, 1_500.0);
        for (export, shares) in pool.exports.iter_mut().zip([1, 2, 4]) {
            export.shares = Shares::new(shares).unwrap();
        }
        pool.depth = 8;
        vec![pool]
    });
    let _clients: Vec<Fio> =
        ["one", "two", "four"].iter().map(|export| Fio::start(&served.uri(export), "randread", 32)).collect();
    // While the machine does not run one of the clients, that client is not backlogged and the shares are not at
    // stake: so of a few stretches one must be right.
    let mut before = wait_for(&served, 64);
    let mut seen = Vec::new();
    for _ in 0..5 {
        let least = before.consumers.iter().map(answered).min().unwrap();
        let after = wait_for(&served, least + 500);
        assert!(after.in_flight <= 8, "{} in flight", after.in_flight);
        let both = before.consumers.iter().zip(&after.consumers);
        let done: Vec<f64> = both.map(|(then, now)| (answered(now) - answered(then)) as f64).collect();
        let total: f64 = done.iter().sum();
        let worth = [1.0, 2.0, 4.0].map(|share| share / 7.0 * total);
        let ratios: Vec<f64> = done.iter().zip(worth).map(|(done, worth)| done / worth).collect();
        if ratios.iter().all(|ratio| (ratio - 1.0).abs() < 0.07) {
            return;
        }
        seen.push(ratios);
        before = after;
    }
    panic!("shares 1:2:4 got so many times what they are worth: {seen:.3?}");
}

#[test]
fn a_limit_holds_on_an_idle_device() {
    let served = Served::start(|_| {
        let mut pool = emulated_pool(&["limited"], 16 * MIB, 20_000.0);
        let limit = Limit { iops: Some(Iops::new(200.0)), bytes_per_s: None, burst: Duration::ZERO };
        pool.exports[0].limit = Some(limit);
        vec![pool]
    });
    let _client = Fio::start(&served.uri("limited"), "randwrite", 16);
    let before = wait_for(&served, 20);
    let after = wait_for(&served, 320);
    let seconds = after.at.saturating_since(before.at).as_secs_f64();
    let rate = (answered(&after.consumers[0]) - answered(&before.consumers[0])) as f64 / seconds;
    // Never more, whatever the machine does; how much less depends on whether it runs the client.
    assert!(rate < 205.0 && rate > 50.0, "{rate}");
}

/// The main job, in small: three writers bury a reader; a law digs it out, whichever law it is.
#[test]
fn either_law_brings_the_protected_reader_back_to_its_target() {
    let laws = [Law::Window(WindowConfig::default()), Law::Pid(PidConfig::default())];
    std::thread::scope(|scope| {
        for law in laws {
            scope.spawn(move || regulate(law));
        }
    });
}

fn regulate(law: Law) {
    let mut served = Served::start(|_| {
        let mut pool = emulated_pool(&["db", "w1", "w2", "w3"], 16 * MIB, 250.0);
        pool.exports[0].protected = true;
        vec![pool]
    });
    let _reader = Fio::start(&served.uri("db"), "randread", 1);
    let _writers: Vec<Fio> =
        ["w1", "w2", "w3"].iter().map(|export| Fio::start(&served.uri(export), "randwrite", 8)).collect();
    let before = wait_for(&served, 10);
    served.wait_until(|pool| pool.consumers[0].reads.count >= 40 && mean(&before, pool) > 2.0 * 30.0);

    let pool = &mut served.config.pools[0];
    pool.law = Some(LoopConfig::new(pool.name.clone(), Latency::from_millis(30), law));
    served.gateway.apply(served.config.clone()).unwrap();
    let give_up = Instant::now() + Duration::from_secs(30);
    let mut seen = served.pool();
    loop {
        // Judged over a hundred reads at a time, enough for their mean to mean something.
        let reads = seen.consumers[0].reads.count + 100;
        let now = served.wait_until(|pool| pool.consumers[0].reads.count >= reads);
        let regulated = mean(&seen, &now);
        if regulated <= 30.0 {
            assert!(now.decision.as_ref().is_some_and(|decision| decision.held == 3), "{:?}", now.decision);
            assert_eq!(now.consumers[0].delay, Latency::ZERO, "the protected consumer is held");
            return;
        }
        assert!(Instant::now() < give_up, "{regulated:.1} ms against 30: {:?}", now.decision);
        seen = now;
    }
}

/// The reader's mean response time in between, in milliseconds; zero when it was not answered.
fn mean(before: &PoolSnapshot, after: &PoolSnapshot) -> f64 {
    let between = after.consumers[0].reads.total.since(&before.consumers[0].reads.total);
    between.mean().map_or(0.0, Latency::as_millis_f64)
}
