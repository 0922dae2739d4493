//! The disk, and what can be promised on it (§4.2 and §4.3, figs. 4 and 5, table 3).

use tidegate_control::Contract;
use tidegate_sim::Scenario;
use tidegate_sim::scenario::{ArrivalSpacing, OperationArrivals, VirtualMachine};
use tidegate_units::{ConsumerName, Iops, Latency, Shares};

use super::super::{
    Experiment, JudgedQuantity, NamedRun, Plot, PlotLine, ReportedFigure, RunResult, TimeSpan, Tolerance,
};
use super::{both, iops, late, of, ratio};

/// A run's end, and from when it is measured.
const SECONDS: u64 = 400;
const WARMUP: u64 = 20;
const ALL: TimeSpan = TimeSpan::new(WARMUP as f64, SECONDS as f64);

/// Total rates of fig. 4, in IO/s.
const RATES: [u32; 10] = [15, 30, 40, 45, 50, 60, 66, 72, 75, 80];

/// Time enough for any order of what is due at once, and short beside every response time.
const TIE: Latency = Latency::from_micros(1);

/// The two workloads without contracts, each evenly at its part of a rate, as buckets of it let them through,
/// in step: all buckets are replenished by the same ticks.
pub(super) fn offered(rates: &[(&str, f64)]) -> Scenario {
    let mut scenario = both();
    scenario.name = "lee, offered".to_owned();
    scenario.duration = std::time::Duration::from_secs(SECONDS);
    scenario.warmup = std::time::Duration::from_secs(WARMUP);
    scenario.hosts[0].law = None;
    third_if(&mut scenario, rates.len() > 2);
    for (vm, (_, rate)) in scenario.vms.iter_mut().zip(rates) {
        vm.contract = None;
        vm.workloads[0].arrivals = OperationArrivals::Open {
            rate: Iops::new(*rate),
            spacing: ArrivalSpacing::Jittered(TIE),
            limit: 10_000,
        };
    }
    scenario
}

/// A third tenant, like the second.
fn third_if(scenario: &mut Scenario, wanted: bool) {
    if wanted {
        let second = scenario.vms[1].clone();
        let name = ConsumerName::new("w3").expect("a name");
        scenario.vms.push(VirtualMachine { name, ..second });
    }
}

/// The percentile that promises are made by, of one workload.
fn percentile(run: &RunResult, consumer: &str) -> Option<f64> {
    Some(run.outcome.consumers.get(consumer)?.latency_ms?.p95)
}

/// The mean response time of both.
fn mean(run: &RunResult) -> Option<f64> {
    let of = |consumer| {
        let outcome = run.outcome.consumers.get(consumer)?;
        Some((outcome.iops, outcome.latency_ms?.mean))
    };
    let ((rate1, mean1), (rate2, mean2)) = (of("w1")?, of("w2")?);
    Some((rate1 * mean1 + rate2 * mean2) / (rate1 + rate2))
}

fn name_of(rate: u32) -> String {
    format!("{rate} IO/s")
}

pub(super) fn fig4() -> Experiment {
    let parts = |rate: f64| [("w1", rate * 2.0 / 3.0), ("w2", rate / 3.0)];
    let mut runs: Vec<NamedRun> =
        RATES.map(|rate| NamedRun::new(name_of(rate), offered(&parts(f64::from(rate))))).into();
    runs.push(NamedRun::new("always waiting", {
        let mut scenario = offered(&parts(60.0));
        for vm in &mut scenario.vms {
            vm.workloads[0].arrivals = both().vms[0].workloads[0].arrivals.clone();
        }
        scenario
    }));
    Experiment {
        runs,
        quantities: vec![
            JudgedQuantity::new(
                "completed at 75 IO/s : offered",
                Tolerance::AtLeast(0.99),
                of("75 IO/s", |run| Some(run.total_iops(ALL)? / 75.0)),
            ),
            JudgedQuantity::new(
                "mean response time at 75 IO/s : at 40",
                Tolerance::Between(1.0, 2.0),
                |trial| ratio(mean(trial.run("75 IO/s")?), mean(trial.run("40 IO/s")?)),
            ),
            JudgedQuantity::new(
                "G, of the 95th percentile of w1 from 40 to 72 IO/s",
                Tolerance::Between(0.15, 0.6),
                |trial| {
                    let at = |run| percentile(trial.run(run)?, "w1");
                    Some((at("72 IO/s")? - at("40 IO/s")?) / 32.0)
                },
            )
            .paper(0.3)
            .unit("ms per IO/s"),
        ],
        figures: vec![
            ReportedFigure::new(
                "greatest rate",
                "IO/s",
                Some(100.0),
                of("always waiting", |run| run.total_iops(ALL)),
            ),
            ReportedFigure::new("G, of the mean from 40 to 72 IO/s", "ms per IO/s", None, |trial| {
                Some((mean(trial.run("72 IO/s")?)? - mean(trial.run("40 IO/s")?)?) / 32.0)
            }),
            ReportedFigure::new("mean response time at 60 IO/s", "ms", None, of("60 IO/s", mean)),
        ],
        plots: vec![Plot {
            title: "Response time".to_owned(),
            unit: "ms",
            over: "IO/s",
            marks: Vec::new(),
            lines: Box::new(|trial| {
                let line = |name: &str, number: fn(&RunResult) -> Option<f64>| {
                    let point = |rate: u32| Some((f64::from(rate), number(trial.run(&name_of(rate))?)?));
                    PlotLine { name: name.to_owned(), points: RATES.into_iter().filter_map(point).collect() }
                };
                vec![
                    line("mean", mean),
                    line("95th percentile of w1", |run| percentile(run, "w1")),
                    line("95th percentile of w2", |run| percentile(run, "w2")),
                ]
            }),
        }],
        ..Experiment::of("lee.fig4")
    }
}

