//! The agent's part: it passes the target's counters to the regulation that the agent runs.

use std::collections::BTreeSet;
use std::time::Duration;

use tidegate_control::{BulkDetector, LoopConfig, OperationTotals};
use tidegate_regulate::{EligibleConsumer, InFlight, RegulatedResource, StorageLoad, ThrottleKind};
use tidegate_units::{Bytes, ConsumerName, Instant, Latency};

use super::plan::{InvalidPlan, MemberRule};

/// Operations of one machine at the storage since the step before.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct MachineCounters {
    pub(super) reads: OperationTotals,
    pub(super) writes: OperationTotals,
    /// Time that its requests were at the storage, all together, in nanoseconds.
    pub(super) outstanding: u64,
}

/// The regulated storage, and the rule by which machines are eligible for throttling.
pub(super) struct StoreRegulator {
    resource: RegulatedResource,
    eligible: EligibleMachines,
}

enum EligibleMachines {
    Named(BTreeSet<ConsumerName>),
    Automatic(Box<BulkDetector>),
}

impl EligibleMachines {
    fn contains(&self, name: &ConsumerName) -> bool {
        match self {
            Self::Named(names) => names.contains(name),
            Self::Automatic(writers) => writers.contains(name),
        }
    }
}

impl StoreRegulator {
    pub(super) fn new(law: &LoopConfig, members: &MemberRule) -> Result<Self, InvalidPlan> {
        // The simulated interface can keep packets for any time.
        let throttle = ThrottleKind::Delay { longest: Latency::MAX };
        Ok(Self {
            resource: RegulatedResource::new(law.clone(), throttle)?,
            eligible: match members {
                MemberRule::Named(names) => EligibleMachines::Named(names.iter().cloned().collect()),
                MemberRule::Automatic(config) => {
                    EligibleMachines::Automatic(Box::new(BulkDetector::new(*config)?))
                }
            },
        })
    }

    pub(super) fn interval(&self) -> Duration {
        self.resource.law().interval
    }

    /// Decides once, after an interval. Returns the delay for the machines of which
    /// [`is_eligible`](Self::is_eligible) is true from now on.
    pub(super) fn step(
        &mut self,
        now: Instant,
        machines: &[ConsumerName],
        counters: &[MachineCounters],
    ) -> Latency {
        let interval = self.interval();
        if let EligibleMachines::Automatic(writers) = &mut self.eligible {
            let written = counters.iter().map(|counters| counters.writes.bytes);
            writers.observe(interval, self.resource.delay() > Latency::ZERO, machines.iter().zip(written));
        }
        let eligible: BTreeSet<_> = machines.iter().filter(|name| self.eligible.contains(name)).collect();
        self.resource.set_consumers(eligible.into_iter().cloned().map(EligibleConsumer::new));
        for (name, counters) in machines.iter().zip(counters) {
            let load = StorageLoad {
                reads: counters.reads,
                writes: counters.writes,
                outstanding_seconds: counters.outstanding as f64 * 1e-9,
            };
            let place = self.resource.place_of(name);
            self.resource.complete(place, &load);
            self.resource.in_flight(place, in_flight(&counters.reads), in_flight(&counters.writes));
        }
        if self.resource.pass(interval).is_some() {
            self.resource.decide(now, None);
        }
        self.resource.delay()
    }

    pub(super) fn is_eligible(&self, name: &ConsumerName) -> bool {
        self.eligible.contains(name)
    }
}

const fn in_flight(operations: &OperationTotals) -> InFlight {
    InFlight { count: operations.in_flight, oldest: operations.oldest_in_flight }
}

/// Takes a completed request into the count.
pub(super) fn completed(operations: &mut OperationTotals, bytes: u64, latency: u64) {
    operations.count += 1;
    operations.bytes = Bytes::new(operations.bytes.get().saturating_add(bytes));
    operations.total_latency = operations.total_latency.saturating_add(Latency::from_nanos(latency));
}
