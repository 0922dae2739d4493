//! Bjørgeengen: J. Bjørgeengen, H. Haugerud, *Using TCP/IP Traffic Shaping to Achieve iSCSI Service
//! Predictability*, LISA 2010.
//!
//! Requests travel over the model of [`iscsi`](tidegate_sim::iscsi), to the storage of the paper's
//! laboratory. That is the preset `sata-stripe`, which was fitted to the paper's unregulated figures before
//! this model was there. The law is the agent's: its loop, its PID, its sets of writers.
//!
//! Hardware decides the paper's absolute numbers. They are reported beside ours; the verdicts are on the
//! paper's statements about them: ratios, lines, order. Tolerances were written down before the first run of
//! the experiment that they belong to.

mod agent;
mod delay;
mod interference;
mod lab;
mod laboratory;
mod sharing;
mod thresholds;

use tidegate_sim::SeriesSample;

use super::measure::{of, ratio};
use super::{Experiment, Plot, PlotLine, RunResult, TimeSpan};

/// All of the paper's experiments, in its order, after the one that says how far to trust them.
pub(super) fn experiments() -> Vec<Experiment> {
    vec![
        lab::lab(),
        sharing::figs5_to_7(),
        delay::figs8_and_9(),
        interference::fig10(),
        interference::fig11(),
        thresholds::figs12_and_13(),
        thresholds::equation2(),
        thresholds::figs14_and_15(),
        thresholds::fig16(),
        agent::agent(),
    ]
}

/// Returns the mean rate of machines together, in MB/s.
fn megabytes(run: &RunResult, machines: &[&str], span: TimeSpan) -> Option<f64> {
    let mut sum = 0.0;
    for machine in machines {
        sum += run.mean(machine, span, |sample| Some(sample.bytes_per_s))?;
    }
    Some(sum * 1e-6)
}

/// A number of machines over the time of a run, all together.
fn sum_line(run: &RunResult, name: &str, machines: &[&str], number: fn(&SeriesSample) -> f64) -> PlotLine {
    let mut points: Vec<(f64, f64)> = Vec::new();
    for track in run.tracks.iter().filter(|track| machines.contains(&track.consumer.as_str())) {
        for (place, (end, sample)) in track.samples.iter().enumerate() {
            match points.get_mut(place) {
                Some(point) => point.1 += number(sample),
                None => points.push((*end, number(sample))),
            }
        }
    }
    PlotLine { name: name.to_owned(), points }
}

/// Returns the line of a machine's mean response times over a run, in milliseconds.
fn wait_line(run: &RunResult, name: &str, machine: &str) -> PlotLine {
    let points = run
        .tracks
        .iter()
        .filter(|track| track.consumer.as_str() == machine)
        .flat_map(|track| &track.samples)
        .filter_map(|(end, sample)| Some((*end, sample.latency_ms?)))
        .collect();
    PlotLine { name: name.to_owned(), points }
}

/// A plot over the time of runs: a line of each.
fn over_time(
    title: &str,
    unit: &'static str,
    runs: Vec<String>,
    marks: Vec<(&'static str, f64)>,
    line: fn(&RunResult, &str) -> PlotLine,
) -> Plot {
    Plot {
        title: title.to_owned(),
        unit,
        over: "s",
        marks,
        lines: Box::new(move |trial| {
            runs.iter().filter_map(|name| trial.run(name).map(|run| line(run, name))).collect()
        }),
    }
}

/// A straight line through points, by least squares.
#[derive(Debug, Clone, Copy, PartialEq)]
struct LineFit {
    slope: f64,
    /// The part of the variance that the line explains; `None` where nothing varies.
    r2: Option<f64>,
}

/// `None` unless there are points at two different places.
fn fit(points: &[(f64, f64)]) -> Option<LineFit> {
    let count = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(|point| point.0), mean(|point| point.1));
    let sum = |of: fn(f64, f64) -> f64| points.iter().map(|point| of(point.0 - x, point.1 - y)).sum::<f64>();
    let (xx, xy, yy) = (sum(|a, _| a * a), sum(|a, b| a * b), sum(|_, b| b * b));
    (xx > 0.0).then(|| LineFit { slope: xy / xx, r2: (yy > 0.0).then(|| xy * xy / (xx * yy)) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_found_and_a_bend_is_none() {
        let line = fit(&[(0.0, 1.0), (1.0, 3.0), (2.0, 5.0)]).unwrap();
        assert!((line.slope - 2.0).abs() < 1e-12 && (line.r2.unwrap() - 1.0).abs() < 1e-12);
        let bend = fit(&[(0.0, 0.0), (1.0, 0.0), (2.0, 0.0), (3.0, 3.0)]).unwrap();
        assert!(bend.r2.unwrap() < 0.7);
        let level = fit(&[(0.0, 1.0), (1.0, 1.0)]);
        assert_eq!(level, Some(LineFit { slope: 0.0, r2: None }), "what does not vary is not explained");
        assert_eq!(fit(&[(1.0, 1.0), (1.0, 2.0)]), None);
        assert_eq!(fit(&[]), None);
    }
}
