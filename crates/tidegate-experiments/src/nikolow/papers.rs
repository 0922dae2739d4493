//! Figs. 3 to 5: five policies on three nodes, idle and under load from outside.

use tidegate_placement::Policy;

use super::{
    MB, SM_R1, SM_R2, STATIC, difference, loaded, missed, name, of_the_missed, papers_nodes, plan, quotient,
    throughput,
};
use crate::measure::of;
use crate::{Accepts, Experiment, Figure, Line, Plot, Quantity, Run, RunResult};

const FIVE: [Policy; 5] = [Policy::RoundRobin, STATIC, SM_R1, SM_R2, Policy::SM_R3];

const SETUP: &str = "Nodes of 20, 300 and 60 MB/s, 100 writes of 1 GB that ask for 10 MB/s each, one per second as long as a node can carry it. \
    The paper does not give the size of a write, what concurrency costs (here 3, 0.5 and 3 % per further transfer), or k1 to k4 \
    (here 1, 1, 1 and 1.25).";

fn idle(policy: Policy) -> Run {
    Run::new(name(policy), plan("idle", policy, papers_nodes()))
}

fn under_load(policy: Policy) -> Run {
    Run::new(format!("{}, loaded", name(policy)), loaded(plan("loaded", policy, papers_nodes())))
}

/// Missed and throughput of some policies.
pub(super) fn figures(runs: &[Run]) -> Vec<Figure> {
    let each = |run: &Run| {
        let name = run.name.clone();
        [
            Figure::new(format!("{name}: transfers below 10 MB/s"), "%", None, of(name.clone(), missed)),
            Figure::new(format!("{name}: throughput"), "MB/s", None, of(name, throughput)),
        ]
    };
    runs.iter().flat_map(each).collect()
}

