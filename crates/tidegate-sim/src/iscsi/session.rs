//! The state of each initiator: its connection, the data in it, its commands.

use std::collections::VecDeque;

use tidegate_device::DeviceIo;

use super::egress::DelayedEgress;
use super::load::{DepthLevel, ServiceMeter};
use super::plan::TcpNetwork;
use super::protocol::Pdu;
use super::regulate::MachineCounters;
use super::tcp::{ByteStream, StreamPiece};

#[derive(Debug, Clone, Copy)]
pub(super) struct IscsiPacket {
    pub(super) piece: StreamPiece,
    /// The acknowledgement in it: the offset up to which the other side may send.
    pub(super) allows: u64,
}

/// A session: both directions of its connection, and the data units in them.
pub(super) struct IscsiSession {
    pub(super) up: ByteStream,
    pub(super) down: ByteStream,
    /// Data units that were written and have not arrived, with their offsets.
    pub(super) in_up: VecDeque<(u64, Pdu)>,
    pub(super) in_down: VecDeque<(u64, Pdu)>,
    pub(super) egress: DelayedEgress,
    pub(super) active: u32,
    /// Requests beyond the session's queue depth. No more than the loads' depths together.
    pub(super) waiting: VecDeque<(usize, DeviceIo, u64)>,
    pub(super) meter: ServiceMeter,
    pub(super) counters: MachineCounters,
    pub(super) at_storage: DepthLevel,
}

/// A SCSI command.
#[derive(Debug, Clone, Copy)]
pub(super) struct ScsiTask {
    pub(super) machine: usize,
    pub(super) load: usize,
    pub(super) io: DeviceIo,
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

impl IscsiSession {
    pub(super) fn new(network: &TcpNetwork) -> Self {
        Self {
            up: ByteStream::new(network.window_up.get()),
            down: ByteStream::new(network.window_down.get()),
            in_up: VecDeque::new(),
            in_down: VecDeque::new(),
            egress: DelayedEgress::default(),
            active: 0,
            waiting: VecDeque::new(),
            meter: ServiceMeter::default(),
            counters: MachineCounters::default(),
            at_storage: DepthLevel::default(),
        }
    }

    /// Returns the next packet to the target: its piece and the acknowledgement that it carries.
    pub(super) const fn packet_up(&self, piece: StreamPiece) -> IscsiPacket {
        IscsiPacket { piece, allows: self.down.allows() }
    }

    pub(super) const fn packet_down(&self, piece: StreamPiece) -> IscsiPacket {
        IscsiPacket { piece, allows: self.up.allows() }
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
