//! The integration tests of tidegate-control: one program, a module for each subject.

#![allow(clippy::print_stdout, reason = "measurements print their figures")]
#![allow(clippy::unwrap_used, reason = "the helpers of a test fail by panicking")]

mod any_input;
mod closed_loop;
mod contracts;
mod documents;
mod knee;
mod percentile;
mod plant;
mod queueing;
mod reservations;
mod self_tuning;
