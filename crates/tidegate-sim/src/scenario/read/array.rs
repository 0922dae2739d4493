//! `[array.NAME]` and `[disk.NAME]`.

use serde::Deserialize;
use tidegate_config::{FindingList, PlacedValue, Section};
use tidegate_device::{DeviceConfig, ExponentialConfig, Preset};
use tidegate_units::{Bytes, Instant, Iops, Latency, ResourceName};
use toml::de::ValueDeserializer;

use super::ScenarioContext;
use crate::scenario::{ArrayChange, ChangedArray, Scenario, ScenarioArray, SharedDisk, VirtualDisk};

pub(super) const ARRAY_KEYS: &[&str] = tidegate_config::keys::scenario::ARRAY.names;
pub(super) const CHANGE_KEYS: &[&str] = tidegate_config::keys::scenario::CHANGE.names;
pub(super) const DISK_KEYS: &[&str] = tidegate_config::keys::scenario::DISK.names;

/// Size of an exponential server where none is given: more than any number of virtual disks.
const PRETENDED: Bytes = Bytes::from_gib(1 << 30);

/// Reads arrays and shared disks.
pub(super) fn read(root: &Section<'_>, scenario: &mut Scenario, context: &mut ScenarioContext<'_, '_>) {
    let report = &mut context.report;
    let Some(tables) = root.named_tables("array", ARRAY_KEYS, report) else { return };
    if !root.has("array") {
        report.error_with_help(root.span(), "the scenario has no arrays", "add a table `[array.NAME]`");
    }
    for (name, table) in tables {
        let resource = ResourceName::new(name.value)
            .map_err(|error| report.error(&name.span, format!("an array's name: {error}")));
        let device = device(&table, report);
        let changes = changes(&table, device.as_ref(), report);
        if let (Ok(resource), Some(device)) = (resource, device) {
            context.places.arrays.insert(resource.to_string(), name.span);
            scenario.arrays.push(ScenarioArray { name: resource, device, changes });
        } else {
            // What refers to it is no mistake of its own.
            context.places.arrays.insert(name.value.to_owned(), name.span);
        }
    }
    disks(root, scenario, context);
}

/// The keys by which a table describes its storage.
pub const DEVICE_KEYS: &[&str] = &["preset", "device", "rate", "servers", "capacity"];

/// Reads the model of a storage from a table that has [`DEVICE_KEYS`] among its keys. `None` when something
/// is wrong, which is then reported.
pub fn device(array: &Section<'_>, report: &mut FindingList<'_>) -> Option<DeviceConfig> {
    let given: Vec<&str> = ["preset", "device", "rate"].into_iter().filter(|key| array.has(key)).collect();
    match given[..] {
        [] => {
            array.missing("preset", &format!("\"{}\"", Preset::ALL[0].name()), report);
            None
        }
        [one] => {
            if one != "rate" {
                for key in ["servers", "capacity"] {
                    if let Some(span) = array.key_span(key) {
                        report.error(&span, format!("`{key}` is only for an array with a `rate`"));
                    }
                }
            }
            match one {
                "preset" => {
                    let presets: Vec<_> = Preset::ALL.iter().map(|preset| (preset.name(), *preset)).collect();
                    array.choice("preset", &presets, report).map(|preset| preset.value.config())
                }
                "device" => explicit(array, report),
                _ => exponential(array, report),
            }
        }
        [.., second] => {
            let span = array.key_span(second).unwrap_or_else(|| array.span().clone());
            report.error(&span, "`preset`, `device` and `rate` exclude each other");
            None
        }
    }
}

fn explicit(array: &Section<'_>, report: &mut FindingList<'_>) -> Option<DeviceConfig> {
    let value = array.value("device")?;
    match DeviceConfig::deserialize(ValueDeserializer::from(value.clone())) {
        Ok(device) => Some(device),
        Err(error) => {
            let span = error.span().unwrap_or_else(|| value.span());
            report.error(&span, format!("`device`: {}", error.message()));
            None
        }
    }
}

fn exponential(array: &Section<'_>, report: &mut FindingList<'_>) -> Option<DeviceConfig> {
    let rate = array.parsed::<Iops>("rate", report);
    let servers = array.whole("servers", 1..=1_024, report).map_or(1, |servers| servers.value as u32);
    let capacity = array.parsed::<Bytes>("capacity", report).map_or(PRETENDED, |capacity| capacity.value);
    Some(DeviceConfig::Exponential(ExponentialConfig { rate: rate?.value, servers, capacity }))
}

/// Reads the changes of an array, in the order of time. A `rate` alone makes an exponential server faster or
/// slower. It turns any other model into an exponential server.
fn changes(
    array: &Section<'_>,
    device: Option<&DeviceConfig>,
    report: &mut FindingList<'_>,
) -> Vec<ArrayChange> {
    let mut given = Vec::new();
    for table in array.tables("changes", CHANGE_KEYS, report) {
        if !table.has("at") {
            table.missing("at", "\"100s\"", report);
        }
        let at = table.parsed::<Latency>("at", report);
        let to = self::device(&table, report);
        if let (Some(at), Some(to)) = (at, to) {
            let rate_alone = table.has("rate") && !table.has("servers") && !table.has("capacity");
            given.push((Instant::ZERO + at.value, to, rate_alone));
        }
    }
    given.sort_by_key(|(at, ..)| *at);
    let mut exponential = matches!(device, Some(DeviceConfig::Exponential(_)));
    let change = |(at, config, rate_alone): (Instant, DeviceConfig, bool)| {
        let to = match config {
            DeviceConfig::Exponential(ExponentialConfig { rate, .. }) if rate_alone && exponential => {
                ChangedArray::Rate(rate)
            }
            config => {
                exponential = matches!(config, DeviceConfig::Exponential(_));
                ChangedArray::Device(config)
            }
        };
        ArrayChange { at, to }
    };
    given.into_iter().map(change).collect()
}

fn disks(root: &Section<'_>, scenario: &mut Scenario, context: &mut ScenarioContext<'_, '_>) {
    let Some(tables) = root.named_tables("disk", DISK_KEYS, &mut context.report) else { return };
    for (name, table) in tables {
        let array = reference(&table, "array", context);
        let report = &mut context.report;
        if !table.has("array") {
            table.missing("array", "\"NAME\"", report);
        }
        let size = table.parsed::<Bytes>("size", report).map_or(VirtualDisk::DEFAULT_SIZE, |size| size.value);
        let offset = table.parsed::<Bytes>("offset", report).map(|offset| offset.value);
        if let Some(array) = array {
            scenario.disks.push(SharedDisk { name: name.value.to_owned(), array: array.value, offset, size });
        }
    }
}

/// The array that a key names, if there is one of that name.
pub(super) fn reference(
    section: &Section<'_>,
    key: &str,
    context: &mut ScenarioContext<'_, '_>,
) -> Option<PlacedValue<ResourceName>> {
    let given = section.text(key, &mut context.report)?;
    if context.places.arrays.contains_key(given.value) {
        // It bears the name of an array, and is reported there where that is no name.
        return ResourceName::new(given.value).ok().map(|value| PlacedValue { value, span: given.span });
    }
    let known: Vec<&str> = context.places.arrays.keys().map(String::as_str).collect();
    context.report.unknown(&given, "array", known);
    None
}
