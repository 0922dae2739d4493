//! The integration tests of tidegate-device: one program, a module for each subject.

#![allow(clippy::print_stdout, reason = "measurements print their figures")]
#![allow(clippy::unwrap_used, reason = "the helpers of a test fail by panicking")]

mod closed_forms;
mod common;
mod fc_raid5;
mod flash;
mod invariants;
mod presets;
mod write_back;
