//! Descriptors that the other side of a Unix socket passes, and threads that close them.
//!
//! The client that passes a descriptor decides how long closing it takes: a TCP connection with `SO_LINGER` and unsent
//! data takes as long as its option says, a file of FUSE as long as its server likes. The kernel closes a
//! descriptor in the thread that receives its message without room for it, and one that was never received in the
//! thread that closes the socket. So a thread that serves others has room for descriptors in every
//! [`receive`], and leaves closing to threads that do nothing else: [`close_aside`].
//!
//! These threads are counted for each user, as the kernel knows the other side (`SO_PEERCRED`): a process cannot
//! have more users than the administrator gives it, and what waits for one keeps only this user out.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, Shutdown, recv, recvmsg, sockopt,
};

use crate::peer;

/// The most descriptors of one message (`SCM_MAX_FD`).
pub const MOST_PASSED: usize = 253;

/// Threads that close. One that waits for a descriptor costs little more than its stack. A user has at most as
/// many as are left for others.
const MOST_THREADS: usize = 128;

const STACK: usize = 64 * 1024;

/// The time after which a thread without work ends.
const IDLE: Duration = Duration::from_secs(10);

/// Descriptors of a user without a thread that closes them, from which on the user gets no new connections, and
/// loses one by which it passes more. Chosen: far more than sockets that end together, and a fraction of the
/// descriptors that a service may have.
const MANY_WAITING: usize = 64;

/// The same for connections that were refused: their listener waits then. Which user connects is known only
/// afterwards, and there may be descriptors in such a connection, too.
const MOST_WAITING: usize = 4 * MANY_WAITING;

/// `SO_PASSRIGHTS`, from Linux 6.16 on.
const PASS_RIGHTS: libc::c_int = 83;

static QUEUE: Mutex<ClosingQueue<OwnedFd>> = Mutex::new(ClosingQueue::new());
static ARRIVAL: Condvar = Condvar::new();

/// A user at the other side of Unix sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PassingUser(u32);

impl PassingUser {
    /// Returns the user at the other side of a connection, if it may pass descriptors. Users that the kernel does not
    /// name count as one.
    pub fn of(socket: impl AsFd) -> Option<Self> {
        let socket = socket.as_fd();
        let passes = is_unix(socket) && may_pass(socket);
        passes.then(|| {
            // A byte out of band would be skipped together with its descriptors.
            let _ = sockopt::set_socket_oobinline(socket, true);
            Self(peer::user(socket).unwrap_or(u32::MAX))
        })
    }
}

/// Descriptors that are to be closed.
#[derive(Debug)]
struct ClosingQueue<D> {
    /// Users for whom descriptors wait or are being closed.
    users: BTreeMap<PassingUser, UserQueue<D>>,
    /// Threads that close.
    closing: usize,
    threads: usize,
    idle_threads: usize,
}

#[derive(Debug)]
struct UserQueue<D> {
    waiting: VecDeque<D>,
    closing: usize,
    /// It was logged that the user is kept out.
    is_told: bool,
}

impl<D> ClosingQueue<D> {
    const fn new() -> Self {
        Self { users: BTreeMap::new(), closing: 0, threads: 0, idle_threads: 0 }
    }

    fn push(&mut self, user: PassingUser, descriptor: D) {
        let empty = || UserQueue { waiting: VecDeque::new(), closing: 0, is_told: false };
        self.users.entry(user).or_insert_with(empty).waiting.push_back(descriptor);
    }

    /// Users for whom one more descriptor may be closed now.
    fn ready(&self) -> impl Iterator<Item = (PassingUser, &UserQueue<D>)> {
        let free = MOST_THREADS - self.closing;
        let is_ready = move |queue: &UserQueue<D>| !queue.waiting.is_empty() && queue.closing < free;
        self.users.iter().map(|(user, queue)| (*user, queue)).filter(move |(_, queue)| is_ready(queue))
    }

    /// Returns true if another thread could close something.
    fn needs_thread(&self) -> bool {
        let waiting: usize = self.ready().map(|(_, queue)| queue.waiting.len()).sum();
        waiting > self.idle_threads && self.threads < MOST_THREADS
    }

    /// Takes a descriptor of the user with the fewest threads.
    fn begin(&mut self) -> Option<(PassingUser, D)> {
        let (user, _) = self.ready().min_by_key(|(_, queue)| queue.closing)?;
        let queue = self.users.get_mut(&user)?;
        let descriptor = queue.waiting.pop_front()?;
        queue.closing += 1;
        self.closing += 1;
        Some((user, descriptor))
    }

