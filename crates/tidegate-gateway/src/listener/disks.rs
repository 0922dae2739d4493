//! Sockets of disks: one front end at each, served by a thread of its own, whose rings the pool's worker has.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::net::Shutdown;
use thiserror::Error;
use tidegate_units::ConsumerName;
use tidegate_vhost::{
    DiskOwner, DiskRing, DiskSize, EventDescriptor, FrontEndError, GuestMemory, MOST_QUEUES, OwnerGone,
};
use tracing::{info, warn};

use super::{ACCEPT_PAUSE, RunningHandshakes, STACK};
use crate::access::KnownClient;
use crate::config::{DiskSocket, GatewayConfig, ListenConfig, ListenEndpoint, TlsUse};
use crate::directory::{ExportDirectory, SeatReservation};
use crate::disk::{DiskOrder, NewDisk, properties, terms};
use crate::endpoint::{AcceptedConnection, BoundEndpoint, SocketClient};
use crate::stats::RefusalReason;
use crate::worker::door::{NewSession, WorkerCommand, WorkerDoor};

/// The identity of the next disk.
static NEXT_DISK: AtomicU64 = AtomicU64::new(0);

/// The time in which a front end starts its first ring, if another one wants its place. Chosen: a guest that
/// is slower, in its firmware for example, has no rival.
const SET_UP: Duration = Duration::from_secs(5);

/// Threads of one socket. More than one are there while one closes or frees what its front end has passed.
const MOST_THREADS: usize = 8;

/// The time that closing a socket usually takes, with much to spare. There may be connections in it that were
/// not accepted, and descriptors in those.
const CLOSING: Duration = Duration::from_secs(1);

/// A socket for an export's disk cannot be listened on.
#[derive(Debug, Error)]
#[error("export `{export}`: cannot listen on {socket}: {source}")]
pub struct DiskSocketError {
    /// The export.
    pub export: ConsumerName,
    /// The socket.
    pub socket: DiskSocket,
    /// The system's answer.
    pub source: io::Error,
}

/// A socket of an export, bound.
#[derive(Debug)]
pub(crate) struct BoundDisk {
    export: ConsumerName,
    socket: DiskSocket,
    bound: BoundEndpoint,
}

impl BoundDisk {
    /// The sockets of a configuration, but for those that are listened on already.
    ///
    /// # Errors
    /// When one of them cannot be bound; none is left then.
    pub(crate) fn all(config: &GatewayConfig, known: &[DiskListener]) -> Result<Vec<Self>, DiskSocketError> {
        let mut bound = Vec::new();
        for export in config.pools.iter().flat_map(|pool| &pool.exports) {
            for socket in &export.disks {
                if known.iter().any(|known| known.export == export.name && known.socket == *socket) {
                    continue;
                }
                let endpoint = ListenEndpoint::Unix(socket.path.clone());
                let listen = ListenConfig { endpoint, tls: TlsUse::Off, file: socket.file.clone() };
                let (export, socket) = (export.name.clone(), socket.clone());
                match BoundEndpoint::new(&listen) {
                    Ok(endpoint) => bound.push(Self { export, socket, bound: endpoint }),
                    Err(source) => return Err(DiskSocketError { export, socket, source }),
                }
            }
        }
        Ok(bound)
    }
}

/// Returns what keeps a socket of an export from being listened on now.
///
/// # Errors
/// The reason, if there is one.
pub(crate) fn try_out(export: &ConsumerName, socket: &DiskSocket) -> Result<(), DiskSocketError> {
    let outcome = BoundEndpoint::try_out(&ListenEndpoint::Unix(socket.path.clone()));
    outcome.map_err(|source| DiskSocketError { export: export.clone(), socket: socket.clone(), source })
}

/// The thread that accepts on a disk's socket.
#[derive(Debug)]
pub(crate) struct DiskListener {
    export: ConsumerName,
    socket: DiskSocket,
    stop: Arc<OwnedFd>,
    /// Ends once the socket is closed.
    ended: Receiver<()>,
}

