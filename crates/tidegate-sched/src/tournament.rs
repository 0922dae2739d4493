//! A tournament of keys: it finds the member with the least key, and takes another key for any member.
//!
//! Every slot has a place at the bottom. The least of four neighbours goes up to the next level, until one is
//! left. A new key changes nothing but the winners on its way up, and that way follows from the slot alone. A
//! heap has to compare before it knows where to go on. It has to move others out of the way, and to note
//! their new places. Here nothing moves, and the processor fetches all that it needs at once. That counts
//! where there are thousands of members and each level is in another line of the cache.
//!
//! Members with equal keys leave in the order in which they were inserted or last updated.

use std::hint::select_unpredictable;

/// Number of keys that are compared as one group: they lie within a line of the cache.
const ARITY: usize = 4;

/// A key, when it was set, and whose it is, from the high digits to the low ones: a single comparison.
type Entry = u128;

/// Greater than any entry, since no time of setting is the greatest.
const ABSENT: Entry = Entry::MAX;

fn entry(key: u64, sequence: u32, slot: u32) -> Entry {
    (Entry::from(key) << 64) | (Entry::from(sequence) << 32) | Entry::from(slot)
}

fn key(entry: Entry) -> u64 {
    (entry >> 64) as u64
}

fn slot(entry: Entry) -> u32 {
    entry as u32
}

/// Returns which of two places has the lesser entry. Without a branch, which could not be predicted: a wrong
/// guess costs more than all comparisons.
fn lesser(entries: &[Entry; ARITY], a: usize, b: usize) -> usize {
    a ^ ((a ^ b) & usize::from(entries[b] < entries[a]).wrapping_neg())
}

/// Neighbours.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
struct Group([Entry; ARITY]);

const NOBODY: Group = Group([ABSENT; ARITY]);

/// See the module. Keys are numbers.
#[derive(Debug)]
pub(crate) struct TournamentTree {
    least: Entry,
    /// Level by level from the top: the winner of group 4g + 1 + i is in group g at i. None as long as no
    /// slot was used but the first, which wins by itself: thousands of schedulers with a flow each have no
    /// more to fetch than this.
    groups: Vec<Group>,
    /// The first group of the lowest level, whose places are the slots'. That level ends where no slot was
    /// used.
    bottom: u32,
    /// Sequence number of the next key that is set. Never the greatest number.
    sequence: u32,
}

impl TournamentTree {
    pub(crate) const fn new() -> Self {
        Self { least: ABSENT, groups: Vec::new(), bottom: 0, sequence: 0 }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.least == ABSENT
    }

    pub(crate) fn contains(&self, slot: u32) -> bool {
        let (group, place) = self.place(slot);
        match self.groups.get(group) {
            Some(Group(entries)) => entries[place] != ABSENT,
            None => slot == 0 && self.least != ABSENT,
        }
    }

    /// The slot with the least key, and that key.
    pub(crate) fn first(&self) -> Option<(u32, u64)> {
        (!self.is_empty()).then_some((slot(self.least), key(self.least)))
    }

    /// Inserts `slot`, or gives it a new key where it is a member already.
    pub(crate) fn set(&mut self, slot: u32, key: u64) {
        if slot > 0 && self.place(slot).0 >= self.groups.len() {
            self.make_room(slot);
        }
        let entry = entry(key, self.sequence, slot);
        self.sequence += 1;
        self.play(slot, entry);
        if self.sequence == u32::MAX {
            self.count_anew();
        }
    }

    /// Removes `slot`; nothing happens where it is no member.
    pub(crate) fn remove(&mut self, slot: u32) {
        if self.contains(slot) {
            self.play(slot, ABSENT);
        }
    }

    /// Returns the place of a slot.
    fn place(&self, slot: u32) -> (usize, usize) {
        (self.bottom as usize + slot as usize / ARITY, slot as usize % ARITY)
    }

