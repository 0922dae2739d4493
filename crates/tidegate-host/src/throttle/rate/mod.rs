//! The throttle `rate`: a limit of what may be written to a device per second, by cgroup v2's `io.max`.
//!
//! LIO's kernel threads that receive what initiators send, `iscsi_trx`, submit it to the volumes themselves,
//! and a cgroup may have them. So writes wait in the block layer, in front of the device, and nothing else
//! does: a read of the same session goes on, which no delay of packets can do, since TCP keeps the order of
//! what it carries.
//!
//! `io.max` is per cgroup and device, and all of the target's sessions are in our one cgroup: consumers that
//! share a device are throttled together.

mod cgroup;
mod limit;
#[cfg(test)]
mod tests;
mod threads;

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use tidegate_units::Instant;

pub(super) use cgroup::{is_limited, undo};
pub use limit::WriteLimit;

use self::cgroup::{IoHierarchy, OwnCgroup};
use super::capability::{CapabilityNeed, KernelCapability};
use super::lowering::{self, LimitLowering};
use super::plan::RULE_STAYS;
use super::{ThrottleError, ThrottleMethod, ThrottleRequest};
use crate::cgroup::CgroupClaim;
use crate::cgroup::IoLimit;
use crate::device::DeviceNumber;
use crate::root::SystemRoot;
use crate::sense::session::TargetKind;

/// The time between two searches for sessions' threads, and between two comparisons with the kernel, while a
/// consumer is throttled.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Returns true if the writes of consumers that come through a kind of target can be limited. Those of
/// NVMe/TCP are submitted by work queues that others use too. Those of NFS go through the page cache, which
/// writes them later.
#[must_use]
pub const fn reaches(via: TargetKind) -> bool {
    match via {
        TargetKind::Iscsi => true,
        TargetKind::Nvme | TargetKind::Nfs | TargetKind::Portal => false,
    }
}

/// Limits what is written to devices.
///
/// At rest, when nothing is throttled, there is no cgroup, no limit, and every thread is where it was.
#[derive(Debug)]
pub struct Rate {
    root: SystemRoot,
    hierarchy: IoHierarchy,
    /// While a device is limited, and a little longer.
    cgroup: Option<OwnCgroup>,
    in_force: BTreeMap<DeviceNumber, WriteLimit>,
    /// True if the kernel may have something else than is known here: then all of it is put there anew.
    doubtful: bool,
    /// True if the cgroup and its limits could not be removed although they had to be.
    stuck: bool,
    /// The time of the last comparison with the kernel.
    looked: Instant,
    /// The last time that a consumer was throttled.
    last_held: Instant,
    lowering: LimitLowering,
    _claim: CgroupClaim,
}

impl Rate {
    /// Finds what it needs; nothing is changed yet. As long as this lives, no other can be made on this
    /// machine.
    ///
    /// # Errors
    /// When this machine has no cgroup v2 that can limit, or this process may not write to it, or another
    /// agent has it.
    pub fn new(root: SystemRoot) -> io::Result<Self> {
        let hierarchy = IoHierarchy::find(&root)?;
        let claim = hierarchy.claim()?;
        Ok(Self {
            _claim: claim,
            lowering: LimitLowering::new(&root),
            root,
            hierarchy,
            cgroup: None,
            in_force: BTreeMap::new(),
            doubtful: false,
            stuck: false,
            looked: Instant::ZERO,
            last_held: Instant::ZERO,
        })
    }

    /// Puts the wanted limits into force, for all devices; one that is not named is released. A limit in
    /// force costs a look each second. Every change is read back.
    ///
    /// # Errors
    /// What could not be done: the next call puts everything there anew.
    pub fn apply(&mut self, now: Instant, wanted: &[ThrottleRequest]) -> Result<(), ThrottleError> {
        if self.doubtful {
            self.clear()?;
            self.doubtful = false;
        }
        let limits = limits(wanted);
        if !limits.is_empty() {
            self.last_held = now;
        }
        let done = self.put_in_force(now, &limits);
        self.doubtful = done.is_err();
        done
    }

    /// Returns true if any device has the limit that is wanted for a resource, or if none is wanted.
    pub(super) fn holds(&self, wanted: &ThrottleRequest) -> bool {
        let mut devices = wanted.limits.keys();
        wanted.limits.is_empty()
            || (!self.doubtful && devices.any(|device| self.in_force.contains_key(device)))
    }

    /// Returns the limits in force of the devices that are to be limited for a resource.
    pub(super) fn limits_in_force(&self, wanted: &ThrottleRequest) -> BTreeMap<DeviceNumber, WriteLimit> {
        let known = self.in_force.iter().filter(|(device, _)| wanted.limits.contains_key(device));
        known.filter(|_| !self.doubtful).map(|(device, limit)| (*device, *limit)).collect()
    }

    /// Returns true if writes may be limited more than is wanted: the limits could not be removed.
    pub(super) const fn is_stuck(&self) -> bool {
        self.stuck
    }

