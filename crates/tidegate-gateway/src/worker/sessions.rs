//! Sessions from their arrival to their end: the bytes read from them and sent to them, and the bounds at
//! which they wait.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{AddressFamily, Shutdown, sockopt};
use rustix::time::Timespec;
use tidegate_nbd::{CheckedOperation, Errno};
use tidegate_units::Instant;
use tracing::{info, warn};

use super::chores::{ExportClass, REQUESTS_AT_ONCE};
use super::{PoolWorker, WorkerDrain};
use crate::backend::ExportVolume;
use crate::config::PoolLimits;
use crate::input::ParsedStep;
use crate::message::{ReadyReply, ReplyMessage};
use crate::request::ClientRequest;
use crate::ring::RingToken;
use crate::seats::ConnectionSource;
use crate::session::{ClientSession, MemoryWait, SessionPhase};
use crate::stats::RefusalReason;
use crate::worker::door::{NewSession, SessionFate};

/// The time in which a drained session must hang up once everything is answered.
const LINGER: Duration = Duration::from_secs(1);

/// The longest wait of a request for memory while none of its export's memory comes back. Chosen: longer than
/// storage that works takes for anything, and much shorter than the timeout of a guest's block layer (30 s).
const MEMORY_PATIENCE: Duration = Duration::from_secs(5);

/// Returns true if a receive ended before anything came, as when it is taken back.
fn is_no_failure(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::Interrupted || error.raw_os_error() == Some(libc::ECANCELED)
}

/// Sessions that wait for room and are looked at in a turn. There may be thousands, and memory returns with each
/// reply.
const RESUMED_AT_ONCE: usize = 64;

const NO_WAIT: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// The reason for the end of a session whose client sends nothing more.
const HUNG_UP: &str = "the client hung up";

/// Returns true if the other end of a socket is closed in both directions.
fn has_hung_up(socket: &impl AsFd) -> bool {
    let mut fds = [PollFd::new(socket, PollFlags::empty())];
    // It does not wait. If it fails it has found nothing, and the next answer shows the end.
    let _ = poll(&mut fds, Some(&NO_WAIT));
    !fds[0].revents().is_empty()
}

/// Returns true if the kernel tells the end of the other process from one that closed only its sending side.
fn tells_its_end(socket: &impl AsFd) -> bool {
    matches!(sockopt::socket_domain(socket), Ok(AddressFamily::UNIX))
}

impl PoolWorker {
    pub(super) fn open(&mut self, new: NewSession, export: usize, now: Instant) {
        let entry = &mut self.exports[export];
        entry.sessions += 1;
        let name = entry.consumer.name();
        info!(pool = %self.config.name, export = %name, peer = new.peer, "session opened");
        let heard_losses = match &mut entry.volume {
            ExportVolume::Upstream(upstream) => upstream.ledger().heard_by_newcomer(),
            ExportVolume::File(_) | ExportVolume::Region { .. } => 0,
        };
        let is_beside_protected = self.is_beside_protected || entry.consumer.is_protected();
        self.set_beside_protected(is_beside_protected);
        let key = self.sessions.insert(ClientSession::new(new, export, heard_losses, now));
        if self.sessions[key].device.is_some() {
            self.fetch_all(key);
        }
        match self.drain {
            Some(WorkerDrain { fate: SessionFate::Suspend, .. }) => self.suspend(key, now),
            Some(_) => {
                self.read_requests(key, now);
                self.attend_to(key);
            }
            None => self.read_requests(key, now),
        }
    }

