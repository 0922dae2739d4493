//! NVMe's native multipath: the hidden paths of a head device.
//!
//! Consumers use the head, such as `nvme0n1`. Its requests go to hidden paths, one for each controller, such
//! as `nvme0c1n1`: subsystem 0, controller 1, namespace 1. Before Linux 6.2 the kernel counts them at the
//! paths only, and the head's counters stay at zero. Since then it counts them at both.

use super::{DiskCounters, DiskName, DiskReading, FlushCounters, TransferCounters};

/// Returns the head of a hidden path, by the path's name; `None` if the name is no path's.
pub(super) fn head_of(path: &DiskName) -> Option<DiskName> {
    let (subsystem, rest) = path.as_str().strip_prefix("nvme")?.split_once('c')?;
    let (controller, namespace) = rest.split_once('n')?;
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_path = [subsystem, controller, namespace].into_iter().all(is_number);
    is_path.then(|| DiskName::new(format!("nvme{subsystem}n{namespace}").as_bytes())).flatten()
}

/// Gives heads that the kernel does not count the sums of their paths.
pub(super) fn count_heads(disks: &mut [DiskReading]) {
    let path = |disk: &DiskReading| Some((head_of(&disk.name)?, disk.counters));
    let mut paths: Vec<_> = disks.iter().filter_map(path).collect();
    if paths.is_empty() {
        return;
    }
    paths.sort_unstable_by_key(|(head, _)| *head);
    for disk in disks.iter_mut().filter(|disk| disk.counters.are_zero()) {
        let begin = paths.partition_point(|(head, _)| *head < disk.name);
        let name = disk.name;
        let own = || paths[begin..].iter().take_while(move |(head, _)| *head == name);
        if let Some(sum) = own().map(|(_, counters)| *counters).reduce(DiskCounters::plus) {
            let count = own().count();
            (disk.counters, disk.paths) = (sum, count);
        }
    }
}

/// The sum of columns of 32 bits wraps as each of them does.
fn wrapping(one: u64, other: u64) -> u64 {
    u64::from((one as u32).wrapping_add(other as u32))
}

impl DiskCounters {
    /// Returns true if nothing has been counted since the device exists.
    pub(in crate::sense) fn are_zero(&self) -> bool {
        let nothing = Self {
            discards: self.discards.map(|_| TransferCounters::default()),
            flushes: self.flushes.map(|_| FlushCounters::default()),
            ..Self::default()
        };
        *self == nothing
    }

    fn plus(self, other: Self) -> Self {
        let both = |(one, other): (FlushCounters, FlushCounters)| FlushCounters {
            ios: one.ios.wrapping_add(other.ios),
            ms: wrapping(one.ms, other.ms),
        };
        Self {
            reads: self.reads.plus(other.reads),
            writes: self.writes.plus(other.writes),
            in_flight: self.in_flight.saturating_add(other.in_flight),
            busy_ms: wrapping(self.busy_ms, other.busy_ms),
            weighted_ms: wrapping(self.weighted_ms, other.weighted_ms),
            discards: self.discards.zip(other.discards).map(|(one, other)| one.plus(other)),
            flushes: self.flushes.zip(other.flushes).map(both),
        }
    }
}

impl TransferCounters {
    fn plus(self, other: Self) -> Self {
        Self {
            ios: self.ios.wrapping_add(other.ios),
            merged: self.merged.wrapping_add(other.merged),
            sectors: self.sectors.wrapping_add(other.sectors),
            ms: wrapping(self.ms, other.ms),
        }
    }
}
