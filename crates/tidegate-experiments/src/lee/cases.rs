//! Cases 1 to 4 (§4.5, figs. 6 to 9).

use std::time::Duration;

use tidegate_sim::Scenario;
use tidegate_sim::scenario::Cycle;
use tidegate_units::Latency;

use super::super::{Accepts, Experiment, Figure, Line, Plot, Quantity, Run, RunResult, Span, Trial};
use super::{begins, both, iops, late, never, of, pair, ratio, workload};

/// The end of a run.
const END: f64 = 60.0;

/// The length of a workload's pulses and of the pauses between them, in seconds (case 3).
const PULSE: u64 = 5;

/// The first second after a workload begins is not what it gets.
const BEGINS: f64 = 1.0;

/// The rates that were promised to the workloads, in IO/s.
const DEMANDED: [(&str, f64); 2] = [("w1", 40.0), ("w2", 20.0)];

/// One of the two orders of a case.
#[derive(Clone, Copy)]
struct Order {
    name: &'static str,
    /// The workload that pauses.
    pauses: &'static str,
    /// Per cent of the requests of W1 and W2 that are late in the paper.
    paper: [Option<f64>; 2],
}

/// The behaviour of a workload that pauses.
#[derive(Clone, Copy, PartialEq)]
enum Pause {
    /// It is never active.
    Always,
    /// It begins in the middle.
    FirstHalf,
    /// On for 5 s and off for 5 s; off first.
    Pulses,
}

const CASE1: [Order; 2] = [
    Order { name: "w1 alone", pauses: "w2", paper: [Some(5.0), None] },
    Order { name: "w2 alone", pauses: "w1", paper: [None, Some(5.0)] },
];
const CASE2: [Order; 2] = [
    Order { name: "w2 begins at 30 s", pauses: "w2", paper: [Some(3.0), Some(3.0)] },
    Order { name: "w1 begins at 30 s", pauses: "w1", paper: [Some(3.0), Some(3.0)] },
];
const CASE3: [Order; 2] = [
    Order { name: "w2 pulses", pauses: "w2", paper: [Some(12.0), Some(6.0)] },
    Order { name: "w1 pulses", pauses: "w1", paper: [Some(3.0), Some(19.0)] },
];
const CASE4: &str = "both";

fn scenario(order: Order, pause: Pause) -> Scenario {
    let mut scenario = both();
    scenario.name = format!("lee, {}", order.name);
    let workload = workload(&mut scenario, order.pauses);
    match pause {
        Pause::Always => never(workload),
        Pause::FirstHalf => begins(workload, Duration::from_secs(30)),
        Pause::Pulses => {
            let half = Latency::from_secs_f64(PULSE as f64);
            workload.cycle = Some(Cycle { on: half, off: half, delay: half });
        }
    }
    scenario
}

fn runs(orders: [Order; 2], pause: Pause) -> Vec<Run> {
    orders.into_iter().flat_map(|order| pair(order.name, &scenario(order, pause))).collect()
}

/// The stretches in which somebody who pauses is on, without the beginnings.
fn on(pause: Pause) -> Vec<Span> {
    match pause {
        Pause::Always => Vec::new(),
        Pause::FirstHalf => vec![Span::new(30.0 + BEGINS, END)],
        Pause::Pulses => (0..END as u64)
            .step_by(2 * PULSE as usize)
            .map(|begin| Span::new((begin + PULSE) as f64 + BEGINS, (begin + 2 * PULSE) as f64))
            .collect(),
    }
}

/// A consumer's rate while it is on, over the one that was promised to it.
fn attained(run: &RunResult, (consumer, demanded): (&str, f64), spans: &[Span]) -> Option<f64> {
    let rates: Vec<f64> = spans.iter().map(|span| iops(run, consumer, *span)).collect::<Option<_>>()?;
    (!rates.is_empty()).then(|| rates.iter().sum::<f64>() / rates.len() as f64 / demanded)
}

/// Everybody's requests per second over the whole run.
fn total(run: &RunResult) -> Option<f64> {
    run.total_iops(Span::new(0.0, END))
}

const AS_THE_PAPER: &str = "the paper's figure is the most that it may be";
const DEMAND: &str =
    "the paper: demanded IOPS in all cases; 3 % for what is under way at the ends of a pulse";
const SURPLUS: &str = "what is beyond the paper may not be bought with surplus";

