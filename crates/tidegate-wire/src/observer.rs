//! All connections between initiators and an array, and what each initiator did to each LUN.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tidegate_units::{Bytes, Instant, Latency};

use crate::commands::{CommandKind, CompletedCommand, LogicalUnit};
use crate::connection::{SessionNames, Towards};
use crate::direction::DirectionSegment;
use crate::frame::TcpSegment;
use crate::storage::{StorageConnection, StorageProtocol};

/// Connections that are followed, at most.
const MOST_CONNECTIONS: usize = 4096;

/// Pairs of initiator and LUN that are counted, at most.
const MOST_NEXUSES: usize = 65_536;

/// Sessions that are remembered for connections seen from their middle, at most.
const MOST_RECALLED: usize = 2 * MOST_CONNECTIONS;

/// A connection without a packet for so long is gone: initiators and targets ping each other within seconds.
const IDLE: Duration = Duration::from_secs(300);

/// A connection that a side has closed is forgotten after this.
const CLOSING: Duration = Duration::from_secs(5);

/// Segments with payload after which a connection without a known place counts as not understood.
const UNDERSTOOD_WITHIN: u32 = 256;

/// An initiator's use of a LUN.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nexus {
    /// The protocol.
    pub protocol: StorageProtocol,
    /// The initiator's name; its address if its login was not seen.
    pub initiator: Arc<str>,
    /// The target's name; the portal's address and port if the login was not seen.
    pub target: Arc<str>,
    /// The LUN or namespace: a number, or 16 hexadecimal digits.
    pub unit: Arc<str>,
}

/// Operations that were carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OperationCount {
    /// The number of those whose latency is known.
    pub count: u64,
    /// The bytes that all of them moved.
    pub bytes: Bytes,
    /// The latencies that are known, all together.
    pub latency: Latency,
}

/// Totals of a nexus. They only grow while the nexus is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NexusTotals {
    /// Reads.
    pub reads: OperationCount,
    /// Writes.
    pub writes: OperationCount,
}

/// The state of a nexus.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NexusReport {
    /// The nexus.
    pub nexus: Nexus,
    /// The addresses that its connections come from, each once, in order.
    pub addresses: Vec<IpAddr>,
    /// Its totals.
    pub totals: NexusTotals,
    /// Reads that certainly have no response yet.
    pub reads_in_flight: u32,
    /// The time at which the oldest of them was sent.
    pub oldest_read: Option<Instant>,
}

/// The knowledge of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionView {
    /// Its login is under way.
    LoggingIn,
    /// It is understood, and its names are known.
    Named,
    /// It is understood. Its login was not seen, so that its names are not known.
    Unnamed,
    /// It is not understood yet.
    Sought,
    /// It is no storage protocol that is spoken here, or not understood for long.
    Unknown,
    /// It is encrypted by TLS.
    Encrypted,
}

impl fmt::Display for ConnectionView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::LoggingIn => "logging in",
            Self::Named => "understood",
            Self::Unnamed => "understood, but its login was not seen: its names are unknown",
            Self::Sought => "seen from its middle, not understood yet",
            Self::Unknown => "not understood: neither iSCSI nor NVMe/TCP, or a part of it passes elsewhere",
            Self::Encrypted => "encrypted: its commands cannot be seen",
        })
    }
}

/// Counts of packets and what became of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WireCounters {
    /// Segments of storage connections.
    pub segments: u64,
    /// Packets that the capture lost.
    pub lost: u64,
    /// Segments whose bytes had all passed before.
    pub repeated: u64,
    /// Segments that came before an earlier one.
    pub early: u64,
    /// Missing bytes that may have been part of a header.
    pub gaps: u64,
    /// Commands that were forgotten at gaps, and yield no latency.
    pub forgotten: u64,
    /// Commands, connections and nexuses beyond the bounds.
    pub beyond_bounds: u64,
}

/// A session that was known before, by the connection that it uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecalledSession {
    /// The initiator's address and port.
    pub client: SocketAddr,
    /// The portal.
    pub server: SocketAddr,
    /// The initiator's name.
    pub initiator: Arc<str>,
    /// The target's name.
    pub target: Arc<str>,
}

/// Everything that is known of the traffic.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WireReport {
    /// Each nexus, in order.
    pub nexuses: Vec<NexusReport>,
    /// Each connection: initiator, portal, and what is known of it.
    pub connections: Vec<(SocketAddr, SocketAddr, ConnectionView)>,
    /// Counts.
    pub counters: WireCounters,
}

