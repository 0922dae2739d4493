//! Endpoints: accepting connections, and their handshakes, in short-lived threads with a deadline.

pub(crate) mod devices;
pub(crate) mod disks;
mod doorstep;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{RecvFlags, SendFlags, Shutdown};
use rustix::time::Timespec;
use thiserror::Error;
use tidegate_nbd::handshake::{ExportAnswer, ServerError, ServerEvent, ServerHandshake};
use tidegate_sockets::aside::PeerSocket;
use tidegate_tls::{TlsRelay, TlsStream};
use tracing::{debug, info, warn};

use self::doorstep::{Doorstep, DoorstepEvent, DoorstepVisitor, VisitorState};
use crate::access::KnownClient;
use crate::config::HandshakeLimits;
use crate::crowd::ConnectionCrowd;
use crate::directory::{ExportDirectory, SeatReservation};
use crate::endpoint::{AcceptedConnection, BoundEndpoint, SocketClient};
use crate::input::READ_AHEAD;
use crate::refusals::RefusalCounts;
use crate::stats::RefusalReason;
use crate::worker::door::{NewSession, SessionSlot, WorkerCommand};

/// A handshake keeps its buffers on the heap; its thread needs little more than frames.
const STACK: usize = 256 * 1024;

/// The bytes read at once during a handshake.
const CHUNK: usize = 4096;

/// The pause after a failed accept. Accept fails when descriptors run out, and would spin.
const ACCEPT_PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// Connections accepted in a row before the others are looked at.
const ARRIVALS: usize = 64;

const _: () = assert!(CHUNK <= READ_AHEAD);

/// Handshakes under way, with a handle on their sockets to end them, and what became of others.
#[derive(Debug, Default)]
pub(crate) struct RunningHandshakes {
    running: Mutex<ConnectionCrowd<PeerSocket>>,
    /// Connections that have not asked for anything yet.
    waiting: AtomicUsize,
    ended: AtomicU64,
    refusals: RefusalCounts,
}

impl RunningHandshakes {
    /// Enters a newcomer; another leaves when there are too many.
    fn enter(&self, connection: &AcceptedConnection, limit: usize) -> io::Result<u64> {
        let socket = connection.stream.try_clone()?;
        let mut running = self.lock();
        while running.len() >= limit.max(1) {
            if let Some(displaced) = running.displace() {
                self.refusals.count(RefusalReason::Displaced, tell_displaced);
                // Its thread sees the end of the connection; it has none to lose but its own.
                let _ = rustix::net::shutdown(&displaced, Shutdown::Both);
            }
        }
        Ok(running.enter(connection.client.source, socket))
    }

    fn leave(&self, id: u64, with_session: bool) {
        self.lock().remove(id);
        if !with_session {
            self.ended(1);
        }
    }

    fn ended(&self, count: usize) {
        self.ended.fetch_add(count as u64, Ordering::Relaxed);
    }

    fn displaced(&self) {
        self.ended(1);
        self.refusals.count(RefusalReason::Displaced, tell_displaced);
    }

    fn end_all(&self) {
        for socket in self.lock().members() {
            let _ = rustix::net::shutdown(socket, Shutdown::Both);
        }
    }

    /// Returns the number of handshakes under way, and of those that ended without a session.
    pub(crate) fn counts(&self) -> (usize, u64) {
        let waiting = self.waiting.load(Ordering::Relaxed);
        (self.lock().len() + waiting, self.ended.load(Ordering::Relaxed))
    }

    pub(crate) fn refusals(&self) -> &RefusalCounts {
        &self.refusals
    }

    fn lock(&self) -> MutexGuard<'_, ConnectionCrowd<PeerSocket>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn tell_displaced(also: u64) {
    warn!(
        also_displaced = also,
        "too many connections have not chosen an export; the oldest of the source that has most is closed"
    );
}

/// The thread that accepts on one endpoint.
#[derive(Debug)]
pub(crate) struct EndpointListener {
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
    handshakes: Arc<RunningHandshakes>,
}

impl EndpointListener {
    /// # Errors
    /// When the system has no thread or descriptor left.
    pub(crate) fn start(
        bound: BoundEndpoint,
        directory: Arc<ExportDirectory>,
        handshakes: Arc<RunningHandshakes>,
        limits: HandshakeLimits,
    ) -> io::Result<Self> {
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let doorstep = Doorstep::new(bound.as_fd(), stop.as_fd(), limits.waiting)?;
        let acceptor = Acceptor { bound, directory, handshakes: Arc::clone(&handshakes), limits };
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("tg-accept".into())
            .spawn(move || acceptor.run(doorstep, stopped.as_fd()))?;
        Ok(Self { stop, thread: Some(thread), handshakes })
    }
}

