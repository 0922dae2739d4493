//! Measurements that the experiments of all papers are made of.

use super::{RunResult, SeedTrial};

/// A number of a run, found by the run's name.
pub(super) fn of(
    run: impl Into<String>,
    measure: impl Fn(&RunResult) -> Option<f64> + Send + Sync + 'static,
) -> impl Fn(&SeedTrial<'_>) -> Option<f64> + Send + Sync + 'static {
    let run = run.into();
    move |trial| measure(trial.run(&run)?)
}

/// The ratio of two measurements.
pub(super) fn ratio(above: Option<f64>, below: Option<f64>) -> Option<f64> {
    let below = below?;
    (below > 0.0).then_some(above? / below)
}
