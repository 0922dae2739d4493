//! The configuration of an agent between initiators and an array.

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use tidegate_config::{FindingList, Section};
use tidegate_host::cgroup::looks_like;
use tidegate_host::sense::capture::{LEAST_SNAP, MOST_PORTS, WHOLE_PACKETS};
use tidegate_host::throttle::ThrottleMethod;
use tidegate_units::Bytes;

pub(crate) const BRIDGE_KEYS: &[&str] = tidegate_config::keys::agent::BRIDGE.names;

/// The keys of a resource that select its part of an array.
pub(crate) const RESOURCE_KEYS: [&str; 2] = ["luns", "initiators"];

/// The ports of iSCSI and NVMe/TCP.
pub(crate) const PORTS: [u16; 2] = [3260, 4420];

/// The longest name of an interface.
const LONGEST_INTERFACE: usize = 15;

/// The place of the agent between initiators and an array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BridgeConfig {
    /// The interface that leads to the array.
    pub array: String,
    /// The bytes of each packet that are captured.
    pub capture: u32,
    /// The file that keeps the names of sessions over a restart; `None`: systemd's state directory, if there
    /// is one.
    pub sessions: Option<PathBuf>,
}

/// The LUNs and initiators that a resource is made of. An empty list means all.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ArrayPart {
    /// Targets, or targets with a LUN.
    pub luns: Vec<LunPattern>,
    /// Names of initiators.
    pub initiators: Vec<String>,
}

/// One LUN or several: `TARGET/LUN`, or `TARGET` with all its LUNs. `*` stands for any text.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct LunPattern {
    target: String,
    unit: String,
}

impl FromStr for LunPattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (target, unit) = text.rsplit_once('/').unwrap_or((text, "*"));
        if target.is_empty() || unit.is_empty() {
            return Err(format!(
                "`{}` is no LUN: write TARGET or TARGET/LUN, such as iqn.2026-01.com.example:vg0*/0",
                text.escape_debug()
            ));
        }
        Ok(Self { target: target.to_owned(), unit: unit.to_owned() })
    }
}

impl ArrayPart {
    /// Returns true if an initiator's use of a LUN belongs to it.
    pub(crate) fn contains(&self, initiator: &str, target: &str, unit: &str) -> bool {
        let is_lun = |lun: &LunPattern| looks_like(&lun.target, target) && looks_like(&lun.unit, unit);
        (self.luns.is_empty() || self.luns.iter().any(is_lun))
            && (self.initiators.is_empty() || self.initiators.iter().any(|name| looks_like(name, initiator)))
    }
}

/// Reads the table `[bridge]`; `None` if there is none, or something in it is wrong.
pub(crate) fn read(
    root: &Section<'_>,
    throttle: ThrottleMethod,
    from: &Path,
    report: &mut FindingList<'_>,
) -> Option<BridgeConfig> {
    let table = root.table("bridge", BRIDGE_KEYS, report)?;
    if matches!(throttle, ThrottleMethod::Rate | ThrottleMethod::Cgroup) {
        report.error_with_help(
            table.span(),
            format!(
                "`bridge` cannot be used with the throttle `{throttle}`: an array's writes pass as packets"
            ),
            "choose `netem` or `edt`",
        );
    }
    let array = table.text("array", report);
    if !table.has("array") {
        table.missing("array", "\"eth1\"", report);
    }
    let array = array.filter(|given| {
        let is_name = !given.value.is_empty()
            && given.value.len() <= LONGEST_INTERFACE
            && !given.value.contains(|c: char| c == '/' || c.is_whitespace() || c.is_control());
        if !is_name {
            let wrong = format!("`{}` is no name of an interface", given.value.escape_debug());
            report.error_with_help(&given.span, wrong, "`ip link` lists them");
        }
        is_name
    });
    let capture = table.parsed::<Bytes>("capture", report);
    let capture = match &capture {
        Some(given) if !(u64::from(LEAST_SNAP)..=u64::from(WHOLE_PACKETS)).contains(&given.value.get()) => {
            report.error(&given.span, format!("`capture` is from {LEAST_SNAP} B to 256KiB"));
            None
        }
        Some(given) => u32::try_from(given.value.get()).ok(),
        None => Some(WHOLE_PACKETS),
    };
    let sessions = table.text("sessions", report).map(|given| from.join(given.value));
    Some(BridgeConfig { array: array?.value.to_owned(), capture: capture?, sessions })
}

