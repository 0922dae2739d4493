//! The arena's document: the figures of each scenario, and their distributions.

use std::collections::BTreeMap;

use serde::Serialize;

use super::figures::RunFigures;
use super::oracle::ArenaOracle;
use super::scenario::ArenaScenario;

/// The figures of a law on one scenario, as fractions. `None` where a figure does not apply.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ScenarioFigures {
    /// `kind-seed`.
    pub id: String,
    /// Its kind, or the name of a written scenario.
    pub kind: String,
    /// The file of a written scenario.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// True if the target can be kept: by the protected consumers alone, or by static settings.
    pub attainable: bool,
    /// Fraction of judged seconds above the target, of the worst judged consumer.
    pub seconds_above_target: f64,
    /// Throughput over that of the best static settings, in requests or in cost, whichever is less.
    pub throughput_vs_oracle: Option<f64>,
    /// Throughput over that without a law, likewise.
    pub throughput_vs_unregulated: Option<f64>,
    /// Mean latency of the worst judged consumer over that without a law.
    pub latency_vs_unregulated: Option<f64>,
    /// The least-served consumer's throughput over its throughput under the best static settings.
    pub least_served: Option<f64>,
    /// Seconds from a change until latency and throughput are back: the median of the changes, at most the
    /// time to the next one.
    pub settling_s: Option<f64>,
    /// The part of throughput that went to other consumers than the shares say.
    pub share_error: Option<f64>,
    /// The mean change of throughput from one second to the next, over the mean throughput, chance included.
    /// `None` if a load comes and goes.
    pub oscillation: Option<f64>,
    /// Throughput taken where latency improved by less than a tenth.
    pub harm: f64,
}

/// Consumers with fewer requests per second under the oracle are left out of `least_served`.
const NEGLIGIBLE: f64 = 1.0;

/// Latency over that without a law from which on it counts as not improved.
const NOT_IMPROVED: f64 = 0.9;

fn over(one: f64, other: f64) -> Option<f64> {
    (other > 0.0).then(|| one / other)
}

fn worse(requests: Option<f64>, cost: Option<f64>) -> Option<f64> {
    [requests, cost].into_iter().flatten().reduce(f64::min)
}

impl ScenarioFigures {
    /// The figures of a run.
    #[must_use]
    pub fn of(arena: &ArenaScenario, oracle: &ArenaOracle, run: &RunFigures) -> Self {
        let free = &oracle.unregulated;
        let best = oracle.throughput(run.above);
        let latency = over(run.latency, free.latency);
        let throughput = worse(over(run.iops, free.iops), over(run.cost, free.cost));
        let is_improved = latency.is_some_and(|ratio| ratio <= NOT_IMPROVED);
        let parts = run.each.iter().zip(&best.each).filter(|(_, best)| **best >= NEGLIGIBLE);
        Self {
            id: arena.id.clone(),
            kind: arena.class().to_owned(),
            file: None,
            attainable: oracle.attainable,
            seconds_above_target: run.above,
            throughput_vs_oracle: worse(over(run.iops, best.iops), over(run.cost, best.cost)),
            throughput_vs_unregulated: throughput,
            latency_vs_unregulated: latency,
            least_served: parts.map(|(own, best)| own / best).reduce(f64::min),
            settling_s: run.settling.filter(|_| oracle.attainable),
            share_error: run.share_error,
            oscillation: run.oscillation,
            harm: if is_improved { 0.0 } else { (1.0 - throughput.unwrap_or(1.0)).max(0.0) },
        }
    }

    /// Returns the greatest of all figures' distances from the ideal, each over the distance that the worst
    /// scenario in twenty may have. 1 and more is a failure.
    #[must_use]
    pub fn badness(&self) -> f64 {
        let missing = |figure: Option<f64>, allowed: f64| (1.0 - figure.unwrap_or(1.0)) / allowed;
        // Where nothing can keep the target, only throughput taken for nothing counts.
        let above = if self.attainable { self.seconds_above_target / 0.08 } else { 0.0 };
        let throughput = if self.attainable { missing(self.throughput_vs_oracle, 0.08) } else { 0.0 };
        let least = if self.attainable { missing(self.least_served, 0.3) } else { 0.0 };
        let shares = self.share_error.unwrap_or(0.0) / 0.05;
        [above, throughput, least, shares, self.harm / 0.05].into_iter().fold(0.0, f64::max)
    }
}