    pub(super) fn received(&mut self, key: usize, result: io::Result<usize>, now: Instant) {
        let session = &mut self.sessions[key];
        match (session.phase, result) {
            (SessionPhase::Closed, _) => {
                self.abandon_payload(key);
                self.remove_if_gone(key, now);
            }
            (SessionPhase::Lingering(_), Ok(count)) if count > 0 => {
                session.input.discard();
                self.receive(key, now);
            }
            (SessionPhase::Lingering(_), _) => self.close(key, "drained", now),
            (SessionPhase::Ending(_), _) => {}
            (SessionPhase::Suspending { .. }, Ok(0)) if !self.may_await_answers(key) => {
                self.close(key, HUNG_UP, now);
            }
            // The next process reads the end of a half-closed connection again.
            (SessionPhase::Suspending { .. }, Ok(_)) => self.try_to_suspend(key, now),
            (SessionPhase::Suspending { .. }, Err(error)) if is_no_failure(&error) => {
                self.try_to_suspend(key, now);
            }
            (SessionPhase::Open, Ok(0)) => self.end_input(key, now),
            (SessionPhase::Open, Ok(_)) => self.read_requests(key, now),
            (SessionPhase::Open, Err(error)) if error.kind() == io::ErrorKind::Interrupted => {
                self.receive(key, now);
            }
            (SessionPhase::Open | SessionPhase::Suspending { .. }, Err(error)) => {
                self.close(key, &format!("cannot receive: {error}"), now);
            }
        }
    }

    /// Returns true if a client that sends nothing more may be waiting for answers.
    ///
    /// Over TCP a client that has ended looks like one that closed only its sending side. It may have sent its
    /// requests again over another connection, and changed the same blocks after that: a change that still
    /// waits here must not come after those.
    fn may_await_answers(&self, key: usize) -> bool {
        let session = &self.sessions[key];
        if session.requests == 0 || has_hung_up(&session.socket) {
            return false;
        }
        let waits_to_change = |request: &ClientRequest| {
            request.session == key
                && match request.operation {
                    CheckedOperation::Write { .. } => request.dispatched.is_none(),
                    // In slices, of which the next ones wait.
                    CheckedOperation::Trim { .. } | CheckedOperation::WriteZeroes { .. } => true,
                    _ => false,
                }
        };
        tells_its_end(&session.socket) || !self.requests.iter().any(|(_, request)| waits_to_change(request))
    }

    /// The client sends nothing more. What it waits for is answered; where no process takes the first answer,
    /// that ends the session.
    fn end_input(&mut self, key: usize, now: Instant) {
        let awaits_answers = self.may_await_answers(key);
        let session = &mut self.sessions[key];
        let reason = match session.input.is_within_request() {
            true => "the connection ended in the middle of a request",
            false => HUNG_UP,
        };
        if !awaits_answers {
            return self.close(key, reason, now);
        }
        session.phase = SessionPhase::Ending(reason);
        self.abandon_payload(key);
    }

