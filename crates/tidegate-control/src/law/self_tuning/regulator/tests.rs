use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::*;
use crate::estimate::rls::Rls;
use crate::law::integral::gain::ControllerGain;
use crate::law::self_tuning::config::SelfTuningVariant;
use crate::law::self_tuning::figure6::Figure6Learning;

const GOAL: Latency = Latency::from_millis(5);

fn bounds() -> (Iops, Iops) {
    (Iops::new(6.0), SelfTuningConfig::UNBOUNDED)
}

fn of(requests: u64, mean: Latency) -> IntervalMeasurement {
    IntervalMeasurement {
        requests,
        total: Latency::from_nanos(mean.as_nanos().saturating_mul(requests)),
        over: Latency::from_millis(1_000),
        held: AtStorage::default(),
    }
}

fn literal(greatest: f64) -> SelfTuningConfig {
    SelfTuningConfig {
        regulation: RegulationMethod::Literal(Figure6Learning { forgetting: 1.0, reset_change: 0.3 }),
        greatest: Iops::new(greatest),
        ..SelfTuningConfig::default()
    }
}

fn with(variant: SelfTuningVariant) -> SelfTuningConfig {
    let adaptive = LineLearning { variant, ..LineLearning::default() };
    SelfTuningConfig { regulation: RegulationMethod::Adaptive(adaptive), ..SelfTuningConfig::default() }
}

/// A storage as in figure 3, `y(k) = a·y(k−1) + b·u(k)`, which does no more than `capacity`.
struct Storage {
    a: f64,
    b: f64,
    capacity: f64,
    y: f64,
}

impl Storage {
    const fn new(a: f64, b: f64) -> Self {
        Self { a, b, capacity: 2_000.0, y: 0.0 }
    }

    /// Returns the throughput in the interval, and its response time in ms.
    fn interval(&mut self, u: Iops) -> (Iops, f64) {
        let done = u.per_second().min(self.capacity);
        self.y = self.a * self.y + self.b * done;
        (Iops::new(done), self.y)
    }
}

/// Response times in ms, interval by interval, from `start` on.
fn run(
    regulator: &mut SelfTuning,
    config: &SelfTuningConfig,
    storage: &mut Storage,
    goal: Latency,
    start: Iops,
    intervals: usize,
) -> Vec<f64> {
    let mut u = start;
    (0..intervals)
        .map(|_| {
            let (done, y) = storage.interval(u);
            let measured = of(100, Latency::from_millis_f64(y));
            let step = regulator.step(config, goal, measured, done, (config.least, config.greatest), false);
            u = step.wish.unwrap();
            y
        })
        .collect()
}

/// The paper's two models of figure 3, thirty-fold apart.
const fn cache() -> Storage {
    Storage::new(0.045_54, 0.003_827)
}

const fn disk() -> Storage {
    Storage::new(0.001_109, 0.137_7)
}

#[test]
fn without_having_been_told_it_settles_on_the_papers_disk_and_on_its_cache() {
    for mut storage in [cache(), disk()] {
        let config = SelfTuningConfig::default();
        let mut regulator = SelfTuning::default();
        let response = run(&mut regulator, &config, &mut storage, GOAL, Iops::new(2_000.0), 20);
        for (at, y) in response.iter().enumerate().skip(3) {
            assert!((y / 5.0 - 1.0).abs() < 0.05, "{at}: {response:?}");
        }
    }
}

/// Figure 8: the data moves from disk to cache, and the goal is another one.
#[test]
fn it_follows_from_disk_to_cache_and_back_within_three_intervals() {
    for variant in
        [SelfTuningVariant::IMPROVED, SelfTuningVariant { burst: true, ..SelfTuningVariant::IMPROVED }]
    {
        let config = with(variant);
        let mut regulator = SelfTuning::default();
        run(&mut regulator, &config, &mut disk(), Latency::from_millis(20), Iops::new(100.0), 40);
        let before = regulator.wish().unwrap();
        let cached = run(&mut regulator, &config, &mut cache(), GOAL, before, 20);
        assert!(cached[4..].iter().all(|y| (y / 5.0 - 1.0).abs() < 0.05), "{variant:?} {cached:?}");
        let before = regulator.wish().unwrap();
        let back = run(&mut regulator, &config, &mut disk(), Latency::from_millis(20), before, 20);
        assert!(back[4..].iter().all(|y| (y / 20.0 - 1.0).abs() < 0.05), "{variant:?} {back:?}");
    }
}

