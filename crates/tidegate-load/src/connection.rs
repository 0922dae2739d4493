//! A connection to an export: socket and handshake.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use tidegate_nbd::handshake::{ClientEvent, ClientHandshake, Opened};
use tidegate_nbd::transmission::MessageStyle;
use tidegate_tls::{ClientFiles, ClientTls, HandshakeError, TlsIdentity, TlsStream};

use crate::error::ConnectError;
use crate::target::{LoadTarget, ServerEndpoint};

/// The longest time for one address to answer, and the longest for the handshake.
const PATIENCE: Duration = Duration::from_secs(10);

/// A connected stream socket.
#[derive(Debug)]
pub(crate) enum StreamSocket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl StreamSocket {
    fn connect(endpoint: &ServerEndpoint) -> io::Result<Self> {
        match endpoint {
            ServerEndpoint::Tcp { host, port } => {
                let mut last = None;
                for address in (host.as_str(), *port).to_socket_addrs()? {
                    match TcpStream::connect_timeout(&address, PATIENCE) {
                        Ok(stream) => {
                            stream.set_nodelay(true)?;
                            return Ok(Self::Tcp(stream));
                        }
                        Err(error) => last = Some(error),
                    }
                }
                Err(last.unwrap_or_else(|| ErrorKind::AddrNotAvailable.into()))
            }
            ServerEndpoint::Unix(path) => connect_unix(path).map(Self::Unix),
        }
    }

    pub(crate) fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => (&*stream).read(buffer),
            Self::Unix(stream) => (&*stream).read(buffer),
        }
    }

    pub(crate) fn write_vectored(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => (&*stream).write_vectored(parts),
            Self::Unix(stream) => (&*stream).write_vectored(parts),
        }
    }

    /// Bounds every later read and write; zero means no bound.
    pub(crate) fn set_timeouts(&self, read: Duration, write: Duration) -> io::Result<()> {
        let bound = |timeout: Duration| (!timeout.is_zero()).then_some(timeout);
        match self {
            Self::Tcp(stream) => {
                stream.set_read_timeout(bound(read))?;
                stream.set_write_timeout(bound(write))
            }
            Self::Unix(stream) => {
                stream.set_read_timeout(bound(read))?;
                stream.set_write_timeout(bound(write))
            }
        }
    }

    /// Ends both directions, so that threads blocked on the socket return.
    pub(crate) fn shut_down(&self) {
        // An error means that the connection is gone already, which is what was wanted.
        let _ = match self {
            Self::Tcp(stream) => stream.shutdown(Shutdown::Both),
            Self::Unix(stream) => stream.shutdown(Shutdown::Both),
        };
    }
}

impl From<StreamSocket> for OwnedFd {
    fn from(socket: StreamSocket) -> Self {
        match socket {
            StreamSocket::Tcp(stream) => stream.into(),
            StreamSocket::Unix(stream) => stream.into(),
        }
    }
}

/// Connects with a bound on the time that a server with a full backlog can make us wait, which the standard
/// library does not offer for Unix sockets.
fn connect_unix(path: &Path) -> io::Result<UnixStream> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    set_socket_timeout(&socket, Timeout::Send, Some(PATIENCE))?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(UnixStream::from(socket))
}

/// Returns true if an error only means that a timeout passed.
pub(crate) fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

/// A connection whose handshake is done.
#[derive(Debug)]
pub(crate) struct LoadConnection {
    pub(crate) socket: StreamSocket,
    pub(crate) opened: Opened,
}

