//! A thread that submits a volume's operations, so that a submission that waits holds only this volume.
//!
//! It has a ring of its own, and with it kernel threads of its own: the kernel shares those of a ring among
//! all volumes that the ring serves, and lets writes to files wait for each other by a hash of 64 values.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};

use rustix::event::{EventfdFlags, eventfd};

use crate::claim::VolumeFile;
use crate::directory::Door;
use crate::ring::{FileOperation, Ring, Token, Watching};
use crate::worker::Command;

/// Its frames are those of the worker's loop without the worker.
const STACK: usize = 256 * 1024;

/// Submissions before the ring is entered early: more than a pool's usual depth.
const ENTRIES: u32 = 128;

/// The handle on the thread. It ends when the handle is dropped and its last operation has completed.
#[derive(Debug)]
pub(crate) struct VolumeThread {
    operations: Option<Sender<FileOperation>>,
    wake: Arc<OwnedFd>,
}

impl VolumeThread {
    /// # Errors
    /// When the system has no thread or descriptor left.
    pub(crate) fn start(file: Arc<VolumeFile>, door: Arc<Door>) -> io::Result<Self> {
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let (sender, operations) = channel();
        let body = {
            let wake = Arc::clone(&wake);
            move || run(&file, &wake, &operations, &door)
        };
        std::thread::Builder::new().name("tg-volume".into()).stack_size(STACK).spawn(body)?;
        Ok(Self { operations: Some(sender), wake })
    }

    /// Has an operation done; its completion comes as a command.
    pub(crate) fn submit(&self, operation: FileOperation) {
        if let Some(operations) = &self.operations {
            // Invariant: the thread receives for as long as this handle is there.
            let sent = operations.send(operation);
            debug_assert!(sent.is_ok(), "a volume's thread ends after its handle");
            self.wake();
        }
    }

    fn wake(&self) {
        // A failed write means that the counter is at its limit: the thread is awake already.
        let _ = rustix::io::write(&*self.wake, &1u64.to_ne_bytes());
    }
}

impl Drop for VolumeThread {
    fn drop(&mut self) {
        self.operations = None;
        self.wake();
    }
}

/// Holds the file open: operations name it by its descriptor.
fn run(_file: &VolumeFile, wake: &OwnedFd, operations: &Receiver<FileOperation>, door: &Door) {
    let outcome = Ring::new(ENTRIES, Watching::Never).and_then(|ring| serve(ring, wake, operations, door));
    if let Err(error) = outcome {
        // What the ring holds is lost with it: only what comes from now on can be answered.
        tracing::error!("a volume's thread failed, its requests fail from now on: {error}");
        while let Ok(operation) = operations.recv() {
            let error = io::Error::from_raw_os_error(error.raw_os_error().unwrap_or(libc::EIO));
            door.send(Command::Completed(Box::new(operation.refused(error))));
        }
    }
}

fn serve(
    mut ring: Ring,
    wake: &OwnedFd,
    operations: &Receiver<FileOperation>,
    door: &Door,
) -> io::Result<()> {
    ring.wait_readable(Token::Wake, wake.as_fd());
    let mut ending = false;
    loop {
        ring.submit_and_wait(None)?;
        while let Some(completed) = ring.completed() {
            if completed.token != Token::Wake {
                // A worker that is not there any more needs no completion.
                door.send(Command::Completed(Box::new(completed)));
                continue;
            }
            // Nothing to read means a wake-up without a cause, which does no harm.
            let _ = rustix::io::read(wake, &mut [0; 8]);
            ring.wait_readable(Token::Wake, wake.as_fd());
            loop {
                match operations.try_recv() {
                    Ok(operation) => ring.file(operation),
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => {
                        ending = true;
                        break;
                    }
                }
            }
        }
        if ending && ring.outstanding() <= 1 {
            return Ok(());
        }
    }
}
