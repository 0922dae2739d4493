//! The self-tuning law (Triage): one operating point for all, divided by bands.

pub(crate) mod config;
mod hyperbola;
mod line;
pub(crate) mod regulator;
pub(crate) mod regulators;
