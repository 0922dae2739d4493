//! The direct self-tuning regulator of Karlsson, Karamanolis and Zhu, *Triage: Performance Isolation and
//! Differentiation for Storage Systems*, equations 5 to 7 and the algorithm of figure 6: the operating point
//! that one consumer's response time asks for. And the fixed integral controller of equation 2, which it is
//! compared with.

use serde::{Deserialize, Serialize};
use thiserror::Error;
use tidegate_units::{Iops, Latency};

use crate::document::decision::Bound;
use crate::law::integral::gain::ControllerGain;
use crate::law::queueing::station::{AtStorage, Point, QueueModel, Queueing, Station};
use crate::law::self_tuning::hyperbola::{Hyperbola, apart};
use crate::law::self_tuning::line::{Fitted, Model, Rivals, YOUNG};

/// When so many new models one after the other were impossible, it is the old one that is wrong.
const MOST_REJECTED: u32 = 5;

/// What is left at least of what was done, where the operating point falls in steps.
const STEP_DOWN: f64 = 0.5;

/// What is less than this part of a goal is no reason to be held further.
const FAR_BELOW: f64 = 0.8;

/// When response times were far below the goal for so many intervals, whatever the models say is too little:
/// then the operating point rises by this much, to no more than a part of the capacity that the curve knows,
/// beyond which requests would pile up.
const STUCK: u32 = 3;
const RISE: f64 = 1.5;
const SAFE: f64 = 0.9;

/// The least response time that a measurement says, one nanosecond: a storage that takes no time has no
/// model.
const LEAST_MS: f64 = 1e-6;

/// The parameters of the regulator, and of what it takes to carry out an operating point.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SelfTuningConfig {
    /// How the operating point is found.
    pub regulation: Regulation,
    /// Without so many requests in an interval nothing is concluded from them. Default: the paper's 6 (§4.2).
    pub least_requests: u32,
    /// u_min. Default 6 IO/s: at nothing there are no requests, hence no measurements, and nobody is ever let
    /// go again; with this somebody has the six requests that a decision takes in an interval of a second.
    /// The loop raises it to what that takes by the bands.
    pub least: Iops,
    /// u_max. Default [`UNBOUNDED`](Self::UNBOUNDED), since no number is right for every storage, and the
    /// default variant never steers by an operating point that was not reached.
    pub greatest: Iops,
    /// The least rate of every consumer, whatever its allotment. Default 2 IO/s, as of the other laws: enough
    /// that a client's own timeouts stay out of sight.
    pub floor: Iops,
}

/// How the operating point is found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Regulation {
    /// From a model that is learnt while it runs (eqs. 5 to 7).
    Adaptive(Adaptive),
    /// By a gain that is chosen beforehand (eq. 2): K_I, in IO/s per ms and interval.
    Fixed(ControllerGain),
    /// From a model of a queue that is learnt while it runs: nothing of a paper's.
    Queueing(Queueing),
}

/// How the model is learnt.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Adaptive {
    /// λ, within (0, 1]: what is left of the weight of an older measurement that speaks of the same. Default
    /// 0.7, of which the paper has no value: a memory of about three intervals, within which its system
    /// settles (§5). At rest at least 1 − λ of an error is corrected in an interval.
    pub forgetting: f64,
    /// The reset law: when the model has changed by more than this part in an interval, it is forgotten.
    /// Default: the paper's 0.3.
    pub reset_change: f64,
    /// The paper's algorithm, or which improvements of it.
    pub variant: SelfTuningVariant,
}

/// What the regulator does beyond the paper. Each by itself can be left out, to see what it is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SelfTuningVariant {
    /// The model is fed what was done, not what was allowed. Otherwise, with little demand, an operating
    /// point that nobody uses is said to be the reason for short response times, and one beyond the capacity
    /// for long ones.
    pub applied_input: bool,
    /// What a consumer does not use goes to the others. Otherwise it is left unused, and they are held back
    /// for it.
    pub lend_unused: bool,
    /// Requests of several intervals are put together until there are enough. Otherwise somebody with five in
    /// each never has a say again.
    pub gather: bool,
    /// The model is forgotten when its prediction was wrong by more than the part, and by more than three
    /// times what a mean of so many requests is wrong by chance; not in its first three intervals. Otherwise
    /// when a parameter has changed by more than that part of itself: one near nothing then resets the model
    /// in nearly every interval.
    pub compare_predictions: bool,
    /// After a reset everybody is let go for an interval (u = u_max), so that the change excites the system.
    /// Otherwise the new model, which takes the response time for proportional to the throughput, decides at
    /// once.
    pub burst: bool,
    /// Beside the line of eq. 5 the curve of a queue is learnt, `w = p/(C − u)`, and the one that predicts
    /// better decides. Otherwise the line does, also near the capacity, where none fits: each step up or down
    /// then is a new model.
    pub two_shapes: bool,
    /// The operating point falls to no less than half of what was done in the interval, but to drain within
    /// an interval what has piled up, or because the line, which has just predicted well, says so; and while
    /// response times are far below the goal, not at all, but after some intervals it rises. Otherwise a goal
    /// that a storage cannot keep, at the moment when it becomes another one, leads to u_min at once, where
    /// so few requests say next to nothing of the storage that is there now, and a model that still fits is
    /// believed for long.
    pub in_steps: bool,
}

