//! Requests from the scheduler to the backend and back, the syncs that they share, and their answers.

use std::time::Duration;

use tidegate_nbd::{Errno, Operation};
use tidegate_sched::Pull;
use tidegate_units::Instant;
use tracing::{error, warn};

use super::{Complaints, Export, Worker};
use crate::backend::{Emulated, Finished, Volume};
use crate::message::Reply;
use crate::ring::Token;
use crate::session::Phase;
use crate::stage::Stage;
use crate::upstream::Upstream;

/// At most one line per this time about failed requests; the number of those not told is in the next line.
const COMPLAINT_INTERVAL: Duration = Duration::from_secs(1);

impl Worker {
    pub(super) fn dispatch(&mut self, now: Instant) {
        self.not_before = loop {
            match self.stage.pull(now) {
                Pull::Request { request, released, .. } => self.start(request, released, now),
                Pull::Nothing => break None,
                Pull::NotBefore(time) => break Some(time),
            }
        };
    }

    fn start(&mut self, key: usize, released: Instant, now: Instant) {
        let request = &mut self.requests[key];
        let export = &mut self.exports[request.export];
        if !export.consumer.has_room() {
            self.memory.wake_waiting();
        }
        Stage::dispatched(&mut export.consumer, &request.operation);
        request.released = released;
        request.dispatched = Some(now);
        match &export.volume {
            Volume::Upstream(_) => {
                let export = request.export;
                self.at_upstream(export, now, |upstream, hands| upstream.start(key, hands));
            }
            Volume::File(file) => file.start(&mut self.ring, &mut self.buffers, key, request),
            Volume::Region { base, .. } => {
                let base = *base;
                if let Err(errno) = emulated(&mut self.emulated).start(now, key, base, request) {
                    self.backend_done(key, Err(errno), false, now);
                }
            }
        }
    }

    pub(super) fn advance_emulated(&mut self, now: Instant) {
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
    pub(super) fn backend_done(&mut self, key: usize, result: Result<(), Errno>, sync: bool, now: Instant) {
        let request = &self.requests[key];
        let export = request.export;
        let consumer = &mut self.exports[export].consumer;
        self.stage.completed(consumer, request, now, result.is_ok());
        if sync && result.is_ok() {
            self.sync(export, key, now);
        } else {
            self.answer(key, result, now);
        }
    }

    /// Has a request answered once the export's completed writes are on stable storage.
    pub(super) fn sync(&mut self, export: usize, key: usize, now: Instant) {
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
            Volume::Upstream(_) => self.at_upstream(key, now, Upstream::flush),
            Volume::File(file) => self.ring.sync(Token::Synced { export: key }, file.fd()),
            Volume::Region { .. } => {
                if let Err(errno) = emulated(&mut self.emulated).sync(now, key) {
                    self.synced(key, Err(errno), now);
                }
            }
        }
    }

    pub(super) fn synced(&mut self, key: usize, result: Result<(), Errno>, now: Instant) {
        let Export { syncs, consumer, .. } = &mut self.exports[key];
        let name = consumer.name();
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
        self.sync_again(key, now);
    }

    /// A sync is over and all that it covered is answered.
    pub(super) fn sync_again(&mut self, key: usize, now: Instant) {
        // Only now: an export that is busy is not removed by what an answer sets free.
        let syncs = &mut self.exports[key].syncs;
        syncs.busy = false;
        if syncs.waiting.is_empty() {
            self.forget_if_unused(key, now);
        } else {
            self.start_sync(key, now);
        }
    }

    /// Turns a request into its reply, or into nothing when its session is gone.
    pub(super) fn answer(&mut self, key: usize, result: Result<(), Errno>, now: Instant) {
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
            self.remove_if_gone(request.session, now);
        } else {
            self.reply(request.session, Reply { frame, data, charged: request.charged });
        }
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
