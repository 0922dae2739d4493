//! Listeners: the addresses of a server, and what is known of a connection from its listener.

use std::fmt;
use std::fs;
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream as BlockingStream;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::str::FromStr;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use rustix::fs::{Mode, fchmod};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};
use thiserror::Error;
use tidegate_sockets::aside::{ListenerDoor, refuse_passing};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::time::{Instant, sleep};

use crate::access::ApiAccess;
use crate::connections::ConnectionSource;
use crate::unix_client::UnixClient;

/// The mode of a Unix socket: its owner and its group may connect.
const SOCKET_MODE: u32 = 0o660;

/// Connections that wait to be accepted.
const BACKLOG: i32 = 128;

/// The pause before a listener that must wait is looked at again.
const PAUSE: Duration = Duration::from_millis(100);

/// The longest path in the kernel's `sockaddr_un`, less the terminating zero.
const LONGEST_SOCKET_PATH: usize = 107;

/// An address where a server listens.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum ListenAddress {
    /// A Unix socket, `unix:PATH`.
    Unix(PathBuf),
    /// An address and a port.
    Tcp(SocketAddr),
}

/// The reasons why a text is no such address.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ListenAddressError {
    /// Neither a socket nor an address.
    #[error(
        "`{0}` is no address: write `unix:PATH`, or an address and a port such as `127.0.0.1:9809` or \
         `[::1]:9809`"
    )]
    Unknown(String),
    /// The kernel cannot bind a socket there.
    #[error("a Unix socket's path has 1 to {LONGEST_SOCKET_PATH} bytes and none of them zero")]
    Path,
}

impl FromStr for ListenAddress {
    type Err = ListenAddressError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.strip_prefix("unix:") {
            Some(path) if is_socket_path(Path::new(path)) => Ok(Self::Unix(path.into())),
            Some(_) => Err(ListenAddressError::Path),
            None => {
                let unknown = |_| ListenAddressError::Unknown(text.escape_debug().to_string());
                text.parse().map(Self::Tcp).map_err(unknown)
            }
        }
    }
}

/// Returns true if the kernel can bind a Unix socket at this path.
fn is_socket_path(path: &Path) -> bool {
    let bytes = path.as_os_str().as_encoded_bytes();
    (1..=LONGEST_SOCKET_PATH).contains(&bytes.len()) && !bytes.contains(&0)
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(address) => write!(f, "{address}"),
        }
    }
}

impl ListenAddress {
    /// The same address with the path below `folder`, if it is relative.
    #[must_use]
    pub fn below(self, folder: &Path) -> Self {
        match self {
            Self::Unix(path) => Self::Unix(folder.join(path)),
            tcp @ Self::Tcp(_) => tcp,
        }
    }

    /// Returns true if only processes of this machine can connect.
    #[must_use]
    pub const fn is_local(&self) -> bool {
        match self {
            Self::Unix(_) => true,
            Self::Tcp(address) => address.ip().to_canonical().is_loopback(),
        }
    }
}

/// A bound address of a server.
#[derive(Debug)]
pub struct HttpListener {
    socket: ListenerSocket,
    address: ListenAddress,
    /// `None`: nothing is known of its callers.
    access: Option<Arc<ApiAccess>>,
    file: Option<SocketFile>,
}

#[derive(Debug)]
enum ListenerSocket {
    Tcp(TcpListener),
    Unix(UnixListener, ListenerDoor),
}

impl HttpListener {
    /// Binds an address whose callers are not known: its pages check them, or it only answers questions.
    ///
    /// # Errors
    /// When the address cannot be listened on.
    pub async fn anonymous(address: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = ListenAddress::Tcp(listener.local_addr()?);
        Ok(Self { socket: ListenerSocket::Tcp(listener), address, access: None, file: None })
    }

    /// Binds an address of an API. Beyond loopback it speaks TLS alone, and nothing without a certificate in
    /// `access`.
    ///
    /// A Unix socket is for its owner and its group. A socket that no process listens on makes way.
    ///
    /// # Errors
    /// When the address cannot be listened on; a Unix socket that another process listens on.
    pub async fn bind(address: &ListenAddress, access: Arc<ApiAccess>) -> io::Result<Self> {
        match address {
            ListenAddress::Tcp(address) => {
                Ok(Self { access: Some(access), ..Self::anonymous(*address).await? })
            }
            ListenAddress::Unix(path) => {
                remove_stale(path)?;
                let (listener, file) = bind_unix(path)?;
                let (socket, address) =
                    (ListenerSocket::Unix(listener, ListenerDoor::default()), address.clone());
                Ok(Self { socket, address, access: Some(access), file: Some(file) })
            }
        }
    }

