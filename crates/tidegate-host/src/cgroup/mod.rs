//! Control groups as Linux accounts for their I/O and limits it: cgroup v2's controller `io`, or v1's `blkio`
//! (Documentation/admin-guide/cgroup-v2.rst, "IO Interface Files"; cgroup-v1/blkio-controller.rst,
//! "Throttling/Upper limit policy").
//!
//! | | v2 | v1 |
//! |---|---|---|
//! | what was done | `io.stat` | `blkio.throttle.io_serviced`, `…io_service_bytes` |
//! | what may be done | `io.max` | `blkio.throttle.{read,write}_{bps,iops}_device` |
//! | of a cgroup with cgroups in it | counts and limits all of them together | of itself alone |
//!
//! Both count what enters a device, bios, which the device may merge or split.

mod claim;
mod counters;
mod escaped;
mod limit;
mod names;
mod pattern;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::device::DeviceNumber;
use crate::root::{ReadError, SystemRoot};
use crate::sense::mounts::MountTable;

pub use crate::wildcard::looks_like;
pub(crate) use claim::CgroupClaim;
pub use counters::IoCounters;
pub(crate) use escaped::path_text;
pub use limit::IoLimit;
pub(crate) use limit::LimitKey;
pub use names::{NameKind, NamedCgroup};
pub use pattern::{CgroupPattern, CgroupPatternError};

/// The most cgroups that are looked for: a pattern such as `*/*` may mean more than one wants to read ten
/// times a second.
pub const MOST_CGROUPS: usize = 4_096;

/// The longest path of a cgroup's directory that is looked at, in bytes. The system's longest is 4,095, and files in
/// the directory have names. A consumer's name, the path below the root, has at most 255.
const LONGEST_PATH: usize = 4_000;

const CONTROLLER: &str = "io";
pub(crate) const SUBTREE: &str = "cgroup.subtree_control";
pub(crate) const PROCESSES: &str = "cgroup.procs";
pub(crate) const LIMITS: &str = "io.max";
const CONTROLLERS: &str = "cgroup.controllers";
const STATISTICS: &str = "io.stat";
const V1_COUNTS: &str = "blkio.throttle.io_serviced";
const V1_BYTES: &str = "blkio.throttle.io_service_bytes";

/// The cgroup that [`CgroupTree::try_out`] makes, and removes.
const TRIAL: &str = "tidegate.trial";

/// The kernel's interface to cgroups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CgroupVersion {
    /// The controller `blkio`.
    V1,
    /// The controller `io` of the unified hierarchy.
    V2,
}

/// A mounted hierarchy of cgroups that accounts for I/O.
#[derive(Debug)]
pub struct CgroupTree {
    /// Its root cgroup.
    path: PathBuf,
    version: CgroupVersion,
    /// The machine, whose files tell names.
    root: SystemRoot,
}

