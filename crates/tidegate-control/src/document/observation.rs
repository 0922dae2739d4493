//! The report of a sensor to the loop.

use serde::{Deserialize, Serialize};
use tidegate_units::{Bytes, ConsumerName, Instant, Iops, Latency, ResourceName, Shares};

use crate::document::contract::Contract;
use crate::document::host_report::ClusterSignal;
use crate::document::mean_outstanding::MeanOutstanding;
use crate::document::signal::SignalPercentile;

/// Activity at one resource since the sensor's previous report.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Observation {
    /// The version of this document: [`Observation::VERSION`].
    #[serde(deserialize_with = "crate::document::version::only::<{ Observation::VERSION }, _>")]
    pub version: u16,
    /// The resource observed.
    pub resource: ResourceName,
    /// Time of the report.
    pub at: Instant,
    /// Everyone who may load the resource, each once, idle ones included. They may come and go.
    pub consumers: Vec<ConsumerObservation>,
    /// Combined signal of all hosts that share the resource, this one included. The law then steers by it
    /// instead of by this host's own measurements. `None`: this host is on its own.
    pub cluster: Option<ClusterSignal>,
    /// The percentile that the law steers by ([`LoopConfig::statistic`](crate::LoopConfig)), of the signal's
    /// requests. `None` when none was counted, and where the law steers by the mean.
    pub percentile: Option<SignalPercentile>,
}

impl Observation {
    /// The version that this code writes and reads.
    pub const VERSION: u16 = 5;

    /// Significant bits of sums of times, and of means, in a [rounded](ConsumerObservation::rounded)
    /// observation: they are off by at most 0.4 %. The mean of a hundred latencies scatters by several
    /// per cent.
    pub const SUM_BITS: u32 = MeanOutstanding::BITS;

    /// Significant bits of the age of a single request: it is off by at most 3 %. A law compares it with the
    /// set point while nothing completes.
    pub const AGE_BITS: u32 = 5;

    /// A report of the current version, by a host on its own.
    #[must_use]
    pub fn new(resource: ResourceName, at: Instant, consumers: Vec<ConsumerObservation>) -> Self {
        Self { version: Self::VERSION, resource, at, consumers, cluster: None, percentile: None }
    }
}

/// Activity of one consumer since the previous report.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConsumerObservation {
    /// Name of the consumer.
    pub name: ConsumerName,
    /// Its share, relative to the others.
    pub shares: Shares,
    /// The rate that goes before all shares, in requests of the consumer's size: its reservation, and
    /// under the law `auto` the rate of its contract if that is more. `None`: none. It means nothing for a
    /// protected consumer, which is never throttled, nor under the integral law, which keeps contracts by
    /// rates.
    pub reservation: Option<Iops>,
    /// Its contract, under laws that keep contracts. `None`: no contract, it lives on surplus. The
    /// contract of a protected consumer means that the others leave it that rate; it is never throttled.
    pub contract: Option<Contract>,
    /// The response time that it is to have, under laws that keep goals. The self-tuning law steers to that
    /// times the set point ratio. The law `auto` scales the consumer's latencies by the target over its goal.
    /// `None`: the target of the resource.
    pub goal: Option<Latency>,
    /// Its reads are the signal and it is never throttled.
    pub protected: bool,
    /// Its reads at the resource.
    pub reads: OperationTotals,
    /// Its writes at the resource.
    pub writes: OperationTotals,
    /// Mean number of its outstanding requests since the previous report, as the client sees it: waiting for
    /// the throttle, or at the resource.
    pub mean_outstanding: MeanOutstanding,
    /// Requests that wait for the throttle now: accepted, not yet dispatched.
    pub queued: u32,
    /// For how long of the time since the previous report its leaky bucket kept a request waiting for want of
    /// a token. Zero where there is none.
    pub short_of_tokens: Latency,
    /// Requests that completed since the previous report and took longer than its contract promises.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub late: u64,
    /// Total wait of the requests that completed since the previous report, between their release by the
    /// bucket and their dispatch. A promise covers the fair queue, but not the bucket. Zero without a bucket
    /// and without a contract.
    pub scheduler_wait: Latency,
    /// 95th percentile of the time from release by the bucket to completion, for requests that completed
    /// since the previous report. `None` if none completed, or if the sensor does not measure it.
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
            reads: OperationTotals::default(),
            writes: OperationTotals::default(),
            mean_outstanding: MeanOutstanding::default(),
            queued: 0,
            short_of_tokens: Latency::ZERO,
            late: 0,
            scheduler_wait: Latency::ZERO,
            release_to_completion: None,
            oldest_released: None,
        }
    }

    /// Returns the observation with times as exact as decisions need them. Nanoseconds are noise, which takes
    /// most of the room in a journal. A sensor that measures single requests rounds before the loop decides,
    /// so that loop and journal have the same numbers.
    #[must_use]
    pub fn rounded(mut self) -> Self {
        let sum = |time: Latency| time.rounded(Observation::SUM_BITS);
        let age = |time: Latency| time.rounded(Observation::AGE_BITS);
        for operations in [&mut self.reads, &mut self.writes] {
            operations.total_latency = sum(operations.total_latency);
            operations.oldest_in_flight = operations.oldest_in_flight.map(age);
        }
        self.mean_outstanding = self.mean_outstanding.rounded();
        self.short_of_tokens = sum(self.short_of_tokens);
        self.scheduler_wait = sum(self.scheduler_wait);
        self.release_to_completion = self.release_to_completion.map(sum);
        self.oldest_released = self.oldest_released.map(age);
        self
    }
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// The requests of one kind at the resource: from dispatch to completion, without what the throttle itself
/// adds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OperationTotals {
    /// Number of requests completed since the previous report.
    pub count: u64,
    /// The bytes of the completed ones.
    pub bytes: Bytes,
    /// The sum of the completed ones' response times.
    pub total_latency: Latency,
    /// Number of requests dispatched and not completed now.
    pub in_flight: u32,
    /// Time since dispatch of the oldest request in flight. `None` if there is none, or if the sensor cannot
    /// know.
    pub oldest_in_flight: Option<Latency>,
}
