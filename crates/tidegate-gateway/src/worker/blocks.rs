//! Changes of blocks on files, in their order ([`crate::block_order`]).

use tidegate_nbd::Errno;
use tidegate_units::Instant;

use super::requests::end_of;
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

    /// A change is over: those that waited only for it begin. The volume may have shrunk meanwhile: those beyond its
    /// end are over as well.
    pub(super) fn release_blocks(&mut self, key: usize, now: Instant) {
        let Some(place) = self.requests[key].blocks.take() else { return };
        let export = self.requests[key].export;
        let (mut over, mut failed) = (vec![place], Vec::new());
        while let Some(place) = over.pop() {
            for begun in self.exports[export].blocks.leave(place) {
                if self.is_beyond_end(begun) {
                    over.extend(self.requests[begun].blocks.take());
                    failed.push(begun);
                } else {
                    self.begin_on_file(begun, now);
                }
            }
        }
        for request in failed {
            self.notice_shrinkage(export, false);
            self.backend_done(request, Err(Errno::Io), false, now);
        }
    }

    fn is_beyond_end(&self, key: usize) -> bool {
        let request = &self.requests[key];
        match &self.exports[request.export].volume {
            ExportVolume::File(file) => file.is_cut_before(end_of(&request.operation)),
            ExportVolume::Region { .. } | ExportVolume::Upstream(_) => false,
        }
    }
}
