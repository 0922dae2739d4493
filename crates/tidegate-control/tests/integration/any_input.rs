//! The loop under any sequence of operations: whatever is observed, however the clock runs, whoever comes and
//! goes.

use std::time::Duration;

use proptest::prelude::*;
use tidegate_control::{
    AutoConfig, Band, Bands, BetaScale, Commands, ConsumerObservation, Contract, ContractStatistic,
    ControlLoop, ControllerGain, Decision, Figure6Learning, GainTuning, HeardReport, HostReport,
    IntegralConfig, IntegralVariant, KneeConfig, LawAction, LawConfig, LawOutput, LineLearning, LoadReport,
    LoopConfig, MeanOutstanding, Observation, OperationTotals, PidConfig, PidVariant, PointClaim,
    PointReport, PointRest, PointTurn, PointWish, RegulationMethod, SelfTuningConfig, SelfTuningVariant,
    SharesOf, SignalRequests, SignalState, Smoothing, WindowConfig, combine,
};
use tidegate_units::{Bytes, ConsumerName, HostName, Instant, Iops, Latency, ResourceName, Shares, Window};

#[derive(Debug, Clone)]
enum Operation {
    Step { forward: u64, consumers: Vec<ConsumerObservation>, peers: Option<Vec<HeardReport>> },
    JumpBack(u64),
    Reconfigure(Box<LoopConfig>),
}

/// Anything, with a preference for what is plausible and for the edges.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), Just(1), 0u64..100, 0u64..2_000_000_000, any::<u64>(), Just(u64::MAX)]
}

fn operations() -> impl Strategy<Value = OperationTotals> {
    let oldest = proptest::option::of(number().prop_map(Latency::from_nanos));
    (number(), number(), number(), 0u32..3, oldest).prop_map(|(count, bytes, total, in_flight, oldest)| {
        OperationTotals {
            count,
            bytes: Bytes::new(bytes),
            total_latency: Latency::from_nanos(total),
            in_flight,
            // Not only together with requests in flight: a sensor may be wrong.
            oldest_in_flight: oldest,
        }
    })
}

fn quiet() -> impl Strategy<Value = OperationTotals> {
    prop_oneof![
        operations(),
        Just(OperationTotals::default()),
        operations().prop_map(|operations| OperationTotals { count: 0, ..operations })
    ]
}

prop_compose! {
    fn contract()(
        iops in prop_oneof![0.1..1e4, Just(f64::INFINITY), Just(f64::MIN_POSITIVE)],
        response_time in number(),
        part in 0.0..=1.0,
    ) -> Contract {
        let response_time = Latency::from_nanos(response_time.max(1));
        let expected = response_time.scale(part).max(Latency::from_nanos(1)).min(response_time);
        Contract::new(Iops::new(iops), response_time, expected).unwrap()
    }
}

prop_compose! {
    fn consumer()(
        name in 0u32..20,
        shares in prop_oneof![Just(1), 1u32..=1_000_000, Just(1_000_000)],
        reservation in proptest::option::of(prop_oneof![Just(0.0), 0.1..1e4, any::<f64>()]),
        protected: bool,
        reads in quiet(),
        writes in quiet(),
        outstanding in prop_oneof![Just(0.0), 0.0..100.0, any::<f64>()],
        queued in prop_oneof![Just(0), any::<u32>()],
        contract in proptest::option::of(contract()),
        short in number(),
        scheduler_wait in number(),
        (release_to_completion, oldest_released) in
            (proptest::option::of(number()), proptest::option::of(number())),
        goal in proptest::option::of(number()),
    ) -> ConsumerObservation {
        ConsumerObservation {
            name: ConsumerName::new(&format!("consumer-{name}")).unwrap(),
            shares: Shares::new(shares).unwrap(),
            reservation: reservation.map(Iops::new),
            protected,
            reads,
            writes,
            mean_outstanding: MeanOutstanding::new(outstanding),
            queued,
            contract,
            goal: goal.map(Latency::from_nanos),
            short_of_tokens: Latency::from_nanos(short),
            late: u64::from(queued) * u64::from(contract.is_some()),
            scheduler_wait: Latency::from_nanos(scheduler_wait),
            release_to_completion: release_to_completion.map(Latency::from_nanos),
            oldest_released: oldest_released.map(Latency::from_nanos),
        }
    }
}

