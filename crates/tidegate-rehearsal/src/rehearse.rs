//! The rehearsal: model, validation, runs, and the reasons to claim nothing.

use tidegate_control::{SignalRequests, SignalStatistic};
use tidegate_units::Latency;

use rand::Rng;
use rand_pcg::Pcg64;

use crate::demand::{DemandKind, Episode, episodes, kinds};
use crate::fit::{LoadSamples, fit, quantile};
use crate::recording::Recording;
use crate::report::{
    ClassReport, ConsumerPrediction, CurvePoint, Estimate, MeasuredTime, ModelReport, Prediction, Refusal,
    RehearsalOutcome, RehearsalReport,
};
use crate::run::{POINTS, RunOutcome, RunPlan, run};
use crate::seconds::{JudgedSeconds, signal_kinds};
use crate::storage_model::{CurveShape, RequestClasses, StorageModel};
use crate::validation::{UnseenErrors, errors, learnt, loaded_latencies, shapes};

/// Number of runs: with as many, the least and the greatest leave out about a tenth of what is possible.
const RUNS: usize = 24;

/// Length of a block: this part of the recording, within bounds in seconds.
const BLOCKS: (f64, f64, f64) = (1.0 / 40.0, 20.0, 300.0);

/// The least recorded time in seconds, and the least number of requests of the signal.
const LEAST_SECONDS: f64 = 120.0;
const LEAST_REQUESTS: f64 = 1_000.0;

/// The greatest fraction of decisions at which the law may have throttled in the recording.
const MOST_ACTED: f64 = 0.01;

/// The greatest median error of the signal's latency in unseen blocks.
const MOST_ERROR: f64 = 0.25;

/// The most that the modelled fraction of seconds above the target may differ from the measured one: in all,
/// or as a part of it.
const MOST_AWAY: (f64, f64) = (0.05, 0.3);

/// Seconds above the target that take a range of loads to say anything about.
const ABOVE: f64 = 0.002;

/// The least factor between the signal's latencies at high and at low loads.
const LEAST_SPREAD: f64 = 1.4;

/// The lowest load that is taken as known, as a part of the load that a fiftieth of the recording is below;
/// and the greatest fraction of the throttled time below it.
const LOWEST: f64 = 0.8;
const MOST_BELOW: f64 = 0.25;

/// Under load, writes of a cache take less than this part of the time of reads, or their latency grows by
/// less than this part of the growth of reads. The last is the growth of reads from which on that counts.
const QUICK_WRITES: f64 = 0.33;
const SLOWED_WRITES: f64 = 0.2;
const SLOWER_READS: f64 = 2.0;

/// The widest range of the fraction of seconds above the target with which a claim is made.
const WIDEST: f64 = 0.35;

/// Rehearses a recording: fits a model of the storage to it, and runs the loop against the model under the
/// recorded demand. The same recording always gives the same report.
#[must_use]
pub fn rehearse(recording: &Recording) -> RehearsalReport {
    let config = recording.last_config();
    let is_any_protected = recording.consumers.iter().any(|consumer| consumer.protected);
    let signal = config.map_or(SignalRequests::Everything, |config| config.signal.requests(is_any_protected));
    let target = config.map_or(Latency::ZERO, |config| config.target).as_secs_f64();
    let measured = measure(recording, signal, target);
    let refusals = refusals_before(recording, &measured.time);
    let (model, outcome) = if refusals.is_empty() {
        Rehearsal::new(recording, signal, &measured).rehearse()
    } else {
        (None, RehearsalOutcome::Refused(refusals))
    };
    RehearsalReport {
        resource: recording.resource.clone(),
        recorded_seconds: recording.seconds(),
        law: config.map(|config| config.law.kind()),
        target_seconds: target,
        signal,
        measured: measured.time,
        model,
        outcome,
    }
}

