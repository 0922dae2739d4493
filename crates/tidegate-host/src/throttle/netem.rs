//! The throttle `netem`: a class with a delay per resource, chosen by an nftables rule per resource.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketType, netdevice, socket};
use tidegate_units::{Instant, Latency, ResourceName};

use super::nft::{self, Part, Table};
use super::tc::{Qdisc, Tc};
use super::{Hold, Packets, ThrottleError};

/// The rule of a resource stays this long after its last delay: what the class still holds goes before what follows, and
/// a law that begins and ends to hold several times a second does not replace the table each time.
const RULE_STAYS: Duration = Duration::from_secs(2);

/// Our root leaves an interface after this time without rules.
const ROOT_STAYS: Duration = Duration::from_secs(60);

/// What is in force is compared with the kernel this often: others may have removed it.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// Routes are asked for again after this time.
const ROUTE_STAYS: Duration = Duration::from_secs(10);

/// Classes are numbers of four hexadecimal digits; the handles of their queues must not meet other programs'.
const MOST_RESOURCES: u16 = 4_096;

/// Delays packets by traffic control.
///
/// At rest, when nobody is held, there are no rules and, after a minute, no queueing disciplines; the sets of members are
/// always in the kernel, for people to see.
#[derive(Debug)]
pub struct Netem {
    tc: Tc,
    packets: Packets,
    ports: BTreeSet<u16>,
    resources: BTreeMap<ResourceName, Resource>,
    interfaces: BTreeMap<u32, Interface>,
    routes: BTreeMap<IpAddr, (u32, Instant)>,
    in_force: Table,
    /// When everything was compared with the kernel.
    looked: Instant,
    /// When somebody was held last.
    last_held: Option<Instant>,
}

#[derive(Debug)]
struct Resource {
    class: u16,
    members: BTreeSet<IpAddr>,
    delay: Latency,
    /// When the delay became zero.
    since_released: Option<Instant>,
    ruled: bool,
}

impl Resource {
    fn new(class: u16) -> Self {
        Self { class, members: BTreeSet::new(), delay: Latency::ZERO, since_released: None, ruled: false }
    }

    /// Takes note of the delay that is wanted, and of whether a rule is needed for it.
    fn want(&mut self, now: Instant, delay: Latency) {
        if delay == Latency::ZERO && self.delay > Latency::ZERO {
            self.since_released = Some(now);
        }
        self.delay = delay;
        let released = self.since_released.is_none_or(|since| now.saturating_since(since) >= RULE_STAYS);
        self.ruled = delay > Latency::ZERO || (self.ruled && !released);
    }
}

/// What an interface has of ours, by class.
#[derive(Debug, Default)]
struct Interface {
    delays: BTreeMap<u16, Latency>,
}

impl Netem {
    /// Delays packets that come from `ports`. Nothing is changed yet.
    ///
    /// # Errors
    /// When the kernel cannot be asked.
    pub fn new(packets: Packets, ports: BTreeSet<u16>) -> io::Result<Self> {
        Ok(Self {
            tc: Tc::open()?,
            packets,
            ports,
            resources: BTreeMap::new(),
            interfaces: BTreeMap::new(),
            routes: BTreeMap::new(),
            in_force: Table::default(),
            looked: Instant::ZERO,
            last_held: None,
        })
    }

    /// Puts into force what is wanted, for all resources; one that is not named is let go. What is in force already costs
    /// nothing. Every change is read back.
    ///
    /// # Errors
    /// What could not be done, while the rest was: the next call tries it again.
    pub fn apply(&mut self, now: Instant, wanted: &[Hold]) -> Result<(), ThrottleError> {
        self.take(now, wanted)?;
        let mut first_error = None;
        let names: Vec<_> = self.resources.keys().cloned().collect();
        for name in names {
            if let Err(error) = self.delay(now, &name) {
                first_error.get_or_insert(error);
            }
        }
        for step in [Self::write_table, Self::look_again, Self::leave_interfaces] {
            if let Err(error) = step(self, now) {
                first_error.get_or_insert(error);
            }
        }
        first_error.map_or(Ok(()), Err)
    }

