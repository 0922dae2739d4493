//! Contracts and goals, and the laws that keep them: what fits together, and what has no effect.

use std::ops::Range;

use tidegate_config::{Report, Section};
use tidegate_control::{Law, LoopConfig};
use tidegate_gateway::ExportConfig;

use super::pool::NamedExport;

/// Where in an export things are that only one kind of law knows.
pub(super) struct Places {
    contract: Option<Range<usize>>,
    reservation: Option<Range<usize>>,
    goal: Option<Range<usize>>,
}

impl Places {
    pub(super) fn of(export: &Section<'_>) -> Self {
        Self {
            contract: export.key_span("contract"),
            reservation: export.key_span("reservation"),
            goal: export.key_span("goal"),
        }
    }
}

/// Checks a pool's exports and keys against its law.
pub(super) fn check(
    pool: &Section<'_>,
    law: Option<&LoopConfig>,
    exports: &[NamedExport],
    report: &mut Report<'_>,
) {
    match law.map(|law| law.law) {
        Some(Law::Integral(_)) => {
            alone(pool, report);
            exports.iter().for_each(|export| kept(export, report));
            goals_without_effect(exports, report);
        }
        Some(Law::SelfTuning(_)) => {
            for export in exports {
                unreserved(export, "self-tuning", "give it its part of the first bands", report);
                contract_without_effect(export, report);
            }
        }
        None if is_unclear(pool) => {}
        _ => without_effect(pool, exports, report),
    }
}

/// Whether a pool without a law was to have one: what is wrong with it is reported, and nobody knows what it would be.
fn is_unclear(pool: &Section<'_>) -> bool {
    match pool.value("law").and_then(|law| law.get_ref().as_str()) {
        Some(law) => law != "none",
        None => pool.has("law") || pool.has("target"),
    }
}

/// A contract is with one host.
fn alone(pool: &Section<'_>, report: &mut Report<'_>) {
    if pool.value("cluster").is_some_and(|cluster| cluster.get_ref().as_bool() == Some(true)) {
        let place = pool.key_span("cluster").unwrap_or_else(|| pool.span().clone());
        report.error_with_help(
            &place,
            "hosts cannot keep contracts together: each steers by the response times of its own exports alone",
            "remove `cluster`, or take another law; serve exports with contracts from one host",
        );
    }
}

/// Whether an export's promise can be kept, as far as its own keys tell.
fn kept(export: &NamedExport, report: &mut Report<'_>) {
    let ExportConfig { name, contract, limit, protected, .. } = &export.config;
    unreserved(export, "integral", "promise the rate: `contract = { iops = …, response_time = … }`", report);
    let Some((contract, place)) = contract.zip(export.places.contract.as_ref()) else { return };
    if let Some(limit) = limit.and_then(|limit| limit.iops)
        && limit < contract.iops()
    {
        report.error(
            place,
            format!(
                "the contract promises {}, and the limit lets no more than {limit} through",
                contract.iops()
            ),
        );
    }
    if *protected {
        report.warning(
            place,
            format!("export `{name}` is protected: its contract holds it to nothing"),
            "it goes before all others, however much it asks for; the others leave it what is promised, and what is late is \
             counted",
        );
    }
}

/// Laws that command rates do not know reservations.
fn unreserved(export: &NamedExport, law: &str, help: &str, report: &mut Report<'_>) {
    if let Some(place) = &export.places.reservation {
        let name = &export.config.name;
        report.error_with_help(
            place,
            format!("export `{name}` has a `reservation`, which `law = \"{law}\"` does not know"),
            help,
        );
    }
}

fn contract_without_effect(export: &NamedExport, report: &mut Report<'_>) {
    if let Some(place) = &export.places.contract {
        report.warning(place, "`contract` has no effect", "only `law = \"integral\"` keeps contracts");
    }
}

fn goals_without_effect(exports: &[NamedExport], report: &mut Report<'_>) {
    for place in exports.iter().filter_map(|export| export.places.goal.as_ref()) {
        report.warning(place, "`goal` has no effect", "only `law = \"self-tuning\"` keeps goals");
    }
}

fn without_effect(pool: &Section<'_>, exports: &[NamedExport], report: &mut Report<'_>) {
    let why = "only `law = \"integral\"` and `\"self-tuning\"` hold exports to rates";
    if let Some(place) = pool.key_span("release") {
        report.warning(&place, "`release` has no effect", why);
    }
    exports.iter().for_each(|export| contract_without_effect(export, report));
    goals_without_effect(exports, report);
}
