//! A hierarchical store: a disk in front of tapes.

use std::collections::BTreeMap;

use tidegate_units::{Bytes, Latency};

/// The tapes behind a node's disk. The node gets back from them the data that is no longer on the disk.
/// Nikolow names hierarchical stores as the first of the systems that sensors watch. A transfer that needs a
/// recall takes a drive until its first byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeTapes {
    /// Mounting a tape, finding the place on it, and copying to the disk.
    pub recall: Latency,
    /// The number of recalls that go on at once, at least 1.
    pub drives: u32,
}

/// The objects that are still on the disk in front of the tapes, as far as can be known from outside. They
/// are the last ones written or read, as many as it holds. The store's own rules may differ: an object that
/// is wrongly thought to be there comes as late as from the tape.
#[derive(Debug, Clone)]
pub struct DiskCache {
    capacity: u64,
    held: u64,
    /// The size of each object, and the time when it was used.
    objects: BTreeMap<String, (u64, u64)>,
    /// The same objects by the time of their use, the longest ago first.
    by_use: BTreeMap<u64, String>,
    next: u64,
}

impl DiskCache {
    /// The greatest number of objects that are known, however small they are.
    const MOST: usize = 1_000_000;

    /// Makes an empty cache of this capacity.
    #[must_use]
    pub const fn new(capacity: Bytes) -> Self {
        Self { capacity: capacity.get(), held: 0, objects: BTreeMap::new(), by_use: BTreeMap::new(), next: 0 }
    }

    /// Returns true if an object is there.
    #[must_use]
    pub fn has(&self, key: &str) -> bool {
        self.objects.contains_key(key)
    }

    /// Takes note that an object was written or read: it is there now. The least recently used objects make
    /// room.
    pub fn touch(&mut self, key: &str, size: Bytes) {
        self.remove(key);
        let size = size.get();
        if size > self.capacity {
            return;
        }
        while self.held > self.capacity - size || self.objects.len() >= Self::MOST {
            let Some((_, oldest)) = self.by_use.pop_first() else { break };
            if let Some((size, _)) = self.objects.remove(&oldest) {
                self.held -= size;
            }
        }
        self.held += size;
        self.objects.insert(key.to_owned(), (size, self.next));
        self.by_use.insert(self.next, key.to_owned());
        self.next += 1;
    }

    /// Takes note that an object is gone.
    pub fn remove(&mut self, key: &str) {
        if let Some((size, used)) = self.objects.remove(key) {
            self.held -= size;
            self.by_use.remove(&used);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_was_not_used_for_longest_goes_first() {
        let mut cache = DiskCache::new(Bytes::new(10));
        cache.touch("a", Bytes::new(4));
        cache.touch("b", Bytes::new(4));
        cache.touch("a", Bytes::new(4));
        cache.touch("c", Bytes::new(4));
        assert_eq!(["a", "b", "c"].map(|key| cache.has(key)), [true, false, true]);
        cache.touch("larger than all of it", Bytes::new(11));
        assert!(!cache.has("larger than all of it") && cache.has("a"));
        cache.remove("a");
        assert!(!cache.has("a"));
    }

    proptest! {
        /// Against the same by hand: a list, the last used at its end.
        #[test]
        fn it_is_the_last_used_that_fit(uses in prop::collection::vec((0..8u8, 0..6u64, any::<bool>()),
            0..60)) {
            let mut cache = DiskCache::new(Bytes::new(10));
            let mut list: Vec<(u8, u64)> = Vec::new();
            for (key, size, is_used) in uses {
                list.retain(|(known, _)| *known != key);
                if is_used {
                    cache.touch(&key.to_string(), Bytes::new(size));
                    list.push((key, size));
                    while list.iter().map(|(_, size)| size).sum::<u64>() > 10 {
                        list.remove(0);
                    }
                } else {
                    cache.remove(&key.to_string());
                }
                for key in 0..8u8 {
                    prop_assert_eq!(cache.has(&key.to_string()), list.iter().any(|(known, _)| *known == key));
                }
            }
        }
    }
}
