//! Helpers that the tests of several crates share.
//!
//! Each of them panics when something does not work: that is how a test fails.

#![allow(missing_docs, clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

mod alone;
#[cfg(feature = "clap")]
pub mod commands;
mod lack;
mod loop_device;
pub mod markdown;
mod namespaces;
pub mod nbd;
mod own_network;
mod programs;
#[cfg(feature = "s3")]
pub mod s3;
mod this_program;
#[cfg(feature = "vhost")]
pub mod vhost;
mod wait;

pub use alone::{ALONE, has_free_cgroups, limits_alone};
pub use lack::{Lack, lacks, skip};
pub use loop_device::LoopDevice;
pub use namespaces::has_namespaces;
pub use own_network::in_own_network;
pub use programs::has_programs;
pub use this_program::test_command;
pub use wait::{PATIENCE, until, until_true};
