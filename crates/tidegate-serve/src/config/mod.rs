//! Configuration: TOML text becomes typed values once, here.
//!
//! The text is read key by key ([`tidegate_config`]). Every mistake is collected with its place, and nothing
//! stops at the first one: the author of a configuration wants all of them. Keys, units and defaults are
//! documented in `docs/reference/configuration.md`. A test compares it with the lists of keys in this module.

mod access;
mod accounts;
mod allow;
mod backend;
mod cluster;
mod contracts;
mod disks;
mod endpoints;
mod export;
mod listen;
mod named_export;
mod pool;
mod reservation;
mod scope;
mod upstream;

use std::collections::HashMap;
use std::fmt::Display;
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tidegate_gateway::{
    BackendConfig, DeviceError, DeviceProblem, DiskSocketError, ExportAccess, ExportStore, GatewayConfig,
    ListenConfig, ListenEndpoint, ObstructedDevice, PoolConfig, ServerFiles, StartError, TlsError, TlsUse,
    obstacles,
};
use tidegate_units::{ConsumerName, Latency};

use named_export::PlacedExport;
use pool::ReadPool;
use tidegate_cluster::{ClusterMember, check_cluster};
pub use tidegate_cluster::{ClusterPlan, CredentialError};

use crate::admission::PoolContracts;
pub use tidegate_config::{Finding, Severity};
use tidegate_config::{FindingList, FindingPlace, PlacedValue, Section};
use tidegate_service::TcpAddresses;
use tidegate_service::api::{ApiSettings, PlacedApi};
pub use tidegate_service::config::ConfigError;
use tidegate_service::config::{JournalSettings, MetricsAddress, read_bounded, warn_of_open_metrics};
use tidegate_service::obstacles::{ServicePlaces, is_used_by, why_not_tcp, why_not_unix};
use tidegate_service::operator_socket::RunningService;
use tidegate_sockets::holders;

const ROOT_KEYS: &[&str] = tidegate_config::keys::serve::SERVE.names;

const ADMIT_KEYS: &[&str] = tidegate_config::keys::serve::ADMIT.names;

/// The time that a drain waits for clients by default: less than the 90 s after which systemd kills.
const DEFAULT_DRAIN_DEADLINE: Duration = Duration::from_secs(30);

/// Everything that `tidegate serve` is told.
#[derive(Debug, Clone)]
pub struct ServeConfig {
    /// The gateway's configuration.
    pub gateway: GatewayConfig,
    /// The address at which `/metrics` and `/healthz` are served; `None`: they are not served.
    pub metrics: Option<SocketAddr>,
    /// The API; `None`: the socket in systemd's runtime directory, if there is one.
    pub api: Option<ApiSettings>,
    /// The file with the token that questions about contracts show; `None`: they are not answered.
    pub admit_token: Option<PathBuf>,
    /// The time that a drain waits for clients before it cuts them off.
    pub drain_deadline: Duration,
    /// The pools' promises over the day, where their laws keep contracts.
    pub contracts: Vec<PoolContracts>,
    /// The hosts that share pools' resources with this one; `None`: there are none.
    pub cluster: Option<ClusterPlan>,
    /// The places in the file of what the gateway's start may fail at.
    places: Vec<(StartSubject, FindingPlace)>,
    /// The places of the addresses and the journal that every service has.
    service_places: ServicePlaces,
    /// Settings that are allowed and probably not meant.
    pub warnings: Vec<Finding>,
}

