//! The connections that are open, and the one that makes room for a newer one.
//!
//! An attacker may keep every connection open, and open new ones as fast as it likes. A refusal of the newest
//! would then refuse the honest client with the same probability as any connection of the attacker. That is
//! close to one. So the oldest connection without a complete request makes room. An honest client sends its
//! request together with its connection, so it is read before 64 others have been accepted.
//!
//! Unknown clients, readers and operators have places of their own, and so have clients of Unix
//! sockets and of the network. A connection that is being answered never makes room, but it takes a place from
//! its own kind alone. So however many readers are being answered, an operator gets in.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::answer::AnswerProgress;

/// Connections of readers, and as many that have not asked for anything yet: from the network, and through Unix
/// sockets.
pub const MOST_CONNECTIONS: usize = 64;

/// Connections of operators: from the network, and through Unix sockets.
pub const MOST_OPERATORS: usize = 32;

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

impl ConnectionSource {
    /// Returns true for a client of a Unix socket.
    const fn is_local(self) -> bool {
        matches!(self, Self::User(_))
    }

    /// Returns true if the client is on another machine.
    pub(crate) fn is_remote(self) -> bool {
        match self {
            Self::Network(address) => !address.to_canonical().is_loopback(),
            Self::User(_) => false,
        }
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

/// The knowledge of a connection's client, by which it has its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ClientStanding {
    /// No request of it was accepted yet.
    Unknown,
    /// It may read.
    Reader,
    /// It has shown that it may change something.
    Operator,
}

impl ClientStanding {
    const fn places(self) -> usize {
        match self {
            Self::Unknown | Self::Reader => MOST_CONNECTIONS,
            Self::Operator => MOST_OPERATORS,
        }
    }
}

#[derive(Debug)]
struct Connection {
    id: u64,
    source: ConnectionSource,
    standing: ClientStanding,
    phase: ConnectionPhase,
    since: Instant,
    progress: Arc<AnswerProgress>,
}

impl Connection {
    fn may_make_room(&self, now: Instant) -> bool {
        match self.phase {
            // No answer that is worth waiting for.
            _ if self.standing == ClientStanding::Unknown => true,
            ConnectionPhase::Waiting => true,
            ConnectionPhase::Answering | ConnectionPhase::Streaming => false,
            ConnectionPhase::Sending => {
                self.progress.is_taken() || now.saturating_duration_since(self.since) >= GRACE
            }
        }
    }

    /// Returns true if it has its place among clients of this standing and door.
    fn is_among(&self, source: ConnectionSource, standing: ClientStanding) -> bool {
        self.standing == standing && self.source.is_local() == source.is_local()
    }
}

/// The answer to a new connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
    pub(crate) fn admit(
        &mut self,
        source: ConnectionSource,
        standing: ClientStanding,
        progress: Arc<AnswerProgress>,
        now: Instant,
    ) -> AdmittedConnection {
        let Some(displaced) = self.make_room(source, standing, now) else { return AdmittedConnection::Full };
        let id = self.next;
        self.next += 1;
        let phase = ConnectionPhase::Waiting;
        self.open.push(Connection { id, source, standing, phase, since: now, progress });
        displaced
            .map_or(AdmittedConnection::Open(id), |displaced| AdmittedConnection::InPlaceOf(id, displaced))
    }

    /// Gives a connection a place among clients of this standing. One with a higher standing keeps that.
    pub(crate) fn settle(&mut self, id: u64, standing: ClientStanding, now: Instant) -> AdmittedConnection {
        let known = self.open.iter().find(|connection| connection.id == id);
        let Some(source) = known.filter(|known| known.standing < standing).map(|known| known.source) else {
            return AdmittedConnection::Open(id);
        };
        let Some(displaced) = self.make_room(source, standing, now) else { return AdmittedConnection::Full };
        if let Some(connection) = self.open.iter_mut().find(|connection| connection.id == id) {
            connection.standing = standing;
        }
        displaced
            .map_or(AdmittedConnection::Open(id), |displaced| AdmittedConnection::InPlaceOf(id, displaced))
    }

