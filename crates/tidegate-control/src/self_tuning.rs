//! The direct self-tuning regulator of Karlsson, Karamanolis and Zhu, *Triage: Performance Isolation and Differentiation for
//! Storage Systems*, equations 5 to 7 and the algorithm of figure 6: the operating point that one consumer's response time asks for. And the
//! fixed integral controller of equation 2, which it is compared with.

use serde::{Deserialize, Serialize};
use thiserror::Error;
use tidegate_units::{Iops, Latency};

use crate::decision::Bound;
use crate::gain::ControllerGain;
use crate::hyperbola::{Hyperbola, apart};
use crate::line::{Fitted, Model, Rivals, YOUNG};
use crate::queueing::{AtStorage, Point, QueueModel, Queueing, Station};

/// When so many new models one after the other were impossible, it is the old one that is wrong.
const MOST_REJECTED: u32 = 5;

/// What is left at least of what was done, where the operating point falls in steps.
const STEP_DOWN: f64 = 0.5;

/// What is less than this part of a goal is no reason to be held further.
const FAR_BELOW: f64 = 0.8;

/// When response times were far below the goal for so many intervals, whatever the models say is too little: then the operating point rises by this
/// much, to no more than a part of the capacity that the curve knows, beyond which requests would pile up.
const STUCK: u32 = 3;
const RISE: f64 = 1.5;
const SAFE: f64 = 0.9;

/// The least response time that a measurement says, one nanosecond: a storage that takes no time has no model.
const LEAST_MS: f64 = 1e-6;

/// The parameters of the regulator, and of what it takes to carry out an operating point.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SelfTuningConfig {
    /// How the operating point is found.
    pub regulation: Regulation,
    /// Without so many requests in an interval nothing is concluded from them. Default: the paper's 6 (§4.2).
    pub least_requests: u32,
    /// u_min. Default 6 IO/s: at nothing there are no requests, hence no measurements, and nobody is ever let go again; with this
    /// somebody has the six requests that a decision takes in an interval of a second. The loop raises it to what that takes by
    /// the bands.
    pub least: Iops,
    /// u_max. Default [`UNBOUNDED`](Self::UNBOUNDED), since no number is right for every storage, and the default variant never
    /// steers by an operating point that was not reached.
    pub greatest: Iops,
    /// The least rate of every consumer, whatever its allotment. Default 2 IO/s, as of the other laws: enough that a client's
    /// own timeouts stay out of sight.
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
    /// λ, within (0, 1]: what is left of the weight of an older measurement that speaks of the same. Default 0.7, of which the
    /// paper has no value: a memory of about three intervals, within which its system settles (§5). At rest at least 1 − λ of
    /// an error is corrected in an interval.
    pub forgetting: f64,
    /// The reset law: when the model has changed by more than this part in an interval, it is forgotten. Default: the paper's 0.3.
    pub reset_change: f64,
    /// The paper's algorithm, or which improvements of it.
    pub variant: SelfTuningVariant,
}

