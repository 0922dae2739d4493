//! Proof that a datagram was made now and not recorded earlier, without any clock but our own, and without a
//! handshake.
//!
//! Every datagram carries a **nonce**, a number that its sender has just drawn, and **echoes** the latest
//! nonces that its sender heard from others: to a listed peer those from its address, to a group as many as
//! have room. A datagram that echoes a nonce of ours was made after we drew it. A nonce cannot be echoed
//! before it is drawn, and a datagram cannot be made without the key. So
//!
//! - a sender counts while it has echoed a nonce that we drew at most [`LEASE_INTERVALS`] intervals ago, and
//! - of one incarnation only growing sequence numbers count, which are remembered for as long as any nonce
//!   that its datagrams may echo is still good.
//!
//! Hence a datagram is taken at most once, and no datagram is taken that is older than the lease. An attacker
//! that records datagrams and sends them again gains nothing. Datagrams of the same incarnation fail the
//! sequence. Those of an earlier incarnation echo nonces that are no longer good, or fail the sequence that
//! we still remember.
//!
//! An attacker that can also keep datagrams back may deliver each of them once, up to a lease late. A flood
//! of datagrams can delay that a *new* host is heard, because its nonce must find a place among those to
//! echo. Half of the places are kept for hosts that count already.
//!
//! Timestamps were the alternative. They need clocks that agree, and fail just when a clock does not; a boot
//! counter in a file fails when the file is lost. The price paid here is eight bytes in each datagram to a
//! listed peer, and eight bytes per host in a datagram to a group.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use ring::rand::{SecureRandom, SystemRandom};
use tidegate_units::{HostName, Instant};

use crate::limits::MOST_LISTED;
use crate::name::Incarnation;
use crate::origin::plain;
use crate::rejection::MessageRejection;

/// A nonce is good for so many of our intervals. A host of a list echoes us once in an interval. A host of a
/// group does as long as it hears at most [`MOST_ECHOES`] others. So several datagrams in a row may be lost.
const LEASE_INTERVALS: u32 = 10;

/// A datagram echoes at most so many nonces.
pub(crate) const MOST_ECHOES: usize = 64;

/// Incarnations that are remembered, at most: twice as many as a list of peers has hosts.
const MOST_SOURCES: usize = 2 * MOST_LISTED;

/// At most so many of one address: some restarts of as many hosts as a multicast group has of one address.
pub(super) const MOST_PER_ADDRESS: usize = 16;

#[derive(Debug)]
pub(crate) struct DatagramFreshness {
    random: SystemRandom,
    interval: Duration,
    /// Ours, oldest first, each with the time when it was drawn.
    drawn: VecDeque<(u64, Instant)>,
    sources: BTreeMap<(HostName, Incarnation), Source>,
}

/// The part of a datagram that says when it was made.
#[derive(Debug)]
pub(crate) struct DatagramStamp<'a> {
    pub(crate) sequence: u64,
    pub(crate) nonce: u64,
    pub(crate) echoes: &'a [u64],
}

#[derive(Debug)]
struct Source {
    from: SocketAddr,
    /// The highest sequence number heard.
    sequence: u64,
    /// The nonce to echo to it.
    nonce: u64,
    heard: Instant,
    echoed: Option<Instant>,
    /// The time when we drew the latest of our nonces that it has echoed.
    proved: Option<Instant>,
}

impl Source {
    fn counts(&self, now: Instant, lease: Duration) -> bool {
        self.proved.is_some_and(|drawn| now.saturating_since(drawn) <= lease)
    }
}

impl DatagramFreshness {
    pub(crate) fn new(interval: Duration) -> Self {
        Self { random: SystemRandom::new(), interval, drawn: VecDeque::new(), sources: BTreeMap::new() }
    }

    fn lease(&self) -> Duration {
        self.interval.saturating_mul(LEASE_INTERVALS)
    }

