//! State of the other hosts, from their messages: the rules that hold on every carrier. Pure: time is an
//! argument.
//!
//! A **host** is known by its name, and one start of it by its incarnation. Of a host's messages, only those
//! count that are later than the ones already heard. A second incarnation under a known name may be the host
//! after a restart, or another machine with the same name by mistake. The two cases differ only when the
//! first incarnation speaks again. So the first one counts until it takes its leave or has been silent for
//! three intervals. If it speaks after the second was heard, the two are duplicates.
//!
//! A name is bound to the address that its messages come from, if the carrier shows that: see
//! [`origin`](crate::origin).
//!
//! Bounds: 2048 hosts (when they are all there, the one silent for longest makes room if it is stale), 64
//! resources of each.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tidegate_control::{HeardReport, HostReport};
use tidegate_units::{HostName, Instant, ResourceName};

use crate::limits::MOST_HOSTS;
use crate::members::MemberChanges;
use crate::name::Incarnation;
use crate::origin::{MOST_PER_ADDRESS, NameOrigins, plain};
use crate::rejection::MessageRejection;
use crate::status::PeerStatus;
use crate::wire::{MOST_RESOURCES, Message, NumberedReport};

/// A host that was silent for so many intervals has lost its place: another one may have its name.
pub(crate) const SILENT_INTERVALS: u32 = 3;

/// A report is kept for so many intervals. The status then names hosts that went silent, and `combine` stale
/// ones.
const KEPT_INTERVALS: u32 = 150;

#[derive(Debug)]
pub(crate) struct PeerTable {
    own: HostName,
    incarnation: Incarnation,
    interval: Duration,
    origins: NameOrigins,
    hosts: BTreeMap<HostName, Peer>,
    /// The host that was last heard from each address of a list. Only a list fills it, which bounds it.
    last_at: HashMap<SocketAddr, HostName>,
    /// The time when another host was last heard under our own name.
    impostor: Option<Instant>,
    /// Hosts that came and went since this was last taken.
    changes: MemberChanges,
}

#[derive(Debug)]
struct Peer {
    incarnation: Incarnation,
    sequence: u64,
    heard: Instant,
    /// The address it speaks from, where the carrier shows one.
    from: Option<SocketAddr>,
    /// After so long without a word its name is free.
    patience: Duration,
    /// True if it was noted as silent, and was not heard since.
    silent: bool,
    /// The second incarnation under this name.
    rival: Option<Rival>,
    /// The time when two live incarnations were last seen.
    duplicate: Option<Instant>,
    reports: BTreeMap<ResourceName, Kept>,
}

#[derive(Debug)]
struct Rival {
    incarnation: Incarnation,
    sequence: u64,
    heard: Instant,
}

#[derive(Debug)]
struct Kept {
    number: u64,
    arrived: Instant,
    report: HostReport,
}

impl PeerTable {
    pub(crate) fn new(
        own: HostName,
        incarnation: Incarnation,
        interval: Duration,
        origins: NameOrigins,
    ) -> Self {
        Self {
            own,
            incarnation,
            interval,
            origins,
            hosts: BTreeMap::new(),
            last_at: HashMap::new(),
            impostor: None,
            changes: MemberChanges::default(),
        }
    }

    /// Returns whether messages from an address are looked at.
    pub(crate) fn knows(&self, from: SocketAddr) -> bool {
        self.origins.knows(plain(from))
    }

    /// The carrier has a connection again: hosts that are heard now are not counted as new.
    pub(crate) fn begin_anew(&mut self) {
        if let NameOrigins::Server(growth) = &mut self.origins {
            growth.begin_anew();
        }
    }

