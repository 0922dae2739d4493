//! Sources of response times.

use tidegate_admission::{Ability, Measure, Measured};
use tidegate_sim::offer::Offer;

use super::AdmitError;
use crate::live::Live;

/// A storage that can be measured.
pub(super) enum Measuring {
    /// A model of it, in virtual time.
    Model(Box<Offer>),
    /// The storage itself.
    Live(Box<Live>),
}

impl Measuring {
    /// Measures the best that the storage can do. The greatest throughput of a live storage is not tried: to
    /// know it, it would have to be overloaded.
    ///
    /// # Errors
    /// When it cannot be measured.
    pub(super) fn ability(&mut self) -> Result<Ability, AdmitError> {
        Ok(match self {
            Self::Model(offer) => Ability { capacity: Some(offer.capacity()?), alone: offer.alone()? },
            Self::Live(live) => Ability { capacity: None, alone: live.alone()? },
        })
    }
}

impl Measure for Measuring {
    type Error = AdmitError;

    fn at(&mut self, scale: f64) -> Result<Measured, AdmitError> {
        Ok(match self {
            Self::Model(offer) => offer.measured(scale)?,
            Self::Live(live) => live.at(scale)?.measured(),
        })
    }

    fn is_worth(&self, scale: f64) -> bool {
        match self {
            Self::Model(_) => true,
            Self::Live(live) => live.is_worth(scale),
        }
    }
}
