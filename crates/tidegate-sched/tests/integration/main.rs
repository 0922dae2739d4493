//! The integration tests of tidegate-sched: one program, a module for each subject.

#![allow(clippy::unwrap_used, reason = "the helpers of a test fail by panicking")]

mod fairness;
mod leaky_bucket;
mod model;
mod reservations;
mod yfq;
