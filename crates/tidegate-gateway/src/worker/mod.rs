//! A pool's worker: one thread that owns the ring, the sessions, the stage and the backend.
//!
//! Each turn: wait, handle what completed, step the law, dispatch, send. Nothing in here blocks, and nothing
//! else touches what it owns; other threads send it [`WorkerCommand`]s.

mod blocks;
mod chores;
mod commands;
mod devices;
mod disks;
pub(crate) mod door;
mod requests;
mod rests;
mod sessions;
#[cfg(test)]
pub(crate) mod simulation;
mod slices;
mod suspend;
mod syncs;
mod time;
mod upstream;
mod volumes;

use volumes::{ParkedRequests, VolumeWatch};

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use rustix::net::Shutdown;
use slab::Slab;
use tidegate_nbd::{CheckedOperation, Errno};
use tidegate_units::{Instant, Shares};

use crate::backend::{
    EmulatedVolume, ExportVolume, FileRing, FinishedIo, RequestProgress, SubmissionPath, VolumeOperation,
    VolumeSilence, errno,
};
use crate::block_order::BlockOrder;
use crate::buffer::BufferPool;
use crate::clock::GatewayClock;
use crate::config::PoolConfig;
use crate::memory::{AccountKey, PoolMemory};
use crate::peers::PoolPartners;
use crate::request::{ClientRequest, is_durable};
use crate::ring::{CompletedOperation, CompletionWatch, LentMemory, RingToken, WORKER_ENTRIES, WorkerRing};
use crate::session::{ClientSession, SessionPhase};
use crate::stage::{PoolStage, StageConsumer};
use crate::suspension::SuspendedSession;
use crate::upstream::UpstreamEvent;
use crate::zeroing::ZeroingBehaviour;
use chores::{ChoreLines, ExportClass, PROTECTED_ROUNDS, WorkerChore};
use door::{ExportPin, NewExport, PoolChange, SessionFate, WorkerCommand, WorkerDoor};
use syncs::{DataLoss, PendingSyncs};

/// Payload buffers kept for reuse; a small part of what a pool may occupy, and enough for its working set.
const RECYCLED: usize = 32 << 20;

/// The interval at which deadlines of sessions are checked.
const HOUSEKEEPING: Duration = Duration::from_millis(250);

/// The time that the kernel has, after a drain's deadline, to give back the memory of operations that it has
/// been told to give up. Those of storage that hangs are then left behind.
pub(crate) const KERNEL_GRACE: Duration = Duration::from_millis(250);

struct WorkerExport {
    id: u64,
    volume: ExportVolume,
    path: SubmissionPath,
    /// The volume's silence as of the last look.
    silence: VolumeSilence,
    /// When that began.
    silent_since: Instant,
    parked: ParkedRequests,
    consumer: StageConsumer,
    account: AccountKey,
    sessions: usize,
    removed: bool,
    pin: ExportPin,
    syncs: PendingSyncs,
    blocks: BlockOrder,
    zeroing: ZeroingBehaviour,
}

impl WorkerExport {
    /// Returns whether its upstream is away. Requests are then kept, within the time that its configuration
    /// gives.
    fn is_cut_off(&self) -> bool {
        matches!(&self.volume, ExportVolume::Upstream(upstream) if upstream.snapshot().connections == 0)
    }

    fn shares(&self) -> Shares {
        self.consumer.shares()
    }

    fn class(&self) -> ExportClass {
        if self.consumer.is_protected() { ExportClass::Protected } else { ExportClass::Other }
    }
}

pub(crate) struct PoolWorker {
    config: PoolConfig,
    clock: GatewayClock,
    ring: WorkerRing,
    door: Arc<WorkerDoor>,
    commands: Receiver<WorkerCommand>,
    buffers: BufferPool,
    memory: PoolMemory,
    stage: PoolStage,
    emulated: Option<Box<EmulatedVolume>>,
    exports: Slab<WorkerExport>,
    /// The keys of exports that have an upstream.
    upstreams: Vec<usize>,
    sessions: Slab<ClientSession>,
    requests: Slab<ClientRequest>,
    /// What is to be done for each export.
    chores: ChoreLines<WorkerChore>,
    /// Sessions to attend to, by the class of their export.
    attend: [VecDeque<usize>; 2],
    /// The last turn ended before all was dispatched that may be.
    dispatches_more: bool,
    /// Some protected export has sessions, or had some at the last housekeeping.
    is_beside_protected: bool,
    /// Sessions that wait for room, in the order in which they began to wait.
    stalled: VecDeque<usize>,
    /// Of these, from the front, that have not been looked at since room came back.
    resuming: usize,
    finished: Vec<FinishedIo>,
    /// The work that upstreams have finished; a field only so that its memory is used again.
    done: Vec<UpstreamEvent>,
    /// The time when the scheduler wants to be asked again.
    not_before: Option<Instant>,
    next_housekeeping: Instant,
    /// The time of the next look for silent volumes, if that is earlier because requests wait for the window.
    next_watch: Option<Instant>,
    /// Some export is removed and may still be waiting for its last user.
    has_removed: bool,
    drain: Option<WorkerDrain>,
    /// Sessions that the next process goes on with.
    suspended: Vec<SuspendedSession>,
    complaints: WorkerComplaints,
}

