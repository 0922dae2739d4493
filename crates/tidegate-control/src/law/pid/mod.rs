//! The single-sided PID (Bjørgeengen): one delay, for each throttled consumer under its own floor.

pub(crate) mod config;
pub(crate) mod controller;
mod decision;
