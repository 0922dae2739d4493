//! Progress of the running demonstration: the scenario's events, gathered for the view. Pure.

use std::time::Duration;

use super::plan::{DemoPlan, PhasePlan};
use super::timeline::{PhaseSecond, ThrottleState};

/// An event of the scenario while it runs.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum DemoEvent {
    /// The next phase of the plan begins.
    PhaseBegins,
    /// One more second of it has passed.
    Second(PhaseSecond),
    /// Some time of the phase has passed; the throttles now, and their reasons.
    Now { elapsed: Duration, held: ThrottleState, why: Option<String> },
}

/// The run so far.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct DemoProgress {
    pub(crate) plan: DemoPlan,
    /// The seconds of every phase that has begun.
    pub(crate) phases: Vec<Vec<PhaseSecond>>,
    /// The elapsed time of the present phase.
    pub(crate) elapsed: Duration,
    pub(crate) held: ThrottleState,
    pub(crate) why: Option<String>,
}

impl DemoProgress {
    /// Nothing has begun.
    pub(crate) fn new(plan: DemoPlan) -> Self {
        Self { plan, phases: Vec::new(), elapsed: Duration::ZERO, held: ThrottleState::default(), why: None }
    }

    /// Takes in what happened.
    pub(crate) fn apply(&mut self, event: DemoEvent) {
        match event {
            DemoEvent::PhaseBegins => {
                self.phases.push(Vec::new());
                self.elapsed = Duration::ZERO;
                self.held = ThrottleState::default();
                self.why = None;
            }
            DemoEvent::Second(second) => {
                if let Some(phase) = self.phases.last_mut() {
                    phase.push(second);
                }
            }
            DemoEvent::Now { elapsed, held, why } => {
                self.elapsed = elapsed;
                self.held = held;
                self.why = why;
            }
        }
    }

    /// The phase that runs now.
    pub(crate) fn phase(&self) -> Option<&PhasePlan> {
        self.plan.phases.get(self.phases.len().checked_sub(1)?)
    }

    /// Returns the part of the phase with this index that is done, from 0 to 1.
    pub(crate) fn done(&self, index: usize) -> f64 {
        let Some(phase) = self.plan.phases.get(index) else { return 0.0 };
        match (index + 1).cmp(&self.phases.len()) {
            std::cmp::Ordering::Less => 1.0,
            std::cmp::Ordering::Equal => {
                (self.elapsed.as_secs_f64() / f64::from(phase.seconds)).clamp(0.0, 1.0)
            }
            std::cmp::Ordering::Greater => 0.0,
        }
    }

    /// Seconds of the whole that are done.
    pub(crate) fn seconds_done(&self) -> f64 {
        (0..).zip(&self.plan.phases).map(|(index, phase)| self.done(index) * f64::from(phase.seconds)).sum()
    }

    /// The latest second that was measured.
    pub(crate) fn latest(&self) -> Option<&PhaseSecond> {
        self.phases.last()?.last()
    }

    /// Returns true if the backups wrote in the latest second; if there is none yet, true if they do now.
    pub(crate) fn writers_on(&self) -> bool {
        let seconds = self.phases.last().map_or(0, Vec::len) as u32;
        let latest = seconds.saturating_sub(1);
        self.phase().is_some_and(|phase| self.plan.bursts(phase).iter().any(|burst| burst.contains(&latest)))
    }

    /// The measured seconds of the phase with this index, each with its place in the run.
    pub(crate) fn seconds(&self, index: usize) -> impl Iterator<Item = (f64, &PhaseSecond)> {
        let start: u32 = self.plan.phases.iter().take(index).map(|phase| phase.seconds).sum();
        let seconds = self.phases.get(index).map_or(&[][..], Vec::as_slice);
        (0u32..).zip(seconds).map(move |(at, second)| (f64::from(start + at) + 0.5, second))
    }
}

#[cfg(test)]
mod tests {
    use tidegate_units::Bytes;

    use super::super::plan::tests::wanted;
    use super::super::timeline::tests::second;
    use super::*;

    #[test]
    fn phases_follow_each_other_and_progress_never_passes_the_end() {
        let mut progress = DemoProgress::new(DemoPlan::new(&wanted()).unwrap());
        assert_eq!((progress.phase(), progress.seconds_done()), (None, 0.0));
        progress.apply(DemoEvent::Second(second(6, Bytes::ZERO)));
        assert_eq!(progress.latest(), None, "a second before the first phase belongs nowhere");
        progress.apply(DemoEvent::PhaseBegins);
        progress.apply(DemoEvent::Now {
            elapsed: Duration::from_secs(500),
            held: ThrottleState::default(),
            why: None,
        });
        assert!((progress.seconds_done() - 10.0).abs() < 1e-9);
        progress.apply(DemoEvent::PhaseBegins);
        progress.apply(DemoEvent::Second(second(45, Bytes::new(1))));
        progress.apply(DemoEvent::Now {
            elapsed: Duration::from_secs(7),
            held: ThrottleState::default(),
            why: None,
        });
        assert!((progress.seconds_done() - 17.0).abs() < 1e-9);
        let places: Vec<_> = progress.seconds(1).map(|(at, _)| at).collect();
        assert_eq!(places, [10.5]);
        for _ in 1..30 {
            assert!(progress.writers_on());
            progress.apply(DemoEvent::Second(second(45, Bytes::new(1))));
        }
        assert!(progress.writers_on(), "the thirtieth second belongs to the burst");
        progress.apply(DemoEvent::Second(second(6, Bytes::ZERO)));
        assert!(!progress.writers_on());
    }
}