    /// Takes the requests that have arrived, then waits for more, unless a bound is reached.
    pub(super) fn read_requests(&mut self, key: usize, now: Instant) {
        if self.sessions[key].disk.is_some() {
            return self.take_from_rings(key, now);
        }
        if self.sessions[key].device.is_some() {
            return self.take_from_device(key, now);
        }
        let mut left = REQUESTS_AT_ONCE;
        loop {
            let session = &mut self.sessions[key];
            if session.phase != SessionPhase::Open || session.receiving {
                return;
            }
            if left == 0 {
                return self.read_later(key);
            }
            left -= 1;
            let export = &mut self.exports[session.export];
            if session.requests >= self.config.limits.session_requests || !export.consumer.has_room() {
                session.memory_wait = None;
                return self.stall(key);
            }
            let mut allowance = self.memory.allowance(export.account, &mut session.bytes);
            let parsed = session.input.next(&session.terms, &mut self.buffers, &mut allowance);
            match parsed {
                ParsedStep::More if session.input.take_ahead() => {}
                ParsedStep::More => return self.receive(key, now),
                ParsedStep::Full => {
                    let returns = self.memory.returns(export.account);
                    session.memory_wait.get_or_insert(MemoryWait { since: now, returns });
                    return self.stall(key);
                }
                ParsedStep::Broken(reason) => return self.close(key, &reason, now),
                ParsedStep::Request { operation: CheckedOperation::Disconnect, .. } => {
                    session.phase = SessionPhase::Ending("the client said goodbye");
                    return self.attend_to(key);
                }
                ParsedStep::Refused { request, errno } => {
                    session.requests += 1;
                    (session.active, session.used) = (now, true);
                    export.consumer.errors.count_refused(errno, now);
                    if !std::mem::replace(&mut session.complained, true) {
                        let name = export.consumer.name();
                        let why = match errno {
                            Errno::NoMem => {
                                ", none of the export's memory came back while it waited; see `pool_memory`"
                            }
                            _ => "",
                        };
                        warn!(
                            export = %name, peer = session.peer,
                            "a request is refused: {errno}{why}; further ones of this session are not logged"
                        );
                    }
                    let frame = session.terms.style.error(request, errno);
                    self.reply(key, ReadyReply { frame, data: None, charged: 0 });
                }
                // An error would be the storage's to its client, which asks again once the connection has
                // ended.
                ParsedStep::Request { payload, charged, .. }
                    if self.drain.is_some() && !session.terms.hears_shutdown =>
                {
                    self.memory.release(export.account, &mut session.bytes, charged);
                    payload.into_iter().for_each(|payload| self.buffers.put(payload));
                }
                ParsedStep::Request { cookie, operation, payload, charged } => {
                    session.requests += 1;
                    (session.active, session.used) = (now, true);
                    if charged > 0 {
                        session.memory_wait = None;
                    }
                    let is_late = self.drain.is_some();
                    let request = self.requests.insert(ClientRequest {
                        buffer: payload,
                        charged,
                        ..ClientRequest::new(key, session.export, cookie, operation, now)
                    });
                    if is_late {
                        self.answer(request, Err(Errno::Shutdown), now);
                    } else if export.zeroing.refuses(&operation, now) {
                        self.answer(request, Err(Errno::NotSup), now);
                    } else {
                        self.enqueue(request, now);
                    }
                }
            }
        }
    }

    fn receive(&mut self, key: usize, now: Instant) {
        let session = &mut self.sessions[key];
        if let Some(receive) = session.input.receive_into() {
            session.begin_to_receive(now);
            let token = RingToken::Received { session: key };
            self.ring.receive(token, &session.socket, receive.buffer, receive.part, receive.whole);
        }
    }

    pub(super) fn stall(&mut self, key: usize) {
        let session = &mut self.sessions[key];
        // What comes next is not awaited meanwhile.
        session.awaited = None;
        if !std::mem::replace(&mut session.stalled, true) {
            self.stalled.push_back(key);
        }
    }

    /// Tries again to read from sessions that wait for room, if some may have come back for them: some in a turn,
    /// and all that waited when the round began before the next round.
    pub(super) fn resume_stalled(&mut self) {
        if self.resuming == 0 && self.memory.has_returned() {
            self.memory.begin_round();
            self.resuming = self.stalled.len();
        }
        for _ in 0..self.resuming.min(RESUMED_AT_ONCE) {
            self.resuming -= 1;
            // Some of the round may have ended.
            let Some(key) = self.stalled.pop_front() else { return self.resuming = 0 };
            let session = &mut self.sessions[key];
            if self.memory.may_retry(self.exports[session.export].account) {
                session.stalled = false;
                self.read_later(key);
            } else {
                self.stalled.push_back(key);
            }
        }
    }

    /// Ends waits that have no prospect: clients that hung up, and requests that waited too long for memory.
    pub(super) fn watch_stalled(&mut self, now: Instant) {
        for key in self.hung_up() {
            self.close(key, HUNG_UP, now);
        }
        let overdue = now - MEMORY_PATIENCE;
        for index in 0..self.stalled.len() {
            let key = self.stalled[index];
            let session = &mut self.sessions[key];
            // A driver waits for as long as it takes.
            if session.is_disk() || !session.waits_for_others() {
                continue;
            }
            let export = &self.exports[session.export];
            let returns = self.memory.returns(export.account);
            match &mut session.memory_wait {
                Some(wait) if wait.returns != returns || export.is_cut_off() => {
                    *wait = MemoryWait { since: now, returns }
                }
                // Later requests that are here already have waited as long, and are not waited for again.
                Some(wait) if wait.since <= overdue => self.refuse_waiting(key),
                _ => {}
            }
        }
    }

