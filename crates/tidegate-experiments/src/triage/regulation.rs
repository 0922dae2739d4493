//! Figures 5, 7 and 8: one workload, fixed and adaptive controllers.

use std::time::Duration;

use tidegate_sched::{Beyond, Limit};
use tidegate_units::Iops;

use super::{CACHE, DISK, Law, SERVERS, deviation, least, met, run};
use crate::measure::{of, ratio};
use crate::{Accepts, Experiment, Figure, Line, Plot, Quantity, Run, Span, Trial};

/// A storage, its goal in ms, and the gain that the paper calls good for it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Case {
    name: &'static str,
    pub(super) rate: f64,
    servers: u32,
    goal: f64,
    pub(super) gain: f64,
}

impl Case {
    /// The keys of its storage.
    fn storage(self) -> String {
        format!("rate = \"{} IO/s\"\nservers = {}", self.rate, self.servers)
    }

    /// The keys of clients whose data move from this storage to another one, with another goal.
    fn moves(self, at: f64, to: Self) -> (String, String) {
        let change = format!("{{ at = \"{at}s\", rate = \"{} IO/s\", servers = {} }}", to.rate, to.servers);
        let goal = format!("{{ at = \"{at}s\", goal = \"{}ms\" }}", to.goal);
        (
            format!("{}\nchanges = [{change}]", self.storage()),
            format!("[vm.clients]\nworkload = \"eight\"\ngoal_changes = [{goal}]"),
        )
    }
}

/// The goals are lost. Those of figure 10, where all is cached, are not: 4 ms is the one of its more
/// important workload. On the disk it is as many times what the storage takes without load.
pub(super) const ON_CACHE: Case =
    Case { name: "cache", rate: CACHE, servers: SERVERS, goal: 4.0, gain: 213.0 };
pub(super) const ON_DISK: Case = Case { name: "disk", rate: DISK, servers: SERVERS, goal: 23.4, gain: 7.2 };

/// Single servers with the same gains of their models, as steep near their capacity as a queue can be; goals
/// of two and a half times what they take without load.
const ONE_CACHE: Case = Case { name: "cache", rate: 960.0, servers: 1, goal: 2.5, gain: 213.0 };
const ONE_DISK: Case = Case { name: "disk", rate: 164.0, servers: 1, goal: 15.0, gain: 7.2 };

/// The time when the controllers are enabled (fig. 7), and the end, in seconds.
const ENABLED: f64 = 10.0;
const END: f64 = 70.0;
const SETTLED: Span = Span::new(15.0, END);

/// The time when the data move (fig. 8), and the end, in seconds.
const MOVES: f64 = 40.0;
const MOVED: Span = Span::new(MOVES + 5.0, 90.0);

const SETTLES: &str = "the paper: approximately 2 to 3 s";

pub(super) fn under(name: &str, case: Case, law: Law) -> Run {
    let host = format!("target = \"{}ms\"\nlaw_from = \"{ENABLED}s\"", case.goal);
    run(name, END as u32, &case.storage(), law, &host, "[vm.clients]\nworkload = \"eight\"")
}

/// From one storage to the other at [`MOVES`].
pub(super) fn moving(name: &str, (from, to): (Case, Case), seconds: f64, law: Law) -> Run {
    let (storage, clients) = from.moves(MOVES, to);
    run(name, seconds as u32, &storage, law, &format!("target = \"{}ms\"", from.goal), &clients)
}

/// The same clients, held to one rate from the beginning to the end: what is left of noise where nothing has
/// to be found out.
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

/// Returns the judged quantities of a law that is enabled on a storage (fig. 7).
pub(super) fn settles(name: &'static str, case: Case) -> [Quantity; 2] {
    [
        Quantity::new(
            format!("{name}: settling time"),
            Accepts::AtMost(3.0),
            SETTLES,
            settling(name, case.goal, ENABLED, END),
        )
        .unit("s"),
        Quantity::new(
            format!("{name}: mean response time : goal, from 15 s on"),
            Accepts::near(1.0, 10.0),
            "the response time tracks its goal; 10 % for a regulator that is about it",
            of(name, move |run| Some(run.latency(SETTLED)? / case.goal)),
        ),
    ]
}

