//! Measurements of the law `auto`, gathered until they say enough.

use serde::{Deserialize, Serialize};

use crate::document::observation::ConsumerObservation;
use crate::estimate::signal_samples::throttled;
use crate::law::control_law::ControlInterval;

/// Requests of the signal that make an epoch. Chosen: their mean has a counting error of 26 %. With 30, disks
/// that serve 64 reads per second swung by themselves before the law answered.
const ENOUGH: f64 = 15.0;

/// Requests that make an epoch of storage that completes few, after [`PATIENCE`] and two set points.
const FEW: f64 = 8.0;
const PATIENCE: f64 = 1.0;

/// An epoch ends after so many seconds, whatever it has: no wait is without a deadline.
const DEADLINE: f64 = 10.0;

/// The load over a stretch of time. Times are in seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Measurement {
    /// Its length.
    pub(super) seconds: f64,
    /// Requests of the signal, and the sum of their latencies.
    pub(super) count: f64,
    pub(super) total: f64,
    /// Requests of the eligible consumers, those that write, and the sum of the latencies of all.
    pub(super) eligible: f64,
    pub(super) writes: f64,
    pub(super) busy: f64,
    /// The sum of the latencies of those that write.
    pub(super) writing: f64,
    /// Seconds in which eligible requests waited for the window.
    pub(super) waited: f64,
}

impl Measurement {
    /// The measurement of one control interval.
    pub(super) fn of(interval: &ControlInterval<'_>) -> Self {
        let seconds = interval.elapsed.as_secs_f64();
        let Some(load) = interval.load else { return Self::of_host(interval.consumers, seconds) };
        Self {
            seconds,
            eligible: load.iops.per_second() * seconds,
            writes: load.writes.per_second() * seconds,
            busy: load.outstanding.get() * seconds,
            writing: load.writing.get() * seconds,
            waited: load.waiting * seconds,
            ..Self::default()
        }
    }

    /// The measurement of this host's consumers.
    pub(super) fn of_host(consumers: &[ConsumerObservation], seconds: f64) -> Self {
        let mut measured = Self { seconds, ..Self::default() };
        for consumer in throttled(consumers) {
            measured.eligible += consumer.reads.count as f64 + consumer.writes.count as f64;
            measured.writes += consumer.writes.count as f64;
            measured.busy += busy(consumer);
            measured.writing += consumer.writes.total_latency.as_secs_f64();
            if consumer.queued > 0 {
                measured.waited = seconds;
            }
        }
        measured
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.seconds += other.seconds;
        self.count += other.count;
        self.total += other.total;
        self.eligible += other.eligible;
        self.writes += other.writes;
        self.busy += other.busy;
        self.writing += other.writing;
        self.waited += other.waited;
    }

    /// Takes away a part of all that was measured.
    pub(super) fn fade(&mut self, remaining: f64) {
        for part in [
            &mut self.seconds,
            &mut self.count,
            &mut self.total,
            &mut self.eligible,
            &mut self.writes,
            &mut self.busy,
            &mut self.writing,
            &mut self.waited,
        ] {
            *part *= remaining;
        }
    }

    /// The mean latency of the signal; zero without requests.
    pub(super) fn mean(&self) -> f64 {
        if self.count > 0.0 { self.total / self.count } else { 0.0 }
    }

    /// The mean number of eligible requests at the storage, by Little's law.
    pub(super) fn outstanding(&self) -> f64 {
        if self.seconds > 0.0 { self.busy / self.seconds } else { 0.0 }
    }

    /// The eligible requests completed per second.
    pub(super) fn iops(&self) -> f64 {
        if self.seconds > 0.0 { self.eligible / self.seconds } else { 0.0 }
    }

    /// The part of the eligible requests that write.
    pub(super) fn write_part(&self) -> f64 {
        if self.eligible > 0.0 { self.writes / self.eligible } else { 0.0 }
    }

    /// Returns true if eligible requests waited for most of the time.
    pub(super) fn is_backlogged(&self) -> bool {
        self.waited > 0.5 * self.seconds
    }

    /// Returns true if it says enough to decide by, for a latency that is to be `goal`.
    pub(super) fn is_enough(&self, goal: f64) -> bool {
        // At least as long as a response takes: what was dispatched in it is then a part of it.
        self.seconds >= self.mean().min(DEADLINE)
            && (self.count >= ENOUGH
                || (self.count >= FEW && self.seconds >= PATIENCE + 2.0 * goal)
                || self.seconds >= DEADLINE)
    }
}

fn busy(consumer: &ConsumerObservation) -> f64 {
    consumer.reads.total_latency.as_secs_f64() + consumer.writes.total_latency.as_secs_f64()
}
