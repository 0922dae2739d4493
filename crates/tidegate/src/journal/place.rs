//! The place of a decision journal, and the times that its readers ask for.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use tidegate_journal::{EntryFilter, JournalReader};
use tidegate_service::config::journal_folder;
use tidegate_service::explain::{AskedTime, NoTime, asked_span};
use tidegate_units::Latency;

use crate::failure::CommandFailure;

/// The configurations of the packaged services: the gateway's, then the agent's.
const USUAL: [&str; 2] = ["/etc/tidegate/tidegate.toml", "/etc/tidegate/agent.toml"];

/// The journal to read.
#[derive(clap::Args)]
pub(crate) struct JournalPlace {
    /// The service's configuration, whose `journal` names the folder
    /// [default: /etc/tidegate/tidegate.toml, then agent.toml beside it]
    #[arg(short, long, value_name = "FILE", conflicts_with = "journal")]
    config: Option<PathBuf>,

    /// Folder of the journal
    #[arg(long, value_name = "DIR")]
    journal: Option<PathBuf>,
}

impl JournalPlace {
    /// Returns true if a configuration or a folder is named.
    pub(crate) const fn is_named(&self) -> bool {
        self.config.is_some() || self.journal.is_some()
    }

    pub(crate) fn open(&self) -> Result<JournalReader, CommandFailure> {
        Ok(JournalReader::open(&self.folder()?)?)
    }

    /// Returns the folder of the journal.
    pub(crate) fn folder(&self) -> Result<PathBuf, CommandFailure> {
        match (&self.journal, &self.config) {
            (Some(folder), _) => Ok(folder.clone()),
            (None, Some(config)) => configured(&[config]),
            (None, None) => configured(&USUAL.map(Path::new)),
        }
    }
}

/// Returns the folder of the first journal that one of these configurations names. One alone must be there.
fn configured(configs: &[&Path]) -> Result<PathBuf, CommandFailure> {
    let is_there = |config: &&&Path| configs.len() == 1 || config.exists();
    let there: Vec<&&Path> = configs.iter().filter(is_there).collect();
    for config in &there {
        if let Some(folder) = journal_folder(config)? {
            return Ok(folder);
        }
    }
    Err(CommandFailure::Usage(match there.first() {
        Some(config) => format!(
            "{} keeps no decision journal: add `journal = {{ folder = \"/var/lib/tidegate/journal\" }}`",
            config.display()
        ),
        None => format!(
            "there is neither {}: name the configuration with `-c FILE`, or the journal with `--journal DIR`",
            USUAL.join(" nor ")
        ),
    }))
}

/// The span of time to read.
#[derive(clap::Args)]
pub(crate) struct JournalSpan {
    /// End of the span: 2026-11-26T14:00:00Z, or 14:00 for the last time that it was that late (UTC)
    /// [default: now]
    #[arg(long, value_name = "TIME")]
    at: Option<GivenTime>,

    /// Length of the span, such as 30min or 2h [default: 1h]
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
        asked_span(self.at.as_ref().map(|asked| asked.time), self.since)
    }

    /// Returns the same, with another length where none is given.
    pub(crate) fn filter_or(&self, usual: Latency) -> EntryFilter {
        asked_span(self.at.as_ref().map(|asked| asked.time), self.since.or(Some(usual)))
    }

    /// Returns the span as it is asked of a service.
    pub(crate) fn query(&self) -> Vec<(&'static str, String)> {
        let at = self.at.as_ref().map(|asked| ("at", asked.text.clone()));
        let since = self.since.map(|since| ("since", format!("{}ns", since.as_nanos())));
        at.into_iter().chain(since).collect()
    }
}

/// A time that was asked for, and its text.
#[derive(Debug, Clone)]
struct GivenTime {
    text: String,
    time: AskedTime,
}

impl FromStr for GivenTime {
    type Err = NoTime;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self { text: text.to_owned(), time: text.parse()? })
    }
}
