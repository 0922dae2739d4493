//! The controller: thresholds of 20, 15 and 10 ms beside twelve writers that come and go together (§3.6).

use std::time::Duration;

use tidegate_control::{LawConfig, LoopConfig, PidConfig, PidVariant, SignalChoice, WritersConfig};
use tidegate_sim::iscsi::{IscsiPlan, LoadTimes, MemberRule, PacketClasses, ThrottleRule};
use tidegate_units::{Latency, ResourceName};

use super::super::{
    Experiment, JudgedQuantity, NamedRun, Plot, PlotLine, ReportedFigure, RunResult, SeedTrial, TimeSpan,
    Tolerance,
};
use super::interference::{WRITERS, reader_line, wait, writers_line, written};
use super::laboratory::{named, plan, reader, writers};
use super::{of, over_time, ratio};

/// The reader is alone so long; then bursts of all writers with a pause between them.
const LEAD: u64 = 30;
pub(super) const ON: u64 = 25;
const OFF: u64 = 5;
const BURSTS: u64 = 6;

/// The first seconds of a burst, which do not count.
pub(super) const SETTLING: u64 = 3;

pub(super) const THRESHOLDS_MS: [u64; 3] = [20, 15, 10];
pub(super) const FREE: &str = "nobody held";

/// The sets of eligible machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MemberSets {
    /// Figs. 12 and 13.
    Manual,
    /// Figs. 14 to 16.
    Automatic,
}

impl MemberSets {
    const fn name(self) -> &'static str {
        match self {
            Self::Manual => "manual",
            Self::Automatic => "automatic",
        }
    }
}

fn name(sets: MemberSets, threshold_ms: u64) -> String {
    format!("{}, {threshold_ms} ms", sets.name())
}

/// A moment so many seconds into each burst, to another.
pub(super) fn in_bursts(from: u64, to: u64) -> impl Iterator<Item = TimeSpan> {
    (0..BURSTS).map(move |burst| {
        let begins = LEAD + burst * (ON + OFF);
        TimeSpan::new((begins + from) as f64, (begins + to) as f64)
    })
}

