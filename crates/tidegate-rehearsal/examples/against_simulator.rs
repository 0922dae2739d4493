//! Trials of the rehearsal against the simulator, printed as JSON: `against_simulator FIRST COUNT SECONDS`.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a program for measurements")]

#[path = "../tests/trial/mod.rs"]
mod trial;

use std::env::args;

fn main() {
    let number = |at: usize, usual: u64| args().nth(at).map_or(usual, |text| text.parse().unwrap());
    let (first, count, seconds) = (number(1, 1_000_000), number(2, 1), number(3, 1_200));
    let cases = [trial::QUEUE, trial::DISKS, trial::POOLED, trial::CACHE, trial::SATURATED];
    let outcomes: Vec<_> = cases
        .iter()
        .flat_map(|case| (first..first + count).map(move |seed| trial::trial(case, seconds, seed)))
        .collect();
    println!("{}", serde_json::to_string(&outcomes).unwrap());
}
