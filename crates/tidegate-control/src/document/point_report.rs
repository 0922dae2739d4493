//! The part of a host's report that the self-tuning law adds.

use serde::{Deserialize, Serialize};
use tidegate_units::{ConsumerName, HostName, Iops, Latency, Shares};

/// A host tells of at most so many consumers by their names. Beyond that their parts of the bands seem unused
/// to the others.
pub const MOST_CLAIMS: usize = 16;

/// What one host's self-tuning law tells the others about a resource.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PointReport {
    /// What its consumers that may be held did per second.
    pub done: Iops,
    /// How many requests of theirs were at the storage on average. `None` of a law that does not go by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outstanding: Option<f64>,
    /// The lowest operating point that one of its consumers asks for who may.
    pub wish: Option<PointWish>,
    /// Whether somebody who may by the bands, or is protected, does anything there: otherwise everybody there
    /// may, and counts only where no host has such a one.
    pub has_say: bool,
    /// Whether somebody there who may has enough requests for a decision.
    pub enough: bool,
    /// Whether somebody who may be held does anything there.
    pub active: bool,
    /// Its consumers that have a part of the bands, at most [`MOST_CLAIMS`].
    pub claims: Vec<PointClaim>,
    /// All its others that may be held, together: without those in `content`.
    pub rest: Option<PointRest>,
    /// Those of its others that would not use more, where `rest` uses whatever it gets: what these leave is
    /// not what those have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<PointRest>,
}

/// What a host's consumer asks for.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PointWish {
    /// How much all may do together.
    pub operating_point: Iops,
    /// So that it keeps this response time.
    pub goal: Latency,
    /// What makes a window of it, by the model of a queue. `None` of another law: as many requests as it has
    /// at the goal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<PointTurn>,
}

impl PointWish {
    /// How many requests at the storage that is.
    pub(crate) fn outstanding(&self) -> f64 {
        self.operating_point.per_second() * self.turn().takes.max(Latency::from_nanos(1)).as_secs_f64()
    }

    pub(crate) fn turn(&self) -> PointTurn {
        self.turn.unwrap_or(PointTurn { takes: self.goal, room: 1.0 })
    }
}

/// What makes a window of an operating point.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PointTurn {
    /// How long requests of those who are held take when the goal is kept.
    pub takes: Latency,
    /// How much more than the operating point rates leave room for, as a factor: at least 1.
    pub room: f64,
}

/// A consumer with a part of the bands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PointClaim {
    /// Who.
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

/// What a host that was heard in time says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PeerPoint {
    /// Which host.
    pub host: HostName,
    /// What it says.
    pub point: PointReport,
}
