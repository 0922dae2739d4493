//! The server side of ublk: block devices of the kernel whose requests a program carries out.
//!
//! A device has two files. By `/dev/ublk-control` a [`ControlDevice`] adds, starts, takes over and deletes
//! devices; each command waits until the kernel has done it. The channel `/dev/ublkcN` is a
//! [`ServedDevice`]: the thread that serves the device keeps one command for each tag at the kernel, by its
//! own io_uring ([`fetch`], [`commit`]). A command completes when there is a request for its tag. The
//! [`RequestDescriptor`] says which; data is copied by reads and writes of the channel.
//!
//! Devices outlive their server: requests wait until another process takes the device over. [`next_step`]
//! says what to do with a device that is there already, and [`can_serve`] whether a volume fits it.

#![deny(unsafe_code)]

mod abi;
mod channel;
mod control;
mod recovery;

pub use abi::{
    DEPTH, DeviceNumber, DeviceNumberError, DeviceProperties, MAX_PAYLOAD, RequestDescriptor, RequestKind,
    RingCommand, commit, fetch,
};
pub use channel::ServedDevice;
pub use control::{ControlDevice, ControlError};
pub use recovery::{
    DeviceMark, DeviceState, ExportMark, FoundDevice, NextStep, ObstructedDevice, PropertyMismatch,
    can_serve, next_step,
};
