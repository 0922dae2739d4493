//! Disks of virtual machines: requests out of their rings, and results into them.

use std::sync::Arc;

use tidegate_nbd::{CheckedOperation, Errno};
use tidegate_units::Instant;
use tidegate_vhost::{CompletedRequest, DiskRequest, DiskRing, EventDescriptor, MOST_QUEUES, RingError};
use tracing::warn;

use super::PoolWorker;
use super::chores::REQUESTS_AT_ONCE;
use crate::disk::{DiskOrder, JudgedRequest, StartedRing, TakenRequest, judge, status_of};
use crate::request::{ClientRequest, memory_of};
use crate::ring::RingToken;
use crate::session::{MemoryWait, SessionPhase};

/// The bytes of a write that count as one of [`REQUESTS_AT_ONCE`] more: some 10 to 30 µs to copy.
const COPIED_AS_ONE: usize = 64 << 10;

/// The outcome of a look into a ring.
enum RingLook {
    /// Nothing is left in it.
    Empty,
    /// The session waits for room.
    Stalled,
    /// The session is closed.
    Closed,
}

impl PoolWorker {
    /// An export's volume has another size: machines hear of it, and may use all of it first.
    pub(super) fn resize_disks(&mut self, export: u64, size: u64) {
        for (_, session) in &mut self.sessions {
            if let Some(disk) = &session.disk
                && self.exports[session.export].id == export
            {
                session.terms.geometry.size = size;
                disk.size.change(size);
            }
        }
    }

    /// Carries out what a front end wants. One that is gone already wants nothing: returns false then.
    pub(super) fn disk_order(&mut self, id: u64, order: DiskOrder, now: Instant) -> bool {
        let of_disk =
            |disk: &Option<Box<crate::disk::SessionDisk>>| disk.as_ref().is_some_and(|disk| disk.id == id);
        let found = self.sessions.iter_mut().find(|(_, session)| of_disk(&session.disk));
        let Some((key, session)) = found.filter(|(_, session)| session.phase == SessionPhase::Open) else {
            return false;
        };
        let Some(disk) = &mut session.disk else { return false };
        match order {
            DiskOrder::Memory(memory) => disk.memory = memory,
            DiskOrder::Call { index, call } => {
                disk.calls[usize::from(index)] = call.map(Arc::new);
                // Results that nothing could be told of until now.
                if let Some((started, _)) = disk.started(index) {
                    (started.has_results, started.has_new_call) = (true, true);
                }
                self.attend_to(key);
            }
            DiskOrder::Cache { may_cache } => disk.may_cache = may_cache,
            DiskOrder::Start { index, ring } => self.start_ring(key, index, *ring, now),
            DiskOrder::Stop { index, reply } => match disk.started(index) {
                Some((started, _)) => {
                    started.ring.stop();
                    started.stopping = Some(reply);
                    self.end_rests(now);
                    self.take_from_rings(key, now);
                }
                // The front end may have gone.
                None => drop(reply.send(None)),
            },
            DiskOrder::End(reason) => self.close(key, &reason, now),
        }
        true
    }

    fn start_ring(&mut self, key: usize, index: u16, ring: DiskRing, now: Instant) {
        let Some(disk) = &mut self.sessions[key].disk else { return };
        let watch = disk.watches.insert(index);
        let kick = Arc::clone(ring.kick());
        disk.start(
            index,
            StartedRing {
                ring,
                taken: 0,
                watch: Some(watch),
                has_results: true,
                has_new_call: true,
                stopping: None,
            },
        );
        self.ring.watch(RingToken::Kicked { session: key, watch }, kick);
        self.take_from_rings(key, now);
        self.attend_to(key);
    }

    /// A guest says that there are requests in a ring, or the watch for that has ended.
    pub(super) fn kicked(&mut self, key: usize, watch: usize, kick: Arc<EventDescriptor>, now: Instant) {
        let session = &mut self.sessions[key];
        let Some(disk) = &mut session.disk else { return };
        let index = disk.watches[watch];
        match disk.started(index) {
            Some((started, _)) if started.watch == Some(watch) => {
                kick.take();
                self.ring.watch(RingToken::Kicked { session: key, watch }, kick);
                // One that waits for room has its turn after those that have waited longer.
                if !session.stalled {
                    self.take_from_rings(key, now);
                }
            }
            _ => {
                disk.watches.remove(watch);
                self.remove_if_gone(key, now);
            }
        }
    }

    /// A guest was told of results.
    pub(super) fn signalled(&mut self, key: usize, now: Instant) {
        if let Some(disk) = &mut self.sessions[key].disk {
            disk.signals -= 1;
        }
        self.attend_to(key);
        self.remove_if_gone(key, now);
    }

    /// Takes the requests that are in a disk's rings, until a bound is reached.
    pub(super) fn take_from_rings(&mut self, key: usize, now: Instant) {
        let used = self.begin_memory_use(key);
        self.look_into_rings(key, now);
        self.end_memory_use(key, used);
    }

