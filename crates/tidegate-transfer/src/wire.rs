//! What clients and the broker tell each other: JSON documents. Rates in bytes per second, sizes in bytes,
//! times in seconds.
//!
//! `docs/transfers.openapi.json` describes them to other programs; a test compares its routes and its fields
//! with these.

use serde::{Deserialize, Serialize};
use tidegate_placement::{Direction, Requirement};
use tidegate_units::{ByteRate, Bytes, Latency, ResourceName};

use crate::digest::Digest;
use crate::name::ObjectName;
use crate::sensed::Sensed;

/// Which way data moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Way {
    /// From a node.
    Read,
    /// To a node.
    Write,
}

impl From<Way> for Direction {
    fn from(way: Way) -> Self {
        match way {
            Way::Read => Self::Read,
            Way::Write => Self::Write,
        }
    }
}

/// What a transfer needs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Needs {
    /// A rate, of all its bytes over all its time.
    Average(f64),
    /// A rate, of any ten samples that follow each other.
    MovingAverage(f64),
    /// A rate, of every sample.
    Current(f64),
    /// So many seconds to its first byte at most.
    Latency(f64),
}

impl From<Needs> for Requirement {
    fn from(needs: Needs) -> Self {
        match needs {
            Needs::Average(rate) => Self::Average(ByteRate::new(rate)),
            Needs::MovingAverage(rate) => Self::MovingAverage(ByteRate::new(rate)),
            Needs::Current(rate) => Self::Current(ByteRate::new(rate)),
            Needs::Latency(seconds) => Self::Latency(Latency::from_secs_f64(seconds)),
        }
    }
}

/// `POST /v1/place`: somebody wants to make a transfer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wish {
    /// Which way.
    pub way: Way,
    /// The object. Without one a write is placed and nothing of it is kept; a read needs it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<ObjectName>,
    /// How much. A write needs it; of a read the catalogue knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<Bytes>,
    /// What it needs.
    pub needs: Needs,
    /// The least class of availability, of writes. Default 0.
    #[serde(default)]
    pub availability: u8,
    /// The greatest class of cost, of writes. Default: any.
    #[serde(default = "any")]
    pub cost: u8,
    /// Nodes that must not carry it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub except: Vec<ResourceName>,
    /// A further replica of an object that is there, on a node that holds none. Of writes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub replica: bool,
}

/// A text that another program says, for a terminal or a log: without the characters that control them, and
/// no longer than some lines.
#[must_use]
pub fn one_line(text: &str) -> String {
    const LONGEST: usize = 500;
    text.chars().take(LONGEST).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Whatever it costs.
#[must_use]
pub const fn any() -> u8 {
    u8::MAX
}

/// What is known of a transfer that was asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reservation {
    /// By which it is called from now on.
    pub id: String,
    /// After so many seconds without a word from whoever asked, it is over.
    pub lease_s: f64,
    /// Where it may begin; nothing while it waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub granted: Option<Granted>,
}

/// A transfer may begin.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Granted {
    /// The node.
    pub node: ResourceName,
    /// Where it is: `file://…`, `http://…`, `https://…` or `s3://…`.
    pub place: String,
    /// Under which key the object is there, or will be. Nothing for a write without a name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// What it is expected to get.
    pub expected_bps: ByteRate,
    /// How long after its request its first byte is expected, in seconds, a recall from tape included;
    /// nothing where nobody knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_first_byte_s: Option<f64>,
    /// How much there is.
    pub size: Bytes,
    /// Of a read: what it must come to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<Digest>,
}

/// `POST /v1/transfers/{id}/progress`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Moved {
    /// All that was moved since the transfer began: told twice it counts once.
    pub bytes: Bytes,
    /// How long after its request the first byte moved, in seconds, once that is known: told twice it counts
    /// once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_byte_s: Option<f64>,
}

/// `POST /v1/transfers/{id}/stored`: a write has come to its end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stored {
    /// The object.
    pub name: ObjectName,
    /// How much was written.
    pub size: Bytes,
    /// What.
    pub sha256: Digest,
}