    /// Takes a TCP socket that is listened on already. Without `access` its callers are not known.
    ///
    /// # Errors
    /// When the system refuses.
    pub async fn given_tcp(
        socket: std::net::TcpListener,
        access: Option<Arc<ApiAccess>>,
    ) -> io::Result<Self> {
        let address = ListenAddress::Tcp(socket.local_addr()?);
        let socket = ListenerSocket::Tcp(TcpListener::from_std(socket)?);
        Ok(Self { socket, address, access, file: None })
    }

    /// Takes a Unix socket that is listened on already at `path`. Its file stays at the end.
    ///
    /// # Errors
    /// When the system refuses.
    pub async fn given_unix(
        socket: std::os::unix::net::UnixListener,
        path: &Path,
        access: Arc<ApiAccess>,
    ) -> io::Result<Self> {
        let socket = ListenerSocket::Unix(UnixListener::from_std(socket)?, ListenerDoor::default());
        Ok(Self { socket, address: ListenAddress::Unix(path.to_owned()), access: Some(access), file: None })
    }

    /// Returns the address that it listens on, with its real port.
    #[must_use]
    pub const fn address(&self) -> &ListenAddress {
        &self.address
    }

    fn may_accept(&self) -> bool {
        match &self.socket {
            ListenerSocket::Tcp(_) => true,
            ListenerSocket::Unix(socket, door) => {
                refuse_passing(socket);
                door.is_open()
            }
        }
    }

    /// Lets a client in that was just accepted.
    fn admit(&self, stream: AcceptedStream) -> io::Result<AcceptedStream> {
        match (stream, &self.socket) {
            (AcceptedStream::Unix(client), ListenerSocket::Unix(_, door)) => {
                client.admit(door).map(AcceptedStream::Unix)
            }
            (stream, _) => Ok(stream),
        }
    }

    /// Takes the file of its socket, if it has one: the file is removed as soon as that is dropped.
    pub fn take_file(&mut self) -> Option<SocketFile> {
        self.file.take()
    }
}

/// Accepts a connection from any of the listeners. They take turns from `first` on.
pub(crate) async fn accept(listeners: &[HttpListener], first: usize) -> io::Result<AcceptedConnection> {
    let mut again = pin!(sleep(PAUSE));
    poll_fn(|context| {
        let mut must_wait = false;
        for at in 0..listeners.len() {
            let listener = &listeners[(first + at) % listeners.len()];
            if !listener.may_accept() {
                must_wait = true;
                continue;
            }
            let accepted = match &listener.socket {
                ListenerSocket::Tcp(socket) => socket
                    .poll_accept(context)
                    .map_ok(|(stream, from)| (AcceptedStream::Tcp(stream), from.ip())),
                ListenerSocket::Unix(socket, _) => socket.poll_accept(context).map_ok(|(stream, _)| {
                    (AcceptedStream::Unix(UnixClient::new(stream)), IpAddr::V4(Ipv4Addr::LOCALHOST))
                }),
            };
            if let Poll::Ready(accepted) = accepted {
                let (access, local) = (listener.access.clone(), listener.address.is_local());
                return Poll::Ready(accepted.and_then(|(stream, from)| {
                    let source = stream.source(from)?;
                    let stream = listener.admit(stream)?;
                    Ok(AcceptedConnection { stream, source, access, local })
                }));
            }
        }
        // Nothing else says when a listener need not wait any more.
        if must_wait && again.as_mut().poll(context).is_ready() {
            again.as_mut().reset(Instant::now() + PAUSE);
            context.waker().wake_by_ref();
        }
        Poll::Pending
    })
    .await
}

/// A connection before anything was said over it.
#[derive(Debug)]
pub(crate) struct AcceptedConnection {
    pub(crate) stream: AcceptedStream,
    pub(crate) source: ConnectionSource,
    /// The credentials of the listener's callers.
    pub(crate) access: Option<Arc<ApiAccess>>,
    /// True if its listener is for processes of this machine.
    pub(crate) local: bool,
}

