//! The ring of a simulated worker: it keeps operations, and the world decides when each completes, and how.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use slab::Slab;
use tidegate_sockets::aside::PeerSocket;
use tidegate_ublk::RingCommand;
use tidegate_vhost::EventDescriptor;

use crate::bell::WorkerBell;
use crate::buffer::AlignedBuffer;
use crate::message::{MessageItem, ReplyMessage};
use crate::ring::{
    BufferPart, CompletedOperation, CompletionWatch, FileAction, FileOperation, IoRing, LentMemory, RingToken,
};

/// The ring of a pool's worker in tests: the kernel's, or a simulated one.
pub(crate) enum WorkerRing {
    Kernel(Box<IoRing>),
    Simulated(SimulatedRing),
}

/// Operations of one simulated worker.
#[derive(Default)]
pub(crate) struct SimulatedRing {
    pub(super) operations: Slab<SimulatedOperation>,
    /// Operations that the world has not seen, in the order of their submission.
    pub(super) fresh: Vec<usize>,
    pub(super) completed: VecDeque<CompletedOperation>,
    /// Exports whose upstream is to be connected to.
    pub(super) connects: Vec<u64>,
}

/// An operation that has not completed.
#[derive(Debug)]
pub(super) struct SimulatedOperation {
    pub(super) token: RingToken,
    pub(super) fd: RawFd,
    pub(super) action: SimulatedAction,
    pub(super) held: LentMemory,
    /// Bytes moved so far.
    pub(super) moved: usize,
    /// The result, once the operation was carried out.
    pub(super) result: Option<io::Result<usize>>,
    /// An event of the world is about it.
    pub(super) scheduled: bool,
    /// The state of the disk when it was submitted.
    pub(super) stamp: u64,
}

#[derive(Debug)]
pub(super) enum SimulatedAction {
    Receive {
        part: BufferPart,
        whole: bool,
    },
    /// The bytes that are left of a message.
    Send(Vec<u8>),
    File(FileAction),
}

impl SimulatedOperation {
    pub(super) fn is_on_socket(&self) -> bool {
        !matches!(self.action, SimulatedAction::File(_))
    }
}

impl SimulatedRing {
    fn submit(&mut self, token: RingToken, fd: RawFd, action: SimulatedAction, held: LentMemory) {
        let operation = SimulatedOperation {
            token,
            fd,
            action,
            held,
            moved: 0,
            result: None,
            scheduled: false,
            stamp: 0,
        };
        self.fresh.push(self.operations.insert(operation));
    }

    fn cancel(&mut self, token: RingToken) {
        let waiting = self.operations.iter().find(|(_, operation)| operation.token == token);
        let Some((key, moved)) = waiting.map(|(key, operation)| (key, operation.moved)) else { return };
        let cancelled = || io::Error::from_raw_os_error(libc::ECANCELED);
        self.fresh.retain(|fresh| *fresh != key);
        self.complete(key, if moved > 0 { Ok(moved) } else { Err(cancelled()) });
    }

    /// Gives an operation back to the worker.
    pub(super) fn complete(&mut self, key: usize, result: io::Result<usize>) {
        let SimulatedOperation { token, held, .. } = self.operations.remove(key);
        self.completed.push_back(CompletedOperation { token, result, held });
    }
}

impl WorkerRing {
    pub(crate) fn new(entries: u32, watching: CompletionWatch, bell: Arc<WorkerBell>) -> io::Result<Self> {
        if super::is_simulated() {
            return Ok(Self::Simulated(SimulatedRing::default()));
        }
        Ok(Self::Kernel(Box::new(IoRing::new(entries, watching, bell)?)))
    }

    /// Returns true if the world connects to an export's upstream, in the place of a thread.
    pub(crate) fn connects(&mut self, export: u64) -> bool {
        match self {
            Self::Kernel(_) => false,
            Self::Simulated(ring) => {
                ring.connects.push(export);
                true
            }
        }
    }

