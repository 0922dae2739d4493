//! The changes that are known to be on stable storage, across connections that come and go.
//!
//! The upstream may have crashed whenever a connection is lost. It then lost the changes that it had answered
//! and not flushed. A flush that succeeds on some connection proves that the upstream has lived at least
//! since that connection was opened. It covers changes answered since then, and nothing before. So every
//! connection gets a mark when it is opened: the number of changes that were answered by then. If changes
//! before the mark of the flush's connection were never flushed, they count as lost. Every session hears of
//! it once, as programs do of a failed fsync on Linux.

/// The account of one upstream export.
#[derive(Debug, Default)]
pub(crate) struct ChangeLedger {
    /// Changes that the upstream has answered and that need a flush to be durable.
    answered: u64,
    /// The number of them, from the first on, that are flushed, or known to be lost.
    settled: u64,
    /// The number of losses so far.
    losses: u64,
    /// True if some session has heard of the last one.
    heard: bool,
}

/// The moment when a connection was opened, as the number of changes answered before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct LedgerMark(u64);

/// A change's place among those answered; the first is 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ChangeNumber(u64);

/// The range of changes that a successful flush covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FlushedRange {
    /// The mark of the connection that answered it.
    mark: LedgerMark,
    /// The number of changes that were answered when it was sent.
    covers: u64,
}

impl FlushedRange {
    /// Returns true if this change is durable by this flush.
    pub(crate) fn covers(self, change: ChangeNumber) -> bool {
        (self.mark.0 + 1..=self.covers).contains(&change.0)
    }
}

impl ChangeLedger {
    /// A connection is opened now.
    pub(crate) fn mark(&self) -> LedgerMark {
        LedgerMark(self.answered)
    }

    /// A change was answered that is not durable yet.
    pub(crate) fn answer(&mut self) -> ChangeNumber {
        self.answered += 1;
        ChangeNumber(self.answered)
    }

    /// Returns true if changes were answered that no flush has settled.
    pub(crate) fn has_unflushed(&self) -> bool {
        self.settled < self.answered
    }

    /// Returns the number of changes that a flush sent now covers.
    pub(crate) fn begin_flush(&self) -> u64 {
        self.answered
    }

    /// A flush that was begun with `covers` has succeeded on a connection with this mark.
    pub(crate) fn flushed(&mut self, mark: LedgerMark, covers: u64) -> FlushedRange {
        if self.settled < mark.0 {
            self.lose();
        }
        self.settled = self.settled.max(covers);
        FlushedRange { mark, covers }
    }

    fn lose(&mut self) {
        self.losses += 1;
        self.heard = false;
    }

    /// Returns the number of losses that a new session counts as heard: all, or all but a last one that no
    /// session has heard of.
    pub(crate) fn heard_by_newcomer(&self) -> u64 {
        if self.heard { self.losses } else { self.losses.saturating_sub(1) }
    }

    /// Tells a session: whether there is a loss that it has not `heard` of.
    pub(crate) fn tell(&mut self, heard: &mut u64) -> bool {
        self.heard = true;
        std::mem::replace(heard, self.losses) < self.losses
    }

    /// Returns the number of times that answered changes were lost.
    pub(crate) fn losses(&self) -> u64 {
        self.losses
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_write_answered_before_the_connection_was_lost_is_lost_and_each_session_hears_it_once() {
        let mut ledger = ChangeLedger::default();
        let (mut one, mut two) = (ledger.heard_by_newcomer(), ledger.heard_by_newcomer());
        let first = ledger.mark();
        let change = ledger.answer();
        let second = ledger.mark();
        let covers = ledger.begin_flush();
        let flushed = ledger.flushed(second, covers);
        assert!(!flushed.covers(change));
        assert!(ledger.tell(&mut one) && !ledger.tell(&mut one));
        assert!(ledger.tell(&mut two) && !ledger.tell(&mut two));
        assert!(!ledger.tell(&mut ledger.heard_by_newcomer()), "a newcomer has lost nothing");
        // Over the old connection the same flush would have covered it.
        let mut ledger = ChangeLedger::default();
        let change = ledger.answer();
        let _ = ledger.mark();
        assert!(ledger.flushed(first, 1).covers(change));
        assert_eq!(ledger.losses(), 0);
    }

    #[test]
    fn a_loss_that_nobody_heard_of_waits_for_the_next_session() {
        let mut ledger = ChangeLedger::default();
        ledger.answer();
        let mark = ledger.mark();
        ledger.flushed(mark, 1);
        let mut newcomer = ledger.heard_by_newcomer();
        assert!(ledger.tell(&mut newcomer) && !ledger.tell(&mut newcomer));
        assert_eq!(ledger.heard_by_newcomer(), 1);
    }

    #[derive(Debug, Clone, Copy)]
    enum Step {
        Write,
        Flush,
        /// The upstream crashes: all its connections, and what it had not flushed, are gone.
        Crash,
        /// Another connection to the same upstream.
        Connect,
        /// The oldest connection is lost, the upstream lives.
        Disconnect,
    }

    proptest! {
        /// Whatever happens: if a flush of a session succeeds, every write answered before it is on stable
        /// storage, or the session was told of the loss by an earlier flush.
        #[test]
        fn no_flush_claims_what_is_lost(
            steps in prop::collection::vec(
                prop_oneof![
                    4 => Just(Step::Write), 3 => Just(Step::Flush), 1 => Just(Step::Crash),
                    1 => Just(Step::Connect), 1 => Just(Step::Disconnect),
                ],
                0..60,
            ),
        ) {
            let mut ledger = ChangeLedger::default();
            let mut connections = vec![ledger.mark()];
            // Changes that are in the upstream's cache, and those that are gone.
            let (mut cached, mut lost) = (Vec::new(), Vec::new());
            let undisturbed = !steps.iter().any(|step| matches!(step, Step::Crash | Step::Disconnect));
            let mut heard = 0;
            let mut told_of: Vec<ChangeNumber> = Vec::new();
            for step in steps {
                match step {
                    Step::Write => cached.push(ledger.answer()),
                    Step::Crash => {
                        lost.append(&mut cached);
                        connections = vec![ledger.mark()];
                    }
                    Step::Connect => connections.push(ledger.mark()),
                    Step::Disconnect => {
                        connections.remove(0);
                        if connections.is_empty() {
                            connections.push(ledger.mark());
                        }
                    }
                    Step::Flush => {
                        let flushing = std::mem::take(&mut cached);
                        let covers = ledger.begin_flush();
                        let flushed = ledger.flushed(connections[0], covers);
                        if ledger.tell(&mut heard) {
                            told_of.extend(&lost);
                        }
                        prop_assert!(lost.iter().all(|change| told_of.contains(change)));
                        prop_assert!(lost.iter().all(|change| !flushed.covers(*change)));
                        prop_assert!(!undisturbed || flushing.iter().all(|change| flushed.covers(*change)));
                    }
                }
            }
            prop_assert!(!undisturbed || ledger.losses() == 0);
        }
    }
}