/// Watches storage connections.
///
/// Call [`receive`](Self::receive) for each captured packet in the order of capture, [`lose`](Self::lose)
/// when the capture lost some, and [`report`](Self::report) to learn what was seen.
#[derive(Debug)]
pub struct WireObserver {
    ports: BTreeSet<u16>,
    connections: BTreeMap<ConnectionEnds, WatchedConnection>,
    totals: BTreeMap<Nexus, NexusTotals>,
    recalled: BTreeMap<ConnectionEnds, SessionNames>,
    counters: WireCounters,
}

/// Initiator and portal of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct ConnectionEnds {
    client: SocketAddr,
    server: SocketAddr,
}

#[derive(Debug)]
struct WatchedConnection {
    storage: StorageConnection,
    /// The names of its nexuses.
    nexuses: BTreeMap<LogicalUnit, Nexus>,
    /// The sequence number of each side's SYN: the initiator's first.
    begun: [Option<u32>; 2],
    last: Instant,
    is_closing: bool,
    /// Segments with payload while it was not understood.
    misunderstood: u32,
    is_encrypted: bool,
}

impl WireObserver {
    /// Watches the connections to these ports of an array.
    #[must_use]
    pub fn new(ports: BTreeSet<u16>) -> Self {
        Self {
            ports,
            connections: BTreeMap::new(),
            totals: BTreeMap::new(),
            recalled: BTreeMap::new(),
            counters: WireCounters::default(),
        }
    }

    /// Takes a captured frame, and its length on the wire. Others than of storage connections are ignored.
    pub fn receive(&mut self, at: Instant, frame: &[u8], wire_length: usize) {
        let Some(segment) = TcpSegment::parse(frame, wire_length) else { return };
        let is_to_target = self.ports.contains(&segment.destination.port());
        if !is_to_target && !self.ports.contains(&segment.source.port()) {
            return;
        }
        self.counters.segments += 1;
        let (client, server) = match is_to_target {
            true => (segment.source, segment.destination),
            false => (segment.destination, segment.source),
        };
        let ends = ConnectionEnds { client, server };
        if segment.resets {
            self.connections.remove(&ends);
            self.recalled.remove(&ends);
            return;
        }
        let opens = segment.begins && is_to_target;
        if opens && self.connections.get(&ends).is_some_and(|known| known.begun[0] != Some(segment.sequence))
        {
            self.connections.remove(&ends);
        }
        if !self.connections.contains_key(&ends) {
            if self.connections.len() >= MOST_CONNECTIONS {
                self.counters.beyond_bounds += 1;
                return;
            }
            let mut storage = StorageConnection::from_the_middle(server.port());
            // A connection that begins now is another than the one with these ports before.
            if let Some(names) = self.recalled.remove(&ends).filter(|_| !segment.begins) {
                storage.recall(names);
            }
            self.connections.insert(ends, WatchedConnection::new(storage, at));
        }
        let Some(connection) = self.connections.get_mut(&ends) else { return };
        connection.take(at, is_to_target, &segment, ends, &mut self.totals, &mut self.counters);
    }

    /// Takes note that the capture lost packets: responses may be among them.
    pub fn lose(&mut self, now: Instant, packets: u64) {
        self.counters.lost += packets;
        self.connections.values_mut().for_each(|connection| connection.storage.doubt(now));
    }

    /// Takes note that packets were not captured for a while, or that the clock of captures has changed. What
    /// was outstanding yields no latency.
    pub fn interrupt(&mut self) {
        let forgotten = self.connections.values_mut().map(|connection| connection.storage.forget());
        self.counters.forgotten += forgotten.sum::<usize>() as u64;
    }

    /// Gives names to connections that were there before this observer was.
    pub fn recall(&mut self, sessions: impl IntoIterator<Item = RecalledSession>) {
        for RecalledSession { client, server, initiator, target } in sessions.into_iter().take(MOST_RECALLED)
        {
            self.recalled.insert(ConnectionEnds { client, server }, SessionNames { initiator, target });
        }
    }

    /// Returns the sessions with names, for a [`recall`](Self::recall) later. Those that were recalled and
    /// have been idle since are among them: an idle queue of NVMe/TCP sends nothing.
    pub fn sessions(&self) -> impl Iterator<Item = RecalledSession> {
        let seen = self.connections.iter();
        let named = seen.filter_map(|(ends, connection)| Some((ends, connection.storage.names()?)));
        named.chain(&self.recalled).map(|(ends, SessionNames { initiator, target })| RecalledSession {
            client: ends.client,
            server: ends.server,
            initiator: initiator.clone(),
            target: target.clone(),
        })
    }

