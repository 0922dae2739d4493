//! Reservations in a decision.

use serde::{Deserialize, Serialize};
use tidegate_units::{Iops, Latency, Window};

/// Reservations in a decision.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReservationDecision {
    /// Σr of this host's active consumers, in requests per second.
    pub rate: Iops,
    /// Σr of all hosts, as far as they were heard; this host's own when it is alone.
    pub everywhere: Iops,
    /// L: the mean response time of these consumers' requests at the resource.
    pub latency: Latency,
    /// The window that they take.
    pub window: Window,
    /// Set when consumers that wait get less than 95 % of what is reserved for them, over some seconds: what
    /// is short.
    pub missed: Option<ReservationShortage>,
}

/// Shortage that makes reservations fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReservationShortage {
    /// The window that they take is above the greatest that the configuration allows.
    Window,
    /// The storage completes less than is reserved, here or on all hosts together.
    Storage,
}