/// What the regulator does beyond the paper. Each by itself can be left out, to see what it is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SelfTuningVariant {
    /// The model is fed what was done, not what was allowed. Otherwise, with little demand, an operating point that nobody uses is
    /// said to be the reason for short response times, and one beyond the capacity for long ones.
    pub applied_input: bool,
    /// What a consumer does not use goes to the others. Otherwise it is left unused, and they are held back for it.
    pub lend_unused: bool,
    /// Requests of several intervals are put together until there are enough. Otherwise somebody with five in each never has a say again.
    pub gather: bool,
    /// The model is forgotten when its prediction was wrong by more than the part, and by more than three times what a mean of so many
    /// requests is wrong by chance; not in its first three intervals. Otherwise when a parameter has changed by more than that part of
    /// itself: one near nothing then resets the model in nearly every interval.
    pub compare_predictions: bool,
    /// After a reset everybody is let go for an interval (u = u_max), so that the change excites the system. Otherwise
    /// the new model, which takes the response time for proportional to the throughput, decides at once.
    pub burst: bool,
    /// Beside the line of eq. 5 the curve of a queue is learnt, `w = p/(C − u)`, and the one that predicts better decides. Otherwise
    /// the line does, also near the capacity, where none fits: each step up or down then is a new model.
    pub two_shapes: bool,
    /// The operating point falls to no less than half of what was done in the interval, but to drain within an interval what has piled up, or because the
    /// line, which has just predicted well, says so; and while response times are far below the goal, not at all, but after some intervals it rises.
    /// Otherwise a goal that a storage cannot keep, at the moment when it becomes another one, leads to u_min at once, where so few requests say next to
    /// nothing of the storage that is there now, and a model that still fits is believed for long.
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
    /// The new model was impossible (r₁ ≤ 0, or |r₂| ≥ r₁, against the proof's A3) and was discarded (figure 6, line 9).
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
    /// The operating point that this consumer's response time asks for; the previous one with too few requests. `None` before the first.
    pub wish: Option<Iops>,
    /// The bound that made the difference.
    pub bound: Option<Bound>,
    /// The model now.
    pub model: Option<Model>,
}

/// The regulator of one consumer.
///
/// What it says is as good as its models are. On a storage whose response time is in proportion to the throughput, as the paper's (figure 3), it is right
/// as soon as the line has predicted once. Where a goal lies on the steep part of a queue's curve, two measurements know the curve, but for what
/// they are wrong by.
///
/// Call [`step`](Self::step) once per control interval. It takes u(k−1), the operating point that was in force in the interval, as
/// an argument: of several regulators all use the lowest.
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
    /// w(k−1) in ms and u(k−2), if the interval before was measured by itself. Otherwise the two are taken for what they are now.
    before: Option<(f64, f64)>,
    wish: Option<Iops>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Gathered {
    requests: u64,
    nanos: u128,
}

impl SelfTuning {
    /// One step. `goal` is y_ref, `in_force` u(k−1). `least` and `greatest` are bounds of now. `exempt`: conclude something from however
    /// few requests there are, because nobody has enough (figure 6, line 1).
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
                    // A line through the origin takes a storage with many servers for nearly full as soon as one of them is busy.
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

    /// Nobody asks for anything: the regulator has no wish until there are requests again. What the model is stays, since the storage is
    /// the same.
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

    /// The mean of the requests at hand if they are enough, how many they are, and whether all are of this interval.
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

    /// The curve after an interval, where there is to be one, and what it asks for. Both models are judged by what they said of it beforehand.
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

    /// What is left of the operating point at least, after so much was done in an interval of this length with such a response time.
    fn at_least(&self, u: f64, (w, goal_ms, over_ms): (f64, f64, f64)) -> f64 {
        if self.below > 0 {
            let safe = self.hyperbola.map_or(u, |curve| SAFE * curve.model().capacity);
            let rises = self.below >= STUCK;
            return if rises { (u * RISE).min(safe).max(u) } else { u };
        }
        if self.rivals.line_was_right() {
            return 0.0;
        }
        // By Little's law u·(w − goal) requests are too many. That they go within an interval may take more than half.
        let drained = 1.0 - (w - goal_ms) / over_ms;
        u * STEP_DOWN.min(drained).max(0.0)
    }

    fn said(&self, learnt: Learnt, measured: Option<Latency>, bound: Option<Bound>) -> SelfTuningStep {
        SelfTuningStep { learnt, measured, wish: self.wish, bound, model: self.model() }
    }
}

/// The anti-windup law (figure 6, line 12), with u_min for the paper's 0. What is no number holds: it is the least.
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
mod tests {
    use proptest::prelude::*;
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64Mcg;

    use super::*;
    use crate::rls::Rls;

    const GOAL: Latency = Latency::from_millis(5);

    fn bounds() -> (Iops, Iops) {
        (Iops::new(6.0), SelfTuningConfig::UNBOUNDED)
    }

