//! Silent volumes: the slots that they occupy go to other volumes until they answer.

use std::collections::VecDeque;
use std::time::Duration;

use tidegate_units::Instant;
use tracing::{error, info};

use super::PoolWorker;
use super::slices::extent_of;
use crate::backend::{ExportVolume, VolumeOperation, VolumeSilence};
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

/// Requests that wait for a silent volume to answer. Each [`VolumeOperation`] has a queue, so that the
/// next one of a kind is found at once.
#[derive(Default)]
pub(super) struct ParkedRequests {
    kinds: [ParkedKind; 3],
    parked: u64,
}

#[derive(Default)]
struct ParkedKind {
    /// With their numbers, which grow.
    queue: VecDeque<(u64, usize)>,
    /// One of the kind was let through since the volume fell silent.
    probed: bool,
}

impl ParkedRequests {
    fn push(&mut self, kind: VolumeOperation, request: usize) {
        self.kinds[kind as usize].queue.push_back((self.parked, request));
        self.parked += 1;
    }

    /// Returns a request to be let through, if there is one of a kind of which none was.
    fn next_probe(&mut self) -> Option<usize> {
        let kind = self.kinds.iter_mut().find(|kind| !kind.probed && !kind.queue.is_empty())?;
        kind.probed = true;
        kind.queue.pop_front().map(|(_, request)| request)
    }

    /// Takes out all requests, in the order in which they came.
    fn take(&mut self) -> impl Iterator<Item = usize> + use<> {
        self.extract(|_| true).into_iter()
    }

    /// Takes out the requests that are `gone`, in the order in which they came.
    pub(super) fn extract(&mut self, gone: impl Fn(usize) -> bool) -> VecDeque<usize> {
        let mut taken = Vec::new();
        for ParkedKind { queue, .. } in &mut self.kinds {
            let (out, left) = std::mem::take(queue).into_iter().partition(|(_, request)| gone(*request));
            taken.extend::<VecDeque<(u64, usize)>>(out);
            *queue = left;
        }
        taken.sort_unstable();
        taken.into_iter().map(|(_, request)| request).collect()
    }

    pub(super) fn len(&self) -> usize {
        self.kinds.iter().map(|kind| kind.queue.len()).sum()
    }
}

impl PoolWorker {
    /// Looks at the volumes soon if requests wait: perhaps for slots of a volume that is silent, or that syncs
    /// for long.
    pub(super) fn plan_watch(&mut self, now: Instant) {
        let waits = self.stage.has_queued();
        self.next_watch = waits.then(|| self.next_watch.unwrap_or(now + WATCH));
    }

    /// Takes the slots from volumes that have fallen silent, and says of those that hang that they do.
    pub(super) fn watch_volumes(&mut self, watch: VolumeWatch, now: Instant) {
        self.next_watch = None;
        if watch == VolumeWatch::Contended {
            self.free_slots_of_long_syncs(now);
        }
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
                for request in self.stage.cancel(&mut export.consumer, now, |_| true) {
                    export.parked.push(VolumeOperation::of(&self.requests[request].operation), request);
                }
            }
            export.silence = silence;
            export.silent_since = now - export.path.silent_for(now);
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
        let kind = VolumeOperation::of(&self.requests[request].operation);
        self.exports[key].parked.push(kind, request);
        self.probe(key, now);
    }

    /// Lets one read, one change and one flush through. The silence may concern only one kind, as a slow sync
    /// blocks writes.
    fn probe(&mut self, key: usize, now: Instant) {
        loop {
            let export = &mut self.exports[key];
            let Some(request) = export.parked.next_probe() else { return };
            PoolStage::borrow_slot(&mut export.consumer, now);
            self.start(request, now, now);
        }
    }

    /// Something has completed for a volume that may still be silent: lets the next of its kind through.
    pub(super) fn probe_answered(&mut self, key: usize, kind: VolumeOperation, now: Instant) {
        let export = &mut self.exports[key];
        if export.silence != VolumeSilence::None {
            export.parked.kinds[kind as usize].probed = false;
            self.probe(key, now);
        }
    }

    /// An operation of a volume has completed: unless it is silent about those of the other kind, it is not
    /// silent any more.
    pub(super) fn volume_answered(&mut self, key: usize, kind: VolumeOperation, now: Instant) {
        let export = &mut self.exports[key];
        if export.silence == VolumeSilence::None {
            return;
        }
        if export.path.silence(now) != VolumeSilence::None {
            return self.probe_answered(key, kind, now);
        }
        export.parked.kinds.iter_mut().for_each(|kind| kind.probed = false);
        let silence = std::mem::replace(&mut export.silence, VolumeSilence::None);
        if silence == VolumeSilence::Hung {
            export.consumer.set_hung(false, now);
            info!(
                pool = %self.config.name, export = %export.consumer.name(),
                "the volume answers again after {} s", now.saturating_since(export.silent_since).as_secs()
            );
        }
        for request in export.parked.take() {
            let extent = extent_of(&self.requests[request], self.requests[request].slice);
            self.stage.enqueue(&mut export.consumer, request, extent, now);
        }
    }
}
