//! A trial: a time on a dry run in the simulator, its rehearsal, and the same time with the law in force.

use std::time::Duration;

use serde::Serialize;
use tidegate_control::{LawConfig, LawKind, LoopConfig, Observation};
use tidegate_rehearsal::{Recording, RehearsalReport, rehearse};
use tidegate_sim::{Recorder, Scenario, SimulationOutcome, simulate};
use tidegate_units::HostName;

/// A storage with its load. The database is protected, and the backups come and go.
pub(crate) struct TrialCase {
    /// Its name.
    pub(crate) name: &'static str,
    /// The array, the host's target, and the consumers.
    pub(crate) text: &'static str,
}

/// A database with reads that arrive by themselves beside backups in bursts, on four exponential servers.
pub(crate) const QUEUE: TrialCase = TrialCase {
    name: "queue",
    text: "
[array.lun]
rate = '500 IO/s'
servers = 4
[host.h]
target = '15ms'
[workload.reads]
rate = '60 IO/s'
size = '8KiB'
[workload.writes]
outstanding = 8
size = '64KiB'
reads = 0.0
cycle = { on = '45s', off = '45s' }
[vm.database]
workload = 'reads'
protected = true
[vm.backup]
count = 2
workload = 'writes'
",
};

/// No protected consumer: an indexer and a batch, both closed, and a small reader.
pub(crate) const POOLED: TrialCase = TrialCase {
    name: "pooled",
    text: "
[array.lun]
rate = '2000 IO/s'
servers = 16
[host.h]
target = '20ms'
[workload.small]
rate = '200 IO/s'
size = '4KiB'
[workload.batch]
outstanding = 64
size = '32KiB'
reads = 0.5
cycle = { on = '30s', off = '60s' }
[vm.small]
workload = 'small'
[vm.batch]
workload = 'batch'
",
};

/// RAID 5 with a cache that acknowledges writes at once.
pub(crate) const CACHE: TrialCase = TrialCase {
    name: "cache",
    text: "
[array.lun]
preset = 'fc-raid5'
[host.h]
target = '12ms'
[workload.reads]
rate = '80 IO/s'
size = '8KiB'
[workload.writes]
outstanding = 8
size = '16KiB'
reads = 0.0
cycle = { on = '45s', off = '45s' }
[vm.database]
workload = 'reads'
protected = true
[vm.writer]
count = 2
workload = 'writes'
",
};

/// The queue, under the same load all the time.
pub(crate) const SATURATED: TrialCase = TrialCase {
    name: "saturated",
    text: "
[array.lun]
rate = '500 IO/s'
servers = 4
[host.h]
target = '15ms'
[workload.reads]
rate = '60 IO/s'
size = '8KiB'
[workload.writes]
outstanding = 8
size = '64KiB'
reads = 0.0
[vm.database]
workload = 'reads'
protected = true
[vm.backup]
count = 2
workload = 'writes'
",
};

/// The outcome of a trial.
#[derive(Debug, Serialize)]
pub(crate) struct TrialOutcome {
    /// Name of the case.
    pub(crate) case: &'static str,
    /// The seed of the simulations.
    pub(crate) seed: u64,
    /// The report.
    pub(crate) report: RehearsalReport,
    /// The fraction of seconds above the target with the law in force.
    pub(crate) actual_above_fraction: f64,
    /// Mean latency of the signal with the law in force, in seconds.
    pub(crate) actual_latency_seconds: f64,
    /// Throughput of each consumer with the law in force, as a multiple of that on the dry run.
    pub(crate) actual_throughput: Vec<(String, f64)>,
}

/// Simulates a case twice, on a dry run and with the law in force, and rehearses the first time.
pub(crate) fn trial(case: &TrialCase, seconds: u64, seed: u64) -> TrialOutcome {
    let dry = simulated(case, seconds, seed, true);
    let wet = simulated(case, seconds, seed, false);
    let report = rehearse(&dry.recording);
    let throughput = dry.outcome.consumers.iter().map(|(name, before)| {
        let after = wet.outcome.consumers.get(name.as_str()).map_or(0.0, |after| after.iops);
        (name.to_string(), after / before.iops)
    });
    // The same judgement of what was measured.
    let actual = rehearse(&wet.recording).measured;
    TrialOutcome {
        case: case.name,
        seed,
        actual_throughput: throughput.collect(),
        report,
        actual_above_fraction: actual.above_fraction,
        actual_latency_seconds: actual.latency_seconds,
    }
}

/// A simulated time.
pub(crate) struct SimulatedTime {
    /// Everything that the loop observed.
    pub(crate) recording: Recording,
    /// The outcome.
    pub(crate) outcome: SimulationOutcome,
}

/// Simulates a case under the law `auto`, on a dry run or not.
pub(crate) fn simulated(case: &TrialCase, seconds: u64, seed: u64, dry_run: bool) -> SimulatedTime {
    let head = format!("name = '{}'\nduration = '{seconds}s'\n", case.name);
    let mut scenario = Scenario::parse(case.name, &format!("{head}{}", case.text)).unwrap();
    let host = &mut scenario.hosts[0];
    let target = host.law.as_ref().unwrap().target;
    let law = LoopConfig {
        dry_run,
        interval: Duration::from_millis(250),
        ..LoopConfig::new(host.array.clone(), target, LawConfig::of_kind(LawKind::Auto))
    };
    let mut recording = Recording::new(host.array.clone());
    recording.configure(&law);
    host.law = Some(law);
    let mut recorder = LoopRecorder(recording);
    let outcome = simulate(&scenario, seed, &mut recorder).unwrap();
    SimulatedTime { recording: recorder.0, outcome }
}

/// Records what the loop observes.
struct LoopRecorder(Recording);

impl Recorder for LoopRecorder {
    fn observation(&mut self, _: &HostName, observation: &Observation) {
        let time = observation.at.as_nanos() as f64 / 1e9;
        // On its own, a host is not part of a cluster.
        let own = Observation { cluster: None, ..observation.clone() };
        self.0.push(time, &own, 0, None).unwrap();
    }

    fn wants_rows(&self) -> bool {
        false
    }
}