    /// Judges an authentic datagram that arrived now.
    ///
    /// # Errors
    /// When it was heard before, or its sender has not shown that it lives.
    pub(crate) fn check(
        &mut self,
        now: Instant,
        from: SocketAddr,
        host: &HostName,
        incarnation: Incarnation,
        stamp: &DatagramStamp<'_>,
    ) -> Result<(), MessageRejection> {
        let DatagramStamp { sequence, nonce, echoes } = *stamp;
        let lease = self.lease();
        self.drawn.retain(|(_, drawn)| now.saturating_since(*drawn) <= lease);
        let proved = self.drawn.iter().rev().find(|(ours, _)| echoes.contains(ours)).map(|(_, drawn)| *drawn);
        let key = (host.clone(), incarnation);
        if !self.sources.contains_key(&key) {
            self.make_room(now, from)?;
        }
        let source = self.sources.entry(key).or_insert(Source {
            from,
            sequence: 0,
            nonce,
            heard: now,
            echoed: None,
            proved: None,
        });
        if sequence <= source.sequence {
            return Err(MessageRejection::Replayed);
        }
        source.sequence = sequence;
        source.nonce = nonce;
        // Its echo goes where the datagram came from: an old one, sent again from elsewhere, changes nothing.
        source.from = from;
        source.heard = now;
        source.proved = source.proved.max(proved);
        if source.counts(now, lease) { Ok(()) } else { Err(MessageRejection::Unproved) }
    }

    /// Returns the nonce of ours for the datagrams that go out now.
    ///
    /// # Errors
    /// When the system has no randomness to give.
    pub(crate) fn nonce(&mut self, now: Instant) -> Result<u64, ring::error::Unspecified> {
        Ok(match self.drawn.back() {
            Some(&(nonce, drawn)) if now.saturating_since(drawn) < self.interval / 2 => nonce,
            _ => {
                let mut bytes = [0; 8];
                self.random.fill(&mut bytes)?;
                let nonce = u64::from_le_bytes(bytes);
                self.drawn.push_back((nonce, now));
                nonce
            }
        })
    }

    /// Returns the echoes that are due to each address: of as many incarnations as may come from there, those
    /// that count first.
    pub(crate) fn echoes_by_address(&mut self, now: Instant) -> HashMap<SocketAddr, Vec<u64>> {
        let lease = self.lease();
        let mut due: Vec<_> = self
            .sources
            .values()
            .filter(|source| self.is_due(source, now))
            .map(|source| (!source.counts(now, lease), source.echoed, source.from, source.nonce))
            .collect();
        due.sort();
        let mut echoes = HashMap::<_, Vec<u64>>::with_capacity(due.len());
        for (.., from, nonce) in due {
            let here = echoes.entry(plain(from)).or_default();
            if here.len() < MOST_PER_ADDRESS {
                here.push(nonce);
            }
        }
        for source in self.sources.values_mut() {
            if echoes.get(&plain(source.from)).is_some_and(|nonces| nonces.contains(&source.nonce)) {
                source.echoed = Some(now);
            }
        }
        echoes
    }

    /// Returns the number of echoes that are due.
    pub(crate) fn due(&self, now: Instant) -> usize {
        self.sources.values().filter(|source| self.is_due(source, now)).count()
    }

    fn is_due(&self, source: &Source, now: Instant) -> bool {
        // Slightly less than an interval, so that a sender's jitter does not make it every other one.
        source.echoed.is_none_or(|echoed| now.saturating_since(echoed) >= self.interval * 3 / 4)
    }

