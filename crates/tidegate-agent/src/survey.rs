//! A survey of what this machine can sense and throttle, and of a configuration on it. Nothing is changed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::thread;
use std::time::Duration;

use serde::Serialize;
use tidegate_config::nearest;
use tidegate_host::cgroup::{CgroupPattern, CgroupTree, NameKind, NamedCgroup};
use tidegate_host::sense::session::{TargetReading, TargetSession};
use tidegate_host::sense::volume::{BlockDevice, DeviceKind};
use tidegate_host::sense::{CgroupReader, TargetSessions, VolumeTree, latency};
use tidegate_host::throttle::{
    DelayedPackets, KernelCapability, ThrottleMethod, cgroups, consumer_ports, probe, rate,
};
use tidegate_host::{ReadError, SystemRoot};
use tidegate_units::{Bytes, Instant};

use super::addresses::ToldSessions;
use super::bridge::BridgeWatch;
use super::bridge::config::BridgeConfig;
use super::cgroups::config::CgroupConfig;
use super::config::{AgentConfig, MachineStorage, ResourceConfig, ResourceStorage};
use super::finding::SurveyFinding;
use super::initiators::reporter;
use super::load_watch::LoadWatch;
use super::nfsd_watch;
use super::sensor;
use super::source;
use super::watch::MachineWatch;
use tidegate_service::entitlements::BandEntitlements;

/// The time for which packets are listened to. Commands pass all the time, pings each five seconds.
const LISTEN: Duration = Duration::from_secs(2);

/// Names of cgroups that are listed.
const MOST_NAMES: usize = 32;

/// Connections that are not understood, and are named.
const MOST_DOUBTS: usize = 8;

/// The findings, for a person ([`Display`](fmt::Display)) or a program.
#[derive(Debug, Serialize)]
pub struct MachineSurvey {
    /// Each sensor.
    pub sensors: Vec<SurveyFinding>,
    /// Each part of the throttle.
    pub throttles: Vec<SurveyFinding>,
    /// Each throttle by its name in a configuration.
    pub methods: Vec<MethodFinding>,
    /// Storage that a configuration could name.
    pub storage: Vec<String>,
    /// Each resource of the configuration.
    pub resources: Vec<ResourceFinding>,
    /// Each report of this machine as an initiator.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reports: Vec<SurveyFinding>,
}

/// A throttle by its name in a configuration.
#[derive(Debug, Serialize)]
pub struct MethodFinding {
    /// The throttle.
    #[serde(rename = "throttle", serialize_with = "as_text")]
    pub method: ThrottleMethod,
    /// The missing parts, with what would help. Empty: it works here.
    pub lacks: Vec<String>,
}

impl MethodFinding {
    /// Returns true if it works here.
    #[must_use]
    pub const fn works(&self) -> bool {
        self.lacks.is_empty()
    }
}

fn as_text<S: serde::Serializer>(method: &ThrottleMethod, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(method)
}

/// A resource on this machine.
#[derive(Debug, Serialize)]
pub struct ResourceFinding {
    /// Its name.
    pub resource: String,
    /// True if its storage is here.
    pub here: bool,
    /// True if it decides and throttles nothing.
    pub dry_run: bool,
    /// The initiators that are logged in to a volume of it, or its cgroups.
    pub consumers: BTreeSet<String>,
    /// The names that people use for its cgroups, by their paths.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub names: BTreeMap<String, BTreeSet<String>>,
    /// The open questions about them, one text for each consumer.
    pub doubts: BTreeSet<String>,
    /// The consumers whose writes the configuration's throttle cannot limit.
    pub beyond: BTreeSet<String>,
    /// Cgroups that the kernel neither accounts for nor limits.
    pub unaccounted: BTreeSet<String>,
    /// Devices and patterns of the configuration that mean nothing here now, each with the names there are.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub meaningless: Vec<String>,
    /// The reason why its cgroups cannot be seen.
    pub blind: Option<String>,
    /// Its devices whose requests the kernel does not count, each with the remedy.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub uncounted: BTreeSet<String>,
    /// The reasons why no consumer of it can be throttled here, with what would help. Empty on a dry run, and
    /// where that could not be tried.
    pub cannot_be_held: Vec<String>,
    /// The entitlements of all consumers named in its bands, at the end of each band.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub bands: Vec<BandEntitlements>,
}

