//! The oracle: static settings of each stretch, found by search, and the front that they form.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate_control::{LawConfig, LawKind, LoopConfig, WindowConfig};
use tidegate_device::DeviceConfig;
use tidegate_sched::{BeyondLimit, ConsumerLimit};
use tidegate_sim::scenario::VirtualMachine;
use tidegate_sim::{Scenario, ScenarioError, simulate};
use tidegate_units::{HostName, Iops, Window};

use super::figures::RunFigures;
use super::scenario::{ArenaScenario, without_contracts};
use crate::SeriesRecorder;

/// The fraction of intervals that may be above the target.
pub const ALLOWED_ABOVE: f64 = 0.02;

/// The smallest window tried, of all hosts together.
const LEAST_WINDOW: f64 = 0.25;

/// The smallest rate tried, as a part of the unregulated throughput.
const LEAST_RATE: f64 = 0.02;

/// The part of a consumer's requests that must write for it to count as a writer.
const WRITER: f64 = 0.05;

/// The part that a setting which limits rates must leave to each consumer, of its throughput under the best
/// window. Without it the oracle would starve writers for the sake of quick readers.
const LEFT_TO_EACH: f64 = 0.5;

/// The part of its throughput that a setting which limits rates counts for.
const RATE_HANDICAP: f64 = 0.98;

/// A static setting. All parts are divided by shares.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct StaticSetting {
    /// The window of all hosts together; `None`: as deep as the hosts' queues.
    pub window: Option<f64>,
    /// Requests per second of all consumers together; `None`: any number.
    pub rate: Option<f64>,
    /// Requests per second of all writers together; `None`: any number.
    pub writers: Option<f64>,
}

/// A static setting, and the service under it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SettingResult {
    /// The setting.
    pub setting: StaticSetting,
    /// The service under it.
    pub figures: RunFigures,
}

/// The static settings tried in one stretch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StretchFront {
    /// Its beginning in seconds.
    pub from: f64,
    /// Its length in seconds.
    pub seconds: f64,
    /// The settings, the unregulated one first.
    pub settings: Vec<SettingResult>,
}

impl StretchFront {
    /// Returns true if a setting keeps the target.
    #[must_use]
    pub fn is_attainable(&self) -> bool {
        self.settings.iter().any(|one| one.figures.above <= ALLOWED_ABOVE + 1e-9)
    }

    /// Returns the best setting with at most 2 % of intervals above. If there is none, returns the best with
    /// at most this fraction above. If there is none, either, returns the one with the least.
    ///
    /// # Panics
    /// Never: the unregulated setting is always there.
    #[must_use]
    pub fn best(&self, above: f64) -> &SettingResult {
        let allowed = if self.is_attainable() { ALLOWED_ABOVE } else { above.max(ALLOWED_ABOVE) };
        let within = self.settings.iter().filter(|one| one.figures.above <= allowed + 1e-9);
        within
            .max_by(|one, other| self.worth(one).total_cmp(&self.worth(other)))
            .or_else(|| {
                self.settings.iter().min_by(|one, other| one.figures.above.total_cmp(&other.figures.above))
            })
            .expect("the unregulated setting is always there")
    }

    /// The throughput in requests and in cost, each over the unregulated one. A rate must be worth more than
    /// chance: unlike a window, it does not divide the storage by shares.
    fn worth(&self, one: &SettingResult) -> f64 {
        let free = &self.settings[0].figures;
        let limits_rates = one.setting.rate.or(one.setting.writers).is_some();
        let handicap = if limits_rates { RATE_HANDICAP } else { 1.0 };
        handicap * (one.figures.iops / free.iops.max(1e-9) + one.figures.cost / free.cost.max(1e-9))
    }
}

/// The throughput that a law is compared with.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct OracleThroughput {
    /// Requests per second.
    pub iops: f64,
    /// Cost per second.
    pub cost: f64,
    /// Requests per second of each consumer that a law may throttle.
    pub each: Vec<f64>,
}

/// The findings of the oracle about a scenario.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ArenaOracle {
    /// The unregulated run.
    pub unregulated: RunFigures,
    /// The run of the protected consumers alone, if there are any: the least that is above.
    pub alone: Option<RunFigures>,
    /// The fronts of the stretches between changes of the storage.
    pub stretches: Vec<StretchFront>,
    /// True if the target can be kept: by the protected consumers alone, or by static settings.
    pub attainable: bool,
}

