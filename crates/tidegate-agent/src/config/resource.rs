//! Resources whose consumers come over the network: storage, law, and the consumers eligible for throttling.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use tidegate_config::{FindingList, PlacedValue, Section, law};
use tidegate_control::{
    BulkConfig, BulkConfigError, LawConfig, LawKind, LoopConfig, PidConfig, QueueLearning, RegulationMethod,
    SelfTuningConfig, SignalChoice, SignalStatistic, WindowConfig,
};
use tidegate_host::throttle::ThrottleMethod;
use tidegate_units::{ByteRate, ConsumerName, Iops, Latency, ResourceName, Shares};

use crate::bridge::config::{self as bridge, ArrayPart};
use crate::cgroups::config::{self as cgroups, CgroupConfig};
use crate::initiators::config::{self as initiators, REPORT_INTERVAL, ReportIntakeConfig};
use crate::pattern::ConsumerPattern;
use crate::source::config::{self as source, LatencySourceConfig};

pub(super) const RESOURCE_KEYS: &[&str] = tidegate_config::keys::agent::RESOURCE.names;

pub(super) const WRITERS_KEYS: &[&str] = tidegate_config::keys::agent::WRITERS.names;

/// The paper's interval (§2.3.2).
pub(super) const INTERVAL: Duration = Duration::from_millis(100);

/// Longer delays of packets come near the 200 ms after which TCP takes silence for loss.
pub(super) const GREATEST_DELAY: Latency = Latency::from_millis(100);

/// Beyond this a delay of packets, and the path's own time, may be those 200 ms.
const LONG_DELAY: Latency = Latency::from_millis(150);

/// The longest delay that a limit may come from, as long as in a data path of our own. A wait in front of a
/// device is no silence that TCP takes for loss. At this delay, writers whose outstanding requests take 50 ms
/// keep a twentieth of their rate. Writers whose requests take half a second keep a third. A longer delay
/// would be released too slowly, since the PID's integral time is never shorter than the delay in force. From
/// 1 s, with reads 10 ms below the set point, a release takes some 100 s.
pub(super) const GREATEST_OF_RATE: Latency = Latency::from_millis(1_000);

/// Four times the PID's default. That lets the integral time grow with the delay: throttled packets show a
/// change only after a round trip, a limit after a tenth of a second. In the lab, with writers that read as
/// much, 0.5 was still on its way to the set point after 15 s, and 1 in one of two runs. 2 and 4 kept the
/// target, and `identify` found 5.
pub(super) const GAIN_OF_RATE: f64 = 2.0;

/// Consumers that read more bytes per second than this are eligible, where readers are. It is ten times what
/// it is for writers: small reads of a database come to some megabytes per second, a backup to a hundred.
const READERS_ABOVE: f64 = 10.0 * 1_048_576.0;

/// The proportional gain, and the integral time in intervals, where other machines measure the latency. A
/// change shows after the interval that measures it, the way of the report and the decision: 0.6 s of dead
/// time for an interval of 0.25 s. At a gain of −1 (a millisecond of delay takes one from the latency), the
/// integral then takes up 90 % of an error within the dead time, which does not swing. In the lab, five
/// seconds of a burst were above the target with a gain of 0.3 and 1.8 intervals, and three with these.
const GAIN_OF_REPORTS: f64 = 0.6;
const INTERVALS_OF_REPORTS: f64 = 1.6;

/// Delays beyond a thousandfold of others' are no division any more.
const GREATEST_WEIGHT: f64 = 1_000.0;

