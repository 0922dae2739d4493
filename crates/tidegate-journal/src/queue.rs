//! The bounded queue between the loops and the thread that writes.
//!
//! The thread looks twice a second, and is woken only when the queue is half full. A wake-up for each
//! decision would cost more than everything else.

use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use tidegate_units::Instant;

use crate::block::{JournalEvent, ResourceOpening};
use crate::record::{DecisionBody, GapCause};
use crate::time::WallTime;

/// An entry on its way to the writer, or word of a resource.
#[derive(Debug)]
pub(crate) enum Message {
    /// Without a body it is as the one before, but for its time.
    Decision {
        id: u32,
        epoch: u64,
        at: Instant,
        body: Option<Arc<DecisionBody>>,
    },
    Opening {
        id: u32,
        epoch: u64,
        opening: Box<ResourceOpening>,
    },
    Closed {
        id: u32,
    },
    Event(JournalEvent),
}

/// Bounds of the queue.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QueueBounds {
    pub(crate) entries: usize,
    pub(crate) bytes: usize,
}

/// Entries that were dropped since the writer looked last.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DroppedEntries {
    pub(crate) from: WallTime,
    pub(crate) entries: u64,
    pub(crate) cause: GapCause,
}

impl DroppedEntries {
    /// Adds dropped entries to those of before.
    pub(crate) fn add(sum: &mut Option<Self>, entries: u64, cause: GapCause) {
        match sum {
            Some(sum) => (sum.entries, sum.cause) = (sum.entries.saturating_add(entries), cause),
            None => *sum = Some(Self { from: WallTime::now(), entries, cause }),
        }
    }
}

#[derive(Debug, Default)]
struct Waiting {
    messages: Vec<Message>,
    bytes: usize,
    dropped: Option<DroppedEntries>,
    stopped: bool,
    /// Numbers of requests to write everything, and of those that were answered.
    flushes: (u64, u64),
}

/// The part that loops and writer share.
#[derive(Debug)]
pub(crate) struct SharedQueue {
    waiting: Mutex<Waiting>,
    half_full: Condvar,
    flushed: Condvar,
    bounds: QueueBounds,
    /// Number of the segment that decisions from now on belong to.
    epoch: AtomicU64,
}

/// Messages that the writer took.
#[derive(Debug)]
pub(crate) struct TakenMessages {
    pub(crate) messages: Vec<Message>,
    pub(crate) dropped: Option<DroppedEntries>,
    pub(crate) stopped: bool,
    pub(crate) flush: u64,
}

