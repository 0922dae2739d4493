//! The addresses of consumers, and the consumers at each address.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use tidegate_host::DeviceNumber;
use tidegate_host::sense::TargetSession;
use tidegate_units::ConsumerName;

use super::config::{AgentConfig, MachineStorage, ResourceStorage};

/// Consumers' addresses, whatever they load. Packets carry addresses, and configurations mostly names.
#[derive(Debug, Clone, Default)]
pub(super) struct ConsumerAddresses {
    of: BTreeMap<ConsumerName, BTreeSet<IpAddr>>,
    at: BTreeMap<IpAddr, BTreeSet<ConsumerName>>,
    /// The addresses that a consumer uses a device of this machine from.
    towards: BTreeMap<(ConsumerName, DeviceNumber), BTreeSet<IpAddr>>,
    told: Arc<ToldAddresses>,
}

/// Addresses of consumers that the configuration tells, by their names.
pub(super) type ToldAddresses = BTreeMap<ConsumerName, BTreeSet<IpAddr>>;

/// Sessions as far as the configuration tells of them.
#[derive(Debug, Clone, Default)]
pub(super) struct ToldSessions {
    pub(super) addresses: Arc<ToldAddresses>,
    /// The storage behind portals of servers of which the kernel shows no sessions.
    pub(super) portals: BTreeMap<SocketAddr, MachineStorage>,
}

impl ToldSessions {
    pub(super) fn of(config: &AgentConfig) -> Self {
        let portals = config.resources.iter().flat_map(|resource| {
            let storage = match &resource.storage {
                ResourceStorage::Machine(storage) => Some(storage),
                ResourceStorage::Array(_) => None,
            };
            storage.into_iter().flat_map(|storage| resource.portals.iter().map(|it| (*it, storage.clone())))
        });
        Self { addresses: Arc::new(config.addresses.clone()), portals: portals.collect() }
    }

    /// Returns the consumer that has an address, where it is told of only one.
    pub(super) fn names(&self) -> BTreeMap<IpAddr, ConsumerName> {
        let mut names: BTreeMap<IpAddr, Option<&ConsumerName>> = BTreeMap::new();
        for (name, addresses) in &*self.addresses {
            for address in addresses {
                names.entry(*address).and_modify(|known| *known = None).or_insert(Some(name));
            }
        }
        names.into_iter().filter_map(|(address, name)| Some((address, name?.clone()))).collect()
    }
}

impl ConsumerAddresses {
    /// The addresses of all sessions, and those that are told of their consumers.
    pub(super) fn new(sessions: &[TargetSession], told: &Arc<ToldAddresses>) -> Self {
        let mut addresses = Self { told: Arc::clone(told), ..Self::default() };
        for session in sessions {
            let told = told.get(&session.consumer).into_iter().flatten();
            let all: BTreeSet<_> = session.addresses.iter().chain(told).copied().collect();
            for address in &all {
                addresses.at.entry(*address).or_default().insert(session.consumer.clone());
            }
            if let Some(device) = session.device {
                let key = (session.consumer.clone(), device);
                addresses.towards.entry(key).or_default().extend(&all);
            }
            addresses.of.entry(session.consumer.clone()).or_default().extend(all);
        }
        addresses
    }

    /// Returns true if the configuration tells the addresses of a consumer, so that there is no doubt.
    pub(super) fn are_told(&self, name: &ConsumerName) -> bool {
        self.told.contains_key(name)
    }

    /// Returns the addresses that a consumer comes from.
    pub(super) fn of(&self, name: &ConsumerName) -> impl Iterator<Item = IpAddr> + Clone {
        self.of.get(name).into_iter().flatten().copied()
    }

    /// Returns the addresses from which a consumer uses a device.
    pub(super) fn towards(&self, name: &ConsumerName, device: DeviceNumber) -> impl Iterator<Item = IpAddr> {
        self.towards.get(&(name.clone(), device)).into_iter().flatten().copied()
    }

    /// Returns the consumers that come from an address.
    pub(super) fn at(&self, address: IpAddr) -> impl Iterator<Item = &ConsumerName> {
        self.at.get(&address).into_iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use tidegate_host::sense::session::{TargetKind, VolumeBacking};

    use super::*;

    fn session(consumer: &str, minor: u32, addresses: &[&str]) -> TargetSession {
        TargetSession {
            via: TargetKind::Iscsi,
            consumer: ConsumerName::new(consumer).unwrap(),
            target: format!("iqn.2026-01.lab:lv{minor}").into(),
            volume: Arc::new(VolumeBacking { name: format!("lv{minor}"), path: None }),
            device: Some(DeviceNumber::new(254, minor)),
            addresses: addresses.iter().map(|address| address.parse().unwrap()).collect(),
            doubt: None,
            counters: None,
        }
    }

    #[test]
    fn a_device_is_used_from_the_addresses_of_its_own_sessions() {
        let sessions = [
            session("db", 0, &["10.0.0.12"]),
            session("db", 1, &["10.1.0.12"]),
            session("web", 0, &["10.0.0.13"]),
        ];
        let told = Arc::new(ToldAddresses::from([(
            ConsumerName::new("web").unwrap(),
            ["10.2.0.13".parse().unwrap()].into(),
        )]));
        let addresses = ConsumerAddresses::new(&sessions, &told);
        let towards = |name: &str, minor| {
            let name = ConsumerName::new(name).unwrap();
            addresses
                .towards(&name, DeviceNumber::new(254, minor))
                .map(|it| it.to_string())
                .collect::<Vec<_>>()
        };
        assert_eq!(towards("db", 0), ["10.0.0.12"]);
        assert_eq!(towards("db", 1), ["10.1.0.12"]);
        assert_eq!(towards("web", 0), ["10.0.0.13", "10.2.0.13"]);
        assert_eq!(towards("web", 1), [] as [&str; 0]);
        assert_eq!(addresses.of(&ConsumerName::new("db").unwrap()).count(), 2);
        assert!(addresses.are_told(&ConsumerName::new("web").unwrap()));
    }
}