/// Both models go through the operating point at rest. The curve's slope is that between a fifty-fold
/// overload and the goal, and is far too flat here.
#[test]
fn a_curve_that_is_right_only_at_rest_amplifies_no_deviation() {
    for step in 0..1_000 {
        let (b, goal_ms) = (0.95 + 0.000_05 * f64::from(step), 37.0);
        let mut storage = Storage::new(0.000_4, b);
        let (goal, start) = (Latency::from_millis_f64(goal_ms), Iops::new(2_000.0));
        let config = SelfTuningConfig::default();
        let response = run(&mut SelfTuning::default(), &config, &mut storage, goal, start, 100);
        for (at, y) in response.iter().enumerate().skip(8) {
            assert!((y / goal_ms - 1.0).abs() < 0.01, "{b}, {at}: {response:?}");
        }
    }
}

/// Figures 4 and 5: what is right for the disk is thirty times too slow for the cache, the other way round it
/// swings.
#[test]
fn a_fixed_gain_is_right_for_one_of_them_only() {
    let settles = |gain: f64, mut storage: Storage| {
        let regulation = RegulationMethod::Fixed(ControllerGain::new(gain).unwrap());
        let config =
            SelfTuningConfig { regulation, greatest: Iops::new(2_000.0), ..SelfTuningConfig::default() };
        let response = run(&mut SelfTuning::default(), &config, &mut storage, GOAL, Iops::new(20.0), 60);
        response.iter().rposition(|y| (y / 5.0 - 1.0).abs() > 0.1).map_or(0, |last| last + 1)
    };
    assert!(settles(7.2, disk()) <= 5 && settles(213.0, cache()) <= 5);
    assert!(settles(7.2, cache()) >= 30, "{}", settles(7.2, cache()));
    assert_eq!(settles(213.0, disk()), 60, "unstable: beyond 14.5");
}

#[test]
fn one_step_is_equation_7() {
    let config = with(SelfTuningVariant { two_shapes: false, ..SelfTuningVariant::IMPROVED });
    let mut regulator = SelfTuning::default();
    let first =
        regulator.step(&config, GOAL, of(100, Latency::from_millis(10)), Iops::new(400.0), bounds(), false);
    // 10 ms at 400 IO/s: r1 = 0.025 ms per IO/s, and 5 ms at 200.
    assert_eq!(first.learnt, LearningOutcome::First);
    assert_eq!(first.model, Some(LinearModel { s1: 0.0, r1: 0.025, r2: 0.0 }));
    assert!((first.wish.unwrap().per_second() - 200.0).abs() < 1e-9);
    let second =
        regulator.step(&config, GOAL, of(100, Latency::from_millis(6)), Iops::new(200.0), bounds(), false);
    let LinearModel { s1, r1, r2 } = second.model.unwrap();
    assert_eq!(second.learnt, LearningOutcome::Updated);
    assert!((second.wish.unwrap().per_second() - (5.0 - s1 * 6.0 - r2 * 200.0) / r1).abs() < 1e-9);
    // Of the millisecond that there was more than predicted, it has understood the greater part.
    assert!((5.5..6.0).contains(&(s1 * 10.0 + r1 * 200.0 + r2 * 400.0)), "{second:?}");
}

