//! Figure 6 to the letter, in the experiments of figures 7 to 10.

use super::regulation::{ON_CACHE, ON_DISK, as_steady, follows, moving, settles, under};
use super::sharing::{ONE, TWO, differentiates, isolated, isolates, table1};
use super::{CACHE, Law};
use crate::Experiment;

pub(super) fn literal() -> Experiment {
    let mut runs = Vec::new();
    let mut quantities = Vec::new();
    let storages = [
        ("fig. 7, cache", "fig. 7, cache, fixed gain", ON_CACHE),
        ("fig. 7, disk", "fig. 7, disk, fixed gain", ON_DISK),
    ];
    for (name, fixed, case) in storages {
        runs.push(under(name, case, Law::Literal(case.rate)));
        runs.push(under(fixed, case, Law::Fixed(case.gain)));
        quantities.extend(settles(name, case));
        quantities.push(as_steady(name, fixed, case));
    }
    runs.push(moving("fig. 8", (ON_DISK, ON_CACHE), 90.0, Law::Literal(CACHE)));
    quantities.extend(follows("fig. 8", ON_CACHE));
    runs.push(isolated("fig. 9", Law::Literal(ONE)));
    quantities.extend(isolates("fig. 9"));
    runs.push(table1("fig. 10", TWO, Law::Literal(TWO)));
    quantities.extend(differentiates("fig. 10"));
    Experiment {
        id: "triage.literal",
        title: "Figure 6 to the letter, in the experiments of figures 7 to 10",
        paper: "What figures 7 to 10 claim, all of the controller that figure 6 describes.",
        setup: "The variant `literal`, in the same set-ups. λ and u_max are lost with the figures: λ is our default, u_max what the storage can do.",
        runs,
        quantities,
        figures: Vec::new(),
        plots: Vec::new(),
    }
}
