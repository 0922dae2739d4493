//! What turns the parts into services: configuration, reload, drain, metrics.
//!
//! [`agent`] regulates this machine's storage without being in its data path. Of the gateway,
//! [`Config::load`](config::Config::load) reads a configuration, [`serve`](serve::serve) runs it until it is
//! told to stop, [`Summary`](summary::Summary) says what it comes to, and [`metrics`] and [`status`] show
//! what happens.

#![forbid(unsafe_code)]

pub mod admission;
pub mod agent;
mod cluster;
pub mod config;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod journal;
pub mod log;
pub mod metrics;
mod policy;
pub mod serve;
mod signals;
pub mod status;
pub mod summary;
mod supervisor;
