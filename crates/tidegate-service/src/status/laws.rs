//! Laws and their decisions, as the document has them.

use std::collections::BTreeMap;

use tidegate_control::{Decision, LawOutput, LoopConfig, PointDecision, SignalState};
use tidegate_units::{ConsumerName, Instant, Iops, Latency, Window};

use super::{ConsumerStatus, DecisionStatus, InputStatus, LawStatus, OperatingPoint};

/// The law of a loop, as it is configured.
#[must_use]
pub fn law(config: &LoopConfig) -> LawStatus {
    LawStatus {
        kind: config.law.kind(),
        target_seconds: config.target.as_secs_f64(),
        interval_seconds: config.interval.as_secs_f64(),
        dry_run: config.dry_run,
        released: config.dry_run && config.released,
    }
}

/// The last decision, as of now.
#[must_use]
pub fn decided(decision: &Decision, now: Instant) -> DecisionStatus {
    let point = decision.point.as_ref();
    let operating_point = point.map(|point| {
        if point.is_limit() {
            OperatingPoint::Limits { iops: point.operating_point.per_second(), band: point.position }
        } else {
            OperatingPoint::HoldsNobody
        }
    });
    let holds = decision.held > 0 && !decision.dry_run;
    let delay = match decision.throttle() {
        LawOutput::Delay(delay) => Some(delay),
        LawOutput::Window(_) | LawOutput::Rate(_) => None,
    };
    // A window that stops no request is none.
    let window = decision.window().filter(|_| holds || operating_point.is_some());
    DecisionStatus {
        age_seconds: now.saturating_since(decision.at).as_secs_f64(),
        said: decision.to_string(),
        input: input(decision.input),
        measured_seconds: seconds(decision.measured),
        estimate_seconds: seconds(decision.compared()),
        set_point_seconds: decision.steered_to().as_secs_f64(),
        held: decision.held,
        throttled: decision.throttled,
        operating_point,
        window_requests: window.map(Window::get),
        delay_seconds: seconds(delay),
    }
}

const fn input(input: SignalState) -> InputStatus {
    match input {
        SignalState::Samples { .. } => InputStatus::Samples,
        SignalState::Overload { .. } => InputStatus::Overload,
        SignalState::Unknown => InputStatus::Unknown,
        SignalState::Idle => InputStatus::Idle,
        SignalState::NoTime => InputStatus::NoTime,
    }
}

/// A time as the document has it.
#[must_use]
pub fn seconds(latency: Option<Latency>) -> Option<f64> {
    latency.map(Latency::as_secs_f64)
}

/// The decisions of a law about one consumer.
#[derive(Debug, Clone, Copy, Default)]
pub struct ByLaw {
    set_point: Option<Latency>,
    measured: Option<Latency>,
    oldest: Option<Latency>,
    entitled: Option<Iops>,
    rate: Option<Iops>,
    /// True if its rate throttles it. `None`: the law does not throttle it by itself.
    pub held: Option<bool>,
}

impl ByLaw {
    /// By consumer; of those about whom the law decides nothing there is none.
    #[must_use]
    pub fn of_each(decision: Option<&Decision>) -> BTreeMap<&ConsumerName, Self> {
        let mut each: BTreeMap<&ConsumerName, Self> = BTreeMap::new();
        let point = decision.and_then(|decision| decision.point.as_ref());
        for regulator in point.into_iter().flat_map(|point| &point.regulators) {
            let one = each.entry(&regulator.name).or_default();
            (one.set_point, one.measured) = (Some(regulator.goal), regulator.measured);
            one.oldest = oldest(regulator.input);
        }
        for allotment in point.into_iter().flat_map(|point| &point.allotments) {
            let one = each.entry(&allotment.name).or_default();
            one.held = Some(allotment.held);
            // With the model of a queue rates are in force only where there are bands.
            let by_rates = point.is_some_and(|point| point.window.is_none() || point.position.is_some());
            if by_rates && point.is_some_and(PointDecision::is_limit) {
                (one.entitled, one.rate) = (Some(allotment.entitled), Some(allotment.rate));
            }
        }
        for rate in decision.into_iter().flat_map(|decision| &decision.rates) {
            let one = each.entry(&rate.name).or_default();
            (one.set_point, one.measured, one.oldest) =
                (Some(rate.reference), rate.measured, oldest(rate.input));
            (one.rate, one.held) = (Some(rate.rate), Some(rate.held));
        }
        each
    }

    /// The consumer as far as the law knows it.
    #[must_use]
    pub fn status(self, name: &ConsumerName, protected: bool) -> ConsumerStatus {
        ConsumerStatus {
            name: name.to_string(),
            selected_as: None,
            protected,
            goal_seconds: None,
            set_point_seconds: seconds(self.set_point),
            measured_seconds: seconds(self.measured),
            oldest_seconds: seconds(self.oldest),
            recent: None,
            outstanding: None,
            entitled_iops: self.entitled.map(Iops::per_second),
            rate_iops: self.rate.map(Iops::per_second),
            delay_seconds: None,
            held: None,
            released: false,
            waits_for: None,
            promise: None,
            errors: None,
            poisoned: false,
            replaced: false,
            removed: false,
        }
    }
}

const fn oldest(input: SignalState) -> Option<Latency> {
    match input {
        SignalState::Overload { oldest } => Some(oldest),
        _ => None,
    }
}
