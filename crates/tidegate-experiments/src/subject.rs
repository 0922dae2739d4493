//! Subjects of runs: the simulations that there are.

use std::time::Duration;

use thiserror::Error;
use tidegate_sim::excite::Excitation;
use tidegate_sim::{
    EngineWork, NamedValues, Scenario, ScenarioError, SimulationOutcome, iscsi, simulate, transfers,
};
use tidegate_units::HostName;

use super::trial::{ConsumerSeries, RunResult, SeriesRecorder};

/// The subject of a run: one of the simulations that there are.
#[derive(Debug, Clone, PartialEq)]
pub enum RunSubject {
    /// Virtual machines on hosts.
    Scenario(Box<Scenario>),
    /// Machines that use an iSCSI target.
    Iscsi(Box<iscsi::IscsiPlan>),
    /// Transfers over storage nodes.
    Transfers(Box<transfers::TransferPlan>),
    /// A storage that is excited with white noise.
    Identification(Box<Identification>),
}

/// A storage that is excited, at several sampling intervals.
#[derive(Debug, Clone, PartialEq)]
pub struct Identification {
    /// Its name.
    pub name: String,
    /// The storage and its excitation.
    pub excitation: Excitation,
    /// At which intervals, one run for each.
    pub intervals: Vec<Duration>,
}

impl Identification {
    /// Returns the duration of the longest run.
    fn duration(&self) -> Duration {
        self.intervals.iter().max().copied().unwrap_or_default() * self.excitation.intervals
    }
}

/// Reasons why a subject cannot be simulated.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum SubjectError {
    /// The scenario.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// The plan.
    #[error(transparent)]
    Iscsi(#[from] iscsi::InvalidPlan),
    /// The transfers.
    #[error(transparent)]
    Transfers(#[from] transfers::InvalidPlan),
}

impl From<Scenario> for RunSubject {
    fn from(scenario: Scenario) -> Self {
        Self::Scenario(Box::new(scenario))
    }
}

impl From<iscsi::IscsiPlan> for RunSubject {
    fn from(plan: iscsi::IscsiPlan) -> Self {
        Self::Iscsi(Box::new(plan))
    }
}

impl From<Identification> for RunSubject {
    fn from(identification: Identification) -> Self {
        Self::Identification(Box::new(identification))
    }
}

impl From<transfers::TransferPlan> for RunSubject {
    fn from(plan: transfers::TransferPlan) -> Self {
        Self::Transfers(Box::new(plan))
    }
}

impl RunSubject {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Scenario(scenario) => &scenario.name,
            Self::Iscsi(plan) => &plan.name,
            Self::Transfers(plan) => &plan.name,
            Self::Identification(one) => &one.name,
        }
    }

    /// Returns the duration, at most.
    #[must_use]
    pub fn duration(&self) -> Duration {
        match self {
            Self::Scenario(scenario) => scenario.duration,
            Self::Iscsi(plan) => plan.duration,
            Self::Transfers(plan) => plan.duration,
            Self::Identification(one) => one.duration(),
        }
    }

    /// Simulates it.
    ///
    /// # Errors
    /// When that is not possible.
    pub fn simulate(&self, seed: u64) -> Result<RunResult, SubjectError> {
        match self {
            Self::Scenario(scenario) => {
                let mut tracks = SeriesRecorder::default();
                let outcome = simulate(scenario, seed, &mut tracks)?;
                Ok(tracks.with(outcome, scenario))
            }
            Self::Iscsi(plan) => Ok(of_iscsi(plan, seed, iscsi::simulate(plan, seed)?)),
            Self::Transfers(plan) => Ok(of_transfers(plan, seed, transfers::simulate(plan, seed)?)),
            Self::Identification(one) => Ok(of_identification(one, seed)?),
        }
    }
}

/// A machine is a consumer on a host of its own.
fn of_iscsi(plan: &iscsi::IscsiPlan, seed: u64, findings: iscsi::IscsiFindings) -> RunResult {
    let requests = findings.loads.iter().map(|load| load.requests).sum();
    let work = EngineWork { events: findings.events, requests, ..EngineWork::default() };
    let outcome = outcome_of(&plan.name, seed, findings.ended_s, work);
    let tracks = plan
        .machines
        .iter()
        .zip(findings.series)
        .filter_map(|(machine, samples)| {
            // Both kinds of names have the same form.
            let host = HostName::new(machine.as_str()).ok()?;
            Some(ConsumerSeries { host, consumer: machine.clone(), samples })
        })
        .collect();
    RunResult { tracks, loads: findings.loads, delays: findings.delays, ..RunResult::of(outcome) }
}

fn of_transfers(plan: &transfers::TransferPlan, seed: u64, findings: transfers::PlanFindings) -> RunResult {
    let work = EngineWork {
        events: findings.events,
        requests: findings.transfers.len() as u64,
        ..EngineWork::default()
    };
    let outcome = outcome_of(&plan.name, seed, findings.ended_s, work);
    RunResult { transfers: findings.transfers, ..RunResult::of(outcome) }
}

fn of_identification(one: &Identification, seed: u64) -> Result<RunResult, ScenarioError> {
    let excited = one
        .intervals
        .iter()
        .map(|interval| Ok((*interval, one.excitation.samples(*interval, seed)?)))
        .collect::<Result<_, ScenarioError>>()?;
    let outcome = outcome_of(&one.name, seed, one.duration().as_secs_f64(), EngineWork::default());
    Ok(RunResult { excited, ..RunResult::of(outcome) })
}

/// Returns the outcome of a simulation that is no scenario: it has neither hosts nor consumers with
/// statistics of their own.
fn outcome_of(name: &str, seed: u64, duration_s: f64, work: EngineWork) -> SimulationOutcome {
    SimulationOutcome {
        scenario: name.to_owned(),
        seed,
        duration_s,
        warmup_s: 0.0,
        resources: NamedValues::from_iter([]),
        hosts: NamedValues::from_iter([]),
        consumers: NamedValues::from_iter([]),
        work,
    }
}
