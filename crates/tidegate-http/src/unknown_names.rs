//! The log of requests under names that are not the server's: once a minute, with the remedy. The name may be an
//! attacker's, or the one by which all users of a proxy ask.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use http::header;
use http::request::Parts;
use tidegate_units::visible;

use crate::connections::ConnectionSource;

/// The same complaint is made this often.
pub(crate) const BETWEEN_COMPLAINTS: Duration = Duration::from_secs(60);

/// The longest name that is shown, in characters.
const LONGEST_SHOWN: usize = 100;

/// Requests that were refused for the name of their host.
#[derive(Debug, Default)]
pub(crate) struct UnknownNames(Mutex<Unlogged>);

#[derive(Debug, Default)]
struct Unlogged {
    logged: Option<Instant>,
    /// Refused requests since then.
    count: u64,
}

impl UnknownNames {
    /// Logs a refused request, or counts it. `key` is the key of the configuration that makes its name known.
    pub(crate) fn complain(&self, source: ConnectionSource, request: &Parts, key: &str) {
        let Some(before) = self.due() else { return };
        let host = request.headers.get(header::HOST).map(|host| String::from_utf8_lossy(host.as_bytes()));
        let name = host.or_else(|| request.uri.host().map(Into::into)).unwrap_or_default();
        let name: String = name.chars().take(LONGEST_SHOWN).collect();
        let more = if before > 0 {
            format!(" ({before} more were refused since the last message)")
        } else {
            String::new()
        };
        tracing::warn!(
            "{source}: a request over HTTP is refused, because its `Host` {} is no known name of this service; if \
             it is one, add it to {key}{more}",
            visible(&name)
        );
    }

    /// Returns the number of requests since the last message, if there may be another one.
    fn due(&self) -> Option<u64> {
        let mut unlogged = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if unlogged.logged.is_some_and(|logged| logged.elapsed() < BETWEEN_COMPLAINTS) {
            unlogged.count += 1;
            return None;
        }
        unlogged.logged = Some(Instant::now());
        Some(std::mem::take(&mut unlogged.count))
    }
}
