//! A pool's worker: one thread that owns the ring, the sessions, the stage and the backend.
//!
//! Each turn: wait, handle what completed, step the law, dispatch, send. Nothing in here blocks, and nothing else
//! touches what it owns; other threads send it [`Command`]s.

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, channel};
use std::time::Duration;

use rustix::net::Shutdown;
use slab::Slab;
use tidegate_control::LoopConfig;
use tidegate_nbd::{Errno, Geometry, Operation};
use tidegate_sched::Pull;
use tidegate_units::{Bytes, Instant};
use tracing::{debug, error, info, warn};

use crate::backend::{Emulated, Finished, Progress, Volume, errno};
use crate::buffer::BufferPool;
use crate::clock::Clock;
use crate::config::{ExportConfig, PoolConfig, PoolLimits};
use crate::directory::{Door, Pin};
use crate::input::Parsed;
use crate::memory::Memory;
use crate::message::Reply;
use crate::request::Request;
use crate::ring::{Completed, Held, Ring, Token};
use crate::session::{NewSession, Phase, Session};
use crate::stage::{Consumer, Stage, age_slot};
use crate::stats::PoolSnapshot;

/// Payload buffers kept for reuse; a small part of what a pool may occupy, and enough for its working set.
const RECYCLED: usize = 32 << 20;

/// How long a drained session may take to hang up once everything is answered.
const LINGER: Duration = Duration::from_secs(1);

/// How often deadlines of sessions are looked at.
const HOUSEKEEPING: Duration = Duration::from_millis(250);

/// At most one line per this time about failed requests; the number of those not told is in the next line.
const COMPLAINT_INTERVAL: Duration = Duration::from_secs(1);

/// What other threads ask of a worker.
#[derive(Debug)]
pub(crate) enum Command {
    Session(Box<NewSession>),
    Snapshot(SyncSender<PoolSnapshot>),
    Change(Box<PoolChange>),
    /// Answer what is here, then end; cut off what is left at this time.
    Drain(Instant),
}

/// A new configuration of a pool, its files already open: it cannot fail any more.
#[derive(Debug)]
pub(crate) struct PoolChange {
    pub(crate) depth: u32,
    pub(crate) law: Option<LoopConfig>,
    pub(crate) limits: PoolLimits,
    pub(crate) changed: Vec<(u64, ExportConfig)>,
    pub(crate) added: Vec<NewExport>,
    pub(crate) removed: Vec<u64>,
}

/// An export, opened.
#[derive(Debug)]
pub(crate) struct NewExport {
    pub(crate) id: u64,
    pub(crate) volume: Volume,
    pub(crate) config: ExportConfig,
    pub(crate) pin: Pin,
}

struct Export {
    id: u64,
    volume: Volume,
    geometry: Geometry,
    consumer: Consumer,
    sessions: usize,
    removed: bool,
    pin: Pin,
    syncs: Syncs,
}

/// Requests that wait for an export's data to be on stable storage. One sync runs at a time and covers everything
/// that was complete when it began; who comes later shares the next one.
#[derive(Default)]
struct Syncs {
    busy: bool,
    /// A sync has failed. The kernel tells of a failed write-back once and takes the data for clean then, so that
    /// the next sync would succeed without it.
    failed: Option<Errno>,
    running: Vec<usize>,
    waiting: Vec<usize>,
}

pub(crate) struct Worker {
    config: PoolConfig,
    clock: Clock,
    ring: Ring,
    door: Arc<Door>,
    commands: Receiver<Command>,
    buffers: BufferPool,
    memory: Memory,
    stage: Stage,
    emulated: Option<Box<Emulated>>,
    exports: Slab<Export>,
    sessions: Slab<Session>,
    requests: Slab<Request>,
    /// Sessions to attend to before the turn ends.
    attend: Vec<usize>,
    /// Sessions that wait for room, in the order in which they began to wait.
    stalled: VecDeque<usize>,
    finished: Vec<Finished>,
    /// When the scheduler wants to be asked again.
    not_before: Option<Instant>,
    next_housekeeping: Instant,
    /// Some export is removed and may still be waiting for its last user.
    has_removed: bool,
    drain: Option<Drain>,
    complaints: Complaints,
}

