//! Sockets that are listened on: their files, modes and owners, and the kernel's knowledge about the clients
//! that connect.

#![allow(unsafe_code)]

use std::fs;
use std::io;
use std::net::{IpAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Mode, fchmod};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, listen, socket_with, sockopt,
};

use tidegate_nbd::handshake::TlsMode;
use tidegate_sockets::aside::{ListenerDoor, PeerSocket, refuse_passing};

use crate::access::{ClientOrigin, ProcessCredentials};
use crate::config::{ListenConfig, ListenEndpoint, SocketFile as SocketFileConfig, TlsUse};
use crate::seats::ConnectionSource;

/// Connections that the system accepts before this process does; more than the 128 of the standard library,
/// so that a burst does not cost an honest client a second until it tries again.
const BACKLOG: i32 = 4096;

/// A client whose machine vanished does not hold its session for ever: its connection ends after 20 minutes.
/// Chosen: longer than a switch or a host takes to restart, so that the connection of an idle disk survives
/// that.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(600);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(60);
const KEEPALIVE_PROBES: u32 = 10;

/// A process is in at most so many groups (`NGROUPS_MAX` of Linux is 65,536; more than this are cut off).
const MOST_GROUPS: usize = 1024;

/// A bound socket.
#[derive(Debug)]
enum Socket {
    Unix {
        listener: PeerSocket,
        door: ListenerDoor,
        /// `None` if systemd made it.
        _file: Option<SocketFile>,
    },
    Tcp(TcpListener),
}

/// The file of a Unix socket, removed at the end if it is still the one that was made.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    inode: (u64, u64),
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if fs::symlink_metadata(&self.path).is_ok_and(|now| (now.dev(), now.ino()) == self.inode) {
            // It may have been removed in between, which comes to the same.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// An endpoint that is listened on.
#[derive(Debug)]
pub(crate) struct BoundEndpoint {
    socket: Socket,
    endpoint: ListenEndpoint,
    tls: TlsUse,
}

/// A connection that was accepted.
#[derive(Debug)]
pub(crate) struct AcceptedConnection {
    pub(crate) stream: PeerSocket,
    pub(crate) peer: String,
    pub(crate) client: SocketClient,
    /// The use of TLS at its endpoint.
    pub(crate) tls: TlsMode,
}

/// The client at the other end of a connection, as the system knows it.
#[derive(Debug)]
pub(crate) struct SocketClient {
    pub(crate) source: ConnectionSource,
    pub(crate) origin: ClientOrigin,
}

impl SocketClient {
    /// # Errors
    /// When the connection has ended.
    pub(crate) fn of(socket: impl AsFd) -> io::Result<Self> {
        match sockopt::socket_domain(&socket)? {
            AddressFamily::UNIX => Ok(unix_client(socket.as_fd()).0),
            _ => Ok(tcp_client(TcpStream::from(socket.as_fd().try_clone_to_owned()?).peer_addr()?.ip())),
        }
    }
}

fn tcp_client(address: IpAddr) -> SocketClient {
    SocketClient { source: ConnectionSource::of_address(address), origin: ClientOrigin::Tcp(address) }
}

/// The client of a Unix socket, and its process.
fn unix_client(stream: impl AsFd) -> (SocketClient, String) {
    let peer = sockopt::socket_peercred(&stream).ok();
    let pid =
        peer.as_ref().map_or_else(|| "?".to_owned(), |peer| format!("pid {}", peer.pid.as_raw_nonzero()));
    let credentials = peer.map(|peer| ProcessCredentials {
        user: peer.uid.as_raw(),
        groups: peer_groups(stream.as_fd(), peer.gid.as_raw()),
    });
    let source =
        credentials.as_ref().map_or(ConnectionSource::Unknown, |peer| ConnectionSource::User(peer.user));
    (SocketClient { source, origin: ClientOrigin::Unix(credentials) }, pid)
}

impl BoundEndpoint {
    /// # Errors
    /// When the address is in use, or the system refuses.
    pub(crate) fn new(config: &ListenConfig) -> io::Result<Self> {
        match &config.endpoint {
            ListenEndpoint::Unix(path) => {
                let socket = match tidegate_sockets::unix(path) {
                    Some(listener) => Socket::Unix {
                        listener: PeerSocket::new(listener.into()),
                        door: ListenerDoor::default(),
                        _file: None,
                    },
                    None => {
                        tidegate_sockets::make_folder(path)?;
                        remove_stale(path)?;
                        let listener = PeerSocket::new(bind_unix(path, &config.file)?);
                        let metadata = fs::symlink_metadata(path)?;
                        let file = SocketFile { path: path.clone(), inode: (metadata.dev(), metadata.ino()) };
                        Socket::Unix { listener, door: ListenerDoor::default(), _file: Some(file) }
                    }
                };
                Ok(Self { socket, endpoint: config.endpoint.clone(), tls: config.tls })
            }
            ListenEndpoint::Tcp(address) => {
                let listener = match tidegate_sockets::tcp(*address) {
                    Some(listener) => listener,
                    None => TcpListener::bind(address)?,
                };
                rustix::net::listen(&listener, BACKLOG)?;
                listener.set_nonblocking(true)?;
                let endpoint = ListenEndpoint::Tcp(listener.local_addr()?);
                Ok(Self { socket: Socket::Tcp(listener), endpoint, tls: config.tls })
            }
        }
    }

    /// Returns what keeps an endpoint from being listened on now. Nothing listens there meanwhile, and no file
    /// is made.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub(crate) fn try_out(endpoint: &ListenEndpoint) -> io::Result<()> {
        match endpoint {
            ListenEndpoint::Tcp(address) => tidegate_sockets::trial::tcp(*address),
            ListenEndpoint::Unix(path) => tidegate_sockets::trial::unix(path),
        }
    }

    /// With the real port.
    pub(crate) fn endpoint(&self) -> &ListenEndpoint {
        &self.endpoint
    }

    /// Accepts a connection whose client is not meant to pass descriptors.
    pub(crate) fn accept(&self) -> io::Result<AcceptedConnection> {
        refuse_passing(self);
        self.accept_passing()
    }

    /// Accepts a connection whose client may pass descriptors.
    ///
    /// # Errors
    /// [`io::ErrorKind::ConnectionAborted`] if the client is kept out, [`io::ErrorKind::ResourceBusy`] if the
    /// next one has to wait for that; or the system's answer.
    pub(crate) fn accept_passing(&self) -> io::Result<AcceptedConnection> {
        let tls = match self.tls {
            TlsUse::Off => TlsMode::Off,
            TlsUse::Offered => TlsMode::Offered,
            TlsUse::Required => TlsMode::Required,
        };
        match &self.socket {
            Socket::Unix { listener, door, .. } => {
                if !door.is_open() {
                    let why = "too many descriptors that clients passed wait to be closed";
                    return Err(io::Error::new(io::ErrorKind::ResourceBusy, why));
                }
                let stream = door.admit(PeerSocket::new(accept_with(listener, SocketFlags::CLOEXEC)?))?;
                let (client, pid) = unix_client(&stream);
                let peer = format!("{} {pid}", self.endpoint);
                Ok(AcceptedConnection { stream, peer, client, tls })
            }
            Socket::Tcp(listener) => {
                let (stream, address) = listener.accept()?;
                prepare(&stream)?;
                let client = tcp_client(address.ip());
                let stream = PeerSocket::new(stream.into());
                Ok(AcceptedConnection { stream, peer: address.to_string(), client, tls })
            }
        }
    }
}

fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    // Replies are gathered already; waiting to gather more would only add latency.
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(stream, KEEPALIVE_INTERVAL)?;
    Ok(sockopt::set_tcp_keepcnt(stream, KEEPALIVE_PROBES)?)
}

impl AsFd for BoundEndpoint {
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

/// Binds a Unix socket whose file is never more open than it is to be: it is made without rights, then given
/// to its owner, then opened, and only then listened on.
fn bind_unix(path: &Path, file: &SocketFileConfig) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    // On Linux a socket's file begins with the mode of the socket.
    fchmod(&socket, Mode::empty())?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    let opened = (|| {
        std::os::unix::fs::chown(path, file.owner, file.group)?;
        fs::set_permissions(path, fs::Permissions::from_mode(file.mode))?;
        Ok(listen(&socket, BACKLOG)?)
    })();
    if opened.is_err() {
        // What was made is of no use, and in the way of the next start only as a stale file.
        let _ = fs::remove_file(path);
    }
    opened.map(|()| socket)
}

/// The groups of the process at the other end: its own and the supplementary ones. Where the kernel does not
/// say, the one.
fn peer_groups(stream: BorrowedFd<'_>, own: u32) -> Vec<u32> {
    let mut groups: Vec<libc::gid_t> = vec![0; MOST_GROUPS];
    let mut length = std::mem::size_of_val(&groups[..]) as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes to `groups`, which has that many, and then how many it
    // wrote to `length`. Both outlive the call; any bits are group numbers.
    let result = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERGROUPS,
            groups.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    groups.truncate(if result == 0 { length as usize / size_of::<libc::gid_t>() } else { 0 });
    if !groups.contains(&own) {
        groups.push(own);
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sockets_file_has_the_mode_that_was_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        for mode in [0o600, 0o660, 0o666] {
            let path = folder.path().join("s");
            let mut config = ListenConfig::from(ListenEndpoint::Unix(path.clone()));
            config.file.mode = mode;
            let bound = BoundEndpoint::new(&config).unwrap();
            assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, mode);
            drop(bound);
            assert!(!path.exists());
        }
    }

    #[test]
    fn the_kernel_tells_the_groups_of_the_other_side() {
        let (one, _other) = UnixStream::pair().unwrap();
        let own = rustix::process::getgid().as_raw();
        assert!(peer_groups(one.as_fd(), own).contains(&own));
    }
}