#[test]
fn with_five_requests_nothing_is_changed_unless_exempt_or_until_there_are_six() {
    let config = SelfTuningConfig::default();
    let ready = || {
        let mut regulator = SelfTuning::default();
        regulator.step(&config, GOAL, of(6, Latency::from_millis(10)), Iops::new(400.0), bounds(), false);
        regulator
    };
    let slow = of(5, Latency::from_millis(90));
    let mut regulator = ready();
    let before = (regulator.model(), regulator.wish());
    let few = regulator.step(&config, GOAL, slow, Iops::new(200.0), bounds(), false);
    assert_eq!((few.learnt, few.measured, few.bound), (LearningOutcome::TooFew, None, None));
    assert_eq!((few.model, few.wish), before);
    // One more, and what was gathered counts.
    let enough =
        regulator.step(&config, GOAL, of(1, Latency::from_millis(30)), Iops::new(200.0), bounds(), false);
    assert_eq!((enough.learnt, enough.measured), (LearningOutcome::Updated, Some(Latency::from_millis(80))));
    let exempt = ready().step(&config, GOAL, slow, Iops::new(200.0), bounds(), true);
    assert_eq!(exempt.measured, Some(Latency::from_millis(90)));
    // Of the paper's words nothing is gathered.
    let config = literal(1_000.0);
    let mut regulator = SelfTuning::default();
    for _ in 0..100 {
        let few = regulator.step(&config, GOAL, slow, Iops::new(200.0), bounds(), false);
        assert_eq!((few.learnt, few.wish), (LearningOutcome::TooFew, None));
    }
    // Nor does nothing say anything, to whomever.
    assert_eq!(
        regulator.step(&config, GOAL, of(0, GOAL), Iops::ZERO, bounds(), true).learnt,
        LearningOutcome::TooFew
    );
}

#[test]
fn a_reset_lets_everybody_go_for_an_interval_where_it_is_to() {
    for burst in [true, false] {
        let variant = SelfTuningVariant { burst, ..SelfTuningVariant::IMPROVED };
        let config = SelfTuningConfig { greatest: Iops::new(3_000.0), ..with(variant) };
        let mut regulator = SelfTuning::default();
        run(&mut regulator, &config, &mut disk(), GOAL, Iops::new(36.0), 20);
        let step = regulator.step(
            &config,
            GOAL,
            of(100, Latency::from_millis_f64(0.15)),
            Iops::new(36.0),
            (config.least, config.greatest),
            false,
        );
        assert_eq!(step.learnt, LearningOutcome::Reset, "{step:?}");
        let expected = if burst { 3_000.0 } else { 5.0 / 0.15 * 36.0 };
        assert!((step.wish.unwrap().per_second() - expected).abs() < 1.0, "{step:?}");
    }
}

#[test]
fn by_its_own_size_a_parameter_near_nothing_resets_the_model_again_and_again() {
    let resets = |compare_predictions: bool| {
        let config = with(SelfTuningVariant { compare_predictions, ..SelfTuningVariant::IMPROVED });
        let (mut regulator, mut storage, mut u) = (SelfTuning::default(), disk(), Iops::new(40.0));
        let mut random = Pcg64Mcg::seed_from_u64(5);
        let mut count = 0;
        for _ in 0..200 {
            let (done, y) = storage.interval(u);
            let seen = Latency::from_millis_f64(y * random.random_range(0.95..1.05));
            let step = regulator.step(&config, GOAL, of(50, seen), done, bounds(), false);
            count += u32::from(step.learnt == LearningOutcome::Reset);
            u = step.wish.unwrap();
        }
        count
    };
    assert!(resets(true) == 0 && resets(false) > 20, "{} {}", resets(true), resets(false));
}

#[test]
fn an_impossible_model_is_discarded_and_when_nothing_else_comes_the_old_one_is() {
    // Nothing else resets it.
    let variant = SelfTuningVariant { two_shapes: false, ..SelfTuningVariant::IMPROVED };
    let regulation =
        RegulationMethod::Adaptive(LineLearning { reset_change: 1e9, variant, ..LineLearning::default() });
    let config = SelfTuningConfig { regulation, ..SelfTuningConfig::default() };
    // It predicts half as much again as there is, and r₁ and r₂ are uncertain alike: less of both is |r₂| ≥
    // r₁.
    let rls = Rls::new([1.5, 0.1, -0.09], [1.0; 3]);
    let fitted = FittedModel { rls, ms: 5.0, iops: 100.0, age: 10, rejected: 0 };
    let mut regulator =
        SelfTuning { fitted: Some(fitted), before: Some((5.0, 100.0)), ..SelfTuning::default() };
    let model = regulator.model();
    for interval in 1..=MOST_REJECTED {
        let step = regulator.step(&config, GOAL, of(50, GOAL), Iops::new(100.0), bounds(), false);
        if interval < MOST_REJECTED {
            assert_eq!((step.learnt, step.model), (LearningOutcome::Rejected, model));
        } else {
            assert_eq!(
                (step.learnt, step.model),
                (LearningOutcome::Reset, Some(LinearModel { s1: 0.0, r1: 0.05, r2: 0.0 }))
            );
        }
    }
}

