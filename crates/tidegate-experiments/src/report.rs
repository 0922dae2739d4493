//! The verdicts, as a document.

use serde::{Deserialize, Serialize};
use tidegate_control::{BetaScale, LawConfig, Smoothing};
use tidegate_sim::Scenario;
use tidegate_sim::iscsi::{IscsiPlan, MemberRule, ThrottleRule};
use tidegate_sim::scenario::SignalSource;

use super::{
    Experiment, ExperimentTexts, JudgedQuantity, ReportedFigure, RunResult, RunSubject, SeedTrial,
    SimulationJobs, Tolerance,
};

/// The results of all experiments that ran: the document of `tidegate-lab reproduce --json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReproductionReport {
    /// True if every experiment agrees with its paper.
    pub ok: bool,
    /// The seeds.
    pub seeds: Vec<u64>,
    /// The experiments.
    pub experiments: Vec<ExperimentReport>,
}

/// The result of an experiment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExperimentReport {
    /// Its name.
    pub id: String,
    /// True if every quantity agrees.
    pub ok: bool,
    /// The reason for the difference, if every quantity that differs is known to. `None` if the experiment
    /// agrees, or if some difference is unexplained.
    #[serde(default)]
    pub known_difference: Option<String>,
    /// In a line.
    pub title: String,
    /// The paper's experiment and its result.
    pub paper: String,
    /// The set-up here.
    pub setup: String,
    /// The runs that were simulated.
    pub runs: Vec<RunReport>,
    /// The quantities that were judged.
    pub quantities: Vec<QuantityReport>,
    /// The figures that were measured without a verdict.
    pub figures: Vec<FigureReport>,
}

/// A run and the law under which it stood.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunReport {
    /// The experiment's name for it.
    pub name: String,
    /// The scenario's name.
    pub scenario: String,
    /// Its duration, in seconds.
    pub duration_s: f64,
    /// The laws of its hosts, each once; empty when nothing is regulated.
    pub laws: Vec<LawReport>,
    /// The PID that delays packets, where one does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<PidReport>,
}

/// The parameters of a window law.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LawReport {
    /// 𝓛, in milliseconds.
    pub set_point_ms: f64,
    /// K: β for each 100 shares, or for all shares of a host together where they count as parts of a whole.
    pub k: f64,
    /// The unit that K is per.
    pub k_per: String,
    /// γ of eq. 2.
    pub gamma: f64,
    /// The weight of the past in eq. 1, per control interval: 0.002 is the paper's α read literally, 0.998
    /// the other way round. `None`: smoothed by elapsed time.
    pub alpha_past_weight: Option<f64>,
    /// The control interval in seconds.
    pub interval_s: f64,
    /// `w_min` and `w_max`.
    pub window: (f64, f64),
    /// The origin of the response times that it steers by: `local` or `cluster`.
    pub signal: String,
}

/// The parameters of a PID, the consumers that it may throttle, and the packets that it delays.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PidReport {
    /// The set point, in milliseconds.
    pub set_point_ms: f64,
    /// K_p.
    pub proportional_gain: f64,
    /// T_i in seconds.
    pub integral_time_s: f64,
    /// T_d in seconds.
    pub derivative_time_s: f64,
    /// The step of the delay in milliseconds.
    pub step_ms: f64,
    /// The greatest delay in milliseconds.
    pub greatest_ms: f64,
    /// The control interval in seconds.
    pub interval_s: f64,
    /// The time constant of its input's average in seconds; `None`: by a weight per interval.
    pub smoothing_s: Option<f64>,
    /// The packets that are delayed.
    pub packets: String,
    /// The consumers that are eligible.
    pub members: String,
}

/// A quantity and its verdict.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct QuantityReport {
    /// Its name.
    pub name: String,
    /// Its unit; empty for a ratio.
    pub unit: String,
    /// The paper's figure, where it gives one.
    pub paper: Option<f64>,
    /// The mean over the seeds; `None` when some seed had nothing to measure.
    pub ours: Option<f64>,
    /// The results that agree, in words.
    pub tolerance: String,
    /// The same as an interval; `None`: open on that side.
    pub accepts: (Option<f64>, Option<f64>),
    /// The reasons for the experiment's tolerances, stated before the first run.
    pub reason: String,
    /// The statement that it judges, and its place in the paper.
    #[serde(default)]
    pub claim: String,
    /// True if the mean agrees.
    pub ok: bool,
    /// Under how many of the seeds it agrees by itself.
    pub seeds_ok: usize,
    /// The value under each seed.
    pub values: Vec<Option<f64>>,
}

