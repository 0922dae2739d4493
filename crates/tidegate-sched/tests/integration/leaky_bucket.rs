//! The leaky bucket ahead of the fair queue, against one that is polled at every tick and event.

use std::collections::VecDeque;
use std::time::Duration;

use proptest::prelude::*;
use tidegate_sched::{
    BeyondLimit, ConsumerLimit, FlowCapacity, FlowConfig, FlowId, LeakyBucket, PullAnswer, RefillTime, Sfq,
    SfqConfig, StorageExtent, TokenBucket,
};
use tidegate_units::{Instant, Iops, Latency, Shares, Window};

const MILLI: u64 = 1_000_000;
const TICK: u64 = MILLI;

fn at(nanos: u64) -> Instant {
    Instant::from_nanos(nanos)
}

fn ms(millis: u64) -> Instant {
    at(millis * MILLI)
}

/// As the paper has it: tokens every millisecond.
fn bucket(rate: f64, size: u32, ahead: Option<u32>) -> LeakyBucket {
    LeakyBucket { rate: Iops::new(rate), size, tick: Duration::from_nanos(TICK), ahead, dither: false }
}

fn through(bucket: LeakyBucket) -> FlowConfig {
    FlowConfig { bucket: Some(bucket), ..FlowConfig::default() }
}

fn scheduler<T>(window: f64) -> Sfq<T> {
    let refill = RefillTime::OneByOne;
    Sfq::new(SfqConfig { refill, ..SfqConfig::yfq(Window::new(window)) })
}

/// Tokens in nanotokens, so that whole tokens per second come to a whole number at every tick.
struct Polled {
    level: u64,
    rate: u64,
    size: u64,
    ahead: usize,
    delay: u64,
    /// Arrivals in front of the bucket.
    held: VecDeque<u64>,
    /// Releases behind it.
    released: VecDeque<u64>,
    short: u64,
    now: u64,
}

impl Polled {
    fn release(&mut self) {
        while self.released.len() < self.ahead
            && self.level >= 1_000_000_000
            && self.held.front().is_some_and(|arrived| arrived + self.delay <= self.now)
        {
            self.level -= 1_000_000_000;
            self.held.pop_front();
            self.released.push_back(self.now);
        }
    }

    /// Is there room behind the bucket, and a request in front of it, at some time from now on?
    fn short_since(&self) -> Option<u64> {
        let first = self.held.front().filter(|_| self.released.len() < self.ahead)?;
        Some((first + self.delay).max(self.now))
    }

    /// What piles up, and beside it what comes with a tick.
    fn capacity(&self) -> u64 {
        self.size * 1_000_000_000 + self.rate * TICK
    }

    fn advance(&mut self, to: u64) {
        while self.now < to {
            let tick = (self.now / TICK + 1) * TICK;
            let entry =
                self.held.front().map(|arrived| arrived + self.delay).filter(|&entry| entry > self.now);
            let next = tick.min(to).min(entry.unwrap_or(to));
            self.short += self.short_since().map_or(0, |since| next.saturating_sub(since));
            self.now = next;
            if self.now == tick {
                self.level = (self.level + self.rate * TICK).min(self.capacity());
            }
            self.release();
        }
    }
}

