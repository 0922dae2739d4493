//! The integration tests of tidegate-rollups: one program, a module for each subject.

#![allow(clippy::print_stdout, reason = "measurements print their figures")]
#![allow(clippy::unwrap_used, reason = "the helpers of a test fail by panicking")]

mod cost;
