//! Endpoints: accepting connections, and their handshakes, in short-lived threads with a deadline.

use std::collections::VecDeque;
use std::fs;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::net::{Shutdown, sockopt};
use rustix::time::Timespec;
use thiserror::Error;
use tidegate_nbd::handshake::{Answer, Server, ServerError, ServerEvent};
use tracing::{debug, info, warn};

use crate::config::{Endpoint, HandshakeLimits};
use crate::directory::{Directory, Reservation};
use crate::input::READ_AHEAD;
use crate::session::NewSession;
use crate::worker::Command;

/// A handshake keeps its buffers on the heap; its thread needs little more than frames.
const STACK: usize = 256 * 1024;

/// What is read at once during a handshake.
const CHUNK: usize = 4096;

/// How long to wait after a failed accept: it fails when descriptors run out, and would spin.
const ACCEPT_PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

const _: () = assert!(CHUNK <= READ_AHEAD);

/// A bound socket.
#[derive(Debug)]
enum Socket {
    Unix { listener: UnixListener, file: SocketFile },
    Tcp(TcpListener),
}

/// The file of a Unix socket, removed at the end if it is still the one that was made.
#[derive(Debug)]
struct SocketFile {
    path: std::path::PathBuf,
    inode: (u64, u64),
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if fs::symlink_metadata(&self.path).is_ok_and(|now| (now.dev(), now.ino()) == self.inode) {
            // Somebody else may have removed it in between, which comes to the same.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// An endpoint that is listened on.
#[derive(Debug)]
pub(crate) struct Bound {
    socket: Socket,
    endpoint: Endpoint,
}

impl Bound {
    /// # Errors
    /// When the address is in use, or the system refuses.
    pub(crate) fn new(endpoint: &Endpoint) -> io::Result<Self> {
        match endpoint {
            Endpoint::Unix(path) => {
                remove_stale(path)?;
                let listener = UnixListener::bind(path)?;
                listener.set_nonblocking(true)?;
                let metadata = fs::symlink_metadata(path)?;
                let file = SocketFile { path: path.clone(), inode: (metadata.dev(), metadata.ino()) };
                Ok(Self { socket: Socket::Unix { listener, file }, endpoint: endpoint.clone() })
            }
            Endpoint::Tcp(address) => {
                let listener = TcpListener::bind(address)?;
                listener.set_nonblocking(true)?;
                let endpoint = Endpoint::Tcp(listener.local_addr()?);
                Ok(Self { socket: Socket::Tcp(listener), endpoint })
            }
        }
    }

    /// With the real port.
    pub(crate) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    fn accept(&self) -> io::Result<Connection> {
        match &self.socket {
            Socket::Unix { listener, file } => {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(false)?;
                let pid = sockopt::socket_peercred(&stream).map(|peer| peer.pid.as_raw_nonzero());
                let peer = pid.map_or_else(|_| "?".into(), |pid| format!("pid {pid}"));
                Ok(Connection {
                    stream: Stream::Unix(stream),
                    peer: format!("unix:{} {peer}", file.path.display()),
                })
            }
            Socket::Tcp(listener) => {
                let (stream, address) = listener.accept()?;
                stream.set_nonblocking(false)?;
                // Replies are gathered already; waiting to gather more would only add latency.
                stream.set_nodelay(true)?;
                // A client whose machine vanished must not hold its session for ever.
                sockopt::set_socket_keepalive(&stream, true)?;
                Ok(Connection { stream: Stream::Tcp(stream), peer: address.to_string() })
            }
        }
    }
}

impl AsFd for Bound {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.socket {
            Socket::Unix { listener, .. } => listener.as_fd(),
            Socket::Tcp(listener) => listener.as_fd(),
        }
    }
}

/// Makes way for a new socket where an old one has no server any more.
fn remove_stale(path: &Path) -> io::Result<()> {
    let Ok(metadata) = fs::symlink_metadata(path) else { return Ok(()) };
    if !metadata.file_type().is_socket() {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "there is a file, and it is not a socket"));
    }
    match UnixStream::connect(path) {
        Ok(_) => Err(io::Error::new(io::ErrorKind::AddrInUse, "another server listens there")),
        Err(_) => fs::remove_file(path),
    }
}

#[derive(Debug)]
struct Connection {
    stream: Stream,
    peer: String,
}

