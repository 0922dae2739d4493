//! The times at which a leaky bucket would have released requests that no bucket delays.

use tidegate_sched::TokenBucket;
use tidegate_units::{Instant, Iops, Latency};

/// A leaky bucket that delays nothing. It tells from when on a request counts as waiting under a promise
/// of so many requests per second.
///
/// A request's virtual release is the later of its arrival and the time at which a token is there for it. A
/// request that is dispatched earlier than that by more than 1/r is surplus: it takes no token, and the next
/// one gets it. A consumer that was served more than its rate has therefore used up nothing of its promise,
/// and gains no later releases either. Within 1/r the token is taken: a reservation of the same rate would
/// otherwise fall behind the bucket by a request for each one that it serves a moment too early.
#[derive(Debug, Clone)]
pub(crate) struct VirtualBucket {
    tokens: TokenBucket,
    /// 1/r.
    interval: Latency,
    /// The last virtual release at which a token was taken. Time does not go back behind it.
    last: Instant,
}

impl VirtualBucket {
    /// A full bucket.
    pub(crate) fn new(rate: Iops, size: u32, now: Instant) -> Self {
        let tokens = TokenBucket::new(rate.into(), size.into(), now);
        Self { tokens, interval: interval(rate), last: now }
    }

    /// Changes rate and size. The tokens stay, up to the new size.
    pub(crate) fn set(&mut self, rate: Iops, size: u32, now: Instant) {
        self.last = self.last.max(now);
        self.interval = interval(rate);
        self.tokens.set(rate.into(), size.into(), self.last);
    }

    /// Returns the virtual release of a request that is dispatched now and could have been from `arrived` on.
    /// Requests come in the order of their arrival.
    pub(crate) fn dispatched(&mut self, arrived: Instant, now: Instant) -> Instant {
        // A rate close to nothing brings no token in any time that counts.
        let ready = self.tokens.ready_at(1, self.last.max(arrived)).unwrap_or(Instant::MAX);
        if ready <= now + self.interval {
            self.tokens.take(1, ready);
            self.last = ready;
        }
        ready
    }
}

fn interval(rate: Iops) -> Latency {
    Latency::from_secs_f64(1.0 / rate.per_second())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tidegate_sched::{BucketRelease, FlowConfig, LeakyBucket, PullAnswer, Sfq, SfqConfig, StorageExtent};

    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    fn bucket() -> VirtualBucket {
        VirtualBucket::new(Iops::new(40.0), 2, at(0))
    }

    #[test]
    fn within_the_rate_a_request_counts_from_its_arrival() {
        let mut bucket = bucket();
        for arrived in (0..4_000).step_by(25) {
            assert_eq!(bucket.dispatched(at(arrived), at(arrived + 300)), at(arrived));
        }
    }

    #[test]
    fn a_burst_beyond_the_bucket_counts_as_the_rate_brings_its_tokens() {
        let mut bucket = bucket();
        let releases: Vec<Instant> = (0..5).map(|_| bucket.dispatched(at(0), at(1_000))).collect();
        assert_eq!(releases, [0, 0, 25, 50, 75].map(at));
    }

    #[test]
    fn surplus_does_not_make_later_requests_count_later() {
        let mut bucket = bucket();
        // A thousand requests in a second are served at once; then the consumer keeps to its rate.
        for arrived in 0..1_000 {
            let _ = bucket.dispatched(at(arrived), at(arrived));
        }
        let later: Vec<Instant> = (1_100..1_300).step_by(25).map(at).collect();
        for arrived in later {
            assert_eq!(bucket.dispatched(arrived, arrived + Latency::from_millis(500)), arrived);
        }
    }

    #[test]
    fn a_changed_rate_holds_from_then_on() {
        let mut bucket = bucket();
        assert_eq!([0; 3].map(|_| bucket.dispatched(at(0), at(1_000))), [0, 0, 25].map(at));
        bucket.set(Iops::new(10.0), 2, at(25));
        assert_eq!(bucket.dispatched(at(0), at(1_000)), at(125));
    }

    /// The bucket of the scheduler, for a consumer whose requests nothing else delays.
    fn releases_of_the_real_bucket(rate: f64, size: u32, arrivals: &[Instant]) -> Vec<Instant> {
        let release = BucketRelease { tick: std::time::Duration::ZERO, ahead: None };
        let bucket: LeakyBucket = release.bucket(Iops::new(rate), size);
        let mut scheduler: Sfq<usize> = Sfq::new(SfqConfig::default());
        let flow = scheduler.add_flow(&FlowConfig { bucket: Some(bucket), ..FlowConfig::default() }, at(0));
        let extent = StorageExtent { offset: 0, bytes: 4_096 };
        for (request, arrived) in arrivals.iter().enumerate() {
            scheduler.enqueue(flow, *arrived, request, extent).unwrap();
        }
        let mut now = *arrivals.last().unwrap();
        let mut releases = Vec::new();
        while releases.len() < arrivals.len() {
            match scheduler.pull(now) {
                PullAnswer::Request { released, .. } => releases.push(released),
                PullAnswer::NotBefore(time) => now = time,
                PullAnswer::Nothing => panic!("requests wait"),
            }
        }
        releases
    }

    proptest! {
        /// Releases are those of a bucket that delays requests, if the storage serves nothing early.
        #[test]
        fn virtual_releases_are_those_of_the_real_bucket(
            rate in 1.0f64..2_000.0,
            size in 1u32..9,
            gaps in prop::collection::vec(0u64..60_000_000, 1..80),
        ) {
            let mut now = 0;
            let arrivals: Vec<Instant> = gaps.into_iter().map(|gap| {
                now += gap;
                Instant::from_nanos(now)
            }).collect();
            let mut bucket = VirtualBucket::new(Iops::new(rate), size, at(0));
            let releases: Vec<Instant> =
                arrivals.iter().map(|arrived| bucket.dispatched(*arrived, Instant::MAX)).collect();
            prop_assert_eq!(releases, releases_of_the_real_bucket(rate, size, &arrivals));
        }

        /// A consumer is promised its rate and no more, however early it is served.
        #[test]
        fn no_more_than_the_promise_counts_in_any_stretch(
            rate in 1.0f64..2_000.0,
            size in 1u32..9,
            requests in prop::collection::vec((0u64..30_000_000, 0u64..100_000_000), 1..80),
        ) {
            let mut bucket = VirtualBucket::new(Iops::new(rate), size, at(0));
            let (mut arrived, mut now) = (0, 0);
            let mut counted = Vec::new();
            for (gap, wait) in requests {
                arrived += gap;
                now = now.max(arrived + wait);
                let (arrived, now) = (Instant::from_nanos(arrived), Instant::from_nanos(now));
                let release = bucket.dispatched(arrived, now);
                prop_assert!(release >= arrived);
                if release <= now + interval(Iops::new(rate)) {
                    counted.push(release);
                }
            }
            for (first, begin) in counted.iter().enumerate() {
                for (last, end) in counted.iter().enumerate().skip(first) {
                    let most = f64::from(size) + rate * end.latency_since(*begin).as_secs_f64();
                    prop_assert!((last - first + 1) as f64 <= most * (1.0 + 1e-9) + 1e-6);
                }
            }
        }
    }
}
