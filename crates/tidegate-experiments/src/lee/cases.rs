//! Cases 1 to 4 (§4.5, figs. 6 to 9).

use std::time::Duration;

use tidegate_sim::Scenario;
use tidegate_sim::scenario::ActivityCycle;
use tidegate_units::Latency;

use super::super::{
    Experiment, JudgedQuantity, NamedRun, Plot, PlotLine, ReportedFigure, RunResult, SeedTrial, TimeSpan,
    Tolerance,
};
use super::{begins, both, iops, late, never, of, pair, ratio, workload};

/// The end of a run.
pub(super) const END: f64 = 60.0;

/// The length of a workload's pulses and of the pauses between them, in seconds (case 3).
const PULSE: u64 = 5;

/// The first second after a workload begins is not what it gets.
const BEGINS: f64 = 1.0;

/// The rates that were promised to the workloads, in IO/s.
const DEMANDED: [(&str, f64); 2] = [("w1", 40.0), ("w2", 20.0)];

/// One of the two orders of a case.
#[derive(Clone, Copy)]
struct CaseOrder {
    name: &'static str,
    /// The workload that pauses.
    pauses: &'static str,
    /// Per cent of the requests of W1 and W2 that are late in the paper.
    paper: [Option<f64>; 2],
}

/// The behaviour of a workload that pauses.
#[derive(Clone, Copy, PartialEq)]
enum PausePattern {
    /// It is never active.
    Always,
    /// It begins in the middle.
    FirstHalf,
    /// On for 5 s and off for 5 s; off first.
    Pulses,
}

const CASE1: [CaseOrder; 2] = [
    CaseOrder { name: "w1 alone", pauses: "w2", paper: [Some(5.0), None] },
    CaseOrder { name: "w2 alone", pauses: "w1", paper: [None, Some(5.0)] },
];
const CASE2: [CaseOrder; 2] = [
    CaseOrder { name: "w2 begins at 30 s", pauses: "w2", paper: [Some(3.0), Some(3.0)] },
    CaseOrder { name: "w1 begins at 30 s", pauses: "w1", paper: [Some(3.0), Some(3.0)] },
];
const CASE3: [CaseOrder; 2] = [
    CaseOrder { name: "w2 pulses", pauses: "w2", paper: [Some(12.0), Some(6.0)] },
    CaseOrder { name: "w1 pulses", pauses: "w1", paper: [Some(3.0), Some(19.0)] },
];
const CASE4: &str = "both";

fn scenario(order: CaseOrder, pause: PausePattern) -> Scenario {
    let mut scenario = both();
    scenario.name = format!("lee, {}", order.name);
    let workload = workload(&mut scenario, order.pauses);
    match pause {
        PausePattern::Always => never(workload),
        PausePattern::FirstHalf => begins(workload, Duration::from_secs(30)),
        PausePattern::Pulses => {
            let half = Latency::from_secs_f64(PULSE as f64);
            workload.cycle = Some(ActivityCycle { on: half, off: half, delay: half });
        }
    }
    scenario
}

fn runs(orders: [CaseOrder; 2], pause: PausePattern) -> Vec<NamedRun> {
    orders.into_iter().flat_map(|order| pair(order.name, &scenario(order, pause))).collect()
}

/// The stretches in which the pausing workload is on, without the beginnings.
fn on(pause: PausePattern) -> Vec<TimeSpan> {
    match pause {
        PausePattern::Always => Vec::new(),
        PausePattern::FirstHalf => vec![TimeSpan::new(30.0 + BEGINS, END)],
        PausePattern::Pulses => (0..END as u64)
            .step_by(2 * PULSE as usize)
            .map(|begin| TimeSpan::new((begin + PULSE) as f64 + BEGINS, (begin + 2 * PULSE) as f64))
            .collect(),
    }
}

/// A consumer's rate while it is on, over the one that was promised to it.
fn attained(run: &RunResult, (consumer, demanded): (&str, f64), spans: &[TimeSpan]) -> Option<f64> {
    let rates: Vec<f64> = spans.iter().map(|span| iops(run, consumer, *span)).collect::<Option<_>>()?;
    (!rates.is_empty()).then(|| rates.iter().sum::<f64>() / rates.len() as f64 / demanded)
}

/// The requests per second of all tenants over the whole run.
fn total(run: &RunResult) -> Option<f64> {
    run.total_iops(TimeSpan::new(0.0, END))
}

