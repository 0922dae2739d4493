//! Runs the simulations of experiments on all processors.

use tidegate_experiments::{RunResult, SimulationJob, SimulationJobs};

use super::error::ReproduceError;
use crate::parallel::ParallelRunner;

/// Runs all jobs. The results come in the jobs' order, whichever was done first.
///
/// # Errors
/// The first job that cannot be simulated; the others are then not begun.
pub(super) fn run(
    runner: &ParallelRunner,
    jobs: &SimulationJobs<'_>,
) -> Result<Vec<RunResult>, ReproduceError> {
    let name = |job: &SimulationJob<'_>| format!("{}, seed {}", job.subject.name(), job.seed);
    runner.each(jobs.list(), name, simulate_one)
}

fn simulate_one(job: &SimulationJob<'_>) -> Result<RunResult, ReproduceError> {
    job.run().map_err(|source| ReproduceError::Simulate { what: job.subject.name().to_owned(), source })
}
