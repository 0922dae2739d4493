//! A self-tuning regulator with the model of a queue: capacity and parallelism instead of a linear response time. Not of a paper: of
//! queueing theory, and of what makes the papers' laws slow or restless.
//!
//! The response time of anything that saturates is no line over its throughput u. Its reciprocal nearly is:
//!
//! `1/w = (C − u)/p`
//!
//! with the capacity C and the parallelism p. Exactly so for the queue M/M/1 (p = 1), for p independent such queues side by side (a striped
//! array), and for a closed network of p balanced stations (mean value analysis: w = s + n/C with n = u·w and s = p/C); with evenly released
//! requests, D/M/1, p is 1/2 near the capacity, and more away from it. The goal's throughput is `u = C − p/goal`: two numbers that an
//! administrator knows by name.
//!
//! - **The gain comes with the unit.** A cache and a disk differ thirty-fold in milliseconds per IO/s, and not at all in p. A move from
//!   one to the other changes C alone.
//! - **Exact linearisation.** What is learnt about the flat part of the curve holds on the steep one, where a line through the origin (Triage)
//!   takes each step for a new storage.
//! - **No bursts.** When a measurement contradicts the model beyond chance, C is taken anew from that measurement and p is kept (the storage became
//!   faster or slower); nobody is let go to find out. What differs afterwards teaches p.
//! - **Caution.** Beyond what was measured the operating point at most doubles in an interval, but for what half of a parallelism leaves room for.
//!   Requests that pile up at the storage meanwhile are `u·(w − goal)` by Little's law, and are made up for within an interval.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::rls::Rls;
use crate::self_tuning::Learnt;

/// How uncertain the response time at the first measurement is, as a variance relative to it.
const UNCERTAIN: f64 = 0.25;

/// How uncertain the slope is, likewise: it may as well be nothing, or double.
const UNCERTAIN_SLOPE: f64 = 1.0;

/// So many standard deviations are no chance.
const CHANCE: f64 = 3.0;

/// What prediction errors are taken for before there were any, as a part of the prediction.
const FIRST_DEVIATION: f64 = 0.1;

/// The part that one error has in their variance.
const NEW: f64 = 0.1;

/// A prediction that is wrong by this part, the greater over the smaller, is wrong however noisy the storage is.
const MOST_NOISE: f64 = 0.7;

/// p is within these: a sharp knee, whose service times hardly vary, and an array beyond all disks that there are.
const PARALLELISM: (f64, f64) = (0.02, 1024.0);

/// p of evenly released requests at one server near its capacity (D/M/1): the steepest that is expected of an unknown storage.
const STEEP: f64 = 0.5;

/// By how much the operating point grows at most in an interval beyond what was measured.
const GROWTH: f64 = 2.0;

/// How the model of a queue is learnt.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Queueing {
    /// λ, within (0, 1]: what is left of the weight of an older measurement that speaks of the same. Default 0.7.
    pub forgetting: f64,
    /// By what part the reciprocal of a response time may differ from the model's before the capacity is taken anew; by three standard
    /// deviations of what it usually differs by in any case. Default 0.3.
    pub reset_change: f64,
}

impl Default for Queueing {
    fn default() -> Self {
        Self { forgetting: 0.7, reset_change: 0.3 }
    }
}

/// `1/w = (C − u)/p`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueueModel {
    /// C, in IO/s: where response times would be without end.
    pub capacity: f64,
    /// p: how many requests are served at once. Positive.
    pub parallelism: f64,
}

/// What an interval said.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Point {
    /// The mean response time in milliseconds, positive.
    pub(crate) ms: f64,
    /// What was done, in IO/s, positive.
    pub(crate) iops: f64,
    /// From how many requests.
    pub(crate) requests: u64,
}

impl Point {
    /// Its 1/w, per second.
    fn speed(self) -> f64 {
        1e3 / self.ms
    }
}

