//! What the agent's interval costs without the throttle: one resource, and the budget's 1 000 resources with
//! 10 000 consumers, in processor time per second of ten intervals. All devices read and write in every
//! interval, and all consumers are logged in; once each stays below what makes a writer, and once all exceed
//! it, which is the worst there is: everybody is told apart, and a member.
//!
//! The files are in memory and made up: what the kernel takes to write its own only a real machine can tell.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use rustix::time::{ClockId, clock_gettime};
use tempfile::TempDir;
use tidegate_agent::{AgentConfig, MachineRegulator};
use tidegate_host::SystemRoot;
use tidegate_host::trees::FixtureMachine;
use tidegate_units::Instant;

const INTERVAL: Duration = Duration::from_millis(100);

/// Ticks of the machine's counters per interval, each of 48 KiB written per volume: 0.14 MiB/s of each of ten
/// consumers.
const MODEST: u64 = 3;

/// 1.4 MiB/s of each of ten consumers, more than `writers.above`.
const MUCH: u64 = 30;

/// A machine at work, as its regulator sees it.
struct Busy {
    tree: TempDir,
    machine: FixtureMachine,
    regulator: MachineRegulator,
    now: Instant,
    ticks: u64,
    /// Per interval.
    does: u64,
}

impl Busy {
    fn new(machine: FixtureMachine, does: u64) -> Self {
        let memory = Path::new("/dev/shm");
        let tree = if memory.is_dir() { TempDir::new_in(memory) } else { TempDir::new() };
        let tree = tree.expect("a directory for the machine's files");
        machine.write(tree.path()).expect("the machine's files can be written");
        let mut text = String::new();
        for group in 0..machine.groups {
            writeln!(text, "[resource.vg{group}]\nlaw = \"pid\"\ntarget = \"15ms\"")
                .expect("writing to a String does not fail");
        }
        let config = AgentConfig::parse("bench", &text).expect("the configuration is right");
        let regulator =
            MachineRegulator::new(SystemRoot::at(tree.path()), &config).expect("the machine can be seen");
        Self { tree, machine, regulator, now: Instant::ZERO, ticks: 0, does }
    }

    /// What a second takes of the processor: ten intervals, so that what is looked at once a second counts
    /// once.
    fn second(&mut self) -> Duration {
        let mut taken = Duration::ZERO;
        for _ in 0..10 {
            self.ticks += self.does;
            let counters = self.machine.diskstats(self.ticks);
            fs::write(self.tree.path().join("proc/diskstats"), counters).expect("the machine's counters");
            self.now = self.now + INTERVAL;
            let begin = processor_time();
            let step = self.regulator.step(self.now);
            taken += processor_time() - begin;
            assert!(step.blind.is_none());
        }
        taken
    }
}

/// What this thread has had of a processor, in the kernel and outside: others on the machine do not count.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).expect("processor time is not negative")
}

fn intervals(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("agent");
    let large = FixtureMachine { volumes: 1_000, groups: 1_000, initiators: 10 };
    for (name, machine, does) in [
        (
            "a second, 1 resource, 10 consumers",
            FixtureMachine { volumes: 10, groups: 1, initiators: 1 },
            MODEST,
        ),
        ("a second, 1000 resources, 10000 consumers", large, MODEST),
        ("a second, 1000 resources, 10000 writers", large, MUCH),
    ] {
        let mut busy = Busy::new(machine, does);
        group.bench_function(name, |bencher| {
            bencher.iter_custom(|seconds| (0..seconds).map(|_| busy.second()).sum());
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