/// Returns the quantities of a case: the late requests in both variants and orders, and the cost.
fn quantities(orders: [Order; 2], pause: Pause, most: Option<f64>) -> Vec<Quantity> {
    let mut quantities = Vec::new();
    for order in orders {
        for (place, (consumer, demanded)) in DEMANDED.into_iter().enumerate() {
            let Some(paper) = order.paper[place] else { continue };
            let of_improved = format!("{}, improved", order.name);
            quantities.push(
                Quantity::new(
                    format!("{}: requests of {consumer} that are late", order.name),
                    Accepts::AtMost(paper),
                    AS_THE_PAPER,
                    of(order.name, move |run| late(run, consumer)),
                )
                .paper(paper)
                .unit("%"),
            );
            quantities.push(better(order.name, consumer, most));
            if pause != Pause::Always {
                let spans = if consumer == order.pauses { on(pause) } else { vec![Span::new(BEGINS, END)] };
                for run in [order.name.to_owned(), of_improved] {
                    let spans = spans.clone();
                    quantities.push(Quantity::new(
                        format!("{run}: rate of {consumer} while it is on : demanded"),
                        Accepts::AtLeast(0.97),
                        DEMAND,
                        of(run, move |run| attained(run, (consumer, demanded), &spans)),
                    ));
                }
            }
        }
        quantities.push(no_lower(order.name));
    }
    quantities
}

/// Returns the quantity that judges the improved law: it keeps a bound, or is late no more often than the
/// paper's law under the same load.
fn better(order: &'static str, consumer: &'static str, most: Option<f64>) -> Quantity {
    let improved = format!("{order}, improved");
    if let Some(most) = most {
        let name = format!("{improved}: requests of {consumer} that are late");
        let late = of(improved, move |run| late(run, consumer));
        return Quantity::new(name, Accepts::AtMost(most), "what the paper has when nobody pulses", late)
            .unit("%");
    }
    Quantity::new(
        format!("{order}: requests of {consumer} that are late, improved : the paper's"),
        Accepts::AtMost(1.0),
        "what is beyond the paper helps in case 3, and does no harm elsewhere",
        move |trial: &Trial<'_>| {
            ratio(late(trial.run(&improved)?, consumer), late(trial.run(order)?, consumer))
        },
    )
}

