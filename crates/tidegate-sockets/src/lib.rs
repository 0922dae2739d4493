//! Descriptors that systemd passed to this process (sd_listen_fds(3)): listening sockets that it opened, and
//! those of connections that the process before this one left with it ([`store`]). Those that clients pass are
//! closed [aside].
//!
//! A socket is found by the address that it is bound to. So the configuration alone says where a service
//! listens, with which TLS and for which callers, whether systemd opens the socket or the service does.

#![allow(unsafe_code)]

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use rustix::net::sockopt::socket_acceptconn;

pub mod aside;
pub mod holders;
mod peer;
pub mod store;
pub mod trial;
pub mod trust;

/// The address of a passed socket.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Address {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

/// A socket that was passed. It stays open until the process ends, because systemd listens on it as well.
#[derive(Debug)]
struct PassedSocket {
    /// The name that the socket's unit gives to it.
    name: String,
    descriptor: OwnedFd,
    /// `None` if it is no socket that is listened on.
    address: Option<Address>,
    used: AtomicBool,
}

impl PassedSocket {
    fn new(name: String, descriptor: OwnedFd) -> Self {
        let address = address(&descriptor).unwrap_or_default();
        Self { name, descriptor, address, used: AtomicBool::new(false) }
    }
}

impl fmt::Display for PassedSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.address {
            Some(Address::Tcp(address)) => write!(f, "{address} ({})", self.name),
            Some(Address::Unix(path)) => write!(f, "unix:{} ({})", path.display(), self.name),
            None => write!(f, "{}, which is no listening socket", self.name),
        }
    }
}

/// Makes the folder of a Unix socket that is to be bound, if it is missing: `/run` is empty after a boot. The folder
/// above it must be there.
///
/// # Errors
/// The system's answer, with the folder.
pub fn make_folder(socket: &Path) -> io::Result<()> {
    let folder = folder_of(socket);
    match std::fs::create_dir(folder) {
        Err(error) if !folder.is_dir() => Err(io::Error::new(
            error.kind(),
            format!("its folder {} is missing, and cannot be made: {error}", folder.display()),
        )),
        _ => Ok(()),
    }
}

/// Returns the folder that a path is in.
fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Returns the TCP socket that systemd listens on at this address, if it passed one. It does not block.
#[must_use]
pub fn tcp(address: SocketAddr) -> Option<TcpListener> {
    let listener = TcpListener::from(take(&Address::Tcp(address))?);
    listener.set_nonblocking(true).ok()?;
    Some(listener)
}

/// Returns the Unix socket that systemd listens on at this path, if it passed one. The socket does not block.
/// Its file is systemd's.
#[must_use]
pub fn unix(path: &Path) -> Option<UnixListener> {
    let listener = UnixListener::from(take(&Address::Unix(path.to_owned()))?);
    listener.set_nonblocking(true).ok()?;
    Some(listener)
}

/// Returns the addresses and names of the passed sockets that were not asked for.
#[must_use]
pub fn unused() -> Vec<String> {
    let unused = passed().iter().filter(|socket| !socket.used.load(Ordering::Relaxed));
    unused.map(ToString::to_string).collect()
}

fn take(address: &Address) -> Option<OwnedFd> {
    let socket = passed().iter().find(|socket| socket.address.as_ref() == Some(address))?;
    let descriptor = socket.descriptor.try_clone().ok()?;
    socket.used.store(true, Ordering::Relaxed);
    Some(descriptor)
}

/// Descriptors that were passed to this process.
#[derive(Debug, Default)]
struct PassedDescriptors {
    sockets: Vec<PassedSocket>,
    /// Those that the process before this one left, with their names.
    stored: Mutex<Vec<(String, OwnedFd)>>,
}

/// Returns all sockets that were passed to this process.
fn passed() -> &'static [PassedSocket] {
    &descriptors().sockets
}

/// Returns those of a name that the process before this one left. The second call finds none.
fn take_stored(name: &str) -> Vec<OwnedFd> {
    let mut stored = descriptors().stored.lock().unwrap_or_else(PoisonError::into_inner);
    stored.extract_if(.., |(known, _)| known == name).map(|(_, descriptor)| descriptor).collect()
}

fn descriptors() -> &'static PassedDescriptors {
    static PASSED: OnceLock<PassedDescriptors> = OnceLock::new();
    PASSED.get_or_init(|| {
        let named = sd_notify::listen_fds_with_names().inspect_err(|error| {
            tracing::error!("the sockets that systemd passed cannot be used: {error}");
        });
        let mut passed = PassedDescriptors::default();
        let stored = passed.stored.get_mut().unwrap_or_else(PoisonError::into_inner);
        for (number, name) in named.into_iter().flatten() {
            // SAFETY: the environment names this process and this descriptor, which was open when the process
            // began; nothing else knows it. It is taken once, under the lock of `PASSED`.
            let descriptor = unsafe { OwnedFd::from_raw_fd(number) };
            if store::is_name(&name) {
                stored.push((name, descriptor));
            } else {
                passed.sockets.push(PassedSocket::new(name, descriptor));
            }
        }
        passed
    })
}

/// Returns the address of a listening socket; `None` if it is not listened on, or at another kind of one.
fn address(descriptor: &OwnedFd) -> io::Result<Option<Address>> {
    if !socket_acceptconn(descriptor)? {
        return Ok(None);
    }
    let inet = TcpListener::from(descriptor.as_fd().try_clone_to_owned()?);
    if let Ok(address) = inet.local_addr() {
        return Ok(Some(Address::Tcp(address)));
    }
    let unix = UnixListener::from(OwnedFd::from(inet));
    Ok(unix.local_addr()?.as_pathname().map(|path| Address::Unix(path.to_owned())))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpStream, UdpSocket};

    use super::*;

    #[test]
    fn a_socket_is_known_by_its_address_and_an_address_without_one_has_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("nbd.sock");
        let unix = PassedSocket::new("nbd".into(), UnixListener::bind(&path).unwrap().into());
        assert_eq!(unix.address, Some(Address::Unix(path.clone())));
        assert_eq!(unix.to_string(), format!("unix:{} (nbd)", path.display()));

        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let bound = tcp.local_addr().unwrap();
        let stream = TcpStream::connect(bound).unwrap();
        let tcp = PassedSocket::new("metrics".into(), tcp.into());
        assert_eq!(tcp.address, Some(Address::Tcp(bound)));

        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        for other in [OwnedFd::from(udp), OwnedFd::from(stream)] {
            assert_eq!(PassedSocket::new("other".into(), other).address, None);
        }
    }
}