    fn of(requests: u64, mean: Latency) -> Measured {
        Measured {
            requests,
            total: Latency::from_nanos(mean.as_nanos().saturating_mul(requests)),
            over: Latency::from_millis(1_000),
            held: AtStorage::default(),
        }
    }

    fn literal(greatest: f64) -> SelfTuningConfig {
        let adaptive = Adaptive { variant: SelfTuningVariant::LITERAL, ..Adaptive::default() };
        SelfTuningConfig {
            regulation: Regulation::Adaptive(adaptive),
            greatest: Iops::new(greatest),
            ..SelfTuningConfig::default()
        }
    }

    fn with(variant: SelfTuningVariant) -> SelfTuningConfig {
        let adaptive = Adaptive { variant, ..Adaptive::default() };
        SelfTuningConfig { regulation: Regulation::Adaptive(adaptive), ..SelfTuningConfig::default() }
    }

    /// A storage as in figure 3, `y(k) = a·y(k−1) + b·u(k)`, which does no more than `capacity`.
    struct Storage {
        a: f64,
        b: f64,
        capacity: f64,
        y: f64,
    }

    impl Storage {
        const fn new(a: f64, b: f64) -> Self {
            Self { a, b, capacity: 2_000.0, y: 0.0 }
        }

        /// What was done in the interval, and its response time in ms.
        fn interval(&mut self, u: Iops) -> (Iops, f64) {
            let done = u.per_second().min(self.capacity);
            self.y = self.a * self.y + self.b * done;
            (Iops::new(done), self.y)
        }
    }

    /// Response times in ms, interval by interval, from `start` on.
    fn run(
        regulator: &mut SelfTuning,
        config: &SelfTuningConfig,
        storage: &mut Storage,
        goal: Latency,
        start: Iops,
        intervals: usize,
    ) -> Vec<f64> {
        let mut u = start;
        (0..intervals)
            .map(|_| {
                let (done, y) = storage.interval(u);
                let measured = of(100, Latency::from_millis_f64(y));
                let step =
                    regulator.step(config, goal, measured, done, (config.least, config.greatest), false);
                u = step.wish.unwrap();
                y
            })
            .collect()
    }

    /// The paper's two models of figure 3, thirty-fold apart.
    const fn cache() -> Storage {
        Storage::new(0.045_54, 0.003_827)
    }

    const fn disk() -> Storage {
        Storage::new(0.001_109, 0.137_7)
    }

    #[test]
    fn without_having_been_told_it_settles_on_the_papers_disk_and_on_its_cache() {
        for mut storage in [cache(), disk()] {
            let config = SelfTuningConfig::default();
            let mut regulator = SelfTuning::default();
            let response = run(&mut regulator, &config, &mut storage, GOAL, Iops::new(2_000.0), 20);
            for (at, y) in response.iter().enumerate().skip(3) {
                assert!((y / 5.0 - 1.0).abs() < 0.05, "{at}: {response:?}");
            }
        }
    }

    /// Figure 8: the data moves from disk to cache, and the goal is another one.
    #[test]
    fn it_follows_from_disk_to_cache_and_back_within_three_intervals() {
        for variant in
            [SelfTuningVariant::IMPROVED, SelfTuningVariant { burst: true, ..SelfTuningVariant::IMPROVED }]
        {
            let config = with(variant);
            let mut regulator = SelfTuning::default();
            run(&mut regulator, &config, &mut disk(), Latency::from_millis(20), Iops::new(100.0), 40);
            let before = regulator.wish().unwrap();
            let cached = run(&mut regulator, &config, &mut cache(), GOAL, before, 20);
            assert!(cached[4..].iter().all(|y| (y / 5.0 - 1.0).abs() < 0.05), "{variant:?} {cached:?}");
            let before = regulator.wish().unwrap();
            let back = run(&mut regulator, &config, &mut disk(), Latency::from_millis(20), before, 20);
            assert!(back[4..].iter().all(|y| (y / 20.0 - 1.0).abs() < 0.05), "{variant:?} {back:?}");
        }
    }

