//! The choice of a model, and its parameters.

use serde::{Deserialize, Serialize};

use tidegate_units::Bytes;

use crate::{ArrayConfig, DiskConfig, ExponentialConfig, FlashConfig, LinkConfig, TiersConfig, VolumeConfig};

/// A device's model and its parameters. In a document, the key `model` selects the variant.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "model", rename_all = "kebab-case")]
pub enum DeviceConfig {
    /// Exponential service: the textbook's M/M/c.
    Exponential(ExponentialConfig),
    /// One mechanical disk.
    Disk(DiskConfig),
    /// Disks striped into one, with or without a write-back cache.
    Array(ArrayConfig),
    /// A solid-state drive.
    Flash(FlashConfig),
    /// A rate-limited volume of a cloud.
    Volume(VolumeConfig),
    /// A fast and a slow device behind one address space.
    Tiers(TiersConfig),
    /// A link in front of a device.
    Link(LinkConfig),
}

impl DeviceConfig {
    /// Returns the number of bytes that the device writes at another speed than the one it can sustain: the
    /// size of its caches, and of the erased reserve of flash.
    #[must_use]
    pub fn write_cache(&self) -> Bytes {
        match self {
            Self::Exponential(_) | Self::Disk(_) | Self::Volume(_) => Bytes::ZERO,
            Self::Array(array) => array.cache.as_ref().map_or(Bytes::ZERO, |cache| cache.size),
            Self::Flash(flash) => Bytes::new(flash.buffer.get().saturating_add(flash.reserve.get())),
            Self::Tiers(tiers) => tiers.fast.write_cache().max(tiers.slow.write_cache()),
            Self::Link(link) => link.device.write_cache(),
        }
    }
}
