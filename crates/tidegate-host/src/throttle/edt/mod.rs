//! The throttle `edt`: a program at the root of an interface gives the packets of members an earliest
//! departure time, and fq holds them until then.
//!
//! Everything hangs under a root like that of netem's device, so it is found, told from others' and removed
//! the same way. A program at clsact, the usual place, would need care for other programs there. It would
//! leave fq to be the root, which all other packets would pass as well.

mod program;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;

use tidegate_ebpf::edt::{self, RELEASED};
use tidegate_units::{Instant, Latency};

pub(super) use program::{delay_packets, release};

use self::program::EdtProgram;
use super::interface::{ConsumerRoutes, LOOK_AGAIN, STAYS, called, claim, refused};
use super::plan::{DelayGroup, DelayPlan, RULE_STAYS};
use super::remedy::{FILTER, FQ, with_remedy};
use super::tc::{FairQueue, TrafficControl, class_id};
use super::{DelayedPackets, ThrottleError, ThrottleInForce, ThrottleRequest};

/// The class of all delayed packets; their delays are in the packets.
const CLASS: u16 = 1;

/// Delays packets by their departure times.
///
/// At rest, when nothing is throttled, the program is in memory and nowhere attached, and its maps are empty:
/// nothing else of it is in the kernel. After the last release, its root stays on the interface for a minute.
#[derive(Debug)]
pub struct Edt {
    tc: TrafficControl,
    program: EdtProgram,
    plan: DelayPlan,
    routes: ConsumerRoutes,
    /// The interfaces that have all they need.
    interfaces: BTreeSet<u32>,
    /// The members in the program's maps.
    members: BTreeMap<IpAddr, Member>,
    delays: BTreeMap<u32, Latency>,
    /// True if `members` are as wanted, so that only a change of what is wanted can change that.
    settled: bool,
    /// The time of the last comparison with the kernel.
    looked: Instant,
    /// The last time that a consumer was throttled.
    last_held: Option<Instant>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Member {
    slot: u32,
    /// The time at which it came to its slot.
    since: Instant,
}

/// A change of an address in the program's maps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    Put(u32),
    Remove,
}

impl Edt {
    /// Delays packets that come from `ports`, here or behind the interface `array`. Loads the program;
    /// nothing is in any packet's way yet.
    ///
    /// # Errors
    /// When the kernel cannot be asked, or does not take the program.
    pub fn new(packets: DelayedPackets, ports: &BTreeSet<u16>, array: Option<&str>) -> io::Result<Self> {
        Ok(Self {
            tc: TrafficControl::open()?,
            program: EdtProgram::load(packets, ports, class_id(CLASS))?,
            plan: DelayPlan::default(),
            routes: ConsumerRoutes::new(array),
            interfaces: BTreeSet::new(),
            members: BTreeMap::new(),
            delays: BTreeMap::new(),
            settled: true,
            looked: Instant::ZERO,
            last_held: None,
        })
    }

    /// Puts the wanted delays into force, for all resources; one that is not named is released. A delay in
    /// force already costs nothing. Every change is read back.
    ///
    /// # Errors
    /// When a part could not be done. The rest was done, and the next call tries that part again.
    pub fn apply(&mut self, now: Instant, wanted: &[ThrottleRequest]) -> Result<(), ThrottleError> {
        if self.plan.take(now, wanted) {
            self.settled = false;
        }
        if self.plan.is_ruled() {
            self.last_held = Some(now);
        }
        let mut first_error = self.plan.room().err();
        for step in
            [Self::write_delays, Self::write_members, Self::reach, Self::look_again, Self::leave_interfaces]
        {
            if let Err(error) = step(self, now) {
                first_error.get_or_insert(error);
            }
        }
        first_error.map_or(Ok(()), Err)
    }

    /// Returns true if a resource's delays are zero, or those of any of its members are in force. In force
    /// means that it is in the program's map, some member has it, and the program is where packets pass.
    pub(super) fn holds(&self, wanted: &ThrottleRequest) -> bool {
        let mut throttled = self.plan.groups_of(&wanted.resource).filter(|group| group.delay > Latency::ZERO);
        wanted.is_released() || throttled.any(|group| self.is_in_force(group))
    }

