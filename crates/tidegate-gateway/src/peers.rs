//! The seam to the other hosts that share a pool's resource.

use std::fmt;
use std::sync::Arc;

use tidegate_control::{HeardReport, HostReport};
use tidegate_journal::JournalWriter;
use tidegate_units::HostName;

/// The other hosts that share a pool's resource. The program that composes a gateway with a carrier
/// implements it; see [`Gateway::start_among`](crate::Gateway::start_among).
///
/// A pool's worker calls this once per control interval, between requests. Neither call may block: a report
/// that cannot be sent now is replaced by the next one, and a report that was not heard is not returned.
pub trait PeerReports: fmt::Debug + Send + Sync {
    /// This host's own name among them.
    fn host(&self) -> &HostName;

    /// Tells them what this host measured in the control interval that ends now.
    fn publish(&self, report: HostReport);

    /// Returns the last report of each of them.
    fn heard(&self) -> Vec<HeardReport>;
}

/// The parties that hear of a pool's decisions.
#[derive(Debug, Default)]
pub(crate) struct PoolPartners {
    /// The other hosts that share the resource, if any do.
    pub(crate) peers: Option<Arc<dyn PeerReports>>,
    /// The decision journal, if decisions are kept.
    pub(crate) journal: Option<JournalWriter>,
}
