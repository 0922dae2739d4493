//! Syncs, which requests share, and the consequences if one reports that written data is lost.
//!
//! Linux tells each open file of a failed write-back once, with the next sync. It then takes the lost pages
//! for clean: the sync after that succeeds without them. So an error that may have been this report *poisons*
//! the export. No flush and no change with FUA succeeds any more, whichever session asks. That ends when the
//! export is removed and added again or the service restarts: then there is another open file, and the
//! administrator knows.
//!
//! A volume that has shrunk poisons its export as well: what was written beyond its end is gone, and the next
//! write at the old end hides that.
//!
//! A write that syncs by itself takes the report as well as a sync does. So a sync's success counts only once
//! all such writes beside it are over, and none has failed.
//!
//! A flush waits for its turn like a request of one I/O, and then for a sync that begins after that. An export
//! syncs once at a time, so its syncs have one slot of the window, however many flushes wait for them: the
//! first of these flushes brings it, and the others give theirs back. A sync may take seconds on a healthy
//! disk that has much to write. Others do not wait for its slot for that long. A durable change has paid for
//! its sync by itself.
//!
//! Nothing here or elsewhere syncs a file that is only opened or closed. Errors that no sync has reported
//! stay with the file, for the first sync after it is next opened. So a gateway that is started after a crash
//! hears of the writes that its predecessor had answered. A sync at the end would take that report, and there
//! is no client left to tell.

use std::collections::BTreeSet;
use std::time::Duration;

use thiserror::Error;
use tidegate_nbd::{CheckedOperation, Errno};
use tidegate_units::Instant;
use tracing::error;

use super::requests::emulated;
use super::{PoolWorker, WorkerExport};
use crate::backend::{ExportVolume, FileRing};
use crate::claim::ShrunkVolume;
use crate::request::SyncRange;
use crate::ring::RingToken;
use crate::upstream::UpstreamExport;

/// A sync that takes longer gives its slot to requests that wait. Chosen: as long as the least silence of a
/// volume that counts as a stall.
const LONGEST_SLOT: Duration = Duration::from_millis(25);

/// Requests that wait for an export's data to be on stable storage. One sync runs at a time and covers
/// everything that was complete when it began; requests that come later share the next one. Two at a time
/// could not tell which of them a report belongs to.
#[derive(Default)]
pub(super) struct PendingSyncs {
    pub(super) busy: bool,
    /// The time when the last sync began.
    began: Instant,
    /// A flush was dispatched whose slot in the window is not given back yet.
    has_slot: bool,
    /// Written data is lost: see the module.
    pub(super) poisoned: bool,
    /// The number of an upstream's losses that are logged.
    pub(super) losses: u64,
    pub(super) running: Vec<usize>,
    /// Writes under way that sync by themselves.
    by_themselves: BTreeSet<usize>,
    /// Those of them that were under way when the sync that runs succeeded. One of them may have its report.
    beside: BTreeSet<usize>,
    pub(super) waiting: Vec<usize>,
}

impl PendingSyncs {
    /// A write has begun that syncs by itself.
    pub(super) fn began_by_itself(&mut self, request: usize) {
        self.by_themselves.insert(request);
    }
}

/// The sign by which written data is known to be lost.
#[derive(Debug, Clone, Copy, Error)]
pub(super) enum DataLoss {
    #[error("the storage has failed to store written data ({0})")]
    Reported(Errno),
    #[error("the volume has shrunk: clients were told {} bytes, and it had {}", .0.promised, .0.found)]
    Shrunk(ShrunkVolume),
}

impl PoolWorker {
    /// The turn of a flush has come.
    pub(super) fn start_flush(&mut self, key: usize, now: Instant) {
        let export_key = self.requests[key].export;
        let WorkerExport { syncs, consumer, .. } = &mut self.exports[export_key];
        if syncs.poisoned || std::mem::replace(&mut syncs.has_slot, true) {
            self.stage.free_flush_slot(consumer, now);
        }
        self.sync(export_key, key, now);
    }

    /// Gives the slots of syncs that take long to requests that wait.
    pub(super) fn free_slots_of_long_syncs(&mut self, now: Instant) {
        for (_, WorkerExport { syncs, consumer, .. }) in &mut self.exports {
            let is_long = now.saturating_since(syncs.began) >= LONGEST_SLOT;
            if is_long && std::mem::take(&mut syncs.has_slot) {
                self.stage.free_flush_slot(consumer, now);
            }
        }
    }

