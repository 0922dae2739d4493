//! Recursive least squares for a few parameters, with directional forgetting.
//!
//! The new measurement makes the estimator forget the direction that it speaks about (Kulhavý, *Restricted
//! exponential forgetting in real-time identification*, Automatica 23, 1987). A little of everything is
//! forgotten too (Bittanti, Bolzern and Campi, *Convergence and exponential convergence of identification
//! algorithms with directional forgetting factor*, Automatica 26, 1990), up to the uncertainty of the
//! beginning. Both are written down here from their usual form, since the papers themselves were not at hand.
//! Under plain exponential forgetting the covariance grows by 1/λ per interval in every direction that is not
//! excited, without end. Bounded as a whole, it shrinks in the excited direction, and the estimate falls
//! asleep. And a regulator that keeps its set point excites hardly anything.

use serde::{Deserialize, Serialize};

use crate::estimate::fixed_array::fixed;

/// This part of the uncertainty at the beginning comes back with every measurement: all of it in a quarter of
/// an hour of seconds.
const RETURNS: f64 = 0.001;

/// Part of the variance below which a value is rounding.
const ROUNDING: f64 = 1e-12;

/// θ of `y = φᵀ·θ + noise`, and its covariance over the variance of the noise.
///
/// The covariance is symmetric, positive definite and bounded by what it was at the beginning, whatever is
/// learnt: where rounding has spoilt it, it begins anew, and the estimate stays.
///
/// Every measurement counts the same, by its error relative to the size of its regressor: one of an overload,
/// a hundred times as great as the others, would otherwise be remembered a hundred times as well.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(into = "RlsRecord", try_from = "RlsRecord")]
pub(crate) struct Rls<const N: usize> {
    estimate: [f64; N],
    covariance: [[f64; N]; N],
    /// The variances at the beginning.
    initial: [f64; N],
}

/// A regression as it stands in a checkpoint.
#[derive(Serialize, Deserialize)]
struct RlsRecord {
    estimate: Vec<f64>,
    covariance: Vec<Vec<f64>>,
    initial: Vec<f64>,
}

impl<const N: usize> From<Rls<N>> for RlsRecord {
    fn from(rls: Rls<N>) -> Self {
        Self {
            estimate: rls.estimate.to_vec(),
            covariance: rls.covariance.iter().map(|row| row.to_vec()).collect(),
            initial: rls.initial.to_vec(),
        }
    }
}

impl<const N: usize> TryFrom<RlsRecord> for Rls<N> {
    type Error = String;

    fn try_from(record: RlsRecord) -> Result<Self, String> {
        let rows = record.covariance.into_iter().map(fixed).collect::<Result<Vec<_>, _>>()?;
        let (estimate, initial) = (fixed(record.estimate)?, fixed(record.initial)?);
        Ok(Self { estimate, covariance: fixed(rows)?, initial })
    }
}

impl<const N: usize> Rls<N> {
    /// Begins with a guess, and with how uncertain each part of it is. Variances are positive.
    pub(crate) fn new(estimate: [f64; N], variances: [f64; N]) -> Self {
        Self { estimate, covariance: diagonal(variances), initial: variances }
    }

    /// Begins with what was known of another: variances of now, and those that they never exceed.
    pub(crate) fn known(estimate: [f64; N], variances: [f64; N], greatest: [f64; N]) -> Self {
        Self { estimate, covariance: diagonal(variances), initial: greatest }
    }

    /// Returns the variance of a parameter.
    pub(crate) const fn variance(&self, at: usize) -> f64 {
        self.covariance[at][at]
    }

    pub(crate) const fn estimate(&self) -> [f64; N] {
        self.estimate
    }

    /// Learns from one measurement. Without effect when a number is not finite, or when the regressor is
    /// nothing.
    ///
    /// `forgetting` is λ within (0, 1]: what is left of the weight of the past after each measurement.
    pub(crate) fn learn(&mut self, regressor: [f64; N], observed: f64, forgetting: f64) {
        let size = dot(regressor, regressor).sqrt();
        // Also of NaN.
        if !(size > f64::MIN_POSITIVE && size.is_finite()) {
            return;
        }
        self.learn_scaled(regressor.map(|part| part / size), observed / size, forgetting);
    }

