//! The event queue. It gives the next event, in an order that depends on nothing but the calls.
//!
//! A 4-ary heap: four children instead of two halve the levels. Keys are whole nanoseconds and then the order
//! of insertion, so that events at the same time happen in the order in which they were planned, and no float
//! decides.

/// Number of children of a node.
const ARITY: usize = 4;

#[derive(Debug, Clone, Copy)]
struct Entry<E> {
    /// The time in the high half, the order of insertion in the low one: a single comparison.
    key: u128,
    event: E,
}

/// Events by their times.
#[derive(Debug)]
pub(crate) struct EventQueue<E> {
    entries: Vec<Entry<E>>,
    inserted: u64,
}

impl<E: Copy> EventQueue<E> {
    pub(crate) const fn new() -> Self {
        Self { entries: Vec::new(), inserted: 0 }
    }

    /// Returns the time of the next event.
    pub(crate) fn next_at(&self) -> Option<u64> {
        self.entries.first().map(|entry| (entry.key >> 64) as u64)
    }

    pub(crate) fn push(&mut self, at: u64, event: E) {
        let key = (u128::from(at) << 64) | u128::from(self.inserted);
        self.inserted += 1;
        let entry = Entry { key, event };
        let mut hole = self.entries.len();
        self.entries.push(entry);
        while hole > 0 {
            let parent = (hole - 1) / ARITY;
            if self.entries[parent].key <= key {
                break;
            }
            self.entries[hole] = self.entries[parent];
            hole = parent;
        }
        self.entries[hole] = entry;
    }

    /// Takes the next event, with its time.
    pub(crate) fn pop(&mut self) -> Option<(u64, E)> {
        let last = self.entries.pop()?;
        let Some(&first) = self.entries.first() else { return Some(((last.key >> 64) as u64, last.event)) };
        let mut hole = 0;
        loop {
            let children = hole * ARITY + 1;
            let end = (children + ARITY).min(self.entries.len());
            let Some(least) = (children..end).min_by_key(|&child| self.entries[child].key) else { break };
            if last.key <= self.entries[least].key {
                break;
            }
            self.entries[hole] = self.entries[least];
            hole = least;
        }
        self.entries[hole] = last;
        Some(((first.key >> 64) as u64, first.event))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn events_at_the_same_time_happen_as_they_were_planned() {
        let mut queue = EventQueue::new();
        for event in 0..100u32 {
            queue.push(7, event);
        }
        queue.push(3, 100);
        assert_eq!(queue.next_at(), Some(3));
        assert_eq!(queue.pop(), Some((3, 100)));
        for event in 0..100 {
            assert_eq!(queue.pop(), Some((7, event)));
        }
        assert_eq!((queue.pop(), queue.next_at()), (None, None));
    }

    proptest! {
        /// Against the obvious: a list that is sorted, stably, whenever something is taken.
        #[test]
        fn agrees_with_a_sorted_list(steps in prop::collection::vec(prop::option::weighted(0.6, 0u64..50),
            0..400)) {
            let mut queue = EventQueue::new();
            let mut list: Vec<(u64, u32)> = Vec::new();
            for (event, step) in (0u32..).zip(steps) {
                match step {
                    Some(at) => {
                        queue.push(at, event);
                        list.push((at, event));
                    }
                    None => {
                        list.sort_by_key(|(at, _)| *at);
                        let expected = (!list.is_empty()).then(|| list.remove(0));
                        prop_assert_eq!(queue.pop(), expected);
                    }
                }
            }
            list.sort_by_key(|(at, _)| *at);
            for expected in list {
                prop_assert_eq!(queue.pop(), Some(expected));
            }
            prop_assert_eq!(queue.pop(), None);
        }
    }
}
