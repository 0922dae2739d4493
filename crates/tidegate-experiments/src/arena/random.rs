//! The random numbers of one scenario.

use rand::Rng;
use rand_pcg::Pcg64;

/// Random numbers from a seed.
pub(super) struct RandomDraw(Pcg64);

impl RandomDraw {
    pub(super) fn new(seed: u64) -> Self {
        let state = u128::from(seed).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
        let mut random = Pcg64::new(state, 1);
        // The first numbers of neighbouring seeds resemble each other.
        for _ in 0..8 {
            random.next_u64();
        }
        Self(random)
    }

    /// Uniform from 0 to 1.
    fn fraction(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    pub(super) fn uniform(&mut self, from: f64, to: f64) -> f64 {
        from + (to - from) * self.fraction()
    }

    /// Uniform in the logarithm.
    pub(super) fn scaled(&mut self, from: f64, to: f64) -> f64 {
        self.uniform(from.ln(), to.ln()).exp()
    }

    /// A whole number, both ends included.
    pub(super) fn whole(&mut self, from: u32, to: u32) -> u32 {
        from + (self.fraction() * f64::from(to - from + 1)) as u32
    }

    /// A whole number, uniform in the logarithm, both ends included.
    pub(super) fn scaled_whole(&mut self, from: u32, to: u32) -> u32 {
        (self.scaled(f64::from(from), f64::from(to) + 0.99) as u32).clamp(from, to)
    }

    /// True with this probability.
    pub(super) fn chance(&mut self, part: f64) -> bool {
        self.fraction() < part
    }

    pub(super) fn pick<T: Copy>(&mut self, among: &[T]) -> T {
        among[((self.fraction() * among.len() as f64) as usize).min(among.len() - 1)]
    }
}
