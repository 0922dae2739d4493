//! A small reader beside writers, and what holding them does for it (§3.4, §3.5).

use std::time::Duration;

use tidegate_sim::iscsi::{IscsiPlan, LoadTimes, PacketClasses, ThrottleRule};
use tidegate_units::Latency;

use super::super::{
    Experiment, JudgedQuantity, NamedRun, Plot, PlotLine, ReportedFigure, RunResult, TimeSpan, Tolerance,
};
use super::laboratory::{BLADES, plan, reader, writers};
use super::{megabytes, of, over_time, ratio, sum_line, wait_line};

/// The machines of the twelve writers.
pub(super) const WRITERS: [&str; 3] = ["b3", "b4", "b5"];

/// Returns the reader's mean response time in milliseconds.
pub(super) fn wait(run: &RunResult, span: TimeSpan) -> Option<f64> {
    run.felt(BLADES[0], span)
}

pub(super) fn written(run: &RunResult, span: TimeSpan) -> Option<f64> {
    megabytes(run, &WRITERS, span)
}

pub(super) fn reader_line(run: &RunResult, name: &str) -> PlotLine {
    wait_line(run, name, BLADES[0])
}

pub(super) fn writers_line(run: &RunResult, name: &str) -> PlotLine {
    sum_line(run, name, &WRITERS, |sample| sample.bytes_per_s * 1e-6)
}

pub(super) fn fig10() -> Experiment {
    const BEFORE: TimeSpan = TimeSpan::new(10.0, 60.0);
    const BESIDE: TimeSpan = TimeSpan::new(65.0, 180.0);
    const MACHINES: [(&str, usize); 3] = [("nobody", 0), ("1 machine", 1), ("3 machines", 3)];
    let run = |(name, blades): (&str, usize)| {
        let beside = writers(blades, LoadTimes::From(Duration::from_secs(60)));
        let plan = plan(format!("fig. 10: {name}"), 180);
        NamedRun::new(name, IscsiPlan { loads: std::iter::once(reader()).chain(beside).collect(), ..plan })
    };
    let beside = |name: &'static str| of(name, |run| wait(run, BESIDE));
    Experiment {
        runs: MACHINES.into_iter().map(run).collect(),
        quantities: vec![
            JudgedQuantity::new(
                "wait beside one machine : beside nobody",
                Tolerance::AtLeast(1.5),
                move |trial| ratio(beside("1 machine")(trial), beside("nobody")(trial)),
            ),
            JudgedQuantity::new(
                "wait beside three machines : beside one",
                Tolerance::AtLeast(1.5),
                move |trial| ratio(beside("3 machines")(trial), beside("1 machine")(trial)),
            ),
            JudgedQuantity::new(
                "wait beside nobody, second part : first part",
                Tolerance::near(1.0, 10.0),
                of("nobody", |run| ratio(wait(run, BESIDE), wait(run, BEFORE))),
            ),
        ],
        figures: MACHINES
            .into_iter()
            .map(|(name, _)| ReportedFigure::new(format!("wait beside {name}"), "ms", None, beside(name)))
            .chain([
                ReportedFigure::new(
                    "written by one machine",
                    "MB/s",
                    None,
                    of("1 machine", |run| written(run, BESIDE)),
                ),
                ReportedFigure::new(
                    "written by three",
                    "MB/s",
                    Some(38.0),
                    of("3 machines", |run| written(run, BESIDE)),
                ),
            ])
            .collect(),
        plots: vec![over_time(
            "What the reader waits",
            "ms",
            MACHINES.map(|(name, _)| name.to_owned()).into(),
            Vec::new(),
            reader_line,
        )],
        ..Experiment::of("bjorgeengen.fig10")
    }
}

