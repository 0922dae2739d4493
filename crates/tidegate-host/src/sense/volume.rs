//! Volumes of block devices, their groups and their disks: device-mapper and LVM as sysfs shows them, without
//! starting a process.
//!
//! `/sys/block/<name>/` has `dev` (the number), `size` (in sectors of 512 bytes), `slaves/` (the devices it
//! is made of), and `diskseq` (since 5.15). For device-mapper it has `dm/name` and `dm/uuid`, too. A volume
//! group has no file: its volumes tell that they belong to it.

mod lvm;

use std::collections::HashMap;
use std::fmt;
use std::path::{Component, Path, PathBuf};

use tidegate_units::Bytes;

pub use self::lvm::LogicalVolume;
use super::tree;
use crate::device::DeviceNumber;
use crate::root::{ReadError, SystemRoot};
use crate::wildcard::looks_like;

const SYS_BLOCK: &str = "/sys/block";
const SECTOR: u64 = 512;

/// The version of Linux, major and minor number, from which on device-mapper and md certainly heed the switch.
const LAYERS_HEED: (u32, u32) = (6, 8);

/// The block devices of a machine, and what they are made of. A reading: it knows nothing of what changes
/// later.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VolumeTree {
    /// In the order of their numbers.
    devices: Vec<BlockDevice>,
    /// Kernel names, as in `/proc/diskstats`, with places in `devices`.
    by_name: HashMap<String, usize>,
    /// Device-mapper names with places in `devices`.
    by_dm_name: HashMap<String, usize>,
    /// True if devices made of others heed the switch of their counters.
    layers_heed: bool,
}

/// One block device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockDevice {
    /// Its number.
    pub number: DeviceNumber,
    /// Its name in the kernel, as in `/proc/diskstats`: `dm-0`, `sda`, `cciss/c0d0`.
    pub name: String,
    /// The kind of device.
    pub kind: DeviceKind,
    /// Its size.
    pub size: Bytes,
    /// The devices it is made of, one level down: physical volumes, legs of a RAID, a partition's disk.
    pub made_of: Vec<DeviceNumber>,
    /// A number that no other device has had since boot (5.15): a device that was removed and made again has
    /// another one.
    pub sequence: Option<u64>,
    /// True if the kernel makes requests for it (blk-mq), as for disks, and hands on no bios, as for most devices
    /// made of others. A partition has those of its disk.
    pub has_requests: bool,
}

/// The kinds of block devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeviceKind {
    /// A logical volume, or a hidden part of one.
    Lvm(LogicalVolume),
    /// Another device of device-mapper: multipath, dm-crypt, a partition made by kpartx.
    DeviceMapper {
        /// Its name, as in `/dev/mapper`.
        name: String,
        /// Its UUID, whose prefix says what it is (`mpath-`, `CRYPT-`); empty if it has none.
        uuid: String,
    },
    /// A software RAID of md.
    Md,
    /// A file as a device.
    Loop,
    /// A volume of ZFS.
    Zvol,
    /// A part of the disk that it is made of.
    Partition,
    /// Anything else: a disk, as far as Linux knows.
    Disk,
}

/// Devices that slow down together when storage saturates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DeviceGroup<'a> {
    /// A volume group of LVM, by its name.
    VolumeGroup(&'a str),
    /// A device that is a group of its own, by its name: that of device-mapper where it has one, otherwise
    /// the kernel's.
    Device(&'a str),
}

impl DeviceGroup<'_> {
    /// The name alone. A volume group and a device may have the same one.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::VolumeGroup(name) | Self::Device(name) => name,
        }
    }
}

impl fmt::Display for DeviceGroup<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl VolumeTree {
    /// Reads sysfs.
    ///
    /// # Errors
    /// When `/sys/block` is not there or cannot be read, or a file in it is not what the kernel documents;
    /// the error names the file. Devices that come or go meanwhile are no errors.
    pub fn read(root: &SystemRoot) -> Result<Self, ReadError> {
        let Some(names) = tree::list(root, SYS_BLOCK)? else {
            let source = std::io::Error::new(std::io::ErrorKind::NotFound, "no block devices in sysfs");
            return Err(ReadError::Unreadable { path: root.path(SYS_BLOCK), source });
        };
        let mut found = Vec::new();
        for name in names.into_both() {
            read_disk(root, &name, &mut found)?;
        }
        Ok(Self { layers_heed: layers_heed(root), ..Self::from_found(found) })
    }

