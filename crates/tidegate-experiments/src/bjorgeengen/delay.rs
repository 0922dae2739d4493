//! Time against delay (§3.3).

use std::time::Duration;

use tidegate_sim::iscsi::{Load, Packets, Plan, Throttle, When};
use tidegate_units::{Bytes, Latency};

use super::super::{Accepts, Experiment, Figure, Line, Plot, Quantity, Run, RunResult, Trial};
use super::laboratory::{OPEN_ISCSI, WINDOW, plan, sequential};
use super::{Fit, fit, of, ratio};

/// "Between 0 and 9.6 ms", in tenths.
const DELAYS_TENTHS: [u64; 7] = [0, 16, 32, 48, 64, 80, 96];

/// 200 MB of data.
const AMOUNT: Bytes = Bytes::from_mib(200);

/// Under each seed; ten seeds make the paper's twenty.
const REPEATS: usize = 2;

fn name(write: bool, tenths: u64) -> String {
    format!("{}, {} ms", if write { "writes" } else { "reads" }, tenths as f64 / 10.0)
}

/// One blade moves the amount repeatedly; nobody else is there. Reads are held by all packets, writes by bare
/// acknowledgements.
fn transfers(write: bool, tenths: u64) -> Plan {
    let repeat = |place: usize| Load {
        amount: Some(AMOUNT),
        // Each repeat goes on where the one before ended.
        when: place.checked_sub(1).map_or(When::From(Duration::ZERO), When::After),
        start: Bytes::new(place as u64 * AMOUNT.get()),
        ..sequential(0, 0, write)
    };
    Plan {
        loads: (0..REPEATS).map(repeat).collect(),
        throttle: Throttle::Timetable {
            packets: if write { Packets::Acks } else { Packets::All },
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

fn points(trial: &Trial<'_>, write: bool) -> Option<Vec<(f64, f64)>> {
    DELAYS_TENTHS
        .into_iter()
        .map(|tenths| Some((tenths as f64 / 10.0, took(trial.run(&name(write, tenths))?)?)))
        .collect()
}

fn line(trial: &Trial<'_>, write: bool) -> Option<Fit> {
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
enum Variant {
    /// Reads by an initiator that asks for its own buffers.
    OpenIscsi,
    /// Reads with windows that have room for the headers of 128 KiB, too.
    RoomForHeaders,
    /// Writes to a target with half of the window.
    HalfWindow,
}

impl Variant {
    const ALL: [Self; 3] = [Self::OpenIscsi, Self::RoomForHeaders, Self::HalfWindow];

    const fn write(self) -> bool {
        matches!(self, Self::HalfWindow)
    }

    const fn name(self) -> &'static str {
        match self {
            Self::OpenIscsi => "reads with open-iscsi's buffers",
            Self::RoomForHeaders => "reads with windows of a KiB more",
            Self::HalfWindow => "writes with half of the window",
        }
    }

    fn run(self, tenths: u64) -> String {
        format!("{}, {} ms", self.name(), tenths as f64 / 10.0)
    }

    fn plan(self, tenths: u64) -> Plan {
        let mut plan = transfers(self.write(), tenths);
        plan.name = format!("figs. 8 and 9: {}", self.run(tenths));
        match self {
            Self::OpenIscsi => plan.network.window_down = OPEN_ISCSI,
            Self::RoomForHeaders => plan.network.window_down = Bytes::new(WINDOW.get() + 1024),
            Self::HalfWindow => plan.network.window_up = Bytes::new(WINDOW.get() / 2),
        }
        plan
    }
}

pub(super) fn figs8_and_9() -> Experiment {
    let mut runs: Vec<_> = [false, true]
        .into_iter()
        .flat_map(|write| DELAYS_TENTHS.map(|tenths| Run::new(name(write, tenths), transfers(write, tenths))))
        .collect();
    for variant in Variant::ALL {
        runs.extend(ENDS.map(|tenths| Run::new(variant.run(tenths), variant.plan(tenths))));
    }
    let mut quantities = Vec::new();
    let mut figures = Vec::new();
    for write in [false, true] {
        let what = if write { "writes" } else { "reads" };
        let (free, held) = papers(write);
        quantities.push(Quantity::new(
            format!("{what}: R² of time against delay"),
            Accepts::AtLeast(0.98),
            "close to linear; a bend behind which a delay is first felt, as with a queue that hides it, gives 0.95 and less",
            move |trial| line(trial, write)?.r2,
        ));
        quantities.push(
            Quantity::new(
                format!("{what}: rate at 9.6 ms : without delay"),
                Accepts::near(held / free, 30.0),
                "the paper's rates, of which the smaller is given to half a MB/s (10 to 20 %), and whose time without delay \
                 is its hardware's; 30 %",
                move |trial| {
                    ratio(rate(trial.run(&name(write, 96))?), rate(trial.run(&name(write, 0))?))
                },
            )
            .paper(held / free),
        );
        let slope = slope_between(free, held);
        quantities.push(
            Quantity::new(
                format!("{what}: seconds for 200 MB more, for each millisecond of delay"),
                Accepts::near(slope, 30.0),
                "how often 200 MB wait for a packet, in thousands: what follows from windows and data units, not from disks; \
                 30 % as the rates",
                move |trial| Some(line(trial, write)?.slope),
            )
            .paper(slope)
            .unit("s/ms"),
        );
        for (tenths, paper) in [(0, free), (96, held)] {
            let rate = of(name(write, tenths), rate);
            figures.push(Figure::new(format!("rate of {}", name(write, tenths)), "MB/s", Some(paper), rate));
        }
    }
    for variant in Variant::ALL {
        let (free, held) = papers(variant.write());
        figures.push(Figure::new(
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
        id: "bjorgeengen.fig8-9",
        title: "Time to read and to write 200 MB against the delay of packets",
        paper: "200 MB read and written from one blade server, 20 times for each delay: 22 to 5 MB/s for reads and 15 to 2.5 \
                MB/s for writes between 0 and 9.6 ms, close to linear, with standard errors that hardly show.",
        setup: "The same, twice under each seed. Reads of 128 KiB (what Linux reads ahead), writes of 256 KiB, one at a time; \
                windows of 65535 bytes both ways, the beginning of Linux 2.6's `tcp_rmem`. The text gives none of these. \
                What that decides is reported with other values: the buffers that open-iscsi asks for, a KiB \
                more for headers, and half of the window.",
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
                        Some(Line { name: name.to_owned(), points: points(trial, write)? })
                    })
                    .collect()
            }),
        }],
    }
}
