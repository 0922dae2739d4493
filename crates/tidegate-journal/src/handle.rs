//! The handles by which loops hand over their decisions.

use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tidegate_control::{Commands, ControlLoop, Decision, LoopConfig, Observation};
use tidegate_units::{Bytes, Instant};

use crate::block::{JournalEvent, LARGEST_PLAIN, ResourceOpening};
use crate::error::JournalError;
use crate::queue::{Message, QueueBounds, SharedQueue};
use crate::quiet::{DecisionParts, QuietDecision};
use crate::record::{
    ActionRecord, DecisionBody, GapCause, ThrottleMechanism, ThrottleReading, iops_bits, same_commands,
};
use crate::time::WallTime;
use crate::writer::{Retention, SegmentWriter, WriterPlan};

/// The time for the last entries to reach the disk.
const LAST_WRITE: Duration = Duration::from_secs(5);

/// The time between two looks at whether they have.
const LOOK: Duration = Duration::from_millis(2);

/// Settings of a journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalConfig {
    /// Folder of the journal. It is made if it is not there.
    pub folder: PathBuf,
    /// The most bytes on disk. Default 1 GiB, least 1 MiB. A segment has a 64th part of it.
    pub limit: Bytes,
    /// Time between two calls of fdatasync. Default 10 s: so much is lost at most when the power fails.
    pub sync_interval: Duration,
    /// The most entries that wait for the writer. Default 65,536.
    pub queue_entries: usize,
    /// The most bytes that wait for the writer. Default 64 MiB.
    pub queue_bytes: Bytes,
    /// Name and version of the build. A replay with another one may decide otherwise.
    pub build: String,
}

impl JournalConfig {
    /// The least limit.
    pub const LEAST_LIMIT: Bytes = Bytes::from_mib(1);

    /// A journal in a folder, with every default.
    #[must_use]
    pub fn new(folder: PathBuf, build: String) -> Self {
        Self {
            folder,
            limit: Bytes::from_gib(1),
            sync_interval: Duration::from_secs(10),
            queue_entries: 65_536,
            queue_bytes: Bytes::from_mib(64),
            build,
        }
    }
}

/// A journal that is being written, by a thread of its own. Handles may be cloned; the thread ends with
/// [`close`](Self::close), or with the process.
#[derive(Clone)]
pub struct JournalWriter {
    queue: Arc<SharedQueue>,
    retention: Arc<Mutex<Retention>>,
    next_id: Arc<AtomicU32>,
    thread: Arc<Mutex<Option<JoinHandle<()>>>>,
}

impl fmt::Debug for JournalWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JournalWriter").field("retention", &self.retention()).finish_non_exhaustive()
    }
}

impl JournalWriter {
    /// Begins a segment and the thread. `now` is the time on the clock of the observations.
    ///
    /// # Errors
    /// When the folder cannot be used, another process writes there, or the limit is too small.
    pub fn start(config: JournalConfig, now: Instant) -> Result<Self, JournalError> {
        let limit = config.limit.get();
        if limit < JournalConfig::LEAST_LIMIT.get() {
            return Err(JournalError::Limit { limit, least: JournalConfig::LEAST_LIMIT.get() });
        }
        let bytes = usize::try_from(config.queue_bytes.get()).unwrap_or(usize::MAX);
        let bounds = QueueBounds { entries: config.queue_entries, bytes };
        let queue = Arc::new(SharedQueue::new(bounds, 0));
        let retention = Arc::new(Mutex::new(Retention::default()));
        let plan = WriterPlan {
            folder: config.folder.clone(),
            limit,
            segment_bytes: limit / 64,
            sync_interval: config.sync_interval,
            build: config.build,
        };
        let writer = SegmentWriter::begin(plan, now, Arc::clone(&queue), Arc::clone(&retention))?;
        let thread = thread::Builder::new().name("journal".to_owned()).spawn(move || writer.run());
        let thread = thread.map_err(JournalError::io(&config.folder))?;
        Ok(Self { queue, retention, next_id: Arc::default(), thread: Arc::new(Mutex::new(Some(thread))) })
    }

