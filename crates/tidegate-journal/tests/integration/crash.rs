//! Journals after SIGKILL of their writer, and journals that were damaged.
//!
//! `TIDEGATE_KILL_ROUNDS=100 cargo test --release -p tidegate-journal --test integration crash` kills a hundred writers
//! instead of twenty, and demands that each loses at most its last second. The ordinary test allows more: a
//! busy machine may give the writer's thread no processor for seconds.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant as MachineInstant};

use crate::load::{LoadedResource, Sensor};
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64;
use rustix::time::{ClockId, clock_gettime};
use tidegate_control::AutoConfig;
use tidegate_journal::{
    EntryContent, EntryFilter, JournalConfig, JournalError, JournalReader, JournalWriter, LoopReplay,
};
use tidegate_testing::test_command;
use tidegate_units::{Bytes, Instant};

const INTERVAL: Duration = Duration::from_millis(100);
const PATIENCE: Duration = Duration::from_secs(60);
const FOLDER: &str = "TIDEGATE_JOURNAL_TEST_FOLDER";
const RESOURCES: u32 = 3;

fn resources() -> Vec<LoadedResource> {
    let new =
        |number| LoadedResource::new(number, AutoConfig::default().into(), INTERVAL, 3, Sensor::Gateway);
    (0..RESOURCES).map(new).collect()
}

fn at(step: u32) -> Instant {
    Instant::from_nanos(1_000_000_000_000 + u64::from(step) * 100_000_000)
}

fn machine_nanos() -> u128 {
    Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap().as_nanos()
}

/// The process that is killed: it says each step with the time at which it was handed over.
#[test]
#[ignore = "another test starts this one"]
fn writer_process() {
    let folder = std::env::var(FOLDER).unwrap();
    // Small segments, so that some writers are killed while resources move from one to the next.
    let config = JournalConfig {
        limit: Bytes::from_mib(2),
        ..JournalConfig::new(PathBuf::from(folder), "test".to_owned())
    };
    let journal = JournalWriter::start(config, at(0)).unwrap();
    let mut resources = resources();
    let mut journals: Vec<_> =
        resources.iter().map(|resource| journal.resource(&resource.control, at(0))).collect();
    let mut out = std::io::stdout();
    for step in 1.. {
        for (resource, journal) in resources.iter_mut().zip(&mut journals) {
            let decided = resource.step(at(step));
            let (commands, decision) = (&decided.commands, &decided.decision);
            journal.record(&resource.control, &decided.observation, commands, decision, None);
        }
        let written = journal.retention().written;
        writeln!(out, "step {step} {} {written}", machine_nanos()).unwrap();
        // The pace of the steps.
        thread::sleep(Duration::from_millis(2));
    }
}

/// Kills a writer after this many steps. Returns the steps with their times, the number of entries that the
/// writer said were written, and the time of the end.
fn kill_after(folder: &Path, steps: usize) -> (Vec<u128>, u64, u128) {
    let mut child = test_command(module_path!(), "writer_process", &[])
        .env(FOLDER, folder)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let (mut handed_over, mut written, mut killed) = (Vec::new(), 0, 0);
    for line in lines {
        let line = line.unwrap();
        // The name of the test stands before the first step.
        let Some((_, step)) = line.split_once("step ") else { continue };
        let fields: Vec<u128> = step.split(' ').filter_map(|field| field.parse().ok()).collect();
        // The last line may be cut.
        if let [_, time, entries] = fields[..] {
            handed_over.push(time);
            written = written.max(entries as u64);
        }
        if handed_over.len() == steps {
            child.kill().unwrap();
            killed = machine_nanos();
        }
    }
    child.wait().unwrap();
    assert!(killed > 0, "the writer ended by itself");
    (handed_over, written, killed)
}

#[test]
fn a_killed_writer_loses_its_last_second_at_most_and_nothing_becomes_unreadable() {
    let rounds = std::env::var("TIDEGATE_KILL_ROUNDS").ok().and_then(|rounds| rounds.parse().ok());
    let most = Duration::from_secs(if rounds.is_some() { 1 } else { 30 });
    let mut random = Pcg64::seed_from_u64(7);
    let mut worst = Duration::ZERO;
    for round in 0..rounds.unwrap_or(20) {
        let folder = tempfile::tempdir().unwrap();
        let (handed_over, written, killed) = kill_after(folder.path(), random.random_range(1..900));
        let reader = match JournalReader::open(folder.path()) {
            Ok(reader) => reader,
            Err(error) => panic!("round {round}: {error}"),
        };
        let (mut found, mut entries) = (vec![0_u32; RESOURCES as usize], 0_u64);
        let mut expected: Vec<_> = resources();
        for entry in reader.entries(EntryFilter::default()).unwrap() {
            entries += 1;
            match entry {
                Ok(entry) => {
                    let EntryContent::Decision(decision) = entry.content else { continue };
                    let place: usize = decision.resource().as_str()["resource-".len()..].parse().unwrap();
                    found[place] += 1;
                    // The same steps, in their order, and no other.
                    let again = expected[place].step(at(found[place]));
                    assert_eq!(decision.observation(), again.observation);
                    assert_eq!(decision.commands(), &again.commands);
                }
                Err(JournalError::Truncated { .. }) => {}
                Err(error) => panic!("round {round}: {error}"),
            }
        }
        assert!(entries >= written, "round {round}: {entries} of {written} written entries");
        for resource in found {
            let lost = handed_over.get(resource as usize);
            let lost = lost.map_or(0, |&first_lost| killed.saturating_sub(first_lost));
            let lost = Duration::from_nanos(lost as u64);
            worst = worst.max(lost);
            assert!(lost <= most, "round {round}: {lost:?} are lost");
        }
        let replay = LoopReplay::as_recorded();
        let replayed = reader.replay(EntryFilter::default(), replay).unwrap();
        assert!(replayed.flatten().all(|replayed| replayed.agrees()));
    }
    println!("at most {worst:?} were lost");
}