/// A resource that is regulated: its storage, its eligible and its protected consumers.
#[derive(Debug, Clone, PartialEq)]
pub struct ResourceConfig {
    /// The control loop. Its resource is the name in the configuration.
    pub law: LoopConfig,
    /// The storage of this machine.
    pub storage: ResourceStorage,
    /// The portals of servers of which the kernel shows no sessions. Their data is on this storage.
    pub portals: Vec<SocketAddr>,
    /// The writers that join the eligible consumers; `None`: none do.
    pub writers: Option<BulkConfig>,
    /// The readers that join them; `None`: none do, and all reads are the signal.
    pub readers: Option<BulkConfig>,
    /// The weights of consumers, by which delays are divided; empty: all have one delay.
    pub weights: Vec<(ConsumerPattern, Shares)>,
    /// The use of initiators' reports; `None`: they do not count.
    pub reports: Option<ReportIntakeConfig>,
    /// The place where the latency is published; `None`: the counters of this machine are the signal.
    pub source: Option<LatencySourceConfig>,
    /// Consumers that are always eligible.
    pub members: Vec<ConsumerPattern>,
    /// Consumers that are never throttled.
    pub exempt: Vec<ConsumerPattern>,
    /// The longest delay of any packet.
    pub longest: Latency,
    /// The rate that a volume may always take, however much its writers are to be delayed.
    pub floor: Iops,
}

impl ResourceConfig {
    /// The weight of a consumer: the greatest that is said of it, or 1. `None`: delays are not divided.
    pub(crate) fn weight(
        &self,
        name: &ConsumerName,
        addresses: &(impl Iterator<Item = IpAddr> + Clone),
    ) -> Option<Shares> {
        let meant = self.weights.iter().filter(|(meant, _)| meant.matches(name.as_str(), addresses.clone()));
        let greatest = meant.map(|(_, weight)| *weight).max();
        (!self.weights.is_empty()).then(|| greatest.unwrap_or(Shares::MIN))
    }
}

/// The storage that a resource consists of.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum ResourceStorage {
    /// Storage of this machine.
    Machine(MachineStorage),
    /// A part of an array behind this machine.
    Array(ArrayPart),
}

/// Storage of this machine.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum MachineStorage {
    /// A volume group of LVM.
    VolumeGroup(String),
    /// A block device by itself.
    Device(String),
    /// Several devices that saturate together: names, and patterns with `*`.
    Devices(Vec<String>),
}

/// Reads all resources: those of sessions, or of cgroups.
pub(super) fn read_all(
    root: &Section<'_>,
    throttle: ThrottleMethod,
    folder: Option<&Path>,
    report: &mut FindingList<'_>,
) -> (Vec<ResourceConfig>, Vec<CgroupConfig>) {
    if !root.has("resource") && (root.has("sensor") || root.has("report_to")) {
        return Default::default();
    }
    let Some(tables) = root.named_tables("resource", RESOURCE_KEYS, report) else {
        return Default::default();
    };
    if tables.is_empty() {
        report.error_with_help(
            root.span(),
            "the configuration has no resources",
            "add a table `[resource.NAME]`, NAME being that of a volume group",
        );
    }
    let mut resources = (Vec::new(), Vec::new());
    let mut devices = BTreeMap::new();
    let mut served = BTreeMap::new();
    for (name, section) in tables {
        if throttle == ThrottleMethod::Cgroup {
            resources.1.extend(cgroups::read(&name, &section, pid_of(throttle), INTERVAL, report));
        } else {
            without_cgroups(&section, report);
            if !root.has("bridge") {
                bridge::without_bridge(&section, report);
            }
            once(&name, &section, &mut devices, report);
            let is_bridge = root.has("bridge");
            let portals = portals(&section, throttle, is_bridge, &mut served, report);
            let place = ResourcePlace { throttle, is_bridge, folder, portals };
            resources.0.extend(resource(&name, &section, place, report));
        }
    }
    resources
}