impl MachineSurvey {
    /// Looks at this machine.
    #[must_use]
    pub fn take(config: Option<&AgentConfig>) -> Self {
        const DEVICES: &str = "block devices and LVM";
        let tried = tried();
        let lacking = |config: &AgentConfig| {
            let needed = tried.iter().flatten().flatten();
            let needed = needed.filter(|capability| capability.is_needed(config.throttle, config.packets));
            needed
                .filter_map(|capability| Some(format!("{}: {}", capability.what, capability.lacks()?)))
                .collect()
        };
        let lacking: Vec<String> = config.map(lacking).unwrap_or_default();
        let (throttles, methods) = (throttles(&tried, config), methods_of(&tried));
        let told = config.map(ToldSessions::of).unwrap_or_default();
        let watch = match MachineWatch::new(SystemRoot::default(), told) {
            Ok(watch) => watch,
            Err(error) => {
                let blind =
                    SurveyFinding { what: DEVICES.to_owned(), works: false, detail: error.to_string() };
                let (storage, resources, reports) = (Vec::new(), Vec::new(), Vec::new());
                return Self { sensors: vec![blind], throttles, methods, storage, resources, reports };
            }
        };
        let volumes = watch.volumes();
        let groups = match volumes.volume_groups().join(", ") {
            groups if groups.is_empty() => "none".to_owned(),
            groups => groups,
        };
        let names = StorageNames::of(volumes);
        let disks = listed(&names.disks, "none");
        let detail =
            format!("{} devices, of which disks: {disks}; volume groups: {groups}", volumes.devices().len());
        let mut sensors = vec![SurveyFinding { what: DEVICES.to_owned(), works: true, detail }];
        let TargetSessions { sessions, targets } = watch.sessions();
        // A configuration has no use for sensors that none of its resources looks at.
        let needs = |needs: fn(&AgentConfig) -> bool| config.is_none_or(needs);
        for (via, target) in targets.iter().filter(|_| needs(|config| !config.resources.is_empty())) {
            let (works, detail) = match target {
                TargetReading::Read => {
                    let of_it = || sessions.iter().filter(|session| session.via == *via);
                    (true, format!("{} sessions{}", of_it().count(), unattributed(of_it())))
                }
                TargetReading::Absent(why) => (false, format!("{why}; it takes {}", why.remedy(*via))),
                TargetReading::Failed(error) => (false, error.to_string()),
            };
            sensors.push(SurveyFinding { what: format!("sessions of {via}"), works, detail });
        }
        if nfsd_watch::has_clients(watch.sessions()) {
            sensors.extend(nfsd_watch::finding(&SystemRoot::default()));
        }
        if needs(AgentConfig::needs_histograms) {
            sensors.push(request_times());
        }
        if needs(|config| !config.cgroups.is_empty()) {
            sensors.push(named_cgroups(&SystemRoot::default()));
        }
        let storage = names.groups.iter().chain(&names.disks).cloned().collect();
        let mut watch = LoadWatch::Machine(Box::new(watch));
        if let Some((config, bridge)) = config.and_then(|config| Some((config, config.bridge.as_ref()?))) {
            let (finding, listened) = listen(bridge, &config.ports);
            sensors.push(finding);
            watch = listened.map_or(watch, |bridge| LoadWatch::Bridge(Box::new(bridge)));
        }
        let resources = config.into_iter().flat_map(|config| {
            config
                .resources
                .iter()
                .map(|resource| resource_finding(resource, config.throttle, &watch, &names))
        });
        let of_cgroups = config.into_iter().flat_map(|config| &config.cgroups);
        let of_cgroups =
            of_cgroups.map(|resource| cgroup_finding(resource, &watch, &names, &SystemRoot::default()));
        let mut resources: Vec<_> = resources.chain(of_cgroups).collect();
        for (resource, law) in resources.iter_mut().zip(config.into_iter().flat_map(AgentConfig::laws)) {
            if !law.dry_run {
                resource.cannot_be_held.clone_from(&lacking);
            }
        }
        sensors.extend(config.into_iter().flat_map(|config| &config.sensors).map(sensor::finding));
        let reports =
            config.into_iter().flat_map(|config| &config.report_to).map(reporter::finding).collect();
        let of_sources = config.into_iter().flat_map(|config| &config.resources);
        sensors.extend(
            of_sources.filter_map(|resource| {
                Some(source::finding(&resource.law.resource, resource.source.as_ref()?))
            }),
        );
        Self { sensors, throttles, methods, storage, resources, reports }
    }
}

