//! The common part of both services' configurations: the file, its errors, the address of the metrics.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use thiserror::Error;
pub use tidegate_config::ConfigError;
use tidegate_config::{FindingList, PlacedValue, Section, read_text};
use tidegate_http::ListenAddress;
use tidegate_journal::JournalConfig;
use tidegate_units::Bytes;

use crate::api::ApiSettings;

/// The addresses at which a service answers over HTTP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceAddresses {
    /// The addresses of its API, with their ports as they are written. `None`: nothing is said of it.
    pub api: Option<Vec<ListenAddress>>,
    /// The address of its metrics and its status.
    pub metrics: Option<SocketAddr>,
}

/// Returns the addresses of a service with this configuration, a gateway or an agent. The rest of the
/// configuration is not checked: an administrator may be in the middle of changing it.
///
/// # Errors
/// When the file cannot be read, or its `metrics` or its `api` is wrong.
pub fn service_addresses(path: &Path) -> Result<ServiceAddresses, ConfigError> {
    let text = read_bounded(path).map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
    let name = path.display().to_string();
    let (mut report, mut of_others) = (FindingList::new(&name, &text), FindingList::new(&name, &text));
    let addresses = tidegate_config::parse(&text, &mut report).map(|document| {
        let root = Section::new(&document, 0..0, String::new(), &["metrics", "api"], &mut of_others);
        let metrics = root.parsed::<MetricsAddress>("metrics", &mut report);
        let api = ApiSettings::read(&root, path.parent().unwrap_or(Path::new("")), &mut report);
        ServiceAddresses {
            api: api.map(|given| given.settings.listen).filter(|listen| !listen.is_empty()),
            metrics: metrics.map(|given| given.value.0),
        }
    });
    match addresses {
        Some(addresses) if !report.has_errors() => Ok(addresses),
        _ => Err(ConfigError::Invalid(report.into_findings())),
    }
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

impl MetricsAddress {
    /// Returns the address with its place.
    #[must_use]
    pub fn placed(given: &PlacedValue<Self>) -> PlacedValue<SocketAddr> {
        PlacedValue { value: given.value.0, span: given.span.clone() }
    }
}

/// The decision journal of a service, as it is configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalSettings {
    /// The folder of the journal.
    pub folder: PathBuf,
    /// The most bytes on disk. `None`: the default.
    pub limit: Option<Bytes>,
}

impl JournalSettings {
    /// Reads the table `journal`. Its folder is relative to `folder`, that of the configuration.
    pub fn read(root: &Section<'_>, folder: &Path, report: &mut FindingList<'_>) -> Option<Self> {
        let table = root.table("journal", tidegate_config::keys::serve::JOURNAL.names, report)?;
        if !table.has("folder") {
            table.missing("folder", "\"/var/lib/tidegate/journal\"", report);
        }
        let limit = table.parsed::<Bytes>("limit", report);
        if let Some(limit) = limit.as_ref().filter(|limit| limit.value < JournalConfig::LEAST_LIMIT) {
            report.error(&limit.span, format!("`limit` must be at least {}", JournalConfig::LEAST_LIMIT));
        }
        let path = table.text("folder", report)?;
        let folder = report.path(folder, path.value, &path.span);
        Some(Self { folder, limit: limit.map(|limit| limit.value) })
    }

    /// Returns what the writer is told.
    #[must_use]
    pub fn config(&self) -> JournalConfig {
        let build = format!("tidegate {}", env!("CARGO_PKG_VERSION"));
        let config = JournalConfig::new(self.folder.clone(), build);
        JournalConfig { limit: self.limit.unwrap_or(config.limit), ..config }
    }
}

/// Returns the folder of the journal in a service's configuration. The rest of the configuration is not
/// checked.
///
/// # Errors
/// When the file cannot be read, or the table `journal` is wrong.
pub fn journal_folder(path: &Path) -> Result<Option<PathBuf>, ConfigError> {
    let text = read_bounded(path).map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
    let name = path.display().to_string();
    let (mut report, mut of_others) = (FindingList::new(&name, &text), FindingList::new(&name, &text));
    let settings = tidegate_config::parse(&text, &mut report).and_then(|document| {
        let root = Section::new(&document, 0..0, String::new(), &["journal"], &mut of_others);
        JournalSettings::read(&root, path.parent().unwrap_or(Path::new("")), &mut report)
    });
    let findings = report.into_findings();
    if findings.is_empty() {
        Ok(settings.map(|settings| settings.folder))
    } else {
        Err(ConfigError::Invalid(findings))
    }
}

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
