//! A rate-limited volume of a cloud: a limiter in order of arrival, and a latency behind it.
//!
//! The storage behind the limiter is never the bottleneck. So the limiter alone decides when a request
//! starts, and its response time then follows from the latency. A volume with burst credits has two speeds:
//! it serves at the burst rate until the credits are spent, and at its own rate from then on.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use rand::SeedableRng;
use rand_distr::{Distribution, Exp1};
use rand_pcg::Pcg64;
use serde::{Deserialize, Serialize};
use tidegate_units::{ByteRate, Bytes, Instant, Iops, Latency};

use crate::config_error::{DeviceConfigError, require};
use crate::io::{DeviceCompletion, DeviceIo, IoKind};

/// A volume that a provider limits to a rate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct VolumeConfig {
    /// Number of bytes that it offers.
    #[serde(with = "tidegate_units::text")]
    pub capacity: Bytes,
    /// I/Os per second that it may do at all times; also the rate at which it earns credits.
    #[serde(with = "tidegate_units::text")]
    pub rate: Iops,
    /// Credits for more than that; none: `rate` is all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst: Option<BurstConfig>,
    /// Bytes per second that it may transfer at all times.
    #[serde(with = "tidegate_units::text")]
    pub throughput: ByteRate,
    /// The most bytes of one I/O: a larger request counts as several.
    #[serde(with = "tidegate_units::text")]
    pub io_size: Bytes,
    /// Time whose rate may be used at once: the depth of the limiter's buckets.
    #[serde(with = "tidegate_units::text")]
    pub slack: Latency,
    /// The least time from the limiter to the completion.
    #[serde(with = "tidegate_units::text")]
    pub latency: Latency,
    /// Mean of the exponentially distributed time that is added to it.
    #[serde(default, with = "tidegate_units::text")]
    pub spread: Latency,
}

/// Credits for a rate above the volume's own. One is spent for each I/O, and earned at the volume's rate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct BurstConfig {
    /// I/Os per second while there are credits; at least the volume's rate.
    #[serde(with = "tidegate_units::text")]
    pub rate: Iops,
    /// The most credits that the volume can have.
    pub credits: u64,
    /// Credits that it has at the beginning; `credits` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initial: Option<u64>,
}

/// A token bucket. A request larger than the bucket takes it below zero.
#[derive(Debug, Clone)]
struct TokenBucket {
    /// Tokens that a request costs for each I/O, and for each byte.
    per_io: f64,
    per_byte: f64,
    per_second: f64,
    depth: f64,
    level: f64,
    /// Time at which the level was right.
    at: Instant,
}

impl TokenBucket {
    fn refill(&mut self, now: Instant) {
        let earned = now.latency_since(self.at).as_secs_f64() * self.per_second;
        self.level = (self.level + earned).min(self.depth);
        self.at = self.at.max(now);
    }

    fn cost(&self, ios: f64, bytes: f64) -> f64 {
        self.per_io * ios + self.per_byte * bytes
    }

    /// Returns the time until the bucket has this many tokens, or is full.
    fn wait_for(&self, tokens: f64) -> Latency {
        let missing = tokens.min(self.depth) - self.level;
        if missing <= 0.0 {
            return Latency::ZERO;
        }
        Latency::from_nanos((missing / self.per_second * 1e9).ceil() as u64)
    }
}

#[derive(Debug, Clone)]
pub(crate) struct CloudVolume {
    /// The limits: I/Os at the greatest rate, bytes, and credits if it has them.
    buckets: Vec<TokenBucket>,
    io_size: u64,
    latency: Latency,
    spread: Latency,
    rng: Pcg64,
    /// Time at which the limiter let the last request pass.
    passed: Instant,
    /// Requests by the times of their completion; the number keeps those of one time in order of arrival.
    completing: BinaryHeap<Reverse<(Instant, u64, u64)>>,
    number: u64,
}

