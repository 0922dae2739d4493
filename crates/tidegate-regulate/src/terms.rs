//! The terms on which a consumer uses a resource.

use tidegate_control::Contract;
use tidegate_sched::{BucketRelease, ConsumerLimit, FlowCapacity, FlowConfig, LeakyBucket};
use tidegate_units::{Bytes, ConsumerName, Iops, Latency, Shares};

/// The terms on which a consumer uses a resource.
#[derive(Debug, Clone, PartialEq)]
pub struct ConsumerTerms {
    /// Its name in observations and commands.
    pub name: ConsumerName,
    /// Its weight against the other consumers.
    pub shares: Shares,
    /// True if no law may throttle it.
    pub protected: bool,
    /// True if neither a law nor its limit throttles it for now. The law goes on to count its requests, and
    /// its reads are no signal.
    pub released: bool,
    /// A rate that goes before all shares, in I/Os of average size ([`tidegate_sched::CostModel`]).
    pub reservation: Option<Iops>,
    /// A ceiling that no law lifts.
    pub limit: Option<ConsumerLimit>,
    /// The contract promised to it. It has an effect only under a law that keeps contracts.
    pub contract: Option<Contract>,
    /// The response time that it is to have under laws that keep goals. `None`: the target of the
    /// resource, or what the law takes from its contract.
    pub goal: Option<Latency>,
    /// σ: the number of requests that may be released at once after a pause, where its contract is kept.
    pub bucket: u32,
}

impl ConsumerTerms {
    /// An unprotected consumer with default shares, without promises and ceilings.
    #[must_use]
    pub fn new(name: ConsumerName) -> Self {
        Self {
            name,
            shares: Shares::DEFAULT,
            protected: false,
            released: false,
            reservation: None,
            limit: None,
            contract: None,
            goal: None,
            bucket: BucketRelease::USUAL_SIZE,
        }
    }

    /// Returns true if no law throttles it.
    pub(crate) const fn is_exempt(&self) -> bool {
        self.protected || self.released
    }

    /// Returns the ceiling in force.
    pub(crate) const fn ceiling(&self) -> Option<ConsumerLimit> {
        if self.released { None } else { self.limit }
    }

    /// Returns the configuration of its flow in the scheduler.
    pub(crate) fn flow_config(&self, bucket: Option<LeakyBucket>) -> FlowConfig {
        FlowConfig {
            weight: self.shares,
            exempt: self.is_exempt(),
            // The queue sets it: the law has a say in it.
            reservation: None,
            bucket,
            limit: self.ceiling(),
            delay: Latency::ZERO,
            // Each owner bounds its queues by its own measure: payload memory, or the threads of a workload.
            capacity: FlowCapacity { requests: u32::MAX, bytes: Bytes::new(u64::MAX) },
        }
    }
}
