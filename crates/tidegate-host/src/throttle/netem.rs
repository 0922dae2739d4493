//! The throttle `netem`: a class with a delay for each group of consumers, in a device of our own that
//! nftables rules send packets through.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use std::time::Duration;

use tidegate_units::{Instant, Latency};

use super::interface::{ConsumerRoutes, LOOK_AGAIN, ROUTE_STAYS, STAYS, name_of, refused};
use super::nft::{self, NftTable};
use super::plan::{DelayGroup, DelayPlan};
use super::remedy::{HTB, IFB, NETEM, with_remedy};
use super::table_work::TableWork;
use super::tc::{DEVICE, NamesakeDevice, TrafficControl};
use super::{DelayedPackets, ThrottleError, ThrottleInForce, ThrottleRequest};

/// The least time between two transactions of nftables. Sets of consumers are brought up to date once a
/// second, so a change seldom waits for this.
const BETWEEN_TRANSACTIONS: Duration = Duration::from_secs(1);

/// Delays packets by traffic control.
///
/// At rest, when nothing is throttled, there are no rules and, after a minute, no device; the maps of members
/// are always in the kernel, for people to see. No interface's own queueing is ever touched.
///
/// Delays are changed at once, by netlink. nftables takes a program that is started for it, so its
/// transactions go on beside the caller, at most one each second.
#[derive(Debug)]
pub struct NetemThrottle {
    tc: TrafficControl,
    packets: DelayedPackets,
    ports: BTreeSet<u16>,
    plan: DelayPlan,
    device: Option<Holding>,
    /// True if the kernel may have a device of ours that is not known here, with any delay.
    device_is_doubtful: bool,
    /// True if the kernel may have another table than is known here.
    table_is_doubtful: bool,
    /// The interfaces that lead to members while any is throttled: their names, by their numbers.
    interfaces: BTreeMap<u32, String>,
    /// The time at which they were found; `None` if members have changed since.
    reached: Option<Instant>,
    routes: ConsumerRoutes,
    /// The table as the kernel confirmed it.
    in_force: NftTable,
    /// A transaction, or a comparison, that goes on.
    work: Option<TableWork>,
    /// The time of the last transaction.
    last_transaction: Option<Instant>,
    /// True if the table in force may be another than is wanted.
    is_unsettled: bool,
    /// The time of the last comparison with the kernel.
    looked: Instant,
    /// The last time that a consumer was throttled.
    last_held: Option<Instant>,
}

/// Our device, and for how long its classes hold packets.
#[derive(Debug)]
struct Holding {
    index: u32,
    delays: BTreeMap<u16, Latency>,
}

impl NetemThrottle {
    /// Delays packets that come from `ports`, here or behind the interface `array`. Nothing is changed yet.
    ///
    /// # Errors
    /// When the kernel cannot be asked.
    pub fn new(packets: DelayedPackets, ports: BTreeSet<u16>, array: Option<&str>) -> io::Result<Self> {
        Ok(Self {
            tc: TrafficControl::open()?,
            packets,
            ports,
            plan: DelayPlan::default(),
            device: None,
            device_is_doubtful: false,
            table_is_doubtful: false,
            interfaces: BTreeMap::new(),
            reached: None,
            routes: ConsumerRoutes::new(array),
            in_force: NftTable::default(),
            work: None,
            last_transaction: None,
            is_unsettled: false,
            looked: Instant::ZERO,
            last_held: None,
        })
    }

    /// Puts the wanted delays into force, for all resources; one that is not named is released. Delays are in
    /// force when this returns. A consumer that comes or goes, and the first delay of all, take a transaction
    /// of nftables, which [`settle`](Self::settle) awaits. A delay in force already costs next to nothing.
    /// Every change is read back.
    ///
    /// # Errors
    /// When a part could not be done. The rest was done, and the next call tries that part again. A
    /// transaction that failed is the error of a later call.
    pub fn apply(&mut self, now: Instant, wanted: &[ThrottleRequest]) -> Result<(), ThrottleError> {
        if self.plan.take(now, wanted) {
            self.reached = None;
            self.is_unsettled = true;
        }
        if self.plan.is_ruled() {
            self.last_held = Some(now);
        }
        let mut first_error = self.plan.room().err();
        for step in [
            Self::take_outcome,
            Self::clear_doubt,
            Self::see_device,
            Self::write_delays,
            Self::reach,
            Self::write_table,
            Self::look_again,
            Self::leave,
        ] {
            if let Err(error) = step(self, now) {
                first_error.get_or_insert(error);
            }
        }
        first_error.map_or(Ok(()), Err)
    }

