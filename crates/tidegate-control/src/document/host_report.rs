//! Reports that hosts which share a resource send each other, and the signal made of them.

use serde::{Deserialize, Serialize};
use tidegate_units::{HostName, Iops, Latency, Window};

use crate::document::load_report::{ClusterLoad, LoadReport};
use crate::document::point_report::{PeerPoint, PointReport};
use crate::document::signal::SignalRequests;

/// The report of one host to the others about one resource: its last control interval. It carries neither a
/// name nor a time, because its carrier vouches for both.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostReport {
    /// Length of the interval.
    pub interval: Latency,
    /// Signal that the response times are of.
    pub signal: SignalRequests,
    /// Requests of the signal that completed.
    pub completed: u64,
    /// The sum of their response times, scaled to one request size where that is configured.
    pub total_latency: Latency,
    /// True if a request of the signal is outstanding.
    pub outstanding: bool,
    /// Time since dispatch of the oldest request of the signal at the resource.
    pub oldest: Option<Latency>,
    /// The host's window, for people to see.
    pub window: Option<Window>,
    /// The sum of its shares, those of idle consumers scaled (eq. 4). Under the law `auto` the host's part of
    /// the window is in proportion to it; under other laws it is for people to see.
    pub active_shares: f64,
    /// Σr of its active consumers with reservations, in requests per second.
    pub reserved: Iops,
    /// The set point that it would have all use, if it chooses one: see [`ClusterSignal::set_point`].
    pub set_point: Option<Latency>,
    /// Report of the self-tuning law: the operating point that it asks for, and the consumer that needs it.
    /// `None` for another law.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub point: Option<PointReport>,
    /// Load report of the law `auto`. `None` for another law.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<LoadReport>,
}

impl HostReport {
    pub(crate) fn mean(&self) -> Option<f64> {
        (self.completed > 0).then(|| self.total_latency.as_nanos() as f64 / self.completed as f64)
    }

    pub(crate) fn iops(&self) -> f64 {
        if self.interval > Latency::ZERO { self.completed as f64 / self.interval.as_secs_f64() } else { 0.0 }
    }
}

/// A peer's latest report, as its receiver has it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeardReport {
    /// Host that sent the report.
    pub host: HostName,
    /// Time since its arrival, on the receiver's own clock.
    pub age: Latency,
    /// The report itself.
    pub report: HostReport,
}

/// The signal of all hosts together about a resource.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterSignal {
    /// Hosts that were heard in time, this one included. Zero if a machine that is none of them publishes the
    /// latency.
    pub hosts: u32,
    /// Hosts whose last report is too old to count.
    pub stale: u32,
    /// Hosts whose report was so far from the others' that it was not believed as it stands.
    pub adjusted: u32,
    /// Signal that the mean is of.
    pub signal: SignalRequests,
    /// Requests that completed, on all hosts that the signal is of.
    pub completed: u64,
    /// Their mean response time. `None` when none completed.
    pub mean: Option<Latency>,
    /// Throughput of the resource, from all hosts of the signal together.
    pub iops: Iops,
    /// Σr over all hosts that were heard in time: kept only while it is below what the resource completes.
    pub reserved: Iops,
    /// True if a request of the signal is outstanding on any host.
    pub outstanding: bool,
    /// Time since dispatch of the oldest of them at the resource.
    pub oldest: Option<Latency>,
    /// The host whose choice of a set point all follow: of those heard the first by name.
    pub leader: HostName,
    /// True if this host leads.
    pub leads: bool,
    /// The leader's set point; `None` when it does not choose one.
    pub set_point: Option<Latency>,
    /// Reports of the other hosts' self-tuning laws that arrived in time, in the order of the hosts' names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub points: Vec<PeerPoint>,
    /// The loads of all hosts together, for the law `auto`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<ClusterLoad>,
}