impl Drop for EndpointListener {
    /// Closes the endpoint and ends the handshakes under way.
    fn drop(&mut self) {
        // The counter cannot be full after one write.
        let _ = rustix::io::write(&*self.stop, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            warn!("an endpoint's thread had failed");
        }
        self.handshakes.end_all();
    }
}

struct Acceptor {
    bound: BoundEndpoint,
    directory: Arc<ExportDirectory>,
    handshakes: Arc<RunningHandshakes>,
    limits: HandshakeLimits,
}

impl Acceptor {
    fn run(self, mut doorstep: Doorstep, stop: BorrowedFd<'_>) {
        let (mut events, mut counted) = (Vec::new(), 0);
        loop {
            doorstep.wait(&mut events);
            for event in events.drain(..) {
                match event {
                    DoorstepEvent::Stop => {
                        self.handshakes.waiting.fetch_sub(counted, Ordering::Relaxed);
                        return self.handshakes.ended(doorstep.len());
                    }
                    DoorstepEvent::Arrival => self.accept(&mut doorstep, stop),
                    DoorstepEvent::Visitor { id, hung_up } => match doorstep.look_at(id, hung_up) {
                        VisitorState::Asks(visitor) => {
                            if let Err(error) = self.shake_hands(*visitor) {
                                self.complain(&error);
                            }
                        }
                        VisitorState::Left => self.handshakes.ended(1),
                        VisitorState::Waits => {}
                    },
                }
            }
            while let Some(visitor) = doorstep.expired(Instant::now()) {
                self.handshakes.ended(1);
                self.handshakes.refusals.count(RefusalReason::TooSlow, |also| {
                    info!(peer = visitor.connection.peer, also, "handshake failed: it took too long");
                });
            }
            self.handshakes.waiting.fetch_add(doorstep.len(), Ordering::Relaxed);
            self.handshakes.waiting.fetch_sub(counted, Ordering::Relaxed);
            counted = doorstep.len();
        }
    }

    /// Accepts connections, some at a time.
    fn accept(&self, doorstep: &mut Doorstep, stop: BorrowedFd<'_>) {
        for _ in 0..ARRIVALS {
            let deadline = Instant::now() + self.limits.deadline;
            let welcomed = self.bound.accept().and_then(|connection| doorstep.welcome(connection, deadline));
            match welcomed {
                Ok(None) => {}
                Ok(Some(_displaced)) => self.handshakes.displaced(),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // The client left before it was greeted.
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::Interrupted
                            | io::ErrorKind::ConnectionAborted
                            | io::ErrorKind::ConnectionReset
                            | io::ErrorKind::BrokenPipe
                    ) => {}
                Err(error) => {
                    self.complain(&error);
                    let must_wait = error.kind() == io::ErrorKind::ResourceBusy;
                    if must_wait || is_exhausted(&error) && !self.make_way(doorstep) {
                        let mut fds = [PollFd::from_borrowed_fd(stop, PollFlags::IN)];
                        // If it is interrupted, the next failure waits again.
                        let _ = poll(&mut fds, Some(&ACCEPT_PAUSE));
                    }
                    return;
                }
            }
        }
    }

    /// Closes some visitors, whose descriptors are then free; says whether there were any.
    fn make_way(&self, doorstep: &mut Doorstep) -> bool {
        let displaced = (0..ARRIVALS).map_while(|_| doorstep.displace()).count();
        (0..displaced).for_each(|_| self.handshakes.displaced());
        displaced > 0
    }

    fn complain(&self, error: &io::Error) {
        self.handshakes.refusals.count(RefusalReason::System, |also| {
            warn!(endpoint = %self.bound.endpoint(), also, "cannot take a connection: {error}");
        });
    }

    /// Goes on with a handshake in a thread.
    fn shake_hands(&self, visitor: DoorstepVisitor) -> io::Result<()> {
        let DoorstepVisitor { connection, server, deadline } = visitor;
        let id = self.handshakes.enter(&connection, self.limits.concurrent)?;
        let (directory, handshakes) = (Arc::clone(&self.directory), Arc::clone(&self.handshakes));
        let thread = move || {
            let peer = connection.peer.clone();
            let outcome = shake_hands(connection, server, &directory, &handshakes.refusals, deadline);
            match &outcome {
                Ok(Outcome::Session(_)) => {}
                Ok(Outcome::Goodbye) => debug!(peer, "handshake ended by the client"),
                Err(HandshakeError::HungUp) => debug!(peer, "the client hung up in its handshake"),
                Err(error) => handshakes.refusals.count(error.refusal(), |also| {
                    info!(peer, also, "handshake failed: {error}");
                }),
            }
            handshakes.leave(id, matches!(outcome, Ok(Outcome::Session(_))));
            if let Ok(Outcome::Session(Some(session))) = outcome {
                session.run(&peer);
            }
        };
        std::thread::Builder::new()
            .name("tg-handshake".into())
            .stack_size(STACK)
            .spawn(thread)
            .map(drop)
            .inspect_err(|_| self.handshakes.leave(id, false))
    }
}

