//! The parts of the operating point that bands entitle consumers to, as summaries say them.

use std::fmt;

use serde::Serialize;
use tidegate_control::{BandClaim, Bands, allot};
use tidegate_units::Iops;

/// The parts that consumers are entitled to when all together do so much.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BandEntitlements {
    #[serde(rename = "up_to_iops")]
    up_to: Iops,
    entitled: Vec<Entitled>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct Entitled {
    name: String,
    iops: Iops,
}

impl BandEntitlements {
    /// At the end of each band.
    #[must_use]
    pub fn of(bands: &Bands) -> Vec<Self> {
        let names = bands.workloads();
        // Shares matter only beyond the last band.
        let claims: Vec<_> =
            names.iter().map(|name| BandClaim { name: Some(name), shares: 1.0, most: None }).collect();
        let at = |up_to: Iops| {
            let each = names.iter().zip(allot(Some(bands), up_to, &claims));
            let entitled = each.map(|(name, iops)| Entitled { name: name.to_string(), iops });
            Self { up_to, entitled: entitled.collect() }
        };
        bands.ends().map(at).collect()
    }
}

impl fmt::Display for BandEntitlements {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "up to {} together: ", self.up_to)?;
        self.entitled.iter().enumerate().try_for_each(|(index, one)| {
            write!(f, "{}{} {}", if index == 0 { "" } else { ", " }, one.name, one.iops)
        })
    }
}
