//! The controller: thresholds of 20, 15 and 10 ms beside twelve writers that come and go together (§3.6).

use std::time::Duration;

use tidegate_control::{BulkConfig, LawConfig, LoopConfig, PidConfig, PidVariant, SignalChoice};
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

/// Milliseconds gained for each MB/s down to 20 ms, 25 for 6, over those from there to 15 ms, 5 for 7 (§3.6).
const GAINS: f64 = 25.0 / 6.0 / (5.0 / 7.0);

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

/// Parts of a second in which an overshoot is measured.
const PER_SECOND: u64 = 2;

/// The reader's mean response times in the halves of a burst's seconds, in order. `None` where it had no
/// request.
fn halves(burst: TimeSpan, run: &RunResult) -> impl Iterator<Item = (f64, Option<f64>)> {
    (0..ON * PER_SECOND).map(move |part| {
        let from = part as f64 / PER_SECOND as f64;
        let to = (part + 1) as f64 / PER_SECOND as f64;
        (to, wait(run, TimeSpan::new(burst.from + from, burst.from + to)))
    })
}

/// An overshoot that begins while a burst settles: its greatest half-second above the threshold in
/// milliseconds, and the seconds until the reader waits no longer than the threshold again. Nothing where
/// there is none.
fn overshoot(burst: TimeSpan, run: &RunResult, threshold_ms: f64) -> (f64, f64) {
    let (mut size, mut lasts) = (0.0_f64, 0.0);
    for (end, wait) in halves(burst, run) {
        let above = wait.map_or(0.0, |wait| wait - threshold_ms);
        if above > 0.0 {
            (size, lasts) = (size.max(above), end);
        } else if size > 0.0 || end >= SETTLING as f64 {
            break;
        }
    }
    (size, lasts)
}

/// The mean size of the overshoots of all bursts in milliseconds.
fn overshoot_size(run: &RunResult, threshold_ms: f64) -> Option<f64> {
    over_bursts(run, in_bursts(0, ON), |run, burst| {
        wait(run, burst)?;
        Some(overshoot(burst, run, threshold_ms).0)
    })
}

/// The mean duration of the overshoots of all bursts in seconds.
fn overshoot_time(run: &RunResult, threshold_ms: f64) -> Option<f64> {
    over_bursts(run, in_bursts(0, ON), |run, burst| {
        wait(run, burst)?;
        Some(overshoot(burst, run, threshold_ms).1)
    })
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
        // An overshoot lasts for parts of a second.
        sample: Duration::from_millis(1_000 / PER_SECOND),
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
    under(&name(sets, threshold_ms), sets, threshold_ms, PidVariant::Clamped)
}

/// Equation 2 as it is printed, with the same gains.
fn printed(threshold_ms: u64) -> NamedRun {
    under(&printed_name(threshold_ms), MemberSets::Manual, threshold_ms, PidVariant::Equation2)
}

fn printed_name(threshold_ms: u64) -> String {
    format!("equation 2, {threshold_ms} ms")
}

