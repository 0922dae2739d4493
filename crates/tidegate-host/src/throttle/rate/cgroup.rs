//! Our cgroup, and the hierarchy that it is in.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::ThrottleError;
use super::limit::WriteLimit;
use super::threads::Threads;
use crate::device::DeviceNumber;
use crate::root::Root;
use crate::sense::mounts::Mounts;

/// What ours is called: the first where its parent gave its children the controller `io` before, and the second where we
/// had it do so, which is to be undone. So that is known after a SIGKILL, too.
const NAMES: [&str; 2] = ["tidegate", "tidegate.io"];
const ENABLED_BY_US: &str = NAMES[1];

/// What [`Hierarchy::try_out`] makes, and removes.
const TRIAL: &str = "tidegate.trial";

const CONTROLLER: &str = "io";
const CONTROLLERS: &str = "cgroup.controllers";
const SUBTREE: &str = "cgroup.subtree_control";
const PROCESSES: &str = "cgroup.procs";
const LIMITS: &str = "io.max";

/// How long threads that are ending may keep a cgroup from being removed.
const ENDING: Duration = Duration::from_millis(500);

/// A mounted cgroup v2 whose controllers include `io`.
#[derive(Debug)]
pub(super) struct Hierarchy {
    /// Its root cgroup.
    path: PathBuf,
    /// Kept open for its lock.
    directory: File,
    threads: Threads,
}

impl Hierarchy {
    /// Where it is.
    ///
    /// # Errors
    /// When there is none, or without `io`.
    pub(super) fn find(root: &Root) -> io::Result<Self> {
        let mounts = Mounts::table(root).map_err(io::Error::other)?;
        let mount = mounts
            .of_kind("cgroup2")
            .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "cgroup v2 is not mounted"))?;
        let path = root.path(&mount.point);
        if !has_io(&path.join(CONTROLLERS))? {
            let why = format!("{} has no controller io", path.display());
            return Err(io::Error::new(io::ErrorKind::NotFound, why));
        }
        Ok(Self { directory: File::open(&path)?, threads: Threads::new(root.clone()), path })
    }

    /// Makes sure that this process may write here, and that no other agent does, in whichever network namespace that is: LIO's
    /// threads and their devices are the whole machine's.
    pub(super) fn claim(&self) -> io::Result<()> {
        for file in [SUBTREE, PROCESSES] {
            let path = self.path.join(file);
            let opened = OpenOptions::new().write(true).open(&path);
            opened.map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
        }
        flock(&self.directory, FlockOperation::NonBlockingLockExclusive).map_err(|_| {
            let why = "another agent of this machine limits what is written, in another network namespace";
            io::Error::new(io::ErrorKind::ResourceBusy, why)
        })
    }

    /// Whether somebody alive has [claimed](Self::claim) it.
    fn is_claimed(&self) -> bool {
        flock(&self.directory, FlockOperation::NonBlockingLockExclusive).is_err()
    }

    /// Makes our cgroup, without any limit, and nobody is in it.
    pub(super) fn make(&self) -> Result<Cgroup, ThrottleError> {
        let enabled = has_io(&self.path.join(SUBTREE)).map_err(|source| refused(&self.path, source))?;
        let cgroup = Cgroup { path: self.path.join(if enabled { NAMES[0] } else { ENABLED_BY_US }) };
        fs::create_dir(&cgroup.path).map_err(|source| refused(&cgroup.path, source))?;
        // Only now: whoever finds the cgroup knows what to undo.
        if !enabled {
            put(&self.path.join(SUBTREE), "+io").map_err(|source| refused(&self.path, source))?;
        }
        Ok(cgroup)
    }

    /// Moves those of LIO's threads into our cgroup that are not in any.
    pub(super) fn gather(&self, cgroup: &Cgroup) -> Result<(), ThrottleError> {
        let processes = cgroup.path.join(PROCESSES);
        let failed = |source| refused(&processes, source);
        let here = numbers(&processes).map_err(failed)?;
        for thread in self.threads.at_the_root(&here).map_err(failed)? {
            move_to(&processes, thread).map_err(failed)?;
        }
        Ok(())
    }

    /// Removes our cgroup, whoever made it; first its limits, so that what waits leaves at once. Whether there was one.
    ///
    /// # Errors
    /// When the kernel refuses, or something else has its name.
    pub(super) fn clear(&self) -> io::Result<bool> {
        let mut found = false;
        for name in NAMES {
            let path = self.path.join(name);
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
                self.disable()?;
            }
            found = true;
        }
        Ok(found)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let limits = path.join(LIMITS);
        for (device, _) in parse(&fs::read_to_string(&limits).unwrap_or_default()) {
            or_gone(put(&limits, &WriteLimit::none(device)))?;
        }
        let deadline = Instant::now() + ENDING;
        loop {
            for thread in numbers(&path.join(PROCESSES))? {
                move_to(&self.path.join(PROCESSES), thread)?;
            }
            match fs::remove_dir(path) {
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy && Instant::now() < deadline => {
                    thread::sleep(Duration::from_millis(10));
                }
                other => return other,
            }
        }
    }

    /// Somebody in a cgroup who is not of LIO's threads.
    fn stranger_in(&self, path: &Path) -> io::Result<Option<u32>> {
        let here = numbers(&path.join(PROCESSES))?;
        // One that ends meanwhile has lost its name, and leaves by itself.
        Ok(here.into_iter().find(|id| !self.threads.is_one(*id) && self.threads.is_there(*id)))
    }

    /// Whether limits can be set in a child of the root.
    pub(super) fn try_out(&self) -> io::Result<()> {
        let trial = self.path.join(TRIAL);
        let enabled = has_io(&self.path.join(SUBTREE))?;
        match fs::create_dir(&trial) {
            // Somebody was ended while trying.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => made?,
        }
        let offered = if enabled { Ok(()) } else { put(&self.path.join(SUBTREE), "+io") };
        let works = offered.and_then(|()| fs::metadata(trial.join(LIMITS)).map(drop));
        fs::remove_dir(&trial)?;
        if !enabled {
            self.disable()?;
        }
        works
    }

    /// Takes the controller from the root's children, unless somebody else uses it by now.
    fn disable(&self) -> io::Result<()> {
        if self.is_used()? {
            return Ok(());
        }
        match put(&self.path.join(SUBTREE), "-io") {
            // A child hands it on to its own.
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => Ok(()),
            other => other,
        }
    }

    /// Whether a child of the root has a limit or a weight of its own.
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

