//! `[cluster]` of a configuration: the other hosts that share resources, and the way to them.

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use thiserror::Error;
use tidegate_config::{FindingList, PlacedValue, Section};
use tidegate_units::{ConsumerName, HostName, ResourceName};

use tidegate_tls::{TlsError, TlsIdentity, check_authorities, check_certificate, check_private_key};

use crate::config::{
    Carrier, CarrierReach, ClusterConfig, FileConfig, NatsConfig, NatsCredentials, UdpConfig,
};
use crate::key::{ClusterKey, KeyError, Secret, SecretError, check_credentials};
use crate::name::ClusterName;
use crate::peer_address::PeerAddress;
use crate::policy_writer::PolicyWriter;
use crate::signature::PolicyWriters;
use crate::tls::TlsSettings;

/// Keys of `[cluster]`.
pub const CLUSTER_KEYS: &[&str] = tidegate_config::keys::cluster::CLUSTER.names;

/// Keys of `policy`.
pub const POLICY_KEYS: &[&str] = tidegate_config::keys::cluster::POLICY.names;

/// Keys of `carrier`.
pub const CARRIER_KEYS: &[&str] = tidegate_config::keys::cluster::CARRIER.names;

/// Each kind of carrier with the keys that belong to it only.
const OWN_KEYS: &[(&str, &[&str])] = &[
    ("udp", &["listen", "peers", "group", "interface", "hops", "key_file"]),
    ("file", &["path", "slots", "slot"]),
    (
        "nats",
        &[
            "servers",
            "tls",
            "ca_file",
            "certificate_file",
            "private_key_file",
            "token_file",
            "user",
            "password_file",
            "credentials_file",
            "replicas",
        ],
    ),
];

/// Room for a rack of hypervisors; a quarter of a megabyte.
const DEFAULT_SLOTS: u16 = 64;

/// Stays on the local network.
const DEFAULT_HOPS: u8 = 1;

/// The part of this host in a cluster, as the configuration has it. The secrets are still in their files.
#[derive(Debug, Clone, PartialEq)]
pub struct ClusterPlan {
    name: ClusterName,
    host: HostName,
    interval: Duration,
    carrier: CarrierPlan,
    pools: Vec<ResourceName>,
    policy: PolicyPlan,
}

/// The policies of the cluster that count here, and the exports that they may limit.
#[derive(Debug, Clone, PartialEq, Default)]
struct PolicyPlan {
    writers: PolicyWriters,
    may_limit: Vec<ConsumerName>,
}

