//! Bands beside the window: rates that divide the throughput which the window gives.
//!
//! The window finds out how much there is, and rates carry out the division. If their sum were above what the
//! window gives, the window would divide by shares; if it were far below, nothing would be known of what more
//! there is. So the operating point follows the throughput until the window is nearly full.
//!
//! Hosts that share the resource tell each other their throughput, the claims of their consumers and, while
//! these wait, their operating points. Each host goes on from the median of these points, by how full its own
//! part of the window is: no other host's count of requests is believed.

use serde::{Deserialize, Serialize};
use tidegate_units::{Iops, Latency, Window};

use crate::document::observation::ConsumerObservation;
use crate::document::point_decision::{PointAllotment, PointDecision};
use crate::document::point_report::{PeerPoint, PointReport, PointWish};
use crate::estimate::signal_samples::throttled;
use crate::law::bands::{self, BandClaim};
use crate::law::claims::{self, ClaimPart, HostClaims};
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

/// The least part of the window that is one host's.
const LEAST_PART: f64 = 1e-6;

/// The operating point, and the load of all hosts that it follows.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct BandRates {
    /// Requests per second of all hosts. `None`: nothing is limited.
    point: Option<f64>,
    /// Completed requests of all hosts, the latencies of this host's in all, and seconds, with that memory.
    done: f64,
    busy: f64,
    seconds: f64,
    /// The part of the operating point that is this host's, where there are others.
    part: Option<f64>,
    told: Option<PointReport>,
}

/// The windows that bands divide the throughput of.
#[derive(Debug, Clone, Copy)]
pub(super) struct DividedWindow {
    /// This host's part.
    pub(super) own: Window,
    /// The window throttles nothing.
    pub(super) is_open: bool,
}

/// Requests of a consumer wait for its rate or for the window.
pub(super) fn is_held(consumer: &ConsumerObservation) -> bool {
    consumer.queued > 0 || consumer.short_of_tokens > Latency::ZERO
}

fn completed(consumer: &ConsumerObservation) -> f64 {
    consumer.reads.count as f64 + consumer.writes.count as f64
}

fn latencies(consumer: &ConsumerObservation) -> f64 {
    consumer.reads.total_latency.as_secs_f64() + consumer.writes.total_latency.as_secs_f64()
}

/// Consumers of other hosts would use more than they have.
fn wait_elsewhere(peers: &[PeerPoint]) -> bool {
    claims::elsewhere(peers, ClaimPart::Used).any(|claim| claim.most.is_none())
}

impl BandRates {
    /// Divides the throughput under the window of all hosts. `None` where there are no bands.
    pub(super) fn divide(
        &mut self,
        interval: &ControlInterval<'_>,
        window: DividedWindow,
    ) -> Option<PointDecision> {
        let bands = interval.bands?;
        let peers = interval.peers;
        let seconds = interval.elapsed.as_secs_f64();
        let consumers = || throttled(interval.consumers);
        let (done, busy) = (consumers().map(completed).sum::<f64>(), consumers().map(latencies).sum::<f64>());
        self.remember((done, busy), peers, seconds);
        let applied = self.done / self.seconds.max(f64::MIN_POSITIVE);
        let waits = consumers().any(is_held);
        self.point = if window.is_open { None } else { self.follow(interval, applied, window.own, waits) };
        let operating_point = self.point.map_or(PointDecision::UNBOUNDED, Iops::new);
        let own = || consumers().map(BandClaim::entitlement);
        let entitlements: Vec<BandClaim<'_>> =
            own().chain(claims::elsewhere(peers, ClaimPart::Entitled)).collect();
        let used =
            |consumer| BandClaim::used(consumer, Iops::new(completed(consumer) / seconds), is_held(consumer));
        let lends = (seconds > 0.0)
            .then(|| consumers().map(used).chain(claims::elsewhere(peers, ClaimPart::Used)).collect());
        let parts = bands::divide(Some(bands), operating_point, &entitlements, lends);
        let limits = self.point.is_some();
        let allotments: Vec<PointAllotment> = consumers()
            .zip(parts)
            .map(|(consumer, (entitled, lent))| PointAllotment {
                name: consumer.name.clone(),
                entitled,
                rate: entitled.max(lent).max(FLOOR),
                // Without a limit, requests wait for the depth of the queue.
                held: limits && is_held(consumer),
            })
            .collect();
        let rates: f64 = allotments.iter().map(|allotment| allotment.rate.per_second()).sum();
        self.part = self
            .point
            .filter(|_| !peers.is_empty())
            .map(|point| (rates / point.max(f64::MIN_POSITIVE)).clamp(LEAST_PART, 1.0));
        if seconds > 0.0 {
            let most = |consumer| (consumer, used(consumer).most);
            let HostClaims { claims, rest, content } = HostClaims::of(consumers().map(most), Some(bands));
            self.told = Some(PointReport {
                done: Iops::new(done / seconds),
                outstanding: Some(busy / seconds),
                wish: self.point.filter(|_| waits).map(|point| PointWish {
                    operating_point: Iops::new(point),
                    goal: interval.set_point,
                    turn: None,
                }),
                has_say: false,
                enough: false,
                active: done > 0.0,
                claims,
                rest,
                content,
            });
        }
        Some(PointDecision {
            operating_point,
            applied: Iops::new(applied),
            position: Some(bands.position(operating_point)),
            decided_by: None,
            host: None,
            doubted: false,
            regulators: Vec::new(),
            allotments,
            window: Some(window.own),
        })
    }