/// Two laws for one device would each see what the other does, and the longer of their delays would be in
/// force.
fn once(
    name: &PlacedValue<&str>,
    section: &Section<'_>,
    devices: &mut BTreeMap<String, String>,
    report: &mut FindingList<'_>,
) {
    let Some(value) = section.value("device") else { return };
    let one = std::slice::from_ref(value);
    for value in value.get_ref().as_array().map_or(one, |list| list) {
        let Some(device) = value.get_ref().as_str() else { continue };
        let Some(other) = devices.insert(device.to_owned(), name.value.to_owned()) else { continue };
        report.warning(
            &value.span(),
            format!(
                "{} and `{other}` are one device: two laws hold the same consumers, and the longer delay \
                is in force",
                section.what()
            ),
            "leave one of them out, with the shorter target of the two",
        );
    }
}

/// A portal of a server.
struct Portal(SocketAddr);

impl FromStr for Portal {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{}` is no portal, such as 10.0.0.1:3260 or [::]:445", text.escape_debug());
        let portal: SocketAddr = text.parse().map_err(|_| wrong())?;
        match portal.port() {
            0 => Err(wrong()),
            port => Ok(Self(SocketAddr::new(portal.ip().to_canonical(), port))),
        }
    }
}

/// Reads the portals of servers of which the kernel shows no sessions. `served` are those of other resources.
fn portals(
    section: &Section<'_>,
    throttle: ThrottleMethod,
    is_bridge: bool,
    served: &mut BTreeMap<SocketAddr, String>,
    report: &mut FindingList<'_>,
) -> Vec<SocketAddr> {
    let Some(value) = section.value("portals") else { return Vec::new() };
    let instead = match throttle {
        _ if is_bridge => Some("with `bridge`: packets show the sessions of an array"),
        ThrottleMethod::Rate => Some("with the throttle `rate`, which limits sessions of LIO"),
        _ => None,
    };
    if let Some(instead) = instead {
        report.error_with_help(&value.span(), format!("`portals` has no effect {instead}"), "remove it");
    }
    let given = section.one_or_more::<Portal>("portals", report).unwrap_or_default();
    for portal in &given {
        if let Some(other) = served.insert(portal.value.0, section.what().to_owned()) {
            report.error_with_help(
                &portal.span,
                format!(
                    "{} is also a portal of {other}: connections do not tell which they use",
                    portal.value.0
                ),
                "make one resource of both, with a list as `device`, or give each a portal",
            );
        }
    }
    given.into_iter().map(|given| given.value.0).collect()
}

/// A consumer has no cgroup of its own where another throttle acts.
fn without_cgroups(section: &Section<'_>, report: &mut FindingList<'_>) {
    // Of the parameters of a law it is said where that is read.
    for key in cgroups::RESOURCE_KEYS.iter().filter(|key| **key != "self_tuning") {
        if let Some(value) = section.value(key) {
            report.error_with_help(
                &value.span(),
                format!("`{key}` has no effect without the throttle `cgroup`"),
                "add `throttle = \"cgroup\"` above the resources, or remove it",
            );
        }
    }
}

/// The surroundings of a resource in its configuration.
struct ResourcePlace<'a> {
    throttle: ThrottleMethod,
    is_bridge: bool,
    folder: Option<&'a Path>,
    portals: Vec<SocketAddr>,
}