    /// Figures 4 and 5: what is right for the disk is thirty times too slow for the cache, the other way round it swings.
    #[test]
    fn a_fixed_gain_is_right_for_one_of_them_only() {
        let settles = |gain: f64, mut storage: Storage| {
            let regulation = Regulation::Fixed(ControllerGain::new(gain).unwrap());
            let config =
                SelfTuningConfig { regulation, greatest: Iops::new(2_000.0), ..SelfTuningConfig::default() };
            let response = run(&mut SelfTuning::default(), &config, &mut storage, GOAL, Iops::new(20.0), 60);
            response.iter().rposition(|y| (y / 5.0 - 1.0).abs() > 0.1).map_or(0, |last| last + 1)
        };
        assert!(settles(7.2, disk()) <= 5 && settles(213.0, cache()) <= 5);
        assert!(settles(7.2, cache()) >= 30, "{}", settles(7.2, cache()));
        assert_eq!(settles(213.0, disk()), 60, "unstable: beyond 14.5");
    }

    #[test]
    fn one_step_is_equation_7() {
        let config = with(SelfTuningVariant { two_shapes: false, ..SelfTuningVariant::IMPROVED });
        let mut regulator = SelfTuning::default();
        let first = regulator.step(
            &config,
            GOAL,
            of(100, Latency::from_millis(10)),
            Iops::new(400.0),
            bounds(),
            false,
        );
        // 10 ms at 400 IO/s: r1 = 0.025 ms per IO/s, and 5 ms at 200.
        assert_eq!(first.learnt, Learnt::First);
        assert_eq!(first.model, Some(Model { s1: 0.0, r1: 0.025, r2: 0.0 }));
        assert!((first.wish.unwrap().per_second() - 200.0).abs() < 1e-9);
        let second = regulator.step(
            &config,
            GOAL,
            of(100, Latency::from_millis(6)),
            Iops::new(200.0),
            bounds(),
            false,
        );
        let Model { s1, r1, r2 } = second.model.unwrap();
        assert_eq!(second.learnt, Learnt::Updated);
        assert!((second.wish.unwrap().per_second() - (5.0 - s1 * 6.0 - r2 * 200.0) / r1).abs() < 1e-9);
        // Of the millisecond that there was more than predicted, it has understood the greater part.
        assert!((5.5..6.0).contains(&(s1 * 10.0 + r1 * 200.0 + r2 * 400.0)), "{second:?}");
    }

    #[test]
    fn with_five_requests_nothing_is_changed_unless_exempt_or_until_there_are_six() {
        let config = SelfTuningConfig::default();
        let ready = || {
            let mut regulator = SelfTuning::default();
            regulator.step(&config, GOAL, of(6, Latency::from_millis(10)), Iops::new(400.0), bounds(), false);
            regulator
        };
        let slow = of(5, Latency::from_millis(90));
        let mut regulator = ready();
        let before = (regulator.model(), regulator.wish());
        let few = regulator.step(&config, GOAL, slow, Iops::new(200.0), bounds(), false);
        assert_eq!((few.learnt, few.measured, few.bound), (Learnt::TooFew, None, None));
        assert_eq!((few.model, few.wish), before);
        // One more, and what was gathered counts.
        let enough =
            regulator.step(&config, GOAL, of(1, Latency::from_millis(30)), Iops::new(200.0), bounds(), false);
        assert_eq!((enough.learnt, enough.measured), (Learnt::Updated, Some(Latency::from_millis(80))));
        let exempt = ready().step(&config, GOAL, slow, Iops::new(200.0), bounds(), true);
        assert_eq!(exempt.measured, Some(Latency::from_millis(90)));
        // Of the paper's words nothing is gathered.
        let config = literal(1_000.0);
        let mut regulator = SelfTuning::default();
        for _ in 0..100 {
            let few = regulator.step(&config, GOAL, slow, Iops::new(200.0), bounds(), false);
            assert_eq!((few.learnt, few.wish), (Learnt::TooFew, None));
        }
        // Nor does nothing say anything, to whomever.
        assert_eq!(
            regulator.step(&config, GOAL, of(0, GOAL), Iops::ZERO, bounds(), true).learnt,
            Learnt::TooFew
        );
    }