/// Returns the quantity that compares a law's deviation from the goal with the fixed gain's (fig. 7).
pub(super) fn as_steady(name: &'static str, fixed: &'static str, case: Case) -> Quantity {
    Quantity::new(
        format!("{name}: deviation of 1 s means from the goal : with the fixed gain"),
        Accepts::AtMost(1.5),
        "indistinguishable in practice, says the paper, which is by eye: half as much again",
        move |trial| {
            let of = |name| deviation(trial.run(name)?, case.goal, SETTLED);
            ratio(of(name), of(fixed))
        },
    )
}

/// Returns the judged quantities of a law when data move from disk to cache (fig. 8).
pub(super) fn follows(name: &'static str, to: Case) -> [Quantity; 3] {
    [
        Quantity::new(
            format!("{name}: until the new goal is met"),
            Accepts::AtMost(3.0),
            "the paper: within 3 s",
            settling(name, to.goal, MOVES, MOVED.to),
        )
        .paper(3.0)
        .unit("s"),
        Quantity::new(
            format!("{name}: mean response time : goal, from 5 s after the change on"),
            Accepts::near(1.0, 10.0),
            "the new goal is tracked; 10 %",
            of(name, move |run| Some(run.latency(MOVED)? / to.goal)),
        ),
        Quantity::new(
            format!("{name}: least throughput of a second : mean, from 5 s after the change on"),
            Accepts::AtLeast(0.5),
            "no collapse: half of what there is",
            of(name, |run| ratio(least(run, MOVED), run.total_iops(MOVED))),
        ),
    ]
}