#[derive(Debug)]
enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Stream {
    fn set_timeout(&self, timeout: Duration) -> io::Result<()> {
        match self {
            Self::Unix(stream) => {
                stream.set_read_timeout(Some(timeout))?;
                stream.set_write_timeout(Some(timeout))
            }
            Self::Tcp(stream) => {
                stream.set_read_timeout(Some(timeout))?;
                stream.set_write_timeout(Some(timeout))
            }
        }
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.read(buffer),
            Self::Tcp(stream) => stream.read(buffer),
        }
    }

    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.write(buffer),
            Self::Tcp(stream) => stream.write(buffer),
        }
    }

    /// For the worker's ring, which has no use for the timeouts of the handshake.
    fn into_socket(self) -> io::Result<OwnedFd> {
        match self {
            Self::Unix(stream) => {
                stream.set_read_timeout(None)?;
                stream.set_write_timeout(None)?;
                Ok(stream.into())
            }
            Self::Tcp(stream) => {
                stream.set_read_timeout(None)?;
                stream.set_write_timeout(None)?;
                Ok(stream.into())
            }
        }
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(stream) => stream.as_fd(),
            Self::Tcp(stream) => stream.as_fd(),
        }
    }
}

/// Handshakes under way, oldest first, with a handle on their sockets to end them.
#[derive(Debug, Default)]
pub(crate) struct Handshakes {
    running: Mutex<VecDeque<(u64, OwnedFd)>>,
    next: AtomicU64,
    ended: AtomicU64,
}

impl Handshakes {
    /// Enters a newcomer; the oldest leaves when there are too many.
    fn enter(&self, stream: &Stream, limit: usize) -> io::Result<u64> {
        let socket = stream.as_fd().try_clone_to_owned()?;
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let mut running = self.lock();
        while running.len() >= limit.max(1) {
            if let Some((_, oldest)) = running.pop_front() {
                // Its thread sees the end of the connection; it has none to lose but its own.
                let _ = rustix::net::shutdown(&oldest, Shutdown::Both);
            }
        }
        running.push_back((id, socket));
        Ok(id)
    }

