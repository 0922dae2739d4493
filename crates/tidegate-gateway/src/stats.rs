//! The gateway's reports about itself: snapshots for metrics, dashboards and the demonstration.

use std::time::Duration;

use serde::Serialize;
use tidegate_control::{Contract, Decision, WaitReason};
use tidegate_units::{Bytes, ConsumerName, Instant, Iops, Latency, ResourceName, Shares, Window};

use crate::histogram::{FineHistogram, TimeHistogram};
use crate::io_errors::IoErrors;

/// All pools at about one moment.
#[derive(Debug, Clone, Serialize)]
pub struct GatewaySnapshot {
    /// In the order of the configuration.
    pub pools: Vec<PoolSnapshot>,
    /// Pools that do not answer, because their worker waits in the kernel.
    pub silent: Vec<ResourceName>,
    /// Connections between accept and the choice of an export.
    pub handshakes: usize,
    /// Handshakes that ended without a session since the start: malformed, too slow, refused, or only asking.
    pub handshakes_ended: u64,
    /// Bytes of memory that virtual machines share with this process.
    pub guest_memory: u64,
    /// Connections refused since the start, for each reason.
    pub refused: Vec<(RefusalReason, u64)>,
}

/// The reasons why a connection got no session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusalReason {
    /// No export has the name that the client asked for.
    UnknownExport,
    /// The upstream of the export has not been reached since the start.
    Unreached,
    /// The pool has as many sessions as it may, apart from places that are kept for other exports.
    PoolSessions,
    /// The export has as many sessions as it may.
    ExportSessions,
    /// The client's address or user has as many sessions as it may.
    SourceSessions,
    /// The gateway is about to end.
    ShuttingDown,
    /// Too many connections had not chosen an export.
    Displaced,
    /// The handshake took too long.
    TooSlow,
    /// The client did not keep to the protocol, or hung up.
    Protocol,
    /// The client asked in plain text for an export that needs TLS.
    TlsRequired,
    /// The TLS handshake failed: no certificate, or one that is not accepted.
    TlsFailed,
    /// No rule fits the names in its certificate.
    Certificate,
    /// No rule fits its address.
    Address,
    /// No rule fits its user and groups.
    User,
    /// The system had no descriptor or thread left, or the pool has failed.
    System,
}

impl RefusalReason {
    /// All reasons.
    pub const ALL: [Self; 15] = [
        Self::UnknownExport,
        Self::Unreached,
        Self::PoolSessions,
        Self::ExportSessions,
        Self::SourceSessions,
        Self::ShuttingDown,
        Self::Displaced,
        Self::TooSlow,
        Self::Protocol,
        Self::TlsRequired,
        Self::TlsFailed,
        Self::Certificate,
        Self::Address,
        Self::User,
        Self::System,
    ];

    /// Its name in metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::UnknownExport => "unknown_export",
            Self::Unreached => "unreached",
            Self::PoolSessions => "pool_sessions",
            Self::ExportSessions => "export_sessions",
            Self::SourceSessions => "source_sessions",
            Self::ShuttingDown => "shutting_down",
            Self::Displaced => "displaced",
            Self::TooSlow => "too_slow",
            Self::Protocol => "protocol",
            Self::TlsRequired => "tls_required",
            Self::TlsFailed => "tls_failed",
            Self::Certificate => "certificate",
            Self::Address => "address",
            Self::User => "user",
            Self::System => "system",
        }
    }

    /// Its explanation in the log.
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Self::UnknownExport => "no export has this name",
            Self::Unreached => "its upstream has not been reached yet",
            Self::PoolSessions => "its pool has as many sessions as it may; see `sessions`",
            Self::ExportSessions => "it has as many sessions as it may; see `export_sessions`",
            Self::SourceSessions => "this source has as many sessions as it may; see `source_sessions`",
            Self::ShuttingDown => "the gateway is shutting down",
            Self::Displaced => "too many connections have not chosen an export",
            Self::TooSlow => "it took too long",
            Self::Protocol => "it did not keep to the protocol",
            Self::TlsRequired => "the client asks in plain text for what needs TLS",
            Self::TlsFailed => "TLS failed",
            Self::Certificate => "`allow` names no such certificate",
            Self::Address => "`allow` has no rule for this address",
            Self::User => "`allow` has no rule for this user",
            Self::System => "the system has no descriptor or thread left",
        }
    }
}

/// One pool at one moment. Counters count since the gateway's start.
#[derive(Debug, Clone, Serialize)]
pub struct PoolSnapshot {
    /// The pool.
    pub name: ResourceName,
    /// On the gateway's own clock.
    pub at: Instant,
    /// In the order of the configuration; removed exports stay until their last session is gone.
    pub consumers: Vec<ConsumerSnapshot>,
    /// Exports that are not served, since their upstream has not been reached since the start.
    pub awaited: Vec<AwaitedSnapshot>,
    /// Sessions in the transmission phase.
    pub sessions: usize,
    /// Payload memory that requests occupy.
    pub bytes_in_use: Bytes,
    /// The most that it ever was.
    pub bytes_in_use_peak: Bytes,
    /// Requests at the backend.
    pub in_flight: usize,
    /// The window in force for the consumers that are not protected.
    pub window: Window,
    /// The law's last decision; `None` without a law or before its first interval.
    pub decision: Option<Decision>,
    /// The latest decisions, oldest first, at most [`RECENT_DECISIONS`].
    pub recent_decisions: Vec<Decision>,
    /// Decisions since the start.
    pub decisions: u64,
}

