//! The request model against the lab's measurements on real kernels (`lab/README.md`, "Packet delay on an
//! iSCSI target").

use std::time::Duration;

use tidegate_sim::iscsi::{
    IscsiPlan, IscsiProtocol, LoadTimes, MachineLoad, PacketClasses, StoreModel, TcpNetwork, ThrottleRule,
};
use tidegate_units::{ByteRate, Bytes, Latency};

use super::super::{
    Experiment, JudgedQuantity, NamedRun, Plot, PlotLine, ReportedFigure, SeedTrial, Tolerance,
};
use super::laboratory::named;
use super::{fit, ratio};

/// The lab's measurements: milliseconds per request. A test compares them with the committed run.
const MEASURED: &str = include_str!("lab.csv");

const DELAYS_MS: [u64; 6] = [0, 2, 5, 10, 15, 20];
const BLOCKS_KIB: [u64; 2] = [64, 256];
const DEPTHS: [u32; 3] = [1, 4, 8];
const CLASSES: [PacketClasses; 4] =
    [PacketClasses::All, PacketClasses::Acks, PacketClasses::Small, PacketClasses::Responses];

/// The receive windows of the target that the lab measured with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReceiveWindow {
    Default,
    Small,
}

impl ReceiveWindow {
    const BOTH: [Self; 2] = [Self::Default, Self::Small];

    /// Returns the lab's name of the window.
    const fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Small => "131072",
        }
    }

    /// Returns the number of bytes that may be under way to the target. A small window is half of the
    /// target's receive buffer (`tcp_adv_win_scale` 1). The default one grows beyond what the initiator
    /// keeps. Open-iscsi asks for a send buffer of 524288 bytes (`node.conn[0].tcp.window_size`), which Linux
    /// cuts to `wmem_max`, 212992, and doubles.
    pub(super) const fn up(self) -> Bytes {
        match self {
            Self::Default => Bytes::new(2 * 212_992),
            Self::Small => Bytes::new(131_072 / 2),
        }
    }
}

/// The bytes that may be under way to the initiator: half of the receive buffer that open-iscsi asks for, cut
/// to `rmem_max` and doubled. Asked for by a program, it does not depend on `tcp_rmem`.
pub(super) const DOWN: Bytes = Bytes::new(212_992);

/// A row of the lab's table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct LabTransfer {
    write: bool,
    kib: u64,
    depth: u32,
}

/// The transfers of a run, in its order.
fn transfers() -> impl Iterator<Item = LabTransfer> {
    [false, true].into_iter().flat_map(|write| {
        BLOCKS_KIB
            .into_iter()
            .flat_map(move |kib| DEPTHS.into_iter().map(move |depth| LabTransfer { write, kib, depth }))
    })
}

fn run_name(window: ReceiveWindow, packets: PacketClasses, delay_ms: u64) -> String {
    format!("{}, {}, {delay_ms} ms", window.name(), packets.name())
}

/// The lab's set-up: four servers of 8 ms behind LVM and LIO, one initiator that moves 8 or 12 MiB each way
/// and size.
fn plan(window: ReceiveWindow, packets: PacketClasses, delay_ms: u64) -> IscsiPlan {
    let loads = transfers().enumerate().map(|(place, transfer)| MachineLoad {
        machine: 0,
        write: transfer.write,
        block: Bytes::from_kib(transfer.kib),
        depth: transfer.depth,
        sequential: true,
        start: Bytes::ZERO,
        size: Bytes::from_mib(64),
        think: Latency::ZERO,
        every: Latency::ZERO,
        when: place.checked_sub(1).map_or(LoadTimes::From(Duration::ZERO), LoadTimes::After),
        amount: Some(Bytes::from_mib(if transfer.depth == 1 { 8 } else { 12 })),
    });
    IscsiPlan {
        name: format!("lab: {}", run_name(window, packets, delay_ms)),
        duration: Duration::from_secs(600),
        sample: Duration::from_secs(1),
        store: StoreModel::Servers {
            servers: 4,
            service: Latency::from_millis(8),
            stripe: Bytes::from_kib(64),
        },
        network: TcpNetwork {
            window_up: window.up(),
            window_down: DOWN,
            // The emulated processor's copying, from the lab's rows without delay at depth 1: 192 KiB more
            // take 0.41 ms more to write and 1.21 ms to read. What is then left of 64 KiB are 0.07 ms both
            // ways.
            rate_up: ByteRate::new(480e6),
            rate_down: ByteRate::new(162e6),
            latency: Latency::from_micros(35),
        },
        protocol: IscsiProtocol::LIO,
        machines: vec![named("initiator")],
        loads: loads.collect(),
        throttle: ThrottleRule::Timetable {
            packets,
            steps: vec![(Duration::ZERO, 0, Latency::from_millis(delay_ms))],
        },
    }
}

