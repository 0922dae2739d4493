//! `tidegate explain`.

mod text;

use std::io::{self, Write};

use tidegate_journal::LoopReplay;
use tidegate_service::explain::ExplanationFold;

use crate::failure::CommandFailure;
use crate::journal::damaged;
use crate::journal::place::{JournalPlace, JournalSpan, unknown_name};
use text::ExplanationText;

const EXAMPLES: &str = "\
Examples:
  tidegate explain backup
  tidegate explain backup --at 14:00
  tidegate explain array --since 2h --json";

/// Explain which consumers are throttled: since when, how much, why, for which other, and at what cost
///
/// Reads the decision journal, and decides again from what was recorded. Times are UTC.
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

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<(), CommandFailure> {
    let reader = args.place.open()?;
    let mut replay = reader.replay(args.span.filter(), LoopReplay::as_recorded())?;
    let mut fold = ExplanationFold::default();
    let mut damage = Vec::new();
    while let Some(replayed) = replay.next() {
        match replayed {
            Ok(replayed) => {
                if let Some(config) = replay.loops().config(replayed.recorded.resource()) {
                    fold.take(&replayed, config);
                }
            }
            Err(error) => damage.push(damaged(error)?),
        }
    }
    let explanations = fold.explain(args.name.as_deref());
    if explanations.is_empty()
        && let Some(name) = &args.name
    {
        let nothing = "nothing was decided in that time";
        return Err(unknown_name("consumer or resource", name, "that time", &fold.names(), nothing));
    }
    let unreadable = replay.loops().unreadable().iter().map(ToString::to_string);
    for remark in unreadable.chain(damage.iter().map(ToString::to_string)) {
        writeln!(io::stderr(), "tidegate: {remark}")?;
    }
    let mut out = io::stdout();
    if args.json {
        serde_json::to_writer(&mut out, &explanations).map_err(io::Error::from)?;
        writeln!(out)?;
    } else {
        write!(out, "{}", ExplanationText { explanations: &explanations, tells_all: args.span.is_long() })?;
    }
    Ok(())
}
