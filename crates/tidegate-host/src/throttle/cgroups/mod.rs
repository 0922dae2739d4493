//! The throttle `cgroup`: a limit of what a control group may do to a device per second, by `io.max` of
//! cgroup v2 or the files `blkio.throttle.*_device` of v1.
//!
//! Requests of the cgroup's processes then wait in the block layer, in front of the device; other requests do
//! not. The cgroups belong to others: an administrator, or a service's unit, set their limits. The limit in
//! force is never more than that, and after a release it is what it was. A mark on the cgroup records it
//! (`mark`), so that it is known after a SIGKILL, too.

mod mark;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::geteuid;
use tidegate_units::{ConsumerName, Instant};

use self::mark::LimitMark;
use super::capability::{CapabilityNeed, KernelCapability};
use super::lowering::{self, LimitLowering, LoweringSteps};
use super::{ThrottleError, ThrottleMethod, ThrottleRequest};
use crate::cgroup::{CgroupClaim, CgroupTree, CgroupVersion, IoLimit, LIMITS, path_text};
use crate::device::DeviceNumber;
use crate::root::SystemRoot;

/// Everything is compared with the kernel this often.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// A cgroup, by its path below the root of the hierarchy, and a device.
pub type CgroupDevice = (ConsumerName, DeviceNumber);

/// A limit that is being lowered.
type LoweredLimit = (CgroupDevice, LimitMark, LoweringSteps);

/// Limits what cgroups do to devices. While nothing is throttled, no limit is touched.
#[derive(Debug)]
pub struct Cgroups {
    root: SystemRoot,
    tree: CgroupTree,
    held: BTreeMap<CgroupDevice, LimitMark>,
    /// Those of them of which it is not known whether the limit is in force: setting it, or reading it back,
    /// failed.
    unsure: BTreeSet<CgroupDevice>,
    /// The numbers of the directories of cgroups that have limits.
    inodes: BTreeMap<ConsumerName, u64>,
    /// The numbers of the directories that had limits when they were renamed, which v1 allows, or removed.
    strays: BTreeSet<u64>,
    /// The devices that the kernel was told to count for.
    counted: BTreeSet<DeviceNumber>,
    looked: Instant,
    lowering: LimitLowering,
    /// `None` in tests, several of which limit at the same time.
    _claim: Option<CgroupClaim>,
}

impl Cgroups {
    /// Claims the cgroups of this machine: as long as this lives, no other can be made. Undoes limits that
    /// an agent left which died.
    ///
    /// # Errors
    /// When this machine has no cgroups that can limit, another agent has them, or a limit cannot be undone.
    pub fn new(root: SystemRoot) -> io::Result<Self> {
        let tree = CgroupTree::find(&root)?;
        let claim = tree.claim()?;
        undo(&root)?;
        Ok(Self { _claim: Some(claim), ..Self::of(root, tree) })
    }

    fn of(root: SystemRoot, tree: CgroupTree) -> Self {
        let (held, unsure, counted) = (BTreeMap::new(), BTreeSet::new(), BTreeSet::new());
        let lowering = LimitLowering::new(&root);
        Self {
            root,
            tree,
            held,
            unsure,
            inodes: BTreeMap::new(),
            strays: BTreeSet::new(),
            counted,
            looked: Instant::ZERO,
            lowering,
            _claim: None,
        }
    }

