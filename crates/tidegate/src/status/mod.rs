//! `tidegate status`.

mod cluster_text;
pub(crate) mod error;
mod overrides_text;
mod text;

use self::error::PATIENCE;
use self::error::StatusError;
use self::error::USUAL;
use std::fs;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use tidegate_service::config::metrics_address;
use tidegate_service::status::ServiceStatus;
use tidegate_transfer::config::is_brokers;

use crate::failure::CommandFailure;
use crate::http::{self, HttpAnswer};
use text::StatusText;

/// Some hundred thousand consumers.
const LARGEST: u64 = 64 << 20;

const EXAMPLES: &str = "\
Examples:
  tidegate status
  tidegate status -c /etc/tidegate/tidegate.toml
  tidegate status --url http://10.0.0.1:9809 --json";

/// Print the state of a running service: its laws' decisions, the throttled consumers, and what each consumer
/// gets
///
/// Asks `tidegate serve` or `tidegate agent` over HTTP, where it serves its metrics. What is not known is
/// said to be unknown; what consumers do is of the last two to four seconds.
///
/// Exit status: 0 the service answers, however it stands; 1 it does not; 2 wrong usage or configuration.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The service's configuration, whose `metrics` say where it answers
    #[arg(short, long, value_name = "FILE", conflicts_with = "url")]
    config: Option<PathBuf>,

    /// Address of the service [default: http://127.0.0.1:9809]
    #[arg(long, value_name = "URL")]
    url: Option<String>,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<(), CommandFailure> {
    let address = match (&args.config, &args.url) {
        (Some(path), _) => configured(path)?,
        (None, Some(url)) => named(url)?,
        (None, None) => USUAL.to_owned(),
    };
    let (status, document) = ask(&address)?;
    let mut out = io::stdout();
    if args.json {
        writeln!(out, "{}", document.trim_end())?;
    } else {
        write!(out, "{}", StatusText { status: &status, address: &address })?;
    }
    Ok(())
}

/// The address in a configuration.
fn configured(path: &Path) -> Result<String, CommandFailure> {
    if fs::read_to_string(path).is_ok_and(|text| is_brokers(&text)) {
        return Err(StatusError::Broker(path.to_owned()).into());
    }
    let address = metrics_address(path)?.ok_or_else(|| StatusError::NoAddress(path.to_owned()))?;
    if address.port() == 0 {
        return Err(StatusError::AnyPort(path.to_owned()).into());
    }
    Ok(reachable(address).to_string())
}

/// Returns the address to ask: this machine's own for a service that listens on all addresses.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

/// Host and port of an address as in a browser.
fn named(url: &str) -> Result<String, CommandFailure> {
    let address = url.strip_prefix("http://").map(|rest| rest.trim_end_matches('/'));
    let is_address = |address: &&str| {
        let (host, port) = address.rsplit_once(':').unwrap_or_default();
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:[]%".contains(&byte);
        !host.is_empty() && host.bytes().all(plain) && port.parse::<u16>().is_ok_and(|port| port > 0)
    };
    address.filter(is_address).map(str::to_owned).ok_or_else(|| {
        let shown = url.escape_debug();
        CommandFailure::Usage(format!(
            "`{shown}` is no address of a service: write http://HOST:PORT, such as http://{USUAL}"
        ))
    })
}

/// Asks a service for its status. Returns it parsed, and as text.
fn ask(address: &str) -> Result<(ServiceStatus, String), StatusError> {
    let another = |what: String| StatusError::Another { address: address.to_owned(), what };
    let HttpAnswer { status, line, body } = match http::get(address, "/v1/status", PATIENCE, LARGEST) {
        Ok(answer) => answer,
        Err(error) => {
            return Err(match error.kind() {
                io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => {
                    StatusError::Silent(address.to_owned())
                }
                io::ErrorKind::InvalidData => another(error.to_string()),
                _ => StatusError::NotThere { address: address.to_owned(), source: error },
            });
        }
    };
    match status {
        200 => {}
        503 => return Err(unavailable(address, &line, &body)),
        _ => return Err(another(line)),
    }
    #[derive(Deserialize)]
    struct Versioned {
        version: u64,
        #[serde(rename = "service")]
        _service: String,
    }
    // First the version alone: another one may have anything else.
    let versioned: Versioned =
        serde_json::from_str(&body).map_err(|error| another(format!("its answer is no status: {error}")))?;
    if versioned.version != u64::from(ServiceStatus::VERSION) {
        return Err(StatusError::Version { address: address.to_owned(), theirs: versioned.version });
    }
    let read = serde_json::from_str(&body);
    let status = read.map_err(|error| another(format!("its answer is no status: {error}")))?;
    Ok((status, body))
}