    /// Gives a slot this entry, and finds who now wins against its neighbours, level by level.
    fn play(&mut self, slot: u32, mut entry: Entry) {
        if self.groups.is_empty() {
            self.least = entry;
            return;
        }
        let (mut group, mut place) = self.place(slot);
        loop {
            let Group(entries) = &mut self.groups[group];
            entries[place] = entry;
            // The others first: these comparisons need not wait for the level below.
            let other = lesser(entries, lesser(entries, place ^ 1, place ^ 2), place ^ 3);
            let other = entries[other];
            entry = select_unpredictable(other < entry, other, entry);
            if group == 0 {
                break;
            }
            (group, place) = ((group - 1) / ARITY, (group - 1) % ARITY);
            // Who went up before goes up again: no two entries are alike below their keys.
            if self.groups[group].0[place] as u64 == entry as u64 {
                return;
            }
        }
        self.least = entry;
    }

    /// Room for a slot, on a level below where this one has none.
    #[cold]
    fn make_room(&mut self, slot: u32) {
        let needed = slot / ARITY as u32;
        // A level has three times as many groups as all above it together, and one more.
        let has_room = |bottom| needed <= 3 * bottom;
        if !self.groups.is_empty() && has_room(self.bottom) {
            self.groups.resize(self.place(slot).0 + 1, NOBODY);
            return;
        }
        let members = self.members();
        while !has_room(self.bottom) {
            self.bottom = ARITY as u32 * self.bottom + 1;
        }
        self.groups.resize(self.place(slot).0 + 1, NOBODY);
        self.replay(members);
    }

    /// Counts the keys set from zero again, in the order of those that are there.
    #[cold]
    fn count_anew(&mut self) {
        let mut members = self.members();
        members.sort_unstable();
        self.sequence = members.len() as u32;
        let counted = (0..).zip(members).map(|(sequence, old)| entry(key(old), sequence, slot(old)));
        self.replay(counted.collect());
    }

    fn members(&self) -> Vec<Entry> {
        let only = self.groups.is_empty().then_some(self.least);
        let places = self.groups.iter().skip(self.bottom as usize).flat_map(|group| group.0);
        only.into_iter().chain(places).filter(|&entry| entry != ABSENT).collect()
    }

    /// From no member to these.
    fn replay(&mut self, members: Vec<Entry>) {
        self.least = ABSENT;
        self.groups.fill(NOBODY);
        for entry in members {
            self.play(slot(entry), entry);
        }
    }
}

/// Distance of the origin below the least key. The origin is put anew when a key is three times as far beyond
/// it, or behind it.
const MARGIN: u64 = 1 << 62;

/// A tournament whose keys are the low 64 bits of larger numbers, all within 2⁶² of each other.
///
/// What is compared is how far each is from an origin, which follows them from time to time.
#[derive(Debug)]
pub(crate) struct WrappingTree {
    distances: TournamentTree,
    origin: u64,
}

impl WrappingTree {
    pub(crate) const fn new() -> Self {
        Self { distances: TournamentTree::new(), origin: 0 }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.distances.is_empty()
    }

    pub(crate) fn contains(&self, slot: u32) -> bool {
        self.distances.contains(slot)
    }

    /// The slot with the least key, and that key.
    pub(crate) fn first(&self) -> Option<(u32, u64)> {
        self.distances.first().map(|(slot, distance)| (slot, self.origin.wrapping_add(distance)))
    }

    /// Inserts `slot`, or gives it a new key where it is a member already.
    pub(crate) fn set(&mut self, slot: u32, key: u64) {
        if key.wrapping_sub(self.origin) > 3 * MARGIN {
            self.move_origin(key);
        }
        self.distances.set(slot, key.wrapping_sub(self.origin));
    }

    /// Removes `slot`; nothing happens where it is no member.
    pub(crate) fn remove(&mut self, slot: u32) {
        self.distances.remove(slot);
    }

    /// Puts the origin where this key and all that are there lie beyond it.
    #[cold]
    fn move_origin(&mut self, key: u64) {
        let behind = self.first().map_or(0, |(_, least)| key.wrapping_sub(least).cast_signed().max(0));
        let origin = key.wrapping_sub(behind.unsigned_abs()).wrapping_sub(MARGIN);
        let moved = origin.wrapping_sub(self.origin);
        self.origin = origin;
        let members = self.distances.members().into_iter();
        let members = members.map(|old| old.wrapping_sub(entry(moved, 0, 0))).collect();
        self.distances.replay(members);
    }
}