impl SelfTuningVariant {
    /// The paper's words (figure 6, §4.2). u_max should then be near to what the storage does.
    pub const LITERAL: Self = Self {
        applied_input: false,
        lend_unused: false,
        gather: false,
        compare_predictions: false,
        burst: true,
        two_shapes: false,
        in_steps: false,
    };
    /// Everything. The default.
    pub const IMPROVED: Self = Self {
        applied_input: true,
        lend_unused: true,
        gather: true,
        compare_predictions: true,
        burst: false,
        two_shapes: true,
        in_steps: true,
    };
}

impl Default for SelfTuningVariant {
    fn default() -> Self {
        Self::IMPROVED
    }
}

impl Default for Adaptive {
    fn default() -> Self {
        Self { forgetting: 0.7, reset_change: 0.3, variant: SelfTuningVariant::default() }
    }
}

impl Default for SelfTuningConfig {
    fn default() -> Self {
        Self {
            regulation: Regulation::Adaptive(Adaptive::default()),
            least_requests: 6,
            least: Iops::new(6.0),
            greatest: Self::UNBOUNDED,
            floor: Iops::new(2.0),
        }
    }
}

impl SelfTuningConfig {
    /// An operating point beyond what any storage does, which holds nobody.
    pub const UNBOUNDED: Iops = Iops::new(1e9);

    /// The improvements that are in force. The fixed controller and the model of a queue have them all.
    #[must_use]
    pub const fn variant(&self) -> SelfTuningVariant {
        match &self.regulation {
            Regulation::Adaptive(adaptive) => adaptive.variant,
            Regulation::Fixed(_) | Regulation::Queueing(_) => SelfTuningVariant::IMPROVED,
        }
    }

    /// Checks every value.
    ///
    /// # Errors
    /// The first value that is out of range.
    pub fn validate(&self) -> Result<(), SelfTuningConfigError> {
        if let Regulation::Adaptive(Adaptive { forgetting, reset_change, variant }) = self.regulation {
            // Written so that NaN is refused as well.
            if !(forgetting > 0.0 && forgetting <= 1.0) {
                return Err(SelfTuningConfigError::Forgetting(forgetting));
            }
            if !(reset_change > 0.0 && reset_change.is_finite()) {
                return Err(SelfTuningConfigError::ResetChange(reset_change));
            }
            if !variant.applied_input && self.greatest >= Self::UNBOUNDED {
                return Err(SelfTuningConfigError::Unbounded);
            }
        }
        if let Regulation::Queueing(Queueing { forgetting, reset_change }) = self.regulation {
            if !(forgetting > 0.0 && forgetting <= 1.0) {
                return Err(SelfTuningConfigError::Forgetting(forgetting));
            }
            if !(reset_change > 0.0 && reset_change.is_finite()) {
                return Err(SelfTuningConfigError::ResetChange(reset_change));
            }
        }
        if self.least_requests == 0 {
            return Err(SelfTuningConfigError::LeastRequests);
        }
        if self.floor == Iops::ZERO {
            return Err(SelfTuningConfigError::Floor);
        }
        if self.least == Iops::ZERO || self.greatest < self.least {
            return Err(SelfTuningConfigError::Bounds { least: self.least, greatest: self.greatest });
        }
        Ok(())
    }
}

