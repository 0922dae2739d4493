//! The division of a rate among reads and writes. Kernels limit these one by one, and in requests only
//! roughly: the bytes that they come to are limited, too.

use std::time::Duration;

use tidegate_control::OperationTotals;
use tidegate_units::{ByteRate, Iops};

use crate::limit::{DirectionLimits, RateLimit};
use crate::pace::{bytes, remembered};

/// The time constant with which reads and writes are forgotten. It is within a few intervals of a law, so
/// that a cgroup that turns from reading to writing has its rate again soon.
const RECENT: Duration = Duration::from_secs(1);

/// The least part of its rate that each direction has, whatever was done lately. Without it a cgroup that
/// begins to write would not be seen. All together exceed the rate by no more than this.
const LEAST: f64 = 1.0 / 16.0;

/// No device completes so many requests in a second: such a limit is none.
const UNFELT: f64 = 1e8;

/// The proportion of reads and writes in the recent load of one consumer, weighted by age.
#[derive(Debug, Clone, Copy, Default)]
pub struct DirectionMix {
    reads: RecentLoad,
    writes: RecentLoad,
}

/// The recent load in one direction.
#[derive(Debug, Clone, Copy, Default)]
struct RecentLoad {
    count: f64,
    bytes: f64,
    /// For how long nothing has completed.
    silent: Duration,
}

impl DirectionMix {
    /// Takes the requests of some time: their numbers and their bytes.
    pub fn observe(&mut self, elapsed: Duration, reads: &OperationTotals, writes: &OperationTotals) {
        self.reads.wait(elapsed, reads.count);
        self.writes.wait(elapsed, writes.count);
        // A consumer that does nothing for a while goes on as before.
        if reads.count == 0 && writes.count == 0 {
            return;
        }
        let keep = remembered(elapsed, RECENT);
        self.reads.add(keep, reads);
        self.writes.add(keep, writes);
    }

    /// Returns the limits by which no more than a rate is done, where the proportion of the directions and
    /// the sizes of requests stay what they were. While nothing is known of that, each direction has all.
    /// `None` for a rate that no device reaches.
    #[must_use]
    pub fn limits(self, rate: Iops) -> Option<DirectionLimits> {
        if rate.per_second() >= UNFELT {
            return None;
        }
        let all = self.reads.count + self.writes.count;
        let limit = |recent: RecentLoad| {
            let part = if all > 0.0 { (recent.count / all).max(LEAST) } else { 1.0 };
            let requests = Iops::new(rate.per_second() * part);
            RateLimit { requests, bytes: recent.bytes_of(requests) }
        };
        Some(DirectionLimits { reads: limit(self.reads), writes: limit(self.writes) })
    }
}

impl RecentLoad {
    fn add(&mut self, keep: f64, done: &OperationTotals) {
        self.count = keep * self.count + done.count as f64;
        self.bytes = keep * self.bytes + done.bytes.get() as f64;
    }

    fn wait(&mut self, elapsed: Duration, count: u64) {
        self.silent = if count > 0 { Duration::ZERO } else { self.silent.saturating_add(elapsed) };
    }