    /// Returns true if rates limit consumers.
    pub(super) fn is_limit(&self) -> bool {
        self.point.is_some()
    }

    /// The part of the window that is this host's by the bands. `None`: by active shares.
    pub(super) fn part(&self) -> Option<f64> {
        self.part
    }

    /// The report for other hosts, as of the last division.
    pub(super) fn told(&self) -> Option<&PointReport> {
        self.told.as_ref()
    }

    fn remember(&mut self, (done, busy): (f64, f64), peers: &[PeerPoint], seconds: f64) {
        let remaining = (-seconds / MEMORY).exp();
        let elsewhere = |of: fn(&PointReport) -> f64| peers.iter().map(|peer| of(&peer.point)).sum::<f64>();
        let done = done + seconds * elsewhere(|point| point.done.per_second());
        self.done = self.done * remaining + done;
        self.busy = self.busy * remaining + busy;
        self.seconds = self.seconds * remaining + seconds;
    }

    /// Returns the next operating point. `applied` is the throughput of all hosts, `window` this host's own.
    /// A host whose consumers do not wait goes along with the others.
    fn follow(
        &self,
        interval: &ControlInterval<'_>,
        applied: f64,
        window: Window,
        waits: bool,
    ) -> Option<f64> {
        let elsewhere = wait_elsewhere(interval.peers);
        let Some(point) = self.agreed(interval.peers, waits) else {
            // Nothing is known yet of less than what is done.
            return ((waits || elsewhere) && applied > 0.0).then_some(applied);
        };
        if waits {
            let fill = self.busy / self.seconds.max(f64::MIN_POSITIVE) / window.get().max(f64::MIN_POSITIVE);
            let seconds = interval.elapsed.as_secs_f64().min(1.0);
            let change = GAIN * seconds * (FULL / fill.max(1e-3)).ln().clamp(-1.0, 1.0);
            return Some((point * change.exp()).clamp(applied / MOST, applied * MOST));
        }
        if elsewhere {
            return Some(point);
        }
        let point = point / interval.remaining.max(1e-3);
        (point < PointDecision::UNBOUNDED.per_second()).then_some(point)
    }

    /// The median of the hosts' operating points, if this host has one. Its own counts while its consumers
    /// wait, or if no other host tells one.
    fn agreed(&self, peers: &[PeerPoint], waits: bool) -> Option<f64> {
        let own = self.point?;
        let wishes = peers.iter().filter_map(|peer| peer.point.wish);
        let mut points: Vec<f64> = wishes.map(|wish| wish.operating_point.per_second()).collect();
        if waits || points.is_empty() {
            points.push(own);
        }
        points.sort_by(f64::total_cmp);
        Some((points[(points.len() - 1) / 2] * points[points.len() / 2]).sqrt())
    }
}
