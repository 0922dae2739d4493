//! The thread that writes: segments, their limits, and errors of the disk.

use std::collections::{HashSet, VecDeque};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant as MachineInstant};

use tidegate_control::Observation;
use tidegate_units::Instant;

use crate::block::{BlockWriter, JournalEvent, MOST_ENTRIES};
use crate::error::JournalError;
use crate::folder_lock::FolderLock;
use crate::queue::{DroppedEntries, Message, SharedQueue, TakenMessages};
use crate::record::{GapCause, GapRecord};
use crate::segment::{SegmentFile, SegmentHeader, seal};
use crate::time::{ClockAnchor, WallTime};

/// Time from one block to the next. Chosen: half of the second that a killed process may lose, so that a
/// thread that wakes up late keeps the promise.
const BETWEEN_BLOCKS: Duration = Duration::from_millis(500);

/// A block ends early at this size before compression, so that memory stays flat. Chosen.
const LARGE_BLOCK: usize = 1024 * 1024;

/// A new segment begins after this time.
const LONGEST_SEGMENT: Duration = Duration::from_secs(3_600);

/// Time for which a segment is kept open for resources that have given no checkpoint for the next one.
/// Chosen: longer than any control interval.
const GRACE: Duration = Duration::from_secs(60);

/// Time from an error of the disk to the next attempt. Chosen.
const BETWEEN_ATTEMPTS: Duration = Duration::from_secs(5);

/// The time in which the folder may become free: `tidegate check` tries its lock for an instant.
const PATIENCE: Duration = Duration::from_millis(200);
const RETRY: Duration = Duration::from_millis(10);

/// Facts about the journal for its readers: status and metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Retention {
    /// Beginning of the oldest segment that is kept.
    pub oldest: WallTime,
    /// Bytes of all segments.
    pub bytes: u64,
    /// Number of segments.
    pub segments: usize,
    /// The most bytes that segments may have.
    pub limit: u64,
    /// Number of entries written since the start.
    pub written: u64,
    /// Number of entries dropped since the start: the queue was full, or the disk.
    pub dropped: u64,
    /// True while the journal cannot be written.
    pub is_failing: bool,
}

/// Settings of the thread.
#[derive(Debug, Clone)]
pub(crate) struct WriterPlan {
    pub(crate) folder: PathBuf,
    pub(crate) limit: u64,
    pub(crate) segment_bytes: u64,
    pub(crate) sync_interval: Duration,
    pub(crate) build: String,
}

/// A segment that is being written.
#[derive(Debug)]
struct OpenSegment {
    file: File,
    path: PathBuf,
    sequence: u64,
    /// The epoch of its decisions.
    epoch: u64,
    began: WallTime,
    began_at: MachineInstant,
    seed: u32,
    bytes: u64,
    blocks: BlockWriter,
    is_unsynced: bool,
}

/// A failure of the disk that lasts.
#[derive(Debug)]
struct Failure {
    again: MachineInstant,
    since: WallTime,
}

/// The thread's state.
#[derive(Debug)]
pub(crate) struct SegmentWriter {
    plan: WriterPlan,
    queue: Arc<SharedQueue>,
    retention: Arc<Mutex<Retention>>,
    /// The loops' clock and the machine's at the start.
    started: (Instant, MachineInstant),
    next_sequence: u64,
    closed: VecDeque<SegmentFile>,
    /// Oldest first: one, or two while resources move to the next one.
    open: VecDeque<OpenSegment>,
    /// Resources that have ended since the last segment began.
    ended: HashSet<u32>,
    /// Entries that were lost and not told yet.
    lost: Option<DroppedEntries>,
    failure: Option<Failure>,
    synced: MachineInstant,
    syncs: SyncSender<File>,
    /// Ends when this does.
    _lock: FolderLock,
}

impl SegmentWriter {
    /// Makes the folder ready, and begins a segment. `now` is the time on the clock of the observations.
    pub(crate) fn begin(
        plan: WriterPlan,
        now: Instant,
        queue: Arc<SharedQueue>,
        retention: Arc<Mutex<Retention>>,
    ) -> Result<Self, JournalError> {
        let lock = lock(&plan.folder)?;
        let closed: VecDeque<_> = SegmentFile::all(&plan.folder)?.into();
        let next_sequence = closed.back().map_or(1, |last| last.sequence.saturating_add(1));
        let machine = MachineInstant::now();
        let syncs = syncing_thread().map_err(JournalError::io(&plan.folder))?;
        let mut writer = Self {
            started: (now, machine),
            next_sequence,
            closed,
            open: VecDeque::new(),
            ended: HashSet::new(),
            lost: None,
            failure: None,
            synced: machine,
            syncs,
            plan,
            queue,
            retention,
            _lock: lock,
        };
        let folder = writer.plan.folder.clone();
        let epoch = writer.queue.epoch();
        writer.open_segment(epoch).map_err(JournalError::io(&folder))?;
        writer.tell();
        Ok(writer)
    }

