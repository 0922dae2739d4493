//! The law of a resource: which, and its parameters, as they stand among the keys of a pool or a host.

use std::collections::BTreeSet;
use std::time::Duration;

use tidegate_control::{
    Band, Bands, KeyValue, KneeConfig, KneeConfigError, LawConfig, LawKind, LoopConfig, LoopConfigError,
    SignalStatistic, Smoothing, WindowConfig,
};
use tidegate_units::{ConsumerName, Iops, Latency, ResourceName};

use crate::finding::FindingList;
use crate::keys::{self, Key, KeyType};
use crate::placed::PlacedValue;
use crate::section::Section;

/// Keys beside `law` that say nothing without a law: the tables `window` and `pid` among them.
pub const POOL_KEYS: &[&str] = &[
    "target",
    "set_point",
    "interval",
    "smoothing",
    "past_weight",
    "normalise",
    "idle_half_life",
    "dry_run",
    "knee",
    "auto",
    "window",
    "pid",
];

/// The keys of the table `auto`.
pub const AUTO_KEYS: &[&str] = crate::keys::law::AUTO.names;

/// The keys of the table `window`.
pub const WINDOW_KEYS: &[&str] = crate::keys::law::WINDOW.names;

/// The keys of the table `knee`.
pub const KNEE_KEYS: &[&str] = crate::keys::law::KNEE.names;

/// The keys of the table `pid`.
pub const PID_KEYS: &[&str] = crate::keys::law::PID.names;

/// The keys of the table `integral`.
pub const INTEGRAL_KEYS: &[&str] = crate::keys::law::INTEGRAL.names;

/// The keys of the table `self_tuning`.
pub const SELF_TUNING_KEYS: &[&str] = crate::keys::law::SELF_TUNING.names;

/// The keys of each table in the list `bands`.
pub const BAND_KEYS: &[&str] = crate::keys::law::BANDS.names;

/// The tables of laws that command rates.
const RATE_TABLES: &[&str] = &["integral", "self_tuning", "bands"];

/// Shorter ones measure single requests, and the journal could not follow.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(10);

/// The reason that rates and their release have no effect, for messages.
pub const BY_WINDOW: &str = "`law = \"queueing-model\"` commands rates only where there are `bands`";

/// The least target that storage can keep. Chosen: twice what a read of the fastest NVMe drives takes, since the
/// set point is below the target.
const LEAST_TARGET: Latency = Latency::from_micros(20);

/// The greatest target that promises anything. Chosen: a read that takes longer is an outage to databases.
const GREATEST_TARGET: Latency = Latency::from_millis(2_000);

/// A longer interval would throttle or release long after the reason is gone.
const LONGEST_INTERVAL: Duration = Duration::from_secs(60);

/// A reader of configurations that has a default law.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LawReader {
    /// A pool of `tidegate serve`.
    Gateway,
    /// A resource of `tidegate agent`.
    Agent,
    /// A host of a scenario.
    Scenario,
}

/// Returns the law of a resource with a `target` whose `law` is not written. It is decided here only. The
/// entries of `law` in the table of keys state it, and a test compares them.
#[must_use]
pub const fn default_law(reader: LawReader) -> LawKind {
    match reader {
        LawReader::Gateway | LawReader::Agent | LawReader::Scenario => LawKind::Auto,
    }
}

/// The laws that can regulate a pool or a host.
#[derive(Debug, Clone, Copy)]
pub struct AvailableLaws {
    /// The reader, which selects the [default law](default_law).
    pub reader: LawReader,
    /// The window law's configuration if none is written: it differs if hosts share the resource.
    pub window: WindowConfig,
    /// True if consumers can be limited to rates. Without that there is neither the integral nor the
    /// self-tuning law.
    pub rates: bool,
}

