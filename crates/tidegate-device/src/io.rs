//! Requests to a device, and its answers.

use tidegate_units::{Bytes, Instant};

/// The operation of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IoKind {
    /// Reads a range.
    Read,
    /// Writes a range.
    Write {
        /// Completes only when the data would survive a loss of power (force unit access).
        fua: bool,
    },
    /// Completes when every write that completed before it was submitted would survive a loss of power. Its
    /// range is ignored.
    Flush,
}

/// A request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceIo {
    /// The operation.
    pub kind: IoKind,
    /// The first byte, from the start of the device.
    pub offset: u64,
    /// Number of bytes.
    pub bytes: u32,
}

impl DeviceIo {
    /// A read of `bytes` from `offset`.
    #[must_use]
    pub const fn read(offset: u64, bytes: u32) -> Self {
        Self { kind: IoKind::Read, offset, bytes }
    }

    /// A write of `bytes` to `offset`, durable at the latest with the next flush.
    #[must_use]
    pub const fn write(offset: u64, bytes: u32) -> Self {
        Self { kind: IoKind::Write { fua: false }, offset, bytes }
    }

    /// A flush of the whole device.
    #[must_use]
    pub const fn flush() -> Self {
        Self { kind: IoKind::Flush, offset: 0, bytes: 0 }
    }
}

/// A request is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceCompletion {
    /// The id under which it was submitted.
    pub id: u64,
    /// Time at which the model finished it: at or before the time to which the device was advanced.
    pub at: Instant,
}

/// A device does not take a request. Nothing has changed by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// The range does not lie on the device.
    #[error("{bytes} bytes at offset {offset} reach beyond the device's end at {capacity}")]
    OutOfRange {
        /// The first byte asked for.
        offset: u64,
        /// The number of bytes asked for.
        bytes: u32,
        /// The size of the device.
        capacity: Bytes,
    },
    /// A read or write of no bytes.
    #[error("a read or write of zero bytes")]
    Empty,
    /// The device has its greatest number of requests in flight: [`MAX_IN_FLIGHT`](crate::MAX_IN_FLIGHT).
    #[error("{limit} requests are in flight, and the device holds no more")]
    Full {
        /// The greatest number of requests in flight.
        limit: usize,
    },
}
