//! Errors that requests were answered with, as the document has them.

use serde::{Deserialize, Serialize};
use tidegate_control::IoErrorKind;

/// Errors go on if the last one is younger than this, in seconds.
const GOES_ON: f64 = 60.0;

/// Requests that were answered with an error since the start.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ErrorsStatus {
    /// Errors of the storage and of the service, by their kinds. Kinds without any are left out.
    pub kinds: Vec<ErrorCount>,
    /// Age of the first error after which there was no minute without one. `null`: there was no error.
    pub since_seconds: Option<f64>,
    /// Age of the last error. `null`: there was none.
    pub last_seconds: Option<f64>,
    /// Requests refused because their client may not make them, such as a write to a read-only export.
    pub mistakes: u64,
}

/// The number of errors of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorCount {
    /// The kind.
    pub kind: IoErrorKind,
    /// The number of requests.
    pub count: u64,
}

impl ErrorsStatus {
    /// Returns true if there was an error within the last minute.
    #[must_use]
    pub fn go_on(&self) -> bool {
        self.last_seconds.is_some_and(|last| last < GOES_ON)
    }

    /// Adds those of another consumer.
    #[must_use]
    pub fn and(mut self, other: &Self) -> Self {
        for &ErrorCount { kind, count } in &other.kinds {
            match self.kinds.iter_mut().find(|known| known.kind == kind) {
                Some(known) => known.count += count,
                None => self.kinds.push(ErrorCount { kind, count }),
            }
        }
        // Those of long ago do not make those of now older.
        self.since_seconds = match (self.go_on(), other.go_on()) {
            (true, false) => self.since_seconds,
            (false, true) => other.since_seconds,
            _ => self.since_seconds.into_iter().chain(other.since_seconds).reduce(f64::max),
        };
        self.last_seconds = self.last_seconds.into_iter().chain(other.last_seconds).reduce(f64::min);
        self.mistakes += other.mistakes;
        self
    }

    /// Returns the numbers of each kind, in words. Empty: none.
    #[must_use]
    pub fn kinds_text(&self) -> String {
        let each = self.kinds.iter().map(|ErrorCount { kind, count }| format!("{count} {}", kind.words()));
        each.collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors(kind: IoErrorKind, count: u64, since: f64, last: f64) -> ErrorsStatus {
        ErrorsStatus {
            kinds: vec![ErrorCount { kind, count }],
            since_seconds: Some(since),
            last_seconds: Some(last),
            mistakes: 1,
        }
    }

    #[test]
    fn errors_of_long_ago_do_not_make_those_of_now_older() {
        let old = errors(IoErrorKind::Io, 3, 7_200.0, 7_100.0);
        let now = errors(IoErrorKind::NoSpace, 5, 30.0, 1.0);
        let both = old.and(&now);
        assert_eq!((both.since_seconds, both.last_seconds, both.mistakes), (Some(30.0), Some(1.0), 2));
        assert_eq!(both.kinds_text(), "3 input/output error, 5 no space left");
        let longer = both.and(&errors(IoErrorKind::NoSpace, 1, 90.0, 2.0));
        assert_eq!((longer.since_seconds, longer.last_seconds), (Some(90.0), Some(1.0)));
        assert_eq!(longer.kinds[1].count, 6);
    }
}
