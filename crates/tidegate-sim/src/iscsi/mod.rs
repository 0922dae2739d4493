//! Requests over iSCSI and TCP to a target whose outgoing packets are delayed. The delay paces initiators
//! that read and write.
//!
//! A command takes this way. The initiator writes data units into a TCP connection. The target asks for the
//! data that it does not have yet (R2T), gives the request to the storage, and answers. TCP sends no more
//! than a window beyond the data that it knows to have arrived. It learns of arrivals by acknowledgements,
//! which travel by themselves or with data. The target's packets to a throttled initiator wait, all of them
//! or those of a class ([`PacketClasses`]), in order. So one millisecond of delay costs a request a
//! millisecond for every wait in it: for an R2T, for the answer, and for each window that it has to fill.
//!
//! Its values are defaults of the standards, of Linux and of open-iscsi. `bjorgeengen.lab` compares it with
//! the lab, whose kernels and sessions are real. The lab showed which of several buffers binds. It did not
//! supply the sizes.
//!
//! Left out: loss, congestion windows, delayed acknowledgements, and the processors' time. No packet was lost
//! in the lab where order was kept. The target acknowledges at once.

mod egress;
mod engine;
mod findings;
mod load;
mod plan;
mod protocol;
mod regulate;
mod session;
mod store;
mod tcp;
#[cfg(test)]
mod tests;

pub use egress::PacketClasses;
pub use engine::simulate;
pub use findings::{IscsiFindings, LoadFindings};
pub use plan::{
    InvalidPlan, IscsiPlan, LoadTimes, MachineLoad, MemberRule, StoreModel, TcpNetwork, ThrottleRule,
};
pub use protocol::IscsiProtocol;

use protocol::HEADER;
