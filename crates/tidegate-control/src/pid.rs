//! The single-sided PID of Bjørgeengen and Haugerud (LISA 2010), appendix A, equation 2.

use std::time::Duration;

use thiserror::Error;
use tidegate_units::{Iops, Latency};

use crate::decision::Bound;
use crate::observation::Outstanding;

/// The derivative time counts as at most this many intervals: the usual limit of derivative gain (Åström and
/// Hägglund, *PID Controllers*: 8 to 20), so that two steps close together do not turn noise into the greatest
/// delay.
const GREATEST_DERIVATIVE_GAIN: f64 = 10.0;

/// The parameters of the PID. Its input is a response time, its output a delay, so that gains have no unit.
///
/// The paper gives no gains. The default ones follow from the process: a FIFO resource that N closed-loop clients
/// with q requests each keep saturated answers a delay d with `R = N·q/C − d`: the process gain is −1 there, and
/// falls to about −0.1 where saturation ends. Any gain that is stable at −1 is stable everywhere, and the larger
/// it is, the quicker the loop near the knee.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PidConfig {
    /// K_p ≥ 0. Default 0.4.
    pub proportional_gain: f64,
    /// T_i. Default 0.25 s: with K_p = 0.4 the integral makes up 40 % of an error per interval of 250 ms.
    pub integral_time: Duration,
    /// T_d. Default zero: the derivative of a mean of a few response times is mostly noise.
    pub derivative_time: Duration,
    /// What happens below the set point.
    pub variant: PidVariant,
    /// The output is rounded up to a multiple of this. Default 0.5 ms (appendix A).
    pub step: Latency,
    /// The greatest delay. Default 1 s, for a hold in a data path of our own; the paper's packets bear 20 ms.
    pub greatest: Latency,
    /// A delay never takes a consumer below this rate, however great the error: by Little's law one with q
    /// requests outstanding is delayed by at most q/floor. Default 2 IO/s: enough that a client's own timeouts
    /// (tens of seconds) stay out of sight.
    pub floor: Iops,
}

impl Default for PidConfig {
    fn default() -> Self {
        Self {
            proportional_gain: 0.4,
            integral_time: Duration::from_millis(250),
            derivative_time: Duration::ZERO,
            variant: PidVariant::Clamped,
            step: Latency::from_micros(500),
            greatest: Latency::from_millis(1_000),
            floor: Iops::new(2.0),
        }
    }
}

/// What "single-sided" means. In both readings the integral and the output are clamped to [0, greatest].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PidVariant {
    /// The error is signed, and below the set point the delay winds down.
    Clamped,
    /// The paper's words: no delay at all whenever the response time is below the set point.
    Literal,
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
    pub fn greatest_for(&self, outstanding: Outstanding) -> Latency {
        Latency::from_secs_f64(outstanding.get() / self.floor.per_second()).min(self.greatest)
    }
}

/// Why a PID cannot be set up.
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

/// What one step of the PID gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PidStep {
    /// Eq. 2 without bounds and levels; nothing when negative.
    pub raw: Latency,
    /// The delay now.
    pub delay: Latency,
    /// The bound that made the difference; rounding up to a level is none.
    pub bound: Option<Bound>,
}

/// The single-sided PID. State: the integral, the previous error, the delay.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pid {
    config: PidConfig,
    /// In seconds, within [0, greatest]: this is the anti-windup.
    integral: f64,
    /// In seconds.
    last_error: Option<f64>,
    delay: Latency,
}

impl Pid {
    /// Begins without delay.
    ///
    /// # Errors
    /// When the configuration is not valid.
    pub fn new(config: PidConfig) -> Result<Self, PidConfigError> {
        config.validate()?;
        Ok(Self { config, integral: 0.0, last_error: None, delay: Latency::ZERO })
    }

    /// The delay now.
    #[must_use]
    pub const fn delay(&self) -> Latency {
        self.delay
    }

    /// Its parameters.
    #[must_use]
    pub const fn config(&self) -> &PidConfig {
        &self.config
    }

