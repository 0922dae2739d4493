//! The law `auto` in the loop.

use std::time::Duration;

use tidegate_units::Latency;

use crate::document::load_report::LoadReport;
use crate::document::observation::ConsumerObservation;
use crate::document::output::{LawAction, LawOutput, OutputBound};
use crate::document::signal::SignalRequests;
use crate::law::auto::auto_law::{AutoLaw, AutoStep};
use crate::law::auto::consumers::ConsumerLatencies;
use crate::law::control_law::{ConsumerThrottle, ControlInterval, ControlLaw, LawStep, SharedWindow};

impl ControlLaw for AutoLaw {
    fn step(&mut self, interval: &ControlInterval<'_>) -> LawStep {
        let action = match AutoLaw::step(self, interval) {
            AutoStep::Held => LawAction::Hold,
            AutoStep::Regulated => LawAction::Regulate,
            AutoStep::Relaxed => LawAction::Relax,
        };
        let raw = LawOutput::Window(self.window());
        let raised = interval.reserved.is_some_and(|reserved| self.raise_to(reserved.window));
        LawStep {
            raw,
            bound: raised.then_some(OutputBound::Reservation),
            auto: self.view().copied(),
            ..LawStep::to(action, LawOutput::Window(self.window()))
        }
    }

    fn throttle(&self, _: &LawStep, _: usize, consumer: &ConsumerObservation) -> ConsumerThrottle {
        ConsumerThrottle {
            window: Some(self.window()),
            is_held: consumer.queued > 0,
            ..ConsumerThrottle::default()
        }
    }

    fn load_report(&mut self, consumers: &[ConsumerObservation], interval: Duration) -> Option<LoadReport> {
        Some(AutoLaw::load_report(self, consumers, interval))
    }

    fn signal_total(
        &self,
        consumers: &[ConsumerObservation],
        signal: SignalRequests,
        target: Latency,
    ) -> Option<f64> {
        Some(ConsumerLatencies::total(consumers, signal, target))
    }

    fn active_shares(&self) -> Option<f64> {
        Some(AutoLaw::active_shares(self))
    }

    fn shared_window(&self) -> Option<SharedWindow> {
        Some(SharedWindow { now: self.window(), greatest: self.config().greatest, divides_requests: false })
    }
}