#[derive(Debug, Clone)]
enum Step {
    Arrive(u64),
    Pull,
    Complete,
    Rate(u64, u32, Option<u32>),
    Delay(u64),
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (1u64..4).prop_map(Step::Arrive),
        8 => Just(Step::Pull),
        6 => Just(Step::Complete),
        2 => (prop_oneof![Just(0u64), 1u64..3_000], 0u32..9, prop::option::of(0u32..5))
            .prop_map(|(rate, size, ahead)| Step::Rate(rate, size, ahead)),
        1 => prop_oneof![Just(0), 0u64..20 * MILLI].prop_map(Step::Delay),
        8 => prop_oneof![0u64..3 * MILLI, (0u64..20).prop_map(|ticks| ticks * TICK), 0u64..200 * MILLI]
            .prop_map(Step::Pass),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    /// Every release happens when somebody who looks at every tick would see it happen, although nobody
    /// looks; no more than `ahead` wait; and whoever has nothing to dispatch is told the time of the next
    /// release.
    #[test]
    fn releases_as_one_that_is_polled(steps in prop::collection::vec(step(), 1..120),
        aligned in any::<bool>()) {
        let mut scheduler = scheduler(2.0);
        let origin = 12_345_678_901;
        let now = |oracle: &Polled| at(origin + oracle.now);
        let (rate, size, ahead) = (40, 8, None);
        let mut oracle = Polled {
            level: 8_000_000_000, rate, size, ahead: usize::MAX, delay: 0, held: VecDeque::new(),
            released: VecDeque::new(), short: 0, now: 0,
        };
        let flow = scheduler.add_flow(&through(bucket(rate as f64, size as u32, ahead)), now(&oracle));
        let mut running = 0;
        for step in steps {
            match step {
                Step::Arrive(requests) => for _ in 0..requests {
                    scheduler.enqueue(flow, now(&oracle), (), StorageExtent::default()).unwrap();
                    oracle.held.push_back(oracle.now);
                    oracle.release();
                },
                Step::Pull => match scheduler.pull(now(&oracle)) {
                    PullAnswer::Request { released, .. } => {
                        let expected = oracle.released.pop_front().map(|time| at(origin + time));
                        prop_assert_eq!(Some(released), expected);
                        oracle.release();
                        running += 1;
                    }
                    PullAnswer::NotBefore(then) => {
                        prop_assert!(oracle.released.is_empty());
                        let mut next = Polled {
                            held: oracle.held.clone(), released: VecDeque::new(), ..oracle
                        };
                        next.advance(then.as_nanos() - origin - 1);
                        prop_assert!(next.released.is_empty(), "too late");
                        next.advance(then.as_nanos() - origin);
                        prop_assert!(!next.released.is_empty(), "too early");
                    }
                    PullAnswer::Nothing => {
                        let stopped = oracle.held.is_empty() || oracle.rate == 0
                            && oracle.level < 1_000_000_000;
                        prop_assert!(running == 2 || oracle.released.is_empty() && stopped);
                    }
                },
                Step::Complete if running > 0 => {
                    scheduler.complete(flow, now(&oracle)).unwrap();
                    running -= 1;
                }
                Step::Complete => {}
                Step::Rate(rate, size, ahead) => {
                    scheduler.set_bucket(flow, Some(bucket(rate as f64, size, ahead)), now(&oracle)).unwrap();
                    (oracle.rate, oracle.size) = (rate, u64::from(size.max(1)));
                    oracle.ahead = ahead.map_or(usize::MAX, |ahead| ahead.max(1) as usize);
                    oracle.level = oracle.level.min(oracle.capacity());
                    oracle.release();
                }
                Step::Delay(delay) => {
                    scheduler.set_delay(flow, Latency::from_nanos(delay), now(&oracle)).unwrap();
                    oracle.delay = delay;
                    oracle.release();
                }
                Step::Pass(nanos) => {
                    let nanos = if aligned { nanos / TICK * TICK } else { nanos };
                    oracle.advance(oracle.now + nanos);
                }
            }
            let status = scheduler.status(flow, now(&oracle)).unwrap().bucket.unwrap();
            let held = oracle.held.iter().filter(|&&arrived| arrived + oracle.delay <= oracle.now).count();
            prop_assert_eq!((status.released, status.held), (oracle.released.len(), held));
            prop_assert_eq!(status.short, Duration::from_nanos(oracle.short));
        }
    }

