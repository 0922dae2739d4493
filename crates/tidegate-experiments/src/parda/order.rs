//! Differences from the paper that the array's order of service explains: figures 8 and 9 and table 3 on the
//! same disks with another order.

use tidegate_device::QueueConfig;
use tidegate_sim::Scenario;

use super::super::{Experiment, JudgedQuantity, NamedRun, ReportedFigure, TimeSpan, Tolerance};
use super::disks::{fits_best, order};
use super::fairness::two_to_one;
use super::load::{MEASURED, TABLE4};
use super::placement::{IN_ORDER, ON_ONE_DISK, ONE_DISK, UNCONTROLLED, in_order, on_one_disk};
use super::{embedded, of, ratio, uncontrolled};
use crate::{RunResult, SeedTrial};

const DISKS: f64 = 10.0;

const FIG9: TimeSpan = TimeSpan::new(85.0, 145.0);
const TABLE3: TimeSpan = TimeSpan::new(200.0, 400.0);

/// In order of arrival, as no array serves.
fn arrival(scenario: &mut Scenario) {
    order(scenario, &QueueConfig::Fifo);
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

/// The deviation from the paper's three unregulated experiments with reads: throughput and response time of
/// each host, root of the mean square.
fn misfit(order: &'static str, six_hosts: &'static str) -> ReportedFigure {
    ReportedFigure::new(
        format!("nearest of {order}: deviation from the unregulated experiments"),
        "%",
        None,
        move |trial| {
            let hosts = |run: &str, span, paper: &[(&str, f64, f64)]| {
                let run = trial.run(run)?;
                let deviation = |&(host, iops, latency): &(&str, f64, f64)| {
                    let iops = run.iops(host, span)? / iops;
                    Some([iops - 1.0, run.device_latency(host, span)? / latency - 1.0])
                };
                paper.iter().map(deviation).collect::<Option<Vec<_>>>()
            };
            let (iops, latency) = ON_ONE_DISK;
            let one_disk = IN_ORDER.map(|(host, _, _)| (host, iops, latency));
            let all = [
                hosts(&format!("§4.1, {order}, in order"), UNCONTROLLED, &IN_ORDER)?,
                hosts(&format!("§4.1, {order}, one disk"), ONE_DISK, &one_disk)?,
                hosts(six_hosts, MEASURED, &TABLE4)?,
            ];
            let squares: Vec<f64> = all.iter().flatten().flatten().map(|part| part * part).collect();
            Some((squares.iter().sum::<f64>() / squares.len() as f64).sqrt() * 100.0)
        },
    )
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
            NamedRun::new("fig. 8, five", fig8.clone()),
            run("fig. 9, arrival", &fig9, arrival),
            run("fig. 9, three", &fig9, fits_best),
            run("fig. 9, arrival, uncontrolled", &fig9, arrival).but(uncontrolled),
            run("fig. 9, three, uncontrolled", &fig9, fits_best).but(uncontrolled),
            NamedRun::new("fig. 9, five, uncontrolled", fig9.clone()).but(uncontrolled),
            NamedRun::new("§4.1, five, in order", in_order()),
            run("§4.1, three, in order", &in_order(), fits_best),
            NamedRun::new("§4.1, five, one disk", on_one_disk()),
            run("§4.1, three, one disk", &on_one_disk(), fits_best),
            run("table 3, arrival", &table3, arrival),
            run("table 3, three", &table3, fits_best),
            run("table 3, arrival, uncontrolled", &table3, arrival).but(uncontrolled),
            run("table 3, three, uncontrolled", &table3, fits_best).but(uncontrolled),
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
                "nearest of five, fig. 8: throughput, hosts 3 and 4 : hosts 1 and 2",
                "",
                Some(2.0),
                of("fig. 8, five", two_to_one),
            ),
            cost(
                "nearest of three, table 3",
                0.997,
                "table 3, three",
                "table 3, three, uncontrolled",
                TABLE3,
            ),
            cost("nearest of three, fig. 9", 1.006, "fig. 9, three", "fig. 9, three, uncontrolled", FIG9),
            misfit("five", "fig. 9, five, uncontrolled"),
            misfit("three", "fig. 9, three, uncontrolled"),
        ],
        ..Experiment::of("parda.order")
    }
}
