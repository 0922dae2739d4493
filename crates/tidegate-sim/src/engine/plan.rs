//! A scenario with its names resolved, its disks laid out, and all of it checked.

use std::collections::HashMap;

use tidegate_control::{BandsError, LawKind, LoopConfig, LoopConfigError, SignalStatistic};
use tidegate_device::{Device, DeviceConfig, MAX_IN_FLIGHT};
use tidegate_units::{Bytes, ConsumerName, Instant, Window};

use crate::error::ScenarioError;
use crate::scenario::{
    ArrivalSpacing, ChangedArray, DiskPlace, Durability, LawScope, OperationArrivals, OperationStep,
    Scenario, ScenarioArray, ScenarioHost, SignalSource, VirtualDisk, VirtualMachine, Workload,
};

/// Greatest numbers of things that the engine keeps in arrays. They have indices of 32 bits, and must fit
/// into a machine's memory.
const MOST: [(&str, usize); 3] = [("arrays", 64), ("hosts", MOST_HOSTS), ("virtual machines", MOST_VMS)];

/// The most hosts of a scenario.
pub(crate) const MOST_HOSTS: usize = 100_000;

/// The most virtual machines of a scenario.
pub(crate) const MOST_VMS: usize = 200_000;

/// The most control loops in a cluster on a network that is not ideal. There, each has a view of its own of
/// every other.
const MOST_VIEWS: usize = 512;

/// The most threads in a workload, or I/Os in a step: more are a slip.
const MOST_THREADS: u32 = 65_536;

/// All threads of a scenario: each has a place in memory from the beginning.
const MOST_THREADS_TOGETHER: usize = 1 << 22;

/// The most rows of a time series: no plot has more, and the intervals would be too short to mean anything.
const MOST_SAMPLES: u128 = 1_000_000;

/// The least part of a mixed stream: of a smaller one the engine would look for the next arrival for ever.
const LEAST_PART: f64 = 1e-6;

/// The longest issue queue. In a longer one, requests would only be lost from sight.
pub(crate) const GREATEST_DEPTH: u32 = 1_024;

/// Everything that the engine runs.
pub(super) struct EnginePlan {
    pub(super) devices: Vec<Installed>,
    /// One per host and array, or per virtual machine and main array.
    pub(super) stages: Vec<StagePlan>,
    /// For each virtual machine, its way to each array that it uses.
    pub(super) ports: Vec<PortPlan>,
    pub(super) streams: Vec<StreamPlan>,
    /// For each virtual machine, its host.
    pub(super) hosts: Vec<u32>,
    /// Stages that step at the same times.
    pub(super) groups: Vec<GroupPlan>,
}

/// An array's device, and its usable size.
pub(super) struct Installed {
    pub(super) device: Device,
    /// Bytes that it holds at all times, whatever device it becomes.
    capacity: Bytes,
}

pub(super) struct StagePlan {
    pub(super) host: u32,
    pub(super) array: u32,
    /// The virtual machine that has the stage to itself; `None` for a host's stage.
    pub(super) vm: Option<u32>,
    pub(super) depth: Window,
    pub(super) law: Option<LoopConfig>,
    pub(super) cluster: bool,
}

pub(super) struct PortPlan {
    pub(super) vm: u32,
    pub(super) stage: u32,
}

pub(super) struct StreamPlan {
    pub(super) vm: u32,
    pub(super) steps: Vec<StepPlan>,
    /// The stream that this one follows, where its workload follows another.
    pub(super) follows: Option<u32>,
}

/// Target of a step's requests.
#[derive(Clone, Copy)]
pub(super) struct StepPlan {
    pub(super) port: u32,
    /// The region on the array.
    pub(super) base: u64,
    pub(super) length: u64,
    /// Offset of the next sequential request, from the region's beginning.
    pub(super) cursor: u64,
}

pub(super) struct GroupPlan {
    pub(super) interval: u64,
    pub(super) phase: u64,
    pub(super) stages: Vec<u32>,
}

