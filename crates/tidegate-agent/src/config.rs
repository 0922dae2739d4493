//! The agent's configuration: resources, their targets, and the consumers eligible for throttling.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use tidegate_config::{Finding, FindingList, PlacedValue, Section, law};
use tidegate_control::{
    LawConfig, LawKind, LoopConfig, PidConfig, QueueLearning, RegulationMethod, SelfTuningConfig,
    SignalChoice, SignalStatistic, WindowConfig, WritersConfig, WritersConfigError,
};
use tidegate_host::throttle::{DelayedPackets, ThrottleMethod};
use tidegate_journal::JournalConfig;
use tidegate_transfer::BearerToken;
use tidegate_units::{ByteRate, Iops, Latency, ResourceName};

use super::bridge::config::{self as bridge, ArrayPart, BridgeConfig};
use super::cgroups::config::{self as cgroups, CgroupConfig};
use super::pattern::ConsumerPattern;
use super::sensor::config::{self as sensor, ReportedBrokers, SensorConfig, TokenReader};
use tidegate_service::api::ApiSettings;
use tidegate_service::config::{
    ConfigError, JournalSettings, MetricsAddress, read_bounded, warn_of_open_metrics,
};

pub(super) const ROOT_KEYS: &[&str] = tidegate_config::keys::agent::AGENT.names;

pub(super) const RESOURCE_KEYS: &[&str] = tidegate_config::keys::agent::RESOURCE.names;

pub(super) const WRITERS_KEYS: &[&str] = tidegate_config::keys::agent::WRITERS.names;

/// The ports that targets listen on: iSCSI, NVMe/TCP, NFS.
const PORTS: [u16; 3] = [3260, 4420, 2049];

/// The paper's interval (§2.3.2).
const INTERVAL: Duration = Duration::from_millis(100);

/// Longer delays of packets come near the 200 ms after which TCP takes silence for loss.
const GREATEST_DELAY: Latency = Latency::from_millis(100);

/// Beyond this a delay of packets, and the path's own time, may be those 200 ms.
const LONG_DELAY: Latency = Latency::from_millis(150);

/// The longest delay that a limit may come from, as long as in a data path of our own. A wait in front of a
/// device is no silence that TCP takes for loss. At this delay, writers whose outstanding requests take 50 ms
/// keep a twentieth of their rate. Writers whose requests take half a second keep a third. A longer delay
/// would be released too slowly, since the PID's integral time is never shorter than the delay in force. From
/// 1 s, with reads 10 ms below the set point, a release takes some 100 s.
const GREATEST_OF_RATE: Latency = Latency::from_millis(1_000);

/// Four times the PID's default. That lets the integral time grow with the delay: throttled packets show a
/// change only after a round trip, a limit after a tenth of a second. In the lab, with writers that read as
/// much, 0.5 was still on its way to the set point after 15 s, and 1 in one of two runs. 2 and 4 kept the
/// target, and `identify` found 5.
const GAIN_OF_RATE: f64 = 2.0;

/// Everything that `tidegate agent` is told.
#[derive(Debug, Clone)]
pub struct AgentConfig {
    /// The throttle.
    pub throttle: ThrottleMethod,
    /// The packets to throttled consumers that are delayed.
    pub packets: DelayedPackets,
    /// The ports that the packets come from.
    pub ports: BTreeSet<u16>,
    /// The place between initiators and an array; `None`: this machine has the storage.
    pub bridge: Option<BridgeConfig>,
    /// The address at which `/metrics` and `/healthz` are served; `None`: they are not served.
    pub metrics: Option<SocketAddr>,
    /// The API; `None`: the socket in systemd's runtime directory, if there is one.
    pub api: Option<ApiSettings>,
    /// True if the metrics have histograms of response times, which a program in the kernel counts.
    pub histograms: bool,
    /// The journal of all decisions; `None`: they are not kept.
    pub journal: Option<JournalConfig>,
    /// The resources that consumers use over the network.
    pub resources: Vec<ResourceConfig>,
    /// The devices regulated by the throttle `cgroup`: then `resources` is empty.
    pub cgroups: Vec<CgroupConfig>,
    /// Storage nodes whose sensor it is.
    pub sensors: Vec<SensorConfig>,
    /// The brokers that are told of them.
    pub brokers: ReportedBrokers,
    /// Settings that are allowed and probably not meant.
    pub warnings: Vec<Finding>,
}

