//! Spacing: dispatches under the window are kept apart, so that delayed requests do not go in clumps.
//!
//! Clients with the same delay return together if they started together. Such a clump costs all clients
//! latency without a gain in throughput. Network stacks space packets for the same reason (A. Aggarwal, S.
//! Savage, T. Anderson, *Understanding the Performance of TCP Pacing*, INFOCOM 2000).

use tidegate_units::{Instant, Latency};

/// The longest spacing: a scheduler slows down and never stops the storage.
const LONGEST: Latency = Latency::from_millis(1_000);

/// The least time between two dispatches. Times are the scheduler's own: they never go back.
#[derive(Debug, Default)]
pub(crate) struct DispatchSpacing {
    least: Latency,
    last: Option<Instant>,
}

impl DispatchSpacing {
    /// A change acts on the next dispatch already.
    pub(crate) fn set(&mut self, least: Latency) {
        self.least = least.min(LONGEST);
    }

    /// Returns the time at which the next request may go.
    pub(crate) fn open_at(&self, now: Instant) -> Instant {
        self.last.map_or(now, |last| (last + self.least).max(now))
    }

    pub(crate) fn dispatched(&mut self, now: Instant) {
        self.last = Some(now);
    }
}
