//! The agent's part: it passes the target's counters to the loop that the agent runs.
//!
//! The decisions are those of `tidegate-control`. The agent makes observations of loads in
//! `agent/resource.rs`. These few lines are repeated here because the simulator lies below the agent.

use std::collections::BTreeSet;
use std::time::Duration;

use tidegate_control::{
    ConsumerObservation, ControlLoop, LoopConfig, Observation, Operations, Outstanding, Writers,
};
use tidegate_units::{Bytes, ConsumerName, Instant, Latency, Shares};

use super::plan::{InvalidPlan, Members};

/// Operations of one machine at the storage since the step before.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counters {
    pub(super) reads: Operations,
    pub(super) writes: Operations,
    /// Time that its requests were at the storage, all together, in nanoseconds.
    pub(super) outstanding: u64,
}

/// The loop, and the consumers eligible for throttling.
pub(super) struct Regulator {
    control: ControlLoop,
    members: Set,
    delay: Latency,
    interval: Duration,
}

enum Set {
    Named(BTreeSet<ConsumerName>),
    Automatic(Box<Writers>),
}

impl Set {
    fn has(&self, name: &ConsumerName) -> bool {
        match self {
            Self::Named(names) => names.contains(name),
            Self::Automatic(writers) => writers.contains(name),
        }
    }
}

impl Regulator {
    pub(super) fn new(law: &LoopConfig, members: &Members) -> Result<Self, InvalidPlan> {
        Ok(Self {
            control: ControlLoop::new(law.clone())?,
            members: match members {
                Members::Named(names) => Set::Named(names.iter().cloned().collect()),
                Members::Automatic(config) => Set::Automatic(Box::new(Writers::new(*config)?)),
            },
            delay: Latency::ZERO,
            interval: law.interval,
        })
    }

    pub(super) fn interval(&self) -> Duration {
        self.interval
    }

    /// Decides once. Returns the delay for the consumers of which [`Self::holds`] is true from now on.
    pub(super) fn step(&mut self, now: Instant, machines: &[ConsumerName], counters: &[Counters]) -> Latency {
        let interval = self.interval;
        if let Set::Automatic(writers) = &mut self.members {
            let written = counters.iter().map(|counters| counters.writes.bytes);
            writers.observe(interval, self.delay > Latency::ZERO, machines.iter().zip(written));
        }
        let consumers = machines
            .iter()
            .zip(counters)
            .map(|(name, counters)| {
                let member = self.members.has(name);
                // Counters know nothing of what waits in the network: by Little's law it is what was delayed.
                let held = if member { self.delay } else { Latency::ZERO };
                let count = (counters.reads.count + counters.writes.count) as f64;
                let seconds = counters.outstanding as f64 * 1e-9 + count * held.as_secs_f64();
                ConsumerObservation {
                    reads: counters.reads,
                    writes: counters.writes,
                    mean_outstanding: Outstanding::new(seconds / interval.as_secs_f64()),
                    ..ConsumerObservation::idle(name.clone(), Shares::DEFAULT, !member)
                }
            })
            .collect();
        let resource = self.control.config().resource.clone();
        let (commands, _) = self.control.step(now, &Observation::new(resource, now, consumers));
        self.delay = commands.consumers.iter().filter_map(|command| command.delay).max().unwrap_or_default();
        self.delay
    }

    pub(super) fn holds(&self, name: &ConsumerName) -> bool {
        self.members.has(name)
    }
}

/// Takes a completed request into the count.
pub(super) fn completed(operations: &mut Operations, bytes: u64, latency: u64) {
    operations.count += 1;
    operations.bytes = Bytes::new(operations.bytes.get().saturating_add(bytes));
    operations.total_latency = operations.total_latency.saturating_add(Latency::from_nanos(latency));
}
