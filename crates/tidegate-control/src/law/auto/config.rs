//! The parameters of the law `auto`.

use serde::{Deserialize, Serialize};
use thiserror::Error;
use tidegate_units::Window;

use crate::document::output::LawKind;
use crate::law::parameters::{ContractUse, KeyValue, LawParameters, LoopRules};

/// The bounds of the law `auto`. It has no gains: it learns what it needs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct AutoConfig {
    /// The smallest window. Default 0.02: on storage that answers within 0.1 ms these are 200 requests per
    /// second. On slower storage each consumer keeps two per second, up to a window of 0.25.
    pub least: Window,
    /// The largest window of this host, and where the law begins: open. Default 1024, more than the depth of
    /// any queue: a law that has proved nothing yet limits nothing.
    pub greatest: Window,
}

impl Default for AutoConfig {
    fn default() -> Self {
        Self { least: Window::new(0.02), greatest: Window::new(1_024.0) }
    }
}

impl AutoConfig {
    /// Checks every value.
    ///
    /// # Errors
    /// The bounds are not in order.
    pub fn validate(&self) -> Result<(), AutoConfigError> {
        if self.least.get() <= 0.0 || self.least > self.greatest {
            return Err(AutoConfigError { least: self.least, greatest: self.greatest });
        }
        Ok(())
    }
}

impl LawParameters for AutoConfig {
    fn kind(&self) -> LawKind {
        LawKind::Auto
    }

    fn set(&mut self, key: &str, value: KeyValue<'_>) -> Result<(), String> {
        match (key, value) {
            ("least", KeyValue::Number(least)) => self.least = Window::new(least),
            ("greatest", KeyValue::Number(greatest)) => self.greatest = Window::new(greatest),
            _ => {}
        }
        Ok(())
    }

    fn rules(&self) -> LoopRules {
        LoopRules::Common { scales: true }
    }

    fn contract_use(&self) -> ContractUse {
        ContractUse::Floor
    }

    /// The margin is measured; this only bounds it.
    fn set_point_ratio(&self) -> f64 {
        0.98
    }

    fn greatest_window(&self) -> Option<Window> {
        Some(self.greatest)
    }
}

/// The window's bounds exclude everything, or allow to stop every consumer.
#[derive(Debug, Clone, Copy, PartialEq, Error)]
#[error("the window's bounds must be above 0 and in order, they are {least} and {greatest}")]
pub struct AutoConfigError {
    /// The smallest window.
    pub least: Window,
    /// The largest window.
    pub greatest: Window,
}

impl AutoConfigError {
    /// Returns the keys that the error may be about; the first written one is the place.
    #[must_use]
    pub const fn keys(&self) -> &'static [&'static str] {
        &["least", "greatest"]
    }
}
