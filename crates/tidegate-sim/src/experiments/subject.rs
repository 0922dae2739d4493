//! What a run simulates.

use std::time::Duration;

use thiserror::Error;
use tidegate_units::HostName;

use super::trial::{RunResult, Track, Tracks};
use crate::iscsi::{self, InvalidPlan};
use crate::outcome::{Named, Outcome, Work};
use crate::{Scenario, ScenarioError, simulate};

/// What a run simulates: one of the two simulations that there are.
#[derive(Debug, Clone, PartialEq)]
pub enum Subject {
    /// Virtual machines on hosts.
    Scenario(Box<Scenario>),
    /// Machines that use an iSCSI target.
    Iscsi(Box<iscsi::Plan>),
}

/// Why it cannot be simulated.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum SubjectError {
    /// The scenario.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// The plan.
    #[error(transparent)]
    Iscsi(#[from] InvalidPlan),
}

impl From<Scenario> for Subject {
    fn from(scenario: Scenario) -> Self {
        Self::Scenario(Box::new(scenario))
    }
}

impl From<iscsi::Plan> for Subject {
    fn from(plan: iscsi::Plan) -> Self {
        Self::Iscsi(Box::new(plan))
    }
}

impl Subject {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Scenario(scenario) => &scenario.name,
            Self::Iscsi(plan) => &plan.name,
        }
    }

    /// How long it lasts, at most.
    #[must_use]
    pub fn duration(&self) -> Duration {
        match self {
            Self::Scenario(scenario) => scenario.duration,
            Self::Iscsi(plan) => plan.duration,
        }
    }

    /// Simulates it.
    ///
    /// # Errors
    /// When that is not possible.
    pub fn simulate(&self, seed: u64) -> Result<RunResult, SubjectError> {
        match self {
            Self::Scenario(scenario) => {
                let mut tracks = Tracks::default();
                let outcome = simulate(scenario, seed, &mut tracks)?;
                Ok(tracks.with(outcome, scenario))
            }
            Self::Iscsi(plan) => Ok(of_iscsi(plan, seed, iscsi::simulate(plan, seed)?)),
        }
    }
}

/// A machine is a consumer on a host of its own.
fn of_iscsi(plan: &iscsi::Plan, seed: u64, findings: iscsi::Findings) -> RunResult {
    let requests = findings.loads.iter().map(|load| load.requests).sum();
    let outcome = Outcome {
        scenario: plan.name.clone(),
        seed,
        duration_s: findings.ended_s,
        warmup_s: 0.0,
        resources: Named::from_iter([]),
        hosts: Named::from_iter([]),
        consumers: Named::from_iter([]),
        work: Work { events: findings.events, requests, ..Work::default() },
    };
    let tracks = plan
        .machines
        .iter()
        .zip(findings.series)
        .filter_map(|(machine, samples)| {
            // Both kinds of names have the same form.
            let host = HostName::new(machine.as_str()).ok()?;
            Some(Track { host, consumer: machine.clone(), samples })
        })
        .collect();
    RunResult { outcome, tracks, law_per_vm: Vec::new(), loads: findings.loads, delays: findings.delays }
}
