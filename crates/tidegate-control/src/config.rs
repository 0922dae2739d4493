//! The configuration of a loop.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use tidegate_units::{Instant, Latency, ResourceName};

use crate::document::output::LawKind;
use crate::document::signal::{SignalRequests, SignalStatistic};
use crate::law::bands::Bands;
use crate::law::parameters::{FirstRate, LoopRules};
use crate::law::registry::{LawConfig, LawConfigError};
use crate::set_point::knee::{KneeConfig, KneeConfigError};

/// Configuration of the regulation of one resource.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LoopConfig {
    /// The resource.
    pub resource: ResourceName,
    /// The latency promised to the protected consumers' reads, or to all consumers if none is protected.
    /// Under the integral law it is no promise, since promises are made by contract: consumers without a
    /// contract are regulated to it, unless a contract is stricter. Under the self-tuning law it is the goal
    /// of every consumer without its own.
    pub target: Latency,
    /// The law steers to `target × set_point_ratio`, within (0, 1]. Default 0.8: a regulator that holds its
    /// set point is above it half of the time. The law `auto` measures how far below the target it has to
    /// stay; for it this is the upper bound, and the default is 0.98.
    pub set_point_ratio: f64,
    /// Signal that the law steers by.
    pub signal: SignalChoice,
    /// Statistic of the signal that the law compares with the set point. Default: the mean. A percentile
    /// comes with the observation, from a sensor that counts each request; other hosts are not told of it.
    pub statistic: SignalStatistic,
    /// Choose the set point automatically; `target × set_point_ratio` is then its ceiling. Of the window law
    /// only, and without effect while there are protected consumers: their target is a promise. Default off.
    pub knee: Option<KneeConfig>,
    /// Bands: the division of the throughput among consumers, as it grows. Only the self-tuning law has
    /// bands. Default none: shares divide all of it.
    pub bands: Option<Bands>,
    /// Control interval. Default 250 ms; with the integral law 1 s (Lee §4.1), with the self-tuning law 1 s
    /// (Triage §3.1).
    pub interval: Duration,
    /// The law, with its parameters.
    pub law: LawConfig,
    /// Smoothing of the signal. The integral and the self-tuning law ignore it: they take each control period
    /// as it is.
    pub smoothing: Smoothing,
    /// Without a protected consumer: judge by response times scaled to 8 KiB requests, so that a change of
    /// request size is not taken for a change of load. A promise to protected reads is about their real
    /// response times, which are never scaled. Default off.
    pub normalise: bool,
    /// While the signal is idle, what is left of the command halves in this time. Default 2 s: a few control
    /// intervals, so that a pause between two requests changes little and an hour of silence leaves nothing.
    pub idle_half_life: Duration,
    /// Decide, and do not act. Default off.
    pub dry_run: bool,
    /// True if an operator released all consumers, which makes the dry run. Default false.
    #[serde(default)]
    pub released: bool,
}

/// Choice of the requests whose response times are the signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum SignalChoice {
    /// The reads of protected consumers; all reads and writes if none is protected.
    #[default]
    ProtectedOrEverything,
    /// All reads (Bjørgeengen §2.3.2). For resources that throttle writers, which are detected by their
    /// writes: readers are known by their reading, and none has to be named.
    Reads,
}

impl SignalChoice {
    /// Returns the requests that are the signal, where some consumers are protected or none is.
    #[must_use]
    pub const fn requests(self, is_any_protected: bool) -> SignalRequests {
        match self {
            Self::Reads => SignalRequests::Reads,
            Self::ProtectedOrEverything if is_any_protected => SignalRequests::ProtectedReads,
            Self::ProtectedOrEverything => SignalRequests::Everything,
        }
    }
}

/// Smoothing of the signal before the law sees it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum Smoothing {
    /// By elapsed time: a sample's weight falls to 1/e within this time. Independent of the control interval.
    /// Zero: not at all.
    TimeConstant(Duration),
    /// Once per control interval, by PARDA eq. 1: `L(t) = (1 − past)·l + past·L(t−1)`, `past` within [0, 1).
    /// PARDA gives α = 0.002 and says that it weights the past, by which it hardly smooths; 0.998 is the
    /// other reading.
    PerInterval {
        /// The weight of the past.
        past_weight: f64,
    },
}

