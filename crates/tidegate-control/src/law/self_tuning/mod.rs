//! The self-tuning law (Triage): one operating point for all, divided by bands.

pub(crate) mod config;
pub(crate) mod hyperbola;
pub(crate) mod line;
pub(crate) mod regulator;
pub(crate) mod regulators;
