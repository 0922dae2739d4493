//! `[pool.NAME.export.EXPORT]`.

use std::time::Duration;

use tidegate_config::contract::{self, ContractRequirement};
use tidegate_config::{FindingList, PlacedValue, Section, goal};
use tidegate_gateway::{BackendConfig, ExportConfig, ExportName, ExportStore};
use tidegate_sched::{BeyondLimit, ConsumerLimit};
use tidegate_units::{ByteRate, Bytes, ConsumerName, DailyValues, Iops, Latency, Shares};

use super::{PathUse, ReadContext, StartSubject, allow, disks, upstream};

pub(super) const KEYS: &[&str] = tidegate_config::keys::pool::EXPORT.names;

pub(super) const LIMIT_KEYS: &[&str] = tidegate_config::keys::pool::LIMIT.names;

/// A tenth of a second's worth after idleness: short enough that no one-second mean is above the limit by
/// more than a tenth.
const DEFAULT_BURST: Duration = Duration::from_millis(100);

/// The longest string of the NBD protocol.
const LONGEST_DESCRIPTION: usize = 4096;

/// An emulated device's pages: what an export's size must be a multiple of.
const PAGE: u64 = 4096;

/// Reads one export of a pool, and what it is promised at which time of day. `backend` decides whether it
/// needs a path or a size; `None` when the backend itself is wrong, and nothing can be said about that.
pub(super) fn read(
    name: &PlacedValue<&str>,
    section: &Section<'_>,
    backend: Option<&BackendConfig>,
    context: &mut ReadContext<'_>,
) -> Option<(ExportConfig, Option<DailyValues<ContractRequirement>>)> {
    let consumer = match ConsumerName::new(name.value) {
        Ok(consumer) => Some(consumer),
        Err(error) => {
            context.report.error(&name.span, format!("an export's name: {error}"));
            None
        }
    };
    let read_only = section.flag("read_only", &mut context.report);
    let shared_volume = shared_volume(section, backend, &mut context.report);
    let store = store(section, consumer.as_ref(), backend, (read_only, shared_volume), context);
    let served_as = served_as(section, &mut context.report);
    let access = allow::read(section, context);
    let disks = disks::read(section, context);
    let shares = section.whole("shares", 1..=u64::from(Shares::MAX.get()), &mut context.report);
    let shares = shares.and_then(|given| Shares::new(u32::try_from(given.value).ok()?));
    let mut export = ExportConfig::new(consumer?, store?);
    export.read_only = read_only;
    export.shared_volume = shared_volume;
    export.served_as = served_as;
    export.access = access;
    (export.disks, export.devices) = (disks.sockets, disks.devices);
    export.shares = shares.unwrap_or_default();
    export.protected = section.flag("protected", &mut context.report);
    if export.protected
        && let Some(span) = section.key_span("shares")
    {
        let why = "a protected export goes before all others as it is";
        context.report.warning(&span, "`shares` has no effect", why);
    }
    export.limit = limit(section, &mut context.report);
    export.reservation = reservation(section, &export, &mut context.report);
    let contracts = contract::read_daily(section, &mut context.report);
    // What holds all day; what changes is put here when it is in force.
    let constant = contracts.as_ref().filter(|daily| daily.changes().next().is_none());
    if let Some((_, ContractRequirement { given, .. })) = constant.and_then(|daily| daily.parts().next()) {
        export.contract = Some(given.contract);
        export.bucket = given.bucket.unwrap_or(export.bucket);
    }
    export.goal = goal::read(section, &mut context.report);
    export.description = description(section, &mut context.report);
    Some((export, contracts))
}

