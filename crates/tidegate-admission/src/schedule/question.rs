//! Questions about sets of promises, and their answers.

use tidegate_device::DeviceConfig;
use tidegate_sched::Discipline;
use tidegate_units::ResourceName;

use super::promises::{PromiseSet, SetVerdict};

/// The model of a pool's storage, and what stands before it.
#[derive(Debug, Clone, PartialEq)]
pub struct StorageModel {
    /// The storage.
    pub device: DeviceConfig,
    /// Requests that are outstanding at it at most.
    pub depth: u32,
    /// The order of the requests in front of it.
    pub discipline: Discipline,
}

impl StorageModel {
    /// A storage behind a queue.
    #[must_use]
    pub const fn new(device: DeviceConfig, depth: u32, discipline: Discipline) -> Self {
        Self { device, depth, discipline }
    }
}

/// A question that is to be measured. It has all that the answer depends on, so that the answer serves any
/// later question that is equal.
#[derive(Debug, Clone, PartialEq)]
pub struct StandingQuestion {
    /// The pool.
    pub pool: ResourceName,
    /// Its storage.
    pub model: StorageModel,
    /// The promises.
    pub set: PromiseSet,
}

/// The answer to a question.
#[derive(Debug)]
pub struct StandingAnswer {
    /// The question.
    pub question: StandingQuestion,
    /// Its verdict.
    pub verdict: SetVerdict,
}