/// The names of this machine's storage.
#[derive(Debug, Default)]
struct StorageNames {
    groups: Vec<String>,
    /// Disks with room for data.
    disks: Vec<String>,
    /// All block devices.
    devices: Vec<String>,
}

impl StorageNames {
    fn of(volumes: &VolumeTree) -> Self {
        let devices = || volumes.devices().iter();
        Self {
            groups: volumes.volume_groups().into_iter().map(str::to_owned).collect(),
            disks: devices().filter(|device| is_disk(device)).map(|device| device.name.clone()).collect(),
            devices: devices().map(|device| device.name.clone()).collect(),
        }
    }

    /// Returns the message about a device that is not there.
    fn no_device(&self, name: &str) -> String {
        format!(
            "there is no device `{name}` here, yet: {}",
            instead(name, &self.devices, &self.disks, "disks")
        )
    }

    /// Returns the message about a volume group that is not there.
    fn no_group(&self, name: &str) -> String {
        let help = instead(name, &self.groups, &self.groups, "volume groups");
        format!("there is no volume group `{name}` here, yet: {help}; a disk by itself is named by `device`")
    }
}

/// Returns the name that was probably meant, or the names there are.
fn instead(given: &str, all: &[String], names: &[String], kind: &str) -> String {
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    match nearest(given, &all) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("{kind} here: {}", listed(names, "none")),
    }
}