/// A journal of some blocks. Returns the bytes of its segment, and its entries as texts.
fn small_journal(folder: &Path) -> (PathBuf, Vec<u8>, Vec<String>) {
    let config = JournalConfig::new(folder.to_owned(), "test".to_owned());
    let journal = JournalWriter::start(config, at(0)).unwrap();
    let mut resources = resources();
    resources.truncate(2);
    let mut journals: Vec<_> =
        resources.iter().map(|resource| journal.resource(&resource.control, at(0))).collect();
    for step in 1..=12 {
        for (resource, journal) in resources.iter_mut().zip(&mut journals) {
            let decided = if step > 6 { resource.idle(at(step)) } else { resource.step(at(step)) };
            let (commands, decision) = (&decided.commands, &decided.decision);
            journal.record(&resource.control, &decided.observation, commands, decision, None);
        }
        if step % 3 == 0 {
            assert!(journal.flush(PATIENCE));
        }
    }
    journal.close();
    let is_segment = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "tdgj");
    let path = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).find(is_segment).unwrap();
    let (entries, error) = read(folder);
    assert!(error.is_none());
    (path.clone(), fs::read(path).unwrap(), entries)
}

fn read(folder: &Path) -> (Vec<String>, Option<JournalError>) {
    let (mut entries, mut error) = (Vec::new(), None);
    for entry in JournalReader::open(folder).unwrap().entries(EntryFilter::default()).unwrap() {
        match entry {
            Ok(entry) => entries.push(format!("{entry:?}")),
            Err(found) => error = Some(found),
        }
    }
    (entries, error)
}

#[test]
fn a_changed_byte_anywhere_is_an_error_and_never_a_wrong_entry() {
    let folder = tempfile::tempdir().unwrap();
    let (path, bytes, entries) = small_journal(folder.path());
    assert_eq!(entries.len(), 26, "two checkpoints, 24 decisions");
    let begun = MachineInstant::now();
    for place in 0..bytes.len() {
        // Every place while there is time, and then every seventh one.
        if begun.elapsed() > Duration::from_secs(20) && place % 7 > 0 {
            continue;
        }
        let mut changed = bytes.clone();
        changed[place] ^= [0x01, 0x80, 0xff][place % 3];
        fs::write(&path, &changed).unwrap();
        let (found, error) = read(folder.path());
        assert!(error.is_some(), "byte {place}: nothing was noticed");
        assert!(entries.starts_with(&found), "byte {place}: wrong entries");
    }
}

#[test]
fn a_torn_end_is_said_with_its_place_and_everything_before_it_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let (path, bytes, entries) = small_journal(folder.path());
    let (mut whole, mut least) = (0, 0);
    for length in 0..bytes.len() {
        fs::write(&path, &bytes[..length]).unwrap();
        let (found, error) = read(folder.path());
        assert!(entries.starts_with(&found) && found.len() >= least, "{length} bytes");
        least = found.len();
        match error {
            Some(JournalError::Truncated { offset, dropped, .. }) => {
                assert_eq!(offset + dropped, length as u64);
            }
            None => whole += 1,
            Some(error) => panic!("{length} bytes: {error}"),
        }
    }
    assert!(whole >= 4, "after the header and after each block nothing is torn: {whole}");
    // A power failure may leave zeros where a page was not written.
    fs::write(&path, [&bytes[..], &[0; 4_096]].concat()).unwrap();
    let (found, error) = read(folder.path());
    assert_eq!(found, entries);
    assert!(matches!(error, Some(JournalError::Checksum { dropped: 4_096, .. })), "{error:?}");
}

#[test]
fn files_that_are_no_segments_are_said_and_the_others_read() {
    let folder = tempfile::tempdir().unwrap();
    let (_, bytes, entries) = small_journal(folder.path());
    let foreign = folder.path().join("0000000000-0000000000001.tdgj");
    fs::write(&foreign, b"{\"a\": \"foreign file\"}").unwrap();
    let (found, error) = read(folder.path());
    assert!(matches!(error, Some(JournalError::NotAJournal { .. })), "{error:?}");
    assert_eq!(found, entries);
    let mut newer = bytes;
    newer[8] = 9;
    fs::write(&foreign, &newer).unwrap();
    let (found, error) = read(folder.path());
    assert!(matches!(error, Some(JournalError::NewerVersion { found: 9, offset: 8, .. })), "{error:?}");
    assert_eq!(found, entries);
}
