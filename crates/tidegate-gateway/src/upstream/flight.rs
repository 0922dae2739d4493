//! The work under way: jobs, and the means to tell them apart on a connection.

use slab::Slab;
use tidegate_nbd::Errno;
use tidegate_nbd::transmission::{PendingReply, ReadCoverage};

use super::link::OutgoingRequest;
use super::plan::UpstreamPart;
use crate::request::ClientRequest;

/// The most attempts at a request that had left. A request that breaks the connection every time may be to
/// blame for it.
const MOST_ATTEMPTS: u8 = 5;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UpstreamWork {
    Request(usize),
    Flush,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct UpstreamJob {
    pub(super) work: UpstreamWork,
    /// The number of times it was lost with a connection after it had left.
    attempts: u8,
    /// Connections up to this ordinal do not count for that: they were there already when it was last lost,
    /// and many break at once when a server dies.
    excused: u64,
}

impl UpstreamJob {
    /// Counts a loss with the connection of this ordinal, of so many opened; says whether it was not the
    /// last.
    pub(super) fn may_try_again(&mut self, ordinal: u64, opened: u64) -> bool {
        if ordinal > self.excused {
            self.attempts += 1;
            self.excused = opened;
        }
        self.attempts < MOST_ATTEMPTS
    }

    pub(super) fn new(work: UpstreamWork) -> Self {
        Self { work, attempts: 0, excused: 0 }
    }
}

/// A job on a connection.
#[derive(Debug)]
pub(super) struct JobFlight {
    pub(super) job: UpstreamJob,
    pub(super) link: usize,
    /// Tells it from others that use the same key at other times; grows.
    pub(super) serial: u64,
    pub(super) part: UpstreamPart,
    /// For a flush: the changes answered when it was sent.
    pub(super) covers: u64,
    /// Some of it may have left, and all of it has.
    pub(super) begun: bool,
    pub(super) sent: bool,
    pub(super) replied: bool,
    /// The parts of a read that have come.
    pub(super) coverage: ReadCoverage,
    pub(super) failed: Option<Errno>,
}

/// Returns the pending request that a cookie stands for on this connection. A reply that comes twice stands
/// for nothing. `allocation` is the connection's id of that metadata context.
pub(super) fn pending(
    flights: &Slab<JobFlight>,
    link: usize,
    allocation: Option<u32>,
    cookie: u64,
) -> Option<PendingReply> {
    let flight = flights.get(key_of(cookie))?;
    let known = flight.link == link && !flight.replied && flight.serial as u32 == (cookie >> 32) as u32;
    known.then(|| flight.part.expects(allocation))
}

/// The serial number makes cookies of finished requests unknown, although keys are used again.
pub(super) fn cookie(flight: usize, serial: u64) -> u64 {
    (serial << 32) | flight as u64
}

pub(super) fn key_of(cookie: u64) -> usize {
    (cookie & u64::from(u32::MAX)) as usize
}

/// A write's payload returns to its request.
pub(super) fn give_back(
    outgoing: OutgoingRequest,
    flights: &Slab<JobFlight>,
    requests: &mut Slab<ClientRequest>,
) {
    if let (UpstreamWork::Request(key), Some(payload)) = (flights[outgoing.flight].job.work, outgoing.payload)
    {
        requests[key].buffer = Some(payload.buffer);
    }
}