/// A resource that is regulated: its storage, its eligible and its protected consumers.
#[derive(Debug, Clone, PartialEq)]
pub struct ResourceConfig {
    /// The control loop. Its resource is the name in the configuration.
    pub law: LoopConfig,
    /// The storage of this machine.
    pub storage: ResourceStorage,
    /// The writers that join the eligible consumers; `None`: only `members` are eligible.
    pub writers: Option<WritersConfig>,
    /// Consumers that are always eligible.
    pub members: Vec<ConsumerPattern>,
    /// Consumers that are never throttled.
    pub exempt: Vec<ConsumerPattern>,
    /// The longest delay of any packet.
    pub longest: Latency,
    /// The rate that a volume may always take, however much its writers are to be delayed.
    pub floor: Iops,
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

impl AgentConfig {
    /// Reads a configuration file.
    ///
    /// # Errors
    /// When the file cannot be read, or anything in it is wrong.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let text =
            read_bounded(path).map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
        let folder = path.parent().unwrap_or(Path::new(""));
        Self::read(&path.display().to_string(), &text, BearerToken::from_file, Some(folder))
    }

    /// Reads a configuration text, and the file with the token for brokers that it names, but no files of the
    /// API. `name` is what findings call it.
    ///
    /// # Errors
    /// When anything in the text, or in that file, is wrong.
    pub fn parse(name: &str, text: &str) -> Result<Self, ConfigError> {
        Self::read(name, text, BearerToken::from_file, None)
    }

    /// Reads a configuration text without looking at files, when `read_token` does not and `folder` is
    /// missing. Relative paths start at `folder`.
    pub(crate) fn read(
        name: &str,
        text: &str,
        read_token: TokenReader,
        folder: Option<&Path>,
    ) -> Result<Self, ConfigError> {
        let mut report = FindingList::new(name, text);
        let Some(document) = tidegate_config::parse(text, &mut report) else {
            return Err(ConfigError::Invalid(report.into_findings()));
        };
        let root = Section::new(&document, 0..0, "the configuration".to_owned(), ROOT_KEYS, &mut report);
        let methods = [
            ("netem", ThrottleMethod::Netem),
            ("edt", ThrottleMethod::Edt),
            ("rate", ThrottleMethod::Rate),
            ("cgroup", ThrottleMethod::Cgroup),
        ];
        let throttle = root.choice("throttle", &methods, &mut report);
        let throttle = throttle.map_or(ThrottleMethod::default(), |given| given.value);
        let kinds = [
            ("all", DelayedPackets::All),
            ("acks", DelayedPackets::Acks),
            ("responses", DelayedPackets::Responses),
        ];
        let packets = root.choice("packets", &kinds, &mut report);
        let from = folder.unwrap_or(Path::new(""));
        let bridge = bridge::read(&root, throttle, from, &mut report);
        let ports = ports(&root, &mut report);
        let ports = match root.has("bridge") && !root.has("ports") {
            true => bridge::PORTS.into(),
            false => ports,
        };
        without_packets(throttle, &root, &mut report);
        let metrics = root.parsed::<MetricsAddress>("metrics", &mut report);
        if let Some(metrics) = &metrics {
            warn_of_open_metrics(metrics, &mut report);
        }
        let api = ApiSettings::read(&root, from, &mut report);
        if let Some(api) = api.as_ref().filter(|_| folder.is_some()) {
            api.check_files(&mut report);
        }
        let histograms = root.flag("histograms", &mut report);
        if histograms
            && metrics.is_none()
            && let Some(value) = root.value("histograms")
        {
            report.warning(
                &value.span(),
                "histograms are not visible without `metrics`",
                "add `metrics`, or leave `histograms` out",
            );
        }
        if root.has("bridge") {
            bridge::check_root(&root, ports.len(), histograms, &mut report);
        }
        let journal = JournalSettings::read(&root, from, &mut report);
        let (sensors, brokers) = sensor::read(&root, read_token, &mut report);
        let (resources, cgroups) = resources(&root, throttle, &mut report);
        let failed = report.has_errors();
        let findings = report.into_findings();
        if failed {
            return Err(ConfigError::Invalid(findings));
        }
        Ok(Self {
            throttle,
            packets: packets.map_or(DelayedPackets::default(), |given| given.value),
            ports,
            bridge,
            metrics: metrics.map(|given| given.value.0),
            api: api.map(|given| given.settings),
            histograms,
            journal: journal.map(|settings| settings.config()),
            resources,
            cgroups,
            sensors,
            brokers,
            warnings: findings,
        })
    }

