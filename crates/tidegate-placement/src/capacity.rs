//! The rate that a node moves, learnt from the number of its transfers and the rates they got.

use std::time::Duration;

use tidegate_units::ByteRate;

/// The rate that a node moves with a number of transfers at once, learnt on line from its own history (beyond
/// the paper).
///
/// The paper's best rule, SM-R3, divides the mean of the last ten samples by one transfer more. It does not
/// know that one more transfer costs all of them bandwidth. Nor does it know how an idle node will do. Its
/// mean lags ten samples behind the load that others put on the node. `NodeCapacity` keeps three things
/// apart:
///
/// - **the cost of concurrency**: with n transfers a node moves `C(n) = peak / (a + b·(n − 1))`. So `peak/C`
///   is a straight line in n, fitted by least squares with exponential forgetting;
/// - **the present level**: the measured rate over the rate that the line predicts, followed within a few
///   samples, for load from outside;
/// - **the error**: the mean error of its own predictions, one sample ahead. It leaves that as a margin.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeCapacity {
    line: Sums,
    /// The measured rate over the rate that the line predicts.
    level: f64,
    /// The mean of |measured / predicted − 1|.
    error: f64,
}

/// Weighted sums of a least squares fit of y over x.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Sums {
    w: f64,
    x: f64,
    y: f64,
    xx: f64,
    xy: f64,
}

impl Sums {
    fn add(&mut self, x: f64, y: f64, weight: f64) {
        self.w += weight;
        self.x += weight * x;
        self.y += weight * y;
        self.xx += weight * x * x;
        self.xy += weight * x * y;
    }

    fn forget(&mut self, left: f64) {
        for sum in [&mut self.w, &mut self.x, &mut self.y, &mut self.xx, &mut self.xy] {
            *sum *= left;
        }
    }
}

impl Default for NodeCapacity {
    fn default() -> Self {
        Self { line: Sums::default(), level: 1.0, error: Self::FIRST_ERROR }
    }
}

impl NodeCapacity {
    /// The assumed cost of each further transfer before anything was measured: 2 % of the rate of one alone.
    const FIRST_COST: f64 = 0.02;
    /// The weight of the assumption, in samples. It is small and never fades. It gives the slope when only
    /// one number of transfers was seen.
    const PRIOR: f64 = 0.05;
    /// The number of further transfers at which the assumption is made, beside at none.
    const PRIOR_AT: f64 = 10.0;
    /// The number of samples after which half of their weight in the cost of concurrency is forgotten:
    /// minutes at one sample per second.
    const MEMORY: f64 = 64.0;
    /// The fraction of a sample that the level follows: a change from outside is followed to nine tenths in 5
    /// samples.
    const FOLLOW: f64 = 0.4;
    /// The fraction of a sample that the mean error follows.
    const ERROR_FOLLOW: f64 = 0.1;
    /// The error that is assumed before anything was predicted.
    const FIRST_ERROR: f64 = 0.1;
    /// The greatest change of the level by one sample, either way. A sensor's outlier is not the node.
    const GREATEST_STEP: f64 = 4.0;
    /// The greatest number of transfers at once that is believed.
    const GREATEST_COUNT: f64 = 1e6;
    /// The greatest factor between a node's peak and its rate that is believed, either way.
    const GREATEST_RELATIVE: f64 = 1e6;
    /// The time in which the learnt load from outside halves while no transfer is under way.
    const LEVEL_HALF_LIFE: Duration = Duration::from_secs(30);

    /// Learns from a sampling interval in which this many transfers on average moved this much together.
    /// Without a transfer or a peak, use [`idle`](Self::idle): there is nothing to learn. Invalid numbers are
    /// ignored.
    pub fn observe(&mut self, active: f64, rate: ByteRate, peak: ByteRate) {
        let relative = peak.per_second() / rate.per_second();
        let is_told =
            (1.0..=Self::GREATEST_COUNT).contains(&active) && relative > 0.0 && relative.is_finite();
        if !is_told {
            return;
        }
        let relative = relative.clamp(1.0 / Self::GREATEST_RELATIVE, Self::GREATEST_RELATIVE);
        let predicted = self.level / self.cost(active);
        let step = (1.0 / relative / predicted).clamp(1.0 / Self::GREATEST_STEP, Self::GREATEST_STEP);
        self.error += Self::ERROR_FOLLOW * ((step - 1.0).abs() - self.error);

        self.line.forget((-1.0 / Self::MEMORY).exp2());
        // Errors are proportional to what is measured.
        self.line.add(active - 1.0, relative, 1.0 / (relative * relative));
        let measured = self.cost(active) / relative;
        let step = (measured / self.level).clamp(1.0 / Self::GREATEST_STEP, Self::GREATEST_STEP);
        self.level *= step.powf(Self::FOLLOW);
    }

