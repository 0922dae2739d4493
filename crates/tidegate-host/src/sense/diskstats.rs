//! `/proc/diskstats`: what every block device has done since it exists
//! (Documentation/admin-guide/iostats.rst).
//!
//! The kernel's columns after major, minor and name:
//!
//! | since | columns | type in the kernel |
//! |---|---|---|
//! | 2.6.25 | reads: completed, merged, sectors, ms | three `unsigned long`, `unsigned int` |
//! | | writes: the same | the same |
//! | | in flight; ms busy; weighted ms | `unsigned int` each |
//! | 4.18 | discards: completed, merged, sectors, ms | three `unsigned long`, `unsigned int` |
//! | 5.5 | flushes: completed, ms (of whole devices; zero for partitions) | `unsigned long`, `unsigned int` |
//!
//! **What wraps.** `unsigned int` has 32 bits everywhere: a column of milliseconds wraps after 49.7 days of
//! *summed* response times, which at 100 requests outstanding is half a day. `unsigned long` has the 64 bits
//! of a 64-bit kernel and never wraps; on a 32-bit kernel it has 32, and sectors wrap every 2 TiB.
//!
//! **Weighted time.** Before 5.0 the kernel integrated the number of requests in flight over time. Since then
//! it is the sum of the response times of what completed, so that a request counts when it ends: over a
//! second the mean outstanding is the same by Little's law, over a tenth of one a burst of long requests
//! shows late. [`DiskDelta::in_flight`] is of now.
//!
//! **Resolution.** Times are whole milliseconds, cut off, of a sum that is kept in nanoseconds (since 4.19):
//! what is cut off of one difference is in the next, so that means over many intervals are right, and of one
//! interval with few requests rough.
//!
//! **NVMe multipath.** Before 6.2 the kernel counts requests of a head device, such as `nvme0n1`, at its hidden
//! paths only. Such a head has the sums of its paths here ([`DiskReading::paths`]).
//!
//! **Counters that stand still** look like an idle device: `sense::uncounted` tells them apart. A file that stands
//! still as a whole, as one that is mounted over it, looks like a device that hangs: see [`DiskStats::read_next`].

mod parse;
mod paths;

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::time::Duration;

use tidegate_units::{Bytes, Latency};

use crate::device::DeviceNumber;
use crate::root::{ReadError, SystemRoot};

/// The kernel's file.
const PATH: &str = "/proc/diskstats";

/// Since this version of the kernel each reading counts the time of requests under way (`block: update io_ticks when
/// io hang`). Before, counters stand still while a device hangs.
const COUNTS_WAITING: (u32, u32) = (6, 8);

/// By then that time has moved: ten ticks of the slowest clock.
const MOVES_WITHIN: Duration = Duration::from_millis(100);

/// Bytes of a sector in this file, whatever the device's own sectors are.
const SECTOR: u64 = 512;

/// One reading: every block device with its counters.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DiskStats {
    /// In the order of their numbers, each number once.
    disks: Vec<DiskReading>,
    /// The text that was read last; kept so that the next reading allocates nothing.
    text: Vec<u8>,
}

impl DiskStats {
    /// Reads the kernel's file.
    ///
    /// # Errors
    /// When it cannot be read, or a line is not what the kernel documents; the error names file, line and
    /// column.
    pub fn read(root: &SystemRoot) -> Result<Self, ReadError> {
        let mut stats = Self::default();
        stats.read_again(root)?;
        Ok(stats)
    }

    /// Reads the kernel's file into the memory of an older reading, which is replaced. Two readings that are
    /// swapped each interval serve for ever without an allocation.
    ///
    /// A device that is removed while the kernel writes the list can hide its neighbour from this one
    /// reading.
    ///
    /// # Errors
    /// As [`DiskStats::read`]; the reading is then empty.
    pub fn read_again(&mut self, root: &SystemRoot) -> Result<(), ReadError> {
        self.disks.clear();
        self.text.clear();
        let path = root.path(PATH);
        if let Err(source) = File::open(&path).and_then(|mut file| file.read_to_end(&mut self.text)) {
            return Err(ReadError::Unreadable { path, source });
        }
        parse::disks(&self.text, &mut self.disks).map_err(|wrong| {
            self.disks.clear();
            ReadError::Malformed { path, line: wrong.line, problem: wrong.problem }
        })
    }

