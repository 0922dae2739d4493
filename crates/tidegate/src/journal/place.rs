//! The place of a decision journal, and the times that its readers ask for.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use tidegate_journal::{EntryFilter, JournalReader};
use tidegate_service::config::journal_folder;
use tidegate_service::explain::{AskedTime, NoTime, asked_span};
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
    /// Returns true if a configuration or a folder is named.
    pub(crate) const fn is_named(&self) -> bool {
        self.config.is_some() || self.journal.is_some()
    }

    pub(crate) fn open(&self) -> Result<JournalReader, CommandFailure> {
        let folder = match (&self.journal, &self.config) {
            (Some(folder), _) => folder.clone(),
            (None, Some(config)) => configured(config)?,
            (None, None) if Path::new(USUAL).exists() => configured(Path::new(USUAL))?,
            (None, None) => {
                return Err(CommandFailure::Usage(format!(
                    "there is no {USUAL}: name the configuration with `-c FILE`, or the journal with \
                     `--journal DIR`"
                )));
            }
        };
        Ok(JournalReader::open(&folder)?)
    }
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
    at: Option<GivenTime>,

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
        asked_span(self.at.as_ref().map(|asked| asked.time), self.since)
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
