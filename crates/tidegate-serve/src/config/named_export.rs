//! Exports as a pool names them, with the places of their keys.

use std::ops::Range;

use tidegate_config::contract::ContractRequirement;
use tidegate_config::{PlacedValue, Section};
use tidegate_gateway::{ExportConfig, ListenEndpoint};
use tidegate_units::DailyValues;

/// The places in an export of the keys that only one kind of law knows.
pub(super) struct KeyPlaces {
    pub(super) contract: Option<Range<usize>>,
    pub(super) reservation: Option<Range<usize>>,
    pub(super) goal: Option<Range<usize>>,
}

impl KeyPlaces {
    pub(super) fn of(export: &Section<'_>) -> Self {
        Self {
            contract: export.key_span("contract"),
            reservation: export.key_span("reservation"),
            goal: export.key_span("goal"),
        }
    }
}

/// An export with the server that its volume is on, if another gateway's or server's.
pub(super) struct PlacedExport {
    pub(super) address: Option<ListenEndpoint>,
    pub(super) export: NamedExport,
}

/// An export with the place of its name.
pub(super) struct NamedExport {
    pub(super) config: ExportConfig,
    pub(super) name: PlacedValue<()>,
    pub(super) places: KeyPlaces,
    /// The promises to the export over the day.
    pub(super) contracts: Option<DailyValues<ContractRequirement>>,
}