#[derive(Clone, Copy)]
struct Drain {
    deadline: Instant,
    cut_off: Option<usize>,
}

#[derive(Default)]
struct Complaints {
    last: Option<Instant>,
    suppressed: u64,
}

/// What a worker is made of.
pub(crate) struct Parts {
    pub(crate) config: PoolConfig,
    pub(crate) clock: Clock,
    pub(crate) door: Arc<Door>,
    pub(crate) commands: Receiver<Command>,
    pub(crate) emulated: Option<Box<Emulated>>,
    pub(crate) exports: Vec<NewExport>,
}

impl Worker {
    /// A worker for the calling thread.
    ///
    /// # Errors
    /// When the kernel gives no ring.
    pub(crate) fn new(parts: Parts) -> io::Result<Self> {
        let now = parts.clock.now();
        let limits = &parts.config.limits;
        let mut worker = Self {
            ring: Ring::new()?,
            buffers: BufferPool::new(RECYCLED),
            memory: Memory::new(limits.pool_bytes.get(), limits.session_bytes.get()),
            stage: Stage::new(&parts.config, now),
            config: parts.config,
            clock: parts.clock,
            door: parts.door,
            commands: parts.commands,
            emulated: parts.emulated,
            exports: Slab::new(),
            sessions: Slab::new(),
            requests: Slab::new(),
            attend: Vec::new(),
            stalled: VecDeque::new(),
            finished: Vec::new(),
            not_before: None,
            next_housekeeping: now + HOUSEKEEPING,
            has_removed: false,
            drain: None,
            complaints: Complaints::default(),
        };
        for export in parts.exports {
            worker.add_export(export, now);
        }
        worker.ring.wait_readable(Token::Wake, worker.door.wake());
        Ok(worker)
    }

    /// Serves until drained; says how many sessions were cut off with requests unanswered.
    ///
    /// # Errors
    /// When the ring fails.
    pub(crate) fn run(&mut self) -> io::Result<usize> {
        loop {
            let timeout = self.timeout();
            self.ring.submit_and_wait(timeout)?;
            let now = self.clock.now();
            while let Some(completed) = self.ring.completed() {
                self.completed(completed, now);
            }
            self.advance_emulated(now);
            self.step_law(now);
            if now >= self.next_housekeeping {
                self.housekeeping(now);
            }
            self.resume_stalled(now);
            self.dispatch(now);
            self.attend(now);
            if let Some(cut_off) = self.drained() {
                return Ok(cut_off);
            }
        }
    }

    /// Disconnects every client and refuses every command, after a failure: nobody would answer them any more.
    pub(crate) fn hang_up(&mut self) {
        self.commands = channel().1;
        for (_, session) in &self.sessions {
            let _ = rustix::net::shutdown(&session.socket, Shutdown::Both);
        }
    }

    /// How long to wait for a completion; `None` for ever.
    fn timeout(&self) -> Option<Duration> {
        if self.memory.has_released() && !self.stalled.is_empty() {
            return Some(Duration::ZERO);
        }
        let housekeeping =
            (!self.sessions.is_empty() || self.drain.is_some()).then_some(self.next_housekeeping);
        let device = self.emulated.as_ref().and_then(|emulated| emulated.next_event());
        let next =
            [housekeeping, device, self.not_before, self.stage.next_step()].into_iter().flatten().min()?;
        Some(next.saturating_since(self.clock.now()))
    }

