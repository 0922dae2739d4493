//! The io_uring of one worker: operations go in with the memory they use, completions come out with it.
//!
//! All memory that the kernel may touch is owned by the ring from the submission of an operation to its
//! completion. So the rest of the gateway is safe code, and a session can vanish at any moment without a
//! buffer being freed under the kernel's hands.

#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use io_uring::types::{Fd, FsyncFlags, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};
use slab::Slab;
use tidegate_nbd::AllocationMap;
use tidegate_sockets::aside::PeerSocket;
use tidegate_ublk::RingCommand;
use tidegate_vhost::EventDescriptor;

use crate::bell::WorkerBell;
use crate::buffer::AlignedBuffer;
use crate::message::{MessageItem, ReadyReply, ReplyMessage};
use crate::passed::PassedRoom;
use crate::request::SyncRange;
use crate::upstream::link::OutgoingRequest;

/// Submissions of a worker per turn before the ring is entered early, and operations that complete at once.
pub(crate) const WORKER_ENTRIES: u32 = 1024;

/// Kernel threads that may work on a ring's operations at once. The kernel's own bound, four per processor,
/// is reached by a few operations that hang, and every sync of another volume then waits behind them. Chosen
/// far above the depth of a pool; a thread exists only while an operation waits in it.
const KERNEL_WORKERS: u32 = 1024;

/// The longest time to watch for a completion before sleeping. Being woken costs a client at depth 1 about
/// this much. Disks take much longer, and are not watched for.
const LONGEST_POLL: Duration = Duration::from_micros(50);

/// A wait shorter than this was none: the operation completed while it was submitted, as those on cached data
/// and on sockets with room do.
const NO_WAIT: Duration = Duration::from_micros(5);

/// Waits in a row that would have been worth watching for before watching begins.
const SHORT_WAITS: u32 = 4;

/// The most bytes of one operation on cached data or a socket. The kernel copies them while the worker submits:
/// 1 MiB takes 0.06 to 0.13 ms (measured).
const LARGEST_COPY: usize = 1 << 20;

/// The same beside protected requests. All of it in such pieces would cost throughput: 15 % at 1 MiB a request.
const COPY_PIECE: usize = 256 << 10;

/// The choice whether to watch for completions before sleeping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CompletionWatch {
    /// Watch while completions come soon.
    WhenWorthwhile,
    /// Never: many threads that watch would take the processors from each other.
    Never,
}

/// The record of waits that tells whether watching for completions is cheaper than sleeping. It is after a
/// few short waits in a row, until the first long one.
#[derive(Debug, Default)]
struct Polling {
    short_waits: u32,
}

impl Polling {
    fn is_worthwhile(&self) -> bool {
        self.short_waits >= SHORT_WAITS
    }

    fn waited(&mut self, time: Duration) {
        if time > 2 * LONGEST_POLL {
            self.short_waits = 0;
        } else if time > NO_WAIT {
            self.short_waits = self.short_waits.saturating_add(1);
        }
    }
}

/// The purpose of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RingToken {
    /// The ring's own: its bell has rung.
    Bell,
    /// Bytes of a session's client arrived.
    Received { session: usize },
    /// A part of a session's replies is on its way.
    Sent { session: usize },
    /// The backend did something for a request.
    Request { request: usize },
    /// A request's read found its data in the page cache, or did not.
    Cached { request: usize },
    /// An export's data is on stable storage.
    Synced { export: usize },
    /// A guest says that there are requests in a ring, or the watch for that was ended.
    Kicked { session: usize, watch: usize },
    /// A guest was told of results.
    Signalled { session: usize },
    /// A device of the kernel has a request for a tag.
    Fetched { session: usize, tag: u16 },
    /// The ring's own: an operation was asked to end.
    Cancelled,
    /// Bytes of an export's upstream arrived on one of its connections.
    UpstreamReceived { export: usize, link: usize },
    /// A part of the requests to an export's upstream is on its way.
    UpstreamSent { export: usize, link: usize },
}

