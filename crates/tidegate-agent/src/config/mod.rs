//! The agent's configuration: resources, their targets, and the consumers eligible for throttling.

mod resource;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU16;
use std::path::Path;
use std::str::FromStr;

use tidegate_cluster::{ClusterMember, ClusterPlan};
use tidegate_config::{Finding, FindingList, Section};
use tidegate_control::{LoopConfig, SignalStatistic};
use tidegate_host::throttle::{DelayedPackets, ThrottleMethod};
use tidegate_journal::JournalConfig;
use tidegate_transfer::BearerToken;
use tidegate_units::ConsumerName;

pub use self::resource::{MachineStorage, ResourceConfig, ResourceStorage};
use super::bridge::config::{self as bridge, BridgeConfig};
use super::cgroups::config::CgroupConfig;
use super::initiators::config::{self as initiators, InitiatorReportConfig};
use super::sensor::config::{self as sensor, ReportedBrokers, SensorConfig, TokenReader};
use tidegate_service::TcpAddresses;
use tidegate_service::api::{ApiSettings, PlacedApi};
use tidegate_service::config::{
    ConfigError, JournalSettings, MetricsAddress, read_bounded, warn_of_open_metrics,
};
use tidegate_service::obstacles::ServicePlaces;
use tidegate_service::operator_socket::RunningService;

pub(super) const ROOT_KEYS: &[&str] = tidegate_config::keys::agent::AGENT.names;

/// The ports that targets listen on: iSCSI, NVMe/TCP, NFS.
const PORTS: [u16; 3] = [3260, 4420, 2049];

/// Everything that `tidegate agent` is told.
#[derive(Debug, Clone)]
pub struct AgentConfig {
    /// The throttle.
    pub throttle: ThrottleMethod,
    /// The packets to throttled consumers that are delayed.
    pub packets: DelayedPackets,
    /// The ports that the packets come from.
    pub ports: BTreeSet<u16>,
    /// Addresses of consumers that the target does not show.
    pub addresses: BTreeMap<ConsumerName, BTreeSet<IpAddr>>,
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
    /// The hosts that reports travel between; `None`: there are no reports.
    pub cluster: Option<ClusterPlan>,
    /// The reports of this machine as an initiator.
    pub report_to: Vec<InitiatorReportConfig>,
    /// Storage nodes whose sensor it is.
    pub sensors: Vec<SensorConfig>,
    /// The brokers that are told of them.
    pub brokers: ReportedBrokers,
    /// Settings that are allowed and probably not meant.
    pub warnings: Vec<Finding>,
    places: ServicePlaces,
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
        let addresses = addresses(&root, &mut report);
        without_packets(throttle, &root, &mut report);
        let metrics = root.parsed::<MetricsAddress>("metrics", &mut report);
        if let Some(metrics) = &metrics {
            warn_of_open_metrics(metrics, &mut report);
        }
        let api = ApiSettings::read(&root, from, &mut report);
        let mut taken = TcpAddresses::default();
        for given in metrics.iter().map(MetricsAddress::placed) {
            taken.add(&given, &mut report);
        }
        for given in api.iter().flat_map(PlacedApi::tcp) {
            taken.add(&given, &mut report);
        }
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
        let (resources, cgroups) = resource::read_all(&root, throttle, folder, &mut report);
        let ports = with_portals(ports, &resources, &root, &mut report);
        let (report_to, mut members): (Vec<_>, Vec<_>) =
            initiators::report_to(&root, &mut report).into_iter().unzip();
        members.extend(takers(&root, &resources));
        let cluster = initiators::cluster(&root, &members, folder, &mut report);
        let places = ServicePlaces::new(&root, metrics.as_ref(), api.as_ref(), journal.as_ref(), &report);
        let failed = report.has_errors();
        let findings = report.into_findings();
        if failed {
            return Err(ConfigError::Invalid(findings));
        }
        Ok(Self {
            throttle,
            packets: packets.map_or(DelayedPackets::default(), |given| given.value),
            ports,
            addresses,
            bridge,
            metrics: metrics.map(|given| given.value.0),
            api: api.map(|given| given.settings),
            histograms,
            journal: journal.map(|settings| settings.config()),
            resources,
            cgroups,
            cluster,
            report_to,
            sensors,
            brokers,
            warnings: findings,
            places,
        })
    }

    /// Returns what would keep the agent from starting on this machine now, with its places in the file. What
    /// its `running` process uses is no obstacle.
    #[must_use]
    pub fn obstacles(&self, running: Option<&RunningService>) -> Vec<Finding> {
        self.places.obstacles(running)
    }

    /// Makes every resource a dry run: nothing is throttled, and the kernel is not touched.
    pub(super) fn make_dry_run(&mut self) {
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
    tidegate_config::parse(text, &mut report).is_some_and(|document| {
        ["resource", "sensor", "report_to"].iter().any(|key| document.contains_key(*key))
    })
}

