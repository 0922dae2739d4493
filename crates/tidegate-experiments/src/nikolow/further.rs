//! Beyond the paper's figures: what a sensor adds, what lending does, tapes, and whether what we guess about
//! the paper explains where we differ from it.

use std::time::Duration;

use tidegate_placement::PlacementPolicy;
use tidegate_sim::transfers::{ExternalLoad, ReadTransfers, TapeModel, TransferFindings, TransferPlan};
use tidegate_units::{ByteRate, Bytes, Latency};

use super::papers::figures;
use super::{
    MB, SM_R1, SM_R2, STATIC, all, difference, loaded, loaded_disk, missed, name, node, papers_nodes, plan,
    quotient, throughput,
};
use crate::measure::{of, ratio};
use crate::{Experiment, JudgedQuantity, NamedRun, ReportedFigure, RunResult, Tolerance};

/// SM-R2 takes from a node's peak what moves there. Without a sensor that is what transfers move.
pub(super) fn sensor() -> Experiment {
    let run = |policy: PlacementPolicy, load: bool, senses: bool| {
        let what = match (load, senses) {
            (false, false) => "",
            (false, true) => ", sensors",
            (true, false) => ", loaded",
            (true, true) => ", loaded, sensors",
        };
        let named = format!("{}{what}", name(policy));
        let mut plan = plan(&named, policy, papers_nodes());
        if load {
            plan = loaded(plan);
        }
        plan.senses = senses;
        NamedRun::new(named, plan)
    };
    let mut runs = Vec::new();
    for load in [false, true] {
        runs.extend([run(SM_R2, load, false), run(SM_R2, load, true)]);
    }
    runs.push(run(PlacementPolicy::SM_R3, true, true));
    Experiment {
        quantities: vec![
            JudgedQuantity::new(
                "idle: transfers below, SM-R2 with less without sensors",
                Tolerance::Between(-0.5, 0.5),
                |trial| difference(trial, missed, "SM-R2, sensors", "SM-R2"),
            )
            .unit("%"),
            JudgedQuantity::new(
                "loaded: transfers below, SM-R2 with less without sensors",
                Tolerance::AtMost(-10.0),
                |trial| difference(trial, missed, "SM-R2, loaded, sensors", "SM-R2, loaded"),
            )
            .unit("%"),
            JudgedQuantity::new(
                "loaded: throughput, SM-R2 with : without sensors",
                Tolerance::AtLeast(1.0),
                |trial| quotient(trial, throughput, "SM-R2, loaded, sensors", "SM-R2, loaded"),
            ),
        ],
        figures: figures(&runs),
        runs,
        ..Experiment::of("nikolow.sensor")
    }
}

/// The greatest rate of a client that is slower than the rate it asks for, in bytes per second.
const SLOW_CLIENT: f64 = 5.0 * MB;

/// SM-R1 with and without lending what is reserved and not used, with sensors and without.
pub(super) fn lend() -> Experiment {
    let run = |what: &'static str, senses: bool, lend: bool| {
        let sensors = if senses { ", sensors" } else { "" };
        let named = format!("{what}{sensors}, {}", if lend { "lent" } else { "kept" });
        let mut plan = plan(&named, SM_R1, papers_nodes());
        match what {
            "slow clients" => {
                for node in &mut plan.nodes {
                    node.model.client = Some(ByteRate::new(SLOW_CLIENT));
                }
            }
            "loaded" => plan = loaded(plan),
            _ => {}
        }
        (plan.lend, plan.senses) = (lend, senses);
        NamedRun::new(named, plan)
    };
    let states = ["slow clients", "loaded", "idle"];
    let runs: Vec<NamedRun> = states
        .iter()
        .flat_map(|what| {
            [(true, true), (true, false), (false, true), (false, false)]
                .map(|(senses, lend)| run(what, senses, lend))
        })
        .collect();
    let mut figures = figures(&runs);
    figures.push(ReportedFigure::new(
        "slow clients, without sensors: throughput, lent : kept",
        "",
        None,
        |trial| quotient(trial, throughput, "slow clients, lent", "slow clients, kept"),
    ));
    Experiment {
        quantities: vec![
            JudgedQuantity::new("slow clients: throughput, lent : kept", Tolerance::AtLeast(1.2), |trial| {
                quotient(trial, throughput, "slow clients, sensors, lent", "slow clients, sensors, kept")
            }),
            JudgedQuantity::new(
                "slow clients: mean rate of transfers, lent : kept",
                Tolerance::Between(0.95, 1.01),
                |trial| {
                    quotient(trial, mean_rate, "slow clients, sensors, lent", "slow clients, sensors, kept")
                },
            ),
            JudgedQuantity::new("loaded: transfers below, lent less kept", Tolerance::AtMost(5.0), |trial| {
                difference(trial, missed, "loaded, sensors, lent", "loaded, sensors, kept")
            })
            .unit("%"),
            JudgedQuantity::new("idle: transfers below, lent less kept", Tolerance::AtMost(2.0), |trial| {
                difference(trial, missed, "idle, sensors, lent", "idle, sensors, kept")
            })
            .unit("%"),
        ],
        figures,
        runs,
        ..Experiment::of("nikolow.lend")
    }
}

