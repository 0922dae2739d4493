//! The content of rollups.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate_control::WaitReason;
use tidegate_units::{Bytes, ConsumerName, Latency, ResourceName};

use crate::calendar::Minute;

/// The unit in which the fulfilment of a promise is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JudgedBy {
    /// Seconds whose mean latency was within the promise.
    Seconds,
    /// Requests that were not late, under a contract.
    Requests,
}

/// A promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PromiseTerms {
    /// The promised latency.
    pub response_time: Latency,
    /// The unit of the judgement.
    pub judged_by: JudgedBy,
}

/// A consumer under one promise.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RollupKey {
    /// The resource.
    pub resource: ResourceName,
    /// The consumer.
    pub consumer: ConsumerName,
    /// Its promise. `None`: it was promised nothing.
    pub promise: Option<PromiseTerms>,
}

/// Counts of a consumer in one minute.
///
/// The file has `watched` in whole seconds, `waited` in milliseconds and latencies in microseconds, rounded.
/// Everything else is exact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MinuteCounts {
    /// The part of the minute in which the service counted.
    pub watched: Duration,
    /// Seconds or requests that were judged.
    pub judged: u64,
    /// Those of them in which the promise was kept; at most `judged`.
    pub kept: u64,
    /// Reads and writes that were answered.
    pub requests: u64,
    /// The sum of their latencies as clients see them, less the network.
    pub client_time: Latency,
    /// Requests that the storage completed. A request in slices is several.
    pub storage_requests: u64,
    /// The sum of their latencies at the storage; with a law that releases requests, from their release.
    pub storage_time: Latency,
    /// Bytes that were read.
    pub read: Bytes,
    /// Bytes that were written, zeroed ones included.
    pub written: Bytes,
    /// Time during which requests waited, by the reasons of [`WaitReason::ALL`] in their order.
    pub waited: [Duration; 4],
    /// True if requests were outstanding at some time and none was completed.
    pub was_stuck: bool,
}

impl MinuteCounts {
    /// Returns the time during which requests waited for this reason.
    #[must_use]
    pub fn waited_for(&self, reason: WaitReason) -> Duration {
        self.waited[place(reason)]
    }

    /// Adds time during which requests waited for this reason.
    pub fn add_wait(&mut self, reason: WaitReason, time: Duration) {
        let waited = &mut self.waited[place(reason)];
        *waited = waited.saturating_add(time);
    }

    /// Adds the counts of another part of the minute.
    pub fn add(&mut self, other: &Self) {
        self.watched = self.watched.saturating_add(other.watched);
        self.judged = self.judged.saturating_add(other.judged);
        self.kept = self.kept.saturating_add(other.kept);
        self.requests = self.requests.saturating_add(other.requests);
        self.client_time = self.client_time.saturating_add(other.client_time);
        self.storage_requests = self.storage_requests.saturating_add(other.storage_requests);
        self.storage_time = self.storage_time.saturating_add(other.storage_time);
        self.read = Bytes::new(self.read.get().saturating_add(other.read.get()));
        self.written = Bytes::new(self.written.get().saturating_add(other.written.get()));
        for (reason, time) in WaitReason::ALL.into_iter().zip(other.waited) {
            self.add_wait(reason, time);
        }
        self.was_stuck |= other.was_stuck;
    }
}

fn place(reason: WaitReason) -> usize {
    match reason {
        WaitReason::Law => 0,
        WaitReason::Limit => 1,
        WaitReason::Share => 2,
        WaitReason::Depth => 3,
    }
}

/// The consumers of a service in one minute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MinuteBatch {
    /// The minute.
    pub minute: Minute,
    /// Counts, each key once.
    pub rollups: Vec<(RollupKey, MinuteCounts)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_its_place() {
        let mut counts = MinuteCounts::default();
        for (reason, millis) in WaitReason::ALL.into_iter().zip(1..) {
            counts.add_wait(reason, Duration::from_millis(millis));
        }
        counts.add(&counts.clone());
        assert_eq!(counts.waited, [2, 4, 6, 8].map(Duration::from_millis));
        assert_eq!(counts.waited_for(WaitReason::Depth), Duration::from_millis(8));
    }
}
