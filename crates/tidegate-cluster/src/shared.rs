//! State that the owner of a [`ClusterHandle`](crate::ClusterHandle) and its carrier's thread share.
//!
//! The owner must never wait for a carrier: these locks are taken for moments, never across input or output.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidegate_control::HostReport;
use tidegate_units::{HostName, Instant, ResourceName};

use crate::config::{ClusterConfig, JoinError};
use crate::members::MemberNotices;
use crate::name::{ClusterName, Incarnation};
use crate::notice::LogNotices;
use crate::origin::NameOrigins;
use crate::peers::{PeerTable, SILENT_INTERVALS};
use crate::rejection::{MessageRejection, RejectionCounts};
use crate::status::{CarrierKind, ClusterStatus};
use crate::wire::{MOST_RESOURCES, Message, NumberedReport, Sender};

#[derive(Debug)]
pub(crate) struct SharedState {
    pub(crate) cluster: ClusterName,
    pub(crate) host: HostName,
    pub(crate) incarnation: Incarnation,
    pub(crate) interval: Duration,
    kind: CarrierKind,
    origin: std::time::Instant,
    outbox: Mutex<Outbox>,
    peers: Mutex<PeerTable>,
    tally: Mutex<Tally>,
    /// A byte into the one end wakes the carrier, which waits at the other.
    wake: UnixStream,
    woken: UnixStream,
    stop: AtomicBool,
    /// Since when the carrier waits for a device, in nanoseconds; 0 while it does not.
    io_since: AtomicU64,
}

#[derive(Debug)]
struct Tally {
    up: bool,
    reason: Option<String>,
    slot: Option<u16>,
    sent: u64,
    taken: u64,
    rejected: RejectionCounts,
    notices: LogNotices,
    members: MemberNotices,
}

impl SharedState {
    pub(crate) fn new(config: &ClusterConfig) -> Result<Self, JoinError> {
        let incarnation = Incarnation::random().ok_or(JoinError::NoRandomness)?;
        let (wake, woken) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        woken.set_nonblocking(true)?;
        Ok(Self {
            cluster: config.name.clone(),
            host: config.host.clone(),
            incarnation,
            interval: config.interval,
            kind: config.carrier.kind(),
            origin: std::time::Instant::now(),
            outbox: Mutex::default(),
            peers: Mutex::new(PeerTable::new(
                config.host.clone(),
                incarnation,
                config.interval,
                NameOrigins::of(&config.carrier),
            )),
            tally: Mutex::new(Tally {
                up: false,
                reason: Some("starting".to_owned()),
                slot: None,
                sent: 0,
                taken: 0,
                rejected: RejectionCounts::default(),
                notices: LogNotices::default(),
                members: MemberNotices::default(),
            }),
            wake,
            woken,
            stop: AtomicBool::new(false),
            io_since: AtomicU64::new(0),
        })
    }

    /// The time on this host's monotonic clock.
    pub(crate) fn now(&self) -> Instant {
        Instant::ZERO + self.origin.elapsed()
    }

    /// Between two messages there is at least so much time: what is published meanwhile goes together.
    fn gap(&self) -> Duration {
        (self.interval / 20).min(Duration::from_millis(100))
    }

    /// The time from one message to the next: news after the gap, a sign of life after more than an interval.
    /// After exactly one, it would go out just before the next report in every second interval.
    pub(crate) fn pause(&self) -> Duration {
        if self.has_news() { self.gap() } else { self.interval * 5 / 4 }
    }

    // ── for the owner ──

    pub(crate) fn publish(&self, resource: &ResourceName, report: HostReport) {
        let now = self.now();
        let kept_for = self.interval.saturating_mul(10);
        if lock(&self.outbox).put(now, kept_for, resource, report) {
            self.wake();
        } else {
            let why = format!("a host tells of at most {MOST_RESOURCES} resources");
            lock(&self.tally).notices.say_left_out(now, &self.cluster, resource, &why);
        }
    }