/// Returns whether the system has no descriptor or memory left.
fn is_exhausted(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM))
}

enum Outcome {
    /// The client has chosen; its pool has it now. By TLS its bytes go through this thread from here on.
    Session(Option<Box<TlsSession>>),
    /// It only wanted to ask, or has changed its mind.
    Goodbye,
}

/// A session by TLS: the parts that move its bytes between the client and the pool's worker.
struct TlsSession {
    relay: TlsRelay,
    /// Its place among the sessions, so that there are never more relays than sessions may be.
    _slot: Arc<SessionSlot>,
}

impl TlsSession {
    fn run(self, peer: &str) {
        match self.relay.run() {
            Ok(end) => debug!(peer, ?end, "TLS ended"),
            Err(error) => info!(peer, "TLS ended: {error}"),
        }
    }
}

#[derive(Debug, Error)]
enum HandshakeError {
    #[error(transparent)]
    Protocol(#[from] ServerError),
    #[error("it took too long")]
    Deadline,
    #[error("the client hung up")]
    HungUp,
    #[error("{0}")]
    Io(io::Error),
    #[error("its pool has failed")]
    Pool,
    #[error("TLS: {0}")]
    Tls(tidegate_tls::HandshakeError),
    #[error("{0}")]
    Insecure(ServerError),
}

impl HandshakeError {
    fn refusal(&self) -> RefusalReason {
        match self {
            Self::Protocol(_) | Self::HungUp => RefusalReason::Protocol,
            Self::Deadline => RefusalReason::TooSlow,
            Self::Tls(_) => RefusalReason::TlsFailed,
            Self::Insecure(_) => RefusalReason::TlsRequired,
            Self::Io(_) | Self::Pool => RefusalReason::System,
        }
    }
}

impl From<io::Error> for HandshakeError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            // What an expired socket timeout looks like.
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Self::Deadline,
            io::ErrorKind::UnexpectedEof
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted => Self::HungUp,
            _ => Self::Io(error),
        }
    }
}

impl From<rustix::io::Errno> for HandshakeError {
    fn from(error: rustix::io::Errno) -> Self {
        io::Error::from(error).into()
    }
}

impl From<tidegate_tls::HandshakeError> for HandshakeError {
    fn from(error: tidegate_tls::HandshakeError) -> Self {
        match error {
            tidegate_tls::HandshakeError::Deadline => Self::Deadline,
            tidegate_tls::HandshakeError::HungUp => Self::HungUp,
            tidegate_tls::HandshakeError::Io(error) => Self::Io(error),
            error @ tidegate_tls::HandshakeError::Tls(_) => Self::Io(io::Error::other(error)),
        }
    }
}

/// A client's connection during its handshake.
enum HandshakeWire {
    Plain(PeerSocket),
    Tls(Box<TlsStream>),
}