    /// Forgets connections that have ended, and returns what is known.
    pub fn report(&mut self, now: Instant) -> WireReport {
        let mut nexuses: BTreeMap<Nexus, NexusReport> = BTreeMap::new();
        for (ends, connection) in &self.connections {
            for (unit, nexus) in &connection.nexuses {
                let report = nexuses.entry(nexus.clone()).or_insert_with(|| NexusReport {
                    nexus: nexus.clone(),
                    addresses: Vec::new(),
                    totals: self.totals.get(nexus).copied().unwrap_or_default(),
                    reads_in_flight: 0,
                    oldest_read: None,
                });
                let address = ends.client.ip().to_canonical();
                if let Err(place) = report.addresses.binary_search(&address) {
                    report.addresses.insert(place, address);
                }
                let reads = connection.storage.reads_in_flight(*unit);
                report.reads_in_flight += reads.count;
                report.oldest_read = [report.oldest_read, reads.oldest].into_iter().flatten().min();
            }
        }
        let connections = self.connections.iter();
        let report = WireReport {
            nexuses: nexuses.into_values().collect(),
            connections: connections.map(|(ends, known)| (ends.client, ends.server, known.view())).collect(),
            counters: self.counters,
        };
        self.connections.retain(|_, connection| {
            let patience = if connection.is_closing { CLOSING } else { IDLE };
            now.saturating_since(connection.last) <= patience
        });
        let known = |nexus: &Nexus| report.nexuses.binary_search_by(|found| found.nexus.cmp(nexus)).is_ok();
        self.totals.retain(|nexus, _| known(nexus));
        report
    }
}

impl WatchedConnection {
    fn new(storage: StorageConnection, at: Instant) -> Self {
        let (nexuses, begun) = (BTreeMap::new(), [None; 2]);
        Self { storage, nexuses, begun, last: at, is_closing: false, misunderstood: 0, is_encrypted: false }
    }

    fn take(
        &mut self,
        at: Instant,
        is_to_target: bool,
        segment: &TcpSegment<'_>,
        ends: ConnectionEnds,
        totals: &mut BTreeMap<Nexus, NexusTotals>,
        counters: &mut WireCounters,
    ) {
        self.last = at;
        self.is_closing |= segment.ends;
        let mut sequence = segment.sequence;
        if segment.begins {
            let begun = &mut self.begun[usize::from(!is_to_target)];
            sequence = sequence.wrapping_add(1);
            if begun.replace(segment.sequence) != Some(segment.sequence) {
                self.storage.begin(towards(is_to_target), sequence);
            }
        }
        if segment.length == 0 {
            return;
        }
        let had_names = self.storage.names().is_some();
        let TcpSegment { payload, length, .. } = *segment;
        let piece = DirectionSegment { at, sequence, payload, length };
        let nexuses = &self.nexuses;
        let events = self.storage.take(towards(is_to_target), piece, &mut |command| match nexuses
            .get(&command.unit)
        {
            Some(nexus) if totals.len() < MOST_NEXUSES || totals.contains_key(nexus) => {
                totals.entry(nexus.clone()).or_default().add(&command);
            }
            // A response comes after its command, which gave the LUN its name.
            _ => counters.beyond_bounds += 1,
        });
        if self.storage.is_understood() {
            (self.misunderstood, self.is_encrypted) = (0, false);
        } else {
            self.misunderstood = self.misunderstood.saturating_add(1);
            self.is_encrypted |= is_tls(segment.payload);
        }
        // Names are learnt at the login, before the first command.
        if had_names != self.storage.names().is_some() {
            self.nexuses.clear();
        }
        self.name_units(ends);
        counters.repeated += u64::from(events.direction.repeated);
        counters.early += u64::from(events.direction.early);
        counters.gaps += u64::from(events.direction.gap);
        counters.forgotten += events.forgotten as u64;
        counters.beyond_bounds += events.unfollowed as u64;
    }

    /// Gives each LUN that it has used a name.
    fn name_units(&mut self, ends: ConnectionEnds) {
        if self.storage.units().len() == self.nexuses.len() {
            return;
        }
        let (initiator, target): (Arc<str>, Arc<str>) = match self.storage.names() {
            Some(names) => (names.initiator.clone(), names.target.clone()),
            None => (ends.client.ip().to_canonical().to_string().into(), ends.server.to_string().into()),
        };
        for unit in self.storage.units() {
            let (initiator, target) = (initiator.clone(), target.clone());
            let protocol = self.storage.protocol();
            let nexus = || Nexus { protocol, initiator, target, unit: unit.to_string().into() };
            self.nexuses.entry(unit).or_insert_with(nexus);
        }
    }