    /// Puts the wanted limits into force, for all cgroups and devices; one that is not named is released. A
    /// limit in force costs a look each second. Every change is read back. On Linux 6.1 to 6.5, limits are
    /// lowered by steps, which take at least a tenth of a second.
    ///
    /// # Errors
    /// The first thing that could not be done; everything else was. The next call tries it again.
    pub fn apply(&mut self, now: Instant, wanted: &[ThrottleRequest]) -> Result<(), ThrottleError> {
        let mut wanted = lowest(wanted);
        let mut failed = Ok(());
        let mut note = |done: Result<(), ThrottleError>| {
            if failed.is_ok() {
                failed = done;
            }
        };
        if now.saturating_since(self.looked) >= LOOK_AGAIN {
            self.looked = now;
            note(self.look());
            note(self.release_strays());
        }
        note(self.count(wanted.keys().map(|(_, device)| *device).collect()));
        wanted.retain(|_, limit| *limit != IoLimit::NONE);
        let released: Vec<_> = self.held.keys().filter(|key| !wanted.contains_key(*key)).cloned().collect();
        for key in released {
            note(self.release(&key));
        }
        let mut lowered = Vec::new();
        for (key, limit) in wanted {
            let mark = self.hold(&key, limit);
            note(mark.and_then(|mark| mark.map_or(Ok(()), |mark| self.begin(key, mark, &mut lowered))));
        }
        note(self.finish(lowered));
        failed
    }

    /// Returns true if any cgroup that should be throttled for a resource is throttled, or if none should be.
    pub(super) fn holds(&self, wanted: &ThrottleRequest) -> bool {
        let to_be_held = || wanted.cgroups.iter().filter(|(_, limit)| **limit != IoLimit::NONE);
        let is_held = |key| self.held.contains_key(key) && !self.unsure.contains(key);
        to_be_held().next().is_none() || to_be_held().any(|(key, _)| is_held(key))
    }

    /// Returns the limits in force of the cgroups that are to be limited for a resource.
    pub(super) fn limits_in_force(&self, wanted: &ThrottleRequest) -> BTreeMap<CgroupDevice, IoLimit> {
        let known = wanted.cgroups.keys().filter(|key| !self.unsure.contains(*key));
        known.filter_map(|key| Some((key.clone(), self.held.get(key)?.in_force))).collect()
    }

    /// Returns true if a cgroup may be limited more than is wanted: its limit could not be changed, or is not
    /// known.
    pub(super) fn is_stuck(&self, wanted: &[ThrottleRequest]) -> bool {
        let wanted = lowest(wanted);
        self.held.iter().any(|(key, mark)| {
            let limit = wanted.get(key).copied().unwrap_or_default();
            self.unsure.contains(key) || !mark.in_force.is_about(mark.found.min(limit))
        })
    }

    /// Has the kernel count what is done to devices, once for each: one that went and came again is another
    /// one.
    fn count(&mut self, devices: BTreeSet<DeviceNumber>) -> Result<(), ThrottleError> {
        self.counted.retain(|device| devices.contains(device));
        let mut failed = Ok(());
        for device in devices {
            if !self.counted.contains(&device) {
                match self.tree.count(device) {
                    Ok(()) => drop(self.counted.insert(device)),
                    Err(error) => failed = failed.and(Err(error.into())),
                }
            }
        }
        failed
    }

    fn directory(&self, cgroup: &ConsumerName) -> PathBuf {
        self.tree.directory(cgroup.as_str())
    }

    /// Forgets a limit whose cgroup is not at its path any more: another one may be there.
    fn follow(&mut self, key: &CgroupDevice) {
        let Some(known) = self.inodes.get(&key.0).copied().filter(|_| self.held.contains_key(key)) else {
            return;
        };
        if inode(&self.directory(&key.0)) != Some(known) {
            self.forget(key);
            // By v2 a cgroup has no other name as long as it lives.
            if self.tree.version() == CgroupVersion::V1 {
                self.strays.insert(known);
            }
        }
    }

