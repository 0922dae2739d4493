//! The state of each initiator: its connection, the data in it, its commands.

use std::collections::VecDeque;

use tidegate_device::Io;

use super::egress::Egress;
use super::load::{Level, Meter};
use super::plan::Network;
use super::protocol::Pdu;
use super::regulate::Counters;
use super::tcp::{Piece, Stream};

#[derive(Debug, Clone, Copy)]
pub(super) struct Packet {
    pub(super) piece: Piece,
    /// The acknowledgement in it: the offset up to which the other side may send.
    pub(super) allows: u64,
}

/// A session: both directions of its connection, and the data units in them.
pub(super) struct Session {
    pub(super) up: Stream,
    pub(super) down: Stream,
    /// Data units that were written and have not arrived, with their offsets.
    pub(super) in_up: VecDeque<(u64, Pdu)>,
    pub(super) in_down: VecDeque<(u64, Pdu)>,
    pub(super) egress: Egress,
    pub(super) active: u32,
    /// Requests beyond the session's queue depth. No more than the loads' depths together.
    pub(super) waiting: VecDeque<(usize, Io, u64)>,
    pub(super) meter: Meter,
    pub(super) counters: Counters,
    pub(super) at_storage: Level,
}

/// A SCSI command.
#[derive(Debug, Clone, Copy)]
pub(super) struct Task {
    pub(super) machine: usize,
    pub(super) load: usize,
    pub(super) io: Io,
    pub(super) write: bool,
    pub(super) issued: u64,
    /// Bytes of a write that the target does not have yet; `wanted` is the part of them that it has asked
    /// for.
    pub(super) missing: u64,
    pub(super) wanted: u64,
    /// Time at which the storage got it.
    pub(super) submitted: Option<u64>,
    /// Time that the storage took for it.
    pub(super) stored: u64,
}

impl Session {
    pub(super) fn new(network: &Network) -> Self {
        Self {
            up: Stream::new(network.window_up.get()),
            down: Stream::new(network.window_down.get()),
            in_up: VecDeque::new(),
            in_down: VecDeque::new(),
            egress: Egress::default(),
            active: 0,
            waiting: VecDeque::new(),
            meter: Meter::default(),
            counters: Counters::default(),
            at_storage: Level::default(),
        }
    }

    /// Returns the next packet to the target: its piece and the acknowledgement that it carries.
    pub(super) const fn packet_up(&self, piece: Piece) -> Packet {
        Packet { piece, allows: self.down.allows() }
    }

    pub(super) const fn packet_down(&self, piece: Piece) -> Packet {
        Packet { piece, allows: self.up.allows() }
    }

    pub(super) fn write_up(&mut self, pdu: Pdu) {
        let end = self.up.write(pdu.bytes());
        self.in_up.push_back((end - pdu.bytes(), pdu));
    }

    pub(super) fn write_down(&mut self, pdu: Pdu) {
        let end = self.down.write(pdu.bytes());
        self.in_down.push_back((end - pdu.bytes(), pdu));
    }

    /// The next data unit that has arrived at the target as a whole.
    pub(super) fn read_up(&mut self) -> Option<Pdu> {
        let received = self.up.received();
        self.in_up.pop_front_if(|(from, pdu)| *from + pdu.bytes() <= received).map(|(_, pdu)| pdu)
    }

    pub(super) fn read_down(&mut self) -> Option<Pdu> {
        let received = self.down.received();
        self.in_down.pop_front_if(|(from, pdu)| *from + pdu.bytes() <= received).map(|(_, pdu)| pdu)
    }

    /// Returns the data unit to the initiator that begins at this offset, if one does.
    pub(super) fn pdu_at(&self, from: u64) -> Option<Pdu> {
        let place = self.in_down.partition_point(|(begins, _)| *begins < from);
        self.in_down.get(place).filter(|(begins, _)| *begins == from).map(|(_, pdu)| *pdu)
    }

    /// Returns the data unit with which the next packet to the initiator begins, if one does.
    pub(super) fn begins_with(&self) -> Option<Pdu> {
        self.pdu_at(self.down.sent())
    }
}
