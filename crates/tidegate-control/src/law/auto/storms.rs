//! The slow bound of the law `auto`, beside a cache that takes writes at once and drains them later.
//!
//! A law that believes the present latency climbs until the cache is full, falls, and climbs again. Each time
//! all consumers wait for a second or two: a storm. The sustainable window shows only seconds later. So each
//! storm lowers a bound on the window, below what was in use before it. The bound rises again slowly at first
//! and then ever faster, as the window of TCP CUBIC does (Ha, Rhee, Xu 2008). So storms become rare, and a
//! storage that has become quicker is found out within minutes.

/// A latency above the goal by this, as a logarithm, is a storm.
const STORM: f64 = 0.25;

/// Seconds in which a latency above the goal is still the same storm.
const SAME: f64 = 4.0;

/// The distance between the bound and the window before the storm, as a logarithm: of a storm soon after the
/// one before, and of others.
const CUTS: (f64, f64) = (0.1, 0.1);

/// Seconds within which a storm comes soon after another.
const SOON: f64 = 20.0;

/// The rise of the bound per second: at first, and the part that grows with the cube of the seconds since the
/// storm. The bound is where it was after about 70 s.
const RISE: (f64, f64) = (0.001, 2e-8);

/// The bound that storms leave behind.
#[derive(Debug, Clone, Copy)]
pub(super) struct StormBound {
    /// The sum of requests at the storage times seconds since the last storm began, and those seconds.
    used: f64,
    seconds: f64,
    bound: f64,
    /// Seconds since the last storm.
    since: f64,
}

impl Default for StormBound {
    fn default() -> Self {
        Self { used: 0.0, seconds: 0.0, bound: f64::INFINITY, since: f64::INFINITY }
    }
}

impl StormBound {
    /// Takes a decision's measurement into account. `used` is the logarithm of the requests at the storage,
    /// `error` is ln(goal / latency), and `deviation` its standard deviation.
    pub(super) fn observe(&mut self, used: f64, error: f64, deviation: f64, seconds: f64) {
        self.since += seconds;
        let storm = error < -STORM && -error > 2.0 * deviation;
        if storm && self.since > SAME {
            let cycle = if self.seconds > 0.0 { (self.used / self.seconds).max(1e-6).ln() } else { used };
            let cut = if self.since < SOON { CUTS.0 } else { CUTS.1 };
            self.bound = self.bound.min(cycle) - cut;
            (self.since, self.used, self.seconds) = (0.0, 0.0, 0.0);
        } else if storm {
            self.since = self.since.min(SAME / 2.0);
        } else {
            self.bound += (RISE.0 + RISE.1 * self.since.min(1e3).powi(3)) * seconds;
        }
        self.used += used.exp() * seconds;
        self.seconds += seconds;
    }

    /// The largest window, as a logarithm.
    pub(super) fn bound(&self) -> f64 {
        self.bound
    }

    /// Forgets the bound: the storage is another one.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calm(bound: &mut StormBound, window: f64, seconds: u32) {
        for _ in 0..seconds {
            bound.observe(window.ln(), 0.1, 0.05, 1.0);
        }
    }

    #[test]
    fn a_storm_bounds_the_window_below_the_mean_of_its_cycle() {
        let mut bound = StormBound::default();
        calm(&mut bound, 8.0, 10);
        assert!(bound.bound().is_infinite());
        bound.observe(8.0f64.ln(), -1.0, 0.05, 1.0);
        assert!(bound.bound().exp() < 8.0 && bound.bound().exp() > 6.0, "{}", bound.bound().exp());
    }

    #[test]
    fn a_storm_of_several_decisions_counts_once() {
        let mut bound = StormBound::default();
        calm(&mut bound, 8.0, 10);
        bound.observe(8.0f64.ln(), -1.0, 0.05, 1.0);
        let once = bound.bound();
        for _ in 0..5 {
            bound.observe(2.0f64.ln(), -1.0, 0.05, 0.5);
        }
        assert!((bound.bound() - once).abs() < 1e-9);
    }

    #[test]
    fn the_bound_rises_slowly_at_first_and_is_where_it_was_after_two_minutes() {
        let mut bound = StormBound::default();
        calm(&mut bound, 8.0, 10);
        bound.observe(8.0f64.ln(), -1.0, 0.05, 1.0);
        let after = bound.bound();
        calm(&mut bound, 6.0, 20);
        assert!(bound.bound() - after < 0.05, "{}", bound.bound() - after);
        calm(&mut bound, 6.0, 100);
        assert!(bound.bound() > 8.0f64.ln(), "{}", bound.bound().exp());
    }
}
