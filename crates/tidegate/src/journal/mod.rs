//! `tidegate journal`: what is kept, and its export for other programs.

pub(crate) mod place;

use std::io::{self, Write};

use clap::builder::{PathBufValueParser, TypedValueParser};
use serde::Serialize;
use tidegate_control::{ConsumerObservation, Decision};
use tidegate_journal::{JournalError, LoopReplay, ReplayedDecision};
use tidegate_program::rows::TableRow;
use tidegate_units::{Bytes, Iops, Latency, Window};

use crate::failure::CommandFailure;
use crate::out;
use crate::table_file::{TableFile, TablePath};
use place::{JournalPlace, JournalSpan};

const EXAMPLES: &str = "\
Examples:
  tidegate journal info
  tidegate journal export --since 2h --at 14:00 --out incident.parquet";

/// Read the decision journal of a gateway or an agent
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: JournalCommand,
}

#[derive(clap::Subcommand)]
enum JournalCommand {
    Info(InfoArgs),
    Export(ExportArgs),
}

/// Print from when on decisions are kept, and in how many bytes
#[derive(clap::Args)]
struct InfoArgs {
    #[command(flatten)]
    place: JournalPlace,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Write a row for each decision and consumer to a file
///
/// Exit status: 0 done; 1 a file cannot be written; 2 a part of the journal is damaged, of another version,
/// or not kept, and the rest is written.
#[derive(clap::Args)]
struct ExportArgs {
    #[command(flatten)]
    place: JournalPlace,

    #[command(flatten)]
    span: JournalSpan,

    /// The file, as its name says: FILE.csv or FILE.parquet
    #[arg(long, value_name = "FILE", value_parser = PathBufValueParser::new().try_map(TablePath::try_from))]
    out: TablePath,
}

pub(crate) fn run(args: &Args) -> Result<(), CommandFailure> {
    match &args.command {
        JournalCommand::Info(args) => info(args),
        JournalCommand::Export(args) => export(args),
    }
}

/// Span and size of a journal.
#[derive(Serialize)]
struct KeptSpan {
    oldest: String,
    newest: String,
    bytes: u64,
}

fn info(args: &InfoArgs) -> Result<(), CommandFailure> {
    let reader = args.place.open()?;
    let kept = KeptSpan {
        oldest: reader.oldest().to_string(),
        newest: reader.newest()?.to_string(),
        bytes: reader.bytes(),
    };
    let mut out = out::stdout();
    if args.json {
        serde_json::to_writer(&mut out, &kept).map_err(io::Error::from)?;
        writeln!(out)?;
    } else {
        writeln!(out, "decisions from {} to {}, {}", kept.oldest, kept.newest, Bytes::new(kept.bytes))?;
    }
    Ok(())
}

/// The columns of an export: when and of whom, then [`numbers`].
const COLUMNS: [&str; 3 + NUMBERS] = [
    "time_s",
    "resource",
    "consumer",
    "protected",
    "reads",
    "read_bytes",
    "read_latency_s",
    "writes",
    "written_bytes",
    "write_latency_s",
    "outstanding",
    "queued",
    "elapsed_s",
    "signal_s",
    "set_point_s",
    "throttled_consumers",
    "window",
    "delay_s",
    "rate_iops",
    "agrees",
];

const NUMBERS: usize = 17;

fn export(args: &ExportArgs) -> Result<(), CommandFailure> {
    let reader = args.place.open()?;
    let replay = reader.replay(args.span.filter(), LoopReplay::as_recorded())?;
    let mut file = args.out.create(&COLUMNS)?;
    let mut damage = None;
    for replayed in replay {
        match replayed {
            Ok(replayed) => write(&mut file, &replayed).map_err(|error| args.out.unwritable(error))?,
            Err(error) => damage = damage.or(Some(damaged(error)?)),
        }
    }
    file.finish().map_err(|error| args.out.unwritable(error))?;
    damage.map_or(Ok(()), |damage| Err(damage.into()))
}

/// Returns an error about a part of a journal, beside which the rest can be read.
pub(crate) fn damaged(error: JournalError) -> Result<JournalError, CommandFailure> {
    if error.is_damage() { Ok(error) } else { Err(error.into()) }
}

fn write(file: &mut TableFile, replayed: &ReplayedDecision) -> io::Result<()> {
    let observation = replayed.recorded.observation();
    let time_s = replayed.time.as_nanos() as f64 / 1e9;
    for consumer in &observation.consumers {
        file.write(&TableRow {
            time_s,
            names: [observation.resource.as_str(), consumer.name.as_str()],
            numbers: &numbers(replayed, consumer),
        })?;
    }
    Ok(())
}

fn numbers(replayed: &ReplayedDecision, consumer: &ConsumerObservation) -> [Option<f64>; NUMBERS] {
    let commands = replayed.recorded.commands();
    let command = commands.consumers.iter().find(|command| command.name == consumer.name);
    let decision: Option<&Decision> = replayed.recomputed.as_ref().map(|(_, decision)| decision);
    let flag = |is_set: bool| Some(f64::from(u8::from(is_set)));
    let (reads, writes) = (&consumer.reads, &consumer.writes);
    [
        flag(consumer.protected),
        Some(reads.count as f64),
        Some(reads.bytes.get() as f64),
        Some(reads.total_latency.as_secs_f64()),
        Some(writes.count as f64),
        Some(writes.bytes.get() as f64),
        Some(writes.total_latency.as_secs_f64()),
        Some(consumer.mean_outstanding.get()),
        Some(f64::from(consumer.queued)),
        decision.map(|decision| decision.elapsed.as_secs_f64()),
        decision.and_then(Decision::compared).map(Latency::as_secs_f64),
        decision.map(|decision| decision.steered_to().as_secs_f64()),
        Some(f64::from(replayed.recorded.held())),
        commands.window.map(Window::get),
        command.and_then(|command| command.delay).map(Latency::as_secs_f64),
        command.and_then(|command| command.rate).map(Iops::per_second),
        flag(replayed.agrees()),
    ]
}
