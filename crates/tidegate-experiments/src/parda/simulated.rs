//! The paper's own simulation (§3.2): one array with exponential service times, and the equilibrium that eq.
//! 3 predicts.

use tidegate_units::Latency;

use super::super::{Experiment, JudgedQuantity, NamedRun, ReportedFigure, TimeSpan, Tolerance};
use super::{by_host, close_to, embedded, of, ratio, to_equilibrium};
use crate::RunResult;

pub(super) fn fig2() -> Experiment {
    const FIRST: TimeSpan = TimeSpan::new(80.0, 100.0);
    const SECOND: TimeSpan = TimeSpan::new(180.0, 200.0);
    let window = |over: &'static str, span| {
        of("fig2", move |run| ratio(run.window(over, span), run.window("host-1", span)))
    };
    Experiment {
        runs: vec![NamedRun::new("fig2", embedded(include_str!("../../../../scenarios/parda/fig2.toml")))],
        quantities: vec![
            JudgedQuantity::new(
                "window of host 2 : host 1, at 400 IO/s",
                Tolerance::near(2.0, 15.0),
                window("host-2", FIRST),
            )
            .paper(2.0),
            JudgedQuantity::new(
                "window of host 3 : host 1, at 400 IO/s",
                Tolerance::near(3.0, 15.0),
                window("host-3", FIRST),
            )
            .paper(3.0),
            JudgedQuantity::new(
                "window of host 2 : host 1, at 100 IO/s",
                Tolerance::near(2.0, 10.0),
                window("host-2", SECOND),
            )
            .paper(2.0),
            JudgedQuantity::new(
                "window of host 3 : host 1, at 100 IO/s",
                Tolerance::near(3.0, 10.0),
                window("host-3", SECOND),
            )
            .paper(3.0),
            close_to("response time to 𝓛, at 400 IO/s", "fig2", 200.0, FIRST),
            close_to("response time to 𝓛, at 100 IO/s", "fig2", 200.0, SECOND),
            JudgedQuantity::new(
                "throughput to capacity, at 400 IO/s",
                Tolerance::near(1.0, 3.0),
                of("fig2", |run| Some(run.total_iops(FIRST)? / 400.0)),
            ),
            JudgedQuantity::new(
                "throughput to capacity, at 100 IO/s",
                Tolerance::near(1.0, 5.0),
                of("fig2", |run| Some(run.total_iops(SECOND)? / 100.0)),
            ),
        ],
        figures: vec![
            ReportedFigure::new(
                "response time at 400 IO/s",
                "ms",
                Some(200.0),
                of("fig2", |run| run.latency(FIRST)),
            ),
            ReportedFigure::new(
                "response time at 100 IO/s",
                "ms",
                Some(200.0),
                of("fig2", |run| run.latency(SECOND)),
            ),
            to_equilibrium("at 400 IO/s: ", "fig2", 200.0, FIRST),
            to_equilibrium("at 100 IO/s: ", "fig2", 200.0, SECOND),
            ReportedFigure::new("Σβ/C at 400 IO/s", "ms", None, of("fig2", |run| run.offset(FIRST))),
            ReportedFigure::new("Σβ/C at 100 IO/s", "ms", None, of("fig2", |run| run.offset(SECOND))),
        ],
        plots: vec![
            by_host("Throughput", "IO/s", "fig2", Vec::new(), RunResult::iops),
            by_host("Window", "I/Os", "fig2", Vec::new(), RunResult::window),
            by_host("Response time", "ms", "fig2", vec![("𝓛", 200.0)], RunResult::device_latency),
        ],
        ..Experiment::of("parda.fig2")
    }
}

