//! Placement of whole transfers: chooses the storage node that carries one now, from measurements of the
//! nodes.
//!
//! D. Nikolow, R. Słota, J. Kitowski, *Storage QoS Aspects in Distributed Virtualized Environments*, CLOUD
//! COMPUTING 2010, §III. [`Placement`] holds the state of each node, the promises to transfers, and the
//! transfers that wait. A [`Policy`] decides whether a node can carry one transfer more. Nothing here moves
//! data or reads a clock: the caller asks, reports measurements, and reports when a transfer has ended.

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

pub use capacity::Capacity;
pub use moving_average::{MovingAverage, SAMPLES};
pub use node::{DeviceLane, Direction, DirectionReport, NodeConfig, NodeReport, NodeSample, Room};
pub use peak::Peak;
pub use placement::{
    Answer, Ask, Grant, PlaceError, Placement, PlacementConfig, PlacementConfigError, Progress, Ticket,
    UnknownNode,
};
pub use policy::{Policy, PolicyError, View};
pub use requirement::{Kept, Requirement};
pub use tape::{DiskCache, Tape};
