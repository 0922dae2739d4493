//! The services that a command means.

use tidegate_service::status::ServiceStatus;

use super::status;
use super::target::ControlTarget;
use crate::failure::CommandFailure;
use crate::http::{ServiceClient, ServiceError, ServiceOptions};

/// A service, and what it has.
#[derive(Debug)]
pub(super) struct KnownService {
    pub(super) client: ServiceClient,
    pub(super) status: ServiceStatus,
}

/// Asks the service that the options mean, or each one of this machine. Returns those that answered, and the
/// reasons why others did not.
pub(super) fn ask(
    options: &ServiceOptions,
) -> Result<(Vec<KnownService>, Vec<ServiceError>), CommandFailure> {
    let (mut known, mut silent) = (Vec::new(), Vec::new());
    for client in options.clients()? {
        match status(&client) {
            Ok(status) => known.push(KnownService { client, status }),
            Err(error) => silent.push(error),
        }
    }
    Ok((known, silent))
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
    let (known, silent) = ask(options)?;
    if let (true, Some(error)) = (known.is_empty(), silent.into_iter().next()) {
        return Err(error.into());
    }
    let (mut having, mut unknown) = (Vec::new(), Vec::new());
    for service in known {
        match ControlTarget::find(&service.status, name, resource) {
            Ok(target) => having.push((service, target)),
            Err(said) => unknown.push(said),
        }
    }
    if having.len() > 1 {
        let addresses: Vec<_> = having.iter().map(|(service, _)| service.client.address()).collect();
        return Err(CommandFailure::Usage(format!(
            "several services have `{name}`: name one with `--url`: {}",
            addresses.join(", ")
        )));
    }
    // One that proposes a name knows most of what was meant.
    unknown.sort_by_key(|said| !said.contains("did you mean"));
    having.pop().ok_or_else(|| CommandFailure::Usage(unknown.into_iter().next().unwrap_or_default()))
}
