//! The parameters of the window law.

use serde::{Deserialize, Serialize};
use thiserror::Error;
use tidegate_units::Window;

use crate::document::output::LawKind;
use crate::law::parameters::{KeyValue, LawParameters, LoopRules};

/// The parameters of the window law.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct WindowConfig {
    /// γ of eq. 2, within (0, 1]: how far one step goes. Default 0.8 (PARDA §5).
    pub gamma: f64,
    /// K: how strongly shares pull; what it is per is `beta_scale`. Default 0.1.
    ///
    /// At equilibrium the response time is `𝓛·w/(w − β)`: above the set point by β/w. PARDA's windows are
    /// tens of requests and bear a β of some; a local array that must stay quick has a window of 1 to 5 and
    /// does not. 0.1 offsets by 5 % at w = 2, by 11 % at w = 1, within the distance between set point and
    /// target (25 %) down to w = 0.5. The price of a small K is slow convergence of shares *between hosts*;
    /// one host divides its window by its scheduler and pays nothing.
    pub beta_gain: f64,
    /// Quantity that β is proportional to. Default: the active part of this host's shares.
    pub beta_scale: BetaScale,
    /// Quantity that shares divide among hosts that share a resource. Default: slots, as in PARDA. No effect
    /// on a host alone.
    pub shares_of: SharesOf,
    /// w_min. Default 0.25: with the response time at 12 ms that is 20 IO/s among all throttled, so that a
    /// dozen of them keep about 2 IO/s each. Below 1 the scheduler makes the window whole over time.
    pub least: Window,
    /// w_max, and where the law begins: open. Default 64, as in PARDA's evaluation (§5), where it
    /// is the usual issue queue length per LUN.
    pub greatest: Window,
}

/// Quantities that β can be proportional to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum BetaScale {
    /// One host alone: β = K × the active *part* of its shares, at most K. It does not matter whether shares
    /// are written as 1:2 or as 1000:2000.
    #[default]
    Relative,
    /// Hosts that share a resource: `β_h = K × Σs'/100` (PARDA §3.4), so that a consumer with the default of
    /// [100 shares](tidegate_units::Shares::DEFAULT) brings its host β = K. Shares must then mean the same on
    /// every host. Absolute, so that windows stay in proportion also while hosts do not hear each other.
    PerShare,
}

/// Quantities that shares can divide among hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum SharesOf {
    /// The resource's queue (PARDA §2). A host whose requests are cheap for the array, or well placed, gets
    /// more of them done with the same part of the queue, and the array as a whole does the most that it can.
    #[default]
    Slots,
    /// Requests per second, whatever they cost: a host that the array serves late gets more slots, up to
    /// twice as many. By response times of everything; without effect while the reads of protected consumers
    /// are the signal.
    Requests,
}

impl Default for WindowConfig {
    fn default() -> Self {
        Self {
            gamma: 0.8,
            beta_gain: 0.1,
            beta_scale: BetaScale::Relative,
            shares_of: SharesOf::Slots,
            least: Window::new(0.25),
            greatest: Window::new(64.0),
        }
    }
}

impl WindowConfig {
    /// The defaults where hosts share the resource: β by absolute shares, and K = 1 per consumer of 100
    /// shares.
    ///
    /// With shares of 1:1:2:2 on an array of 3 400 IO/s at 25 ms, K = 1 settles 7 % above the set point, and
    /// shares are within 10 % after 30 control intervals; half of K halves the first and doubles the second.
    #[must_use]
    pub fn across_hosts() -> Self {
        Self { beta_gain: 1.0, beta_scale: BetaScale::PerShare, ..Self::default() }
    }

    /// Returns the defaults for a resource that hosts share, or that one host has for itself.
    #[must_use]
    pub fn for_resource(shared: bool) -> Self {
        if shared { Self::across_hosts() } else { Self::default() }
    }

    /// Checks every value.
    ///
    /// # Errors
    /// The first value that is out of range.
    pub fn validate(&self) -> Result<(), WindowConfigError> {
        if !(self.gamma > 0.0 && self.gamma <= 1.0) {
            return Err(WindowConfigError::Gamma(self.gamma));
        }
        if !(self.beta_gain > 0.0 && self.beta_gain.is_finite()) {
            return Err(WindowConfigError::BetaGain(self.beta_gain));
        }
        if self.least.get() <= 0.0 || self.least > self.greatest {
            return Err(WindowConfigError::Bounds { least: self.least, greatest: self.greatest });
        }
        Ok(())
    }
}

impl LawParameters for WindowConfig {
    fn kind(&self) -> LawKind {
        LawKind::Window
    }

    fn set(&mut self, key: &str, value: KeyValue<'_>) -> Result<(), String> {
        match (key, value) {
            ("gamma", KeyValue::Number(gamma)) => self.gamma = gamma,
            ("beta_gain", KeyValue::Number(gain)) => self.beta_gain = gain,
            ("least", KeyValue::Number(least)) => self.least = Window::new(least),
            ("greatest", KeyValue::Number(greatest)) => self.greatest = Window::new(greatest),
            ("shares_of", KeyValue::Word("requests")) => self.shares_of = SharesOf::Requests,
            ("shares_of", KeyValue::Word(_)) => self.shares_of = SharesOf::Slots,
            _ => {}
        }
        Ok(())
    }

    fn rules(&self) -> LoopRules {
        LoopRules::Common { scales: self.shares_of != SharesOf::Requests }
    }

    fn greatest_window(&self) -> Option<Window> {
        Some(self.greatest)
    }
}

/// Reason that a window law cannot be set up.
#[derive(Debug, Clone, Copy, PartialEq, Error)]
pub enum WindowConfigError {
    /// γ is out of range.
    #[error("gamma must be above 0 and at most 1, it is {0}")]
    Gamma(f64),
    /// K is out of range.
    #[error("the beta gain must be above 0 and finite, it is {0}")]
    BetaGain(f64),
    /// The bounds exclude everything, or allow to stop everyone.
    #[error("the window's bounds must be above 0 and in order, they are {least} and {greatest}")]
    Bounds {
        /// w_min.
        least: Window,
        /// w_max.
        greatest: Window,
    },
}

impl WindowConfigError {
    /// Returns the keys that the error may be about; the first written one is the place.
    #[must_use]
    pub const fn keys(&self) -> &'static [&'static str] {
        match self {
            Self::Gamma(_) => &["gamma"],
            Self::BetaGain(_) => &["beta_gain"],
            Self::Bounds { .. } => &["least", "greatest"],
        }
    }
}