    /// Returns the delays in force for a resource.
    pub(super) fn delays_in_force(&self, wanted: &ThrottleRequest) -> ThrottleInForce {
        self.plan.in_force(&wanted.resource, |group| self.is_in_force(group))
    }

    fn is_in_force(&self, group: &DelayGroup) -> bool {
        let slot = u32::from(group.class);
        let has_it = |address: &IpAddr| self.members.get(address).is_some_and(|member| member.slot == slot);
        self.delays.get(&slot) == Some(&group.delay)
            && group.members.iter().any(has_it)
            && !self.interfaces.is_empty()
    }

    /// Returns true if packets may be delayed more than is wanted: the program's maps could not be changed.
    pub(super) fn is_stuck(&self) -> bool {
        let wanted = |slot: &u32| {
            let of_slot = |group: &&DelayGroup| u32::from(group.class) == *slot;
            self.plan.groups().find(of_slot).map_or(Latency::ZERO, |group| group.delay)
        };
        let members = self.slots();
        let is_delayed = |slot| self.delays.get(slot).is_some_and(|delay| *delay > Latency::ZERO);
        self.delays.iter().any(|(slot, delay)| *delay > wanted(slot))
            || self.members.iter().any(|(address, member)| {
                member.slot != RELEASED && is_delayed(&member.slot) && !members.contains_key(address)
            })
    }

    /// One entry of a map for each group, however many members it has.
    fn write_delays(&mut self, _: Instant) -> Result<(), ThrottleError> {
        let mut wanted: BTreeMap<u32, Latency> =
            self.delays.keys().map(|slot| (*slot, Latency::ZERO)).collect();
        wanted.extend(self.plan.groups().map(|group| (group.class.into(), group.delay)));
        for (slot, delay) in wanted {
            if self.delays.get(&slot).copied().unwrap_or_default() != delay {
                self.program.set_delay(slot, delay).map_err(ThrottleError::Program)?;
                self.delays.insert(slot, delay);
            }
        }
        Ok(())
    }

    fn write_members(&mut self, now: Instant) -> Result<(), ThrottleError> {
        if self.settled {
            return Ok(());
        }
        let wanted = self.slots();
        let changes = changes(&self.members, &wanted, now);
        let most = edt::MOST_MEMBERS as usize;
        let mut left_out = Vec::new();
        for (address, change) in changes {
            match change {
                Change::Remove => {
                    self.program.remove(address).map_err(ThrottleError::Program)?;
                    self.members.remove(&address);
                }
                Change::Put(_) if !self.members.contains_key(&address) && self.members.len() >= most => {
                    left_out.push(address);
                }
                Change::Put(slot) => {
                    self.program.put(address, slot).map_err(ThrottleError::Program)?;
                    self.members.insert(address, Member { slot, since: now });
                }
            }
        }
        if let Some(first) = left_out.first() {
            return Err(ThrottleError::NoRoom { first: *first, others: left_out.len() - 1, most });
        }
        // A released member is forgotten later.
        self.settled = self.members.values().all(|member| member.slot != RELEASED);
        Ok(())
    }

    /// The slot of each member that is throttled, or was a moment ago.
    fn slots(&self) -> BTreeMap<IpAddr, u32> {
        let ruled = self.plan.groups().filter(|group| group.ruled);
        let of = |group: &DelayGroup| {
            let slot = u32::from(group.class);
            group.members.iter().map(move |address| (*address, slot)).collect::<Vec<_>>()
        };
        ruled.flat_map(of).collect()
    }

    /// Prepares every interface that leads to a throttled consumer.
    fn reach(&mut self, now: Instant) -> Result<(), ThrottleError> {
        let mut towards = BTreeSet::new();
        let mut first_error = None;
        let held = self.plan.groups().filter(|group| group.delay > Latency::ZERO);
        for address in held.flat_map(|group| &group.members) {
            match self.routes.towards(&mut self.tc, now, *address) {
                Ok(interfaces) => towards.extend(interfaces),
                Err(error) => {
                    first_error.get_or_insert(error);
                }
            }
        }
        for interface in towards {
            if !self.interfaces.contains(&interface)
                && let Err(error) = self.prepare(interface)
            {
                first_error.get_or_insert(error);
            }
        }
        first_error.map_or(Ok(()), Err)
    }