/// Reads the law of a pool or a host. Returns `None` without one, and when it is wrong (which is then
/// reported). The section's keys must contain `law` and [`POOL_KEYS`]; where rates can be commanded, also
/// `integral`, `self_tuning` and `bands`.
pub fn read(
    pool: &Section<'_>,
    name: &ResourceName,
    laws: AvailableLaws,
    report: &mut FindingList<'_>,
) -> Option<LoopConfig> {
    let kinds = || LawKind::ALL.into_iter().filter(|kind| laws.rates || !kind.is_by_rates());
    let choices: Vec<_> = kinds().map(|kind| (kind.name(), Some(kind))).chain([("none", None)]).collect();
    let choice = match pool.choice("law", &choices, report) {
        Some(given) => given.value,
        // Not understood: already reported, and nothing sensible can be said about the parameters.
        None if pool.has("law") => return None,
        None if pool.has("target") => Some(default_law(laws.reader)),
        None => None,
    };
    let default = |kind| match kind {
        LawKind::Window => laws.window.into(),
        kind => LawConfig::of_kind(kind),
    };
    let chosen = choice.map(|kind| parameters(pool, default(kind), report));
    // The parameters of the other laws have no effect; mistakes in them are reported all the same.
    for kind in kinds().filter(|kind| choice.is_none_or(|chosen| chosen.table() != kind.table())) {
        if kind != LawKind::QueueingModel {
            let _ = parameters(pool, default(kind), report);
        }
    }
    let bands = if laws.rates { bands(pool, report) } else { Ok(None) };
    let Some(law) = chosen else {
        if pool.has_unknown_keys() {
            return None;
        }
        let why = match pool.has("law") {
            true => "`law = \"none\"` throttles nothing: remove that, or this".to_owned(),
            false => format!("{} has no law: add a `target`", pool.what()),
        };
        no_effect(pool, POOL_KEYS, &why, report);
        if laws.rates {
            no_effect(pool, RATE_TABLES, &why, report);
        }
        return None;
    };
    // Without parameters one of them is wrong, which was reported.
    let law = law?;
    let tables = kinds().map(LawKind::table).collect::<BTreeSet<_>>();
    no_effect_of_others(pool, tables, law.kind(), report);
    if laws.rates && !law.kind().has_bands() {
        no_effect(pool, &["bands"], &format!("the law is `{}`", law.kind()), report);
    }
    let mut config = LoopConfig::new(name.clone(), Latency::ZERO, law);
    config.bands = bands.ok()?.filter(|_| law.kind().has_bands());
    config.normalise = pool.flag("normalise", report);
    let automatic = automatic(pool, &mut config, report);
    loop_config(pool, config, automatic, report)
}

/// The keys of a resource with one of several laws: what [`read_one_of`] reads, beside [`RATE_KEYS`]. The
/// tables `window` and `pid` among them are those of its laws.
pub const RESOURCE_KEYS: &[&str] = &[
    "law",
    "target",
    "set_point",
    "statistic",
    "interval",
    "smoothing",
    "past_weight",
    "idle_half_life",
    "dry_run",
    "auto",
    "window",
    "pid",
];

/// Further keys of such a resource if the self-tuning law is one of its laws.
pub const RATE_KEYS: &[&str] = &["self_tuning", "bands"];

/// Reads one of these laws and its parameters. If `law` is not written, it is the agent's
/// [default law](default_law), or the first if that is not among them. Each of the laws has the values of
/// keys that are not written; targets do not matter. `None` when something is wrong, which is then reported.
pub fn read_one_of(
    section: &Section<'_>,
    laws: &[LoopConfig],
    report: &mut FindingList<'_>,
) -> Option<LoopConfig> {
    let choices: Vec<_> =
        laws.iter().enumerate().map(|(place, config)| (config.law.kind().name(), place)).collect();
    let chosen = match section.choice("law", &choices, report) {
        Some(given) => given.value,
        None if section.has("law") => return None,
        None => {
            laws.iter().position(|config| config.law.kind() == default_law(LawReader::Agent)).unwrap_or(0)
        }
    };
    let mut defaults = laws.get(chosen)?.clone();
    defaults.statistic = statistic(section, report).unwrap_or(defaults.statistic);
    let law = parameters(section, defaults.law, report)?;
    // Whichever laws there are to choose from: a table without a reader must not be passed over.
    let tables = LawKind::ALL.into_iter().map(LawKind::table).filter(|table| section.knows(table));
    no_effect_of_others(section, tables.collect(), law.kind(), report);
    // The window of `auto` becomes a rate for each cgroup. With the rates of bands beside it, a cgroup that
    // was alone had 18 of 500 IO/s in the lab.
    if !law.kind().has_operating_point() && section.knows("bands") {
        no_effect(section, &["bands"], &format!("the law is `{}`", law.kind()), report);
    }
    if law.kind().has_operating_point() {
        defaults.bands = bands(section, report).ok()?;
    }
    loop_config(section, LoopConfig { law, ..defaults }, Automatic::No, report)
}

