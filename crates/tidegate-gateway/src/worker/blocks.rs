//! Changes of blocks on files, in their order ([`crate::block_order`]).

use tidegate_units::Instant;

use super::{PoolWorker, WorkerExport};
use crate::backend::{ExportVolume, FileRing};

impl PoolWorker {
    /// Begins a dispatched request on its file, or has it wait for the changes before it.
    pub(super) fn start_on_file(&mut self, key: usize, now: Instant) {
        let request = &mut self.requests[key];
        let WorkerExport { volume: ExportVolume::File(file), blocks, .. } = &mut self.exports[request.export]
        else {
            unreachable!("only a file has blocks");
        };
        if let Some(changed) = file.changed_blocks(request) {
            let (place, begins) = blocks.enter(key, changed);
            request.blocks = Some(place);
            if !begins {
                return;
            }
        }
        self.begin_on_file(key, now);
    }

    fn begin_on_file(&mut self, key: usize, now: Instant) {
        let request = &mut self.requests[key];
        let WorkerExport { volume: ExportVolume::File(file), path, syncs, .. } =
            &mut self.exports[request.export]
        else {
            unreachable!("only a file has blocks");
        };
        if file.syncs_by_itself(&request.operation) {
            syncs.began_by_itself(key);
        }
        let mut ring = FileRing { ring: &mut self.ring, path, door: &self.door, now };
        file.start(&mut ring, &mut self.buffers, key, request);
    }

    /// A change is over: those that waited only for it begin.
    pub(super) fn release_blocks(&mut self, key: usize, now: Instant) {
        let request = &mut self.requests[key];
        let Some(place) = request.blocks.take() else { return };
        let begun = self.exports[request.export].blocks.leave(place);
        begun.into_iter().for_each(|request| self.begin_on_file(request, now));
    }
}
