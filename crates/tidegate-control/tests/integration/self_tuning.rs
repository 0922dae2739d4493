//! The self-tuning law in the loop: bands and goals on a storage that saturates, and its rules for silence,
//! for who may decide, and for those who come and go.

use std::time::Duration;

use tidegate_control::{
    Band, Bands, Commands, ConsumerObservation, ControlLoop, ControllerGain, Decision, Figure6Learning,
    LawAction, LawConfig, LawConfigError, LearningOutcome, LineLearning, LoopConfig, LoopConfigError,
    MeanOutstanding, Observation, OperationTotals, OutputBound, PidConfig, PointDecision, RegulationMethod,
    SelfTuningConfig, SelfTuningVariant, SignalChoice, SignalState, Smoothing,
};
use tidegate_units::{Bytes, ConsumerName, Instant, Iops, Latency, ResourceName, Shares};

const fn ms(millis: u64) -> Latency {
    Latency::from_millis(millis)
}

fn name(name: &str) -> ConsumerName {
    ConsumerName::new(name).unwrap()
}

fn band(up_to: f64, ratios: &[(&str, f64)]) -> Band {
    let ratios = ratios.iter().map(|(workload, ratio)| (name(workload), *ratio)).collect();
    Band { up_to: Iops::new(up_to), ratios }
}

/// The paper's table 1.
fn table_1() -> Bands {
    Bands::new(vec![
        band(100.0, &[("w1", 0.5), ("w2", 0.5)]),
        band(400.0, &[("w1", 1.0)]),
        band(900.0, &[("w2", 1.0)]),
    ])
    .unwrap()
}

fn config(bands: Option<Bands>) -> LoopConfig {
    let law = LawConfig::SelfTuning(SelfTuningConfig::default());
    let config = LoopConfig::new(ResourceName::new("lustre").unwrap(), ms(5), law);
    LoopConfig { bands, set_point_ratio: 1.0, ..config }
}

/// A storage whose response time grows as a queue's: 1 ms, over what is left of the capacity. It completes
/// nothing beyond 98 % of it.
struct Storage {
    capacity: f64,
}

/// Somebody who wants so many requests per second.
#[derive(Clone, Copy)]
struct Load {
    name: &'static str,
    wants: f64,
    goal: Option<Latency>,
    protected: bool,
}

const fn load(name: &'static str, wants: f64, goal_ms: u64) -> Load {
    Load { name, wants, goal: Some(ms(goal_ms)), protected: false }
}

/// Two of the paper's workloads, with more to do than there is room for.
const PAPER: [Load; 2] = [load("w1", 2_000.0, 4), load("w2", 2_000.0, 5)];

struct Run {
    control: ControlLoop,
    now: Instant,
    commands: Commands,
    /// What each did in the last interval, in IO/s.
    did: Vec<f64>,
    /// At which mean response time.
    response_ms: f64,
}

impl Run {
    fn new(config: LoopConfig) -> Self {
        let control = ControlLoop::new(config).unwrap();
        let commands = Commands::default();
        Self { control, now: Instant::from_nanos(7), commands, did: Vec::new(), response_ms: 0.0 }
    }

    /// One interval of a second on a storage.
    fn interval(&mut self, storage: &Storage, loads: &[Load]) -> Decision {
        let rate = |load: &Load| {
            let command = self.commands.consumers.iter().find(|command| command.name.as_str() == load.name);
            command.and_then(|command| command.rate).map_or(f64::INFINITY, Iops::per_second)
        };
        let asked: Vec<(f64, bool)> =
            loads.iter().map(|load| (load.wants.min(rate(load)), load.wants > rate(load))).collect();
        let all: f64 = asked.iter().map(|(asked, _)| asked).sum();
        let fits = (0.98 * storage.capacity / all).min(1.0);
        self.did = asked.iter().map(|(asked, _)| asked * fits).collect();
        self.response_ms = 1.0 / (1.0 - fits * all / storage.capacity);
        let mean = Latency::from_millis_f64(self.response_ms);
        let consumers =
            loads.iter().zip(&self.did).zip(&asked).map(|((load, did), (_, held))| ConsumerObservation {
                goal: load.goal,
                protected: load.protected,
                short_of_tokens: if *held { ms(900) } else { Latency::ZERO },
                ..busy(load.name, did.round() as u64, mean)
            });
        self.step(consumers.collect())
    }

