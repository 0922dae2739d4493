//! The parameters of the model of a queue.

use serde::{Deserialize, Serialize};

/// Learning of the model of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct QueueLearning {
    /// λ, within (0, 1]: what is left of the weight of an older measurement that speaks of the same. Default
    /// 0.7.
    pub forgetting: f64,
    /// By what part a response time may differ from the model's before the capacity is taken anew; by three
    /// standard deviations of what it usually differs by in any case. Default 0.3.
    pub reset_change: f64,
}

impl Default for QueueLearning {
    fn default() -> Self {
        Self { forgetting: 0.7, reset_change: 0.3 }
    }
}
