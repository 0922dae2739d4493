//! The algorithm of Triage's figure 6, to the letter: recursive least squares by equations 11 to 13, the
//! reset law and the control law of equation 7, and nothing beside them. The pseudo-code of the figure is
//! lost in the text at hand; §4.2 goes through it line by line.

use serde::{Deserialize, Serialize};

use crate::document::model::{LearningOutcome, LinearModel};

/// The parameters of figure 6.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Figure6Learning {
    /// λ, within (0, 1]: the forgetting factor of the least squares. At 1 the estimator is equations 11 to
    /// 13.
    pub forgetting: f64,
    /// The reset law: when a parameter has changed by more than this part of itself, the model is forgotten.
    pub reset_change: f64,
}

/// θ̂ and P of equations 11 to 13, and the rest of the regressor φ(k−1).
///
/// The paper leaves three things open. Chosen here:
///
/// - θ̂(0), also after a reset, is what one measurement says of a storage whose latency depends on u(k−1)
///   alone, as the paper's does (figure 3): r₁ = w/u, and nothing else.
/// - P(−1) is the unit matrix, in ms and IO/s.
/// - A parameter that is zero has no part by which it could change, and resets nothing.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct Figure6 {
    /// s₁, r₁ and r₂.
    theta: [f64; 3],
    covariance: [[f64; 3]; 3],
    /// w(k−1) in ms.
    w: f64,
    /// u(k−2) in IO/s.
    u: f64,
}

/// The measurements of an interval, and what is asked for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Figure6Interval {
    /// y_ref in ms.
    pub(super) goal_ms: f64,
    /// w(k) in ms.
    pub(super) w: f64,
    /// u(k−1) in IO/s.
    pub(super) u: f64,
}

impl Figure6 {
    /// Lines 2 to 11 and 18 of the figure. Returns the operating point before the anti-windup law of line 12;
    /// infinity stands for u_max after a reset.
    pub(super) fn step(
        old: Option<Self>,
        learning: &Figure6Learning,
        interval: Figure6Interval,
    ) -> (LearningOutcome, Self, f64) {
        let Figure6Interval { goal_ms, w, u } = interval;
        let Some(old) = old else {
            let first = Self::begin(w, u);
            return (LearningOutcome::First, first, first.control(goal_ms, w, u));
        };
        let new = old.learn(w, u, learning.forgetting);
        if new.has_changed(&old, learning.reset_change) {
            return (LearningOutcome::Reset, Self::begin(w, u), f64::INFINITY);
        }
        let (learnt, kept) = if new.is_possible() {
            (LearningOutcome::Updated, new)
        } else {
            (LearningOutcome::Rejected, old)
        };
        (learnt, Self { w, u, ..kept }, kept.control(goal_ms, w, u))
    }

    fn begin(w: f64, u: f64) -> Self {
        let unit = std::array::from_fn(|i| std::array::from_fn(|j| f64::from(u8::from(i == j))));
        Self { theta: [0.0, w / u, 0.0], covariance: unit, w, u }
    }

    /// Equations 11 to 13. With a forgetting factor λ, the ones of the gain's denominator are λ, and P is
    /// divided by it.
    fn learn(&self, w: f64, u: f64, forgetting: f64) -> Self {
        let regressor = [self.w, u, self.u];
        let direction: [f64; 3] = std::array::from_fn(|i| dot(self.covariance[i], regressor));
        let scale = forgetting + dot(regressor, direction);
        let error = w - dot(regressor, self.theta);
        Self {
            theta: std::array::from_fn(|i| self.theta[i] + direction[i] / scale * error),
            covariance: std::array::from_fn(|i| {
                std::array::from_fn(|j| {
                    (self.covariance[i][j] - direction[i] * direction[j] / scale) / forgetting
                })
            }),
            ..*self
        }
    }

    /// Line 5.
    fn has_changed(&self, old: &Self, part: f64) -> bool {
        let pairs = self.theta.iter().zip(old.theta);
        pairs.into_iter().any(|(new, old)| old != 0.0 && (new - old).abs() > part * old.abs())
    }

    /// Line 9: more throughput never leads to less latency. Numbers that are not finite are no model.
    fn is_possible(&self) -> bool {
        let finite = self.theta.iter().chain(self.covariance.iter().flatten()).all(|part| part.is_finite());
        finite && self.theta[1] > 0.0
    }

    /// Equation 7.
    fn control(&self, goal_ms: f64, w: f64, u: f64) -> f64 {
        let [s1, r1, r2] = self.theta;
        (goal_ms - s1 * w - r2 * u) / r1
    }

    pub(super) const fn model(&self) -> LinearModel {
        let [s1, r1, r2] = self.theta;
        LinearModel { s1, r1, r2 }
    }
}

