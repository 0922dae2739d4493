//! The parameters of the PID.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use tidegate_units::{Iops, Latency};

use crate::document::mean_outstanding::MeanOutstanding;
use crate::document::output::LawKind;
use crate::law::parameters::{KeyValue, LawParameters};

/// The parameters of the PID. Its input is a response time, its output a delay, so that gains have no unit.
///
/// The paper gives no gains. The default ones follow from the process: a FIFO resource that N closed-loop
/// clients with q requests each keep saturated answers a delay d with `R = N·q/C − d`. So its gain is −1
/// while it is saturated, about −0.3 where R meets a useful set point (some service times), and towards 0
/// below that. The default gains are as quick at the knee, where the loop spends its life, as they can be
/// while a disturbance at gain −1, with an interval of dead time, still shrinks to 0.83 per interval of 250
/// ms (0.60 without).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct PidConfig {
    /// K_p > 0. Default 0.5.
    pub proportional_gain: f64,
    /// T_i. Default 0.2 s: with K_p = 0.5 the integral takes up 62 % of an error per interval of 250 ms.
    pub integral_time: Duration,
    /// T_d. Default zero: the derivative of a mean of a few response times is mostly noise.
    pub derivative_time: Duration,
    /// Behaviour below the set point.
    pub variant: PidVariant,
    /// The output is rounded up to a multiple of this. Default 0.5 ms (appendix A).
    pub step: Latency,
    /// The greatest delay. Default 1 s, for a hold in a data path of our own; the paper's packets bear 20 ms.
    pub greatest: Latency,
    /// A delay never takes a consumer below this rate, however great the error: by Little's law one with q
    /// requests outstanding is delayed by at most q/floor. Default 2 IO/s: enough that a client's own
    /// timeouts (tens of seconds) stay out of sight.
    pub floor: Iops,
}

impl Default for PidConfig {
    fn default() -> Self {
        Self {
            proportional_gain: 0.5,
            integral_time: Duration::from_millis(200),
            derivative_time: Duration::ZERO,
            variant: PidVariant::Clamped,
            step: Latency::from_micros(500),
            greatest: Latency::from_millis(1_000),
            floor: Iops::new(2.0),
        }
    }
}

/// Readings of "single-sided". The output is always clamped to [0, greatest].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum PidVariant {
    /// The error is signed, and below the set point the delay winds down. The integral is clamped, too.
    Clamped,
    /// The paper's words: no delay at all whenever the response time is below the set point. The integral is
    /// clamped, too.
    Literal,
    /// Equation 2 as it is printed, for the paper's experiments: T_i is constant, and neither the integral
    /// nor the derivative gain has a bound. No delay below the set point, as above.
    Equation2,
}

impl PidConfig {
    /// Checks every value.
    ///
    /// # Errors
    /// The first value that is out of range.
    pub fn validate(&self) -> Result<(), PidConfigError> {
        if !(self.proportional_gain > 0.0 && self.proportional_gain.is_finite()) {
            return Err(PidConfigError::ProportionalGain(self.proportional_gain));
        }
        if self.integral_time.is_zero() {
            return Err(PidConfigError::IntegralTime);
        }
        if self.step == Latency::ZERO || self.step > self.greatest {
            return Err(PidConfigError::Levels { step: self.step, greatest: self.greatest });
        }
        if self.floor == Iops::ZERO {
            return Err(PidConfigError::Floor);
        }
        Ok(())
    }

    /// The longest delay that leaves a consumer its floor rate, and is allowed at all.
    #[must_use]
    pub fn greatest_for(&self, outstanding: MeanOutstanding) -> Latency {
        Latency::from_secs_f64(outstanding.get() / self.floor.per_second()).min(self.greatest)
    }
}

impl LawParameters for PidConfig {
    fn kind(&self) -> LawKind {
        LawKind::Pid
    }

    fn set(&mut self, key: &str, value: KeyValue<'_>) -> Result<(), String> {
        match (key, value) {
            ("proportional_gain", KeyValue::Number(gain)) => self.proportional_gain = gain,
            ("integral_time", KeyValue::Time(time)) => self.integral_time = time.to_duration(),
            ("derivative_time", KeyValue::Time(time)) => self.derivative_time = time.to_duration(),
            ("variant", KeyValue::Word("literal")) => self.variant = PidVariant::Literal,
            ("variant", KeyValue::Word(_)) => self.variant = PidVariant::Clamped,
            ("step", KeyValue::Time(step)) => self.step = step,
            ("greatest", KeyValue::Time(greatest)) => self.greatest = greatest,
            ("floor", KeyValue::Rate(floor)) => self.floor = floor,
            _ => {}
        }
        Ok(())
    }

    fn floor(&self) -> Option<Iops> {
        Some(self.floor)
    }

    fn longest_delay(&self) -> Option<Latency> {
        Some(self.greatest)
    }
}

/// Reason that a PID cannot be set up.
#[derive(Debug, Clone, Copy, PartialEq, Error)]
pub enum PidConfigError {
    /// K_p is out of range.
    #[error("the proportional gain must be above 0 and finite, it is {0}")]
    ProportionalGain(f64),
    /// T_i is zero.
    #[error("the integral time must be greater than zero")]
    IntegralTime,
    /// There is no delay to choose from.
    #[error(
        "the delay step must be above zero and at most the greatest delay, they are {step} and {greatest}"
    )]
    Levels {
        /// The step.
        step: Latency,
        /// The greatest delay.
        greatest: Latency,
    },
    /// Without a floor a throttled consumer could be stopped altogether.
    #[error("the floor rate must be greater than zero")]
    Floor,
}

impl PidConfigError {
    /// Returns the keys that the error may be about; the first written one is the place.
    #[must_use]
    pub const fn keys(&self) -> &'static [&'static str] {
        match self {
            Self::ProportionalGain(_) => &["proportional_gain"],
            Self::IntegralTime => &["integral_time"],
            Self::Levels { .. } => &["step", "greatest"],
            Self::Floor => &["floor"],
        }
    }
}