    /// Releases cgroups that were renamed while they had limits.
    fn release_strays(&mut self) -> Result<(), ThrottleError> {
        if self.strays.is_empty() {
            return Ok(());
        }
        let (directories, read) = self.tree.all();
        let strays = std::mem::take(&mut self.strays);
        let mut failed = read.map_err(|source| marking(self.tree.path(), source));
        for directory in directories {
            if !inode(&directory).is_some_and(|inode| strays.contains(&inode)) {
                continue;
            }
            // A pattern may mean it by its new name, too.
            let name = path_text(directory.strip_prefix(self.tree.path()).unwrap_or(&directory));
            if self.held.keys().any(|(cgroup, _)| cgroup.as_str() == name) {
                continue;
            }
            match undo_in(&self.tree, &directory) {
                Ok(_) => {
                    tracing::info!("{name}: renamed while it was limited; its limits are what they were");
                }
                Err(source) => failed = failed.and(Err(marking(&directory, source))),
            }
        }
        if failed.is_err() {
            self.strays.extend(strays);
        }
        failed
    }

    /// Returns what is to be put into force for a limit to hold, if it does not yet.
    fn hold(&mut self, key: &CgroupDevice, limit: IoLimit) -> Result<Option<LimitMark>, ThrottleError> {
        self.follow(key);
        let known = self.held.get(key).copied();
        let is_in_force = known.is_some_and(|mark| mark.in_force.is_about(mark.found.min(limit)));
        if is_in_force && !self.unsure.contains(key) {
            return Ok(None);
        }
        // Gone, or the kernel does not limit it: who asked for it is told by what the sensor says.
        let directory = self.directory(&key.0);
        let Some(limits) = self.tree.limits(&directory)? else {
            self.forget(key);
            return Ok(None);
        };
        let seen = limits.get(&key.1).copied().unwrap_or_default();
        let marked = || {
            let marks = mark::read(&self.tree, &directory).map_err(|source| marking(&directory, source))?;
            Ok::<_, ThrottleError>(marks.and_then(|marks| marks.get(&key.1).copied()))
        };
        // A cgroup with an unknown limit is asked, too: an agent may have died with it in force.
        Ok(Some(match known.map_or_else(marked, |mark| Ok(Some(mark)))? {
            // Ours would overwrite what another program has set since the last look.
            Some(mark) => found_anew(key, mark, seen, limit),
            None => LimitMark::over(seen, seen, limit),
        }))
    }

    /// Puts a limit into force, or takes the first of the steps in which the kernel counts right.
    fn begin(
        &mut self,
        key: CgroupDevice,
        goal: LimitMark,
        lowered: &mut Vec<LoweredLimit>,
    ) -> Result<(), ThrottleError> {
        let ours = self.held.get(&key).map(|ours| ours.in_force);
        let Some(mut steps) = self.lowering.steps(key.1, goal.before, ours, goal.in_force) else {
            return self.set(&key, goal);
        };
        self.set(&key, LimitMark { in_force: steps.reached(), ..goal })?;
        steps.written();
        lowered.push((key, goal, steps));
        Ok(())
    }

    /// Takes the other steps, each when it is time for it.
    fn finish(&mut self, mut lowered: Vec<LoweredLimit>) -> Result<(), ThrottleError> {
        let mut failed = Ok(());
        while lowering::wait_for_next(lowered.iter().map(|(_, _, steps)| steps)) {
            lowered.retain_mut(|(key, goal, steps)| {
                if !steps.is_due() {
                    return true;
                }
                match self.go_on(key, *goal, steps) {
                    Ok(goes_on) => goes_on,
                    Err(error) => {
                        if failed.is_ok() {
                            failed = Err(error);
                        }
                        false
                    }
                }
            });
        }
        failed
    }

    /// Takes the next step to a limit. Returns false after the last one, and if the cgroup is gone or another program
    /// has set a limit since the step before: the next call sees to that.
    fn go_on(
        &mut self,
        key: &CgroupDevice,
        goal: LimitMark,
        steps: &mut LoweringSteps,
    ) -> Result<bool, ThrottleError> {
        if !self.held.contains_key(key) {
            return Ok(false);
        }
        let before = steps.reached();
        let limits = self.tree.limits(&self.directory(&key.0))?.unwrap_or_default();
        if limits.get(&key.1) != Some(&before) {
            self.unsure.insert(key.clone());
            return Ok(false);
        }
        steps.advance();
        self.set(key, LimitMark { before, in_force: steps.reached(), ..goal })?;
        steps.written();
        Ok(!steps.is_over())
    }

