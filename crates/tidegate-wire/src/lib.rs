//! Storage protocols as the packets between initiators and an array show them, without I/O.
//!
//! [`WireObserver`] takes captured packets of both directions. From them it learns the commands that each
//! initiator sends to each LUN, and how long the array takes to answer. It speaks iSCSI (RFC 7143).
//!
//! | layer | module | knows |
//! |---|---|---|
//! | packet | `frame` | Ethernet, VLAN, IPv4, IPv6, TCP |
//! | byte stream | `direction` | retransmitted, reordered and missing segments |
//! | PDUs | `framing` | where a PDU begins, also in a stream seen from its middle |
//! | connection | `iscsi` | logins, commands, responses |
//! | all connections | `observer` | the totals of each initiator at each LUN |
//!
//! A capture may lack packets, and the ends of packets. Bytes that were not seen are never guessed: what
//! was outstanding when a header may have been missed is forgotten, and yields no latency.

#![forbid(unsafe_code)]

mod direction;
mod frame;
mod framing;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod iscsi;
mod observer;

pub use frame::TcpSegment;
pub use observer::{
    ConnectionView, Nexus, NexusReport, NexusTotals, OperationCount, RecalledSession, WireCounters,
    WireObserver, WireReport,
};
