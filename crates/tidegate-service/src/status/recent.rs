//! The recent load: counters now, less what they were some seconds ago.

use std::collections::BTreeMap;
use std::time::Duration;

use tidegate_units::{Bytes, Instant, Latency};

use super::LoadFigures;

/// Counters are kept this often, and compared with those of once to twice as long ago: long enough for a disk
/// to do something.
const BETWEEN: Duration = Duration::from_secs(2);

/// In less time chance decides.
const LEAST: Duration = Duration::from_millis(200);

/// The requests of one consumer since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ConsumerTotal {
    /// The number of completed requests.
    pub count: u64,
    /// The time that they took, added up.
    pub sum: Latency,
    /// Requests whose time is known as clients see it, and that time, added up.
    pub client: (u64, Latency),
    /// The bytes that were read.
    pub read: Bytes,
    /// The bytes that were written.
    pub written: Bytes,
    /// Completed flushes, and the time that they took, added up.
    pub flushes: (u64, Latency),
}

impl ConsumerTotal {
    /// Returns the requests since an earlier moment. Counters that began anew count from nothing.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let bytes = |now: Bytes, then: Bytes| now.get().checked_sub(then.get()).map(Bytes::new);
        let latency = |now: Latency, then: Latency| now.as_nanos().checked_sub(then.as_nanos());
        let timed = |now: (u64, Latency), then: (u64, Latency)| {
            Some((now.0.checked_sub(then.0)?, Latency::from_nanos(latency(now.1, then.1)?)))
        };
        let difference = || {
            Some(Self {
                count: self.count.checked_sub(earlier.count)?,
                sum: Latency::from_nanos(latency(self.sum, earlier.sum)?),
                client: timed(self.client, earlier.client)?,
                read: bytes(self.read, earlier.read)?,
                written: bytes(self.written, earlier.written)?,
                flushes: timed(self.flushes, earlier.flushes)?,
            })
        };
        difference().unwrap_or(*self)
    }
}

#[derive(Debug, Clone)]
struct Mark<K> {
    at: Instant,
    totals: BTreeMap<K, ConsumerTotal>,
}

/// The counters of at most two moments.
#[derive(Debug, Clone)]
pub struct RecentCounters<K> {
    before: Option<Mark<K>>,
    last: Option<Mark<K>>,
}

impl<K> Default for RecentCounters<K> {
    fn default() -> Self {
        Self { before: None, last: None }
    }
}

impl<K: Ord> RecentCounters<K> {
    /// Returns true if it is time to [`note`](Self::note).
    pub fn is_due(&self, now: Instant) -> bool {
        self.last.as_ref().is_none_or(|last| now.saturating_since(last.at) >= BETWEEN)
    }

    /// Keeps the counters of now.
    pub fn note(&mut self, at: Instant, totals: BTreeMap<K, ConsumerTotal>) {
        self.before = self.last.take();
        self.last = Some(Mark { at, totals });
    }

    /// Returns the load since the mark. `None`: not known. Either there is no mark that is old enough, or the
    /// counters began anew meanwhile.
    pub fn since(&self, now: Instant, who: &K, total: ConsumerTotal) -> Option<LoadFigures> {
        let mark = self.before.as_ref().or(self.last.as_ref())?;
        let elapsed = now.saturating_since(mark.at);
        let then = mark.totals.get(who).filter(|then| then.count <= total.count && elapsed >= LEAST)?;
        let count = total.count - then.count;
        let seconds = total.sum.saturating_sub(then.sum).as_secs_f64();
        let since = |now: (u64, Latency), then: (u64, Latency)| {
            (now.0.saturating_sub(then.0), now.1.saturating_sub(then.1).as_secs_f64())
        };
        let (answered, waited) = since(total.client, then.client);
        let (flushes, flushed) = since(total.flushes, then.flushes);
        let per_second =
            |now: Bytes, then: Bytes| now.get().saturating_sub(then.get()) as f64 / elapsed.as_secs_f64();
        Some(LoadFigures {
            seconds: elapsed.as_secs_f64(),
            iops: count as f64 / elapsed.as_secs_f64(),
            response_time_seconds: (count > 0).then(|| seconds / count as f64),
            client_seconds: (answered > 0).then(|| waited / answered as f64),
            read_bytes_per_second: per_second(total.read, then.read),
            written_bytes_per_second: per_second(total.written, then.written),
            flushes_per_second: flushes as f64 / elapsed.as_secs_f64(),
            flush_seconds: (flushes > 0).then(|| flushed / flushes as f64),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    fn total(count: u64, millis: u64) -> ConsumerTotal {
        ConsumerTotal {
            count,
            sum: Latency::from_millis(millis),
            client: (count, Latency::from_millis(3 * millis)),
            read: Bytes::new(4_096 * count),
            written: Bytes::new(512 * count),
            flushes: (2 * count, Latency::from_millis(8 * count)),
        }
    }

    #[test]
    fn what_was_done_is_that_of_the_last_seconds_and_unknown_before() {
        let mut recent = RecentCounters::default();
        assert!(recent.is_due(at(0)));
        assert_eq!(recent.since(at(0), &"a", total(5, 5)), None);
        for (millis, count) in [(0, 0), (2_000, 100), (4_000, 400)] {
            recent.note(at(millis), BTreeMap::from([("a", total(count, 10 * count))]));
        }
        assert!(!recent.is_due(at(5_999)) && recent.is_due(at(6_000)));
        let did = recent.since(at(5_000), &"a", total(700, 7_000)).unwrap();
        let expected = LoadFigures {
            seconds: 3.0,
            iops: 200.0,
            response_time_seconds: Some(0.01),
            client_seconds: Some(0.03),
            read_bytes_per_second: 819_200.0,
            written_bytes_per_second: 102_400.0,
            flushes_per_second: 400.0,
            flush_seconds: Some(0.004),
        };
        assert_eq!(did, expected);
        assert_eq!(recent.since(at(5_000), &"came since", total(9, 9)), None);
    }

    #[test]
    fn nothing_done_has_no_response_time() {
        let mut recent = RecentCounters::default();
        recent.note(at(0), BTreeMap::from([("a", total(7, 70))]));
        assert_eq!(recent.since(at(199), &"a", total(7, 70)), None, "too soon");
        let did = recent.since(at(1_000), &"a", total(7, 70)).unwrap();
        assert_eq!(did, LoadFigures { seconds: 1.0, ..LoadFigures::default() });
    }

    #[test]
    fn counters_that_begin_anew_say_nothing() {
        let mut recent = RecentCounters::default();
        recent.note(at(0), BTreeMap::from([("a", total(7, 70))]));
        assert_eq!(recent.since(at(1_000), &"a", total(3, 30)), None);
    }
}