impl Smoothing {
    /// Every sample as it is.
    pub const NONE: Self = Self::TimeConstant(Duration::ZERO);
}

impl Default for Smoothing {
    /// 0.2 s. Both laws average by themselves, and what delays the signal makes them overshoot. With it both
    /// keep the demo's target in at least 96.9 % of the seconds on each of ten seeds
    /// (`bench/runs/2026-11-21-lab-demo.json`).
    fn default() -> Self {
        Self::TimeConstant(Duration::from_millis(200))
    }
}

impl LoopConfig {
    /// Returns the time of an observation that is made now: the last whole thousandth of a control interval.
    /// Timers are late by some microseconds, which decisions need not know, and a journal would have to keep.
    #[must_use]
    pub fn observation_time(&self, now: Instant) -> Instant {
        let part = u64::try_from(self.interval.as_nanos() / 1_000).unwrap_or(u64::MAX).max(1);
        Instant::from_nanos(now.as_nanos() / part * part)
    }

    /// A loop with every default.
    #[must_use]
    pub fn new(resource: ResourceName, target: Latency, law: LawConfig) -> Self {
        let (interval, smoothing) = if law.kind().is_by_rates() {
            (Duration::from_secs(1), Smoothing::NONE)
        } else {
            (Duration::from_millis(250), Smoothing::default())
        };
        Self {
            resource,
            target,
            set_point_ratio: law.set_point_ratio(),
            signal: SignalChoice::default(),
            statistic: SignalStatistic::default(),
            knee: None,
            bands: None,
            interval,
            law,
            smoothing,
            normalise: false,
            idle_half_life: Duration::from_secs(2),
            dry_run: false,
            released: false,
        }
    }

    /// Returns the first rate of a consumer. `None` if no rates are commanded. A law with a window commands
    /// them where bands divide what the window gives.
    #[must_use]
    pub fn first_rate(&self) -> Option<FirstRate> {
        self.law.first_rate().or_else(|| self.bands.is_some().then_some(FirstRate::Released))
    }

    /// Returns the set point, or its ceiling if the law [finds it](Self::finds_set_point).
    #[must_use]
    pub fn set_point(&self) -> Latency {
        self.target.scale(self.set_point_ratio)
    }

    /// Returns true if the law finds its set point, and the configuration has only its ceiling.
    #[must_use]
    pub fn finds_set_point(&self) -> bool {
        matches!(self.law.kind(), LawKind::Auto) || self.knee.is_some()
    }

    /// Checks every value.
    ///
    /// # Errors
    /// The first value that is out of range.
    pub fn validate(&self) -> Result<(), LoopConfigError> {
        // Written so that NaN is refused as well.
        if !(self.set_point_ratio > 0.0 && self.set_point_ratio <= 1.0) {
            return Err(LoopConfigError::SetPointRatio(self.set_point_ratio));
        }
        if self.set_point() == Latency::ZERO {
            return Err(LoopConfigError::Target);
        }
        if self.interval.is_zero() {
            return Err(LoopConfigError::Interval);
        }
        if self.idle_half_life.is_zero() {
            return Err(LoopConfigError::IdleHalfLife);
        }
        if let Smoothing::PerInterval { past_weight } = self.smoothing
            && !(0.0..1.0).contains(&past_weight)
        {
            return Err(LoopConfigError::PastWeight(past_weight));
        }
        if self.statistic != SignalStatistic::Mean && self.normalise {
            return Err(LoopConfigError::PercentilesAreNotScaled);
        }
        self.law.validate()?;
        match self.law.rules() {
            LoopRules::Common { scales } if !scales && self.normalise => {
                return Err(LoopConfigError::RequestsAreNotScaled);
            }
            LoopRules::Common { .. } => {}
            LoopRules::Contracts => self.validate_for_contracts()?,
            LoopRules::Goals { of_reads } => self.validate_for_goals(of_reads)?,
        }
        if self.bands.is_some() && !self.law.kind().has_bands() {
            return Err(LoopConfigError::BandsNeedSelfTuning);
        }
        if let Some(knee) = &self.knee {
            if self.law.kind() != LawKind::Window {
                return Err(LoopConfigError::AutomaticNeedsWindow);
            }
            knee.validate(self.set_point())?;
        }
        Ok(())
    }

