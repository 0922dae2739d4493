//! Addresses of sessions that LIO does not show, from the socket table.
//!
//! LIO tells no addresses of initiators without an entry in its lists. Of an initiator with an entry it shows
//! one session, although an initiator that comes by two paths has two. It does tell the number of a target's
//! sessions.
//!
//! The connections at its portals that no session accounts for belong to these sessions, or to initiators
//! that are in discovery or logging in.
//!
//! A connection is assigned to a session only if there is no other possibility. Either all connections come
//! from one address, and there are as many as sessions to be accounted for. Or all of those sessions are of
//! one initiator, and there are exactly as many. Portals may be shared by targets, and then so are the
//! connections.

use std::net::{IpAddr, SocketAddr};

use super::super::distinct;
use super::super::sockets::{TcpConnection, TcpSockets};
use super::super::{AddressDoubt, DoubtReason};

/// A portal group: its portals and its sessions.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct PortalGroup {
    pub(super) portals: Vec<SocketAddr>,
    /// The addresses of the connections of each session that is shown.
    pub(super) logins: Vec<Vec<IpAddr>>,
    /// The number of sessions that have a name only.
    pub(super) dynamic: usize,
    /// The number of different names that these have.
    pub(super) dynamic_initiators: usize,
    /// The number of further sessions of the group's target.
    pub(super) hidden: usize,
}

/// The addresses found for sessions, or the doubt about them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum KnownAddresses {
    /// Addresses that are all theirs.
    Certain(Vec<IpAddr>),
    Doubt(AddressDoubt),
}

/// The addresses found for a group's sessions.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Settled {
    /// The addresses of the sessions with a name only, if there are any.
    pub(super) dynamic: Option<KnownAddresses>,
    /// The addresses of the further sessions of each initiator that is shown, if there are any.
    pub(super) hidden: Option<KnownAddresses>,
}

/// Returns the addresses that the sockets tell for each group's sessions.
pub(super) fn settle(groups: &[&PortalGroup], sockets: &TcpSockets) -> Vec<Settled> {
    let rest = unaccounted(groups, &sockets.established);
    groups
        .iter()
        .map(|group| {
            if group.dynamic + group.hidden == 0 {
                return Settled::default();
            }
            let mine: Vec<TcpConnection> = rest.iter().copied().filter(|one| group.takes(*one)).collect();
            let claims: usize = groups
                .iter()
                .filter(|other| mine.iter().any(|one| other.takes(*one)))
                .map(|other| other.dynamic + other.hidden)
                .sum();
            let addresses = distinct(mine.iter().map(|one| one.peer.ip()));
            let elsewhere =
                mine.is_empty() && !group.portals.iter().any(|portal| sockets.listens_at(*portal));
            let known = |one_initiator: bool, certain: bool, why| {
                let alone = one_initiator && claims == group.dynamic + group.hidden && mine.len() == claims;
                if elsewhere {
                    KnownAddresses::Doubt(AddressDoubt {
                        why: DoubtReason::NoSockets,
                        candidates: Vec::new(),
                    })
                } else if mine.is_empty() || alone || certain {
                    KnownAddresses::Certain(addresses.clone())
                } else {
                    KnownAddresses::Doubt(AddressDoubt { why, candidates: addresses.clone() })
                }
            };
            let one_address = addresses.len() == 1 && mine.len() >= claims;
            let initiators = group.dynamic_initiators + group.logins.len();
            // A further session is of any initiator that is shown. (A name too many to fit the list of names
            // is shown nowhere.)
            let one_initiator = initiators == 1;
            Settled {
                dynamic: (group.dynamic > 0).then(|| {
                    let names_alone = group.dynamic_initiators == 1 && (group.hidden == 0 || one_initiator);
                    known(names_alone, one_address, DoubtReason::DemoMode)
                }),
                hidden: (group.hidden > 0)
                    .then(|| known(one_initiator, one_initiator && one_address, DoubtReason::MoreSessions)),
            }
        })
        .collect()
}

impl PortalGroup {
    fn takes(&self, connection: TcpConnection) -> bool {
        self.portals.iter().any(|portal| connection.is_to(*portal))
    }
}

