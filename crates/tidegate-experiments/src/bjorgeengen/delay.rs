//! Time against delay (§3.3).

use std::time::Duration;

use tidegate_sim::iscsi::{IscsiPlan, LoadTimes, MachineLoad, PacketClasses, ThrottleRule};
use tidegate_units::{Bytes, Latency};

use super::super::{
    Experiment, JudgedQuantity, NamedRun, Plot, PlotLine, ReportedFigure, RunResult, SeedTrial, Tolerance,
};
use super::laboratory::{OPEN_ISCSI, WINDOW, plan, sequential};
use super::{LineFit, fit, of, ratio};

/// "Between 0 and 9.6 ms", in tenths.
const DELAYS_TENTHS: [u64; 7] = [0, 16, 32, 48, 64, 80, 96];

/// 200 MB of data.
const AMOUNT: Bytes = Bytes::from_mib(200);

/// Under each seed; ten seeds make the paper's twenty.
const REPEATS: usize = 2;

fn name(write: bool, tenths: u64) -> String {
    format!("{}, {} ms", if write { "writes" } else { "reads" }, tenths as f64 / 10.0)
}

/// One blade alone moves the amount repeatedly. All packets of reads are delayed, where the paper delays
/// those with payload; of writes, bare acknowledgements are.
fn transfers(write: bool, tenths: u64) -> IscsiPlan {
    let repeat = |place: usize| MachineLoad {
        amount: Some(AMOUNT),
        // Each repeat goes on where the one before ended.
        when: place.checked_sub(1).map_or(LoadTimes::From(Duration::ZERO), LoadTimes::After),
        start: Bytes::new(place as u64 * AMOUNT.get()),
        ..sequential(0, 0, write)
    };
    IscsiPlan {
        loads: (0..REPEATS).map(repeat).collect(),
        throttle: ThrottleRule::Timetable {
            packets: if write { PacketClasses::Acks } else { PacketClasses::All },
            steps: vec![(Duration::ZERO, 0, Latency::from_micros(tenths * 100))],
        },
        ..plan(format!("figs. 8 and 9: {}", name(write, tenths)), 1_200)
    }
}

/// The mean time of a transfer, in seconds.
fn took(run: &RunResult) -> Option<f64> {
    let times: Vec<f64> = run.loads.iter().map(|load| load.took_s).collect::<Option<_>>()?;
    (!times.is_empty()).then(|| times.iter().sum::<f64>() / times.len() as f64)
}

fn rate(run: &RunResult) -> Option<f64> {
    ratio(Some(AMOUNT.get() as f64 * 1e-6), took(run))
}

fn points(trial: &SeedTrial<'_>, write: bool) -> Option<Vec<(f64, f64)>> {
    DELAYS_TENTHS
        .into_iter()
        .map(|tenths| Some((tenths as f64 / 10.0, took(trial.run(&name(write, tenths))?)?)))
        .collect()
}

fn line(trial: &SeedTrial<'_>, write: bool) -> Option<LineFit> {
    fit(&points(trial, write)?)
}

/// The paper's rates in MB/s, without delay and at 9.6 ms.
const fn papers(write: bool) -> (f64, f64) {
    if write { (15.0, 2.5) } else { (22.0, 5.0) }
}

/// So many seconds more for 200 MB in each of 9.6 ms.
fn slope_between(free: f64, held: f64) -> f64 {
    (200.0 / held - 200.0 / free) / 9.6
}

/// Without delay, and the longest.
const ENDS: [u64; 2] = [0, 96];

/// Alternative choices where the text leaves one open: reported, not judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OpenChoice {
    /// Reads by an initiator that asks for its own buffers.
    OpenIscsi,
    /// Reads with windows that have room for the headers of 128 KiB, too.
    RoomForHeaders,
    /// Writes to a target with the window that readers have.
    FullWindow,
}

impl OpenChoice {
    const ALL: [Self; 3] = [Self::OpenIscsi, Self::RoomForHeaders, Self::FullWindow];

