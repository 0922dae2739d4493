//! The promises to a transfer.

use tidegate_units::{ByteRate, Latency};

use super::moving_average::MovingAverage;

/// The service that a transfer needs of the node that carries it (Nikolow §III.A: "several types of transfer
/// rate can be specified").
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum TransferRequirement {
    /// All of it divided by all of its time.
    Average(ByteRate),
    /// The mean of any ten samples that follow each other: no pause for longer.
    MovingAverage(ByteRate),
    /// Every sample, for an instrument without a buffer.
    Current(ByteRate),
    /// From the request to the first byte.
    Latency(Latency),
}

impl TransferRequirement {
    /// The bandwidth that it takes; zero if only the first byte counts.
    #[must_use]
    pub const fn rate(&self) -> ByteRate {
        match self {
            Self::Average(rate) | Self::MovingAverage(rate) | Self::Current(rate) => *rate,
            Self::Latency(_) => ByteRate::ZERO,
        }
    }
}

/// The record of a transfer's rates and latency: tells whether it gets what it was promised, so far.
#[derive(Debug, Clone, PartialEq)]
pub struct RateRecord {
    requirement: TransferRequirement,
    window: MovingAverage,
    bytes: f64,
    seconds: f64,
    latency: Option<Latency>,
    /// A sample or a mean of ten was below.
    missed: bool,
}

impl RateRecord {
    /// Makes the record of a transfer that has not begun.
    #[must_use]
    pub fn new(requirement: TransferRequirement) -> Self {
        Self {
            requirement,
            window: MovingAverage::default(),
            bytes: 0.0,
            seconds: 0.0,
            latency: None,
            missed: false,
        }
    }

    /// Takes the time from the request to the first byte.
    pub fn began(&mut self, after: Latency) {
        self.latency = Some(after);
    }

    /// Adds a sample: this many bytes in this many seconds. A sample without time says nothing.
    pub fn add(&mut self, bytes: f64, seconds: f64) {
        if !(seconds > 0.0 && bytes >= 0.0) {
            return;
        }
        self.bytes += bytes;
        self.seconds += seconds;
        let rate = ByteRate::new(bytes / seconds);
        self.window.add(rate);
        self.missed |= match self.requirement {
            TransferRequirement::Current(asked) => rate < asked,
            TransferRequirement::MovingAverage(asked) => {
                self.window.is_full() && self.window.get().is_some_and(|mean| mean < asked)
            }
            TransferRequirement::Average(_) | TransferRequirement::Latency(_) => false,
        };
    }

    /// Its rate over all of its time; `None` before the first sample.
    #[must_use]
    pub fn average(&self) -> Option<ByteRate> {
        (self.seconds > 0.0).then(|| ByteRate::new(self.bytes / self.seconds))
    }

    /// Returns true if the promise was kept until now; `None` while nothing is known.
    #[must_use]
    pub fn is_kept(&self) -> Option<bool> {
        match self.requirement {
            TransferRequirement::Average(asked) => Some(self.average()? >= asked),
            // Fewer than ten samples, all there will be of a short transfer, are judged by their own mean.
            TransferRequirement::MovingAverage(asked) => {
                let short = !self.window.is_full() && self.window.get()? < asked;
                Some(!self.missed && !short)
            }
            TransferRequirement::Current(_) => self.average().map(|_| !self.missed),
            TransferRequirement::Latency(asked) => Some(self.latency? <= asked),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(requirement: TransferRequirement, rates: &[f64]) -> Option<bool> {
        let mut kept = RateRecord::new(requirement);
        for rate in rates {
            kept.add(*rate, 1.0);
        }
        kept.is_kept()
    }

    #[test]
    fn each_kind_of_rate_is_judged_by_its_own_measure() {
        let ten = ByteRate::new(10.0);
        let mut pause = vec![20.0; 12];
        pause[3] = 0.0;
        assert_eq!(kept(TransferRequirement::Average(ten), &pause), Some(true));
        assert_eq!(kept(TransferRequirement::MovingAverage(ten), &pause), Some(true));
        assert_eq!(kept(TransferRequirement::Current(ten), &pause), Some(false), "a pause is below any rate");

        let mut slow = vec![40.0; 30];
        slow[10..20].fill(5.0);
        assert_eq!(kept(TransferRequirement::Average(ten), &slow), Some(true));
        assert_eq!(
            kept(TransferRequirement::MovingAverage(ten), &slow),
            Some(false),
            "for ten samples it was slow"
        );

        assert_eq!(
            kept(TransferRequirement::MovingAverage(ten), &[9.0, 9.0]),
            Some(false),
            "a short transfer is judged, too"
        );
        assert_eq!(kept(TransferRequirement::MovingAverage(ten), &[9.0, 12.0]), Some(true));
    }

    #[test]
    fn nothing_measured_is_unknown() {
        for requirement in [
            TransferRequirement::Average(ByteRate::ZERO),
            TransferRequirement::MovingAverage(ByteRate::ZERO),
            TransferRequirement::Current(ByteRate::ZERO),
            TransferRequirement::Latency(Latency::MAX),
        ] {
            assert_eq!(kept(requirement, &[]), None);
        }
        let mut nothing = RateRecord::new(TransferRequirement::Average(ByteRate::ZERO));
        nothing.add(f64::NAN, 1.0);
        nothing.add(1.0, 0.0);
        assert_eq!(nothing.is_kept(), None);
    }

    #[test]
    fn a_latency_is_that_of_the_first_byte() {
        let mut kept = RateRecord::new(TransferRequirement::Latency(Latency::from_millis(20)));
        kept.add(1.0, 1.0);
        assert_eq!(kept.is_kept(), None);
        kept.began(Latency::from_millis(21));
        assert_eq!(kept.is_kept(), Some(false));
    }
}