    fn step(&mut self, consumers: Vec<ConsumerObservation>) -> Decision {
        self.after(Duration::from_secs(1), consumers)
    }

    fn after(&mut self, elapsed: Duration, consumers: Vec<ConsumerObservation>) -> Decision {
        self.now = self.now + elapsed;
        let observation = Observation::new(self.control.config().resource.clone(), self.now, consumers);
        let (commands, decision) = self.control.step(self.now, &observation);
        self.commands = commands;
        decision
    }

    fn intervals(&mut self, storage: &Storage, loads: &[Load], count: usize) -> Decision {
        (0..count).map(|_| self.interval(storage, loads)).last().unwrap()
    }
}

fn busy(consumer: &str, count: u64, mean: Latency) -> ConsumerObservation {
    let reads = OperationTotals {
        count,
        bytes: Bytes::new(count.saturating_mul(4_096)),
        total_latency: Latency::from_nanos(mean.as_nanos().saturating_mul(count)),
        ..OperationTotals::default()
    };
    ConsumerObservation { reads, mean_outstanding: MeanOutstanding::new(2.0), ..quiet(consumer) }
}

fn quiet(consumer: &str) -> ConsumerObservation {
    ConsumerObservation::idle(name(consumer), Shares::DEFAULT, false)
}

fn waits(consumer: &str, age: Latency) -> ConsumerObservation {
    let reads = OperationTotals { in_flight: 1, oldest_in_flight: Some(age), ..OperationTotals::default() };
    ConsumerObservation { reads, ..quiet(consumer) }
}

fn point(decision: &Decision) -> &PointDecision {
    decision.point.as_ref().unwrap()
}

fn near(is: f64, wanted: f64, part: f64) -> bool {
    (is / wanted - 1.0).abs() < part
}

/// Figure 10: 500 IO/s at 4 ms, then a storage that does 700.
#[test]
fn bands_of_table_1_on_a_storage_whose_capacity_grows() {
    let mut run = Run::new(config(Some(table_1())));
    for (capacity, all) in [(666.7, 500.0), (933.3, 700.0), (666.7, 500.0), (200.0, 150.0)] {
        let storage = Storage { capacity };
        // Its curve is steeper than what the paper measured, where three are enough. The last is a fifth of a
        // server by its curve, 1 ms up to next to a limit of 200 IO/s, which is not what it was taken for:
        // that takes longer to find.
        run.intervals(&storage, &PAPER, if capacity > 300.0 { 10 } else { 20 });
        for _ in 0..20 {
            let decision = run.interval(&storage, &PAPER);
            assert!(near(run.response_ms, 4.0, 0.1), "{capacity}: {} {decision}", run.response_ms);
            let first: f64 = if all > 400.0 { 350.0 } else { all - 50.0 };
            assert!(near(run.did[0], first, 0.1) && near(run.did[1], all - first, 0.15), "{:?}", run.did);
            assert_eq!(point(&decision).decided_by, Some(name("w1")));
        }
    }
    assert!(run.intervals(&Storage { capacity: 666.7 }, &PAPER, 10).to_string().contains("band 2 at 2"));
}

#[test]
fn without_bands_it_goes_by_shares() {
    let mut run = Run::new(config(None));
    run.intervals(&Storage { capacity: 1_000.0 }, &PAPER, 15);
    assert!(near(run.did[0], 375.0, 0.1) && near(run.did[1], 375.0, 0.1), "{:?}", run.did);
}

