//! The configuration of a gateway, as typed values. Text becomes these once, at the edge (`tidegate-serve`).

use std::collections::HashSet;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU16;
use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;
use tidegate_control::{Contract, LawKind, LoopConfig, SignalStatistic};
use tidegate_device::{DeviceConfig, ExponentialChange};
use tidegate_journal::JournalConfig;
use tidegate_nbd::ExportName;
use tidegate_sched::{BucketRelease, ConsumerLimit, Discipline, FlowBatch, RequestCost};
use tidegate_tls::{ClientFiles, ServerFiles};
use tidegate_ublk::DeviceNumber;
use tidegate_units::{Bytes, ConsumerName, Iops, Latency, ResourceName, Shares};

use crate::access::ExportAccess;
use crate::processors::ProcessorSet;

/// The greatest payload of one request. It is advertised to clients; the protocol lets them assume at least
/// this much.
pub const MAX_PAYLOAD: u32 = 32 * 1024 * 1024;

/// A whole gateway: its endpoints, and the pools it serves.
#[derive(Debug, Clone, PartialEq)]
pub struct GatewayConfig {
    /// The endpoints at which clients connect. Every endpoint serves every export.
    pub listen: Vec<ListenConfig>,
    /// The certificate that clients are shown, and the authorities of theirs.
    pub tls: Option<ServerFiles>,
    /// The pools; each has a worker thread of its own.
    pub pools: Vec<PoolConfig>,
    /// Bounds on clients that have not chosen an export yet.
    pub handshake: HandshakeLimits,
    /// The journal of all decisions. Default none: they are not kept. It stays as it is until the gateway
    /// ends.
    pub journal: Option<JournalConfig>,
}

impl GatewayConfig {
    /// A gateway with default limits, without TLS.
    #[must_use]
    pub fn new(listen: Vec<ListenEndpoint>, pools: Vec<PoolConfig>) -> Self {
        let listen = listen.into_iter().map(ListenConfig::from).collect();
        Self { listen, tls: None, pools, handshake: HandshakeLimits::default(), journal: None }
    }

    /// Checks what can be checked without touching files or sockets.
    ///
    /// # Errors
    /// The first contradiction found.
    pub fn validate(&self) -> Result<(), GatewayConfigError> {
        if self.listen.is_empty() {
            return Err(GatewayConfigError::NoEndpoint);
        }
        if let Some(listen) = self.listen.iter().find(|listen| listen.tls != TlsUse::Off)
            && self.tls.is_none()
        {
            return Err(GatewayConfigError::NoCertificate(listen.endpoint.clone()));
        }
        let verifies = self.tls.as_ref().is_some_and(|tls| tls.client_authorities.is_some());
        let mut pools = HashSet::new();
        let mut exports = HashSet::new();
        for pool in &self.pools {
            if !pools.insert(&pool.name) {
                return Err(GatewayConfigError::DuplicatePool(pool.name.clone()));
            }
            for export in &pool.exports {
                if !exports.insert(&export.name) {
                    return Err(GatewayConfigError::DuplicateExport(export.name.clone()));
                }
                if export.access.asks_for_certificates() && !verifies {
                    return Err(GatewayConfigError::NoAuthorities(export.name.clone()));
                }
            }
            pool.validate()?;
        }
        Ok(())
    }
}

/// An endpoint, and how clients are received there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenConfig {
    /// The endpoint at which clients connect.
    pub endpoint: ListenEndpoint,
    /// The use of TLS: whether clients can or must use it.
    pub tls: TlsUse,
    /// The file of a Unix socket; without effect for TCP.
    pub file: SocketFile,
}

impl From<ListenEndpoint> for ListenConfig {
    fn from(endpoint: ListenEndpoint) -> Self {
        Self { endpoint, tls: TlsUse::Off, file: SocketFile::default() }
    }
}

/// The use of TLS at an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsUse {
    /// A client that asks for it hears that there is none.
    Off,
    /// A client may have it, and needs it for exports whose rules want a certificate.
    Offered,
    /// A client needs it before it can ask for anything.
    Required,
}

