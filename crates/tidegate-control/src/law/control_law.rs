//! The shape that all laws share: one step per control interval, and the few questions that the loop asks.
//!
//! The laws differ in their signal and in their throttle. The window law and the PID take one estimate for
//! all consumers and give one output. The integral and the self-tuning law take each consumer's own requests
//! and give rates. [`ControlInterval`] therefore carries what any of them needs, and [`LawStep`] what any of
//! them gives; a law leaves out the rest.

use std::time::Duration;

use tidegate_units::{Iops, Latency, Window};

use crate::document::auto_decision::AutoDecision;
use crate::document::load_report::{ClusterLoad, LoadReport};
use crate::document::observation::ConsumerObservation;
use crate::document::output::{LawAction, LawOutput, OutputBound};
use crate::document::point_decision::PointDecision;
use crate::document::point_report::{PeerPoint, PointReport};
use crate::document::rate_decision::{GaveWay, RateDecision};
use crate::document::reserved::ReservationDecision;
use crate::document::signal::{SignalRequests, SignalState};
use crate::estimate::signal_samples::throttled;
use crate::law::bands::Bands;

/// A law while it runs: its parameters and its state.
pub(crate) trait ControlLaw {
    /// Decides once.
    fn step(&mut self, interval: &ControlInterval<'_>) -> LawStep;

    /// Returns the throttle of one consumer after a step. `place` is its place among the throttled consumers
    /// of the observation.
    fn throttle(&self, step: &LawStep, place: usize, consumer: &ConsumerObservation) -> ConsumerThrottle;

    /// Returns the requests that the law steers by.
    fn scope(&self) -> SignalScope {
        SignalScope::Common
    }

    /// Returns the window that all throttled consumers share by this law alone, if it has one.
    fn shared_window(&self) -> Option<SharedWindow> {
        None
    }

    /// Returns what other hosts' laws need of this host's load, if they need it. `interval` is the time that
    /// the measurements are of. Called once per observation, before the step.
    fn load_report(&mut self, _: &[ConsumerObservation], _interval: Duration) -> Option<LoadReport> {
        None
    }

    /// Returns the sum of the latencies of the signal's requests as other hosts are to hear it, if the law
    /// scales them.
    fn signal_total(&self, _: &[ConsumerObservation], _: SignalRequests, _target: Latency) -> Option<f64> {
        None
    }

    /// Returns the active shares by the law's own memory, if it divides a window among hosts by them.
    fn active_shares(&self) -> Option<f64> {
        None
    }

    /// Returns the report of the last step for the laws of other hosts, if they need one.
    fn point_report(&self) -> Option<&PointReport> {
        None
    }
}

/// The requests that a law steers by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SignalScope {
    /// One signal for all consumers, and for all hosts that are heard.
    Common,
    /// Each consumer's own requests.
    PerConsumer,
    /// Each consumer's own requests, and the lowest operating point that any host asks for.
    PerConsumerAgreed,
}

impl SignalScope {
    /// Returns true if one signal stands for all consumers.
    pub(crate) fn is_common(self) -> bool {
        self == Self::Common
    }

    /// Returns true if reports of other hosts change the decision.
    pub(crate) fn includes_hosts(self) -> bool {
        self != Self::PerConsumer
    }
}

