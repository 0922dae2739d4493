//! The watch over a guest's memory that keeps the worker waiting.
//!
//! A front end can give memory back at any time. A thread that touches a page of it meanwhile waits for the kernel,
//! about 0.35 s for each GiB, and nothing tells before that a page is such a one. So a disk whose memory has made the
//! worker wait rests for a multiple of that time: nothing of its memory is touched, and its guest waits. A thread of
//! its own for each disk would not wait for others, and cost each request two wake-ups.

use std::time::Duration;

use tidegate_nbd::Errno;
use tidegate_units::Instant;
use tidegate_vhost::ThreadTime;

use crate::request::ClientRequest;

/// The least time that counts. Chosen: above what copying the data of a usual request takes.
const SLOW: Duration = Duration::from_millis(1);

/// The length of a rest, in waits, up to the longest. Chosen: short waits take a hundredth of the pool's time, so that
/// the 99th percentile of others does not show them.
const REST: u32 = 99;

/// The longest first rest, and the longest one soon after another. Chosen: a balloon that gives back many GiB once
/// stops its guest for some seconds, and one that does so all the time does not stop it for longer than drivers wait.
const LONGEST: [Duration; 2] = [Duration::from_secs(5), Duration::from_secs(25)];

/// The time for which a disk is watched after a slow use of its memory, or after a rest. Whether the thread has waited
/// is asked only then, because that takes system calls.
const WATCHED: Duration = Duration::from_secs(60);

/// A result that waits to be put into its ring.
pub(crate) type KeptResult = (ClientRequest, Result<(), Errno>);

/// The watch over the memory of a disk.
#[derive(Debug, Default)]
pub(crate) struct GuestMemoryWatch {
    watched_until: Option<Instant>,
    rests_until: Option<Instant>,
    /// The rests one soon after another.
    rests_in_row: usize,
    /// The end of the last rest.
    last_rest: Option<Instant>,
    results: Vec<KeptResult>,
}

/// A use of a guest's memory that has begun.
#[derive(Debug)]
pub(crate) struct MemoryUse {
    began: Instant,
    /// The times of the thread by then, if the disk is watched.
    thread: Option<ThreadTime>,
}

impl MemoryUse {
    pub(crate) fn began(&self) -> Instant {
        self.began
    }
}

impl GuestMemoryWatch {
    pub(crate) fn begin(&self, now: Instant) -> MemoryUse {
        let is_watched = self.watched_until.is_some_and(|until| now < until);
        MemoryUse { began: now, thread: is_watched.then(ThreadTime::now).flatten() }
    }

    /// Ends a use. Returns true if the first rest of the disk begins.
    pub(crate) fn end(&mut self, used: &MemoryUse, now: Instant) -> bool {
        let time = now.saturating_since(used.began);
        let waited = || Some(ThreadTime::now()?.waited(used.thread.as_ref()?, time));
        time >= SLOW && self.was_slow(waited().unwrap_or_default(), now)
    }

    fn was_slow(&mut self, waited: Duration, now: Instant) -> bool {
        if waited < SLOW {
            let until = now + WATCHED;
            self.watched_until = Some(self.watched_until.map_or(until, |before| before.max(until)));
            return false;
        }
        if self.last_rest.is_none_or(|ended| ended + WATCHED <= now) {
            self.rests_in_row = 0;
        }
        let longest = LONGEST[self.rests_in_row.min(LONGEST.len() - 1)];
        let until = now + (REST * waited).min(longest);
        self.rests_in_row += 1;
        (self.rests_until, self.watched_until) = (Some(until), Some(until + WATCHED));
        self.last_rest.replace(until).is_none()
    }

    /// Returns true if nothing may be touched now.
    pub(crate) fn rests(&self) -> bool {
        self.rests_until.is_some()
    }

    /// Returns true if it rests and the time for that is over.
    pub(crate) fn has_rested_until(&self, now: Instant) -> bool {
        self.rests_until.is_some_and(|until| until <= now)
    }

    /// Keeps the result of a request until the end of the rest.
    pub(crate) fn keep(&mut self, result: KeptResult) {
        self.results.push(result);
    }

    /// Ends the rest. Returns the results that were kept.
    pub(crate) fn wake(&mut self) -> Vec<KeptResult> {
        self.rests_until = None;
        std::mem::take(&mut self.results)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn a_disk_rests_only_after_waits_and_much_longer_than_these() {
        let mut watch = GuestMemoryWatch::default();
        assert!(!watch.was_slow(Duration::ZERO, at(300)), "it worked, or was without a processor");
        assert!(!watch.rests() && watch.watched_until == Some(at(60_300)));
        assert!(watch.was_slow(Duration::from_millis(30), at(1000)), "it is told of");
        assert!(!watch.has_rested_until(at(3_969)) && watch.has_rested_until(at(3_970)));
        assert_eq!(watch.watched_until, Some(at(63_970)), "it is watched when it wakes");
        watch.wake();
        assert!(!watch.rests() && !watch.was_slow(Duration::from_millis(30), at(5000)), "it is told of once");
    }

    #[test]
    fn a_rest_is_bounded_and_longer_soon_after_another() {
        let mut watch = GuestMemoryWatch::default();
        watch.was_slow(Duration::from_secs(6), at(0));
        assert_eq!(watch.rests_until, Some(at(5_000)));
        watch.was_slow(Duration::from_secs(6), at(10_000));
        assert_eq!(watch.rests_until, Some(at(35_000)));
        watch.was_slow(Duration::from_secs(6), at(200_000));
        assert_eq!(watch.rests_until, Some(at(205_000)), "not soon after");
    }
}
