//! The JSON documents between clients and the broker. Rates are in bytes per second, sizes in bytes, times in
//! seconds.
//!
//! `docs/transfers.openapi.json` describes them to other programs; a test compares its routes and its fields
//! with these.

use serde::{Deserialize, Serialize};
use tidegate_placement::{TransferDirection, TransferRequirement};
use tidegate_units::{ByteRate, Bytes, Latency, ResourceName};

use crate::digest::Digest;
use crate::name::ObjectName;
use crate::sensor_reports::SensorReport;

/// The direction in which data moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DataDirection {
    /// From a node.
    Read,
    /// To a node.
    Write,
}

impl From<DataDirection> for TransferDirection {
    fn from(way: DataDirection) -> Self {
        match way {
            DataDirection::Read => Self::Read,
            DataDirection::Write => Self::Write,
        }
    }
}

/// The service that a transfer needs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum ServiceNeeds {
    /// A rate, of all its bytes over all its time.
    Average(f64),
    /// A rate, of any ten samples that follow each other.
    MovingAverage(f64),
    /// A rate, of every sample.
    Current(f64),
    /// The greatest number of seconds to its first byte.
    Latency(f64),
}

impl From<ServiceNeeds> for TransferRequirement {
    fn from(needs: ServiceNeeds) -> Self {
        match needs {
            ServiceNeeds::Average(rate) => Self::Average(ByteRate::new(rate)),
            ServiceNeeds::MovingAverage(rate) => Self::MovingAverage(ByteRate::new(rate)),
            ServiceNeeds::Current(rate) => Self::Current(ByteRate::new(rate)),
            ServiceNeeds::Latency(seconds) => Self::Latency(Latency::from_secs_f64(seconds)),
        }
    }
}

/// `POST /v1/place`: asks for a new transfer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TransferQuestion {
    /// The direction.
    pub way: DataDirection,
    /// The object. Without one a write is placed and nothing of it is kept; a read needs it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<ObjectName>,
    /// The size. A write needs it; for a read it comes from the catalogue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<Bytes>,
    /// The service that it needs.
    pub needs: ServiceNeeds,
    /// The least class of availability, for writes. Default 0.
    #[serde(default)]
    pub availability: u8,
    /// The greatest class of cost, for writes. Default: any.
    #[serde(default = "any")]
    pub cost: u8,
    /// Nodes that must not carry it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub except: Vec<ResourceName>,
    /// True to write a further replica of an object, on a node that holds none. For writes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub replica: bool,
}

/// Returns a text of another program for a terminal or a log: without control characters, and no longer than
/// some lines.
#[must_use]
pub fn one_line(text: &str) -> String {
    const LONGEST: usize = 500;
    text.chars().take(LONGEST).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// The class of cost that allows every node.
#[must_use]
pub const fn any() -> u8 {
    u8::MAX
}

/// The state of a transfer that was asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TransferReservation {
    /// The id that names it from now on.
    pub id: String,
    /// The number of seconds without a word from the client after which it is over.
    pub lease_s: f64,
    /// The place where it may begin; nothing while it waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub granted: Option<TransferPermit>,
}

/// The permission to begin a transfer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TransferPermit {
    /// The node.
    pub node: ResourceName,
    /// The place of the node: `file://…`, `http://…`, `https://…` or `s3://…`.
    pub place: String,
    /// The key under which the object is there, or will be. Nothing for a write without a name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The rate that it is expected to get.
    pub expected_bps: ByteRate,
    /// The expected time from its request to its first byte, in seconds, a recall from tape included; nothing
    /// if it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_first_byte_s: Option<f64>,
    /// The size.
    pub size: Bytes,
    /// The checksum that a read must have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<Digest>,
}

/// `POST /v1/transfers/{id}/progress`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProgressReport {
    /// All bytes that were moved since the transfer began: repeated, they count once.
    pub bytes: Bytes,
    /// The time from its request to its first byte, in seconds, once it is known: repeated, it counts once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_byte_s: Option<f64>,
}

/// `POST /v1/transfers/{id}/stored`: a write has come to its end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoredReport {
    /// The object.
    pub name: ObjectName,
    /// The size that was written.
    pub size: Bytes,
    /// The checksum of the data.
    pub sha256: Digest,
}

/// `POST /v1/transfers/{id}/end`: a transfer is over, or no longer wanted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub struct TransferEnd {
    /// True if it failed because of its node, which is given a rest.
    #[serde(default)]
    pub failed: bool,
    /// The reason, for the broker's log, which has the first [`WHY`](Self::WHY) characters of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

impl TransferEnd {
    /// The greatest number of characters of a reason that are told and kept: a sentence.
    pub const WHY: usize = 200;