fn unavailable(address: &str, line: &str, body: &str) -> StatusError {
    #[derive(Deserialize)]
    struct Problem {
        error: String,
    }
    match serde_json::from_str::<Problem>(body) {
        Ok(problem) => StatusError::Unavailable { address: address.to_owned(), said: problem.error },
        Err(_) => StatusError::Another { address: address.to_owned(), what: line.to_owned() },
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{Shutdown, TcpListener};
    use std::thread::{self, JoinHandle};

    use super::*;

    #[test]
    fn an_address_is_a_host_and_a_port() {
        for (url, address) in [
            ("http://127.0.0.1:9809", "127.0.0.1:9809"),
            ("http://storage-1:80/", "storage-1:80"),
            ("http://[::1]:9809", "[::1]:9809"),
        ] {
            assert_eq!(named(url).ok().as_deref(), Some(address));
        }
        let wrong = [
            "",
            "127.0.0.1:9809",
            "https://a:1",
            "http://",
            "http://a",
            "http://a:0",
            "http://:1",
            "http://a:1/v1",
        ];
        for url in wrong.into_iter().chain(["http://a\r\nb:1", "http://a:65536"]) {
            assert!(matches!(named(url), Err(CommandFailure::Usage(_))), "{url}");
        }
    }

    #[test]
    fn who_listens_everywhere_is_asked_here() {
        for (listens, asked) in
            [("0.0.0.0:1", "127.0.0.1:1"), ("[::]:1", "[::1]:1"), ("10.0.0.1:1", "10.0.0.1:1")]
        {
            assert_eq!(reachable(listens.parse().unwrap()).to_string(), asked);
        }
    }

    /// One that answers whatever it is asked.
    fn answering(answer: &'static str) -> (String, JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let (mut asked, mut part) = (Vec::new(), [0; 1024]);
            while !asked.ends_with(b"\r\n\r\n") {
                let length = stream.read(&mut part).unwrap();
                asked.extend_from_slice(&part[..length]);
            }
            stream.write_all(answer.as_bytes()).unwrap();
            // Closed with something unread, the connection would be reset, and the answer lost.
            stream.shutdown(Shutdown::Write).unwrap();
            let _ = stream.read_to_end(&mut asked);
        });
        (address, server)
    }

    #[test]
    fn whoever_else_answers_is_not_taken_for_a_service() {
        for (answer, said) in [
            ("SSH-2.0-OpenSSH_9\r\n", "the answer is not HTTP"),
            (
                "HTTP/1.1 404 Not Found\r\n\r\nno",
                "is no Tidegate service with a status: HTTP/1.1 404 Not Found",
            ),
            ("HTTP/1.1 200 OK\r\n\r\n<html>", "its answer is no status: "),
            ("HTTP/1.1 200 OK\r\n\r\n{}", "its answer is no status: missing field `version`"),
            (
                "HTTP/1.1 200 OK\r\n\r\n{\"version\": 1, \"service\": \"serve\"}",
                "its answer is no status: missing field",
            ),
            (
                "HTTP/1.1 200 OK\r\n\r\n{\"version\": 2, \"service\": \"serve\", \"new\": []}",
                "speaks version 2 of the status, this program version 1: use the `tidegate` that",
            ),
            ("HTTP/1.1 503 Busy\r\n\r\n<html>", "is no Tidegate service with a status: HTTP/1.1 503 Busy"),
            (
                "HTTP/1.1 503 Busy\r\n\r\n{\"error\": \"the service does not answer: it is stopping, or \
                    overloaded\"}",
                ": the service does not answer: it is stopping, or overloaded; its log says more",
            ),
        ] {
            let (address, server) = answering(answer);
            let error = ask(&address).unwrap_err().to_string();
            assert!(error.contains(said), "{answer}: {error}");
            server.join().unwrap();
        }
    }

    #[test]
    fn nobody_there_is_said_with_what_to_look_at() {
        // Bound and released: nothing listens there.
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let error = ask(&address).unwrap_err();
        assert!(matches!(error, StatusError::NotThere { .. }), "{error}");
        assert!(error.to_string().contains("is `tidegate serve` or `tidegate agent` running"), "{error}");
    }
}