    fn completed(&mut self, completed: Completed, now: Instant) {
        let Completed { token, result, held } = completed;
        match (token, held) {
            (Token::Wake, _) => self.take_commands(now),
            (Token::Received { session }, Held::Buffer(buffer)) => {
                let entry = &mut self.sessions[session];
                entry.receiving = None;
                entry.input.received(buffer, *result.as_ref().unwrap_or(&0));
                self.received(session, result, now);
            }
            (Token::Sent { session }, Held::Message(message)) => self.sent(session, result, message, now),
            (Token::Request { request: key }, held) => {
                let request = &mut self.requests[key];
                let Volume::File(file) = &self.exports[request.export].volume else {
                    unreachable!("only files complete requests through the ring");
                };
                match file.advance(&mut self.ring, &mut self.buffers, key, request, result, held) {
                    Progress::Working => {}
                    Progress::Done { result, sync } => self.backend_done(key, result, sync, now),
                }
            }
            (Token::Synced { export }, _) => {
                self.synced(export, result.map(drop).map_err(|error| errno(&error)), now);
            }
            (token, held) => unreachable!("{token:?} does not hold {held:?}"),
        }
    }

    // ---- commands from other threads

    fn take_commands(&mut self, now: Instant) {
        let mut counter = [0; 8];
        // Nothing to read means a wake-up without a cause, which does no harm.
        let _ = rustix::io::read(self.door.wake(), &mut counter);
        self.ring.wait_readable(Token::Wake, self.door.wake());
        while let Ok(command) = self.commands.try_recv() {
            match command {
                Command::Session(new) => self.open(*new, now),
                // Whoever asked may have gone.
                Command::Snapshot(reply) => drop(reply.send(self.snapshot(now))),
                Command::Change(change) => self.change(*change, now),
                Command::Drain(deadline) => self.begin_drain(deadline, now),
            }
        }
    }

    fn add_export(&mut self, new: NewExport, now: Instant) {
        let consumer = self.stage.add(&new.config, now);
        let geometry = new.volume.geometry(new.config.read_only);
        self.exports.insert(Export {
            id: new.id,
            volume: new.volume,
            geometry,
            consumer,
            sessions: 0,
            removed: false,
            pin: new.pin,
            syncs: Syncs::default(),
        });
    }

    fn change(&mut self, change: PoolChange, now: Instant) {
        self.stage.reconfigure(change.depth, change.law.as_ref(), now);
        self.memory.set_limits(change.limits.pool_bytes.get(), change.limits.session_bytes.get());
        for (id, config) in &change.changed {
            if let Some((_, export)) = self.exports.iter_mut().find(|(_, export)| export.id == *id) {
                self.stage.reconfigure_consumer(&mut export.consumer, config, now);
            }
        }
        for (_, export) in &mut self.exports {
            self.stage.release(&mut export.consumer, now);
            export.removed |= change.removed.contains(&export.id);
        }
        self.config.depth = change.depth;
        self.config.law = change.law;
        self.config.limits = change.limits;
        for export in change.added {
            self.add_export(export, now);
        }
        self.forget_removed();
        info!(pool = %self.config.name, "configuration applied");
    }

    fn forget_removed(&mut self) {
        let removed = self.exports.iter().filter(|(_, export)| export.removed);
        let keys: Vec<usize> = removed.map(|(key, _)| key).collect();
        keys.into_iter().for_each(|key| self.forget_if_unused(key));
        self.has_removed = self.exports.iter().any(|(_, export)| export.removed);
    }

    /// A removed export goes with the last that uses it.
    fn forget_if_unused(&mut self, key: usize) {
        let export = &self.exports[key];
        let expected = Arc::strong_count(&export.pin) > 1;
        if export.removed
            && !expected
            && export.sessions == 0
            && export.consumer.is_idle()
            && !export.syncs.busy
        {
            let export = self.exports.remove(key);
            self.stage.remove(&export.consumer);
        }
    }

