//! Beyond the paper: what `tidegate agent` does by default, with what kernels do today.

use std::time::Duration;

use tidegate_control::{BulkConfig, LawConfig, LoopConfig, PidConfig, SignalChoice};
use tidegate_sim::iscsi::{IscsiPlan, IscsiProtocol, MemberRule, PacketClasses, ThrottleRule};
use tidegate_units::{Latency, ResourceName};

use super::super::{Experiment, JudgedQuantity, NamedRun, ReportedFigure, Tolerance};
use super::interference::{reader_line, writers_line};
use super::lab::ReceiveWindow;
use super::thresholds::{
    FREE, ON, SETTLING, THRESHOLDS_MS, agents_gains, bursts, in_bursts, mean_delay, over_bursts,
    seconds_within, settled_rate, settled_wait, to_free,
};
use super::{of, over_time};

fn name(target_ms: u64) -> String {
    format!("target {target_ms} ms")
}

/// The paper's disks and load, behind LIO and open-iscsi with their default buffers.
fn today(name: &str, throttle: ThrottleRule) -> NamedRun {
    let mut plan: IscsiPlan = bursts(name, throttle);
    plan.name = format!("agent: {name}");
    plan.protocol = IscsiProtocol::LIO;
    plan.network.window_up = ReceiveWindow::Default.up();
    plan.network.window_down = super::lab::DOWN;
    NamedRun::new(name, plan)
}

/// The agent with its PID, whose gains and interval are stated: what is judged does not follow defaults.
fn regulated(target_ms: u64) -> NamedRun {
    let resource =
        ResourceName::new("vg0").unwrap_or_else(|error| panic!("an embedded name is wrong: {error}"));
    let pid = PidConfig { greatest: Latency::from_millis(100), ..agents_gains() };
    let law = LoopConfig {
        interval: Duration::from_millis(100),
        set_point_ratio: 0.8,
        signal: SignalChoice::Reads,
        ..LoopConfig::new(resource, Latency::from_millis(target_ms), LawConfig::Pid(pid))
    };
    let members = MemberRule::Automatic(BulkConfig::default());
    today(
        &name(target_ms),
        ThrottleRule::Regulated { packets: PacketClasses::All, law: Box::new(law), members },
    )
}

pub(super) fn agent() -> Experiment {
    let nobody = ThrottleRule::Timetable { packets: PacketClasses::All, steps: Vec::new() };
    let mut quantities = Vec::new();
    let mut figures = vec![
        ReportedFigure::new("wait, nobody held", "ms", None, of(FREE, settled_wait)),
        ReportedFigure::new("written, nobody held", "MB/s", None, of(FREE, settled_rate)),
    ];
    for target in THRESHOLDS_MS {
        let limit = target as f64;
        quantities.push(JudgedQuantity::new(
            format!("{target} ms: part of the settled seconds within"),
            Tolerance::AtLeast(0.95),
            of(name(target), move |run| seconds_within(run, limit)),
        ));
        quantities.push(
            JudgedQuantity::new(
                format!("{target} ms: mean wait of the settled seconds"),
                Tolerance::Between(0.6 * limit, limit),
                of(name(target), settled_wait),
            )
            .unit("ms"),
        );
        figures.push(ReportedFigure::new(
            format!("{target} ms: written : by writers that nobody holds"),
            "",
            None,
            to_free(name(target), settled_rate),
        ));
        figures.push(ReportedFigure::new(
            format!("{target} ms: delay in the settled seconds"),
            "ms",
            None,
            of(name(target), |run| over_bursts(run, in_bursts(SETTLING, ON), mean_delay)),
        ));
    }
    let names = || std::iter::once(FREE.to_owned()).chain(THRESHOLDS_MS.map(name)).collect();
    let marks = vec![("20 ms", 20.0), ("15 ms", 15.0), ("10 ms", 10.0)];
    Experiment {
        runs: std::iter::once(today(FREE, nobody)).chain(THRESHOLDS_MS.map(regulated)).collect(),
        quantities,
        figures,
        plots: vec![
            over_time("What the reader waits", "ms", names(), marks, reader_line),
            over_time("Written by all", "MB/s", names(), Vec::new(), writers_line),
        ],
        ..Experiment::of("bjorgeengen.agent")
    }
}
