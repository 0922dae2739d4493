//! A request on its way through the gateway.

use tidegate_nbd::{AllocationExtent, AllocationMap, CheckedOperation, MOST_EXTENTS};
use tidegate_units::Instant;

use crate::blocks::{BlockCover, PartialBlocks};
use crate::buffer::{AlignedBuffer, class_bytes};
use crate::upstream::ledger::ChangeNumber;
use crate::zeroing::{RequestSlice, ZEROES};

/// One request between its arrival and its reply.
#[derive(Debug)]
pub(crate) struct ClientRequest {
    pub(crate) session: usize,
    pub(crate) export: usize,
    pub(crate) cookie: u64,
    pub(crate) operation: CheckedOperation,
    /// A write's payload, or a read's data once it is there.
    pub(crate) buffer: Option<AlignedBuffer>,
    /// The answer to a block status, once it is there.
    pub(crate) allocation: Option<Box<AllocationMap>>,
    /// The memory that it is charged with until its reply is sent.
    pub(crate) charged: u64,
    pub(crate) arrived: Instant,
    /// The time from which on the scheduler could dispatch it, no sooner than its arrival. Has a meaning once
    /// it is dispatched.
    pub(crate) released: Instant,
    pub(crate) dispatched: Option<Instant>,
    /// Waits for a sync: a flush, or a change that the backend has made and that must be durable.
    pub(crate) syncing: bool,
    /// Bytes transferred, zeroed, trimmed or cached so far.
    pub(crate) done: u64,
    /// The slice that is carried out now, or next.
    pub(crate) slice: RequestSlice,
    /// The first change at an upstream that was made for it and needs a flush to be durable.
    pub(crate) change: Option<ChangeNumber>,
    /// The progress with the whole blocks around it, if it has parts of blocks.
    pub(crate) partial: Option<Box<PartialBlocks>>,
    /// Its place in the order of changes, while it changes blocks or waits to.
    pub(crate) blocks: Option<usize>,
}

impl ClientRequest {
    /// Makes a request that has just arrived, without data. `cookie` is its session's name for it.
    pub(crate) fn new(
        session: usize,
        export: usize,
        cookie: u64,
        operation: CheckedOperation,
        now: Instant,
    ) -> Self {
        Self {
            session,
            export,
            cookie,
            operation,
            buffer: None,
            allocation: None,
            charged: 0,
            arrived: now,
            released: now,
            dispatched: None,
            syncing: false,
            done: 0,
            slice: RequestSlice::whole(0),
            change: None,
            partial: None,
            blocks: None,
        }
    }
}

/// Returns true if success means that data is on stable storage: a flush, or a change with FUA.
pub(crate) fn is_durable(operation: &CheckedOperation) -> bool {
    matches!(
        *operation,
        CheckedOperation::Flush
            | CheckedOperation::Write { fua: true, .. }
            | CheckedOperation::Trim { fua: true, .. }
            | CheckedOperation::WriteZeroes { fua: true, .. }
    )
}

/// The part of a file that a sync covers. Of length zero at offset zero, as the kernel has it: all of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SyncRange {
    pub(crate) offset: u64,
    pub(crate) length: u32,
}

impl SyncRange {
    pub(crate) const WHOLE: Self = Self { offset: 0, length: 0 };

    /// The least range that covers all of these operations; the whole file if one of them is a flush.
    pub(crate) fn covering<'a>(operations: impl IntoIterator<Item = &'a CheckedOperation>) -> Self {
        let (mut start, mut end) = (u64::MAX, 0);
        for operation in operations {
            let (offset, length) = match *operation {
                CheckedOperation::Write { offset, length, .. } => (offset, u64::from(length)),
                CheckedOperation::Trim { offset, length, .. }
                | CheckedOperation::WriteZeroes { offset, length, .. } => (offset, length),
                _ => return Self::WHOLE,
            };
            start = start.min(offset);
            end = end.max(offset + length);
        }
        // A range of more than 4 GiB does not fit the kernel's interface.
        let length = u32::try_from(end.saturating_sub(start)).ok().filter(|length| *length > 0);
        length.map_or(Self::WHOLE, |length| Self { offset: start, length })
    }
}

/// The memory that an operation occupies at most, at any time of its life, on storage with blocks of this
/// size.
pub(crate) fn memory_of(operation: &CheckedOperation, block: u32) -> u64 {
    match *operation {
        CheckedOperation::Read { offset, length } => {
            let cover = BlockCover::of(offset, length.into(), block);
            class_bytes(cover.map_or(length as usize, |cover| cover.length)) as u64
        }
        CheckedOperation::Write { offset, length, .. } => {
            let cover = BlockCover::of(offset, length.into(), block);
            class_bytes(cover.map_or(length as usize, |cover| cover.length_to_change())) as u64
        }
        CheckedOperation::WriteZeroes { .. } | CheckedOperation::Cache { .. } => u64::from(ZEROES),
        // The extents, and their form on the wire.
        CheckedOperation::BlockStatus { one: false, .. } => {
            (2 * class_bytes(MOST_EXTENTS * size_of::<AllocationExtent>())) as u64
        }
        CheckedOperation::BlockStatus { one: true, .. } => class_bytes(0) as u64,
        CheckedOperation::Flush | CheckedOperation::Trim { .. } | CheckedOperation::Disconnect => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(offset: u64, length: u32) -> CheckedOperation {
        CheckedOperation::Write { offset, length, fua: true }
    }

    #[test]
    fn a_sync_covers_every_change_and_no_more_than_the_range_that_holds_them() {
        let covering = |operations: &[CheckedOperation]| SyncRange::covering(operations);
        assert_eq!(covering(&[write(4096, 512)]), SyncRange { offset: 4096, length: 512 });
        assert_eq!(
            covering(&[write(8192, 512), write(512, 512)]),
            SyncRange { offset: 512, length: 8192 },
            "in any order"
        );
        assert_eq!(covering(&[write(4096, 512), CheckedOperation::Flush]), SyncRange::WHOLE);
        assert_eq!(covering(&[write(0, 512), write(1 << 40, 512)]), SyncRange::WHOLE, "too far apart");
        assert_eq!(covering(&[]), SyncRange::WHOLE);
    }
}
