//! What is said of a device whose cgroups are regulated.

use std::time::Duration;

use tidegate_config::{Given, Report, Section, law};
use tidegate_control::{Law, LoopConfig, PidConfig, SignalChoice, SignalStatistic};
use tidegate_host::cgroup::CgroupPattern;
use tidegate_units::{Iops, Latency, ResourceName};

/// The keys that only such a resource has.
pub(in super::super) const RESOURCE_KEYS: &[&str] = &["cgroups"];

/// What tells who may be held where these are initiators.
const OF_INITIATORS: [&str; 3] = ["writers", "members", "exempt"];

/// A device whose cgroups are regulated.
#[derive(Debug, Clone, PartialEq)]
pub struct CgroupConfig {
    /// How. Its resource is the name in the configuration.
    pub law: LoopConfig,
    /// The block device, by its name.
    pub device: String,
    /// Who may be held.
    pub cgroups: Vec<CgroupPattern>,
    /// What each of them may always do.
    pub floor: Iops,
}

impl CgroupConfig {
    /// Whether what others do to the device is a part of what the law steers by.
    pub(super) fn hears_others(&self) -> bool {
        self.law.signal == SignalChoice::Reads
    }
}

/// Reads one; `None` if something is wrong, which is then reported. `pid` and `interval` are what the PID has by default.
pub(in super::super) fn read(
    name: &Given<&str>,
    section: &Section<'_>,
    pid: PidConfig,
    interval: Duration,
    report: &mut Report<'_>,
) -> Option<CgroupConfig> {
    for key in OF_INITIATORS {
        if let Some(value) = section.value(key) {
            report.error_with_help(
                &value.span(),
                format!("`{key}` has no effect with the throttle `cgroup`: nobody but `cgroups` is held"),
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
    let cgroups = section.list::<CgroupPattern>("cgroups", "names no cgroup: nobody could be held", report);
    let resource = match ResourceName::new(name.value) {
        Ok(resource) => Some(resource),
        Err(error) => {
            report.error(&name.span, format!("a resource's name: {error}"));
            None
        }
    };
    let mut defaults = LoopConfig::new(resource?, Latency::ZERO, Law::Pid(pid));
    defaults.interval = interval;
    defaults.signal = SignalChoice::Reads;
    let law = law::read_one_of(section, &[defaults], report)?;
    if law.statistic != SignalStatistic::Mean {
        let place = section.value("statistic").map_or_else(|| section.span().clone(), toml::Spanned::span);
        report.error(&place, "`statistic` can only be `mean` with the throttle `cgroup`");
        return None;
    }
    let Law::Pid(PidConfig { floor, .. }) = law.law else { return None };
    let cgroups: Vec<_> = cgroups?.into_iter().map(|given| given.value).collect();
    Some(CgroupConfig { law, device: device?.value.to_owned(), cgroups, floor })
}
