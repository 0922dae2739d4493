//! Every metric of the gateway, with what `docs/reference/metrics.md` says about it.

use prometheus_client::registry::Unit;

use tidegate_service::metrics::{MetricKind, MetricSpec};

/// A metric of `tidegate serve`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServeMetric {
    /// The version that runs.
    Build,
    /// Configuration reloads.
    Reloads,
    /// HTTP connections refused.
    HttpRefused,
    /// Messages that the log lacks.
    Log,
    /// Handshakes going on.
    Handshakes,
    /// Handshakes that did not become sessions.
    HandshakesEnded,
    /// Connections that were refused.
    ConnectionsRefused,
    /// Memory that virtual machines share.
    GuestMemory,
    /// 1 while the cluster's carrier works.
    ClusterUp,
    /// Hosts heard through the carrier.
    ClusterPeers,
    /// Messages that the carrier sent, took and refused.
    ClusterMessages,
    /// 1 while a pool's worker answers.
    PoolUp,
    /// Sessions of a pool.
    PoolSessions,
    /// Requests of a pool at the backend.
    PoolInFlight,
    /// Payload memory of a pool.
    PoolBuffered,
    /// The most payload memory of a pool.
    PoolBufferedPeak,
    /// The law that decides.
    PoolLaw,
    /// The window in force.
    PoolWindow,
    /// β of the window law.
    PoolBeta,
    /// By what β was multiplied for shares of requests.
    PoolShareCompensation,
    /// Hosts that share a pool's resource.
    PoolHosts,
    /// The rate of all consumers together.
    PoolOperatingPoint,
    /// In which band that is.
    PoolBand,
    /// The response time that the law steers to.
    PoolSetPoint,
    /// The most that the set point may be, if the law finds it.
    PoolSetPointCeiling,
    /// The response time at which the array's curve is known to bend.
    PoolKnee,
    /// The most that the array is known to give.
    PoolMost,
    /// The response time that the law compares with the set point.
    PoolEstimate,
    /// The window that reservations take.
    PoolReserved,
    /// 1 while reservations are missed, by the cause.
    PoolShortage,
    /// Throttled consumers.
    PoolHeld,
    /// Consumers eligible for throttling.
    PoolThrottled,
    /// Decides and does not act.
    PoolDryRun,
    /// Decisions by what the signal said.
    PoolDecisions,
    /// Requests answered.
    Requests,
    /// Payload moved.
    Payload,
    /// Requests that the storage or the gateway failed.
    Errors,
    /// Requests that clients may not make.
    Mistakes,
    /// The storage has lost written data.
    Poisoned,
    /// Response times in the gateway.
    ResponseTime,
    /// Response times at the backend.
    BackendTime,
    /// Sessions of a consumer.
    Sessions,
    /// Disks among them, of virtual machines and of the host.
    Disks,
    /// Requests waiting in the gateway.
    Queued,
    /// Requests of a consumer at the backend.
    InFlight,
    /// Its volume does not answer.
    Hung,
    /// See [`tidegate_gateway::ConsumerSnapshot::replaced`].
    Replaced,
    /// The delay in force.
    Delay,
    /// Throttled now.
    Held,
    /// Reason for which requests wait.
    Waiting,
    /// Released by an operator.
    Released,
    /// Its promised latency.
    Promised,
    /// Part of a span of time in which its promise was kept.
    PromiseKept,
    /// Its weight.
    Shares,
    /// Never throttled.
    Protected,
    /// Connections to an upstream.
    UpstreamConnections,
    /// Connections opened in place of lost ones.
    UpstreamReconnects,
    /// Requests sent again.
    UpstreamReplayed,
    /// Requests that the upstream was lost with.
    UpstreamFailed,
    /// Losses of what was answered and not flushed.
    UpstreamLosses,
    /// Its reservation.
    Reserved,
    /// The time that its requests waited, under a reservation.
    ReservedBacklog,
    /// Its dispatched requests, under a reservation.
    ReservedServed,
    /// The time in which it got less than its reservation.
    ReservedMissed,
    /// The rate at which its requests are released.
    Rate,
    /// Response times from release to completion.
    ReleaseTime,
    /// The rate that it was promised.
    Contract,
    /// The response time that it was promised.
    ContractTime,
    /// Requests under its contract.
    ContractRequests,
    /// Requests under its contract that were later than promised.
    ContractLate,
    /// The time in which it had requests outstanding, under a contract.
    ContractActive,
    /// 1 while a pool's contracts in force are admitted.
    PoolAdmitted,
    /// 1 while the contracts that are due are not in force.
    PoolOverdue,
    /// Contracts whose time came, by the outcome.
    PoolContractChanges,
}

