//! The figures of one run.

use serde::{Deserialize, Serialize};
use tidegate_control::SignalStatistic;
use tidegate_sim::SeriesSample;
use tidegate_sim::scenario::{ScenarioSpan, Workload};
use tidegate_units::Bytes;

use super::scenario::ArenaScenario;
use crate::{ConsumerSeries, RunResult};

/// Seconds after each change that are not judged, or the time of [`SETTLING_REQUESTS`] of the slowest judged
/// consumer if that is longer, but at most a sixth of the run.
const SETTLING_SECONDS: f64 = 3.0;
const SETTLING_REQUESTS: f64 = 300.0;

/// A consumer has requests waiting for the law if it feels so much more than the storage's latency.
const BACKLOGGED: f64 = 1.1;

/// The least mean number of requests that then wait. A consumer with fewer has none at times.
const WAITING: f64 = 2.0;

/// Throughput that counts as back after a change, as a part of the oracle's.
const BACK: f64 = 0.9;

/// Bytes of a request that costs as much as one I/O, as the scheduler counts.
const BYTES_PER_COST: f64 = Bytes::PER_IO.get() as f64;

/// The service of one run, over the judged intervals.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct RunFigures {
    /// Fraction of judged intervals above the target, of the worst judged consumer.
    pub above: f64,
    /// The same of the intervals after changes, which are not judged. `None` if there are none.
    pub above_after_changes: Option<f64>,
    /// Requests per second of the consumers that a law may throttle.
    pub iops: f64,
    /// Their cost per second: a request counts once for each begun or whole 64 KiB, at least once.
    pub cost: f64,
    /// Requests per second of each of them.
    pub each: Vec<f64>,
    /// Mean latency of the worst judged consumer, in seconds. Where a percentile is promised, the mean of the
    /// intervals' percentiles, each counted by its requests.
    pub latency: f64,
    /// The greatest number of requests that they had at the storage on average over an interval.
    pub outstanding: f64,
    /// The part of throughput that went to other consumers than the shares say. `None` if they are not all
    /// backlogged.
    pub share_error: Option<f64>,
    /// Seconds from a change until latency and throughput are back: the median of the changes, at most the
    /// time to the next one. `None` without a change.
    pub settling: Option<f64>,
    /// The mean change of throughput from one interval to the next, over the mean throughput. `None` if a
    /// load comes and goes. Oracles do not have it.
    #[serde(skip)]
    pub oscillation: Option<f64>,
}

/// The parts of a run that are judged, and the parts after changes.
struct JudgedTime<'a> {
    arena: &'a ArenaScenario,
    settling: f64,
}

impl JudgedTime<'_> {
    /// Returns true if an interval that ends then overlaps the time after a change.
    fn is_after_change(&self, end: f64) -> bool {
        let begin = end - self.arena.interval();
        self.arena.changes.iter().any(|change| end > change + 1e-9 && begin < change + self.settling - 1e-9)
    }

    fn is_judged(&self, end: f64) -> bool {
        end - self.arena.interval() >= self.arena.head_s - 1e-9 && !self.is_after_change(end)
    }
}

impl RunFigures {
    /// Measures a run. `best` is the oracle's throughput by the time from which it applies, for the settling
    /// time.
    pub(super) fn of(arena: &ArenaScenario, run: &RunResult, best: &[(f64, f64)]) -> Self {
        let judged = tracks(run, |name| arena.judged.iter().any(|own| own == name));
        let eligible = tracks(run, |name| arena.eligible().any(|vm| vm.name.as_str() == name));
        let rates = judged.iter().map(|track| mean(track.samples.iter().map(|(_, sample)| sample.iops)));
        let slowest = rates.fold(f64::INFINITY, f64::min).max(0.1);
        let settling = SETTLING_SECONDS.max((SETTLING_REQUESTS / slowest).min(arena.seconds() / 6.0));
        let time = JudgedTime { arena, settling };
        let is_judged = |end: f64| time.is_judged(end);
        let each = mean_of_each(arena, &eligible, &is_judged, |sample| sample.iops);
        let costs = mean_of_each(arena, &eligible, &is_judged, |sample| {
            sample.iops.max(sample.bytes_per_s / BYTES_PER_COST)
        });
        Self {
            above: above(arena, &judged, &is_judged).unwrap_or(0.0),
            above_after_changes: above(arena, &judged, &|end| time.is_after_change(end)),
            iops: each.iter().sum(),
            cost: costs.iter().sum(),
            latency: judged.iter().filter_map(|track| latency(arena, track, &is_judged)).fold(0.0, f64::max),
            outstanding: outstanding(&eligible),
            share_error: share_error(arena, &eligible, &is_judged),
            settling: settling_time(arena, &judged, &eligible, best),
            oscillation: oscillation(arena, &eligible, &is_judged),
            each,
        }
    }
}

