//! The way of a volume's operations to the kernel. Operations that cannot wait go through the worker's own
//! ring, all others through threads of the volume.
//!
//! The worker's ring is the fast way: a read from the page cache takes 2 µs by it and 11 µs by a thread
//! (measured, ext4). But a submission that waits makes everything in the pool wait. A file system that asks a
//! server can make it wait, or a local one that needs metadata from a silent device. So can a lock that a
//! waiting write holds. So the ring takes
//!
//! - reads of what the page cache holds, which the kernel refuses rather than begin any input or output;
//! - direct I/O of a volume that has just completed something, which the kernel begins without waiting,
//!   except for a file's metadata that has left memory;
//! - syncs, which the kernel gives to threads of its own at once;
//! - everything on a volume that is in memory.
//!
//! Writes through the page cache have a thread of plain system calls ([`WriterThread`]). All other operations
//! have a thread with a ring of its own ([`VolumeThread`]). Questions about holes have a third one
//! ([`MappingThread`]).

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tidegate_nbd::CheckedOperation;
use tidegate_units::Instant;
use tracing::warn;

use super::file::{FileVolume, ImmediateStart};
use super::mapping::{MappedRange, MappingThread, answered};
use super::volume_thread::VolumeThread;
use super::writer::{QueuedWrite, WriterThread};
use crate::buffer::AlignedBuffer;
use crate::request::SyncRange;
use crate::ring::{BufferPart, FileOperation, RingToken, WorkerRing};
use crate::worker::door::{WorkerCommand, WorkerDoor};

/// The time after a volume's last completion during which the worker submits direct I/O: the volume answers.
/// Operations after a pause or a silence go by the thread, until one completes. Chosen above a healthy disk's
/// response, and so that the thread's 10 µs are little beside it.
const TRUSTED: Duration = Duration::from_millis(20);

/// The least silence that counts as a stall: half of the time in which other exports must be answered (50
/// ms).
const LEAST_STALL: Duration = Duration::from_millis(25);

/// A silence this many times as long as the longest lately is a stall: chosen so that a disk whose requests
/// take twice as long as usual is none.
const STALL_RATIO: u32 = 4;

/// The longest silence that is remembered, so that a stall of minutes does not hide the next one.
const LONGEST_REMEMBERED: Duration = Duration::from_secs(1);

/// A volume that has completed nothing for this long hangs. Above what a disk's own error recovery usually
/// takes.
const HANG: Duration = Duration::from_secs(5);

/// The length of a volume's silence, in relation to the silences that are usual for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum VolumeSilence {
    None,
    /// For longer than usual.
    Stalled,
    /// For so long that nothing is expected of it.
    Hung,
}

/// The time between completions while something is outstanding.
#[derive(Debug, Default)]
struct Pulse {
    outstanding: usize,
    /// The last completion.
    completed: Option<Instant>,
    /// The last completion, or the first submission after a pause.
    since: Instant,
    /// The longest silence lately; forgotten by a sixteenth with each completion.
    longest: Duration,
}

impl Pulse {
    fn submitted(&mut self, now: Instant) {
        if self.outstanding == 0 {
            self.since = now;
        }
        self.outstanding += 1;
    }

    fn completed(&mut self, now: Instant) {
        let silence = self.silent_for(now).min(LONGEST_REMEMBERED);
        self.longest = silence.max(self.longest - self.longest / 16);
        self.outstanding -= 1;
        self.since = now;
        self.completed = Some(now);
    }

    /// Returns true if an operation has completed just now.
    fn is_trusted(&self, now: Instant) -> bool {
        self.completed.is_some_and(|at| now.saturating_since(at) < TRUSTED)
    }

    fn silent_for(&self, now: Instant) -> Duration {
        if self.outstanding == 0 { Duration::ZERO } else { now.saturating_since(self.since) }
    }

    fn silence(&self, now: Instant) -> VolumeSilence {
        let silent = self.silent_for(now);
        if silent >= HANG {
            VolumeSilence::Hung
        } else if silent >= LEAST_STALL.max(STALL_RATIO * self.longest) {
            VolumeSilence::Stalled
        } else {
            VolumeSilence::None
        }
    }
}

/// The way of one volume's operations.
#[derive(Debug, Default)]
pub(crate) struct SubmissionPath {
    thread: Option<VolumeThread>,
    writer: Option<WriterThread>,
    mapping: Option<MappingThread>,
    /// All operations on the storage: they decide about the way.
    pulse: Pulse,
    /// One for reads and one for changes. They decide about the silence, each by itself. Changes may complete
    /// in the page cache while the device behind it is silent. Syncs do not count, since they take seconds on
    /// a healthy disk that has much to write.
    requests: [Pulse; 2],
}

/// Kinds of operations that a volume takes unlike times for. The silence of a volume is that of the first
/// two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum VolumeOperation {
    Read,
    Change,
    Sync,
}

