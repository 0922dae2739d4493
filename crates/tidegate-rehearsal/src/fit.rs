//! The fit of the storage model: least squares on the logarithms of mean latencies.
//!
//! Levenberg and Marquardt's method finds the logarithms of s, w and a, for a given form of the curve.
//! Requests are counted by their information: the mean of n latencies scatters by about 1/√n, and the model
//! itself by some per cent.

use crate::recording::Recording;
use crate::storage_model::{CurveShape, RequestClasses, StorageModel};

/// The most samples that a fit takes. Of more, every second, third and so on is taken.
const MOST_SAMPLES: usize = 6_000;

/// Length of a sample: this many mean latencies, and so many requests in the quiet time. Bounds in seconds.
/// Of few requests, the number outstanding is as much a matter of chance as their latency, and the two
/// scatter together.
const SAMPLE: (f64, f64) = (20.0, 200.0);
const SAMPLE_SECONDS: (f64, f64) = (1.0, 30.0);

/// The variance of the model itself, of logarithms: a tenth squared.
const MODEL_VARIANCE: f64 = 0.01;

/// The weights of the first guesses of s, w and a, which are standard deviations of a third. They decide
/// where the samples say nothing. A class that is only seen under load has the unloaded latency of the
/// others, and of classes that always come together each brings as much work.
const PRIOR: [f64; 3] = [10.0, 10.0, 10.0];

/// Requests that a class needs for a guess of the unloaded latency.
const HEARD: f64 = 200.0;

const MOST_TURNS: usize = 30;

/// Measurements over a second or some seconds.
#[derive(Debug, Clone)]
pub(crate) struct LoadSample {
    /// Block of the recording that it is in.
    pub(crate) block: usize,
    /// Mean number outstanding of each class.
    pub(crate) outstanding: Vec<f64>,
    /// Number of completed requests of each class, and the sum of their latencies.
    pub(crate) completed: Vec<(f64, f64)>,
}

/// Samples of a recording, and the number of its blocks.
#[derive(Debug, Clone)]
pub(crate) struct LoadSamples {
    pub(crate) samples: Vec<LoadSample>,
    pub(crate) blocks: usize,
    /// Length of a block in seconds.
    pub(crate) block_seconds: f64,
}

impl LoadSamples {
    /// Measures a recording in blocks of this length.
    pub(crate) fn of_recording(recording: &Recording, classes: &RequestClasses, block_seconds: f64) -> Self {
        let (mut count, mut total) = (0.0, 0.0);
        for activity in &recording.activities {
            count += activity.count();
            total += activity.completed.iter().map(|kind| f64::from(kind.latency)).sum::<f64>();
        }
        let by_latency = if count > 0.0 { SAMPLE.0 * total / count } else { 0.0 };
        let by_rate = SAMPLE.1 / recording.quiet_rate();
        let length = f64::max(by_latency, by_rate).clamp(SAMPLE_SECONDS.0, SAMPLE_SECONDS.1);
        let mut samples = Vec::new();
        let mut gathered = Gathered::new(classes.len());
        let mut time = 0.0;
        for (at, step) in recording.steps.iter().enumerate() {
            if step.begins {
                gathered.clear();
            }
            let elapsed = f64::from(step.elapsed);
            time += elapsed;
            if !recording.is_steady(at) {
                gathered.clear();
                continue;
            }
            gathered.seconds += elapsed;
            for activity in recording.activities(at) {
                let class = classes.of(activity.consumer as usize);
                let outstanding = activity.at_resource(elapsed);
                for kind in 0..2 {
                    gathered.outstanding[class[kind]] += outstanding[kind] * elapsed;
                    let sums = &mut gathered.completed[class[kind]];
                    sums.0 += f64::from(activity.completed[kind].count);
                    sums.1 += f64::from(activity.completed[kind].latency);
                }
            }
            if gathered.seconds >= length - 1e-6 {
                samples.extend(gathered.sample((time / block_seconds) as usize));
                gathered.clear();
            }
        }
        let blocks = (time / block_seconds) as usize + 1;
        let stride = samples.len().div_ceil(MOST_SAMPLES).max(1);
        Self { samples: samples.into_iter().step_by(stride).collect(), blocks, block_seconds }
    }
}