    fn from_found(mut found: Vec<FoundDevice>) -> Self {
        found.sort_by_key(|found| found.device.number);
        found.dedup_by_key(|found| found.device.number);
        let numbers: HashMap<&str, DeviceNumber> =
            found.iter().map(|found| (found.device.name.as_str(), found.device.number)).collect();
        let made_of: Vec<Vec<DeviceNumber>> = found
            .iter()
            .map(|found| found.slaves.iter().filter_map(|name| numbers.get(name.as_str()).copied()).collect())
            .collect();
        let mut volumes = Self::default();
        for (at, (found, made_of)) in found.into_iter().zip(made_of).enumerate() {
            if let Some(dm_name) = found.dm_name {
                volumes.by_dm_name.insert(dm_name, at);
            }
            volumes.by_name.insert(found.device.name.clone(), at);
            volumes.devices.push(BlockDevice { made_of, ..found.device });
        }
        volumes
    }

    /// Every device, in the order of their numbers.
    #[must_use]
    pub fn devices(&self) -> &[BlockDevice] {
        &self.devices
    }

    /// Returns true if the kernel counts what is done to devices made of others only while their switches are on.
    pub(super) const fn layers_heed(&self) -> bool {
        self.layers_heed
    }

    /// A device by its number.
    #[must_use]
    pub fn get(&self, number: DeviceNumber) -> Option<&BlockDevice> {
        let at = self.devices.binary_search_by_key(&number, |device| device.number).ok()?;
        self.devices.get(at)
    }

