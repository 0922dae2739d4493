//! The response time of a queue over its throughput, learnt while it runs. The self-tuning law uses it when
//! no line fits.
//!
//! Near its capacity C a storage's response time grows beyond all bounds, `w = p/(C − u)`: of a single server
//! with random arrivals and service p is 1, with evenly released requests it comes down to a half, and with
//! many servers it is about their number. No line through the origin describes that: the one that fits an
//! overload is far too flat at the goal, and the other way round. But its reciprocal is a line in u,
//!
//! `1/w = (C − u)/p`,
//!
//! so that two measurements know the whole curve, however far they are from the goal. It is the model of
//! [`queueing`](crate::law::queueing::station), since by Little's law `n = u·w`, in terms of the throughput
//! that a rate commands.

use serde::{Deserialize, Serialize};

use crate::document::model::{LearningOutcome, QueueModel};
use crate::estimate::rls::Rls;

/// Uncertainty of p before anything was learnt, as a variance relative to it.
const UNCERTAIN: f64 = 1.0;

/// For so many intervals a model may change as it likes: it has two parameters, and had one measurement.
const YOUNG: u32 = 2;

/// So many standard deviations are no chance.
const CHANCE: f64 = 3.0;

/// Assumed error of predictions before there were any, as a part.
const FIRST_DEVIATION: f64 = 0.1;

/// The part that one error has in their variance.
const NEW: f64 = 0.1;

/// A prediction that is wrong by this part of the greater one is wrong however noisy the storage is.
const MOST_NOISE: f64 = 0.6;

/// A storage that became a hundred times faster or slower has not changed, but stalled, or stood still:
/// nothing of it is known.
const ANOTHER: f64 = 0.99;

/// The least p: of a volume that is limited to a twentieth of its ability, and serves quickly up to there.
const LEAST_PARALLELISM: f64 = 0.05;

/// p of a single server to which requests come evenly, near its capacity: what a storage is taken for that
/// has become another one.
const ONE_SERVER: f64 = 0.5;

/// Least uncertainty of p once a storage has become another one, as a variance relative to it. A cache need
/// not have as many servers as the disk behind it.
const UNCERTAIN_ANEW: f64 = 0.25;

/// By how much the throughput may grow in an interval while response times are far below the goal.
const GROWTH: f64 = 2.0;

/// The same in so many intervals after a storage that had been one for as many has become a faster one, as
/// from a disk to a cache: what it bore before says that it bears more. Not where overloads and pauses, one
/// after the other, make new storages of it.
const GROWTH_OF_A_FASTER: f64 = 3.0;
const CLIMB: u32 = 4;

/// Beyond this many servers, a storage is as good as flat.
const MOST_PARALLELISM: f64 = 1e6;

/// A slope stays a number, whatever was measured.
const FLATTEST: f64 = 1e-12;
const STEEPEST: f64 = 1e12;

/// A predicted 1/w is at least this part of the first one.
const LEAST_PART: f64 = 1e-3;

/// `(w₀/w) = level − slope·(u/u₀ − 1)`, in units in which the measurement that it began with is 1.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Hyperbola {
    rls: Rls<2>,
    ms: f64,
    iops: f64,
    /// The variance of what predictions are wrong by, as a part.
    variance: f64,
    /// For how many intervals there has been this model.
    age: u32,
    /// It was begun because the storage had become faster.
    faster: bool,
}

impl Hyperbola {
    /// Returns the curve from nothing but one measurement and a goal. p is at least that of a single server,
    /// and at most the number of requests at the goal. At the latter p the point for the goal is in
    /// proportion. It is the careful choice of the two if the storage is overloaded.
    fn first(ms: f64, iops: f64, requests: u64, goal_ms: f64) -> Self {
        let parallelism = (iops * goal_ms / 1e3).clamp(1.0, MOST_PARALLELISM);
        Self::begin(ms, iops, requests, parallelism, UNCERTAIN, FIRST_DEVIATION.powi(2))
    }

    /// `uncertain`: the variance of p, relative to it.
    fn begin(ms: f64, iops: f64, requests: u64, parallelism: f64, uncertain: f64, variance: f64) -> Self {
        let slope = (iops * ms / 1e3 / parallelism).clamp(FLATTEST, STEEPEST);
        let initial = [variance.max(by_chance(requests).powi(2)), UNCERTAIN * slope * slope];
        let rls =
            Rls::known([1.0, -slope], [initial[0], (uncertain * slope * slope).min(initial[1])], initial);
        Self { rls, ms, iops, variance, age: 0, faster: false }
    }

