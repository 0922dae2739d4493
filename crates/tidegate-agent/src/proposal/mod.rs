//! A configuration proposed for this machine: its storage, the consumers of it, and a target from a
//! measurement.
//!
//! `inventory` looks, `measurement` measures, and `text` writes what they found. What was not measured is not
//! proposed.

mod inventory;
mod measurement;
#[cfg(test)]
mod tests;
mod text;

use std::time::Duration;

use tidegate_host::{ReadError, SystemRoot};
use tidegate_units::Latency;

use crate::pattern::ConsumerPattern;

pub use inventory::{
    FoundConsumer, FoundStorage, MachineInventory, MeasuredReads, ReadSource, RegulationKind,
};

/// Wishes for a proposal.
#[derive(Debug, Clone, Default)]
pub struct ProposalRequest {
    /// The only volume groups or devices to regulate; empty: all that were found.
    pub storages: Vec<String>,
    /// Consumers that are never throttled: names of initiators, or paths of cgroups.
    pub protected: Vec<ConsumerPattern>,
    /// The target of all resources. `None`: from the measurement.
    pub target: Option<Latency>,
    /// The time to watch what consumers do.
    pub watched: Duration,
    /// The Unix socket through which operators change settings. `None`: that of the packaged service.
    pub socket: Option<String>,
    /// The port at which metrics and status are served on loopback.
    pub port: u16,
}

/// A proposed configuration.
#[derive(Debug)]
pub struct ConfigurationProposal {
    /// The whole file.
    pub text: String,
    /// The names of its resources.
    pub resources: Vec<String>,
    /// The drop-in that the packaged service needs for its throttle.
    pub drop_in: Option<&'static str>,
}

/// Looks at this machine, measures, and proposes a configuration. Reads a little from devices that are idle,
/// and changes nothing.
///
/// # Errors
/// When this machine's storage cannot be seen.
pub fn take_inventory(request: &ProposalRequest) -> Result<MachineInventory, ReadError> {
    let root = SystemRoot::default();
    let mut inventory = MachineInventory::take(&root)?;
    if !request.storages.is_empty() {
        inventory.storages.retain(|storage| request.storages.iter().any(|name| storage.is_called(name)));
    }
    if inventory.kind.is_none() {
        return Ok(inventory);
    }
    measurement::measure(&root, &mut inventory, request.watched)?;
    Ok(inventory)
}

impl MachineInventory {
    /// Proposes a configuration. Pure: `origin` names the machine and the time.
    ///
    /// # Errors
    /// In words: there is nothing to regulate, or nothing was measured, and what would help.
    pub fn propose(&self, request: &ProposalRequest, origin: &str) -> Result<ConfigurationProposal, String> {
        text::propose(self, request, origin)
    }
}
