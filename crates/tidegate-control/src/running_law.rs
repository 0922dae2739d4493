//! The law in force: the one place of the loop that knows which laws there are.

use std::ops::{Deref, DerefMut};

use crate::config::{LawConfig, LoopConfigError};
use crate::law::control_law::ControlLaw;
use crate::law::integral::rates::ConsumerRates;
use crate::law::pid::controller::Pid;
use crate::law::self_tuning::regulators::ConsumerRegulators;
use crate::law::window::window_law::WindowLaw;

/// A law with its state. It dereferences to [`ControlLaw`].
#[derive(Debug, Clone)]
pub(crate) enum RunningLaw {
    Window(WindowLaw),
    Pid(Pid),
    Integral(ConsumerRates),
    SelfTuning(ConsumerRegulators),
}

impl RunningLaw {
    /// A law that has seen nothing yet.
    pub(crate) fn new(law: LawConfig) -> Result<Self, LoopConfigError> {
        Ok(match law {
            LawConfig::Window(config) => Self::Window(WindowLaw::new(config)?),
            LawConfig::Pid(config) => Self::Pid(Pid::new(config)?),
            LawConfig::Integral(config) => Self::Integral(ConsumerRates::new(config)?),
            LawConfig::SelfTuning(config) => Self::SelfTuning(ConsumerRegulators::new(config)?),
        })
    }

    /// Changes the parameters and keeps the state. Another kind of law begins as if it were new.
    pub(crate) fn reconfigure(&mut self, law: LawConfig) -> Result<(), LoopConfigError> {
        match (&mut *self, law) {
            (Self::Window(running), LawConfig::Window(config)) => running.reconfigure(config)?,
            (Self::Pid(running), LawConfig::Pid(config)) => running.reconfigure(config)?,
            (Self::Integral(running), LawConfig::Integral(config)) => running.reconfigure(config)?,
            (Self::SelfTuning(running), LawConfig::SelfTuning(config)) => running.reconfigure(config)?,
            (running, law) => *running = Self::new(law)?,
        }
        Ok(())
    }
}

impl Deref for RunningLaw {
    type Target = dyn ControlLaw;

    fn deref(&self) -> &Self::Target {
        match self {
            Self::Window(law) => law,
            Self::Pid(law) => law,
            Self::Integral(law) => law,
            Self::SelfTuning(law) => law,
        }
    }
}

impl DerefMut for RunningLaw {
    fn deref_mut(&mut self) -> &mut Self::Target {
        match self {
            Self::Window(law) => law,
            Self::Pid(law) => law,
            Self::Integral(law) => law,
            Self::SelfTuning(law) => law,
        }
    }
}
