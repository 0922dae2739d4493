//! The integral law of Lee, Nam, Jung, Jung and Park, *Regulating I/O Performance of Shared Storage with a
//! Control Theoretical Approach*, equations 1 and 2: the rate of one consumer.
//!
//! The paper's RT_i(k), "the current response time" of a control period, is a
//! [`ContractStatistic`](crate::ContractStatistic) of the requests that completed in it, each from its
//! release by the leaky bucket to its completion. Its reference is RT^E (§4.3), not rt_i as in equation 1.

use serde::{Deserialize, Serialize};
use tidegate_units::{Iops, Latency};

use crate::document::output::OutputBound;
use crate::law::integral::config::IntegralConfig;

/// Part of its rate that a consumer must use for the rate to be raised: a consumer that uses less has no use
/// for more. It is below 1 for the same reason as with a full window. Some of the requests released in an
/// interval complete in the next.
const USED: f64 = 0.7;

/// Part of a positive error by which rates rise slowly. Chosen on seeds from 1,000,001 on: of Lee's cases 1,
/// 2 and 4 at most 5, 3 and 3 % are late with it, and a workload alone still gets 99 % of the paper's
/// throughput.
const SLOW_RISE: f64 = 0.7;

/// Returns the error that moves a rate.
pub(crate) fn weighed(config: &IntegralConfig, error: f64) -> f64 {
    if config.variant.slow_rise && error > 0.0 { SLOW_RISE * error } else { error }
}

/// Between what a rate may be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RateBounds {
    /// The promised rate, or the floor.
    pub least: Iops,
    /// Greatest rate, if there is one. Below `least` it has no effect: a promise counts more.
    pub greatest: Option<Iops>,
}

impl RateBounds {
    pub(crate) fn confine(self, rate: f64) -> (f64, Option<OutputBound>) {
        let least = self.least.per_second();
        match self.greatest.map(Iops::per_second) {
            _ if rate < least => (least, Some(OutputBound::Least)),
            Some(greatest) if rate > greatest.max(least) => {
                (greatest.max(least), Some(OutputBound::Greatest))
            }
            _ => (rate, None),
        }
    }
}

/// Use of its rate by a consumer in a control period.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RateUse {
    /// Completed requests per second.
    pub completed: Iops,
    /// Some of its requests waited for their release.
    pub waited: bool,
}

/// Result of one step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct IntegralStep {
    /// Eq. 2 without bounds; nothing when negative.
    pub raw: Iops,
    /// The rate now.
    pub rate: Iops,
    /// The bound that made the difference.
    pub bound: Option<OutputBound>,
}

/// The rate ρ_i of one consumer, which is all the state that the law has.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct IntegralLaw {
    rate: Iops,
}

impl IntegralLaw {
    /// Begins at a rate. A consumer's first is what was promised to it, or the floor (Lee, table 1): surplus
    /// has to be found.
    #[must_use]
    pub const fn new(rate: Iops) -> Self {
        Self { rate }
    }

    /// The rate now.
    #[must_use]
    pub const fn rate(&self) -> Iops {
        self.rate
    }

    /// One step of eqs. 1 and 2, `ρ(k) = ρ(k−1) + K·(reference − measured)`, within the bounds.
    ///
    /// `periods` is the part of a control period that it stands for, so that a step which comes early counts
    /// less. One that comes late counts once: K is chosen for one answer of the storage to each step, and
    /// twice K could be beyond 2/G. `remaining` is the part that is left by decay of what is not used.
    pub fn step(
        &mut self,
        config: &IntegralConfig,
        bounds: RateBounds,
        (reference, measured): (Latency, Latency),
        used: RateUse,
        periods: f64,
        remaining: f64,
    ) -> IntegralStep {
        let error = weighed(config, reference.as_millis_f64() - measured.as_millis_f64());
        let part = if periods.is_nan() { 0.0 } else { periods.clamp(0.0, 1.0) };
        // In this order the product of nothing and anything is nothing.
        let raw = self.rate.per_second() + part * error * config.gain.iops_per_ms();
        let variant = config.variant;
        let enough = used.completed.per_second() / USED;
        if variant.raise_only_used && !(used.waited && enough >= self.rate.per_second()) {
            let kept = if variant.decay_unused {
                self.decayed(bounds.least.per_second().max(enough), remaining)
            } else {
                self.rate.per_second()
            };
            if raw > kept {
                return self.put(raw, kept, bounds, Some(OutputBound::Demand));
            }
        }
        self.put(raw, raw, bounds, None)
    }

    /// The rate is not used: keeps `remaining` of the part beyond the least.
    pub fn relax(&mut self, bounds: RateBounds, remaining: f64) -> IntegralStep {
        let rate = self.decayed(bounds.least.per_second(), remaining);
        self.put(rate, rate, bounds, None)
    }

    /// Nothing is known: keeps the rate, as far as the bounds of now allow.
    pub fn hold(&mut self, bounds: RateBounds) -> IntegralStep {
        let rate = self.rate.per_second();
        self.put(rate, rate, bounds, None)
    }

    /// Returns the rate after a decay: the part beyond `floor` shrinks to `remaining` of itself. A rate below
    /// `floor` stays.
    fn decayed(&self, floor: f64, remaining: f64) -> f64 {
        let remaining = if remaining.is_nan() { 1.0 } else { remaining.clamp(0.0, 1.0) };
        let rate = self.rate.per_second();
        rate.min(floor + (rate - floor) * remaining)
    }

