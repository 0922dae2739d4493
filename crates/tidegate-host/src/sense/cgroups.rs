//! The I/O of control groups to a device.
//!
//! The kernel counts what cgroups do to devices ([`cgroup`](crate::cgroup)), and not how long it takes. Only
//! the device's own counters have latencies, of all cgroups together ([`DiskStats`](super::DiskStats)).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;

use tidegate_units::ConsumerName;

use crate::cgroup::{CgroupPattern, CgroupTree, IoCounters, NamedCgroup};
use crate::device::DeviceNumber;
use crate::root::{ReadError, SystemRoot};

/// The most services beside the configured cgroups that are read, each second.
const MOST_BESIDE: usize = 250;

/// Reads what the cgroups that are meant by some patterns do to one device.
#[derive(Debug)]
pub struct CgroupReader {
    tree: CgroupTree,
    patterns: Vec<CgroupPattern>,
    cgroups: BTreeMap<ConsumerName, WatchedCgroup>,
    /// The names by which patterns mean some of them.
    names: BTreeMap<ConsumerName, String>,
    /// Cgroups that are meant and passed over, because of their names, which the log has said.
    nameless: BTreeSet<String>,
}

/// A cgroup that is meant.
#[derive(Debug, Clone, Copy, Default)]
pub struct WatchedCgroup {
    /// The last reading.
    last: Option<Reading>,
    done: IoCounters,
    is_new: bool,
}

#[derive(Debug, Clone, Copy)]
struct Reading {
    /// The inode of the cgroup's directory: one that is made again under the same name has another.
    inode: u64,
    device: DeviceNumber,
    counters: IoCounters,
}

impl Reading {
    /// Returns the I/O since an older reading; `None` if that is of another cgroup or device.
    fn since(self, last: Self) -> Option<IoCounters> {
        let is_same = (last.inode, last.device) == (self.inode, self.device);
        self.counters.since(last.counters).filter(|_| is_same)
    }
}

impl WatchedCgroup {
    /// Returns its I/O between the last two readings. There is none while it is not accounted for, nor at the
    /// first reading, since nothing is known of the time before.
    #[must_use]
    pub const fn done(&self) -> IoCounters {
        self.done
    }

    /// Returns true if it was read for the first time. It may have done I/O before that is not known.
    #[must_use]
    pub const fn is_new(&self) -> bool {
        self.is_new
    }

    /// Returns true if the kernel accounts for its I/O. By v2 that needs a parent that gives it the
    /// controller `io`.
    #[must_use]
    pub const fn is_accounted(&self) -> bool {
        self.last.is_some()
    }
}

impl CgroupReader {
    /// Finds the hierarchy, and the configured cgroups.
    ///
    /// # Errors
    /// When there is none that accounts for I/O, or it cannot be read.
    pub fn new(root: &SystemRoot, patterns: Vec<CgroupPattern>) -> Result<Self, ReadError> {
        let tree = CgroupTree::find(root)
            .map_err(|source| ReadError::Unreadable { path: root.path("/sys/fs/cgroup"), source })?;
        let mut reader = Self {
            tree,
            patterns,
            cgroups: BTreeMap::new(),
            names: BTreeMap::new(),
            nameless: BTreeSet::new(),
        };
        reader.look()?;
        Ok(reader)
    }

    /// Finds the configured cgroups anew: cgroups come and go. Returns true if they are others.
    ///
    /// # Errors
    pub fn look(&mut self) -> Result<bool, ReadError> {
        let found = self.tree.select(&self.patterns)?;
        Ok(self.follow(found))
    }

    /// The cgroups of the hierarchy that have a name that people use.
    #[must_use]
    pub fn named(&self) -> Vec<NamedCgroup> {
        self.tree.named()
    }

    fn follow(&mut self, found: BTreeMap<String, Option<String>>) -> bool {
        self.names.clear();
        let mut known = std::mem::take(&mut self.cgroups);
        let known_nameless = std::mem::take(&mut self.nameless);
        let before = known.len();
        let mut fresh = false;
        for (path, selected_as) in found {
            // A path that is too long is no consumer's.
            let name = match ConsumerName::new(&path) {
                Ok(name) => name,
                Err(error) => {
                    if !known_nameless.contains(&path) {
                        tracing::warn!("cgroup {}: passed over, {error}", path.escape_debug());
                    }
                    self.nameless.insert(path);
                    continue;
                }
            };
            self.names.extend(selected_as.map(|selected_as| (name.clone(), selected_as)));
            let cgroup = known.remove(&name);
            fresh |= cgroup.is_none();
            self.cgroups.insert(name, cgroup.unwrap_or_default());
        }
        fresh || self.cgroups.len() != before
    }

