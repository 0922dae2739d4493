//! Connecting to an upstream and opening its export: blocking, bounded in time, never on a worker's thread.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::net::sockopt::{self, Timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, send, socket_with,
};
use thiserror::Error;
use tidegate_nbd::SessionTerms;
use tidegate_nbd::handshake::{ClientError, ClientEvent, ClientHandshake, OptionRefusal};
use tidegate_nbd::transmission::MessageStyle;
use tidegate_sockets::aside::PeerSocket;
use tidegate_tls::{ClientFiles, HandshakeError, TlsError, TlsStream};
use tracing::{debug, info};

use super::UpstreamTarget;
use super::plan::UpstreamMismatch;
use crate::config::ListenEndpoint;

/// The longest time for connecting and the handshake together.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// The bytes read at once during the handshake.
const CHUNK: usize = 4096;

/// A relay keeps its buffers on the heap; its thread needs little more than frames.
const STACK: usize = 256 * 1024;

/// An idle connection to a host that has vanished is noticed after this long, and then so many unanswered
/// probes.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(10);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_PROBES: u32 = 3;

/// The reasons why an upstream export could not be opened.
#[derive(Debug, Error)]
pub enum UpstreamError {
    /// No server listens there, or the network does not lead there.
    #[error("cannot connect: {0}; is the server running, and is this its address?")]
    Connect(io::Error),
    /// Connected, or not even that, and no answer.
    #[error("no answer within {} s; is it an NBD server, and is it running?", PATIENCE.as_secs())]
    Silent,
    /// The other side ended the connection. This is also how servers without fixed newstyle say that there is
    /// no such export.
    #[error(
        "it closed the connection during the handshake; has it such an export, and room for a connection?"
    )]
    Closed,
    /// The server has no export of this name.
    #[error("the server has no such export; name one that it has by `upstream`")]
    NoSuchExport,
    /// The server says no, or does not speak the protocol.
    #[error(transparent)]
    Handshake(ClientError),
    /// The connection failed.
    #[error("{0}")]
    Io(io::Error),
    /// The server sent something unasked.
    #[error("it goes on talking after the handshake, before it is asked anything")]
    Talkative,
    /// A certificate, its key or an authority cannot be used.
    #[error(transparent)]
    Certificates(#[from] TlsError),
    /// The server is not the one that was meant, or does not accept us.
    #[error("TLS: {0}")]
    Tls(HandshakeError),
    /// It is not the export that the gateway has promised to its clients.
    #[error("it has come back different, and is not used: {0}")]
    Mismatch(#[from] UpstreamMismatch),
}

impl From<io::Error> for UpstreamError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            // What an expired socket timeout looks like.
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Self::Silent,
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => Self::Closed,
            _ => Self::Io(error),
        }
    }
}

impl From<HandshakeError> for UpstreamError {
    fn from(error: HandshakeError) -> Self {
        match error {
            HandshakeError::Deadline => Self::Silent,
            HandshakeError::Io(error) => error.into(),
            error @ (HandshakeError::HungUp | HandshakeError::Tls(_)) => Self::Tls(error),
        }
    }
}

impl From<rustix::io::Errno> for UpstreamError {
    fn from(errno: rustix::io::Errno) -> Self {
        io::Error::from(errno).into()
    }
}

/// A connection in the transmission phase.
#[derive(Debug)]
pub(crate) struct UpstreamConnection {
    pub(crate) socket: PeerSocket,
    pub(crate) terms: SessionTerms,
}

/// Connects, and opens the export with as much of the protocol as the server knows.
///
/// # Errors
/// When that fails, or takes longer than [`PATIENCE`].
pub(crate) fn open(target: &UpstreamTarget) -> Result<UpstreamConnection, UpstreamError> {
    let deadline = Instant::now() + PATIENCE;
    let socket = connect_to(&target.address).map_err(|error| match UpstreamError::from(error) {
        UpstreamError::Io(error) => UpstreamError::Connect(error),
        other => other,
    })?;
    let mut wire = UpstreamWire::Plain(PeerSocket::new(socket));
    let terms = shake_hands(&mut wire, target, deadline)?;
    Ok(UpstreamConnection { socket: wire.into_socket()?, terms })
}

fn connect_to(address: &ListenEndpoint) -> io::Result<OwnedFd> {
    match address {
        ListenEndpoint::Unix(path) => connect_unix(path),
        ListenEndpoint::Tcp(address) => connect_tcp(address),
    }
}

