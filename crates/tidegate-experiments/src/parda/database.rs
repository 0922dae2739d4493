//! Two databases (§5.6).

use tidegate_sim::Sample;

use super::super::{Accepts, Experiment, Figure, Plot, Quantity, Run, Span};
use super::{by_host, embedded, line_of, of, ratio, uncontrolled};
use crate::RunResult;

const SETTLED: Span = Span::new(120.0, 600.0);

const SETUP: &str = "DVD store on SQL Server is closed software on hardware that we do not have: a closed loop of 28 clients in \
    each virtual machine stands for it, with exponential think times of 200 ms; a transaction is ten 8 KiB I/Os one after the \
    other, nine in ten of them random reads, and then a 4 KiB write to the log on an array of its own. 28 clients were chosen \
    beforehand so that one machine alone cannot saturate the six disks and two can: at 1300 IO/s, 87 transactions per second \
    take 12 ms each I/O, the other gets what is left. K = 1 per 100 shares: β is 1 and 4. 600 s, of which the last 480 s count.";

fn runs() -> Vec<Run> {
    let parda = Run::new("parda", embedded(include_str!("../../../../scenarios/parda/table7.toml")));
    vec![Run { name: "uncontrolled".to_owned(), ..parda.clone() }.but(uncontrolled), parda]
}

fn orders(run: &RunResult) -> Option<f64> {
    ratio(run.ops("sql-2", SETTLED), run.ops("sql-1", SETTLED))
}

fn latency(run: &RunResult) -> Option<f64> {
    ratio(run.felt("sql-2", SETTLED), run.felt("sql-1", SETTLED))
}

pub(super) fn table7() -> Experiment {
    Experiment {
        id: "parda.table7",
        title: "Two databases at 1:4",
        paper: "Two SQL Server machines on two hosts, DVD store, RAID-0 of 6 disks (logs apart, on 10), 𝓛 = 15 ms, shares 1:4. \
                Without PARDA they are alike; with it the favoured one has about twice the orders per minute and half the \
                latency. Not 1:4, because it is not always backlogged.",
        setup: SETUP,
        runs: runs(),
        quantities: vec![
            Quantity::new(
                "uncontrolled: orders, favoured : other",
                Accepts::near(1.0, 10.0),
                "similar without PARDA",
                of("uncontrolled", orders),
            )
            .paper(1.0),
            Quantity::new(
                "uncontrolled: response time, favoured : other",
                Accepts::near(1.0, 10.0),
                "similar without PARDA",
                of("uncontrolled", latency),
            )
            .paper(1.0),
            Quantity::new(
                "orders, favoured : other",
                Accepts::Between(1.5, 3.0),
                "roughly twice, and clearly less than 4, with a workload that only resembles the paper's",
                of("parda", orders),
            )
            .paper(2.0),
            Quantity::new(
                "response time, favoured : other",
                Accepts::Between(0.25, 0.67),
                "roughly half, with a workload that only resembles the paper's",
                of("parda", latency),
            )
            .paper(0.5),
        ],
        figures: ["sql-1", "sql-2"]
            .into_iter()
            .flat_map(|vm| {
                ["uncontrolled", "parda"].map(|run| {
                    Figure::new(
                        format!("{run}: orders of {vm}"),
                        "1/min",
                        None,
                        of(run, move |run| Some(run.ops(vm, SETTLED)? * 60.0)),
                    )
                })
            })
            .collect(),
        plots: Vec::new(),
    }
}