#[test]
fn what_one_does_not_use_the_other_has_and_it_comes_back_at_once() {
    let storage = Storage { capacity: 666.7 };
    let resting = |wants| [load("w1", wants, 4), PAPER[1]];
    let mut run = Run::new(config(Some(table_1())));
    run.intervals(&storage, &PAPER, 10);
    // The goal is then w2's, or w1's, whose few requests are as slow.
    run.intervals(&storage, &resting(20.0), 15);
    assert!(run.did[1] > 0.9 * 480.0 && near(run.did[0], 20.0, 0.01), "{:?}", run.did);
    let entitled = run.commands.consumers[0].rate.unwrap().per_second();
    assert!(entitled > 0.9 * 350.0, "what it is entitled to waits for it: {entitled}");
    run.intervals(&storage, &PAPER, 12);
    assert!(near(run.did[0], 350.0, 0.1) && near(run.did[1], 150.0, 0.15), "{:?}", run.did);
    // Without lending it is left unused.
    let adaptive = LineLearning {
        variant: SelfTuningVariant { lend_unused: false, ..SelfTuningVariant::IMPROVED },
        ..LineLearning::default()
    };
    let law =
        SelfTuningConfig { regulation: RegulationMethod::Adaptive(adaptive), ..SelfTuningConfig::default() };
    let mut run = Run::new(LoopConfig { law: LawConfig::SelfTuning(law), ..config(Some(table_1())) });
    run.intervals(&storage, &PAPER, 10);
    run.intervals(&storage, &resting(20.0), 15);
    assert!(run.did[1] < 0.9 * 480.0, "{:?}", run.did);
}

#[test]
fn whose_part_is_in_higher_bands_only_holds_nobody_back_below() {
    let bands = || Bands::new(vec![band(300.0, &[("w1", 1.0)]), band(900.0, &[("w2", 1.0)])]).unwrap();
    let storage = Storage { capacity: 350.0 };
    // At 4 ms 262 IO/s; w2 would have 1.1 ms.
    let loads = [load("w1", 2_000.0, 4), Load { goal: Some(Latency::from_micros(1_100)), ..PAPER[1] }];
    let mut run = Run::new(config(Some(bands())));
    let decision = run.intervals(&storage, &loads, 20);
    assert!(near(run.response_ms, 4.0, 0.1), "{} {decision}", run.response_ms);
    let may: Vec<bool> = point(&decision).regulators.iter().map(|regulator| regulator.may_trigger).collect();
    assert_eq!(may, [true, false]);
    // Alone, it is what there is to go by.
    let alone = [load("w1", 0.0, 4), load("w2", 2_000.0, 3)];
    run.intervals(&storage, &alone, 20);
    assert!(near(run.response_ms, 3.0, 0.15), "{} {:?}", run.response_ms, run.did);
}

#[test]
fn the_goal_of_a_protected_one_holds_the_others_and_never_itself() {
    let database = Load { name: "db", wants: 300.0, goal: Some(ms(2)), protected: true };
    let mut run = Run::new(config(None));
    let decision = run.intervals(&Storage { capacity: 1_000.0 }, &[database, PAPER[1]], 20);
    assert!(near(run.did[0], 300.0, 0.01) && near(run.response_ms, 2.0, 0.15), "{:?} {decision}", run.did);
    assert_eq!((run.commands.consumers.len(), decision.throttled), (1, 1));
    assert_eq!(point(&decision).decided_by, Some(name("db")));
}

#[test]
fn a_goal_is_its_own_times_the_ratio_or_the_set_point() {
    let mut run = Run::new(LoopConfig { set_point_ratio: 0.8, ..config(None) });
    let own = ConsumerObservation { goal: Some(ms(10)), ..busy("w1", 100, ms(3)) };
    let decision = run.step(vec![own, busy("w2", 100, ms(3))]);
    let goals: Vec<Latency> = point(&decision).regulators.iter().map(|regulator| regulator.goal).collect();
    assert_eq!(goals, [ms(8), ms(4)]);
}

