//! The configuration of a broker: TOML, read key by key. `docs/reference/configuration.md` has the keys; a
//! test compares it with the lists here.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use tidegate_config::ConfigError;
use tidegate_config::{Finding, FindingList, PlacedValue, Section, read_text};
use tidegate_http::BearerToken;
use tidegate_placement::{NodeConfig, NodePeak, NodeTapes, PlacementConfig, PlacementPolicy};
use tidegate_units::{ByteRate, Bytes, Latency, ResourceName};

use crate::catalogue::SitePlan;
use crate::store::{BucketSetting, NodePlace};

pub(crate) const ROOT_KEYS: &[&str] = tidegate_config::keys::broker::BROKER.names;
const CATALOGUE_KEYS: &[&str] = tidegate_config::keys::broker::CATALOGUE.names;
const NODE_KEYS: &[&str] = tidegate_config::keys::broker::NODE.names;

/// The largest configuration: a thousand nodes need a tenth of this.
pub(crate) const LARGEST_FILE: u64 = 4 * 1024 * 1024;

/// The whole configuration of a broker.
#[derive(Debug, Clone)]
pub struct BrokerConfig {
    /// The address on which it answers.
    pub listen: SocketAddr,
    /// The names under which clients reach it, beside its addresses, `localhost` and the machine's own name.
    pub names: Vec<String>,
    /// The token that clients have to show; `None` if no client needs one.
    pub token: Option<BearerToken>,
    /// The folder of its catalogue, or of its identity.
    pub state: PathBuf,
    /// The plan of a catalogue kept by NATS; `None` if it is in the folder.
    pub site: Option<SitePlan>,
    /// The configuration of placement.
    pub placement: PlacementConfig,
    /// The time between two measurements of the nodes.
    pub interval: Duration,
    /// The nodes.
    pub nodes: Vec<NodePlan>,
    /// Warnings: settings that are allowed and probably not meant.
    pub warnings: Vec<Finding>,
}

/// A storage node.
#[derive(Debug, Clone)]
pub struct NodePlan {
    /// The node's configuration for placement.
    pub config: NodeConfig,
    /// The place of the node.
    pub place: NodePlace,
    /// The part of it that Tidegate may fill.
    pub capacity: Option<Bytes>,
    /// The path on this machine whose device is measured.
    pub sense: Option<PathBuf>,
    /// True if an agent on the node's own machine reports on it.
    pub agent: bool,
    /// The token that the agent may show instead of the broker's, for reports on this node only.
    pub agent_token: Option<BearerToken>,
    /// The capacity of the disk in front of its tapes; `None` if it has none.
    pub cache: Option<Bytes>,
}

/// A policy's name, until its coefficient is known.
#[derive(Clone, Copy)]
enum Named {
    Fixed(PlacementPolicy),
    Overhead(f64, fn(f64) -> PlacementPolicy),
}

const POLICIES: &[(&str, Named)] = &[
    ("rr", Named::Fixed(PlacementPolicy::RoundRobin)),
    ("static-qos", Named::Overhead(1.25, |overhead| PlacementPolicy::StaticQos { overhead })),
    ("sm-r1", Named::Overhead(1.0, |overhead| PlacementPolicy::SmR1 { overhead })),
    ("sm-r2", Named::Overhead(1.0, |overhead| PlacementPolicy::SmR2 { overhead })),
    ("sm-r3", Named::Overhead(1.0, |overhead| PlacementPolicy::SmR3 { overhead })),
    ("learnt", Named::Fixed(PlacementPolicy::Learnt)),
];

