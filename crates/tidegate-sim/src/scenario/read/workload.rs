//! `[workload.NAME]`.

use std::collections::BTreeMap;

use tidegate_config::{FindingList, PlacedValue, Section};
use tidegate_units::{Bytes, Instant, Iops, Latency};

use super::template::{STEP_KEYS, WorkloadTemplate, size};
use super::{ScenarioContext, ScenarioSpan, profile, trace};
use crate::scenario::{
    ActivityCycle, ArrivalSpacing, DiskRegion, Durability, OperationArrivals, OperationStep, SizeWeights,
    ThinkTime, ThinkTiming, Workload,
};

pub(super) const KEYS: &[&str] = tidegate_config::keys::scenario::WORKLOAD.names;
pub(super) const SIZE_KEYS: &[&str] = tidegate_config::keys::scenario::WEIGHTED_SIZE.names;
pub(super) const REGION_KEYS: &[&str] = tidegate_config::keys::scenario::REGION.names;
pub(super) const CYCLE_KEYS: &[&str] = tidegate_config::keys::scenario::CYCLE.names;

/// Keys that decide when operations begin, each with the keys that go with it. A workload has one of them.
const KINDS: &[(&str, &[&str])] = &[
    ("outstanding", &["think", "think_time"]),
    ("rate", &["spacing", "limit"]),
    ("after", &["every", "threads", "backlog"]),
    ("trace", &["speed", "repeat"]),
    ("profile", &["threads", "think", "think_time"]),
];

/// What to do about load that begins after the end.
pub(super) const LATE_LOAD: &str = "write a longer `duration`, or an earlier time";

/// What to do about a trace that begins after the end.
const LATE_TRACE: &str = "its times must count from its beginning: subtract the first from all of them";

/// The highest rate of an open loop, in operations per second: more than a client sends.
const HIGHEST_RATE: f64 = 1e6;

/// Default limit of an open loop's operations under way: a client with patience.
const DEFAULT_LIMIT: u32 = 10_000;

/// Default size of a request: PARDA's micro-benchmark (§5.2).
const DEFAULT_SIZE: u32 = 16 * 1024;

/// Workloads by name; a profile is several. `None`: the workload has an error, which is reported.
pub(super) type WorkloadTemplates = BTreeMap<String, Option<Vec<WorkloadTemplate>>>;

/// Reads the workloads.
pub(super) fn read(root: &Section<'_>, context: &mut ScenarioContext<'_, '_>) -> WorkloadTemplates {
    let mut templates = WorkloadTemplates::new();
    let Some(tables) = root.named_tables("workload", KEYS, &mut context.report) else { return templates };
    let names: Vec<String> = tables.iter().map(|(name, _)| name.value.to_owned()).collect();
    for (name, table) in tables {
        let template = workload(&name, &table, &names, context);
        templates.insert(name.value.to_owned(), template);
    }
    templates
}

fn workload(
    name: &PlacedValue<&str>,
    table: &Section<'_>,
    names: &[String],
    context: &mut ScenarioContext<'_, '_>,
) -> Option<Vec<WorkloadTemplate>> {
    let kind = kind(table, &mut context.report)?;
    let during = table.one_or_more::<ScenarioSpan>("during", &mut context.report);
    for span in during.iter().flatten() {
        context.warn_of_late("this load", span.value.from, &span.span, LATE_LOAD);
    }
    let during =
        during.map_or(vec![ScenarioSpan::ALWAYS], |spans| spans.into_iter().map(|span| span.value).collect());
    let cycle = cycle(table, &mut context.report);
    if let (Some(cycle), Some(span)) = (cycle, table.key_span("cycle")) {
        context.warn_of_late("this load", Instant::ZERO + cycle.delay, &span, LATE_LOAD);
    }
    let report = &mut context.report;
    let mut templates = match kind {
        "profile" => {
            let profiles = [("oltp", profile::WorkloadProfile::Oltp)];
            let profile = table.choice("profile", &profiles, report)?.value;
            profile::read(profile, name.value, table, think(table, report), report)
        }
        "trace" => {
            for key in STEP_KEYS.iter().chain(&["steps"]) {
                if let Some(span) = table.key_span(key) {
                    report.error(&span, format!("`{key}` is what the trace says"));
                }
            }
            let arrivals = trace(table, context)?;
            let name = name.value.to_owned();
            let workload = Workload {
                name,
                arrivals,
                steps: Vec::new(),
                operations: 1,
                during: Vec::new(),
                cycle: None,
            };
            vec![WorkloadTemplate { workload, volumes: Vec::new() }]
        }
        _ => {
            let arrivals = match kind {
                "outstanding" => closed(table, report),
                "rate" => open(table, report),
                _ => after(table, name.value, names, report),
            };
            let (steps, volumes) = steps(table, report).into_iter().unzip();
            let name = name.value.to_owned();
            let workload =
                Workload { name, arrivals: arrivals?, steps, operations: 1, during: Vec::new(), cycle: None };
            vec![WorkloadTemplate { workload, volumes }]
        }
    };
    for template in &mut templates {
        template.workload.during.clone_from(&during);
        template.workload.cycle = cycle;
    }
    Some(templates)
}

