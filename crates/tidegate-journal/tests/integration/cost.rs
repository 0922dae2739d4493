//! Cost of a journal in bytes and processor time.
//!
//! `cargo test --release -p tidegate-journal --test integration cost -- --ignored --nocapture` prints the figures. The
//! ordinary test runs a moment of it, with wide bounds on the bytes, which do not depend on the machine.

use std::path::Path;
use std::time::Duration;

use crate::load::{LoadedResource, Sensor};
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64;
use rustix::time::{ClockId, clock_gettime};
use tidegate_control::{AutoConfig, LawConfig, LawKind};
use tidegate_journal::{
    EntryContent, EntryFilter, JournalConfig, JournalReader, JournalWriter, ResourceJournal,
};
use tidegate_units::Instant;

const INTERVAL: Duration = Duration::from_millis(100);

/// The gateway's default.
const DEFAULT_INTERVAL: Duration = Duration::from_millis(250);

/// Figures of a run.
#[derive(Debug)]
struct Cost {
    bytes: u64,
    /// Bytes of the checkpoints at the beginning.
    beginning: u64,
    decisions: u64,
    caller: f64,
    writer: f64,
}

impl Cost {
    fn per_decision(&self) -> f64 {
        (self.bytes - self.beginning) as f64 / self.decisions as f64
    }
}

/// Runs loops for a time, with timers that are late by some microseconds.
fn run(law: LawConfig, sensor: Sensor, active: u32, idle: u32, clients: u32, seconds: u32) -> Cost {
    run_each(INTERVAL, law, sensor, [active, idle], clients, seconds)
}

/// The same with an interval of a tenth or a quarter of a second.
fn run_each(
    interval: Duration,
    law: LawConfig,
    sensor: Sensor,
    [active, idle]: [u32; 2],
    clients: u32,
    seconds: u32,
) -> Cost {
    let per_second = u32::try_from(1_000 / interval.as_millis()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let config = JournalConfig::new(folder.path().to_owned(), "test".to_owned());
    let mut random = Pcg64::seed_from_u64(1);
    let mut now = Instant::from_nanos(1_000_000_000_000);
    let journal = JournalWriter::start(config, now).unwrap();
    let mut resources: Vec<(LoadedResource, ResourceJournal)> = Vec::new();
    for number in 0..active + idle {
        let resource = LoadedResource::new(number, law, interval, clients, sensor);
        let recorded = journal.resource(&resource.control, now);
        resources.push((resource, recorded));
    }
    assert!(journal.flush(Duration::from_secs(60)));
    let beginning = journal.retention().bytes;
    let (mut caller, mut decisions) = (Duration::ZERO, 0);
    let steps = seconds * per_second;
    let clock = cost_of_clock();
    let begin = [process_time(), thread_time()];
    for step in 1..=steps {
        let due = Instant::from_nanos(1_000_000_000_000) + interval * step;
        let mut late = || Duration::from_nanos(random.random_range(20_000..80_000));
        now = due + late();
        for (place, (resource, recorded)) in resources.iter_mut().enumerate() {
            if sensor != Sensor::Agent {
                // Each pool has a thread and a timer of its own.
                now = due + late();
            }
            let decided = if place < active as usize { resource.step(now) } else { resource.idle(now) };
            let (commands, decision) = (&decided.commands, &decided.decision);
            let handing = thread_time();
            recorded.record(
                &resource.control,
                &decided.observation,
                commands,
                decision,
                Some(&decided.reading),
            );
            caller += (thread_time() - handing).saturating_sub(clock);
            decisions += 1;
        }
        if step % per_second.div_ceil(2) == 0 {
            assert!(journal.flush(Duration::from_secs(60)));
        }
    }
    journal.close();
    let writer = (process_time() - begin[0]).saturating_sub(thread_time() - begin[1]);
    let retention = journal.retention();
    assert_eq!((retention.dropped, retention.is_failing), (0, false));
    check(folder.path(), decisions);
    let part = |time: Duration| time.as_secs_f64() / f64::from(seconds);
    Cost { bytes: retention.bytes, beginning, decisions, caller: part(caller), writer: part(writer) }
}

fn check(folder: &Path, decisions: u64) {
    let entries = JournalReader::open(folder).unwrap().entries(EntryFilter::default()).unwrap();
    let is_decision = |entry| matches!(entry, EntryContent::Decision(_));
    let read = entries.filter(|entry| is_decision(entry.as_ref().unwrap().content.clone())).count();
    assert_eq!(read as u64, decisions);
}

/// Processor time that reading the clock itself takes: it is about as much as handing over a decision.
fn cost_of_clock() -> Duration {
    let begin = thread_time();
    let end = (0..1_000).map(|_| thread_time()).max();
    (end.unwrap_or(begin) - begin) / 1_000
}

fn process_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap()
}

