//! Requests at the resource, as far as accounts and laws distinguish them.

use tidegate_units::Instant;

/// The kinds of requests that laws distinguish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OperationKind {
    /// Returns data.
    Read,
    /// Changes data.
    Write,
}

/// A dispatched request that the resource is done with.
#[derive(Debug, Clone, Copy)]
pub struct CompletedRequest {
    /// Its kind. `None`: laws do not count it.
    pub kind: Option<OperationKind>,
    /// The bytes that it counts for.
    pub bytes: u32,
    /// The time from which on it counts, as
    /// [`ConsumerAccount::dispatched`](crate::ConsumerAccount::dispatched) returned it.
    pub released: Instant,
    /// The time when it was dispatched.
    pub dispatched: Instant,
    /// False if its latency says nothing about the resource, as after an error.
    pub is_sample: bool,
}