    /// Begins to record a resource of the gateway, with a checkpoint of its loop. `now` is the time on the
    /// clock of the observations.
    #[must_use]
    pub fn resource(&self, control: &ControlLoop, now: Instant) -> ResourceJournal {
        self.resource_throttled_by(ThrottleMechanism::Queue, control, now)
    }

    /// Begins to record a resource, with the mechanism that carries out its commands.
    #[must_use]
    pub fn resource_throttled_by(
        &self,
        mechanism: ThrottleMechanism,
        control: &ControlLoop,
        now: Instant,
    ) -> ResourceJournal {
        let mut resource = ResourceJournal {
            queue: Arc::clone(&self.queue),
            id: self.next_id.fetch_add(1, Ordering::Relaxed),
            epoch: 0,
            mechanism,
            config: control.config().clone(),
            last: None,
            is_known: false,
            at: now,
            needs_checkpoint: true,
        };
        resource.checkpoint(control);
        resource
    }

    /// Records an action of an operator or of the service.
    pub fn action(&self, mut action: ActionRecord) {
        for text in [&mut action.actor, &mut action.text] {
            text.truncate(text.floor_char_boundary(ActionRecord::LONGEST));
        }
        self.queue.push(Message::Event(JournalEvent::Action(WallTime::now(), action)));
    }

    /// Returns what is kept, and what was dropped.
    #[must_use]
    pub fn retention(&self) -> Retention {
        *self.retention.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until everything handed over so far is in the file, at most this long. Returns true if it is, or
    /// was dropped. Not for a loop's thread.
    pub fn flush(&self, longest: Duration) -> bool {
        self.queue.flush(longest)
    }

    /// Writes everything that was handed over, and ends the thread. Later entries are dropped. A thread whose disk
    /// hangs is left behind.
    pub fn close(&self) {
        self.queue.stop();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(thread) = thread else { return };
        let begun = std::time::Instant::now();
        while !thread.is_finished() {
            if begun.elapsed() > LAST_WRITE {
                tracing::warn!("the disk of the decision journal hangs: its last entries are not written");
                return;
            }
            thread::sleep(LOOK);
        }
        // A thread that panicked has written nothing since: there is nothing to be done here.
        let _ = thread.join();
    }
}

/// The last decision of a resource.
#[derive(Debug)]
struct LastDecision {
    body: Arc<DecisionBody>,
    /// The summary that the next decision is compared with, if this one is quiet.
    quiet: Option<QuietDecision>,
}

/// The journal of one resource's decisions. Its owner is the thread that steps the loop.
///
/// Handing over never waits for the disk. An unchanged decision costs a comparison and a few words; a changed
/// one costs a copy.
#[derive(Debug)]
pub struct ResourceJournal {
    queue: Arc<SharedQueue>,
    id: u32,
    /// Number of the segment that it writes to.
    epoch: u64,
    mechanism: ThrottleMechanism,
    /// Configuration of the last checkpoint.
    config: LoopConfig,
    last: Option<LastDecision>,
    /// True if the segment has the last decision, so that it can be repeated.
    is_known: bool,
    /// Time of the last decision.
    at: Instant,
    /// True if decisions do not follow from the last checkpoint: some were dropped.
    needs_checkpoint: bool,
}

impl ResourceJournal {
    /// Records a decision, after [`ControlLoop::step`]. `control` is the loop that made it, as it is now. If
    /// the throttle was read back since the decision before, `reading` is what it showed.
    pub fn record(
        &mut self,
        control: &ControlLoop,
        observation: &Observation,
        commands: &Commands,
        decision: &Decision,
        reading: Option<&ThrottleReading>,
    ) {
        self.at = observation.at;
        let is_known = observation.version == Observation::VERSION
            && observation.resource == self.config.resource
            && *control.config() == self.config;
        if self.needs_checkpoint || !is_known {
            // A decision that follows from no checkpoint is of no use.
            self.queue.count_dropped(GapCause::Late);
            self.needs_checkpoint = true;
        } else {
            let lag = decision.at.as_nanos().wrapping_sub(observation.at.as_nanos()).cast_signed();
            let body = self.body(&DecisionParts { observation, commands, reading, held: decision.held, lag });
            self.is_known = true;
            let (id, epoch) = (self.id, self.epoch);
            let is_sent = self.queue.push(Message::Decision { id, epoch, at: observation.at, body });
            self.needs_checkpoint = !is_sent || self.queue.epoch() != epoch;
        }
        if self.needs_checkpoint {
            self.checkpoint(control);
        }
    }