impl CloudVolume {
    pub(crate) fn new(config: &VolumeConfig, seed: u64) -> Result<Self, DeviceConfigError> {
        let rate = config.rate.per_second();
        let throughput = config.throughput.per_second();
        require(config.capacity > Bytes::ZERO, "capacity", "more than nothing")?;
        require(rate > 0.0, "rate", "more than nothing")?;
        require(throughput >= 1.0, "throughput", "at least one byte per second")?;
        require(config.io_size > Bytes::ZERO, "io-size", "more than nothing")?;
        let slack = config.slack.as_secs_f64();
        require(slack <= 3600.0, "slack", "at most one hour")?;
        let full = |per_second: f64, per_io: f64, per_byte: f64| {
            // A bucket holds at least one token, or it would never let an I/O pass.
            let depth = (per_second * slack).max(1.0);
            TokenBucket { per_io, per_byte, per_second, depth, level: depth, at: Instant::ZERO }
        };
        let greatest = config.burst.as_ref().map_or(rate, |burst| burst.rate.per_second());
        let mut buckets = vec![full(greatest, 1.0, 0.0), full(throughput, 0.0, 1.0)];
        if let Some(burst) = &config.burst {
            require(burst.rate >= config.rate, "burst.rate", "at least `rate`")?;
            require(burst.credits >= 1, "burst.credits", "at least 1")?;
            let initial = burst.initial.unwrap_or(burst.credits);
            require(initial <= burst.credits, "burst.initial", "at most `burst.credits`")?;
            let (depth, level) = (burst.credits as f64, initial as f64);
            buckets.push(TokenBucket { depth, level, ..full(rate, 1.0, 0.0) });
        }
        Ok(Self {
            buckets,
            io_size: config.io_size.get(),
            latency: config.latency,
            spread: config.spread,
            rng: Pcg64::seed_from_u64(seed),
            passed: Instant::ZERO,
            completing: BinaryHeap::new(),
            number: 0,
        })
    }

    pub(crate) fn submit(
        &mut self,
        now: Instant,
        id: u64,
        io: DeviceIo,
        done: &mut VecDeque<DeviceCompletion>,
    ) {
        if io.kind == IoKind::Flush {
            return done.push_back(DeviceCompletion { id, at: now });
        }
        let start = self.pass(now, u64::from(io.bytes));
        let more = if self.spread == Latency::ZERO {
            Latency::ZERO
        } else {
            let factor: f64 = Exp1.sample(&mut self.rng);
            self.spread.scale(factor)
        };
        self.completing.push(Reverse((start + self.latency + more, self.number, id)));
        self.number += 1;
    }

    pub(crate) fn next_event(&self) -> Option<Instant> {
        self.completing.peek().map(|Reverse((at, ..))| *at)
    }

    pub(crate) fn step(&mut self, at: Instant, done: &mut VecDeque<DeviceCompletion>) {
        if let Some(Reverse((_, _, id))) = self.completing.pop() {
            done.push_back(DeviceCompletion { id, at });
        }
    }

    /// Lets a request through the limiter, behind all before it. Returns the time at which it passes.
    fn pass(&mut self, now: Instant, bytes: u64) -> Instant {
        let ios = bytes.div_ceil(self.io_size) as f64;
        let bytes = bytes as f64;
        let begin = self.passed.max(now);
        let mut wait = Latency::ZERO;
        for bucket in &mut self.buckets {
            bucket.refill(begin);
            wait = wait.max(bucket.wait_for(bucket.cost(ios, bytes)));
        }
        self.passed = begin + wait;
        for bucket in &mut self.buckets {
            bucket.refill(self.passed);
            bucket.level -= bucket.cost(ios, bytes);
        }
        self.passed
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::preset::ebs_gp2;

    fn config() -> VolumeConfig {
        VolumeConfig {
            capacity: Bytes::from_gib(100),
            rate: Iops::new(100.0),
            burst: None,
            throughput: ByteRate::new(100e6),
            io_size: Bytes::from_kib(256),
            slack: Latency::ZERO,
            latency: Latency::from_micros(500),
            spread: Latency::ZERO,
        }
    }

    /// Gives a volume so many requests of one size at once. Returns their completions in seconds.
    fn at_once(config: &VolumeConfig, requests: u64, bytes: u32) -> Vec<f64> {
        let mut volume = CloudVolume::new(config, 1).unwrap();
        let mut done = VecDeque::new();
        for id in 0..requests {
            volume.submit(Instant::ZERO, id, DeviceIo::read(0, bytes), &mut done);
        }
        while let Some(at) = volume.next_event() {
            volume.step(at, &mut done);
        }
        done.into_iter().map(|one| one.at.as_secs_f64()).collect()
    }

    #[track_caller]
    fn assert_near(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-6, "{found} is not {expected}");
    }

    #[test]
    fn requests_pass_at_the_rate() {
        let times = at_once(&config(), 101, 4096);
        assert_near(times[0], 0.000_5);
        assert_near(times[100], 1.000_5);
    }

