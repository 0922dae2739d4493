//! The order of changes where some of them change blocks in part.
//!
//! Such a change reads the blocks at its ends and writes them back ([`crate::blocks`]). Another change of one
//! of these blocks between the two would be lost. So of two changes with a block in common that one of them
//! changes in part, the later waits for the earlier. A change that waits also keeps its place before later
//! changes of the same blocks. Whole blocks alone need no order: the storage takes them as they come.
//!
//! Each block that some change has in part is *contested*, and has a queue: one change in part at a time, or
//! several that change it as a whole. A change enters the queues of all its contested blocks at once, and
//! begins when it is at the head of each. So changes wait only for earlier ones, and a change that is over
//! looks at the heads of its queues alone.
//!
//! Two changes may have only uncontested blocks in common, and the earlier one wait for others. The later one
//! then waits until it begins. If the earlier one has other blocks in part, it reads them before it writes any,
//! so the later one waits until it is over. Where many changes with whole blocks wait, a later one waits until all of
//! these have begun, so that it need not look at each.

use std::collections::{BTreeMap, VecDeque};

use slab::Slab;

use crate::blocks::ChangedBlocks;

/// Waiting changes that a new one looks at. Chosen: more than the usual depth of a pool.
const MOST_COMPARED: usize = 64;

/// The changes of an export that are carried out or wait.
#[derive(Debug, Default)]
pub(crate) struct BlockOrder {
    changes: Slab<OrderedChange>,
    /// The places of changes that have whole blocks, in any order.
    with_whole: Vec<usize>,
    contested: BTreeMap<u64, ContestedBlock>,
    /// Changes with whole blocks that have not begun, by their number.
    waiting: BTreeMap<u64, usize>,
    /// Those that have begun, and read before they write.
    reading: BTreeMap<u64, usize>,
    entered: u64,
}

#[derive(Debug)]
struct OrderedChange {
    request: usize,
    blocks: ChangedBlocks,
    /// Its index in `with_whole`.
    index: Option<usize>,
    /// Changes are numbered as they come.
    number: u64,
    /// The contested blocks at whose head it is not, and the changes that must begin before.
    missing: usize,
    /// All must have begun that were in `waiting` before it. Then it looks at `reading`.
    is_after_all: bool,
    has_begun: bool,
    /// It reads before it writes.
    reads_first: bool,
    /// Changes that wait for this one to begin, or to be over if it reads first.
    followers: Vec<usize>,
}

/// A block that a change has in part.
#[derive(Debug, Default)]
struct ContestedBlock {
    /// Changes at its head. They keep it until they are over, whether they have begun or not.
    holders: usize,
    /// The only holder changes it in part.
    is_in_part: bool,
    queue: VecDeque<BlockVisitor>,
}

#[derive(Debug, Clone, Copy)]
struct BlockVisitor {
    place: usize,
    in_part: bool,
}

impl ContestedBlock {
    /// Lets a change in, or has it wait. Returns false if it waits.
    fn enter(&mut self, visitor: BlockVisitor) -> bool {
        let is_free = self.holders == 0 || !visitor.in_part && !self.is_in_part;
        if !self.queue.is_empty() || !is_free {
            self.queue.push_back(visitor);
            return false;
        }
        self.holders += 1;
        self.is_in_part = visitor.in_part;
        true
    }

    /// A holder is over. Lets the next ones in, and tells each. Returns false if there are no holders left.
    fn leave(&mut self, mut let_in: impl FnMut(usize)) -> bool {
        self.holders -= 1;
        if self.holders > 0 {
            return true;
        }
        while let Some(next) = self.queue.pop_front_if(|next| self.holders == 0 || !next.in_part) {
            self.holders += 1;
            self.is_in_part = next.in_part;
            let_in(next.place);
            if next.in_part {
                break;
            }
        }
        self.holders > 0
    }
}

