//! Other users of a pool, according to the gateway's metrics.

use std::collections::BTreeMap;
use std::time::Duration;

use thiserror::Error;

use crate::http::{ServiceAddress, ServiceClient, ServiceError};

/// The time that the whole page may take: while it is waited for, the pool is loaded.
const PATIENCE: Duration = Duration::from_secs(1);

/// A larger page is not of metrics: ten thousand consumers need a part of this.
const LARGEST: usize = 256 << 20;

/// Metrics of the consumers of a pool: counts of answered requests, and numbers of requests not answered yet.
const ANSWERED: [&str; 3] = ["tidegate_requests_total", "tidegate_errors_total", "tidegate_mistakes_total"];
const WAITING: [&str; 2] = ["tidegate_queued_requests", "tidegate_in_flight_requests"];

/// The metric of the open connections of a consumer.
const OPEN: [&str; 1] = ["tidegate_sessions"];

/// The consumers of the pool of an export.
#[derive(Debug)]
pub(crate) struct PoolNeighbours {
    /// The address of the gateway's metrics: a host and a port.
    address: String,
    export: String,
    pool: String,
    answered: BTreeMap<String, f64>,
}

/// Reasons why a pool is not loaded.
#[derive(Debug, Error)]
pub(crate) enum NeighboursError {
    /// No metrics.
    #[error("{address}: cannot read the gateway's metrics: {source}")]
    Unreadable {
        /// The address of the metrics.
        address: String,
        /// The cause.
        source: ServiceError,
    },
    /// Those of another gateway.
    #[error("{address}: these are not the metrics of the gateway that has the export `{export}`")]
    Elsewhere {
        /// The address of the metrics.
        address: String,
        /// The export.
        export: String,
    },
    /// It is in use.
    #[error(
        "pool `{pool}` is in use: `{consumer}` sends requests. Measure when no consumer does, or with \
            --force, \
            which holds up \
         others and measures them, too"
    )]
    InUse {
        /// The pool.
        pool: String,
        /// One of those that use it.
        consumer: String,
    },
    /// A client has the export open whose content would be lost.
    #[error(
        "a client has the export `{export}` open, and would lose its content: end it, or give another \
            export to overwrite"
    )]
    Open {
        /// The export.
        export: String,
    },
    /// It cannot be known.
    #[error(
        "nothing says whether other consumers use this pool: name its gateway's metrics with --metrics \
            ADDRESS:PORT, or measure \
         it all the same with --force"
    )]
    Unknown,
}

impl PoolNeighbours {
    /// Those of an export of the gateway with these metrics.
    pub(crate) fn of(address: &str, export: &str) -> Self {
        Self {
            address: address.to_owned(),
            export: export.to_owned(),
            pool: String::new(),
            answered: BTreeMap::new(),
        }
    }

    /// Finds the pool, and looks at what has been answered so far. Refuses an export that is to be
    /// overwritten while a client has it open.
    pub(crate) fn begin(&mut self, overwrite: bool) -> Result<(), NeighboursError> {
        let page = self.page()?;
        let is_open = |open: Series| open.consumer == self.export && open.value > 0.0;
        if overwrite && series(&page, &OPEN).any(is_open) {
            return Err(NeighboursError::Open { export: self.export.clone() });
        }
        let own = series(&page, &ANSWERED).find(|series| series.consumer == self.export);
        let Some(own) = own else {
            let Self { address, export, .. } = self;
            return Err(NeighboursError::Elsewhere { address: address.clone(), export: export.clone() });
        };
        self.pool = own.pool;
        self.answered = answered(&page, &self.pool);
        Ok(())
    }

    /// Refuses when any consumer has used the pool since the last look, the export itself included.
    pub(crate) fn anybody(&mut self) -> Result<(), NeighboursError> {
        self.look(|_| true)
    }

    /// Refuses when a consumer other than the export has.
    pub(crate) fn others(&mut self) -> Result<(), NeighboursError> {
        let own = self.export.clone();
        self.look(|consumer| consumer != own)
    }

