//! What turns the parts into services: configuration, reload, drain, metrics.
//!
//! [`Config::load`](config::Config::load) reads a configuration, [`serve`](serve::serve) runs it until it is told
//! to stop, [`Summary`](summary::Summary) says what it comes to, and [`metrics`] shows what happens.

#![forbid(unsafe_code)]

mod cluster;
pub mod config;
mod journal;
pub mod metrics;
mod policy;
pub mod serve;
pub mod summary;
