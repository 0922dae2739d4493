//! `tidegate status`.

mod cluster_text;
pub(crate) mod error;
mod overrides_text;
mod reports_text;
pub(crate) mod text;

use std::io::Write;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use serde::Deserialize;
use tidegate_service::status::ServiceStatus;

use self::error::StatusError;
use crate::failure::CommandFailure;
use crate::http::{ServiceAnswer, ServiceOptions};
use crate::out;
use text::StatusText;

const EXAMPLES: &str = "\
Examples:
  tidegate status
  tidegate status -c /etc/tidegate/tidegate.toml
  tidegate status --watch 5 | tee status.log
  tidegate status --url https://storage-1.example:9810 --token-file reader.token --json";

/// Print the state of a running service: its laws' decisions, the throttled consumers, and what each consumer
/// gets
///
/// Asks `tidegate serve` or `tidegate agent` over HTTP. What is not known is said to be unknown; what
/// consumers do is of the last two to four seconds.
///
/// `tidegate top` shows the same live.
///
/// Exit status: 0 the service answers, however it stands; 1 it does not; 2 wrong usage or configuration.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    service: ServiceOptions,

    /// Print one JSON document; with --watch one in each line
    #[arg(long)]
    json: bool,

    /// Print it anew, each with its time, until interrupted or until the reader is gone. A service that stops
    /// answering is asked again
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "2", value_parser = period)]
    watch: Option<Duration>,
}

/// Reads a time between two prints.
fn period(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| (0.1..=86_400.0).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "must be between 0.1 and 86400".to_owned())
}

pub(crate) fn run(args: &Args) -> Result<(), CommandFailure> {
    let client = args.service.client()?;
    let mut asked = Instant::now();
    // A first question without an answer is one to a wrong address, most likely.
    print(args, &client.get("/v1/status").map_err(StatusError::from)?)?;
    let Some(period) = args.watch else { return Ok(()) };
    loop {
        thread::sleep(period.saturating_sub(asked.elapsed()));
        asked = Instant::now();
        match client.get("/v1/status") {
            Ok(answer) => print(args, &answer)?,
            Err(error) => writeln!(out::stderr(), "{} tidegate: {error}", now())?,
        }
    }
}

fn print(args: &Args, answer: &ServiceAnswer) -> Result<(), CommandFailure> {
    let status = read(answer)?;
    let mut out = out::stdout();
    match (args.json, args.watch) {
        (true, None) => writeln!(out, "{}", answer.body.trim_end())?,
        (true, Some(_)) => writeln!(out, "{}", one_line(&answer.body))?,
        (false, watch) => {
            if watch.is_some() {
                writeln!(out, "{}", now())?;
            }
            write!(out, "{}", StatusText { status: &status, address: &answer.address.to_string() })?;
        }
    }
    Ok(out.flush()?)
}

/// Returns a JSON document in one line: no text in it has a line end, which JSON writes as `\n`.
fn one_line(document: &str) -> String {
    document.lines().map(str::trim).collect()
}

/// Returns the time, as in the log.
fn now() -> String {
    humantime::format_rfc3339_seconds(SystemTime::now()).to_string()
}

/// Reads a status, if it is of the version that this program knows.
pub(crate) fn read(answer: &ServiceAnswer) -> Result<ServiceStatus, StatusError> {
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
    use crate::http::{PeerTrust, ServiceAddress};

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
            let error = read(&ServiceAnswer { address, trust: PeerTrust::Believed, body: body.to_owned() })
                .unwrap_err()
                .to_string();
            assert!(error.contains(said), "{body}: {error}");
        }
    }
}
