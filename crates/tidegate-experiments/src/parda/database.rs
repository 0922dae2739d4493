//! Two databases (§5.6).

use tidegate_sim::SeriesSample;

use super::super::{Experiment, JudgedQuantity, NamedRun, Plot, ReportedFigure, TimeSpan, Tolerance};
use super::{by_host, embedded, line_of, of, ratio, uncontrolled};
use crate::RunResult;

const SETTLED: TimeSpan = TimeSpan::new(120.0, 600.0);

fn runs() -> Vec<NamedRun> {
    let parda = NamedRun::new("parda", embedded(include_str!("../../../../scenarios/parda/table7.toml")));
    vec![NamedRun { name: "uncontrolled".to_owned(), ..parda.clone() }.but(uncontrolled), parda]
}

fn orders(run: &RunResult) -> Option<f64> {
    ratio(run.ops("sql-2", SETTLED), run.ops("sql-1", SETTLED))
}

fn latency(run: &RunResult) -> Option<f64> {
    ratio(run.felt("sql-2", SETTLED), run.felt("sql-1", SETTLED))
}

pub(super) fn table7() -> Experiment {
    Experiment {
        runs: runs(),
        quantities: vec![
            JudgedQuantity::new(
                "uncontrolled: orders, favoured : other",
                Tolerance::near(1.0, 10.0),
                of("uncontrolled", orders),
            )
            .paper(1.0),
            JudgedQuantity::new(
                "uncontrolled: response time, favoured : other",
                Tolerance::near(1.0, 10.0),
                of("uncontrolled", latency),
            )
            .paper(1.0),
            JudgedQuantity::new(
                "orders, favoured : other",
                Tolerance::Between(1.5, 3.0),
                of("parda", orders),
            )
            .paper(2.0),
            JudgedQuantity::new(
                "response time, favoured : other",
                Tolerance::Between(0.25, 0.67),
                of("parda", latency),
            )
            .paper(0.5),
        ],
        figures: ["sql-1", "sql-2"]
            .into_iter()
            .flat_map(|vm| {
                ["uncontrolled", "parda"].map(|run| {
                    ReportedFigure::new(
                        format!("{run}: orders of {vm}"),
                        "1/min",
                        None,
                        of(run, move |run| Some(run.ops(vm, SETTLED)? * 60.0)),
                    )
                })
            })
            .collect(),
        ..Experiment::of("parda.table7")
    }
}

pub(super) fn fig14() -> Experiment {
    Experiment {
        runs: runs(),
        quantities: vec![
            JudgedQuantity::new(
                "windows, host 2 : host 1, to β, host 2 : host 1",
                Tolerance::near(1.0, 15.0),
                of("parda", |run| {
                    let windows = ratio(run.window("host-2", SETTLED), run.window("host-1", SETTLED));
                    ratio(windows, ratio(run.beta("host-2", SETTLED), run.beta("host-1", SETTLED)))
                }),
            )
            .paper(1.0),
            JudgedQuantity::new(
                "window of host 2 : host 1",
                Tolerance::AtLeast(1.5),
                of("parda", |run| ratio(run.window("host-2", SETTLED), run.window("host-1", SETTLED))),
            ),
        ],
        figures: vec![
            ReportedFigure::new(
                "mean response time of the data disks, as all hosts measured it, to 𝓛",
                "",
                None,
                of("parda", |run| {
                    Some(run.mean("sql-1", SETTLED, |sample| sample.latency_cluster_ms)? / 15.0)
                }),
            ),
            ReportedFigure::new(
                "window of host 1",
                "I/Os",
                None,
                of("parda", |run| run.window("host-1", SETTLED)),
            ),
            ReportedFigure::new(
                "window of host 2",
                "I/Os",
                None,
                of("parda", |run| run.window("host-2", SETTLED)),
            ),
        ],
        plots: vec![
            by_host("Window", "I/Os", "parda", Vec::new(), RunResult::window),
            Plot {
                title: "Response time of the data disks, as all hosts measured it".to_owned(),
                unit: "ms",
                over: "s",
                marks: vec![("𝓛", 15.0)],
                lines: Box::new(|trial| {
                    let cluster = |sample: &SeriesSample| sample.latency_cluster_ms;
                    trial.run("parda").map(|run| line_of(run, "sql-1", cluster)).into_iter().collect()
                }),
            },
            by_host("Throughput", "IO/s", "parda", Vec::new(), RunResult::iops),
        ],
        ..Experiment::of("parda.fig14")
    }
}

pub(super) fn fig15() -> Experiment {
    /// β of a host whose machine fills its window.
    const FULL: [(&str, f64); 2] = [("sql-1", 1.0), ("sql-2", 4.0)];
    let full = |(vm, beta): (&'static str, f64)| {
        of("parda", move |run| {
            let reduced =
                |sample: &SeriesSample| sample.beta.map(|own| f64::from(u8::from(own < 0.9 * beta)));
            run.mean(vm, SETTLED, reduced)
        })
    };
    Experiment {
        runs: runs(),
        quantities: vec![
            JudgedQuantity::new(
                "part of the time in which β of host 2 is below 0.9 of its full value",
                Tolerance::AtLeast(0.1),
                full(FULL[1]),
            ),
            JudgedQuantity::new(
                "the same of host 1, less that of host 2",
                Tolerance::AtMost(0.0),
                move |trial| Some(full(FULL[0])(trial)? - full(FULL[1])(trial)?),
            ),
            JudgedQuantity::new(
                "throughput of host 1 to a fifth of all",
                Tolerance::AtLeast(1.2),
                of("parda", |run| ratio(run.iops("host-1", SETTLED), Some(run.total_iops(SETTLED)? / 5.0))),
            ),
        ],
        figures: vec![
            ReportedFigure::new(
                "mean β, host 2 : host 1",
                "",
                None,
                of("parda", |run| ratio(run.beta("host-2", SETTLED), run.beta("host-1", SETTLED))),
            ),
            ReportedFigure::new("mean β of host 1", "", None, of("parda", |run| run.beta("host-1", SETTLED))),
            ReportedFigure::new("mean β of host 2", "", None, of("parda", |run| run.beta("host-2", SETTLED))),
        ],
        plots: vec![by_host("β", "", "parda", Vec::new(), RunResult::beta)],
        ..Experiment::of("parda.fig15")
    }
}
