//! What was decided of the operating point, and why.

use std::fmt;

use serde::{Deserialize, Serialize};
use tidegate_units::{ConsumerName, HostName, Iops, Latency, Window};

use crate::document::band_position::BandPosition;
use crate::document::model::{Learnt, Model, QueueModel};
use crate::document::output::Bound;
use crate::document::signal::Input;

/// What the self-tuning law decided of all consumers together. [`Display`](fmt::Display) says it as a clause.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PointDecision {
    /// The operating point from now on: the lowest that anybody asks for who may.
    pub operating_point: Iops,
    /// u(k−1), what the models were fed: what was done in the interval that ended, or in the literal variant
    /// what was allowed.
    pub applied: Iops,
    /// In which band that is. `None` where there are no bands.
    pub position: Option<BandPosition>,
    /// Who asked for the lowest. `None` while nobody asks for anything.
    pub decided_by: Option<ConsumerName>,
    /// The other host whose consumer asked for the lowest; then `decided_by` is `None`, since only that host
    /// knows who it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<HostName>,
    /// Whether it asked for so much less than all others that it was not followed all the way.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub doubted: bool,
    /// Every consumer's regulator, in the order of the observation.
    pub regulators: Vec<RegulatorDecision>,
    /// What every throttled consumer has of it, in the order of the observation.
    pub allotments: Vec<Allotment>,
    /// How many requests of this host's throttled consumers may be at the storage, by the model of a queue.
    /// Allotments are then in force only where there are bands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<Window>,
}

/// What one consumer's regulator made of the interval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RegulatorDecision {
    /// Whose.
    pub name: ConsumerName,
    /// y_ref: its own goal times the set point ratio, or the loop's set point.
    pub goal: Latency,
    /// What its own requests said.
    pub input: Input,
    /// What was compared with the goal. `None` with too few requests.
    pub measured: Option<Latency>,
    /// Whether its response time may hold everybody back where the system operates.
    pub may_trigger: bool,
    /// Whether it was the one that may conclude something from too few requests.
    pub exempt: bool,
    /// What was learnt. `None` while it asks for nothing, and when the clock did not advance.
    pub learnt: Option<Learnt>,
    /// The operating point that it asks for.
    pub wish: Option<Iops>,
    /// The bound that made the difference.
    pub bound: Option<Bound>,
    /// Its model.
    pub model: Option<Model>,
    /// Its model, where it is one of a queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueModel>,
}

/// What one throttled consumer has of the operating point.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Allotment {
    /// Who.
    pub name: ConsumerName,
    /// What it is entitled to at this operating point.
    pub entitled: Iops,
    /// Its rate: with what others leave, and at least the floor.
    pub rate: Iops,
    /// Some of its requests waited for their release.
    pub held: bool,
}

impl RegulatorDecision {
    /// How sure it was: said of who decides.
    fn why(&self) -> &'static str {
        match self.learnt {
            Some(Learnt::TooFew) => ", as before for want of requests",
            Some(Learnt::Rejected) => ", by the model of before",
            Some(Learnt::Reset) => ", by a new model",
            Some(Learnt::First) => ", by a first model",
            Some(Learnt::Updated | Learnt::Fixed) | None => "",
        }
    }
}

impl PointDecision {
    /// An operating point beyond what any storage does, which holds nobody.
    pub(crate) const UNBOUNDED: Iops = Iops::new(1e9);

    /// Whether the operating point limits anything. At the start, and after a long silence, it is beyond
    /// whatever a storage does: then nobody is held, and neither a rate nor a band says anything.
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
            _ if !self.is_limit() => f.write_str("operating without a limit, holds nobody")?,
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
        let Some(decided) = decided else { return f.write_str(": nobody asks for less") };
        write!(f, ": {}", decided.name)?;
        match (decided.measured, decided.input) {
            (_, Input::Overload { oldest }) => {
                write!(f, " completes nothing, its oldest waits {oldest} against {}", decided.goal)?;
            }
            (Some(measured), _) => write!(f, " {measured} against {}", decided.goal)?,
            (None, _) => {}
        }
        f.write_str(decided.why())?;
        f.write_str(self.doubts())?;
        match decided.bound {
            Some(Bound::Least) => f.write_str(", the least that is allowed"),
            Some(Bound::Greatest) => f.write_str(", the most that is allowed"),
            _ => Ok(()),
        }
    }
}
