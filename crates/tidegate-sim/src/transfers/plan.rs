//! What is simulated: nodes, what disturbs them, and the transfers.

use std::time::Duration;

use thiserror::Error;
use tidegate_device::StorageNodeConfig;
use tidegate_placement::{PlacementConfigError, Policy};
use tidegate_units::{ByteRate, Bytes, Latency, ResourceName};

/// At most so many nodes and transfers: what is kept of each is bounded thereby.
const NODES: usize = 1024;
const TRANSFERS: u32 = 1 << 20;

/// A simulation of transfers to or from storage nodes.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// Its name.
    pub name: String,
    /// How long it lasts at most. It ends sooner when all transfers have.
    pub duration: Duration,
    /// How nodes are chosen.
    pub policy: Policy,
    /// The nodes.
    pub nodes: Vec<NodePlan>,
    /// What is reserved and not used is lent.
    pub lend: bool,
    /// Each node has a sensor that sees what others move there.
    pub senses: bool,
    /// How many transfers.
    pub transfers: u32,
    /// How much each of them moves.
    pub size: Bytes,
    /// The average rate that each asks for.
    pub asks: ByteRate,
    /// How long after the start of one the next is asked for; of reads, after it was asked for.
    pub every: Duration,
    /// How often the sensor samples.
    pub sample: Duration,
    /// What is read; `None` where all of them write.
    pub reads: Option<Reads>,
}

/// Transfers that read. They are asked for whether those before have begun or not.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reads {
    /// How many objects there are, of one size. Which of them is read is drawn, each as likely.
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
    /// What it does. Its peak is known to the placement.
    pub model: StorageNodeConfig,
    /// What others do with it.
    pub external: Option<External>,
    /// It holds one in so many of the objects that are read: 1 is all.
    pub holds_one_in: u32,
    /// Where it is a disk in front of tapes. Its model says how long a recall takes, and how many drives
    /// there are.
    pub tapes: Option<Tapes>,
}

/// A disk in front of tapes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tapes {
    /// How much the disk holds: what was read last. At the beginning that are the last of its objects.
    pub cache: Bytes,
    /// Whether the placement is told of the tapes. Otherwise it takes the node for a disk, and learns how
    /// long a first byte takes.
    pub described: bool,
}

/// Load from outside, that nobody announces: others take a part of a node's bandwidth, another one every so
/// often.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct External {
    /// The least part.
    pub least: f64,
    /// The greatest part. Every part between is as likely.
    pub greatest: f64,
    /// How long a part is in force.
    pub every: Duration,
}

/// Why a plan cannot be simulated.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum InvalidPlan {
    /// A time, a size or a rate is zero.
    #[error("durations, sizes and rates must be greater than zero")]
    Nothing,
    /// Too many.
    #[error("at most {NODES} nodes and {TRANSFERS} transfers can be simulated")]
    Many,
    /// Load from outside that is none.
    #[error("others take a part of `{0}` within 0 and 1, the least first")]
    External(ResourceName),
    /// The placement does not take it.
    #[error(transparent)]
    Placement(#[from] PlacementConfigError),
    /// Reads without anything to read.
    #[error(
        "reads need at least one object on a node without tapes, and every object on some node; a node holds one in 1 or more"
    )]
    Unheld,
    /// It would never be carried.
    #[error(transparent)]
    Refused(#[from] tidegate_placement::PlaceError),
    /// A node's model.
    #[error(transparent)]
    Node(#[from] tidegate_device::ConfigError),
}

impl NodePlan {
    pub(super) const fn holds(&self, object: u32) -> bool {
        object.is_multiple_of(self.holds_one_in)
    }
}

impl Plan {
    /// Checks what the parts do not check themselves.
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

    /// Who holds an object.
    pub(super) fn holders(&self, object: u32) -> impl Iterator<Item = &NodePlan> {
        self.nodes.iter().filter(move |node| node.holds(object))
    }

    /// Whether somebody has an object who never recalls it.
    pub(super) fn is_on_a_disk(&self, object: u32) -> bool {
        self.holders(object).any(|node| node.tapes.is_none())
    }
}