impl ServeConfig {
    /// Reads a configuration file, and checks that the files it names can be used.
    ///
    /// # Errors
    /// When the file cannot be read, or anything in it is wrong.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let text =
            read_bounded(path).map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
        read(&path.display().to_string(), &text, folder(path), Touch::Files)
    }

    /// Returns what kept a gateway from starting with its place in the file, where that is known.
    #[must_use]
    pub fn finding(&self, error: &StartError) -> Option<Finding> {
        self.obstacle(error, None)
    }

    /// Returns what would keep the service from starting on this machine now, with its places in the file.
    /// What its `running` process uses is no obstacle.
    #[must_use]
    pub fn obstacles(&self, running: Option<&RunningService>) -> Vec<Finding> {
        let of_gateway = obstacles(&self.gateway);
        let of_gateway = of_gateway.iter().filter_map(|error| self.obstacle(error, running));
        of_gateway.chain(self.service_places.obstacles(running)).collect()
    }

    /// Returns the exports whose volume was replaced by another file while the `running` process serves it.
    #[must_use]
    pub fn displaced(&self, running: &RunningService) -> Vec<Finding> {
        let exports = self.gateway.pools.iter().flat_map(|pool| &pool.exports);
        let findings = exports.filter_map(|export| {
            let ExportStore::Path(path) = &export.store else { return None };
            // The kernel's name for an open file that was removed from its path.
            let mut removed = path.canonicalize().ok()?.into_os_string();
            removed.push(" (deleted)");
            let holders = holders::of_file(Path::new(&removed));
            holders.iter().find(|holder| Some(holder.process) == running.process)?;
            let subject = StartSubject::Volume(export.name.clone());
            let (_, place) = self.places.iter().find(|(known, _)| *known == subject)?;
            let (export, path) = (&export.name, path.display());
            Some(place.warning(
                format!(
                    "the running service serves another file as `{export}`, which was at `{path}` before"
                ),
                "what clients write is lost at a restart: copy it by a client (nbdcopy), then restart",
            ))
        });
        findings.collect()
    }

    fn obstacle(&self, error: &StartError, running: Option<&RunningService>) -> Option<Finding> {
        let address = |address: &dyn Display, why: &str| format!("cannot listen on `{address}`: {why}");
        let (subject, message) = match error {
            StartError::Listen { endpoint, source } => {
                let why = match endpoint {
                    ListenEndpoint::Tcp(tcp) if is_in_use(source) => why_not_tcp(*tcp, running)?,
                    ListenEndpoint::Tcp(_) => source.to_string(),
                    ListenEndpoint::Unix(path) => why_not_unix(path, running)?,
                };
                (StartSubject::Listen(endpoint.clone()), address(endpoint, &why))
            }
            StartError::Disk(DiskSocketError { socket, .. }) => {
                let why = why_not_unix(&socket.path, running)?;
                (StartSubject::Disk(socket.to_string()), address(socket, &why))
            }
            StartError::Ublk(DeviceError { number, problem, .. }) => {
                let server = match problem {
                    DeviceProblem::Obstructed(ObstructedDevice::Served(process)) => Some(*process),
                    _ => None,
                };
                let is_own = |running: &RunningService| {
                    server.is_some_and(|server| {
                        running.process.is_none_or(|own| i64::from(own) == i64::from(server))
                    })
                };
                if running.is_some_and(is_own) {
                    return None;
                }
                (StartSubject::Disk(number.to_string()), address(number, &problem.to_string()))
            }
            StartError::Open { export, path, source } => {
                let is_busy = source.kind() == io::ErrorKind::ResourceBusy;
                let users = || path.canonicalize().map(|path| holders::of_file(&path)).unwrap_or_default();
                if is_busy && running.is_some() && is_used_by(running, &users()) {
                    return None;
                }
                (StartSubject::Volume(export.clone()), error.to_string())
            }
            _ => return None,
        };
        let (_, place) = self.places.iter().find(|(known, _)| *known == subject)?;
        Some(place.error(message))
    }

    /// Reads a configuration text without looking at the files it names. `name` is what findings call it;
    /// relative paths in it start at `folder`.
    ///
    /// # Errors
    /// When anything in the text is wrong.
    pub fn parse(name: &str, text: &str, folder: &Path) -> Result<Self, ConfigError> {
        read(name, text, folder, Touch::Nothing)
    }
}

fn folder(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new(""))
}

#[derive(Clone, Copy, PartialEq)]
enum Touch {
    Files,
    Nothing,
}

/// The state that every part of the reading needs.
struct ReadContext<'a> {
    report: FindingList<'a>,
    folder: &'a Path,
    touched: Vec<PathUse>,
    /// The places of what the gateway's start may fail at.
    places: Vec<(StartSubject, FindingPlace)>,
    /// The places of rules that want certificates of clients.
    certificate_rules: Vec<Range<usize>>,
    /// True if the files that it names are read.
    reads: bool,
}

/// Something at which the start of a gateway may fail.
#[derive(Debug, Clone, PartialEq, Eq)]
enum StartSubject {
    Listen(ListenEndpoint),
    /// The address of an export's disk.
    Disk(String),
    /// The volume of an export.
    Volume(ConsumerName),
}

fn is_in_use(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::AddrInUse
}