impl BrokerConfig {
    /// Reads a configuration file.
    ///
    /// # Errors
    /// When the file cannot be read, or anything in it is wrong.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let text = fs::File::open(path).and_then(read_text);
        let text = text.map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
        Self::parse(&path.display().to_string(), &text, path.parent().unwrap_or(Path::new("")))
    }

    /// Reads a configuration text, and the tokens in the files that it names. `name` is its name in findings;
    /// relative paths in it start at `folder`.
    ///
    /// # Errors
    /// When anything in the text is wrong, or a token cannot be read.
    pub fn parse(name: &str, text: &str, folder: &Path) -> Result<Self, ConfigError> {
        let mut report = FindingList::new(name, text);
        let config = tidegate_config::parse(text, &mut report).and_then(|document| {
            let what = "the configuration".to_owned();
            let root = Section::new(&document, 0..0, what, ROOT_KEYS, &mut report);
            read(&root, folder, &mut report)
        });
        let failed = report.has_errors();
        let findings = report.into_findings();
        match config {
            Some(config) if !failed => Ok(Self { warnings: findings, ..config }),
            _ => Err(ConfigError::Invalid(findings)),
        }
    }
}

/// Returns true if a text is meant to be a broker's configuration. It then has storage nodes, or another key
/// that only a broker's configuration has at its top.
#[must_use]
pub fn is_brokers(text: &str) -> bool {
    const OURS: [&str; 5] = ["node", "state", "catalogue", "policy", "lend"];
    tidegate_config::parse(text, &mut FindingList::new("", text))
        .is_some_and(|document| OURS.iter().any(|key| document.get(*key).is_some()))
}

/// The shortest lease: clients report their progress four times a second, and a report may take a moment.
const SHORTEST_LEASE: Latency = Latency::from_millis(1_000);

/// The shortest interval: sensors count no faster.
const SHORTEST_INTERVAL: Latency = Latency::from_millis(10);

fn at_least(
    root: &Section<'_>,
    key: &str,
    least: Latency,
    default: Latency,
    report: &mut FindingList<'_>,
) -> Duration {
    let Some(given) = root.parsed::<Latency>(key, report) else { return default.to_duration() };
    if given.value < least {
        report.error(&given.span, format!("`{key}` is at least {least}"));
    }
    given.value.to_duration()
}

fn read(root: &Section<'_>, folder: &Path, report: &mut FindingList<'_>) -> Option<BrokerConfig> {
    let listen = root.parsed::<SocketAddr>("listen", report);
    if !root.has("listen") {
        root.missing("listen", "\"127.0.0.1:7311\"", report);
    }
    let token = token(root, "token_file", folder, report);
    if let Some(given) = &listen
        && !given.value.ip().is_loopback()
        && !root.has("token_file")
    {
        report.warning(
            &given.span,
            "every program that reaches this address may place transfers and remove objects from the \
                catalogue",
            "there is no authentication: write `token_file = \"FILE\"`, or keep it within a network that \
                you trust",
        );
    }
    if let Some(given) = &listen
        && !given.value.ip().is_loopback()
        && root.has("token_file")
    {
        report.warning(
            &given.span,
            "HTTP beyond this machine is not encrypted: any host on the way can read the token, and change \
                answers",
            "listen on 127.0.0.1, behind a server that ends TLS, or keep it within a network that you trust",
        );
    }
    let names = root.list::<String>("names", "names no host", report).unwrap_or_default();
    for given in names.iter().filter(|given| !is_host_name(&given.value)) {
        let why = format!("`{}` is no name of a host", given.value.escape_debug());
        report.error_with_help(&given.span, why, "write it without a port, such as \"broker.example\"");
    }
    let state = root.text("state", report);
    if !root.has("state") {
        root.missing("state", "\"/var/lib/tidegate/broker\"", report);
    }
    let site = root.table("catalogue", CATALOGUE_KEYS, report);
    let name = listen.as_ref().map_or_else(String::new, |given| given.value.to_string());
    let site = site.and_then(|table| site_plan(&table, name, folder, report));
    let policy = policy(root, report);
    let interval = at_least(root, "interval", SHORTEST_INTERVAL, Latency::from_millis(1_000), report);
    let lease = at_least(root, "lease", SHORTEST_LEASE, Latency::from_millis(10_000), report);
    if lease < 2 * interval
        && let Some(span) = root.key_span("lease").or_else(|| root.key_span("interval"))
    {
        report.error(
            &span,
            "`lease` must be at least twice `interval`: transfers would be taken for dead between two looks",
        );
    }
    if let Some(site) = &site
        && site.lease < 4 * interval
        && let Some(span) = root.key_span("catalogue")
    {
        let why = "`lease` of the catalogue must be at least four times `interval`: that is how often a \
            broker says that it is there";
        report.error(&span, why);
    }
    let queue = root.whole("queue", 1..=1_000_000, report);
    let lend = root.has("lend").then(|| root.flag("lend", report));
    let nodes = nodes(root, folder, report);
    let mut placement = PlacementConfig::new(policy);
    placement.lease = lease;
    if let Some(queue) = queue {
        placement.greatest_queue = usize::try_from(queue.value).unwrap_or(usize::MAX);
    }
    if let Some(lend) = lend {
        placement.lend = lend;
        if lend
            && !matches!(policy, PlacementPolicy::SmR1 { .. })
            && let Some(span) = root.key_span("lend")
        {
            report.warning(
                &span,
                "what is lent admits no transfer by this policy: it does not go by reservations",
                "leave `lend` out, or write `policy = \"sm-r1\"`",
            );
        }
    }
    Some(BrokerConfig {
        listen: listen?.value,
        names: names.into_iter().map(|given| given.value).collect(),
        token,
        state: folder.join(state?.value),
        site,
        placement,
        interval,
        nodes,
        warnings: Vec::new(),
    })
}

