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
//! Nothing here or elsewhere syncs a file that is only opened or closed. Errors that no sync has reported
//! stay with the file, for the first sync after it is next opened. So a gateway that is started after a crash
//! hears of the writes that its predecessor had answered. A sync at the end would take that report, and there
//! is no client left to tell.

use thiserror::Error;
use tidegate_nbd::Errno;
use tidegate_units::Instant;
use tracing::error;

use super::requests::emulated;
use super::{PoolWorker, WorkerExport};
use crate::backend::{ExportVolume, FileRing};
use crate::claim::ShrunkVolume;
use crate::request::SyncRange;
use crate::ring::RingToken;
use crate::upstream::UpstreamExport;

/// Requests that wait for an export's data to be on stable storage. One sync runs at a time and covers
/// everything that was complete when it began; requests that come later share the next one. Two at a time
/// could not tell which of them a report belongs to.
#[derive(Default)]
pub(super) struct PendingSyncs {
    pub(super) busy: bool,
    /// Written data is lost: see the module.
    pub(super) poisoned: bool,
    /// The number of an upstream's losses that are logged.
    pub(super) losses: u64,
    pub(super) running: Vec<usize>,
    /// Writes that sync by themselves, and were under way when the sync that runs succeeded. One of them may
    /// have its report.
    beside: Vec<usize>,
    pub(super) waiting: Vec<usize>,
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
        export.syncs.busy = true;
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
            (Ok(()), ExportVolume::File(file)) => {
                let beside = self.requests.iter().filter(|(_, request)| {
                    let is_under_way = request.dispatched.is_some() && !request.syncing;
                    request.export == key && is_under_way && file.syncs_by_itself(&request.operation)
                });
                syncs.beside.extend(beside.map(|(request, _)| request));
            }
            (Ok(()), _) => {}
        }
        if self.exports[key].syncs.beside.is_empty() {
            self.conclude_sync(key, result, now);
        }
    }

    /// A request's operation on its file is over: a sync that ran beside it may have waited for that.
    pub(super) fn over_beside(&mut self, key: usize, request: usize, now: Instant) {
        let beside = &mut self.exports[key].syncs.beside;
        let Some(at) = beside.iter().position(|other| *other == request) else { return };
        beside.swap_remove(at);
        if beside.is_empty() {
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
        let syncs = &mut self.exports[key].syncs;
        syncs.busy = false;
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