    /// The model after an interval with a mean response time, positive, and a throughput, positive.
    pub(super) fn after(
        old: Option<Self>,
        (forgetting, reset_change): (f64, f64),
        (ms, iops, requests): (f64, f64, u64),
        goal_ms: f64,
    ) -> (LearningOutcome, Self) {
        let first = || Self::first(ms, iops, requests, goal_ms);
        let Some(old) = old else { return (LearningOutcome::First, first()) };
        let error = old.error(ms, iops);
        if error > ANOTHER {
            return (LearningOutcome::Reset, first());
        }
        let deviation = old.variance.sqrt().max(by_chance(requests));
        if old.age >= YOUNG && error > (CHANCE * deviation).min(MOST_NOISE).max(reset_change) {
            // The storage became faster or slower as a whole: p stays, but for one of less than a server's,
            // and is less certain.
            let [_, slope] = old.rls.estimate();
            let uncertain = (old.rls.variance(1) / (slope * slope)).max(UNCERTAIN_ANEW);
            let parallelism = old.model().parallelism.max(ONE_SERVER);
            let faster = ms < old.ms_at(iops) && old.age >= CLIMB;
            let anew = Self::begin(ms, iops, requests, parallelism, uncertain, old.variance);
            let anew = Self { faster, ..anew };
            return (LearningOutcome::Reset, if anew.is_sound() { anew } else { first() });
        }
        let mut new = Self { age: old.age.saturating_add(1), ..old };
        if new.age >= YOUNG {
            new.variance += NEW * (error * error - new.variance);
        }
        // What a measurement is wrong by is a part of it.
        let noise = old.variance.sqrt().max(by_chance(requests)) * old.ms / old.ms_at(iops);
        new.rls.learn_weighed([1.0, iops / old.iops - 1.0], old.ms / ms, forgetting, noise * noise);
        let [_, slope] = new.rls.estimate();
        let steepest = -old.iops * old.ms / 1e3 / LEAST_PARALLELISM;
        let flattest = -old.iops * old.ms / 1e3 / MOST_PARALLELISM;
        let possible = slope.clamp(steepest, flattest);
        if (slope - possible).abs() > 0.0 {
            new.rls.hold(1, possible);
        }
        if new.is_sound() { (LearningOutcome::Updated, new) } else { (LearningOutcome::Reset, first()) }
    }

    fn is_sound(&self) -> bool {
        let [level, slope] = self.rls.estimate();
        level.is_finite() && slope < 0.0 && (1.0 / slope).is_finite() && self.rls.variance(1).is_finite()
    }

    /// w at a throughput, in milliseconds, positive.
    fn ms_at(&self, iops: f64) -> f64 {
        let [level, slope] = self.rls.estimate();
        self.ms / (level + slope * (iops / self.iops - 1.0)).max(LEAST_PART)
    }

    /// Returns the error of a prediction, as a part of the greater value.
    pub(super) fn error(&self, ms: f64, iops: f64) -> f64 {
        apart(ms, self.ms_at(iops))
    }

    /// The operating point for a goal, after an interval like this, in IO/s. May be negative.
    pub(super) fn control(&self, goal_ms: f64, (ms, iops, requests): (f64, f64, u64)) -> f64 {
        let [level, slope] = self.rls.estimate();
        let wanted = self.iops * (1.0 + (self.ms / goal_ms - level) / slope);
        if ms >= goal_ms {
            return wanted.min(iops);
        }
        // An unmeasured load is believed as far as the known room, or a single server, bears. For the latter
        // a mean of few requests is taken for one standard error longer, lest consumers be released by
        // chance.
        let alone = 1e3 / (ms * (1.0 + by_chance(requests))) - 1e3 / goal_ms;
        wanted.min(iops * self.growth(goal_ms, ms)).max(wanted.min(iops + alone))
    }

    /// Returns the greatest growth of the throughput, as a factor, after an interval with a response time
    /// below the goal. Only more requests show how many servers a storage has. Near the goal the factor is
    /// close to 1, whatever the model.
    pub(super) fn growth(&self, goal_ms: f64, ms: f64) -> f64 {
        let room = goal_ms / ms;
        let most = if self.faster && self.age <= CLIMB { GROWTH_OF_A_FASTER } else { GROWTH };
        room.powf(most).min(room.max(most))
    }

    pub(super) fn model(&self) -> QueueModel {
        let [level, slope] = self.rls.estimate();
        QueueModel {
            capacity: self.iops * (1.0 - level / slope),
            parallelism: -self.iops * self.ms / 1e3 / slope,
        }
    }
}

/// By how much two differ, as a part of the greater.
pub(super) fn apart(left: f64, right: f64) -> f64 {
    (left - right).abs() / left.max(right)
}

