//! Trials of the rehearsal against the simulator, printed as JSON: `against_simulator FIRST COUNT SECONDS`.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a program for measurements")]

#[path = "../tests/integration/trial/mod.rs"]
mod trial;

use std::env::args;

/// A database with four threads that think, beside a scan and a random reader, on ten striped disks.
const DISKS: trial::TrialCase = trial::TrialCase {
    name: "disks",
    text: "
[array.lun]
preset = 'fc-raid0-10'
[host.h]
target = '12ms'
[workload.reads]
outstanding = 4
think = '20ms'
size = '8KiB'
[workload.index]
outstanding = 24
size = '64KiB'
cycle = { on = '60s', off = '50s' }
[workload.batch]
outstanding = 32
size = '16KiB'
cycle = { on = '40s', off = '70s', delay = '20s' }
[vm.database]
workload = 'reads'
protected = true
[vm.indexer]
workload = 'index'
[vm.batch]
workload = 'batch'
",
};

fn main() {
    let number = |at: usize, usual: u64| args().nth(at).map_or(usual, |text| text.parse().unwrap());
    let (first, count, seconds) = (number(1, 1_000_000), number(2, 1), number(3, 1_200));
    let cases = [trial::QUEUE, DISKS, trial::POOLED, trial::CACHE, trial::SATURATED];
    let outcomes: Vec<_> = cases
        .iter()
        .flat_map(|case| (first..first + count).map(move |seed| trial::trial(case, seconds, seed)))
        .collect();
    println!("{}", serde_json::to_string(&outcomes).unwrap());
}
