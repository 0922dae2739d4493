//! What a gateway is to serve, as typed values. Text becomes these once, at the edge (`tidegate-agent`).

use std::collections::HashSet;
use std::fmt;
use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;
use tidegate_control::{Contract, LoopConfig};
use tidegate_device::{DeviceConfig, ExponentialChange};
use tidegate_nbd::ExportName;
use tidegate_sched::{Discipline, Limit, Release};
use tidegate_units::{Bytes, ConsumerName, Iops, Latency, ResourceName, Shares};

/// The greatest payload of one request; advertised to clients, and what the protocol lets them assume at least.
pub const MAX_PAYLOAD: u32 = 32 * 1024 * 1024;

/// A whole gateway: where it listens, and the pools it serves.
#[derive(Debug, Clone, PartialEq)]
pub struct GatewayConfig {
    /// Where clients connect. Every endpoint serves every export.
    pub listen: Vec<Endpoint>,
    /// The pools; each has a worker thread of its own.
    pub pools: Vec<PoolConfig>,
    /// What clients may occupy before they have chosen an export.
    pub handshake: HandshakeLimits,
}

impl GatewayConfig {
    /// A gateway with default limits.
    #[must_use]
    pub fn new(listen: Vec<Endpoint>, pools: Vec<PoolConfig>) -> Self {
        Self { listen, pools, handshake: HandshakeLimits::default() }
    }

    /// Checks what can be checked without touching files or sockets.
    ///
    /// # Errors
    /// The first contradiction found.
    pub fn validate(&self) -> Result<(), ConfigError> {
        if self.listen.is_empty() {
            return Err(ConfigError::NoEndpoint);
        }
        let mut pools = HashSet::new();
        let mut exports = HashSet::new();
        for pool in &self.pools {
            if !pools.insert(&pool.name) {
                return Err(ConfigError::DuplicatePool(pool.name.clone()));
            }
            for export in &pool.exports {
                if !exports.insert(&export.name) {
                    return Err(ConfigError::DuplicateExport(export.name.clone()));
                }
            }
            pool.validate()?;
        }
        Ok(())
    }
}

/// A place where clients connect.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// A Unix socket. A stale file at this path is replaced; the file is removed at the end.
    Unix(PathBuf),
    /// A TCP address; port 0 lets the system choose, see [`Gateway::addresses`](crate::Gateway::addresses).
    Tcp(SocketAddr),
}

impl fmt::Display for Endpoint {
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
    /// Handshakes at once. A newcomer beyond that displaces the oldest, so that idlers cannot keep others out.
    pub concurrent: usize,
    /// How long one may take from accept to the transmission phase.
    pub deadline: Duration,
}

impl Default for HandshakeLimits {
    fn default() -> Self {
        Self { concurrent: 256, deadline: Duration::from_secs(10) }
    }
}

/// A resource: a backend, its exports, and how they share it.
#[derive(Debug, Clone, PartialEq)]
pub struct PoolConfig {
    /// The name of the resource in metrics, decisions and logs.
    pub name: ResourceName,
    /// Where the data is.
    pub backend: BackendConfig,
    /// The most requests outstanding at the backend for consumers that are not protected: D of SFQ(D). A window
    /// law works below this bound.
    pub depth: u32,
    /// Who goes next.
    pub discipline: Discipline,
    /// How requests are released, where the law commands rates.
    pub release: Release,
    /// The control law; `None` is plain SFQ(D) with the fixed `depth`.
    pub law: Option<LoopConfig>,
    /// The exports; each is a consumer.
    pub exports: Vec<ExportConfig>,
    /// What the sessions of this pool may occupy.
    pub limits: PoolLimits,
}

impl PoolConfig {
    /// D of SFQ(D) where nothing else is said: what fio and qemu drive one device with.
    pub const DEFAULT_DEPTH: u32 = 32;

    /// A pool without a law, with default depth and limits.
    #[must_use]
    pub fn new(name: ResourceName, backend: BackendConfig, exports: Vec<ExportConfig>) -> Self {
        Self {
            name,
            backend,
            depth: Self::DEFAULT_DEPTH,
            discipline: Discipline::default(),
            release: Release::default(),
            law: None,
            exports,
            limits: PoolLimits::default(),
        }
    }

    fn validate(&self) -> Result<(), ConfigError> {
        let pool = || self.name.clone();
        if self.depth == 0 {
            return Err(ConfigError::ZeroDepth(pool()));
        }
        if let Some(law) = &self.law {
            law.validate().map_err(|source| ConfigError::Law { pool: pool(), source: Box::new(source) })?;
        }
        let one = u64::from(MAX_PAYLOAD);
        if self.limits.session_requests == 0
            || self.limits.sessions == 0
            || self.limits.session_bytes.get() < one
            || self.limits.pool_bytes.get() < one
        {
            return Err(ConfigError::Limits(pool()));
        }
        if let BackendConfig::Nbd(upstream) = &self.backend
            && (upstream.connections.get() > UpstreamConfig::MOST_CONNECTIONS || upstream.timeout.is_zero())
        {
            return Err(ConfigError::Upstream(pool()));
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
                return Err(ConfigError::Store { pool: pool(), export: export.name.clone() });
            }
        }
        Ok(())
    }
}

/// Where a pool's data is.
#[derive(Debug, Clone, PartialEq)]
pub enum BackendConfig {
    /// A regular file or a block device per export, through io_uring.
    File {
        /// Past the page cache (`O_DIRECT`). Clients must then align their requests; the alignment is advertised.
        direct: bool,
    },
    /// A model of storage in real time: its timing, with the data elsewhere. Exports lie one after the other on
    /// the device, in the order of the configuration.
    Emulated {
        /// The model.
        device: DeviceConfig,
        /// What becomes of the model while it is in use; none but for an exponential server.
        changes: Vec<ExponentialChange>,
        /// Seed of the model's random numbers.
        seed: u64,
        /// Where the bytes are.
        data: DataStore,
    },
    /// An export of another NBD server per export. Size, block sizes and abilities are the server's.
    Nbd(UpstreamConfig),
}