/// A number without a verdict.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FigureReport {
    /// Its name.
    pub name: String,
    /// Its unit; empty for a ratio.
    pub unit: String,
    /// The paper's figure, where it gives one.
    pub paper: Option<f64>,
    /// The mean over the seeds; `None` when some seed had nothing to measure.
    pub ours: Option<f64>,
    /// The value under each seed.
    pub values: Vec<Option<f64>>,
}

/// The verdict of an experiment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExperimentVerdict {
    /// Every quantity agrees with the paper.
    Agrees,
    /// Something differs, and all of it is known, with its reason.
    DiffersAsKnown,
    /// Something differs that was not known to.
    Differs,
}

impl ExperimentReport {
    /// Returns the verdict of the experiment.
    #[must_use]
    pub fn verdict(&self) -> ExperimentVerdict {
        match (self.ok, &self.known_difference) {
            (true, _) => ExperimentVerdict::Agrees,
            (false, Some(_)) => ExperimentVerdict::DiffersAsKnown,
            (false, None) => ExperimentVerdict::Differs,
        }
    }
}

impl ReproductionReport {
    /// Returns the number of experiments with this verdict.
    #[must_use]
    pub fn count(&self, verdict: ExperimentVerdict) -> usize {
        self.experiments.iter().filter(|one| one.verdict() == verdict).count()
    }
}

/// Judges experiments by the results of their [`jobs`](super::jobs()), which come in the order of
/// [`SimulationJobs::list`].
///
/// A quantity is judged by its mean over the seeds. One that could not be measured under some seed disagrees,
/// and so does an experiment without quantities: what was not measured was not shown.
#[must_use]
pub fn judge(
    experiments: &[Experiment],
    jobs: &SimulationJobs<'_>,
    results: &[RunResult],
) -> ReproductionReport {
    let reports: Vec<_> = experiments
        .iter()
        .enumerate()
        .map(|(place, experiment)| judge_one(experiment, &jobs.trials(place, &experiment.runs, results)))
        .collect();
    ReproductionReport {
        ok: !reports.is_empty() && reports.iter().all(|report| report.ok),
        seeds: jobs.seeds().to_vec(),
        experiments: reports,
    }
}

