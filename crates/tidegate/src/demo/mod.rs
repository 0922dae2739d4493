//! `tidegate demo`: a saturating array, a database, its neighbours; before and after, live.
//!
//! `plan` says what will run, `scenario` runs it and leaves a `timeline`, `judge` judges that; `view` shows
//! the run, `text` and `report` the result. Only `scenario` and `view` touch the world.

mod judge;
mod plan;
mod plots;
mod production;
mod progress;
mod report;
mod scenario;
mod setup;
mod text;
mod timeline;
mod view;

use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::thread;

use thiserror::Error;
use tidegate_units::Latency;

use self::judge::DemoOutcome;
use self::plan::{DemoLaw, DemoPlan, DemoRequest, PlanError};
use self::progress::{DemoEvent, DemoProgress};
use self::scenario::ScenarioError;
use self::timeline::DemoTimeline;
use self::view::ViewEnd;
use crate::out;
use crate::terminal;
use tidegate_program::page::plot::PlotError;

/// The file that the report is written to by default.
const REPORT: &str = "tidegate-demo.html";

/// Between two lines of progress where there is no terminal, in seconds.
const LINE_EVERY: usize = 5;

/// A saturating array, a database that suffers from its neighbours, and Tidegate protecting it
///
/// Three phases on an emulated stripe set of SATA disks, served and loaded over real NBD sockets: the
/// database alone, the database beside twelve backups that start and stop together, and the same with
/// Tidegate holding the backups back. Needs nothing but this program. The exit status says whether the
/// demonstration ran; whether its goals were met stands in its verdict.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The promise to the database: the greatest mean response time of its reads in any second
    #[arg(long, value_name = "TIME", default_value = "15ms")]
    target: Latency,

    /// The law that protects the database
    #[arg(long, value_enum, default_value_t = DemoLaw::Auto)]
    law: DemoLaw,

    /// Set point of the law, as a share of the target [default: 0.9; of the laws window and pid 0.8]
    #[arg(long, value_name = "RATIO")]
    set_point: Option<f64>,

    /// About how long the whole takes: 10 s alone, then as many whole bursts as fit, three fifths of them
    /// regulated
    #[arg(long, value_name = "TIME", default_value = "185s")]
    duration: Latency,

    /// Length of a burst of the backups, in whole seconds
    #[arg(long, value_name = "TIME", default_value = "30s")]
    burst: Latency,

    /// Length of the pause after a burst, in whole seconds
    #[arg(long, value_name = "TIME", default_value = "5s")]
    pause: Latency,

    /// Seed of everything random: the array, and where the database reads
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Print the result as one JSON document; implies --no-tui
    #[arg(long)]
    json: bool,

    /// A line of progress now and then on stderr instead of the live view
    #[arg(long)]
    no_tui: bool,

    /// File for the report [default: ./tidegate-demo.html; none with --json]
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
}

impl Args {
    fn plan(&self) -> Result<DemoPlan, PlanError> {
        DemoPlan::new(&DemoRequest {
            target: self.target,
            set_point_ratio: self.set_point,
            law: self.law,
            seed: self.seed,
            burst: self.burst,
            pause: self.pause,
            duration: self.duration,
        })
    }

    fn report(&self) -> Option<&Path> {
        self.report.as_deref().or((!self.json).then_some(Path::new(REPORT)))
    }
}

/// Reasons why there is no demonstration.
#[derive(Debug, Error)]
pub(crate) enum DemoError {
    /// The arguments contradict each other.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// It could not run to its end.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// The report could not be drawn.
    #[error(transparent)]
    Plot(#[from] PlotError),
    /// The report could not be written.
    #[error("cannot write the report {}: {source}", path.display())]
    Report {
        /// The file that it should have been written to.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// The terminal failed.
    #[error("cannot show the demonstration: {0}")]
    Show(#[from] io::Error),
    /// The result could not be put into JSON.
    #[error("cannot write the result: {0}")]
    Json(#[from] serde_json::Error),
    /// The receiver of the result is gone.
    #[error("cannot write the result: {0}")]
    Output(#[source] io::Error),
}

/// Runs the demonstration and says what came of it. A missed goal is no error: it is said, clearly.
///
/// # Errors
/// When it could not run to its end, be shown or be written down. A person who quits the live view has no
/// error.
pub(crate) fn run(args: &Args) -> Result<(), DemoError> {
    let plan = args.plan()?;
    let live = !args.json && !args.no_tui && terminal::is_interactive();
    let stop = terminal::end_signals(live)?;
    let (sender, events) = mpsc::channel();
    let (shown, ran) = thread::scope(|scope| {
        let scenario = scope.spawn(|| scenario::run(&plan, &stop, sender));
        let shown = show(&plan, &events, live, &stop);
        // The view is gone: quit, failed, or the scenario is through anyway.
        drop(events);
        if !matches!(shown, Ok(ViewEnd::Finished)) {
            stop.store(true, Ordering::Relaxed);
        }
        (shown, scenario.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    let quit = shown? == ViewEnd::Quit;
    let timeline = match ran {
        Err(ScenarioError::Stopped) if quit => {
            writeln!(out::stderr(), "Stopped before the end: there is no result.")?;
            return Ok(());
        }
        ran => ran?,
    };
    conclude(args, &timeline)
}

fn show(plan: &DemoPlan, events: &Receiver<DemoEvent>, live: bool, stop: &AtomicBool) -> io::Result<ViewEnd> {
    let progress = DemoProgress::new(plan.clone());
    if live {
        view::show(progress, events, &|| stop.load(Ordering::Relaxed))
    } else {
        follow(progress, events)
    }
}

/// Lines of progress on stderr until the scenario is through.
fn follow(mut progress: DemoProgress, events: &Receiver<DemoEvent>) -> io::Result<ViewEnd> {
    for event in events {
        let (begins, passed) = (event == DemoEvent::PhaseBegins, matches!(event, DemoEvent::Second(_)));
        progress.apply(event);
        let seconds: usize = progress.phases.iter().map(Vec::len).sum();
        if begins || (passed && seconds.is_multiple_of(LINE_EVERY)) {
            writeln!(out::stderr(), "{}", text::progress_line(&progress))?;
        }
    }
    Ok(ViewEnd::Finished)
}

fn conclude(args: &Args, timeline: &DemoTimeline) -> Result<(), DemoError> {
    let outcome = judge::judge(timeline);
    if let Some(path) = args.report() {
        let page = report::write(timeline, &outcome, &production::configuration(&timeline.plan))?;
        fs::write(path, page).map_err(|source| DemoError::Report { path: path.to_owned(), source })?;
    }
    let mut text = if args.json { serde_json::to_string_pretty(&outcome)? } else { result(&outcome) };
    if let (false, Some(path)) = (args.json, args.report()) {
        let _ = write!(text, "\nReport: {}", path.display());
    }
    text.push('\n');
    let mut out = out::stdout();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(DemoError::Output)
}

fn result(outcome: &DemoOutcome) -> String {
    let mut out = format!(
        "\n{}\n\n{}\n{}\n\n{}",
        text::wrapped(&text::headline(outcome)),
        text::table(outcome),
        text::wrapped(&text::legend(outcome)),
        text::verdict(outcome)
    );
    if let Some(caution) = text::caution(outcome) {
        out.push_str(&text::wrapped(&caution));
        out.push('\n');
    }
    out
}
