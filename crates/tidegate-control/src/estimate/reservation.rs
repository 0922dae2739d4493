//! Reservations: the conditions to keep them, and the window that they need.
//!
//! A reservation is a rate that a consumer gets whatever the shares: its host's scheduler serves it first.
//! That keeps it only under two conditions.
//!
//! 1. **The window is wide enough.** Take a host that completes Σr requests per second at a response time L.
//!    By Little's law it has Σr·L of them outstanding at the resource. So while consumers with reservations
//!    are active, the window does not fall below `Σr·L`. This holds with L as it is, above the set point or
//!    not. Keeping reservations is worth more than the response time: the price is that L may stay above the
//!    set point. L is the response time of these consumers' own requests, not the signal, because the law
//!    holds for the requests in this window, wherever their blocks lie.
//! 2. **The storage is fast enough.** Added up over all hosts, reservations stay below the throughput of the
//!    storage. Below it the floors settle: the other consumers' outstanding requests shrink until L is such
//!    that the floors fit. Beyond it each floor raises L, and L each floor, until windows are the greatest
//!    that are allowed. The hosts that reach this end first miss their reservations. Within a host all
//!    reservations are missed by the same factor.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate_units::{Iops, Latency, Window};

use crate::document::observation::ConsumerObservation;
use crate::document::reserved::{ReservationDecision, ReservationShortage};
use crate::estimate::ewma::Ewma;

/// Factor between the window and Σr·L. The scheduler leaves one request in 129 to the shares, and L is that
/// of the time just past.
const HEADROOM: f64 = 1.05;

/// Over which time L is smoothed: it sets a bound, and a bound that follows every hiccup of the storage lets
/// the window jump.
const LATENCY_TIME: Duration = Duration::from_secs(1);

/// Over which time what is completed is compared with what is reserved. An interval alone holds a few
/// requests.
const RATE_TIME: f64 = 2.0;

/// Below this part of it a reservation counts as missed.
const KEPT: f64 = 0.95;

/// Conditions for the reservations of a host.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ReservationConditions {
    /// Σr of this host's consumers, in requests per second.
    pub here: Iops,
    /// Σr of all hosts that share the resource, this one included.
    pub everywhere: Iops,
    /// L, the response time at the resource.
    pub latency: Latency,
    /// The greatest window that this host may have.
    pub greatest: Window,
    /// Throughput of the resource when it is busy; `None`: not known.
    pub capacity: Option<Iops>,
}

/// Answer to the question if reservations can be kept.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ReservationFeasibility {
    /// By how much reservations could grow before they are missed, as a part of themselves; negative: they
    /// are missed, and must shrink. +∞ without reservations.
    pub margin: f64,
    /// Resource that is short first.
    pub shortage: ReservationShortage,
    /// The window that they take.
    pub window: Window,
}

impl ReservationFeasibility {
    /// Returns true if they can be kept.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        self.margin >= 0.0
    }
}

/// Returns the feasibility of these reservations: both conditions, and the one with the smaller margin. If
/// the storage is too slow, only its margin counts. The response time, and the window with it, are then the
/// result of the overload.
///
/// The conditions are Little's law for this host, `Σr·L ≤ w_max`, with 5 % to spare, and `Σr ≤ C` over all
/// hosts.
#[must_use]
pub fn feasible(conditions: &ReservationConditions) -> ReservationFeasibility {
    let ReservationConditions { here, everywhere, latency, greatest, capacity } = *conditions;
    let window = window_for(here, latency);
    let by_window = margin(greatest.get(), window.get());
    let by_storage =
        capacity.map_or(f64::INFINITY, |capacity| margin(capacity.per_second(), everywhere.per_second()));
    let (margin, shortage) = if by_window <= by_storage && by_storage >= 0.0 {
        (by_window, ReservationShortage::Window)
    } else {
        (by_storage, ReservationShortage::Storage)
    };
    ReservationFeasibility { margin, shortage, window }
}

/// The window that keeps reservations of `rate` in all at a response time of `latency`: Σr·L, and 5 % more.
#[must_use]
pub fn window_for(rate: Iops, latency: Latency) -> Window {
    Window::new(rate.per_second() * latency.as_secs_f64() * HEADROOM)
}

fn margin(there: f64, needed: f64) -> f64 {
    if needed > 0.0 { there / needed - 1.0 } else { f64::INFINITY }
}

/// Knowledge of a host beyond its own consumers.
pub(crate) struct HostSurroundings {
    /// Σr of all hosts, when there are others.
    pub(crate) everywhere: Option<Iops>,
    /// The greatest window, where there is one.
    pub(crate) greatest: Option<Window>,
    /// Throughput of the resource, as far as it is known.
    pub(crate) capacity: Option<Iops>,
}

/// Follows what consumers with reservations get.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct ReservationRecord {
    latency: Ewma,
    /// Requests that were reserved for those that waited, and requests that those completed; both fade.
    wanted: f64,
    got: f64,
}

