//! The integration tests of tidegate-sim: one program, a module for each subject.

#![allow(clippy::disallowed_methods, reason = "tests read files")]
#![allow(clippy::print_stdout, reason = "measurements print their figures")]
#![allow(clippy::unwrap_used, reason = "the helpers of a test fail by panicking")]

mod auto;
mod auto_set_point;
mod bands;
mod behaviour;
mod closed_forms;
mod common;
mod contracts;
mod determinism;
mod devices;
mod offer;
mod percentile;
mod reservations;
mod scenarios;
