//! All figures of all laws on all scenarios, as a document.

use serde::{Deserialize, Serialize};

use super::{Contest, Entrant, LawMeasures, MatchResult};

/// Everything.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TournamentReport {
    /// Under which seeds.
    pub seeds: Vec<u64>,
    /// The results of each scenario.
    pub scenarios: Vec<ScenarioResult>,
}

/// The result of one scenario.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ScenarioResult {
    /// `paper.what`.
    pub id: String,
    /// In a line.
    pub title: String,
    /// The results of each law.
    pub laws: Vec<LawResult>,
}

/// The result of one law on one scenario: the means over all seeds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LawResult {
    /// The law's name.
    pub name: String,
    /// The part of seconds above the target.
    pub above_target_fraction: Option<f64>,
    /// The greatest excess over the target, as a part of it.
    pub overshoot: Option<f64>,
    /// The mean over those seeds under which it settled; `None` when it never did.
    pub settling_s: Option<f64>,
    /// Throughput over that of the best static throttle.
    pub throughput_vs_oracle: Option<f64>,
    /// The throughput that went to other consumers than those it was due to, as a part of all.
    pub share_error: Option<f64>,
    /// Under how many of the seeds it settled.
    pub settled: usize,
    /// The reason why there are no figures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Each figure under each seed, with the least and the greatest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread: Option<FigureSpreads>,
}

/// Each figure under each seed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FigureSpreads {
    /// The values of `above_target_fraction`.
    pub above_target_fraction: SeedSpread,
    /// The values of `overshoot`.
    pub overshoot: SeedSpread,
    /// The values of `settling_s`; `None` where it never settled.
    pub settling_s: SeedSpread,
    /// The values of `throughput_vs_oracle`.
    pub throughput_vs_oracle: SeedSpread,
    /// The values of `share_error`.
    pub share_error: SeedSpread,
}

/// A figure under each seed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SeedSpread {
    /// The least that there is.
    pub min: Option<f64>,
    /// The greatest.
    pub max: Option<f64>,
    /// All, in the order of the seeds.
    pub values: Vec<Option<f64>>,
}

impl SeedSpread {
    fn of(values: Vec<Option<f64>>) -> Self {
        let known = || values.iter().flatten().copied();
        Self { min: known().reduce(f64::min), max: known().reduce(f64::max), values }
    }

    fn mean(&self) -> Option<f64> {
        let count = self.values.iter().flatten().count();
        (count > 0).then(|| self.values.iter().flatten().sum::<f64>() / count as f64)
    }
}

pub(super) fn report(contests: &[Contest], seeds: &[u64], results: &[MatchResult]) -> TournamentReport {
    let scenarios = contests.iter().zip(results.chunks(seeds.len())).map(|(contest, seeds)| {
        let laws = Entrant::ALL.iter().enumerate().map(|(place, entrant)| {
            let measures: Option<Vec<LawMeasures>> =
                seeds.iter().map(|laws| laws.get(place).copied()?).collect();
            law(*entrant, contest, measures)
        });
        ScenarioResult { id: contest.id.to_owned(), title: contest.title.to_owned(), laws: laws.collect() }
    });
    TournamentReport { seeds: seeds.to_vec(), scenarios: scenarios.collect() }
}

fn law(entrant: Entrant, contest: &Contest, measures: Option<Vec<LawMeasures>>) -> LawResult {
    let name = entrant.name().to_owned();
    let reason = entrant.does_not_apply(contest).map(ToOwned::to_owned);
    let Some(measures) = measures else {
        return LawResult {
            name,
            above_target_fraction: None,
            overshoot: None,
            settling_s: None,
            throughput_vs_oracle: None,
            share_error: None,
            settled: 0,
            reason,
            spread: None,
        };
    };
    let of = |figure: fn(&LawMeasures) -> Option<f64>| SeedSpread::of(measures.iter().map(figure).collect());
    let spread = FigureSpreads {
        above_target_fraction: of(|one| one.above_target_fraction),
        overshoot: of(|one| one.overshoot),
        settling_s: of(|one| one.settling_s),
        throughput_vs_oracle: of(|one| one.throughput_vs_oracle),
        share_error: of(|one| one.share_error),
    };
    LawResult {
        name,
        above_target_fraction: spread.above_target_fraction.mean(),
        overshoot: spread.overshoot.mean(),
        settling_s: spread.settling_s.mean(),
        throughput_vs_oracle: spread.throughput_vs_oracle.mean(),
        share_error: spread.share_error.mean(),
        settled: spread.settling_s.values.iter().flatten().count(),
        reason,
        spread: Some(spread),
    }
}