/// A sample under way.
struct Gathered {
    seconds: f64,
    outstanding: Vec<f64>,
    completed: Vec<(f64, f64)>,
}

impl Gathered {
    fn new(classes: usize) -> Self {
        Self { seconds: 0.0, outstanding: vec![0.0; classes], completed: vec![(0.0, 0.0); classes] }
    }

    fn clear(&mut self) {
        self.seconds = 0.0;
        self.outstanding.fill(0.0);
        self.completed.fill((0.0, 0.0));
    }

    /// Returns the sample, if any request completed.
    fn sample(&self, block: usize) -> Option<LoadSample> {
        self.completed.iter().any(|sums| sums.0 > 0.0).then(|| LoadSample {
            block,
            outstanding: self.outstanding.iter().map(|sum| sum / self.seconds).collect(),
            completed: self.completed.clone(),
        })
    }
}

/// Returns the model of this form that fits samples best, each counted as often as its block's weight says.
pub(crate) fn fit(
    shape: CurveShape,
    samples: &[LoadSample],
    weight: &dyn Fn(usize) -> f64,
    classes: usize,
) -> StorageModel {
    let first = first_guess(shape, samples, classes);
    let mut theta = first.clone();
    let mut damping = 1e-2;
    let mut normal = Normal::of(shape, samples, weight, &theta, &first);
    for _ in 0..MOST_TURNS {
        let Some(change) = normal.solve(damping) else { break };
        let moved: Vec<f64> = theta.iter().zip(&change).map(|(at, by)| at + by.clamp(-1.0, 1.0)).collect();
        let next = Normal::of(shape, samples, weight, &moved, &first);
        if next.error < normal.error {
            let gain = (normal.error - next.error) / normal.error.max(f64::MIN_POSITIVE);
            (theta, normal, damping) = (moved, next, damping * 0.3);
            if gain < 1e-5 {
                break;
            }
        } else {
            damping *= 8.0;
            if damping > 1e8 {
                break;
            }
        }
    }
    model_of(shape, &theta)
}

/// Returns the mean squared residual of a model on samples, in units of its expected variance.
pub(crate) fn misfit(model: &StorageModel, samples: &[LoadSample], weight: &dyn Fn(usize) -> f64) -> f64 {
    let (mut sum, mut weights) = (0.0, 0.0);
    for sample in samples {
        let weight = weight(sample.block);
        if weight == 0.0 {
            continue;
        }
        let work = sample.outstanding.iter().zip(&model.work).map(|(n, w)| n * w).sum();
        let load = model.load(work);
        for (class, (count, total)) in sample.completed.iter().enumerate() {
            if *count > 0.0 && *total > 0.0 {
                let residual = (total / count).ln() - model.latency(class, load).ln();
                sum += weight * residual * residual / variance(*count);
                weights += weight;
            }
        }
    }
    sum / f64::max(weights, 1.0)
}

/// The expected variance of the logarithm of a mean.
fn variance(count: f64) -> f64 {
    MODEL_VARIANCE + 1.0 / count
}

fn model_of(shape: CurveShape, theta: &[f64]) -> StorageModel {
    let classes = theta.len() / PRIOR.len();
    let exp = |at: usize| theta[at * classes..(at + 1) * classes].iter().map(|value| value.exp()).collect();
    StorageModel { shape, unloaded: exp(0), work: exp(1), felt: exp(2) }
}

