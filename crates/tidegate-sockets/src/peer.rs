//! The user of the process at the other end of a Unix socket.

use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd};

/// Returns the number of the user of the process at the other end of a connected Unix socket, when it connected or
/// began to listen, as the kernel knows it (`SO_PEERCRED`).
///
/// # Errors
/// When the socket is no such connection.
pub(crate) fn user(socket: impl AsFd) -> io::Result<u32> {
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
    if done == 0 { Ok(credentials.uid) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn the_other_end_of_a_pair_is_of_this_user() {
        let (one, _other) = UnixStream::pair().unwrap();
        assert_eq!(user(&one).unwrap(), rustix::process::geteuid().as_raw());
    }
}
