//! A scenario of the tournament: its consumers' targets, and the stretches of time that are measured.

use std::time::Duration;

use tidegate_control::Bands;
use tidegate_device::DeviceConfig;
use tidegate_sim::Scenario;
use tidegate_sim::scenario::ChangedArray;
use tidegate_units::Latency;

use super::texts::title;
use crate::TimeSpan;

/// Laws steer to this part of the target: the default of a loop.
pub(super) const SET_POINT: f64 = 0.8;

/// The first seconds of a phase, which are left out of its throughput: they are not what it comes to.
pub(super) const SETTLES: f64 = 5.0;

/// Consumers with one target.
#[derive(Debug, Clone)]
pub struct TargetGroup {
    /// The consumers whose requests count.
    consumers: Vec<&'static str>,
    /// Targets: the second from which each applies, and its milliseconds.
    targets: Vec<(f64, f64)>,
}

impl TargetGroup {
    pub(super) fn has(&self, consumer: &str) -> bool {
        self.consumers.contains(&consumer)
    }

    /// Returns the target in a second that ends at `end`, in milliseconds.
    pub(super) fn target_ms(&self, end: f64) -> f64 {
        let now = self.targets.iter().rfind(|(from, _)| *from < end).or(self.targets.first());
        now.map_or(f64::INFINITY, |(_, ms)| *ms)
    }
}

/// A stretch of time with one storage and one set of targets.
#[derive(Debug, Clone)]
pub struct StoragePhase {
    /// The time of the phase.
    pub span: TimeSpan,
}

impl StoragePhase {
    pub(super) fn seconds(&self) -> f64 {
        self.span.to - self.span.from
    }
}

/// A scenario that laws compete on.
#[derive(Debug, Clone)]
pub struct Contest {
    /// `paper.what`.
    pub id: &'static str,
    /// In a line.
    pub title: &'static str,
    /// Without laws.
    pub scenario: Scenario,
    /// The bands that divide the throughput, where shares do not.
    pub bands: Option<Bands>,
    /// The time when the laws begin.
    pub begins: Duration,
    /// The greatest throughput of the storage, in IO/s.
    pub capacity: f64,
    /// There is not always enough to do to reach the target.
    pub comes_and_goes: bool,
    /// The number of I/Os of 64 KiB that a request counts as.
    pub ios_per_request: f64,
    /// The groups of consumers whose response times count.
    pub groups: Vec<TargetGroup>,
    /// The stretches that each begin when the load begins anew, if it pauses.
    pub bursts: Vec<TimeSpan>,
    /// The stretches in which all consumers have more to do than they are given.
    pub shared: Vec<TimeSpan>,
}

impl Contest {
    /// One storage, one target for all, always enough to do, a second after the other.
    pub(super) fn new(id: &'static str, text: &str) -> Self {
        let scenario = Scenario::parse("embedded", text)
            .unwrap_or_else(|error| panic!("a scenario of ours is wrong: {id}: {error}"));
        Self {
            id,
            title: title(id),
            bands: None,
            begins: Duration::ZERO,
            capacity: 1_000.0,
            comes_and_goes: false,
            ios_per_request: 1.0,
            groups: Vec::new(),
            bursts: Vec::new(),
            shared: Vec::new(),
            scenario,
        }
    }

    pub(super) fn group(mut self, consumers: &[&'static str], targets: &[(f64, f64)]) -> Self {
        self.groups.push(TargetGroup { consumers: consumers.to_vec(), targets: targets.to_vec() });
        self
    }

    /// Returns its duration in seconds.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.scenario.duration.as_secs_f64()
    }

    /// The shortest target at the beginning: what a law without goals is told.
    #[must_use]
    pub fn target(&self) -> Latency {
        let shortest = self.groups.iter().map(|group| group.target_ms(0.0)).fold(f64::INFINITY, f64::min);
        Latency::from_millis_f64(shortest)
    }

    /// Returns the times when storage or targets change.
    fn changes(&self) -> Vec<f64> {
        let storage = self
            .scenario
            .arrays
            .iter()
            .flat_map(|array| &array.changes)
            .map(|change| change.at.as_secs_f64());
        let goals = self.groups.iter().flat_map(|group| &group.targets).map(|(from, _)| *from);
        let mut changes: Vec<f64> =
            storage.chain(goals).filter(|at| *at > self.begins.as_secs_f64()).collect();
        changes.sort_by(f64::total_cmp);
        changes.dedup();
        changes
    }

    /// The phases of storage and targets from the laws' beginning on.
    #[must_use]
    pub fn phases(&self) -> Vec<StoragePhase> {
        let mut from = self.begins.as_secs_f64();
        let ends = self.changes().into_iter().chain([self.seconds()]);
        ends.map(|to| StoragePhase { span: TimeSpan::new(std::mem::replace(&mut from, to), to) }).collect()
    }

    /// Returns the stretches that are looked at by themselves: each burst, or each phase.
    #[must_use]
    pub fn stretches(&self) -> Vec<TimeSpan> {
        if self.bursts.is_empty() {
            self.phases().iter().map(|phase| phase.span).collect()
        } else {
            self.bursts.clone()
        }
    }

    /// The scenario as it is in a phase, from its beginning on.
    pub(super) fn alone(&self, phase: &StoragePhase) -> Scenario {
        let mut scenario = self.scenario.clone();
        scenario.duration = Duration::from_secs_f64(phase.seconds());
        for array in &mut scenario.arrays {
            for change in std::mem::take(&mut array.changes) {
                if change.at.as_secs_f64() <= phase.span.from {
                    match (change.to, &mut array.device) {
                        (ChangedArray::Device(device), _) => array.device = device,
                        (ChangedArray::Rate(rate), DeviceConfig::Exponential(server)) => server.rate = rate,
                        (ChangedArray::Rate(_), _) => {
                            unreachable!("a scenario's storage is checked: only such a one's rate changes")
                        }
                    }
                }
            }
        }
        scenario
    }

    /// The same with the targets of a phase from the beginning on.
    pub(super) fn from(&self, phase: &StoragePhase) -> Self {
        let mut contest = self.clone();
        for group in &mut contest.groups {
            group.targets = vec![(0.0, group.target_ms(phase.span.to))];
        }
        contest
    }
}
