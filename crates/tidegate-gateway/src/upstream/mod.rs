//! An export of another NBD server as a backend: the upstream.
//!
//! [`Upstream`] owns the connections to one upstream export and everything that is under way on them. Like all of a pool
//! it lives on the pool's worker thread, and its sockets on the pool's ring; only connecting and the handshake
//! ([`connect`]) happen elsewhere. What clients are told and how their requests are passed on is [`plan`]; which flush
//! covers what, across connections that come and go, is [`ledger`]; when to try again is [`outage`].
//!
//! A request is at the upstream once at a time. When its connection breaks, it is sent again if that does no harm: if it
//! had not left completely, or is a read or a flush. A change that had left may still be carried out by the old
//! server, however late, and over a newer one if it were sent again; so it is answered with EIO, unless the
//! configuration says that the upstream drops such requests ([`Replay::All`]).

mod connect;
mod ledger;
mod link;
mod outage;
mod plan;

use std::collections::VecDeque;
use std::io;

use slab::Slab;
use tidegate_nbd::transmission::{Command, Pending, ReplyError, ReplyEvent, Request as Wire};
use tidegate_nbd::{Errno, ExportName, Geometry, Operation};
use tidegate_units::{ConsumerName, Instant, ResourceName};
use tracing::{debug, error, info, warn};

pub use connect::UpstreamError;
pub(crate) use connect::{Connected, open};
pub(crate) use ledger::{Change, Flushed, Ledger};
pub(crate) use link::Outgoing;
pub use plan::Mismatch;

use crate::buffer::{Buffer, BufferPool};
use crate::config::{Endpoint, Replay, UpstreamConfig};
use crate::message::Message;
use crate::request::Request;
use crate::ring::{Part as Window, Ring, Token};
use crate::stats::UpstreamSnapshot;
use link::{DIRECT, Link, PORTION, Payload, Receiving, State};
use outage::Reachability;
use plan::{Part, Plan, errno_for_client};

/// Requests on one connection: as many as this gateway takes from one connection by default. More wait here.
const LINK_DEPTH: usize = 128;

/// How often a request that had left is sent again. What breaks the connection every time may be to blame for it.
const MOST_ATTEMPTS: u8 = 5;

/// What the worker lends for a call.
pub(crate) struct Hands<'a> {
    pub(crate) ring: &'a mut Ring,
    pub(crate) buffers: &'a mut BufferPool,
    pub(crate) requests: &'a mut Slab<Request>,
    /// What is finished, for the worker to answer.
    pub(crate) done: &'a mut Vec<Done>,
    /// The worker's key of the export.
    pub(crate) export: usize,
    pub(crate) now: Instant,
}

/// Something that the upstream has finished.
#[derive(Debug)]
pub(crate) enum Done {
    /// A request; a successful change that must be durable may still need a flush.
    Request { key: usize, result: Result<(), Errno>, flush: bool },
    /// The flush that was asked for.
    Flush(Result<Flushed, Errno>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    Request(usize),
    Flush,
}

#[derive(Debug, Clone, Copy)]
struct Job {
    work: Work,
    /// How often it was lost with a connection after it had left.
    attempts: u8,
    /// Connections up to this ordinal do not count for that: they were there already when it was last lost, and many
    /// break at once when a server dies.
    excused: u64,
}

impl Job {
    /// Counts a loss with the connection of this ordinal, of so many opened; says whether it was not the last.
    fn may_try_again(&mut self, ordinal: u64, opened: u64) -> bool {
        if ordinal > self.excused {
            self.attempts += 1;
            self.excused = opened;
        }
        self.attempts < MOST_ATTEMPTS
    }

    fn new(work: Work) -> Self {
        Self { work, attempts: 0, excused: 0 }
    }
}

/// A job on a connection.
#[derive(Debug)]
struct Flight {
    job: Job,
    link: usize,
    /// Tells it from others that use the same key at other times; grows.
    serial: u64,
    part: Part,
    /// For a flush: the changes answered when it was sent.
    covers: u64,
    /// All of it has left.
    sent: bool,
    replied: bool,
    failed: Option<Errno>,
}

#[derive(Debug, Default)]
struct Counters {
    lost: u64,
    reconnects: u64,
    replayed: u64,
    failed: u64,
}

/// Where an upstream export is.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) address: Endpoint,
    pub(crate) export: ExportName,
}

