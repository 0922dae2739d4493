//! Sessions from their arrival to their end: what is read from them, what is sent to them, and at which bound they wait.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::net::Shutdown;
use tidegate_nbd::{Errno, Operation};
use tidegate_units::Instant;
use tracing::{info, warn};

use super::Worker;
use crate::backend::Volume;
use crate::input::Parsed;
use crate::message::{Message, Reply};
use crate::request::Request;
use crate::ring::Token;
use crate::session::{NewSession, Phase, Session};

/// How long a drained session may take to hang up once everything is answered.
const LINGER: Duration = Duration::from_secs(1);

impl Worker {
    pub(super) fn open(&mut self, new: NewSession, now: Instant) {
        let Some((export, entry)) = self.exports.iter_mut().find(|(_, export)| export.id == new.export)
        else {
            info!(peer = new.peer, "session refused: its export has just been removed");
            return;
        };
        entry.sessions += 1;
        let name = entry.consumer.name();
        info!(pool = %self.config.name, export = %name, peer = new.peer, "session opened");
        let heard_losses = match &mut entry.volume {
            Volume::Upstream(upstream) => upstream.ledger().heard_by_newcomer(),
            Volume::File(_) | Volume::Region { .. } => 0,
        };
        let key = self.sessions.insert(Session::new(new, export, heard_losses, now));
        self.read_requests(key, now);
        if self.drain.is_some() {
            self.attend_to(key);
        }
    }

    pub(super) fn received(&mut self, key: usize, result: io::Result<usize>, now: Instant) {
        let session = &mut self.sessions[key];
        match (session.phase, result) {
            (Phase::Closed, _) => self.remove_if_gone(key, now),
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
                        released: now,
                        dispatched: None,
                        syncing: false,
                        done: 0,
                        change: None,
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
    pub(super) fn resume_stalled(&mut self, now: Instant) {
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

    pub(super) fn reply(&mut self, key: usize, reply: Reply) {
        self.sessions[key].replies.push_back(reply);
        self.attend_to(key);
    }

    pub(super) fn attend_to(&mut self, key: usize) {
        if !std::mem::replace(&mut self.sessions[key].listed, true) {
            self.attend.push(key);
        }
    }

    /// Sends what there is to send, and ends what is over.
    pub(super) fn attend(&mut self, now: Instant) {
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

    pub(super) fn sent(
        &mut self,
        key: usize,
        result: io::Result<usize>,
        mut message: Box<Message<Reply>>,
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
                _ => self.remove_if_gone(key, now),
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
    pub(super) fn close(&mut self, key: usize, reason: &str, now: Instant) {
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
        let requests = &self.requests;
        let of_session = |request: usize| requests[request].session == key;
        let cancelled = self.stage.cancel(&mut self.exports[session.export].consumer, now, of_session);
        if !cancelled.is_empty() {
            // There is room in the consumer's queue.
            self.memory.wake_waiting();
        }
        for request in cancelled {
            let request = self.requests.remove(request);
            session.requests -= 1;
            returned += request.charged;
            if let Some(buffer) = request.buffer {
                self.buffers.put(buffer);
            }
        }
        self.memory.release(&mut session.bytes, returned);
        let name = self.exports[session.export].consumer.name();
        info!(
            pool = %self.config.name, export = %name, peer = session.peer,
            unanswered = session.requests, "session closed: {reason}"
        );
        self.remove_if_gone(key, now);
    }

    pub(super) fn remove_if_gone(&mut self, key: usize, now: Instant) {
        if !self.sessions[key].is_gone() {
            return;
        }
        let mut session = self.sessions.remove(key);
        let (payload, charged) = session.input.abandon();
        payload.into_iter().for_each(|buffer| self.buffers.put(buffer));
        self.memory.release(&mut session.bytes, charged);
        debug_assert_eq!(session.bytes, 0, "a session leaves nothing behind");
        self.exports[session.export].sessions -= 1;
        self.forget_if_unused(session.export, now);
    }
}
