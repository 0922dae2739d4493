//! The io_uring of one worker: operations go in with the memory they use, completions come out with it.
//!
//! All memory that the kernel may touch is owned by the ring from the submission of an operation to its
//! completion. So the rest of the gateway is safe code, and a session can vanish at any moment without a buffer
//! being freed under the kernel's hands.

#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::{Duration, Instant};

use io_uring::types::{Fd, FsyncFlags, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};
use slab::Slab;

use crate::buffer::Buffer;
use crate::message::{Item, Message, Reply};
use crate::upstream::Outgoing;

/// Submissions per turn before the ring is entered early, and operations that complete at once.
const ENTRIES: u32 = 1024;

/// How long to watch for a completion before sleeping. Being woken costs a client at depth 1 about this much; who
/// waits for a disk waits much longer, and is not watched for.
const LONGEST_POLL: Duration = Duration::from_micros(50);

/// A wait shorter than this was none: the operation completed while it was submitted, as those on cached data and
/// on sockets with room do.
const NO_WAIT: Duration = Duration::from_micros(5);

/// Waits in a row that would have been worth watching for before watching begins.
const SHORT_WAITS: u32 = 4;

/// Whether completions come so soon that watching for them is cheaper than sleeping: after a few short waits in a
/// row, until the first long one.
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

/// What an operation is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Token {
    /// The worker is woken: commands wait.
    Wake,
    /// Bytes of a session's client arrived.
    Received { session: usize },
    /// A part of a session's replies is on its way.
    Sent { session: usize },
    /// The backend did something for a request.
    Request { request: usize },
    /// An export's data is on stable storage.
    Synced { export: usize },
    /// Bytes of an export's upstream arrived on one of its connections.
    UpstreamReceived { export: usize, link: usize },
    /// A part of the requests to an export's upstream is on its way.
    UpstreamSent { export: usize, link: usize },
}

/// An operation is done.
#[derive(Debug)]
pub(crate) struct Completed {
    pub(crate) token: Token,
    pub(crate) result: io::Result<usize>,
    /// The memory that was lent.
    pub(crate) held: Held,
}

/// Memory lent to an operation.
#[derive(Debug)]
pub(crate) enum Held {
    Nothing,
    Buffer(Buffer),
    Replies(Box<Message<Reply>>),
    Requests(Box<Message<Outgoing>>),
}

impl From<Box<Message<Reply>>> for Held {
    fn from(message: Box<Message<Reply>>) -> Self {
        Self::Replies(message)
    }
}

impl From<Box<Message<Outgoing>>> for Held {
    fn from(message: Box<Message<Outgoing>>) -> Self {
        Self::Requests(message)
    }
}

#[derive(Debug)]
struct Operation {
    token: Token,
    held: Held,
}

pub(crate) struct Ring {
    uring: IoUring,
    polling: Polling,
    operations: Slab<Operation>,
    /// Completions taken out of the kernel's queue before their turn.
    early: VecDeque<cqueue::Entry>,
}

/// A part of a buffer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part {
    pub(crate) start: usize,
    pub(crate) length: usize,
}

