//! The worker's processor time, divided among the exports of its pool.
//!
//! Some requests cost the storage nothing and the worker much, such as large reads of cached data and requests
//! that are refused. The law sees no latency in them, and throttles no export for them. So what is to be done
//! for an export waits in a line of its own. The worker works for protected exports first, then for the others
//! by their shares. A turn does only a slice of the work, so that a protected request which arrives meanwhile
//! is soon seen.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use tidegate_units::{Instant, Shares};
use tracing::info;

use super::door::NewSession;
use super::{PoolWorker, WorkerExport};
use crate::backend::VolumeOperation;
use crate::request::ClientRequest;
use crate::ring::{CompletedOperation, RingToken};

/// The longest work of one kind in a turn while a protected export has sessions, and while none has. Chosen:
/// a protected request waits for two or three turns, and one on cached data takes some 100 µs altogether. The
/// longer slice costs a busy worker less than 1 % for entering the ring.
const SLICE_BESIDE_PROTECTED: Duration = Duration::from_micros(40);
const SLICE: Duration = Duration::from_micros(200);

/// The times that a turn looks for protected requests before it goes on with others. Chosen: one on cached
/// data arrives, is read, and is answered.
pub(super) const PROTECTED_ROUNDS: usize = 3;

/// The bytes that the kernel copies in a microsecond while the worker submits. Measured: 256 KiB take 40 to
/// 60 µs into memory that is new to the process, and half of that otherwise.
const COPIED_PER_MICROSECOND: usize = 6_000;

/// The most that one chore is charged. The thread may have been without a processor meanwhile, which is not
/// the export's doing.
const LONGEST_CHORE: Duration = Duration::from_millis(1);

/// Small chores of an export that are done in a row, and the bytes up to which the completion of an operation is one.
/// To choose the next line and to look at the clock costs as much as a small chore does.
const IN_A_ROW: usize = 8;
const SMALL: usize = 16 << 10;

/// Requests of one session that are taken in one go.
pub(super) const REQUESTS_AT_ONCE: usize = 16;

/// The exports for which the worker works first, and the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ExportClass {
    Other,
    Protected,
}

/// Something to do for an export.
#[derive(Debug)]
pub(super) enum WorkerChore {
    /// An operation has completed.
    Completed(CompletedOperation),
    /// A session begins.
    Open(Box<NewSession>),
    /// A session may have requests that have arrived and were not taken.
    Read { session: usize },
}

impl WorkerChore {
    fn is_small(&self) -> bool {
        match self {
            Self::Open(_) | Self::Read { .. } => false,
            Self::Completed(CompletedOperation { token, result, .. }) => match token {
                // Requests may have come with it.
                RingToken::Received { .. } | RingToken::Kicked { .. } | RingToken::Fetched { .. } => false,
                _ => result.as_ref().is_ok_and(|bytes| *bytes <= SMALL),
            },
        }
    }
}

/// A part of a turn.
pub(super) struct TurnSlice {
    ends: Option<Instant>,
    /// The bytes that the kernel was to copy when it began.
    copying: usize,
}

/// The line of one export.
#[derive(Debug)]
struct ChoreLine<T> {
    chores: VecDeque<T>,
    class: ExportClass,
    /// Its processor time divided by its shares. In nanoseconds for the most shares, it would overflow in an age.
    used: u128,
}

/// Lines of chores, of which the one that has used the least for its shares is next: start-time fair queueing,
/// with the measured time as the cost. One that was empty does not save up for later.
#[derive(Debug)]
pub(super) struct ChoreLines<T> {
    /// By the key of the export.
    lines: Vec<ChoreLine<T>>,
    /// Lines with chores, by the class of their export.
    ready: [BTreeSet<(u128, usize)>; 2],
    /// The use of the line that had the last turn.
    floor: [u128; 2],
}