    #[test]
    fn a_reset_lets_everybody_go_for_an_interval_where_it_is_to() {
        for burst in [true, false] {
            let variant = SelfTuningVariant { burst, ..SelfTuningVariant::IMPROVED };
            let config = SelfTuningConfig { greatest: Iops::new(3_000.0), ..with(variant) };
            let mut regulator = SelfTuning::default();
            run(&mut regulator, &config, &mut disk(), GOAL, Iops::new(36.0), 20);
            let step = regulator.step(
                &config,
                GOAL,
                of(100, Latency::from_millis_f64(0.15)),
                Iops::new(36.0),
                (config.least, config.greatest),
                false,
            );
            assert_eq!(step.learnt, Learnt::Reset, "{step:?}");
            let expected = if burst { 3_000.0 } else { 5.0 / 0.15 * 36.0 };
            assert!((step.wish.unwrap().per_second() - expected).abs() < 1.0, "{step:?}");
        }
    }

    #[test]
    fn by_its_own_size_a_parameter_near_nothing_resets_the_model_again_and_again() {
        let resets = |compare_predictions: bool| {
            let config = with(SelfTuningVariant { compare_predictions, ..SelfTuningVariant::IMPROVED });
            let (mut regulator, mut storage, mut u) = (SelfTuning::default(), disk(), Iops::new(40.0));
            let mut random = Pcg64Mcg::seed_from_u64(5);
            let mut count = 0;
            for _ in 0..200 {
                let (done, y) = storage.interval(u);
                let seen = Latency::from_millis_f64(y * random.random_range(0.95..1.05));
                let step = regulator.step(&config, GOAL, of(50, seen), done, bounds(), false);
                count += u32::from(step.learnt == Learnt::Reset);
                u = step.wish.unwrap();
            }
            count
        };
        assert!(resets(true) == 0 && resets(false) > 20, "{} {}", resets(true), resets(false));
    }

    #[test]
    fn an_impossible_model_is_discarded_and_when_nothing_else_comes_the_old_one_is() {
        // Nothing else resets it.
        let variant = SelfTuningVariant { two_shapes: false, ..SelfTuningVariant::IMPROVED };
        let regulation = Regulation::Adaptive(Adaptive { reset_change: 1e9, variant, ..Adaptive::default() });
        let config = SelfTuningConfig { regulation, ..SelfTuningConfig::default() };
        // It predicts half as much again as there is, and r₁ and r₂ are uncertain alike: less of both is |r₂| ≥ r₁.
        let rls = Rls::new([1.5, 0.1, -0.09], [1.0; 3]);
        let fitted = Fitted { rls, ms: 5.0, iops: 100.0, age: 10, rejected: 0 };
        let mut regulator =
            SelfTuning { fitted: Some(fitted), before: Some((5.0, 100.0)), ..SelfTuning::default() };
        let model = regulator.model();
        for interval in 1..=MOST_REJECTED {
            let step = regulator.step(&config, GOAL, of(50, GOAL), Iops::new(100.0), bounds(), false);
            if interval < MOST_REJECTED {
                assert_eq!((step.learnt, step.model), (Learnt::Rejected, model));
            } else {
                assert_eq!(
                    (step.learnt, step.model),
                    (Learnt::Reset, Some(Model { s1: 0.0, r1: 0.05, r2: 0.0 }))
                );
            }
        }
    }

