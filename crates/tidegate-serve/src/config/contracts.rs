//! Contracts and goals, and the laws that keep them: what fits together, and what has no effect.

use tidegate_config::law::BY_WINDOW;
use tidegate_config::{FindingList, Section};
use tidegate_control::{ContractUse, LawConfig, LawKind, LoopConfig};
use tidegate_gateway::{BackendConfig, ExportConfig, PoolConfig};
use tidegate_service::config::read_bounded;

use super::named_export::NamedExport;
use super::{PathUse, ReadContext};
use crate::admission::{JudgementBasis, KnownAnswers, MOST_TENANTS, PoolContracts, StorageModel};

/// Checks a pool's exports and keys against its law.
pub(super) fn check(
    pool: &Section<'_>,
    law: Option<&LoopConfig>,
    exports: &[NamedExport],
    report: &mut FindingList<'_>,
) {
    match law.map(|law| law.law) {
        Some(LawConfig::Integral(_)) => {
            alone(pool, report);
            for export in exports {
                let help = "promise the rate: `contract = { iops = …, response_time = … }`";
                unreserved(export, LawKind::Integral, help, report);
                kept(export, report);
            }
            goals_without_effect(exports, report);
        }
        Some(LawConfig::Auto(_)) => {
            exports.iter().for_each(|export| kept(export, report));
            if !pool.has("bands") {
                release_without_effect(pool, HELD_TO_RATES, report);
            }
        }
        Some(LawConfig::SelfTuning(_)) => {
            let kind = law.map_or(LawKind::SelfTuning, |law| law.law.kind());
            for export in exports {
                unreserved(export, kind, "give it its part of the first bands", report);
                contract_without_effect(export, report);
            }
            if kind == LawKind::QueueingModel && !pool.has("bands") {
                release_without_effect(pool, BY_WINDOW, report);
            }
        }
        None if is_unclear(pool) => {}
        _ => without_effect(pool, exports, report),
    }
}

/// More sets of requirements in a day than one in a quarter of an hour would be measured for longer than they
/// last.
const MOST_PERIODS: usize = 96;

/// Returns a pool's promises over the day, and the basis of their judgement. `None` where its law keeps no
/// contracts, or there are none.
pub(super) fn promised(
    section: &Section<'_>,
    pool: &PoolConfig,
    exports: &[NamedExport],
    beforehand: Option<KnownAnswers>,
    report: &mut FindingList<'_>,
) -> Option<PoolContracts> {
    let promises = exports.iter().filter_map(|export| {
        let ExportConfig { name, shares, .. } = &export.config;
        Some((name.clone(), *shares, export.contracts.clone()?))
    });
    let promises: Vec<_> = promises.collect();
    let contracts = pool.law.as_ref().map_or(ContractUse::None, |law| law.law.contract_use());
    if !contracts.keeps() || promises.is_empty() {
        if let Some(place) = section.key_span("admitted") {
            report.warning(&place, "`admitted` has no effect", "the pool keeps no contracts");
        }
        return None;
    }
    let parts = promises.iter().flat_map(|(.., daily)| daily.parts());
    let sizes: Vec<_> = parts.map(|(_, requirement)| requirement.size.is_some()).collect();
    let (sized, some_sized) = (sizes.iter().all(|said| *said), sizes.contains(&true));
    let basis = match (beforehand, &pool.backend) {
        (Some(known), _) if sized => JudgementBasis::Beforehand(known),
        (None, BackendConfig::Emulated { device, .. }) if sized && promises.len() <= MOST_TENANTS => {
            JudgementBasis::Model(StorageModel::new(device.clone(), pool.depth, pool.discipline))
        }
        _ => JudgementBasis::Nothing,
    };
    let contracts = PoolContracts { pool: pool.name.clone(), exports: promises, basis };
    let periods = contracts.periods();
    if periods.len() > MOST_PERIODS {
        let message =
            format!("contracts change at {} times of a day, and at most at {MOST_PERIODS}", periods.len());
        report.error_with_help(section.span(), message, "let several of them change at the same times");
    }
    if contracts.basis == JudgementBasis::Nothing {
        let place = section.key_span("admitted").unwrap_or_else(|| section.span().clone());
        if !sized && (some_sized || section.has("admitted")) {
            let help = "add `size` to each of its contracts";
            report.warning(
                &place,
                "contracts are not judged: of some it is not said how large requests are",
                help,
            );
        } else if contracts.exports.len() > MOST_TENANTS
            && matches!(pool.backend, BackendConfig::Emulated { .. })
        {
            let help =
                "measure them with `tidegate admit --json`, and name what it printed: `admitted = \"FILE\"`";
            let message =
                format!("contracts are not judged: of more than {MOST_TENANTS} it would take too long");
            report.warning(&place, message, help);
        } else if periods.len() > 1 {
            let help = "add `size` to each contract, and for storage that is no emulated one \
                        `admitted = \"FILE\"`, what `tidegate admit --live --json` printed";
            report.warning(
                &place,
                "contracts change over the day, and nothing judges whether they can be kept",
                help,
            );
        }
    }
    Some(contracts)
}

