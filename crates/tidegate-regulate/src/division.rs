//! Division of a delay among consumers, by their weights.
//!
//! A law decides on one delay d for all members of a resource. With weights, each member has a delay of its
//! own, such that the throughput of each is in proportion to its weight. A member that keeps n requests
//! outstanding completes n/(s + d) per second, s being the time at the storage (Little's law). So the time of
//! member i is made s + dᵢ = c·fᵢ·(s + d).
//!
//! The factors fᵢ are found by feedback, since neither the requests that a member would keep outstanding nor
//! the number of delayed packets for each request are known: ln fᵢ follows ln(xᵢ/shareᵢ), xᵢ being the
//! throughput that was measured.
//!
//! The factor c keeps the law's ground. It is such that all members together complete as much as they would
//! if each waited for d, which takes c = Σ(nᵢ/fᵢ)/Σnᵢ. So a delay does to the storage what it does without
//! weights, and a law takes no other gains.
//!
//! Only a delay that lasts is divided so. If a sudden change were divided in proportion to each member's
//! time, short times would hardly change, and members with short times do the most at the storage. The
//! latency would follow the law too little, and at long delays law and division would swing against each
//! other. Therefore d above is an average of [`MEMORY`], as s is. The difference between the law's delay and
//! that average is added to the delay of all members alike, as it is without weights.
//!
//! A member that is not delayed and has less than its share wants no more, and the others divide the rest.

use std::time::Duration;

use tidegate_control::OperationTotals;
use tidegate_units::{Latency, Shares};

use crate::delay::{MEMORY, STEP};
use crate::pace::remembered;

/// The change of ln f per second, for each unit of ln(x/share). The throughput is an average of [`MEMORY`],
/// so an integral gain of 1/(2·1 s) is damped by 0.7: shares settle within some five seconds, without
/// overshoot to speak of.
const PER_SECOND: f64 = 0.5;

/// The greatest distance from a share that counts, as ln(x/share): a pause is no reason to leap afterwards.
const MOST_APART: f64 = 1.0;

/// The greatest ln f: a thousandfold in either direction.
const GREATEST_FACTOR: f64 = 7.0;

/// A member's part in a divided delay.
#[derive(Debug, Clone)]
pub(crate) struct WeightedShare {
    weight: f64,
    /// Weighted by age: seconds, and what the member did in them.
    seconds: f64,
    bytes: f64,
    completed: f64,
    /// The time of its requests at the storage, in seconds.
    at_storage: f64,
    /// Requests times the seconds that they were outstanding, delayed or at the storage.
    outstanding: f64,
    /// Seconds times the law's delay in them, in seconds.
    law_delay: f64,
    /// ln f.
    factor: f64,
    delay: Latency,
}

impl WeightedShare {
    /// Begins as if all members kept as many requests outstanding.
    pub(crate) fn new(weight: Shares) -> Self {
        Self {
            weight: weight.as_f64(),
            seconds: 0.0,
            bytes: 0.0,
            completed: 0.0,
            at_storage: 0.0,
            outstanding: 0.0,
            law_delay: 0.0,
            factor: -weight.as_f64().ln(),
            delay: Latency::ZERO,
        }
    }

    /// Changes the weight; what was learnt of the member stays.
    pub(crate) fn weigh(&mut self, weight: Shares) {
        self.factor -= (weight.as_f64() / self.weight).ln();
        self.weight = weight.as_f64();
    }

    /// The delay that is to be in force.
    pub(crate) const fn delay(&self) -> Latency {
        self.delay
    }

    /// Takes what the throttle may delay of its requests, the mean number of requests outstanding, and the
    /// law's delay.
    pub(crate) fn observe(
        &mut self,
        elapsed: Duration,
        done: &[OperationTotals],
        outstanding: f64,
        delay: Latency,
    ) {
        let (keep, seconds) = (remembered(elapsed, MEMORY), elapsed.as_secs_f64());
        let sum = |of: fn(&OperationTotals) -> f64| done.iter().map(of).sum::<f64>();
        self.seconds = keep * self.seconds + seconds;
        self.bytes = keep * self.bytes + sum(|done| done.bytes.get() as f64);
        self.completed = keep * self.completed + sum(|done| done.count as f64);
        self.at_storage = keep * self.at_storage + sum(|done| done.total_latency.as_secs_f64());
        self.outstanding = keep * self.outstanding + outstanding * seconds;
        self.law_delay = keep * self.law_delay + delay.as_secs_f64() * seconds;
    }

    /// Bytes per second for each unit of weight; `None` if it did nothing lately.
    fn throughput(&self) -> Option<f64> {
        // Less than a request a second is no throughput to divide by.
        (self.seconds > 0.0 && self.completed >= 1.0 && self.bytes > 0.0)
            .then(|| self.bytes / self.seconds / self.weight)
    }

    /// Moves its factor, `apart` from its share as ln(x/share).
    fn follow(&mut self, elapsed: Duration, apart: f64, longest: Latency) {
        let has_all = self.delay == Latency::ZERO && apart <= 0.0;
        let has_least = self.delay >= longest && apart > 0.0;
        if !has_all && !has_least {
            self.factor += PER_SECOND * elapsed.as_secs_f64() * apart.clamp(-MOST_APART, MOST_APART);
        }
    }
}