    #[test]
    fn an_hour_at_a_bound_winds_nothing_up() {
        for variant in
            [SelfTuningVariant::IMPROVED, SelfTuningVariant { burst: true, ..SelfTuningVariant::IMPROVED }]
        {
            let config = SelfTuningConfig { greatest: Iops::new(500.0), ..with(variant) };
            let mut regulator = SelfTuning::default();
            // Whatever it asks for: too slow for an hour, and then too quick.
            let mut slow = Storage::new(0.0, 5.0);
            let response = run(&mut regulator, &config, &mut slow, GOAL, Iops::new(500.0), 3_600);
            assert!(regulator.wish() == Some(config.least) && response.last() > Some(&5.0));
            let settled = run(&mut regulator, &config, &mut disk(), GOAL, config.least, 10);
            assert!(settled[5..].iter().all(|y| (y / 5.0 - 1.0).abs() < 0.05), "{settled:?}");
            let mut quick = Storage::new(0.0, 0.001);
            run(&mut regulator, &config, &mut quick, GOAL, config.least, 3_600);
            assert_eq!(regulator.wish(), Some(config.greatest));
            let settled = run(&mut regulator, &config, &mut disk(), GOAL, config.greatest, 10);
            assert!(settled[5..].iter().all(|y| (y / 5.0 - 1.0).abs() < 0.05), "{settled:?}");
        }
    }

    #[test]
    fn no_samples_one_sample_equal_samples_no_time_and_minutes() {
        let config = SelfTuningConfig::default();
        let step = |regulator: &mut SelfTuning, requests, mean| {
            regulator.step(&config, GOAL, of(requests, mean), Iops::new(100.0), bounds(), true)
        };
        let mut regulator = SelfTuning::default();
        assert_eq!(step(&mut regulator, 0, GOAL).wish, None);
        assert_eq!(step(&mut regulator, 1, GOAL).wish, Some(Iops::new(100.0)));
        for _ in 0..1_000 {
            step(&mut regulator, 50, GOAL);
        }
        assert_eq!(step(&mut regulator, 50, GOAL).wish, Some(Iops::new(100.0)));
        // What takes no time need not be held.
        for _ in 0..10 {
            assert!(step(&mut regulator, 50, Latency::ZERO).wish > Some(Iops::new(1e6)));
        }
        for _ in 0..10 {
            assert_eq!(step(&mut regulator, 50, Latency::from_secs_f64(300.0)).bound, Some(Bound::Least));
        }
        assert_eq!(step(&mut regulator, 6, Latency::MAX).bound, Some(Bound::Least));
        // And it is as good as new.
        let response = run(&mut regulator, &config, &mut cache(), GOAL, config.least, 20);
        assert!(response[8..].iter().all(|y| (y / 5.0 - 1.0).abs() < 0.05), "{response:?}");
    }

    /// By a variant, what it asks for after a disk of which it knows the curve has been measured at 160 IO/s for a while, and then this.
    fn asks_after(variant: SelfTuningVariant, goal: Latency, ms: f64, done: f64) -> f64 {
        let config = with(variant);
        let mut regulator = SelfTuning::default();
        let mut step = |goal, ms: f64, done: f64| {
            let measured = of(done as u64, Latency::from_millis_f64(ms));
            regulator
                .step(&config, goal, measured, Iops::new(done), bounds(), false)
                .wish
                .unwrap()
                .per_second()
        };
        for turn in 0..20 {
            let done = if turn % 2 == 0 { 155.0 } else { 165.0 };
            step(Latency::from_millis(20), 1_000.0 / (210.0 - done), done);
        }
        step(goal, ms, done)
    }