impl EnginePlan {
    pub(super) fn new(scenario: &Scenario, seeds: impl Fn(&str) -> u64) -> Result<Self, ScenarioError> {
        check_times(scenario)?;
        check_threads(scenario)?;
        let names = Names::new(scenario)?;
        let devices = devices(&scenario.arrays, seeds)?;
        let mut plan = Self {
            devices,
            stages: Vec::new(),
            ports: Vec::new(),
            streams: Vec::new(),
            hosts: Vec::new(),
            groups: Vec::new(),
        };
        let shared = layout_shared(scenario, &names, &plan.devices)?;
        let mut ends = shared.ends.clone();
        let mut stage_of = HashMap::new();
        for host in &scenario.hosts {
            check_host(host, &names)?;
            check_bands(host, scenario)?;
        }
        for name in scenario.network.partitions.iter().flat_map(|partition| &partition.hosts) {
            names.host(name.as_str(), || "a partition".to_owned())?;
        }
        for (index, vm) in scenario.vms.iter().enumerate() {
            let index = index as u32;
            let host = names.host(vm.host.as_str(), || format!("virtual machine `{}`", vm.name))?;
            plan.hosts.push(host);
            if vm.disks.is_empty() {
                return Err(ScenarioError::Nothing("disk for a virtual machine"));
            }
            let spec = &scenario.hosts[host as usize];
            let mut disks = Vec::new();
            for disk in &vm.disks {
                let (array, base, size) = plan.place(disk, vm, spec, scenario, &names, &shared, &mut ends)?;
                let port = plan.port(index, host, array, scenario, &names, &mut stage_of)?;
                disks.push((port, base, size));
            }
            plan.streams(index, vm, &disks)?;
        }
        plan.check_room(scenario)?;
        plan.check_percentiles(scenario)?;
        plan.group(scenario);
        Ok(plan)
    }

    /// Array, first byte and size of a virtual disk.
    #[allow(clippy::too_many_arguments, reason = "all of it is what a place depends on")]
    fn place(
        &self,
        disk: &VirtualDisk,
        vm: &VirtualMachine,
        host: &ScenarioHost,
        scenario: &Scenario,
        names: &Names<'_>,
        shared: &SharedDisks,
        ends: &mut [u64],
    ) -> Result<(u32, u64, u64), ScenarioError> {
        let who = || format!("virtual machine `{}`", vm.name);
        if let DiskPlace::Shared(name) = &disk.place {
            let (array, base, size) = shared.by_name.get(name.as_str()).copied().ok_or_else(|| {
                ScenarioError::Unknown { who: who(), kind: "shared disk", name: name.clone() }
            })?;
            return Ok((array, base, size));
        }
        let array = names.array(disk.array.as_ref().unwrap_or(&host.array).as_str(), who)?;
        let (base, size) = match &disk.place {
            DiskPlace::InOrder { size } => (ends[array as usize], size.get()),
            DiskPlace::At { offset, size } => (offset.get(), size.get()),
            DiskPlace::Shared(_) => unreachable!("placed above"),
        };
        let end = fits(&self.devices, scenario, array, base, size, Some(vm), "")?;
        if matches!(disk.place, DiskPlace::InOrder { .. }) {
            ends[array as usize] = end;
        }
        Ok((array, base, size))
    }

    /// The port of a virtual machine to an array.
    fn port(
        &mut self,
        vm: u32,
        host: u32,
        array: u32,
        scenario: &Scenario,
        names: &Names<'_>,
        stage_of: &mut HashMap<(u32, u32, Option<u32>), u32>,
    ) -> Result<u32, ScenarioError> {
        let spec = &scenario.hosts[host as usize];
        let main = names.array(spec.array.as_str(), || format!("host `{}`", spec.name))? == array;
        let own = (main && spec.law.is_some() && spec.scope == LawScope::Vm).then_some(vm);
        let stages = &mut self.stages;
        let stage = *stage_of.entry((host, array, own)).or_insert_with(|| {
            let law = main
                .then(|| spec.law.clone())
                .flatten()
                .map(|law| LoopConfig { resource: scenario.arrays[array as usize].name.clone(), ..law });
            stages.push(StagePlan {
                host,
                array,
                vm: own,
                depth: Window::new(f64::from(spec.depth)),
                // Contracts are each host's own, and reports have no percentiles.
                cluster: law.as_ref().is_some_and(|law| {
                    law.law.kind() != LawKind::Integral && law.statistic == SignalStatistic::Mean
                }) && spec.signal == SignalSource::Cluster,
                law,
            });
            stages.len() as u32 - 1
        });
        // The ports of one virtual machine are made one after the other.
        let mut own = self.ports.iter().enumerate().rev().take_while(|(_, port)| port.vm == vm);
        if let Some((known, _)) = own.find(|(_, port)| port.stage == stage) {
            return Ok(known as u32);
        }
        self.ports.push(PortPlan { vm, stage });
        Ok(self.ports.len() as u32 - 1)
    }

