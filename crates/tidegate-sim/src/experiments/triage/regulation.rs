//! Figures 5, 7 and 8: one workload, fixed and adaptive controllers.

use std::time::Duration;

use tidegate_sched::{Beyond, Limit};
use tidegate_units::Iops;

use super::{CACHE, DISK, Law, deviation, least, met, run};
use crate::experiments::measure::{of, ratio};
use crate::experiments::{Accepts, Experiment, Figure, Line, Plot, Quantity, Run, Span, Trial};

/// A storage, its goal in ms, and the gain that the paper calls good for it.
#[derive(Debug, Clone, Copy)]
struct Case {
    name: &'static str,
    rate: f64,
    goal: f64,
    gain: f64,
}

/// The goals are lost: two and a half times what the storage takes without load, where a queue is still far from its capacity.
const ON_CACHE: Case = Case { name: "cache", rate: CACHE, goal: 2.5, gain: 213.0 };
const ON_DISK: Case = Case { name: "disk", rate: DISK, goal: 15.0, gain: 7.2 };

/// When the controllers are enabled (fig. 7), and the end.
const ENABLED: f64 = 10.0;
const END: f64 = 70.0;

const SETTLES: &str = "the paper: approximately 2 to 3 s";

fn under(name: &str, case: Case, law: Law) -> Run {
    let storage = format!("rate = \"{} IO/s\"", case.rate);
    let host = format!("target = \"{}ms\"\nlaw_from = \"{ENABLED}s\"", case.goal);
    run(name, END as u32, &storage, law, &host, "[vm.clients]\nworkload = \"eight\"")
}

/// The same clients, held to one rate from the beginning to the end: what is left of noise where nothing has to be found out.
fn held(name: &str, case: Case, rate: f64) -> Run {
    under(name, case, Law::Improved).but(|scenario| {
        scenario.hosts[0].law = None;
        scenario.vms[0].limit = Some(Limit {
            iops: Some(Iops::new(rate)),
            bytes_per_s: None,
            burst: Duration::from_millis(100),
            beyond: Beyond::Wait,
        });
    })
}