    fn snapshot(&self, now: Instant) -> PoolSnapshot {
        let consumers =
            self.exports.iter().map(|(_, export)| export.consumer.snapshot(export.sessions, export.removed));
        PoolSnapshot {
            name: self.config.name.clone(),
            at: now,
            consumers: consumers.collect(),
            sessions: self.sessions.len(),
            bytes_in_use: Bytes::new(self.memory.used()),
            bytes_in_use_peak: Bytes::new(self.memory.peak()),
            in_flight: self.exports.iter().map(|(_, export)| export.consumer.in_flight()).sum(),
            window: self.stage.window(),
            decision: self.stage.recent().back().cloned(),
            recent_decisions: self.stage.recent().iter().cloned().collect(),
            decisions: self.stage.decisions(),
        }
    }

    // ---- sessions

    fn open(&mut self, new: NewSession, now: Instant) {
        let Some((export, entry)) = self.exports.iter_mut().find(|(_, export)| export.id == new.export)
        else {
            info!(peer = new.peer, "session refused: its export has just been removed");
            return;
        };
        entry.sessions += 1;
        let name = entry.consumer.name();
        info!(pool = %self.config.name, export = %name, peer = new.peer, "session opened");
        let key = self.sessions.insert(Session::new(new, export, now));
        self.read_requests(key, now);
        if self.drain.is_some() {
            self.attend_to(key);
        }
    }

    fn received(&mut self, key: usize, result: io::Result<usize>, now: Instant) {
        let session = &mut self.sessions[key];
        match (session.phase, result) {
            (Phase::Closed, _) => self.remove_if_gone(key),
            (Phase::Lingering(_), Ok(count)) if count > 0 => {
                session.input.discard();
                self.receive(key, now);
            }
            (Phase::Lingering(_), _) => self.close(key, "drained", now),
            (Phase::Ending, _) => {}
            (Phase::Open, Ok(0)) if session.input.is_within_request() => {
                self.close(key, "the connection ended in the middle of a request", now);
            }
            (Phase::Open, Ok(0)) => self.close(key, "the client hung up", now),
            (Phase::Open, Ok(_)) => self.read_requests(key, now),
            (Phase::Open, Err(error)) if error.kind() == io::ErrorKind::Interrupted => self.receive(key, now),
            (Phase::Open, Err(error)) => self.close(key, &format!("cannot receive: {error}"), now),
        }
    }

    /// Takes the requests that have arrived, then waits for more, unless a bound is reached.
    fn read_requests(&mut self, key: usize, now: Instant) {
        loop {
            let session = &mut self.sessions[key];
            if session.phase != Phase::Open || session.receiving.is_some() {
                return;
            }
            let export = &mut self.exports[session.export];
            if session.requests >= self.config.limits.session_requests || !export.consumer.has_room() {
                return self.stall(key);
            }
            let (memory, bytes) = (&mut self.memory, &mut session.bytes);
            let parsed =
                session.input.next(&export.geometry, &mut self.buffers, |wanted| memory.grant(bytes, wanted));
            match parsed {
                Parsed::More => return self.receive(key, now),
                Parsed::Full => return self.stall(key),
                Parsed::Broken(reason) => return self.close(key, &reason, now),
                Parsed::Request { operation: Operation::Disconnect, .. } => {
                    session.phase = Phase::Ending;
                    return self.attend_to(key);
                }
                Parsed::Refused { cookie, errno } => {
                    session.requests += 1;
                    export.consumer.errors += 1;
                    if !std::mem::replace(&mut session.complained, true) {
                        let name = export.consumer.name();
                        warn!(
                            export = %name, peer = session.peer,
                            "a request is refused: {errno}; further ones of this session are not logged"
                        );
                    }
                    let frame = session.style.error(cookie, errno);
                    self.reply(key, Reply { frame, data: None, charged: 0 });
                }
                Parsed::Request { cookie, operation, payload, charged } => {
                    session.requests += 1;
                    let refused = self.drain.is_some();
                    let request = self.requests.insert(Request {
                        session: key,
                        export: session.export,
                        cookie,
                        operation,
                        buffer: payload,
                        charged,
                        arrived: now,
                        dispatched: None,
                        syncing: false,
                        done: 0,
                        cancelled: false,
                    });
                    if refused {
                        self.answer(request, Err(Errno::Shutdown), now);
                    } else if operation == Operation::Flush {
                        // Past the scheduler: what it must cover is complete at the backend already, and holding
                        // it would hold the client's commit without sparing the storage anything.
                        let export = session.export;
                        self.sync(export, request, now);
                    } else {
                        self.stage.enqueue(&mut export.consumer, request, &operation, now);
                    }
                }
            }
        }
    }