/// A path that the configuration names, and what for.
enum PathUse {
    Export { file: PlacedValue<PathBuf>, read_only: bool, shared: bool },
    DataFile(PlacedValue<PathBuf>),
    Socket(PlacedValue<PathBuf>),
    Key(PlacedValue<PathBuf>),
    Secret(PlacedValue<PathBuf>),
    Credentials(PlacedValue<PathBuf>),
    Authorities(PlacedValue<PathBuf>),
    Certificate(PlacedValue<PathBuf>),
    PrivateKey(PlacedValue<PathBuf>),
    Admitted(PlacedValue<PathBuf>),
    Token(PlacedValue<PathBuf>),
}

impl ReadContext<'_> {
    fn path(&mut self, text: &str, span: &Range<usize>) -> PathBuf {
        self.report.path(self.folder, text, span)
    }

    /// A file under a key, which is looked at when files are.
    fn file(
        &mut self,
        section: &Section<'_>,
        key: &str,
        path_use: fn(PlacedValue<PathBuf>) -> PathUse,
    ) -> Option<PathBuf> {
        let given = section.text(key, &mut self.report)?;
        let path = self.path(given.value, &given.span);
        self.touched.push(path_use(PlacedValue { value: path.clone(), span: given.span }));
        Some(path)
    }
}

fn read(name: &str, text: &str, folder: &Path, touch: Touch) -> Result<ServeConfig, ConfigError> {
    let mut context = ReadContext {
        report: FindingList::new(name, text),
        folder,
        touched: Vec::new(),
        places: Vec::new(),
        certificate_rules: Vec::new(),
        reads: touch == Touch::Files,
    };
    let Some(document) = tidegate_config::parse(text, &mut context.report) else {
        return Err(ConfigError::Invalid(context.report.into_findings()));
    };
    let what = "the configuration".to_owned();
    let root = Section::new(&document, 0..0, what, ROOT_KEYS, &mut context.report);
    let tls = endpoints::tls(&root, &mut context);
    let listen = endpoints::read(&root, root.has("tls"), &mut context);
    let metrics = root.parsed::<MetricsAddress>("metrics", &mut context.report);
    if let Some(metrics) = &metrics {
        warn_of_open_metrics(metrics, &mut context.report);
    }
    let api = ApiSettings::read(&root, context.folder, &mut context.report);
    let mut addresses = TcpAddresses::default();
    for given in listen.iter().filter_map(endpoints::tcp).chain(metrics.iter().map(MetricsAddress::placed)) {
        addresses.add(&given, &mut context.report);
    }
    for given in api.iter().flat_map(PlacedApi::tcp) {
        addresses.add(&given, &mut context.report);
    }
    let admit_token = admit_token(&root, &mut context);
    if let (Some(metrics), true) = (&metrics, admit_token.is_some())
        && !metrics.value.0.ip().is_loopback()
    {
        let what =
            "HTTP beyond this machine is not encrypted: any host on the way can read the token of `admit`";
        context.report.warning(
            &metrics.span,
            what,
            "serve metrics on 127.0.0.1, behind a server that ends TLS",
        );
    }
    let journal = JournalSettings::read(&root, context.folder, &mut context.report);
    let drain_deadline = root.parsed::<Latency>("drain_deadline", &mut context.report);
    let ReadPools { configs: pools, members, contracts } = pools(&root, &listen, &mut context);
    let cluster = cluster::read(&root, &members, &mut context);
    check_access(&root, &listen, tls.as_ref(), &pools, &mut context);
    if touch == Touch::Files {
        access::check(&context.touched, &mut context.report);
        if let Some(plan) = &cluster {
            check_cluster(plan, &mut context.report);
        }
        if let Some(api) = &api {
            api.check_files(&mut context.report);
        }
        if let Some(PlacedValue { value, span }) = &tls
            && let Err(error @ TlsError::Pair { .. }) = value.load()
        {
            context.report.error(span, error.to_string());
        }
    }
    let mut places = std::mem::take(&mut context.places);
    let place = |given: &PlacedValue<ListenConfig>| {
        (StartSubject::Listen(given.value.endpoint.clone()), context.report.place(&given.span))
    };
    places.extend(listen.iter().map(place));
    let service_places =
        ServicePlaces::new(&root, metrics.as_ref(), api.as_ref(), journal.as_ref(), &context.report);
    let failed = context.report.has_errors();
    let findings = context.report.into_findings();
    if failed {
        return Err(ConfigError::Invalid(findings));
    }
    Ok(ServeConfig {
        gateway: GatewayConfig {
            listen: listen.into_iter().map(|given| given.value).collect(),
            tls: tls.map(|given| given.value),
            journal: journal.map(|settings| settings.config()),
            ..GatewayConfig::new(Vec::new(), pools)
        },
        metrics: metrics.map(|given| given.value.0),
        api: api.map(|given| given.settings),
        admit_token,
        drain_deadline: drain_deadline.map_or(DEFAULT_DRAIN_DEADLINE, |given| given.value.to_duration()),
        contracts,
        cluster: cluster.map(|given| given.value),
        places,
        service_places,
        warnings: findings,
    })
}

