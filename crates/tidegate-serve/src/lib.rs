//! The gateway as a service: [`ServeConfig::load`](config::ServeConfig::load) reads its configuration,
//! [`serve`](serve::serve) runs it until it is told to stop, [`ConfigSummary`](summary::ConfigSummary) says
//! what a configuration comes to.

#![forbid(unsafe_code)]

pub mod admission;
mod changes;
mod cluster;
pub mod config;
mod failures;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
pub mod metrics;
mod overrides;
mod policy;
mod rollups;
pub mod serve;
mod sessions;
mod status;
pub mod summary;
