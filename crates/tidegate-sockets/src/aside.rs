//! Descriptors that the other side of a Unix socket passes, and threads that close them.
//!
//! The client that passes a descriptor decides how long closing it takes: a TCP connection with `SO_LINGER` and unsent
//! data takes as long as its option says, a file of FUSE as long as its server likes. The kernel closes a
//! descriptor in the thread that receives its message without room for it, and one that was never received in the
//! thread that closes the socket. So a thread that serves others has room for descriptors in every
//! [`receive`], and leaves closing to threads that do nothing else: [`close_aside`].

use std::collections::VecDeque;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::net::{AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg, sockopt};

/// The most descriptors of one message (`SCM_MAX_FD`).
pub const MOST_PASSED: usize = 253;

/// Threads that close. One that waits for a descriptor costs little more than its stack.
const MOST_THREADS: usize = 64;

const STACK: usize = 64 * 1024;

/// The time after which a thread without work ends.
const IDLE: Duration = Duration::from_secs(10);

/// Descriptors without a thread that closes them, from which on no more are taken from clients. Chosen: far
/// more than sockets that end together, and a fraction of the descriptors that a service may have.
const MANY_WAITING: usize = 64;

/// `SO_PASSRIGHTS`, from Linux 6.16 on.
const PASS_RIGHTS: libc::c_int = 83;

static QUEUE: Mutex<ClosingQueue> =
    Mutex::new(ClosingQueue { waiting: VecDeque::new(), threads: 0, idle_threads: 0 });
static ARRIVAL: Condvar = Condvar::new();

/// Descriptors that are to be closed.
struct ClosingQueue {
    waiting: VecDeque<OwnedFd>,
    threads: usize,
    idle_threads: usize,
}

fn queue() -> MutexGuard<'static, ClosingQueue> {
    // Nothing panics while it has the lock.
    QUEUE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Closes a descriptor in another thread, and does not wait for that.
pub fn close_aside(descriptor: OwnedFd) {
    let mut queue = queue();
    queue.waiting.push_back(descriptor);
    if queue.waiting.len() > queue.idle_threads && queue.threads < MOST_THREADS {
        let thread = thread::Builder::new().name("tg-close".into()).stack_size(STACK);
        // Without a thread, the descriptor waits for the next one.
        queue.threads += usize::from(thread.spawn(close_waiting).is_ok());
    }
    drop(queue);
    ARRIVAL.notify_one();
}

fn close_waiting() {
    let mut queue = queue();
    loop {
        if let Some(descriptor) = queue.waiting.pop_front() {
            drop(queue);
            // It is another kind of descriptor, or a socket that then closes at once.
            let _ = sockopt::set_socket_linger(&descriptor, None);
            drop(descriptor);
            queue = self::queue();
            continue;
        }
        queue.idle_threads += 1;
        let (woken, waited) = ARRIVAL.wait_timeout(queue, IDLE).unwrap_or_else(PoisonError::into_inner);
        queue = woken;
        queue.idle_threads -= 1;
        if waited.timed_out() && queue.waiting.is_empty() {
            queue.threads -= 1;
            return;
        }
    }
}

/// Returns true while many descriptors wait to be closed.
pub fn is_behind() -> bool {
    queue().waiting.len() >= MANY_WAITING
}

/// Closes the descriptors that a client passed beside its bytes.
///
/// # Errors
/// When so many descriptors wait to be closed that the client's connection should end.
pub fn close_passed(passed: impl IntoIterator<Item = OwnedFd>) -> io::Result<()> {
    let count = passed.into_iter().map(close_aside).count();
    if count > 0 && is_behind() {
        let why = "it passes descriptors, and too many that others passed wait to be closed";
        return Err(io::Error::new(io::ErrorKind::ConnectionAborted, why));
    }
    Ok(())
}

/// Receives bytes as recv(2) does. Descriptors beside them are closed in another thread.
///
/// # Errors
/// As recv(2), and as [`close_passed`].
pub fn receive(socket: impl AsFd, buffer: &mut [u8], flags: RecvFlags) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_PASSED))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(buffer)];
    let received = recvmsg(socket, &mut parts, &mut ancillary, flags | RecvFlags::CMSG_CLOEXEC)?;
    let passed = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    close_passed(passed.flatten())?;
    Ok(received.bytes)
}

/// Returns true if a connection may be accepted now, as far as closing it goes.
///
/// While many descriptors wait to be closed, clients that connect from now on cannot pass any. A kernel that
/// does not know how to refuse them (before Linux 6.16) has them wait instead.
pub fn may_accept(listener: impl AsFd) -> bool {
    !is_behind() || !is_unix(&listener) || set_passing(listener.as_fd(), false).is_ok()
}

/// A socket whose other side is not trusted. Dropping it closes it, and waits for nothing.
#[derive(Debug)]
pub struct PeerSocket {
    /// Taken when it is dropped.
    descriptor: Option<OwnedFd>,
    passes_descriptors: bool,
}