fn under(name: &str, sets: MemberSets, threshold_ms: u64, variant: PidVariant) -> NamedRun {
    let resource =
        ResourceName::new("vg_aic").unwrap_or_else(|error| panic!("an embedded name is wrong: {error}"));
    let pid = PidConfig { greatest: Latency::from_millis(20), variant, ..agents_gains() };
    let law = LoopConfig {
        interval: Duration::from_millis(100),
        set_point_ratio: 1.0,
        signal: SignalChoice::Reads,
        ..LoopConfig::new(resource, Latency::from_millis(threshold_ms), LawConfig::Pid(pid))
    };
    let members = match sets {
        MemberSets::Manual => MemberRule::Named(WRITERS.map(named).to_vec()),
        MemberSets::Automatic => MemberRule::Automatic(BulkConfig::default()),
    };
    let throttle = ThrottleRule::Regulated { packets: PacketClasses::Acks, law: Box::new(law), members };
    NamedRun::new(name, bursts(name, throttle))
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

/// The part of the settled seconds in which the reader waits no longer than the threshold.
fn within(run: String, threshold: u64) -> JudgedQuantity {
    JudgedQuantity::new(
        format!("{threshold} ms: part of the settled seconds within the threshold"),
        Tolerance::AtLeast(0.95),
        of(run, move |run| seconds_within(run, threshold as f64)),
    )
    .paper(1.0)
}

/// Returns the quantities that are judged with both kinds of sets.
fn common(sets: MemberSets) -> Vec<JudgedQuantity> {
    let mut quantities = Vec::new();
    for threshold in THRESHOLDS_MS {
        quantities.push(within(name(sets, threshold), threshold));
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
            Tolerance::AtLeast(GAINS / 2.0),
            move |trial| {
                let run = |threshold| trial.run(&name(sets, threshold));
                ratio(gain(trial.run(FREE)?, run(20)?), gain(run(20)?, run(15)?))
            },
        )
        .paper(GAINS),
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
            format!("{threshold} ms: overshoot at the beginning of a burst"),
            "ms",
            None,
            of(run(), move |run| overshoot_size(run, limit)),
        ));
        figures.push(ReportedFigure::new(
            format!("{threshold} ms: duration of the overshoot"),
            "s",
            None,
            of(run(), move |run| overshoot_time(run, limit)),
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

/// "A slightly larger magnitude of the overshoot": by up to this part of the threshold.
const SLIGHTLY_HIGHER: f64 = 0.25;

/// And a slightly longer one: by the second within which the sets are filled.
const SLIGHTLY_LONGER: f64 = 1.0;

/// Figures 12 and 13 under equation 2 as it is printed.
pub(super) fn equation2() -> Experiment {
    let mut quantities = Vec::new();
    for threshold in THRESHOLDS_MS {
        quantities.push(within(printed_name(threshold), threshold));
        quantities.push(
            JudgedQuantity::new(
                format!("{threshold} ms: mean wait of the settled seconds"),
                Tolerance::AtMost(1.05 * threshold as f64),
                of(printed_name(threshold), settled_wait),
            )
            .paper(threshold as f64)
            .unit("ms"),
        );
    }
    let mut figures = Vec::new();
    for threshold in THRESHOLDS_MS {
        let (run, limit) = (|| printed_name(threshold), threshold as f64);
        figures.push(ReportedFigure::new(
            format!("{threshold} ms: written"),
            "MB/s",
            None,
            of(run(), settled_rate),
        ));
        figures.push(ReportedFigure::new(
            format!("{threshold} ms: overshoot at the beginning of a burst"),
            "ms",
            None,
            of(run(), move |run| overshoot_size(run, limit)),
        ));
        figures.push(ReportedFigure::new(
            format!("{threshold} ms: duration of the overshoot"),
            "s",
            None,
            of(run(), move |run| overshoot_time(run, limit)),
        ));
    }
    let names = || THRESHOLDS_MS.map(printed_name).into();
    let marks = vec![("20 ms", 20.0), ("15 ms", 15.0), ("10 ms", 10.0)];
    Experiment {
        runs: THRESHOLDS_MS.map(printed).into(),
        quantities,
        figures,
        plots: vec![
            over_time("What the reader waits", "ms", names(), marks, reader_line),
            over_time("Written by all", "MB/s", names(), Vec::new(), writers_line),
        ],
        ..Experiment::of("bjorgeengen.equation2")
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
        let overshoots = move |trial: &SeedTrial<'_>, number: fn(&RunResult, f64) -> Option<f64>| {
            let of = |sets| number(trial.run(&name(sets, threshold))?, threshold as f64);
            Some(of(MemberSets::Automatic)? - of(MemberSets::Manual)?)
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
        quantities.push(
            JudgedQuantity::new(
                format!("{threshold} ms: size of the overshoot, automatic less manual"),
                Tolerance::Between(0.0, SLIGHTLY_HIGHER * threshold as f64),
                move |trial| overshoots(trial, overshoot_size),
            )
            .unit("ms"),
        );
        quantities.push(
            JudgedQuantity::new(
                format!("{threshold} ms: duration of the overshoot, automatic less manual"),
                Tolerance::Between(0.0, SLIGHTLY_LONGER),
                move |trial| overshoots(trial, overshoot_time),
            )
            .unit("s"),
        );
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
            within(run(), THRESHOLD),
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
                Tolerance::near(15.0 / 45.0, 20.0),
                to_free(run(), settled_wait),
            )
            .paper(15.0 / 45.0),
        ],
        figures: vec![
            ReportedFigure::new("written, nobody held", "MB/s", Some(37.0), of(FREE, settled_rate)),
            ReportedFigure::new(
                "delay in the settled seconds",
                "ms",
                None,
                of(run(), |run| over_bursts(run, in_bursts(SETTLING, ON), mean_delay)),
            ),
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