    #[test]
    fn slack_lets_that_much_pass_at_once() {
        let times = at_once(&VolumeConfig { slack: Latency::from_millis(100), ..config() }, 101, 4096);
        assert_near(times[9], 0.000_5);
        assert_near(times[100], 0.910_5);
    }

    #[test]
    fn a_large_request_counts_as_several() {
        let megabyte = at_once(&config(), 11, 1 << 20);
        assert_near(megabyte[10], 0.400_5);
    }

    #[test]
    fn bytes_are_limited_beside_requests() {
        let limited = VolumeConfig { rate: Iops::new(1e6), throughput: ByteRate::new(10e6), ..config() };
        let times = at_once(&limited, 11, 100_000);
        assert_near(times[10] - times[0], 0.1);
    }

    #[test]
    fn credits_last_as_long_as_amazon_computes() {
        // Burst duration = credits / (burst rate - baseline rate): 2,000 s for 100 GiB.
        let gp2 = ebs_gp2(Bytes::from_gib(100));
        let burst = BurstConfig { initial: Some(54_000), ..gp2.burst.clone().unwrap() };
        let gp2 = VolumeConfig { burst: Some(burst), spread: Latency::ZERO, ..gp2 };
        let times = at_once(&gp2, 70_000, 16_384);
        let rate_at = |second: f64| times.iter().filter(|at| (second..second + 1.0).contains(at)).count();
        assert_eq!(rate_at(10.0), 3_000);
        assert!(rate_at(18.5) >= 2_999, "{}", rate_at(18.5));
        assert!((300..=301).contains(&rate_at(21.0)), "{}", rate_at(21.0));
    }

    #[test]
    fn gp2_follows_its_size() {
        let rate = |gib| ebs_gp2(Bytes::from_gib(gib)).rate.per_second() as u64;
        assert_eq!([rate(1), rate(100), rate(2_000), rate(16_384)], [100, 300, 6_000, 16_000]);
        assert!(ebs_gp2(Bytes::from_gib(2_000)).burst.is_none());
    }

    #[test]
    fn values_out_of_range_are_refused_by_name() {
        let burst = |rate, credits, initial| Some(BurstConfig { rate: Iops::new(rate), credits, initial });
        for (wrong, message) in [
            (VolumeConfig { rate: Iops::ZERO, ..config() }, "rate must be more than nothing"),
            (VolumeConfig { io_size: Bytes::ZERO, ..config() }, "io-size must be more than nothing"),
            (VolumeConfig { burst: burst(50.0, 1, None), ..config() }, "burst.rate must be at least `rate`"),
            (VolumeConfig { burst: burst(200.0, 0, None), ..config() }, "burst.credits must be at least 1"),
            (
                VolumeConfig { burst: burst(200.0, 5, Some(6)), ..config() },
                "burst.initial must be at most `burst.credits`",
            ),
            (VolumeConfig { slack: Latency::MAX, ..config() }, "slack must be at most one hour"),
        ] {
            assert_eq!(CloudVolume::new(&wrong, 1).unwrap_err().to_string(), message);
        }
    }

    proptest! {
        /// A slow and obvious limiter: no stretch of time passes more than its rate and the buckets.
        #[test]
        fn no_stretch_of_time_passes_more_than_allowed_and_none_is_wasted(
            gaps in prop::collection::vec(0_u64..40_000, 2..200),
            slack in 0_u64..100,
        ) {
            let slack = Latency::from_millis(slack);
            let config = VolumeConfig { slack, latency: Latency::ZERO, ..config() };
            let mut volume = CloudVolume::new(&config, 1).unwrap();
            let (mut now, mut passed) = (Instant::ZERO, Vec::new());
            for gap in gaps {
                now = now + Latency::from_micros(gap);
                passed.push((now, volume.pass(now, 4096)));
            }
            let depth = (100.0 * slack.as_secs_f64()).max(1.0);
            for from in 0..passed.len() {
                for to in from + 1..passed.len() {
                    let stretch = passed[to].1.latency_since(passed[from].1).as_secs_f64();
                    prop_assert!((to - from) as f64 <= stretch * 100.0 + depth + 1e-3);
                }
            }
            for pair in passed.windows(2) {
                let waited = pair[1].1 > pair[1].0;
                let spacing = pair[1].1.latency_since(pair[0].1);
                prop_assert!(pair[0].1 <= pair[1].1, "in order of arrival");
                prop_assert!(!waited || spacing <= Latency::from_nanos(10_000_100), "no rate is wasted");
            }
        }
    }
}
