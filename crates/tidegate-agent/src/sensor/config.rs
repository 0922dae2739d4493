//! The configuration of the storage nodes that the agent is the sensor of.

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use tidegate_config::{FindingList, Section, has_credentials};
use tidegate_transfer::sensor_reports::{NodeKind, SensorReport};
use tidegate_transfer::store::is_plain_beyond_this_host;
use tidegate_transfer::{BearerToken, TokenError};
use tidegate_units::{Latency, ResourceName};

pub(crate) const SENSOR_KEYS: &[&str] = tidegate_config::keys::agent::SENSOR.names;

/// The greatest number of sensors, as many as any machine mounts: each has a thread.
const MOST: usize = 64;

/// So many brokers hear of a node at the most: each takes a request in every interval.
const MOST_BROKERS: usize = 16;

/// The brokers that are told.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReportedBrokers {
    /// The addresses at which they answer.
    pub urls: Vec<String>,
    /// The token that they want to be shown.
    pub token: Option<BearerToken>,
}

/// A storage node on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SensorConfig {
    /// The node's name, as the brokers call it.
    pub node: ResourceName,
    /// A path on its storage.
    pub path: PathBuf,
    /// The kind of storage.
    pub kind: NodeKind,
    /// The interval between two measurements.
    pub interval: Duration,
    /// The cgroup whose part of it is measured; `None`: the whole load.
    pub cgroup: Option<String>,
}

/// A text, to be looked at in its place.
struct Url(String);

impl FromStr for Url {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self(text.to_owned()))
    }
}

/// Reads a token from a file.
pub(crate) type TokenReader = fn(&Path) -> Result<BearerToken, TokenError>;

fn token(root: &Section<'_>, read: TokenReader, report: &mut FindingList<'_>) -> Option<BearerToken> {
    let given = root.text("broker_token_file", report)?;
    if !given.value.starts_with('/') {
        report.error(&given.span, "`broker_token_file` begins with a slash");
        return None;
    }
    read(Path::new(given.value)).map_err(|error| report.error(&given.span, error.to_string())).ok()
}

/// The tables `[sensor.NAME]`, and the brokers that hear of them, with the token that a file holds.
pub(crate) fn read(
    root: &Section<'_>,
    read_token: TokenReader,
    report: &mut FindingList<'_>,
) -> (Vec<SensorConfig>, ReportedBrokers) {
    let tables = root.named_tables("sensor", SENSOR_KEYS, report).unwrap_or_default();
    let token = token(root, read_token, report);
    let given = root.list::<Url>("brokers", "names no broker: reports would reach no program", report);
    if tables.is_empty() {
        if let Some(span) = root.key_span("brokers") {
            report.error(&span, "there is nothing to tell brokers of: add a table `[sensor.NAME]`");
        } else if let Some(span) = root.key_span("broker_token_file") {
            report
                .error(&span, "there is no broker to show it to: add `brokers`, and a table `[sensor.NAME]`");
        }
        return Default::default();
    }
    if given.is_none() && !root.has("brokers") {
        root.missing("brokers", "[\"http://127.0.0.1:7311\"]", report);
    }
    let mut brokers = Vec::new();
    for given in given.unwrap_or_default() {
        let Url(url) = given.value;
        if !url.starts_with("http://") && !url.starts_with("https://") {
            report.error(&given.span, format!("`{url}` is no broker's address: write http://HOST:PORT"));
            continue;
        }
        if has_credentials(&url) {
            let help = "write `broker_token_file`";
            report.error_with_help(&given.span, "a password does not belong into an address", help);
            continue;
        }
        if is_plain_beyond_this_host(&url) {
            let what = "HTTP beyond this machine is not encrypted: any host on the way can read a token and \
                change a report";
            report.warning(
                &given.span,
                what,
                "write https://HOST, of a server that ends TLS in front of the broker",
            );
        }
        if !brokers.contains(&url) {
            brokers.push(url);
        }
    }
    if brokers.len() > MOST_BROKERS || tables.len() > MOST {
        report.error(
            root.span(),
            format!("an agent is the sensor of {MOST} nodes, for {MOST_BROKERS} brokers, at the most"),
        );
    }
    let mut sensors = Vec::new();
    for (name, table) in tables {
        let node = ResourceName::new(name.value);
        if let Err(error) = &node {
            report.error(&name.span, format!("a node's name: {error}"));
        }
        let path = table.text("path", report);
        if !table.has("path") {
            table.missing("path", "\"/srv/store\"", report);
        }
        if let Some(path) = &path
            && !path.value.starts_with('/')
        {
            report.error(&path.span, "`path` begins with a slash");
        }
        let kind = table.choice("kind", &NodeKind::NAMED, report).map_or(NodeKind::Disk, |given| given.value);
        let interval = table.parsed::<Latency>("interval", report);
        if let Some(given) = &interval
            && !SensorReport::INTERVALS.contains(&given.value.as_secs_f64())
        {
            report.error(&given.span, "`interval` is within 50ms and 60s");
        }
        let interval = interval.map_or(Duration::from_secs(1), |given| given.value.to_duration());
        let cgroup = table.text("cgroup", report);
        if let Some(cgroup) = &cgroup
            && cgroup.value.split('/').any(|part| part == "..")
        {
            report.error(
                &cgroup.span,
                "`cgroup` is a path below the root of the cgroups, such as `system.slice/nginx.service`",
            );
        }
        let cgroup = cgroup.map(|given| given.value.to_owned());
        if let (Ok(node), Some(path)) = (node, path) {
            sensors.push(SensorConfig { node, path: PathBuf::from(path.value), kind, interval, cgroup });
        }
    }
    (sensors, ReportedBrokers { urls: brokers, token })
}
