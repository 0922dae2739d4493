//! The law `auto` in the loop.

use std::time::Duration;

use tidegate_units::Latency;

use crate::document::load_report::LoadReport;
use crate::document::observation::ConsumerObservation;
use crate::document::output::{LawAction, LawOutput, OutputBound};
use crate::document::point_report::PointReport;
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
            point: self.divide(interval),
            auto: self.view().copied(),
            ..LawStep::to(action, LawOutput::Window(self.window()))
        }
    }

    fn throttle(&self, step: &LawStep, place: usize, consumer: &ConsumerObservation) -> ConsumerThrottle {
        let point = step.point.as_ref().filter(|point| point.is_limit());
        let allotment = point.and_then(|point| point.allotments.get(place));
        ConsumerThrottle {
            window: Some(self.window()),
            rate: allotment.map(|allotment| allotment.rate),
            is_held: consumer.queued > 0 || allotment.is_some_and(|allotment| allotment.held),
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

    fn point_report(&self) -> Option<&PointReport> {
        self.band_report()
    }

    fn shared_window(&self) -> Option<SharedWindow> {
        Some(SharedWindow { now: self.window(), greatest: self.config().greatest, divides_requests: false })
    }
}