    /// Writes until it is told to stop.
    pub(crate) fn run(mut self) {
        loop {
            let taken = self.queue.take(BETWEEN_BLOCKS);
            let (stopped, flush) = (taken.stopped, taken.flush);
            self.turn(taken);
            self.queue.answer(flush);
            if stopped {
                return;
            }
        }
    }

    /// Writes what was taken from the queue.
    pub(crate) fn turn(&mut self, taken: TakenMessages) {
        let TakenMessages { messages, dropped, stopped, flush: _ } = taken;
        if let Some(dropped) = dropped {
            self.lose(dropped.entries, dropped.cause, Some(dropped.from));
        }
        self.attempt_again();
        self.take(messages);
        self.write_blocks();
        self.begin_next();
        self.close_previous();
        self.sync(stopped);
        self.tell();
    }

    /// Returns the number of everything that the thread keeps from one turn to the next: segments, resources
    /// and bytes of blocks under way.
    #[cfg(test)]
    pub(crate) fn kept(&self) -> usize {
        let blocks = self.open.iter().map(|segment| segment.blocks.len() + segment.blocks.opened().count());
        self.closed.len() + self.open.len() + self.ended.len() + blocks.sum::<usize>()
    }

    /// Encodes messages. Those of one resource follow each other in a block, which makes it smaller.
    fn take(&mut self, mut messages: Vec<Message>) {
        messages.sort_by_key(|message| match message {
            Message::Decision { id, .. } | Message::Opening { id, .. } | Message::Closed { id } => *id,
            Message::Event(_) => u32::MAX,
        });
        for message in messages {
            self.encode(message);
            let is_large = |segment: &OpenSegment| {
                segment.blocks.len() >= LARGE_BLOCK || segment.blocks.entries() >= MOST_ENTRIES
            };
            if self.open.iter().any(is_large) {
                self.write_blocks();
            }
        }
    }

    fn encode(&mut self, message: Message) {
        let epoch = match &message {
            Message::Decision { epoch, .. } | Message::Opening { epoch, .. } => *epoch,
            Message::Event(_) => self.queue.epoch().min(self.open.back().map_or(u64::MAX, |last| last.epoch)),
            Message::Closed { id } => {
                self.ended.insert(*id);
                return;
            }
        };
        if self.failure.is_some() {
            return self.lose(1, GapCause::Write, None);
        }
        if self.open.back().is_none_or(|last| last.epoch < epoch)
            && let Err(error) = self.open_segment(epoch)
        {
            return self.fail(&error, 1);
        }
        let Some(segment) = self.open.iter_mut().find(|segment| segment.epoch == epoch) else {
            return self.lose(1, GapCause::Late, None);
        };
        let blocks = &mut segment.blocks;
        let encoded = match message {
            Message::Decision { id, at, body, .. } => blocks.decision(id, at, body.as_deref()),
            Message::Opening { id, opening, .. } => {
                self.ended.remove(&id);
                blocks.opening(id, &opening).map(|()| true)
            }
            Message::Event(event) => {
                blocks.event(event);
                Ok(true)
            }
            Message::Closed { .. } => Ok(true),
        };
        match encoded {
            Ok(true) => {}
            Ok(false) => self.lose(1, GapCause::Late, None),
            Err(error) => self.fail(&io::Error::other(error), 1),
        }
    }

    /// Writes the block under way of each segment, with one call for each.
    fn write_blocks(&mut self) {
        if let (Some(lost), Some(segment)) = (self.lost, self.open.back_mut()) {
            self.lost = None;
            let DroppedEntries { from, entries, cause } = lost;
            segment.blocks.event(JournalEvent::Gap(WallTime::now(), GapRecord { from, entries, cause }));
        }
        for place in 0..self.open.len() {
            let segment = &mut self.open[place];
            if segment.blocks.is_empty() {
                continue;
            }
            let entries = segment.blocks.entries() as u64;
            let seed = segment.seed;
            let block = segment.blocks.finish().map(|mut block| {
                seal(seed, &mut block);
                block
            });
            let written = block.and_then(|block| {
                self.make_room(block.len() as u64)?;
                let segment = &mut self.open[place];
                segment.file.write_all(&block)?;
                segment.bytes += block.len() as u64;
                segment.is_unsynced = true;
                Ok(())
            });
            if let Err(error) = written {
                return self.fail(&error, entries);
            }
            self.retention().written += entries;
        }
    }

