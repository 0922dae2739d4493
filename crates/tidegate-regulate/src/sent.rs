//! Requests that are counted when they are sent, beside a device that counts them when they complete.

use tidegate_control::OperationTotals;
use tidegate_units::{Bytes, Instant, Latency};

use crate::load::{DeviceLoad, SentLoad};

/// The requests that the known consumers have sent and the device has not completed. Without them, the
/// difference of both counts would show load of others that is not there.
#[derive(Debug, Clone, Default)]
pub(crate) struct SentRequests {
    reads: DirectionLead,
    writes: DirectionLead,
    /// The time since which requests are in flight without one having completed.
    stalled_since: Option<Instant>,
}

/// The requests of one direction that were sent and are not completed.
#[derive(Debug, Clone, Copy, Default)]
struct DirectionLead(u64);

impl SentRequests {
    /// Takes what the consumers sent and the device completed since the last call. Returns what others
    /// completed. If `is_new`, some consumers were not known before: some of the completed requests may have
    /// been theirs, and none is taken for others'.
    pub(crate) fn of_others(
        &mut self,
        now: Instant,
        sent: &SentLoad,
        is_new: bool,
        device: &DeviceLoad,
    ) -> SentLoad {
        let stalled = device.in_flight > 0 && device.reads.count.saturating_add(device.writes.count) == 0;
        self.stalled_since = stalled.then(|| self.stalled_since.unwrap_or(now));
        if is_new {
            (self.reads, self.writes) = (DirectionLead(u64::MAX), DirectionLead(u64::MAX));
        }
        // The device may merge and split what consumers send: the rest is about what others did.
        let rest =
            |lead: &mut DirectionLead, completed: &OperationTotals, sent: &OperationTotals| OperationTotals {
                count: lead.of_others(completed.count, sent.count, device.in_flight),
                bytes: Bytes::new(completed.bytes.get().saturating_sub(sent.bytes.get())),
                ..OperationTotals::default()
            };
        SentLoad {
            reads: rest(&mut self.reads, &device.reads, &sent.reads),
            writes: rest(&mut self.writes, &device.writes, &sent.writes),
        }
    }

    /// Takes note that nothing is known of the device.
    pub(crate) const fn device_unknown(&mut self) {
        self.stalled_since = None;
    }

    /// Returns the time that requests have been in flight without one completing; `None` if they complete,
    /// or if there are none.
    pub(crate) fn stalled_for(&self, now: Instant) -> Option<Latency> {
        self.stalled_since.map(|since| now.latency_since(since))
    }
}

impl DirectionLead {
    /// Returns the number of completed requests that came from others, after the known consumers have sent
    /// `sent` requests.
    fn of_others(&mut self, completed: u64, sent: u64, in_flight: u64) -> u64 {
        let known = self.0.saturating_add(sent);
        // A request that is neither completed nor in flight was merged into another one.
        self.0 = known.saturating_sub(completed).min(in_flight);
        completed.saturating_sub(known)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_on_their_way_are_not_those_of_others() {
        let mut lead = DirectionLead::default();
        // 40 were sent, of which 30 are in flight; then these complete while 10 more are sent.
        assert_eq!(lead.of_others(10, 40, 30), 0);
        assert_eq!(lead.of_others(40, 10, 0), 0);
        assert_eq!(lead.of_others(7, 5, 0), 2);
        // Two were merged into one: the one that never completes by itself excuses no later request.
        assert_eq!(lead.of_others(5, 10, 0), 0);
        assert_eq!(lead.of_others(5, 0, 0), 5);
    }

    #[test]
    fn a_device_stalls_from_the_first_sample_without_a_completion() {
        let mut sent = SentRequests::default();
        let device = |completed, in_flight| DeviceLoad {
            reads: OperationTotals { count: completed, ..OperationTotals::default() },
            in_flight,
            ..DeviceLoad::default()
        };
        let at = |millis: u64| Instant::from_nanos(millis * 1_000_000);
        let mut stalled = |now, completed, in_flight| {
            sent.of_others(at(now), &SentLoad::default(), false, &device(completed, in_flight));
            sent.stalled_for(at(now))
        };
        assert_eq!(stalled(100, 5, 2), None);
        assert_eq!(stalled(200, 0, 2), Some(Latency::ZERO));
        assert_eq!(stalled(300, 0, 2), Some(Latency::from_millis(100)));
        assert_eq!(stalled(250, 0, 2), Some(Latency::from_millis(50)), "the clock went back");
        assert_eq!(stalled(400, 0, 0), None);
    }
}
