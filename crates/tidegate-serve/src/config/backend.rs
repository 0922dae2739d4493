//! `backend = { … }` of a pool.

use std::fmt::Display;
use std::ops::Range;
use std::path::PathBuf;
use std::str::FromStr;

use tidegate_config::{FindingList, PlacedValue, Section};
use tidegate_device::{DeviceConfig, ExponentialChange, ExponentialConfig, Preset};
use tidegate_gateway::{BackendConfig, DataStore};
use tidegate_units::{Bytes, Iops, Latency};

use super::{PathUse, ReadContext, upstream};

pub(super) const KEYS: &[&str] = tidegate_config::keys::pool::BACKEND.names;

/// The keys that belong to one kind only.
const FILE_ONLY: &[&str] = &["direct"];
const EMULATED_ONLY: &[&str] = &["preset", "exponential", "seed", "data", "memory"];
const NBD_ONLY: &[&str] = &["address", "connections", "reconnect", "timeout", "replay", "tls"];

/// The most changes of an exponential server, as many as a device plans.
const MOST_CHANGES: usize = 1024;

const EXPONENTIAL_KEYS: &[&str] = tidegate_config::keys::pool::EXPONENTIAL.names;

const CHANGE_KEYS: &[&str] = tidegate_config::keys::pool::EXPONENTIAL_CHANGE.names;

/// The memory of an emulated pool where the configuration does not say: a demonstration's worth.
const DEFAULT_MEMORY: Bytes = Bytes::from_gib(1);

#[derive(Clone, Copy)]
enum BackendKind {
    File,
    Emulated,
    Nbd,
}

/// Reads a pool's backend.
pub(super) fn read(pool: &Section<'_>, context: &mut ReadContext<'_>) -> Option<BackendConfig> {
    if !pool.has("backend") {
        pool.missing("backend", "{ kind = \"file\" }", &mut context.report);
        return None;
    }
    let section = pool.table("backend", KEYS, &mut context.report)?;
    if !section.has("kind") {
        section.missing("kind", "\"file\"", &mut context.report);
        return None;
    }
    let kinds = [("file", BackendKind::File), ("emulated", BackendKind::Emulated), ("nbd", BackendKind::Nbd)];
    let kind = section.choice("kind", &kinds, &mut context.report)?.value;
    for (keys, other, fits) in [
        (FILE_ONLY, "file", matches!(kind, BackendKind::File)),
        (EMULATED_ONLY, "emulated", matches!(kind, BackendKind::Emulated)),
        (NBD_ONLY, "nbd", matches!(kind, BackendKind::Nbd)),
    ] {
        if !fits {
            refuse(&section, keys, other, &mut context.report);
        }
    }
    match kind {
        BackendKind::File => {
            Some(BackendConfig::File { direct: section.flag("direct", &mut context.report) })
        }
        BackendKind::Emulated => emulated(&section, context),
        BackendKind::Nbd => upstream::backend(&section, context),
    }
}

fn emulated(section: &Section<'_>, context: &mut ReadContext<'_>) -> Option<BackendConfig> {
    let (device, changes) = device(section, &mut context.report).unzip();
    let seed = section.whole("seed", 0..=i64::MAX as u64, &mut context.report).map_or(0, |seed| seed.value);
    let data = data(section, context);
    Some(BackendConfig::Emulated { device: device?, changes: changes?, seed, data })
}

/// A preset, or an exponential server with what becomes of it.
fn device(
    section: &Section<'_>,
    report: &mut FindingList<'_>,
) -> Option<(DeviceConfig, Vec<ExponentialChange>)> {
    if section.has("exponential") {
        if let Some(preset) = section.value("preset") {
            report.error(&preset.span(), "`preset` and `exponential` exclude each other");
        }
        return exponential(section, report);
    }
    if !section.has("preset") {
        section.missing("preset", &format!("\"{}\"", Preset::ALL[0].name()), report);
    }
    let presets: Vec<_> = Preset::ALL.iter().map(|preset| (preset.name(), *preset)).collect();
    section.choice("preset", &presets, report).map(|preset| (preset.value.config(), Vec::new()))
}