/// The rights to a Unix socket. To connect, a process needs the right to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SocketFile {
    /// Its mode, whatever the umask of the process.
    pub mode: u32,
    /// Its owner, where that is another than the process's user.
    pub owner: Option<u32>,
    /// Its group, where that is another than the process's.
    pub group: Option<u32>,
}

impl SocketFile {
    /// Owner and group may connect.
    pub const DEFAULT_MODE: u32 = 0o660;
}

impl Default for SocketFile {
    fn default() -> Self {
        Self { mode: Self::DEFAULT_MODE, owner: None, group: None }
    }
}

/// A place where clients connect.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ListenEndpoint {
    /// A Unix socket. A stale file at this path is replaced; the file is removed at the end.
    Unix(PathBuf),
    /// A TCP address; port 0 lets the system choose, see [`Gateway::addresses`](crate::Gateway::addresses).
    Tcp(SocketAddr),
}

impl ListenEndpoint {
    /// The same endpoint with an IPv4 address in place of one that IPv6 only wraps (`::ffff:127.0.0.1`).
    #[must_use]
    pub fn canonical(&self) -> Self {
        match self {
            Self::Tcp(SocketAddr::V6(address)) if address.ip().to_ipv4_mapped().is_some() => {
                Self::Tcp(SocketAddr::new(IpAddr::V6(*address.ip()).to_canonical(), address.port()))
            }
            other => other.clone(),
        }
    }
}

impl fmt::Display for ListenEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(address) => write!(f, "tcp:{address}"),
        }
    }
}

/// Bounds on clients that have not chosen an export yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandshakeLimits {
    /// Connections per endpoint that have not asked for anything yet. A newcomer beyond that displaces the
    /// oldest of the source that has most, so that idlers cannot keep others out. A quarter of the process's
    /// descriptors at most.
    pub waiting: usize,
    /// Handshakes at once of clients that have asked for something; a newcomer displaces as above.
    pub concurrent: usize,
    /// The longest time from accept to the transmission phase.
    pub deadline: Duration,
}

impl Default for HandshakeLimits {
    fn default() -> Self {
        Self { waiting: 4096, concurrent: 256, deadline: Duration::from_secs(10) }
    }
}

/// The consumers that a law is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LawScope {
    /// One law for the pool. Its scheduler divides what the law commands.
    #[default]
    Pool,
    /// A window law for each export, with a window of its own (PARDA §3.3). The signal is the pool's. Each
    /// window is bounded by `depth` by itself.
    Export,
}

/// A resource: a backend, its exports, and how they share it.
#[derive(Debug, Clone, PartialEq)]
pub struct PoolConfig {
    /// The name of the resource in metrics, decisions and logs.
    pub name: ResourceName,
    /// The storage that holds the data.
    pub backend: BackendConfig,
    /// The most requests outstanding at the backend for consumers that are not protected: D of SFQ(D). A
    /// window law works below this bound.
    pub depth: u32,
    /// The rule that picks the next request.
    pub discipline: Discipline,
    /// Bounds within which the scheduler stays with one export. Without effect on finish tags.
    pub batch: FlowBatch,
    /// The cost that an idle export may save up, to go first when it is back.
    pub idle_credit: RequestCost,
    /// The release of requests, under laws that command rates.
    pub release: BucketRelease,
    /// The control law; `None` is plain SFQ(D) with the fixed `depth`.
    pub law: Option<LoopConfig>,
    /// The consumers that a law is for.
    pub scope: LawScope,
    /// The exports; each is a consumer.
    pub exports: Vec<ExportConfig>,
    /// Bounds on the sessions of this pool.
    pub limits: PoolLimits,
    /// The processors that its threads run on; `None`: all that the service may use.
    pub processors: Option<ProcessorSet>,
}

impl PoolConfig {
    /// The default D of SFQ(D): fio and qemu drive one device with as many requests.
    pub const DEFAULT_DEPTH: u32 = 32;