fn store(
    section: &Section<'_>,
    name: Option<&ConsumerName>,
    backend: Option<&BackendConfig>,
    (read_only, shared): (bool, bool),
    context: &mut ReadContext<'_>,
) -> Option<ExportStore> {
    let (needed, example, kind) = match backend? {
        BackendConfig::File { .. } => ("path", "\"/dev/vg0/volume\"", "file"),
        BackendConfig::Emulated { .. } => ("size", "\"4GiB\"", "emulated"),
        BackendConfig::Nbd(_) => ("upstream", "\"name\"", "nbd"),
    };
    let others = ["path", "size", "upstream"].into_iter().filter(|key| *key != needed);
    let mut misplaced = false;
    for (other, span) in others.filter_map(|key| Some((key, section.key_span(key)?))) {
        misplaced = true;
        context.report.error_with_help(
            &span,
            format!("`{other}` does not fit a backend of kind `{kind}`"),
            format!("use `{needed} = {example}`"),
        );
    }
    if needed == "upstream" {
        return upstream::store(section, name, context);
    }
    if !misplaced && !section.has(needed) {
        section.missing(needed, example, &mut context.report);
    }
    if needed == "path" {
        let given = section.text("path", &mut context.report)?;
        let path = context.path(given.value, &given.span);
        if let Some(name) = name {
            let subject = StartSubject::Volume(name.clone());
            context.places.push((subject, context.report.place(&given.span)));
        }
        let file = PlacedValue { value: path.clone(), span: given.span };
        context.touched.push(PathUse::Export { file, read_only, shared });
        return Some(ExportStore::Path(path));
    }
    let size = section.parsed::<Bytes>("size", &mut context.report)?;
    if size.value == Bytes::ZERO || !size.value.get().is_multiple_of(PAGE) {
        context.report.error(&size.span, "`size` must be a multiple of 4KiB, and more than nothing");
        return None;
    }
    Some(ExportStore::Size(size.value))
}

fn shared_volume(
    section: &Section<'_>,
    backend: Option<&BackendConfig>,
    report: &mut FindingList<'_>,
) -> bool {
    if let (Some(BackendConfig::Emulated { .. }), Some(span)) = (backend, section.key_span("shared_volume")) {
        report.error_with_help(
            &span,
            "`shared_volume` does not fit a backend of kind `emulated`",
            "remove it: each export has its own part of the emulated device",
        );
    }
    section.flag("shared_volume", report)
}

fn served_as(section: &Section<'_>, report: &mut FindingList<'_>) -> Option<ExportName> {
    let given = section.text("served_as", report)?;
    match ExportName::new(given.value) {
        Ok(name) if !name.as_str().is_empty() => Some(name),
        Ok(_) => {
            report.error(&given.span, "`served_as` must not be empty");
            None
        }
        Err(error) => {
            report.error(&given.span, format!("`served_as`: {error}"));
            None
        }
    }
}

fn limit(section: &Section<'_>, report: &mut FindingList<'_>) -> Option<ConsumerLimit> {
    let limit = section.table("limit", LIMIT_KEYS, report)?;
    if !limit.has("iops") && !limit.has("bandwidth") {
        report.error_with_help(limit.span(), "the limit limits nothing", "add `iops` or `bandwidth`");
    }
    let iops = limit.parsed::<Iops>("iops", report);
    let bandwidth = limit.parsed::<ByteRate>("bandwidth", report);
    let burst = limit.parsed::<Latency>("burst", report);
    let soft = limit.flag("soft", report);
    let stopped = [
        iops.as_ref().filter(|iops| iops.value == Iops::ZERO).map(|given| ("iops", &given.span)),
        bandwidth
            .as_ref()
            .filter(|rate| rate.value == ByteRate::ZERO)
            .map(|given| ("bandwidth", &given.span)),
    ];
    for (key, span) in stopped.into_iter().flatten() {
        report.error(span, format!("`{key}` must be more than nothing: the export would hang its clients"));
    }
    Some(ConsumerLimit {
        iops: iops.map(|given| given.value),
        bytes_per_s: bandwidth.map(|given| given.value),
        burst: burst.map_or(DEFAULT_BURST, |given| given.value.to_duration()),
        beyond: if soft { BeyondLimit::Surplus } else { BeyondLimit::Wait },
    })
}

/// The reservation of an export whose protection and limit are known.
fn reservation(section: &Section<'_>, export: &ExportConfig, report: &mut FindingList<'_>) -> Option<Iops> {
    let given = section.parsed::<Iops>("reservation", report)?;
    if given.value == Iops::ZERO {
        report.error_with_help(&given.span, "`reservation` must be more than nothing", "leave it out");
        return None;
    }
    if let Some(limit) = export.limit.and_then(|limit| limit.iops)
        && given.value > limit
    {
        report.error(
            &given.span,
            format!("`reservation` is {}, and the limit lets no more than {limit} through", given.value),
        );
    }
    if export.protected {
        report.warning(
            &given.span,
            "`reservation` has no effect",
            "a protected export goes before all others as it is",
        );
    }
    Some(given.value)
}

fn description(section: &Section<'_>, report: &mut FindingList<'_>) -> Option<String> {
    let text = section.text("description", report)?;
    if text.value.len() > LONGEST_DESCRIPTION {
        report.error(&text.span, format!("`description` has at most {LONGEST_DESCRIPTION} bytes"));
        return None;
    }
    Some(text.value.to_owned())
}