/// Returns the reasons to claim nothing that need no model.
fn refusals_before(recording: &Recording, measured: &MeasuredTime) -> Vec<Refusal> {
    let Some(config) = recording.last_config() else { return vec![Refusal::NoConfiguration] };
    let seconds = recording.seconds();
    let acted = recording.throttled as f64 / recording.steps.len().max(1) as f64;
    let requests = measured.requests;
    let reasons = [
        (!recording.is_queue, Refusal::NotAQueue),
        (seconds < LEAST_SECONDS, Refusal::TooShort { seconds, least: LEAST_SECONDS }),
        (acted > MOST_ACTED, Refusal::LawActed { fraction: acted }),
        (recording.shared, Refusal::OtherHosts),
        (config.statistic != SignalStatistic::Mean, Refusal::Percentile),
        (recording.contracts, Refusal::Contracts),
        (recording.consumers.iter().all(|consumer| consumer.protected), Refusal::NothingEligible),
        (requests < LEAST_REQUESTS, Refusal::TooFewRequests { requests, least: LEAST_REQUESTS }),
    ];
    reasons.into_iter().filter(|(holds, _)| *holds).map(|(_, reason)| reason).collect()
}

/// The recorded time: its figures, and the curve of the signal's latency.
struct Measured {
    time: MeasuredTime,
    curve: Vec<(f64, f64)>,
    /// Requests, bytes, and the sum of latencies of each consumer.
    consumers: Vec<(f64, f64, f64)>,
}

fn measure(recording: &Recording, signal: SignalRequests, target: f64) -> Measured {
    let mut seconds = JudgedSeconds::new(target);
    let mut curve = vec![(0.0, 0.0); POINTS];
    let mut consumers = vec![(0.0, 0.0, 0.0); recording.consumers.len()];
    let all = recording.seconds();
    let mut time = 0.0;
    for (at, step) in recording.steps.iter().enumerate() {
        let point = ((time / all * POINTS as f64) as usize).min(POINTS - 1);
        for activity in recording.activities(at) {
            let consumer = activity.consumer as usize;
            let kinds = signal_kinds(signal, recording.consumers[consumer].protected);
            for (kind, is_signal) in activity.completed.iter().zip(kinds) {
                let (count, latency) = (f64::from(kind.count), f64::from(kind.latency));
                let sums = &mut consumers[consumer];
                *sums = (sums.0 + count, sums.1 + f64::from(kind.bytes), sums.2 + latency);
                if is_signal {
                    seconds.add(count, latency);
                    curve[point] = (curve[point].0 + count, curve[point].1 + latency);
                }
            }
        }
        let elapsed = f64::from(step.elapsed);
        seconds.pass(elapsed);
        time += elapsed;
    }
    let time = MeasuredTime {
        judged_seconds: seconds.judged,
        above_fraction: seconds.above_fraction(),
        latency_seconds: seconds.mean(),
        requests: seconds.requests,
    };
    Measured { time, curve, consumers }
}

/// A rehearsal under way.
struct Rehearsal<'a> {
    recording: &'a Recording,
    signal: SignalRequests,
    measured: &'a Measured,
    classes: RequestClasses,
    samples: LoadSamples,
    episodes: Vec<Episode>,
    kinds: Vec<DemandKind>,
}

impl<'a> Rehearsal<'a> {
    fn new(recording: &'a Recording, signal: SignalRequests, measured: &'a Measured) -> Self {
        let classes = RequestClasses::of_recording(recording);
        let block = (recording.seconds() * BLOCKS.0).clamp(BLOCKS.1, BLOCKS.2);
        Self {
            recording,
            signal,
            measured,
            samples: LoadSamples::of_recording(recording, &classes, block),
            classes,
            episodes: episodes(recording),
            kinds: kinds(recording),
        }
    }

    fn rehearse(&self) -> (Option<ModelReport>, RehearsalOutcome) {
        let shapes = shapes(&self.samples, self.classes.len());
        let Some(&best) = shapes.first() else { return (None, RehearsalOutcome::Refused(Vec::new())) };
        let half = learnt(best, &self.samples, self.classes.len());
        let block = self.samples.block_seconds;
        let errors = errors(self.recording, &self.classes, &half, self.signal, block);
        let model = fit(best, &self.samples.samples, &|_| 1.0, self.classes.len());
        let range = LoadRange::of(self, &model);
        let reproduced = self.run(&model, DemandKind::Closed, 0, false, 0.0);
        let modelled = reproduced.seconds.above_fraction();
        let report = self.model_report(&model, shapes.len(), &errors, modelled);
        let refusals = self.refusals(&errors, modelled, &range);
        if !refusals.is_empty() {
            return (Some(report), RehearsalOutcome::Refused(refusals));
        }
        let runs = self.runs(&shapes, range.lowest);
        let prediction = self.predict(&runs);
        let refusals = refusals_after(&runs, &prediction);
        let outcome = if refusals.is_empty() {
            RehearsalOutcome::Predicted(Box::new(prediction))
        } else {
            RehearsalOutcome::Refused(refusals)
        };
        (Some(report), outcome)
    }