/// How the exports of another NBD server are reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpstreamConfig {
    /// Where the server is.
    pub address: Endpoint,
    /// The most connections per export, at most [`MOST_CONNECTIONS`](Self::MOST_CONNECTIONS); one if the server does
    /// not say that several are coherent.
    pub connections: NonZeroU16,
    /// How long requests wait for a lost upstream to come back before they are answered with EIO.
    pub reconnect: Duration,
    /// A connection on which requests wait for this long and nothing arrives is taken for lost.
    pub timeout: Duration,
    /// What is sent again after a connection was lost.
    pub replay: Replay,
}

impl UpstreamConfig {
    /// More connections than this carry nothing more; they only cost the server.
    pub const MOST_CONNECTIONS: u16 = 64;

    /// A server with default bounds.
    #[must_use]
    pub fn new(address: Endpoint) -> Self {
        Self {
            address,
            connections: NonZeroU16::MIN.saturating_add(3),
            reconnect: Duration::from_secs(30),
            timeout: Duration::from_secs(60),
            replay: Replay::Reads,
        }
    }
}

/// Which requests are sent again that had reached the upstream when their connection was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Replay {
    /// Reads and flushes. Writes, trims and zeroes are answered with EIO: the upstream may still carry them out, and
    /// over newer ones if they were sent again.
    #[default]
    Reads,
    /// Everything: for upstreams that complete or drop all requests of a lost connection before they accept a new one.
    All,
}

/// Where an emulated device keeps its bytes.
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
    /// The name by which clients ask for it.
    pub name: ConsumerName,
    /// What it is made of.
    pub store: ExportStore,
    /// Said to clients that ask for it.
    pub description: Option<String>,
    /// Refuses every change.
    pub read_only: bool,
    /// Its weight against the other consumers of the pool.
    pub shares: Shares,
    /// Never held back by a law: its reads are what the law keeps fast.
    pub protected: bool,
    /// A rate that goes before all shares, in I/Os of average size ([`tidegate_sched::CostModel`]).
    pub reservation: Option<Iops>,
    /// A static limit that no law lifts.
    pub limit: Option<Limit>,
    /// What is promised to it, where the pool's law commands rates. Without effect under another law.
    pub contract: Option<Contract>,
    /// The response time that it is to have, where the pool's law is the self-tuning one. `None`: the pool's target.
    pub goal: Option<Latency>,
    /// σ: how many requests may be released at once after a pause, where the pool's law commands rates.
    pub bucket: u32,
}

impl ExportConfig {
    /// A writable export with default shares and no limit.
    #[must_use]
    pub fn new(name: ConsumerName, store: ExportStore) -> Self {
        Self {
            name,
            store,
            description: None,
            read_only: false,
            shares: Shares::DEFAULT,
            protected: false,
            reservation: None,
            limit: None,
            contract: None,
            goal: None,
            bucket: Release::USUAL_SIZE,
        }
    }
}

/// What an export is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExportStore {
    /// An existing regular file or block device (pools with [`BackendConfig::File`]). Its size is the export's.
    Path(PathBuf),
    /// So many bytes of the emulated device, a multiple of 4 KiB (pools with [`BackendConfig::Emulated`]).
    Size(Bytes),
    /// The server's export of this name (pools with [`BackendConfig::Nbd`]); the empty name is its default.
    Upstream(ExportName),
}

/// What the sessions of a pool may occupy. At a bound the gateway stops reading from the session's socket until
/// there is room: the client waits, nothing is dropped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolLimits {
    /// Sessions at once; a newcomer beyond that is refused during its handshake.
    pub sessions: usize,
    /// Requests of one session between its header being read and its reply being sent.
    pub session_requests: usize,
    /// Payload memory of one session, at least [`MAX_PAYLOAD`].
    pub session_bytes: Bytes,
    /// Payload memory of all sessions together, at least [`MAX_PAYLOAD`].
    pub pool_bytes: Bytes,
    /// A session that takes none of its replies for this long is disconnected: it holds memory others could use.
    /// So is one that sends less than the next MiB, or the rest, of a payload that it has announced.
    pub reply_deadline: Duration,
}

impl Default for PoolLimits {
    fn default() -> Self {
        Self {
            sessions: 256,
            session_requests: 128,
            session_bytes: Bytes::from_mib(64),
            pool_bytes: Bytes::from_mib(256),
            reply_deadline: Duration::from_secs(60),
        }
    }
}

/// A configuration that contradicts itself.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// Nobody could connect.
    #[error("no endpoint to listen on")]
    NoEndpoint,
    /// Pools are told apart by name.
    #[error("two pools are called `{0}`")]
    DuplicatePool(ResourceName),
    /// Exports are told apart by name, across all pools.
    #[error("two exports are called `{0}`")]
    DuplicateExport(ConsumerName),
    /// Nothing could ever be dispatched.
    #[error("pool `{0}`: the depth must be at least 1")]
    ZeroDepth(ResourceName),
    /// The law's parameters are out of range.
    #[error("pool `{pool}`: {source}")]
    Law {
        /// The pool.
        pool: ResourceName,
        /// What is wrong.
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
        "pool `{pool}`: export `{export}` needs a path in a file pool, a size that is a multiple of 4 KiB in an emulated pool, the name of an upstream export in an upstream pool"
    )]
    Store {
        /// The pool.
        pool: ResourceName,
        /// The export.
        export: ConsumerName,
    },
}
