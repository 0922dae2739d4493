//! `tidegate identify --model … --excite`: a linear model of the storage, and a fixed integral controller for
//! it.

use std::fmt::{self, Write as _};
use std::time::Duration;

use serde::Serialize;
use tidegate_control::{
    ArxModel, ArxSample, ControllerGain, IntegralLoop, ModelOffset, RecommendedSampling, SampledFit,
    SamplingStudy,
};
use tidegate_sim::excite::Excitation;
use tidegate_units::{Iops, Latency};

use super::profile::{SIZE, offer};
use super::{Args, arx_page, show};
use crate::columns::{heading, write_rows};
use crate::failure::CommandFailure;

/// Sampling intervals: those of Triage's table 2.
const INTERVALS: [Duration; 5] = [
    Duration::from_millis(100),
    Duration::from_millis(300),
    Duration::from_millis(500),
    Duration::from_millis(750),
    Duration::from_millis(1_000),
];

/// Orders that are tried.
const ORDERS: [usize; 3] = [1, 2, 3];

/// Around this part of what the storage completes, so that the noise ends there: half of it lies to either
/// side.
const AROUND: f64 = 2.0 / 3.0;

/// A model that describes less than this part of how response times vary is none to base a controller on. The
/// paper's disk has 0.42.
const DESCRIBES: f64 = 0.1;

/// The number of gains for which the settling time and the overshoot are shown.
const GAINS: u32 = 100;

/// The identified model of an excited storage.
pub(super) struct ExcitedModel {
    /// The storage's name, as it was given.
    pub(super) model: String,
    excitation: Excitation,
    seed: u64,
    sampling: SamplingStudy,
    /// Reasons for doubt: intervals and orders without a fit, a fit that describes nothing.
    warnings: Vec<String>,
    pub(super) recommended: RecommendedSampling,
    pub(super) arx: ArxModel,
    /// The samples that the recommended model was fitted to.
    pub(super) samples: Vec<ArxSample>,
    gain: Option<ControllerGain>,
}

/// The JSON document. Times in seconds, rates in requests per second, gains in requests per second for each
/// millisecond.
#[derive(Serialize)]
struct ArxDocument<'a> {
    model: &'a str,
    from_iops: Iops,
    to_iops: Iops,
    clients: u32,
    samples: u32,
    seed: u64,
    fits: Vec<Fit<'a>>,
    recommended: Choice<'a>,
    warnings: &'a [String],
}

#[derive(Serialize)]
struct Fit<'a> {
    interval_s: f64,
    order: usize,
    r_squared: f64,
    residual_correlation: f64,
    samples: usize,
    alpha: &'a [f64],
    beta_ms_per_iops: &'a [f64],
    offset_ms: f64,
}

#[derive(Serialize)]
struct Choice<'a> {
    interval_s: f64,
    shortest_interval_s: f64,
    order: usize,
    alpha: &'a [f64],
    beta_ms_per_iops: &'a [f64],
    offset_ms: f64,
    /// Null where no gain makes the loop stable.
    stable_below_iops_per_ms: Option<f64>,
    controller_gain_iops_per_ms: Option<f64>,
    settling_intervals: Option<u32>,
    overshoot: Option<f64>,
    poles: Vec<PoleDocument>,
    gains: Vec<GainDocument>,
}

#[derive(Serialize)]
struct PoleDocument {
    real: f64,
    imaginary: f64,
}

#[derive(Serialize)]
struct GainDocument {
    gain_iops_per_ms: f64,
    settling_intervals: Option<u32>,
    overshoot: Option<f64>,
}

pub(super) fn run(model: &str, args: &Args) -> Result<(), CommandFailure> {
    let found = excite(model, args)?;
    show(&found, &found.document(), || arx_page::write(&found), args)
}

