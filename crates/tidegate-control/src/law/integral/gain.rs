//! The integral law's gain by pole placement (Lee, equations 6 to 8).
//!
//! Linearised where it works, the storage answers a change of a rate by a change of the response time in the
//! next control period, `RT(k+1) − RT(k) = G·(ρ(k) − ρ(k−1))` (eq. 3). Under the integral law of gain K the
//! error then shrinks by the closed loop's one pole, `p = 1 − K·G`, in every period (eqs. 6, 7), and the loop
//! is stable while `0 < K < 2/G` (eq. 8). Time is counted in control periods, however long one is.

use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A loop counts as settled when this part of the error is left: the usual 5 %.
const SETTLED: f64 = 0.05;

/// G: by how many milliseconds the response time grows when the rate grows by one request per second.
/// Positive.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct ProcessGain(f64);

/// K: by how many requests per second the rate grows in a control period for every millisecond that the
/// response time is below its reference. Positive and finite.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Serialize, Deserialize)]
pub struct ControllerGain(f64);

/// p: what is left of an error after a control period, within (−1, 1). Negative: it changes sign every time.
/// Near 1 the loop is slow, and does not mind when the process gain is not what it was taken for.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct ClosedLoopPole(f64);

/// Reason that a number is not a gain or a pole.
#[derive(Debug, Clone, Copy, PartialEq, Error)]
pub enum GainError {
    /// A response time that does not grow with the rate cannot be steered by it.
    #[error(
        "the process gain must be within {least:e} and {greatest:e} ms per IO/s, it is {0}",
        least = ProcessGain::LEAST,
        greatest = ProcessGain::GREATEST
    )]
    Process(f64),
    /// The law would go the wrong way, or nowhere.
    #[error("the controller gain must be above 0 IO/s per ms and finite, it is {0}")]
    Controller(f64),
    /// The loop would not settle.
    #[error("the closed loop's pole must be above -1 and below 1, it is {0}")]
    Pole(f64),
}

impl ProcessGain {
    /// Beyond any storage: a microsecond more at a thousand million more requests per second.
    const LEAST: f64 = 1e-12;
    /// Beyond any storage: eleven days more at one more request per second.
    const GREATEST: f64 = 1e9;

    /// From milliseconds per request per second.
    ///
    /// # Errors
    /// When it is not positive, or of a size that no storage has; NaN is refused, too.
    pub fn new(ms_per_iops: f64) -> Result<Self, GainError> {
        // Both bounds keep K within what a number can say.
        if (Self::LEAST..=Self::GREATEST).contains(&ms_per_iops) {
            Ok(Self(ms_per_iops))
        } else {
            Err(GainError::Process(ms_per_iops))
        }
    }

    /// Milliseconds per request per second, for the mathematics.
    #[must_use]
    pub const fn ms_per_iops(self) -> f64 {
        self.0
    }

    /// 2/G: below this gain, and above zero, the loop is stable (eq. 8).
    #[must_use]
    pub fn stable_below(self) -> ControllerGain {
        ControllerGain(2.0 / self.0)
    }

    /// The pole of the loop under this controller (eq. 7); `None` where it is not stable.
    #[must_use]
    pub fn pole(self, gain: ControllerGain) -> Option<ClosedLoopPole> {
        ClosedLoopPole::new(1.0 - gain.0 * self.0).ok()
    }
}

impl ControllerGain {
    /// The paper's, of its disk: K = 0.33, for G = 0.3 ms per IO/s and p = 0.9 (Lee §4.4).
    pub const PAPER: Self = Self(0.33);

    /// From requests per second per millisecond.
    ///
    /// # Errors
    /// When it is not positive and finite.
    pub fn new(iops_per_ms: f64) -> Result<Self, GainError> {
        if iops_per_ms > 0.0 && iops_per_ms.is_finite() {
            Ok(Self(iops_per_ms))
        } else {
            Err(GainError::Controller(iops_per_ms))
        }
    }

    /// Requests per second per millisecond, for the mathematics.
    #[must_use]
    pub const fn iops_per_ms(self) -> f64 {
        self.0
    }
}

impl ClosedLoopPole {
    /// The paper's: close to 1, because no storage is linear (Lee §4.4).
    pub const PAPER: Self = Self(0.9);

    /// From what is left of an error after a control period.
    ///
    /// # Errors
    /// When it is not within (−1, 1): the loop would not be stable.
    pub fn new(remaining: f64) -> Result<Self, GainError> {
        if remaining > -1.0 && remaining < 1.0 {
            Ok(Self(remaining))
        } else {
            Err(GainError::Pole(remaining))
        }
    }

    /// Returns the part of an error that remains after a control period, for the mathematics.
    #[must_use]
    pub const fn get(self) -> f64 {
        self.0
    }

