//! Workloads that are made of several.
//!
//! # `oltp`
//!
//! The composition of Filebench's OLTP personality (`oltp.f`), with which PARDA §5.4 loads its virtual machines: processes
//! that read at random, database writers that follow them with bursts of asynchronous writes, and one that writes the
//! log. What is waited for is modelled, and what is computed is think time:
//!
//! | workload | does | Filebench |
//! |---|---|---|
//! | `NAME.readers` | `threads` (200) threads: a random read of `size` (2 KiB), then think (exponential, mean 1 ms) | 200 shadow processes; the think time stands for their `hog` |
//! | `NAME.writers` | for every 100 reads 100 random writes of `size` at once, durable when answered, up to ten such bursts at the same time; readers wait while 2000 reads are not answered for | 10 writers, 100 writes each per 1000 reads, with `dsync`; high water 2000 |
//! | `NAME.log` | for every 32 reads the next 4 KiB of the log and a flush, one at a time; readers wait at 1000 | one 256 KiB write per 3200 reads, with `dsync`: the same order of bytes, in the small synchronous pieces in which databases commit |
//!
//! Reads and writes are thus equally many. Operations are counted as Filebench counts them: each read and each write.
//! The log has the last sixteenth of the disk, or the volume that `volume` names.

use tidegate_config::{Report, Section};
use tidegate_units::{Bytes, Latency};

use super::workload::{STEP_KEYS, Template};
use crate::scenario::{Arrivals, Durability, Region, Sizes, Step, Think, ThinkTime, Workload};

/// Where the log begins on a disk that it shares with the data.
const LOG_FROM: f64 = 15.0 / 16.0;

const READERS: u32 = 200;
const SIZE: u32 = 2 * 1024;
const LOG_SIZE: u32 = 4 * 1024;
const BURST: u32 = 100;

/// What can be asked for.
#[derive(Debug, Clone, Copy)]
pub(super) enum Profile {
    Oltp,
}

pub(super) fn read(
    profile: Profile,
    name: &str,
    table: &Section<'_>,
    think: Think,
    report: &mut Report<'_>,
) -> Vec<Template> {
    for key in STEP_KEYS.iter().filter(|key| !["size", "volume"].contains(key)).chain(&["steps"]) {
        if let Some(span) = table.key_span(key) {
            report.error(&span, format!("`{key}` is what the profile says"));
        }
    }
    let threads = table.whole("threads", 1..=65_536, report).map_or(READERS, |threads| threads.value as u32);
    let size =
        table.parsed::<Bytes>("size", report).map_or(SIZE, |size| size.value.get().clamp(1, 1 << 20) as u32);
    let log = table.text("volume", report).map(|volume| volume.value);
    let think = if table.has("think") {
        think
    } else {
        Think { mean: Latency::from_millis(1), distribution: ThinkTime::Exponential }
    };
    match profile {
        Profile::Oltp => oltp(name, threads, think, size, log),
    }
}

fn oltp(name: &str, threads: u32, think: Think, size: u32, log: Option<&str>) -> Vec<Template> {
    let data = match log {
        Some(_) => Region::WHOLE,
        None => Region { from: 0.0, to: LOG_FROM },
    };
    let readers = format!("{name}.readers");
    let follow =
        |every, threads, backlog| Arrivals::After { workload: readers.clone(), every, threads, backlog };
    let read = Step { sizes: Sizes::fixed(size), region: data, ..Step::random_reads(size) };
    let write = Step { count: BURST, reads: 0.0, durability: Durability::Fua, ..read.clone() };
    let append = Step {
        sizes: Sizes::fixed(LOG_SIZE),
        reads: 0.0,
        sequential: 1.0,
        durability: Durability::Flush,
        region: if log.is_some() { Region::WHOLE } else { Region { from: LOG_FROM, to: 1.0 } },
        ..Step::random_reads(LOG_SIZE)
    };
    let workload = |part: &str, arrivals, step, operations, volume: &str| Template {
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
        workload("readers", Arrivals::Closed { outstanding: threads, think }, read, 1, ""),
        workload("writers", follow(BURST, 10, 2_000), write, BURST, ""),
        workload("log", follow(32, 1, 1_000), append, 1, log.unwrap_or("")),
    ]
}
