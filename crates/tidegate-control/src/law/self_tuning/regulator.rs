//! The direct self-tuning regulator of Karlsson, Karamanolis and Zhu, *Triage: Performance Isolation and
//! Differentiation for Storage Systems*, equations 5 to 7 and the algorithm of figure 6. It finds the
//! operating point that one consumer's response time asks for. The fixed integral controller of equation 2 is
//! here too, for comparison.

use serde::{Deserialize, Serialize};
use tidegate_units::{Iops, Latency};

use crate::document::model::{LearningOutcome, LinearModel, QueueModel};
use crate::document::output::OutputBound;
use crate::law::queueing::station::{AtStorage, IntervalPoint, StationModel};
use crate::law::self_tuning::config::{LineLearning, RegulationMethod, SelfTuningConfig};
use crate::law::self_tuning::figure6::{Figure6, Figure6Interval};
use crate::law::self_tuning::linear_model::{FittedModel, RivalErrors, YOUNG};
use crate::law::self_tuning::queue_curve::{Hyperbola, apart};

/// Number of impossible new models in a row after which the old one is wrong.
const MOST_REJECTED: u32 = 5;

/// Part of the operating point that remains after a step down, or less if the excess requests need more than
/// that.
const STEP_DOWN: f64 = 0.5;

/// Part of a goal below which a response time is no reason to throttle further.
const FAR_BELOW: f64 = 0.8;

/// Number of intervals with response times far below the goal after which the operating point rises, whatever
/// the models say. It rises by the factor `RISE`, to no more than the part `SAFE` of the capacity that the
/// curve knows. Beyond that requests would pile up.
const STUCK: u32 = 3;
const RISE: f64 = 1.5;
const SAFE: f64 = 0.9;

/// The least response time that a measurement says, one nanosecond: a storage that takes no time has no
/// model.
const LEAST_MS: f64 = 1e-6;

/// Measurements of an interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct IntervalMeasurement {
    /// Number of requests that completed.
    pub requests: u64,
    /// The sum of their response times.
    pub total: Latency,
    /// Length of the interval.
    pub over: Latency,
    /// Requests of the eligible consumers; used by the model of a queue only.
    pub held: AtStorage,
}

/// Result of one step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SelfTuningStep {
    /// Result of learning.
    pub learnt: LearningOutcome,
    /// The mean response time that was compared with the goal. `None` with too few requests.
    pub measured: Option<Latency>,
    /// The operating point that this consumer's response time asks for; the previous one with too few
    /// requests. `None` before the first.
    pub wish: Option<Iops>,
    /// The bound that made the difference.
    pub bound: Option<OutputBound>,
    /// The model now.
    pub model: Option<LinearModel>,
}

/// The regulator of one consumer.
///
/// What it says is as good as its models are. On a storage whose response time is in proportion to the
/// throughput, as the paper's (figure 3), it is right as soon as the line has predicted once. Where a goal
/// lies on the steep part of a queue's curve, two measurements know the curve, but for what they are wrong
/// by.
///
/// Call [`step`](Self::step) once per control interval. It takes u(k−1), the operating point that was in
/// force in the interval, as an argument: of several regulators all use the lowest.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct SelfTuning {
    fitted: Option<FittedModel>,
    /// The curve of a queue, and which of the two predicts better.
    hyperbola: Option<Hyperbola>,
    rivals: RivalErrors,
    /// For how many intervals response times have been far below the goal.
    below: u32,
    /// The same of the model of a queue.
    station: Option<StationModel>,
    /// The same of figure 6.
    #[serde(default)]
    figure6: Option<Figure6>,
    /// Requests that were too few to conclude anything.
    gathered: Gathered,
    /// w(k−1) in ms and u(k−2), if the interval before was measured by itself. Otherwise the two are taken
    /// for what they are now.
    before: Option<(f64, f64)>,
    wish: Option<Iops>,
}

#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
struct Gathered {
    requests: u64,
    nanos: u128,
}

