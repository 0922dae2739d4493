//! Different workloads at the same time, and an array that others use as well (§5.3.3, §5.3.4).

use super::super::{Accepts, Experiment, Figure, Quantity, Run, Span};
use super::{embedded, mean, of, ratio, uncontrolled, usual_plots};
use crate::RunResult;
use crate::trial::spread;

const SETTLED: Span = Span::new(150.0, 300.0);
const HIGH: [&str; 3] = ["host-1", "host-3", "host-5"];
const LOW: [&str; 3] = ["host-2", "host-4", "host-6"];

const WORKLOADS: &str = "The workloads of table 5 are lost in the text that we have; these are ours: reads (on two hosts one \
    write in ten) of 4, 8 and 16 KiB, up to half of them sequential, 32 outstanding each.";

pub(super) fn table5() -> Experiment {
    let run = Run::new("uncontrolled", embedded(include_str!("../../../../scenarios/parda/fig10.toml")))
        .but(uncontrolled);
    Experiment {
        id: "parda.table5",
        title: "Six hosts with very different workloads, without control",
        paper: "The uncontrolled case of fig. 10. The text says nothing else of it.",
        setup: WORKLOADS,
        runs: vec![run],
        quantities: vec![
            Quantity::new(
                "response time",
                Accepts::AtLeast(40.0),
                "above the 𝓛 of fig. 10, or else that would show nothing",
                of("uncontrolled", |run| run.latency(SETTLED)),
            )
            .unit("ms"),
        ],
        figures: HIGH
            .into_iter()
            .chain(LOW)
            .flat_map(|host| {
                [
                    Figure::new(
                        format!("throughput of {host}"),
                        "IO/s",
                        None,
                        of("uncontrolled", move |run| run.iops(host, SETTLED)),
                    ),
                    Figure::new(
                        format!("response time of {host}"),
                        "ms",
                        None,
                        of("uncontrolled", move |run| run.device_latency(host, SETTLED)),
                    ),
                ]
            })
            .collect(),
        plots: Vec::new(),
    }
}

pub(super) fn fig10() -> Experiment {
    let parda = Run::new("parda", embedded(include_str!("../../../../scenarios/parda/fig10.toml")));
    let windows = |run: &RunResult, hosts: [&str; 3]| mean(hosts.map(|host| run.window(host, SETTLED)));
    Experiment {
        id: "parda.fig10",
        title: "Six hosts with very different workloads at 2:1:2:1:2:1",
        paper: "𝓛 = 40 ms, shares 2:1:2:1:2:1: hosts with higher shares reach the upper bound of 32 and remain there, the \
                others have windows close to 19; average latency remains close to 𝓛. Throughput roughly follows the windows.",
        setup: "K = 1 per 100 shares: β is 2 and 1. `w_max` = 32, as the text says. The workloads are lost in the text that we \
                have; these are ours: reads (on two hosts one write in ten) of 4, 8 and 16 KiB, up to half of them \
                sequential, 32 outstanding each. 300 s, of which the last 150 s count.",
        runs: vec![parda],
        quantities: vec![
            Quantity::new(
                "windows of the hosts with higher shares",
                Accepts::AtLeast(32.0 * 0.97),
                "at the bound, and remaining there; 3 % for the moments below it",
                of("parda", move |run| windows(run, HIGH)),
            )
            .paper(32.0)
            .unit("I/Os"),
            Quantity::new(
                "windows of the others to the bound",
                Accepts::AtMost(0.8),
                "they stay clearly below it; how far depends on the capacity under workloads that we do not have \
                 (eq. 2 without noise at 3580 IO/s: 18.5 of 32)",
                of("parda", move |run| Some(windows(run, LOW)? / 32.0)),
            )
            .paper(19.0 / 32.0),
            Quantity::new(
                "windows of the others, largest : smallest",
                Accepts::AtMost(1.1),
                "equal shares, equal windows, whatever the workload",
                of("parda", |run| spread(LOW.into_iter().map(|host| run.window(host, SETTLED)))),
            )
            .paper(1.0),
            Quantity::new(
                "response time to 𝓛",
                Accepts::near(1.0, 15.0),
                "close to 𝓛: hosts with β = 1 and a window of 16 to 25 settle at 1.04 to 1.07 of it; 8 % for noise",
                of("parda", |run| Some(run.latency(SETTLED)? / 40.0)),
            )
            .paper(1.0),
        ],
        figures: vec![
            Figure::new("windows of the others", "I/Os", Some(19.0), of("parda", move |run| windows(run, LOW))),
            Figure::new("response time", "ms", Some(40.0), of("parda", |run| run.latency(SETTLED))),
            Figure::new("throughput", "IO/s", None, of("parda", |run| run.total_iops(SETTLED))),
        ],
        plots: usual_plots("parda", 40.0),
    }
}

