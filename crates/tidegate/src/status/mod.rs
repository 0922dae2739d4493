//! `tidegate status`.

mod cluster_text;
pub(crate) mod error;
mod overrides_text;
mod text;

use std::io::{self, Write};

use serde::Deserialize;
use tidegate_service::status::ServiceStatus;

use self::error::StatusError;
use crate::failure::CommandFailure;
use crate::http::{ServiceAnswer, ServiceOptions};
use text::StatusText;

const EXAMPLES: &str = "\
Examples:
  tidegate status
  tidegate status -c /etc/tidegate/tidegate.toml
  tidegate status --url https://storage-1.example:9810 --token-file reader.token --json";

/// Print the state of a running service: its laws' decisions, the throttled consumers, and what each consumer
/// gets
///
/// Asks `tidegate serve` or `tidegate agent` over HTTP. What is not known is said to be unknown; what
/// consumers do is of the last two to four seconds.
///
/// Exit status: 0 the service answers, however it stands; 1 it does not; 2 wrong usage or configuration.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    service: ServiceOptions,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<(), CommandFailure> {
    let answer = args.service.client()?.get("/v1/status").map_err(StatusError::from)?;
    let status = read(&answer)?;
    let mut out = io::stdout();
    if args.json {
        writeln!(out, "{}", answer.body.trim_end())?;
    } else {
        write!(out, "{}", StatusText { status: &status, address: &answer.address.to_string() })?;
    }
    Ok(())
}

fn read(answer: &ServiceAnswer) -> Result<ServiceStatus, StatusError> {
    #[derive(Deserialize)]
    struct Versioned {
        version: u64,
        #[serde(rename = "service")]
        _service: String,
    }
    // First the version alone: another one may have anything else.
    let versioned: Versioned = answer.read("status")?;
    if versioned.version != u64::from(ServiceStatus::VERSION) {
        return Err(StatusError::Version { address: answer.address.clone(), theirs: versioned.version });
    }
    Ok(answer.read("status")?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::ServiceAddress;

    #[test]
    fn another_document_is_not_taken_for_a_status() {
        for (body, said) in [
            ("<html>", "its answer is no status: "),
            ("{}", "its answer is no status: missing field `version`"),
            ("{\"version\": 1, \"service\": \"serve\"}", "its answer is no status: missing field"),
            (
                "{\"version\": 2, \"service\": \"serve\", \"new\": []}",
                "speaks version 2 of the status, this program version 1: use the `tidegate` that",
            ),
        ] {
            let address = ServiceAddress::Http("127.0.0.1:9809".to_owned());
            let error = read(&ServiceAnswer { address, body: body.to_owned() }).unwrap_err().to_string();
            assert!(error.contains(said), "{body}: {error}");
        }
    }
}
