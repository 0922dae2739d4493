//! Things under way, by keys: the least free key is taken.
//!
//! A free list would hand out the entry freed last. The entries in use would stay scattered over all the
//! places that a burst at the beginning once took. This way they move together into as many places as needed,
//! which a processor's cache can hold.

use std::ops::{Index, IndexMut};

const BITS: usize = u64::BITS as usize;

const FREE: &str = "the caller keeps only keys of what it has not taken out";

/// See the module.
#[derive(Debug)]
pub(crate) struct PlaceTable<T> {
    entries: Vec<Option<T>>,
    /// A bit for each entry that is free.
    free: Vec<u64>,
    /// A bit for each word of `free` that is not zero.
    some_free: Vec<u64>,
}

impl<T> PlaceTable<T> {
    pub(crate) const fn new() -> Self {
        Self { entries: Vec::new(), free: Vec::new(), some_free: Vec::new() }
    }

    /// The key under which it is from now on.
    pub(crate) fn insert(&mut self, value: T) -> usize {
        let Some(at) = self.some_free.iter().position(|&word| word != 0) else {
            self.entries.push(Some(value));
            return self.entries.len() - 1;
        };
        let word = at * BITS + self.some_free[at].trailing_zeros() as usize;
        let key = word * BITS + self.free[word].trailing_zeros() as usize;
        // The least bit that is set is cleared.
        self.free[word] &= self.free[word] - 1;
        if self.free[word] == 0 {
            self.some_free[at] &= self.some_free[at] - 1;
        }
        self.entries[key] = Some(value);
        key
    }

    /// Takes something out.
    pub(crate) fn remove(&mut self, key: usize) -> T {
        let value = self.entries[key].take().expect(FREE);
        let word = key / BITS;
        if word >= self.free.len() {
            self.free.resize(word + 1, 0);
            self.some_free.resize(word / BITS + 1, 0);
        }
        self.free[word] |= 1 << (key % BITS);
        self.some_free[word / BITS] |= 1 << (word % BITS);
        value
    }
}

impl<T> Index<usize> for PlaceTable<T> {
    type Output = T;

    fn index(&self, key: usize) -> &T {
        self.entries[key].as_ref().expect(FREE)
    }
}

impl<T> IndexMut<usize> for PlaceTable<T> {
    fn index_mut(&mut self, key: usize) -> &mut T {
        self.entries[key].as_mut().expect(FREE)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Comparison with the obvious: a map whose free keys are tried from the first. The steps come in
        /// bursts, because a word has 64 entries.
        #[test]
        fn the_least_free_key_is_taken(steps in prop::collection::vec((any::<bool>(), 1usize..400,
            any::<u32>()), 1..12)) {
            let (mut table, mut map) = (PlaceTable::new(), BTreeMap::new());
            for (inserts, count, pick) in steps {
                for step in 0..count as u32 {
                    if inserts {
                        let expected = map.keys().zip(0..).position(|(&key, at)| key != at)
                            .unwrap_or(map.len());
                        prop_assert_eq!(table.insert(step), expected);
                        map.insert(expected, step);
                    } else if !map.is_empty() {
                        let at = pick.wrapping_mul(2 * step + 1) as usize % map.len();
                        let key = *map.keys().nth(at).unwrap();
                        prop_assert_eq!(Some(table.remove(key)), map.remove(&key));
                    }
                }
                for (&key, value) in &map {
                    prop_assert_eq!(table[key], *value);
                }
            }
        }
    }
}
