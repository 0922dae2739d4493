//! Runs the scenarios on which laws did harm under every law, and prints a table and a JSON document.
//!
//! `harm FIRST-LAST`: the seeds.

#![allow(clippy::disallowed_methods, reason = "this reads the scenarios' files")]

use std::error::Error;
use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Mutex;
use std::thread;

use serde::Serialize;
use tidegate_control::{LawConfig, LawKind, LoopConfig, WindowConfig};
use tidegate_sim::{Scenario, SilentRecorder, SimulationOutcome, simulate};

type AnyError = Box<dyn Error + Send + Sync>;

/// Laws that one target suffices for; `None` regulates nothing.
const LAWS: [Option<LawKind>; 6] = [
    None,
    Some(LawKind::Auto),
    Some(LawKind::Window),
    Some(LawKind::Pid),
    Some(LawKind::SelfTuning),
    Some(LawKind::QueueingModel),
];

/// Means over the seeds.
#[derive(Debug, Clone, Copy, Default, Serialize)]
struct Figures {
    iops: f64,
    /// The mean latency of the slowest judged consumer.
    latency_ms: f64,
    /// The fraction of seconds above the target, of the worst judged consumer.
    above: f64,
}

#[derive(Debug, Serialize)]
struct Row {
    scenario: String,
    law: &'static str,
    #[serde(flatten)]
    mean: Figures,
}

fn under(scenario: &Scenario, law: Option<LawKind>) -> Result<Scenario, AnyError> {
    let mut scenario = scenario.clone();
    let shared = scenario.hosts.len() > 1;
    for host in &mut scenario.hosts {
        let target = host.law.as_ref().ok_or("a host without a target")?.target;
        let config = match law {
            Some(LawKind::Window) => LawConfig::Window(WindowConfig::for_resource(shared)),
            other => LawConfig::of_kind(other.unwrap_or(LawKind::Auto)),
        };
        let law =
            LoopConfig { dry_run: law.is_none(), ..LoopConfig::new(host.array.clone(), target, config) };
        host.law = Some(law);
    }
    Ok(scenario)
}

fn figures(scenario: &Scenario, outcome: &SimulationOutcome) -> Figures {
    let protects = scenario.vms.iter().any(|vm| vm.protected);
    let mut figures = Figures::default();
    for (name, consumer) in outcome.consumers.iter() {
        figures.iops += consumer.iops;
        if protects && !scenario.vms.iter().any(|vm| vm.name == *name && vm.protected) {
            continue;
        }
        figures.latency_ms = figures.latency_ms.max(consumer.device_latency_ms.unwrap_or(0.0));
        figures.above = figures.above.max(consumer.above_target_fraction.unwrap_or(0.0));
    }
    figures
}

fn run(name: &str, scenario: &Scenario, law: Option<LawKind>, seeds: (u64, u64)) -> Result<Row, AnyError> {
    let scenario = under(scenario, law)?;
    let mut mean = Figures::default();
    let count = (seeds.1 - seeds.0 + 1) as f64;
    for seed in seeds.0..=seeds.1 {
        let one = figures(&scenario, &simulate(&scenario, seed, &mut SilentRecorder)?);
        mean.iops += one.iops / count;
        mean.latency_ms += one.latency_ms / count;
        mean.above += one.above / count;
    }
    Ok(Row { scenario: name.to_owned(), law: law.map_or("none", LawKind::name), mean })
}

fn main() -> Result<(), AnyError> {
    let range = std::env::args().nth(1).ok_or("which seeds? FIRST-LAST")?;
    let (first, last) = range.split_once('-').ok_or("seeds are FIRST-LAST")?;
    let seeds: (u64, u64) = (first.parse()?, last.parse()?);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/harm");
    let mut files: Vec<_> =
        fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>()?;
    files.sort();
    let mut jobs = Vec::new();
    for file in &files {
        let name = file.file_stem().and_then(|stem| stem.to_str()).ok_or("a scenario's name")?;
        let scenario =
            Scenario::parse(name, &fs::read_to_string(file)?).map_err(|error| error.to_string())?;
        jobs.extend(LAWS.map(|law| (name.to_owned(), scenario.clone(), law)));
    }
    let places = Mutex::new(0..jobs.len());
    let rows = Mutex::new(Vec::new());
    let work = || -> Result<(), AnyError> {
        loop {
            let next = places.lock().map_err(|_| "a worker failed")?.next();
            let Some(place) = next else { return Ok(()) };
            let (name, scenario, law) = &jobs[place];
            let row = run(name, scenario, *law, seeds)?;
            rows.lock().map_err(|_| "a worker failed")?.push((place, row));
        }
    };
    thread::scope(|scope| {
        let workers: Vec<_> =
            (0..thread::available_parallelism().map_or(1, usize::from)).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().map_err(|_| "a worker failed")?)
    })?;
    let mut rows = rows.into_inner().map_err(|_| "a worker failed")?;
    rows.sort_by_key(|(place, _)| *place);
    let mut out = io::stdout().lock();
    for (_, row) in &rows {
        let Figures { iops, latency_ms, above } = row.mean;
        writeln!(
            out,
            "{:20} {:14} {iops:9.1} IO/s {latency_ms:9.2} ms {:6.1} %",
            row.scenario,
            row.law,
            100.0 * above
        )?;
    }
    let rows: Vec<_> = rows.into_iter().map(|(_, row)| row).collect();
    writeln!(out, "{}", serde_json::json!({ "seeds": [seeds.0, seeds.1], "rows": rows }))?;
    Ok(())
}
