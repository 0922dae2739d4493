//! A scenario of the arena: what is simulated, what is promised, and when the storage changes.

use std::time::Duration;

use tidegate_control::{LawConfig, LawKind, LoopConfig, LoopRules, SignalStatistic, WindowConfig};
use tidegate_device::DeviceConfig;
use tidegate_sim::Scenario;
use tidegate_sim::scenario::{ScenarioSpan, VirtualMachine};
use tidegate_units::{HostName, Latency, Window};

use super::kind::ScenarioKind;

/// Seconds at the beginning that are not judged.
pub(super) const HEAD: f64 = 3.0;

/// A scenario of the arena.
#[derive(Debug, Clone)]
pub struct ArenaScenario {
    /// `kind-seed`.
    pub id: String,
    /// Its kind.
    pub kind: ScenarioKind,
    /// The seed that draws and runs it.
    pub seed: u64,
    /// The scenario, without laws.
    pub scenario: Scenario,
    /// The statistic that is promised, over a judged interval.
    pub statistic: SignalStatistic,
    /// The latency promised to consumers without a goal, by that statistic.
    pub target: Latency,
    /// The unloaded latency of the slowest judged consumer, in the slowest stretch, by that statistic.
    pub unloaded: Latency,
    /// The consumers whose latencies are judged: the protected readers, or all.
    pub judged: Vec<String>,
    /// Seconds at the beginning that are not judged.
    pub head_s: f64,
    /// Times of changes, in seconds: of the storage, of the hosts, and the end of a common pause.
    pub changes: Vec<f64>,
    /// Stretches that each have one storage and one set of hosts.
    pub(super) stretches: Vec<StorageStretch>,
}

/// A stretch between changes of the storage or of the hosts.
#[derive(Debug, Clone)]
pub(super) struct StorageStretch {
    /// Its beginning, in seconds.
    pub(super) from: f64,
    /// The storage.
    pub(super) device: DeviceConfig,
    /// Hosts that are down.
    pub(super) down: Vec<HostName>,
}

impl ArenaScenario {
    /// Returns its length in seconds.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.scenario.duration.as_secs_f64()
    }

    /// Returns the length of a judged interval in seconds.
    #[must_use]
    pub fn interval(&self) -> f64 {
        self.scenario.series_interval.as_secs_f64()
    }

    /// Returns what its figures are put together by: the kind, or the name of a written scenario.
    pub(super) fn class(&self) -> &str {
        if self.kind == ScenarioKind::Written { &self.scenario.name } else { self.kind.name() }
    }

    /// The latency promised to a consumer in an interval that ends at this second.
    pub(super) fn target_of(&self, consumer: &str, end: f64) -> Latency {
        let vm = self.scenario.vms.iter().find(|vm| vm.name.as_str() == consumer);
        vm.and_then(|vm| goal_at(vm, end - self.interval())).unwrap_or(self.target)
    }

    /// The consumers that a law may throttle, in the order of the scenario.
    pub(super) fn eligible(&self) -> impl Iterator<Item = &VirtualMachine> {
        self.scenario.vms.iter().filter(|vm| !vm.protected)
    }

    /// The scenario with this law on every host, with the gateway's defaults.
    #[must_use]
    pub fn with_law(&self, kind: LawKind) -> Scenario {
        let several = self.scenario.hosts.len() > 1;
        let mut scenario = self.scenario.clone();
        for host in &mut scenario.hosts {
            let greatest = Window::new(f64::from(host.depth));
            let law = match kind {
                LawKind::Window if several => {
                    WindowConfig { greatest, ..WindowConfig::across_hosts() }.into()
                }
                LawKind::Window => WindowConfig { greatest, ..WindowConfig::default() }.into(),
                kind => LawConfig::of_kind(kind),
            };
            let mut law = LoopConfig::new(host.array.clone(), self.target, law);
            // Laws that take each consumer by itself know means only.
            if matches!(law.law.rules(), LoopRules::Common { .. }) {
                law.statistic = self.statistic;
            }
            host.law = Some(law);
        }
        if !matches!(kind, LawKind::Auto | LawKind::Integral) {
            without_contracts(&mut scenario);
        }
        scenario
    }

    /// The stretches, each as a scenario of its own that begins at rest.
    pub(super) fn each_stretch(&self) -> Vec<Self> {
        if self.stretches.len() < 2 {
            return vec![self.clone()];
        }
        self.stretches.iter().zip(self.spans()).map(|(stretch, (_, end))| self.only(stretch, end)).collect()
    }

    /// Beginning and end of each stretch, in seconds.
    pub(super) fn spans(&self) -> impl Iterator<Item = (f64, f64)> {
        let ends = self.stretches.iter().skip(1).map(|next| next.from).chain([self.seconds()]);
        self.stretches.iter().map(|stretch| stretch.from).zip(ends)
    }

    /// Returns a number that differs between scenarios that differ: the 64-bit FNV-1a hash of all parts.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
        const PRIME: u64 = 0x0100_0000_01b3;
        let text = format!("{self:?}");
        text.bytes().fold(OFFSET, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME))
    }

    fn only(&self, stretch: &StorageStretch, end: f64) -> Self {
        let mut part = self.clone();
        part.changes.clear();
        part.stretches = vec![StorageStretch { from: 0.0, ..stretch.clone() }];
        part.scenario.duration = Duration::from_secs_f64(end - stretch.from);
        part.scenario.arrays[0].changes.clear();
        part.scenario.arrays[0].device = stretch.device.clone();
        part.scenario.network.partitions.clear();
        for vm in &mut part.scenario.vms {
            vm.goal = goal_at(vm, stretch.from);
            vm.goal_changes.clear();
        }
        for host in &mut part.scenario.hosts {
            let is_down = stretch.down.contains(&host.name);
            host.down = if is_down { vec![ScenarioSpan::ALWAYS] } else { Vec::new() };
        }
        part
    }

    /// The scenario without the consumers that a law may throttle; `None` if nothing is left.
    pub(super) fn protected_alone(&self) -> Option<Self> {
        let mut alone = self.clone();
        alone.scenario.vms.retain(|vm| vm.protected);
        (!alone.scenario.vms.is_empty()).then_some(alone)
    }

    /// Returns true if a host is down throughout.
    pub(super) fn is_down(&self, host: &HostName) -> bool {
        self.stretches.iter().all(|stretch| stretch.down.contains(host))
    }
}

/// The protected consumers that read; all if none is protected.
pub(super) fn judged(scenario: &Scenario) -> Vec<String> {
    let protected = scenario.vms.iter().any(|vm| vm.protected);
    let reads = |vm: &&VirtualMachine| {
        vm.workloads.iter().flat_map(|workload| &workload.steps).any(|step| step.reads > 0.0)
    };
    let judged = scenario.vms.iter().filter(|vm| !protected || vm.protected && reads(vm));
    judged.map(|vm| vm.name.to_string()).collect()
}

/// Removes contracts: most laws do not know them, and their buckets would hold requests back all the same.
pub(super) fn without_contracts(scenario: &mut Scenario) {
    for vm in &mut scenario.vms {
        vm.contract = None;
    }
}

/// The consumer's goal at a time in seconds, if it has one.
fn goal_at(vm: &VirtualMachine, second: f64) -> Option<Latency> {
    let changed = vm.goal_changes.iter().rfind(|change| change.at.as_secs_f64() <= second + 1e-9);
    changed.map(|change| change.goal).or(vm.goal)
}
