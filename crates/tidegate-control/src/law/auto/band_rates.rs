//! Bands beside the window: rates that divide the throughput which the window gives.
//!
//! The window finds out how much there is, and rates carry out the division. If their sum were above what the
//! window gives, the window would divide by shares; if it were far below, nothing would be known of what more
//! there is. So the operating point follows the throughput until the window is nearly full.

use serde::{Deserialize, Serialize};
use tidegate_units::{Iops, Latency, Window};

use crate::document::observation::ConsumerObservation;
use crate::document::point_decision::{PointAllotment, PointDecision};
use crate::estimate::signal_samples::throttled;
use crate::law::bands::{self, BandClaim};
use crate::law::control_law::ControlInterval;

/// The part of the window that the released requests are to fill.
const FULL: f64 = 0.65;

/// Seconds in which the memory of throughput and outstanding requests falls to 1/e.
const MEMORY: f64 = 1.0;

/// The part of a deviation in the logarithm of the operating point that a second corrects, and the most by
/// which it is away from the throughput.
const GAIN: f64 = 1.0;
const MOST: f64 = 1.5;

/// The rate that each consumer keeps whatever the bands say, in requests per second, as of the PID.
const FLOOR: Iops = Iops::new(2.0);

/// The operating point, and the load that it follows.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(super) struct BandRates {
    /// Requests per second. `None`: nothing is limited.
    point: Option<f64>,
    /// Completed requests, their latencies in all, and seconds, each with that memory.
    done: f64,
    busy: f64,
    seconds: f64,
}

/// Requests of a consumer wait for its rate or for the window.
pub(super) fn is_held(consumer: &ConsumerObservation) -> bool {
    consumer.queued > 0 || consumer.short_of_tokens > Latency::ZERO
}

fn completed(consumer: &ConsumerObservation) -> f64 {
    consumer.reads.count as f64 + consumer.writes.count as f64
}

impl BandRates {
    /// Divides the throughput under this host's window. `None` where there are no bands.
    pub(super) fn divide(
        &mut self,
        interval: &ControlInterval<'_>,
        window: Window,
        is_open: bool,
    ) -> Option<PointDecision> {
        let bands = interval.bands?;
        let seconds = interval.elapsed.as_secs_f64();
        let consumers = || throttled(interval.consumers);
        let latency = |consumer: &ConsumerObservation| {
            consumer.reads.total_latency.as_secs_f64() + consumer.writes.total_latency.as_secs_f64()
        };
        let remaining = (-seconds / MEMORY).exp();
        self.done = self.done * remaining + consumers().map(completed).sum::<f64>();
        self.busy = self.busy * remaining + consumers().map(latency).sum::<f64>();
        self.seconds = self.seconds * remaining + seconds;
        let applied = self.done / self.seconds.max(f64::MIN_POSITIVE);
        let fill = self.busy / self.seconds.max(f64::MIN_POSITIVE) / window.get().max(f64::MIN_POSITIVE);
        let holds = consumers().any(is_held);
        self.point = match self.point {
            _ if is_open => None,
            // Nothing is known yet of less than what is done.
            None => (holds && applied > 0.0).then_some(applied),
            Some(point) if holds => {
                let change = GAIN * seconds.min(1.0) * (FULL / fill.max(1e-3)).ln().clamp(-1.0, 1.0);
                Some((point * change.exp()).clamp(applied / MOST, applied * MOST))
            }
            Some(point) => {
                let point = point / interval.remaining.max(1e-3);
                (point < PointDecision::UNBOUNDED.per_second()).then_some(point)
            }
        };
        let limits = self.point.is_some();
        let operating_point = self.point.map_or(PointDecision::UNBOUNDED, Iops::new);
        let entitlements: Vec<BandClaim<'_>> = consumers().map(BandClaim::entitlement).collect();
        let used = (seconds > 0.0).then(|| {
            let used = |consumer| {
                BandClaim::used(consumer, Iops::new(completed(consumer) / seconds), is_held(consumer))
            };
            consumers().map(used).collect()
        });
        let parts = bands::divide(Some(bands), operating_point, &entitlements, used);
        let allotments = consumers().zip(parts).map(|(consumer, (entitled, lent))| PointAllotment {
            name: consumer.name.clone(),
            entitled,
            rate: entitled.max(lent).max(FLOOR),
            // Without a limit, requests wait for the depth of the queue.
            held: limits && is_held(consumer),
        });
        Some(PointDecision {
            operating_point,
            applied: Iops::new(applied),
            position: Some(bands.position(operating_point)),
            decided_by: None,
            host: None,
            doubted: false,
            regulators: Vec::new(),
            allotments: allotments.collect(),
            window: Some(window),
        })
    }
}
