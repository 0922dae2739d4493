//! An NBD load generator that measures response times.
//!
//! [`RunningLoad::connect`] opens the connections, [`RunningLoad::start`] begins, [`LoadHandle::sample`]
//! looks at it while it runs, [`LoadHandle::join`] waits for the end and yields the [`LoadReport`].
//!
//! Each connection has one thread that sends and one that receives, on blocking sockets. So the storage is
//! measured, not an event loop. In an open loop a response time counts from the moment when the request was
//! due, not from when it could be sent. So a slow server cannot hide its slowness by slowing down the
//! questions ("coordinated omission").

#![forbid(unsafe_code)]

mod config;
mod connection;
mod error;
mod flight;
mod payload;
mod plan;
mod report;
mod run;
mod stats;
mod target;
mod worker;

pub use config::{
    BlockOrder, LoadArrivals, LoadConfig, LoadConfigError, LoadPhases, RequestSpacing, WritePayload,
};
pub use error::{ConnectError, ConnectionLoss, LoadError, UnsuitableExport};
pub use report::{CutShort, LatencyReport, LoadReport, OperationReport, SecondReport};
pub use run::{LoadHandle, RunningLoad};
pub use stats::{LoadSample, OperationSample};
pub use target::{LoadTarget, ServerEndpoint, TargetError};
