//! A storage as a linear model, found by exciting it (Triage §3.1), and the fixed integral controller for it
//! (§3.2).
//!
//! The operating point, how many requests all consumers together may send per second, is set to white noise,
//! a new value in every sampling interval; the mean response time of each interval is the answer.
//! [`ArxModel::fit`] lays the model of eq. 1 through both:
//!
//! ```text
//! y(k) = Σ_{i=1..N} α_i·y(k−i) + Σ_{i=0..N} β_i·u(k−i)
//! ```
//!
//! y in milliseconds, u in requests per second. [`SamplingStudy`] chooses interval and order from several
//! fits, [`IntegralLoop`] is the model under the controller.

mod integral_loop;
mod least_squares;
mod roots;
mod sampling;

use thiserror::Error;
use tidegate_units::{Iops, Latency};

pub use integral_loop::{IntegralLoop, LoopPole};
pub use sampling::{RecommendedSampling, SampledFit, SamplingStudy};

/// An interval of an experiment: its input and its result.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ArxSample {
    /// u(k): the operating point that was set for the interval.
    pub operating_point: Iops,
    /// y(k): the mean response time of the requests that completed in it; `None` when none did. Neighbouring
    /// intervals then have nothing to be explained by, and are left out.
    pub response: Option<Latency>,
}

/// Choice between a line through the origin and one with a constant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ModelOffset {
    /// No constant, as eq. 1 is printed: without load, no response time.
    None,
    /// A constant is fitted besides. A storage's response time at no load is its service time, and a model
    /// without a constant has to lend it from the other parameters.
    #[default]
    Fitted,
}

/// The model: eq. 1, and a constant.
#[derive(Debug, Clone, PartialEq)]
pub struct ArxModel {
    /// α_1 to α_N.
    outputs: Vec<f64>,
    /// β_0 to β_N, in milliseconds per request per second.
    inputs: Vec<f64>,
    /// In milliseconds.
    offset: f64,
}

/// A model that was found, and how well it describes what was measured.
#[derive(Debug, Clone, PartialEq)]
pub struct ArxFit {
    /// The model.
    pub model: ArxModel,
    /// R²: the part of the variance of y that the model explains, predicting each interval from the measured
    /// ones before it. At most 1; below 0 when a model without a constant is worse than the mean.
    pub r_squared: f64,
    /// By how much what is left over says what will be left over next: the magnitude of the correlation
    /// coefficient between residuals of consecutive intervals, 0 to 1.
    ///
    /// The paper (table 2) calls its figure "correlation coefficient of the residual error", between 0 and 1,
    /// the lower the better, and gives no formula. Least squares leave nothing that correlates with what the
    /// model was given, so that only the residuals' own past can say more; this is the shortest such past.
    /// Noise alone gives about 1/√n.
    pub residual_correlation: f64,
    /// n: how many intervals could be predicted.
    pub samples: usize,
}

/// Reason that no model was found, or that numbers are no model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ArxError {
    /// Models of storage have few parameters.
    #[error("the order of a model must be between 1 and {most}, it is {0}", most = ArxModel::GREATEST_ORDER)]
    Order(usize),
    /// β has one number more than α.
    #[error("a model of order {order} has {order} numbers for the past of the response time and {} for the \
        operating point, these are {inputs}", order + 1)]
    Inputs {
        /// N.
        order: usize,
        /// Number of inputs given.
        inputs: usize,
    },
    /// A parameter is no number.
    #[error("the parameters of a model must be finite")]
    NotFinite,
    /// Any model would fit.
    #[error("{samples} intervals can be used, and {parameters} parameters need {needed}: excite for longer")]
    TooFew {
        /// Number of intervals that could be predicted.
        samples: usize,
        /// Number of parameters.
        parameters: usize,
        /// Number of intervals needed.
        needed: usize,
    },
    /// Nothing can be learned from an input that does not vary, or does so in a pattern as short as the
    /// model.
    #[error(
        "what was measured does not determine the model: the operating point or the response time hardly \
            varied, or repeated itself"
    )]
    NotExcited,
}

/// Intervals for each parameter, at the least.
const SAMPLES_PER_PARAMETER: usize = 5;

impl ArxModel {
    /// More is fitting noise.
    pub const GREATEST_ORDER: usize = 8;

    /// A model by its parameters: α_1 to α_N, and β_0 to β_N in milliseconds per request per second; without
    /// a constant.
    ///
    /// # Errors
    /// [`ArxError::Order`], [`ArxError::Inputs`], [`ArxError::NotFinite`].
    pub fn new(outputs: Vec<f64>, inputs: Vec<f64>) -> Result<Self, ArxError> {
        let order = checked_order(outputs.len())?;
        if inputs.len() != order + 1 {
            return Err(ArxError::Inputs { order, inputs: inputs.len() });
        }
        if outputs.iter().chain(&inputs).any(|number| !number.is_finite()) {
            return Err(ArxError::NotFinite);
        }
        Ok(Self { outputs, inputs, offset: 0.0 })
    }

    /// The model of this order that predicts each interval from those before it with the least sum of squared
    /// errors.
    ///
    /// # Errors
    /// [`ArxError::Order`]; [`ArxError::TooFew`]: there must be five for each parameter;
    /// [`ArxError::NotExcited`].
    pub fn fit(samples: &[ArxSample], order: usize, offset: ModelOffset) -> Result<ArxFit, ArxError> {
        let order = checked_order(order)?;
        let rows = Rows::new(samples, order, offset);
        let parameters = rows.columns.len();
        let needed = SAMPLES_PER_PARAMETER * parameters;
        if rows.responses.len() < needed {
            return Err(ArxError::TooFew { samples: rows.responses.len(), parameters, needed });
        }
        let solution =
            least_squares::solve(rows.columns.clone(), rows.responses.clone()).ok_or(ArxError::NotExcited)?;
        let (outputs, rest) = solution.split_at(order);
        let (inputs, constant) = rest.split_at(order + 1);
        let model = Self {
            outputs: outputs.to_vec(),
            inputs: inputs.to_vec(),
            offset: constant.first().copied().unwrap_or_default(),
        };
        let residuals = rows.residuals(&solution);
        let r_squared = r_squared(&rows.responses, &residuals).ok_or(ArxError::NotExcited)?;
        let residual_correlation = rows.correlation(&residuals);
        Ok(ArxFit { model, r_squared, residual_correlation, samples: residuals.len() })
    }

