//! The registration of laws: the one place that lists all of them.
//!
//! A law is its parameters, which implement [`LawParameters`], and its state, which implements
//! [`ControlLaw`]. Their names, and the keys of their parameters, are in `LawKind` and in the table of keys.

use std::ops::{Deref, DerefMut};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::document::output::LawKind;
use crate::law::auto::auto_law::AutoLaw;
use crate::law::auto::config::{AutoConfig, AutoConfigError};
use crate::law::control_law::ControlLaw;
use crate::law::integral::config::{IntegralConfig, IntegralConfigError};
use crate::law::integral::rates::ConsumerRates;
use crate::law::parameters::LawParameters;
use crate::law::pid::config::{PidConfig, PidConfigError};
use crate::law::pid::controller::Pid;
use crate::law::self_tuning::config::{SelfTuningConfig, SelfTuningConfigError};
use crate::law::self_tuning::consumers::ConsumerRegulators;
use crate::law::window::config::{WindowConfig, WindowConfigError};
use crate::law::window::window_law::WindowLaw;

/// Lists the laws: parameters, their errors, and state.
macro_rules! laws {
    ($($(#[$doc:meta])* $law:ident($parameters:ident, $error:ident, $state:ident),)*) => {
        /// A control law with its parameters. It dereferences to [`LawParameters`].
        #[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
        pub enum LawConfig {
            $($(#[$doc])* $law($parameters),)*
        }

        /// A parameter of a law that is out of range.
        #[derive(Debug, Clone, Copy, PartialEq, Error)]
        pub enum LawConfigError {
            $($(#[$doc])* #[error(transparent)] $law(#[from] $error),)*
        }

        $(impl From<$parameters> for LawConfig {
            fn from(parameters: $parameters) -> Self {
                Self::$law(parameters)
            }
        })*

        impl LawConfig {
            /// Checks every parameter.
            ///
            /// # Errors
            /// The first parameter that is out of range.
            pub fn validate(&self) -> Result<(), LawConfigError> {
                match self {
                    $(Self::$law(parameters) => parameters.validate()?,)*
                }
                Ok(())
            }
        }

        impl LawConfigError {
            /// Returns the keys that the error may be about, in the law's table; the first written one is the
            /// place.
            #[must_use]
            pub const fn keys(&self) -> &'static [&'static str] {
                match self {
                    $(Self::$law(error) => error.keys(),)*
                }
            }
        }

        impl Deref for LawConfig {
            type Target = dyn LawParameters;

            fn deref(&self) -> &Self::Target {
                match self {
                    $(Self::$law(parameters) => parameters,)*
                }
            }
        }

        impl DerefMut for LawConfig {
            fn deref_mut(&mut self) -> &mut Self::Target {
                match self {
                    $(Self::$law(parameters) => parameters,)*
                }
            }
        }

        /// A law with its state. It dereferences to [`ControlLaw`].
        #[derive(Debug, Clone, Serialize, Deserialize)]
        #[allow(clippy::large_enum_variant, reason = "there is one for each resource")]
        pub(crate) enum RunningLaw {
            $($law($state),)*
        }

        impl RunningLaw {
            /// A law that has seen nothing yet.
            pub(crate) fn new(law: LawConfig) -> Result<Self, LawConfigError> {
                Ok(match law {
                    $(LawConfig::$law(parameters) => Self::$law($state::new(parameters)?),)*
                })
            }

            /// Changes the parameters and keeps the state. Another law begins as if it were new.
            pub(crate) fn reconfigure(&mut self, law: LawConfig) -> Result<(), LawConfigError> {
                match (&mut *self, law) {
                    $((Self::$law(running), LawConfig::$law(parameters)) => {
                        running.reconfigure(parameters)?;
                    })*
                    (running, law) => *running = Self::new(law)?,
                }
                Ok(())
            }
        }

        impl Deref for RunningLaw {
            type Target = dyn ControlLaw;

            fn deref(&self) -> &Self::Target {
                match self {
                    $(Self::$law(law) => law,)*
                }
            }
        }

        impl DerefMut for RunningLaw {
            fn deref_mut(&mut self) -> &mut Self::Target {
                match self {
                    $(Self::$law(law) => law,)*
                }
            }
        }
    };
}

laws! {
    /// The law `auto`: one window for all throttled consumers, without a parameter to tune.
    Auto(AutoConfig, AutoConfigError, AutoLaw),
    /// The window law (PARDA): one window for all throttled consumers.
    Window(WindowConfig, WindowConfigError, WindowLaw),
    /// The single-sided PID (Bjørgeengen): one delay, for each throttled consumer under its own floor.
    Pid(PidConfig, PidConfigError, Pid),
    /// The integral law (Lee): a rate for each throttled consumer, by its own latency and its own contract.
    Integral(IntegralConfig, IntegralConfigError, ConsumerRates),
    /// The self-tuning regulator (Triage): an operating point for all, by each consumer's own goal, and a
    /// rate for each throttled consumer by [bands](crate::LoopConfig::bands).
    SelfTuning(SelfTuningConfig, SelfTuningConfigError, ConsumerRegulators),
}

impl LawConfig {
    /// Returns the law of this kind with its default parameters.
    #[must_use]
    pub fn of_kind(kind: LawKind) -> Self {
        match kind {
            LawKind::Auto => AutoConfig::default().into(),
            LawKind::Window => WindowConfig::default().into(),
            LawKind::Pid => PidConfig::default().into(),
            LawKind::Integral => IntegralConfig::default().into(),
            LawKind::SelfTuning => SelfTuningConfig::default().into(),
            LawKind::QueueingModel => SelfTuningConfig::queueing_model().into(),
        }
    }
}
