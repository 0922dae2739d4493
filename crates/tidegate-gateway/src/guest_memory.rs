//! The watch over a guest's memory that keeps the worker waiting.
//!
//! A front end can give memory back at any time. A thread that touches a page of it meanwhile waits for the kernel,
//! about 0.35 s for each GiB, and nothing tells before that a page is such a one. So a disk whose memory has made the
//! worker wait rests for a multiple of that time: nothing of its memory is touched, and its guest waits. A thread of
//! its own for each disk would not wait for others, and cost each request two wake-ups.

use std::time::Duration;

use tidegate_nbd::Errno;
use tidegate_units::Instant;
use tidegate_vhost::waits_of_this_thread;

use crate::request::ClientRequest;

/// The least time that counts. Chosen: above what copying the data of a usual request takes.
const SLOW: Duration = Duration::from_millis(1);

/// The length of a rest, in waits. Chosen: they take at most a hundredth of the pool's time, so that the 99th percentile
/// of others does not show them.
const REST: u32 = 99;

/// The time for which a disk is watched after a slow use of its memory. Whether the thread has waited is asked only
/// then, because that is a system call.
const WATCHED: Duration = Duration::from_secs(60);

/// A result that waits to be put into its ring.
pub(crate) type KeptResult = (ClientRequest, Result<(), Errno>);

/// The watch over the memory of a disk.
#[derive(Debug, Default)]
pub(crate) struct GuestMemoryWatch {
    watched_until: Option<Instant>,
    rests_until: Option<Instant>,
    /// It has rested before.
    has_rested: bool,
    results: Vec<KeptResult>,
}

/// A use of a guest's memory that has begun.
#[derive(Debug)]
pub(crate) struct MemoryUse {
    began: Instant,
    /// The waits of the thread by then, if the disk is watched.
    waits: Option<u64>,
}

impl MemoryUse {
    pub(crate) fn began(&self) -> Instant {
        self.began
    }
}

impl GuestMemoryWatch {
    pub(crate) fn begin(&self, now: Instant) -> MemoryUse {
        let is_watched = self.watched_until.is_some_and(|until| now < until);
        MemoryUse { began: now, waits: is_watched.then(waits_of_this_thread) }
    }

    /// Ends a use. Returns true if the first rest of the disk begins.
    pub(crate) fn end(&mut self, used: &MemoryUse, now: Instant) -> bool {
        let time = now.saturating_since(used.began);
        // A thread that was without a processor has not waited for memory.
        let has_waited = || used.waits.is_some_and(|before| waits_of_this_thread() > before);
        time >= SLOW && self.was_slow(time, has_waited(), now)
    }

    fn was_slow(&mut self, time: Duration, has_waited: bool, now: Instant) -> bool {
        self.watched_until = Some(now + WATCHED);
        if has_waited {
            self.rests_until = Some(now + REST * time);
        }
        has_waited && !std::mem::replace(&mut self.has_rested, true)
    }

    /// Returns true if nothing may be touched now.
    pub(crate) fn rests(&self) -> bool {
        self.rests_until.is_some()
    }

    /// Keeps the result of a request until the end of the rest.
    pub(crate) fn keep(&mut self, result: KeptResult) {
        self.results.push(result);
    }

    /// Ends the rest if its time is over. Returns the results that were kept.
    pub(crate) fn wake(&mut self, now: Instant) -> Option<Vec<KeptResult>> {
        self.rests_until.take_if(|until| *until <= now)?;
        Some(self.take_results())
    }

    /// Returns the results that were kept.
    pub(crate) fn take_results(&mut self) -> Vec<KeptResult> {
        std::mem::take(&mut self.results)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_rests_only_after_waits_and_much_longer_than_these() {
        let at = |millis: u64| Instant::from_nanos(millis * 1_000_000);
        let mut watch = GuestMemoryWatch::default();
        assert!(!watch.was_slow(Duration::from_millis(300), false, at(300)));
        assert!(!watch.rests() && watch.begin(at(60_299)).waits.is_some());
        assert!(watch.begin(at(60_300)).waits.is_none());
        assert!(watch.was_slow(Duration::from_millis(300), true, at(1000)), "it is told of");
        assert!(watch.rests() && watch.wake(at(30_699)).is_none());
        assert!(watch.wake(at(30_700)).is_some() && !watch.rests());
    }
}