    #[test]
    fn a_goal_that_cannot_be_kept_halves_what_is_done_and_what_has_piled_up_is_drained() {
        let direct = SelfTuningVariant { in_steps: false, ..SelfTuningVariant::IMPROVED };
        let short = Latency::from_millis(2);
        // 20 ms at 160 IO/s of a server that takes 5 ms by itself: no rate leads to 2.
        assert!((asks_after(direct, short, 20.0, 160.0) - 6.0).abs() < 1e-9);
        assert!((asks_after(SelfTuningVariant::IMPROVED, short, 20.0, 160.0) - 80.0).abs() < 1e-9);
        // 750 ms too long, of an interval of a second: what has piled up drains in it with a quarter of what is done.
        let drains = asks_after(SelfTuningVariant::IMPROVED, short, 752.0, 200.0);
        assert!((drains - 50.0).abs() < 1e-9, "{drains}");
    }

    #[test]
    fn far_below_the_goal_for_long_it_rises_up_to_what_the_storage_is_known_to_do() {
        let how = (0.7, 0.3);
        let mut regulator = SelfTuning::default();
        for done in [150.0, 180.0, 150.0, 180.0] {
            let point = (1_000.0 / (210.0 - done), done, 1_000);
            regulator.hyperbola = Some(Hyperbola::after(regulator.hyperbola, how, point, 20.0).1);
        }
        let rises =
            |below, u: f64| SelfTuning { below, ..regulator.clone() }.at_least(u, (5.0, 20.0, 1_000.0));
        assert!((rises(1, 100.0) - 100.0).abs() < 1e-9 && (rises(2, 100.0) - 100.0).abs() < 1e-9);
        assert!((rises(3, 100.0) - 150.0).abs() < 1e-9);
        // Nine tenths of 210, and never less than what is done.
        assert!((rises(3, 160.0) / 189.0 - 1.0).abs() < 0.05, "{}", rises(3, 160.0));
        assert!((rises(3, 205.0) - 205.0).abs() < 1e-9);
    }

    #[test]
    fn far_below_the_goal_nothing_falls_and_climbs_are_bounded() {
        let goal = Latency::from_millis(20);
        // It has become ten times as fast.
        let climbs = asks_after(SelfTuningVariant::IMPROVED, goal, 2.0, 160.0);
        assert!((160.0..=1_600.0 + 1e-9).contains(&climbs), "{climbs}");
        // Near the goal a step is no greater than the room that there is, twice over.
        let near = asks_after(SelfTuningVariant::IMPROVED, goal, 19.0, 160.0);
        assert!((80.0..=160.0 * (20.0_f64 / 19.0).powi(2) + 1e-9).contains(&near), "{near}");
    }

    #[test]
    fn who_is_idle_asks_for_nothing_and_remembers_the_storage() {
        let config = SelfTuningConfig::default();
        let mut regulator = SelfTuning::default();
        run(&mut regulator, &config, &mut disk(), GOAL, Iops::new(40.0), 10);
        let model = regulator.model();
        regulator.idle();
        assert_eq!((regulator.wish(), regulator.model()), (None, model));
        let back = regulator.step(&config, GOAL, of(50, GOAL), Iops::new(36.3), bounds(), false);
        assert!((back.wish.unwrap().per_second() / 36.3 - 1.0).abs() < 0.02, "{back:?}");
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let refused = |config: SelfTuningConfig| config.validate().unwrap_err().to_string();
        let default = SelfTuningConfig::default();
        let adaptive = |forgetting, reset_change, variant| SelfTuningConfig {
            regulation: Regulation::Adaptive(Adaptive { forgetting, reset_change, variant }),
            ..default
        };
        let improved = SelfTuningVariant::IMPROVED;
        let cases = [
            (adaptive(0.0, 0.3, improved), "forgetting factor must be above 0"),
            (adaptive(1.01, 0.3, improved), "at most 1, it is 1.01"),
            (adaptive(f64::NAN, 0.3, improved), "forgetting factor"),
            (adaptive(0.9, 0.0, improved), "the change that resets"),
            (adaptive(0.9, 0.3, SelfTuningVariant::LITERAL), "needs a greatest operating point"),
            (SelfTuningConfig { least_requests: 0, ..default }, "at least one request"),
            (SelfTuningConfig { floor: Iops::ZERO, ..default }, "floor rate"),
            (SelfTuningConfig { least: Iops::ZERO, ..default }, "must be above zero and in order"),
            (SelfTuningConfig { greatest: Iops::new(5.0), ..default }, "they are 6.0 IO/s and 5.0 IO/s"),
        ];
        for (config, said) in cases {
            assert!(refused(config).contains(said), "{said}: {}", refused(config));
        }
        assert_eq!(default.validate(), Ok(()));
        assert_eq!(literal(900.0).validate(), Ok(()));
    }