    /// Learns from one measurement whose noise has a variance, in the units of the covariance: it counts as
    /// much as it is certain. Without effect when a number is not finite, or when the variance is nothing.
    pub(crate) fn learn_weighed(
        &mut self,
        regressor: [f64; N],
        observed: f64,
        forgetting: f64,
        variance: f64,
    ) {
        let deviation = variance.sqrt();
        // Also of NaN.
        if deviation > f64::MIN_POSITIVE && deviation.is_finite() {
            self.learn_scaled(regressor.map(|part| part / deviation), observed / deviation, forgetting);
        }
    }

    /// Learns from a measurement whose noise has the variance 1.
    fn learn_scaled(&mut self, regressor: [f64; N], observed: f64, forgetting: f64) {
        let direction = product(&self.covariance, regressor);
        let excitation = dot(regressor, direction);
        let error = observed - dot(regressor, self.estimate);
        if !(excitation > f64::MIN_POSITIVE && error.is_finite()) {
            return;
        }
        let mut learnt = *self;
        // The part of what is known in this direction that is new: P' = P − part·Pφφᵀ P, negative where more
        // is forgotten than learnt.
        let part = (1.0 - (1.0 - forgetting) / (forgetting * excitation)) / (1.0 + excitation);
        for i in 0..N {
            learnt.estimate[i] += direction[i] / (1.0 + excitation) * error;
            for j in 0..=i {
                let covariance = self.covariance[i][j] - direction[i] * direction[j] * part;
                learnt.covariance[i][j] = covariance;
                learnt.covariance[j][i] = covariance;
            }
        }
        learnt.bound();
        if learnt.estimate.iter().all(|parameter| parameter.is_finite()) {
            *self = learnt;
        }
    }

    /// Holds a parameter to a value, and takes the others to where they are most likely with that: least
    /// squares with a constraint. What is uncertain stays so, for the next measurement may lead away from the
    /// constraint.
    pub(crate) fn hold(&mut self, at: usize, value: f64) {
        self.hold_sum(std::array::from_fn(|i| f64::from(u8::from(i == at))), value);
    }

    /// The same of a sum of them, each by its factor.
    pub(crate) fn hold_sum(&mut self, factors: [f64; N], value: f64) {
        let mut held = *self;
        let direction = product(&self.covariance, factors);
        let step = (value - dot(factors, self.estimate)) / dot(factors, direction);
        for (parameter, direction) in held.estimate.iter_mut().zip(direction) {
            *parameter += direction * step;
        }
        if held.estimate.iter().all(|parameter| parameter.is_finite()) {
            *self = held;
        }
    }

    /// Adds a little to all variances, and takes back what is beyond the first ones in a way that leaves the
    /// matrix symmetric and positive definite.
    fn bound(&mut self) {
        for i in 0..N {
            self.covariance[i][i] += RETURNS * self.initial[i];
        }
        let scale: [f64; N] =
            std::array::from_fn(|i| (self.initial[i] / self.covariance[i][i]).sqrt().min(1.0));
        for i in 0..N {
            for j in 0..N {
                self.covariance[i][j] *= scale[i] * scale[j];
            }
        }
        if !is_positive_definite(&self.covariance) {
            self.covariance = diagonal(self.initial);
        }
    }
}

fn diagonal<const N: usize>(variances: [f64; N]) -> [[f64; N]; N] {
    std::array::from_fn(|i| std::array::from_fn(|j| if i == j { variances[i] } else { 0.0 }))
}

fn product<const N: usize>(matrix: &[[f64; N]; N], vector: [f64; N]) -> [f64; N] {
    std::array::from_fn(|i| dot(matrix[i], vector))
}

fn dot<const N: usize>(left: [f64; N], right: [f64; N]) -> f64 {
    left.iter().zip(right).map(|(left, right)| left * right).sum()
}