    /// Over every stretch no more than σ and what came in during the ticks that it touches, with any rates
    /// and ticks. With dither one more.
    #[test]
    fn never_releases_more_than_size_plus_rate_times_time_and_a_tick(
        size in 1u32..20,
        tick in prop_oneof![Just(0u64), 1u64..5_000_000],
        dither: bool,
        changes in prop::collection::vec((1f64..5_000.0, 0u64..50 * MILLI, 0u32..20), 1..20),
    ) {
        let mut scheduler = scheduler(1e6);
        let terms = |rate| LeakyBucket { rate: Iops::new(rate), size, tick: Duration::from_nanos(tick),
            ahead: None, dither };
        let flow = scheduler.add_flow(&through(terms(1.0)), at(0));
        let mut now = 0;
        // When each rate began, and when each request was released.
        let (mut rates, mut releases) = (vec![(0, 1.0)], Vec::new());
        // What a tick brings beside what has piled up.
        let mut most: f64 = 0.0;
        for (rate, pause, requests) in changes {
            scheduler.set_bucket(flow, Some(terms(rate)), at(now)).unwrap();
            rates.push((now, rate));
            most = most.max(rate * tick as f64 / 1e9);
            for _ in 0..requests {
                let _full = scheduler.enqueue(flow, at(now), (), StorageExtent::default());
            }
            now += pause;
            while let PullAnswer::Request { released, .. } = scheduler.pull(at(now)) {
                releases.push(released.as_nanos());
            }
        }
        prop_assert!(releases.is_sorted());
        let before = |time: u64| time - time.checked_rem(tick).unwrap_or(0);
        // All tokens up to a time; a rate counts from the tick before it was set.
        let tokens_until = |time: u64| -> f64 {
            let next = rates.iter().skip(1).map(|next| before(next.0)).chain([u64::MAX]);
            let each = rates.iter().zip(next);
            each.map(|(&(since, rate), next)| rate * next.min(time)
                .saturating_sub(before(since)) as f64 / 1e9).sum()
        };
        let begins: Vec<f64> = releases.iter().map(|&release| tokens_until(before(release))).collect();
        let ends: Vec<f64> = releases.iter().map(|&release| tokens_until(release)).collect();
        for (from, begin) in begins.iter().enumerate() {
            for (more, end) in ends[from..].iter().enumerate() {
                let first = f64::from(size) + f64::from(u8::from(dither)) + most;
                let (released, tokens) = ((more + 1) as f64, first + end - begin);
                prop_assert!(released <= tokens + 1e-6, "{released} released, {tokens} tokens");
            }
        }
    }

    /// Requests of one flow go in the order in which they came, and within the bound, whatever is in their
    /// way.
    #[test]
    fn keeps_order_with_limit_and_reservation(
        rate in 1f64..2_000.0,
        size in 1u32..10,
        ahead in prop::option::of(1u32..6),
        limit in prop::option::of((1f64..2_000.0, any::<bool>())),
        reservation in prop::option::of(1f64..2_000.0),
        pauses in prop::collection::vec(0u64..5 * MILLI, 1..100),
    ) {
        let mut scheduler = scheduler(2.0);
        let limit = limit.map(|(rate, soft)| ConsumerLimit {
            iops: Some(Iops::new(rate)),
            bytes_per_s: None,
            burst: Duration::ZERO,
            beyond: if soft { BeyondLimit::Surplus } else { BeyondLimit::Wait },
        });
        let reservation = reservation.map(Iops::new);
        let config = FlowConfig { limit, reservation, ..through(bucket(rate, size, ahead)) };
        let flow = scheduler.add_flow(&config, at(0));
        let other = scheduler.add_flow(&FlowConfig::default(), at(0));
        let (mut now, mut next, mut last) = (0, 0, at(0));
        let mut running = VecDeque::new();
        for (request, pause) in pauses.into_iter().enumerate() {
            scheduler.enqueue(flow, at(now), request, StorageExtent::default()).unwrap();
            scheduler.enqueue(other, at(now), request, StorageExtent::default()).unwrap();
            now += pause;
            while let PullAnswer::Request { flow: from, request, released } = scheduler.pull(at(now)) {
                prop_assert!(released <= at(now));
                if from == flow {
                    prop_assert_eq!(request, next);
                    prop_assert!(released >= last, "{released:?} after {last:?}");
                    (next, last) = (request + 1, released);
                }
                running.push_back(from);
            }
            let status = scheduler.status(flow, at(now)).unwrap().bucket.unwrap();
            prop_assert!(status.released <= ahead.map_or(usize::MAX, |ahead| ahead as usize));
            if let Some(done) = running.pop_front() {
                scheduler.complete(done, at(now)).unwrap();
            }
        }
    }
}