    /// Returns what the services beside the configured cgroups have done to a device so far; those that did
    /// nothing, and those that cannot be read, are left out.
    #[must_use]
    pub fn beside(&self, device: DeviceNumber) -> Vec<(ConsumerName, IoCounters)> {
        let services = self.tree.services().into_iter().filter(|path| !self.is_meant_with(path));
        let read = |path: String| {
            let counters = self.tree.counters(&path).ok()??.get(&device).copied()?;
            Some((ConsumerName::new(&path).ok()?, counters))
        };
        services.take(MOST_BESIDE).filter_map(read).collect()
    }

    /// Returns true if a cgroup is one of the configured ones, or in one, or has one in it.
    fn is_meant_with(&self, path: &str) -> bool {
        let mut outer = Some(path);
        while let Some(path) = outer {
            if ConsumerName::new(path).is_ok_and(|name| self.cgroups.contains_key(&name)) {
                return true;
            }
            outer = path.rsplit_once('/').map(|(parent, _)| parent);
        }
        let inner = format!("{path}/");
        let Ok(first) = ConsumerName::new(&inner) else { return true };
        self.cgroups.range(first..).next().is_some_and(|(name, _)| name.as_str().starts_with(&inner))
    }

    /// Means others from the next [`look`](Self::look) on. Who was meant before keeps what was read of him.
    pub fn mean(&mut self, patterns: Vec<CgroupPattern>) {
        self.patterns = patterns;
    }

    /// Reads what all cgroups did to a device since the last reading.
    ///
    /// # Errors
    /// When a file cannot be read or understood. What was done since the last good reading is then in the
    /// next one.
    pub fn read(&mut self, device: DeviceNumber) -> Result<(), ReadError> {
        let mut readings = Vec::with_capacity(self.cgroups.len());
        for name in self.cgroups.keys() {
            let directory = self.tree.directory(name.as_str());
            let counted = self.tree.counters(name.as_str())?;
            readings.push(counted.zip(fs::metadata(directory).ok()).map(|(counters, metadata)| Reading {
                inode: metadata.ino(),
                device,
                counters: counters.get(&device).copied().unwrap_or_default(),
            }));
        }
        for (cgroup, now) in self.cgroups.values_mut().zip(readings) {
            let last = std::mem::replace(&mut cgroup.last, now);
            let since = last.zip(now).and_then(|(last, now)| now.since(last));
            cgroup.is_new = now.is_some() && since.is_none();
            cgroup.done = since.unwrap_or_default();
        }
        Ok(())
    }

    /// Returns the names by which patterns mean cgroups. A cgroup that is meant by its path has none.
    #[must_use]
    pub const fn names(&self) -> &BTreeMap<ConsumerName, String> {
        &self.names
    }

