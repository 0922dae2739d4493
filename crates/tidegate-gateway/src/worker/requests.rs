//! Requests from the scheduler to the backend and back, and their answers.

use std::time::Duration;

use tidegate_nbd::{AllocationMap, CheckedOperation, Errno};
use tidegate_sched::PullAnswer;
use tidegate_units::Instant;
use tracing::warn;

use super::chores::ExportClass;
use super::{PoolWorker, WorkerComplaints};
use crate::backend::{EmulatedVolume, ExportVolume, FinishedIo};
use crate::buffer::is_zero;
use crate::message::ReadyReply;
use crate::request::is_durable;
use crate::session::SessionPhase;
use crate::stage::{PoolStage, length_of};

/// At most one line per this time about failed requests; the number of those not told is in the next line.
const COMPLAINT_INTERVAL: Duration = Duration::from_secs(1);

/// The most data that is asked whether it is zero while protected requests may come: 1 MiB takes some 50 µs.
const MOST_ASKED: u32 = 1 << 20;

impl PoolWorker {
    pub(super) fn dispatch(&mut self, now: Instant) {
        let slice = self.begin_slice(ExportClass::Other);
        self.dispatches_more = false;
        self.not_before = loop {
            match self.stage.pull(now) {
                PullAnswer::Request { request, released, .. } => self.start(request, released, now),
                PullAnswer::Nothing => break None,
                PullAnswer::NotBefore(time) => break Some(time),
            }
            if self.is_over(&slice, self.clock.now()) {
                self.dispatches_more = true;
                break None;
            }
        };
        self.plan_watch(now);
    }

    pub(super) fn start(&mut self, key: usize, released: Instant, now: Instant) {
        let request = &mut self.requests[key];
        let export = &mut self.exports[request.export];
        if !export.consumer.has_room() {
            self.memory.wake_waiting(export.account);
        }
        request.released = PoolStage::dispatched(&mut export.consumer, &request.operation, released, now);
        request.dispatched = Some(now);
        export.zeroing.dispatched(&request.operation, &mut request.slice, now);
        if request.operation == CheckedOperation::Flush {
            return self.start_flush(key, now);
        }
        match &export.volume {
            ExportVolume::Upstream(_) => {
                let export = request.export;
                self.at_upstream(export, now, |upstream, hands| upstream.start(key, hands));
            }
            ExportVolume::File(file) if file.is_cut_before(end_of(&request.operation)) => {
                let export = request.export;
                self.notice_shrinkage(export, false);
                self.backend_done(key, Err(Errno::Io), false, now);
            }
            ExportVolume::File(_) => self.start_on_file(key, now),
            ExportVolume::Region { base, .. } => {
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
                FinishedIo::Request(key) => {
                    let request = &mut self.requests[key];
                    let ExportVolume::Region { base, .. } = self.exports[request.export].volume else {
                        unreachable!("only regions are on the emulated device");
                    };
                    let result = emulated(&mut self.emulated).finish(base, request, &mut self.buffers);
                    self.backend_done(key, result, false, now);
                }
                FinishedIo::Sync { export } => self.synced(export, Ok(()), now),
            }
        }
        self.finished = finished;
    }

    /// The backend is done with a scheduled request, or with a slice of one.
    pub(super) fn backend_done(&mut self, key: usize, result: Result<(), Errno>, sync: bool, now: Instant) {
        let Some(result) = self.after_slice(key, result, now) else { return };
        let request = &self.requests[key];
        let export = request.export;
        let consumer = &mut self.exports[export].consumer;
        self.stage.completed(consumer, request, now, result.is_ok());
        if sync && result.is_ok() {
            self.sync(export, key, now);
        } else {
            self.conclude(key, result, now);
        }
    }

    /// A request is carried out, its sync included, or has failed.
    pub(super) fn conclude(&mut self, key: usize, result: Result<(), Errno>, now: Instant) {
        let request = &self.requests[key];
        // What has succeeded while another's error took the report was not looked at by the kernel any more.
        let claims = result.is_ok() && is_durable(&request.operation);
        let poisoned = self.exports[request.export].syncs.poisoned;
        self.answer(key, if claims && poisoned { Err(Errno::Io) } else { result }, now);
    }

    /// Turns a request into its reply, or into nothing when its session is gone.
    pub(super) fn answer(&mut self, key: usize, result: Result<(), Errno>, now: Instant) {
        let mut request = self.requests.remove(key);
        let export = &mut self.exports[request.export];
        let session = &mut self.sessions[request.session];
        // What is given up because its client has gone is no error of the storage.
        if session.phase != SessionPhase::Closed || result != Err(Errno::Shutdown) {
            PoolStage::answered(&mut export.consumer, &request, now, result);
        }
        // The log has said what poisons an export, and that all of these fail from then on.
        let known = export.syncs.poisoned && is_durable(&request.operation);
        if let Err(errno) = result
            && !known
            // The answer to a client's question whether zeroes are fast.
            && errno != Errno::NotSup
            && session.phase != SessionPhase::Closed
            && self.drain.is_none()
            && self.complaints.may_speak(now)
        {
            warn!(
                pool = %self.config.name, export = %export.consumer.name(), peer = session.peer,
                also_failed = std::mem::take(&mut self.complaints.suppressed),
                "{:?} failed: {errno}", request.operation
            );
        }
        if session.disk.is_some() {
            return self.answer_disk(request, result, now);
        }
        if session.device.is_some() {
            return self.answer_device(request, result, now);
        }
        let (style, replied) = (session.terms.style, request.operation.replied(request.cookie));
        let (frame, data) = match (result, request.operation) {
            (Ok(()), CheckedOperation::Read { length, .. }) => {
                // Invariant: a read that succeeded has its data.
                let buffer = request.buffer.take().expect("a read has its data");
                // To look at tens of megabytes takes milliseconds, which others must not wait for.
                let may_look = length <= MOST_ASKED || !self.is_beside_protected;
                if style.has_chunks() && may_look && is_zero(&buffer[..length as usize]) {
                    self.buffers.put(buffer);
                    (style.hole(replied, length), None)
                } else {
                    (style.data(replied, length), Some((buffer, length as usize)))
                }
            }
            (Ok(()), CheckedOperation::BlockStatus { .. }) => {
                // Invariant: a block status that succeeded has at least one extent.
                let map = request.allocation.take().expect("a block status has its answer");
                let mut buffer = self.buffers.take(AllocationMap::encoded_length(style, map.extents().len()));
                let length = map.encode(style, &mut buffer);
                (style.allocation(replied, &map), Some((buffer, length)))
            }
            (Ok(()), _) => (style.success(replied), None),
            (Err(errno), _) => (style.error(replied, errno), None),
        };
        if let Some(buffer) = request.buffer {
            self.buffers.put(buffer);
        }
        if session.phase == SessionPhase::Closed {
            session.requests -= 1;
            self.memory.release(export.account, &mut session.bytes, request.charged);
            if let Some((buffer, _)) = data {
                self.buffers.put(buffer);
            }
            self.remove_if_gone(request.session, now);
        } else {
            self.reply(request.session, ReadyReply { frame, data, charged: request.charged });
        }
    }
}

pub(super) fn end_of(operation: &CheckedOperation) -> u64 {
    operation.offset().saturating_add(length_of(operation))
}

impl WorkerComplaints {
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
pub(super) fn emulated(device: &mut Option<Box<EmulatedVolume>>) -> &mut EmulatedVolume {
    // Invariant: exports are regions only in pools with an emulated device.
    device.as_mut().expect("a region has its device")
}
