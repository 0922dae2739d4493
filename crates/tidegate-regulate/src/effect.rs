//! The effect of throttling on a latency that another machine reports.
//!
//! Throttling that does not shorten the latency is harm. A law that steers by the host's own storage knows
//! its plant. A latency that another machine reports may have causes that no throttle here reaches: a slow
//! switch, a busy initiator, a false report. So the longest delay has to prove itself. After ten seconds that
//! did not reach the target, the reports are left out, and the latencies without the throttle are compared.

use std::time::Duration;

use tidegate_units::Latency;

use crate::pace::remembered;

/// Memory of the latency.
const MEMORY: Duration = Duration::from_secs(2);

/// The longest delay for so long without the target is doubted.
const DOUBTED: Duration = Duration::from_secs(10);

/// The length of a trial without the throttle. The delay winds down in the first half.
const TRIAL: Duration = Duration::from_secs(8);

/// The latency without the throttle over that with it from which on the throttle is useful. Chosen: a quarter
/// is beyond the scatter of two-second means.
const USEFUL: f64 = 1.25;

/// The time for which a verdict is believed, at first and at most: as of the law `auto`.
const BELIEVED: (Duration, Duration) = (Duration::from_secs(120), Duration::from_secs(600));

/// A delay from this part of the longest on counts as the longest.
const LONGEST: f64 = 0.9;

/// The effect of the throttle on the reported latency of one resource.
#[derive(Debug, Clone)]
pub struct ThrottleEffect {
    state: EffectState,
    /// The latency of the last seconds.
    recent: Option<f64>,
    /// The time for which the next verdict is believed.
    believed: Duration,
    /// No further doubt for so long.
    rest: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum EffectState {
    /// Reports count. The delay has been the longest for so long.
    Counts(Duration),
    /// They are left out, to compare with the latency under the throttle.
    Trial { passed: Duration, throttled: f64 },
    /// The throttle did not help: they are left out for so long.
    InVain(Duration),
}

impl Default for ThrottleEffect {
    fn default() -> Self {
        Self {
            state: EffectState::Counts(Duration::ZERO),
            recent: None,
            believed: BELIEVED.0,
            rest: Duration::ZERO,
        }
    }
}

impl ThrottleEffect {
    /// Takes the reported latency of an interval, if there is one, and the delay that was in force.
    pub fn observe(
        &mut self,
        elapsed: Duration,
        latency: Option<Latency>,
        target: Latency,
        (delay, longest): (Latency, Latency),
    ) {
        if let Some(latency) = latency {
            let (keep, now) = (remembered(elapsed, MEMORY), latency.as_secs_f64());
            self.recent = Some(self.recent.map_or(now, |recent| keep * recent + (1.0 - keep) * now));
        }
        self.rest = self.rest.saturating_sub(elapsed);
        let recent = self.recent.unwrap_or_default();
        self.state = match self.state {
            EffectState::Counts(passed) => {
                let is_longest = delay.as_secs_f64() >= LONGEST * longest.as_secs_f64();
                let is_above = recent > target.as_secs_f64();
                match passed.saturating_add(elapsed) {
                    _ if !is_longest || !is_above || !self.rest.is_zero() => {
                        EffectState::Counts(Duration::ZERO)
                    }
                    passed if passed < DOUBTED => EffectState::Counts(passed),
                    _ => EffectState::Trial { passed: Duration::ZERO, throttled: recent },
                }
            }
            EffectState::Trial { passed, throttled } => match passed.saturating_add(elapsed) {
                passed if passed < TRIAL => EffectState::Trial { passed, throttled },
                // The load has ended meanwhile: no verdict.
                _ if recent <= target.as_secs_f64() => EffectState::Counts(Duration::ZERO),
                _ => self.verdict(recent > USEFUL * throttled),
            },
            EffectState::InVain(left) => match left.saturating_sub(elapsed) {
                Duration::ZERO => EffectState::Counts(Duration::ZERO),
                left => EffectState::InVain(left),
            },
        };
    }

    fn verdict(&mut self, is_useful: bool) -> EffectState {
        if is_useful {
            (self.rest, self.believed) = (BELIEVED.1, BELIEVED.0);
            return EffectState::Counts(Duration::ZERO);
        }
        let believed = self.believed;
        self.believed = believed.saturating_mul(2).min(BELIEVED.1);
        EffectState::InVain(believed)
    }

    /// Returns true if reports count.
    #[must_use]
    pub const fn counts(&self) -> bool {
        matches!(self.state, EffectState::Counts(_))
    }

    /// Returns true if throttling was found not to shorten the latency.
    #[must_use]
    pub const fn is_in_vain(&self) -> bool {
        matches!(self.state, EffectState::InVain(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_millis(250);
    const LONGEST: Latency = Latency::from_millis(100);
    const TARGET: Latency = Latency::from_millis(15);

    /// Runs `seconds` against storage whose latency follows from the delay in force. Returns the seconds in
    /// which reports counted.
    fn run(effect: &mut ThrottleEffect, seconds: u32, latency: impl Fn(Latency) -> u64) -> f64 {
        let mut counted = 0;
        for _ in 0..4 * seconds {
            let delay = if effect.counts() { LONGEST } else { Latency::ZERO };
            counted += u32::from(effect.counts());
            effect.observe(INTERVAL, Some(Latency::from_millis(latency(delay))), TARGET, (delay, LONGEST));
        }
        f64::from(counted) / 4.0
    }

    #[test]
    fn a_latency_that_does_not_follow_the_throttle_releases_it() {
        let mut effect = ThrottleEffect::default();
        let counted = run(&mut effect, 60, |_| 500);
        assert!(counted < 11.0 && effect.is_in_vain(), "{counted} s");
        // It is tried again after two minutes, then after four.
        let counted = run(&mut effect, 120, |_| 500);
        assert!((9.0..11.0).contains(&counted), "{counted} s");
        assert!(run(&mut effect, 200, |_| 500) < 1.0);
    }

    #[test]
    fn a_throttle_that_helps_and_does_not_suffice_stays() {
        let mut effect = ThrottleEffect::default();
        let latency = |delay: Latency| if delay > Latency::ZERO { 30 } else { 60 };
        let counted = run(&mut effect, 120, latency);
        assert!(counted > 111.0 && !effect.is_in_vain(), "{counted} s");
    }

    #[test]
    fn a_target_that_is_kept_is_never_doubted() {
        let mut effect = ThrottleEffect::default();
        assert!((run(&mut effect, 120, |_| 14) - 120.0).abs() < 1e-9);
        // Silence is no latency.
        let mut silent = ThrottleEffect::default();
        for _ in 0..400 {
            silent.observe(INTERVAL, None, TARGET, (LONGEST, LONGEST));
        }
        assert!(silent.counts());
    }
}