    /// Changes the parameters and keeps the delay as far as the new bounds allow: the integral takes up what the
    /// other terms no longer give.
    ///
    /// # Errors
    /// When the configuration is not valid; nothing is changed then.
    pub fn reconfigure(&mut self, config: PidConfig) -> Result<(), PidConfigError> {
        config.validate()?;
        let before = self.config.proportional_gain * self.last_error.unwrap_or(0.0);
        let after = config.proportional_gain * self.last_error.unwrap_or(0.0);
        self.config = config;
        self.integral = (self.integral + before - after).clamp(0.0, config.greatest.as_secs_f64());
        self.delay = self.delay.min(config.greatest);
        Ok(())
    }

    /// One step of eq. 2, `u = K_p·e + (u_i + K_p·T/T_i·e) + K_p·T_d/T·(e − e')` with e = estimate − set point,
    /// clamped and rounded up to a level.
    ///
    /// `greatest` is the longest delay that is of any use now ([`PidConfig::greatest_for`] the consumer that bears
    /// most); the integral stops there, because beyond it would only wind up. When no time has passed nothing
    /// changes.
    ///
    /// A changed delay shows its whole effect only when the requests that are being held have gone round, after
    /// about the delay itself. So the integral time is never shorter than the delay in force: for a process with
    /// gain −1 and dead time θ, K_p/T_i ≤ 1/(2θ) is Skogestad's rule (SIMC, J. Process Control 13, 2003).
    pub fn step(
        &mut self,
        estimate: Latency,
        set_point: Latency,
        elapsed: Duration,
        greatest: Latency,
    ) -> PidStep {
        let greatest = greatest.min(self.config.greatest);
        let time = elapsed.as_secs_f64();
        if elapsed.is_zero() {
            return PidStep { raw: self.delay, delay: self.delay, bound: None };
        }
        let error = estimate.as_secs_f64() - set_point.as_secs_f64();
        let gain = self.config.proportional_gain;
        let integral_time = self.config.integral_time.as_secs_f64().max(self.delay.as_secs_f64());
        let integral = self.integral + gain * time / integral_time * error;
        self.integral = integral.clamp(0.0, greatest.as_secs_f64());
        let change = error - self.last_error.unwrap_or(error);
        let derivative = (self.config.derivative_time.as_secs_f64() / time).min(GREATEST_DERIVATIVE_GAIN);
        self.last_error = Some(error);

        let unbounded = gain * error + integral + gain * derivative * change;
        let bounded = gain * error + self.integral + gain * derivative * change;
        let silent = self.config.variant == PidVariant::Literal && error < 0.0;
        let wanted = Latency::from_secs_f64(if silent { 0.0 } else { bounded });
        self.delay = self.round_up(wanted).min(greatest);

        let bound = if silent || unbounded < 0.0 {
            Some(Bound::Least)
        } else if Latency::from_secs_f64(unbounded) <= greatest {
            None
        } else if greatest < self.config.greatest {
            Some(Bound::FloorRate)
        } else {
            Some(Bound::Greatest)
        };
        PidStep { raw: Latency::from_secs_f64(unbounded), delay: self.delay, bound }
    }

    /// Lets go by degrees: keeps `remaining` of the delay, and nothing once that is less than a level.
    pub fn relax(&mut self, remaining: f64) -> Latency {
        let remaining = if remaining.is_nan() { 1.0 } else { remaining.clamp(0.0, 1.0) };
        if self.last_error.take().is_some() {
            // What decays is the delay in force, the proportional part of an old error included.
            self.integral = self.delay.as_secs_f64();
        }
        self.integral *= remaining;
        if self.integral < self.config.step.as_secs_f64() {
            self.integral = 0.0;
        }
        self.delay = self.round_up(Latency::from_secs_f64(self.integral)).min(self.delay);
        self.delay
    }

    fn round_up(&self, delay: Latency) -> Latency {
        let step = self.config.step.as_nanos();
        Latency::from_nanos(delay.as_nanos().div_ceil(step).saturating_mul(step))
    }
}
