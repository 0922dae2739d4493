//! The connections that are open, and the one that makes room for a newer one.
//!
//! An attacker may keep every connection open, and open new ones as fast as it likes. A refusal of the newest
//! would then refuse the honest client with the same probability as any connection of the attacker. That is
//! close to one. So the oldest connection without a complete request makes room. An honest client sends its
//! request together with its connection, so it is read before 64 others have been accepted. A connection that
//! is being answered never makes room. The number of those is bounded by the work of the service itself.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

/// Connections of one server.
pub const MOST_CONNECTIONS: usize = 64;

/// An answer that its client has had so long to take may make room.
const GRACE: Duration = Duration::from_secs(1);

/// The state of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectionPhase {
    /// No complete request has arrived since it was opened, or since its last answer was taken.
    Waiting,
    /// Its request is complete, and its answer is not.
    Answering,
    /// Its answer is on the way.
    Sending,
    /// Its answer goes on until the client leaves.
    Streaming,
}

/// The origin of a connection, by which a flood displaces itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectionSource {
    /// The network that one machine has at its disposal.
    Network(IpAddr),
    /// A user of this machine.
    User(u32),
}

impl From<IpAddr> for ConnectionSource {
    fn from(address: IpAddr) -> Self {
        Self::Network(network(address))
    }
}

impl fmt::Display for ConnectionSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Network(address) => write!(f, "{address}"),
            Self::User(uid) => write!(f, "uid {uid}"),
        }
    }
}

#[derive(Debug)]
struct Connection {
    id: u64,
    source: ConnectionSource,
    phase: ConnectionPhase,
    since: Instant,
}

impl Connection {
    fn may_make_room(&self, now: Instant) -> bool {
        match self.phase {
            ConnectionPhase::Waiting => true,
            ConnectionPhase::Answering | ConnectionPhase::Streaming => false,
            ConnectionPhase::Sending => now.saturating_duration_since(self.since) >= GRACE,
        }
    }
}

/// The answer to a new connection.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum AdmittedConnection {
    /// It is served under this number.
    Open(u64),
    /// The same, and another one makes room for it.
    InPlaceOf(u64, u64),
    /// Every other connection is being answered.
    Full,
}

/// The open connections of a server.
#[derive(Debug, Default)]
pub(crate) struct OpenConnections {
    open: Vec<Connection>,
    next: u64,
}

/// The network that one machine has at its disposal: an IPv6 host owns a /64.
fn network(source: IpAddr) -> IpAddr {
    match source.to_canonical() {
        IpAddr::V6(address) => {
            let mut octets = address.octets();
            octets[8..].fill(0);
            Ipv6Addr::from(octets).into()
        }
        v4 @ IpAddr::V4(_) => v4,
    }
}

impl OpenConnections {
    /// Takes a new connection. Among those that may make room it is the oldest of the source that has most.
    pub(crate) fn admit(&mut self, source: ConnectionSource, now: Instant) -> AdmittedConnection {
        let displaced = if self.open.len() < MOST_CONNECTIONS {
            None
        } else {
            let Some(at) = self.displaced(now) else { return AdmittedConnection::Full };
            Some(self.open.swap_remove(at).id)
        };
        let id = self.next;
        self.next += 1;
        self.open.push(Connection { id, source, phase: ConnectionPhase::Waiting, since: now });
        displaced
            .map_or(AdmittedConnection::Open(id), |displaced| AdmittedConnection::InPlaceOf(id, displaced))
    }

    fn displaced(&self, now: Instant) -> Option<usize> {
        let of_source = |source| self.open.iter().filter(|other| other.source == source).count();
        let candidates = self.open.iter().enumerate().filter(|(_, connection)| connection.may_make_room(now));
        let order = candidates.min_by_key(|(_, connection)| {
            (std::cmp::Reverse(of_source(connection.source)), connection.since, connection.id)
        });
        order.map(|(at, _)| at)
    }

    /// Removes the oldest connection that may make room. Called when a descriptor is needed.
    pub(crate) fn remove_oldest(&mut self, now: Instant) -> Option<u64> {
        let at = self.displaced(now)?;
        Some(self.open.swap_remove(at).id)
    }

    pub(crate) fn enter(&mut self, id: u64, phase: ConnectionPhase, now: Instant) {
        if let Some(connection) = self.open.iter_mut().find(|connection| connection.id == id) {
            (connection.phase, connection.since) = (phase, now);
        }
    }

