//! Places for sessions in a pool: which newcomer gets one, and which bound refuses it.
//!
//! Some places are kept for each export ([`PoolLimits::kept_sessions`]); the rest is shared. An export's own
//! places are given to any source. Shared places are given within the quotas of the export and of the source.
//! So a client that opens sessions without end never takes the places of another export.

use std::collections::HashMap;
use std::net::IpAddr;

use crate::config::PoolLimits;
use crate::stats::RefusalReason;

/// The source of a connection. Clients of one source cannot be told apart and share a quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum ConnectionSource {
    /// An IPv4 address, or a network of 64 bits in IPv6, which one host may have alone.
    Address(IpAddr),
    /// The user at the other end of a Unix socket.
    User(u32),
    /// The system did not say.
    Unknown,
}

impl ConnectionSource {
    pub(crate) fn of_address(address: IpAddr) -> Self {
        Self::Address(match address.to_canonical() {
            IpAddr::V6(address) => IpAddr::V6((u128::from(address) >> 64 << 64).into()),
            address => address,
        })
    }
}

/// The places of one export.
#[derive(Debug, Default)]
struct ExportSeats {
    kept: usize,
    taken: usize,
    /// True if it is still in the configuration.
    served: bool,
}

impl ExportSeats {
    fn drawn(&self) -> usize {
        self.taken.saturating_sub(self.kept)
    }
}

/// The places of a pool.
#[derive(Debug, Default)]
pub(crate) struct PoolSeats {
    sessions: usize,
    of_export: usize,
    of_source: usize,
    /// Places that are not kept for an export.
    shared: usize,
    taken: usize,
    exports: HashMap<u64, ExportSeats>,
    /// Sources that have places, shared or kept.
    sources: HashMap<ConnectionSource, usize>,
}

impl PoolSeats {
    /// Takes new bounds, and the exports that are served: their identity, and whether they are protected.
    /// Sessions beyond the new bounds stay.
    pub(crate) fn configure(&mut self, limits: &PoolLimits, exports: &[(u64, bool)]) {
        let protected = exports.iter().filter(|(_, protected)| *protected).count();
        let kept = limits.kept_sessions(protected, exports.len() - protected);
        (self.sessions, self.of_source) = (limits.sessions, limits.sessions_of_source());
        self.of_export = limits.sessions_of_export(exports.len());
        for seats in self.exports.values_mut() {
            (seats.kept, seats.served) = (0, false);
        }
        for (id, protected) in exports {
            let seats = self.exports.entry(*id).or_default();
            (seats.kept, seats.served) = (if *protected { kept.protected } else { kept.other }, true);
        }
        self.exports.retain(|_, seats| seats.served || seats.taken > 0);
        let kept: usize = self.exports.values().map(|seats| seats.kept).sum();
        self.shared = self.sessions.saturating_sub(kept);
    }

    /// Gives a newcomer a place.
    ///
    /// # Errors
    /// The bound that is reached.
    pub(crate) fn take(&mut self, export: u64, source: ConnectionSource) -> Result<(), RefusalReason> {
        if self.taken >= self.sessions {
            return Err(RefusalReason::PoolSessions);
        }
        let drawn: usize = self.exports.values().map(ExportSeats::drawn).sum();
        let seats = self.exports.entry(export).or_default();
        let of_source = self.sources.entry(source).or_default();
        if seats.taken >= seats.kept {
            let refusal = match () {
                () if seats.taken >= self.of_export => Some(RefusalReason::ExportSessions),
                () if *of_source >= self.of_source => Some(RefusalReason::SourceSessions),
                () if drawn >= self.shared => Some(RefusalReason::PoolSessions),
                () => None,
            };
            if let Some(refusal) = refusal {
                self.forget_unused(export, source);
                return Err(refusal);
            }
        }
        seats.taken += 1;
        *of_source += 1;
        self.taken += 1;
        Ok(())
    }

    /// Takes a place back.
    pub(crate) fn give_back(&mut self, export: u64, source: ConnectionSource) {
        self.taken -= 1;
        if let Some(seats) = self.exports.get_mut(&export) {
            seats.taken -= 1;
        }
        if let Some(count) = self.sources.get_mut(&source) {
            *count -= 1;
        }
        self.forget_unused(export, source);
    }