impl<T> Default for ChoreLines<T> {
    fn default() -> Self {
        Self { lines: Vec::new(), ready: Default::default(), floor: [0; 2] }
    }
}

impl<T> ChoreLines<T> {
    /// Adds a chore for an export. A line with chores stays in its class until it is empty, so that chores of
    /// one export keep their order.
    fn push(&mut self, export: usize, class: ExportClass, chore: T) {
        if self.lines.len() <= export {
            let empty = || ChoreLine { chores: VecDeque::new(), class, used: 0 };
            self.lines.resize_with(export + 1, empty);
        }
        let line = &mut self.lines[export];
        if line.chores.is_empty() {
            // Each class has a clock of its own.
            let before = if line.class == class { line.used } else { 0 };
            line.class = class;
            line.used = before.max(self.floor[class as usize]);
            self.ready[class as usize].insert((line.used, export));
        }
        line.chores.push_back(chore);
    }

    /// Takes the next chore of a class.
    fn pop(&mut self, class: ExportClass) -> Option<(usize, T)> {
        let class = class as usize;
        let (used, export) = *self.ready[class].first()?;
        self.floor[class] = used;
        let line = &mut self.lines[export];
        let chore = line.chores.pop_front()?;
        if line.chores.is_empty() {
            self.ready[class].pop_first();
        }
        Some((export, chore))
    }

    /// Takes the next chore of the line that had the last turn, if it is to be done in the same.
    fn pop_if(&mut self, export: usize, is_wanted: impl FnOnce(&mut T) -> bool) -> Option<T> {
        let line = &mut self.lines[export];
        let chore = line.chores.pop_front_if(is_wanted)?;
        if line.chores.is_empty() {
            self.ready[line.class as usize].remove(&(line.used, export));
        }
        Some(chore)
    }

    /// Charges an export for chores.
    fn charge(&mut self, export: usize, shares: Shares, time: Duration) {
        let line = &mut self.lines[export];
        let ready = &mut self.ready[line.class as usize];
        let waits = ready.remove(&(line.used, export));
        // At least one, so that lines take turns also where the clock has not moved.
        line.used += time.as_nanos().max(1) * u128::from(Shares::MAX.get()) / u128::from(shares.get());
        if waits {
            ready.insert((line.used, export));
        }
    }

    /// Forgets what the export of this key has used, for the next one that gets the key.
    pub(super) fn forget(&mut self, export: usize) {
        if let Some(line) = self.lines.get_mut(export).filter(|line| line.chores.is_empty()) {
            line.used = 0;
        }
    }

    pub(super) fn has(&self, class: ExportClass) -> bool {
        !self.ready[class as usize].is_empty()
    }
}

impl PoolWorker {
    /// Has an operation that completed wait for its export's turn. Its volume has answered now, however long
    /// that takes.
    pub(super) fn put_off(&mut self, completed: CompletedOperation, now: Instant) {
        let export = match completed.token {
            RingToken::Received { session }
            | RingToken::Sent { session }
            | RingToken::Kicked { session, .. }
            | RingToken::Signalled { session }
            | RingToken::Fetched { session, .. } => self.sessions[session].export,
            RingToken::Cached { request } => self.requests[request].export,
            RingToken::Request { request } => {
                let ClientRequest { export, operation, .. } = &self.requests[request];
                self.exports[*export].path.completed(VolumeOperation::of(operation), now);
                *export
            }
            RingToken::Synced { export } => {
                self.exports[export].path.completed(VolumeOperation::Sync, now);
                export
            }
            RingToken::UpstreamReceived { export, .. } | RingToken::UpstreamSent { export, .. } => export,
            RingToken::Bell | RingToken::Cancelled => unreachable!("the ring keeps its own"),
        };
        self.add_chore(export, WorkerChore::Completed(completed));
    }

    /// Goes on with a session's requests when it is its export's turn.
    pub(super) fn read_later(&mut self, session: usize) {
        self.add_chore(self.sessions[session].export, WorkerChore::Read { session });
    }

