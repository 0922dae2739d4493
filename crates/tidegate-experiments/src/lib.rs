//! The papers' experiments, repeated: what a paper did and found, what is simulated here, and whether both
//! agree.
//!
//! An [`Experiment`] is data: runs of scenarios, and [`JudgedQuantity`]s that are measured in them and judged
//! against an interval that was written down, with its reason, before anything ran. The words about
//! experiments are in `texts.toml` beside each paper's code. This crate knows the [`catalogue`], selects from
//! it by name, and [`judge`]s the results of the runs. It starts nothing by itself: [`jobs()`] says what to
//! simulate, and any executor may do so in any order, because every result depends on its scenario and seed
//! alone.

#![forbid(unsafe_code)]

pub mod arena;
mod bjorgeengen;
mod experiment;
mod jobs;
mod lee;
mod measure;
mod nikolow;
mod parda;
mod report;
mod select;
mod subject;
#[cfg(test)]
mod tests;
mod texts;
mod tolerance;
mod triage;
mod trial;

pub use experiment::{
    DrawLines, Experiment, JudgedQuantity, NamedRun, Plot, PlotLine, ReportedFigure, RunMeasure,
};
pub use jobs::{SimulationJob, SimulationJobs, jobs};
pub use report::{
    ExperimentReport, ExperimentVerdict, FigureReport, LawReport, PidReport, QuantityReport,
    ReproductionReport, RunReport, judge,
};
pub use select::{UnknownExperiment, select};
pub use subject::{RunSubject, SubjectError};
pub use texts::{ExperimentTexts, JudgedClaim, PaperTexts, experiment_texts, paper_texts};
pub use tolerance::Tolerance;
pub use trial::{ConsumerSeries, RunResult, SeedTrial, SeriesRecorder, TimeSpan};

/// The first seed that results are reported from. Seeds from a million on are for design: what was changed
/// with a seed in view must not be reported with it.
pub const FIRST_SEED: u64 = 101;

/// The number of seeds that stochastic results come from.
pub const SEEDS: u64 = 10;

/// A number of seeds that is enough to see that everything still works.
pub const SHORT_SEEDS: u64 = 2;

/// All experiments, in the order of their papers.
#[must_use]
pub fn catalogue() -> Vec<Experiment> {
    let mut all = parda::experiments();
    all.extend(bjorgeengen::experiments());
    all.extend(lee::experiments());
    all.extend(nikolow::experiments());
    all.extend(triage::experiments());
    all
}