    pub(crate) fn peers(&self) -> MutexGuard<'_, PeerTable> {
        lock(&self.peers)
    }

    pub(crate) fn status(&self) -> ClusterStatus {
        let now = self.now();
        let (peers, duplicates) = {
            let peers = self.peers();
            (peers.status(now), peers.duplicates(now))
        };
        let unpublished = lock(&self.outbox).refused;
        let tally = lock(&self.tally);
        let hanging = self.hanging(now);
        ClusterStatus {
            cluster: self.cluster.clone(),
            host: self.host.clone(),
            carrier: self.kind,
            up: tally.up && hanging.is_none(),
            reason: hanging.or_else(|| tally.reason.clone()),
            slot: tally.slot,
            peers,
            duplicates,
            sent: tally.sent,
            taken: tally.taken,
            rejected: tally.rejected,
            unpublished,
        }
    }

    fn hanging(&self, now: Instant) -> Option<String> {
        let since = match self.io_since.load(Ordering::Relaxed) {
            0 => return None,
            since => now.latency_since(Instant::from_nanos(since)),
        };
        (since.to_duration() > self.interval.saturating_mul(SILENT_INTERVALS))
            .then(|| format!("it has been waiting for the device for {since}"))
    }

    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.wake();
    }

    fn wake(&self) {
        // It fails when the carrier has left many of them unread: then one more changes nothing.
        let _ = (&self.wake).write(&[1]);
    }

    // ── for the carrier ──

    pub(crate) fn stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Readable when something was published, or the end has come. Does not block.
    pub(crate) const fn woken(&self) -> &UnixStream {
        &self.woken
    }

    pub(crate) fn clear_wake(&self) {
        let mut bytes = [0; 64];
        while (&self.woken).read(&mut bytes).is_ok_and(|read| read == bytes.len()) {}
    }

    fn has_news(&self) -> bool {
        lock(&self.outbox).reports.values().any(|draft| !draft.sent)
    }

    /// Returns the reports that were published and not sent, and marks them as sent. Reports older than an
    /// interval are left out.
    pub(crate) fn take_news(&self) -> Vec<NumberedReport> {
        let oldest = self.oldest_told();
        lock(&self.outbox).take_news(oldest)
    }

    /// Returns the reports of the last interval, sent before or not, the youngest first, and marks them as
    /// sent.
    pub(crate) fn take_recent(&self) -> Vec<NumberedReport> {
        let oldest = self.oldest_told();
        lock(&self.outbox).take_recent(oldest)
    }

    /// Receivers count a report's age from its arrival. A report that waited for longer than an interval,
    /// through an outage of the carrier, would seem fresh. It is left out: its host has a newer one.
    fn oldest_told(&self) -> Instant {
        self.now() - self.interval
    }

    /// A report that the carrier has no room for.
    pub(crate) fn leave_out(&self, now: Instant, resource: &ResourceName, why: &str) {
        lock(&self.outbox).refused += 1;
        lock(&self.tally).notices.say_left_out(now, &self.cluster, resource, why);
    }

    /// Does something that may hang, in a way that [`SharedState::status`] can tell.
    pub(crate) fn during_io<T>(&self, work: impl FnOnce() -> T) -> T {
        self.io_since.store(self.now().as_nanos().max(1), Ordering::Relaxed);
        let result = work();
        self.io_since.store(0, Ordering::Relaxed);
        result
    }

    pub(crate) fn message(&self, sequence: u64, reports: Vec<NumberedReport>, leaving: bool) -> Message {
        // Invariant: the interval was checked to be at most a minute.
        let interval_ms = self.interval.as_millis() as u32;
        let sender = Sender { host: self.host.clone(), incarnation: self.incarnation, interval_ms };
        Message { sender, sequence, reports, leaving }
    }

    /// Takes a message that arrived now, or counts and says why not. `from` is where it came from, for
    /// people; `address` the same, where names are bound to it.
    pub(crate) fn hear(
        &self,
        now: Instant,
        heard: Result<Message, MessageRejection>,
        from: &dyn Display,
        address: Option<SocketAddr>,
    ) {
        let (host, result) = match heard {
            Ok(message) => (Some(message.sender.host.clone()), self.peers().hear(now, message, address)),
            Err(rejection) => (None, Err(rejection)),
        };
        let mut tally = lock(&self.tally);
        match result {
            Ok(true) => tally.taken += 1,
            Ok(false) => {}
            Err(rejection) => {
                *tally.rejected.count(rejection) += 1;
                tally.notices.say_rejected(now, &self.cluster, rejection, host.as_ref(), from);
            }
        }
    }

    /// Logs the hosts that came and went, and forgets those that were silent for long.
    pub(crate) fn review_members(&self, now: Instant) {
        let changes = {
            let mut peers = self.peers();
            let changes = peers.changes(now);
            peers.forget_old(now);
            changes
        };
        lock(&self.tally).members.say(now, &self.cluster, &changes);
    }

    /// Takes note of this host's slot in a shared file.
    pub(crate) fn set_slot(&self, slot: Option<usize>) {
        lock(&self.tally).slot = slot.and_then(|slot| u16::try_from(slot).ok());
    }

    pub(crate) fn count_sent(&self) {
        lock(&self.tally).sent += 1;
    }

    /// Says how the carrier is, and logs it when that is new.
    pub(crate) fn set_line(&self, up: bool, reason: Option<String>) {
        let mut tally = lock(&self.tally);
        if tally.up == up && tally.reason == reason {
            return;
        }
        let (cluster, kind) = (&self.cluster, self.kind);
        match (&reason, up) {
            (None, _) => tracing::info!("cluster {cluster}: {kind} is up"),
            (Some(reason), true) => tracing::warn!("cluster {cluster}: {kind} is up, but {reason}"),
            (Some(reason), false) => {
                tracing::warn!("cluster {cluster}: {kind} is down, this host goes on alone: {reason}");
            }
        }
        tally.up = up;
        tally.reason = reason;
    }
}