    /// Removes the oldest segments until there is room for this many bytes.
    fn make_room(&mut self, bytes: u64) -> io::Result<()> {
        while self.bytes().saturating_add(bytes) > self.plan.limit {
            let Some(oldest) = self.closed.pop_front() else {
                return Err(io::Error::other("the limit of the decision journal leaves no room"));
            };
            match fs::remove_file(&oldest.path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    self.closed.push_front(oldest);
                    return Err(error);
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn bytes(&self) -> u64 {
        let closed = self.closed.iter().map(|segment| segment.bytes);
        closed.chain(self.open.iter().map(|segment| segment.bytes)).sum()
    }

    fn open_segment(&mut self, epoch: u64) -> io::Result<()> {
        let (at, machine) = self.started;
        let began_at = MachineInstant::now();
        let began = WallTime::now();
        let sequence = self.next_sequence;
        let header = SegmentHeader {
            observation: Observation::VERSION,
            build: self.plan.build.clone(),
            sequence,
            began: ClockAnchor { at: at + began_at.saturating_duration_since(machine), wall: began },
        };
        let header = header.encoded();
        self.make_room(header.bytes.len() as u64)?;
        let path = self.plan.folder.join(SegmentFile::name(sequence, began));
        let mut file = OpenOptions::new().append(true).create_new(true).open(&path)?;
        self.next_sequence = sequence + 1;
        if let Err(error) = file.write_all(&header.bytes) {
            // An empty segment says nothing.
            let _ = fs::remove_file(&path);
            return Err(error);
        }
        self.open.push_back(OpenSegment {
            file,
            path,
            sequence,
            epoch,
            // As the name of the file says it.
            began: began.whole_millis(),
            began_at,
            seed: header.seed,
            bytes: header.bytes.len() as u64,
            blocks: BlockWriter::new()?,
            is_unsynced: true,
        });
        Ok(())
    }

    /// Asks for checkpoints when the segment is full or old. The next one begins with the first of them.
    fn begin_next(&mut self) {
        let [segment] = self.open.make_contiguous() else { return };
        let is_over =
            segment.bytes >= self.plan.segment_bytes || segment.began_at.elapsed() >= LONGEST_SEGMENT;
        if is_over && self.queue.epoch() == segment.epoch {
            self.queue.begin_epoch();
        }
    }

    /// Closes the previous segment when every resource in it has moved to the next one or has ended.
    fn close_previous(&mut self) {
        let [previous, next] = self.open.make_contiguous() else { return };
        let moved: HashSet<u32> = next.blocks.opened().collect();
        let all_moved = previous.blocks.opened().all(|id| moved.contains(&id) || self.ended.contains(&id));
        if all_moved || next.began_at.elapsed() >= GRACE {
            if let Some(previous) = self.open.pop_front() {
                self.close(previous);
            }
            self.ended.clear();
        }
    }

    fn close(&mut self, segment: OpenSegment) {
        let OpenSegment { file, path, sequence, began, bytes, is_unsynced, .. } = segment;
        if is_unsynced {
            // If that thread is busy, the kernel brings the file to the disk by itself, some seconds later.
            let _ = self.syncs.try_send(file);
        }
        self.closed.push_back(SegmentFile { path, sequence, began, bytes });
    }

    /// Gives up the segments after an error. Callers are asked for new checkpoints at the next attempt.
    fn fail(&mut self, error: &io::Error, lost: u64) {
        let waiting = self.open.iter().map(|segment| segment.blocks.entries() as u64).sum::<u64>();
        for segment in std::mem::take(&mut self.open) {
            // The block of which a part was written is cut off. Where that fails, a reader finds it torn.
            let _ = segment.file.set_len(segment.bytes);
            self.close(segment);
        }
        self.lose(lost.saturating_add(waiting), GapCause::Write, None);
        if self.failure.is_none() {
            tracing::warn!(
                "{}: cannot write the decision journal: {error}; decisions go on, and are not kept until it \
                 can be written again",
                self.plan.folder.display()
            );
        }
        let since = self.failure.take().map_or_else(WallTime::now, |failure| failure.since);
        self.failure = Some(Failure { again: MachineInstant::now() + BETWEEN_ATTEMPTS, since });
        self.queue.begin_epoch();
    }

    /// Tries the disk again after a while.
    fn attempt_again(&mut self) {
        let Some(failure) = &self.failure else { return };
        if MachineInstant::now() < failure.again {
            return;
        }
        let since = failure.since;
        let epoch = self.queue.begin_epoch();
        match self.open_segment(epoch) {
            Ok(()) => {
                self.failure = None;
                let dropped = self.lost.map_or(0, |lost| lost.entries);
                tracing::info!(
                    "{}: the decision journal is written again; {dropped} entries since {since} are missing",
                    self.plan.folder.display()
                );
            }
            Err(error) => self.fail(&error, 0),
        }
    }

    fn lose(&mut self, entries: u64, cause: GapCause, from: Option<WallTime>) {
        if entries == 0 {
            return;
        }
        let is_first = self.lost.is_none();
        DroppedEntries::add(&mut self.lost, entries, cause);
        if let (true, Some(from), Some(lost)) = (is_first, from, &mut self.lost) {
            lost.from = from;
        }
        self.retention().dropped += entries;
    }

    /// Has another thread bring the files to the disk, which may take long.
    fn sync(&mut self, is_last: bool) {
        if !is_last && self.synced.elapsed() < self.plan.sync_interval {
            return;
        }
        for segment in self.open.iter_mut().filter(|segment| segment.is_unsynced) {
            // If the thread is still busy, the next turn tries again.
            let sent = segment.file.try_clone().is_ok_and(|file| self.syncs.try_send(file).is_ok());
            segment.is_unsynced = !sent;
            self.synced = MachineInstant::now();
        }
    }

    fn retention(&self) -> std::sync::MutexGuard<'_, Retention> {
        self.retention.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Publishes what is kept.
    fn tell(&self) {
        let oldest = self.closed.front().map(|segment| segment.began);
        let oldest = oldest.or(self.open.front().map(|segment| segment.began));
        let (bytes, segments) = (self.bytes(), self.closed.len() + self.open.len());
        let mut retention = self.retention();
        retention.oldest = oldest.unwrap_or_else(WallTime::now);
        (retention.bytes, retention.segments, retention.limit) = (bytes, segments, self.plan.limit);
        retention.is_failing = self.failure.is_some();
    }
}

/// Locks the folder for one writer.
fn lock(folder: &Path) -> Result<FolderLock, JournalError> {
    fs::create_dir_all(folder).map_err(JournalError::io(folder))?;
    let end = MachineInstant::now() + PATIENCE;
    loop {
        let lock = FolderLock::take(folder).map_err(JournalError::io(&FolderLock::path(folder)))?;
        if let Some(lock) = lock {
            return Ok(lock);
        }
        if MachineInstant::now() >= end {
            return Err(JournalError::InUse(folder.to_owned()));
        }
        thread::sleep(RETRY);
    }
}

/// Begins the thread that waits for the disk. It ends with its last sender.
fn syncing_thread() -> io::Result<SyncSender<File>> {
    // Two segments may be open.
    let (sender, files) = sync_channel::<File>(2);
    let sync = move || {
        while let Ok(file) = files.recv() {
            // An error shows at the next write. Until then the page cache has the data.
            let _ = file.sync_data();
        }
    };
    thread::Builder::new().name("journal-sync".to_owned()).spawn(sync)?;
    Ok(sender)
}

#[cfg(test)]
mod tests {
    use tidegate_control::{AutoConfig, Commands, ControlLoop, LoopConfig};
    use tidegate_units::{Latency, ResourceName};

    use super::*;
    use crate::block::ResourceOpening;
    use crate::queue::QueueBounds;
    use crate::reader::{EntryFilter, JournalReader};
    use crate::record::{DecisionBody, EntryContent, ThrottleMechanism};

    struct Written {
        writer: SegmentWriter,
        queue: Arc<SharedQueue>,
        folder: tempfile::TempDir,
    }

    fn begin(limit: u64) -> Written {
        let folder = tempfile::tempdir().unwrap();
        let queue = Arc::new(SharedQueue::new(QueueBounds { entries: 100, bytes: 1 << 20 }, 0));
        let plan = WriterPlan {
            folder: folder.path().to_owned(),
            limit,
            segment_bytes: 1_000,
            sync_interval: Duration::ZERO,
            build: "test".to_owned(),
        };
        let writer = SegmentWriter::begin(plan, Instant::ZERO, Arc::clone(&queue), Arc::default()).unwrap();
        Written { writer, queue, folder }
    }

    fn opening(epoch: u64) -> Message {
        let resource = ResourceName::new("r").unwrap();
        let law = AutoConfig::default().into();
        let config = LoopConfig::new(resource.clone(), Latency::from_millis(5), law);
        let state = rmp_serde::to_vec_named(&ControlLoop::new(config).unwrap()).unwrap();
        let opening = ResourceOpening {
            resource,
            at: Instant::ZERO,
            interval: 1_000,
            mechanism: ThrottleMechanism::Queue,
            state,
        };
        Message::Opening { id: 0, epoch, opening: Box::new(opening) }
    }

    fn decision(epoch: u64, at: u64) -> Message {
        let resource = ResourceName::new("r").unwrap();
        let body = DecisionBody {
            observation: Observation::new(resource, Instant::ZERO, Vec::new()),
            reading: None,
            commands: Commands::default(),
            held: 0,
            lag: 0,
        };
        Message::Decision { id: 0, epoch, at: Instant::from_nanos(at), body: Some(Arc::new(body)) }
    }

    impl Written {
        fn turn(&mut self, messages: Vec<Message>) {
            self.writer.turn(TakenMessages { messages, dropped: None, stopped: false, flush: 0 });
        }

        fn entries(&self) -> Vec<EntryContent> {
            let reader = JournalReader::open(self.folder.path()).unwrap();
            let entries = reader.entries(EntryFilter::default()).unwrap();
            entries.map(|entry| entry.unwrap().content).collect()
        }
    }

    #[test]
    fn a_full_disk_drops_entries_with_a_gap_and_ends_with_the_next_attempt() {
        let mut written = begin(1 << 20);
        written.turn(vec![opening(0), decision(0, 1)]);
        written.writer.open[0].file =
            OpenOptions::new().write(true).open("/dev/full").expect("every Linux has one");
        written.turn(vec![decision(0, 2), decision(0, 3)]);
        let retention = *written.writer.retention();
        assert_eq!((retention.written, retention.dropped, retention.is_failing), (2, 2, true));
        let epoch = written.queue.epoch();
        assert_eq!(epoch, 1, "loops are asked for checkpoints");
        written.turn(vec![opening(epoch), decision(epoch, 4)]);
        assert_eq!(written.writer.retention().dropped, 4, "it is not tried with every entry");

        written.writer.failure.as_mut().unwrap().again = MachineInstant::now();
        written.turn(Vec::new());
        let epoch = written.queue.epoch();
        written.turn(vec![decision(epoch, 5), opening(epoch), decision(epoch, 6)]);
        assert!(!written.writer.retention().is_failing);
        let entries = written.entries();
        let gaps = entries.iter().filter_map(|entry| match entry {
            EntryContent::Gap(gap) => Some((gap.entries, gap.cause)),
            _ => None,
        });
        assert_eq!(gaps.collect::<Vec<_>>(), [(4, GapCause::Write), (1, GapCause::Late)]);
        let times = entries.iter().filter_map(|entry| match entry {
            EntryContent::Decision(decision) => Some(decision.at.as_nanos()),
            _ => None,
        });
        assert_eq!(times.collect::<Vec<_>>(), [1, 6]);
    }

    #[test]
    fn decisions_of_resources_that_move_later_stay_in_their_segment() {
        let mut written = begin(1 << 20);
        written.turn(vec![opening(0), decision(0, 1)]);
        let mut epoch = written.queue.epoch();
        for at in 2.. {
            if epoch == 1 {
                break;
            }
            written.turn(vec![decision(0, at)]);
            epoch = written.queue.epoch();
        }
        // Another resource has moved, this one not yet.
        let Message::Opening { opening: other, .. } = opening(1) else { unreachable!() };
        written.turn(vec![Message::Opening { id: 1, epoch: 1, opening: other }]);
        assert_eq!(written.writer.open.len(), 2);
        written.turn(vec![decision(0, 1_000)]);
        written.turn(vec![opening(1), decision(1, 1_001)]);
        assert_eq!(written.writer.open.len(), 1, "all have moved");
        assert_eq!(written.writer.retention().dropped, 0);
        let count =
            written.entries().iter().filter(|entry| matches!(entry, EntryContent::Decision(_))).count();
        assert_eq!(written.writer.retention().written, count as u64 + 3);
    }

    #[test]
    fn a_limit_without_room_is_an_error_of_the_disk() {
        let mut written = begin(400);
        written.turn(vec![opening(0)]);
        assert!(written.writer.retention().is_failing);
        let bytes: u64 = fs::read_dir(written.folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().metadata().unwrap().len())
            .sum();
        assert!(bytes <= 400);
    }
}