    /// Returns the reasons to claim nothing that follow from the model.
    fn refusals(&self, errors: &UnseenErrors, modelled: f64, range: &LoadRange) -> Vec<Refusal> {
        let measured = self.measured.time.above_fraction;
        let mut refusals = Vec::new();
        if let Some(loaded) = loaded_latencies(&self.samples.samples, &self.classes)
            && loaded.writing > 0.5
            && loaded.reads >= SLOWER_READS
            && (loaded.quick < QUICK_WRITES
                || loaded.writes.is_some_and(|writes| writes < 1.0 + SLOWED_WRITES * (loaded.reads - 1.0)))
        {
            refusals.push(Refusal::WriteCache { writes: loaded.quick, reads: loaded.reads });
        }
        if errors.signal > MOST_ERROR {
            refusals.push(Refusal::PoorModel { error: errors.signal, most: MOST_ERROR });
        }
        if (modelled - measured).abs() > f64::max(MOST_AWAY.0, MOST_AWAY.1 * measured) {
            refusals.push(Refusal::NotReproduced { measured, modelled });
        }
        if measured > ABOVE && range.spread < LEAST_SPREAD {
            refusals.push(Refusal::NoRange { spread: range.spread });
        }
        refusals
    }

    /// Runs the loop with each form of the curve and each assumption about demand, every time with parameters
    /// that are fitted to other blocks.
    fn runs(&self, shapes: &[CurveShape], lowest: f64) -> Vec<RunOutcome> {
        let mut random = Pcg64::new(0x7265_6865, 0x6172_7365);
        (0..RUNS)
            .map(|at| {
                let weights = resampled(self.samples.blocks, &mut random);
                let shape = shapes[at % shapes.len()];
                let classes = self.classes.len();
                let model = fit(shape, &self.samples.samples, &|block| weights[block], classes);
                let unknown =
                    if (at / shapes.len()).is_multiple_of(2) { DemandKind::Closed } else { DemandKind::Open };
                self.run(&model, unknown, random.next_u64(), true, lowest)
            })
            .collect()
    }

    fn run(
        &self,
        model: &StorageModel,
        unknown: DemandKind,
        seed: u64,
        acts: bool,
        lowest: f64,
    ) -> RunOutcome {
        let is_closed = |kind: &DemandKind| {
            let kind = if *kind == DemandKind::Unknown { unknown } else { *kind };
            kind == DemandKind::Closed
        };
        let closed: Vec<bool> = self.kinds.iter().map(is_closed).collect();
        run(&RunPlan {
            recording: self.recording,
            classes: &self.classes,
            model,
            episodes: &self.episodes,
            closed: &closed,
            signal: self.signal,
            seed,
            acts,
            lowest,
        })
    }

    fn predict(&self, runs: &[RunOutcome]) -> Prediction {
        let of = |figure: &dyn Fn(&RunOutcome) -> f64| Estimate::of(runs.iter().map(figure).collect());
        let seconds = self.recording.seconds();
        let consumers = self.recording.consumers.iter().enumerate().filter_map(|(at, consumer)| {
            let (requests, bytes, latency) = self.measured.consumers[at];
            (requests > 0.0).then(|| ConsumerPrediction {
                name: consumer.name.clone(),
                protected: consumer.protected,
                demand: self.kinds[at],
                requests,
                bytes,
                measured_latency_seconds: latency / requests,
                latency_seconds: of(&|run| run.consumers[at].latency / run.consumers[at].requests.max(1.0)),
                throughput: of(&|run| run.consumers[at].completed / run.consumers[at].recorded.max(1.0)),
                later_seconds: of(&|run| run.consumers[at].late),
            })
        });
        Prediction {
            runs: runs.len(),
            above_fraction: of(&|run| run.seconds.above_fraction()),
            latency_seconds: of(&|run| run.seconds.mean()),
            throttled_fraction: of(&|run| run.throttled / seconds),
            consumers: consumers.collect(),
            curve: self.curve(runs),
        }
    }