    /// Goals are about each interval's requests as they are.
    fn validate_for_goals(&self, of_reads: bool) -> Result<(), LoopConfigError> {
        if (self.signal != SignalChoice::default() && !of_reads)
            || self.statistic != SignalStatistic::Mean
            || self.normalise
            || self.smoothing != Smoothing::NONE
        {
            return Err(LoopConfigError::GoalsAreTakenAsTheyAre);
        }
        Ok(())
    }

    /// Every contract has its own signal and its own reference.
    fn validate_for_contracts(&self) -> Result<(), LoopConfigError> {
        if self.signal != SignalChoice::default() {
            return Err(LoopConfigError::ContractsHaveTheirSignal);
        }
        if self.statistic != SignalStatistic::Mean {
            return Err(LoopConfigError::ContractsHaveTheirStatistic);
        }
        if self.normalise {
            return Err(LoopConfigError::ContractsAreNotScaled);
        }
        if self.smoothing != Smoothing::NONE {
            return Err(LoopConfigError::ContractsAreNotSmoothed);
        }
        Ok(())
    }
}

/// Reason that a loop cannot be set up.
#[derive(Debug, Clone, Copy, PartialEq, Error)]
pub enum LoopConfigError {
    /// The target is zero, or becomes zero when scaled.
    #[error("the target must be greater than zero")]
    Target,
    /// The set point ratio is out of range.
    #[error("the set point ratio must be above 0 and at most 1, it is {0}")]
    SetPointRatio(f64),
    /// The control interval is zero.
    #[error("the control interval must be greater than zero")]
    Interval,
    /// The half-life is zero: silence would release everything at once.
    #[error("the idle half-life must be greater than zero")]
    IdleHalfLife,
    /// The weight of the past is out of range: with 1 nothing new would ever count.
    #[error("the weight of the past must be at least 0 and below 1, it is {0}")]
    PastWeight(f64),
    /// Sizes are known of sums of requests only, and not of the request at a percentile.
    #[error("a percentile is of response times as they are: without `normalise`")]
    PercentilesAreNotScaled,
    /// Shares are of requests as they are, and the signal is of requests scaled to one size.
    #[error("shares of requests count them as they are: without `normalise`")]
    RequestsAreNotScaled,
    /// The set point is to be chosen automatically, for a law that keeps a promise.
    #[error("only the window law's set point can be chosen automatically")]
    AutomaticNeedsWindow,
    /// Another signal was chosen for a law that takes each consumer's own requests.
    #[error("the integral law steers by each consumer's own requests: nothing else can be its signal")]
    ContractsHaveTheirSignal,
    /// A percentile of all requests was chosen for a law that takes each consumer's own.
    #[error("the integral law has a statistic of its own: write `statistic` into the table `integral`")]
    ContractsHaveTheirStatistic,
    /// A contract is about requests as they are.
    #[error("contracts are about response times as they are: without `normalise`")]
    ContractsAreNotScaled,
    /// An average over more than the control period would answer late, and the gain is not chosen for that.
    #[error("the integral law takes each interval as it is: without `smoothing` and `past_weight`")]
    ContractsAreNotSmoothed,
    /// The regulator models what each interval says of each consumer; an average or another signal is none of
    /// that.
    #[error(
        "the self-tuning law takes each consumer's requests of each interval as they are, by their mean: \
            without another signal, \
         a percentile, `normalise`, `smoothing` and `past_weight`"
    )]
    GoalsAreTakenAsTheyAre,
    /// Bands divide an operating point, which no other law has.
    #[error(
        "bands divide the throughput that the laws `auto`, `self-tuning` and `queueing-model` find: no other \
            law has them"
    )]
    BandsNeedSelfTuning,
    /// A parameter of the automatic choice.
    #[error(transparent)]
    Knee(#[from] KneeConfigError),
    /// A parameter of the law.
    #[error(transparent)]
    Law(#[from] LawConfigError),
}