/// Reads the statistic of the signal; `None` if it is not written, or wrong (which is then reported).
pub fn statistic(section: &Section<'_>, report: &mut FindingList<'_>) -> Option<SignalStatistic> {
    section.choice("statistic", &SignalStatistic::NAMED, report).map(|given| given.value)
}

/// Gives a law its statistic. One that the law does not take is reported, and is not taken.
pub fn set_statistic(
    law: &mut LoopConfig,
    statistic: SignalStatistic,
    section: &Section<'_>,
    report: &mut FindingList<'_>,
) {
    law.statistic = statistic;
    if let Err(error) = law.validate() {
        report.error(&place_of_statistic(section), error.to_string());
        law.statistic = SignalStatistic::Mean;
    }
}

/// Returns the place of the statistic of a law.
#[must_use]
pub fn place_of_statistic(section: &Section<'_>) -> std::ops::Range<usize> {
    section.value("statistic").map_or_else(|| section.span().clone(), toml::Spanned::span)
}

/// The choice to set the set point automatically.
#[derive(Clone, Copy, PartialEq)]
enum Automatic {
    No,
    Yes,
    /// It cannot be understood, which was reported.
    Unclear,
}

fn loop_config(
    pool: &Section<'_>,
    mut config: LoopConfig,
    automatic: Automatic,
    report: &mut FindingList<'_>,
) -> Option<LoopConfig> {
    if !pool.has("target") {
        pool.missing("target", "\"15ms\"", report);
    }
    let target = pool.parsed::<Latency>("target", report);
    config.target = target.as_ref().map_or(Latency::ZERO, |target| target.value);
    if automatic == Automatic::No
        && let Some(ratio) = pool.number("set_point", report)
    {
        config.set_point_ratio = ratio.value;
    }
    if let Some(interval) = pool.parsed::<Latency>("interval", report) {
        config.interval = interval.value.to_duration();
        if !(SHORTEST_INTERVAL..=LONGEST_INTERVAL).contains(&config.interval) {
            report.error(&interval.span, "`interval` must be 10ms to 1min");
        }
    }
    if let Some(half_life) = pool.parsed::<Latency>("idle_half_life", report) {
        config.idle_half_life = half_life.value.to_duration();
    }
    smoothing(pool, &mut config, report);
    config.dry_run = pool.flag("dry_run", report);
    target.filter(|_| automatic != Automatic::Unclear)?;
    match config.validate() {
        Ok(()) => {
            warn_of_unit(pool, "target", config.target, report);
            Some(config)
        }
        // Said above, with its bounds.
        Err(LoopConfigError::Interval) => None,
        Err(error) => {
            let place = match error {
                LoopConfigError::Law(error) => {
                    let table = config.law.kind().table();
                    error.keys().iter().find_map(|key| span_of(pool, &[table, key]))
                }
                error => place_of(&error).iter().find_map(|path| span_of(pool, path)),
            };
            report.error(place.as_ref().unwrap_or(pool.span()), error.to_string());
            None
        }
    }
}

/// Reports a latency under a key that storage cannot keep, however idle it is, or that promises nothing:
/// probably its unit is a mistake.
pub fn warn_of_unit(section: &Section<'_>, key: &str, latency: Latency, report: &mut FindingList<'_>) {
    let Some(span) = section.value(key).map(toml::Spanned::span) else { return };
    if latency < LEAST_TARGET {
        let message = format!("no storage keeps a `{key}` of {latency}: the law throttles as far as it may");
        let help = match latency.scale(1_000.0) {
            meant if meant > LEAST_TARGET => format!("is `{meant}` meant? `15ms` suits disks, `1ms` flash"),
            _ => "`15ms` suits disks, `1ms` flash".to_owned(),
        };
        report.warning(&span, message, help);
    } else if latency > GREATEST_TARGET {
        let message =
            format!("a `{key}` of {latency} protects no reads: one that takes so long is an outage");
        let help = format!("is `{}` meant? `15ms` suits disks, `1ms` flash", latency.scale(0.001));
        report.warning(&span, message, help);
    }
}