    /// Begins a session when it is its export's turn. That of a disk or a device begins at once, since orders
    /// for it may follow.
    pub(super) fn begin(&mut self, new: Box<NewSession>, now: Instant) {
        match self.exports.iter().find(|(_, export)| export.id == new.export) {
            Some((export, _)) if new.disk.is_some() || new.device.is_some() => self.open(*new, export, now),
            Some((export, _)) => self.add_chore(export, WorkerChore::Open(new)),
            None => info!(peer = new.peer, "session refused: its export has just been removed"),
        }
    }

    fn add_chore(&mut self, export: usize, chore: WorkerChore) {
        self.chores.push(export, self.exports[export].class(), chore);
    }

    /// Does chores of a class for a slice of the turn, and at least one; a drain does them all. Returns true
    /// if there were any.
    pub(super) fn do_chores(&mut self, class: ExportClass, now: Instant) -> bool {
        if !self.chores.has(class) {
            return false;
        }
        let slice = self.begin_slice(class);
        let mut before = self.clock.now();
        while let Some((export, chore)) = self.chores.pop(class) {
            let copying = self.ring.copying();
            self.do_chore(export, chore, now);
            for _ in 1..IN_A_ROW {
                let is_more = self.ring.copying().saturating_sub(copying) <= SMALL;
                match self.chores.pop_if(export, |next| is_more && next.is_small()) {
                    Some(chore) => self.do_chore(export, chore, now),
                    None => break,
                }
            }
            let after = self.clock.now();
            let copied = copying_time(self.ring.copying().saturating_sub(copying));
            let time = after.saturating_since(before) + copied;
            before = after;
            let shares = self.exports.get(export).map_or(Shares::DEFAULT, WorkerExport::shares);
            self.chores.charge(export, shares, time.min(LONGEST_CHORE));
            if self.is_over(&slice, after) {
                break;
            }
        }
        true
    }

    fn do_chore(&mut self, export: usize, chore: WorkerChore, now: Instant) {
        match chore {
            WorkerChore::Completed(completed) => self.completed(completed, now),
            WorkerChore::Open(new) => self.open(*new, export, now),
            // Its session may have gone; that another one has its key by now does no harm.
            WorkerChore::Read { session } if self.sessions.contains(session) => {
                self.read_requests(session, now);
            }
            WorkerChore::Read { .. } => {}
        }
    }

    /// Returns true if something waits for the worker's next turn, which must not wait then.
    pub(super) fn has_more(&self) -> bool {
        [ExportClass::Protected, ExportClass::Other]
            .into_iter()
            .any(|class| self.chores.has(class) || !self.attend[class as usize].is_empty())
            || self.dispatches_more
    }

    /// Works in small pieces while some protected export has sessions.
    pub(super) fn set_beside_protected(&mut self, is_beside_protected: bool) {
        self.is_beside_protected = is_beside_protected;
        self.ring.copy_in_pieces(is_beside_protected);
    }

    /// Begins a part of a turn for a class. That for protected exports ends, too: others are not kept out.
    pub(super) fn begin_slice(&self, class: ExportClass) -> TurnSlice {
        let length = match class {
            ExportClass::Other if self.is_beside_protected => SLICE_BESIDE_PROTECTED,
            ExportClass::Other | ExportClass::Protected => SLICE,
        };
        let ends = self.drain.is_none().then(|| self.clock.now() + length);
        TurnSlice { ends, copying: self.ring.copying() }
    }

    pub(super) fn is_over(&self, slice: &TurnSlice, now: Instant) -> bool {
        let copying = copying_time(self.ring.copying().saturating_sub(slice.copying));
        slice.ends.is_some_and(|ends| now + copying >= ends)
    }
}

