//! The configuration of `source`: a latency that an array publishes.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use tidegate_config::{FindingList, Section};
use tidegate_transfer::BearerToken;
use tidegate_transfer::store::is_plain_beyond_this_host;
use tidegate_units::Latency;

use super::snmp::{ObjectId, SnmpAccess};
use super::snmp_keys::{self, SNMP_KEYS};

pub(crate) const SOURCE_KEYS: &[&str] = tidegate_config::keys::agent::SOURCE.names;

/// Chosen: arrays that publish their latency do so each five seconds at the best.
const EVERY: Duration = Duration::from_secs(5);

/// The shortest and the longest time between two questions.
const EVERY_BOUNDS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(60));

const TIMEOUT: Duration = Duration::from_secs(2);

/// Answers that are older than so many questions are none.
const MAX_AGE: u32 = 3;

/// A latency that another machine publishes.
#[derive(Debug, Clone, PartialEq)]
pub struct LatencySourceConfig {
    /// The place of it.
    pub place: SourcePlace,
    /// The number times this is a latency in seconds.
    pub seconds: f64,
    /// The time between two questions.
    pub every: Duration,
    /// The time in which an answer must come.
    pub timeout: Duration,
    /// An older answer is none.
    pub max_age: Duration,
}

/// The place where a latency is published.
#[derive(Debug, Clone, PartialEq)]
pub enum SourcePlace {
    /// The result of a query to a Prometheus server.
    Prometheus {
        /// The address of the server.
        url: String,
        /// The query.
        query: String,
        /// The token that the server wants to be shown.
        token: Option<BearerToken>,
    },
    /// An object of an SNMP agent.
    Snmp {
        /// The address of the agent.
        address: SocketAddr,
        /// The object.
        object: ObjectId,
        /// The credentials.
        access: SnmpAccess,
    },
}

/// Reads `source` of a resource. Files are only read if there is a `folder`, where relative paths start.
pub(crate) fn read(
    section: &Section<'_>,
    folder: Option<&Path>,
    report: &mut FindingList<'_>,
) -> Option<LatencySourceConfig> {
    let table = section.table("source", SOURCE_KEYS, report)?;
    let place = match (table.has("prometheus"), table.has("snmp")) {
        (true, false) => prometheus(&table, folder, report),
        (false, true) => snmp(&table, folder, report),
        (true, true) => {
            report.error(table.span(), "`prometheus` and `snmp` exclude each other");
            None
        }
        (false, false) => {
            table.missing("prometheus", "\"http://10.0.0.5:9090\"", report);
            None
        }
    };
    if !table.has("unit") {
        table.missing("unit", "\"ms\"", report);
    }
    let units = [("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9)];
    let unit = table.choice("unit", &units, report).map(|given| given.value);
    let scale = table.number("scale", report).map_or(Some(1.0), |given| {
        let is_meant = (1e-6..=1e6).contains(&given.value);
        if !is_meant {
            report.error(&given.span, "`scale` is within 0.000001 and 1000000");
        }
        is_meant.then_some(given.value)
    });
    let mut time = |key: &str, default: Duration, (least, most): (Duration, Duration)| {
        let Some(given) = table.parsed::<Latency>(key, report) else { return default };
        if !(least..=most).contains(&given.value.to_duration()) {
            let (least, most) = (Latency::from(least), Latency::from(most));
            report.error(&given.span, format!("`{key}` is within {least} and {most}"));
        }
        given.value.to_duration()
    };
    let every = time("every", EVERY, EVERY_BOUNDS);
    let timeout = time("timeout", TIMEOUT.min(every), (Duration::from_millis(10), every));
    let hour = Duration::from_secs(3_600);
    let max_age = time("max_age", every.saturating_mul(MAX_AGE), (every.saturating_add(timeout), hour));
    Some(LatencySourceConfig { place: place?, seconds: unit? * scale?, every, timeout, max_age })
}

fn prometheus(
    table: &Section<'_>,
    folder: Option<&Path>,
    report: &mut FindingList<'_>,
) -> Option<SourcePlace> {
    unused(table, SNMP_KEYS, "snmp", report);
    if !table.has("query") {
        table.missing("query", "\"array_read_latency_seconds{pool='gold'}\"", report);
    }
    let url = table.text("prometheus", report)?;
    let query = table.text("query", report);
    if !url.value.starts_with("http://") && !url.value.starts_with("https://") {
        report.error(&url.span, format!("`{}` is no server's address: write http://HOST:PORT", url.value));
        return None;
    }
    let token = match table.text("token_file", report) {
        None => None,
        Some(given) => {
            if is_plain_beyond_this_host(url.value) {
                let what =
                    "HTTP beyond this machine is not encrypted: any host on the way can read the token";
                report.warning(&url.span, what, "write https://HOST");
            }
            let token = folder.map(|folder| BearerToken::from_file(&folder.join(given.value)));
            match token.transpose() {
                Ok(token) => token,
                Err(error) => {
                    report.error(&given.span, error.to_string());
                    return None;
                }
            }
        }
    };
    let url = url.value.trim_end_matches('/').to_owned();
    Some(SourcePlace::Prometheus { url, query: query?.value.to_owned(), token })
}

fn snmp(table: &Section<'_>, folder: Option<&Path>, report: &mut FindingList<'_>) -> Option<SourcePlace> {
    unused(table, &["query", "token_file"], "prometheus", report);
    let (address, object, access) = snmp_keys::read(table, folder, report)?;
    Some(SourcePlace::Snmp { address, object, access })
}

fn unused(table: &Section<'_>, keys: &[&str], other: &str, report: &mut FindingList<'_>) {
    for key in keys {
        if let Some(span) = table.key_span(key) {
            report.error(&span, format!("`{key}` is only for `{other}`"));
        }
    }
}