#[test]
fn the_lowest_operating_point_wins_and_commands_are_its_parts() {
    let overload = || vec![busy("w1", 200, ms(10)), busy("w2", 200, ms(20))];
    let halved = || vec![busy("w1", 100, ms(5)), busy("w2", 100, ms(10))];
    let mut run = Run::new(config(Some(table_1())));
    // 400 IO/s at 20 ms: 100 at 5, to which it takes two steps.
    assert_eq!(point(&run.step(overload())).operating_point, Iops::new(200.0));
    let decision = run.step(halved());
    // Of 100 each has half.
    let decided = point(&decision);
    assert!(near(decided.operating_point.per_second(), 100.0, 1e-9), "{decision}");
    assert_eq!(decided.decided_by, Some(name("w2")));
    assert_eq!((decided.applied, decision.action), (Iops::new(200.0), LawAction::Regulate));
    let rates: Vec<f64> =
        run.commands.consumers.iter().map(|command| command.rate.unwrap().per_second()).collect();
    assert!(rates.len() == 2 && rates.iter().all(|rate| near(*rate, 50.0, 1e-9)), "{rates:?}");
    assert!(
        run.commands.consumers.iter().all(|command| command.delay.is_none()) && run.commands.window.is_none()
    );
    let dry = LoopConfig { dry_run: true, ..config(Some(table_1())) };
    let mut run = Run::new(dry);
    let decision = run.step(overload());
    assert!(run.commands.consumers.iter().all(|command| command.rate.is_none()));
    assert_eq!(point(&decision).operating_point, Iops::new(200.0));
}

/// A component fails: nobody has six requests in an interval any more (Triage §4.2).
#[test]
fn one_decides_from_few_requests_only_while_nobody_has_enough() {
    let mut run = Run::new(config(None));
    run.step(vec![busy("w1", 200, ms(5)), busy("w2", 200, ms(5))]);
    let decision = run.step(vec![busy("w1", 2, ms(900)), busy("w2", 3, ms(900))]);
    let exempt: Vec<bool> = point(&decision).regulators.iter().map(|regulator| regulator.exempt).collect();
    assert_eq!((exempt, decision.action), (vec![false, true], LawAction::Regulate));
    assert!(point(&decision).operating_point < Iops::new(20.0), "{decision}");
    let decision = run.step(vec![busy("w1", 2, ms(900)), busy("w2", 30, ms(900))]);
    assert!(point(&decision).regulators.iter().all(|regulator| !regulator.exempt));
    assert_eq!(point(&decision).regulators[0].learnt, Some(LearningOutcome::TooFew));
    // Nothing completes at all: the oldest says how late it is.
    let decision = run.step(vec![waits("w1", ms(2_000)), waits("w2", ms(900))]);
    assert!(
        point(&decision).regulators[0].exempt
            && point(&decision).regulators[0].learnt != Some(LearningOutcome::TooFew)
    );
    assert_eq!(decision.action, LawAction::Regulate);
}

#[test]
fn silence_holds_idleness_lets_go_by_degrees_and_who_is_idle_has_no_say() {
    let held = || {
        let mut run = Run::new(config(None));
        run.step(vec![busy("w1", 200, ms(10)), busy("w2", 200, ms(20))]);
        let decision = run.step(vec![busy("w1", 100, ms(5)), busy("w2", 100, ms(10))]);
        assert!(near(point(&decision).operating_point.per_second(), 100.0, 1e-9), "{decision}");
        run
    };
    let mut run = held();
    let decision = run.step(vec![waits("w1", ms(3)), quiet("w2")]);
    assert_eq!(decision.action, LawAction::Hold);
    assert!(near(point(&decision).operating_point.per_second(), 100.0, 1e-9), "{decision}");
    let mut run = held();
    let decision = run.step(vec![quiet("w1"), quiet("w2")]);
    assert_eq!((decision.input, decision.action, decision.held), (SignalState::Idle, LawAction::Relax, 0));
    assert!(near(point(&decision).operating_point.per_second(), 100.0 * 2f64.sqrt(), 1e-9), "{decision}");
    for _ in 0..3_600 {
        run.step(vec![quiet("w1"), quiet("w2")]);
    }
    assert!(run.commands.consumers.iter().all(|command| command.rate > Some(Iops::new(1e8))));
    // The one that asked for less pauses, and what it asked for holds; after a half-life it has gone, and the
    // other decides.
    let mut run = held();
    let decision = run.step(vec![busy("w1", 200, ms(5)), quiet("w2")]);
    assert_eq!(point(&decision).decided_by, Some(name("w2")));
    run.step(vec![busy("w1", 200, ms(5)), quiet("w2")]);
    run.step(vec![busy("w1", 200, ms(5)), quiet("w2")]);
    let decision = run.step(vec![busy("w1", 200, ms(5)), quiet("w2")]);
    assert_eq!(point(&decision).decided_by, Some(name("w1")));
    assert!(point(&decision).operating_point > Iops::new(150.0), "{decision}");
}

