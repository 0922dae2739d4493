//! The findings of a simulation.

use crate::SeriesSample;

/// The results of a plan.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct IscsiFindings {
    /// Time at which it ended, in seconds.
    pub ended_s: f64,
    /// For each machine: the end of each interval in seconds, and the numbers of the interval.
    pub series: Vec<Vec<(f64, SeriesSample)>>,
    /// For each load, in the order of the plan.
    pub loads: Vec<LoadFindings>,
    /// The end of each interval in seconds, and the mean over it of the longest delay in force, in
    /// milliseconds. The delay counts as 0 while none is in force.
    pub delays: Vec<(f64, f64)>,
    /// Number of events that the engine handled.
    pub events: u64,
}

/// The results of a load.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct LoadFindings {
    /// Requests that were answered.
    pub requests: u64,
    /// Time from its first request to its last answer, in seconds; `None` while it has not moved its amount.
    pub took_s: Option<f64>,
}
