//! A snapshot of the agent as text in the OpenMetrics format.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use tidegate_control::{Decision, OperationTotals};
use tidegate_host::sense::capture::WireCounters;
use tidegate_host::sense::latency::ReadsAndWrites;
use tidegate_host::sense::session::TargetKind;
use tidegate_host::throttle::WriteLimit;
use tidegate_http::HttpRefusals;
use tidegate_journal::{ConsumerReading, LimitReading, ThrottleReading};
use tidegate_regulate::{RegulatedResource, StorageLoad};
use tidegate_service::status::{ConsumerStatus, MOST_CONSUMERS, PromiseStatus, SignalOrigin};
use tidegate_units::{ByteRate, ConsumerName, Iops, Latency, ResourceName};

use crate::initiators::intake::Reporter;
use crate::nfsd_watch::NfsdStatus;
use crate::source::SourceReading;

use super::name::AgentMetric;

use tidegate_service::log::LogCounts;
use tidegate_service::metrics::{InputCounts, ReloadCounts};
use tidegate_service::metrics::{
    MetricSamples, SampleValue, band, encode, flag, http_refused, log_samples, number, seconds, to_text,
};

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
    /// The consumers that load it and are not eligible now, each with its load since it is not.
    pub protected: BTreeMap<ConsumerName, StorageLoad>,
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
            protected: BTreeMap::new(),
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
    /// The eligible consumers of each resource. At most [`MOST_CONSUMERS`] of each are exposed.
    pub consumers: BTreeMap<ResourceName, Vec<ConsumerStatus>>,
    /// The limits in force of each resource's consumers, as the kernel confirmed them. A resource that throttles
    /// nothing, such as one on a dry run, has no entry.
    pub in_force: BTreeMap<ResourceName, ThrottleReading>,
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
            AgentMetric::SetPoint => decision.map(|decision| seconds(decision.steered_to())),
            AgentMetric::SetPointCeiling => decision.and_then(Decision::set_point_ceiling).map(seconds),
            AgentMetric::Estimate => decision.and_then(Decision::compared).map(seconds),
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
            AgentMetric::ConsumerHeld
            | AgentMetric::PacketDelay
            | AgentMetric::Limit
            | AgentMetric::LimitBytes
            | AgentMetric::ConsumerLatency => {
                self.consumer_samples(metric, &resource.name, samples);
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

    /// Adds a metric of single consumers.
    fn consumer_samples<'a>(
        &'a self,
        metric: AgentMetric,
        resource: &'a ResourceName,
        samples: &mut MetricSamples<'a>,
    ) {
        for one in self.consumers.get(resource).into_iter().flatten().take(MOST_CONSUMERS) {
            let value = match metric {
                AgentMetric::ConsumerHeld => one.held.map(flag),
                AgentMetric::ConsumerLatency => one.measured_seconds.map(SampleValue::Number),
                _ => None,
            };
            if let Some(value) = value {
                samples.add(&[resource.as_str(), &one.name], value);
            }
        }
        let in_force = self.in_force.get(resource).into_iter().flat_map(|reading| &reading.consumers);
        for ConsumerReading { name, delay, reads, writes } in in_force.take(MOST_CONSUMERS) {
            let labels = [resource.as_str(), name.as_str()];
            if let Some(delay) = delay.filter(|_| metric == AgentMetric::PacketDelay) {
                samples.add(&labels, seconds(delay));
            }
            for (op, LimitReading { rate, bytes }) in [("read", reads), ("write", writes)] {
                let limit = match metric {
                    AgentMetric::Limit => rate.map(Iops::per_second),
                    AgentMetric::LimitBytes => bytes.map(ByteRate::per_second),
                    _ => None,
                };
                if let Some(limit) = limit {
                    samples.add(&[labels[0], labels[1], op], SampleValue::Number(limit));
                }
            }
        }
    }
}

impl Collector for AgentExposition {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut each = AgentMetric::ALL.iter();
        each.try_for_each(|metric| encode(&mut encoder, &metric.spec(), &self.samples(*metric)))
    }
}
