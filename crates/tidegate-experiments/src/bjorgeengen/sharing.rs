//! Four blades with equal loads, of which three are throttled and released (§3.1, §3.2).

use std::time::Duration;

use tidegate_sim::iscsi::{IscsiPlan, MachineLoad, PacketClasses, ThrottleRule};
use tidegate_units::{Bytes, Latency};

use super::super::trial::spread;
use super::super::{
    Experiment, JudgedQuantity, NamedRun, Plot, PlotLine, ReportedFigure, RunResult, TimeSpan, Tolerance,
};
use super::laboratory::{BLADES, plan, sequential};
use super::{megabytes, of, ratio, sum_line};

/// Each blade moves so much: b5, which is never throttled, is done before b2 is
/// released, and b2 after b4 is.
const AMOUNT: Bytes = Bytes::from_gib(2);

/// Readers that read ahead are quicker, and would be done before the last stretch.
const READ_AMOUNT: Bytes = Bytes::from_mib(2_560);

/// The times when b2, b3 and b4 are throttled, and when they are released, in seconds.
const HELD: [u64; 3] = [20, 40, 60];
const FREE: [u64; 3] = [180, 200, 220];

/// All compete; b2 is throttled; b2 and b3; all but b5. Without the first seconds of each.
const ALL: TimeSpan = TimeSpan::new(5.0, 20.0);
const ONE_HELD: TimeSpan = TimeSpan::new(25.0, 40.0);
const THREE_HELD: TimeSpan = TimeSpan::new(65.0, 95.0);
/// b5 is done: three are throttled; b2 is free; b2 and b3 are; all three are.
const ONLY_HELD: TimeSpan = TimeSpan::new(165.0, 180.0);
const ONE_FREE: TimeSpan = TimeSpan::new(185.0, 200.0);
const TWO_FREE: TimeSpan = TimeSpan::new(205.0, 220.0);
const THREE_FREE: TimeSpan = TimeSpan::new(225.0, 235.0);

fn loads(name: &str, write: bool, packets: PacketClasses, held: bool) -> IscsiPlan {
    let delay = Latency::from_micros(9_600);
    let step = |second: u64, machine: usize, delay| (Duration::from_secs(second), machine, delay);
    // b2, b3 and b4 are the first three.
    let steps = HELD
        .into_iter()
        .zip(FREE)
        .enumerate()
        .flat_map(|(machine, (from, to))| [step(from, machine, delay), step(to, machine, Latency::ZERO)]);
    // A reader's kernel asks for the next pages while it hands on the last ones: two requests are under way.
    let depth = if write { 1 } else { 2 };
    let load = |machine: usize| MachineLoad {
        amount: Some(if write { AMOUNT } else { READ_AMOUNT }),
        depth,
        ..sequential(machine, machine as u64, write)
    };
    IscsiPlan {
        loads: (0..BLADES.len()).map(load).collect(),
        throttle: ThrottleRule::Timetable { packets, steps: steps.filter(|_| held).collect() },
        ..plan(format!("figs. 5 to 7: {name}"), 900)
    }
}

fn rate(run: &RunResult, machine: &str, span: TimeSpan) -> Option<f64> {
    megabytes(run, &[machine], span)
}

/// The greatest over the least of some machines' rates.
fn unequal(run: &RunResult, machines: &[&str], span: TimeSpan) -> Option<f64> {
    spread(machines.iter().map(|machine| rate(run, machine, span)))
}

fn each(run: &RunResult, machines: &[&str], span: TimeSpan) -> Option<f64> {
    Some(megabytes(run, machines, span)? / machines.len() as f64)
}

