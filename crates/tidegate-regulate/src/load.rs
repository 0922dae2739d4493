//! Loads, as sensors report them to a [`RegulatedResource`](crate::RegulatedResource).

use tidegate_control::OperationTotals;
use tidegate_units::{Bytes, Latency};

/// The load of one consumer, or of several together: requests that completed, and how long they took.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct StorageLoad {
    /// Reads.
    pub reads: OperationTotals,
    /// Writes.
    pub writes: OperationTotals,
    /// The time that its requests were outstanding at the storage, all together, in seconds. A wait in the
    /// network is not part of it.
    pub outstanding_seconds: f64,
}

/// Requests of one direction that are at the storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct InFlight {
    /// The number.
    pub count: u32,
    /// The time since the oldest was sent; `None` if there is none, or if that is not known.
    pub oldest: Option<Latency>,
}

/// The load of one consumer whose requests are counted when they are sent to the device, as a kernel counts
/// those of cgroups: numbers and bytes. Their latency is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SentLoad {
    /// Reads.
    pub reads: OperationTotals,
    /// Writes.
    pub writes: OperationTotals,
}

/// The load of a device: its completed requests, of all senders.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DeviceLoad {
    /// Reads.
    pub reads: OperationTotals,
    /// Writes.
    pub writes: OperationTotals,
    /// Requests in flight at the end.
    pub in_flight: u64,
}

impl StorageLoad {
    /// Adds what followed, or what others did.
    pub fn plus(&mut self, more: &Self) {
        plus(&mut self.reads, &more.reads);
        plus(&mut self.writes, &more.writes);
        self.outstanding_seconds += more.outstanding_seconds;
    }
}

impl SentLoad {
    /// Adds what followed, or what others sent.
    pub(crate) fn plus(&mut self, more: &Self) {
        plus(&mut self.reads, &more.reads);
        plus(&mut self.writes, &more.writes);
    }
}

/// Returns the mean latency of completed requests; `None` if there are none.
pub(crate) fn mean_latency(operations: &OperationTotals) -> Option<Latency> {
    operations.total_latency.as_nanos().checked_div(operations.count).map(Latency::from_nanos)
}

/// Adds completed requests.
pub(crate) fn plus(sum: &mut OperationTotals, more: &OperationTotals) {
    sum.count = sum.count.saturating_add(more.count);
    sum.bytes = Bytes::new(sum.bytes.get().saturating_add(more.bytes.get()));
    sum.total_latency = sum.total_latency.saturating_add(more.total_latency);
}
