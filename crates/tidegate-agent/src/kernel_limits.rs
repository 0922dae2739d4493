//! Limits as the kernel keeps them, made of the limits that the regulation decided.

use tidegate_host::cgroup::IoLimit;
use tidegate_host::throttle::WriteLimit;
use tidegate_regulate::{DirectionLimits, RateLimit};
use tidegate_units::ByteRate;

/// Returns the limit of the writes to a device.
pub(super) fn write_limit(limit: RateLimit) -> WriteLimit {
    WriteLimit::new(limit.requests, limit.bytes.unwrap_or(ByteRate::new(f64::MAX)))
}

/// Returns the limit of a cgroup for a device.
pub(super) fn io_limit(DirectionLimits { reads, writes }: DirectionLimits) -> IoLimit {
    let limit = IoLimit::NONE.reads(reads.requests).writes(writes.requests);
    let limit = reads.bytes.map_or(limit, |bytes| limit.read_bytes(bytes));
    writes.bytes.map_or(limit, |bytes| limit.write_bytes(bytes))
}