impl ArenaOracle {
    /// Searches the oracle of a scenario.
    ///
    /// # Errors
    /// When the scenario cannot be simulated.
    pub fn search(arena: &ArenaScenario) -> Result<Self, ScenarioError> {
        let unregulated = run(arena, StaticSetting::default())?;
        let mut stretches = Vec::new();
        let mut from = 0.0;
        for part in arena.each_stretch() {
            let settings = Search::new(&part)?.settings()?;
            stretches.push(StretchFront { from, seconds: part.seconds(), settings });
            from += part.seconds();
        }
        let alone = match arena.protected_alone() {
            Some(alone) => Some(run(&alone, StaticSetting::default())?),
            None => None,
        };
        let attainable = match &alone {
            Some(alone) => alone.above <= ALLOWED_ABOVE + 1e-9,
            None => stretches.iter().all(StretchFront::is_attainable),
        };
        Ok(Self { unregulated, alone, stretches, attainable })
    }

    /// Returns the throughput of the best settings for a law with this fraction above, over the whole run.
    #[must_use]
    pub fn throughput(&self, above: f64) -> OracleThroughput {
        let all: f64 = self.stretches.iter().map(|stretch| stretch.seconds).sum();
        let mut sum = OracleThroughput::default();
        for stretch in &self.stretches {
            let best = &stretch.best(above).figures;
            let part = stretch.seconds / all;
            sum.iops += best.iops * part;
            sum.cost += best.cost * part;
            sum.each.resize(best.each.len(), 0.0);
            for (sum, own) in sum.each.iter_mut().zip(&best.each) {
                *sum += own * part;
            }
        }
        sum
    }

    /// Returns the throughput of the best setting of each stretch, with the time from which it applies.
    pub(super) fn by_time(&self) -> Vec<(f64, f64)> {
        let of = |stretch: &StretchFront| (stretch.from, stretch.best(ALLOWED_ABOVE).figures.iops);
        self.stretches.iter().map(of).collect()
    }
}

/// The search for the settings of one stretch.
struct Search<'a> {
    arena: &'a ArenaScenario,
    results: Vec<SettingResult>,
}

impl<'a> Search<'a> {
    fn new(arena: &'a ArenaScenario) -> Result<Self, ScenarioError> {
        let mut search = Self { arena, results: Vec::new() };
        search.attempt(StaticSetting::default())?;
        Ok(search)
    }

    /// Tries windows, then rates where windows are not all there is to say, then writers apart.
    fn settings(mut self) -> Result<Vec<SettingResult>, ScenarioError> {
        let free = self.results[0].figures.clone();
        if free.above <= ALLOWED_ABOVE {
            return Ok(self.results);
        }
        let window = |window| StaticSetting { window: Some(window), ..StaticSetting::default() };
        let most = free.outstanding.max(4.0 * LEAST_WINDOW);
        self.along((LEAST_WINDOW, most), 3, 6, window)?;
        let best = self.best_index();
        let best_window = self.results[best].setting.window;
        let left: Vec<f64> = self.results[best].figures.each.iter().map(|own| own * LEFT_TO_EACH).collect();
        let plain = self.results.len();
        if !matches!(self.arena.scenario.arrays[0].device, DeviceConfig::Exponential(_)) {
            let rate = |rate| StaticSetting { rate: Some(rate), ..StaticSetting::default() };
            self.along((LEAST_RATE * free.iops, free.iops), 2, 4, rate)?;
        }
        let written = self.written(&free);
        if self.arena.scenario.vms.iter().any(|vm| vm.protected) && written > 0.0 {
            // Beside limited writers the others may have more than under the best window for all.
            let windows = match best_window {
                Some(best) => [Some(best), Some(2.0 * best), Some(6.0 * best)],
                None => [None, Some(4.0), Some(16.0)],
            };
            for window in windows {
                let writers =
                    |writers| StaticSetting { window, writers: Some(writers), ..StaticSetting::default() };
                self.along((LEAST_RATE * written, written), 2, 4, writers)?;
            }
        }
        let mut number = 0;
        self.results.retain(|one| {
            number += 1;
            number <= plain || one.figures.each.iter().zip(&left).all(|(own, left)| own >= left)
        });
        Ok(self.results)
    }

    /// Tries values between bounds, evenly in the logarithm, and halves the gap above the greatest that keeps
    /// the target. The fraction above need not rise with the value: caches make it rise and fall.
    fn along(
        &mut self,
        (least, most): (f64, f64),
        inner: u32,
        halvings: u32,
        setting: impl Fn(f64) -> StaticSetting,
    ) -> Result<(), ScenarioError> {
        let (bottom, top) = (least.ln(), most.ln());
        let step = (top - bottom) / f64::from(inner + 1);
        let (mut low, mut high) = (bottom, bottom + step);
        for number in 1..=inner {
            let value = bottom + step * f64::from(number);
            if self.attempt(setting(value.exp()))? {
                (low, high) = (value, value + step);
            }
        }
        for _ in 0..halvings {
            let middle = f64::midpoint(low, high);
            if self.attempt(setting(middle.exp()))? { low = middle } else { high = middle }
        }
        Ok(())
    }

