//! The times of attempts to connect again, and the longest outage that is bridged.

use std::time::Duration;

use tidegate_units::Instant;

/// The pause after the second failure in a row; the first is tried again at once.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// The longest pause: an upstream that is back is found within this time, and one that is gone for long costs
/// next to nothing.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// The state of an upstream's reachability.
#[derive(Debug)]
pub(super) struct UpstreamReachability {
    /// The longest outage that is bridged.
    patience: Duration,
    /// True while an attempt is under way.
    attempting: bool,
    /// The time of the next attempt, if more connections are wanted.
    next: Instant,
    /// The pause after the next failure.
    pause: Duration,
    /// The time when the last connection was lost, until an answer shows that the upstream is back.
    outage: Option<Instant>,
    /// True if the upstream is there, and different.
    unfit: bool,
}

impl UpstreamReachability {
    pub(super) fn new(patience: Duration, now: Instant) -> Self {
        Self { patience, attempting: false, next: now, pause: Duration::ZERO, outage: None, unfit: false }
    }

    /// A connection was lost; with the last one an outage begins, unless one goes on that no answer has
    /// ended.
    pub(super) fn lost(&mut self, none_left: bool, now: Instant) {
        // Several that are lost together are one failure.
        if !self.attempting && self.next < now {
            self.pause_from(now);
        }
        if none_left {
            self.outage.get_or_insert(now);
        }
    }

    /// Returns the time to begin an attempt, if one is wanted; `None` while one is under way.
    pub(super) fn next_attempt(&self) -> Option<Instant> {
        (!self.attempting).then_some(self.next)
    }

    pub(super) fn begin_attempt(&mut self) {
        self.attempting = true;
    }

    /// The attempt has failed; `unfit` when because of what has come back.
    pub(super) fn failed(&mut self, unfit: bool, now: Instant) {
        self.attempting = false;
        self.unfit = unfit;
        self.pause = self.pause.max(FIRST_PAUSE);
        self.pause_from(now);
    }

    /// The attempt has succeeded. While requests wait, only an answer to one of them ends the outage: an
    /// upstream that breaks down at every request is not back.
    pub(super) fn connected(&mut self, requests_wait: bool, now: Instant) {
        self.attempting = false;
        self.unfit = false;
        self.next = now;
        if !requests_wait {
            self.outage = None;
        }
    }

    /// A request was answered.
    pub(super) fn answered(&mut self) {
        self.pause = Duration::ZERO;
        self.outage = None;
    }

    /// Returns the time until which requests wait for a connection; in the past, or `None` for no outage.
    pub(super) fn patience_ends(&self) -> Option<Instant> {
        let began = self.outage?;
        Some(if self.unfit { began } else { began + self.patience })
    }

    fn pause_from(&mut self, now: Instant) {
        self.next = now + self.pause;
        self.pause = (2 * self.pause).clamp(FIRST_PAUSE, LONGEST_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    #[test]
    fn pauses_double_up_to_a_bound_and_an_answer_ends_them() {
        let mut reachability = UpstreamReachability::new(Duration::from_secs(30), at(0));
        let (mut now, mut pauses) = (at(1), Vec::new());
        for left in [true, true, false] {
            reachability.lost(!left, now);
        }
        for _ in 0..9 {
            let next = reachability.next_attempt().unwrap();
            pauses.push(next.saturating_since(now).as_millis());
            now = next;
            reachability.begin_attempt();
            assert_eq!(reachability.next_attempt(), None);
            reachability.failed(false, now);
        }
        assert_eq!(pauses, [0, 100, 200, 400, 800, 1600, 3200, 5000, 5000]);
        reachability.connected(true, now);
        now = now + Duration::from_millis(1);
        // Lost again before it has answered anything: as if it had never been there.
        reachability.lost(true, now);
        assert_eq!(reachability.next_attempt(), Some(now + LONGEST_PAUSE));
        reachability.answered();
        now = now + LONGEST_PAUSE + Duration::from_millis(1);
        reachability.lost(true, now);
        assert_eq!(reachability.next_attempt(), Some(now));
    }

    #[test]
    fn an_outage_lasts_until_an_answer_and_patience_with_it_has_an_end() {
        let mut reachability = UpstreamReachability::new(Duration::from_secs(30), at(0));
        assert_eq!(reachability.patience_ends(), None);
        reachability.lost(false, at(500));
        assert_eq!(reachability.patience_ends(), None, "others are left");
        reachability.lost(true, at(1_000));
        reachability.connected(true, at(2_000));
        reachability.lost(true, at(3_000));
        assert_eq!(reachability.patience_ends(), Some(at(31_000)));
        reachability.failed(true, at(4_000));
        assert_eq!(reachability.patience_ends(), Some(at(1_000)), "what has come back is not waited for");
        reachability.connected(false, at(5_000));
        assert_eq!(reachability.patience_ends(), None);
    }
}
