//! The laws' decisions, followed from snapshot to snapshot: counted, and told to the log in words. Reloads,
//! recorded in the decision journal.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use tidegate_control::{Decision, LawOutput, SignalState};
use tidegate_journal::ActionRecord;
use tidegate_units::{Instant, ResourceName};

use crate::api::EventFeed;
use crate::metrics::InputCounts;

/// Returns the entry of the decision journal for a service that took its configuration anew.
#[must_use]
pub fn reload_record(path: &Path) -> ActionRecord {
    let text = format!("reloaded {}", path.display());
    ActionRecord { resource: None, actor: "SIGHUP".to_owned(), text }
}

/// The pools' decisions so far.
#[derive(Debug, Default)]
pub struct RecentDecisions {
    pools: BTreeMap<ResourceName, Pool>,
    feed: EventFeed,
}

#[derive(Debug, Default)]
struct Pool {
    /// The number of decisions that were seen or missed.
    seen: u64,
    counts: InputCounts,
    news: DecisionNews,
}

/// Picks the decisions of one resource that a person wants to be told about.
#[derive(Debug, Default)]
pub(crate) struct DecisionNews {
    told: Option<Told>,
}

/// The last decision that the log was told at level info.
#[derive(Debug, Clone, Copy)]
struct Told {
    phase: Phase,
    /// The output of the law.
    output: f64,
    at: Instant,
}

/// The state of a law whose changes a person wants to be told about. Every single decision is more than
/// anyone reads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Phase {
    holding: bool,
    at_bound: bool,
    overload: bool,
    dry_run: bool,
    /// Nothing is throttled although it should be: the throttle failed.
    failed: bool,
}

/// A law near its set point begins and ends to hold several times a second. The log is told at most this
/// often, and then what is true by then.
const BETWEEN_NEWS: Duration = Duration::from_secs(5);

/// A window, rate or delay that changed by this factor since the last line is news: a consumer that is
/// throttled a little and one that nearly stands still are not in the same state. Chosen so that a storage
/// that changes as usual, by a factor of two, adds no lines.
const CHANGED: f64 = 4.0;

/// While consumers are throttled, or the law sees nothing complete, the log repeats it this often: a reader
/// of the last half hour finds the reason.
const REMINDER: Duration = Duration::from_secs(10 * 60);

/// The least output that is told from nothing: a millisecond of delay.
const LEAST_OUTPUT: f64 = 1e-3;

impl Phase {
    fn of(decision: &Decision, is_carried_out: bool) -> Self {
        let holding = decision.held > 0;
        Self {
            holding,
            at_bound: holding && decision.bound.is_some(),
            overload: matches!(decision.input, SignalState::Overload { .. }),
            dry_run: decision.dry_run,
            failed: holding && !is_carried_out,
        }
    }
}

impl Pool {
    fn take(&mut self, decision: &Decision, is_carried_out: bool, feed: &EventFeed) {
        self.counts.add(decision.input);
        if let Some(said) = self.news.take(decision, is_carried_out) {
            tracing::info!(
                tidegate.resource = %decision.resource,
                tidegate.law = %decision.law,
                tidegate.throttled = decision.held,
                tidegate.dry_run = decision.dry_run,
                "{said}"
            );
            feed.tell(decision, &said);
        } else {
            tracing::debug!(
                tidegate.resource = %decision.resource,
                tidegate.law = %decision.law,
                tidegate.throttled = decision.held,
                tidegate.dry_run = decision.dry_run,
                "{}",
                in_words(decision, is_carried_out)
            );
        }
    }
}

fn in_words(decision: &Decision, is_carried_out: bool) -> String {
    let failed = Phase::of(decision, is_carried_out).failed;
    let but = if failed { "; but the throttle fails, and none is" } else { "" };
    format!("{decision}{but}")
}

impl DecisionNews {
    /// Takes the next decision, and returns it in words if it is news.
    pub(crate) fn take(&mut self, decision: &Decision, is_carried_out: bool) -> Option<String> {
        if !self.is_news(decision, is_carried_out) {
            return None;
        }
        let phase = Phase::of(decision, is_carried_out);
        self.told = Some(Told { phase, output: output(decision), at: decision.at });
        Some(in_words(decision, is_carried_out))
    }

    fn is_news(&self, decision: &Decision, is_carried_out: bool) -> bool {
        let phase = Phase::of(decision, is_carried_out);
        // A service begins without throttling, which needs no line in the log, nor a reminder later.
        let quiet = phase == Phase { dry_run: decision.dry_run, ..Phase::default() };
        let Some(told) = self.told else { return !quiet };
        let since = decision.at.saturating_since(told.at);
        let ratio = output(decision) / told.output;
        let is_other = phase.holding && !(1.0 / CHANGED..=CHANGED).contains(&ratio);
        if told.phase == phase && !is_other { !quiet && since >= REMINDER } else { since >= BETWEEN_NEWS }
    }
}

/// The output of a law as a number that is more than nothing.
fn output(decision: &Decision) -> f64 {
    let output = match (decision.window(), decision.throttle()) {
        (Some(window), _) | (None, LawOutput::Window(window)) => window.get(),
        (None, LawOutput::Delay(delay)) => delay.as_secs_f64(),
        (None, LawOutput::Rate(rate)) => rate.per_second(),
    };
    output.max(LEAST_OUTPUT)
}

impl RecentDecisions {
    /// No decisions yet. Subscribers of `feed` are told the same decisions as the log.
    #[must_use]
    pub fn telling(feed: EventFeed) -> Self {
        Self { feed, ..Self::default() }
    }

