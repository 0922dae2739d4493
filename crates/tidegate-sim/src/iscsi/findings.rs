//! What a simulation gave.

use crate::Sample;

/// What came of a plan.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Findings {
    /// When it ended, in seconds.
    pub ended_s: f64,
    /// Of each machine: the end of each interval in seconds, and the numbers of the interval.
    pub series: Vec<Vec<(f64, Sample)>>,
    /// Of each load, in the order of the plan.
    pub loads: Vec<LoadFindings>,
    /// The end of each interval, and the mean delay in milliseconds over it of those who were delayed; 0 when
    /// nobody was.
    pub delays: Vec<(f64, f64)>,
    /// What the engine did.
    pub events: u64,
}

/// What a load came to.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct LoadFindings {
    /// Requests that were answered.
    pub requests: u64,
    /// From its first request to its last answer, in seconds; `None` while it has not moved its amount.
    pub took_s: Option<f64>,
}