    /// N.
    #[must_use]
    pub const fn order(&self) -> usize {
        self.outputs.len()
    }

    /// α_1 to α_N.
    #[must_use]
    pub fn outputs(&self) -> &[f64] {
        &self.outputs
    }

    /// β_0 to β_N, in milliseconds per request per second.
    #[must_use]
    pub fn inputs(&self) -> &[f64] {
        &self.inputs
    }

    /// The constant, in milliseconds.
    #[must_use]
    pub const fn offset_ms(&self) -> f64 {
        self.offset
    }

    /// y(k) in milliseconds as the model has it. `past` is y(k−1) to y(k−N) in milliseconds, `set` is u(k) to
    /// u(k−N) in requests per second; what is missing at their ends counts as nothing.
    #[must_use]
    pub fn predict(&self, past: &[f64], set: &[f64]) -> f64 {
        let sum = |parameters: &[f64], values: &[f64]| -> f64 {
            parameters.iter().zip(values).map(|(parameter, value)| parameter * value).sum()
        };
        self.offset + sum(&self.outputs, past) + sum(&self.inputs, set)
    }

    /// By how many milliseconds the response time grows in the end when the operating point grows by one
    /// request per second and stays. `None` when it never comes to an end, or nothing is left of it.
    #[must_use]
    pub fn gain_ms_per_iops(&self) -> Option<f64> {
        let gain = self.inputs.iter().sum::<f64>() / (1.0 - self.outputs.iter().sum::<f64>());
        gain.is_finite().then_some(gain)
    }
}

fn checked_order(order: usize) -> Result<usize, ArxError> {
    if (1..=ArxModel::GREATEST_ORDER).contains(&order) { Ok(order) } else { Err(ArxError::Order(order)) }
}

/// The explained and the explaining numbers of a regression.
struct Rows {
    /// For each parameter what it is multiplied by: y(k−1) to y(k−N), u(k) to u(k−N), and 1 where there is a
    /// constant.
    columns: Vec<Vec<f64>>,
    /// y(k), in milliseconds.
    responses: Vec<f64>,
    /// k of each.
    places: Vec<usize>,
}

impl Rows {
    fn new(samples: &[ArxSample], order: usize, offset: ModelOffset) -> Self {
        let constant = usize::from(offset == ModelOffset::Fitted);
        let mut rows = Self {
            columns: vec![Vec::new(); 2 * order + 1 + constant],
            responses: Vec::new(),
            places: Vec::new(),
        };
        for (at, window) in samples.windows(order + 1).enumerate() {
            // From the latest backwards.
            let responses: Option<Vec<f64>> =
                window.iter().rev().map(|sample| Some(sample.response?.as_millis_f64())).collect();
            let Some(responses) = responses else { continue };
            let (now, past) = (responses[0], &responses[1..]);
            let set = window.iter().rev().map(|sample| sample.operating_point.per_second());
            let values = past.iter().copied().chain(set).chain([1.0]);
            for (column, value) in rows.columns.iter_mut().zip(values) {
                column.push(value);
            }
            rows.responses.push(now);
            rows.places.push(at + order);
        }
        rows
    }

    fn residuals(&self, parameters: &[f64]) -> Vec<f64> {
        let predicted = |row: usize| -> f64 {
            self.columns.iter().zip(parameters).map(|(column, parameter)| parameter * column[row]).sum()
        };
        self.responses.iter().enumerate().map(|(row, response)| response - predicted(row)).collect()
    }

    /// Between residuals of intervals that follow each other. Zero where nothing is left over.
    fn correlation(&self, residuals: &[f64]) -> f64 {
        let consecutive = self.places.windows(2).zip(residuals.windows(2));
        let pairs = consecutive
            .filter(|(places, _)| places[0] + 1 == places[1])
            .map(|(_, residuals)| (residuals[0], residuals[1]));
        let (count, first, second) =
            pairs.clone().fold((0u32, 0.0, 0.0), |(n, x, y), pair| (n + 1, x + pair.0, y + pair.1));
        let (first, second) = (first / f64::from(count.max(1)), second / f64::from(count.max(1)));
        let (xx, xy, yy) = pairs.fold((0.0, 0.0, 0.0), |(xx, xy, yy), (x, y)| {
            let (x, y) = (x - first, y - second);
            (xx + x * x, xy + x * y, yy + y * y)
        });
        let coefficient = (xy / (xx * yy).sqrt()).abs();
        if coefficient.is_finite() { coefficient.min(1.0) } else { 0.0 }
    }
}

/// `None` when the responses do not vary: there is nothing to explain.
fn r_squared(responses: &[f64], residuals: &[f64]) -> Option<f64> {
    let mean = responses.iter().sum::<f64>() / responses.len() as f64;
    let all: f64 = responses.iter().map(|response| (response - mean).powi(2)).sum();
    let left: f64 = residuals.iter().map(|residual| residual * residual).sum();
    let part = 1.0 - left / all;
    part.is_finite().then_some(part)
}

#[cfg(test)]
mod tests;
