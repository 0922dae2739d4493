//! Properties of the distribution, and the figures of hand-made series.

use std::time::Duration;

use tidegate_control::SignalStatistic;
use tidegate_device::DeviceConfig;
use tidegate_sim::{Scenario, SeriesSample, SilentRecorder, simulate};
use tidegate_units::Latency;

use super::*;
use crate::{ConsumerSeries, RunResult};

/// The first of the seeds that design may look at.
const FIRST: u64 = 1_000_000;

#[test]
fn two_hundred_seeds_have_every_kind_at_least_ten_times() {
    for kind in ScenarioKind::ALL {
        let count = (FIRST..FIRST + 200).filter(|seed| ScenarioKind::of(*seed) == kind).count();
        assert!(count >= 10, "{} is drawn {count} times", kind.name());
    }
}

#[test]
fn percentiles_have_seeds_of_their_own_and_all_others_draw_what_they_drew_before() {
    for seed in FIRST..FIRST + 340 {
        let kind = ScenarioKind::of(seed);
        let place = ScenarioKind::ALL.iter().position(|other| *other == kind).unwrap() as u64;
        assert_eq!(place, if seed % 20 == 19 { 17 } else { seed % 17 }, "seed {seed}");
    }
}

#[test]
fn a_percentile_is_promised_measured_and_told_to_the_laws_that_know_one() {
    let seeds = (FIRST..FIRST + 200).filter(|seed| ScenarioKind::of(*seed) == ScenarioKind::Percentile);
    let mut drawn = Vec::new();
    for arena in seeds.map(|seed| ArenaScenario::draw(seed).unwrap()) {
        let id = &arena.id;
        assert!(arena.statistic.percent().is_some_and(|percent| percent >= 90), "{id}");
        assert!(arena.scenario.hosts.iter().all(|host| host.statistic == arena.statistic), "{id}");
        let told = |kind| arena.with_law(kind).hosts[0].law.clone().unwrap();
        for kind in LawKind::ALL {
            assert!(told(kind).validate().is_ok(), "{id}: {kind}");
        }
        assert_eq!(told(LawKind::Auto).statistic, arena.statistic, "{id}");
        assert_eq!(told(LawKind::Integral).statistic, SignalStatistic::Mean, "{id}");
        drawn.push(arena.statistic);
    }
    assert!(
        [SignalStatistic::P90, SignalStatistic::P95, SignalStatistic::P99]
            .iter()
            .all(|one| drawn.contains(one))
    );
}

#[test]
fn seconds_are_judged_by_the_percentile_that_is_promised() {
    let mut arena = two_consumers();
    let mut run = run_of(&arena, |_, _| Some(5.0));
    for (consumer, track) in run.tracks.iter_mut().enumerate() {
        for (second, (_, sample)) in track.samples.iter_mut().enumerate() {
            sample.device_percentile_ms = Some(if (consumer, second) == (1, 6) { 11.0 } else { 9.0 });
        }
    }
    assert!(close(RunFigures::of(&arena, &run, &[]).above, 0.0), "by the mean");
    arena.statistic = SignalStatistic::P95;
    let figures = RunFigures::of(&arena, &run, &[]);
    assert!(close(figures.above, 1.0 / 14.0), "{figures:?}");
    assert!(close(figures.latency, (13.0 * 9.0 + 11.0) / 14.0 / 1e3), "{figures:?}");
}

/// Draws scenarios on all processors.
fn each_drawn(count: u64, check: impl Fn(&ArenaScenario) + Sync) {
    const THREADS: u64 = 4;
    std::thread::scope(|scope| {
        for first in 0..THREADS {
            let check = &check;
            scope.spawn(move || {
                for seed in (FIRST + first..FIRST + count).step_by(THREADS as usize) {
                    check(&ArenaScenario::draw(seed).unwrap_or_else(|error| panic!("seed {seed}: {error}")));
                }
            });
        }
    });
}

