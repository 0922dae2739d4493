//! The part of a host's report that the self-tuning law adds.

use serde::{Deserialize, Serialize};
use tidegate_units::{ConsumerName, HostName, Iops, Latency, Shares};

/// A host tells of at most so many consumers by their names. Beyond that their parts of the bands seem unused
/// to the others.
pub const MOST_CLAIMS: usize = 16;

/// Report of one host's self-tuning law to the others about a resource.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PointReport {
    /// Throughput of its eligible consumers.
    pub done: Iops,
    /// Mean number of their requests at the storage. `None` for a law that does not use it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outstanding: Option<f64>,
    /// The lowest operating point that one of its consumers asks for who may.
    pub wish: Option<PointWish>,
    /// True if an active consumer there has a say: by the bands, or because it is protected. Otherwise every
    /// consumer there has one, which counts only if no host has a consumer with a say.
    pub has_say: bool,
    /// True if a consumer with a say there has enough requests for a decision.
    pub enough: bool,
    /// True if an eligible consumer there is active.
    pub active: bool,
    /// Its consumers that have a part of the bands, at most [`MOST_CLAIMS`].
    pub claims: Vec<PointClaim>,
    /// All its other eligible consumers together: without those in `content`.
    pub rest: Option<PointRest>,
    /// Those of its others that would not use more, where `rest` uses whatever it gets: what these leave is
    /// not what those have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<PointRest>,
}

/// Wish of a host's consumer.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PointWish {
    /// Throughput that all consumers together may have.
    pub operating_point: Iops,
    /// So that it keeps this response time.
    pub goal: Latency,
    /// Factors that turn it into a window, by the model of a queue. `None` for another law: the window is
    /// then the number of requests at the goal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<PointTurn>,
}

impl PointWish {
    /// Returns the number of requests at the storage at this operating point.
    pub(crate) fn outstanding(&self) -> f64 {
        self.operating_point.per_second() * self.turn().takes.max(Latency::from_nanos(1)).as_secs_f64()
    }

    pub(crate) fn turn(&self) -> PointTurn {
        self.turn.unwrap_or(PointTurn { takes: self.goal, room: 1.0 })
    }
}

/// Factors that turn an operating point into a window.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PointTurn {
    /// Response time of eligible consumers' requests when the goal is kept.
    pub takes: Latency,
    /// Room that rates leave above the operating point, as a factor: at least 1.
    pub room: f64,
}

/// A consumer with a part of the bands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PointClaim {
    /// Name of the consumer.
    pub name: ConsumerName,
    /// Its part beyond the last band, relative to the others.
    pub shares: Shares,
    /// It would not use more. `None`: it uses whatever it gets.
    pub most: Option<Iops>,
}

/// Consumers without a part of the bands, together.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PointRest {
    /// The sum of their shares.
    pub shares: f64,
    /// They would not use more. `None`: each of them uses whatever it gets.
    pub most: Option<Iops>,
}

impl PointRest {
    /// Both together, where they are of one kind: who would not use more, or who uses whatever it gets.
    pub(crate) fn and(self, other: Self) -> Self {
        let most = self.most.zip(other.most);
        Self {
            shares: self.shares + other.shares,
            most: most.map(|(one, other)| Iops::new(one.per_second() + other.per_second())),
        }
    }
}

/// Report of a host that arrived in time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PeerPoint {
    /// Name of the host.
    pub host: HostName,
    /// The report itself.
    pub point: PointReport,
}