    const fn write(self) -> bool {
        matches!(self, Self::FullWindow)
    }

    const fn name(self) -> &'static str {
        match self {
            Self::OpenIscsi => "reads with open-iscsi's buffers",
            Self::RoomForHeaders => "reads with windows of a KiB more",
            Self::FullWindow => "writes with the window of reads",
        }
    }

    fn run(self, tenths: u64) -> String {
        format!("{}, {} ms", self.name(), tenths as f64 / 10.0)
    }

    fn plan(self, tenths: u64) -> IscsiPlan {
        let mut plan = transfers(self.write(), tenths);
        plan.name = format!("figs. 8 and 9: {}", self.run(tenths));
        match self {
            Self::OpenIscsi => plan.network.window_down = OPEN_ISCSI,
            Self::RoomForHeaders => plan.network.window_down = Bytes::new(WINDOW.get() + 1024),
            Self::FullWindow => plan.network.window_up = WINDOW,
        }
        plan
    }
}

pub(super) fn figs8_and_9() -> Experiment {
    let mut runs: Vec<_> = [false, true]
        .into_iter()
        .flat_map(|write| {
            DELAYS_TENTHS.map(|tenths| NamedRun::new(name(write, tenths), transfers(write, tenths)))
        })
        .collect();
    for variant in OpenChoice::ALL {
        runs.extend(ENDS.map(|tenths| NamedRun::new(variant.run(tenths), variant.plan(tenths))));
    }
    let mut quantities = Vec::new();
    let mut figures = Vec::new();
    for write in [false, true] {
        let what = if write { "writes" } else { "reads" };
        let (free, held) = papers(write);
        quantities.push(JudgedQuantity::new(
            format!("{what}: R² of time against delay"),
            Tolerance::AtLeast(0.98),
            move |trial| line(trial, write)?.r2,
        ));
        quantities.push(
            JudgedQuantity::new(
                format!("{what}: rate at 9.6 ms : without delay"),
                Tolerance::near(held / free, 30.0),
                move |trial| ratio(rate(trial.run(&name(write, 96))?), rate(trial.run(&name(write, 0))?)),
            )
            .paper(held / free),
        );
        let slope = slope_between(free, held);
        quantities.push(
            JudgedQuantity::new(
                format!("{what}: seconds for 200 MB more, for each millisecond of delay"),
                // Writes are fitted to it.
                Tolerance::near(slope, if write { 10.0 } else { 30.0 }),
                move |trial| Some(line(trial, write)?.slope),
            )
            .paper(slope)
            .unit("s/ms"),
        );
        for (tenths, paper) in [(0, free), (96, held)] {
            let rate = of(name(write, tenths), rate);
            figures.push(ReportedFigure::new(
                format!("rate of {}", name(write, tenths)),
                "MB/s",
                Some(paper),
                rate,
            ));
        }
    }
    for variant in OpenChoice::ALL {
        let (free, held) = papers(variant.write());
        figures.push(ReportedFigure::new(
            format!("{}: seconds for 200 MB more, for each millisecond of delay", variant.name()),
            "s/ms",
            Some(slope_between(free, held)),
            move |trial| {
                let at = |tenths| took(trial.run(&variant.run(tenths))?);
                Some((at(ENDS[1])? - at(ENDS[0])?) / 9.6)
            },
        ));
    }
    Experiment {
        runs,
        quantities,
        figures,
        plots: vec![Plot {
            title: "Time for 200 MB".to_owned(),
            unit: "s",
            over: "delay in ms",
            marks: Vec::new(),
            lines: Box::new(|trial| {
                [("reads", false), ("writes", true)]
                    .into_iter()
                    .filter_map(|(name, write)| {
                        Some(PlotLine { name: name.to_owned(), points: points(trial, write)? })
                    })
                    .collect()
            }),
        }],
        ..Experiment::of("bjorgeengen.fig8-9")
    }
}
