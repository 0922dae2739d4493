//! Identity of an export's storage: a client that comes back after a restart goes on with the volume that it
//! had, or not at all.

use std::fmt;
use std::fs::{self, Metadata};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};
use tidegate_nbd::ExportName;

use crate::config::ListenEndpoint;

/// The storage behind an export.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct VolumeIdentity {
    /// The path or address by which it was reached, for messages only: other paths may lead to it as well.
    place: String,
    key: VolumeKey,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum VolumeKey {
    /// A regular file. File systems use the inode of a deleted file again, so the time at which the file was
    /// made belongs to its identity, in nanoseconds since 1970.
    File { device: u64, inode: u64, born: Option<u64> },
    /// A block device. The kernel uses numbers again, and counts the disks that it has had (`diskseq`, since
    /// Linux 5.15). `start` is the first sector of a partition.
    Device { number: u64, sequence: Option<u64>, start: Option<u64> },
    /// An export of another server. NBD has no name for the volume behind it.
    Upstream,
    /// A part of an emulated device, which ends with its process.
    Emulated,
}

impl VolumeIdentity {
    /// Returns the identity of a regular file or block device.
    pub(crate) fn of_file(path: &Path, metadata: &Metadata) -> Self {
        let key = if metadata.file_type().is_block_device() {
            let number = metadata.rdev();
            let directory = device_directory(number);
            let whole_disk = if directory.join("partition").exists() { ".." } else { "." };
            let sequence = number_in(&directory.join(whole_disk).join("diskseq"));
            VolumeKey::Device { number, sequence, start: number_in(&directory.join("start")) }
        } else {
            let born = metadata.created().ok().and_then(|born| born.duration_since(UNIX_EPOCH).ok());
            let born = born.and_then(|born| u64::try_from(born.as_nanos()).ok());
            VolumeKey::File { device: metadata.dev(), inode: metadata.ino(), born }
        };
        Self { place: path.display().to_string(), key }
    }

    pub(crate) fn of_upstream(address: &ListenEndpoint, export: &ExportName) -> Self {
        let place = format!("upstream export `{}` at {}", export.as_str(), address.canonical());
        Self { place, key: VolumeKey::Upstream }
    }

    pub(crate) fn of_emulated_device() -> Self {
        Self { place: "a part of an emulated device".to_owned(), key: VolumeKey::Emulated }
    }

    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.key == other.key && (self.key != VolumeKey::Upstream || self.place == other.place)
    }

    /// Returns the identity in 64 bits, for places that have no room for more. Never zero.
    pub(crate) fn stamp(&self) -> u64 {
        let place = if self.key == VolumeKey::Upstream { &*self.place } else { "" };
        // FNV-1a: the standard library's hashes may change from one version to the next.
        // The form that is stored does not change from one version to the next either.
        let bytes = format!("{}{place}", serde_json::to_string(&self.key).unwrap_or_default());
        let hash = bytes.bytes().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        });
        hash.max(1)
    }
}

/// The kernel's folder about a block device.
pub(crate) fn device_directory(number: u64) -> PathBuf {
    format!("/sys/dev/block/{}", shown_device(number)).into()
}

/// A device's number as the kernel writes it, such as `8:1`.
pub(crate) fn shown_device(number: u64) -> String {
    format!("{}:{}", rustix::fs::major(number), rustix::fs::minor(number))
}

/// Returns the number that a file of the kernel holds.
pub(crate) fn number_in(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

impl fmt::Display for VolumeIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { place, key } = self;
        write!(f, "{place}")?;
        match key {
            VolumeKey::File { device, inode, born } => {
                write!(f, " (inode {inode} on device {}", shown_device(*device))?;
                born.map_or(Ok(()), |born| {
                    write!(f, ", born {}.{:09}", born / 1_000_000_000, born % 1_000_000_000)
                })?;
                write!(f, ")")
            }
            VolumeKey::Device { number, sequence, start } => {
                write!(f, " (device {}", shown_device(*number))?;
                sequence.map_or(Ok(()), |sequence| write!(f, ", disk {sequence} since boot"))?;
                start.map_or(Ok(()), |start| write!(f, ", from sector {start}"))?;
                write!(f, ")")
            }
            VolumeKey::Upstream | VolumeKey::Emulated => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(path: &Path) -> VolumeIdentity {
        VolumeIdentity::of_file(path, &path.metadata().unwrap())
    }

    #[test]
    fn a_volume_is_the_same_by_every_path_and_another_after_a_replacement() {
        let folder = tempfile::tempdir().unwrap();
        let (path, link) = (folder.path().join("volume"), folder.path().join("link"));
        fs::write(&path, "one").unwrap();
        fs::hard_link(&path, &link).unwrap();
        let one = of(&path);
        assert!(one.is_same(&of(&link)) && one.stamp() == of(&link).stamp());
        let kept: VolumeIdentity = serde_json::from_str(&serde_json::to_string(&one).unwrap()).unwrap();
        assert!(kept.is_same(&one));
        // The file system may give the inode away again at once.
        fs::remove_file(&path).unwrap();
        fs::remove_file(&link).unwrap();
        fs::write(&path, "two").unwrap();
        let two = of(&path);
        assert!(!one.is_same(&two) && one.stamp() != two.stamp(), "{one} and {two}");
    }

    #[test]
    fn an_upstream_is_known_by_its_address_and_export() {
        let upstream = |address: &str, export: &str| {
            let address = ListenEndpoint::Tcp(address.parse().unwrap());
            VolumeIdentity::of_upstream(&address, &ExportName::new(export).unwrap())
        };
        let one = upstream("127.0.0.1:10809", "x");
        assert!(one.is_same(&upstream("[::ffff:127.0.0.1]:10809", "x")));
        for other in [upstream("127.0.0.1:10810", "x"), upstream("127.0.0.1:10809", "y")] {
            assert!(!one.is_same(&other) && one.stamp() != other.stamp(), "{other}");
        }
    }
}