fn law() -> impl Strategy<Value = LawConfig> {
    let window = (0.01..=1.0, 0.001..10.0, 0.01..4.0, 4.0..200.0, any::<bool>(), any::<bool>()).prop_map(
        |(gamma, beta_gain, least, greatest, shared, requests)| {
            LawConfig::Window(WindowConfig {
                gamma,
                beta_gain,
                least: Window::new(least),
                greatest: Window::new(greatest),
                beta_scale: if shared { BetaScale::PerShare } else { BetaScale::Relative },
                shares_of: if requests { SharesOf::Requests } else { SharesOf::Slots },
            })
        },
    );
    let variants =
        prop::sample::select(vec![PidVariant::Clamped, PidVariant::Literal, PidVariant::Equation2]);
    let pid = (0.01..20.0, 1u64..10_000, 0u64..1_000, variants, 1u64..2_000).prop_map(
        |(gain, integral, derivative, variant, greatest)| {
            LawConfig::Pid(PidConfig {
                proportional_gain: gain,
                integral_time: Duration::from_millis(integral),
                derivative_time: Duration::from_millis(derivative),
                variant,
                greatest: Latency::from_millis(greatest),
                ..PidConfig::default()
            })
        },
    );
    let greatest = proptest::option::of(prop_oneof![2.0..1e4, Just(f64::INFINITY)]);
    let gain = prop_oneof![1e-3..1e3, Just(f64::MAX), Just(f64::MIN_POSITIVE)];
    let integral = (gain, 0.1..2.0, greatest, any::<[bool; 7]>(), any::<bool>()).prop_map(
        |(gain, floor, greatest, switches, mean)| {
            let [raise_only_used, decay_unused, give_way, take_over, by_contracts, slow_rise, learns] =
                switches;
            LawConfig::Integral(IntegralConfig {
                gain: ControllerGain::new(gain).unwrap(),
                floor: Iops::new(floor),
                greatest: greatest.map(Iops::new),
                statistic: if mean { ContractStatistic::Mean } else { ContractStatistic::Percentile95 },
                tuning: if learns { GainTuning::Learnt } else { GainTuning::Fixed },
                variant: IntegralVariant {
                    raise_only_used,
                    decay_unused,
                    give_way,
                    take_over,
                    by_contracts,
                    slow_rise,
                },
            })
        },
    );
    let adaptive =
        (0.1..=1.0, 0.01..2.0, any::<[bool; 7]>()).prop_map(|(forgetting, reset_change, switches)| {
            let [applied_input, lend_unused, gather, compare_predictions, burst, two_shapes, in_steps] =
                switches;
            let variant = SelfTuningVariant {
                applied_input,
                lend_unused,
                gather,
                compare_predictions,
                burst,
                two_shapes,
                in_steps,
            };
            RegulationMethod::Adaptive(LineLearning { forgetting, reset_change, variant })
        });
    let fixed = (1e-3..1e3).prop_map(|gain| RegulationMethod::Fixed(ControllerGain::new(gain).unwrap()));
    let literal = (0.1..=1.0, 0.01..2.0).prop_map(|(forgetting, reset_change)| {
        RegulationMethod::Literal(Figure6Learning { forgetting, reset_change })
    });
    let self_tuning = (prop_oneof![adaptive, literal, fixed], 1u32..20, 0.1..50.0, 50.0..1e6, 0.1..5.0)
        .prop_map(|(regulation, least_requests, least, greatest, floor)| {
            let [least, greatest, floor] = [least, greatest, floor].map(Iops::new);
            LawConfig::SelfTuning(SelfTuningConfig { regulation, least_requests, least, greatest, floor })
        });
    let auto = (0.01..4.0, 4.0..200.0).prop_map(|(least, greatest)| {
        LawConfig::Auto(AutoConfig { least: Window::new(least), greatest: Window::new(greatest) })
    });
    prop_oneof![auto, window, pid, integral, self_tuning]
}

/// Bands of the first consumers, some of whom are never there.
fn bands() -> impl Strategy<Value = Option<Bands>> {
    let band = (1.0..500.0, prop::collection::vec(1u32..5, 1..6));
    prop::collection::vec(band, 0..4).prop_map(|bands| {
        let mut up_to = 0.0;
        let bands = bands.into_iter().map(|(width, weights)| {
            up_to += width;
            let sum = f64::from(weights.iter().sum::<u32>());
            let name = |at| ConsumerName::new(&format!("consumer-{at}")).unwrap();
            let ratios = weights.iter().enumerate().map(|(at, &weight)| (name(at), f64::from(weight) / sum));
            Band { up_to: Iops::new(up_to), ratios: ratios.collect() }
        });
        Bands::new(bands.collect()).ok()
    })
}