/// Looks for `"auto"`: then the whole target is the ceiling, because there is no promise to keep clear of.
/// The law `auto` finds its set point in any case.
fn automatic(pool: &Section<'_>, config: &mut LoopConfig, report: &mut FindingList<'_>) -> Automatic {
    let knee = knee(pool, report);
    match pool.value("set_point").and_then(|value| Some((value.span(), value.get_ref().as_str()?))) {
        Some((span, "auto")) if config.law.kind() == LawKind::Auto => {
            let why = "the law `auto` finds its set point below the target by itself; to look for the knee, \
                       write `law = \"window\"`";
            report.warning(&span, "`set_point = \"auto\"` has no effect", why);
            no_effect(pool, &["knee"], "only the law `window` looks for the knee", report);
            Automatic::Yes
        }
        Some((_, "auto")) => {
            config.set_point_ratio = 1.0;
            config.knee = Some(knee);
            Automatic::Yes
        }
        Some((span, text)) => {
            let text = text.escape_debug();
            report.error(&span, format!("`set_point` must be a number or `\"auto\"`, not `\"{text}\"`"));
            Automatic::Unclear
        }
        None => {
            no_effect(pool, &["knee"], "only `set_point = \"auto\"` looks for the knee", report);
            Automatic::No
        }
    }
}

fn knee(pool: &Section<'_>, report: &mut FindingList<'_>) -> KneeConfig {
    let mut config = KneeConfig::default();
    let Some(section) = pool.table("knee", KNEE_KEYS, report) else { return config };
    if let Some(fraction) = section.number("fraction", report) {
        config.fraction = fraction.value;
    }
    if let Some(floor) = section.parsed::<Latency>("floor", report) {
        config.floor = floor.value;
    }
    if let Some(half_life) = section.parsed::<Latency>("half_life", report) {
        config.half_life = half_life.value.to_duration();
    }
    config
}

fn smoothing(pool: &Section<'_>, config: &mut LoopConfig, report: &mut FindingList<'_>) {
    if let Some(time) = pool.parsed::<Latency>("smoothing", report) {
        config.smoothing = Smoothing::TimeConstant(time.value.to_duration());
    }
    if let Some(weight) = pool.number("past_weight", report) {
        if pool.has("smoothing") {
            report.error(&weight.span, "`past_weight` and `smoothing` exclude each other");
        }
        config.smoothing = Smoothing::PerInterval { past_weight: weight.value };
    }
}

/// Reads the parameters of a law from its table. `None` if one of them cannot be, which is then reported.
fn parameters(pool: &Section<'_>, mut law: LawConfig, report: &mut FindingList<'_>) -> Option<LawConfig> {
    let table = keys::by_id(law.kind().table());
    let Some(section) = pool.table(table.id, table.names, report) else { return Some(law) };
    let mut is_right = true;
    for key in table.keys {
        let Some(PlacedValue { value, span }) = key_value(&section, key, report) else { continue };
        if let Err(why) = law.set(key.name, value) {
            report.error(&span, why);
            is_right = false;
        }
    }
    if let Some((keys, why)) = law.without_effect() {
        no_effect(&section, keys, why, report);
    }
    if law.kind() == LawKind::QueueingModel && !pool.has("bands") {
        no_effect(&section, &["floor"], BY_WINDOW, report);
    }
    is_right.then_some(law)
}

/// Reads the value of a key by its type in the table of keys.
fn key_value(
    section: &Section<'_>,
    key: &Key,
    report: &mut FindingList<'_>,
) -> Option<PlacedValue<KeyValue<'static>>> {
    let name = key.name;
    Some(match key.kind {
        KeyType::Number(_) => section.number(name, report)?.map(KeyValue::Number),
        KeyType::Time => section.parsed(name, report)?.map(KeyValue::Time),
        KeyType::Rate => section.parsed(name, report)?.map(KeyValue::Rate),
        KeyType::Whole(least, greatest) => {
            let bounds = least.unsigned_abs()..=greatest.unsigned_abs();
            let whole = section.whole(name, bounds, report)?;
            whole.map(|whole| KeyValue::Whole(u32::try_from(whole).unwrap_or(u32::MAX)))
        }
        KeyType::Words(words) => {
            let choices: Vec<_> = words.iter().map(|word| (*word, *word)).collect();
            section.choice(name, &choices, report)?.map(KeyValue::Word)
        }
        _ => unreachable!("no law has a parameter of the type of `{name}`"),
    })
}

/// Reports the tables of laws that are not the chosen one.
fn no_effect_of_others(
    pool: &Section<'_>,
    tables: BTreeSet<&str>,
    law: LawKind,
    report: &mut FindingList<'_>,
) {
    for table in tables.into_iter().filter(|table| *table != law.table()) {
        no_effect(pool, &[table], &format!("the law is `{law}`"), report);
    }
}

