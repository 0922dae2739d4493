//! `tidegate explain`.

mod names;
mod text;

use std::io::{self, Write};
use std::time::Duration;

use tidegate_service::explain::{ExplainError, JournalExplanation, ResourceExplanation, explain_journal};

use crate::failure::CommandFailure;
use crate::http::{CallerOptions, with_query};
use crate::journal::place::{JournalPlace, JournalSpan};
use crate::out;
use crate::status;
use names::CgroupNames;
use text::ExplanationText;

const EXAMPLES: &str = "\
Examples:
  tidegate explain backup
  tidegate explain backup --at 14:00
  tidegate explain array --since 2h --json
  tidegate explain backup --url https://storage-1.example:9810 --token-file reader.token";

/// A service reads its journal for at most 30 s.
const PATIENCE: Duration = Duration::from_secs(40);

/// Explain which consumers are throttled: since when, how much, why, for which other, and at what cost
///
/// Reads the decision journal, and decides again from what was recorded. With --url, a running service reads
/// its own. Times are UTC.
///
/// Exit status: 0 explained; 1 the journal cannot be read; 2 an unknown name, or a time that is not kept.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// A consumer or a resource [default: all resources]
    #[arg(value_name = "CONSUMER|RESOURCE")]
    name: Option<String>,

    #[command(flatten)]
    span: JournalSpan,

    #[command(flatten)]
    place: JournalPlace,

    /// Address of a running service, which reads its own journal: http://HOST:PORT, https://HOST:PORT or
    /// unix:PATH
    #[arg(long, value_name = "URL")]
    url: Option<String>,

    #[command(flatten)]
    caller: CallerOptions,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<(), CommandFailure> {
    let explanations = match &args.url {
        Some(_) if args.place.is_named() => {
            let why = "a service with `--url` reads its own journal: leave `-c` and `--journal` out";
            return Err(CommandFailure::Usage(why.to_owned()));
        }
        Some(url) => asked(args, url)?,
        None => read(args)?,
    };
    let mut out = out::stdout();
    if args.json {
        writeln!(out, "{}", serde_json::to_string(&explanations).map_err(io::Error::from)?)?;
    } else {
        write!(out, "{}", ExplanationText { explanations: &explanations, tells_all: args.span.is_long() })?;
    }
    Ok(())
}

/// Explains from a journal in a folder of this machine.
fn read(args: &Args) -> Result<Vec<ResourceExplanation>, CommandFailure> {
    let reader = args.place.open()?;
    let names = CgroupNames::of_machine();
    let name = args.name.as_deref().map(|name| names.path(name));
    let explained = explain_journal(&reader, args.span.filter(), name, || true);
    let JournalExplanation { mut explanations, remarks } = explained.map_err(|error| match error {
        ExplainError::Journal(error) => error.into(),
        ExplainError::Unknown(_) | ExplainError::Stopped => CommandFailure::Usage(error.to_string()),
    })?;
    for remark in remarks {
        writeln!(out::stderr(), "tidegate: {remark}")?;
    }
    names.add_to(&mut explanations);
    Ok(explanations)
}

/// Asks a service, which reads its own journal.
fn asked(args: &Args, url: &str) -> Result<Vec<ResourceExplanation>, CommandFailure> {
    let client = args.caller.client(url)?.with_patience(PATIENCE);
    // Without names the explanation is as good.
    let status = client.get("/v1/status").ok().and_then(|answer| status::read(&answer).ok());
    let names = status.map(CgroupNames::of_service).unwrap_or_default();
    let mut query = args.span.query();
    query.extend(args.name.as_deref().map(|name| ("name", names.path(name).to_owned())));
    let answer = client.get(&with_query("/v1/explain", &query))?;
    let mut explanations: Vec<ResourceExplanation> = answer.read("explanation")?;
    names.add_to(&mut explanations);
    Ok(explanations)
}