    /// Answers the request for which a session waits with ENOMEM; its payload is dropped as it comes.
    fn refuse_waiting(&mut self, key: usize) {
        let session = &mut self.sessions[key];
        let account = self.exports[session.export].account;
        let abandoned = session.input.refuse(&session.terms, Errno::NoMem);
        self.memory.arrived(account, abandoned.ahead);
        self.memory.release(account, &mut session.bytes, abandoned.charged);
        self.memory.withdraw_claim(account);
        abandoned.buffer.into_iter().for_each(|buffer| self.buffers.put(buffer));
        self.memory.wake_waiting(account);
    }

    /// The sessions whose client is gone, among those from which nothing is received and that would not
    /// notice.
    fn hung_up(&self) -> Vec<usize> {
        let unwatched = |session: &ClientSession| match session.phase {
            SessionPhase::Open => session.stalled && !session.receiving,
            SessionPhase::Ending(_) => !session.receiving,
            SessionPhase::Suspending { .. } | SessionPhase::Lingering(_) | SessionPhase::Closed => false,
        };
        let sessions: Vec<(usize, &ClientSession)> =
            self.sessions.iter().filter(|(_, session)| unwatched(session)).collect();
        if sessions.is_empty() {
            return Vec::new();
        }
        // A client that closed only its sending side still takes its answers. Where its end looks the same, what
        // it may have sent again elsewhere is not begun.
        let mut fds: Vec<PollFd<'_>> = sessions
            .iter()
            .map(|(_, session)| match session.phase {
                SessionPhase::Open if !tells_its_end(&session.socket) => {
                    PollFd::new(&session.socket, PollFlags::RDHUP)
                }
                _ => PollFd::new(&session.socket, PollFlags::empty()),
            })
            .collect();
        // It does not wait. If it fails it has found nothing, and is asked again in a moment.
        let _ = poll(&mut fds, Some(&NO_WAIT));
        let gone = sessions.iter().zip(&fds).filter(|(_, fd)| !fd.revents().is_empty());
        gone.map(|((key, _), _)| *key).collect()
    }

    pub(super) fn reply(&mut self, key: usize, reply: ReadyReply) {
        self.sessions[key].replies.push_back(reply);
        self.attend_to(key);
    }

    pub(super) fn attend_to(&mut self, key: usize) {
        let session = &mut self.sessions[key];
        if !std::mem::replace(&mut session.listed, true) {
            let class = self.exports[session.export].class();
            self.attend[class as usize].push_back(key);
        }
    }

    /// Sends what there is to send, and ends what is over, for a slice of the turn.
    pub(super) fn attend(&mut self, class: ExportClass, now: Instant) {
        let slice = self.begin_slice(class);
        while let Some(key) = self.attend[class as usize].pop_front() {
            self.attend_to_one(key, now);
            if self.is_over(&slice, self.clock.now()) {
                break;
            }
        }
    }

    fn attend_to_one(&mut self, key: usize, now: Instant) {
        // A key may have been freed meanwhile, or given to another session, whom this does not harm.
        let Some(session) = self.sessions.get_mut(key) else { return };
        session.listed = false;
        if session.phase == SessionPhase::Closed {
            return;
        }
        if session.disk.is_some() {
            return self.attend_to_disk(key, now);
        }
        if session.device.is_some() {
            return self.attend_to_device(key, now);
        }
        if !session.replies.is_empty()
            && let Some(mut message) = session.message.take()
        {
            while message.has_room()
                && let Some(reply) = session.replies.pop_front()
            {
                message.push(reply);
            }
            (session.progress, session.since_progress) = (now, 0);
            return self.ring.send(RingToken::Sent { session: key }, session.socket.as_fd(), message);
        }
        if session.requests > 0 {
            return;
        }
        match session.phase {
            SessionPhase::Ending(reason) => self.close(key, reason, now),
            SessionPhase::Suspending { .. } => self.try_to_suspend(key, now),
            SessionPhase::Open if self.drain.is_some() => self.linger(key, now),
            SessionPhase::Open | SessionPhase::Lingering(_) | SessionPhase::Closed => {}
        }
    }