fn resource(
    name: &PlacedValue<&str>,
    section: &Section<'_>,
    place: ResourcePlace<'_>,
    report: &mut FindingList<'_>,
) -> Option<ResourceConfig> {
    let ResourcePlace { throttle, is_bridge, folder, portals } = place;
    let resource = match ResourceName::new(name.value) {
        Ok(resource) => Some(resource),
        Err(error) => {
            report.error(&name.span, format!("a resource's name: {error}"));
            None
        }
    };
    let storage = match is_bridge {
        true => bridge::array_part(section, report).map(ResourceStorage::Array),
        false => machine_storage(name.value, section, report).map(ResourceStorage::Machine),
    };
    let members = patterns(section, "members", report);
    let exempt = patterns(section, "exempt", report);
    let writers = bulk(section, "writers", true, BulkConfig::default(), report);
    let of_readers = BulkConfig { above: ByteRate::new(READERS_ABOVE), ..BulkConfig::default() };
    let readers = bulk(section, "readers", false, of_readers, report);
    let weights = weights(section, report);
    if writers.is_none() && readers.is_none() && members.is_empty() {
        report.warning(
            section.span(),
            format!("{} has no consumer to throttle", section.what()),
            "`writers = false` needs `members` or `readers`",
        );
    }
    let reports = initiators::reports(section, report);
    let source = source::read(section, folder, report);
    if section.has("source") && source.is_none() {
        return None;
    }
    let pace = match (&reports, &source) {
        (Some(_), Some(_)) => {
            let span = section.key_span("source").unwrap_or_else(|| section.span().clone());
            report.error(&span, "`reports` and `source` exclude each other: a resource has one signal");
            return None;
        }
        (Some(_), None) => Some(("reports", REPORT_INTERVAL)),
        (None, Some(source)) => Some(("source", source.every)),
        (None, None) => None,
    };
    let mut law = match pace {
        None => law_of(&resource?, section, throttle, report)?,
        Some(pace) => law_of_reports(&resource?, section, throttle, pace, report)?,
    };
    if readers.is_some() {
        // Reads of consumers that may be throttled for them are no measure of what was promised to others.
        law.signal = SignalChoice::ProtectedOrEverything;
        if let Some(value) = section.value("statistic").filter(|_| law.statistic != SignalStatistic::Mean) {
            report.error_with_help(
                &value.span(),
                "with `readers`, `statistic` can only be `mean`",
                "percentiles are counted of all reads, also of those that `readers` are throttled for",
            );
        }
        if let Some(value) = section.value("readers").filter(|_| throttle == ThrottleMethod::Rate) {
            report.error_with_help(
                &value.span(),
                "`readers` has no effect with the throttle `rate`, which limits writes",
                "remove it, or choose `netem` or `edt`",
            );
        }
    }
    // Other laws command windows, which the throttle turns into delays within bounds of its own.
    let (longest, floor) = match law.law.longest_delay().zip(law.law.floor()) {
        Some(of_law) => of_law,
        None => (longest(throttle), PidConfig::default().floor),
    };
    // A limit is never below the floor, whatever delay it comes from.
    if throttle != ThrottleMethod::Rate && longest > Latency::from_secs_f64(1.0 / floor.per_second()) {
        report.error_with_help(
            section.span(),
            format!("the longest delay, {longest}, could take a consumer below the floor rate, {floor}"),
            "a consumer that sends one request after the other gets 1/delay of them per second",
        );
        return None;
    }
    if throttle != ThrottleMethod::Rate && longest > LONG_DELAY {
        let place = section.value("pid").map_or_else(|| section.span().clone(), toml::Spanned::span);
        report.warning(
            &place,
            format!(
                "packets may be delayed by {longest}: TCP takes a silence of 200 ms for loss, and sends \
                again"
            ),
            "100 ms is the default; where that is too short, `throttle = \"rate\"` holds writes without \
                holding packets",
        );
    }
    let storage = storage?;
    Some(ResourceConfig {
        law,
        storage,
        portals,
        writers,
        readers,
        weights,
        reports,
        source,
        members,
        exempt,
        longest,
        floor,
    })
}

/// A name, or a pattern of names, of devices.
struct DeviceNames(String);

impl FromStr for DeviceNames {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.is_empty() {
            true => Err("expected the name of a device, such as `sda`, `zd*` or `vg0/thin*`"),
            false => Ok(Self(text.to_owned())),
        }
    }
}