/// A model, in units in which the measurement that it began with is (1, 1): `1/w = level − slope·(u − 1)`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Station {
    rls: Rls<2>,
    begin: Point,
    /// The variance of what predictions are wrong by, as a part.
    variance: f64,
}

impl Station {
    /// From one measurement, and a parallelism.
    fn begin(point: Point, parallelism: f64, variance: f64) -> Self {
        // Little's law: so many were at the storage.
        let slope = point.iops / (parallelism * point.speed());
        let variances = [UNCERTAIN, UNCERTAIN_SLOPE * slope * slope];
        Self { rls: Rls::new([1.0, slope], variances), begin: point, variance }
    }

    /// The model after an interval. The first assumes the root of as many requests served at once as there were: between a single server and
    /// one for each.
    pub(crate) fn after(old: Option<Self>, config: &Queueing, point: Point) -> (Learnt, Self) {
        let Some(old) = old.filter(|old| old.is_sound()) else {
            let outstanding = point.iops / point.speed();
            let parallelism = outstanding.max(1.0).sqrt().min(PARALLELISM.1);
            return (Learnt::First, Self::begin(point, parallelism, FIRST_DEVIATION.powi(2)));
        };
        let (measured, predicted) = (point.speed(), old.speed_at(point.iops).max(0.0));
        let error = (measured - predicted).abs() / measured.max(predicted).max(f64::MIN_POSITIVE);
        // Of few requests: the standard error of a mean of exponentially distributed times.
        let chance = CHANCE * old.variance.sqrt().max(1.0 / (point.requests as f64).sqrt());
        if error > chance.min(MOST_NOISE).max(config.reset_change) {
            return (Learnt::Reset, Self::begin(point, old.parallelism(), old.variance));
        }
        let mut new = old;
        new.variance += NEW * (error * error - old.variance);
        new.rls.learn(
            [1.0, 1.0 - point.iops / old.begin.iops],
            measured / old.begin.speed(),
            config.forgetting,
        );
        let [_, slope] = new.rls.estimate();
        let slope_of = |parallelism| old.begin.iops / (parallelism * old.begin.speed());
        let (flattest, steepest) = (slope_of(PARALLELISM.1), slope_of(PARALLELISM.0));
        if slope < flattest || slope > steepest {
            new.rls.hold(1, slope.clamp(flattest, steepest));
        }
        (Learnt::Updated, new)
    }

    fn is_sound(&self) -> bool {
        let QueueModel { capacity, parallelism } = self.model();
        capacity.is_finite() && parallelism.is_normal()
    }

    /// 1/w at a throughput, per second.
    fn speed_at(&self, iops: f64) -> f64 {
        let [level, slope] = self.rls.estimate();
        (level - slope * (iops / self.begin.iops - 1.0)) * self.begin.speed()
    }

    /// A slope that is no slope is as flat as may be.
    fn parallelism(&self) -> f64 {
        let [_, slope] = self.rls.estimate();
        if slope > 0.0 {
            (self.begin.iops / (slope * self.begin.speed())).clamp(PARALLELISM.0, PARALLELISM.1)
        } else {
            PARALLELISM.1
        }
    }

    /// The operating point for a goal, after an interval like this, in which so much was wished for.
    pub(crate) fn control(&self, goal_ms: f64, point: Point, wish: f64, interval: Duration) -> f64 {
        let QueueModel { capacity, parallelism } = self.model();
        let goal = 1e3 / goal_ms;
        let known = point.iops.max(wish);
        let most = (known * GROWTH).max(known + STEEP * (point.speed() - goal));
        let piled = (point.iops * (1.0 / point.speed() - 1.0 / goal)).max(0.0);
        (capacity - parallelism * goal).min(most) - piled / interval.as_secs_f64()
    }

    pub(crate) fn model(&self) -> QueueModel {
        let parallelism = self.parallelism();
        let [level, _] = self.rls.estimate();
        QueueModel { capacity: self.begin.iops + parallelism * level * self.begin.speed(), parallelism }
    }
}