    fn curve(&self, runs: &[RunOutcome]) -> Vec<CurvePoint> {
        let mean = |(count, total): (f64, f64)| (count > 0.0).then(|| total / count);
        let predicted = |at: usize| {
            runs.iter().fold((0.0, 0.0), |sums, run| (sums.0 + run.curve[at].0, sums.1 + run.curve[at].1))
        };
        let seconds = self.recording.seconds() / POINTS as f64;
        let point = |at: usize| CurvePoint {
            at_seconds: at as f64 * seconds,
            measured_seconds: mean(self.measured.curve[at]),
            predicted_seconds: mean(predicted(at)),
        };
        (0..POINTS).map(point).collect()
    }

    fn model_report(
        &self,
        model: &StorageModel,
        shapes: usize,
        errors: &UnseenErrors,
        reproduced: f64,
    ) -> ModelReport {
        let consumers = self.recording.consumers.iter().enumerate();
        let own = consumers.flat_map(|(at, consumer)| {
            let classes = self.classes.of(at).into_iter().filter(|class| *class >= 2);
            classes.map(move |class| (class, Some(consumer.name.clone())))
        });
        let mut classes: Vec<(usize, _)> = own.collect();
        classes.sort_by_key(|(class, _)| *class);
        let class = |(class, consumer)| ClassReport {
            consumer,
            reads: self.classes.reads[class],
            unloaded_seconds: model.unloaded[class],
            work: model.work[class],
            felt: model.felt[class],
        };
        ModelReport {
            block_seconds: self.samples.block_seconds,
            sharpness: model.shape.sharpness,
            growth: model.shape.growth,
            shapes,
            signal_error: errors.signal,
            signal_error_p90: errors.signal_p90,
            throughput_error: errors.throughput,
            reproduced_above_fraction: reproduced,
            classes: classes.into_iter().map(class).collect(),
        }
    }
}

/// Draws blocks with replacement. Returns the number of times that each was drawn.
fn resampled(blocks: usize, random: &mut Pcg64) -> Vec<f64> {
    let mut weights = vec![0.0; blocks];
    for _ in 0..blocks {
        weights[(random.next_u64() % blocks as u64) as usize] += 1.0;
    }
    weights
}

/// Returns the reasons to claim nothing that follow from the runs.
fn refusals_after(runs: &[RunOutcome], prediction: &Prediction) -> Vec<Refusal> {
    let throttled: f64 = runs.iter().map(|run| run.throttled).sum();
    let below: f64 = runs.iter().map(|run| run.below).sum();
    let fraction = below / throttled.max(1.0);
    let Estimate { low, high, .. } = prediction.above_fraction;
    let mut refusals = Vec::new();
    if fraction > MOST_BELOW {
        refusals.push(Refusal::OutsideRange { fraction });
    }
    if high - low > WIDEST {
        refusals.push(Refusal::TooUncertain { low, high });
    }
    refusals
}

/// The loads that a recording has.
struct LoadRange {
    /// The lowest load that is taken as known.
    lowest: f64,
    /// The signal's latency at high loads over that at low ones.
    spread: f64,
}

impl LoadRange {
    fn of(rehearsal: &Rehearsal<'_>, model: &StorageModel) -> Self {
        let Rehearsal { recording, classes, signal, samples, .. } = rehearsal;
        let signal_class = recording.consumers.iter().enumerate().find_map(|(at, consumer)| {
            let kinds = signal_kinds(*signal, consumer.protected);
            let class = classes.of(at);
            (0..2).find(|kind| kinds[*kind] && class[*kind] >= 2).map(|kind| class[kind])
        });
        let mut loads: Vec<f64> = samples
            .samples
            .iter()
            .map(|sample| model.load(sample.outstanding.iter().zip(&model.work).map(|(n, w)| n * w).sum()))
            .collect();
        let class = signal_class.unwrap_or(0);
        let low = quantile(&mut loads, 0.1).unwrap_or(0.0);
        let high = quantile(&mut loads, 0.95).unwrap_or(0.0);
        let spread = model.latency(class, high) / model.latency(class, low).max(f64::MIN_POSITIVE);
        Self { lowest: LOWEST * quantile(&mut loads, 0.02).unwrap_or(0.0), spread }
    }
}