fn enqueue(scheduler: &mut Sfq<()>, flow: FlowId, requests: u32, now: Instant) {
    for _ in 0..requests {
        scheduler.enqueue(flow, now, (), StorageExtent::default()).unwrap();
    }
}

/// Of everything that goes now: whose it is, and since when it could.
fn go(scheduler: &mut Sfq<()>, now: Instant) -> Vec<(FlowId, Instant)> {
    let next = || match scheduler.pull(now) {
        PullAnswer::Request { flow, released, .. } => Some((flow, released)),
        _ => None,
    };
    std::iter::from_fn(next).collect()
}

#[test]
fn a_burst_goes_at_once_and_then_a_token_at_a_time() {
    let mut scheduler = scheduler(100.0);
    let flow = scheduler.add_flow(&through(bucket(40.0, 8, None)), ms(0));
    enqueue(&mut scheduler, flow, 10, ms(0));
    assert_eq!(go(&mut scheduler, ms(0)), vec![(flow, ms(0)); 8]);
    assert_eq!(scheduler.pull(ms(0)), PullAnswer::NotBefore(ms(25)));
    assert_eq!(go(&mut scheduler, ms(60)), [(flow, ms(25)), (flow, ms(50))], "nobody looked at the time");
}

/// 3 000 per second are three each millisecond, and none in between. So seven go in a nanosecond where σ is
/// 4, and the tick belongs to the bound.
#[test]
fn tokens_come_with_the_tick() {
    let mut scheduler = scheduler(100.0);
    let flow = scheduler.add_flow(&through(bucket(3_000.0, 4, None)), ms(0));
    enqueue(&mut scheduler, flow, 10, at(999_999));
    assert_eq!(go(&mut scheduler, at(999_999)), vec![(flow, at(999_999)); 4]);
    assert_eq!(scheduler.pull(at(999_999)), PullAnswer::NotBefore(ms(1)));
    assert_eq!(go(&mut scheduler, ms(1)), vec![(flow, ms(1)); 3]);
    let continuous = LeakyBucket { tick: Duration::ZERO, ..bucket(3_000.0, 4, None) };
    scheduler.set_bucket(flow, Some(continuous), ms(1)).unwrap();
    assert_eq!(scheduler.pull(ms(1)), PullAnswer::NotBefore(at(1_333_334)));
}

/// A rate of many tokens per tick is reached whatever σ is.
#[test]
fn a_small_bucket_does_not_bound_the_rate() {
    for rate in [999.0, 1_500.0, 2_500.0, 50_000.0] {
        let mut scheduler = scheduler(1e6);
        let wide = FlowCapacity { requests: u32::MAX, ..FlowCapacity::default() };
        let flow =
            scheduler.add_flow(&FlowConfig { capacity: wide, ..through(bucket(rate, 1, Some(2))) }, ms(0));
        enqueue(&mut scheduler, flow, 60_000, ms(0));
        let released: usize = (1..=1_000).map(|millis| go(&mut scheduler, ms(millis)).len()).sum();
        // In all ticks but the last, whose tokens may still be there, and the one in the bucket at first.
        assert!((released as f64 - rate).abs() <= rate / 1_000.0 + 2.0, "{released} at {rate}/s");
    }
}

/// Each release comes within half of 1/ρ after its token, and anywhere in it.
#[test]
fn dither_keeps_the_rate_and_spreads_the_releases() {
    for (tick, size) in [(0, 1), (1, 2)] {
        let mut scheduler = scheduler(1e6);
        let dithered =
            LeakyBucket { tick: Duration::from_millis(tick), dither: true, ..bucket(40.0, size, Some(2)) };
        let flow = scheduler.add_flow(&through(dithered), ms(0));
        enqueue(&mut scheduler, flow, 1_000 + size, ms(0));
        let mut after = Vec::new();
        for millis in 0..=25_013 {
            // What comes in between may change nothing.
            scheduler.set_bucket(flow, Some(dithered), ms(millis)).unwrap();
            after.extend(go(&mut scheduler, ms(millis)).into_iter().map(|(_, released)| released));
        }
        assert_eq!(after.len() as u32, 1_000 + size);
        let after = after.iter().skip(size as usize).zip(1..);
        let after: Vec<u64> =
            after.map(|(released, count)| released.as_nanos() - count * 25 * MILLI).collect();
        assert!(after.iter().all(|&after| after <= 12_500_000), "{:?}", after.iter().max());
        for part in 0..5 {
            let within = after.iter().filter(|&&after| after / 2_500_000 == part).count();
            assert!((130..270).contains(&within), "{within} of 1000 in part {part} of five");
        }
    }
}

