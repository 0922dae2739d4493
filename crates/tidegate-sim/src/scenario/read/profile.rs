//! Workloads that consist of several workloads.
//!
//! # `oltp`
//!
//! The composition of Filebench's OLTP personality (`oltp.f`), with which PARDA §5.4 loads its virtual
//! machines. Processes read at random, database writers follow them with bursts of asynchronous writes, and
//! one process writes the log. Waits are modelled, and computation is think time. Filebench's semaphores are
//! credited before the wait. So readers may run ahead by the high water and by the operations under way:
//!
//! * `NAME.readers` are `threads` (200) threads. Each does a random read of `size` (2 KiB), then thinks
//!   (exponential, mean 1 ms). Filebench has 200 shadow processes; the think time stands for their `hog`.
//! * `NAME.writers` does 1000 random writes of `size` at once for every 1000 reads, durable when answered.
//!   The next such burst waits until all of them are. Readers wait while 3000 reads are not answered for.
//!   Filebench has 10 writers, each with 100 writes with `dsync` per 1000 reads, all woken by the same reads.
//!   Its high water is 2000 beside the 1000 under way.
//! * `NAME.log` does one random write of 256 KiB into the log for every 3200 reads, durable when answered.
//!   Readers wait while 4200 reads are not answered for. Filebench has the log writer, with `dsync`. Its high
//!   water is 1000 beside the 3200.
//!
//! Reads and writes are thus equally many. Operations are counted as Filebench counts them: each read and
//! each write. The log has the last sixteenth of the disk, or the volume that `volume` names.

use tidegate_config::{FindingList, Section};
use tidegate_units::Latency;

use super::template::{self, STEP_KEYS, WorkloadTemplate};
use crate::scenario::{
    DiskRegion, Durability, OperationArrivals, OperationStep, SizeWeights, ThinkTime, ThinkTiming, Workload,
};

/// Beginning of the log on a disk that it shares with the data, as a fraction of the disk.
const LOG_FROM: f64 = 15.0 / 16.0;

const READERS: u32 = 200;
const SIZE: u32 = 2 * 1024;
const BURST: u32 = 1_000;
const WRITERS_BACKLOG: u32 = 3_000;
const LOG_SIZE: u32 = 256 * 1024;
const LOG_EVERY: u32 = 3_200;
const LOG_BACKLOG: u32 = 4_200;

/// The profiles that a workload can have.
#[derive(Debug, Clone, Copy)]
pub(super) enum WorkloadProfile {
    Oltp,
}

pub(super) fn read(
    profile: WorkloadProfile,
    name: &str,
    table: &Section<'_>,
    think: ThinkTiming,
    report: &mut FindingList<'_>,
) -> Vec<WorkloadTemplate> {
    for key in STEP_KEYS.iter().filter(|key| !["size", "volume"].contains(key)).chain(&["steps"]) {
        if let Some(span) = table.key_span(key) {
            report.error(&span, format!("`{key}` is what the profile says"));
        }
    }
    let threads = table.whole("threads", 1..=65_536, report).map_or(READERS, |threads| threads.value as u32);
    let size = template::size(table, report).unwrap_or(SIZE);
    let log = table.text("volume", report).map(|volume| volume.value);
    let think = if table.has("think") {
        think
    } else {
        ThinkTiming { mean: Latency::from_millis(1), distribution: ThinkTime::Exponential }
    };
    match profile {
        WorkloadProfile::Oltp => oltp(name, threads, think, size, log),
    }
}

fn oltp(name: &str, threads: u32, think: ThinkTiming, size: u32, log: Option<&str>) -> Vec<WorkloadTemplate> {
    let data = match log {
        Some(_) => DiskRegion::WHOLE,
        None => DiskRegion { from: 0.0, to: LOG_FROM },
    };
    let readers = format!("{name}.readers");
    let follow =
        |every, backlog| OperationArrivals::After { workload: readers.clone(), every, threads: 1, backlog };
    let read =
        OperationStep { sizes: SizeWeights::fixed(size), region: data, ..OperationStep::random_reads(size) };
    let write = OperationStep { count: BURST, reads: 0.0, durability: Durability::Fua, ..read.clone() };
    let append = OperationStep {
        sizes: SizeWeights::fixed(LOG_SIZE),
        reads: 0.0,
        durability: Durability::Fua,
        region: if log.is_some() { DiskRegion::WHOLE } else { DiskRegion { from: LOG_FROM, to: 1.0 } },
        ..OperationStep::random_reads(LOG_SIZE)
    };
    let workload = |part: &str, arrivals, step, operations, volume: &str| WorkloadTemplate {
        workload: Workload {
            name: format!("{name}.{part}"),
            arrivals,
            steps: vec![step],
            operations,
            during: Vec::new(),
            cycle: None,
        },
        volumes: vec![volume.to_owned()],
    };
    vec![
        workload("readers", OperationArrivals::Closed { outstanding: threads, think }, read, 1, ""),
        workload("writers", follow(BURST, WRITERS_BACKLOG), write, BURST, ""),
        workload("log", follow(LOG_EVERY, LOG_BACKLOG), append, 1, log.unwrap_or("")),
    ]
}
