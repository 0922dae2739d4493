//! Reasons why there is no verdict.

use crate::live::error::LiveError;
use tidegate_admission::WrongCount;
use tidegate_sim::ScenarioError;
use tidegate_sim::offer::{TooFew, UnmeasuredReason};

/// Reasons why there is no verdict, or why it refuses.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AdmitError {
    /// The storage's model cannot be simulated with this load.
    #[error(transparent)]
    Model(#[from] ScenarioError),
    /// A tenant with too few measured requests: nothing can be promised to it.
    #[error("{0}: --requests {needed}", needed = .0.needed)]
    TooFew(TooFew),
    /// The storage itself cannot be measured.
    #[error(transparent)]
    Live(#[from] LiveError),
    /// A measurement of others.
    #[error(transparent)]
    Count(#[from] WrongCount),
    /// The storage cannot meet the demands, at some time of the day at least. The demands that could be
    /// judged were printed.
    #[error("{}", .0.join("\n"))]
    Impossible(Vec<String>),
    /// The verdict, which was printed.
    #[error("refused: {0}")]
    Refused(String),
}

impl From<UnmeasuredReason> for AdmitError {
    fn from(error: UnmeasuredReason) -> Self {
        match error {
            UnmeasuredReason::Scenario(error) => error.into(),
            UnmeasuredReason::TooFew(few) => Self::TooFew(few),
        }
    }
}
