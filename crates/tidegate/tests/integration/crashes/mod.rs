//! Crashes in a loop, of the gateway and of its upstream, under load on the real binary: what was
//! acknowledged is there afterwards.
//!
//! Some rounds run with every test. `scripts/crashes` runs many, and keeps the counts as a dated document:
//! TIDEGATE_CRASH_ROUNDS says how many, TIDEGATE_CRASH_SEED where chance begins, TIDEGATE_CRASH_OUT where
//! each loop leaves its counts.

mod client;
mod gateway;
mod kill;
mod lossy;
mod upstream;

use std::fs::OpenOptions;
use std::io::Write;

use serde::Serialize;

fn setting(name: &str) -> Option<u64> {
    std::env::var(name)
        .ok()
        .map(|text| text.parse().unwrap_or_else(|_| panic!("{name}: `{text}` is no number")))
}

/// How many crashes a loop makes: so many in an ordinary test, or as the environment says.
fn rounds(ordinary: u64) -> u64 {
    setting("TIDEGATE_CRASH_ROUNDS").unwrap_or(ordinary)
}

fn seed() -> u64 {
    setting("TIDEGATE_CRASH_SEED").unwrap_or(1)
}

/// Shows the counts of a loop, and adds them as a line to the file that the environment names.
fn report(counts: &impl Serialize) {
    let line = serde_json::to_string(counts).unwrap();
    println!("{line}");
    if let Some(path) = std::env::var_os("TIDEGATE_CRASH_OUT") {
        let mut file = OpenOptions::new().create(true).append(true).open(path).unwrap();
        writeln!(file, "{line}").unwrap();
    }
}

/// Numbers by chance, the same from the same seed: xorshift64*.
#[derive(Debug)]
struct Chance(u64);

impl Chance {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// One of `count` numbers from 0.
    fn below(&mut self, count: u64) -> u64 {
        (self.next() >> 11) % count
    }

    fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}
