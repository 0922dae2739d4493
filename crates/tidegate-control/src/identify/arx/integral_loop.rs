//! A model under a fixed integral controller (Triage §3.2).

use super::ArxModel;
use super::roots::{Complex, roots};
use crate::law::integral::gain::ControllerGain;

/// The loop of eqs. 2 to 4: `u(k) = u(k−1) + K_I·(y_ref − w(k))`, where `w(k) = y(k−1)`. In the worst case
/// all that is measured in an interval was sent in the one before, hence `H(z) = z⁻¹`. With q for z⁻¹, A(q) =
/// 1 − Σα_i·q^i and B(q) = Σβ_i·q^i:
///
/// ```text
/// T(q) = K·B / ((1 − q)·A + K·q·B)
/// ```
///
/// Time is counted in control intervals. The model's constant is of no importance to a loop that integrates.
#[derive(Debug, Clone, PartialEq)]
pub struct IntegralLoop {
    /// The denominator by powers of q, from 1 = q⁰ on: with z for q⁻¹ the coefficients from the highest power
    /// on.
    denominator: Vec<f64>,
    /// K·β_0 to K·β_N.
    numerator: Vec<f64>,
}

/// A pole of a loop.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LoopPole {
    /// Its real part.
    pub real: f64,
    /// Its imaginary part.
    pub imaginary: f64,
}

impl LoopPole {
    /// Returns the part of an error that remains after an interval. Below 1 the error dies away.
    #[must_use]
    pub fn magnitude(self) -> f64 {
        self.real.hypot(self.imaginary)
    }
}

/// A loop has settled when it stays within this part of the step. With it the gains that settle soonest are
/// those that the paper calls good (see [`ArxModel::recommended_gain`]); with the 5 % that are usual
/// elsewhere they would be greater.
const SETTLED: f64 = 0.02;

/// More overshoot is not low. Of the paper's two gains it is below 1 %; where models have more memory the
/// gain that settles soonest may go beyond by a third.
const GREATEST_OVERSHOOT: f64 = 0.05;

/// A loop that takes longer does not settle.
const LONGEST: usize = 1_000;

/// Number of angles at which the search looks for a curve that leaves the unit circle.
const ANGLES: u32 = 4_096;

/// Number of halvings of an interval of angles: to the last digit.
const HALVINGS: u32 = 60;

/// Number of gains to try below the greatest stable one.
const GAINS: u32 = 2_000;

impl IntegralLoop {
    /// The loop of this model and this gain.
    #[must_use]
    pub fn new(model: &ArxModel, gain: ControllerGain) -> Self {
        let numerator: Vec<f64> = model.inputs.iter().map(|input| gain.iops_per_ms() * input).collect();
        let mut denominator = open(model);
        for (coefficient, input) in denominator.iter_mut().skip(1).zip(&numerator) {
            *coefficient += input;
        }
        Self { denominator, numerator }
    }

    /// Its poles, one more than the model's order. The paper counts another one, which is always at zero.
    #[must_use]
    pub fn poles(&self) -> Vec<LoopPole> {
        let pole = |root: Complex| LoopPole { real: root.re, imaginary: root.im };
        roots(&self.denominator).into_iter().map(pole).collect()
    }

    /// Returns true if all poles are within the unit circle.
    #[must_use]
    pub fn is_stable(&self) -> bool {
        self.poles().into_iter().all(|pole| pole.magnitude() < 1.0)
    }

    /// Returns the response time, interval by interval without end, after a step of the reference from 0 to 1
    /// in interval 0.
    pub fn step_response(&self) -> impl Iterator<Item = f64> {
        let order = self.numerator.len() - 1;
        let mut past = vec![0.0; order + 1];
        let mut drive = 0.0;
        (0..).map(move |at: usize| {
            drive += self.numerator.get(at).copied().unwrap_or_default();
            let back: f64 =
                self.denominator.iter().skip(1).zip(&past).map(|(coefficient, y)| coefficient * y).sum();
            let y = drive - back;
            past.rotate_right(1);
            past[0] = y;
            y
        })
    }

    /// After how many intervals the response time stays within 2 % of a new reference; that in which the
    /// reference changes is the first. `None`: not within a thousand.
    #[must_use]
    pub fn settling_intervals(&self) -> Option<u32> {
        // As long again, so that what comes after is known to be settled, too.
        let response: Vec<f64> = self.step_response().take(2 * LONGEST).collect();
        let within = |y: &f64| (y - 1.0).abs() <= SETTLED;
        let last = response.iter().rposition(|y| !within(y));
        let settled = last.map_or(0, |last| last + 1);
        (settled <= LONGEST).then(|| settled as u32 + 1)
    }

