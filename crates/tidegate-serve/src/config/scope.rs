//! `scope` of a pool: one law for all exports, or one for each.

use tidegate_config::{FindingList, Section};
use tidegate_control::{LawKind, LoopConfig, SignalStatistic};
use tidegate_gateway::LawScope;
use tidegate_sched::BeyondLimit;
use tidegate_units::ResourceName;

use super::named_export::NamedExport;

/// Reads the scope.
pub(super) fn read(section: &Section<'_>, report: &mut FindingList<'_>) -> LawScope {
    let scopes = [("pool", LawScope::Pool), ("export", LawScope::Export)];
    section.choice("scope", &scopes, report).map_or(LawScope::Pool, |given| given.value)
}

/// Checks that the law can be one of each export.
pub(super) fn check(
    section: &Section<'_>,
    scope: LawScope,
    law: Option<&LoopConfig>,
    exports: &[NamedExport],
    report: &mut FindingList<'_>,
) {
    let Some(place) = section.key_span("scope").filter(|_| scope == LawScope::Export) else { return };
    let mut refuse = |why: &str, help: &str| {
        report.error_with_help(&place, format!("a law for each export {why}"), help);
    };
    match law {
        // A law that is written, and wrong, is reported as that.
        None if section.has("target") => {}
        None => refuse("needs a law", "add `law = \"window\"` and a `target`"),
        Some(law) if law.law.kind() != LawKind::Window => {
            refuse("is the law `window`", "say `law = \"window\"`, or `scope = \"pool\"`");
        }
        Some(law) if law.statistic != SignalStatistic::Mean => {
            refuse("steers by the mean", "say `statistic = \"mean\"`, or `scope = \"pool\"`");
        }
        Some(law) if law.knee.is_some() => {
            refuse("does not choose its set point", "say `set_point = 0.8`, or `scope = \"pool\"`");
        }
        Some(law) => {
            for export in exports {
                one(law, export, report);
            }
        }
    }
}

fn one(law: &LoopConfig, export: &NamedExport, report: &mut FindingList<'_>) {
    let name = &export.config.name;
    if let Err(error) = ResourceName::new(&format!("{}/{name}", law.resource)) {
        report.error(&export.name.span, format!("the name of the law of `{name}`, with its pool's: {error}"));
    }
    if export.config.limit.is_some_and(|limit| limit.beyond == BeyondLimit::Surplus) {
        report.error_with_help(
            &export.name.span,
            format!("the soft limit of `{name}` needs exports that share a window"),
            "say `soft = false`, or `scope = \"pool\"`",
        );
    }
}
