//! Different workloads at the same time, and an array that others use as well (§5.3.3, §5.3.4).

use super::super::{Experiment, JudgedQuantity, NamedRun, ReportedFigure, TimeSpan, Tolerance};
use super::{CLOSE, TO_SET_POINT, close_to, embedded, mean, of, ratio, uncontrolled, usual_plots};
use crate::RunResult;
use crate::trial::spread;

const SETTLED: TimeSpan = TimeSpan::new(150.0, 300.0);
const HIGH: [&str; 3] = ["host-1", "host-3", "host-5"];
const LOW: [&str; 3] = ["host-2", "host-4", "host-6"];

pub(super) fn fig10() -> Experiment {
    let parda = NamedRun::new("parda", embedded(include_str!("../../../../scenarios/parda/fig10.toml")));
    let windows = |run: &RunResult, hosts: [&str; 3]| mean(hosts.map(|host| run.window(host, SETTLED)));
    Experiment {
        runs: vec![NamedRun { name: "uncontrolled".to_owned(), ..parda.clone() }.but(uncontrolled), parda],
        quantities: vec![
            JudgedQuantity::new(
                "windows of the hosts with higher shares",
                Tolerance::AtLeast(32.0 * 0.97),
                of("parda", move |run| windows(run, HIGH)),
            )
            .paper(32.0)
            .unit("I/Os"),
            JudgedQuantity::new(
                "windows of the others",
                Tolerance::near(19.0, 10.0),
                of("parda", move |run| windows(run, LOW)),
            )
            .paper(19.0)
            .unit("I/Os"),
            JudgedQuantity::new(
                "windows of the others, largest : smallest",
                Tolerance::AtMost(1.1),
                of("parda", |run| spread(LOW.into_iter().map(|host| run.window(host, SETTLED)))),
            )
            .paper(1.0),
            close_to(TO_SET_POINT, "parda", 40.0, SETTLED),
        ],
        figures: vec![
            ReportedFigure::new("response time", "ms", Some(40.0), of("parda", |run| run.latency(SETTLED))),
            ReportedFigure::new("throughput", "IO/s", None, of("parda", |run| run.total_iops(SETTLED))),
            ReportedFigure::new(
                "uncontrolled: response time",
                "ms",
                None,
                of("uncontrolled", |run| run.latency(SETTLED)),
            ),
            ReportedFigure::new(
                "uncontrolled: throughput",
                "IO/s",
                None,
                of("uncontrolled", |run| run.total_iops(SETTLED)),
            ),
        ],
        plots: usual_plots("parda", 40.0),
        ..Experiment::of("parda.fig10")
    }
}

pub(super) fn fig11() -> Experiment {
    const BEFORE: TimeSpan = TimeSpan::new(130.0, 230.0);
    const AFTER: TimeSpan = TimeSpan::new(300.0, 500.0);
    const SHARES: [(&str, f64); 4] = [("host-1", 2.0), ("host-2", 2.0), ("host-4", 1.0), ("host-5", 1.0)];
    let parda = NamedRun::new("parda", embedded(include_str!("../../../../scenarios/parda/fig11.toml")));
    let mut quantities = Vec::new();
    for (when, span) in [("before", BEFORE), ("after", AFTER)] {
        for (host, share) in SHARES {
            quantities.push(
                JudgedQuantity::new(
                    format!("{when}: window of {host} : host-3"),
                    Tolerance::near(share, 10.0),
                    of("parda", move |run| ratio(run.window(host, span), run.window("host-3", span))),
                )
                .paper(share),
            );
        }
        quantities.push(
            JudgedQuantity::new(
                format!("{when}: response time of the controlled hosts to 𝓛"),
                CLOSE,
                of("parda", move |run| Some(run.latency_without("host-6", span)? / 30.0)),
            )
            .paper(1.0),
        );
    }
    quantities.push(JudgedQuantity::new(
        "window of host 1, after : before",
        Tolerance::Between(0.6, 0.85),
        of("parda", |run| ratio(run.window("host-1", AFTER), run.window("host-1", BEFORE))),
    ));
    Experiment {
        runs: vec![parda],
        quantities,
        figures: vec![
            ReportedFigure::new(
                "before: response time of the controlled hosts",
                "ms",
                Some(30.0),
                of("parda", |run| run.latency_without("host-6", BEFORE)),
            ),
            ReportedFigure::new(
                "after: response time of the controlled hosts",
                "ms",
                Some(30.0),
                of("parda", |run| run.latency_without("host-6", AFTER)),
            ),
            ReportedFigure::new(
                "after: throughput of the uncontrolled host",
                "IO/s",
                None,
                of("parda", |run| run.iops("host-6", AFTER)),
            ),
        ],
        plots: usual_plots("parda", 30.0),
        ..Experiment::of("parda.fig11")
    }
}
