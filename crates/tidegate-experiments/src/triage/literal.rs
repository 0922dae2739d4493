//! Figure 6 to the letter, the variant `literal`, in the experiments of figures 7 to 10.

use super::regulation::{
    ON_CACHE, ON_DISK, StorageCase, as_steady, follows, moving, settled, settles, to_goal, under,
};
use super::sharing::{ONE, TWO, differentiates, isolated, isolates, table1};
use super::{CACHE, TriageLaw};
use crate::measure::of;
use crate::{Experiment, ReportedFigure};

/// The default λ, of which the paper has no value.
const FORGETFUL: f64 = 0.7;

pub(super) fn literal() -> Experiment {
    let mut runs = Vec::new();
    let mut quantities = Vec::new();
    let mut figures = Vec::new();
    let storages = [
        (["fig. 7, cache", "fig. 7, cache, fixed gain", "fig. 7, cache, λ = 0.7"], ON_CACHE),
        (["fig. 7, disk", "fig. 7, disk, fixed gain", "fig. 7, disk, λ = 0.7"], ON_DISK),
    ];
    for ([name, fixed, forgets], case) in storages {
        runs.push(under(name, case, TriageLaw::literal(case.rate)));
        runs.push(under(fixed, case, TriageLaw::Fixed(case.gain)));
        quantities.extend(settles(name, case));
        quantities.push(as_steady(name, fixed, case));
        runs.push(under(forgets, case, TriageLaw::Literal { greatest: case.rate, forgetting: FORGETFUL }));
        figures.extend(beside(forgets, case));
    }
    runs.push(moving("fig. 8", (ON_DISK, ON_CACHE), 90.0, TriageLaw::literal(CACHE)));
    quantities.extend(follows("fig. 8", ON_CACHE));
    runs.push(isolated("fig. 9", TriageLaw::literal(ONE)));
    quantities.extend(isolates("fig. 9"));
    runs.push(table1("fig. 10", TWO, TriageLaw::literal(TWO)));
    quantities.extend(differentiates("fig. 10"));
    Experiment { runs, quantities, figures, ..Experiment::of("triage.literal") }
}

/// Returns the figures of figure 7 with another λ.
fn beside(name: &'static str, case: StorageCase) -> [ReportedFigure; 2] {
    [
        ReportedFigure::new(format!("{name}: settling time"), "s", None, settled(name, case)),
        ReportedFigure::new(
            format!("{name}: mean response time : goal, from 15 s on"),
            "",
            None,
            of(name, move |run| to_goal(run, case)),
        ),
    ]
}