/// Returns some of the names, and the number of the others.
fn listed(names: &[String], none: &str) -> String {
    let more = match names.len().saturating_sub(MOST_NAMES) {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    match names.is_empty() {
        true => none.to_owned(),
        false => names.iter().take(MOST_NAMES).cloned().collect::<Vec<_>>().join(", ") + &more,
    }
}

/// Returns the message about a pattern that means no cgroup now.
fn no_cgroup(pattern: &CgroupPattern, tree: &CgroupTree) -> String {
    let help = match pattern.by_name() {
        Some((kind, name)) => {
            let named = tree.named();
            let known: Vec<_> =
                named.iter().filter(|one| one.kind == kind).map(|one| one.name.clone()).collect();
            let help = instead(name, &known, &known, &format!("names of the kind `{kind}`"));
            let unnamed = tree.unnamed();
            match kind {
                NameKind::Container if !unnamed.is_empty() => format!(
                    "{help}; no file tells the names of these, whose paths can be written instead: {}; \
                     Docker's data is looked for in /var/lib/docker and where /etc/docker/daemon.json has it",
                    listed(&unnamed, "none")
                ),
                _ => help,
            }
        }
        None => {
            let (path, all) = (pattern.to_string(), tree.paths());
            // The names beside the first that is not there.
            let folder =
                path.rmatch_indices('/').map(|(at, _)| &path[..at]).find(|folder| all.contains(*folder));
            let beside = |one: &&String| one.rsplit_once('/').map(|(folder, _)| folder) == folder;
            let beside: Vec<_> = all.iter().filter(beside).cloned().collect();
            let place = folder.map_or_else(String::new, |folder| format!(" in {folder}"));
            let all: Vec<_> = all.into_iter().collect();
            instead(&path, &all, &beside, &format!("cgroups{place}"))
        }
    };
    format!("`{pattern}` means no cgroup now: {help}")
}

impl MachineSurvey {
    /// Resources without any consumer that could be throttled, although some are configured.
    #[must_use]
    pub fn cannot_be_held(&self) -> Vec<&str> {
        let unheld = self.resources.iter().filter(|resource| !resource.cannot_be_held.is_empty());
        unheld.map(|resource| resource.resource.as_str()).collect()
    }
}

impl MachineSurvey {
    /// Returns the survey in one line: whether a configuration works here, or what could be written.
    #[must_use]
    pub fn verdict(&self) -> String {
        if self.resources.is_empty() && !self.reports.is_empty() {
            let absent = self.reports.iter().filter(|report| !report.works).count();
            let count = self.reports.len();
            return match absent {
                0 => format!("works here; reports: {count}"),
                absent => format!("reports: {count}, of which impossible here: {absent}; see `lacks` above"),
            };
        }
        if self.resources.is_empty() {
            return self.verdict_of_machine();
        }
        let absent: Vec<_> =
            self.resources.iter().filter(|one| !one.here).map(|one| one.resource.as_str()).collect();
        let count = self.resources.len();
        let consumers: usize = self.resources.iter().map(|one| one.consumers.len()).sum();
        let dry = match self.resources.iter().filter(|one| one.dry_run).count() {
            0 => String::new(),
            dry if dry == count => "; all on a dry run, so that nothing is throttled".to_owned(),
            dry => format!("; on a dry run: {dry}"),
        };
        let absent = match absent.is_empty() {
            true => String::new(),
            false => format!("; not here yet: {}", absent.join(", ")),
        };
        let unseen: Vec<_> = self
            .resources
            .iter()
            .filter(|one| !one.uncounted.is_empty())
            .map(|one| one.resource.as_str())
            .collect();
        let works = match unseen.is_empty() {
            true => "works here".to_owned(),
            false => format!("cannot see {}: see `cannot be seen` above", unseen.join(", ")),
        };
        let nobody = if consumers == 0 { ", so that nothing would be throttled" } else { "" };
        format!("{works}; resources: {count}, consumers now: {consumers}{nobody}{absent}{dry}")
    }

    fn verdict_of_machine(&self) -> String {
        let names = |works: bool| {
            let methods = self.methods.iter().filter(|one| one.works() == works);
            methods.map(|one| one.method.to_string()).collect::<Vec<_>>().join(", ")
        };
        let lacks = names(false);
        let can = match (names(true), lacks.is_empty()) {
            (works, _) if works.is_empty() => format!("can throttle by none of {lacks}: see `lacks` above"),
            (works, true) => format!("can throttle by {works}"),
            (works, false) => format!("can throttle by {works}, not by {lacks}: see `lacks` above"),
        };
        match &self.storage[..] {
            [] => format!("{can}; no storage to regulate was found"),
            all => format!(
                "{can}; storage to regulate: {}; `tidegate init` proposes it while it is in use",
                all.join(", ")
            ),
        }
    }
}

/// Returns true if the device is a disk with room for data, and none in memory.
pub(crate) fn is_disk(device: &BlockDevice) -> bool {
    /// A smaller disk holds no data worth a promise.
    const LEAST: Bytes = Bytes::new(1 << 30);
    let is_in_memory = ["ram", "zram"].iter().any(|name| device.name.starts_with(name));
    device.kind == DeviceKind::Disk && device.size >= LEAST && !is_in_memory
}

/// Tries each throttle.
pub(crate) fn methods() -> Vec<MethodFinding> {
    methods_of(&tried())
}

fn methods_of(tried: &[io::Result<Vec<KernelCapability>>]) -> Vec<MethodFinding> {
    const ALL: [ThrottleMethod; 4] =
        [ThrottleMethod::Netem, ThrottleMethod::Edt, ThrottleMethod::Rate, ThrottleMethod::Cgroup];
    let of = |method: ThrottleMethod| {
        let needed = tried.iter().flatten().flatten();
        let needed = needed.filter(|capability| capability.is_needed(method, DelayedPackets::All));
        let mut lacks: Vec<_> = needed
            .filter_map(|capability| Some(format!("{}: {}", capability.what, capability.lacks()?)))
            .collect();
        // Those that delay packets are tried first, together.
        let delays = matches!(method, ThrottleMethod::Netem | ThrottleMethod::Edt);
        if let (true, Some(Err(error))) = (delays, tried.first()) {
            lacks.push(format!("cannot be tried: {error}; run this as root"));
        }
        MethodFinding { method, lacks }
    };
    ALL.map(of).into()
}

/// Names the LUNs whose load cannot be attributed to a device.
fn unattributed<'a>(sessions: impl Iterator<Item = &'a TargetSession>) -> String {
    let lun = |session: &TargetSession| {
        let path = session.volume.path.as_ref().map(|path| format!(" ({})", path.display()));
        format!("{} {}{}", session.target, session.volume.name, path.unwrap_or_default())
    };
    let luns: BTreeSet<_> = sessions.filter(|session| session.device.is_none()).map(lun).collect();
    match luns.is_empty() {
        true => String::new(),
        false => format!(
            "; in no resource, since no device of theirs is known: {}",
            luns.into_iter().collect::<Vec<_>>().join(", ")
        ),
    }
}