/// The latest report on each resource.
#[derive(Debug, Default)]
struct Outbox {
    reports: BTreeMap<ResourceName, Draft>,
    number: u64,
    refused: u64,
}

#[derive(Debug)]
struct Draft {
    number: u64,
    report: HostReport,
    published: Instant,
    sent: bool,
}

impl Outbox {
    /// Puts a report into the outbox. Returns whether there was room.
    fn put(&mut self, now: Instant, kept_for: Duration, resource: &ResourceName, report: HostReport) -> bool {
        if !self.reports.contains_key(resource) && self.reports.len() >= MOST_RESOURCES {
            self.reports.retain(|_, draft| now.saturating_since(draft.published) <= kept_for);
            if self.reports.len() >= MOST_RESOURCES {
                self.refused += 1;
                return false;
            }
        }
        self.number += 1;
        let draft = Draft { number: self.number, report, published: now, sent: false };
        self.reports.insert(resource.clone(), draft);
        true
    }

    fn take_news(&mut self, oldest: Instant) -> Vec<NumberedReport> {
        let mut news = Vec::new();
        for (resource, draft) in &mut self.reports {
            if !std::mem::replace(&mut draft.sent, true) && draft.published >= oldest {
                news.push(draft.numbered(resource));
            }
        }
        news
    }

    fn take_recent(&mut self, oldest: Instant) -> Vec<NumberedReport> {
        let mut recent = Vec::new();
        for (resource, draft) in &mut self.reports {
            draft.sent = true;
            if draft.published >= oldest {
                recent.push(draft.numbered(resource));
            }
        }
        recent.sort_by_key(|report| std::cmp::Reverse(report.number));
        recent
    }
}

impl Draft {
    fn numbered(&self, resource: &ResourceName) -> NumberedReport {
        NumberedReport { resource: resource.clone(), number: self.number, report: self.report.clone() }
    }
}

/// A thread that panicked left nothing half done: every change under these locks is complete in itself.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
