//! `GET /v1/status`: how a service's resources stand, for people who are woken at night, and for programs.
//!
//! Nothing is measured for it. What was decided is the last [`Decision`](tidegate_control::Decision), as in
//! the log; what consumers do are the counters of the metrics, at two moments ([`recent`]).

mod api;
mod laws;
mod recent;

use serde::{Deserialize, Serialize};
use tidegate_control::{BandPosition, LawKind};

pub use api::{Asked, routes};
pub use laws::{ByLaw, decided, law, seconds};
pub use recent::{Recent, Total};

/// More consumers of a resource are counted, and not told of: an agent's members are as many as log in.
pub const MOST_CONSUMERS: usize = 1_000;

/// What a service says of itself: plain numbers in the units that keys name. `null` is what is not known, or
/// does not apply; never good.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The version of this document: [`Status::VERSION`].
    pub version: u16,
    /// Which service: `serve` or `agent`.
    pub service: Service,
    /// The version of the program.
    pub program: String,
    /// Whether the machine's counters can be read. A gateway counts by itself.
    pub sees: bool,
    /// Pools of a gateway, resources of an agent, in the order of the configuration.
    pub resources: Vec<ResourceStatus>,
}

impl Status {
    /// The version that this code writes and reads.
    pub const VERSION: u16 = 1;

    /// The status of a service of this version of the program.
    #[must_use]
    pub fn new(service: Service, sees: bool, resources: Vec<ResourceStatus>) -> Self {
        let program = env!("CARGO_PKG_VERSION").to_owned();
        Self { version: Self::VERSION, service, program, sees, resources }
    }
}

/// A kind of service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Service {
    /// `tidegate serve`.
    Serve,
    /// `tidegate agent`.
    Agent,
}

impl Service {
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
    /// Whether the machine has its storage.
    pub present: bool,
    /// Whether the throttle fails, so that nobody is held, whatever was decided.
    pub throttle_fails: bool,
    /// Its law, as configured. `null`: shares and limits only.
    pub law: Option<LawStatus>,
    /// What was decided last. `null`: nothing yet.
    pub decided: Option<DecisionStatus>,
    /// What all its consumers did lately, together. `null`: not known yet.
    pub recent: Option<Did>,
    /// In the order of the configuration; of an agent, who may be held, by name. At most [`MOST_CONSUMERS`].
    pub consumers: Vec<ConsumerStatus>,
    /// How many there are beside them.
    pub consumers_left_out: usize,
}

/// What a law is to do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LawStatus {
    /// Which.
    pub kind: LawKind,
    /// What was promised.
    pub target_seconds: f64,
    /// It decides this often.
    pub interval_seconds: f64,
    /// Decides, and holds nobody.
    pub dry_run: bool,
}

/// What was decided last.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DecisionStatus {
    /// How long ago.
    pub age_seconds: f64,
    /// The decision in words, as in the log.
    pub said: String,
    /// What the signal said.
    pub input: InputStatus,
    /// The mean response time of the interval, or its percentile. `null`: nothing completed, nothing is
    /// known.
    pub measured_seconds: Option<f64>,
    /// What the law compared with the set point.
    pub estimate_seconds: Option<f64>,
    /// What it steers to.
    pub set_point_seconds: f64,
    /// How many consumers are held; on a dry run, would be.
    pub held: u32,
    /// How many may be held.
    pub throttled: u32,
    /// What all may do together. `null`: a law that has no operating point.
    pub operating_point: Option<OperatingPoint>,
    /// How many requests of those who may be held may be at the storage. `null`: no window holds.
    pub window_requests: Option<f64>,
    /// How long each request is held at most. `null`: a law that does not delay.
    pub delay_seconds: Option<f64>,
}

/// What a signal said: the names that the metrics have for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InputStatus {
    /// Requests completed.
    Samples,
    /// None completed, and one has been waiting for longer than the set point.
    Overload,
    /// None completed, some are outstanding: not known.
    Unknown,
    /// None completed, none is outstanding.
    Idle,
    /// The clock did not advance.
    NoTime,
}

/// What all may do together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum OperatingPoint {
    /// It limits nothing: nobody is held.
    HoldsNobody,
    /// It is a limit.
    Limits {
        /// In requests per second.
        iops: f64,
        /// In which band that is. `null`: no bands.
        band: Option<BandPosition>,
    },
}

/// What was done in the last seconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Did {
    /// In how many seconds.
    pub seconds: f64,
    /// Reads and writes that completed, per second.
    pub iops: f64,
    /// How long one took at the storage on average, and where a law releases requests, since its release.
    /// `null`: none completed.
    pub response_time_seconds: Option<f64>,
}

/// One consumer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ConsumerStatus {
    /// Its name.
    pub name: String,
    /// Whether it is never held.
    pub protected: bool,
    /// What it was promised: its goal, or its contract's response time. `null`: nothing of its own.
    pub goal_seconds: Option<f64>,
    /// What the law steers it to. `null`: the law does not judge it by itself.
    pub set_point_seconds: Option<f64>,
    /// What the law measured of it in its last interval. `null`: not judged by itself, or too few requests.
    pub measured_seconds: Option<f64>,
    /// It completes nothing, and its oldest request waits for so long.
    pub oldest_seconds: Option<f64>,
    /// What it did lately. `null`: not known.
    pub recent: Option<Did>,
    /// Its requests that wait or are at the storage. `null`: not known.
    pub outstanding: Option<u64>,
    /// What it is entitled to by the bands, beyond them by shares. `null`: the operating point limits
    /// nothing, or there is none.
    pub entitled_iops: Option<f64>,
    /// Its rate: with what others leave it. `null`: no rate holds it.
    pub rate_iops: Option<f64>,
    /// How long each of its requests is held. `null`: not at all.
    pub delay_seconds: Option<f64>,
    /// Whether it is held now; never on a dry run. `null`: not known of each by itself.
    pub held: Option<bool>,
    /// The storage has lost written data, and none of its flushes succeeds. A gateway says it, and an older
    /// one did not.
    #[serde(default)]
    pub poisoned: bool,
}