    fn receive(&mut self, key: usize, now: Instant) {
        let session = &mut self.sessions[key];
        if let Some(receive) = session.input.receive_into() {
            session.receiving = Some(now);
            let token = Token::Received { session: key };
            self.ring.receive(token, session.socket.as_fd(), receive.buffer, receive.part, receive.whole);
        }
    }

    fn stall(&mut self, key: usize) {
        if !std::mem::replace(&mut self.sessions[key].stalled, true) {
            self.stalled.push_back(key);
        }
    }

    /// Tries again to read from those that waited for room.
    fn resume_stalled(&mut self, now: Instant) {
        if !self.memory.take_released() || self.stalled.is_empty() {
            return;
        }
        for _ in 0..self.stalled.len() {
            let Some(key) = self.stalled.pop_front() else { return };
            // A session that vanished while it waited may have left its key to another.
            if let Some(session) = self.sessions.get_mut(key)
                && std::mem::take(&mut session.stalled)
            {
                self.read_requests(key, now);
            }
        }
    }

    fn reply(&mut self, key: usize, reply: Reply) {
        self.sessions[key].replies.push_back(reply);
        self.attend_to(key);
    }

    fn attend_to(&mut self, key: usize) {
        if !std::mem::replace(&mut self.sessions[key].listed, true) {
            self.attend.push(key);
        }
    }

    /// Sends what there is to send, and ends what is over.
    fn attend(&mut self, now: Instant) {
        while let Some(key) = self.attend.pop() {
            // A key may have been freed meanwhile, or given to another session, whom this does not harm.
            let Some(session) = self.sessions.get_mut(key) else { continue };
            session.listed = false;
            if session.phase == Phase::Closed {
                continue;
            }
            if !session.replies.is_empty()
                && let Some(mut message) = session.message.take()
            {
                while message.has_room()
                    && let Some(reply) = session.replies.pop_front()
                {
                    message.push(reply);
                }
                session.progress = now;
                self.ring.send(Token::Sent { session: key }, session.socket.as_fd(), message);
                continue;
            }
            if session.requests > 0 {
                continue;
            }
            match session.phase {
                Phase::Ending => self.close(key, "the client said goodbye", now),
                Phase::Open if self.drain.is_some() => self.linger(key, now),
                Phase::Open | Phase::Lingering(_) | Phase::Closed => {}
            }
        }
    }

    fn sent(
        &mut self,
        key: usize,
        result: io::Result<usize>,
        mut message: Box<crate::message::Message>,
        now: Instant,
    ) {
        let session = &mut self.sessions[key];
        let (memory, buffers) = (&mut self.memory, &mut self.buffers);
        let (requests, bytes) = (&mut session.requests, &mut session.bytes);
        let mut done = |reply: Reply| {
            *requests -= 1;
            memory.release(bytes, reply.charged);
            if let Some((buffer, _)) = reply.data {
                buffers.put(buffer);
            }
        };
        let failure = match result {
            Ok(count) if session.phase != Phase::Closed => {
                message.advance(count, &mut done);
                None
            }
            Ok(_) => Some(None),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => None,
            Err(error) => Some(Some(error)),
        };
        if let Some(error) = failure {
            message.abandon(&mut done);
            session.message = Some(message);
            match error {
                Some(error) if session.phase != Phase::Closed => {
                    self.close(key, &format!("cannot send: {error}"), now);
                }
                _ => self.remove_if_gone(key),
            }
            return;
        }
        session.progress = now;
        if !message.is_empty() {
            self.ring.send(Token::Sent { session: key }, session.socket.as_fd(), message);
            return;
        }
        session.message = Some(message);
        self.attend_to(key);
    }

