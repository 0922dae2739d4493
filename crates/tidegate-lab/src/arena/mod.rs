//! `tidegate-lab arena`: a law on random storage, beside doing nothing and beside the best static setting.
//!
//! `tidegate_experiments::arena` draws the scenarios, or takes those of files, and measures. Here they are
//! run, oracles are kept (`cache`), and results are shown: `text` on a terminal, `page` as a report.

mod cache;
pub(crate) mod error;
mod page;
mod text;

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;

use tidegate_control::LawKind;
use tidegate_experiments::arena::{
    ArenaDocument, ArenaScenario, NO_LAW, ScenarioFigures, UnknownLaw, law_named,
};
use tidegate_program::scenario_file;
use tidegate_sim::Scenario;

use self::cache::OracleCache;
use self::error::ArenaError;
use crate::parallel::ParallelRunner;

const EXAMPLES: &str = "\
Examples:
  tidegate-lab arena --law window
  tidegate-lab arena --seed 1000000 --count 200 --law auto --json
  tidegate-lab arena --law queueing-model --report arena.html --keep-worst 10
  tidegate-lab arena scenarios/papers/*.toml --seed 211 --count 10 --law pid";

/// The most scenarios of one run.
const MOST_SCENARIOS: u64 = 10_000;

/// The greatest seed. Seeds in documents are then exact also for readers that know only floating point.
const GREATEST_SEED: u64 = 1 << 52;

/// Judge a law on random storage, beside doing nothing and beside the best static setting
///
/// Each seed draws one scenario: storage, load, target and changes. The kinds of scenarios come evenly, and a
/// seed alone replays its scenario. Scenarios of files are judged likewise, each under each of the seeds. The
/// same seeds always give the same output. The search for the best
/// static setting takes some seconds for each seed the first time. Its result is kept in `tidegate/arena`
/// below $XDG_CACHE_HOME or ~/.cache.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Judge these scenarios instead of random ones, with the target of their hosts; their laws are left out
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,

    /// The first seed
    #[arg(long, value_name = "N", default_value_t = 1_000_000,
        value_parser = clap::value_parser!(u64).range(0..=GREATEST_SEED))]
    seed: u64,

    /// The number of random scenarios, or of the seeds under which each file is run
    #[arg(long, value_name = "M", default_value_t = 20,
        value_parser = clap::value_parser!(u64).range(1..=MOST_SCENARIOS))]
    count: u64,

    /// The law: auto, window, pid, integral, self-tuning or queueing-model; or none
    #[arg(long, default_value = "auto", value_parser = LawChoice::parse)]
    law: LawChoice,

    /// Print one JSON document
    #[arg(long)]
    json: bool,

    /// Write a report
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,

    /// Name the K worst scenarios with the command that replays each [default: 5; with --json none, and
    /// otherwise on stderr]
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u64).range(1..=MOST_SCENARIOS))]
    keep_worst: Option<u64>,
}

/// A law, or none.
#[derive(Debug, Clone, Copy)]
struct LawChoice(Option<LawKind>);

impl LawChoice {
    fn parse(name: &str) -> Result<Self, UnknownLaw> {
        law_named(name).map(Self)
    }

    fn name(self) -> &'static str {
        self.0.map_or(NO_LAW, LawKind::name)
    }
}

/// The number of worst scenarios that are named without `--keep-worst`.
const USUAL_WORST: u64 = 5;

/// Runs the scenarios, and shows the result.
///
/// # Errors
/// When a file holds no scenario, one cannot be simulated, or the result cannot be written.
pub(crate) fn run(args: &Args) -> Result<(), ArenaError> {
    let cache = OracleCache::of_user();
    let matches = matches(args)?;
    let figures =
        ParallelRunner::new(io::stderr().is_terminal())
            .each(&matches, ArenaMatch::name, |one| one.judge(args.law, &cache))?;
    let document = ArenaDocument::new(args.seed, args.law.name(), figures);
    let worst = args.keep_worst.unwrap_or(USUAL_WORST) as usize;
    if let Some(path) = &args.report {
        let page = page::write(&document, worst);
        fs::write(path, page).map_err(|source| ArenaError::Write { path: path.clone(), source })?;
    }
    if args.json {
        if args.keep_worst.is_some() {
            // Stdout has the document alone.
            write(io::stderr().lock(), &text::worst_ones(&document, worst))?;
        }
        let json =
            serde_json::to_string_pretty(&document).map_err(|error| ArenaError::Output(error.into()))?;
        return write(io::stdout().lock(), &format!("{json}\n"));
    }
    write(io::stdout().lock(), &text::table(&document, worst))?;
    match &args.report {
        Some(path) => write(io::stdout().lock(), &format!("Report: {}\n", path.display())),
        None => Ok(()),
    }
}

/// One scenario to judge.
struct ArenaMatch {
    seed: u64,
    /// The scenario's file, and what it holds; `None`: the seed draws it.
    file: Option<(PathBuf, Scenario)>,
}

/// Reads the files, if any, and returns each scenario under each seed.
fn matches(args: &Args) -> Result<Vec<ArenaMatch>, ArenaError> {
    let seeds = || args.seed..args.seed + args.count;
    if args.files.is_empty() {
        return Ok(seeds().map(|seed| ArenaMatch { seed, file: None }).collect());
    }
    let mut matches = Vec::new();
    let mut names = BTreeSet::new();
    for path in &args.files {
        let scenario = scenario_file::load(path)?;
        if !names.insert(scenario.name.clone()) {
            return Err(ArenaError::SameName(scenario.name));
        }
        // What cannot be judged is said before anything runs.
        ArenaScenario::written(scenario.clone(), args.seed)
            .map_err(|source| ArenaError::NotJudged { path: path.clone(), source })?;
        matches.extend(seeds().map(|seed| ArenaMatch { seed, file: Some((path.clone(), scenario.clone())) }));
    }
    Ok(matches)
}

impl ArenaMatch {
    fn name(&self) -> String {
        match &self.file {
            Some((_, scenario)) => format!("{}, seed {}", scenario.name, self.seed),
            None => format!("seed {}", self.seed),
        }
    }

    fn judge(&self, law: LawChoice, cache: &OracleCache) -> Result<ScenarioFigures, ArenaError> {
        let failed = |source| ArenaError::Simulate { name: self.name(), source };
        let arena = match &self.file {
            Some((path, scenario)) => ArenaScenario::written(scenario.clone(), self.seed)
                .map_err(|source| ArenaError::NotJudged { path: path.clone(), source })?,
            None => ArenaScenario::draw(self.seed).map_err(failed)?,
        };
        let oracle = cache.oracle(&arena).map_err(failed)?;
        let run = arena.run(law.0, &oracle).map_err(failed)?;
        let figures = ScenarioFigures::of(&arena, &oracle, &run);
        let file = self.file.as_ref().map(|(path, _)| path.display().to_string());
        Ok(ScenarioFigures { file, ..figures })
    }
}

fn write(mut out: impl Write, text: &str) -> Result<(), ArenaError> {
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(ArenaError::Output)
}
