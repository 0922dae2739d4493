//! Shares with the mean of all hosts as the signal (§5.3.1, §5.3.2).

use tidegate_control::Smoothing;
use tidegate_sim::Scenario;
use tidegate_units::Latency;

use super::super::{Experiment, JudgedQuantity, NamedRun, ReportedFigure, TimeSpan, Tolerance};
use super::disks::fits_best;
use super::{TO_SET_POINT, close_to, embedded, mean, of, ratio, to_equilibrium, uncontrolled, usual_plots};
use crate::RunResult;

const UNCONTROLLED: TimeSpan = TimeSpan::new(60.0, 300.0);

pub(super) fn table3() -> Experiment {
    const SETTLED: TimeSpan = TimeSpan::new(200.0, 400.0);
    const PAPER: [(&str, f64, f64); 4] =
        [("host-1", 730.0, 34.0), ("host-2", 890.0, 29.0), ("host-3", 930.0, 29.0), ("host-4", 800.0, 33.0)];
    let parda = NamedRun::new("parda", embedded(include_str!("../../../../scenarios/parda/table3.toml")));
    Experiment {
        runs: vec![NamedRun { name: "uncontrolled".to_owned(), ..parda.clone() }.but(uncontrolled), parda],
        quantities: vec![
            JudgedQuantity::new(
                "largest window : smallest",
                Tolerance::AtMost(1.1),
                of("parda", |run| run.window_spread(SETTLED)),
            )
            .paper(1.0),
            JudgedQuantity { paper: Some(31.0 / 30.0), ..close_to(TO_SET_POINT, "parda", 30.0, SETTLED) },
            JudgedQuantity::new("throughput to uncontrolled", Tolerance::AtLeast(0.99), |trial| {
                ratio(
                    trial.run("parda")?.total_iops(SETTLED),
                    trial.run("uncontrolled")?.total_iops(UNCONTROLLED),
                )
            })
            .paper(0.997),
            JudgedQuantity::new(
                "throughput, middle two hosts : outer two",
                Tolerance::near(1.19, 10.0),
                of("parda", |run| {
                    let of = |host| run.iops(host, SETTLED);
                    ratio(mean([of("host-2"), of("host-3")]), mean([of("host-1"), of("host-4")]))
                }),
            )
            .paper(1.19),
        ],
        figures: PAPER
            .into_iter()
            .flat_map(|(host, iops, latency)| {
                [
                    ReportedFigure::new(
                        format!("throughput of {host}"),
                        "IO/s",
                        Some(iops),
                        of("parda", move |run| run.iops(host, SETTLED)),
                    ),
                    ReportedFigure::new(
                        format!("response time of {host}"),
                        "ms",
                        Some(latency),
                        of("parda", move |run| run.device_latency(host, SETTLED)),
                    ),
                ]
            })
            .chain([
                to_equilibrium("", "parda", 30.0, SETTLED),
                ReportedFigure::new(
                    "uncontrolled: throughput",
                    "IO/s",
                    Some(3360.0),
                    of("uncontrolled", |run| run.total_iops(UNCONTROLLED)),
                ),
                ReportedFigure::new(
                    "uncontrolled: response time",
                    "ms",
                    Some(37.0),
                    of("uncontrolled", |run| run.latency(UNCONTROLLED)),
                ),
                ReportedFigure::new(
                    "throughput",
                    "IO/s",
                    Some(3350.0),
                    of("parda", |run| run.total_iops(SETTLED)),
                ),
                ReportedFigure::new(
                    "response time",
                    "ms",
                    Some(31.0),
                    of("parda", |run| run.latency(SETTLED)),
                ),
            ])
            .collect(),
        plots: usual_plots("parda", 30.0),
        ..Experiment::of("parda.table3")
    }
}

/// The windows of hosts 2, 3 and 4 over host 1's, at shares 1:1:2:2.
const SHARES: [(&str, f64); 3] = [("host-2", 1.0), ("host-3", 2.0), ("host-4", 2.0)];

/// The stretch of fig. 8 that counts.
pub(super) const FIG8: TimeSpan = TimeSpan::new(250.0, 400.0);

/// Fig. 8: throughput of the hosts with 200 shares over that of those with 100.
pub(super) fn two_to_one(run: &RunResult) -> Option<f64> {
    let rate = |host| run.iops(host, FIG8);
    ratio(mean([rate("host-3"), rate("host-4")]), mean([rate("host-1"), rate("host-2")]))
}

