//! The paper's own simulation (§3.2): one array with exponential service times, and the equilibrium that eq.
//! 3 predicts.

use tidegate_units::Latency;

use super::super::{Accepts, Experiment, Figure, Quantity, Run, Span};
use super::{by_host, embedded, of, ratio};
use crate::RunResult;

const NEAR_EQUILIBRIUM: &str =
    "the law settles at 𝓛 + Σβ/C (eqs. 2 and 3), not at 𝓛; 10 % for the noise of an exponential server";

pub(super) fn fig2() -> Experiment {
    const FIRST: Span = Span::new(80.0, 100.0);
    const SECOND: Span = Span::new(180.0, 200.0);
    const STILL_MOVING: &str = "windows begin equal; after 90 s eq. 2 without noise has come to 1.86 and 2.71 of 2 and 3, \
        which leaves 5 % for noise";
    let window = |over: &'static str, span| {
        of("fig2", move |run| ratio(run.window(over, span), run.window("host-1", span)))
    };
    Experiment {
        id: "parda.fig2",
        title: "Three hosts at 1:2:3 on a simulated array whose capacity falls from 400 to 100 IO/s",
        paper: "Three hosts at 1:2:3, 𝓛 = 200 ms, exponential service; capacity 400 req/s, then 100 req/s from half of 200 s \
                on. The system operates close to 𝓛.",
        setup: "The same, with 192 requests outstanding on each host, so that every window is always full. The text gives no \
                control interval for the simulation: 2 s, as on the real hosts. K = 1 per 100 shares: β is 1, 2 and 3. \
                `w_max` is 128, so that no bound takes part.",
        runs: vec![Run::new("fig2", embedded(include_str!("../../../../scenarios/parda/fig2.toml")))],
        quantities: vec![
            Quantity::new(
                "window of host 2 : host 1, at 400 IO/s",
                Accepts::near(2.0, 15.0),
                STILL_MOVING,
                window("host-2", FIRST),
            )
            .paper(2.0),
            Quantity::new(
                "window of host 3 : host 1, at 400 IO/s",
                Accepts::near(3.0, 15.0),
                STILL_MOVING,
                window("host-3", FIRST),
            )
            .paper(3.0),
            Quantity::new(
                "window of host 2 : host 1, at 100 IO/s",
                Accepts::near(2.0, 10.0),
                "settled; 10 % for the noise of windows of 4 to 13",
                window("host-2", SECOND),
            )
            .paper(2.0),
            Quantity::new(
                "window of host 3 : host 1, at 100 IO/s",
                Accepts::near(3.0, 10.0),
                "settled; 10 % for the noise of windows of 4 to 13",
                window("host-3", SECOND),
            )
            .paper(3.0),
            Quantity::new(
                "response time to 𝓛 + Σβ/C, at 400 IO/s",
                Accepts::near(1.0, 10.0),
                NEAR_EQUILIBRIUM,
                of("fig2", |run| run.latency_to_equilibrium(200.0, FIRST)),
            ),
            Quantity::new(
                "response time to 𝓛 + Σβ/C, at 100 IO/s",
                Accepts::near(1.0, 10.0),
                NEAR_EQUILIBRIUM,
                of("fig2", |run| run.latency_to_equilibrium(200.0, SECOND)),
            ),
            Quantity::new(
                "throughput to capacity, at 400 IO/s",
                Accepts::near(1.0, 3.0),
                "the server is never idle; 20 s at 400 IO/s count to ± 1.1 %",
                of("fig2", |run| Some(run.total_iops(FIRST)? / 400.0)),
            ),
            Quantity::new(
                "throughput to capacity, at 100 IO/s",
                Accepts::near(1.0, 5.0),
                "the server is never idle; 20 s at 100 IO/s count to ± 2.2 %",
                of("fig2", |run| Some(run.total_iops(SECOND)? / 100.0)),
            ),
        ],
        figures: vec![
            Figure::new("response time at 400 IO/s", "ms", Some(200.0), of("fig2", |run| run.latency(FIRST))),
            Figure::new(
                "response time at 100 IO/s",
                "ms",
                Some(200.0),
                of("fig2", |run| run.latency(SECOND)),
            ),
            Figure::new("Σβ/C at 400 IO/s", "ms", None, of("fig2", |run| run.offset(FIRST))),
            Figure::new("Σβ/C at 100 IO/s", "ms", None, of("fig2", |run| run.offset(SECOND))),
        ],
        plots: vec![
            by_host("Throughput", "IO/s", "fig2", Vec::new(), RunResult::iops),
            by_host("Window", "I/Os", "fig2", Vec::new(), RunResult::window),
            by_host("Response time", "ms", "fig2", vec![("𝓛", 200.0)], RunResult::device_latency),
        ],
    }
}

