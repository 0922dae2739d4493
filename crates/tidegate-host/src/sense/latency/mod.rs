//! Histograms of each request's latency at a block device, which an eBPF program keeps in the kernel.
//! `/proc/diskstats` has only sums, and so means; histograms give percentiles.
//!
//! **Requests counted.** Reads and writes (writes of zeroes included) that carry data, once each, when they
//! end, at the devices that are watched. Flushes, discards and a driver's own commands are not counted.
//!
//! - At a device with a request queue (SCSI, NVMe, virtio, loop, dm-multipath), a request counts, with all
//!   that was merged into it, as in `/proc/diskstats`. Its latency begins when the kernel makes the request,
//!   as there, and ends when its last byte is answered. The further wait for a flush after it is left out.
//! - At a device without one (device-mapper otherwise: LVM, dm-crypt; md, zram), a bio counts as it was
//!   submitted. Its latency begins when it is submitted, and ends when its last part is answered. The kernel
//!   divides some bios, at the stripes of a volume, and `/proc/diskstats` counts the parts.
//!
//! Bios for a partition count for the partition and for its disk. If a driver hands on a bio itself to
//! another device, instead of a copy, its end is not seen. That was so with md before 5.14. It is so with
//! NVMe's own multipath for bios that were merged below.
//!
//! A request or bio that ends while the program runs for another one on the same processor is not counted:
//! on a busy machine one of some thousands. Requests of a device whose `queue/iostats` is 0 are not counted
//! either.
//!
//! **Cost.** While no device is watched no program is attached, and no request is delayed. Otherwise programs
//! run for the requests of all devices, and look up those that are watched.
//!
//! **Memory.** The caller asks for room for a number of devices: each takes 3.4 KiB per processor that the
//! kernel could have. At most 32 768 bios under way are known; beyond that the least recently seen ones are
//! forgotten and not counted.
//!
//! It takes Linux 5.12 or newer with the types of its structures in it (`CONFIG_DEBUG_INFO_BTF`), and CAP_BPF
//! and CAP_PERFMON.

mod histogram;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fmt;
use std::io;

use aya::maps::{MapError, PerCpuHashMap, PerCpuValues};
use aya::programs::BtfTracePoint;
use aya::programs::tp_btf::BtfTracePointLink;
use aya::util::nr_cpus;
use aya::{Btf, Ebpf, EbpfLoader};
use thiserror::Error;
use tidegate_ebpf::latency::{LatencyCounts, OBJECT, PROGRAMS, TIMES, key, reads_and_writes};

pub use self::histogram::LatencyBuckets;
use crate::device::DeviceNumber;
use crate::ebpf::{failed, lacks, not_loaded, take};

/// The remedy for a machine where the sensor does not work.
pub const REMEDY: &str =
    "Linux 5.12 or newer with CONFIG_BPF_SYSCALL and CONFIG_DEBUG_INFO_BTF, CAP_BPF and CAP_PERFMON";

/// Counts response times at block devices. Nothing is in the kernel's way until devices are
/// [watched](Self::watch), and again when none are, or when this is gone.
pub struct BlockLatency {
    loaded: Ebpf,
    /// While devices are watched.
    attached: Vec<BtfTracePointLink>,
    times: PerCpuHashMap<aya::maps::MapData, u32, LatencyCounts>,
    watched: BTreeSet<DeviceNumber>,
    /// The number of devices that there is room for.
    room: usize,
    /// The number of processors that the kernel could have.
    processors: usize,
}

/// Response times at one device, or at several together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReadsAndWrites {
    /// The latencies of reads.
    pub reads: LatencyBuckets,
    /// The latencies of writes.
    pub writes: LatencyBuckets,
}

impl ReadsAndWrites {
    /// Returns the requests since an older reading.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self { reads: self.reads.since(&earlier.reads), writes: self.writes.since(&earlier.writes) }
    }

    /// Adds those of another device.
    pub fn merge(&mut self, other: &Self) {
        self.reads.merge(&other.reads);
        self.writes.merge(&other.writes);
    }
}

/// The reason that not all requested devices are watched.
#[derive(Debug, Error)]
pub enum WatchError {
    /// The kernel refused something. The next call tries it again.
    #[error(transparent)]
    Kernel(#[from] io::Error),
    /// There are too many of them. The others are watched.
    #[error(
        "the response times of {first} and {others} other devices are not counted: there is room for {most} \
            devices"
    )]
    NoRoom {
        /// One of those that are not.
        first: DeviceNumber,
        /// The number of further devices that are not watched.
        others: usize,
        /// The number of devices that are watched.
        most: usize,
    },
}

