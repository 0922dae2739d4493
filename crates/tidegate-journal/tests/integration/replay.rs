//! Recorded decisions, read back and replayed.

use std::path::Path;
use std::time::Duration;

use crate::load::{Decided, LoadedResource, Sensor};
use serde::Serialize;
use tidegate_control::{AutoConfig, LawConfig, LawKind, LoopConfig};
use tidegate_journal::{
    ActionRecord, ConsumerReading, EntryContent, EntryFilter, JournalConfig, JournalEntry, JournalReader,
    JournalWriter, LimitReading, LoopReplay, ReplayedDecision, ResourceJournal, ThrottleReading, WallTime,
};
use tidegate_units::{Bytes, Instant, Iops, Latency, ResourceName};

const LAWS: [LawKind; 6] = [
    LawKind::Auto,
    LawKind::Window,
    LawKind::Pid,
    LawKind::Integral,
    LawKind::SelfTuning,
    LawKind::QueueingModel,
];

const INTERVAL: Duration = Duration::from_millis(100);
const PATIENCE: Duration = Duration::from_secs(60);

fn start(folder: &Path, limit: Bytes) -> JournalWriter {
    let config = JournalConfig { limit, ..JournalConfig::new(folder.to_owned(), "test".to_owned()) };
    JournalWriter::start(config, at(0)).unwrap()
}

fn at(step: u32) -> Instant {
    Instant::from_nanos(1_000_000_000_000 + u64::from(step) * 100_000_000)
}

/// Every bit of a value.
fn bits(value: &impl Serialize) -> Vec<u8> {
    rmp_serde::to_vec_named(value).unwrap()
}

fn record(resource: &LoadedResource, journal: &mut ResourceJournal, decided: &Decided) {
    let Decided { observation, commands, decision, .. } = decided;
    journal.record(&resource.control, observation, commands, decision, None);
}

fn replayed(folder: &Path, filter: EntryFilter) -> Vec<ReplayedDecision> {
    let reader = JournalReader::open(folder).unwrap();
    reader.replay(filter, LoopReplay::as_recorded()).unwrap().map(Result::unwrap).collect()
}

fn entries(folder: &Path, filter: EntryFilter) -> Vec<JournalEntry> {
    let reader = JournalReader::open(folder).unwrap();
    reader.entries(filter).unwrap().map(Result::unwrap).collect()
}

#[test]
fn every_law_decides_in_a_replay_as_it_did_across_segments() {
    let folder = tempfile::tempdir().unwrap();
    // Segments of 16 KiB.
    let journal = start(folder.path(), JournalConfig::LEAST_LIMIT);
    let resource = |(number, kind): (usize, LawKind)| {
        let sensor = if number % 2 == 0 { Sensor::Exact } else { Sensor::Gateway };
        LoadedResource::new(number as u32, LawConfig::of_kind(kind), INTERVAL, 3, sensor)
    };
    let mut resources: Vec<_> = LAWS.into_iter().enumerate().map(resource).collect();
    let mut journals: Vec<_> =
        resources.iter().map(|resource| journal.resource(&resource.control, at(0))).collect();
    let mut expected = Vec::new();
    for step in 1..=400 {
        for (resource, journal) in resources.iter_mut().zip(&mut journals) {
            // A load, then silence, then a load.
            let is_idle = (150..250).contains(&step);
            let decided = if is_idle { resource.idle(at(step)) } else { resource.step(at(step)) };
            record(resource, journal, &decided);
            expected.push(decided);
        }
        if step % 20 == 0 {
            assert!(journal.flush(PATIENCE));
        }
    }
    journal.close();
    assert!(journal.retention().segments > 3, "{:?}", journal.retention());
    assert_eq!(journal.retention().dropped, 0);

    let mut replayed = replayed(folder.path(), EntryFilter::default());
    assert!(replayed.iter().all(ReplayedDecision::agrees));
    let key = |observation: &tidegate_control::Observation| (observation.at, observation.resource.clone());
    replayed.sort_by_key(|replayed| key(&replayed.recorded.observation()));
    expected.sort_by_key(|decided| key(&decided.observation));
    assert_eq!(replayed.len(), expected.len());
    for (replayed, expected) in replayed.iter().zip(&expected) {
        let (commands, decision) = replayed.recomputed.as_ref().unwrap();
        assert_eq!(bits(&replayed.recorded.observation()), bits(&expected.observation));
        assert_eq!(bits(replayed.recorded.commands()), bits(&expected.commands));
        assert_eq!(bits(commands), bits(&expected.commands));
        assert_eq!(bits(decision), bits(&expected.decision));
    }
}

#[test]
fn another_configuration_parts_from_the_recording_where_it_decides_otherwise() {
    let folder = tempfile::tempdir().unwrap();
    let journal = start(folder.path(), Bytes::from_mib(64));
    let law = LawConfig::of_kind(LawKind::Window);
    let mut resource = LoadedResource::new(0, law, INTERVAL, 3, Sensor::Gateway);
    let mut recorded = journal.resource(&resource.control, at(0));
    for step in 1..=100 {
        let decided = resource.step(at(step));
        record(&resource, &mut recorded, &decided);
    }
    journal.close();
    let reader = JournalReader::open(folder.path()).unwrap();
    let all = EntryFilter::default;
    let same = LoopReplay::changed(Box::new(LoopConfig::clone));
    assert_eq!(reader.replay(all(), same).unwrap().first_difference().unwrap(), None);
    let generous = |config: &LoopConfig| LoopConfig { target: Latency::from_millis(500), ..config.clone() };
    let mut replay = reader.replay(all(), LoopReplay::changed(Box::new(generous))).unwrap();
    let difference = replay.first_difference().unwrap().expect("the target is another one");
    let (commands, decision) = difference.recomputed.as_ref().unwrap();
    assert!(commands.window > difference.recorded.commands().window, "{decision}");
    assert!(replay.loops().unreadable().is_empty());
}