    /// Everything is answered: says so to the client's kernel, and waits for it to hang up.
    fn linger(&mut self, key: usize, now: Instant) {
        let session = &mut self.sessions[key];
        session.phase = Phase::Lingering(now + LINGER);
        // Fails only when the client is gone already, which the next receive shows.
        let _ = rustix::net::shutdown(&session.socket, Shutdown::Write);
        if session.receiving.is_none() {
            session.input.discard();
            self.receive(key, now);
        }
    }

    /// Ends a session at once: cancels what is queued, lets finish what is at the backend, frees the rest.
    fn close(&mut self, key: usize, reason: &str, now: Instant) {
        let session = &mut self.sessions[key];
        if session.phase == Phase::Closed {
            return;
        }
        session.phase = Phase::Closed;
        // Makes operations on the socket complete; fails only when it is closed already.
        let _ = rustix::net::shutdown(&session.socket, Shutdown::Both);
        let mut returned = 0;
        for reply in session.replies.drain(..) {
            session.requests -= 1;
            returned += reply.charged;
            if let Some((buffer, _)) = reply.data {
                self.buffers.put(buffer);
            }
        }
        for (_, request) in &mut self.requests {
            let queued = request.dispatched.is_none() && !request.syncing;
            if request.session == key && queued && !request.cancelled {
                request.cancelled = true;
                session.requests -= 1;
                returned += std::mem::take(&mut request.charged);
                if let Some(buffer) = request.buffer.take() {
                    self.buffers.put(buffer);
                }
                Stage::cancelled(&mut self.exports[request.export].consumer, now);
            }
        }
        self.memory.release(&mut session.bytes, returned);
        let name = self.exports[session.export].consumer.name();
        info!(
            pool = %self.config.name, export = %name, peer = session.peer,
            unanswered = session.requests, "session closed: {reason}"
        );
        self.remove_if_gone(key);
    }

    fn remove_if_gone(&mut self, key: usize) {
        if !self.sessions[key].is_gone() {
            return;
        }
        let mut session = self.sessions.remove(key);
        let (payload, charged) = session.input.abandon();
        payload.into_iter().for_each(|buffer| self.buffers.put(buffer));
        self.memory.release(&mut session.bytes, charged);
        debug_assert_eq!(session.bytes, 0, "a session leaves nothing behind");
        self.exports[session.export].sessions -= 1;
        self.forget_if_unused(session.export);
    }

    // ---- requests

    fn dispatch(&mut self, now: Instant) {
        self.not_before = loop {
            match self.stage.pull(now) {
                Pull::Request { request, .. } => self.start(request, now),
                Pull::Nothing => break None,
                Pull::NotBefore(time) => break Some(time),
            }
        };
    }

    fn start(&mut self, key: usize, now: Instant) {
        let request = &mut self.requests[key];
        let export = &mut self.exports[request.export];
        if request.cancelled {
            self.stage.dropped(&mut export.consumer, now);
            self.memory.wake_waiting();
            let export = self.requests.remove(key).export;
            return self.forget_if_unused(export);
        }
        if !export.consumer.has_room() {
            self.memory.wake_waiting();
        }
        Stage::dispatched(&mut export.consumer, &request.operation);
        request.dispatched = Some(now);
        match &export.volume {
            Volume::File(file) => file.start(&mut self.ring, &mut self.buffers, key, request),
            Volume::Region { base, .. } => {
                let base = *base;
                if let Err(errno) = emulated(&mut self.emulated).start(now, key, base, request) {
                    self.backend_done(key, Err(errno), false, now);
                }
            }
        }
    }