    fn streams(
        &mut self,
        index: u32,
        vm: &VirtualMachine,
        disks: &[(u32, u64, u64)],
    ) -> Result<(), ScenarioError> {
        let first = self.streams.len() as u32;
        for (at, workload) in vm.workloads.iter().enumerate() {
            let fail = |reason: String| ScenarioError::Workload {
                vm: vm.name.clone(),
                workload: workload.name.clone(),
                reason,
            };
            if vm.workloads[..at].iter().any(|other| other.name == workload.name) {
                return Err(fail("another one has this name".to_owned()));
            }
            check_workload(workload).map_err(fail)?;
            let follows = match &workload.arrivals {
                OperationArrivals::After { workload: other, .. } => {
                    let found = vm.workloads.iter().position(|candidate| candidate.name == *other);
                    let found = found.filter(|found| *found != at);
                    Some(
                        first
                            + found.ok_or_else(|| fail(format!("there is no other workload `{other}`")))?
                                as u32,
                    )
                }
                _ => None,
            };
            let steps = if let OperationArrivals::Trace { records, .. } = &workload.arrivals {
                let (port, base, length) = disks[0];
                if records.iter().any(|record| record.bytes == 0 || u64::from(record.bytes) > length) {
                    return Err(fail("a recorded request is empty, or larger than the disk".to_owned()));
                }
                vec![StepPlan { port, base, length, cursor: 0 }]
            } else {
                workload
                    .steps
                    .iter()
                    .map(|step| place_step(step, disks))
                    .collect::<Result<_, _>>()
                    .map_err(fail)?
            };
            self.streams.push(StreamPlan { vm: index, steps, follows });
        }
        Ok(())
    }

    /// An array is never given more than it holds, whatever the hosts' laws do.
    fn check_room(&self, scenario: &Scenario) -> Result<(), ScenarioError> {
        for (index, array) in scenario.arrays.iter().enumerate() {
            let depth: f64 = self
                .stages
                .iter()
                .filter(|stage| stage.array as usize == index)
                .map(|stage| stage.depth.get())
                .sum();
            if depth > MAX_IN_FLIGHT as f64 {
                return Err(ScenarioError::Overrun { array: array.name.clone(), most: MAX_IN_FLIGHT });
            }
        }
        let views = self.stages.iter().filter(|stage| stage.cluster).count();
        if !scenario.network.is_ideal() && views > MOST_VIEWS {
            let kind = "hosts can have views of their own, as delay, loss and partitions need";
            return Err(ScenarioError::TooMany { kind, most: MOST_VIEWS, given: views });
        }
        Ok(())
    }

    /// A law that is to steer by what all hosts measure cannot do so by a percentile.
    fn check_percentiles(&self, scenario: &Scenario) -> Result<(), ScenarioError> {
        let mut laws = vec![0; scenario.arrays.len()];
        for stage in self.stages.iter().filter(|stage| stage.law.is_some()) {
            laws[stage.array as usize] += 1;
        }
        for stage in self.stages.iter().filter(|stage| laws[stage.array as usize] > 1) {
            let host = &scenario.hosts[stage.host as usize];
            let by_percentile = stage.law.as_ref().is_some_and(|law| law.statistic != SignalStatistic::Mean);
            if by_percentile && host.signal == SignalSource::Cluster {
                return Err(ScenarioError::PercentileAcrossHosts(host.name.clone()));
            }
        }
        Ok(())
    }

