//! How a rate is divided among reads and writes, which the kernel limits one by one.

use std::time::Duration;

use tidegate_host::cgroup::IoLimit;
use tidegate_units::Iops;

use super::super::pace::remembered;

/// How soon it is forgotten what was read and written: within a few intervals of a law, so that who turns from reading to writing
/// has his rate again soon.
const RECENT: Duration = Duration::from_secs(1);

/// Of its rate each direction has at least this part, whatever was done lately: so that it is seen when somebody begins to write. All
/// together is above the rate by no more than this.
const LEAST: f64 = 1.0 / 16.0;

/// Nobody does so many to a device in a second: the kernel is not bothered with such a limit.
const UNFELT: f64 = 1e8;

/// What one cgroup did lately, weighted by age.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Mix {
    reads: f64,
    writes: f64,
}

impl Mix {
    pub(super) fn observe(&mut self, elapsed: Duration, reads: u64, writes: u64) {
        // Who does nothing for a while goes on as before.
        if reads + writes == 0 {
            return;
        }
        let keep = remembered(elapsed, RECENT);
        self.reads = keep * self.reads + reads as f64;
        self.writes = keep * self.writes + writes as f64;
    }

    /// The limit by which no more than a rate is done, where the proportion stays what it was. While nothing is known of that, each
    /// direction has all.
    pub(super) fn limit(self, rate: Iops) -> IoLimit {
        if rate.per_second() >= UNFELT {
            return IoLimit::NONE;
        }
        let all = self.reads + self.writes;
        let part = |done: f64| if all > 0.0 { (done / all).max(LEAST) } else { 1.0 };
        let of = |done| Iops::new(rate.per_second() * part(done));
        IoLimit::NONE.reads(of(self.reads)).writes(of(self.writes))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const STEP: Duration = Duration::from_millis(100);

    fn limits(mix: Mix, rate: f64) -> (f64, f64) {
        let limit = mix.limit(Iops::new(rate));
        (limit.read_rate().unwrap().per_second(), limit.write_rate().unwrap().per_second())
    }

    #[test]
    fn each_direction_has_its_part_and_a_little() {
        let mut mix = Mix::default();
        assert_eq!(limits(mix, 160.0), (160.0, 160.0));
        mix.observe(STEP, 30, 0);
        assert_eq!(limits(mix, 160.0), (160.0, 10.0));
        for _ in 0..100 {
            mix.observe(STEP, 30, 10);
        }
        let (reads, writes) = limits(mix, 160.0);
        assert!((reads - 120.0).abs() <= 1.0 && (writes - 40.0).abs() <= 1.0, "{reads} {writes}");
        // Silence teaches nothing.
        mix.observe(STEP * 100, 0, 0);
        assert_eq!(limits(mix, 160.0), (reads, writes));
        assert_eq!(mix.limit(Iops::new(1e9)), IoLimit::NONE);
    }

    /// Somebody with work for both, who turns from reading to writing: what is done is what the limits let pass.
    #[test]
    fn who_turns_to_writing_has_the_rate_again_within_seconds() {
        let mut mix = Mix::default();
        mix.observe(STEP, 100, 0);
        let mut writes = 0.0;
        for _ in 0..50 {
            (_, writes) = limits(mix, 160.0);
            mix.observe(STEP, 0, (writes * STEP.as_secs_f64()).round() as u64);
        }
        assert!(writes > 150.0, "{writes}");
    }

    proptest! {
        #[test]
        fn both_together_are_never_far_above_the_rate(
            seen in prop::collection::vec((0..10_000_u64, 0..10_000_u64, 0..5_u32), 1..20), rate in 1.0..1e6,
        ) {
            let mut mix = Mix::default();
            mix.observe(STEP, 1, 1);
            for (reads, writes, steps) in seen {
                mix.observe(STEP * steps, reads, writes);
            }
            let (reads, writes) = limits(mix, rate);
            // The kernel takes whole numbers, rounded up.
            prop_assert!(reads + writes <= rate * (1.0 + LEAST) + 2.0, "{} {}", reads, writes);
            prop_assert!(reads + writes >= rate * (1.0 - 1e-9) && reads.min(writes) >= rate * LEAST - 1e-6);
        }
    }
}