#[derive(Clone, Copy)]
struct WorkerDrain {
    deadline: Instant,
    fate: SessionFate,
    cut_off: Option<usize>,
}

/// The outcome of a worker's drain.
#[derive(Debug, Default)]
pub(crate) struct WorkerEnd {
    /// Sessions that were cut off with requests unanswered.
    pub(crate) cut_off: usize,
    /// Sessions that the next process goes on with.
    pub(crate) suspended: Vec<SuspendedSession>,
}

#[derive(Default)]
struct WorkerComplaints {
    last: Option<Instant>,
    suppressed: u64,
}

/// The parts of a worker.
pub(crate) struct WorkerParts {
    pub(crate) config: PoolConfig,
    pub(crate) partners: PoolPartners,
    pub(crate) clock: GatewayClock,
    pub(crate) door: Arc<WorkerDoor>,
    pub(crate) commands: Receiver<WorkerCommand>,
    pub(crate) emulated: Option<Box<EmulatedVolume>>,
    pub(crate) exports: Vec<NewExport>,
}

impl PoolWorker {
    /// A worker for the calling thread.
    ///
    /// # Errors
    /// When the kernel gives no ring.
    pub(crate) fn new(parts: WorkerParts) -> io::Result<Self> {
        let now = parts.clock.now();
        let limits = &parts.config.limits;
        let mut worker = Self {
            ring: WorkerRing::new(
                WORKER_ENTRIES,
                CompletionWatch::WhenWorthwhile,
                Arc::clone(parts.door.bell()),
            )?,
            buffers: BufferPool::new(RECYCLED),
            memory: PoolMemory::new(limits),
            stage: PoolStage::new(&parts.config, parts.partners, now),
            config: parts.config,
            clock: parts.clock,
            door: parts.door,
            commands: parts.commands,
            emulated: parts.emulated,
            exports: Slab::new(),
            upstreams: Vec::new(),
            sessions: Slab::new(),
            requests: Slab::new(),
            chores: ChoreLines::default(),
            attend: Default::default(),
            dispatches_more: false,
            is_beside_protected: false,
            stalled: VecDeque::new(),
            resuming: 0,
            finished: Vec::new(),
            done: Vec::new(),
            not_before: None,
            next_housekeeping: now + HOUSEKEEPING,
            next_watch: None,
            has_removed: false,
            drain: None,
            suspended: Vec::new(),
            complaints: WorkerComplaints::default(),
        };
        for export in parts.exports {
            worker.add_export(export, now);
        }
        Ok(worker)
    }

    /// Serves until drained.
    ///
    /// # Errors
    /// When the ring fails.
    pub(crate) fn run(&mut self) -> io::Result<WorkerEnd> {
        loop {
            let timeout = self.timeout();
            self.ring.submit_and_wait(timeout)?;
            if let Some(end) = self.turn(self.clock.now()) {
                return Ok(end);
            }
        }
    }

    /// Handles what completed and what is due, and begins what follows. Returns the outcome of a drain, once
    /// it has come to its end.
    fn turn(&mut self, mut now: Instant) -> Option<WorkerEnd> {
        self.take_completions(now);
        self.take_commands(now);
        self.resume_stalled();
        for _ in 0..PROTECTED_ROUNDS {
            let worked = self.do_chores(ExportClass::Protected, now);
            self.attend(ExportClass::Protected, now);
            if !worked || self.drain.is_some() || !self.chores.has(ExportClass::Other) {
                break;
            }
            self.dispatch(now);
            // Now, and not after what is to be done for others.
            self.ring.submit_now();
            now = self.clock.now();
            self.take_completions(now);
        }
        self.do_chores(ExportClass::Other, now);
        self.buffers.release_some();
        self.advance_emulated(now);
        self.step_law(now);
        if now >= self.next_housekeeping {
            self.housekeeping(now);
        }
        if self.next_watch.is_some_and(|next| next <= now) {
            self.watch_volumes(VolumeWatch::Contended, now);
        }
        self.dispatch(now);
        self.turn_upstreams(now);
        self.attend(ExportClass::Protected, now);
        self.attend(ExportClass::Other, now);
        self.drained(now)
    }

    /// Has what has completed wait for its export's turn.
    fn take_completions(&mut self, now: Instant) {
        while let Some(completed) = self.ring.completed() {
            self.put_off(completed, now);
        }
    }