/// Returns the key of [`KINDS`] that is given. Keys that go with another are reported.
fn kind(table: &Section<'_>, report: &mut FindingList<'_>) -> Option<&'static str> {
    let mut given = KINDS.iter().filter(|(key, _)| table.has(key));
    let Some((kind, own)) = given.next() else {
        table.missing("outstanding", "32", report);
        return None;
    };
    if let Some((second, _)) = given.next() {
        let span = table.key_span(second).unwrap_or_else(|| table.span().clone());
        report.error(&span, format!("`{kind}` and `{second}` exclude each other"));
        return None;
    }
    for (other, keys) in KINDS {
        for key in keys.iter().filter(|key| !own.contains(key) && !STEP_KEYS.contains(key)) {
            if let Some(span) = table.key_span(key) {
                report.error(&span, format!("`{key}` goes with `{other}`, and this has `{kind}`"));
            }
        }
    }
    Some(kind)
}

fn closed(table: &Section<'_>, report: &mut FindingList<'_>) -> Option<OperationArrivals> {
    let outstanding = table.whole("outstanding", 1..=65_536, report);
    let think = think(table, report);
    Some(OperationArrivals::Closed { outstanding: outstanding?.value as u32, think })
}

fn think(table: &Section<'_>, report: &mut FindingList<'_>) -> ThinkTiming {
    let distributions = [
        ("constant", ThinkTime::Constant),
        ("exponential", ThinkTime::Exponential),
        ("uniform", ThinkTime::Uniform),
    ];
    let mean = table.parsed::<Latency>("think", report).map_or(Latency::ZERO, |think| think.value);
    let distribution = table.choice("think_time", &distributions, report);
    ThinkTiming { mean, distribution: distribution.map_or(ThinkTime::default(), |given| given.value) }
}

fn open(table: &Section<'_>, report: &mut FindingList<'_>) -> Option<OperationArrivals> {
    let rate = table.parsed::<Iops>("rate", report);
    if let Some(rate) = rate.as_ref().filter(|rate| rate.value == Iops::ZERO) {
        report.error(&rate.span, "`rate` must be more than nothing");
    }
    if let Some(rate) = rate.as_ref().filter(|rate| rate.value.per_second() > HIGHEST_RATE) {
        report.error(&rate.span, format!("`rate` must be at most {HIGHEST_RATE} IO/s"));
    }
    let spacings = [("poisson", ArrivalSpacing::Poisson), ("even", ArrivalSpacing::Even)];
    let spacing =
        table.choice("spacing", &spacings, report).map_or(ArrivalSpacing::default(), |given| given.value);
    let limit = table.whole("limit", 1..=1 << 20, report).map_or(DEFAULT_LIMIT, |limit| limit.value as u32);
    Some(OperationArrivals::Open { rate: rate?.value, spacing, limit })
}

fn after(
    table: &Section<'_>,
    own: &str,
    names: &[String],
    report: &mut FindingList<'_>,
) -> Option<OperationArrivals> {
    let workload = table.text("after", report)?;
    if workload.value == own {
        report.error(&workload.span, "a workload cannot follow itself");
        return None;
    }
    let others: Vec<&str> = names.iter().map(String::as_str).filter(|name| *name != own).collect();
    if !others.contains(&workload.value) {
        report.unknown(&workload, "workload", others);
        return None;
    }
    let every = table.whole("every", 1..=1_000_000, report).map_or(1, |every| every.value as u32);
    let threads = table.whole("threads", 1..=65_536, report).map_or(1, |threads| threads.value as u32);
    let backlog = table.whole("backlog", 1..=100_000_000, report);
    if let Some(backlog) = backlog.as_ref().filter(|backlog| backlog.value < u64::from(every)) {
        report.error(&backlog.span, format!("`backlog` must be at least `every`, {every}"));
    }
    let backlog = backlog.map_or(every.saturating_mul(2), |backlog| backlog.value as u32);
    Some(OperationArrivals::After { workload: workload.value.to_owned(), every, threads, backlog })
}

fn trace(table: &Section<'_>, context: &mut ScenarioContext<'_, '_>) -> Option<OperationArrivals> {
    let file = table.text("trace", &mut context.report)?;
    let speed = table.number("speed", &mut context.report);
    let repeat = table.flag("repeat", &mut context.report);
    if let Some(speed) = speed.as_ref().filter(|speed| speed.value <= 0.0) {
        context.report.error(&speed.span, "`speed` must be more than nothing");
    }
    let records = match (context.files)(file.value) {
        Ok(text) => trace::parse(&text).map_err(|error| format!("`{}`: {error}", file.value)),
        Err(error) => Err(error),
    };
    match records {
        Ok(records) => {
            let speed = speed.map_or(1.0, |speed| speed.value);
            if let Some(first) = records.first().filter(|_| speed > 0.0) {
                let begin = Instant::ZERO + first.at.latency_since(Instant::ZERO).scale(1.0 / speed);
                context.warn_of_late("the trace", begin, &file.span, LATE_TRACE);
            }
            Some(OperationArrivals::Trace { records: records.into(), speed, repeat })
        }
        Err(error) => {
            context.report.error(&file.span, error);
            None
        }
    }
}