/// One control interval, as a law sees it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ControlInterval<'a> {
    /// This host's consumers, protected ones included.
    pub(crate) consumers: &'a [ConsumerObservation],
    /// Reports of the laws of other hosts that share the resource.
    pub(crate) peers: &'a [PeerPoint],
    /// The division of an operating point, where one is configured.
    pub(crate) bands: Option<&'a Bands>,
    /// The requests whose latency counts.
    pub(crate) signal: SignalRequests,
    /// The report of the common signal.
    pub(crate) input: SignalState,
    /// The latency to compare with the set point. `None` when nothing is known of this interval.
    pub(crate) estimate: Option<Latency>,
    /// Set if the estimate is of all requests of the signal together, and not by the mean of each consumer's
    /// as they are.
    pub(crate) pooled: Option<PooledSignal>,
    /// The latency to steer to.
    pub(crate) set_point: Latency,
    /// Set point over target.
    pub(crate) set_point_ratio: f64,
    /// The time since the previous step.
    pub(crate) elapsed: Duration,
    /// The control interval as configured.
    pub(crate) interval: Duration,
    /// The part that is left of something that decays.
    pub(crate) remaining: f64,
    /// The shortest silence that counts as a pause.
    pub(crate) pause: Duration,
    /// The factor of β, where shares are of requests.
    pub(crate) compensation: Option<f64>,
    /// The window that reservations need.
    pub(crate) reserved: Option<&'a ReservationDecision>,
    /// The loads of all hosts, where hosts that share the resource are heard.
    pub(crate) load: Option<&'a ClusterLoad>,
    /// The hosts that were heard, this one included.
    pub(crate) hosts: u32,
}

/// A signal that is of all its requests together.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PooledSignal {
    /// The [weight](crate::document::signal::SignalStatistic::weight) of a request.
    pub(crate) weight: f64,
    /// Set if the estimate is a percentile.
    pub(crate) percentile: Option<PercentileStretch>,
}

/// The percentile of a stretch that ended in this interval; `None`: none ended.
pub(crate) type PercentileStretch = Option<Latency>;

/// The step that a law with a common signal takes in an interval.
pub(crate) enum CommonStep {
    /// The output stays, because nothing is known.
    Hold,
    /// The law compares this estimate with the set point.
    Regulate(Latency),
    /// The output decays towards release.
    Relax,
}

impl ControlInterval<'_> {
    /// Returns the elapsed time in control intervals.
    pub(crate) fn intervals(&self) -> f64 {
        self.elapsed.as_secs_f64() / self.interval.as_secs_f64()
    }

    /// Returns the step that a law with a common signal takes.
    pub(crate) fn common_step(&self) -> CommonStep {
        let is_loaded = throttled(self.consumers).any(|consumer| consumer.mean_outstanding.get() > 0.0);
        match (self.input, self.estimate) {
            (SignalState::Unknown | SignalState::NoTime, _) => CommonStep::Hold,
            (_, Some(estimate)) if is_loaded => CommonStep::Regulate(estimate),
            _ => CommonStep::Relax,
        }
    }
}

/// One step of a law. Fields that a law does not use are empty.
#[derive(Debug)]
pub(crate) struct LawStep {
    pub(crate) action: LawAction,
    pub(crate) beta: Option<f64>,
    /// The output without bounds.
    pub(crate) raw: LawOutput,
    pub(crate) bounded: LawOutput,
    /// The bound that made the difference.
    pub(crate) bound: Option<OutputBound>,
    /// The rate of every throttled consumer, in the order of the observation.
    pub(crate) rates: Vec<RateDecision>,
    pub(crate) gave_way: Option<GaveWay>,
    pub(crate) point: Option<PointDecision>,
    pub(crate) auto: Option<AutoDecision>,
}

impl LawStep {
    /// A step to an output that no bound limits.
    pub(crate) const fn to(action: LawAction, output: LawOutput) -> Self {
        Self {
            action,
            beta: None,
            raw: output,
            bounded: output,
            bound: None,
            rates: Vec::new(),
            gave_way: None,
            point: None,
            auto: None,
        }
    }
}

/// The throttle of one consumer.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ConsumerThrottle {
    /// The window of all throttled consumers together.
    pub(crate) window: Option<Window>,
    pub(crate) delay: Option<Latency>,
    pub(crate) rate: Option<Iops>,
    /// Some of the consumer's requests wait because of it.
    pub(crate) is_held: bool,
}

/// A window that all throttled consumers share.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SharedWindow {
    pub(crate) now: Window,
    pub(crate) greatest: Window,
    /// Shares divide requests among hosts, not slots.
    pub(crate) divides_requests: bool,
}