impl Ring {
    /// A ring for the calling thread alone.
    ///
    /// # Errors
    /// When the kernel gives none.
    pub(crate) fn new() -> io::Result<Self> {
        let uring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            // Shows pending work in shared memory, so that polling needs no system call.
            .setup_taskrun_flag()
            .setup_submit_all()
            .setup_cqsize(4 * ENTRIES)
            .build(ENTRIES)
            // Kernels before 6.1 know neither of the first two.
            .or_else(|_| IoUring::builder().setup_cqsize(4 * ENTRIES).build(ENTRIES))?;
        if !uring.params().is_feature_ext_arg() || !uring.params().is_feature_nodrop() {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "io_uring of Linux 5.11 or later is needed",
            ));
        }
        // Saves a lookup per entry into the kernel; kernels before 5.18 refuse, and go without.
        let _ = uring.submitter().register_ring_fd();
        Ok(Self { uring, polling: Polling::default(), operations: Slab::new(), early: VecDeque::new() })
    }

    /// Operations that have not completed.
    pub(crate) fn outstanding(&self) -> usize {
        self.operations.len()
    }

    /// Submits what was asked for and waits for a completion, at most until `timeout`; zero does not wait.
    ///
    /// # Errors
    /// When the kernel refuses for another reason than time or a signal.
    pub(crate) fn submit_and_wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let submitted = if !self.early.is_empty() || !self.uring.completion().is_empty() {
            self.uring.submit()
        } else if timeout != Some(Duration::ZERO) && self.polling.is_worthwhile() {
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
                // Runs what the kernel has pending. It must not wait for a completion: what was pending may have
                // been a part of a payload, which completes nothing.
                self.uring.submit()?;
            }
            if !self.uring.completion().is_empty() {
                break Ok(0);
            }
            if began.elapsed() >= patience {
                break self.wait(timeout.map(|timeout| timeout.saturating_sub(patience)));
            }
            std::hint::spin_loop();
        };
        self.polling.waited(began.elapsed());
        submitted
    }

    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<usize> {
        match timeout {
            Some(timeout) => {
                let timespec = Timespec::from(timeout);
                self.uring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&timespec))
            }
            None => self.uring.submit_and_wait(1),
        }
    }

    /// The next completion that has arrived.
    pub(crate) fn completed(&mut self) -> Option<Completed> {
        let entry = self.early.pop_front().or_else(|| self.uring.completion().next())?;
        // Invariant: `submit` made this key, and each operation here completes exactly once (none is multishot).
        let operation = self.operations.remove(entry.user_data() as usize);
        let result = match entry.result() {
            count if count >= 0 => Ok(count as usize),
            error => Err(io::Error::from_raw_os_error(-error)),
        };
        Some(Completed { token: operation.token, result, held: operation.held })
    }

    /// Waits until the eventfd is written to.
    pub(crate) fn wait_readable(&mut self, token: Token, fd: BorrowedFd<'_>) {
        let entry = opcode::PollAdd::new(Fd(fd.as_raw_fd()), libc::POLLIN as u32).build();
        self.submit(token, entry, Held::Nothing);
    }

    /// Receives into a part of the buffer: at least one byte, or all of it when `whole`.
    pub(crate) fn receive(
        &mut self,
        token: Token,
        fd: BorrowedFd<'_>,
        mut buffer: Buffer,
        part: Part,
        whole: bool,
    ) {
        let (memory, length) = window(&mut buffer, part);
        let flags = if whole { libc::MSG_WAITALL } else { 0 };
        let entry = opcode::Recv::new(Fd(fd.as_raw_fd()), memory, length).flags(flags).build();
        self.submit(token, entry, Held::Buffer(buffer));
    }

    /// Sends what is left of a message, or a part of that.
    pub(crate) fn send<I: Item>(&mut self, token: Token, fd: BorrowedFd<'_>, mut message: Box<Message<I>>)
    where
        Held: From<Box<Message<I>>>,
    {
        let header = message.prepare();
        // Without MSG_WAITALL: a send that the socket's buffer cuts short completes, and shows that the client
        // takes its replies, however slowly.
        let flags = libc::MSG_NOSIGNAL as u32;
        let entry = opcode::SendMsg::new(Fd(fd.as_raw_fd()), header).flags(flags).build();
        self.submit(token, entry, message.into());
    }

    /// Reads into a part of the buffer.
    pub(crate) fn read(
        &mut self,
        token: Token,
        fd: BorrowedFd<'_>,
        mut buffer: Buffer,
        part: Part,
        offset: u64,
    ) {
        let (memory, length) = window(&mut buffer, part);
        let entry = opcode::Read::new(Fd(fd.as_raw_fd()), memory, length).offset(offset).build();
        self.submit(token, entry, Held::Buffer(buffer));
    }

    /// Writes a part of the buffer; with `durable` it completes once the data is on stable storage.
    pub(crate) fn write(
        &mut self,
        token: Token,
        fd: BorrowedFd<'_>,
        mut buffer: Buffer,
        part: Part,
        offset: u64,
        durable: bool,
    ) {
        let (memory, length) = window(&mut buffer, part);
        let entry = opcode::Write::new(Fd(fd.as_raw_fd()), memory, length)
            .offset(offset)
            .rw_flags(if durable { libc::RWF_DSYNC } else { 0 })
            .build();
        self.submit(token, entry, Held::Buffer(buffer));
    }

    /// Brings all written data, and what is needed to find it, to stable storage.
    pub(crate) fn sync(&mut self, token: Token, fd: BorrowedFd<'_>) {
        let entry = opcode::Fsync::new(Fd(fd.as_raw_fd())).flags(FsyncFlags::DATASYNC).build();
        self.submit(token, entry, Held::Nothing);
    }

    /// Changes a range's allocation; see fallocate(2) for the mode.
    pub(crate) fn allocate(&mut self, token: Token, fd: BorrowedFd<'_>, mode: i32, offset: u64, length: u64) {
        let entry = opcode::Fallocate::new(Fd(fd.as_raw_fd()), length).offset(offset).mode(mode).build();
        self.submit(token, entry, Held::Nothing);
    }

    fn submit(&mut self, token: Token, entry: squeue::Entry, held: Held) {
        let key = self.operations.insert(Operation { token, held });
        let entry = entry.user_data(key as u64);
        loop {
            // SAFETY: the entry points only into `held`, which `operations` owns until the completion. Moving a
            // Buffer or a Box does not move the memory it owns. The descriptor is borrowed from its owner now; the
            // kernel takes its own reference in `submit_and_wait`, before the owner can close it: sessions and
            // exports are dropped only when none of their operations is outstanding.
            if unsafe { self.uring.submission().push(&entry) }.is_ok() {
                return;
            }
            // The queue is full: hand it over. The kernel may want its completions to be taken first; a lasting
            // error is reported by `submit_and_wait`, since the entries stay where they are.
            let _ = self.uring.submit();
            self.early.extend(self.uring.completion());
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // Closing a ring does not wait for its operations. What the kernel may still write to is never freed.
        if self.operations.iter().any(|(_, operation)| !matches!(operation.held, Held::Nothing)) {
            std::mem::forget(std::mem::take(&mut self.operations));
        }
    }
}

/// The memory of a part, with bounds checked.
fn window(buffer: &mut Buffer, part: Part) -> (*mut u8, u32) {
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
    use std::os::fd::AsFd;

    use super::*;

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

    /// Work that the kernel has pending may turn out to complete nothing: here the rest of a payload is missing.
    #[test]
    fn a_part_of_a_payload_while_watching_does_not_outlast_the_timeout() {
        let (report, outcome) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let mut ring = Ring::new().unwrap();
            let (ours, mut theirs) = std::os::unix::net::UnixStream::pair().unwrap();
            let part = Part { start: 0, length: 4096 };
            ring.receive(Token::Received { session: 0 }, ours.as_fd(), Buffer::zeroed(4096), part, true);
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
