//! Limits of requests, as laws and conversions mean them: no kernel has rounded them yet.

use tidegate_units::{ByteRate, Iops};

/// The limit of one direction, reads or writes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RateLimit {
    /// Requests per second.
    pub requests: Iops,
    /// Bytes per second; `None` where the size of requests is not known.
    pub bytes: Option<ByteRate>,
}

/// The limits of both directions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DirectionLimits {
    /// The limit of reads.
    pub reads: RateLimit,
    /// The limit of writes.
    pub writes: RateLimit,
}