/// The steps of an operation: a list of them, or one from the workload's own keys.
fn steps(table: &Section<'_>, report: &mut FindingList<'_>) -> Vec<(OperationStep, String)> {
    if !table.has("steps") {
        return vec![step(table, report)];
    }
    for key in STEP_KEYS {
        if let Some(span) = table.key_span(key) {
            report.error(&span, format!("`{key}` belongs into one of the `steps`"));
        }
    }
    let steps = table.tables("steps", STEP_KEYS, report);
    steps.iter().map(|section| step(section, report)).collect()
}

fn step(section: &Section<'_>, report: &mut FindingList<'_>) -> (OperationStep, String) {
    let mut step = OperationStep::random_reads(DEFAULT_SIZE);
    if let Some(count) = section.whole("count", 0..=65_536, report) {
        step.count = count.value as u32;
    }
    if let Some(sizes) = sizes(section, report) {
        step.sizes = sizes;
    }
    for (key, part) in [("reads", &mut step.reads), ("sequential", &mut step.sequential)] {
        if let Some(given) = section.number(key, report) {
            *part = given.value;
            if !(0.0..=1.0).contains(&given.value) {
                report.error(&given.span, format!("`{key}` is a part, 0 to 1"));
            }
        }
    }
    if let Some(region) = region(section, report) {
        step.region = region;
    }
    let durabilities = [("none", Durability::None), ("fua", Durability::Fua), ("flush", Durability::Flush)];
    if let Some(durability) = section.choice("durability", &durabilities, report) {
        step.durability = durability.value;
    }
    let volume = section.text("volume", report).map_or(String::new(), |given| given.value.to_owned());
    (step, volume)
}

fn sizes(section: &Section<'_>, report: &mut FindingList<'_>) -> Option<SizeWeights> {
    if section.has("size") && section.has("sizes") {
        let span = section.key_span("sizes").unwrap_or_else(|| section.span().clone());
        report.error(&span, "`size` and `sizes` exclude each other");
    }
    let deviation = section.parsed::<Bytes>("deviation", report);
    if let Some(deviation) = deviation.as_ref().filter(|_| !section.has("size")) {
        report.error(&deviation.span, "`deviation` is one of `size`, which is missing");
    }
    if let Some(size) = size(section, report) {
        let Some(deviation) = deviation else { return Some(SizeWeights::fixed(size)) };
        let sizes = SizeWeights::normal(Bytes::new(size.into()), deviation.value);
        if sizes.is_none() {
            report.error(
                &deviation.span,
                "`deviation` must not be more than `size`, which is 512B at the least",
            );
        }
        return sizes;
    }
    if !section.has("sizes") {
        return None;
    }
    let tables = section.tables("sizes", SIZE_KEYS, report);
    let mut weighted = Vec::new();
    for table in tables {
        if !table.has("size") {
            table.missing("size", "\"16KiB\"", report);
        }
        let weight = table.number("weight", report);
        if let Some(weight) = weight.as_ref().filter(|weight| weight.value < 0.0) {
            report.error(&weight.span, "`weight` must not be negative");
            return None;
        }
        weighted.push((size(&table, report)?, weight.map_or(1.0, |weight| weight.value)));
    }
    let sizes = SizeWeights::weighted(weighted);
    if sizes.is_none() {
        let span = section.key_span("sizes").unwrap_or_else(|| section.span().clone());
        report.error(&span, "`sizes` must have a size with a weight");
    }
    sizes
}

fn region(section: &Section<'_>, report: &mut FindingList<'_>) -> Option<DiskRegion> {
    let table = section.table("region", REGION_KEYS, report)?;
    let from = table.number("from", report).map_or(0.0, |from| from.value);
    let to = table.number("to", report).map_or(1.0, |to| to.value);
    if !(0.0 <= from && from < to && to <= 1.0) {
        report.error(table.span(), "a region begins before it ends, between 0 and 1");
        return None;
    }
    Some(DiskRegion { from, to })
}

fn cycle(table: &Section<'_>, report: &mut FindingList<'_>) -> Option<ActivityCycle> {
    let section = table.table("cycle", CYCLE_KEYS, report)?;
    for key in ["on", "off"] {
        if !section.has(key) {
            section.missing(key, "\"5s\"", report);
        }
    }
    let on = section.parsed::<Latency>("on", report);
    let off = section.parsed::<Latency>("off", report);
    let delay = section.parsed::<Latency>("delay", report);
    let delay = delay.map_or(Latency::ZERO, |delay| delay.value);
    Some(ActivityCycle { on: on?.value, off: off?.value, delay })
}