pub(super) fn fig11() -> Experiment {
    /// Without a throttle: the means of three stretches, each without its first seconds.
    const FREE: [TimeSpan; 3] =
        [TimeSpan::new(10.0, 100.0), TimeSpan::new(195.0, 280.0), TimeSpan::new(375.0, 460.0)];
    const SHORT: TimeSpan = TimeSpan::new(105.0, 190.0);
    const LONG: TimeSpan = TimeSpan::new(285.0, 370.0);
    const RUN: &str = "twelve writers";
    fn free(run: &RunResult, number: fn(&RunResult, TimeSpan) -> Option<f64>) -> Option<f64> {
        let sum = FREE.into_iter().map(|span| number(run, span)).sum::<Option<f64>>()?;
        Some(sum / FREE.len() as f64)
    }
    let hold = |from: u64, to: u64, delay: Latency| {
        (1..BLADES.len()).flat_map(move |machine| {
            [(Duration::from_secs(from), machine, delay), (Duration::from_secs(to), machine, Latency::ZERO)]
        })
    };
    let steps =
        hold(100, 190, Latency::from_micros(4_600)).chain(hold(280, 370, Latency::from_micros(9_600)));
    let plan = IscsiPlan {
        loads: std::iter::once(reader()).chain(writers(3, LoadTimes::From(Duration::ZERO))).collect(),
        throttle: ThrottleRule::Timetable { packets: PacketClasses::Acks, steps: steps.collect() },
        ..plan("fig. 11", 460)
    };
    /// MB/s given up for each millisecond gained.
    fn cost(before: (Option<f64>, Option<f64>), after: (Option<f64>, Option<f64>)) -> Option<f64> {
        ratio(Some(before.1? - after.1?), Some(before.0? - after.0?))
    }
    let at = |run: &RunResult, span| (wait(run, span), written(run, span));
    let first = move |run: &RunResult| cost((free(run, wait), free(run, written)), at(run, SHORT));
    let second = move |run: &RunResult| cost(at(run, SHORT), at(run, LONG));
    Experiment {
        runs: vec![NamedRun::new(RUN, plan)],
        quantities: vec![
            JudgedQuantity::new(
                "wait at 4.6 ms : without delay",
                Tolerance::AtMost(0.9),
                of(RUN, |run| ratio(wait(run, SHORT), free(run, wait))),
            ),
            JudgedQuantity::new(
                "wait at 9.6 ms : at 4.6 ms",
                Tolerance::AtMost(0.9),
                of(RUN, |run| ratio(wait(run, LONG), wait(run, SHORT))),
            ),
            JudgedQuantity::new(
                "MB/s given up for each ms gained, from 4.6 to 9.6 ms, less that from nothing to 4.6 ms",
                Tolerance::AtLeast(0.1),
                of(RUN, move |run| Some(second(run)? - first(run)?)),
            )
            .unit("MB/s per ms"),
        ],
        figures: vec![
            ReportedFigure::new(
                "MB/s given up for each ms gained, to 4.6 ms",
                "MB/s per ms",
                None,
                of(RUN, first),
            ),
            ReportedFigure::new(
                "MB/s given up for each ms gained, to 9.6 ms",
                "MB/s per ms",
                None,
                of(RUN, second),
            ),
            ReportedFigure::new("wait without delay", "ms", None, of(RUN, |run| free(run, wait))),
            ReportedFigure::new("wait at 4.6 ms", "ms", None, of(RUN, |run| wait(run, SHORT))),
            ReportedFigure::new("wait at 9.6 ms", "ms", None, of(RUN, |run| wait(run, LONG))),
            ReportedFigure::new("written without delay", "MB/s", None, of(RUN, |run| free(run, written))),
            ReportedFigure::new("written at 4.6 ms", "MB/s", None, of(RUN, |run| written(run, SHORT))),
            ReportedFigure::new("written at 9.6 ms", "MB/s", None, of(RUN, |run| written(run, LONG))),
        ],
        plots: vec![
            over_time("What the reader waits", "ms", vec![RUN.to_owned()], Vec::new(), reader_line),
            Plot {
                title: "Written by all".to_owned(),
                unit: "MB/s",
                over: "s",
                marks: Vec::new(),
                lines: Box::new(|trial| {
                    trial.run(RUN).map(|run| vec![writers_line(run, "writers")]).unwrap_or_default()
                }),
            },
        ],
        ..Experiment::of("bjorgeengen.fig11")
    }
}