    /// The same as [`DiskStats::read_again`] for the next reading, so long after the one before.
    ///
    /// # Errors
    /// As there, and when the whole file stands still while requests are under way: then it is not the kernel's, or
    /// stale.
    pub fn read_next(
        &mut self,
        root: &SystemRoot,
        before: &Self,
        elapsed: Duration,
    ) -> Result<(), ReadError> {
        self.read_again(root)?;
        let waits = self.disks.iter().any(|disk| disk.counters.in_flight > 0);
        let stands_still = waits && elapsed >= MOVES_WITHIN && self.disks == before.disks;
        if stands_still && root.kernel_version().is_some_and(|version| version >= COUNTS_WAITING) {
            let source = io::Error::other("nothing in it changes, although requests are under way");
            return Err(ReadError::Unreadable { path: root.path(PATH), source });
        }
        Ok(())
    }

    /// Every device, in the order of their numbers.
    #[must_use]
    pub fn disks(&self) -> &[DiskReading] {
        &self.disks
    }

    /// Returns true if the same devices are there by the same names. Then
    /// [`VolumeTree`](crate::sense::VolumeTree) probably have not changed either. A device's parts, its size
    /// and device-mapper's name for it can change without.
    #[must_use]
    pub fn same_devices(&self, other: &Self) -> bool {
        let same =
            |(one, other): (&DiskReading, &DiskReading)| one.number == other.number && one.name == other.name;
        self.disks.len() == other.disks.len() && self.disks.iter().zip(&other.disks).all(same)
    }

    /// A device by its number.
    #[must_use]
    pub fn get(&self, number: DeviceNumber) -> Option<&DiskReading> {
        let at = self.disks.binary_search_by_key(&number, |disk| disk.number).ok()?;
        self.disks.get(at)
    }

    /// Returns the number of reads that a device has in flight now; zero where the kernel does not say.
    #[must_use]
    pub fn reads_in_flight(&self, root: &SystemRoot, number: DeviceNumber) -> u64 {
        let Some(disk) = self.get(number) else { return 0 };
        let of = |name: &str| -> Option<u64> {
            let text = root.read(format!("/sys/block/{}/inflight", name.replace('/', "!"))).ok()?;
            text.split_whitespace().next()?.parse().ok()
        };
        match disk.paths {
            0 => of(disk.name.as_str()).unwrap_or(0),
            _ => self.paths_of(disk).filter_map(|path| of(path.as_str())).sum(),
        }
    }

    /// Returns the names of the hidden paths of a head of NVMe's multipath.
    pub(super) fn paths_of(&self, head: &DiskReading) -> impl Iterator<Item = &DiskName> {
        let head = head.name;
        self.disks.iter().map(|disk| &disk.name).filter(move |name| paths::head_of(name) == Some(head))
    }

    /// Returns the activity of every device of this reading since an older one, in the order of their
    /// numbers. Devices that have gone since do not appear.
    pub fn since<'a>(&'a self, previous: &'a Self) -> impl Iterator<Item = (&'a DiskReading, DiskChange)> {
        let mut older = previous.disks.iter().peekable();
        self.disks.iter().map(move |disk| {
            while older.next_if(|old| old.number < disk.number).is_some() {}
            let old = older.peek().filter(|old| old.number == disk.number);
            (disk, disk.since(old.copied()))
        })
    }

    /// Returns the activity of one device since an older reading; `None` if the device is not there now.
    #[must_use]
    pub fn change(&self, previous: &Self, number: DeviceNumber) -> Option<DiskChange> {
        Some(self.get(number)?.since(previous.get(number)))
    }
}

/// A block device at one reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskReading {
    /// Its number: what it is known by.
    pub number: DeviceNumber,
    /// Its name in the kernel, such as `sda` or `dm-0`.
    pub name: DiskName,
    /// Its counters since it exists.
    pub counters: DiskCounters,
    /// The number of NVMe paths whose counters these are the sums of; zero if they are the device's own.
    pub paths: usize,
}

