//! The metrics that `tidegate agent` exposes.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::registry::Unit;
use tidegate_control::{Decision, OperationTotals};
use tidegate_host::sense::capture::WireCounters;
use tidegate_host::sense::latency::ReadsAndWrites;
use tidegate_host::sense::session::TargetKind;
use tidegate_host::throttle::WriteLimit;
use tidegate_http::HttpRefusals;
use tidegate_regulate::{RegulatedResource, StorageLoad};
use tidegate_service::status::{PromiseStatus, SignalOrigin};
use tidegate_units::{ConsumerName, Latency, ResourceName};

use crate::initiators::intake::Reporter;
use crate::nfsd_watch::NfsdStatus;
use crate::source::SourceReading;

use tidegate_service::log::LogCounts;
use tidegate_service::metrics::{InputCounts, ReloadCounts};
use tidegate_service::metrics::{MetricKind, MetricSpec};
use tidegate_service::metrics::{
    MetricSamples, SampleValue, band, encode, flag, http_refused, log_samples, number, seconds, to_text,
};

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
const OPERATION: &[&str] = &["resource", "op"];
const REPORTER: &[&str] = &["resource", "host"];
const DEVICE: &[&str] = &["resource", "device"];

impl AgentMetric {
    /// Every metric, in the order of the exposition.
    pub const ALL: [Self; 42] = [
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
                "The response time that the law steers to",
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
                &["resource", "consumer"][..],
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
                &["resource", "consumer"][..],
                "1 for each consumer that is eligible for throttling now",
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

/// The state of one resource, as the agent knows it.
#[derive(Debug, Clone)]
pub struct ResourceStatus {
    /// Its name.
    pub name: ResourceName,
    /// True if the machine has the storage.
    pub present: bool,
    /// True on a dry run: the law decides and does not act.
    pub dry_run: bool,
    /// The delay of packets to members; zero on a dry run.
    pub delay: Latency,
    /// The delay of each of them, if it is divided among them.
    pub divided: BTreeMap<ConsumerName, Latency>,
    /// The limits on writes of devices that members use, by the devices' names in the kernel. It has only the
    /// devices that the throttle `rate` limits now.
    pub limits: BTreeMap<String, WriteLimit>,
    /// The last decision.
    pub decision: Option<Decision>,
    /// All reads since the start.
    pub reads: OperationTotals,
    /// All writes since the start.
    pub writes: OperationTotals,
    /// The consumers that are eligible now, each with its load since it is.
    pub members: BTreeMap<ConsumerName, StorageLoad>,
    /// The initiators that report on it, by name.
    pub reporters: Vec<Reporter>,
    /// The source of its latency, if another machine publishes it.
    pub source: Option<SourceReading>,
    /// The origin of the latency that the law steers by.
    pub signal_origin: SignalOrigin,
    /// The names by which the configuration selects eligible cgroups, if those are not their paths.
    pub names: BTreeMap<ConsumerName, String>,
    /// Devices of it whose requests the kernel does not count, each with the remedy: nothing is known of the
    /// resource while there are any.
    pub uncounted: Vec<String>,
}

impl ResourceStatus {
    /// Returns the state of a resource, with the limits on writes that it has in the kernel.
    pub(crate) fn of(
        regulated: &RegulatedResource,
        present: bool,
        limits: BTreeMap<String, WriteLimit>,
    ) -> Self {
        let law = regulated.law();
        let divided = regulated.delays().filter(|_| regulated.is_divided());
        Self {
            divided: divided.map(|(name, delay)| (name.clone(), delay)).collect(),
            name: law.resource.clone(),
            present,
            dry_run: law.dry_run,
            delay: regulated.delay(),
            limits,
            decision: regulated.decision().cloned(),
            reads: regulated.totals().reads,
            writes: regulated.totals().writes,
            members: regulated.consumer_totals().map(|(name, load)| (name.clone(), load.clone())).collect(),
            reporters: Vec::new(),
            source: None,
            signal_origin: SignalOrigin::Measured,
            names: BTreeMap::new(),
            uncounted: Vec::new(),
        }
    }

    /// Sets the gauges to "nothing throttled", whatever was decided: the throttle failed.
    pub(crate) fn not_held(&mut self) {
        self.delay = Latency::ZERO;
        self.divided.clear();
        self.limits.clear();
        if let Some(decision) = &mut self.decision {
            decision.held = 0;
        }
    }
}

/// The state of an agent between initiators and an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BridgeStatus {
    /// Counts of packets.
    pub counters: WireCounters,
    /// Connections that are not fully understood.
    pub doubtful: usize,
}

/// Everything that an agent exposes, at one moment.
#[derive(Debug, Clone, Default)]
pub struct AgentExposition {
    /// Reloads.
    pub reloads: ReloadCounts,
    /// HTTP connections that were refused.
    pub http_refused: Option<Arc<HttpRefusals>>,
    /// Messages that the log lacks.
    pub log: LogCounts,
    /// True if the machine's counters could be read.
    pub sees: bool,
    /// True if the throttle releases the consumers that it is told to release; `None`: there is none.
    pub acts: Option<bool>,
    /// The kinds of targets that are here: whether they say who their initiators are, and their sessions.
    pub targets: BTreeMap<TargetKind, (bool, usize)>,
    /// The number of times that the throttle failed.
    pub throttle_errors: u64,
    /// The number of guardians started.
    pub guardian_starts: u64,
    /// The packets of an array; `None`: this machine has the storage.
    pub bridge: Option<BridgeStatus>,
    /// The threads of this machine's NFS server; `None`: there is none.
    pub nfsd: Option<NfsdStatus>,
    /// Resources.
    pub resources: Vec<ResourceStatus>,
    /// Their decisions.
    pub decisions: BTreeMap<ResourceName, InputCounts>,
    /// The promises to their reads, and how much of them was kept.
    pub promises: BTreeMap<ResourceName, PromiseStatus>,
    /// The response times of the requests of each resource. A resource whose requests are not counted has no
    /// entry.
    pub request_times: BTreeMap<ResourceName, ReadsAndWrites>,
}

impl AgentExposition {
    /// Returns the exposition as OpenMetrics text.
    #[must_use]
    pub fn to_text(&self) -> String {
        to_text(self.clone())
    }