/// The distribution of a figure over scenarios.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct FigureSpread {
    /// The median.
    pub median: f64,
    /// The 5th percentile.
    pub p5: f64,
    /// The 95th percentile.
    pub p95: f64,
    /// The worst: the least of what is to be much, the most of what is to be little.
    pub worst: f64,
}

/// The distributions of all figures.
pub type ArenaSummary = BTreeMap<&'static str, Option<FigureSpread>>;

/// The whole document.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ArenaDocument {
    /// The first seed.
    pub seed: u64,
    /// The number of scenarios.
    pub count: u64,
    /// The law.
    pub law: String,
    /// Each scenario.
    pub scenarios: Vec<ScenarioFigures>,
    /// The distributions over all scenarios.
    pub summary: ArenaSummary,
    /// The distributions over each kind: by [`class_of`], attainable targets apart from the others.
    pub classes: BTreeMap<String, ArenaSummary>,
}

/// Returns the class of a scenario: its kind, with `/unattainable` where the target cannot be kept.
#[must_use]
pub fn class_of(scenario: &ScenarioFigures) -> String {
    let suffix = if scenario.attainable { "" } else { "/unattainable" };
    format!("{}{suffix}", scenario.kind)
}

impl ArenaDocument {
    /// Puts the figures of all scenarios together.
    #[must_use]
    pub fn new(seed: u64, law: &str, scenarios: Vec<ScenarioFigures>) -> Self {
        let mut classes: BTreeMap<String, Vec<&ScenarioFigures>> = BTreeMap::new();
        for one in &scenarios {
            classes.entry(class_of(one)).or_default().push(one);
        }
        Self {
            seed,
            count: scenarios.len() as u64,
            law: law.to_owned(),
            summary: summary(&scenarios.iter().collect::<Vec<_>>()),
            classes: classes.into_iter().map(|(name, own)| (name, summary(&own))).collect(),
            scenarios,
        }
    }

    /// Returns the worst scenarios, the worst first.
    #[must_use]
    pub fn worst(&self, count: usize) -> Vec<&ScenarioFigures> {
        let mut all: Vec<&ScenarioFigures> = self.scenarios.iter().collect();
        all.sort_by(|one, other| other.badness().total_cmp(&one.badness()));
        all.truncate(count);
        all
    }
}

/// A figure of the summary.
#[derive(Debug, Clone, Copy)]
pub struct SummaryFigure {
    /// Its name in the document.
    pub name: &'static str,
    /// True if much of it is good.
    pub more_is_better: bool,
    of: fn(&ScenarioFigures) -> Option<f64>,
}

/// The figures of the summary.
pub const FIGURES: [SummaryFigure; 9] = [
    little("seconds_above_target", |one| Some(one.seconds_above_target)),
    much("throughput_vs_oracle", |one| one.throughput_vs_oracle),
    much("throughput_vs_unregulated", |one| one.throughput_vs_unregulated),
    little("latency_vs_unregulated", |one| one.latency_vs_unregulated),
    much("least_served", |one| one.least_served),
    little("settling_s", |one| one.settling_s),
    little("share_error", |one| one.share_error),
    little("oscillation", |one| one.oscillation),
    little("harm", |one| Some(one.harm)),
];

const fn much(name: &'static str, of: fn(&ScenarioFigures) -> Option<f64>) -> SummaryFigure {
    SummaryFigure { name, more_is_better: true, of }
}

const fn little(name: &'static str, of: fn(&ScenarioFigures) -> Option<f64>) -> SummaryFigure {
    SummaryFigure { name, more_is_better: false, of }
}

fn summary(scenarios: &[&ScenarioFigures]) -> ArenaSummary {
    let of = |figure: &SummaryFigure| {
        let mut values: Vec<f64> = scenarios.iter().filter_map(|one| (figure.of)(one)).collect();
        values.sort_by(f64::total_cmp);
        (figure.name, spread(&values, figure.more_is_better))
    };
    FIGURES.iter().map(of).collect()
}

/// The distribution of sorted values, by nearest rank.
fn spread(values: &[f64], more_is_better: bool) -> Option<FigureSpread> {
    let last = values.len().checked_sub(1)?;
    let at = |part: f64| values[(part * last as f64).round() as usize];
    Some(FigureSpread {
        median: at(0.5),
        p5: at(0.05),
        p95: at(0.95),
        worst: if more_is_better { at(0.0) } else { at(1.0) },
    })
}