    /// Takes note of what is wanted.
    fn take(&mut self, now: Instant, wanted: &[Hold]) -> Result<(), ThrottleError> {
        let named: BTreeSet<_> = wanted.iter().map(|hold| &hold.resource).collect();
        for (name, resource) in &mut self.resources {
            if !named.contains(name) {
                resource.want(now, Latency::ZERO);
            }
        }
        // One that is not named any more stays as long as its rule: what it holds goes before what follows.
        self.resources.retain(|name, resource| resource.ruled || named.contains(name));
        let mut used: BTreeSet<u16> = self.resources.values().map(|resource| resource.class).collect();
        for hold in wanted {
            let resource = match self.resources.entry(hold.resource.clone()) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => {
                    let class = (1..=MOST_RESOURCES).find(|class| used.insert(*class));
                    let class = class.ok_or(ThrottleError::TooMany(MOST_RESOURCES))?;
                    new.insert(Resource::new(class))
                }
            };
            if resource.members != hold.members {
                resource.members.clone_from(&hold.members);
            }
            resource.want(now, if hold.members.is_empty() { Latency::ZERO } else { hold.delay });
        }
        if self.resources.values().any(|resource| resource.ruled) {
            self.last_held = Some(now);
        }
        Ok(())
    }

    /// Gives the class of a resource its delay, on every interface that leads to a member.
    fn delay(&mut self, now: Instant, name: &ResourceName) -> Result<(), ThrottleError> {
        let resource = &self.resources[name];
        let (class, delay) = (resource.class, resource.delay);
        let to_reach: Vec<_> = match delay {
            Latency::ZERO => Vec::new(),
            _ => resource.members.iter().copied().collect(),
        };
        let mut towards: BTreeSet<u32> = self
            .interfaces
            .iter()
            .filter(|(_, interface)| interface.delays.contains_key(&class))
            .map(|(index, _)| *index)
            .collect();
        let mut first_error = None;
        for address in to_reach {
            match self.route(now, address) {
                Ok(interface) => {
                    towards.insert(interface);
                }
                Err(error) => {
                    first_error.get_or_insert(error);
                }
            }
        }
        for interface in towards {
            if self.interfaces.get(&interface).and_then(|known| known.delays.get(&class)) != Some(&delay)
                && let Err(error) = self.set(interface, class, delay)
            {
                first_error.get_or_insert(error);
            }
        }
        first_error.map_or(Ok(()), Err)
    }

    fn route(&mut self, now: Instant, address: IpAddr) -> Result<u32, ThrottleError> {
        if let Some((interface, asked)) = self.routes.get(&address)
            && now.saturating_since(*asked) < ROUTE_STAYS
        {
            return Ok(*interface);
        }
        let interface = self
            .tc
            .interface_towards(address)
            .map_err(|source| ThrottleError::Unreachable { address, source })?;
        self.routes.retain(|_, (_, asked)| now.saturating_since(*asked) < ROUTE_STAYS);
        self.routes.insert(address, (interface, now));
        Ok(interface)
    }

    fn set(&mut self, index: u32, class: u16, delay: Latency) -> Result<(), ThrottleError> {
        let refused = |source| ThrottleError::TrafficControl { interface: name_of(index), source };
        if !self.interfaces.contains_key(&index) {
            let root = self.root(index).map_err(refused)?;
            if root.as_ref().is_some_and(Qdisc::is_ours) {
                // It lost something that it was given. The kernel does not take it twice.
                self.tc.delete_root(index).map_err(refused)?;
            } else if let Some(foreign) = root.filter(|root| !root.is_default()) {
                return Err(ThrottleError::Foreign {
                    interface: name_of(index),
                    kind: foreign.kind,
                    handle: foreign.handle >> 16,
                    remedy: "remove it, or regulate these consumers by another throttle",
                });
            }
            self.tc.add_root(index).map_err(refused)?;
            self.interfaces.insert(index, Interface::default());
        }
        let interface = self.interfaces.entry(index).or_default();
        let changed = match interface.delays.entry(class) {
            Entry::Vacant(new) => {
                self.tc.add_class(index, class, delay.to_duration()).map_err(refused).map(|()| {
                    new.insert(delay);
                })
            }
            Entry::Occupied(mut known) => {
                self.tc.set_delay(index, class, delay.to_duration()).map_err(refused).map(|()| {
                    known.insert(delay);
                })
            }
        };
        if changed.is_err() || !self.has(index, class, delay).map_err(refused)? {
            // Whatever happened to it: it is put there anew the next time.
            self.interfaces.remove(&index);
            changed?;
            return Err(ThrottleError::ReadBack { what: format!("the delay on {}", name_of(index)) });
        }
        Ok(())
    }

    fn root(&mut self, interface: u32) -> io::Result<Option<Qdisc>> {
        Ok(self.tc.qdiscs()?.into_iter().find(|qdisc| qdisc.interface == interface && qdisc.is_root()))
    }

    fn has(&mut self, interface: u32, class: u16, delay: Latency) -> io::Result<bool> {
        Ok(self.tc.qdiscs()?.iter().any(|qdisc| is_class(qdisc, interface, class, delay)))
    }

    fn write_table(&mut self, _: Instant) -> Result<(), ThrottleError> {
        let parts = self
            .resources
            .iter()
            .map(|(name, resource)| {
                let Resource { class, ruled, delay, .. } = *resource;
                let part = Part { class, members: resource.members.clone(), ruled, delay };
                (set_name(name, resource.class), part)
            })
            .collect();
        let table = Table { parts, packets: self.packets, ports: self.ports.clone() };
        if !table.same_rules(&self.in_force) {
            if let Err(error) = nft::change(&self.in_force, &table) {
                // Perhaps because somebody else changed it: then all of it is put there anew.
                self.in_force = Table::default();
                return Err(ThrottleError::Rules(error));
            }
            self.in_force = table;
            return self.check_table();
        }
        Ok(())
    }

    /// Whether the kernel still has what it was given: whoever removed it, it is put there anew the next time.
    fn look_again(&mut self, now: Instant) -> Result<(), ThrottleError> {
        if now.saturating_since(self.looked) < LOOK_AGAIN {
            return Ok(());
        }
        self.looked = now;
        if !self.in_force.parts.is_empty() {
            self.check_table()?;
        }
        self.check_interfaces()
    }

    fn check_table(&mut self) -> Result<(), ThrottleError> {
        let seen = nft::read().map_err(ThrottleError::Rules)?.unwrap_or_default();
        if seen.agrees_with(&self.in_force) {
            return Ok(());
        }
        self.in_force = Table::default();
        Err(ThrottleError::ReadBack { what: "the nftables table `tidegate`".to_owned() })
    }

    fn check_interfaces(&mut self) -> Result<(), ThrottleError> {
        if self.interfaces.is_empty() {
            return Ok(());
        }
        let ask = |source| ThrottleError::TrafficControl { interface: "any interface".to_owned(), source };
        let qdiscs = self.tc.qdiscs().map_err(ask)?;
        let is_there = |index: u32, class: u16, delay: Latency| {
            qdiscs.iter().any(|qdisc| is_class(qdisc, index, class, delay))
        };
        let gone = |index: &u32, known: &Interface| {
            known.delays.iter().any(|(class, delay)| !is_there(*index, *class, *delay))
        };
        let before = self.interfaces.len();
        self.interfaces.retain(|index, known| !gone(index, known));
        match before - self.interfaces.len() {
            0 => Ok(()),
            lost => Err(ThrottleError::ReadBack { what: format!("queueing on {lost} interfaces") }),
        }
    }

    /// Removes our root from interfaces when nobody was held for a while.
    fn leave_interfaces(&mut self, now: Instant) -> Result<(), ThrottleError> {
        if self.last_held.is_none_or(|last| now.saturating_since(last) < ROOT_STAYS) {
            return Ok(());
        }
        while let Some((index, _)) = self.interfaces.pop_first() {
            self.tc
                .delete_root(index)
                .map_err(|source| ThrottleError::TrafficControl { interface: name_of(index), source })?;
        }
        self.last_held = None;
        Ok(())
    }
}