/// Ours.
#[derive(Debug)]
pub(super) struct Cgroup {
    path: PathBuf,
}

impl Cgroup {
    /// Limits a device; whether that is there.
    pub(super) fn limit(&self, device: DeviceNumber, limit: WriteLimit) -> Result<bool, ThrottleError> {
        let path = self.limits_file();
        or_gone(put(&path, &limit.line(device))).map_err(|source| refused(&path, source))
    }

    /// Lets go of a device.
    pub(super) fn release(&self, device: DeviceNumber) -> Result<(), ThrottleError> {
        let path = self.limits_file();
        or_gone(put(&path, &WriteLimit::none(device))).map(drop).map_err(|source| refused(&path, source))
    }

    /// What the kernel has in force.
    pub(super) fn limits(&self) -> Result<BTreeMap<DeviceNumber, WriteLimit>, ThrottleError> {
        let path = self.limits_file();
        let text = fs::read_to_string(&path).map_err(|source| refused(&path, source))?;
        Ok(parse(&text).collect())
    }

    pub(super) fn limits_file(&self) -> PathBuf {
        self.path.join(LIMITS)
    }
}

/// Removes what an agent left, or has, on this machine. Whether there was anything. An agent that has it and is alive, in another
/// network namespace, puts it back; where this process may not touch what is such an agent's, that is left alone.
///
/// # Errors
/// When the kernel refuses.
pub(in super::super) fn undo(root: &Root) -> io::Result<bool> {
    let hierarchy = match Hierarchy::find(root) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        found => found?,
    };
    match hierarchy.clear() {
        // It was never there: `make` would have said so.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(_) if hierarchy.is_claimed() => Ok(false),
        done => done,
    }
}

fn refused(path: &Path, source: io::Error) -> ThrottleError {
    ThrottleError::Cgroup { path: path.to_owned(), source }
}

/// Writes a line to a file of the kernel's, at once.
fn put(path: &Path, line: &str) -> io::Result<()> {
    OpenOptions::new().write(true).open(path)?.write_all(line.as_bytes())
}

/// Whether the device that a line is about was there.
fn or_gone(done: io::Result<()>) -> io::Result<bool> {
    match done {
        Ok(()) => Ok(true),
        Err(error) if error.raw_os_error() == Some(Errno::NODEV.raw_os_error()) => Ok(false),
        Err(error) => Err(error),
    }
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

fn has_io(path: &Path) -> io::Result<bool> {
    let text = fs::read_to_string(path)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
    Ok(text.split_whitespace().any(|word| word == CONTROLLER))
}

fn parse(text: &str) -> impl Iterator<Item = (DeviceNumber, WriteLimit)> {
    text.lines().filter_map(WriteLimit::parse)
}