/// Why a regulator cannot be set up.
#[derive(Debug, Clone, Copy, PartialEq, Error)]
pub enum SelfTuningConfigError {
    /// With 0 nothing would ever be known, beyond 1 nothing ever forgotten.
    #[error("the forgetting factor must be above 0 and at most 1, it is {0}")]
    Forgetting(f64),
    /// A model that must not change at all would never be one.
    #[error("the change that resets the model must be above 0 and finite, it is {0}")]
    ResetChange(f64),
    /// From no request nothing can be concluded.
    #[error("at least one request must be needed for a decision")]
    LeastRequests,
    /// A consumer without an allotment would be stopped altogether.
    #[error("the floor rate must be greater than zero")]
    Floor,
    /// There is no operating point to choose from, or one of nothing.
    #[error("the operating point's bounds must be above zero and in order, they are {least} and {greatest}")]
    Bounds {
        /// u_min.
        least: Iops,
        /// u_max.
        greatest: Iops,
    },
    /// The paper's law takes u_max for what the system did after a reset.
    #[error("the literal variant needs a greatest operating point near to what the storage can do")]
    Unbounded,
}

/// What came of an interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Learnt {
    /// Too few requests: nothing was changed (figure 6, line 1).
    TooFew,
    /// The first measurement gave a first model.
    First,
    /// The model was improved.
    Updated,
    /// The new model was impossible (r₁ ≤ 0, or |r₂| ≥ r₁, against the proof's A3) and was discarded (figure
    /// 6, line 9).
    Rejected,
    /// The model changed too much and was forgotten (figure 6, line 5), or was contradicted too often.
    Reset,
    /// There is no model: the gain is fixed.
    Fixed,
}

/// What was measured in an interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Measured {
    /// How many requests completed.
    pub requests: u64,
    /// The sum of their response times.
    pub total: Latency,
    /// How long the interval was.
    pub over: Latency,
    /// Whose throughput is held for it; of the model of a queue only.
    pub held: AtStorage,
}

