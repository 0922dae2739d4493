//! A client's connection in the transmission phase, or a virtual machine's to its disk.

use std::collections::VecDeque;
use std::sync::Arc;

use tidegate_nbd::SessionTerms;
use tidegate_sockets::aside::PeerSocket;
use tidegate_units::Instant;

use crate::device::SessionDevice;
use crate::disk::SessionDisk;
use crate::input::{AwaitedInput, PORTION, SessionInput};
use crate::message::{ReadyReply, ReplyMessage};
use crate::worker::door::{NewSession, SessionSlot};

/// The progress of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SessionPhase {
    /// Requests are read and answered.
    Open,
    /// Requests that are under way are answered, then the next process of the service goes on with it. Its
    /// client is waited for until this time.
    Suspending { until: Instant },
    /// The client sends nothing more, because it said goodbye or closed its sending side: requests in flight
    /// are answered, then the connection is closed for this reason.
    Ending(&'static str),
    /// Everything is answered and our side is shut; bytes that still arrive are dropped until the client
    /// hangs up or this time comes. Closing at once could reset the connection and lose replies on their way.
    Lingering(Instant),
    /// Shut on both sides; only operations under way keep it.
    Closed,
}

/// A wait for memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MemoryWait {
    /// The time from which on no memory of the export was returned.
    pub(crate) since: Instant,
    /// The number of times memory had been returned by then; see [`crate::memory::PoolMemory::returns`].
    pub(crate) returns: u64,
}

#[derive(Debug)]
pub(crate) struct ClientSession {
    pub(crate) socket: Arc<PeerSocket>,
    pub(crate) peer: String,
    /// The worker's key of its export.
    pub(crate) export: usize,
    pub(crate) terms: SessionTerms,
    /// The disk of a virtual machine, whose requests come by its rings; nothing is received from the socket
    /// or sent to it then. `None` for a client of NBD.
    pub(crate) disk: Option<Box<SessionDisk>>,
    /// The block device of this host, whose requests the kernel brings.
    pub(crate) device: Option<Box<SessionDevice>>,
    pub(crate) phase: SessionPhase,
    pub(crate) input: SessionInput,
    /// True if its bytes go through the relay of a session by TLS.
    pub(crate) relayed: bool,
    /// Requests that are to be read again, as they came.
    pub(crate) taken_back: Vec<u8>,
    /// True while a receive is under way.
    pub(crate) receiving: bool,
    /// What the client owes of the request that it has begun, and since when.
    pub(crate) awaited: Option<(AwaitedInput, Instant)>,
    /// Waits for memory or for its own replies to be taken before it is read from again.
    pub(crate) stalled: bool,
    /// Waits for memory, which `stalled` sessions may.
    pub(crate) memory_wait: Option<MemoryWait>,
    pub(crate) replies: VecDeque<ReadyReply>,
    /// Away while it is being sent.
    pub(crate) message: Option<Box<ReplyMessage<ReadyReply>>>,
    /// True if it is on the worker's list of sessions to attend to.
    pub(crate) listed: bool,
    /// Requests between header and sent reply.
    pub(crate) requests: usize,
    /// Memory that it is charged with.
    pub(crate) bytes: u64,
    /// The time of its last request; before the first one, the time when it was opened.
    pub(crate) active: Instant,
    /// True once it has sent a request.
    pub(crate) used: bool,
    /// The time when sending began, or the client last took a whole reply or a portion of one.
    pub(crate) progress: Instant,
    /// Bytes that the client has taken since then.
    pub(crate) since_progress: usize,
    /// A request of it was refused, and that was logged.
    pub(crate) complained: bool,
    /// The number of its upstream's losses that a flush has told it of; see
    /// [`crate::upstream::ChangeLedger`].
    pub(crate) heard_losses: u64,
    /// Its place among the pool's sessions, given back when it is closed.
    pub(crate) slot: Option<Arc<SessionSlot>>,
}

impl ClientSession {
    pub(crate) fn new(new: NewSession, export: usize, heard_losses: u64, now: Instant) -> Self {
        Self {
            input: SessionInput::new(new.already),
            relayed: new.relayed,
            taken_back: Vec::new(),
            socket: new.socket,
            peer: new.peer,
            export,
            terms: new.terms,
            disk: new.disk.map(|disk| Box::new(SessionDisk::new(disk))),
            device: new.device.map(|channel| Box::new(SessionDevice::new(channel))),
            phase: SessionPhase::Open,
            receiving: false,
            awaited: None,
            stalled: false,
            memory_wait: None,
            replies: VecDeque::new(),
            message: Some(Box::new(ReplyMessage::new())),
            listed: false,
            requests: 0,
            bytes: 0,
            active: now,
            used: false,
            progress: now,
            since_progress: 0,
            complained: false,
            heard_losses,
            slot: Some(new.slot),
        }
    }

    /// Returns true if nothing uses the session any more.
    pub(crate) fn is_gone(&self) -> bool {
        self.phase == SessionPhase::Closed
            && !self.receiving
            && self.message.is_some()
            && self.requests == 0
            && self.disk.as_ref().is_none_or(|disk| disk.is_quiet())
            && self.device.as_ref().is_none_or(|device| device.fetched == 0)
    }

    /// Returns true if only commands of its device are under way, which the kernel gives back when the ring
    /// ends.
    pub(crate) fn ends_with_ring(&self) -> bool {
        self.phase == SessionPhase::Closed && self.requests == 0 && self.device.is_some()
    }

    /// Returns true if it is a disk, of a virtual machine or of this host.
    pub(crate) fn is_disk(&self) -> bool {
        self.disk.is_some() || self.device.is_some()
    }

    /// Returns true if the session waits for memory that others have. Nothing that it has itself can be what
    /// it waits for.
    pub(crate) fn waits_for_others(&self) -> bool {
        self.stalled && self.memory_wait.is_some() && self.bytes == self.input.charged()
    }

    /// Returns true if bytes are on their way from its client or to it.
    pub(crate) fn waits_for_client(&self) -> bool {
        self.receiving || self.message.is_none() || !self.replies.is_empty()
    }

    /// Returns the time of its last request, if nothing is under way on it that an end would lose. A disk
    /// is in use for as long as it is connected.
    pub(crate) fn idle_since(&self) -> Option<Instant> {
        let idle = self.phase == SessionPhase::Open
            && self.requests == 0
            && !self.is_disk()
            && !self.input.is_within_request();
        idle.then_some(self.active)
    }

    /// The client has taken bytes, `a_reply` to its end among them or not.
    pub(crate) fn note_taken(&mut self, bytes: usize, a_reply: bool, now: Instant) {
        self.since_progress += bytes;
        if a_reply || self.since_progress >= PORTION {
            (self.progress, self.since_progress) = (now, 0);
        }
    }

    /// Returns true if replies have been waiting for the client since `since`.
    pub(crate) fn is_sending_since(&self, since: Instant) -> bool {
        self.message.is_none() && self.progress <= since
    }

    /// A receive begins: more is awaited from the client. Parts of what was awaited before do not begin its time anew.
    pub(crate) fn begin_to_receive(&mut self, now: Instant) {
        self.receiving = true;
        let awaited = self.input.awaited();
        if self.awaited.map(|(before, _)| before) != awaited {
            self.awaited = awaited.map(|awaited| (awaited, now));
        }
    }

    /// Returns true if the rest of a request, or the next portion of its payload, has been awaited since `since`.
    pub(crate) fn is_awaiting_request_since(&self, since: Instant) -> bool {
        self.receiving && self.awaited.is_some_and(|(_, began)| began <= since)
    }
}
