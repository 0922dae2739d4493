//! Sockets of disks: one front end at each, served by a thread of its own, whose rings the pool's worker has.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::JoinHandle;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use thiserror::Error;
use tidegate_sockets::aside::is_behind;
use tidegate_units::ConsumerName;
use tidegate_vhost::{DiskOwner, DiskRing, DiskSize, EventDescriptor, FrontEndError, GuestMemory, OwnerGone};
use tracing::{info, warn};

use super::{ACCEPT_PAUSE, RunningHandshakes, STACK};
use crate::access::KnownClient;
use crate::config::{DiskSocket, GatewayConfig, ListenConfig, ListenEndpoint, TlsUse};
use crate::directory::{ExportDirectory, SeatReservation};
use crate::disk::{DiskOrder, NewDisk, properties, terms};
use crate::endpoint::{AcceptedConnection, BoundEndpoint, SocketClient, too_many_passed};
use crate::stats::RefusalReason;
use crate::worker::door::{NewSession, WorkerCommand, WorkerDoor};

/// The identity of the next disk.
static NEXT_DISK: AtomicU64 = AtomicU64::new(0);

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
    thread: Option<JoinHandle<()>>,
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
        let acceptor = DiskAcceptor {
            bound,
            socket: socket.clone(),
            export: export.clone(),
            directory: Arc::clone(directory),
            handshakes: Arc::clone(handshakes),
            current: None,
        };
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new().name("tg-disk".into()).stack_size(STACK);
        let thread = thread.spawn(move || acceptor.run(&stopped)).map_err(failed)?;
        Ok(Self { export, socket, stop, thread: Some(thread) })
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
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            warn!("a disk's thread had failed");
        }
    }
}

/// The front end that was served last.
struct CurrentFrontEnd {
    connected: Arc<AtomicBool>,
    /// Ends once no request of it is under way.
    under_way: Receiver<()>,
}

struct DiskAcceptor {
    bound: BoundEndpoint,
    socket: DiskSocket,
    export: ConsumerName,
    directory: Arc<ExportDirectory>,
    handshakes: Arc<RunningHandshakes>,
    current: Option<CurrentFrontEnd>,
}

impl DiskAcceptor {
    fn run(mut self, stop: &OwnedFd) {
        loop {
            let mut fds = [
                PollFd::from_borrowed_fd(self.bound.as_fd(), PollFlags::IN),
                PollFd::new(stop, PollFlags::IN),
            ];
            // If it is interrupted, nothing is found, and it is asked again.
            let _ = poll(&mut fds, None);
            if !fds[1].revents().is_empty() {
                return;
            }
            match self.accept().and_then(|connection| self.serve(connection)) {
                Ok(()) => {}
                Err(error)
                    if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
                Err(error) => {
                    self.handshakes.refusals().count(RefusalReason::System, |also| {
                        warn!(endpoint = %self.socket, also, "cannot take a connection: {error}");
                    });
                    let mut fds = [PollFd::new(stop, PollFlags::IN)];
                    // If it is interrupted, the next failure waits again.
                    let _ = poll(&mut fds, Some(&ACCEPT_PAUSE));
                }
            }
        }
    }

    fn accept(&self) -> io::Result<AcceptedConnection> {
        // Front ends pass descriptors on purpose, so that their listener cannot refuse these.
        if is_behind() { Err(too_many_passed()) } else { self.bound.accept_passing() }
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
        if self.current.as_ref().is_some_and(|current| current.connected.load(Ordering::Acquire)) {
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
        let messages = UnixStream::from(stream.as_fd().try_clone_to_owned()?);
        let SeatReservation { export: id, slot, pin } = reserved;
        let disk = NEXT_DISK.fetch_add(1, Ordering::Relaxed);
        let (held, under_way) = sync_channel(0);
        let serial = self.export.as_str().to_owned();
        let properties = properties(&export.geometry, &serial);
        let size = Arc::new(DiskSize::new(export.geometry.size));
        let door = Arc::clone(slot.door());
        let session = NewSession {
            socket: Arc::new(stream),
            peer: peer.clone(),
            export: id,
            terms: terms(export.geometry),
            disk: Some(NewDisk { id: disk, serial, size: Arc::clone(&size), under_way: held }),
            device: None,
            already: Vec::new(),
            relayed: false,
            slot: Arc::new(slot),
            _pin: pin,
        };
        let connected = Arc::new(AtomicBool::new(true));
        let before = self.current.take();
        let current = CurrentFrontEnd { connected: Arc::clone(&connected), under_way };
        let thread = move || {
            if let Some(before) = before {
                // Its end is the answer.
                let _ = before.under_way.recv();
            }
            if door.send(WorkerCommand::Session(Box::new(session))) {
                let owner = WorkerOwner { door: Arc::clone(&door), disk };
                let end = tidegate_vhost::serve(messages, properties, &size, owner);
                let reason = match end {
                    FrontEndError::HungUp => end.to_string(),
                    _ => format!("the front end is no longer served: {end}"),
                };
                connected.store(false, Ordering::Release);
                door.send(WorkerCommand::Disk { disk, order: DiskOrder::End(reason) });
            }
            connected.store(false, Ordering::Release);
        };
        self.current = Some(current);
        std::thread::Builder::new().name("tg-front-end".into()).stack_size(STACK).spawn(thread).map(drop)
    }
}

/// The worker of a disk's pool, as the owner of its rings.
struct WorkerOwner {
    door: Arc<WorkerDoor>,
    disk: u64,
}

impl WorkerOwner {
    fn send(&self, order: DiskOrder) -> Result<(), OwnerGone> {
        let sent = self.door.send(WorkerCommand::Disk { disk: self.disk, order });
        if sent { Ok(()) } else { Err(OwnerGone) }
    }
}

impl DiskOwner for WorkerOwner {
    fn set_memory(&mut self, memory: GuestMemory) -> Result<(), OwnerGone> {
        self.send(DiskOrder::Memory(memory))
    }

    fn start(&mut self, index: u16, ring: DiskRing) -> Result<(), OwnerGone> {
        self.send(DiskOrder::Start { index, ring: Box::new(ring) })
    }

    fn stop(&mut self, index: u16) -> Result<Option<u16>, OwnerGone> {
        let (reply, stopped) = sync_channel(1);
        self.send(DiskOrder::Stop { index, reply })?;
        stopped.recv().map_err(|_| OwnerGone)
    }

    fn set_call(&mut self, index: u16, call: Option<EventDescriptor>) -> Result<(), OwnerGone> {
        self.send(DiskOrder::Call { index, call })
    }

    fn set_cache(&mut self, may_cache: bool) -> Result<(), OwnerGone> {
        self.send(DiskOrder::Cache { may_cache })
    }
}
