//! Finding the gains of a resource's PID by an experiment on the resource itself ([`RelayExperiment`]), with
//! the agent's own sensors and throttle.

use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant as Clock};

use thiserror::Error;
use tidegate_control::{
    Decision, IdentifiedProcess, LawConfig, LawKind, RelayConfig, RelayError, RelayExperiment, RelayStep,
    SignalState,
};
use tidegate_host::SystemRoot;
use tidegate_host::sense::UncountedDevice;
use tidegate_host::throttle::ThrottleMethod;
use tidegate_units::{Instant, Latency, ResourceName};

use super::config::AgentConfig;
use super::guarded::GuardedThrottle;
use super::histograms::LatencyHistograms;
use super::regulator::MachineRegulator;
use super::{ActError, AgentError, AgentEvent, GuardianCommand, MOST_EVENTS, RecurringErrors};
use tidegate_service::signals::{self, ServiceSignal};

/// A report of the experiment while it goes on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ExperimentProgress {
    /// Since its begin.
    pub at: Duration,
    /// The delay of packets to members now.
    pub delay: Latency,
    /// The smoothed read response time; `None`: unknown.
    pub estimate: Option<Latency>,
    /// Oscillations measured.
    pub cycles: usize,
    /// Oscillations wanted.
    pub wanted: u32,
}

