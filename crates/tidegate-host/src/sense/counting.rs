//! Block devices whose counters stand still. They look idle in `/proc/diskstats`, whatever is done to them.
//!
//! `/sys/block/<name>/queue/iostats` switches a device's counters off and on. Who heeds the switch differs:
//!
//! | device | counts |
//! |---|---|
//! | with requests (SCSI, NVMe, virtio, loop, dm-multipath) | while its switch is on |
//! | partition | while its disk's switch is on |
//! | device-mapper without requests (LVM, dm-crypt), md | while its own switch is on; before Linux 6.8 always |
//! | head of NVMe multipath | while its own switch is on; before Linux 6.2 its paths count, by their switches |
//! | partition of such a head | since Linux 6.2 |
//! | other devices without requests (DRBD, bcache, zram, ram) | as their drivers please, often always or never |
//!
//! Before their drivers heeded the switch (a patch of June 2023), it said 0 for volumes that count. The switches of
//! the devices below do not matter. A device of the last kind counts if it ever has counted
//! anything.

use std::fmt;

use super::diskstats::DiskStats;
use super::tree;
use super::volume::{DeviceKind, VolumeTree};
use crate::device::DeviceNumber;
use crate::root::SystemRoot;

/// A device whose requests the kernel does not count. Its text names the device, the reason and the remedy.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct UncountedDevice {
    device: String,
    reason: UncountedReason,
}

impl UncountedDevice {
    /// Returns the device's name in the kernel.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.device
    }

    /// Returns false for a device that may only be unused: it has never counted anything.
    #[must_use]
    pub const fn is_certain(&self) -> bool {
        !matches!(self.reason, UncountedReason::NeverCounted { .. })
    }
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum UncountedReason {
    /// The switch of the counters is off.
    SwitchedOff {
        /// The device with the switch: the device itself, its disk, or its path.
        queue: String,
    },
    /// A partition of a head of NVMe multipath that counts at its paths.
    PartOfPaths { head: String },
    /// A driver of its own kind, which has counted nothing yet.
    NeverCounted { queue: String },
}

impl fmt::Display for UncountedDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let device = &self.device;
        match &self.reason {
            UncountedReason::SwitchedOff { queue } => {
                let remedy = switch_on(queue);
                write!(f, "the kernel does not count the requests of {device}; run `{remedy}`")
            }
            UncountedReason::PartOfPaths { head } => write!(
                f,
                "the kernel does not count the requests of {device}; name the whole device {head} (partitions of \
                 NVMe multipath devices are counted since Linux 6.2)"
            ),
            UncountedReason::NeverCounted { queue } => {
                let remedy = switch_on(queue);
                write!(
                    f,
                    "the kernel has not counted any request of {device} yet; if it is in use, run `{remedy}` (if that \
                     changes nothing, its driver does not count: name the device below it)"
                )
            }
        }
    }
}

fn switch_on(queue: &str) -> String {
    format!("echo 1 > {}", switch(queue))
}

/// The file of a device's switch.
fn switch(device: &str) -> String {
    format!("/sys/block/{}/queue/iostats", device.replace('/', "!"))
}

/// Returns a device, with the reason, if the kernel does not count its requests; `None` if it does, or if the
/// kernel does not say. `volumes` may be somewhat older than `stats`.
#[must_use]
pub fn uncounted(
    root: &SystemRoot,
    volumes: &VolumeTree,
    stats: &DiskStats,
    number: DeviceNumber,
) -> Option<UncountedDevice> {
    let device = volumes.get(number)?;
    let disk = match device.kind {
        DeviceKind::Partition => volumes.get(*device.made_of.first()?)?,
        _ => device,
    };
    let reading = stats.get(disk.number)?;
    let because = |reason| Some(UncountedDevice { device: device.name.clone(), reason });
    if reading.paths > 0 {
        if disk.number != number {
            return because(UncountedReason::PartOfPaths { head: disk.name.clone() });
        }
        let mut paths = stats.paths_of(reading).map(ToString::to_string);
        let off = paths.find(|path| is_on(root, path) == Some(false))?;
        return because(UncountedReason::SwitchedOff { queue: off });
    }
    let is_layer = matches!(disk.kind, DeviceKind::Lvm(_) | DeviceKind::DeviceMapper { .. } | DeviceKind::Md)
        && !disk.has_requests;
    if is_layer && !volumes.layers_heed() {
        return None;
    }
    let is_on = is_on(root, &disk.name)?;
    let queue = disk.name.clone();
    // The own counters of a head of NVMe multipath.
    let is_head = || disk.name.starts_with("nvme") && stats.paths_of(reading).next().is_some();
    if disk.has_requests || is_layer || is_head() {
        return if is_on { None } else { because(UncountedReason::SwitchedOff { queue }) };
    }
    if reading.counters.are_zero() { because(UncountedReason::NeverCounted { queue }) } else { None }
}

/// Returns the state of a device's switch; `None` if it has none.
fn is_on(root: &SystemRoot, device: &str) -> Option<bool> {
    let text = tree::text(root, switch(device)).ok()??;
    Some(text.trim() != "0")
}

#[cfg(test)]
mod tests;
