//! A pool of the gateway as a member of a cluster of hosts.

use std::sync::Arc;

use tidegate_cluster::ClusterHandle;
use tidegate_control::{HeardReport, HostReport};
use tidegate_gateway::PeerReports;
use tidegate_units::{HostName, ResourceName};

/// The other hosts that share one pool's resource.
#[derive(Debug)]
pub(crate) struct PoolPeers {
    pub(crate) cluster: Arc<ClusterHandle>,
    pub(crate) host: HostName,
    pub(crate) resource: ResourceName,
}

impl PeerReports for PoolPeers {
    fn host(&self) -> &HostName {
        &self.host
    }

    fn publish(&self, report: HostReport) {
        self.cluster.publish(&self.resource, report);
    }

    fn heard(&self) -> Vec<HeardReport> {
        self.cluster.heard(&self.resource)
    }
}
