//! A connection to an export: socket and handshake.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use tidegate_nbd::handshake::{Client, ClientEvent, Opened};

use crate::error::ConnectError;
use crate::target::{Endpoint, Target};

/// How long one address may take to answer, and how long the handshake may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// A connected stream socket.
#[derive(Debug)]
pub(crate) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    fn connect(endpoint: &Endpoint) -> io::Result<Self> {
        match endpoint {
            Endpoint::Tcp { host, port } => {
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
            Endpoint::Unix(path) => connect_unix(path).map(Self::Unix),
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

/// Connects with a bound on the time that a server with a full backlog can make us wait, which the standard library
/// does not offer for Unix sockets.
fn connect_unix(path: &Path) -> io::Result<UnixStream> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    set_socket_timeout(&socket, Timeout::Send, Some(PATIENCE))?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(UnixStream::from(socket))
}

/// Whether an error only means that a timeout passed.
pub(crate) fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

/// A connection whose handshake is done.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) socket: Socket,
    pub(crate) opened: Opened,
}

impl Connection {
    /// Connects and opens the export, asking for structured replies.
    pub(crate) fn open(target: &Target) -> Result<Self, ConnectError> {
        let socket = Socket::connect(&target.endpoint).map_err(ConnectError::Socket)?;
        let deadline = Instant::now() + PATIENCE;
        let mut client = Client::open(target.export.clone(), true);
        let mut buffer = [0; 4096];
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(ConnectError::TimedOut(PATIENCE));
            }
            socket.set_timeouts(left, left).map_err(ConnectError::Io)?;
            send_output(&socket, &mut client).map_err(handshake_io)?;
            let count = match socket.read(&mut buffer) {
                Ok(0) => return Err(ConnectError::Closed),
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(handshake_io(error)),
            };
            match client.receive(&buffer[..count]) {
                // Without a request, a server has nothing to say after the handshake: what it sends nevertheless is
                // not looked at, and the parser will find that both have lost step.
                Ok((_, Some(ClientEvent::Opened(opened)))) => {
                    return Ok(Self { socket, opened });
                }
                Ok(_) => {}
                Err(error) => {
                    // A goodbye that fails is as good as one that arrives.
                    let _ = send_output(&socket, &mut client);
                    return Err(ConnectError::Handshake(error));
                }
            }
        }
    }
}

fn send_output(socket: &Socket, client: &mut Client) -> io::Result<()> {
    while !client.output().is_empty() {
        match socket.write_vectored(&[IoSlice::new(client.output())]) {
            Ok(count) => client.sent(count),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
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
