//! The arena's document: the figures of each scenario, and their distributions.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{ArenaOracle, ArenaScenario, RunFigures};

/// The figures of a law on one scenario, as fractions. `None` where a figure does not apply.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ScenarioFigures {
    /// `kind-seed`.
    pub id: String,
    /// Its kind.
    pub kind: &'static str,
    /// True if the target can be kept: by the protected consumers alone, or by a static setting.
    pub attainable: bool,
    /// Fraction of seconds above the target, of the worst judged consumer.
    pub seconds_above_target: f64,
    /// Throughput over that of the best static setting.
    pub throughput_vs_oracle: Option<f64>,
    /// Throughput over that without a law.
    pub throughput_vs_unregulated: Option<f64>,
    /// Latency over that without a law.
    pub latency_vs_unregulated: Option<f64>,
    /// The least-served consumer's throughput over its part of the best static setting's.
    pub least_served: Option<f64>,
    /// Seconds from a change until latency and throughput are back; of several changes the median.
    pub settling_s: Option<f64>,
    /// The part of throughput that went to other consumers than the shares say.
    pub share_error: Option<f64>,
    /// Throughput taken where latency improved by less than a tenth.
    pub harm: f64,
}

/// Consumers with fewer requests per second are left out of `least_served`.
const NEGLIGIBLE: f64 = 1.0;

fn over(one: f64, other: f64) -> Option<f64> {
    (other > 0.0).then(|| one / other)
}

impl ScenarioFigures {
    /// The figures of a run.
    #[must_use]
    pub fn of(arena: &ArenaScenario, oracle: &ArenaOracle, run: &RunFigures) -> Self {
        let free = &oracle.unregulated;
        let latency = over(run.latency, free.latency);
        let throughput = over(run.iops, free.iops);
        let improved = latency.is_some_and(|ratio| ratio <= 0.9);
        let each = oracle.best_each(run.above);
        Self {
            id: arena.id.clone(),
            kind: arena.kind.name(),
            attainable: oracle.attainable,
            seconds_above_target: run.above,
            throughput_vs_oracle: over(run.iops, oracle.throughput(run.above)),
            throughput_vs_unregulated: throughput,
            latency_vs_unregulated: latency,
            least_served: run
                .each
                .iter()
                .zip(&each)
                .filter(|(_, best)| **best >= NEGLIGIBLE)
                .map(|(own, best)| own / best)
                .reduce(f64::min),
            settling_s: run.settling.filter(|_| oracle.attainable).map(|seconds| seconds.min(1e6)),
            share_error: run.share_error,
            harm: if improved { 0.0 } else { (1.0 - throughput.unwrap_or(1.0)).max(0.0) },
        }
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
    /// The distributions over each kind, of attainable targets and of the others.
    pub classes: BTreeMap<String, ArenaSummary>,
}

impl ArenaDocument {
    /// Puts the figures of all scenarios together.
    #[must_use]
    pub fn new(seed: u64, law: &str, scenarios: Vec<ScenarioFigures>) -> Self {
        let mut classes: BTreeMap<String, Vec<&ScenarioFigures>> = BTreeMap::new();
        for one in &scenarios {
            let suffix = if one.attainable { "" } else { "/unattainable" };
            classes.entry(format!("{}{suffix}", one.kind)).or_default().push(one);
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
}

type FigureOf = fn(&ScenarioFigures) -> Option<f64>;

/// Each figure, and true if much of it is good.
const FIGURES: [(&str, bool, FigureOf); 8] = [
    ("seconds_above_target", false, |one| Some(one.seconds_above_target)),
    ("throughput_vs_oracle", true, |one| one.throughput_vs_oracle),
    ("throughput_vs_unregulated", true, |one| one.throughput_vs_unregulated),
    ("latency_vs_unregulated", false, |one| one.latency_vs_unregulated),
    ("least_served", true, |one| one.least_served),
    ("settling_s", false, |one| one.settling_s),
    ("share_error", false, |one| one.share_error),
    ("harm", false, |one| Some(one.harm)),
];

fn summary(scenarios: &[&ScenarioFigures]) -> ArenaSummary {
    FIGURES
        .iter()
        .map(|(name, much, of)| {
            let mut values: Vec<f64> = scenarios.iter().filter_map(|one| of(one)).collect();
            values.sort_by(f64::total_cmp);
            let at = |part: f64| {
                let place = (part * (values.len() - 1) as f64).round() as usize;
                values[place]
            };
            let spread = (!values.is_empty()).then(|| FigureSpread {
                median: at(0.5),
                p5: at(0.05),
                p95: at(0.95),
                worst: if *much { at(0.0) } else { at(1.0) },
            });
            (*name, spread)
        })
        .collect()
}