fn connect_tcp(address: &SocketAddr) -> io::Result<OwnedFd> {
    let stream = TcpStream::connect_timeout(address, PATIENCE)?;
    // Requests are gathered already; waiting to gather more would only add latency.
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(&stream, true)?;
    sockopt::set_tcp_keepidle(&stream, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(&stream, KEEPALIVE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(&stream, KEEPALIVE_PROBES)?;
    Ok(stream.into())
}

/// The standard library has no bound on the time that a server with a full backlog can make us wait.
fn connect_unix(path: &Path) -> io::Result<OwnedFd> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_timeout(&socket, Timeout::Send, Some(PATIENCE))?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

/// A connection during its handshake.
enum UpstreamWire {
    Plain(PeerSocket),
    Tls(Box<TlsStream>),
}

fn shake_hands(
    wire: &mut UpstreamWire,
    target: &UpstreamTarget,
    deadline: Instant,
) -> Result<SessionTerms, UpstreamError> {
    let tls = target.tls.as_ref().map(ClientFiles::load).transpose()?;
    let client = ClientHandshake::open(target.export.clone(), MessageStyle::Extended);
    let mut client = client.with_allocation().hearing_shutdown();
    if tls.is_some() {
        client = client.by_tls();
    }
    let mut chunk = [0; CHUNK];
    loop {
        wire.send(&mut client, deadline)?;
        let count = wire.receive(&mut chunk, deadline)?;
        if count == 0 {
            return Err(UpstreamError::Closed);
        }
        match client.receive(&chunk[..count]) {
            Ok((taken, Some(ClientEvent::Opened(opened)))) if taken == count => return Ok(opened.terms),
            Ok((_, Some(ClientEvent::TlsReady))) => {
                let (UpstreamWire::Plain(socket), Some(tls)) = (&*wire, &tls) else {
                    return Err(UpstreamError::Talkative);
                };
                let stream = TlsStream::connect(socket.as_fd().try_clone_to_owned()?, tls, deadline)?;
                *wire = UpstreamWire::Tls(Box::new(stream));
                client.secured();
            }
            Ok((_, Some(_))) => return Err(UpstreamError::Talkative),
            Ok((_, None)) => {}
            Err(error) => {
                // A goodbye that fails is as good as one that arrives.
                let _ = wire.send(&mut client, deadline);
                return Err(match error {
                    ClientError::Refused { refusal: OptionRefusal::Unknown, .. } => {
                        UpstreamError::NoSuchExport
                    }
                    error => UpstreamError::Handshake(error),
                });
            }
        }
    }
}

impl UpstreamWire {
    fn send(&mut self, client: &mut ClientHandshake, deadline: Instant) -> Result<(), UpstreamError> {
        while !client.output().is_empty() {
            let count = match self {
                Self::Plain(socket) => {
                    set_timeouts(socket, Some(deadline))?;
                    match send(&*socket, client.output(), SendFlags::NOSIGNAL) {
                        Err(rustix::io::Errno::INTR) => continue,
                        sent => sent?,
                    }
                }
                Self::Tls(stream) => {
                    stream.write_all(client.output(), deadline)?;
                    client.output().len()
                }
            };
            client.sent(count);
        }
        Ok(())
    }

    fn receive(&mut self, buffer: &mut [u8], deadline: Instant) -> Result<usize, UpstreamError> {
        match self {
            Self::Plain(socket) => loop {
                set_timeouts(socket, Some(deadline))?;
                match socket.receive(buffer, RecvFlags::empty()) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    received => return Ok(received?),
                }
            },
            Self::Tls(stream) => Ok(stream.read(buffer, deadline)?),
        }
    }

    /// For the worker's ring, which has no use for the timeouts of the handshake. By TLS it is one end of a
    /// relay, which ends with the connection or when the worker closes its end.
    fn into_socket(self) -> Result<PeerSocket, UpstreamError> {
        match self {
            Self::Plain(socket) => {
                set_timeouts(&socket, None)?;
                Ok(socket)
            }
            Self::Tls(stream) => {
                let (socket, relay) = stream.split()?;
                let run = move || match relay.run() {
                    Ok(end) => debug!(?end, "TLS to an upstream ended"),
                    Err(error) => info!("TLS to an upstream ended: {error}"),
                };
                std::thread::Builder::new().name("tg-tls".into()).stack_size(STACK).spawn(run)?;
                Ok(PeerSocket::to_this_process(socket))
            }
        }
    }
}

fn set_timeouts(socket: &PeerSocket, deadline: Option<Instant>) -> Result<(), UpstreamError> {
    let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
    if left.is_some_and(|left| left.is_zero()) {
        return Err(UpstreamError::Silent);
    }
    sockopt::set_socket_timeout(socket, Timeout::Recv, left)?;
    sockopt::set_socket_timeout(socket, Timeout::Send, left)?;
    Ok(())
}
