//! A simulated client: it speaks NBD on one end of a socket, and tells the model what it asks and hears.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};
use tidegate_nbd::transmission::{
    NbdCommand, PendingReply, ReadCoverage, ReplyEvent, ReplyParser, WireRequest,
};
use tidegate_nbd::{CommandFlags, Errno, SessionTerms};
use tidegate_sockets::aside::PeerSocket;

use super::model::Ordinal;

/// A client, connected or not.
pub(super) struct SimulatedClient {
    /// The gateway that it connects to.
    pub(super) gateway: usize,
    pub(super) depth: usize,
    pub(super) session: Option<ClientConnection>,
    /// An event of the world is about it.
    pub(super) scheduled: bool,
}

/// A connection in the transmission phase.
pub(super) struct ClientConnection {
    pub(super) socket: Arc<PeerSocket>,
    pub(super) terms: SessionTerms,
    /// The life of the gateway at the other end.
    pub(super) front: u64,
    /// The time when it was opened, or a flush failed.
    pub(super) told: Ordinal,
    /// It asks for nothing more.
    pub(super) leaving: bool,
    /// It leaves by closing its sending side, after the rest is sent.
    closes_sending: bool,
    parser: ReplyParser,
    outgoing: VecDeque<u8>,
    pub(super) pending: BTreeMap<u64, PendingRequest>,
    next_cookie: u64,
}

/// A request that waits for its reply.
#[derive(Debug)]
pub(super) struct PendingRequest {
    pub(super) work: ClientWork,
    pub(super) issued: Ordinal,
    /// The offset, which extended replies repeat.
    offset: u64,
    failed: Option<Errno>,
}

#[derive(Debug)]
pub(super) enum ClientWork {
    Read {
        offset: usize,
        bytes: Vec<u8>,
        coverage: ReadCoverage,
    },
    Change {
        write: usize,
        cells: Range<usize>,
        fua: bool,
    },
    Flush,
    /// It moves nothing, and promises nothing.
    Cache,
}

/// A request to be sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct NewRequest<'a> {
    pub(super) command: NbdCommand,
    pub(super) flags: CommandFlags,
    pub(super) offset: usize,
    pub(super) length: usize,
    pub(super) payload: &'a [u8],
}

/// A request that is over, and its result.
#[derive(Debug)]
pub(super) struct FinishedRequest {
    pub(super) cookie: u64,
    pub(super) request: PendingRequest,
    pub(super) result: Result<(), Errno>,
}

/// The outcome of looking at the socket.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ClientReceived {
    Nothing,
    Bytes,
    Closed,
}

impl ClientConnection {
    pub(super) fn new(socket: Arc<PeerSocket>, terms: SessionTerms, front: u64, opened: Ordinal) -> Self {
        Self {
            socket,
            parser: ReplyParser::new(terms.style),
            terms,
            front,
            told: opened,
            leaving: false,
            closes_sending: false,
            outgoing: VecDeque::new(),
            pending: BTreeMap::new(),
            next_cookie: 1,
        }
    }

    pub(super) fn request(&mut self, new: NewRequest<'_>, work: ClientWork, issued: Ordinal) -> u64 {
        let NewRequest { command, flags, offset, length, payload } = new;
        let cookie = self.next_cookie;
        self.next_cookie += 1;
        let request = WireRequest::new(command, flags, cookie, offset as u64, length as u64);
        self.outgoing.extend(request.encode(self.terms.style).iter());
        self.outgoing.extend(payload);
        self.pending.insert(cookie, PendingRequest { work, issued, offset: offset as u64, failed: None });
        cookie
    }

    /// Closes the sending side once everything is sent. Answers may still come.
    pub(super) fn close_sending(&mut self) {
        (self.leaving, self.closes_sending) = (true, true);
    }

    /// Says that nothing more will come.
    pub(super) fn say_goodbye(&mut self) {
        self.leaving = true;
        let goodbye = WireRequest::new(NbdCommand::Disconnect, CommandFlags::NONE, 0, 0, 0u32);
        self.outgoing.extend(goodbye.encode(self.terms.style).iter());
    }

