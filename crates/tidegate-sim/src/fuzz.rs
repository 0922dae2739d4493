//! A fuzz target: it takes a scenario as a user might write it, and checks the invariants of all scenarios.

use tidegate_config::parse;
use toml::de::{DeTable, DeValue};

use crate::scenario::Scenario;

#[path = "../../../fuzz/findings.rs"]
mod findings;

/// The name under which findings refer to a text.
const NAME: &str = "scenario.toml";

/// The most copies of a template that are read here. More are read in the same way, and only take memory.
const MOST_COPIES: u64 = 50;

/// Separator between a scenario and the trace that it names.
const TRACE: &str = "\n=== trace\n";

/// Returns true if a template asks for more copies than are of use here.
fn has_many_copies(text: &str) -> bool {
    let mut report = tidegate_config::FindingList::new(NAME, text);
    let Some(document) = parse(text, &mut report) else { return false };
    let count = |table: &DeValue<'_>| {
        let DeValue::Integer(count) = table.as_table()?.get("count")?.get_ref() else { return None };
        u64::from_str_radix(count.as_str(), count.radix()).ok()
    };
    let templates = ["host", "vm"].into_iter().filter_map(|kind| document.get(kind)?.get_ref().as_table());
    let mut tables = templates.flat_map(DeTable::values);
    tables.any(|table| count(table.get_ref()).is_some_and(|count| count > MOST_COPIES))
}

/// A scenario, and the trace that it names.
pub fn scenario(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let (text, trace) = text.split_once(TRACE).unwrap_or((text, "0,R,0,512\n"));
    if has_many_copies(text) {
        return;
    }
    let mut files = |_: &str| Ok(trace.to_owned());
    match Scenario::read(NAME, text, &mut files) {
        Ok((scenario, warnings)) => {
            findings::check_warnings(text, &warnings);
            assert!(!scenario.duration.is_zero() && scenario.warmup < scenario.duration, "{scenario:?}");
            assert!(!scenario.vms.is_empty() && !scenario.arrays.is_empty(), "{scenario:?}");
            let again = Scenario::read(NAME, text, &mut files).map(|(again, _)| again);
            assert_eq!(again, Ok(scenario), "a text is read in two ways");
        }
        Err(invalid) => findings::check_errors(text, &invalid.0),
    }
    if let Err(invalid) = Scenario::parse(NAME, text) {
        findings::check_errors(text, &invalid.0);
    }
}

#[cfg(test)]
#[path = "../../../fuzz/replay.rs"]
mod replay;

#[cfg(test)]
mod corpus {
    use super::replay::replay;

    #[test]
    fn every_kept_input_keeps_the_invariants() {
        replay("scenario", super::scenario);
    }
}