/// One upstream export.
#[derive(Debug)]
pub(crate) struct Upstream {
    pool: ResourceName,
    name: ConsumerName,
    target: Target,
    config: UpstreamConfig,
    plan: Plan,
    links: Slab<Link>,
    /// Connections opened so far.
    opened: u64,
    flights: Slab<Flight>,
    serial: u64,
    /// For a connection, in the order in which they are to be sent.
    waiting: VecDeque<Job>,
    ledger: Ledger,
    reachability: Reachability,
    counters: Counters,
    /// Some connection has something to send.
    to_send: bool,
    /// The outage was reported.
    complained: bool,
    /// It is being given up: nothing is sent any more.
    closing: bool,
}

impl Upstream {
    /// Takes the first connection.
    pub(crate) fn new(
        pool: ResourceName,
        name: ConsumerName,
        target: Target,
        config: UpstreamConfig,
        first: Connected,
        now: Instant,
    ) -> Self {
        let ledger = Ledger::default();
        let mut links = Slab::new();
        links.insert(Link::new(first.socket, 1, ledger.mark(), now));
        Self {
            pool,
            name,
            target,
            plan: Plan::new(&first.geometry),
            links,
            opened: 1,
            flights: Slab::new(),
            serial: 0,
            waiting: VecDeque::new(),
            ledger,
            reachability: Reachability::new(config.reconnect, now),
            counters: Counters::default(),
            to_send: false,
            complained: false,
            closing: false,
            config,
        }
    }

    /// What clients are told.
    pub(crate) fn geometry(&self, read_only: bool) -> Geometry {
        self.plan.geometry(read_only)
    }

    pub(crate) fn ledger(&mut self) -> &mut Ledger {
        &mut self.ledger
    }

    pub(crate) fn snapshot(&self) -> UpstreamSnapshot {
        UpstreamSnapshot {
            connections: self.open_links(),
            wanted: self.wanted_links(),
            reconnects: self.counters.reconnects,
            replayed: self.counters.replayed,
            failed: self.counters.failed,
            unflushed_losses: self.ledger.losses(),
        }
    }

    /// Begins to listen to the connection that it was made with.
    pub(crate) fn begin(&mut self, hands: &mut Hands<'_>) {
        let keys: Vec<usize> = self.links.iter().map(|(key, _)| key).collect();
        keys.into_iter().for_each(|key| self.receive(key, hands));
    }

    /// Passes on a scheduled request.
    pub(crate) fn start(&mut self, key: usize, hands: &mut Hands<'_>) {
        let request = &mut hands.requests[key];
        if let Operation::Read { length, .. } = request.operation {
            request.buffer = Some(hands.buffers.take(length as usize));
        }
        self.submit(Job::new(Work::Request(key)), hands);
    }

    /// Has the upstream flush; at most one flush is asked for at a time.
    pub(crate) fn flush(&mut self, hands: &mut Hands<'_>) {
        self.submit(Job::new(Work::Flush), hands);
    }

    /// When [`turn`](Self::turn) has something to do though nothing completes.
    pub(crate) fn next_event(&self) -> Option<Instant> {
        let attempt = if self.wants_link() { self.reachability.next_attempt() } else { None };
        let give_up = if self.waiting.is_empty() { None } else { self.patience_ends() };
        [attempt, give_up].into_iter().flatten().min()
    }

    /// Sends what there is to send, gives up what has waited too long, and says whether to try to connect.
    pub(crate) fn turn(&mut self, hands: &mut Hands<'_>) -> Option<Target> {
        if !self.waiting.is_empty() && self.has_lost_patience(hands.now) {
            warn!(
                pool = %self.pool, export = %self.name, upstream = %self.target.address,
                waiting = self.waiting.len(),
                "the upstream is not back; until it is, requests are answered with EIO"
            );
            self.fail_waiting(hands);
        }
        if std::mem::take(&mut self.to_send) {
            for (key, link) in &mut self.links {
                send(key, link, hands);
            }
        }
        let due = self.wants_link() && self.reachability.next_attempt().is_some_and(|next| next <= hands.now);
        due.then(|| {
            self.reachability.begin_attempt();
            self.target.clone()
        })
    }