#[test]
fn an_hour_at_a_bound_winds_nothing_up() {
    for variant in
        [SelfTuningVariant::IMPROVED, SelfTuningVariant { burst: true, ..SelfTuningVariant::IMPROVED }]
    {
        let config = SelfTuningConfig { greatest: Iops::new(500.0), ..with(variant) };
        let mut regulator = SelfTuning::default();
        // Whatever it asks for: too slow for an hour, and then too quick.
        let mut slow = Storage::new(0.0, 5.0);
        let response = run(&mut regulator, &config, &mut slow, GOAL, Iops::new(500.0), 3_600);
        assert!(regulator.wish() == Some(config.least) && response.last() > Some(&5.0));
        let settled = run(&mut regulator, &config, &mut disk(), GOAL, config.least, 10);
        assert!(settled[5..].iter().all(|y| (y / 5.0 - 1.0).abs() < 0.05), "{settled:?}");
        let mut quick = Storage::new(0.0, 0.001);
        run(&mut regulator, &config, &mut quick, GOAL, config.least, 3_600);
        assert_eq!(regulator.wish(), Some(config.greatest));
        let settled = run(&mut regulator, &config, &mut disk(), GOAL, config.greatest, 10);
        assert!(settled[5..].iter().all(|y| (y / 5.0 - 1.0).abs() < 0.05), "{settled:?}");
    }
}

#[test]
fn no_samples_one_sample_equal_samples_no_time_and_minutes() {
    let config = SelfTuningConfig::default();
    let step = |regulator: &mut SelfTuning, requests, mean| {
        regulator.step(&config, GOAL, of(requests, mean), Iops::new(100.0), bounds(), true)
    };
    let mut regulator = SelfTuning::default();
    assert_eq!(step(&mut regulator, 0, GOAL).wish, None);
    assert_eq!(step(&mut regulator, 1, GOAL).wish, Some(Iops::new(100.0)));
    for _ in 0..1_000 {
        step(&mut regulator, 50, GOAL);
    }
    assert_eq!(step(&mut regulator, 50, GOAL).wish, Some(Iops::new(100.0)));
    // A storage that takes no time needs no throttling.
    for _ in 0..10 {
        assert!(step(&mut regulator, 50, Latency::ZERO).wish > Some(Iops::new(1e6)));
    }
    for _ in 0..10 {
        assert_eq!(step(&mut regulator, 50, Latency::from_secs_f64(300.0)).bound, Some(OutputBound::Least));
    }
    assert_eq!(step(&mut regulator, 6, Latency::MAX).bound, Some(OutputBound::Least));
    // And it is as good as new.
    let response = run(&mut regulator, &config, &mut cache(), GOAL, config.least, 20);
    assert!(response[8..].iter().all(|y| (y / 5.0 - 1.0).abs() < 0.05), "{response:?}");
}

/// By a variant, what it asks for after a disk of which it knows the curve has been measured at 160 IO/s for
/// a while, and then this.
fn asks_after(variant: SelfTuningVariant, goal: Latency, ms: f64, done: f64) -> f64 {
    let config = with(variant);
    let mut regulator = SelfTuning::default();
    let mut step = |goal, ms: f64, done: f64| {
        let measured = of(done as u64, Latency::from_millis_f64(ms));
        regulator.step(&config, goal, measured, Iops::new(done), bounds(), false).wish.unwrap().per_second()
    };
    for turn in 0..20 {
        let done = if turn % 2 == 0 { 155.0 } else { 165.0 };
        step(Latency::from_millis(20), 1_000.0 / (210.0 - done), done);
    }
    step(goal, ms, done)
}

