//! Reasons why the arena has no result.

use std::io;
use std::path::PathBuf;

use thiserror::Error;
use tidegate_experiments::arena::NotJudged;
use tidegate_program::scenario_file::ScenarioFileError;
use tidegate_sim::ScenarioError;

/// Reasons why the arena has no result.
#[derive(Debug, Error)]
pub(crate) enum ArenaError {
    /// A file gives no scenario.
    #[error(transparent)]
    File(#[from] ScenarioFileError),
    /// The arena cannot judge a scenario that was written.
    #[error("cannot judge {}: {source}", path.display())]
    NotJudged {
        /// The scenario's file.
        path: PathBuf,
        /// The reason.
        source: NotJudged,
    },
    /// Scenarios of two files have the same name.
    #[error("two scenarios have the name `{0}`: give each another `name`")]
    SameName(String),
    /// A scenario could not be simulated.
    #[error("cannot simulate the scenario of {name}: {source}")]
    Simulate {
        /// Its seed, and its name if it was written.
        name: String,
        /// The cause.
        source: ScenarioError,
    },
    /// The report could not be written.
    #[error("{}: the report cannot be written: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// The receiver of the result is gone.
    #[error("cannot write the result: {0}")]
    Output(#[source] io::Error),
}