/// Milliseconds per request in the lab, at each of [`DELAYS_MS`].
fn measured(window: ReceiveWindow, packets: PacketClasses, transfer: LabTransfer) -> Option<[f64; 6]> {
    let direction = if transfer.write { "write" } else { "read" };
    let key =
        format!("{},{},{direction},{},{},", window.name(), packets.name(), transfer.kib, transfer.depth);
    let row = MEASURED.lines().find_map(|line| line.strip_prefix(&key))?;
    let mut values = row.split(',').map(|value| value.parse().ok());
    let mut times = [0.0; 6];
    for time in &mut times {
        *time = values.next()??;
    }
    Some(times)
}

/// The same in the model.
fn modelled(
    trial: &SeedTrial<'_>,
    window: ReceiveWindow,
    packets: PacketClasses,
    transfer: LabTransfer,
) -> Option<[f64; 6]> {
    let place = transfers().position(|other| other == transfer)?;
    let mut times = [0.0; 6];
    for (time, delay_ms) in times.iter_mut().zip(DELAYS_MS) {
        let load = trial.run(&run_name(window, packets, delay_ms))?.loads.get(place)?;
        *time = load.took_s? * 1e3 / load.requests as f64;
    }
    Some(times)
}

/// The greatest difference of model and lab at any size, depth and delay, as a part of what the lab measured.
fn greatest_difference(
    trial: &SeedTrial<'_>,
    window: ReceiveWindow,
    packets: PacketClasses,
    write: bool,
) -> Option<f64> {
    let mut greatest: f64 = 0.0;
    for transfer in transfers().filter(|transfer| transfer.write == write) {
        let lab = measured(window, packets, transfer)?;
        let model = modelled(trial, window, packets, transfer)?;
        for (lab, model) in lab.into_iter().zip(model) {
            greatest = greatest.max((model / lab - 1.0).abs());
        }
    }
    Some(greatest)
}

/// Returns the fraction of the rows that agree at every delay.
fn rows_that_agree(trial: &SeedTrial<'_>) -> Option<f64> {
    let (mut agree, mut all) = (0u32, 0u32);
    for window in ReceiveWindow::BOTH {
        for (packets, transfer) in
            CLASSES.into_iter().flat_map(|packets| transfers().map(move |one| (packets, one)))
        {
            let lab = measured(window, packets, transfer)?;
            let model = modelled(trial, window, packets, transfer)?;
            let near = |(lab, model): (f64, f64)| (model / lab - 1.0).abs() <= WITHIN;
            agree += u32::from(lab.into_iter().zip(model).all(near));
            all += 1;
        }
    }
    Some(f64::from(agree) / f64::from(all))
}

const WITHIN: f64 = 0.1;
const WRITE_64K_8: LabTransfer = LabTransfer { write: true, kib: 64, depth: 8 };

/// A transfer's time at 20 ms over its time at another delay.
fn grown(times: [f64; 6], from: usize) -> Option<f64> {
    ratio(Some(times[5]), Some(times[from]))
}

fn slope(times: [f64; 6]) -> Option<f64> {
    let points: Vec<_> = DELAYS_MS.into_iter().map(|delay| delay as f64).zip(times).collect();
    Some(fit(&points)?.slope)
}

