//! The parts that both services, the gateway's and the agent's, are made of: log, signals, supervisor, the
//! journal of decisions, rollups and statements, the API over HTTP, and the file of a configuration.

#![forbid(unsafe_code)]

mod addresses;
pub mod api;
pub mod config;
pub mod entitlements;
pub mod explain;
pub mod history;
pub mod journal;
pub mod journald;
pub mod log;
pub mod metrics;
pub mod obstacles;
pub mod operator_socket;
pub mod overrides;
pub mod rollups;
pub mod signals;
pub mod statement;
pub mod status;
pub mod supervisor;

pub use addresses::TcpAddresses;