/// Returns the quantities of a case: the late requests in both variants and orders, and the cost.
fn quantities(orders: [CaseOrder; 2], pause: PausePattern, most: f64) -> Vec<JudgedQuantity> {
    let mut quantities = Vec::new();
    for order in orders {
        for (place, (consumer, demanded)) in DEMANDED.into_iter().enumerate() {
            let Some(paper) = order.paper[place] else { continue };
            let of_improved = format!("{}, improved", order.name);
            quantities.push(
                JudgedQuantity::new(
                    format!("{}: requests of {consumer} that are late", order.name),
                    Tolerance::AtMost(paper),
                    of(order.name, move |run| late(run, consumer)),
                )
                .paper(paper)
                .unit("%"),
            );
            quantities.push(better(order.name, consumer, most));
            if pause != PausePattern::Always {
                let spans =
                    if consumer == order.pauses { on(pause) } else { vec![TimeSpan::new(BEGINS, END)] };
                for run in [order.name.to_owned(), of_improved] {
                    let spans = spans.clone();
                    quantities.push(JudgedQuantity::new(
                        format!("{run}: rate of {consumer} while it is on : demanded"),
                        Tolerance::AtLeast(0.97),
                        of(run, move |run| attained(run, (consumer, demanded), &spans)),
                    ));
                }
            }
        }
        quantities.push(no_lower(order.name));
    }
    quantities
}

/// Returns the quantity that judges the improved law: the most per cent that may be late.
fn better(order: &'static str, consumer: &'static str, most: f64) -> JudgedQuantity {
    let improved = format!("{order}, improved");
    let name = format!("{improved}: requests of {consumer} that are late");
    let late = of(improved, move |run| late(run, consumer));
    JudgedQuantity::new(name, Tolerance::AtMost(most), late).unit("%")
}

fn no_lower(order: &'static str) -> JudgedQuantity {
    let improved = format!("{order}, improved");
    JudgedQuantity::new(
        format!("{order}: throughput, improved : the paper's"),
        Tolerance::AtLeast(0.99),
        move |trial: &SeedTrial<'_>| ratio(total(trial.run(&improved)?), total(trial.run(order)?)),
    )
}

