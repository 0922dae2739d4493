//! The parameters of the self-tuning law.

use serde::{Deserialize, Serialize};
use thiserror::Error;
use tidegate_units::Iops;

use crate::document::output::LawKind;
use crate::document::point_decision::PointDecision;
use crate::law::integral::gain::ControllerGain;
use crate::law::parameters::{FirstRate, KeyValue, LawParameters, LoopRules};
use crate::law::queueing::config::QueueLearning;
use crate::law::self_tuning::figure6::Figure6Learning;

/// The parameters of the regulator, and of what it takes to carry out an operating point.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SelfTuningConfig {
    /// Method that finds the operating point.
    pub regulation: RegulationMethod,
    /// Without so many requests in an interval nothing is concluded from them. Default: the paper's 6 (§4.2).
    pub least_requests: u32,
    /// u_min. Default 6 IO/s. At zero there are no requests, hence no measurements, and no consumer is ever
    /// released again. With 6 IO/s one consumer has the six requests that a decision takes in an interval of
    /// a second. The loop raises it to what that takes by the bands.
    pub least: Iops,
    /// u_max. Default [`UNBOUNDED`](Self::UNBOUNDED), since no number is right for every storage, and the
    /// default variant never steers by an operating point that was not reached.
    pub greatest: Iops,
    /// The least rate of every consumer, whatever its allotment. Default 2 IO/s, as of the other laws: enough
    /// that a client's own timeouts stay out of sight.
    pub floor: Iops,
}

/// Methods that find the operating point.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum RegulationMethod {
    /// The improved regulator: from a model that is learnt while it runs (eqs. 5 to 7).
    Adaptive(LineLearning),
    /// The regulator of figure 6, step by step: from a model that is learnt while it runs.
    Literal(Figure6Learning),
    /// By a gain that is chosen beforehand (eq. 2): K_I, in IO/s per ms and interval.
    Fixed(ControllerGain),
    /// From a model of a queue that is learnt while it runs: nothing of a paper's.
    Queueing(QueueLearning),
}

/// Learning of the model.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LineLearning {
    /// λ, within (0, 1]: what is left of the weight of an older measurement that speaks of the same. Default
    /// 0.7, of which the paper has no value: a memory of about three intervals, within which its system
    /// settles (§5). At rest at least 1 − λ of an error is corrected in an interval.
    pub forgetting: f64,
    /// The reset law: when the model has changed by more than this part in an interval, it is forgotten.
    /// Default: the paper's 0.3.
    pub reset_change: f64,
    /// The improvements of the paper's algorithm.
    pub variant: SelfTuningVariant,
}

/// Additions of the regulator to the paper. Each can be left out by itself, to measure its worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SelfTuningVariant {
    /// The model is fed the load that was done, not the load that was allowed. Otherwise, with little demand,
    /// an unused operating point seems to be the reason for short response times, and one beyond the capacity
    /// for long ones.
    pub applied_input: bool,
    /// Lending: other consumers get the throughput that a consumer does not use. Otherwise it is left unused,
    /// and they are throttled for it.
    pub lend_unused: bool,
    /// Requests of several intervals are put together until there are enough. Otherwise a consumer with five
    /// in each never has a say again.
    pub gather: bool,
    /// The model is forgotten when its prediction was wrong by more than the part, and by more than three
    /// times what a mean of so many requests is wrong by chance; not in its first three intervals. Otherwise
    /// when a parameter has changed by more than that part of itself: one near nothing then resets the model
    /// in nearly every interval.
    pub compare_predictions: bool,
    /// After a reset all consumers are released for an interval (u = u_max), so that the change excites the
    /// system. Otherwise the new model, which takes the response time for proportional to the throughput,
    /// decides at once.
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
    /// Nothing is added. [`RegulationMethod::Literal`] has none of it, and another estimator besides.
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

impl Default for LineLearning {
    fn default() -> Self {
        Self { forgetting: 0.7, reset_change: 0.3, variant: SelfTuningVariant::default() }
    }
}

impl Default for SelfTuningConfig {
    fn default() -> Self {
        Self {
            regulation: RegulationMethod::Adaptive(LineLearning::default()),
            least_requests: 6,
            least: Iops::new(6.0),
            greatest: Self::UNBOUNDED,
            floor: Iops::new(2.0),
        }
    }
}

impl SelfTuningConfig {
    /// An operating point beyond any storage's ability, which throttles nothing.
    pub const UNBOUNDED: Iops = PointDecision::UNBOUNDED;

    /// The improvements that are in force. The fixed controller and the model of a queue have them all.
    #[must_use]
    pub const fn variant(&self) -> SelfTuningVariant {
        match &self.regulation {
            RegulationMethod::Adaptive(adaptive) => adaptive.variant,
            RegulationMethod::Literal(_) => SelfTuningVariant::LITERAL,
            RegulationMethod::Fixed(_) | RegulationMethod::Queueing(_) => SelfTuningVariant::IMPROVED,
        }
    }

    /// Returns true if the law is figure 6 to the letter.
    pub(crate) const fn is_literal(&self) -> bool {
        matches!(self.regulation, RegulationMethod::Literal(_))
    }

    /// λ and the change that resets the model; `None` where nothing is learnt.
    const fn learning(&self) -> Option<(f64, f64)> {
        match self.regulation {
            RegulationMethod::Adaptive(LineLearning { forgetting, reset_change, .. })
            | RegulationMethod::Literal(Figure6Learning { forgetting, reset_change })
            | RegulationMethod::Queueing(QueueLearning { forgetting, reset_change }) => {
                Some((forgetting, reset_change))
            }
            RegulationMethod::Fixed(_) => None,
        }
    }

