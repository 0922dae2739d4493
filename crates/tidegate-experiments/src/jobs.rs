//! Simulations that experiments need to be judged.

use super::{Experiment, RunResult, RunSubject, SeedTrial, SubjectError};

/// One simulation.
#[derive(Debug, Clone, Copy)]
pub struct SimulationJob<'a> {
    /// The subject of the simulation.
    pub subject: &'a RunSubject,
    /// Under which seed.
    pub seed: u64,
}

impl SimulationJob<'_> {
    /// Simulates it.
    ///
    /// # Errors
    /// When that is not possible.
    pub fn run(&self) -> Result<RunResult, SubjectError> {
        self.subject.simulate(self.seed)
    }
}

/// The simulations of some experiments. What several experiments have in common is simulated once.
#[derive(Debug)]
pub struct SimulationJobs<'a> {
    jobs: Vec<SimulationJob<'a>>,
    seeds: Vec<u64>,
    /// For each experiment and each of its runs, the position of its job under the first seed. The other
    /// seeds follow.
    places: Vec<Vec<usize>>,
}

/// Returns the simulations that some experiments need, each under so many seeds from `first` on, and at least
/// one.
#[must_use]
pub fn jobs(experiments: &[Experiment], first: u64, count: u64) -> SimulationJobs<'_> {
    let seeds: Vec<u64> = (0..count.max(1)).map(|place| first.saturating_add(place)).collect();
    let mut subjects: Vec<&RunSubject> = Vec::new();
    let mut place = |subject| {
        let known = subjects.iter().position(|known| *known == subject);
        known.unwrap_or_else(|| {
            subjects.push(subject);
            subjects.len() - 1
        }) * seeds.len()
    };
    let places = experiments
        .iter()
        .map(|experiment| experiment.runs.iter().map(|run| place(&run.subject)).collect())
        .collect();
    let jobs = subjects
        .iter()
        .flat_map(|subject| seeds.iter().map(|&seed| SimulationJob { subject, seed }))
        .collect();
    SimulationJobs { jobs, seeds, places }
}

impl<'a> SimulationJobs<'a> {
    /// The simulations. Their results belong in the same order.
    #[must_use]
    pub fn list(&self) -> &[SimulationJob<'a>] {
        &self.jobs
    }

    /// The seeds.
    #[must_use]
    pub fn seeds(&self) -> &[u64] {
        &self.seeds
    }

    /// Returns the runs of an experiment, given by its position, under each of the seeds. `results` are those
    /// of [`SimulationJobs::list`].
    #[must_use]
    pub fn trials<'r>(
        &self,
        experiment: usize,
        runs: &'r [super::NamedRun],
        results: &'r [RunResult],
    ) -> Vec<SeedTrial<'r>> {
        let places = &self.places[experiment];
        (0..self.seeds.len())
            .map(|seed| {
                SeedTrial::new(
                    runs.iter().zip(places).map(|(run, place)| (run.name.as_str(), &results[place + seed])),
                )
            })
            .collect()
    }
}