const OF_NODE: PlacementPolicy = PlacementPolicy::SmR3OfNode { overhead: 1.0 };

/// Eq. 3 with the average of the node, others' data among it, beside that of its transfers.
pub(super) fn own_average() -> Experiment {
    type Load = fn(TransferPlan) -> TransferPlan;
    const LOADS: [(&str, Load); 3] =
        [("idle", |plan| plan), ("loaded", loaded), ("loaded disk", loaded_disk)];
    let named = |policy: PlacementPolicy, load: &str| format!("{}, {load}", name(policy));
    let run = |policy: PlacementPolicy, (what, load): (&'static str, Load)| {
        let mut plan = load(plan(&format!("own average, {what}"), policy, papers_nodes()));
        plan.senses = true;
        NamedRun::new(named(policy, what), plan)
    };
    let runs: Vec<NamedRun> = LOADS
        .into_iter()
        .flat_map(|load| [OF_NODE, PlacementPolicy::SM_R3, STATIC].map(|policy| run(policy, load)))
        .collect();
    let mut quantities = Vec::new();
    for load in ["loaded", "loaded disk"] {
        quantities.push(
            JudgedQuantity::new(
                format!("{load}: transfers below, SM-R3 of the node, loaded less idle"),
                Tolerance::AtMost(10.0),
                move |trial| difference(trial, missed, &named(OF_NODE, load), &named(OF_NODE, "idle")),
            )
            .unit("%"),
        );
        quantities.push(JudgedQuantity::new(
            format!("{load}: throughput, SM-R3 of the node : StaticQoS"),
            Tolerance::AtLeast(1.1),
            move |trial| quotient(trial, throughput, &named(OF_NODE, load), &named(STATIC, load)),
        ));
    }
    Experiment { quantities, figures: figures(&runs), runs, ..Experiment::of("nikolow.own-average") }
}

/// Policies that look at a node's peak, with peaks that are configured and peaks that are learnt.
pub(super) fn peaks() -> Experiment {
    const POLICIES: [PlacementPolicy; 4] = [STATIC, SM_R1, PlacementPolicy::SM_R3, PlacementPolicy::Learnt];
    // Under load only a sensor shows what a node could move.
    const STATES: [(&str, bool, bool); 3] =
        [("idle", false, false), ("loaded", true, true), ("loaded, without sensors", true, false)];
    let mut runs = Vec::new();
    let mut quantities = Vec::new();
    for (state, is_loaded, senses) in STATES {
        for policy in POLICIES {
            let [pinned, learnt] = [("configured", false), ("learnt", true)].map(|(how, learns_peaks)| {
                let how = format!("{state}, {how} peaks");
                let idle = plan(&format!("peaks, {how}"), policy, papers_nodes());
                let plan = if is_loaded { loaded(idle) } else { idle };
                let named = format!("{}, {how}", name(policy));
                runs.push(NamedRun::new(named.clone(), TransferPlan { senses, learns_peaks, ..plan }));
                named
            });
            quantities.push(
                JudgedQuantity::new(
                    format!("{state}, {}: transfers below, learnt peaks less configured", name(policy)),
                    Tolerance::Between(-5.0, 5.0),
                    move |trial| difference(trial, missed, &learnt, &pinned),
                )
                .unit("%"),
            );
        }
    }
    Experiment { quantities, figures: figures(&runs), runs, ..Experiment::of("nikolow.peaks") }
}

