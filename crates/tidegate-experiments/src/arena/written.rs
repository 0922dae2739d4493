//! Scenarios that were written, beside those that are drawn.

use thiserror::Error;
use tidegate_device::DeviceConfig;
use tidegate_sim::Scenario;
use tidegate_sim::scenario::{ChangedArray, ScenarioSpan};
use tidegate_units::{HostName, Instant, Latency};

use super::kind::ScenarioKind;
use super::scenario::{ArenaScenario, HEAD, StorageStretch, judged};

/// Reasons why a written scenario cannot be judged.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NotJudged {
    /// It has several arrays.
    #[error("it has {0} arrays, and the arena judges scenarios with one: remove the others")]
    Arrays(usize),
    /// A host has no target.
    #[error("host `{0}` has no target: add `target` to its table")]
    NoTarget(HostName),
    /// A host has another target than the first.
    #[error(
        "host `{0}` has another target than the first: write one target, and `goal` in consumers' tables"
    )]
    Targets(HostName),
    /// A host has another statistic than the first.
    #[error("host `{0}` has another statistic than the first: write one `statistic`")]
    Statistics(HostName),
    /// It has no host.
    #[error("it has no host")]
    NoHost,
}

impl ArenaScenario {
    /// A scenario that was written, under a seed. Its laws are left out, their target is judged, and a
    /// consumer with a `goal` is judged by that. Its `warmup` is not judged. Stretches are between changes of
    /// the array, of goals, and of hosts that are down.
    ///
    /// # Errors
    /// When the arena cannot judge such a scenario.
    pub fn written(mut scenario: Scenario, seed: u64) -> Result<Self, NotJudged> {
        let [array] = scenario.arrays.as_slice() else {
            return Err(NotJudged::Arrays(scenario.arrays.len()));
        };
        let mut target: Option<Latency> = None;
        for host in &scenario.hosts {
            let own = host.law.as_ref().ok_or_else(|| NotJudged::NoTarget(host.name.clone()))?.target;
            if target.is_some_and(|first| first != own) {
                return Err(NotJudged::Targets(host.name.clone()));
            }
            target = Some(own);
        }
        let target = target.ok_or(NotJudged::NoHost)?;
        let statistic = scenario.hosts[0].statistic;
        if let Some(host) = scenario.hosts.iter().find(|host| host.statistic != statistic) {
            return Err(NotJudged::Statistics(host.name.clone()));
        }
        let unloaded = array.device.unloaded_latency().unwrap_or(Latency::ZERO);
        let stretches = stretches(&scenario);
        for host in &mut scenario.hosts {
            host.law = None;
        }
        scenario.seed = seed;
        Ok(Self {
            id: format!("{}-{seed}", scenario.name),
            kind: ScenarioKind::Written,
            seed,
            statistic,
            target,
            unloaded,
            judged: judged(&scenario),
            head_s: HEAD.max(scenario.warmup.as_secs_f64()),
            changes: stretches.iter().skip(1).map(|stretch| stretch.from).collect(),
            stretches,
            scenario,
        })
    }
}

fn stretches(scenario: &Scenario) -> Vec<StorageStretch> {
    let array = &scenario.arrays[0];
    let end = scenario.duration.as_secs_f64();
    let goals = scenario.vms.iter().flat_map(|vm| &vm.goal_changes).map(|change| change.at);
    let down = scenario.hosts.iter().flat_map(|host| &host.down).flat_map(|span| [span.from, span.to]);
    let changes = array.changes.iter().map(|change| change.at).chain(goals).chain(down);
    let mut times: Vec<f64> =
        changes.map(Instant::as_secs_f64).filter(|at| (0.0..end).contains(at)).collect();
    times.push(0.0);
    times.sort_by(f64::total_cmp);
    times.dedup();
    times.iter().map(|from| stretch(scenario, *from)).collect()
}

fn stretch(scenario: &Scenario, from: f64) -> StorageStretch {
    let array = &scenario.arrays[0];
    let mut device = array.device.clone();
    for change in array.changes.iter().filter(|change| change.at.as_secs_f64() <= from) {
        match (&change.to, &mut device) {
            (ChangedArray::Device(other), _) => device = other.clone(),
            (ChangedArray::Rate(rate), DeviceConfig::Exponential(servers)) => servers.rate = *rate,
            (ChangedArray::Rate(_), _) => {
                unreachable!("a scenario's storage is checked: only that of servers has a rate")
            }
        }
    }
    let is_in = |span: &ScenarioSpan| (span.from.as_secs_f64()..span.to.as_secs_f64()).contains(&from);
    let down = scenario.hosts.iter().filter(|host| host.down.iter().any(is_in));
    StorageStretch { from, device, down: down.map(|host| host.name.clone()).collect() }
}