/// Returns the resources that take reports, as members of the cluster.
fn takers(root: &Section<'_>, resources: &[ResourceConfig]) -> Vec<ClusterMember> {
    let takers = resources.iter().filter(|resource| resource.reports.is_some());
    let member = |resource: &ResourceConfig| ClusterMember {
        resource: resource.law.resource.clone(),
        interval: Some(resource.law.interval),
        span: root.key_span("resource").unwrap_or_else(|| root.span().clone()),
    };
    takers.map(member).collect()
}

fn ports(root: &Section<'_>, report: &mut FindingList<'_>) -> BTreeSet<u16> {
    let Some(given) = root.list::<Port>("ports", "names no port: nothing could be throttled", report) else {
        return PORTS.into();
    };
    given.into_iter().map(|given| given.value.0.get()).collect()
}

/// Adds the ports of portals: a packet from another port is not delayed.
fn with_portals(
    mut ports: BTreeSet<u16>,
    resources: &[ResourceConfig],
    root: &Section<'_>,
    report: &mut FindingList<'_>,
) -> BTreeSet<u16> {
    let of_portals = resources.iter().flat_map(|resource| &resource.portals).map(SocketAddr::port);
    for port in of_portals {
        if ports.insert(port)
            && let Some(value) = root.value("ports")
        {
            let lacks = format!("`ports` lacks {port}, which is the port of a portal");
            report.error_with_help(&value.span(), lacks, "add it, or leave `ports` out");
        }
    }
    ports
}

/// Reads the addresses that consumers come from.
fn addresses(root: &Section<'_>, report: &mut FindingList<'_>) -> BTreeMap<ConsumerName, BTreeSet<IpAddr>> {
    if let Some(value) = root.value("addresses").filter(|_| root.has("bridge")) {
        report.error_with_help(
            &value.span(),
            "`addresses` has no effect with `bridge`: packets show the addresses of their sessions",
            "remove it",
        );
    }
    let mut told: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    let mut whose = BTreeMap::new();
    for (name, given) in root.named_lists::<Address>("addresses", report) {
        let consumer = match ConsumerName::new(name.value) {
            Ok(consumer) => consumer,
            Err(error) => {
                report.error(&name.span, format!("a consumer's name: {error}"));
                continue;
            }
        };
        for address in given {
            let Address(told_address) = address.value;
            if let Some(other) = whose.insert(told_address, consumer.clone()).filter(|it| *it != consumer) {
                report.warning(
                    &address.span,
                    format!("{told_address} is also an address of {other}"),
                    "both are throttled there when either is to be, and neither if one is exempt",
                );
            }
            told.entry(consumer.clone()).or_default().insert(told_address);
        }
    }
    told
}

/// An address of a consumer.
struct Address(IpAddr);

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let no_address =
            |_| format!("`{}` is no address, such as 10.0.0.12 or fd00::12", text.escape_debug());
        text.parse().map(Self).map_err(no_address)
    }
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
    for key in ["packets", "ports", "addresses"] {
        if let Some(value) = root.value(key) {
            report.error_with_help(
                &value.span(),
                format!("`{key}` has no effect with the throttle `{name}`, which holds no packets"),
                "remove it, or choose `netem` or `edt`",
            );
        }
    }
}