impl VolumeOperation {
    /// The kind of a request's operations, apart from its sync.
    pub(crate) fn of(operation: &CheckedOperation) -> Self {
        match operation {
            CheckedOperation::Read { .. }
            | CheckedOperation::Cache { .. }
            | CheckedOperation::BlockStatus { .. } => Self::Read,
            CheckedOperation::Flush => Self::Sync,
            _ => Self::Change,
        }
    }
}

impl SubmissionPath {
    /// Returns the volume's silence: that of its reads or of its changes, whichever is worse.
    pub(crate) fn silence(&self, now: Instant) -> VolumeSilence {
        let [reads, changes] = &self.requests;
        reads.silence(now).max(changes.silence(now))
    }

    /// Returns the time for which no read, or no change, has completed, whichever is longer.
    pub(crate) fn silent_for(&self, now: Instant) -> Duration {
        let [reads, changes] = &self.requests;
        reads.silent_for(now).max(changes.silent_for(now))
    }

    /// Operations on the storage that have not completed.
    pub(crate) fn outstanding(&self) -> usize {
        self.pulse.outstanding
    }

    /// An operation on the storage has completed.
    pub(crate) fn completed(&mut self, kind: VolumeOperation, now: Instant) {
        self.pulse.completed(now);
        match self.requests.get_mut(kind as usize) {
            Some(requests) => requests.completed(now),
            // A sign of life for both.
            None => self.requests.iter_mut().for_each(|pulse| pulse.since = now),
        }
    }

    fn submitted(&mut self, kind: VolumeOperation, now: Instant) {
        self.pulse.submitted(now);
        if let Some(requests) = self.requests.get_mut(kind as usize) {
            requests.submitted(now);
        }
    }
}

/// The things that a file volume needs to begin operations.
pub(crate) struct FileRing<'a> {
    pub(crate) ring: &'a mut WorkerRing,
    pub(crate) path: &'a mut SubmissionPath,
    pub(crate) door: &'a Arc<WorkerDoor>,
    pub(crate) now: Instant,
}

impl FileRing<'_> {
    /// Reads into a part of the buffer. Where the page cache can be asked by itself, it is: the token is
    /// [`RingToken::Cached`] then, and the result may be that the data is not there.
    pub(crate) fn read(
        &mut self,
        request: usize,
        file: &FileVolume,
        buffer: AlignedBuffer,
        part: BufferPart,
        offset: u64,
    ) {
        if file.beginning() == ImmediateStart::Cached {
            let token = RingToken::Cached { request };
            self.ring.file(FileOperation::read_cached(token, file.fd(), buffer, part, offset));
        } else {
            self.read_storage(request, VolumeOperation::Read, file, buffer, part, offset);
        }
    }

    /// Reads into a part of the buffer what the page cache does not hold, for a request of this kind.
    pub(crate) fn read_storage(
        &mut self,
        request: usize,
        kind: VolumeOperation,
        file: &FileVolume,
        buffer: AlignedBuffer,
        part: BufferPart,
        offset: u64,
    ) {
        let read = FileOperation::read(RingToken::Request { request }, file.fd(), buffer, part, offset);
        let here = self.transfers_here(file);
        self.submit(file, kind, read, here);
    }

    /// Writes a part of the buffer; with `durable` it completes once the data is on stable storage.
    pub(crate) fn write(
        &mut self,
        request: usize,
        file: &FileVolume,
        buffer: AlignedBuffer,
        part: BufferPart,
        offset: u64,
        durable: bool,
    ) {
        let token = RingToken::Request { request };
        if file.beginning() == ImmediateStart::Cached
            && let Some(writer) = self.writer(file)
        {
            writer.submit(QueuedWrite { token, buffer, part, offset });
            self.path.submitted(VolumeOperation::Change, self.now);
            return;
        }
        let write = FileOperation::write(token, file.fd(), buffer, part, offset, durable);
        let here = self.transfers_here(file);
        self.submit(file, VolumeOperation::Change, write, here);
    }

    /// Brings the written data of a range, and what is needed to find it, to stable storage.
    pub(crate) fn sync(&mut self, token: RingToken, file: &FileVolume, range: SyncRange) {
        // The kernel has a thread of its own for each sync. There is one at a time for a volume.
        let here = file.beginning() != ImmediateStart::MayWait;
        self.submit(file, VolumeOperation::Sync, FileOperation::sync(token, file.fd(), range), here);
    }

    /// Changes a range's allocation; see fallocate(2) for the mode.
    pub(crate) fn allocate(
        &mut self,
        token: RingToken,
        file: &FileVolume,
        mode: i32,
        offset: u64,
        length: u64,
    ) {
        let allocate = FileOperation::allocate(token, file.fd(), mode, offset, length);
        let here = file.beginning() == ImmediateStart::AtOnce;
        self.submit(file, VolumeOperation::Change, allocate, here);
    }

    /// Asks for a range's allocation.
    pub(crate) fn allocation(&mut self, request: usize, file: &FileVolume, range: MappedRange) {
        let token = RingToken::Request { request };
        self.path.submitted(VolumeOperation::Read, self.now);
        if self.path.mapping.is_none() {
            self.path.mapping = started(MappingThread::start(file.file(), Arc::clone(self.door)));
        }
        match &self.path.mapping {
            Some(thread) => thread.submit(token, range),
            None => {
                let all_data = answered(token, Ok(range.all_data()));
                self.door.send(WorkerCommand::Completed(all_data));
            }
        }
    }

    /// Returns true if reads and writes go by the worker's ring.
    fn transfers_here(&self, file: &FileVolume) -> bool {
        match file.beginning() {
            ImmediateStart::AtOnce => true,
            ImmediateStart::Direct => self.path.pulse.is_trusted(self.now),
            ImmediateStart::Cached | ImmediateStart::MayWait => false,
        }
    }

    fn submit(&mut self, file: &FileVolume, kind: VolumeOperation, operation: FileOperation, here: bool) {
        self.path.submitted(kind, self.now);
        if !here && self.path.thread.is_none() {
            self.path.thread = started(VolumeThread::start(file.file(), Arc::clone(self.door)));
        }
        match &self.path.thread {
            Some(thread) if !here => thread.submit(operation),
            _ => self.ring.file(operation),
        }
    }

    fn writer(&mut self, file: &FileVolume) -> Option<&WriterThread> {
        if self.path.writer.is_none() {
            self.path.writer = started(WriterThread::start(file.file(), Arc::clone(self.door)));
        }
        self.path.writer.as_ref()
    }
}