/// Divides the delay of a law among members, after `elapsed` since the last time. No delay is longer than
/// `longest`.
pub(crate) fn divide(shares: &mut [&mut WeightedShare], delay: Latency, longest: Latency, elapsed: Duration) {
    if delay == Latency::ZERO {
        shares.iter_mut().for_each(|share| share.delay = Latency::ZERO);
        return;
    }
    // Members without a delay are no measure: they may want no more.
    let held = |share: &&&mut WeightedShare| share.delay > Latency::ZERO && share.throughput().is_some();
    let weight: f64 = shares.iter().filter(held).map(|share| share.weight).sum();
    let throughput: f64 =
        shares.iter().filter(held).filter_map(|share| Some(share.throughput()? * share.weight)).sum();
    for share in shares.iter_mut().filter(|_| weight > 0.0 && throughput > 0.0) {
        if let Some(own) = share.throughput() {
            share.follow(elapsed, (own / (throughput / weight)).ln(), longest);
        }
    }
    // Only their ratios count: c makes up for the rest.
    let middle = shares.iter().map(|share| share.factor).sum::<f64>() / shares.len().max(1) as f64;
    for share in shares.iter_mut() {
        share.factor = (share.factor - middle).clamp(-GREATEST_FACTOR, GREATEST_FACTOR);
    }
    let outstanding: f64 = shares.iter().map(|share| share.outstanding).sum();
    let divided: f64 = shares.iter().map(|share| share.outstanding / share.factor.exp()).sum();
    let common = if outstanding > 0.0 { divided / outstanding } else { 1.0 };
    let completed: f64 = shares.iter().map(|share| share.completed).sum();
    let at_storage: f64 = shares.iter().map(|share| share.at_storage).sum();
    let of_all = if completed > 0.0 { at_storage / completed } else { 0.0 };
    for share in shares {
        let at_storage = if share.completed >= 1.0 { share.at_storage / share.completed } else { of_all };
        let lasting = if share.seconds > 0.0 { share.law_delay / share.seconds } else { delay.as_secs_f64() };
        let in_proportion = common * share.factor.exp() * (at_storage + lasting) - at_storage;
        let own = in_proportion + (delay.as_secs_f64() - lasting);
        let steps = Latency::from_secs_f64(own.max(0.0)).min(longest).as_nanos().div_ceil(STEP.as_nanos());
        share.delay = Latency::from_nanos(steps * STEP.as_nanos()).min(longest);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tidegate_units::Bytes;

    use super::*;

    const INTERVAL: Duration = Duration::from_millis(250);
    const LONGEST: Latency = Latency::from_millis(2_000);
    const GOAL: f64 = 0.020;

    /// A member in a closed loop.
    #[derive(Debug, Clone, Copy)]
    struct Member {
        weight: u32,
        outstanding: f64,
        /// Delayed packets for each request: a write that is asked for its data waits twice.
        delays: f64,
    }

    /// Storage that completes so many requests per second, and the law's delay, which follows its latency.
    struct Loop {
        members: Vec<Member>,
        shares: Vec<WeightedShare>,
        /// The part of a request that each member completed, and that is not counted yet.
        begun: Vec<f64>,
        capacity: f64,
        delay: f64,
        latency: f64,
    }

    impl Loop {
        fn new(members: &[Member], capacity: f64) -> Self {
            let shares = members.iter().map(|member| WeightedShare::new(Shares::new(member.weight).unwrap()));
            Self {
                members: members.to_vec(),
                shares: shares.collect(),
                begun: vec![0.0; members.len()],
                capacity,
                delay: 0.0,
                latency: 0.0,
            }
        }

        fn throughputs(&self, latency: f64) -> Vec<f64> {
            let of = |(member, share): (&Member, &WeightedShare)| {
                member.outstanding / (latency + member.delays * share.delay().as_secs_f64())
            };
            self.members.iter().zip(&self.shares).map(of).collect()
        }

        fn run(&mut self, seconds: u32) -> Vec<f64> {
            for _ in 0..seconds * 4 {
                // The time at the storage at which it completes what it can.
                let (mut least, mut most) = (0.000_5, 100.0);
                for _ in 0..40 {
                    let middle = (least + most) / 2.0;
                    let all: f64 = self.throughputs(middle).iter().sum();
                    (least, most) = if all > self.capacity { (middle, most) } else { (least, middle) };
                }
                self.latency = most;
                self.delay = (self.delay + 2.5 * INTERVAL.as_secs_f64() * (self.latency - GOAL)).max(0.0);
                let done = self.throughputs(self.latency);
                let delay = Latency::from_secs_f64(self.delay);
                for (place, share) in self.shares.iter_mut().enumerate() {
                    let completed = self.begun[place] + done[place] * INTERVAL.as_secs_f64();
                    let count = completed.floor();
                    self.begun[place] = completed - count;
                    let totals = OperationTotals {
                        count: count as u64,
                        bytes: Bytes::new((count * 65_536.0) as u64),
                        total_latency: Latency::from_secs_f64(count * self.latency),
                        ..OperationTotals::default()
                    };
                    share.observe(INTERVAL, &[totals], self.members[place].outstanding, delay);
                }
                let mut shares: Vec<_> = self.shares.iter_mut().collect();
                divide(&mut shares, delay, LONGEST, INTERVAL);
            }
            self.throughputs(self.latency)
        }
    }

    fn member(weight: u32, outstanding: f64) -> Member {
        Member { weight, outstanding, delays: 1.0 }
    }

    #[test]
    fn throughputs_are_as_the_weights_whatever_is_outstanding() {
        let members = [member(4, 24.0), member(2, 8.0), member(1, 16.0)];
        let mut all = Loop::new(&members, 500.0);
        let done = all.run(40);
        assert!((done[0] / done[2] - 4.0).abs() < 0.2, "{done:?}");
        assert!((done[1] / done[2] - 2.0).abs() < 0.1, "{done:?}");
        assert!((all.latency - GOAL).abs() < 0.1 * GOAL, "{}", all.latency);
    }

    #[test]
    fn a_member_that_wants_less_than_its_share_is_not_delayed_and_the_others_divide_the_rest() {
        // The first one has 50 per second at 20 ms, of 500.
        let members = [member(4, 1.0), member(2, 16.0), member(1, 16.0)];
        let mut all = Loop::new(&members, 500.0);
        let done = all.run(60);
        assert_eq!(all.shares[0].delay(), Latency::ZERO, "{done:?}");
        assert!((done[1] / done[2] - 2.0).abs() < 0.1, "{done:?}");
    }

    #[test]
    fn another_weight_counts_at_once() {
        let mut all = Loop::new(&[member(4, 16.0), member(1, 16.0)], 400.0);
        all.run(30);
        let before: Vec<_> = all.shares.iter().map(WeightedShare::delay).collect();
        assert!(before[0] < before[1]);
        for (member, share) in all.shares.iter_mut().enumerate() {
            share.weigh(Shares::new([1, 4][member]).unwrap());
        }
        let done = all.run(1);
        assert!(done[1] > 3.0 * done[0], "{done:?}");
    }

    #[test]
    fn without_a_delay_there_is_nothing_to_divide() {
        let mut share = WeightedShare::new(Shares::new(3).unwrap());
        share.delay = Latency::from_millis(7);
        divide(&mut [&mut share], Latency::ZERO, LONGEST, INTERVAL);
        assert_eq!(share.delay(), Latency::ZERO);
        divide(&mut [], Latency::from_millis(1), LONGEST, INTERVAL);
    }

    proptest! {
        #[test]
        fn shares_and_goal_are_kept_by_any_members(
            weights in prop::collection::vec((1_u32..8, 4.0..64.0, 1.0..2.0), 2..6),
            capacity in 300.0..2_000.0,
        ) {
            let members: Vec<_> = weights
                .iter()
                .map(|(weight, outstanding, delays)| {
                    Member { weight: *weight, outstanding: *outstanding, delays: *delays }
                })
                .collect();
            let all: f64 = members.iter().map(|member| f64::from(member.weight)).sum();
            let due = |member: &Member| capacity * f64::from(member.weight) / all;
            // Each one could do more than its share, and no delay is as long as it may be.
            for member in &members {
                let time = member.outstanding / due(member);
                prop_assume!(time > 1.3 * GOAL && time < 0.9 * LONGEST.as_secs_f64());
            }
            let mut world = Loop::new(&members, capacity);
            let done = world.run(90);
            for (member, done) in members.iter().zip(&done) {
                prop_assert!((done / due(member) - 1.0).abs() < 0.1, "{done} of {}", due(member));
            }
            prop_assert!((world.latency - GOAL).abs() < 0.15 * GOAL, "{}", world.latency);
        }

        #[test]
        fn whatever_is_seen_a_delay_is_within_its_bounds(
            seen in prop::collection::vec(
                (0..5_u32, any::<u32>(), any::<u64>(), any::<f64>(), any::<u32>()),
                1..40,
            ),
        ) {
            let mut shares = [1, 3].map(|weight| WeightedShare::new(Shares::new(weight).unwrap()));
            for (steps, count, bytes, outstanding, delay) in seen {
                let done = OperationTotals {
                    count: count.into(),
                    bytes: Bytes::new(bytes),
                    ..OperationTotals::default()
                };
                let outstanding = if outstanding.is_finite() { outstanding.abs() } else { 0.0 };
                let delay = Latency::from_micros(delay.into());
                shares[0].observe(INTERVAL * steps, &[done], outstanding, delay);
                shares[1].observe(INTERVAL * steps, &[], 1.0, delay);
                let [one, other] = &mut shares;
                divide(&mut [one, other], delay, LONGEST, INTERVAL * steps);
                prop_assert!(shares.iter().all(|share| share.delay() <= LONGEST));
            }
        }
    }
}