    fn samples(&self, metric: AgentMetric) -> MetricSamples<'_> {
        let mut samples = MetricSamples::default();
        match metric {
            AgentMetric::Build => samples.add(&[env!("CARGO_PKG_VERSION")], SampleValue::Info),
            AgentMetric::Reloads => {
                samples.add(&["applied"], SampleValue::Count(self.reloads.applied));
                samples.add(&["refused"], SampleValue::Count(self.reloads.refused));
            }
            AgentMetric::HttpRefused => http_refused(self.http_refused.as_deref(), &mut samples),
            AgentMetric::Log => log_samples(self.log, &mut samples),
            AgentMetric::Sees => {
                let counts = self.resources.iter().all(|resource| resource.uncounted.is_empty());
                samples.add(&[], flag(self.sees && counts));
            }
            AgentMetric::Acts => {
                if let Some(acts) = self.acts {
                    samples.add(&[], flag(acts));
                }
            }
            AgentMetric::TargetUp => {
                for (via, (up, _)) in &self.targets {
                    samples.add(&[via.label()], flag(*up));
                }
            }
            AgentMetric::Sessions => {
                for (via, (_, sessions)) in &self.targets {
                    samples.add(&[via.label()], number(*sessions));
                }
            }
            AgentMetric::ThrottleErrors => samples.add(&[], SampleValue::Count(self.throttle_errors)),
            AgentMetric::GuardianStarts => samples.add(&[], SampleValue::Count(self.guardian_starts)),
            AgentMetric::BridgeSegments
            | AgentMetric::BridgeLost
            | AgentMetric::BridgeGaps
            | AgentMetric::BridgeForgotten
            | AgentMetric::BridgeDoubtful => self.bridge_samples(metric, &mut samples),
            AgentMetric::NfsdWaits => {
                if let Some(nfsd) = self.nfsd {
                    samples.add(&[], SampleValue::Count(nfsd.waits));
                }
            }
            AgentMetric::NfsdShort => {
                if let Some(nfsd) = self.nfsd {
                    samples.add(&[], flag(nfsd.is_short()));
                }
            }
            _ => {
                for resource in &self.resources {
                    self.resource_samples(metric, resource, &mut samples);
                }
            }
        }
        samples
    }

    fn bridge_samples(&self, metric: AgentMetric, samples: &mut MetricSamples<'_>) {
        let Some(BridgeStatus { counters, doubtful }) = self.bridge else { return };
        let value = match metric {
            AgentMetric::BridgeSegments => SampleValue::Count(counters.segments),
            AgentMetric::BridgeLost => SampleValue::Count(counters.lost),
            AgentMetric::BridgeGaps => SampleValue::Count(counters.gaps),
            AgentMetric::BridgeForgotten => SampleValue::Count(counters.forgotten),
            _ => number(doubtful),
        };
        samples.add(&[], value);
    }