fn response_times(title: impl Into<String>, runs: Vec<String>, marks: Vec<(&'static str, f64)>) -> Plot {
    Plot {
        title: title.into(),
        unit: "ms",
        over: "s",
        marks,
        lines: Box::new(move |trial| runs.iter().filter_map(|name| line(trial, name)).collect()),
    }
}

fn line(trial: &Trial<'_>, name: &str) -> Option<Line> {
    let run = trial.run(name)?;
    let samples = run.tracks.iter().flat_map(|track| &track.samples);
    let points = samples.filter_map(|(end, sample)| Some((*end, sample.device_latency_ms?))).collect();
    Some(Line { name: name.to_owned(), points })
}

fn settling(
    name: &'static str,
    goal: f64,
    from: f64,
    until: f64,
) -> impl Fn(&Trial<'_>) -> Option<f64> + Send + Sync {
    of(name, move |run| met(|span| run.latency(span), goal, from, until))
}

pub(super) fn fig5() -> Experiment {
    let settled = |name, case: Case| settling(name, case.goal, ENABLED, END);
    Experiment {
        id: "triage.fig5",
        title: "The right gain for the cache on the disk, and the other way round",
        paper: "K_I = 213 on a mostly on-disk workload is unstable, with seconds without any request; 7.2 on a mostly cached one settles \
                unacceptably slowly, and oscillates.",
        setup: "Goals of 15 and 2.5 ms, enabled at 10 s. Beside them the gains where they belong.",
        runs: vec![
            under("213 on disk", ON_DISK, Law::Fixed(ON_CACHE.gain)),
            under("7.2 on cache", ON_CACHE, Law::Fixed(ON_DISK.gain)),
            under("7.2 on disk", ON_DISK, Law::Fixed(ON_DISK.gain)),
            under("213 on cache", ON_CACHE, Law::Fixed(ON_CACHE.gain)),
        ],
        quantities: vec![
            Quantity::new(
                "213 on disk: deviation of 1 s means from the goal",
                Accepts::AtLeast(0.7),
                "unstable: from nothing to beyond twice the goal, which is about one",
                of("213 on disk", |run| deviation(run, ON_DISK.goal, Span::new(20.0, END))),
            ),
            Quantity::new(
                "7.2 on cache: settling time",
                Accepts::AtLeast(9.0),
                "unacceptably long: three times what is claimed of the right gain",
                settled("7.2 on cache", ON_CACHE),
            )
            .unit("s"),
            Quantity::new(
                "7.2 on disk: settling time",
                Accepts::AtMost(3.0),
                SETTLES,
                settled("7.2 on disk", ON_DISK),
            )
            .unit("s"),
            Quantity::new(
                "213 on cache: settling time",
                Accepts::AtMost(3.0),
                SETTLES,
                settled("213 on cache", ON_CACHE),
            )
            .unit("s"),
        ],
        figures: Vec::new(),
        plots: vec![
            response_times(
                "213 on disk: response time",
                vec!["213 on disk".to_owned()],
                vec![("goal", 15.0)],
            ),
            response_times(
                "7.2 on cache: response time",
                vec!["7.2 on cache".to_owned()],
                vec![("goal", 2.5)],
            ),
        ],
    }
}

/// Names of fig. 7's runs of a storage: fixed, the paper's algorithm, ours.
fn names(case: Case) -> [&'static str; 3] {
    match case.name {
        "cache" => ["cache, fixed", "cache, adaptive", "cache, improved"],
        _ => ["disk, fixed", "disk, adaptive", "disk, improved"],
    }
}

pub(super) fn fig7() -> Experiment {
    const SETTLED: Span = Span::new(15.0, END);
    let mut runs = Vec::new();
    let mut quantities = Vec::new();
    let mut plots = Vec::new();
    let mut figures = Vec::new();
    // Rates that lead to about the goals, tried without any law.
    for (name, case, rate) in [("cache, static", ON_CACHE, 740.0), ("disk, static", ON_DISK, 124.0)] {
        runs.push(held(name, case, rate));
        figures.push(Figure::new(
            format!("{name}: settling time"),
            "s",
            None,
            settling(name, case.goal, ENABLED, END),
        ));
        figures.push(Figure::new(
            format!("{name}: mean response time : goal, from 15 s on"),
            "",
            None,
            of(name, move |run| Some(run.latency(SETTLED)? / case.goal)),
        ));
    }
    for case in [ON_CACHE, ON_DISK] {
        for name in ["fixed", "adaptive", "improved", "static"].map(|law| format!("{}, {law}", case.name)) {
            figures.push(Figure::new(
                format!("{name}: deviation of 1 s means from the goal"),
                "",
                None,
                of(name, move |run| deviation(run, case.goal, SETTLED)),
            ));
        }
        let names = names(case);
        let laws = [Law::Fixed(case.gain), Law::Literal(case.rate), Law::Improved];
        for (name, law) in names.into_iter().zip(laws) {
            runs.push(under(name, case, law));
            quantities.push(
                Quantity::new(
                    format!("{name}: settling time"),
                    Accepts::AtMost(3.0),
                    SETTLES,
                    settling(name, case.goal, ENABLED, END),
                )
                .unit("s"),
            );
            quantities.push(Quantity::new(
                format!("{name}: mean response time : goal, from 15 s on"),
                Accepts::near(1.0, 10.0),
                "the response time tracks its goal; 10 % for a regulator that is about it",
                of(name, move |run| Some(run.latency(SETTLED)? / case.goal)),
            ));
        }
        for name in &names[1..] {
            let (fixed, name) = (names[0], *name);
            quantities.push(Quantity::new(
                format!("{name}: deviation of 1 s means from the goal : with the fixed gain"),
                Accepts::AtMost(1.5),
                "indistinguishable in practice, says the paper, which is by eye: half as much again",
                move |trial| {
                    let of = |name| deviation(trial.run(name)?, case.goal, SETTLED);
                    ratio(of(name), of(fixed))
                },
            ));
        }
        plots.push(response_times(
            format!("{}: response time", case.name),
            names.map(ToOwned::to_owned).into(),
            vec![("goal", case.goal)],
        ));
    }
    quantities.push(Quantity::new(
        "deviation with the fixed gain, disk : cache",
        Accepts::AtLeast(1.0),
        "both oscillate more with the disk, says the paper",
        |trial| {
            let of = |case: Case| deviation(trial.run(names(case)[0])?, case.goal, SETTLED);
            ratio(of(ON_DISK), of(ON_CACHE))
        },
    ));
    Experiment {
        id: "triage.fig7",
        title: "The adaptive controller beside the fixed one that is right for the storage",
        paper: "The two are indistinguishable in practice; settling time and overshoot of approximately 2 to 3 s. Both oscillate more with \
                the workload on disk.",
        setup: "Goals of 15 ms on the disk and 2.5 ms on the cache, enabled at 10 s; K_I = 7.2 and 213. Beside them a static throttle at the rate \
                that comes to about the goal, whose deviation is the noise of the storage.",
        runs,
        quantities,
        figures,
        plots,
    }
}

pub(super) fn fig8() -> Experiment {
    const MOVES: f64 = 40.0;
    const END: f64 = 90.0;
    let storage =
        format!("rate = \"{DISK} IO/s\"\nchanges = [{{ at = \"{MOVES}s\", rate = \"{CACHE} IO/s\" }}]");
    let host = format!("target = \"{}ms\"", ON_DISK.goal);
    let clients = format!(
        "[vm.clients]\nworkload = \"eight\"\ngoal_changes = [{{ at = \"{MOVES}s\", goal = \"{}ms\" }}]",
        ON_CACHE.goal
    );
    let under = |name, law| run(name, END as u32, &storage, law, &host, &clients);
    let mut quantities = Vec::new();
    for name in ["adaptive", "improved"] {
        quantities.push(
            Quantity::new(
                format!("{name}: until the new goal is met"),
                Accepts::AtMost(3.0),
                "the paper: within 3 s",
                settling(name, ON_CACHE.goal, MOVES, END),
            )
            .paper(3.0)
            .unit("s"),
        );
        quantities.push(Quantity::new(
            format!("{name}: mean response time : goal, from 5 s after the change on"),
            Accepts::near(1.0, 10.0),
            "the new goal is tracked; 10 %",
            of(name, |run| Some(run.latency(Span::new(MOVES + 5.0, END))? / ON_CACHE.goal)),
        ));
        quantities.push(Quantity::new(
            format!("{name}: least throughput of a second : mean, from 5 s after the change on"),
            Accepts::AtLeast(0.5),
            "no collapse: half of what there is",
            of(name, |run| {
                let after = Span::new(MOVES + 5.0, END);
                ratio(least(run, after), run.total_iops(after))
            }),
        ));
    }
    Experiment {
        id: "triage.fig8",
        title: "The data move from disk to cache, and the goal becomes another one",
        paper: "At 40 s the workload turns from all on disk to all in cache, with a more aggressive goal, which is met within 3 s.",
        setup: "15 ms on the disk, then 2.5 ms on the cache.",
        runs: vec![under("adaptive", Law::Literal(CACHE)), under("improved", Law::Improved)],
        quantities,
        figures: Vec::new(),
        plots: vec![response_times(
            "response time",
            vec!["adaptive".to_owned(), "improved".to_owned()],
            vec![("first goal", ON_DISK.goal), ("second goal", ON_CACHE.goal)],
        )],
    }
}