fn is_host_name(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    (1..=253).contains(&text.len()) && text.bytes().all(allowed)
}

/// Reads the token in a file that a key names.
fn token(table: &Section<'_>, key: &str, folder: &Path, report: &mut FindingList<'_>) -> Option<BearerToken> {
    let given = table.text(key, report)?;
    let read = BearerToken::from_file(&folder.join(given.value));
    read.map_err(|error| report.error(&given.span, error.to_string())).ok()
}

/// The shortest lease of a catalogue: a broker that waits a moment for a disk is not dead.
const SHORTEST_HOLD: Latency = Latency::from_millis(2_000);

fn site_plan(
    table: &Section<'_>,
    name: String,
    folder: &Path,
    report: &mut FindingList<'_>,
) -> Option<SitePlan> {
    if !table.has("nats") {
        table.missing("nats", "[\"nats://10.0.0.5:4222\"]", report);
    }
    let servers = table.list::<String>("nats", "names no server", report).unwrap_or_default();
    for server in &servers {
        let address = reqwest::Url::parse(&server.value).ok();
        let is_server = |url: &reqwest::Url| matches!(url.scheme(), "nats" | "tls") && url.has_host();
        match address {
            Some(url) if !url.username().is_empty() || url.password().is_some() => report.error(
                &server.span,
                "a password does not belong into an address: write `credentials = \"FILE\"`",
            ),
            Some(url) if is_server(&url) => {}
            _ => report.error(
                &server.span,
                "a server of NATS is written `\"nats://HOST:PORT\"` or `\"tls://HOST:PORT\"`",
            ),
        }
    }
    let bucket = table.text("bucket", report);
    let word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    if let Some(given) = &bucket
        && (given.value.is_empty() || given.value.len() > 100 || !given.value.chars().all(word))
    {
        report.error(&given.span, "a bucket has 1 to 100 of the letters, digits, `_` and `-`");
    }
    let replicas = table.whole("replicas", 1..=5, report);
    let path =
        |key, report: &mut FindingList<'_>| table.text(key, report).map(|given| folder.join(given.value));
    Some(SitePlan {
        servers: servers.into_iter().map(|given| given.value).collect(),
        bucket: bucket.map_or_else(|| "tidegate-transfers".to_owned(), |given| given.value.to_owned()),
        replicas: replicas.map_or(1, |given| u8::try_from(given.value).unwrap_or(1)),
        credentials: path("credentials", report),
        authorities: path("authorities", report),
        lease: at_least(table, "lease", SHORTEST_HOLD, Latency::from_millis(10_000), report),
        standby: table.has("standby") && table.flag("standby", report),
        name,
    })
}

