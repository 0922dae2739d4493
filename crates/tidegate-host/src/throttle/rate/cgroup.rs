//! Our cgroup, and the threads in it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::ThrottleError;
use super::limit::WriteLimit;
use super::threads::KernelThreads;
use crate::cgroup::{CgroupClaim, CgroupTree, IoLimit, LIMITS, PROCESSES, SUBTREE, put};
use crate::device::DeviceNumber;
use crate::root::SystemRoot;

/// The names of our cgroup. The first is used if its parent gave its children the controller `io` before. The
/// second is used if we had it do so, which has to be undone, even after a SIGKILL.
const NAMES: [&str; 2] = ["tidegate", "tidegate.io"];
const ENABLED_BY_US: &str = NAMES[1];

/// The time for which threads that are ending may keep a cgroup from being removed.
const ENDING: Duration = Duration::from_millis(500);

/// A mounted cgroup v2 whose controllers include `io`, and those whom it can be for.
#[derive(Debug)]
pub(super) struct IoHierarchy {
    tree: CgroupTree,
    threads: KernelThreads,
}

impl IoHierarchy {
    /// Finds the hierarchy.
    ///
    /// # Errors
    /// When there is none, or without `io`.
    pub(super) fn find(root: &SystemRoot) -> io::Result<Self> {
        Ok(Self { tree: CgroupTree::v2(root)?, threads: KernelThreads::new(root.clone()) })
    }

    /// Makes sure that this process may write here, and that no other agent does, in whichever network
    /// namespace that is: LIO's threads and their devices are the whole machine's.
    pub(super) fn claim(&self) -> io::Result<CgroupClaim> {
        for file in [SUBTREE, PROCESSES] {
            let path = self.tree.path().join(file);
            let opened = OpenOptions::new().write(true).open(&path);
            opened.map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
        }
        self.tree.claim()
    }

    /// Makes our cgroup, without any limit and without threads.
    pub(super) fn make(&self) -> Result<OwnCgroup, ThrottleError> {
        let root = self.tree.path();
        let offered = self.tree.offers_io().map_err(|source| refused(root, source))?;
        let path = root.join(if offered { NAMES[0] } else { ENABLED_BY_US });
        fs::create_dir(&path).map_err(|source| refused(&path, source))?;
        // Only now: a program that finds the cgroup knows what to undo.
        if !offered {
            put(&root.join(SUBTREE), "+io").map_err(|source| refused(root, source))?;
        }
        Ok(OwnCgroup { path })
    }

    /// Moves those of LIO's threads into our cgroup that are not in any.
    pub(super) fn gather(&self, cgroup: &OwnCgroup) -> Result<(), ThrottleError> {
        let processes = cgroup.path.join(PROCESSES);
        let failed = |source| refused(&processes, source);
        let here = numbers(&processes).map_err(failed)?;
        for thread in self.threads.at_the_root(&here).map_err(failed)? {
            move_to(&processes, thread).map_err(failed)?;
        }
        Ok(())
    }

    /// Removes our cgroup, whichever process made it; first its limits, so that waiting requests leave at
    /// once. Returns true if there was one.
    ///
    /// # Errors
    /// When the kernel refuses, or something else has its name.
    pub(super) fn clear(&self) -> io::Result<bool> {
        let mut found = false;
        for name in NAMES {
            let path = self.tree.path().join(name);
            if !path.is_dir() {
                continue;
            }
            if let Some(stranger) = self.stranger_in(&path)? {
                let why = format!(
                    "the cgroup {} is not Tidegate's, since process {stranger} is in it: rename it",
                    path.display()
                );
                return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
            }
            self.remove(&path)
                .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
            if name == ENABLED_BY_US {
                self.tree.withdraw_io()?;
            }
            found = true;
        }
        Ok(found)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        for device in self.tree.limits(path).map_err(io::Error::other)?.unwrap_or_default().into_keys() {
            self.tree.limit(path, device, IoLimit::NONE).map_err(io::Error::other)?;
        }
        let deadline = Instant::now() + ENDING;
        loop {
            for thread in numbers(&path.join(PROCESSES))? {
                move_to(&self.tree.path().join(PROCESSES), thread)?;
            }
            match fs::remove_dir(path) {
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy && Instant::now() < deadline => {
                    thread::sleep(Duration::from_millis(10));
                }
                other => return other,
            }
        }
    }