/// Listens to the packets of an array for a moment. The sensor is missing where they cannot be seen.
fn listen(config: &BridgeConfig, ports: &BTreeSet<u16>) -> (SurveyFinding, Option<BridgeWatch>) {
    let what = format!("packets of {}", config.array);
    let heard = BridgeWatch::new(config, ports, false).and_then(|mut bridge| {
        thread::sleep(LISTEN);
        bridge.sample(Instant::ZERO)?;
        Ok(bridge)
    });
    match heard {
        Ok(bridge) => {
            let initiators: BTreeSet<_> =
                bridge.sessions().sessions.iter().map(|session| session.consumer.as_str()).collect();
            let mut detail = format!("{} initiators within {} s", initiators.len(), LISTEN.as_secs());
            let ports = consumer_ports(&config.array).unwrap_or_default();
            detail += &match ports.is_empty() {
                true => "; it is no port of a bridge, so that delays follow the routes".to_owned(),
                false => format!("; delays at {}", ports.join(", ")),
            };
            for doubt in bridge.doubts().iter().take(MOST_DOUBTS) {
                detail += &format!("; {doubt}");
            }
            (SurveyFinding { what, works: true, detail }, Some(bridge))
        }
        Err(error) => (SurveyFinding { what, works: false, detail: error.to_string() }, None),
    }
}

fn request_times() -> SurveyFinding {
    const PURPOSE: &str = "percentiles of devices' response times (histograms = true, or one as statistic)";
    let works = latency::probe();
    let detail = match &works {
        Ok(()) => PURPOSE.to_owned(),
        Err(error) => format!("{PURPOSE}: {error}; it takes {}", latency::REMEDY),
    };
    SurveyFinding { what: "eBPF block tracepoints".to_owned(), works: works.is_ok(), detail }
}

/// Tries what throttles need. That of the delay of packets cannot be tried without root.
fn tried() -> [io::Result<Vec<KernelCapability>>; 3] {
    let root = SystemRoot::default();
    [probe(), Ok(rate::probe(&root)), Ok(cgroups::probe(&root))]
}

/// Returns the parts of throttles that a configuration needs; without one, all of them.
fn throttles(
    tried: &[io::Result<Vec<KernelCapability>>],
    config: Option<&AgentConfig>,
) -> Vec<SurveyFinding> {
    let is_needed = |capability: &&KernelCapability| {
        config.is_none_or(|config| capability.is_needed(config.throttle, config.packets))
    };
    let delays = |method| matches!(method, ThrottleMethod::Netem | ThrottleMethod::Edt);
    let delays = config.is_none_or(|config| delays(config.throttle));
    let finding = |capability: &KernelCapability| {
        let detail = match capability.lacks() {
            None => capability.purpose.to_owned(),
            Some(why) => format!("{}: {why}", capability.purpose),
        };
        SurveyFinding { what: capability.what.to_owned(), works: capability.works.is_ok(), detail }
    };
    let findings = |tried: &io::Result<Vec<KernelCapability>>| match tried {
        Ok(capabilities) => capabilities.iter().filter(is_needed).map(finding).collect(),
        Err(_) if !delays => Vec::new(),
        Err(error) => {
            let detail = format!("cannot be tried: {error}; run this as root");
            vec![SurveyFinding { what: "packet delay".to_owned(), works: false, detail }]
        }
    };
    tried.iter().flat_map(findings).collect()
}