    pub(crate) fn outstanding(&self) -> usize {
        match self {
            Self::Kernel(ring) => ring.outstanding(),
            Self::Simulated(ring) => ring.operations.len() + ring.completed.len(),
        }
    }

    /// Simulated operations count as large ones, so that turns end with work left.
    pub(crate) fn copying(&self) -> usize {
        match self {
            Self::Kernel(ring) => ring.copying(),
            Self::Simulated(ring) => ring.fresh.len() << 20,
        }
    }

    pub(crate) fn largest_copy(&self) -> usize {
        match self {
            Self::Kernel(ring) => ring.largest_copy(),
            Self::Simulated(_) => 1 << 20,
        }
    }

    pub(crate) fn copy_in_pieces(&mut self, in_pieces: bool) {
        if let Self::Kernel(ring) = self {
            ring.copy_in_pieces(in_pieces);
        }
    }

    pub(crate) fn submit_now(&mut self) {
        if let Self::Kernel(ring) = self {
            ring.submit_now();
        }
    }

    /// No simulated gateway has devices of its host.
    pub(crate) fn command(&mut self, token: RingToken, channel: BorrowedFd<'_>, command: RingCommand) {
        match self {
            Self::Kernel(ring) => ring.command(token, channel, command),
            Self::Simulated(_) => unreachable!("{token:?} is of a device"),
        }
    }

    pub(crate) fn submit_and_wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        match self {
            Self::Kernel(ring) => ring.submit_and_wait(timeout),
            Self::Simulated(_) => unreachable!("the world waits"),
        }
    }

    pub(crate) fn completed(&mut self) -> Option<CompletedOperation> {
        match self {
            Self::Kernel(ring) => ring.completed(),
            Self::Simulated(ring) => ring.completed.pop_front(),
        }
    }

    pub(crate) fn receive(
        &mut self,
        token: RingToken,
        socket: &PeerSocket,
        buffer: AlignedBuffer,
        part: BufferPart,
        whole: bool,
    ) {
        match self {
            Self::Kernel(ring) => ring.receive(token, socket, buffer, part, whole),
            Self::Simulated(ring) => {
                let action = SimulatedAction::Receive { part, whole };
                ring.submit(token, socket.as_raw_fd(), action, LentMemory::Buffer(buffer));
            }
        }
    }

    pub(crate) fn send<I: MessageItem>(
        &mut self,
        token: RingToken,
        fd: BorrowedFd<'_>,
        message: Box<ReplyMessage<I>>,
    ) where
        LentMemory: From<Box<ReplyMessage<I>>>,
    {
        match self {
            Self::Kernel(ring) => ring.send(token, fd, message),
            Self::Simulated(ring) => {
                let action = SimulatedAction::Send(message.unsent());
                ring.submit(token, fd.as_raw_fd(), action, message.into());
            }
        }
    }

    pub(crate) fn file(&mut self, operation: FileOperation) {
        match self {
            Self::Kernel(ring) => ring.file(operation),
            Self::Simulated(ring) => {
                let FileOperation { token, fd, action, held } = operation;
                ring.submit(token, fd, SimulatedAction::File(action), held);
            }
        }
    }

    pub(crate) fn watch(&mut self, token: RingToken, event: Arc<EventDescriptor>) {
        self.kernel().watch(token, event);
    }

    pub(crate) fn cancel(&mut self, token: RingToken) {
        match self {
            Self::Kernel(ring) => ring.cancel(token),
            Self::Simulated(ring) => ring.cancel(token),
        }
    }

    pub(crate) fn signal(&mut self, token: RingToken, event: Arc<EventDescriptor>) {
        self.kernel().signal(token, event);
    }

    fn kernel(&mut self) -> &mut IoRing {
        match self {
            Self::Kernel(ring) => ring,
            Self::Simulated(_) => unreachable!("no virtual machine is simulated"),
        }
    }

    pub(super) fn simulated(&mut self) -> &mut SimulatedRing {
        match self {
            Self::Simulated(ring) => ring,
            Self::Kernel(_) => unreachable!("a simulated worker has a simulated ring"),
        }
    }
}
