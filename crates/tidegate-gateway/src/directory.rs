//! The exports as handshakes see them: names, sizes, and the doors through which sessions enter.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use rustix::net::Shutdown;
use tidegate_nbd::handshake::Answer;
use tidegate_nbd::{Export, ExportName};
use tidegate_tls::ServerTls;

use crate::access::{Access, Client, Verdict};
use crate::bell::Bell;
use crate::config::PoolLimits;
use crate::seats::{Seats, Source};
use crate::stats::Refusal;
use crate::worker::Command;

/// The time for which a newcomer waits while a session is ended to make room for it: some turns of the
/// worker.
const ROOM: Duration = Duration::from_millis(500);
const RETRY: Duration = Duration::from_millis(5);

/// The way into a pool's worker, from other threads.
#[derive(Debug)]
pub(crate) struct Door {
    commands: Sender<Command>,
    bell: Arc<Bell>,
    seats: Mutex<Seats>,
    /// The sockets of sessions, so that they can be shut down when the worker cannot do it any more.
    sockets: Mutex<Vec<Weak<OwnedFd>>>,
}

impl Door {
    /// # Errors
    /// When the system has no descriptor left.
    pub(crate) fn new(commands: Sender<Command>) -> io::Result<Self> {
        let bell = Arc::new(Bell::new()?);
        Ok(Self { commands, bell, seats: Mutex::default(), sockets: Mutex::default() })
    }

    /// Sends a command and rings the worker's bell. Returns true if the worker is still there to take it.
    pub(crate) fn send(&self, command: Command) -> bool {
        if let Command::Session(new) = &command {
            let mut sockets = self.lock_sockets();
            sockets.retain(|socket| socket.strong_count() > 0);
            sockets.push(Arc::downgrade(&new.socket));
        }
        let sent = self.commands.send(command).is_ok();
        self.bell.ring();
        sent
    }

    /// Sends several commands, none of them a session.
    pub(crate) fn send_all(&self, commands: impl Iterator<Item = Command>) {
        for command in commands {
            // A worker that is not there any more needs none.
            let _ = self.commands.send(command);
        }
        self.bell.ring();
    }

    /// Shuts down the sockets of all sessions, in the place of a worker that does not run any more: their
    /// clients hear at once that the connection has ended.
    pub(crate) fn shut_sessions(&self) {
        for socket in self.lock_sockets().iter().filter_map(Weak::upgrade) {
            // Fails only when the connection has ended already.
            let _ = rustix::net::shutdown(&socket, Shutdown::Both);
        }
    }

    fn lock_sockets(&self) -> MutexGuard<'_, Vec<Weak<OwnedFd>>> {
        // Entries are independent of each other, so that a panic elsewhere leaves nothing half done.
        self.sockets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Rings when there are commands.
    pub(crate) fn bell(&self) -> &Arc<Bell> {
        &self.bell
    }

    /// Takes new bounds and the exports that are served; see [`Seats::configure`].
    pub(crate) fn configure(&self, limits: &PoolLimits, exports: &[(u64, bool)]) {
        self.seats().configure(limits, exports);
    }

    /// Returns whether an export has more sessions than places are kept for it.
    pub(crate) fn draws(&self, export: u64) -> bool {
        self.seats().draws(export)
    }

    /// A place for a newcomer: a free one, or that of an idle session which is ended for it.
    fn reserve(self: &Arc<Self>, export: u64, source: Source) -> Result<SessionSlot, Refusal> {
        let bound = match self.take(export, source) {
            Err(bound) => bound,
            taken => return taken,
        };
        let (reply, ended) = sync_channel(1);
        let end = Instant::now() + ROOM;
        if self.send(Command::MakeRoom { bound, export, source, reply })
            && ended.recv_timeout(ROOM).unwrap_or(false)
        {
            while Instant::now() < end {
                if let Ok(slot) = self.take(export, source) {
                    return Ok(slot);
                }
                std::thread::sleep(RETRY);
            }
        }
        Err(bound)
    }

    fn take(self: &Arc<Self>, export: u64, source: Source) -> Result<SessionSlot, Refusal> {
        self.seats().take(export, source)?;
        Ok(SessionSlot { door: Arc::clone(self), export, source })
    }

    fn seats(&self) -> MutexGuard<'_, Seats> {
        // A panic elsewhere may leave a count too high, which refuses a newcomer and nothing else.
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A session's place among those of its pool; given back when dropped.
#[derive(Debug)]
pub(crate) struct SessionSlot {
    door: Arc<Door>,
    export: u64,
    source: Source,
}

impl SessionSlot {
    pub(crate) fn door(&self) -> &Arc<Door> {
        &self.door
    }

    pub(crate) fn source(&self) -> Source {
        self.source
    }
}

impl Drop for SessionSlot {
    fn drop(&mut self) {
        self.door.seats().give_back(self.export, self.source);
    }
}

/// A pin that keeps a removed export in its worker while a handshake or session may still use it. The worker
/// has one, too; when that is the last, no newcomer will use it.
pub(crate) type Pin = Arc<()>;

/// An export as the handshake sees it.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) name: ExportName,
    pub(crate) export: Export,
    pub(crate) access: Access,
    /// The export's identity across all pools; a later export of the same name has another.
    pub(crate) id: u64,
    pub(crate) door: Arc<Door>,
    pub(crate) pin: Pin,
}