    fn group(&mut self, scenario: &Scenario) {
        let mut by_time: HashMap<(u64, u64), usize> = HashMap::new();
        for (index, stage) in self.stages.iter().enumerate() {
            let Some(law) = &stage.law else { continue };
            let interval = nanos(law.interval).max(1);
            let phase = nanos(scenario.hosts[stage.host as usize].phase) % interval;
            let group = *by_time.entry((interval, phase)).or_insert_with(|| {
                self.groups.push(GroupPlan { interval, phase, stages: Vec::new() });
                self.groups.len() - 1
            });
            self.groups[group].stages.push(index as u32);
        }
    }
}

fn place_step(step: &OperationStep, disks: &[(u32, u64, u64)]) -> Result<StepPlan, String> {
    let Some(&(port, base, size)) = disks.get(step.disk) else {
        return Err(format!("there is no disk number {}", step.disk));
    };
    let from = (size as f64 * step.region.from) as u64;
    let to = ((size as f64 * step.region.to) as u64).min(size);
    let length = to.saturating_sub(from);
    if u64::from(step.sizes.greatest()) > length {
        return Err(format!(
            "its region of {} holds no request of {}",
            Bytes::new(length),
            Bytes::new(step.sizes.greatest().into())
        ));
    }
    Ok(StepPlan { port, base: base + from, length, cursor: 0 })
}

fn check_times(scenario: &Scenario) -> Result<(), ScenarioError> {
    if scenario.duration.is_zero() {
        return Err(ScenarioError::Time("duration", "more than nothing"));
    }
    if scenario.warmup >= scenario.duration {
        return Err(ScenarioError::Time("warm-up", "shorter than its duration"));
    }
    if scenario.series_interval.is_zero() {
        return Err(ScenarioError::Time("series interval", "more than nothing"));
    }
    if scenario.duration.as_nanos() / scenario.series_interval.as_nanos() > MOST_SAMPLES {
        return Err(ScenarioError::Time("series interval", "a millionth of its duration at the least"));
    }
    Ok(())
}

fn check_threads(scenario: &Scenario) -> Result<(), ScenarioError> {
    let threads = |workload: &Workload| match workload.arrivals {
        OperationArrivals::Closed { outstanding: threads, .. } | OperationArrivals::After { threads, .. } => {
            threads as usize
        }
        OperationArrivals::Open { .. } | OperationArrivals::Trace { .. } => 0,
    };
    let given = scenario.vms.iter().flat_map(|vm| &vm.workloads).map(threads).sum();
    if given > MOST_THREADS_TOGETHER {
        let kind = "operations under way at once, of all virtual machines";
        return Err(ScenarioError::TooMany { kind, most: MOST_THREADS_TOGETHER, given });
    }
    Ok(())
}

fn check_host(host: &ScenarioHost, names: &Names<'_>) -> Result<(), ScenarioError> {
    names.array(host.array.as_str(), || format!("host `{}`", host.name))?;
    if !(1..=GREATEST_DEPTH).contains(&host.depth) {
        return Err(ScenarioError::Depth(host.name.clone(), GREATEST_DEPTH));
    }
    if let Some(law) = &host.law {
        law.validate().map_err(|reason| ScenarioError::Law { host: host.name.clone(), reason })?;
        // The engine counts in whole nanoseconds.
        if nanos(law.interval) == 0 {
            return Err(ScenarioError::Law { host: host.name.clone(), reason: LoopConfigError::Interval });
        }
    }
    Ok(())
}

/// Checks that bands name only eligible virtual machines under one law: the host's, or any host's where hosts
/// decide together.
fn check_bands(host: &ScenarioHost, scenario: &Scenario) -> Result<(), ScenarioError> {
    let Some(bands) = host.law.as_ref().and_then(|law| law.bands.as_ref()) else { return Ok(()) };
    let here = |name: &ConsumerName| {
        let together = host.signal == SignalSource::Cluster;
        let mut those = scenario.vms.iter().filter(|vm| together || vm.host == host.name);
        those.any(|vm| vm.name == *name && !vm.protected)
    };
    match bands.name_only(here) {
        Err(BandsError::Unknown { band, workload }) => Err(ScenarioError::Unknown {
            who: format!("band {band} of host `{}`", host.name),
            kind: "unprotected virtual machine",
            name: workload.to_string(),
        }),
        _ => Ok(()),
    }
}