pub(super) fn fig5() -> Experiment {
    /// Long enough for the slow one to get there.
    const SLOW_END: f64 = 240.0;
    let settled = |name, case: Case| settling(name, case.goal, ENABLED, END);
    Experiment {
        id: "triage.fig5",
        title: "The right gain for the cache on the disk, and the other way round",
        paper: "K_I = 213 on a mostly on-disk workload is unstable, with seconds without any request; 7.2 on a mostly cached one settles \
                unacceptably slowly, and oscillates.",
        setup: "Goals of 23.4 and 4 ms, enabled at 10 s. Where the paper's controllers began is lost. Without any, our cache is a tenth above \
                what keeps the goal, which is no way to go; so the slow gain begins on the disk, and the data move into the cache at 40 s. \
                Beside them the gains where they belong.",
        runs: vec![
            under("213 on disk", ON_DISK, Law::Fixed(ON_CACHE.gain)),
            moving("7.2 on cache", (ON_DISK, ON_CACHE), SLOW_END, Law::Fixed(ON_DISK.gain)),
            under("7.2 on cache, from its capacity", ON_CACHE, Law::Fixed(ON_DISK.gain)),
            under("7.2 on disk", ON_DISK, Law::Fixed(ON_DISK.gain)),
            under("213 on cache", ON_CACHE, Law::Fixed(ON_CACHE.gain)),
        ],
        quantities: vec![
            Quantity::new(
                "213 on disk: least throughput of a second : mean",
                Accepts::AtMost(0.1),
                "unstable, with seconds without any request, says the paper; nobody is held to less than six here: a tenth",
                of("213 on disk", |run| {
                    let late = Span::new(20.0, END);
                    ratio(least(run, late), run.total_iops(late))
                }),
            ),
            Quantity::new(
                "7.2 on cache: settling time",
                Accepts::AtLeast(9.0),
                "unacceptably long: three times what is claimed of the right gain",
                settling("7.2 on cache", ON_CACHE.goal, MOVES, SLOW_END),
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
        figures: vec![
            Figure::new(
                "213 on disk: deviation of 1 s means from the goal",
                "",
                None,
                of("213 on disk", |run| deviation(run, ON_DISK.goal, Span::new(20.0, END))),
            ),
            Figure::new(
                "7.2 on cache, from its capacity: settling time",
                "s",
                None,
                settled("7.2 on cache, from its capacity", ON_CACHE),
            ),
        ],
        plots: vec![
            response_times(
                "213 on disk: response time",
                vec!["213 on disk".to_owned()],
                vec![("goal", ON_DISK.goal)],
            ),
            response_times(
                "7.2 on cache: response time",
                vec!["7.2 on cache".to_owned()],
                vec![("goal, from 40 s on", ON_CACHE.goal)],
            ),
        ],
    }
}

/// Names of fig. 7's runs of a storage: fixed, ours, and no law at all.
fn names(case: Case) -> [&'static str; 3] {
    match case.name {
        "cache" => ["cache, fixed", "cache, improved", "cache, static"],
        _ => ["disk, fixed", "disk, improved", "disk, static"],
    }
}

/// Plots the response times of a storage under a fixed gain and under our law.
fn response_time(case: Case) -> Plot {
    response_times(
        format!("{}: response time", case.name),
        names(case)[..2].iter().map(ToString::to_string).collect(),
        vec![("goal", case.goal)],
    )
}

/// A fixed gain, our law, and a static throttle at a rate that comes to about the goal, on one storage.
fn beside_each_other(
    case: Case,
    rate: f64,
    quantities: &mut Vec<Quantity>,
    figures: &mut Vec<Figure>,
) -> Vec<Run> {
    let [fixed, improved, static_] = names(case);
    quantities.extend(settles(fixed, case));
    quantities.extend(settles(improved, case));
    quantities.push(as_steady(improved, fixed, case));
    figures.push(Figure::new(
        format!("{static_}: settling time"),
        "s",
        None,
        settling(static_, case.goal, ENABLED, END),
    ));
    figures.push(Figure::new(
        format!("{static_}: mean response time : goal, from 15 s on"),
        "",
        None,
        of(static_, move |run| Some(run.latency(SETTLED)? / case.goal)),
    ));
    for name in [fixed, improved, static_] {
        figures.push(Figure::new(
            format!("{name}: deviation of 1 s means from the goal"),
            "",
            None,
            of(name, move |run| deviation(run, case.goal, SETTLED)),
        ));
    }
    vec![
        under(fixed, case, Law::Fixed(case.gain)),
        under(improved, case, Law::Improved),
        held(static_, case, rate),
    ]
}

pub(super) fn fig7() -> Experiment {
    let mut runs = Vec::new();
    let mut quantities = Vec::new();
    let mut figures = Vec::new();
    // Rates that lead to about the goals, tried without any law.
    for (case, rate) in [(ON_CACHE, 1015.0), (ON_DISK, 173.0)] {
        runs.extend(beside_each_other(case, rate, &mut quantities, &mut figures));
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
        setup: "Goals of 23.4 ms on the disk and 4 ms on the cache, enabled at 10 s; K_I = 7.2 and 213. Beside them a static throttle at the rate \
                that comes to about the goal, whose deviation is the noise of the storage.",
        runs,
        quantities,
        figures,
        plots: [ON_CACHE, ON_DISK].map(response_time).into(),
    }
}

pub(super) fn fig8() -> Experiment {
    Experiment {
        id: "triage.fig8",
        title: "The data move from disk to cache, and the goal becomes another one",
        paper: "At 40 s the workload turns from all on disk to all in cache, with a more aggressive goal, which is met within 3 s.",
        setup: "23.4 ms on the disk, then 4 ms on the cache.",
        runs: vec![moving("improved", (ON_DISK, ON_CACHE), MOVED.to, Law::Improved)],
        quantities: follows("improved", ON_CACHE).into(),
        figures: Vec::new(),
        plots: vec![response_times(
            "response time",
            vec!["improved".to_owned()],
            vec![("first goal", ON_DISK.goal), ("second goal", ON_CACHE.goal)],
        )],
    }
}

/// Figures 7 and 8 where it is harder.
pub(super) fn single() -> Experiment {
    let mut runs = vec![moving("moved", (ONE_DISK, ONE_CACHE), MOVED.to, Law::Improved)];
    let mut quantities = Vec::new();
    let mut figures = Vec::new();
    for (case, rate) in [(ONE_CACHE, 740.0), (ONE_DISK, 124.0)] {
        runs.extend(beside_each_other(case, rate, &mut quantities, &mut figures));
    }
    quantities.extend(follows("moved", ONE_CACHE));
    Experiment {
        id: "triage.single",
        title: "Figures 7 and 8 on storages that are steeper than the paper's",
        paper: "Nothing: beyond it. What figures 7 and 8 claim is judged.",
        setup: "Single servers of 960 and 164 requests a second, whose models have the paper's gains, too, but not its α: near the capacity a \
                queue is as steep here as it can be. Goals of 15 ms on the disk and 2.5 ms on the cache, two and a half times what they take \
                without load.",
        runs,
        quantities,
        figures,
        plots: [ONE_CACHE, ONE_DISK].map(response_time).into(),
    }
}