impl ReservationRecord {
    /// Takes what happened since the last call. `fallback` stands for L until the first of their requests
    /// completes.
    pub(crate) fn observe<'a>(
        &mut self,
        consumers: impl Iterator<Item = &'a ConsumerObservation> + Clone,
        elapsed: Duration,
        fallback: Option<Latency>,
        around: &HostSurroundings,
    ) -> Option<ReservationDecision> {
        let active = active(consumers);
        let operations = || {
            let all = active.clone().flat_map(|(consumer, _)| [&consumer.reads, &consumer.writes]);
            all.filter(|operations| operations.count > 0)
        };
        let count: f64 = operations().map(|operations| operations.count as f64).sum();
        if count > 0.0 {
            let seconds: f64 = operations().map(|operations| operations.total_latency.as_secs_f64()).sum();
            self.latency.update_elapsed(Latency::from_secs_f64(seconds / count), elapsed, LATENCY_TIME);
        }
        self.compare(active.clone(), elapsed);

        let rate = rate(active.clone());
        let latency = self.latency.get().or(fallback).filter(|_| rate > Iops::ZERO)?;
        let everywhere = around.everywhere.unwrap_or(rate);
        // A consumer with fewer requests outstanding than its reservation takes does not use all of it.
        let window = active
            .map(|(consumer, reserved)| {
                window_for(reserved, latency).get().min(consumer.mean_outstanding.get())
            })
            .sum::<f64>();
        let missed = (self.wanted - self.got >= 1.0 && self.got < KEPT * self.wanted).then(|| {
            let HostSurroundings { greatest, capacity, .. } = *around;
            let judged = greatest.map(|greatest| {
                feasible(&ReservationConditions { here: rate, everywhere, latency, greatest, capacity })
            });
            judged
                .filter(|judged| !judged.is_kept())
                .map_or(ReservationShortage::Storage, |judged| judged.shortage)
        });
        Some(ReservationDecision { rate, everywhere, latency, window: Window::new(window), missed })
    }

    fn compare<'a>(
        &mut self,
        active: impl Iterator<Item = (&'a ConsumerObservation, Iops)>,
        elapsed: Duration,
    ) {
        let seconds = elapsed.as_secs_f64();
        let fade = (-seconds / RATE_TIME).exp();
        self.wanted *= fade;
        self.got *= fade;
        for (consumer, reserved) in active.filter(|(consumer, _)| consumer.queued > 0) {
            // More than any storage completes; an infinite number would never fade.
            self.wanted += (reserved.per_second() * seconds).min(1e12);
            self.got += (consumer.reads.count.saturating_add(consumer.writes.count) as f64).min(1e12);
        }
    }
}

/// Σr of the consumers that do something.
pub(crate) fn reserved_rate<'a>(consumers: impl Iterator<Item = &'a ConsumerObservation> + Clone) -> Iops {
    rate(active(consumers))
}

fn active<'a>(
    consumers: impl Iterator<Item = &'a ConsumerObservation> + Clone,
) -> impl Iterator<Item = (&'a ConsumerObservation, Iops)> + Clone {
    consumers
        .filter(|consumer| consumer.mean_outstanding.get() > 0.0)
        .filter_map(|consumer| Some((consumer, consumer.reservation?)))
}

fn rate<'a>(active: impl Iterator<Item = (&'a ConsumerObservation, Iops)>) -> Iops {
    Iops::new(active.map(|(_, reserved)| reserved.per_second()).sum())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn conditions(here: f64, everywhere: f64, capacity: Option<f64>) -> ReservationConditions {
        ReservationConditions {
            here: Iops::new(here),
            everywhere: Iops::new(everywhere),
            latency: Latency::from_millis(20),
            greatest: Window::new(8.4),
            capacity: capacity.map(Iops::new),
        }
    }

    #[test]
    fn the_smaller_margin_counts() {
        // 200 IO/s at 20 ms take a window of 4.2.
        let alone = feasible(&conditions(200.0, 200.0, None));
        assert!((alone.window.get() - 4.2).abs() < 1e-9, "{alone:?}");
        assert!(
            (alone.margin - 1.0).abs() < 1e-9 && alone.shortage == ReservationShortage::Window,
            "{alone:?}"
        );
        let shared = feasible(&conditions(200.0, 900.0, Some(1_000.0)));
        assert!((shared.margin - 1.0 / 9.0).abs() < 1e-9 && shared.shortage == ReservationShortage::Storage);
        assert!(shared.is_kept());
        let slow = feasible(&conditions(200.0, 2_000.0, Some(1_000.0)));
        assert!((slow.margin + 0.5).abs() < 1e-9 && !slow.is_kept(), "halve them: {slow:?}");
        let narrow = feasible(&conditions(800.0, 800.0, Some(1_000.0)));
        assert!((narrow.margin + 0.5).abs() < 1e-9 && narrow.shortage == ReservationShortage::Window);
        let both = feasible(&conditions(1_600.0, 1_600.0, Some(1_200.0)));
        assert!(
            (both.margin + 0.25).abs() < 1e-9 && both.shortage == ReservationShortage::Storage,
            "{both:?}"
        );
        assert!(feasible(&conditions(0.0, 0.0, Some(0.0))).is_kept(), "nothing is always kept");
    }

    proptest! {
        #[test]
        fn anything_gives_a_number(here: f64, everywhere: f64, capacity: Option<f64>, nanos: u64,
            greatest: f64) {
            let feasibility = feasible(&ReservationConditions {
                latency: Latency::from_nanos(nanos),
                greatest: Window::new(greatest),
                ..conditions(here, everywhere, capacity)
            });
            prop_assert!(!feasibility.margin.is_nan() && feasibility.margin >= -1.0);
            prop_assert!(feasibility.window.get().is_finite());
        }
    }
}