/// Returns the mean of the transfers' average rates, in MB/s.
fn mean_rate(run: &RunResult) -> Option<f64> {
    let rates: Vec<f64> = all(run)?.iter().map(TransferFindings::rate).collect::<Option<_>>()?;
    Some(rates.iter().sum::<f64>() / rates.len() as f64 / MB)
}

/// Varies the parts of the paper's set-up that are guesses, to see if one of them makes our results agree
/// with it. Its tolerances are those of figs. 4 and 5.
pub(super) fn guesses() -> Experiment {
    let steadier = |plan: TransferPlan| {
        let mut plan = loaded(plan);
        for node in &mut plan.nodes {
            let external = ExternalLoad { least: 0.2, greatest: 0.6, every: Duration::from_secs(200) };
            node.external = Some(external);
        }
        plan
    };
    let narrower = |plan: TransferPlan| {
        let mut plan = loaded(plan);
        for node in &mut plan.nodes {
            let external = ExternalLoad { least: 0.35, greatest: 0.45, every: Duration::from_secs(20) };
            node.external = Some(external);
        }
        plan
    };
    let capped = |plan: TransferPlan, mb: f64| {
        let mut plan = plan;
        for node in &mut plan.nodes {
            node.model.client = Some(ByteRate::new(mb * MB));
        }
        plan
    };
    let mut runs = vec![NamedRun::new("SM-R3", plan("idle", PlacementPolicy::SM_R3, papers_nodes()))];
    for policy in [STATIC, PlacementPolicy::SM_R3] {
        for what in ["every 200 s", "35 to 45 %"] {
            let plan = plan(&format!("load {what}"), policy, papers_nodes());
            let plan = if what == "every 200 s" { steadier(plan) } else { narrower(plan) };
            runs.push(NamedRun::new(format!("{}, load {what}", name(policy)), plan));
        }
    }
    let mut quantities = Vec::new();
    for what in ["every 200 s", "35 to 45 %"] {
        let (r3, fixed) = (format!("SM-R3, load {what}"), format!("StaticQoS, load {what}"));
        let again = r3.clone();
        quantities.push(
            JudgedQuantity::new(
                format!("load {what}: SM-R3: transfers below, loaded less idle"),
                Tolerance::AtMost(10.0),
                move |trial| difference(trial, missed, &r3, "SM-R3"),
            )
            .unit("%"),
        );
        quantities.push(JudgedQuantity::new(
            format!("load {what}: throughput, SM-R3 : StaticQoS"),
            Tolerance::AtLeast(1.1),
            move |trial| quotient(trial, throughput, &again, &fixed),
        ));
    }
    for mb in [12.0, 25.0] {
        let cap = move |policy: PlacementPolicy| format!("{}, {mb} MB/s at most", name(policy));
        for policy in [STATIC, SM_R1, PlacementPolicy::SM_R3] {
            let plan = capped(plan(&format!("{mb} MB/s at most"), policy, papers_nodes()), mb);
            runs.push(NamedRun::new(cap(policy), plan));
        }
        for policy in [SM_R1, PlacementPolicy::SM_R3] {
            quantities.push(JudgedQuantity::new(
                format!("{mb} MB/s at most: throughput, {} : StaticQoS", name(policy)),
                Tolerance::AtLeast(1.0),
                move |trial| quotient(trial, throughput, &cap(policy), &cap(STATIC)),
            ));
        }
    }
    Experiment { quantities, figures: figures(&runs), runs, ..Experiment::of("nikolow.guesses") }
}

/// The time within which a first byte is needed, where one is.
const SOON: Latency = Latency::from_millis(1_000);

