//! The configuration of `source`: a latency that an array publishes.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use tidegate_cluster::Secret;
use tidegate_config::{FindingList, Section, has_credentials};
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
        /// The credentials that the server wants to be shown.
        credentials: Option<ServerCredentials>,
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

/// The credentials that a Prometheus server, or a proxy in front of it, wants to be shown.
#[derive(Debug, Clone, PartialEq)]
pub enum ServerCredentials {
    /// A bearer token.
    Token(BearerToken),
    /// Basic authentication.
    User {
        /// The user's name.
        name: String,
        /// The password.
        password: Secret,
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
    let of_snmp: Vec<_> = SNMP_KEYS.iter().copied().filter(|key| *key != "user").collect();
    unused(table, &of_snmp, "snmp", report);
    if !table.has("query") {
        table.missing("query", "\"array_read_latency_seconds{pool='gold'}\"", report);
    }
    let url = table.text("prometheus", report)?;
    let query = table.text("query", report);
    if !url.value.starts_with("http://") && !url.value.starts_with("https://") {
        report.error(&url.span, format!("`{}` is no server's address: write http://HOST:PORT", url.value));
        return None;
    }
    if has_credentials(url.value) {
        let help = "write `user` and `password_file`, or `token_file`";
        report.error_with_help(&url.span, "a password does not belong into an address", help);
        return None;
    }
    let credentials = credentials(table, folder, report)?;
    if credentials.is_some() && is_plain_beyond_this_host(url.value) {
        let what = "HTTP beyond this machine is not encrypted: any host on the way can read the credentials";
        report.warning(&url.span, what, "write https://HOST");
    }
    let url = url.value.trim_end_matches('/').to_owned();
    Some(SourcePlace::Prometheus { url, query: query?.value.to_owned(), credentials })
}

/// Returns the credentials that a file holds; `Some(None)` if none are given, or files are not read.
#[allow(clippy::option_option, reason = "none are given, or they are wrong")]
fn credentials(
    table: &Section<'_>,
    folder: Option<&Path>,
    report: &mut FindingList<'_>,
) -> Option<Option<ServerCredentials>> {
    let [token, user, password] = ["token_file", "user", "password_file"].map(|key| table.text(key, report));
    let (given, read) = match (token, user, password) {
        (None, None, None) => return Some(None),
        (Some(token), None, None) => {
            let read = folder.map(|folder| BearerToken::from_file(&folder.join(token.value)));
            (token, read.map(|read| read.map(ServerCredentials::Token).map_err(|error| error.to_string())))
        }
        (None, Some(user), Some(password)) => {
            let name = user.value.to_owned();
            let read = folder.map(|folder| Secret::from_file(&folder.join(password.value)));
            let read = read.map(|read| read.map(|password| ServerCredentials::User { name, password }));
            (password, read.map(|read| read.map_err(|error| error.to_string())))
        }
        _ => {
            let what = "credentials are `token_file`, or `user` and `password_file`";
            report.error(table.span(), what);
            return None;
        }
    };
    match read.transpose() {
        Ok(credentials) => Some(credentials),
        Err(error) => {
            report.error(&given.span, error);
            None
        }
    }
}

fn snmp(table: &Section<'_>, folder: Option<&Path>, report: &mut FindingList<'_>) -> Option<SourcePlace> {
    unused(table, &["query", "token_file", "password_file"], "prometheus", report);
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