    /// Waits until the transaction that goes on has ended.
    ///
    /// # Errors
    /// When it failed.
    pub fn settle(&mut self) -> Result<(), ThrottleError> {
        match self.work.take() {
            Some(work) => self.conclude(work),
            None => Ok(()),
        }
    }

    /// Returns true if a resource's delays are zero, or those of any of its members are in force.
    pub(super) fn holds(&self, wanted: &ThrottleRequest) -> bool {
        let mut throttled = self.plan.groups_of(&wanted.resource).filter(|group| group.delay > Latency::ZERO);
        wanted.is_released() || throttled.any(|group| self.is_in_force(group))
    }

    /// Returns the delays in force for a resource.
    pub(super) fn delays_in_force(&self, wanted: &ThrottleRequest) -> ThrottleInForce {
        self.plan.in_force(&wanted.resource, |group| self.is_in_force(group))
    }

    /// Returns true if the delay is that of the group's class, and packets to its members go there.
    fn is_in_force(&self, group: &DelayGroup) -> bool {
        let device = self.device.as_ref();
        let is_mapped = |address: &IpAddr| self.in_force.classes.get(address) == Some(&group.class);
        device.is_some_and(|device| device.delays.get(&group.class) == Some(&group.delay))
            && self.in_force.is_hooked()
            && group.members.iter().any(is_mapped)
    }

    /// Returns true if packets may be delayed more than is wanted. Either the device's delays or the rules
    /// that send packets there could not be changed.
    pub(super) fn is_stuck(&self) -> bool {
        let delays = || self.device.iter().flat_map(|device| device.delays.values());
        self.device_is_doubtful || self.table_is_doubtful && delays().any(|delay| *delay > Latency::ZERO)
    }

    /// Takes note of the transaction that has ended.
    fn take_outcome(&mut self, _: Instant) -> Result<(), ThrottleError> {
        if self.work.as_ref().is_some_and(TableWork::has_ended) { self.settle() } else { Ok(()) }
    }

    /// Removes a device that could not be told its delays. First the rules: what they send to a device that
    /// is gone is lost.
    fn clear_doubt(&mut self, _: Instant) -> Result<(), ThrottleError> {
        if !self.device_is_doubtful {
            return Ok(());
        }
        self.settle()?;
        let refused = |source| ThrottleError::TrafficControl { interface: DEVICE.to_owned(), source };
        if let Some(found) = self.tc.device().map_err(refused)?.filter(NamesakeDevice::is_ours) {
            if self.table_is_doubtful {
                nft::replace(&NftTable::default()).map_err(ThrottleError::Rules)?;
                self.table_is_doubtful = false;
            }
            self.tc.delete_device(found.index).map_err(refused)?;
        }
        self.device_is_doubtful = false;
        Ok(())
    }

    /// Verifies that the device is as we left it. Packets that are redirected to a device that is gone, or
    /// down, are lost. So this check cannot wait until everything is compared again.
    fn see_device(&mut self, _: Instant) -> Result<(), ThrottleError> {
        let Some(known) = &self.device else { return Ok(()) };
        let found = self.tc.device().map_err(|source| refused(known.index, source))?;
        if found.is_some_and(|found| found.index == known.index && found.is_up) {
            return Ok(());
        }
        self.forget_device();
        Err(ThrottleError::Removed(DEVICE))
    }

    /// It is put there anew with the next delay, and the rules with it, which know it by its number.
    fn forget_device(&mut self) {
        // What goes on may put rules there that know it, too.
        let unsettled = self.settle();
        self.table_is_doubtful |= unsettled.is_err() || self.in_force.is_hooked();
        self.device = None;
        self.device_is_doubtful = true;
        self.forget_table();
    }

    fn forget_table(&mut self) {
        self.in_force = NftTable::default();
        self.is_unsettled = true;
    }

    /// Gives the class of each group its delay.
    fn write_delays(&mut self, _: Instant) -> Result<(), ThrottleError> {
        let known = |class| self.device.as_ref().and_then(|device| device.delays.get(&class));
        let changed: Vec<_> = self
            .plan
            .groups()
            .map(|group| (group.class, group.delay))
            .filter(|(class, delay)| known(*class).copied().unwrap_or_default() != *delay)
            .collect();
        if changed.is_empty() {
            return Ok(());
        }
        for (class, delay) in changed {
            if let Err(error) = self.set(class, delay) {
                // Whatever happened to it: it is put there anew the next time.
                self.forget_device();
                return Err(error);
            }
        }
        self.check_delays()
    }