/// The answers of `tidegate admit --json` that a pool names.
pub(super) fn beforehand(section: &Section<'_>, context: &mut ReadContext<'_>) -> Option<KnownAnswers> {
    let given = section.text("admitted", &mut context.report)?;
    let path = context.path(given.value, &given.span);
    context.touched.push(PathUse::Admitted(tidegate_config::PlacedValue {
        value: path.clone(),
        span: given.span.clone(),
    }));
    if !context.reads {
        return None;
    }
    let text = match read_bounded(&path) {
        Ok(text) => text,
        // Said with all files that cannot be used.
        Err(_) => return None,
    };
    let wrong = |error| {
        let message = format!("{}: {error}", path.display());
        context.report.error_with_help(
            &given.span,
            message,
            "write what `tidegate admit --json` prints into it",
        );
    };
    KnownAnswers::parse(&text).map_err(wrong).ok()
}

/// Returns true if a pool without a law was to have one. The mistake in it is reported, and the law is
/// unknown.
fn is_unclear(pool: &Section<'_>) -> bool {
    match pool.value("law").and_then(|law| law.get_ref().as_str()) {
        Some(law) => law != "none",
        None => pool.has("law") || pool.has("target"),
    }
}

/// Under the integral law a contract is with one host.
fn alone(pool: &Section<'_>, report: &mut FindingList<'_>) {
    if pool.value("cluster").is_some_and(|cluster| cluster.get_ref().as_bool() == Some(true)) {
        let place = pool.key_span("cluster").unwrap_or_else(|| pool.span().clone());
        report.error_with_help(
            &place,
            "hosts cannot keep contracts together: each steers by the response times of its own exports \
                alone",
            "take `law = \"auto\"`, which keeps them; or remove `cluster`, and serve exports with contracts \
                from one host",
        );
    }
}

/// Checks that an export's promise can be kept, as far as its own keys tell.
fn kept(export: &NamedExport, report: &mut FindingList<'_>) {
    let ExportConfig { name, limit, protected, .. } = &export.config;
    let Some((contracts, place)) = export.contracts.as_ref().zip(export.places.contract.as_ref()) else {
        return;
    };
    let rates = contracts.parts().map(|(_, requirement)| requirement.given.contract.iops());
    let greatest = rates.max_by(|one, other| one.per_second().total_cmp(&other.per_second()));
    if let Some((limit, promised)) = limit.and_then(|limit| limit.iops).zip(greatest)
        && limit < promised
    {
        report.error(
            place,
            format!("the contract promises {promised}, and the limit lets no more than {limit} through"),
        );
    }
    if *protected {
        report.warning(
            place,
            format!("export `{name}` is protected: its contract holds it to nothing"),
            "it goes before all others, however much it asks for; the others leave it what is promised, and \
                what is late is \
             counted",
        );
    }
}

/// The laws that `release` is about.
const HELD_TO_RATES: &str = "only `law = \"integral\"` and `\"self-tuning\"`, and with `bands` `\"auto\"` \
    and `\"queueing-model\"`, hold exports to rates";

/// Laws that command rates do not know reservations.
fn unreserved(export: &NamedExport, law: LawKind, help: &str, report: &mut FindingList<'_>) {
    if let Some(place) = &export.places.reservation {
        let name = &export.config.name;
        report.error_with_help(
            place,
            format!("export `{name}` has a `reservation`, which `law = \"{law}\"` does not know"),
            help,
        );
    }
}

fn contract_without_effect(export: &NamedExport, report: &mut FindingList<'_>) {
    if let Some(place) = &export.places.contract {
        report.warning(
            place,
            "`contract` has no effect",
            "only `law = \"auto\"` and `\"integral\"` keep contracts",
        );
    }
}

fn release_without_effect(pool: &Section<'_>, why: &str, report: &mut FindingList<'_>) {
    if let Some(place) = pool.key_span("release") {
        report.warning(&place, "`release` has no effect", why);
    }
}

fn goals_without_effect(exports: &[NamedExport], report: &mut FindingList<'_>) {
    for place in exports.iter().filter_map(|export| export.places.goal.as_ref()) {
        report.warning(
            place,
            "`goal` has no effect",
            "only `law = \"auto\"`, `\"self-tuning\"` and `\"queueing-model\"` keep goals",
        );
    }
}

fn without_effect(pool: &Section<'_>, exports: &[NamedExport], report: &mut FindingList<'_>) {
    release_without_effect(pool, HELD_TO_RATES, report);
    exports.iter().for_each(|export| contract_without_effect(export, report));
    goals_without_effect(exports, report);
}