impl SelfTuning {
    /// One step. `goal` is y_ref, `in_force` u(k−1). `least` and `greatest` are bounds of now. `exempt`:
    /// conclude from however few requests there are, because no consumer has enough (figure 6, line 1).
    pub fn step(
        &mut self,
        config: &SelfTuningConfig,
        goal: Latency,
        measured: IntervalMeasurement,
        in_force: Iops,
        (least, greatest): (Iops, Iops),
        exempt: bool,
    ) -> SelfTuningStep {
        let Some((mean, requests, alone)) = self.gather(config, measured, exempt) else {
            self.before = None;
            return self.said(LearningOutcome::TooFew, None, None);
        };
        let w = mean.as_millis_f64().max(LEAST_MS);
        let u = in_force.max(least).per_second();
        let goal_ms = goal.as_millis_f64();
        let (learnt, wanted) = match &config.regulation {
            RegulationMethod::Fixed(gain) => (LearningOutcome::Fixed, u + gain.iops_per_ms() * (goal_ms - w)),
            RegulationMethod::Adaptive(adaptive) => {
                let (learnt, fitted) = self.learn(adaptive, w, u, requests);
                let line = fitted.control(goal_ms, w, u);
                let (learnt, wanted) = match self.curve(adaptive, (w, u, requests), goal_ms) {
                    Some((learnt, _, wanted)) if self.rivals.is_curve() => {
                        let is_farther = (wanted - u).abs() > (line - u).abs();
                        let bounded = is_farther && self.rivals.line_bounds_curve();
                        (learnt, if bounded { line } else { wanted })
                    }
                    // A line through the origin takes a storage with many servers for nearly full as soon as
                    // one of them is busy.
                    Some((_, curve, wanted)) if w < goal_ms => {
                        (learnt, line.max(wanted.min(u * curve.growth(goal_ms, w))))
                    }
                    _ => (learnt, line),
                };
                self.below = if w < FAR_BELOW * goal_ms { self.below.saturating_add(1) } else { 0 };
                let over_ms = measured.over.as_millis_f64();
                let wanted = if adaptive.variant.in_steps {
                    wanted.max(self.at_least(u, (w, goal_ms, over_ms)))
                } else {
                    wanted
                };
                self.fitted = Some(fitted);
                let burst = learnt == LearningOutcome::Reset && adaptive.variant.burst;
                (learnt, if burst { f64::INFINITY } else { wanted })
            }
            RegulationMethod::Literal(learning) => {
                let interval = Figure6Interval { goal_ms, w, u };
                let (learnt, model, wanted) = Figure6::step(self.figure6, learning, interval);
                self.figure6 = Some(model);
                (learnt, wanted)
            }
            RegulationMethod::Queueing(queueing) => {
                let point = IntervalPoint { ms: w, requests, held: measured.held };
                match StationModel::after(self.station, queueing, point) {
                    Some((learnt, mut station)) => {
                        let wanted = station.control(goal_ms, point);
                        self.station = Some(station);
                        (learnt, wanted)
                    }
                    None => (LearningOutcome::TooFew, f64::INFINITY),
                }
            }
        };
        self.before = alone.then_some((w, u));
        let (wish, bound) = confine(wanted, least, greatest);
        self.wish = Some(wish);
        self.said(learnt, Some(mean), bound)
    }

    /// Returns the operating point that it asked for last, if any.
    #[must_use]
    pub const fn wish(&self) -> Option<Iops> {
        self.wish
    }

    /// Returns the number of requests gathered, which are still too few.
    pub(crate) const fn gathered(&self) -> u64 {
        self.gathered.requests
    }

    /// No requests: the regulator has no wish until there are some again. The model stays, since the storage
    /// is the same.
    pub fn idle(&mut self) {
        (self.gathered, self.before, self.wish, self.below) = (Gathered::default(), None, None, 0);
    }

    /// There was nothing in this interval, which is too short a silence to conclude anything from.
    pub fn pause(&mut self) {
        self.before = None;
    }

    /// The interval cannot be used: its length is unknown.
    pub fn skip(&mut self) {
        (self.gathered, self.before) = (Gathered::default(), None);
    }

    /// Bounds have changed: what it asks for is within them from now on.
    pub(crate) fn confine(&mut self, least: Iops, greatest: Iops) {
        self.wish = self.wish.map(|wish| wish.max(least).min(greatest));
    }

    /// The model now.
    #[must_use]
    pub fn model(&self) -> Option<LinearModel> {
        self.fitted.map(|fitted| fitted.model()).or_else(|| self.figure6.as_ref().map(Figure6::model))
    }

    /// Returns the response time of eligible consumers' requests when a goal is kept, by the model of a
    /// queue.
    pub(crate) fn takes(&self, goal: Latency) -> Latency {
        let takes = |station: StationModel| Latency::from_millis_f64(station.takes_ms(goal.as_millis_f64()));
        self.station.map_or(goal, takes)
    }

    /// The model of a queue now.
    #[must_use]
    pub fn queue(&self) -> Option<QueueModel> {
        let curve = || self.hyperbola.filter(|_| self.rivals.is_curve()).map(|curve| curve.model());
        self.station.map(|station| station.model()).or_else(curve)
    }

