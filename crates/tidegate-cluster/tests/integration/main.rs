//! The integration tests of tidegate-cluster: one program, a module for each subject.

#![allow(clippy::unwrap_used, reason = "the helpers of a test fail by panicking")]

mod common;
mod file;
mod log;
mod nats;
mod nats_tls;
mod udp;