    fn set(&mut self, class: u16, delay: Latency) -> Result<(), ThrottleError> {
        let Self { tc, device, device_is_doubtful, is_unsettled, .. } = self;
        let device = match device {
            Some(device) => device,
            None => {
                let index = claim(tc)?;
                // What was there has made way for it.
                (*device_is_doubtful, *is_unsettled) = (false, true);
                device.insert(Holding { index, delays: BTreeMap::new() })
            }
        };
        let index = device.index;
        let changed = match device.delays.insert(class, delay) {
            None => {
                tc.add_class(index, class, delay.to_duration()).map_err(|source| with_remedy(source, NETEM))
            }
            Some(_) => tc.set_delay(index, class, delay.to_duration()),
        };
        changed.map_err(|source| refused(index, source))
    }

    /// Finds the interfaces that lead to members, while any is throttled: the next one needs no transaction.
    fn reach(&mut self, now: Instant) -> Result<(), ThrottleError> {
        if self.reached.is_some_and(|at| now.saturating_since(at) < ROUTE_STAYS) {
            return Ok(());
        }
        let mut interfaces = BTreeMap::new();
        let mut first_error = None;
        let groups = self.plan.groups().filter(|_| self.plan.is_ruled());
        for address in groups.flat_map(|group| &group.members) {
            match self.routes.towards(&mut self.tc, now, *address) {
                Ok(indices) => {
                    for index in indices {
                        if !interfaces.contains_key(&index) {
                            let known = self.interfaces.get(&index).cloned();
                            interfaces.extend(known.or_else(|| name_of(index)).map(|name| (index, name)));
                        }
                    }
                }
                Err(error) => {
                    first_error.get_or_insert(error);
                }
            }
        }
        if self.interfaces != interfaces {
            self.interfaces = interfaces;
            self.is_unsettled = true;
        }
        self.reached = first_error.is_none().then_some(now);
        first_error.map_or(Ok(()), Err)
    }

    /// Begins a transaction, if the table in force is not the wanted one. All changes since the last one are
    /// in it.
    fn write_table(&mut self, now: Instant) -> Result<(), ThrottleError> {
        let is_early =
            self.last_transaction.is_some_and(|last| now.saturating_since(last) < BETWEEN_TRANSACTIONS);
        // Rules that may be wrong are not waited for: packets to a device that is gone are lost.
        let must_wait = is_early && !self.table_is_doubtful;
        if !self.is_unsettled || must_wait || self.work.is_some() {
            return Ok(());
        }
        self.is_unsettled = false;
        let table = self.wanted_table();
        if !table.same_rules(&self.in_force) {
            self.last_transaction = Some(now);
            let work = TableWork::change(self.in_force.clone(), table).map_err(ThrottleError::Rules);
            self.work = Some(work.inspect_err(|_| self.is_unsettled = true)?);
        }
        Ok(())
    }

    /// The table that sends packets to the classes that are there. To one that is not they would go in vain.
    fn wanted_table(&self) -> NftTable {
        let mut classes = BTreeMap::new();
        for group in self.plan.groups() {
            classes.extend(group.members.iter().map(|address| (*address, group.class)));
        }
        for group in self.plan.groups() {
            for address in &group.leaving {
                classes.entry(*address).or_insert(group.class);
            }
        }
        NftTable {
            classes,
            redirects: self.plan.is_ruled() && self.device.is_some(),
            packets: self.packets,
            ports: self.ports.clone(),
            interfaces: self.interfaces.clone(),
        }
    }

    /// Takes note of how a transaction, or a comparison, ended.
    fn conclude(&mut self, work: TableWork) -> Result<(), ThrottleError> {
        let (table, seen) = work.end();
        match seen {
            Ok(seen) if seen.agrees_with(&table) => {
                self.in_force = table;
                self.table_is_doubtful = false;
                Ok(())
            }
            Ok(_) => {
                self.table_is_doubtful |= table.is_hooked();
                self.forget_table();
                Err(ThrottleError::ReadBack { what: "the nftables table `tidegate`".to_owned() })
            }
            Err(error) => {
                self.table_is_doubtful = true;
                // Perhaps another program changed it, or an interface is gone: then all of it is put there
                // anew.
                self.forget_table();
                self.interfaces.clear();
                self.reached = None;
                self.routes.forget();
                Err(ThrottleError::Rules(error))
            }
        }
    }

    /// Verifies that the kernel still has what it was given. If something was removed, it is put there anew
    /// the next time.
    fn look_again(&mut self, now: Instant) -> Result<(), ThrottleError> {
        if now.saturating_since(self.looked) < LOOK_AGAIN {
            return Ok(());
        }
        self.looked = now;
        if !self.in_force.classes.is_empty() && self.work.is_none() {
            self.work = Some(TableWork::compare(self.in_force.clone()).map_err(ThrottleError::Rules)?);
        }
        self.check_delays()
    }