    /// A descriptor is closed.
    fn end(&mut self, user: PassingUser) {
        self.closing -= 1;
        if let Some(queue) = self.users.get_mut(&user) {
            queue.closing -= 1;
            if queue.closing == 0 && queue.waiting.is_empty() {
                self.users.remove(&user);
            }
        }
    }

    fn has_waiting(&self, user: PassingUser, count: usize) -> bool {
        self.users.get(&user).is_some_and(|queue| queue.waiting.len() >= count)
    }
}

fn queue() -> MutexGuard<'static, ClosingQueue<OwnedFd>> {
    // Nothing panics while it has the lock.
    QUEUE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Closes a descriptor that a user has passed, or a socket to this user, in another thread. Does not wait for that.
pub fn close_aside(user: PassingUser, descriptor: OwnedFd) {
    let mut queue = queue();
    queue.push(user, descriptor);
    if queue.needs_thread() {
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
        if let Some((user, descriptor)) = queue.begin() {
            drop(queue);
            // It is another kind of descriptor, or a socket that then closes at once.
            let _ = sockopt::set_socket_linger(&descriptor, None);
            drop(descriptor);
            queue = self::queue();
            queue.end(user);
            continue;
        }
        queue.idle_threads += 1;
        let (woken, waited) = ARRIVAL.wait_timeout(queue, IDLE).unwrap_or_else(PoisonError::into_inner);
        queue = woken;
        queue.idle_threads -= 1;
        if waited.timed_out() && queue.ready().next().is_none() {
            queue.threads -= 1;
            return;
        }
    }
}

/// Closes the descriptors that a user passed beside bytes.
///
/// # Errors
/// When so many descriptors of the user wait to be closed that the connection should end.
pub fn close_passed(user: PassingUser, passed: impl IntoIterator<Item = OwnedFd>) -> io::Result<()> {
    let count = passed.into_iter().map(|descriptor| close_aside(user, descriptor)).count();
    if count > 0 && queue().has_waiting(user, MANY_WAITING) { Err(too_many()) } else { Ok(()) }
}

fn too_many() -> io::Error {
    let why = "too many descriptors that its user has passed wait to be closed";
    io::Error::new(io::ErrorKind::ConnectionAborted, why)
}

/// Receives bytes of a user as recv(2) does. Descriptors beside them are closed in another thread; `None`: there
/// can be none.
///
/// # Errors
/// As recv(2), and as [`close_passed`].
pub fn receive(
    socket: impl AsFd,
    user: Option<PassingUser>,
    buffer: &mut [u8],
    flags: RecvFlags,
) -> io::Result<usize> {
    let Some(user) = user else { return Ok(recv(socket, buffer, flags)?.1) };
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_PASSED))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(buffer)];
    let received = recvmsg(socket, &mut parts, &mut ancillary, flags | RecvFlags::CMSG_CLOEXEC)?;
    let passed = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    close_passed(user, passed.flatten())?;
    Ok(received.bytes)
}

/// Has clients that connect from now on pass nothing while much that others passed waits to be closed: for a
/// listener whose clients have no reason to pass anything. Before Linux 6.16 the kernel cannot.
pub fn refuse_passing(listener: impl AsFd) {
    let is_any_behind = queue().users.values().any(|queue| queue.waiting.len() >= MANY_WAITING);
    if is_any_behind {
        let _ = set_passing(listener.as_fd(), false);
    }
}

/// The door of a listener's Unix socket. It keeps out users for whom many descriptors wait to be closed.
#[derive(Debug, Default)]
pub struct ListenerDoor {
    /// The connection that was refused last, until a thread may close it.
    refused: Mutex<Option<PeerSocket>>,
}

impl ListenerDoor {
    /// Returns false while no connection should be accepted: the last one was refused, and it cannot even be closed.
    pub fn is_open(&self) -> bool {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        let user = refused.as_ref().and_then(PeerSocket::passing_user);
        let is_open = !user.is_some_and(|user| queue().has_waiting(user, MOST_WAITING));
        if is_open {
            *refused = None;
        }
        is_open
    }

