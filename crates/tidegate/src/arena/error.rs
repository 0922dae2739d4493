//! Reasons why the arena has no result.

use std::io;
use std::path::PathBuf;

use thiserror::Error;
use tidegate_sim::ScenarioError;

/// Reasons why the arena has no result.
#[derive(Debug, Error)]
pub(crate) enum ArenaError {
    /// A scenario could not be simulated.
    #[error("cannot simulate the scenario of seed {seed}: {source}")]
    Simulate {
        /// Its seed.
        seed: u64,
        /// The cause.
        source: ScenarioError,
    },
    /// The report could not be written.
    #[error("cannot write {}: {source}", path.display())]
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
