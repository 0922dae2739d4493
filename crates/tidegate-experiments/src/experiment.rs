//! An experiment as data: runs, quantities that are judged, figures that are reported, and plots.

use std::fmt;

use tidegate_sim::Scenario;

use super::{ExperimentTexts, RunSubject, SeedTrial, Tolerance, experiment_texts};

/// An experiment of a paper.
pub struct Experiment {
    /// `paper.what`, such as `parda.fig8`.
    pub id: &'static str,
    /// The words about it.
    pub texts: ExperimentTexts,
    /// The simulations.
    pub runs: Vec<NamedRun>,
    /// The quantities that are judged.
    pub quantities: Vec<JudgedQuantity>,
    /// The figures reported without a verdict, because they depend on hardware, or stand for themselves.
    pub figures: Vec<ReportedFigure>,
    /// The plots.
    pub plots: Vec<Plot>,
}

impl Experiment {
    /// The experiment of this name with its words, and without anything to do.
    pub(super) fn of(id: &'static str) -> Self {
        let texts = experiment_texts(id).unwrap_or_else(|| panic!("there are no words about {id}")).clone();
        let (runs, quantities) = (Vec::new(), Vec::new());
        Self { id, texts, runs, quantities, figures: Vec::new(), plots: Vec::new() }
    }
}

impl fmt::Debug for Experiment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Experiment").field("id", &self.id).finish_non_exhaustive()
    }
}

/// A simulation under the name that an experiment gives it.
#[derive(Debug, Clone, PartialEq)]
pub struct NamedRun {
    /// The experiment's name for it.
    pub name: String,
    /// The subject of the simulation.
    pub subject: RunSubject,
}

impl NamedRun {
    /// A run.
    #[must_use]
    pub fn new(name: impl Into<String>, subject: impl Into<RunSubject>) -> Self {
        Self { name: name.into(), subject: subject.into() }
    }

    /// The same with something changed in its scenario, where it is one.
    #[must_use]
    pub fn but(mut self, change: impl FnOnce(&mut Scenario)) -> Self {
        if let RunSubject::Scenario(scenario) = &mut self.subject {
            change(scenario);
        }
        self
    }
}

/// Finds a number in the runs under one seed; `None` if there was nothing to measure.
pub type RunMeasure = Box<dyn Fn(&SeedTrial<'_>) -> Option<f64> + Send + Sync>;

/// A number that is judged.
pub struct JudgedQuantity {
    /// Its name.
    pub name: String,
    /// Its unit; empty for a ratio.
    pub unit: &'static str,
    /// The paper's figure, where it gives one.
    pub paper: Option<f64>,
    /// The tolerance: the results that agree with the paper.
    pub accepts: Tolerance,
    /// The measurement.
    pub measure: RunMeasure,
}

impl JudgedQuantity {
    /// A quantity without a figure of the paper.
    pub fn new(
        name: impl Into<String>,
        accepts: Tolerance,
        measure: impl Fn(&SeedTrial<'_>) -> Option<f64> + Send + Sync + 'static,
    ) -> Self {
        Self { name: name.into(), unit: "", paper: None, accepts, measure: Box::new(measure) }
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
pub struct ReportedFigure {
    /// Its name.
    pub name: String,
    /// Its unit; empty for a ratio.
    pub unit: &'static str,
    /// The paper's figure, where it gives one.
    pub paper: Option<f64>,
    /// The measurement.
    pub measure: RunMeasure,
}

impl ReportedFigure {
    /// A figure.
    pub fn new(
        name: impl Into<String>,
        unit: &'static str,
        paper: Option<f64>,
        measure: impl Fn(&SeedTrial<'_>) -> Option<f64> + Send + Sync + 'static,
    ) -> Self {
        Self { name: name.into(), unit, paper, measure: Box::new(measure) }
    }
}

/// Finds the lines of a plot in the runs under one seed.
pub type DrawLines = Box<dyn Fn(&SeedTrial<'_>) -> Vec<PlotLine> + Send + Sync>;

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
    pub lines: DrawLines,
}

/// A line of a plot.
#[derive(Debug, Clone, PartialEq)]
pub struct PlotLine {
    /// The name of its subject.
    pub name: String,
    /// Its points, from left to right.
    pub points: Vec<(f64, f64)>,
}
