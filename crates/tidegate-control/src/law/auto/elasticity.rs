//! The model of the law `auto`: by how much the latency follows the requests outstanding.

use serde::{Deserialize, Serialize};

/// Standard deviation of a measured latency beside its counting error, as a logarithm: storage is never quite
/// the same.
pub(super) const DISTURBANCE: f64 = 0.02;

/// The weight that is left of a measurement after the next one. Chosen: it covers about 14 decisions.
const FORGETTING: f64 = 0.93;

/// The elasticity before anything is known, and its precision (a standard deviation of 0.5). 1 is a saturated
/// server, whose latency is proportional to the window; 0 is storage that the window does not change.
const PRIOR: (f64, f64) = (1.0, 4.0);

/// A measurement that is off by more than this, as a logarithm and in standard deviations, is of another
/// storage.
const OTHER_STORAGE: (f64, f64) = (0.4, 3.0);

/// A line through ln(latency) over ln(outstanding), by weighted least squares with a prior slope and
/// forgetting.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(super) struct Elasticity {
    weight: f64,
    x: f64,
    y: f64,
    xx: f64,
    xy: f64,
}

impl Elasticity {
    /// Learns from a latency that so many requests measured while so many were outstanding.
    pub(super) fn learn(&mut self, outstanding: f64, latency: f64, requests: f64) {
        if !(outstanding > 0.0 && latency > 0.0 && requests > 0.0) {
            return;
        }
        let (x, y) = (outstanding.ln(), latency.ln());
        let variance = 1.0 / requests + DISTURBANCE * DISTURBANCE;
        if self.weight > 0.0 {
            let apart = x - self.x;
            let expected = self.y + self.slope() * apart;
            let deviation = (variance + 1.0 / self.weight + (apart * self.slope_deviation()).powi(2)).sqrt();
            let error = (y - expected).abs();
            if error > OTHER_STORAGE.0 && error > OTHER_STORAGE.1 * deviation {
                *self = Self::default();
            }
        }
        let weight = 1.0 / variance;
        let kept = self.weight * FORGETTING;
        let all = kept + weight;
        let (dx, dy) = (x - self.x, y - self.y);
        let share = kept * weight / all;
        self.xx = self.xx * FORGETTING + share * dx * dx;
        self.xy = self.xy * FORGETTING + share * dx * dy;
        self.x += weight / all * dx;
        self.y += weight / all * dy;
        self.weight = all;
        if self.xx <= 0.0 {
            (self.xx, self.xy) = (0.0, 0.0);
        }
    }

    /// The elasticity: the slope of the line.
    pub(super) fn slope(&self) -> f64 {
        let (slope, precision) = PRIOR;
        ((slope * precision + self.xy) / (precision + self.xx)).clamp(0.0, 2.0)
    }

    /// The standard deviation of the elasticity.
    pub(super) fn slope_deviation(&self) -> f64 {
        (PRIOR.1 + self.xx).sqrt().recip()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn learnt(of: impl Fn(f64) -> f64) -> Elasticity {
        let mut model = Elasticity::default();
        for outstanding in [8.0, 4.0, 2.0, 4.0, 8.0, 16.0] {
            model.learn(outstanding, of(outstanding), 1_000.0);
        }
        model
    }

    #[test]
    fn a_saturated_server_has_an_elasticity_of_one() {
        let model = learnt(|outstanding| outstanding / 1_000.0);
        assert!((model.slope() - 1.0).abs() < 0.05, "{}", model.slope());
    }

    #[test]
    fn parallel_storage_has_an_elasticity_of_nothing() {
        let model = learnt(|_| 0.01);
        assert!(model.slope() < 0.05, "{}", model.slope());
    }

    #[test]
    fn another_storage_is_another_model() {
        let mut model = learnt(|outstanding| outstanding / 1_000.0);
        model.learn(8.0, 0.8, 1_000.0);
        assert!((model.slope() - 1.0).abs() < 1e-9 && (model.slope_deviation() - 0.5).abs() < 1e-9);
    }

    proptest! {
        #[test]
        fn any_measurement_leaves_a_finite_model(
            all in prop::collection::vec((0.0f64..1e6, 0.0f64..1e3, 0.0f64..1e9), 0..60)
        ) {
            let mut model = Elasticity::default();
            for (outstanding, latency, requests) in all {
                model.learn(outstanding, latency, requests);
                prop_assert!((0.0..=2.0).contains(&model.slope()));
                prop_assert!(model.slope_deviation() > 0.0 && model.slope_deviation() <= 0.5);
            }
        }
    }
}