    /// Takes a message that arrived now, from an address where the carrier shows one. `Ok(false)`: it was our
    /// own.
    ///
    /// # Errors
    /// When it does not count, and why.
    pub(crate) fn hear(
        &mut self,
        now: Instant,
        message: Message,
        from: Option<SocketAddr>,
    ) -> Result<bool, MessageRejection> {
        let from = from.map(plain);
        let sender = &message.sender;
        if sender.host == self.own {
            if sender.incarnation == self.incarnation {
                return Ok(false);
            }
            self.impostor = Some(now);
            return Err(MessageRejection::DuplicateName);
        }
        // What was said with a peer's longer interval in mind is not judged by our shorter one.
        let interval = self.interval.max(Duration::from_millis(sender.interval_ms.into()));
        let patience = interval.saturating_mul(SILENT_INTERVALS);
        if let Some(from) = from {
            self.check_origin(now, &message, from)?;
        }
        match self.hosts.get_mut(&sender.host) {
            None => {
                self.make_room(now)?;
                let known = self.hosts.len();
                if let NameOrigins::Server(growth) = &mut self.origins
                    && !growth.admits(now, self.interval, known)
                {
                    return Err(MessageRejection::TooManyNames);
                }
            }
            Some(peer) if peer.incarnation == sender.incarnation => {
                if message.sequence <= peer.sequence {
                    return Err(MessageRejection::Replayed);
                }
                let silent = |since: Instant| now.saturating_since(since) > patience;
                if peer.rival.as_ref().is_some_and(|rival| !silent(rival.heard)) {
                    peer.duplicate = Some(now);
                }
            }
            Some(peer) => {
                let was_silent = peer.silent;
                peer.hear_another(now, &message)?;
                // It is noted as back below.
                peer.silent = was_silent;
                if !was_silent && !message.leaving {
                    self.changes.restarted.add(sender.host.clone());
                }
            }
        }
        if message.leaving {
            if self.hosts.remove(&sender.host).is_some() {
                self.changes.left.add(message.sender.host);
            }
            return Ok(true);
        }
        if let (NameOrigins::Listed(_), Some(from)) = (&self.origins, from) {
            self.last_at.insert(from, sender.host.clone());
        }
        let incarnation = sender.incarnation;
        let name = message.sender.host;
        match self.hosts.get(&name) {
            None => self.changes.came.add(name.clone()),
            Some(peer) if peer.silent => self.changes.back.add(name.clone()),
            Some(_) => {}
        }
        let peer = self.hosts.entry(name).or_insert_with(|| Peer::new(incarnation));
        peer.silent = false;
        peer.sequence = message.sequence;
        peer.heard = now;
        peer.from = from;
        peer.patience = patience;
        for NumberedReport { resource, number, report } in message.reports {
            peer.keep(now, resource, number, report);
        }
        Ok(true)
    }

    /// The peers' latest reports on a resource, each with its age.
    pub(crate) fn reports(&self, now: Instant, resource: &ResourceName) -> Vec<HeardReport> {
        self.reports_from(now, resource).into_iter().map(|(heard, _)| heard).collect()
    }

    /// The same, each with the address that its host speaks from.
    pub(crate) fn reports_from(
        &self,
        now: Instant,
        resource: &ResourceName,
    ) -> Vec<(HeardReport, Option<IpAddr>)> {
        let heard = |(host, peer): (&HostName, &Peer)| {
            let kept = peer.reports.get(resource)?;
            let (host, age) = (host.clone(), now.latency_since(kept.arrived));
            let heard = HeardReport { host, age, report: kept.report.clone() };
            Some((heard, peer.from.map(|from| from.ip())))
        };
        self.hosts.iter().filter_map(heard).collect()
    }

    /// Returns the hosts that came and went since the last call. A host is silent from now on if it was not
    /// heard for three intervals.
    pub(crate) fn changes(&mut self, now: Instant) -> MemberChanges {
        for (host, peer) in &mut self.hosts {
            if !peer.silent && now.saturating_since(peer.heard) > peer.patience {
                peer.silent = true;
                self.changes.silent.add(host.clone());
            }
        }
        std::mem::take(&mut self.changes)
    }

