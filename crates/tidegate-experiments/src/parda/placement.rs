//! Reasons why a host must not steer by its own response times alone (§4.1).

use std::time::Duration;

use tidegate_sim::Scenario;

use super::super::{Experiment, JudgedQuantity, NamedRun, ReportedFigure, TimeSpan, Tolerance};
use super::{close_to, embedded, mean, of, ratio, to_equilibrium, uncontrolled, usual_plots};
use crate::RunResult;
use crate::trial::spread;

/// Uncontrolled, everything but the first minute counts: the array's cache and queues are full by then.
pub(super) const UNCONTROLLED: TimeSpan = TimeSpan::new(60.0, 300.0);

/// §4.1, disks in order: each host's requests per second and milliseconds without control.
pub(super) const IN_ORDER: [(&str, f64, f64); 4] =
    [("host-1", 780.0, 40.0), ("host-2", 910.0, 34.5), ("host-3", 920.0, 35.0), ("host-4", 800.0, 39.5)];

/// §4.1, one disk for all: a host's requests per second and milliseconds without control.
pub(super) const ON_ONE_DISK: (f64, f64) = (790.0, 39.0);

/// The stretch of the uncontrolled hosts on one disk that counts.
pub(super) const ONE_DISK: TimeSpan = TimeSpan::new(60.0, 400.0);

/// Four hosts without control, on disks in order.
pub(super) fn in_order() -> Scenario {
    let mut scenario = embedded(include_str!("../../../../scenarios/parda/fig3.toml"));
    uncontrolled(&mut scenario);
    scenario
}

/// Four hosts without control, on one disk.
pub(super) fn on_one_disk() -> Scenario {
    let mut scenario = embedded(include_str!("../../../../scenarios/parda/fig4.toml"));
    uncontrolled(&mut scenario);
    scenario.duration = Duration::from_secs_f64(ONE_DISK.to);
    scenario
}

/// The outer two virtual disks over the middle two.
fn outer_to_middle(run: &RunResult, span: TimeSpan) -> Option<f64> {
    ratio(
        mean([run.iops("host-1", span), run.iops("host-4", span)]),
        mean([run.iops("host-2", span), run.iops("host-3", span)]),
    )
}

pub(super) fn fig3() -> Experiment {
    const LAST: TimeSpan = TimeSpan::new(240.0, 300.0);
    let local = NamedRun::new("local", embedded(include_str!("../../../../scenarios/parda/fig3.toml")));
    Experiment {
        runs: vec![NamedRun::new("uncontrolled", in_order()), local],
        quantities: vec![
            JudgedQuantity::new(
                "uncontrolled: throughput, outer two hosts : middle two",
                Tolerance::near(0.863, 7.0),
                of("uncontrolled", |run| outer_to_middle(run, UNCONTROLLED)),
            )
            .paper(0.863),
            JudgedQuantity::new(
                "local: largest window : smallest",
                Tolerance::AtLeast(2.0),
                of("local", |run| run.window_spread(LAST)),
            ),
            JudgedQuantity::new(
                "local: smaller window of the middle two : larger of the outer two",
                Tolerance::AtLeast(1.5),
                of("local", |run| {
                    let middle = run.window("host-2", LAST)?.min(run.window("host-3", LAST)?);
                    let outer = run.window("host-1", LAST)?.max(run.window("host-4", LAST)?);
                    ratio(Some(middle), Some(outer))
                }),
            ),
        ],
        figures: IN_ORDER
            .into_iter()
            .flat_map(|(host, iops, latency)| {
                let throughput = of("uncontrolled", move |run| run.iops(host, UNCONTROLLED));
                let time = of("uncontrolled", move |run| run.device_latency(host, UNCONTROLLED));
                [
                    ReportedFigure::new(
                        format!("uncontrolled: throughput of {host}"),
                        "IO/s",
                        Some(iops),
                        throughput,
                    ),
                    ReportedFigure::new(
                        format!("uncontrolled: response time of {host}"),
                        "ms",
                        Some(latency),
                        time,
                    ),
                ]
            })
            .chain([ReportedFigure::new(
                "local: throughput, middle two hosts : outer two",
                "",
                None,
                of("local", |run| ratio(Some(1.0), outer_to_middle(run, LAST))),
            )])
            .collect(),
        plots: usual_plots("local", 30.0),
        ..Experiment::of("parda.fig3")
    }
}

pub(super) fn fig4() -> Experiment {
    const SETTLED: TimeSpan = TimeSpan::new(200.0, 1_400.0);
    let local = NamedRun::new("local", embedded(include_str!("../../../../scenarios/parda/fig4.toml")));
    Experiment {
        runs: vec![NamedRun::new("uncontrolled", on_one_disk()), local],
        quantities: vec![
            JudgedQuantity::new(
                "uncontrolled: throughput, greatest : least",
                Tolerance::AtMost(1.05),
                of("uncontrolled", |run| {
                    spread(run.hosts().into_iter().map(|host| run.iops(host, ONE_DISK)))
                }),
            )
            .paper(1.0),
            JudgedQuantity::new(
                "local: largest window : smallest",
                Tolerance::AtMost(1.1),
                of("local", |run| run.window_spread(SETTLED)),
            ),
            close_to("local: response time to 𝓛", "local", 30.0, SETTLED),
            JudgedQuantity::new(
                "local: windows to the 32 that each host has outstanding",
                Tolerance::AtMost(0.95),
                of("local", |run| {
                    let windows =
                        ["host-1", "host-2", "host-3", "host-4"].map(|host| run.window(host, SETTLED));
                    Some(mean(windows)? / 32.0)
                }),
            ),
        ],
        figures: vec![
            ReportedFigure::new(
                "uncontrolled: throughput of a host",
                "IO/s",
                Some(ON_ONE_DISK.0),
                of("uncontrolled", |run| Some(run.total_iops(ONE_DISK)? / 4.0)),
            ),
            ReportedFigure::new(
                "uncontrolled: response time",
                "ms",
                Some(ON_ONE_DISK.1),
                of("uncontrolled", |run| run.latency(ONE_DISK)),
            ),
            to_equilibrium("local: ", "local", 30.0, SETTLED),
            ReportedFigure::new(
                "local: response time",
                "ms",
                Some(30.0),
                of("local", |run| run.latency(SETTLED)),
            ),
        ],
        plots: usual_plots("local", 30.0),
        ..Experiment::of("parda.fig4")
    }
}