    fn view(&self) -> ConnectionView {
        match self.storage.is_understood() {
            true if self.storage.names().is_some() => ConnectionView::Named,
            true if self.storage.is_logged_in() => ConnectionView::Unnamed,
            true => ConnectionView::LoggingIn,
            false if self.is_encrypted => ConnectionView::Encrypted,
            false if self.storage.is_plausible() => ConnectionView::Sought,
            false if self.misunderstood >= UNDERSTOOD_WITHIN => ConnectionView::Unknown,
            false => ConnectionView::Sought,
        }
    }
}

impl NexusTotals {
    fn add(&mut self, command: &CompletedCommand) {
        let total = match command.kind {
            CommandKind::Read => &mut self.reads,
            CommandKind::Write => &mut self.writes,
        };
        total.bytes = Bytes::new(total.bytes.get().saturating_add(command.bytes));
        if let Some(latency) = command.latency {
            total.count += 1;
            total.latency = total.latency.saturating_add(latency);
        }
    }
}

const fn towards(is_to_target: bool) -> Towards {
    if is_to_target { Towards::Target } else { Towards::Initiator }
}

/// Returns true if a payload begins as a record of TLS does: handshake or data, of version 3.x.
fn is_tls(payload: &[u8]) -> bool {
    matches!(payload, [0x16 | 0x17, 3, 0..=4, ..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::build::{BEGIN, DATA, RESET, frame};
    use crate::iscsi::peers::{self, PeerDigests};

    const NONE: PeerDigests = PeerDigests { header: false, data: false };

    /// Two peers of a connection, whose packets an observer sees.
    struct Pair {
        client: SocketAddr,
        next: [u32; 2],
    }

    const SERVER: &str = "10.0.0.1:3260";

    impl Pair {
        fn new(client: &str) -> Self {
            Self { client: client.parse().unwrap(), next: [100, 200] }
        }

        fn flow(&self, side: usize) -> (SocketAddr, SocketAddr) {
            let server = SERVER.parse().unwrap();
            if side == 0 { (self.client, server) } else { (server, self.client) }
        }

        fn say(&mut self, observer: &mut WireObserver, at_ms: u64, side: usize, flags: u8, payload: &[u8]) {
            let built = frame(self.flow(side), self.next[side], flags, payload, 1);
            observer.receive(Instant::from_nanos(at_ms * 1_000_000), &built, built.len());
            let length = u32::try_from(payload.len()).unwrap() + u32::from(flags == BEGIN);
            self.next[side] = self.next[side].wrapping_add(length);
        }

        fn log_in(&mut self, observer: &mut WireObserver, at_ms: u64, initiator: &str) {
            self.say(observer, at_ms, 0, BEGIN, b"");
            self.say(observer, at_ms, 1, BEGIN, b"");
            self.say(observer, at_ms, 0, DATA, &peers::login(initiator, "iqn.array:vg0", NONE));
            self.say(observer, at_ms, 1, DATA, &peers::login_response(NONE));
        }

        fn read(&mut self, observer: &mut WireObserver, at_ms: u64, unit: u8, ms: u64) {
            self.say(observer, at_ms, 0, DATA, &peers::read(5, unit, 4096, NONE));
            self.say(observer, at_ms + ms, 1, DATA, &peers::data_in(5, &[1; 4096], true, NONE));
        }
    }

    fn observer() -> WireObserver {
        WireObserver::new([3260].into())
    }

    #[test]
    fn each_initiator_has_its_totals_at_each_lun_over_all_its_connections() {
        let mut observer = observer();
        let (mut one, mut two) = (Pair::new("10.0.0.11:1000"), Pair::new("10.0.0.12:1000"));
        let mut second = Pair::new("10.0.1.11:1001");
        one.log_in(&mut observer, 0, "iqn.a");
        second.log_in(&mut observer, 0, "iqn.a");
        two.log_in(&mut observer, 0, "iqn.b");
        one.read(&mut observer, 10, 0, 4);
        second.read(&mut observer, 20, 0, 8);
        two.read(&mut observer, 30, 1, 2);
        let report = observer.report(Instant::from_nanos(50_000_000));
        let seen: Vec<_> = report
            .nexuses
            .iter()
            .map(|found| {
                (&*found.nexus.initiator, &*found.nexus.unit, found.totals.reads, found.addresses.len())
            })
            .collect();
        let reads = |count, ms| OperationCount {
            count,
            bytes: Bytes::new(4096 * count),
            latency: Latency::from_millis(ms),
        };
        assert_eq!(seen, [("iqn.a", "0", reads(2, 12), 2), ("iqn.b", "1", reads(1, 2), 1)]);
        assert!(report.connections.iter().all(|(.., view)| *view == ConnectionView::Named));
    }

    #[test]
    fn a_session_without_a_login_has_its_addresses_for_names_unless_it_is_recalled() {
        let mut pair = Pair::new("10.0.0.11:1000");
        let mut first = observer();
        pair.log_in(&mut first, 0, "iqn.a");
        let known: Vec<_> = first.sessions().collect();
        for recalled in [false, true] {
            let mut later = observer();
            later.recall(if recalled { known.clone() } else { Vec::new() });
            let mut pair = Pair { client: pair.client, next: pair.next };
            for round in 0..8 {
                pair.read(&mut later, 10 * round, 0, 1);
            }
            let report = later.report(Instant::from_nanos(100_000_000));
            let Nexus { initiator, target, .. } = &report.nexuses[0].nexus;
            let names = if recalled { ("iqn.a", "iqn.array:vg0") } else { ("10.0.0.11", SERVER) };
            assert_eq!((&**initiator, &**target), names);
            let view = if recalled { ConnectionView::Named } else { ConnectionView::Unnamed };
            assert_eq!(report.connections[0].2, view);
            assert!(report.nexuses[0].totals.reads.count >= 3, "{report:?}");
        }
        // An observer that saw nothing of an idle session passes its names on.
        let mut idle = observer();
        idle.recall(known.clone());
        assert!(idle.sessions().eq(known));
    }

    #[test]
    fn encrypted_and_foreign_connections_are_named_so() {
        let mut observer = observer();
        let (mut tls, mut other) = (Pair::new("10.0.0.11:1000"), Pair::new("10.0.0.12:1000"));
        tls.say(&mut observer, 0, 0, BEGIN, b"");
        tls.say(&mut observer, 0, 1, BEGIN, b"");
        tls.say(&mut observer, 1, 0, DATA, &[&[0x16, 3, 1][..], &[9; 200]].concat());
        for at in 0..u64::from(UNDERSTOOD_WITHIN) {
            other.say(&mut observer, at, 0, DATA, b"GET / HTTP/1.1");
        }
        let report = observer.report(Instant::from_nanos(2_000_000));
        let views: Vec<_> = report.connections.iter().map(|(.., view)| *view).collect();
        assert_eq!(views, [ConnectionView::Encrypted, ConnectionView::Unknown]);
        assert_eq!(report.nexuses, []);
    }

    #[test]
    fn lost_packets_make_no_read_look_old() {
        let mut observer = observer();
        let mut pair = Pair::new("10.0.0.11:1000");
        pair.log_in(&mut observer, 0, "iqn.a");
        pair.say(&mut observer, 1, 0, DATA, &peers::read(5, 0, 4096, NONE));
        let at = Instant::from_nanos(1_000_000);
        assert_eq!(observer.report(at).nexuses[0].oldest_read, Some(at));
        observer.lose(Instant::from_nanos(9_000_000), 3);
        let report = observer.report(Instant::from_nanos(9_000_000));
        assert_eq!((report.nexuses[0].oldest_read, report.counters.lost), (None, 3));
        // The response was lost. The next response shows it, and what was outstanding is forgotten.
        pair.next[1] += 4144;
        pair.read(&mut observer, 10, 0, 1);
        for round in 0..6 {
            pair.read(&mut observer, 600 + 10 * round, 0, 1);
        }
        let totals = observer.report(Instant::from_nanos(900_000_000)).nexuses[0].totals;
        assert_eq!(totals.reads.latency, Latency::from_millis(totals.reads.count), "{totals:?}");
        assert!(totals.reads.count > 0);
    }

    #[test]
    fn connections_end_and_are_forgotten() {
        let mut observer = observer();
        let mut pair = Pair::new("10.0.0.11:1000");
        pair.log_in(&mut observer, 0, "iqn.a");
        pair.read(&mut observer, 1, 0, 1);
        let long = Instant::from_nanos(2 * IDLE.as_nanos() as u64);
        assert_eq!(observer.report(long).nexuses.len(), 1);
        assert_eq!(observer.report(long).nexuses.len(), 0);
        pair.log_in(&mut observer, 0, "iqn.a");
        pair.say(&mut observer, 1, 1, RESET, b"");
        assert_eq!(
            observer.report(Instant::ZERO),
            WireReport { counters: observer.counters, ..WireReport::default() }
        );
    }
}
