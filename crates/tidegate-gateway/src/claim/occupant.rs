//! Users of a volume, found in the kernel's own files. Those files are read, and storage is not touched.

use std::fs::{self, TryLockError};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use tidegate_sockets::holders::{self, Holder};

use super::mounts::mount_point;
use super::{VolumeId, layers};
use crate::identity::{device_directory, shown_device};

/// The kernel's table of mounts.
const MOUNTS: &str = "/proc/self/mountinfo";

/// The longest table of mounts that is read: some ten thousand mounts.
const LONGEST_TABLE: u64 = 4 << 20;

/// Returns the use that the system makes of a volume: a mount, swap, a device on top of it, a loop device.
pub(super) fn of(volume: VolumeId, path: &Path) -> Option<String> {
    match volume {
        VolumeId::Device(number) => of_device(number),
        VolumeId::File { .. } => {
            let mounts = read_table(MOUNTS).unwrap_or_default();
            layers::loop_over_file(path, &mounts).map(|device| format!("it is the data of /dev/{device}"))
        }
    }
}

/// Adds the programs that have a path open, as far as this process may see them.
pub(super) fn named(what: &str, path: &Path) -> String {
    let Ok(path) = path.canonicalize() else { return what.to_owned() };
    match programs(&holders::of_file(&path)) {
        unknown if unknown.is_empty() => format!("{what} (`fuser -v {}`, as root, names it)", path.display()),
        programs => format!("{what}: {programs}"),
    }
}

/// Returns programs in words, each with its process number.
pub(crate) fn programs(holders: &[Holder]) -> String {
    holders.iter().map(Holder::to_string).collect::<Vec<_>>().join(", ")
}

fn of_device(number: u64) -> Option<String> {
    let mounts = read_table(MOUNTS).unwrap_or_default();
    let swaps = read_table("/proc/swaps").unwrap_or_default();
    let directory = device_directory(number);
    let whole = DevicePart { name: None, number: shown_device(number), directory };
    let parts = partitions(&whole.directory);
    let occupied = std::iter::once(whole).chain(parts).find_map(|part| {
        let occupied = mounted_at(&mounts, &part.number)
            .map(|place| format!("mounted at {place}"))
            .or_else(|| is_swap(&swaps, &part.number).then(|| "used as swap".to_owned()))
            .or_else(|| holder(&part.directory).map(|holder| format!("a part of {holder}")))?;
        Some(match part.name {
            None => format!("it is {occupied}"),
            Some(name) => format!("its partition {name} is {occupied}"),
        })
    });
    let beside = || layers::loop_beside_device(number, &mounts);
    occupied.or_else(|| beside().map(|device| format!("its data, or a part of it, is that of /dev/{device}")))
}

/// A block device or one of its partitions.
struct DevicePart {
    name: Option<String>,
    /// Major and minor number, with a colon.
    number: String,
    directory: PathBuf,
}

fn partitions(directory: &Path) -> Vec<DevicePart> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let partitions = entries.filter_map(|entry| {
        let directory = entry.path();
        directory.join("partition").exists().then_some(())?;
        let number = fs::read_to_string(directory.join("dev")).ok()?.trim().to_owned();
        Some(DevicePart { name: entry.file_name().into_string().ok(), number, directory })
    });
    partitions.collect()
}

/// Returns the mount point of a device. The fields of a line are: two numbers, the device, the root in it,
/// the mount point (proc(5)).
fn mounted_at(mounts: &str, number: &str) -> Option<String> {
    let mount = mounts.lines().find(|line| line.split(' ').nth(2) == Some(number))?;
    mount.split(' ').nth(4).map(mount_point)
}

fn is_swap(swaps: &str, number: &str) -> bool {
    let devices = swaps.lines().filter_map(|line| line.split_ascii_whitespace().next());
    let mut numbers =
        devices.filter_map(|path| fs::metadata(path).ok()).map(|device| shown_device(device.rdev()));
    numbers.any(|swap| swap == number)
}

/// Returns the device on top of another one: a logical volume, an array, an encrypted or multipath device.
fn holder(directory: &Path) -> Option<String> {
    let holder = fs::read_dir(directory.join("holders")).ok()?.flatten().next()?;
    let device = holder.file_name().into_string().ok()?;
    let mapped = fs::read_to_string(holder.path().join("dm/name")).ok();
    Some(match mapped {
        Some(name) => format!("{} ({device})", name.trim()),
        None => device,
    })
}

/// Returns true for a device that can only be read.
pub(super) fn is_read_only(device: u64) -> bool {
    let flag = fs::read_to_string(device_directory(device).join("ro"));
    flag.is_ok_and(|flag| flag.trim() == "1")
}

/// Returns true if a program has locked a file by flock(2) in a way that excludes this use.
pub(super) fn is_flocked(file: &fs::File, read_only: bool) -> io::Result<bool> {
    let metadata = file.metadata()?;
    let (major, minor) = (rustix::fs::major(metadata.dev()), rustix::fs::minor(metadata.dev()));
    if major == 0 {
        // The kernel's table has another number for some file systems without a device, such as btrfs.
        let lock = if read_only { file.try_lock_shared() } else { file.try_lock() };
        return match lock {
            Ok(()) => file.unlock().map(|()| false),
            Err(TryLockError::WouldBlock) => Ok(true),
            // Without locks, there are none.
            Err(TryLockError::Error(_)) => Ok(false),
        };
    }
    let file = format!("{major:02x}:{minor:02x}:{}", metadata.ino());
    // The fields are: a number, the kind, advisory or not, the access, the process, the file (proc(5)).
    Ok(read_table("/proc/locks").unwrap_or_default().lines().any(|lock| {
        let fields: Vec<_> = lock.split_ascii_whitespace().collect();
        matches!(fields[..], [_, "FLOCK", _, access, _, locked, ..]
            if locked == file && (access == "WRITE" || !read_only))
    }))
}

fn read_table(path: &str) -> io::Result<String> {
    let mut table = Vec::new();
    fs::File::open(path)?.take(LONGEST_TABLE).read_to_end(&mut table)?;
    Ok(String::from_utf8_lossy(&table).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 22 8:17 / /srv/my\\040data rw - xfs /dev/sdb1 rw
31 22 8:1 /sub /srv/bound rw - xfs /dev/sda1 rw";

    #[test]
    fn a_mount_is_found_by_its_device() {
        assert_eq!(mounted_at(MOUNTS, "8:17").as_deref(), Some("/srv/my data"));
        assert_eq!(mounted_at(MOUNTS, "8:1").as_deref(), Some("/srv/bound"));
        assert_eq!(mounted_at(MOUNTS, "8:16"), None);
        assert_eq!(mounted_at("", "8:1"), None);
    }

    #[test]
    fn the_root_file_system_is_in_use() {
        let root = fs::metadata("/").unwrap().dev();
        // Some file systems have no device.
        if Path::new(&format!("/sys/dev/block/{}", shown_device(root))).exists() {
            assert!(of(VolumeId::Device(root), Path::new("/dev/root")).unwrap().contains("mounted at"));
        }
    }

    #[test]
    fn a_program_that_has_the_file_open_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(named("it is locked", file.path()).contains("fuser -v"));
        let mut program =
            std::process::Command::new("sleep").arg("60").stdin(file.reopen().unwrap()).spawn().unwrap();
        let message = named("it is locked", file.path());
        program.kill().unwrap();
        program.wait().unwrap();
        assert_eq!(message, format!("it is locked: sleep (process {})", program.id()));
    }
}
