//! Discrete-event simulation of hosts that share storage.
//!
//! Virtual machines on hosts send requests to arrays; hosts regulate themselves, alone or together. Devices
//! are the models of `tidegate-device`, queues the schedulers of `tidegate-sched`, and decisions those of
//! `tidegate-control`. This is the very code that the gateway runs. This crate adds workloads, time, and a
//! network between the hosts.
//!
//! In addition, [`iscsi`] simulates machines that use an iSCSI target whose packets are delayed.
//!
//! [`Scenario::parse`] reads a scenario, or a [`Scenario`] is put together in code. [`simulate`] simulates
//! it. Same scenario, same seed: same [`SimulationOutcome`], byte for byte, and the same time series to the
//! [`Recorder`].
//!
//! [`transfers`] simulates whole transfers over storage nodes, and their placement on the nodes.
//!
//! [`offer`] measures a storage model by offering it load at given rates: for admission, and for profiles.
//!
//! [`excite`] measures a storage model's response to white noise. A model of it that suits the design of a
//! controller is fitted to the response.
//!
//! Nothing here reads a clock, a file or ambient randomness: a trace that a scenario names is read by the
//! caller of [`Scenario::read`].
//!
//! ```
//! use tidegate_sim::{Scenario, TimeSeries, simulate};
//!
//! let mut scenario = Scenario::parse(
//!     "two-hosts.toml",
//!     r#"
//!     name = "two-hosts"
//!     duration = "60s"
//!     warmup = "20s"
//!     array.lun = { rate = "1kIO/s" }
//!     host.h = { count = 2, law = "window", target = "40ms", set_point = 1.0, interval = "2s" }
//!     workload.busy = { outstanding = 32 }
//!     vm.load = { count = 2, host = "h", workload = "busy" }
//!     "#,
//! )?;
//! scenario.vms[1].shares = tidegate_units::Shares::new(300).unwrap();
//! let mut series = TimeSeries::default();
//! let outcome = simulate(&scenario, scenario.seed, &mut series)?;
//! let iops = |name: &str| outcome.consumers.get(name).unwrap().iops;
//! assert!(iops("load-2") > iops("load-1"));
//! assert_eq!(series.of_consumer("load-1").count(), 60);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! An [`SimulationOutcome`] has the loads and response times of arrays, hosts and consumers over the time
//! after the warm-up. A [`Recorder`] hears every row of the time series and every decision of every law while
//! the simulation runs. [`TimeSeries`] keeps the rows in memory, [`SilentRecorder`] wants none.

#![forbid(unsafe_code)]

mod engine;
mod error;
pub mod excite;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
pub mod iscsi;
pub mod offer;
mod outcome;
mod queue;
mod random;
mod recorder;
pub mod scenario;
mod table;
pub mod transfers;

pub use engine::simulate;
pub use error::ScenarioError;
pub use outcome::{
    ConsumerOutcome, EngineWork, HostOutcome, LatencySummary, MissedShares, NamedValues, ResourceOutcome,
    SimulationOutcome, WindowOutcome,
};
pub use recorder::{OwnedRow, Recorder, SeriesRow, SeriesSample, SilentRecorder, TimeSeries};
pub use scenario::{InvalidScenario, Scenario};