fn plots(orders: &[&'static str]) -> Vec<Plot> {
    let mut plots = Vec::new();
    for order in orders {
        for run in [(*order).to_owned(), format!("{order}, improved")] {
            let (of_rates, of_times) = (run.clone(), run.clone());
            plots.push(Plot {
                title: format!("{run}: throughput, and rates released"),
                unit: "IO/s",
                over: "s",
                marks: Vec::new(),
                lines: Box::new(move |trial| {
                    let Some(run) = trial.run(&of_rates) else { return Vec::new() };
                    let line =
                        |name: &str,
                         consumer: &str,
                         number: fn(&tidegate_sim::SeriesSample) -> Option<f64>| {
                            let track = run.tracks.iter().find(|track| track.consumer.as_str() == consumer);
                            let samples = track.into_iter().flat_map(|track| &track.samples);
                            let points = samples.filter_map(|(end, sample)| Some((*end, number(sample)?)));
                            PlotLine { name: name.to_owned(), points: points.collect() }
                        };
                    vec![
                        line("w1", "w1", |sample| Some(sample.iops)),
                        line("w2", "w2", |sample| Some(sample.iops)),
                        line("ρ of w1", "w1", |sample| sample.rate),
                        line("ρ of w2", "w2", |sample| sample.rate),
                    ]
                }),
            });
            plots.push(Plot {
                title: format!("{run}: response time from release to completion"),
                unit: "ms",
                over: "s",
                marks: vec![("promised to w1", 35.0), ("promised to w2", 38.0)],
                lines: Box::new(move |trial| {
                    let Some(run) = trial.run(&of_times) else { return Vec::new() };
                    let line = |consumer: &str| PlotLine {
                        name: consumer.to_owned(),
                        points: run
                            .tracks
                            .iter()
                            .filter(|track| track.consumer.as_str() == consumer)
                            .flat_map(|track| &track.samples)
                            .filter_map(|(end, sample)| Some((*end, sample.released_ms?)))
                            .collect(),
                    };
                    vec![line("w1"), line("w2")]
                }),
            });
        }
    }
    plots
}

pub(super) fn case1() -> Experiment {
    let mut quantities = quantities(CASE1, PausePattern::Always, 5.0);
    for (order, consumer) in [("w1 alone", "w1"), ("w2 alone", "w2")] {
        quantities.push(
            JudgedQuantity::new(
                format!("{order}: requests per second"),
                Tolerance::near(72.0, 10.0),
                of(order, move |run| iops(run, consumer, TimeSpan::new(0.0, END))),
            )
            .paper(72.0)
            .unit("IO/s"),
        );
    }
    Experiment {
        runs: runs(CASE1, PausePattern::Always),
        quantities,
        figures: figures(&CASE1.map(|order| order.name)),
        plots: plots(&["w1 alone"]),
        ..Experiment::of("lee.case1")
    }
}

pub(super) fn case2() -> Experiment {
    Experiment {
        runs: runs(CASE2, PausePattern::FirstHalf),
        quantities: quantities(CASE2, PausePattern::FirstHalf, 3.0),
        figures: figures(&CASE2.map(|order| order.name)),
        plots: plots(&CASE2.map(|order| order.name)),
        ..Experiment::of("lee.case2")
    }
}

/// The paper's law with buckets that hold a single token: what of a return's lateness is its own burst.
fn single(order: CaseOrder) -> NamedRun {
    let shallow = |scenario: &mut Scenario| scenario.vms.iter_mut().for_each(|vm| vm.bucket = 1);
    NamedRun::new(format!("{}, buckets of one", order.name), scenario(order, PausePattern::Pulses))
        .but(shallow)
}

pub(super) fn case3() -> Experiment {
    let mut figures = figures(&CASE3.map(|order| order.name));
    for order in CASE3 {
        let run = single(order).name;
        figures.push(ReportedFigure::new(
            format!("{run}: requests of {} that are late", order.pauses),
            "%",
            None,
            of(run, move |run| late(run, order.pauses)),
        ));
    }
    Experiment {
        runs: runs(CASE3, PausePattern::Pulses).into_iter().chain(CASE3.map(single)).collect(),
        quantities: quantities(CASE3, PausePattern::Pulses, 5.0),
        figures,
        plots: plots(&CASE3.map(|order| order.name)),
        ..Experiment::of("lee.case3")
    }
}

pub(super) fn case4() -> Experiment {
    let mut quantities = Vec::new();
    for (consumer, demanded) in DEMANDED {
        quantities.push(
            JudgedQuantity::new(
                format!("both: requests of {consumer} that are late"),
                Tolerance::AtMost(3.0),
                of(CASE4, move |run| late(run, consumer)),
            )
            .paper(3.0)
            .unit("%"),
        );
        quantities.push(better(CASE4, consumer, 3.0));
        for run in [CASE4.to_owned(), format!("{CASE4}, improved")] {
            quantities.push(JudgedQuantity::new(
                format!("{run}: rate of {consumer} : demanded"),
                Tolerance::AtLeast(0.97),
                of(run.clone(), move |run| {
                    attained(run, (consumer, demanded), &[TimeSpan::new(BEGINS, END)])
                }),
            ));
        }
    }
    for (run, tolerance) in [(CASE4.to_owned(), 20.0), (format!("{CASE4}, improved"), 10.0)] {
        quantities.push(
            JudgedQuantity::new(
                format!("{run}: rate of w1 : w2"),
                Tolerance::near(2.0, tolerance),
                of(run, |run| {
                    let all = TimeSpan::new(0.0, END);
                    ratio(iops(run, "w1", all), iops(run, "w2", all))
                }),
            )
            .paper(2.0),
        );
    }
    quantities.push(no_lower(CASE4));
    Experiment {
        runs: pair(CASE4, &both()).into(),
        quantities,
        figures: figures(&[CASE4]),
        plots: plots(&[CASE4]),
        ..Experiment::of("lee.case4")
    }
}

/// Returns the figures of each active workload in both variants: its late requests and its response time.
fn figures(orders: &[&'static str]) -> Vec<ReportedFigure> {
    let mut figures = Vec::new();
    for order in orders {
        for run in [(*order).to_owned(), format!("{order}, improved")] {
            let active = DEMANDED.into_iter().filter(|(consumer, _)| {
                CASE1.iter().all(|alone| alone.name != *order || alone.pauses != *consumer)
            });
            for (consumer, _) in active {
                figures.push(ReportedFigure::new(
                    format!("{run}: requests of {consumer} that are late"),
                    "%",
                    None,
                    of(run.clone(), move |run| late(run, consumer)),
                ));
                figures.push(ReportedFigure::new(
                    format!("{run}: 95th percentile of {consumer}, from release to completion"),
                    "ms",
                    None,
                    of(run.clone(), move |run| {
                        Some(run.outcome.consumers.get(consumer)?.contract?.release_to_completion_ms?.p95)
                    }),
                ));
            }
        }
    }
    figures
}

/// The paper's summary: 6 % on average.
pub(super) fn average() -> Experiment {
    let orders = || {
        [(CASE1, PausePattern::Always), (CASE2, PausePattern::FirstHalf), (CASE3, PausePattern::Pulses)]
            .into_iter()
    };
    let mut all: Vec<NamedRun> = orders().flat_map(|(orders, pause)| runs(orders, pause)).collect();
    all.extend(pair(CASE4, &both()));
    let mean = |improved: bool| {
        move |trial: &SeedTrial<'_>| {
            let runs = trial.runs().filter(|(name, _)| name.ends_with("improved") == improved);
            let late: Vec<f64> = runs
                .flat_map(|(_, run)| DEMANDED.map(|(consumer, _)| late(run, consumer)))
                .flatten()
                .collect();
            // Fourteen, less those that are never active.
            (late.len() == 12).then(|| late.iter().sum::<f64>() / 12.0)
        }
    };
    Experiment {
        runs: all,
        quantities: vec![
            JudgedQuantity::new("late, the paper's law", Tolerance::AtMost(6.0), mean(false))
                .paper(6.0)
                .unit("%"),
            JudgedQuantity::new("late, improved", Tolerance::AtMost(5.0), mean(true)).unit("%"),
        ],
        ..Experiment::of("lee.average")
    }
}