    /// A pool without a law, with default depth and limits.
    #[must_use]
    pub fn new(name: ResourceName, backend: BackendConfig, exports: Vec<ExportConfig>) -> Self {
        Self {
            name,
            backend,
            depth: Self::DEFAULT_DEPTH,
            discipline: Discipline::default(),
            batch: FlowBatch::default(),
            idle_credit: RequestCost::ZERO,
            release: BucketRelease::default(),
            law: None,
            scope: LawScope::default(),
            exports,
            limits: PoolLimits::default(),
            processors: None,
        }
    }

    fn validate(&self) -> Result<(), GatewayConfigError> {
        let pool = || self.name.clone();
        if self.depth == 0 {
            return Err(GatewayConfigError::ZeroDepth(pool()));
        }
        if let Some(law) = &self.law {
            law.validate()
                .map_err(|source| GatewayConfigError::Law { pool: pool(), source: Box::new(source) })?;
        }
        if self.scope == LawScope::Export {
            let law = self.law.as_ref().map(|law| (law.law.kind(), law.statistic, &law.knee));
            if !matches!(law, Some((LawKind::Window, SignalStatistic::Mean, None))) {
                return Err(GatewayConfigError::LawForEachExport(pool()));
            }
        }
        let one = u64::from(MAX_PAYLOAD);
        if self.limits.session_requests == 0
            || self.limits.sessions == 0
            || self.limits.session_bytes.get() < one
            || self.limits.pool_bytes.get() < one
        {
            return Err(GatewayConfigError::Limits(pool()));
        }
        if let BackendConfig::Nbd(upstream) = &self.backend
            && (upstream.connections.get() > UpstreamConfig::MOST_CONNECTIONS || upstream.timeout.is_zero())
        {
            return Err(GatewayConfigError::Upstream(pool()));
        }
        for export in &self.exports {
            let fits = match (&self.backend, &export.store) {
                (BackendConfig::File { .. }, ExportStore::Path(_)) => true,
                (BackendConfig::Emulated { .. }, ExportStore::Size(size)) => {
                    size.get() > 0 && size.get().is_multiple_of(4096)
                }
                (BackendConfig::Nbd(_), ExportStore::Upstream(_)) => true,
                _ => false,
            };
            if !fits {
                return Err(GatewayConfigError::Store { pool: pool(), export: export.name.clone() });
            }
        }
        Ok(())
    }
}

/// The storage that holds a pool's data.
#[derive(Debug, Clone, PartialEq)]
pub enum BackendConfig {
    /// A regular file or a block device per export, through io_uring.
    File {
        /// Past the page cache (`O_DIRECT`). The alignment that it needs is advertised; requests with parts
        /// of blocks are served too, and cost more.
        direct: bool,
    },
    /// A model of storage in real time: its timing, with the data elsewhere. Exports lie one after the other
    /// on the device, in the order of the configuration.
    Emulated {
        /// The model.
        device: DeviceConfig,
        /// Changes to the model while it is in use. Only an exponential server can have any.
        changes: Vec<ExponentialChange>,
        /// Seed of the model's random numbers.
        seed: u64,
        /// The store of the bytes.
        data: DataStore,
    },
    /// An export of another NBD server per export. Size, block sizes and abilities are the server's.
    Nbd(UpstreamConfig),
}

/// The way to the exports of another NBD server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpstreamConfig {
    /// The server's address.
    pub address: ListenEndpoint,
    /// The most connections per export, at most [`MOST_CONNECTIONS`](Self::MOST_CONNECTIONS); one if the
    /// server does not say that several are coherent.
    pub connections: NonZeroU16,
    /// The longest time that requests wait for a lost upstream before they are answered with EIO.
    pub reconnect: Duration,
    /// A connection on which requests wait for this long and nothing arrives is taken for lost.
    pub timeout: Duration,
    /// The requests that are sent again after a connection was lost.
    pub replay: ReplayRule,
    /// The authorities to trust and the certificate to show, if the connections are encrypted.
    pub tls: Option<ClientFiles>,
}

impl UpstreamConfig {
    /// More connections than this carry nothing more; they only cost the server.
    pub const MOST_CONNECTIONS: u16 = 64;

