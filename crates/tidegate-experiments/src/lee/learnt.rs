//! A storage ninety times as fast as the paper's disk, with K learnt on line (beyond the paper).

use tidegate_sim::Scenario;

use super::{iops, late, of};
use crate::{
    Experiment, JudgedQuantity, NamedRun, Plot, PlotLine, ReportedFigure, RunResult, TimeSpan, Tolerance,
};

/// Requests per second that the storage does.
const CAPACITY: f64 = 6_400.0;

/// The end of a run, in seconds.
const END: f64 = 40.0;

/// Contracts for 1000 and 500 IO/s within 20 and 25 ms, on eight servers of 1.25 ms.
fn scenario(integral: &str) -> Scenario {
    let text = format!(
        r#"
name = 'lee, {integral}'
duration = "{END}s"

[array.pool]
rate = "{CAPACITY} IO/s"
servers = 8

[host.server]
law = "integral"
target = "20ms"
interval = "1s"
integral = {{ {integral} }}
release = {{ ahead = 2 }}

[vm.w1]
shares = 200
workload = "reads"
contract = {{ iops = "1000 IO/s", response_time = "20ms", expected = "16ms" }}

[vm.w2]
shares = 100
workload = "reads"
contract = {{ iops = "500 IO/s", response_time = "25ms", expected = "20ms" }}

[workload.reads]
outstanding = 128
"#
    );
    Scenario::parse("embedded", &text)
        .unwrap_or_else(|error| panic!("an embedded scenario is wrong: {error}"))
}

/// The seconds until a second has 95 % of what the storage does.
fn until_used(run: &RunResult) -> Option<f64> {
    let used = |second: u32| {
        let span = TimeSpan::new(f64::from(second), f64::from(second + 1));
        Some(run.total_iops(span)? >= 0.95 * CAPACITY)
    };
    let seconds: Vec<bool> = (0..END as u32).map(used).collect::<Option<_>>()?;
    Some(seconds.iter().position(|used| *used).map_or(END, |second| second as f64 + 1.0))
}

pub(super) fn learnt() -> Experiment {
    const LEARNT: &str = "learnt";
    const PAPERS: &str = "K = 0.33";
    const SETTLED: TimeSpan = TimeSpan::new(10.0, END);
    let mut quantities = vec![
        JudgedQuantity::new(
            "until 95 % of the storage are used",
            Tolerance::AtMost(10.0),
            of(LEARNT, until_used),
        )
        .unit("s"),
        JudgedQuantity::new(
            "part of the storage that is used from 10 s on",
            Tolerance::AtLeast(0.95),
            of(LEARNT, |run| Some(run.total_iops(SETTLED)? / CAPACITY)),
        ),
    ];
    for consumer in ["w1", "w2"] {
        quantities.push(
            JudgedQuantity::new(
                format!("requests of {consumer} that are late"),
                Tolerance::AtMost(5.0),
                of(LEARNT, move |run| late(run, consumer)),
            )
            .unit("%"),
        );
    }
    Experiment {
        runs: vec![
            NamedRun::new(LEARNT, scenario("tuning = \"learnt\"")),
            NamedRun::new(PAPERS, scenario("gain = 0.33")),
        ],
        quantities,
        figures: vec![
            ReportedFigure::new(
                "K = 0.33: until 95 % of the storage are used",
                "s",
                None,
                of(PAPERS, until_used),
            ),
            ReportedFigure::new(
                "rate of w1 : w2, from 10 s on",
                "",
                None,
                of(LEARNT, |run| Some(iops(run, "w1", SETTLED)? / iops(run, "w2", SETTLED)?)),
            ),
        ],
        plots: vec![Plot {
            title: "throughput of both".to_owned(),
            unit: "IO/s",
            over: "s",
            marks: vec![("95 %", 0.95 * CAPACITY)],
            lines: Box::new(|trial| {
                let line = |name: &str| {
                    let run = trial.run(name)?;
                    let second = |end: u32| {
                        let end = f64::from(end);
                        Some((end, run.total_iops(TimeSpan::new(end - 1.0, end))?))
                    };
                    Some(PlotLine {
                        name: name.to_owned(),
                        points: (1..=END as u32).filter_map(second).collect(),
                    })
                };
                [LEARNT, PAPERS].into_iter().filter_map(line).collect()
            }),
        }],
        ..Experiment::of("lee.learnt")
    }
}