    fn look(&mut self, counts: impl Fn(&str) -> bool) -> Result<(), NeighboursError> {
        let page = self.page()?;
        let now = answered(&page, &self.pool);
        // Anything but the same is use: after a restart of the gateway counters are lower.
        let moved = now.iter().find(|(name, count)| self.answered.get(*name) != Some(*count) && counts(name));
        let moved = moved.map(|(name, _)| name.clone());
        let waiting = || {
            let mut waiting = series(&page, &WAITING).filter(|series| series.pool == self.pool);
            Some(waiting.find(|series| series.value > 0.0 && counts(&series.consumer))?.consumer)
        };
        if let Some(consumer) = moved.or_else(waiting) {
            return Err(NeighboursError::InUse { pool: self.pool.clone(), consumer });
        }
        self.answered = now;
        Ok(())
    }

    fn page(&self) -> Result<String, NeighboursError> {
        get(&self.address, "/metrics")
            .map_err(|source| NeighboursError::Unreadable { address: self.address.clone(), source })
    }
}

/// One value of a consumer.
struct Series {
    pool: String,
    consumer: String,
    value: f64,
}

/// All values with one of these names.
fn series<'a>(page: &'a str, names: &'a [&str]) -> impl Iterator<Item = Series> + 'a {
    page.lines().filter_map(|line| {
        let mut rest = names.iter().find_map(|name| line.strip_prefix(name)?.strip_prefix('{'))?;
        let (mut pool, mut consumer) = (None, None);
        let value = loop {
            let (key, after) = rest.split_once("=\"")?;
            let (value, after) = unquoted(after)?;
            match key {
                "pool" => pool = Some(value),
                "consumer" => consumer = Some(value),
                _ => {}
            }
            match after.strip_prefix(',') {
                Some(more) => rest = more,
                None => break after.strip_prefix('}')?,
            }
        };
        Some(Series { pool: pool?, consumer: consumer?, value: value.trim().parse().ok()? })
    })
}

/// A label's value up to its closing quote, and what comes after that.
fn unquoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut characters = text.char_indices();
    loop {
        match characters.next()? {
            (at, '"') => return Some((value, &text[at + 1..])),
            (_, '\\') => value.push(match characters.next()?.1 {
                'n' => '\n',
                other => other,
            }),
            (_, other) => value.push(other),
        }
    }
}

fn answered(page: &str, pool: &str) -> BTreeMap<String, f64> {
    let mut answered = BTreeMap::new();
    for series in series(page, &ANSWERED).filter(|series| series.pool == pool) {
        *answered.entry(series.consumer).or_default() += series.value;
    }
    answered
}

fn get(address: &str, page: &str) -> Result<String, ServiceError> {
    let client = ServiceClient::at(ServiceAddress::Http(address.to_owned()));
    Ok(client.with_patience(PATIENCE).with_largest(LARGEST).get(page)?.body)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::thread;
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_page_that_comes_byte_by_byte_is_not_waited_for() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            // An answer before the question would be no HTTP.
            assert!(stream.read(&mut [0; 1_024]).unwrap() > 0);
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
            // Until its reader is gone.
            while stream.write_all(b"x").is_ok() {
                thread::sleep(Duration::from_millis(20));
            }
        });
        let began = Instant::now();
        let error = get(&address, "/metrics").unwrap_err();
        assert!(matches!(error, ServiceError::Silent { .. }), "{error}");
        assert!(began.elapsed() >= PATIENCE && began.elapsed() < 5 * PATIENCE, "{:?}", began.elapsed());
        server.join().unwrap();
    }

    #[test]
    fn what_a_consumer_did_is_the_sum_of_what_it_did() {
        let page = "# TYPE tidegate_requests counter\n\
                    tidegate_requests_total{pool=\"disk\",consumer=\"w1\",op=\"read\"} 7\n\
                    tidegate_requests_total{pool=\"disk\",consumer=\"w1\",op=\"flush\"} 2\n\
                    tidegate_requests_total{pool=\"other\",consumer=\"w3\",op=\"read\"} 9\n\
                    tidegate_errors_total{pool=\"disk\",consumer=\"w1\",kind=\"io\"} 1\n\
                    tidegate_errors_total{pool=\"disk\",consumer=\"w2\",kind=\"io\"} 0\n\
                    tidegate_in_flight_requests{pool=\"disk\",consumer=\"a \\\"b\\\", c\"} 3\n# EOF\n";
        let counts = answered(page, "disk");
        assert_eq!(counts, BTreeMap::from([("w1".to_owned(), 10.0), ("w2".to_owned(), 0.0)]));
        assert!(series(page, &WAITING).any(|series| series.consumer == "a \"b\", c" && series.value > 2.0));
    }
}
