//! Randomness: a stream of its own for everything that is random, so that adding one changes no other.

use rand::Rng;
use rand_distr::{Distribution, Exp1};
use rand_pcg::Pcg64;

/// A stream of random numbers.
#[derive(Debug, Clone)]
pub(crate) struct RandomStream(Pcg64);

impl RandomStream {
    /// The stream that belongs to these names under this seed, and to nothing else.
    pub(crate) fn of(seed: u64, names: &[&str]) -> Self {
        let stream = fingerprint(names);
        // PCG wants states and streams that are not close to each other: neighbouring seeds must not look
        // alike.
        let state = u128::from(scramble(seed)) << 64 | u128::from(scramble(seed ^ (stream >> 64) as u64));
        Self(Pcg64::new(state, stream))
    }

    /// A seed for something that makes its own stream.
    pub(crate) fn seed(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Uniform in [0, 1).
    pub(crate) fn fraction(&mut self) -> f64 {
        unit(self.0.next_u64())
    }

    /// Uniform among `0..bound`, by multiplication: the bias is below `bound/2⁶⁴`. Zero when `bound` is.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.0.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// Exponential with mean 1.
    pub(crate) fn exponential(&mut self) -> f64 {
        Exp1.sample(&mut self.0)
    }
}

/// Returns the number in [0, 1) at a place of the sequence that belongs to these names under this seed. All
/// callers get the same number for the same place, in any order, so that several workloads can agree on it.
pub(crate) fn fraction_at(seed: u64, names: &[&str], place: u64) -> f64 {
    let sequence = fingerprint(names);
    let start = scramble(seed ^ scramble(sequence as u64 ^ (sequence >> 64) as u64));
    // SplitMix64, which can be entered anywhere.
    unit(scramble(start.wrapping_add(place.wrapping_mul(GOLDEN))))
}

/// The upper 53 bits as a number in [0, 1).
fn unit(random: u64) -> f64 {
    (random >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
}

/// FNV-1a with 128 bits, with the names kept apart: a hash that will be the same in every version.
fn fingerprint(names: &[&str]) -> u128 {
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    let mut hash: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    for name in names {
        for byte in name.bytes().chain([0]) {
            hash = (hash ^ u128::from(byte)).wrapping_mul(PRIME);
        }
    }
    hash
}

/// The step of SplitMix64.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// A step and the finaliser of SplitMix64.
const fn scramble(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(GOLDEN);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_depends_on_seed_and_names_and_nothing_else() {
        let take = |seed, names: &[&str]| {
            let mut random = RandomStream::of(seed, names);
            [random.seed(), random.seed(), random.seed()]
        };
        assert_eq!(take(1, &["a", "b"]), take(1, &["a", "b"]));
        let others =
            [take(2, &["a", "b"]), take(1, &["ab"]), take(1, &["a"]), take(1, &["b", "a"]), take(1, &[])];
        for (at, other) in others.iter().enumerate() {
            assert_ne!(*other, take(1, &["a", "b"]));
            assert!(others[..at].iter().all(|earlier| earlier != other));
        }
    }

    #[test]
    fn neighbouring_streams_have_nothing_in_common() {
        // The correlation of 10 000 pairs of independent uniforms is within 0.04 in all but one of 10 000
        // cases.
        for (one, other) in [((1, "vm-1"), (1, "vm-2")), ((1, "vm-1"), (2, "vm-1"))] {
            let (mut x, mut y) = (RandomStream::of(one.0, &[one.1]), RandomStream::of(other.0, &[other.1]));
            let sum: f64 = (0..10_000).map(|_| (x.fraction() - 0.5) * (y.fraction() - 0.5)).sum();
            assert!((sum / 10_000.0 * 12.0).abs() < 0.04, "{sum}");
        }
    }

    #[test]
    fn samples_have_the_moments_of_their_distributions() {
        let mut random = RandomStream::of(7, &["moments"]);
        let mean = |f: &mut dyn FnMut() -> f64| (0..100_000).map(|_| f()).sum::<f64>() / 100_000.0;
        assert!((mean(&mut || random.fraction()) - 0.5).abs() < 0.005);
        assert!((mean(&mut || random.exponential()) - 1.0).abs() < 0.015);
        let mut place = 0;
        let mut next = || {
            place += 1;
            fraction_at(7, &["moments"], place)
        };
        assert!((mean(&mut next) - 0.5).abs() < 0.005);
        assert!((mean(&mut || random.below(7) as f64) - 3.0).abs() < 0.03);
        assert_eq!(random.below(0), 0);
    }
}