    fn advance_emulated(&mut self, now: Instant) {
        let Some(device) = &mut self.emulated else { return };
        let mut finished = std::mem::take(&mut self.finished);
        device.advance(now, &mut finished);
        for finished in finished.drain(..) {
            match finished {
                Finished::Request(key) => {
                    let request = &mut self.requests[key];
                    let Volume::Region { base, .. } = self.exports[request.export].volume else {
                        unreachable!("only regions are on the emulated device");
                    };
                    let result = emulated(&mut self.emulated).finish(base, request, &mut self.buffers);
                    self.backend_done(key, result, false, now);
                }
                Finished::Sync { export } => self.synced(export, Ok(()), now),
            }
        }
        self.finished = finished;
    }

    /// The backend is done with a scheduled request.
    fn backend_done(&mut self, key: usize, result: Result<(), Errno>, sync: bool, now: Instant) {
        let request = &self.requests[key];
        let export = request.export;
        let consumer = &mut self.exports[export].consumer;
        let dispatched = request.dispatched.unwrap_or(now);
        self.stage.completed(consumer, &request.operation, dispatched, now, result.is_ok());
        if sync && result.is_ok() {
            self.sync(export, key, now);
        } else {
            self.answer(key, result, now);
        }
    }

    /// Has a request answered once the export's completed writes are on stable storage.
    fn sync(&mut self, export: usize, key: usize, now: Instant) {
        self.requests[key].syncing = true;
        let syncs = &mut self.exports[export].syncs;
        syncs.waiting.push(key);
        if !syncs.busy {
            self.start_sync(export, now);
        }
    }

    fn start_sync(&mut self, key: usize, now: Instant) {
        let export = &mut self.exports[key];
        export.syncs.busy = true;
        std::mem::swap(&mut export.syncs.running, &mut export.syncs.waiting);
        match &export.volume {
            Volume::File(file) => self.ring.sync(Token::Synced { export: key }, file.fd()),
            Volume::Region { .. } => {
                if let Err(errno) = emulated(&mut self.emulated).sync(now, key) {
                    self.synced(key, Err(errno), now);
                }
            }
        }
    }

    fn synced(&mut self, key: usize, result: Result<(), Errno>, now: Instant) {
        let Export { syncs, consumer, .. } = &mut self.exports[key];
        let name = consumer.name();
        syncs.busy = false;
        if let Err(errno) = result
            && syncs.failed.is_none()
        {
            syncs.failed = Some(errno);
            error!(
                pool = %self.config.name, export = %name,
                "a sync failed: {errno}; written data may be lost, and no flush of this export succeeds any more"
            );
        }
        let result = syncs.failed.map_or(Ok(()), Err);
        let covered = std::mem::take(&mut syncs.running);
        for request in covered {
            self.answer(request, result, now);
        }
        // An answer may have been the last thing that kept a removed export.
        if let Some(export) = self.exports.get(key) {
            if export.syncs.waiting.is_empty() {
                self.forget_if_unused(key);
            } else {
                self.start_sync(key, now);
            }
        }
    }

    /// Turns a request into its reply, or into nothing when its session is gone.
    fn answer(&mut self, key: usize, result: Result<(), Errno>, now: Instant) {
        let mut request = self.requests.remove(key);
        let export = &mut self.exports[request.export];
        Stage::answered(&mut export.consumer, &request.operation, request.arrived, now, result.is_ok());
        let session = &mut self.sessions[request.session];
        if let Err(errno) = result
            && self.drain.is_none()
            && self.complaints.may_speak(now)
        {
            warn!(
                pool = %self.config.name, export = %export.consumer.name(), peer = session.peer,
                also_failed = std::mem::take(&mut self.complaints.suppressed),
                "{:?} failed: {errno}", request.operation
            );
        }
        let (frame, data) = match (result, request.operation) {
            (Ok(()), Operation::Read { offset, length }) => {
                // Invariant: a read that succeeded has its data.
                let buffer = request.buffer.take().expect("a read has its data");
                (session.style.data(request.cookie, offset, length), Some((buffer, length as usize)))
            }
            (Ok(()), _) => (session.style.success(request.cookie), None),
            (Err(errno), _) => (session.style.error(request.cookie, errno), None),
        };
        if let Some(buffer) = request.buffer {
            self.buffers.put(buffer);
        }
        if session.phase == Phase::Closed {
            session.requests -= 1;
            self.memory.release(&mut session.bytes, request.charged);
            if let Some((buffer, _)) = data {
                self.buffers.put(buffer);
            }
            self.remove_if_gone(request.session);
        } else {
            self.reply(request.session, Reply { frame, data, charged: request.charged });
        }
    }