impl DiskListener {
    /// # Errors
    /// When the system has no thread or descriptor left.
    pub(crate) fn start(
        disk: BoundDisk,
        directory: &Arc<ExportDirectory>,
        handshakes: &Arc<RunningHandshakes>,
    ) -> Result<Self, DiskSocketError> {
        let BoundDisk { export, socket, bound } = disk;
        let failed = |source| DiskSocketError { export: export.clone(), socket: socket.clone(), source };
        let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let stop = Arc::new(stop.map_err(|error| failed(error.into()))?);
        let (_ended, ended) = sync_channel(0);
        let acceptor = DiskAcceptor {
            bound,
            socket: socket.clone(),
            export: export.clone(),
            directory: Arc::clone(directory),
            handshakes: Arc::clone(handshakes),
            current: None,
            threads: Arc::default(),
            _ended,
        };
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new().name("tg-disk".into()).stack_size(STACK);
        thread.spawn(move || acceptor.run(&stopped)).map_err(failed)?;
        Ok(Self { export, socket, stop, ended })
    }

    /// Returns true if a configuration has this socket.
    pub(crate) fn is_in(&self, config: &GatewayConfig) -> bool {
        let mut exports = config.pools.iter().flat_map(|pool| &pool.exports);
        exports.any(|export| export.name == self.export && export.disks.contains(&self.socket))
    }
}

impl Drop for DiskListener {
    /// Closes the socket. A front end that is connected stays: its session ends with those of its pool.
    fn drop(&mut self) {
        // The counter cannot be full after one write.
        let _ = rustix::io::write(&*self.stop, &1u64.to_ne_bytes());
        // Its end is the answer.
        if self.ended.recv_timeout(CLOSING) == Err(RecvTimeoutError::Timeout) {
            warn!(socket = %self.socket, "a disk's socket takes long to close");
        }
    }
}

/// The state of a front end that its own thread and the acceptor's have.
#[derive(Debug)]
struct FrontEndState {
    connected: AtomicBool,
    /// The time since when none of its rings is started; `None` while one is.
    idle_since: Mutex<Option<Instant>>,
}

impl FrontEndState {
    fn set_idle(&self, since: Option<Instant>) {
        *self.idle_since.lock().unwrap_or_else(PoisonError::into_inner) = since;
    }

    /// Returns true if it has no disk, and has had the time to take it.
    fn may_be_displaced(&self, now: Instant) -> bool {
        let since = *self.idle_since.lock().unwrap_or_else(PoisonError::into_inner);
        since.is_some_and(|since| now.saturating_duration_since(since) >= SET_UP)
    }
}

/// The front end that was served last.
struct CurrentFrontEnd {
    state: Arc<FrontEndState>,
    disk: u64,
    door: Arc<WorkerDoor>,
    /// Its thread's, which closes it.
    socket: Weak<UnixStream>,
    /// Ends once no request of it is under way.
    under_way: Receiver<()>,
}

impl CurrentFrontEnd {
    /// Takes its place away. Its thread may be closing something that the front end has passed, and not look
    /// at its socket: so the worker hears of it from here.
    fn displace(&self) {
        self.state.connected.store(false, Ordering::Release);
        let reason = "another front end came, and this one had started no ring";
        let order = DiskOrder::End(reason.into());
        // The answer is not waited for. It is sent before its thread hears of it, which would give another reason.
        self.door.send(WorkerCommand::Disk { disk: self.disk, order, done: sync_channel(1).0 });
        if let Some(socket) = self.socket.upgrade() {
            // Fails only when it has hung up.
            let _ = rustix::net::shutdown(&socket, Shutdown::Both);
        }
    }
}

struct DiskAcceptor {
    bound: BoundEndpoint,
    socket: DiskSocket,
    export: ConsumerName,
    directory: Arc<ExportDirectory>,
    handshakes: Arc<RunningHandshakes>,
    current: Option<CurrentFrontEnd>,
    /// Each thread of the socket's front ends has a share of it.
    threads: Arc<()>,
    /// Dropped after the socket.
    _ended: SyncSender<()>,
}