pub(super) fn fig14() -> Experiment {
    Experiment {
        id: "parda.fig14",
        title: "Two databases at 1:4: windows, response time, throughput",
        paper: "As the overall latency falls, PARDA gives large windows to both; when it rises, windows come to be about in \
                proportion to β.",
        setup: SETUP,
        runs: runs(),
        quantities: vec![
            Quantity::new(
                "windows, host 2 : host 1, to β, host 2 : host 1",
                Accepts::near(1.0, 25.0),
                "approximately in proportion to β as scaled for idle slots; both move all the time",
                of("parda", |run| {
                    let windows = ratio(run.window("host-2", SETTLED), run.window("host-1", SETTLED));
                    ratio(windows, ratio(run.beta("host-2", SETTLED), run.beta("host-1", SETTLED)))
                }),
            )
            .paper(1.0),
            Quantity::new(
                "window of host 2 : host 1",
                Accepts::Between(1.2, 4.4),
                "more for more shares, and not more than their ratio (10 % for noise)",
                of("parda", |run| ratio(run.window("host-2", SETTLED), run.window("host-1", SETTLED))),
            ),
            Quantity::new(
                "mean response time of the data disks, as all hosts measured it, to 𝓛",
                Accepts::Between(0.8, 1.35),
                "about 𝓛: at full β eq. 3 puts it at 1.26 of it with 1300 IO/s, and 5 to 10 % for noise",
                of("parda", |run| {
                    Some(run.mean("sql-1", SETTLED, |sample| sample.latency_cluster_ms)? / 15.0)
                }),
            ),
        ],
        figures: vec![
            Figure::new("window of host 1", "I/Os", None, of("parda", |run| run.window("host-1", SETTLED))),
            Figure::new("window of host 2", "I/Os", None, of("parda", |run| run.window("host-2", SETTLED))),
        ],
        plots: vec![
            by_host("Window", "I/Os", "parda", Vec::new(), RunResult::window),
            Plot {
                title: "Response time of the data disks, as all hosts measured it".to_owned(),
                unit: "ms",
                over: "s",
                marks: vec![("𝓛", 15.0)],
                lines: Box::new(|trial| {
                    let cluster = |sample: &Sample| sample.latency_cluster_ms;
                    trial.run("parda").map(|run| line_of(run, "sql-1", cluster)).into_iter().collect()
                }),
            },
            by_host("Throughput", "IO/s", "parda", Vec::new(), RunResult::iops),
        ],
    }
}

pub(super) fn fig15() -> Experiment {
    /// β of a host whose machine fills its window.
    const FULL: [(&str, f64); 2] = [("sql-1", 1.0), ("sql-2", 4.0)];
    let full = |(vm, beta): (&'static str, f64)| {
        of("parda", move |run| {
            let reduced = |sample: &Sample| sample.beta.map(|own| f64::from(u8::from(own < 0.9 * beta)));
            run.mean(vm, SETTLED, reduced)
        })
    };
    Experiment {
        id: "parda.fig15",
        title: "Two databases at 1:4: β follows how full their windows are",
        paper: "The machine on host 2 cannot always keep enough I/Os pending to fill its window, which its β shows; the machine \
                on host 1 picks up the slack.",
        setup: SETUP,
        runs: runs(),
        quantities: vec![
            Quantity::new(
                "part of the time in which β of host 2 is below 0.9 of its full value",
                Accepts::AtLeast(0.1),
                "not always backlogged; a tenth of the time is more than a moment",
                full(FULL[1]),
            ),
            Quantity::new(
                "the same of host 1, less that of host 2",
                Accepts::AtMost(0.0),
                "it is the favoured machine that does not fill its window",
                move |trial| Some(full(FULL[0])(trial)? - full(FULL[1])(trial)?),
            ),
            Quantity::new(
                "mean β, host 2 : host 1",
                Accepts::Between(1.2, 4.0),
                "still more for more shares, and no more than their ratio",
                of("parda", |run| ratio(run.beta("host-2", SETTLED), run.beta("host-1", SETTLED))),
            ),
            Quantity::new(
                "throughput of host 1 to a fifth of all",
                Accepts::AtLeast(1.2),
                "it picks up the slack: more than the fifth that 1:4 gives it, clearly",
                of("parda", |run| ratio(run.iops("host-1", SETTLED), Some(run.total_iops(SETTLED)? / 5.0))),
            ),
        ],
        figures: vec![
            Figure::new("mean β of host 1", "", None, of("parda", |run| run.beta("host-1", SETTLED))),
            Figure::new("mean β of host 2", "", None, of("parda", |run| run.beta("host-2", SETTLED))),
        ],
        plots: vec![by_host("β", "", "parda", Vec::new(), RunResult::beta)],
    }
}