impl PeerSocket {
    /// Takes a socket to a client or server.
    #[must_use]
    pub fn new(descriptor: OwnedFd) -> Self {
        let passes_descriptors = is_unix(&descriptor) && may_pass(descriptor.as_fd());
        if passes_descriptors {
            // A byte out of band would be skipped together with its descriptors.
            let _ = sockopt::set_socket_oobinline(&descriptor, true);
        }
        Self { descriptor: Some(descriptor), passes_descriptors }
    }

    /// Takes one end of a pair whose other end this process has.
    #[must_use]
    pub fn to_this_process(descriptor: OwnedFd) -> Self {
        Self { descriptor: Some(descriptor), passes_descriptors: false }
    }

    /// Returns true if the other side may pass descriptors: a receive needs room for [`MOST_PASSED`].
    #[must_use]
    pub fn passes_descriptors(&self) -> bool {
        self.passes_descriptors
    }

    /// Returns another descriptor of the socket.
    ///
    /// # Errors
    /// When the system has no descriptor left.
    pub fn try_clone(&self) -> io::Result<Self> {
        let descriptor = Some(self.as_fd().try_clone_to_owned()?);
        Ok(Self { descriptor, passes_descriptors: self.passes_descriptors })
    }
}

impl AsFd for PeerSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // Invariant: only `drop` takes it.
        self.descriptor.as_ref().expect("a socket is there until it is dropped").as_fd()
    }
}

impl AsRawFd for PeerSocket {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

impl Drop for PeerSocket {
    fn drop(&mut self) {
        if let Some(descriptor) = self.descriptor.take().filter(|_| self.passes_descriptors) {
            close_aside(descriptor);
        }
    }
}

fn is_unix(socket: impl AsFd) -> bool {
    matches!(sockopt::socket_domain(socket), Ok(AddressFamily::UNIX))
}

/// Returns false if the other side of a Unix socket could never pass descriptors: a connection has the setting
/// of its listener from its first moment on.
fn may_pass(socket: BorrowedFd<'_>) -> bool {
    let mut passes: libc::c_int = 1;
    let mut length = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes to `passes`, which has that many. Both outlive the call.
    let known = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            PASS_RIGHTS,
            (&raw mut passes).cast(),
            &raw mut length,
        )
    };
    known != 0 || passes != 0 || sockopt::socket_acceptconn(socket).unwrap_or(true)
}

fn set_passing(socket: BorrowedFd<'_>, passes: bool) -> io::Result<()> {
    let passes = libc::c_int::from(passes);
    // SAFETY: the kernel reads as many bytes from `passes` as it has, during the call.
    let set = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            PASS_RIGHTS,
            (&raw const passes).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;
    use std::os::unix::net::{UnixListener, UnixStream};

    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

    use super::*;

    fn pass(socket: &UnixStream, descriptors: &[BorrowedFd<'_>], flags: SendFlags) -> io::Result<usize> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_PASSED))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(descriptors)));
        Ok(sendmsg(socket, &[IoSlice::new(b"x")], &mut ancillary, flags)?)
    }

    /// Waits until the other end of a pipe is closed everywhere.
    fn is_closed(read: &OwnedFd) {
        assert_eq!(rustix::io::read(read, &mut [0; 1]).unwrap(), 0);
    }

    #[test]
    fn every_descriptor_that_comes_beside_bytes_is_closed() {
        for (flags, count) in
            [(SendFlags::empty(), 1), (SendFlags::empty(), MOST_PASSED), (SendFlags::OOB, 1)]
        {
            let (ours, theirs) = UnixStream::pair().unwrap();
            let ours = PeerSocket::new(ours.into());
            let (read, write) = rustix::pipe::pipe().unwrap();
            pass(&theirs, &vec![write.as_fd(); count], flags).unwrap();
            drop(write);
            match receive(&ours, &mut [0; 16], RecvFlags::empty()) {
                Ok(bytes) => assert_eq!(bytes, 1, "{flags:?} {count}"),
                // The threads that close were slow, and so many at once are too many then.
                Err(error) => assert!(count > 1 && error.kind() == io::ErrorKind::ConnectionAborted),
            }
            is_closed(&read);
        }
    }

    #[test]
    fn descriptors_that_nobody_received_are_closed_with_the_socket_in_another_thread() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let ours = PeerSocket::new(ours.into());
        let (read, write) = rustix::pipe::pipe().unwrap();
        pass(&theirs, &[write.as_fd()], SendFlags::empty()).unwrap();
        drop((write, ours));
        is_closed(&read);
    }

    #[test]
    fn a_listener_that_refuses_descriptors_has_connections_that_never_bring_any() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let listener = UnixListener::bind(&path).unwrap();
        let before = UnixStream::connect(&path).unwrap();
        // Linux knows how from 6.16 on.
        let is_known = set_passing(listener.as_fd(), false).is_ok();
        let after = UnixStream::connect(&path).unwrap();
        for (client, passes) in [(before, true), (after, !is_known)] {
            let accepted = PeerSocket::new(listener.accept().unwrap().0.into());
            assert_eq!(accepted.passes_descriptors(), passes);
            assert_eq!(pass(&client, &[client.as_fd()], SendFlags::empty()).is_ok(), passes);
        }
    }
}
