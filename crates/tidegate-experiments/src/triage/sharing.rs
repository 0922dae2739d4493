//! Figures 9 and 10: two workloads by bands.

use super::{TriageLaw, least, met, run};
use crate::measure::{of, ratio};
use crate::{
    Experiment, JudgedQuantity, NamedRun, Plot, PlotLine, ReportedFigure, RunResult, TimeSpan, Tolerance,
};

/// One server and two: see the head of this part.
pub(super) const ONE: f64 = 647.0;
pub(super) const TWO: f64 = 826.0;

fn iops(run: &RunResult, workload: &str, span: TimeSpan) -> Option<f64> {
    run.mean(workload, span, |sample| Some(sample.iops))
}

fn response(run: &RunResult, workload: &str, span: TimeSpan) -> Option<f64> {
    run.device_latency_of(workload, span)
}

fn rates(title: String, name: &'static str, marks: Vec<(&'static str, f64)>) -> Plot {
    Plot {
        title,
        unit: "IO/s",
        over: "s",
        marks,
        lines: Box::new(move |trial| {
            let tracks = trial.run(name).map(|run| run.tracks.as_slice()).unwrap_or_default();
            tracks
                .iter()
                .map(|track| PlotLine {
                    name: track.consumer.to_string(),
                    points: track.samples.iter().map(|(end, sample)| (*end, sample.iops)).collect(),
                })
                .collect()
        }),
    }
}

/// The time when the controllers of fig. 9 are enabled, and the end, in seconds.
const ENABLED: f64 = 10.0;
const NINE_END: f64 = 70.0;
const BEFORE: TimeSpan = TimeSpan::new(2.0, ENABLED);
const NINE_SETTLED: TimeSpan = TimeSpan::new(15.0, NINE_END);

/// Returns the second workload's part of their common throughput in fig. 9: a tenth of the first 500 IO/s,
/// and half of the rest.
fn second(total: f64) -> f64 {
    0.1 * total.min(500.0) + 0.5 * (total - 500.0).max(0.0)
}

pub(super) fn isolated(name: &str, law: TriageLaw) -> NamedRun {
    let host = format!(
        "target = \"4ms\"\nlaw_from = \"{ENABLED}s\"\n\
         bands = [{{ up_to = \"500 IO/s\", ratios = {{ w1 = 0.9, w2 = 0.1 }} }}]"
    );
    let vms = "[vm.w1]\nworkload = \"four\"\n[vm.w2]\nworkload = \"four\"";
    run(name, NINE_END as u32, &format!("rate = \"{ONE} IO/s\""), law, &host, vms)
}

/// Returns the judged quantities of a law when one workload takes throughput that is due to another (fig. 9).
pub(super) fn isolates(name: &'static str) -> Vec<JudgedQuantity> {
    let mut quantities = vec![
        JudgedQuantity::new(
            format!("{name}: until w2 has no more than its part"),
            Tolerance::AtMost(2.0),
            of(name, |run| {
                // What it is to have depends on what there is, a second at a time: their ratio is to be one,
                // or less.
                let excess = |span| {
                    let (own, total) = (iops(run, "w2", span)?, run.total_iops(span)?);
                    ratio(Some(own), Some(second(total))).map(|excess| excess.max(1.0))
                };
                met(excess, 1.0, ENABLED, NINE_END)
            }),
        )
        .paper(2.0)
        .unit("s"),
    ];
    for workload in ["w1", "w2"] {
        quantities.push(JudgedQuantity::new(
            format!("{name}: throughput of {workload} : allotment"),
            Tolerance::near(1.0, 10.0),
            of(name, move |run| {
                let total = run.total_iops(NINE_SETTLED)?;
                let part = if workload == "w2" { second(total) } else { total - second(total) };
                ratio(iops(run, workload, NINE_SETTLED), Some(part))
            }),
        ));
        quantities.push(JudgedQuantity::new(
            format!("{name}: mean response time of {workload} : goal"),
            Tolerance::AtMost(1.1),
            of(name, move |run| Some(response(run, workload, NINE_SETTLED)? / 4.0)),
        ));
    }
    quantities.push(
        JudgedQuantity::new(
            format!("{name}: throughput without control less with it"),
            Tolerance::near(150.0, 50.0),
            of(name, |run| Some(run.total_iops(BEFORE)? - run.total_iops(NINE_SETTLED)?)),
        )
        .paper(150.0)
        .unit("IO/s"),
    );
    quantities.push(JudgedQuantity::new(
        format!("{name}: least throughput of a second : mean"),
        Tolerance::AtLeast(0.5),
        of(name, |run| ratio(least(run, NINE_SETTLED), run.total_iops(NINE_SETTLED))),
    ));
    quantities
}

pub(super) fn fig9() -> Experiment {
    let mut quantities = vec![
        JudgedQuantity::new(
            "before: throughput of w2 : its goal",
            Tolerance::AtLeast(6.0),
            of("improved", |run| Some(iops(run, "w2", BEFORE)? / 50.0)),
        )
        .paper(6.0),
        JudgedQuantity::new(
            "before: throughput of w1 : its goal",
            Tolerance::AtMost(0.95),
            of("improved", |run| Some(iops(run, "w1", BEFORE)? / 450.0)),
        ),
    ];
    quantities.extend(isolates("improved"));
    Experiment {
        runs: vec![isolated("improved", TriageLaw::Improved)],
        quantities,
        plots: vec![rates(
            "throughput".to_owned(),
            "improved",
            vec![("w1's goal", 450.0), ("w2's goal", 50.0)],
        )],
        ..Experiment::of("triage.fig9")
    }
}