/// A secret that joining needs cannot be had.
#[derive(Debug, Error)]
pub enum CredentialError {
    /// The key of the hosts.
    #[error("{0}{cause}", cause = cause(.0))]
    Key(#[from] KeyError),
    /// The password or token for the server.
    #[error("{0}{cause}", cause = cause(.0))]
    Secret(#[from] SecretError),
}

fn cause(error: &dyn std::error::Error) -> String {
    error.source().map(|source| format!(": {source}")).unwrap_or_default()
}

#[derive(Debug, Clone, PartialEq)]
enum CarrierPlan {
    Udp { listen: SocketAddr, reach: CarrierReach, key_file: PathBuf },
    File(FileConfig),
    Nats { servers: Vec<String>, credentials: CredentialsPlan, tls: Option<TlsSettings>, replicas: u8 },
}

/// The credentials that a NATS server asks for, secrets still in their files.
#[derive(Debug, Clone, PartialEq)]
enum CredentialsPlan {
    None,
    Token(PathBuf),
    User { user: String, password_file: PathBuf },
    File(PathBuf),
}

impl CredentialsPlan {
    fn read(&self) -> Result<NatsCredentials, SecretError> {
        Ok(match self {
            Self::None => NatsCredentials::None,
            Self::Token(file) => NatsCredentials::Token(Secret::from_checked_file(file)?),
            Self::User { user, password_file } => {
                let password = Secret::from_checked_file(password_file)?;
                NatsCredentials::User { user: user.clone(), password }
            }
            Self::File(file) => NatsCredentials::File(file.clone()),
        })
    }
}

#[derive(Clone, Copy)]
enum CarrierName {
    Udp,
    File,
    Nats,
}

impl CarrierName {
    const ALL: [(&'static str, Self); 3] = [("udp", Self::Udp), ("file", Self::File), ("nats", Self::Nats)];
}

impl ClusterPlan {
    /// Returns the configuration that joining takes: reads the key or password, which were looked at when the
    /// plan was read.
    ///
    /// # Errors
    /// When that cannot be read, or is none.
    pub fn config(&self) -> Result<ClusterConfig, CredentialError> {
        let carrier = match &self.carrier {
            CarrierPlan::Udp { listen, reach, key_file } => Carrier::Udp(UdpConfig {
                listen: *listen,
                reach: reach.clone(),
                key: ClusterKey::from_checked_file(key_file)?,
            }),
            CarrierPlan::File(file) => Carrier::File(file.clone()),
            CarrierPlan::Nats { servers, credentials, tls, replicas } => Carrier::Nats(NatsConfig {
                servers: servers.clone(),
                credentials: credentials.read()?,
                tls: tls.clone(),
                replicas: *replicas,
                writers: self.policy.writers.clone(),
            }),
        };
        let (name, host) = (self.name.clone(), self.host.clone());
        Ok(ClusterConfig { name, host, interval: self.interval, carrier })
    }

    /// Returns the server that keeps the cluster's policies; `None` where the carrier brings none.
    ///
    /// # Errors
    /// When the password cannot be read.
    pub fn policies(&self) -> Result<Option<NatsConfig>, CredentialError> {
        Ok(match self.config()?.carrier {
            Carrier::Nats(nats) => Some(nats),
            Carrier::Udp(_) | Carrier::File(_) => None,
        })
    }

    /// The cluster's name.
    #[must_use]
    pub const fn name(&self) -> &ClusterName {
        &self.name
    }

    /// Returns this host's name in it.
    #[must_use]
    pub const fn host(&self) -> &HostName {
        &self.host
    }

    /// Protected exports that a policy may limit.
    #[must_use]
    pub fn may_limit(&self) -> &[ConsumerName] {
        &self.policy.may_limit
    }

    /// The pools whose resources other hosts share.
    #[must_use]
    pub fn pools(&self) -> &[ResourceName] {
        &self.pools
    }
}

/// A resource that takes part in the cluster.
#[derive(Debug, Clone)]
pub struct ClusterMember {
    /// Its name.
    pub resource: ResourceName,
    /// The interval of its reports; `None` without one, which is reported elsewhere.
    pub interval: Option<Duration>,
    /// The place of the key that makes it take part.
    pub span: Range<usize>,
}

/// A file that `[cluster]` names, and what for.
#[derive(Debug, Clone)]
pub enum ClusterFile {
    /// The key of all hosts.
    Key(PlacedValue<PathBuf>),
    /// A token or password.
    Secret(PlacedValue<PathBuf>),
    /// Credentials of a NATS user.
    Credentials(PlacedValue<PathBuf>),
    /// Certificates of authorities.
    Authorities(PlacedValue<PathBuf>),
    /// This host's certificate.
    Certificate(PlacedValue<PathBuf>),
    /// The key of that.
    PrivateKey(PlacedValue<PathBuf>),
}

/// The reader of `[cluster]`: where findings go, and the files that were named.
#[derive(Debug)]
pub struct ClusterReader<'a, 'b> {
    /// The findings.
    pub report: &'a mut FindingList<'b>,
    /// The folder where relative paths start.
    pub folder: &'a Path,
    /// The files that the section names.
    pub files: Vec<ClusterFile>,
    /// Words for a configuration without a member.
    pub words: MemberWords,
    /// The name of this host if none is written; `None`: that of the machine.
    pub default_host: Option<HostName>,
}

/// The words for members of a cluster in messages.
#[derive(Debug, Clone, Copy)]
pub struct MemberWords {
    /// The kind of a member: `pool`.
    pub member: &'static str,
    /// The complaint about a section without members.
    pub none: &'static str,
    /// Advice for that.
    pub help: &'static str,
}

impl ClusterReader<'_, '_> {
    fn path(&mut self, text: &str, span: &Range<usize>) -> PathBuf {
        self.report.path(self.folder, text, span)
    }

    fn file(
        &mut self,
        section: &Section<'_>,
        key: &str,
        file: fn(PlacedValue<PathBuf>) -> ClusterFile,
    ) -> Option<PathBuf> {
        let given = section.text(key, self.report)?;
        let path = self.path(given.value, &given.span);
        self.files.push(file(PlacedValue { value: path.clone(), span: given.span }));
        Some(path)
    }

    /// Reports each file that cannot be used now.
    pub fn check_files(&mut self) {
        for file in &self.files {
            let (file, problem) = file.problem();
            if let Some(problem) = problem {
                self.report.error(&file.span, format!("`{}`: {problem}", file.value.display()));
            }
        }
    }
}

impl ClusterFile {
    fn problem(&self) -> (&PlacedValue<PathBuf>, Option<String>) {
        let said = |error: &dyn std::error::Error| format!("{error}{}", cause(error));
        match self {
            Self::Key(file) => (file, ClusterKey::from_file(&file.value).err().map(|error| said(&error))),
            Self::Secret(file) => (file, Secret::from_file(&file.value).err().map(|error| said(&error))),
            Self::Credentials(file) => (file, check_credentials(&file.value).err().map(|error| said(&error))),
            Self::Authorities(file) => (file, check_authorities(&file.value).err().map(|error| said(&error))),
            Self::Certificate(file) => (file, check_certificate(&file.value).err().map(|error| said(&error))),
            Self::PrivateKey(file) => (file, check_private_key(&file.value).err().map(|error| said(&error))),
        }
    }
}

/// Reads `[cluster]`, which resources may be members of.
pub fn read_cluster(
    root: &Section<'_>,
    members: &[ClusterMember],
    context: &mut ClusterReader<'_, '_>,
) -> Option<PlacedValue<ClusterPlan>> {
    if !root.has("cluster") {
        for member in members {
            context.report.error_with_help(
                &member.span,
                format!(
                    "{} `{}` has a cluster, and the configuration has none",
                    context.words.member, member.resource
                ),
                "add a table `[cluster]`: who the other hosts are, and how they are reached",
            );
        }
        return None;
    }
    let section = root.table("cluster", CLUSTER_KEYS, context.report)?;
    if members.is_empty() {
        context.report.warning(section.span(), context.words.none.to_owned(), context.words.help);
    }
    if !section.has("name") {
        section.missing("name", "\"san-a\"", context.report);
    }
    let name = section.parsed::<ClusterName>("name", context.report);
    let host = host(&section, context);
    let carrier = carrier(&section, context);
    let policy = policy(&section, carrier.as_ref(), context.report);
    // Hosts with different intervals hear each other less often than they decide; by the longest, none is
    // stale.
    let interval = members.iter().filter_map(|member| member.interval).max();
    let plan = ClusterPlan {
        name: name?.value,
        host: host?,
        interval: interval.unwrap_or(ClusterConfig::DEFAULT_INTERVAL),
        carrier: carrier?,
        pools: members.iter().map(|member| member.resource.clone()).collect(),
        policy,
    };
    Some(PlacedValue {
        value: plan,
        span: section.key_span("carrier").unwrap_or_else(|| section.span().clone()),
    })
}

/// Reports what keeps a host from joining, as far as that can be known without doing it. A file that cannot
/// be used by itself is said where files are looked at.
pub fn check_cluster(plan: &PlacedValue<ClusterPlan>, report: &mut FindingList<'_>) {
    if let Ok(config) = plan.value.config()
        && let Err(error) = config.check()
    {
        report.error(&plan.span, error.to_string());
    }
    if let CarrierPlan::Nats { tls: Some(tls), .. } = &plan.value.carrier
        && let Err(error @ TlsError::Pair { .. }) = tls.check()
    {
        report.error(&plan.span, error.to_string());
    }
}

/// The host's name: that of the machine unless `host` names another.
fn host(section: &Section<'_>, context: &mut ClusterReader<'_, '_>) -> Option<HostName> {
    if section.has("host") {
        return Some(section.parsed::<HostName>("host", context.report)?.value);
    }
    if let Some(host) = &context.default_host {
        return Some(host.clone());
    }
    let machine = rustix::system::uname();
    let name = HostName::new(&machine.nodename().to_string_lossy());
    if name.is_err() {
        section.missing("host", "\"host-1\"", context.report);
    }
    name.ok()
}

/// The writers whose policies count, and what policies may do to this host's protected exports.
fn policy(cluster: &Section<'_>, carrier: Option<&CarrierPlan>, report: &mut FindingList<'_>) -> PolicyPlan {
    let Some(section) = cluster.table("policy", POLICY_KEYS, report) else { return PolicyPlan::default() };
    if carrier.is_some_and(|carrier| !matches!(carrier, CarrierPlan::Nats { .. })) {
        report.warning(
            section.span(),
            "`policy` has no effect".to_owned(),
            "only the carrier `nats` brings policies",
        );
    }
    if !section.has("writers") {
        section.missing("writers", "[\"U…\"]", report);
    }
    let writers = section.list::<PolicyWriter>("writers", "names no key: no policy would count", report);
    let may_limit = section.list::<ConsumerName>("may_limit", "names no export: leave it out", report);
    PolicyPlan {
        writers: writers.into_iter().flatten().map(|given| given.value).collect(),
        may_limit: may_limit.into_iter().flatten().map(|given| given.value).collect(),
    }
}

fn carrier(cluster: &Section<'_>, context: &mut ClusterReader<'_, '_>) -> Option<CarrierPlan> {
    if !cluster.has("carrier") {
        let example = "{ kind = \"udp\", listen = \"0.0.0.0:7710\", peers = [\"10.0.0.2:7710\"], key_file = \
            \"cluster.key\" }";
        cluster.missing("carrier", example, context.report);
        return None;
    }
    let section = cluster.table("carrier", CARRIER_KEYS, context.report)?;
    if !section.has("kind") {
        section.missing("kind", "\"udp\"", context.report);
    }
    let kind = section.choice("kind", &CarrierName::ALL, context.report)?;
    let chosen = section.text("kind", context.report)?.value;
    for (name, keys) in OWN_KEYS.iter().filter(|(name, _)| *name != chosen) {
        for (key, span) in keys.iter().filter_map(|key| Some((key, section.key_span(key)?))) {
            context.report.error(&span, format!("`{key}` is only for `kind = \"{name}\"`"));
        }
    }
    match kind.value {
        CarrierName::Udp => udp(&section, context),
        CarrierName::File => file(&section, context),
        CarrierName::Nats => nats(&section, context),
    }
}

fn file(section: &Section<'_>, context: &mut ClusterReader<'_, '_>) -> Option<CarrierPlan> {
    if !section.has("path") {
        section.missing("path", "\"/mnt/shared/tidegate.cluster\"", context.report);
    }
    let path = section.text("path", context.report).map(|given| context.path(given.value, &given.span));
    let mut number = |key, least, greatest| {
        let given = section.whole(key, least..=greatest, context.report)?;
        u16::try_from(given.value).ok()
    };
    let slots = number("slots", 1, 512).unwrap_or(DEFAULT_SLOTS);
    let slot = number("slot", 0, u64::from(slots) - 1);
    Some(CarrierPlan::File(FileConfig { path: path?, slots, slot }))
}

fn udp(section: &Section<'_>, context: &mut ClusterReader<'_, '_>) -> Option<CarrierPlan> {
    for (key, example) in [("listen", "\"0.0.0.0:7710\""), ("key_file", "\"cluster.key\"")] {
        if !section.has(key) {
            section.missing(key, example, context.report);
        }
    }
    let listen = section.parsed::<SocketAddr>("listen", context.report);
    let key_file = context.file(section, "key_file", ClusterFile::Key);
    let reach = reach(section, context.report);
    Some(CarrierPlan::Udp { listen: listen?.value, reach: reach?, key_file: key_file? })
}

fn reach(section: &Section<'_>, report: &mut FindingList<'_>) -> Option<CarrierReach> {
    match (section.has("peers"), section.has("group")) {
        (true, true) => {
            report.error(section.span(), "`peers` and `group` exclude each other".to_owned());
            None
        }
        (false, false) => {
            section.missing("peers", "[\"10.0.0.2:7710\"]", report);
            None
        }
        (true, false) => {
            for key in ["interface", "hops"] {
                if let Some(span) = section.key_span(key) {
                    report.warning(
                        &span,
                        format!("`{key}` has no effect"),
                        "it is for multicast, with `group`",
                    );
                }
            }
            let peers = section.list::<PeerAddress>("peers", "names no host", report)?;
            Some(CarrierReach::Peers(peers.into_iter().map(|given| given.value).collect()))
        }
        (false, true) => {
            let group = section.parsed::<IpAddr>("group", report);
            let interface = section.text("interface", report).map(|given| given.value.to_owned());
            let hops = section.whole("hops", 1..=255, report);
            let hops = hops.and_then(|given| u8::try_from(given.value).ok()).unwrap_or(DEFAULT_HOPS);
            Some(CarrierReach::Multicast { group: group?.value, interface, hops })
        }
    }
}

fn nats(section: &Section<'_>, context: &mut ClusterReader<'_, '_>) -> Option<CarrierPlan> {
    if !section.has("servers") {
        section.missing("servers", "[\"nats://10.0.0.5:4222\"]", context.report);
    }
    let servers = section.list::<String>("servers", "names no server", context.report);
    let token = context.file(section, "token_file", ClusterFile::Secret);
    let user = section.text("user", context.report).map(|given| given.value.to_owned());
    let password = context.file(section, "password_file", ClusterFile::Secret);
    let signed = context.file(section, "credentials_file", ClusterFile::Credentials);
    let credentials = match (token, user, password, signed) {
        (None, None, None, None) => CredentialsPlan::None,
        (Some(token), None, None, None) => CredentialsPlan::Token(token),
        (None, Some(user), Some(password_file), None) => CredentialsPlan::User { user, password_file },
        (None, None, None, Some(signed)) => CredentialsPlan::File(signed),
        _ => {
            let message =
                "credentials are `token_file`, or `user` and `password_file`, or `credentials_file`";
            context.report.error(section.span(), message);
            return None;
        }
    };
    let tls = tls(section, context)?;
    warn_of_open_server(section, &credentials, tls.as_ref(), context.report);
    let replicas = section.whole("replicas", 1..=5, context.report);
    let replicas = replicas.and_then(|given| u8::try_from(given.value).ok()).unwrap_or(1);
    let servers = servers?.into_iter().map(|given| given.value).collect();
    Some(CarrierPlan::Nats { servers, credentials, tls, replicas })
}

/// Warns of a server that any client can use: reports are not signed, so that what the server lets in is
/// believed.
fn warn_of_open_server(
    section: &Section<'_>,
    credentials: &CredentialsPlan,
    tls: Option<&TlsSettings>,
    report: &mut FindingList<'_>,
) {
    let is_known = *credentials != CredentialsPlan::None || tls.is_some_and(|tls| tls.identity.is_some());
    let (what, help) = match (is_known, tls.is_some()) {
        (true, _) => return,
        (false, true) => (
            "no credentials: any program that reaches the NATS server can pose as hosts, and slow this one \
                down",
            "have the server ask for `user` and `password_file`, `token_file`, `credentials_file` or a \
                certificate",
        ),
        (false, false) => (
            "neither `tls` nor credentials: any program that reaches the NATS server can pose as hosts, and \
                slow this one down",
            "set `tls = true`, and have the server ask for `credentials_file`, or `user` and `password_file`",
        ),
    };
    report.warning(section.span(), what.to_owned(), help);
}

/// Reads the TLS settings of connections; the inner `None` is no encryption. Naming files for it turns it on.
fn tls(section: &Section<'_>, context: &mut ClusterReader<'_, '_>) -> Option<Option<TlsSettings>> {
    let wanted = section.flag("tls", context.report);
    let authorities = context.file(section, "ca_file", ClusterFile::Authorities);
    let certificate = context.file(section, "certificate_file", ClusterFile::Certificate);
    let private_key = context.file(section, "private_key_file", ClusterFile::PrivateKey);
    if section.has("tls") && !wanted {
        for key in ["ca_file", "certificate_file", "private_key_file"] {
            if let Some(span) = section.key_span(key) {
                context
                    .report
                    .error(&span, format!("`{key}` is for encrypted connections, and `tls` is off"));
            }
        }
        return Some(None);
    }
    let identity = match (certificate, private_key) {
        (None, None) => None,
        (Some(certificate), Some(private_key)) => Some(TlsIdentity { certificate, private_key }),
        _ => {
            let message = "`certificate_file` and `private_key_file` go together";
            context.report.error(section.span(), message);
            return None;
        }
    };
    let on = wanted || authorities.is_some() || identity.is_some();
    Some(on.then_some(TlsSettings { authorities, identity }))
}
