//! A self-tuning regulator with the model of a queue, and with its throttle: a window. It is not from a
//! paper, but from queueing theory, and from the reasons for which the papers' laws are slow or restless.
//!
//! Where the throttle is a rate, a storage near its capacity is as steep as can be: response times over
//! throughput have a pole there, no line fits both sides of the knee, and an operating point that is too high
//! by a per cent piles requests up until the next decision. Over the number n of requests at the storage they
//! are a line, for every balanced closed network of queues (mean value analysis):
//!
//! `w = (n + p)/C`
//!
//! with the capacity C, and p, what the storage serves at once beside one request: nothing for a single
//! server, nearly the number of disks for a striped array. The number for a goal is `n = C·goal − p`. By
//! Little's law n is throughput times response time, so that C and p are all there is to learn.
//!
//! - **The window is an inner loop.** It holds n from request to request, while a law that commands rates
//!   waits for its next interval: when a storage becomes slower, n requests take longer, and no more come.
//! - **The gain comes with the unit.** A cache and a disk differ thirty-fold in milliseconds per IO/s, and
//!   not at all in what n is for a goal that is as many times the response time without load. A move from one
//!   to the other is right before anything is learnt.
//! - **PARDA's law is this with p = 0**, and β besides: `n·𝓛/w`. On an array of many disks it then goes to
//!   its goal by small steps. A learnt p makes them one step. While nothing is known, p is zero. A law that
//!   raises n by the goal over the response time never passes the goal, whatever p is.
//! - **No bursts.** When a measurement contradicts the model beyond chance, C is taken anew from that
//!   measurement and p is kept: the storage became faster or slower as a whole. The law never releases
//!   consumers as an experiment.
//! - **Goals, bands and hosts** are those of the self-tuning law: n is told as the throughput that it has at
//!   the goal, n/goal, the lowest of all wins, bands divide it, and each host has the window of its part.

use serde::{Deserialize, Serialize};
use tidegate_units::Latency;

use crate::document::model::{LearningOutcome, QueueModel};
use crate::estimate::rls::Rls;
use crate::law::queueing::config::QueueLearning;

/// Uncertainty of the response time at the first measurement, as a variance relative to it.
const UNCERTAIN: f64 = 1.0;

/// Uncertainty of the slope, likewise. The slope lies between nothing and proportional, and still is the
/// first thing to learn. Learning begins with the second measurement, if that is at another number of
/// requests.
const UNCERTAIN_SLOPE: f64 = 10.0;

/// For so many intervals a model may change as it likes: it has two parameters, and had one measurement.
const YOUNG: u32 = 2;

/// So many standard deviations are no chance.
const CHANCE: f64 = 3.0;

/// Assumed size of prediction errors before there were any, as a part of the prediction.
const FIRST_DEVIATION: f64 = 0.1;

/// The part that one error has in their variance.
const NEW: f64 = 0.1;

/// A prediction that is wrong by this part of the greater one is wrong however noisy the storage is.
const MOST_NOISE: f64 = 0.6;

/// The least slope, as a part of the response time per number of requests of the first measurement.
const FLATTEST: f64 = 0.02;

/// By how much n grows at most in an interval beyond what was there, or asked for, other than in proportion
/// to the response time.
const GROWTH: f64 = 2.0;

/// Fewer requests than this at the storage say nothing of how it bears many.
const NOBODY: f64 = 0.01;

/// Requests of eligible consumers at the storage in an interval.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct AtStorage {
    /// Mean number of their requests at the storage.
    pub outstanding: f64,
    /// Their mean response time. Zero: none completed.
    pub mean: Latency,
}

/// Measurements of an interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct IntervalPoint {
    /// The mean response time of the requests that count, in milliseconds, positive.
    pub(crate) ms: f64,
    /// From how many requests.
    pub(crate) requests: u64,
    /// Requests of the eligible consumers.
    pub(crate) held: AtStorage,
}

/// A model, in units in which the measurement that it began with is (1, 1): `w = level + slope·(n − 1)`.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct StationModel {
    rls: Rls<2>,
    ms: f64,
    outstanding: f64,
    /// The variance of what predictions are wrong by, as a part.
    variance: f64,
    /// For how many intervals there has been this model.
    age: u32,
    /// n as it was asked for last.
    asked: f64,
    /// Ratio of the eligible consumers' response time to that of the requests that count.
    turn: f64,
}

