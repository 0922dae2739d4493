//! Workloads as written, with the names of the volumes that their steps use.

use crate::scenario::Workload;
use tidegate_config::{FindingList, Section};
use tidegate_units::Bytes;

pub(super) const STEP_KEYS: &[&str] = tidegate_config::keys::scenario::STEP.names;

/// A workload, with the names of the volumes that its steps use.
#[derive(Debug, Clone)]
pub(super) struct WorkloadTemplate {
    pub(super) workload: Workload,
    pub(super) volumes: Vec<String>,
}

pub(super) fn size(section: &Section<'_>, report: &mut FindingList<'_>) -> Option<u32> {
    let size = section.parsed::<Bytes>("size", report)?;
    if size.value == Bytes::ZERO || size.value.get() > GREATEST_SIZE {
        report.error(&size.span, "`size` must be more than nothing, and at most 64MiB");
        return None;
    }
    u32::try_from(size.value.get()).ok()
}

/// The largest request: more than any driver sends.
const GREATEST_SIZE: u64 = 64 * 1024 * 1024;
