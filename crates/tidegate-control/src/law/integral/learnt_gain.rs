//! K learnt while the integral law runs, without an experiment beforehand.
//!
//! Lee's K is for one disk: K = (1 − p)/G, with G in milliseconds per request per second (eq. 7). Storage a
//! hundred times as fast has another G, and every storage has a greater one near its capacity. As parts of
//! what is there, both are plain numbers: by how many per cent the latency grows when the rate grows by one,
//! the elasticity ε = G·ρ/RT. It is learnt from the changes of both, and `K = (1 − p)/ε · ρ/RT`.

use serde::{Deserialize, Serialize};

/// The closed loop's pole. The paper's 0.9 takes 29 periods; with half of an error left after each, five do.
const POLE: f64 = 0.5;

/// The weight that is left of a change after the next one. Chosen: some ten periods count.
const FORGETTING: f64 = 0.8;

/// The elasticity before anything is known, and its weight, as the square of a change: of a tenth.
const PRIOR: (f64, f64) = (1.0, 0.01);

/// Bounds of the elasticity. Below 1, a rate would grow by more than half of the part by which the latency is
/// below its reference. A queue at 95 % of its capacity has 19.
const ELASTICITY: (f64, f64) = (1.0, 20.0);

/// The elasticity, as far as it is known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct LearntGain {
    /// Logarithms of the last rate and latency.
    last: Option<(f64, f64)>,
    /// Weighted sums of dx² and dx·dy.
    xx: f64,
    xy: f64,
}

impl LearntGain {
    /// Learns from the throughput of a control period, and its latency as a part of the reference. Without
    /// effect when one of them is not a positive number.
    pub(super) fn learn(&mut self, rate: f64, latency: f64) {
        let now = (rate.ln(), latency.ln());
        if !(now.0.is_finite() && now.1.is_finite()) {
            return;
        }
        if let Some(before) = self.last.replace(now) {
            let (dx, dy) = (now.0 - before.0, now.1 - before.1);
            self.xx = self.xx * FORGETTING + dx * dx;
            self.xy = self.xy * FORGETTING + dx * dy;
        }
    }

    /// ε.
    pub(super) fn elasticity(&self) -> f64 {
        let (slope, weight) = PRIOR;
        let (least, greatest) = ELASTICITY;
        ((slope * weight + self.xy) / (weight + self.xx)).clamp(least, greatest)
    }

    /// The part by which rates grow when the latency is nothing: K·RT/ρ.
    pub(super) fn relative(&self) -> f64 {
        (1.0 - POLE) / self.elasticity()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_elasticity_is_found_once_changes_outweigh_what_was_assumed() {
        let mut gain = LearntGain::default();
        for rate in [4_000.0, 5_000.0, 4_200.0, 5_100.0, 4_300.0, 5_000.0_f64] {
            gain.learn(rate, (rate / 5_000.0).powi(4));
        }
        assert!((gain.elasticity() - 4.0).abs() < 0.5, "{gain:?}");
        assert!((gain.relative() - 0.5 / gain.elasticity()).abs() < 1e-12);
    }

    #[test]
    fn a_latency_that_does_not_change_lets_rates_grow_by_half_of_their_distance() {
        let mut gain = LearntGain::default();
        for rate in [100.0, 150.0, 225.0, 330.0] {
            gain.learn(rate, 0.5);
        }
        assert!((gain.relative() - 0.5).abs() < 1e-12, "{gain:?}");
    }

    proptest! {
        #[test]
        fn whatever_is_measured_it_is_within_its_bounds(
            points in prop::collection::vec((prop::num::f64::ANY, prop::num::f64::ANY), 0..50)
        ) {
            let mut gain = LearntGain::default();
            for (rate, latency) in points {
                gain.learn(rate, latency);
                prop_assert!((ELASTICITY.0..=ELASTICITY.1).contains(&gain.elasticity()), "{gain:?}");
            }
        }

        /// Under the law a queue settles at its reference: the latency of 1/(1 − ρ/C), from a tenth of C. At
        /// more than thirteen times the unloaded latency, a twelfth of the capacity from its end, it swings.
        #[test]
        fn a_queue_settles_at_ten_times_its_unloaded_latency(
            capacity in 10.0..1e6f64, reference in 1.5..10.0f64,
        ) {
            let mut gain = LearntGain::default();
            let mut rate = capacity / 10.0;
            let mut latency = 0.0;
            for _ in 0..40 {
                // Beyond the capacity a queue grows for as long as the period lasts.
                let done = rate.min(capacity * 0.999);
                latency = 1.0 / (1.0 - done / capacity) / reference;
                gain.learn(done, latency);
                rate *= 1.0 + gain.relative() * (1.0 - latency).max(-1.0);
            }
            prop_assert!((latency - 1.0).abs() < 0.25, "{latency} {gain:?}");
        }
    }
}
