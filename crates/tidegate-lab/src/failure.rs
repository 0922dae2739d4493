//! Failures of commands, and the exit statuses that tell them.

use thiserror::Error;
use tidegate_program::exit::{FAILED, USAGE, is_closed_by_reader};
use tidegate_program::scenario_file::ScenarioFileError;

use crate::arena::error::ArenaError;
use crate::reproduce::error::ReproduceError;

/// Reasons why a command failed.
#[derive(Debug, Error)]
pub(crate) enum LabFailure {
    /// The experiments of the papers.
    #[error(transparent)]
    Reproduce(#[from] ReproduceError),
    /// The arena.
    #[error(transparent)]
    Arena(#[from] ArenaError),
}

impl LabFailure {
    pub(crate) fn exit_status(&self) -> u8 {
        match self {
            Self::Reproduce(ReproduceError::Unknown(_)) => USAGE,
            Self::Arena(ArenaError::File(_) | ArenaError::NotJudged { .. } | ArenaError::SameName(_)) => {
                USAGE
            }
            _ if self.is_closed_by_reader() => 0,
            _ => FAILED,
        }
    }

    /// Returns the message for stderr; `None` if there is nothing to say.
    pub(crate) fn message(&self) -> Option<String> {
        match self {
            _ if self.is_closed_by_reader() => None,
            // Mistakes begin with their place, which editors and terminals make clickable.
            Self::Arena(ArenaError::File(ScenarioFileError::Invalid(_))) => Some(self.to_string()),
            _ => Some(format!("tidegate-lab: {self}")),
        }
    }

    /// Returns true if the reader of the result has read enough, which is no failure.
    fn is_closed_by_reader(&self) -> bool {
        match self {
            Self::Reproduce(ReproduceError::Output(error)) | Self::Arena(ArenaError::Output(error)) => {
                is_closed_by_reader(error)
            }
            _ => false,
        }
    }
}