/// Returns the logarithms of s, then of w and of a, to begin with. They are the same for all classes. s is
/// the least latency of a class that a tenth of its samples stay below. w is the latency over all requests
/// outstanding, in the fifth of the samples with the most of these. a is 1.
fn first_guess(shape: CurveShape, samples: &[LoadSample], classes: usize) -> Vec<f64> {
    let mut least = f64::INFINITY;
    for class in 0..classes {
        let heard = samples.iter().map(|sample| sample.completed[class]).filter(|sums| sums.0 > 0.0);
        let requests: f64 = heard.clone().map(|sums| sums.0).sum();
        let mut latencies: Vec<f64> = heard.map(|(count, total)| total / count).collect();
        if let Some(low) = quantile(&mut latencies, 0.1).filter(|_| requests >= HEARD) {
            least = least.min(low.max(1e-7));
        }
    }
    let all = |sample: &LoadSample| sample.outstanding.iter().sum::<f64>();
    let most = quantile(&mut samples.iter().map(all).collect::<Vec<f64>>(), 0.8).unwrap_or(0.0);
    let (mut count, mut total, mut outstanding, mut loaded) = (0.0, 0.0, 0.0, 0.0);
    for sample in samples.iter().filter(|sample| all(sample) >= most) {
        for sums in &sample.completed {
            (count, total) = (count + sums.0, total + sums.1);
        }
        (outstanding, loaded) = (outstanding + all(sample), loaded + 1.0);
    }
    let latency = if count > 0.0 { total / count } else { 1e-3 }.max(1e-7);
    let outstanding = (outstanding / f64::max(loaded, 1.0)).max(1.0);
    let least = if least.is_finite() { least } else { latency };
    let mut theta = vec![least.ln(); classes];
    theta.resize(2 * classes, (latency.powf(1.0 / shape.growth) / outstanding).ln());
    theta.resize(PRIOR.len() * classes, 0.0);
    theta
}

/// Returns a quantile of values, which it sorts. `None` if there are none.
pub(crate) fn quantile(values: &mut [f64], part: f64) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let last = values.len().checked_sub(1)?;
    values.get((part * last as f64).round() as usize).copied()
}

/// The normal equations at a point.
struct Normal {
    /// JᵀJ and Jᵀr, by rows.
    matrix: Vec<f64>,
    gradient: Vec<f64>,
    error: f64,
    /// Slopes of the residual under way, by parameter.
    row: Vec<(usize, f64)>,
}

impl Normal {
    fn of(
        shape: CurveShape,
        samples: &[LoadSample],
        weight: &dyn Fn(usize) -> f64,
        theta: &[f64],
        first: &[f64],
    ) -> Self {
        let size = theta.len();
        let classes = size / PRIOR.len();
        let model = model_of(shape, theta);
        let mut normal =
            Self { matrix: vec![0.0; size * size], gradient: vec![0.0; size], error: 0.0, row: Vec::new() };
        let mut slopes = vec![0.0; classes];
        for sample in samples {
            let weight = weight(sample.block);
            if weight == 0.0 {
                continue;
            }
            let of_classes = sample.outstanding.iter().zip(&model.work);
            for (slope, (outstanding, work)) in slopes.iter_mut().zip(of_classes) {
                *slope = outstanding * work;
            }
            let work: f64 = slopes.iter().sum();
            // ∂ ln U / ∂ ln w.
            slopes.iter_mut().for_each(|slope| *slope *= shape.growth / work.max(f64::MIN_POSITIVE));
            let load = model.load(work);
            for (class, (count, total)) in sample.completed.iter().enumerate() {
                if *count > 0.0 && *total > 0.0 {
                    let latency = model.latency(class, load);
                    let residual = (total / count).ln() - latency.ln();
                    let own = (model.unloaded[class] / latency).powf(shape.sharpness);
                    normal.add(class, own, &slopes, residual, weight / variance(*count));
                }
            }
        }
        for at in 0..size {
            let away = first[at] - theta[at];
            let prior = PRIOR[at / classes];
            normal.matrix[at * size + at] += prior;
            normal.gradient[at] += prior * away;
            normal.error += prior * away * away;
        }
        normal
    }