const GROWS: f64 = 30.0;
const GROWN: f64 = 80.0;
const EARLY: TimeSpan = TimeSpan::new(10.0, GROWS);
const LATE: TimeSpan = TimeSpan::new(GROWS + 5.0, GROWN);

pub(super) fn table1(name: &str, after: f64, law: TriageLaw) -> NamedRun {
    let storage =
        format!("rate = \"{ONE} IO/s\"\nchanges = [{{ at = \"{GROWS}s\", rate = \"{after} IO/s\" }}]");
    let host = "target = \"4ms\"\nbands = [{ up_to = \"100 IO/s\", ratios = { w1 = 0.5, w2 = 0.5 } }, \
                { up_to = \"400 IO/s\", ratios = { w1 = 1.0 } }, \
                { up_to = \"900 IO/s\", ratios = { w2 = 1.0 } }]";
    let vms = "[vm.w1]\nworkload = \"four\"\ngoal = \"4ms\"\n[vm.w2]\nworkload = \"four\"\ngoal = \"5ms\"";
    run(name, GROWN as u32, &storage, law, host, vms)
}

/// Returns the judged quantities of a law under table 1 on a storage that grows (fig. 10).
pub(super) fn differentiates(name: &'static str) -> Vec<JudgedQuantity> {
    let mut quantities = Vec::new();
    for (when, span, total) in [("one server", EARLY, 500.0), ("two servers", LATE, 700.0)] {
        quantities.push(
            JudgedQuantity::new(
                format!("{name}, {when}: throughput"),
                Tolerance::near(total, 10.0),
                of(name, move |run| run.total_iops(span)),
            )
            .paper(total)
            .unit("IO/s"),
        );
        quantities.push(
            JudgedQuantity::new(
                format!("{name}, {when}: throughput of w1"),
                Tolerance::near(350.0, 10.0),
                of(name, move |run| iops(run, "w1", span)),
            )
            .paper(350.0)
            .unit("IO/s"),
        );
        for (workload, goal) in [("w1", 4.0), ("w2", 5.0)] {
            quantities.push(JudgedQuantity::new(
                format!("{name}, {when}: mean response time of {workload} : goal"),
                Tolerance::AtMost(1.1),
                of(name, move |run| Some(response(run, workload, span)? / goal)),
            ));
        }
        quantities.push(JudgedQuantity::new(
            format!("{name}, {when}: least throughput of a second : mean"),
            Tolerance::AtLeast(0.5),
            of(name, move |run| ratio(least(run, span), run.total_iops(span))),
        ));
    }
    quantities.push(
        JudgedQuantity::new(
            format!("{name}, one server: throughput of w2"),
            Tolerance::Between(50.0, 250.0),
            of(name, |run| iops(run, "w2", EARLY)),
        )
        .unit("IO/s"),
    );
    quantities.push(
        JudgedQuantity::new(
            format!("{name}, two servers: throughput of w2"),
            Tolerance::near(350.0, 20.0),
            of(name, |run| iops(run, "w2", LATE)),
        )
        .paper(350.0)
        .unit("IO/s"),
    );
    quantities.push(
        JudgedQuantity::new(
            format!("{name}: until the throughput is that of two servers"),
            Tolerance::AtMost(2.0),
            of(name, |run| met(|span| run.total_iops(span), 700.0, GROWS, GROWN)),
        )
        .paper(2.0)
        .unit("s"),
    );
    quantities
}

pub(super) fn fig10() -> Experiment {
    let doubled = |name: &'static str, what: &'static str, workload: &'static str| {
        ReportedFigure::new(what, "IO/s", None, of(name, move |run| iops(run, workload, LATE)))
    };
    Experiment {
        runs: vec![
            table1("improved", TWO, TriageLaw::Improved),
            table1("improved, doubled", 2.0 * ONE, TriageLaw::Improved),
        ],
        quantities: differentiates("improved"),
        figures: vec![
            doubled("improved, doubled", "improved, doubled: throughput of w1", "w1"),
            doubled("improved, doubled", "improved, doubled: throughput of w2", "w2"),
        ],
        plots: vec![rates("throughput".to_owned(), "improved", vec![("w1's", 350.0), ("w2's first", 50.0)])],
        ..Experiment::of("triage.fig10")
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tidegate_device::{DeviceConfig, ExponentialConfig};
    use tidegate_units::{Bytes, Iops, Latency};

    use super::*;
    use tidegate_sim::excite::Excitation;

    /// The storages meet the response time that they were fitted to: 4 ms, at 500 IO/s of one server and at
    /// 700 of two. Eight clients release the requests evenly.
    #[test]
    fn the_storages_meet_the_papers_goal_at_the_papers_throughput() {
        for (rate, at) in [(ONE, 500.0), (TWO, 700.0)] {
            let device = DeviceConfig::Exponential(ExponentialConfig {
                rate: Iops::new(rate),
                servers: 1,
                capacity: Bytes::from_gib(1),
            });
            let steady =
                Excitation { spread: 0.0, ..Excitation::new(device, Bytes::from_kib(4), Iops::new(at)) };
            let samples = steady.samples(Duration::from_secs(1), 1).unwrap();
            let known = samples.iter().filter_map(|sample| sample.response);
            let mean = known.clone().map(Latency::as_millis_f64).sum::<f64>() / known.count() as f64;
            assert!((mean / 4.0 - 1.0).abs() < 0.05, "{rate}: {mean} ms at {at}");
        }
    }
}
