//! Rehearsals of simulated dry runs, against the same time with the law in force.

use crate::trial::{CACHE, POOLED, QUEUE, SATURATED, TrialCase, trial};
use tidegate_rehearsal::{DemandKind, Estimate, Refusal, RehearsalOutcome};

/// Design seed, and the simulated time in seconds.
const SEED: u64 = 1_000_800;
const SECONDS: u64 = 600;

/// The widest margin between the range of the runs and what then happened, in parts of all seconds.
const MARGIN: f64 = 0.05;

fn contains(range: &Estimate, value: f64, margin: f64) -> bool {
    range.low - margin <= value && value <= range.high + margin
}

/// Rehearses a case, and compares with what then happened.
fn agrees(case: &TrialCase, open: &str, closed: &str) {
    let outcome = trial(case, SECONDS, SEED);
    let RehearsalOutcome::Predicted(prediction) = &outcome.report.outcome else {
        panic!("{}: {:?}", case.name, outcome.report)
    };
    let above = prediction.above_fraction;
    assert!(outcome.report.measured.above_fraction > 0.2, "{}: nothing to improve", case.name);
    assert!(contains(&above, outcome.actual_above_fraction, MARGIN), "{}: {above:?}", case.name);
    for consumer in &prediction.consumers {
        let actual = outcome.actual_throughput.iter().find(|(name, _)| *name == consumer.name.as_str());
        let actual = actual.unwrap().1;
        assert!(contains(&consumer.throughput, actual, 0.1), "{consumer:?} for {actual}");
        if consumer.name.as_str() == open {
            assert_eq!(consumer.demand, DemandKind::Open, "{consumer:?}");
        }
        if consumer.name.as_str() == closed {
            assert_eq!(consumer.demand, DemandKind::Closed, "{consumer:?}");
        }
    }
}

#[test]
fn a_queue_with_bursts_is_foretold() {
    agrees(&QUEUE, "database", "backup-1");
}

#[test]
fn a_pool_without_protected_consumers_is_foretold() {
    agrees(&POOLED, "small", "batch");
}

fn refusals(case: &TrialCase) -> Vec<Refusal> {
    match trial(case, SECONDS, SEED).report.outcome {
        RehearsalOutcome::Refused(reasons) => reasons,
        RehearsalOutcome::Predicted(prediction) => panic!("{}: {prediction:?}", case.name),
    }
}

#[test]
fn a_cache_that_takes_the_writes_is_refused() {
    let reasons = refusals(&CACHE);
    assert!(reasons.iter().any(|reason| matches!(reason, Refusal::WriteCache { .. })), "{reasons:?}");
}

#[test]
fn one_load_all_the_time_is_refused() {
    let reasons = refusals(&SATURATED);
    assert!(reasons.iter().any(|reason| matches!(reason, Refusal::NoRange { .. })), "{reasons:?}");
}
