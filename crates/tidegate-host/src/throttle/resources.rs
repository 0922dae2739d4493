//! The wanted delays for each resource: the state that throttles by packet delay keep between two calls.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use tidegate_units::{Instant, Latency, ResourceName};

use super::{ThrottleError, ThrottleRequest};

/// The time for which the rules of a resource's packets stay after its last delay. Delayed packets leave
/// before those that follow. A law that throttles and releases several times a second does not write rules
/// each time.
pub(super) const RULE_STAYS: Duration = Duration::from_secs(2);

/// Classes are numbers of four hexadecimal digits; the handles of their queues must not meet other programs'.
const MOST_RESOURCES: u16 = 4_096;

/// All of them, by name.
#[derive(Debug, Default)]
pub(super) struct ThrottledResources {
    known: BTreeMap<ResourceName, ThrottledResource>,
}

#[derive(Debug)]
pub(super) struct ThrottledResource {
    /// From 1, and of no other resource meanwhile.
    pub(super) class: u16,
    pub(super) members: BTreeSet<IpAddr>,
    pub(super) delay: Latency,
    /// The time at which the delay became zero.
    since_released: Option<Instant>,
    /// True if its packets are to be told from others.
    pub(super) ruled: bool,
}

impl ThrottledResources {
    /// Takes note of what is wanted; a resource that is not named is released. Returns true if anything but
    /// delays is different now.
    ///
    /// # Errors
    /// When there are more resources than classes.
    pub(super) fn take(&mut self, now: Instant, wanted: &[ThrottleRequest]) -> Result<bool, ThrottleError> {
        let before = self.known.len();
        let mut changed = false;
        let named: BTreeSet<_> = wanted.iter().map(|hold| &hold.resource).collect();
        for (name, resource) in &mut self.known {
            if !named.contains(name) {
                changed |= resource.want(now, Latency::ZERO);
            }
        }
        // One that is not named any more stays as long as its rule: what it holds goes before what follows.
        self.known.retain(|name, resource| resource.ruled || named.contains(name));
        changed |= self.known.len() != before;
        let mut used: BTreeSet<u16> = self.known.values().map(|resource| resource.class).collect();
        for hold in wanted {
            let resource = match self.known.entry(hold.resource.clone()) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => {
                    let class = (1..=MOST_RESOURCES).find(|class| used.insert(*class));
                    let class = class.ok_or(ThrottleError::TooMany(MOST_RESOURCES))?;
                    changed = true;
                    new.insert(ThrottledResource::new(class))
                }
            };
            if resource.members != hold.members {
                resource.members.clone_from(&hold.members);
                changed = true;
            }
            let delay = if hold.members.is_empty() { Latency::ZERO } else { hold.delay };
            changed |= resource.want(now, delay);
        }
        Ok(changed)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&ResourceName, &ThrottledResource)> {
        self.known.iter()
    }
}

impl ThrottledResource {
    fn new(class: u16) -> Self {
        Self { class, members: BTreeSet::new(), delay: Latency::ZERO, since_released: None, ruled: false }
    }

    /// Takes note of the delay that is wanted, and of whether a rule is needed for it: whether that is
    /// different now.
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
    use super::*;

    const LONG: Latency = Latency::from_millis(20);

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    fn hold(name: &str) -> ThrottleRequest {
        ThrottleRequest {
            resource: ResourceName::new(name).unwrap(),
            members: [[192, 0, 2, 1].into()].into(),
            delay: LONG,
            limits: BTreeMap::new(),
            cgroups: BTreeMap::new(),
        }
    }

    #[test]
    fn a_rule_stays_until_what_is_held_has_left() {
        let mut resource = ThrottledResource::new(1);
        assert!(!resource.want(at(0), Latency::ZERO));
        assert!(!resource.ruled, "a resource that was never throttled has no rule");
        assert!(resource.want(at(100), LONG));
        assert!(resource.ruled);
        resource.want(at(200), Latency::ZERO);
        assert!(!resource.want(at(2_100), Latency::ZERO));
        assert!(resource.ruled, "released 1.9 s ago");
        assert!(resource.want(at(2_200), Latency::ZERO));
        assert!(!resource.ruled, "released 2 s ago");
    }

    #[test]
    fn a_resource_that_is_not_named_any_more_is_let_go_first_and_then_forgotten() {
        let mut resources = ThrottledResources::default();
        resources.take(at(0), &[hold("a"), hold("b")]).unwrap();
        resources.take(at(100), &[hold("b")]).unwrap();
        let a = resources.known.get(&ResourceName::new("a").unwrap()).unwrap();
        assert_eq!((a.delay, a.ruled, a.members.len()), (Latency::ZERO, true, 1));
        resources.take(at(2_200), &[hold("b"), hold("c")]).unwrap();
        let classes: Vec<_> =
            resources.iter().map(|(name, resource)| (name.as_str(), resource.class)).collect();
        assert_eq!(classes, [("b", 2), ("c", 1)], "a's class is free again");
    }

    #[test]
    fn only_a_delay_that_changes_changes_nothing_else() {
        let mut resources = ThrottledResources::default();
        assert!(resources.take(at(0), &[hold("a")]).unwrap());
        let longer = ThrottleRequest { delay: Latency::from_millis(40), ..hold("a") };
        assert!(!resources.take(at(100), std::slice::from_ref(&longer)).unwrap());
        let another = ThrottleRequest { members: [[192, 0, 2, 2].into()].into(), ..longer };
        assert!(resources.take(at(200), &[another]).unwrap());
        assert!(!resources.take(at(300), &[]).unwrap(), "its rule is still there");
        assert!(resources.take(at(2_300), &[]).unwrap());
    }
}
