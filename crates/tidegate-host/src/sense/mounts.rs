//! `/proc/self/mountinfo`: which file system is where, and on which device (proc_pid_mountinfo(5)).

use std::path::{Path, PathBuf};

use super::tree;
use super::volume::VolumeTree;
use crate::device::DeviceNumber;
use crate::root::{ReadError, SystemRoot};

const MOUNTINFO: &str = "/proc/self/mountinfo";

/// The mounted file systems, in the order in which they were mounted.
#[derive(Debug, Default)]
pub(crate) struct MountTable(Vec<Mount>);

/// One mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mount {
    /// The file system's number: its device's, or for one that is not on one device (btrfs, tmpfs) a number
    /// with the major 0.
    pub(crate) file_system: DeviceNumber,
    /// The directory where it is mounted.
    pub(crate) point: PathBuf,
    /// The kind of file system: `ext4`, `cgroup2`.
    pub(crate) kind: String,
    /// The source, as it was given: often a path in `/dev`.
    pub(crate) source: String,
    /// The block device that it is on, or one of them.
    pub(crate) device: Option<DeviceNumber>,
}

impl MountTable {
    /// Reads the table, without what takes a look at block devices; empty if there is none.
    pub(crate) fn table(root: &SystemRoot) -> Result<Self, ReadError> {
        let Some(text) = tree::text(root, MOUNTINFO)? else { return Ok(Self::default()) };
        let mounts = parse(&text);
        Ok(Self(mounts.map_err(|(line, problem)| tree::malformed(root, MOUNTINFO, line, problem))?))
    }

    /// Reads the table, and finds the devices.
    pub(crate) fn read(root: &SystemRoot) -> Result<Self, ReadError> {
        let Self(mut mounts) = Self::table(root)?;
        let mut volumes = None;
        for mount in &mut mounts {
            mount.device = if mount.file_system.major != 0 {
                Some(mount.file_system)
            } else if mount.source.starts_with("/dev/") {
                let volumes = match &mut volumes {
                    Some(volumes) => volumes,
                    none => none.insert(VolumeTree::read(root)?),
                };
                volumes.find_path(root, Path::new(&mount.source))
            } else {
                None
            };
        }
        Ok(Self(mounts))
    }

    /// Returns the first mount of a file system.
    pub(crate) fn of(&self, file_system: DeviceNumber) -> Option<&Mount> {
        self.0.iter().find(|mount| mount.file_system == file_system)
    }

    /// Returns the first mount of a kind of file system.
    pub(crate) fn of_kind(&self, kind: &str) -> Option<&Mount> {
        self.all_of_kind(kind).next()
    }

    /// Returns the mounts of a kind of file system.
    pub(crate) fn all_of_kind(&self, kind: &str) -> impl Iterator<Item = &Mount> {
        self.0.iter().filter(move |mount| mount.kind == kind)
    }

    /// The mount that a path is in: the deepest one, of several on each other the last.
    pub(crate) fn at(&self, path: &Path) -> Option<&Mount> {
        let inside = self.0.iter().filter(|mount| path.starts_with(&mount.point));
        inside.max_by_key(|mount| mount.point.components().count())
    }
}

/// `36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw`; an error has the line, counted from 1.
fn parse(text: &str) -> Result<Vec<Mount>, (usize, String)> {
    let mut mounts = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let wrong = |what: &str| (index + 1, format!("expected {what} in `{}`", tree::shown(line)));
        let (before, after) = line.split_once(" - ").ok_or_else(|| wrong("` - `"))?;
        let mut before = before.split(' ').skip(2);
        let file_system =
            before.next().and_then(|word| word.parse().ok()).ok_or_else(|| wrong("a device number"))?;
        let point = before.nth(1).ok_or_else(|| wrong("a mount point"))?;
        let mut after = after.split(' ');
        let kind = after.next().ok_or_else(|| wrong("a kind of file system"))?;
        let source = after.next().ok_or_else(|| wrong("a source"))?;
        mounts.push(Mount {
            file_system,
            point: unescape(point).into(),
            kind: kind.to_owned(),
            source: unescape(source),
            device: None,
        });
    }
    Ok(mounts)
}

/// White space and backslashes as the kernel writes them: `\040`.
pub(crate) fn unescape(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((plain, escaped)) = rest.split_once('\\') {
        bytes.extend_from_slice(plain.as_bytes());
        let byte =
            escaped.get(..3).filter(|digits| digits.bytes().all(|digit| (b'0'..=b'7').contains(&digit)));
        match byte.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &escaped[3..];
            }
            None => {
                bytes.push(b'\\');
                rest = escaped;
            }
        }
    }
    bytes.extend_from_slice(rest.as_bytes());
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_deepest_and_last_mount_has_the_path() {
        let mounts = MountTable(
            parse(
                "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n30 22 254:0 / /srv rw shared:5 master:1 - ext4 /dev/a \
                    rw\n\
                 31 30 254:1 / /srv rw - xfs /dev/b rw\n32 31 254:2 /sub /srv/a\\040b rw - xfs /dev/c rw\n",
            )
            .unwrap(),
        );
        let source = |path: &str| mounts.at(Path::new(path)).unwrap().source.as_str();
        assert_eq!(
            [source("/srvx"), source("/srv/x"), source("/srv/a b"), source("/srv/a b/x")],
            ["/dev/sda1", "/dev/b", "/dev/c", "/dev/c"]
        );
        assert_eq!(mounts.of(DeviceNumber::new(254, 2)).unwrap().point, Path::new("/srv/a b"));
        assert_eq!(mounts.of_kind("xfs").unwrap().source, "/dev/b");
        assert_eq!(mounts.of_kind("cgroup2"), None);
    }

    #[test]
    fn a_malformed_line_is_named() {
        for text in
            ["x\n", "1 2 3 / / rw - ext4 /dev/a rw\n", "1 2 8:1 / - ext4 /dev/a\n", "1 2 8:1 / / rw - ext4\n"]
        {
            assert_eq!(
                parse(&format!("22 1 8:1 / / rw - ext4 /dev/sda1 rw\n{text}")).unwrap_err().0,
                2,
                "{text}"
            );
        }
    }

    #[test]
    fn this_machines_own_table_is_read() {
        assert!(MountTable::read(&SystemRoot::default()).unwrap().at(Path::new("/")).is_some());
    }

    proptest! {
        #[test]
        fn arbitrary_text_never_panics(text in "(\\PC|\n|\\\\){0,100}") {
            let _ = parse(&text);
            let _ = unescape(&text);
        }
    }
}
