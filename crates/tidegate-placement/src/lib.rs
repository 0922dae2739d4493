//! Placement of whole transfers: chooses the storage node that carries one now, from measurements of the
//! nodes.
//!
//! D. Nikolow, R. Słota, J. Kitowski, *Storage QoS Aspects in Distributed Virtualized Environments*, CLOUD
//! COMPUTING 2010, §III. [`Placement`] holds the state of each node, the promises to transfers, and the
//! transfers that wait. A [`PlacementPolicy`] decides whether a node can carry one transfer more. Nothing
//! here moves data or reads a clock: the caller asks, reports measurements, and reports when a transfer has
//! ended.

#![forbid(unsafe_code)]

mod capacity;
mod first_byte;
mod moving_average;
mod node;
mod peak;
mod placement;
mod policy;
mod requirement;
mod tape;

pub use capacity::NodeCapacity;
pub use moving_average::{MovingAverage, SAMPLES};
pub use node::{
    DeviceLane, DirectionReport, FreeSpace, NodeConfig, NodeReport, NodeSample, TransferDirection,
};
pub use peak::NodePeak;
pub use placement::{
    PlaceError, Placement, PlacementAnswer, PlacementConfig, PlacementConfigError, PlacementGrant,
    PlacementRequest, TransferProgress, TransferTicket, UnknownNode,
};
pub use policy::{NodeView, PlacementPolicy, PolicyError};
pub use requirement::{RateRecord, TransferRequirement};
pub use tape::{DiskCache, NodeTapes};
