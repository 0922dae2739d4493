//! Requests that are carried out slice by slice: ranges to be zeroed, trimmed or cached ([`crate::zeroing`]).

use tidegate_nbd::{CheckedOperation, Errno};
use tidegate_sched::StorageExtent;
use tidegate_units::Instant;

use super::PoolWorker;
use crate::backend::VolumeSilence;
use crate::request::ClientRequest;
use crate::session::SessionPhase;
use crate::stage::length_of;
use crate::zeroing::{RequestSlice, SliceMethod};

impl PoolWorker {
    /// Has a request that is new wait for its turn, or its first slice.
    pub(super) fn enqueue(&mut self, key: usize, now: Instant) {
        let request = &mut self.requests[key];
        let export = &mut self.exports[request.export];
        request.slice = export.zeroing.slice(&request.operation, request.done, now);
        if export.silence == VolumeSilence::None {
            self.stage.enqueue(&mut export.consumer, key, extent_of(request, request.slice), now);
        } else {
            let export = request.export;
            self.park(export, key, now);
        }
    }

    /// Records the end of a slice. Returns the request's result; `None` when another slice of it waits for
    /// its turn.
    pub(super) fn after_slice(
        &mut self,
        key: usize,
        result: Result<(), Errno>,
        now: Instant,
    ) -> Option<Result<(), Errno>> {
        let request = &mut self.requests[key];
        let slice = request.slice;
        if slice.method == SliceMethod::Transfer {
            return Some(result);
        }
        let export = &mut self.exports[request.export];
        match (result, request.operation) {
            (Ok(()), operation) => {
                let time =
                    request.dispatched.map_or_else(Default::default, |began| now.saturating_since(began));
                export.zeroing.carried_out(&operation, slice, time, now);
                request.done = slice.until;
            }
            // It would have to write zeros, and nothing of this slice is done yet.
            (Err(Errno::NotSup), CheckedOperation::WriteZeroes { fast, .. }) => {
                export.zeroing.cannot(slice.method);
                if fast && request.done == 0 {
                    return Some(result);
                }
            }
            (Err(_), _) => return Some(result),
        }
        if request.done == length_of(&request.operation) {
            return Some(Ok(()));
        }
        if self.sessions[request.session].phase == SessionPhase::Closed {
            // No client waits for the rest.
            return Some(Err(Errno::Io));
        }
        let next = export.zeroing.slice(&request.operation, request.done, now);
        // Before the other is complete, so that the consumer does not look idle between the two.
        self.stage.enqueue(&mut export.consumer, key, extent_of(request, next), now);
        self.stage.completed(&mut export.consumer, request, now, result.is_ok());
        request.slice = next;
        request.dispatched = None;
        None
    }
}

/// Returns the extent that the next slice of a request is charged with.
pub(super) fn extent_of(request: &ClientRequest, slice: RequestSlice) -> StorageExtent {
    debug_assert!(request.operation != CheckedOperation::Disconnect, "not a scheduled request");
    StorageExtent { offset: request.operation.offset() + slice.from, bytes: slice.charged }
}
