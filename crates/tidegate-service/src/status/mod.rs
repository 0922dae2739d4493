//! `GET /v1/status`: the state of a service's resources, for people woken at night, and for programs.
//!
//! Nothing is measured for it. What was decided is the last [`Decision`](tidegate_control::Decision), as in
//! the log; what consumers do are the counters of the metrics, at two moments (`recent`).

mod api;
mod cluster;
mod errors;
mod laws;
mod promise;
mod recent;
mod reports;

use serde::{Deserialize, Serialize};
use tidegate_control::{BandPosition, LawKind, WaitReason};

use crate::overrides::OverridesDocument;

pub(crate) use api::current_status;
pub use api::{StatusRequest, routes};
pub use cluster::{ClusterStatus, MemberStatus};
pub use errors::{ErrorCount, ErrorsStatus};
pub use laws::{ByLaw, decided, law, seconds};
pub use promise::{
    JudgedBy, Judgement, KEPT, PromiseCounters, PromiseCounts, PromiseReading, PromiseRecord, PromiseStatus,
};
pub use recent::{ConsumerTotal, RecentCounters};
pub use reports::{ReporterStatus, SignalOrigin, SourceStatus};

/// More consumers of a resource are counted, and not told of: an agent's members are as many as log in.
pub const MOST_CONSUMERS: usize = 1_000;

/// The state of a service: plain numbers in the units that keys name. `null` means unknown, or not
/// applicable; it never means good.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ServiceStatus {
    /// The version of this document: [`ServiceStatus::VERSION`].
    pub version: u16,
    /// The kind of service: `serve` or `agent`.
    pub service: ServiceKind,
    /// The version of the program.
    pub program: String,
    /// True if the machine's counters can be read. A gateway counts by itself.
    pub sees: bool,
    /// The exchange with other hosts. `null`: none is configured.
    #[serde(default)]
    pub cluster: Option<ClusterStatus>,
    /// Pools of a gateway, resources of an agent, in the order of the configuration.
    pub resources: Vec<ResourceStatus>,
    /// The settings that operators changed since the start, and releases.
    #[serde(default)]
    pub overrides: OverridesDocument,
}

impl ServiceStatus {
    /// The version that this code writes and reads.
    pub const VERSION: u16 = 1;

    /// The status of a service of this version of the program.
    #[must_use]
    pub fn new(service: ServiceKind, sees: bool, resources: Vec<ResourceStatus>) -> Self {
        let program = env!("CARGO_PKG_VERSION").to_owned();
        let overrides = OverridesDocument::default();
        Self { version: Self::VERSION, service, program, sees, cluster: None, resources, overrides }
    }

    /// The same, where consumers of other resources than this one are counted as left out.
    #[must_use]
    pub fn with_consumers_of(&self, resource: &str) -> Self {
        let of =
            |one: &ResourceStatus| if one.name == resource { one.clone() } else { one.without_consumers() };
        Self {
            version: self.version,
            service: self.service,
            program: self.program.clone(),
            sees: self.sees,
            cluster: self.cluster.clone(),
            resources: self.resources.iter().map(of).collect(),
            overrides: self.overrides.clone(),
        }
    }
}

/// A kind of service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServiceKind {
    /// `tidegate serve`.
    Serve,
    /// `tidegate agent`.
    Agent,
}

impl ServiceKind {
    /// The command that runs it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Serve => "serve",
            Self::Agent => "agent",
        }
    }
}