impl BlockOrder {
    /// Takes in a change of a request. Returns its place, and true if it begins now.
    pub(crate) fn enter(&mut self, request: usize, blocks: ChangedBlocks) -> (usize, bool) {
        let place = self.changes.vacant_key();
        for number in blocks.in_part() {
            self.contested.entry(number).or_insert_with(|| {
                let others = self.with_whole.iter().map(|other| &self.changes[*other].blocks);
                let holders = others.filter(|other| other.range.contains(&number)).count();
                ContestedBlock { holders, ..Default::default() }
            });
        }
        let mut missing = 0;
        for (number, contested) in self.contested.range_mut(blocks.range.clone()) {
            let in_part = blocks.is_in_part(*number);
            missing += usize::from(!contested.enter(BlockVisitor { place, in_part }));
        }
        let has_whole = blocks.has_whole();
        let is_after_all = has_whole && self.waiting.len() > MOST_COMPARED;
        if has_whole && !is_after_all {
            let earlier = self.waiting.values().chain(self.reading.values());
            missing += follow(&mut self.changes, place, &blocks, earlier);
        }
        let begins = missing == 0 && !is_after_all;
        let index = has_whole.then_some(self.with_whole.len());
        let reads_first = blocks.in_part().next().is_some();
        let number = self.entered;
        self.with_whole.extend(index.map(|_| place));
        if has_whole && !begins {
            self.waiting.insert(number, place);
        } else if has_whole && reads_first {
            self.reading.insert(number, place);
        }
        self.entered += 1;
        self.changes.insert(OrderedChange {
            request,
            blocks,
            index,
            number,
            missing,
            is_after_all,
            has_begun: begins,
            reads_first,
            followers: Vec::new(),
        });
        (place, begins)
    }

    /// A change that had begun is over. Returns the requests that begin now, in their order.
    pub(crate) fn leave(&mut self, place: usize) -> Vec<usize> {
        let change = self.changes.remove(place);
        debug_assert!(change.has_begun, "a change is over before it began");
        self.reading.remove(&change.number);
        if let Some(index) = change.index {
            self.with_whole.swap_remove(index);
            if let Some(moved) = self.with_whole.get(index) {
                self.changes[*moved].index = Some(index);
            }
        }
        let mut ready = VecDeque::new();
        let (changes, mut free) = (&mut self.changes, Vec::new());
        for (number, contested) in self.contested.range_mut(change.blocks.range) {
            let is_held = contested.leave(|place| {
                changes[place].missing -= 1;
                if changes[place].missing == 0 {
                    ready.push_back(place);
                }
            });
            if !is_held {
                free.push(*number);
            }
        }
        for number in free {
            self.contested.remove(&number);
        }
        for follower in change.followers {
            self.changes[follower].missing -= 1;
            if self.changes[follower].missing == 0 {
                ready.push_back(follower);
            }
        }
        self.begin(ready)
    }

    /// Begins changes that wait for nothing else, and those that waited only for these to begin.
    fn begin(&mut self, mut ready: VecDeque<usize>) -> Vec<usize> {
        let mut begun = Vec::new();
        loop {
            let first = || self.waiting.first_key_value().map(|(_, place)| *place);
            let is_free =
                |place: &usize| self.changes[*place].missing == 0 && !self.changes[*place].has_begun;
            let Some(place) = ready.pop_front().or_else(|| first().filter(is_free)) else { return begun };
            let change = &mut self.changes[place];
            let number = change.number;
            let is_first = self.waiting.first_key_value().is_some_and(|(first, _)| *first == number);
            if change.is_after_all && !is_first {
                continue;
            }
            if std::mem::take(&mut change.is_after_all) {
                let blocks = change.blocks.clone();
                let missing = follow(&mut self.changes, place, &blocks, self.reading.values());
                self.changes[place].missing = missing;
                if missing > 0 {
                    continue;
                }
            }
            let change = &mut self.changes[place];
            if self.waiting.remove(&number).is_some() && change.reads_first {
                self.reading.insert(number, place);
            }
            change.has_begun = true;
            begun.push(change.request);
            if change.reads_first {
                continue;
            }
            for follower in std::mem::take(&mut change.followers) {
                self.changes[follower].missing -= 1;
                if self.changes[follower].missing == 0 {
                    ready.push_back(follower);
                }
            }
        }
    }
}