    /// Makes every resource a dry run: nothing is throttled, and the kernel is not touched.
    pub(super) fn hold_nobody(&mut self) {
        let of_cgroups = self.cgroups.iter_mut().map(|cgroups| &mut cgroups.law);
        let laws = self.resources.iter_mut().map(|resource| &mut resource.law).chain(of_cgroups);
        laws.for_each(|law| law.dry_run = true);
    }

    /// Returns the interface that leads to an array, where the agent is in front of one.
    pub(super) fn array(&self) -> Option<&str> {
        self.bridge.as_ref().map(|bridge| bridge.array.as_str())
    }

    /// Returns the control loop's configuration of each resource.
    pub fn laws(&self) -> impl Iterator<Item = &LoopConfig> {
        let of_cgroups = self.cgroups.iter().map(|cgroups| &cgroups.law);
        self.resources.iter().map(|resource| &resource.law).chain(of_cgroups)
    }
}

impl AgentConfig {
    /// Returns true if response times have to be counted one by one, for the metrics or for a law.
    pub(super) fn needs_histograms(&self) -> bool {
        let by_percentile = |resource: &ResourceConfig| resource.law.statistic != SignalStatistic::Mean;
        self.histograms || self.resources.iter().any(by_percentile)
    }
}

/// Returns true if a text is an agent's configuration rather than a gateway's. A text that is neither is left
/// to the gateway's reader, which reports what is wrong.
#[must_use]
pub fn is_agents(text: &str) -> bool {
    let mut report = FindingList::new("", text);
    tidegate_config::parse(text, &mut report)
        .is_some_and(|document| document.contains_key("resource") || document.contains_key("sensor"))
}

fn ports(root: &Section<'_>, report: &mut FindingList<'_>) -> BTreeSet<u16> {
    let Some(given) = root.list::<Port>("ports", "names no port: nothing could be throttled", report) else {
        return PORTS.into();
    };
    given.into_iter().map(|given| given.value.0.get()).collect()
}

/// A port that a target listens on.
struct Port(NonZeroU16);

impl FromStr for Port {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let no_port = |_| format!("`{}` is not a port: a number from 1 to 65535 is", text.escape_debug());
        text.parse().map(Self).map_err(no_port)
    }
}

/// Reports the keys that select packets where the throttle delays none.
fn without_packets(throttle: ThrottleMethod, root: &Section<'_>, report: &mut FindingList<'_>) {
    let name = match throttle {
        ThrottleMethod::Netem | ThrottleMethod::Edt => return,
        ThrottleMethod::Rate => "rate",
        ThrottleMethod::Cgroup => "cgroup",
    };
    for key in ["packets", "ports"] {
        if let Some(value) = root.value(key) {
            report.error_with_help(
                &value.span(),
                format!("`{key}` has no effect with the throttle `{name}`, which holds no packets"),
                "remove it, or choose `netem` or `edt`",
            );
        }
    }
}