    /// A server with default bounds.
    #[must_use]
    pub fn new(address: ListenEndpoint) -> Self {
        Self {
            address,
            connections: NonZeroU16::MIN.saturating_add(3),
            reconnect: Duration::from_secs(30),
            timeout: Duration::from_secs(60),
            replay: ReplayRule::Reads,
            tls: None,
        }
    }
}

/// The requests that are sent again if they had reached the upstream when their connection was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReplayRule {
    /// Reads and flushes. Writes, trims and zeroes are answered with EIO: the upstream may still carry them
    /// out, and over newer ones if they were sent again.
    #[default]
    Reads,
    /// Everything: for upstreams that complete or drop all requests of a lost connection before they accept a
    /// new one.
    All,
}

/// The store for the bytes of an emulated device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DataStore {
    /// In memory, sparse: pages of zeros occupy nothing. Beyond `limit` writes fail with ENOSPC.
    Memory {
        /// The most memory for data.
        limit: Bytes,
    },
    /// In a sparse file, created when missing; its contents survive a restart.
    File(PathBuf),
}

/// One export: a volume, and the consumer that loads it.
#[derive(Debug, Clone, PartialEq)]
pub struct ExportConfig {
    /// The consumer's name, by which clients ask for it unless it is `served_as` another.
    pub name: ConsumerName,
    /// The name by which clients ask for it. Several exports can have it: a client gets the first that it may
    /// use.
    pub served_as: Option<ExportName>,
    /// The storage that the export is made of.
    pub store: ExportStore,
    /// Said to clients that ask for it.
    pub description: Option<String>,
    /// Refuses every change.
    pub read_only: bool,
    /// Others may use its volume, too: it is neither claimed nor checked for other users.
    pub shared_volume: bool,
    /// The clients that may use it.
    pub access: ExportAccess,
    /// The sockets at which virtual machines have it as a disk (vhost-user-blk), one machine at each.
    pub disks: Vec<DiskSocket>,
    /// The block devices of this host that it is (ublk).
    pub devices: Vec<DeviceNumber>,
    /// Its weight against the other consumers of the pool.
    pub shares: Shares,
    /// True if no law may throttle the export: its reads are the signal, which the law keeps fast.
    pub protected: bool,
    /// True if neither a law nor the limit throttles the export for now. No configuration says so: an
    /// operator releases it at run time.
    pub released: bool,
    /// A rate that goes before all shares, in I/Os of average size ([`tidegate_sched::CostModel`]).
    pub reservation: Option<Iops>,
    /// A static limit that no law lifts.
    pub limit: Option<ConsumerLimit>,
    /// The contract promised to the export. It has an effect only under a law that keeps contracts
    /// ([`ContractUse`](tidegate_control::ContractUse)).
    pub contract: Option<Contract>,
    /// The response time that it is to have, if the pool's law keeps goals. `None`: the pool's target, or
    /// what the law takes from the contract.
    pub goal: Option<Latency>,
    /// σ: the number of requests that may be released at once after a pause, or count at once, where the
    /// contract is kept.
    pub bucket: u32,
}

impl ExportConfig {
    /// A writable export with default shares and no limit.
    #[must_use]
    pub fn new(name: ConsumerName, store: ExportStore) -> Self {
        Self {
            name,
            served_as: None,
            store,
            description: None,
            read_only: false,
            shared_volume: false,
            access: ExportAccess::default(),
            disks: Vec::new(),
            devices: Vec::new(),
            shares: Shares::DEFAULT,
            protected: false,
            released: false,
            reservation: None,
            limit: None,
            contract: None,
            goal: None,
            bucket: BucketRelease::USUAL_SIZE,
        }
    }

    /// The name by which clients ask for it.
    #[must_use]
    pub fn served_name(&self) -> ExportName {
        // Invariant: a consumer's name is shorter than what the protocol allows, and without control
        // characters.
        let own = || ExportName::new(self.name.as_str()).expect("a consumer's name is an export name");
        self.served_as.clone().unwrap_or_else(own)
    }
}

