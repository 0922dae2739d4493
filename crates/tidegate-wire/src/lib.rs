//! Storage protocols as the packets between initiators and an array show them, without I/O.
//!
//! [`WireObserver`] takes captured packets of both directions. From them it learns the commands that each
//! initiator sends to each LUN, and how long the array takes to answer. It speaks iSCSI (RFC 7143) and
//! NVMe over TCP.
//!
//! | layer | module | knows |
//! |---|---|---|
//! | packet | `frame` | Ethernet, VLAN, IPv4, IPv6, TCP |
//! | byte stream | `direction` | retransmitted, reordered and missing segments |
//! | PDUs | `framing` | where a PDU begins, also in a stream seen from its middle |
//! | protocol | `iscsi`, `nvme` | logins, commands, responses |
//! | connection | `connection`, `commands` | both directions, commands that are outstanding |
//! | all connections | `observer` | the totals of each initiator at each LUN |
//!
//! A capture may lack packets, and the ends of packets. Bytes that were not seen are never guessed: what
//! was outstanding when a header may have been missed is forgotten, and yields no latency.

#![forbid(unsafe_code)]

mod commands;
mod connection;
mod direction;
mod frame;
mod framing;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod iscsi;
mod nvme;
mod observer;
mod storage;

pub use frame::TcpSegment;
pub use observer::{
    ConnectionView, Nexus, NexusReport, NexusTotals, OperationCount, RecalledSession, WireCounters,
    WireObserver, WireReport,
};
pub use storage::StorageProtocol;
