//! `[pool.NAME]`.

use tidegate_cluster::ClusterMember;
use tidegate_config::law::{self, AvailableLaws, LawReader};
use tidegate_config::{FindingList, PlacedValue, Section, bursts, release};
use tidegate_control::{LawConfig, LoopConfig, SharesOf, SignalStatistic, WindowConfig};
use tidegate_device::Device;
use tidegate_gateway::{BackendConfig, ExportStore, LawScope, MAX_PAYLOAD, PoolConfig, PoolLimits};
use tidegate_sched::Discipline;
use tidegate_units::{Bytes, ConsumerName, Latency, ResourceName};

use super::contracts;
use super::named_export::{KeyPlaces, NamedExport};
use super::{ReadContext, backend, export, reservation, scope};
use crate::admission::PoolContracts;

pub(super) const KEYS: &[&str] = tidegate_config::keys::pool::POOL.names;

pub(super) const LIMITS_KEYS: &[&str] = tidegate_config::keys::pool::LIMITS.names;

/// Beyond this the queue at the backend is no queue any more but a place where requests are lost from sight.
const GREATEST_DEPTH: u64 = 1024;

/// One pool. Its exports are beside it, because their names must differ across pools; its membership in the
/// cluster, because the cluster is read once all its members are known; and what it promises, which changes
/// while it is served.
pub(super) struct ReadPool {
    pub(super) config: PoolConfig,
    pub(super) exports: Vec<NamedExport>,
    pub(super) member: Option<ClusterMember>,
    pub(super) promised: Option<PoolContracts>,
}

fn divides_requests(law: &LoopConfig) -> bool {
    matches!(law.law, LawConfig::Window(WindowConfig { shares_of: SharesOf::Requests, .. }))
}