fn tracks(run: &RunResult, is_one: impl Fn(&str) -> bool) -> Vec<&ConsumerSeries> {
    run.tracks.iter().filter(|track| is_one(track.consumer.as_str())).collect()
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (count, sum) = values.fold((0.0, 0.0), |(count, sum), value| (count + 1.0, sum + value));
    if count > 0.0 { sum / count } else { 0.0 }
}

/// Returns each consumer's mean. Stretches count by their lengths, however much of each is judged.
fn mean_of_each(
    arena: &ArenaScenario,
    tracks: &[&ConsumerSeries],
    counts: &dyn Fn(f64) -> bool,
    of: impl Fn(&SeriesSample) -> f64,
) -> Vec<f64> {
    let spans: Vec<(f64, f64)> = arena.spans().collect();
    let within = |track: &ConsumerSeries, (from, to): (f64, f64)| {
        let samples =
            track.samples.iter().filter(|(end, _)| counts(*end) && from < *end && *end <= to + 1e-9);
        mean(samples.map(|(_, sample)| of(sample)))
    };
    let own = |track: &&ConsumerSeries| {
        spans.iter().map(|span| (span.1 - span.0) / arena.seconds() * within(track, *span)).sum()
    };
    tracks.iter().map(own).collect()
}

/// The latency of an interval that is compared with the target: the mean, or the percentile promised.
fn judged_ms(arena: &ArenaScenario, sample: &SeriesSample) -> Option<f64> {
    match arena.statistic {
        SignalStatistic::Mean => sample.device_latency_ms,
        _ => sample.device_percentile_ms,
    }
}

/// Returns true if an interval is above the target, and `None` if there is nothing to judge. An interval in
/// which requests were outstanding and none completed is above a target that is shorter than itself.
fn is_above(arena: &ArenaScenario, track: &ConsumerSeries, end: f64, sample: &SeriesSample) -> Option<bool> {
    let target = arena.target_of(track.consumer.as_str(), end).as_millis_f64();
    match judged_ms(arena, sample) {
        Some(ms) => Some(ms > target),
        None => (sample.outstanding > 0.9 && target < arena.interval() * 1e3).then_some(true),
    }
}

/// The fraction of intervals above the target, of the worst consumer.
fn above(arena: &ArenaScenario, judged: &[&ConsumerSeries], counts: &dyn Fn(f64) -> bool) -> Option<f64> {
    let own = |track: &&ConsumerSeries| {
        let samples = track.samples.iter().filter(|(end, _)| counts(*end));
        let known: Vec<bool> =
            samples.filter_map(|(end, sample)| is_above(arena, track, *end, sample)).collect();
        let above = known.iter().filter(|above| **above).count();
        (!known.is_empty()).then(|| above as f64 / known.len() as f64)
    };
    judged.iter().filter_map(own).reduce(f64::max)
}

/// A consumer's mean latency in seconds, every request counting once. Of percentiles, the mean likewise.
fn latency(arena: &ArenaScenario, track: &ConsumerSeries, counts: &dyn Fn(f64) -> bool) -> Option<f64> {
    let (mut requests, mut total) = (0.0, 0.0);
    for (_, sample) in track.samples.iter().filter(|(end, _)| counts(*end)) {
        if let Some(ms) = judged_ms(arena, sample) {
            requests += sample.iops;
            total += sample.iops * ms / 1e3;
        }
    }
    (requests > 0.0).then(|| total / requests)
}

/// The greatest mean number of requests at the storage, by Little's law.
fn outstanding(eligible: &[&ConsumerSeries]) -> f64 {
    let intervals = eligible.iter().map(|track| track.samples.len()).max().unwrap_or(0);
    let at = |place: usize| {
        let samples = eligible.iter().filter_map(|track| track.samples.get(place));
        samples.map(|(_, sample)| sample.iops * sample.device_latency_ms.unwrap_or(0.0) / 1e3).sum::<f64>()
    };
    (0..intervals).map(at).fold(0.0, f64::max)
}

