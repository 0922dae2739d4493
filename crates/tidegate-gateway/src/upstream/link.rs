//! One connection to an upstream, in the transmission phase.

use std::collections::VecDeque;
use std::time::Duration;

use rustix::net::{SendFlags, Shutdown, send, shutdown};
use tidegate_nbd::transmission::{MessageStyle, NbdCommand, ReplyParser, RequestFrame, WireRequest};
use tidegate_nbd::{CommandFlags, SessionTerms};
use tidegate_sockets::aside::PeerSocket;
use tidegate_units::Instant;

use super::ledger::LedgerMark;
use crate::buffer::AlignedBuffer;
use crate::message::{MessageItem, ReplyMessage};

/// The bytes received at once while their owner is not known: replies to sixteen reads of 4 KiB.
const RECEIVE: usize = 64 * 1024;

/// Data of which at least this much is missing is received directly to where it belongs; less is cheaper to
/// copy than to receive separately.
pub(super) const DIRECT: usize = 16 * 1024;

/// The most data that is received directly at once, so that data that comes slowly is seen to come; also what
/// counts as progress of a reply that is not complete.
pub(super) const PORTION: usize = 1 << 20;

/// A request on its way to the upstream.
#[derive(Debug)]
pub(crate) struct OutgoingRequest {
    pub(super) head: RequestFrame,
    /// A write's data: so many bytes of the buffer from `start`.
    pub(super) payload: Option<LinkPayload>,
    /// The flight that it belongs to.
    pub(super) flight: usize,
}

#[derive(Debug)]
pub(super) struct LinkPayload {
    pub(super) buffer: AlignedBuffer,
    pub(super) start: usize,
    pub(super) length: usize,
}

impl MessageItem for OutgoingRequest {
    fn head(&self) -> &[u8] {
        &self.head
    }

    fn body(&self) -> &[u8] {
        self.payload.as_ref().map_or(&[], |payload| &payload.buffer[payload.start..][..payload.length])
    }
}

/// The state of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LinkState {
    /// Takes requests.
    Open,
    /// The upstream is about to end: it is asked nothing more, and its last replies are waited for.
    Leaving,
    /// Shut on both sides; only operations under way keep it.
    Broken,
}

/// The destination of the bytes that are being received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReceiveTarget {
    No,
    /// Into the connection's own buffer.
    Buffered,
    /// Directly to where the data of this flight belongs, from this place in its part on.
    Direct {
        flight: usize,
        start: u32,
    },
}

#[derive(Debug)]
pub(super) struct UpstreamLink {
    socket: PeerSocket,
    pub(super) style: MessageStyle,
    /// The upstream's id of `base:allocation`, if it tells of allocation.
    pub(super) allocation: Option<u32>,
    /// The how manieth of its upstream's connections it is.
    pub(super) ordinal: u64,
    pub(super) state: LinkState,
    pub(super) parser: ReplyParser,
    pub(super) receiving: ReceiveTarget,
    /// Away while the kernel fills it.
    pub(super) input: Option<AlignedBuffer>,
    /// The length of the beginning of `input` that is received and not yet taken apart.
    pub(super) received: usize,
    /// Requests that wait for their turn to be sent.
    pub(super) queue: VecDeque<OutgoingRequest>,
    /// Away while it is being sent.
    pub(super) message: Option<Box<ReplyMessage<OutgoingRequest>>>,
    /// Requests queued here, being sent, or waiting for their reply.
    pub(super) in_flight: usize,
    pub(super) mark: LedgerMark,
    /// The time when the upstream last completed a reply or a portion of one, or began to have something to
    /// do.
    pub(super) progress: Instant,
    /// Bytes received since then.
    pub(super) since_progress: usize,
}

impl UpstreamLink {
    pub(super) fn new(
        socket: PeerSocket,
        terms: &SessionTerms,
        ordinal: u64,
        mark: LedgerMark,
        now: Instant,
    ) -> Self {
        let SessionTerms { style, allocation, .. } = *terms;
        Self {
            socket,
            style,
            allocation,
            ordinal,
            state: LinkState::Open,
            parser: ReplyParser::new(style),
            receiving: ReceiveTarget::No,
            input: Some(AlignedBuffer::zeroed(RECEIVE)),
            received: 0,
            queue: VecDeque::new(),
            message: Some(Box::new(ReplyMessage::new())),
            in_flight: 0,
            mark,
            progress: now,
            since_progress: 0,
        }
    }

    pub(super) fn socket(&self) -> &PeerSocket {
        &self.socket
    }

    /// Returns true if the kernel is done with the connection.
    pub(super) fn is_at_rest(&self) -> bool {
        self.receiving == ReceiveTarget::No && self.message.is_some()
    }

    /// Counts received bytes as progress once they are worth it.
    pub(super) fn note_received(&mut self, count: usize, now: Instant) {
        self.since_progress += count;
        if self.since_progress >= PORTION {
            self.note_progress(now);
        }
    }

    pub(super) fn note_progress(&mut self, now: Instant) {
        self.progress = now;
        self.since_progress = 0;
    }

    /// Returns true if requests have waited for `limit` without any progress.
    pub(super) fn is_silent(&self, limit: Duration, now: Instant) -> bool {
        self.in_flight > 0 && now.saturating_since(self.progress) >= limit
    }

    /// Ends it: operations under way complete soon, and nothing more is begun.
    pub(super) fn break_off(&mut self) {
        if self.state == LinkState::Broken {
            return;
        }
        if self.in_flight == 0 && self.message.is_some() {
            let goodbye = WireRequest::new(NbdCommand::Disconnect, CommandFlags::NONE, 0, 0, 0u32);
            // Polite where it costs nothing; the end of the connection says the same.
            let _ =
                send(&self.socket, &goodbye.encode(self.style), SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
        }
        self.state = LinkState::Broken;
        // Fails only when it is closed already.
        let _ = shutdown(&self.socket, Shutdown::Both);
    }
}
