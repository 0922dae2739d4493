//! Runs the scenario: a gateway in this process, and clients that talk NBD to it over a Unix socket.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use thiserror::Error;
use tidegate_control::{Decision, LawOutput};
use tidegate_gateway::{ApplyError, Gateway, GatewayError, StartError};
use tidegate_load::{LoadError, LoadHandle, LoadReport, RunningLoad};
use tidegate_units::{Bytes, Latency};

use super::plan::{DemoPlan, PhasePlan};
use super::progress::DemoEvent;
use super::setup;
use super::timeline::{
    DemoTimeline, ExplainedDecision, MeasuredPhase, PhaseLatencies, PhaseSecond, ThrottleState,
};

/// The pause between two looks at the gateway's throttle and at a wish to stop.
const LOOK: Duration = Duration::from_millis(200);

/// Between connecting the clients and the beginning of their load: all threads must be there by then.
const HEAD_START: Duration = Duration::from_millis(100);

/// The time that requests outstanding at the end may take.
const DRAIN: Duration = Duration::from_secs(5);

/// Reasons why a scenario did not run to its end.
#[derive(Debug, Error)]
pub(crate) enum ScenarioError {
    /// It was asked to stop.
    #[error("stopped before the end: there is no result")]
    Stopped,
    /// There is no directory for the socket.
    #[error("cannot make a temporary directory: {0}")]
    Directory(#[source] io::Error),
    /// The gateway did not start.
    #[error("cannot start the gateway: {0}")]
    Start(#[from] StartError),
    /// The gateway did not take the next phase's configuration.
    #[error("cannot change the gateway: {0}")]
    Apply(#[from] ApplyError),
    /// The gateway failed.
    #[error("the gateway failed: {0}")]
    Gateway(#[from] GatewayError),
    /// A client failed.
    #[error("a client failed: {0}")]
    Load(#[from] LoadError),
    /// A client's requests failed: what was measured means nothing.
    #[error("{target}: requests were answered with {error}")]
    Refused {
        /// The client's target.
        target: String,
        /// The first error.
        error: String,
    },
}

/// Runs all phases of a plan, and sends `events`. The receiver may stop listening.
///
/// # Errors
/// When `stop` was set, or when the gateway or a client failed: the run then measured nothing.
pub(crate) fn run(
    plan: &DemoPlan,
    stop: &AtomicBool,
    events: Sender<DemoEvent>,
) -> Result<DemoTimeline, ScenarioError> {
    let directory = TempDir::with_prefix("tidegate-demo-").map_err(ScenarioError::Directory)?;
    let socket = directory.path().join("nbd.sock");
    let mut gateway = Gateway::start(setup::gateway(plan, plan.phases[0].name, &socket))?;
    let mut phases = Vec::with_capacity(plan.phases.len());
    for phase in &plan.phases {
        gateway.apply(setup::gateway(plan, phase.name, &socket))?;
        let victim = RunningLoad::connect(setup::victim(plan, phase, &socket))?;
        let writers = match phase.bursts {
            0 => Vec::new(),
            _ => setup::writers(plan, phase, &socket).map(RunningLoad::connect).collect::<Result<_, _>>()?,
        };
        let running = Running::start(plan, phase, &gateway, &events, victim, writers)?;
        phases.push(running.measure(stop)?);
    }
    drop(events);
    gateway.drain(DRAIN)?;
    Ok(DemoTimeline { plan: plan.clone(), phases })
}

/// A phase that runs.
struct Running<'a> {
    plan: &'a DemoPlan,
    phase: &'a PhasePlan,
    gateway: &'a Gateway,
    events: &'a Sender<DemoEvent>,
    origin: Instant,
    victim: LoadHandle,
    writers: Vec<LoadHandle>,
    woke_late: Duration,
}

impl<'a> Running<'a> {
    fn start(
        plan: &'a DemoPlan,
        phase: &'a PhasePlan,
        gateway: &'a Gateway,
        events: &'a Sender<DemoEvent>,
        victim: RunningLoad,
        writers: Vec<RunningLoad>,
    ) -> Result<Self, ScenarioError> {
        let origin = Instant::now() + HEAD_START;
        let victim = victim.start_at(origin)?;
        let writers = writers.into_iter().map(|load| load.start_at(origin)).collect::<Result<_, _>>()?;
        Ok(Self { plan, phase, gateway, events, origin, victim, writers, woke_late: Duration::ZERO })
    }

    fn measure(mut self, stop: &AtomicBool) -> Result<MeasuredPhase, ScenarioError> {
        self.tell(DemoEvent::PhaseBegins);
        let mut seconds = Vec::with_capacity(self.phase.seconds as usize);
        let mut decisions = Vec::new();
        for at in 1..=self.phase.seconds {
            let decision = self.pass(Duration::from_secs(u64::from(at)), stop)?;
            let second = self.second(decision.as_ref())?;
            self.tell(DemoEvent::Second(second));
            seconds.push(second);
            // A decision taken before a second's end is the one that stands at it.
            if let Some(decision) = decision.filter(|_| self.plan.worth_telling(at)) {
                decisions.push(ExplainedDecision { at, sentence: decision.to_string() });
            }
        }
        let report = checked(self.victim.join()?)?;
        for writer in self.writers {
            checked(writer.join()?)?;
        }
        Ok(MeasuredPhase {
            name: self.phase.name,
            seconds,
            bursts: self.plan.bursts(self.phase),
            distribution: distribution(&report),
            decisions,
            woke_late: self.woke_late.into(),
        })
    }

    /// Lets time pass up to a moment of the phase; answers the decision that stands then.
    fn pass(&mut self, until: Duration, stop: &AtomicBool) -> Result<Option<Decision>, ScenarioError> {
        loop {
            if stop.load(Ordering::Relaxed) {
                return Err(ScenarioError::Stopped);
            }
            let pool = self.gateway.snapshot()?.pools.pop();
            let decision = pool.and_then(|pool| pool.decision);
            let elapsed = self.origin.elapsed();
            self.tell(DemoEvent::Now {
                elapsed,
                held: held(decision.as_ref()),
                why: decision.as_ref().map(Decision::to_string),
            });
            let left = (self.origin + until).saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(decision);
            }
            let wake = Instant::now() + left.min(LOOK);
            thread::sleep(left.min(LOOK));
            self.woke_late = self.woke_late.max(wake.elapsed());
        }
    }

    /// Returns one second: the clients' figures since the last call, and the decision that stands.
    fn second(&mut self, decision: Option<&Decision>) -> Result<PhaseSecond, ScenarioError> {
        let mut written = 0;
        let mut running = Vec::with_capacity(self.writers.len());
        for writer in self.writers.drain(..) {
            // In this order: what is finished has no sample to come.
            let finished = writer.is_finished();
            written += writer.sample().writes.bytes;
            if finished {
                // Its last burst is over, or its connection was lost: better to know now than at the end.
                checked(writer.join()?)?;
            } else {
                running.push(writer);
            }
        }
        self.writers = running;
        let sample = self.victim.sample();
        Ok(PhaseSecond {
            reads: sample.reads.count,
            latency_sum: sample.reads.latency_sum,
            latency_max: sample.reads.latency_max,
            outstanding: sample.in_flight as u64,
            written: Bytes::new(written),
            held: held(decision),
        })
    }

    fn tell(&self, event: DemoEvent) {
        // A missing receiver is no reason to stop: a caller that wants that says so.
        let _ = self.events.send(event);
    }
}

fn checked(report: LoadReport) -> Result<LoadReport, ScenarioError> {
    match report.first_error {
        Some(error) => Err(ScenarioError::Refused { target: report.target, error }),
        None => Ok(report),
    }
}

fn held(decision: Option<&Decision>) -> ThrottleState {
    let Some(decision) = decision else { return ThrottleState::default() };
    let (window, delay) = match decision.bounded {
        LawOutput::Window(window) => (Some(window), None),
        LawOutput::Delay(delay) => (None, Some(delay)),
        // No law that the demo offers commands rates.
        LawOutput::Rate(_) => (None, None),
    };
    ThrottleState { window, delay, consumers: decision.held as usize }
}

fn distribution(report: &LoadReport) -> PhaseLatencies {
    let Some(latency) = report.reads.latency_ms else { return PhaseLatencies::default() };
    let millis = Latency::from_millis_f64;
    PhaseLatencies {
        count: report.reads.requests,
        mean: millis(latency.mean),
        p50: millis(latency.p50),
        p95: millis(latency.p95),
        p99: millis(latency.p99),
        max: millis(latency.max),
    }
}
