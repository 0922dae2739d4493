//! `tidegate sim`.

mod table;

use std::io::{self, Write};
use std::path::PathBuf;

use clap::builder::{PathBufValueParser, TypedValueParser};
use tidegate_program::{scenario_file, series};
use tidegate_sim::{Recorder, Scenario, SeriesRow, SimulationOutcome, simulate};
use tidegate_units::{Instant, visible};

use crate::failure::CommandFailure;
use crate::out;
use crate::table_file::{TableFile, TablePath};

/// Simulate hosts that share storage
///
/// Runs the schedulers and laws of the gateway in virtual time, over models of storage, as a scenario says.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: SimCommand,
}

#[derive(clap::Subcommand)]
enum SimCommand {
    Run(RunArgs),
    Schema(SchemaArgs),
}

/// Run a scenario, and print what it came to
///
/// The same scenario and seed always give the same output. What is wrong with a scenario is said as
/// FILE:line:column, all of it at once, with what to write instead, and exit status 2.
#[derive(clap::Args)]
struct RunArgs {
    /// The scenario; see docs/reference/scenarios.md
    #[arg(value_name = "FILE")]
    scenario: PathBuf,

    /// Print one JSON document
    #[arg(long)]
    json: bool,

    /// Write the time series to this file, as its name says: FILE.csv or FILE.parquet
    #[arg(long, value_name = "FILE", value_parser = PathBufValueParser::new().try_map(TablePath::try_from))]
    series: Option<TablePath>,

    /// Seed of everything random [default: the scenario's]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
}

/// Print the JSON schema of scenarios
#[derive(clap::Args)]
struct SchemaArgs {}

pub(crate) fn run(args: &Args) -> Result<(), CommandFailure> {
    match &args.command {
        SimCommand::Run(args) => run_scenario(args),
        SimCommand::Schema(_) => Ok(write!(out::stdout(), "{}", tidegate_sim::scenario::schema::JSON)?),
    }
}

fn run_scenario(args: &RunArgs) -> Result<(), CommandFailure> {
    let scenario = scenario_file::load(&args.scenario)?;
    let seed = args.seed.unwrap_or(scenario.seed);
    let has_percentiles = scenario.has_percentiles();
    let create = |path: &TablePath| path.create(series::columns(has_percentiles));
    let series = args.series.as_ref().map(create).transpose()?;
    let mut listener =
        Listener { series, has_percentiles, failed: None, progress: SimProgress::new(&scenario) };
    let outcome = simulate(&scenario, seed, &mut listener);
    listener.progress.finish();
    let outcome = outcome.map_err(CommandFailure::Scenario)?;
    let Listener { series, failed, .. } = listener;
    if let (Some(path), Some(series)) = (&args.series, series) {
        let written = failed.map_or_else(|| series.finish(), Err);
        written.map_err(|source| path.unwritable(source))?;
    }
    print(&outcome, args.json)
}

fn print(outcome: &SimulationOutcome, json: bool) -> Result<(), CommandFailure> {
    if json {
        let json = serde_json::to_string_pretty(outcome).map_err(io::Error::from)?;
        Ok(writeln!(out::stdout(), "{json}")?)
    } else {
        Ok(write!(out::stdout(), "{}", table::OutcomeTable(outcome))?)
    }
}

/// Writes the series, and shows how far it is.
struct Listener {
    series: Option<TableFile>,
    has_percentiles: bool,
    failed: Option<io::Error>,
    progress: SimProgress,
}

impl Recorder for Listener {
    fn row(&mut self, row: &SeriesRow<'_>) {
        if let (Some(series), None) = (&mut self.series, &self.failed) {
            self.failed = series::write_row(row, self.has_percentiles, |row| series.write(row)).err();
        }
    }

    fn progress(&mut self, now: Instant) {
        self.progress.show(now);
    }

    fn wants_rows(&self) -> bool {
        self.series.is_some()
    }
}

/// A bar on a terminal, nothing elsewhere.
struct SimProgress(indicatif::ProgressBar);

impl SimProgress {
    fn new(scenario: &Scenario) -> Self {
        let seconds = scenario.duration.as_secs().max(1);
        let bar = indicatif::ProgressBar::new(seconds);
        let style = indicatif::ProgressStyle::with_template("{msg} {wide_bar} {pos} of {len} s, {eta} left");
        if let Ok(style) = style {
            bar.set_style(style);
        }
        bar.set_message(visible(&scenario.name).into_owned());
        Self(bar)
    }

    fn show(&self, now: Instant) {
        self.0.set_position(now.as_secs_f64() as u64);
    }

    fn finish(&self) {
        self.0.finish_and_clear();
    }
}