/// The standard error of a mean of exponentially distributed times, as a part of it.
fn by_chance(requests: u64) -> f64 {
    1.0 / (requests.max(1) as f64).sqrt()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64Mcg;

    use super::*;

    const HOW: (f64, f64) = (0.7, 0.3);

    /// Many requests, so that nothing is by chance.
    const MANY: u64 = 1_000_000;

    /// A storage with p servers, and `clients` that have one request outstanding each.
    #[derive(Clone, Copy)]
    struct Storage {
        capacity: f64,
        parallelism: f64,
        clients: f64,
    }

    impl Storage {
        /// Returns the throughput at a rate, and its response time. By Little's law the throughput is at most
        /// `clients/w`.
        fn at(&self, rate: f64) -> (f64, f64) {
            let most = self.capacity * self.clients / (self.clients + self.parallelism);
            let done = rate.min(most);
            (done, self.parallelism / (self.capacity - done) * 1e3)
        }
    }

    /// Operating points, from a rate on.
    fn run(
        model: &mut Option<Hyperbola>,
        storage: Storage,
        goal: f64,
        mut rate: f64,
        intervals: usize,
    ) -> Vec<f64> {
        (0..intervals)
            .map(|_| {
                let (done, ms) = storage.at(rate);
                let (_, next) = Hyperbola::after(*model, HOW, (ms, done, MANY), goal);
                rate = next.control(goal, (ms, done, MANY)).max(6.0);
                *model = Some(next);
                rate
            })
            .collect()
    }

    /// The oracle: C − p/goal. From an overload, and after it has become another storage with another goal,
    /// both ways.
    #[test]
    fn two_measurements_know_the_curve() {
        let (mut model, mut rate) = (None, 1e9);
        for (capacity, goal) in [(164.0, 15.0), (960.0, 2.5), (164.0, 15.0)] {
            let storage = Storage { capacity, parallelism: 1.0, clients: 8.0 };
            let points = run(&mut model, storage, goal, rate, 6);
            let wanted = capacity - 1e3 / goal;
            assert!(
                points[2..].iter().all(|point| (point / wanted - 1.0).abs() < 0.05),
                "{capacity}: {points:?}"
            );
            rate = points[5];
        }
    }

    #[test]
    fn an_array_of_many_disks_is_learnt_as_well() {
        let storage = Storage { capacity: 4_000.0, parallelism: 20.0, clients: 100.0 };
        let goal = 12.0;
        for begin in [1e9, 20.0] {
            let points = run(&mut None, storage, goal, begin, 25);
            let wanted = 4_000.0 - 20e3 / goal;
            assert!((points[24] / wanted - 1.0).abs() < 0.02, "{begin}: {points:?}");
        }
    }

    #[test]
    fn a_million_noisy_intervals_make_it_neither_blind_nor_jumpy() {
        let mut random = Pcg64Mcg::seed_from_u64(5);
        let (mut model, mut rate, goal) = (None, 300.0, 10.0);
        let mut storage = Storage { capacity: 500.0, parallelism: 1.0, clients: 16.0 };
        let mut sum = 0.0;
        for _ in 0..1_000_000 {
            let (done, ms) = storage.at(rate);
            let seen = (ms * random.random_range(0.8..1.2), done, 400);
            let (_, next) = Hyperbola::after(model, HOW, seen, goal);
            rate = next.control(goal, seen).max(6.0);
            model = Some(next);
            sum += rate;
        }
        assert!((sum / 1e6 / 400.0 - 1.0).abs() < 0.05, "{}", sum / 1e6);
        storage.capacity = 2_000.0;
        let points = run(&mut model, storage, goal, rate, 6);
        assert!((points[5] / 1_900.0 - 1.0).abs() < 0.1, "{points:?}");
    }

    /// Seven requests do not show that there is room for a thousand.
    #[test]
    fn few_requests_are_taken_for_a_standard_error_longer() {
        let few = Hyperbola::after(None, HOW, (1.0, 7.0, 7), 2.5).1.control(2.5, (1.0, 7.0, 7));
        let many = Hyperbola::after(None, HOW, (1.0, 7.0, MANY), 2.5).1.control(2.5, (1.0, 7.0, MANY));
        assert!(many > 600.0 && few < many - 250.0 && few > 200.0, "{few} {many}");
    }

    fn anything() -> impl Strategy<Value = f64> {
        // The greatest is beyond the nanoseconds of 64 bits, in milliseconds.
        prop_oneof![1e-6..1e3_f64, 1e-6..1e14_f64, prop::sample::select(vec![1e-6, 6.0, 1e9, 1e14])]
    }

    proptest! {
        #[test]
        fn whatever_is_measured_what_is_asked_for_is_a_number(
            steps in prop::collection::vec((anything(), anything(), any::<u64>(), 1e-6..1e9_f64), 1..60)
        ) {
            let mut model = None;
            for (ms, iops, requests, goal) in steps {
                let point = (ms, iops, requests);
                let (_, next) = Hyperbola::after(model, HOW, point, goal);
                prop_assert!(!next.control(goal, point).is_nan(), "{next:?}");
                prop_assert!(next.error(ms, iops) >= 0.0, "{next:?}");
                model = Some(next);
            }
        }
    }
}