fn excite(model: &str, args: &Args) -> Result<ExcitedModel, CommandFailure> {
    let (mut offer, contracted) = offer(model, args.size)?;
    if contracted.is_some() {
        return Err(CommandFailure::Usage(format!(
            "{model} has tenants: --excite sends reads of one size, leave them out"
        )));
    }
    offer.seed = args.effort.seed;
    let around = match args.rate {
        Some(rate) => rate,
        None => Iops::new(AROUND * offer.capacity().map_err(CommandFailure::Scenario)?.per_second()),
    };
    let excitation = Excitation::new(offer.device, args.size.unwrap_or(SIZE), around);
    let (mut fits, mut warnings, mut measured) = (Vec::new(), Vec::new(), Vec::new());
    for interval in INTERVALS {
        let samples = excitation.samples(interval, args.effort.seed).map_err(CommandFailure::Scenario)?;
        for order in ORDERS {
            match ArxModel::fit(&samples, order, ModelOffset::Fitted) {
                Ok(fit) => fits.push(SampledFit { interval, fit }),
                Err(error) => {
                    warnings
                        .push(format!("no fit of order {order} every {}: {error}", Latency::from(interval)));
                }
            }
        }
        measured.push((interval, samples));
    }
    let sampling = SamplingStudy::new(fits);
    // Of intervals without a fit the longest says why: shorter ones have even less in them.
    let unknown = || CommandFailure::Model(warnings.last().cloned().unwrap_or_default());
    let recommended = sampling.recommended().ok_or_else(unknown)?;
    let fit = sampling.fit(recommended.interval, recommended.order).ok_or_else(unknown)?;
    let (arx, r_squared) = (fit.model.clone(), fit.r_squared);
    if r_squared < DESCRIBES {
        warnings.push(format!(
            "of how response times vary the model describes {:.1} %, which is nothing to base a controller \
                on: try another --rate, around two \
             thirds of what the storage can do",
            100.0 * r_squared.max(0.0)
        ));
    }
    let samples = measured.into_iter().find(|(interval, _)| *interval == recommended.interval);
    Ok(ExcitedModel {
        model: model.to_owned(),
        excitation,
        seed: args.effort.seed,
        gain: arx.recommended_gain(),
        samples: samples.map(|(_, samples)| samples).unwrap_or_default(),
        sampling,
        warnings,
        recommended,
        arx,
    })
}

impl ExcitedModel {
    /// Returns a description of the measurement.
    pub(super) fn effort(&self) -> String {
        let [from, to] = self.excitation.range();
        format!(
            "white noise between {from} and {to}, {} clients with one read of {} each, {} samples per \
                interval, seed {}",
            self.excitation.clients, self.excitation.size, self.excitation.intervals, self.seed
        )
    }

    /// Settling time in intervals and overshoot as a part of the step, over gains up to the greatest stable
    /// one.
    pub(super) fn curve(&self) -> Vec<(ControllerGain, Option<u32>, Option<f64>)> {
        let point = |gain| {
            let under = IntegralLoop::new(&self.arx, gain);
            (gain, under.settling_intervals(), under.overshoot())
        };
        self.arx.gains(GAINS).map(point).collect()
    }

    /// Returns the recommendation, a sentence each.
    pub(super) fn sentences(&self) -> [String; 3] {
        let RecommendedSampling { interval, order, shortest } = self.recommended;
        let away =
            if interval > shortest { "" } else { "; a longer one would be farther from where it is not" };
        [
            format!(
                "Recommended: a sample every {}, and a model of order {order}. It is nearly as good with \
                    samples every {} or \
                 longer{away}.",
                Latency::from(interval),
                Latency::from(shortest),
            ),
            format!("Model, in ms and IO/s: {}.", self.equation()),
            self.tuning(),
        ]
    }

    fn equation(&self) -> String {
        let mut said = "y(k) =".to_owned();
        let mut add = |number: f64, digits: usize, of: &str| {
            let sign = match (number < 0.0, said.ends_with('=')) {
                (true, _) => "− ",
                (false, true) => "",
                (false, false) => "+ ",
            };
            let _ = write!(said, " {sign}{:.digits$}{of}", number.abs());
        };
        for (back, alpha) in (1..).zip(self.arx.outputs()) {
            add(*alpha, 4, &format!("·y(k−{back})"));
        }
        for (back, beta) in (0..).zip(self.arx.inputs()) {
            let when = if back == 0 { "k".to_owned() } else { format!("k−{back}") };
            add(*beta, 6, &format!("·u({when})"));
        }
        add(self.arx.offset_ms(), 3, "");
        said
    }