    fn resource_samples<'a>(
        &'a self,
        metric: AgentMetric,
        resource: &'a ResourceStatus,
        samples: &mut MetricSamples<'a>,
    ) {
        let name = resource.name.as_str();
        let decision = resource.decision.as_ref();
        let point = decision.and_then(|decision| decision.point.as_ref());
        let operations = [("read", &resource.reads), ("write", &resource.writes)];
        let value = match metric {
            AgentMetric::Present => Some(flag(resource.present)),
            AgentMetric::Law => {
                if let Some(decision) = decision {
                    samples.add(&[name, decision.law.name()], SampleValue::Info);
                }
                None
            }
            AgentMetric::Window => {
                decision.and_then(Decision::window).map(|window| SampleValue::Number(window.get()))
            }
            AgentMetric::SetPoint => decision.map(|decision| seconds(decision.set_point)),
            AgentMetric::Estimate => decision.and_then(|decision| decision.estimate).map(seconds),
            AgentMetric::Promised => self
                .promises
                .get(&resource.name)
                .map(|promise| SampleValue::Number(promise.response_time_seconds)),
            AgentMetric::PromiseKept => {
                for (over, kept) in
                    self.promises.get(&resource.name).into_iter().flat_map(PromiseStatus::spans)
                {
                    samples.add(&[name, over], SampleValue::Number(kept));
                }
                None
            }
            AgentMetric::Delay => Some(seconds(resource.delay)),
            AgentMetric::WriteLimit | AgentMetric::WriteLimitBytes => {
                for (device, limit) in &resource.limits {
                    let per_second = match metric {
                        AgentMetric::WriteLimit => limit.writes().per_second(),
                        _ => limit.bytes().per_second(),
                    };
                    samples.add(&[name, device], SampleValue::Number(per_second));
                }
                None
            }
            AgentMetric::OperatingPoint => {
                point.map(|point| SampleValue::Number(point.operating_point.per_second()))
            }
            AgentMetric::Band => point.and_then(|point| point.position).map(band),
            AgentMetric::Allotment => {
                for allotment in point.into_iter().flat_map(|point| &point.allotments) {
                    samples.add(
                        &[name, allotment.name.as_str()],
                        SampleValue::Number(allotment.rate.per_second()),
                    );
                }
                None
            }
            AgentMetric::Held => decision.map(|decision| SampleValue::Number(f64::from(decision.held))),
            AgentMetric::Throttled => Some(number(resource.members.len())),
            AgentMetric::DryRun => Some(flag(resource.dry_run)),
            AgentMetric::Decisions => {
                let counts = self.decisions.get(&resource.name).copied().unwrap_or_default();
                for (input, count) in counts.named() {
                    samples.add(&[name, input], SampleValue::Count(count));
                }
                None
            }
            AgentMetric::RequestTime => {
                if let Some(times) = self.request_times.get(&resource.name) {
                    samples.add(
                        &[name, "read"],
                        SampleValue::times(times.reads.sum(), times.reads.cumulative()),
                    );
                    samples.add(
                        &[name, "write"],
                        SampleValue::times(times.writes.sum(), times.writes.cumulative()),
                    );
                }
                None
            }
            AgentMetric::Member => {
                for member in resource.members.keys() {
                    samples.add(&[name, member.as_str()], flag(true));
                }
                None
            }
            AgentMetric::ReportAge => {
                for one in &resource.reporters {
                    samples.add(&[name, one.host.as_str()], seconds(one.age));
                }
                None
            }
            AgentMetric::ReportCounts => {
                for one in &resource.reporters {
                    samples.add(&[name, one.host.as_str()], flag(one.reading.counts()));
                }
                None
            }
            AgentMetric::SourceAge => {
                resource.source.as_ref().and_then(|source| source.latest).map(|(age, _)| seconds(age))
            }
            // Requests, Payload, ResponseTime: every other metric was answered above.
            _ => {
                for (op, done) in operations {
                    let value = match metric {
                        AgentMetric::Requests => SampleValue::Count(done.count),
                        AgentMetric::Payload => SampleValue::Count(done.bytes.get()),
                        _ => SampleValue::Amount(done.total_latency.as_secs_f64()),
                    };
                    samples.add(&[name, op], value);
                }
                None
            }
        };
        if let Some(value) = value {
            samples.add(&[name], value);
        }
    }
}

impl Collector for AgentExposition {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut each = AgentMetric::ALL.iter();
        each.try_for_each(|metric| encode(&mut encoder, &metric.spec(), &self.samples(*metric)))
    }
}
