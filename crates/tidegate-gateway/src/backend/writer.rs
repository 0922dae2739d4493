//! A thread that writes to a volume through the page cache, so that a write that waits blocks only this
//! volume's writes.
//!
//! It makes plain system calls, one after the other: file systems take one buffered write to a file at a time
//! anyway. Threads of io_uring also do them one by one, at more processor time, in a queue that 64 lists of
//! files share.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use crate::buffer::AlignedBuffer;
use crate::claim::VolumeFile;
use crate::ring::{BufferPart, CompletedOperation, LentMemory, RingToken};
use crate::worker::door::{WorkerCommand, WorkerDoor};

/// Its frames are few.
const STACK: usize = 128 * 1024;

/// The number of waiting writes that are done before the worker is told of the first. Each message to the
/// worker costs it a turn. Few, so that clients have their answers in time to send more (measured: 1 and 25
/// are slower).
const TOGETHER: usize = 8;

/// A write that is to be done.
#[derive(Debug)]
pub(crate) struct QueuedWrite {
    pub(crate) token: RingToken,
    pub(crate) buffer: AlignedBuffer,
    pub(crate) part: BufferPart,
    pub(crate) offset: u64,
}

impl QueuedWrite {
    fn carry_out(self, file: &File) -> CompletedOperation {
        let Self { token, buffer, part, offset } = self;
        let bytes = &buffer[part.start..part.start + part.length];
        let result = rustix::io::pwrite(file, bytes, offset).map_err(io::Error::from);
        CompletedOperation { token, result, held: LentMemory::Buffer(buffer) }
    }
}

/// The handle on the thread. It ends when the handle is dropped and its last write is done.
#[derive(Debug)]
pub(crate) struct WriterThread {
    writes: Sender<QueuedWrite>,
}

impl WriterThread {
    /// # Errors
    /// When the system has no thread left.
    pub(crate) fn start(file: Arc<VolumeFile>, door: Arc<WorkerDoor>) -> io::Result<Self> {
        let (sender, writes) = channel();
        let body = move || run(&file, &writes, &door);
        std::thread::Builder::new().name("tg-writer".into()).stack_size(STACK).spawn(body)?;
        Ok(Self { writes: sender })
    }

    /// Has a write done; its completion comes as a command.
    pub(crate) fn submit(&self, write: QueuedWrite) {
        // Invariant: the thread receives for as long as this handle is there.
        let sent = self.writes.send(write);
        debug_assert!(sent.is_ok(), "a writer ends after its handle");
    }
}

fn run(file: &File, writes: &Receiver<QueuedWrite>, door: &WorkerDoor) {
    let mut completed = Vec::with_capacity(TOGETHER);
    while let Ok(write) = writes.recv() {
        completed.push(write.carry_out(file));
        while completed.len() < TOGETHER
            && let Ok(write) = writes.try_recv()
        {
            completed.push(write.carry_out(file));
        }
        // A worker that is not there any more needs no completion.
        door.send_all(completed.drain(..).map(WorkerCommand::Completed));
    }
}