fn check_workload(workload: &Workload) -> Result<(), String> {
    let fraction = |value: f64| (0.0..=1.0).contains(&value);
    match &workload.arrivals {
        OperationArrivals::Closed { outstanding: threads, .. } | OperationArrivals::After { threads, .. }
            if !(1..=MOST_THREADS).contains(threads) =>
        {
            return Err(format!("it has 1 to {MOST_THREADS} operations under way, not {threads}"));
        }
        OperationArrivals::Open { rate, limit, .. }
            if rate.per_second() <= 0.0 || !(1..=1 << 20).contains(limit) =>
        {
            return Err("its rate is more than nothing, and its limit 1 to 1048576".to_owned());
        }
        OperationArrivals::Open { spacing: ArrivalSpacing::Drawn { from, to }, .. }
            if !(fraction(*from) && fraction(*to) && to - from >= LEAST_PART) =>
        {
            return Err(format!("the part that is drawn is {LEAST_PART} at least, between 0 and 1"));
        }
        OperationArrivals::After { every, backlog, .. } if *every == 0 || backlog < every => {
            return Err("it follows at least one operation, and its backlog is at least that many".to_owned());
        }
        OperationArrivals::Trace { records, speed, .. } => {
            if records.is_empty() || !(*speed > 0.0 && speed.is_finite()) {
                return Err("a trace has records, and its speed is more than nothing".to_owned());
            }
            if !records.is_sorted_by_key(|record| record.at) {
                return Err("a trace is in the order of time".to_owned());
            }
            return Ok(());
        }
        _ => {}
    }
    if let Some(cycle) = workload.cycle
        && nanos_sum(cycle.on, cycle.off) == 0
    {
        return Err("its cycle takes no time".to_owned());
    }
    if workload.steps.is_empty() {
        return Err("its operations do nothing".to_owned());
    }
    let mut work = 0;
    for step in &workload.steps {
        work += step.count + u32::from(step.durability == Durability::Flush);
        let region = step.region;
        if !fraction(step.reads) || !fraction(step.sequential) {
            return Err("the parts that read and that are sequential are between 0 and 1".to_owned());
        }
        if !(fraction(region.from) && fraction(region.to) && region.from < region.to) {
            return Err("its region begins before it ends, between 0 and 1".to_owned());
        }
        if step.count > MOST_THREADS {
            return Err(format!("a step does at most {MOST_THREADS} I/Os"));
        }
    }
    let under_way = match workload.arrivals {
        OperationArrivals::Closed { outstanding: most, .. }
        | OperationArrivals::After { threads: most, .. }
        | OperationArrivals::Open { limit: most, .. } => u64::from(most),
        OperationArrivals::Trace { .. } => 0,
    };
    let count = workload.steps.iter().map(|step| u64::from(step.count)).max().unwrap_or_default();
    // Each has a place in memory.
    if under_way * count > MOST_THREADS_TOGETHER as u64 {
        return Err(format!(
            "at most {MOST_THREADS_TOGETHER} of its I/Os are under way at once, not {under_way} times {count}: write \
                a lower `limit`, `outstanding` or `count`"
        ));
    }
    // An operation that does nothing would end when it begins, and the next with it, for ever.
    if work == 0 { Err("its operations do nothing".to_owned()) } else { Ok(()) }
}

fn devices(arrays: &[ScenarioArray], seeds: impl Fn(&str) -> u64) -> Result<Vec<Installed>, ScenarioError> {
    arrays
        .iter()
        .map(|array| {
            let fail = |reason: String| ScenarioError::Device { array: array.name.clone(), reason };
            let made = |config, seed| Device::new(config, seed).map_err(|error| fail(error.to_string()));
            let device = made(&array.device, seeds(array.name.as_str()))?;
            let mut capacity = device.capacity();
            let mut changes: Vec<_> = array.changes.iter().collect();
            changes.sort_by_key(|change| change.at);
            let mut now = &array.device;
            for change in changes {
                match &change.to {
                    ChangedArray::Rate(_) if !matches!(now, DeviceConfig::Exponential(_)) => {
                        return Err(fail("only an exponential server's rate can change".to_owned()));
                    }
                    ChangedArray::Rate(_) => {}
                    ChangedArray::Device(config) => {
                        capacity = capacity.min(made(config, 0)?.capacity());
                        now = config;
                    }
                }
            }
            Ok(Installed { device, capacity })
        })
        .collect()
}