fn policy(root: &Section<'_>, report: &mut FindingList<'_>) -> PlacementPolicy {
    let named = root.choice("policy", POLICIES, report);
    let overhead = root.number("overhead", report);
    let named = named
        .map_or(Named::Overhead(1.0, |overhead| PlacementPolicy::SmR3 { overhead }), |given| given.value);
    match (named, overhead) {
        (Named::Fixed(policy), None) => policy,
        (Named::Fixed(policy), Some(given)) => {
            report
                .error(&given.span, "this policy has no `overhead`: static-qos, sm-r1, sm-r2 and sm-r3 have");
            policy
        }
        (Named::Overhead(default, policy), None) => policy(default),
        (Named::Overhead(_, policy), Some(given)) => {
            let policy = policy(given.value);
            if let Err(error) = policy.validate() {
                report.error(&given.span, error.to_string());
            }
            policy
        }
    }
}

fn nodes(root: &Section<'_>, folder: &Path, report: &mut FindingList<'_>) -> Vec<NodePlan> {
    let tables = root.named_tables("node", NODE_KEYS, report).unwrap_or_default();
    if tables.is_empty() {
        report.error_with_help(
            root.span(),
            "the configuration has no storage nodes",
            "add a table `[node.NAME]` with its `place`",
        );
    }
    let mut places = BTreeSet::new();
    let mut nodes = Vec::new();
    for (name, table) in tables {
        let config_name = ResourceName::new(name.value);
        if let Err(error) = &config_name {
            report.error(&name.span, error.to_string());
        }
        let place = place(&table, report);
        if !table.has("place") {
            table.missing("place", "\"file:///srv/store\"", report);
        }
        if let Some(place) = &place
            && !places.insert(place.value.to_string())
        {
            report.error(&place.span, "another node is at this place: what is free there would count twice");
        }
        let class = |key, report: &mut FindingList<'_>| {
            let given = table.whole(key, 0..=u64::from(u8::MAX), report);
            given.map_or(0, |given| u8::try_from(given.value).unwrap_or(u8::MAX))
        };
        let (availability, cost) = (class("availability", report), class("cost", report));
        let both = peak(&table, "peak", report);
        let (read, write) = (peak(&table, "peak_read", report), peak(&table, "peak_write", report));
        let learnt = NodePeak::learnt(ByteRate::ZERO);
        let latency = table.parsed::<Latency>("latency", report).map(|given| given.value);
        let capacity = table.parsed::<Bytes>("capacity", report).map(|given| given.value);
        let sense = table.text("sense", report).map(|given| folder.join(given.value));
        let agent = table.flag("agent", report);
        if agent
            && sense.is_some()
            && let Some(span) = table.key_span("sense")
        {
            report.error(&span, "`sense` and `agent` both say what the node does: leave one out");
        }
        let agent_token = token(&table, "agent_token_file", folder, report);
        if let Some(span) = table.key_span("agent_token_file") {
            if !agent {
                report.error(&span, "`agent_token_file` is of a node with `agent = true`");
            } else if !root.has("token_file") {
                report.error(
                    &span,
                    "without `token_file` of the broker any program may report on any node: write that, too",
                );
            }
        }
        let (tape, cache) = tape(&table, report);
        let (Ok(name), Some(place)) = (config_name, place) else { continue };
        let config = NodeConfig {
            name,
            read: read.or(both).unwrap_or(learnt),
            write: write.or(both).unwrap_or(learnt),
            availability,
            cost,
            latency,
            tape,
            free: capacity,
        };
        nodes.push(NodePlan { config, place: place.value, capacity, sense, agent, agent_token, cache });
    }
    nodes
}

