//! Beyond the paper: the policy that learns, beside the paper's best, and which of the two is the default.

use std::time::Duration;

use tidegate_placement::PlacementPolicy;
use tidegate_sim::transfers::{ExternalLoad, NodePlan};

use super::{loaded, missed, name, node, papers_nodes, plan, throughput};
use crate::measure::ratio;
use crate::{Experiment, JudgedQuantity, NamedRun, ReportedFigure, RunResult, SeedTrial, Tolerance};

/// The paper's nodes, and others of other number, speed and cost.
const SETS: [&str; 5] =
    ["the paper's", "two equal", "five unequal", "four of dear concurrency", "two that others use"];

/// Sets that neither was looked at with before, and nodes of new names, to which other random numbers belong.
/// Written before their first run.
const UNSEEN: [&str; 5] = [
    "three alike",
    "one fast, five slow",
    "cheap and dear concurrency",
    "three unlike",
    "two with long bursts",
];

fn nodes(set: &str) -> Vec<NodePlan> {
    match set {
        "three alike" => ["t1", "t2", "t3"].map(|text| node(text, 80.0, 0.02)).to_vec(),
        "one fast, five slow" => {
            let slow = ["s1", "s2", "s3", "s4", "s5"].map(|text| node(text, 25.0, 0.05));
            std::iter::once(node("fast", 400.0, 0.005)).chain(slow).collect()
        }
        "cheap and dear concurrency" => vec![node("cheap", 150.0, 0.0), node("dear", 150.0, 0.08)],
        "three unlike" => vec![node("u1", 40.0, 0.04), node("u2", 150.0, 0.01), node("u3", 90.0, 0.02)],
        "two with long bursts" => vec![node("l1", 250.0, 0.01), node("l2", 70.0, 0.03)],
        "two equal" => vec![node("a", 100.0, 0.01), node("b", 100.0, 0.01)],
        "five unequal" => vec![
            node("a", 15.0, 0.05),
            node("b", 40.0, 0.03),
            node("c", 40.0, 0.03),
            node("d", 120.0, 0.01),
            node("e", 500.0, 0.005),
        ],
        "four of dear concurrency" => ["a", "b", "c", "d"].map(|text| node(text, 30.0, 0.1)).to_vec(),
        "two that others use" => vec![node("a", 200.0, 0.01), node("b", 50.0, 0.03)],
        _ => papers_nodes(),
    }
}

fn run(set: &'static str, policy: PlacementPolicy, load: bool) -> NamedRun {
    let mut plan = plan(set, policy, nodes(set));
    if load {
        plan = loaded(plan);
        plan.name.push_str(", loaded");
        if set == "two that others use" {
            for node in &mut plan.nodes {
                node.external =
                    Some(ExternalLoad { least: 0.0, greatest: 0.9, every: Duration::from_secs(10) });
            }
        }
        if set == "two with long bursts" {
            for node in &mut plan.nodes {
                node.external =
                    Some(ExternalLoad { least: 0.1, greatest: 0.8, every: Duration::from_secs(40) });
            }
        }
    }
    NamedRun::new(run_name(set, policy, load), plan)
}

fn run_name(set: &str, policy: PlacementPolicy, load: bool) -> String {
    format!("{set}{}, {}", if load { ", loaded" } else { "" }, name(policy))
}

/// The mean over all sets of a number of both policies together.
fn over_sets(
    trial: &SeedTrial<'_>,
    sets: &[&str],
    load: bool,
    number: fn(&RunResult, &RunResult) -> Option<f64>,
) -> Option<f64> {
    let each = |set: &&str| {
        let of = |policy| trial.run(&run_name(set, policy, load));
        number(of(PlacementPolicy::Learnt)?, of(PlacementPolicy::SM_R3)?)
    };
    let numbers: Vec<f64> = sets.iter().map(each).collect::<Option<_>>()?;
    Some(numbers.iter().sum::<f64>() / sets.len() as f64)
}

fn less_missed(learnt: &RunResult, best: &RunResult) -> Option<f64> {
    Some(missed(learnt)? - missed(best)?)
}

fn more_moved(learnt: &RunResult, best: &RunResult) -> Option<f64> {
    ratio(throughput(learnt), throughput(best))
}

pub(super) fn learnt() -> Experiment {
    let (runs, quantities, figures) = beside(&SETS);
    Experiment { runs, quantities, figures, ..Experiment::of("nikolow.learnt") }
}

pub(super) fn default() -> Experiment {
    let (runs, quantities, figures) = beside(&UNSEEN);
    Experiment { runs, quantities, figures, ..Experiment::of("nikolow.default") }
}

/// Both policies on some sets, idle and loaded, and by what they are judged.
fn beside(sets: &'static [&'static str]) -> (Vec<NamedRun>, Vec<JudgedQuantity>, Vec<ReportedFigure>) {
    let mut runs = Vec::new();
    let mut figures = Vec::new();
    let mut quantities = Vec::new();
    for load in [false, true] {
        let state = if load { "loaded" } else { "idle" };
        for &set in sets {
            for policy in [PlacementPolicy::SM_R3, PlacementPolicy::Learnt] {
                let name = run_name(set, policy, load);
                let (of_missed, of_throughput) = (name.clone(), name.clone());
                figures.push(ReportedFigure::new(
                    format!("{name}: transfers below 10 MB/s"),
                    "%",
                    None,
                    move |trial| missed(trial.run(&of_missed)?),
                ));
                figures.push(ReportedFigure::new(
                    format!("{name}: throughput"),
                    "MB/s",
                    None,
                    move |trial| throughput(trial.run(&of_throughput)?),
                ));
                runs.push(run(set, policy, load));
            }
        }
        quantities.push(
            JudgedQuantity::new(
                format!("{state}: transfers below, learnt less SM-R3"),
                Tolerance::AtMost(0.0),
                move |trial| over_sets(trial, sets, load, less_missed),
            )
            .unit("%"),
        );
        quantities.push(JudgedQuantity::new(
            format!("{state}: throughput, learnt : SM-R3"),
            Tolerance::AtLeast(1.0),
            move |trial| over_sets(trial, sets, load, more_moved),
        ));
    }
    quantities.push(
        JudgedQuantity::new(
            "transfers below, SM-R3 less learnt, idle or loaded",
            Tolerance::AtLeast(1.0),
            move |trial| {
                let spared = |load| over_sets(trial, sets, load, less_missed).map(|difference| -difference);
                Some(spared(false)?.max(spared(true)?))
            },
        )
        .unit("%"),
    );
    (runs, quantities, figures)
}
