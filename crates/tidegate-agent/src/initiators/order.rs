//! The order in which consumers are throttled: those without an agent first (Bjørgeengen §5,
//! `has_agent_installed`).

use std::time::Duration;

use tidegate_units::Latency;

/// The longest delay for so long without the target says that consumers without an agent do not suffice.
const INSUFFICIENT: Duration = Duration::from_secs(3);

/// Without a delay for so long, consumers without an agent are the first again.
const OVER: Duration = Duration::from_secs(10);

/// A delay from this part of the longest on counts as the longest.
const LONGEST: f64 = 0.9;

/// The consumers whose turn it is.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct OrderOfTurns {
    /// All are throttled alike.
    everyone: bool,
    /// Since when there is a reason to change that.
    passed: Duration,
}

impl OrderOfTurns {
    /// Returns true if it is the turn of all eligible consumers.
    pub(crate) const fn is_everyone(self) -> bool {
        self.everyone
    }

    /// Takes the delay of an interval, and whether the signal was above the target.
    pub(crate) fn observe(
        &mut self,
        elapsed: Duration,
        (delay, longest): (Latency, Latency),
        is_above: bool,
    ) {
        let (is_due, after) = match self.everyone {
            false => (is_above && delay.as_secs_f64() >= LONGEST * longest.as_secs_f64(), INSUFFICIENT),
            true => (delay == Latency::ZERO, OVER),
        };
        self.passed = if is_due { self.passed.saturating_add(elapsed) } else { Duration::ZERO };
        if self.passed >= after {
            (self.everyone, self.passed) = (!self.everyone, Duration::ZERO);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_have_their_turn_only_if_the_first_do_not_suffice() {
        let (second, longest) = (Duration::from_secs(1), Latency::from_millis(100));
        let mut order = OrderOfTurns::default();
        for (delay_ms, is_above, everyone) in [
            // A shorter delay suffices.
            (50, true, false),
            (100, true, false),
            (100, false, false),
            (100, true, false),
            (100, true, false),
            (100, true, true),
            (40, false, true),
        ] {
            order.observe(second, (Latency::from_millis(delay_ms), longest), is_above);
            assert_eq!(order.is_everyone(), everyone, "{delay_ms} {is_above}");
        }
        for passed in 1..=10 {
            order.observe(second, (Latency::ZERO, longest), false);
            assert_eq!(order.is_everyone(), passed < 10, "{passed}");
        }
    }
}