/// An operation is done.
#[derive(Debug)]
pub(crate) struct CompletedOperation {
    pub(crate) token: RingToken,
    pub(crate) result: io::Result<usize>,
    /// The memory that was lent.
    pub(crate) held: LentMemory,
}

/// Memory lent to an operation.
#[derive(Debug)]
pub(crate) enum LentMemory {
    Nothing,
    Buffer(AlignedBuffer),
    /// An answer about allocation, which no kernel writes to.
    Allocation(Box<AllocationMap>),
    Replies(Box<ReplyMessage<ReadyReply>>),
    Requests(Box<ReplyMessage<OutgoingRequest>>),
    /// A descriptor, which is open for as long.
    Event(Arc<EventDescriptor>),
}

impl LentMemory {
    /// The memory of a part of the buffer, with bounds checked.
    fn window(&mut self, part: BufferPart) -> (*mut u8, u32) {
        let Self::Buffer(buffer) = self else { unreachable!("data moves from and to buffers") };
        window(buffer, part)
    }
}

impl From<Box<ReplyMessage<ReadyReply>>> for LentMemory {
    fn from(message: Box<ReplyMessage<ReadyReply>>) -> Self {
        Self::Replies(message)
    }
}

impl From<Box<ReplyMessage<OutgoingRequest>>> for LentMemory {
    fn from(message: Box<ReplyMessage<OutgoingRequest>>) -> Self {
        Self::Requests(message)
    }
}

#[derive(Debug)]
struct RingOperation {
    token: RingToken,
    held: LentMemory,
    /// Where a receive puts the descriptors that the other side passes, if it can.
    room: Option<PassedRoom>,
}

pub(crate) struct IoRing {
    uring: IoUring,
    bell: Arc<WorkerBell>,
    watching: CompletionWatch,
    polling: Polling,
    operations: Slab<RingOperation>,
    /// Rooms that no receive uses now.
    rooms: Vec<PassedRoom>,
    /// Completions taken out of the kernel's queue before their turn.
    early: VecDeque<cqueue::Entry>,
    /// Bytes that the kernel copies when it is next entered: see [`IoRing::copying`].
    copying: usize,
    largest_copy: usize,
}

/// The ring of a pool's worker. Tests also have a simulated one, which is no part of the program.
#[cfg(not(test))]
pub(crate) type WorkerRing = IoRing;

#[cfg(test)]
pub(crate) use crate::worker::simulation::WorkerRing;

/// Says why the kernel gives no ring, and what to do about it.
fn refusal(error: &io::Error) -> io::Error {
    // Kernels before 6.6 have no such setting.
    let disabled = std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled").ok();
    let advice = advice(error.raw_os_error(), disabled.as_deref().map(str::trim));
    io::Error::new(error.kind(), format!("io_uring is not available: {error}; {advice}"))
}

fn advice(errno: Option<i32>, disabled: Option<&str>) -> &'static str {
    match (errno, disabled) {
        (Some(libc::EPERM), Some("2")) => {
            "kernel.io_uring_disabled is 2: set it to 0, or set it to 1 and add the service to \
                kernel.io_uring_group"
        }
        (Some(libc::EPERM), Some("1")) => {
            "kernel.io_uring_disabled is 1: set it to 0, or add the service to kernel.io_uring_group"
        }
        (Some(libc::EPERM | libc::EACCES), _) => {
            "a seccomp filter forbids it, as container runtimes do by default: have it allow io_uring_setup, \
             io_uring_enter and io_uring_register"
        }
        (Some(libc::ENOSYS), _) => {
            "the kernel is built without CONFIG_IO_URING, or a seccomp filter hides it: have it allow \
             io_uring_setup, io_uring_enter and io_uring_register"
        }
        (Some(libc::ENOMEM), _) => {
            "the limit of locked memory is too low: raise LimitMEMLOCK= or `ulimit -l`"
        }
        _ => "Linux 5.12 or later is needed",
    }
}

