//! A simulation of gateways under faults: one thread, a virtual clock, and a seed that decides everything.
//!
//! The real workers of one to three gateways run in it, one before the other: protocol, sessions, stage,
//! backend, ledger, upstream. The world ([`world`]) takes the place of what is around them:
//!
//! | part | in the simulation |
//! |---|---|
//! | io_uring | [`ring`]: operations that complete in any order, cut short, with errors, late |
//! | disk | [`disk`]: a volatile cache, failed write-back, power loss sector by sector |
//! | clients | [`client`]: they judge every reply by [`model`], the values that may be seen |
//! | time | virtual: it jumps to the next event |
//!
//! Left out is what has a thread of its own, and no rule of protocol, stage, ledger or upstream: handshakes,
//! connecting, the writer and the threads of volumes. Sockets are real socket pairs, used without waiting.
//!
//! The same seed gives the same run. `TIDEGATE_SEED=N` repeats one, and `TIDEGATE_SEEDS=N` runs more.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod client;
mod disk;
mod gateway;
mod model;
mod random;
mod regressions;
mod ring;
mod world;

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use tidegate_units::Instant;

pub(crate) use ring::WorkerRing;
use world::SimulatedWorld;

thread_local! {
    static NOW: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// The time of the simulation that runs in this thread.
pub(crate) fn now() -> Instant {
    NOW.get().expect("a simulation runs in this thread")
}

/// Returns true if a simulation runs in this thread.
fn is_simulated() -> bool {
    NOW.get().is_some()
}

/// Runs a simulation. Returns a digest of everything that happened.
///
/// # Errors
/// The rule that was broken, after the last events before that.
fn simulate(seed: u64) -> Result<u64, String> {
    let mut world = SimulatedWorld::new(seed);
    let run = catch_unwind(AssertUnwindSafe(|| world.run()));
    let outcome = run.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        Err(format!("a panic: {}", text.unwrap_or("without a message")))
    });
    let report = outcome.map_err(|broken| world.report(&broken));
    let digest = world.digest();
    drop(world);
    NOW.set(None);
    report.map(|()| digest)
}

/// The seeds of an ordinary test run.
const FEW: u64 = 60;

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is {text:?}, and must be a number")))
}

/// Every seed keeps every rule.
#[test]
fn no_seed_breaks_a_rule() {
    let seeds = match number("TIDEGATE_SEED") {
        Some(seed) => seed..seed + 1,
        None => {
            let first = number("TIDEGATE_FIRST_SEED").unwrap_or(1);
            first..first + number("TIDEGATE_SEEDS").unwrap_or(FEW)
        }
    };
    for seed in seeds {
        if let Err(report) = simulate(seed) {
            panic!(
                "{report}\nto repeat it: TIDEGATE_SEED={seed} cargo test -p tidegate-gateway --lib \
                 no_seed_breaks_a_rule"
            );
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for seed in 1..10 {
        assert_eq!(simulate(seed), simulate(seed), "seed {seed}");
    }
    assert_ne!(simulate(1), simulate(2));
}
