//! The variant `literal`, close to figure 6, in the experiments of figures 7 to 10. It differs in its
//! directional forgetting, its normalised regressor and the lack of a controller exempt at random.

use super::regulation::{ON_CACHE, ON_DISK, as_steady, follows, moving, settles, under};
use super::sharing::{ONE, TWO, differentiates, isolated, isolates, table1};
use super::{CACHE, TriageLaw};
use crate::Experiment;

pub(super) fn literal() -> Experiment {
    let mut runs = Vec::new();
    let mut quantities = Vec::new();
    let storages = [
        ("fig. 7, cache", "fig. 7, cache, fixed gain", ON_CACHE),
        ("fig. 7, disk", "fig. 7, disk, fixed gain", ON_DISK),
    ];
    for (name, fixed, case) in storages {
        runs.push(under(name, case, TriageLaw::Literal(case.rate)));
        runs.push(under(fixed, case, TriageLaw::Fixed(case.gain)));
        quantities.extend(settles(name, case));
        quantities.push(as_steady(name, fixed, case));
    }
    runs.push(moving("fig. 8", (ON_DISK, ON_CACHE), 90.0, TriageLaw::Literal(CACHE)));
    quantities.extend(follows("fig. 8", ON_CACHE));
    runs.push(isolated("fig. 9", TriageLaw::Literal(ONE)));
    quantities.extend(isolates("fig. 9"));
    runs.push(table1("fig. 10", TWO, TriageLaw::Literal(TWO)));
    quantities.extend(differentiates("fig. 10"));
    Experiment { runs, quantities, ..Experiment::of("triage.literal") }
}