prop_compose! {
    fn config()(
        law in law(),
        target in 1u64..1_000,
        normalise: bool,
        dry_run: bool,
        automatic: bool,
        bands in bands(),
        smoothing in prop_oneof![
            Just(Smoothing::default()),
            Just(Smoothing::TimeConstant(Duration::ZERO)),
            (0.0..1.0).prop_map(|past_weight| Smoothing::PerInterval { past_weight }),
        ],
    ) -> LoopConfig {
        let requests = matches!(law, LawConfig::Window(WindowConfig { shares_of: SharesOf::Requests, .. }));
        let integral = matches!(law, LawConfig::Integral(_) | LawConfig::SelfTuning(_));
        let auto = matches!(law, LawConfig::Auto(_));
        let bands = bands.filter(|_| matches!(law, LawConfig::SelfTuning(_)));
        let knee = (automatic && matches!(law, LawConfig::Window(_))).then(KneeConfig::default);
        LoopConfig {
            knee,
            bands,
            normalise: normalise && !requests && !integral && !auto,
            dry_run,
            smoothing: if integral { Smoothing::NONE } else { smoothing },
            ..LoopConfig::new(ResourceName::new("r").unwrap(), Latency::from_millis(target), law)
        }
    }
}

prop_compose! {
    fn peer()(
        name in 0u32..5,
        age in number(),
        interval in number(),
        protected: bool,
        completed in number(),
        total in number(),
        outstanding: bool,
        oldest in proptest::option::of(number()),
        set_point in proptest::option::of(number()),
        point in proptest::option::of(point()),
        load in proptest::option::of(load()),
    ) -> HeardReport {
        let signal = if protected { SignalRequests::ProtectedReads } else { SignalRequests::Everything };
        HeardReport {
            host: HostName::new(&format!("host-{name}")).unwrap(),
            age: Latency::from_nanos(age),
            report: HostReport {
                interval: Latency::from_nanos(interval),
                signal,
                completed,
                total_latency: Latency::from_nanos(total),
                outstanding,
                oldest: oldest.map(Latency::from_nanos),
                window: None,
                active_shares: 0.0,
                reserved: Iops::ZERO,
                set_point: set_point.map(Latency::from_nanos),
                point,
                load,
            },
        }
    }
}

prop_compose! {
    fn load()(
        rates in any::<[f64; 2]>(),
        requests in any::<[f64; 3]>(),
        waiting: bool,
        recent_mean in number(),
        worst in number(),
        total_window in proptest::option::of(any::<f64>()),
    ) -> LoadReport {
        let [iops, writes] = rates.map(Iops::new);
        let [outstanding, writing, recent] = requests.map(MeanOutstanding::new);
        let [recent_mean, worst] = [recent_mean, worst].map(Latency::from_nanos);
        let total_window = total_window.map(Window::new);
        let late = waiting && recent > MeanOutstanding::new(1.0);
        LoadReport {
            iops,
            writes,
            outstanding,
            writing,
            waiting,
            late,
            recent,
            recent_mean,
            worst,
            total_window,
        }
    }
}

prop_compose! {
    fn point()(
        done in number(),
        outstanding in proptest::option::of(number()),
        wish in proptest::option::of((number(), number(), proptest::option::of((number(), number())))),
        [has_say, enough, active] in any::<[bool; 3]>(),
        claims in prop::collection::btree_map(0u32..4, (1u32..1_000_000, proptest::option::of(number())),
            0..4),
        rest in proptest::option::of((number(), proptest::option::of(number()))),
        content in proptest::option::of((number(), proptest::option::of(number()))),
    ) -> PointReport {
        let rate = |number: u64| Iops::new(number as f64 / 1e3);
        let those = |(shares, most): (u64, Option<u64>)| PointRest { shares: shares as f64 / 1e3,
            most: most.map(rate) };
        PointReport {
            done: rate(done),
            outstanding: outstanding.map(|number| number as f64 / 1e3),
            wish: wish.map(|(point, goal, turn)| PointWish {
                operating_point: rate(point),
                goal: Latency::from_nanos(goal),
                turn: turn.map(|(takes, room)| PointTurn { takes: Latency::from_nanos(takes),
                    room: room as f64 / 1e3 }),
            }),
            has_say,
            enough,
            active,
            claims: claims.into_iter().map(|(name, (shares, most))| PointClaim {
                name: ConsumerName::new(&format!("consumer-{name}")).unwrap(),
                shares: Shares::new(shares).unwrap(),
                most: most.map(rate),
            }).collect(),
            rest: rest.map(those),
            content: content.map(those),
        }
    }
}

