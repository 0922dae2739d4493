//! The place of a decision journal, and the times that its readers ask for.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{Duration, SystemTime};

use thiserror::Error;
use tidegate_config::nearest;
use tidegate_journal::{EntryFilter, JournalReader, WallTime};
use tidegate_service::config::journal_folder;
use tidegate_units::Latency;

use crate::failure::CommandFailure;

/// The configuration that the packages install.
const USUAL: &str = "/etc/tidegate/tidegate.toml";

/// The journal to read.
#[derive(clap::Args)]
pub(crate) struct JournalPlace {
    /// The service's configuration, whose `journal` names the folder
    /// [default: /etc/tidegate/tidegate.toml]
    #[arg(short, long, value_name = "FILE", conflicts_with = "journal")]
    config: Option<PathBuf>,

    /// Folder of the journal
    #[arg(long, value_name = "DIR")]
    journal: Option<PathBuf>,
}

impl JournalPlace {
    pub(crate) fn open(&self) -> Result<JournalReader, CommandFailure> {
        Ok(JournalReader::open(&self.folder()?)?)
    }

    /// Returns the folder of the journal.
    pub(crate) fn folder(&self) -> Result<PathBuf, CommandFailure> {
        match (&self.journal, &self.config) {
            (Some(folder), _) => Ok(folder.clone()),
            (None, Some(config)) => configured(config),
            (None, None) if Path::new(USUAL).exists() => configured(Path::new(USUAL)),
            (None, None) => Err(CommandFailure::Usage(format!(
                "there is no {USUAL}: name the configuration with `-c FILE`, or the journal with \
                 `--journal DIR`"
            ))),
        }
    }
}

/// Returns the failure for a name that is not among the known ones. `kind` says what it should name, and
/// `span` the time that was looked at; `empty` is the help if there are none.
pub(crate) fn unknown_name(
    kind: &str,
    name: &str,
    span: &str,
    known: &[String],
    empty: &str,
) -> CommandFailure {
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    let shown = name.escape_debug();
    let help = match nearest(name, &known) {
        Some(near) => format!("did you mean `{near}`?"),
        None if known.is_empty() => empty.to_owned(),
        None => format!("there are {}", known.join(", ")),
    };
    CommandFailure::Usage(format!("no {kind} `{shown}` in {span}: {help}"))
}

fn configured(config: &Path) -> Result<PathBuf, CommandFailure> {
    journal_folder(config)?.ok_or_else(|| {
        CommandFailure::Usage(format!(
            "{} keeps no decision journal: add `journal = {{ folder = \"/var/lib/tidegate/journal\" }}`",
            config.display()
        ))
    })
}

/// The span of time to read.
#[derive(clap::Args)]
pub(crate) struct JournalSpan {
    /// End of the span: 2026-11-26T14:00:00Z, or 14:00 for the last time that it was that late (UTC)
    /// [default: now]
    #[arg(long, value_name = "TIME")]
    at: Option<AskedTime>,

    /// Length of the span, such as 30m or 2h [default: 1h]
    #[arg(long, value_name = "DURATION")]
    since: Option<Latency>,
}

impl JournalSpan {
    /// Returns true if the length of the span is given.
    pub(crate) const fn is_long(&self) -> bool {
        self.since.is_some()
    }

    /// Returns the span as times of day. Without an end it goes to the newest entry, and beyond.
    pub(crate) fn filter(&self) -> EntryFilter {
        let until = self.at.map_or_else(WallTime::now, |asked| asked.0);
        let length = self.since.map_or(DEFAULT_SPAN, Latency::to_duration);
        let length = u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
        let from = WallTime::from_nanos(until.as_nanos().saturating_sub(length));
        EntryFilter { from, until, resource: None }
    }
}

const DEFAULT_SPAN: Duration = Duration::from_secs(3_600);

/// A time that was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct AskedTime(WallTime);

#[derive(Debug, Error)]
#[error("write 2026-11-26T14:00:00Z, or 14:00 (UTC)")]
struct NoTime;

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
