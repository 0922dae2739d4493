//! Release of everything, whichever process put it there: found by its name and handle in the kernel, from no
//! memory of ours.

use std::collections::BTreeSet;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

use super::cgroups;
use super::edt::{delay_packets, release};
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
    let mut found = RemovedThrottles::default();
    let cgroups = undo_cgroups(&mut found, are_cgroups_claimed());
    let packets = undo_delay(&mut found);
    cgroups.and(packets).map(|()| found)
}

/// What was released of agents that do not live any more.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OrphanRelease {
    /// The things that were removed.
    pub removed: RemovedThrottles,
    /// True if a living agent has claimed the machine's cgroups, so that their limits stayed.
    pub cgroups_in_use: bool,
}

/// Removes what agents left that do not live any more. Cgroups are the machine's: they stay as they are while a
/// living agent has claimed them, and no agent claims them meanwhile. Packets stay as they are if the caller knows
/// that an agent `delays` them in this network namespace.
///
/// # Errors
/// When the kernel refuses; the rest was done all the same.
pub fn undo_orphaned(delays: bool) -> io::Result<OrphanRelease> {
    let mut release = OrphanRelease::default();
    let cgroups = match CgroupTree::find(&SystemRoot::default()).map(|tree| tree.claim()) {
        Ok(Err(error)) if error.kind() == io::ErrorKind::ResourceBusy => {
            release.cgroups_in_use = true;
            Ok(())
        }
        // Without a right to claim, or cgroups, what can be undone is undone.
        claimed => {
            let undone = undo_cgroups(&mut release.removed, false);
            drop(claimed);
            undone
        }
    };
    let packets = if delays { Ok(()) } else { undo_delay(&mut release.removed) };
    cgroups.and(packets).map(|()| release)
}

/// Undoes limits of cgroups, which a living agent may have `claimed`.
fn undo_cgroups(found: &mut RemovedThrottles, claimed: bool) -> io::Result<()> {
    let own = rate::undo(&SystemRoot::default(), claimed).map(|was_there| found.cgroup = was_there);
    let others = cgroups::undo(&SystemRoot::default()).map(|count| found.cgroups = count);
    own.and(others)
}

/// Returns true if a living agent has claimed the cgroups of this machine, or if this user may not know.
#[must_use]
pub fn are_cgroups_claimed() -> bool {
    CgroupTree::find(&SystemRoot::default()).is_ok_and(|tree| tree.is_claimed())
}

/// Returns what throttles now in the kernel, in words: limits of the machine's cgroups, and delays of packets in
/// this network namespace. Changes nothing.
///
/// # Errors
/// When the kernel does not tell. Without the right to look at programs that is an error only if nothing else
/// throttles.
pub fn left_in_kernel() -> io::Result<Vec<String>> {
    let root = SystemRoot::default();
    let mut left: Vec<_> =
        cgroups::limited(&root)?.iter().map(|path| path.escape_debug().to_string()).collect();
    left.extend(rate::is_limited(&root)?.then(|| "the cgroup that limits what is written".to_owned()));
    let mut tc = TrafficControl::open()?;
    let ours: Vec<_> = tc.qdiscs()?.into_iter().filter(Qdisc::is_ours).collect();
    left.extend(delaying(&ours).map(|qdisc| called(qdisc.interface)).collect::<BTreeSet<_>>());
    let programs = programs(&mut tc, &ours)?;
    match delay_packets(&programs) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied && !left.is_empty() => {}
        delays => left.extend(delays?.then(|| "the program that delays packets".to_owned())),
    }
    Ok(left)
}

/// Returns the queues that delay packets by themselves.
fn delaying(ours: &[Qdisc]) -> impl Iterator<Item = &Qdisc> {
    ours.iter().filter(|qdisc| qdisc.delay.is_some_and(|delay| delay > Duration::ZERO))
}

/// Removes what delays packets in this network namespace.
pub(super) fn undo_delay(found: &mut RemovedThrottles) -> io::Result<()> {
    let mut tc = TrafficControl::open()?;
    let mut failed = None;
    let ours: Vec<Qdisc> = tc.qdiscs()?.into_iter().filter(Qdisc::is_ours).collect();
    for held in delaying(&ours) {
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
    failed.map_or(Ok(()), Err)
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