    /// An attempt to connect has ended.
    pub(crate) fn connected(&mut self, outcome: Result<Connected, UpstreamError>, hands: &mut Hands<'_>) {
        let outcome = outcome.and_then(|connected| {
            self.plan.check(&connected.geometry)?;
            Ok(connected)
        });
        match outcome {
            Ok(connected) => self.adopt(connected, hands),
            Err(error) => {
                self.reachability.failed(matches!(error, UpstreamError::Mismatch(_)), hands.now);
                let none = self.open_links() == 0;
                if none && !std::mem::replace(&mut self.complained, true) {
                    error!(
                        pool = %self.pool, export = %self.name, upstream = %self.target.address,
                        "cannot connect to upstream export {:?}: {error}; trying again", self.target.export.as_str()
                    );
                } else {
                    debug!(pool = %self.pool, export = %self.name, "cannot connect to the upstream: {error}");
                }
            }
        }
    }

    fn adopt(&mut self, connected: Connected, hands: &mut Hands<'_>) {
        if self.closing {
            return;
        }
        self.reachability.connected(!self.waiting.is_empty(), hands.now);
        self.complained = false;
        if self.counters.reconnects < self.counters.lost {
            self.counters.reconnects += 1;
            info!(
                pool = %self.pool, export = %self.name, upstream = %self.target.address,
                waiting = self.waiting.len(), "connected to the upstream again"
            );
        }
        self.opened += 1;
        let key = self.links.insert(Link::new(connected.socket, self.opened, self.ledger.mark(), hands.now));
        self.receive(key, hands);
        self.pump(hands);
    }

    /// Breaks connections on which requests have waited too long for any progress.
    pub(crate) fn check_silence(&mut self, hands: &mut Hands<'_>) {
        let (limit, now) = (self.config.timeout, hands.now);
        let silent: Vec<usize> =
            self.links.iter().filter(|(_, link)| link.is_silent(limit, now)).map(|(key, _)| key).collect();
        for key in silent {
            self.break_off(key, "it has answered nothing for too long", hands);
        }
    }

    /// Gives everything up: what is under way fails, connections end.
    pub(crate) fn close(&mut self, hands: &mut Hands<'_>) {
        if std::mem::replace(&mut self.closing, true) {
            return;
        }
        self.fail_waiting(hands);
        let keys: Vec<usize> = self.links.iter().map(|(key, _)| key).collect();
        keys.into_iter().for_each(|key| self.break_off(key, "it is not needed any more", hands));
    }

    /// Whether nothing of it is left in the kernel's hands.
    pub(crate) fn is_gone(&self) -> bool {
        self.links.is_empty()
    }

    /// Ends every connection after the worker has failed.
    pub(crate) fn hang_up(&mut self) {
        self.links.iter_mut().for_each(|(_, link)| link.break_off());
    }

    fn open_links(&self) -> usize {
        self.links.iter().filter(|(_, link)| link.state == State::Open).count()
    }

    fn wanted_links(&self) -> usize {
        if self.plan.allows_many_connections() { self.config.connections.get() as usize } else { 1 }
    }

    fn wants_link(&self) -> bool {
        let wanted = self.wanted_links();
        // Those that end slowly do not keep others from taking their place, and do not pile up either.
        !self.closing && self.links.len() < 2 * wanted && self.open_links() < wanted
    }

    /// Until when requests without a connection wait for one.
    fn patience_ends(&self) -> Option<Instant> {
        self.reachability.patience_ends().filter(|_| self.open_links() == 0)
    }

    fn has_lost_patience(&self, now: Instant) -> bool {
        self.patience_ends().is_some_and(|end| end <= now)
    }

