//! Block devices of this host (ublk): requests from the kernel, and results to it.

use std::os::fd::AsFd;

use rustix::io::Errno as SystemErrno;
use std::io;
use tidegate_nbd::{CheckedOperation, Errno};
use tidegate_ublk::{DEPTH, RingCommand, commit, fetch};
use tidegate_units::Instant;
use tracing::warn;

use super::PoolWorker;
use super::chores::REQUESTS_AT_ONCE;
use crate::device::{judge, result_of};
use crate::request::{ClientRequest, memory_of};
use crate::ring::RingToken;
use crate::session::{MemoryWait, SessionPhase};

impl PoolWorker {
    /// Fetches all tags of a device that has just come. The thread that brings it waits for that.
    pub(super) fn fetch_all(&mut self, key: usize) {
        // All in one call: a process that dies in between leaves a device that cannot be taken over.
        self.ring.submit_now();
        for tag in 0..DEPTH {
            self.hand_over(key, tag, fetch(tag));
        }
        self.ring.submit_now();
    }

    fn hand_over(&mut self, key: usize, tag: u16, command: RingCommand) {
        let Some(device) = &mut self.sessions[key].device else { return };
        device.fetched += 1;
        self.ring.command(RingToken::Fetched { session: key, tag }, device.channel.as_fd(), command);
    }

    /// A tag has a request, or the kernel gives its command back.
    pub(super) fn fetched(&mut self, key: usize, tag: u16, result: io::Result<usize>, now: Instant) {
        let session = &mut self.sessions[key];
        let Some(device) = &mut session.device else { return };
        device.fetched -= 1;
        match result {
            Ok(_) => {
                device.waiting.push_back(tag);
                // One that waits for room has its turn after those that have waited longer.
                if !session.stalled {
                    self.take_from_device(key, now);
                }
            }
            Err(error) => {
                let is_deleted = error.raw_os_error() == Some(SystemErrno::NODEV.raw_os_error());
                let reason = if is_deleted {
                    "the device was deleted".into()
                } else {
                    format!("the device ends: {error}")
                };
                self.close(key, &reason, now);
                self.remove_if_gone(key, now);
            }
        }
    }

    /// Takes in the requests of a device that have come, until a bound is reached.
    pub(super) fn take_from_device(&mut self, key: usize, now: Instant) {
        let mut left = REQUESTS_AT_ONCE;
        loop {
            let session = &mut self.sessions[key];
            // The requests of a drained device are issued again to the next gateway.
            if session.phase != SessionPhase::Open || self.drain.is_some() {
                return;
            }
            if left == 0 {
                return self.read_later(key);
            }
            left -= 1;
            let export = &mut self.exports[session.export];
            let Some(device) = &mut session.device else { return };
            let Some(tag) = device.waiting.front().copied() else { return };
            if session.requests >= self.config.limits.session_requests || !export.consumer.has_room() {
                session.memory_wait = None;
                return self.stall(key);
            }
            let request = match device.channel.descriptor(tag) {
                Ok(request) => request,
                Err(error) => return self.close(key, &format!("the device ends: {error}"), now),
            };
            (session.active, session.used) = (now, true);
            let operation = match judge(&session.terms, &request) {
                Ok(operation) => operation,
                Err(errno) => {
                    device.waiting.pop_front();
                    self.refuse_device_request(key, tag, errno);
                    continue;
                }
            };
            let charged = memory_of(&operation, session.terms.geometry.blocks.minimum());
            if !self.memory.allowance(export.account, &mut session.bytes).grant(charged) {
                let returns = self.memory.returns(export.account);
                session.memory_wait.get_or_insert(MemoryWait { since: now, returns });
                return self.stall(key);
            }
            session.memory_wait = None;
            session.requests += 1;
            device.waiting.pop_front();
            let (mut buffer, mut copied) = (None, Ok(()));
            if let CheckedOperation::Write { length, .. } = operation {
                let mut payload = self.buffers.take(charged as usize);
                copied = device.channel.read_payload(tag, &mut payload[..length as usize]);
                buffer = Some(payload);
            }
            let export = session.export;
            let request = self.requests.insert(ClientRequest {
                buffer,
                charged,
                ..ClientRequest::new(key, export, tag.into(), operation, now)
            });
            if copied.is_err() {
                self.answer(request, Err(Errno::Io), now);
            } else {
                self.enqueue(request, now);
            }
        }
    }

    fn refuse_device_request(&mut self, key: usize, tag: u16, errno: Errno) {
        let session = &mut self.sessions[key];
        let consumer = &mut self.exports[session.export].consumer;
        consumer.errors.count_mistake();
        if !std::mem::replace(&mut session.complained, true) {
            warn!(
                export = %consumer.name(), peer = session.peer,
                "a request is refused: {errno}; further ones of this device are not logged"
            );
        }
        self.hand_over(key, tag, commit(tag, -(errno.code() as i32)));
    }

    /// Gives the result of a request to the kernel, or drops it when the session is closed: the kernel issues
    /// the request again to the next gateway, or has failed it with its device.
    pub(super) fn answer_device(&mut self, request: ClientRequest, result: Result<(), Errno>, now: Instant) {
        let key = request.session;
        let session = &mut self.sessions[key];
        let account = self.exports[session.export].account;
        session.requests -= 1;
        self.memory.release(account, &mut session.bytes, request.charged);
        // A tag is the cookie of its request.
        let tag = request.cookie as u16;
        let mut result = result_of(&request.operation, result);
        if session.phase != SessionPhase::Closed
            && let (Some(device), CheckedOperation::Read { length, .. }) =
                (&session.device, request.operation)
            && let Some(data) = &request.buffer
            && result >= 0
            && device.channel.write_payload(tag, &data[..length as usize]).is_err()
        {
            result = -(Errno::Io.code() as i32);
        }
        if let Some(buffer) = request.buffer {
            self.buffers.put(buffer);
        }
        if session.phase == SessionPhase::Closed {
            self.remove_if_gone(key, now);
        } else {
            self.hand_over(key, tag, commit(tag, result));
            self.attend_to(key);
        }
    }

    /// Ends a drained device once its requests are answered. Called once per turn.
    pub(super) fn attend_to_device(&mut self, key: usize, now: Instant) {
        if self.drain.is_some() && self.sessions[key].requests == 0 {
            // The last results would stay behind in the queue of a ring that ends.
            self.ring.submit_now();
            self.close(key, "drained: its requests wait for the next gateway", now);
        }
    }
}