impl fmt::Debug for BlockLatency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockLatency").field("watched", &self.watched).finish_non_exhaustive()
    }
}

impl BlockLatency {
    /// Loads the programs, with room for so many devices (one at least), and attaches none.
    ///
    /// # Errors
    /// When the kernel is too old, does not say what its structures look like, or refuses: see [`REMEDY`].
    pub fn new(room: u32) -> io::Result<Self> {
        let room = room.max(1);
        let types = Btf::from_sys_fs().map_err(|error| failed("the kernel's types", &error))?;
        let mut loaded = EbpfLoader::new()
            .btf(Some(&types))
            .map_max_entries(TIMES, room)
            .load(OBJECT)
            .map_err(|error| failed("its maps", &error))?;
        for (name, tracepoint) in PROGRAMS {
            program(&mut loaded, name)?.load(tracepoint, &types).map_err(|error| not_loaded(name, error))?;
        }
        let times = take(&mut loaded, TIMES)?;
        let processors = nr_cpus().map_err(|(file, error)| failed(file, &error))?;
        Ok(Self {
            loaded,
            attached: Vec::new(),
            times,
            watched: BTreeSet::new(),
            room: room as usize,
            processors,
        })
    }

    /// Watches these devices and no others. One that was not watched before begins at zero; one that is no
    /// longer watched is forgotten. What is as it was costs nothing.
    ///
    /// # Errors
    /// When not all of them are watched.
    pub fn watch(&mut self, devices: &BTreeSet<DeviceNumber>) -> Result<(), WatchError> {
        if self.watched == *devices {
            return Ok(());
        }
        let refused = |error| failed(TIMES, &error);
        for gone in self.watched.difference(devices).copied().collect::<Vec<_>>() {
            self.times.remove(&number(gone)).map_err(refused)?;
            self.watched.remove(&gone);
        }
        let wanted: Vec<_> = devices.difference(&self.watched).copied().collect();
        let (new, left_out) = wanted.split_at(wanted.len().min(self.room - self.watched.len()));
        for device in new {
            let zero = PerCpuValues::try_from(vec![[0; _]; self.processors])?;
            self.times.insert(number(*device), zero, 0).map_err(refused)?;
            self.watched.insert(*device);
        }
        if self.watched.is_empty() {
            self.attached.clear();
        } else if self.attached.is_empty() {
            self.attach()?;
        }
        match left_out {
            [] => Ok(()),
            [first, others @ ..] => {
                Err(WatchError::NoRoom { first: *first, others: others.len(), most: self.room })
            }
        }
    }

    /// Returns the counts of a device since it is watched; `None` if it is not.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn read(&self, device: DeviceNumber) -> io::Result<Option<ReadsAndWrites>> {
        let values = match self.times.get(&number(device), 0) {
            Ok(values) => values,
            Err(MapError::KeyNotFound) => return Ok(None),
            Err(error) => return Err(failed(TIMES, &error)),
        };
        let mut all = ReadsAndWrites::default();
        for times in values.iter() {
            let [reads, writes] = reads_and_writes(times);
            all.reads.add(reads);
            all.writes.add(writes);
        }
        Ok(Some(all))
    }

    /// All of the programs, or none.
    fn attach(&mut self) -> io::Result<()> {
        let mut attached = Vec::new();
        for (name, _) in PROGRAMS {
            let program = program(&mut self.loaded, name)?;
            let link = program.attach().and_then(|link| program.take_link(link));
            attached.push(link.map_err(|error| failed(name, &error))?);
        }
        self.attached = attached;
        Ok(())
    }
}

/// Checks that the sensor works here: it is loaded and attached for a moment, and watches no device.
///
/// # Errors
/// Why it does not.
pub fn probe() -> io::Result<()> {
    BlockLatency::new(1)?.attach()
}

fn number(device: DeviceNumber) -> u32 {
    key(device.major, device.minor)
}

fn program<'a>(loaded: &'a mut Ebpf, name: &str) -> io::Result<&'a mut BtfTracePoint> {
    let program = loaded.program_mut(name).ok_or_else(|| lacks(name))?;
    program.try_into().map_err(|error: aya::programs::ProgramError| failed(name, &error))
}