    /// Returns at most `most` echoes for a datagram to all.
    pub(crate) fn echoes(&mut self, now: Instant, most: usize) -> Vec<u64> {
        let most = most.min(MOST_ECHOES);
        let lease = self.lease();
        let mut due: Vec<_> = self
            .sources
            .iter()
            .filter(|(_, source)| self.is_due(source, now))
            .map(|(key, source)| (!source.counts(now, lease), source.echoed, key.clone()))
            .collect();
        due.sort();
        // Those that count come first, the longest waiting before the others; half of the places are theirs
        // alone, the other half is never.
        let known = due.partition_point(|(new, ..)| !new);
        let new = (due.len() - known).min(most / 2);
        let chosen = due[..known.min(most - new)].iter().chain(&due[known..known + new]);
        let mut nonces = Vec::with_capacity(most);
        for (.., key) in chosen {
            if let Some(source) = self.sources.get_mut(key) {
                source.echoed = Some(now);
                nonces.push(source.nonce);
            }
        }
        nonces
    }

    /// Forgets sources whose datagrams could not count any more, so that one more fits: of its address, and
    /// of all.
    fn make_room(&mut self, now: Instant, from: SocketAddr) -> Result<(), MessageRejection> {
        let lease = self.lease();
        self.sources
            .retain(|_, source| now.saturating_since(source.heard) <= lease || source.counts(now, lease));
        if self.sources.values().filter(|source| source.from == from).count() >= MOST_PER_ADDRESS {
            self.forget_unproved(now, |source| source.from == from).ok_or(MessageRejection::TooManyNames)?;
        }
        if self.sources.len() >= MOST_SOURCES {
            self.forget_unproved(now, |_| true).ok_or(MessageRejection::TooManyHosts)?;
        }
        Ok(())
    }

    /// Forgets the oldest source that has shown nothing yet: it has nothing to lose. The others' sequence
    /// numbers must not be forgotten. `None`: there is no such source.
    fn forget_unproved(&mut self, now: Instant, among: impl Fn(&Source) -> bool) -> Option<()> {
        let lease = self.lease();
        let oldest = self
            .sources
            .iter()
            .filter(|(_, source)| among(source) && !source.counts(now, lease))
            .min_by_key(|(_, source)| source.heard)
            .map(|(key, _)| key.clone())?;
        self.sources.remove(&oldest);
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_secs(2);

    fn at(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * 1_000_000_000)
    }

    fn host(name: &str) -> HostName {
        HostName::new(name).unwrap()
    }

    /// An address for each name.
    fn of(name: &HostName) -> SocketAddr {
        let sum = name.as_str().bytes().fold(0_u32, |sum, byte| sum.wrapping_mul(31) + u32::from(byte));
        SocketAddr::new(sum.to_be_bytes().into(), 7710)
    }

    /// The parts of a datagram that tests send: sequence, nonce, echoes.
    type Sent = (u64, u64, Vec<u64>);

    struct Node {
        name: HostName,
        incarnation: Incarnation,
        sequence: u64,
        freshness: DatagramFreshness,
    }

    impl Node {
        fn new(name: &str, incarnation: u128) -> Self {
            let incarnation = Incarnation(incarnation);
            Self { name: host(name), incarnation, sequence: 0, freshness: DatagramFreshness::new(INTERVAL) }
        }

        fn send(&mut self, now: Instant) -> Sent {
            self.sequence += 1;
            let nonce = self.freshness.nonce(now).unwrap();
            let echoes = self.freshness.echoes(now, MOST_ECHOES);
            (self.sequence, nonce, echoes)
        }

        fn hear(&mut self, now: Instant, from: &Node, sent: &Sent) -> Result<(), MessageRejection> {
            let (sequence, nonce, echoes) = sent;
            let stamp = DatagramStamp { sequence: *sequence, nonce: *nonce, echoes };
            self.freshness.check(now, of(&from.name), &from.name, from.incarnation, &stamp)
        }
    }

