//! The order of changes where some of them change blocks in part.
//!
//! Such a change reads blocks and writes them back ([`crate::blocks`]). Another change of
//! these blocks between the two would be lost. So of two changes with a block in common, one of which is in
//! part, the later waits for the earlier. Whole blocks alone need no order: the storage takes them as they
//! come.

use std::collections::VecDeque;

use tidegate_units::Instant;

use super::PoolWorker;
use crate::backend::{ExportVolume, FileRing};

/// The changes of an export that depend on each other's order.
#[derive(Default)]
pub(super) struct BlockOrder {
    /// Changes in part that run or wait.
    in_part: usize,
    /// Changes that wait for others, in the order in which they came.
    waiting: VecDeque<usize>,
}

impl PoolWorker {
    /// Begins a dispatched request on its file, or has it wait for the changes before it.
    pub(super) fn start_on_file(&mut self, key: usize, now: Instant) {
        let export_key = self.requests[key].export;
        let export = &mut self.exports[export_key];
        let ExportVolume::File(file) = &export.volume else {
            unreachable!("only a file has blocks");
        };
        if let Some(mut blocks) = file.changed_blocks(&self.requests[key]) {
            let others = self.requests.iter().filter(|(_, other)| other.export == export_key);
            blocks.waits = (blocks.in_part || export.blocks.in_part > 0)
                && others.filter_map(|(_, other)| other.blocks.as_ref()).any(|other| blocks.follows(other));
            export.blocks.in_part += usize::from(blocks.in_part);
            if blocks.waits {
                export.blocks.waiting.push_back(key);
            }
            let waits = blocks.waits;
            self.requests[key].blocks = Some(blocks);
            if waits {
                return;
            }
        }
        let mut ring = FileRing { ring: &mut self.ring, path: &mut export.path, door: &self.door, now };
        file.start(&mut ring, &mut self.buffers, key, &mut self.requests[key]);
    }

    /// A change is over: those that waited for it begin, in their order.
    pub(super) fn release_blocks(&mut self, key: usize, now: Instant) {
        let request = &mut self.requests[key];
        let Some(blocks) = request.blocks.take() else { return };
        let order = &mut self.exports[request.export].blocks;
        order.in_part -= usize::from(blocks.in_part);
        let waiting = std::mem::take(&mut order.waiting);
        for waiting in &waiting {
            if let Some(blocks) = self.requests[*waiting].blocks.take() {
                order.in_part -= usize::from(blocks.in_part);
            }
        }
        waiting.into_iter().for_each(|waiting| self.start_on_file(waiting, now));
    }
}