/// Reports keys of the root that count something else than what passes.
pub(crate) fn check_root(root: &Section<'_>, ports: usize, histograms: bool, report: &mut FindingList<'_>) {
    if ports > MOST_PORTS
        && let Some(value) = root.value("ports")
    {
        report.error(&value.span(), format!("with `bridge` there are at most {MOST_PORTS} ports"));
    }
    if histograms && let Some(value) = root.value("histograms") {
        report.error_with_help(
            &value.span(),
            "`histograms` has no effect with `bridge`: it counts requests of this machine's devices",
            "remove it",
        );
    }
}

/// A text as it is.
struct NamePattern(String);

impl FromStr for NamePattern {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self(text.to_owned()))
    }
}

/// Reads the part of the array that a resource is.
pub(crate) fn array_part(section: &Section<'_>, report: &mut FindingList<'_>) -> Option<ArrayPart> {
    if let Some(value) = section.value("device") {
        report.error_with_help(
            &value.span(),
            "`device` has no effect with `bridge`: the storage is the array's",
            "name its LUNs by `luns`, or its initiators by `initiators`",
        );
        return None;
    }
    if let Some(span) = section.key_span("statistic")
        && section.text("statistic", report).is_some_and(|given| given.value != "mean")
    {
        report.error(&span, "`statistic` can only be `mean` with `bridge`");
        return None;
    }
    if !RESOURCE_KEYS.iter().any(|key| section.has(key)) {
        report.error_with_help(
            section.span(),
            format!("{} names no part of the array", section.what()),
            "add `luns = [\"iqn.2026-01.com.example:vg0*\"]`, or `initiators = [\"*vg0*\"]`",
        );
        return None;
    }
    let luns = section.one_or_more::<LunPattern>("luns", report).unwrap_or_default();
    let initiators = section.one_or_more::<NamePattern>("initiators", report).unwrap_or_default();
    Some(ArrayPart {
        luns: luns.into_iter().map(|given| given.value).collect(),
        initiators: initiators.into_iter().map(|given| given.value.0).collect(),
    })
}

/// Reports the keys of a resource that need a table `[bridge]`.
pub(crate) fn without_bridge(section: &Section<'_>, report: &mut FindingList<'_>) {
    for key in RESOURCE_KEYS {
        if let Some(value) = section.value(key) {
            report.error_with_help(
                &value.span(),
                format!("`{key}` has no effect without `bridge`"),
                "add a table `[bridge]` with the interface that leads to the array, or remove it",
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(luns: &[&str], initiators: &[&str]) -> ArrayPart {
        ArrayPart {
            luns: luns.iter().map(|text| text.parse().unwrap()).collect(),
            initiators: initiators.iter().map(|text| (*text).to_owned()).collect(),
        }
    }

    #[test]
    fn a_part_is_told_by_targets_luns_and_names_of_initiators() {
        let contains = |part: &ArrayPart| part.contains("iqn.a:db-vg0-1", "iqn.array:vol7", "3");
        assert!(contains(&part(&["iqn.array:vol7"], &[])));
        assert!(contains(&part(&["iqn.other", "iqn.array:*/3"], &[])));
        assert!(!contains(&part(&["iqn.array:vol7/2"], &[])));
        assert!(contains(&part(&[], &["*-vg0-*"])));
        assert!(!contains(&part(&["iqn.array:*"], &["*-vg1-*"])), "both must fit");
        assert!("/3".parse::<LunPattern>().is_err() && "a/".parse::<LunPattern>().is_err());
    }
}
