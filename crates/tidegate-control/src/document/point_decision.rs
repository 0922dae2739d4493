//! The decision on the operating point, with its reason.

use std::fmt;

use serde::{Deserialize, Serialize};
use tidegate_units::{ConsumerName, HostName, Iops, Latency, Window};

use crate::document::band_position::BandPosition;
use crate::document::model::{LearningOutcome, LinearModel, QueueModel};
use crate::document::output::OutputBound;
use crate::document::signal::SignalState;

/// Decision of the self-tuning law on all consumers together. [`Display`](fmt::Display) writes it as a
/// clause.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PointDecision {
    /// The operating point from now on: the lowest that any consumer may ask for.
    pub operating_point: Iops,
    /// u(k−1), what the models were fed: what was done in the interval that ended, or in the literal variant
    /// what was allowed.
    pub applied: Iops,
    /// In which band that is. `None` where there are no bands.
    pub position: Option<BandPosition>,
    /// Consumer that asked for the lowest operating point. `None` while no consumer of this host decides.
    pub decided_by: Option<ConsumerName>,
    /// The other host whose consumer asked for the lowest; then `decided_by` is `None`, since only that host
    /// knows who it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<HostName>,
    /// True if it asked for so much less than all others that it was followed only in part.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub doubted: bool,
    /// Every consumer's regulator, in the order of the observation.
    pub regulators: Vec<RegulatorDecision>,
    /// Allotment of every throttled consumer, in the order of the observation.
    pub allotments: Vec<PointAllotment>,
    /// Greatest number of requests of this host's throttled consumers at the storage, by the model of a
    /// queue. Allotments are then in force only if there are bands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<Window>,
}

/// Conclusion of one consumer's regulator from the interval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RegulatorDecision {
    /// Name of the consumer.
    pub name: ConsumerName,
    /// y_ref: its own goal times the set point ratio, or the loop's set point.
    pub goal: Latency,
    /// State of its own signal in this interval.
    pub input: SignalState,
    /// Measured response time that was compared with the goal. `None` with too few requests.
    pub measured: Option<Latency>,
    /// True if its response time may throttle all consumers at the present operating point.
    pub may_trigger: bool,
    /// True if it alone was allowed to conclude from too few requests.
    pub exempt: bool,
    /// Result of learning. `None` while it asks for nothing, and if the clock did not advance.
    pub learnt: Option<LearningOutcome>,
    /// The operating point that it asks for.
    pub wish: Option<Iops>,
    /// The bound that made the difference.
    pub bound: Option<OutputBound>,
    /// Its model.
    pub model: Option<LinearModel>,
    /// Its model, where it is one of a queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueModel>,
}

/// Part of the operating point of one throttled consumer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PointAllotment {
    /// Name of the consumer.
    pub name: ConsumerName,
    /// Its entitlement at this operating point.
    pub entitled: Iops,
    /// Its rate: with what others leave, and at least the floor.
    pub rate: Iops,
    /// Some of its requests waited for their release.
    pub held: bool,
}

impl RegulatorDecision {
    /// Returns a clause on how certain the model was, for the consumer that decides.
    fn why(&self) -> &'static str {
        match self.learnt {
            Some(LearningOutcome::TooFew) => ", as before for want of requests",
            Some(LearningOutcome::Rejected) => ", by the model of before",
            Some(LearningOutcome::Reset) => ", by a new model",
            Some(LearningOutcome::First) => ", by a first model",
            Some(LearningOutcome::Updated | LearningOutcome::Fixed) | None => "",
        }
    }
}

impl PointDecision {
    /// An operating point beyond any storage's ability, which throttles nothing.
    pub(crate) const UNBOUNDED: Iops = Iops::new(1e9);

    /// Returns true if the operating point limits anything. At the start, and after a long silence, it is
    /// beyond the capacity of any storage. Then no consumer is throttled, and rates and bands mean nothing.
    #[must_use]
    pub fn is_limit(&self) -> bool {
        self.operating_point < Self::UNBOUNDED
    }

    const fn doubts(&self) -> &'static str {
        if self.doubted { ", as far as the other hosts bear it out" } else { "" }
    }
}

impl fmt::Display for PointDecision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.position {
            _ if !self.is_limit() => f.write_str("operating without a limit, throttles nothing")?,
            Some(position) => write!(f, "operating at {}, {position}", self.operating_point)?,
            None => write!(f, "operating at {}", self.operating_point)?,
        }
        if let Some(window) = self.window {
            write!(f, ", a window of {window}")?;
        }
        if let Some(host) = &self.host {
            write!(f, ": as {host} asks for")?;
            return f.write_str(self.doubts());
        }
        let decided = self
            .decided_by
            .as_ref()
            .and_then(|name| self.regulators.iter().find(|regulator| &regulator.name == name));
        let Some(decided) = decided else { return f.write_str(": no consumer asks for less") };
        write!(f, ": {}", decided.name)?;
        match (decided.measured, decided.input) {
            (_, SignalState::Overload { oldest }) => {
                write!(f, " completes nothing, its oldest waits {oldest} against {}", decided.goal)?;
            }
            (Some(measured), _) => write!(f, " {measured} against {}", decided.goal)?,
            (None, _) => {}
        }
        f.write_str(decided.why())?;
        f.write_str(self.doubts())?;
        match decided.bound {
            Some(OutputBound::Least) => f.write_str(", the least that is allowed"),
            Some(OutputBound::Greatest) => f.write_str(", the most that is allowed"),
            _ => Ok(()),
        }
    }
}