fn operation() -> impl Strategy<Value = Operation> {
    let peers = proptest::option::of(prop::collection::vec(peer(), 0..4));
    let forward = prop_oneof![Just(0), Just(250_000_000), 0u64..1_000_000_000, any::<u64>()];
    prop_oneof![
        10 => (forward, prop::collection::vec(consumer(), 0..6), peers)
            .prop_map(|(forward, consumers, peers)| Operation::Step { forward, consumers, peers }),
        1 => any::<u64>().prop_map(Operation::JumpBack),
        1 => config().prop_map(|config| Operation::Reconfigure(Box::new(config))),
    ]
}

fn check(config: &LoopConfig, consumers: &[ConsumerObservation], commands: &Commands, decision: &Decision) {
    let throttled: Vec<_> = consumers.iter().filter(|consumer| !consumer.protected).collect();
    let named: Vec<_> = commands.consumers.iter().map(|consumer| &consumer.name).collect();
    assert_eq!(named, throttled.iter().map(|consumer| &consumer.name).collect::<Vec<_>>());
    assert_eq!(decision.throttled as usize, throttled.len());
    assert!(decision.held <= decision.throttled);
    assert!(
        commands.spacing.is_none_or(|_| commands.consumers.iter().any(|consumer| consumer.delay.is_some()))
    );
    match (&config.law, decision.bounded) {
        (LawConfig::Window(law), LawOutput::Window(window)) => {
            assert!(law.least <= window && window <= law.greatest, "{decision:?}");
            assert!(commands.consumers.iter().all(|consumer| consumer.delay.is_none()));
            assert!(commands.window.is_none_or(|commanded| commanded == window));
            assert_eq!(commands.window.is_some(), !throttled.is_empty() && !config.dry_run);
        }
        (LawConfig::Auto(law), LawOutput::Window(window)) => {
            // The smallest window is of all hosts together.
            assert!(window.get() > 0.0 && window.get() <= law.greatest.get() * 1.000_001, "{decision:?}");
            assert!(commands.window.is_none_or(|commanded| commanded == window));
            assert_eq!(commands.window.is_some(), !throttled.is_empty() && !config.dry_run);
        }
        (LawConfig::Pid(law), LawOutput::Delay(delay)) => {
            assert_eq!(commands.window, None);
            assert!(delay <= law.greatest, "{decision:?}");
            for (consumer, command) in throttled.iter().zip(&commands.consumers) {
                let Some(commanded) = command.delay else { continue };
                assert!(Latency::ZERO < commanded && commanded <= delay && !config.dry_run);
                // Little: with so many outstanding, a longer delay would leave less than the floor rate.
                let longest = consumer.mean_outstanding.get() / law.floor.per_second();
                assert!(commanded.as_secs_f64() <= longest + 1e-9, "{commanded} {longest}");
            }
        }
        (LawConfig::Integral(law), LawOutput::Rate(_)) => {
            assert_eq!((commands.window, commands.spacing), (None, None));
            check_rates(config, law, &throttled, commands, decision);
        }
        (LawConfig::SelfTuning(law), LawOutput::Rate(point)) => {
            assert_eq!((commands.window, commands.spacing), (None, None));
            assert!(law.least <= point && point <= law.greatest, "{decision:?}");
            check_point(config, law, consumers, commands, decision);
        }
        other => panic!("a law says what is not its own: {other:?}"),
    }
    assert_eq!(decision.point.is_some(), matches!(config.law, LawConfig::SelfTuning(_)));
    assert_eq!(
        decision.rates.is_empty(),
        throttled.is_empty() || !matches!(config.law, LawConfig::Integral(_))
    );
    assert_eq!(
        commands.consumers.iter().any(|consumer| consumer.rate.is_some()),
        !throttled.is_empty() && matches!(decision.bounded, LawOutput::Rate(_)) && !config.dry_run
    );
    let (ceiling, floor) = (config.set_point(), config.knee.map(|knee| knee.floor));
    assert!(decision.set_point <= ceiling && decision.set_point >= floor.unwrap_or(ceiling), "{decision}");
    assert_eq!(decision.choice.is_some(), config.knee.is_some());
    let half_lives = decision.elapsed.as_secs_f64() / config.idle_half_life.as_secs_f64();
    assert!(decision.elapsed <= Latency::from(config.interval * 10) && half_lives >= 0.0);
    assert_eq!(decision.input == SignalState::NoTime, decision.elapsed == Latency::ZERO);
    if let (Some(reserved), LawOutput::Window(window), LawAction::Regulate, LawConfig::Window(law)) =
        (&decision.reserved, decision.bounded, decision.action, &config.law)
    {
        assert!(window >= reserved.window || window == law.greatest, "{decision:?}");
    }
    assert!(!decision.to_string().is_empty());
    // No number in it that JSON cannot say: infinities and NaN would come back as an error.
    let text = serde_json::to_string(decision).unwrap();
    let again: Decision = serde_json::from_str(&text).unwrap();
    assert_eq!((again.at, again.input, again.estimate), (decision.at, decision.input, decision.estimate));
}

