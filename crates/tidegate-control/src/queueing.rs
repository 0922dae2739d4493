//! A self-tuning regulator with the model of a queue, and with its throttle: a window. Not of a paper: of queueing theory, and of what makes
//! the papers' laws slow or restless.
//!
//! Where the throttle is a rate, a storage near its capacity is as steep as can be: response times over throughput have a pole there, no line
//! fits both sides of the knee, and an operating point that is too high by a per cent piles requests up until the next decision. Over the number n of requests at the
//! storage they are a line, for every balanced closed network of queues (mean value analysis):
//!
//! `w = (n + p)/C`
//!
//! with the capacity C, and p, what the storage serves at once beside one request: nothing for a single server, nearly the number of disks for a striped array.
//! The number for a goal is `n = C·goal − p`. By Little's law n is throughput times response time, so that C and p are all there is to learn.
//!
//! - **The window is an inner loop.** It holds n from request to request, while a law that commands rates waits for its next interval:
//!   when a storage becomes slower, n requests take longer, and no more come.
//! - **The gain comes with the unit.** A cache and a disk differ thirty-fold in milliseconds per IO/s, and not at all in what
//!   n is for a goal that is as many times the response time without load. A move from one to the other is right before anything is learnt.
//! - **PARDA's law is this with p = 0**, and β besides: `n·𝓛/w`. On an array of many disks it then goes to its goal by small steps;
//!   what is learnt of p makes it one. Where nothing is known yet, p is nothing: who raises n by the goal over the response time never
//!   passes the goal, whatever p is.
//! - **No bursts.** When a measurement contradicts the model beyond chance, C is taken anew from that measurement and p is kept: the storage
//!   became faster or slower as a whole. Nobody is let go to find out.
//! - **Goals, bands and hosts** are those of the self-tuning law: n is told as the throughput that it has at the goal, n/goal, the lowest
//!   of all wins, bands divide it, and each host has the window of its part.

use serde::{Deserialize, Serialize};
use tidegate_units::Latency;

use crate::rls::Rls;
use crate::self_tuning::Learnt;

/// How uncertain the response time at the first measurement is, as a variance relative to it.
const UNCERTAIN: f64 = 0.1;

/// How uncertain the slope is, likewise: it is known to be between nothing and proportional.
const UNCERTAIN_SLOPE: f64 = 0.25;

/// So many standard deviations are no chance.
const CHANCE: f64 = 3.0;

/// What prediction errors are taken for before there were any, as a part of the prediction.
const FIRST_DEVIATION: f64 = 0.1;

/// The part that one error has in their variance.
const NEW: f64 = 0.1;

/// A prediction that is wrong by this part of the greater one is wrong however noisy the storage is.
const MOST_NOISE: f64 = 0.6;

/// The least slope, as a part of the response time per number of requests of the first measurement.
const FLATTEST: f64 = 0.02;

/// By how much n grows at most in an interval beyond what was there, or asked for, other than in proportion to the response time.
const GROWTH: f64 = 2.0;

/// Fewer requests than this at the storage say nothing of how it bears many.
const NOBODY: f64 = 0.01;

/// How the model of a queue is learnt.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Queueing {
    /// λ, within (0, 1]: what is left of the weight of an older measurement that speaks of the same. Default 0.7.
    pub forgetting: f64,
    /// By what part a response time may differ from the model's before the capacity is taken anew; by three standard
    /// deviations of what it usually differs by in any case. Default 0.3.
    pub reset_change: f64,
}

impl Default for Queueing {
    fn default() -> Self {
        Self { forgetting: 0.7, reset_change: 0.3 }
    }
}

/// `w = (n + p)/C`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueueModel {
    /// C, in requests per second.
    pub capacity: f64,
    /// p, in requests. Not negative.
    pub parallelism: f64,
}

/// Who is held, in an interval.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct AtStorage {
    /// How many of their requests were at the storage on average.
    pub outstanding: f64,
    /// How long they took on average. Zero: none completed.
    pub mean: Latency,
}

/// What an interval said.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Point {
    /// The mean response time of the requests that count, in milliseconds, positive.
    pub(crate) ms: f64,
    /// From how many requests.
    pub(crate) requests: u64,
    /// Who is held.
    pub(crate) held: AtStorage,
}

/// A model, in units in which the measurement that it began with is (1, 1): `w = level + slope·(n − 1)`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Station {
    rls: Rls<2>,
    ms: f64,
    outstanding: f64,
    /// The variance of what predictions are wrong by, as a part.
    variance: f64,
    /// n as it was asked for last.
    asked: f64,
    /// How long requests of those who are held take, over those that count.
    turn: f64,
}

impl Station {
    /// From one measurement, and a parallelism.
    fn begin(point: Point, parallelism: f64, variance: f64, asked: f64) -> Self {
        let outstanding = point.held.outstanding;
        let slope = (outstanding / (outstanding + parallelism)).max(FLATTEST);
        let rls = Rls::new([1.0, slope], [UNCERTAIN, UNCERTAIN_SLOPE]);
        Self { rls, ms: point.ms, outstanding, variance, asked, turn: 1.0 }
    }

    /// The model after an interval. `None` as long as nobody was there who could be held.
    pub(crate) fn after(old: Option<Self>, config: &Queueing, point: Point) -> Option<(Learnt, Self)> {
        let absent = point.held.outstanding.is_nan() || point.held.outstanding <= NOBODY;
        let turn = point.held.mean.as_millis_f64() / point.ms;
        let turned =
            |station: Self| if turn > 0.0 && turn.is_finite() { Self { turn, ..station } } else { station };
        let (learnt, station) = match old.filter(Self::is_sound) {
            None if absent => return None,
            None => (Learnt::First, Self::begin(point, 0.0, FIRST_DEVIATION.powi(2), point.held.outstanding)),
            Some(old) => old.learn(config, point, absent),
        };
        Some((learnt, turned(station)))
    }

    fn learn(self, config: &Queueing, point: Point, absent: bool) -> (Learnt, Self) {
        let predicted = self.ms_at(point.held.outstanding);
        let error = (point.ms - predicted).abs() / point.ms.max(predicted);
        // Of few requests: the standard error of a mean of exponentially distributed times.
        let chance = CHANCE * self.variance.sqrt().max(1.0 / (point.requests as f64).sqrt());
        if error > chance.min(MOST_NOISE).max(config.reset_change) {
            // Long response times with nobody to be held are nobody's fault who could be.
            let anew = Self::begin(point, self.model().parallelism, self.variance, self.asked);
            return if absent { (Learnt::Rejected, self) } else { (Learnt::Reset, anew) };
        }
        let mut new = self;
        new.variance += NEW * (error * error - self.variance);
        new.rls.learn(
            [1.0, point.held.outstanding / self.outstanding - 1.0],
            point.ms / self.ms,
            config.forgetting,
        );
        let [level, slope] = new.rls.estimate();
        // Between flat and proportional: without load nothing takes less than no time.
        let possible = slope.clamp(FLATTEST, level.max(FLATTEST));
        if (slope - possible).abs() > 0.0 {
            new.rls.hold(1, possible);
        }
        (Learnt::Updated, new)
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

    /// The throughput of those who are held that is asked for, in IO/s, after an interval like this.
    pub(crate) fn control(&mut self, goal_ms: f64, point: Point) -> f64 {
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

    /// How long requests of those who are held take when the goal is kept, in milliseconds.
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
