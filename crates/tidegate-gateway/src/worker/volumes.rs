//! Silent volumes: the slots that they occupy go to other volumes until they answer.

use std::time::Duration;

use tidegate_units::Instant;
use tracing::{error, info};

use super::PoolWorker;
use super::slices::extent_of;
use crate::backend::{ExportVolume, VolumeOperation, VolumeSilence};
use crate::config::BackendConfig;
use crate::stage::PoolStage;

/// The interval of looks for silent volumes while requests wait for the window: a fraction of the least
/// silence that counts.
const WATCH: Duration = Duration::from_millis(5);

/// The purpose of a look at the volumes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum VolumeWatch {
    /// To notice hangs.
    Idle,
    /// Requests wait for slots, which a silent volume may occupy.
    Contended,
}

impl PoolWorker {
    /// Looks at the volumes soon if requests wait: perhaps for slots of a volume that is silent.
    pub(super) fn plan_watch(&mut self, now: Instant) {
        let waits = matches!(self.config.backend, BackendConfig::File { .. }) && self.stage.has_queued();
        self.next_watch = waits.then(|| self.next_watch.unwrap_or(now + WATCH));
    }

    /// Takes the slots from volumes that have fallen silent, and says of those that hang that they do.
    pub(super) fn watch_volumes(&mut self, watch: VolumeWatch, now: Instant) {
        self.next_watch = None;
        for key in self.file_volumes() {
            let export = &mut self.exports[key];
            let silence = export.path.silence(now);
            if silence <= export.silence {
                continue;
            }
            if silence == VolumeSilence::Stalled {
                // Each volume can lend no more than the depth. If all pause together, as on a disk that
                // collects its garbage, all park what they have queued, and there are no others to take the
                // slots.
                let lends = !export.consumer.is_protected() && export.consumer.in_flight() > 0;
                if watch == VolumeWatch::Idle || !lends {
                    continue;
                }
            }
            if export.silence == VolumeSilence::None {
                self.stage.lend_slots(&mut export.consumer, now);
                export.parked = self.stage.cancel(&mut export.consumer, now, |_| true).into();
            }
            export.silence = silence;
            if silence == VolumeSilence::Hung {
                export.consumer.set_hung(true, now);
                error!(
                    pool = %self.config.name, export = %export.consumer.name(),
                    "the volume hangs: nothing has completed for {} s, with {} operations outstanding; its \
                        requests \
                     wait for it, its law does not count it, and other exports go on",
                    export.path.silent_for(now).as_secs(), export.path.outstanding()
                );
            }
            self.probe(key, now);
        }
    }

    pub(super) fn file_volumes(&self) -> Vec<usize> {
        let files = self.exports.iter().filter(|(_, export)| matches!(export.volume, ExportVolume::File(_)));
        files.map(|(key, _)| key).collect()
    }

    /// A request for a volume that is silent waits until it answers.
    pub(super) fn park(&mut self, key: usize, request: usize, now: Instant) {
        self.exports[key].parked.push_back(request);
        self.probe(key, now);
    }

    /// Lets one read and one other request through. The silence may concern only one kind, as a slow sync
    /// blocks writes.
    fn probe(&mut self, key: usize, now: Instant) {
        loop {
            let (export, requests) = (&mut self.exports[key], &self.requests);
            let kind = |request: &usize| VolumeOperation::of(&requests[*request].operation) as usize;
            let Some(at) = export.parked.iter().position(|request| !export.probed[kind(request)]) else {
                return;
            };
            let Some(request) = export.parked.remove(at) else { return };
            export.probed[kind(&request)] = true;
            PoolStage::borrow_slot(&mut export.consumer, now);
            self.start(request, now, now);
        }
    }

    /// Something has completed for a volume that may still be silent: lets the next of its kind through.
    pub(super) fn probe_answered(&mut self, key: usize, kind: VolumeOperation, now: Instant) {
        let export = &mut self.exports[key];
        if export.silence != VolumeSilence::None {
            if let Some(probed) = export.probed.get_mut(kind as usize) {
                *probed = false;
            }
            self.probe(key, now);
        }
    }

    /// An operation of a volume has completed: unless it is silent about those of the other kind, it is not
    /// silent any more.
    pub(super) fn volume_answered(&mut self, key: usize, kind: VolumeOperation, now: Instant) {
        let export = &mut self.exports[key];
        let silent_for = export.path.silent_for(now);
        export.path.completed(kind, now);
        if export.silence == VolumeSilence::None {
            return;
        }
        if export.path.silence(now) != VolumeSilence::None {
            return self.probe_answered(key, kind, now);
        }
        export.probed = [false; 2];
        let silence = std::mem::replace(&mut export.silence, VolumeSilence::None);
        if silence == VolumeSilence::Hung {
            export.consumer.set_hung(false, now);
            info!(
                pool = %self.config.name, export = %export.consumer.name(),
                "the volume answers again after {} s", silent_for.as_secs()
            );
        }
        for request in std::mem::take(&mut export.parked) {
            let extent = extent_of(&self.requests[request], self.requests[request].slice);
            self.stage.enqueue(&mut export.consumer, request, extent, now);
        }
    }
}