    /// Takes note that there was no transfer for this time.
    pub fn idle(&mut self, elapsed: Duration) {
        let left = (-elapsed.as_secs_f64() / Self::LEVEL_HALF_LIFE.as_secs_f64()).exp2();
        self.level = self.level.powf(left);
    }

    /// Returns the rate that each of so many transfers can count on, on a node with this peak.
    #[must_use]
    pub fn of_each(&self, active: f64, peak: ByteRate) -> ByteRate {
        let count = if active >= 1.0 { active } else { 1.0 };
        let together = peak.per_second() * self.level / self.cost(count);
        ByteRate::new(together / count * (1.0 - self.error).max(0.0))
    }

    /// `peak / C(n)` by the line.
    fn cost(&self, active: f64) -> f64 {
        let mut sums = self.line;
        sums.add(0.0, 1.0, Self::PRIOR);
        sums.add(Self::PRIOR_AT, 1.0 + Self::FIRST_COST * Self::PRIOR_AT, Self::PRIOR);
        // Never zero: the assumption is at two places.
        let determinant = sums.w * sums.xx - sums.x * sums.x;
        // More transfers never get more together.
        let slope = ((sums.w * sums.xy - sums.x * sums.y) / determinant).max(0.0);
        let intercept = ((sums.y - slope * sums.x) / sums.w).max(f64::MIN_POSITIVE);
        intercept + slope * (active - 1.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn peak() -> ByteRate {
        ByteRate::new(300e6)
    }

    fn true_rate(active: f64, cost: f64) -> ByteRate {
        ByteRate::new(300e6 / (1.0 + cost * (active - 1.0)))
    }

    #[test]
    fn before_anything_was_measured_it_is_the_peak_with_a_margin() {
        let alone = NodeCapacity::default().of_each(1.0, peak()).per_second();
        assert!((alone - 270e6).abs() < 1.0, "{alone}");
        assert_eq!(
            NodeCapacity::default().of_each(0.0, peak()),
            NodeCapacity::default().of_each(1.0, peak())
        );
    }

    #[test]
    fn what_others_take_is_followed_within_some_samples() {
        let mut capacity = NodeCapacity::default();
        for _ in 0..100 {
            capacity.observe(10.0, true_rate(10.0, 0.01), peak());
        }
        let before = capacity.of_each(10.0, peak()).per_second();
        for _ in 0..8 {
            capacity.observe(10.0, ByteRate::new(true_rate(10.0, 0.01).per_second() * 0.4), peak());
        }
        let after = capacity.of_each(10.0, peak()).per_second();
        assert!(after / before < 0.45, "{before} {after}");
    }

    #[test]
    fn an_idle_node_forgets_what_others_took() {
        let mut capacity = NodeCapacity::default();
        for _ in 0..8 {
            capacity.observe(1.0, ByteRate::new(30e6), peak());
        }
        let held = capacity.of_each(1.0, peak());
        capacity.idle(NodeCapacity::LEVEL_HALF_LIFE * 20);
        assert!(capacity.of_each(1.0, peak()) > held);
    }

    proptest! {
        /// It learns any cost of concurrency from noisy samples, and predicts numbers of transfers that it
        /// never saw.
        #[test]
        fn the_cost_of_concurrency_is_learnt(cost in 0.0..0.2f64,
            noise in prop::collection::vec(0.95..1.05f64, 200)) {
            let mut capacity = NodeCapacity::default();
            for (place, noise) in noise.iter().enumerate() {
                let active = 1.0 + (place % 12) as f64;
                capacity.observe(active, ByteRate::new(true_rate(active, cost).per_second() * noise), peak());
            }
            for active in [1.0, 6.0, 20.0] {
                let told = capacity.of_each(active, peak()).per_second() * active / (1.0 - capacity.error);
                let is = true_rate(active, cost).per_second();
                prop_assert!((told / is - 1.0).abs() < 0.12, "{} at {}: {} {}", cost, active, told, is);
            }
        }

        /// More transfers are never told to get more each, and numbers stay numbers, whatever is measured.
        #[test]
        fn more_transfers_get_less_each(
            samples in prop::collection::vec((prop::num::f64::ANY, prop::num::f64::ANY, prop::num::f64::ANY),
                0..50),
        ) {
            let mut capacity = NodeCapacity::default();
            for (active, rate, peak) in samples {
                capacity.observe(active, ByteRate::new(rate), ByteRate::new(peak));
                let mut last = f64::INFINITY;
                for count in 1..40u32 {
                    let each = capacity.of_each(f64::from(count), ByteRate::new(300e6)).per_second();
                    prop_assert!(each.is_finite() && each <= last, "{} transfers: {} after \
                        {}", count, each, last);
                    last = each;
                }
            }
        }
    }
}
