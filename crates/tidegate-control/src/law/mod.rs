//! Control laws, one folder each: parameters, state, decision and tests.

pub(crate) mod bands;
pub(crate) mod control_law;
pub(crate) mod integral;
pub(crate) mod pid;
pub(crate) mod queueing;
pub(crate) mod self_tuning;
pub(crate) mod window;
