//! The contract schedule: promises over the day, the sets that hold together, and the one in force.
//!
//! No clock is read here, and nothing is measured: the service brings the time of day and the answers.

mod known_answers;
mod promises;
mod question;
mod standing;

pub use known_answers::KnownAnswers;
pub use promises::{PromiseSet, SetVerdict};
pub use question::{StandingAnswer, StandingQuestion, StorageModel};
pub use standing::{
    AnswerSubject, ContractsStatus, ExportTerms, JudgementBasis, PoolContracts, PoolStanding, SetChange,
};