/// An export that waits for its upstream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AwaitedSnapshot {
    /// The export's name.
    pub name: ConsumerName,
    /// The reason why the first attempt to reach the upstream failed.
    pub reason: String,
}

/// The number of decisions that a pool remembers for its snapshot.
pub const RECENT_DECISIONS: usize = 64;

/// One consumer at one moment.
#[derive(Debug, Clone, Serialize)]
pub struct ConsumerSnapshot {
    /// The export's name.
    pub name: ConsumerName,
    /// Its weight.
    pub shares: Shares,
    /// True if laws never throttle the consumer.
    pub protected: bool,
    /// True if an operator has released the consumer: neither a law nor its limit throttles it.
    pub released: bool,
    /// Removed from the configuration, waiting for its last session.
    pub removed: bool,
    /// Its sessions.
    pub sessions: usize,
    /// Those of them that are disks, of virtual machines or of this host.
    pub disks: usize,
    /// Requests waiting in the gateway.
    pub queued: usize,
    /// The reason for which they wait for their turn. `None`: none waits for it.
    pub waits_for: Option<WaitReason>,
    /// Requests at the backend.
    pub in_flight: usize,
    /// The delay of each of its requests, as the law commands it.
    pub delay: Latency,
    /// The window that bounds it by itself, where each export has a law and it is not protected.
    pub window: Option<Window>,
    /// Reads.
    pub reads: OpSnapshot,
    /// Writes and write-zeroes.
    pub writes: OpSnapshot,
    /// Flushes. Those that a durable write (FUA) needs are part of the write.
    pub flushes: OpSnapshot,
    /// Trims answered.
    pub trims: u64,
    /// Requests to cache a range answered.
    pub caches: u64,
    /// Block statuses answered.
    pub block_statuses: u64,
    /// Its volume has completed nothing for seconds, with something outstanding.
    pub hung: bool,
    /// Its path leads to another volume than the one that is served, or to none.
    pub replaced: bool,
    /// Requests answered with an error.
    pub errors: IoErrors,
    /// The storage has lost written data: no flush succeeds until the export is removed and added again.
    pub poisoned: bool,
    /// The service it got under its reservation, if it has one, or a contract that reserves its rate.
    pub reserved: Option<ReservedSnapshot>,
    /// Its state under a law that commands rates, or that keeps its contract; `None` otherwise.
    pub tenant: Option<TenantSnapshot>,
    /// The connections to its upstream export, where it has one.
    pub upstream: Option<UpstreamSnapshot>,
}

/// The service that a consumer got under its reservation, since it has one. I/Os are those of
/// [`tidegate_sched::CostModel`].
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ReservedSnapshot {
    /// The reservation, in I/Os per second.
    pub rate: Iops,
    /// The time during which it had requests waiting for their turn.
    pub backlogged: Duration,
    /// The service dispatched for it, in I/Os.
    pub served_ios: f64,
    /// The part of `backlogged` in which it got less than its reservation, judged by the second.
    pub missed: Duration,
}

/// A consumer in a pool whose law commands rates, or keeps the consumer's contract.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TenantSnapshot {
    /// The requests released per second; `None`: all of them at once.
    pub rate: Option<Iops>,
    /// The time from a request's release to its completion at the backend, which contracts are about.
    /// Where no bucket releases requests, it is the time at which the contract's would have. Counts since
    /// there is such a law.
    pub released: FineHistogram,
    /// The contract and its fulfilment; `None` if there never was one.
    pub contract: Option<ContractSnapshot>,
}

/// A contract, and its fulfilment since the first one. Each request is judged by the terms in force when it
/// completed. Requests completed while there are none do not count.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ContractSnapshot {
    /// The terms as they are now; `None` where nothing is promised at this time.
    pub contract: Option<Contract>,
    /// Reads and writes that succeeded.
    pub requests: u64,
    /// The late requests among these: they took longer than promised, from release to completion.
    pub late: u64,
    /// The time during which it had something outstanding.
    pub active: Duration,
}

/// The connections to one upstream export. Counters count since the gateway's start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct UpstreamSnapshot {
    /// Connections that take requests.
    pub connections: usize,
    /// The number of connections that there should be.
    pub wanted: usize,
    /// Connections opened in place of lost ones.
    pub reconnects: u64,
    /// Requests that were sent again after their connection was lost.
    pub replayed: u64,
    /// Requests answered with EIO because their connection was lost, or because there was none for too long.
    pub failed: u64,
    /// The number of times that the upstream was lost with answered changes that had not been flushed. Each
    /// made a flush fail.
    pub unflushed_losses: u64,
}

/// Reads, writes or flushes of one consumer since the gateway's start; only those that succeeded.
#[derive(Debug, Clone, Default, Serialize)]
pub struct OpSnapshot {
    /// Requests.
    pub count: u64,
    /// Bytes of payload; for write-zeroes the bytes zeroed.
    pub bytes: u64,
    /// From dispatch to completion: the resource's own response time.
    pub backend: TimeHistogram,
    /// The time from the request's arrival in the gateway to its reply being queued: the time that the client
    /// sees, less the network.
    pub total: TimeHistogram,
}
