//! The parameters of the integral law.

use serde::{Deserialize, Serialize};
use thiserror::Error;
use tidegate_units::Iops;

use crate::document::output::LawKind;
use crate::law::integral::gain::ControllerGain;
use crate::law::parameters::{ContractUse, FirstRate, KeyValue, LawParameters, LoopRules};

/// The parameters of the integral law.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct IntegralConfig {
    /// K of eq. 2, per control period. Default: the paper's, which is right for its disk and slow for
    /// anything quicker; [`gain_for`](crate::gain_for) has it for a process gain that was measured.
    pub gain: ControllerGain,
    /// The least rate of a consumer without a contract; with one it is what was promised. Default 2 IO/s, as
    /// of the PID: enough that a client's own timeouts stay out of sight.
    pub floor: Iops,
    /// The greatest rate of a consumer, unless its contract is for more. Default: none, since no number is
    /// right for every storage, and the default variant goes no further than what is used.
    pub greatest: Option<Iops>,
    /// Statistic that is RT_i.
    pub statistic: ContractStatistic,
    /// The way to find K.
    pub tuning: GainTuning,
    /// The paper's law, or which improvements of it.
    pub variant: IntegralVariant,
}

/// The statistic that makes the response time RT_i(k) of a control period. Lee calls it "the current response
/// time" (§3.1) and says no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum ContractStatistic {
    /// Response time that 95 % of the period's requests do not exceed. The reference, RT^E, is such a
    /// percentile (§2). Only with a percentile are a few per cent of the requests late, as the paper has it.
    /// With the mean at RT^E a quarter of them are late (`tidegate-lab reproduce lee.statistic`).
    #[default]
    Percentile95,
    /// Their mean.
    Mean,
}

/// Ways to find K.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum GainTuning {
    /// It is the configured gain.
    #[default]
    Fixed,
    /// It is learnt while the law runs, and the configured gain has no effect.
    Learnt,
}

impl Default for IntegralConfig {
    fn default() -> Self {
        Self {
            gain: ControllerGain::PAPER,
            floor: Iops::new(2.0),
            greatest: None,
            statistic: ContractStatistic::default(),
            tuning: GainTuning::default(),
            variant: IntegralVariant::default(),
        }
    }
}

/// Additions of the law to the paper. Each can be left out by itself, to measure its worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct IntegralVariant {
    /// A rate is raised only while it constrains the consumer: some requests waited for their release, and at
    /// least 70 % of the rate was used. Otherwise an hour of low demand at short response times winds it up
    /// to where it bounds nothing when demand comes.
    pub raise_only_used: bool,
    /// Decay of unused rates: the part of a rate beyond its floor and beyond its use halves in the idle
    /// half-life. A surplus found under another load says nothing. Otherwise the rate stays.
    pub decay_unused: bool,
    /// Giving way when a consumer with a contract comes back from a pause. The others give back at once the
    /// rates that the storage cannot sustain besides it. Otherwise they give back K·E by K·E, while all
    /// response times are too long.
    pub give_way: bool,
    /// Taking over when a consumer with a contract has paused for the idle half-life. Throttled consumers get
    /// at once the rates that the storage sustains without it, by their shares. Otherwise they get them K·E
    /// by K·E.
    pub take_over: bool,
    /// Surplus in proportion to the promised rates, among consumers that wait. The strictest of their errors
    /// moves all of it. Otherwise each consumer's own error moves its own, and a reference that is easier to
    /// keep gets more.
    pub by_contracts: bool,
    /// Rates rise by seven tenths of what eq. 2 says, and fall by all of it. The latency of a period is
    /// noisy: as often too short as too long, it would keep rates where the reference is exceeded every
    /// other period.
    pub slow_rise: bool,
}

impl IntegralVariant {
    /// The paper's words (Lee §3.1), and nothing more: without samples a rate stays.
    pub const LITERAL: Self = Self {
        raise_only_used: false,
        decay_unused: false,
        give_way: false,
        take_over: false,
        by_contracts: false,
        slow_rise: false,
    };
    /// Everything. The default.
    pub const IMPROVED: Self = Self {
        raise_only_used: true,
        decay_unused: true,
        give_way: true,
        take_over: true,
        by_contracts: true,
        slow_rise: true,
    };
}

impl Default for IntegralVariant {
    fn default() -> Self {
        Self::IMPROVED
    }
}

impl IntegralConfig {
    /// Checks every value.
    ///
    /// # Errors
    /// The first value that is out of range.
    pub fn validate(&self) -> Result<(), IntegralConfigError> {
        if self.floor == Iops::ZERO {
            return Err(IntegralConfigError::Floor);
        }
        match self.greatest {
            Some(greatest) if greatest < self.floor => {
                Err(IntegralConfigError::Bounds { floor: self.floor, greatest })
            }
            _ => Ok(()),
        }
    }
}

impl LawParameters for IntegralConfig {
    fn kind(&self) -> LawKind {
        LawKind::Integral
    }

    fn set(&mut self, key: &str, value: KeyValue<'_>) -> Result<(), String> {
        match (key, value) {
            ("gain", KeyValue::Number(gain)) => {
                self.gain = ControllerGain::new(gain).map_err(|error| error.to_string())?;
            }
            ("floor", KeyValue::Rate(floor)) => self.floor = floor,
            ("greatest", KeyValue::Rate(greatest)) => self.greatest = Some(greatest),
            ("statistic", KeyValue::Word("mean")) => self.statistic = ContractStatistic::Mean,
            ("statistic", KeyValue::Word(_)) => self.statistic = ContractStatistic::Percentile95,
            ("tuning", KeyValue::Word("learnt")) => self.tuning = GainTuning::Learnt,
            ("tuning", KeyValue::Word(_)) => self.tuning = GainTuning::Fixed,
            ("variant", KeyValue::Word("literal")) => self.variant = IntegralVariant::LITERAL,
            ("variant", KeyValue::Word(_)) => self.variant = IntegralVariant::IMPROVED,
            _ => {}
        }
        Ok(())
    }

    fn without_effect(&self) -> Option<(&'static [&'static str], &'static str)> {
        let learnt = self.tuning == GainTuning::Learnt;
        learnt.then_some((&["gain"], "with `tuning = \"learnt\"` the gain is learnt"))
    }

    fn rules(&self) -> LoopRules {
        LoopRules::Contracts
    }

    fn contract_use(&self) -> ContractUse {
        ContractUse::Rate
    }

    fn first_rate(&self) -> Option<FirstRate> {
        Some(FirstRate::AtLeast(self.floor))
    }

    fn floor(&self) -> Option<Iops> {
        Some(self.floor)
    }
}

/// Reason that an integral law cannot be set up.
#[derive(Debug, Clone, Copy, PartialEq, Error)]
pub enum IntegralConfigError {
    /// Without a floor a consumer without a contract could be stopped altogether.
    #[error("the floor rate must be greater than zero")]
    Floor,
    /// There is no rate to choose from.
    #[error("the floor rate must be at most the greatest rate, they are {floor} and {greatest}")]
    Bounds {
        /// The floor.
        floor: Iops,
        /// The greatest.
        greatest: Iops,
    },
}

impl IntegralConfigError {
    /// Returns the keys that the error may be about; the first written one is the place.
    #[must_use]
    pub const fn keys(&self) -> &'static [&'static str] {
        match self {
            Self::Floor => &["floor"],
            Self::Bounds { .. } => &["greatest", "floor"],
        }
    }
}
