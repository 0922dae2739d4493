//! Assignment of slots to hosts. Pure: the blocks that were read go in, the next step comes out.
//!
//! A slot belongs to the host whose block stands in it and changes. There is no lock on the medium: a host
//! that finds a free slot writes its block, waits, and reads it again. If two hosts write to one slot, one
//! block remains, and the other host looks for another slot. Should a write be delayed for longer than that
//! wait, two hosts have one slot. Each then finds the other's block in its place, and the host with the
//! greater incarnation gives way.

use std::time::Duration;

use tidegate_units::{HostName, Instant};

use crate::name::Incarnation;
use crate::wire::Message;

/// A slot whose block has not changed for so many intervals is free for a host that was told to use it, or
/// was there before.
const SILENT_INTERVALS: u32 = 3;

/// For others it is free only after so many, and only when there is no slot that was never used.
const ABANDONED_INTERVALS: u32 = 30;

/// A slot as we have seen it.
#[derive(Debug, Clone)]
pub(crate) struct SeenSlot {
    pub(crate) content: SlotContent,
    /// The time when we last saw its block change; at first, the time when we first saw it.
    pub(crate) changed: Instant,
    /// It has changed under our eyes.
    pub(crate) alive: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SlotContent {
    /// Never used.
    Empty,
    /// A host's.
    Used { host: HostName, incarnation: Incarnation, leaving: bool },
    /// Something that we cannot read.
    Unreadable,
}

impl SlotContent {
    pub(crate) fn of(message: Option<&Message>) -> Self {
        match message {
            None => Self::Empty,
            Some(Message { sender, leaving, .. }) => {
                Self::Used { host: sender.host.clone(), incarnation: sender.incarnation, leaving: *leaving }
            }
        }
    }
}

/// The next step of a host without a slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SlotChoice {
    /// Write to this slot, and look whether it stays.
    Claim(usize),
    /// Look again later, because of this.
    Wait(String),
}

pub(crate) struct SlotChooser<'a> {
    pub(crate) host: &'a HostName,
    pub(crate) interval: Duration,
    /// Told to use this slot.
    pub(crate) configured: Option<usize>,
    /// The slot at which the search begins. It differs between hosts, so that they do not all want the same
    /// one.
    pub(crate) start: usize,
}

impl SlotChooser<'_> {
    pub(crate) fn choose(&self, now: Instant, slots: &[SeenSlot]) -> SlotChoice {
        match self.configured {
            Some(index) => self.choose_configured(now, index, slots),
            None => self.choose_free(now, slots),
        }
    }

    fn choose_configured(&self, now: Instant, index: usize, slots: &[SeenSlot]) -> SlotChoice {
        let Some(slot) = slots.get(index) else {
            return SlotChoice::Wait(format!(
                "there is no slot {index}: the file has {}, from 0",
                slots.len()
            ));
        };
        let silent = self.is_silent(now, slot, SILENT_INTERVALS);
        match &slot.content {
            SlotContent::Empty | SlotContent::Used { leaving: true, .. } => SlotChoice::Claim(index),
            SlotContent::Used { .. } | SlotContent::Unreadable if silent => SlotChoice::Claim(index),
            SlotContent::Used { host, .. } if host == self.host => SlotChoice::Wait(format!(
                "slot {index} has our own name in it: is our former self, or another one, alive?"
            )),
            SlotContent::Used { host, .. } => SlotChoice::Wait(format!("slot {index} is in use by `{host}`")),
            SlotContent::Unreadable => SlotChoice::Wait(format!("slot {index} holds what cannot be read")),
        }
    }

    fn choose_free(&self, now: Instant, slots: &[SeenSlot]) -> SlotChoice {
        // Our former self's slot, so that a host that starts often does not use up all slots.
        let ours = slots.iter().position(|slot| match &slot.content {
            SlotContent::Used { host, .. } => host == self.host,
            _ => false,
        });
        if let Some(index) = ours {
            let slot = &slots[index];
            if is_left(slot) || self.is_silent(now, slot, SILENT_INTERVALS) {
                return SlotChoice::Claim(index);
            }
            if !slot.alive {
                return SlotChoice::Wait(format!(
                    "slot {index} has our own name in it: waiting whether it is alive"
                ));
            }
        }
        let order = || (0..slots.len()).map(|offset| (self.start + offset) % slots.len());
        let abandoned = |index: &usize| self.is_silent(now, &slots[*index], ABANDONED_INTERVALS);
        order()
            .find(|index| slots[*index].content == SlotContent::Empty)
            .or_else(|| order().find(|index| is_left(&slots[*index])))
            .or_else(|| order().find(abandoned))
            .map_or_else(
                || SlotChoice::Wait(format!("all {} slots are in use", slots.len())),
                SlotChoice::Claim,
            )
    }

    fn is_silent(&self, now: Instant, slot: &SeenSlot, intervals: u32) -> bool {
        now.saturating_since(slot.changed) > self.interval.saturating_mul(intervals)
    }
}

