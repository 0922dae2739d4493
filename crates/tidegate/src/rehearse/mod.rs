//! `tidegate rehearse`: what a recorded time would have been with the law in force.

mod page;
mod text;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;

use serde::Serialize;
use tidegate_config::unknown_name;
use tidegate_journal::{JournalReader, LoopReplay, ReplayedDecision, ThrottleMechanism, WallTime};
use tidegate_rehearsal::{Recording, RehearsalOutcome, RehearsalReport, rehearse};
use tidegate_units::{Latency, ResourceName};

use crate::failure::CommandFailure;
use crate::journal::damaged;
use crate::journal::place::{JournalPlace, JournalSpan};
use crate::out;
use text::RehearsalText;

const EXAMPLES: &str = "\
Examples:
  tidegate rehearse --since 24h
  tidegate rehearse vg0 --since 168h --html vg0.html";

/// The usual length of the span.
const USUAL_SPAN: Latency = Latency::from_millis(24 * 3_600_000);

/// Report what a time on a dry run would have been with the law in force, from the decision journal
///
/// Fits a model of the storage to the journal, and runs the law against it under the recorded demand. States
/// how far the model misses latencies that it has not seen, and the range of each figure. Claims nothing
/// where the model does not fit. Times are UTC.
///
/// Exit status: 0 reported; 1 nothing can be claimed about a resource, and the report has the reasons;
/// 2 wrong usage, an unknown name, or a part of the journal that is damaged or not kept.
#[derive(clap::Args)]
#[command(
    after_help = EXAMPLES,
    mut_arg("since", |since| since.help("Length of the span, such as 30min or 168h [default: 24h]"))
)]
pub(crate) struct Args {
    /// The resource [default: all]
    #[arg(value_name = "RESOURCE")]
    resource: Option<String>,

    #[command(flatten)]
    place: JournalPlace,

    #[command(flatten)]
    span: JournalSpan,

    /// Write the report as one page that can be printed
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// The report of a rehearsal, and the time that it is about.
#[derive(Debug, Serialize)]
struct RehearsedResource {
    from: String,
    to: String,
    #[serde(flatten)]
    report: RehearsalReport,
}

pub(crate) fn run(args: &Args) -> Result<(), CommandFailure> {
    let reader = args.place.open()?;
    let mut damage = None;
    let recorded = read(args, &reader, &mut damage)?;
    let rehearsed: Vec<RehearsedResource> = recorded.values().map(RecordedResource::rehearse).collect();
    let mut out = out::stdout();
    if args.json {
        serde_json::to_writer(&mut out, &rehearsed).map_err(io::Error::from)?;
        writeln!(out)?;
    } else {
        write!(out, "{}", RehearsalText(&rehearsed))?;
    }
    if let Some(path) = &args.html {
        let page = page::write(&rehearsed).map_err(CommandFailure::Plot)?;
        fs::write(path, page).map_err(|source| CommandFailure::WriteReport { path: path.clone(), source })?;
    }
    if let Some(damage) = damage {
        return Err(damage);
    }
    let is_refused = |one: &&RehearsedResource| matches!(one.report.outcome, RehearsalOutcome::Refused(_));
    match rehearsed.iter().filter(is_refused).count() {
        0 => Ok(()),
        refused => Err(CommandFailure::NoClaim(refused)),
    }
}

/// A recording under way, and its time.
struct RecordedResource {
    recording: Recording,
    from: WallTime,
    to: WallTime,
}

impl RecordedResource {
    fn rehearse(&self) -> RehearsedResource {
        RehearsedResource {
            from: self.from.to_string(),
            to: self.to.to_string(),
            report: rehearse(&self.recording),
        }
    }
}

/// Reads the recordings of all resources in question.
fn read(
    args: &Args,
    reader: &JournalReader,
    damage: &mut Option<CommandFailure>,
) -> Result<BTreeMap<ResourceName, RecordedResource>, CommandFailure> {
    let mut replay = reader.replay(args.span.filter_or(USUAL_SPAN), LoopReplay::as_recorded())?;
    let mut recorded = BTreeMap::new();
    let mut others = BTreeSet::new();
    while let Some(replayed) = replay.next() {
        let replayed = match replayed {
            Ok(replayed) => replayed,
            Err(error) => {
                *damage = damage.take().or(Some(damaged(error)?.into()));
                continue;
            }
        };
        let resource = replayed.recorded.resource();
        if args.resource.as_ref().is_some_and(|wanted| wanted != resource.as_str()) {
            others.insert(resource.clone());
            continue;
        }
        let (config, mechanism) = (replay.loops().config(resource), replay.loops().mechanism(resource));
        let resource = recorded.entry(resource.clone()).or_insert_with(|| RecordedResource {
            recording: Recording::new(resource.clone()),
            from: replayed.time,
            to: replayed.time,
        });
        if let Some(config) = config {
            resource.recording.configure(config);
        }
        if mechanism.is_some_and(|mechanism| mechanism != ThrottleMechanism::Queue) {
            resource.recording.not_a_queue();
        }
        take(resource, &replayed)?;
    }
    match (&args.resource, recorded.is_empty()) {
        (Some(name), true) => {
            let names: Vec<String> = others.iter().map(ToString::to_string).collect();
            let empty = "nothing was decided in that time";
            let unknown = unknown_name("resource", name, "that time", &names, empty);
            Err(CommandFailure::Usage(unknown))
        }
        _ => Ok(recorded),
    }
}

fn take(resource: &mut RecordedResource, replayed: &ReplayedDecision) -> Result<(), CommandFailure> {
    resource.to = replayed.time;
    let observation = replayed.recorded.observation();
    let window = replayed.recorded.reading().and_then(|reading| reading.window);
    let seconds = replayed.time.saturating_since(resource.from).as_secs_f64();
    let taken = resource.recording.push(seconds, &observation, replayed.recorded.held(), window);
    taken.map_err(|full| CommandFailure::Usage(full.to_string()))
}
