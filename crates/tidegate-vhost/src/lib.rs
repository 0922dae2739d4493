//! The device side of vhost-user-blk.
//!
//! ```text
//! front end (QEMU) ─ socket ─▶ serve ─ DiskOwner ─▶ the owner of the rings
//! guest's driver ─ shared memory ─▶ DiskRing::next ─▶ DiskRequest … DiskRing::complete ─▶ guest's driver
//! ```
//!
//! [`serve`] speaks with the front end on a thread that may wait. It hands every ring that starts to a
//! [`DiskOwner`], which takes requests out of it and puts results into it, and gives it back when it stops.
//! The guest can change its memory at any time: all access goes through `vm-memory`, and what was read once
//! is not read again. A front end can take memory back that it has shared: the ring then ends with
//! [`RingError::MemoryLost`], and the process goes on.

#![deny(unsafe_code)]

mod budget;
mod bus_guard;
mod event;
mod features;
mod front_end;
mod in_flight;
mod memory;
mod request;
mod ring;
mod size;

#[cfg(any(test, fuzzing))]
pub mod fuzz;

pub use budget::shared_bytes;
pub use event::{EventDescriptor, NotEventDescriptor};
pub use features::{DiskProperties, MOST_QUEUES};
pub use front_end::{DiskOwner, FrontEndError, OwnerGone, serve};
pub use memory::{GuestMemory, ThreadTime};
pub use request::{DataPart, DiskCommand, DiskRequest, MalformedRequest, RequestStatus, SECTOR};
pub use ring::{CompletedRequest, DiskRing, RingError};
pub use size::DiskSize;
