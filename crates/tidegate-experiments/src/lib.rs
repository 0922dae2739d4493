//! The papers' experiments, repeated: what a paper did and found, what is simulated here, and whether both
//! agree.
//!
//! An [`Experiment`] is data: runs of scenarios, and [`Quantity`]s that are measured in them and judged
//! against an interval that was written down, with its reason, before anything ran. This crate knows the
//! [`catalogue`], selects from it by name, and [`judge`]s what came of the runs. It starts nothing by itself:
//! [`jobs()`] says what to simulate, and any executor may do so in any order, because every result depends on
//! its scenario and seed alone.

#![forbid(unsafe_code)]

mod accepts;
mod bjorgeengen;
mod jobs;
mod known;
mod lee;
mod measure;
mod nikolow;
mod parda;
mod report;
mod select;
mod subject;
#[cfg(test)]
mod tests;
pub mod tournament;
mod triage;
mod trial;

use std::fmt;

use tidegate_sim::Scenario;

pub use accepts::Accepts;
pub use jobs::{Job, Jobs, jobs};
pub use known::{Difference, known_difference};
pub use report::{
    ExperimentReport, FigureReport, LawReport, PidReport, QuantityReport, Report, RunReport, Verdict, judge,
};
pub use select::{UnknownExperiment, select};
pub use subject::{Subject, SubjectError};
pub use trial::{RunResult, Span, Track, Tracks, Trial};

/// The number of seeds that stochastic results come from: 1 to this.
pub const SEEDS: u64 = 10;

/// A number of seeds that is enough to see that everything still works.
pub const SHORT_SEEDS: u64 = 2;

/// An experiment of a paper.
pub struct Experiment {
    /// `paper.what`, such as `parda.fig8`.
    pub id: &'static str,
    /// In a line.
    pub title: &'static str,
    /// The paper's experiment and its result.
    pub paper: &'static str,
    /// The set-up here, and the choices in it that the paper leaves open.
    pub setup: &'static str,
    /// The simulations.
    pub runs: Vec<Run>,
    /// The quantities that are judged.
    pub quantities: Vec<Quantity>,
    /// The figures reported without a verdict, because they depend on hardware, or stand for themselves.
    pub figures: Vec<Figure>,
    /// The plots.
    pub plots: Vec<Plot>,
}

impl fmt::Debug for Experiment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Experiment").field("id", &self.id).finish_non_exhaustive()
    }
}

/// A simulation under the name that an experiment gives it.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// The experiment's name for it.
    pub name: String,
    /// The subject of the simulation.
    pub subject: Subject,
}

impl Run {
    /// A run.
    #[must_use]
    pub fn new(name: impl Into<String>, subject: impl Into<Subject>) -> Self {
        Self { name: name.into(), subject: subject.into() }
    }

    /// The same with something changed in its scenario, where it is one.
    #[must_use]
    pub fn but(mut self, change: impl FnOnce(&mut Scenario)) -> Self {
        if let Subject::Scenario(scenario) = &mut self.subject {
            change(scenario);
        }
        self
    }
}

/// Finds a number in the runs under one seed; `None` if there was nothing to measure.
pub type Measure = Box<dyn Fn(&Trial<'_>) -> Option<f64> + Send + Sync>;

/// A number that is judged.
pub struct Quantity {
    /// Its name.
    pub name: String,
    /// Its unit; empty for a ratio.
    pub unit: &'static str,
    /// The paper's figure, where it gives one.
    pub paper: Option<f64>,
    /// The tolerance: the results that agree with the paper.
    pub accepts: Accepts,
    /// The reason for this tolerance, stated before the first run.
    pub because: &'static str,
    /// The measurement.
    pub measure: Measure,
}

impl Quantity {
    /// A quantity without a figure of the paper.
    pub fn new(
        name: impl Into<String>,
        accepts: Accepts,
        because: &'static str,
        measure: impl Fn(&Trial<'_>) -> Option<f64> + Send + Sync + 'static,
    ) -> Self {
        Self { name: name.into(), unit: "", paper: None, accepts, because, measure: Box::new(measure) }
    }

    /// The paper's figure.
    #[must_use]
    pub const fn paper(mut self, figure: f64) -> Self {
        self.paper = Some(figure);
        self
    }

    /// The unit.
    #[must_use]
    pub const fn unit(mut self, unit: &'static str) -> Self {
        self.unit = unit;
        self
    }
}

/// A number that is reported and not judged.
pub struct Figure {
    /// Its name.
    pub name: String,
    /// Its unit; empty for a ratio.
    pub unit: &'static str,
    /// The paper's figure, where it gives one.
    pub paper: Option<f64>,
    /// The measurement.
    pub measure: Measure,
}

impl Figure {
    /// A figure.
    pub fn new(
        name: impl Into<String>,
        unit: &'static str,
        paper: Option<f64>,
        measure: impl Fn(&Trial<'_>) -> Option<f64> + Send + Sync + 'static,
    ) -> Self {
        Self { name: name.into(), unit, paper, measure: Box::new(measure) }
    }
}

/// Finds the lines of a plot in the runs under one seed.
pub type Draw = Box<dyn Fn(&Trial<'_>) -> Vec<Line> + Send + Sync>;

/// A picture of an experiment, drawn from the runs under the first seed.
pub struct Plot {
    /// Its title.
    pub title: String,
    /// The unit of the vertical axis.
    pub unit: &'static str,
    /// The quantity on the horizontal axis; time in seconds if a run is plotted over time.
    pub over: &'static str,
    /// Values to compare with: horizontal lines with their names.
    pub marks: Vec<(&'static str, f64)>,
    /// The lines.
    pub lines: Draw,
}

/// A line of a plot.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// The name of its subject.
    pub name: String,
    /// Its points, from left to right.
    pub points: Vec<(f64, f64)>,
}

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