/// Whether this is the queue of a class of ours, with that delay.
fn is_class(qdisc: &Qdisc, interface: u32, class: u16, delay: Latency) -> bool {
    qdisc.interface == interface
        && qdisc.is_ours()
        && !qdisc.is_root()
        && qdisc.class() == class
        && qdisc.delay == Some(delay.to_duration())
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

/// An interface by name, or by number when it is gone.
pub(super) fn name_of(index: u32) -> String {
    socket(AddressFamily::INET, SocketType::DGRAM, None)
        .ok()
        .and_then(|socket| netdevice::index_to_name(socket, index).ok())
        .unwrap_or_else(|| format!("interface {index}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Latency = Latency::from_millis(20);

    #[test]
    fn a_rule_stays_until_what_is_held_has_left() {
        let at = |millis: u64| Instant::from_nanos(millis * 1_000_000);
        let mut resource = Resource::new(1);
        resource.want(at(0), Latency::ZERO);
        assert!(!resource.ruled, "who was never held has no rule");
        resource.want(at(100), LONG);
        assert!(resource.ruled);
        resource.want(at(200), Latency::ZERO);
        resource.want(at(2_100), Latency::ZERO);
        assert!(resource.ruled, "released 1.9 s ago");
        resource.want(at(2_200), Latency::ZERO);
        assert!(!resource.ruled, "released 2 s ago");
    }

    #[test]
    fn a_resource_that_is_not_named_any_more_is_let_go_first_and_then_forgotten() {
        let at = |millis: u64| Instant::from_nanos(millis * 1_000_000);
        let hold = |name: &str| Hold {
            resource: ResourceName::new(name).unwrap(),
            members: [[192, 0, 2, 1].into()].into(),
            delay: LONG,
        };
        let mut netem = Netem::new(Packets::All, [3260].into()).unwrap();
        netem.take(at(0), &[hold("a"), hold("b")]).unwrap();
        netem.take(at(100), &[hold("b")]).unwrap();
        let a = &netem.resources[&ResourceName::new("a").unwrap()];
        assert_eq!((a.delay, a.ruled, a.members.len()), (Latency::ZERO, true, 1));
        netem.take(at(2_200), &[hold("b"), hold("c")]).unwrap();
        let classes: Vec<_> =
            netem.resources.iter().map(|(name, resource)| (name.as_str(), resource.class)).collect();
        assert_eq!(classes, [("b", 2), ("c", 1)], "a's class is free again");
    }
}
