//! Alternative readings where the paper leaves a choice open.

use tidegate_control::{Contract, ContractStatistic};
use tidegate_sim::Scenario;
use tidegate_units::Latency;

use super::super::{Experiment, JudgedQuantity, NamedRun, ReportedFigure, TimeSpan, Tolerance};
use super::{both, iops, late, law, never, of, workload};

fn alone() -> Scenario {
    let mut scenario = both();
    "lee, w1 alone".clone_into(&mut scenario.name);
    never(workload(&mut scenario, "w2"));
    scenario
}

fn by_the_mean(scenario: &mut Scenario) {
    law(scenario).statistic = ContractStatistic::Mean;
}

/// Compares two readings of RT_i(k): the 95th percentile of a control period and its mean.
pub(super) fn statistic() -> Experiment {
    let late_of = |run: &'static str, consumer: &'static str| of(run, move |run| late(run, consumer));
    Experiment {
        runs: vec![
            NamedRun::new("alone, percentile", alone()),
            NamedRun::new("alone, mean", alone()).but(by_the_mean),
            NamedRun::new("both, percentile", both()),
            NamedRun::new("both, mean", both()).but(by_the_mean),
        ],
        quantities: vec![
            JudgedQuantity::new(
                "alone, mean: requests of w1 that are late",
                Tolerance::AtLeast(15.0),
                late_of("alone, mean", "w1"),
            )
            .unit("%"),
            JudgedQuantity::new(
                "both, mean: requests of w1 that are late",
                Tolerance::AtLeast(9.0),
                late_of("both, mean", "w1"),
            )
            .unit("%"),
        ],
        figures: vec![
            ReportedFigure::new(
                "alone, percentile: requests of w1 that are late",
                "%",
                Some(5.0),
                late_of("alone, percentile", "w1"),
            ),
            ReportedFigure::new(
                "both, percentile: requests of w1 that are late",
                "%",
                Some(3.0),
                late_of("both, percentile", "w1"),
            ),
            ReportedFigure::new(
                "both, percentile: requests of w2 that are late",
                "%",
                Some(3.0),
                late_of("both, percentile", "w2"),
            ),
            ReportedFigure::new(
                "alone, mean: requests per second",
                "IO/s",
                Some(72.0),
                of("alone, mean", |run| iops(run, "w1", TimeSpan::new(0.0, 60.0))),
            ),
        ],
        ..Experiment::of("lee.statistic")
    }
}

/// With the references that our own admission control finds on this disk (`lee.table3`).
pub(super) fn references() -> Experiment {
    const OURS_MS: [(&str, f64); 2] = [("w1", 27.7), ("w2", 29.8)];
    let ours = |scenario: &mut Scenario| {
        for (vm, (_, expected)) in scenario.vms.iter_mut().zip(OURS_MS) {
            let contract = vm.contract.map(|contract| {
                let expected = Latency::from_secs_f64(expected / 1e3);
                Contract::new(contract.iops(), contract.response_time(), expected)
            });
            vm.contract = contract.transpose().expect("they are below what is promised");
        }
    };
    let run = |name, scenario| NamedRun::new(name, scenario).but(ours);
    Experiment {
        runs: vec![run("alone", alone()), run("both", both())],
        quantities: vec![
            JudgedQuantity::new(
                "alone: requests of w1 that are late",
                Tolerance::AtMost(5.0),
                of("alone", |run| late(run, "w1")),
            )
            .paper(5.0)
            .unit("%"),
            JudgedQuantity::new(
                "both: requests of w1 that are late",
                Tolerance::AtMost(3.0),
                of("both", |run| late(run, "w1")),
            )
            .paper(3.0)
            .unit("%"),
            JudgedQuantity::new(
                "both: requests of w2 that are late",
                Tolerance::AtMost(3.0),
                of("both", |run| late(run, "w2")),
            )
            .paper(3.0)
            .unit("%"),
            JudgedQuantity::new(
                "alone: requests per second",
                Tolerance::near(72.0, 10.0),
                of("alone", |run| iops(run, "w1", TimeSpan::new(0.0, 60.0))),
            )
            .paper(72.0)
            .unit("IO/s"),
        ],
        ..Experiment::of("lee.references")
    }
}
