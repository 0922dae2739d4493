//! An indexed 4-ary heap: the least key on top, any member found, moved or removed by its slot.
//!
//! Four children instead of two halve the levels, and all four lie within a cache line of 64 bytes. Members
//! with equal keys leave in the order in which they were inserted or last updated.

use std::marker::PhantomData;

const ARITY: usize = 4;
const ABSENT: u32 = u32::MAX;

/// How keys compare.
pub(crate) trait Order {
    /// Whether `a` comes strictly before `b`.
    fn before(a: u64, b: u64) -> bool;
}

/// Keys are numbers.
#[derive(Debug)]
pub(crate) struct Linear;

impl Order for Linear {
    fn before(a: u64, b: u64) -> bool {
        a < b
    }
}

/// Keys are the low 64 bits of larger numbers that are all within 2⁶³ of each other.
#[derive(Debug)]
pub(crate) struct Wrapping;

impl Order for Wrapping {
    fn before(a: u64, b: u64) -> bool {
        (a.wrapping_sub(b) as i64) < 0
    }
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    key: u64,
    slot: u32,
    /// Wraps; compared only between equal keys, where a wrong answer costs nothing but the order of a tie.
    sequence: u32,
}

impl Entry {
    /// Without branches: in a heap nobody can predict them, and a wrong guess costs more than both comparisons.
    fn before<O: Order>(&self, other: &Self) -> bool {
        let tie_broken = (self.sequence.wrapping_sub(other.sequence) as i32) < 0;
        O::before(self.key, other.key) | ((self.key == other.key) & tie_broken)
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Heap<O> {
    entries: Vec<Entry>,
    /// Where each slot's entry is, or `ABSENT`.
    positions: Vec<u32>,
    sequence: u32,
    order: PhantomData<O>,
}

impl<O: Order> Heap<O> {
    pub(crate) fn new() -> Self {
        Self { entries: Vec::new(), positions: Vec::new(), sequence: 0, order: PhantomData }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn contains(&self, slot: u32) -> bool {
        self.positions.get(slot as usize).is_some_and(|&position| position != ABSENT)
    }

    /// The slot with the least key, and that key.
    pub(crate) fn first(&self) -> Option<(u32, u64)> {
        self.entries.first().map(|entry| (entry.slot, entry.key))
    }

    /// Inserts `slot`, or gives it a new key where it is a member already.
    pub(crate) fn set(&mut self, slot: u32, key: u64) {
        let entry = Entry { key, slot, sequence: self.sequence };
        self.sequence = self.sequence.wrapping_add(1);
        if self.contains(slot) {
            self.settle(self.positions[slot as usize] as usize, entry);
            return;
        }
        if self.positions.len() <= slot as usize {
            self.positions.resize(slot as usize + 1, ABSENT);
        }
        self.entries.push(entry);
        self.rise(self.entries.len() - 1, entry);
    }

    /// Removes `slot`; nothing happens where it is no member.
    pub(crate) fn remove(&mut self, slot: u32) {
        if !self.contains(slot) {
            return;
        }
        let hole = self.positions[slot as usize] as usize;
        self.positions[slot as usize] = ABSENT;
        let last = self.entries.pop().expect("a heap with a member is not empty");
        if last.slot != slot {
            self.settle(hole, last);
        }
    }

    /// Puts `entry` where it belongs, starting from a hole.
    fn settle(&mut self, hole: usize, entry: Entry) {
        if hole > 0 && entry.before::<O>(&self.entries[(hole - 1) / ARITY]) {
            self.rise(hole, entry);
        } else {
            self.sink(hole, entry);
        }
    }

    fn rise(&mut self, mut hole: usize, entry: Entry) {
        while hole > 0 {
            let parent = (hole - 1) / ARITY;
            if !entry.before::<O>(&self.entries[parent]) {
                break;
            }
            self.place(hole, self.entries[parent]);
            hole = parent;
        }
        self.place(hole, entry);
    }

    fn sink(&mut self, mut hole: usize, entry: Entry) {
        loop {
            let first_child = hole * ARITY + 1;
            let child = match self.entries.get(first_child..) {
                Some([a, b, c, d, ..]) => {
                    // Two rounds of a tournament, whose first two matches do not wait for each other.
                    let left = first_child + usize::from(b.before::<O>(a));
                    let right = first_child + 2 + usize::from(d.before::<O>(c));
                    if self.entries[right].before::<O>(&self.entries[left]) { right } else { left }
                }
                Some(few) => {
                    let least =
                        few.iter().enumerate().reduce(|a, b| if b.1.before::<O>(a.1) { b } else { a });
                    let Some((offset, _)) = least else { break };
                    first_child + offset
                }
                None => break,
            };
            let least = self.entries[child];
            if !least.before::<O>(&entry) {
                break;
            }
            self.place(hole, least);
            hole = child;
        }
        self.place(hole, entry);
    }

    fn place(&mut self, position: usize, entry: Entry) {
        self.positions[entry.slot as usize] = position as u32;
        self.entries[position] = entry;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Checks the heap against a list in insertion order that is searched from end to end.
    fn agrees_with_a_list<O: Order>(
        operations: &[(u32, Option<u64>)],
        shift: u64,
    ) -> Result<(), TestCaseError> {
        let mut heap = Heap::<O>::new();
        let mut list: Vec<(u32, u64)> = Vec::new();
        for &(slot, key) in operations {
            list.retain(|&(member, _)| member != slot);
            if let Some(key) = key {
                let key = key.wrapping_add(shift);
                list.push((slot, key));
                heap.set(slot, key);
            } else {
                heap.remove(slot);
            }
            let least = list.iter().copied().reduce(|a, b| if O::before(b.1, a.1) { b } else { a });
            prop_assert_eq!(heap.first(), least);
            prop_assert_eq!(heap.is_empty(), list.is_empty());
            for slot in 0..24 {
                prop_assert_eq!(heap.contains(slot), list.iter().any(|&(member, _)| member == slot));
            }
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn linear(operations in prop::collection::vec((0u32..24, prop::option::weighted(0.7, 0u64..20)), 0..200)) {
            agrees_with_a_list::<Linear>(&operations, 0)?;
        }

        #[test]
        fn wrapping(operations in prop::collection::vec((0u32..24, prop::option::weighted(0.7, 0u64..20)), 0..200)) {
            agrees_with_a_list::<Wrapping>(&operations, u64::MAX - 10)?;
            agrees_with_a_list::<Wrapping>(&operations, i64::MAX as u64 - 10)?;
        }
    }
}