fn resource_finding(
    config: &ResourceConfig,
    throttle: ThrottleMethod,
    watch: &LoadWatch,
    names: &StorageNames,
) -> ResourceFinding {
    let has_device = |name: &String| {
        let device = ResourceStorage::Machine(MachineStorage::Devices(vec![name.clone()]));
        watch.has(&device)
    };
    let missing = |storage: &[String]| {
        storage.iter().filter(|name| !has_device(name)).map(|name| names.no_device(name)).collect()
    };
    let meaningless = match &config.storage {
        ResourceStorage::Machine(MachineStorage::VolumeGroup(group)) if !watch.has(&config.storage) => {
            vec![names.no_group(group)]
        }
        ResourceStorage::Machine(MachineStorage::Device(name)) => missing(std::slice::from_ref(name)),
        ResourceStorage::Machine(MachineStorage::Devices(all)) => missing(all),
        ResourceStorage::Machine(MachineStorage::VolumeGroup(_)) | ResourceStorage::Array(_) => Vec::new(),
    };
    let beyond = (throttle == ThrottleMethod::Rate).then(|| watch.beyond_limits(&config.storage));
    let places = watch.devices_of(&config.storage);
    let devices: Vec<_> = places.iter().filter_map(|place| watch.device(*place).number()).collect();
    let loads = |session: &&TargetSession| session.device.is_some_and(|number| devices.contains(&number));
    let of = || watch.sessions().sessions.iter().filter(loads);
    let consumers = places.iter().flat_map(|place| watch.device(*place).consumers());
    ResourceFinding {
        resource: config.law.resource.to_string(),
        here: watch.has(&config.storage),
        dry_run: config.law.dry_run,
        consumers: consumers.map(ToString::to_string).collect(),
        names: BTreeMap::new(),
        doubts: of()
            .filter(|session| !watch.addresses().are_told(&session.consumer))
            .filter_map(|session| Some(format!("{}: {}", session.consumer, session.doubt.as_ref()?)))
            .collect(),
        beyond: beyond
            .into_iter()
            .flatten()
            .map(|session| format!("{}, over {}", session.consumer, session.via))
            .collect(),
        unaccounted: BTreeSet::new(),
        meaningless,
        blind: None,
        uncounted: watch.uncounted_of(&config.storage).iter().map(ToString::to_string).collect(),
        cannot_be_held: Vec::new(),
        bands: config.law.bands.as_ref().map(BandEntitlements::of).unwrap_or_default(),
    }
}

fn cgroup_finding(
    config: &CgroupConfig,
    watch: &LoadWatch,
    names_of_storage: &StorageNames,
    root: &SystemRoot,
) -> ResourceFinding {
    let device = watch.number(&config.device);
    let (mut consumers, mut unaccounted) = (BTreeSet::new(), BTreeSet::new());
    let seen = device.map(|device| {
        let mut reader = CgroupReader::new(root, config.cgroups.clone())?;
        reader.read(device)?;
        Ok::<_, ReadError>(reader)
    });
    let (reader, blind) = match seen {
        Some(Ok(reader)) => (Some(reader), None),
        Some(Err(error)) => (None, Some(error.to_string())),
        None => (None, None),
    };
    let mut meaningless: Vec<String> =
        device.is_none().then(|| names_of_storage.no_device(&config.device)).into_iter().collect();
    if let Ok(tree) = CgroupTree::find(root) {
        let is_empty = |pattern: &&CgroupPattern| {
            tree.select(std::slice::from_ref(*pattern)).is_ok_and(|found| found.is_empty())
        };
        let of_patterns = config.cgroups.iter().filter(is_empty).map(|pattern| no_cgroup(pattern, &tree));
        meaningless.extend(of_patterns);
    }
    for (name, cgroup) in reader.iter().flat_map(CgroupReader::cgroups) {
        consumers.insert(name.to_string());
        if !cgroup.is_accounted() {
            unaccounted.insert(name.to_string());
        }
    }
    ResourceFinding {
        resource: config.law.resource.to_string(),
        here: device.is_some(),
        dry_run: config.law.dry_run,
        names: reader.map(|reader| names(&reader.named(), &consumers)).unwrap_or_default(),
        consumers,
        doubts: BTreeSet::new(),
        beyond: BTreeSet::new(),
        unaccounted,
        meaningless,
        blind,
        uncounted: device
            .and_then(|device| watch.uncounted(device))
            .iter()
            .map(ToString::to_string)
            .collect(),
        cannot_be_held: Vec::new(),
        bands: config.law.bands.as_ref().map(BandEntitlements::of).unwrap_or_default(),
    }
}

/// Returns the names of cgroups, by their paths.
fn names(named: &[NamedCgroup], paths: &BTreeSet<String>) -> BTreeMap<String, BTreeSet<String>> {
    let mut names = BTreeMap::<String, BTreeSet<String>>::new();
    // A unit's name is in its path already.
    let wanted = |one: &&NamedCgroup| one.kind != NameKind::Unit && paths.contains(&one.path);
    for one in named.iter().filter(wanted) {
        names.entry(one.path.clone()).or_default().insert(one.to_string());
    }
    names
}