    /// Puts a limit into force. One that cannot be set is taken back: a cgroup is limited as it should be, or
    /// not by us.
    fn set(&mut self, key: &CgroupDevice, mark: LimitMark) -> Result<(), ThrottleError> {
        self.put(key, mark).inspect_err(|error| {
            // What is read back wrongly may be in force all the same: without its mark it would stay for
            // ever.
            if !matches!(error, ThrottleError::ReadBack { .. }) {
                // If this fails, too, it is tried again with the next call.
                let _ = self.release(key);
            }
        })
    }

    /// First the mark, then the limit: a program that finds our limit then knows what to put in its place.
    fn put(&mut self, key: &CgroupDevice, mark: LimitMark) -> Result<(), ThrottleError> {
        let directory = self.directory(&key.0);
        let device = key.1;
        mark::write(&self.tree, &directory, device, Some(mark))
            .map_err(|source| marking(&directory, source))?;
        // Whatever comes of it, it is to be released some time.
        self.held.insert(key.clone(), mark);
        self.unsure.insert(key.clone());
        self.inodes.extend(inode(&directory).map(|inode| (key.0.clone(), inode)));
        if !self.tree.limit(&directory, device, mark.in_force)? {
            self.forget(key);
            if !directory.exists() || !self.is_there(device) {
                return Ok(());
            }
            mark::write(&self.tree, &directory, device, None)
                .map_err(|source| marking(&directory, source))?;
            let why = format!("{device} cannot be limited: it may be a partition; its whole disk can");
            let source = io::Error::new(io::ErrorKind::Unsupported, why);
            return Err(ThrottleError::Cgroup { path: directory, source });
        }
        let seen =
            self.tree.limits(&directory)?.unwrap_or_default().get(&device).copied().unwrap_or_default();
        // A device that goes takes its limit along.
        if seen != mark.in_force && self.is_there(device) && directory.exists() {
            return Err(ThrottleError::ReadBack { what: directory.display().to_string() });
        }
        self.unsure.remove(key);
        Ok(())
    }

    fn forget(&mut self, key: &CgroupDevice) {
        self.held.remove(key);
        self.unsure.remove(key);
        if !self.held.keys().any(|(cgroup, _)| *cgroup == key.0) {
            self.inodes.remove(&key.0);
        }
    }

    fn is_there(&self, device: DeviceNumber) -> bool {
        self.root.path(format!("/sys/dev/block/{device}")).exists()
    }

    fn release(&mut self, key: &CgroupDevice) -> Result<(), ThrottleError> {
        self.follow(key);
        let Some(mark) = self.held.get(key).copied() else { return Ok(()) };
        let directory = self.directory(&key.0);
        restore(&self.tree, &directory, key.1, |seen| mark.theirs(seen))?;
        mark::write(&self.tree, &directory, key.1, None).map_err(|source| marking(&directory, source))?;
        self.forget(key);
        Ok(())
    }

    /// Compares everything with the kernel. A limit that was undone, as by `tidegate release` or with a
    /// device that was made anew, is set again. A limit that another program set counts from now on.
    fn look(&mut self) -> Result<(), ThrottleError> {
        let held: Vec<_> = self.held.iter().map(|(key, mark)| (key.clone(), *mark)).collect();
        let (mut failed, mut lowered) = (Ok(()), Vec::new());
        for (key, mark) in held {
            let change = self.compare(&key, mark);
            let done =
                change.and_then(|mark| mark.map_or(Ok(()), |mark| self.begin(key, mark, &mut lowered)));
            failed = failed.and(done);
        }
        failed.and(self.finish(lowered))
    }

