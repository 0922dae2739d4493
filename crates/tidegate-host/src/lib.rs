//! Linux as sensor and throttle: what this machine's block devices, storage targets and their sessions say,
//! and how it holds a consumer back.
//!
//! Sensors measure and never decide; a throttle carries out what the loop commanded, and knows how to undo
//! it.

mod abstract_sockets;
pub mod cgroup;
mod device;
mod ebpf;
mod netlink;
mod root;
pub mod sense;
pub mod throttle;
pub mod trees;
mod wildcard;

pub use abstract_sockets::AbstractSocket;
pub use device::DeviceNumber;
pub use root::{ReadError, SystemRoot};
