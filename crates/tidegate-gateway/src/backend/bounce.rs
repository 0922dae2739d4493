//! Requests with parts of blocks, on a file past the page cache ([`crate::blocks`]).

use std::io;

use tidegate_nbd::{CheckedOperation, Errno};

use super::file::{FileVolume, errno};
use super::{FileRing, RequestProgress, VolumeOperation};
use crate::blocks::{BlockCover, ChangedBlocks, PartialBlocks};
use crate::buffer::{AlignedBuffer, BufferPool};
use crate::request::ClientRequest;
use crate::ring::{BufferPart, CompletedOperation, LentMemory};
use crate::zeroing::SliceMethod;

impl FileVolume {
    /// Returns the blocks around the range of a request, or of its slice, if there are parts of blocks in it
    /// and it moves data.
    fn cover(&self, request: &ClientRequest) -> Option<BlockCover> {
        let slice = request.slice;
        match (request.operation, slice.method) {
            (
                CheckedOperation::Read { offset, length } | CheckedOperation::Write { offset, length, .. },
                _,
            ) => BlockCover::of(offset, length.into(), self.alignment()),
            (CheckedOperation::WriteZeroes { offset, .. }, SliceMethod::Write) => {
                BlockCover::of(offset + slice.from, slice.length(), self.alignment())
            }
            _ => None,
        }
    }

    /// Returns the blocks that a request, or its slice, changes, if it matters what else does.
    pub(crate) fn changed_blocks(&self, request: &ClientRequest) -> Option<ChangedBlocks> {
        let block = self.alignment();
        let offset = match request.operation {
            _ if block == 1 => return None,
            CheckedOperation::Write { offset, .. }
            | CheckedOperation::WriteZeroes { offset, .. }
            | CheckedOperation::Trim { offset, .. } => offset,
            _ => return None,
        };
        let range = offset + request.slice.from..offset + request.slice.until;
        Some(ChangedBlocks::of(range, block, self.cover(request).is_some()))
    }

    /// Begins a request with parts of blocks. Returns false if it has none.
    pub(super) fn start_in_part(
        &self,
        ring: &mut FileRing<'_>,
        pool: &mut BufferPool,
        key: usize,
        request: &mut ClientRequest,
    ) -> bool {
        let Some(cover) = self.cover(request) else { return false };
        let (partial, memory) = match request.operation {
            CheckedOperation::Read { .. } => (PartialBlocks::to_read(cover), pool.take(cover.length)),
            _ => {
                let mut memory = self.data_of(pool, request);
                (PartialBlocks::to_change(cover, &mut memory), memory)
            }
        };
        let partial = request.partial.insert(Box::new(partial));
        self.move_blocks(ring, key, &request.operation, partial, memory);
        true
    }

    fn move_blocks(
        &self,
        ring: &mut FileRing<'_>,
        key: usize,
        operation: &CheckedOperation,
        partial: &PartialBlocks,
        memory: AlignedBuffer,
    ) {
        let (part, offset) = partial.part();
        let part = BufferPart { start: part.start, length: part.len() };
        if partial.is_writing() {
            let durable = self.syncs_with(operation);
            ring.write(key, self, memory, part, offset, durable);
        } else {
            ring.read_storage(key, VolumeOperation::of(operation), self, memory, part, offset);
        }
    }

    /// Goes on with a request with parts of blocks.
    pub(super) fn advance_in_part(
        &self,
        ring: &mut FileRing<'_>,
        pool: &mut BufferPool,
        key: usize,
        request: &mut ClientRequest,
        completed: CompletedOperation,
    ) -> RequestProgress {
        let CompletedOperation { result, held: LentMemory::Buffer(mut memory), .. } = completed else {
            unreachable!("blocks are moved from and to memory");
        };
        // Invariant: the caller has seen it.
        let mut partial = request.partial.take().expect("a request with parts of blocks");
        let outcome = match result {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => None,
            Ok(0) => {
                self.ends_at(partial.part().1);
                Some(Err(Errno::Io))
            }
            Ok(count) => partial.advance(count, &mut memory).then_some(Ok(())),
            Err(error) => Some(Err(errno(&error))),
        };
        let Some(outcome) = outcome else {
            self.move_blocks(ring, key, &request.operation, &partial, memory);
            request.partial = Some(partial);
            return RequestProgress::Working;
        };
        if outcome.is_ok() {
            request.done = request.slice.until;
        }
        match request.operation {
            CheckedOperation::Read { .. } if outcome.is_err() => pool.put(memory),
            CheckedOperation::Read { .. } => {
                memory.copy_within(partial.cover.data(), 0);
                request.buffer = Some(memory);
            }
            CheckedOperation::WriteZeroes { .. } => {
                memory[..partial.cover.length_to_change()].fill(0);
                request.buffer = Some(memory);
            }
            _ => request.buffer = Some(memory),
        }
        match outcome {
            Err(errno) if partial.is_writing() && self.syncs_by_itself(&request.operation) => {
                RequestProgress::ReportedLoss(errno)
            }
            outcome => RequestProgress::done(outcome).with_sync(self.needs_sync(&request.operation)),
        }
    }
}
