//! The integration tests of tidegate-lab: one program, a module for each subject.

#![allow(clippy::unwrap_used, reason = "the helpers of a test fail by panicking")]

mod command_line;
