//! Errors, by operation.

use thiserror::Error;

/// No such flow: it was removed, or belongs to another scheduler.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("no such flow")]
pub struct UnknownFlow;

/// Reason that a request was not queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum QueueRefusal {
    /// No such flow: it was removed, or belongs to another scheduler.
    #[error("no such flow")]
    UnknownFlow,
    /// The flow holds as many requests as it may.
    #[error("the flow's queue is full (requests)")]
    TooManyRequests,
    /// The flow holds as many bytes as it may.
    #[error("the flow's queue is full (bytes)")]
    TooManyBytes,
}

/// A request that was not queued, returned to its owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RefusedRequest<T> {
    /// The request.
    pub request: T,
    /// Reason of the refusal.
    pub reason: QueueRefusal,
}

/// Reason that a completion was not accepted. Nothing has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum CompleteError {
    /// No such flow: it was removed and its last request is complete, or it belongs to another scheduler.
    #[error("no such flow")]
    UnknownFlow,
    /// Every request of this flow that was dispatched is complete already.
    #[error("nothing of this flow is outstanding")]
    NothingOutstanding,
}
