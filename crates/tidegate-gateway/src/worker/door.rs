//! Commands of other threads to a worker, and the door by which they come.
//!
//! A command may hand over a session, whose slot keeps the door open: the two are one file.

use std::io;
use std::sync::mpsc::{Sender, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use rustix::net::Shutdown;
use tidegate_control::LoopConfig;
use tidegate_nbd::SessionTerms;
use tidegate_sockets::aside::PeerSocket;
use tidegate_ublk::ServedDevice;
use tidegate_units::Instant;

use crate::backend::ExportVolume;
use crate::bell::WorkerBell;
use crate::config::{ExportConfig, PoolLimits};
use crate::disk::{DiskOrder, NewDisk};
use crate::ring::CompletedOperation;
use crate::seats::{ConnectionSource, PoolSeats};
use crate::stats::{PoolSnapshot, RefusalReason};
use crate::upstream::{UpstreamConnection, UpstreamError};

/// A command of another thread to a worker.
#[derive(Debug)]
pub(crate) enum WorkerCommand {
    Session(Box<NewSession>),
    Snapshot(SyncSender<PoolSnapshot>),
    /// A newcomer to an export is refused at this bound: end a session that has been idle for long enough,
    /// and say whether there was one.
    MakeRoom {
        bound: RefusalReason,
        export: u64,
        source: ConnectionSource,
        reply: SyncSender<bool>,
    },
    Change(Box<PoolChange>),
    /// Answer what is here, then end; cut off what is left at this time.
    Drain {
        deadline: Instant,
        fate: SessionFate,
    },
    /// An attempt to connect to an export's upstream has ended.
    Connected {
        export: u64,
        outcome: Box<Result<UpstreamConnection, UpstreamError>>,
    },
    /// The front end of a disk wants something, or has gone.
    Disk {
        disk: u64,
        order: DiskOrder,
        /// Told when the order is carried out, and dropped if the disk is not there any more.
        done: SyncSender<()>,
    },
    /// An operation is done that a volume's own thread has submitted.
    Completed(CompletedOperation),
}

/// The fate of sessions at the end of the service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SessionFate {
    /// They are closed.
    Close,
    /// The next process goes on with those that it can have.
    Suspend,
}

/// A new configuration of a pool, its files already open: it cannot fail any more.
#[derive(Debug)]
pub(crate) struct PoolChange {
    pub(crate) depth: u32,
    pub(crate) law: Option<LoopConfig>,
    pub(crate) release: tidegate_sched::BucketRelease,
    pub(crate) limits: PoolLimits,
    pub(crate) changed: Vec<(u64, ExportConfig)>,
    pub(crate) added: Vec<NewExport>,
    pub(crate) removed: Vec<u64>,
    /// Exports whose volume has another size now.
    pub(crate) resized: Vec<(u64, u64)>,
}

/// An export, opened.
#[derive(Debug)]
pub(crate) struct NewExport {
    pub(crate) id: u64,
    pub(crate) volume: ExportVolume,
    pub(crate) config: ExportConfig,
    pub(crate) pin: ExportPin,
}

/// A newly accepted session: its client, and the outcome of the negotiation.
#[derive(Debug)]
pub(crate) struct NewSession {
    pub(crate) socket: Arc<PeerSocket>,
    pub(crate) peer: String,
    /// The export's identity across all pools.
    pub(crate) export: u64,
    pub(crate) terms: SessionTerms,
    /// `None` for a client of NBD.
    pub(crate) disk: Option<NewDisk>,
    /// The channel of a block device of this host.
    pub(crate) device: Option<ServedDevice>,
    /// Bytes that were read before: by the handshake, or by the process that had the session.
    pub(crate) already: Vec<u8>,
    /// True if its bytes go through the relay of a session by TLS.
    pub(crate) relayed: bool,
    /// Shared with the relay of a session by TLS.
    pub(crate) slot: Arc<SessionSlot>,
    /// Holds the export until the session is counted there.
    pub(crate) _pin: ExportPin,
}