    fn submit(&mut self, job: Job, hands: &mut Hands<'_>) {
        if self.closing || self.has_lost_patience(hands.now) {
            return fail(job, hands);
        }
        let link = match job.work {
            // Past those that wait: it covers only what is answered already.
            Work::Flush => self.oldest_link(),
            Work::Request(_) if self.waiting.is_empty() => self.idlest_link(),
            Work::Request(_) => None,
        };
        match (link, job.work) {
            (Some(link), _) => self.launch(link, job, hands),
            (None, Work::Flush) => self.waiting.push_front(job),
            (None, Work::Request(_)) => self.waiting.push_back(job),
        }
    }

    /// The connection with the fewest requests in flight, if any has room.
    fn idlest_link(&self) -> Option<usize> {
        let room =
            self.links.iter().filter(|(_, link)| link.state == State::Open && link.in_flight < LINK_DEPTH);
        room.min_by_key(|(_, link)| link.in_flight).map(|(key, _)| key)
    }

    /// The connection whose flush covers most.
    fn oldest_link(&self) -> Option<usize> {
        let open = self.links.iter().filter(|(_, link)| link.state == State::Open);
        open.min_by_key(|(_, link)| link.mark).map(|(key, _)| key)
    }

    /// Sends what waits, as far as there is room.
    fn pump(&mut self, hands: &mut Hands<'_>) {
        while let Some(job) = self.waiting.front().copied() {
            let link = match job.work {
                Work::Flush => self.oldest_link(),
                Work::Request(_) => self.idlest_link(),
            };
            let Some(link) = link else { return };
            self.waiting.pop_front();
            self.launch(link, job, hands);
        }
    }

    fn launch(&mut self, link_key: usize, job: Job, hands: &mut Hands<'_>) {
        self.serial += 1;
        let (part, payload) = match job.work {
            Work::Flush => (Part::FLUSH, None),
            Work::Request(key) => {
                let request = &mut hands.requests[key];
                let part = self.plan.part(&request.operation, request.done);
                let payload = (part.command == Command::Write).then(|| Payload {
                    // Invariant: a write is queued together with its payload, and has it back whenever nothing of it
                    // is being sent.
                    buffer: request.buffer.take().expect("a write has its payload"),
                    start: request.done as usize,
                    length: part.length as usize,
                });
                (part, payload)
            }
        };
        let flight = self.flights.insert(Flight {
            job,
            link: link_key,
            serial: self.serial,
            part,
            covers: self.ledger.begin_flush(),
            sent: false,
            replied: false,
            failed: None,
        });
        let Part { command, flags, offset, length } = part;
        let wire = Wire { command, flags, cookie: cookie(flight, self.serial), offset, length };
        let link = &mut self.links[link_key];
        if link.in_flight == 0 {
            link.note_progress(hands.now);
        }
        link.in_flight += 1;
        link.queue.push_back(Outgoing { head: wire.encode(), payload, flight });
        self.to_send = true;
    }

