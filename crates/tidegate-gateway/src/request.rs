//! A request on its way through the gateway.

use tidegate_nbd::Operation;
use tidegate_units::Instant;

use crate::buffer::{Buffer, class_bytes};
use crate::upstream::Change;

/// Zeros that are written at a time where a file system cannot make a range zero by itself.
pub(crate) const ZEROES: usize = 256 * 1024;

/// One request between its arrival and its reply.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) session: usize,
    pub(crate) export: usize,
    pub(crate) cookie: u64,
    pub(crate) operation: Operation,
    /// A write's payload, or a read's data once it is there.
    pub(crate) buffer: Option<Buffer>,
    /// The memory that it is charged with until its reply is sent.
    pub(crate) charged: u64,
    pub(crate) arrived: Instant,
    /// Since when it was the scheduler's to dispatch: no sooner than its arrival. Has a meaning once it is dispatched.
    pub(crate) released: Instant,
    pub(crate) dispatched: Option<Instant>,
    /// Waits for a sync: a flush, or a change that the backend has made and that must be durable.
    pub(crate) syncing: bool,
    /// Bytes transferred so far.
    pub(crate) done: u32,
    /// The first change at an upstream that was made for it and needs a flush to be durable.
    pub(crate) change: Option<Change>,
}

/// The memory that an operation occupies at most, at any time of its life.
pub(crate) fn memory_of(operation: &Operation) -> u64 {
    match *operation {
        Operation::Read { length, .. } | Operation::Write { length, .. } => {
            class_bytes(length as usize) as u64
        }
        Operation::WriteZeroes { .. } => ZEROES as u64,
        Operation::Flush | Operation::Trim { .. } | Operation::Disconnect => 0,
    }
}
