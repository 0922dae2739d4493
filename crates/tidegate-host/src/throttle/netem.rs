//! The throttle `netem`: a class with a delay per resource, in a device of our own that nftables rules send
//! packets through.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::io;

use tidegate_units::{Instant, Latency, ResourceName};

use super::interface::{ConsumerRoutes, LOOK_AGAIN, ROUTE_STAYS, STAYS, name_of, refused};
use super::nft::{self, NftTable, TablePart};
use super::probe::{IFB, NETEM};
use super::remedy::{HTB, with_remedy};
use super::resources::{ThrottledResource, ThrottledResources};
use super::tc::{DEVICE, NamesakeDevice, TrafficControl};
use super::{DelayedPackets, ThrottleError, ThrottleRequest};

/// Delays packets by traffic control.
///
/// At rest, when nothing is throttled, there are no rules and, after a minute, no device; the sets of members
/// are always in the kernel, for people to see. No interface's own queueing is ever touched.
#[derive(Debug)]
pub struct NetemThrottle {
    tc: TrafficControl,
    packets: DelayedPackets,
    ports: BTreeSet<u16>,
    resources: ThrottledResources,
    device: Option<Holding>,
    /// True if the kernel may have a device of ours that is not known here, with any delay.
    device_is_doubtful: bool,
    /// True if the kernel may have other rules than are known here.
    table_is_doubtful: bool,
    /// The interfaces that lead to throttled members: their names, by their numbers.
    interfaces: BTreeMap<u32, String>,
    /// The time at which they were found; `None` if members have changed since.
    reached: Option<Instant>,
    routes: ConsumerRoutes,
    in_force: NftTable,
    /// The classes of its rules, in their order; `None` if anything else may be different from what is
    /// wanted.
    ordered: Option<Vec<u16>>,
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
            resources: ThrottledResources::default(),
            device: None,
            device_is_doubtful: false,
            table_is_doubtful: false,
            interfaces: BTreeMap::new(),
            reached: None,
            routes: ConsumerRoutes::new(array),
            in_force: NftTable::default(),
            ordered: None,
            looked: Instant::ZERO,
            last_held: None,
        })
    }

    /// Puts the wanted delays into force, for all resources; one that is not named is released. A delay in
    /// force already costs next to nothing. Every change is read back.
    ///
    /// # Errors
    /// What could not be done, while the rest was: the next call tries it again.
    pub fn apply(&mut self, now: Instant, wanted: &[ThrottleRequest]) -> Result<(), ThrottleError> {
        if self.resources.take(now, wanted)? {
            self.reached = None;
            self.ordered = None;
        }
        if self.resources.iter().any(|(_, resource)| resource.ruled) {
            self.last_held = Some(now);
        }
        let mut first_error = None;
        for step in [
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

    /// Returns true if a resource's delay is zero, or is that of its class and rules send packets there.
    pub(super) fn holds(&self, wanted: &ThrottleRequest) -> bool {
        let Some((name, resource)) = self.resources.iter().find(|(name, _)| **name == wanted.resource) else {
            return wanted.delay == Latency::ZERO;
        };
        if resource.delay == Latency::ZERO {
            return true;
        }
        let of_class = |device: &Holding| device.delays.get(&resource.class) == Some(&resource.delay);
        let part = self.in_force.parts.get(&set_name(name, resource.class));
        self.device.as_ref().is_some_and(of_class)
            && part.is_some_and(|part| part.ruled)
            && !self.in_force.interfaces.is_empty()
    }

    /// Returns the delay in force for a resource.
    pub(super) fn delay_in_force(&self, wanted: &ThrottleRequest) -> Latency {
        let known = self.resources.iter().find(|(name, _)| **name == wanted.resource);
        let delay = known.map_or(Latency::ZERO, |(_, resource)| resource.delay);
        if self.holds(wanted) { delay } else { Latency::ZERO }
    }

    /// Returns true if packets may be delayed more than is wanted. Either the device's delays or the rules
    /// that send packets there could not be changed.
    pub(super) fn is_stuck(&self) -> bool {
        let delays = || self.device.iter().flat_map(|device| device.delays.values());
        self.device_is_doubtful || self.table_is_doubtful && delays().any(|delay| *delay > Latency::ZERO)
    }

    /// Removes a device that could not be told its delays. First the rules: what they send to a device that
    /// is gone is lost.
    fn clear_doubt(&mut self, _: Instant) -> Result<(), ThrottleError> {
        if !self.device_is_doubtful {
            return Ok(());
        }
        let refused = |source| ThrottleError::TrafficControl { interface: DEVICE.to_owned(), source };
        if let Some(found) = self.tc.device().map_err(refused)?.filter(NamesakeDevice::is_ours) {
            nft::replace(&NftTable::default()).map_err(ThrottleError::Rules)?;
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
        self.device = None;
        self.device_is_doubtful = true;
        self.forget_table();
    }

    fn forget_table(&mut self) {
        self.in_force = NftTable::default();
        self.ordered = None;
    }

    /// Gives the class of each resource its delay.
    fn write_delays(&mut self, _: Instant) -> Result<(), ThrottleError> {
        let known = |class| self.device.as_ref().and_then(|device| device.delays.get(&class));
        let changed: Vec<_> = self
            .resources
            .iter()
            .map(|(_, resource)| (resource.class, resource.delay))
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
        let Self { tc, device, device_is_doubtful, .. } = self;
        let device = match device {
            Some(device) => device,
            None => {
                let index = claim(tc)?;
                // What was there has made way for it.
                *device_is_doubtful = false;
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

    /// Finds the interfaces that lead to throttled consumers.
    fn reach(&mut self, now: Instant) -> Result<(), ThrottleError> {
        if self.reached.is_some_and(|at| now.saturating_since(at) < ROUTE_STAYS) {
            return Ok(());
        }
        let mut interfaces = BTreeMap::new();
        let mut first_error = None;
        let ruled = self.resources.iter().filter(|(_, resource)| resource.ruled);
        for address in ruled.flat_map(|(_, resource)| &resource.members) {
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
            self.ordered = None;
        }
        self.reached = first_error.is_none().then_some(now);
        first_error.map_or(Ok(()), Err)
    }

    fn write_table(&mut self, _: Instant) -> Result<(), ThrottleError> {
        let ruled = self.ruled();
        if self.ordered.as_ref() == Some(&ruled) {
            return Ok(());
        }
        let parts = self
            .resources
            .iter()
            .map(|(name, resource)| {
                let ThrottledResource { class, delay, .. } = *resource;
                let members = resource.members.clone();
                (set_name(name, class), TablePart { class, members, ruled: ruled.contains(&class), delay })
            })
            .collect();
        let interfaces = self.interfaces.clone();
        let table = NftTable { parts, packets: self.packets, ports: self.ports.clone(), interfaces };
        if !table.same_rules(&self.in_force) {
            if let Err(error) = nft::change(&self.in_force, &table) {
                self.table_is_doubtful = true;
                // Perhaps another program changed it, or an interface is gone: then all of it is put there
                // anew.
                self.forget_table();
                self.interfaces.clear();
                self.reached = None;
                self.routes.forget();
                return Err(ThrottleError::Rules(error));
            }
            self.in_force = table;
            self.table_is_doubtful = false;
            self.check_table()?;
        }
        self.ordered = Some(ruled);
        Ok(())
    }

    /// The classes that packets are to be sent to, in the order of their rules. To one that is not there they
    /// would go in vain.
    fn ruled(&self) -> Vec<u16> {
        let has_class = |class| self.device.as_ref().is_some_and(|device| device.delays.contains_key(&class));
        let mut ruled: Vec<_> = self
            .resources
            .iter()
            .filter(|(_, resource)| resource.ruled && has_class(resource.class))
            .collect();
        ruled.sort_by_key(|(_, resource)| (Reverse(resource.delay), resource.class));
        ruled.into_iter().map(|(_, resource)| resource.class).collect()
    }

    /// Verifies that the kernel still has what it was given. If something was removed, it is put there anew
    /// the next time.
    fn look_again(&mut self, now: Instant) -> Result<(), ThrottleError> {
        if now.saturating_since(self.looked) < LOOK_AGAIN {
            return Ok(());
        }
        self.looked = now;
        if !self.in_force.parts.is_empty() {
            self.check_table()?;
        }
        self.check_delays()
    }

    fn check_table(&mut self) -> Result<(), ThrottleError> {
        let seen = nft::read().map_err(ThrottleError::Rules)?.unwrap_or_default();
        if seen.agrees_with(&self.in_force) {
            return Ok(());
        }
        self.forget_table();
        Err(ThrottleError::ReadBack { what: "the nftables table `tidegate`".to_owned() })
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
        if self.last_held.is_none_or(|last| now.saturating_since(last) < STAYS) {
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

/// The name of a resource as nftables allows it, and told apart from others that become the same.
fn set_name(resource: &ResourceName, class: u16) -> String {
    let plain: String = resource
        .as_str()
        .chars()
        .take(32)
        .map(|character| if character.is_ascii_alphanumeric() { character } else { '_' })
        .collect();
    format!("held_{class}_{plain}")
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use rustix::thread::{UnshareFlags, unshare_unsafe};

    use super::*;

    /// In a network namespace of its own, as root: something else has the device's name, which no kernel lets
    /// two have.
    #[test]
    fn what_could_not_be_put_there_is_not_said_to_be_in_force() {
        let trial = std::thread::spawn(|| {
            // SAFETY: only this thread changes its network namespace, before it opens anything.
            if let Err(error) = unsafe { unshare_unsafe(UnshareFlags::NEWNET) } {
                assert_eq!(error, rustix::io::Errno::PERM);
                return;
            }
            let bridge = ["link", "add", DEVICE, "type", "bridge"];
            let added = Command::new("ip").args(bridge).status().is_ok_and(|status| status.success());
            if !added {
                return;
            }
            let mut netem = NetemThrottle::new(DelayedPackets::All, [3260].into(), None).unwrap();
            let hold = ThrottleRequest {
                resource: ResourceName::new("vg0").unwrap(),
                members: [[127, 0, 0, 2].into()].into(),
                delay: Latency::from_millis(20),
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
        trial.join().unwrap();
    }

    #[test]
    fn who_lacks_a_module_is_told_which() {
        let missing = |errno: rustix::io::Errno| with_remedy(errno.into(), NETEM).to_string();
        assert!(missing(rustix::io::Errno::NOENT).contains("perhaps it takes the kernel module sch_netem"));
        assert!(!missing(rustix::io::Errno::PERM).contains("sch_netem"), "it is not what is lacking");
    }
}