fn is_left(slot: &SeenSlot) -> bool {
    matches!(slot.content, SlotContent::Used { leaving: true, .. })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * 1_000_000_000)
    }

    fn used(name: &str, changed: u64, alive: bool) -> SeenSlot {
        let host = HostName::new(name).unwrap();
        let content = SlotContent::Used { host, incarnation: Incarnation(1), leaving: false };
        SeenSlot { content, changed: at(changed), alive }
    }

    fn empty() -> SeenSlot {
        SeenSlot { content: SlotContent::Empty, changed: at(0), alive: false }
    }

    fn left(name: &str) -> SeenSlot {
        let host = HostName::new(name).unwrap();
        let content = SlotContent::Used { host, incarnation: Incarnation(1), leaving: true };
        SeenSlot { content, changed: at(0), alive: false }
    }

    fn choose(configured: Option<usize>, now: u64, slots: &[SeenSlot]) -> SlotChoice {
        let host = HostName::new("me").unwrap();
        SlotChooser { host: &host, interval: Duration::from_secs(2), configured, start: 1 }
            .choose(at(now), slots)
    }

    fn waits(choice: &SlotChoice, because: &str) {
        assert!(matches!(choice, SlotChoice::Wait(why) if why.contains(because)), "{choice:?}");
    }

    #[test]
    fn a_free_slot_is_looked_for_from_the_own_start_on() {
        assert_eq!(choose(None, 0, &[empty(), used("a", 0, false), empty()]), SlotChoice::Claim(2));
        assert_eq!(choose(None, 0, &[empty(), used("a", 0, false)]), SlotChoice::Claim(0));
        assert_eq!(choose(None, 0, &[left("b"), used("a", 0, false)]), SlotChoice::Claim(0));
        waits(&choose(None, 0, &[used("b", 0, false), used("a", 0, false)]), "all 2 slots are in use");
    }

    #[test]
    fn the_slot_of_a_dead_host_is_taken_only_when_nothing_else_is_left() {
        let slots = [used("a", 0, true), used("b", 50, true)];
        waits(&choose(None, 60, &slots), "in use");
        assert_eq!(choose(None, 61, &slots), SlotChoice::Claim(0));
        assert_eq!(choose(None, 61, &[used("a", 0, true), empty()]), SlotChoice::Claim(1));
    }

    #[test]
    fn a_host_that_starts_again_takes_its_former_slot_when_nobody_lives_there() {
        waits(&choose(None, 6, &[empty(), used("me", 0, false)]), "our own name");
        assert_eq!(choose(None, 7, &[empty(), used("me", 0, false)]), SlotChoice::Claim(1));
        assert_eq!(choose(None, 0, &[empty(), left("me")]), SlotChoice::Claim(1));
        // Another host of our name lives there: it is not disturbed.
        assert_eq!(choose(None, 6, &[empty(), used("me", 5, true)]), SlotChoice::Claim(0));
    }

    #[test]
    fn a_configured_slot_is_waited_for_while_somebody_lives_there() {
        assert_eq!(choose(Some(1), 0, &[used("a", 0, false), empty()]), SlotChoice::Claim(1));
        waits(&choose(Some(0), 6, &[used("a", 0, false)]), "in use by `a`");
        assert_eq!(choose(Some(0), 7, &[used("a", 0, false)]), SlotChoice::Claim(0));
        waits(&choose(Some(3), 7, &[used("a", 0, false)]), "there is no slot 3: the file has 1, from 0");
        let unreadable = SeenSlot { content: SlotContent::Unreadable, ..empty() };
        waits(&choose(Some(0), 1, std::slice::from_ref(&unreadable)), "cannot be read");
        assert_eq!(choose(Some(0), 7, &[unreadable]), SlotChoice::Claim(0));
    }
}
