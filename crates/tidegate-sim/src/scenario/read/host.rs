//! `[host.NAME]`.

use std::collections::BTreeMap;
use std::ops::Range;

use tidegate_config::law::{self, AvailableLaws, LawReader};
use tidegate_config::{FindingList, PlacedValue, Section, bursts, release};
use tidegate_control::{BetaScale, LoopConfig, WindowConfig};
use tidegate_sched::Discipline;
use tidegate_units::{HostName, Instant, Latency, ResourceName};

use super::{ScenarioContext, ScenarioSpan, ThingRoom, array, copies};
use crate::engine::{GREATEST_DEPTH, MOST_HOSTS};
use crate::scenario::{LawScope, Scenario, ScenarioHost, SignalSource};

pub(super) const KEYS: &[&str] = tidegate_config::keys::scenario::HOST.names;

/// The names of a template's hosts, in their order.
pub(super) type HostTemplates = BTreeMap<String, Vec<HostName>>;

/// Reads the hosts.
pub(super) fn read(
    root: &Section<'_>,
    scenario: &mut Scenario,
    context: &mut ScenarioContext<'_, '_>,
) -> HostTemplates {
    let mut templates = HostTemplates::new();
    let Some(tables) = root.named_tables("host", KEYS, &mut context.report) else { return templates };
    if !root.has("host") {
        let help = "add a table `[host.NAME]`";
        context.report.error_with_help(root.span(), "the scenario has no hosts", help);
    }
    let mut given = Vec::new();
    let mut count = 0;
    let mut laws = LawCounts::new();
    for (name, table) in tables {
        let array = array_of(&table, scenario, context);
        let names = names(&name, &table, count, context);
        count += names.len();
        if let Some(array) = array.as_ref().filter(|_| has_law(&table)) {
            *laws.entry(array.clone()).or_default() += names.len();
        }
        given.push((name, table, array, names));
    }
    for (name, table, array, names) in given {
        let first = names.first().cloned();
        if let Some(host) = first.and_then(|first| host(&table, &first, array, &laws, context)) {
            if let Some(law) = &host.law {
                let array = scenario.arrays.iter().find(|array| array.name == host.array);
                let unloaded = array.and_then(|array| array.device.unloaded_latency().ok());
                law::warn_of_harm(&table, law, unloaded, &mut context.report);
            }
            for copy in &names {
                context.places.hosts.insert(copy.to_string(), name.span.clone());
                scenario.hosts.push(ScenarioHost { name: copy.clone(), ..host.clone() });
            }
        }
        templates.insert(name.value.to_owned(), names);
    }
    templates
}

/// The number of hosts with a law, by array.
type LawCounts = BTreeMap<ResourceName, usize>;

/// Returns true if a law regulates the host, by the same rule as the law's reader.
fn has_law(table: &Section<'_>) -> bool {
    match table.value("law").and_then(|law| law.get_ref().as_str()) {
        Some(law) => law != "none",
        None => table.has("target"),
    }
}

/// The names of the hosts that a table describes: one, or those of a template. `given` hosts are there
/// already.
fn names(
    name: &PlacedValue<&str>,
    table: &Section<'_>,
    given: usize,
    context: &mut ScenarioContext<'_, '_>,
) -> Vec<HostName> {
    let mut names = Vec::new();
    let room = ThingRoom { kind: "hosts", given, most: MOST_HOSTS };
    for copy in copies(table, name.value, &room, &mut context.report) {
        match HostName::new(&copy) {
            Ok(host) => names.push(host),
            Err(error) => {
                context.report.error(&name.span, format!("a host's name: {error}"));
                break;
            }
        }
    }
    names
}

/// The array of a host; the only one there is, where nothing is said.
fn array_of(
    table: &Section<'_>,
    scenario: &Scenario,
    context: &mut ScenarioContext<'_, '_>,
) -> Option<ResourceName> {
    if table.has("array") {
        return array::reference(table, "array", context).map(|given| given.value);
    }
    match &scenario.arrays[..] {
        [only] => Some(only.name.clone()),
        arrays => {
            if arrays.len() > 1 {
                table.missing("array", &format!("\"{}\"", arrays[0].name), &mut context.report);
            }
            None
        }
    }
}

