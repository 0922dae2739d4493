//! Figs. 3 to 5: five policies on three nodes, idle and under load from outside.

use tidegate_placement::PlacementPolicy;
use tidegate_sim::transfers::TransferPlan;

use super::{
    MB, SM_R1, SM_R2, STATIC, difference, far_below, loaded, loaded_disk, missed, name, papers_nodes, plan,
    quotient, throughput,
};
use crate::measure::of;
use crate::{Experiment, JudgedQuantity, NamedRun, Plot, PlotLine, ReportedFigure, RunResult, Tolerance};

const FIVE: [PlacementPolicy; 5] =
    [PlacementPolicy::RoundRobin, STATIC, SM_R1, SM_R2, PlacementPolicy::SM_R3];

fn idle(policy: PlacementPolicy) -> NamedRun {
    NamedRun::new(name(policy), plan("idle", policy, papers_nodes()))
}

/// Missed and throughput of some policies.
pub(super) fn figures(runs: &[NamedRun]) -> Vec<ReportedFigure> {
    let each = |run: &NamedRun| {
        let name = run.name.clone();
        [
            ReportedFigure::new(
                format!("{name}: transfers below 10 MB/s"),
                "%",
                None,
                of(name.clone(), missed),
            ),
            ReportedFigure::new(format!("{name}: throughput"), "MB/s", None, of(name, throughput)),
        ]
    };
    runs.iter().flat_map(each).collect()
}

/// Plots the rate of each transfer, in the order in which they began.
fn rates(runs: &[NamedRun]) -> Plot {
    let names: Vec<String> = runs.iter().map(|run| run.name.clone()).collect();
    Plot {
        title: "average rate of each transfer".to_owned(),
        unit: "MB/s",
        over: "transfer",
        marks: vec![("asked for", 10.0)],
        lines: Box::new(move |trial| {
            let line = |name: &String| trial.run(name).map(|run| line(name, run));
            names.iter().filter_map(line).collect()
        }),
    }
}

fn line(name: &str, run: &RunResult) -> PlotLine {
    let numbered = (1u32..).zip(&run.transfers);
    let points = numbered.filter_map(|(number, one)| Some((f64::from(number), one.rate()? / MB))).collect();
    PlotLine { name: name.to_owned(), points }
}

pub(super) fn fig3() -> Experiment {
    let runs = vec![idle(PlacementPolicy::RoundRobin), idle(STATIC)];
    Experiment {
        quantities: vec![
            JudgedQuantity::new("RR: transfers below 10 MB/s", Tolerance::AtLeast(50.0), of("RR", missed))
                .unit("%"),
            JudgedQuantity::new(
                "StaticQoS: transfers below 10 MB/s",
                Tolerance::AtMost(10.0),
                of("StaticQoS", missed),
            )
            .unit("%"),
            JudgedQuantity::new("throughput, RR : StaticQoS", Tolerance::AtMost(0.67), |trial| {
                quotient(trial, throughput, "RR", "StaticQoS")
            }),
        ],
        figures: figures(&runs),
        plots: vec![rates(&runs)],
        runs,
        ..Experiment::of("nikolow.fig3")
    }
}

pub(super) fn fig4() -> Experiment {
    let runs: Vec<NamedRun> = FIVE.into_iter().skip(1).map(idle).collect();
    Experiment {
        quantities: vec![
            JudgedQuantity::new("throughput, SM-R1 : StaticQoS", Tolerance::AtLeast(1.0), |trial| {
                quotient(trial, throughput, "SM-R1", "StaticQoS")
            }),
            JudgedQuantity::new("transfers below, SM-R1 less StaticQoS", Tolerance::AtLeast(1.0), |trial| {
                difference(trial, missed, "SM-R1", "StaticQoS")
            })
            .unit("%"),
            JudgedQuantity::new("throughput, SM-R2 : SM-R1", Tolerance::AtMost(0.67), |trial| {
                quotient(trial, throughput, "SM-R2", "SM-R1")
            }),
            JudgedQuantity::new("transfers below, SM-R3 less StaticQoS", Tolerance::AtMost(2.0), |trial| {
                difference(trial, missed, "SM-R3", "StaticQoS")
            })
            .unit("%"),
            JudgedQuantity::new("throughput, SM-R3 : StaticQoS", Tolerance::AtLeast(1.0), |trial| {
                quotient(trial, throughput, "SM-R3", "StaticQoS")
            }),
        ],
        figures: figures(&runs),
        plots: vec![rates(&runs)],
        runs,
        ..Experiment::of("nikolow.fig4")
    }
}