    /// Returns the limit in bytes that a rate comes to; `None` where the size of requests is not known.
    fn bytes_of(self, rate: Iops) -> Option<ByteRate> {
        let size = self.bytes / self.count;
        (size.is_finite() && size > 0.0).then(|| bytes(rate, size, self.silent))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use tidegate_units::Bytes;

    use super::*;

    const STEP: Duration = Duration::from_millis(100);

    const SIZE: u64 = 4096;

    fn done(count: u64) -> OperationTotals {
        OperationTotals { count, bytes: Bytes::new(count * SIZE), ..OperationTotals::default() }
    }

    fn observe(mix: &mut DirectionMix, elapsed: Duration, reads: u64, writes: u64) {
        mix.observe(elapsed, &done(reads), &done(writes));
    }

    /// Returns the rates at which reads and writes of that size are let through.
    fn limits(mix: DirectionMix, rate: f64) -> (f64, f64) {
        let limits = mix.limits(Iops::new(rate)).unwrap();
        let lower = |RateLimit { requests, bytes }| {
            let bytes = bytes.map_or(f64::INFINITY, |bytes: ByteRate| bytes.per_second() / SIZE as f64);
            requests.per_second().min(bytes)
        };
        (lower(limits.reads), lower(limits.writes))
    }

    #[test]
    fn each_direction_has_its_part_and_a_little() {
        let mut mix = DirectionMix::default();
        assert_eq!(limits(mix, 160.0), (160.0, 160.0));
        observe(&mut mix, STEP, 30, 0);
        assert_eq!(limits(mix, 160.0), (160.0, 10.0));
        for _ in 0..100 {
            observe(&mut mix, STEP, 30, 10);
        }
        let (reads, writes) = limits(mix, 160.0);
        assert!((reads - 120.0).abs() <= 0.1 && (writes - 40.0).abs() <= 0.1, "{reads} {writes}");
        assert_eq!(mix.limits(Iops::new(1e9)), None);
    }

    /// Throttled to 2 IO/s after requests of 4 KiB, a program that is paged in by 1 MiB would wait for
    /// minutes.
    #[test]
    fn silence_teaches_nothing_of_the_mix_and_leaves_room_for_larger_requests() {
        let mut mix = DirectionMix::default();
        observe(&mut mix, STEP, 10, 0);
        let rate = Iops::new(2.0);
        let known = mix.limits(rate).unwrap();
        let (mut let_through, mut waited) = (0.0, 0);
        while let_through < 1_048_576.0 {
            observe(&mut mix, STEP, 0, 0);
            let reads = mix.limits(rate).unwrap().reads;
            let_through += reads.bytes.unwrap().per_second() * STEP.as_secs_f64();
            waited += 1;
        }
        assert!((10..=21).contains(&waited), "{waited} tenths of a second");
        assert_eq!(mix.limits(rate).unwrap().reads.requests, known.reads.requests);
        observe(&mut mix, STEP, 1, 0);
        assert_eq!(mix.limits(rate), Some(known));
    }

    #[test]
    fn the_bytes_of_a_rate_are_exact() {
        let mut mix = DirectionMix::default();
        observe(&mut mix, STEP, 0, 30);
        let (_, writes) = limits(mix, 18.8);
        assert!((writes - 18.8).abs() < 0.01, "{writes}");
    }

    /// A consumer with work for both directions that turns from reading to writing: it does what the limits
    /// let pass.
    #[test]
    fn a_consumer_that_turns_to_writing_has_the_rate_again_within_seconds() {
        let mut mix = DirectionMix::default();
        observe(&mut mix, STEP, 100, 0);
        let mut writes = 0.0;
        for _ in 0..50 {
            (_, writes) = limits(mix, 160.0);
            observe(&mut mix, STEP, 0, (writes * STEP.as_secs_f64()).round() as u64);
        }
        assert!(writes > 150.0, "{writes}");
    }

    proptest! {
        #[test]
        fn both_together_are_never_far_above_the_rate(
            seen in prop::collection::vec((0..10_000_u64, 0..10_000_u64, 0..5_u32), 1..20), rate in 1.0..1e6,
        ) {
            let mut mix = DirectionMix::default();
            observe(&mut mix, STEP, 1, 1);
            for (reads, writes, steps) in seen {
                observe(&mut mix, STEP * steps, reads, writes);
            }
            let (reads, writes) = limits(mix, rate);
            prop_assert!(reads + writes <= rate * (1.0 + LEAST) + 1e-6, "{} {}", reads, writes);
            prop_assert!(reads + writes >= rate * (1.0 - 1e-9) && reads.min(writes) >= rate * LEAST - 1e-6);
        }
    }
}