    /// Adds a residual. `own` is ∂ ln R / ∂ ln s, and the rest of 1 is ∂ ln R / ∂ ln U.
    fn add(&mut self, class: usize, own: f64, slopes: &[f64], residual: f64, weight: f64) {
        let classes = slopes.len();
        let size = self.gradient.len();
        let by_load = 1.0 - own;
        self.error += weight * residual * residual;
        let by_work = slopes.iter().enumerate().map(|(at, slope)| (classes + at, by_load * slope));
        let by_own = [(class, own), (2 * classes + class, by_load)];
        self.row.clear();
        self.row.extend(by_own.into_iter().chain(by_work).filter(|(_, slope)| *slope != 0.0));
        for &(row, by_row) in &self.row {
            self.gradient[row] += weight * by_row * residual;
            for &(column, by_column) in &self.row {
                self.matrix[row * size + column] += weight * by_row * by_column;
            }
        }
    }

    /// Returns the damped step, by Gaussian elimination. `None` where there is none.
    fn solve(&self, damping: f64) -> Option<Vec<f64>> {
        let size = self.gradient.len();
        let (mut matrix, mut right) = (self.matrix.clone(), self.gradient.clone());
        for at in 0..size {
            matrix[at * size + at] *= 1.0 + damping;
        }
        // The matrix is positive definite: no pivoting is needed.
        for pivot in 0..size {
            let value = matrix[pivot * size + pivot];
            if !value.is_finite() || value <= 0.0 {
                return None;
            }
            for row in pivot + 1..size {
                let factor = matrix[row * size + pivot] / value;
                if factor != 0.0 {
                    for column in pivot..size {
                        matrix[row * size + column] -= factor * matrix[pivot * size + column];
                    }
                    right[row] -= factor * right[pivot];
                }
            }
        }
        for row in (0..size).rev() {
            let known: f64 = (row + 1..size).map(|column| matrix[row * size + column] * right[column]).sum();
            right[row] = (right[row] - known) / matrix[row * size + row];
        }
        right.iter().all(|value| value.is_finite()).then_some(right)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn true_model(shape: CurveShape) -> StorageModel {
        StorageModel { shape, unloaded: vec![0.006, 0.011], work: vec![0.002, 0.005], felt: vec![1.0, 1.0] }
    }

    /// Samples of a known model, at many loads: so many that the first guesses fade.
    fn samples(model: &StorageModel) -> Vec<LoadSample> {
        let loads = (0..4_000).map(|at| [1.0 + f64::from(at % 7), f64::from(at % 31)]);
        loads
            .enumerate()
            .map(|(at, outstanding)| {
                let load = model.load(outstanding[0] * model.work[0] + outstanding[1] * model.work[1]);
                let latency = |class| model.latency(class, load);
                let completed = vec![(50.0, 50.0 * latency(0)), (80.0, 80.0 * latency(1))];
                LoadSample { block: at / 20, outstanding: outstanding.to_vec(), completed }
            })
            .collect()
    }

    #[test]
    fn a_model_is_found_again_from_its_own_latencies() {
        for shape in CurveShape::all() {
            let true_model = true_model(shape);
            let samples = samples(&true_model);
            let found = fit(shape, &samples, &|_| 1.0, 2);
            let error = misfit(&found, &samples, &|_| 1.0);
            assert!(error < 0.01, "{shape:?}: {error}");
            // Work and what a class feels of the load can be exchanged for one another: latencies cannot.
            for outstanding in [[1.0, 0.0], [3.0, 10.0], [7.0, 30.0]] {
                let latencies = |model: &StorageModel| {
                    let work = outstanding.iter().zip(&model.work).map(|(n, work)| n * work).sum();
                    [0, 1].map(|class| model.latency(class, model.load(work)))
                };
                let (one, other) = (latencies(&found), latencies(&true_model));
                let is_near = |(one, other): (f64, f64)| (one / other - 1.0).abs() < 0.1;
                assert!(one.into_iter().zip(other).all(is_near), "{one:?} for {other:?}: {found:?}");
            }
        }
    }

    #[test]
    fn another_shape_fits_worse() {
        let shape = CurveShape { sharpness: 16.0, growth: 1.0 };
        let true_model = true_model(shape);
        let samples = samples(&true_model);
        let line = CurveShape { sharpness: 1.0, growth: 1.0 };
        let model = fit(line, &samples, &|_| 1.0, 2);
        assert!(misfit(&model, &samples, &|block| f64::from(u8::from(block % 2 == 1))) > 0.05);
    }
}