/// The mean over all bursts.
pub(super) fn over_bursts(
    run: &RunResult,
    spans: impl Iterator<Item = TimeSpan>,
    number: impl Fn(&RunResult, TimeSpan) -> Option<f64>,
) -> Option<f64> {
    let values: Vec<f64> = spans.map(|span| number(run, span)).collect::<Option<_>>()?;
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

pub(super) fn settled_wait(run: &RunResult) -> Option<f64> {
    over_bursts(run, in_bursts(SETTLING, ON), wait)
}

pub(super) fn settled_rate(run: &RunResult) -> Option<f64> {
    over_bursts(run, in_bursts(SETTLING, ON), written)
}

/// Returns the reader's mean response time while the bursts begin, in milliseconds.
fn first_wait(run: &RunResult) -> Option<f64> {
    over_bursts(run, in_bursts(0, SETTLING), wait)
}

/// The part of the settled seconds whose mean is at most the threshold.
pub(super) fn seconds_within(run: &RunResult, threshold_ms: f64) -> Option<f64> {
    let seconds = (SETTLING..ON).flat_map(|second| in_bursts(second, second + 1));
    let waits: Vec<f64> = seconds.filter_map(|span| wait(run, span)).collect();
    let within = waits.iter().filter(|wait| **wait <= threshold_ms).count();
    (!waits.is_empty()).then(|| within as f64 / waits.len() as f64)
}

pub(super) fn mean_delay(run: &RunResult, span: TimeSpan) -> Option<f64> {
    let values =
        || run.delays.iter().filter(|(end, _)| *end > span.from && *end <= span.to).map(|(_, delay)| delay);
    (values().count() > 0).then(|| values().sum::<f64>() / values().count() as f64)
}

pub(super) fn bursts(name: &str, throttle: ThrottleRule) -> IscsiPlan {
    let seconds = Duration::from_secs;
    let when = LoadTimes::Bursts { from: seconds(LEAD), on: seconds(ON), off: seconds(OFF) };
    IscsiPlan {
        loads: std::iter::once(reader()).chain(writers(3, when)).collect(),
        throttle,
        ..plan(format!("figs. 12 to 16: {name}"), LEAD + BURSTS * (ON + OFF))
    }
}

fn free() -> NamedRun {
    let nobody = ThrottleRule::Timetable { packets: PacketClasses::Acks, steps: Vec::new() };
    NamedRun::new(FREE, bursts(FREE, nobody))
}

/// The gains that the agent's PID had when it was judged, and the paper's step. No default changes them.
pub(super) fn agents_gains() -> PidConfig {
    PidConfig {
        proportional_gain: 0.5,
        integral_time: Duration::from_millis(200),
        derivative_time: Duration::ZERO,
        variant: PidVariant::Clamped,
        step: Latency::from_micros(500),
        ..PidConfig::default()
    }
}

/// The agent's loop with the paper's interval, steps and range, and its threshold as the set point. The gains
/// are Tidegate's; the paper gives none.
fn regulated(sets: MemberSets, threshold_ms: u64) -> NamedRun {
    let resource =
        ResourceName::new("vg_aic").unwrap_or_else(|error| panic!("an embedded name is wrong: {error}"));
    let pid = PidConfig { greatest: Latency::from_millis(20), ..agents_gains() };
    let law = LoopConfig {
        interval: Duration::from_millis(100),
        set_point_ratio: 1.0,
        signal: SignalChoice::Reads,
        ..LoopConfig::new(resource, Latency::from_millis(threshold_ms), LawConfig::Pid(pid))
    };
    let members = match sets {
        MemberSets::Manual => MemberRule::Named(WRITERS.map(named).to_vec()),
        MemberSets::Automatic => MemberRule::Automatic(WritersConfig::default()),
    };
    let throttle = ThrottleRule::Regulated { packets: PacketClasses::Acks, law: Box::new(law), members };
    let name = name(sets, threshold_ms);
    NamedRun::new(name.clone(), bursts(&name, throttle))
}

fn runs(sets: MemberSets) -> Vec<NamedRun> {
    std::iter::once(free()).chain(THRESHOLDS_MS.map(|threshold| regulated(sets, threshold))).collect()
}

/// A run's number over that of the run without a throttle.
pub(super) fn to_free(
    run: String,
    number: fn(&RunResult) -> Option<f64>,
) -> impl Fn(&SeedTrial<'_>) -> Option<f64> + Send + Sync + 'static {
    move |trial| ratio(number(trial.run(&run)?), number(trial.run(FREE)?))
}

/// Milliseconds gained for each MB/s given up, between two runs.
fn gain(before: &RunResult, after: &RunResult) -> Option<f64> {
    ratio(
        Some(settled_wait(before)? - settled_wait(after)?),
        Some(settled_rate(before)? - settled_rate(after)?),
    )
}

/// Returns the quantities that are judged with both kinds of sets.
fn common(sets: MemberSets) -> Vec<JudgedQuantity> {
    let mut quantities = Vec::new();
    for threshold in THRESHOLDS_MS {
        quantities.push(
            JudgedQuantity::new(
                format!("{threshold} ms: mean wait of the settled seconds"),
                Tolerance::AtMost(1.05 * threshold as f64),
                of(name(sets, threshold), settled_wait),
            )
            .paper(threshold as f64)
            .unit("ms"),
        );
    }
    for (threshold, paper) in [(20, 33.0 / 39.0), (15, 26.0 / 39.0)] {
        quantities.push(
            JudgedQuantity::new(
                format!("{threshold} ms: written : by writers that nobody holds"),
                Tolerance::near(paper, 20.0),
                to_free(name(sets, threshold), settled_rate),
            )
            .paper(paper),
        );
    }
    quantities.push(JudgedQuantity::new(
        "written at 10 ms : at 15 ms",
        Tolerance::AtMost(0.9),
        move |trial| {
            let rate = |threshold| settled_rate(trial.run(&name(sets, threshold))?);
            ratio(rate(10), rate(15))
        },
    ));
    quantities.push(
        JudgedQuantity::new(
            "ms gained for each MB/s given up, to 20 ms : from there to 15 ms",
            Tolerance::AtLeast(1.5),
            move |trial| {
                let run = |threshold| trial.run(&name(sets, threshold));
                ratio(gain(trial.run(FREE)?, run(20)?), gain(run(20)?, run(15)?))
            },
        )
        .paper(25.0 / 6.0 / (5.0 / 7.0)),
    );
    quantities
}

fn figures(sets: MemberSets) -> Vec<ReportedFigure> {
    let mut figures = vec![
        ReportedFigure::new("wait, nobody held", "ms", Some(45.0), of(FREE, settled_wait)),
        ReportedFigure::new("written, nobody held", "MB/s", Some(39.0), of(FREE, settled_rate)),
        ReportedFigure::new("wait gained at 20 ms", "ms", Some(25.0), move |trial| {
            Some(settled_wait(trial.run(FREE)?)? - settled_wait(trial.run(&name(sets, 20))?)?)
        }),
    ];
    for (threshold, written) in [(20, Some(33.0)), (15, Some(26.0)), (10, None)] {
        let run = || name(sets, threshold);
        let limit = threshold as f64;
        figures.push(ReportedFigure::new(
            format!("written at {threshold} ms"),
            "MB/s",
            written,
            of(run(), settled_rate),
        ));
        figures.push(ReportedFigure::new(
            format!("{threshold} ms: part of the settled seconds within"),
            "",
            None,
            of(run(), move |run| seconds_within(run, limit)),
        ));
        figures.push(ReportedFigure::new(
            format!("{threshold} ms: wait in the first {SETTLING} s of a burst"),
            "ms",
            None,
            of(run(), first_wait),
        ));
        figures.push(ReportedFigure::new(
            format!("{threshold} ms: delay in the settled seconds"),
            "ms",
            None,
            of(run(), |run| over_bursts(run, in_bursts(SETTLING, ON), mean_delay)),
        ));
    }
    figures
}

fn plots(sets: MemberSets) -> Vec<Plot> {
    let names = || std::iter::once(FREE.to_owned()).chain(THRESHOLDS_MS.map(|one| name(sets, one))).collect();
    let marks = vec![("20 ms", 20.0), ("15 ms", 15.0), ("10 ms", 10.0)];
    vec![
        over_time("What the reader waits", "ms", names(), marks, reader_line),
        over_time("Written by all", "MB/s", names(), Vec::new(), writers_line),
    ]
}

pub(super) fn figs12_and_13() -> Experiment {
    Experiment {
        runs: runs(MemberSets::Manual),
        quantities: common(MemberSets::Manual),
        figures: figures(MemberSets::Manual),
        plots: plots(MemberSets::Manual),
        ..Experiment::of("bjorgeengen.fig12-13")
    }
}

pub(super) fn figs14_and_15() -> Experiment {
    let mut quantities = common(MemberSets::Automatic);
    for threshold in THRESHOLDS_MS {
        let both = move |trial: &SeedTrial<'_>, number: fn(&RunResult) -> Option<f64>| {
            ratio(
                number(trial.run(&name(MemberSets::Automatic, threshold))?),
                number(trial.run(&name(MemberSets::Manual, threshold))?),
            )
        };
        quantities.push(
            JudgedQuantity::new(
                format!("{threshold} ms: written, automatic : manual"),
                Tolerance::near(1.0, 10.0),
                move |trial| both(trial, settled_rate),
            )
            .paper(1.0),
        );
        quantities.push(
            JudgedQuantity::new(
                format!("{threshold} ms: settled wait, automatic : manual"),
                Tolerance::near(1.0, 10.0),
                move |trial| both(trial, settled_wait),
            )
            .paper(1.0),
        );
        quantities.push(JudgedQuantity::new(
            format!("{threshold} ms: wait while bursts begin, automatic : manual"),
            Tolerance::Between(1.0, 2.5),
            move |trial| both(trial, first_wait),
        ));
    }
    let manual = THRESHOLDS_MS.map(|threshold| regulated(MemberSets::Manual, threshold));
    Experiment {
        runs: runs(MemberSets::Automatic).into_iter().chain(manual).collect(),
        quantities,
        figures: figures(MemberSets::Automatic),
        plots: plots(MemberSets::Automatic),
        ..Experiment::of("bjorgeengen.fig14-15")
    }
}

pub(super) fn fig16() -> Experiment {
    const THRESHOLD: u64 = 15;
    let run = || name(MemberSets::Automatic, THRESHOLD);
    Experiment {
        runs: vec![free(), regulated(MemberSets::Automatic, THRESHOLD)],
        quantities: vec![
            JudgedQuantity::new(
                "delay before the first burst",
                Tolerance::AtMost(0.0),
                of(run(), |run| mean_delay(run, TimeSpan::new(0.0, LEAD as f64))),
            )
            .unit("ms"),
            JudgedQuantity::new(
                "delay in the settled seconds",
                Tolerance::Between(0.5, 19.5),
                of(run(), |run| over_bursts(run, in_bursts(SETTLING, ON), mean_delay)),
            )
            .unit("ms"),
            JudgedQuantity::new(
                "delay in the last second of the pauses",
                Tolerance::AtMost(0.5),
                of(run(), |run| {
                    let pauses = in_bursts(ON + OFF - 1, ON + OFF);
                    over_bursts(run, pauses, mean_delay)
                }),
            )
            .unit("ms"),
            JudgedQuantity::new(
                "written : by writers that nobody holds",
                Tolerance::AtMost(0.9),
                to_free(run(), settled_rate),
            ),
            JudgedQuantity::new(
                "wait : beside writers that nobody holds",
                Tolerance::AtMost(0.6),
                to_free(run(), settled_wait),
            )
            .paper(15.0 / 45.0),
        ],
        figures: vec![
            ReportedFigure::new("written, nobody held", "MB/s", Some(37.0), of(FREE, settled_rate)),
            ReportedFigure::new(
                "wait at the disks",
                "ms",
                Some(15.0),
                of(run(), |run| {
                    over_bursts(run, in_bursts(SETTLING, ON), |run, span| run.device_latency("b2", span))
                }),
            ),
        ],
        plots: vec![Plot {
            title: "Wait and delay in ms, write rate in MB/s".to_owned(),
            unit: "",
            over: "s",
            marks: vec![("15 ms", THRESHOLD as f64)],
            lines: Box::new(move |trial| {
                let Some(run) = trial.run(&run()) else { return Vec::new() };
                vec![
                    reader_line(run, "wait"),
                    PlotLine { name: "delay".to_owned(), points: run.delays.clone() },
                    writers_line(run, "written"),
                ]
            }),
        }],
        ..Experiment::of("bjorgeengen.fig16")
    }
}
