//! The slow bound of the law `auto`, beside a cache that takes writes at once and drains them later.
//!
//! A law that believes the present latency climbs until the cache is full, falls, and climbs again. Each time
//! all consumers wait for a second or two: a storm. The sustainable window shows only seconds later. So each
//! storm lowers a bound on the window to the mean of what was in use since the one before. The bound rises
//! again slowly at first and then ever faster, as the window of TCP CUBIC does (Ha, Rhee, Xu 2008). So storms
//! become rare, and a storage that has become quicker is found out within minutes.

use serde::{Deserialize, Serialize};

use super::consumers::ALLOWED;

/// A latency above the goal by this, as a logarithm, is a storm.
const STORM: f64 = 0.25;

/// Seconds without a storm that end it.
const CALM: f64 = 1.0;

/// The rise of the bound per second: at first, and the part that grows with the cube of the seconds since the
/// storm; and the part while no second is above the target. The bound is where it was after about 70 s.
const RISE: (f64, f64, f64) = (0.001, 2e-8, 0.01);

/// The part of seconds above the target up to which the bound rises sooner.
const SELDOM: f64 = 0.01;

/// The bound that storms leave behind.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct StormBound {
    /// The sum of requests at the storage times seconds since the last storm began, and those seconds.
    used: f64,
    seconds: f64,
    bound: f64,
    /// Seconds since the last storm.
    since: f64,
    /// Seconds since a decision was last above the goal by that much.
    calm: f64,
}

impl Default for StormBound {
    fn default() -> Self {
        Self { used: 0.0, seconds: 0.0, bound: f64::INFINITY, since: f64::INFINITY, calm: f64::INFINITY }
    }
}

impl StormBound {
    /// Takes a decision's measurement into account. `used` is the logarithm of the requests at the storage,
    /// `error` is ln(goal / latency), and `deviation` its standard deviation. `above` is the part of seconds
    /// above the target: storms that hardly lift one are allowed.
    pub(super) fn observe(&mut self, used: f64, error: f64, deviation: f64, seconds: f64, above: f64) {
        self.since += seconds;
        let storm = error < -STORM && -error > 2.0 * deviation;
        if storm && self.calm >= CALM && above >= ALLOWED {
            let cycle = if self.seconds > 0.0 { (self.used / self.seconds).max(1e-6).ln() } else { used };
            self.bound = self.bound.min(cycle);
            (self.since, self.used, self.seconds) = (0.0, 0.0, 0.0);
        } else if !storm {
            let quiet = RISE.2 * (1.0 - above / SELDOM).max(0.0);
            self.bound += (RISE.0 + RISE.1 * self.since.min(1e3).powi(3) + quiet) * seconds;
        }
        self.calm = if storm { 0.0 } else { self.calm + seconds };
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

    /// A part of seconds above the target that storms count with.
    const OFTEN: f64 = 0.05;

    fn calm(bound: &mut StormBound, window: f64, seconds: u32) {
        for _ in 0..seconds {
            bound.observe(window.ln(), 0.1, 0.05, 1.0, OFTEN);
        }
    }

    fn storm(bound: &mut StormBound, window: f64, above: f64) {
        bound.observe(window.ln(), -1.0, 0.05, 1.0, above);
    }

    #[test]
    fn a_storm_bounds_the_window_to_the_mean_of_its_cycle() {
        let mut bound = StormBound::default();
        calm(&mut bound, 8.0, 5);
        calm(&mut bound, 4.0, 5);
        assert!(bound.bound().is_infinite());
        storm(&mut bound, 8.0, OFTEN);
        assert!((bound.bound().exp() - 6.0).abs() < 0.01, "{}", bound.bound().exp());
    }

    #[test]
    fn storms_that_hardly_lift_a_second_above_the_target_are_allowed() {
        let mut bound = StormBound::default();
        calm(&mut bound, 8.0, 10);
        storm(&mut bound, 8.0, ALLOWED / 2.0);
        assert!(bound.bound().is_infinite());
    }

    #[test]
    fn a_storm_of_several_decisions_counts_once_and_the_next_one_again() {
        let mut bound = StormBound::default();
        calm(&mut bound, 8.0, 10);
        storm(&mut bound, 8.0, OFTEN);
        let once = bound.bound();
        for _ in 0..5 {
            storm(&mut bound, 2.0, OFTEN);
        }
        assert!((bound.bound() - once).abs() < 1e-9);
        calm(&mut bound, 4.0, 2);
        storm(&mut bound, 4.0, OFTEN);
        assert!(bound.bound() < 4.0f64.ln(), "swings of some seconds are storms, too");
    }

    #[test]
    fn the_bound_rises_slowly_at_first_and_is_where_it_was_after_two_minutes() {
        let mut bound = StormBound::default();
        calm(&mut bound, 8.0, 5);
        calm(&mut bound, 4.0, 5);
        storm(&mut bound, 8.0, OFTEN);
        let after = bound.bound();
        calm(&mut bound, 6.0, 20);
        assert!(bound.bound() - after < 0.05, "{}", bound.bound() - after);
        calm(&mut bound, 6.0, 100);
        assert!(bound.bound() > 8.0f64.ln(), "{}", bound.bound().exp());
    }

    #[test]
    fn the_bound_rises_sooner_while_no_second_is_above_the_target() {
        let mut bound = StormBound::default();
        calm(&mut bound, 8.0, 10);
        storm(&mut bound, 8.0, OFTEN);
        let after = bound.bound();
        for _ in 0..20 {
            bound.observe(6.0f64.ln(), 0.1, 0.05, 1.0, 0.0);
        }
        assert!(bound.bound() - after > 0.15, "{}", bound.bound() - after);
    }
}
