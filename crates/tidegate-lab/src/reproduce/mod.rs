//! `tidegate-lab reproduce`: the papers' experiments in the simulator, and whether they agree.
//!
//! What is simulated and how it is judged is `tidegate_experiments`' business. Here it is run
//! (`execute`), and shown: `text` on a terminal, `page` as a report. `document` makes
//! `docs/reproduction` from the committed runs.

#[cfg(test)]
mod document;
pub(crate) mod error;
mod execute;
mod page;
mod text;

use std::fs;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

use tidegate_experiments::{
    Experiment, ExperimentVerdict, FIRST_SEED, ReproductionReport, RunResult, SEEDS, SHORT_SEEDS, SeedTrial,
    catalogue, judge, select,
};
use tidegate_program::rows::CsvFile;
use tidegate_program::series;
use tidegate_sim::SeriesRow;

use self::error::ReproduceError;
use crate::parallel::ParallelRunner;

const EXAMPLES: &str = "\
Examples:
  tidegate-lab reproduce --list
  tidegate-lab reproduce parda --report parda.html
  tidegate-lab reproduce bjorgeengen --short
  tidegate-lab reproduce parda.fig8 eq3 --json";

/// Repeat the papers' experiments in the simulator and judge whether they agree
///
/// Each experiment has quantities with the paper's figure or claim beside ours, and a tolerance with its
/// reason, which was written down before anything ran. What is known to differ is shown with its reason. Exit
/// status 0 says that everything else agrees, 1 that something differs that was not known to.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Which: parda.fig8 or fig8, or all of a paper: parda [default: everything]
    #[arg(value_name = "EXPERIMENT")]
    experiments: Vec<String>,

    /// List the experiments and what each shows, and run nothing
    #[arg(long)]
    list: bool,

    /// Two seeds instead of ten: shows that everything works, not how far results scatter, which alone may
    /// give exit status 1
    #[arg(long)]
    short: bool,

    /// Begin with another seed. What is known to differ was seen with the default ones; to change a law or an
    /// experiment, look at others
    #[arg(long, value_name = "SEED", default_value_t = FIRST_SEED)]
    first_seed: u64,

    /// Print one JSON document
    #[arg(long)]
    json: bool,

    /// Write a report with plots
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,

    /// Leave the time series of the first seed in this folder, a CSV file for each run
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Runs what was asked for, and says what came of it.
///
/// # Errors
/// When it could not be run or shown, and when it ran and differs from the paper otherwise than is known.
pub(crate) fn run(args: &Args) -> Result<(), ReproduceError> {
    let experiments = select(catalogue(), &args.experiments)?;
    if args.list {
        let list = if args.json { text::list_json(&experiments) } else { text::list(&experiments) };
        return print(&list);
    }
    let seeds = if args.short { SHORT_SEEDS } else { SEEDS };
    let jobs = tidegate_experiments::jobs(&experiments, args.first_seed, seeds);
    let results = execute::run(&ParallelRunner::new(io::stderr().is_terminal()), &jobs)?;
    let report = judge(&experiments, &jobs, &results);
    let first: Vec<SeedTrial<'_>> = experiments
        .iter()
        .enumerate()
        .filter_map(|(place, experiment)| jobs.trials(place, &experiment.runs, &results).into_iter().next())
        .collect();
    if let Some(folder) = &args.out {
        leave(folder, &experiments, &first)?;
    }
    if let Some(path) = &args.report {
        write(path, &page::write(&experiments, &report, &first)?)?;
    }
    if args.json {
        let json =
            serde_json::to_string_pretty(&report).map_err(|error| ReproduceError::Output(error.into()))?;
        print(&format!("{json}\n"))?;
    } else {
        print(&text::table(&report))?;
        if let Some(path) = &args.report {
            print(&format!("Report: {}\n", path.display()))?;
        }
    }
    verdict(&report)
}

fn verdict(report: &ReproductionReport) -> Result<(), ReproduceError> {
    let unknown = report.experiments.iter().filter(|one| one.verdict() == ExperimentVerdict::Differs);
    let differ: Vec<_> = unknown.map(|one| one.id.clone()).collect();
    if differ.is_empty() {
        return Ok(());
    }
    Err(ReproduceError::Differs { differ, all: report.experiments.len() })
}

/// The time series of each run, named after experiment and run.
fn leave(folder: &Path, experiments: &[Experiment], first: &[SeedTrial<'_>]) -> Result<(), ReproduceError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| ReproduceError::Write { path, source }
    };
    fs::create_dir_all(folder).map_err(failed(folder))?;
    for (experiment, trial) in experiments.iter().zip(first) {
        for (name, run) in trial.runs() {
            let name = name.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
            let path = folder.join(format!("{}.{name}.csv", experiment.id));
            write_series(&path, run).map_err(failed(&path))?;
        }
    }
    Ok(())
}

fn write_series(path: &Path, run: &RunResult) -> io::Result<()> {
    let mut file = CsvFile::create(path, series::columns(false))?;
    for track in &run.tracks {
        for &(time_s, sample) in &track.samples {
            let row = SeriesRow { time_s, host: &track.host, consumer: &track.consumer, sample };
            series::write_row(&row, false, |row| file.write(row))?;
        }
    }
    file.finish()
}

fn write(path: &Path, text: &str) -> Result<(), ReproduceError> {
    fs::write(path, text).map_err(|source| ReproduceError::Write { path: path.to_owned(), source })
}

fn print(text: &str) -> Result<(), ReproduceError> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(ReproduceError::Output)
}