    /// Makes the end of a transfer that failed because of its node. A server may say anything: its text
    /// becomes one line.
    #[must_use]
    pub fn failed(why: &str) -> Self {
        Self { failed: true, why: Some(one_line(why).chars().take(Self::WHY).collect()) }
    }
}

/// An object in the catalogue.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CatalogueObject {
    /// Its name.
    pub name: ObjectName,
    /// Its size.
    pub size: Bytes,
    /// Its checksum.
    pub sha256: Digest,
    /// The nodes that hold it.
    pub replicas: Vec<ObjectReplica>,
}

/// The place of an object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectReplica {
    /// The node.
    pub node: ResourceName,
    /// The key. None is used twice: data under a key is never overwritten.
    pub key: String,
    /// The place of the node. Not kept: the configuration has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
}

/// `GET /v1/objects`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ObjectList {
    /// Some of them, in the order of their names.
    pub objects: Vec<CatalogueObject>,
    /// True if there are more: ask for those after the last.
    pub more: bool,
}

/// `GET /v1/nodes`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodeList {
    /// The nodes, in the order of their names.
    pub nodes: Vec<NodeState>,
    /// The number of transfers that wait.
    pub waiting: usize,
}

/// The present state of a storage node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodeState {
    /// Its name.
    pub name: ResourceName,
    /// The place of the node.
    pub place: String,
    /// Its class of availability.
    pub availability: u8,
    /// Its class of cost.
    pub cost: u8,
    /// The free space on it, less what was promised; nothing if it is not known.
    pub free: Option<Bytes>,
    /// The state of its reads.
    pub read: NodeDirection,
    /// The state of its writes.
    pub write: NodeDirection,
    /// The last report of its own sensor; nothing before the first.
    pub sensor: Option<NodeSensor>,
    /// Transfers that wait and may use it. One that may use several nodes is counted at each.
    #[serde(default)]
    pub waiting: usize,
}

/// `GET /v1/transfers`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TransferList {
    /// Transfers that wait or are under way, in no order. Their ids are not told: with its id, a client may
    /// end a transfer.
    pub transfers: Vec<TransferState>,
    /// The number of all of them, also of those that this answer leaves out.
    pub all: usize,
}

/// The present state of a transfer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TransferState {
    /// The direction of its data.
    pub way: DataDirection,
    /// The object, if it is one of the catalogue.
    pub name: Option<ObjectName>,
    /// The size in bytes.
    pub size: Bytes,
    /// The bytes that its client has reported.
    pub moved: Bytes,
    /// True if it makes a replica.
    pub replica: bool,
    /// The node that carries it. Nothing while it waits.
    pub node: Option<ResourceName>,
    /// The rate that was expected when it was granted.
    pub expected_bps: Option<ByteRate>,
    /// Seconds since its client was last heard.
    pub heard_s: f64,
}

/// The report of an agent on a node's own machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodeSensor {
    /// The age of the report, in seconds.
    pub age_s: f64,
    /// True if the report counts. Nothing is known from a sensor that is silent for longer than three of its
    /// intervals.
    pub recent: bool,
    /// Its last report.
    pub report: SensorReport,
}

/// `POST /v1/nodes/{name}/peak`: reports the rates that a probe measured on a node.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PeakReport {
    /// The rate at which it could be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_bps: Option<f64>,
    /// The rate at which it could be written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_bps: Option<f64>,
}

/// The peaks of a node after a probe.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct NodePeaks {
    /// The peak of reads.
    pub read: PeakNow,
    /// The peak of writes.
    pub write: PeakNow,
}

/// A peak.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct PeakNow {
    /// The rate.
    pub bps: ByteRate,
    /// True if the configuration sets it, and no probe changes it.
    pub pinned: bool,
}

/// One direction of a node.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct NodeDirection {
    /// The most that it moves.
    pub peak_bps: ByteRate,
    /// The rate of its transfers in the last sample; nothing before the first.
    pub current_bps: Option<ByteRate>,
    /// The mean of the last ten.
    pub moving_average_bps: Option<ByteRate>,
    /// The time that the next transfer has to expect from its request to its first byte; nothing if it is not
    /// known.
    pub latency_s: Option<f64>,
    /// Transfers under way.
    pub active: u32,
    /// The rate that is reserved for them, less the rate that was lent.
    pub reserved_bps: ByteRate,
    /// The part of their reservations that they do not use, and others may have. Only under `sm-r1` does it
    /// let more in.
    #[serde(default)]
    pub lent_bps: ByteRate,
}

/// The code of a problem that may be over in a moment: the catalogue's server is away.
pub const AWAY: &str = "catalogue-away";

/// An error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiProblem {
    /// The error in words.
    pub error: String,
    /// The code for programs: `unknown-node`, `duplicate`, …
    pub code: String,
}