/// The reasons why there are no gains.
#[derive(Debug, Error)]
pub enum IdentifyError {
    /// The agent's parts could not be started, or the configuration is wrong.
    #[error(transparent)]
    Agent(#[from] AgentError),
    /// It is not said which resource.
    #[error("name one of the configuration's resources: {}", .0.join(", "))]
    Which(Vec<String>),
    /// Another law has no gains.
    #[error("what would be found are gains of the PID, and this resource's law is `{0}`")]
    NoGains(LawKind),
    /// The latency is measured elsewhere.
    #[error("{0}: gains are found by this machine's counters, and its law goes by reports or a source")]
    Elsewhere(ResourceName),
    /// No consumer is delayed.
    #[error("gains are found for delays and for `rate`; the throttle `cgroup` has none to try")]
    Cgroups,
    /// There is nothing to find gains for.
    #[error(
        "{0}: there is no such storage on this machine, so that nothing could be found; `tidegate check` \
            says what there is"
    )]
    NotHere(ResourceName),
    /// Reads of the storage could not be seen.
    #[error("{0}: {1}")]
    Uncounted(ResourceName, UncountedDevice),
    /// The experiment found nothing.
    #[error(transparent)]
    Relay(#[from] RelayError),
    /// A result would be of something else.
    #[error("the throttle does not do what it is told, so that nothing would be found: {0}")]
    Throttle(#[from] ActError),
    /// The experiment was asked to end.
    #[error("ended before it was over; all consumers are released")]
    Stopped,
}

/// Throttles and releases the eligible consumers of one resource, by turns, and finds gains from the response
/// of its reads. After `limit`, on a failure, or when told to end, it releases all consumers. `resource` may
/// be left out where there is only one.
///
/// # Errors
/// When it cannot start, or finds nothing.
pub fn identify(
    path: &Path,
    resource: Option<&ResourceName>,
    limit: Duration,
    guardian: &GuardianCommand,
    mut tell: impl FnMut(ExperimentProgress),
) -> Result<(ResourceName, IdentifiedProcess), IdentifyError> {
    let mut config = AgentConfig::load(path).map_err(AgentError::from)?;
    if config.throttle == ThrottleMethod::Cgroup {
        return Err(IdentifyError::Cgroups);
    }
    let name = only(&mut config, resource)?;
    if config.resources.iter().any(|resource| resource.reports.is_some() || resource.source.is_some()) {
        return Err(IdentifyError::Elsewhere(name));
    }
    let (sender, events) = mpsc::sync_channel(MOST_EVENTS);
    signals::receive(sender, AgentEvent::Signal).map_err(AgentError::Signals)?;
    let mut trial = Trial::new(SystemRoot::default(), &config, limit)?;
    if trial.regulator.status().iter().any(|resource| !resource.present) {
        return Err(IdentifyError::NotHere(name));
    }
    if let Some(device) = trial.regulator.uncounted_storage().into_iter().find(UncountedDevice::is_certain) {
        return Err(IdentifyError::Uncounted(name, device));
    }
    let mut throttle = GuardedThrottle::start(&config, guardian)?;
    let begin = Clock::now();
    let outcome = loop {
        match events.recv_timeout(trial.interval()) {
            Ok(AgentEvent::Signal(ServiceSignal::Stop)) | Err(RecvTimeoutError::Disconnected) => {
                break Err(IdentifyError::Stopped);
            }
            Ok(_) => {}
            Err(RecvTimeoutError::Timeout) => {
                let at = begin.elapsed();
                let now = Instant::from_nanos(u64::try_from(at.as_nanos()).unwrap_or(u64::MAX));
                match trial.step(now, &mut throttle) {
                    Ok(Some(found)) => break Ok((name, found)),
                    Ok(None) => tell(trial.progress(at)),
                    Err(error) => break Err(error),
                }
            }
        }
    };
    throttle.let_go();
    outcome
}

/// Leaves one resource in the configuration.
fn only(config: &mut AgentConfig, wanted: Option<&ResourceName>) -> Result<ResourceName, IdentifyError> {
    let names = || config.resources.iter().map(|resource| resource.law.resource.to_string()).collect();
    let name = match (wanted, &config.resources[..]) {
        (None, [only]) => only.law.resource.clone(),
        (Some(wanted), all) if all.iter().any(|resource| resource.law.resource == *wanted) => wanted.clone(),
        _ => return Err(IdentifyError::Which(names())),
    };
    config.resources.retain(|resource| resource.law.resource == name);
    // The relay holds, not the law.
    config.resources.iter_mut().for_each(|resource| resource.law.dry_run = true);
    Ok(name)
}

struct Trial {
    regulator: MachineRegulator,
    histograms: Option<LatencyHistograms>,
    relay: RelayExperiment,
    delay: Latency,
    estimate: Option<Latency>,
    stepped: Instant,
    complaints: RecurringErrors,
}

impl Trial {
    fn new(root: SystemRoot, config: &AgentConfig, limit: Duration) -> Result<Self, IdentifyError> {
        let law = &config.resources[0].law;
        let LawConfig::Pid(pid) = law.law else { return Err(IdentifyError::NoGains(law.law.kind())) };
        let relay = RelayConfig { limit, ..RelayConfig::new(law.set_point(), pid.step, pid.greatest) };
        let regulator = MachineRegulator::new(root, config)?;
        Ok(Self {
            histograms: LatencyHistograms::needed(config, &regulator).map_err(AgentError::Histograms)?,
            regulator,
            relay: RelayExperiment::new(relay),
            delay: Latency::ZERO,
            estimate: None,
            stepped: Instant::ZERO,
            complaints: RecurringErrors::default(),
        })
    }

    fn interval(&self) -> Duration {
        self.regulator.interval()
    }

    fn step(
        &mut self,
        now: Instant,
        throttle: &mut GuardedThrottle,
    ) -> Result<Option<IdentifiedProcess>, IdentifyError> {
        if let Some(histograms) = &mut self.histograms
            && let Err(error) = histograms.tell(now, &mut self.regulator)
        {
            self.complaints.make(&error);
        }
        let step = self.regulator.step(now);
        self.estimate = step.decisions.last().and_then(known);
        let elapsed = now.saturating_since(std::mem::replace(&mut self.stepped, now));
        match self.relay.step(elapsed, self.estimate)? {
            RelayStep::Done(found) => return Ok(Some(found)),
            RelayStep::Hold(delay) => self.delay = delay,
        }
        throttle.act(now, &self.regulator.impose(self.delay))?;
        Ok(None)
    }

    const fn progress(&self, at: Duration) -> ExperimentProgress {
        let (cycles, wanted) = self.relay.progress();
        ExperimentProgress { at, delay: self.delay, estimate: self.estimate, cycles, wanted }
    }
}

/// Returns the value of the signal, if the law would act upon it.
fn known(decision: &Decision) -> Option<Latency> {
    match decision.input {
        SignalState::Samples { .. } | SignalState::Overload { .. } => decision.estimate,
        SignalState::Unknown | SignalState::Idle | SignalState::NoTime => None,
    }
}
