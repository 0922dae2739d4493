//! The common part of both services' configurations: the file, its errors, the address of the metrics.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::str::FromStr;

use thiserror::Error;
pub use tidegate_config::ConfigError;
use tidegate_config::{FindingList, PlacedValue, Section, read_text};

/// Returns the address at which a service with this configuration, a gateway or an agent, serves its metrics
/// and its status. The rest of the configuration is not checked: an administrator may be in the middle of
/// changing it.
///
/// # Errors
/// When the file cannot be read, or its `metrics` are no address.
pub fn metrics_address(path: &Path) -> Result<Option<SocketAddr>, ConfigError> {
    let text = read_bounded(path).map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
    let name = path.display().to_string();
    let (mut report, mut of_others) = (FindingList::new(&name, &text), FindingList::new(&name, &text));
    let address = tidegate_config::parse(&text, &mut report).and_then(|document| {
        let root = Section::new(&document, 0..0, String::new(), &["metrics"], &mut of_others);
        Some(root.parsed::<MetricsAddress>("metrics", &mut report)?.value.0)
    });
    let findings = report.into_findings();
    if findings.is_empty() { Ok(address) } else { Err(ConfigError::Invalid(findings)) }
}

/// Reads the text of a configuration.
///
/// # Errors
/// The system's answer, or that the file is too large for a configuration.
pub fn read_bounded(path: &Path) -> io::Result<String> {
    read_text(fs::File::open(path)?)
}

/// The address at which metrics are served, as it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MetricsAddress(pub SocketAddr);

/// Reports an address that other machines reach: metrics and status ask for no credentials.
pub fn warn_of_open_metrics(metrics: &PlacedValue<MetricsAddress>, report: &mut FindingList<'_>) {
    let MetricsAddress(address) = metrics.value;
    if !address.ip().is_loopback() {
        report.warning(
            &metrics.span,
            format!("any host that reaches {address} can read the metrics and the status"),
            format!("write `127.0.0.1:{}`, or let a firewall admit the hosts that may", address.port()),
        );
    }
}

/// The reason why a text is not such an address.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{0}` is not an address and a port; write for example `127.0.0.1:9809`")]
pub struct MetricsAddressError(String);

impl FromStr for MetricsAddress {
    type Err = MetricsAddressError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self).map_err(|_| MetricsAddressError(text.escape_debug().to_string()))
    }
}