/// Bands are wrong, which was reported.
struct WrongBands;

/// The list `bands`; `Ok(None)` without one.
fn bands(pool: &Section<'_>, report: &mut FindingList<'_>) -> Result<Option<Bands>, WrongBands> {
    let Some(place) = pool.key_span("bands") else { return Ok(None) };
    let is_list = pool.value("bands").is_some_and(|bands| bands.get_ref().as_array().is_some());
    let sections = pool.tables("bands", BAND_KEYS, report);
    let bands: Vec<Option<Band>> = sections.iter().map(|section| band(section, report)).collect();
    let bands: Vec<Band> = bands.into_iter().collect::<Option<_>>().filter(|_| is_list).ok_or(WrongBands)?;
    Bands::new(bands).map(Some).map_err(|error| {
        let place = error.band().and_then(|band| sections.get(band)).map_or(&place, Section::span);
        report.error(place, error.to_string());
        WrongBands
    })
}

fn band(section: &Section<'_>, report: &mut FindingList<'_>) -> Option<Band> {
    for (key, example) in [("up_to", "\"400 IO/s\""), ("ratios", "{ database = 0.7, backup = 0.3 }")] {
        if !section.has(key) {
            section.missing(key, example, report);
        }
    }
    let up_to = section.parsed::<Iops>("up_to", report);
    let ratios = section.named_numbers("ratios", report)?.into_iter().map(|(name, ratio)| {
        let workload = ConsumerName::new(name.value);
        let workload =
            workload.map_err(|error| report.error(&name.span, format!("a workload's name: {error}")));
        Some((workload.ok()?, ratio.value))
    });
    let ratios = ratios.collect::<Option<_>>()?;
    Some(Band { up_to: up_to?.value, ratios }).filter(|_| section.has("ratios"))
}

/// Reports a written law that is known to swing, or to throttle for nothing: one that decides faster than the
/// storage answers, or steers to less than the storage's latency without load, where that is known.
pub fn warn_of_harm(
    pool: &Section<'_>,
    law: &LoopConfig,
    unloaded: Option<Latency>,
    report: &mut FindingList<'_>,
) {
    let kind = law.law.kind();
    let finds_its_own = matches!(kind, LawKind::Auto | LawKind::Integral) || law.knee.is_some();
    if !pool.has("law") || finds_its_own || law.target == Latency::ZERO {
        return;
    }
    let place = |key| pool.key_span(key).or_else(|| pool.key_span("target"));
    let least = law.target.scale(2.0);
    if matches!(kind, LawKind::Window | LawKind::Pid)
        && Latency::from(law.interval) < least
        && let Some(place) = place("interval")
    {
        let message = format!(
            "`law = \"{kind}\"` decides each {}, and storage that may take {} answers later: it will swing",
            Latency::from(law.interval),
            law.target
        );
        report.warning(&place, message, format!("write `interval = \"{least}\"`, or `law = \"auto\"`"));
    }
    if let Some(unloaded) = unloaded.filter(|unloaded| *unloaded > law.set_point())
        && let Some(place) = place("set_point")
    {
        let message = format!(
            "the set point of {} is below the latency of the storage without load, {unloaded}: `law = \
             \"{kind}\"` would throttle for nothing",
            law.set_point()
        );
        report.warning(&place, message, "write a greater `target`, or `law = \"auto\"`");
    }
}

/// Reports a workload that is named in `bands` and does not exist. `what`: what there would have to be.
pub fn check_bands(
    pool: &Section<'_>,
    law: &LoopConfig,
    what: &str,
    exists: impl Fn(&ConsumerName) -> bool,
    report: &mut FindingList<'_>,
) {
    if let Some(Err(error)) = law.bands.as_ref().map(|bands| bands.name_only(exists)) {
        let place = pool.value("bands").map_or_else(|| pool.span().clone(), toml::Spanned::span);
        report.error_with_help(&place, error.to_string(), format!("name {what}"));
    }
}

fn no_effect(pool: &Section<'_>, keys: &[&str], why: &str, report: &mut FindingList<'_>) {
    for key in keys {
        if let Some(span) = pool.key_span(key) {
            report.warning(&span, format!("`{key}` has no effect"), why);
        }
    }
}