    /// A process in a cgroup that is not one of LIO's threads.
    fn stranger_in(&self, path: &Path) -> io::Result<Option<u32>> {
        let here = numbers(&path.join(PROCESSES))?;
        // One that ends meanwhile has lost its name, and leaves by itself.
        Ok(here.into_iter().find(|id| !self.threads.is_one(*id) && self.threads.is_there(*id)))
    }

    /// Limits a device in our cgroup; whether that is there.
    pub(super) fn limit(
        &self,
        cgroup: &OwnCgroup,
        device: DeviceNumber,
        limit: WriteLimit,
    ) -> Result<bool, ThrottleError> {
        Ok(self.tree.limit(&cgroup.path, device, limit.into())?)
    }

    /// Releases a device.
    pub(super) fn release(&self, cgroup: &OwnCgroup, device: DeviceNumber) -> Result<(), ThrottleError> {
        self.tree.limit(&cgroup.path, device, IoLimit::NONE)?;
        Ok(())
    }

    /// Returns the limits in force, as the kernel reports them.
    pub(super) fn limits(
        &self,
        cgroup: &OwnCgroup,
    ) -> Result<BTreeMap<DeviceNumber, WriteLimit>, ThrottleError> {
        let limits = self.tree.limits(&cgroup.path)?.ok_or_else(|| {
            // Ours is gone, or can limit no more.
            refused(&cgroup.limits_file(), io::ErrorKind::NotFound.into())
        })?;
        Ok(limits.into_iter().map(|(device, limit)| (device, WriteLimit::of(limit))).collect())
    }

    /// Checks that limits can be set in a child of the root.
    pub(super) fn try_out(&self) -> io::Result<()> {
        self.tree.try_out(|_| Ok(()))
    }
}

/// Ours.
#[derive(Debug)]
pub(super) struct OwnCgroup {
    path: PathBuf,
}

impl OwnCgroup {
    pub(super) fn limits_file(&self) -> PathBuf {
        self.path.join(LIMITS)
    }
}

/// Removes what an agent left, or has, on this machine. Whether there was anything. An agent that has it and
/// is alive, in another network namespace, puts it back; where this process may not touch what such an agent has
/// `claimed`, that is left alone.
///
/// # Errors
/// When the kernel refuses.
pub(in super::super) fn undo(root: &SystemRoot, claimed: bool) -> io::Result<bool> {
    let hierarchy = match IoHierarchy::find(root) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        found => found?,
    };
    match hierarchy.clear() {
        // It was never there: `make` would have said so.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(_) if claimed => Ok(false),
        done => done,
    }
}

/// Returns true if an agent limits writes on this machine.
///
/// # Errors
/// When the kernel does not tell.
pub(in super::super) fn is_limited(root: &SystemRoot) -> io::Result<bool> {
    let tree = match CgroupTree::v2(root) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        found => found?,
    };
    let limits = |name: &&str| tree.limits(&tree.path().join(name)).map_err(io::Error::other);
    let mut has_limits = false;
    for name in &NAMES {
        has_limits |= limits(name)?.is_some_and(|limits| !limits.is_empty());
    }
    Ok(has_limits)
}

fn refused(path: &Path, source: io::Error) -> ThrottleError {
    ThrottleError::Cgroup { path: path.to_owned(), source }
}

/// One that has ended needs no cgroup.
fn move_to(processes: &Path, thread: u32) -> io::Result<()> {
    match put(processes, &thread.to_string()) {
        Err(error) if error.raw_os_error() == Some(Errno::SRCH.raw_os_error()) => Ok(()),
        other => other,
    }
}

fn numbers(path: &Path) -> io::Result<BTreeSet<u32>> {
    Ok(fs::read_to_string(path)?.lines().filter_map(|line| line.trim().parse().ok()).collect())
}