fn shake_hands(
    connection: AcceptedConnection,
    mut server: ServerHandshake,
    directory: &ExportDirectory,
    refusals: &RefusalCounts,
    deadline: Instant,
) -> Result<Outcome, HandshakeError> {
    let AcceptedConnection { stream, peer, client, tls: _ } = connection;
    let SocketClient { source, origin } = client;
    let mut client = KnownClient { origin, names: None };
    let mut wire = HandshakeWire::Plain(stream);
    let mut reservation: Option<SeatReservation> = None;
    // One line per connection, however often it asks.
    let mut complained = false;
    let mut chunk = [0; CHUNK];
    let (mut start, mut end) = (0, 0);
    loop {
        let (taken, event) = match server.receive(&chunk[start..end]) {
            Ok(received) => received,
            Err(error) => {
                // The client may still learn from the last words why it is refused.
                let _ = wire.send(&mut server, deadline);
                return Err(match error {
                    ServerError::Insecure => HandshakeError::Insecure(error),
                    error => error.into(),
                });
            }
        };
        start += taken;
        if server.refused_without_tls() > 0 && !std::mem::replace(&mut complained, true) {
            refusals.count(RefusalReason::TlsRequired, |also| {
                info!(peer, also, "refused: {}", RefusalReason::TlsRequired.reason());
            });
        }
        match event {
            Some(ServerEvent::ExportWanted { name, open }) => {
                let (answer, reserved) = match directory.find(&name, open, &client, source) {
                    Ok((export, reserved)) => (ExportAnswer::Found(export), reserved),
                    Err(refused) => {
                        if !std::mem::replace(&mut complained, true) {
                            refusals.count(refused.refusal(), |also| {
                                let why = refused.refusal().reason();
                                info!(peer, export = ?name.as_str(), also, "export refused: {why}");
                            });
                        }
                        (refused.into(), None)
                    }
                };
                reservation = reserved;
                server.answer(answer);
            }
            Some(ServerEvent::ListWanted) => {
                let exports = directory.list(&client);
                server.answer_list(exports.iter().map(|(name, description)| (name, description.as_str())));
            }
            Some(ServerEvent::TlsWanted) => {
                wire.send(&mut server, deadline)?;
                let stream = wire.secure(directory, deadline).map_err(HandshakeError::Tls)?;
                client.names = stream.is_peer_known().then(|| stream.peer_names());
                wire = HandshakeWire::Tls(Box::new(stream));
                server.secured();
            }
            Some(ServerEvent::Opened(opened)) => {
                wire.send(&mut server, deadline)?;
                // Invariant: an export is opened only after it was found, which made a reservation.
                let SeatReservation { export, slot, pin, .. } =
                    reservation.expect("an opened export was reserved");
                let door = Arc::clone(slot.door());
                let slot = Arc::new(slot);
                let (socket, relay) = wire.into_session()?;
                let session = NewSession {
                    socket: Arc::new(socket),
                    peer,
                    export,
                    terms: opened.terms,
                    disk: None,
                    device: None,
                    already: chunk[start..end].to_vec(),
                    relayed: relay.is_some(),
                    slot: Arc::clone(&slot),
                    _pin: pin,
                };
                return if door.send(WorkerCommand::Session(Box::new(session))) {
                    Ok(Outcome::Session(relay.map(|relay| Box::new(TlsSession { relay, _slot: slot }))))
                } else {
                    Err(HandshakeError::Pool)
                };
            }
            Some(ServerEvent::Aborted) => {
                wire.send(&mut server, deadline)?;
                return Ok(Outcome::Goodbye);
            }
            None => {
                wire.send(&mut server, deadline)?;
                if start == end {
                    (start, end) = (0, wire.read(&mut chunk, deadline)?);
                    if end == 0 {
                        return Err(HandshakeError::HungUp);
                    }
                }
            }
        }
    }
}

impl HandshakeWire {
    fn send(&mut self, server: &mut ServerHandshake, deadline: Instant) -> Result<(), HandshakeError> {
        while !server.output().is_empty() {
            let count = match self {
                Self::Plain(socket) => {
                    sockopt::set_socket_timeout(&*socket, Timeout::Send, Some(left_until(deadline)?))?;
                    match rustix::net::send(&*socket, server.output(), SendFlags::NOSIGNAL) {
                        Err(rustix::io::Errno::INTR) => continue,
                        sent => sent?,
                    }
                }
                Self::Tls(stream) => {
                    stream.write_all(server.output(), deadline)?;
                    server.output().len()
                }
            };
            server.sent(count);
        }
        Ok(())
    }

    fn read(&mut self, buffer: &mut [u8], deadline: Instant) -> Result<usize, HandshakeError> {
        match self {
            Self::Plain(socket) => loop {
                sockopt::set_socket_timeout(&*socket, Timeout::Recv, Some(left_until(deadline)?))?;
                match socket.receive(buffer, RecvFlags::empty()) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    received => return Ok(received?),
                }
            },
            Self::Tls(stream) => Ok(stream.read(buffer, deadline)?),
        }
    }

    /// Shakes hands by TLS.
    fn secure(
        &self,
        directory: &ExportDirectory,
        deadline: Instant,
    ) -> Result<TlsStream, tidegate_tls::HandshakeError> {
        let (Self::Plain(socket), Some(tls)) = (self, directory.tls()) else {
            // Invariant: TLS is asked for once, and only where it is configured.
            return Err(tidegate_tls::HandshakeError::HungUp);
        };
        let socket = socket.as_fd().try_clone_to_owned().map_err(tidegate_tls::HandshakeError::Io)?;
        TlsStream::accept(socket, &tls, deadline)
    }

    /// For the worker's ring, which has no use for the timeouts of the handshake.
    fn into_session(self) -> io::Result<(PeerSocket, Option<TlsRelay>)> {
        match self {
            Self::Plain(socket) => {
                for timeout in [Timeout::Recv, Timeout::Send] {
                    sockopt::set_socket_timeout(&socket, timeout, None)?;
                }
                Ok((socket, None))
            }
            Self::Tls(stream) => {
                let (socket, relay) = stream.split()?;
                Ok((PeerSocket::to_this_process(socket), Some(relay)))
            }
        }
    }
}

fn left_until(deadline: Instant) -> Result<Duration, HandshakeError> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(HandshakeError::Deadline) } else { Ok(left) }
}