    /// Records the state of the loop after a change that no decision made, such as
    /// [`ControlLoop::reconfigure`]. Call it before the next decision.
    pub fn checkpoint(&mut self, control: &ControlLoop) {
        self.epoch = self.queue.epoch();
        self.is_known = false;
        self.config = control.config().clone();
        // A loop has no state that MessagePack cannot say.
        let state = rmp_serde::to_vec_named(control).unwrap_or_default();
        if state.len() > LARGEST_PLAIN / 2 {
            self.needs_checkpoint = true;
            self.queue.count_dropped(GapCause::Late);
            return;
        }
        let opening = Box::new(ResourceOpening {
            resource: self.config.resource.clone(),
            at: self.at,
            interval: u64::try_from(self.config.interval.as_nanos()).unwrap_or(u64::MAX),
            mechanism: self.mechanism,
            state,
        });
        let (id, epoch) = (self.id, self.epoch);
        self.needs_checkpoint = !self.queue.push(Message::Opening { id, epoch, opening });
    }

    /// Returns the content of a decision. `None`: nothing but the time has changed.
    fn body(&mut self, parts: &DecisionParts<'_>) -> Option<Arc<DecisionBody>> {
        if let Some(last) = self.last.as_ref().filter(|last| last.is(parts)) {
            return (!self.is_known).then(|| Arc::clone(&last.body));
        }
        let DecisionParts { observation, commands, reading, held, lag } = *parts;
        let body = Arc::new(DecisionBody {
            observation: observation.clone(),
            reading: reading.cloned(),
            commands: commands.clone(),
            held,
            lag,
        });
        self.last = Some(LastDecision { body: Arc::clone(&body), quiet: QuietDecision::of(parts) });
        Some(body)
    }
}

impl LastDecision {
    /// Returns true if a decision is the same, but for its time.
    fn is(&self, parts: &DecisionParts<'_>) -> bool {
        let body = &self.body;
        self.quiet.as_ref().is_some_and(|quiet| quiet.is(parts))
            || (body.held == parts.held
                && body.lag == parts.lag
                && body.reading.as_ref() == parts.reading
                && is_same_observation(&body.observation, parts.observation)
                && same_commands(&body.commands, parts.commands))
    }
}

impl Drop for ResourceJournal {
    fn drop(&mut self) {
        self.queue.push(Message::Closed { id: self.id });
    }
}

/// Compares all but the times. Numbers are compared by their bits as well: zeros of different signs are
/// equal. Reports of hosts change in each interval, and are not compared.
fn is_same_observation(one: &Observation, other: &Observation) -> bool {
    let bits = |observation: &Observation| {
        let numbers = observation.consumers.iter().flat_map(|consumer| {
            let reservation = consumer.reservation.map_or(0, iops_bits);
            [consumer.mean_outstanding.get().to_bits(), reservation]
        });
        numbers.fold(0_u64, |sum, bits| sum.rotate_left(1) ^ bits)
    };
    one.cluster.is_none()
        && other.cluster.is_none()
        && one.consumers == other.consumers
        && one.percentile == other.percentile
        && bits(one) == bits(other)
}

#[cfg(test)]
mod tests {
    use tidegate_control::{AutoConfig, ConsumerObservation};
    use tidegate_units::{ConsumerName, Latency, ResourceName, Shares};

    use super::*;