/// One pool or resource.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResourceStatus {
    /// Its name.
    pub name: String,
    /// True if the machine has its storage.
    pub present: bool,
    /// Requests of all its consumers that were answered with an error. `null`: none, or the service does not
    /// see answers.
    #[serde(default)]
    pub errors: Option<ErrorsStatus>,
    /// Devices of it whose requests the kernel does not count, each with the remedy. Load and latency are unknown
    /// while there are any, and no consumer is throttled.
    #[serde(default)]
    pub uncounted: Vec<String>,
    /// True if the throttle fails, so that no consumer is throttled, whatever was decided.
    pub throttle_fails: bool,
    /// Its law, as configured. `null`: shares and limits only.
    pub law: Option<LawStatus>,
    /// An agent's promise that the reads take no longer than the target, and how much of it was kept. `null`:
    /// it is judged of each consumer, or not at all.
    #[serde(default)]
    pub promise: Option<PromiseStatus>,
    /// The last decision. `null`: nothing yet.
    pub decided: Option<DecisionStatus>,
    /// The recent load of all its consumers together. `null`: not known yet.
    pub recent: Option<LoadFigures>,
    /// The numbers of consumers whose promise was kept, and not kept, in the last minute.
    #[serde(default)]
    pub promises: PromiseCounts,
    /// In the order of the configuration; an agent's are the eligible consumers by name, then those that are
    /// protected, as long as they are not eligible. At most [`MOST_CONSUMERS`].
    pub consumers: Vec<ConsumerStatus>,
    /// The number of consumers beside them.
    pub consumers_left_out: usize,
    /// The initiators that report to an agent what they wait for. At most [`MOST_CONSUMERS`].
    #[serde(default)]
    pub reporters: Vec<ReporterStatus>,
    /// The place where the latency that an agent steers is published. `null`: the agent measures it.
    #[serde(default)]
    pub source: Option<SourceStatus>,
    /// The origin of the latency that an agent's law steers by. `null`: nothing was decided yet, or a gateway
    /// measures it.
    #[serde(default)]
    pub signal_origin: Option<SignalOrigin>,
}

impl ResourceStatus {
    fn without_consumers(&self) -> Self {
        Self {
            name: self.name.clone(),
            present: self.present,
            errors: self.errors.clone(),
            uncounted: self.uncounted.clone(),
            throttle_fails: self.throttle_fails,
            law: self.law.clone(),
            promise: self.promise,
            decided: self.decided.clone(),
            recent: self.recent,
            promises: self.promises,
            consumers: Vec::new(),
            consumers_left_out: self.consumers_left_out.saturating_add(self.consumers.len()),
            reporters: self.reporters.clone(),
            source: self.source.clone(),
            signal_origin: self.signal_origin,
        }
    }
}

/// The task of a law.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LawStatus {
    /// Its kind.
    pub kind: LawKind,
    /// The latency promised.
    pub target_seconds: f64,
    /// It decides this often.
    pub interval_seconds: f64,
    /// Decides, and throttles nothing.
    pub dry_run: bool,
    /// True if that is because an operator released all consumers.
    #[serde(default)]
    pub released: bool,
}

/// The last decision of a law.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DecisionStatus {
    /// Its age.
    pub age_seconds: f64,
    /// The decision in words, as in the log.
    pub said: String,
    /// The reading of the signal.
    pub input: InputStatus,
    /// The mean response time of the interval, or its percentile. `null`: nothing completed, nothing is
    /// known.
    pub measured_seconds: Option<f64>,
    /// The response time that the law compared with the set point: the smoothed signal, or under `auto` that of
    /// the signal's worst consumer.
    pub estimate_seconds: Option<f64>,
    /// The response time that it steers to now, also where the law finds it.
    pub set_point_seconds: f64,
    /// The number of throttled consumers; on a dry run, of those that would be throttled.
    pub held: u32,
    /// The number of eligible consumers.
    pub throttled: u32,
    /// The rate of all consumers together. `null`: a law that has no operating point.
    pub operating_point: Option<OperatingPoint>,
    /// The number of requests of eligible consumers that may be at the storage. `null`: no window throttles.
    pub window_requests: Option<f64>,
    /// The greatest delay of each request. `null`: a law that does not delay.
    pub delay_seconds: Option<f64>,
}

/// The reading of a signal, by the names that the metrics have for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InputStatus {
    /// Requests completed.
    Samples,
    /// None completed, and one has been waiting for longer than the set point, or than its ceiling.
    Overload,
    /// None completed, some are outstanding: not known.
    Unknown,
    /// None completed, none is outstanding.
    Idle,
    /// The clock did not advance.
    NoTime,
}

/// The rate of all consumers together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum OperatingPoint {
    /// It limits nothing: no consumer is throttled.
    HoldsNobody,
    /// It is a limit.
    Limits {
        /// In requests per second.
        iops: f64,
        /// In which band that is. `null`: no bands.
        band: Option<BandPosition>,
    },
}