    /// Returns the default parameters with the model of a queue.
    #[must_use]
    pub fn queueing_model() -> Self {
        Self { regulation: RegulationMethod::Queueing(QueueLearning::default()), ..Self::default() }
    }

    /// Checks every value.
    ///
    /// # Errors
    /// The first value that is out of range.
    pub fn validate(&self) -> Result<(), SelfTuningConfigError> {
        if let Some((forgetting, reset_change)) = self.learning() {
            // Written so that NaN is refused as well.
            if !(forgetting > 0.0 && forgetting <= 1.0) {
                return Err(SelfTuningConfigError::Forgetting(forgetting));
            }
            if !(reset_change > 0.0 && reset_change.is_finite()) {
                return Err(SelfTuningConfigError::ResetChange(reset_change));
            }
        }
        // Steered by what is allowed, it takes u_max for what was done.
        if !self.variant().applied_input && self.greatest >= Self::UNBOUNDED {
            return Err(SelfTuningConfigError::Unbounded);
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

impl RegulationMethod {
    /// Sets a parameter of the method. A gain, which is fixed, replaces learning.
    fn set(&mut self, key: &str, value: KeyValue<'_>) -> Result<(), String> {
        match (key, value, &mut *self) {
            ("gain", KeyValue::Number(gain), Self::Adaptive(_) | Self::Fixed(_)) => {
                *self = Self::Fixed(ControllerGain::new(gain).map_err(|error| error.to_string())?);
            }
            ("forgetting", KeyValue::Number(forgetting), Self::Adaptive(line)) => {
                line.forgetting = forgetting;
            }
            ("forgetting", KeyValue::Number(forgetting), Self::Queueing(queue)) => {
                queue.forgetting = forgetting;
            }
            ("forgetting", KeyValue::Number(forgetting), Self::Literal(figure)) => {
                figure.forgetting = forgetting;
            }
            ("reset_change", KeyValue::Number(change), Self::Adaptive(line)) => line.reset_change = change,
            ("reset_change", KeyValue::Number(change), Self::Literal(figure)) => {
                figure.reset_change = change;
            }
            ("reset_change", KeyValue::Number(change), Self::Queueing(queue)) => queue.reset_change = change,
            ("variant", KeyValue::Word("literal"), Self::Adaptive(line)) => {
                let LineLearning { forgetting, reset_change, .. } = *line;
                *self = Self::Literal(Figure6Learning { forgetting, reset_change });
            }
            ("variant", KeyValue::Word("literal"), Self::Literal(_)) => {}
            ("variant", KeyValue::Word(_), Self::Adaptive(line)) => {
                line.variant = SelfTuningVariant::IMPROVED;
            }
            ("variant", KeyValue::Word(_), Self::Literal(figure)) => {
                let Figure6Learning { forgetting, reset_change } = *figure;
                *self = Self::Adaptive(LineLearning { forgetting, reset_change, ..LineLearning::default() });
            }
            _ => {}
        }
        Ok(())
    }
}

impl LawParameters for SelfTuningConfig {
    fn kind(&self) -> LawKind {
        match self.regulation {
            RegulationMethod::Queueing(_) => LawKind::QueueingModel,
            RegulationMethod::Adaptive(_) | RegulationMethod::Literal(_) | RegulationMethod::Fixed(_) => {
                LawKind::SelfTuning
            }
        }
    }

    fn set(&mut self, key: &str, value: KeyValue<'_>) -> Result<(), String> {
        match (key, value) {
            ("least", KeyValue::Rate(least)) => self.least = least,
            ("greatest", KeyValue::Rate(greatest)) => self.greatest = greatest,
            ("floor", KeyValue::Rate(floor)) => self.floor = floor,
            ("least_requests", KeyValue::Whole(requests)) => self.least_requests = requests,
            _ => self.regulation.set(key, value)?,
        }
        Ok(())
    }

    fn without_effect(&self) -> Option<(&'static [&'static str], &'static str)> {
        match self.regulation {
            RegulationMethod::Adaptive(_) | RegulationMethod::Literal(_) => None,
            RegulationMethod::Fixed(_) => Some((
                &["forgetting", "reset_change", "variant"],
                "with a `gain` nothing is learnt: it is fixed",
            )),
            RegulationMethod::Queueing(_) => {
                Some((&["gain", "variant"], "the law is `queueing-model`, which has neither"))
            }
        }
    }

    fn rules(&self) -> LoopRules {
        LoopRules::Goals { of_reads: matches!(self.regulation, RegulationMethod::Queueing(_)) }
    }

    fn first_rate(&self) -> Option<FirstRate> {
        Some(FirstRate::Released)
    }

    fn floor(&self) -> Option<Iops> {
        Some(self.floor)
    }
}

/// Reason that a regulator cannot be set up.
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

impl SelfTuningConfigError {
    /// Returns the keys that the error may be about; the first written one is the place.
    #[must_use]
    pub const fn keys(&self) -> &'static [&'static str] {
        match self {
            Self::Forgetting(_) => &["forgetting"],
            Self::ResetChange(_) => &["reset_change"],
            Self::LeastRequests => &["least_requests"],
            Self::Floor => &["floor"],
            Self::Bounds { .. } => &["greatest", "least"],
            Self::Unbounded => &["greatest", "variant"],
        }
    }
}