#[test]
fn a_reload_is_replayed_and_one_that_was_not_told_is_a_gap() {
    let folder = tempfile::tempdir().unwrap();
    let journal = start(folder.path(), Bytes::from_mib(64));
    let mut resource = LoadedResource::new(0, AutoConfig::default().into(), INTERVAL, 3, Sensor::Gateway);
    let mut recorded = journal.resource(&resource.control, at(0));
    for step in 1..=90 {
        if step % 30 == 0 {
            let target = Latency::from_millis(u64::from(step));
            let config = LoopConfig { target, ..resource.control.config().clone() };
            resource.control.reconfigure(config).unwrap();
            if step == 30 {
                recorded.checkpoint(&resource.control);
            }
        }
        let decided = resource.step(at(step));
        record(&resource, &mut recorded, &decided);
    }
    journal.close();
    let replayed = replayed(folder.path(), EntryFilter::default());
    assert!(replayed.iter().all(ReplayedDecision::agrees));
    let times: Vec<_> = replayed.iter().map(|replayed| replayed.recorded.at).collect();
    let expected: Vec<_> = (1..=90).filter(|step| ![60, 90].contains(step)).map(at).collect();
    assert_eq!(times, expected, "the decisions of loops without a checkpoint are missing");
    let is_gap = |entry: &JournalEntry| matches!(&entry.content, EntryContent::Gap(_));
    assert!(entries(folder.path(), EntryFilter::default()).iter().any(is_gap));
    assert_eq!(journal.retention().dropped, 2);
}

#[test]
fn actions_readings_and_spans_are_read_back() {
    let folder = tempfile::tempdir().unwrap();
    let journal = start(folder.path(), Bytes::from_mib(64));
    let mut resources = [0, 1]
        .map(|number| LoadedResource::new(number, AutoConfig::default().into(), INTERVAL, 2, Sensor::Agent));
    let mut journals = resources.each_ref().map(|resource| journal.resource(&resource.control, at(0)));
    let mut readings = Vec::new();
    for step in 1..=50 {
        for (resource, journal) in resources.iter_mut().zip(&mut journals) {
            let Decided { observation, commands, decision, .. } = resource.step(at(step));
            let consumer = |each: &tidegate_control::ConsumerCommand| ConsumerReading {
                name: each.name.clone(),
                delay: (step > 10).then_some(Latency::from_micros(64 * u64::from(step / 5))),
                reads: LimitReading::default(),
                writes: LimitReading {
                    rate: each.rate.or(Some(Iops::new(0.1 * f64::from(step)))),
                    bytes: None,
                },
            };
            let consumers = commands.consumers.iter().map(consumer).collect();
            let reading = (step > 5).then_some(ThrottleReading { window: commands.window, consumers });
            journal.record(&resource.control, &observation, &commands, &decision, reading.as_ref());
            readings.push((observation.resource.clone(), observation.at, reading));
        }
    }
    let action = ActionRecord { resource: None, actor: "root".to_owned(), text: "release".to_owned() };
    journal.action(action.clone());
    journal.close();

    let name = ResourceName::new("resource-1").unwrap();
    let one = EntryFilter { resource: Some(name.clone()), ..EntryFilter::default() };
    let read = entries(folder.path(), one.clone());
    let found = read.iter().filter_map(|entry| match &entry.content {
        EntryContent::Decision(decision) => Some((decision.at, decision.reading().cloned())),
        _ => None,
    });
    let expected = readings.into_iter().filter(|(resource, ..)| *resource == name);
    assert!(found.eq(expected.map(|(_, at, reading)| (at, reading))));
    let actions = read.iter().filter(|entry| entry.content == EntryContent::Action(action.clone()));
    assert_eq!(actions.count(), 1, "an action on all resources is one on this one");

    // The decisions have times of the loops' clock, at which the journal began.
    let times: Vec<_> = replayed(folder.path(), one.clone()).iter().map(|replayed| replayed.time).collect();
    let span = EntryFilter { from: times[20], until: times[29], ..one };
    let in_span = replayed(folder.path(), span);
    assert_eq!(in_span.iter().map(|replayed| replayed.time).collect::<Vec<_>>(), times[20..30]);
    assert!(in_span.iter().all(ReplayedDecision::agrees), "replayed from the checkpoint before");
}

#[test]
fn a_time_that_is_not_kept_is_an_error_that_says_what_is() {
    let folder = tempfile::tempdir().unwrap();
    let error = JournalReader::open(folder.path()).unwrap_err().to_string();
    assert!(error.ends_with("there is no decision journal"), "{error}");
    let journal = start(folder.path(), Bytes::from_mib(64));
    journal.close();
    let reader = JournalReader::open(folder.path()).unwrap();
    let before = EntryFilter { until: WallTime::from_nanos(1), ..EntryFilter::default() };
    let error = reader.entries(before).unwrap_err().to_string();
    assert!(error.contains("nothing is kept of 1970-01-01T00:00:00.000Z to 1970-01-01"), "{error}");
    let after = EntryFilter { from: WallTime::MAX, ..EntryFilter::default() };
    assert!(reader.entries(after).is_err());
    assert_eq!(reader.entries(EntryFilter::default()).unwrap().count(), 0);
}