/// Returns true if a consumer always had requests waiting for the law, as far as means tell.
fn is_backlogged(sample: &SeriesSample) -> bool {
    let Some((felt, at)) = sample.latency_ms.zip(sample.device_latency_ms) else { return false };
    felt > BACKLOGGED * at && sample.outstanding - sample.iops * at / 1e3 >= WAITING
}

/// Returns true if no load comes and goes.
fn is_steady(arena: &ArenaScenario) -> bool {
    let steady = |workload: &Workload| workload.cycle.is_none() && workload.during == [ScenarioSpan::ALWAYS];
    arena.scenario.vms.iter().all(|vm| vm.workloads.iter().all(steady))
}

fn oscillation(
    arena: &ArenaScenario,
    eligible: &[&ConsumerSeries],
    counts: &dyn Fn(f64) -> bool,
) -> Option<f64> {
    let first = eligible.first().filter(|_| is_steady(arena))?;
    let all = |place: usize| {
        let samples = eligible.iter().filter_map(|track| track.samples.get(place));
        samples.map(|(_, sample)| sample.iops).sum::<f64>()
    };
    let ends: Vec<f64> = first.samples.iter().map(|(end, _)| *end).collect();
    let (mut changes, mut total) = (0.0, 0.0);
    for place in 1..ends.len() {
        if counts(ends[place - 1]) && counts(ends[place]) {
            let (before, now) = (all(place - 1), all(place));
            changes += (now - before).abs();
            total += now;
        }
    }
    (total > 0.0).then(|| changes / total)
}

fn share_error(
    arena: &ArenaScenario,
    eligible: &[&ConsumerSeries],
    counts: &dyn Fn(f64) -> bool,
) -> Option<f64> {
    let down = |track: &ConsumerSeries| arena.is_down(&track.host);
    if eligible.len() < 2 || !is_steady(arena) || eligible.iter().any(|track| down(track)) {
        return None;
    }
    let shares: Vec<f64> = arena.eligible().map(|vm| vm.shares.as_f64()).collect();
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
        let backlogged = samples.iter().all(|(_, sample)| is_backlogged(sample));
        if backlogged {
            used += 1.0;
            for (sum, (_, sample)) in got.iter_mut().zip(&samples) {
                *sum += sample.iops.max(sample.bytes_per_s / BYTES_PER_COST);
            }
        }
    }
    let total: f64 = got.iter().sum();
    (used > 0.5 * intervals && total > 0.0).then(|| {
        got.iter().zip(&shares).map(|(own, share)| (own / total - share / all).abs()).sum::<f64>() / 2.0
    })
}

/// The median time from a change to the first interval that is good with the two after it: it is good itself,
/// and of the three at least two have the latency and two the throughput.
fn settling_time(
    arena: &ArenaScenario,
    judged: &[&ConsumerSeries],
    eligible: &[&ConsumerSeries],
    best: &[(f64, f64)],
) -> Option<f64> {
    let ends: Vec<f64> = judged.first()?.samples.iter().map(|(end, _)| *end).collect();
    let bounds = arena.changes.iter().copied().skip(1).chain([arena.seconds()]);
    let mut times: Vec<f64> = Vec::new();
    for (change, bound) in arena.changes.iter().copied().zip(bounds) {
        let best = best.iter().rfind(|(from, _)| *from <= change + 1e-9).map_or(0.0, |(_, best)| *best);
        let good = |place: usize| {
            let at = |track: &&&ConsumerSeries| track.samples.get(place).copied();
            let is_low = judged.iter().all(|track| {
                let Some((end, sample)) = at(&track) else { return true };
                let target = arena.target_of(track.consumer.as_str(), end).as_millis_f64();
                judged_ms(arena, &sample).is_none_or(|ms| ms <= target)
            });
            let iops: f64 = eligible.iter().filter_map(|track| Some(at(&track)?.1.iops)).sum();
            (is_low, iops >= BACK * best)
        };
        let settled = ends.iter().enumerate().position(|(place, end)| {
            let near: Vec<_> = (place..place + 3).map(good).collect();
            let is_within = *end > change + 1e-9 && *end <= bound + 1e-9;
            is_within
                && near[0].0
                && near.iter().filter(|(low, _)| *low).count() >= 2
                && near.iter().filter(|(_, much)| *much).count() >= 2
        });
        let whole = bound - change;
        times
            .push(settled.map_or(whole, |place| (ends[place] - arena.interval() - change).clamp(0.0, whole)));
    }
    times.sort_by(f64::total_cmp);
    times.get(times.len().saturating_sub(1) / 2).copied()
}