#[test]
fn a_few_requests_in_every_other_interval_are_enough_in_the_end() {
    let mut run = Run::new(config(None));
    let mut said = 0;
    for _ in 0..6 {
        let decision = run.step(vec![busy("w1", 200, ms(5)), busy("w2", 2, ms(40))]);
        said += u32::from(point(&decision).regulators[1].measured.is_some());
        run.step(vec![busy("w1", 200, ms(5)), quiet("w2")]);
    }
    assert_eq!(said, 2, "of twelve requests six are enough, twice");
}

#[test]
fn who_is_released_and_never_served_is_late() {
    let mut run = Run::new(config(None));
    let starved = ConsumerObservation { oldest_released: Some(ms(2_000)), ..waits("w1", ms(1)) };
    let decision = run.step(vec![starved]);
    assert_eq!(decision.action, LawAction::Regulate, "{decision}");
}

#[test]
fn a_clock_that_stands_jumps_back_or_leaps_changes_nothing_or_little() {
    let loads = || vec![busy("w1", 200, ms(10)), busy("w2", 200, ms(20))];
    let mut run = Run::new(config(None));
    run.step(loads());
    let decision = run.after(Duration::ZERO, loads());
    assert_eq!((decision.input, decision.action), (SignalState::NoTime, LawAction::Hold));
    assert_eq!(point(&decision).operating_point, Iops::new(200.0));
    assert!(point(&decision).regulators.iter().all(|regulator| regulator.learnt.is_none()));
    run.now = Instant::ZERO;
    assert_eq!(run.after(Duration::ZERO, loads()).input, SignalState::NoTime);
    // A week later: four hundred requests in what counts as ten seconds.
    let decision = run.after(Duration::from_secs(604_800), loads());
    assert_eq!(decision.elapsed, Latency::from(Duration::from_secs(10)));
    assert!((Iops::new(10.0)..=Iops::new(200.0)).contains(&point(&decision).operating_point), "{decision}");
}

#[test]
fn at_the_least_operating_point_somebody_has_the_requests_that_a_decision_takes() {
    let mut run = Run::new(config(Some(table_1())));
    for _ in 0..30 {
        run.step(vec![busy("w1", 200, ms(60_000)), busy("w2", 200, ms(60_000))]);
    }
    let decision = run.step(vec![busy("w1", 6, ms(60_000)), busy("w2", 6, ms(60_000))]);
    // Each has half of band 0.
    assert_eq!(
        (point(&decision).operating_point, decision.bound),
        (Iops::new(12.0), Some(OutputBound::Least))
    );
    let rates: Vec<Option<Iops>> = run.commands.consumers.iter().map(|command| command.rate).collect();
    assert_eq!(rates, [Some(Iops::new(6.0)), Some(Iops::new(6.0))]);
    // Whoever has nothing of the first band keeps the floor.
    let bands = Bands::new(vec![band(100.0, &[("w1", 1.0)])]).unwrap();
    run.control.reconfigure(config(Some(bands))).unwrap();
    run.step(vec![busy("w1", 6, ms(60_000)), busy("w2", 6, ms(60_000))]);
    assert_eq!(run.commands.consumers[1].rate, Some(Iops::new(2.0)));
}