fn judge_one(experiment: &Experiment, trials: &[SeedTrial<'_>]) -> ExperimentReport {
    let texts = &experiment.texts;
    let judge = |quantity: &JudgedQuantity| quantity.judge(texts, trials);
    let quantities: Vec<_> = experiment.quantities.iter().map(judge).collect();
    let ok = !quantities.is_empty() && quantities.iter().all(|quantity| quantity.ok);
    let known = !ok && explains(texts, &quantities);
    ExperimentReport {
        id: experiment.id.to_owned(),
        ok,
        known_difference: known.then(|| texts.differs.clone()),
        title: texts.title.clone(),
        paper: texts.paper.clone(),
        setup: texts.setup.clone(),
        runs: experiment.runs.iter().map(|run| RunReport::of(&run.name, &run.subject)).collect(),
        quantities,
        figures: experiment.figures.iter().map(|figure| figure.measure(trials)).collect(),
    }
}

/// Returns true if every quantity that differs is known to.
fn explains(texts: &ExperimentTexts, quantities: &[QuantityReport]) -> bool {
    let differs = |quantity: &&QuantityReport| !quantity.ok;
    !quantities.is_empty()
        && quantities.iter().filter(differs).all(|quantity| texts.covers(&quantity.name, &quantity.values))
}

impl JudgedQuantity {
    fn judge(&self, texts: &ExperimentTexts, trials: &[SeedTrial<'_>]) -> QuantityReport {
        let values: Vec<_> = trials.iter().map(|trial| finite((self.measure)(trial))).collect();
        let ours = mean(&values);
        let agrees = |value: Option<f64>| value.is_some_and(|value| self.accepts.agrees(value));
        QuantityReport {
            name: self.name.clone(),
            unit: self.unit.to_owned(),
            paper: self.paper,
            ours,
            tolerance: self.accepts.to_string(),
            accepts: Tolerance::bounds(self.accepts),
            reason: texts.tolerances.clone(),
            claim: texts
                .claim_of(&self.name)
                .map_or_else(String::new, |place| texts.claims[place].says.clone()),
            ok: agrees(ours),
            seeds_ok: values.iter().filter(|value| agrees(**value)).count(),
            values,
        }
    }
}

impl ReportedFigure {
    fn measure(&self, trials: &[SeedTrial<'_>]) -> FigureReport {
        let values: Vec<_> = trials.iter().map(|trial| finite((self.measure)(trial))).collect();
        FigureReport {
            name: self.name.clone(),
            unit: self.unit.to_owned(),
            paper: self.paper,
            ours: mean(&values),
            values,
        }
    }
}

impl RunReport {
    fn of(name: &str, subject: &RunSubject) -> Self {
        let (laws, pid) = match subject {
            RunSubject::Scenario(scenario) => (window_laws(scenario), None),
            RunSubject::Iscsi(plan) => (Vec::new(), PidReport::of(plan)),
            RunSubject::Transfers(_) | RunSubject::Identification(_) => (Vec::new(), None),
        };
        Self {
            name: name.to_owned(),
            scenario: subject.name().to_owned(),
            duration_s: subject.duration().as_secs_f64(),
            laws,
            pid,
        }
    }
}

/// The laws of a scenario's hosts, each once.
fn window_laws(scenario: &Scenario) -> Vec<LawReport> {
    let mut laws: Vec<LawReport> = Vec::new();
    for host in &scenario.hosts {
        let Some(config) = &host.law else { continue };
        let LawConfig::Window(window) = config.law else { continue };
        let law = LawReport {
            set_point_ms: config.set_point().as_millis_f64(),
            k: window.beta_gain,
            k_per: match window.beta_scale {
                BetaScale::PerShare => "100 shares".to_owned(),
                BetaScale::Relative => "host".to_owned(),
            },
            gamma: window.gamma,
            alpha_past_weight: match config.smoothing {
                Smoothing::PerInterval { past_weight } => Some(past_weight),
                Smoothing::TimeConstant(_) => None,
            },
            interval_s: config.interval.as_secs_f64(),
            window: (window.least.get(), window.greatest.get()),
            signal: match host.signal {
                SignalSource::Local => "local".to_owned(),
                SignalSource::Cluster => "cluster".to_owned(),
            },
        };
        if !laws.contains(&law) {
            laws.push(law);
        }
    }
    laws
}

impl PidReport {
    /// `None` without a regulator.
    fn of(plan: &IscsiPlan) -> Option<Self> {
        let ThrottleRule::Regulated { packets, law, members } = &plan.throttle else { return None };
        let LawConfig::Pid(pid) = law.law else { return None };
        Some(Self {
            set_point_ms: law.set_point().as_millis_f64(),
            proportional_gain: pid.proportional_gain,
            integral_time_s: pid.integral_time.as_secs_f64(),
            derivative_time_s: pid.derivative_time.as_secs_f64(),
            step_ms: pid.step.as_millis_f64(),
            greatest_ms: pid.greatest.as_millis_f64(),
            interval_s: law.interval.as_secs_f64(),
            smoothing_s: match law.smoothing {
                Smoothing::TimeConstant(time) => Some(time.as_secs_f64()),
                Smoothing::PerInterval { .. } => None,
            },
            packets: packets.name().to_owned(),
            members: match members {
                MemberRule::Named(names) => format!("{} named", names.len()),
                MemberRule::Automatic(_) => "who writes".to_owned(),
            },
        })
    }
}

/// A measurement that is no number is none.
fn finite(value: Option<f64>) -> Option<f64> {
    value.filter(|value| value.is_finite())
}

/// Returns the mean, or `None` if any value is missing: a mean over the seeds that happened to work would be
/// a selection.
fn mean(values: &[Option<f64>]) -> Option<f64> {
    let all: Vec<f64> = values.iter().copied().collect::<Option<_>>()?;
    (!all.is_empty()).then(|| all.iter().sum::<f64>() / all.len() as f64)
}