    /// After how many control periods 5 % of an error are left, by the linear model. At least one; saturates.
    #[must_use]
    pub fn settling_periods(self) -> u32 {
        // At p = 0 the logarithm is −∞, and the quotient zero: one period is what it takes.
        (SETTLED.ln() / self.0.abs().ln()).ceil().max(1.0) as u32
    }
}

/// The gain that places the closed loop's pole: `K = (1 − p)/G` (eq. 7).
#[must_use]
pub fn gain_for(process: ProcessGain, pole: ClosedLoopPole) -> ControllerGain {
    ControllerGain((1.0 - pole.0) / process.0)
}

impl fmt::Display for ProcessGain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ms per IO/s", Significant(self.0))
    }
}

impl fmt::Display for ControllerGain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} IO/s per ms", Significant(self.0))
    }
}

/// A number with three significant digits, whatever its size: gains of disks and of flash are orders of
/// magnitude apart.
struct Significant(f64);

impl fmt::Display for Significant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let magnitude = self.0.log10().floor();
        if (-4.0..6.0).contains(&magnitude) {
            let decimals = (2.0 - magnitude).max(0.0) as usize;
            write!(f, "{:.decimals$}", self.0)
        } else {
            write!(f, "{:.2e}", self.0)
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn process(ms_per_iops: f64) -> ProcessGain {
        ProcessGain::new(ms_per_iops).unwrap()
    }

    #[test]
    fn the_papers_numbers() {
        let gain = gain_for(process(0.3), ClosedLoopPole::PAPER);
        assert!((gain.iops_per_ms() - 1.0 / 3.0).abs() < 1e-12, "{gain}");
        let pole = process(0.3).pole(ControllerGain::PAPER).unwrap();
        assert!((pole.get() - 0.901).abs() < 1e-12);
        assert!((process(0.3).stable_below().iops_per_ms() - 6.667).abs() < 1e-3);
        // ln 0.05 / ln 0.9 = 28.4.
        assert_eq!(ClosedLoopPole::PAPER.settling_periods(), 29);
        assert_eq!(process(0.3).to_string(), "0.300 ms per IO/s");
        assert_eq!(ControllerGain::PAPER.to_string(), "0.330 IO/s per ms");
    }

    #[test]
    fn three_digits_at_every_size() {
        let shown = [12_345.6, 1.0, 0.000_123_4, 1.5e-7, 2.5e8].map(|number| Significant(number).to_string());
        assert_eq!(shown, ["12346", "1.00", "0.000123", "1.50e-7", "2.50e8"]);
    }

    #[test]
    fn a_loop_without_memory_settles_at_once_and_a_marginal_one_late() {
        let settling = |pole| ClosedLoopPole::new(pole).unwrap().settling_periods();
        assert_eq!([settling(0.0), settling(-0.0), settling(0.05), settling(0.051)], [1, 1, 1, 2]);
        assert_eq!(settling(0.5), settling(-0.5));
        assert!(settling(1.0 - f64::EPSILON) > 1_000_000_000);
    }

    #[test]
    fn what_is_not_a_gain_is_refused() {
        for wrong in [0.0, -0.3, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e-320] {
            assert!(matches!(ProcessGain::new(wrong), Err(GainError::Process(_))), "{wrong}");
        }
        for wrong in [0.0, -0.33, f64::NAN, f64::INFINITY] {
            assert!(matches!(ControllerGain::new(wrong), Err(GainError::Controller(_))), "{wrong}");
        }
        for wrong in [1.0, -1.0, 7.0, f64::NAN, f64::NEG_INFINITY] {
            assert!(matches!(ClosedLoopPole::new(wrong), Err(GainError::Pole(_))), "{wrong}");
        }
        assert_eq!(
            ProcessGain::new(-0.3).unwrap_err().to_string(),
            "the process gain must be within 1e-12 and 1e9 ms per IO/s, it is -0.3"
        );
    }

    proptest! {
        #[test]
        fn every_placed_pole_is_the_loops_and_stable(
            magnitude in -12.0f64..9.0, pole in -0.999..0.999
        ) {
            let process = process(10f64.powf(magnitude).clamp(1e-12, 1e9));
            let pole = ClosedLoopPole::new(pole).unwrap();
            let gain = gain_for(process, pole);
            prop_assert!(ControllerGain::new(gain.iops_per_ms()).is_ok());
            prop_assert!(gain < process.stable_below());
            let found = process.pole(gain).unwrap();
            prop_assert!((found.get() - pole.get()).abs() < 1e-9);
        }

        /// Against the linear model stepped one period after the other.
        #[test]
        fn settling_is_when_five_per_cent_are_left(pole in -0.99..0.99) {
            let periods = ClosedLoopPole::new(pole).unwrap().settling_periods();
            let mut error: f64 = 1.0;
            let mut stepped = 0;
            while error.abs() > 0.05 {
                error *= pole;
                stepped += 1;
            }
            prop_assert!(periods.abs_diff(stepped.max(1)) <= 1, "{periods} {stepped}");
        }
    }
}
