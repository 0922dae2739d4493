//! The window law in the loop.

use tidegate_units::Latency;

use crate::document::observation::ConsumerObservation;
use crate::document::output::{LawAction, LawOutput, OutputBound};
use crate::estimate::signal_samples::throttled;
use crate::law::control_law::{
    CommonStep, ConsumerThrottle, ControlInterval, ControlLaw, LawStep, SharedWindow,
};
use crate::law::window::config::SharesOf;
use crate::law::window::window_law::WindowLaw;

impl ControlLaw for WindowLaw {
    fn step(&mut self, interval: &ControlInterval<'_>) -> LawStep {
        match interval.common_step() {
            CommonStep::Hold => LawStep::to(LawAction::Hold, LawOutput::Window(self.window())),
            CommonStep::Regulate(estimate) => regulate(self, estimate, interval),
            CommonStep::Relax => {
                self.relax(interval.remaining);
                LawStep::to(LawAction::Relax, LawOutput::Window(self.window()))
            }
        }
    }

    fn throttle(&self, _: &LawStep, _: usize, consumer: &ConsumerObservation) -> ConsumerThrottle {
        ConsumerThrottle {
            window: Some(self.window()),
            is_held: consumer.queued > 0,
            ..ConsumerThrottle::default()
        }
    }

    fn shared_window(&self) -> Option<SharedWindow> {
        Some(SharedWindow {
            now: self.window(),
            greatest: self.config().greatest,
            divides_requests: self.config().shares_of == SharesOf::Requests,
        })
    }
}

fn regulate(law: &mut WindowLaw, estimate: Latency, interval: &ControlInterval<'_>) -> LawStep {
    let demand = throttled(interval.consumers).map(|consumer| (consumer.shares, consumer.mean_outstanding));
    let beta = law.beta(demand) * interval.compensation.unwrap_or(1.0);
    let step = law.step(estimate, interval.set_point, beta, interval.intervals());
    let raised = interval.reserved.is_some_and(|reserved| law.raise_to(reserved.window));
    LawStep {
        beta: Some(beta),
        raw: LawOutput::Window(step.raw),
        bound: if raised { Some(OutputBound::Reservation) } else { step.bound },
        ..LawStep::to(LawAction::Regulate, LawOutput::Window(law.window()))
    }
}
