//! Reading a large target: 1 000 volumes, 10 000 initiators. The files are in memory and made up: the
//! kernel's own take longer to open and to write, which only a real machine can tell.

use std::fs;
use std::hint::black_box;
use std::path::Path;
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use tempfile::TempDir;
use tidegate_host::sense::{DeviceActivity, DiskStats, SessionReader, VolumeTree, sessions};
use tidegate_host::trees::FixtureMachine;
use tidegate_host::{DeviceNumber, SystemRoot};

const MACHINE: FixtureMachine = FixtureMachine { volumes: 1_000, groups: 20, initiators: 10 };

/// The machine's files, in memory where there is such a place.
fn machine() -> (TempDir, SystemRoot) {
    let memory = Path::new("/dev/shm");
    let tree = if memory.is_dir() { TempDir::new_in(memory) } else { TempDir::new() };
    let tree = tree.expect("a directory for the machine's files");
    MACHINE.write(tree.path()).expect("the machine's files can be written");
    let root = SystemRoot::at(tree.path());
    (tree, root)
}

fn sense(criterion: &mut Criterion) {
    let (tree, root) = machine();
    let mut group = criterion.benchmark_group("sense");

    let mut before = DiskStats::read(&root).expect("the machine's counters");
    fs::write(tree.path().join("proc/diskstats"), MACHINE.diskstats(1)).expect("the machine's counters");
    let mut now = DiskStats::default();
    group.bench_function("diskstats of 1000 devices", |bencher| {
        bencher.iter(|| {
            now.read_again(&root).expect("the machine's counters");
            let ios: u64 = now
                .since(&before)
                .filter_map(|(_, change)| change.delta())
                .map(|delta| delta.reads.ios)
                .sum();
            std::mem::swap(&mut before, &mut now);
            black_box(ios)
        });
    });
    group.bench_function("1000 volumes", |bencher| {
        bencher.iter(|| VolumeTree::read(black_box(&root)).expect("the machine's volumes"));
    });
    group.bench_function("10000 sessions", |bencher| {
        bencher.iter(|| {
            let all = sessions(black_box(&root));
            assert_eq!(all.sessions.len(), 10_000);
            all
        });
    });
    // As an agent reads them each second: nobody logs in or out, and on one device in ten something is going
    // on.
    let mut reader = SessionReader::new(root.clone());
    group.bench_function("10000 sessions again", |bencher| {
        bencher.iter(|| {
            let active = |device: DeviceNumber| device.minor.is_multiple_of(10);
            reader.read(|device| DeviceActivity { reads: active(device), writes: active(device) });
            assert_eq!(reader.sessions().sessions.len(), 10_000);
        });
    });
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(3)).sample_size(10);
    targets = sense
}
criterion_main!(benches);