impl StationModel {
    /// From one measurement, and a parallelism.
    fn begin(point: IntervalPoint, parallelism: f64, variance: f64, asked: f64) -> Self {
        let outstanding = point.held.outstanding;
        let slope = (outstanding / (outstanding + parallelism)).max(FLATTEST);
        let rls = Rls::new([1.0, slope], [UNCERTAIN, UNCERTAIN_SLOPE]);
        Self { rls, ms: point.ms, outstanding, variance, age: 0, asked, turn: 1.0 }
    }

    /// The model after an interval. `None` as long as no eligible consumer was there.
    pub(crate) fn after(
        old: Option<Self>,
        config: &QueueLearning,
        point: IntervalPoint,
    ) -> Option<(LearningOutcome, Self)> {
        let absent = point.held.outstanding.is_nan() || point.held.outstanding <= NOBODY;
        let turn = point.held.mean.as_millis_f64() / point.ms;
        let turned =
            |station: Self| if turn > 0.0 && turn.is_finite() { Self { turn, ..station } } else { station };
        let (learnt, station) = match old.filter(Self::is_sound) {
            None if absent => return None,
            None => (
                LearningOutcome::First,
                Self::begin(point, 0.0, FIRST_DEVIATION.powi(2), point.held.outstanding),
            ),
            Some(old) => old.learn(config, point, absent),
        };
        Some((learnt, turned(station)))
    }

    fn learn(self, config: &QueueLearning, point: IntervalPoint, absent: bool) -> (LearningOutcome, Self) {
        let predicted = self.ms_at(point.held.outstanding);
        let error = (point.ms - predicted).abs() / point.ms.max(predicted);
        // Of few requests: the standard error of a mean of exponentially distributed times.
        let chance = CHANCE * self.variance.sqrt().max(1.0 / (point.requests as f64).sqrt());
        let contradicts = error > chance.min(MOST_NOISE).max(config.reset_change);
        if contradicts && (absent || self.age >= YOUNG) {
            // Without eligible consumers, long response times are not their effect.
            let anew = Self::begin(point, self.model().parallelism, self.variance, self.asked);
            return if absent { (LearningOutcome::Rejected, self) } else { (LearningOutcome::Reset, anew) };
        }
        let mut new = Self { age: self.age.saturating_add(1), ..self };
        if self.age >= YOUNG {
            new.variance += NEW * (error * error - self.variance);
        }
        // What a measurement is wrong by is a part of it. Taken for as many milliseconds at any load, one
        // overload is believed for minutes, and what a few requests say hardly at all: a storage that had
        // become faster by a quarter was followed by a per cent in a second.
        let noise = point.ms.max(predicted) / self.ms;
        let regressor = [1.0, point.held.outstanding / self.outstanding - 1.0];
        new.rls.learn_weighed(regressor, point.ms / self.ms, config.forgetting, noise * noise);
        // Between flat and proportional: without load nothing takes less than no time.
        let [level, slope] = new.rls.estimate();
        if slope > level {
            new.rls.hold_sum([-1.0, 1.0], 0.0);
        }
        let [_, slope] = new.rls.estimate();
        if slope < FLATTEST {
            new.rls.hold(1, FLATTEST);
        }
        (LearningOutcome::Updated, new)
    }

    fn is_sound(&self) -> bool {
        let QueueModel { capacity, parallelism } = self.model();
        capacity.is_normal() && capacity > 0.0 && parallelism.is_finite() && self.outstanding.is_normal()
    }

    /// w at a number of requests, in milliseconds. Positive.
    fn ms_at(&self, outstanding: f64) -> f64 {
        let [level, slope] = self.rls.estimate();
        ((level + slope * (outstanding / self.outstanding - 1.0)) * self.ms).max(self.ms * FLATTEST)
    }

    /// The throughput to allow the throttled consumers, in IO/s, after an interval like this.
    pub(crate) fn control(&mut self, goal_ms: f64, point: IntervalPoint) -> f64 {
        let QueueModel { capacity, parallelism } = self.model();
        let known = point.held.outstanding.max(self.asked);
        let most = (known * GROWTH).max(point.held.outstanding * goal_ms / point.ms);
        let wanted = if point.held.outstanding <= NOBODY && point.ms > goal_ms {
            // They are there, and nothing of theirs completes.
            self.asked / GROWTH
        } else {
            (capacity * goal_ms / 1e3 - parallelism).min(most)
        };
        let takes = self.takes_ms(goal_ms);
        self.asked = if wanted.is_finite() { wanted.max(NOBODY) } else { NOBODY };
        self.asked / takes * 1e3
    }