pub(super) fn threshold() -> Experiment {
    const SETTLED: TimeSpan = TimeSpan::new(300.0, 400.0);
    const RUNS: [(&str, u64); 3] = [("100 ms", 100), ("200 ms", 200), ("300 ms", 300)];
    let scenario = embedded(include_str!("../../../../scenarios/parda/threshold.toml"));
    let run = |(name, millis): (&str, u64)| {
        NamedRun::new(name, scenario.clone()).but(|scenario| {
            for law in scenario.hosts.iter_mut().filter_map(|host| host.law.as_mut()) {
                law.target = Latency::from_millis(millis);
            }
        })
    };
    let mut quantities = Vec::new();
    let mut figures = Vec::new();
    for (name, millis) in RUNS {
        let title = format!("response time to 𝓛, at {name}");
        quantities.push(close_to(title, name, millis as f64, SETTLED));
        figures.push(to_equilibrium(&format!("at {name}: "), name, millis as f64, SETTLED));
        for (host, share) in [("host-2", 2.0), ("host-3", 3.0)] {
            quantities.push(
                JudgedQuantity::new(
                    format!("window of {host} : host-1, at {name}"),
                    Tolerance::near(share, 10.0),
                    of(name, move |run| ratio(run.window(host, SETTLED), run.window("host-1", SETTLED))),
                )
                .paper(share),
            );
        }
        figures.push(ReportedFigure::new(
            format!("response time at {name}"),
            "ms",
            Some(millis as f64),
            of(name, |run| run.latency(SETTLED)),
        ));
    }
    let windows = |run: &RunResult| {
        Some(
            run.window("host-1", SETTLED)?
                + run.window("host-2", SETTLED)?
                + run.window("host-3", SETTLED)?,
        )
    };
    for (name, grown) in [("200 ms", 86.0 / 46.0), ("300 ms", 126.0 / 46.0)] {
        quantities.push(JudgedQuantity::new(
            format!("all windows at {name} : at 100 ms"),
            Tolerance::near(grown, 10.0),
            move |trial| ratio(windows(trial.run(name)?), windows(trial.run("100 ms")?)),
        ));
    }
    Experiment {
        runs: RUNS.into_iter().map(run).collect(),
        quantities,
        figures,
        plots: RUNS
            .into_iter()
            .map(|(name, _)| {
                by_host(&format!("Window, 𝓛 = {name}"), "I/Os", name, Vec::new(), RunResult::window)
            })
            .collect(),
        ..Experiment::of("parda.threshold")
    }
}

pub(super) fn eq3() -> Experiment {
    const SETTLED: TimeSpan = TimeSpan::new(200.0, 400.0);
    /// β + β·C·𝓛/Σβ for β = 1, 1, 2, 4, C = 1000 IO/s, 𝓛 = 50 ms.
    const WINDOWS: [(&str, f64); 4] =
        [("host-1", 7.25), ("host-2", 7.25), ("host-3", 14.5), ("host-4", 29.0)];
    let mut quantities: Vec<_> = WINDOWS
        .into_iter()
        .map(|(host, window)| {
            JudgedQuantity::new(
                format!("window of {host}"),
                Tolerance::near(window, 5.0),
                of("eq3", move |run| run.window(host, SETTLED)),
            )
            .paper(window)
            .unit("I/Os")
        })
        .collect();
    quantities.push(
        JudgedQuantity::new(
            "response time",
            Tolerance::near(58.0, 5.0),
            of("eq3", |run| run.latency(SETTLED)),
        )
        .paper(58.0)
        .unit("ms"),
    );
    for (host, share) in [("host-3", 2.0), ("host-4", 4.0)] {
        quantities.push(
            JudgedQuantity::new(
                format!("throughput of {host} : host-1"),
                Tolerance::near(share, 5.0),
                of("eq3", move |run| ratio(run.iops(host, SETTLED), run.iops("host-1", SETTLED))),
            )
            .paper(share),
        );
    }
    Experiment {
        runs: vec![NamedRun::new("eq3", embedded(include_str!("../../../../scenarios/parda/eq3.toml")))],
        quantities,
        plots: vec![by_host("Window", "I/Os", "eq3", Vec::new(), RunResult::window)],
        ..Experiment::of("parda.eq3")
    }
}