fn check_rates(
    config: &LoopConfig,
    law: &IntegralConfig,
    throttled: &[&ConsumerObservation],
    commands: &Commands,
    decision: &Decision,
) {
    assert_eq!(decision.rates.len(), throttled.len());
    assert_eq!((&decision.cluster, &decision.reserved), (&None, &None));
    for ((consumer, decided), command) in throttled.iter().zip(&decision.rates).zip(&commands.consumers) {
        assert_eq!(consumer.name, decided.name);
        let least = consumer.contract.map_or(law.floor, |contract| contract.iops());
        assert!(decided.rate >= least, "{decided:?}");
        let most = law.greatest.filter(|&greatest| greatest > least);
        assert!(
            decided.rate <= most.unwrap_or(if law.greatest.is_some() { least } else { Iops::new(f64::MAX) })
        );
        assert!(!config.dry_run || command.rate.is_none());
        assert!(command.rate.is_none_or(|rate| rate == decided.rate));
        assert!(command.delay.is_none());
        let expected = consumer.contract.map_or(decision.set_point, |contract| contract.expected());
        assert!(decided.reference == expected || consumer.contract.is_none(), "{decided:?}");
        assert!(decided.reference <= expected);
        assert_eq!(decided.input == SignalState::NoTime, decision.input == SignalState::NoTime);
        assert!(!decided.to_string().is_empty());
    }
    // A sentence is not a list: three are named, the others counted, and perhaps somebody is back.
    assert!(decision.to_string().matches("; ").count() <= 4, "{decision}");
}

fn check_point(
    config: &LoopConfig,
    law: &SelfTuningConfig,
    consumers: &[ConsumerObservation],
    commands: &Commands,
    decision: &Decision,
) {
    let point = decision.point.as_ref().unwrap();
    assert_eq!(decision.reserved, None);
    assert_eq!(point.regulators.len(), consumers.len());
    assert_eq!(point.position.is_some(), config.bands.is_some());
    for (regulator, consumer) in point.regulators.iter().zip(consumers) {
        assert_eq!(regulator.name, consumer.name);
        assert!(regulator.wish.is_none_or(|wish| law.least <= wish && wish <= law.greatest));
        assert!(regulator.may_trigger || config.bands.is_some());
        // Nobody who may asks for less than what is in force.
        if let (Some(_), Some(wish)) = (&point.decided_by, regulator.wish.filter(|_| regulator.may_trigger)) {
            assert!(wish >= point.operating_point || point.doubted, "{decision:?}");
        }
    }
    assert!(point.regulators.iter().filter(|regulator| regulator.exempt).count() <= 1);
    for (allotment, command) in point.allotments.iter().zip(&commands.consumers) {
        assert_eq!(allotment.name, command.name);
        assert!(allotment.rate >= law.floor && allotment.rate >= allotment.entitled, "{decision:?}");
        assert_eq!(command.rate, (!config.dry_run).then_some(allotment.rate));
    }
}

/// How far what is in force is from letting go, on the scale on which it decays.
fn strictness(law: &LawConfig, output: LawOutput) -> f64 {
    match (law, output) {
        (LawConfig::Window(law), LawOutput::Window(window)) => (law.greatest.get() / window.get()).ln(),
        (_, LawOutput::Delay(delay)) => delay.as_secs_f64(),
        other => panic!("a law says what is not its own: {other:?}"),
    }
}

