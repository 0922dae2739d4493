//! Processes of transfers that compete for the processor of their machine (§IV.B).

use tidegate_placement::PlacementPolicy;
use tidegate_units::ByteRate;

use super::papers::figures;
use super::{MB, SM_R2, missed, name, papers_nodes, plan, quotient, throughput};
use crate::measure::of;
use crate::{Experiment, JudgedQuantity, NamedRun, Tolerance};

/// The bytes per second that the processor moves: half of what the three nodes do together.
const PROCESSOR: f64 = 190.0 * MB;

/// SM-R2 and SM-R3, with a processor that their nodes share, and without.
pub(super) fn processor() -> Experiment {
    const POLICIES: [PlacementPolicy; 2] = [SM_R2, PlacementPolicy::SM_R3];
    let named = |policy: PlacementPolicy, shares: bool| {
        let processor = if shares { ", processor" } else { "" };
        format!("{}{processor}", name(policy))
    };
    let run = |(policy, shares): (PlacementPolicy, bool)| {
        let mut plan = plan(&named(policy, shares), policy, papers_nodes());
        plan.processor = shares.then_some(ByteRate::new(PROCESSOR));
        NamedRun::new(named(policy, shares), plan)
    };
    let runs: Vec<NamedRun> =
        POLICIES.into_iter().flat_map(|policy| [(policy, false), (policy, true)]).map(run).collect();
    let below = |policy, tolerance| {
        let run = named(policy, true);
        JudgedQuantity::new(format!("{run}: transfers below"), tolerance, of(run, missed)).unit("%")
    };
    Experiment {
        quantities: vec![
            below(SM_R2, Tolerance::AtLeast(80.0)),
            below(PlacementPolicy::SM_R3, Tolerance::AtMost(20.0)),
            JudgedQuantity::new(
                "throughput, SM-R3 : SM-R2, with the processor",
                Tolerance::AtLeast(0.9),
                |trial| quotient(trial, throughput, "SM-R3, processor", "SM-R2, processor"),
            ),
        ],
        figures: figures(&runs),
        runs,
        ..Experiment::of("nikolow.processor")
    }
}