    fn tuning(&self) -> String {
        let (Some(bound), Some(gain)) = (self.arx.stable_below(), self.gain) else {
            return "No fixed integral controller is stable on it: response times do not grow with the rate \
                there. Look at \
                    another --rate, around two thirds of what the storage can do."
                .to_owned();
        };
        let under = IntegralLoop::new(&self.arx, gain);
        let settling = under.settling_intervals().map_or_else(|| "no".to_owned(), |count| count.to_string());
        format!(
            "A fixed integral controller is stable below K_I = {bound}. Recommended: {gain}; it then settles \
                within 2 % of a step in \
             {settling} intervals, and goes beyond it by {:.1} %.",
            100.0 * under.overshoot().unwrap_or_default(),
        )
    }

    /// Returns the reasons for doubt.
    pub(super) fn warnings(&self) -> &[String] {
        &self.warnings
    }

    fn document(&self) -> ArxDocument<'_> {
        let [from_iops, to_iops] = self.excitation.range();
        let under = self.gain.map(|gain| IntegralLoop::new(&self.arx, gain));
        let poles = under.iter().flat_map(IntegralLoop::poles);
        let gains = self.curve().into_iter().map(|(gain, settling_intervals, overshoot)| GainDocument {
            gain_iops_per_ms: gain.iops_per_ms(),
            settling_intervals,
            overshoot,
        });
        ArxDocument {
            model: &self.model,
            from_iops,
            to_iops,
            clients: self.excitation.clients,
            samples: self.excitation.intervals,
            seed: self.seed,
            fits: self.sampling.fits().iter().map(Fit::of).collect(),
            recommended: Choice {
                interval_s: self.recommended.interval.as_secs_f64(),
                shortest_interval_s: self.recommended.shortest.as_secs_f64(),
                order: self.recommended.order,
                alpha: self.arx.outputs(),
                beta_ms_per_iops: self.arx.inputs(),
                offset_ms: self.arx.offset_ms(),
                stable_below_iops_per_ms: self.arx.stable_below().map(ControllerGain::iops_per_ms),
                controller_gain_iops_per_ms: self.gain.map(ControllerGain::iops_per_ms),
                settling_intervals: under.as_ref().and_then(IntegralLoop::settling_intervals),
                overshoot: under.as_ref().and_then(IntegralLoop::overshoot),
                poles: poles
                    .map(|pole| PoleDocument { real: pole.real, imaginary: pole.imaginary })
                    .collect(),
                gains: gains.collect(),
            },
            warnings: &self.warnings,
        }
    }
}

impl<'a> Fit<'a> {
    fn of(SampledFit { interval, fit }: &'a SampledFit) -> Self {
        Self {
            interval_s: interval.as_secs_f64(),
            order: fit.model.order(),
            r_squared: fit.r_squared,
            residual_correlation: fit.residual_correlation,
            samples: fit.samples,
            alpha: fit.model.outputs(),
            beta_ms_per_iops: fit.model.inputs(),
            offset_ms: fit.model.offset_ms(),
        }
    }
}

impl fmt::Display for ExcitedModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}; {}\n", self.model, self.effort())?;
        let mut rows = vec![heading(&["interval", "order", "R²", "residuals' correlation"])];
        for SampledFit { interval, fit } in self.sampling.fits() {
            rows.push(vec![
                Latency::from(*interval).to_string(),
                fit.model.order().to_string(),
                format!("{:.3}", fit.r_squared),
                format!("{:.3}", fit.residual_correlation),
            ]);
        }
        write_rows(f, &rows)?;
        for sentence in self.sentences() {
            writeln!(f, "{sentence}")?;
        }
        for warning in self.warnings() {
            writeln!(f, "warning: {warning}")?;
        }
        Ok(())
    }
}
