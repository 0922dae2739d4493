//! Every metric of the agent, with what `docs/reference/metrics.md` says about it.

use prometheus_client::registry::Unit;

use tidegate_service::metrics::{MetricKind, MetricSpec};

/// A metric of `tidegate agent`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AgentMetric {
    /// The version that runs.
    Build,
    /// Configuration reloads.
    Reloads,
    /// HTTP connections refused.
    HttpRefused,
    /// Messages that the log lacks.
    Log,
    /// 1 while the machine's counters can be read, and count.
    Sees,
    /// 0 while the throttle does not release the consumers that it is told to release.
    Acts,
    /// 1 while a kind of target says which initiators it has.
    TargetUp,
    /// Sessions of a kind of target.
    Sessions,
    /// The number of steps at which the throttle failed.
    ThrottleErrors,
    /// The number of guardians started.
    GuardianStarts,
    /// Segments of an array's connections that passed.
    BridgeSegments,
    /// Packets whose copies were lost.
    BridgeLost,
    /// Missing bytes that may have been part of a header.
    BridgeGaps,
    /// Commands that were forgotten since something was missing.
    BridgeForgotten,
    /// Connections that are not fully understood.
    BridgeDoubtful,
    /// Requests that found no idle thread of the NFS server.
    NfsdWaits,
    /// 1 while the NFS server is short of threads.
    NfsdShort,
    /// 1 while the machine has a resource's storage.
    Present,
    /// The law that decides.
    Law,
    /// The window that it holds them to.
    Window,
    /// The response time that the law steers to.
    SetPoint,
    /// The most that the set point may be, if the law finds it.
    SetPointCeiling,
    /// The response time that the law compares with the set point.
    Estimate,
    /// The latency promised to reads.
    Promised,
    /// Part of a span of time in which that promise was kept.
    PromiseKept,
    /// The delay in force.
    Delay,
    /// Writes that a device may take per second.
    WriteLimit,
    /// Bytes that may be written to a device per second.
    WriteLimitBytes,
    /// The rate of all eligible consumers together.
    OperatingPoint,
    /// The band in which that is.
    Band,
    /// The rate of each of them.
    Allotment,
    /// Throttled consumers.
    Held,
    /// Consumers eligible for throttling.
    Throttled,
    /// Decides and does not act.
    DryRun,
    /// Decisions by what the signal said.
    Decisions,
    /// Requests completed.
    Requests,
    /// Payload moved.
    Payload,
    /// The sum of the requests' response times.
    ResponseTime,
    /// The histogram of the requests' response times.
    RequestTime,
    /// The consumers in the set.
    Member,
    /// Throttled now.
    ConsumerHeld,
    /// The delay of packets to a consumer.
    PacketDelay,
    /// Requests per second that a consumer may do.
    Limit,
    /// Bytes per second that a consumer may read or write.
    LimitBytes,
    /// The latency of a consumer that the law judges by itself.
    ConsumerLatency,
    /// The age of an initiator's last report.
    ReportAge,
    /// 1 while an initiator's report is a part of the signal.
    ReportCounts,
    /// The age of the last answer of a source.
    SourceAge,
}

const NONE: &[&str] = &[];
const TARGET: &[&str] = &["target"];
const RESOURCE: &[&str] = &["resource"];
const CONSUMER: &[&str] = &["resource", "consumer"];
const LIMIT: &[&str] = &["resource", "consumer", "op"];
const OPERATION: &[&str] = &["resource", "op"];
const REPORTER: &[&str] = &["resource", "host"];
const DEVICE: &[&str] = &["resource", "device"];

impl AgentMetric {
    /// Every metric, in the order of the exposition.
    pub const ALL: [Self; 48] = [
        Self::Build,
        Self::Reloads,
        Self::HttpRefused,
        Self::Log,
        Self::Sees,
        Self::Acts,
        Self::TargetUp,
        Self::Sessions,
        Self::ThrottleErrors,
        Self::GuardianStarts,
        Self::BridgeSegments,
        Self::BridgeLost,
        Self::BridgeGaps,
        Self::BridgeForgotten,
        Self::BridgeDoubtful,
        Self::NfsdWaits,
        Self::NfsdShort,
        Self::Present,
        Self::Law,
        Self::Window,
        Self::SetPoint,
        Self::SetPointCeiling,
        Self::Estimate,
        Self::Promised,
        Self::PromiseKept,
        Self::Delay,
        Self::WriteLimit,
        Self::WriteLimitBytes,
        Self::OperatingPoint,
        Self::Band,
        Self::Allotment,
        Self::Held,
        Self::Throttled,
        Self::DryRun,
        Self::Decisions,
        Self::Requests,
        Self::Payload,
        Self::ResponseTime,
        Self::RequestTime,
        Self::Member,
        Self::ConsumerHeld,
        Self::PacketDelay,
        Self::Limit,
        Self::LimitBytes,
        Self::ConsumerLatency,
        Self::ReportAge,
        Self::ReportCounts,
        Self::SourceAge,
    ];