/// Reads one pool.
pub(super) fn read(
    name: &PlacedValue<&str>,
    section: &Section<'_>,
    context: &mut ReadContext<'_>,
) -> Option<ReadPool> {
    let resource = match ResourceName::new(name.value) {
        Ok(resource) => Some(resource),
        Err(error) => {
            context.report.error(&name.span, format!("a pool's name: {error}"));
            None
        }
    };
    let backend = backend::read(section, context);
    let depth = section.whole("depth", 1..=GREATEST_DEPTH, &mut context.report);
    let limits = limits(section, &mut context.report);
    let shared = section.flag("cluster", &mut context.report);
    let scope = scope::read(section, &mut context.report);
    // Laws of exports share the pool as hosts share a resource.
    let window = WindowConfig::for_resource(shared || scope == LawScope::Export);
    let laws = AvailableLaws { reader: LawReader::Gateway, window, rates: true };
    let mut law =
        resource.as_ref().and_then(|resource| law::read(section, resource, laws, &mut context.report));
    statistic(section, law.as_mut(), shared, &mut context.report);
    let ReadExports { exports, unread } = exports(section, backend.as_ref(), context);
    scope::check(section, scope, law.as_ref(), &exports, &mut context.report);
    let is_complete = unread.is_empty() && !exports.is_empty();
    if law.is_some() && is_complete && exports.iter().all(|export| export.config.protected) {
        context.report.warning(
            section.span(),
            format!("the law of {} has no consumer to throttle", section.what()),
            "every export is protected",
        );
    }
    warn_of_lawless_protection(section, law.as_ref(), &exports, &mut context.report);
    if !shared && scope == LawScope::Pool && law.as_ref().is_some_and(divides_requests) {
        let place = section.key_span("window").unwrap_or_else(|| section.span().clone());
        context.report.warning(
            &place,
            "`shares_of` has no effect",
            "it is about shares between hosts or laws, and this pool is in no cluster and has one law",
        );
    }
    if law.as_ref().is_some_and(|law| law.knee.is_some())
        && exports.iter().any(|export| export.config.protected)
    {
        let place = match section.value("set_point") {
            Some(value) => value.span(),
            None => section.span().clone(),
        };
        context.report.error_with_help(
            &place,
            "a promise to protected exports cannot be chosen automatically",
            "protect no export of this pool, or say `set_point = 0.8`",
        );
    }
    let release = release::read(section, &mut context.report);
    if let Some(law) = &law {
        // Of a workload that is not here it is not known whether another host has it.
        let exists = |name: &ConsumerName| match exports.iter().find(|export| export.config.name == *name) {
            Some(export) => !export.config.protected,
            None => shared || unread.contains(&name.as_str()),
        };
        law::check_bands(
            section,
            law,
            "an export of the pool that is not protected",
            exists,
            &mut context.report,
        );
    }
    if let Some(law) = &law {
        let unloaded = match &backend {
            Some(BackendConfig::Emulated { device, .. }) => device.unloaded_latency().ok(),
            _ => None,
        };
        law::warn_of_harm(section, law, unloaded, &mut context.report);
    }
    contracts::check(section, law.as_ref(), &exports, &mut context.report);
    if let Some(backend) = &backend {
        fit(section, backend, &exports, &mut context.report);
    }

    let member = resource.as_ref().filter(|_| shared).map(|resource| ClusterMember {
        resource: resource.clone(),
        interval: law.as_ref().map(|law| law.interval),
        span: section.key_span("cluster").unwrap_or_else(|| section.span().clone()),
    });
    if shared && law.is_none() && !section.has("target") {
        context.report.error_with_help(
            section.span(),
            format!("{} has a cluster and no law that would listen to it", section.what()),
            "add a `target`",
        );
    }

    let configs = exports.iter().map(|export| export.config.clone()).collect();
    let mut pool = PoolConfig::new(resource?, backend?, configs);
    pool.depth = depth.and_then(|depth| u32::try_from(depth.value).ok()).unwrap_or(PoolConfig::DEFAULT_DEPTH);
    let disciplines = [("sfq", Discipline::StartTags), ("yfq", Discipline::FinishTags)];
    pool.discipline = section
        .choice("scheduler", &disciplines, &mut context.report)
        .map_or(pool.discipline, |given| given.value);
    pool.batch = bursts::batch(section, &mut context.report);
    pool.idle_credit = bursts::idle_credit(section, &mut context.report);
    if pool.discipline == Discipline::FinishTags
        && let Some(span) = section.key_span("batch")
    {
        let why = "the scheduler `yfq` keeps no requests together: say `scheduler = \"sfq\"`";
        context.report.warning(&span, "`batch` has no effect", why);
    }
    pool.release = release;
    pool.law = law;
    pool.scope = scope;
    pool.limits = limits;
    pool.processors = section.parsed("processors", &mut context.report).map(|given| given.value);
    reservation::check(section, &pool, &mut context.report);
    let beforehand = contracts::beforehand(section, context);
    let promised = contracts::promised(section, &pool, &exports, beforehand, &mut context.report);
    Some(ReadPool { config: pool, exports, member, promised })
}

/// Reads the statistic by which the law steers.
fn statistic(
    section: &Section<'_>,
    law: Option<&mut LoopConfig>,
    shared: bool,
    report: &mut FindingList<'_>,
) {
    let Some(statistic) = law::statistic(section, report) else { return };
    let Some(law) = law else {
        // A law that is written, and wrong, is reported as that.
        if !section.has("law") && !section.has("target") && !section.has_unknown_keys() {
            let why = format!("{} has no law: add a `target`", section.what());
            report.warning(&law::place_of_statistic(section), "`statistic` has no effect", why);
        }
        return;
    };
    law::set_statistic(law, statistic, section, report);
    if shared && law.statistic != SignalStatistic::Mean {
        report.error_with_help(
            &law::place_of_statistic(section),
            "hosts tell each other means, and no percentiles",
            "steer a pool of a cluster by `statistic = \"mean\"`",
        );
    }
}

/// Reports protection where nothing is ever throttled for it.
fn warn_of_lawless_protection(
    section: &Section<'_>,
    law: Option<&LoopConfig>,
    exports: &[NamedExport],
    report: &mut FindingList<'_>,
) {
    // Without a law for another reason than that none is wanted, the mistake was reported.
    let wants_none = section.value("law").is_none_or(|law| law.get_ref().as_str() == Some("none"));
    if law.is_some() || !wants_none || section.has("target") || section.has_unknown_keys() {
        return;
    }
    if let Some(export) = exports.iter().find(|export| export.config.protected) {
        report.warning(
            &export.name.span,
            format!("`protected` promises nothing: {} has no law, and throttles no export", section.what()),
            "add the latency that its reads are to have to the pool, such as `target = \"15ms\"`",
        );
    }
}