pub(super) fn threshold() -> Experiment {
    const SETTLED: Span = Span::new(300.0, 400.0);
    const RUNS: [(&str, u64); 3] = [("100 ms", 100), ("200 ms", 200), ("300 ms", 300)];
    let scenario = embedded(include_str!("../../../../scenarios/parda/threshold.toml"));
    let run = |(name, millis): (&str, u64)| {
        Run::new(name, scenario.clone()).but(|scenario| {
            for law in scenario.hosts.iter_mut().filter_map(|host| host.law.as_mut()) {
                law.target = Latency::from_millis(millis);
            }
        })
    };
    let mut quantities = Vec::new();
    let mut figures = Vec::new();
    for (name, millis) in RUNS {
        quantities.push(Quantity::new(
            format!("response time to 𝓛 + Σβ/C, at {name}"),
            Accepts::near(1.0, 10.0),
            NEAR_EQUILIBRIUM,
            of(name, move |run| run.latency_to_equilibrium(millis as f64, SETTLED)),
        ));
        for (host, share) in [("host-2", 2.0), ("host-3", 3.0)] {
            quantities.push(
                Quantity::new(
                    format!("window of {host} : host-1, at {name}"),
                    Accepts::near(share, 10.0),
                    "settled to within 0.2 %; 10 % for noise",
                    of(name, move |run| ratio(run.window(host, SETTLED), run.window("host-1", SETTLED))),
                )
                .paper(share),
            );
        }
        figures.push(Figure::new(
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
        quantities.push(Quantity::new(
            format!("all windows at {name} : at 100 ms"),
            Accepts::near(grown, 10.0),
            "Σβ + C·𝓛 (eq. 3) is 46, 86 and 126; 10 % for noise",
            move |trial| ratio(windows(trial.run(name)?), windows(trial.run("100 ms")?)),
        ));
    }
    Experiment {
        id: "parda.threshold",
        title: "𝓛 of 100, 200 and 300 ms on the simulated array",
        paper: "As 𝓛 is varied, response times stay close to it, and windows grow while their ratio remains.",
        setup: "As for fig. 2 with a constant 400 IO/s for 400 s, of which the last 100 s count. K = 1 per 100 shares.",
        runs: RUNS.into_iter().map(run).collect(),
        quantities,
        figures,
        plots: RUNS
            .into_iter()
            .map(|(name, _)| {
                by_host(&format!("Window, 𝓛 = {name}"), "I/Os", name, Vec::new(), RunResult::window)
            })
            .collect(),
    }
}

pub(super) fn eq3() -> Experiment {
    const SETTLED: Span = Span::new(200.0, 400.0);
    /// β + β·C·𝓛/Σβ for β = 1, 1, 2, 4, C = 1000 IO/s, 𝓛 = 50 ms.
    const WINDOWS: [(&str, f64); 4] =
        [("host-1", 7.25), ("host-2", 7.25), ("host-3", 14.5), ("host-4", 29.0)];
    let mut quantities: Vec<_> = WINDOWS
        .into_iter()
        .map(|(host, window)| {
            Quantity::new(
                format!("window of {host}"),
                Accepts::near(window, 5.0),
                "eq. 3; 5 % for the noise of an exponential server over 100 control intervals",
                of("eq3", move |run| run.window(host, SETTLED)),
            )
            .paper(window)
            .unit("I/Os")
        })
        .collect();
    quantities.push(
        Quantity::new(
            "response time",
            Accepts::near(58.0, 5.0),
            "𝓛 + Σβ/C = 50 ms + 8/1000 s",
            of("eq3", |run| run.latency(SETTLED)),
        )
        .paper(58.0)
        .unit("ms"),
    );
    for (host, share) in [("host-3", 2.0), ("host-4", 4.0)] {
        quantities.push(
            Quantity::new(
                format!("throughput of {host} : host-1"),
                Accepts::near(share, 5.0),
                "at equilibrium proportional to β over the queueing delay, which is the same for all here; 5 % for noise",
                of("eq3", move |run| ratio(run.iops(host, SETTLED), run.iops("host-1", SETTLED))),
            )
            .paper(share),
        );
    }
    Experiment {
        id: "parda.eq3",
        title: "The equilibrium w = β + β·C·𝓛/Σβ",
        paper: "Two properties taken over from FAST TCP: at equilibrium the window is β + β·C·𝓛/Σβ, and throughput is \
                proportional to β over the queueing delay.",
        setup: "An exponential server with C = 1000 IO/s, 𝓛 = 50 ms, β = 1, 1, 2, 4 (K = 1 per 100 shares), 400 s, of which \
                the last 200 s count.",
        runs: vec![Run::new("eq3", embedded(include_str!("../../../../scenarios/parda/eq3.toml")))],
        quantities,
        figures: Vec::new(),
        plots: vec![by_host("Window", "I/Os", "eq3", Vec::new(), RunResult::window)],
    }
}