/// The connections to the groups' portals that no session that is shown accounts for.
fn unaccounted(groups: &[&PortalGroup], established: &[TcpConnection]) -> Vec<TcpConnection> {
    let mut rest: Vec<TcpConnection> = established.to_vec();
    for group in groups {
        for address in group.logins.iter().flatten() {
            if let Some(at) = rest.iter().position(|one| one.peer.ip() == *address && group.takes(*one)) {
                rest.swap_remove(at);
            }
        }
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn certain(addresses: &[&str]) -> Option<KnownAddresses> {
        Some(KnownAddresses::Certain(addresses.iter().map(|text| address(text)).collect()))
    }

    fn doubt(why: DoubtReason, candidates: &[&str]) -> Option<KnownAddresses> {
        Some(KnownAddresses::Doubt(AddressDoubt {
            why,
            candidates: candidates.iter().map(|text| address(text)).collect(),
        }))
    }

    const PORTAL: &str = "10.0.0.1:3260";

    /// Connections to a portal from addresses.
    fn sockets(peers: &[&str]) -> TcpSockets {
        let local = PORTAL.parse().unwrap();
        let connection = |(at, peer): (usize, &&str)| TcpConnection {
            local,
            peer: SocketAddr::new(address(peer), 40_000 + at as u16),
        };
        TcpSockets { established: peers.iter().enumerate().map(connection).collect(), listening: vec![local] }
    }

    fn group(logins: &[&[&str]], dynamic: usize, dynamic_initiators: usize, hidden: usize) -> PortalGroup {
        let logins = logins.iter().map(|login| login.iter().map(|text| address(text)).collect()).collect();
        PortalGroup { portals: vec![PORTAL.parse().unwrap()], logins, dynamic, dynamic_initiators, hidden }
    }

    fn settled(groups: &[PortalGroup], sockets: &TcpSockets) -> Vec<Settled> {
        settle(&groups.iter().collect::<Vec<_>>(), sockets)
    }

    #[test]
    fn one_initiator_in_demo_mode_has_the_one_address() {
        let known = settled(&[group(&[], 1, 1, 0)], &sockets(&["10.0.0.11"]));
        assert_eq!(known[0].dynamic, certain(&["10.0.0.11"]));
        // By two paths.
        let known = settled(&[group(&[], 2, 1, 0)], &sockets(&["10.0.1.11", "10.0.0.11"]));
        assert_eq!(known[0].dynamic, certain(&["10.0.0.11", "10.0.1.11"]));
        // Another reader is at work.
        let known = settled(&[group(&[], 1, 1, 0)], &sockets(&["10.0.0.11", "10.0.0.12"]));
        assert_eq!(known[0].dynamic, doubt(DoubtReason::DemoMode, &["10.0.0.11", "10.0.0.12"]));
    }

    #[test]
    fn two_initiators_in_demo_mode_are_certain_only_behind_one_address() {
        let known = settled(&[group(&[], 2, 2, 0)], &sockets(&["10.0.0.11", "10.0.0.11"]));
        assert_eq!(known[0].dynamic, certain(&["10.0.0.11"]));
        let known = settled(&[group(&[], 2, 2, 0)], &sockets(&["10.0.0.11", "10.0.0.12"]));
        assert_eq!(known[0].dynamic, doubt(DoubtReason::DemoMode, &["10.0.0.11", "10.0.0.12"]));
        // One of them has lost its connection, and it is not known which.
        let known = settled(&[group(&[], 2, 2, 0)], &sockets(&["10.0.0.11"]));
        assert_eq!(known[0].dynamic, doubt(DoubtReason::DemoMode, &["10.0.0.11"]));
    }

    #[test]
    fn what_listed_initiators_account_for_is_not_a_candidate() {
        let known = settled(&[group(&[&["10.0.0.12"]], 1, 1, 0)], &sockets(&["10.0.0.11", "10.0.0.12"]));
        assert_eq!(known[0], Settled { dynamic: certain(&["10.0.0.11"]), hidden: None });
    }

    #[test]
    fn targets_that_share_a_portal_share_its_connections() {
        let groups = [group(&[], 1, 1, 0), group(&[], 1, 1, 0), group(&[&["10.0.0.13"]], 0, 0, 0)];
        let known = settled(&groups, &sockets(&["10.0.0.11", "10.0.0.12", "10.0.0.13"]));
        let two = doubt(DoubtReason::DemoMode, &["10.0.0.11", "10.0.0.12"]);
        assert_eq!((&known[0].dynamic, &known[1].dynamic), (&two, &two));
        assert_eq!(known[2], Settled::default());
    }

    #[test]
    fn a_second_path_of_the_only_initiator_is_its_own() {
        let known = settled(&[group(&[&["10.0.0.11"]], 0, 0, 1)], &sockets(&["10.0.0.11", "10.0.1.11"]));
        assert_eq!(known[0].hidden, certain(&["10.0.1.11"]));
        let groups = [group(&[&["10.0.0.11"], &["10.0.0.12"]], 0, 0, 2)];
        let known = settled(&groups, &sockets(&["10.0.0.11", "10.0.1.11", "10.0.0.12", "10.0.1.12"]));
        assert_eq!(known[0].hidden, doubt(DoubtReason::MoreSessions, &["10.0.1.11", "10.0.1.12"]));
    }

    #[test]
    fn without_connections_nobody_has_an_address_and_without_the_portal_nothing_is_known() {
        let known = settled(&[group(&[], 1, 1, 0)], &sockets(&[]));
        assert_eq!(known[0].dynamic, certain(&[]));
        let known = settled(&[group(&[], 1, 1, 0)], &TcpSockets::default());
        assert_eq!(known[0].dynamic, doubt(DoubtReason::NoSockets, &[]));
    }
}