/// The exports of a pool.
#[derive(Default)]
struct ReadExports<'a> {
    exports: Vec<NamedExport>,
    /// The names of exports with a mistake, which was reported.
    unread: Vec<&'a str>,
}

fn exports<'a>(
    section: &Section<'a>,
    backend: Option<&BackendConfig>,
    context: &mut ReadContext<'_>,
) -> ReadExports<'a> {
    let Some(tables) = section.named_tables("export", export::KEYS, &mut context.report) else {
        return ReadExports::default();
    };
    if tables.is_empty() {
        context.report.error_with_help(
            section.span(),
            format!("{} has no exports", section.what()),
            "add a table `[pool.NAME.export.EXPORT]`",
        );
    }
    let mut read = ReadExports::default();
    for (name, table) in tables {
        match export::read(&name, &table, backend, context) {
            Some((config, contracts)) => {
                let (name, places) = (PlacedValue { value: (), span: name.span }, KeyPlaces::of(&table));
                read.exports.push(NamedExport { config, name, places, contracts });
            }
            None => read.unread.push(name.value),
        }
    }
    read
}

/// Exports lie one after the other on an emulated device.
fn fit(
    section: &Section<'_>,
    backend: &BackendConfig,
    exports: &[NamedExport],
    report: &mut FindingList<'_>,
) {
    let BackendConfig::Emulated { device, seed, .. } = backend else { return };
    let capacity = match Device::new(device, *seed) {
        Ok(device) => device.capacity(),
        Err(error) => {
            report.error(section.span(), format!("the emulated device: {error}"));
            return;
        }
    };
    let mut end = 0u64;
    for export in exports {
        let ExportStore::Size(size) = export.config.store else { continue };
        end = end.saturating_add(size.get());
        if end > capacity.get() {
            report.error(
                &export.name.span,
                format!(
                    "export `{}` does not fit: the exports up to here have {}, the device has {capacity}",
                    export.config.name,
                    Bytes::new(end),
                ),
            );
            return;
        }
    }
}

fn limits(pool: &Section<'_>, report: &mut FindingList<'_>) -> PoolLimits {
    let mut limits = PoolLimits::default();
    let Some(section) = pool.table("limits", LIMITS_KEYS, report) else { return limits };
    let count = |key, greatest, field: &mut usize, report: &mut FindingList<'_>| {
        if let Some(given) = section.whole(key, 1..=greatest, report) {
            *field = usize::try_from(given.value).unwrap_or(usize::MAX);
        }
    };
    count("sessions", 65_536, &mut limits.sessions, report);
    count("session_requests", 65_536, &mut limits.session_requests, report);
    for (key, field) in
        [("export_sessions", &mut limits.export_sessions), ("source_sessions", &mut limits.source_sessions)]
    {
        let Some(given) = section.whole(key, 1..=65_536, report) else { continue };
        let quota = usize::try_from(given.value).unwrap_or(usize::MAX);
        if quota > limits.sessions {
            let sessions = limits.sessions;
            report.error(&given.span, format!("`{key}` is more than the {sessions} `sessions` of the pool"));
        }
        *field = Some(quota);
    }
    if let Some(given) = section.parsed::<Latency>("idle_timeout", report) {
        limits.idle_timeout = Some(given.value.to_duration());
    }
    for (key, field) in
        [("session_memory", &mut limits.session_bytes), ("pool_memory", &mut limits.pool_bytes)]
    {
        match section.parsed::<Bytes>(key, report) {
            Some(given) if given.value.get() < u64::from(MAX_PAYLOAD) => {
                let least = Bytes::new(u64::from(MAX_PAYLOAD));
                report.error(&given.span, format!("`{key}` must hold at least the largest request, {least}"));
            }
            Some(given) => *field = given.value,
            None => {}
        }
    }
    match section.parsed::<Latency>("reply_deadline", report) {
        Some(given) if given.value == Latency::ZERO => {
            report.error(&given.span, "`reply_deadline` must be more than nothing");
        }
        Some(given) => limits.reply_deadline = given.value.to_duration(),
        None => {}
    }
    limits
}