#[test]
fn every_drawn_scenario_can_be_simulated_and_judged() {
    each_drawn(100, |arena| {
        let id = &arena.id;
        for mut scenario in [arena.scenario.clone(), arena.with_law(LawKind::Window)] {
            scenario.duration = Duration::from_millis(20);
            assert!(simulate(&scenario, arena.seed, &mut SilentRecorder).is_ok(), "{id}");
        }
        let seconds = arena.seconds();
        assert!((6.0..=180.0).contains(&seconds), "{id} takes {seconds} s");
        assert!(arena.changes.iter().all(|change| (0.0..seconds).contains(change)), "{id}");
        assert!(arena.changes.is_sorted(), "{id}");
        assert!(!arena.judged.is_empty(), "{id}");
        let ratio = arena.target.as_secs_f64() / arena.unloaded.as_secs_f64();
        let bounds = if arena.kind.is_unattainable() { 0.29..1.26 } else { 1.49..22.0 };
        assert!(bounds.contains(&ratio), "{id}: the target is {ratio} times the unloaded latency");
        let protected = arena.scenario.vms.iter().any(|vm| vm.protected);
        let judged = |name: &String| {
            arena.scenario.vms.iter().any(|vm| vm.name.as_str() == name && vm.protected == protected)
        };
        assert!(arena.judged.iter().all(judged), "{id}");
    });
}

#[test]
fn more_consumers_than_a_disk_has_room_for_get_smaller_disks() {
    for seed in [1_000_322, 1_000_577] {
        let arena = ArenaScenario::draw(seed).unwrap();
        assert!(arena.scenario.vms.len() > 10, "{}", arena.id);
    }
}

#[test]
fn no_run_has_more_than_two_million_requests() {
    /// Counts requests, and stops where there are too many.
    #[derive(Default)]
    struct Requests(f64);
    impl tidegate_sim::Recorder for Requests {
        fn row(&mut self, row: &tidegate_sim::SeriesRow<'_>) {
            self.0 += row.sample.iops;
        }
    }
    // Those with the fastest storage.
    for seed in (FIRST..FIRST + 400).filter(|seed| ScenarioKind::of(*seed) == ScenarioKind::Servers) {
        let arena = ArenaScenario::draw(seed).unwrap();
        // Throughput is steady on these: three seconds tell the rest.
        let mut part = arena.scenario.clone();
        part.duration = part.series_interval * 3;
        let mut requests = Requests::default();
        simulate(&part, seed, &mut requests).unwrap();
        let all = requests.0 / 3.0 * arena.seconds();
        assert!(all <= 2e6, "{} has {all} requests", arena.id);
    }
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    // A short one: 40 to 200 IO/s.
    let seed = (FIRST..).find(|seed| ScenarioKind::of(*seed) == ScenarioKind::Slow).unwrap();
    let document = || {
        let arena = ArenaScenario::draw(seed).unwrap();
        let oracle = ArenaOracle::search(&arena).unwrap();
        let run = arena.run(Some(LawKind::Window), &oracle).unwrap();
        let figures = ScenarioFigures::of(&arena, &oracle, &run);
        let document = ArenaDocument::new(seed, "window", vec![figures]);
        (
            arena.fingerprint(),
            serde_json::to_string(&oracle).unwrap(),
            serde_json::to_string(&document).unwrap(),
        )
    };
    assert_eq!(document(), document());
}

#[test]
fn an_oracle_survives_its_text() {
    let seed = (FIRST..).find(|seed| ScenarioKind::of(*seed) == ScenarioKind::Slow).unwrap();
    let arena = ArenaScenario::draw(seed).unwrap();
    let text = serde_json::to_string(&ArenaOracle::search(&arena).unwrap()).unwrap();
    let read: ArenaOracle = serde_json::from_str(&text).unwrap();
    let again: ArenaOracle = serde_json::from_str(&serde_json::to_string(&read).unwrap()).unwrap();
    assert_eq!(read.attainable, again.attainable);
    assert_eq!(read.stretches.len(), arena.stretches.len());
}