/// Asks the kernel for an io_uring, as every pool's worker does.
///
/// # Errors
/// When the kernel gives none. The error says why, and what to do about it.
pub fn check_io_uring() -> io::Result<()> {
    IoRing::new(1, CompletionWatch::Never, Arc::new(WorkerBell::new()?)).map(drop)
}

/// A part of a buffer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BufferPart {
    pub(crate) start: usize,
    pub(crate) length: usize,
}

impl IoRing {
    /// A ring for the calling thread alone, which the bell wakes.
    ///
    /// # Errors
    /// When the kernel gives none.
    pub(crate) fn new(entries: u32, watching: CompletionWatch, bell: Arc<WorkerBell>) -> io::Result<Self> {
        let uring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            // Shows pending work in shared memory, so that polling needs no system call.
            .setup_taskrun_flag()
            .setup_submit_all()
            .setup_cqsize(4 * entries)
            .build(entries)
            // Kernels before 6.1 know neither of the first two.
            .or_else(|_| IoUring::builder().setup_cqsize(4 * entries).build(entries))
            .map_err(|error| refusal(&error))?;
        if !uring.params().is_feature_ext_arg() || !uring.params().is_feature_nodrop() {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "io_uring of Linux 5.12 or later is needed",
            ));
        }
        // Saves a lookup per entry into the kernel; kernels before 5.18 refuse, and go without.
        let _ = uring.submitter().register_ring_fd();
        // Kernels before 5.15 keep their own bound.
        let _ = uring.submitter().register_iowq_max_workers(&mut [KERNEL_WORKERS, 0]);
        let polling = Polling::default();
        let (operations, early) = (Slab::new(), VecDeque::new());
        let rooms = Vec::new();
        let mut ring = Self {
            uring,
            bell,
            watching,
            polling,
            operations,
            rooms,
            early,
            copying: 0,
            largest_copy: LARGEST_COPY,
        };
        ring.listen();
        Ok(ring)
    }

    /// Operations that have not completed.
    pub(crate) fn outstanding(&self) -> usize {
        // But for the one that waits for the bell.
        self.operations.len() - 1
    }

    /// Returns the bytes that the kernel copies for the operations that wait to be submitted, while it submits
    /// them: those to sockets, and from its page cache.
    pub(crate) fn copying(&self) -> usize {
        self.copying
    }

    /// Returns the most bytes of one operation that the kernel copies while the worker submits.
    pub(crate) fn largest_copy(&self) -> usize {
        self.largest_copy
    }

    /// Has the kernel copy less at once while a request may come that should not wait for it.
    pub(crate) fn copy_in_pieces(&mut self, in_pieces: bool) {
        self.largest_copy = if in_pieces { COPY_PIECE } else { LARGEST_COPY };
    }

    /// Waits for the bell from the next submission on.
    fn listen(&mut self) {
        let entry = opcode::PollAdd::new(Fd(self.bell.fd().as_raw_fd()), libc::POLLIN as u32).build();
        self.submit(RingToken::Bell, entry, LentMemory::Nothing);
    }

    /// Submits the operations asked for and waits for a completion or the bell, at most until `timeout`. Zero
    /// does not wait.
    ///
    /// # Errors
    /// When the kernel refuses for another reason than time or a signal.
    pub(crate) fn submit_and_wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.copying = 0;
        // Without waiting, the kernel runs what it has pending.
        let at_once = timeout == Some(Duration::ZERO);
        let submitted = if at_once || !self.early.is_empty() || !self.uring.completion().is_empty() {
            self.uring.submit()
        } else if self.watching == CompletionWatch::WhenWorthwhile && self.polling.is_worthwhile() {
            self.poll(timeout)
        } else {
            let began = Instant::now();
            let submitted = self.wait(timeout);
            self.polling.waited(began.elapsed());
            submitted
        };
        match submitted {
            Ok(_) => Ok(()),
            Err(error)
                if matches!(
                    error.raw_os_error(),
                    Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN)
                ) =>
            {
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Submits, and watches for a completion for as long as it is worthwhile before it sleeps.
    fn poll(&mut self, timeout: Option<Duration>) -> io::Result<usize> {
        let began = Instant::now();
        self.uring.submit()?;
        let patience = timeout.map_or(LONGEST_POLL, |timeout| timeout.min(LONGEST_POLL));
        let submitted = loop {
            if self.uring.submission().taskrun() {
                // Runs what the kernel has pending. It must not wait for a completion: what was pending may
                // have been a part of a payload, which completes nothing.
                self.uring.submit()?;
            }
            if !self.uring.completion().is_empty() || self.bell.is_rung() {
                break Ok(0);
            }
            if began.elapsed() >= patience {
                break self.wait(timeout.map(|timeout| timeout.saturating_sub(patience)));
            }
            // The thread that is waited for may need this processor.
            std::thread::yield_now();
        };
        self.polling.waited(began.elapsed());
        submitted
    }

    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<usize> {
        if !self.bell.sleeps() {
            return self.uring.submit();
        }
        let submitted = match timeout {
            Some(timeout) => {
                let timespec = Timespec::from(timeout);
                self.uring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&timespec))
            }
            None => self.uring.submit_and_wait(1),
        };
        self.bell.wakes();
        submitted
    }

    /// The next completion that has arrived.
    pub(crate) fn completed(&mut self) -> Option<CompletedOperation> {
        loop {
            let entry = self.early.pop_front().or_else(|| self.uring.completion().next())?;
            // Invariant: `submit` made this key, and each operation here completes exactly once (none is
            // multishot).
            let operation = self.operations.remove(entry.user_data() as usize);
            match operation.token {
                RingToken::Bell => {
                    self.bell.silence();
                    self.listen();
                    continue;
                }
                RingToken::Cancelled => continue,
                _ => {}
            }
            let mut result = match entry.result() {
                count if count >= 0 => Ok(count as usize),
                error => Err(io::Error::from_raw_os_error(-error)),
            };
            if let Some(mut room) = operation.room {
                if result.is_ok() {
                    result = room.close_passed().and(result);
                }
                self.rooms.push(room);
            }
            return Some(CompletedOperation { token: operation.token, result, held: operation.held });
        }
    }

    /// Receives into a part of the buffer: at least one byte, or all of it when `whole` and the other side
    /// cannot pass descriptors.
    pub(crate) fn receive(
        &mut self,
        token: RingToken,
        socket: &PeerSocket,
        mut buffer: AlignedBuffer,
        part: BufferPart,
        whole: bool,
    ) {
        let (memory, length) = window(&mut buffer, part);
        let fd = Fd(socket.as_raw_fd());
        if let Some(user) = socket.passing_user() {
            let mut room = self.rooms.pop().unwrap_or_else(PassedRoom::new);
            // Without MSG_WAITALL: kernels before 6.4 would go on, and put further descriptors over the first.
            let flags = libc::MSG_CMSG_CLOEXEC as u32;
            let entry = opcode::RecvMsg::new(fd, room.prepare(user, memory, length)).flags(flags).build();
            return self.submit_with_room(token, entry, LentMemory::Buffer(buffer), Some(room));
        }
        let flags = if whole { libc::MSG_WAITALL } else { 0 };
        let entry = opcode::Recv::new(fd, memory, length).flags(flags).build();
        self.submit(token, entry, LentMemory::Buffer(buffer));
    }

    /// Sends what is left of a message, or a part of that.
    pub(crate) fn send<I: MessageItem>(
        &mut self,
        token: RingToken,
        fd: BorrowedFd<'_>,
        mut message: Box<ReplyMessage<I>>,
    ) where
        LentMemory: From<Box<ReplyMessage<I>>>,
    {
        let header = message.prepare(self.largest_copy);
        self.copying += message.prepared();
        // Without MSG_WAITALL: a send that the socket's buffer cuts short completes, and shows that the
        // client takes its replies, however slowly.
        let flags = libc::MSG_NOSIGNAL as u32;
        let entry = opcode::SendMsg::new(Fd(fd.as_raw_fd()), header).flags(flags).build();
        self.submit(token, entry, message.into());
    }

    /// Has an operation on a file done.
    pub(crate) fn file(&mut self, operation: FileOperation) {
        let FileOperation { token, fd, action, mut held } = operation;
        let fd = Fd(fd);
        let entry = match action {
            FileAction::Read { part, offset, cached } => {
                let (memory, length) = held.window(part);
                let flags = if cached { libc::RWF_NOWAIT } else { 0 };
                self.copying += if cached { part.length } else { 0 };
                opcode::Read::new(fd, memory, length).offset(offset).rw_flags(flags).build()
            }
            FileAction::Write { part, offset, durable } => {
                let (memory, length) = held.window(part);
                let flags = if durable { libc::RWF_DSYNC } else { 0 };
                opcode::Write::new(fd, memory, length).offset(offset).rw_flags(flags).build()
            }
            FileAction::Sync { range: SyncRange { offset, length } } => {
                opcode::Fsync::new(fd).offset(offset).len(length).flags(FsyncFlags::DATASYNC).build()
            }
            FileAction::Allocate { mode, offset, length } => {
                opcode::Fallocate::new(fd, length).offset(offset).mode(mode).build()
            }
        };
        self.submit(token, entry, held);
    }

    /// Completes once the event is signalled, or the watch is ended.
    pub(crate) fn watch(&mut self, token: RingToken, event: Arc<EventDescriptor>) {
        let entry = opcode::PollAdd::new(Fd(event.as_fd().as_raw_fd()), libc::POLLIN as u32).build();
        self.submit(token, entry, LentMemory::Event(event));
    }

    /// Has the operations of a token end that wait for something, such as a watch, a receive or a signal. They
    /// complete then, with `ECANCELED` or `EINTR` unless something came first.
    pub(crate) fn cancel(&mut self, token: RingToken) {
        let operations = self.operations.iter().filter(|(_, operation)| operation.token == token);
        for key in operations.map(|(key, _)| key).collect::<Vec<_>>() {
            let entry = opcode::AsyncCancel::new(key as u64).build();
            self.submit(RingToken::Cancelled, entry, LentMemory::Nothing);
        }
    }

    /// Signals an event. The ring does it, and not a system call of this thread: the other side of the event
    /// decides whether writing to it can block.
    pub(crate) fn signal(&mut self, token: RingToken, event: Arc<EventDescriptor>) {
        static ONE: u64 = 1;
        let count = (&raw const ONE).cast();
        let entry = opcode::Write::new(Fd(event.as_fd().as_raw_fd()), count, size_of::<u64>() as u32).build();
        self.submit(token, entry, LentMemory::Event(event));
    }

    /// Sends a command to the channel of a device of ublk. The kernel has a share of the file for as long.
    pub(crate) fn command(&mut self, token: RingToken, channel: BorrowedFd<'_>, command: RingCommand) {
        let RingCommand { operation, argument } = command;
        let entry = opcode::UringCmd16::new(Fd(channel.as_raw_fd()), operation).cmd(argument).build();
        self.submit(token, entry, LentMemory::Nothing);
    }

    /// Hands everything over to the kernel at once, without waiting.
    pub(crate) fn submit_now(&mut self) {
        // A lasting error is reported by `submit_and_wait`, since the entries stay where they are.
        let _ = self.uring.submit();
    }

    fn submit(&mut self, token: RingToken, entry: squeue::Entry, held: LentMemory) {
        self.submit_with_room(token, entry, held, None);
    }

    fn submit_with_room(
        &mut self,
        token: RingToken,
        entry: squeue::Entry,
        held: LentMemory,
        room: Option<PassedRoom>,
    ) {
        let key = self.operations.insert(RingOperation { token, held, room });
        let entry = entry.user_data(key as u64);
        loop {
            // SAFETY: the entry points only to a static, or into `held` or `room`, which `operations` owns until
            // the completion. Moving a Buffer or a Box or a room does not move the memory it owns. The descriptor is
            // borrowed from its owner now; the kernel takes its own reference in `submit_and_wait`, before
            // the owner can close it: sessions and exports are dropped only when none of their operations is
            // outstanding, and `held` has a share of an event.
            if unsafe { self.uring.submission().push(&entry) }.is_ok() {
                return;
            }
            // The queue is full: hand it over. The kernel may want its completions to be taken first; a
            // lasting error is reported by `submit_and_wait`, since the entries stay where they are.
            let _ = self.uring.submit();
            self.early.extend(self.uring.completion());
        }
    }
}