    /// Forgets hosts and reports that are no longer asked for.
    pub(crate) fn forget_old(&mut self, now: Instant) {
        let kept_for = self.interval.saturating_mul(KEPT_INTERVALS);
        self.hosts.retain(|_, peer| {
            peer.reports.retain(|_, kept| now.saturating_since(kept.arrived) <= kept_for);
            now.saturating_since(peer.heard) <= kept_for.max(peer.patience)
        });
    }

    pub(crate) fn status(&self, now: Instant) -> Vec<PeerStatus> {
        let peers = self.hosts.iter().map(|(host, peer)| PeerStatus {
            host: host.clone(),
            age: now.latency_since(peer.heard),
            report_age: peer.reports.values().map(|kept| now.latency_since(kept.arrived)).min(),
            stale: now.saturating_since(peer.heard) > peer.patience,
            resources: peer.reports.keys().cloned().collect(),
        });
        peers.collect()
    }

    /// Names that two hosts bore within the last intervals.
    pub(crate) fn duplicates(&self, now: Instant) -> Vec<HostName> {
        let recent =
            |seen: Instant, patience: Duration| now.saturating_since(seen) <= patience.saturating_mul(4);
        let ours = self
            .impostor
            .filter(|seen| recent(*seen, self.interval.saturating_mul(SILENT_INTERVALS)))
            .map(|_| self.own.clone());
        let others = self.hosts.iter().filter_map(|(host, peer)| {
            peer.duplicate.filter(|seen| recent(*seen, peer.patience)).map(|_| host.clone())
        });
        ours.into_iter().chain(others).collect()
    }

    /// One address is one host, and the host that uses a name keeps it as long as it speaks.
    fn check_origin(
        &self,
        now: Instant,
        message: &Message,
        from: SocketAddr,
    ) -> Result<(), MessageRejection> {
        let sender = &message.sender;
        if !self.origins.knows(from) {
            return Err(MessageRejection::UnknownPeer);
        }
        if !self.origins.allows(&sender.host, from) {
            return Err(MessageRejection::OtherName);
        }
        let speaks = |peer: &Peer| now.saturating_since(peer.heard) <= peer.patience;
        if let Some(peer) = self.hosts.get(&sender.host) {
            let elsewhere = peer.from != Some(from) && peer.incarnation == sender.incarnation;
            if elsewhere && speaks(peer) {
                return Err(MessageRejection::OtherName);
            }
        }
        match &self.origins {
            // At most one host of an address speaks, and that is the last one heard from there.
            NameOrigins::Listed(_) => {
                let last = self.last_at.get(&from).filter(|host| **host != sender.host);
                let last = last.and_then(|host| self.hosts.get(host));
                let taken = last.is_some_and(|peer| peer.from == Some(from) && speaks(peer));
                if taken { Err(MessageRejection::OtherName) } else { Ok(()) }
            }
            NameOrigins::Group => {
                let others = self.hosts.iter().filter(|(host, peer)| **host != sender.host && speaks(peer));
                let same = |peer: &Peer| peer.from.is_some_and(|other| other.ip() == from.ip());
                let names = others.filter(|(_, peer)| same(peer)).count();
                if names < MOST_PER_ADDRESS { Ok(()) } else { Err(MessageRejection::TooManyNames) }
            }
            NameOrigins::Server(_) | NameOrigins::Slots => Ok(()),
        }
    }

    fn make_room(&mut self, now: Instant) -> Result<(), MessageRejection> {
        if self.hosts.len() < MOST_HOSTS {
            return Ok(());
        }
        let stale = self
            .hosts
            .iter()
            .filter(|(_, peer)| now.saturating_since(peer.heard) > peer.patience)
            .min_by_key(|(_, peer)| peer.heard)
            .map(|(host, _)| host.clone())
            .ok_or(MessageRejection::TooManyHosts)?;
        self.hosts.remove(&stale);
        Ok(())
    }
}

