//! `tidegate report`: the statement of a month for one consumer.

mod page;
mod text;

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;

use clap::builder::{PathBufValueParser, TypedValueParser};
use tidegate_config::unknown_name;
use tidegate_journal::WallTime;
use tidegate_program::rows::TableRow;
use tidegate_rollups::{JudgedBy, Minute, Month, RollupError, RollupReader};
use tidegate_service::statement::{DayFigures, MonthStatement, StatementFold};
use tidegate_units::ConsumerName;

use crate::failure::CommandFailure;
use crate::journal::place::JournalPlace;
use crate::out;
use crate::table_file::TablePath;
use text::StatementText;

const EXAMPLES: &str = "\
Examples:
  tidegate report w1 --month 2026-11
  tidegate report w1 --month 2026-11 --html w1.html --csv w1.csv";

/// Print what a consumer was promised in a month, how much of that was kept, and what it got
///
/// Reads the rollups beside the decision journal, which are kept for 13 months. Days are days in UTC.
///
/// Exit status: 0 reported; 1 a file cannot be read or written; 2 an unknown name, a month that is not kept,
/// or a damaged file, beside which the rest is reported.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The consumer: a name of an export
    #[arg(value_name = "CONSUMER")]
    consumer: String,

    /// The month, such as 2026-11 [default: the month under way]
    #[arg(long, value_name = "MONTH")]
    month: Option<Month>,

    #[command(flatten)]
    place: JournalPlace,

    /// Write the statement as one page that can be printed
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    /// Write a row for each day: to FILE.csv or FILE.parquet
    #[arg(long, value_name = "FILE", value_parser = PathBufValueParser::new().try_map(TablePath::try_from))]
    csv: Option<TablePath>,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<(), CommandFailure> {
    let now = Minute::of(WallTime::now());
    let month = args.month.unwrap_or_else(|| now.month());
    let reader = RollupReader::open(&args.place.folder()?)?;
    // Text that is no name is the name of no consumer.
    let consumer = ConsumerName::new(&args.consumer).ok();
    let consumer = consumer.ok_or_else(|| unknown(&reader, &args.consumer, month))?;
    let mut fold = StatementFold::new(consumer, month, now);
    let mut damage = reader.read(month, |minute, key, counts| fold.take(minute, key, counts))?.into_iter();
    let Some(statement) = fold.finish() else {
        return Err(damage.next().map_or_else(|| unknown(&reader, &args.consumer, month), Into::into));
    };
    print(args, &statement)?;
    if let Some(path) = &args.html {
        let page = page::write(&statement).map_err(CommandFailure::Plot)?;
        fs::write(path, page).map_err(|source| CommandFailure::WriteReport { path: path.clone(), source })?;
    }
    if let Some(path) = &args.csv {
        write_rows(path, &statement)?;
    }
    // The last one is the message of the failure.
    let last: Option<RollupError> = damage.next_back();
    for error in damage {
        writeln!(out::stderr(), "tidegate: {error}")?;
    }
    last.map_or(Ok(()), |error| Err(error.into()))
}

fn unknown(reader: &RollupReader, name: &str, month: Month) -> CommandFailure {
    let mut names = BTreeSet::new();
    let read = reader.read(month, |_, key, _| {
        if !names.contains(key.consumer.as_str()) {
            names.insert(key.consumer.to_string());
        }
    });
    let is_under_way = names.contains(name);
    let names: Vec<String> = names.into_iter().collect();
    match read {
        Err(error) => error.into(),
        Ok(_) if is_under_way => {
            CommandFailure::Usage(format!("the first minute of `{name}` is not over yet: ask again after it"))
        }
        Ok(_) => {
            let empty = "nothing is known of that month yet";
            CommandFailure::Usage(unknown_name("consumer", name, &month.to_string(), &names, empty))
        }
    }
}

fn print(args: &Args, statement: &MonthStatement) -> io::Result<()> {
    let mut out = out::stdout();
    if args.json {
        serde_json::to_writer(&mut out, statement).map_err(io::Error::from)?;
        writeln!(out)
    } else {
        write!(out, "{}", StatementText(statement))
    }
}

/// The columns of a file of days: when and of whom, then [`numbers`].
const COLUMNS: [&str; 3 + NUMBERS] = [
    "time_s",
    "resource",
    "consumer",
    "promised_s",
    "judged_seconds",
    "kept_seconds",
    "judged_requests",
    "kept_requests",
    "minutes",
    "judged_minutes",
    "missed_minutes",
    "idle_minutes",
    "unpromised_minutes",
    "unknown_minutes",
    "requests",
    "read_bytes",
    "written_bytes",
    "peak_iops",
    "storage_latency_s",
    "client_latency_s",
    "law_wait_s",
    "limit_wait_s",
    "share_wait_s",
    "depth_wait_s",
];

const NUMBERS: usize = 21;

fn write_rows(path: &TablePath, statement: &MonthStatement) -> Result<(), CommandFailure> {
    let mut file = path.create(&COLUMNS)?;
    let resources = statement.resources.join(" ");
    for day in &statement.days {
        let begin = statement.month.day(day.day).begin();
        let row = TableRow {
            time_s: begin.as_nanos() as f64 / 1e9,
            names: [&resources, &statement.consumer],
            numbers: &numbers(day),
        };
        file.write(&row).map_err(|error| path.unwritable(error))?;
    }
    file.finish().map_err(|error| path.unwritable(error))
}

fn numbers(day: &DayFigures) -> [Option<f64>; NUMBERS] {
    let figures = &day.figures;
    let sum = |unit: JudgedBy, number: fn(&tidegate_service::statement::PromiseFigures) -> u64| {
        let of_unit = figures.promises.iter().filter(move |promise| promise.judged_by == unit);
        Some(of_unit.map(number).sum::<u64>() as f64)
    };
    // Of several promises in a day none is that of the row.
    let promised = match &figures.promises[..] {
        [only] => Some(only.response_time_seconds),
        _ => None,
    };
    let minutes = &figures.minutes;
    [
        promised,
        sum(JudgedBy::Seconds, |promise| promise.judged),
        sum(JudgedBy::Seconds, |promise| promise.kept),
        sum(JudgedBy::Requests, |promise| promise.judged),
        sum(JudgedBy::Requests, |promise| promise.kept),
        Some(minutes.total as f64),
        Some(minutes.judged as f64),
        Some(minutes.missed as f64),
        Some(minutes.idle as f64),
        Some(minutes.unpromised as f64),
        Some(minutes.unknown as f64),
        Some(figures.requests as f64),
        Some(figures.read_bytes as f64),
        Some(figures.written_bytes as f64),
        figures.peak_iops,
        figures.storage_seconds,
        figures.client_seconds,
        Some(figures.waited.law_seconds),
        Some(figures.waited.limit_seconds),
        Some(figures.waited.share_seconds),
        Some(figures.waited.depth_seconds),
    ]
}
