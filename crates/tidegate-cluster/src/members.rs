//! Hosts that come and go, for the log.

use std::fmt;

use tidegate_units::{HostName, Instant};

use crate::name::ClusterName;
use crate::notice::LogBudget;

/// The names in one line of the log; of others it has the number.
const MOST_NAMED: usize = 16;

/// Changes among the other hosts since the log was last told.
#[derive(Debug, Default)]
pub(crate) struct MemberChanges {
    /// Hosts that were heard for the first time.
    pub(crate) came: HostList,
    /// Hosts that were not heard for three intervals.
    pub(crate) silent: HostList,
    /// Silent hosts that are heard again.
    pub(crate) back: HostList,
    /// Hosts that started again before they counted as silent.
    pub(crate) restarted: HostList,
    /// Hosts that took their leave.
    pub(crate) left: HostList,
}

/// Some hosts, of which the first are named.
#[derive(Debug, Default)]
pub(crate) struct HostList {
    named: Vec<HostName>,
    others: usize,
}

impl HostList {
    pub(crate) fn add(&mut self, host: HostName) {
        if self.named.len() < MOST_NAMED {
            self.named.push(host);
        } else {
            self.others += 1;
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.named.is_empty()
    }
}

impl fmt::Display for HostList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.named.iter().map(HostName::as_str).collect();
        write!(f, "{} {}", if names.len() == 1 { "host" } else { "hosts" }, names.join(", "))?;
        if self.others > 0 { write!(f, " and {} others", self.others) } else { Ok(()) }
    }
}

/// The lines about hosts that come and go, by kind: the log has few of each in a minute.
#[derive(Debug, Default)]
pub(crate) struct MemberNotices {
    silent: LogBudget,
    back: LogBudget,
    others: LogBudget,
}

impl MemberNotices {
    pub(crate) fn say(&mut self, now: Instant, cluster: &ClusterName, changes: &MemberChanges) {
        let MemberChanges { came, silent, back, restarted, left } = changes;
        if let Some(more) = self.others.due(now, left) {
            tracing::info!("cluster {cluster}: {left} left{more}");
        }
        if let Some(more) = self.silent.due(now, silent) {
            tracing::warn!(
                "cluster {cluster}: {silent} fell silent, and will not count until heard again{more}"
            );
        }
        if let Some(more) = self.others.due(now, came) {
            tracing::info!("cluster {cluster}: {came} joined{more}");
        }
        if let Some(more) = self.back.due(now, back) {
            tracing::info!("cluster {cluster}: {back} came back{more}");
        }
        if let Some(more) = self.back.due(now, restarted) {
            tracing::info!("cluster {cluster}: {restarted} restarted{more}");
        }
    }
}

impl LogBudget {
    /// Returns the end of a line about `hosts` if there are some, and there may be a line now.
    fn due(&mut self, now: Instant, hosts: &HostList) -> Option<String> {
        if hosts.is_empty() {
            return None;
        }
        let left_out = self.take(now)?;
        Some(if left_out > 0 { format!(" ({left_out} such lines left out before)") } else { String::new() })
    }
}