    /// A part of what was to be sent has been, or could not be.
    pub(crate) fn sent(
        &mut self,
        link_key: usize,
        result: io::Result<usize>,
        mut message: Box<Message<Outgoing>>,
        hands: &mut Hands<'_>,
    ) {
        let mut complete = Vec::new();
        if let Ok(count) = result {
            let (flights, requests) = (&mut self.flights, &mut *hands.requests);
            message.advance(count, |outgoing| {
                let flight = &mut flights[outgoing.flight];
                flight.sent = true;
                if flight.replied {
                    complete.push(outgoing.flight);
                }
                give_back(outgoing, &flight.job, requests);
            });
        }
        let link = &mut self.links[link_key];
        link.message = Some(message);
        let broken = link.state == State::Broken;
        for flight in complete {
            self.finish(flight, hands);
        }
        match result {
            _ if broken => self.settle_at_rest(link_key, hands),
            Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                self.break_off(link_key, &format!("cannot send: {error}"), hands);
            }
            _ => {
                self.to_send = true;
                self.end_if_left(link_key, hands);
            }
        }
    }

    /// Bytes have arrived, or the connection's end.
    pub(crate) fn received(
        &mut self,
        link_key: usize,
        result: io::Result<usize>,
        buffer: Buffer,
        hands: &mut Hands<'_>,
    ) {
        let link = &mut self.links[link_key];
        let count = *result.as_ref().unwrap_or(&0);
        match std::mem::replace(&mut link.receiving, Receiving::No) {
            Receiving::Direct { flight } => {
                if let Work::Request(key) = self.flights[flight].job.work {
                    hands.requests[key].buffer = Some(buffer);
                }
                // Not more than the portion that was asked for.
                link.parser.received_data(count as u32);
            }
            Receiving::Buffered | Receiving::No => {
                link.input = Some(buffer);
                link.received = count;
            }
        }
        if link.state == State::Broken {
            return self.settle_at_rest(link_key, hands);
        }
        match result {
            Ok(0) => self.break_off(link_key, "the upstream has closed it", hands),
            Ok(count) => {
                link.note_received(count, hands.now);
                match self.take_replies(link_key, hands) {
                    Ok(()) => {
                        self.receive(link_key, hands);
                        self.end_if_left(link_key, hands);
                    }
                    Err(error) => {
                        self.break_off(link_key, &format!("it cannot be understood: {error}"), hands);
                    }
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => self.receive(link_key, hands),
            Err(error) => self.break_off(link_key, &format!("cannot receive: {error}"), hands),
        }
    }

    /// Takes apart what has arrived.
    fn take_replies(&mut self, link_key: usize, hands: &mut Hands<'_>) -> Result<(), ReplyError> {
        let link = &mut self.links[link_key];
        // Invariant: the buffer is here, because nothing is being received.
        let input = link.input.take().expect("a connection's buffer is here between receives");
        let mut rest = &input[..std::mem::take(&mut link.received)];
        let outcome = loop {
            let flights = &mut self.flights;
            let pending = |cookie| pending(flights, link_key, cookie);
            let (taken, event) = match self.links[link_key].parser.receive(rest, pending) {
                Ok(received) => received,
                Err(error) => break Err(error),
            };
            rest = &rest[taken..];
            match event {
                None => break Ok(()),
                Some(ReplyEvent::Data { cookie, offset, bytes }) => {
                    let (request, start) = place(flights, hands.requests, cookie, offset);
                    // Invariant: a read has its buffer from its start on, except while the ring fills it.
                    let buffer = request.buffer.as_mut().expect("a read has its buffer");
                    buffer[start..start + bytes.len()].copy_from_slice(bytes);
                }
                Some(ReplyEvent::Failed { cookie, errno, .. }) => {
                    flights[key_of(cookie)].failed = Some(errno);
                }
                Some(ReplyEvent::End { cookie }) => {
                    let flight = key_of(cookie);
                    flights[flight].replied = true;
                    self.links[link_key].note_progress(hands.now);
                    self.reachability.answered();
                    if self.flights[flight].sent {
                        self.finish(flight, hands);
                    }
                }
                Some(ReplyEvent::Hole { .. }) => unreachable!("simple replies have no holes"),
            }
        };
        self.links[link_key].input = Some(input);
        outcome
    }

    fn receive(&mut self, link_key: usize, hands: &mut Hands<'_>) {
        let link = &mut self.links[link_key];
        let token = Token::UpstreamReceived { export: hands.export, link: link_key };
        if let Some(expected) = link.parser.expects_data()
            && expected.length as usize >= DIRECT
        {
            let (request, start) = place(&self.flights, hands.requests, expected.cookie, expected.offset);
            if let Some(buffer) = request.buffer.take() {
                link.receiving = Receiving::Direct { flight: key_of(expected.cookie) };
                let part = Window { start, length: (expected.length as usize).min(PORTION) };
                return hands.ring.receive(token, link.fd(), buffer, part, true);
            }
        }
        // Invariant: it is here whenever nothing is being received, with nothing in it that is not taken apart.
        let input = link.input.take().expect("a connection's buffer is here between receives");
        link.receiving = Receiving::Buffered;
        let part = Window { start: 0, length: input.len() };
        hands.ring.receive(token, link.fd(), input, part, false);
    }

    /// A job's reply is complete, and all of it had left.
    fn finish(&mut self, flight_key: usize, hands: &mut Hands<'_>) {
        let Flight { mut job, link: link_key, part, covers, failed, .. } = self.flights.remove(flight_key);
        let link = &mut self.links[link_key];
        link.in_flight -= 1;
        let (mark, ordinal) = (link.mark, link.ordinal);
        match (job.work, failed) {
            // It was not carried out, and whoever comes next will do it.
            (_, Some(Errno::Shutdown)) => {
                self.leave(link_key, hands.now);
                if job.may_try_again(ordinal, self.opened) {
                    self.submit(job, hands);
                } else {
                    fail(job, hands);
                }
            }
            (Work::Request(key), Some(errno)) => {
                let errno = errno_for_client(&hands.requests[key].operation, errno);
                hands.done.push(Done::Request { key, result: Err(errno), flush: false });
            }
            (Work::Request(key), None) => {
                let request = &mut hands.requests[key];
                request.done += part.length;
                if self.plan.leaves_unflushed(&request.operation) {
                    let change = self.ledger.answer();
                    // What covers the first part covers the others.
                    request.change.get_or_insert(change);
                }
                if request.done < length_of(&request.operation) {
                    self.submit(Job::new(job.work), hands);
                } else {
                    let flush = self.plan.needs_flush(&request.operation);
                    hands.done.push(Done::Request { key, result: Ok(()), flush });
                }
            }
            (Work::Flush, None) => hands.done.push(Done::Flush(Ok(self.ledger.flushed(mark, covers)))),
            (Work::Flush, Some(errno)) => {
                if matches!(errno, Errno::Io | Errno::NoSpc) {
                    // Kernels and servers tell of failed writes once.
                    self.ledger.failed(covers);
                }
                hands.done.push(Done::Flush(Err(errno_for_client(&Operation::Flush, errno))));
            }
        }
        self.pump(hands);
    }

    /// The upstream says that it is about to end.
    fn leave(&mut self, link_key: usize, now: Instant) {
        let link = &mut self.links[link_key];
        if link.state == State::Open {
            link.state = State::Leaving;
            self.counters.lost += 1;
            let none_left = self.open_links() == 0;
            self.reachability.lost(none_left, now);
            info!(pool = %self.pool, export = %self.name, "the upstream is shutting down; its last replies are waited for");
        }
    }

    fn end_if_left(&mut self, link_key: usize, hands: &mut Hands<'_>) {
        let link = &self.links[link_key];
        if link.state == State::Leaving && link.in_flight == 0 {
            self.break_off(link_key, "the upstream is shutting down", hands);
        }
    }

    /// Ends a connection, and once the kernel is done with it settles what was under way there.
    fn break_off(&mut self, link_key: usize, reason: &str, hands: &mut Hands<'_>) {
        let link = &mut self.links[link_key];
        let was = link.state;
        link.break_off();
        if was == State::Open {
            self.counters.lost += 1;
            let none_left = self.open_links() == 0;
            self.reachability.lost(none_left, hands.now);
            if self.closing {
                debug!(pool = %self.pool, export = %self.name, "connection to the upstream closed");
            } else {
                warn!(
                    pool = %self.pool, export = %self.name, upstream = %self.target.address,
                    in_flight = self.links[link_key].in_flight, "connection to the upstream lost: {reason}"
                );
            }
        }
        self.settle_at_rest(link_key, hands);
    }

    fn settle_at_rest(&mut self, link_key: usize, hands: &mut Hands<'_>) {
        if self.links[link_key].is_at_rest() {
            self.settle(link_key, hands);
        }
    }

    /// Decides what becomes of everything that was under way on a connection that is over.
    fn settle(&mut self, link_key: usize, hands: &mut Hands<'_>) {
        let mut link = self.links.remove(link_key);
        let (flights, requests) = (&self.flights, &mut *hands.requests);
        let mut unsent = |outgoing: Outgoing| {
            let job = flights[outgoing.flight].job;
            give_back(outgoing, &job, requests);
        };
        if let Some(message) = &mut link.message {
            message.abandon(&mut unsent);
        }
        link.queue.drain(..).for_each(&mut unsent);

        let mut left: Vec<(u64, usize)> = self
            .flights
            .iter()
            .filter(|(_, flight)| flight.link == link_key)
            .map(|(key, flight)| (flight.serial, key))
            .collect();
        left.sort_unstable();
        let (mut again, mut replayed, mut failed) = (Vec::new(), 0u64, 0u64);
        for (_, key) in left {
            let Flight { mut job, sent, part, .. } = self.flights.remove(key);
            let harmless = matches!(part.command, Command::Read | Command::Flush);
            if !self.closing && !sent {
                again.push(job);
                continue;
            }
            let may = job.may_try_again(link.ordinal, self.opened);
            if !self.closing && may && (harmless || self.config.replay == Replay::All) {
                replayed += 1;
                again.push(job);
            } else {
                failed += 1;
                fail(job, hands);
            }
        }
        self.counters.replayed += replayed;
        self.counters.failed += failed;
        again.into_iter().rev().for_each(|job| self.waiting.push_front(job));
        if failed > 0 && !self.closing {
            warn!(
                pool = %self.pool, export = %self.name, upstream = %self.target.address, failed, replayed,
                "requests that the upstream may or may not have carried out are answered with EIO"
            );
        }
        self.pump(hands);
    }

    fn fail_waiting(&mut self, hands: &mut Hands<'_>) {
        self.counters.failed += self.waiting.len() as u64;
        self.waiting.drain(..).for_each(|job| fail(job, hands));
    }
}

/// Sends what is queued, unless something is being sent.
fn send(key: usize, link: &mut Link, hands: &mut Hands<'_>) {
    if link.state == State::Broken {
        return;
    }
    let Some(mut message) = link.message.take() else { return };
    while message.has_room()
        && let Some(outgoing) = link.queue.pop_front()
    {
        message.push(outgoing);
    }
    if message.is_empty() {
        link.message = Some(message);
    } else {
        hands.ring.send(Token::UpstreamSent { export: hands.export, link: key }, link.fd(), message);
    }
}

/// Answers a job with EIO.
fn fail(job: Job, hands: &mut Hands<'_>) {
    hands.done.push(match job.work {
        Work::Request(key) => Done::Request { key, result: Err(Errno::Io), flush: false },
        Work::Flush => Done::Flush(Err(Errno::Io)),
    });
}

/// A write's payload returns to its request.
fn give_back(outgoing: Outgoing, job: &Job, requests: &mut Slab<Request>) {
    if let (Work::Request(key), Some(payload)) = (job.work, outgoing.payload) {
        requests[key].buffer = Some(payload.buffer);
    }
}

/// The request that data belongs to, and where in its buffer.
fn place<'a>(
    flights: &Slab<Flight>,
    requests: &'a mut Slab<Request>,
    cookie: u64,
    offset: u64,
) -> (&'a mut Request, usize) {
    let Flight { job, part, .. } = &flights[key_of(cookie)];
    let Work::Request(key) = job.work else { unreachable!("a flush has no data") };
    let request = &mut requests[key];
    // The parser hands out data only within the part.
    let start = request.done as usize + (offset - part.offset) as usize;
    (request, start)
}

/// What a cookie stands for on this connection. A reply that comes twice stands for nothing.
fn pending(flights: &Slab<Flight>, link: usize, cookie: u64) -> Option<Pending> {
    let flight = flights.get(key_of(cookie))?;
    let known = flight.link == link && !flight.replied && flight.serial as u32 == (cookie >> 32) as u32;
    known.then(|| flight.part.expects())
}

/// The serial number makes cookies of finished requests unknown, although keys are used again.
fn cookie(flight: usize, serial: u64) -> u64 {
    (serial << 32) | flight as u64
}

fn key_of(cookie: u64) -> usize {
    (cookie & u64::from(u32::MAX)) as usize
}

fn length_of(operation: &Operation) -> u32 {
    match *operation {
        Operation::Read { length, .. }
        | Operation::Write { length, .. }
        | Operation::Trim { length, .. }
        | Operation::WriteZeroes { length, .. } => length,
        Operation::Flush | Operation::Disconnect => 0,
    }
}