/// Plots the rate of each transfer, in the order in which they began.
fn rates(runs: &[Run]) -> Plot {
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

fn line(name: &str, run: &RunResult) -> Line {
    let numbered = (1u32..).zip(&run.transfers);
    let points = numbered.filter_map(|(number, one)| Some((f64::from(number), one.rate()? / MB))).collect();
    Line { name: name.to_owned(), points }
}

pub(super) fn fig3() -> Experiment {
    let runs = vec![idle(Policy::RoundRobin), idle(STATIC)];
    Experiment {
        id: "nikolow.fig3",
        title: "Round robin and a static number of transfers, idle nodes",
        paper: "Round robin: most transfers do not get what they ask for, throughput is very low and limited by the slowest device. A \
                static limit: only several are below, quite close to what they ask for, and total throughput is much better.",
        setup: SETUP,
        quantities: vec![
            Quantity::new(
                "RR: transfers below 10 MB/s",
                Accepts::AtLeast(50.0),
                "most are more than half",
                of("RR", missed),
            )
            .unit("%"),
            Quantity::new(
                "StaticQoS: transfers below 10 MB/s",
                Accepts::AtMost(10.0),
                "several of a hundred are no more than ten",
                of("StaticQoS", missed),
            )
            .unit("%"),
            Quantity::new(
                "StaticQoS: mean rate of those below",
                Accepts::AtLeast(8.0),
                "quite close to 10 MB/s: within a fifth",
                of("StaticQoS", of_the_missed),
            )
            .unit("MB/s"),
            Quantity::new(
                "throughput, RR : StaticQoS",
                Accepts::AtMost(0.67),
                "much better is half as much again, at least",
                |trial| quotient(trial, throughput, "RR", "StaticQoS"),
            ),
        ],
        figures: figures(&runs),
        plots: vec![rates(&runs)],
        runs,
    }
}

pub(super) fn fig4() -> Experiment {
    let runs: Vec<Run> = FIVE.into_iter().skip(1).map(idle).collect();
    Experiment {
        id: "nikolow.fig4",
        title: "Three policies that monitor, idle nodes",
        paper: "SM-R1: high throughput, and more transfers below than with a static limit. SM-R2: very low performance, since its rule \
                remains true when many transfers are under way. SM-R3: the best results.",
        setup: SETUP,
        quantities: vec![
            Quantity::new(
                "throughput, SM-R1 : StaticQoS",
                Accepts::AtLeast(1.0),
                "high, where the static limit leaves room for higher",
                |trial| quotient(trial, throughput, "SM-R1", "StaticQoS"),
            ),
            Quantity::new(
                "transfers below, SM-R1 less StaticQoS",
                Accepts::AtLeast(1.0),
                "more are one of a hundred, at least",
                |trial| difference(trial, missed, "SM-R1", "StaticQoS"),
            )
            .unit("%"),
            Quantity::new(
                "throughput, SM-R2 : SM-R1",
                Accepts::AtMost(0.67),
                "very low, beside high: as for fig. 3",
                |trial| quotient(trial, throughput, "SM-R2", "SM-R1"),
            ),
            Quantity::new(
                "transfers below, SM-R3 less StaticQoS",
                Accepts::AtMost(2.0),
                "the best: no more, but for two of a hundred by chance",
                |trial| difference(trial, missed, "SM-R3", "StaticQoS"),
            )
            .unit("%"),
            Quantity::new(
                "throughput, SM-R3 : StaticQoS",
                Accepts::AtLeast(1.0),
                "the best results: no less than any other",
                |trial| quotient(trial, throughput, "SM-R3", "StaticQoS"),
            ),
        ],
        figures: figures(&runs),
        plots: vec![rates(&runs)],
        runs,
    }
}

pub(super) fn fig5() -> Experiment {
    let mut runs: Vec<Run> = FIVE.into_iter().map(under_load).collect();
    let figures = figures(&runs);
    let plots = vec![rates(&[under_load(STATIC), under_load(Policy::SM_R3)])];
    runs.extend([idle(STATIC), idle(Policy::SM_R3)]);
    Experiment {
        id: "nikolow.fig5",
        title: "The same under load from outside",
        paper: "The load has a heavy impact on the static policy, while with SM-R3 it does not significantly increase the number of \
                transfers below 10 MB/s, which are quite close to it; the throughput of SM-R3 is much better, too.",
        setup: "As for figs. 3 and 4. Others take 20 to 60 % of every node, another part every 20 s; the paper does not say how much. It has \
                StaticQoS and SM-R3 only.",
        quantities: vec![
            Quantity::new(
                "StaticQoS: transfers below, loaded less idle",
                Accepts::AtLeast(20.0),
                "heavy: a fifth of all, at least",
                |trial| difference(trial, missed, "StaticQoS, loaded", "StaticQoS"),
            )
            .unit("%"),
            Quantity::new(
                "SM-R3: transfers below, loaded less idle",
                Accepts::AtMost(10.0),
                "not significantly: a tenth of all, at most",
                |trial| difference(trial, missed, "SM-R3, loaded", "SM-R3"),
            )
            .unit("%"),
            Quantity::new(
                "SM-R3, loaded: mean rate of those below",
                Accepts::AtLeast(8.0),
                "quite close to 10 MB/s: within a fifth",
                of("SM-R3, loaded", of_the_missed),
            )
            .unit("MB/s"),
            Quantity::new(
                "throughput, loaded, SM-R3 : StaticQoS",
                Accepts::AtLeast(1.1),
                "much better: a tenth more, at least",
                |trial| quotient(trial, throughput, "SM-R3, loaded", "StaticQoS, loaded"),
            ),
        ],
        figures,
        plots,
        runs,
    }
}

/// Varies the assumptions that the paper leaves open, to see if the policies' order depends on them.
pub(super) fn assumptions() -> Experiment {
    let costs = |factor: f64, policy: Policy| {
        let mut plan = plan(&format!("costs × {factor}"), policy, papers_nodes());
        for node in &mut plan.nodes {
            node.model.concurrency_cost *= factor;
        }
        Run::new(format!("costs × {factor}, {}", name(policy)), plan)
    };
    let sized = |mb: u64, policy: Policy| {
        let mut plan = plan(&format!("{mb} MB"), policy, papers_nodes());
        plan.size = tidegate_units::Bytes::new(mb * 1_000_000);
        Run::new(format!("{mb} MB, {}", name(policy)), plan)
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
            Quantity::new(
                format!("{what}: transfers below, SM-R3 less RR"),
                Accepts::AtMost(-30.0),
                "the best and the worst are far apart",
                move |trial| difference(trial, missed, &first, &rr),
            )
            .unit("%"),
        );
        quantities.push(
            Quantity::new(
                format!("{what}: transfers below, SM-R3 less SM-R1"),
                Accepts::AtMost(2.0),
                "the best: no more, but for two of a hundred by chance",
                move |trial| difference(trial, missed, &second, &r1),
            )
            .unit("%"),
        );
    }
    Experiment {
        id: "nikolow.assumptions",
        title: "Half and double the costs of concurrency, and smaller and larger transfers",
        paper: "Of its five policies round robin is worst, and SM-R3 is best.",
        setup: "As for figs. 3 and 4 on idle nodes, with one of our assumptions changed at a time.",
        quantities,
        figures: figures(&runs),
        plots: Vec::new(),
        runs,
    }
}