    fn any_variant() -> impl Strategy<Value = SelfTuningVariant> {
        any::<[bool; 7]>().prop_map(
            |[applied_input, lend_unused, gather, compare_predictions, burst, two_shapes, in_steps]| {
                SelfTuningVariant {
                    applied_input,
                    lend_unused,
                    gather,
                    compare_predictions,
                    burst,
                    two_shapes,
                    in_steps,
                }
            },
        )
    }

    fn any_regulation() -> impl Strategy<Value = Regulation> {
        let adaptive =
            (0.1..=1.0, 0.01..2.0, any_variant()).prop_map(|(forgetting, reset_change, variant)| {
                Regulation::Adaptive(Adaptive { forgetting, reset_change, variant })
            });
        let gain = prop_oneof![1e-3..1e3, Just(f64::MAX), Just(f64::MIN_POSITIVE)];
        prop_oneof![3 => adaptive, 1 => gain.prop_map(|gain| Regulation::Fixed(ControllerGain::new(gain).unwrap()))]
    }

    fn number() -> impl Strategy<Value = u64> {
        prop_oneof![Just(0), 1u64..10, 0u64..100_000_000, any::<u64>(), Just(u64::MAX)]
    }

    proptest! {
        #[test]
        fn always_within_its_bounds_with_a_possible_model(
            regulation in any_regulation(),
            steps in prop::collection::vec(
                (number(), number(), number(), prop_oneof![0.0..1e4, any::<f64>()], any::<bool>()), 1..60
            ),
        ) {
            let config = SelfTuningConfig { regulation, greatest: Iops::new(1e5), ..SelfTuningConfig::default() };
            let mut regulator = SelfTuning::default();
            for (goal, requests, total, in_force, exempt) in steps {
                let measured = Measured { requests, total: Latency::from_nanos(total), over: Latency::from_millis(1_000), held: AtStorage::default() };
                let goal = Latency::from_nanos(goal.max(1));
                let step = regulator.step(&config, goal, measured, Iops::new(in_force), (config.least, config.greatest), exempt);
                prop_assert!(step.wish.is_none_or(|wish| config.least <= wish && wish <= config.greatest));
                prop_assert_eq!(step.learnt == Learnt::TooFew, step.measured.is_none());
                if let Some(Model { s1, r1, r2 }) = step.model {
                    prop_assert!(r1 > 0.0 && r2.abs() < r1 && s1.is_finite() && r1.is_finite(), "{:?}", step);
                }
            }
        }

        /// Any storage of figure 3's kind: within five intervals, one more for each time that the overload is to be halved, and for good.
        #[test]
        fn any_first_order_storage_is_settled(a in 0.0..0.3, b in 0.001..1.0, goal_ms in 1.0..50.0) {
            let config = SelfTuningConfig::default();
            let mut storage = Storage::new(a, b);
            prop_assume!(goal_ms * (1.0 - a) / b > 20.0 && goal_ms * (1.0 - a) / b < 1_500.0);
            let goal = Latency::from_millis_f64(goal_ms);
            let response = run(&mut SelfTuning::default(), &config, &mut storage, goal, Iops::new(2_000.0), 60);
            let halved = (2_000.0 * b / (goal_ms * (1.0 - a))).log2().max(0.0).ceil();
            for (at, y) in response.iter().enumerate().skip(6 + halved as usize) {
                prop_assert!((y / goal_ms - 1.0).abs() < 0.1, "{} {:?}", at, response);
            }
        }
    }
}
