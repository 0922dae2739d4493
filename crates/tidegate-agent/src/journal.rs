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
    /// Nobody is held although somebody is to be: the throttle failed.
    failed: bool,
}

/// A law near its set point begins and ends to hold several times a second. The log is told at most this
/// often, and then what is true by then.
const BETWEEN_NEWS: Duration = Duration::from_secs(5);

/// While consumers are held, or the law sees nothing complete, the log says so again this often: whoever
/// looks at the last half hour finds why.
const REMINDER: Duration = Duration::from_secs(10 * 60);

impl Phase {
    fn of(decision: &Decision, is_carried_out: bool) -> Self {
        let holding = decision.held > 0;
        Self {
            holding,
            at_bound: holding && decision.bound.is_some(),
            overload: matches!(decision.input, Input::Overload { .. }),
            dry_run: decision.dry_run,
            failed: holding && !is_carried_out,
        }
    }
}

impl Pool {
    fn take(&mut self, decision: &Decision, is_carried_out: bool) {
        self.counts.add(decision.input);
        let phase = Phase::of(decision, is_carried_out);
        let but = if phase.failed { "; but the throttle fails, and nobody is" } else { "" };
        if self.is_news(decision, is_carried_out) {
            tracing::info!("{decision}{but}");
            self.told = Some(Told { phase, at: decision.at });
        } else {
            tracing::debug!("{decision}{but}");
        }
    }

    fn is_news(&self, decision: &Decision, is_carried_out: bool) -> bool {
        let phase = Phase::of(decision, is_carried_out);
        // A service begins by holding nothing, which nobody needs to be told, nor reminded of later.
        let quiet = phase == Phase { dry_run: decision.dry_run, ..Phase::default() };
        let Some(told) = self.told else { return !quiet };
        let since = decision.at.saturating_since(told.at);
        if told.phase == phase { !quiet && since >= REMINDER } else { since >= BETWEEN_NEWS }
    }
}

impl Journal {
    /// Takes note of the decisions that are new in a snapshot. What changes goes to the log at level info,
    /// everything at level debug.
    pub(crate) fn follow(&mut self, snapshot: &PoolSnapshot) {
        let pool = self.pools.entry(snapshot.name.clone()).or_default();
        for decision in new_decisions(snapshot, pool.seen) {
            pool.take(decision, true);
        }
        pool.seen = snapshot.decisions;
    }

    /// Takes note of one decision, in the same way, and of whether what it says is done.
    pub(crate) fn note(&mut self, decision: &Decision, is_carried_out: bool) {
        self.pools.entry(decision.resource.clone()).or_default().take(decision, is_carried_out);
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

#[cfg(test)]
mod tests {
    use tidegate_control::{ControlLoop, Law, LoopConfig, Observation, WindowConfig};
    use tidegate_units::{Bytes, Latency, Window};

    use super::*;

    /// `total` decisions since the start, of which the snapshot remembers the last `remembered`.
    fn snapshot(total: u64, remembered: u64) -> PoolSnapshot {
        let name = ResourceName::new("vg0").unwrap();
        let law = Law::Window(WindowConfig::default());
        let mut control =
            ControlLoop::new(LoopConfig::new(name.clone(), Latency::from_millis(15), law)).unwrap();
        let decisions = (1..=total).map(|number| {
            let at = Instant::from_nanos(number * 250_000_000);
            control.step(at, &Observation::new(name.clone(), at, Vec::new())).1
        });
        let recent: Vec<_> = decisions.skip(usize::try_from(total - remembered).unwrap()).collect();
        PoolSnapshot {
            at: Instant::ZERO,
            consumers: Vec::new(),
            awaited: Vec::new(),
            sessions: 0,
            bytes_in_use: Bytes::ZERO,
            bytes_in_use_peak: Bytes::ZERO,
            in_flight: 0,
            window: Window::new(64.0),
            decision: recent.last().cloned(),
            recent_decisions: recent,
            decisions: total,
            name: name.clone(),
        }
    }

    #[test]
    fn a_decision_is_new_once() {
        assert_eq!(new_decisions(&snapshot(5, 5), 0).len(), 5);
        assert_eq!(new_decisions(&snapshot(5, 5), 3)[0].at, Instant::from_nanos(4 * 250_000_000));
        assert_eq!(new_decisions(&snapshot(5, 5), 5).len(), 0);
    }

    #[test]
    fn decisions_that_the_gateway_forgot_are_missed_and_nothing_else() {
        assert_eq!(new_decisions(&snapshot(9, 4), 2).len(), 4);
        assert_eq!(new_decisions(&snapshot(9, 0), 2).len(), 0);
        // A gateway that counts from zero again has nothing new for us yet.
        assert_eq!(new_decisions(&snapshot(3, 3), 7).len(), 0);
    }

    #[test]
    fn flapping_is_told_at_most_every_five_seconds() {
        let mut decision = snapshot(1, 1).recent_decisions.remove(0);
        let mut pool = Pool::default();
        assert!(!pool.is_news(&decision, true), "to hold nothing is no news");
        decision.held = 1;
        assert!(pool.is_news(&decision, true));
        pool.told = Some(Told { phase: Phase::of(&decision, true), at: decision.at });
        assert!(!pool.is_news(&decision, true), "said already");
        decision.held = 0;
        decision.at = decision.at + Duration::from_millis(4_999);
        assert!(!pool.is_news(&decision, true), "too soon");
        decision.at = decision.at + Duration::from_millis(1);
        assert!(pool.is_news(&decision, true));
    }

    #[test]
    fn who_is_held_for_hours_is_told_again() {
        let mut decision = snapshot(1, 1).recent_decisions.remove(0);
        decision.held = 1;
        let told = Told { phase: Phase::of(&decision, true), at: decision.at };
        let pool = Pool { told: Some(told), ..Pool::default() };
        let begin = decision.at;
        decision.at = begin + Duration::from_secs(599);
        assert!(!pool.is_news(&decision, true), "too soon");
        decision.at = begin + Duration::from_secs(600);
        assert!(pool.is_news(&decision, true));
        decision.held = 0;
        let pool =
            Pool { told: Some(Told { phase: Phase::of(&decision, true), at: begin }), ..Pool::default() };
        assert!(!pool.is_news(&decision, true), "that nothing is held is told once");
    }

    #[test]
    fn that_the_throttle_fails_while_somebody_is_to_be_held_is_news() {
        let mut decision = snapshot(1, 1).recent_decisions.remove(0);
        decision.held = 1;
        let told = Told { phase: Phase::of(&decision, true), at: decision.at };
        let pool = Pool { told: Some(told), ..Pool::default() };
        decision.at = decision.at + Duration::from_secs(5);
        assert!(!pool.is_news(&decision, true), "said already");
        assert!(pool.is_news(&decision, false));
        assert!(!Phase::of(&Decision { held: 0, ..decision }, false).failed, "nobody was to be held");
    }
}
