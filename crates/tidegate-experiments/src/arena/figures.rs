//! The figures of one run.

use serde::{Deserialize, Serialize};
use tidegate_sim::scenario::Workload;

use super::ArenaScenario;
use crate::{ConsumerSeries, RunResult};

/// Seconds after the beginning and after each change that are left out, or the time of [`SETTLING_REQUESTS`]
/// if that is longer.
pub(super) const SETTLING_SECONDS: f64 = 3.0;
const SETTLING_REQUESTS: f64 = 300.0;

/// A consumer waits for the law if it feels so much more than the storage's latency.
const BACKLOGGED: f64 = 1.1;

/// The service of one run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunFigures {
    /// Fraction of judged intervals above the target, of the worst judged consumer.
    pub above: f64,
    /// Requests per second of the consumers that the law may throttle.
    pub iops: f64,
    /// The same for each of them.
    pub each: Vec<f64>,
    /// Mean latency of the worst judged consumer, in seconds.
    pub latency: f64,
    /// The mean number of their requests outstanding.
    pub outstanding: f64,
    /// The part of throughput that went to other consumers than the shares say. `None` if they are not all
    /// backlogged.
    pub share_error: Option<f64>,
    /// Seconds from a change until latency and throughput are back, the median of the changes. `None` without
    /// a change, infinite if they never are.
    pub settling: Option<f64>,
}

impl RunFigures {
    /// Measures a run. `best` is the oracle's throughput in each stretch, for the settling time.
    pub(super) fn of(arena: &ArenaScenario, run: &RunResult, best: &[f64]) -> Self {
        let target = arena.target.as_millis_f64();
        let interval = arena.scenario.series_interval.as_secs_f64();
        let seconds = arena.seconds();
        let judged: Vec<&ConsumerSeries> = tracks(run, |name| arena.judged.iter().any(|own| own == name));
        let eligible: Vec<&ConsumerSeries> = tracks(run, |name| arena.is_eligible(name));
        let rate = |track: &ConsumerSeries| mean(track.samples.iter().map(|(_, sample)| sample.iops));
        let slowest = judged.iter().map(|track| rate(track)).fold(f64::INFINITY, f64::min).max(0.1);
        let settling = SETTLING_SECONDS.max((SETTLING_REQUESTS / slowest).min(seconds / 6.0));
        let counts = |end: f64| {
            let mut starts = arena.changes.iter().copied().chain([0.0]);
            !starts.any(|start| end > start + 1e-9 && end - interval < start + settling - 1e-9)
        };
        let (mut above, mut latency): (f64, f64) = (0.0, 0.0);
        for track in &judged {
            let (mut known, mut over, mut requests, mut total) = (0.0, 0.0, 0.0, 0.0);
            for (_, sample) in track.samples.iter().filter(|(end, _)| counts(*end)) {
                match sample.device_latency_ms {
                    Some(ms) => {
                        known += 1.0;
                        over += f64::from(ms > target);
                        requests += sample.iops;
                        total += sample.iops * ms;
                    }
                    // A request takes longer than the interval, which is longer than the target.
                    None if sample.outstanding > 0.9 && target < interval * 1e3 => {
                        known += 1.0;
                        over += 1.0;
                    }
                    None => {}
                }
            }
            above = above.max(if known > 0.0 { over / known } else { 0.0 });
            latency = latency.max(if requests > 0.0 { total / requests / 1e3 } else { 0.0 });
        }
        let each: Vec<f64> = eligible
            .iter()
            .map(|track| mean(track.samples.iter().filter(|(end, _)| counts(*end)).map(|(_, sample)| sample.iops)))
            .collect();
        let outstanding = eligible
            .iter()
            .map(|track| {
                mean(track.samples.iter().filter(|(end, _)| counts(*end)).map(|(_, sample)| {
                    sample.iops * sample.device_latency_ms.unwrap_or(0.0) / 1e3
                }))
            })
            .sum();
        Self {
            above,
            iops: each.iter().sum(),
            share_error: share_error(arena, &eligible, &counts),
            settling: settling_time(arena, &judged, &eligible, best),
            each,
            latency,
            outstanding,
        }
    }
}

