//! Nikolow: D. Nikolow, R. Słota, J. Kitowski, *Storage QoS Aspects in Distributed Virtualized Environments*,
//! CLOUD COMPUTING 2010.
//!
//! The paper gives the nodes' peaks, the rate that is asked for, the pause and the number of transfers; its
//! figures are lost in the text, and its results are words. What it leaves open was chosen before the first
//! run:
//!
//! - A transfer writes 1 GB, so that at one per second more is asked for than the nodes can do, as the
//!   paper's waiting transfers imply. A node gives all that it has to its transfers, in equal parts.
//! - Each further transfer costs 0.5 % of what the disk array moves, and 3 % of what Lustre and the disk
//!   move: the paper says that concurrency costs bandwidth, not how much. `nikolow.assumptions` halves and
//!   doubles it.
//! - A node's bandwidth varies by 5 % from second to second.
//! - The coefficients are k1 = k2 = k3 = 1, no overhead, and k4 = 1.25, since the paper has the static policy
//!   leave something unused.
//! - Sensors sample once a second; ma10 is what a node's transfers moved together.
//! - What a transfer reserves and does not use over ten samples is lent. Only SM-R1 looks at reservations.
//! - Of the nodes that can carry a transfer the one is chosen on which the policy expects the most for it.
//! - Under external load others take 20 to 60 % of each node, another part every 20 s. The paper names "the
//!   disk", and all its nodes are on one machine.

mod further;
mod learnt;
mod papers;
mod processor;

use std::time::Duration;

use tidegate_device::StorageNodeConfig;
use tidegate_placement::PlacementPolicy;
use tidegate_sim::transfers::{ExternalLoad, NodePlan, TransferFindings, TransferPlan};
use tidegate_units::{ByteRate, Bytes, Latency, ResourceName};

use super::measure::ratio;
use super::{Experiment, RunResult, SeedTrial};

/// All of the paper's experiments, in its order, and what is beyond them.
pub(super) fn experiments() -> Vec<Experiment> {
    vec![
        papers::fig3(),
        papers::fig4(),
        papers::fig5(),
        papers::fig5_disk(),
        papers::assumptions(),
        further::guesses(),
        further::sensor(),
        further::lend(),
        further::own_average(),
        further::peaks(),
        processor::processor(),
        further::tape(),
        learnt::learnt(),
        learnt::default(),
    ]
}

const MB: f64 = 1e6;

/// The rate that every transfer asks for, in bytes per second.
const ASKED: f64 = 10.0 * MB;

/// The number of transfers to be made.
const TRANSFERS: u32 = 100;

const STATIC: PlacementPolicy = PlacementPolicy::StaticQos { overhead: 1.25 };
const SM_R1: PlacementPolicy = PlacementPolicy::SmR1 { overhead: 1.0 };
const SM_R2: PlacementPolicy = PlacementPolicy::SmR2 { overhead: 1.0 };

/// Returns the policy's name in tables and plots.
const fn name(policy: PlacementPolicy) -> &'static str {
    match policy {
        PlacementPolicy::RoundRobin => "RR",
        PlacementPolicy::StaticQos { .. } => "StaticQoS",
        PlacementPolicy::SmR1 { .. } => "SM-R1",
        PlacementPolicy::SmR2 { .. } => "SM-R2",
        PlacementPolicy::SmR3 { .. } => "SM-R3",
        PlacementPolicy::SmR3OfNode { .. } => "SM-R3 of the node",
        PlacementPolicy::Learnt => "learnt",
    }
}

/// A node: its peak in MB/s, and what a further transfer costs.
fn node(text: &str, peak: f64, cost: f64) -> NodePlan {
    NodePlan {
        name: ResourceName::new(text).unwrap_or_else(|error| panic!("a name of ours is wrong: {error}")),
        model: StorageNodeConfig {
            peak: ByteRate::new(peak * MB),
            concurrency_cost: cost,
            client: None,
            recall: Latency::ZERO,
            drives: None,
            jitter: 0.05,
        },
        external: None,
        holds_one_in: 1,
        tapes: None,
    }
}

/// The paper's nodes.
fn papers_nodes() -> Vec<NodePlan> {
    vec![node("lustre", 20.0, 0.03), node("array", 300.0, 0.005), node("disk", 60.0, 0.03)]
}

/// A hundred transfers, one per second.
fn plan(what: &str, policy: PlacementPolicy, nodes: Vec<NodePlan>) -> TransferPlan {
    TransferPlan {
        name: format!("nikolow: {what}, {}", name(policy)),
        duration: Duration::from_secs(4 * 3600),
        policy,
        nodes,
        processor: None,
        lend: true,
        senses: false,
        learns_peaks: false,
        transfers: TRANSFERS,
        size: Bytes::new(1_000_000_000),
        asks: ByteRate::new(ASKED),
        every: Duration::from_secs(1),
        sample: Duration::from_secs(1),
        reads: None,
    }
}

/// The load from outside.
const OTHERS: ExternalLoad = ExternalLoad { least: 0.2, greatest: 0.6, every: Duration::from_secs(20) };

/// The same with load from outside on every node.
fn loaded(mut plan: TransferPlan) -> TransferPlan {
    for node in &mut plan.nodes {
        node.external = Some(OTHERS);
    }
    plan
}

/// The same with load from outside on the local disk alone, as the paper's words have it (§IV.C).
fn loaded_disk(mut plan: TransferPlan) -> TransferPlan {
    for node in plan.nodes.iter_mut().filter(|node| node.name.as_str() == "disk") {
        node.external = Some(OTHERS);
    }
    plan
}

/// In per cent, the part of the transfers that did not get what they asked for. One that did not end got
/// nothing. Where some never began nothing is known.
fn missed(run: &RunResult) -> Option<f64> {
    let short = all(run)?.iter().filter(|one| !got(one)).count();
    Some(short as f64 * 100.0 / f64::from(TRANSFERS))
}

fn all(run: &RunResult) -> Option<&[TransferFindings]> {
    (run.transfers.len() == TRANSFERS as usize).then_some(&run.transfers)
}

fn got(transfer: &TransferFindings) -> bool {
    transfer.rate().is_some_and(|rate| rate >= ASKED)
}

/// All that was moved over the time of all transfers, in MB/s.
fn throughput(run: &RunResult) -> Option<f64> {
    let ended: f64 =
        all(run)?.iter().map(|one| one.ended_s).collect::<Option<Vec<_>>>()?.into_iter().fold(0.0, f64::max);
    let bytes: f64 = run.transfers.iter().map(|one| one.size.get() as f64).sum();
    ratio(Some(bytes / MB), Some(ended))
}

/// In per cent, the part of the transfers that did not get four fifths of what they asked for: those that
/// are not "quite close" to it.
fn far_below(run: &RunResult) -> Option<f64> {
    let is_far = |one: &&TransferFindings| one.rate().is_none_or(|rate| rate < 0.8 * ASKED);
    Some(all(run)?.iter().filter(is_far).count() as f64 * 100.0 / f64::from(TRANSFERS))
}

/// A number of one run less that of another.
fn difference(
    trial: &SeedTrial<'_>,
    of: fn(&RunResult) -> Option<f64>,
    run: &str,
    from: &str,
) -> Option<f64> {
    Some(of(trial.run(run)?)? - of(trial.run(from)?)?)
}

/// A number of one run over that of another.
fn quotient(trial: &SeedTrial<'_>, of: fn(&RunResult) -> Option<f64>, run: &str, by: &str) -> Option<f64> {
    ratio(of(trial.run(run)?), of(trial.run(by)?))
}