/// Equal rates from the same moment on: without dither both release at the same times for good.
#[test]
fn dither_differs_between_flows() {
    let mut scheduler = scheduler(1e6);
    let dithered = LeakyBucket { dither: true, ..bucket(40.0, 2, Some(2)) };
    let flows = [(); 2].map(|()| scheduler.add_flow(&through(dithered), ms(0)));
    for flow in flows {
        enqueue(&mut scheduler, flow, 202, ms(0));
    }
    let mut releases = [const { Vec::new() }; 2];
    for millis in 0..=5_013 {
        for (flow, released) in go(&mut scheduler, ms(millis)) {
            releases[usize::from(flow == flows[1])].push(released);
        }
    }
    let [one, other] = releases;
    let first = one.iter().zip(&other).skip(2).filter(|(one, other)| one < other).count();
    assert!((60..140).contains(&first), "{first} of 200 before the other's");
}

#[test]
fn changing_the_tick_makes_no_tokens_and_loses_none() {
    let mut scheduler = scheduler(1_000.0);
    let with = |tick| LeakyBucket { tick: Duration::from_micros(tick), ..bucket(1_000.0, 10, None) };
    let flow = scheduler.add_flow(&through(with(1_000)), ms(0));
    enqueue(&mut scheduler, flow, 1_000, ms(0));
    let mut released = 0;
    for turn in 0..400 {
        let tick = [1_000, 7_000, 300, 5_000][turn as usize % 4];
        scheduler.set_bucket(flow, Some(with(tick)), at(turn * MILLI / 4)).unwrap();
        released += go(&mut scheduler, at(turn * MILLI / 4)).len();
    }
    scheduler.set_bucket(flow, Some(with(0)), ms(100)).unwrap();
    released += go(&mut scheduler, ms(100)).len();
    assert_eq!(released, 110);
}

/// The difference from a limit: what has its token keeps it, however long the storage makes it wait. With a
/// bound the wait is in front of the bucket, where nothing is late yet.
#[test]
fn releases_pile_up_behind_a_slow_storage_unless_bounded() {
    for (ahead, waiting, held) in [(None, 46, 3), (Some(3), 3, 46)] {
        let mut scheduler = scheduler(1.0);
        let flow = scheduler.add_flow(&through(bucket(40.0, 8, ahead)), ms(0));
        enqueue(&mut scheduler, flow, 50, ms(0));
        assert_eq!(go(&mut scheduler, ms(0)), [(flow, ms(0))]);
        let status = scheduler.status(flow, ms(975)).unwrap().bucket.unwrap();
        assert_eq!((status.released, status.held), (waiting, held), "{ahead:?}");
        let mut releases = Vec::new();
        for turn in 1..=10 {
            scheduler.complete(flow, ms(975 * turn)).unwrap();
            releases.extend(go(&mut scheduler, ms(975 * turn)).into_iter().map(|(_, released)| released));
        }
        let expected: Vec<Instant> = match ahead {
            // The bucket's eight at once, then one every 25 ms.
            None => [0, 0, 0, 0, 0, 0, 0, 25, 50, 75].map(ms).to_vec(),
            // Each in the place of the one that went three turns before, and with a token that was there long
            // before.
            Some(_) => [0, 0, 0, 975, 1_950, 2_925, 3_900, 4_875, 5_850, 6_825].map(ms).to_vec(),
        };
        assert_eq!(releases, expected, "{ahead:?}");
    }
}

