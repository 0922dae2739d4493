//! The time that a node takes to the first byte.

use std::collections::VecDeque;
use std::time::Duration;

use tidegate_units::{Instant, Latency};

use super::moving_average::SAMPLES;

/// The time from a transfer's request to its first byte, in one direction of a node: configured, or learnt.
///
/// The learnt time is measured by the last ten transfers themselves: their mean, and their mean deviation
/// from it as a margin. After [`MEMORY`](Self::MEMORY) without a transfer it is out of date, and a node that
/// was slow is tried again. Then, and before the first transfer, the sensor's value counts. The sensor knows
/// the node's devices, but neither the network nor the server in front of them. Without a sensor nothing is
/// known.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct FirstByte {
    said: Option<Latency>,
    seen: VecDeque<Latency>,
    last: Instant,
    sensed: Option<Latency>,
}

impl FirstByte {
    /// The time after which a slow node is tried again. It is much longer than ten samples of a sensor, and
    /// short enough to find out that a queue has gone.
    pub(super) const MEMORY: Duration = Duration::from_secs(60);

    pub(super) const fn new(said: Option<Latency>) -> Self {
        Self { said, seen: VecDeque::new(), last: Instant::ZERO, sensed: None }
    }

    /// Adds the time after which a transfer had its first byte.
    pub(super) fn add(&mut self, now: Instant, latency: Latency) {
        if self.seen.len() == SAMPLES {
            self.seen.pop_front();
        }
        self.seen.push_back(latency);
        self.last = now;
    }

    /// Sets the sensor's present value; `None` if the sensor knows nothing, or is silent.
    pub(super) const fn sense(&mut self, latency: Option<Latency>) {
        self.sensed = latency;
    }

    /// Returns the time that the next transfer has to expect; `None` if nothing is known.
    pub(super) fn get(&self, now: Instant) -> Option<Latency> {
        if self.said.is_some() {
            return self.said;
        }
        if self.seen.is_empty() || now.saturating_since(self.last) > Self::MEMORY {
            return self.sensed;
        }
        let of = |number: f64| number / self.seen.len() as f64;
        let mean = of(self.seen.iter().map(|one| one.as_secs_f64()).sum());
        let deviation = of(self.seen.iter().map(|one| (one.as_secs_f64() - mean).abs()).sum());
        Some(Latency::from_secs_f64(mean + deviation))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const fn ms(millis: u64) -> Latency {
        Latency::from_millis(millis)
    }

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn what_transfers_saw_counts_before_what_a_sensor_says_and_not_for_ever() {
        let mut first = FirstByte::new(None);
        assert_eq!(first.get(at(0)), None, "nothing measured is not at once");
        first.sense(Some(ms(4)));
        assert_eq!(first.get(at(0)), Some(ms(4)));
        first.add(at(1), ms(100));
        first.add(at(1), ms(200));
        assert_eq!(first.get(at(1)), Some(ms(200)), "150 ms, and 50 of deviation");
        assert_eq!(first.get(at(61)), Some(ms(200)));
        assert_eq!(first.get(at(62)), Some(ms(4)));
        first.sense(None);
        assert_eq!(first.get(at(62)), None);
    }

    #[test]
    fn what_was_said_stays() {
        let mut first = FirstByte::new(Some(ms(10)));
        first.add(at(1), ms(500));
        first.sense(Some(ms(1)));
        assert_eq!(first.get(at(1)), Some(ms(10)));
    }

    proptest! {
        #[test]
        fn it_is_between_the_least_and_twice_the_greatest_of_the_last_ten(
            seen in prop::collection::vec(0..100_000u64, 1..30),
        ) {
            let mut first = FirstByte::new(None);
            seen.iter().for_each(|&millis| first.add(at(1), ms(millis)));
            let last = &seen[seen.len().saturating_sub(SAMPLES)..];
            let predicted = first.get(at(1)).unwrap();
            // To a microsecond, as sums of fractions are.
            let slack = Latency::from_micros(1);
            prop_assert!(predicted.saturating_add(slack) >= ms(*last.iter().min().unwrap()));
            prop_assert!(predicted <= ms(2 * last.iter().max().unwrap()).saturating_add(slack));
        }
    }
}
