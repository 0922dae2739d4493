//! Reasons why a reproduction failed.

use std::io;
use std::path::PathBuf;

use thiserror::Error;
use tidegate_experiments::{SubjectError, UnknownExperiment};

use tidegate_program::page::plot::PlotError;

/// Reasons why there is no result, or why it differs from the papers.
#[derive(Debug, Error)]
pub(crate) enum ReproduceError {
    /// There is no such experiment.
    #[error(transparent)]
    Unknown(#[from] UnknownExperiment),
    /// A run could not be simulated.
    #[error("cannot simulate `{what}`: {source}")]
    Simulate {
        /// Its name.
        what: String,
        /// The cause.
        source: SubjectError,
    },
    /// It ran, and differs otherwise than is known.
    #[error("{} of {all} experiments differ from the paper otherwise than is known: \
        {}", .differ.len(), .differ.join(", "))]
    Differs {
        /// The experiments that differ otherwise than is known.
        differ: Vec<String>,
        /// The number of experiments that ran.
        all: usize,
    },
    /// The report could not be drawn.
    #[error(transparent)]
    Plot(#[from] PlotError),
    /// A file could not be written.
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