    pub(super) fn sent(
        &mut self,
        key: usize,
        result: io::Result<usize>,
        mut message: Box<ReplyMessage<ReadyReply>>,
        now: Instant,
    ) {
        let session = &mut self.sessions[key];
        let account = self.exports[session.export].account;
        let (memory, buffers) = (&mut self.memory, &mut self.buffers);
        let (requests, bytes) = (&mut session.requests, &mut session.bytes);
        let mut taken = 0;
        let mut done = |reply: ReadyReply| {
            taken += 1;
            *requests -= 1;
            memory.release(account, bytes, reply.charged);
            if let Some((buffer, _)) = reply.data {
                buffers.put(buffer);
            }
        };
        let sent = *result.as_ref().unwrap_or(&0);
        let failure = match result {
            Ok(count) if session.phase != SessionPhase::Closed => {
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
                Some(error) if session.phase != SessionPhase::Closed => {
                    self.close(key, &format!("cannot send: {error}"), now);
                }
                _ => self.remove_if_gone(key, now),
            }
            return;
        }
        session.note_taken(sent, taken > 0, now);
        if !message.is_empty() {
            self.ring.send(RingToken::Sent { session: key }, session.socket.as_fd(), message);
            return;
        }
        session.message = Some(message);
        self.attend_to(key);
    }

    /// Everything is answered: says so to the client's kernel, and waits for it to hang up.
    fn linger(&mut self, key: usize, now: Instant) {
        let session = &mut self.sessions[key];
        session.phase = SessionPhase::Lingering(now + LINGER);
        // Fails only when the client is gone already, which the next receive shows.
        let _ = rustix::net::shutdown(&session.socket, Shutdown::Write);
        if !session.receiving {
            session.input.discard();
            self.receive(key, now);
        }
    }

    /// Ends the session that has been idle for longest, of those that occupy what a newcomer lacks. An idle
    /// disk of a virtual machine is idle for hours: without `idle_timeout` only sessions that were never used
    /// are ended.
    pub(super) fn make_room(
        &mut self,
        bound: RefusalReason,
        export: u64,
        source: ConnectionSource,
        now: Instant,
    ) -> bool {
        let idle_timeout = self.config.limits.idle_timeout;
        let occupies = |session: &ClientSession| {
            let its_export = self.exports[session.export].id;
            match bound {
                RefusalReason::ExportSessions => its_export == export,
                RefusalReason::SourceSessions => {
                    session.slot.as_ref().is_some_and(|slot| slot.source() == source)
                }
                RefusalReason::PoolSessions => self.door.draws(its_export),
                _ => false,
            }
        };
        let overdue = |session: &ClientSession| {
            let idle = session.idle_since()?;
            let patience = match idle_timeout {
                Some(patience) => patience,
                None if session.used => return None,
                None => PoolLimits::UNUSED,
            };
            (now.saturating_since(idle) >= patience && occupies(session)).then_some(idle)
        };
        let longest = self.sessions.iter().filter_map(|(key, session)| Some((overdue(session)?, key))).min();
        if let Some((_, key)) = longest {
            self.close(key, "it was idle, and a newcomer needs its place", now);
        }
        longest.is_some()
    }