/// The time for which a newcomer waits while a session is ended to make room for it: some turns of the
/// worker.
const ROOM: Duration = Duration::from_millis(500);

/// The way into a pool's worker, from other threads.
#[derive(Debug)]
pub(crate) struct WorkerDoor {
    commands: Sender<WorkerCommand>,
    bell: Arc<WorkerBell>,
    seats: Mutex<PoolSeats>,
    /// The sockets of sessions, so that they can be shut down when the worker cannot do it any more.
    sockets: Mutex<Vec<Weak<PeerSocket>>>,
}

impl WorkerDoor {
    /// # Errors
    /// When the system has no descriptor left.
    pub(crate) fn new(commands: Sender<WorkerCommand>) -> io::Result<Self> {
        let bell = Arc::new(WorkerBell::new()?);
        Ok(Self { commands, bell, seats: Mutex::default(), sockets: Mutex::default() })
    }

    /// Sends a command and rings the worker's bell. Returns true if the worker is still there to take it.
    pub(crate) fn send(&self, command: WorkerCommand) -> bool {
        if let WorkerCommand::Session(new) = &command {
            let mut sockets = self.lock_sockets();
            sockets.retain(|socket| socket.strong_count() > 0);
            sockets.push(Arc::downgrade(&new.socket));
        }
        let sent = self.commands.send(command).is_ok();
        self.bell.ring();
        sent
    }

    /// Sends several commands, none of them a session.
    pub(crate) fn send_all(&self, commands: impl Iterator<Item = WorkerCommand>) {
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

    fn lock_sockets(&self) -> MutexGuard<'_, Vec<Weak<PeerSocket>>> {
        // Entries are independent of each other, so that a panic elsewhere leaves nothing half done.
        self.sockets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Rings when there are commands.
    pub(crate) fn bell(&self) -> &Arc<WorkerBell> {
        &self.bell
    }

    /// Takes new bounds and the exports that are served; see [`PoolSeats::configure`].
    pub(crate) fn configure(&self, limits: &PoolLimits, exports: &[(u64, bool)]) {
        self.seats().configure(limits, exports);
    }

    /// Returns whether an export has more sessions than places are kept for it.
    pub(crate) fn draws(&self, export: u64) -> bool {
        self.seats().draws(export)
    }

    /// A place for a newcomer: a free one, or that of an idle session which is ended for it.
    pub(crate) fn reserve(
        self: &Arc<Self>,
        export: u64,
        source: ConnectionSource,
    ) -> Result<SessionSlot, RefusalReason> {
        let bound = match self.take(export, source) {
            Err(bound) => bound,
            taken => return taken,
        };
        let (reply, ended) = sync_channel(1);
        let end = std::time::Instant::now() + ROOM;
        if self.send(WorkerCommand::MakeRoom { bound, export, source, reply })
            && ended.recv_timeout(ROOM).unwrap_or(false)
        {
            while std::time::Instant::now() < end {
                if let Ok(slot) = self.take(export, source) {
                    return Ok(slot);
                }
                std::thread::sleep(RETRY);
            }
        }
        Err(bound)
    }

    fn take(self: &Arc<Self>, export: u64, source: ConnectionSource) -> Result<SessionSlot, RefusalReason> {
        self.seats().take(export, source)?;
        Ok(SessionSlot { door: Arc::clone(self), export, source })
    }

    fn seats(&self) -> MutexGuard<'_, PoolSeats> {
        // A panic elsewhere may leave a count too high, which refuses a newcomer and nothing else.
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A session's place among those of its pool; given back when dropped.
#[derive(Debug)]
pub(crate) struct SessionSlot {
    door: Arc<WorkerDoor>,
    export: u64,
    source: ConnectionSource,
}

impl SessionSlot {
    pub(crate) fn door(&self) -> &Arc<WorkerDoor> {
        &self.door
    }

    pub(crate) fn source(&self) -> ConnectionSource {
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
pub(crate) type ExportPin = Arc<()>;

const RETRY: Duration = Duration::from_millis(5);