/// An operation on a file, with the memory that it uses. It is valid for as long as the file is open.
#[derive(Debug)]
pub(crate) struct FileOperation {
    pub(crate) token: RingToken,
    pub(crate) fd: RawFd,
    pub(crate) action: FileAction,
    pub(crate) held: LentMemory,
}

/// The action of an operation on a file. Parts are parts of its buffer.
#[derive(Debug, Clone, Copy)]
pub(crate) enum FileAction {
    /// Reads; what is `cached` alone fails with EAGAIN where the page cache has nothing of its beginning.
    Read { part: BufferPart, offset: u64, cached: bool },
    /// Writes; what is `durable` completes once the data is on stable storage.
    Write { part: BufferPart, offset: u64, durable: bool },
    /// Brings the written data of a range, and what is needed to find it, to stable storage.
    Sync { range: SyncRange },
    /// Changes a range's allocation; see fallocate(2) for the mode.
    Allocate { mode: i32, offset: u64, length: u64 },
}

impl FileOperation {
    /// Reads into a part of the buffer.
    pub(crate) fn read(
        token: RingToken,
        fd: BorrowedFd<'_>,
        buffer: AlignedBuffer,
        part: BufferPart,
        offset: u64,
    ) -> Self {
        let action = FileAction::Read { part, offset, cached: false };
        Self { token, fd: fd.as_raw_fd(), action, held: LentMemory::Buffer(buffer) }
    }

