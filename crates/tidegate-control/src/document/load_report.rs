//! Reports that the law `auto` needs of other hosts beside their signal, and the sums of all hosts.

use serde::{Deserialize, Serialize};
use tidegate_units::{Iops, Latency, Window};

use crate::document::mean_outstanding::MeanOutstanding;

/// The load of one host's eligible consumers, and what its law concluded.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoadReport {
    /// Requests per second of the eligible consumers.
    pub iops: Iops,
    /// Those of them that write.
    pub writes: Iops,
    /// Their mean number of requests at the resource.
    pub outstanding: MeanOutstanding,
    /// Those of them that write.
    pub writing: MeanOutstanding,
    /// True if requests of theirs wait for the window.
    pub waiting: bool,
    /// True if more of a contract's requests are late than may be.
    #[serde(default)]
    pub late: bool,
    /// Number of requests of the signal that the host remembers: of some seconds.
    pub recent: MeanOutstanding,
    /// Their mean latency.
    pub recent_mean: Latency,
    /// Latency of the host's worst consumer over those seconds, less what chance makes of it.
    pub worst: Latency,
    /// The window of all hosts together that its law decided. `None` while it has decided nothing.
    pub total_window: Option<Window>,
}

/// The loads of all hosts together.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterLoad {
    /// Requests per second of all eligible consumers.
    pub iops: Iops,
    /// Those of them that write.
    pub writes: Iops,
    /// Their mean number of requests at the resource.
    pub outstanding: MeanOutstanding,
    /// Those of them that write.
    pub writing: MeanOutstanding,
    /// The part of the active shares on hosts where requests wait for the window.
    pub waiting: f64,
    /// True if a contract's requests are late on a host that is believed.
    #[serde(default)]
    pub late: bool,
    /// The mean latency of the signal in the last interval, by the hosts that are believed.
    pub mean: Option<Latency>,
    /// The worst consumer's latency over the mean of all, by the hosts that are believed; at least 1.
    pub worst: f64,
    /// The window of all hosts together, by the median of what their laws decided.
    pub total_window: Option<Window>,
    /// The active shares of all hosts.
    pub active_shares: f64,
}
