//! What is simulated: nodes, what disturbs them, and the transfers.

use std::time::Duration;

use thiserror::Error;
use tidegate_device::StorageNodeConfig;
use tidegate_place::transfer::{PlacementConfigError, Policy};
use tidegate_units::{ByteRate, Bytes, ResourceName};

/// At most so many nodes and transfers: what is kept of each is bounded thereby.
const NODES: usize = 1024;
const TRANSFERS: u32 = 1 << 20;

/// A simulation of writes to storage nodes.
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
    /// How many transfers.
    pub transfers: u32,
    /// How much each of them writes.
    pub size: Bytes,
    /// The average rate that each asks for.
    pub asks: ByteRate,
    /// How long after the start of one the next is asked for.
    pub every: Duration,
    /// How often the sensor samples.
    pub sample: Duration,
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
}

/// Load from outside, that nobody announces: others take a part of a node's bandwidth, another one every so often.
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
    /// It would never be carried.
    #[error(transparent)]
    Refused(#[from] tidegate_place::transfer::PlaceError),
    /// A node's model.
    #[error(transparent)]
    Node(#[from] tidegate_device::ConfigError),
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
}
