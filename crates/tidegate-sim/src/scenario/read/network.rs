//! `[network]`.

use tidegate_config::Section;
use tidegate_units::Latency;

use super::host::{HostTemplates, referred};
use super::{ScenarioContext, ScenarioSpan};
use crate::scenario::{NetworkPartition, Scenario};

pub(super) const KEYS: &[&str] = tidegate_config::keys::scenario::NETWORK.names;
pub(super) const PARTITION_KEYS: &[&str] = tidegate_config::keys::scenario::PARTITION.names;

/// Reads the network, after the hosts.
pub(super) fn read(
    root: &Section<'_>,
    templates: &HostTemplates,
    scenario: &mut Scenario,
    context: &mut ScenarioContext<'_, '_>,
) {
    let report = &mut context.report;
    let Some(table) = root.table("network", KEYS, report) else { return };
    if let Some(delay) = table.parsed::<Latency>("delay", report) {
        scenario.network.delay = delay.value;
    }
    if let Some(jitter) = table.parsed::<Latency>("jitter", report) {
        scenario.network.jitter = jitter.value;
    }
    if let Some(loss) = table.number("loss", report) {
        scenario.network.loss = loss.value;
        if !(0.0..=1.0).contains(&loss.value) {
            report.error(&loss.span, "`loss` is a part, 0 to 1");
        }
    }
    if let Some(stagger) = table.whole("stagger", 1..=100, report) {
        stagger_phases(scenario, stagger.value as u32);
    }
    for partition in table.tables("partitions", PARTITION_KEYS, &mut context.report) {
        for (key, example) in [("during", "\"100s..160s\""), ("hosts", "[\"NAME\"]")] {
            if !partition.has(key) {
                partition.missing(key, example, &mut context.report);
            }
        }
        let during = partition.parsed::<ScenarioSpan>("during", &mut context.report);
        let mut hosts = Vec::new();
        for given in partition.one_or_more::<String>("hosts", &mut context.report).unwrap_or_default() {
            match referred(&given.value, templates, &context.places.hosts) {
                Some(referred) => hosts.extend(referred),
                None => {
                    let known = templates.keys().map(String::as_str).collect();
                    context.report.unknown(&given, "host", known);
                }
            }
        }
        if let Some(during) = during {
            scenario.network.partitions.push(NetworkPartition { during: during.value, hosts });
        }
    }
}

/// Spreads the steps of the hosts evenly over so many points of their interval. One that has a phase keeps
/// it.
fn stagger_phases(scenario: &mut Scenario, points: u32) {
    for (at, host) in (0u32..).zip(&mut scenario.hosts) {
        if let (true, Some(law)) = (host.phase.is_zero(), &host.law) {
            host.phase = law.interval * (at % points) / points;
        }
    }
}
