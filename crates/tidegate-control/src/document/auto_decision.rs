//! The decision of the law `auto`, for people to see.

use std::fmt;

use serde::{Deserialize, Serialize};
use tidegate_units::{Latency, Window};

/// The figures behind a decision of the law `auto`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AutoDecision {
    /// Latency of the worst consumer of the signal.
    pub latency: Latency,
    /// Latency that the law steers to: the target less the measured margin, or what the storage can do.
    pub goal: Latency,
    /// Latency that the storage cannot go below, whatever is throttled. `None` while throttling is useful.
    pub floor: Option<Latency>,
    /// Elasticity of the latency: 1 on saturated storage, 0 where the window changes nothing.
    pub elasticity: f64,
    /// The window of all hosts together.
    pub total_window: Window,
    /// True while a lower window is being tried.
    pub trial: bool,
    /// True if writes are acknowledged by a cache, and their effect comes later.
    pub cached_writes: bool,
}

impl fmt::Display for AutoDecision {
    /// Writes the remark that follows a decision's latency and goal; often nothing.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(floor) = self.floor {
            return write!(f, " (the storage cannot go below {floor}, whatever is throttled)");
        }
        if self.trial { f.write_str(" (a lower window is tried)") } else { Ok(()) }
    }
}