    /// Runs a setting. Returns true if it keeps the target.
    fn attempt(&mut self, setting: StaticSetting) -> Result<bool, ScenarioError> {
        let figures = run(self.arena, setting)?;
        let is_kept = figures.above <= ALLOWED_ABOVE + 1e-9;
        self.results.push(SettingResult { setting, figures });
        Ok(is_kept)
    }

    /// The best setting so far that keeps the target, or the one with the least fraction above.
    fn best_index(&self) -> usize {
        let places = || self.results.iter().enumerate();
        let kept = places().filter(|(_, one)| one.figures.above <= ALLOWED_ABOVE + 1e-9);
        let best = kept.max_by(|(_, one), (_, other)| one.figures.iops.total_cmp(&other.figures.iops));
        let least =
            || places().min_by(|(_, one), (_, other)| one.figures.above.total_cmp(&other.figures.above));
        best.or_else(least).map_or(0, |(place, _)| place)
    }

    /// Requests per second of the writers, unregulated.
    fn written(&self, free: &RunFigures) -> f64 {
        let each = self.arena.eligible().zip(&free.each);
        each.filter(|(vm, _)| is_writer(vm)).map(|(_, iops)| iops).sum()
    }
}

fn is_writer(vm: &VirtualMachine) -> bool {
    vm.workloads.iter().flat_map(|workload| &workload.steps).any(|step| 1.0 - step.reads > WRITER)
}

/// Runs a scenario under a static setting.
fn run(arena: &ArenaScenario, setting: StaticSetting) -> Result<RunFigures, ScenarioError> {
    let scenario = with_setting(arena, setting);
    let mut tracks = SeriesRecorder::default();
    let outcome = simulate(&scenario, arena.seed, &mut tracks)?;
    Ok(RunFigures::of(arena, &tracks.with(outcome, &scenario), &[]))
}

fn with_setting(arena: &ArenaScenario, setting: StaticSetting) -> Scenario {
    let mut scenario = arena.scenario.clone();
    without_contracts(&mut scenario);
    if let Some(window) = setting.window {
        let shares = |host: &HostName| -> f64 {
            let own = arena.eligible().filter(|vm| vm.host == *host && !arena.is_down(host));
            own.map(|vm| vm.shares.as_f64()).sum()
        };
        let all: f64 = arena.scenario.hosts.iter().map(|host| shares(&host.name)).sum();
        for host in &mut scenario.hosts {
            let own = Window::new((window * shares(&host.name) / all.max(1.0)).max(0.01));
            let law =
                LawConfig::Window(WindowConfig { least: own, greatest: own, ..WindowConfig::default() });
            let statistic = arena.statistic;
            host.law =
                Some(LoopConfig { statistic, ..LoopConfig::new(host.array.clone(), arena.target, law) });
        }
    }
    if let Some(rate) = setting.rate {
        limit(&mut scenario, rate, |vm| !vm.protected);
    }
    if let Some(rate) = setting.writers {
        limit(&mut scenario, rate, |vm| !vm.protected && is_writer(vm));
    }
    scenario
}

/// Limits consumers to a rate together, divided by shares.
fn limit(scenario: &mut Scenario, rate: f64, is_one: impl Fn(&VirtualMachine) -> bool) {
    let shares = scenario.vms.iter().filter(|vm| is_one(vm)).map(|vm| vm.shares.as_f64());
    let all: f64 = shares.sum();
    for vm in scenario.vms.iter_mut().filter(|vm| is_one(vm)) {
        vm.limit = Some(ConsumerLimit {
            iops: Some(Iops::new(rate * vm.shares.as_f64() / all)),
            bytes_per_s: None,
            burst: Duration::from_millis(50),
            beyond: BeyondLimit::Wait,
        });
    }
}

impl ArenaScenario {
    /// Runs the scenario under a law; `None`: unregulated.
    ///
    /// # Errors
    /// When the scenario cannot be simulated.
    pub fn run(&self, law: Option<LawKind>, oracle: &ArenaOracle) -> Result<RunFigures, ScenarioError> {
        let scenario = law.map_or_else(|| self.scenario.clone(), |kind| self.with_law(kind));
        let mut tracks = SeriesRecorder::default();
        let outcome = simulate(&scenario, self.seed, &mut tracks)?;
        Ok(RunFigures::of(self, &tracks.with(outcome, &scenario), &oracle.by_time()))
    }
}