    #[test]
    fn two_hosts_count_for_each_other_within_two_intervals_and_go_on() {
        let (mut a, mut b) = (Node::new("a", 1), Node::new("b", 2));
        let first = a.send(at(0));
        assert_eq!(b.hear(at(0), &a, &first), Err(MessageRejection::Unproved));
        let answer = b.send(at(1));
        assert_eq!(a.hear(at(1), &b, &answer), Ok(()));
        for second in 1..60 {
            let (from_a, from_b) = (a.send(at(2 * second)), b.send(at(2 * second + 1)));
            assert_eq!(b.hear(at(2 * second), &a, &from_a), Ok(()));
            assert_eq!(a.hear(at(2 * second + 1), &b, &from_b), Ok(()));
        }
    }

    #[test]
    fn nothing_recorded_counts_again_not_even_from_before_the_sender_restarted() {
        let (mut a, mut b) = (Node::new("a", 1), Node::new("b", 2));
        let mut recorded = vec![];
        for second in 0..10 {
            let from_a = a.send(at(second));
            let _ = b.hear(at(second), &a, &from_a);
            recorded.push(from_a);
            let from_b = b.send(at(second));
            let _ = a.hear(at(second), &b, &from_b);
        }
        let mut again = Node::new("a", 3);
        for second in 10..200 {
            for old in &recorded {
                assert!(b.hear(at(second), &a, old).is_err(), "at {second} s");
            }
            let from_a = again.send(at(second));
            let taken = b.hear(at(second), &again, &from_a);
            assert!(taken.is_ok() || second == 10, "the new incarnation at {second} s: {taken:?}");
            let from_b = b.send(at(second));
            let _ = again.hear(at(second), &b, &from_b);
        }
        // A receiver that restarted remembers nothing, and takes nothing old either.
        let mut fresh = Node::new("b", 4);
        let _ = fresh.send(at(200));
        for old in &recorded {
            assert!(fresh.hear(at(201), &a, old).is_err());
        }
    }

    #[test]
    fn what_was_held_back_counts_for_a_lease_at_most() {
        let (mut a, mut b) = (Node::new("a", 1), Node::new("b", 2));
        let from_b = b.send(at(0));
        let _ = a.hear(at(0), &b, &from_b);
        let held: Vec<_> = (0..40).map(|second| a.send(at(second))).collect();
        assert_eq!(b.hear(at(15), &a, &held[0]), Ok(()));
        assert_eq!(b.hear(at(20), &a, &held[1]), Ok(()));
        assert_eq!(b.hear(at(21), &a, &held[2]), Err(MessageRejection::Unproved));
    }

    #[test]
    fn strangers_keep_out_neither_those_who_count_nor_for_ever_a_new_one() {
        let (mut a, mut b) = (Node::new("a", 1), Node::new("b", 2));
        for second in 0..400 {
            let now = at(second);
            for stranger in 0..100 {
                let ghost = u128::from(1_000 + second * 100 + stranger);
                let from = SocketAddr::new([10, 1, second as u8, stranger as u8].into(), 7710);
                let stamp = DatagramStamp { sequence: 1, nonce: 7, echoes: &[] };
                let _ = b.freshness.check(now, from, &host("a"), Incarnation(ghost), &stamp);
            }
            assert!(b.freshness.sources.len() <= MOST_SOURCES);
            let from_b = b.send(now);
            assert!(from_b.2.len() <= MOST_ECHOES);
            let heard = a.hear(now, &b, &from_b);
            let from_a = a.send(now);
            let taken = b.hear(now, &a, &from_a);
            if second > 10 {
                assert_eq!((heard, taken), (Ok(()), Ok(())), "at {second} s");
            }
        }
    }