proptest! {
    #[test]
    fn every_command_is_within_bounds_and_silence_never_lets_go_at_once(
        first in config(), operations in prop::collection::vec(operation(), 1..40)
    ) {
        let mut control = ControlLoop::new(first).unwrap();
        let mut now = Instant::ZERO;
        let mut in_force: Option<LawOutput> = None;
        for operation in operations {
            match operation {
                Operation::JumpBack(nanos) => now = now - Duration::from_nanos(nanos),
                Operation::Reconfigure(config) => {
                    control.reconfigure(*config).unwrap();
                    in_force = None;
                }
                Operation::Step { forward, consumers, peers } => {
                    now = now + Latency::from_nanos(forward);
                    let resource = control.config().resource.clone();
                    let mut observation = Observation::new(resource, now, consumers);
                    if let Some(peers) = peers {
                        let own = control.report(&observation);
                        let name = HostName::new("own").unwrap();
                        let interval = control.config().interval;
                        observation.cluster = Some(combine(&name, &own, &peers, interval));
                    }
                    let mut twin = control.clone();
                    let (commands, decision) = control.step(now, &observation);
                    check(control.config(), &observation.consumers, &commands, &decision);
                    prop_assert_eq!(twin.step(now, &observation), (commands, decision.clone()));
                    // Rates are of those who are there, and who comes and goes changes their sum.
                    // The law `auto` takes over what other hosts decide, and what it knew before a silence.
                    let is_auto = matches!(control.config().law, LawConfig::Auto(_));
                    let common = !is_auto && !matches!(decision.bounded, LawOutput::Rate(_));
                    if let Some(before) = in_force.filter(|_| common) {
                        let law = &control.config().law;
                        let (before, after) = (strictness(law, before), strictness(law, decision.bounded));
                        match decision.action {
                            LawAction::Hold => prop_assert!((before - after).abs() < 1e-12),
                            // Ten intervals of 250 ms are 1.25 half-lives: 42 % of a delay are left.
                            LawAction::Relax => {
                                // What decays is up to a level of 0.5 ms less than the delay, which is
                                // rounded up; and below a level a delay ends.
                                let level = if matches!(law, LawConfig::Pid(_)) { 0.0005 } else { 0.0 };
                                prop_assert!(after <= before + 1e-12, "{before} {after}");
                                prop_assert!(after >= 0.42 * (before - level) - level - 1e-9, "{before} \
                                    {after}");
                            }
                            LawAction::Regulate => {}
                        }
                    }
                    in_force = Some(decision.bounded);
                }
            }
        }
    }

    #[test]
    fn a_loop_restored_from_its_checkpoint_decides_as_the_original(
        first in config(),
        operations in prop::collection::vec(operation(), 1..40),
        restore_at in any::<prop::sample::Index>(),
    ) {
        let restore_at = restore_at.index(operations.len());
        let mut control = ControlLoop::new(first).unwrap();
        let mut restored: Option<ControlLoop> = None;
        let mut now = Instant::ZERO;
        for (place, operation) in operations.into_iter().enumerate() {
            if place == restore_at {
                restored = Some(rmp_serde::from_slice(&checkpoint(&control)).unwrap());
            }
            let mut both: Vec<_> = std::iter::once(&mut control).chain(&mut restored).collect();
            match operation {
                Operation::JumpBack(nanos) => now = now - Duration::from_nanos(nanos),
                Operation::Reconfigure(config) => {
                    for control in both {
                        control.reconfigure((*config).clone()).unwrap();
                    }
                }
                Operation::Step { forward, consumers, peers } => {
                    now = now + Latency::from_nanos(forward);
                    let resource = both[0].config().resource.clone();
                    let observation = Observation::new(resource, now, consumers);
                    let decided = both.iter_mut().map(|control| {
                        let mut observation = observation.clone();
                        if let Some(peers) = &peers {
                            let own = control.report(&observation);
                            let name = HostName::new("own").unwrap();
                            observation.cluster =
                                Some(combine(&name, &own, peers, control.config().interval));
                        }
                        let (commands, decision) = control.step(now, &observation);
                        // Bit for bit: two zeros of different signs are equal, and two NaN are not.
                        (rmp_serde::to_vec(&commands).unwrap(), rmp_serde::to_vec(&decision).unwrap())
                    });
                    let decided: Vec<_> = decided.collect();
                    prop_assert!(decided.iter().all(|each| *each == decided[0]));
                }
            }
        }
        prop_assert_eq!(checkpoint(&control), checkpoint(&restored.unwrap()));
    }
}

fn checkpoint(control: &ControlLoop) -> Vec<u8> {
    rmp_serde::to_vec_named(control).unwrap()
}
