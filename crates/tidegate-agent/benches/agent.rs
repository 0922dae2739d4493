//! What the agent's interval costs without the throttle: one resource, and the budget's 1 000 resources with 10 000 consumers. The
//! files are in memory and made up: the kernel's own take longer to open and to write, which only a real machine can tell.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use tempfile::TempDir;
use tidegate_agent::agent::{AgentConfig, Regulator};
use tidegate_host::Root;
use tidegate_host::trees::Machine;
use tidegate_units::Instant;

const INTERVAL: Duration = Duration::from_millis(100);

/// A regulator of every group of the machine, and its files.
fn regulator(machine: Machine) -> (TempDir, Regulator) {
    let memory = Path::new("/dev/shm");
    let tree = if memory.is_dir() { TempDir::new_in(memory) } else { TempDir::new() };
    let tree = tree.expect("a directory for the machine's files");
    machine.write(tree.path()).expect("the machine's files can be written");
    let mut text = String::new();
    for group in 0..machine.groups {
        writeln!(text, "[resource.vg{group}]\ntarget = \"15ms\"").expect("writing to a String does not fail");
    }
    let config = AgentConfig::parse("bench", &text).expect("the configuration is right");
    let regulator = Regulator::new(Root::at(tree.path()), &config).expect("the machine can be seen");
    (tree, regulator)
}

fn intervals(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("agent");
    for (name, machine) in [
        ("a second, 1 resource, 10 consumers", Machine { volumes: 10, groups: 1, initiators: 1 }),
        (
            "a second, 1000 resources, 10000 consumers",
            Machine { volumes: 1_000, groups: 1_000, initiators: 10 },
        ),
    ] {
        let (tree, mut regulator) = regulator(machine);
        let (mut now, mut round) = (Instant::ZERO, 0);
        // Ten intervals, so that what is looked at once a second counts once.
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                round += 1;
                let counters = machine.diskstats(round);
                fs::write(tree.path().join("proc/diskstats"), counters).expect("the machine's counters");
                for _ in 0..10 {
                    now = now + INTERVAL;
                    let step = regulator.step(now);
                    assert!(step.blind.is_none());
                }
            });
        });
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(10).measurement_time(Duration::from_secs(10));
    targets = intervals
}
criterion_main!(benches);