    fn check_delays(&mut self) -> Result<(), ThrottleError> {
        let Some(Holding { index, delays }) = &self.device else { return Ok(()) };
        let index = *index;
        let qdiscs = self.tc.qdiscs().map_err(|source| refused(index, source))?;
        let found: BTreeMap<_, _> = qdiscs
            .iter()
            .filter(|qdisc| qdisc.interface == index && qdisc.is_ours() && !qdisc.is_root())
            .filter_map(|qdisc| Some((qdisc.class(), Latency::from(qdisc.delay?))))
            .collect();
        if delays.iter().all(|(class, delay)| found.get(class) == Some(delay)) {
            return Ok(());
        }
        self.forget_device();
        Err(ThrottleError::ReadBack { what: format!("what the device {DEVICE} holds packets with") })
    }

    /// Removes the device when nothing was throttled for a while.
    fn leave(&mut self, now: Instant) -> Result<(), ThrottleError> {
        let stays = self.last_held.is_none_or(|last| now.saturating_since(last) < STAYS);
        // What rules send to a device that is gone is lost.
        if stays || self.work.is_some() || self.table_is_doubtful || self.in_force.is_hooked() {
            return Ok(());
        }
        if let Some(Holding { index, .. }) = &self.device {
            self.tc.delete_device(*index).map_err(|source| refused(*index, source))?;
        }
        self.device = None;
        self.last_held = None;
        Ok(())
    }
}

impl Drop for NetemThrottle {
    /// Whatever is removed afterwards must not come back.
    fn drop(&mut self) {
        if let Err(error) = self.settle() {
            tracing::debug!("the last change of the rules failed: {error}");
        }
    }
}

/// Puts our device there, with a root for classes. One that is there already is of no use: it lost something
/// that it was given.
///
/// # Errors
/// When something else has its name, or the kernel refuses.
fn claim(tc: &mut TrafficControl) -> Result<u32, ThrottleError> {
    let refused = |source| ThrottleError::TrafficControl { interface: DEVICE.to_owned(), source };
    match tc.device().map_err(refused)? {
        Some(found) if found.is_ours() => tc.delete_device(found.index).map_err(refused)?,
        Some(_) => return Err(ThrottleError::Taken(DEVICE)),
        None => {}
    }
    let index = tc.add_device().map_err(|source| refused(with_remedy(source, IFB)))?;
    tc.add_root(index).map_err(|source| refused(with_remedy(source, HTB)))?;
    Ok(index)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use tidegate_testing::{Lack, in_own_network, skip};
    use tidegate_units::ResourceName;

    use super::*;

    /// In a network namespace of its own, as root: something else has the device's name, which no kernel lets
    /// two have.
    #[test]
    fn what_could_not_be_put_there_is_not_said_to_be_in_force() {
        in_own_network(|| {
            let bridge = ["link", "add", DEVICE, "type", "bridge"];
            let added = Command::new("ip").args(bridge).status().is_ok_and(|status| status.success());
            if !added {
                return skip(Lack::Kernel("bridge"), "ip link add type bridge fails");
            }
            let mut netem = NetemThrottle::new(DelayedPackets::All, [3260].into(), None).unwrap();
            let hold = ThrottleRequest {
                resource: ResourceName::new("vg0").unwrap(),
                members: [[127, 0, 0, 2].into()].into(),
                delay: Latency::from_millis(20),
                own_delays: BTreeMap::new(),
                limits: BTreeMap::new(),
                cgroups: BTreeMap::new(),
            };
            let failed = netem.apply(Instant::ZERO, std::slice::from_ref(&hold)).unwrap_err();
            assert!(matches!(failed, ThrottleError::Taken(DEVICE)), "{failed}");
            assert!(!netem.holds(&hold));
            let nobody = ThrottleRequest { delay: Latency::ZERO, ..hold };
            let _ = netem.apply(Instant::from_nanos(1), std::slice::from_ref(&nobody));
            assert!(netem.holds(&nobody), "nothing is to be throttled");
            let error =
                super::super::lacking(super::super::ThrottleMethod::Netem, DelayedPackets::All).unwrap_err();
            assert!(error.to_string().contains("rename it"), "{error}");
        });
    }

    #[test]
    fn who_lacks_a_module_is_told_which() {
        let missing = |errno: rustix::io::Errno| with_remedy(errno.into(), NETEM).to_string();
        assert!(missing(rustix::io::Errno::NOENT).contains("perhaps it takes the kernel module sch_netem"));
        assert!(!missing(rustix::io::Errno::PERM).contains("sch_netem"), "it is not what is lacking");
    }
}
