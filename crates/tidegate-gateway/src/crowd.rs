//! Connections in the order in which they came, told apart by their source.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::seats::ConnectionSource;

/// Connections of which the oldest of the largest source leaves when there are too many. So a source that
/// floods displaces its own connections, and those of another source stay.
#[derive(Debug)]
pub(crate) struct ConnectionCrowd<T> {
    members: BTreeMap<u64, (ConnectionSource, T)>,
    sources: HashMap<ConnectionSource, BTreeSet<u64>>,
    next: u64,
}

impl<T> Default for ConnectionCrowd<T> {
    fn default() -> Self {
        Self { members: BTreeMap::new(), sources: HashMap::new(), next: 0 }
    }
}

impl<T> ConnectionCrowd<T> {
    pub(crate) fn len(&self) -> usize {
        self.members.len()
    }

    /// Enters a newcomer, and returns its number.
    pub(crate) fn enter(&mut self, source: ConnectionSource, member: T) -> u64 {
        let id = self.next;
        self.next += 1;
        self.members.insert(id, (source, member));
        self.sources.entry(source).or_default().insert(id);
        id
    }

    pub(crate) fn get(&self, id: u64) -> Option<&T> {
        self.members.get(&id).map(|(_, member)| member)
    }

    pub(crate) fn remove(&mut self, id: u64) -> Option<T> {
        let (source, member) = self.members.remove(&id)?;
        if let Some(of_source) = self.sources.get_mut(&source) {
            of_source.remove(&id);
            if of_source.is_empty() {
                self.sources.remove(&source);
            }
        }
        Some(member)
    }

    /// Takes out the oldest of the source that has most; of several such sources, the oldest of all.
    pub(crate) fn displace(&mut self) -> Option<T> {
        let oldest = |of_source: &BTreeSet<u64>| of_source.first().copied();
        let largest = self
            .sources
            .values()
            .max_by_key(|of_source| (of_source.len(), std::cmp::Reverse(oldest(of_source))));
        self.remove(largest.and_then(oldest)?)
    }

    /// The member that came first, and its number.
    pub(crate) fn oldest(&self) -> Option<(u64, &T)> {
        self.members.first_key_value().map(|(id, (_, member))| (*id, member))
    }

    pub(crate) fn members(&self) -> impl Iterator<Item = &T> {
        self.members.values().map(|(_, member)| member)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_that_floods_displaces_its_own() {
        let mut crowd = ConnectionCrowd::default();
        let (slow, flood) = (ConnectionSource::User(1), ConnectionSource::User(2));
        let patient = crowd.enter(slow, "slow");
        for _ in 0..10 {
            crowd.enter(flood, "flood");
        }
        for _ in 0..9 {
            assert_eq!(crowd.displace(), Some("flood"));
        }
        // As many of each: the oldest of all leaves.
        assert_eq!(crowd.displace(), Some("slow"));
        assert_eq!((crowd.remove(patient), crowd.len()), (None, 1));
        assert_eq!(crowd.oldest(), Some((10, &"flood")));
        assert_eq!((crowd.displace(), crowd.displace()), (Some("flood"), None));
        assert!(crowd.sources.is_empty());
    }
}