fn tracks<'a>(run: &'a RunResult, is_one: impl Fn(&str) -> bool) -> Vec<&'a ConsumerSeries> {
    run.tracks.iter().filter(|track| is_one(track.consumer.as_str())).collect()
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (count, sum) = values.fold((0.0, 0.0), |(count, sum), value| (count + 1.0, sum + value));
    if count > 0.0 { sum / count } else { 0.0 }
}

fn share_error(
    arena: &ArenaScenario,
    eligible: &[&ConsumerSeries],
    counts: &dyn Fn(f64) -> bool,
) -> Option<f64> {
    let steady = |workload: &Workload| workload.cycle.is_none();
    if eligible.len() < 2 || !arena.scenario.vms.iter().all(|vm| vm.workloads.iter().all(steady)) {
        return None;
    }
    let shares: Vec<f64> = eligible
        .iter()
        .map(|track| {
            let vm = arena.scenario.vms.iter().find(|vm| vm.name == track.consumer);
            vm.map_or(0.0, |vm| vm.shares.as_f64())
        })
        .collect();
    let all: f64 = shares.iter().sum();
    let mut got = vec![0.0; eligible.len()];
    let (mut intervals, mut used) = (0.0, 0.0);
    for place in 0..eligible[0].samples.len() {
        let samples: Option<Vec<_>> = eligible.iter().map(|track| track.samples.get(place)).collect();
        let Some(samples) = samples else { break };
        if !counts(samples[0].0) {
            continue;
        }
        intervals += 1.0;
        let backlogged = samples.iter().all(|(_, sample)| {
            sample.latency_ms.zip(sample.device_latency_ms).is_some_and(|(felt, at)| felt > BACKLOGGED * at)
        });
        if backlogged {
            used += 1.0;
            for (sum, (_, sample)) in got.iter_mut().zip(&samples) {
                *sum += sample.iops;
            }
        }
    }
    let total: f64 = got.iter().sum();
    (used > 0.5 * intervals && total > 0.0).then(|| {
        got.iter().zip(&shares).map(|(own, share)| (own / total - share / all).abs()).sum::<f64>() / 2.0
    })
}

fn settling_time(
    arena: &ArenaScenario,
    judged: &[&ConsumerSeries],
    eligible: &[&ConsumerSeries],
    best: &[f64],
) -> Option<f64> {
    let target = arena.target.as_millis_f64();
    let bounds: Vec<f64> = arena.changes.iter().copied().chain([arena.seconds()]).collect();
    let mut times: Vec<f64> = Vec::new();
    for (number, change) in arena.changes.iter().enumerate() {
        let best = best.get(number + 1).or(best.last()).copied().unwrap_or(0.0);
        let ends: Vec<f64> = judged.first()?.samples.iter().map(|(end, _)| *end).collect();
        let good = |place: usize| {
            let at = |track: &&&ConsumerSeries| track.samples.get(place).copied();
            let latency = judged.iter().filter_map(|track| at(&track)?.1.device_latency_ms).fold(0.0, f64::max);
            let iops: f64 = eligible.iter().filter_map(|track| Some(at(&track)?.1.iops)).sum();
            (latency <= target, iops >= 0.9 * best)
        };
        let settled = ends.iter().enumerate().position(|(place, end)| {
            *end > change + 1e-9 && *end <= bounds[number + 1] && {
                let near: Vec<_> = (place..place + 3).map(good).collect();
                near.iter().filter(|(low, _)| *low).count() >= 2
                    && near[0].0
                    && near.iter().filter(|(_, much)| *much).count() >= 2
            }
        });
        times.push(settled.map_or(f64::INFINITY, |place| (ends[place] - change - 1.0).max(0.0)));
    }
    times.sort_by(f64::total_cmp);
    (!times.is_empty()).then(|| times[(times.len() - 1) / 2])
}