pub(super) fn lab() -> Experiment {
    let mut runs = Vec::new();
    let mut quantities = Vec::new();
    for window in ReceiveWindow::BOTH {
        for packets in CLASSES {
            runs.extend(
                DELAYS_MS.map(|delay| {
                    NamedRun::new(run_name(window, packets, delay), plan(window, packets, delay))
                }),
            );
            for write in [false, true] {
                let direction = if write { "writes" } else { "reads" };
                quantities.push(JudgedQuantity::new(
                    format!(
                        "window {}, {}: greatest difference of {direction}",
                        window.name(),
                        packets.name()
                    ),
                    Tolerance::Between(0.0, WITHIN),
                    move |trial| greatest_difference(trial, window, packets, write),
                ));
            }
        }
    }
    let at = |window, packets| measured(window, packets, WRITE_64K_8);
    for (name, window, packets, from) in [
        (
            "acknowledgements, current window: time at 20 ms : without",
            ReceiveWindow::Default,
            PacketClasses::Acks,
            0,
        ),
        (
            "acknowledgements, small window: time at 20 ms : at 10 ms (a plateau)",
            ReceiveWindow::Small,
            PacketClasses::Acks,
            3,
        ),
        (
            "all packets, small window: time at 20 ms : at 10 ms (a line)",
            ReceiveWindow::Small,
            PacketClasses::All,
            3,
        ),
    ] {
        let Some(lab) = at(window, packets).and_then(|times| grown(times, from)) else { continue };
        quantities.push(
            JudgedQuantity::new(
                format!("64 KiB writes at depth 8, {name}"),
                Tolerance::near(lab, 100.0 * WITHIN),
                move |trial| grown(modelled(trial, window, packets, WRITE_64K_8)?, from),
            )
            .paper(lab),
        );
    }
    let mut figures = vec![ReportedFigure::new(
        "rows of the lab's table that agree within 10 % at every delay",
        "",
        None,
        rows_that_agree,
    )];
    for (window, packets) in
        ReceiveWindow::BOTH.into_iter().flat_map(|window| CLASSES.map(|packets| (window, packets)))
    {
        for transfer in transfers().filter(|transfer| transfer.depth != 4) {
            let direction = if transfer.write { "writes" } else { "reads" };
            let name = format!(
                "window {}, {}: ms per ms, {} KiB {direction} at depth {}",
                window.name(),
                packets.name(),
                transfer.kib,
                transfer.depth
            );
            let lab = measured(window, packets, transfer).and_then(slope);
            figures.push(ReportedFigure::new(name, "", lab, move |trial| {
                slope(modelled(trial, window, packets, transfer)?)
            }));
        }
    }
    Experiment {
        runs,
        quantities,
        figures,
        plots: [false, true]
            .map(|write| Plot {
                title: format!(
                    "{} of 64 KiB at depth 8: milliseconds per request, lab and model",
                    if write { "Writes" } else { "Reads" }
                ),
                unit: "ms",
                over: "delay in ms",
                marks: Vec::new(),
                lines: Box::new(move |trial| lines(trial, LabTransfer { write, ..WRITE_64K_8 })),
            })
            .into(),
        ..Experiment::of("bjorgeengen.lab")
    }
}

/// Two lines of each class with a small window.
fn lines(trial: &SeedTrial<'_>, transfer: LabTransfer) -> Vec<PlotLine> {
    let line = |name: String, times: [f64; 6]| PlotLine {
        name,
        points: DELAYS_MS.into_iter().map(|delay| delay as f64).zip(times).collect(),
    };
    [PacketClasses::All, PacketClasses::Acks]
        .into_iter()
        .flat_map(|packets| {
            let lab = measured(ReceiveWindow::Small, packets, transfer);
            let model = modelled(trial, ReceiveWindow::Small, packets, transfer);
            [
                lab.map(|times| line(format!("{}, lab", packets.name()), times)),
                model.map(|times| line(format!("{}, model", packets.name()), times)),
            ]
        })
        .flatten()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_what_the_lab_left() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bench/runs/2026-11-21-lab-iscsi-delay.json");
        let json: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        for window in ReceiveWindow::BOTH {
            for (packets, transfer) in
                CLASSES.into_iter().flat_map(|packets| transfers().map(move |one| (packets, one)))
            {
                let direction = if transfer.write { "write" } else { "read" };
                let fit = json["windows"][window.name()]["fits"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .find(|fit| {
                        fit["part"] == "sweep"
                            && fit["classification"] == packets.name()
                            && fit["direction"] == direction
                            && fit["block_kib"] == transfer.kib
                            && fit["depth"] == transfer.depth
                    })
                    .unwrap();
                let ours = measured(window, packets, transfer).unwrap();
                for (delay, ours) in DELAYS_MS.into_iter().zip(ours) {
                    let lab = fit["ms_per_io"][delay.to_string()].as_f64().unwrap();
                    assert!((lab - ours).abs() < 6e-4, "{transfer:?}, {delay} ms: {ours} is not {lab}");
                }
            }
        }
    }
}