fn admit_token(root: &Section<'_>, context: &mut ReadContext<'_>) -> Option<PathBuf> {
    let table = root.table("admit", ADMIT_KEYS, &mut context.report)?;
    if !root.has("metrics")
        && let Some(span) = root.key_span("admit")
    {
        context.report.error(&span, "`admit` answers where `metrics` are served: add `metrics`");
    }
    if !table.has("token_file") {
        table.missing("token_file", "\"/etc/tidegate/admit.token\"", &mut context.report);
    }
    let PlacedValue { value, span } = table.text("token_file", &mut context.report)?;
    let path = context.path(value, &span);
    context.touched.push(PathUse::Token(PlacedValue { value: path.clone(), span }));
    Some(path)
}

/// Reports rules that can never hold, and what is allowed or not and was probably meant otherwise.
fn check_access(
    root: &Section<'_>,
    listen: &[PlacedValue<ListenConfig>],
    tls: Option<&PlacedValue<ServerFiles>>,
    pools: &[PoolConfig],
    context: &mut ReadContext<'_>,
) {
    let verifies = tls.is_some_and(|tls| tls.value.client_authorities.is_some());
    let broken_tls = tls.is_none() && root.has("tls");
    for span in std::mem::take(&mut context.certificate_rules) {
        if !verifies && !broken_tls {
            context.report.error_with_help(
                &span,
                "certificates of clients cannot be verified",
                "add `client_ca_file` to `tls`",
            );
        }
    }
    let mut remote = listen.iter().filter(|listen| !endpoints::is_local(&listen.value.endpoint)).peekable();
    let Some(first) = remote.peek() else { return };
    let exports = || pools.iter().flat_map(|pool| &pool.exports);
    let local: Vec<_> = exports().filter(|export| export.access == ExportAccess::Local).collect();
    if let Some(export) = local.first() {
        let message = match local.len() {
            1 => format!("clients on other hosts may not use export `{}`", export.name),
            count => {
                format!(
                    "clients on other hosts may not use export `{}` and {} others",
                    export.name,
                    count - 1
                )
            }
        };
        context.report.warning(&first.span, message, "it has no `allow`; see docs/guide/access.md");
    }
    for listen in remote.filter(|listen| listen.value.tls == TlsUse::Off) {
        context.report.warning(
            &listen.span,
            format!(
                "what clients read and write at `{}` crosses the network in plain text",
                listen.value.endpoint
            ),
            "add `tls`; see docs/guide/access.md",
        );
    }
}

/// Everything that pools are read as.
#[derive(Default)]
struct ReadPools {
    configs: Vec<PoolConfig>,
    members: Vec<ClusterMember>,
    contracts: Vec<PoolContracts>,
}

fn pools(
    root: &Section<'_>,
    listen: &[PlacedValue<ListenConfig>],
    context: &mut ReadContext<'_>,
) -> ReadPools {
    let mut pools = ReadPools::default();
    let Some(tables) = root.named_tables("pool", pool::KEYS, &mut context.report) else {
        return pools;
    };
    if tables.is_empty() {
        context.report.error_with_help(
            root.span(),
            "the configuration has no pools",
            "add a table `[pool.NAME]`: storage that its exports share",
        );
    }
    let mut owner: HashMap<ConsumerName, String> = HashMap::new();
    let mut placed = Vec::new();
    for (name, table) in tables {
        let Some(ReadPool { config, exports, member, promised }) = pool::read(&name, &table, context) else {
            continue;
        };
        pools.members.extend(member);
        pools.contracts.extend(promised);
        for export in exports {
            if let Some(other) = owner.get(&export.config.name) {
                let message = format!("export `{}` is also in pool `{other}`", export.config.name);
                context.report.error_with_help(
                    &export.name.span,
                    message,
                    "clients ask for an export by its name alone",
                );
            }
            owner.insert(export.config.name.clone(), config.name.to_string());
            let address = match &config.backend {
                BackendConfig::Nbd(upstream) => Some(upstream.address.canonical()),
                BackendConfig::File { .. } | BackendConfig::Emulated { .. } => None,
            };
            placed.push(PlacedExport { address, export });
        }
        pools.configs.push(config);
    }
    upstream::report_same(&placed, listen, context.reads, &mut context.report);
    report_never_chosen(&placed, &mut context.report);
    pools
}

