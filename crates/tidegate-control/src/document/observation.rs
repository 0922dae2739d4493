//! What a sensor reports to the loop.

use serde::{Deserialize, Serialize};
use tidegate_units::{Bytes, ConsumerName, Instant, Iops, Latency, ResourceName, Shares};

use crate::document::contract::Contract;
use crate::document::host_report::ClusterSignal;
use crate::document::signal::SignalPercentile;

/// What happened at one resource since the sensor's previous report.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Observation {
    /// The version of this document: [`Observation::VERSION`].
    #[serde(deserialize_with = "crate::document::version::only::<{ Observation::VERSION }, _>")]
    pub version: u16,
    /// The resource observed.
    pub resource: ResourceName,
    /// When the report was made.
    pub at: Instant,
    /// Everyone who may load the resource, each once, idle ones included. They may come and go.
    pub consumers: Vec<ConsumerObservation>,
    /// What all hosts that share the resource say together, this one included; then the law steers by it
    /// instead of by what this host alone measured. `None`: this host is on its own.
    pub cluster: Option<ClusterSignal>,
    /// The percentile that the law steers by ([`LoopConfig::statistic`](crate::LoopConfig)), of the signal's
    /// requests. `None` when none was counted, and where the law steers by the mean.
    pub percentile: Option<SignalPercentile>,
}

impl Observation {
    /// The version that this code writes and reads.
    pub const VERSION: u16 = 5;

    /// A report of the current version, by a host on its own.
    #[must_use]
    pub fn new(resource: ResourceName, at: Instant, consumers: Vec<ConsumerObservation>) -> Self {
        Self { version: Self::VERSION, resource, at, consumers, cluster: None, percentile: None }
    }
}

/// What one consumer did since the previous report.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConsumerObservation {
    /// Who.
    pub name: ConsumerName,
    /// What it is entitled to, relative to the others.
    pub shares: Shares,
    /// The rate that goes before all shares, in requests of the size that it sends. `None`: none. What it
    /// means for a protected consumer is nothing, since that is never held; nor does the integral law know
    /// it, which has contracts.
    pub reservation: Option<Iops>,
    /// What was promised to it, of the integral law. `None`: nothing, it lives on surplus. What a contract
    /// means for a protected consumer is that the others leave it that rate; it is never held.
    pub contract: Option<Contract>,
    /// The response time that it is to have, of the self-tuning law, which steers to that times the set point
    /// ratio. `None`: the target of the resource.
    pub goal: Option<Latency>,
    /// Its reads are the signal and it is never throttled.
    pub protected: bool,
    /// Its reads at the resource.
    pub reads: Operations,
    /// Its writes at the resource.
    pub writes: Operations,
    /// How many requests it had outstanding on average since the previous report, as the client sees it:
    /// waiting for the throttle, or at the resource.
    pub mean_outstanding: Outstanding,
    /// Requests that wait for the throttle now: accepted, not yet dispatched.
    pub queued: u32,
    /// For how long of the time since the previous report its leaky bucket kept a request waiting for want of
    /// a token. Zero where there is none.
    pub short_of_tokens: Latency,
    /// How long the requests that completed since the previous report waited between their release by the
    /// bucket and their dispatch, in sum: a fair queue is part of what a promise is about, the bucket is not.
    /// Zero where there is none.
    pub scheduler_wait: Latency,
    /// What 95 % of the requests that completed since the previous report took at most, from their release by
    /// the bucket to their completion. `None` when none completed, and where nobody measures it.
    pub release_to_completion: Option<Latency>,
    /// For how long the first of those that its bucket has released waits to be dispatched now. `None` when
    /// none does, and where there is no bucket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest_released: Option<Latency>,
}

impl ConsumerObservation {
    /// A consumer that did nothing.
    #[must_use]
    pub fn idle(name: ConsumerName, shares: Shares, protected: bool) -> Self {
        Self {
            name,
            shares,
            reservation: None,
            contract: None,
            goal: None,
            protected,
            reads: Operations::default(),
            writes: Operations::default(),
            mean_outstanding: Outstanding::default(),
            queued: 0,
            short_of_tokens: Latency::ZERO,
            scheduler_wait: Latency::ZERO,
            release_to_completion: None,
            oldest_released: None,
        }
    }
}

/// The requests of one kind at the resource: from dispatch to completion, without what the throttle itself
/// adds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Operations {
    /// How many completed since the previous report.
    pub count: u64,
    /// The bytes of the completed ones.
    pub bytes: Bytes,
    /// The sum of the completed ones' response times.
    pub total_latency: Latency,
    /// How many are dispatched and not completed now.
    pub in_flight: u32,
    /// How long ago the oldest of those in flight was dispatched. `None` when there is none, or when the
    /// sensor cannot know.
    pub oldest_in_flight: Option<Latency>,
}

/// An average number of outstanding requests. Finite, never negative.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default, Serialize, Deserialize)]
#[serde(from = "f64", into = "f64")]
pub struct Outstanding(f64);

impl Outstanding {
    /// From a number of requests. NaN and negative numbers become zero, +∞ the greatest number.
    #[must_use]
    pub fn new(requests: f64) -> Self {
        Self(if requests.is_nan() { 0.0 } else { requests.clamp(0.0, f64::MAX) })
    }

    /// The number of requests, for the mathematics.
    #[must_use]
    pub const fn get(self) -> f64 {
        self.0
    }
}

impl From<f64> for Outstanding {
    fn from(value: f64) -> Self {
        Self::new(value)
    }
}

impl From<Outstanding> for f64 {
    fn from(value: Outstanding) -> Self {
        value.0
    }
}
