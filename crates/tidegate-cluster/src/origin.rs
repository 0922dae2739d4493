//! Names of hosts, bound to where their messages come from: one holder of the cluster's key must not pose as
//! many hosts.
//!
//! | carrier | a name belongs to |
//! |---|---|
//! | UDP to a list | the entry of the list that it is configured for, or that used it first: one entry is one host |
//! | UDP to a group | the address that used it first; one address has at most [`MOST_PER_ADDRESS`] names |
//! | NATS | nothing that a receiver can see: new names are limited in time |
//! | shared file | a slot, and slots are bounded |
//!
//! An address says as much as the network keeps its hosts from using each other's.

use std::collections::{HashMap, HashSet, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use tidegate_units::{HostName, Instant};

use crate::config::{Carrier, CarrierReach};
use crate::peer_address::PeerAddress;

/// Hosts of one address in a multicast group: several services of one machine, or of its tests.
pub(crate) const MOST_PER_ADDRESS: usize = 4;

/// In so many intervals the number of hosts behind a server may double, or grow by [`LEAST_GROWTH`].
const GROWTH_INTERVALS: u32 = 60;

/// A rack that is switched on while others work.
const LEAST_GROWTH: usize = 8;

/// For so many intervals after a connection was made all names are new, and none is too many.
const BEGINNING_INTERVALS: u32 = 10;

/// The rule that binds the names of a carrier's hosts.
#[derive(Debug)]
pub(crate) enum NameOrigins {
    /// Each of these is one host.
    Listed(ListedPeers),
    /// The address that used a name first has it.
    Group,
    /// The carrier shows no origin, and new names are limited in time.
    Server(NewHosts),
    /// The carrier has a place for each host.
    Slots,
}

impl NameOrigins {
    pub(crate) fn of(carrier: &Carrier) -> Self {
        match carrier {
            Carrier::Udp(udp) => match &udp.reach {
                CarrierReach::Peers(peers) => Self::Listed(ListedPeers::new(peers)),
                CarrierReach::Multicast { .. } => Self::Group,
            },
            Carrier::Nats(_) => Self::Server(NewHosts::default()),
            Carrier::File(_) => Self::Slots,
        }
    }

    /// Returns whether messages from an address are looked at.
    pub(crate) fn knows(&self, from: SocketAddr) -> bool {
        match self {
            Self::Listed(peers) => peers.at.contains_key(&from),
            Self::Group | Self::Server(_) | Self::Slots => true,
        }
    }

    /// Returns whether the configuration leaves a name to an address.
    pub(crate) fn allows(&self, host: &HostName, from: SocketAddr) -> bool {
        let Self::Listed(peers) = self else { return true };
        match peers.at.get(&from).and_then(Option::as_ref) {
            Some(configured) => configured == host,
            None => !peers.named.contains(host),
        }
    }
}

/// The hosts of a list, found by their address: every datagram asks.
#[derive(Debug)]
pub(crate) struct ListedPeers {
    /// The name configured for each address, if there is one.
    at: HashMap<SocketAddr, Option<HostName>>,
    named: HashSet<HostName>,
}

impl ListedPeers {
    /// The addresses of these peers. Of two entries with one address the first counts.
    pub(crate) fn new(peers: &[PeerAddress]) -> Self {
        let mut at = HashMap::new();
        for peer in peers {
            at.entry(plain(peer.address)).or_insert_with(|| peer.host.clone());
        }
        Self { at, named: peers.iter().filter_map(|peer| peer.host.clone()).collect() }
    }
}

/// An address without what only tells how it was reached: an IPv4 one through an IPv6 socket, the scope of a
/// link.
pub(crate) fn plain(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// The hosts that are new, where nothing tells one sender from another.
#[derive(Debug, Default)]
pub(crate) struct NewHosts {
    begun: Option<Instant>,
    admitted: VecDeque<Instant>,
}

impl NewHosts {
    /// Begins anew with a connection: hosts that are heard now may have been there for long.
    pub(crate) fn begin_anew(&mut self) {
        *self = Self::default();
    }

    /// Returns whether one more host may be new, of so many that are known, and counts it.
    pub(crate) fn admits(&mut self, now: Instant, interval: Duration, known: usize) -> bool {
        let begun = *self.begun.get_or_insert(now);
        if now.saturating_since(begun) <= interval.saturating_mul(BEGINNING_INTERVALS) {
            return true;
        }
        let window = interval.saturating_mul(GROWTH_INTERVALS);
        self.admitted.retain(|admitted| now.saturating_since(*admitted) <= window);
        let most = known.saturating_sub(self.admitted.len()).max(LEAST_GROWTH);
        let admits = self.admitted.len() < most;
        if admits {
            self.admitted.push_back(now);
        }
        admits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_secs(1);

    fn at(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn a_peer_is_an_address_with_or_without_a_name() {
        let plain: PeerAddress = "10.0.0.2:7710".parse().unwrap();
        assert_eq!((plain.host.clone(), plain.to_string().as_str()), (None, "10.0.0.2:7710"));
        let named: PeerAddress = "rack@7@[::1]:7710".parse().unwrap();
        assert_eq!(named.host, Some(HostName::new("rack@7").unwrap()));
        assert_eq!(named.to_string().parse(), Ok(named));
        for bad in ["", "host", "@10.0.0.2:7710", "a@b", "10.0.0.2"] {
            assert!(bad.parse::<PeerAddress>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_configured_name_belongs_to_its_address_alone() {
        let origins = NameOrigins::Listed(ListedPeers::new(
            &["a@10.0.0.1:1", "10.0.0.2:1"].map(|text| text.parse().unwrap()),
        ));
        let (one, two, three) =
            ("10.0.0.1:1".parse().unwrap(), "10.0.0.2:1".parse().unwrap(), "10.0.0.3:1".parse().unwrap());
        let [a, b] = ["a", "b"].map(|name| HostName::new(name).unwrap());
        assert!(origins.knows(one) && origins.knows(two) && !origins.knows(three));
        assert!(origins.allows(&a, one) && origins.allows(&b, two));
        assert!(!origins.allows(&b, one) && !origins.allows(&a, two));
    }

    #[test]
    fn behind_a_server_many_may_be_there_at_first_and_few_come_at_once_later() {
        let mut growth = NewHosts::default();
        assert!((0..300).all(|_| growth.admits(at(1), INTERVAL, 0)));
        let burst = |growth: &mut NewHosts, second: u64, known: usize| {
            (0..500).take_while(|new| growth.admits(at(second), INTERVAL, known + new)).count()
        };
        assert_eq!(burst(&mut growth, 100, 2), 8);
        assert_eq!(burst(&mut growth, 130, 10), 0);
        assert_eq!(burst(&mut growth, 200, 40), 40, "as many as there are");
        growth.begin_anew();
        assert_eq!(burst(&mut growth, 201, 0), 500);
    }
}