#[cfg(test)]
mod tests {
    use std::cmp::Ordering;

    use proptest::prelude::*;

    use super::*;

    /// The obvious: a list in the order of setting that is searched from end to end.
    #[derive(Default)]
    struct List(Vec<(u32, u64)>);

    impl List {
        fn set(&mut self, slot: u32, key: Option<u64>) {
            self.0.retain(|&(member, _)| member != slot);
            self.0.extend(key.map(|key| (slot, key)));
        }

        fn first(&self, order: impl Fn(u64, u64) -> Ordering) -> Option<(u32, u64)> {
            self.0.iter().copied().min_by(|a, b| order(a.1, b.1))
        }

        fn contains(&self, slot: u32) -> bool {
            self.0.iter().any(|&(member, _)| member == slot)
        }
    }

    /// Some slots need one level, some all four of those that there then are.
    fn slots() -> impl Strategy<Value = u32> {
        prop_oneof![0u32..3, 0u32..24, 0u32..200]
    }

    proptest! {
        #[test]
        fn agrees_with_a_list(
            steps in prop::collection::vec((slots(), prop::option::weighted(0.7, 0u64..20)), 0..300),
            greatest in any::<bool>(),
            sets_to_the_last in 0u32..400,
        ) {
            let mut tournament = TournamentTree::new();
            tournament.sequence = u32::MAX - 1 - sets_to_the_last;
            let mut list = List::default();
            for (slot, key) in steps {
                let key = key.map(|key| if greatest { u64::MAX - key } else { key });
                list.set(slot, key);
                match key {
                    Some(key) => tournament.set(slot, key),
                    None => tournament.remove(slot),
                }
                prop_assert_eq!(tournament.first(), list.first(|a, b| a.cmp(&b)));
                prop_assert_eq!(tournament.is_empty(), list.0.is_empty());
                for slot in 0..200 {
                    prop_assert_eq!(tournament.contains(slot), list.contains(slot));
                }
            }
        }

        /// The keys of those that are there drift on and on, and keep to within 2⁶¹ of each other.
        #[test]
        fn agrees_with_a_list_around_the_circle(
            steps in prop::collection::vec((slots(), prop::option::weighted(0.7, 0u64..1 << 60),
                0u64..1 << 60), 0..300),
            from in prop_oneof![Just(0), Just(u64::MAX - (1 << 60)), Just((1 << 63) - (1 << 60)),
                any::<u64>()],
        ) {
            let (mut tournament, mut list, mut drift) = (WrappingTree::new(), List::default(), from);
            for (slot, key, step) in steps {
                drift = drift.wrapping_add(step);
                let (left, stay) = list.0.iter()
                    .partition(|member| drift.wrapping_sub(member.1).cast_signed() > 1 << 60);
                list.0 = stay;
                let left: Vec<(u32, u64)> = left;
                for (slot, _) in left {
                    tournament.remove(slot);
                }
                let key = key.map(|key| drift.wrapping_add(key));
                list.set(slot, key);
                match key {
                    Some(key) => tournament.set(slot, key),
                    None => tournament.remove(slot),
                }
                let order = |a: u64, b: u64| a.wrapping_sub(b).cast_signed().cmp(&0);
                prop_assert_eq!(tournament.first(), list.first(order));
                prop_assert_eq!(tournament.is_empty(), list.0.is_empty());
                prop_assert_eq!(tournament.contains(slot), list.contains(slot));
            }
        }
    }

    #[test]
    fn the_origin_follows_a_key_that_falls() {
        let mut tournament = WrappingTree::new();
        let mut key = 1u64 << 63;
        for slot in 0..64 {
            key = key.wrapping_sub(1 << 61);
            tournament.set(slot, key);
            tournament.set(200, key.wrapping_add(1 << 60));
            assert_eq!(tournament.first(), Some((slot, key)));
            tournament.remove(slot);
            assert_eq!(tournament.first(), Some((200, key.wrapping_add(1 << 60))));
        }
    }
}