impl DiskReading {
    /// Returns the device's activity since an older reading of the device with the same number.
    #[must_use]
    pub fn since(&self, old: Option<&Self>) -> DiskChange {
        self.since_with(old, usize::BITS)
    }

    /// The same, where the kernel's `unsigned long` has so many bits. A program of 32 bits may run on a
    /// kernel of 64, where numbers beyond 32 bits tell.
    fn since_with(&self, old: Option<&Self>, long: u32) -> DiskChange {
        let Some(old) = old else { return DiskChange::New(ResetReason::NotSeenBefore) };
        if old.name != self.name {
            return DiskChange::New(ResetReason::OtherName { was: old.name });
        }
        if old.paths != self.paths {
            return DiskChange::New(ResetReason::OtherPaths);
        }
        delta(&old.counters, &self.counters, long).map_or_else(DiskChange::New, DiskChange::Delta)
    }
}

/// A kernel's name of a block device: at most 40 bytes (the kernel's own bound is 31, and the number of a
/// partition). Copied without allocation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DiskName {
    bytes: [u8; Self::MAX],
    len: u8,
}

impl DiskName {
    const MAX: usize = 40;

    /// `None` if it is empty, too long or not UTF-8.
    fn new(name: &[u8]) -> Option<Self> {
        if name.is_empty() || std::str::from_utf8(name).is_err() {
            return None;
        }
        let mut bytes = [0; Self::MAX];
        bytes.get_mut(..name.len())?.copy_from_slice(name);
        Some(Self { bytes, len: u8::try_from(name.len()).ok()? })
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        // Checked when it was made.
        std::str::from_utf8(&self.bytes[..usize::from(self.len)]).unwrap_or_default()
    }
}

impl fmt::Display for DiskName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for DiskName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

/// The kernel's counters of a device, as they are written. All but [`DiskCounters::in_flight`] only grow, and
/// wrap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DiskCounters {
    /// Reads.
    pub reads: TransferCounters,
    /// Writes.
    pub writes: TransferCounters,
    /// Requests under way at the time of reading.
    pub in_flight: u64,
    /// Milliseconds during which anything was under way.
    pub busy_ms: u64,
    /// Weighted milliseconds.
    pub weighted_ms: u64,
    /// Discards; kernels before 4.18 do not say.
    pub discards: Option<TransferCounters>,
    /// Flushes; kernels before 5.5 do not say.
    pub flushes: Option<FlushCounters>,
}

/// Counters of requests that concern sectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TransferCounters {
    /// Requests completed.
    pub ios: u64,
    /// Requests that became part of another one, and are not in `ios`.
    pub merged: u64,
    /// Sectors of 512 bytes.
    pub sectors: u64,
    /// The sum of response times in milliseconds.
    pub ms: u64,
}

/// Counters of flushes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FlushCounters {
    /// Flushes completed.
    pub ios: u64,
    /// The sum of response times in milliseconds.
    pub ms: u64,
}

/// The change of a device between two readings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskChange {
    /// The same device, and what it did.
    Delta(DiskDelta),
    /// A device that the older reading does not have, so that nothing is known of this interval.
    New(ResetReason),
}

impl DiskChange {
    /// Returns the device's activity, if it is the same device.
    #[must_use]
    pub fn delta(self) -> Option<DiskDelta> {
        match self {
            Self::Delta(delta) => Some(delta),
            Self::New(_) => None,
        }
    }
}

/// The reason that a device counts as new.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResetReason {
    /// Its number was not there.
    NotSeenBefore,
    /// Its number belonged to a device of another name.
    OtherName {
        /// The other name.
        was: DiskName,
    },
    /// A path of NVMe's multipath came or went.
    OtherPaths,
    /// A counter went back further than a wrap explains: a device that was removed and made again. (One that
    /// has already done more than its predecessor ever did cannot be told from it.)
    WentBack {
        /// The name of the counter.
        counter: &'static str,
    },
}