#[derive(Debug)]
pub(crate) enum AcceptedStream {
    Tcp(TcpStream),
    Unix(UnixClient),
}

impl AcceptedStream {
    fn source(&self, from: IpAddr) -> io::Result<ConnectionSource> {
        match self {
            Self::Tcp(_) => Ok(from.into()),
            // A process that is gone already is still known.
            Self::Unix(stream) => Ok(ConnectionSource::User(stream.user()?)),
        }
    }
}

impl AcceptedConnection {
    pub(crate) fn descriptor(&self) -> RawFd {
        match &self.stream {
            AcceptedStream::Tcp(stream) => stream.as_raw_fd(),
            AcceptedStream::Unix(stream) => stream.as_raw_fd(),
        }
    }
}

/// The file of a Unix socket. Removed when this is dropped, unless another file has its place by then.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    identity: FileIdentity,
}

/// A file's device and number.
type FileIdentity = (u64, u64);

fn identity(path: &Path) -> io::Result<FileIdentity> {
    let metadata = fs::symlink_metadata(path)?;
    Ok((metadata.dev(), metadata.ino()))
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|now| now == self.identity) {
            // A folder that is gone already has no file.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Makes way for a new socket where an old one has no server any more.
fn remove_stale(path: &Path) -> io::Result<()> {
    let Ok(metadata) = fs::symlink_metadata(path) else { return Ok(()) };
    if !metadata.file_type().is_socket() {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "there is a file, and it is not a socket"));
    }
    match BlockingStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Ok(_) | Err(_) => Err(io::Error::new(io::ErrorKind::AddrInUse, "another service listens there")),
    }
}

/// Binds a Unix socket whose file is never more open than it is to be: it is made without rights, then
/// opened to its owner and group, and only then listened on.
fn bind_unix(path: &Path) -> io::Result<(UnixListener, SocketFile)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    // On Linux a socket's file begins with the mode of the socket.
    fchmod(&socket, Mode::empty())?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    let file = SocketFile { path: path.to_owned(), identity: identity(path)? };
    fs::set_permissions(path, fs::Permissions::from_mode(SOCKET_MODE))?;
    listen(&socket, BACKLOG)?;
    Ok((UnixListener::from_std(socket.into())?, file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_socket_or_an_address_with_a_port() {
        assert_eq!("unix:/run/a b".parse(), Ok(ListenAddress::Unix("/run/a b".into())));
        for text in ["127.0.0.1:9809", "[::1]:9809", "unix:serve.sock"] {
            assert_eq!(text.parse::<ListenAddress>().unwrap().to_string(), text);
        }
        for text in ["", "9809", "localhost:9809", "tcp:127.0.0.1:1", "/run/a", "127.0.0.1"] {
            assert_eq!(text.parse::<ListenAddress>(), Err(ListenAddressError::Unknown(text.to_owned())));
        }
        for path in ["", "a\0b", &"x".repeat(108)] {
            assert_eq!(format!("unix:{path}").parse::<ListenAddress>(), Err(ListenAddressError::Path));
        }
    }

    #[test]
    fn only_this_machine_reaches_sockets_and_loopback() {
        let local = |text: &str| text.parse::<ListenAddress>().unwrap().is_local();
        assert!(["unix:/a", "127.0.0.2:1", "[::1]:1", "[::ffff:127.0.0.1]:1"].into_iter().all(local));
        assert!(!["0.0.0.0:1", "[::]:1", "10.0.0.1:1"].into_iter().any(local));
    }

    #[test]
    fn a_dead_socket_makes_way_and_a_living_one_or_a_file_does_not() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("serve.sock");
        let address = ListenAddress::Unix(path.clone());
        let bind = || runtime.block_on(HttpListener::bind(&address, Arc::default()));
        let mut first = bind().unwrap();
        assert_eq!(fs::symlink_metadata(&path).unwrap().mode() & 0o7777, SOCKET_MODE);
        assert_eq!(bind().unwrap_err().kind(), io::ErrorKind::AddrInUse);
        // As after SIGKILL: the file stays.
        std::mem::forget(first.take_file());
        drop(first);
        let mut second = bind().unwrap();
        drop(second.take_file());
        assert!(!path.exists());
        fs::write(&path, "precious").unwrap();
        assert_eq!(bind().unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&path).unwrap(), b"precious");
    }
}