/// Has a change wait for those of the earlier ones that have blocks in common with it. Returns their number.
fn follow<'a>(
    changes: &mut Slab<OrderedChange>,
    place: usize,
    blocks: &ChangedBlocks,
    earlier: impl Iterator<Item = &'a usize>,
) -> usize {
    let mut followed = 0;
    for earlier in earlier {
        let earlier = &mut changes[*earlier];
        if earlier.blocks.overlaps(blocks) {
            earlier.followers.push(place);
            followed += 1;
        }
    }
    followed
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    const BLOCK: u32 = 8;

    fn changed(range: Range<u64>) -> ChangedBlocks {
        ChangedBlocks::of(range, BLOCK, true)
    }

    /// The rule, by a look at every other change.
    #[derive(Default)]
    struct SlowOrder {
        /// In the order in which they came: request, blocks, and whether it has begun.
        changes: Vec<(usize, ChangedBlocks, bool)>,
    }

    impl SlowOrder {
        fn conflict(one: &ChangedBlocks, other: &ChangedBlocks) -> bool {
            one.in_part().any(|number| other.range.contains(&number))
                || other.in_part().any(|number| one.range.contains(&number))
        }

        fn may_begin(&self, at: usize) -> bool {
            let (earlier, blocks) = (&self.changes[..at], &self.changes[at].1);
            !earlier.iter().any(|(_, other, begun)| {
                Self::conflict(blocks, other)
                    || blocks.overlaps(other) && !(*begun && other.in_part().next().is_none())
            })
        }

        fn begin(&mut self) -> Vec<usize> {
            let mut begun = Vec::new();
            for at in 0..self.changes.len() {
                if !self.changes[at].2 && self.may_begin(at) {
                    self.changes[at].2 = true;
                    begun.push(self.changes[at].0);
                }
            }
            begun
        }

        fn enter(&mut self, request: usize, blocks: ChangedBlocks) -> bool {
            self.changes.push((request, blocks, false));
            self.begin() == [request]
        }

        fn leave(&mut self, request: usize) -> Vec<usize> {
            self.changes.retain(|(other, _, _)| *other != request);
            self.begin()
        }
    }

    /// What happens: a change of a range comes, or one of those that are carried out is over.
    #[derive(Debug, Clone)]
    enum Event {
        Enter(Range<u64>),
        Leave(usize),
    }

    fn events(most: usize) -> impl Strategy<Value = Vec<Event>> {
        let range = prop_oneof![
            (0u64..64, 1u64..4).prop_map(|(start, length)| start..start + length),
            (0u64..64, 1u64..50).prop_map(|(start, length)| start..start + length),
            (0u64..8, 1u64..6).prop_map(|(start, length)| 8 * start..8 * (start + length)),
        ];
        let event = prop_oneof![
            3 => range.prop_map(Event::Enter),
            2 => any::<usize>().prop_map(Event::Leave),
        ];
        vec(event, 1..most)
    }

    proptest! {
        #[test]
        fn changes_begin_as_by_a_look_at_all_others(events in events(150)) {
            let (mut order, mut slow) = (BlockOrder::default(), SlowOrder::default());
            let mut running: Vec<(usize, usize)> = Vec::new();
            let mut places = BTreeMap::new();
            let mut entered = 0;
            // At the end, everything that is left comes to its end.
            let ends = std::iter::repeat_n(Event::Leave(0), 150);
            for event in events.into_iter().chain(ends) {
                match event {
                    // Within the number of changes that are compared with each other.
                    Event::Enter(range) if order.waiting.len() < MOST_COMPARED => {
                        let (place, begins) = order.enter(entered, changed(range.clone()));
                        prop_assert_eq!(begins, slow.enter(entered, changed(range)));
                        places.insert(entered, place);
                        running.extend(begins.then_some((entered, place)));
                        entered += 1;
                    }
                    Event::Leave(at) if !running.is_empty() => {
                        let (request, place) = running.swap_remove(at % running.len());
                        let begun = order.leave(place);
                        let mut sorted = begun.clone();
                        sorted.sort_unstable();
                        prop_assert_eq!(sorted, slow.leave(request));
                        running.extend(begun.into_iter().map(|request| (request, places[&request])));
                    }
                    Event::Enter(_) | Event::Leave(_) => {}
                }
            }
            prop_assert!(order.changes.is_empty() && order.contested.is_empty() && order.waiting.is_empty());
            prop_assert!(order.with_whole.is_empty() && order.reading.is_empty());
        }

        /// Beyond the number that is compared, changes may wait for more than they must, and for no less.
        #[test]
        fn many_changes_keep_their_order_and_all_begin(
            ranges in vec((0u64..40, 1u64..40), 80..200), picks in vec(any::<prop::sample::Index>(), 200),
        ) {
            let (mut order, mut slow) = (BlockOrder::default(), SlowOrder::default());
            let mut running = vec![order.enter(0, changed(1..399)).0];
            slow.enter(0, changed(1..399));
            let mut places = vec![running[0]];
            for (request, (start, length)) in ranges.iter().enumerate() {
                let blocks = changed(*start..start + length);
                let (place, begins) = order.enter(request + 1, blocks.clone());
                slow.changes.push((request + 1, blocks, begins));
                prop_assert!(!begins || slow.may_begin(slow.changes.len() - 1));
                places.push(place);
                running.extend(begins.then_some(place));
            }
            for pick in picks {
                if running.is_empty() {
                    break;
                }
                let place = running.swap_remove(pick.index(running.len()));
                let over = order.changes[place].request;
                slow.changes.retain(|(request, _, _)| *request != over);
                for request in order.leave(place) {
                    let at = slow.changes.iter().position(|(other, _, _)| *other == request).unwrap();
                    prop_assert!(slow.may_begin(at), "{request} overtakes another change");
                    slow.changes[at].2 = true;
                    running.push(places[request]);
                }
            }
            while let Some(place) = running.pop() {
                let begun = order.leave(place);
                running.extend(begun.into_iter().map(|request| places[request]));
            }
            prop_assert!(order.changes.is_empty() && order.reading.is_empty(), "some change never begins");
        }
    }

    /// If each looked at all others, this would take hours.
    #[test]
    fn a_crowd_at_one_block_goes_one_by_one_without_a_look_at_all() {
        const CROWD: usize = 200_000;
        let mut order = BlockOrder::default();
        let places: Vec<(usize, bool)> =
            (0..CROWD).map(|request| order.enter(request, changed(7..9))).collect();
        for (request, (place, begins)) in places.iter().enumerate() {
            assert_eq!(*begins, request == 0);
            let next = (request + 1 < CROWD).then_some(request + 1);
            assert_eq!(order.leave(*place), Vec::from_iter(next));
        }
    }

    /// It reads the block at its end first. A later change of whole blocks went to the disk meanwhile, and was
    /// overwritten by the earlier one.
    #[test]
    fn a_change_that_reads_first_is_not_overtaken_by_a_later_one_of_whole_blocks() {
        let mut order = BlockOrder::default();
        let (first, begins) = order.enter(0, changed(0..41));
        assert!(begins);
        assert!(!order.enter(1, changed(8..16)).1);
        assert!(order.enter(2, changed(48..56)).1, "it has no block of them");
        assert_eq!(order.leave(first), [1]);
    }

    #[test]
    fn many_changes_that_read_first_begin_at_once_if_they_have_no_block_in_common() {
        let mut order = BlockOrder::default();
        let apart = |request: usize| changed(64 * request as u64 + 1..64 * request as u64 + 31);
        let places: Vec<usize> = (0..1000).map(|request| order.enter(request, apart(request)).0).collect();
        for (at, place) in places.into_iter().enumerate() {
            assert!(order.enter(1000 + at, apart(1000 + at)).1, "it waits for others");
            assert!(order.leave(place).is_empty());
        }
    }

    #[test]
    fn a_change_of_whole_blocks_waits_for_nobody_while_no_block_is_contested() {
        let mut order = BlockOrder::default();
        for request in 0..100 {
            let (_, begins) = order.enter(request, changed(0..64));
            assert!(begins);
        }
        assert!(order.contested.is_empty() && order.waiting.is_empty());
    }
}