    /// Reads what the page cache holds of a part; fails with EAGAIN where that begins with nothing.
    pub(crate) fn read_cached(
        token: RingToken,
        fd: BorrowedFd<'_>,
        buffer: AlignedBuffer,
        part: BufferPart,
        offset: u64,
    ) -> Self {
        let action = FileAction::Read { part, offset, cached: true };
        Self { token, fd: fd.as_raw_fd(), action, held: LentMemory::Buffer(buffer) }
    }

    /// Writes a part of the buffer; with `durable` it completes once the data is on stable storage.
    pub(crate) fn write(
        token: RingToken,
        fd: BorrowedFd<'_>,
        buffer: AlignedBuffer,
        part: BufferPart,
        offset: u64,
        durable: bool,
    ) -> Self {
        let action = FileAction::Write { part, offset, durable };
        Self { token, fd: fd.as_raw_fd(), action, held: LentMemory::Buffer(buffer) }
    }

    /// Brings the written data of a range, and what is needed to find it, to stable storage.
    pub(crate) fn sync(token: RingToken, fd: BorrowedFd<'_>, range: SyncRange) -> Self {
        let action = FileAction::Sync { range };
        Self { token, fd: fd.as_raw_fd(), action, held: LentMemory::Nothing }
    }

    /// Changes a range's allocation; see fallocate(2) for the mode.
    pub(crate) fn allocate(
        token: RingToken,
        fd: BorrowedFd<'_>,
        mode: i32,
        offset: u64,
        length: u64,
    ) -> Self {
        let action = FileAction::Allocate { mode, offset, length };
        Self { token, fd: fd.as_raw_fd(), action, held: LentMemory::Nothing }
    }