/// Fig. 8 on disks in the order of service that fits the unregulated experiments best.
pub(super) fn fig8_scenario() -> Scenario {
    let mut scenario = embedded(include_str!("../../../../scenarios/parda/fig8.toml"));
    fits_best(&mut scenario);
    scenario
}

pub(super) fn fig8() -> Experiment {
    let parda = NamedRun::new("parda", fig8_scenario());
    let mut quantities: Vec<_> = SHARES
        .into_iter()
        .map(|(host, share)| {
            JudgedQuantity::new(
                format!("window of {host} : host-1"),
                Tolerance::near(share, 10.0),
                of("parda", move |run| ratio(run.window(host, FIG8), run.window("host-1", FIG8))),
            )
            .paper(share)
        })
        .collect();
    quantities.extend([
        close_to(TO_SET_POINT, "parda", 25.0, FIG8),
        JudgedQuantity::new(
            "throughput, hosts 3 and 4 : hosts 1 and 2",
            Tolerance::near(2.0, 20.0),
            of("parda", two_to_one),
        )
        .paper(2.0),
        JudgedQuantity::new("throughput to uncontrolled", Tolerance::AtLeast(0.97), |trial| {
            ratio(trial.run("parda")?.total_iops(FIG8), trial.run("uncontrolled")?.total_iops(UNCONTROLLED))
        }),
    ]);
    Experiment {
        runs: vec![NamedRun { name: "uncontrolled".to_owned(), ..parda.clone() }.but(uncontrolled), parda],
        quantities,
        figures: vec![
            to_equilibrium("", "parda", 25.0, FIG8),
            ReportedFigure::new("response time", "ms", Some(25.0), of("parda", |run| run.latency(FIG8))),
            ReportedFigure::new("Σβ/C", "ms", None, of("parda", |run| run.offset(FIG8))),
            ReportedFigure::new("throughput", "IO/s", None, of("parda", |run| run.total_iops(FIG8))),
            ReportedFigure::new(
                "uncontrolled: throughput",
                "IO/s",
                Some(3360.0),
                of("uncontrolled", |run| run.total_iops(UNCONTROLLED)),
            ),
        ],
        plots: usual_plots("parda", 25.0),
        ..Experiment::of("parda.fig8")
    }
}

fn past_weight(weight: f64) -> impl FnOnce(&mut Scenario) {
    move |scenario| {
        for law in scenario.hosts.iter_mut().filter_map(|host| host.law.as_mut()) {
            law.smoothing = Smoothing::PerInterval { past_weight: weight };
        }
    }
}

pub(super) fn alpha() -> Experiment {
    const BEFORE: TimeSpan = TimeSpan::new(130.0, 230.0);
    const AFTER: TimeSpan = TimeSpan::new(300.0, 500.0);
    let shares = NamedRun::new("fig. 8, past 0.002", fig8_scenario());
    let change = NamedRun::new(
        "fig. 11, past 0.002",
        embedded(include_str!("../../../../scenarios/parda/fig11.toml")),
    );
    let runs = vec![
        NamedRun { name: "fig. 8, past 0.998".to_owned(), ..shares.clone() }.but(past_weight(0.998)),
        NamedRun { name: "fig. 11, past 0.998".to_owned(), ..change.clone() }.but(past_weight(0.998)),
        shares,
        change,
    ];
    let adapted = |run: &RunResult| ratio(run.window("host-1", AFTER), run.window("host-1", BEFORE));
    let mut figures = Vec::new();
    for name in ["fig. 8, past 0.002", "fig. 8, past 0.998"] {
        figures.push(ReportedFigure::new(
            format!("{name}: response time to 𝓛"),
            "",
            None,
            of(name, |run| Some(run.latency(FIG8)? / 25.0)),
        ));
        figures.push(ReportedFigure::new(
            format!("{name}: window of host 3 : host 1"),
            "",
            Some(2.0),
            of(name, |run| ratio(run.window("host-3", FIG8), run.window("host-1", FIG8))),
        ));
    }
    for name in ["fig. 11, past 0.002", "fig. 11, past 0.998"] {
        figures.push(ReportedFigure::new(
            format!("{name}: window of host 1, after the change : before"),
            "",
            None,
            of(name, adapted),
        ));
        figures.push(ReportedFigure::new(
            format!("{name}: response time after the change to 𝓛"),
            "",
            None,
            of(name, |run| Some(run.latency_without("host-6", AFTER)? / 30.0)),
        ));
    }
    Experiment {
        runs,
        quantities: vec![
            close_to("past 0.002: response time of fig. 8 to 𝓛", "fig. 8, past 0.002", 25.0, FIG8),
            JudgedQuantity::new(
                "past 0.002: window of host 1 of fig. 11, after the change : before",
                Tolerance::Between(0.6, 0.85),
                of("fig. 11, past 0.002", adapted),
            ),
        ],
        figures,
        plots: vec![
            super::by_host(
                "Window, fig. 8, past 0.002",
                "I/Os",
                "fig. 8, past 0.002",
                Vec::new(),
                RunResult::window,
            ),
            super::by_host(
                "Window, fig. 8, past 0.998",
                "I/Os",
                "fig. 8, past 0.998",
                Vec::new(),
                RunResult::window,
            ),
            super::by_host(
                "Window, fig. 11, past 0.998",
                "I/Os",
                "fig. 11, past 0.998",
                Vec::new(),
                RunResult::window,
            ),
        ],
        ..Experiment::of("parda.alpha")
    }
}

