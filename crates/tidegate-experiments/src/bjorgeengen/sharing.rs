//! Four blades with equal loads, of which three are held and let go (§3.1, §3.2).

use std::time::Duration;

use tidegate_sim::iscsi::{Load, Packets, Plan, Throttle};
use tidegate_units::{Bytes, Latency};

use super::super::trial::spread;
use super::super::{Accepts, Experiment, Figure, Line, Plot, Quantity, Run, RunResult, Span};
use super::laboratory::{BLADES, plan, sequential};
use super::{megabytes, of, ratio, sum_line};

/// Each blade moves so much: b5, which is never held, is done before b2 is let go, and b2 after b4 is.
const AMOUNT: Bytes = Bytes::from_gib(2);

/// The times when b2, b3 and b4 are throttled, and when they are released, in seconds.
const HELD: [u64; 3] = [20, 40, 60];
const FREE: [u64; 3] = [180, 200, 220];

/// All compete; b2 is held; b2 and b3; all but b5. Without the first seconds of each.
const ALL: Span = Span::new(5.0, 20.0);
const ONE_HELD: Span = Span::new(25.0, 40.0);
const THREE_HELD: Span = Span::new(65.0, 95.0);
/// b5 is done: three are held; b2 is free; b2 and b3 are; all three are.
const ONLY_HELD: Span = Span::new(165.0, 180.0);
const ONE_FREE: Span = Span::new(185.0, 200.0);
const TWO_FREE: Span = Span::new(205.0, 220.0);
const THREE_FREE: Span = Span::new(225.0, 235.0);

fn loads(name: &str, write: bool, packets: Packets, held: bool) -> Plan {
    let delay = Latency::from_micros(9_600);
    let step = |second: u64, machine: usize, delay| (Duration::from_secs(second), machine, delay);
    // b2, b3 and b4 are the first three.
    let steps = HELD
        .into_iter()
        .zip(FREE)
        .enumerate()
        .flat_map(|(machine, (from, to))| [step(from, machine, delay), step(to, machine, Latency::ZERO)]);
    let load = |machine: usize| Load { amount: Some(AMOUNT), ..sequential(machine, machine as u64, write) };
    Plan {
        loads: (0..BLADES.len()).map(load).collect(),
        throttle: Throttle::Timetable { packets, steps: steps.filter(|_| held).collect() },
        ..plan(format!("figs. 5 to 7: {name}"), 900)
    }
}

fn rate(run: &RunResult, machine: &str, span: Span) -> Option<f64> {
    megabytes(run, &[machine], span)
}

/// The greatest over the least of some machines' rates.
fn unequal(run: &RunResult, machines: &[&str], span: Span) -> Option<f64> {
    spread(machines.iter().map(|machine| rate(run, machine, span)))
}

fn each(run: &RunResult, machines: &[&str], span: Span) -> Option<f64> {
    Some(megabytes(run, machines, span)? / machines.len() as f64)
}

/// Returns the judged quantities of reads (fig. 6) or of writes (fig. 7).
fn quantities_of(run: &'static str) -> Vec<Quantity> {
    vec![
        Quantity::new(
            format!("{run}: rate of b2, held : before"),
            Accepts::AtMost(0.8),
            "it is throttled, clearly: beside three others it had a quarter of the disks, and 9.6 ms is what the paper's \
             figures 8 and 9 end with",
            of(run, |run| ratio(rate(run, "b2", ONE_HELD), rate(run, "b2", ALL))),
        ),
        Quantity::new(
            format!("{run}: rate of b5 while the others are held : before"),
            Accepts::AtLeast(1.2),
            "what they leave is b5's; 1.2 is beyond the noise of four streams on five disks",
            of(run, |run| ratio(rate(run, "b5", THREE_HELD), rate(run, "b5", ALL))),
        ),
        Quantity::new(
            format!("{run}: rate of b2, let go when b5 is done : before"),
            Accepts::AtLeast(2.0),
            "its throughput increases dramatically: at least twice",
            of(run, |run| ratio(rate(run, "b2", ONE_FREE), rate(run, "b2", ONLY_HELD))),
        ),
        Quantity::new(
            format!("{run}: b2 and b3 free, the greater rate : the smaller"),
            Accepts::AtMost(1.15),
            "approximately 14 MB/s each; 15 % for what the paper rounds",
            of(run, |run| unequal(run, &["b2", "b3"], TWO_FREE)),
        )
        .paper(1.0),
        Quantity::new(
            format!("{run}: b2, b3 and b4 free, the greatest rate : the least"),
            Accepts::AtMost(1.15),
            "about 10 MB/s each; 15 % as before",
            of(run, |run| unequal(run, &["b2", "b3", "b4"], THREE_FREE)),
        )
        .paper(1.0),
    ]
}

pub(super) fn figs5_to_7() -> Experiment {
    let free = |name, span, paper, machines: &'static [&'static str], run: &'static str| {
        Figure::new(name, "MB/s", paper, of(run, move |run| each(run, machines, span)))
    };
    let mut quantities = vec![
        Quantity::new(
            "reads, nobody held: greatest rate : least",
            Accepts::AtMost(1.1),
            "equal loads from equal machines share equally; 10 % for where their volumes lie",
            of("nobody held", |run| unequal(run, &BLADES, ALL)),
        )
        .paper(1.0),
    ];
    quantities.extend(quantities_of("reads"));
    quantities.push(
        Quantity::new(
            "reads: rate of each of three : of each of two",
            Accepts::near(10.0 / 14.0, 15.0),
            "the paper's 10 and 14 MB/s: the disks give a little more to three streams than to two; 15 % for rounding",
            of("reads", |run| {
                ratio(each(run, &["b2", "b3", "b4"], THREE_FREE), each(run, &["b2", "b3"], TWO_FREE))
            }),
        )
        .paper(10.0 / 14.0),
    );
    quantities.extend(quantities_of("writes"));
    Experiment {
        id: "bjorgeengen.fig5-7",
        title: "Four equal loads, of which three are throttled and let go one after the other",
        paper: "Four blades read equally, and share equally (fig. 5). Throttled at different times (figs. 6 and 7), b2, b3 and \
                b4 leave what they had to the others. When b2 is let go, b5 is done, and b2's throughput increases \
                dramatically; with b3 it shares at about 14 MB/s each, with b3 and b4 at about 10 MB/s each. (A drop of the \
                others when throttling starts remains unexplained there.)",
        setup: "2 GiB on each blade, a delay of 9.6 ms on b2, b3 and b4 from 20, 40 and 60 s to 180, 200 and 220 s; reads by \
                all packets, writes by bare acknowledgements. The text gives neither times nor delays. Volumes of 4 GiB in \
                the order of the blades.",
        runs: vec![
            Run::new("nobody held", loads("reads, nobody held", false, Packets::All, false)),
            Run::new("reads", loads("reads", false, Packets::All, true)),
            Run::new("writes", loads("writes", true, Packets::Acks, true)),
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
    }
}

fn by_blade(run: &RunResult) -> Vec<Line> {
    BLADES.map(|blade| sum_line(run, blade, &[blade], |sample| sample.bytes_per_s * 1e-6)).into()
}
