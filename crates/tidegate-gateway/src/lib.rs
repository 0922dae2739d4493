//! The block gateway: NBD sessions, a quality-of-service stage per pool, and backends.
//!
//! ```text
//! NBD session ─▶ consumer's queue ─▶ [bucket] ─▶ SFQ(D) or YFQ ─▶ [window | delay]
//!     ─▶ backend ─▶ reply, and a sample for the law
//! ```
//!
//! A **pool** is one resource: a backend, its exports, and a worker thread that owns all of it — one
//! io_uring, every session of the pool, the scheduler ([`tidegate_sched::Sfq`]), the law
//! ([`tidegate_control::ControlLoop`]). There is one owner and no lock on the data path. A **consumer** is an
//! export name; all its sessions share one flow.
//!
//! Call [`Gateway::start`] with a [`GatewayConfig`] (or [`Gateway::start_among`], where other hosts share the
//! pools' resources: their [`PeerReports`]); then [`Gateway::snapshot`] as often as you like,
//! [`Gateway::apply`] to change the configuration under running clients, and [`Gateway::drain`] to end in
//! order. Dropping a gateway ends it too, without waiting for clients to take their replies.

#![deny(unsafe_code)]

mod access;
mod backend;
mod bell;
mod block_order;
mod blocks;
mod buffer;
mod claim;
mod clock;
mod config;
mod crowd;
mod device;
mod directory;
mod disk;
mod endpoint;
mod gateway;
mod guest_memory;
mod histogram;
mod identity;
mod input;
mod io_errors;
mod listener;
mod memory;
mod message;
mod passed;
mod peers;
mod processors;
mod refusals;
mod request;
mod ring;
mod seats;
mod session;
mod stage;
mod stats;
mod suspension;
mod upstream;
mod worker;
mod zeroing;

pub use access::{AccessRule, AddressRange, CertificateName, ExportAccess, NetworkError};
pub use claim::{VolumeFacts, VolumeId};
pub use config::{
    BackendConfig, DataStore, DiskSocket, ExportConfig, ExportStore, GatewayConfig, GatewayConfigError,
    HandshakeLimits, KeptSessions, LawScope, ListenConfig, ListenEndpoint, MAX_PAYLOAD, MemoryReserves,
    PoolConfig, PoolLimits, ReplayRule, SocketFile, TlsUse, UpstreamConfig,
};
pub use gateway::{
    ApplyError, DisplacedVolume, DrainReport, Gateway, GatewayError, OpenVolumes, OpenedVolumes,
    ReloadVolumes, StartError, obstacles,
};
pub use histogram::{FineHistogram, LogLinear, TimeHistogram};
pub use io_errors::{ERROR_PAUSE, IoErrors};
pub use listener::devices::{DeviceError, DeviceProblem};
pub use listener::disks::DiskSocketError;
pub use peers::PeerReports;
pub use processors::{ProcessorSet, ProcessorSetError};
pub use ring::check_io_uring;
pub use stats::{
    AwaitedSnapshot, ConsumerSnapshot, ContractSnapshot, GatewaySnapshot, OpSnapshot, PoolSnapshot,
    RECENT_DECISIONS, RefusalReason, ReservedSnapshot, TenantSnapshot, UpstreamSnapshot,
};
pub use suspension::{SuspendedSession, SuspensionError, load, store};
pub use upstream::{UpstreamError, UpstreamMismatch};

// Part of `ExportConfig` and `DeviceError`.
pub use tidegate_ublk::{ControlError, DeviceNumber, DeviceNumberError, ObstructedDevice, PropertyMismatch};
// Part of `ExportStore`.
pub use tidegate_nbd::ExportName;
// Part of `GatewayConfig` and `UpstreamConfig`.
pub use tidegate_tls::{ClientFiles, ServerFiles, ServerName, TlsError, TlsIdentity};
