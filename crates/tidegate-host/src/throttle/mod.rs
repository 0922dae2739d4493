//! Holding consumers back by delaying the packets that go to them (Bjørgeengen §2.1).
//!
//! A consumer that has to wait longer for its answers sends fewer requests: nothing is dropped, nothing retransmitted, and
//! nothing is in the data path of anyone while nobody is held.

mod guardian;
mod netem;
mod netlink;
mod nft;
mod probe;
mod tc;
mod undo;

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;

use thiserror::Error;
use tidegate_units::{Latency, ResourceName};

pub use guardian::{Guardian, guard};
pub use netem::Netem;
pub use probe::{Capability, probe};
pub use undo::{Found, undo};

/// Which of the packets to a held consumer are held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Packets {
    /// All from the storage ports: answers to reads and to writes alike.
    #[default]
    All,
    /// Those without payload: the paper's choice for writes. With today's receive windows it hardly slows anybody.
    Acks,
    /// Those without payload, and those that begin with an iSCSI R2T or SCSI response: what paces writes, and no read. For
    /// consumers that do not both read and write through one session: of theirs, read data would overtake what is held, and
    /// TCP would take that for loss. Over iSCSI only.
    Responses,
}

/// What a throttle is to have in force for one resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hold {
    /// Whose consumers they are.
    pub resource: ResourceName,
    /// Who is in the resource's set: held as soon as there is a delay.
    pub members: BTreeSet<IpAddr>,
    /// For how long each packet to a member is held. Zero: not at all.
    pub delay: Latency,
}

/// Why a throttle could not do what it was told.
#[derive(Debug, Error)]
pub enum ThrottleError {
    /// Traffic control refused.
    #[error("traffic control of {interface}: {source}")]
    TrafficControl {
        /// The interface, by name where it still has one.
        interface: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// Somebody else shapes the traffic of this interface. It is left as it is, and nobody behind it is held.
    #[error(
        "{interface} already has a root queueing discipline, {kind} {handle:x}:, which Tidegate did not put there; {remedy}"
    )]
    Foreign {
        /// The interface.
        interface: String,
        /// The kind of discipline.
        kind: String,
        /// The major number of its handle.
        handle: u32,
        /// What can be done.
        remedy: &'static str,
    },
    /// No route leads to a consumer.
    #[error("no way to {address}: {source}")]
    Unreachable {
        /// Whom.
        address: IpAddr,
        /// The kernel's answer.
        source: io::Error,
    },
    /// nftables refused, or is not there.
    #[error(transparent)]
    Rules(io::Error),
    /// The kernel has something else than what it was told.
    #[error("{what} is not what was asked for, although nothing was refused")]
    ReadBack {
        /// What was read back.
        what: String,
    },
    /// More resources than the throttle has classes.
    #[error("more than {0} resources")]
    TooMany(u16),
}