    /// The mean of the requests at hand if they are enough, how many they are, and whether all are of this
    /// interval.
    fn gather(
        &mut self,
        config: &SelfTuningConfig,
        measured: IntervalMeasurement,
        exempt: bool,
    ) -> Option<(Latency, u64, bool)> {
        let Gathered { requests: before, nanos } = self.gathered;
        let requests = before.saturating_add(measured.requests);
        // In 128 bits a century of intervals fits.
        let nanos = nanos.saturating_add(u128::from(measured.total.as_nanos()));
        if requests == 0 || (requests < u64::from(config.least_requests) && !exempt) {
            let keeps = config.variant().gather;
            self.gathered = if keeps { Gathered { requests, nanos } } else { Gathered::default() };
            return None;
        }
        self.gathered = Gathered::default();
        let mean = u64::try_from(nanos / u128::from(requests)).unwrap_or(u64::MAX);
        Some((Latency::from_nanos(mean), requests, before == 0))
    }

    /// Lines 4 to 10 of figure 6.
    fn learn(
        &self,
        adaptive: &LineLearning,
        w: f64,
        u: f64,
        requests: u64,
    ) -> (LearningOutcome, FittedModel) {
        let Some(old) = self.fitted else { return (LearningOutcome::First, FittedModel::begin(w, u)) };
        let (w_before, u_before) = self.before.unwrap_or((w, u));
        let regressor = old.regressor(w_before, u, u_before);
        let mut new = FittedModel { age: old.age.saturating_add(1), rejected: 0, ..old };
        new.rls.learn(regressor, w / old.ms, adaptive.forgetting);
        // A young model may change as it likes, but into a possible one.
        let may_change = adaptive.variant.compare_predictions && new.age <= YOUNG && new.is_possible();
        if !may_change && new.has_changed(&old, regressor, w, requests, adaptive) {
            return (LearningOutcome::Reset, FittedModel::begin(w, u));
        }
        if !new.is_possible() {
            let rejected = old.rejected + 1;
            if rejected >= MOST_REJECTED {
                return (LearningOutcome::Reset, FittedModel::begin(w, u));
            }
            return (LearningOutcome::Rejected, FittedModel { rejected, age: new.age, ..old });
        }
        (LearningOutcome::Updated, new)
    }

    /// The curve after an interval, where there is to be one, and what it asks for. Both models are judged by
    /// what they said of it beforehand.
    fn curve(
        &mut self,
        adaptive: &LineLearning,
        point: (f64, f64, u64),
        goal_ms: f64,
    ) -> Option<(LearningOutcome, Hyperbola, f64)> {
        if !adaptive.variant.two_shapes {
            self.hyperbola = None;
            return None;
        }
        let (w, u, _) = point;
        if let (Some(line), Some(curve)) = (self.fitted, self.hyperbola) {
            let (w_before, u_before) = self.before.unwrap_or((w, u));
            let predicted = line.predicted(line.regressor(w_before, u, u_before)) * line.ms;
            self.rivals = self.rivals.after(apart(w, predicted.max(LEAST_MS)), curve.error(w, u));
        }
        let how = (adaptive.forgetting, adaptive.reset_change);
        let (learnt, curve) = Hyperbola::after(self.hyperbola, how, point, goal_ms);
        self.hyperbola = Some(curve);
        Some((learnt, curve, curve.control(goal_ms, point)))
    }

    /// Returns the least next operating point. Its arguments are the present one, and the interval's response
    /// time, goal and length in ms.
    fn at_least(&self, u: f64, (w, goal_ms, over_ms): (f64, f64, f64)) -> f64 {
        if self.below > 0 {
            let safe = self.hyperbola.map_or(u, |curve| SAFE * curve.model().capacity);
            let rises = self.below >= STUCK;
            return if rises { (u * RISE).min(safe).max(u) } else { u };
        }
        if self.rivals.line_was_right() {
            return 0.0;
        }
        // By Little's law u·(w − goal) requests are too many. That they go within an interval may take more
        // than half.
        let drained = 1.0 - (w - goal_ms) / over_ms;
        u * STEP_DOWN.min(drained).max(0.0)
    }

    fn said(
        &self,
        learnt: LearningOutcome,
        measured: Option<Latency>,
        bound: Option<OutputBound>,
    ) -> SelfTuningStep {
        SelfTuningStep { learnt, measured, wish: self.wish, bound, model: self.model() }
    }
}

/// The anti-windup law (figure 6, line 12), with u_min for the paper's 0. What is no number holds: it is the
/// least.
fn confine(wanted: f64, least: Iops, greatest: Iops) -> (Iops, Option<OutputBound>) {
    if wanted >= greatest.per_second() {
        (greatest.max(least), Some(OutputBound::Greatest))
    } else if wanted > least.per_second() {
        (Iops::new(wanted), None)
    } else {
        (least, Some(OutputBound::Least))
    }
}

#[cfg(test)]
mod tests;