const NONE: &[&str] = &[];
const POOL: &[&str] = &["pool"];
const CONSUMER: &[&str] = &["pool", "consumer"];
const OPERATION: &[&str] = &["pool", "consumer", "op"];
const WAITING: &[&str] = &["pool", "consumer", "reason"];
/// A consumer, and a span of time.
const SPAN: &[&str] = &["pool", "consumer", "over"];

impl ServeMetric {
    /// Every metric, in the order of the exposition.
    pub const ALL: [Self; 74] = [
        Self::Build,
        Self::Reloads,
        Self::HttpRefused,
        Self::Log,
        Self::Handshakes,
        Self::HandshakesEnded,
        Self::ConnectionsRefused,
        Self::GuestMemory,
        Self::ClusterUp,
        Self::ClusterPeers,
        Self::ClusterMessages,
        Self::PoolUp,
        Self::PoolSessions,
        Self::PoolInFlight,
        Self::PoolBuffered,
        Self::PoolBufferedPeak,
        Self::PoolLaw,
        Self::PoolWindow,
        Self::PoolBeta,
        Self::PoolShareCompensation,
        Self::PoolHosts,
        Self::PoolOperatingPoint,
        Self::PoolBand,
        Self::PoolSetPoint,
        Self::PoolSetPointCeiling,
        Self::PoolKnee,
        Self::PoolMost,
        Self::PoolEstimate,
        Self::PoolReserved,
        Self::PoolShortage,
        Self::PoolHeld,
        Self::PoolThrottled,
        Self::PoolDryRun,
        Self::PoolDecisions,
        Self::PoolAdmitted,
        Self::PoolOverdue,
        Self::PoolContractChanges,
        Self::Requests,
        Self::Payload,
        Self::Errors,
        Self::Mistakes,
        Self::Poisoned,
        Self::ResponseTime,
        Self::BackendTime,
        Self::Sessions,
        Self::Disks,
        Self::Queued,
        Self::InFlight,
        Self::Hung,
        Self::Replaced,
        Self::Delay,
        Self::Held,
        Self::Waiting,
        Self::Released,
        Self::Promised,
        Self::PromiseKept,
        Self::Shares,
        Self::Protected,
        Self::UpstreamConnections,
        Self::UpstreamReconnects,
        Self::UpstreamReplayed,
        Self::UpstreamFailed,
        Self::UpstreamLosses,
        Self::Reserved,
        Self::ReservedBacklog,
        Self::ReservedServed,
        Self::ReservedMissed,
        Self::Rate,
        Self::ReleaseTime,
        Self::Contract,
        Self::ContractTime,
        Self::ContractRequests,
        Self::ContractLate,
        Self::ContractActive,
    ];