/// Returns the keys of a pool whose value an error may be about. The first one that is written is the place.
fn place_of(error: &LoopConfigError) -> &'static [&'static [&'static str]] {
    match error {
        LoopConfigError::Target => &[&["target"]],
        LoopConfigError::SetPointRatio(_) => &[&["set_point"]],
        LoopConfigError::Interval => &[&["interval"]],
        LoopConfigError::IdleHalfLife => &[&["idle_half_life"]],
        LoopConfigError::PastWeight(_) => &[&["past_weight"]],
        LoopConfigError::PercentilesAreNotScaled => &[&["normalise"]],
        LoopConfigError::RequestsAreNotScaled => &[&["window", "shares_of"], &["normalise"]],
        LoopConfigError::AutomaticNeedsWindow => &[&["set_point"], &["law"]],
        LoopConfigError::ContractsHaveTheirSignal => &[&["law"]],
        LoopConfigError::ContractsHaveTheirStatistic => &[&["statistic"]],
        LoopConfigError::ContractsAreNotScaled => &[&["normalise"]],
        LoopConfigError::ContractsAreNotSmoothed => &[&["smoothing"], &["past_weight"]],
        LoopConfigError::GoalsAreTakenAsTheyAre => {
            &[&["statistic"], &["smoothing"], &["past_weight"], &["normalise"]]
        }
        LoopConfigError::BandsNeedSelfTuning => &[&["bands"], &["law"]],
        LoopConfigError::Knee(KneeConfigError::Fraction(_)) => &[&["knee", "fraction"]],
        LoopConfigError::Knee(KneeConfigError::Floor { .. }) => &[&["knee", "floor"], &["target"]],
        LoopConfigError::Knee(KneeConfigError::HalfLife(_)) => &[&["knee", "half_life"]],
        LoopConfigError::Law(_) => &[],
    }
}

fn span_of(pool: &Section<'_>, path: &[&str]) -> Option<std::ops::Range<usize>> {
    let (first, rest) = path.split_first()?;
    // Pools and an agent's resources have some keys each of their own.
    let mut value = Some(first).filter(|key| pool.knows(key)).and_then(|key| pool.value(key))?;
    for key in rest {
        value = value.get_ref().as_table()?.get(*key)?;
    }
    Some(value.span())
}

#[cfg(test)]
mod tests {
    use tidegate_control::{
        ContractStatistic, ControllerGain, Figure6Learning, GainTuning, IntegralConfig, IntegralVariant,
        QueueLearning, RegulationMethod, SelfTuningConfig,
    };

    use super::*;
    use crate::finding::Finding;

    const KEYS: &[&str] = &[
        "law",
        "target",
        "set_point",
        "interval",
        "smoothing",
        "past_weight",
        "normalise",
        "idle_half_life",
        "dry_run",
        "knee",
        "window",
        "pid",
        "integral",
        "self_tuning",
        "bands",
    ];

    fn read_with(text: &str, rates: bool) -> (Option<LoopConfig>, Vec<Finding>) {
        let mut report = FindingList::new("test", text);
        let document = crate::parse(text, &mut report).unwrap();
        let pool = Section::new(&document, 0..0, "the pool".to_owned(), KEYS, &mut report);
        let name = ResourceName::new("p").unwrap();
        let laws = AvailableLaws { reader: LawReader::Gateway, window: WindowConfig::default(), rates };
        let law = read(&pool, &name, laws, &mut report);
        (law, report.into_findings())
    }

    fn read_rates(text: &str) -> (Option<LoopConfig>, Vec<Finding>) {
        read_with(&format!("law = 'integral'\ntarget = '50ms'\n{text}"), true)
    }

