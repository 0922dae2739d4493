//! Regulation of one resource: what its consumers did, its loop, and the conversion of its commands into what
//! throttles take.
//!
//! Laws command windows, delays or rates. Throttles take delays of packets ([`MemberDemand`]), limits of
//! writes ([`WritePace`]), or limits of both directions ([`DirectionMix`]).
//!
//! Nothing here measures or throttles. Time, loads and settings are arguments.

#![forbid(unsafe_code)]

mod delay;
mod limit;
mod mix;
mod pace;

pub use delay::MemberDemand;
pub use limit::{DirectionLimits, RateLimit};
pub use mix::DirectionMix;
pub use pace::WritePace;
