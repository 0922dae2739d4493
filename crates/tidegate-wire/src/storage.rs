//! A connection in one of the protocols that are spoken here.

use crate::commands::{CompletedCommand, LogicalUnit, ReadsInFlight};
use crate::connection::{Connection, ConnectionEvents, Dialogue, SessionNames, Towards};
use crate::direction::DirectionSegment;
use crate::iscsi::IscsiDialogue;
use crate::nvme::NvmeDialogue;
use tidegate_units::Instant;

/// NVMe/TCP's ports: of I/O, and of discovery. Any other port is iSCSI's.
const NVME_PORTS: [u16; 2] = [4420, 8009];

/// Protocols that are spoken here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StorageProtocol {
    /// iSCSI.
    Iscsi,
    /// NVMe over TCP.
    Nvme,
}

/// A connection.
#[derive(Debug)]
pub(crate) enum StorageConnection {
    Iscsi(Box<Connection<IscsiDialogue>>),
    Nvme(Box<Connection<NvmeDialogue>>),
}

/// Evaluates the same expression for a connection of either protocol.
macro_rules! of_either {
    ($connection:expr, $either:ident => $value:expr) => {
        match $connection {
            StorageConnection::Iscsi($either) => $value,
            StorageConnection::Nvme($either) => $value,
        }
    };
}

impl StorageConnection {
    /// A connection to a port that was there before.
    pub(crate) fn from_the_middle(port: u16) -> Self {
        match NVME_PORTS.contains(&port) {
            true => Self::Nvme(Box::new(Connection::from_the_middle())),
            false => Self::Iscsi(Box::new(Connection::from_the_middle())),
        }
    }

    pub(crate) const fn protocol(&self) -> StorageProtocol {
        match self {
            Self::Iscsi(_) => StorageProtocol::Iscsi,
            Self::Nvme(_) => StorageProtocol::Nvme,
        }
    }

    pub(crate) fn begin(&mut self, towards: Towards, first: u32) {
        of_either!(self, connection => connection.begin(towards, first));
    }

    pub(crate) fn take(
        &mut self,
        towards: Towards,
        segment: DirectionSegment<'_>,
        each: &mut impl FnMut(CompletedCommand),
    ) -> ConnectionEvents {
        of_either!(self, connection => connection.take(towards, segment, each))
    }

    pub(crate) fn doubt(&mut self, now: Instant) {
        of_either!(self, connection => connection.doubt(now));
    }

    pub(crate) fn forget(&mut self) -> usize {
        of_either!(self, connection => connection.forget())
    }

    pub(crate) fn is_plausible(&self) -> bool {
        of_either!(self, connection => connection.is_plausible())
    }

    pub(crate) fn is_understood(&self) -> bool {
        of_either!(self, connection => connection.is_understood())
    }

    pub(crate) fn is_logged_in(&self) -> bool {
        of_either!(self, connection => connection.dialogue().is_logged_in())
    }

    pub(crate) fn names(&self) -> Option<&SessionNames> {
        of_either!(self, connection => connection.dialogue().names())
    }

    pub(crate) fn recall(&mut self, names: SessionNames) {
        of_either!(self, connection => connection.recall(names));
    }

    pub(crate) fn units(&self) -> Box<dyn ExactSizeIterator<Item = LogicalUnit> + '_> {
        of_either!(self, connection => Box::new(connection.units()))
    }

    pub(crate) fn reads_in_flight(&self, unit: LogicalUnit) -> ReadsInFlight {
        of_either!(self, connection => connection.reads_in_flight(unit))
    }
}