/// What one step gave.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SelfTuningStep {
    /// What was learnt.
    pub learnt: Learnt,
    /// The mean response time that was compared with the goal. `None` with too few requests.
    pub measured: Option<Latency>,
    /// The operating point that this consumer's response time asks for; the previous one with too few
    /// requests. `None` before the first.
    pub wish: Option<Iops>,
    /// The bound that made the difference.
    pub bound: Option<Bound>,
    /// The model now.
    pub model: Option<Model>,
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
#[derive(Debug, Clone, Default)]
pub struct SelfTuning {
    fitted: Option<Fitted>,
    /// The curve of a queue, and which of the two predicts better.
    hyperbola: Option<Hyperbola>,
    rivals: Rivals,
    /// For how many intervals response times have been far below the goal.
    below: u32,
    /// The same of the model of a queue.
    station: Option<Station>,
    /// Requests that were too few to conclude anything.
    gathered: Gathered,
    /// w(k−1) in ms and u(k−2), if the interval before was measured by itself. Otherwise the two are taken
    /// for what they are now.
    before: Option<(f64, f64)>,
    wish: Option<Iops>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Gathered {
    requests: u64,
    nanos: u128,
}

impl SelfTuning {
    /// One step. `goal` is y_ref, `in_force` u(k−1). `least` and `greatest` are bounds of now. `exempt`:
    /// conclude something from however few requests there are, because nobody has enough (figure 6, line 1).
    pub fn step(
        &mut self,
        config: &SelfTuningConfig,
        goal: Latency,
        measured: Measured,
        in_force: Iops,
        (least, greatest): (Iops, Iops),
        exempt: bool,
    ) -> SelfTuningStep {
        let Some((mean, requests, alone)) = self.gather(config, measured, exempt) else {
            self.before = None;
            return self.said(Learnt::TooFew, None, None);
        };
        let w = mean.as_millis_f64().max(LEAST_MS);
        let u = in_force.max(least).per_second();
        let goal_ms = goal.as_millis_f64();
        let (learnt, wanted) = match &config.regulation {
            Regulation::Fixed(gain) => (Learnt::Fixed, u + gain.iops_per_ms() * (goal_ms - w)),
            Regulation::Adaptive(adaptive) => {
                let (learnt, fitted) = self.learn(adaptive, w, u, requests);
                let line = fitted.control(goal_ms, w, u);
                let (learnt, wanted) = match self.curve(adaptive, (w, u, requests), goal_ms) {
                    Some((learnt, _, wanted)) if self.rivals.is_curve() => (learnt, wanted),
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
                let burst = learnt == Learnt::Reset && adaptive.variant.burst;
                (learnt, if burst { f64::INFINITY } else { wanted })
            }
            Regulation::Queueing(queueing) => {
                let point = Point { ms: w, requests, held: measured.held };
                match Station::after(self.station, queueing, point) {
                    Some((learnt, mut station)) => {
                        let wanted = station.control(goal_ms, point);
                        self.station = Some(station);
                        (learnt, wanted)
                    }
                    None => (Learnt::TooFew, f64::INFINITY),
                }
            }
        };
        self.before = alone.then_some((w, u));
        let (wish, bound) = confine(wanted, least, greatest);
        self.wish = Some(wish);
        self.said(learnt, Some(mean), bound)
    }

    /// What it asked for last, if it has.
    #[must_use]
    pub const fn wish(&self) -> Option<Iops> {
        self.wish
    }

    /// How many requests wait to be enough.
    pub(crate) const fn gathered(&self) -> u64 {
        self.gathered.requests
    }

    /// Nobody asks for anything: the regulator has no wish until there are requests again. What the model is
    /// stays, since the storage is the same.
    pub fn idle(&mut self) {
        (self.gathered, self.before, self.wish, self.below) = (Gathered::default(), None, None, 0);
    }

    /// There was nothing in this interval, which is too short a silence to conclude anything from.
    pub fn pause(&mut self) {
        self.before = None;
    }

    /// The interval cannot be used: nobody knows how long it was.
    pub fn skip(&mut self) {
        (self.gathered, self.before) = (Gathered::default(), None);
    }

    /// Bounds have changed: what it asks for is within them from now on.
    pub(crate) fn confine(&mut self, least: Iops, greatest: Iops) {
        self.wish = self.wish.map(|wish| wish.max(least).min(greatest));
    }

    /// The model now.
    #[must_use]
    pub fn model(&self) -> Option<Model> {
        self.fitted.map(|fitted| fitted.model())
    }

    /// How long requests of those who are held take when a goal is kept, by the model of a queue.
    pub(crate) fn takes(&self, goal: Latency) -> Latency {
        let takes = |station: Station| Latency::from_millis_f64(station.takes_ms(goal.as_millis_f64()));
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
        measured: Measured,
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
    fn learn(&self, adaptive: &Adaptive, w: f64, u: f64, requests: u64) -> (Learnt, Fitted) {
        let Some(old) = self.fitted else { return (Learnt::First, Fitted::begin(w, u)) };
        let (w_before, u_before) = self.before.unwrap_or((w, u));
        let regressor = old.regressor(w_before, u, u_before);
        let mut new = Fitted { age: old.age.saturating_add(1), rejected: 0, ..old };
        new.rls.learn(regressor, w / old.ms, adaptive.forgetting);
        // A young model may change as it likes, but into a possible one.
        let may_change = adaptive.variant.compare_predictions && new.age <= YOUNG && new.is_possible();
        if !may_change && new.has_changed(&old, regressor, w, requests, adaptive) {
            return (Learnt::Reset, Fitted::begin(w, u));
        }
        if !new.is_possible() {
            let rejected = old.rejected + 1;
            if rejected >= MOST_REJECTED {
                return (Learnt::Reset, Fitted::begin(w, u));
            }
            return (Learnt::Rejected, Fitted { rejected, age: new.age, ..old });
        }
        (Learnt::Updated, new)
    }

    /// The curve after an interval, where there is to be one, and what it asks for. Both models are judged by
    /// what they said of it beforehand.
    fn curve(
        &mut self,
        adaptive: &Adaptive,
        point: (f64, f64, u64),
        goal_ms: f64,
    ) -> Option<(Learnt, Hyperbola, f64)> {
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

    /// What is left of the operating point at least, after so much was done in an interval of this length
    /// with such a response time.
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

    fn said(&self, learnt: Learnt, measured: Option<Latency>, bound: Option<Bound>) -> SelfTuningStep {
        SelfTuningStep { learnt, measured, wish: self.wish, bound, model: self.model() }
    }
}

/// The anti-windup law (figure 6, line 12), with u_min for the paper's 0. What is no number holds: it is the
/// least.
fn confine(wanted: f64, least: Iops, greatest: Iops) -> (Iops, Option<Bound>) {
    if wanted >= greatest.per_second() {
        (greatest.max(least), Some(Bound::Greatest))
    } else if wanted > least.per_second() {
        (Iops::new(wanted), None)
    } else {
        (least, Some(Bound::Least))
    }
}

#[cfg(test)]
mod tests;
