//! The allocation of files: the places of their data, as lseek(2) tells them, and a thread that asks.
//!
//! A file system may have to read its metadata to answer. So a volume has a thread of plain system calls for
//! it, beside those that move data: a long answer keeps no read waiting.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;
use tidegate_nbd::{AllocationMap, AllocationState};

use crate::claim::VolumeFile;
use crate::ring::{CompletedOperation, LentMemory, RingToken};
use crate::worker::door::{WorkerCommand, WorkerDoor};

/// Its frames are few.
const STACK: usize = 128 * 1024;

/// A range of a file whose allocation is to be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MappedRange {
    pub(crate) offset: u64,
    pub(crate) length: u64,
    /// One extent is enough.
    pub(crate) one: bool,
    /// The blocks that clients know: extents consist of whole ones. A power of two.
    pub(crate) block: u32,
}

impl MappedRange {
    /// An empty answer.
    pub(crate) fn map(&self) -> AllocationMap {
        AllocationMap::new(self.length, self.one)
    }

    /// Returns the answer that is always true: all of it may hold data.
    pub(crate) fn all_data(&self) -> AllocationMap {
        let mut map = self.map();
        map.push(self.length, AllocationState::DATA);
        map
    }

    /// Asks the file system. A block device, and a file system that cannot tell, has data everywhere.
    ///
    /// # Errors
    /// When the file system fails before it has told anything.
    pub(crate) fn ask(&self, file: &File) -> io::Result<AllocationMap> {
        let (mut map, end, block) = (self.map(), self.offset + self.length, u64::from(self.block));
        let mut at = self.offset;
        while at < end && !map.is_full() {
            let data = match seek(file, SeekFrom::Data(at)) {
                Ok(data) => data,
                // No data follows: a hole up to the end of the file, which may have been cut meanwhile.
                Err(Errno::NXIO) => {
                    let size = seek(file, SeekFrom::End(0))?.clamp(at, end);
                    map.push(size - at, AllocationState::HOLE);
                    map.push(end - size, AllocationState::DATA);
                    break;
                }
                Err(Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(self.all_data()),
                Err(error) if map.covered() == 0 => return Err(error.into()),
                Err(_) => break,
            };
            let start = (data / block * block).clamp(at, end);
            map.push(start - at, AllocationState::HOLE);
            if start == end || !map.has_room() {
                break;
            }
            match seek(file, SeekFrom::Hole(data)) {
                // An answer that does not lead on is none: a character device gives it.
                Ok(hole) if hole <= start => return Ok(self.all_data()),
                Ok(hole) => {
                    at = hole.next_multiple_of(block).min(end);
                    map.push(at - start, AllocationState::DATA);
                }
                Err(error) if map.covered() == 0 => return Err(error.into()),
                Err(_) => break,
            }
        }
        Ok(map)
    }
}

/// A question that waits for the thread.
#[derive(Debug)]
struct QueuedQuestion {
    token: RingToken,
    range: MappedRange,
}

/// The handle on the thread. It ends when the handle is dropped and its last question is answered.
#[derive(Debug)]
pub(crate) struct MappingThread {
    questions: Sender<QueuedQuestion>,
}

impl MappingThread {
    /// # Errors
    /// When the system has no thread left.
    pub(crate) fn start(file: Arc<VolumeFile>, door: Arc<WorkerDoor>) -> io::Result<Self> {
        let (sender, questions) = channel();
        let body = move || run(&file, &questions, &door);
        std::thread::Builder::new().name("tg-mapping".into()).stack_size(STACK).spawn(body)?;
        Ok(Self { questions: sender })
    }

    /// Has a question asked; its answer comes as a command.
    pub(crate) fn submit(&self, token: RingToken, range: MappedRange) {
        // Invariant: the thread receives for as long as this handle is there.
        let sent = self.questions.send(QueuedQuestion { token, range });
        debug_assert!(sent.is_ok(), "a thread ends after its handle");
    }
}

/// An answer as a completed operation.
pub(crate) fn answered(token: RingToken, answer: io::Result<AllocationMap>) -> CompletedOperation {
    match answer {
        Ok(map) => CompletedOperation { token, result: Ok(0), held: LentMemory::Allocation(Box::new(map)) },
        Err(error) => CompletedOperation { token, result: Err(error), held: LentMemory::Nothing },
    }
}

fn run(file: &File, questions: &Receiver<QueuedQuestion>, door: &WorkerDoor) {
    while let Ok(QueuedQuestion { token, range }) = questions.recv() {
        // A worker that is not there any more needs no answer.
        door.send(WorkerCommand::Completed(answered(token, range.ask(file))));
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    const MIB: u64 = 1 << 20;

    /// A file of 8 MiB with data in the second and the sixth.
    fn sparse() -> File {
        let file = tempfile::tempfile().unwrap();
        file.set_len(8 * MIB).unwrap();
        for at in [MIB, 5 * MIB] {
            file.write_all_at(&vec![1; MIB as usize], at).unwrap();
        }
        file
    }

    fn told(file: &File, range: MappedRange) -> Vec<(u64, bool)> {
        let map = range.ask(file).unwrap();
        map.extents().iter().map(|extent| (extent.length, extent.state.hole)).collect()
    }

    #[test]
    fn a_sparse_file_has_its_holes() {
        let (file, range) = (sparse(), MappedRange { offset: 0, length: 8 * MIB, one: false, block: 1 });
        let holes = [(MIB, true), (MIB, false), (3 * MIB, true), (MIB, false), (2 * MIB, true)];
        assert_eq!(told(&file, range), holes);
        assert_eq!(told(&file, MappedRange { one: true, ..range }), holes[..1]);
        let within = MappedRange { offset: MIB + 7, length: MIB, ..range };
        assert_eq!(told(&file, within), [(MIB - 7, false), (7, true)]);
        assert_eq!(told(&file, MappedRange { one: true, ..within }), [(MIB - 7, false)]);
    }

    #[test]
    fn extents_are_whole_blocks() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(8 * MIB).unwrap();
        file.write_all_at(&[1; 4096], MIB + 4096).unwrap();
        let range = MappedRange { offset: 0, length: 8 * MIB, one: false, block: 65_536 };
        assert_eq!(told(&file, range), [(MIB, true), (65_536, false), (7 * MIB - 65_536, true)]);
        let early = MappedRange { length: MIB, ..range };
        assert_eq!(told(&file, early), [(MIB, true)]);
    }

    /// Bytes beyond the end cannot be read, so they are no hole that reads as zeroes.
    #[test]
    fn a_file_that_was_cut_has_no_hole_beyond_its_end() {
        let file = sparse();
        file.set_len(4 * MIB).unwrap();
        let range = MappedRange { offset: 3 * MIB, length: 5 * MIB, one: false, block: 1 };
        assert_eq!(told(&file, range), [(MIB, true), (4 * MIB, false)]);
        assert_eq!(told(&file, MappedRange { offset: 6 * MIB, length: MIB, ..range }), [(MIB, false)]);
    }

    #[test]
    fn what_is_no_file_with_holes_is_data() {
        let (reader, _writer) = std::io::pipe().unwrap();
        let pipe = File::from(std::os::fd::OwnedFd::from(reader));
        let range = MappedRange { offset: 0, length: MIB, one: false, block: 1 };
        assert!(range.ask(&pipe).is_err(), "a failure that says nothing of holes");
        let null = File::open("/dev/null").unwrap();
        assert_eq!(told(&null, range), [(MIB, false)]);
    }
}
