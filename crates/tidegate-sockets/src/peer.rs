//! The process at the other end of a Unix socket.

use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd};

/// The process at the other end of a connection: the one that listens there, if this one has connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// The number of its user when it connected or began to listen.
    pub user: u32,
    /// The number of the process; `None` if it is not seen from here, as one outside of a container.
    pub process: Option<u32>,
}

impl Peer {
    /// Returns the process at the other end of a connected Unix socket, as the kernel knows it (`SO_PEERCRED`).
    ///
    /// # Errors
    /// When the socket is no such connection.
    pub fn of(socket: impl AsFd) -> io::Result<Self> {
        let mut credentials = libc::ucred { pid: 0, uid: 0, gid: 0 };
        // The size of three numbers fits.
        let mut length = mem::size_of::<libc::ucred>() as libc::socklen_t;
        // SAFETY: the descriptor is open, and the kernel writes at most `length` bytes, which `credentials` has.
        let done = unsafe {
            libc::getsockopt(
                socket.as_fd().as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERCRED,
                (&raw mut credentials).cast(),
                &raw mut length,
            )
        };
        if done != 0 {
            return Err(io::Error::last_os_error());
        }
        let process = u32::try_from(credentials.pid).ok().filter(|process| *process > 0);
        Ok(Self { user: credentials.uid, process })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn the_other_end_of_a_pair_is_this_process() {
        let (one, _other) = UnixStream::pair().unwrap();
        let user = rustix::process::geteuid().as_raw();
        assert_eq!(Peer::of(&one).unwrap(), Peer { user, process: Some(std::process::id()) });
    }
}
