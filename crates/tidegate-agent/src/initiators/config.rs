//! The configuration of reports: `[report_to.NAME]` on initiators, `reports` of a resource where it is
//! regulated.

use std::fs;
use std::path::Path;
use std::time::Duration;

use tidegate_cluster::{ClusterMember, ClusterPlan, ClusterReader, MemberWords, check_cluster, read_cluster};
use tidegate_config::{FindingList, Section};
use tidegate_units::{HostName, Latency, ResourceName};

use crate::pattern::ConsumerPattern;

pub(crate) const REPORT_TO_KEYS: &[&str] = tidegate_config::keys::agent::REPORT_TO.names;

pub(crate) const REPORTS_KEYS: &[&str] = tidegate_config::keys::agent::REPORTS.names;

/// The time between two reports, and between two decisions on them. Chosen: four reports within the second
/// in which a promise is judged. A shorter interval has few requests, and each host takes a datagram.
pub(crate) const REPORT_INTERVAL: Duration = Duration::from_millis(250);

/// The shortest and the longest time between two reports.
const INTERVALS: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(10));

/// The most resources that a host tells of.
const MOST_REPORTS: usize = 64;

/// The words for members of a cluster of an agent.
const WORDS: MemberWords = MemberWords {
    member: "the report or resource",
    none: "the cluster has no use: nothing is reported, and no resource takes reports",
    help: "add `[report_to.NAME]` on an initiator, or `reports = true` to a resource",
};

/// A report of an initiator to the agent that regulates a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InitiatorReportConfig {
    /// The resource, by its name there.
    pub resource: ResourceName,
    /// Names and patterns of this machine's devices that are volumes of it.
    pub devices: Vec<String>,
    /// The time between two reports.
    pub interval: Duration,
}

/// The use that a resource makes of initiators' reports.
#[derive(Debug, Clone, PartialEq)]
pub struct ReportIntakeConfig {
    /// The order in which consumers are throttled.
    pub order: ThrottleOrder,
    /// Initiators whose reports need no witness.
    pub believed: Vec<ConsumerPattern>,
}

/// The order in which eligible consumers are throttled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ThrottleOrder {
    /// All alike.
    #[default]
    Alike,
    /// Consumers without an agent first.
    WithoutAgentFirst,
}

/// Reads `reports` of a resource.
pub(crate) fn reports(section: &Section<'_>, report: &mut FindingList<'_>) -> Option<ReportIntakeConfig> {
    let plain = ReportIntakeConfig { order: ThrottleOrder::Alike, believed: Vec::new() };
    if let Some(takes) = section.value("reports")?.get_ref().as_bool() {
        return takes.then_some(plain);
    }
    let table = section.table("reports", REPORTS_KEYS, report)?;
    let orders = [("alike", ThrottleOrder::Alike), ("first", ThrottleOrder::WithoutAgentFirst)];
    let order = table.choice("without_agent", &orders, report).map(|given| given.value);
    let believed = table.one_or_more::<ConsumerPattern>("believe", report).unwrap_or_default();
    Some(ReportIntakeConfig {
        order: order.unwrap_or_default(),
        believed: believed.into_iter().map(|given| given.value).collect(),
    })
}

/// Reads the tables `[report_to.NAME]`, each with its place.
pub(crate) fn report_to(
    root: &Section<'_>,
    report: &mut FindingList<'_>,
) -> Vec<(InitiatorReportConfig, ClusterMember)> {
    let tables = root.named_tables("report_to", REPORT_TO_KEYS, report).unwrap_or_default();
    if tables.len() > MOST_REPORTS {
        report.error(root.span(), format!("an initiator reports on {MOST_REPORTS} resources at the most"));
    }
    let mut reports = Vec::new();
    for (name, table) in tables {
        let resource = ResourceName::new(name.value)
            .map_err(|error| report.error(&name.span, format!("a resource's name: {error}")));
        if !table.has("device") {
            table.missing("device", "\"sdb\"", report);
        }
        let devices = table.one_or_more::<String>("device", report).unwrap_or_default();
        if let Some(value) = table.value("device").filter(|_| devices.iter().all(|one| one.value.is_empty()))
        {
            report.error(&value.span(), "`device` names no device: there would be nothing to report");
        }
        let interval = table.parsed::<Latency>("interval", report);
        let (shortest, longest) = INTERVALS;
        if let Some(given) = &interval
            && !(shortest..=longest).contains(&given.value.to_duration())
        {
            report.error(&given.span, "`interval` is within 50ms and 10s");
        }
        let interval = interval.map_or(REPORT_INTERVAL, |given| given.value.to_duration());
        let Ok(resource) = resource else { continue };
        let member =
            ClusterMember { resource: resource.clone(), interval: Some(interval), span: name.span.clone() };
        let devices = devices.into_iter().map(|given| given.value).collect();
        reports.push((InitiatorReportConfig { resource, devices, interval }, member));
    }
    reports
}

/// Reads `[cluster]`, for `members`. Files are only looked at if there is a `folder`.
pub(crate) fn cluster(
    root: &Section<'_>,
    members: &[ClusterMember],
    folder: Option<&Path>,
    report: &mut FindingList<'_>,
) -> Option<ClusterPlan> {
    let default_host = folder.filter(|_| root.has("report_to")).and_then(|_| storage_name(Path::new("/")));
    let from = folder.unwrap_or(Path::new(""));
    let mut reader = ClusterReader { report, folder: from, files: Vec::new(), words: WORDS, default_host };
    let plan = read_cluster(root, members, &mut reader)?;
    if folder.is_some() {
        reader.check_files();
        check_cluster(&plan, report);
    }
    Some(plan.value)
}

/// Returns the name by which this machine's initiator logs in, so that its target knows whose report it is:
/// that of iSCSI, or that of NVMe.
fn storage_name(root: &Path) -> Option<HostName> {
    let read = |path: &str| fs::read_to_string(root.join(path)).ok();
    let iscsi = read("etc/iscsi/initiatorname.iscsi").and_then(|text| {
        let mut names = text.lines().filter_map(|line| line.trim().strip_prefix("InitiatorName="));
        names.next_back().map(|name| name.trim().to_owned())
    });
    let name = iscsi.or_else(|| read("etc/nvme/hostnqn").map(|text| text.trim().to_owned()))?;
    HostName::new(&name).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_initiator_reports_under_the_name_that_its_target_knows() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(storage_name(folder.path()), None);
        for (path, text) in [
            ("etc/nvme/hostnqn", "nqn.2014-08.org.nvmexpress:uuid:1\n"),
            ("etc/iscsi/initiatorname.iscsi", "## a comment\nInitiatorName=iqn.2026-01.org:db1\n"),
        ] {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
            let name = storage_name(folder.path()).unwrap();
            assert!(text.contains(name.as_str()));
        }
        assert_eq!(storage_name(folder.path()).unwrap().as_str(), "iqn.2026-01.org:db1");
    }
}