    fn put_in_force(
        &mut self,
        now: Instant,
        limits: &BTreeMap<DeviceNumber, WriteLimit>,
    ) -> Result<(), ThrottleError> {
        let begins = self.cgroup.is_none();
        if begins && limits.is_empty() {
            return Ok(());
        }
        let cgroup = match &mut self.cgroup {
            Some(cgroup) => cgroup,
            none => none.insert(self.hierarchy.make()?),
        };
        let changed = write(&self.hierarchy, &self.lowering, (cgroup, begins), &mut self.in_force, limits)?;
        let looks = begins || now.saturating_since(self.looked) >= LOOK_AGAIN;
        if looks {
            self.looked = now;
            self.hierarchy.gather(cgroup)?;
        }
        if looks || changed {
            // The limit of a device goes with the device.
            let seen = self.hierarchy.limits(cgroup)?;
            let is_there =
                |device: &DeviceNumber| self.root.path(format!("/sys/dev/block/{device}")).exists();
            self.in_force.retain(|device, _| seen.contains_key(device) || is_there(device));
            if seen != self.in_force {
                return Err(ThrottleError::ReadBack { what: cgroup.limits_file().display().to_string() });
            }
        }
        if now.saturating_since(self.last_held) >= RULE_STAYS { self.clear() } else { Ok(()) }
    }

    /// Releases all consumers, and removes the cgroup.
    fn clear(&mut self) -> Result<(), ThrottleError> {
        let cleared = self.hierarchy.clear();
        self.stuck = cleared.is_err();
        cleared.map_err(ThrottleError::Rates)?;
        self.cgroup = None;
        self.in_force.clear();
        Ok(())
    }
}

/// For all resources together: of a device that is in two of them the lower.
fn limits(wanted: &[ThrottleRequest]) -> BTreeMap<DeviceNumber, WriteLimit> {
    let mut limits: BTreeMap<_, WriteLimit> = BTreeMap::new();
    for (device, limit) in wanted.iter().flat_map(|hold| &hold.limits) {
        let lower = limits.get(device).map_or(*limit, |known| known.min(*limit));
        limits.insert(*device, lower);
    }
    limits
}

/// Gives devices their limits, and releases those without one. Returns true if anything was to be changed.
fn write(
    hierarchy: &IoHierarchy,
    lowering: &LimitLowering,
    (cgroup, is_new): (&OwnCgroup, bool),
    in_force: &mut BTreeMap<DeviceNumber, WriteLimit>,
    limits: &BTreeMap<DeviceNumber, WriteLimit>,
) -> Result<bool, ThrottleError> {
    let released: Vec<_> = in_force.keys().filter(|device| !limits.contains_key(device)).copied().collect();
    let mut changed = !released.is_empty();
    for device in released {
        hierarchy.release(cgroup, device)?;
        in_force.remove(&device);
    }
    let mut lowered = Vec::new();
    for (device, limit) in limits {
        let known = in_force.get(device);
        if known.is_some_and(|known| known.is_about(*limit)) {
            continue;
        }
        let before = known.map_or(IoLimit::NONE, |known| (*known).into());
        // Of a new cgroup nothing waits.
        let steps = if is_new { None } else { lowering.steps(*device, before, None, (*limit).into()) };
        let first = steps.as_ref().map_or(*limit, |steps| WriteLimit::of(steps.reached()));
        // A volume that was removed meanwhile needs no throttling: the next rescan says so, too.
        if hierarchy.limit(cgroup, *device, first)? {
            in_force.insert(*device, *limit);
            lowered.extend(steps.map(|mut steps| {
                steps.written();
                (*device, steps)
            }));
            changed = true;
        }
    }
    while lowering::wait_for_next(lowered.iter().map(|(_, steps)| steps)) {
        for (device, steps) in lowered.iter_mut().filter(|(_, steps)| steps.is_due()) {
            steps.advance();
            hierarchy.limit(cgroup, *device, WriteLimit::of(steps.reached()))?;
            steps.written();
        }
        lowered.retain(|(_, steps)| !steps.is_over());
    }
    Ok(changed)
}

/// Returns the capabilities that limits of writes need, each tried on this machine: a cgroup is made, and
/// removed.
#[must_use]
pub fn probe(root: &SystemRoot) -> Vec<KernelCapability> {
    let hierarchy = IoHierarchy::find(root);
    let works = match &hierarchy {
        Ok(hierarchy) => hierarchy.try_out(),
        Err(_) => Err(io::Error::other("not tried: it needs cgroup v2")),
    };
    vec![
        KernelCapability {
            what: "cgroup v2, io",
            purpose: "limits of what is written (throttle = \"rate\")",
            needed_by: CapabilityNeed::Of(&[ThrottleMethod::Rate]),
            works: hierarchy.map(drop),
            remedy: "cgroup v2 mounted with the controller io, and no blkio of cgroup v1 \
                     (systemd.unified_cgroup_hierarchy=1 on the kernel's command line; CONFIG_BLK_CGROUP)",
        },
        KernelCapability {
            what: "io.max",
            purpose: "limits of what is written (throttle = \"rate\")",
            needed_by: CapabilityNeed::Of(&[ThrottleMethod::Rate]),
            works,
            remedy: "CONFIG_BLK_DEV_THROTTLING, Linux 6.1 or newer, and root, or CAP_DAC_OVERRIDE where \
                cgroups are not mounted \
                     read-only",
        },
    ]
}
