//! The way of a volume's operations to the kernel: through the worker's own ring while the volume answers,
//! and otherwise through a thread of its own.
//!
//! The worker's ring is the fast way: a read from the page cache takes 2 µs by it and 11 µs by a thread
//! (measured, ext4). But a submission may wait: in a file system that asks a server, always; in a local one
//! where it needs metadata from a device that is silent, or where the device's queue is full. Everything in
//! the pool would wait with it.

use std::sync::Arc;
use std::time::Duration;

use tidegate_units::Instant;
use tracing::warn;

use super::volume_thread::VolumeThread;
use super::{FileVolume, Volume};
use crate::buffer::Buffer;
use crate::directory::Door;
use crate::request::SyncRange;
use crate::ring::{FileOperation, Part, Ring, Token};

/// The worker submits to a volume for this long after its last completion: a sign that it answers. What comes
/// after a pause or a silence goes by the thread, until something completes. Chosen above a healthy disk's
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

/// How long a volume has been silent, in relation to what is usual for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Silence {
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

    /// Whether it has completed something just now.
    fn is_trusted(&self, now: Instant) -> bool {
        self.completed.is_some_and(|at| now.saturating_since(at) < TRUSTED)
    }

    fn silent_for(&self, now: Instant) -> Duration {
        if self.outstanding == 0 { Duration::ZERO } else { now.saturating_since(self.since) }
    }

    fn silence(&self, now: Instant) -> Silence {
        let silent = self.silent_for(now);
        if silent >= HANG {
            Silence::Hung
        } else if silent >= LEAST_STALL.max(STALL_RATIO * self.longest) {
            Silence::Stalled
        } else {
            Silence::None
        }
    }
}

/// The way of one volume's operations.
#[derive(Debug)]
pub(crate) struct SubmissionPath {
    /// Never through the worker's ring.
    may_wait: bool,
    thread: Option<VolumeThread>,
    /// Of all operations: it decides about the way.
    pulse: Pulse,
    /// Of all but syncs, which take seconds on a healthy disk that has much to write: it decides about the
    /// silence.
    requests: Pulse,
}

/// Kinds of operations that a volume takes unlike times for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Request,
    Sync,
}

impl SubmissionPath {
    pub(crate) fn new(volume: &Volume) -> Self {
        let may_wait = matches!(volume, Volume::File(file) if file.may_wait());
        Self { may_wait, thread: None, pulse: Pulse::default(), requests: Pulse::default() }
    }

    /// Whether, and for how long in relation to what is usual, it has completed nothing.
    pub(crate) fn silence(&self, now: Instant) -> Silence {
        self.requests.silence(now)
    }

    pub(crate) fn silent_for(&self, now: Instant) -> Duration {
        self.requests.silent_for(now)
    }

    /// Operations that have not completed.
    pub(crate) fn outstanding(&self) -> usize {
        self.pulse.outstanding
    }

    /// An operation of the volume has completed.
    pub(crate) fn completed(&mut self, kind: Kind, now: Instant) {
        self.pulse.completed(now);
        match kind {
            Kind::Request => self.requests.completed(now),
            // A sign of life all the same.
            Kind::Sync => self.requests.since = now,
        }
    }

    fn submit(
        &mut self,
        ring: &mut Ring,
        file: &FileVolume,
        door: &Arc<Door>,
        operation: FileOperation,
        kind: Kind,
        now: Instant,
    ) {
        let aside = self.may_wait || !self.pulse.is_trusted(now);
        self.pulse.submitted(now);
        if kind == Kind::Request {
            self.requests.submitted(now);
        }
        if aside && self.thread.is_none() {
            match VolumeThread::start(file.file(), Arc::clone(door)) {
                Ok(thread) => self.thread = Some(thread),
                Err(error) => warn!("a volume goes on without a thread of its own: {error}"),
            }
        }
        match &self.thread {
            Some(thread) if aside => thread.submit(operation),
            _ => ring.file(operation),
        }
    }
}

/// What a file volume needs to have operations done.
pub(crate) struct FileRing<'a> {
    pub(crate) ring: &'a mut Ring,
    pub(crate) path: &'a mut SubmissionPath,
    pub(crate) door: &'a Arc<Door>,
    pub(crate) now: Instant,
}

impl FileRing<'_> {
    /// Reads into a part of the buffer.
    pub(crate) fn read(&mut self, token: Token, file: &FileVolume, buffer: Buffer, part: Part, offset: u64) {
        self.submit(file, Kind::Request, FileOperation::read(token, file.fd(), buffer, part, offset));
    }

    /// Writes a part of the buffer; with `durable` it completes once the data is on stable storage.
    pub(crate) fn write(
        &mut self,
        token: Token,
        file: &FileVolume,
        buffer: Buffer,
        part: Part,
        offset: u64,
        durable: bool,
    ) {
        self.submit(
            file,
            Kind::Request,
            FileOperation::write(token, file.fd(), buffer, part, offset, durable),
        );
    }

    /// Brings the written data of a range, and what is needed to find it, to stable storage.
    pub(crate) fn sync(&mut self, token: Token, file: &FileVolume, range: SyncRange) {
        self.submit(file, Kind::Sync, FileOperation::sync(token, file.fd(), range));
    }

    /// Changes a range's allocation; see fallocate(2) for the mode.
    pub(crate) fn allocate(&mut self, token: Token, file: &FileVolume, mode: i32, offset: u64, length: u64) {
        self.submit(file, Kind::Request, FileOperation::allocate(token, file.fd(), mode, offset, length));
    }

    fn submit(&mut self, file: &FileVolume, kind: Kind, operation: FileOperation) {
        self.path.submit(self.ring, file, self.door, operation, kind, self.now);
    }
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
        assert_eq!(pulse.silence(at(1_000_000)), Silence::None);
        pulse.submitted(at(1_000_000));
        assert_eq!(
            pulse.silence(at(1_000_001)),
            Silence::None,
            "its silence begins with its first operation"
        );
        pulse.completed(at(1_000_001));
        assert_eq!(pulse.silence(at(2_000_000)), Silence::None);
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
        assert_eq!(pulse.silence(at(now + 159)), Silence::None, "four times what it always takes");
        assert_eq!(pulse.silence(at(now + 160)), Silence::Stalled);
        assert_eq!(pulse.silence(at(now + 4_999)), Silence::Stalled);
        assert_eq!(pulse.silence(at(now + 5_000)), Silence::Hung);
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
        assert_eq!(pulse.silence(at(603_999)), Silence::None);
        assert_eq!(pulse.silence(at(604_000)), Silence::Stalled);
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
}
