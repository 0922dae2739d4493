//! The promise of each resource: its reads take no longer than the target in the mean of a second.

use std::collections::BTreeMap;
use std::time::Duration;

use tidegate_control::{SignalState, SignalStatistic};
use tidegate_regulate::RegulatedResource;
use tidegate_service::status::{Judgement, PromiseCounters, PromiseReading, PromiseRecord, PromiseStatus};
use tidegate_units::{Instant, ResourceName};

/// The time between two looks at the promises: each second is judged.
const BETWEEN: Duration = Duration::from_secs(1);

/// The records of the promises of all resources.
#[derive(Debug, Default)]
pub(crate) struct ResourcePromises {
    records: BTreeMap<ResourceName, PromiseRecord>,
    /// The time of the last look.
    judged: Option<Instant>,
}

impl ResourcePromises {
    /// Returns true if it is time to look.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.judged.is_none_or(|judged| now.saturating_since(judged) >= BETWEEN)
    }

    /// Judges what the resources did, and gives each reading with its judgement to `rollups`. Resources that
    /// are not named any more are forgotten.
    pub(crate) fn note<'a>(
        &mut self,
        now: Instant,
        resources: impl Iterator<Item = &'a RegulatedResource> + Clone,
        mut rollups: impl FnMut(&'a RegulatedResource, Option<PromiseReading>, Judgement),
    ) {
        self.judged = Some(now);
        self.records.retain(|name, _| resources.clone().any(|resource| resource.law().resource == *name));
        for resource in resources {
            let name = &resource.law().resource;
            let reading = reading(resource);
            let judgement = match reading {
                Some(reading) => self.records.entry(name.clone()).or_default().note(now, reading),
                None => {
                    self.records.remove(name);
                    Judgement::default()
                }
            };
            rollups(resource, reading, judgement);
        }
    }

    /// Returns how much of each promise was kept.
    pub(crate) fn status(&self) -> BTreeMap<ResourceName, PromiseStatus> {
        self.records.iter().filter_map(|(name, record)| Some((name.clone(), record.status()?))).collect()
    }
}

/// Returns the counters of a promise. `None`: the target is about a percentile, which counters do not tell.
fn reading(resource: &RegulatedResource) -> Option<PromiseReading> {
    let law = resource.law();
    if law.statistic != SignalStatistic::Mean {
        return None;
    }
    // Initiators wait for more than the storage: quick disks keep no promise.
    let reads = resource.reported().unwrap_or(&resource.totals().reads);
    let oldest = resource.decision().and_then(|decision| match decision.input {
        SignalState::Overload { oldest } => Some(oldest),
        _ => None,
    });
    let counters = PromiseCounters::Latencies { count: reads.count, sum: reads.total_latency, oldest };
    Some(PromiseReading { promised: law.target, counters })
}