impl Peer {
    fn new(incarnation: Incarnation) -> Self {
        Self {
            incarnation,
            sequence: 0,
            heard: Instant::ZERO,
            from: None,
            patience: Duration::ZERO,
            silent: false,
            rival: None,
            duplicate: None,
            reports: BTreeMap::new(),
        }
    }

    /// Another incarnation under this name speaks. It takes over when this one is silent, and waits
    /// otherwise.
    fn hear_another(&mut self, now: Instant, message: &Message) -> Result<(), MessageRejection> {
        let Message { sender, sequence, .. } = message;
        if now.saturating_since(self.heard) > self.patience {
            *self = Self { duplicate: self.duplicate, ..Self::new(sender.incarnation) };
            return Ok(());
        }
        let known = self.rival.take().filter(|rival| rival.incarnation == sender.incarnation);
        if known.as_ref().is_some_and(|rival| *sequence <= rival.sequence) {
            self.rival = known;
            return Err(MessageRejection::Replayed);
        }
        // The one that counts has spoken since the other was first heard: neither restarted, they are two.
        let two = known.as_ref().is_some_and(|rival| self.heard > rival.heard);
        self.rival = Some(Rival { incarnation: sender.incarnation, sequence: *sequence, heard: now });
        if two {
            self.duplicate = Some(now);
        }
        let recent = self.duplicate.is_some_and(|seen| now.saturating_since(seen) <= self.patience);
        Err(if recent { MessageRejection::DuplicateName } else { MessageRejection::Restarting })
    }