/// Reads the storage of this machine that a resource is. Without `device` it is the volume group of its name.
fn machine_storage(
    name: &str,
    section: &Section<'_>,
    report: &mut FindingList<'_>,
) -> Option<MachineStorage> {
    let Some(value) = section.value("device") else {
        return Some(MachineStorage::VolumeGroup(name.to_owned()));
    };
    let given = section.one_or_more::<DeviceNames>("device", report)?;
    let mut names: Vec<_> = given.into_iter().map(|given| given.value.0).collect();
    match names.len() {
        0 if value.get_ref().as_array().is_some_and(|list| list.is_empty()) => {
            report.error(&value.span(), "`device` names no device: nothing could be throttled");
            None
        }
        0 => None,
        1 if !names[0].contains('*') => names.pop().map(MachineStorage::Device),
        _ => Some(MachineStorage::Devices(names)),
    }
}

/// The law, which steers by all reads.
fn law_of(
    resource: &ResourceName,
    section: &Section<'_>,
    throttle: ThrottleMethod,
    report: &mut FindingList<'_>,
) -> Option<LoopConfig> {
    let given = section.value("law").and_then(|value| Some((value.span(), value.get_ref().as_str()?)));
    if let Some((span, "self-tuning")) = given {
        report.error_with_help(
            &span,
            "`law` cannot be `self-tuning` with this throttle: it gives each consumer a rate of its own",
            "choose the throttle `cgroup`, or the law `pid`, `auto`, `window` or `queueing-model`",
        );
        return None;
    }
    if let Some((span, law @ "integral")) = given {
        report.error_with_help(
            &span,
            format!(
                "`law` cannot be `{law}`: it keeps what each consumer was promised, by the consumer's \
                own requests"
            ),
            "what the agent keeps is a promise to who reads, at the cost of who writes: by `pid` or `window`",
        );
        return None;
    }
    let by = |law| {
        let by_reads = LoopConfig::new(resource.clone(), Latency::ZERO, law);
        LoopConfig { signal: SignalChoice::Reads, ..by_reads }
    };
    let pid = LoopConfig { interval: INTERVAL, ..by(LawConfig::Pid(pid_of(throttle))) };
    let queueing = RegulationMethod::Queueing(QueueLearning::default());
    let queueing = SelfTuningConfig { regulation: queueing, ..SelfTuningConfig::default() };
    let window = by(LawConfig::Window(WindowConfig::default()));
    // What it decides is a window, too, and takes no longer to show.
    let queueing = LoopConfig { interval: window.interval, ..by(LawConfig::SelfTuning(queueing)) };
    let auto = by(LawConfig::of_kind(LawKind::Auto));
    let laws = [pid, auto, window, queueing];
    law::read_one_of(section, &laws, report)
}

/// The law of a resource whose latency other machines measure, each `pace`. It decides by latency alone:
/// requests that wait on the way to the storage are not at the storage, where a window would count them.
fn law_of_reports(
    resource: &ResourceName,
    section: &Section<'_>,
    throttle: ThrottleMethod,
    (key, pace): (&str, Duration),
    report: &mut FindingList<'_>,
) -> Option<LoopConfig> {
    if let Some(value) = section.value("law").filter(|law| law.get_ref().as_str() != Some("pid")) {
        report.error_with_help(
            &value.span(),
            format!("with `{key}`, `law` can only be `pid`: other laws count the requests at the storage"),
            "remove it, or write `law = \"pid\"`",
        );
        return None;
    }
    let integral_time = pace.mul_f64(INTERVALS_OF_REPORTS);
    let pid = PidConfig { proportional_gain: GAIN_OF_REPORTS, integral_time, ..pid_of(throttle) };
    let by_reads = LoopConfig::new(resource.clone(), Latency::ZERO, LawConfig::Pid(pid));
    let laws = [LoopConfig { interval: pace, signal: SignalChoice::Reads, ..by_reads }];
    let law = law::read_one_of(section, &laws, report)?;
    let place = |key| section.value(key).map_or_else(|| section.span().clone(), toml::Spanned::span);
    if law.statistic != SignalStatistic::Mean {
        report.error(&place("statistic"), format!("with `{key}`, `statistic` can only be `mean`"));
        return None;
    }
    if key == "source" && law.interval < pace {
        report.error_with_help(
            &place("interval"),
            "`interval` is shorter than `every` of the source: the law would decide without news",
            "leave it out: it is `every` then",
        );
        return None;
    }
    Some(law)
}