fn no_lower(order: &'static str) -> Quantity {
    let improved = format!("{order}, improved");
    Quantity::new(
        format!("{order}: throughput, improved : the paper's"),
        Accepts::AtLeast(0.99),
        SURPLUS,
        move |trial: &Trial<'_>| ratio(total(trial.run(&improved)?), total(trial.run(order)?)),
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
                        |name: &str, consumer: &str, number: fn(&tidegate_sim::Sample) -> Option<f64>| {
                            let track = run.tracks.iter().find(|track| track.consumer.as_str() == consumer);
                            let samples = track.into_iter().flat_map(|track| &track.samples);
                            let points = samples.filter_map(|(end, sample)| Some((*end, number(sample)?)));
                            Line { name: name.to_owned(), points: points.collect() }
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
                    let line = |consumer: &str| Line {
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
    let mut quantities = quantities(CASE1, Pause::Always, None);
    for (order, consumer) in [("w1 alone", "w1"), ("w2 alone", "w2")] {
        quantities.push(
            Quantity::new(
                format!("{order}: requests per second"),
                Accepts::near(72.0, 10.0),
                "the paper's mean over both; 10 % for a disk with other seeks",
                of(order, move |run| iops(run, consumer, Span::new(0.0, END))),
            )
            .paper(72.0)
            .unit("IO/s"),
        );
    }
    Experiment {
        id: "lee.case1",
        title: "One workload is active, and gets what the other leaves",
        paper: "Fig. 6: the active workload fully utilises the storage with 72 IOPS on average; 5 % of its requests are late.",
        setup: "60 s from a rest. Improved: see the head of this part.",
        runs: runs(CASE1, Pause::Always),
        quantities,
        figures: figures(&CASE1.map(|order| order.name)),
        plots: plots(&["w1 alone"]),
    }
}

pub(super) fn case2() -> Experiment {
    Experiment {
        id: "lee.case2",
        title: "One workload begins after 30 s",
        paper: "Fig. 7: response times are kept but for the time when the other begins; below 3 % are late; both have the IOPS that \
                they demand.",
        setup: "60 s from a rest.",
        runs: runs(CASE2, Pause::FirstHalf),
        quantities: quantities(CASE2, Pause::FirstHalf, None),
        figures: figures(&CASE2.map(|order| order.name)),
        plots: plots(&CASE2.map(|order| order.name)),
    }
}

/// The paper's law with buckets that hold a single token: what of a return's lateness is its own burst.
fn single(order: Order) -> Run {
    let shallow = |scenario: &mut Scenario| scenario.vms.iter_mut().for_each(|vm| vm.bucket = 1);
    Run::new(format!("{}, buckets of one", order.name), scenario(order, Pause::Pulses)).but(shallow)
}

pub(super) fn case3() -> Experiment {
    let mut figures = figures(&CASE3.map(|order| order.name));
    for order in CASE3 {
        let run = single(order).name;
        figures.push(Figure::new(
            format!("{run}: requests of {} that are late", order.pauses),
            "%",
            None,
            of(run, move |run| late(run, order.pauses)),
        ));
    }
    Experiment {
        id: "lee.case3",
        title: "One workload is on for 5 s and off for 5 s",
        paper: "Fig. 8: response times leap at each return, for two or three control periods; 12 and 6 % are late when W2 pulses, \
                3 and 19 % when W1 does. The paper calls it the weak spot of its scheme.",
        setup: "60 s, off first. Improved: at most 5 % of anybody's requests, in both orders.",
        runs: runs(CASE3, Pause::Pulses).into_iter().chain(CASE3.map(single)).collect(),
        quantities: quantities(CASE3, Pause::Pulses, Some(5.0)),
        figures,
        plots: plots(&CASE3.map(|order| order.name)),
    }
}

pub(super) fn case4() -> Experiment {
    let mut quantities = Vec::new();
    for (consumer, demanded) in DEMANDED {
        quantities.push(
            Quantity::new(
                format!("both: requests of {consumer} that are late"),
                Accepts::AtMost(3.0),
                AS_THE_PAPER,
                of(CASE4, move |run| late(run, consumer)),
            )
            .paper(3.0)
            .unit("%"),
        );
        quantities.push(better(CASE4, consumer, None));
        for run in [CASE4.to_owned(), format!("{CASE4}, improved")] {
            quantities.push(Quantity::new(
                format!("{run}: rate of {consumer} : demanded"),
                Accepts::AtLeast(0.97),
                DEMAND,
                of(run.clone(), move |run| attained(run, (consumer, demanded), &[Span::new(BEGINS, END)])),
            ));
        }
    }
    quantities.push(
        Quantity::new(
            "both: rate of w1 : w2",
            Accepts::near(2.0, 20.0),
            "approximately, says the paper; 20 %, as for PARDA's rough shares",
            of(CASE4, |run| {
                let all = Span::new(0.0, END);
                ratio(iops(run, "w1", all), iops(run, "w2", all))
            }),
        )
        .paper(2.0),
    );
    quantities.push(no_lower(CASE4));
    Experiment {
        id: "lee.case4",
        title: "Both workloads are active",
        paper: "Fig. 9: both have the IOPS and the response times that they demand in most cases, below 3 % are late, and rates are \
                at approximately 2:1, as the weights of YFQ.",
        setup: "60 s from a rest.",
        runs: pair(CASE4, &both()).into(),
        quantities,
        figures: figures(&[CASE4]),
        plots: plots(&[CASE4]),
    }
}

/// Returns the figures of each active workload in both variants: its late requests and its response time.
fn figures(orders: &[&'static str]) -> Vec<Figure> {
    let mut figures = Vec::new();
    for order in orders {
        for run in [(*order).to_owned(), format!("{order}, improved")] {
            let active = DEMANDED.into_iter().filter(|(consumer, _)| {
                CASE1.iter().all(|alone| alone.name != *order || alone.pauses != *consumer)
            });
            for (consumer, _) in active {
                figures.push(Figure::new(
                    format!("{run}: requests of {consumer} that are late"),
                    "%",
                    None,
                    of(run.clone(), move |run| late(run, consumer)),
                ));
                figures.push(Figure::new(
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
    let orders = || [(CASE1, Pause::Always), (CASE2, Pause::FirstHalf), (CASE3, Pause::Pulses)].into_iter();
    let mut all: Vec<Run> = orders().flat_map(|(orders, pause)| runs(orders, pause)).collect();
    all.extend(pair(CASE4, &both()));
    let mean = |improved: bool| {
        move |trial: &Trial<'_>| {
            let runs = trial.runs().filter(|(name, _)| name.ends_with("improved") == improved);
            let late: Vec<f64> = runs
                .flat_map(|(_, run)| DEMANDED.map(|(consumer, _)| late(run, consumer)))
                .flatten()
                .collect();
            // Fourteen, less those who are never active.
            (late.len() == 12).then(|| late.iter().sum::<f64>() / 12.0)
        }
    };
    Experiment {
        id: "lee.average",
        title: "Requests that are late, on average over all cases",
        paper: "6 % violation on average for the demanded response times.",
        setup: "The mean over both workloads in both orders of cases 1 to 3, and in case 4, each counting once.",
        runs: all,
        quantities: vec![
            Quantity::new("late, the paper's law", Accepts::AtMost(6.0), AS_THE_PAPER, mean(false))
                .paper(6.0)
                .unit("%"),
            Quantity::new(
                "late, improved",
                Accepts::AtMost(5.0),
                "case 3 at 5 %, the others no worse",
                mean(true),
            )
            .unit("%"),
        ],
        figures: Vec::new(),
        plots: Vec::new(),
    }
}