    /// A device by what people call it: `sda`, `dm-0`, a name of device-mapper, `vg/lv`, or any of these
    /// after `/dev/` or `/dev/mapper/`. Links of udev, such as those in `/dev/disk`, are not followed.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&BlockDevice> {
        let at = if let Some(dm_name) = name.strip_prefix("/dev/mapper/") {
            self.by_dm_name.get(dm_name)
        } else {
            let name = name.strip_prefix("/dev/").unwrap_or(name);
            self.by_name.get(name).or_else(|| self.by_dm_name.get(name)).or_else(|| {
                let (group, volume) = name.split_once('/')?;
                self.by_dm_name.get(&lvm::dm_name(group, volume))
            })
        };
        self.devices.get(*at?)
    }

    /// The devices that a name or a pattern means, in the order of their numbers. `*` stands for any text of
    /// a kernel name (`zd*`), a name of device-mapper (`mpath*`), or `vg/lv`.
    #[must_use]
    pub fn find_all(&self, pattern: &str) -> Vec<&BlockDevice> {
        if !pattern.contains('*') {
            return self.find(pattern).into_iter().collect();
        }
        let folders = ["/dev/mapper/", "/dev/"];
        let pattern = folders.iter().find_map(|folder| pattern.strip_prefix(folder)).unwrap_or(pattern);
        let is_meant = |pattern: &str, device: &BlockDevice| {
            looks_like(pattern, &device.name)
                || match &device.kind {
                    // Hidden parts do what the volume does once more.
                    DeviceKind::Lvm(volume) if volume.part.is_none() => {
                        looks_like(pattern, &format!("{}/{}", volume.group, volume.name))
                    }
                    DeviceKind::DeviceMapper { name, .. } => looks_like(pattern, name),
                    _ => false,
                }
        };
        self.devices.iter().filter(|device| is_meant(pattern, device)).collect()
    }

    /// A device by its path, also through links of udev (`/dev/disk/by-id/…`) where they are there.
    pub(crate) fn find_path(&self, root: &SystemRoot, path: &Path) -> Option<DeviceNumber> {
        const MOST_LINKS: usize = 8;
        let mut path = path.to_owned();
        for _ in 0..MOST_LINKS {
            if let Some(device) = path.to_str().and_then(|path| self.find(path)) {
                return Some(device.number);
            }
            // Like `/dev/disk/by-id/x → ../../sda`; what is below a linked directory is not found.
            let target = tree::link(root, &path).ok()??;
            path = normalized(&path.parent()?.join(target));
        }
        None
    }

    /// Returns the group that a device saturates together with. That is:
    ///
    /// - for a logical volume, its volume group;
    /// - for a device made only of volumes of one group (dm-crypt on a volume), that volume group;
    /// - for a partition, its disk's group;
    /// - otherwise the device itself.
    ///
    /// Returns `None` if there is no such device.
    #[must_use]
    pub fn group(&self, number: DeviceNumber) -> Option<DeviceGroup<'_>> {
        self.group_at(number, DEEPEST)
    }

    fn group_at(&self, number: DeviceNumber, depth: usize) -> Option<DeviceGroup<'_>> {
        let device = self.get(number)?;
        let own = match &device.kind {
            DeviceKind::Lvm(volume) => return Some(DeviceGroup::VolumeGroup(&volume.group)),
            DeviceKind::DeviceMapper { name, .. } => DeviceGroup::Device(name),
            _ => DeviceGroup::Device(&device.name),
        };
        let Some(depth) = depth.checked_sub(1) else { return Some(own) };
        let mut below = device.made_of.iter().filter_map(|number| self.group_at(*number, depth));
        let first = below.next();
        let inherited = match (&device.kind, first) {
            (DeviceKind::Partition, Some(disk)) => Some(disk),
            (_, Some(DeviceGroup::VolumeGroup(name)))
                if below.all(|other| other == DeviceGroup::VolumeGroup(name)) =>
            {
                first
            }
            _ => None,
        };
        Some(inherited.unwrap_or(own))
    }

    /// The devices whose counters add up to what a group does: the visible volumes of a volume group (a
    /// request to one of them passes through hidden parts, and would be counted there again), or the one
    /// device. Empty if there is no such group.
    #[must_use]
    pub fn members(&self, group: DeviceGroup<'_>) -> Vec<DeviceNumber> {
        match group {
            DeviceGroup::VolumeGroup(name) => self
                .devices
                .iter()
                .filter(|device| match &device.kind {
                    DeviceKind::Lvm(volume) => volume.group == name && volume.part.is_none(),
                    _ => false,
                })
                .map(|device| device.number)
                .collect(),
            DeviceGroup::Device(name) => self.find(name).map(|device| device.number).into_iter().collect(),
        }
    }

    /// The volume groups that have volumes here, in the order of their names.
    #[must_use]
    pub fn volume_groups(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self
            .devices
            .iter()
            .filter_map(|device| match &device.kind {
                DeviceKind::Lvm(volume) => Some(volume.group.as_str()),
                _ => None,
            })
            .collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// The devices at the bottom of a device: what its requests end at, through any number of layers. A
    /// partition ends at its disk, a disk at itself. In the order of their numbers; empty if there is no such
    /// device.
    #[must_use]
    pub fn physical(&self, number: DeviceNumber) -> Vec<DeviceNumber> {
        let (mut bottom, mut seen, mut open) = (Vec::new(), Vec::new(), vec![number]);
        // The kernel allows no circles, but a tree that was read while it changed may look like one.
        while let Some(number) = open.pop() {
            let Some(device) = self.get(number) else { continue };
            if seen.contains(&number) {
                continue;
            }
            seen.push(number);
            if device.made_of.is_empty() {
                bottom.push(number);
            }
            open.extend(&device.made_of);
        }
        bottom.sort_unstable();
        bottom
    }
}

/// Returns true if device-mapper and md certainly heed the switch on this kernel.
fn layers_heed(root: &SystemRoot) -> bool {
    root.kernel_version().is_some_and(|version| version >= LAYERS_HEED)
}

/// A path without `..`, which is taken literally.
fn normalized(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        if part == Component::ParentDir {
            plain.pop();
        } else {
            plain.push(part);
        }
    }
    plain
}

/// Layers of devices on each other beyond which the walk ends; the kernel's stack would not bear it either.
const DEEPEST: usize = 16;

/// A device as it was found, whose parts still have names instead of numbers.
struct FoundDevice {
    device: BlockDevice,
    slaves: Vec<String>,
    dm_name: Option<String>,
}