fn exponential(
    section: &Section<'_>,
    report: &mut FindingList<'_>,
) -> Option<(DeviceConfig, Vec<ExponentialChange>)> {
    let server = section.table("exponential", EXPONENTIAL_KEYS, report)?;
    for (key, example) in [("rate", "\"1000 IO/s\""), ("capacity", "\"64GiB\"")] {
        if !server.has(key) {
            server.missing(key, example, report);
        }
    }
    let rate = positive("rate", &Iops::ZERO, &server, report);
    let servers = server.whole("servers", 1..=1024, report).map_or(1, |servers| servers.value as u32);
    let capacity = positive("capacity", &Bytes::ZERO, &server, report);
    let changes = changes(&server, servers, report);
    let device = DeviceConfig::Exponential(ExponentialConfig { rate: rate?, servers, capacity: capacity? });
    Some((device, changes))
}

/// Returns the changes of an exponential server, in the order of time. A change without `servers` leaves as
/// many as there are.
fn changes(server: &Section<'_>, mut servers: u32, report: &mut FindingList<'_>) -> Vec<ExponentialChange> {
    let mut changes: Vec<ExponentialChange> = Vec::new();
    for table in server.tables("changes", CHANGE_KEYS, report) {
        for (key, example) in [("after", "\"30s\""), ("rate", "\"2000 IO/s\"")] {
            if !table.has(key) {
                table.missing(key, example, report);
            }
        }
        let after = table.parsed::<Latency>("after", report);
        let rate = positive("rate", &Iops::ZERO, &table, report);
        if let Some(given) = table.whole("servers", 1..=1024, report) {
            servers = given.value as u32;
        }
        let (Some(after), Some(rate)) = (after, rate) else { continue };
        if changes.last().is_some_and(|last| last.after >= after.value) {
            report.error(&after.span, "`after` must be later than that of the change before");
        }
        changes.push(ExponentialChange { after: after.value, rate, servers });
    }
    if changes.len() > MOST_CHANGES {
        report.error(server.span(), format!("there are {} `changes`: {MOST_CHANGES} at most", changes.len()));
    }
    changes
}

fn positive<T: FromStr<Err: Display> + PartialOrd>(
    key: &str,
    zero: &T,
    section: &Section<'_>,
    report: &mut FindingList<'_>,
) -> Option<T> {
    let given = section.parsed::<T>(key, report)?;
    if given.value > *zero {
        return Some(given.value);
    }
    report.error(&given.span, format!("`{key}` must be more than nothing"));
    None
}

fn data(section: &Section<'_>, context: &mut ReadContext<'_>) -> DataStore {
    let limit = section.parsed::<Bytes>("memory", &mut context.report);
    match section.text("data", &mut context.report) {
        Some(PlacedValue { value, span }) if value != "memory" => {
            if let Some(limit) = limit {
                context.report.warning(&limit.span, "`memory` has no effect", "the data is in a file");
            }
            DataStore::File(file(value, &span, context))
        }
        _ => DataStore::Memory { limit: limit.map_or(DEFAULT_MEMORY, |limit| limit.value) },
    }
}

fn file(text: &str, span: &Range<usize>, context: &mut ReadContext<'_>) -> PathBuf {
    let path = context.path(text, span);
    context.touched.push(PathUse::DataFile(PlacedValue { value: path.clone(), span: span.clone() }));
    path
}

fn refuse(section: &Section<'_>, keys: &[&str], kind: &str, report: &mut FindingList<'_>) {
    for key in keys {
        if let Some(value) = section.value(key) {
            report.error(&value.span(), format!("`{key}` is only for `kind = \"{kind}\"`"));
        }
    }
}
