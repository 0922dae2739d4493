//! Why a scenario cannot be simulated.

use thiserror::Error;
use tidegate_control::LoopConfigError;
use tidegate_units::{Bytes, ConsumerName, HostName, ResourceName};

/// Why a scenario cannot be simulated.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum ScenarioError {
    /// It was given up before its end.
    #[error("the simulation was stopped")]
    Stopped,
    /// There is nothing to simulate.
    #[error("the scenario has no {0}")]
    Nothing(&'static str),
    /// A time that must be more than nothing, or not beyond the duration.
    #[error("the scenario's {0} must be {1}")]
    Time(&'static str, &'static str),
    /// Two things of a kind have one name.
    #[error("two {kind} are called `{name}`")]
    Duplicate {
        /// What they are.
        kind: &'static str,
        /// What they are called.
        name: String,
    },
    /// Something refers to what does not exist.
    #[error("{who} refers to the {kind} `{name}`, which does not exist")]
    Unknown {
        /// Who refers.
        who: String,
        /// To what kind of thing.
        kind: &'static str,
        /// By which name.
        name: String,
    },
    /// More of a kind than can be simulated.
    #[error("at most {most} {kind}, these are {given}")]
    TooMany {
        /// What there is too many of.
        kind: &'static str,
        /// How many there may be.
        most: usize,
        /// How many there are.
        given: usize,
    },
    /// An array's model means nothing with these parameters.
    #[error("array `{array}`: {reason}")]
    Device {
        /// The array.
        array: ResourceName,
        /// Why.
        reason: String,
    },
    /// A host's law means nothing with these parameters.
    #[error("host `{host}`: {reason}")]
    Law {
        /// The host.
        host: HostName,
        /// Why.
        reason: LoopConfigError,
    },
    /// A host could never issue anything.
    #[error("host `{0}`: the depth must be 1 to {1}")]
    Depth(HostName, u32),
    /// A virtual disk does not lie on its array.
    #[error("{what} ends at {end} on array `{array}`, which has {capacity}")]
    DoesNotFit {
        /// The disk.
        what: String,
        /// The virtual machine whose it is, unless it is shared.
        vm: Option<ConsumerName>,
        /// The array.
        array: ResourceName,
        /// Where the disk would end.
        end: Bytes,
        /// The array's size.
        capacity: Bytes,
    },
    /// A workload could not do what it says.
    #[error("workload `{workload}` of `{vm}`: {reason}")]
    Workload {
        /// Whose.
        vm: ConsumerName,
        /// Which.
        workload: String,
        /// Why.
        reason: String,
    },
    /// Response times of an array that never answers were asked for.
    #[error("array `{array}` completes nothing")]
    Stalled {
        /// The array.
        array: ResourceName,
    },
    /// An array holds only so many requests at once.
    #[error("array `{array}` holds at most {most} requests at once, and would be given more")]
    Overrun {
        /// The array.
        array: ResourceName,
        /// How many it holds.
        most: usize,
    },
}