    fn look_into_rings(&mut self, key: usize, now: Instant) {
        let Some(disk) = &mut self.sessions[key].disk else { return };
        if disk.memory_watch.rests() {
            return;
        }
        let rings = disk.rings.len();
        // Each ring is the first one now and then: the bounds are the session's.
        let first = disk.first;
        disk.first = (first + 1).checked_rem(rings).unwrap_or(0);
        let mut left = REQUESTS_AT_ONCE;
        for index in (first..rings).chain(0..first) {
            match self.take_from_ring(key, index as u16, &mut left, now) {
                Ok(RingLook::Empty) => {}
                Ok(RingLook::Stalled) => break,
                Ok(RingLook::Closed) => return,
                Err(error) => return self.close(key, &format!("the disk ends: {error}"), now),
            }
        }
        // A ring may have stopped.
        self.attend_to(key);
    }

    fn take_from_ring(
        &mut self,
        key: usize,
        index: u16,
        left: &mut usize,
        now: Instant,
    ) -> Result<RingLook, RingError> {
        loop {
            let session = &mut self.sessions[key];
            // A drained disk leaves what comes to the next gateway.
            if session.phase != SessionPhase::Open || self.drain.is_some() {
                return Ok(RingLook::Closed);
            }
            let export = &mut self.exports[session.export];
            let Some(disk) = &mut session.disk else { return Ok(RingLook::Closed) };
            // Not by `started`: other parts of the disk are needed beside it.
            let place = disk.rings.get_mut(usize::from(index)).and_then(Option::as_mut);
            let (Some(memory), Some(started)) = (&disk.memory, place) else {
                return Ok(RingLook::Empty);
            };
            if session.requests >= self.config.limits.session_requests || !export.consumer.has_room() {
                session.memory_wait = None;
                self.stall(key);
                return Ok(RingLook::Stalled);
            }
            if *left == 0 {
                self.read_later(key);
                return Ok(RingLook::Stalled);
            }
            *left -= 1;
            let Some(request) = started.ring.next(memory)? else {
                if !started.ring.is_stopping() && started.ring.listen(memory)? {
                    continue;
                }
                return Ok(RingLook::Empty);
            };
            started.ring.hush(memory)?;
            (session.active, session.used) = (now, true);
            let operation = match judge(&session.terms, request.command, disk.may_cache) {
                Ok(JudgedRequest::Operation(operation)) => operation,
                Ok(JudgedRequest::Identify) => {
                    started.ring.complete(memory, &request, &CompletedRequest::Serial(&disk.serial))?;
                    started.has_results = true;
                    continue;
                }
                Ok(JudgedRequest::Refused(status)) => {
                    export.consumer.errors.count_mistake();
                    started.ring.complete(memory, &request, &CompletedRequest::Status(status))?;
                    started.has_results = true;
                    continue;
                }
                Err(errno) => {
                    self.refuse_disk_request(key, index, &request, errno)?;
                    continue;
                }
            };
            let charged = memory_of(&operation, session.terms.geometry.blocks.minimum());
            if !self.memory.allowance(export.account, &mut session.bytes).grant(charged) {
                started.ring.put_back(&request);
                let returns = self.memory.returns(export.account);
                session.memory_wait.get_or_insert(MemoryWait { since: now, returns });
                self.stall(key);
                return Ok(RingLook::Stalled);
            }
            session.memory_wait = None;
            session.requests += 1;
            started.taken += 1;
            let mut buffer = None;
            let mut read = Ok(());
            if let CheckedOperation::Write { .. } = operation {
                let mut payload = self.buffers.take(charged as usize);
                read = started.ring.read_data(memory, &request, &mut payload);
                *left = left.saturating_sub(payload.len() / COPIED_AS_ONE);
                buffer = Some(payload);
            }
            let export = session.export;
            let taken = TakenRequest { ring: index, request };
            let cookie = disk.requests.insert(taken) as u64;
            let request = self.requests.insert(ClientRequest {
                buffer,
                charged,
                ..ClientRequest::new(key, export, cookie, operation, now)
            });
            if read.is_err() {
                // Gives back what it has; the disk ends then.
                self.answer(request, Err(Errno::Io), now);
                read?;
            } else {
                self.enqueue(request, now);
            }
        }
    }

    fn refuse_disk_request(
        &mut self,
        key: usize,
        index: u16,
        request: &DiskRequest,
        errno: Errno,
    ) -> Result<(), RingError> {
        let session = &mut self.sessions[key];
        let consumer = &mut self.exports[session.export].consumer;
        consumer.errors.count_mistake();
        if !std::mem::replace(&mut session.complained, true) {
            warn!(
                export = %consumer.name(), peer = session.peer,
                "a request is refused: {errno}; further ones of this disk are not logged"
            );
        }
        if let Some(disk) = &mut session.disk
            && let Some((started, memory)) = disk.started(index)
        {
            started.has_results = true;
            started.ring.complete(memory, request, &CompletedRequest::Status(status_of(Err(errno))))?;
        }
        Ok(())
    }