fn copying_time(bytes: usize) -> Duration {
    Duration::from_nanos((bytes * 1000 / COPIED_PER_MICROSECOND) as u64)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shares(shares: u32) -> Shares {
        Shares::new(shares).unwrap()
    }

    #[test]
    fn time_is_divided_by_shares_whatever_a_chore_takes() {
        let mut lines = ChoreLines::default();
        let (mut used, shares_of, costs) = ([0; 2], [shares(300), shares(100)], [10, 700]);
        for export in 0..2 {
            (0..100_000).for_each(|_| lines.push(export, ExportClass::Other, ()));
        }
        while used.iter().sum::<u64>() < 1_000_000 {
            let (export, ()) = lines.pop(ExportClass::Other).unwrap();
            used[export] += costs[export];
            lines.charge(export, shares_of[export], Duration::from_nanos(costs[export]));
        }
        let part = used[0] as f64 / used.iter().sum::<u64>() as f64;
        assert!((0.74..0.76).contains(&part), "{used:?}");
    }

    #[test]
    fn an_idle_export_saves_up_no_time() {
        let mut lines = ChoreLines::default();
        for _ in 0..100 {
            lines.push(0, ExportClass::Other, 'a');
        }
        for _ in 0..50 {
            assert_eq!(lines.pop(ExportClass::Other), Some((0, 'a')));
            lines.charge(0, Shares::DEFAULT, Duration::from_micros(10));
        }
        (0..100).for_each(|_| lines.push(1, ExportClass::Other, 'b'));
        let mut turns = [0_u32; 2];
        for _ in 0..40 {
            let (export, _) = lines.pop(ExportClass::Other).unwrap();
            lines.charge(export, Shares::DEFAULT, Duration::from_micros(10));
            turns[export] += 1;
        }
        assert!(turns[0].abs_diff(turns[1]) <= 2, "{turns:?}");
    }

    #[test]
    fn an_export_that_becomes_protected_owes_nothing_of_before() {
        let mut lines = ChoreLines::default();
        lines.push(0, ExportClass::Other, 'a');
        lines.pop(ExportClass::Other).unwrap();
        lines.charge(0, Shares::MIN, Duration::from_secs(1_000_000));
        for _ in 0..4 {
            lines.push(1, ExportClass::Protected, 'b');
        }
        lines.pop(ExportClass::Protected).unwrap();
        lines.charge(1, Shares::DEFAULT, Duration::from_millis(1));
        lines.push(0, ExportClass::Protected, 'a');
        assert_eq!(lines.pop(ExportClass::Protected), Some((0, 'a')));
    }

    proptest! {
        #[test]
        fn every_chore_is_done_once_and_those_of_an_export_in_their_order(
            steps in proptest::collection::vec((0usize..4, any::<bool>(), 0u64..1000, any::<bool>()), 1..200)
        ) {
            let mut lines = ChoreLines::default();
            let (mut added, mut done) = ([0; 4], [0; 4]);
            let class = |is_protected| if is_protected { ExportClass::Protected } else { ExportClass::Other };
            let mut take = |lines: &mut ChoreLines<u64>, of_protected, cost| {
                let Some((export, number)) = lines.pop(class(of_protected)) else { return false };
                assert_eq!(number, done[export]);
                done[export] += 1;
                while lines.pop_if(export, |next| *next % 3 == cost % 3).is_some() {
                    done[export] += 1;
                }
                lines.charge(export, Shares::DEFAULT, Duration::from_nanos(cost));
                true
            };
            for (export, is_protected, cost, of_protected) in steps {
                lines.push(export, class(is_protected), added[export]);
                added[export] += 1;
                if cost % 2 == 0 {
                    take(&mut lines, of_protected, cost);
                }
            }
            while lines.has(ExportClass::Protected) || lines.has(ExportClass::Other) {
                prop_assert!(take(&mut lines, true, 1) || take(&mut lines, false, 1));
            }
            prop_assert_eq!(added, done);
        }
    }
}