    /// Disconnects every client and refuses every command, after a failure: no thread would answer them any
    /// more.
    pub(crate) fn hang_up(&mut self) {
        self.commands = channel().1;
        self.chores = ChoreLines::default();
        for (_, session) in &self.sessions {
            let _ = rustix::net::shutdown(&session.socket, Shutdown::Both);
        }
        for (_, export) in &mut self.exports {
            if let ExportVolume::Upstream(upstream) = &mut export.volume {
                upstream.hang_up();
            }
        }
    }

    /// Returns the longest wait for a completion; `None` for ever.
    fn timeout(&self) -> Option<Duration> {
        let resumes = (self.memory.has_returned() || self.resuming > 0) && !self.stalled.is_empty();
        if resumes || self.has_more() || self.buffers.releases_more() {
            return Some(Duration::ZERO);
        }
        // A removed export may be waiting for a handshake, or for the thread that removed it, and they do not
        // say when they are done.
        let busy = !self.sessions.is_empty() || self.drain.is_some() || self.has_removed;
        let housekeeping = busy.then_some(self.next_housekeeping);
        let device = self.emulated.as_ref().and_then(|emulated| emulated.next_event());
        let upstream = self.next_upstream_event();
        let next = [housekeeping, self.next_watch, device, upstream, self.not_before, self.stage.next_step()]
            .into_iter()
            .flatten()
            .min()?;
        Some(next.saturating_since(self.clock.now()))
    }

    fn completed(&mut self, completed: CompletedOperation, now: Instant) {
        let CompletedOperation { token, result, held } = completed;
        match (token, held) {
            (RingToken::Received { session }, LentMemory::Buffer(buffer)) => {
                let entry = &mut self.sessions[session];
                entry.receiving = false;
                entry.input.received(buffer, *result.as_ref().unwrap_or(&0));
                self.received(session, result, now);
            }
            (RingToken::Sent { session }, LentMemory::Replies(message)) => {
                self.sent(session, result, message, now);
            }
            (RingToken::Request { request } | RingToken::Cached { request }, held) => {
                self.file_completed(request, CompletedOperation { token, result, held }, now);
            }
            (RingToken::Synced { export }, _) => {
                self.volume_answered(export, VolumeOperation::Sync, now);
                self.synced(export, result.map(drop).map_err(|error| errno(&error)), now);
            }
            (RingToken::UpstreamReceived { export, link }, LentMemory::Buffer(buffer)) => {
                self.at_upstream(export, now, |upstream, hands| {
                    upstream.received(link, result, buffer, hands);
                });
                self.forget_if_removed(export, now);
            }
            (RingToken::UpstreamSent { export, link }, LentMemory::Requests(message)) => {
                self.at_upstream(export, now, |upstream, hands| upstream.sent(link, result, message, hands));
                self.forget_if_removed(export, now);
            }
            (RingToken::Kicked { session, watch }, LentMemory::Event(kick)) => {
                self.kicked(session, watch, kick, now);
            }
            (RingToken::Fetched { session, tag }, _) => self.fetched(session, tag, result, now),
            (RingToken::Signalled { session }, LentMemory::Event(_)) => self.signalled(session, now),
            (token, memory) => unreachable!("{token:?} does not own {memory:?}"),
        }
    }
    /// An operation of a request on its file has completed.
    fn file_completed(&mut self, key: usize, completed: CompletedOperation, now: Instant) {
        let ClientRequest { export, operation, session, .. } = self.requests[key];
        if let RingToken::Request { .. } = completed.token {
            self.volume_answered(export, VolumeOperation::of(&operation), now);
        } else if completed.result.is_ok() {
            self.probe_answered(export, VolumeOperation::Read, now);
        }
        // No client takes the data: the rest of it is not read.
        let only_reads = matches!(operation, CheckedOperation::Read { .. } | CheckedOperation::Cache { .. });
        if only_reads && self.sessions[session].phase == SessionPhase::Closed {
            if let LentMemory::Buffer(buffer) = completed.held {
                self.buffers.put(buffer);
            }
            return self.backend_done(key, Err(Errno::Shutdown), false, now);
        }
        let WorkerExport { volume: ExportVolume::File(file), path, .. } = &mut self.exports[export] else {
            unreachable!("only files complete requests through the ring");
        };
        let mut ring = FileRing { ring: &mut self.ring, path, door: &self.door, now };
        let is_durable = is_durable(&self.requests[key].operation);
        match file.advance(&mut ring, &mut self.buffers, key, &mut self.requests[key], completed) {
            RequestProgress::Working => {}
            RequestProgress::Done { result, sync } => {
                self.notice_shrinkage(export, result.is_err() || (is_durable && !sync));
                self.release_blocks(key, now);
                self.over_beside(export, key, now);
                self.backend_done(key, result, sync, now);
            }
            RequestProgress::ReportedLoss(errno) => {
                self.notice_shrinkage(export, true);
                self.poison(export, DataLoss::Reported(errno));
                self.release_blocks(key, now);
                self.over_beside(export, key, now);
                self.backend_done(key, Err(errno), false, now);
            }
        }
    }
}
