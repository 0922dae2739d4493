//! `tidegate replay`.

mod change;

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Write};

use serde::Serialize;
use tidegate_control::{Commands, LawKind};
use tidegate_journal::{LoopReplay, ReplayedDecision};
use tidegate_units::ResourceName;

use crate::failure::CommandFailure;
use crate::journal::damaged;
use crate::journal::place::{JournalPlace, JournalSpan};
use crate::out;
use change::LoopChange;

const EXAMPLES: &str = "\
Examples:
  tidegate replay --since 2h
  tidegate replay --law window --set target=20ms
  tidegate replay --set window.beta=8 --json";

/// Decide again from recorded inputs: as it was, or by another law or with other parameters
///
/// Without a change the commands are those of the journal, bit for bit, if the same build wrote it. With one,
/// only the decisions are others: the recorded storage does not answer to them.
///
/// Exit status: 0 done, and without a change every command is as recorded; 1 a command is another one;
/// 2 wrong usage, or a part of the journal that is damaged, of another version, or not kept.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    place: JournalPlace,

    #[command(flatten)]
    span: JournalSpan,

    /// Another law, with the defaults of its parameters
    #[arg(long, value_name = "LAW", value_parser = law)]
    law: Option<LawKind>,

    /// Another value of a key of the pool or resource, such as target=20ms or window.beta=8; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    settings: Vec<String>,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

fn law(text: &str) -> Result<LawKind, String> {
    let names: Vec<&str> = LawKind::ALL.iter().map(|kind| kind.name()).collect();
    let known = LawKind::ALL.into_iter().find(|kind| kind.name() == text);
    known.ok_or_else(|| format!("use one of {}", names.join(", ")))
}

/// The replay of one resource.
#[derive(Debug, Default, Serialize)]
struct ReplayOutcome {
    /// Decisions in the span.
    decisions: u64,
    /// Decisions whose commands are as recorded, bit for bit.
    agreeing: u64,
    /// Decisions that could not be made again.
    unknown: u64,
    /// The first decision with other commands.
    #[serde(skip_serializing_if = "Option::is_none")]
    first_difference: Option<Difference>,
}

/// A decision with other commands than the recorded ones.
#[derive(Debug, Serialize)]
struct Difference {
    time: String,
    /// The recorded commands.
    recorded: Commands,
    /// The commands of the replay.
    replayed: Commands,
    /// The decision of the replay in words.
    said: String,
}

pub(crate) fn run(args: &Args) -> Result<(), CommandFailure> {
    let reader = args.place.open()?;
    let change = LoopChange::new(args.law, &args.settings)?;
    let replay = match &change {
        Some(change) => LoopReplay::changed(change.clone().into_config_change()),
        None => LoopReplay::as_recorded(),
    };
    let mut outcomes: BTreeMap<ResourceName, ReplayOutcome> = BTreeMap::new();
    let mut damage = None;
    for replayed in reader.replay(args.span.filter(), replay)? {
        match replayed {
            Ok(replayed) => {
                let resource = replayed.recorded.resource().clone();
                outcomes.entry(resource).or_default().take(&replayed);
            }
            Err(error) => damage = damage.or(Some(damaged(error)?)),
        }
    }
    let mut out = out::stdout();
    if args.json {
        serde_json::to_writer(&mut out, &outcomes).map_err(io::Error::from)?;
        writeln!(out)?;
    } else {
        outcomes.iter().try_for_each(|(resource, outcome)| write!(out, "{resource}: {outcome}"))?;
    }
    if let Some(damage) = damage {
        return Err(damage.into());
    }
    let differing = outcomes.values().filter(|outcome| outcome.agreeing < outcome.decisions).count();
    if change.is_none() && differing > 0 {
        return Err(CommandFailure::Replay(differing));
    }
    Ok(())
}

impl ReplayOutcome {
    fn take(&mut self, replayed: &ReplayedDecision) {
        self.decisions += 1;
        let Some((commands, decision)) = &replayed.recomputed else {
            self.unknown += 1;
            return;
        };
        if replayed.agrees() {
            self.agreeing += 1;
        } else if self.first_difference.is_none() {
            self.first_difference = Some(Difference {
                time: replayed.time.to_string(),
                recorded: replayed.recorded.commands().clone(),
                replayed: commands.clone(),
                said: decision.to_string(),
            });
        }
    }
}

impl fmt::Display for ReplayOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { decisions, agreeing, unknown, first_difference } = self;
        writeln!(f, "{agreeing} of {decisions} decisions have the recorded commands, bit for bit")?;
        if *unknown > 0 {
            writeln!(f, "  {unknown} could not be made again: another build wrote their checkpoint")?;
        }
        let Some(first) = first_difference else { return Ok(()) };
        writeln!(f, "  first difference at {}", first.time)?;
        writeln!(f, "  recorded  {}", told(&first.recorded))?;
        writeln!(f, "  replayed  {}", told(&first.replayed))?;
        writeln!(f, "  because   {}", first.said)
    }
}

/// Commands in words: the window, or the first few consumers.
fn told(commands: &Commands) -> String {
    let window = commands.window.map(|window| format!("a window of {window}"));
    let consumers = commands.consumers.iter().filter_map(|command| match (command.rate, command.delay) {
        (Some(rate), _) => Some(format!("{} at {rate}", command.name)),
        (None, Some(delay)) => Some(format!("{} delayed by {delay}", command.name)),
        (None, None) => None,
    });
    let told: Vec<String> = window.into_iter().chain(consumers.take(4)).collect();
    if told.is_empty() { "nothing is throttled".to_owned() } else { told.join(", ") }
}
