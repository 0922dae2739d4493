//! Commands that read or change the settings of a running service.

mod diff;
mod dry_run;
mod release;
mod release_answer;
mod services;
mod set;
mod target;

pub(crate) use diff::{ConfigArgs, config};
pub(crate) use dry_run::{DryRunArgs, dry_run};
pub(crate) use release::{ReleaseArgs, release};
pub(crate) use set::{SetArgs, set};

use std::io::{self, Write};

use serde::Serialize;
use tidegate_service::status::ServiceStatus;

use crate::http::{ServiceClient, ServiceError};
use crate::out;

/// Prints the answer of a command as one JSON document.
fn print_json(answer: &impl Serialize) -> io::Result<()> {
    writeln!(out::stdout(), "{}", serde_json::to_string_pretty(answer)?)
}

/// Returns the status of a service.
fn status(client: &ServiceClient) -> Result<ServiceStatus, ServiceError> {
    client.get("/v1/status")?.read("status")
}
