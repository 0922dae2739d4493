//! Figures 5, 7 and 8: one workload, fixed and adaptive controllers.

use std::time::Duration;

use tidegate_sched::{BeyondLimit, ConsumerLimit};
use tidegate_units::Iops;

use super::{CACHE, DISK, SERVERS, TriageLaw, deviation, least, met, run};
use crate::measure::{of, ratio};
use crate::{
    Experiment, JudgedQuantity, NamedRun, Plot, PlotLine, ReportedFigure, RunResult, SeedTrial, TimeSpan,
    Tolerance,
};

/// A storage, its goal in ms, and the gain that the paper calls good for it.
#[derive(Debug, Clone, Copy)]
pub(super) struct StorageCase {
    name: &'static str,
    pub(super) rate: f64,
    servers: u32,
    goal: f64,
    pub(super) gain: f64,
}

impl StorageCase {
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
pub(super) const ON_CACHE: StorageCase =
    StorageCase { name: "cache", rate: CACHE, servers: SERVERS, goal: 4.0, gain: 213.0 };
pub(super) const ON_DISK: StorageCase =
    StorageCase { name: "disk", rate: DISK, servers: SERVERS, goal: 23.4, gain: 7.2 };

/// Single servers with the same gains of their models, as steep near their capacity as a queue can be; goals
/// of two and a half times what they take without load.
const ONE_CACHE: StorageCase = StorageCase { name: "cache", rate: 960.0, servers: 1, goal: 2.5, gain: 213.0 };
const ONE_DISK: StorageCase = StorageCase { name: "disk", rate: 164.0, servers: 1, goal: 15.0, gain: 7.2 };

/// The time when the controllers are enabled (fig. 7), and the end, in seconds.
const ENABLED: f64 = 10.0;
const END: f64 = 70.0;
const SETTLED: TimeSpan = TimeSpan::new(15.0, END);

/// The time when the data move (fig. 8), and the end, in seconds.
const MOVES: f64 = 40.0;
const MOVED: TimeSpan = TimeSpan::new(MOVES + 5.0, 90.0);

pub(super) fn under(name: &str, case: StorageCase, law: TriageLaw) -> NamedRun {
    let host = format!("target = \"{}ms\"\nlaw_from = \"{ENABLED}s\"", case.goal);
    run(name, END as u32, &case.storage(), law, &host, "[vm.clients]\nworkload = \"eight\"")
}

/// From one storage to the other at [`MOVES`].
pub(super) fn moving(
    name: &str,
    (from, to): (StorageCase, StorageCase),
    seconds: f64,
    law: TriageLaw,
) -> NamedRun {
    let (storage, clients) = from.moves(MOVES, to);
    run(name, seconds as u32, &storage, law, &format!("target = \"{}ms\"", from.goal), &clients)
}

/// The same clients, limited to one rate from the beginning to the end: the noise that is left where nothing
/// has to be found out.
fn held(name: &str, case: StorageCase, rate: f64) -> NamedRun {
    under(name, case, TriageLaw::Improved).but(|scenario| {
        scenario.hosts[0].law = None;
        scenario.vms[0].limit = Some(ConsumerLimit {
            iops: Some(Iops::new(rate)),
            bytes_per_s: None,
            burst: Duration::from_millis(100),
            beyond: BeyondLimit::Wait,
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

fn line(trial: &SeedTrial<'_>, name: &str) -> Option<PlotLine> {
    let run = trial.run(name)?;
    let samples = run.tracks.iter().flat_map(|track| &track.samples);
    let points = samples.filter_map(|(end, sample)| Some((*end, sample.device_latency_ms?))).collect();
    Some(PlotLine { name: name.to_owned(), points })
}

fn settling(
    name: &'static str,
    goal: f64,
    from: f64,
    until: f64,
) -> impl Fn(&SeedTrial<'_>) -> Option<f64> + Send + Sync {
    of(name, move |run| met(|span| run.latency(span), goal, from, until))
}

/// The seconds until a law that is enabled on a storage meets the goal (fig. 7).
pub(super) fn settled(
    name: &'static str,
    case: StorageCase,
) -> impl Fn(&SeedTrial<'_>) -> Option<f64> + Send + Sync {
    settling(name, case.goal, ENABLED, END)
}

/// The mean response time over the goal, when the law has settled.
pub(super) fn to_goal(run: &RunResult, case: StorageCase) -> Option<f64> {
    Some(run.latency(SETTLED)? / case.goal)
}

/// Returns the judged quantities of a law that is enabled on a storage (fig. 7).
pub(super) fn settles(name: &'static str, case: StorageCase) -> [JudgedQuantity; 2] {
    [
        JudgedQuantity::new(format!("{name}: settling time"), Tolerance::AtMost(3.0), settled(name, case))
            .unit("s"),
        JudgedQuantity::new(
            format!("{name}: mean response time : goal, from 15 s on"),
            Tolerance::near(1.0, 10.0),
            of(name, move |run| to_goal(run, case)),
        ),
    ]
}

/// Returns the quantity that compares a law's deviation from the goal with the fixed gain's (fig. 7).
pub(super) fn as_steady(name: &'static str, fixed: &'static str, case: StorageCase) -> JudgedQuantity {
    JudgedQuantity::new(
        format!("{name}: deviation of 1 s means from the goal : with the fixed gain"),
        Tolerance::AtMost(1.5),
        move |trial| {
            let of = |name| deviation(trial.run(name)?, case.goal, SETTLED);
            ratio(of(name), of(fixed))
        },
    )
}

/// Returns the judged quantities of a law when data move from disk to cache (fig. 8).
pub(super) fn follows(name: &'static str, to: StorageCase) -> [JudgedQuantity; 3] {
    [
        JudgedQuantity::new(
            format!("{name}: until the new goal is met"),
            Tolerance::AtMost(3.0),
            settling(name, to.goal, MOVES, MOVED.to),
        )
        .paper(3.0)
        .unit("s"),
        JudgedQuantity::new(
            format!("{name}: mean response time : goal, from 5 s after the change on"),
            Tolerance::near(1.0, 10.0),
            of(name, move |run| Some(run.latency(MOVED)? / to.goal)),
        ),
        JudgedQuantity::new(
            format!("{name}: least throughput of a second : mean, from 5 s after the change on"),
            Tolerance::AtLeast(0.5),
            of(name, |run| ratio(least(run, MOVED), run.total_iops(MOVED))),
        ),
    ]
}

pub(super) fn fig5() -> Experiment {
    /// Long enough for the slow one to get there.
    const SLOW_END: f64 = 240.0;
    Experiment {
        runs: vec![
            under("213 on disk", ON_DISK, TriageLaw::Fixed(ON_CACHE.gain)),
            moving("7.2 on cache", (ON_DISK, ON_CACHE), SLOW_END, TriageLaw::Fixed(ON_DISK.gain)),
            under("7.2 on cache, from its capacity", ON_CACHE, TriageLaw::Fixed(ON_DISK.gain)),
            under("7.2 on disk", ON_DISK, TriageLaw::Fixed(ON_DISK.gain)),
            under("213 on cache", ON_CACHE, TriageLaw::Fixed(ON_CACHE.gain)),
        ],
        quantities: vec![
            JudgedQuantity::new(
                "213 on disk: least throughput of a second : mean",
                Tolerance::AtMost(0.1),
                of("213 on disk", |run| {
                    let late = TimeSpan::new(20.0, END);
                    ratio(least(run, late), run.total_iops(late))
                }),
            ),
            JudgedQuantity::new(
                "7.2 on cache: settling time",
                Tolerance::AtLeast(9.0),
                settling("7.2 on cache", ON_CACHE.goal, MOVES, SLOW_END),
            )
            .unit("s"),
            JudgedQuantity::new(
                "7.2 on disk: settling time",
                Tolerance::AtMost(3.0),
                settled("7.2 on disk", ON_DISK),
            )
            .unit("s"),
            JudgedQuantity::new(
                "213 on cache: settling time",
                Tolerance::AtMost(3.0),
                settled("213 on cache", ON_CACHE),
            )
            .unit("s"),
        ],
        figures: vec![
            ReportedFigure::new(
                "213 on disk: deviation of 1 s means from the goal",
                "",
                None,
                of("213 on disk", |run| deviation(run, ON_DISK.goal, TimeSpan::new(20.0, END))),
            ),
            ReportedFigure::new(
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
        ..Experiment::of("triage.fig5")
    }
}

/// Names of fig. 7's runs of a storage: fixed, ours, and no law at all.
fn names(case: StorageCase) -> [&'static str; 3] {
    match case.name {
        "cache" => ["cache, fixed", "cache, improved", "cache, static"],
        _ => ["disk, fixed", "disk, improved", "disk, static"],
    }
}

/// Plots the response times of a storage under a fixed gain and under our law.
fn response_time(case: StorageCase) -> Plot {
    response_times(
        format!("{}: response time", case.name),
        names(case)[..2].iter().map(ToString::to_string).collect(),
        vec![("goal", case.goal)],
    )
}

/// A fixed gain, our law, and a static throttle at a rate that comes to about the goal, on one storage.
fn beside_each_other(
    case: StorageCase,
    rate: f64,
    quantities: &mut Vec<JudgedQuantity>,
    figures: &mut Vec<ReportedFigure>,
) -> Vec<NamedRun> {
    let [fixed, improved, static_] = names(case);
    quantities.extend(settles(fixed, case));
    quantities.extend(settles(improved, case));
    quantities.push(as_steady(improved, fixed, case));
    figures.push(ReportedFigure::new(format!("{static_}: settling time"), "s", None, settled(static_, case)));
    figures.push(ReportedFigure::new(
        format!("{static_}: mean response time : goal, from 15 s on"),
        "",
        None,
        of(static_, move |run| to_goal(run, case)),
    ));
    for name in [fixed, improved, static_] {
        figures.push(ReportedFigure::new(
            format!("{name}: deviation of 1 s means from the goal"),
            "",
            None,
            of(name, move |run| deviation(run, case.goal, SETTLED)),
        ));
    }
    vec![
        under(fixed, case, TriageLaw::Fixed(case.gain)),
        under(improved, case, TriageLaw::Improved),
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
    quantities.push(JudgedQuantity::new(
        "deviation with the fixed gain, disk : cache",
        Tolerance::AtLeast(1.0),
        |trial| {
            let of = |case: StorageCase| deviation(trial.run(names(case)[0])?, case.goal, SETTLED);
            ratio(of(ON_DISK), of(ON_CACHE))
        },
    ));
    Experiment {
        runs,
        quantities,
        figures,
        plots: [ON_CACHE, ON_DISK].map(response_time).into(),
        ..Experiment::of("triage.fig7")
    }
}

pub(super) fn fig8() -> Experiment {
    Experiment {
        runs: vec![moving("improved", (ON_DISK, ON_CACHE), MOVED.to, TriageLaw::Improved)],
        quantities: follows("improved", ON_CACHE).into(),
        plots: vec![response_times(
            "response time",
            vec!["improved".to_owned()],
            vec![("first goal", ON_DISK.goal), ("second goal", ON_CACHE.goal)],
        )],
        ..Experiment::of("triage.fig8")
    }
}

/// Figures 7 and 8 where it is harder.
pub(super) fn single() -> Experiment {
    let mut runs = vec![moving("moved", (ONE_DISK, ONE_CACHE), MOVED.to, TriageLaw::Improved)];
    let mut quantities = Vec::new();
    let mut figures = Vec::new();
    for (case, rate) in [(ONE_CACHE, 740.0), (ONE_DISK, 124.0)] {
        runs.extend(beside_each_other(case, rate, &mut quantities, &mut figures));
    }
    quantities.extend(follows("moved", ONE_CACHE));
    Experiment {
        runs,
        quantities,
        figures,
        plots: [ONE_CACHE, ONE_DISK].map(response_time).into(),
        ..Experiment::of("triage.single")
    }
}