impl CgroupTree {
    /// Finds the hierarchy: v2 if that has the controller `io`, otherwise v1. A controller is in one of them
    /// only.
    ///
    /// # Errors
    /// When there is neither.
    pub fn find(root: &SystemRoot) -> io::Result<Self> {
        let second = match Self::v2(root) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => error,
            other => return other,
        };
        let mounts = MountTable::table(root).map_err(io::Error::other)?;
        let of_v1 = mounts.all_of_kind("cgroup").map(|mount| root.path(&mount.point));
        // Which controllers a mount has is among its options, and seen by its files.
        match of_v1.into_iter().find(|path| path.join(V1_COUNTS).exists()) {
            Some(path) => Ok(Self { path, version: CgroupVersion::V1, root: root.clone() }),
            None => Err(io::Error::new(
                io::ErrorKind::NotFound,
                format!("{second}, and no blkio of cgroup v1 that throttles"),
            )),
        }
    }

    /// The same, of v2 only.
    ///
    /// # Errors
    /// When it is not mounted, or without `io`.
    pub fn v2(root: &SystemRoot) -> io::Result<Self> {
        let mounts = MountTable::table(root).map_err(io::Error::other)?;
        let mount = mounts
            .of_kind("cgroup2")
            .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "cgroup v2 is not mounted"))?;
        let path = root.path(&mount.point);
        if !has_io(&path.join(CONTROLLERS))? {
            let why = format!("{} has no controller io", path.display());
            return Err(io::Error::new(io::ErrorKind::NotFound, why));
        }
        Ok(Self { path, version: CgroupVersion::V2, root: root.clone() })
    }

    /// Its root cgroup's directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The directory of a cgroup with this path below the root, as [`paths`](Self::paths) has it.
    pub(crate) fn directory(&self, cgroup: &str) -> PathBuf {
        self.path.join(escaped::text_path(cgroup))
    }

    /// Returns the version of its interface.
    #[must_use]
    pub const fn version(&self) -> CgroupVersion {
        self.version
    }

    /// Makes sure that no other agent limits here, in whichever namespaces that is, as long as the claim lives:
    /// cgroups and devices are the whole machine's.
    ///
    /// # Errors
    /// When another one does.
    pub(crate) fn claim(&self) -> io::Result<CgroupClaim> {
        CgroupClaim::take(&self.path)
    }

    /// Returns true if a living process has [claimed](Self::claim) it, or if this user may not know.
    pub(crate) fn is_claimed(&self) -> bool {
        CgroupClaim::is_taken(&self.path)
    }

    /// Returns true if the root gives its children the controller. By v1 it always does.
    pub(crate) fn offers_io(&self) -> io::Result<bool> {
        match self.version {
            CgroupVersion::V1 => Ok(true),
            CgroupVersion::V2 => has_io(&self.path.join(SUBTREE)),
        }
    }

    /// The cgroups that are meant by patterns, as paths below the root, and of those that are in each other
    /// the outermost: it is limited with all that is in it. At most [`MOST_CGROUPS`].
    ///
    /// # Errors
    /// When a directory cannot be read.
    pub fn expand(&self, patterns: &[CgroupPattern]) -> Result<BTreeSet<String>, ReadError> {
        Ok(self.select(patterns)?.into_keys().collect())
    }

    /// The same, each with the name by which a pattern means it; `None` if only paths mean it.
    ///
    /// # Errors
    /// When a directory cannot be read.
    pub fn select(&self, patterns: &[CgroupPattern]) -> Result<BTreeMap<String, Option<String>>, ReadError> {
        let mut paths = BTreeSet::new();
        for pattern in patterns {
            pattern.expand(&self.path, &mut paths)?;
        }
        let mut found: BTreeMap<_, _> = paths.into_iter().map(|path| (path, None)).collect();
        if patterns.iter().any(CgroupPattern::is_by_name) {
            let named = self.named();
            patterns.iter().for_each(|pattern| pattern.select(&named, &mut found));
        }
        let inner = |name: &String| {
            let mut outer = name.as_str();
            while let Some((parent, _)) = outer.rsplit_once('/') {
                if found.contains_key(parent) {
                    return true;
                }
                outer = parent;
            }
            false
        };
        // By v1 each cgroup is by itself.
        let is_wanted = |path: &String| self.version == CgroupVersion::V1 || !inner(path);
        let wanted = found.iter().filter(|(path, _)| is_wanted(path)).take(MOST_CGROUPS);
        Ok(wanted.map(|(path, name)| (path.clone(), name.clone())).collect())
    }

    /// Cgroups of the second level, such as services and containers, and those of the first that have none,
    /// as far as they can be read.
    #[must_use]
    pub fn services(&self) -> BTreeSet<String> {
        let all = |pattern: &str| {
            let pattern: Option<CgroupPattern> = pattern.parse().ok();
            pattern.and_then(|pattern| self.expand(&[pattern]).ok()).unwrap_or_default()
        };
        let mut found = all("*/*");
        let slices: BTreeSet<String> =
            found.iter().filter_map(|name| Some(name.split_once('/')?.0.to_owned())).collect();
        found.extend(all("*").into_iter().filter(|name| !slices.contains(name)));
        found
    }

    /// The cgroups that have a name that people use, as far as they can be read.
    #[must_use]
    pub fn named(&self) -> Vec<NamedCgroup> {
        names::find(&self.root, &self.path).named
    }

    /// The cgroups of pods and containers whose names no file tells, as paths below the root.
    #[must_use]
    pub fn unnamed(&self) -> Vec<String> {
        names::find(&self.root, &self.path).unnamed
    }

    /// Every cgroup, as a path below the root, as far as directories can be read. Bytes of names that cannot be
    /// shown are escaped, in all paths.
    #[must_use]
    pub fn paths(&self) -> BTreeSet<String> {
        let (all, _) = self.all();
        let below = |path: &PathBuf| Some(path_text(path.strip_prefix(&self.path).ok()?));
        all.iter().filter_map(below).collect()
    }

    /// Every cgroup below the root, as directories, as far as these can be read; and the first that cannot.
    /// Cgroups with very long paths are passed over: no agent limits them, and the owner of a delegated cgroup may
    /// make them deeper than the system can name.
    pub(crate) fn all(&self) -> (Vec<PathBuf>, io::Result<()>) {
        let (mut all, mut failed) = (Vec::new(), Ok(()));
        let mut open = vec![self.path.clone()];
        while let Some(directory) = open.pop() {
            let entries = match fs::read_dir(&directory) {
                // Removed meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => {
                    let why = format!("{}: {error}", directory.display());
                    failed = failed.and(Err(io::Error::new(error.kind(), why)));
                    continue;
                }
                Ok(entries) => entries,
            };
            for entry in entries {
                let Ok(entry) = entry else { break };
                let is_meant = entry.path().as_os_str().len() <= LONGEST_PATH;
                if is_meant && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    open.push(entry.path());
                    all.push(entry.path());
                }
            }
        }
        (all, failed)
    }

    /// Returns the counters of a cgroup for each device, by the cgroup's path below the root. Returns `None`
    /// if the cgroup is not there or not accounted for.
    ///
    /// # Errors
    /// When a file cannot be read, or is not what the kernel's documentation says.
    pub fn counters(&self, cgroup: &str) -> Result<Option<BTreeMap<DeviceNumber, IoCounters>>, ReadError> {
        let text = |file: &str| {
            let path = self.directory(cgroup).join(file);
            match fs::read_to_string(&path) {
                Ok(text) => Ok(Some((path, text))),
                Err(error) if is_gone(&error) => Ok(None),
                Err(source) => Err(ReadError::Unreadable { path, source }),
            }
        };
        let wrong = |path: PathBuf| move |(line, problem)| ReadError::Malformed { path, line, problem };
        match self.version {
            CgroupVersion::V2 => {
                let Some((path, text)) = text(STATISTICS)? else { return Ok(None) };
                counters::of_v2(&text).map(Some).map_err(wrong(path))
            }
            CgroupVersion::V1 => {
                let (Some((counts_path, counts)), Some((bytes_path, bytes))) =
                    (text(V1_COUNTS)?, text(V1_BYTES)?)
                else {
                    return Ok(None);
                };
                let mut found = counters::counts_of_v1(&counts).map_err(wrong(counts_path))?;
                counters::bytes_of_v1(&bytes, &mut found).map_err(wrong(bytes_path))?;
                Ok(Some(found))
            }
        }
    }

    /// The limits that a cgroup, by its directory, has; devices without one are left out. `None` if it is not
    /// there, or cannot be limited.
    ///
    /// # Errors
    /// The kernel's answer, with the file.
    pub(crate) fn limits(&self, cgroup: &Path) -> Result<Option<BTreeMap<DeviceNumber, IoLimit>>, ReadError> {
        let text = |file: &str| {
            let path = cgroup.join(file);
            match fs::read_to_string(&path) {
                Ok(text) => Ok(Some(text)),
                Err(error) if is_gone(&error) => Ok(None),
                Err(source) => Err(ReadError::Unreadable { path, source }),
            }
        };
        match self.version {
            CgroupVersion::V2 => {
                Ok(text(LIMITS)?.map(|text| text.lines().filter_map(IoLimit::parse).collect()))
            }
            CgroupVersion::V1 => {
                let mut limits = BTreeMap::<DeviceNumber, IoLimit>::new();
                for key in LimitKey::ALL {
                    let Some(text) = text(key.file_of_v1())? else { return Ok(None) };
                    for (device, value) in text.lines().filter_map(limit::parse_v1) {
                        limits.entry(device).or_default().set(key, value);
                    }
                }
                Ok(Some(limits))
            }
        }
    }

    /// Gives a cgroup, by its directory, a limit of a device in place of what it had. Whether the device, and
    /// the cgroup, are there.
    ///
    /// # Errors
    /// The kernel's answer, with the file.
    pub(crate) fn limit(
        &self,
        cgroup: &Path,
        device: DeviceNumber,
        limit: IoLimit,
    ) -> Result<bool, ReadError> {
        let write = |file: &str, line: &str| {
            let path = cgroup.join(file);
            match put(&path, line) {
                Ok(()) => Ok(true),
                Err(error) if is_gone(&error) => Ok(false),
                Err(source) => Err(ReadError::Unreadable { path, source }),
            }
        };
        match self.version {
            CgroupVersion::V2 => write(LIMITS, &limit.line(device)),
            CgroupVersion::V1 => {
                let mut there = true;
                for key in LimitKey::ALL {
                    // What is not limited is zero there.
                    let line = format!("{device} {}", limit.get(key).unwrap_or(0));
                    there &= write(key.file_of_v1(), &line)?;
                }
                Ok(there)
            }
        }
    }

    /// Has the kernel count what cgroups do to a device, if it begins to only when the device is first
    /// limited (v1, seen on 6.18): a limit that has no effect, taken back at once. Others' limits are not
    /// touched: it is done to a cgroup that has none.
    ///
    /// # Errors
    /// The kernel's answer.
    pub(crate) fn count(&self, device: DeviceNumber) -> Result<(), ReadError> {
        if self.version == CgroupVersion::V2 {
            return Ok(());
        }
        let trial = self.path.join(TRIAL);
        let unfelt = IoLimit::NONE.reads(tidegate_units::Iops::new(f64::from(u32::MAX)));
        self.with_trial(|| {
            let limited = self.limit(&trial, device, unfelt);
            self.limit(&trial, device, IoLimit::NONE).map_err(io::Error::other)?;
            // Another program may have tried at the same time, and removed it.
            if limited.map_err(io::Error::other)? { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
        })
        .map_err(|source| ReadError::Unreadable { path: trial.clone(), source })
    }

    /// Checks that limits can be set in a child of the root, and that the child can be marked as ours.
    pub(crate) fn try_out(&self, mark: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<()> {
        let offered = self.offers_io()?;
        let trial = self.path.join(TRIAL);
        self.with_trial(|| {
            if !offered {
                put(&self.path.join(SUBTREE), "+io")?;
            }
            let file = match self.version {
                CgroupVersion::V1 => LimitKey::ALL[0].file_of_v1(),
                CgroupVersion::V2 => LIMITS,
            };
            let works = fs::metadata(trial.join(file)).map(drop).and_then(|()| mark(&trial));
            if offered { works } else { works.and(self.withdraw_io()) }
        })
    }

    /// Does something while the trial cgroup is there.
    fn with_trial(&self, work: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let trial = self.path.join(TRIAL);
        match fs::create_dir(&trial) {
            // An earlier attempt was killed.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => made?,
        }
        let done = work();
        match fs::remove_dir(&trial) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => done,
            removed => done.and(removed),
        }
    }

    /// Takes the controller from the root's children, unless another program uses it by now.
    pub(crate) fn withdraw_io(&self) -> io::Result<()> {
        if self.is_used()? {
            return Ok(());
        }
        match put(&self.path.join(SUBTREE), "-io") {
            // A child hands it on to its own.
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => Ok(()),
            other => other,
        }
    }

    /// Returns true if a child of the root has a limit or a weight of its own.
    fn is_used(&self) -> io::Result<bool> {
        for entry in fs::read_dir(&self.path)? {
            let child = entry?.path();
            let text = |file: &str| fs::read_to_string(child.join(file)).unwrap_or_default();
            let is_free = [LIMITS, "io.latency"].iter().all(|file| text(file).is_empty());
            if !is_free || !matches!(text("io.weight").trim(), "" | "default 100") {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Writes a line to a file of the kernel's, at once.
pub(crate) fn put(path: &Path, line: &str) -> io::Result<()> {
    OpenOptions::new().write(true).open(path)?.write_all(line.as_bytes())
}

/// Returns true if the error means that a cgroup, or the device that a line is about, is not there.
pub(crate) fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(Errno::NODEV.raw_os_error())
}

fn has_io(path: &Path) -> io::Result<bool> {
    let text = fs::read_to_string(path)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
    Ok(text.split_whitespace().any(|word| word == CONTROLLER))
}