/// The load in the last seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct LoadFigures {
    /// In how many seconds.
    pub seconds: f64,
    /// Reads and writes that completed, per second.
    pub iops: f64,
    /// The mean time of a request at the storage, and where a law releases requests, since its release.
    /// `null`: none completed.
    pub response_time_seconds: Option<f64>,
    /// The mean time of a request as its client waits for it, less the network: with the wait in Tidegate.
    /// `null`: none completed, or the service does not see requests.
    #[serde(default)]
    pub client_seconds: Option<f64>,
    /// Bytes read per second. Older services did not say it, nor the next one.
    #[serde(default)]
    pub read_bytes_per_second: f64,
    /// Bytes written per second, zeroed ones included.
    #[serde(default)]
    pub written_bytes_per_second: f64,
    /// Flushes that completed, per second. Zero where the service does not see them. Older services did not
    /// say it, nor the next one.
    #[serde(default)]
    pub flushes_per_second: f64,
    /// The mean time of a flush at the storage. `null`: none completed.
    #[serde(default)]
    pub flush_seconds: Option<f64>,
}

/// One consumer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ConsumerStatus {
    /// Its name. That of a cgroup is its path.
    pub name: String,
    /// The name by which the configuration selects it, such as `pod:shop/db-0`. `null`: by `name`.
    #[serde(default)]
    pub selected_as: Option<String>,
    /// True if it is never throttled.
    pub protected: bool,
    /// Its promised response time: its goal, or that of its contract. `null`: nothing of its own.
    pub goal_seconds: Option<f64>,
    /// The response time that the law steers it to. `null`: the law does not judge it by itself.
    pub set_point_seconds: Option<f64>,
    /// Its response time, as the law measured it in its last interval. `null`: not judged by itself, or too
    /// few requests.
    pub measured_seconds: Option<f64>,
    /// It completes nothing, and its oldest request waits for so long.
    pub oldest_seconds: Option<f64>,
    /// Its recent load. `null`: not known.
    pub recent: Option<LoadFigures>,
    /// Its requests that wait or are at the storage. `null`: not known.
    pub outstanding: Option<u64>,
    /// Its entitlement by the bands, beyond them by shares. `null`: the operating point limits nothing, or
    /// there is none.
    pub entitled_iops: Option<f64>,
    /// Its rate: with what others leave it. `null`: no rate holds it.
    pub rate_iops: Option<f64>,
    /// The delay of each of its requests. `null`: not delayed.
    pub delay_seconds: Option<f64>,
    /// True if it is throttled now; never on a dry run. `null`: not known of each consumer by itself.
    pub held: Option<bool>,
    /// True if an operator has released it: neither a law nor its limit throttles it.
    #[serde(default)]
    pub released: bool,
    /// The reason for which its requests wait: `law`, `limit`, `share` or `depth`. `null`: none waits, or not
    /// known.
    #[serde(default)]
    pub waits_for: Option<WaitReason>,
    /// Its promise, and how much of it was kept. `null`: it was promised nothing.
    #[serde(default)]
    pub promise: Option<PromiseStatus>,
    /// Its requests that were answered with an error. `null`: none, or the service does not see answers.
    #[serde(default)]
    pub errors: Option<ErrorsStatus>,
    /// The storage has lost written data, and none of its flushes succeeds. A gateway says it, and an older
    /// one did not.
    #[serde(default)]
    pub poisoned: bool,
    /// True while its path leads to another volume than the one that a gateway serves, or to none: what clients write
    /// is not there after a restart.
    #[serde(default)]
    pub replaced: bool,
    /// True if a reload removed it, and sessions still use it. An agent's consumers never are.
    #[serde(default)]
    pub removed: bool,
}

impl ConsumerStatus {
    /// Returns the name for people: that which the configuration has for it.
    #[must_use]
    pub fn shown_name(&self) -> &str {
        self.selected_as.as_deref().unwrap_or(&self.name)
    }

    /// Returns true if a text is one of its names.
    #[must_use]
    pub fn is_called(&self, text: &str) -> bool {
        self.name == text || self.selected_as.as_deref() == Some(text)
    }
}