/// Returns the PID's defaults for a throttle.
fn pid_of(throttle: ThrottleMethod) -> PidConfig {
    let greatest = longest(throttle);
    match throttle {
        ThrottleMethod::Netem | ThrottleMethod::Edt => PidConfig { greatest, ..PidConfig::default() },
        ThrottleMethod::Rate | ThrottleMethod::Cgroup => {
            PidConfig { greatest, proportional_gain: GAIN_OF_RATE, ..PidConfig::default() }
        }
    }
}

/// For how long a throttle may hold.
const fn longest(throttle: ThrottleMethod) -> Latency {
    match throttle {
        ThrottleMethod::Netem | ThrottleMethod::Edt => GREATEST_DELAY,
        ThrottleMethod::Rate | ThrottleMethod::Cgroup => GREATEST_OF_RATE,
    }
}

fn patterns(section: &Section<'_>, key: &str, report: &mut FindingList<'_>) -> Vec<ConsumerPattern> {
    let given = section.one_or_more::<ConsumerPattern>(key, report).unwrap_or_default();
    given.into_iter().map(|given| given.value).collect()
}

/// The weights: whole numbers, by the consumers that they are of.
fn weights(section: &Section<'_>, report: &mut FindingList<'_>) -> Vec<(ConsumerPattern, Shares)> {
    let given = section.named_numbers("weights", report).unwrap_or_default();
    let weight = |(name, weight): (PlacedValue<&str>, PlacedValue<f64>)| {
        let pattern = name.value.parse::<ConsumerPattern>();
        let pattern = pattern.map_err(|error| report.error(&name.span, error.to_string())).ok()?;
        let is_whole = weight.value.fract() == 0.0 && (1.0..=GREATEST_WEIGHT).contains(&weight.value);
        if !is_whole {
            let said =
                format!("a weight is a whole number from 1 to {GREATEST_WEIGHT}, not {}", weight.value);
            report.error(&weight.span, said);
            return None;
        }
        Some((pattern, Shares::new(weight.value as u32)?))
    };
    given.into_iter().filter_map(weight).collect()
}

/// The set of consumers that are found under `key`: a table, or a flag. `is_on`: the set is there by default.
fn bulk(
    section: &Section<'_>,
    key: &str,
    is_on: bool,
    mut config: BulkConfig,
    report: &mut FindingList<'_>,
) -> Option<BulkConfig> {
    match section.value(key).map(|value| value.get_ref().as_bool()) {
        None if !is_on => return None,
        None | Some(Some(true)) => return Some(config),
        Some(Some(false)) => return None,
        Some(None) => {}
    }
    let Some(table) = section.table(key, WRITERS_KEYS, report) else { return Some(config) };
    if let Some(above) = table.parsed::<ByteRate>("above", report) {
        config.above = above.value;
    }
    if let Some(below) = table.number("leaves_below", report) {
        config.leaves_below = below.value;
    }
    for (key, field) in [
        ("smoothing", &mut config.smoothing),
        ("interval", &mut config.interval),
        ("silence", &mut config.silence),
    ] {
        if let Some(time) = table.parsed::<Latency>(key, report) {
            *field = time.value.to_duration();
        }
    }
    if let Err(error) = config.validate() {
        let key = match error {
            BulkConfigError::Above => "above",
            BulkConfigError::LeavesBelow(_) => "leaves_below",
            BulkConfigError::Interval => "interval",
        };
        let place = table.value(key).map_or_else(|| table.span().clone(), toml::Spanned::span);
        report.error(&place, error.to_string());
    }
    Some(config)
}