    /// By what part of the step the response time goes beyond the reference. `None` where it does not settle.
    #[must_use]
    pub fn overshoot(&self) -> Option<f64> {
        let settling = self.settling_intervals()? as usize;
        let most = self.step_response().take(2 * settling + LONGEST).fold(0.0, f64::max);
        Some((most - 1.0).max(0.0))
    }
}

/// (1 − q)·A(q), by powers of q.
fn open(model: &ArxModel) -> Vec<f64> {
    let own = [1.0].into_iter().chain(model.outputs.iter().map(|output| -output)).chain([0.0]);
    let shifted = [0.0, 1.0].into_iter().chain(model.outputs.iter().map(|output| -output));
    own.zip(shifted).map(|(own, shifted)| own - shifted).collect()
}

impl ArxModel {
    /// The gain up to which, from zero on, the loop is stable. `None` where no gain, however small, makes it
    /// so: the response time falls with the rate, or the model itself has no end.
    ///
    /// Where a pole crosses the unit circle, −(1 − q)·A/(q·B) is real, and is the gain.
    #[must_use]
    pub fn stable_below(&self) -> Option<ControllerGain> {
        let open = open(self);
        let by_gain: Vec<f64> = [0.0].into_iter().chain(self.inputs.iter().copied()).collect();
        // Polynomials in z: from the highest power on.
        let at = |angle: f64| {
            let z = Complex::unit(angle);
            super::roots::value(&open, z) * super::roots::value(&by_gain, z).conjugate()
        };
        let gain = |angle: f64| {
            let below = super::roots::value(&by_gain, Complex::unit(angle)).magnitude().powi(2);
            ControllerGain::new(-at(angle).re / below).ok()
        };
        let angle = |step: u32| std::f64::consts::PI * f64::from(step) / f64::from(ANGLES);
        let crossings = (1..ANGLES).filter_map(|step| {
            let (mut low, mut high) = (angle(step), angle(step + 1));
            let sign = at(low).im.is_sign_positive();
            if step + 1 == ANGLES || sign == at(high).im.is_sign_positive() {
                return None;
            }
            for _ in 0..HALVINGS {
                let middle = f64::midpoint(low, high);
                let side = if at(middle).im.is_sign_positive() == sign { &mut low } else { &mut high };
                *side = middle;
            }
            gain(low)
        });
        let first = crossings
            .chain(gain(std::f64::consts::PI))
            .min_by(|one, other| one.iops_per_ms().total_cmp(&other.iops_per_ms()))?;
        let below = ControllerGain::new(0.5 * first.iops_per_ms()).ok()?;
        IntegralLoop::new(self, below).is_stable().then_some(first)
    }

    /// Returns the middle one of the gains that settle soonest with an overshoot of at most 5 %. It is the
    /// farthest from slower gains on either side. `None` if there is no such gain.
    ///
    /// The paper has "good values", 213 and 7.2 IO/s per ms for its models (§3.2), and no criterion; this one
    /// gives 212.6 and 7.26.
    #[must_use]
    pub fn recommended_gain(&self) -> Option<ControllerGain> {
        let tried: Vec<(ControllerGain, u32)> = self
            .gains(GAINS)
            .filter_map(|gain| {
                let under = IntegralLoop::new(self, gain);
                (under.overshoot()? <= GREATEST_OVERSHOOT).then_some((gain, under.settling_intervals()?))
            })
            .collect();
        let soonest = tried.iter().map(|(_, settling)| *settling).min()?;
        let mut best = tried
            .chunk_by(|one, other| one.1 == other.1)
            .filter(|run| run.first().is_some_and(|(_, settling)| *settling == soonest));
        let run = best.next()?;
        let run = best.fold(run, |longest, run| if run.len() > longest.len() { run } else { longest });
        let ends = [run.first()?, run.last()?].map(|(gain, _)| gain.iops_per_ms());
        ControllerGain::new(f64::midpoint(ends[0], ends[1])).ok()
    }

    /// So many gains, evenly, from above zero to below the greatest stable one. None where there is no stable
    /// one.
    pub fn gains(&self, count: u32) -> impl Iterator<Item = ControllerGain> {
        let bound = self.stable_below();
        (1..=count).filter_map(move |at| {
            ControllerGain::new(bound?.iops_per_ms() * f64::from(at) / f64::from(count + 1)).ok()
        })
    }
}
