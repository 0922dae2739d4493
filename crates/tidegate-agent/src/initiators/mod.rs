//! Initiators with an agent: what they wait for, told to the agent that regulates their storage.
//!
//! | part | where | does |
//! |---|---|---|
//! | [`reporter`] | on an initiator | measures devices, and reports each interval |
//! | [`intake`] | on the target, or on a bridge | takes reports, and says which consumers have an agent |
//! | [`order`] | there, too | throttles consumers without an agent first |
//!
//! Reports travel as those of gateways do ([`tidegate_cluster`]). How far they are believed is decided by
//! [`tidegate_control::reported_signal`].

pub(crate) mod config;
pub(crate) mod intake;
mod order;
pub(crate) mod reporter;

pub use config::{InitiatorReportConfig, ReportIntakeConfig, ThrottleOrder};
