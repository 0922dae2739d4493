//! A thread that submits a volume's operations, so that a submission that waits blocks only this volume.
//!
//! It has a ring of its own, and with it kernel threads of its own: the kernel shares those of a ring among
//! all volumes that the ring serves, and lets writes to files wait for each other by a hash of 64 values.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};

use crate::bell::WorkerBell;
use crate::claim::VolumeFile;
use crate::ring::{CompletionWatch, FileAction, FileOperation, IoRing, RingToken};
use crate::worker::door::{WorkerCommand, WorkerDoor};

/// Its frames are those of the worker's loop without the worker.
const STACK: usize = 256 * 1024;

/// Submissions before the ring is entered early: more than a pool's usual depth.
const ENTRIES: u32 = 128;

/// The handle on the thread. It ends when the handle is dropped and its last operation has completed.
#[derive(Debug)]
pub(crate) struct VolumeThread {
    operations: Option<Sender<FileOperation>>,
    bell: Arc<WorkerBell>,
}

impl VolumeThread {
    /// # Errors
    /// When the system has no thread or descriptor left.
    pub(crate) fn start(file: Arc<VolumeFile>, door: Arc<WorkerDoor>) -> io::Result<Self> {
        let bell = Arc::new(WorkerBell::new()?);
        let (sender, operations) = channel();
        let body = {
            let bell = Arc::clone(&bell);
            move || run(&file, &bell, &operations, &door)
        };
        std::thread::Builder::new().name("tg-volume".into()).stack_size(STACK).spawn(body)?;
        Ok(Self { operations: Some(sender), bell })
    }

    /// Has an operation done; its completion comes as a command.
    pub(crate) fn submit(&self, operation: FileOperation) {
        if let Some(operations) = &self.operations {
            // Invariant: the thread receives for as long as this handle is there.
            let sent = operations.send(operation);
            debug_assert!(sent.is_ok(), "a volume's thread ends after its handle");
            self.bell.ring();
        }
    }
}

impl Drop for VolumeThread {
    fn drop(&mut self) {
        self.operations = None;
        self.bell.ring();
    }
}

/// Runs the thread. `file` is kept open, because operations name it by its descriptor.
fn run(file: &VolumeFile, bell: &Arc<WorkerBell>, operations: &Receiver<FileOperation>, door: &WorkerDoor) {
    let outcome = IoRing::new(ENTRIES, CompletionWatch::Never, Arc::clone(bell))
        .and_then(|ring| serve(ring, file, bell, operations, door));
    if let Err(error) = outcome {
        // What the ring holds is lost with it: only what comes from now on can be answered.
        tracing::error!("a volume's thread failed, its requests fail from now on: {error}");
        while let Ok(operation) = operations.recv() {
            let error = io::Error::from_raw_os_error(error.raw_os_error().unwrap_or(libc::EIO));
            door.send(WorkerCommand::Completed(operation.refused(error)));
        }
    }
}

fn serve(
    mut ring: IoRing,
    file: &VolumeFile,
    bell: &WorkerBell,
    operations: &Receiver<FileOperation>,
    door: &WorkerDoor,
) -> io::Result<()> {
    let mut ending = false;
    loop {
        ring.submit_and_wait(None)?;
        while let Some(completed) = ring.completed() {
            if matches!(completed.token, RingToken::Synced { .. }) {
                // Before the flush is answered. The worker must not wait for it.
                file.look_at_size();
            }
            // A worker that is not there any more needs no completion.
            door.send(WorkerCommand::Completed(completed));
        }
        if bell.take() {
            loop {
                match operations.try_recv() {
                    Ok(operation) => {
                        if is_cut_before(file, operation.action) {
                            let refused = operation.refused(io::Error::from_raw_os_error(libc::EIO));
                            door.send(WorkerCommand::Completed(refused));
                        } else {
                            ring.file(operation);
                        }
                    }
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => {
                        ending = true;
                        break;
                    }
                }
            }
        }
        if ending && ring.outstanding() == 0 {
            return Ok(());
        }
    }
}

/// Returns true if a write ends beyond the end of a volume that has shrunk. A durable one is a flush as well, before
/// which the size is looked at.
fn is_cut_before(file: &VolumeFile, action: FileAction) -> bool {
    let FileAction::Write { part, offset, durable } = action else { return false };
    if durable {
        file.look_at_size();
    }
    file.is_cut_before(offset + part.length as u64)
}
