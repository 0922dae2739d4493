//! The plan of throttles that delay packets: groups of consumers that have one delay, and how long it is.
//!
//! A consumer may use several resources, each with a law and a delay of its own. The longest of them is the
//! consumer's. Members of the same resources have the same delay at all times, so they are one group, with
//! one class in the kernel. A member that has a delay of its own is a group by itself.
//!
//! Delays move with every decision, and cross. That changes the delays of classes, which is cheap, and never
//! the class of a consumer, which is not. A class changes hands only when a consumer joins or leaves a
//! resource.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use tidegate_units::{Instant, Latency, ResourceName};

use super::{ThrottleError, ThrottleInForce, ThrottleRequest};

/// The time for which packets of a group are told from others after its last delay. Delayed packets leave
/// before those that follow. A law that throttles and releases several times a second does not write rules
/// each time.
pub(super) const RULE_STAYS: Duration = Duration::from_secs(2);

/// Classes are numbers of four hexadecimal digits; the handles of their queues must not meet other programs'.
const MOST_GROUPS: u16 = 4_096;

/// The consumers of a group.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum GroupKey {
    /// The members of exactly these resources.
    Shared(BTreeSet<ResourceName>),
    /// One consumer, which has a delay of its own.
    Single(IpAddr),
}

/// Consumers that have the same delay.
#[derive(Debug)]
pub(super) struct DelayGroup {
    /// The number of its class, from 1. No other group has it meanwhile.
    pub(super) class: u16,
    /// Empty once they are members of other groups, or of none.
    pub(super) members: BTreeSet<IpAddr>,
    /// The members that it had last, if it has none any more. Packets to them may wait in its class.
    pub(super) leaving: BTreeSet<IpAddr>,
    /// The longest that any of their resources wants.
    pub(super) delay: Latency,
    /// True if the group has a delay, or had one a moment ago.
    pub(super) ruled: bool,
    /// The resources of its members.
    resources: BTreeSet<ResourceName>,
    /// The time at which the delay became zero.
    since_released: Option<Instant>,
}

/// The wish of one resource.
#[derive(Debug, Default)]
struct ResourceDelays {
    members: BTreeSet<IpAddr>,
    delay: Latency,
    own_delays: BTreeMap<IpAddr, Latency>,
}

/// The delays of all resources' members.
#[derive(Debug, Default)]
pub(super) struct DelayPlan {
    resources: BTreeMap<ResourceName, ResourceDelays>,
    groups: BTreeMap<GroupKey, DelayGroup>,
    /// Members for which there was no class left.
    left_out: BTreeSet<IpAddr>,
}

impl DelayPlan {
    /// Takes note of what is wanted; a resource that is not named is released. Returns true if anything but
    /// delays is different now: a group's members, or whether its packets are told from others.
    pub(super) fn take(&mut self, now: Instant, wanted: &[ThrottleRequest]) -> bool {
        // A class may have become free for those that had none.
        let mut regroup = self.resources.len() != wanted.len() || !self.left_out.is_empty();
        let mut resources = std::mem::take(&mut self.resources);
        for request in wanted {
            let mut resource = resources.remove(&request.resource).unwrap_or_else(|| {
                regroup = true;
                ResourceDelays::default()
            });
            if resource.members != request.members {
                resource.members.clone_from(&request.members);
                regroup = true;
            }
            regroup |= !resource.own_delays.keys().eq(request.own_delays.keys());
            resource.own_delays.clone_from(&request.own_delays);
            resource.delay = request.delay;
            self.resources.insert(request.resource.clone(), resource);
        }
        let mut changed = regroup;
        if regroup {
            self.regroup();
        }
        let resources = &self.resources;
        for (key, group) in &mut self.groups {
            let of = |name| resources.get(name).map_or(Latency::ZERO, |resource| resource.delay_of(key));
            let longest = group.resources.iter().map(of).max().unwrap_or_default();
            let delay = if group.members.is_empty() { Latency::ZERO } else { longest };
            changed |= group.want(now, delay);
        }
        // A group without members stays as long as its packets may wait: another gets its class afterwards.
        self.groups.retain(|_, group| group.ruled || !group.members.is_empty());
        changed
    }

    /// Returns the groups, in an order that stays the same while the members do.
    pub(super) fn groups(&self) -> impl Iterator<Item = &DelayGroup> {
        self.groups.values()
    }