/// All exports of a gateway. Off the data path: asked once per handshake.
#[derive(Debug, Default)]
pub(crate) struct Directory {
    entries: Mutex<Vec<Entry>>,
    /// Exports that are configured, and not served before their upstream is reached.
    awaited: Mutex<Vec<(ExportName, Access)>>,
    /// The gateway's part in TLS, where it has one.
    tls: Mutex<Option<ServerTls>>,
    shutting_down: AtomicBool,
}

/// A place in a pool, for a client that has chosen.
#[derive(Debug)]
pub(crate) struct Reservation {
    pub(crate) export: u64,
    pub(crate) slot: SessionSlot,
    pub(crate) pin: Pin,
}

/// A client's question that is answered with a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Refused(Refusal);

impl Refused {
    pub(crate) fn refusal(self) -> Refusal {
        self.0
    }
}

impl From<Refused> for Answer {
    fn from(Refused(refusal): Refused) -> Self {
        match refusal {
            Refusal::ShuttingDown => Self::ShuttingDown,
            Refusal::Unreached => Self::Unavailable,
            Refusal::PoolSessions | Refusal::ExportSessions | Refusal::SourceSessions => Self::AtCapacity,
            Refusal::Certificate | Refusal::Address | Refusal::User => Self::Forbidden,
            Refusal::TlsRequired => Self::TlsRequired,
            _ => Self::Unknown,
        }
    }
}

impl Directory {
    pub(crate) fn set(&self, entries: Vec<Entry>, awaited: Vec<(ExportName, Access)>) {
        *self.lock() = entries;
        *self.awaited.lock().unwrap_or_else(PoisonError::into_inner) = awaited;
    }

    pub(crate) fn shut_down(&self) {
        self.shutting_down.store(true, Ordering::Relaxed);
    }

    pub(crate) fn set_tls(&self, tls: Option<ServerTls>) {
        *self.tls.lock().unwrap_or_else(PoisonError::into_inner) = tls;
    }

    pub(crate) fn tls(&self) -> Option<ServerTls> {
        self.tls.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Answers a client that asks for an export, and keeps a place for it if it wants to `open` it. Of
    /// several exports with the name, the client gets the first that it may use. The empty name is the only
    /// name that there is.
    ///
    /// # Errors
    /// The reason for which the client is refused, at the first export of the name.
    pub(crate) fn find(
        &self,
        name: &ExportName,
        open: bool,
        client: &Client,
        source: Source,
    ) -> Result<(Export, Option<Reservation>), Refused> {
        if self.shutting_down.load(Ordering::Relaxed) {
            return Err(Refused(Refusal::ShuttingDown));
        }
        let entry = match self.served(name, client) {
            Ok(entry) => entry,
            Err(refusal) => return Err(Refused(self.unreached(name, client).unwrap_or(refusal))),
        };
        if !open {
            return Ok((entry.export, None));
        }
        let slot = entry.door.reserve(entry.id, source).map_err(Refused)?;
        Ok((entry.export, Some(Reservation { export: entry.id, slot, pin: entry.pin })))
    }

    fn served(&self, name: &ExportName, client: &Client) -> Result<Entry, Refusal> {
        let entries = self.lock();
        let only = entries.first().filter(|first| entries.iter().all(|entry| entry.name == first.name));
        let name = only.filter(|_| name.as_str().is_empty()).map_or(name, |only| &only.name);
        let mut refusal = None;
        for entry in entries.iter().filter(|entry| entry.name == *name) {
            match refused(&entry.access, client) {
                None => return Ok(entry.clone()),
                Some(reason) => refusal = refusal.or(Some(reason)),
            }
        }
        Err(refusal.unwrap_or(Refusal::UnknownExport))
    }

    /// The refusal of a client that asks for exports whose upstream is not reached yet; `None` where there
    /// are none.
    fn unreached(&self, name: &ExportName, client: &Client) -> Option<Refusal> {
        let awaited = self.awaited.lock().unwrap_or_else(PoisonError::into_inner);
        let named = awaited.iter().filter(|(awaited, _)| awaited == name);
        let refusals: Vec<_> = named.map(|(_, access)| refused(access, client)).collect();
        if refusals.contains(&None) {
            Some(Refusal::Unreached)
        } else {
            refusals.into_iter().next().flatten()
        }
    }

    /// Names and descriptions of the exports that a client may use, in the order of the configuration.
    pub(crate) fn list(&self, client: &Client) -> Vec<(ExportName, String)> {
        let entries = self.lock();
        let mut listed = BTreeSet::new();
        let allowed = entries.iter().filter(|entry| refused(&entry.access, client).is_none());
        let first = allowed.filter(|entry| listed.insert(entry.name.clone()));
        first.map(|entry| (entry.name.clone(), entry.export.description.clone())).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Entry>> {
        // Entries are replaced as a whole, so that a panic elsewhere leaves nothing half done.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The reason for which a client may not use an export.
fn refused(access: &Access, client: &Client) -> Option<Refusal> {
    match access.judge(client) {
        Verdict::Allowed => None,
        Verdict::NeedsCertificate => Some(Refusal::TlsRequired),
        Verdict::Denied(refusal) => Some(refusal),
    }
}
