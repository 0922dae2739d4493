//! Questions to a decision journal: the span of time, the name, and the explanations that answer them.

use std::str::FromStr;
use std::time::{Duration, SystemTime};

use thiserror::Error;
use tidegate_config::unknown_name;
use tidegate_journal::{ActionRecord, EntryFilter, JournalError, JournalReader, LoopReplay, WallTime};
use tidegate_units::Latency;

use super::{ExplainedAction, ExplanationFold, ResourceExplanation};

/// The span of time without a given length.
const DEFAULT_SPAN: Duration = Duration::from_secs(3_600);

/// A time that is asked for: a date with a time, or a time of day, which means the last one that was (UTC).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AskedTime(WallTime);

impl AskedTime {
    /// The time.
    #[must_use]
    pub const fn time(self) -> WallTime {
        self.0
    }
}

/// The error for a text that is not such a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("write 2026-11-26T14:00:00Z, or 14:00 (UTC)")]
pub struct NoTime;

impl FromStr for AskedTime {
    type Err = NoTime;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        asked(text, SystemTime::now()).map(|time| Self(time.into())).ok_or(NoTime)
    }
}

/// Returns the time that a text means. A time of day is the last one before `now`.
fn asked(text: &str, now: SystemTime) -> Option<SystemTime> {
    if let Ok(time) = humantime::parse_rfc3339_weak(text) {
        return Some(time);
    }
    let today = humantime::format_rfc3339_seconds(now).to_string();
    let (date, _) = today.split_once('T')?;
    let of_day = if text.matches(':').count() == 1 { format!("{text}:00") } else { text.to_owned() };
    let time = humantime::parse_rfc3339(&format!("{date}T{of_day}Z")).ok()?;
    Some(if time > now { time - Duration::from_secs(86_400) } else { time })
}

/// Returns the span of time that ends at `at` and is as long as `since`: by default the last hour.
#[must_use]
pub fn asked_span(at: Option<AskedTime>, since: Option<Latency>) -> EntryFilter {
    let until = at.map_or_else(WallTime::now, |asked| asked.0);
    let length = since.map_or(DEFAULT_SPAN, Latency::to_duration);
    let length = u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
    let from = WallTime::from_nanos(until.as_nanos().saturating_sub(length));
    EntryFilter { from, until, resource: None }
}

/// The explanations that a journal gives.
#[derive(Debug)]
pub struct JournalExplanation {
    /// One of each resource that was asked about.
    pub explanations: Vec<ResourceExplanation>,
    /// The parts of the journal that could not be read.
    pub remarks: Vec<String>,
}

/// The reasons why a journal explains nothing.
#[derive(Debug, Error)]
pub enum ExplainError {
    /// The journal cannot be read.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// There was no resource and no consumer of the name.
    #[error("{0}")]
    Unknown(String),
    /// The reading was stopped.
    #[error("the journal of this span takes too long to read: ask for a shorter one, with `since`")]
    Stopped,
}

/// Explains the consumer or the resource of a name, or all resources, from the decisions of a span of time.
/// Reads as long as `goes_on` says.
///
/// # Errors
/// When the journal cannot be read or keeps nothing of that time, or when the name does not occur.
pub fn explain_journal(
    reader: &JournalReader,
    span: EntryFilter,
    name: Option<&str>,
    goes_on: impl Fn() -> bool,
) -> Result<JournalExplanation, ExplainError> {
    let mut replay = reader.replay(span, LoopReplay::as_recorded())?;
    let mut fold = ExplanationFold::default();
    let mut damage = Vec::new();
    while let Some(replayed) = replay.next() {
        if !goes_on() {
            return Err(ExplainError::Stopped);
        }
        match replayed {
            Ok(replayed) => {
                let (loops, resource) = (replay.loops(), replayed.recorded.resource());
                if let (Some(config), Some(mechanism)) = (loops.config(resource), loops.mechanism(resource)) {
                    fold.take(&replayed, config, mechanism);
                }
            }
            Err(error) if error.is_damage() => damage.push(error),
            Err(error) => return Err(error.into()),
        }
    }
    let mut explanations = fold.explain(name);
    for explanation in &mut explanations {
        let of_resource = |action: &ActionRecord| {
            action.resource.as_ref().is_none_or(|resource| resource.as_str() == explanation.resource)
        };
        let actions = replay.actions().iter().filter(|(_, action)| of_resource(action));
        explanation.actions = actions
            .map(|(at, ActionRecord { actor, text, .. })| ExplainedAction {
                at: *at,
                actor: actor.clone(),
                text: text.clone(),
            })
            .collect();
    }
    if let Some(name) = name.filter(|_| explanations.is_empty()) {
        return Err(ExplainError::Unknown(unknown(name, &fold.names())));
    }
    let unreadable = replay.loops().unreadable().iter().map(ToString::to_string);
    let remarks = unreadable.chain(damage.iter().map(ToString::to_string)).collect();
    Ok(JournalExplanation { explanations, remarks })
}

fn unknown(name: &str, known: &[String]) -> String {
    unknown_name("consumer or resource", name, "that time", known, "nothing was decided in that time")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_of_day_is_the_last_one_that_was() {
        let at = |text: &str| humantime::parse_rfc3339(text).unwrap();
        let now = at("2026-11-26T10:00:00Z");
        for (text, meant) in [
            ("09:30", "2026-11-26T09:30:00Z"),
            ("09:30:15", "2026-11-26T09:30:15Z"),
            ("23:00", "2026-11-25T23:00:00Z"),
            ("2026-11-01T00:00:00Z", "2026-11-01T00:00:00Z"),
            ("2026-11-01 12:00:00", "2026-11-01T12:00:00Z"),
        ] {
            assert_eq!(asked(text, now), Some(at(meant)), "{text}");
        }
        for text in ["yesterday", "25:00", "9:30", ""] {
            assert_eq!(asked(text, now), None, "{text}");
        }
    }
}