    /// Returns the groups that members of a resource are in.
    pub(super) fn groups_of(&self, resource: &ResourceName) -> impl Iterator<Item = &DelayGroup> {
        self.groups
            .values()
            .filter(move |group| !group.members.is_empty() && group.resources.contains(resource))
    }

    /// Returns the delays of a resource that are in force. `is_in_force` tells it of a group.
    pub(super) fn in_force(
        &self,
        resource: &ResourceName,
        is_in_force: impl Fn(&DelayGroup) -> bool,
    ) -> ThrottleInForce {
        let mut in_force = ThrottleInForce::default();
        let Some(wanted) = self.resources.get(resource) else { return in_force };
        for group in self.groups_of(resource).filter(|group| is_in_force(group)) {
            let own = |address: &IpAddr| Some((*address, *wanted.own_delays.get(address)?));
            let own_delays: Vec<_> = group.members.iter().filter_map(own).collect();
            if own_delays.is_empty() {
                in_force.delay = wanted.delay;
            }
            in_force.own_delays.extend(own_delays);
        }
        in_force
    }

    /// Returns true if packets of any group are told from others.
    pub(super) fn is_ruled(&self) -> bool {
        self.groups.values().any(|group| group.ruled)
    }

    /// Says so if there were more groups than classes.
    ///
    /// # Errors
    /// Then, with one of the members that are not throttled.
    pub(super) fn room(&self) -> Result<(), ThrottleError> {
        let Some(first) = self.left_out.first() else { return Ok(()) };
        let others = self.left_out.len() - 1;
        Err(ThrottleError::NoClass { first: *first, others, most: MOST_GROUPS })
    }

    /// Divides all members into groups. A group that stays keeps its class and its delay.
    fn regroup(&mut self) {
        let mut of: BTreeMap<IpAddr, (BTreeSet<ResourceName>, bool)> = BTreeMap::new();
        for (name, resource) in &self.resources {
            for address in &resource.members {
                let (resources, is_single) = of.entry(*address).or_default();
                resources.insert(name.clone());
                *is_single |= resource.own_delays.contains_key(address);
            }
        }
        let mut members: BTreeMap<GroupKey, (BTreeSet<ResourceName>, BTreeSet<IpAddr>)> = BTreeMap::new();
        for (address, (resources, is_single)) in of {
            let key = match is_single {
                true => GroupKey::Single(address),
                false => GroupKey::Shared(resources.clone()),
            };
            members.entry(key).or_insert_with(|| (resources, BTreeSet::new())).1.insert(address);
        }
        for (key, group) in &mut self.groups {
            match members.remove(key) {
                Some((resources, members)) => {
                    (group.resources, group.members) = (resources, members);
                    group.leaving.clear();
                }
                None if group.members.is_empty() => {}
                None => group.leaving = std::mem::take(&mut group.members),
            }
        }
        let used: BTreeSet<u16> = self.groups.values().map(|group| group.class).collect();
        let mut free = (1..=MOST_GROUPS).filter(|class| !used.contains(class));
        self.left_out.clear();
        for (key, (resources, members)) in members {
            match free.next() {
                Some(class) => {
                    self.groups.insert(key, DelayGroup::new(class, resources, members));
                }
                None => self.left_out.extend(members),
            }
        }
    }
}

impl ResourceDelays {
    /// The delay of the members of a group.
    fn delay_of(&self, key: &GroupKey) -> Latency {
        let own = match key {
            GroupKey::Shared(_) => None,
            GroupKey::Single(address) => self.own_delays.get(address),
        };
        own.copied().unwrap_or(self.delay)
    }
}

impl DelayGroup {
    fn new(class: u16, resources: BTreeSet<ResourceName>, members: BTreeSet<IpAddr>) -> Self {
        let (leaving, delay) = (BTreeSet::new(), Latency::ZERO);
        Self { class, members, leaving, delay, ruled: false, resources, since_released: None }
    }

