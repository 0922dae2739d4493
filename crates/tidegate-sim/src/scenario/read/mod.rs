//! The conversion of a scenario's text into typed values. Every mistake is collected with its place.
//!
//! Keys, units and defaults are documented in `docs/reference/scenarios.md`. A test compares it with the
//! lists of keys here.

mod array;
mod host;
mod network;
mod profile;
pub mod schema;
mod template;
mod trace;
mod vm;
mod workload;

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::str::FromStr;
use std::time::Duration;

use thiserror::Error;
use tidegate_config::{Finding, FindingList, Section, parse};
use tidegate_units::{Instant, Latency, ParseUnitError};

use super::{Scenario, ScenarioSpan};
pub use array::{DEVICE_KEYS, device};

use crate::engine;
use crate::error::ScenarioError;

pub(super) const ROOT_KEYS: &[&str] = tidegate_config::keys::scenario::SCENARIO.names;

/// A template for more than this is a slip.
const MOST_COPIES: u64 = 100_000;

/// A text is not a scenario. It holds all errors in the order of the text, warnings included.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{}", joined(.0))]
pub struct InvalidScenario(pub Vec<Finding>);

fn joined(findings: &[Finding]) -> String {
    findings.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// Reads the files that a scenario names: block traces. The name is as it is written in the scenario.
pub type ScenarioFiles<'a> = &'a mut dyn FnMut(&str) -> Result<String, String>;

impl Scenario {
    /// Reads a scenario that names no files. Findings call the text `name`.
    ///
    /// # Errors
    /// When anything in the text is wrong.
    pub fn parse(name: &str, text: &str) -> Result<Self, InvalidScenario> {
        let mut none = |file: &str| Err(format!("`{file}`: a scenario without a folder has no files"));
        Self::read(name, text, &mut none).map(|(scenario, _)| scenario)
    }

    /// Reads a scenario, and the traces it names through `files`. The second value holds warnings: text that
    /// is allowed and probably not meant.
    ///
    /// # Errors
    /// When anything in the text is wrong.
    pub fn read(
        name: &str,
        text: &str,
        files: ScenarioFiles<'_>,
    ) -> Result<(Self, Vec<Finding>), InvalidScenario> {
        let mut report = FindingList::new(name, text);
        let scenario = match parse(text, &mut report) {
            Some(document) => {
                let what = "the scenario".to_owned();
                let root = Section::new(&document, 0..0, what, ROOT_KEYS, &mut report);
                let mut context =
                    ScenarioContext { report, files, places: Places::default(), duration: None };
                let scenario = scenario(&root, &mut context);
                report = context.report;
                scenario
            }
            None => None,
        };
        let failed = report.has_errors();
        let findings = report.into_findings();
        match scenario {
            Some(scenario) if !failed => Ok((scenario, findings)),
            _ => Err(InvalidScenario(findings)),
        }
    }
}

/// State that every part of the reading needs.
struct ScenarioContext<'a, 'f> {
    report: FindingList<'a>,
    files: ScenarioFiles<'f>,
    places: Places,
    /// The duration of the simulation; `None`: it is wrong, which was reported.
    duration: Option<Duration>,
}

impl ScenarioContext<'_, '_> {
    /// Reports something that begins when the simulation is over.
    fn warn_of_late(&mut self, what: &str, begin: Instant, span: &Range<usize>, help: &str) {
        if let Some(duration) = self.duration.filter(|duration| begin >= Instant::ZERO + *duration) {
            let (begin, end) = (begin.latency_since(Instant::ZERO), Latency::from(duration));
            let message = format!("{what} begins at {begin}, and the simulation ends at {end}");
            self.report.warning(span, message, help);
        }
    }
}

/// Places in the text of the things that an error can be about.
#[derive(Default)]
struct Places {
    arrays: HashMap<String, Range<usize>>,
    hosts: HashMap<String, Range<usize>>,
    vms: HashMap<String, Range<usize>>,
}

impl Places {
    fn of(&self, error: &ScenarioError) -> Option<&Range<usize>> {
        match error {
            ScenarioError::Device { array, .. } | ScenarioError::Overrun { array, .. } => {
                self.arrays.get(array.as_str())
            }
            ScenarioError::Law { host, .. }
            | ScenarioError::Depth(host, _)
            | ScenarioError::PercentileAcrossHosts(host) => self.hosts.get(host.as_str()),
            ScenarioError::DoesNotFit { vm, .. } => self.vms.get(vm.as_ref()?.as_str()),
            ScenarioError::Workload { vm, .. } => self.vms.get(vm.as_str()),
            _ => None,
        }
    }
}

fn scenario(root: &Section<'_>, context: &mut ScenarioContext<'_, '_>) -> Option<Scenario> {
    let report = &mut context.report;
    let name = root.text("name", report);
    if !root.has("name") {
        root.missing("name", "\"two-hosts\"", report);
    }
    let duration = root.parsed::<Latency>("duration", report);
    if !root.has("duration") {
        root.missing("duration", "\"200s\"", report);
    }
    context.duration = duration.map(|given| given.value.to_duration());
    let duration = context.duration.unwrap_or(Duration::from_secs(1));
    let mut scenario = Scenario::new(name.map_or("", |given| given.value), duration);
    if let Some(description) = root.text("description", report) {
        description.value.clone_into(&mut scenario.description);
    }
    if let Some(warmup) = root.parsed::<Latency>("warmup", report) {
        scenario.warmup = warmup.value.to_duration();
        if context.duration.is_some_and(|duration| scenario.warmup >= duration) {
            report.error(&warmup.span, "`warmup` must be shorter than `duration`");
        }
    }
    if let Some(seed) = root.whole("seed", 0..=i64::MAX as u64, report) {
        scenario.seed = seed.value;
    }
    if let Some(interval) = root.parsed::<Latency>("series_interval", report) {
        scenario.series_interval = interval.value.to_duration();
    }
    array::read(root, &mut scenario, context);
    let templates = host::read(root, &mut scenario, context);
    network::read(root, &templates, &mut scenario, context);
    let workloads = workload::read(root, context);
    vm::read(root, &templates, &workloads, &mut scenario, context);
    // What depends on several parts at once is checked where it is used.
    if !context.report.has_errors()
        && let Err(error) = engine::check(&scenario)
    {
        let place = context.places.of(&error).cloned().unwrap_or(0..0);
        context.report.error(&place, error.to_string());
    }
    Some(scenario)
}

/// Number of things of a kind that a scenario has so far, and the most it may have.
struct ThingRoom {
    kind: &'static str,
    given: usize,
    most: usize,
}

/// Returns the names of `count` copies of a template. They are numbered from 1, with as many digits as the
/// last one, so that the order of names is the order of numbers. A template without a count is itself. Where
/// there is no room for all copies, none is made. Otherwise a few lines would take the memory for millions
/// before the scenario is refused.
fn copies(section: &Section<'_>, name: &str, room: &ThingRoom, report: &mut FindingList<'_>) -> Vec<String> {
    let ThingRoom { kind, given, most } = room;
    match section.whole("count", 1..=MOST_COPIES, report) {
        None => vec![name.to_owned()],
        Some(count) if *given as u64 + count.value > *most as u64 => {
            let together = *given as u64 + count.value;
            report.error(&count.span, format!("at most {most} {kind}, with these there are {together}"));
            Vec::new()
        }
        Some(count) => {
            let digits = count.value.to_string().len();
            (1..=count.value).map(|number| format!("{name}-{number:0digits$}")).collect()
        }
    }
}

/// The reason why a text is not a stretch of time.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SpanError {
    /// There is no `..` in it.
    #[error("`{0}` has no `..`; write for example `140s..310s`, `140s..` or `..310s`")]
    NoDots(String),
    /// It ends before it begins.
    #[error("`{0}` ends before it begins")]
    Backwards(String),
    /// A side of it is not a time.
    #[error(transparent)]
    Time(#[from] ParseUnitError),
}

impl FromStr for ScenarioSpan {
    type Err = SpanError;

    /// `140s..310s`; a side that is left out is the beginning or the end of all time.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let Some((from, to)) = text.split_once("..") else {
            return Err(SpanError::NoDots(text.escape_debug().to_string()));
        };
        let side = |text: &str, open: Instant| match text.trim() {
            "" => Ok(open),
            text => text.parse::<Latency>().map(|time| Instant::ZERO + time),
        };
        let span = Self { from: side(from, Instant::ZERO)?, to: side(to, Instant::MAX)? };
        if span.from < span.to {
            Ok(span)
        } else {
            Err(SpanError::Backwards(text.escape_debug().to_string()))
        }
    }
}

impl fmt::Display for ScenarioSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = |at: Instant| at.latency_since(Instant::ZERO);
        match (self.from, self.to) {
            (Instant::ZERO, Instant::MAX) => f.write_str(".."),
            (from, Instant::MAX) => write!(f, "{}..", time(from)),
            (from, to) => write!(f, "{}..{}", time(from), time(to)),
        }
    }
}