fn resources(
    root: &Section<'_>,
    throttle: ThrottleMethod,
    report: &mut FindingList<'_>,
) -> (Vec<ResourceConfig>, Vec<CgroupConfig>) {
    if !root.has("resource") && root.has("sensor") {
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
            resources.0.extend(resource(&name, &section, throttle, is_bridge, report));
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

fn resource(
    name: &PlacedValue<&str>,
    section: &Section<'_>,
    throttle: ThrottleMethod,
    is_bridge: bool,
    report: &mut FindingList<'_>,
) -> Option<ResourceConfig> {
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
    let writers = writers(section, report);
    if writers.is_none() && members.is_empty() {
        report.warning(
            section.span(),
            format!("{} has no consumer to throttle", section.what()),
            "`writers = false` needs `members`",
        );
    }
    let law = law_of(&resource?, section, throttle, report)?;
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
    Some(ResourceConfig { law, storage, writers, members, exempt, longest, floor })
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

/// The set of writers: a table, or `false`.
fn writers(section: &Section<'_>, report: &mut FindingList<'_>) -> Option<WritersConfig> {
    let mut config = WritersConfig::default();
    if section.value("writers").is_some_and(|value| value.get_ref().as_bool() == Some(false)) {
        return None;
    }
    let Some(table) = section.table("writers", WRITERS_KEYS, report) else { return Some(config) };
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
            WritersConfigError::Above => "above",
            WritersConfigError::LeavesBelow(_) => "leaves_below",
            WritersConfigError::Interval => "interval",
        };
        let place = table.value(key).map_or_else(|| table.span().clone(), toml::Spanned::span);
        report.error(&place, error.to_string());
    }
    Some(config)
}

#[cfg(test)]
mod tests {
    use tidegate_units::Window;

    use super::*;

    fn parse(text: &str) -> Result<AgentConfig, String> {
        AgentConfig::parse("agent.toml", text).map_err(|error| error.to_string())
    }

    /// Every key that is understood, with its heading in `docs/reference/configuration.md`.
    const DOCUMENTED: &[(&str, &[&str])] = &[
        ("## The agent", ROOT_KEYS),
        ("### `[resource.NAME]`", RESOURCE_KEYS),
        ("### `writers`", WRITERS_KEYS),
        ("### `[sensor.NAME]`", sensor::SENSOR_KEYS),
        ("### `[bridge]`", bridge::BRIDGE_KEYS),
    ];

    #[test]
    fn the_document_and_the_code_know_the_same_keys() {
        let document = include_str!("../../../docs/reference/configuration.md");
        for (heading, keys) in DOCUMENTED {
            let section = document.split_once(&format!("\n{heading}\n")).unwrap().1;
            let section = section.split("\n#").next().unwrap();
            let mut documented: Vec<_> =
                section.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
            let mut known = keys.to_vec();
            documented.sort_unstable();
            known.sort_unstable();
            assert_eq!(documented, known, "under `{heading}`");
        }
    }

    #[test]
    fn every_key_of_a_law_is_a_key_of_the_resource() {
        assert!(law::RESOURCE_KEYS.iter().all(|key| RESOURCE_KEYS.contains(key)));
    }

    #[test]
    fn two_lines_are_enough() {
        let config = parse("[resource.vg0]\ntarget = \"15ms\"\n").unwrap();
        let by_auto = parse("[resource.vg0]\nlaw = \"auto\"\ntarget = \"15ms\"\n").unwrap();
        assert_eq!(by_auto.resources[0].law, config.resources[0].law);
        let by_pid = parse("[resource.vg0]\nlaw = \"pid\"\ntarget = \"15ms\"\n").unwrap();
        assert_eq!(by_pid.resources[0].law.interval, INTERVAL);
        let vg0 = &config.resources[0];
        assert_eq!(vg0.storage, ResourceStorage::Machine(MachineStorage::VolumeGroup("vg0".to_owned())));
        assert_eq!(vg0.law.target, Latency::from_millis(15));
        assert_eq!(vg0.law.signal, SignalChoice::Reads);
        assert_eq!(vg0.writers, Some(WritersConfig::default()));
        assert_eq!((config.throttle, &config.ports), (ThrottleMethod::Netem, &PORTS.into()));
        assert!(!config.histograms);
        assert!(config.warnings.is_empty());
    }

    #[test]
    fn everything_that_can_be_said() {
        let config = parse(
            r#"
throttle = "edt"
packets = "responses"
ports = ["3260"]
metrics = "127.0.0.1:9809"
histograms = true
[resource.fast]
device = "nvme0n1"
law = "pid"
target = "5ms"
writers = { above = "10MiB/s", leaves_below = 0.3, silence = "5s" }
members = ["10.0.0.0/24", "iqn.*:backup"]
exempt = "10.0.0.11"
pid = { greatest = "40ms", proportional_gain = 0.3 }
"#,
        )
        .unwrap();
        let fast = &config.resources[0];
        assert_eq!(fast.storage, ResourceStorage::Machine(MachineStorage::Device("nvme0n1".to_owned())));
        assert_eq!(fast.writers.unwrap().silence, Duration::from_secs(5));
        assert_eq!((fast.members.len(), fast.exempt.len()), (2, 1));
        assert_eq!(config.metrics, Some("127.0.0.1:9809".parse().unwrap()));
        assert!(config.histograms && config.warnings.is_empty());
        assert_eq!(config.throttle, ThrottleMethod::Edt);
        assert_eq!((config.packets, config.ports.len()), (DelayedPackets::Responses, 1));
    }

    #[test]
    fn mistakes_are_named_with_their_places() {
        for (text, said) in [
            ("", "no resources"),
            ("[resource.vg0]\n", "needs `target`"),
            ("throttle = 'fq'\n[resource.vg0]\ntarget = \"15ms\"", "agent.toml:1:12"),
            ("[resource.vg0]\ntarget = \"15ms\"\nlaw = \"bang\"", "agent.toml:3:7"),
            ("[resource.vg0]\ntarget = \"15ms\"\nlaw = \"integral\"", "what each consumer was promised"),
            (
                "[resource.vg0]\ntarget = \"15ms\"\nlaw = \"window\"\nwindow = { gamma = 2 }",
                "agent.toml:4:20",
            ),
            ("throttle = 'rate'\npackets = 'all'\n[resource.vg0]\ntarget = '15ms'", "agent.toml:2:11"),
            ("throttle = 'rate'\nports = ['3260']\n[resource.vg0]\ntarget = '15ms'", "holds no packets"),
            ("[resource.vg0]\ntarget = \"15ms\"\nexempt = \"10.0.0.1/33\"", "32 bits"),
            (
                "ports = ['99999']\n[resource.vg0]\ntarget = '15ms'",
                "agent.toml:1:10: `ports`: `99999` is not a port: a number from 1 to 65535 is",
            ),
            ("ports = ['0']\n[resource.vg0]\ntarget = '15ms'", "from 1 to 65535"),
            ("[resource.vg0]\ntarget = '15ms'\ncgroups = ['a']", "agent.toml:3:11"),
            ("throttle = 'cgroup'\n[resource.a]\ntarget = '15ms'\ncgroups = ['a']", "needs `device`"),
            ("throttle = 'cgroup'\n[resource.a]\ntarget = '15ms'\ndevice = 'sda'", "needs `cgroups`"),
            (
                "throttle = 'cgroup'\n[resource.a]\ntarget = '15ms'\ndevice = 'sda'\ncgroups = []",
                "names no cgroup",
            ),
            (
                "throttle = 'cgroup'\n[resource.a]\ntarget = '15ms'\ndevice = 'sda'\ncgroups = ['/']",
                "root cgroup",
            ),
            (
                "throttle = 'cgroup'\n[resource.a]\ntarget = '15ms'\ndevice = 'sda'\ncgroups = \
                    ['a']\nwriters = false",
                "only `cgroups` are throttled",
            ),
            (
                "throttle = 'cgroup'\nports = ['3260']\n[resource.a]\n",
                "throttle `cgroup`, which holds no packets",
            ),
            ("[resource.vg0]\ntarget = \"15ms\"\nset_point = \"auto\"", "agent.toml:3:13"),
            (
                "[resource.vg0]\nlaw = \"pid\"\ntarget = \"15ms\"\npid = { greatest = \"2s\" }",
                "below the floor rate",
            ),
            ("[resource.vg0]\ntarget = \"15ms\"\nwriters = { above = \"0B/s\" }", "agent.toml:3:"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(said), "{text:?}: {error}");
        }
    }

    #[test]
    fn a_window_may_be_what_decides() {
        let text = "[resource.vg0]\ntarget = '15ms'\nlaw = 'window'\nwindow = { least = 0.5 }\npid = {}";
        let config = parse(text).unwrap();
        let vg0 = &config.resources[0];
        let window = WindowConfig { least: Window::new(0.5), ..WindowConfig::default() };
        assert_eq!((vg0.law.law, vg0.law.signal), (LawConfig::Window(window), SignalChoice::Reads));
        assert_eq!((vg0.law.interval, vg0.longest), (Duration::from_millis(250), GREATEST_DELAY));
        assert!(config.warnings[0].to_string().contains("`pid` has no effect"), "{}", config.warnings[0]);
        let by_rate = parse(&format!("throttle = 'rate'\n{text}")).unwrap();
        assert_eq!(by_rate.resources[0].longest, GREATEST_OF_RATE);
    }

    #[test]
    fn the_model_of_a_queue_may_be_what_decides_since_its_throttle_is_a_window() {
        let text =
            "[resource.vg0]\ntarget = '15ms'\nlaw = 'queueing-model'\nself_tuning = { forgetting = 0.8 }";
        let config = parse(text).unwrap();
        let vg0 = &config.resources[0];
        let LawConfig::SelfTuning(SelfTuningConfig { regulation: RegulationMethod::Queueing(model), .. }) =
            vg0.law.law
        else {
            panic!("{:?}", vg0.law)
        };
        assert!((model.forgetting - 0.8).abs() < f64::EPSILON && config.warnings.is_empty());
        assert_eq!((vg0.law.signal, vg0.law.interval), (SignalChoice::Reads, Duration::from_millis(250)));
        let warnings = parse(&text.replace("queueing-model", "pid")).unwrap().warnings;
        assert!(warnings[0].to_string().contains("`self_tuning` has no effect"), "{}", warnings[0]);
        for (more, said) in
            [("statistic = 'p95'", "percentile"), ("bands = []", "without the throttle `cgroup`")]
        {
            let error = parse(&format!("{text}\n{more}")).unwrap_err();
            assert!(error.contains(said), "{more}: {error}");
        }
    }

    #[test]
    fn a_percentile_takes_histograms_whether_anybody_sees_them_or_not() {
        let with =
            |more: &str| parse(&format!("[resource.vg0]\nlaw = 'pid'\ntarget = '15ms'\n{more}")).unwrap();
        assert!(!with("").needs_histograms() && !with("statistic = 'mean'").needs_histograms());
        for (name, statistic) in SignalStatistic::NAMED {
            let config = with(&format!("statistic = '{name}'"));
            assert_eq!(config.resources[0].law.statistic, statistic);
            assert_eq!(config.needs_histograms(), statistic != SignalStatistic::Mean);
            assert!(!config.histograms && config.warnings.is_empty());
        }
        let error = parse("[resource.vg0]\ntarget = '15ms'\nstatistic = 'p98'").unwrap_err();
        assert!(error.contains("agent.toml:3:13") && error.contains("cannot be `p98`"), "{error}");
    }

    #[test]
    fn cgroups_of_a_device() {
        let text = "throttle = 'cgroup'\n[resource.fast]\ndevice = 'nvme0n1'\ntarget = '5ms'\n\
                    cgroups = ['batch.slice', 'machine.slice/*.scope']\nlaw = 'pid'\npid = { floor = '20 IO/s' }";
        let config = parse(text).unwrap();
        let [fast] = &config.cgroups[..] else { panic!("{:?}", config.cgroups) };
        assert_eq!((fast.device.as_str(), fast.floor), ("nvme0n1", Iops::new(20.0)));
        let patterns: Vec<_> = fast.cgroups.iter().map(ToString::to_string).collect();
        assert_eq!(patterns, ["batch.slice", "machine.slice/*.scope"]);
        let LawConfig::Pid(pid) = fast.law.law else { panic!("{:?}", fast.law.law) };
        assert_eq!(
            (pid.greatest, pid.proportional_gain.to_bits()),
            (GREATEST_OF_RATE, GAIN_OF_RATE.to_bits())
        );
        assert!(config.resources.is_empty() && config.warnings.is_empty());
        assert_eq!(config.laws().count(), 1);
    }

    const DISK: &str =
        "throttle = 'cgroup'\n[resource.disk]\ndevice = 'sda'\ntarget = '20ms'\ncgroups = ['db', 'b*/*']\n";

    #[test]
    fn cgroups_may_have_goals_and_bands() {
        let text = format!(
            "{DISK}law = 'self-tuning'\ngoals = {{ db = '10ms', 'b*/*' = '30ms', 'b/slow' = '40ms' }}\n\
             self_tuning = {{ floor = '5 IO/s' }}\nbands = [{{ up_to = '100 IO/s', ratios = {{ db = 0.5, \
             'b/slow' = 0.5 }} }}]"
        );
        let config = parse(&text).unwrap();
        let [disk] = &config.cgroups[..] else { panic!("{:?}", config.cgroups) };
        assert_eq!(disk.goals.len(), 3);
        assert_eq!((disk.law.interval, disk.floor), (Duration::from_secs(1), Iops::new(5.0)));
        assert!(disk.law.bands.is_some() && config.warnings.is_empty(), "{:?}", config.warnings);
    }

    #[test]
    fn cgroups_by_auto_have_goals_and_the_bounds_of_the_pid() {
        let config = parse(&format!("{DISK}law = 'auto'\ngoals = {{ db = '10ms' }}")).unwrap();
        let [disk] = &config.cgroups[..] else { panic!("{:?}", config.cgroups) };
        assert_eq!((disk.law.signal, disk.goals.len()), (SignalChoice::Reads, 1));
        assert_eq!((disk.floor, disk.longest), (PidConfig::default().floor, GREATEST_OF_RATE));
        assert!(config.warnings.is_empty(), "{:?}", config.warnings);
    }

    #[test]
    fn what_goals_and_bands_of_cgroups_cannot_be_is_said() {
        let tuned = format!("{DISK}law = 'self-tuning'\n");
        for (text, said) in [
            (format!("{tuned}goals = {{ db = '0ms' }}"), "more than nothing"),
            (format!("{tuned}goals = {{ db = 'soon' }}"), "`db`"),
            (format!("{tuned}goals = {{ db = 7 }}"), "a text"),
            (format!("{tuned}goals = {{ '/' = '7ms' }}"), "root cgroup"),
            (format!("{tuned}goals = '7ms'"), "a table of texts"),
            (
                format!("{tuned}bands = [{{ up_to = '9 IO/s', ratios = {{ web = 1 }} }}]"),
                "names web, which there is not",
            ),
            (format!("{tuned}statistic = 'p95'"), "a percentile, `normalise`"),
            (
                "[resource.vg0]\ntarget = '15ms'\nlaw = 'self-tuning'".to_owned(),
                "choose the throttle `cgroup`",
            ),
            ("[resource.vg0]\ntarget = '15ms'\ngoals = {}".to_owned(), "without the throttle `cgroup`"),
        ] {
            let error = parse(&text).unwrap_err();
            assert!(error.contains(said), "{text:?}: {error}");
        }
        for key in ["goals = { db = '7ms' }", "self_tuning = {}", "bands = []"] {
            let config = parse(&format!("{DISK}law = 'pid'\n{key}")).unwrap();
            assert!(config.warnings[0].to_string().contains("has no effect"), "{key}: {:?}", config.warnings);
        }
    }

    #[test]
    fn a_limit_may_come_from_a_longer_delay_than_packets_bear() {
        let greatest = |throttle, more| {
            let text =
                format!("throttle = '{throttle}'\n[resource.vg0]\nlaw = 'pid'\ntarget = '15ms'\n{more}");
            parse(&text).map(|config| match config.resources[0].law.law {
                LawConfig::Pid(pid) => pid.greatest,
                ref other => panic!("{other:?}"),
            })
        };
        assert_eq!(greatest("netem", ""), Ok(GREATEST_DELAY));
        assert_eq!(greatest("rate", ""), Ok(GREATEST_OF_RATE));
        assert_eq!(greatest("rate", "pid = { greatest = '2s' }"), Ok(Latency::from_millis(2_000)));
        assert!(greatest("edt", "pid = { greatest = '2s' }").is_err());
    }

    #[test]
    fn a_delay_that_tcp_takes_for_loss_is_a_warning() {
        let warnings = |throttle, greatest| {
            let text = format!(
                "throttle = '{throttle}'\n[resource.vg0]\ntarget = '15ms'\npid = {{ greatest = '{greatest}' \
                    }}\nlaw = 'pid'"
            );
            parse(&text).unwrap().warnings.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        for throttle in ["netem", "edt"] {
            let said = warnings(throttle, "400ms");
            assert!(
                said[0].starts_with("agent.toml:4:7: warning: packets may be delayed by 400ms"),
                "{said:?}"
            );
        }
        assert!(warnings("netem", "150ms").is_empty() && warnings("rate", "400ms").is_empty());
    }

    #[test]
    fn two_resources_of_one_device_are_a_warning() {
        let two = |one: &str, other: &str| {
            let of = |name, device| format!("[resource.{name}]\ndevice = '{device}'\ntarget = '15ms'\n");
            parse(&(of("a", one) + &of("b", other))).unwrap().warnings
        };
        let said = two("sda", "sda")[0].to_string();
        assert!(
            said.starts_with("agent.toml:5:10: warning: ") && said.contains("`a` are one device"),
            "{said}"
        );
        assert!(two("sda", "sdb").is_empty());
    }

    #[test]
    fn histograms_that_nobody_sees_are_a_warning() {
        let config = parse("histograms = true\n[resource.vg0]\ntarget = \"15ms\"").unwrap();
        assert!(
            config.warnings[0].to_string().starts_with("agent.toml:1:14: warning: histograms"),
            "{}",
            config.warnings[0]
        );
    }

    #[test]
    fn nobody_to_hold_is_a_warning() {
        let config = parse("[resource.vg0]\ntarget = \"15ms\"\nwriters = false").unwrap();
        assert!(config.warnings[0].to_string().contains("no consumer to throttle"));
    }

    #[test]
    fn an_agents_configuration_is_told_from_a_gateways() {
        assert!(is_agents("[resource.vg0]\ntarget = \"15ms\""));
        assert!(!is_agents("listen = []\n[pool.a]"));
        assert!(!is_agents("[[["));
    }

    #[test]
    fn several_devices_are_one_resource() {
        let storage = |device: &str| {
            let text = format!("[resource.a]\ntarget = '5ms'\ndevice = {device}\n");
            parse(&text).map(|config| config.resources[0].storage.clone())
        };
        let machine = |storage| Ok(ResourceStorage::Machine(storage));
        assert_eq!(storage("'sda'"), machine(MachineStorage::Device("sda".to_owned())));
        assert_eq!(storage("['sda']"), machine(MachineStorage::Device("sda".to_owned())));
        let several = |names: &[&str]| {
            machine(MachineStorage::Devices(names.iter().map(|name| (*name).to_owned()).collect()))
        };
        assert_eq!(storage("'zd*'"), several(&["zd*"]));
        assert_eq!(storage("['sda', 'vg0/thin*']"), several(&["sda", "vg0/thin*"]));
        assert!(storage("[]").unwrap_err().contains("names no device"));
        assert!(storage("['']").unwrap_err().contains("expected the name of a device"));
        assert!(storage("3").unwrap_err().contains("a text or a list of texts"));
        let twice = "[resource.a]\ntarget = '5ms'\ndevice = ['sda', 'sdb']\n\
                     [resource.b]\ntarget = '5ms'\ndevice = 'sdb'\n";
        assert!(parse(twice).unwrap().warnings[0].message().contains("are one device"));
    }

    #[test]
    fn in_front_of_an_array_resources_are_parts_of_it() {
        let text = "[bridge]\narray = 'eth1'\n[resource.fast]\ntarget = '5ms'\nluns = 'iqn.array:fast*'\n";
        let config = parse(text).unwrap();
        let bridge = config.bridge.as_ref().unwrap();
        assert_eq!((bridge.array.as_str(), config.array()), ("eth1", Some("eth1")));
        assert_eq!(config.ports, [3260, 4420].into());
        let ResourceStorage::Array(part) = &config.resources[0].storage else { panic!("{config:?}") };
        assert!(part.contains("iqn.a", "iqn.array:fast7", "0"));
        assert!(!part.contains("iqn.a", "iqn.array:slow", "0"));
    }

    #[test]
    fn mistakes_about_an_array_are_named() {
        let bridge = "[bridge]\narray = 'eth1'\n";
        let resource = |line: &str| format!("{bridge}[resource.a]\ntarget = '5ms'\n{line}\n");
        let luns = resource("luns = '*'");
        for (text, says) in [
            (resource(""), "names no part of the array"),
            (resource("luns = '/'"), "is no LUN"),
            (resource("luns = '*'\ndevice = 'sda'"), "`device` has no effect with `bridge`"),
            (resource("luns = '*'\nstatistic = 'p95'"), "can only be `mean`"),
            (format!("throttle = 'rate'\n{luns}"), "cannot be used with the throttle `rate`"),
            (format!("throttle = 'cgroup'\n{luns}"), "cannot be used with the throttle `cgroup`"),
            (format!("histograms = true\nmetrics = '127.0.0.1:1'\n{luns}"), "`histograms` has no effect"),
            (luns.replace("'eth1'", "'eth 1'"), "is no name of an interface"),
            (luns.replace("array = 'eth1'", ""), "array"),
            (luns.replace("'eth1'", "'eth1'\ncapture = '20B'"), "`capture` is from 192 B"),
            ("[resource.a]\ntarget = '5ms'\nluns = '*'\n".to_owned(), "has no effect without `bridge`"),
        ] {
            let error = parse(&text).unwrap_err();
            assert!(error.contains(says), "{text}\n{error}");
        }
    }
}