    /// Makes room for one more connection of this kind, and returns the one that made it, if any had to.
    /// `None`: every other one is being answered.
    fn make_room(
        &mut self,
        source: ConnectionSource,
        standing: ClientStanding,
        now: Instant,
    ) -> Option<Option<u64>> {
        let is_among = |other: &Connection| other.is_among(source, standing);
        if self.open.iter().filter(|other| is_among(other)).count() < standing.places() {
            return Some(None);
        }
        let at = self.displaced(now, is_among)?;
        Some(Some(self.open.swap_remove(at).id))
    }

    fn displaced(&self, now: Instant, is_among: impl Fn(&Connection) -> bool) -> Option<usize> {
        let of_source = |source| self.open.iter().filter(|other| other.source == source).count();
        let candidates = self.open.iter().enumerate();
        let candidates =
            candidates.filter(|(_, connection)| is_among(connection) && connection.may_make_room(now));
        let order = candidates.min_by_key(|(_, connection)| {
            (std::cmp::Reverse(of_source(connection.source)), connection.since, connection.id)
        });
        order.map(|(at, _)| at)
    }

    /// Removes the oldest connection that may make room, and is no operator's. Called when a descriptor is
    /// needed.
    pub(crate) fn remove_oldest(&mut self, now: Instant) -> Option<u64> {
        let at = self.displaced(now, |connection| connection.standing < ClientStanding::Operator)?;
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
    use axum::body::Body;
    use proptest::prelude::*;

    use super::*;
    use crate::answer::AnswerBody;

    const LOCAL: [u8; 4] = [127, 0, 0, 1];

    fn source(address: [u8; 4]) -> ConnectionSource {
        IpAddr::from(address).into()
    }

    fn admit(
        connections: &mut OpenConnections,
        source: ConnectionSource,
        standing: ClientStanding,
        now: Instant,
    ) -> AdmittedConnection {
        connections.admit(source, standing, Arc::default(), now)
    }

    /// Opens a connection of a reader, in this phase.
    fn reader(
        connections: &mut OpenConnections,
        source: ConnectionSource,
        phase: ConnectionPhase,
        now: Instant,
    ) -> u64 {
        let (AdmittedConnection::Open(id) | AdmittedConnection::InPlaceOf(id, _)) =
            admit(connections, source, ClientStanding::Unknown, now)
        else {
            panic!("a newcomer is always taken")
        };
        assert_ne!(connections.settle(id, ClientStanding::Reader, now), AdmittedConnection::Full);
        connections.enter(id, phase, now);
        id
    }

    #[test]
    fn a_flood_from_one_address_displaces_itself_and_nothing_that_is_answered() {
        let (mut connections, now) = (OpenConnections::default(), Instant::now());
        let honest = reader(&mut connections, source([10, 0, 0, 9]), ConnectionPhase::Waiting, now);
        let answered = reader(&mut connections, source(LOCAL), ConnectionPhase::Answering, now);
        for at in 1..1_000 {
            let later = now + Duration::from_millis(at);
            reader(&mut connections, source(LOCAL), ConnectionPhase::Waiting, later);
        }
        let open: Vec<_> = connections.open.iter().map(|connection| connection.id).collect();
        assert_eq!(open.len(), MOST_CONNECTIONS);
        assert!(open.contains(&honest) && open.contains(&answered));
    }

    #[test]
    fn an_operator_gets_in_beside_readers_that_are_all_being_answered() {
        let (mut connections, now) = (OpenConnections::default(), Instant::now());
        for _ in 0..MOST_CONNECTIONS {
            reader(&mut connections, source(LOCAL), ConnectionPhase::Answering, now);
        }
        // Others who have not said who they are.
        for at in 0..1_000 {
            let later = now + Duration::from_millis(at);
            assert_ne!(
                admit(&mut connections, source(LOCAL), ClientStanding::Unknown, later),
                AdmittedConnection::Full
            );
        }
        let (AdmittedConnection::Open(id) | AdmittedConnection::InPlaceOf(id, _)) =
            admit(&mut connections, source(LOCAL), ClientStanding::Unknown, now + GRACE)
        else {
            panic!("a newcomer is always taken")
        };
        assert_eq!(connections.settle(id, ClientStanding::Reader, now), AdmittedConnection::Full);
        assert_eq!(connections.settle(id, ClientStanding::Operator, now), AdmittedConnection::Open(id));
        assert_eq!(connections.settle(id, ClientStanding::Reader, now), AdmittedConnection::Open(id));
        let local = ConnectionSource::User(0);
        assert!(matches!(
            admit(&mut connections, local, ClientStanding::Operator, now),
            AdmittedConnection::Open(_)
        ));
    }

    #[test]
    fn an_answer_makes_room_once_it_is_taken_and_after_a_second_otherwise() {
        let (mut connections, now) = (OpenConnections::default(), Instant::now());
        let progress = Arc::new(AnswerProgress::default());
        for _ in 0..MOST_CONNECTIONS {
            reader(&mut connections, source(LOCAL), ConnectionPhase::Sending, now);
        }
        let newcomer = MOST_CONNECTIONS as u64;
        admit(&mut connections, source(LOCAL), ClientStanding::Unknown, now);
        let standing = ClientStanding::Reader;
        assert_eq!(connections.settle(newcomer, standing, now + GRACE / 2), AdmittedConnection::Full);
        connections.open[7].progress = Arc::clone(&progress);
        drop(AnswerBody::new(Body::empty(), Arc::clone(&progress)));
        progress.note_flush();
        assert_eq!(
            connections.settle(newcomer, standing, now + GRACE / 2),
            AdmittedConnection::InPlaceOf(newcomer, 7)
        );
        admit(&mut connections, source(LOCAL), ClientStanding::Unknown, now);
        assert_eq!(
            connections.settle(newcomer + 1, standing, now + GRACE),
            AdmittedConnection::InPlaceOf(newcomer + 1, 0)
        );
    }

    #[test]
    fn a_stream_never_makes_room() {
        let (mut connections, now) = (OpenConnections::default(), Instant::now());
        let user = ConnectionSource::User(1000);
        let stream = reader(&mut connections, user, ConnectionPhase::Streaming, now);
        for at in 1..200 {
            let later = now + Duration::from_secs(at);
            reader(&mut connections, user, ConnectionPhase::Waiting, later);
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
        /// For any arrivals in any order, the bounds hold, and connections that are being answered stay.
        #[test]
        fn the_bounds_hold_and_what_is_answered_stays(
            steps in prop::collection::vec((0_u8..4, 0_u8..6, 0_u64..3_000), 0..400)
        ) {
            let (mut connections, begin) = (OpenConnections::default(), Instant::now());
            let (mut ids, mut answering, mut elapsed) = (Vec::new(), Vec::new(), 0);
            for (step, number, pause) in steps {
                elapsed += pause;
                let now = begin + Duration::from_millis(elapsed);
                let chosen = ids.get(usize::from(number) * ids.len() / 6).copied();
                let outcome = match (step, chosen) {
                    (0 | 1, _) => {
                        admit(&mut connections, source([10, 0, 0, number]), ClientStanding::Unknown, now)
                    }
                    (2, Some(id)) => {
                        let standing = [ClientStanding::Reader, ClientStanding::Operator][usize::from(number % 2)];
                        let settled = connections.settle(id, standing, now);
                        if settled != AdmittedConnection::Full {
                            connections.enter(id, ConnectionPhase::Answering, now);
                            answering.push(id);
                        }
                        settled
                    }
                    (3, Some(id)) => {
                        connections.enter(id, ConnectionPhase::Sending, now);
                        answering.retain(|known| *known != id);
                        continue;
                    }
                    _ => continue,
                };
                if let AdmittedConnection::InPlaceOf(_, displaced) = outcome {
                    prop_assert!(!answering.contains(&displaced));
                    ids.retain(|known| *known != displaced);
                }
                if let AdmittedConnection::Open(id) | AdmittedConnection::InPlaceOf(id, _) = outcome
                    && !ids.contains(&id)
                {
                    ids.push(id);
                }
                for standing in [ClientStanding::Unknown, ClientStanding::Reader, ClientStanding::Operator] {
                    let of_standing = connections.open.iter().filter(|one| one.standing == standing);
                    prop_assert!(of_standing.count() <= standing.places());
                }
                prop_assert_eq!(connections.open.len(), ids.len());
            }
        }
    }
}