    #[test]
    fn an_integral_law_is_read_with_every_key() {
        let (law, findings) = read_rates("");
        assert!(findings.is_empty(), "{findings:?}");
        let name = ResourceName::new("p").unwrap();
        let default = LawConfig::Integral(IntegralConfig::default());
        assert_eq!(law, Some(LoopConfig::new(name, Latency::from_millis(50), default)));
        let (law, findings) = read_rates(
            "interval = '500ms'\nintegral = { gain = 12.5, floor = '5 IO/s', greatest = '9kIO/s', statistic \
                = 'mean', variant = 'literal' }",
        );
        assert!(findings.is_empty(), "{findings:?}");
        let integral = IntegralConfig {
            gain: ControllerGain::new(12.5).unwrap(),
            floor: Iops::new(5.0),
            greatest: Some(Iops::new(9_000.0)),
            statistic: ContractStatistic::Mean,
            tuning: GainTuning::Fixed,
            variant: IntegralVariant::LITERAL,
        };
        let law = law.unwrap();
        assert_eq!((law.law, law.interval), (LawConfig::Integral(integral), Duration::from_millis(500)));
        let (law, findings) = read_rates("integral = { tuning = 'learnt' }");
        let learnt = IntegralConfig { tuning: GainTuning::Learnt, ..IntegralConfig::default() };
        assert_eq!((law.map(|law| law.law), findings.len()), (Some(LawConfig::Integral(learnt)), 0));
        let (_, findings) = read_rates("integral = { tuning = 'learnt', gain = 3 }");
        assert_eq!(findings[0].message(), "`gain` has no effect");
    }

    #[test]
    fn what_an_integral_law_cannot_be_is_said() {
        let cases = [
            ("integral = { gain = 0.0 }", "the controller gain must be above 0"),
            ("integral = { gain = -1 }", "the controller gain must be above 0"),
            ("integral = { floor = '0 IO/s' }", "the floor rate must be greater than zero"),
            ("integral = { floor = '5 IO/s', greatest = '4 IO/s' }", "at most the greatest rate"),
            ("integral = { variant = 'bold' }", "`variant` cannot be `bold`"),
            ("smoothing = '200ms'", "without `smoothing`"),
            ("past_weight = 0.5", "without `smoothing` and `past_weight`"),
            ("normalise = true", "without `normalise`"),
            ("set_point = 'auto'", "only the window law's set point"),
        ];
        for (text, said) in cases {
            let (_, findings) = read_rates(text);
            assert!(findings.len() == 1 && findings[0].message().contains(said), "{text}: {findings:?}");
        }
        let (_, findings) = read_rates("pid = {}");
        assert!(findings[0].message().contains("`pid` has no effect"), "{findings:?}");
    }

    #[test]
    fn where_nobody_can_be_held_to_a_rate_there_is_no_integral_law() {
        let (law, findings) = read_with("law = 'integral'\ntarget = '50ms'", false);
        assert!(law.is_none() && findings[0].message().contains("cannot be `integral`"), "{findings:?}");
    }

    fn read_tuned(text: &str) -> (Option<LoopConfig>, Vec<Finding>) {
        read_with(&format!("law = 'self-tuning'\ntarget = '5ms'\n{text}"), true)
    }

    #[test]
    fn a_self_tuning_law_is_read_with_every_key() {
        let (law, findings) = read_tuned("");
        assert!(findings.is_empty(), "{findings:?}");
        let name = ResourceName::new("p").unwrap();
        let default = LawConfig::SelfTuning(SelfTuningConfig::default());
        assert_eq!(law, Some(LoopConfig::new(name, Latency::from_millis(5), default)));
        let (law, findings) = read_tuned(
            "self_tuning = { forgetting = 0.8, reset_change = 0.5, least_requests = 10, least = '20 IO/s', \
             greatest = '9kIO/s', floor = '5 IO/s', variant = 'literal' }\n\
             bands = [{ up_to = '100 IO/s', ratios = { w1 = 0.5, w2 = 0.5 } }, { up_to = '400 IO/s', ratios \
             = { w1 = 1 } }]",
        );
        assert!(findings.is_empty(), "{findings:?}");
        let figure6 = Figure6Learning { forgetting: 0.8, reset_change: 0.5 };
        let expected = SelfTuningConfig {
            regulation: RegulationMethod::Literal(figure6),
            least_requests: 10,
            least: Iops::new(20.0),
            greatest: Iops::new(9_000.0),
            floor: Iops::new(5.0),
        };
        let workload = |name| ConsumerName::new(name).unwrap();
        let bands = Bands::new(vec![
            Band { up_to: Iops::new(100.0), ratios: vec![(workload("w1"), 0.5), (workload("w2"), 0.5)] },
            Band { up_to: Iops::new(400.0), ratios: vec![(workload("w1"), 1.0)] },
        ]);
        let law = law.unwrap();
        assert_eq!((law.law, law.bands), (LawConfig::SelfTuning(expected), bands.ok()));
        let (law, _) = read_tuned("self_tuning = { gain = 7.2 }");
        let fixed = RegulationMethod::Fixed(ControllerGain::new(7.2).unwrap());
        let expected = SelfTuningConfig { regulation: fixed, ..SelfTuningConfig::default() };
        assert_eq!(law.map(|law| law.law), Some(LawConfig::SelfTuning(expected)));
    }

