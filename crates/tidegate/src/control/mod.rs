//! Commands that read or change the settings of a running service.

mod diff;
mod release;
mod set;
mod target;

pub(crate) use diff::{ConfigArgs, config};
pub(crate) use release::{ReleaseArgs, release};
pub(crate) use set::{SetArgs, set};

use serde::Serialize;
use serde::de::DeserializeOwned;
use tidegate_service::overrides::OverridesDocument;
use tidegate_service::status::ServiceStatus;

use crate::client::ServiceClient;
use crate::failure::CommandFailure;

/// Asks for a page of a service.
fn ask<T: DeserializeOwned>(client: &ServiceClient, page: &str) -> Result<T, CommandFailure> {
    Ok(client.get(page)?)
}

/// Returns the status of a service.
fn status(client: &ServiceClient) -> Result<ServiceStatus, CommandFailure> {
    ask(client, "/v1/status")
}

/// Changes something of a service. Returns the overrides after it.
fn change(
    client: &ServiceClient,
    method: http::Method,
    page: &str,
    body: Option<&impl Serialize>,
) -> Result<OverridesDocument, CommandFailure> {
    Ok(client.send(method, page, body)?)
}