/// Reports exports that no client gets, because an earlier one of the same name is for every client that
/// comes.
fn report_never_chosen(exports: &[PlacedExport], report: &mut FindingList<'_>) {
    for (at, PlacedExport { export, .. }) in exports.iter().enumerate() {
        let name = export.config.served_name();
        let earlier = exports[..at].iter().map(|placed| &placed.export.config);
        let chosen = earlier.filter(|earlier| earlier.name != export.config.name).find(|earlier| {
            earlier.served_name() == name && !matches!(earlier.access, ExportAccess::Rules(_))
        });
        if let Some(chosen) = chosen {
            report.error_with_help(
                &export.name.span,
                format!(
                    "clients that ask for `{}` get export `{}`, and never this one",
                    name.as_str(),
                    chosen.name
                ),
                "give the earlier one an `allow` with rules, or this one another `served_as`",
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use tidegate_config::{contract, law};

    use super::*;

    /// Every key that is understood, with its heading in `docs/reference/configuration.md`.
    const DOCUMENTED: &[(&str, &[&str])] = &[
        ("## The whole", ROOT_KEYS),
        ("### `listen`", endpoints::LISTEN_KEYS),
        ("### `tls`", endpoints::TLS_KEYS),
        ("## `[api]`", tidegate_config::keys::api::API.names),
        ("## `[cluster]`", tidegate_cluster::CLUSTER_KEYS),
        ("### `carrier`", tidegate_cluster::CARRIER_KEYS),
        ("### `policy`", tidegate_cluster::POLICY_KEYS),
        ("## `[pool.NAME]`", pool::KEYS),
        ("### `backend`", backend::KEYS),
        ("### `tls` of a backend", upstream::TLS_KEYS),
        ("### `[pool.NAME.knee]`", law::KNEE_KEYS),
        ("### `[pool.NAME.auto]`", law::AUTO_KEYS),
        ("### `[pool.NAME.window]`", law::WINDOW_KEYS),
        ("### `[pool.NAME.pid]`", law::PID_KEYS),
        ("### `[pool.NAME.integral]`", law::INTEGRAL_KEYS),
        ("### `[pool.NAME.self_tuning]`", law::SELF_TUNING_KEYS),
        ("### `bands`", law::BAND_KEYS),
        ("### `release`", tidegate_config::release::KEYS),
        ("### `[pool.NAME.limits]`", pool::LIMITS_KEYS),
        ("### `[pool.NAME.export.EXPORT]`", export::KEYS),
        ("### `listen` of an export", disks::KEYS),
        ("### `allow`", allow::KEYS),
        ("### `limit`", export::LIMIT_KEYS),
        ("### `contract`", contract::ADMITTED_KEYS),
    ];

    #[test]
    fn the_document_and_the_code_know_the_same_keys() {
        let document = include_str!("../../../../docs/reference/configuration.md");
        for (heading, keys) in DOCUMENTED {
            let section = document
                .split_once(&format!("\n{heading}\n"))
                .unwrap_or_else(|| panic!("docs/reference/configuration.md has no `{heading}`"))
                .1;
            let section = section.split("\n#").next().unwrap();
            let documented: Vec<_> =
                section.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
            let (mut documented, mut known) = (documented, keys.to_vec());
            documented.sort_unstable();
            known.sort_unstable();
            assert_eq!(documented, known, "under `{heading}`");
        }
    }

    #[test]
    fn every_key_of_the_law_is_a_key_of_the_pool() {
        assert!(law::POOL_KEYS.iter().all(|key| pool::KEYS.contains(key)));
    }
}
