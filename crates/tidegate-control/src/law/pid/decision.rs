//! The PID in the loop.

use tidegate_units::{Iops, Latency};

use crate::document::observation::ConsumerObservation;
use crate::document::output::{LawAction, LawOutput};
use crate::estimate::signal_samples::throttled;
use crate::law::control_law::{CommonStep, ConsumerThrottle, ControlInterval, ControlLaw, LawStep};
use crate::law::pid::config::PidConfig;
use crate::law::pid::controller::Pid;

impl ControlLaw for Pid {
    fn step(&mut self, interval: &ControlInterval<'_>) -> LawStep {
        match interval.common_step() {
            CommonStep::Hold => LawStep::to(LawAction::Hold, LawOutput::Delay(self.delay())),
            CommonStep::Regulate(estimate) => regulate(self, estimate, interval),
            CommonStep::Relax => {
                self.relax(interval.remaining);
                LawStep::to(LawAction::Relax, LawOutput::Delay(self.delay()))
            }
        }
    }

    fn throttle(&self, _: &LawStep, _: usize, consumer: &ConsumerObservation) -> ConsumerThrottle {
        let longest = self.delay().min(greatest_delay(self.config(), consumer));
        let delay = (longest > Latency::ZERO).then_some(longest);
        ConsumerThrottle { delay, is_held: delay.is_some(), ..ConsumerThrottle::default() }
    }
}

fn regulate(law: &mut Pid, estimate: Latency, interval: &ControlInterval<'_>) -> LawStep {
    let greatest = throttled(interval.consumers)
        .map(|consumer| greatest_delay(law.config(), consumer))
        .max()
        .unwrap_or(Latency::ZERO);
    let step = law.step(estimate, interval.set_point, interval.elapsed, greatest);
    LawStep {
        raw: LawOutput::Delay(step.raw),
        bound: step.bound,
        ..LawStep::to(LawAction::Regulate, LawOutput::Delay(step.delay))
    }
}

/// The longest delay that leaves a consumer its floor rate and its reservation. By Little's law one with q
/// requests outstanding gets through q/(d + R) of them per second under a delay d, when the resource takes R
/// for each.
fn greatest_delay(config: &PidConfig, consumer: &ConsumerObservation) -> Latency {
    let floor = config.greatest_for(consumer.mean_outstanding);
    let Some(reserved) = consumer.reservation.filter(|&rate| rate > Iops::ZERO) else { return floor };
    let kinds = || [&consumer.reads, &consumer.writes].into_iter().filter(|kind| kind.count > 0);
    let total: f64 = kinds().map(|kind| kind.total_latency.as_secs_f64()).sum();
    let count: f64 = kinds().map(|kind| kind.count as f64).sum();
    let seconds = consumer.mean_outstanding.get() / reserved.per_second();
    floor.min(Latency::from_secs_f64(seconds - total / count.max(1.0)))
}