fn host(
    table: &Section<'_>,
    name: &HostName,
    array: Option<ResourceName>,
    laws_of: &LawCounts,
    context: &mut ScenarioContext<'_, '_>,
) -> Option<ScenarioHost> {
    let report = &mut context.report;
    // The law is read also where the array is wrong: its mistakes are worth knowing at the same time.
    let resource = array.clone().or_else(|| ResourceName::new("unknown").ok())?;
    let scopes = [("host", LawScope::Host), ("vm", LawScope::Vm)];
    let scope = table.choice("scope", &scopes, report).map(|given| given.value);
    let shared = scope == Some(LawScope::Vm) || laws_of.get(&resource).is_some_and(|&hosts| hosts > 1);
    let window = window_defaults(table, shared, report);
    let laws = AvailableLaws { reader: LawReader::Scenario, window, rates: true };
    let law = law::read(table, &resource, laws, report);
    let mut host = ScenarioHost::new(name.clone(), resource);
    host.law = law;
    statistic(table, &mut host, report);
    if let Some(depth) = table.whole("depth", 1..=u64::from(GREATEST_DEPTH), report) {
        host.depth = depth.value as u32;
    }
    let signals = [("local", SignalSource::Local), ("cluster", SignalSource::Cluster)];
    host.signal = table.choice("signal", &signals, report).map_or(host.signal, |given| given.value);
    host.scope = scope.unwrap_or(host.scope);
    let disciplines = [("sfq", Discipline::StartTags), ("yfq", Discipline::FinishTags)];
    host.discipline =
        table.choice("scheduler", &disciplines, report).map_or(host.discipline, |given| given.value);
    host.release = release::read(table, report);
    without_effect(table, host.law.as_ref(), report);
    if let Some(phase) = table.parsed::<Latency>("phase", report) {
        host.phase = phase.value.to_duration();
    }
    if let Some(from) = table.parsed::<Latency>("law_from", report) {
        host.law_from = Instant::ZERO + from.value;
    }
    host.batch = Some(bursts::batch(table, report));
    host.idle_credit = bursts::idle_credit(table, report);
    if let Some(down) = table.one_or_more::<ScenarioSpan>("down", report) {
        host.down = down.into_iter().map(|span| span.value).collect();
    }
    if let Some(factor) = table.number("reported_factor", report) {
        host.reported_factor = factor.value;
        if factor.value < 0.0 {
            report.error(&factor.span, "`reported_factor` must not be negative");
        }
    }
    array.map(|_| host)
}

/// Reads the statistic by which virtual machines are judged, and by which the law steers.
fn statistic(table: &Section<'_>, host: &mut ScenarioHost, report: &mut FindingList<'_>) {
    let Some(statistic) = law::statistic(table, report) else { return };
    host.statistic = statistic;
    if let Some(law) = &mut host.law {
        law::set_statistic(law, statistic, table, report);
    }
}

/// Returns the defaults that `beta_scale` selects. Without it, they are the gateway's for a resource that is
/// `shared`, or not.
fn window_defaults(table: &Section<'_>, shared: bool, report: &mut FindingList<'_>) -> WindowConfig {
    let scales = [("per-share", BetaScale::PerShare), ("relative", BetaScale::Relative)];
    match table.choice("beta_scale", &scales, report).map(|given| given.value) {
        Some(scale) => WindowConfig::for_resource(scale == BetaScale::PerShare),
        None => WindowConfig::for_resource(shared),
    }
}

fn without_effect(table: &Section<'_>, law: Option<&LoopConfig>, report: &mut FindingList<'_>) {
    // A law that is written, and wrong, is reported as that.
    if law.is_some() || table.has("target") {
        return;
    }
    for key in ["beta_scale", "signal", "scope", "phase", "law_from", "reported_factor", "release"] {
        if let Some(span) = table.key_span(key) {
            report.warning(&span, format!("`{key}` has no effect"), format!("{} has no law", table.what()));
        }
    }
}

/// The hosts that a name means: those of a template, or one.
pub(super) fn referred<'a>(
    name: &str,
    templates: &'a HostTemplates,
    hosts: &'a std::collections::HashMap<String, Range<usize>>,
) -> Option<Vec<HostName>> {
    if let Some(names) = templates.get(name) {
        return Some(names.clone());
    }
    hosts.contains_key(name).then(|| HostName::new(name).ok().into_iter().collect())
}
