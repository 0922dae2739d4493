//! The exponentially weighted moving average of response times.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate_units::Latency;

/// An exponentially weighted moving average. Empty until the first sample, which it takes as it is.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Ewma {
    nanos: Option<f64>,
}

impl Ewma {
    /// The average so far.
    #[must_use]
    pub fn get(&self) -> Option<Latency> {
        self.nanos.map(|nanos| Latency::from_nanos(nanos.round() as u64))
    }

    /// Forgets everything: the next sample counts in full.
    pub fn reset(&mut self) {
        self.nanos = None;
    }

    /// Takes a sample by PARDA eq. 1, `L(t) = (1 − past)·l + past·L(t−1)`. A `past_weight` that is NaN or
    /// outside of [0, 1] is moved to the nearest of these, NaN to 0.
    pub fn update(&mut self, sample: Latency, past_weight: f64) -> Latency {
        let past = if past_weight.is_nan() { 0.0 } else { past_weight.clamp(0.0, 1.0) };
        let sample = sample.as_nanos() as f64;
        let mixed = self.nanos.map_or(sample, |nanos| (1.0 - past) * sample + past * nanos);
        self.nanos = Some(mixed);
        Latency::from_nanos(mixed.round() as u64)
    }

    /// Takes a sample that stands for the time since the previous one: the weight of the past is
    /// `exp(−elapsed/time_constant)`, so that the result does not depend on how often samples come. No time
    /// passed: no weight. A time constant of zero: no smoothing.
    pub fn update_elapsed(&mut self, sample: Latency, elapsed: Duration, time_constant: Duration) -> Latency {
        let past = if time_constant.is_zero() {
            0.0
        } else {
            (-elapsed.as_secs_f64() / time_constant.as_secs_f64()).exp()
        };
        self.update(sample, past)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const fn ms(millis: u64) -> Latency {
        Latency::from_millis(millis)
    }

    #[test]
    fn the_first_sample_counts_in_full_also_after_a_reset() {
        let mut ewma = Ewma::default();
        assert_eq!(ewma.get(), None);
        assert_eq!(ewma.update(ms(8), 0.998), ms(8));
        ewma.reset();
        assert_eq!(ewma.get(), None);
        assert_eq!(ewma.update_elapsed(ms(2), Duration::ZERO, Duration::from_secs(1)), ms(2));
    }

    #[test]
    fn both_readings_of_pardas_alpha_can_be_said() {
        let (mut literal, mut other) = (Ewma::default(), Ewma::default());
        for ewma in [&mut literal, &mut other] {
            ewma.update(ms(10), 0.0);
        }
        assert_eq!(literal.update(ms(20), 0.002), Latency::from_micros(19_980));
        assert_eq!(other.update(ms(20), 0.998), Latency::from_micros(10_020));
    }

    #[test]
    fn a_step_is_followed_to_63_per_cent_within_one_time_constant() {
        let mut ewma = Ewma::default();
        ewma.update(ms(0), 0.0);
        for _ in 0..10 {
            ewma.update_elapsed(ms(1_000), Duration::from_millis(50), Duration::from_millis(500));
        }
        let reached = ewma.get().unwrap().as_millis_f64();
        assert!((reached - 632.12).abs() < 0.01, "{reached}");
    }

    #[test]
    fn no_time_has_no_weight_and_no_time_constant_does_not_smooth() {
        let mut ewma = Ewma::default();
        ewma.update(ms(10), 0.0);
        assert_eq!(ewma.update_elapsed(ms(99), Duration::ZERO, Duration::from_secs(1)), ms(10));
        assert_eq!(ewma.update_elapsed(ms(99), Duration::ZERO, Duration::ZERO), ms(99));
    }

    proptest! {
        #[test]
        fn stays_between_the_least_and_the_greatest_sample(
            samples in prop::collection::vec((any::<u32>(), any::<f64>()), 1..50)
        ) {
            let mut ewma = Ewma::default();
            for (nanos, past) in &samples {
                ewma.update(Latency::from_nanos(u64::from(*nanos)), *past);
            }
            let nanos = ewma.get().unwrap().as_nanos();
            let least = samples.iter().map(|s| u64::from(s.0)).min().unwrap();
            let greatest = samples.iter().map(|s| u64::from(s.0)).max().unwrap();
            prop_assert!((least..=greatest).contains(&nanos));
        }

        #[test]
        fn how_time_is_cut_into_samples_does_not_matter(cuts in 1u32..100, millis in 1u32..5_000) {
            let tau = Duration::from_millis(500);
            let total = Duration::from_millis(u64::from(millis));
            let (mut once, mut often) = (Ewma::default(), Ewma::default());
            for ewma in [&mut once, &mut often] {
                ewma.update(ms(100), 0.0);
            }
            once.update_elapsed(ms(7), total, tau);
            for _ in 0..cuts {
                often.update_elapsed(ms(7), total / cuts, tau);
            }
            let difference = once.get().unwrap().as_millis_f64() - often.get().unwrap().as_millis_f64();
            prop_assert!(difference.abs() < 1e-3, "{difference}");
        }
    }
}
