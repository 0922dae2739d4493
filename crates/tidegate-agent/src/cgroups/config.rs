//! The configuration of a device whose cgroups are regulated.

use std::collections::BTreeSet;
use std::time::Duration;

use tidegate_config::{FindingList, PlacedValue, Section, law};
use tidegate_control::{
    LawConfig, LawKind, LoopConfig, PidConfig, SelfTuningConfig, SignalChoice, SignalStatistic,
};
use tidegate_host::cgroup::CgroupPattern;
use tidegate_units::{ConsumerName, Iops, Latency, ResourceName};

/// The keys that only such a resource has.
pub(in super::super) const RESOURCE_KEYS: &[&str] = &["cgroups", "goals", "self_tuning", "bands"];

/// The keys that have a meaning where consumers are initiators.
const OF_INITIATORS: [&str; 8] =
    ["writers", "readers", "weights", "members", "exempt", "portals", "reports", "source"];

/// A device whose cgroups are regulated.
#[derive(Debug, Clone, PartialEq)]
pub struct CgroupConfig {
    /// The control loop. Its resource is the name in the configuration.
    pub law: LoopConfig,
    /// The block device, by its name.
    pub device: String,
    /// The eligible cgroups.
    pub cgroups: Vec<CgroupPattern>,
    /// The rate that each of them may always do.
    pub floor: Iops,
    /// The longest delay that a window comes to, before it becomes rates.
    pub longest: Latency,
    /// The response time that some of them are to have, of the laws that keep goals.
    pub goals: Vec<(CgroupPattern, Latency)>,
    /// Cgroups that an operator has released. No configuration says so.
    pub released: BTreeSet<ConsumerName>,
}

impl CgroupConfig {
    /// The response time that a cgroup is to have: the shortest that is said of it. `None`: the target.
    pub(super) fn goal(&self, cgroup: &ConsumerName) -> Option<Latency> {
        self.goals.iter().filter(|(pattern, _)| pattern.matches(cgroup.as_str())).map(|(_, goal)| *goal).min()
    }
}

/// Reads one; `None` if something is wrong, which is then reported. `pid` and `interval` are what the PID has
/// by default. Its bounds are also those of a law that has none of its own.
pub(in super::super) fn read(
    name: &PlacedValue<&str>,
    section: &Section<'_>,
    pid: PidConfig,
    interval: Duration,
    report: &mut FindingList<'_>,
) -> Option<CgroupConfig> {
    for key in OF_INITIATORS {
        if let Some(value) = section.value(key) {
            report.error_with_help(
                &value.span(),
                format!("`{key}` has no effect with the throttle `cgroup`: only `cgroups` are throttled"),
                "remove it, or choose another throttle",
            );
        }
    }
    for (key, example) in [("device", "\"nvme0n1\""), ("cgroups", "[\"system.slice/backup.service\"]")] {
        if !section.has(key) {
            section.missing(key, example, report);
        }
    }
    let device = section.text("device", report);
    let cgroups =
        section.list::<CgroupPattern>("cgroups", "names no cgroup: nothing could be throttled", report);
    let resource = match ResourceName::new(name.value) {
        Ok(resource) => Some(resource),
        Err(error) => {
            report.error(&name.span, format!("a resource's name: {error}"));
            None
        }
    };
    let goals = goals(section, report);
    let resource = resource?;
    let by = |law| LoopConfig::new(resource.clone(), Latency::ZERO, law);
    let by_reads = |law| LoopConfig { signal: SignalChoice::Reads, ..by(law) };
    let laws = [
        LoopConfig { interval, ..by_reads(LawConfig::Pid(pid)) },
        by_reads(LawConfig::of_kind(LawKind::Auto)),
        by(LawConfig::SelfTuning(SelfTuningConfig::default())),
    ];
    let law = law::read_one_of(section, &laws, report)?;
    if law.statistic != SignalStatistic::Mean {
        report.error(
            &law::place_of_statistic(section),
            "`statistic` can only be `mean` with the throttle `cgroup`",
        );
        return None;
    }
    let floor = law.law.floor().unwrap_or(pid.floor);
    let longest = law.law.longest_delay().unwrap_or(pid.greatest);
    let cgroups: Vec<_> = cgroups?.into_iter().map(|given| given.value).collect();
    // Files of the machine tell which cgroup has a name.
    let is_meant =
        |pattern: &CgroupPattern, name: &ConsumerName| pattern.is_by_name() || pattern.matches(name.as_str());
    let meant = |name: &ConsumerName| cgroups.iter().any(|pattern| is_meant(pattern, name));
    law::check_bands(section, &law, "a cgroup that `cgroups` means", meant, report);
    if matches!(law.law, LawConfig::Pid(_))
        && let Some(span) = section.key_span("goals")
    {
        report.warning(&span, "`goals` has no effect", "the law is `pid`, which keeps one target for all");
    }
    let (device, goals) = (device?.value.to_owned(), goals?);
    Some(CgroupConfig { law, device, cgroups, floor, longest, goals, released: BTreeSet::new() })
}

/// The table `goals`: response times, by the cgroups that they are of.
fn goals(section: &Section<'_>, report: &mut FindingList<'_>) -> Option<Vec<(CgroupPattern, Latency)>> {
    let given = section.named_texts::<Latency>("goals", report)?.into_iter().map(|(name, goal)| {
        let pattern = name.value.parse::<CgroupPattern>();
        let pattern = pattern.map_err(|error| report.error(&name.span, error.to_string())).ok()?;
        if pattern.is_by_name() {
            report.error_with_help(
                &name.span,
                format!("`goals` takes paths of cgroups, and `{pattern}` is a name"),
                "`tidegate check -c FILE` shows the path of each cgroup that is meant",
            );
            return None;
        }
        if goal.value == Latency::ZERO {
            report.error(&goal.span, "a goal must be more than nothing");
            return None;
        }
        Some((pattern, goal.value))
    });
    given.collect::<Vec<_>>().into_iter().collect()
}
