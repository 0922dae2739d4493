//! The exchange with other hosts, as the document has it.

use serde::{Deserialize, Serialize};
use tidegate_cluster::PeerStatus;

use super::laws::seconds;

/// The exchange with the hosts of a cluster.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClusterStatus {
    /// The cluster's name.
    pub name: String,
    /// The name of this host in it.
    pub host: String,
    /// The carrier: `udp`, `file` or `nats`.
    pub carrier: String,
    /// True while the carrier works, as far as it can tell.
    pub up: bool,
    /// The reason why the carrier does not work; while it works, the trouble that remains.
    pub reason: Option<String>,
    /// The slot of this host in a shared file. `null`: none yet, or another carrier.
    pub slot: Option<u16>,
    /// The other hosts, by name. A silent host stays for 150 intervals.
    pub members: Vec<MemberStatus>,
    /// Names that two live hosts use, the one of this host among them.
    pub duplicates: Vec<String>,
}

/// Another host of the cluster.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MemberStatus {
    /// Its name.
    pub name: String,
    /// The age of its last report, since it arrived here. `null`: it has reported nothing yet.
    pub report_age_seconds: Option<f64>,
    /// The time since it was last heard, with a report or without.
    pub heard_age_seconds: f64,
    /// True if it was silent for more than three intervals: it does not count.
    pub stale: bool,
    /// The pools that it reports on.
    pub pools: Vec<String>,
}

impl From<&tidegate_cluster::ClusterStatus> for ClusterStatus {
    fn from(cluster: &tidegate_cluster::ClusterStatus) -> Self {
        let member = |peer: &PeerStatus| MemberStatus {
            name: peer.host.to_string(),
            report_age_seconds: seconds(peer.report_age),
            heard_age_seconds: peer.age.as_secs_f64(),
            stale: peer.stale,
            pools: peer.resources.iter().map(ToString::to_string).collect(),
        };
        Self {
            name: cluster.cluster.to_string(),
            host: cluster.host.to_string(),
            carrier: cluster.carrier.label().to_owned(),
            up: cluster.up,
            reason: cluster.reason.clone(),
            slot: cluster.slot,
            members: cluster.peers.iter().map(member).collect(),
            duplicates: cluster.duplicates.iter().map(ToString::to_string).collect(),
        }
    }
}
