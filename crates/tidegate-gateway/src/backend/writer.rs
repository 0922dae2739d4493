//! A thread that writes to a volume through the page cache, so that a write that waits blocks only this
//! volume's writes.
//!
//! It makes plain system calls, one after the other: file systems take one buffered write to a file at a time
//! anyway. Threads of io_uring also do them one by one, at more processor time, in a queue that 64 lists of
//! files share.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::buffer::AlignedBuffer;
use crate::claim::VolumeFile;
use crate::ring::{BufferPart, CompletedOperation, LentMemory, RingToken};
use crate::worker::door::{WorkerCommand, WorkerDoor};

/// Its frames are few.
const STACK: usize = 128 * 1024;

/// The most writes that are done before the worker is told of the first. Each message to the worker costs it
/// a turn.
///
/// Of fewer, the worker is told when half are done. While it answers, this thread does the other half, and
/// the clients send more. Told of all at once, the two take turns: half the IOPS at depth 8.
const TOGETHER: usize = 16;

/// A write that is to be done.
#[derive(Debug)]
pub(crate) struct QueuedWrite {
    pub(crate) token: RingToken,
    pub(crate) buffer: AlignedBuffer,
    pub(crate) part: BufferPart,
    pub(crate) offset: u64,
}

impl QueuedWrite {
    fn carry_out(self, file: &VolumeFile) -> CompletedOperation {
        let Self { token, buffer, part, offset } = self;
        let bytes = &buffer[part.start..part.start + part.length];
        let result = match file.is_cut_before(offset + part.length as u64) {
            true => Err(io::Error::from_raw_os_error(libc::EIO)),
            false => rustix::io::pwrite(&**file, bytes, offset).map_err(io::Error::from),
        };
        CompletedOperation { token, result, held: LentMemory::Buffer(buffer) }
    }
}

/// The writes that wait for the thread.
#[derive(Debug, Default)]
struct WriterQueue {
    waiting: Mutex<WaitingWrites>,
    filled: Condvar,
}

#[derive(Debug, Default)]
struct WaitingWrites {
    writes: Vec<QueuedWrite>,
    /// True while the thread sleeps, so that nothing is notified in vain: that costs a system call.
    asleep: bool,
    /// True once no more will come.
    over: bool,
}

impl WriterQueue {
    fn lock(&self) -> MutexGuard<'_, WaitingWrites> {
        // No code that can panic runs under this lock.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes what waits, and wakes the thread if it sleeps.
    fn change(&self, change: impl FnOnce(&mut WaitingWrites)) {
        let mut waiting = self.lock();
        change(&mut waiting);
        if std::mem::take(&mut waiting.asleep) {
            drop(waiting);
            self.filled.notify_one();
        }
    }

    /// Waits for writes and takes all. Returns false when no more will come.
    fn take(&self, taken: &mut Vec<QueuedWrite>) -> bool {
        let mut waiting = self.lock();
        while waiting.writes.is_empty() && !waiting.over {
            waiting.asleep = true;
            waiting = self.filled.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
        std::mem::swap(&mut waiting.writes, taken);
        !taken.is_empty()
    }
}

/// The handle on the thread. It ends when the handle is dropped and its last write is done.
#[derive(Debug)]
pub(crate) struct WriterThread {
    queue: Arc<WriterQueue>,
}

impl WriterThread {
    /// # Errors
    /// When the system has no thread left.
    pub(crate) fn start(file: Arc<VolumeFile>, door: Arc<WorkerDoor>) -> io::Result<Self> {
        let queue = Arc::new(WriterQueue::default());
        let body = {
            let queue = Arc::clone(&queue);
            move || run(&file, &queue, &door)
        };
        std::thread::Builder::new().name("tg-writer".into()).stack_size(STACK).spawn(body)?;
        Ok(Self { queue })
    }

    /// Has a write done; its completion comes as a command.
    pub(crate) fn submit(&self, write: QueuedWrite) {
        self.queue.change(|waiting| waiting.writes.push(write));
    }
}

impl Drop for WriterThread {
    fn drop(&mut self) {
        self.queue.change(|waiting| waiting.over = true);
    }
}

fn run(file: &VolumeFile, queue: &WriterQueue, door: &WorkerDoor) {
    let (mut taken, mut completed) = (Vec::new(), Vec::new());
    while queue.take(&mut taken) {
        let together = taken.len().div_ceil(2).min(TOGETHER);
        let mut left = taken.len();
        for write in taken.drain(..) {
            completed.push(write.carry_out(file));
            left -= 1;
            if completed.len() == together || left == 0 {
                // A worker that is not there any more needs no completion.
                door.send_all(completed.drain(..).map(WorkerCommand::Completed));
            }
        }
    }
}