    /// An hour at intervals of 100 ms.
    const HOUR: u64 = 36_000;
    const RESOURCES: u64 = 12;
    const BOUNDS: QueueBounds = QueueBounds { entries: 1_000, bytes: 1 << 20 };

    /// A resource that is loaded all the time, now and then, or never.
    fn observation(name: &ResourceName, resource: u64, step: u64) -> Observation {
        let at = Instant::from_nanos(step * 100_000_000);
        let observe = |place: u64| {
            let consumer = ConsumerName::new(&format!("consumer-{place}")).unwrap();
            let mut observed = ConsumerObservation::idle(consumer, Shares::DEFAULT, place == 0);
            if resource == 0 || resource < 4 && (step / 3_000).is_multiple_of(2) {
                let noise = (step * 7_919 + place).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
                observed.reads.count = 20 + noise % 50;
                observed.reads.total_latency =
                    Latency::from_nanos(observed.reads.count * (noise % 7_000_000));
            }
            observed.rounded()
        };
        Observation::new(name.clone(), at, (0..3).map(observe).collect())
    }

    #[test]
    fn memory_and_disk_stay_flat_over_an_hour() {
        let folder = tempfile::tempdir().unwrap();
        let queue = Arc::new(SharedQueue::new(BOUNDS, 0));
        let retention = Arc::new(Mutex::new(Retention::default()));
        let plan = WriterPlan {
            folder: folder.path().to_owned(),
            limit: 1 << 19,
            segment_bytes: (1 << 19) / 64,
            sync_interval: Duration::from_secs(10),
            build: "test".to_owned(),
        };
        let begun = SegmentWriter::begin(plan, Instant::ZERO, Arc::clone(&queue), Arc::clone(&retention));
        let mut writer = begun.unwrap();
        let (next_id, thread) = (Arc::default(), Arc::default());
        let journal = JournalWriter { queue: Arc::clone(&queue), retention, next_id, thread };
        let law = AutoConfig::default().into();
        let resource = |number: u64| {
            let name = ResourceName::new(&format!("resource-{number}")).unwrap();
            let config = LoopConfig::new(name, Latency::from_millis(5), law);
            let config = LoopConfig { interval: Duration::from_millis(100), ..config };
            let control = ControlLoop::new(config).unwrap();
            let recorded = journal.resource(&control, Instant::ZERO);
            (control, recorded)
        };
        let mut resources: Vec<_> = (0..RESOURCES).map(resource).collect();
        // The most that waited, and that the writer kept, in each ten minutes.
        let mut peaks: Vec<[usize; 3]> = Vec::new();
        for step in 1..=HOUR {
            for (number, (control, recorded)) in resources.iter_mut().enumerate() {
                let name = control.config().resource.clone();
                let observation = observation(&name, number as u64, step);
                let (commands, decision) = control.step(observation.at, &observation);
                recorded.record(control, &observation, &commands, &decision, None);
            }
            if step % 5 > 0 {
                continue;
            }
            let (entries, bytes) = queue.waiting();
            writer.turn(queue.take(Duration::ZERO));
            let ten_minutes = ((step - 1) / (HOUR / 6)) as usize;
            peaks.resize(ten_minutes + 1, [0; 3]);
            for (peak, now) in peaks[ten_minutes].iter_mut().zip([entries, bytes, writer.kept()]) {
                *peak = (*peak).max(now);
            }
        }
        let retention = journal.retention();
        assert_eq!((retention.dropped, retention.is_failing), (0, false));
        assert!(retention.written >= HOUR * RESOURCES, "{retention:?}");
        assert!(retention.bytes <= retention.limit, "{retention:?}");
        // The journal is full before the last ten minutes: only the oldest segment goes for a new one.
        let [before, last] = [peaks[4], peaks[5]];
        assert!(last.iter().zip(before).all(|(last, before)| *last <= before + 2), "{peaks:?}");
        assert!(last[0] <= BOUNDS.entries / 2 && last[1] <= BOUNDS.bytes / 2, "{peaks:?}");
        assert!(last[2] <= 64 + 2 + 2 * RESOURCES as usize, "{peaks:?}");
    }
}