#[test]
fn tokens_and_debts_outlive_a_change_of_rate() {
    let mut scheduler = scheduler(100.0);
    let flow = scheduler.add_flow(&through(bucket(10.0, 2, None)), ms(0));
    enqueue(&mut scheduler, flow, 20, ms(0));
    assert_eq!(go(&mut scheduler, ms(0)).len(), 2);
    // Half a token is there; the other half comes at the new rate.
    scheduler.set_bucket(flow, Some(bucket(100.0, 2, None)), ms(50)).unwrap();
    assert_eq!(scheduler.pull(ms(50)), PullAnswer::NotBefore(ms(55)));
    scheduler.set_bucket(flow, Some(bucket(0.0, 2, None)), ms(52)).unwrap();
    assert_eq!(scheduler.pull(ms(52)), PullAnswer::Nothing);
    assert_eq!(scheduler.pull(ms(9_000)), PullAnswer::Nothing);
    scheduler.set_bucket(flow, Some(bucket(100.0, 2, None)), ms(9_000)).unwrap();
    assert_eq!(scheduler.pull(ms(9_000)), PullAnswer::NotBefore(ms(9_003)));
    scheduler.set_bucket(flow, None, ms(9_001)).unwrap();
    assert_eq!(go(&mut scheduler, ms(9_001)).len(), 18);
    assert_eq!(scheduler.status(flow, ms(9_001)).unwrap().bucket, None);
}

#[test]
fn a_reservation_beyond_the_rate_gets_the_rate() {
    let mut scheduler = scheduler(1.0);
    let reserved = FlowConfig { reservation: Some(Iops::new(500.0)), ..through(bucket(100.0, 1, None)) };
    let reserved = scheduler.add_flow(&reserved, ms(0));
    let heavy = FlowConfig { weight: Shares::new(1_000_000).unwrap(), ..FlowConfig::default() };
    let heavy = scheduler.add_flow(&heavy, ms(0));
    let mut served = 0;
    for milli in 0..2_000 {
        for flow in [reserved, heavy] {
            let queued = scheduler.status(flow, ms(milli)).unwrap().queued;
            enqueue(&mut scheduler, flow, 2u32.saturating_sub(queued as u32), ms(milli));
        }
        let [(flow, _)] = go(&mut scheduler, ms(milli))[..] else { panic!("one at a time") };
        served += u32::from(flow == reserved);
        scheduler.complete(flow, ms(milli)).unwrap();
    }
    assert!((198..=201).contains(&served), "{served}");
}

/// Beyond a soft limit goes only what has been released.
#[test]
fn surplus_is_what_is_released_beyond_the_limit() {
    let mut scheduler = scheduler(100.0);
    let limit = ConsumerLimit {
        iops: Some(Iops::new(10.0)),
        bytes_per_s: None,
        burst: Duration::ZERO,
        beyond: BeyondLimit::Surplus,
    };
    let flow = FlowConfig { limit: Some(limit), ..through(bucket(100.0, 4, None)) };
    let flow = scheduler.add_flow(&flow, ms(0));
    enqueue(&mut scheduler, flow, 6, ms(0));
    assert_eq!(go(&mut scheduler, ms(0)), vec![(flow, ms(0)); 4], "one within the limit, three beyond");
    assert_eq!(scheduler.pull(ms(0)), PullAnswer::NotBefore(ms(10)));
    assert_eq!(go(&mut scheduler, ms(15)), [(flow, ms(10))]);
}

#[test]
fn an_exempt_flow_passes_its_bucket_and_then_goes_ahead_of_the_window() {
    let mut scheduler = scheduler(1.0);
    let exempt = scheduler.add_flow(&FlowConfig { exempt: true, ..through(bucket(100.0, 2, None)) }, ms(0));
    let other = scheduler.add_flow(&FlowConfig::default(), ms(0));
    enqueue(&mut scheduler, exempt, 3, ms(0));
    enqueue(&mut scheduler, other, 2, ms(0));
    assert_eq!(go(&mut scheduler, ms(0)), [(exempt, ms(0)), (exempt, ms(0)), (other, ms(0))]);
    assert_eq!(scheduler.pull(ms(3)), PullAnswer::NotBefore(ms(10)));
    assert_eq!(go(&mut scheduler, ms(12)), [(exempt, ms(10))]);
}

