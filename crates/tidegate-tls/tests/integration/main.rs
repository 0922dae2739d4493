//! The integration tests of tidegate-tls: one program, a module for each subject.

#![allow(clippy::unwrap_used, reason = "the helpers of a test fail by panicking")]

mod relay;
mod version;
