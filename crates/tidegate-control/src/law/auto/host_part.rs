//! The part of the window of all hosts that is one host's.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate_units::Window;

use crate::document::mean_outstanding::MeanOutstanding;
use crate::document::observation::ConsumerObservation;
use crate::estimate::signal_samples::throttled;
use crate::law::window::window_law::active_share;

/// Seconds in which the activity of a host that stops falls to 1/e. A part measured from a few requests
/// scatters; the greatest of some seconds does not fall by chance.
const ACTIVITY: f64 = 2.0;

/// Seconds in which a host's part of the window grows by e at most. Hosts that are lost drop out one by one:
/// the last one heard must not take the parts of all.
const GROWS: f64 = 2.0;

/// The active shares of this host's consumers.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct HostPart {
    active: f64,
}

impl HostPart {
    /// Takes note of an interval, in which the host's window was `window`.
    pub(super) fn observe(&mut self, window: Window, consumers: &[ConsumerObservation], interval: Duration) {
        let seconds = interval.as_secs_f64();
        // A consumer whose requests wait would fill more than its part.
        let demand = throttled(consumers).map(|each| {
            (each.shares, MeanOutstanding::new(each.mean_outstanding.get() + f64::from(each.queued)))
        });
        let shares: f64 = demand.clone().map(|(shares, _)| shares.as_f64()).sum();
        let active = active_share(window, demand) * shares;
        self.active = active.max(self.active * (-seconds / ACTIVITY).exp()).min(shares);
    }

    /// This host's part of the window of all hosts, given the active shares of all.
    pub(super) fn of_all(&self, active_shares: f64, hosts: f64) -> f64 {
        if active_shares > 0.0 && self.active > 0.0 {
            (self.active / active_shares).clamp(1e-6, 1.0)
        } else {
            1.0 / hosts
        }
    }

    /// The most that a part may be after so many seconds.
    pub(super) fn grown(part: f64, seconds: f64) -> f64 {
        part * (seconds / GROWS).exp()
    }

    /// The number that a host's part of the window is in proportion to. It counts requests, of whatever size:
    /// counted by cost, hosts with large requests had too few of them to be measured by.
    pub(super) fn active_shares(&self) -> f64 {
        self.active
    }
}

#[cfg(test)]
mod tests {
    use tidegate_units::{ConsumerName, Shares};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn consumer(outstanding: f64, queued: u32) -> ConsumerObservation {
        let name = ConsumerName::new("a").unwrap();
        let mut consumer = ConsumerObservation::idle(name, Shares::new(300).unwrap(), false);
        consumer.mean_outstanding = MeanOutstanding::new(outstanding);
        consumer.queued = queued;
        consumer
    }

    #[test]
    fn a_consumer_with_waiting_requests_is_active_however_few_complete() {
        let mut part = HostPart::default();
        part.observe(Window::new(2.0), &[consumer(0.1, 7)], SECOND);
        assert!((part.active_shares() - 300.0).abs() < 1e-9);
    }

    #[test]
    fn a_host_that_stops_loses_its_part_within_seconds() {
        let mut part = HostPart::default();
        part.observe(Window::new(2.0), &[consumer(2.0, 7)], SECOND);
        let mut idle = || {
            part.observe(Window::new(2.0), &[consumer(0.0, 0)], SECOND);
            part.active_shares()
        };
        assert!(idle() > 150.0);
        assert!((0..9).map(|_| idle()).last().unwrap() < 3.0);
    }
}