    #[test]
    fn the_model_of_a_queue_has_the_self_tuning_laws_keys_but_for_two() {
        let by = |keys: &str| format!("law = 'queueing-model'\ntarget = '5ms'\nself_tuning = {{ {keys} }}");
        let bands = "\nbands = [{ up_to = '9 IO/s', ratios = { a = 1 } }]";
        let read = |keys: &str| read_with(&format!("{}{bands}", by(keys)), true);
        let (law, findings) = read("forgetting = 0.8, reset_change = 0.5, floor = '5 IO/s'");
        let regulation = RegulationMethod::Queueing(QueueLearning { forgetting: 0.8, reset_change: 0.5 });
        let expected = SelfTuningConfig { regulation, floor: Iops::new(5.0), ..SelfTuningConfig::default() };
        assert!(findings.is_empty(), "{findings:?}");
        assert_eq!(law.map(|law| law.law), Some(LawConfig::SelfTuning(expected)));
        for wrong in ["gain = 7.2", "variant = 'literal'", "forgetting = 0", "reset_change = -1"] {
            assert_eq!(read(wrong).1.len(), 1, "{wrong}");
        }
        // Without bands its window is all that it commands.
        let (law, findings) = read_with(&by("floor = '5 IO/s'"), true);
        assert!(law.is_some() && findings.len() == 1, "{findings:?}");
        assert_eq!(findings[0].message(), "`floor` has no effect");
    }

    #[test]
    fn what_a_self_tuning_law_cannot_be_is_said() {
        let cases = [
            ("self_tuning = { gain = 0.0 }", "the controller gain must be above 0"),
            ("self_tuning = { gain = 7, forgetting = 0.9 }", "`forgetting` has no effect"),
            ("self_tuning = { forgetting = 1.5 }", "forgetting factor must be above 0 and at most 1"),
            ("self_tuning = { reset_change = 0 }", "the change that resets the model"),
            ("self_tuning = { floor = '0 IO/s' }", "the floor rate must be greater than zero"),
            ("self_tuning = { least = '9 IO/s', greatest = '4 IO/s' }", "must be above zero and in order"),
            ("self_tuning = { variant = 'literal' }", "needs a greatest operating point"),
            ("smoothing = '200ms'", "`smoothing` and `past_weight`"),
            ("normalise = true", "`normalise`"),
            ("bands = []", "there must be at least one band"),
            ("bands = 7", "a list of tables"),
            ("bands = [{ up_to = '9 IO/s' }]", "`ratios`"),
            ("bands = [{ ratios = { a = 1 } }]", "`up_to`"),
            ("bands = [{ up_to = '9 IO/s', ratios = { a = 'all' } }]", "a finite number"),
            ("bands = [{ up_to = '9 IO/s', ratios = { a = 0.5 } }]", "the ratios of band 0 must be 1 in sum"),
            ("integral = {}", "`integral` has no effect"),
        ];
        for (text, said) in cases {
            let (_, findings) = read_tuned(text);
            assert!(findings.len() == 1 && findings[0].message().contains(said), "{text}: {findings:?}");
        }
        for (written, help) in [
            ("50%", Some("write 0.5, without quotes")),
            (" 33.3 % ", Some("write 0.333, without quotes")),
            ("0.5", Some("write 0.5, without quotes")),
            ("half", None),
            ("inf%", None),
            ("%", None),
        ] {
            let (_, findings) =
                read_tuned(&format!("bands = [{{ up_to = '9 IO/s', ratios = {{ a = '{written}' }} }}]"));
            let said = (findings.len(), findings[0].message(), findings[0].help());
            assert_eq!(said, (1, "`a` must be a finite number, this is a text", help), "{written}");
        }
        let band = "bands = [{ up_to = '9 IO/s', ratios = { a = 1 } }]";
        let (law, findings) = read_rates(band);
        assert!(
            law.unwrap().bands.is_none() && findings[0].message().contains("`bands` has no effect"),
            "{findings:?}"
        );
        let (law, findings) = read_with("law = 'self-tuning'\ntarget = '5ms'", false);
        assert!(law.is_none() && findings[0].message().contains("cannot be `self-tuning`"), "{findings:?}");
    }
}