/// A scenario of two consumers, judged both, with a target of 10 ms over 20 s, and a change at 10 s.
fn two_consumers() -> ArenaScenario {
    let seed = (FIRST..)
        .filter(|seed| ScenarioKind::of(*seed) == ScenarioKind::Capacity)
        .find(|seed| ArenaScenario::draw(*seed).is_ok_and(|arena| arena.scenario.vms.len() == 2))
        .unwrap();
    let mut arena = ArenaScenario::draw(seed).unwrap();
    arena.target = Latency::from_millis(10);
    arena.scenario.duration = Duration::from_secs(20);
    arena.scenario.series_interval = Duration::from_secs(1);
    arena.head_s = 3.0;
    arena.changes = vec![10.0];
    arena.stretches.truncate(2);
    arena.stretches[1].from = 10.0;
    arena
}

/// A run whose consumers have these milliseconds in each second, and 200 requests of 128 KiB.
fn run_of(arena: &ArenaScenario, ms: impl Fn(usize, usize) -> Option<f64>) -> RunResult {
    let mut short = arena.scenario.clone();
    short.duration = Duration::from_millis(10);
    let outcome = simulate(&short, 1, &mut SilentRecorder).unwrap();
    let track = |consumer: usize| ConsumerSeries {
        host: arena.scenario.vms[consumer].host.clone(),
        consumer: arena.scenario.vms[consumer].name.clone(),
        samples: (0..20)
            .map(|second| {
                let latency = ms(consumer, second);
                let iops = if latency.is_some() { 200.0 } else { 0.0 };
                let sample = SeriesSample {
                    device_latency_ms: latency,
                    latency_ms: latency.map(|ms| 2.0 * ms),
                    iops,
                    bytes_per_s: iops * 131_072.0,
                    outstanding: 4.0,
                    ..SeriesSample::default()
                };
                ((second + 1) as f64, sample)
            })
            .collect(),
    };
    RunResult { tracks: vec![track(0), track(1)], ..RunResult::of(outcome) }
}

fn close(one: f64, other: f64) -> bool {
    (one - other).abs() < 1e-9
}

#[test]
fn the_worst_consumer_is_judged_outside_of_the_first_seconds_and_those_after_a_change() {
    let arena = two_consumers();
    // 14 of 20 seconds are judged: neither the first three nor the three after the change.
    let run = run_of(&arena, |consumer, second| match (consumer, second) {
        (0, 0..3 | 10..13) => Some(50.0),
        (1, 5 | 15) => Some(11.0),
        _ => Some(5.0),
    });
    let figures = RunFigures::of(&arena, &run, &[]);
    assert!(close(figures.above, 2.0 / 14.0), "{figures:?}");
    assert_eq!(figures.above_after_changes, Some(1.0));
    assert!(close(figures.iops, 400.0) && close(figures.cost, 800.0), "{figures:?}");
    assert!(close(figures.latency, (12.0 * 5.0 + 2.0 * 11.0) / 14.0 / 1e3), "{figures:?}");
}

#[test]
fn a_second_in_which_nothing_completes_is_above_the_target() {
    let arena = two_consumers();
    let run = run_of(&arena, |consumer, second| (consumer != 1 || second != 6).then_some(5.0));
    assert!(close(RunFigures::of(&arena, &run, &[]).above, 1.0 / 14.0));
}

#[test]
fn a_change_is_over_when_latency_and_throughput_are_back() {
    let arena = two_consumers();
    let run = run_of(&arena, |_, second| Some(if (10..14).contains(&second) { 20.0 } else { 5.0 }));
    let settling = |best| RunFigures::of(&arena, &run, &[(0.0, 400.0), (10.0, best)]).settling;
    assert_eq!(settling(400.0), Some(4.0));
    // The throughput never comes back: the time to the end.
    assert_eq!(settling(500.0), Some(10.0));
}

