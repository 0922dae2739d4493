//! A short measurement of reads, as the sensors see them.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::thread;
use std::time::{Duration, Instant as Clock};

use rustix::fs::OFlags;
use tidegate_host::cgroup::{CgroupTree, IoCounters};
use tidegate_host::sense::diskstats::CompletedRequests;
use tidegate_host::sense::{DiskStats, VolumeTree, uncounted};
use tidegate_host::{DeviceNumber, ReadError, SystemRoot};
use tidegate_units::{ByteRate, Bytes, Latency};

use super::inventory::{FoundStorage, MachineInventory, MeasuredReads, ReadSource, RegulationKind};

/// A mean of fewer reads says nothing of a storage.
const LEAST_READS: u64 = 50;

/// The time between two readings of the counters.
const SECOND: Duration = Duration::from_secs(1);

/// The time for which an idle device is read from.
const READING: Duration = Duration::from_secs(3);

/// The pause between two reads of an idle device: as many as a small database makes.
const BETWEEN_READS: Duration = Duration::from_millis(15);

/// The size and the alignment of a read.
const BLOCK: usize = 4_096;

/// Sums of reads.
#[derive(Debug, Default, Clone, Copy)]
struct ReadSums {
    seconds: u64,
    reads: CompletedRequests,
    slowest: Latency,
}

impl ReadSums {
    fn add(&mut self, second: CompletedRequests) {
        self.seconds += 1;
        self.reads = self.reads.plus(second);
        self.slowest = self.slowest.max(second.mean_response_time().unwrap_or(Latency::ZERO));
    }

    fn measured(&self, source: ReadSource) -> Option<MeasuredReads> {
        let mean = self.reads.mean_response_time().filter(|_| self.reads.ios >= LEAST_READS)?;
        let (count, seconds) = (self.reads.ios, self.seconds);
        Some(MeasuredReads { source, count, seconds, mean, slowest: self.slowest })
    }
}

/// Watches all storages for a time, then reads from those that are idle.
///
/// # Errors
/// When the counters cannot be read.
pub(super) fn measure(
    root: &SystemRoot,
    inventory: &mut MachineInventory,
    watched: Duration,
) -> Result<(), ReadError> {
    let before = counted(root, inventory);
    let begin = Clock::now();
    let mut sums = vec![ReadSums::default(); inventory.storages.len()];
    let volumes = VolumeTree::read(root)?;
    let mut stats = DiskStats::read(root)?;
    while begin.elapsed() < watched {
        thread::sleep(SECOND);
        let now = DiskStats::read(root)?;
        for (sum, storage) in sums.iter_mut().zip(&inventory.storages) {
            sum.add(reads(&now, &stats, &storage.members));
        }
        stats = now;
    }
    note_rates(inventory, &before, &counted(root, inventory), begin.elapsed());
    for (sum, storage) in sums.iter().zip(&mut inventory.storages) {
        storage.reads = sum.measured(ReadSource::Consumers);
        let hidden = storage
            .members
            .iter()
            .filter_map(|number| uncounted(root, &volumes, &stats, *number))
            .find(|device| device.is_certain() || storage.members.len() == 1);
        if let Some(device) = hidden {
            (storage.reads, storage.unmeasured) = (None, Some(device.to_string()));
        } else if storage.reads.is_none() {
            match read_idle(root, storage) {
                Ok(reads) => storage.reads = reads,
                Err(error) => storage.unmeasured = Some(error.to_string()),
            }
        }
    }
    Ok(())
}

/// Returns the reads of devices between two readings of the counters.
fn reads(now: &DiskStats, before: &DiskStats, members: &[DeviceNumber]) -> CompletedRequests {
    let deltas = members.iter().filter_map(|number| now.change(before, *number)?.delta());
    deltas.fold(CompletedRequests::default(), |sum, delta| sum.plus(delta.reads))
}

/// Reads random blocks of the storage's largest device, past the page cache, one after the other.
fn read_idle(root: &SystemRoot, storage: &FoundStorage) -> io::Result<Option<MeasuredReads>> {
    let path = root.path(format!("/dev/{}", storage.largest));
    let device = File::options().read(true).custom_flags(direct()).open(&path).map_err(|error| {
        io::Error::new(error.kind(), format!("{}: {error}; reading it needs root", path.display()))
    })?;
    let blocks = io::Seek::seek(&mut &device, io::SeekFrom::End(0))? / BLOCK as u64;
    let mut memory = vec![0; 2 * BLOCK];
    let begin = memory.as_ptr().align_offset(BLOCK);
    let block = &mut memory[begin..begin + BLOCK];
    let (mut sum, mut at) = (ReadSums::default(), 0u64);
    let mut stats = DiskStats::read(root).map_err(io::Error::other)?;
    for _ in 0..READING.as_secs() {
        let end = Clock::now() + SECOND;
        while Clock::now() < end {
            // Multiples of the golden ratio lie all over the device, and never twice at a place.
            at = at.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let offset = (u128::from(at) * u128::from(blocks)) >> 64;
            device.read_at(block, offset as u64 * BLOCK as u64)?;
            thread::sleep(BETWEEN_READS);
        }
        let now = DiskStats::read(root).map_err(io::Error::other)?;
        sum.add(reads(&now, &stats, &storage.members));
        stats = now;
    }
    Ok(sum.measured(ReadSource::Own))
}

fn direct() -> i32 {
    OFlags::DIRECT.bits().cast_signed()
}

/// The counters of cgroups, for each device.
type CgroupCounters = BTreeMap<String, BTreeMap<DeviceNumber, IoCounters>>;

/// Returns the counters of all cgroups of the inventory. One that is not accounted for has none.
fn counted(root: &SystemRoot, inventory: &MachineInventory) -> CgroupCounters {
    if inventory.kind != Some(RegulationKind::Cgroups) {
        return CgroupCounters::new();
    }
    let Ok(tree) = CgroupTree::find(root) else { return CgroupCounters::new() };
    let names = inventory.storages.iter().flat_map(|storage| &storage.consumers).map(|one| &one.name);
    names.filter_map(|name| Some((name.clone(), tree.counters(name).ok()??))).collect()
}

/// Notes what each cgroup read and wrote per second.
fn note_rates(
    inventory: &mut MachineInventory,
    before: &CgroupCounters,
    after: &CgroupCounters,
    elapsed: Duration,
) {
    for storage in &mut inventory.storages {
        for consumer in &mut storage.consumers {
            let total = |counters: &CgroupCounters| {
                let known = counters.get(&consumer.name)?;
                let of_members = storage.members.iter().filter_map(|number| known.get(number));
                Some(of_members.fold((0, 0), |(read, written), one| {
                    (read + one.read.get(), written + one.written.get())
                }))
            };
            let Some((then, now)) = total(before).zip(total(after)) else { continue };
            let rate = |then: u64, now: u64| {
                ByteRate::new(Bytes::new(now.saturating_sub(then)).get() as f64 / elapsed.as_secs_f64())
            };
            consumer.rates = Some([rate(then.0, now.0), rate(then.1, now.1)]);
        }
    }
}