pub(super) fn fig11() -> Experiment {
    const BEFORE: Span = Span::new(130.0, 230.0);
    const AFTER: Span = Span::new(300.0, 500.0);
    const SHARES: [(&str, f64); 4] = [("host-1", 2.0), ("host-2", 2.0), ("host-4", 1.0), ("host-5", 1.0)];
    let parda = Run::new("parda", embedded(include_str!("../../../../scenarios/parda/fig11.toml")));
    let mut quantities = Vec::new();
    for (when, span) in [("before", BEFORE), ("after", AFTER)] {
        for (host, share) in SHARES {
            quantities.push(
                Quantity::new(
                    format!("{when}: window of {host} : host-3"),
                    Accepts::near(share, 10.0),
                    "in proportion to shares; settled to within 1 % by then, 10 % for noise",
                    of("parda", move |run| ratio(run.window(host, span), run.window("host-3", span))),
                )
                .paper(share),
            );
        }
        quantities.push(
            Quantity::new(
                format!("{when}: response time of the controlled hosts to 𝓛"),
                Accepts::near(1.0, 15.0),
                "close to 𝓛: eq. 2 without noise settles at 1.08 of it before and 1.10 after; 5 % for noise",
                of("parda", move |run| Some(run.latency_without("host-6", span)? / 30.0)),
            )
            .paper(1.0),
        );
    }
    quantities.push(Quantity::new(
        "window of host 1, after : before",
        Accepts::Between(0.6, 0.85),
        "the uncontrolled host takes 32 of about 110 slots: eq. 2 without noise goes from 31.1 to 22.8, 0.73",
        of("parda", |run| ratio(run.window("host-1", AFTER), run.window("host-1", BEFORE))),
    ));
    Experiment {
        id: "parda.fig11",
        title: "A sixth host that nobody controls begins after 230 s",
        paper: "The first five hosts of fig. 10, 𝓛 = 30 ms, shares 2:2:1:1:1. At 230 s an uncontrolled host begins with 16 KB \
                random reads. The others adjust their windows in proportion to their shares, and latencies stay close to 𝓛.",
        setup: "K = 1 per 100 shares. The workloads of fig. 10, but 64 outstanding each, so that they can fill the window of 31 \
                that eq. 3 gives to β = 2; the uncontrolled host has 32. `w_max` = 64. 500 s; the 100 s before the change count \
                and, from 70 s after it, 200 s.",
        runs: vec![parda],
        quantities,
        figures: vec![
            Figure::new(
                "before: response time of the controlled hosts",
                "ms",
                Some(30.0),
                of("parda", |run| run.latency_without("host-6", BEFORE)),
            ),
            Figure::new(
                "after: response time of the controlled hosts",
                "ms",
                Some(30.0),
                of("parda", |run| run.latency_without("host-6", AFTER)),
            ),
            Figure::new(
                "after: throughput of the uncontrolled host",
                "IO/s",
                None,
                of("parda", |run| run.iops("host-6", AFTER)),
            ),
        ],
        plots: usual_plots("parda", 30.0),
    }
}