    fn put(&mut self, raw: f64, wanted: f64, bounds: RateBounds, why: Option<OutputBound>) -> IntegralStep {
        let (rate, bound) = bounds.confine(wanted);
        self.rate = Iops::new(rate);
        IntegralStep { raw: Iops::new(raw), rate: self.rate, bound: bound.or(why) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::law::integral::config::IntegralVariant;
    use crate::law::integral::gain::ControllerGain;

    fn bounds(least: f64, greatest: Option<f64>) -> RateBounds {
        RateBounds { least: Iops::new(least), greatest: greatest.map(Iops::new) }
    }

    fn anything() -> impl Strategy<Value = f64> {
        prop_oneof![0.0..1e4, any::<f64>(), Just(f64::NAN), Just(f64::INFINITY), Just(f64::MAX)]
    }

    #[test]
    fn decay_ends_at_what_is_used_and_no_number_is_no_decay() {
        let mut law = IntegralLaw::new(Iops::new(72.0));
        let bounds = bounds(40.0, None);
        assert_eq!(law.relax(bounds, f64::NAN).rate, Iops::new(72.0));
        assert_eq!(law.relax(bounds, 0.5).rate, Iops::new(56.0));
        assert_eq!(law.relax(bounds, 0.0).rate, Iops::new(40.0));
        // 35 IO/s are 70 % of 50.
        let mut law = IntegralLaw::new(Iops::new(72.0));
        let used = RateUse { completed: Iops::new(35.0), waited: true };
        let (reference, measured) = (Latency::from_millis(30), Latency::from_millis(10));
        let step = law.step(&IntegralConfig::default(), bounds, (reference, measured), used, 1.0, 0.5);
        assert!(
            (step.rate.per_second() - 61.0).abs() < 1e-9 && step.bound == Some(OutputBound::Demand),
            "{step:?}"
        );
    }

    const LITERAL: IntegralVariant = IntegralVariant::LITERAL;

    proptest! {
        #[test]
        fn always_within_its_bounds(
            gain in prop_oneof![1e-3..1e3, Just(f64::MAX), Just(f64::MIN_POSITIVE)],
            switches: [bool; 5],
            steps in prop::collection::vec(
                (any::<u64>(), any::<u64>(), anything(), any::<bool>(), anything(), anything(),
                 anything(), proptest::option::of(anything())),
                1..40,
            ),
        ) {
            let [raise_only_used, decay_unused, give_way, take_over, slow_rise] = switches;
            let switched = IntegralVariant { raise_only_used, decay_unused, give_way, take_over, ..LITERAL };
            let variant = IntegralVariant { slow_rise, ..switched };
            let gain = ControllerGain::new(gain).unwrap();
            let config = IntegralConfig { gain, variant, ..IntegralConfig::default() };
            let mut law = IntegralLaw::new(Iops::new(2.0));
            for (reference, measured, completed, waited, periods, remaining, least, greatest) in steps {
                let bounds = bounds(least, greatest);
                let compared = (Latency::from_nanos(reference), Latency::from_nanos(measured));
                let used = RateUse { completed: Iops::new(completed), waited };
                let before = law;
                for step in [
                    law.step(&config, bounds, compared, used, periods, remaining),
                    { before }.relax(bounds, remaining),
                    { before }.hold(bounds),
                ] {
                    prop_assert!(step.rate >= bounds.least);
                    let most = bounds.greatest.filter(|&greatest| greatest > bounds.least);
                    let most = most.unwrap_or(if greatest.is_some() { bounds.least }
                        else { Iops::new(f64::MAX) });
                    prop_assert!(step.rate <= most, "{step:?}");
                    prop_assert!(step.raw.per_second().is_finite());
                }
            }
        }

        #[test]
        fn a_longer_response_time_never_gives_a_greater_rate(
            rate in 1.0..1e4, millis in 0u64..300, more in 0u64..300, completed in 0.0..1e4, waited: bool,
                literal: bool
        ) {
            let variant = if literal { IntegralVariant::LITERAL } else { IntegralVariant::IMPROVED };
            let config = IntegralConfig { variant, ..IntegralConfig::default() };
            let used = RateUse { completed: Iops::new(completed), waited };
            let after = |millis| {
                let compared = (Latency::from_millis(30), Latency::from_millis(millis));
                IntegralLaw::new(Iops::new(rate)).step(&config, bounds(2.0, None), compared, used, 1.0, 0.7)
                    .rate
            };
            prop_assert!(after(millis + more) <= after(millis));
        }

        /// Nothing beyond what is used, with 70 % to spare for each: so far a surplus may go at all.
        #[test]
        fn a_rate_goes_no_further_than_what_is_used(demand in 1.0..500.0, steps in 1usize..200) {
            let config = IntegralConfig::default();
            let mut law = IntegralLaw::new(Iops::new(2.0));
            for _ in 0..steps {
                let rate = law.rate().per_second();
                let used = RateUse { completed: Iops::new(rate.min(demand)), waited: true };
                let step = law.step(&config, bounds(2.0, None), (Latency::from_millis(30), Latency::ZERO),
                    used, 1.0, 0.7);
                // One step of K·E beyond.
                prop_assert!(step.rate.per_second() <= demand / USED + 0.33 * 30.0 + 1e-9);
            }
        }
    }
}
