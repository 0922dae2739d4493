//! The throttle `netem`: a class with a delay per resource, chosen by an nftables rule per resource.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::io;

use tidegate_units::{Instant, Latency, ResourceName};

use super::interface::{LOOK_AGAIN, ROOT_STAYS, Routes, claim, name_of, refused};
use super::nft::{self, Part, Table};
use super::resources::{Resource, Resources};
use super::tc::{Qdisc, Tc};
use super::{Hold, Packets, ThrottleError};

/// Delays packets by traffic control.
///
/// At rest, when nobody is held, there are no rules and, after a minute, no queueing disciplines; the sets of members are
/// always in the kernel, for people to see.
#[derive(Debug)]
pub struct Netem {
    tc: Tc,
    packets: Packets,
    ports: BTreeSet<u16>,
    resources: Resources,
    interfaces: BTreeMap<u32, Interface>,
    routes: Routes,
    in_force: Table,
    /// When everything was compared with the kernel.
    looked: Instant,
    /// When somebody was held last.
    last_held: Option<Instant>,
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
            resources: Resources::default(),
            interfaces: BTreeMap::new(),
            routes: Routes::default(),
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
        self.resources.take(now, wanted)?;
        if self.resources.iter().any(|(_, resource)| resource.ruled) {
            self.last_held = Some(now);
        }
        let mut first_error = None;
        let names: Vec<_> = self.resources.iter().map(|(name, _)| name.clone()).collect();
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

    /// Gives the class of a resource its delay, on every interface that leads to a member.
    fn delay(&mut self, now: Instant, name: &ResourceName) -> Result<(), ThrottleError> {
        let Some(resource) = self.resources.get(name) else { return Ok(()) };
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
            match self.routes.towards(&mut self.tc, now, address) {
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

    fn set(&mut self, index: u32, class: u16, delay: Latency) -> Result<(), ThrottleError> {
        let refused = |source| refused(index, source);
        if !self.interfaces.contains_key(&index) {
            claim(&mut self.tc, index)?;
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
            self.tc.delete_root(index).map_err(|source| refused(index, source))?;
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
