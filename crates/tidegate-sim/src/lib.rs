//! Discrete-event simulation of hosts that share storage.
//!
//! Virtual machines on hosts send requests to arrays; hosts regulate themselves, alone or together. Devices are the models
//! of `tidegate-device`, queues the schedulers of `tidegate-sched`, decisions those of `tidegate-control`: the very code
//! that the gateway runs. This crate adds what moves them: workloads, time, and a network between the hosts.
//!
//! [`Scenario::parse`] reads what is to be simulated (or put a [`Scenario`] together in code), [`simulate`] does it. Same
//! scenario, same seed: same [`Outcome`], byte for byte, and the same time series to the [`Recorder`].
//!
//! Nothing here reads a clock, a file or ambient randomness.

#![forbid(unsafe_code)]

mod engine;
mod error;
pub mod experiments;
mod outcome;
mod queue;
mod random;
mod recorder;
pub mod scenario;

pub use engine::simulate;
pub use error::ScenarioError;
pub use outcome::{
    ConsumerOutcome, HostOutcome, Latencies, Named, Outcome, ResourceOutcome, WindowOutcome, Work,
};
pub use recorder::{OwnedRow, Recorder, Row, Sample, Series, Silent};
pub use scenario::{InvalidScenario, Scenario};
