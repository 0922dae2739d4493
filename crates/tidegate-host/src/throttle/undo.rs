//! Release of everything, whichever process put it there: found by its name and handle in the kernel, from no
//! memory of ours.

use std::collections::BTreeSet;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

use super::cgroups;
use super::edt::release;
use super::interface::called;
use super::nft::{self, NftTable};
use super::rate;
use super::tc::{DEVICE, NamesakeDevice, Qdisc, TrafficControl};
use crate::cgroup::CgroupTree;
use crate::root::SystemRoot;

/// The time for delayed packets to leave before the queue in which they wait is removed. The guardian has to
/// be done within two seconds.
const DRAIN: Duration = Duration::from_millis(1_200);

/// The things that were found and removed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RemovedThrottles {
    /// Interfaces that had our queueing discipline, and our own device.
    pub interfaces: Vec<String>,
    /// True if the nftables table was there.
    pub table: bool,
    /// True if the cgroup was there that limits writes.
    pub cgroup: bool,
    /// The number of others' cgroups that had limits of ours.
    pub cgroups: usize,
}

impl RemovedThrottles {
    /// Returns true if there was nothing.
    #[must_use]
    pub fn nothing(&self) -> bool {
        !self.table && !self.cgroup && self.cgroups == 0 && self.interfaces.is_empty()
    }
}

/// Removes everything that Tidegate ever puts into this network namespace, its cgroup and its limits of
/// others', which are the machine's, and nothing else. Delayed packets leave first, in their order, so that
/// none is lost.
///
/// # Errors
/// When the kernel refuses; the rest was done all the same.
pub fn undo() -> io::Result<RemovedThrottles> {
    // First, since nothing there has to drain.
    let cgroup = rate::undo(&SystemRoot::default());
    let limits = cgroups::undo(&SystemRoot::default());
    let mut found = undo_delay()?;
    found.cgroup = cgroup?;
    found.cgroups = limits?;
    Ok(found)
}

/// The same for a caller who knows that no agent lives in this network namespace. Cgroups are the machine's:
/// they stay as they are while an agent of another network namespace has claimed them.
///
/// # Errors
/// When the kernel refuses; the rest was done all the same.
pub fn undo_orphaned() -> io::Result<RemovedThrottles> {
    if are_cgroups_claimed() { undo_delay() } else { undo() }
}

/// Returns true if a living agent has claimed the cgroups of this machine.
#[must_use]
pub fn are_cgroups_claimed() -> bool {
    CgroupTree::find(&SystemRoot::default()).is_ok_and(|tree| tree.is_claimed())
}

/// Removes what delays packets in this network namespace.
pub(super) fn undo_delay() -> io::Result<RemovedThrottles> {
    let mut found = RemovedThrottles::default();
    let mut tc = TrafficControl::open()?;
    let mut failed = None;
    let ours: Vec<Qdisc> = tc.qdiscs()?.into_iter().filter(Qdisc::is_ours).collect();
    let delays = ours.iter().filter(|qdisc| qdisc.delay.is_some_and(|delay| delay > Duration::ZERO));
    for held in delays {
        if let Err(error) = tc.set_delay(held.interface, held.class(), Duration::ZERO) {
            failed.get_or_insert(error);
        }
    }
    match programs(&mut tc, &ours).and_then(|programs| release(&programs)) {
        Ok(()) => {}
        Err(error) => {
            failed.get_or_insert(error);
        }
    }
    let deadline = Instant::now() + DRAIN;
    drain(&mut tc, deadline)?;
    // Without the device, what rules that are still there send to it would be lost. It delays nothing any
    // more.
    found.table = remove_table()?;
    // What came between was on its way when the rules went.
    drain(&mut tc, deadline)?;
    let device = tc.device()?.filter(NamesakeDevice::is_ours);
    if let Some(device) = &device {
        match tc.delete_device(device.index) {
            Ok(()) => found.interfaces.push(DEVICE.to_owned()),
            Err(error) => {
                failed.get_or_insert(error);
            }
        }
    }
    let is_elsewhere = |root: &&Qdisc| device.as_ref().is_none_or(|device| device.index != root.interface);
    for root in ours.iter().filter(|qdisc| qdisc.is_root()).filter(is_elsewhere) {
        match tc.delete_root(root.interface) {
            Ok(()) => found.interfaces.push(called(root.interface)),
            Err(error) => {
                failed.get_or_insert(error);
            }
        }
    }
    failed.map_or(Ok(found), Err)
}

/// Waits until nothing is delayed any more, but not for ever.
fn drain(tc: &mut TrafficControl, deadline: Instant) -> io::Result<()> {
    while tc.qdiscs()?.iter().any(|qdisc| qdisc.is_ours() && !qdisc.is_root() && qdisc.queued > 0)
        && Instant::now() < deadline
    {
        thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// The programs at our roots.
fn programs(tc: &mut TrafficControl, ours: &[Qdisc]) -> io::Result<BTreeSet<u32>> {
    let mut found = BTreeSet::new();
    for root in ours.iter().filter(|qdisc| qdisc.is_root()) {
        found.extend(tc.filters(root.interface)?.into_iter().map(|filter| filter.program));
    }
    Ok(found)
}

fn remove_table() -> io::Result<bool> {
    match nft::read() {
        Ok(Some(_)) => nft::replace(&NftTable::default()).map(|()| true),
        Ok(None) => Ok(false),
        // Without the program there never was a table.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}
