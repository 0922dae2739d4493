//! Whole transfers over storage nodes of unequal and changing speed, placed by `tidegate-placement`.
//!
//! As in D. Nikolow et al., *Storage QoS Aspects in Distributed Virtualized Environments*, CLOUD COMPUTING
//! 2010, §IV: a node is chosen for a transfer, or the transfer waits until there is one; it begins; after a
//! pause the next is asked for. A sensor samples every node meanwhile. Transfers that read come at fixed
//! times instead, and those that wait do so beside each other.

mod engine;
mod plan;

pub use engine::simulate;
pub use plan::{External, InvalidPlan, NodePlan, Plan, Reads, Tapes};

use tidegate_units::{Bytes, Latency, ResourceName};

/// What came of a plan.
#[derive(Debug, Clone, PartialEq)]
pub struct Findings {
    /// Every transfer that began, in order.
    pub transfers: Vec<TransferFindings>,
    /// When it ended, in seconds.
    pub ended_s: f64,
    /// What happened: starts, ends, samples, changes of load.
    pub events: u64,
}

/// What came of a transfer.
#[derive(Debug, Clone, PartialEq)]
pub struct TransferFindings {
    /// Who carried it.
    pub node: ResourceName,
    /// How much it moved.
    pub size: Bytes,
    /// When somebody wanted it, in seconds.
    pub asked_s: f64,
    /// When it began.
    pub began_s: f64,
    /// When its data began to move; `None` when it did not.
    pub moved_s: Option<f64>,
    /// When all was moved; `None` when it was not, at the end of the plan.
    pub ended_s: Option<f64>,
    /// How soon it needed its first byte; `None` of one that needed a rate.
    pub soon: Option<Latency>,
}

impl TransferFindings {
    /// Its average rate in bytes per second, its wait for a node not counted; `None` for one that did not
    /// end.
    #[must_use]
    pub fn rate(&self) -> Option<f64> {
        let seconds = self.ended_s? - self.began_s;
        (seconds > 0.0).then(|| self.size.get() as f64 / seconds)
    }
}
