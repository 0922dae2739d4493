//! The response time that a consumer is to have, as it stands among the keys of an export or a virtual
//! machine.

use tidegate_units::Latency;

use crate::finding::FindingList;
use crate::law::warn_of_unit;
use crate::section::Section;

/// Reads the key `goal`; `None` without one, and when it is wrong (which is then reported).
pub fn read(of: &Section<'_>, report: &mut FindingList<'_>) -> Option<Latency> {
    let given = of.parsed::<Latency>("goal", report)?;
    if given.value == Latency::ZERO {
        // A law that steers to nothing finds no throughput low enough.
        report.error_with_help(
            &given.span,
            "`goal` must be more than nothing",
            "leave it out: then it is the target",
        );
        return None;
    }
    warn_of_unit(of, "goal", given.value, report);
    Some(given.value)
}
