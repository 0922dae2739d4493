//! The addresses of consumers, and the consumers at each address.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use tidegate_host::sense::TargetSession;
use tidegate_units::ConsumerName;

/// Consumers' addresses, whatever they load. Packets carry addresses, and configurations mostly names.
#[derive(Debug, Clone, Default)]
pub(super) struct ConsumerAddresses {
    of: BTreeMap<ConsumerName, BTreeSet<IpAddr>>,
    at: BTreeMap<IpAddr, BTreeSet<ConsumerName>>,
}

impl ConsumerAddresses {
    pub(super) fn new(sessions: &[TargetSession]) -> Self {
        let mut addresses = Self::default();
        for session in sessions {
            let of = addresses.of.entry(session.consumer.clone()).or_default();
            for address in &session.addresses {
                of.insert(*address);
                addresses.at.entry(*address).or_default().insert(session.consumer.clone());
            }
        }
        addresses
    }

    /// Returns the addresses that a consumer comes from.
    pub(super) fn of(&self, name: &ConsumerName) -> impl Iterator<Item = IpAddr> + Clone {
        self.of.get(name).into_iter().flatten().copied()
    }

    /// Returns the consumers that come from an address.
    pub(super) fn at(&self, address: IpAddr) -> impl Iterator<Item = &ConsumerName> {
        self.at.get(&address).into_iter().flatten()
    }
}