impl LoadConnection {
    /// Connects and opens the export, asking for structured replies.
    pub(crate) fn open(target: &LoadTarget) -> Result<Self, ConnectError> {
        let tls = target.tls.as_deref().map(|folder| client_tls(folder, &target.endpoint)).transpose()?;
        let socket = StreamSocket::connect(&target.endpoint).map_err(ConnectError::Socket)?;
        let deadline = Instant::now() + PATIENCE;
        let mut client = ClientHandshake::open(target.export.clone(), MessageStyle::Structured);
        if tls.is_some() {
            client = client.by_tls();
        }
        let mut wire = Wire::Plain(socket);
        let mut buffer = [0; 4096];
        loop {
            wire.send(&mut client, deadline)?;
            let count = wire.receive(&mut buffer, deadline)?;
            if count == 0 {
                return Err(ConnectError::Closed);
            }
            match client.receive(&buffer[..count]) {
                // Without a request, a server has nothing to say after the handshake: what it sends
                // nevertheless is not looked at, and the parser will find that both have lost step.
                Ok((_, Some(ClientEvent::Opened(opened)))) => {
                    return Ok(Self { socket: wire.into_socket()?, opened });
                }
                Ok((_, Some(ClientEvent::TlsReady))) => {
                    let (Wire::Plain(socket), Some(tls)) = (wire, &tls) else {
                        return Err(ConnectError::Closed);
                    };
                    let stream = TlsStream::connect(socket.into(), tls, deadline).map_err(tls_failure)?;
                    wire = Wire::Tls(Box::new(stream));
                    client.secured();
                }
                Ok(_) => {}
                Err(error) => {
                    // A goodbye that fails is as good as one that arrives.
                    let _ = wire.send(&mut client, deadline);
                    return Err(ConnectError::Handshake(error));
                }
            }
        }
    }
}

/// The certificates in a folder, by the names that libnbd and QEMU use: `ca-cert.pem`, and where the server
/// asks for them `client-cert.pem` and `client-key.pem`.
fn client_tls(folder: &Path, endpoint: &ServerEndpoint) -> Result<ClientTls, ConnectError> {
    let server = match endpoint {
        ServerEndpoint::Tcp { host, .. } => host.as_str(),
        ServerEndpoint::Unix(_) => "localhost",
    };
    let certificate = folder.join("client-cert.pem");
    let identity =
        certificate.exists().then(|| TlsIdentity { certificate, private_key: folder.join("client-key.pem") });
    let server = server.parse().map_err(ConnectError::ServerName)?;
    let files = ClientFiles { authorities: folder.join("ca-cert.pem"), identity, server };
    files.load().map_err(ConnectError::Certificates)
}

/// A connection during its handshake.
enum Wire {
    Plain(StreamSocket),
    Tls(Box<TlsStream>),
}

impl Wire {
    fn send(&mut self, client: &mut ClientHandshake, deadline: Instant) -> Result<(), ConnectError> {
        while !client.output().is_empty() {
            let count = match self {
                Self::Plain(socket) => {
                    bound(socket, deadline)?;
                    match socket.write_vectored(&[IoSlice::new(client.output())]) {
                        Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                        sent => sent.map_err(handshake_io)?,
                    }
                }
                Self::Tls(stream) => {
                    stream.write_all(client.output(), deadline).map_err(tls_failure)?;
                    client.output().len()
                }
            };
            client.sent(count);
        }
        Ok(())
    }

    fn receive(&mut self, buffer: &mut [u8], deadline: Instant) -> Result<usize, ConnectError> {
        match self {
            Self::Plain(socket) => loop {
                bound(socket, deadline)?;
                match socket.read(buffer) {
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    received => return received.map_err(handshake_io),
                }
            },
            Self::Tls(stream) => stream.read(buffer, deadline).map_err(tls_failure),
        }
    }

    /// The socket for the load; by TLS it is one end of a relay, which ends with the connection or with the
    /// load.
    fn into_socket(self) -> Result<StreamSocket, ConnectError> {
        match self {
            Self::Plain(socket) => Ok(socket),
            Self::Tls(stream) => {
                let (socket, relay) = stream.split().map_err(ConnectError::Io)?;
                // How it ends shows at the socket.
                let run = move || drop(relay.run());
                let thread = std::thread::Builder::new().name("load-tls".to_owned());
                thread.spawn(run).map_err(ConnectError::Io)?;
                Ok(StreamSocket::Unix(socket.into()))
            }
        }
    }
}

fn bound(socket: &StreamSocket, deadline: Instant) -> Result<(), ConnectError> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(ConnectError::TimedOut(PATIENCE));
    }
    socket.set_timeouts(left, left).map_err(ConnectError::Io)
}

fn tls_failure(error: HandshakeError) -> ConnectError {
    match error {
        HandshakeError::Deadline => ConnectError::TimedOut(PATIENCE),
        HandshakeError::Io(error) => handshake_io(error),
        error @ (HandshakeError::HungUp | HandshakeError::Tls(_)) => ConnectError::Tls(error),
    }
}

fn handshake_io(error: io::Error) -> ConnectError {
    if is_timeout(&error) {
        ConnectError::TimedOut(PATIENCE)
    } else if matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe) {
        ConnectError::Closed
    } else {
        ConnectError::Io(error)
    }
}
