//! The oracle: the best static setting of each stretch, found by search.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate_control::{LawConfig, LoopConfig, WindowConfig};
use tidegate_device::DeviceConfig;
use tidegate_sim::scenario::ChangedArray;
use tidegate_sim::{ScenarioError, simulate};
use tidegate_units::Window;

use super::ArenaScenario;
use super::figures::RunFigures;
use crate::SeriesRecorder;

/// The fraction of intervals that may be above the target.
pub(super) const ALLOWED: f64 = 0.02;

/// Halvings of the range of windows, in the logarithm.
const HALVINGS: u32 = 7;

/// The smallest window tried.
const LEAST: f64 = 0.25;

/// A static setting, and what it gives.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StaticSetting {
    /// The window of all hosts together; `None`: unregulated.
    pub window: Option<f64>,
    /// The service under it.
    pub figures: RunFigures,
}

/// The static settings tried in one stretch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StretchFront {
    /// Its length in seconds.
    pub seconds: f64,
    /// The settings, the unregulated one first.
    pub settings: Vec<StaticSetting>,
}

impl StretchFront {
    /// Returns the best setting with at most this fraction above; if there is none, that with the least.
    #[must_use]
    pub fn best(&self, above: f64) -> &StaticSetting {
        let within = self.settings.iter().filter(|setting| setting.figures.above <= above + 1e-9);
        within
            .max_by(|one, other| one.figures.iops.total_cmp(&other.figures.iops))
            .or_else(|| {
                self.settings.iter().min_by(|one, other| one.figures.above.total_cmp(&other.figures.above))
            })
            .expect("the unregulated setting is always there")
    }
}

/// The oracle of a scenario.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ArenaOracle {
    /// The unregulated run.
    pub unregulated: RunFigures,
    /// The fronts of the stretches between changes of the storage.
    pub stretches: Vec<StretchFront>,
    /// True if the target can be kept: by the protected consumers alone, or by some static setting.
    pub attainable: bool,
}

impl ArenaOracle {
    /// Searches the oracle of a scenario.
    ///
    /// # Errors
    /// When the scenario cannot be simulated.
    pub fn search(arena: &ArenaScenario) -> Result<Self, ScenarioError> {
        let unregulated = run(arena, None, &[])?;
        let mut stretches = Vec::new();
        let parts = arena.stretches();
        for part in &parts {
            stretches.push(front(part)?);
        }
        let attainable = if let Some(alone) = arena.protected_alone() {
            run(&alone, None, &[])?.above <= ALLOWED
        } else {
            stretches.iter().all(|stretch| stretch.best(ALLOWED).figures.above <= ALLOWED + 1e-9)
        };
        Ok(Self { unregulated, stretches, attainable })
    }

    /// Returns the throughput of the best settings in each stretch, for a law with this fraction above.
    #[must_use]
    pub fn best(&self, above: f64) -> Vec<f64> {
        let above = if self.attainable { ALLOWED } else { above.max(ALLOWED) };
        self.stretches.iter().map(|stretch| stretch.best(above).figures.iops).collect()
    }

    /// Returns each eligible consumer's throughput under the best settings.
    #[must_use]
    pub fn best_each(&self, above: f64) -> Vec<f64> {
        let above = if self.attainable { ALLOWED } else { above.max(ALLOWED) };
        let all: f64 = self.stretches.iter().map(|stretch| stretch.seconds).sum();
        let mut sums: Vec<f64> = Vec::new();
        for stretch in &self.stretches {
            let each = &stretch.best(above).figures.each;
            sums.resize(each.len(), 0.0);
            for (sum, own) in sums.iter_mut().zip(each) {
                *sum += own * stretch.seconds / all;
            }
        }
        sums
    }

    /// Returns the throughput of the best settings over the whole run.
    #[must_use]
    pub fn throughput(&self, above: f64) -> f64 {
        self.best_each(above).iter().sum()
    }
}

fn front(arena: &ArenaScenario) -> Result<StretchFront, ScenarioError> {
    let open = run(arena, None, &[])?;
    let mut front = StretchFront {
        seconds: arena.seconds(),
        settings: vec![StaticSetting { window: None, figures: open.clone() }],
    };
    if open.above <= ALLOWED {
        return Ok(front);
    }
    let (mut low, mut high) = (LEAST.ln(), open.outstanding.max(2.0 * LEAST).ln());
    for _ in 0..HALVINGS {
        let middle = f64::midpoint(low, high);
        let figures = run(arena, Some(middle.exp()), &[])?;
        if figures.above <= ALLOWED { low = middle } else { high = middle }
        front.settings.push(StaticSetting { window: Some(middle.exp()), figures });
    }
    Ok(front)
}

/// Runs a scenario under a static window of all hosts together, divided by shares.
pub(super) fn run(
    arena: &ArenaScenario,
    window: Option<f64>,
    best: &[f64],
) -> Result<RunFigures, ScenarioError> {
    let mut scenario = arena.scenario.clone();
    if let Some(window) = window {
        let shares = |host: &tidegate_units::HostName| -> f64 {
            let own = arena.scenario.vms.iter().filter(|vm| vm.host == *host && !vm.protected);
            own.map(|vm| vm.shares.as_f64()).sum()
        };
        let all: f64 = arena.scenario.hosts.iter().map(|host| shares(&host.name)).sum();
        for host in &mut scenario.hosts {
            let own = Window::new((window * shares(&host.name) / all.max(1.0)).max(0.01));
            let law = LawConfig::Window(WindowConfig { least: own, greatest: own, ..WindowConfig::default() });
            host.law = Some(LoopConfig::new(host.array.clone(), arena.target, law));
        }
    }
    let mut tracks = SeriesRecorder::default();
    let outcome = simulate(&scenario, arena.seed, &mut tracks)?;
    Ok(RunFigures::of(arena, &tracks.with(outcome, &scenario), best))
}

impl ArenaScenario {
    /// The stretches between changes of the storage, each as a scenario of its own.
    fn stretches(&self) -> Vec<Self> {
        if self.scenario.arrays[0].changes.is_empty() {
            return vec![self.clone()];
        }
        let ends = self.changes.iter().copied().chain([self.seconds()]);
        let mut from = 0.0;
        let mut device = self.scenario.arrays[0].device.clone();
        let mut stretches = Vec::new();
        for (number, to) in ends.enumerate() {
            let mut part = self.clone();
            part.changes.clear();
            part.scenario.duration = Duration::from_secs_f64(to - from);
            part.scenario.arrays[0].changes.clear();
            part.scenario.arrays[0].device = device.clone();
            stretches.push(part);
            from = to;
            if let Some(change) = self.scenario.arrays[0].changes.get(number) {
                match (&change.to, &mut device) {
                    (ChangedArray::Rate(rate), DeviceConfig::Exponential(servers)) => servers.rate = *rate,
                    (ChangedArray::Device(other), device) => *device = other.clone(),
                    (ChangedArray::Rate(_), _) => {}
                }
            }
        }
        stretches
    }

    /// The protected consumers alone; `None` if there are none.
    fn protected_alone(&self) -> Option<Self> {
        let mut alone = self.clone();
        alone.scenario.vms.retain(|vm| vm.protected);
        (!alone.scenario.vms.is_empty()).then_some(alone)
    }
}
