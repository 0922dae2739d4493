//! The window law (PARDA): one window for all throttled consumers.

pub(crate) mod compensation;
pub(crate) mod config;
mod decision;
pub(crate) mod window_law;