/// W1 and W2 as they are offered for table 3, and their promised response times.
pub(super) const PAIR: [(&str, f64); 2] = [("w1", 40.0), ("w2", 20.0)];
pub(super) const PROMISED_MS: [f64; 2] = [35.0, 38.0];

/// The factor by which a promised response time exceeds the measured percentile (§2).
const MARGIN: f64 = 1.2;

/// The latency that can be promised to a consumer, over the one that is promised.
pub(super) fn promised_ratio(run: &RunResult, consumer: &str, promised_ms: f64) -> Option<f64> {
    Some(MARGIN * percentile(run, consumer)? / promised_ms)
}

pub(super) fn table3() -> Experiment {
    const PAPER_MS: [f64; 2] = [29.08, 31.38];
    let mut quantities = Vec::new();
    for ((consumer, _), (paper, promised)) in PAIR.into_iter().zip(PAPER_MS.into_iter().zip(PROMISED_MS)) {
        quantities.push(
            JudgedQuantity::new(
                format!("RT^E of {consumer}"),
                Tolerance::near(paper, 15.0),
                of("in step", move |run| percentile(run, consumer)),
            )
            .paper(paper)
            .unit("ms"),
        );
        quantities.push(
            JudgedQuantity::new(
                format!("RT^T of {consumer} : promised"),
                Tolerance::AtMost(1.0),
                of("in step", move |run| promised_ratio(run, consumer, promised)),
            )
            .paper((MARGIN * paper / promised * 1000.0).round() / 1000.0),
        );
    }
    Experiment {
        runs: vec![NamedRun::new("in step", offered(&PAIR))],
        quantities,
        ..Experiment::of("lee.table3")
    }
}

/// A third tenant that does not fit.
pub(super) fn third() -> Experiment {
    let mut anyway = both();
    anyway.name = "lee, three".to_owned();
    third_if(&mut anyway, true);
    let contract = Contract::new(Iops::new(20.0), Latency::from_millis(40), Latency::from_millis(33));
    anyway.vms[2].contract = Some(contract.expect("below what is promised"));
    anyway.vms[2].shares = Shares::new(100).expect("not nothing");
    Experiment {
        runs: vec![
            NamedRun::new("offered", offered(&[PAIR[0], PAIR[1], ("w3", 20.0)])),
            NamedRun::new("anyway", anyway),
        ],
        quantities: vec![
            JudgedQuantity::new(
                "RT^T of w1 : promised",
                Tolerance::AtLeast(1.0),
                of("offered", |run| promised_ratio(run, "w1", PROMISED_MS[0])),
            ),
            JudgedQuantity::new(
                "anyway: requests of w1 that are late",
                Tolerance::AtLeast(6.0),
                of("anyway", |run| late(run, "w1")),
            )
            .unit("%"),
        ],
        figures: ["w1", "w2", "w3"]
            .into_iter()
            .flat_map(|consumer| {
                [
                    ReportedFigure::new(
                        format!("anyway: requests of {consumer} that are late"),
                        "%",
                        None,
                        of("anyway", move |run| late(run, consumer)),
                    ),
                    ReportedFigure::new(
                        format!("anyway: rate of {consumer}"),
                        "IO/s",
                        None,
                        of("anyway", move |run| iops(run, consumer, TimeSpan::new(0.0, 60.0))),
                    ),
                ]
            })
            .collect(),
        ..Experiment::of("lee.third")
    }
}
