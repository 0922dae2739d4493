//! Sessions that the next process of the service goes on with: what is under way is answered, nothing more is
//! read, and the connection stays open.
//!
//! A request is either answered here, or read again there, and never both. One that has reached the storage
//! is waited for: it could otherwise change the volume after a later request of the next process. One that
//! still waits for its turn becomes the bytes that it came as.

use std::time::Duration;

use tidegate_nbd::CheckedOperation;
use tidegate_units::Instant;
use tracing::info;

use super::PoolWorker;
use crate::backend::ExportVolume;
use crate::ring::RingToken;
use crate::session::{ClientSession, SessionPhase};
use crate::suspension::SuspendedSession;

/// The time that a client has to send the rest of a payload and to take its replies. All others wait for it.
const CLIENT_PATIENCE: Duration = Duration::from_secs(1);

/// The prospect of a session's suspension.
enum Prospect {
    Ready,
    Waits,
    /// The next process could not keep what this one has promised, for this reason.
    None(&'static str),
}

impl PoolWorker {
    /// Has a session suspended once it is at rest. TLS and disks are not: the keys of one, and the memory of
    /// the other, are this process's.
    pub(super) fn suspend(&mut self, key: usize, now: Instant) {
        let session = &mut self.sessions[key];
        let lasting = !matches!(self.exports[session.export].volume, ExportVolume::Region { .. });
        if session.phase != SessionPhase::Open || session.is_disk() || session.relayed || !lasting {
            return self.attend_to(key);
        }
        session.phase = SessionPhase::Suspending { until: now + CLIENT_PATIENCE };
        if std::mem::take(&mut session.stalled) {
            self.stalled.retain(|stalled| *stalled != key);
        }
        if session.receiving && !session.input.is_filling_payload() {
            self.ring.cancel(RingToken::Received { session: key });
        }
        self.try_to_suspend(key, now);
    }

    /// Suspends a session if nothing of it is under way any more. To be called whenever something of it ends.
    pub(super) fn try_to_suspend(&mut self, key: usize, now: Instant) {
        self.take_back(key, now);
        match self.prospect(key, now) {
            Prospect::Ready => self.finish_suspension(key, now),
            Prospect::None(reason) => self.close(key, reason, now),
            Prospect::Waits => {
                let session = &self.sessions[key];
                if matches!(session.phase, SessionPhase::Suspending { until } if until <= now)
                    && session.waits_for_client()
                {
                    self.close(key, "the service restarts, and its client takes too long", now);
                }
            }
        }
    }

    /// Turns requests that wait for their turn into the bytes that they came as.
    fn take_back(&mut self, key: usize, now: Instant) {
        let withdrawn = self.withdraw(key, now);
        let session = &mut self.sessions[key];
        let style = session.terms.style;
        let mut returned = 0;
        for request in withdrawn {
            session.requests -= 1;
            returned += request.charged;
            let header = request.operation.request(request.cookie).encode(style);
            session.taken_back.extend_from_slice(&header);
            if let Some(buffer) = request.buffer {
                if let CheckedOperation::Write { length, .. } = request.operation {
                    session.taken_back.extend_from_slice(&buffer[..length as usize]);
                }
                self.buffers.put(buffer);
            }
        }
        let account = self.exports[session.export].account;
        self.memory.release(account, &mut session.bytes, returned);
    }

    /// Returns the suspended sessions at the end of a drain. The kernel may have reported lost data to one
    /// session after another of the export was suspended: that one could never hear of it, and ends too.
    pub(super) fn suspended(&mut self) -> Vec<SuspendedSession> {
        let mut suspended = std::mem::take(&mut self.suspended);
        for (_, export) in self.exports.iter().filter(|(_, export)| export.syncs.poisoned) {
            let name = export.consumer.name();
            for session in suspended.extract_if(.., |session| session.consumer == *name) {
                info!(
                    pool = %self.config.name, export = %name, peer = session.peer,
                    "suspended session closed: its export has lost written data"
                );
            }
        }
        suspended
    }

    fn prospect(&mut self, key: usize, now: Instant) -> Prospect {
        let session = &self.sessions[key];
        let export_key = session.export;
        let export = &mut self.exports[export_key];
        if export.syncs.poisoned {
            return Prospect::None("the service restarts, and its export has lost written data");
        }
        if session.requests > 0 || session.waits_for_client() {
            return Prospect::Waits;
        }
        if let ExportVolume::Upstream(upstream) = &mut export.volume {
            let ledger = upstream.ledger();
            if session.heard_losses < ledger.losses() {
                return Prospect::None("the service restarts, and its upstream has lost written data");
            }
            // The next process has other connections, whose flushes may not cover what these have written.
            if ledger.has_unflushed() {
                if !export.syncs.busy {
                    self.start_sync(export_key, now);
                }
                return Prospect::Waits;
            }
        }
        Prospect::Ready
    }

    fn finish_suspension(&mut self, key: usize, now: Instant) {
        let session = &self.sessions[key];
        let Some(unread) = session.input.unread(session.terms.style) else {
            return self.close(key, "the service restarts while a refused payload is dropped", now);
        };
        self.abandon_payload(key);
        let session = self.sessions.remove(key);
        debug_assert_eq!(session.bytes, 0, "a session leaves nothing behind");
        let ClientSession { socket, peer, terms, export, mut taken_back, memory_wait, .. } = session;
        taken_back.extend_from_slice(&unread);
        let entry = &mut self.exports[export];
        entry.sessions -= 1;
        if memory_wait.is_some() {
            self.memory.withdraw_claim(entry.account);
        }
        let (consumer, volume) = (entry.consumer.name().clone(), entry.volume.identity());
        info!(pool = %self.config.name, export = %consumer, peer, "session suspended");
        self.suspended.push(SuspendedSession { socket, consumer, peer, volume, terms, unread: taken_back });
        self.forget_if_unused(export, now);
    }
}
