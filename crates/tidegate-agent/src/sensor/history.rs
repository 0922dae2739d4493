//! The recent load of a storage system.

use std::collections::VecDeque;
use std::time::Duration;

use tidegate_host::sense::{StorageLane, StorageSample};
use tidegate_placement::{MovingAverage, NodePeak, SAMPLES};
use tidegate_transfer::sensor_reports::SensedLane;
use tidegate_units::{ByteRate, Latency};

/// Peak, current and moving-average rates, and the response time, of both directions (Nikolow §IV.A: what a
/// monitoring daemon gathers).
#[derive(Debug, Default)]
pub(super) struct NodeHistory {
    read: Lane,
    write: Lane,
}

#[derive(Debug)]
struct Lane {
    current: Option<ByteRate>,
    average: MovingAverage,
    peak: NodePeak,
    /// The response times of the samples of the average; `None` for a sample without requests.
    latencies: VecDeque<Option<Latency>>,
}

impl Default for Lane {
    fn default() -> Self {
        Self {
            current: None,
            average: MovingAverage::default(),
            peak: NodePeak::learnt(ByteRate::ZERO),
            latencies: VecDeque::new(),
        }
    }
}

impl NodeHistory {
    /// Adds a measurement over a time.
    pub(super) fn add(&mut self, elapsed: Duration, sample: &StorageSample) {
        self.read.add(elapsed, sample.read);
        self.write.add(elapsed, sample.write);
    }

    /// Both directions now, reads first.
    pub(super) fn lanes(&self) -> [SensedLane; 2] {
        [self.read.now(), self.write.now()]
    }
}

impl Lane {
    fn add(&mut self, elapsed: Duration, sample: StorageLane) {
        self.current = sample.rate;
        match sample.rate {
            Some(rate) => {
                self.average.add(rate);
                // At rest it shows nothing of what it can.
                if rate > ByteRate::ZERO {
                    self.peak.observe(rate, elapsed);
                }
            }
            // A mean of samples that do not follow each other would be none of the last ten.
            None => self.average = MovingAverage::default(),
        }
        if self.latencies.len() == SAMPLES {
            self.latencies.pop_front();
        }
        self.latencies.push_back(sample.latency);
    }

    fn now(&self) -> SensedLane {
        let known = || self.latencies.iter().flatten();
        let sum: f64 = known().map(|one| one.as_secs_f64()).sum();
        let peak = self.peak.get().per_second();
        SensedLane {
            current_bps: self.current.map(ByteRate::per_second),
            moving_average_bps: self.average.get().map(ByteRate::per_second),
            peak_bps: (peak > 0.0).then_some(peak),
            latency_s: (known().count() > 0).then(|| sum / known().count() as f64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn wrote(rate: Option<f64>, millis: Option<u64>) -> StorageSample {
        let lane = StorageLane { rate: rate.map(ByteRate::new), latency: millis.map(Latency::from_millis) };
        StorageSample { write: lane, ..StorageSample::default() }
    }

    #[test]
    fn nothing_is_said_of_what_is_not_known() {
        let mut history = NodeHistory::default();
        history.add(SECOND, &StorageSample::default());
        assert_eq!(history.lanes(), [SensedLane::default(); 2]);
        history.add(SECOND, &wrote(Some(0.0), None));
        let [read, write] = history.lanes();
        assert_eq!(read, SensedLane::default());
        let idle =
            SensedLane { current_bps: Some(0.0), moving_average_bps: Some(0.0), ..SensedLane::default() };
        assert_eq!(write, idle, "idle has a rate, and neither a peak nor a response time");
    }

    #[test]
    fn the_last_ten_samples_count_and_the_greatest_is_the_peak() {
        let mut history = NodeHistory::default();
        history.add(SECOND, &wrote(Some(100.0), Some(90)));
        for _ in 0..8 {
            history.add(SECOND, &wrote(Some(0.0), None));
        }
        history.add(SECOND, &wrote(Some(50.0), Some(10)));
        let [_, write] = history.lanes();
        assert_eq!((write.current_bps, write.moving_average_bps), (Some(50.0), Some(15.0)));
        assert!((write.latency_s.unwrap() - 0.05).abs() < 1e-9);
        assert!((99.9..=100.0).contains(&write.peak_bps.unwrap()), "it ages, in hours");
        history.add(SECOND, &wrote(Some(50.0), Some(10)));
        let [_, write] = history.lanes();
        assert_eq!(write.moving_average_bps, Some(10.0));
        assert!((write.latency_s.unwrap() - 0.01).abs() < 1e-9);
        history.add(SECOND, &wrote(None, None));
        let [_, write] = history.lanes();
        assert_eq!((write.current_bps, write.moving_average_bps), (None, None));
        assert!(write.peak_bps.is_some());
    }
}