    /// The queue first, then the program that sends packets to it.
    fn prepare(&mut self, index: u32) -> Result<(), ThrottleError> {
        let refused = |source| refused(index, source);
        claim(&mut self.tc, index)?;
        self.tc.add_fair_class(index, CLASS).map_err(|source| refused(with_remedy(source, FQ)))?;
        self.attach(index).map_err(|source| refused(with_remedy(source, FILTER)))?;
        let as_wanted = |fair: FairQueue| fair == FairQueue::WANTED;
        if !self.is_prepared(index, as_wanted).map_err(refused)? {
            return Err(ThrottleError::ReadBack { what: format!("the queue on {}", called(index)) });
        }
        self.interfaces.insert(index);
        Ok(())
    }

    /// Puts the program at our root on an interface.
    pub(super) fn attach(&mut self, index: u32) -> io::Result<()> {
        self.tc.add_filter(index, self.program.fd()?, edt::PROGRAM)
    }

    fn is_prepared(&mut self, index: u32, as_wanted: impl Fn(FairQueue) -> bool) -> io::Result<bool> {
        let queue = self.tc.qdiscs()?.into_iter().any(|qdisc| {
            qdisc.interface == index
                && qdisc.is_ours()
                && qdisc.class() == CLASS
                && qdisc.fair.is_some_and(&as_wanted)
        });
        Ok(queue && self.tc.filters(index)?.iter().any(|filter| filter.program == self.program.id()))
    }

    /// Verifies that interfaces still have what they were given. If something was removed, it is put there
    /// anew the next time. An fq that others have set otherwise since is left to them.
    fn look_again(&mut self, now: Instant) -> Result<(), ThrottleError> {
        if now.saturating_since(self.looked) < LOOK_AGAIN {
            return Ok(());
        }
        self.looked = now;
        let mut lost = Vec::new();
        for index in self.interfaces.clone() {
            // Without our root the kernel says of its filters that there is no such thing.
            if !self.is_prepared(index, |_| true).unwrap_or(false) {
                self.interfaces.remove(&index);
                lost.push(called(index));
            }
        }
        match lost.as_slice() {
            [] => Ok(()),
            lost => Err(ThrottleError::ReadBack { what: format!("queueing on {}", lost.join(", ")) }),
        }
    }

    /// Removes our root from interfaces when nothing was throttled for a while.
    fn leave_interfaces(&mut self, now: Instant) -> Result<(), ThrottleError> {
        if self.last_held.is_none_or(|last| now.saturating_since(last) < STAYS) {
            return Ok(());
        }
        while let Some(index) = self.interfaces.pop_first() {
            self.tc.delete_root(index).map_err(|source| refused(index, source))?;
        }
        self.last_held = None;
        Ok(())
    }
}

/// Returns the changes that turn the present members into the wanted ones. A member that is not wanted any
/// more has no delay for a while before it is removed. Its delayed packets leave before those that follow.
fn changes(
    there: &BTreeMap<IpAddr, Member>,
    wanted: &BTreeMap<IpAddr, u32>,
    now: Instant,
) -> Vec<(IpAddr, Change)> {
    let mut changes = Vec::new();
    for (address, member) in there.iter().filter(|(address, _)| !wanted.contains_key(*address)) {
        if member.slot != RELEASED {
            changes.push((*address, Change::Put(RELEASED)));
        } else if now.saturating_since(member.since) >= RULE_STAYS {
            changes.push((*address, Change::Remove));
        }
    }
    // Who goes makes room first.
    let is_new =
        |(address, slot): &(&IpAddr, &u32)| there.get(*address).map(|member| member.slot) != Some(**slot);
    changes.extend(wanted.iter().filter(is_new).map(|(address, slot)| (*address, Change::Put(*slot))));
    changes
}