#[test]
fn a_goal_that_cannot_be_kept_halves_what_is_done_and_what_has_piled_up_is_drained() {
    let direct = SelfTuningVariant { in_steps: false, ..SelfTuningVariant::IMPROVED };
    let short = Latency::from_millis(2);
    // 20 ms at 160 IO/s of a server that takes 5 ms by itself: no rate leads to 2.
    assert!((asks_after(direct, short, 20.0, 160.0) - 6.0).abs() < 1e-9);
    assert!((asks_after(SelfTuningVariant::IMPROVED, short, 20.0, 160.0) - 80.0).abs() < 1e-9);
    // 750 ms too long, of an interval of a second: what has piled up drains in it with a quarter of what is
    // done.
    let drains = asks_after(SelfTuningVariant::IMPROVED, short, 752.0, 200.0);
    assert!((drains - 50.0).abs() < 1e-9, "{drains}");
}

#[test]
fn far_below_the_goal_for_long_it_rises_up_to_what_the_storage_is_known_to_do() {
    let how = (0.7, 0.3);
    let mut regulator = SelfTuning::default();
    for done in [150.0, 180.0, 150.0, 180.0] {
        let point = (1_000.0 / (210.0 - done), done, 1_000);
        regulator.hyperbola = Some(Hyperbola::after(regulator.hyperbola, how, point, 20.0).1);
    }
    let rises = |below, u: f64| SelfTuning { below, ..regulator.clone() }.at_least(u, (5.0, 20.0, 1_000.0));
    assert!((rises(1, 100.0) - 100.0).abs() < 1e-9 && (rises(2, 100.0) - 100.0).abs() < 1e-9);
    assert!((rises(3, 100.0) - 150.0).abs() < 1e-9);
    // Nine tenths of 210, and never less than what is done.
    assert!((rises(3, 160.0) / 189.0 - 1.0).abs() < 0.05, "{}", rises(3, 160.0));
    assert!((rises(3, 205.0) - 205.0).abs() < 1e-9);
}

#[test]
fn far_below_the_goal_nothing_falls_and_climbs_are_bounded() {
    let goal = Latency::from_millis(20);
    // It has become ten times as fast.
    let climbs = asks_after(SelfTuningVariant::IMPROVED, goal, 2.0, 160.0);
    assert!((160.0..=1_600.0 + 1e-9).contains(&climbs), "{climbs}");
    // Near the goal a step is no greater than the room that there is, twice over.
    let near = asks_after(SelfTuningVariant::IMPROVED, goal, 19.0, 160.0);
    assert!((80.0..=160.0 * (20.0_f64 / 19.0).powi(2) + 1e-9).contains(&near), "{near}");
}

#[test]
fn who_is_idle_asks_for_nothing_and_remembers_the_storage() {
    let config = SelfTuningConfig::default();
    let mut regulator = SelfTuning::default();
    run(&mut regulator, &config, &mut disk(), GOAL, Iops::new(40.0), 10);
    let model = regulator.model();
    regulator.idle();
    assert_eq!((regulator.wish(), regulator.model()), (None, model));
    let back = regulator.step(&config, GOAL, of(50, GOAL), Iops::new(36.3), bounds(), false);
    assert!((back.wish.unwrap().per_second() / 36.3 - 1.0).abs() < 0.02, "{back:?}");
}

#[test]
fn what_cannot_be_is_refused() {
    let refused = |config: SelfTuningConfig| config.validate().unwrap_err().to_string();
    let default = SelfTuningConfig::default();
    let adaptive = |forgetting, reset_change, variant| SelfTuningConfig {
        regulation: RegulationMethod::Adaptive(LineLearning { forgetting, reset_change, variant }),
        ..default
    };
    let improved = SelfTuningVariant::IMPROVED;
    let cases = [
        (adaptive(0.0, 0.3, improved), "forgetting factor must be above 0"),
        (adaptive(1.01, 0.3, improved), "at most 1, it is 1.01"),
        (adaptive(f64::NAN, 0.3, improved), "forgetting factor"),
        (adaptive(0.9, 0.0, improved), "the change that resets"),
        (adaptive(0.9, 0.3, SelfTuningVariant::LITERAL), "needs a greatest operating point"),
        (SelfTuningConfig { least_requests: 0, ..default }, "at least one request"),
        (SelfTuningConfig { floor: Iops::ZERO, ..default }, "floor rate"),
        (SelfTuningConfig { least: Iops::ZERO, ..default }, "must be above zero and in order"),
        (SelfTuningConfig { greatest: Iops::new(5.0), ..default }, "they are 6.0 IO/s and 5.0 IO/s"),
    ];
    for (config, said) in cases {
        assert!(refused(config).contains(said), "{said}: {}", refused(config));
    }
    assert_eq!(default.validate(), Ok(()));
    assert_eq!(literal(900.0).validate(), Ok(()));
}