    pub(super) fn has_to_send(&self) -> bool {
        !self.outgoing.is_empty()
    }

    /// Sends at most so many bytes.
    pub(super) fn send(&mut self, most: usize) {
        let bytes = self.outgoing.make_contiguous();
        let count = bytes.len().min(most);
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        // An error shows when it receives.
        let sent = send(&self.socket, &bytes[..count], flags).unwrap_or(0);
        self.outgoing.drain(..sent);
        if self.closes_sending && self.outgoing.is_empty() {
            // Fails only when the other side has hung up already.
            let _ = shutdown(&self.socket, Shutdown::Write);
        }
    }

    /// Receives at most so many bytes, and takes them apart.
    ///
    /// # Errors
    /// When they are no replies to what was asked.
    pub(super) fn receive(
        &mut self,
        most: usize,
        finished: &mut Vec<FinishedRequest>,
    ) -> Result<ClientReceived, String> {
        let mut bytes = vec![0; most];
        let count = match recv(&self.socket, &mut bytes[..], RecvFlags::DONTWAIT) {
            Ok((_, 0)) => return Ok(ClientReceived::Closed),
            Ok((_, count)) => count,
            Err(rustix::io::Errno::AGAIN) => return Ok(ClientReceived::Nothing),
            Err(_) => return Ok(ClientReceived::Closed),
        };
        let mut rest = &bytes[..count];
        loop {
            let pending = &self.pending;
            let known = |cookie| pending.get(&cookie).map(PendingRequest::expects);
            let (taken, event) =
                self.parser.receive(rest, known).map_err(|error| format!("a reply is wrong: {error}"))?;
            rest = &rest[taken..];
            match event {
                None => return Ok(ClientReceived::Bytes),
                Some(ReplyEvent::Data { cookie, offset, bytes }) => {
                    self.fill(cookie, offset, bytes.len(), |place| place.copy_from_slice(bytes))?;
                }
                Some(ReplyEvent::Hole { cookie, offset, length }) => {
                    self.fill(cookie, offset, length as usize, |place| place.fill(0))?;
                }
                Some(ReplyEvent::Failed { cookie, errno, .. }) => {
                    if let Some(request) = self.pending.get_mut(&cookie) {
                        request.failed = Some(errno);
                    }
                }
                Some(ReplyEvent::Extent { .. }) => return Err("extents that were not asked for".into()),
                Some(ReplyEvent::End { cookie }) => {
                    let Some(request) = self.pending.remove(&cookie) else { continue };
                    let result = request.failed.map_or(Ok(()), Err);
                    if let (ClientWork::Read { bytes, coverage, .. }, Ok(())) = (&request.work, result)
                        && !coverage.is_complete(bytes.len() as u32)
                    {
                        return Err(format!("the reply to read {cookie} is not complete"));
                    }
                    finished.push(FinishedRequest { cookie, request, result });
                }
            }
        }
    }

    fn fill(
        &mut self,
        cookie: u64,
        at: u64,
        length: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<(), String> {
        let Some(PendingRequest { work: ClientWork::Read { offset, bytes, coverage }, .. }) =
            self.pending.get_mut(&cookie)
        else {
            return Err(format!("data for {cookie}, which is no read"));
        };
        let start = at as usize - *offset;
        fill(&mut bytes[start..start + length]);
        coverage.take(start as u32, length as u32).map_err(|error| format!("read {cookie}: {error}"))
    }

    pub(super) fn hang_up(&self) {
        // Fails only when the other side has hung up already.
        let _ = shutdown(&self.socket, Shutdown::Both);
    }
}

impl PendingRequest {
    fn expects(&self) -> PendingReply {
        match &self.work {
            ClientWork::Read { bytes, .. } => {
                PendingReply::Read { offset: self.offset, length: bytes.len() as u32 }
            }
            ClientWork::Change { .. } | ClientWork::Flush | ClientWork::Cache => {
                PendingReply::Other { offset: self.offset }
            }
        }
    }
}