fn dot(left: [f64; 3], right: [f64; 3]) -> f64 {
    left.iter().zip(right).map(|(left, right)| left * right).sum()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PLAIN: Figure6Learning = Figure6Learning { forgetting: 1.0, reset_change: 0.3 };

    fn close(found: f64, expected: f64) -> bool {
        (found - expected).abs() <= 1e-9 * expected.abs().max(1.0)
    }

    /// Worked out by hand, in fractions. φ(0) = (8, 3, 4) and P(−1) = 1 make φᵀPφ = 89, and θ̂(0) = (0, 2, 0)
    /// predicts 6 ms.
    #[test]
    fn two_steps_are_those_of_equations_11_to_13_by_hand() {
        let (learnt, first, asks) =
            Figure6::step(None, &PLAIN, Figure6Interval { goal_ms: 6.0, w: 8.0, u: 4.0 });
        assert_eq!((learnt, first.theta, asks), (LearningOutcome::First, [0.0, 2.0, 0.0], 3.0));

        // w = 6.9: e = 0.9, and Pφ/(1 + φᵀPφ)·e = (8, 3, 4)/100.
        let (learnt, second, asks) =
            Figure6::step(Some(first), &PLAIN, Figure6Interval { goal_ms: 6.0, w: 6.9, u: 3.0 });
        assert_eq!(learnt, LearningOutcome::Updated);
        for (found, expected) in second.theta.into_iter().zip([0.08, 2.03, 0.04]) {
            assert!(close(found, expected), "{second:?}");
        }
        let covariance = [[26.0, -24.0, -32.0], [-24.0, 81.0, -12.0], [-32.0, -12.0, 74.0]]
            .map(|row| row.map(|x| x / 90.0));
        for (found, expected) in second.covariance.iter().flatten().zip(covariance.iter().flatten()) {
            assert!(close(*found, *expected), "{second:?}");
        }
        // (6 − 0.08·6.9 − 0.04·3)/2.03 = 5.328/2.03.
        assert!(close(asks, 5.328 / 2.03), "{asks}");
    }

    /// The reset law, as written: s₁ was 0.08, and the next measurement makes it 0.12 or more.
    #[test]
    fn a_parameter_that_changes_by_three_tenths_of_itself_resets_the_model_and_releases_all() {
        let model = Figure6 { theta: [0.08, 2.0, 0.04], ..Figure6::begin(8.0, 4.0) };
        // φ = (8, 3, 4) predicts 6.8: with 7.25 the error is 0.45, and s₁ grows by 8/90·0.45 = 0.04.
        let (learnt, reset, asks) =
            Figure6::step(Some(model), &PLAIN, Figure6Interval { goal_ms: 6.0, w: 7.25, u: 3.0 });
        assert_eq!((learnt, asks), (LearningOutcome::Reset, f64::INFINITY));
        assert_eq!(reset, Figure6::begin(7.25, 3.0));
        // With 7.0 it grows by 0.018, within 0.3·0.08; r₂ by 0.009, within 0.3·0.04.
        let (learnt, ..) =
            Figure6::step(Some(model), &PLAIN, Figure6Interval { goal_ms: 6.0, w: 7.0, u: 3.0 });
        assert_eq!(learnt, LearningOutcome::Updated);
    }

    /// Line 9: the previous model goes on, with its covariance.
    #[test]
    fn a_model_of_less_latency_under_more_load_is_discarded() {
        let never = Figure6Learning { reset_change: 1e9, ..PLAIN };
        let model = Figure6 { theta: [0.0, 0.01, 1.0], ..Figure6::begin(8.0, 4.0) };
        // φ = (8, 3, 4) predicts 4.03: 2.23 less take 3/90·1.8 = 0.06 from r₁.
        let (learnt, kept, asks) =
            Figure6::step(Some(model), &never, Figure6Interval { goal_ms: 6.0, w: 2.23, u: 3.0 });
        assert_eq!(learnt, LearningOutcome::Rejected);
        assert_eq!((kept.theta, kept.covariance), (model.theta, model.covariance));
        assert!(close(asks, (6.0 - 3.0) / 0.01), "{asks}");
    }

    #[test]
    fn a_forgetting_factor_divides_the_covariance() {
        let forgetful = Figure6Learning { forgetting: 0.5, ..PLAIN };
        let model = Figure6::begin(8.0, 4.0);
        let (_, learnt, _) =
            Figure6::step(Some(model), &forgetful, Figure6Interval { goal_ms: 6.0, w: 6.5, u: 3.0 });
        // e = 0.5, and the gain's denominator is 89.5.
        assert!(close(learnt.theta[1], 2.0 + 3.0 / 89.5 * 0.5), "{learnt:?}");
        assert!(close(learnt.covariance[0][0], 2.0 * (1.0 - 64.0 / 89.5)), "{learnt:?}");
    }

    proptest! {
        /// The oracle: with λ = 1 recursive least squares are the least squares of all measurements and of
        /// the beginning, which solve (1 + Σφφᵀ)·θ = θ(0) + Σφw.
        #[test]
        fn the_recursion_solves_the_normal_equations(
            points in prop::collection::vec((0.5..5.0f64, 0.5..5.0f64), 1..12)
        ) {
            let mut model = Figure6::begin(2.0, 1.0);
            let mut normal = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]];
            let mut right = model.theta;
            for (w, u) in points {
                let regressor = [model.w, u, model.u];
                for i in 0..3 {
                    right[i] += regressor[i] * w;
                    for j in 0..3 {
                        normal[i][j] += regressor[i] * regressor[j];
                    }
                }
                model = Figure6 { w, u, ..model.learn(w, u, 1.0) };
            }
            for i in 0..3 {
                let is = dot(normal[i], model.theta);
                prop_assert!((is - right[i]).abs() < 1e-6 * right[i].abs().max(1.0), "{:?}", model);
            }
        }

        #[test]
        fn whatever_is_measured_the_model_is_possible_once_it_was(
            points in prop::collection::vec((1e-6..1e9f64, 1e-3..1e9f64), 1..60), forgetting in 0.1..=1.0f64
        ) {
            let learning = Figure6Learning { forgetting, reset_change: 0.3 };
            let mut model = None;
            for (w, u) in points {
                let interval = Figure6Interval { goal_ms: 5.0, w, u };
                let (_, next, asks) = Figure6::step(model, &learning, interval);
                prop_assert!(next.is_possible() && !asks.is_nan(), "{next:?} {asks}");
                model = Some(next);
            }
        }
    }
}
