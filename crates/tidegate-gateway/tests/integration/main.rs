//! The integration tests of tidegate-gateway: one program, a module for each subject.

#![allow(clippy::unwrap_used, reason = "the helpers of a test fail by panicking")]

mod clients;
mod common;
mod hostile;
mod lifecycle;
mod protocol;
mod sharing;
mod suspension;
mod upstream;
mod upstream_hostile;
mod upstream_lost;