#[test]
fn a_limit_that_holds_the_head_counts_until_it_lets_go() {
    let mut scheduler = scheduler(1.0);
    let limit = ConsumerLimit {
        iops: Some(Iops::new(100.0)),
        bytes_per_s: None,
        burst: Duration::ZERO,
        beyond: BeyondLimit::Wait,
    };
    let flow = scheduler.add_flow(&FlowConfig { limit: Some(limit), ..FlowConfig::default() }, ms(0));
    enqueue(&mut scheduler, flow, 3, ms(0));
    assert_eq!(go(&mut scheduler, ms(0)), [(flow, ms(0))]);
    scheduler.complete(flow, ms(3)).unwrap();
    assert_eq!(scheduler.pull(ms(3)), PullAnswer::NotBefore(ms(10)));
    assert_eq!(go(&mut scheduler, ms(14)), [(flow, ms(10))], "the limit let it go, nobody took it");
    scheduler.complete(flow, ms(20)).unwrap();
    scheduler.set_limit(flow, Some(ConsumerLimit { iops: Some(Iops::ZERO), ..limit }), ms(22)).unwrap();
    assert_eq!(scheduler.pull(ms(23)), PullAnswer::Nothing);
    scheduler.set_limit(flow, None, ms(30)).unwrap();
    assert_eq!(go(&mut scheduler, ms(40)), [(flow, ms(30))]);
}

/// It takes the same tokens as the bucket beneath it, where the tick is none.
#[test]
fn without_a_tick_it_is_the_token_bucket() {
    let mut tokens = TokenBucket::new(Iops::new(333.0).into(), 3, ms(0));
    let mut scheduler = scheduler(1_000.0);
    let continuous = LeakyBucket { tick: Duration::ZERO, ..bucket(333.0, 3, None) };
    let flow = scheduler.add_flow(&through(continuous), ms(0));
    enqueue(&mut scheduler, flow, 1_000, ms(0));
    let mut last = ms(0);
    for (_, released) in go(&mut scheduler, ms(300)) {
        let before = at(released.as_nanos().saturating_sub(1));
        assert_eq!(tokens.ready_at(1, before.max(last)), Some(released));
        tokens.take(1, released);
        last = released;
    }
    assert_eq!(last.as_nanos() / MILLI, 297, "99 tokens and those of the bucket");
}

/// Who has hung up with a queue in front of the bucket does not hold up who comes back.
#[test]
fn what_is_behind_those_that_are_gone_moves_up() {
    let mut scheduler = scheduler::<u32>(64.0);
    let flow = scheduler.add_flow(&through(bucket(10.0, 1, Some(2))), ms(0));
    for request in 0..300 {
        scheduler.enqueue(flow, ms(0), request, StorageExtent { offset: 0, bytes: 4_096 }).unwrap();
    }
    let first = scheduler.pull(ms(0));
    assert!(matches!(first, PullAnswer::Request { request: 0, .. }), "{first:?}");
    scheduler.enqueue(flow, ms(50), 1_000, StorageExtent { offset: 0, bytes: 4_096 }).unwrap();
    let gone = scheduler.cancel(flow, ms(50), |&request| request < 1_000).unwrap();
    assert_eq!(gone, (1..300).collect::<Vec<_>>());
    assert_eq!((scheduler.queued(), scheduler.queued_bytes().get()), (1, 4_096));
    // The token that the first took is spent: the next comes after a tenth of a second, and not after half a
    // minute.
    assert_eq!(scheduler.pull(ms(50)), PullAnswer::NotBefore(ms(100)));
    assert_eq!(scheduler.pull(ms(100)), PullAnswer::Request { flow, request: 1_000, released: ms(100) });
    assert!(
        scheduler.cancel(flow, ms(100), |_| true).unwrap().is_empty(),
        "what is dispatched is not queued"
    );
}

