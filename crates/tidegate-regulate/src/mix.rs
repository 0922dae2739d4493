//! The division of a rate among reads and writes. The kernel limits these one by one, and in requests only
//! roughly: what they come to in bytes is limited, too.

use std::time::Duration;

use tidegate_host::cgroup::{IoCounters, IoLimit};
use tidegate_units::{ByteRate, Bytes, Iops};

use super::super::pace::{bytes, remembered};

/// The time constant with which reads and writes are forgotten. It is within a few intervals of a law, so
/// that a cgroup that turns from reading to writing has its rate again soon.
const RECENT: Duration = Duration::from_secs(1);

/// The least part of its rate that each direction has, whatever was done lately. Without it a cgroup that
/// begins to write would not be seen. All together exceed the rate by no more than this.
const LEAST: f64 = 1.0 / 16.0;

/// Nobody does so many to a device in a second: the kernel is not bothered with such a limit.
const UNFELT: f64 = 1e8;

/// The recent load of one cgroup, weighted by age.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Mix {
    reads: Done,
    writes: Done,
}

/// In one direction.
#[derive(Debug, Clone, Copy, Default)]
struct Done {
    count: f64,
    bytes: f64,
    /// For how long nothing has completed.
    silent: Duration,
}

impl Mix {
    pub(super) fn observe(&mut self, elapsed: Duration, done: IoCounters) {
        self.reads.wait(elapsed, done.reads);
        self.writes.wait(elapsed, done.writes);
        // Who does nothing for a while goes on as before.
        if done.reads + done.writes == 0 {
            return;
        }
        let keep = remembered(elapsed, RECENT);
        self.reads.add(keep, done.reads, done.read);
        self.writes.add(keep, done.writes, done.written);
    }

    /// The limit by which no more than a rate is done, where the proportion, and how large each is, stay what
    /// they were. While nothing is known of that, each direction has all.
    pub(super) fn limit(self, rate: Iops) -> IoLimit {
        if rate.per_second() >= UNFELT {
            return IoLimit::NONE;
        }
        let all = self.reads.count + self.writes.count;
        let of = |done: Done| {
            let part = if all > 0.0 { (done.count / all).max(LEAST) } else { 1.0 };
            Iops::new(rate.per_second() * part)
        };
        let (reads, writes) = (of(self.reads), of(self.writes));
        let limit = IoLimit::NONE.reads(reads).writes(writes);
        let limit = self.reads.bytes_of(reads).map_or(limit, |bytes| limit.read_bytes(bytes));
        self.writes.bytes_of(writes).map_or(limit, |bytes| limit.write_bytes(bytes))
    }
}

impl Done {
    fn add(&mut self, keep: f64, count: u64, bytes: Bytes) {
        self.count = keep * self.count + count as f64;
        self.bytes = keep * self.bytes + bytes.get() as f64;
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

    use super::*;

    const STEP: Duration = Duration::from_millis(100);

    const SIZE: u64 = 4096;

    fn done(reads: u64, writes: u64) -> IoCounters {
        IoCounters { reads, writes, read: Bytes::new(reads * SIZE), written: Bytes::new(writes * SIZE) }
    }

    /// Returns the rates at which reads and writes of that size are let through.
    fn limits(mix: Mix, rate: f64) -> (f64, f64) {
        let limit = mix.limit(Iops::new(rate));
        let lower = |rate: Iops, bytes: Option<ByteRate>| {
            bytes.map_or(rate.per_second(), |bytes| rate.per_second().min(bytes.per_second() / SIZE as f64))
        };
        let reads = lower(limit.read_rate().unwrap(), limit.read_byte_rate());
        (reads, lower(limit.write_rate().unwrap(), limit.write_byte_rate()))
    }

    #[test]
    fn each_direction_has_its_part_and_a_little() {
        let mut mix = Mix::default();
        assert_eq!(limits(mix, 160.0), (160.0, 160.0));
        mix.observe(STEP, done(30, 0));
        assert_eq!(limits(mix, 160.0), (160.0, 10.0));
        for _ in 0..100 {
            mix.observe(STEP, done(30, 10));
        }
        let (reads, writes) = limits(mix, 160.0);
        assert!((reads - 120.0).abs() <= 0.1 && (writes - 40.0).abs() <= 0.1, "{reads} {writes}");
        assert_eq!(mix.limit(Iops::new(1e9)), IoLimit::NONE);
    }

    /// Held at 2 IO/s after requests of 4 KiB, a program that is paged in by 1 MiB would wait for minutes.
    #[test]
    fn silence_teaches_nothing_of_the_mix_and_leaves_room_for_larger_requests() {
        let mut mix = Mix::default();
        mix.observe(STEP, done(10, 0));
        let rate = Iops::new(2.0);
        let known = mix.limit(rate);
        let (mut let_through, mut waited) = (0.0, 0);
        while let_through < 1_048_576.0 {
            mix.observe(STEP, done(0, 0));
            let_through += mix.limit(rate).read_byte_rate().unwrap().per_second() * STEP.as_secs_f64();
            waited += 1;
        }
        assert!((10..=21).contains(&waited), "{waited} tenths of a second");
        assert_eq!(mix.limit(rate).read_rate(), known.read_rate());
        mix.observe(STEP, done(1, 0));
        assert_eq!(mix.limit(rate), known);
    }

    #[test]
    fn what_is_less_than_the_kernel_counts_is_exact_in_bytes() {
        let mut mix = Mix::default();
        mix.observe(STEP, done(0, 30));
        let (_, writes) = limits(mix, 18.8);
        assert!((writes - 18.8).abs() < 0.01, "{writes}");
    }

    /// Somebody with work for both, who turns from reading to writing: what is done is what the limits let
    /// pass.
    #[test]
    fn who_turns_to_writing_has_the_rate_again_within_seconds() {
        let mut mix = Mix::default();
        mix.observe(STEP, done(100, 0));
        let mut writes = 0.0;
        for _ in 0..50 {
            (_, writes) = limits(mix, 160.0);
            mix.observe(STEP, done(0, (writes * STEP.as_secs_f64()).round() as u64));
        }
        assert!(writes > 150.0, "{writes}");
    }

    proptest! {
        #[test]
        fn both_together_are_never_far_above_the_rate(
            seen in prop::collection::vec((0..10_000_u64, 0..10_000_u64, 0..5_u32), 1..20), rate in 1.0..1e6,
        ) {
            let mut mix = Mix::default();
            mix.observe(STEP, done(1, 1));
            for (reads, writes, steps) in seen {
                mix.observe(STEP * steps, done(reads, writes));
            }
            let (reads, writes) = limits(mix, rate);
            // The kernel counts requests by tens, and a direction that is silent has no other limit in the
            // end.
            prop_assert!(reads + writes <= rate * (1.0 + LEAST) + 20.0, "{} {}", reads, writes);
            prop_assert!(reads + writes >= rate * (1.0 - 1e-9) && reads.min(writes) >= rate * LEAST - 1e-6);
        }
    }
}