    // ---- time

    fn step_law(&mut self, now: Instant) {
        if self.stage.next_step().is_none_or(|next| next > now) {
            return;
        }
        let mut oldest = vec![[None::<Instant>; 2]; self.exports.capacity()];
        for (_, request) in &self.requests {
            if let (Some(dispatched), Some(slot)) = (request.dispatched, age_slot(&request.operation))
                && !request.syncing
            {
                let age = &mut oldest[request.export][slot];
                *age = Some(age.map_or(dispatched, |other| other.min(dispatched)));
            }
        }
        let consumers = self.exports.iter_mut().map(|(key, export)| (key, &mut export.consumer));
        self.stage.step(now, consumers, |key| oldest[key]);
        if let Some(decision) = self.stage.recent().back() {
            debug!("{decision}");
        }
    }

    fn housekeeping(&mut self, now: Instant) {
        self.next_housekeeping = now + HOUSEKEEPING;
        if self.has_removed {
            self.forget_removed();
        }
        let overdue = now - self.config.limits.reply_deadline;
        let forced = self.drain.is_some_and(|drain| drain.deadline <= now);
        if let Some(drain) = &mut self.drain
            && forced
            && drain.cut_off.is_none()
        {
            let unanswered = |session: &Session| session.phase != Phase::Closed && session.requests > 0;
            drain.cut_off = Some(self.sessions.iter().filter(|(_, session)| unanswered(session)).count());
        }
        let keys: Vec<usize> = self.sessions.iter().map(|(key, _)| key).collect();
        for key in keys {
            let session = &self.sessions[key];
            if forced {
                self.close(key, "the drain's deadline has come", now);
            } else if session.phase != Phase::Closed && session.is_sending_since(overdue) {
                self.close(key, "the client does not take its replies", now);
            } else if session.phase == Phase::Open && session.is_awaiting_payload_since(overdue) {
                self.close(key, "the client does not send the payload that it has announced", now);
            } else if matches!(session.phase, Phase::Lingering(until) if until <= now) {
                self.close(key, "drained", now);
            }
        }
    }

    fn begin_drain(&mut self, deadline: Instant, now: Instant) {
        self.drain = Some(Drain { deadline, cut_off: None });
        self.next_housekeeping = now.min(deadline);
        let keys: Vec<usize> = self.sessions.iter().map(|(key, _)| key).collect();
        keys.into_iter().for_each(|key| self.attend_to(key));
        if deadline <= now {
            self.housekeeping(now);
        }
    }

    /// Whether a drain has come to its end, and how many sessions it cut off.
    fn drained(&self) -> Option<usize> {
        let drain = self.drain?;
        // After the deadline only the kernel is waited for: it may still write to memory that is lent to it.
        let only_wake = self.ring.outstanding() <= 1;
        (self.sessions.is_empty() || (drain.cut_off.is_some() && only_wake))
            .then(|| drain.cut_off.unwrap_or(0))
    }
}

impl Complaints {
    fn may_speak(&mut self, now: Instant) -> bool {
        if self.last.is_some_and(|last| now.saturating_since(last) < COMPLAINT_INTERVAL) {
            self.suppressed += 1;
            return false;
        }
        self.last = Some(now);
        true
    }
}

/// The device under the regions of a pool.
fn emulated(device: &mut Option<Box<Emulated>>) -> &mut Emulated {
    // Invariant: exports are regions only in pools with an emulated device.
    device.as_mut().expect("a region has its device")
}
