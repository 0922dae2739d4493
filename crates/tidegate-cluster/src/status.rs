//! What a carrier says of itself.

use std::fmt;

use serde::Serialize;
use tidegate_units::{HostName, Latency, ResourceName};

use crate::name::ClusterName;
use crate::rejection::Rejected;

/// Which carrier it is.
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

/// How the exchange with the other hosts goes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ClusterStatus {
    /// The cluster.
    pub cluster: ClusterName,
    /// Our name in it.
    pub host: HostName,
    /// What carries the reports.
    pub carrier: CarrierKind,
    /// Whether the carrier works, as far as it can tell.
    pub up: bool,
    /// Why it does not; or, while it works, what is not as it should be.
    pub reason: Option<String>,
    /// Who was heard, by name; those who went silent stay for a while.
    pub peers: Vec<PeerStatus>,
    /// Names that two live hosts bear, ours among them if another one uses it.
    pub duplicates: Vec<HostName>,
    /// Messages sent, or blocks written.
    pub sent: u64,
    /// Messages, or changed blocks, that were taken.
    pub taken: u64,
    /// Messages, or changed blocks, that were not.
    pub rejected: Rejected,
    /// Reports of ours that were not sent: we tell of too many resources, or the carrier has no room for
    /// them.
    pub unpublished: u64,
}

/// Another host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PeerStatus {
    /// Its name.
    pub host: HostName,
    /// How long ago it was heard.
    pub age: Latency,
    /// It was silent for more than three intervals.
    pub stale: bool,
    /// What it tells of.
    pub resources: Vec<ResourceName>,
}
