//! Regulation of one resource: what its consumers did, its loop, and the conversion of its commands into what
//! throttles take.
//!
//! If Tidegate has the data path, a [`RegulatedQueue`] holds a resource's requests: scheduler and loop, with
//! a [`ConsumerAccount`] for each consumer. The gateway and the simulator both use it, so that the simulator
//! shows what the gateway does.
//!
//! If the kernel has the data path, a [`RegulatedResource`] turns loads into delays or limits. Throttles
//! there take delays of packets ([`MemberDemand`]), limits of writes ([`WritePace`]), or limits of both
//! directions ([`DirectionMix`]).
//!
//! Nothing here measures or throttles. Time, loads and settings are arguments.

#![forbid(unsafe_code)]

mod account;
mod consumer;
mod delay;
mod division;
mod effect;
mod integral;
mod limit;
mod load;
mod mix;
mod pace;
mod percentile;
mod queue;
mod rate_account;
mod request;
mod resource;
mod samples;
mod sent;
mod steering;
mod terms;
mod virtual_bucket;

pub use account::ConsumerAccount;
pub use consumer::EligibleConsumer;
pub use delay::{MemberDemand, MemberInterval};
pub use effect::ThrottleEffect;
pub use integral::{MeanSince, OutstandingIntegral};
pub use limit::{DirectionLimits, RateLimit};
pub use load::{DeviceLoad, InFlight, SentLoad, StorageLoad};
pub use mix::DirectionMix;
pub use pace::WritePace;
pub use percentile::{LatencyCollection, RecentPercentile, SignalLatencies};
pub use queue::{PendingCommands, QueueConfig, RegulatedQueue};
pub use rate_account::{ContractRecord, RateAccount};
pub use request::{CompletedRequest, OperationKind};
pub use resource::{RegulatedDecision, RegulatedResource, ReportedSignal, ThrottleKind};
pub use samples::LatencySamples;
pub use terms::ConsumerTerms;
