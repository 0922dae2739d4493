//! Models that the self-tuning law learns, in the words of a decision.

use serde::{Deserialize, Serialize};

/// `w(k) = s₁·w(k−1) + r₁·u(k−1) + r₂·u(k−2)` (eq. 5), of response times in ms and operating points in IO/s.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinearModel {
    /// Part of the previous interval's response time that remains.
    pub s1: f64,
    /// Effect of the operating point, in ms per IO/s. Positive.
    pub r1: f64,
    /// Effect of the previous operating point, in ms per IO/s.
    pub r2: f64,
}

/// `w = (n + p)/C`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueueModel {
    /// C, in requests per second.
    pub capacity: f64,
    /// p, in requests. Not negative.
    pub parallelism: f64,
}

/// The result of learning from an interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LearningOutcome {
    /// Too few requests: nothing was changed (figure 6, line 1).
    TooFew,
    /// The first measurement gave a first model.
    First,
    /// The model was improved.
    Updated,
    /// The new model was impossible (r₁ ≤ 0, or |r₂| ≥ r₁, against the proof's A3) and was discarded (figure
    /// 6, line 9).
    Rejected,
    /// The model changed too much and was forgotten (figure 6, line 5), or was contradicted too often.
    Reset,
    /// There is no model: the gain is fixed.
    Fixed,
}