    fn leave(&self, id: u64, with_session: bool) {
        self.lock().retain(|(other, _)| *other != id);
        if !with_session {
            self.ended.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn end_all(&self) {
        for (_, socket) in &*self.lock() {
            let _ = rustix::net::shutdown(socket, Shutdown::Both);
        }
    }

    /// How many are under way, and how many have ended without a session.
    pub(crate) fn counts(&self) -> (usize, u64) {
        (self.lock().len(), self.ended.load(Ordering::Relaxed))
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<(u64, OwnedFd)>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The thread that accepts on one endpoint.
#[derive(Debug)]
pub(crate) struct Listener {
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
    handshakes: Arc<Handshakes>,
}

impl Listener {
    /// # Errors
    /// When the system has no thread or descriptor left.
    pub(crate) fn start(
        bound: Bound,
        directory: Arc<Directory>,
        handshakes: Arc<Handshakes>,
        limits: HandshakeLimits,
    ) -> io::Result<Self> {
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let acceptor = Acceptor { bound, directory, handshakes: Arc::clone(&handshakes), limits };
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("tg-accept".into())
            .spawn(move || acceptor.run(stopped.as_fd()))?;
        Ok(Self { stop, thread: Some(thread), handshakes })
    }
}

impl Drop for Listener {
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
    bound: Bound,
    directory: Arc<Directory>,
    handshakes: Arc<Handshakes>,
    limits: HandshakeLimits,
}

impl Acceptor {
    fn run(self, stop: BorrowedFd<'_>) {
        let readable = |fd: &BorrowedFd<'_>, timeout: Option<&Timespec>| {
            let mut fds =
                [PollFd::from_borrowed_fd(stop, PollFlags::IN), PollFd::from_borrowed_fd(*fd, PollFlags::IN)];
            // An interrupted poll says nothing about either; it is asked again.
            let _ = poll(&mut fds, timeout);
            !fds[0].revents().is_empty()
        };
        loop {
            if readable(&self.bound.as_fd(), None) {
                return;
            }
            match self.bound.accept().and_then(|connection| self.greet(connection)) {
                Ok(()) => {}
                Err(error)
                    if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
                Err(error) => {
                    warn!(endpoint = %self.bound.endpoint, "cannot take a connection: {error}");
                    if readable(&stop, Some(&ACCEPT_PAUSE)) {
                        return;
                    }
                }
            }
        }
    }

    fn greet(&self, connection: Connection) -> io::Result<()> {
        let id = self.handshakes.enter(&connection.stream, self.limits.concurrent)?;
        let (directory, handshakes) = (Arc::clone(&self.directory), Arc::clone(&self.handshakes));
        let deadline = Instant::now() + self.limits.deadline;
        let thread = move || {
            let peer = connection.peer.clone();
            let outcome = shake_hands(connection, &directory, deadline);
            match &outcome {
                Ok(Outcome::Session) => {}
                Ok(Outcome::Goodbye) => debug!(peer, "handshake ended by the client"),
                Err(error) => info!(peer, "handshake failed: {error}"),
            }
            handshakes.leave(id, matches!(outcome, Ok(Outcome::Session)));
        };
        std::thread::Builder::new()
            .name("tg-handshake".into())
            .stack_size(STACK)
            .spawn(thread)
            .map(drop)
            .inspect_err(|_| self.handshakes.leave(id, false))
    }
}

enum Outcome {
    /// The client has chosen; its pool has it now.
    Session,
    /// It only wanted to ask, or has changed its mind.
    Goodbye,
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

fn shake_hands(
    mut connection: Connection,
    directory: &Directory,
    deadline: Instant,
) -> Result<Outcome, HandshakeError> {
    let mut server = Server::new();
    let mut reservation: Option<Reservation> = None;
    // One line per connection, however often it asks.
    let mut complained = false;
    let mut chunk = [0; CHUNK];
    let (mut start, mut end) = (0, 0);
    loop {
        let (taken, event) = match server.receive(&chunk[start..end]) {
            Ok(received) => received,
            Err(error) => {
                // The client may still learn from the last words why it is refused.
                let _ = send(&mut connection.stream, &mut server, deadline);
                return Err(error.into());
            }
        };
        start += taken;
        match event {
            Some(ServerEvent::ExportWanted { name, open }) => {
                let (answer, reserved) = directory.find(&name, open);
                if let Some(why) = refusal(&answer)
                    && !std::mem::replace(&mut complained, true)
                {
                    info!(peer = connection.peer, export = ?name.as_str(), "export refused: {why}");
                }
                reservation = reserved;
                server.answer(answer);
            }
            Some(ServerEvent::ListWanted) => {
                let exports = directory.list();
                server.answer_list(exports.iter().map(|(name, description)| (name, description.as_str())));
            }
            Some(ServerEvent::Opened(opened)) => {
                send(&mut connection.stream, &mut server, deadline)?;
                // Invariant: an export is opened only after it was found, which made a reservation.
                let Reservation { export, slot, pin } = reservation.expect("an opened export was reserved");
                let door = Arc::clone(slot.door());
                let session = NewSession {
                    socket: connection.stream.into_socket()?,
                    peer: connection.peer,
                    export,
                    style: opened.replies,
                    already: chunk[start..end].to_vec(),
                    slot,
                    _pin: pin,
                };
                return if door.send(Command::Session(Box::new(session))) {
                    Ok(Outcome::Session)
                } else {
                    Err(HandshakeError::Pool)
                };
            }
            Some(ServerEvent::Aborted) => {
                send(&mut connection.stream, &mut server, deadline)?;
                return Ok(Outcome::Goodbye);
            }
            None => {
                send(&mut connection.stream, &mut server, deadline)?;
                if start == end {
                    set_timeout(&connection.stream, deadline)?;
                    (start, end) = (0, connection.stream.read(&mut chunk)?);
                    if end == 0 {
                        return Err(HandshakeError::HungUp);
                    }
                }
            }
        }
    }
}

fn refusal(answer: &Answer) -> Option<&'static str> {
    match answer {
        Answer::Found(_) => None,
        Answer::Unknown => Some("no export has this name"),
        Answer::AtCapacity => Some("its pool has as many sessions as it may"),
        Answer::ShuttingDown => Some("the gateway is shutting down"),
    }
}

fn send(stream: &mut Stream, server: &mut Server, deadline: Instant) -> Result<(), HandshakeError> {
    while !server.output().is_empty() {
        set_timeout(stream, deadline)?;
        let count = stream.write(server.output())?;
        server.sent(count);
    }
    Ok(())
}

fn set_timeout(stream: &Stream, deadline: Instant) -> Result<(), HandshakeError> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(HandshakeError::Deadline);
    }
    Ok(stream.set_timeout(left)?)
}