/// Reads of what is on tape, on a disk, or on both.
pub(super) fn tape() -> Experiment {
    let run = |named: &'static str, described: bool| {
        let mut disk = node("disk", 60.0, 0.03);
        disk.holds_one_in = 2;
        let mut store = node("store", 300.0, 0.005);
        store.model.recall = Latency::from_millis(60_000);
        store.model.drives = Some(2);
        store.tapes = Some(TapeModel { cache: Bytes::new(5_000_000_000), described });
        let mut plan = plan(&format!("tape, {named}"), PlacementPolicy::SM_R3, vec![disk, store]);
        plan.size = Bytes::new(500_000_000);
        plan.asks = ByteRate::new(RATE);
        plan.every = Duration::from_secs(10);
        plan.reads = Some(ReadTransfers { objects: 40, soon: SOON });
        NamedRun::new(named, plan)
    };
    let runs = vec![run("described", true), run("not described", false)];
    let each = |run: &NamedRun| {
        let named = run.name.clone();
        let figure = |what: &str, unit, measure: fn(&RunResult) -> Option<f64>| {
            ReportedFigure::new(format!("{named}: {what}"), unit, None, of(named.clone(), measure))
        };
        [
            figure("first bytes that came late, from the grant", "%", late),
            figure("first bytes that came late, from being asked for", "%", late_for_who_waits),
            figure("reads below 2 MB/s", "%", slow),
            figure("longest from a grant to a first byte", "s", longest),
            figure("all read after", "s", ended),
        ]
    };
    Experiment {
        quantities: vec![
            JudgedQuantity::new(
                "described: first bytes that came late, from the grant",
                Tolerance::AtMost(0.0),
                of("described", late),
            )
            .unit("%"),
            JudgedQuantity::new(
                "described: first bytes that came late, from being asked for",
                Tolerance::AtMost(10.0),
                of("described", late_for_who_waits),
            )
            .unit("%"),
            JudgedQuantity::new(
                "described: longest from a grant to a first byte",
                Tolerance::AtMost(60.5),
                of("described", longest),
            )
            .unit("s"),
            JudgedQuantity::new(
                "described: reads below 2 MB/s",
                Tolerance::AtMost(1.0),
                of("described", slow),
            )
            .unit("%"),
            JudgedQuantity::new(
                "first bytes that came late, not described less described",
                Tolerance::AtLeast(1.0),
                |trial| difference(trial, late, "not described", "described"),
            )
            .unit("%"),
            JudgedQuantity::new(
                "all read after, described : not described",
                Tolerance::AtMost(1.1),
                |trial| ratio(ended(trial.run("described")?), ended(trial.run("not described")?)),
            ),
        ],
        figures: runs.iter().flat_map(each).collect(),
        runs,
        ..Experiment::of("nikolow.tape")
    }
}

/// The rate that a read needs if it does not need its first byte soon, in bytes per second.
const RATE: f64 = 2.0 * MB;

/// The part of those that need their first byte soon of which something is so, in per cent.
fn of_the_soon(run: &RunResult, is: impl Fn(&TransferFindings, Latency) -> bool) -> Option<f64> {
    let soon: Vec<_> = all(run)?.iter().filter_map(|one| Some((one, one.soon?))).collect();
    let count = soon.iter().filter(|(one, soon)| is(one, *soon)).count();
    ratio(Some(count as f64 * 100.0), Some(soon.len() as f64))
}

/// Returns true if the first byte came later after `since` than it is needed. One that never came is late.
fn is_late(one: &TransferFindings, since: f64, soon: Latency) -> bool {
    one.moved_s.is_none_or(|moved| moved - since > soon.as_secs_f64())
}

fn late(run: &RunResult) -> Option<f64> {
    of_the_soon(run, |one, soon| is_late(one, one.began_s, soon))
}

fn late_for_who_waits(run: &RunResult) -> Option<f64> {
    of_the_soon(run, |one, soon| is_late(one, one.asked_s, soon))
}

/// In per cent, the part of the others that got less than they asked for, from the grant.
fn slow(run: &RunResult) -> Option<f64> {
    let others: Vec<_> = all(run)?.iter().filter(|one| one.soon.is_none()).collect();
    let slow = others.iter().filter(|one| one.rate().is_none_or(|rate| rate < RATE)).count();
    ratio(Some(slow as f64 * 100.0), Some(others.len() as f64))
}

fn longest(run: &RunResult) -> Option<f64> {
    let waits = all(run)?.iter().map(|one| Some(one.moved_s? - one.began_s)).collect::<Option<Vec<_>>>()?;
    Some(waits.into_iter().fold(0.0, f64::max))
}

/// Returns the time when the last read had ended, in seconds.
fn ended(run: &RunResult) -> Option<f64> {
    let ends = all(run)?.iter().map(|one| one.ended_s).collect::<Option<Vec<_>>>()?;
    Some(ends.into_iter().fold(0.0, f64::max))
}
