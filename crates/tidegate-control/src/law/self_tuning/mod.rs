//! The self-tuning law (Triage): one operating point for all, divided by bands.

pub(crate) mod config;
pub(crate) mod consumers;
pub(crate) mod figure6;
mod linear_model;
mod queue_curve;
pub(crate) mod regulator;