/// The two policies of fig. 5 under a load from outside, beside all five as figures.
fn under_external(id: &'static str, load: fn(TransferPlan) -> TransferPlan) -> Experiment {
    let under_load = |policy: PlacementPolicy| {
        let plan = load(plan("loaded", policy, papers_nodes()));
        NamedRun::new(format!("{}, loaded", name(policy)), plan)
    };
    let mut runs: Vec<NamedRun> = FIVE.into_iter().map(under_load).collect();
    let figures = figures(&runs);
    let plots = vec![rates(&[under_load(STATIC), under_load(PlacementPolicy::SM_R3)])];
    runs.extend([idle(STATIC), idle(PlacementPolicy::SM_R3)]);
    Experiment {
        quantities: vec![
            JudgedQuantity::new(
                "StaticQoS: transfers below, loaded less idle",
                Tolerance::AtLeast(20.0),
                |trial| difference(trial, missed, "StaticQoS, loaded", "StaticQoS"),
            )
            .unit("%"),
            JudgedQuantity::new(
                "SM-R3: transfers below, loaded less idle",
                Tolerance::AtMost(10.0),
                |trial| difference(trial, missed, "SM-R3, loaded", "SM-R3"),
            )
            .unit("%"),
            JudgedQuantity::new(
                "SM-R3, loaded: transfers below 8 MB/s",
                Tolerance::AtMost(5.0),
                of("SM-R3, loaded", far_below),
            )
            .unit("%"),
            JudgedQuantity::new("throughput, loaded, SM-R3 : StaticQoS", Tolerance::AtLeast(1.1), |trial| {
                quotient(trial, throughput, "SM-R3, loaded", "StaticQoS, loaded")
            }),
        ],
        figures,
        plots,
        runs,
        ..Experiment::of(id)
    }
}

pub(super) fn fig5() -> Experiment {
    under_external("nikolow.fig5", loaded)
}

pub(super) fn fig5_disk() -> Experiment {
    under_external("nikolow.fig5-disk", loaded_disk)
}

/// Varies the assumptions that the paper leaves open, to see if the policies' order depends on them.
pub(super) fn assumptions() -> Experiment {
    let costs = |factor: f64, policy: PlacementPolicy| {
        let mut plan = plan(&format!("costs × {factor}"), policy, papers_nodes());
        for node in &mut plan.nodes {
            node.model.concurrency_cost *= factor;
        }
        NamedRun::new(format!("costs × {factor}, {}", name(policy)), plan)
    };
    let sized = |mb: u64, policy: PlacementPolicy| {
        let mut plan = plan(&format!("{mb} MB"), policy, papers_nodes());
        plan.size = tidegate_units::Bytes::new(mb * 1_000_000);
        NamedRun::new(format!("{mb} MB, {}", name(policy)), plan)
    };
    let mut runs = Vec::new();
    let mut quantities = Vec::new();
    for what in ["costs × 0.5", "costs × 2", "400 MB", "4000 MB"] {
        runs.extend(FIVE.map(|policy| match what {
            "costs × 0.5" => costs(0.5, policy),
            "costs × 2" => costs(2.0, policy),
            "400 MB" => sized(400, policy),
            _ => sized(4000, policy),
        }));
        let (rr, r1, r3) = (format!("{what}, RR"), format!("{what}, SM-R1"), format!("{what}, SM-R3"));
        let (first, second) = (r3.clone(), r3.clone());
        quantities.push(
            JudgedQuantity::new(
                format!("{what}: transfers below, SM-R3 less RR"),
                Tolerance::AtMost(-30.0),
                move |trial| difference(trial, missed, &first, &rr),
            )
            .unit("%"),
        );
        quantities.push(
            JudgedQuantity::new(
                format!("{what}: transfers below, SM-R3 less SM-R1"),
                Tolerance::AtMost(2.0),
                move |trial| difference(trial, missed, &second, &r1),
            )
            .unit("%"),
        );
    }
    Experiment { quantities, figures: figures(&runs), runs, ..Experiment::of("nikolow.assumptions") }
}
