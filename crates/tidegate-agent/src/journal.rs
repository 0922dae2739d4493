//! What the laws decided, followed from snapshot to snapshot: counted, and told to the log in words.

use std::collections::BTreeMap;
use std::time::Duration;

use tidegate_control::{Decision, Input};
use tidegate_gateway::PoolSnapshot;
use tidegate_units::{Instant, ResourceName};

use crate::metrics::InputCounts;

/// The pools' decisions so far.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    pools: BTreeMap<ResourceName, Pool>,
}

#[derive(Debug, Default)]
struct Pool {
    /// How many decisions were seen or missed.
    seen: u64,
    counts: InputCounts,
    told: Option<Told>,
}

/// The last decision that the log was told at level info.
#[derive(Debug, Clone, Copy)]
struct Told {
    phase: Phase,
    at: Instant,
}

/// What a person wants to be told about when it changes; every single decision is more than anyone reads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Phase {
    holding: bool,
    at_bound: bool,
    overload: bool,
    dry_run: bool,
}

/// A law near its set point begins and ends to hold several times a second. The log is told at most this often, and
/// then what is true by then.
const BETWEEN_NEWS: Duration = Duration::from_secs(5);

impl Phase {
    fn of(decision: &Decision) -> Self {
        let holding = decision.held > 0;
        Self {
            holding,
            at_bound: holding && decision.bound.is_some(),
            overload: matches!(decision.input, Input::Overload { .. }),
            dry_run: decision.dry_run,
        }
    }
}

impl Pool {
    fn is_news(&self, decision: &Decision) -> bool {
        let phase = Phase::of(decision);
        match self.told {
            Some(told) => told.phase != phase && decision.at.saturating_since(told.at) >= BETWEEN_NEWS,
            // A service begins by holding nothing, which nobody needs to be told.
            None => phase != Phase { dry_run: decision.dry_run, ..Phase::default() },
        }
    }
}

impl Journal {
    /// Takes note of the decisions that are new in a snapshot. What changes goes to the log at level info,
    /// everything at level debug.
    pub(crate) fn follow(&mut self, snapshot: &PoolSnapshot) {
        let pool = self.pools.entry(snapshot.name.clone()).or_default();
        for decision in new_decisions(snapshot, pool.seen) {
            pool.counts.add(decision.input);
            if pool.is_news(decision) {
                tracing::info!("{decision}");
                pool.told = Some(Told { phase: Phase::of(decision), at: decision.at });
            } else {
                tracing::debug!("{decision}");
            }
        }
        pool.seen = snapshot.decisions;
    }

    /// The decisions so far by what the signal said.
    pub(crate) fn counts(&self) -> BTreeMap<ResourceName, InputCounts> {
        self.pools.iter().map(|(name, pool)| (name.clone(), pool.counts)).collect()
    }
}

/// The decisions since `seen` of them, oldest first, as far as the snapshot still has them.
fn new_decisions(snapshot: &PoolSnapshot, seen: u64) -> &[Decision] {
    let recent = &snapshot.recent_decisions;
    let new = usize::try_from(snapshot.decisions.saturating_sub(seen)).unwrap_or(usize::MAX);
    &recent[recent.len().saturating_sub(new)..]
}