/// A device's activity between two readings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DiskDelta {
    /// Reads.
    pub reads: CompletedRequests,
    /// Writes.
    pub writes: CompletedRequests,
    /// Discards, where the kernel says (4.18).
    pub discards: Option<CompletedRequests>,
    /// Flushes, where the kernel says (5.5); they have no sectors.
    pub flushes: Option<CompletedRequests>,
    /// Requests under way at the later reading.
    pub in_flight: u64,
    /// Time during which anything was under way; a jiffy is the least that is counted.
    pub busy: Latency,
    /// The sum over time of requests outstanding: see the module's "weighted time".
    pub weighted: Latency,
}

impl DiskDelta {
    /// The mean number of requests outstanding, given the time between the readings; `None` without such
    /// time.
    #[must_use]
    pub fn mean_outstanding(&self, elapsed: Duration) -> Option<f64> {
        (!elapsed.is_zero()).then(|| self.weighted.as_nanos() as f64 / elapsed.as_nanos() as f64)
    }
}

/// Requests of one kind that completed between two readings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CompletedRequests {
    /// The number of requests.
    pub ios: u64,
    /// The number of further requests that were merged into those.
    pub merged: u64,
    /// Their sectors of 512 bytes.
    pub sectors: u64,
    /// The sum of their response times.
    pub response_time: Latency,
}

impl CompletedRequests {
    /// The mean response time; `None` if nothing completed, which says nothing about the device.
    #[must_use]
    pub fn mean_response_time(&self) -> Option<Latency> {
        self.response_time.as_nanos().checked_div(self.ios).map(Latency::from_nanos)
    }

    /// Returns the amount of data.
    #[must_use]
    pub fn bytes(&self) -> Bytes {
        Bytes::new(self.sectors.saturating_mul(SECTOR))
    }

    /// Both together, such as the reads of all volumes of a group.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            ios: self.ios.saturating_add(other.ios),
            merged: self.merged.saturating_add(other.merged),
            sectors: self.sectors.saturating_add(other.sectors),
            response_time: self.response_time.saturating_add(other.response_time),
        }
    }
}

/// Returns how far a counter of so many bits went; `None` if it went back further than a wrap explains.
///
/// A step forward across the wrap and a step back are told apart at half of the range. In one interval no
/// counter of 32 bits moves by 24 days or by 1 TiB.
fn step(old: u64, new: u64, bits: u32) -> Option<u64> {
    const MODULUS: u64 = 1 << 32;
    if new >= old {
        return Some(new - old);
    }
    let wrapped = bits == 32 && old < MODULUS;
    wrapped.then(|| new + MODULUS - old).filter(|step| *step < MODULUS / 2)
}

fn delta(old: &DiskCounters, new: &DiskCounters, long: u32) -> Result<DiskDelta, ResetReason> {
    let went = |counter, old, new, bits| step(old, new, bits).ok_or(ResetReason::WentBack { counter });
    let done = |names: &[&'static str; 4], old: TransferCounters, new: TransferCounters| {
        Ok(CompletedRequests {
            ios: went(names[0], old.ios, new.ios, long)?,
            merged: went(names[1], old.merged, new.merged, long)?,
            sectors: went(names[2], old.sectors, new.sectors, long)?,
            response_time: Latency::from_millis(went(names[3], old.ms, new.ms, 32)?),
        })
    };
    // Old kernels compute these two from a number in flight that could be briefly wrong: they may fall back
    // by a little, which says nothing about the device.
    let time = |old, new| Latency::from_millis(step(old, new, 32).unwrap_or(0));
    Ok(DiskDelta {
        reads: done(&parse::READS, old.reads, new.reads)?,
        writes: done(&parse::WRITES, old.writes, new.writes)?,
        discards: match (old.discards, new.discards) {
            (Some(old), Some(new)) => Some(done(&parse::DISCARDS, old, new)?),
            _ => None,
        },
        flushes: match (old.flushes, new.flushes) {
            (Some(old), Some(new)) => {
                let transfers = |flushes: FlushCounters| TransferCounters {
                    ios: flushes.ios,
                    ms: flushes.ms,
                    ..TransferCounters::default()
                };
                Some(done(&parse::FLUSHES, transfers(old), transfers(new))?)
            }
            _ => None,
        },
        in_flight: new.in_flight,
        busy: time(old.busy_ms, new.busy_ms),
        weighted: time(old.weighted_ms, new.weighted_ms),
    })
}

#[cfg(test)]
mod tests;