    /// Name, kind, unit, labels and help.
    #[must_use]
    pub fn spec(self) -> MetricSpec {
        use MetricKind::{Counter, Gauge, Histogram, Info};
        let requests = || Some(Unit::Other("requests".to_owned()));
        let (stem, unit, kind, labels, help) = match self {
            Self::Build => return MetricSpec::build(),
            Self::Reloads => return MetricSpec::reloads(),
            Self::HttpRefused => return MetricSpec::http_refused(),
            Self::Log => return MetricSpec::log(),
            Self::Handshakes => {
                ("tidegate_handshakes", None, Gauge, NONE, "Connections that have not chosen an export yet")
            }
            Self::HandshakesEnded => {
                ("tidegate_handshakes_ended", None, Counter, NONE, "Handshakes that ended without a session")
            }
            Self::ConnectionsRefused => (
                "tidegate_connections_refused",
                None,
                Counter,
                &["reason"][..],
                "Connections that got no session, for each reason",
            ),
            Self::GuestMemory => (
                "tidegate_guest_memory",
                Some(Unit::Bytes),
                Gauge,
                NONE,
                "Memory that virtual machines share with the gateway",
            ),
            Self::ClusterUp => (
                "tidegate_cluster_up",
                None,
                Gauge,
                &["carrier"][..],
                "1 while the carrier of the cluster works, as far as it can tell",
            ),
            Self::ClusterPeers => (
                "tidegate_cluster_peers",
                None,
                Gauge,
                &["state"][..],
                "Other hosts of the cluster: live, or stale after three silent intervals",
            ),
            Self::ClusterMessages => (
                "tidegate_cluster_messages",
                None,
                Counter,
                &["outcome"][..],
                "Messages to and from other hosts: sent, taken, or why they were refused",
            ),
            Self::PoolUp => (
                "tidegate_pool_up",
                None,
                Gauge,
                POOL,
                "1 while the pool's worker answers within half a second",
            ),
            Self::PoolSessions => ("tidegate_pool_sessions", None, Gauge, POOL, "Sessions of the pool"),
            Self::PoolInFlight => {
                ("tidegate_pool_in_flight", requests(), Gauge, POOL, "Requests at the backend")
            }
            Self::PoolBuffered => {
                ("tidegate_pool_buffered", Some(Unit::Bytes), Gauge, POOL, "Payload memory in use")
            }
            Self::PoolBufferedPeak => (
                "tidegate_pool_buffered_peak",
                Some(Unit::Bytes),
                Gauge,
                POOL,
                "The most payload memory ever in use",
            ),
            Self::PoolLaw => ("tidegate_pool_law", None, Info, &["pool", "law"][..], "Which law decides"),
            Self::PoolWindow => (
                "tidegate_pool_window",
                requests(),
                Gauge,
                POOL,
                "Requests that all unprotected consumers together may have at the backend",
            ),
            Self::PoolBeta => (
                "tidegate_pool_beta",
                None,
                Gauge,
                POOL,
                "β of the window law: what the shares at work add to the window in each step",
            ),
            Self::PoolShareCompensation => (
                "tidegate_pool_share_compensation",
                None,
                Gauge,
                POOL,
                "By what β was multiplied so that shares are of requests: the host's response time over that \
                    of all",
            ),
            Self::PoolHosts => (
                "tidegate_pool_hosts",
                None,
                Gauge,
                &["pool", "state"][..],
                "Hosts that say what they measure at the pool's resource, this one included; only in a \
                    cluster",
            ),
            Self::PoolOperatingPoint => (
                "tidegate_pool_operating_point",
                Some(Unit::Other("requests_per_second".to_owned())),
                Gauge,
                POOL,
                "What all consumers may do together; only with the laws self-tuning and queueing-model",
            ),
            Self::PoolBand => (
                "tidegate_pool_band",
                None,
                Gauge,
                POOL,
                "The band in which the pool operates, and the part of it as a fraction: 2.2 is band 2 at 20 \
                    %; beyond the last how many there are; only with bands",
            ),
            Self::PoolSetPoint => (
                "tidegate_pool_set_point",
                Some(Unit::Seconds),
                Gauge,
                POOL,
                "The response time that the law steers to now",
            ),
            Self::PoolSetPointCeiling => (
                "tidegate_pool_set_point_ceiling",
                Some(Unit::Seconds),
                Gauge,
                POOL,
                "The most that the configuration lets the set point be; only under laws that find it",
            ),
            Self::PoolKnee => (
                "tidegate_pool_knee",
                Some(Unit::Seconds),
                Gauge,
                POOL,
                "The least response time known to give the wanted part of the most; only with an automatic \
                    set point",
            ),
            Self::PoolMost => (
                "tidegate_pool_most_iops",
                None,
                Gauge,
                POOL,
                "The most requests per second that the pool's resource is known to give; only with an \
                    automatic set point",
            ),
            Self::PoolEstimate => (
                "tidegate_pool_estimate",
                Some(Unit::Seconds),
                Gauge,
                POOL,
                "The response time that the law compares with the set point; absent before the first sample",
            ),
            Self::PoolReserved => (
                "tidegate_pool_reservation_window",
                requests(),
                Gauge,
                POOL,
                "The window that the reservations of active consumers take; absent without any",
            ),
            Self::PoolShortage => (
                "tidegate_pool_reservation_shortage",
                None,
                Gauge,
                &["pool", "cause"][..],
                "1 while reservations are missed for this cause; absent without any",
            ),
            Self::PoolHeld => ("tidegate_pool_held_consumers", None, Gauge, POOL, "Throttled consumers"),
            Self::PoolThrottled => {
                ("tidegate_pool_throttled_consumers", None, Gauge, POOL, "Consumers eligible for throttling")
            }
            Self::PoolDryRun => {
                ("tidegate_pool_dry_run", None, Gauge, POOL, "1 while the law decides and does not act")
            }
            Self::PoolDecisions => (
                "tidegate_pool_decisions",
                None,
                Counter,
                &["pool", "input"][..],
                "Decisions of the law by what the signal said",
            ),
            Self::PoolAdmitted => (
                "tidegate_pool_contracts_admitted",
                None,
                Gauge,
                POOL,
                "Whether the contracts in force were admitted; absent where they were not judged",
            ),
            Self::PoolOverdue => (
                "tidegate_pool_contracts_overdue",
                None,
                Gauge,
                POOL,
                "Whether the contracts for this time of day are not in force, since they were refused or are \
                    not judged yet",
            ),
            Self::PoolContractChanges => (
                "tidegate_pool_contract_changes",
                None,
                Counter,
                &["pool", "result"][..],
                "Contracts whose time of day came",
            ),
            Self::Requests => {
                ("tidegate_requests", None, Counter, OPERATION, "Requests answered without an error")
            }
            Self::Payload => {
                ("tidegate_payload", Some(Unit::Bytes), Counter, OPERATION, "Bytes read and written")
            }
            Self::Errors => (
                "tidegate_errors",
                None,
                Counter,
                &["pool", "consumer", "kind"][..],
                "Requests answered with an error of the storage or the gateway",
            ),
            Self::Mistakes => (
                "tidegate_mistakes",
                None,
                Counter,
                CONSUMER,
                "Requests refused because their client may not make them",
            ),
            Self::Poisoned => (
                "tidegate_poisoned",
                None,
                Gauge,
                CONSUMER,
                "1 once the storage has lost written data, and no flush succeeds any more",
            ),
            Self::ResponseTime => (
                "tidegate_response_time",
                Some(Unit::Seconds),
                Histogram,
                OPERATION,
                "From a request's arrival to its reply being queued: what the client feels, less the network",
            ),
            Self::BackendTime => (
                "tidegate_backend_time",
                Some(Unit::Seconds),
                Histogram,
                OPERATION,
                "From dispatch to completion at the backend: the storage's own response time",
            ),
            Self::Sessions => ("tidegate_sessions", None, Gauge, CONSUMER, "Sessions of the consumer"),
            Self::Disks => {
                let help = "Sessions of the consumer that are disks, of virtual machines (vhost-user) or of \
                    the host (ublk)";
                ("tidegate_disks", None, Gauge, CONSUMER, help)
            }
            Self::Queued => {
                ("tidegate_queued", requests(), Gauge, CONSUMER, "Requests waiting in the gateway")
            }
            Self::InFlight => ("tidegate_in_flight", requests(), Gauge, CONSUMER, "Requests at the backend"),
            Self::Hung => (
                "tidegate_hung",
                None,
                Gauge,
                CONSUMER,
                "1 while its volume has completed nothing for 5 s or more",
            ),
            Self::Replaced => (
                "tidegate_replaced",
                None,
                Gauge,
                CONSUMER,
                "1 while its path leads to another volume than the one that is served, or to none",
            ),
            Self::Delay => (
                "tidegate_delay",
                Some(Unit::Seconds),
                Gauge,
                CONSUMER,
                "Delay of each request before its dispatch, by the law",
            ),
            Self::Held => (
                "tidegate_held",
                None,
                Gauge,
                CONSUMER,
                "1 while a law delays the consumer or its requests wait for the window",
            ),
            Self::Waiting => (
                "tidegate_waiting",
                None,
                Gauge,
                WAITING,
                "1 for the reason for which the consumer's requests wait: law, limit, share or depth",
            ),
            Self::Released => {
                ("tidegate_released", None, Gauge, CONSUMER, "1 while an operator has released the consumer")
            }
            Self::Promised => (
                "tidegate_promised",
                Some(Unit::Seconds),
                Gauge,
                CONSUMER,
                "Latency promised to the consumer",
            ),
            Self::PromiseKept => (
                "tidegate_promise_kept",
                Some(Unit::Ratios),
                Gauge,
                SPAN,
                "Part of the last minute, hour and day in which the promise was kept, from 0 to 1",
            ),
            Self::Shares => {
                ("tidegate_shares", None, Gauge, CONSUMER, "Weight against the pool's other consumers")
            }
            Self::Protected => {
                ("tidegate_protected", None, Gauge, CONSUMER, "1 when no law holds the consumer back")
            }
            Self::UpstreamConnections => (
                "tidegate_upstream_connections",
                None,
                Gauge,
                &["pool", "consumer", "state"][..],
                "Connections to the consumer's upstream export that are up, and as many as are wanted",
            ),
            Self::UpstreamReconnects => (
                "tidegate_upstream_reconnects",
                None,
                Counter,
                CONSUMER,
                "Connections to the upstream opened in place of lost ones",
            ),
            Self::UpstreamReplayed => (
                "tidegate_upstream_replayed",
                None,
                Counter,
                CONSUMER,
                "Requests sent again after the connection was lost that had carried them",
            ),
            Self::UpstreamFailed => (
                "tidegate_upstream_failed",
                None,
                Counter,
                CONSUMER,
                "Requests answered with EIO because their connection to the upstream was lost, or none was \
                    there",
            ),
            Self::UpstreamLosses => (
                "tidegate_upstream_unflushed_losses",
                None,
                Counter,
                CONSUMER,
                "How often the upstream was lost with changes that it had answered and not flushed",
            ),
            Self::Reserved => (
                "tidegate_reservation",
                Some(Unit::Other("ios_per_second".to_owned())),
                Gauge,
                CONSUMER,
                "What is reserved for the consumer, in I/Os of up to 64 KiB; absent without a reservation",
            ),
            Self::ReservedBacklog => (
                "tidegate_reservation_backlog",
                Some(Unit::Seconds),
                Counter,
                CONSUMER,
                "How long requests of a consumer with a reservation waited for their turn",
            ),
            Self::ReservedServed => (
                "tidegate_reservation_served",
                Some(Unit::Other("ios".to_owned())),
                Counter,
                CONSUMER,
                "What was dispatched for a consumer with a reservation, in I/Os of up to 64 KiB",
            ),
            Self::ReservedMissed => (
                "tidegate_reservation_missed",
                Some(Unit::Seconds),
                Counter,
                CONSUMER,
                "How long a consumer whose requests waited got less than its reservation",
            ),
            Self::Rate => (
                "tidegate_rate",
                Some(Unit::Other("requests_per_second".to_owned())),
                Gauge,
                CONSUMER,
                "How many requests of the consumer are released per second; absent while no law commands it",
            ),
            Self::ReleaseTime => (
                "tidegate_release_time",
                Some(Unit::Seconds),
                Histogram,
                CONSUMER,
                "From a request's release to its completion at the backend: what a contract is about",
            ),
            Self::Contract => (
                "tidegate_contract",
                Some(Unit::Other("requests_per_second".to_owned())),
                Gauge,
                CONSUMER,
                "The rate that the consumer was promised; absent without a contract that is kept",
            ),
            Self::ContractTime => (
                "tidegate_contract_response_time",
                Some(Unit::Seconds),
                Gauge,
                CONSUMER,
                "The response time that the consumer was promised",
            ),
            Self::ContractRequests => {
                ("tidegate_contract", requests(), Counter, CONSUMER, "Requests answered under a contract")
            }
            Self::ContractLate => (
                "tidegate_contract_late",
                requests(),
                Counter,
                CONSUMER,
                "Requests that took longer than was promised, from release to completion",
            ),
            Self::ContractActive => (
                "tidegate_contract_active",
                Some(Unit::Seconds),
                Counter,
                CONSUMER,
                "How long a consumer with a contract had requests outstanding",
            ),
        };
        MetricSpec { stem, unit, help, kind, labels }
    }
}