pub(super) fn fig9() -> Experiment {
    const SIX: TimeSpan = TimeSpan::new(85.0, 145.0);
    const FIVE: TimeSpan = TimeSpan::new(165.0, 220.0);
    const FOUR: TimeSpan = TimeSpan::new(240.0, 310.0);
    let parda = NamedRun::new("30 ms", embedded(include_str!("../../../../scenarios/parda/fig9.toml")));
    let runs = vec![
        NamedRun { name: "uncontrolled".to_owned(), ..parda.clone() }.but(uncontrolled),
        NamedRun { name: "40 ms".to_owned(), ..parda.clone() }.but(|scenario| {
            for law in scenario.hosts.iter_mut().filter_map(|host| host.law.as_mut()) {
                law.target = Latency::from_millis(40);
            }
        }),
        parda,
    ];
    let grown = |span| of("30 ms", move |run| ratio(run.window("host-1", span), run.window("host-1", SIX)));
    Experiment {
        runs,
        quantities: vec![
            close_to("six hosts: response time to 𝓛", "30 ms", 30.0, SIX),
            JudgedQuantity::new("six hosts: throughput to uncontrolled", Tolerance::AtLeast(0.99), |trial| {
                ratio(trial.run("30 ms")?.total_iops(SIX), trial.run("uncontrolled")?.total_iops(SIX))
            })
            .paper(1.006),
            JudgedQuantity::new(
                "window of a host, five hosts : six",
                Tolerance::near(1.19, 10.0),
                grown(FIVE),
            ),
            JudgedQuantity::new(
                "window of a host, four hosts : six",
                Tolerance::near(1.47, 10.0),
                grown(FOUR),
            ),
            close_to("four hosts: response time to 𝓛", "30 ms", 30.0, FOUR),
            close_to("𝓛 = 40 ms: response time to 𝓛", "40 ms", 40.0, SIX),
            JudgedQuantity::new(
                "window of a host, 𝓛 = 40 ms : 30 ms",
                Tolerance::near(1.31, 10.0),
                |trial| {
                    ratio(
                        trial.run("40 ms")?.window("host-1", SIX),
                        trial.run("30 ms")?.window("host-1", SIX),
                    )
                },
            ),
        ],
        figures: vec![
            to_equilibrium("six hosts: ", "30 ms", 30.0, SIX),
            to_equilibrium("four hosts: ", "30 ms", 30.0, FOUR),
            to_equilibrium("𝓛 = 40 ms: ", "40 ms", 40.0, SIX),
            ReportedFigure::new(
                "six hosts: throughput",
                "IO/s",
                Some(3150.0),
                of("30 ms", |run| run.total_iops(SIX)),
            ),
            ReportedFigure::new(
                "six hosts: response time",
                "ms",
                Some(30.0),
                of("30 ms", |run| run.latency(SIX)),
            ),
            ReportedFigure::new(
                "six hosts, 𝓛 = 40 ms: response time",
                "ms",
                Some(40.0),
                of("40 ms", |run| run.latency(SIX)),
            ),
            ReportedFigure::new(
                "uncontrolled: throughput",
                "IO/s",
                Some(3130.0),
                of("uncontrolled", |run| run.total_iops(SIX)),
            ),
            ReportedFigure::new(
                "uncontrolled: response time",
                "ms",
                Some(60.0),
                of("uncontrolled", |run| run.latency(SIX)),
            ),
        ],
        plots: usual_plots("30 ms", 30.0),
        ..Experiment::of("parda.fig9")
    }
}
