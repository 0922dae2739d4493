//! Capabilities of the kernel that throttles need. Each throttle reports its own, and `probe`, above the
//! throttles, collects what a machine lacks.

use std::io;

use super::{DelayedPackets, ThrottleMethod};

/// Something that a throttle needs, and whether it works here.
#[derive(Debug)]
pub struct KernelCapability {
    /// The name that an administrator would look for.
    pub what: &'static str,
    /// The use that throttles make of it.
    pub purpose: &'static str,
    /// The throttles that need it.
    pub needed_by: CapabilityNeed,
    /// The result of trying it; `Err` is the reason that it does not work.
    pub works: io::Result<()>,
    /// The remedy if it does not work.
    pub remedy: &'static str,
}

/// The throttles that cannot work without a capability.
#[derive(Debug, Clone, Copy)]
pub enum CapabilityNeed {
    /// These throttles.
    Of(&'static [ThrottleMethod]),
    /// netem, where it tells some packets from others by what is in them.
    Payload,
}

impl KernelCapability {
    /// Returns true if this throttle, delaying these packets, can throttle no consumer without this
    /// capability.
    #[must_use]
    pub fn is_needed(&self, method: ThrottleMethod, packets: DelayedPackets) -> bool {
        match self.needed_by {
            CapabilityNeed::Of(methods) => methods.contains(&method),
            CapabilityNeed::Payload => {
                method == ThrottleMethod::Netem && packets == DelayedPackets::Responses
            }
        }
    }

    /// Returns the reason that it does not work, and the remedy. `None`: it works.
    #[must_use]
    pub fn lacks(&self) -> Option<String> {
        let error = self.works.as_ref().err()?;
        Some(format!("{error}; it takes {}", self.remedy))
    }
}
