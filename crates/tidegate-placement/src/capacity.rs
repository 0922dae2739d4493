//! What a node moves, learnt from how many transferred and what they got.

use std::time::Duration;

use tidegate_units::ByteRate;

/// What a node moves with so many transfers at once, learnt on line from its own history (beyond the paper).
///
/// The paper's best rule, SM-R3, divides the mean of the last ten samples by one transfer more. It knows
/// neither that one more costs all of them bandwidth, nor how a node that was idle will do, and its mean lags
/// ten samples behind what others take of the node. This keeps three things apart:
///
/// - **how concurrency costs**: with n transfers a node moves `C(n) = peak / (a + b·(n − 1))`, so that
///   `peak/C` is a straight line in n, fitted by least squares with exponential forgetting;
/// - **the level of now**: what was measured over what the line says, followed within a few samples, for load
///   from outside;
/// - **how wrong it was**: the mean error of its own predictions, one sample ahead, which is what it leaves
///   as a margin.
#[derive(Debug, Clone, PartialEq)]
pub struct Capacity {
    line: Sums,
    /// What is measured, over what the line says.
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

impl Default for Capacity {
    fn default() -> Self {
        Self { line: Sums::default(), level: 1.0, error: Self::FIRST_ERROR }
    }
}

impl Capacity {
    /// What each further transfer is taken to cost before anything was measured: 2 % of what one alone gets.
    const FIRST_COST: f64 = 0.02;
    /// How much the assumption counts, in samples: little, and for ever, so that it gives the slope where
    /// only one number of transfers was seen.
    const PRIOR: f64 = 0.05;
    /// Where the assumption is made, beside at one transfer.
    const PRIOR_AT: f64 = 10.0;
    /// After so many samples half of what they say of concurrency is forgotten: minutes at one sample per
    /// second.
    const MEMORY: f64 = 64.0;
    /// How much of a sample the level follows: a change from outside is followed to nine tenths in 5 samples.
    const FOLLOW: f64 = 0.4;
    /// How much of a sample the mean error follows.
    const ERROR_FOLLOW: f64 = 0.1;
    /// The error that is assumed before anything was predicted.
    const FIRST_ERROR: f64 = 0.1;
    /// What one sample may change the level by at most, either way. A sensor's outlier is not the node.
    const GREATEST_STEP: f64 = 4.0;
    /// More transfers at once than this are not believed.
    const GREATEST_COUNT: f64 = 1e6;
    /// Nor is a node that much slower or faster than its peak.
    const GREATEST_RELATIVE: f64 = 1e6;
    /// While nobody transfers, what is known of load from outside halves in this time.
    const LEVEL_HALF_LIFE: Duration = Duration::from_secs(30);

    /// So many transfers, on average over a sampling interval, moved this much together. Without a transfer
    /// or a peak, use [`idle`](Self::idle): there is nothing to learn. Numbers that are none are ignored.
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

    /// Nobody transferred for so long.
    pub fn idle(&mut self, elapsed: Duration) {
        let left = (-elapsed.as_secs_f64() / Self::LEVEL_HALF_LIFE.as_secs_f64()).exp2();
        self.level = self.level.powf(left);
    }

    /// What each of so many transfers can count on, on a node with this peak.
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
        let alone = Capacity::default().of_each(1.0, peak()).per_second();
        assert!((alone - 270e6).abs() < 1.0, "{alone}");
        assert_eq!(Capacity::default().of_each(0.0, peak()), Capacity::default().of_each(1.0, peak()));
    }

    #[test]
    fn what_others_take_is_followed_within_some_samples() {
        let mut capacity = Capacity::default();
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
        let mut capacity = Capacity::default();
        for _ in 0..8 {
            capacity.observe(1.0, ByteRate::new(30e6), peak());
        }
        let held = capacity.of_each(1.0, peak());
        capacity.idle(Capacity::LEVEL_HALF_LIFE * 20);
        assert!(capacity.of_each(1.0, peak()) > held);
    }

    proptest! {
        /// It learns any cost of concurrency from noisy samples, and predicts numbers of transfers that it
        /// never saw.
        #[test]
        fn the_cost_of_concurrency_is_learnt(cost in 0.0..0.2f64, noise in prop::collection::vec(0.95..1.05f64, 200)) {
            let mut capacity = Capacity::default();
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

        /// Whatever is measured, more transfers never are told to get more each, and numbers stay numbers.
        #[test]
        fn more_transfers_get_less_each(
            samples in prop::collection::vec((prop::num::f64::ANY, prop::num::f64::ANY, prop::num::f64::ANY), 0..50),
        ) {
            let mut capacity = Capacity::default();
            for (active, rate, peak) in samples {
                capacity.observe(active, ByteRate::new(rate), ByteRate::new(peak));
                let mut last = f64::INFINITY;
                for count in 1..40u32 {
                    let each = capacity.of_each(f64::from(count), ByteRate::new(300e6)).per_second();
                    prop_assert!(each.is_finite() && each <= last, "{} transfers: {} after {}", count, each, last);
                    last = each;
                }
            }
        }
    }
}
