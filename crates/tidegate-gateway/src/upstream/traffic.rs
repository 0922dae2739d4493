//! Requests to the upstream, and its replies.

use std::io;
use std::os::fd::AsFd;

use slab::Slab;
use thiserror::Error;
use tidegate_nbd::transmission::{
    CoverageError, NbdCommand, ReadCoverage, ReplyError, ReplyEvent, WireRequest as Wire,
};
use tidegate_nbd::{AllocationMap, AllocationState, CheckedOperation, CommandFlags, Errno};

use super::flight::{JobFlight, UpstreamJob, UpstreamWork, cookie, give_back, key_of, pending};
use super::link::{DIRECT, LinkPayload, LinkState, OutgoingRequest, PORTION, ReceiveTarget, UpstreamLink};
use super::loss::fail;
use super::plan::{UpstreamPart, errno_for_client, is_refusal};
use super::{UpstreamEvent, UpstreamExport, WorkerLoan};
use crate::buffer::AlignedBuffer;
use crate::message::ReplyMessage;
use crate::request::ClientRequest;
use crate::ring::{BufferPart as Window, RingToken};

/// Requests on one connection: as many as this gateway takes from one connection by default. More wait here.
const LINK_DEPTH: usize = 128;

/// The reasons why an upstream's replies cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
enum ReplyBreach {
    #[error(transparent)]
    Reply(#[from] ReplyError),
    #[error(transparent)]
    Coverage(#[from] CoverageError),
    #[error("it ends a reply before all data or any extent of it has come")]
    Incomplete,
}

impl UpstreamExport {
    pub(super) fn submit(&mut self, job: UpstreamJob, hands: &mut WorkerLoan<'_>) {
        if self.closing || self.has_lost_patience(hands.now) {
            return fail(job, hands);
        }
        let link = match job.work {
            // Past those that wait: it covers only what is answered already.
            UpstreamWork::Flush => self.oldest_link(),
            UpstreamWork::Request(_) if self.waiting.is_empty() => self.idlest_link(),
            UpstreamWork::Request(_) => None,
        };
        match (link, job.work) {
            (Some(link), _) => self.launch(link, job, hands),
            (None, UpstreamWork::Flush) => self.waiting.push_front(job),
            (None, UpstreamWork::Request(_)) => self.waiting.push_back(job),
        }
    }

    /// The connection with the fewest requests in flight, if any has room.
    fn idlest_link(&self) -> Option<usize> {
        let room = self
            .links
            .iter()
            .filter(|(_, link)| link.state == LinkState::Open && link.in_flight < LINK_DEPTH);
        room.min_by_key(|(_, link)| link.in_flight).map(|(key, _)| key)
    }

    /// The connection whose flush covers most.
    fn oldest_link(&self) -> Option<usize> {
        let open = self.links.iter().filter(|(_, link)| link.state == LinkState::Open);
        open.min_by_key(|(_, link)| link.mark).map(|(key, _)| key)
    }

    /// Sends what waits, as far as there is room.
    pub(super) fn pump(&mut self, hands: &mut WorkerLoan<'_>) {
        while let Some(job) = self.waiting.front().copied() {
            let link = match job.work {
                UpstreamWork::Flush => self.oldest_link(),
                UpstreamWork::Request(_) => self.idlest_link(),
            };
            let Some(link) = link else { return };
            self.waiting.pop_front();
            self.launch(link, job, hands);
        }
    }

    fn launch(&mut self, link_key: usize, job: UpstreamJob, hands: &mut WorkerLoan<'_>) {
        self.serial += 1;
        let (part, payload) = match job.work {
            UpstreamWork::Flush => (UpstreamPart::FLUSH, None),
            UpstreamWork::Request(key) => {
                let link = &self.links[link_key];
                let request = &mut hands.requests[key];
                let part = self.plan.part(&request.operation, request.slice, request.done);
                let part = part.within(link.style);
                if let CheckedOperation::BlockStatus { one, .. } = request.operation {
                    let map = request.allocation.insert(Box::new(AllocationMap::new(part.length, one)));
                    if link.allocation.is_none() {
                        // It does not tell: all of it may hold data.
                        map.push(part.length, AllocationState::DATA);
                        hands.done.push(UpstreamEvent::Request { key, result: Ok(()), flush: false });
                        return;
                    }
                }
                let payload = (part.command == NbdCommand::Write).then(|| LinkPayload {
                    // Invariant: a write is queued together with its payload, and has it back whenever
                    // nothing of it is being sent.
                    buffer: request.buffer.take().expect("a write has its payload"),
                    start: request.done as usize,
                    length: part.length as usize,
                });
                (part, payload)
            }
        };
        let flight = self.flights.insert(JobFlight {
            job,
            link: link_key,
            serial: self.serial,
            part,
            covers: self.ledger.begin_flush(),
            begun: false,
            sent: false,
            replied: false,
            coverage: ReadCoverage::default(),
            failed: None,
        });
        let UpstreamPart { command, flags, offset, length } = part;
        let wire = Wire::new(command, flags, cookie(flight, self.serial), offset, length);
        let link = &mut self.links[link_key];
        if link.in_flight == 0 {
            link.note_progress(hands.now);
        }
        link.in_flight += 1;
        link.queue.push_back(OutgoingRequest { head: wire.encode(link.style), payload, flight });
        self.to_send = true;
    }

    /// A part of what was to be sent has been, or could not be.
    pub(crate) fn sent(
        &mut self,
        link_key: usize,
        result: io::Result<usize>,
        mut message: Box<ReplyMessage<OutgoingRequest>>,
        hands: &mut WorkerLoan<'_>,
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
                give_back(outgoing, flights, requests);
            });
        }
        let link = &mut self.links[link_key];
        link.message = Some(message);
        let broken = link.state == LinkState::Broken;
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
        buffer: AlignedBuffer,
        hands: &mut WorkerLoan<'_>,
    ) {
        let link = &mut self.links[link_key];
        let count = *result.as_ref().unwrap_or(&0);
        let mut covered = Ok(());
        match std::mem::replace(&mut link.receiving, ReceiveTarget::No) {
            ReceiveTarget::Direct { flight, start } => {
                let JobFlight { job, coverage, .. } = &mut self.flights[flight];
                if let UpstreamWork::Request(key) = job.work {
                    hands.requests[key].buffer = Some(buffer);
                }
                // Not more than the portion that was asked for.
                link.parser.received_data(count as u32);
                covered = coverage.take(start, count as u32);
            }
            ReceiveTarget::Buffered | ReceiveTarget::No => {
                link.input = Some(buffer);
                link.received = count;
            }
        }
        if link.state == LinkState::Broken {
            return self.settle_at_rest(link_key, hands);
        }
        match result {
            Ok(0) => self.break_off(link_key, "the upstream has closed it", hands),
            Ok(count) => {
                link.note_received(count, hands.now);
                match covered.map_err(ReplyBreach::from).and_then(|()| self.take_replies(link_key, hands)) {
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
    fn take_replies(&mut self, link_key: usize, hands: &mut WorkerLoan<'_>) -> Result<(), ReplyBreach> {
        let link = &mut self.links[link_key];
        let allocation = link.allocation;
        // Invariant: the buffer is here, because nothing is being received.
        let input = link.input.take().expect("a connection's buffer is here between receives");
        let mut rest = &input[..std::mem::take(&mut link.received)];
        let outcome = loop {
            let flights = &mut self.flights;
            let pending = |cookie| pending(flights, link_key, allocation, cookie);
            let (taken, event) = match self.links[link_key].parser.receive(rest, pending) {
                Ok(received) => received,
                Err(error) => break Err(error.into()),
            };
            rest = &rest[taken..];
            match event {
                None => break Ok(()),
                Some(ReplyEvent::Data { cookie, offset, bytes }) => {
                    let (request, start) = place(flights, hands.requests, cookie, offset);
                    // Invariant: a read has its buffer from its start on, except while the ring fills it.
                    let buffer = request.buffer.as_mut().expect("a read has its buffer");
                    buffer[start..start + bytes.len()].copy_from_slice(bytes);
                    if let Err(error) = cover(flights, cookie, offset, bytes.len()) {
                        break Err(error.into());
                    }
                }
                Some(ReplyEvent::Hole { cookie, offset, length }) => {
                    let (request, start) = place(flights, hands.requests, cookie, offset);
                    // Invariant: as above.
                    let buffer = request.buffer.as_mut().expect("a read has its buffer");
                    buffer[start..start + length as usize].fill(0);
                    if let Err(error) = cover(flights, cookie, offset, length as usize) {
                        break Err(error.into());
                    }
                }
                Some(ReplyEvent::Extent { cookie, extent }) => {
                    if let UpstreamWork::Request(key) = flights[key_of(cookie)].job.work
                        && let Some(map) = &mut hands.requests[key].allocation
                    {
                        map.push(extent.length, extent.state);
                    }
                }
                Some(ReplyEvent::Failed { cookie, errno, .. }) => {
                    flights[key_of(cookie)].failed = Some(errno);
                }
                Some(ReplyEvent::End { cookie }) => {
                    let flight = key_of(cookie);
                    if !is_complete(&flights[flight], hands.requests) {
                        break Err(ReplyBreach::Incomplete);
                    }
                    flights[flight].replied = true;
                    self.links[link_key].note_progress(hands.now);
                    if self.flights[flight].sent {
                        self.finish(flight, hands);
                    }
                }
            }
        };
        self.links[link_key].input = Some(input);
        outcome
    }

    pub(super) fn receive(&mut self, link_key: usize, hands: &mut WorkerLoan<'_>) {
        let link = &mut self.links[link_key];
        let token = RingToken::UpstreamReceived { export: hands.export, link: link_key };
        if let Some(expected) = link.parser.expects_data()
            && expected.length as usize >= DIRECT
        {
            let (request, start) = place(&self.flights, hands.requests, expected.cookie, expected.offset);
            if let Some(buffer) = request.buffer.take() {
                let flight = key_of(expected.cookie);
                // Within the part, which is not longer than the greatest payload.
                let within = (expected.offset - self.flights[flight].part.offset) as u32;
                link.receiving = ReceiveTarget::Direct { flight, start: within };
                let part = Window { start, length: (expected.length as usize).min(PORTION) };
                return hands.ring.receive(token, link.socket(), buffer, part, true);
            }
        }
        // Invariant: it is here whenever nothing is being received, with nothing in it that is not taken
        // apart.
        let input = link.input.take().expect("a connection's buffer is here between receives");
        link.receiving = ReceiveTarget::Buffered;
        let part = Window { start: 0, length: input.len() };
        hands.ring.receive(token, link.socket(), input, part, false);
    }

    /// A job's reply is complete, and all of it had left.
    fn finish(&mut self, flight_key: usize, hands: &mut WorkerLoan<'_>) {
        let JobFlight { mut job, link: link_key, part, covers, failed, .. } = self.flights.remove(flight_key);
        let link = &mut self.links[link_key];
        link.in_flight -= 1;
        let (mark, ordinal) = (link.mark, link.ordinal);
        self.reachability.answered();
        match (job.work, failed) {
            // It was not carried out: the next caller will do it.
            (_, Some(Errno::Shutdown)) => {
                self.leave(link_key, hands.now);
                if job.may_try_again(ordinal, self.opened) {
                    self.submit(job, hands);
                } else {
                    fail(job, hands);
                }
            }
            (UpstreamWork::Request(key), Some(errno)) => {
                let operation = &hands.requests[key].operation;
                let refused = is_refusal(&part, errno);
                if part.flags.contains(CommandFlags::FUA) && !refused {
                    self.reported_loss = Some(errno);
                }
                let errno = if refused { errno } else { errno_for_client(operation, errno) };
                hands.done.push(UpstreamEvent::Request { key, result: Err(errno), flush: false });
            }
            (UpstreamWork::Request(key), None) => {
                let request = &mut hands.requests[key];
                if let CheckedOperation::BlockStatus { .. } = request.operation {
                    hands.done.push(UpstreamEvent::Request { key, result: Ok(()), flush: false });
                    return self.pump(hands);
                }
                request.done += part.length;
                if self.plan.leaves_unflushed(&request.operation) {
                    let change = self.ledger.answer();
                    // What covers the first part covers the others.
                    request.change.get_or_insert(change);
                }
                if request.done < request.slice.until {
                    self.submit(UpstreamJob::new(job.work), hands);
                } else {
                    let flush = self.plan.needs_flush(&request.operation);
                    hands.done.push(UpstreamEvent::Request { key, result: Ok(()), flush });
                }
            }
            (UpstreamWork::Flush, None) => {
                hands.done.push(UpstreamEvent::Flush(Ok(self.ledger.flushed(mark, covers))));
            }
            (UpstreamWork::Flush, Some(errno)) => {
                self.reported_loss = Some(errno);
                hands.done.push(UpstreamEvent::Flush(Err(errno_for_client(&CheckedOperation::Flush, errno))));
            }
        }
        self.pump(hands);
    }
}

/// Sends what is queued, unless something is being sent.
pub(super) fn send(key: usize, link: &mut UpstreamLink, hands: &mut WorkerLoan<'_>) {
    if link.state == LinkState::Broken {
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
        hands.ring.send(
            RingToken::UpstreamSent { export: hands.export, link: key },
            link.socket().as_fd(),
            message,
        );
    }
}

/// Counts a part of a read that has come.
fn cover(
    flights: &mut Slab<JobFlight>,
    cookie: u64,
    offset: u64,
    length: usize,
) -> Result<(), CoverageError> {
    let JobFlight { part, coverage, .. } = &mut flights[key_of(cookie)];
    // The parser hands out data only within the part, which is not longer than the greatest payload.
    coverage.take((offset - part.offset) as u32, length as u32)
}

/// Returns true if a reply that ends has brought what a successful one must.
fn is_complete(flight: &JobFlight, requests: &Slab<ClientRequest>) -> bool {
    let JobFlight { job, part, coverage, failed, .. } = flight;
    match (part.command, job.work) {
        _ if failed.is_some() => true,
        (NbdCommand::Read, _) => coverage.is_complete(part.length as u32),
        (NbdCommand::BlockStatus, UpstreamWork::Request(key)) => {
            requests[key].allocation.as_ref().is_some_and(|map| map.covered() > 0)
        }
        _ => true,
    }
}

/// The request that data belongs to, and where in its buffer.
fn place<'a>(
    flights: &Slab<JobFlight>,
    requests: &'a mut Slab<ClientRequest>,
    cookie: u64,
    offset: u64,
) -> (&'a mut ClientRequest, usize) {
    let JobFlight { job, part, .. } = &flights[key_of(cookie)];
    let UpstreamWork::Request(key) = job.work else { unreachable!("a flush has no data") };
    let request = &mut requests[key];
    // The parser hands out data only within the part.
    let start = request.done as usize + (offset - part.offset) as usize;
    (request, start)
}
