//! Where response times come from.

use tidegate_place::{Ability, Measured};
use tidegate_sim::ScenarioError;
use tidegate_sim::offer::Offer;

/// A storage that can be measured.
pub(super) enum Measuring {
    /// A model of it, in virtual time.
    Model(Box<Offer>),
}

impl Measuring {
    /// What it can do at best.
    ///
    /// # Errors
    /// When it cannot be measured.
    pub(super) fn ability(&self) -> Result<Ability, ScenarioError> {
        match self {
            Self::Model(offer) => Ok(Ability { capacity: offer.capacity()?, alone: offer.alone()? }),
        }
    }

    /// What comes of this many times the rate of every tenant.
    ///
    /// # Errors
    /// When it cannot be measured.
    pub(super) fn at(&self, scale: f64) -> Result<Measured, ScenarioError> {
        match self {
            Self::Model(offer) => Ok(offer.at(scale)?.measured()),
        }
    }
}
