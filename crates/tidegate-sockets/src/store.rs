//! Descriptors that outlive this process: systemd keeps them, and passes them to the next process of the
//! service ("FDSTORE=1" of sd_notify(3)).
//!
//! After the stop of a service systemd closes them. Only a restart passes them on.

use std::env;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::time::Timespec;
use sd_notify::NotifyState;

/// The beginning of the names of stored descriptors, which tells them from listening sockets.
const PREFIX: &str = "stored-";

/// Descriptors in one message: the kernel takes 253.
const IN_ONE_MESSAGE: usize = 250;

/// The time that systemd has to take what it was sent.
const PATIENCE: Duration = Duration::from_secs(5);

pub(crate) fn is_name(name: &str) -> bool {
    name.starts_with(PREFIX)
}

/// Returns how many descriptors systemd keeps for this service: the number in `$FDSTORE`. Zero without
/// systemd.
#[must_use]
pub fn capacity() -> usize {
    let has_systemd = env::var_os("NOTIFY_SOCKET").is_some();
    let number = env::var("FDSTORE").ok().and_then(|text| text.parse().ok());
    number.filter(|_| has_systemd).unwrap_or(0)
}

/// Has systemd keep descriptors under a name, and waits until it has them. It drops those that exceed its
/// [`capacity`], and connections whose other side hangs up.
///
/// # Errors
/// When systemd cannot be told, or does not answer within 5 s.
pub fn keep(name: &str, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let name = format!("{PREFIX}{name}");
    for some in descriptors.chunks(IN_ONE_MESSAGE) {
        sd_notify::notify_with_fds(&[NotifyState::FdStore, NotifyState::FdName(&name)], some)?;
    }
    wait_until_read()
}

/// Returns the descriptors of a name that the process before this one left, and has systemd close its own.
/// The second call finds none.
#[must_use]
pub fn take(name: &str) -> Vec<OwnedFd> {
    let name = format!("{PREFIX}{name}");
    let stored = crate::take_stored(&name);
    if !stored.is_empty()
        && let Err(error) = sd_notify::notify(&[NotifyState::FdStoreRemove, NotifyState::FdName(&name)])
    {
        tracing::warn!("systemd still has connections open that this service goes on with: {error}");
    }
    stored
}

/// Waits until systemd has read all messages of this process: it then closes a pipe (sd_notify_barrier(3)). A
/// message of a process that has ended could not be told to belong to its service.
fn wait_until_read() -> io::Result<()> {
    let (here, there) = pipe_with(PipeFlags::CLOEXEC)?;
    sd_notify::notify_with_fds(&[NotifyState::Custom("BARRIER=1")], &[there.as_fd()])?;
    drop(there);
    let patience = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
    loop {
        match poll(&mut [PollFd::new(&here, PollFlags::empty())], Some(&patience)) {
            Ok(0) => return Err(io::Error::new(io::ErrorKind::TimedOut, "systemd does not answer")),
            Ok(_) => return Ok(()),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