/// By Cholesky's factors, whose pivots must be more than rounding. A NaN is none.
fn is_positive_definite<const N: usize>(matrix: &[[f64; N]; N]) -> bool {
    let mut factor = [[0.0; N]; N];
    for i in 0..N {
        for j in 0..=i {
            let below: f64 = (0..j).map(|k| factor[i][k] * factor[j][k]).sum();
            let rest: f64 = matrix[i][j] - below;
            if i == j {
                if !(rest > ROUNDING * matrix[i][i] && rest.is_finite()) {
                    return false;
                }
                factor[i][i] = rest.sqrt();
            } else {
                factor[i][j] = rest / factor[j][j];
            }
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64Mcg;

    use super::*;

    const N: usize = 3;

    const PRIOR: [f64; N] = [1.0, 100.0, 1.0];

    fn is_sound(rls: &Rls<N>) -> bool {
        let symmetric =
            (0..N).all(|i| (0..N).all(|j| rls.covariance[i][j].to_bits() == rls.covariance[j][i].to_bits()));
        symmetric
            && is_positive_definite(&rls.covariance)
            && (0..N).all(|i| rls.covariance[i][i] <= PRIOR[i] * (1.0 + 1e-9))
            && rls.estimate.iter().all(|parameter| parameter.is_finite())
    }

    fn off(rls: &Rls<N>, truth: [f64; N]) -> f64 {
        rls.estimate().iter().zip(truth).map(|(is, was)| (is - was).abs()).fold(0.0, f64::max)
    }

    #[test]
    fn it_finds_the_parameters_and_follows_when_they_change() {
        let mut random = Pcg64Mcg::seed_from_u64(7);
        let mut rls = Rls::new([0.0; N], PRIOR);
        for truth in [[0.05, 0.4, 0.1], [0.3, 2.0, -0.5]] {
            // What is far from the usual is learnt slowly.
            for _ in 0..500 {
                let regressor = std::array::from_fn(|_| random.random_range(0.0..2.0));
                rls.learn(regressor, dot(regressor, truth), 0.9);
            }
            assert!(off(&rls, truth) < 1e-3, "{rls:?}");
        }
    }

    /// The oracle: a single measurement, of which the most likely parameters are known in closed form.
    #[test]
    fn one_measurement_moves_the_estimate_where_it_was_uncertain() {
        let mut rls = Rls::new([0.0, 1.0, 0.0], PRIOR);
        rls.learn([3.0, 4.0, 0.0], 5.0, 1.0);
        // Of φ = (0.6, 0.8, 0) and y = 1, e = 0.2: Pφ = (0.6, 80, 0), φᵀPφ = 64.36.
        let [s1, r1, r2] = rls.estimate();
        assert!(
            (s1 - 0.6 / 65.36 * 0.2).abs() < 1e-12 && (r1 - 1.0 - 80.0 / 65.36 * 0.2).abs() < 1e-12,
            "{rls:?}"
        );
        assert!(r2 == 0.0 && is_sound(&rls), "{rls:?}");
    }

    /// The oracle: x + y = 2 is known well, x pinned to 1.5 leaves 0.5.
    #[test]
    fn a_parameter_that_is_held_takes_along_what_was_learnt_with_it() {
        let mut rls = Rls::new([0.0; 2], [1.0; 2]);
        for _ in 0..1_000 {
            rls.learn([1.0, 1.0], 2.0, 1.0);
        }
        rls.hold(0, 1.5);
        let [x, y] = rls.estimate();
        assert!((x - 1.5).abs() < 1e-12 && (y - 0.5).abs() < 0.05, "{rls:?}");
        let before = rls;
        rls.hold(0, f64::NAN);
        assert_eq!(rls, before);
    }

    /// At rest the gain is 1 − λ, and a little more for what is forgotten of everything.
    #[test]
    fn at_rest_a_measurement_corrects_what_is_forgotten_of_the_past() {
        for forgetting in [0.5, 0.7, 0.9] {
            let mut rls = Rls::new([0.0, 1.0, 0.0], PRIOR);
            let regressor = [0.5, 1.0, 1.0];
            for _ in 0..1_000 {
                rls.learn(regressor, 1.0, forgetting);
            }
            rls.learn(regressor, 1.3, forgetting);
            let left = (1.3 - dot(regressor, rls.estimate())) / 0.3;
            assert!(left < forgetting + 1e-3 && left > forgetting - 0.25, "{left} {forgetting}");
        }
    }

    /// The most likely estimate has both parameters equal if one must not exceed the other. No more than that
    /// equality is imposed.
    #[test]
    fn a_sum_that_is_held_is_met_where_the_measurements_fit_best() {
        let mut rls = Rls::new([1.0, 1.0], [1.0, 10.0]);
        for (regressor, observed) in [([1.0, 0.0], 1.0), ([1.0, -0.8], 0.1), ([1.0, -0.8], 0.1)] {
            rls.learn(regressor, observed, 1.0);
        }
        let free = rls;
        rls.hold_sum([-1.0, 1.0], 0.0);
        let [level, slope] = rls.estimate();
        assert!((level - slope).abs() < 1e-9 && rls.covariance == free.covariance, "{rls:?}");
        // Of all pairs that are equal none is nearer, by the measurements.
        let far = |both: f64| {
            let [[a, b], [_, c]] = free.covariance;
            let off = [both - free.estimate[0], both - free.estimate[1]];
            (c * off[0] * off[0] - 2.0 * b * off[0] * off[1] + a * off[1] * off[1]) / (a * c - b * b)
        };
        assert!(
            (-100..=100).all(|step| far(level) <= far(level + f64::from(step) / 100.0) + 1e-9),
            "{rls:?}"
        );
        let held = rls;
        rls.hold_sum([f64::NAN, 1.0], 0.0);
        assert_eq!(rls, held);
    }

    /// Eleven days of seconds at the set point: one direction, again and again. Then the storage changes.
    #[test]
    fn a_million_equal_measurements_make_it_neither_blind_nor_jumpy() {
        let mut rls = Rls::new([0.0, 1.0, 0.0], PRIOR);
        for _ in 0..1_000_000 {
            rls.learn([1.0, 1.0, 1.0], 1.0, 0.9);
        }
        assert!(is_sound(&rls) && off(&rls, [0.0, 1.0, 0.0]) < 1e-9, "{rls:?}");
        let truth = [0.1, 0.3, 0.05];
        let mut random = Pcg64Mcg::seed_from_u64(3);
        for _ in 0..50 {
            let regressor = std::array::from_fn(|_| random.random_range(0.2..1.8));
            rls.learn(regressor, dot(regressor, truth), 0.9);
        }
        assert!(off(&rls, truth) < 0.01, "{rls:?}");
    }

    /// A million measurements of any size, noisy, with stretches of equal ones: on several seeds.
    #[test]
    fn after_a_million_steps_it_is_sound_and_right() {
        for seed in 0..3 {
            let mut random = Pcg64Mcg::seed_from_u64(seed);
            let mut rls = Rls::new([0.0, 1.0, 0.0], PRIOR);
            let truth = [0.2, 1.5, -0.3];
            let mut regressor = [1.0; N];
            for step in 0..1_000_000 {
                if random.random_bool(0.7) {
                    let size = 10f64.powf(random.random_range(-3.0..3.0));
                    regressor = std::array::from_fn(|_| size * random.random_range(0.0..2.0));
                }
                let noise = random.random_range(-0.05..0.05) * dot(regressor, regressor).sqrt();
                rls.learn(regressor, dot(regressor, truth) + noise, 0.9);
                assert!(is_sound(&rls), "{step}: {rls:?}");
            }
            assert!(off(&rls, truth) < 0.2, "{rls:?}");
        }
    }

    fn anything() -> impl Strategy<Value = f64> {
        prop_oneof![
            -2.0..2.0,
            any::<f64>(),
            prop::sample::select(vec![0.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MAX, 5e-324]),
        ]
    }

    proptest! {
        #[test]
        fn whatever_is_learnt_it_stays_sound(
            steps in prop::collection::vec(([anything(), anything(), anything()], anything(), 0.5..=1.0),
                1..200)
        ) {
            let mut rls = Rls::new([0.0, 1.0, 0.0], PRIOR);
            for (regressor, observed, forgetting) in steps {
                let before = rls;
                rls.learn(regressor, observed, forgetting);
                prop_assert!(is_sound(&rls), "{rls:?}");
                if regressor.iter().chain([&observed]).any(|number| !number.is_finite()) {
                    prop_assert_eq!(rls, before);
                }
            }
        }
    }
}