impl DiskAcceptor {
    fn run(mut self, stop: &OwnedFd) {
        let is_stopped = |timeout| {
            let mut fds = [PollFd::new(stop, PollFlags::IN)];
            // If it is interrupted, it is asked again later.
            let _ = poll(&mut fds, timeout);
            !fds[0].revents().is_empty()
        };
        loop {
            if Arc::strong_count(&self.threads) > MOST_THREADS {
                if is_stopped(Some(&ACCEPT_PAUSE)) {
                    return;
                }
                continue;
            }
            let mut fds = [
                PollFd::from_borrowed_fd(self.bound.as_fd(), PollFlags::IN),
                PollFd::new(stop, PollFlags::IN),
            ];
            // If it is interrupted, nothing is found, and it is asked again.
            let _ = poll(&mut fds, None);
            if !fds[1].revents().is_empty() {
                return;
            }
            // Front ends pass descriptors on purpose, so that their listener cannot refuse these.
            match self.bound.accept_passing().and_then(|connection| self.serve(connection)) {
                Ok(()) => {}
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::WouldBlock
                            | io::ErrorKind::Interrupted
                            | io::ErrorKind::ConnectionAborted
                    ) => {}
                Err(error) => {
                    self.handshakes.refusals().count(RefusalReason::System, |also| {
                        warn!(endpoint = %self.socket, also, "cannot take a connection: {error}");
                    });
                    if is_stopped(Some(&ACCEPT_PAUSE)) {
                        return;
                    }
                }
            }
        }
    }

    /// Runs a part of a front end's service in a thread of its own.
    fn spawn(&self, part: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let share = Arc::clone(&self.threads);
        let thread = std::thread::Builder::new().name("tg-front-end".into()).stack_size(STACK);
        let run = move || {
            part();
            drop(share);
        };
        thread.spawn(run).map(drop)
    }

    /// Serves a front end in a thread, or refuses it.
    fn serve(&mut self, connection: AcceptedConnection) -> io::Result<()> {
        let AcceptedConnection { stream, client, peer, tls: _ } = connection;
        let SocketClient { source, origin } = client;
        let peer = peer.replacen("unix:", "vhost-user:", 1);
        let refuse = |reason: RefusalReason, why: &str| {
            self.handshakes.refusals().count(reason, |also| {
                info!(peer, export = %self.export, also, "disk refused: {why}");
            });
        };
        let is_connected = |current: &&CurrentFrontEnd| current.state.connected.load(Ordering::Acquire);
        let rival = self.current.as_ref().filter(is_connected);
        if rival.is_some_and(|rival| !rival.state.may_be_displaced(Instant::now())) {
            refuse(RefusalReason::ExportSessions, "another front end is connected to this socket");
            return Ok(());
        }
        let client = KnownClient { origin, names: None };
        let (export, reserved) = match self.directory.find_consumer(&self.export, &client, source) {
            Ok(found) => found,
            Err(reason) => {
                refuse(reason, reason.reason());
                return Ok(());
            }
        };
        if let Some(rival) = rival {
            rival.displace();
        }
        let SeatReservation { export: id, volume, slot, pin } = reserved;
        let disk = NEXT_DISK.fetch_add(1, Ordering::Relaxed);
        let (held, own_under_way) = sync_channel(0);
        let (held_for_next, under_way) = sync_channel(0);
        let serial = self.export.as_str().to_owned();
        let properties = properties(&export.geometry, &serial, &volume);
        let size = Arc::new(DiskSize::new(export.geometry.size));
        let door = Arc::clone(slot.door());
        let messages = Arc::new(UnixStream::from(stream.as_fd().try_clone_to_owned()?));
        let session = NewSession {
            socket: Arc::new(stream),
            peer: peer.clone(),
            export: id,
            terms: terms(export.geometry),
            disk: Some(NewDisk {
                id: disk,
                serial,
                size: Arc::clone(&size),
                under_way: [held, held_for_next],
            }),
            device: None,
            already: Vec::new(),
            relayed: false,
            slot: Arc::new(slot),
            _pin: pin,
        };
        let state =
            FrontEndState { connected: AtomicBool::new(true), idle_since: Mutex::new(Some(Instant::now())) };
        let state = Arc::new(state);
        let current = CurrentFrontEnd {
            state: Arc::clone(&state),
            disk,
            door: Arc::clone(&door),
            socket: Arc::downgrade(&messages),
            under_way,
        };
        let (hand_over, handed_over) = sync_channel::<Option<CurrentFrontEnd>>(1);
        let part = move || {
            if let Ok(Some(before)) = handed_over.recv() {
                // Its end is the answer.
                let _ = before.under_way.recv();
            }
            if door.send(WorkerCommand::Session(Box::new(session))) {
                let owner = WorkerOwner {
                    door,
                    disk,
                    state: Arc::clone(&state),
                    started: 0,
                    under_way: own_under_way,
                };
                tidegate_vhost::serve(&messages, properties, &size, owner);
            }
            state.connected.store(false, Ordering::Release);
        };
        self.spawn(part)?;
        // Without a thread the one before stays, whose requests the next front end has to wait for.
        let before = self.current.replace(current);
        // The thread waits for it.
        let _ = hand_over.send(before);
        Ok(())
    }
}

