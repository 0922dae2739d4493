//! The reason for the set point.

use std::fmt;

use serde::{Deserialize, Serialize};
use tidegate_units::{HostName, Iops, Latency};

/// An automatically chosen set point: what it rests on. [`Display`](fmt::Display) says it as a clause.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetPointChoice {
    /// Reason for it.
    pub reason: SetPointReason,
    /// The greatest set point that is allowed.
    pub ceiling: Latency,
    /// The part of the most that is wanted.
    pub fraction: f64,
    /// The least response time that gives it, as far as is known. `None` while nothing is.
    pub knee: Option<Latency>,
    /// The most that the resource is known to give.
    pub most: Option<Iops>,
    /// The response time at which it was seen first.
    pub most_at: Option<Latency>,
}

/// Reason for the set point.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SetPointReason {
    /// Nothing is known yet: the ceiling.
    Unknown,
    /// A target of protected consumers is a promise, and nothing to choose: the ceiling.
    Promise,
    /// The least response time that gives the wanted part of the most; the set point swings about it by a few
    /// per cent.
    Knee,
    /// The knee's response time is above the ceiling.
    Ceiling,
    /// It is below the floor.
    Floor,
    /// A step on the way to what is not known.
    Exploring(StepDirection),
    /// Another host chooses.
    Following {
        /// The host that chooses.
        host: HostName,
    },
    /// The host that all follow chooses no set point: the ceiling.
    NoChoice {
        /// The host that all follow.
        host: HostName,
    },
    /// The choice of another host stays, until this host, which leads now, knows better.
    Kept,
}

/// Direction of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepDirection {
    /// To longer response times.
    Up,
    /// To shorter ones.
    Down,
}

impl fmt::Display for SetPointChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.reason {
            SetPointReason::Unknown => return f.write_str("the ceiling, because the knee is not known yet"),
            SetPointReason::Promise => return f.write_str("the ceiling, because a promise is not chosen"),
            SetPointReason::Following { host } => return write!(f, "chosen by {host}"),
            SetPointReason::NoChoice { host } => {
                return write!(f, "the ceiling, because {host} chooses none");
            }
            SetPointReason::Kept => return f.write_str("as the host that led before chose"),
            SetPointReason::Knee => f.write_str("the knee")?,
            SetPointReason::Ceiling => f.write_str("the ceiling")?,
            SetPointReason::Floor => f.write_str("the floor")?,
            SetPointReason::Exploring(StepDirection::Up) => f.write_str("to see whether more gives more")?,
            SetPointReason::Exploring(StepDirection::Down) => f.write_str("to see whether less will do")?,
        }
        let (Some(knee), Some(most), Some(most_at)) = (self.knee, self.most, self.most_at) else {
            return Ok(());
        };
        let per_cent = self.fraction * 100.0;
        write!(f, ": {per_cent:.0} % of the most seen ({most} at {most_at}) ")?;
        match self.reason {
            SetPointReason::Exploring(StepDirection::Down) => write!(f, "is reached at {knee} or sooner"),
            _ => write!(f, "is reached at {knee}"),
        }
    }
}
