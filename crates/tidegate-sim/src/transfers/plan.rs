//! The parts of a simulation: nodes, load from outside, and the transfers.

use std::time::Duration;

use thiserror::Error;
use tidegate_device::StorageNodeConfig;
use tidegate_placement::{PlacementConfigError, PlacementPolicy};
use tidegate_units::{ByteRate, Bytes, Latency, ResourceName};

/// Greatest numbers of nodes and transfers, which bound the memory.
const NODES: usize = 1024;
const TRANSFERS: u32 = 1 << 20;

/// A simulation of transfers to or from storage nodes.
#[derive(Debug, Clone, PartialEq)]
pub struct TransferPlan {
    /// Its name.
    pub name: String,
    /// Greatest simulated time. The simulation ends sooner when all transfers have ended.
    pub duration: Duration,
    /// Policy by which nodes are chosen.
    pub policy: PlacementPolicy,
    /// The nodes.
    pub nodes: Vec<NodePlan>,
    /// The processor that all nodes share, as the rate that it moves: each transfer's process has an equal
    /// part of it. `None`: no process waits for it.
    pub processor: Option<ByteRate>,
    /// True if reserved and unused bandwidth is lent.
    pub lend: bool,
    /// True if each node has a sensor that sees the bytes that others move there.
    pub senses: bool,
    /// True if the placement knows no peaks and learns them from transfers.
    pub learns_peaks: bool,
    /// Number of transfers.
    pub transfers: u32,
    /// Amount of data of each transfer.
    pub size: Bytes,
    /// The average rate that each asks for.
    pub asks: ByteRate,
    /// Time from the start of one transfer until the next is asked for. For reads, it counts from the time
    /// when the one was asked for.
    pub every: Duration,
    /// Interval of the sensor's samples.
    pub sample: Duration,
    /// Parameters of reads; `None` where all transfers write.
    pub reads: Option<ReadTransfers>,
}

/// Transfers that read. Each is asked for whether those before have begun or not.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ReadTransfers {
    /// Number of objects, all of one size. Each is read with the same probability.
    pub objects: u32,
    /// Every other transfer asks for its first byte within this time instead of a rate, of an object that is
    /// on a node without tapes.
    pub soon: Latency,
}

/// A storage node.
#[derive(Debug, Clone, PartialEq)]
pub struct NodePlan {
    /// Its name.
    pub name: ResourceName,
    /// Its model. The placement knows its peak, or learns it.
    pub model: StorageNodeConfig,
    /// Load from outside.
    pub external: Option<ExternalLoad>,
    /// It holds one in so many of the objects that are read; with 1 it holds all.
    pub holds_one_in: u32,
    /// The disk in front of tapes, if it is one. Its model has the time of a recall, and the number of
    /// drives.
    pub tapes: Option<TapeModel>,
}

/// A disk in front of tapes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TapeModel {
    /// Size of the disk, which holds the objects that were read last. At the beginning it holds the last ones
    /// of its objects.
    pub cache: Bytes,
    /// True if the placement is told of the tapes. Otherwise it takes the node for a disk, and learns the
    /// time until a first byte.
    pub described: bool,
}

/// Load from outside that is not announced. Others take a part of a node's bandwidth, and another part after
/// every `every`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ExternalLoad {
    /// The least part.
    pub least: f64,
    /// The greatest part. Every part between is as likely.
    pub greatest: f64,
    /// Time for which a part is in force.
    pub every: Duration,
}

/// The reason why a plan cannot be simulated.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum InvalidPlan {
    /// A time, a size or a rate is zero.
    #[error("durations, sizes and rates must be greater than zero")]
    Nothing,
    /// There are too many nodes or transfers.
    #[error("at most {NODES} nodes and {TRANSFERS} transfers can be simulated")]
    Many,
    /// Load from outside has impossible parts.
    #[error("others take a part of `{0}` within 0 and 1, the least first")]
    External(ResourceName),
    /// The placement refuses the configuration.
    #[error(transparent)]
    Placement(#[from] PlacementConfigError),
    /// Reads have nothing to read.
    #[error(
        "reads need at least one object on a node without tapes, and every object on some node; a node holds \
            one in 1 or more"
    )]
    Unheld,
    /// The placement refuses a transfer for ever.
    #[error(transparent)]
    Refused(#[from] tidegate_placement::PlaceError),
    /// A node's model.
    #[error(transparent)]
    Node(#[from] tidegate_device::DeviceConfigError),
}

impl NodePlan {
    pub(super) const fn holds(&self, object: u32) -> bool {
        object.is_multiple_of(self.holds_one_in)
    }
}

impl TransferPlan {
    /// Checks the conditions that the parts do not check themselves.
    pub(super) fn validate(&self) -> Result<(), InvalidPlan> {
        let nothing = self.duration.is_zero()
            || self.every.is_zero()
            || self.sample.is_zero()
            || self.size == Bytes::ZERO
            || self.asks == ByteRate::ZERO;
        if nothing {
            return Err(InvalidPlan::Nothing);
        }
        if self.nodes.iter().any(|node| node.holds_one_in == 0) {
            return Err(InvalidPlan::Unheld);
        }
        if let Some(reads) = self.reads {
            let held = |object| self.holders(object).next().is_some();
            let soon = (0..reads.objects).any(|object| self.is_on_a_disk(object));
            if !soon || !(0..reads.objects).all(held) {
                return Err(InvalidPlan::Unheld);
            }
        }
        if self.nodes.len() > NODES || self.transfers > TRANSFERS {
            return Err(InvalidPlan::Many);
        }
        for node in &self.nodes {
            if let Some(external) = &node.external {
                let right =
                    external.least >= 0.0 && external.least <= external.greatest && external.greatest <= 1.0;
                if !right || external.every.is_zero() {
                    return Err(InvalidPlan::External(node.name.clone()));
                }
            }
        }
        Ok(())
    }

    /// Returns the nodes that hold an object.
    pub(super) fn holders(&self, object: u32) -> impl Iterator<Item = &NodePlan> {
        self.nodes.iter().filter(move |node| node.holds(object))
    }

    /// Returns true if a node without tapes holds an object, and so never recalls it.
    pub(super) fn is_on_a_disk(&self, object: u32) -> bool {
        self.holders(object).any(|node| node.tapes.is_none())
    }
}
