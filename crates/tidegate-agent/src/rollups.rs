//! Rollups of an agent, beside its decision journal: of the reads of each resource with their promise, under
//! the name of the resource, and of each eligible consumer.

use tidegate_control::{OperationTotals, SignalState, WaitReason};
use tidegate_journal::WallTime;
use tidegate_regulate::RegulatedResource;
use tidegate_service::rollups::{LookTime, MinuteFold, MinuteReading};
use tidegate_service::status::{ConsumerTotal, Judgement, PromiseReading, ServiceStatus};
use tidegate_units::{ConsumerName, Instant, Latency};

use crate::metrics::ResourceStatus;
use crate::status::total;

/// Adds the reads of a resource, and the judgement of their promise.
pub(crate) fn note_reads(
    fold: &mut MinuteFold,
    now: LookTime,
    resource: &RegulatedResource,
    promise: Option<PromiseReading>,
    judgement: Judgement,
) {
    let name = &resource.law().resource;
    let Ok(consumer) = ConsumerName::new(name.as_str()) else { return };
    let OperationTotals { count, bytes, total_latency, .. } = resource.totals().reads;
    // What clients wait for beside the storage is not known.
    let total = ConsumerTotal {
        count,
        sum: total_latency,
        client: (count, Latency::ZERO),
        read: bytes,
        ..ConsumerTotal::default()
    };
    let promise = promise.map(|reading| reading.terms());
    let input = resource.decision().map(|decision| decision.input);
    let is_outstanding = matches!(input, Some(SignalState::Overload { .. } | SignalState::Unknown));
    fold.note(name, &consumer, now, MinuteReading { total, promise, judgement, is_outstanding });
}

/// Adds what eligible consumers did, and which of them are throttled. The kernel does not say whose requests
/// took how long.
pub(crate) fn note_consumers(
    fold: &mut MinuteFold,
    now: Instant,
    wall: WallTime,
    resources: &[ResourceStatus],
    status: &ServiceStatus,
) {
    let time = LookTime { at: now, wall };
    for (resource, told) in resources.iter().zip(&status.resources) {
        let is_there = |name: &ConsumerName| {
            name.as_str() == resource.name.as_str() || resource.members.contains_key(name)
        };
        fold.retain(&resource.name, is_there);
        if !resource.uncounted.is_empty() {
            fold.lose_sight(&resource.name);
            continue;
        }
        for (name, load) in &resource.members {
            let did = total(&load.reads, &load.writes);
            let total = ConsumerTotal { client: (did.count, Latency::ZERO), sum: Latency::ZERO, ..did };
            let judgement = Judgement::default();
            let reading = MinuteReading { total, promise: None, judgement, is_outstanding: false };
            fold.note(&resource.name, name, time, reading);
        }
        for (name, told) in resource.members.keys().zip(&told.consumers) {
            let waits_for = (told.held == Some(true)).then_some(WaitReason::Law);
            fold.look(&resource.name, name, time, waits_for);
        }
    }
}