/// Reads the places of nodes, for a client: it needs to know nothing else of them.
pub(crate) fn places(root: &Section<'_>, report: &mut FindingList<'_>) -> BTreeMap<ResourceName, NodePlace> {
    let mut places = BTreeMap::new();
    for (name, table) in root.named_tables("node", NODE_KEYS, report).unwrap_or_default() {
        if !table.has("place") {
            table.missing("place", "\"file:///srv/store\"", report);
        }
        match (ResourceName::new(name.value), place(&table, report)) {
            (Ok(name), Some(place)) => drop(places.insert(name, place.value)),
            (Err(error), _) => report.error(&name.span, error.to_string()),
            (Ok(_), None) => {}
        }
    }
    places
}

/// Reads the place of a node. The further settings of a bucket may be in keys of their own.
fn place(table: &Section<'_>, report: &mut FindingList<'_>) -> Option<PlacedValue<NodePlace>> {
    let mut place = table.parsed::<NodePlace>("place", report);
    for what in BucketSetting::ALL {
        let Some(given) = table.text(what.name(), report) else { continue };
        let key = what.name();
        match place.as_mut().map(|place| &mut place.value) {
            Some(NodePlace::S3(bucket)) if bucket.says(what) => {
                report.error(&given.span, format!("`place` says the {key} already"));
            }
            Some(NodePlace::S3(bucket)) => {
                let can_be = bucket.say(what, given.value);
                if can_be {
                    continue;
                }
                let example = match what {
                    BucketSetting::Endpoint => "`\"https://HOST:PORT\"`",
                    BucketSetting::Region => "`\"eu-central-1\"`",
                    BucketSetting::Profile => "the name of a part of the credentials file",
                };
                let value = given.value.chars().take(100).collect::<String>();
                let value = value.escape_debug();
                report.error(&given.span, format!("`{key}` cannot be `{value}`: write {example}"));
            }
            Some(_) => report.error(&given.span, format!("`{key}` is of a `place` that begins with `s3://`")),
            // What is wrong with it is said.
            None => {}
        }
    }
    place
}

/// Reads the tape store and its cache, if a node is a disk in front of tapes.
fn tape(table: &Section<'_>, report: &mut FindingList<'_>) -> (Option<NodeTapes>, Option<Bytes>) {
    let recall = table.parsed::<Latency>("recall", report).map(|given| given.value);
    let drives = table.whole("drives", 1..=10_000, report);
    let cache = table.parsed::<Bytes>("cache", report).map(|given| given.value);
    for key in ["drives", "cache"] {
        if let Some(span) = table.key_span(key)
            && !table.has("recall")
        {
            report.error(
                &span,
                format!("`{key}` is of a node that has tapes: say with `recall` how long a recall takes"),
            );
        }
    }
    let drives = drives.map_or(1, |given| u32::try_from(given.value).unwrap_or(u32::MAX));
    (recall.map(|recall| NodeTapes { recall, drives }), cache.filter(|_| recall.is_some()))
}

