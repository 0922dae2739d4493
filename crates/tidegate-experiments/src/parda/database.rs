//! Two databases (§5.6).

use tidegate_sim::scenario::OperationArrivals;
use tidegate_sim::{Scenario, SeriesSample};
use tidegate_units::Latency;

use super::super::{Experiment, JudgedQuantity, NamedRun, Plot, ReportedFigure, TimeSpan, Tolerance};
use super::{by_host, embedded, line_of, of, ratio, uncontrolled};
use crate::RunResult;

const SETTLED: TimeSpan = TimeSpan::new(120.0, 600.0);

/// `w_max` of the scenario.
const GREATEST_WINDOW: f64 = 64.0;

fn scenario() -> Scenario {
    embedded(include_str!("../../../../scenarios/parda/table7.toml"))
}

fn runs() -> Vec<NamedRun> {
    let parda = NamedRun::new("parda", scenario());
    vec![NamedRun { name: "uncontrolled".to_owned(), ..parda.clone() }.but(uncontrolled), parda]
}

fn orders(run: &RunResult) -> Option<f64> {
    ratio(run.ops("sql-2", SETTLED), run.ops("sql-1", SETTLED))
}

/// The time of an order, the database's own part included. By Little's law, since each client is always at an
/// order.
fn time(run: &RunResult) -> Option<f64> {
    ratio(run.ops("sql-1", SETTLED), run.ops("sql-2", SETTLED))
}

/// The time of an I/O.
fn io_time(run: &RunResult) -> Option<f64> {
    ratio(run.felt("sql-2", SETTLED), run.felt("sql-1", SETTLED))
}

/// Another time for the database's own part of an order.
fn processing(millis: u64) -> impl FnOnce(&mut Scenario) {
    move |scenario| {
        for workload in scenario.vms.iter_mut().flat_map(|vm| &mut vm.workloads) {
            if let OperationArrivals::Closed { think, .. } = &mut workload.arrivals {
                think.mean = Latency::from_millis(millis);
            }
        }
    }
}

pub(super) fn table7() -> Experiment {
    let mut runs = runs();
    runs.push(NamedRun::new("100 ms", scenario()).but(processing(100)));
    runs.push(NamedRun::new("none", scenario()).but(processing(0)));
    let with = |what: &str, run: &'static str, measure: fn(&RunResult) -> Option<f64>, paper: f64| {
        ReportedFigure::new(what, "", Some(paper), of(run, measure))
    };
    Experiment {
        runs,
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
                of("uncontrolled", time),
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
                of("parda", time),
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
            .chain([
                with("response time of I/Os, favoured : other", "parda", io_time, 0.5),
                with("own part of an order 100 ms: orders, favoured : other", "100 ms", orders, 2.0),
                with("without an own part: orders, favoured : other", "none", orders, 2.0),
            ])
            .collect(),
        ..Experiment::of("parda.table7")
    }
}

/// So few clients that the array is far from overloaded: fig. 14's times of low latency.
fn few_clients(scenario: &mut Scenario) {
    for workload in scenario.vms.iter_mut().flat_map(|vm| &mut vm.workloads) {
        if let OperationArrivals::Closed { outstanding, .. } = &mut workload.arrivals {
            *outstanding = 4;
        }
    }
}

pub(super) fn fig14() -> Experiment {
    let mut runs = runs();
    let parda = NamedRun::new("few clients", scenario()).but(few_clients);
    runs.push(parda);
    let high = |host: &'static str| {
        let part = move |run: &RunResult| Some(run.window(host, SETTLED)? / GREATEST_WINDOW);
        JudgedQuantity::new(
            format!("few clients: window of {host} to the greatest"),
            Tolerance::AtLeast(0.9),
            of("few clients", part),
        )
    };
    Experiment {
        runs,
        quantities: vec![
            high("host-1"),
            high("host-2"),
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
                of("parda", to_set_point),
            ),
            ReportedFigure::new("few clients: the same", "", None, of("few clients", to_set_point)),
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

/// Response time of the data disks, as all hosts measured it, over 𝓛.
fn to_set_point(run: &RunResult) -> Option<f64> {
    Some(run.mean("sql-1", SETTLED, |sample| sample.latency_cluster_ms)? / 15.0)
}

/// The part of its window that a machine fills, at most all of it: n/w of eq. 4.
fn filled(run: &RunResult, vm: &str) -> Option<f64> {
    run.mean(vm, SETTLED, |sample| Some((sample.outstanding / sample.window?).min(1.0)))
}

pub(super) fn fig15() -> Experiment {
    /// β of host 2 while its machine fills its window.
    const FULL: f64 = 4.0;
    Experiment {
        runs: runs(),
        quantities: vec![
            JudgedQuantity::new(
                "part of its window that the machine of host 2 fills",
                Tolerance::AtMost(0.95),
                of("parda", |run| filled(run, "sql-2")),
            ),
            JudgedQuantity::new(
                "β of host 2 to its full value, to the part of the window that is filled",
                Tolerance::near(1.0, 5.0),
                of("parda", |run| ratio(Some(run.beta("host-2", SETTLED)? / FULL), filled(run, "sql-2"))),
            )
            .paper(1.0),
            JudgedQuantity::new(
                "throughput of host 1 to a fifth of all",
                Tolerance::Between(1.2, 2.3),
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
