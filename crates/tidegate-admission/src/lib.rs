//! Admission of contracts: the rules by which a storage resource promises rates and response times.
//!
//! A [`TenantDemand`] asks for so many requests of a size per second, each within a response time. Whether
//! all contracts of a resource can be kept is decided by measurement (H. D. Lee et al., *Regulating I/O
//! Performance of Shared Storage with a Control Theoretical Approach*, MSST 2004, §2), without a model of the
//! storage. This crate does not measure. It says what to measure next, on the storage or on a model of it,
//! and what the result means:
//!
//! 1. [`TenantDemands::new`] checks contracts by themselves, [`TenantDemands::check`] against the best that
//!    the storage can do.
//! 2. [`judge`] makes a [`AdmissionVerdict`] of the response times that were measured with the load of all
//!    tenants together.
//! 3. After a refusal [`ScaleSearch`] finds the part of all rates at which the same response times hold.
//!
//! [`decide()`] does the last two, with any implementation of [`LoadGenerator`].
//!
//! A [`LatencyProfile`] is the response time over the rate. In it are the region in which the storage is
//! stable, and the [process gain](LatencyGain) there, from which a controller's gain is chosen (Lee §3.2).
//!
//! `tidegate-placement` chooses the storage node that carries a transfer.
//!
//! ```
//! use tidegate_admission::{AdmissionRule, TenantDemand, TenantDemands, OfferResult, judge};
//! use tidegate_units::{Bytes, ConsumerName, Iops, Latency};
//!
//! let contract = |name, iops, millis| -> Result<_, Box<dyn std::error::Error>> {
//!     Ok(TenantDemand {
//!         name: ConsumerName::new(name)?,
//!         iops: Iops::new(iops),
//!         size: Bytes::from_kib(4),
//!         response_time: Latency::from_millis(millis),
//!     })
//! };
//! let contracts = TenantDemands::new(vec![contract("w1", 40.0, 35)?, contract("w2", 20.0, 38)?])?;
//! // Lee's table 3.
//! let measured = OfferResult::Sustained(vec![Latency::from_micros(29_080), Latency::from_micros(31_380)]);
//! assert!(judge(&contracts, &AdmissionRule::default(), &measured)?.is_admitted());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod admission;
mod decide;
mod demand;
mod fit;
mod profile;
mod scale;
pub mod schedule;

pub use admission::{
    AdmissionRule, AdmissionVerdict, JudgedContract, LatencyMargin, OfferResult, WrongCount, judge,
};
pub use decide::{AdmissionDecision, LoadGenerator, decide};
pub use demand::{DemandError, GREATEST_SIZE, LEAST_RATE, StorageAbility, TenantDemand, TenantDemands};
pub use profile::{GainDoubt, InvalidProfile, LatencyGain, LatencyProfile, LinearRegion, ProfilePoint};
pub use scale::ScaleSearch;