    #[test]
    fn one_address_fills_its_own_places_only() {
        let (mut a, mut b) = (Node::new("a", 1), Node::new("b", 2));
        for second in 0..100 {
            let (now, from_b) = (at(second), b.send(at(second)));
            for posed in 0..100 {
                // It lives, and has the key: it echoes what it hears.
                let stamp = DatagramStamp { sequence: second + 1, nonce: 7, echoes: &[from_b.1] };
                let from = SocketAddr::new([10, 0, 0, 9].into(), 7710);
                let _ =
                    b.freshness.check(now, from, &host(&format!("liar{posed}")), Incarnation(posed), &stamp);
            }
            assert!(b.freshness.sources.len() <= MOST_PER_ADDRESS + 1);
            let heard = a.hear(now, &b, &from_b);
            let from_a = a.send(now);
            let taken = b.hear(now, &a, &from_a);
            assert!(second < 10 || (heard.is_ok() && taken.is_ok()), "at {second} s");
        }
    }

    #[test]
    fn a_hundred_hosts_keep_counting_for_one_another() {
        let mut nodes: Vec<_> = (0..100).map(|n| Node::new(&format!("h{n}"), n + 1)).collect();
        for round in 0..30 {
            for sender in 0..nodes.len() {
                let now = Instant::from_nanos(round * 2_000_000_000 + sender as u64 * 20_000_000);
                let sent = nodes[sender].send(now);
                let (name, incarnation) = (nodes[sender].name.clone(), nodes[sender].incarnation);
                for (receiver, node) in nodes.iter_mut().enumerate() {
                    if receiver != sender {
                        let stamp = DatagramStamp { sequence: sent.0, nonce: sent.1, echoes: &sent.2 };
                        let taken = node.freshness.check(now, of(&name), &name, incarnation, &stamp);
                        assert!(round < 5 || taken.is_ok(), "{sender} to {receiver} in round {round}");
                    }
                }
            }
        }
    }

    /// Sends to one peer of the list, as a host does.
    fn send_to(node: &mut Node, now: Instant, peer: SocketAddr) -> Sent {
        node.sequence += 1;
        let nonce = node.freshness.nonce(now).unwrap();
        (node.sequence, nonce, node.freshness.echoes_by_address(now).remove(&peer).unwrap_or_default())
    }

    #[test]
    fn a_thousand_listed_hosts_count_from_the_second_interval_on() {
        let mut a = Node::new("a", 1);
        let mut peers: Vec<_> = (0..1_000).map(|n| Node::new(&format!("h{n}"), n + 2)).collect();
        for round in 0..15 {
            let now = at(2 * round);
            a.sequence += 1;
            let nonce = a.freshness.nonce(now).unwrap();
            let mut echoes = a.freshness.echoes_by_address(now);
            for peer in &mut peers {
                let sent = (a.sequence, nonce, echoes.remove(&of(&peer.name)).unwrap_or_default());
                assert!(sent.2.len() <= 1, "each peer gets its own echo only");
                let heard = peer.hear(now, &a, &sent);
                let answer = send_to(peer, now, of(&a.name));
                let taken = a.hear(now, peer, &answer);
                assert!(
                    round == 0 || (heard.is_ok() && taken.is_ok()),
                    "round {round}: {heard:?}, {taken:?}"
                );
            }
        }
    }

    #[test]
    fn a_datagram_sent_again_from_elsewhere_takes_no_echo_away() {
        let (mut a, mut b) = (Node::new("a", 1), Node::new("b", 2));
        let elsewhere = SocketAddr::new([10, 9, 9, 9].into(), 7710);
        for second in 0..40 {
            let now = at(2 * second);
            let from_a = send_to(&mut a, now, of(&b.name));
            let stamp = DatagramStamp { sequence: from_a.0, nonce: from_a.1, echoes: &from_a.2 };
            let taken = b.freshness.check(now, of(&a.name), &a.name, a.incarnation, &stamp);
            let again = b.freshness.check(now, elsewhere, &a.name, a.incarnation, &stamp);
            assert_eq!(again, Err(MessageRejection::Replayed));
            let from_b = send_to(&mut b, now, of(&a.name));
            let heard = a.hear(now, &b, &from_b);
            assert!(second == 0 || (taken.is_ok() && heard.is_ok()), "at {second}: {taken:?}, {heard:?}");
        }
    }
}
