//! The most that a node moves.

use std::time::Duration;

use tidegate_units::ByteRate;

/// The most that a node moves in one direction: pinned by the configuration, or learnt from measurements.
///
/// A learnt peak is the greatest mean of ten samples so far, and ages. A single second may be far above what
/// a node keeps up, by chance. While transfers are under way and fall short of the peak, the part above their
/// rate halves in [`HALF_LIFE`](Self::HALF_LIFE). A disk that is full, or an array that lost a path, is not
/// for ever taken for what it was. Without a transfer nothing is known, and nothing ages.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NodePeak {
    rate: ByteRate,
    pinned: bool,
    /// Neither a probe nor ten samples are known.
    is_new: bool,
}

impl NodePeak {
    /// The time of transfers in which half of the part above their rate is forgotten. An hour: longer than
    /// others disturb a node, shorter than a working day.
    pub const HALF_LIFE: Duration = Duration::from_secs(3600);

    /// Makes a peak that stays the same, whatever is measured.
    #[must_use]
    pub const fn pinned(rate: ByteRate) -> Self {
        Self { rate, pinned: true, is_new: false }
    }

    /// Makes a peak to be learnt, beginning with the result of a probe; with zero if there was none.
    #[must_use]
    pub const fn learnt(from: ByteRate) -> Self {
        Self { rate: from, pinned: false, is_new: from.per_second() <= 0.0 }
    }

    /// The rate. Zero as long as nothing is known.
    #[must_use]
    pub const fn get(&self) -> ByteRate {
        self.rate
    }

    /// Returns true if it is configured, so that it can be counted on.
    #[must_use]
    pub const fn is_pinned(&self) -> bool {
        self.pinned
    }

    /// Takes the rate that a probe measured. While others use the node, a probe gets only the rest: its rate
    /// can raise the peak, and not lower it.
    pub fn probed(&mut self, rate: ByteRate, is_used: bool) {
        if !self.pinned {
            let is_less = rate < self.rate;
            self.rate = if is_used && is_less { self.rate } else { rate };
            self.is_new = false;
        }
    }

    /// Takes the mean rate of the last samples in which transfers moved, the last of which took this time. As
    /// long as there are fewer than ten (`is_whole`), each mean replaces the one before.
    pub fn observe_mean(&mut self, mean: ByteRate, is_whole: bool, elapsed: Duration) {
        if is_whole {
            self.observe(mean, elapsed);
            self.is_new = false;
        } else if self.is_new {
            self.rate = mean;
        }
    }

    /// Takes a rate that was moved for this time.
    pub fn observe(&mut self, rate: ByteRate, elapsed: Duration) {
        if self.pinned {
            return;
        }
        let left = (-elapsed.as_secs_f64() / Self::HALF_LIFE.as_secs_f64()).exp2();
        let above = (self.rate.per_second() - rate.per_second()).max(0.0);
        self.rate = ByteRate::new(rate.per_second() + above * left);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: f64 = 1e6;

    #[test]
    fn the_greatest_is_learnt_and_ages() {
        let mut peak = NodePeak::learnt(ByteRate::ZERO);
        peak.observe(ByteRate::new(60.0 * MB), Duration::from_secs(1));
        assert_eq!(peak.get(), ByteRate::new(60.0 * MB));
        peak.observe(ByteRate::new(20.0 * MB), NodePeak::HALF_LIFE);
        assert!((peak.get().per_second() - 40.0 * MB).abs() < 1.0);
        peak.observe(ByteRate::new(50.0 * MB), Duration::from_secs(1));
        assert_eq!(peak.get(), ByteRate::new(50.0 * MB));
    }

    #[test]
    fn a_probe_replaces_what_was_learnt_unless_others_were_there() {
        let mut peak = NodePeak::learnt(ByteRate::new(60.0 * MB));
        peak.probed(ByteRate::new(20.0 * MB), true);
        assert_eq!(peak.get(), ByteRate::new(60.0 * MB));
        peak.probed(ByteRate::new(20.0 * MB), false);
        assert_eq!(peak.get(), ByteRate::new(20.0 * MB));
        peak.probed(ByteRate::new(30.0 * MB), true);
        assert_eq!(peak.get(), ByteRate::new(30.0 * MB));
        peak.observe(ByteRate::ZERO, NodePeak::HALF_LIFE);
        assert_eq!(peak.get(), ByteRate::new(15.0 * MB), "it ages like anything else that is learnt");
    }

    #[test]
    fn a_quick_second_among_ten_is_no_peak() {
        let mut peak = NodePeak::learnt(ByteRate::ZERO);
        let mean = |rate: f64| ByteRate::new(rate * MB);
        peak.observe_mean(mean(90.0), false, Duration::from_secs(1));
        assert_eq!(peak.get(), mean(90.0), "nothing else is known");
        peak.observe_mean(mean(60.0), false, Duration::from_secs(1));
        peak.observe_mean(mean(61.0), true, Duration::from_secs(1));
        assert!((peak.get().per_second() - 61.0 * MB).abs() < 1.0);
        peak.observe_mean(mean(70.0), false, Duration::from_secs(1));
        assert!(peak.get() < mean(62.0));
        let mut probed = NodePeak::learnt(mean(60.0));
        probed.observe_mean(mean(90.0), false, Duration::from_secs(1));
        assert_eq!(probed.get(), mean(60.0), "a probe knows more than a second");
    }

    #[test]
    fn what_is_pinned_stays() {
        let mut peak = NodePeak::pinned(ByteRate::new(60.0 * MB));
        peak.observe(ByteRate::new(900.0 * MB), Duration::from_secs(1));
        peak.observe(ByteRate::new(1.0), NodePeak::HALF_LIFE * 100);
        peak.probed(ByteRate::new(900.0 * MB), false);
        assert_eq!(peak.get(), ByteRate::new(60.0 * MB));
    }
}
