//! Validation: the model against blocks of the recording that the fit has not seen.

use tidegate_control::SignalRequests;

use crate::fit::{LoadSample, LoadSamples, fit, misfit, quantile};
use crate::noise::LatencyNoise;
use crate::recording::Recording;
use crate::seconds::signal_kinds;
use crate::storage_model::{CurveShape, RequestClasses, StorageModel};

/// Length of the means whose errors are stated, in seconds.
const MEAN: f64 = 10.0;

/// A form of the curve is rehearsed as well if its misfit in unseen blocks is within this factor of the
/// best one's, and this much more. The second is a tenth of the expected variance.
const AS_GOOD: (f64, f64) = (1.1, 0.1);

/// Writes that a latency with little load needs.
const HEARD: f64 = 100.0;

/// Errors in unseen blocks, as fractions.
#[derive(Debug, Clone, Default)]
pub(crate) struct UnseenErrors {
    pub(crate) signal: f64,
    pub(crate) signal_p90: f64,
    pub(crate) throughput: Option<f64>,
}

/// Returns the forms of the curve that fit unseen blocks about as well as the best one, the best first. A
/// throughput that grows with the number outstanding takes evidence: a fixed one fits clearly worse.
pub(crate) fn shapes(samples: &LoadSamples, classes: usize) -> Vec<CurveShape> {
    let tried = CurveShape::all().map(|shape| {
        let model = fit(shape, &samples.samples, &is_learnt, classes);
        (shape, misfit(&model, &samples.samples, &|block| 1.0 - is_learnt(block)))
    });
    let mut tried: Vec<(CurveShape, f64)> = tried.collect();
    tried.sort_by(|one, other| one.1.total_cmp(&other.1));
    let best = tried.first().map_or(0.0, |(_, misfit)| *misfit);
    tried.retain(|tried| tried.1 <= AS_GOOD.0 * best + AS_GOOD.1);
    if tried.iter().any(|(shape, _)| shape.growth >= 1.0) {
        tried.retain(|(shape, _)| shape.growth >= 1.0);
    }
    tried.into_iter().map(|(shape, _)| shape).collect()
}

/// The weight of a block in the fit: every second one stays unseen.
pub(crate) fn is_learnt(block: usize) -> f64 {
    f64::from(u8::from(block.is_multiple_of(2)))
}

/// Fits a model of this form to the blocks that the first fit sees.
pub(crate) fn learnt(shape: CurveShape, samples: &LoadSamples, classes: usize) -> StorageModel {
    fit(shape, &samples.samples, &is_learnt, classes)
}

/// Sums of a mean under way.
#[derive(Debug, Clone, Copy, Default)]
struct MeanSums {
    seconds: f64,
    /// Requests of the signal, and the sums of their latencies: as measured and by the model.
    requests: f64,
    measured: f64,
    modelled: f64,
    /// Requests of the eligible consumers, and their number by the model.
    eligible: f64,
    eligible_modelled: f64,
}

/// Returns the errors of a model in unseen blocks.
pub(crate) fn errors(
    recording: &Recording,
    classes: &RequestClasses,
    model: &StorageModel,
    signal: SignalRequests,
    block_seconds: f64,
) -> UnseenErrors {
    let kinds: Vec<[bool; 2]> =
        recording.consumers.iter().map(|consumer| signal_kinds(signal, consumer.protected)).collect();
    let loads = LatencyNoise::new(recording, model, classes, 0, false);
    let (mut latencies, mut throughputs) = (Vec::new(), Vec::new());
    let mut sums = MeanSums::default();
    let mut time = 0.0;
    for (at, step) in recording.steps.iter().enumerate() {
        let elapsed = f64::from(step.elapsed);
        time += elapsed;
        if step.begins || is_learnt((time / block_seconds) as usize) > 0.0 {
            sums = MeanSums::default();
            continue;
        }
        sums.seconds += elapsed;
        let load = loads.recorded_load(at);
        for activity in recording.activities(at) {
            let consumer = activity.consumer as usize;
            let class = classes.of(consumer);
            let outstanding = activity.at_resource(elapsed);
            for kind in 0..2 {
                let completed = activity.completed[kind];
                let latency = model.latency(class[kind], load);
                if kinds[consumer][kind] {
                    sums.requests += f64::from(completed.count);
                    sums.measured += f64::from(completed.latency);
                    sums.modelled += f64::from(completed.count) * latency;
                }
                if !recording.consumers[consumer].protected {
                    sums.eligible += f64::from(completed.count);
                    sums.eligible_modelled += outstanding[kind] / latency * elapsed;
                }
            }
        }
        if sums.seconds >= MEAN - 1e-3 {
            if sums.requests >= 20.0 && sums.measured > 0.0 {
                latencies.push((sums.modelled / sums.measured - 1.0).abs());
            }
            if sums.eligible >= 50.0 {
                throughputs.push((sums.eligible_modelled / sums.eligible - 1.0).abs());
            }
            sums = MeanSums::default();
        }
    }
    UnseenErrors {
        signal: quantile(&mut latencies, 0.5).unwrap_or(f64::INFINITY),
        signal_p90: quantile(&mut latencies, 0.9).unwrap_or(f64::INFINITY),
        throughput: quantile(&mut throughputs, 0.5),
    }
}

/// Latency under load over that with little load: of the signal's reads, and of all writes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct LoadedLatencies {
    pub(crate) reads: f64,
    /// `None`: too few writes with little load.
    pub(crate) writes: Option<f64>,
    /// The fraction of samples under load that have writes.
    pub(crate) writing: f64,
    /// Mean latency of writes over that of reads, both under load.
    pub(crate) quick: f64,
}

/// Compares the tenth of the samples with the slowest reads with the fifth with the fastest. `None` without
/// reads or writes.
pub(crate) fn loaded_latencies(samples: &[LoadSample], classes: &RequestClasses) -> Option<LoadedLatencies> {
    let sums = |sample: &LoadSample, reads: bool| {
        let of_kind = sample.completed.iter().zip(&classes.reads).filter(|(_, is_read)| **is_read == reads);
        of_kind.fold((0.0, 0.0), |sums, (completed, _)| (sums.0 + completed.0, sums.1 + completed.1))
    };
    let mut by_reads: Vec<(f64, &LoadSample)> = samples
        .iter()
        .filter_map(|sample| {
            let (count, total) = sums(sample, true);
            (count > 0.0).then(|| (total / count, sample))
        })
        .collect();
    by_reads.sort_by(|one, other| one.0.total_cmp(&other.0));
    let mean = |samples: &[(f64, &LoadSample)], reads: bool| {
        let all = samples.iter().map(|(_, sample)| sums(sample, reads));
        let (count, total) = all.fold((0.0, 0.0), |sums, next| (sums.0 + next.0, sums.1 + next.1));
        (count >= HEARD).then(|| total / count)
    };
    let quiet = by_reads.get(..by_reads.len() / 5)?;
    let loaded = by_reads.get(by_reads.len() - by_reads.len() / 10..)?;
    let writing = loaded.iter().filter(|(_, sample)| sums(sample, false).0 > 0.0).count();
    let writes = mean(loaded, false)?;
    let reads = mean(loaded, true)?;
    Some(LoadedLatencies {
        reads: reads / mean(quiet, true)?,
        writes: mean(quiet, false).map(|quiet| writes / quiet),
        writing: writing as f64 / loaded.len().max(1) as f64,
        quick: writes / reads,
    })
}
