//! Loads that the paper does not have: writes, and bursts.

use std::sync::Arc;

use rand::Rng;
use rand_pcg::Pcg64;
use tidegate_sim::Scenario;
use tidegate_sim::scenario::{OperationArrivals, TraceRecord};
use tidegate_units::{Instant, Latency};

use super::admission::{PAIR, PROMISED_MS, offered, promised_ratio};
use super::cases::END;
use super::{both, improved, iops, late, of, workload};
use crate::{Experiment, JudgedQuantity, NamedRun, ReportedFigure, RunResult, TimeSpan, Tolerance};

/// The requests that may be late, in per cent (§4.5, case 4).
const LATE: f64 = 3.0;

/// The part that reads, where half of the requests write.
const HALF: f64 = 0.5;

fn writing(mut scenario: Scenario) -> Scenario {
    for vm in &mut scenario.vms {
        vm.workloads[0].steps[0].reads = HALF;
    }
    scenario
}

/// Half of all requests write: what admission finds, and whether it holds.
pub(super) fn writes() -> Experiment {
    const OFFERED: &str = "offered";
    const KEPT: &str = "kept";
    let mut contracts = writing(both());
    contracts.name = "lee, writes".to_owned();
    improved(&mut contracts);
    let mut quantities = Vec::new();
    for ((consumer, _), promised) in PAIR.into_iter().zip(PROMISED_MS) {
        quantities.push(JudgedQuantity::new(
            format!("RT^T of {consumer} : promised"),
            Tolerance::AtMost(1.0),
            of(OFFERED, move |run| promised_ratio(run, consumer, promised)),
        ));
        quantities.push(lates(KEPT, consumer));
    }
    Experiment {
        runs: vec![NamedRun::new(OFFERED, writing(offered(&PAIR))), NamedRun::new(KEPT, contracts)],
        quantities,
        ..Experiment::of("lee.writes")
    }
}

fn lates(run: &'static str, consumer: &'static str) -> JudgedQuantity {
    let name = format!("requests of {consumer} that are late");
    JudgedQuantity::new(name, Tolerance::AtMost(LATE), of(run, move |run| late(run, consumer))).unit("%")
}

/// The bias of bursts: so much of what comes in a time comes in one half of it, on all scales.
const BIAS: f64 = 0.7;

/// The times are halved until they are no longer than this, in seconds.
const SHORTEST: f64 = 0.05;

/// The part of its promised rate that a workload asks for on average.
const USED: f64 = 0.6;

/// Bytes of a request.
const SIZE: u32 = 4_096;

/// The block of a drive of 8.5 GiB at which a request begins.
const BLOCKS: u64 = (8_704 << 20) / SIZE as u64;

/// Arrivals by the b-model (Wang et al., *Data Mining Meets Performance Evaluation*, ICDE 2002), which makes
/// traffic as bursty on all scales as recorded disk traffic is.
fn bursts(requests: f64, seconds: f64, random: &mut Pcg64) -> Vec<TraceRecord> {
    let mut parts = vec![(0.0, seconds, requests)];
    let mut records = Vec::new();
    while let Some((begin, length, requests)) = parts.pop() {
        if length > SHORTEST {
            let (half, first) = (length / 2.0, if fraction(random) < 0.5 { BIAS } else { 1.0 - BIAS });
            parts.push((begin + half, half, requests * (1.0 - first)));
            parts.push((begin, half, requests * first));
            continue;
        }
        // What is left of a request is one with that probability.
        let count = requests.floor() as u32 + u32::from(fraction(random) < requests.fract());
        let mut times: Vec<f64> = (0..count).map(|_| begin + length * fraction(random)).collect();
        times.sort_by(f64::total_cmp);
        records.extend(times.into_iter().map(|at| TraceRecord {
            at: Instant::ZERO + Latency::from_secs_f64(at),
            read: true,
            offset: (fraction(random) * BLOCKS as f64) as u64 * u64::from(SIZE),
            bytes: SIZE,
        }));
    }
    records
}

fn fraction(random: &mut Pcg64) -> f64 {
    const BITS: u32 = 53;
    (random.next_u64() >> (u64::BITS - BITS)) as f64 / (1_u64 << BITS) as f64
}

/// Both workloads replay bursts, of three fifths of what they were promised.
fn bursty() -> Scenario {
    let mut scenario = both();
    scenario.name = "lee, bursts".to_owned();
    for (place, (name, rate)) in PAIR.into_iter().enumerate() {
        let mut random = Pcg64::new(1_000_001, place as u128);
        let records: Arc<[TraceRecord]> = bursts(USED * rate * END, END, &mut random).into();
        let load = workload(&mut scenario, name);
        load.steps.clear();
        load.arrivals = OperationArrivals::Trace { records, speed: 1.0, repeat: false };
    }
    scenario
}

/// Requests come in bursts.
pub(super) fn bursts_of_both() -> Experiment {
    const LITERAL: &str = "bursts";
    const IMPROVED: &str = "bursts, improved";
    let all = TimeSpan::new(0.0, END);
    let mut figures = Vec::new();
    for (consumer, _) in PAIR {
        figures.push(ReportedFigure::new(
            format!("{LITERAL}: requests of {consumer} that are late"),
            "%",
            None,
            of(LITERAL, move |run| late(run, consumer)),
        ));
        figures.push(ReportedFigure::new(
            format!("{IMPROVED}: rate of {consumer}"),
            "IO/s",
            None,
            of(IMPROVED, move |run| iops(run, consumer, all)),
        ));
        let longest = move |run: &RunResult| {
            let seconds =
                (0..END as u32).map(|second| TimeSpan::new(f64::from(second), f64::from(second + 1)));
            seconds.filter_map(|second| iops(run, consumer, second)).max_by(f64::total_cmp)
        };
        figures.push(ReportedFigure::new(
            format!("{IMPROVED}: the busiest second of {consumer}"),
            "IO/s",
            None,
            of(IMPROVED, longest),
        ));
    }
    Experiment {
        runs: vec![NamedRun::new(LITERAL, bursty()), NamedRun::new(IMPROVED, bursty()).but(improved)],
        quantities: vec![lates(IMPROVED, "w1"), lates(IMPROVED, "w2")],
        figures,
        ..Experiment::of("lee.bursts")
    }
}