    /// Returns whether an export has more places than are kept for it.
    pub(crate) fn draws(&self, export: u64) -> bool {
        self.exports.get(&export).is_some_and(|seats| seats.drawn() > 0)
    }

    fn forget_unused(&mut self, export: u64, source: ConnectionSource) {
        if self.exports.get(&export).is_some_and(|seats| !seats.served && seats.taken == 0) {
            self.exports.remove(&export);
        }
        if self.sources.get(&source) == Some(&0) {
            self.sources.remove(&source);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn limits(sessions: usize) -> PoolLimits {
        PoolLimits { sessions, ..PoolLimits::default() }
    }

    fn user(id: u32) -> ConnectionSource {
        ConnectionSource::User(id)
    }

    /// Takes places until one is refused.
    fn hoard(seats: &mut PoolSeats, export: u64, source: ConnectionSource) -> (usize, RefusalReason) {
        let mut count = 0;
        loop {
            match seats.take(export, source) {
                Ok(()) => count += 1,
                Err(refusal) => return (count, refusal),
            }
        }
    }

    #[test]
    fn a_hoarder_is_stopped_by_its_exports_quota_and_then_by_its_own() {
        let mut seats = PoolSeats::default();
        seats.configure(&limits(256), &[(1, false), (2, true), (3, false)]);
        assert_eq!(hoard(&mut seats, 1, user(7)), (128, RefusalReason::ExportSessions));
        assert_eq!(hoard(&mut seats, 3, user(7)), (64, RefusalReason::SourceSessions));
        assert_eq!(hoard(&mut seats, 3, user(8)).1, RefusalReason::PoolSessions);
        // The protected export's places are there, also for a source that has used up its quota.
        for _ in 0..16 {
            assert_eq!(seats.take(2, user(7)), Ok(()));
        }
        assert_eq!(seats.take(2, user(9)), Err(RefusalReason::PoolSessions));
        seats.give_back(2, user(7));
        assert_eq!(seats.take(2, user(9)), Ok(()));
    }

    #[test]
    fn a_pool_with_one_export_gives_it_every_place() {
        let mut seats = PoolSeats::default();
        seats.configure(&PoolLimits { source_sessions: Some(5), ..limits(5) }, &[(1, false)]);
        assert_eq!(hoard(&mut seats, 1, user(1)), (5, RefusalReason::PoolSessions));
        seats.configure(&limits(1), &[(1, false)]);
        (0..5).for_each(|_| seats.give_back(1, user(1)));
        assert_eq!(hoard(&mut seats, 1, user(1)), (1, RefusalReason::PoolSessions));
    }

    #[test]
    fn hosts_in_one_ipv6_network_are_one_source() {
        let of = |text: &str| ConnectionSource::of_address(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8:0:0:ffff::2"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
    }

    proptest! {
        #[test]
        fn never_too_many_and_every_kept_place_is_there(
            sessions in 1usize..40,
            protected in prop::collection::vec(any::<bool>(), 1..6),
            steps in prop::collection::vec((0u64..6, 0u32..3, any::<bool>()), 0..200),
        ) {
            let mut seats = PoolSeats::default();
            let exports: Vec<(u64, bool)> = (0..).zip(protected).collect();
            seats.configure(&limits(sessions), &exports);
            let mut taken = Vec::new();
            for (export, source, leaves) in steps {
                let (export, source) = (export % exports.len() as u64, user(source));
                if leaves {
                    if let Some((export, source)) = taken.pop() {
                        seats.give_back(export, source);
                    }
                } else if seats.take(export, source).is_ok() {
                    taken.push((export, source));
                }
                prop_assert!(taken.len() == seats.taken && taken.len() <= sessions);
                for (id, _) in &exports {
                    let ExportSeats { kept, taken, .. } = seats.exports[id];
                    prop_assert!(taken <= seats.of_export.max(kept));
                    if taken < kept {
                        prop_assert_eq!(seats.take(*id, user(99)), Ok(()), "a kept place is there");
                        seats.give_back(*id, user(99));
                    }
                }
            }
            taken.into_iter().for_each(|(export, source)| seats.give_back(export, source));
            prop_assert!(seats.sources.is_empty() && seats.taken == 0);
        }
    }
}
