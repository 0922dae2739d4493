//! Whole transfers over storage nodes of unequal and changing speed, placed by `tidegate-placement`.
//!
//! The simulation follows D. Nikolow et al., *Storage QoS Aspects in Distributed Virtualized Environments*,
//! CLOUD COMPUTING 2010, §IV. A node is chosen for a transfer, or the transfer waits until there is one. It
//! begins, and after a pause the next is asked for. A sensor samples every node meanwhile. Transfers that
//! read come at fixed times instead, and those that wait do so beside each other.

mod engine;
mod plan;

pub use engine::simulate;
pub use plan::{ExternalLoad, InvalidPlan, NodePlan, ReadTransfers, TapeModel, TransferPlan};

use tidegate_units::{Bytes, Latency, ResourceName};

/// The results of a plan.
#[derive(Debug, Clone, PartialEq)]
pub struct PlanFindings {
    /// Every transfer that began, in order.
    pub transfers: Vec<TransferFindings>,
    /// Time at which it ended, in seconds.
    pub ended_s: f64,
    /// Number of events: starts, ends, samples, changes of load.
    pub events: u64,
}

/// The results of a transfer.
#[derive(Debug, Clone, PartialEq)]
pub struct TransferFindings {
    /// The node that carried it.
    pub node: ResourceName,
    /// Amount of data.
    pub size: Bytes,
    /// Time at which it was asked for, in seconds.
    pub asked_s: f64,
    /// Time at which it began, in seconds.
    pub began_s: f64,
    /// Time at which its data began to move, in seconds; `None` when it did not.
    pub moved_s: Option<f64>,
    /// Time at which all was moved, in seconds; `None` when it was not, at the end of the plan.
    pub ended_s: Option<f64>,
    /// Time within which it needed its first byte; `None` where it needed a rate.
    pub soon: Option<Latency>,
}

impl TransferFindings {
    /// Returns its average rate in bytes per second, its wait for a node not counted. `None` if it did not
    /// end.
    #[must_use]
    pub fn rate(&self) -> Option<f64> {
        let seconds = self.ended_s? - self.began_s;
        (seconds > 0.0).then(|| self.size.get() as f64 / seconds)
    }
}
