//! Every law on every scenario: a tournament, which judges nothing.
//!
//! # What is compared
//!
//! The laws of the papers, and the one that is not of a paper ([`Entrant`]), on scenarios of all papers
//! (`scenarios`). All are driven by the same arrangement, the simulator's: a control loop on each host that
//! decides once per its own interval, and commands a window, a delay or a rate, which the host's scheduler
//! carries out. Every law has one set of parameters for all scenarios, its defaults. None is tuned to a
//! scenario: not to need that is the point of a regulator. All are told the same **target** and steer to 0.8
//! of it, the **set point**. What a scenario's workloads are due, each law is told in its own words: shares,
//! contracts, or bands.
//!
//! # What is measured
//!
//! A run is cut into stretches. One begins when the laws begin, when the storage, a goal or the load changes,
//! and with each burst of a load that pauses. **r** of a second is the mean response time at the storage of
//! the requests that count, over their target. The requests of the protected reader count, or all requests
//! without one; where targets differ, the greatest r of the requests with one target each. A second in which
//! none of these requests completed has no r. Of one run:
//!
//! - `above_target_fraction`: the part of all seconds from the first stretch on, of those with an r, whose r
//!   is above 1.
//! - `overshoot`: the greatest mean r over three seconds in a row within one stretch, from two seconds after
//!   its beginning on (no law that decides every second can have had an effect before), less 1, or nothing if
//!   that is negative. Weighted by requests.
//! - `settling_s`: after how many seconds from a stretch's beginning a second comes that is within 30 % of
//!   the set point and begins five whose mean is within 20 % of it. Where load pauses, or may be too little,
//!   it is: a second whose r is at most 1.3, that begins five whose mean is at most 1. The longest of all
//!   stretches; `null` if in one of them it never comes.
//! - `throughput_vs_oracle`: requests per second of the eligible consumers, from five seconds after the
//!   beginning of each phase of storage and goal on, over the oracle's in that phase. The mean of all phases.
//! - `share_error`: the part of throughput that went to other consumers than those it was due to: half of the
//!   sum over workloads of |part − due part|, over the stretches in which all have more to do than they are
//!   given, from five seconds after their beginning on. The mean of the stretches. `null` where no consumer
//!   has to share. By bands, what is due is the bands' allotment of the throughput that there was.
//!
//! # The oracle
//!
//! The best static throttle, found by search for each phase and each seed: the greatest throughput, over the
//! phase after its first five seconds, of one rate divided as is due, or of one window divided by shares,
//! whose mean r is at most the set point. It is found by bisection (of rates down to a part in 256), since
//! response times grow with both, and then stays. Knowing the future, and not having to find anything out, it
//! is no bound: a law that is above its set point does more, at the cost of `above_target_fraction`.
//!
//! # Seeds
//!
//! Seeds 1 to 10 are reported (1 and 2 in short), all of them. The law that is not a paper's was designed on
//! seeds from [`DESIGN_SEEDS`] on, which are not reported.

mod contest;
mod entrant;
mod measures;
mod oracle;
mod report;
mod scenarios;
mod texts;

pub use contest::{Contest, StoragePhase, TargetGroup};
pub use entrant::Entrant;
pub use measures::LawMeasures;
pub use report::{FigureSpreads, LawResult, ScenarioResult, SeedSpread, TournamentReport};
pub use texts::{TournamentTexts, tournament_texts};

use tidegate_sim::{ScenarioError, simulate};

use crate::SeriesRecorder;

/// The first of the seeds on which the law that is not a paper's was designed.
pub const DESIGN_SEEDS: u64 = 1_001;

/// One scenario under one seed, with all laws.
#[derive(Debug)]
pub struct TournamentMatch {
    /// Its place among the scenarios.
    pub scenario: usize,
    /// Under which seed.
    pub seed: u64,
}

/// The result of one match: for each law its measures, or nothing where it does not apply.
pub type MatchResult = Vec<Option<LawMeasures>>;

/// All scenarios and seeds.
#[derive(Debug)]
pub struct LawTournament {
    contests: Vec<Contest>,
    matches: Vec<TournamentMatch>,
    seeds: Vec<u64>,
}

impl LawTournament {
    /// These scenarios under so many seeds from `first` on.
    #[must_use]
    pub fn new(contests: Vec<Contest>, first: u64, seeds: u64) -> Self {
        let seeds: Vec<u64> = (first..first + seeds.max(1)).collect();
        let matches = (0..contests.len())
            .flat_map(|scenario| seeds.iter().map(move |&seed| TournamentMatch { scenario, seed }));
        Self { matches: matches.collect(), contests, seeds }
    }

    /// Returns the matches to run. Each depends on nothing but itself; results belong in the same order.
    #[must_use]
    pub fn matches(&self) -> &[TournamentMatch] {
        &self.matches
    }

    /// Returns the name of a match's scenario.
    #[must_use]
    pub fn name(&self, one: &TournamentMatch) -> &'static str {
        self.contests[one.scenario].id
    }

    /// Runs all laws on one scenario, and searches its oracle.
    ///
    /// # Errors
    /// When a scenario cannot be simulated.
    pub fn run(&self, one: &TournamentMatch) -> Result<MatchResult, ScenarioError> {
        let contest = &self.contests[one.scenario];
        let best = oracle::search(contest, one.seed)?;
        Entrant::ALL
            .iter()
            .map(|&entrant| {
                if entrant.does_not_apply(contest).is_some() {
                    return Ok(None);
                }
                let scenario = entrant.on(contest);
                let mut tracks = SeriesRecorder::default();
                let outcome = simulate(&scenario, one.seed, &mut tracks)?;
                Ok(Some(LawMeasures::of(contest, &tracks.with(outcome, &scenario), &best)))
            })
            .collect()
    }

    /// All results together. `results` are those of [`matches`](Self::matches).
    #[must_use]
    pub fn report(&self, results: &[MatchResult]) -> TournamentReport {
        report::report(&self.contests, &self.seeds, results)
    }
}

/// All scenarios under the seeds that are reported.
#[must_use]
pub fn tournament(seeds: u64) -> LawTournament {
    LawTournament::new(scenarios::all(), 1, seeds)
}