#[test]
fn shares_of_equal_throughputs_are_wrong_by_their_difference() {
    let arena = two_consumers();
    let run = run_of(&arena, |_, _| Some(5.0));
    let shares: Vec<f64> = arena.scenario.vms.iter().map(|vm| vm.shares.as_f64()).collect();
    let error = (shares[0] / (shares[0] + shares[1]) - 0.5).abs();
    assert!(close(RunFigures::of(&arena, &run, &[]).share_error.unwrap(), error));
}

#[test]
fn a_throughput_that_swings_oscillates() {
    let arena = two_consumers();
    let mut run = run_of(&arena, |_, _| Some(5.0));
    assert_eq!(RunFigures::of(&arena, &run, &[]).oscillation, Some(0.0));
    for track in &mut run.tracks {
        for (end, sample) in &mut track.samples {
            sample.iops = if (*end as u32).is_multiple_of(2) { 300.0 } else { 100.0 };
        }
    }
    let swings = RunFigures::of(&arena, &run, &[]).oscillation.unwrap();
    assert!((0.9..1.1).contains(&swings), "changes of 200 around 200: {swings}");
}

fn run_with(above: f64, each: &[f64], cost: f64, latency: f64) -> RunFigures {
    RunFigures { above, iops: each.iter().sum(), cost, each: each.to_vec(), latency, ..RunFigures::default() }
}

fn oracle_of(settings: Vec<RunFigures>) -> ArenaOracle {
    let unregulated = settings[0].clone();
    let results =
        settings.into_iter().map(|figures| SettingResult { setting: StaticSetting::default(), figures });
    let front = StretchFront { from: 0.0, seconds: 20.0, settings: results.collect() };
    ArenaOracle { unregulated, alone: None, attainable: front.is_attainable(), stretches: vec![front] }
}

#[test]
fn a_law_is_compared_with_the_best_setting_that_keeps_the_target() {
    let free = run_with(1.0, &[100.0, 100.0], 200.0, 0.1);
    let kept = run_with(0.02, &[80.0, 40.0], 150.0, 0.01);
    let least = run_with(0.0, &[10.0, 10.0], 20.0, 0.005);
    let oracle = oracle_of(vec![free, kept, least]);
    let arena = two_consumers();
    let law = run_with(0.5, &[60.0, 36.0], 135.0, 0.02);
    let figures = ScenarioFigures::of(&arena, &oracle, &law);
    assert!(figures.attainable);
    // 0.8 in requests, 0.9 in cost.
    assert!(close(figures.throughput_vs_oracle.unwrap(), 0.8));
    assert!(close(figures.least_served.unwrap(), 0.75));
    assert!(close(figures.throughput_vs_unregulated.unwrap(), 0.48));
    assert!(close(figures.harm, 0.0), "the latency is a fifth");
}

#[test]
fn a_law_on_an_unattainable_target_is_compared_at_its_own_seconds_above() {
    let oracle = oracle_of(vec![
        run_with(1.0, &[100.0], 100.0, 0.1),
        run_with(0.5, &[50.0], 50.0, 0.095),
        run_with(0.3, &[30.0], 30.0, 0.095),
    ]);
    let against = |above: f64| {
        let figures = ScenarioFigures::of(&two_consumers(), &oracle, &run_with(above, &[30.0], 30.0, 0.095));
        assert!(!figures.attainable);
        (figures.throughput_vs_oracle.unwrap(), figures.harm)
    };
    assert!(close(against(1.0).0, 0.3) && close(against(0.6).0, 0.6) && close(against(0.1).0, 1.0));
    assert!(close(against(0.6).1, 0.7), "latency improved by 5 %");
}

