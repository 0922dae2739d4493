//! Block devices whose bytes are those of something else: loop devices over files and devices, with or without
//! an offset, and partitions. Two of them may have bytes in common without sharing a name or a number, and the
//! kernel lets both be opened for writing.
//!
//! Device mapper says in its files which devices a device uses, but not which part of them: several logical
//! volumes of one disk are told apart by LVM alone.

use std::ffi::OsString;
use std::fs;
use std::ops::Range;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::mounts::mounted_device;
use crate::identity::{device_directory, number_in};

/// The unit in which the kernel counts the parts of a device.
const SECTOR: u64 = 512;

/// More layers than the kernel allows.
const MOST_LAYERS: usize = 16;

/// A loop device with data.
#[derive(Debug, Clone)]
struct LoopData {
    name: String,
    number: u64,
    /// The path of its data, as the kernel has it.
    data: PathBuf,
    offset: u64,
    /// `None`: all that follows.
    length: Option<u64>,
}

/// The storage at the bottom of layers.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Bottom {
    Device(u64),
    File(PathBuf),
}

/// The bytes of a device, in the storage at the bottom.
#[derive(Debug)]
struct BottomRange {
    bottom: Bottom,
    bytes: Range<u64>,
    /// The devices on the way down.
    layers: Vec<u64>,
}

/// Returns the loop device whose data a file is, or a part of it.
pub(super) fn loop_over_file(path: &Path, mounts: &str) -> Option<String> {
    let path = path.canonicalize().ok()?;
    let loops = loop_devices();
    let over = loops.iter().find(|device| match descend(device.number, &loops).bottom {
        Bottom::File(data) => is_same_file(&data, &path, mounts),
        Bottom::Device(_) => false,
    });
    over.map(|device| device.name.clone())
}

/// Returns a loop device that has bytes in common with a device, and is not below it.
pub(super) fn loop_beside_device(number: u64, mounts: &str) -> Option<String> {
    let loops = loop_devices();
    let own = descend(number, &loops);
    let beside = loops.iter().filter(|device| !own.layers.contains(&device.number)).find(|device| {
        let other = descend(device.number, &loops);
        let is_same_bottom = match (&own.bottom, &other.bottom) {
            (Bottom::File(own), Bottom::File(other)) => is_same_file(other, own, mounts),
            (own, other) => own == other,
        };
        is_same_bottom && own.bytes.start < other.bytes.end && other.bytes.start < own.bytes.end
    });
    beside.map(|device| device.name.clone())
}

fn loop_devices() -> Vec<LoopData> {
    let devices = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let loops = devices.filter_map(|entry| {
        let name = entry.file_name().into_string().ok().filter(|name| name.starts_with("loop"))?;
        let of_loop = entry.path().join("loop");
        let data = fs::read(of_loop.join("backing_file")).ok()?;
        let data = OsString::from_vec(data.trim_ascii_end().to_vec()).into();
        let offset = number_in(&of_loop.join("offset")).unwrap_or(0);
        let length = number_in(&of_loop.join("sizelimit")).filter(|limit| *limit > 0);
        Some(LoopData { number: device_number(&entry.path())?, name, data, offset, length })
    });
    loops.collect()
}

/// Returns the number of the device that a folder of the kernel is about.
fn device_number(directory: &Path) -> Option<u64> {
    let text = fs::read_to_string(directory.join("dev")).ok()?;
    let (major, minor) = text.trim().split_once(':')?;
    Some(rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?))
}

/// Follows a device down to the storage that has its bytes.
fn descend(number: u64, loops: &[LoopData]) -> BottomRange {
    let (mut bottom, mut bytes, mut layers) = (Bottom::Device(number), 0..u64::MAX, Vec::new());
    while let Bottom::Device(number) = bottom
        && layers.len() < MOST_LAYERS
    {
        layers.push(number);
        let Some((below, offset, length)) = layer_below(number, loops) else { break };
        let end = length.map_or(bytes.end, |length| bytes.end.min(length));
        bytes = bytes.start.saturating_add(offset)..end.saturating_add(offset);
        bottom = below;
    }
    BottomRange { bottom, bytes, layers }
}

/// Returns what is below a device, and where in it the device begins and how long it is.
fn layer_below(number: u64, loops: &[LoopData]) -> Option<(Bottom, u64, Option<u64>)> {
    let directory = device_directory(number);
    if directory.join("partition").exists() {
        let [start, length] = ["start", "size"].map(|file| number_in(&directory.join(file)));
        let disk = Bottom::Device(device_number(&directory.join(".."))?);
        return Some((disk, start? * SECTOR, length.map(|length| length * SECTOR)));
    }
    let device = loops.iter().find(|device| device.number == number)?;
    // A file elsewhere may be on storage that hangs.
    let node = device.data.starts_with("/dev").then(|| device.data.metadata().ok()).flatten();
    let below = match node.filter(|node| node.file_type().is_block_device()) {
        Some(node) => Bottom::Device(node.rdev()),
        None => Bottom::File(device.data.clone()),
    };
    Some((below, device.offset, device.length))
}

/// Returns true if two paths lead to one file. The second is known to answer. The first is looked at only if
/// it is in the same file system: another one may hang.
fn is_same_file(unknown: &Path, known: &Path, mounts: &str) -> bool {
    let look = || {
        let file_system = mounted_device(mounts, known)?;
        (mounted_device(mounts, unknown)? == file_system).then_some(())?;
        let [unknown, known] = [unknown.metadata().ok()?, known.metadata().ok()?];
        Some((unknown.dev(), unknown.ino()) == (known.dev(), known.ino()))
    };
    unknown == known || look().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_of_stacked_loop_devices_are_found_at_the_bottom() {
        // Numbers that no device of this machine has.
        let of = |minor: u32| rustix::fs::makedev(4_000, minor);
        let device = |minor: u32, data: &str, offset: u64, length: Option<u64>| LoopData {
            name: format!("loop{minor}"),
            number: of(minor),
            data: data.into(),
            offset,
            length,
        };
        let loops = [device(1, "/srv/volume", 1_000, Some(500)), device(2, "/srv/volume", 1_500, None)];
        let [one, two] = [1, 2].map(|minor| descend(of(minor), &loops));
        assert_eq!((&one.bottom, one.bytes), (&two.bottom, 1_000..1_500));
        assert_eq!(two.bytes, 1_500..u64::MAX);
        let other = descend(of(3), &loops);
        assert_eq!((other.bottom, other.bytes), (Bottom::Device(of(3)), 0..u64::MAX));
    }
}
