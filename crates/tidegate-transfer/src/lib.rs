//! Transfers of whole files to and from storage nodes, each on a node that can carry it now.
//!
//! D. Nikolow, R. Słota, J. Kitowski, *Storage QoS Aspects in Distributed Virtualized Environments*, CLOUD
//! COMPUTING 2010. The rules are in [`tidegate_placement`]. This crate moves the data, and keeps the books:
//!
//! - a [`Broker`] places transfers, knows the nodes of each object, and forgets nothing that it acknowledged
//!   ([`Catalogue`]);
//! - [`serve()`] answers for it over HTTP, and measures once a second;
//! - a [`BrokerClient`] asks it, and [`FileMover`] moves files between this machine and the nodes
//!   ([`store`]).
//!
//! The broker never touches the data, so that it is no bottleneck: clients speak to the nodes themselves.

#![forbid(unsafe_code)]

mod broker;
mod catalogue;
mod client;
pub mod config;
mod digest;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod gauge;
mod mover;
mod name;
mod places;
mod probe;
pub mod sensor_reports;
mod serve;
pub mod store;
pub mod wire;

pub use broker::{Broker, BrokerError, DeviceSensor};
pub use catalogue::{Catalogue, CatalogueError, CataloguePlace, CopyResult, SitePlan};
pub use client::{AskError, BrokerClient};
pub use config::{BrokerConfig, ConfigError};
pub use digest::{Digest, Hasher};
pub use gauge::BytesGauge;
pub use mover::{FileMover, MoveError, MoverSettings, TransferEvent, TransferOutcome};
pub use name::{NoRandom, ObjectName, ObjectNameError, fresh_run};
pub use places::{NodePlaces, PlacesError};
pub use probe::{NodeProbe, ProbeError, ProbeLimits, ProbeResult};
pub use sensor_reports::DeviceSample;
pub use serve::{ServeError, serve};
pub use tidegate_http::{BearerToken, TokenError};