    /// Returns the response time of eligible consumers' requests when the goal is kept, in milliseconds.
    pub(crate) fn takes_ms(&self, goal_ms: f64) -> f64 {
        goal_ms * self.turn
    }

    pub(crate) fn model(&self) -> QueueModel {
        let [level, slope] = self.rls.estimate();
        let slope = slope.max(FLATTEST);
        QueueModel {
            capacity: self.outstanding / (slope * self.ms) * 1e3,
            parallelism: (self.outstanding * (level / slope - 1.0)).max(0.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64Mcg;

    use super::*;

    const GOAL: f64 = 12.0;

    /// A closed network: `w = (n + p)/C`, of no more than `most` clients.
    #[derive(Clone, Copy)]
    struct Storage {
        capacity: f64,
        parallelism: f64,
        most: f64,
    }

    impl Storage {
        const fn new(capacity: f64, parallelism: f64) -> Self {
            Self { capacity, parallelism, most: 1e6 }
        }

        fn point(&self, asked: f64, noise: f64) -> IntervalPoint {
            let outstanding = asked.min(self.most);
            let ms = (outstanding + self.parallelism) / self.capacity * 1e3 * noise;
            IntervalPoint {
                ms,
                requests: 100,
                held: AtStorage { outstanding, mean: Latency::from_millis_f64(ms) },
            }
        }

        fn wanted(&self, goal_ms: f64) -> f64 {
            self.capacity * goal_ms / 1e3 - self.parallelism
        }
    }

    fn step(
        station: &mut Option<StationModel>,
        point: IntervalPoint,
        goal_ms: f64,
    ) -> Option<(LearningOutcome, f64)> {
        let (learnt, mut next) = StationModel::after(*station, &QueueLearning::default(), point)?;
        let _ = next.control(goal_ms, point);
        let asked = next.asked;
        *station = Some(next);
        Some((learnt, asked))
    }

    /// Requests at the storage, interval by interval, from `n` on.
    fn run(
        station: &mut Option<StationModel>,
        storage: Storage,
        goal_ms: f64,
        mut n: f64,
        intervals: usize,
    ) -> Vec<f64> {
        (0..intervals)
            .map(|_| {
                n = step(station, storage.point(n, 1.0), goal_ms).expect("a consumer is there").1;
                n
            })
            .collect()
    }

    /// The oracle: with a single server n = C·goal, whatever C is, thirty-fold apart and both ways. A model
    /// of some intervals' age is not taken for a young one that may change as it likes.
    #[test]
    fn a_single_server_is_right_after_one_interval_and_after_it_has_become_another_one() {
        let (mut station, mut n) = (None, 8.0);
        for capacity in [164.0, 5_000.0, 164.0] {
            let storage = Storage::new(capacity, 0.0);
            let asked = run(&mut station, storage, GOAL, n, 6);
            assert!(
                asked.iter().all(|n| (n / storage.wanted(GOAL) - 1.0).abs() < 1e-6),
                "{capacity}: {asked:?}"
            );
            n = asked[5];
        }
    }

    /// Forty disks: from an overload, and from one request. PARDA's factor would leave s/w = 0.8 of the
    /// distance in each step.
    #[test]
    fn an_array_takes_a_few_intervals_and_never_passes_its_goal_by_much() {
        let storage = Storage::new(4_000.0, 39.0);
        let goal = 1.25 * 39.0 / 4.0;
        for begin in [1_000.0, 1.0] {
            let asked = run(&mut None, storage, goal, begin, 30);
            let wanted = storage.wanted(goal);
            assert!((asked[29] / wanted - 1.0).abs() < 0.05, "{asked:?}");
            let takes = |n: f64| storage.point(n, 1.0).ms;
            assert!(asked.iter().all(|n| takes(*n) < 1.5 * goal || begin > wanted), "{asked:?}");
        }
    }

    #[test]
    fn with_noise_it_stays_near_and_a_million_intervals_make_it_neither_blind_nor_jumpy() {
        let mut random = Pcg64Mcg::seed_from_u64(5);
        let (mut station, mut n) = (None, 8.0);
        let mut storage = Storage::new(500.0, 3.0);
        let mut sum = 0.0;
        for interval in 0..1_000_000 {
            let noise = random.random_range(0.85..1.15);
            n = step(&mut station, storage.point(n, noise), GOAL).unwrap().1;
            assert!(n.is_finite() && n > 0.0, "{interval}: {station:?}");
            sum += n;
        }
        assert!((sum / 1e6 / storage.wanted(GOAL) - 1.0).abs() < 0.1, "{}", sum / 1e6);
        storage.capacity = 2_000.0;
        let asked = run(&mut station, storage, GOAL, n, 5);
        assert!((asked[4] / storage.wanted(GOAL) - 1.0).abs() < 0.3, "{asked:?}");
    }

    /// A model that begins in an overload remembers it. A quarter more is below the limit that resets the
    /// model. So is twice as much if an interval has few requests. The model learns it all the same.
    #[test]
    fn a_storage_that_becomes_faster_by_less_than_resets_the_model_is_followed_within_six_intervals() {
        for (requests, factor) in [(300, 1.28), (300, 0.8), (20, 2.0)] {
            let (mut station, mut n) = (None, 8.0);
            let mut storage = Storage::new(647.0, 0.0);
            let mut learnt = Vec::new();
            for interval in 0..36 {
                if interval == 30 {
                    storage.capacity *= factor;
                }
                let point = IntervalPoint { requests, ..storage.point(n, 1.0) };
                let (how, asked) = step(&mut station, point, GOAL / 4.0).unwrap();
                n = asked;
                learnt.push(how);
            }
            let reset = learnt.contains(&LearningOutcome::Reset);
            let off = n / storage.wanted(GOAL / 4.0) - 1.0;
            assert!(!reset && off.abs() < 0.1, "{requests} requests, {factor}: {off}, {station:?}");
        }
    }

    /// A client that has one request outstanding for hours, and then many.
    #[test]
    fn what_is_asked_for_and_not_used_stays_within_what_the_model_bears() {
        let mut station = None;
        let mut storage = Storage { most: 1.0, ..Storage::new(1_000.0, 0.0) };
        let asked = run(&mut station, storage, GOAL, 1.0, 10_000);
        assert!(asked[9_999] <= storage.wanted(GOAL) * 1.5, "{:?}", asked[9_999]);
        storage.most = 1e6;
        let asked = run(&mut station, storage, GOAL, asked[9_999], 3);
        assert!((asked[2] / storage.wanted(GOAL) - 1.0).abs() < 0.1, "{asked:?}");
    }

    #[test]
    fn with_nobody_to_hold_nothing_is_learnt_and_where_nothing_completes_less_is_asked_for() {
        let nobody = IntervalPoint { ms: 3.0, requests: 10, held: AtStorage::default() };
        assert!(StationModel::after(None, &QueueLearning::default(), nobody).is_none());
        let mut station = None;
        let before = run(&mut station, Storage::new(1_000.0, 0.0), GOAL, 8.0, 20)[19];
        let model = station.map(|station| station.model());
        let hangs = IntervalPoint { ms: 60_000.0, requests: 1, ..nobody };
        for halved in 1..5 {
            let (learnt, asked) = step(&mut station, hangs, GOAL).unwrap();
            assert!(
                learnt == LearningOutcome::Rejected
                    && (asked * 2f64.powi(halved) / before - 1.0).abs() < 1e-9
            );
        }
        assert_eq!(station.map(|station| station.model()), model);
    }

    /// Eligible consumers need not be the ones that count: here they are writers whose requests take three
    /// times as long.
    #[test]
    fn others_requests_are_told_in_their_own_time() {
        let mut point = Storage::new(1_000.0, 0.0).point(6.0, 1.0);
        point.held.mean = point.held.mean.scale(3.0);
        let (_, mut station) = StationModel::after(None, &QueueLearning::default(), point).unwrap();
        let iops = station.control(6.0, point);
        assert!((station.takes_ms(6.0) - 18.0).abs() < 1e-6 && (iops - 6.0 / 0.018).abs() < 1e-3, "{iops}");
    }

    fn anything() -> impl Strategy<Value = f64> {
        prop_oneof![
            0.0..100.0,
            any::<f64>(),
            prop::sample::select(vec![0.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MAX, 5e-324]),
        ]
    }

    proptest! {
        #[test]
        fn whatever_is_measured_what_is_asked_for_is_a_number_and_positive(
            steps in prop::collection::vec((1e-6..1e9_f64, 0..u64::MAX, anything(), any::<u64>(),
                1e-6..1e9_f64), 1..100)
        ) {
            let mut station = None;
            for (ms, requests, outstanding, mean, goal) in steps {
                let held = AtStorage { outstanding, mean: Latency::from_nanos(mean) };
                if let Some((_, asked)) = step(&mut station, IntervalPoint { ms, requests, held }, goal) {
                    prop_assert!(asked.is_finite() && asked > 0.0, "{station:?}");
                }
            }
        }
    }
}
