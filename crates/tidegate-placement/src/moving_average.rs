//! The mean of the last samples.

use std::collections::VecDeque;

use tidegate_units::ByteRate;

/// The number of samples that a moving average holds (Nikolow eq. 2: "the last 10 transfer rate
/// measurements").
pub const SAMPLES: usize = 10;

/// The mean of the last [`SAMPLES`] rates; of fewer while there are fewer.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct MovingAverage(VecDeque<ByteRate>);

impl MovingAverage {
    /// Adds a rate. The oldest of more than [`SAMPLES`] is forgotten.
    pub fn add(&mut self, rate: ByteRate) {
        if self.0.len() == SAMPLES {
            self.0.pop_front();
        }
        self.0.push_back(rate);
    }

    /// The mean; `None` before the first sample.
    #[must_use]
    pub fn get(&self) -> Option<ByteRate> {
        let sum: f64 = self.0.iter().map(|rate| rate.per_second()).sum();
        (!self.0.is_empty()).then(|| ByteRate::new(sum / self.0.len() as f64))
    }

    /// The last sample.
    #[must_use]
    pub fn last(&self) -> Option<ByteRate> {
        self.0.back().copied()
    }

    /// Returns true if there are [`SAMPLES`] of them.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.0.len() == SAMPLES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_ten_count() {
        let mut average = MovingAverage::default();
        assert_eq!((average.get(), average.last()), (None, None), "nothing measured is not nothing moved");
        average.add(ByteRate::new(1000.0));
        assert_eq!(average.get(), Some(ByteRate::new(1000.0)));
        for _ in 0..9 {
            average.add(ByteRate::ZERO);
        }
        assert!(average.is_full());
        assert_eq!(average.get(), Some(ByteRate::new(100.0)));
        average.add(ByteRate::ZERO);
        assert_eq!(average.get(), Some(ByteRate::ZERO));
    }
}
