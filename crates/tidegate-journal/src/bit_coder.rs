//! Binary arithmetic coding with adaptive probabilities.
//!
//! A bit that is nearly certain costs next to nothing, and a block of nearly certain bits a few bytes. zstd
//! needs a table of some ten bytes in each block, which is more than the block of a gateway with one pool.
//! The probabilities are those of the bits so far, and go on from block to block.

/// One as a probability of 16 bits.
const ONE: u32 = 1 << 16;

/// Bits after which a probability follows new ones no more slowly.
const MOST_LEARNT: usize = 127;

/// Weights of the next bit, of 16 bits: two thirds for the first one, then as a mean of all so far.
const WEIGHTS: [u32; MOST_LEARNT + 1] = {
    let mut weights = [0; MOST_LEARNT + 1];
    let mut learnt = 0;
    while learnt <= MOST_LEARNT {
        weights[learnt] = 2 * ONE / (2 * learnt as u32 + 3);
        learnt += 1;
    }
    weights
};

/// Probability of a one after the bits so far.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BitModel {
    /// Probability of a one, as a part of 2¹⁶. It is never zero: the part that is taken away is rounded down.
    of_one: u16,
    learnt: u8,
}

impl BitModel {
    pub(crate) const EVEN: Self = Self { of_one: 1 << 15, learnt: 0 };

    const fn learn(&mut self, bit: bool) {
        let weight = WEIGHTS[self.learnt as usize];
        if bit {
            self.of_one += (((u16::MAX - self.of_one) as u32 * weight) / ONE) as u16;
        } else {
            self.of_one -= ((self.of_one as u32 * weight) / ONE) as u16;
        }
        if (self.learnt as usize) < MOST_LEARNT {
            self.learnt += 1;
        }
    }
}

/// The interval that the bits so far leave, by its first and its last number.
#[derive(Debug, Clone, Copy)]
struct CodeInterval {
    first: u32,
    last: u32,
}

impl CodeInterval {
    const ALL: Self = Self { first: 0, last: u32::MAX };

    /// Returns the last number of the lower part, which stands for a one.
    const fn divide(self, model: BitModel) -> u32 {
        let length = (self.last - self.first) as u64;
        // Less than the length, since the probability is below one.
        self.first + (length * model.of_one as u64 / ONE as u64) as u32
    }

    const fn take(&mut self, bit: bool, middle: u32) {
        if bit {
            self.last = middle;
        } else {
            self.first = middle + 1;
        }
    }

    /// Takes out the highest byte, if it is known.
    const fn shift(&mut self) -> Option<u8> {
        let byte = (self.first >> 24) as u8;
        if byte != (self.last >> 24) as u8 {
            return None;
        }
        self.first <<= 8;
        self.last = self.last << 8 | 0xff;
        Some(byte)
    }
}

/// Encodes bits.
#[derive(Debug)]
pub(crate) struct BitEncoder {
    interval: CodeInterval,
    bytes: Vec<u8>,
}

impl Default for BitEncoder {
    fn default() -> Self {
        Self { interval: CodeInterval::ALL, bytes: Vec::new() }
    }
}

impl BitEncoder {
    pub(crate) fn push(&mut self, bit: bool, model: &mut BitModel) {
        let middle = self.interval.divide(*model);
        self.interval.take(bit, middle);
        model.learn(bit);
        while let Some(byte) = self.interval.shift() {
            self.bytes.push(byte);
        }
    }

    /// Returns the size so far, in bytes.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Ends the code with the fewest bytes of a number in the interval, and returns it. A reader takes zeros
    /// for the bytes that follow.
    pub(crate) fn finish(&mut self) -> &[u8] {
        let CodeInterval { first, last } = self.interval;
        let within = |bytes: u32| {
            let step = 1_u64 << (32 - 8 * bytes);
            let number = u64::from(first).next_multiple_of(step);
            (number <= u64::from(last)).then_some((number, bytes))
        };
        // With four bytes each number is a multiple.
        if let Some((number, bytes)) = (0..=4).find_map(within) {
            self.bytes.extend_from_slice(&(number as u32).to_be_bytes()[..bytes as usize]);
        }
        self.interval = CodeInterval::ALL;
        &self.bytes
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.interval = CodeInterval::ALL;
    }
}

/// Decodes bits as [`BitEncoder`] wrote them.
#[derive(Debug)]
pub(crate) struct BitDecoder<'a> {
    interval: CodeInterval,
    number: u32,
    rest: &'a [u8],
}

impl<'a> BitDecoder<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        let mut decoder = Self { interval: CodeInterval::ALL, number: 0, rest: bytes };
        (0..4).for_each(|_| decoder.shift());
        decoder
    }

    pub(crate) fn take(&mut self, model: &mut BitModel) -> bool {
        let middle = self.interval.divide(*model);
        let bit = self.number <= middle;
        self.interval.take(bit, middle);
        model.learn(bit);
        while self.interval.shift().is_some() {
            self.shift();
        }
        bit
    }

    fn shift(&mut self) {
        let (byte, rest) = self.rest.split_first().map_or((0, self.rest), |(&byte, rest)| (byte, rest));
        (self.number, self.rest) = (self.number << 8 | u32::from(byte), rest);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn encoded(bits: &[(bool, usize)]) -> Vec<u8> {
        let mut models = [BitModel::EVEN; 3];
        let mut encoder = BitEncoder::default();
        bits.iter().for_each(|&(bit, model)| encoder.push(bit, &mut models[model]));
        encoder.finish().to_vec()
    }

    proptest! {
        #[test]
        fn bits_come_back(
            bits in prop::collection::vec((any::<bool>(), 0_usize..3), 0..3_000),
            certain in prop::collection::vec((Just(true), Just(0_usize)), 0..3_000),
        ) {
            let bits = [certain, bits].concat();
            let bytes = encoded(&bits);
            let mut models = [BitModel::EVEN; 3];
            let mut decoder = BitDecoder::new(&bytes);
            for (bit, model) in bits {
                prop_assert_eq!(decoder.take(&mut models[model]), bit);
            }
        }
    }

    #[test]
    fn certain_bits_cost_next_to_nothing_and_even_ones_a_bit() {
        let certain: Vec<_> = (0..100_000).map(|number: u32| (number % 1_000 == 999, 0)).collect();
        assert!(encoded(&certain).len() < 200, "{} bytes of 100,000 bits", encoded(&certain).len());
        let even = (0..8_000_u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 31 == 1, 1));
        let length = encoded(&even.collect::<Vec<_>>()).len();
        assert!((500..1_100).contains(&length), "{length} bytes of 8,000 bits");
        assert!(encoded(&[]).is_empty());
    }
}