    /// Returns what is to be put into force for a limit to hold again.
    fn compare(&mut self, key: &CgroupDevice, mark: LimitMark) -> Result<Option<LimitMark>, ThrottleError> {
        self.follow(key);
        if !self.held.contains_key(key) {
            return Ok(None);
        }
        let directory = self.directory(&key.0);
        let Some(limits) = self.tree.limits(&directory)? else {
            self.forget(key);
            return Ok(None);
        };
        let seen = limits.get(&key.1).copied().unwrap_or_default();
        let is_marked = mark::read(&self.tree, &directory)
            .map_err(|source| marking(&directory, source))?
            .is_some_and(|marks| marks.contains_key(&key.1));
        if seen == mark.in_force && is_marked {
            return Ok(None);
        }
        Ok(Some(found_anew(key, mark, seen, mark.wanted)))
    }
}

/// Limits again, where another program may want another limit by now.
fn found_anew((cgroup, device): &CgroupDevice, mark: LimitMark, seen: IoLimit, wanted: IoLimit) -> LimitMark {
    let found = mark.theirs(seen);
    if found != mark.found {
        tracing::info!("{cgroup}: another program limits {device} to {} now", found.numbers());
    }
    LimitMark::over(seen, found, wanted)
}

/// For all resources together: of what is in two of them the lower.
fn lowest(wanted: &[ThrottleRequest]) -> BTreeMap<CgroupDevice, IoLimit> {
    let mut limits: BTreeMap<_, IoLimit> = BTreeMap::new();
    for (key, limit) in wanted.iter().flat_map(|hold| &hold.cgroups) {
        let lower = limits.get(key).map_or(*limit, |known| known.min(*limit));
        limits.insert(key.clone(), lower);
    }
    limits
}

fn marking(directory: &Path, source: io::Error) -> ThrottleError {
    ThrottleError::Cgroup { path: directory.to_owned(), source }
}

/// Puts back what was found, except where another program has set a limit meanwhile.
fn restore(
    tree: &CgroupTree,
    directory: &Path,
    device: DeviceNumber,
    theirs: impl Fn(IoLimit) -> IoLimit,
) -> Result<(), ThrottleError> {
    let Some(limits) = tree.limits(directory)? else { return Ok(()) };
    let seen = limits.get(&device).copied().unwrap_or_default();
    let theirs = theirs(seen);
    if theirs != seen {
        tree.limit(directory, device, theirs)?;
    }
    Ok(())
}

/// Returns true if a cgroup's directory or file is neither root's nor this user's.
fn is_delegated(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.uid() != 0 && found.uid() != geteuid().as_raw())
}

/// Returns true if a cgroup, by its directory, has limits of ours that its owner cannot lift himself, as far as the
/// kernel tells.
fn is_limited(tree: &CgroupTree, directory: &Path) -> bool {
    let Ok(Some(marks)) = mark::read(tree, directory) else { return false };
    let is_tighter = |limits: BTreeMap<DeviceNumber, IoLimit>| {
        let seen = |device| limits.get(device).copied().unwrap_or_default();
        marks.iter().any(|(device, mark)| mark.theirs(seen(device)).max(seen(device)) != seen(device))
    };
    let limits = tree.limits(directory);
    limits.map_or(true, |limits| limits.is_some_and(is_tighter)) && !is_delegated(&directory.join(LIMITS))
}

/// Puts back every limit that a cgroup of this machine had before an agent limited it. Returns the number of
/// marked cgroups, of delegated ones only those with limits. A living agent sets its limits again.
///
/// # Errors
/// When the kernel refuses; the rest was done all the same.
pub(super) fn undo(root: &SystemRoot) -> io::Result<usize> {
    let tree = match CgroupTree::find(root) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        found => found?,
    };
    let mut found = 0;
    let (directories, read) = tree.all();
    let mut failed = read.err();
    for directory in directories {
        match undo_in(&tree, &directory) {
            Ok(was_marked) => found += usize::from(was_marked),
            Err(error) => {
                failed.get_or_insert(error);
            }
        }
    }
    failed.map_or(Ok(found), Err)
}

