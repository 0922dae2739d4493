//! What handshakes need to know of the pools: names, sizes, and the doors through which sessions enter.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::event::{EventfdFlags, eventfd};
use tidegate_nbd::handshake::Answer;
use tidegate_nbd::{Export, ExportName};

use crate::worker::Command;

/// The way into a pool's worker, from other threads.
#[derive(Debug)]
pub(crate) struct Door {
    commands: Sender<Command>,
    wake: OwnedFd,
    sessions: AtomicUsize,
    limit: AtomicUsize,
}

impl Door {
    /// # Errors
    /// When the system has no descriptor left.
    pub(crate) fn new(commands: Sender<Command>, session_limit: usize) -> io::Result<Self> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { commands, wake, sessions: AtomicUsize::new(0), limit: AtomicUsize::new(session_limit) })
    }

    /// Whether the worker is there to take it.
    pub(crate) fn send(&self, command: Command) -> bool {
        // A failed write means that the counter is at its limit: the worker is awake already.
        self.commands.send(command).is_ok() && rustix::io::write(&self.wake, &1u64.to_ne_bytes()).is_ok()
    }

    /// Readable while commands may wait.
    pub(crate) fn wake(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    pub(crate) fn set_session_limit(&self, limit: usize) {
        self.limit.store(limit, Ordering::Relaxed);
    }

    fn reserve(self: &Arc<Self>) -> Option<SessionSlot> {
        let limit = self.limit.load(Ordering::Relaxed);
        self.sessions
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| (count < limit).then_some(count + 1))
            .ok()
            .map(|_| SessionSlot(Arc::clone(self)))
    }
}

/// A session's place among those of its pool; given back when dropped.
#[derive(Debug)]
pub(crate) struct SessionSlot(Arc<Door>);

impl SessionSlot {
    pub(crate) fn door(&self) -> &Arc<Door> {
        &self.0
    }
}

impl Drop for SessionSlot {
    fn drop(&mut self) {
        self.0.sessions.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Keeps a removed export in its worker for somebody who was promised it. The worker holds one, too; when that is
/// the last, nobody new will come.
pub(crate) type Pin = Arc<()>;

/// An export as the handshake sees it.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) name: ExportName,
    pub(crate) export: Export,
    /// The export's identity across all pools; a later export of the same name has another.
    pub(crate) id: u64,
    pub(crate) door: Arc<Door>,
    pub(crate) pin: Pin,
}

/// All exports of a gateway. Off the data path: asked once per handshake.
#[derive(Debug, Default)]
pub(crate) struct Directory {
    entries: Mutex<Vec<Entry>>,
    shutting_down: AtomicBool,
}

/// A place in a pool, for a client that has chosen.
#[derive(Debug)]
pub(crate) struct Reservation {
    pub(crate) export: u64,
    pub(crate) slot: SessionSlot,
    pub(crate) pin: Pin,
}

impl Directory {
    pub(crate) fn set(&self, entries: Vec<Entry>) {
        *self.lock() = entries;
    }

    pub(crate) fn shut_down(&self) {
        self.shutting_down.store(true, Ordering::Relaxed);
    }

    /// Answers a client that asks for an export, and keeps a place for it if it wants to `open` it. The empty name
    /// is the export, if there is but one.
    pub(crate) fn find(&self, name: &ExportName, open: bool) -> (Answer, Option<Reservation>) {
        if self.shutting_down.load(Ordering::Relaxed) {
            return (Answer::ShuttingDown, None);
        }
        let entries = self.lock();
        let entry = match &entries[..] {
            [only] if name.as_str().is_empty() => Some(only),
            entries => entries.iter().find(|entry| entry.name == *name),
        };
        let Some(entry) = entry else { return (Answer::Unknown, None) };
        if !open {
            return (Answer::Found(entry.export.clone()), None);
        }
        match entry.door.reserve() {
            Some(slot) => {
                let reservation = Reservation { export: entry.id, slot, pin: Pin::clone(&entry.pin) };
                (Answer::Found(entry.export.clone()), Some(reservation))
            }
            None => (Answer::AtCapacity, None),
        }
    }

    /// Names and descriptions, in the order of the configuration.
    pub(crate) fn list(&self) -> Vec<(ExportName, String)> {
        self.lock().iter().map(|entry| (entry.name.clone(), entry.export.description.clone())).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Entry>> {
        // Entries are replaced as a whole, so that a panic elsewhere leaves nothing half done.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