/// A socket of a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskSocket {
    /// Its path. A stale file there is replaced; the file is removed at the end.
    pub path: PathBuf,
    /// The rights to it.
    pub file: SocketFile,
}

impl fmt::Display for DiskSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "vhost-user:{}", self.path.display())
    }
}

/// The storage that an export is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExportStore {
    /// An existing regular file or block device (pools with [`BackendConfig::File`]). Its size is the
    /// export's.
    Path(PathBuf),
    /// Bytes of the emulated device, a multiple of 4 KiB (pools with [`BackendConfig::Emulated`]).
    Size(Bytes),
    /// The server's export of this name (pools with [`BackendConfig::Nbd`]); the empty name is its default.
    Upstream(ExportName),
}

/// Bounds on the sessions of a pool. At a bound the gateway stops reading from the session's socket until
/// there is room. The client waits, and nothing is dropped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolLimits {
    /// Sessions at once; a newcomer beyond that is refused during its handshake.
    pub sessions: usize,
    /// Sessions of one export. `None`: half of `sessions`, or all of them where the pool has one export.
    pub export_sessions: Option<usize>,
    /// Sessions of one source: an IPv4 address, an IPv6 network of 64 bits, or a user on Unix sockets.
    /// `None`: three quarters of `sessions`. It does not bound the places that are kept for an export.
    pub source_sessions: Option<usize>,
    /// A session without requests for this long is ended when a newcomer needs its place. `None`: only
    /// sessions that never sent a request are, after [`UNUSED`](Self::UNUSED).
    pub idle_timeout: Option<Duration>,
    /// Requests of one session between its header being read and its reply being sent.
    pub session_requests: usize,
    /// Payload memory of one session, at least [`MAX_PAYLOAD`].
    pub session_bytes: Bytes,
    /// Payload memory of all sessions together, at least [`MAX_PAYLOAD`].
    pub pool_bytes: Bytes,
    /// A session that takes none of its replies for this long, or less than the next MiB of a long one, is
    /// disconnected: it holds memory others could use. So is one that sends less than the next MiB, or the rest, of a
    /// request that it has begun.
    pub reply_deadline: Duration,
}

/// The memory that is kept for each export of a pool; see [`PoolLimits::reserves`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryReserves {
    /// For each protected export.
    pub protected: Bytes,
    /// For each other export.
    pub other: Bytes,
}

/// The sessions for which places are kept at each export of a pool; see [`PoolLimits::kept_sessions`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeptSessions {
    /// At each protected export.
    pub protected: usize,
    /// At each other export.
    pub other: usize,
}

impl PoolLimits {
    /// A session that has never sent a request may be ended after this time. Chosen: a client that opens an
    /// export reads from it within seconds.
    pub const UNUSED: Duration = Duration::from_secs(60);

    /// Divides the part of the pool's sessions for which places are kept: half of them. Protected exports are
    /// first: they share three quarters of that part, up to 16 each, as many connections as clients open to
    /// one export. The others share what is left, up to 2 each: one for a client, one for its successor.
    #[must_use]
    pub fn kept_sessions(&self, protected: usize, others: usize) -> KeptSessions {
        const MOST_PROTECTED: usize = 16;
        const MOST_OTHER: usize = 2;
        let part = self.sessions / 2;
        let first = if others == 0 { part } else { (part * 3).div_ceil(4) };
        let protected_each = first.checked_div(protected).unwrap_or(0).min(MOST_PROTECTED);
        let left = part - protected_each * protected;
        let other_each = left.checked_div(others).unwrap_or(0).min(MOST_OTHER);
        KeptSessions { protected: protected_each, other: other_each }
    }

    /// The most sessions of one export, in a pool with so many exports.
    #[must_use]
    pub fn sessions_of_export(&self, exports: usize) -> usize {
        let default = if exports == 1 { self.sessions } else { self.sessions.div_ceil(2) };
        self.export_sessions.unwrap_or(default)
    }