impl SharedQueue {
    pub(crate) fn new(bounds: QueueBounds, epoch: u64) -> Self {
        Self {
            waiting: Mutex::default(),
            half_full: Condvar::new(),
            flushed: Condvar::new(),
            bounds,
            epoch: AtomicU64::new(epoch),
        }
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Asks every resource for a checkpoint: a segment begins.
    pub(crate) fn begin_epoch(&self) -> u64 {
        self.epoch.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Adds an entry. Returns false if there is no room: it is dropped and counted.
    pub(crate) fn push(&self, message: Message) -> bool {
        let bytes = size(&message);
        let mut waiting = self.lock();
        let is_room = waiting.messages.len() < self.bounds.entries
            && waiting.bytes.saturating_add(bytes) <= self.bounds.bytes;
        // A closed resource is no entry, and there are as many of these as of resources.
        if waiting.stopped || !(is_room || matches!(message, Message::Closed { .. })) {
            DroppedEntries::add(&mut waiting.dropped, 1, GapCause::Queue);
            return false;
        }
        waiting.messages.push(message);
        waiting.bytes += bytes;
        let is_half_full =
            waiting.messages.len() == self.bounds.entries / 2 || waiting.bytes >= self.bounds.bytes / 2;
        drop(waiting);
        if is_half_full {
            self.half_full.notify_one();
        }
        true
    }

    /// Counts an entry that was dropped before it came here.
    pub(crate) fn count_dropped(&self, cause: GapCause) {
        DroppedEntries::add(&mut self.lock().dropped, 1, cause);
    }

    /// Waits until the queue is half full, or this long, and takes everything.
    pub(crate) fn take(&self, longest: Duration) -> TakenMessages {
        let goes_on = |waiting: &mut Waiting| {
            let is_half_full =
                waiting.messages.len() >= self.bounds.entries / 2 || waiting.bytes >= self.bounds.bytes / 2;
            !(waiting.stopped || is_half_full || waiting.flushes.0 > waiting.flushes.1)
        };
        let waited = self.half_full.wait_timeout_while(self.lock(), longest, goes_on);
        let (mut waiting, _) = waited.unwrap_or_else(PoisonError::into_inner);
        waiting.bytes = 0;
        TakenMessages {
            messages: mem::take(&mut waiting.messages),
            dropped: waiting.dropped.take(),
            stopped: waiting.stopped,
            flush: waiting.flushes.0,
        }
    }

    /// Asks the writer to write everything now, and waits for it, at most this long. Returns true if it did.
    pub(crate) fn flush(&self, longest: Duration) -> bool {
        let mut waiting = self.lock();
        waiting.flushes.0 += 1;
        let wanted = waiting.flushes.0;
        self.half_full.notify_one();
        let waited = self.flushed.wait_timeout_while(waiting, longest, |waiting| waiting.flushes.1 < wanted);
        let (waiting, _) = waited.unwrap_or_else(PoisonError::into_inner);
        waiting.flushes.1 >= wanted
    }

    /// Returns the entries that wait, and their bytes.
    #[cfg(test)]
    pub(crate) fn waiting(&self) -> (usize, usize) {
        let waiting = self.lock();
        (waiting.messages.len(), waiting.bytes)
    }

    /// Answers a request to write everything.
    pub(crate) fn answer(&self, flush: u64) {
        self.lock().flushes.1 = flush;
        self.flushed.notify_all();
    }

    /// Ends the writer, after everything that waits.
    pub(crate) fn stop(&self) {
        self.lock().stopped = true;
        self.half_full.notify_one();
    }

    /// No thread panics while it has the lock.
    fn lock(&self) -> std::sync::MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the memory that a message takes, about.
fn size(message: &Message) -> usize {
    let own = match message {
        Message::Decision { body: None, .. } => 0,
        Message::Decision { body: Some(body), .. } => {
            let observation = &body.observation;
            let cluster = observation.cluster.as_ref().map_or(0, |cluster| cluster.points.len() * 1_024);
            size_of::<DecisionBody>() + observation.consumers.len() * 400 + cluster
        }
        Message::Opening { opening, .. } => opening.state.len(),
        Message::Event(JournalEvent::Action(_, action)) => action.actor.len() + action.text.len(),
        Message::Event(_) | Message::Closed { .. } => 0,
    };
    size_of::<Message>() + own
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::ActionRecord;

    fn message() -> Message {
        let action = ActionRecord { resource: None, actor: "a".to_owned(), text: "b".to_owned() };
        Message::Event(JournalEvent::Action(WallTime::MIN, action))
    }

    #[test]
    fn what_finds_no_room_is_dropped_and_counted() {
        let queue = SharedQueue::new(QueueBounds { entries: 2, bytes: 1_000_000 }, 0);
        assert_eq!(
            [queue.push(message()), queue.push(message()), queue.push(message())],
            [true, true, false]
        );
        let taken = queue.take(Duration::ZERO);
        assert_eq!(taken.messages.len(), 2);
        let dropped = taken.dropped.unwrap();
        assert_eq!((dropped.entries, dropped.cause), (1, GapCause::Queue));
        assert!(queue.push(message()), "there is room again");
        let small = SharedQueue::new(QueueBounds { entries: 100, bytes: 10 }, 0);
        assert!(!small.push(message()), "bytes are bounded, too");
    }
}