fn thread_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap()
}

#[test]
fn an_idle_resource_costs_less_than_a_byte_per_decision() {
    let cost = run(AutoConfig::default().into(), Sensor::Agent, 0, 100, 8, 20);
    assert!(cost.per_decision() < 0.3, "{cost:?}");
}

#[test]
fn active_resources_cost_what_the_documents_say() {
    for (sensor, clients, most) in
        [(Sensor::Gateway, 1, 5.0), (Sensor::Gateway, 8, 35.0), (Sensor::Agent, 8, 32.0)]
    {
        let cost = run(AutoConfig::default().into(), sensor, 10, 0, clients, 20);
        assert!(cost.per_decision() < most, "{sensor:?}, {clients} consumers: {cost:?}");
    }
}

#[test]
#[ignore = "a measurement, for a release build"]
fn figures() {
    let auto: LawConfig = AutoConfig::default().into();
    println!("active resources, bytes per decision:");
    for sensor in [Sensor::Exact, Sensor::Micros, Sensor::Gateway, Sensor::Agent] {
        for clients in [1, 2, 4, 8] {
            let cost = run(auto, sensor, 50, 0, clients, 60);
            println!("  {sensor:?}, {clients} consumers, auto: {:.1}", cost.per_decision());
        }
    }
    for (sensor, active, idle) in [(Sensor::Gateway, 1, 0), (Sensor::Gateway, 0, 1), (Sensor::Agent, 1, 0)] {
        let cost = run(auto, sensor, active, idle, 8, 60);
        println!("  alone, {sensor:?}, 8 consumers, {active} active: {:.1}", cost.per_decision());
    }
    for kind in [LawKind::Window, LawKind::Pid, LawKind::Integral, LawKind::SelfTuning] {
        let law = LawConfig::of_kind(kind);
        let cost = run(law, Sensor::Gateway, 50, 0, 8, 60);
        println!("  Gateway, 8 consumers, {kind:?}: {:.1}", cost.per_decision());
    }
    let idle = run(auto, Sensor::Agent, 0, 1_000, 8, 60);
    println!("idle resources, bytes per decision: {:.3}", idle.per_decision());
    println!("checkpoint of an idle resource with 8 consumers: {} bytes", idle.beginning / 1_000);
}

#[test]
#[ignore = "a measurement, for a release build"]
fn figures_of_a_large_host() {
    let auto: LawConfig = AutoConfig::default().into();
    let all = [(Sensor::Gateway, INTERVAL), (Sensor::Gateway, DEFAULT_INTERVAL), (Sensor::Agent, INTERVAL)];
    for (sensor, interval) in all {
        let all = run_each(interval, auto, sensor, [50, 950], 8, 60);
        let day = (all.bytes - all.beginning) as f64 / 60.0 * 86_400.0;
        println!(
            "{sensor:?}: 1000 resources of 8 consumers at {interval:?}, 50 active: {:.2} GiB a day; callers \
             {:.2} % of a core, writer {:.2} %",
            day / f64::from(1 << 30),
            100.0 * all.caller,
            100.0 * all.writer,
        );
    }
}