/// Puts back the limits that a cgroup, by its directory, had before an agent limited it. Returns true if it was
/// marked. The owner of a delegated cgroup may mark it himself, and keep others from removing the mark: then only
/// a limit counts, and an error only if the limit stays.
fn undo_in(tree: &CgroupTree, directory: &Path) -> io::Result<bool> {
    // What is removed meanwhile is no more to be undone, and what has attributes that cannot be read is not ours.
    let Ok(Some(marks)) = mark::read(tree, directory) else { return Ok(false) };
    let is_delegated = is_delegated(directory);
    let counts = !is_delegated || is_limited(tree, directory);
    let mut failed = if marks.is_empty() { mark::clear(tree, directory) } else { Ok(()) };
    for (device, mark) in marks {
        // Nothing is limited by a mark that may be made up.
        let theirs = |seen| if is_delegated { mark.theirs(seen).max(seen) } else { mark.theirs(seen) };
        // What could not be put back is known to who tries it next.
        let restored = restore(tree, directory, device, theirs).map_err(io::Error::other);
        failed = failed.and(restored.and_then(|()| mark::write(tree, directory, device, None)));
    }
    match failed {
        Err(error) if !is_delegated || is_limited(tree, directory) => Err(error),
        _ => Ok(counts),
    }
}

/// Returns the number of a cgroup's directory. No other cgroup gets it, whatever it is called.
fn inode(directory: &Path) -> Option<u64> {
    fs::metadata(directory).ok().map(|found| found.ino())
}

/// Returns the paths of the cgroups below the root that an agent limits.
///
/// # Errors
/// When the kernel does not tell.
pub(super) fn limited(root: &SystemRoot) -> io::Result<Vec<String>> {
    let tree = match CgroupTree::find(root) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        found => found?,
    };
    let (directories, read) = tree.all();
    read?;
    let below = |directory: &PathBuf| path_text(directory.strip_prefix(tree.path()).unwrap_or(directory));
    Ok(directories.iter().filter(|directory| is_limited(&tree, directory)).map(below).collect())
}

/// Returns the capabilities that limits of cgroups need, each tried on this machine: a cgroup is made, and
/// removed.
#[must_use]
pub fn probe(root: &SystemRoot) -> Vec<KernelCapability> {
    const REMEDY: &str = "Linux 6.1 or newer with CONFIG_BLK_DEV_THROTTLING, and root, or CAP_DAC_OVERRIDE \
        (by v1 CAP_SYS_ADMIN, too) \
                          where cgroups are not mounted read-only";
    let tree = CgroupTree::find(root);
    let limits = match &tree {
        Ok(tree) => tree.try_out(|trial| mark::try_out(tree, trial)),
        Err(_) => Err(io::Error::other("not tried: it needs a cgroup hierarchy")),
    };
    let what = match tree.as_ref().map(CgroupTree::version) {
        Ok(CgroupVersion::V1) => "cgroup v1, blkio",
        Ok(CgroupVersion::V2) | Err(_) => "cgroup with io",
    };
    vec![
        KernelCapability {
            what,
            purpose: "who does what to a device, by cgroup (throttle = \"cgroup\")",
            needed_by: CapabilityNeed::Of(&[ThrottleMethod::Cgroup]),
            works: tree.map(drop),
            remedy: "cgroup v2 mounted with the controller io, or v1 with blkio (CONFIG_BLK_CGROUP)",
        },
        KernelCapability {
            what: "limits of cgroups",
            purpose: "limits of what cgroups do to devices (throttle = \"cgroup\")",
            needed_by: CapabilityNeed::Of(&[ThrottleMethod::Cgroup]),
            works: limits,
            remedy: REMEDY,
        },
    ]
}
