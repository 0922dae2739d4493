//! The integral law (Lee): a rate for each throttled consumer, by its own latency and contract.

pub(crate) mod config;
pub(crate) mod gain;
pub(crate) mod integral_law;
mod learnt_gain;
pub(crate) mod rates;
