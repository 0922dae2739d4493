//! The services that a command means.

use tidegate_service::status::ServiceStatus;

use super::target::ControlTarget;
use crate::failure::CommandFailure;
use crate::http::{PeerTrust, ServiceAddress, ServiceClient, ServiceError, ServiceOptions};

/// A service, and what it has.
#[derive(Debug)]
pub(super) struct KnownService {
    pub(super) client: ServiceClient,
    /// The address that answered.
    pub(super) address: ServiceAddress,
    /// How far its process is known.
    pub(super) trust: PeerTrust,
    pub(super) status: ServiceStatus,
}

/// A service that did not answer.
#[derive(Debug)]
pub(super) struct SilentService {
    /// The address that was asked first.
    pub(super) address: String,
    pub(super) error: ServiceError,
}

/// Asks services what they have. Returns those that answered, and those that did not.
pub(super) fn ask(clients: Vec<ServiceClient>) -> (Vec<KnownService>, Vec<SilentService>) {
    let (mut known, mut silent) = (Vec::new(), Vec::new());
    for client in clients {
        let answer = client.get("/v1/status");
        match answer.and_then(|answer| Ok((answer.read("status")?, answer.address, answer.trust))) {
            Ok((status, address, trust)) => known.push(KnownService { client, address, trust, status }),
            Err(error) => silent.push(SilentService { address: client.address(), error }),
        }
    }
    (known, silent)
}

/// Finds the resource or the consumer of this name, and the service that has it.
///
/// # Errors
/// When no service answers or has it, or more than one could be meant.
pub(super) fn find(
    options: &ServiceOptions,
    name: &str,
    resource: Option<&str>,
) -> Result<(KnownService, ControlTarget), CommandFailure> {
    let (known, silent) = ask(options.clients()?);
    let (mut having, mut unknown) = (Vec::new(), Vec::new());
    for service in known {
        match ControlTarget::find(&service.status, name, resource) {
            Ok(target) => having.push((service, target)),
            Err(said) => unknown.push(said),
        }
    }
    if having.len() > 1 {
        let addresses: Vec<_> = having.iter().map(|(service, _)| service.address.to_string()).collect();
        return Err(CommandFailure::Usage(format!(
            "several services have `{name}`: name one with `--url`: {}",
            addresses.join(", ")
        )));
    }
    if let Some(found) = having.pop() {
        return Ok(found);
    }
    // A service that did not answer may have it.
    if let Some(service) = silent.into_iter().next() {
        return Err(service.error.into());
    }
    // One that proposes a name knows most of what was meant.
    unknown.sort_by_key(|said| !said.contains("did you mean"));
    Err(CommandFailure::Usage(unknown.into_iter().next().unwrap_or_default()))
}