/// The worker of a disk's pool, as the owner of its rings.
struct WorkerOwner {
    door: Arc<WorkerDoor>,
    disk: u64,
    state: Arc<FrontEndState>,
    /// The rings that are started, as bits.
    started: u64,
    /// Ends once the worker has dropped all that the front end has passed.
    under_way: Receiver<()>,
}

/// A bit for each ring.
const _: () = assert!(MOST_QUEUES as u32 <= u64::BITS);

impl WorkerOwner {
    /// Has the worker carry out an order. A front end thus has one at a time.
    fn send(&self, order: DiskOrder) -> Result<(), OwnerGone> {
        let (done, carried_out) = sync_channel(1);
        // If the worker is not there, it has dropped the other end.
        self.door.send(WorkerCommand::Disk { disk: self.disk, order, done });
        carried_out.recv().map_err(|_| OwnerGone)
    }

    fn set_started(&mut self, started: u64) {
        self.started = started;
        self.state.set_idle((started == 0).then(Instant::now));
    }
}

impl DiskOwner for WorkerOwner {
    fn set_memory(&mut self, memory: Option<GuestMemory>) -> Result<(), OwnerGone> {
        self.send(DiskOrder::Memory(memory))
    }

    fn start(&mut self, index: u16, ring: DiskRing) -> Result<(), OwnerGone> {
        self.set_started(self.started | 1 << index);
        self.send(DiskOrder::Start { index, ring: Box::new(ring) })
    }

    fn stop(&mut self, index: u16) -> Result<Option<u16>, OwnerGone> {
        let (reply, stopped) = sync_channel(1);
        self.send(DiskOrder::Stop { index, reply })?;
        let base = stopped.recv().map_err(|_| OwnerGone);
        self.set_started(self.started & !(1 << index));
        base
    }

    fn set_call(&mut self, index: u16, call: Option<EventDescriptor>) -> Result<(), OwnerGone> {
        self.send(DiskOrder::Call { index, call })
    }

    fn set_cache(&mut self, may_cache: bool) -> Result<(), OwnerGone> {
        self.send(DiskOrder::Cache { may_cache })
    }

    fn end(&mut self, end: &FrontEndError) {
        let reason = match end {
            FrontEndError::HungUp => end.to_string(),
            _ => format!("the front end is no longer served: {end}"),
        };
        self.state.connected.store(false, Ordering::Release);
        // One that is gone already has ended.
        let _ = self.send(DiskOrder::End(reason));
        let _ = self.under_way.recv();
    }
}