    /// Lets a connection in that was just accepted.
    ///
    /// # Errors
    /// When its user is kept out.
    pub fn admit(&self, socket: PeerSocket) -> io::Result<PeerSocket> {
        match socket.passing_user() {
            Some(user) if self.keeps_out(user) => Err(self.refuse(user, socket)),
            _ => Ok(socket),
        }
    }

    /// Returns true if this user gets no connection now.
    #[must_use]
    pub fn keeps_out(&self, user: PassingUser) -> bool {
        queue().has_waiting(user, MANY_WAITING)
    }

    /// Refuses a connection of a user that is kept out. Returns the reason.
    pub fn refuse(&self, user: PassingUser, socket: PeerSocket) -> io::Error {
        if let Some(queue) = queue().users.get_mut(&user)
            && !std::mem::replace(&mut queue.is_told, true)
        {
            tracing::warn!(
                user = user.0,
                "a user gets no connection to Unix sockets now: {} descriptors that it has passed wait to be closed",
                queue.waiting.len()
            );
        }
        // Its client hears at once. Fails only when it has hung up.
        let _ = rustix::net::shutdown(&socket, Shutdown::Both);
        *self.refused.lock().unwrap_or_else(PoisonError::into_inner) = Some(socket);
        too_many()
    }
}

/// A socket whose other side is not trusted. Dropping it closes it, and waits for nothing.
#[derive(Debug)]
pub struct PeerSocket {
    /// Taken when it is dropped.
    descriptor: Option<OwnedFd>,
    /// `None`: the other side cannot pass anything.
    user: Option<PassingUser>,
}

impl PeerSocket {
    /// Takes a socket to a client or server.
    #[must_use]
    pub fn new(descriptor: OwnedFd) -> Self {
        let user = PassingUser::of(&descriptor);
        Self { descriptor: Some(descriptor), user }
    }

    /// Takes one end of a pair whose other end this process has.
    #[must_use]
    pub fn to_this_process(descriptor: OwnedFd) -> Self {
        Self { descriptor: Some(descriptor), user: None }
    }

    /// Returns the user at the other side, if it may pass descriptors: a receive needs room for [`MOST_PASSED`].
    #[must_use]
    pub fn passing_user(&self) -> Option<PassingUser> {
        self.user
    }

    /// Receives bytes as recv(2) does.
    ///
    /// # Errors
    /// As [`receive`].
    pub fn receive(&self, buffer: &mut [u8], flags: RecvFlags) -> io::Result<usize> {
        receive(self, self.user, buffer, flags)
    }

    /// Returns another descriptor of the socket.
    ///
    /// # Errors
    /// When the system has no descriptor left.
    pub fn try_clone(&self) -> io::Result<Self> {
        let descriptor = Some(self.as_fd().try_clone_to_owned()?);
        Ok(Self { descriptor, user: self.user })
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
        if let (Some(descriptor), Some(user)) = (self.descriptor.take(), self.user) {
            close_aside(user, descriptor);
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
            match ours.receive(&mut [0; 16], RecvFlags::empty()) {
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
            assert_eq!(accepted.passing_user().is_some(), passes);
            assert_eq!(pass(&client, &[client.as_fd()], SendFlags::empty()).is_ok(), passes);
        }
    }

    #[test]
    fn a_user_whose_descriptors_never_close_keeps_out_only_itself() {
        let (stuck, other) = (PassingUser(1), PassingUser(2));
        let mut queue = ClosingQueue::new();
        (0..10 * MOST_THREADS).for_each(|_| queue.push(stuck, ()));
        assert_eq!(std::iter::from_fn(|| queue.begin()).count(), MOST_THREADS / 2);
        assert!(queue.has_waiting(stuck, MOST_WAITING) && queue.begin().is_none());
        for _ in 0..1000 {
            queue.push(other, ());
            assert!(queue.needs_thread());
            assert_eq!(queue.begin(), Some((other, ())));
            assert!(!queue.has_waiting(other, 1));
            queue.end(other);
        }
        for user in 3..2 * MOST_THREADS as u32 {
            (0..10).for_each(|_| queue.push(PassingUser(user), ()));
            while queue.begin().is_some() {}
            assert!(queue.closing <= MOST_THREADS);
        }
        while queue.closing > 0 {
            let user = *queue.users.iter().find(|(_, queue)| queue.closing > 0).unwrap().0;
            queue.end(user);
            queue.begin();
        }
        assert!(queue.users.is_empty());
    }
}