/// A disk and its partitions.
fn read_disk(root: &SystemRoot, entry: &str, found: &mut Vec<FoundDevice>) -> Result<(), ReadError> {
    let at = Path::new(SYS_BLOCK).join(entry);
    let Some(number) = read_number(root, &at)? else { return Ok(()) };
    let Some(inside) = tree::list(root, &at)? else { return Ok(()) };
    let has = |directory: &str| inside.directories.iter().any(|name| name == directory);
    let mut dm_name = None;
    let kind = if has("dm") {
        let line =
            |file| Ok(tree::text(root, at.join("dm").join(file))?.map(|text| text.trim_end().to_owned()));
        let Some(name) = line("name")? else { return Ok(()) };
        let uuid = line("uuid")?.unwrap_or_default();
        dm_name = Some(name.clone());
        match LogicalVolume::new(&name, &uuid) {
            Some(volume) => DeviceKind::Lvm(volume),
            None => DeviceKind::DeviceMapper { name, uuid },
        }
    } else if has("md") {
        DeviceKind::Md
    } else if is_numbered(entry, "loop") {
        DeviceKind::Loop
    } else if is_numbered(entry, "zd") {
        DeviceKind::Zvol
    } else {
        DeviceKind::Disk
    };
    let slaves = tree::list(root, at.join("slaves"))?.unwrap_or_default().into_both();
    let sequence = read_sequence(root, &at)?;
    let Some(size) = read_size(root, &at)? else { return Ok(()) };
    let has_requests = has("mq");
    let device = BlockDevice {
        number,
        name: kernel_name(entry),
        kind,
        size,
        made_of: Vec::new(),
        sequence,
        has_requests,
    };
    found.push(FoundDevice {
        device,
        slaves: slaves.iter().map(|name| kernel_name(name)).collect(),
        dm_name,
    });

    for partition in inside.directories.iter().filter(|name| name.starts_with(entry)) {
        let at = at.join(partition);
        if !tree::exists(root, at.join("partition")) {
            continue;
        }
        let (Some(number), Some(size)) = (read_number(root, &at)?, read_size(root, &at)?) else { continue };
        let device = BlockDevice {
            number,
            name: kernel_name(partition),
            kind: DeviceKind::Partition,
            size,
            made_of: Vec::new(),
            sequence,
            has_requests,
        };
        found.push(FoundDevice { device, slaves: vec![kernel_name(entry)], dm_name: None });
    }
    Ok(())
}

/// sysfs writes `!` where a kernel name has a slash.
fn kernel_name(entry: &str) -> String {
    entry.replace('!', "/")
}

fn is_numbered(name: &str, prefix: &str) -> bool {
    let digits = name.strip_prefix(prefix).unwrap_or_default();
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// The device's number; `None` if the device has gone, or is hidden, as the paths below an NVMe multipath
/// device are.
fn read_number(root: &SystemRoot, at: &Path) -> Result<Option<DeviceNumber>, ReadError> {
    let file = at.join("dev");
    let Some(text) = tree::text(root, &file)? else { return Ok(None) };
    text.trim_end().parse().map(Some).map_err(|error| tree::malformed(root, &file, 1, format!("{error}")))
}

fn read_size(root: &SystemRoot, at: &Path) -> Result<Option<Bytes>, ReadError> {
    let file = at.join("size");
    let Some(text) = tree::text(root, &file)? else { return Ok(None) };
    let sectors: u64 = text.trim_end().parse().map_err(|_| {
        tree::malformed(root, &file, 1, format!("expected a number of sectors, not `{}`", tree::shown(&text)))
    })?;
    Ok(Some(Bytes::new(sectors.saturating_mul(SECTOR))))
}

fn read_sequence(root: &SystemRoot, at: &Path) -> Result<Option<u64>, ReadError> {
    let file = at.join("diskseq");
    let Some(text) = tree::text(root, &file)? else { return Ok(None) };
    text.trim_end().parse().map(Some).map_err(|_| {
        tree::malformed(root, &file, 1, format!("expected a sequence number, not `{}`", tree::shown(&text)))
    })
}

#[cfg(test)]
mod tests;
