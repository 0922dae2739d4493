//! The time for which members are sought at each sample.

use std::time::Duration;

/// The time for which members may be sought at each sample. A rescan takes a file for each session. So where
/// latency stays above the set point, and no consumer can be throttled, it is done for two seconds, and then
/// for a tenth of the time.
#[derive(Debug)]
pub(super) struct SeekAllowance(Duration);

impl SeekAllowance {
    const MOST: Duration = Duration::from_millis(2_500);
    /// The least that is used: longer than the time between two samples.
    const LEAST: Duration = Duration::from_millis(500);

    /// Returns true if members may be sought.
    pub(super) const fn is_left(&self) -> bool {
        self.0.as_nanos() >= Self::LEAST.as_nanos()
    }

    /// Takes a sample. `used`: members were sought.
    pub(super) fn pass(&mut self, elapsed: Duration, used: bool) {
        self.0 = if used { self.0.saturating_sub(elapsed) } else { Self::MOST.min(self.0 + elapsed / 10) };
    }
}

impl Default for SeekAllowance {
    fn default() -> Self {
        Self(Self::MOST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_no_member_is_ever_found_a_tenth_of_the_samples_is_used() {
        for step in [50, 100, 250].map(Duration::from_millis) {
            let mut allowance = SeekAllowance::default();
            let samples = Duration::from_mins(10).as_millis() / step.as_millis();
            let used = (0..samples).filter(|_| {
                let is_left = allowance.is_left();
                allowance.pass(step, is_left);
                is_left
            });
            let (used, at_first) = (used.count() as u128, SeekAllowance::MOST.as_millis() / step.as_millis());
            assert!((at_first..at_first + samples / 10).contains(&used), "{used} of {samples}");
        }
    }
}