/// Returns the judged quantities of reads (fig. 6) or of writes (fig. 7).
fn quantities_of(run: &'static str) -> Vec<JudgedQuantity> {
    vec![
        JudgedQuantity::new(
            format!("{run}: rate of b2, held : before"),
            Tolerance::AtMost(0.8),
            of(run, |run| ratio(rate(run, "b2", ONE_HELD), rate(run, "b2", ALL))),
        ),
        JudgedQuantity::new(
            format!("{run}: rate of b5 while the others are held : before"),
            Tolerance::AtLeast(1.2),
            of(run, |run| ratio(rate(run, "b5", THREE_HELD), rate(run, "b5", ALL))),
        ),
        JudgedQuantity::new(
            format!("{run}: rate of b2, let go when b5 is done : before"),
            Tolerance::AtLeast(2.0),
            of(run, |run| ratio(rate(run, "b2", ONE_FREE), rate(run, "b2", ONLY_HELD))),
        ),
        JudgedQuantity::new(
            format!("{run}: b2 and b3 free, the greater rate : the smaller"),
            Tolerance::AtMost(1.15),
            of(run, |run| unequal(run, &["b2", "b3"], TWO_FREE)),
        )
        .paper(1.0),
        JudgedQuantity::new(
            format!("{run}: b2, b3 and b4 free, the greatest rate : the least"),
            Tolerance::AtMost(1.15),
            of(run, |run| unequal(run, &["b2", "b3", "b4"], THREE_FREE)),
        )
        .paper(1.0),
    ]
}

pub(super) fn figs5_to_7() -> Experiment {
    let free = |name, span, paper, machines: &'static [&'static str], run: &'static str| {
        ReportedFigure::new(name, "MB/s", paper, of(run, move |run| each(run, machines, span)))
    };
    let mut quantities = vec![
        JudgedQuantity::new(
            "reads, nobody held: greatest rate : least",
            Tolerance::AtMost(1.1),
            of("nobody held", |run| unequal(run, &BLADES, ALL)),
        )
        .paper(1.0),
    ];
    quantities.extend(quantities_of("reads"));
    quantities.push(
        JudgedQuantity::new(
            "reads: rate of each of three : of each of two",
            Tolerance::near(10.0 / 14.0, 15.0),
            of("reads", |run| {
                ratio(each(run, &["b2", "b3", "b4"], THREE_FREE), each(run, &["b2", "b3"], TWO_FREE))
            }),
        )
        .paper(10.0 / 14.0),
    );
    quantities.extend(quantities_of("writes"));
    Experiment {
        runs: vec![
            NamedRun::new("nobody held", loads("reads, nobody held", false, PacketClasses::All, false)),
            NamedRun::new("reads", loads("reads", false, PacketClasses::All, true)),
            NamedRun::new("writes", loads("writes", true, PacketClasses::Acks, true)),
        ],
        quantities,
        figures: vec![
            free("reads: each of four, nobody held", ALL, None, &BLADES, "nobody held"),
            free("reads: b5 while the others are held", THREE_HELD, None, &["b5"], "reads"),
            free("reads: b2 alone beside who is held", ONE_FREE, None, &["b2"], "reads"),
            free("reads: each of two", TWO_FREE, Some(14.0), &["b2", "b3"], "reads"),
            free("reads: each of three", THREE_FREE, Some(10.0), &["b2", "b3", "b4"], "reads"),
            free("writes: each of four", ALL, None, &BLADES, "writes"),
            free("writes: b5 while the others are held", THREE_HELD, None, &["b5"], "writes"),
            free("writes: each of two", TWO_FREE, None, &["b2", "b3"], "writes"),
            free("writes: each of three", THREE_FREE, None, &["b2", "b3", "b4"], "writes"),
        ],
        plots: ["nobody held", "reads", "writes"]
            .map(|run| Plot {
                title: format!("Rates: {run}"),
                unit: "MB/s",
                over: "s",
                marks: Vec::new(),
                lines: Box::new(move |trial| trial.run(run).map(by_blade).unwrap_or_default()),
            })
            .into(),
        ..Experiment::of("bjorgeengen.fig5-7")
    }
}

fn by_blade(run: &RunResult) -> Vec<PlotLine> {
    BLADES.map(|blade| sum_line(run, blade, &[blade], |sample| sample.bytes_per_s * 1e-6)).into()
}