/// Lists the cgroups that have names that people use, units aside.
fn named_cgroups(root: &SystemRoot) -> SurveyFinding {
    let what = "cgroups by name".to_owned();
    match CgroupTree::find(root) {
        Ok(tree) => {
            let named = tree.named();
            let (units, others): (Vec<_>, Vec<_>) = named.iter().partition(|one| one.kind == NameKind::Unit);
            let others: Vec<_> = others.iter().map(ToString::to_string).collect();
            let list = listed(&others, "none");
            let detail = format!("pods, containers and domains: {list}; units: {}", units.len());
            SurveyFinding { what, works: true, detail }
        }
        Err(error) => SurveyFinding { what, works: false, detail: error.to_string() },
    }
}

impl fmt::Display for MachineSurvey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for finding in self.sensors.iter().chain(&self.reports).chain(&self.throttles) {
            let mark = if finding.works { "has  " } else { "lacks" };
            writeln!(f, "{mark} {}: {}", finding.what, finding.detail)?;
        }
        for ResourceFinding { resource, cannot_be_held, .. } in &self.resources {
            for why in cannot_be_held {
                writeln!(f, "resource {resource}: cannot be throttled here: {why}")?;
            }
        }
        for ResourceFinding { resource, bands, .. } in &self.resources {
            for (index, entitlements) in bands.iter().enumerate() {
                writeln!(f, "resource {resource}: band {index}, {entitlements}")?;
            }
        }
        for resource in &self.resources {
            let ResourceFinding { here, consumers, doubts, beyond, unaccounted, meaningless, blind, .. } =
                resource;
            let name = &resource.resource;
            for what in meaningless {
                writeln!(f, "resource {name}: {what}")?;
            }
            if !here {
                if meaningless.is_empty() {
                    writeln!(f, "resource {name}: there is no such storage here, yet")?;
                }
                continue;
            }
            if let Some(why) = blind {
                writeln!(f, "resource {name}: its cgroups cannot be seen: {why}")?;
                continue;
            }
            for why in &resource.uncounted {
                writeln!(f, "resource {name}: cannot be seen: {why}")?;
            }
            writeln!(f, "resource {name}: {} consumers", consumers.len())?;
            for consumer in consumers {
                let names: Vec<_> = resource.names.get(consumer).into_iter().flatten().cloned().collect();
                match names.is_empty() {
                    true => writeln!(f, "  {consumer}")?,
                    false => writeln!(f, "  {consumer}: {}", names.join(", "))?,
                }
            }
            for doubt in doubts {
                writeln!(f, "  unknown addresses of {doubt}")?;
            }
            for consumer in beyond {
                writeln!(f, "  not throttled by rate: {consumer}")?;
            }
            for cgroup in unaccounted {
                writeln!(
                    f,
                    "  not throttled, since its parent does not give it the controller io: {cgroup}"
                )?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tidegate_host::trees::unpack;

    use super::*;

    const TREE: &str = "proc/self/mountinfo
  30 22 0:26 / /sys/fs/cgroup rw shared:9 - cgroup2 cgroup2 rw
proc/diskstats
  8 0 sda 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0
sys/block/sda/dev
  8:0
sys/block/sda/size
  2097152
sys/fs/cgroup/cgroup.controllers
  io
sys/fs/cgroup/db/io.stat
sys/fs/cgroup/wrong/io.stat
  8:0 rios=many
sys/fs/cgroup/loop -> loop
";

    fn nothing() -> MachineSurvey {
        let (sensors, throttles, methods) = (Vec::new(), Vec::new(), Vec::new());
        MachineSurvey {
            sensors,
            throttles,
            methods,
            storage: Vec::new(),
            resources: Vec::new(),
            reports: Vec::new(),
        }
    }

    #[test]
    fn the_verdict_names_what_works_what_is_missing_and_storage_of_this_machine() {
        let method = |method, lacks: &[&str]| MethodFinding {
            method,
            lacks: lacks.iter().map(|&lack| lack.to_owned()).collect(),
        };
        let methods =
            vec![method(ThrottleMethod::Netem, &["sch_netem: no"]), method(ThrottleMethod::Cgroup, &[])];
        let storage = vec!["vg0".to_owned(), "vda".to_owned()];
        assert_eq!(
            MachineSurvey { methods, storage, ..nothing() }.verdict(),
            "can throttle by cgroup, not by netem: see `lacks` above; storage to regulate: vg0, vda; \
             `tidegate init` proposes it while it is in use"
        );
        assert!(nothing().verdict().contains("no storage to regulate was found"));
        let resource = |name: &str, here, dry_run| ResourceFinding {
            resource: name.to_owned(),
            here,
            dry_run,
            consumers: BTreeSet::from(["a".to_owned()]),
            names: BTreeMap::new(),
            doubts: BTreeSet::new(),
            beyond: BTreeSet::new(),
            unaccounted: BTreeSet::new(),
            meaningless: Vec::new(),
            blind: None,
            uncounted: BTreeSet::new(),
            cannot_be_held: Vec::new(),
            bands: Vec::new(),
        };
        let verdict = |resources| MachineSurvey { resources, ..nothing() }.verdict();
        assert_eq!(
            verdict(vec![resource("vg0", true, false), resource("vg1", false, true)]),
            "works here; resources: 2, consumers now: 2; not here yet: vg1; on a dry run: 1"
        );
        let all =
            "works here; resources: 1, consumers now: 1; all on a dry run, so that nothing is throttled";
        assert_eq!(verdict(vec![resource("vg0", true, true)]), all);
    }

    #[test]
    fn a_device_whose_counters_stand_still_does_not_work_here() {
        let tree = tempfile::tempdir().unwrap();
        unpack(&format!("{TREE}sys/block/sda/mq/\nsys/block/sda/queue/iostats\n  0\n"), tree.path()).unwrap();
        let root = SystemRoot::at(tree.path());
        let machine = MachineWatch::new(root.clone(), ToldSessions::default()).unwrap();
        let names = StorageNames::of(machine.volumes());
        let watch = LoadWatch::Machine(Box::new(machine));
        let told =
            "throttle = 'cgroup'\n[resource.disk]\ndevice = 'sda'\ntarget = '10ms'\ncgroups = ['db']\n";
        let config = AgentConfig::parse("agent.toml", told).unwrap();
        let resources = vec![cgroup_finding(&config.cgroups[0], &watch, &names, &root)];
        let survey = MachineSurvey { resources, ..nothing() };
        let why = "resource disk: cannot be seen: the kernel does not count the requests of sda; run `echo 1 > \
            /sys/block/sda/queue/iostats`\n";
        assert!(survey.to_string().starts_with(why), "{survey}");
        assert!(survey.verdict().starts_with("cannot see disk: "), "{}", survey.verdict());
    }

    #[test]
    fn cgroups_that_cannot_be_seen_are_not_nobody() {
        let tree = tempfile::tempdir().unwrap();
        unpack(TREE, tree.path()).unwrap();
        let root = SystemRoot::at(tree.path());
        let machine = MachineWatch::new(root.clone(), ToldSessions::default()).unwrap();
        let names = StorageNames::of(machine.volumes());
        let watch = LoadWatch::Machine(Box::new(machine));
        let shown = |device: &str, cgroups: &str| {
            let told = format!(
                "throttle = 'cgroup'\n[resource.disk]\ndevice = '{device}'\ntarget = '10ms'\ncgroups = \
                    ['{cgroups}']\n"
            );
            let config = AgentConfig::parse("agent.toml", &told).unwrap();
            let resources = vec![cgroup_finding(&config.cgroups[0], &watch, &names, &root)];
            MachineSurvey { resources, ..nothing() }.to_string()
        };
        assert_eq!(shown("sda", "db"), "resource disk: 1 consumers\n  db\n");
        let missing = shown("sdz", "container:web");
        for said in [
            "there is no device `sdz` here, yet: did you mean `sda`?",
            "`container:web` means no cgroup now: names of the kind `container` here: none",
        ] {
            assert!(missing.contains(said), "{missing}");
        }
        assert!(shown("sda", "wrng").contains("`wrng` means no cgroup now: did you mean `wrong`?"));
        assert!(shown("sda", "xyz/*").contains("`xyz/*` means no cgroup now: cgroups here: db, wrong"));
        for (cgroups, why) in
            [("loop/*", "sys/fs/cgroup/loop: "), ("wrong", "wrong/io.stat:1: expected a number")]
        {
            let shown = shown("sda", cgroups);
            assert!(shown.starts_with("resource disk: its cgroups cannot be seen: "), "{shown}");
            assert!(shown.contains(why) && shown.lines().count() == 1, "{shown}");
        }
    }
}
