//! The promise of each resource: its reads take no longer than the target in the mean of a second.

use std::collections::BTreeMap;

use tidegate_control::{SignalState, SignalStatistic};
use tidegate_regulate::RegulatedResource;
use tidegate_service::status::{PromiseCounters, PromiseReading, PromiseRecord, PromiseStatus};
use tidegate_units::{Instant, ResourceName};

/// The records of the promises of all resources.
#[derive(Debug, Default)]
pub(crate) struct ResourcePromises(BTreeMap<ResourceName, PromiseRecord>);

impl ResourcePromises {
    /// Judges what the resources did. Those that are not named any more are forgotten.
    pub(crate) fn note<'a>(
        &mut self,
        now: Instant,
        resources: impl Iterator<Item = &'a RegulatedResource> + Clone,
    ) {
        self.0.retain(|name, _| resources.clone().any(|resource| resource.law().resource == *name));
        for resource in resources {
            let name = &resource.law().resource;
            match (reading(resource), self.0.get_mut(name)) {
                (Some(reading), Some(record)) => {
                    record.note(now, reading);
                }
                (Some(reading), None) => {
                    self.0.entry(name.clone()).or_default().note(now, reading);
                }
                (None, _) => {
                    self.0.remove(name);
                }
            }
        }
    }

    /// Returns how much of each promise was kept.
    pub(crate) fn status(&self) -> BTreeMap<ResourceName, PromiseStatus> {
        self.0.iter().filter_map(|(name, record)| Some((name.clone(), record.status()?))).collect()
    }
}

/// Returns the counters of a promise. `None`: the target is about a percentile, which counters do not tell.
fn reading(resource: &RegulatedResource) -> Option<PromiseReading> {
    let law = resource.law();
    if law.statistic != SignalStatistic::Mean {
        return None;
    }
    let reads = &resource.totals().reads;
    let oldest = resource.decision().and_then(|decision| match decision.input {
        SignalState::Overload { oldest } => Some(oldest),
        _ => None,
    });
    let counters = PromiseCounters::Latencies { count: reads.count, sum: reads.total_latency, oldest };
    Some(PromiseReading { promised: law.target, counters })
}
