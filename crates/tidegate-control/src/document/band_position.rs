//! The place of an operating point among the bands.

use std::fmt;

use serde::{Deserialize, Serialize};
use tidegate_units::Iops;

/// The position of the operating point: in the first band that its throughput does not fill. Displayed as
/// "band 2 at 20 %".
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BandPosition {
    /// In a band.
    In {
        /// Number of the band, counted from 0.
        band: u32,
        /// Filled part of the band, within [0, 1).
        part: f64,
    },
    /// All bands are full.
    Beyond {
        /// Number of bands.
        bands: u32,
        /// Throughput beyond the bands.
        by: Iops,
    },
}

impl fmt::Display for BandPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::In { band, part } => write!(f, "band {band} at {:.0} %", part * 100.0),
            Self::Beyond { by, .. } => write!(f, "{by} beyond the last band"),
        }
    }
}