/// Places of the shared disks, and for each array, the offset behind them.
struct SharedDisks {
    by_name: HashMap<String, (u32, u64, u64)>,
    ends: Vec<u64>,
}

fn layout_shared(
    scenario: &Scenario,
    names: &Names<'_>,
    devices: &[Installed],
) -> Result<SharedDisks, ScenarioError> {
    let mut by_name = HashMap::new();
    let mut ends = vec![0; devices.len()];
    for disk in &scenario.disks {
        let array = names.array(disk.array.as_str(), || format!("shared disk `{}`", disk.name))?;
        let base = disk.offset.map_or(ends[array as usize], Bytes::get);
        let end = fits(devices, scenario, array, base, disk.size.get(), None, &disk.name)?;
        if disk.offset.is_none() {
            ends[array as usize] = end;
        }
        if by_name.insert(disk.name.clone(), (array, base, disk.size.get())).is_some() {
            return Err(ScenarioError::Duplicate { kind: "shared disks", name: disk.name.clone() });
        }
    }
    Ok(SharedDisks { by_name, ends })
}

/// The end of a disk that lies on a device: a virtual machine's, or a shared one of this name.
fn fits(
    devices: &[Installed],
    scenario: &Scenario,
    array: u32,
    base: u64,
    size: u64,
    vm: Option<&VirtualMachine>,
    shared: &str,
) -> Result<u64, ScenarioError> {
    let capacity = devices[array as usize].capacity;
    let end = base.saturating_add(size);
    if end > capacity.get() || size == 0 {
        return Err(ScenarioError::DoesNotFit {
            what: vm.map_or_else(
                || format!("shared disk `{shared}`"),
                |vm| format!("the disk of virtual machine `{}`", vm.name),
            ),
            vm: vm.map(|vm| vm.name.clone()),
            array: scenario.arrays[array as usize].name.clone(),
            end: Bytes::new(end),
            capacity,
        });
    }
    Ok(end)
}

/// Positions by name.
struct Names<'a> {
    arrays: HashMap<&'a str, u32>,
    hosts: HashMap<&'a str, u32>,
}

impl<'a> Names<'a> {
    fn new(scenario: &'a Scenario) -> Result<Self, ScenarioError> {
        let given = [scenario.arrays.len(), scenario.hosts.len(), scenario.vms.len()];
        for ((kind, most), given) in MOST.into_iter().zip(given) {
            if given == 0 {
                return Err(ScenarioError::Nothing(kind));
            }
            if given > most {
                return Err(ScenarioError::TooMany { kind, most, given });
            }
        }
        index("virtual machines", scenario.vms.iter().map(|vm| vm.name.as_str()))?;
        Ok(Self {
            arrays: index("arrays", scenario.arrays.iter().map(|array| array.name.as_str()))?,
            hosts: index("hosts", scenario.hosts.iter().map(|host| host.name.as_str()))?,
        })
    }

    fn array(&self, name: &str, who: impl Fn() -> String) -> Result<u32, ScenarioError> {
        let found = self.arrays.get(name).copied();
        found.ok_or_else(|| ScenarioError::Unknown { who: who(), kind: "array", name: name.to_owned() })
    }

    fn host(&self, name: &str, who: impl Fn() -> String) -> Result<u32, ScenarioError> {
        let found = self.hosts.get(name).copied();
        found.ok_or_else(|| ScenarioError::Unknown { who: who(), kind: "host", name: name.to_owned() })
    }
}

fn index<'a>(
    kind: &'static str,
    names: impl Iterator<Item = &'a str>,
) -> Result<HashMap<&'a str, u32>, ScenarioError> {
    let mut positions = HashMap::new();
    for (position, name) in (0u32..).zip(names) {
        if positions.insert(name, position).is_some() {
            return Err(ScenarioError::Duplicate { kind, name: name.to_owned() });
        }
    }
    Ok(positions)
}

pub(super) fn nanos(duration: std::time::Duration) -> u64 {
    (Instant::ZERO + duration).as_nanos()
}

fn nanos_sum(a: tidegate_units::Latency, b: tidegate_units::Latency) -> u64 {
    a.saturating_add(b).as_nanos()
}