    /// Ends a session at once: cancels what is queued, lets finish what is at the backend, frees the rest.
    pub(super) fn close(&mut self, key: usize, reason: &str, now: Instant) {
        let session = &mut self.sessions[key];
        if session.phase == SessionPhase::Closed {
            return;
        }
        session.phase = SessionPhase::Closed;
        if std::mem::take(&mut session.stalled) {
            self.stalled.retain(|stalled| *stalled != key);
        }
        // Makes operations on the socket complete; fails only when it is closed already.
        let _ = rustix::net::shutdown(&session.socket, Shutdown::Both);
        // What is at the backend keeps the session, and not the place that another client may take.
        session.slot = None;
        let mut returned = 0;
        for reply in session.replies.drain(..) {
            session.requests -= 1;
            returned += reply.charged;
            if let Some((buffer, _)) = reply.data {
                self.buffers.put(buffer);
            }
        }
        let mut withdrawn = self.withdraw(key, now);
        withdrawn.extend(self.withdraw_syncs(key));
        let session = &mut self.sessions[key];
        withdrawn.extend(
            session.disk.iter_mut().flat_map(|disk| disk.memory_watch.wake()).map(|(request, _)| request),
        );
        let export = &mut self.exports[session.export];
        for request in withdrawn {
            session.requests -= 1;
            returned += request.charged;
            if let Some(buffer) = request.buffer {
                self.buffers.put(buffer);
            }
        }
        // Wakes others also where nothing is returned: there may be room in the consumer's queue.
        self.memory.release(export.account, &mut session.bytes, returned);
        if session.memory_wait.is_some() {
            self.memory.withdraw_claim(export.account);
        }
        let name = export.consumer.name();
        info!(
            pool = %self.config.name, export = %name, peer = session.peer,
            unanswered = session.requests, "session closed: {reason}"
        );
        self.abandon_payload(key);
        self.release_rings(key);
        self.remove_if_gone(key, now);
    }

    /// Takes out the requests of a session that have not reached the storage, in the order in which they
    /// came.
    pub(super) fn withdraw(&mut self, key: usize, now: Instant) -> Vec<ClientRequest> {
        let requests = &self.requests;
        let of_session = |request: usize| requests[request].session == key;
        let session = &self.sessions[key];
        if session.requests == 0 {
            // Clients that only come and go are not worth a look at what others have queued.
            return Vec::new();
        }
        let export = &mut self.exports[session.export];
        // What waits for a volume that is silent came first. Clients that come and go must not pile it up.
        let mut keys = export.parked.extract(of_session);
        keys.extend(self.stage.cancel(&mut export.consumer, now, of_session));
        keys.into_iter().map(|request| self.requests.remove(request)).collect()
    }

    /// Takes out the requests of a session for which no sync has begun.
    fn withdraw_syncs(&mut self, key: usize) -> Vec<ClientRequest> {
        let requests = &self.requests;
        let waiting = &mut self.exports[self.sessions[key].export].syncs.waiting;
        let keys: Vec<usize> = waiting.extract_if(.., |request| requests[*request].session == key).collect();
        keys.into_iter().map(|request| self.requests.remove(request)).collect()
    }

    /// Frees the payload that a closed session was receiving, unless the kernel still has its memory.
    pub(super) fn abandon_payload(&mut self, key: usize) {
        let session = &mut self.sessions[key];
        if session.receiving {
            return;
        }
        let abandoned = session.input.abandon();
        let account = self.exports[session.export].account;
        self.memory.arrived(account, abandoned.ahead);
        self.memory.release(account, &mut session.bytes, abandoned.charged);
        abandoned.buffer.into_iter().for_each(|buffer| self.buffers.put(buffer));
    }

    pub(super) fn remove_if_gone(&mut self, key: usize, now: Instant) {
        if !self.sessions[key].is_gone() {
            return;
        }
        let session = self.sessions.remove(key);
        debug_assert_eq!(session.bytes, 0, "a session leaves nothing behind");
        self.exports[session.export].sessions -= 1;
        self.forget_if_unused(session.export, now);
    }
}
