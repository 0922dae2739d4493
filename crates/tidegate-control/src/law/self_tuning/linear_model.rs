//! The line of the self-tuning regulator: the model of Triage's equation 5, and how it is learnt. It also
//! judges if the line or the curve of a queue has predicted better.

use serde::{Deserialize, Serialize};

use crate::document::model::LinearModel;
use crate::estimate::rls::Rls;
use crate::law::self_tuning::config::LineLearning;

/// Uncertainty of s₁, r₁ and r₂ at the beginning, in units in which measurement and operating point are 1.
/// Where measured (figure 3), a storage's response time depends on the operating point of the same interval,
/// and hardly on the past (s₁ = 0.05 and 0.001, no r₂). So r₁ is learnt first, but not by much. Near its
/// capacity the response time of every queue grows faster than in proportion to its load. r₂ describes such a
/// storage. Taken for ever new proportional ones, it would swing without end.
const UNCERTAIN: [f64; 3] = [1.0, 3.0, 1.0];

/// A new model may change into any possible one in so many intervals: it has three parameters, and had one
/// measurement.
pub(super) const YOUNG: u32 = 3;

/// So many standard errors are no chance.
const CHANCE: f64 = 3.0;

/// The part that a model's last error has in what it is judged by, once there were as many.
const JUDGED: f64 = 0.1;

/// A model that is wrong by no more than a hundredth is right: the square of it.
const RIGHT: f64 = 1e-4;

/// A line that was wrong by no more than this part, when it was asked last, is believed all the way down.
const BELIEVED: f64 = 0.1;

/// The mean squares of what predictions were wrong by, as a part of the greater.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(super) struct RivalErrors {
    line: f64,
    curve: f64,
    count: u32,
    /// Last error of the line, if the line decides.
    line_last: Option<f64>,
}

impl RivalErrors {
    pub(super) fn after(self, line: f64, curve: f64) -> Self {
        let count = self.count.saturating_add(1);
        let part = JUDGED.max(1.0 / f64::from(count));
        let new = |old: f64, error: f64| old + part * (error * error - old);
        let rivals =
            Self { line: new(self.line, line), curve: new(self.curve, curve), count, line_last: None };
        Self { line_last: (!rivals.is_curve()).then_some(line), ..rivals }
    }

    pub(super) fn line_was_right(self) -> bool {
        self.line_last.is_some_and(|wrong| wrong <= BELIEVED)
    }

    /// Returns true if the curve decides. The line decides until there is a prediction. Later the curve
    /// decides if both are right.
    pub(super) fn is_curve(self) -> bool {
        self.count > 0 && self.curve <= self.line.max(RIGHT)
    }

    /// Returns true if the curve may go no further than the line, which has predicted better. At rest each
    /// model that goes through the operating point is right, whatever its slope. And a slope that is too flat
    /// there makes each deviation a greater one.
    pub(super) fn line_bounds_curve(self) -> bool {
        self.line < self.curve
    }
}

/// A model in units in which the measurement and the operating point that it began with are 1.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct FittedModel {
    pub(super) rls: Rls<3>,
    pub(super) ms: f64,
    pub(super) iops: f64,
    /// For how many intervals there has been this model.
    pub(super) age: u32,
    /// Number of impossible new models in a row.
    pub(super) rejected: u32,
}

impl FittedModel {
    /// The model that one measurement gives: the response time is proportional to the throughput.
    pub(super) fn begin(ms: f64, iops: f64) -> Self {
        Self { rls: Rls::new([0.0, 1.0, 0.0], UNCERTAIN), ms, iops, age: 0, rejected: 0 }
    }

    pub(super) fn regressor(&self, w: f64, u1: f64, u2: f64) -> [f64; 3] {
        [w / self.ms, u1 / self.iops, u2 / self.iops]
    }

    /// Eq. 7.
    pub(super) fn control(&self, goal_ms: f64, w: f64, u: f64) -> f64 {
        let [s1, r1, r2] = self.rls.estimate();
        (goal_ms / self.ms - s1 * w / self.ms - r2 * u / self.iops) / r1 * self.iops
    }

    pub(super) fn predicted(&self, regressor: [f64; 3]) -> f64 {
        self.rls.estimate().iter().zip(regressor).map(|(parameter, part)| parameter * part).sum()
    }

    pub(super) fn model(&self) -> LinearModel {
        let [s1, r1, r2] = self.rls.estimate();
        let per = self.ms / self.iops;
        LinearModel { s1, r1: r1 * per, r2: r2 * per }
    }

    pub(super) fn is_possible(&self) -> bool {
        let [s1, r1, r2] = self.rls.estimate();
        let LinearModel { r1: scaled, .. } = self.model();
        r1 > 0.0 && r2.abs() < r1 && s1.is_finite() && scaled.is_normal()
    }

    /// Returns true if the previous model and this one, learnt from so many requests, differ too much (figure
    /// 6, line 5).
    pub(super) fn has_changed(
        &self,
        before: &Self,
        regressor: [f64; 3],
        w: f64,
        requests: u64,
        adaptive: &LineLearning,
    ) -> bool {
        let (new, old) = (self.rls.estimate(), before.rls.estimate());
        if adaptive.variant.compare_predictions {
            let predicted = before.predicted(regressor);
            // By chance: the standard error of a mean of exponentially distributed times.
            let enough = adaptive.reset_change.max(CHANCE / (requests as f64).sqrt());
            (w / before.ms - predicted).abs() > enough * predicted.abs()
        } else {
            // Of nothing, nothing is a part.
            (0..3)
                .any(|at| old[at] != 0.0 && (new[at] - old[at]).abs() > adaptive.reset_change * old[at].abs())
        }
    }
}
