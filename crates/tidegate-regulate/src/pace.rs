//! The rate that a delay comes to, for the throttles `rate` and `cgroup`.
//!
//! The law's output is a delay, and these throttle by a limit. `rate` limits the writes to a device, `cgroup`
//! all requests of a cgroup to it. Writers keep n requests outstanding; each takes s at the device and waits
//! for d before. By Little's law n/(s + d) of them complete per second: limited to that rate, they wait for
//! d. The time s can always be seen, the number n only while no consumer is throttled: then requests take no
//! longer than s. The wait in front of the device is in no counter, so that n stays what it was when the
//! throttling began.
//!
//! The present s matters: when less is written the device answers sooner, and the same delay comes to a
//! higher rate. With the s from before the throttling, a millisecond more would decide between a full queue
//! and an empty one. A rate that the device cannot quite sustain fills its queue in the end as surely as no
//! limit. With the present s the law finds the process that its gains are made for. Its response time falls
//! by as much as the delay grows.

use std::time::Duration;

use tidegate_control::{MeanOutstanding, OperationTotals};
use tidegate_units::{ByteRate, Iops, Latency};

use crate::limit::RateLimit;

/// The time constant with which the duration and the size of writes are forgotten: that of the law's own
/// signal.
const RECENT: Duration = Duration::from_millis(200);

/// The time constant with which the number of outstanding requests is forgotten. A greater number is believed
/// at once. A number that is too great costs some more delay, which the law adds. One that is too small costs
/// throughput, which returns only with a release.
const FREE: Duration = Duration::from_secs(1);

/// For so long there must have been writes: a queue that is still filling is taken for a short one.
const LEARNS: Duration = Duration::from_millis(300);

/// Time without a write after which the learnt load no longer counts.
const SILENCE: Duration = Duration::from_secs(2);

/// The time in which a limit in bytes doubles while nothing completes. Consumers that turn to larger requests
/// wait for a limit made for smaller ones, and nothing completes from which that could be learnt. The limit
/// begins to double after twice the time between two requests that it allows. It doubles up to ten times, to
/// 1024 times its size.
const DOUBLES: Duration = Duration::from_millis(100);

/// The writes to one device, and the limit that a delay of each of them comes to.
#[derive(Debug, Clone, Default)]
pub struct WritePace {
    /// The number of recent writes that have completed, weighted by age. Their seconds at the device and
    /// their bytes follow.
    count: f64,
    seconds: f64,
    bytes: f64,
    /// The number of requests outstanding lately while no consumer was throttled.
    free: f64,
    /// For how long there were writes, and since when there are none.
    writing: Duration,
    silent: Duration,
    limited: bool,
}

impl WritePace {
    /// Takes what was written in some time. Returns the seconds, all together, that writes waited in front of
    /// the device meanwhile: none while no consumer is throttled.
    pub fn observe(&mut self, elapsed: Duration, writes: &OperationTotals) -> f64 {
        let time = elapsed.as_secs_f64();
        if elapsed.is_zero() {
            return 0.0;
        }
        let (count, seconds) = (writes.count as f64, writes.total_latency.as_secs_f64());
        if writes.count > 0 {
            let keep = remembered(elapsed, RECENT);
            self.count = keep * self.count + count;
            self.seconds = keep * self.seconds + seconds;
            self.bytes = keep * self.bytes + writes.bytes.get() as f64;
            self.silent = Duration::ZERO;
        } else {
            self.silent = self.silent.saturating_add(elapsed);
        }
        if self.limited {
            return (self.free * time - seconds).max(0.0);
        }
        let outstanding = seconds / time;
        let keep = remembered(elapsed, FREE);
        self.free = (keep * self.free + (1.0 - keep) * outstanding).max(outstanding);
        if writes.count > 0 {
            self.writing = self.writing.saturating_add(elapsed);
        } else if self.silent >= SILENCE {
            self.writing = Duration::ZERO;
        }
        0.0
    }

    /// Returns the limit that a delay comes to; `None` for no delay, and as long as too little is known.
    pub fn limit(&mut self, delay: Latency, floor: Iops) -> Option<RateLimit> {
        let requests = self.rate(delay, floor)?;
        Some(RateLimit { requests, bytes: Some(bytes(requests, self.bytes / self.count, self.silent)) })
    }

    /// Returns the same, in requests alone.
    pub fn rate(&mut self, delay: Latency, floor: Iops) -> Option<Iops> {
        let known = self.limited || self.writing >= LEARNS;
        self.limited = known && delay > Latency::ZERO;
        self.limited.then(|| {
            let takes = Latency::from_secs_f64(self.seconds / self.count);
            rate(MeanOutstanding::new(self.free), takes, delay, floor)
        })
    }

