//! Status that a carrier reports of itself.

use std::fmt;

use serde::Serialize;
use tidegate_units::{HostName, Latency, ResourceName};

use crate::name::ClusterName;
use crate::rejection::RejectionCounts;

/// The kind of carrier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CarrierKind {
    /// Datagrams.
    Udp,
    /// A shared file or block device.
    File,
    /// A NATS server.
    Nats,
}

impl CarrierKind {
    /// Its name in a configuration and in metrics.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Udp => "udp",
            Self::File => "file",
            Self::Nats => "nats",
        }
    }
}

impl fmt::Display for CarrierKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Udp => "UDP",
            Self::File => "shared file",
            Self::Nats => "NATS",
        })
    }
}

/// The state of the exchange with the other hosts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ClusterStatus {
    /// The cluster.
    pub cluster: ClusterName,
    /// Our name in it.
    pub host: HostName,
    /// The carrier of the reports.
    pub carrier: CarrierKind,
    /// True if the carrier works, as far as it can tell.
    pub up: bool,
    /// The reason why it does not work; or, while it works, the trouble that remains.
    pub reason: Option<String>,
    /// The slot of this host in a shared file; `None`: none yet, or another carrier.
    pub slot: Option<u16>,
    /// The hosts that were heard, by name. Hosts that went silent stay for a while.
    pub peers: Vec<PeerStatus>,
    /// Names that two live hosts bear, ours among them if another one uses it.
    pub duplicates: Vec<HostName>,
    /// Messages sent, or blocks written.
    pub sent: u64,
    /// Messages, or changed blocks, that were taken.
    pub taken: u64,
    /// Messages, or changed blocks, that were not.
    pub rejected: RejectionCounts,
    /// Reports of ours that were not sent: we tell of too many resources, or the carrier has no room for
    /// them.
    pub unpublished: u64,
}

/// Another host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PeerStatus {
    /// Its name.
    pub host: HostName,
    /// The time since it was last heard.
    pub age: Latency,
    /// The time since its last report arrived; `None`: it has reported nothing yet.
    pub report_age: Option<Latency>,
    /// It was silent for more than three intervals.
    pub stale: bool,
    /// The resources that it reports on.
    pub resources: Vec<ResourceName>,
}