    /// The operation as one that was refused.
    pub(crate) fn refused(self, error: io::Error) -> CompletedOperation {
        CompletedOperation { token: self.token, result: Err(error), held: self.held }
    }
}

impl Drop for IoRing {
    fn drop(&mut self) {
        // Closing a ring does not wait for its operations. What the kernel may still write to is never freed.
        if self.operations.iter().any(|(_, operation)| !matches!(operation.held, LentMemory::Nothing)) {
            std::mem::forget(std::mem::take(&mut self.operations));
        }
    }
}

/// The memory of a part, with bounds checked.
fn window(buffer: &mut AlignedBuffer, part: BufferPart) -> (*mut u8, u32) {
    assert!(
        part.start <= buffer.len() && part.length <= buffer.len() - part.start,
        "a part lies in its buffer"
    );
    // Invariant: a buffer is at most MAX_PAYLOAD long, so that the length fits.
    let length = part.length as u32;
    (buffer.as_mut_ptr().wrapping_add(part.start), length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_ring_says_which_setting_refuses_it() {
        for (errno, disabled, said) in [
            (libc::EPERM, Some("2"), "io_uring_disabled is 2"),
            (libc::EPERM, Some("1"), "io_uring_group"),
            (libc::EPERM, Some("0"), "seccomp"),
            (libc::EPERM, None, "seccomp"),
            (libc::ENOSYS, None, "CONFIG_IO_URING"),
            (libc::ENOMEM, Some("0"), "LimitMEMLOCK"),
            (libc::EINVAL, Some("0"), "5.12"),
        ] {
            assert!(advice(Some(errno), disabled).contains(said), "{errno} {disabled:?}");
        }
    }

    #[test]
    fn watching_begins_after_short_waits_and_ends_with_the_first_long_one() {
        let mut polling = Polling::default();
        for _ in 0..100 {
            polling.waited(Duration::from_micros(1));
        }
        assert!(!polling.is_worthwhile(), "operations that complete at once say nothing about waiting");
        for _ in 0..SHORT_WAITS {
            assert!(!polling.is_worthwhile());
            polling.waited(Duration::from_micros(30));
        }
        assert!(polling.is_worthwhile());
        polling.waited(Duration::from_millis(8));
        assert!(!polling.is_worthwhile());
    }

    /// Work that the kernel has pending may turn out to complete nothing: here the rest of a payload is
    /// missing.
    #[test]
    fn a_part_of_a_payload_while_watching_does_not_outlast_the_timeout() {
        let (report, outcome) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let bell = Arc::new(WorkerBell::new().unwrap());
            let mut ring = IoRing::new(WORKER_ENTRIES, CompletionWatch::WhenWorthwhile, bell).unwrap();
            let (ours, mut theirs) = std::os::unix::net::UnixStream::pair().unwrap();
            let ours = PeerSocket::to_this_process(ours.into());
            let part = BufferPart { start: 0, length: 4096 };
            ring.receive(RingToken::Received { session: 0 }, &ours, AlignedBuffer::zeroed(4096), part, true);
            let writer = std::thread::spawn(move || {
                for _ in 0..2_000 {
                    std::io::Write::write_all(&mut theirs, &[1]).unwrap();
                    let paused = Instant::now();
                    while paused.elapsed() < Duration::from_micros(10) {
                        std::hint::spin_loop();
                    }
                }
                theirs
            });
            while !writer.is_finished() {
                ring.polling.short_waits = SHORT_WAITS;
                ring.submit_and_wait(Some(Duration::from_millis(1))).unwrap();
            }
            report.send(ring.completed().is_none()).unwrap();
        });
        assert_eq!(outcome.recv_timeout(Duration::from_secs(5)), Ok(true), "it waits for ever");
    }
}
