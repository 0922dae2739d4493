//! The figures of one law on one scenario under one seed. What they mean is said where the tournament begins.

use tidegate_control::{BandClaim, allot};
use tidegate_units::Iops;

use super::Contest;
use super::contest::{SET_POINT, SETTLES};
use crate::{ConsumerSeries, RunResult, TimeSpan};

/// No law that decides every second can have had an effect before.
const GRACE: f64 = 2.0;

/// The measures of one law.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LawMeasures {
    /// The part of seconds above the target.
    pub above_target_fraction: Option<f64>,
    /// The greatest excess over the target, as a part of it.
    pub overshoot: Option<f64>,
    /// The longest settling time, in seconds; `None` when it never settled.
    pub settling_s: Option<f64>,
    /// Throughput over the oracle's.
    pub throughput_vs_oracle: Option<f64>,
    /// The throughput that went to other consumers than those it was due to, as a part of all.
    pub share_error: Option<f64>,
}

impl LawMeasures {
    /// `best`: what the oracle does in each phase.
    pub(super) fn of(contest: &Contest, run: &RunResult, best: &[f64]) -> Self {
        let stretches = contest.stretches();
        Self {
            above_target_fraction: above(contest, run),
            overshoot: stretches
                .iter()
                .filter_map(|stretch| overshoot(contest, run, *stretch))
                .reduce(f64::max),
            settling_s: stretches
                .iter()
                .map(|stretch| settling(contest, run, *stretch))
                .try_fold(0.0, |longest: f64, one| Some(longest.max(one?))),
            throughput_vs_oracle: throughput(contest, run, best),
            share_error: share_error(contest, run),
        }
    }
}

/// r over a stretch of time.
pub(super) fn ratio(contest: &Contest, run: &RunResult, span: TimeSpan) -> Option<f64> {
    let of = |group: &super::contest::TargetGroup| {
        let (mut requests, mut total) = (0.0, 0.0);
        for track in run.tracks.iter().filter(|track| group.has(track.consumer.as_str())) {
            for (end, sample) in within(track, span) {
                if let Some(ms) = sample.device_latency_ms {
                    requests += sample.iops;
                    total += sample.iops * ms / group.target_ms(end);
                }
            }
        }
        (requests > 0.0).then(|| total / requests)
    };
    contest.groups.iter().filter_map(of).reduce(f64::max)
}

fn within(
    track: &ConsumerSeries,
    span: TimeSpan,
) -> impl Iterator<Item = (f64, &tidegate_sim::SeriesSample)> {
    let inside = move |end: f64| end > span.from + 1e-9 && end <= span.to + 1e-9;
    track.samples.iter().filter(move |(end, _)| inside(*end)).map(|(end, sample)| (*end, sample))
}

fn seconds(span: TimeSpan) -> impl Iterator<Item = f64> {
    let count = (span.to - span.from).max(0.0) as u32;
    (0..count).map(move |second| span.from + f64::from(second))
}

fn above(contest: &Contest, run: &RunResult) -> Option<f64> {
    let all = TimeSpan::new(contest.begins.as_secs_f64(), contest.seconds());
    let known: Vec<f64> =
        seconds(all).filter_map(|second| ratio(contest, run, TimeSpan::new(second, second + 1.0))).collect();
    let above = known.iter().filter(|ratio| **ratio > 1.0).count();
    (!known.is_empty()).then(|| above as f64 / known.len() as f64)
}

fn overshoot(contest: &Contest, run: &RunResult, stretch: TimeSpan) -> Option<f64> {
    let from = TimeSpan::new(stretch.from + GRACE, stretch.to - 2.0);
    let means = seconds(from).filter_map(|second| ratio(contest, run, TimeSpan::new(second, second + 3.0)));
    means.reduce(f64::max).map(|most| (most - 1.0).max(0.0))
}

fn settling(contest: &Contest, run: &RunResult, stretch: TimeSpan) -> Option<f64> {
    let settled = |second: &f64| {
        let one = ratio(contest, run, TimeSpan::new(*second, second + 1.0));
        let five = ratio(contest, run, TimeSpan::new(*second, second + 5.0));
        let both = one.zip(five);
        if contest.comes_and_goes {
            both.is_some_and(|(one, five)| one <= 1.3 && five <= 1.0)
        } else {
            let near = |found: f64, part: f64| (found / SET_POINT - 1.0).abs() <= part;
            both.is_some_and(|(one, five)| near(one, 0.3) && near(five, 0.2))
        }
    };
    let found = seconds(TimeSpan::new(stretch.from, stretch.to - 4.0)).find(settled)?;
    Some(found - stretch.from)
}

/// Requests per second of the eligible consumers.
pub(super) fn eligible_iops(contest: &Contest, run: &RunResult, span: TimeSpan) -> Option<f64> {
    let names = contest.scenario.vms.iter().filter(|vm| !vm.protected).map(|vm| vm.name.as_str());
    names.map(|name| run.mean(name, span, |sample| Some(sample.iops))).sum()
}

fn throughput(contest: &Contest, run: &RunResult, best: &[f64]) -> Option<f64> {
    let phases = contest.phases();
    let ratios = phases.iter().zip(best).map(|(phase, best)| {
        let found = eligible_iops(contest, run, TimeSpan::new(phase.span.from + SETTLES, phase.span.to))?;
        (*best > 0.0).then_some(found / best)
    });
    let ratios: Vec<f64> = ratios.collect::<Option<_>>()?;
    (!ratios.is_empty()).then(|| ratios.iter().sum::<f64>() / ratios.len() as f64)
}

/// The parts that are due to the eligible consumers, at a throughput of all.
pub(super) fn due(contest: &Contest, total: f64) -> Vec<f64> {
    let throttled = contest.scenario.vms.iter().filter(|vm| !vm.protected);
    let claims: Vec<BandClaim<'_>> = throttled
        .map(|vm| BandClaim { name: Some(&vm.name), shares: vm.shares.as_f64(), most: None })
        .collect();
    let parts = allot(contest.bands.as_ref(), Iops::new(total), &claims);
    let sum: f64 = parts.iter().map(|part| part.per_second()).sum();
    parts.iter().map(|part| if sum > 0.0 { part.per_second() / sum } else { 0.0 }).collect()
}

fn share_error(contest: &Contest, run: &RunResult) -> Option<f64> {
    let names: Vec<&str> =
        contest.scenario.vms.iter().filter(|vm| !vm.protected).map(|vm| vm.name.as_str()).collect();
    if names.len() < 2 {
        return None;
    }
    let errors: Vec<f64> = contest
        .shared
        .iter()
        .filter_map(|span| {
            let rates = names.iter().map(|name| run.mean(name, *span, |sample| Some(sample.iops)));
            let rates: Vec<f64> = rates.collect::<Option<_>>()?;
            let total: f64 = rates.iter().sum();
            let wrong = rates.iter().zip(due(contest, total)).map(|(rate, due)| (rate / total - due).abs());
            (total > 0.0).then(|| wrong.sum::<f64>() / 2.0)
        })
        .collect();
    (!errors.is_empty()).then(|| errors.iter().sum::<f64>() / errors.len() as f64)
}