    /// Name, kind, unit, labels and help.
    #[must_use]
    pub fn spec(self) -> MetricSpec {
        use MetricKind::{Counter, Gauge, Histogram, Info};
        let seconds = || Some(Unit::Seconds);
        let (stem, unit, kind, labels, help) = match self {
            Self::Build => return MetricSpec::build(),
            Self::Reloads => return MetricSpec::reloads(),
            Self::HttpRefused => return MetricSpec::http_refused(),
            Self::Log => return MetricSpec::log(),
            Self::Sees => (
                "tidegate_agent_sees",
                None,
                Gauge,
                NONE,
                "1 while the machine's counters can be read, and count",
            ),
            Self::Acts => (
                "tidegate_agent_acts",
                None,
                Gauge,
                NONE,
                "0 while limits that are in force cannot be changed: the guardian releases every consumer; \
                    absent on a dry run",
            ),
            Self::TargetUp => (
                "tidegate_agent_target_up",
                None,
                Gauge,
                TARGET,
                "1 while a kind of target that is here says who its initiators are",
            ),
            Self::Sessions => {
                ("tidegate_agent_sessions", None, Gauge, TARGET, "Sessions that a kind of target shows")
            }
            Self::ThrottleErrors => (
                "tidegate_agent_throttle_errors",
                None,
                Counter,
                NONE,
                "Steps at which the throttle failed, so that not all that was decided is in force",
            ),
            Self::GuardianStarts => (
                "tidegate_agent_guardian_starts",
                None,
                Counter,
                NONE,
                "How often a guardian was started: 1 unless one was killed",
            ),
            Self::BridgeSegments => (
                "tidegate_agent_bridge_segments",
                None,
                Counter,
                NONE,
                "TCP segments of the array's connections that passed; absent without `bridge`",
            ),
            Self::BridgeLost => (
                "tidegate_agent_bridge_lost_packets",
                None,
                Counter,
                NONE,
                "Packets that passed and whose copies found no room",
            ),
            Self::BridgeGaps => (
                "tidegate_agent_bridge_gaps",
                None,
                Counter,
                NONE,
                "Missing bytes that may have been part of a header",
            ),
            Self::BridgeForgotten => (
                "tidegate_agent_bridge_forgotten_commands",
                None,
                Counter,
                NONE,
                "Commands without a latency, since their responses may have been missed",
            ),
            Self::BridgeDoubtful => (
                "tidegate_agent_bridge_doubtful_connections",
                None,
                Gauge,
                NONE,
                "Connections that are encrypted, not understood, or without names",
            ),
            Self::NfsdWaits => (
                "tidegate_agent_nfsd_thread_waits",
                None,
                Counter,
                NONE,
                "Requests of NFS clients that found no idle thread; absent without an NFS server",
            ),
            Self::NfsdShort => (
                "tidegate_agent_nfsd_short_of_threads",
                None,
                Gauge,
                NONE,
                "1 while most requests of NFS clients wait for a thread",
            ),
            Self::Present => {
                ("tidegate_resource_present", None, Gauge, RESOURCE, "1 while the machine has the storage")
            }
            Self::Law => ("tidegate_resource_law", None, Info, &["resource", "law"][..], "Which law decides"),
            Self::Window => (
                "tidegate_resource_window",
                Some(Unit::Other("requests".to_owned())),
                Gauge,
                RESOURCE,
                "Requests that all eligible consumers together may have at the storage; absent while \
                 requests are delayed, and with laws without windows",
            ),
            Self::SetPoint => (
                "tidegate_resource_set_point",
                seconds(),
                Gauge,
                RESOURCE,
                "The response time that the law steers to now",
            ),
            Self::SetPointCeiling => (
                "tidegate_resource_set_point_ceiling",
                seconds(),
                Gauge,
                RESOURCE,
                "The most that the configuration lets the set point be; only under laws that find it",
            ),
            Self::Estimate => (
                "tidegate_resource_estimate",
                seconds(),
                Gauge,
                RESOURCE,
                "The response time that the law compares with the set point; absent before the first sample",
            ),
            Self::Promised => (
                "tidegate_resource_promised",
                seconds(),
                Gauge,
                RESOURCE,
                "Latency promised to the reads of the resource; absent where the target is a percentile",
            ),
            Self::PromiseKept => (
                "tidegate_resource_promise_kept",
                Some(Unit::Ratios),
                Gauge,
                &["resource", "over"][..],
                "Part of the last minute, hour and day in which that promise was kept, from 0 to 1",
            ),
            Self::Delay => (
                "tidegate_resource_delay",
                seconds(),
                Gauge,
                RESOURCE,
                "Delay of packets to members of the set; 0 on a dry run, and while the throttle \
                    fails",
            ),
            Self::WriteLimit => (
                "tidegate_resource_write_limit",
                Some(Unit::Other("requests_per_second".to_owned())),
                Gauge,
                DEVICE,
                "How many writes per second a device that members use may take; absent while it is not \
                    limited",
            ),
            Self::WriteLimitBytes => (
                "tidegate_resource_write_limit",
                Some(Unit::Other("bytes_per_second".to_owned())),
                Gauge,
                DEVICE,
                "How many bytes may be written to it per second; absent while it is not limited",
            ),
            Self::OperatingPoint => (
                "tidegate_resource_operating_point",
                Some(Unit::Other("requests_per_second".to_owned())),
                Gauge,
                RESOURCE,
                "Rate of all eligible consumers together; only with the laws self-tuning and queueing-model",
            ),
            Self::Band => (
                "tidegate_resource_band",
                None,
                Gauge,
                RESOURCE,
                "The band in which the resource operates, and the part of it as a fraction: 2.2 is band 2 at \
                    20 %; beyond the last how many there are; only with bands",
            ),
            Self::Allotment => (
                "tidegate_resource_allotment",
                Some(Unit::Other("requests_per_second".to_owned())),
                Gauge,
                CONSUMER,
                "What a consumer may do of that; only with the laws self-tuning and queueing-model",
            ),
            Self::Held => ("tidegate_resource_held_consumers", None, Gauge, RESOURCE, "Throttled consumers"),
            Self::Throttled => (
                "tidegate_resource_throttled_consumers",
                None,
                Gauge,
                RESOURCE,
                "Consumers eligible for throttling",
            ),
            Self::DryRun => (
                "tidegate_resource_dry_run",
                None,
                Gauge,
                RESOURCE,
                "1 while the law decides and does not act",
            ),
            Self::Decisions => (
                "tidegate_resource_decisions",
                None,
                Counter,
                &["resource", "input"][..],
                "Decisions of the law by what the signal said",
            ),
            Self::Requests => (
                "tidegate_resource_completed",
                Some(Unit::Other("requests".to_owned())),
                Counter,
                OPERATION,
                "Requests that the kernel completed at the resource",
            ),
            Self::Payload => (
                "tidegate_resource_payload",
                Some(Unit::Bytes),
                Counter,
                OPERATION,
                "Bytes read from and written to the resource",
            ),
            Self::ResponseTime => (
                "tidegate_resource_response_time",
                seconds(),
                Counter,
                OPERATION,
                "The sum of the response times of those requests",
            ),
            Self::RequestTime => (
                "tidegate_resource_request_time",
                seconds(),
                Histogram,
                OPERATION,
                "How long requests took at the resource's devices; absent where that is not counted",
            ),
            Self::Member => (
                "tidegate_resource_member",
                None,
                Gauge,
                CONSUMER,
                "1 for each consumer that is eligible for throttling now",
            ),
            Self::ConsumerHeld => (
                "tidegate_held",
                None,
                Gauge,
                CONSUMER,
                "1 while the consumer is throttled, 0 on a dry run and while the throttle fails",
            ),
            Self::PacketDelay => (
                "tidegate_resource_packet_delay",
                seconds(),
                Gauge,
                CONSUMER,
                "Delay in force of packets to the consumer; absent while they are not delayed",
            ),
            Self::Limit => (
                "tidegate_resource_limit",
                Some(Unit::Other("requests_per_second".to_owned())),
                Gauge,
                LIMIT,
                "Requests per second that the limits in force leave the consumer; absent while it has no limit",
            ),
            Self::LimitBytes => (
                "tidegate_resource_limit",
                Some(Unit::Other("bytes_per_second".to_owned())),
                Gauge,
                LIMIT,
                "Bytes per second that the limits in force leave the consumer; absent while it has no limit",
            ),
            Self::ConsumerLatency => (
                "tidegate_resource_consumer_latency",
                seconds(),
                Gauge,
                CONSUMER,
                "Latency of the consumer in the last control interval; only with laws that judge each consumer",
            ),
            Self::ReportAge => (
                "tidegate_resource_report_age",
                seconds(),
                Gauge,
                REPORTER,
                "Time since the last report of an initiator with an agent",
            ),
            Self::ReportCounts => (
                "tidegate_resource_report_counts",
                None,
                Gauge,
                REPORTER,
                "1 while an initiator's report is a part of the signal",
            ),
            Self::SourceAge => (
                "tidegate_resource_source_age",
                seconds(),
                Gauge,
                RESOURCE,
                "Time since the last answer of the source that publishes the latency; absent without one",
            ),
        };
        MetricSpec { stem, unit, help, kind, labels }
    }
}