fn any_variant() -> impl Strategy<Value = SelfTuningVariant> {
    any::<[bool; 7]>().prop_map(
        |[applied_input, lend_unused, gather, compare_predictions, burst, two_shapes, in_steps]| {
            SelfTuningVariant {
                applied_input,
                lend_unused,
                gather,
                compare_predictions,
                burst,
                two_shapes,
                in_steps,
            }
        },
    )
}

fn any_regulation() -> impl Strategy<Value = RegulationMethod> {
    let adaptive = (0.1..=1.0, 0.01..2.0, any_variant()).prop_map(|(forgetting, reset_change, variant)| {
        RegulationMethod::Adaptive(LineLearning { forgetting, reset_change, variant })
    });
    let gain = prop_oneof![1e-3..1e3, Just(f64::MAX), Just(f64::MIN_POSITIVE)];
    let literal = (0.1..=1.0, 0.01..2.0).prop_map(|(forgetting, reset_change)| {
        RegulationMethod::Literal(Figure6Learning { forgetting, reset_change })
    });
    prop_oneof![3 => adaptive, 1 => literal, 1
        => gain.prop_map(|gain| RegulationMethod::Fixed(ControllerGain::new(gain).unwrap()))]
}

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), 1u64..10, 0u64..100_000_000, any::<u64>(), Just(u64::MAX)]
}

proptest! {
    #[test]
    fn always_within_its_bounds_with_a_possible_model(
        regulation in any_regulation(),
        steps in prop::collection::vec(
            (number(), number(), number(), prop_oneof![0.0..1e4, any::<f64>()], any::<bool>()), 1..60
        ),
    ) {
        let config = SelfTuningConfig { regulation, greatest: Iops::new(1e5), ..SelfTuningConfig::default() };
        let mut regulator = SelfTuning::default();
        for (goal, requests, total, in_force, exempt) in steps {
            let measured = IntervalMeasurement { requests, total: Latency::from_nanos(total),
                over: Latency::from_millis(1_000), held: AtStorage::default() };
            let goal = Latency::from_nanos(goal.max(1));
            let step = regulator.step(&config, goal, measured, Iops::new(in_force),
                (config.least, config.greatest), exempt);
            prop_assert!(step.wish.is_none_or(|wish| config.least <= wish && wish <= config.greatest));
            prop_assert_eq!(step.learnt == LearningOutcome::TooFew, step.measured.is_none());
            if let Some(LinearModel { s1, r1, r2 }) = step.model {
                let proven = config.is_literal() || r2.abs() < r1;
                prop_assert!(r1 > 0.0 && proven && s1.is_finite() && r1.is_finite(), "{:?}", step);
            }
        }
    }

    /// Any storage of figure 3's kind: within five intervals, one more for each time that the overload is to
    /// be halved, and for good.
    #[test]
    fn any_first_order_storage_is_settled(a in 0.0..0.3, b in 0.001..1.0, goal_ms in 1.0..50.0) {
        let config = SelfTuningConfig::default();
        let mut storage = Storage::new(a, b);
        prop_assume!(goal_ms * (1.0 - a) / b > 20.0 && goal_ms * (1.0 - a) / b < 1_500.0);
        let goal = Latency::from_millis_f64(goal_ms);
        let response = run(&mut SelfTuning::default(), &config, &mut storage, goal, Iops::new(2_000.0), 60);
        let halved = (2_000.0 * b / (goal_ms * (1.0 - a))).log2().max(0.0).ceil();
        for (at, y) in response.iter().enumerate().skip(6 + halved as usize) {
            prop_assert!((y / goal_ms - 1.0).abs() < 0.1, "{} {:?}", at, response);
        }
    }
}
