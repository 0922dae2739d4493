//! Bursts of a scheduler (PARDA §3.3, §3.4), as they stand among the keys of a pool or a host: batches, and
//! the credit of an idle consumer.

use tidegate_sched::{FlowBatch, RequestCost};
use tidegate_units::Bytes;

use crate::finding::FindingList;
use crate::section::Section;

/// The keys of the table `batch`.
pub const BATCH_KEYS: &[&str] = crate::keys::law::BATCH.names;

/// Reads the table `batch`. Keys that it lacks have their defaults.
pub fn batch(of: &Section<'_>, report: &mut FindingList<'_>) -> FlowBatch {
    let mut batch = FlowBatch::default();
    let Some(section) = of.table("batch", BATCH_KEYS, report) else { return batch };
    if let Some(locality) = section.parsed::<Bytes>("locality", report) {
        batch.locality = locality.value;
    }
    if let Some(requests) = section.whole("requests", 0..=1_024, report) {
        batch.requests = requests.value as u32;
    }
    if let Some(cost) = section.whole("ios", 0..=65_536, report) {
        batch.cost = RequestCost::from_ios(cost.value as u32);
    }
    batch
}

/// Reads `idle_credit`; without it there is none.
pub fn idle_credit(of: &Section<'_>, report: &mut FindingList<'_>) -> RequestCost {
    of.whole("idle_credit", 0..=65_536, report)
        .map_or(RequestCost::ZERO, |credit| RequestCost::from_ios(credit.value as u32))
}