    /// The most sessions of one source.
    #[must_use]
    pub fn sessions_of_source(&self) -> usize {
        self.source_sessions.unwrap_or((self.sessions * 3).div_ceil(4))
    }

    /// Divides the part of the pool's memory that is reserved: half of it, and never so much that the largest
    /// request would not fit into the rest. Protected exports are first: they share three quarters of that
    /// part, up to one largest request each. The others share what is left, up to 8 MiB each. Chosen: 8 MiB
    /// are 64 requests of 128 KiB.
    #[must_use]
    pub fn reserves(&self, protected: usize, others: usize) -> MemoryReserves {
        const MOST_PROTECTED: u64 = MAX_PAYLOAD as u64;
        const MOST_OTHER: u64 = 8 << 20;
        const PAGE: u64 = 4096;
        let pool = self.pool_bytes.get();
        let part = (pool / 2).min(pool.saturating_sub(u64::from(MAX_PAYLOAD)));
        let each = |part: u64, exports: usize, most: u64| {
            let share = part.checked_div(exports as u64).unwrap_or(0).min(most);
            share - share % PAGE
        };
        let first = if others == 0 { part } else { part / 4 * 3 };
        let protected_each = each(first, protected, MOST_PROTECTED);
        let most_other = if protected == 0 { MOST_OTHER } else { MOST_OTHER.min(protected_each) };
        let other_each = each(part - protected_each * protected as u64, others, most_other);
        MemoryReserves { protected: Bytes::new(protected_each), other: Bytes::new(other_each) }
    }
}

impl Default for PoolLimits {
    fn default() -> Self {
        Self {
            sessions: 256,
            export_sessions: None,
            source_sessions: None,
            idle_timeout: None,
            session_requests: 128,
            session_bytes: Bytes::from_mib(64),
            pool_bytes: Bytes::from_mib(256),
            reply_deadline: Duration::from_secs(60),
        }
    }
}

/// A configuration that contradicts itself.
#[derive(Debug, Error)]
pub enum GatewayConfigError {
    /// No client could connect.
    #[error("no endpoint to listen on")]
    NoEndpoint,
    /// An endpoint is to speak by TLS, and there is no certificate to show.
    #[error("{0}: TLS needs a certificate")]
    NoCertificate(ListenEndpoint),
    /// An export's rules want clients to have certificates, and there is nothing to verify them by.
    #[error("export `{0}`: rules about certificates need the authorities of clients")]
    NoAuthorities(ConsumerName),
    /// Pools are told apart by name.
    #[error("two pools are called `{0}`")]
    DuplicatePool(ResourceName),
    /// Exports are told apart by name, across all pools.
    #[error("two exports are called `{0}`")]
    DuplicateExport(ConsumerName),
    /// Other laws have no window for each consumer, and the pool's signal has no percentiles.
    #[error("pool `{0}`: a law for each export is a window law that steers by the mean to a given target")]
    LawForEachExport(ResourceName),
    /// Nothing could ever be dispatched.
    #[error("pool `{0}`: the depth must be at least 1")]
    ZeroDepth(ResourceName),
    /// The law's parameters are out of range.
    #[error("pool `{pool}`: {source}")]
    Law {
        /// The pool.
        pool: ResourceName,
        /// The error.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The bounds would not let a single request through.
    #[error("pool `{0}`: limits must allow at least one session, one request and {MAX_PAYLOAD} bytes")]
    Limits(ResourceName),
    /// The bounds of an upstream pool are out of range.
    #[error(
        "pool `{0}`: an upstream takes 1 to {most} connections, and a timeout of more than nothing",
        most = UpstreamConfig::MOST_CONNECTIONS
    )]
    Upstream(ResourceName),
    /// A file pool's exports have paths, an emulated pool's have sizes, an upstream pool's have names.
    #[error(
        "pool `{pool}`: export `{export}` needs a path in a file pool, a size that is a multiple of 4 KiB in \
            an emulated pool, the name of an upstream export in an upstream pool"
    )]
    Store {
        /// The pool.
        pool: ResourceName,
        /// The export.
        export: ConsumerName,
    },
}
