//! Reasons why a scenario cannot be simulated.

use thiserror::Error;
use tidegate_control::LoopConfigError;
use tidegate_units::{Bytes, ConsumerName, HostName, Latency, ResourceName};

/// The reason why a scenario cannot be simulated.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum ScenarioError {
    /// The simulation was stopped before its end.
    #[error("the simulation was stopped")]
    Stopped,
    /// More happens in a second of simulated time than can be simulated.
    #[error(
        "after {at} the scenario makes more than {most} events within a second, and would hardly end: write lower \
            rates (`rate`), longer times (`think`, `interval`, `on` and `off` of a `cycle`) or slower arrays"
    )]
    TooFast {
        /// The simulated time.
        at: Latency,
        /// The greatest number of events in a second.
        most: u64,
    },
    /// The scenario has nothing to simulate.
    #[error("the scenario has no {0}")]
    Nothing(&'static str),
    /// A time that must be more than nothing, or not beyond the duration.
    #[error("the scenario's {0} must be {1}")]
    Time(&'static str, &'static str),
    /// Two things of a kind have one name.
    #[error("two {kind} are called `{name}`")]
    Duplicate {
        /// The kind of thing.
        kind: &'static str,
        /// Their name.
        name: String,
    },
    /// A name in the scenario refers to something that does not exist.
    #[error("{who} refers to the {kind} `{name}`, which does not exist")]
    Unknown {
        /// The item that refers.
        who: String,
        /// The kind of thing that it refers to.
        kind: &'static str,
        /// The name that does not exist.
        name: String,
    },
    /// More of a kind than can be simulated.
    #[error("at most {most} {kind}, these are {given}")]
    TooMany {
        /// The kind of thing, in the plural.
        kind: &'static str,
        /// The greatest possible number.
        most: usize,
        /// The number given.
        given: usize,
    },
    /// An array's model means nothing with these parameters.
    #[error("array `{array}`: {reason}")]
    Device {
        /// The array.
        array: ResourceName,
        /// The reason.
        reason: String,
    },
    /// A host's law means nothing with these parameters.
    #[error("host `{host}`: {reason}")]
    Law {
        /// The host.
        host: HostName,
        /// The reason.
        reason: LoopConfigError,
    },
    /// Hosts tell each other means only.
    #[error(
        "host `{0}`: other laws on its array report means only: a percentile as `statistic` needs \
            `signal = \"local\"`"
    )]
    PercentileAcrossHosts(HostName),
    /// A host could never issue anything.
    #[error("host `{0}`: the depth must be 1 to {1}")]
    Depth(HostName, u32),
    /// A virtual disk does not lie on its array.
    #[error("{what} ends at {end} on array `{array}`, which has {capacity}")]
    DoesNotFit {
        /// The disk.
        what: String,
        /// The virtual machine that has the disk, unless it is shared.
        vm: Option<ConsumerName>,
        /// The array.
        array: ResourceName,
        /// The offset at which the disk would end.
        end: Bytes,
        /// The array's size.
        capacity: Bytes,
    },
    /// A workload cannot do what its configuration says.
    #[error("workload `{workload}` of `{vm}`: {reason}")]
    Workload {
        /// The virtual machine of the workload.
        vm: ConsumerName,
        /// The workload's name.
        workload: String,
        /// The reason.
        reason: String,
    },
    /// The response times asked for are those of an array that never answers.
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
        /// The greatest number of requests that it holds.
        most: usize,
    },
}