    /// Takes note that there is no limit any more.
    pub const fn release(&mut self) {
        self.limited = false;
    }
}

/// Returns the rate of writers that keep so many requests outstanding, which take that long, when each waits
/// for `delay` before. It is never less than `floor`.
fn rate(outstanding: MeanOutstanding, takes: Latency, delay: Latency, floor: Iops) -> Iops {
    let each = takes.saturating_add(delay).as_secs_f64();
    Iops::new((outstanding.get() / each).max(floor.per_second()))
}

/// Returns the limit in bytes for a rate of requests of this size, when none has completed for so long.
pub(crate) fn bytes(rate: Iops, size: f64, silent: Duration) -> ByteRate {
    let overdue = silent.as_secs_f64() - 2.0 / rate.per_second();
    let doubled = (overdue / DOUBLES.as_secs_f64()).clamp(0.0, 10.0);
    ByteRate::new(rate.per_second() * size * doubled.exp2())
}

/// Returns the fraction of the past that still counts after some time.
pub(crate) fn remembered(elapsed: Duration, time_constant: Duration) -> f64 {
    (-elapsed.as_secs_f64() / time_constant.as_secs_f64()).exp()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tidegate_units::Bytes;

    use super::*;

    const STEP: Duration = Duration::from_millis(100);
    const FLOOR: Iops = Iops::ZERO;
    const SIZE: u64 = 65_536;

    /// Returns the number of writes of this size that a limit allows per second.
    fn writes(limit: RateLimit) -> f64 {
        bytes_of(limit) / SIZE as f64
    }

    fn bytes_of(limit: RateLimit) -> f64 {
        limit.bytes.unwrap().per_second()
    }

    /// Returns the writes of one step by consumers that keep `outstanding` under way, when each takes so
    /// long.
    fn done(outstanding: f64, takes: Latency) -> OperationTotals {
        let count = (outstanding * STEP.as_secs_f64() / takes.as_secs_f64()).round() as u64;
        OperationTotals {
            count,
            bytes: Bytes::new(count * SIZE),
            total_latency: takes.scale(count as f64),
            ..OperationTotals::default()
        }
    }

    fn learnt(outstanding: f64, takes: Latency) -> WritePace {
        let mut pace = WritePace::default();
        for _ in 0..20 {
            assert!(pace.observe(STEP, &done(outstanding, takes)).abs() < f64::EPSILON);
        }
        pace
    }

    const fn ms(millis: u64) -> Latency {
        Latency::from_millis(millis)
    }

    #[test]
    fn by_littles_law() {
        // As measured in the lab: 24 outstanding take 50 ms, and 13 ms when they are limited to 300 a second.
        let mut pace = learnt(24.0, ms(50));
        let limit = pace.limit(ms(30), FLOOR).unwrap();
        assert!((writes(limit) - 300.0).abs() <= 1.0, "{limit:?}");
        assert!((limit.requests.per_second() - writes(limit)).abs() < 1e-6, "{limit:?}");
        for _ in 0..20 {
            let waits = pace.observe(STEP, &done(300.0 * 0.013, ms(13)));
            assert!((waits / STEP.as_secs_f64() - 20.1).abs() < 0.5, "{waits}");
        }
        let limit = pace.limit(ms(67), FLOOR).unwrap();
        assert!((writes(limit) - 300.0).abs() <= 1.0, "{limit:?}");
    }

    /// A device that completes 469 writes per second, beside a law that commands a delay.
    #[test]
    fn a_delay_empties_the_queue_by_as_much_as_it_is_long() {
        let mut pace = learnt(24.0, ms(51));
        for wanted in [10, 20, 30, 40] {
            let mut queue: f64 = 24.0;
            let mut takes = ms(51);
            for _ in 0..100 {
                let limit = writes(pace.limit(ms(wanted), FLOOR).unwrap());
                // In a tenth of a second as many come as may, and as many leave as can.
                queue = (queue + (limit - 469.0) * STEP.as_secs_f64()).clamp(1.0, 24.0);
                takes = Latency::from_secs_f64(queue / 469.0);
                pace.observe(STEP, &done(limit.min(469.0) * takes.as_secs_f64(), takes));
            }
            let expected = 24.0 / 469.0 - wanted as f64 / 1e3;
            assert!((takes.as_secs_f64() - expected).abs() < 0.002, "{wanted} ms: {takes}, not {expected} s");
        }
    }

    #[test]
    fn nothing_is_limited_before_anything_is_known() {
        let mut pace = WritePace::default();
        assert_eq!(pace.limit(ms(30), FLOOR), None);
        // A queue that fills: believed when it is full.
        for outstanding in [4.0, 24.0] {
            pace.observe(STEP, &done(outstanding, ms(50)));
            assert_eq!(pace.limit(ms(30), FLOOR), None);
        }
        pace.observe(STEP, &done(24.0, ms(50)));
        assert_eq!(pace.limit(ms(30), FLOOR), learnt(24.0, ms(50)).limit(ms(30), FLOOR));
        assert_eq!(pace.limit(Latency::ZERO, FLOOR), None);
    }

    #[test]
    fn throttled_writes_teach_nothing_about_what_is_outstanding_and_free_writes_do() {
        let mut pace = learnt(24.0, ms(50));
        let limit = pace.limit(ms(50), FLOOR);
        for _ in 0..100 {
            pace.observe(STEP, &done(2.0, ms(50)));
        }
        assert_eq!(pace.limit(ms(50), FLOOR), limit);
        pace.limit(Latency::ZERO, FLOOR);
        for _ in 0..100 {
            pace.observe(STEP, &done(2.0, ms(50)));
        }
        let limit = writes(pace.limit(ms(50), FLOOR).unwrap());
        assert!((limit - 20.0).abs() <= 1.0, "{limit}");
    }

    /// Under a limit of 20 writes of 64 KiB per second a write of 1 MiB would have to wait for 0.8 s. Under a
    /// limit of 2 it would wait for 8 s.
    #[test]
    fn consumers_that_turn_to_larger_writes_do_not_wait_for_the_limit_of_small_ones() {
        let mut pace = learnt(24.0, ms(50));
        let usual = writes(pace.limit(ms(1_150), FLOOR).unwrap());
        assert!((usual - 20.0).abs() <= 1.0, "{usual}");
        let (mut let_through, mut waited) = (0.0, 0);
        while let_through < 16.0 * SIZE as f64 {
            pace.observe(STEP, &OperationTotals::default());
            let_through += bytes_of(pace.limit(ms(1_150), FLOOR).unwrap()) * STEP.as_secs_f64();
            waited += 1;
        }
        assert!(waited <= 4, "{waited} tenths of a second");
        pace.observe(STEP, &done(1.0, ms(50)));
        assert!((writes(pace.limit(ms(1_150), FLOOR).unwrap()) - usual).abs() <= 1.0);
    }

    #[test]
    fn after_silence_it_is_learnt_anew() {
        let mut pace = learnt(24.0, ms(50));
        for _ in 0..20 {
            pace.observe(STEP, &OperationTotals::default());
        }
        assert_eq!(pace.limit(ms(50), FLOOR), None);
    }

    fn latency() -> impl Strategy<Value = Latency> {
        (0..2_000_000_000_u64).prop_map(Latency::from_nanos)
    }

    proptest! {
        #[test]
        fn a_longer_delay_is_a_lower_rate_and_none_is_what_there_was(
            outstanding in 0.0..10_000.0,
            takes in latency(),
            delays in [latency(), latency()],
            floor in 0.0..100.0,
        ) {
            let at = |delay| rate(MeanOutstanding::new(outstanding), takes, delay, Iops::new(floor))
                .per_second();
            let [shorter, longer] = [delays[0].min(delays[1]), delays[0].max(delays[1])];
            prop_assert!(at(longer) <= at(shorter));
            prop_assert!(at(longer) >= floor);
            if takes > Latency::ZERO {
                // What waits and what is at the device is what is outstanding.
                let all = at(longer) * (takes.as_secs_f64() + longer.as_secs_f64());
                prop_assert!(all >= outstanding - 1e-6);
                prop_assert!(at(longer) <= floor || (all - outstanding).abs() <= 1e-6 * outstanding.max(1.0));
            }
        }

        #[test]
        fn whatever_is_seen_there_is_a_limit_or_none_and_what_waits_is_bounded(
            seen in prop::collection::vec((0..5_u64, any::<u32>(), any::<u64>(), any::<u64>(), latency()),
                0..50),
        ) {
            let mut pace = WritePace::default();
            for (steps, count, bytes, nanos, delay) in seen {
                let elapsed = STEP * steps as u32;
                let writes = OperationTotals {
                    count: count.into(),
                    bytes: Bytes::new(bytes),
                    total_latency: Latency::from_nanos(nanos),
                    ..OperationTotals::default()
                };
                let waits = pace.observe(elapsed, &writes);
                prop_assert!(waits.is_finite() && (0.0..=pace.free * elapsed.as_secs_f64()).contains(&waits));
                let limit = pace.limit(delay, Iops::new(2.0));
                prop_assert_eq!(limit.is_some(), pace.limited);
                prop_assert!(limit.is_none_or(|limit| limit.requests.per_second() >= 2.0));
            }
        }
    }
}
