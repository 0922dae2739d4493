//! Sources of response times.

use tidegate_admission::{LoadGenerator, OfferResult, StorageAbility};
use tidegate_sim::offer::LoadOffer;

use super::error::AdmitError;
use crate::live::LivePool;

/// A storage that can be measured.
pub(super) enum MeasuredStorage {
    /// A model of it, in virtual time.
    Model(Box<LoadOffer>),
    /// The storage itself.
    Live(Box<LivePool>),
}

impl MeasuredStorage {
    /// Measures the best that the storage can do. The greatest throughput of a live storage is not tried: to
    /// know it, it would have to be overloaded.
    ///
    /// # Errors
    /// When it cannot be measured.
    pub(super) fn ability(&mut self) -> Result<StorageAbility, AdmitError> {
        Ok(match self {
            Self::Model(offer) => StorageAbility { capacity: Some(offer.capacity()?), alone: offer.alone()? },
            Self::Live(live) => StorageAbility { capacity: None, alone: live.alone()? },
        })
    }
}

impl LoadGenerator for MeasuredStorage {
    type Error = AdmitError;

    fn at(&mut self, scale: f64) -> Result<OfferResult, AdmitError> {
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
