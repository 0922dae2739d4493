//! Differences from the paper that the array's order of service explains: figures 8 and 9 and table 3 on the
//! same disks with another order.

use tidegate_device::{DeviceConfig, QueueConfig};
use tidegate_sim::Scenario;
use tidegate_units::Latency;

use super::super::{Experiment, JudgedQuantity, NamedRun, ReportedFigure, TimeSpan, Tolerance};
use super::fairness::two_to_one;
use super::{embedded, of, ratio, uncontrolled};
use crate::{RunResult, SeedTrial};

const DISKS: f64 = 10.0;

const FIG9: TimeSpan = TimeSpan::new(85.0, 145.0);
const TABLE3: TimeSpan = TimeSpan::new(200.0, 400.0);

/// In order of arrival, as no array serves.
fn arrival(scenario: &mut Scenario) {
    order(scenario, &QueueConfig::Fifo);
}

/// Nearest first among three instead of five: the number that fits the paper's three unregulated experiments
/// with reads together best. The preset was fitted to one of them, which shows how placement matters.
fn three(scenario: &mut Scenario) {
    order(scenario, &QueueConfig::ShortestSeek { depth: 3, max_age: Latency::from_millis(500) });
}

fn order(scenario: &mut Scenario, queue: &QueueConfig) {
    for array in &mut scenario.arrays {
        if let DeviceConfig::Array(config) = &mut array.device {
            config.disk.queue = queue.clone();
        }
    }
}

fn kept(
    under: &'static str,
    without: &'static str,
    span: TimeSpan,
) -> impl Fn(&SeedTrial<'_>) -> Option<f64> + Send + Sync {
    move |trial| ratio(trial.run(under)?.total_iops(span), trial.run(without)?.total_iops(span))
}

fn cost(
    what: &str,
    paper: f64,
    under: &'static str,
    without: &'static str,
    span: TimeSpan,
) -> ReportedFigure {
    ReportedFigure::new(
        format!("{what}: throughput to uncontrolled"),
        "",
        Some(paper),
        kept(under, without, span),
    )
}

/// Requests at the array, by Little's law, and the part of ten disks that is busy with them when they lie
/// anywhere.
fn busy(run: &RunResult, span: TimeSpan) -> Option<f64> {
    let requests = run.total_iops(span)? * run.latency(span)? / 1e3;
    Some(requests / (requests + DISKS - 1.0))
}

fn beside_closed(
    under: &'static str,
    without: &'static str,
    span: TimeSpan,
) -> impl Fn(&SeedTrial<'_>) -> Option<f64> + Send + Sync {
    let kept = kept(under, without, span);
    move |trial| {
        let expected = ratio(busy(trial.run(under)?, span), busy(trial.run(without)?, span));
        ratio(kept(trial), expected)
    }
}

pub(super) fn order_of_service() -> Experiment {
    let fig8 = embedded(include_str!("../../../../scenarios/parda/fig8.toml"));
    let fig9 = embedded(include_str!("../../../../scenarios/parda/fig9.toml"));
    let table3 = embedded(include_str!("../../../../scenarios/parda/table3.toml"));
    let run = |name, scenario: &Scenario, change: fn(&mut Scenario)| {
        NamedRun::new(name, scenario.clone()).but(change)
    };
    Experiment {
        runs: vec![
            run("fig. 8, arrival", &fig8, arrival),
            run("fig. 8, three", &fig8, three),
            run("fig. 9, arrival", &fig9, arrival),
            run("fig. 9, three", &fig9, three),
            run("fig. 9, arrival, uncontrolled", &fig9, arrival).but(uncontrolled),
            run("fig. 9, three, uncontrolled", &fig9, three).but(uncontrolled),
            run("table 3, arrival", &table3, arrival),
            run("table 3, three", &table3, three),
            run("table 3, arrival, uncontrolled", &table3, arrival).but(uncontrolled),
            run("table 3, three, uncontrolled", &table3, three).but(uncontrolled),
        ],
        quantities: vec![
            JudgedQuantity::new(
                "arrival, fig. 8: throughput, hosts 3 and 4 : hosts 1 and 2",
                Tolerance::near(2.0, 7.0),
                of("fig. 8, arrival", two_to_one),
            )
            .paper(2.0),
            JudgedQuantity::new(
                "arrival, table 3: throughput to uncontrolled, to (N/(N + 9)) : (N/(N + 9))",
                Tolerance::near(1.0, 1.0),
                beside_closed("table 3, arrival", "table 3, arrival, uncontrolled", TABLE3),
            ),
            JudgedQuantity::new(
                "arrival, fig. 9: throughput to uncontrolled, to (N/(N + 9)) : (N/(N + 9))",
                Tolerance::near(1.0, 1.0),
                beside_closed("fig. 9, arrival", "fig. 9, arrival, uncontrolled", FIG9),
            ),
        ],
        figures: vec![
            cost("arrival, table 3", 0.997, "table 3, arrival", "table 3, arrival, uncontrolled", TABLE3),
            cost("arrival, fig. 9", 1.006, "fig. 9, arrival", "fig. 9, arrival, uncontrolled", FIG9),
            ReportedFigure::new(
                "nearest of three, fig. 8: throughput, hosts 3 and 4 : hosts 1 and 2",
                "",
                Some(2.0),
                of("fig. 8, three", two_to_one),
            ),
            cost(
                "nearest of three, table 3",
                0.997,
                "table 3, three",
                "table 3, three, uncontrolled",
                TABLE3,
            ),
            cost("nearest of three, fig. 9", 1.006, "fig. 9, three", "fig. 9, three, uncontrolled", FIG9),
        ],
        ..Experiment::of("parda.order")
    }
}
