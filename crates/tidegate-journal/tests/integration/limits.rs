//! Bounds of a journal on disk, and its folder.

use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::load::{LoadedResource, Sensor};
use tidegate_control::AutoConfig;
use tidegate_journal::{
    EntryFilter, JournalConfig, JournalError, JournalReader, JournalWriter, LoopReplay, ReplayedDecision,
};
use tidegate_units::{Bytes, Instant};

const INTERVAL: Duration = Duration::from_millis(100);
const PATIENCE: Duration = Duration::from_secs(60);

fn config(folder: &Path) -> JournalConfig {
    let config = JournalConfig::new(folder.to_owned(), "test".to_owned());
    JournalConfig { limit: JournalConfig::LEAST_LIMIT, ..config }
}

fn bytes(folder: &Path) -> u64 {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).sum()
}

#[test]
fn the_oldest_segments_go_so_that_the_rest_stays_within_the_limit() {
    let folder = tempfile::tempdir().unwrap();
    let mut now = Instant::from_nanos(1_000_000_000_000);
    let journal = JournalWriter::start(config(folder.path()), now).unwrap();
    let mut resources: Vec<_> = (0..10)
        .map(|number| {
            let law = AutoConfig::default().into();
            let resource = LoadedResource::new(number, law, INTERVAL, 4, Sensor::Exact);
            let recorded = journal.resource(&resource.control, now);
            (resource, recorded)
        })
        .collect();
    let mut steps = 0;
    let mut greatest = 0;
    // Twice as much as there is room for.
    while journal.retention().written < 40_000 {
        for _ in 0..50 {
            now = now + INTERVAL;
            steps += 1;
            for (resource, recorded) in &mut resources {
                let decided = resource.step(now);
                let (commands, decision) = (&decided.commands, &decided.decision);
                recorded.record(&resource.control, &decided.observation, commands, decision, None);
            }
        }
        assert!(journal.flush(PATIENCE));
        greatest = greatest.max(bytes(folder.path()));
        assert!(greatest <= JournalConfig::LEAST_LIMIT.get(), "{greatest} bytes");
    }
    journal.close();
    let retention = journal.retention();
    assert_eq!((retention.dropped, retention.bytes), (0, bytes(folder.path())));
    assert!(greatest > JournalConfig::LEAST_LIMIT.get() * 8 / 10, "{greatest} bytes");
    assert!(retention.segments > 8, "{retention:?}");

    let reader = JournalReader::open(folder.path()).unwrap();
    assert_eq!((reader.oldest(), reader.bytes()), (retention.oldest, retention.bytes));
    let replay = reader.replay(EntryFilter::default(), LoopReplay::as_recorded()).unwrap();
    let replayed: Vec<ReplayedDecision> = replay.map(Result::unwrap).collect();
    assert!(replayed.iter().all(ReplayedDecision::agrees));
    assert!((3_000..steps * 10).contains(&replayed.len()), "{} of {steps} steps", replayed.len());
    assert_eq!(replayed.last().unwrap().recorded.at, now, "the newest are kept");
}

#[test]
fn a_folder_has_one_writer_and_each_start_begins_a_segment() {
    let folder = tempfile::tempdir().unwrap();
    let first = JournalWriter::start(config(folder.path()), Instant::ZERO).unwrap();
    let second = JournalWriter::start(config(folder.path()), Instant::ZERO);
    assert!(matches!(second, Err(JournalError::InUse(_))), "{second:?}");
    first.close();
    let second = JournalWriter::start(config(folder.path()), Instant::ZERO).unwrap();
    assert_eq!(second.retention().segments, 2);
    second.close();
    assert_eq!(
        JournalReader::open(folder.path()).unwrap().entries(EntryFilter::default()).unwrap().count(),
        0
    );
}

#[test]
fn limits_and_folders_that_cannot_be_are_errors_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let small = JournalConfig { limit: Bytes::from_kib(64), ..config(folder.path()) };
    let error = JournalWriter::start(small, Instant::ZERO).unwrap_err().to_string();
    assert_eq!(error, "a decision journal needs at least 1048576 bytes, 65536 are allowed");
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    assert!(matches!(JournalWriter::start(config(&file), Instant::ZERO), Err(JournalError::Io { .. })));
}

#[test]
fn what_is_handed_over_after_the_end_is_dropped() {
    let folder = tempfile::tempdir().unwrap();
    let journal = JournalWriter::start(config(folder.path()), Instant::ZERO).unwrap();
    journal.close();
    let mut resource = LoadedResource::new(0, AutoConfig::default().into(), INTERVAL, 1, Sensor::Agent);
    let mut recorded = journal.resource(&resource.control, Instant::ZERO);
    let decided = resource.idle(Instant::from_nanos(1));
    let (commands, decision) = (&decided.commands, &decided.decision);
    recorded.record(&resource.control, &decided.observation, commands, decision, None);
    journal.close();
    assert_eq!(journal.retention().written, 0);
}