    /// Has a request concluded once the export's completed writes, or its own change, are on stable storage.
    pub(super) fn sync(&mut self, export: usize, key: usize, now: Instant) {
        self.requests[key].syncing = true;
        let syncs = &mut self.exports[export].syncs;
        if syncs.poisoned {
            return self.conclude(key, Err(Errno::Io), now);
        }
        syncs.waiting.push(key);
        if !syncs.busy {
            self.start_sync(export, now);
        }
    }

    pub(super) fn start_sync(&mut self, key: usize, now: Instant) {
        let export = &mut self.exports[key];
        (export.syncs.busy, export.syncs.began) = (true, now);
        std::mem::swap(&mut export.syncs.running, &mut export.syncs.waiting);
        let WorkerExport { volume, path, syncs, .. } = export;
        match volume {
            ExportVolume::Upstream(_) => self.at_upstream(key, now, UpstreamExport::flush),
            ExportVolume::File(file) => {
                let covered = syncs.running.iter().map(|request| &self.requests[*request].operation);
                let range = SyncRange::covering(covered);
                let mut ring = FileRing { ring: &mut self.ring, path, door: &self.door, now };
                ring.sync(RingToken::Synced { export: key }, file, range);
            }
            ExportVolume::Region { .. } => {
                if let Err(errno) = emulated(&mut self.emulated).sync(now, key) {
                    self.synced(key, Err(errno), now);
                }
            }
        }
    }

    /// The sync of a file or of the emulated device is over.
    pub(super) fn synced(&mut self, key: usize, result: Result<(), Errno>, now: Instant) {
        self.notice_shrinkage(key, true);
        let WorkerExport { volume, syncs, .. } = &mut self.exports[key];
        match (result, volume) {
            (Err(errno), _) => self.poison(key, DataLoss::Reported(errno)),
            (Ok(()), ExportVolume::File(_)) => syncs.beside.clone_from(&syncs.by_themselves),
            (Ok(()), _) => {}
        }
        if self.exports[key].syncs.beside.is_empty() {
            self.conclude_sync(key, result, now);
        }
    }

    /// A request's operation on its file is over: a sync that ran beside it may have waited for that.
    pub(super) fn over_beside(&mut self, key: usize, request: usize, now: Instant) {
        let syncs = &mut self.exports[key].syncs;
        if syncs.by_themselves.remove(&request) && syncs.beside.remove(&request) && syncs.beside.is_empty() {
            self.conclude_sync(key, Ok(()), now);
        }
    }

    fn conclude_sync(&mut self, key: usize, result: Result<(), Errno>, now: Instant) {
        for request in std::mem::take(&mut self.exports[key].syncs.running) {
            self.conclude(request, result, now);
        }
        self.sync_again(key, now);
    }

    /// A sync is over and all that it covered is answered.
    pub(super) fn sync_again(&mut self, key: usize, now: Instant) {
        // Only now: an export that is busy is not removed by what an answer sets free.
        let WorkerExport { syncs, consumer, .. } = &mut self.exports[key];
        syncs.busy = false;
        let is_flush = |request: &usize| self.requests[*request].operation == CheckedOperation::Flush;
        if syncs.has_slot && !syncs.waiting.iter().any(is_flush) {
            syncs.has_slot = false;
            self.stage.free_flush_slot(consumer, now);
        }
        if syncs.waiting.is_empty() {
            self.forget_if_unused(key, now);
        } else {
            self.start_sync(key, now);
        }
    }

    /// Poisons an export whose volume was seen to have shrunk. With `looks` it is looked at now.
    pub(super) fn notice_shrinkage(&mut self, key: usize, looks: bool) {
        let ExportVolume::File(file) = &self.exports[key].volume else { return };
        if looks {
            file.look_at_size();
        }
        if let Some(shrunk) = file.shrunk() {
            self.poison(key, DataLoss::Shrunk(shrunk));
        }
    }

    /// Takes a sign of lost data for the only one that there will be. It is logged once; metrics and status
    /// show it from then on.
    pub(super) fn poison(&mut self, key: usize, loss: DataLoss) {
        let WorkerExport { syncs, consumer, .. } = &mut self.exports[key];
        if std::mem::replace(&mut syncs.poisoned, true) {
            return;
        }
        error!(
            pool = %self.config.name, export = %consumer.name(),
            "{loss}: some writes that were answered may be \
                lost; every \
             flush and FUA write fails from now on; check the storage and the data, then restart the \
             service, or remove \
             the export, reload, add it and reload"
        );
    }
}