    /// Returns the cgroups that are meant, in the order of their names.
    pub fn cgroups(&self) -> impl Iterator<Item = (&ConsumerName, &WatchedCgroup)> {
        self.cgroups.iter()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use tidegate_units::Bytes;

    use super::*;
    use crate::trees::{unpack, write_file};

    const DEVICE: DeviceNumber = DeviceNumber::new(7, 0);

    const V2: &str = "proc/self/mountinfo
  30 22 0:26 / /sys/fs/cgroup rw shared:9 - cgroup2 cgroup2 rw
sys/fs/cgroup/cgroup.controllers
  cpu io memory
sys/fs/cgroup/db/io.stat
  7:0 rbytes=4096 wbytes=0 rios=1 wios=0 dbytes=0 dios=0
sys/fs/cgroup/batch/nightly/io.stat
  8:0 rbytes=4096 wbytes=0 rios=1 wios=0 dbytes=0 dios=0
sys/fs/cgroup/free/cgroup.procs
";

    const V1: &str = "proc/self/mountinfo
  30 22 0:26 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu
  31 22 0:27 / /sys/fs/cgroup/blkio rw - cgroup cgroup rw,blkio
  32 22 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
sys/fs/cgroup/unified/cgroup.controllers
sys/fs/cgroup/blkio/blkio.throttle.io_serviced
  Total 0
sys/fs/cgroup/blkio/db/blkio.throttle.io_serviced
  7:0 Read 1
  7:0 Write 0
  7:0 Total 1
  Total 1
sys/fs/cgroup/blkio/db/blkio.throttle.io_service_bytes
  7:0 Read 4096
  7:0 Write 0
  Total 4096
";

    fn reader(tree: &tempfile::TempDir, text: &str, patterns: &[&str]) -> CgroupReader {
        unpack(text, tree.path()).unwrap();
        let patterns = patterns.iter().map(|pattern| pattern.parse().unwrap()).collect();
        CgroupReader::new(&SystemRoot::at(tree.path()), patterns).unwrap()
    }

    fn done(reader: &mut CgroupReader) -> Vec<(String, u64, u64)> {
        reader.read(DEVICE).unwrap();
        reader
            .cgroups()
            .map(|(name, cgroup)| (name.to_string(), cgroup.done().reads, cgroup.done().read.get()))
            .collect()
    }

    #[test]
    fn what_was_done_since_the_last_reading_by_v2() {
        let tree = tempfile::tempdir().unwrap();
        let mut reader = reader(&tree, V2, &["db", "batch/*", "free", "none"]);
        let of = |name: &str, reads, read| (name.to_owned(), reads, read);
        let nothing = [of("batch/nightly", 0, 0), of("db", 0, 0), of("free", 0, 0)];
        assert_eq!(done(&mut reader), nothing);
        let accounted: Vec<_> = reader.cgroups().map(|(_, cgroup)| cgroup.is_accounted()).collect();
        assert_eq!(accounted, [true, true, false]);
        let counted = "7:0 rbytes=20480 wbytes=0 rios=5 wios=0 dbytes=0 dios=0\n";
        for cgroup in ["db", "batch/nightly"] {
            write_file(tree.path(), &format!("sys/fs/cgroup/{cgroup}/io.stat"), counted.as_bytes()).unwrap();
        }
        // A device that was not in the file had nothing done to it.
        let expected = [of("batch/nightly", 5, 20_480), of("db", 4, 16_384), of("free", 0, 0)];
        assert_eq!(done(&mut reader), expected);
        assert_eq!(done(&mut reader), nothing);
    }

    #[test]
    fn who_else_uses_the_device_is_known() {
        let tree = tempfile::tempdir().unwrap();
        let counted = "7:0 rbytes=4096 wbytes=0 rios=1 wios=0\n";
        for cgroup in ["db/inner", "batch/other", "batch/nightly/inner", "free", "quiet"] {
            let text = if cgroup == "quiet" { "8:0 rios=1" } else { counted };
            write_file(tree.path(), &format!("sys/fs/cgroup/{cgroup}/io.stat"), text.as_bytes()).unwrap();
        }
        let reader = reader(&tree, V2, &["db", "batch/nightly/*"]);
        let found: Vec<_> = reader.beside(DEVICE).into_iter().map(|(name, _)| name.to_string()).collect();
        assert_eq!(found, ["batch/other", "free"]);
    }

    #[test]
    fn what_was_done_since_the_last_reading_by_v1() {
        let tree = tempfile::tempdir().unwrap();
        let mut reader = reader(&tree, V1, &["db"]);
        assert_eq!(done(&mut reader), [("db".to_owned(), 0, 0)]);
        let path = |file: &str| format!("sys/fs/cgroup/blkio/db/blkio.throttle.{file}");
        write_file(tree.path(), &path("io_serviced"), b"7:0 Read 8\n7:0 Write 2\nTotal 10\n").unwrap();
        write_file(tree.path(), &path("io_service_bytes"), b"7:0 Read 8192\n7:0 Write 512\nTotal 8704\n")
            .unwrap();
        reader.read(DEVICE).unwrap();
        let (_, cgroup) = reader.cgroups().next().unwrap();
        let counters = IoCounters { reads: 7, writes: 2, read: Bytes::new(4096), written: Bytes::new(512) };
        assert_eq!(cgroup.done(), counters);
    }

    #[test]
    fn cgroups_that_come_and_go_and_counters_that_begin_anew() {
        let tree = tempfile::tempdir().unwrap();
        let mut reader = reader(&tree, V2, &["*"]);
        done(&mut reader);
        assert!(!reader.look().unwrap());
        let file = "sys/fs/cgroup/db/io.stat";
        write_file(tree.path(), file, b"7:0 rbytes=0 wbytes=0 rios=0 wios=0\n").unwrap();
        assert_eq!(done(&mut reader)[1], ("db".to_owned(), 0, 0), "it went back: it is another one");
        write_file(tree.path(), file, b"7:0 rbytes=512 wbytes=0 rios=1 wios=0\n").unwrap();
        assert_eq!(done(&mut reader)[1], ("db".to_owned(), 1, 512));
        fs::remove_dir_all(tree.path().join("sys/fs/cgroup/db")).unwrap();
        fs::create_dir(tree.path().join("sys/fs/cgroup/new")).unwrap();
        assert_eq!(done(&mut reader).len(), 3, "until the next look");
        assert!(reader.look().unwrap());
        let names: Vec<_> = reader.cgroups().map(|(name, _)| name.to_string()).collect();
        assert_eq!(names, ["batch", "free", "new"]);
    }

    #[test]
    fn what_was_done_when_one_could_not_be_read_is_in_the_next_reading() {
        let tree = tempfile::tempdir().unwrap();
        let mut reader = reader(&tree, V2, &["batch/*", "db"]);
        done(&mut reader);
        let counted = |cgroup: &str, text: &str| {
            fs::write(tree.path().join(format!("sys/fs/cgroup/{cgroup}/io.stat")), text).unwrap();
        };
        counted("batch/nightly", "7:0 rbytes=4096 wbytes=0 rios=1 wios=0\n");
        counted("db", "7:0 rbytes=many\n");
        reader.read(DEVICE).unwrap_err();
        counted("db", "7:0 rbytes=8192 wbytes=0 rios=2 wios=0\n");
        let expected = [("batch/nightly".to_owned(), 1, 4096), ("db".to_owned(), 1, 4096)];
        assert_eq!(done(&mut reader), expected);
    }

    #[test]
    fn a_look_that_fails_forgets_nobody() {
        let tree = tempfile::tempdir().unwrap();
        let mut reader = reader(&tree, V2, &["batch/*", "db"]);
        done(&mut reader);
        let directory = |name: &str| tree.path().join("sys/fs/cgroup").join(name);
        fs::rename(directory("batch"), directory("away")).unwrap();
        symlink("batch", directory("batch")).unwrap();
        reader.look().unwrap_err();
        fs::remove_file(directory("batch")).unwrap();
        fs::rename(directory("away"), directory("batch")).unwrap();
        fs::write(directory("db/io.stat"), "7:0 rbytes=20480 wbytes=0 rios=5 wios=0\n").unwrap();
        let expected = [("batch/nightly".to_owned(), 0, 0), ("db".to_owned(), 4, 16_384)];
        assert_eq!(done(&mut reader), expected);
        assert!(!reader.look().unwrap());
    }

    #[test]
    fn of_cgroups_in_each_other_the_outermost_counts_by_v2() {
        let tree = tempfile::tempdir().unwrap();
        let reader = reader(&tree, V2, &["batch/nightly", "batch", "*/nightly"]);
        let names: Vec<_> = reader.cgroups().map(|(name, _)| name.to_string()).collect();
        assert_eq!(names, ["batch"]);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let tree = tempfile::tempdir().unwrap();
        let mut reader = reader(&tree, V2, &["db"]);
        write_file(tree.path(), "sys/fs/cgroup/db/io.stat", b"7:0 rios=1\n7:1 rios=many\n").unwrap();
        let error = reader.read(DEVICE).unwrap_err().to_string();
        assert!(error.contains("sys/fs/cgroup/db/io.stat:2: expected a number"), "{error}");
        let nothing = tempfile::tempdir().unwrap();
        let error = CgroupReader::new(&SystemRoot::at(nothing.path()), Vec::new()).unwrap_err().to_string();
        assert!(error.contains("cgroup v2 is not mounted, and no blkio"), "{error}");
    }
}