#[test]
fn the_summary_has_ranks_and_the_worst_at_the_right_end() {
    let arena = two_consumers();
    let oracle = oracle_of(vec![run_with(0.0, &[100.0], 100.0, 0.01)]);
    let one = |part: u32| {
        let part = f64::from(part) / 100.0;
        ScenarioFigures::of(&arena, &oracle, &run_with(part, &[100.0 * part], 100.0 * part, 0.01))
    };
    let document = ArenaDocument::new(7, "window", (0..=100).map(one).collect());
    let spread = |name: &str| document.summary[name].unwrap();
    assert!(
        close(spread("seconds_above_target").median, 0.5) && close(spread("seconds_above_target").p95, 0.95)
    );
    assert!(
        close(spread("seconds_above_target").worst, 1.0) && close(spread("throughput_vs_oracle").worst, 0.0)
    );
    assert!(document.summary["settling_s"].is_none());
    assert_eq!(document.classes.keys().collect::<Vec<_>>(), ["capacity"]);
    assert!(close(document.worst(1)[0].throughput_vs_oracle.unwrap(), 0.0));
}

#[test]
fn laws_are_found_by_name() {
    assert_eq!(law_named("none"), Ok(None));
    assert!(LawKind::ALL.iter().all(|kind| law_named(kind.name()) == Ok(Some(*kind))));
    assert!(law_named("windows").unwrap_err().to_string().contains("`windows`; there are none, "));
}

fn written(hosts: &str) -> Result<ArenaScenario, NotJudged> {
    let text = format!(
        r#"
name = "written"
duration = "90s"
warmup = "5s"
[array.a]
rate = "100 IO/s"
changes = [{{ at = "30s", rate = "400 IO/s" }}]
{hosts}
[workload.w]
outstanding = 8
[vm.a]
host = "one"
workload = "w"
goal = "80ms"
goal_changes = [{{ at = "60s", goal = "20ms" }}]
[vm.b]
host = "one"
workload = "w"
"#
    );
    ArenaScenario::written(Scenario::parse("written", &text).unwrap(), 7)
}

#[test]
fn a_written_scenario_is_judged_by_its_target_its_goals_and_its_changes() {
    let arena = written("[host.one]\ntarget = \"50ms\"\nlaw = \"pid\"").unwrap();
    assert_eq!(arena.id, "written-7");
    assert!(arena.scenario.hosts[0].law.is_none(), "laws of the file are left out");
    let by_percentile = written("[host.one]\ntarget = \"50ms\"\nstatistic = \"p95\"").unwrap();
    assert_eq!([arena.statistic, by_percentile.statistic], [SignalStatistic::Mean, SignalStatistic::P95]);
    assert_eq!((arena.head_s, arena.changes.as_slice()), (5.0, &[30.0, 60.0][..]));
    let goals: Vec<f64> = [10.0, 60.0, 61.0].map(|end| arena.target_of("a", end).as_millis_f64()).to_vec();
    assert_eq!(goals, [80.0, 80.0, 20.0], "the goal of the interval that ends then");
    assert!((arena.target_of("b", 61.0).as_millis_f64() - 50.0).abs() < 1e-9);
    let parts = arena.each_stretch();
    let rates: Vec<f64> = parts
        .iter()
        .map(|part| match &part.scenario.arrays[0].device {
            DeviceConfig::Exponential(servers) => servers.rate.per_second(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(rates, [100.0, 400.0, 400.0]);
    assert!((parts[2].target_of("a", 5.0).as_millis_f64() - 20.0).abs() < 1e-9);
    assert!(parts.iter().all(|part| part.scenario.duration == Duration::from_secs(30)));
}

#[test]
fn a_scenario_without_one_target_is_refused() {
    assert!(matches!(written("[host.one]"), Err(NotJudged::NoTarget(_))));
    let two = "[host.one]\ntarget = \"50ms\"\n[host.two]\ntarget = \"60ms\"";
    assert!(matches!(written(two), Err(NotJudged::Targets(_))));
    let local = "target = \"50ms\"\nsignal = \"local\"";
    let two = format!("[host.one]\n{local}\nstatistic = \"p95\"\n[host.two]\n{local}");
    assert!(matches!(written(&two), Err(NotJudged::Statistics(_))));
}