    /// Returns the phase of a connection, and the time when that began.
    pub(crate) fn phase(&self, id: u64) -> Option<(ConnectionPhase, Instant)> {
        let connection = self.open.iter().find(|connection| connection.id == id)?;
        Some((connection.phase, connection.since))
    }

    pub(crate) fn close(&mut self, id: u64) {
        self.open.retain(|connection| connection.id != id);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LOCAL: [u8; 4] = [127, 0, 0, 1];

    fn source(address: [u8; 4]) -> ConnectionSource {
        IpAddr::from(address).into()
    }

    #[test]
    fn a_flood_from_one_address_displaces_itself_and_nothing_that_is_answered() {
        let (mut connections, now) = (OpenConnections::default(), Instant::now());
        let AdmittedConnection::Open(honest) = connections.admit(source([10, 0, 0, 9]), now) else {
            panic!()
        };
        let AdmittedConnection::Open(answered) = connections.admit(source(LOCAL), now) else { panic!() };
        connections.enter(answered, ConnectionPhase::Answering, now);
        for at in 1..1_000 {
            assert_ne!(
                connections.admit(source(LOCAL), now + Duration::from_millis(at)),
                AdmittedConnection::Full
            );
        }
        let open: Vec<_> = connections.open.iter().map(|connection| connection.id).collect();
        assert_eq!(open.len(), MOST_CONNECTIONS);
        assert!(open.contains(&honest) && open.contains(&answered));
    }

    #[test]
    fn an_answer_that_is_not_taken_makes_room_after_a_second() {
        let (mut connections, now) = (OpenConnections::default(), Instant::now());
        for _ in 0..MOST_CONNECTIONS {
            let AdmittedConnection::Open(id) = connections.admit(source(LOCAL), now) else { panic!() };
            connections.enter(id, ConnectionPhase::Sending, now);
        }
        assert_eq!(connections.admit(source(LOCAL), now + GRACE / 2), AdmittedConnection::Full);
        assert_eq!(
            connections.admit(source(LOCAL), now + GRACE),
            AdmittedConnection::InPlaceOf(MOST_CONNECTIONS as u64, 0)
        );
    }

    #[test]
    fn a_stream_never_makes_room() {
        let (mut connections, now) = (OpenConnections::default(), Instant::now());
        let AdmittedConnection::Open(stream) = connections.admit(ConnectionSource::User(0), now) else {
            panic!()
        };
        connections.enter(stream, ConnectionPhase::Streaming, now);
        for at in 1..200 {
            connections.admit(ConnectionSource::User(1000), now + Duration::from_secs(at));
        }
        assert_eq!(connections.phase(stream), Some((ConnectionPhase::Streaming, now)));
    }

    #[test]
    fn an_ipv6_host_is_one_source_whatever_its_address() {
        let of = |text: &str| network(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
    }

    proptest! {
        /// For any arrivals in any order, the bound holds, and connections that are being answered stay.
        #[test]
        fn the_bound_holds_and_what_is_answered_stays(
            steps in prop::collection::vec((0_u8..4, 0_u8..6, 0_u64..3_000), 0..400)
        ) {
            let (mut connections, begin) = (OpenConnections::default(), Instant::now());
            let (mut ids, mut answering, mut elapsed) = (Vec::new(), Vec::new(), 0);
            for (step, number, pause) in steps {
                elapsed += pause;
                let now = begin + Duration::from_millis(elapsed);
                let chosen = ids.get(usize::from(number) * ids.len() / 6).copied();
                match (step, chosen) {
                    (0 | 1, _) => match connections.admit(source([10, 0, 0, number]), now) {
                        AdmittedConnection::Open(id) => ids.push(id),
                        AdmittedConnection::InPlaceOf(id, displaced) => {
                            prop_assert!(!answering.contains(&displaced));
                            ids.retain(|known| *known != displaced);
                            ids.push(id);
                        }
                        AdmittedConnection::Full => prop_assert_eq!(ids.len(), MOST_CONNECTIONS),
                    },
                    (2, Some(id)) => {
                        connections.enter(id, ConnectionPhase::Answering, now);
                        answering.push(id);
                    }
                    (3, Some(id)) => {
                        connections.enter(id, ConnectionPhase::Sending, now);
                        answering.retain(|known| *known != id);
                    }
                    _ => {}
                }
                prop_assert!(connections.open.len() <= MOST_CONNECTIONS);
                prop_assert_eq!(connections.open.len(), ids.len());
            }
        }
    }
}