    /// Puts the result of a request into its ring, or drops it when the session is closed.
    pub(super) fn answer_disk(&mut self, request: ClientRequest, result: Result<(), Errno>, now: Instant) {
        let session = &mut self.sessions[request.session];
        if let Some(disk) = &mut session.disk
            && disk.memory_watch.rests()
            && session.phase != SessionPhase::Closed
        {
            return disk.memory_watch.keep((request, result));
        }
        let key = request.session;
        let used = self.begin_memory_use(key);
        self.put_into_ring(request, result, now);
        self.end_memory_use(key, used);
    }

    pub(super) fn put_into_ring(&mut self, request: ClientRequest, result: Result<(), Errno>, now: Instant) {
        let key = request.session;
        let session = &mut self.sessions[key];
        let account = self.exports[session.export].account;
        session.requests -= 1;
        self.memory.release(account, &mut session.bytes, request.charged);
        let Some(disk) = &mut session.disk else { return };
        let taken = disk.requests.remove(request.cookie as usize);
        let mut put = Ok(());
        if let Some((started, memory)) = disk.started(taken.ring) {
            let completed = match (result, request.operation, &request.buffer) {
                (Ok(()), CheckedOperation::Read { length, .. }, Some(data)) => {
                    CompletedRequest::Data(&data[..length as usize])
                }
                _ => CompletedRequest::Status(status_of(result)),
            };
            put = started.ring.complete(memory, &taken.request, &completed);
            started.taken -= 1;
            started.has_results = true;
        }
        if let Some(buffer) = request.buffer {
            self.buffers.put(buffer);
        }
        if session.phase == SessionPhase::Closed {
            self.remove_if_gone(key, now);
        } else if let Err(error) = put {
            self.close(key, &format!("the disk ends: {error}"), now);
        } else {
            self.attend_to(key);
        }
    }

    /// Tells a guest of results, and the front end of rings that have stopped. Called once per turn.
    pub(super) fn attend_to_disk(&mut self, key: usize, now: Instant) {
        let used = self.begin_memory_use(key);
        self.tell_guest(key, now);
        self.end_memory_use(key, used);
    }

    fn tell_guest(&mut self, key: usize, now: Instant) {
        let session = &mut self.sessions[key];
        let Some(disk) = &mut session.disk else { return };
        let (mut signals, mut ended, mut failure) = (Vec::new(), Vec::new(), None);
        let rests = disk.memory_watch.rests();
        for (index, place) in disk.rings.iter_mut().enumerate().filter(|_| !rests) {
            let (Some(memory), Some(started)) = (&disk.memory, place.as_mut()) else { continue };
            // One for each ring, or the front end lets none of them complete.
            let may_signal = disk.signals + signals.len() < usize::from(MOST_QUEUES);
            if may_signal
                && std::mem::take(&mut started.has_results)
                && let Some(call) = &disk.calls[index]
            {
                let is_new = std::mem::take(&mut started.has_new_call);
                match started.ring.wants_signal(memory) {
                    Ok(wanted) if wanted || is_new => signals.push(Arc::clone(call)),
                    Ok(_) => {}
                    Err(error) => failure = Some(error),
                }
            }
            if started.taken == 0
                && !started.ring.owes()
                && let Some(reply) = started.stopping.take()
            {
                let base = started.ring.base();
                ended.extend(started.watch);
                *place = None;
                // Last, as the front end may then end what the ring had. It may have gone.
                let _ = reply.send(Some(base));
            }
        }
        disk.signals += signals.len();
        let is_over = self.drain.is_some() && session.requests == 0 && !rests;
        signals.into_iter().for_each(|call| self.signal(key, call));
        ended.into_iter().for_each(|watch| self.end_watch(key, watch));
        if let Some(error) = failure {
            self.close(key, &format!("the disk ends: {error}"), now);
        } else if is_over {
            self.close(key, "drained", now);
        }
    }

    fn signal(&mut self, key: usize, call: Arc<EventDescriptor>) {
        self.ring.signal(RingToken::Signalled { session: key }, call);
    }

    fn end_watch(&mut self, key: usize, watch: usize) {
        self.ring.cancel(RingToken::Kicked { session: key, watch });
    }

    /// Lets the rings of a closed session go. The results of their requests under way are dropped: the next
    /// gateway does these requests again.
    pub(super) fn release_rings(&mut self, key: usize) {
        let Some(disk) = &mut self.sessions[key].disk else { return };
        disk.rings.iter_mut().for_each(|place| *place = None);
        let watches: Vec<usize> = disk.watches.iter().map(|(watch, _)| watch).collect();
        let is_signalling = disk.signals > 0;
        watches.into_iter().for_each(|watch| self.end_watch(key, watch));
        if is_signalling {
            // The front end has the event as well: if it has filled the counter, a signal waits for ever.
            self.ring.cancel(RingToken::Signalled { session: key });
        }
    }
}