#[test]
fn a_change_of_the_set_up_keeps_model_and_operating_point() {
    let storage = Storage { capacity: 666.7 };
    let mut run = Run::new(config(Some(table_1())));
    run.intervals(&storage, &PAPER, 15);
    run.control.reconfigure(config(None)).unwrap();
    let decision = run.interval(&storage, &PAPER);
    assert!(near(point(&decision).operating_point.per_second(), 500.0, 0.1), "{decision}");
    assert!(
        point(&decision)
            .regulators
            .iter()
            .all(|regulator| regulator.learnt == Some(LearningOutcome::Updated))
    );
    assert!(near(run.commands.consumers[0].rate.unwrap().per_second(), 250.0, 0.1));
    let fixed = RegulationMethod::Fixed(ControllerGain::new(10.0).unwrap());
    let law = LawConfig::SelfTuning(SelfTuningConfig { regulation: fixed, ..SelfTuningConfig::default() });
    run.control.reconfigure(LoopConfig { law, ..config(None) }).unwrap();
    let decision = run.intervals(&storage, &PAPER, 30);
    assert!(
        near(run.response_ms, 4.0, 0.1)
            && point(&decision).regulators[0].learnt == Some(LearningOutcome::Fixed)
    );
}

#[test]
fn what_the_law_does_not_know_is_refused() {
    let refused = |change: fn(&mut LoopConfig)| {
        let mut config = config(Some(table_1()));
        change(&mut config);
        ControlLoop::new(config).unwrap_err()
    };
    assert_eq!(refused(|c| c.normalise = true), LoopConfigError::GoalsAreTakenAsTheyAre);
    assert_eq!(refused(|c| c.smoothing = Smoothing::default()), LoopConfigError::GoalsAreTakenAsTheyAre);
    assert_eq!(refused(|c| c.signal = SignalChoice::Reads), LoopConfigError::GoalsAreTakenAsTheyAre);
    assert_eq!(
        refused(|c| c.law = LawConfig::Pid(PidConfig::default())),
        LoopConfigError::BandsNeedSelfTuning
    );
    let law = LawConfig::SelfTuning(SelfTuningConfig { least_requests: 0, ..SelfTuningConfig::default() });
    let mut config = config(None);
    config.law = law;
    assert!(matches!(ControlLoop::new(config), Err(LoopConfigError::Law(LawConfigError::SelfTuning(_)))));
}

/// Triage §4.2, to the letter: one controller at random, in each interval, concludes from however few
/// requests. The others change nothing. Silence and unfinished requests say nothing.
#[test]
fn by_the_papers_words_one_at_random_decides_by_few_requests_and_the_others_never() {
    let figure6 = Figure6Learning { forgetting: 1.0, reset_change: 0.3 };
    let law = SelfTuningConfig {
        regulation: RegulationMethod::Literal(figure6),
        least: Iops::new(0.001),
        greatest: Iops::new(500.0),
        ..SelfTuningConfig::default()
    };
    let mut run = Run::new(LoopConfig { law: LawConfig::SelfTuning(law), ..config(None) });
    let names = ["w1", "w2", "w3"];
    let mut drawn = [0; 3];
    for _ in 0..60 {
        let decision = run.step(names.map(|name| busy(name, 3, ms(4))).to_vec());
        let regulators = &point(&decision).regulators;
        let exempt: Vec<usize> = (0..3).filter(|at| regulators[*at].exempt).collect();
        assert_eq!(exempt.len(), 1, "{decision:?}");
        drawn[exempt[0]] += 1;
        for (at, regulator) in regulators.iter().enumerate() {
            assert_eq!(regulator.measured.is_some(), at == exempt[0], "{regulator:?}");
        }
    }
    assert!(drawn.iter().all(|count| (8..=35).contains(count)), "{drawn:?}");
    // Silence changes nothing, however long it is.
    let before = point(&run.step(names.map(|name| busy(name, 50, ms(4))).to_vec())).operating_point;
    for _ in 0..100 {
        let quiet = names.map(|name| busy(name, 0, Latency::ZERO)).to_vec();
        assert_eq!(point(&run.step(quiet)).operating_point, before);
    }
}