/// A volume's thread, if the system has one left.
fn started<T>(thread: io::Result<T>) -> Option<T> {
    thread.inspect_err(|error| warn!("a volume goes on without a thread of its own: {error}")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn a_volume_without_anything_outstanding_is_not_silent() {
        let mut pulse = Pulse::default();
        assert_eq!(pulse.silence(at(1_000_000)), VolumeSilence::None);
        pulse.submitted(at(1_000_000));
        assert_eq!(
            pulse.silence(at(1_000_001)),
            VolumeSilence::None,
            "its silence begins with its first operation"
        );
        pulse.completed(at(1_000_001));
        assert_eq!(pulse.silence(at(2_000_000)), VolumeSilence::None);
    }

    #[test]
    fn a_stall_is_judged_by_what_is_usual() {
        let mut pulse = Pulse::default();
        let mut now = 0;
        pulse.submitted(at(now));
        for _ in 0..100 {
            pulse.submitted(at(now));
            now += 40;
            pulse.completed(at(now));
        }
        assert_eq!(pulse.silence(at(now + 159)), VolumeSilence::None, "four times what it always takes");
        assert_eq!(pulse.silence(at(now + 160)), VolumeSilence::Stalled);
        assert_eq!(pulse.silence(at(now + 4_999)), VolumeSilence::Stalled);
        assert_eq!(pulse.silence(at(now + 5_000)), VolumeSilence::Hung);
    }

    #[test]
    fn only_a_volume_that_has_just_answered_is_trusted() {
        let mut pulse = Pulse::default();
        assert!(!pulse.is_trusted(at(0)), "nothing is known of it");
        pulse.submitted(at(0));
        pulse.submitted(at(0));
        pulse.completed(at(1));
        assert!(pulse.is_trusted(at(20)));
        assert!(!pulse.is_trusted(at(21)), "silent");
        pulse.completed(at(30));
        assert!(pulse.is_trusted(at(31)));
        assert!(!pulse.is_trusted(at(1_000)), "idle since");
    }

    #[test]
    fn after_a_hang_the_next_one_is_noticed_too() {
        let mut pulse = Pulse::default();
        pulse.submitted(at(0));
        pulse.submitted(at(0));
        pulse.completed(at(600_000));
        assert_eq!(pulse.silence(at(603_999)), VolumeSilence::None);
        assert_eq!(pulse.silence(at(604_000)), VolumeSilence::Stalled);
    }

    #[test]
    fn one_operation_after_the_other_is_silent_only_while_it_is_there() {
        let mut pulse = Pulse::default();
        for round in 0..10 {
            let begin = round * 1_000;
            pulse.submitted(at(begin));
            assert_eq!(pulse.silent_for(at(begin + 10)), Duration::from_millis(10));
            pulse.completed(at(begin + 10));
            assert_eq!(pulse.silent_for(at(begin + 500)), Duration::ZERO);
        }
    }
    #[test]
    fn writes_into_the_page_cache_do_not_hide_that_reads_hang() {
        let mut path = SubmissionPath::default();
        path.submitted(VolumeOperation::Read, at(0));
        for millis in 0..6_000 {
            path.submitted(VolumeOperation::Change, at(millis));
            path.completed(VolumeOperation::Change, at(millis));
        }
        assert_eq!(path.silence(at(4_999)), VolumeSilence::Stalled);
        assert_eq!(path.silence(at(5_000)), VolumeSilence::Hung);
        path.completed(VolumeOperation::Sync, at(6_000));
        assert_eq!(path.silence(at(6_000)), VolumeSilence::None, "a sync is a sign of life");
        path.submitted(VolumeOperation::Sync, at(6_000));
        path.completed(VolumeOperation::Read, at(6_000));
        assert_eq!(path.silence(at(60_000)), VolumeSilence::None, "a sync may take long");
    }
}
