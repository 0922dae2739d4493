//! The one source of randomness of a simulation.

use std::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

pub(super) struct Dice(Pcg64Mcg);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self(Pcg64Mcg::seed_from_u64(seed))
    }

    /// A number below `bound`, which is not zero.
    pub(super) fn below(&mut self, bound: usize) -> usize {
        self.0.random_range(0..bound)
    }

    pub(super) fn between(&mut self, least: u64, greatest: u64) -> u64 {
        self.0.random_range(least..=greatest)
    }

    /// Returns true `per_mille` times of a thousand.
    pub(super) fn hits(&mut self, per_mille: u32) -> bool {
        self.0.random_range(0..1000) < per_mille
    }

    /// A delay of some microseconds, sometimes of milliseconds, and rarely much longer.
    pub(super) fn delay(&mut self) -> Duration {
        Duration::from_micros(match self.below(200) {
            0 => self.between(20_000, 400_000),
            1..10 => self.between(1_000, 20_000),
            10..80 => self.between(100, 1_000),
            _ => self.between(5, 100),
        })
    }
}