    /// Takes note of the delay that is wanted, and of whether its packets are to be told from others for it:
    /// whether that is different now.
    fn want(&mut self, now: Instant, delay: Latency) -> bool {
        let before = self.ruled;
        if delay == Latency::ZERO && self.delay > Latency::ZERO {
            self.since_released = Some(now);
        }
        self.delay = delay;
        let released = self.since_released.is_none_or(|since| now.saturating_since(since) >= RULE_STAYS);
        self.ruled = delay > Latency::ZERO || (self.ruled && !released);
        self.ruled != before
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LONG: Latency = Latency::from_millis(20);

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    fn address(last: u8) -> IpAddr {
        [192, 0, 2, last].into()
    }

    fn request(name: &str, members: &[u8], delay: Latency) -> ThrottleRequest {
        ThrottleRequest {
            resource: ResourceName::new(name).unwrap(),
            members: members.iter().map(|last| address(*last)).collect(),
            delay,
            own_delays: BTreeMap::new(),
            limits: BTreeMap::new(),
            cgroups: BTreeMap::new(),
        }
    }

    fn hold(name: &str) -> ThrottleRequest {
        request(name, &[1], LONG)
    }

    /// Each member's class and delay.
    fn classes(plan: &DelayPlan) -> BTreeMap<IpAddr, (u16, Latency)> {
        let of = |group: &DelayGroup| {
            let what = (group.class, group.delay);
            group.members.iter().map(move |address| (*address, what)).collect::<Vec<_>>()
        };
        plan.groups().flat_map(of).collect()
    }

    #[test]
    fn packets_are_told_apart_until_delayed_ones_have_left() {
        let mut group = DelayGroup::new(1, BTreeSet::new(), BTreeSet::new());
        assert!(!group.want(at(0), Latency::ZERO));
        assert!(!group.ruled, "a group that was never throttled has no rule");
        assert!(group.want(at(100), LONG));
        assert!(group.ruled);
        group.want(at(200), Latency::ZERO);
        assert!(!group.want(at(2_100), Latency::ZERO));
        assert!(group.ruled, "released 1.9 s ago");
        assert!(group.want(at(2_200), Latency::ZERO));
        assert!(!group.ruled, "released 2 s ago");
    }

    #[test]
    fn a_class_has_no_other_members_before_its_packets_have_left() {
        let mut plan = DelayPlan::default();
        plan.take(at(0), &[request("a", &[1], LONG), request("b", &[2], LONG)]);
        plan.take(at(100), &[request("b", &[2], LONG)]);
        let released: Vec<_> = plan.groups().filter(|group| group.members.is_empty()).collect();
        assert_eq!((released.len(), released[0].delay, released[0].class), (1, Latency::ZERO, 1));
        plan.take(at(200), &[request("b", &[2], LONG), request("c", &[3], LONG)]);
        assert_eq!(classes(&plan)[&address(3)].0, 3, "packets to a's member may wait in class 1");
        plan.take(at(2_200), &[request("b", &[2], LONG)]);
        plan.take(at(2_300), &[request("b", &[2], LONG), request("d", &[4], LONG)]);
        assert_eq!(classes(&plan)[&address(4)].0, 1);
    }

    #[test]
    fn only_a_delay_that_changes_changes_nothing_else() {
        let mut plan = DelayPlan::default();
        assert!(plan.take(at(0), &[hold("a")]));
        let longer = ThrottleRequest { delay: Latency::from_millis(40), ..hold("a") };
        assert!(!plan.take(at(100), std::slice::from_ref(&longer)));
        let another = ThrottleRequest { members: [address(2)].into(), ..longer };
        assert!(plan.take(at(200), &[another]));
        assert!(plan.take(at(300), &[]), "its member goes");
        assert!(!plan.take(at(400), &[]), "its class is still there");
        assert!(plan.take(at(2_400), &[]));
        assert_eq!(plan.groups().count(), 0);
    }

    #[test]
    fn the_longest_delay_of_its_resources_is_a_consumers() {
        let mut plan = DelayPlan::default();
        let wanted = |a, b| {
            let millis = |millis| Latency::from_millis(millis);
            [request("a", &[1, 2, 3], millis(a)), request("b", &[3, 4], millis(b))]
        };
        plan.take(at(0), &wanted(20, 5));
        let before = classes(&plan);
        assert_eq!(before[&address(1)], before[&address(2)], "members of the same resources");
        let delays = |plan: &DelayPlan| {
            classes(plan).values().map(|(_, delay)| delay.as_nanos() / 1_000_000).collect::<Vec<_>>()
        };
        assert_eq!(delays(&plan), [20, 20, 20, 5]);
        assert!(!plan.take(at(100), &wanted(5, 20)), "delays that cross move no member");
        assert_eq!(delays(&plan), [5, 5, 20, 20]);
        let class = |plan: &DelayPlan, last| classes(plan)[&address(last)].0;
        assert!((1..=4).all(|last| class(&plan, last) == before[&address(last)].0));
    }

    #[test]
    fn a_member_with_a_delay_of_its_own_keeps_its_class_wherever_it_is_a_member() {
        let mut plan = DelayPlan::default();
        let own = |millis| ThrottleRequest {
            own_delays: [(address(1), Latency::from_millis(millis))].into(),
            ..request("a", &[1, 2], LONG)
        };
        plan.take(at(0), &[own(5)]);
        let class = classes(&plan)[&address(1)].0;
        assert_eq!(classes(&plan)[&address(1)].1, Latency::from_millis(5));
        assert_eq!(classes(&plan)[&address(2)].1, LONG);
        assert!(!plan.take(at(100), &[own(70)]), "a longer delay of its own");
        assert!(plan.take(at(200), &[own(5), request("b", &[1], Latency::from_millis(9))]));
        assert_eq!(classes(&plan)[&address(1)], (class, Latency::from_millis(9)));
    }

    #[test]
    fn more_groups_than_classes_leave_the_others_throttled() {
        let requests: Vec<_> = (0..=MOST_GROUPS)
            .map(|number| ThrottleRequest {
                members: [std::net::Ipv4Addr::from(0x0a00_0000 + u32::from(number)).into()].into(),
                ..hold(&format!("r{number:05}"))
            })
            .collect();
        let mut plan = DelayPlan::default();
        plan.take(at(0), &requests);
        assert_eq!(classes(&plan).len(), usize::from(MOST_GROUPS));
        let refused = plan.room().unwrap_err().to_string();
        assert!(refused.contains("10.0.16.0 and 0 others are not throttled"), "{refused}");
        plan.take(at(100), &requests[1..]);
        assert!(plan.room().is_err(), "the class of the one that left is not free yet");
        plan.take(at(2_200), &requests[1..]);
        plan.take(at(2_300), &requests[1..]);
        assert!(plan.room().is_ok());
    }

    /// Requests of eight resources, whose delays move by themselves. Consumer n uses resources n and n + 1.
    fn moving(delays: &[u64]) -> Vec<ThrottleRequest> {
        let count = delays.len();
        let request = |(number, delay): (usize, &u64)| {
            let members = [number as u8 + 1, ((number + count - 1) % count) as u8 + 1];
            request(&format!("r{number}"), &members, Latency::from_millis(*delay))
        };
        delays.iter().enumerate().map(request).collect()
    }

    proptest! {
        #[test]
        fn delays_that_move_by_themselves_move_no_member(
            steps in prop::collection::vec(prop::collection::vec(1_u64..100, 8), 2..30),
        ) {
            let mut plan = DelayPlan::default();
            plan.take(at(0), &moving(&steps[0]));
            let before = classes(&plan);
            for (step, delays) in (1..).zip(&steps[1..]) {
                prop_assert!(!plan.take(at(100 * step), &moving(delays)));
                for (number, (address, (class, delay))) in classes(&plan).into_iter().enumerate() {
                    prop_assert_eq!(class, before[&address].0);
                    let longest = delays[number].max(delays[(number + 1) % delays.len()]);
                    prop_assert_eq!(delay, Latency::from_millis(longest));
                }
            }
        }

        #[test]
        fn no_class_is_of_two_groups(
            steps in prop::collection::vec(
                prop::collection::vec((prop::collection::btree_set(0_u8..6, 0..5), any::<bool>()), 0..5),
                1..20,
            ),
        ) {
            let mut plan = DelayPlan::default();
            for (step, resources) in (0..).zip(steps) {
                let requests: Vec<_> = resources.iter().enumerate().map(|(number, (members, held))| {
                    let members: Vec<_> = members.iter().copied().collect();
                    let delay = if *held { LONG } else { Latency::ZERO };
                    request(&format!("r{number}"), &members, delay)
                }).collect();
                plan.take(at(700 * step), &requests);
                let used: BTreeSet<_> = plan.groups().map(|group| group.class).collect();
                prop_assert_eq!(used.len(), plan.groups().count());
                let members = requests.iter().flat_map(|request| &request.members);
                let members: BTreeSet<_> = members.copied().collect();
                prop_assert!(classes(&plan).keys().eq(&members), "every member has a class");
            }
        }
    }
}