    /// Takes note of the new decisions about a resource. Of `total` decisions since the start, `recent` are
    /// the last ones, oldest first. Changes go to the log at level info, everything at level debug.
    pub fn follow(&mut self, resource: &ResourceName, total: u64, recent: &[Decision]) {
        let pool = self.pools.entry(resource.clone()).or_default();
        for decision in new_decisions(total, recent, pool.seen) {
            pool.take(decision, true, &self.feed);
        }
        pool.seen = total;
    }

    /// Takes note of one decision, in the same way, and of whether what it says is done.
    pub fn note(&mut self, decision: &Decision, is_carried_out: bool) {
        let pool = self.pools.entry(decision.resource.clone()).or_default();
        pool.take(decision, is_carried_out, &self.feed);
    }

    /// The decisions so far by what the signal said.
    pub fn counts(&self) -> BTreeMap<ResourceName, InputCounts> {
        self.pools.iter().map(|(name, pool)| (name.clone(), pool.counts)).collect()
    }
}

/// The decisions since `seen` of them, as far as they are among the recent ones.
fn new_decisions(total: u64, recent: &[Decision], seen: u64) -> &[Decision] {
    let new = usize::try_from(total.saturating_sub(seen)).unwrap_or(usize::MAX);
    &recent[recent.len().saturating_sub(new)..]
}

#[cfg(test)]
mod tests {
    use tidegate_control::{ControlLoop, LawConfig, LoopConfig, Observation, WindowConfig};
    use tidegate_units::{Latency, Window};

    use super::*;

    /// The last `remembered` of `total` decisions.
    fn recent(total: u64, remembered: u64) -> Vec<Decision> {
        let name = ResourceName::new("vg0").unwrap();
        let law = LawConfig::Window(WindowConfig::default());
        let mut control =
            ControlLoop::new(LoopConfig::new(name.clone(), Latency::from_millis(15), law)).unwrap();
        let decisions = (1..=total).map(|number| {
            let at = Instant::from_nanos(number * 250_000_000);
            control.step(at, &Observation::new(name.clone(), at, Vec::new())).1
        });
        decisions.skip(usize::try_from(total - remembered).unwrap()).collect()
    }

    fn told(decision: &Decision) -> Told {
        Told { phase: Phase::of(decision, true), output: output(decision), at: decision.at }
    }

    #[test]
    fn a_window_that_closes_while_a_consumer_is_throttled_is_news() {
        let mut decision = recent(1, 1).remove(0);
        decision.held = 1;
        decision.bounded = LawOutput::Window(Window::new(60.0));
        let news = DecisionNews { told: Some(told(&decision)) };
        decision.at = decision.at + Duration::from_secs(5);
        decision.bounded = LawOutput::Window(Window::new(16.0));
        assert!(!news.is_news(&decision, true), "by less than a factor of four");
        decision.bounded = LawOutput::Window(Window::new(0.89));
        assert!(news.is_news(&decision, true));
    }

    #[test]
    fn a_decision_is_new_once() {
        assert_eq!(new_decisions(5, &recent(5, 5), 0).len(), 5);
        assert_eq!(new_decisions(5, &recent(5, 5), 3)[0].at, Instant::from_nanos(4 * 250_000_000));
        assert_eq!(new_decisions(5, &recent(5, 5), 5).len(), 0);
    }

    #[test]
    fn decisions_that_the_gateway_forgot_are_missed_and_nothing_else() {
        assert_eq!(new_decisions(9, &recent(9, 4), 2).len(), 4);
        assert_eq!(new_decisions(9, &recent(9, 0), 2).len(), 0);
        // A gateway that counts from zero again has nothing new for us yet.
        assert_eq!(new_decisions(3, &recent(3, 3), 7).len(), 0);
    }

    #[test]
    fn flapping_is_told_at_most_every_five_seconds() {
        let mut decision = recent(1, 1).remove(0);
        let mut news = DecisionNews::default();
        assert!(!news.is_news(&decision, true), "to hold nothing is no news");
        decision.held = 1;
        assert!(news.is_news(&decision, true));
        news.told = Some(told(&decision));
        assert!(!news.is_news(&decision, true), "said already");
        decision.held = 0;
        decision.at = decision.at + Duration::from_millis(4_999);
        assert!(!news.is_news(&decision, true), "too soon");
        decision.at = decision.at + Duration::from_millis(1);
        assert!(news.is_news(&decision, true));
    }

    #[test]
    fn who_is_held_for_hours_is_told_again() {
        let mut decision = recent(1, 1).remove(0);
        decision.held = 1;
        let before = told(&decision);
        let news = DecisionNews { told: Some(before) };
        let begin = decision.at;
        decision.at = begin + Duration::from_secs(599);
        assert!(!news.is_news(&decision, true), "too soon");
        decision.at = begin + Duration::from_secs(600);
        assert!(news.is_news(&decision, true));
        decision.held = 0;
        let news = DecisionNews { told: Some(Told { at: begin, ..told(&decision) }) };
        assert!(!news.is_news(&decision, true), "that nothing is throttled is logged once");
    }

    #[test]
    fn that_the_throttle_fails_while_somebody_is_to_be_held_is_news() {
        let mut decision = recent(1, 1).remove(0);
        decision.held = 1;
        let told = told(&decision);
        let news = DecisionNews { told: Some(told) };
        decision.at = decision.at + Duration::from_secs(5);
        assert!(!news.is_news(&decision, true), "said already");
        assert!(news.is_news(&decision, false));
        assert!(!Phase::of(&Decision { held: 0, ..decision }, false).failed, "nothing was to be throttled");
    }
}