    fn keep(&mut self, now: Instant, resource: ResourceName, number: u64, report: HostReport) {
        match self.reports.get_mut(&resource) {
            Some(kept) if number <= kept.number => {}
            Some(kept) => *kept = Kept { number, arrived: now, report },
            None => {
                if self.reports.len() >= MOST_RESOURCES {
                    let oldest = self.reports.iter().min_by_key(|(_, kept)| kept.arrived);
                    if let Some(resource) = oldest.map(|(resource, _)| resource.clone()) {
                        self.reports.remove(&resource);
                    }
                }
                self.reports.insert(resource, Kept { number, arrived: now, report });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use tidegate_units::Latency;

    use super::*;
    use crate::wire::tests::{message, report};

    const SECOND: u64 = 1_000_000_000;

    fn at(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * SECOND)
    }

    fn peers() -> PeerTable {
        among(NameOrigins::Slots)
    }

    fn among(origins: NameOrigins) -> PeerTable {
        PeerTable::new(HostName::new("me").unwrap(), Incarnation(99), Duration::from_secs(2), origins)
    }

    fn vg0() -> ResourceName {
        ResourceName::new("vg0").unwrap()
    }

    fn about(number: u64, completed: u64) -> Vec<NumberedReport> {
        vec![NumberedReport { resource: vg0(), number, report: report(completed, 5) }]
    }

    fn completed(peers: &PeerTable, now: Instant) -> Vec<(String, u64, Latency)> {
        let heard = peers.reports(now, &vg0()).into_iter();
        heard.map(|heard| (heard.host.to_string(), heard.report.completed, heard.age)).collect()
    }

    #[test]
    fn the_latest_report_counts_and_its_age_is_since_it_arrived() {
        let mut peers = peers();
        assert_eq!(peers.hear(at(0), message("a", 1, 1, about(1, 10)), None), Ok(true));
        assert_eq!(peers.hear(at(2), message("a", 1, 2, about(2, 20)), None), Ok(true));
        assert_eq!(
            peers.hear(at(3), message("a", 1, 1, about(1, 10)), None),
            Err(MessageRejection::Replayed)
        );
        assert_eq!(completed(&peers, at(5)), [("a".to_owned(), 20, Latency::from_millis(3_000))]);
        assert_eq!(peers.reports(at(5), &ResourceName::new("other").unwrap()), []);
    }

    #[test]
    fn an_old_report_shown_again_in_a_new_message_does_not_get_younger() {
        let mut peers = peers();
        peers.hear(at(0), message("a", 1, 1, about(1, 10)), None).unwrap();
        peers.hear(at(4), message("a", 1, 2, about(1, 10)), None).unwrap();
        assert_eq!(completed(&peers, at(5)), [("a".to_owned(), 10, Latency::from_millis(5_000))]);
        assert_eq!(peers.status(at(5))[0].age, Latency::from_millis(1_000));
    }

    #[test]
    fn a_host_that_restarts_counts_again_after_three_intervals_and_is_no_duplicate() {
        let mut peers = peers();
        peers.hear(at(0), message("a", 1, 70, about(70, 10)), None).unwrap();
        assert_eq!(
            peers.hear(at(3), message("a", 2, 1, about(1, 20)), None),
            Err(MessageRejection::Restarting)
        );
        assert_eq!(
            peers.hear(at(5), message("a", 2, 2, about(2, 21)), None),
            Err(MessageRejection::Restarting)
        );
        assert_eq!(peers.hear(at(7), message("a", 2, 3, about(3, 22)), None), Ok(true));
        assert_eq!(completed(&peers, at(7)), [("a".to_owned(), 22, Latency::ZERO)]);
        assert_eq!(peers.duplicates(at(7)), []);
    }

    #[test]
    fn a_host_that_takes_its_leave_may_return_at_once() {
        let mut peers = peers();
        peers.hear(at(0), message("a", 1, 1, about(1, 10)), None).unwrap();
        let farewell = Message { leaving: true, ..message("a", 1, 2, vec![]) };
        assert_eq!(peers.hear(at(1), farewell, None), Ok(true));
        assert_eq!(completed(&peers, at(1)), []);
        assert_eq!(peers.hear(at(1), message("a", 2, 1, about(1, 20)), None), Ok(true));
    }

    fn changed(peers: &mut PeerTable, now: u64) -> Vec<String> {
        let MemberChanges { came, silent, back, restarted, left } = peers.changes(at(now));
        let kinds =
            [(came, "came"), (silent, "silent"), (back, "back"), (restarted, "restarted"), (left, "left")];
        let some = kinds.into_iter().filter(|(hosts, _)| !hosts.is_empty());
        some.map(|(hosts, kind)| format!("{hosts} {kind}")).collect()
    }

    #[test]
    fn each_change_of_a_host_is_told_once() {
        let mut peers = peers();
        let hear = |peers: &mut PeerTable, now: u64, incarnation: u128| {
            peers.hear(at(now), message("a", incarnation, now, vec![]), None).is_ok()
        };
        let nothing: [&str; 0] = [];
        assert!(hear(&mut peers, 1, 1));
        assert_eq!(changed(&mut peers, 1), ["host a came"]);
        assert_eq!(changed(&mut peers, 7), nothing, "three intervals are not over");
        assert_eq!(changed(&mut peers, 8), ["host a silent"]);
        assert_eq!(changed(&mut peers, 9), nothing);
        assert!(hear(&mut peers, 20, 2));
        assert_eq!(changed(&mut peers, 20), ["host a back"]);
        // Killed and started again at once: it is refused until its former self counts as gone.
        assert!(!hear(&mut peers, 24, 3) && hear(&mut peers, 27, 3));
        assert_eq!(changed(&mut peers, 27), ["host a restarted"]);
        let farewell = Message { leaving: true, ..message("a", 3, 28, vec![]) };
        peers.hear(at(28), farewell, None).unwrap();
        assert_eq!(changed(&mut peers, 28), ["host a left"]);
    }

    #[test]
    fn of_two_hosts_with_one_name_the_first_counts_and_both_are_reported() {
        let mut peers = peers();
        for second in 0..10 {
            peers.hear(at(2 * second), message("a", 1, second + 1, about(second + 1, 10)), None).unwrap();
            let other =
                peers.hear(at(2 * second + 1), message("a", 2, second + 1, about(second + 1, 20)), None);
            let expected =
                if second == 0 { MessageRejection::Restarting } else { MessageRejection::DuplicateName };
            assert_eq!(other, Err(expected));
        }
        assert_eq!(peers.duplicates(at(20)), [HostName::new("a").unwrap()]);
        assert_eq!(completed(&peers, at(18))[0].1, 10);
        // The first ends: the second takes its place, and the report of two hosts goes away.
        assert_eq!(peers.hear(at(25), message("a", 2, 99, about(99, 20)), None), Ok(true));
        assert_eq!(peers.duplicates(at(60)), []);
    }

    #[test]
    fn our_own_name_from_elsewhere_is_reported_and_our_own_voice_is_not() {
        let mut peers = peers();
        assert_eq!(peers.hear(at(0), message("me", 99, 1, about(1, 1)), None), Ok(false));
        assert_eq!(peers.duplicates(at(0)), []);
        assert_eq!(
            peers.hear(at(1), message("me", 98, 1, about(1, 1)), None),
            Err(MessageRejection::DuplicateName)
        );
        assert_eq!(peers.duplicates(at(1)), [HostName::new("me").unwrap()]);
        assert_eq!(completed(&peers, at(1)), []);
    }

    #[test]
    fn hosts_are_bounded_and_the_stale_make_room() {
        let mut peers = peers();
        for host in 0..MOST_HOSTS {
            peers.hear(at(0), message(&format!("h{host}"), 1, 1, vec![]), None).unwrap();
        }
        assert_eq!(
            peers.hear(at(1), message("new", 1, 1, vec![]), None),
            Err(MessageRejection::TooManyHosts)
        );
        assert_eq!(peers.hear(at(7), message("new", 1, 1, vec![]), None), Ok(true));
        assert_eq!(peers.status(at(7)).len(), MOST_HOSTS);
        peers.forget_old(at(1_000));
        assert_eq!(peers.status(at(1_000)).len(), 0);
    }

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    fn listed() -> PeerTable {
        let list = ["10.0.0.1:1", "10.0.0.2:1"].map(|text| text.parse().unwrap());
        among(NameOrigins::Listed(crate::origin::ListedPeers::new(&list)))
    }

    #[test]
    fn one_entry_of_the_list_is_one_host_however_many_names_it_uses() {
        let mut peers = listed();
        let (a, b) = (address("10.0.0.1:1"), address("[::ffff:10.0.0.2]:1"));
        assert_eq!(peers.hear(at(0), message("a", 1, 1, about(1, 10)), Some(a)), Ok(true));
        assert_eq!(peers.hear(at(0), message("b0", 2, 1, about(1, 20)), Some(b)), Ok(true));
        for (liar, name) in ["b1", "b2", "b3"].into_iter().enumerate() {
            let message = message(name, 3 + liar as u128, 1, about(1, 90));
            assert_eq!(peers.hear(at(1), message, Some(b)), Err(MessageRejection::OtherName));
        }
        let stranger = message("c", 9, 1, about(1, 90));
        assert_eq!(
            peers.hear(at(1), stranger, Some(address("10.0.0.3:1"))),
            Err(MessageRejection::UnknownPeer)
        );
        assert_eq!(completed(&peers, at(1)).len(), 2);
        // Silent for three intervals, it may come back under another name.
        assert_eq!(peers.hear(at(7), message("b1", 3, 9, about(9, 20)), Some(b)), Ok(true));
    }

    #[test]
    fn no_peer_speaks_for_a_host_that_lives_elsewhere() {
        let mut peers = listed();
        let (a, b) = (address("10.0.0.1:1"), address("10.0.0.2:1"));
        peers.hear(at(0), message("a", 1, 1, about(1, 10)), Some(a)).unwrap();
        // Its incarnation is no secret.
        let forged = message("a", 1, 1_000, about(9, 90));
        assert_eq!(peers.hear(at(1), forged, Some(b)), Err(MessageRejection::OtherName));
        let farewell = Message { leaving: true, ..message("a", 1, 1_001, vec![]) };
        assert_eq!(peers.hear(at(1), farewell, Some(b)), Err(MessageRejection::OtherName));
        assert_eq!(peers.hear(at(2), message("a", 1, 2, about(2, 11)), Some(a)), Ok(true));
        assert_eq!(completed(&peers, at(2))[0].1, 11);
        // Another one under its name is a duplicate, as ever.
        let other = message("a", 5, 1, about(1, 90));
        assert_eq!(peers.hear(at(3), other, Some(b)), Err(MessageRejection::Restarting));
    }

    #[test]
    fn in_a_group_an_address_has_four_names() {
        let mut peers = among(NameOrigins::Group);
        let from = |port: u16| Some(SocketAddr::new([10, 0, 0, 1].into(), port));
        for host in 0..9 {
            let taken = peers.hear(at(0), message(&format!("h{host}"), 1, 1, vec![]), from(1_000 + host));
            let expected = if host < 4 { Ok(true) } else { Err(MessageRejection::TooManyNames) };
            assert_eq!(taken, expected, "host {host}");
        }
        assert_eq!(peers.hear(at(1), message("h1", 1, 2, vec![]), from(1_001)), Ok(true));
        assert_eq!(peers.hear(at(1), message("other", 1, 1, vec![]), Some(address("10.0.0.2:1"))), Ok(true));
    }

    #[test]
    fn behind_a_server_fifty_new_names_at_once_are_too_many() {
        let mut peers = among(NameOrigins::Server(crate::origin::NewHosts::default()));
        for second in 0..30 {
            peers.hear(at(second), message("a", 1, second + 1, vec![]), None).unwrap();
        }
        let forged = |peers: &mut PeerTable, name: u64| {
            peers.hear(at(30), message(&format!("evil{name}"), 1, 1, vec![]), None)
        };
        let taken = (0..50).filter(|name| forged(&mut peers, *name).is_ok()).count();
        assert_eq!((taken, forged(&mut peers, 50)), (8, Err(MessageRejection::TooManyNames)));
        assert_eq!(peers.hear(at(31), message("a", 1, 31, vec![]), None), Ok(true));
    }

    proptest! {
        /// Under any interleaving: the sequence that counts only grows within an incarnation, an incarnation
        /// gives way only when silent, ages are those of arrival, and nothing grows past its bound.
        #[test]
        fn any_messages_in_any_order(
            spoken in prop::collection::vec((0u64..4, 0u8..3, 1u128..4, 0u64..6, 0u64..6), 1..200)
        ) {
            let mut peers = peers();
            let mut now = at(0);
            let mut current: BTreeMap<u8, (u128, u64, Instant)> = BTreeMap::new();
            for (pause, host, incarnation, sequence, number) in spoken {
                now = now + Duration::from_secs(pause);
                let name = format!("h{host}");
                let taken = peers.hear(now, message(&name, incarnation, sequence, about(number, sequence)),
                    None);
                if taken.is_ok() {
                    if let Some(&(was, before, heard)) = current.get(&host) {
                        if was == incarnation {
                            prop_assert!(sequence > before);
                        } else {
                            prop_assert!(now.saturating_since(heard) > Duration::from_secs(6));
                        }
                    }
                    current.insert(host, (incarnation, sequence, now));
                }
                for heard in peers.reports(now, &vg0()) {
                    prop_assert!(heard.age.to_duration() <= now.saturating_since(at(0)));
                }
                prop_assert!(peers.status(now).len() <= 3);
            }
        }
    }
}