#[test]
fn the_first_that_was_released_says_how_long_it_has_waited() {
    let mut scheduler = scheduler::<u32>(1.0);
    let flow = scheduler.add_flow(&through(bucket(10.0, 2, Some(2))), ms(0));
    for request in 0..4 {
        scheduler.enqueue(flow, ms(0), request, StorageExtent { offset: 0, bytes: 4_096 }).unwrap();
    }
    assert!(matches!(scheduler.pull(ms(0)), PullAnswer::Request { .. }));
    let waited = |scheduler: &Sfq<u32>, now| scheduler.status(flow, now).unwrap().bucket.unwrap().waited;
    // The second one has had a token since the beginning, and the window is full.
    assert_eq!(waited(&scheduler, ms(70)), Some(Duration::from_millis(70)));
    let gone = scheduler.cancel(flow, ms(150), |&request| request == 1).unwrap();
    assert_eq!(gone, [1]);
    // The third was released when its token came.
    assert_eq!(waited(&scheduler, ms(150)), Some(Duration::from_millis(50)));
    scheduler.cancel(flow, ms(150), |_| true).unwrap();
    assert_eq!(waited(&scheduler, ms(150)), None);
}

proptest! {
    /// Against queues that know only order: what is pulled is the oldest of its flow that is not gone, what
    /// is cancelled is all of its owner's, and none is lost or there twice.
    #[test]
    fn nothing_is_lost_and_nothing_overtaken_where_some_are_gone(
        operations in prop::collection::vec((0u8..4, 0usize..3, 0u32..3), 1..200),
        discipline in any::<bool>(),
    ) {
        let mut scheduler = if discipline { scheduler::<(u32, u32)>(3.0) } else {
            Sfq::new(SfqConfig { window: Some(Window::new(3.0)), ..SfqConfig::default() })
        };
        let limit = ConsumerLimit {
            iops: Some(Iops::new(200.0)), bytes_per_s: None, burst: Duration::from_millis(10),
                beyond: BeyondLimit::Surplus,
        };
        let configs = [
            FlowConfig::default(),
            through(LeakyBucket { dither: true, ..bucket(300.0, 3, Some(2)) }),
            FlowConfig { limit: Some(limit), reservation: Some(Iops::new(50.0)), ..FlowConfig::default() },
        ];
        let flows = configs.map(|config| scheduler.add_flow(&config, ms(0)));
        let mut expected = [const { VecDeque::new() }; 3];
        let (mut outstanding, mut number, mut now) = (VecDeque::new(), 0, 0);
        let everything = (0..4_000).map(|at| if at % 2 == 0 { (3, 0, 0) } else { (2, 0, 0) });
        for (what, flow, owner) in operations.into_iter().chain(everything) {
            now += 1;
            match what {
                0 => {
                    scheduler.enqueue(flows[flow], ms(now), (owner, number),
                        StorageExtent { offset: 0, bytes: 512 }).unwrap();
                    expected[flow].push_back((owner, number));
                    number += 1;
                }
                1 => {
                    let gone = scheduler.cancel(flows[flow], ms(now), |request| request.0 == owner).unwrap();
                    let (theirs, others): (Vec<_>, VecDeque<_>) = {
                        let queue = std::mem::take(&mut expected[flow]);
                        let (theirs, others): (VecDeque<_>, VecDeque<_>) =
                            queue.into_iter().partition(|request: &(u32, u32)| request.0 == owner);
                        (theirs.into(), others)
                    };
                    expected[flow] = others;
                    prop_assert_eq!(gone, theirs);
                }
                2 => if let Some(flow) = outstanding.pop_front() {
                    scheduler.complete(flow, ms(now)).unwrap();
                },
                _ => match scheduler.pull(ms(now)) {
                    PullAnswer::Request { flow, request, .. } => {
                        let at = flows.iter().position(|&other| other == flow).unwrap();
                        prop_assert_eq!(Some(request), expected[at].pop_front());
                        outstanding.push_back(flow);
                    }
                    PullAnswer::NotBefore(time) => prop_assert!(time > ms(now)),
                    PullAnswer::Nothing => {}
                },
            }
            prop_assert_eq!(scheduler.queued(), expected.iter().map(VecDeque::len).sum::<usize>());
            prop_assert_eq!(scheduler.queued_bytes().get(), 512 * scheduler.queued() as u64);
        }
        prop_assert_eq!(scheduler.queued(), 0, "all that is left goes in the end");
    }
}