fn peak(table: &Section<'_>, key: &str, report: &mut FindingList<'_>) -> Option<NodePeak> {
    let given = table.parsed::<ByteRate>(key, report)?;
    if given.value == ByteRate::ZERO {
        report.error(&given.span, format!("`{key}` of nothing: leave it out where it is to be learnt"));
    }
    Some(NodePeak::pinned(given.value))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RIGHT: &str = r#"
listen = "127.0.0.1:0"
state = "state"
policy = "sm-r1"
overhead = 1.5
[node.array]
place = "http://127.0.0.1:8080/store/"
peak = "300MB/s"
peak_read = "200MB/s"
capacity = "2TB"
[node.disk]
place = "file:///srv/disk"
sense = "disk"
"#;

    fn messages(text: &str) -> Vec<String> {
        match BrokerConfig::parse("broker.toml", text, Path::new("/etc")) {
            Ok(_) => Vec::new(),
            Err(ConfigError::Invalid(findings)) => findings.iter().map(ToString::to_string).collect(),
            Err(other) => panic!("{other}"),
        }
    }

    #[test]
    fn reads_what_is_there_and_learns_what_is_not() {
        let config = BrokerConfig::parse("broker.toml", RIGHT, Path::new("/etc")).unwrap();
        assert_eq!(config.placement.policy, PlacementPolicy::SmR1 { overhead: 1.5 });
        assert_eq!(config.state, Path::new("/etc/state"));
        let [array, disk] = &config.nodes[..] else { panic!("two nodes") };
        assert_eq!(array.config.read, NodePeak::pinned(ByteRate::new(200e6)));
        assert_eq!(array.config.write, NodePeak::pinned(ByteRate::new(300e6)));
        assert!(!disk.config.write.is_pinned());
        assert!(is_brokers("listen = \"127.0.0.1:0\"\nstate = \"s\"") && is_brokers("[catalogue]"));
        assert!(is_brokers(RIGHT) && !is_brokers("[pool.a]\n[pool.a.node]") && !is_brokers("[node"));
        assert_eq!(disk.sense.as_deref(), Some(Path::new("/etc/disk")));
        assert!(config.warnings.is_empty());
    }

    #[test]
    fn every_mistake_is_reported_with_its_place() {
        for (from, to, expected) in [
            ("listen = \"127.0.0.1:0\"", "", "needs `listen`"),
            ("state = \"state\"", "", "needs `state`"),
            ("sm-r1", "sm-r4", "`policy` cannot be `sm-r4`"),
            ("1.5", "0", "the overhead k of a policy is above 0"),
            ("sm-r1", "rr", "this policy has no `overhead`"),
            ("peak = \"300MB/s\"", "peak = \"0MB/s\"", "`peak` of nothing"),
            ("file:///srv/disk", "ftp://srv", "`place`"),
            ("file:///srv/disk", "http://127.0.0.1:8080/store", "another node is at this place"),
            ("state = \"state\"", "state = \"state\"\nlease = \"1s\"", "`lease` must be at least twice"),
            (
                "state = \"state\"",
                "state = \"state\"\nlease = \"200ms\"\ninterval = \"100ms\"",
                "`lease` is at least 1",
            ),
            ("state = \"state\"", "state = \"state\"\ninterval = \"1ms\"", "`interval` is at least 10"),
            ("capacity", "capcity", "unknown key `capcity`"),
            ("[node.array]", "[catalogue]\n[node.array]", "needs `nats`"),
            ("[node.array]", "[catalogue]\nnats = []\n[node.array]", "names no server"),
            (
                "[node.array]",
                "[catalogue]\nnats = [\"http://a\"]\n[node.array]",
                "a server of NATS is written `\"nats://HOST:PORT\"`",
            ),
            (
                "[node.array]",
                "[catalogue]\nnats = [\"nats://u:p@a\"]\n[node.array]",
                "a password does not belong into an address",
            ),
            (
                "[node.array]",
                "[catalogue]\nnats = [\"nats://a\"]\nbucket = \"a.b\"\n[node.array]",
                "a bucket has 1 to 100",
            ),
            (
                "[node.array]",
                "[catalogue]\nnats = [\"nats://a\"]\nlease = \"3s\"\n[node.array]",
                "at least four times `interval`",
            ),
            ("file:///srv/disk", "s3://UPPER/", "is no place of a storage node"),
            ("sense = \"disk\"", "region = \"eu-1\"", "`region` is of a `place` that begins with `s3://`"),
            (
                "file:///srv/disk\"",
                "s3://data\"\nendpoint = \"10.0.0.1:9000\"",
                "`endpoint` cannot be `10.0.0.1:9000`",
            ),
            ("file:///srv/disk\"", "s3://data?region=a\"\nregion = \"b\"", "says the region already"),
            ("sense = \"disk\"", "drives = 2", "of a node that has tapes"),
            ("sense = \"disk\"", "recall = \"90s\"\ndrives = 0", "`drives`"),
            ("sense = \"disk\"", "sense = \"disk\"\nagent = true", "leave one out"),
            (
                "state = \"state\"",
                "state = \"state\"\ntoken_file = \"none\"",
                "cannot read the token in /etc/none",
            ),
            ("sense = \"disk\"", "agent_token_file = \"none\"", "is of a node with `agent = true`"),
            (
                "sense = \"disk\"",
                "agent = true\nagent_token_file = \"none\"",
                "without `token_file` of the broker",
            ),
        ] {
            let found = messages(&RIGHT.replacen(from, to, 1));
            assert!(found.iter().any(|message| message.contains(expected)), "{expected}: {found:?}");
            assert!(found.iter().all(|message| message.starts_with("broker.toml:")));
        }
        assert!(messages("listen = \"127.0.0.1:0\"\nstate = \"s\"").join("").contains("no storage nodes"));
    }

    #[test]
    fn what_belongs_to_a_bucket_has_keys_of_its_own() {
        let keys =
            "s3://data/a\"\nendpoint = \"http://10.0.0.1:9000/\"\nregion = \"eu-1\"\nprofile = \"lab\"";
        let text = RIGHT.replace("file:///srv/disk\"", keys);
        let config = BrokerConfig::parse("broker.toml", &text, Path::new("")).unwrap();
        let expected = "s3://data/a?endpoint=http%3A%2F%2F10.0.0.1%3A9000&region=eu-1&profile=lab";
        assert_eq!(config.nodes[1].place.to_string(), expected);
    }

    #[test]
    fn an_address_for_everybody_is_warned_of() {
        let text = RIGHT.replace("127.0.0.1:0", "0.0.0.0:7311");
        let config = BrokerConfig::parse("broker.toml", &text, Path::new("")).unwrap();
        assert!(config.warnings[0].to_string().contains("every program that reaches this address"));
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("token"), "0123456789abcdef").unwrap();
        let text = text.replace("state = \"state\"", "state = \"state\"\ntoken_file = \"token\"");
        let config = BrokerConfig::parse("broker.toml", &text, folder.path()).unwrap();
        let [warning] = &config.warnings[..] else { panic!("{:?}", config.warnings) };
        assert!(warning.to_string().contains("is not encrypted") && config.token.is_some());
    }

    #[test]
    fn lending_was_taken_silently_where_it_changes_nothing() {
        let warnings = |policy: &str, lend: &str| {
            let text = RIGHT.replace("\"sm-r1\"\noverhead = 1.5", &format!("\"{policy}\"\n{lend}"));
            BrokerConfig::parse("broker.toml", &text, Path::new("")).unwrap().warnings
        };
        let [warning] = &warnings("sm-r3", "lend = true")[..] else { panic!("one warning") };
        assert!(warning.to_string().contains("admits no transfer by this policy"), "{warning}");
        for (policy, lend) in [("sm-r1", "lend = true"), ("sm-r3", "lend = false"), ("sm-r3", "")] {
            assert!(warnings(policy, lend).is_empty(), "{policy} {lend}");
        }
    }

    #[test]
    fn the_document_and_the_code_know_the_same_keys() {
        let document = include_str!("../../../docs/reference/configuration.md");
        for (heading, keys) in [
            ("## The broker", ROOT_KEYS),
            ("### `[catalogue]`", CATALOGUE_KEYS),
            ("### `[node.NAME]`", NODE_KEYS),
        ] {
            let section =
                document.split_once(&format!("\n{heading}\n")).unwrap_or_else(|| panic!("no `{heading}`")).1;
            let section = section.split("\n#").next().unwrap();
            let mut documented: Vec<_> =
                section.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
            let mut known = keys.to_vec();
            documented.sort_unstable();
            known.sort_unstable();
            assert_eq!(documented, known, "under `{heading}`");
        }
    }
}