/// `POST /v1/transfers/{id}/end`: a transfer is over, or no longer wanted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub struct End {
    /// By what happened at its node, which is given a rest.
    #[serde(default)]
    pub failed: bool,
    /// What happened, for the broker's log, which has the first [`WHY`](Self::WHY) characters of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

impl End {
    /// So many characters of a reason are told and kept: a sentence.
    pub const WHY: usize = 200;

    /// By what happened at its node. A server may say anything: a line is what is left of it.
    #[must_use]
    pub fn failed(why: &str) -> Self {
        Self { failed: true, why: Some(one_line(why).chars().take(Self::WHY).collect()) }
    }
}

/// An object in the catalogue.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Object {
    /// Its name.
    pub name: ObjectName,
    /// Its size.
    pub size: Bytes,
    /// Its checksum.
    pub sha256: Digest,
    /// Who holds it.
    pub replicas: Vec<Replica>,
}

/// Where an object is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replica {
    /// On which node.
    pub node: ResourceName,
    /// Under which key. None is used twice: what is there is never overwritten.
    pub key: String,
    /// Where the node is. Not kept: the configuration says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
}

/// `GET /v1/objects`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Objects {
    /// Some of them, in the order of their names.
    pub objects: Vec<Object>,
    /// Whether there are more: ask for those after the last.
    pub more: bool,
}

/// `GET /v1/nodes`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Nodes {
    /// By their names.
    pub nodes: Vec<Node>,
    /// How many transfers wait.
    pub waiting: usize,
}

/// A storage node now.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Node {
    /// Its name.
    pub name: ResourceName,
    /// Where it is.
    pub place: String,
    /// Its class of availability.
    pub availability: u8,
    /// Its class of cost.
    pub cost: u8,
    /// What is free on it, less what was promised; nothing where nobody knows.
    pub free: Option<Bytes>,
    /// When it is read.
    pub read: Lane,
    /// When it is written.
    pub write: Lane,
    /// What its own sensor said last; nothing before its first report.
    pub sensor: Option<NodeSensor>,
    /// Transfers that wait and may use it. One that may use several nodes is counted at each.
    #[serde(default)]
    pub waiting: usize,
}

/// What an agent on a node's own machine says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodeSensor {
    /// How old that is, in seconds.
    pub age_s: f64,
    /// Whether it counts. Of a sensor that is silent for longer than three of its intervals nothing is known.
    pub recent: bool,
    /// Its last report.
    pub report: Sensed,
}

/// `POST /v1/nodes/{name}/peak`: somebody tried what a node moves.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Probed {
    /// What could be read from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_bps: Option<f64>,
    /// What could be written to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_bps: Option<f64>,
}

/// What a node's peaks are after a probe.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Peaks {
    /// When it is read.
    pub read: PeakNow,
    /// When it is written.
    pub write: PeakNow,
}

/// A peak.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct PeakNow {
    /// What it is.
    pub bps: ByteRate,
    /// Whether the configuration says so, and no probe changes it.
    pub pinned: bool,
}

/// One direction of a node.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Lane {
    /// The most that it moves.
    pub peak_bps: ByteRate,
    /// What its transfers moved in the last sample; nothing before the first.
    pub current_bps: Option<ByteRate>,
    /// The mean of the last ten.
    pub moving_average_bps: Option<ByteRate>,
    /// What the next transfer has to expect from its request to its first byte; nothing where nobody knows.
    pub latency_s: Option<f64>,
    /// Transfers under way.
    pub active: u32,
    /// What is reserved for them, less what was lent.
    pub reserved_bps: ByteRate,
    /// What of their reservations they do not use, and others may have. By `sm-r1` alone that lets in more.
    #[serde(default)]
    pub lent_bps: ByteRate,
}

/// The code of a problem that may be over in a moment: the catalogue's server is away.
pub const AWAY: &str = "catalogue-away";

/// What went wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// In words.
    pub error: String,
    /// For programs: `unknown-node`, `duplicate`, …
    pub code: String,
}
