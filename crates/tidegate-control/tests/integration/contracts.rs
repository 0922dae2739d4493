//! The integral law in the loop: against the linear model of Lee's equation 3, and its rules for silence,
//! windup, and those who come and go.

use std::time::Duration;

use proptest::prelude::*;
use tidegate_control::{
    ClosedLoopPole, Commands, ConsumerObservation, Contract, ContractStatistic, ControlLoop, ControllerGain,
    Decision, IntegralConfig, IntegralVariant, KneeConfig, LawAction, LawConfig, LawOutput, LoopConfig,
    MeanOutstanding, Observation, OperationTotals, OutputBound, ProcessGain, RateDecision, SignalChoice,
    SignalState, Smoothing, gain_for,
};
use tidegate_units::{Bytes, ConsumerName, Instant, Iops, Latency, ResourceName, Shares};

const fn ms(millis: u64) -> Latency {
    Latency::from_millis(millis)
}

/// The paper's tenants: rates as promised, RT^E as its table 3 has it.
fn contract(iops: f64, promised: u64, expected: f64) -> Contract {
    Contract::new(Iops::new(iops), ms(promised), Latency::from_millis_f64(expected)).unwrap()
}

fn first() -> Contract {
    contract(40.0, 35, 29.08)
}

fn second() -> Contract {
    contract(20.0, 38, 31.38)
}

fn config(integral: IntegralConfig) -> LoopConfig {
    LoopConfig::new(ResourceName::new("disk").unwrap(), ms(50), LawConfig::Integral(integral))
}

/// Everything but the slow rise: each step is then eq. 2's, up as down.
const PLAIN: IntegralVariant = IntegralVariant { slow_rise: false, ..IntegralVariant::IMPROVED };

fn plain() -> IntegralConfig {
    IntegralConfig { variant: PLAIN, ..IntegralConfig::default() }
}

fn literal() -> IntegralConfig {
    IntegralConfig { variant: IntegralVariant::LITERAL, ..plain() }
}

fn name(name: &str) -> ConsumerName {
    ConsumerName::new(name).unwrap()
}

fn quiet(consumer: &str, contract: Option<Contract>) -> ConsumerObservation {
    ConsumerObservation { contract, ..ConsumerObservation::idle(name(consumer), Shares::DEFAULT, false) }
}

/// Completed so many at this mean, with more waiting for their release.
fn busy(consumer: &str, contract: Option<Contract>, count: u64, mean: Latency) -> ConsumerObservation {
    let reads = OperationTotals {
        count,
        bytes: Bytes::new(count * 4_096),
        total_latency: Latency::from_nanos(mean.as_nanos().saturating_mul(count)),
        ..OperationTotals::default()
    };
    ConsumerObservation {
        reads,
        queued: 1,
        short_of_tokens: ms(500),
        mean_outstanding: MeanOutstanding::new(2.0),
        ..quiet(consumer, contract)
    }
}

/// Busy, without waiting for its release.
fn content(consumer: &str, contract: Option<Contract>, count: u64, mean: Latency) -> ConsumerObservation {
    let busy = busy(consumer, contract, count, mean);
    ConsumerObservation { short_of_tokens: Latency::ZERO, queued: 0, ..busy }
}

/// A loop and its clock.
struct Run {
    control: ControlLoop,
    now: Instant,
}

impl Run {
    fn new(integral: IntegralConfig) -> Self {
        Self { control: ControlLoop::new(config(integral)).unwrap(), now: Instant::from_nanos(7) }
    }

    fn step(&mut self, consumers: Vec<ConsumerObservation>) -> (Commands, Decision) {
        self.after(self.control.config().interval, consumers)
    }

    fn after(&mut self, elapsed: Duration, consumers: Vec<ConsumerObservation>) -> (Commands, Decision) {
        self.now = self.now + elapsed;
        let observation = Observation::new(self.control.config().resource.clone(), self.now, consumers);
        self.control.step(self.now, &observation)
    }

    /// What was decided of the only consumer.
    fn one(&mut self, consumer: ConsumerObservation) -> RateDecision {
        let (_, decision) = self.step(vec![consumer]);
        decision.rates.into_iter().next().unwrap()
    }

    /// One consumer that uses all of a rate of 72 IO/s, found at short response times.
    fn at_72(integral: IntegralConfig) -> Self {
        let mut run = Self::new(integral);
        for rate in [40, 48, 56, 64, 72] {
            // E = 8/K. The last of them keeps the rate.
            let error = if rate < 72 { 8.0 / 0.33 } else { 0.0 };
            run.step(vec![busy("w1", Some(first()), rate, Latency::from_millis_f64(29.08 - error))]);
        }
        run
    }
}

fn rate_of(commands: &Commands, at: usize) -> f64 {
    commands.consumers[at].rate.unwrap().per_second()
}

/// The linear model: RT = a + G·ρ, so that RT(k+1) − RT(k) = G·(ρ(k) − ρ(k−1)).
struct Linear {
    process: f64,
    at_contract: f64,
}

impl Linear {
    fn response_ms(&self, rate: f64) -> f64 {
        self.at_contract + self.process * (rate - 40.0)
    }
}

/// The errors against the reference, in ms, period by period, of somebody who uses what he is given.
fn errors(run: &mut Run, model: &Linear, periods: usize) -> Vec<f64> {
    let mut rate = 40.0;
    (0..periods)
        .map(|_| {
            let response = model.response_ms(rate);
            let count = rate.ceil().max(1.0) as u64;
            let seen = Latency::from_millis_f64(response);
            rate = run.one(busy("w1", Some(first()), count, seen)).rate.per_second();
            first().expected().as_millis_f64() - response
        })
        .collect()
}

fn with_gain(process: f64, pole: f64) -> IntegralConfig {
    let gain = gain_for(ProcessGain::new(process).unwrap(), ClosedLoopPole::new(pole).unwrap());
    IntegralConfig { gain, ..plain() }
}

#[test]
fn one_step_is_equation_2() {
    for variant in [IntegralVariant::LITERAL, PLAIN] {
        let mut run = Run::new(IntegralConfig { variant, ..plain() });
        // E = 29.08 − 19.08 = 10 ms, K = 0.33.
        let decided = run.one(busy("w1", Some(first()), 40, Latency::from_millis_f64(19.08)));
        assert!((decided.rate.per_second() - 43.3).abs() < 1e-9, "{decided:?}");
        assert_eq!((decided.action, decided.bound, decided.held), (LawAction::Regulate, None, true));
        assert_eq!(decided.reference, first().expected());
        // E = −5 ms, and then −20: never below what was promised.
        let decided = run.one(busy("w1", Some(first()), 43, Latency::from_millis_f64(34.08)));
        assert!((decided.rate.per_second() - 41.65).abs() < 1e-9, "{decided:?}");
        let decided = run.one(busy("w1", Some(first()), 43, Latency::from_millis_f64(49.08)));
        assert_eq!((decided.rate, decided.bound), (Iops::new(40.0), Some(OutputBound::Least)));
        assert!((decided.raw.per_second() - 35.05).abs() < 1e-9, "{decided:?}");
    }
}

#[test]
fn surplus_is_divided_by_contracts_and_the_strictest_error_moves_it() {
    let step = |run: &mut Run, errors: [f64; 2], second_waits: bool| {
        let [of_w1, of_w2] = [29.08 - errors[0], 31.38 - errors[1]].map(Latency::from_millis_f64);
        let w2 = if second_waits { busy } else { content };
        let (commands, _) =
            run.step(vec![busy("w1", Some(first()), 40, of_w1), w2("w2", Some(second()), 20, of_w2)]);
        [rate_of(&commands, 0), rate_of(&commands, 1)]
    };
    let is = |found: [f64; 2], expected: [f64; 2]| {
        found.iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 1e-9)
    };
    let mut run = Run::new(plain());
    // K = 0.33: 2·0.33·6 IO/s more, at 2:1, and then 2·0.33·3 less.
    let rates = step(&mut run, [10.0, 6.0], true);
    assert!(is(rates, [42.64, 21.32]), "{rates:?}");
    let rates = step(&mut run, [10.0, -3.0], true);
    assert!(is(rates, [41.32, 20.66]), "{rates:?}");
    // What does not wait has no part in it: the other's own error moves its rate.
    let rates = step(&mut run, [10.0, 6.0], false);
    assert!((rates[0] - 44.62).abs() < 1e-9 && rates[1] < 20.66 + 1e-9, "{rates:?}");
    // The paper's law: each by its own error.
    let rates = step(&mut Run::new(literal()), [10.0, 6.0], true);
    assert!(is(rates, [43.3, 21.98]), "{rates:?}");
}

#[test]
fn by_default_rates_rise_by_seven_tenths_of_equation_2_and_fall_by_all_of_it() {
    let mut run = Run::new(IntegralConfig::default());
    let rate = run.one(busy("w1", Some(first()), 40, Latency::from_millis_f64(19.08))).rate.per_second();
    assert!((rate - 40.0 - 0.7 * 3.3).abs() < 1e-9, "{rate}");
    let fallen = run.one(busy("w1", Some(first()), 42, Latency::from_millis_f64(32.08))).rate.per_second();
    assert!((rate - fallen - 0.33 * 3.0).abs() < 1e-9, "{rate} {fallen}");
}

#[test]
fn what_is_compared_is_the_mean_from_release_to_completion_of_reads_and_writes() {
    let mut run = Run::new(literal());
    let mut consumer = busy("w1", Some(first()), 30, ms(10));
    consumer.writes = OperationTotals { count: 10, total_latency: ms(10 * 30), ..OperationTotals::default() };
    // (30·10 + 10·30 + 200)/40: the fair queue counts, the wait for the release does not.
    consumer.scheduler_wait = ms(200);
    consumer.short_of_tokens = ms(900);
    assert_eq!(run.one(consumer).measured, Some(ms(20)));
}

#[test]
fn commands_carry_rates_and_nothing_else_and_none_in_a_dry_run() {
    let mut run = Run::new(plain());
    let protected = ConsumerObservation { protected: true, ..busy("db", None, 10, ms(5)) };
    let consumers = || vec![protected.clone(), busy("w1", Some(first()), 40, ms(20)), quiet("w2", None)];
    let (commands, decision) = run.step(consumers());
    assert_eq!((commands.window, commands.spacing, commands.consumers.len()), (None, None, 2));
    assert!(commands.consumers.iter().all(|consumer| consumer.delay.is_none() && consumer.rate.is_some()));
    let sum = rate_of(&commands, 0) + rate_of(&commands, 1);
    assert!(matches!(decision.bounded, LawOutput::Rate(rate) if (rate.per_second() - sum).abs() < 1e-9));
    assert_eq!((decision.held, decision.throttled), (1, 2));
    let dry = LoopConfig { dry_run: true, ..run.control.config().clone() };
    run.control.reconfigure(dry).unwrap();
    let (commands, decision) = run.step(consumers());
    assert!(commands.consumers.iter().all(|consumer| consumer.rate.is_none()));
    assert!(decision.rates[0].rate > Iops::new(40.0) && decision.to_string().contains("would be throttled"));
}

#[test]
fn a_step_that_comes_early_counts_in_part_and_a_late_one_once() {
    let rate_after = |millis| {
        let mut run = Run::new(literal());
        run.one(busy("w1", Some(first()), 40, first().expected()));
        let (_, decision) = run.after(
            Duration::from_millis(millis),
            vec![busy("w1", Some(first()), 40, Latency::from_millis_f64(19.08))],
        );
        decision.rates[0].rate.per_second() - 40.0
    };
    assert!((rate_after(1_000) - 3.3).abs() < 1e-9);
    assert!((rate_after(250) - 3.3 / 4.0).abs() < 1e-9);
    // Ten times K could be beyond 2/G.
    assert!((rate_after(9_000) - 3.3).abs() < 1e-9);
    // K is per control period: another interval is another period.
    let mut run = Run::new(literal());
    let quick = LoopConfig { interval: Duration::from_millis(250), ..run.control.config().clone() };
    run.control.reconfigure(quick).unwrap();
    let decided = run.one(busy("w1", Some(first()), 10, Latency::from_millis_f64(19.08)));
    assert!((decided.rate.per_second() - 43.3).abs() < 1e-9);
}

#[test]
fn silence_is_told_apart_for_each_consumer() {
    let mut run = Run::at_72(plain());
    let before = run.one(busy("w1", Some(first()), 72, first().expected())).rate;
    let flying = |age| {
        let reads =
            OperationTotals { in_flight: 1, oldest_in_flight: Some(age), ..OperationTotals::default() };
        ConsumerObservation { reads, ..quiet("w1", Some(first())) }
    };
    // Beyond the expected time, within the promised one: nothing is known.
    let young = run.one(flying(ms(34)));
    assert_eq!((young.input, young.action, young.rate), (SignalState::Unknown, LawAction::Hold, before));
    let old = run.one(flying(ms(36)));
    assert_eq!((old.input, old.action), (SignalState::Overload { oldest: ms(36) }, LawAction::Regulate));
    assert!(old.rate < before);
    // So is who has been released and is not dispatched: a fair queue that nobody leaves is overload, too.
    let stuck =
        |age| ConsumerObservation { queued: 1, oldest_released: Some(age), ..quiet("w1", Some(first())) };
    let young = run.one(stuck(ms(34)));
    assert_eq!((young.input, young.action, young.rate), (SignalState::Unknown, LawAction::Hold, old.rate));
    let stuck = run.one(stuck(ms(37)));
    assert_eq!((stuck.input, stuck.action), (SignalState::Overload { oldest: ms(37) }, LawAction::Regulate));
    let old = stuck;
    // Waiting for the release alone is not idleness.
    let waiting = run.one(ConsumerObservation { queued: 3, ..quiet("w1", Some(first())) });
    assert_eq!((waiting.input, waiting.rate), (SignalState::Unknown, old.rate));
    // The surplus halves in two seconds; what was promised stays.
    run.step(vec![quiet("w1", Some(first()))]);
    let idle = run.one(quiet("w1", Some(first())));
    assert_eq!((idle.input, idle.action), (SignalState::Idle, LawAction::Relax));
    let surplus = |rate: Iops| rate.per_second() - 40.0;
    assert!((surplus(idle.rate) / surplus(old.rate) - 0.5).abs() < 1e-9, "{idle:?}");
    for _ in 0..600 {
        run.step(vec![quiet("w1", Some(first()))]);
    }
    assert!((run.one(quiet("w1", Some(first()))).rate.per_second() - 40.0).abs() < 1e-9);
    // The paper's is held.
    let mut run = Run::at_72(literal());
    let before = run.one(busy("w1", Some(first()), 72, first().expected())).rate;
    let idle = run.one(quiet("w1", Some(first())));
    assert_eq!((idle.action, idle.rate), (LawAction::Hold, before));
}

#[test]
fn a_clock_that_stands_or_jumps_back_holds_every_rate() {
    let mut run = Run::at_72(plain());
    let (before, _) = run.step(vec![busy("w1", Some(first()), 72, first().expected())]);
    for back in [Duration::ZERO, Duration::from_secs(3_600)] {
        run.now = run.now - Duration::from_secs(1) - back;
        let (after, decision) = run.step(vec![busy("w1", Some(first()), 72, ms(1))]);
        assert_eq!((decision.input, decision.rates[0].input), (SignalState::NoTime, SignalState::NoTime));
        assert_eq!(before, after);
    }
    run.now = run.now + Duration::from_secs(86_400);
    let (_, decision) = run.step(vec![quiet("w1", Some(first()))]);
    assert_eq!(decision.elapsed, ms(10_000));
    assert!(decision.rates[0].rate > Iops::new(40.0), "a leap counts ten intervals, not all of it");
}

#[test]
fn who_was_gone_begins_with_what_was_promised() {
    let mut run = Run::at_72(plain());
    run.step(vec![quiet("other", None)]);
    // Forgotten, surplus and all.
    let decided = run.one(busy("w1", Some(first()), 40, first().expected()));
    assert_eq!(decided.rate, Iops::new(40.0));
}

/// (a): windup.
#[test]
fn an_hour_of_low_demand_winds_up_the_papers_rate_and_not_ours() {
    let overshoot = |variant: IntegralVariant| {
        let mut run = Run::at_72(IntegralConfig { variant, ..plain() });
        for _ in 0..3_600 {
            run.step(vec![content("w1", Some(first()), 5, ms(12))]);
        }
        run.one(content("w1", Some(first()), 5, ms(12))).rate.per_second()
    };
    assert!(overshoot(IntegralVariant::LITERAL) > 20_000.0);
    // What it had is found under another load; 40 IO/s were promised.
    assert!((overshoot(PLAIN) - 40.0).abs() < 1e-6);
    // Each switch by itself: not raised, but kept; raised all the same, because it is not idle.
    let raise_only_used = IntegralVariant { raise_only_used: true, ..IntegralVariant::LITERAL };
    assert!((overshoot(raise_only_used) - 72.0).abs() < 1e-3);
    let decay_unused = IntegralVariant { decay_unused: true, ..IntegralVariant::LITERAL };
    assert!(overshoot(decay_unused) > 20_000.0);
}

#[test]
fn a_rate_is_raised_while_it_holds_and_used_and_not_otherwise() {
    let mut run = Run::new(plain());
    let decided = run.one(content("w1", Some(first()), 40, ms(19)));
    assert_eq!((decided.rate, decided.bound), (Iops::new(40.0), Some(OutputBound::Demand)), "nothing waited");
    let decided = run.one(busy("w1", Some(first()), 27, ms(19)));
    assert_eq!(
        (decided.rate, decided.bound),
        (Iops::new(40.0), Some(OutputBound::Demand)),
        "a burst, 68 % used"
    );
    let decided = run.one(busy("w1", Some(first()), 29, ms(19)));
    assert!(decided.rate > Iops::new(43.0) && decided.bound.is_none(), "{decided:?}");
    // What is used by 70 % may stay: 45 IO/s completed are worth a rate of 64.
    let mut run = Run::at_72(plain());
    for _ in 0..60 {
        run.step(vec![content("w1", Some(first()), 45, ms(19))]);
    }
    let kept = run.one(content("w1", Some(first()), 45, ms(19))).rate.per_second();
    assert!((kept - 45.0 / 0.7).abs() < 1e-3, "{kept}");
}

#[test]
fn without_a_contract_the_strictest_of_the_others_is_the_reference_and_the_floor_the_least() {
    let mut run = Run::new(plain());
    let guest = |mean| busy("guest", None, 10, mean);
    let reference = |decision: &Decision| decision.rates[0].reference;
    // Alone: the loop's set point, 0.8 × 50 ms.
    let (_, decision) =
        run.step(vec![guest(ms(30)), quiet("w1", Some(first())), quiet("w2", Some(second()))]);
    assert_eq!(reference(&decision), ms(40));
    assert!((decision.rates[0].rate.per_second() - 5.3).abs() < 1e-9, "{:?}", decision.rates[0]);
    let active = busy("w2", Some(second()), 20, ms(30));
    let (_, decision) = run.step(vec![guest(ms(30)), quiet("w1", Some(first())), active.clone()]);
    assert_eq!(reference(&decision), second().expected());
    let (_, decision) = run.step(vec![guest(ms(30)), busy("w1", Some(first()), 40, ms(30)), active]);
    assert_eq!(reference(&decision), first().expected());
    let least = run.one(guest(ms(5_000)));
    assert_eq!((least.rate, least.bound), (Iops::new(2.0), Some(OutputBound::Least)));
}

#[test]
fn a_contract_that_changes_or_ends_moves_a_rate_no_further_than_its_bounds() {
    let mut run = Run::at_72(plain());
    let young = |contract| {
        let reads =
            OperationTotals { in_flight: 1, oldest_in_flight: Some(ms(1)), ..OperationTotals::default() };
        ConsumerObservation { reads, ..quiet("w1", contract) }
    };
    let before = run.one(young(Some(first()))).rate;
    assert_eq!(run.one(young(Some(contract(60.0, 35, 20.0)))).rate, before);
    assert_eq!(run.one(young(None)).rate, before);
    let more = run.one(young(Some(contract(90.0, 35, 20.0))));
    assert_eq!((more.rate, more.bound), (Iops::new(90.0), Some(OutputBound::Least)));
    let bounded = IntegralConfig { greatest: Some(Iops::new(50.0)), ..plain() };
    run.control.reconfigure(config(bounded)).unwrap();
    let kept = run.one(young(Some(contract(90.0, 35, 20.0))));
    assert_eq!(kept.rate, Iops::new(90.0), "a promise counts more than the greatest rate");
    let less = run.one(young(Some(first())));
    assert_eq!((less.rate, less.bound), (Iops::new(50.0), Some(OutputBound::Greatest)));
}

/// (c): the first uses 72 IO/s alone when the second comes back.
fn return_of_the_second(variant: IntegralVariant) -> (Run, Decision) {
    let mut run = Run::at_72(IntegralConfig { variant, ..plain() });
    for _ in 0..60 {
        run.step(vec![busy("w1", Some(first()), 72, first().expected()), quiet("w2", Some(second()))]);
    }
    let both = vec![busy("w1", Some(first()), 60, ms(45)), busy("w2", Some(second()), 12, ms(45))];
    let (_, decision) = run.step(both);
    (run, decision)
}

#[test]
fn surplus_is_given_back_at_once_when_somebody_with_a_contract_returns() {
    let (mut run, decision) = return_of_the_second(PLAIN);
    let gave_way = decision.gave_way.clone().unwrap();
    assert_eq!((gave_way.to.as_str(), gave_way.returned), ("w2", 1));
    // 72 IO/s were kept within the reference; contracts of 2:1 divide them.
    assert!((gave_way.sustained.per_second() - 72.0).abs() < 0.5, "{gave_way:?}");
    let rates: Vec<_> = decision.rates.iter().map(|rate| rate.rate.per_second()).collect();
    assert!((rates[0] - 48.0).abs() < 0.5 && (rates[1] - 24.0).abs() < 0.5, "{rates:?}");
    assert_eq!(
        (decision.rates[0].bound, decision.bound),
        (Some(OutputBound::Return), Some(OutputBound::Return))
    );
    assert!(decision.to_string().contains("w2 is back: "), "{decision}");
    // Once: from then on response times decide.
    let (_, next) = run.step(vec![
        busy("w1", Some(first()), 52, first().expected()),
        busy("w2", Some(second()), 20, second().expected()),
    ]);
    assert_eq!(next.gave_way, None);
    let without = IntegralVariant { give_way: false, ..PLAIN };
    let (_, slow) = return_of_the_second(without);
    // Both together fall by what the errors say, and not to what was kept.
    let together: f64 = slow.rates.iter().map(|rate| rate.rate.per_second()).sum();
    assert!(together > 78.0 && slow.gave_way.is_none(), "{slow}");
    let alone = IntegralVariant { give_way: true, ..IntegralVariant::LITERAL };
    assert!(return_of_the_second(alone).1.gave_way.is_some());
}

#[test]
fn what_a_pause_leaves_is_taken_over_at_once() {
    let rates = |variant| {
        let mut run = return_of_the_second(variant).0;
        let alone = || vec![busy("w1", Some(first()), 52, first().expected()), quiet("w2", Some(second()))];
        // The idle half-life is two seconds, and a control period one.
        let before = run.step(alone()).1.rates[0].clone();
        (before, run.step(alone()).1.rates[0].clone())
    };
    let (before, after) = rates(PLAIN);
    assert!(before.rate.per_second() < 53.0, "{before:?}");
    // 95 % of the 72 IO/s that were sustained, or somewhat less since.
    assert!(after.rate.per_second() > 60.0 && after.rate.per_second() <= 0.95 * 72.5, "{after:?}");
    assert_eq!(after.bound, Some(OutputBound::Departure));
    let (_, slow) = rates(IntegralVariant { take_over: false, ..PLAIN });
    assert!(slow.rate.per_second() < 53.0, "{slow:?}");
}

#[test]
fn what_is_compared_is_the_percentile_where_it_is_measured_and_wanted() {
    let consumer =
        ConsumerObservation { release_to_completion: Some(ms(60)), ..busy("w1", Some(first()), 40, ms(20)) };
    let measured = |statistic| {
        let mut run = Run::new(IntegralConfig { statistic, ..plain() });
        run.one(consumer.clone()).measured
    };
    assert_eq!(measured(ContractStatistic::Percentile95), Some(ms(60)));
    assert_eq!(measured(ContractStatistic::Mean), Some(ms(20)));
}

#[test]
fn a_short_pause_is_no_return_and_who_has_no_contract_makes_nobody_give_way() {
    let mut run = Run::at_72(plain());
    let first_busy = || busy("w1", Some(first()), 72, first().expected());
    for interval in 0..60 {
        // Every second interval a request.
        let slow = if interval % 2 == 0 {
            busy("w2", Some(second()), 1, ms(10))
        } else {
            quiet("w2", Some(second()))
        };
        let (_, decision) = run.step(vec![first_busy(), slow]);
        assert!(decision.gave_way.is_none() || interval == 0, "{decision}");
    }
    let mut run = Run::at_72(plain());
    for interval in 0..60 {
        let guest = if interval < 30 { quiet("guest", None) } else { busy("guest", None, 30, ms(30)) };
        assert_eq!(run.step(vec![first_busy(), guest]).1.gave_way, None);
    }
}

#[test]
fn a_protected_consumer_is_not_held_and_others_leave_it_what_it_was_promised() {
    let mut run = Run::at_72(plain());
    let busy_first = || busy("w1", Some(first()), 72, first().expected());
    let protected = |one: ConsumerObservation| ConsumerObservation { protected: true, ..one };
    for _ in 0..60 {
        run.step(vec![busy_first(), protected(quiet("w2", Some(second())))]);
    }
    let (commands, decision) =
        run.step(vec![busy_first(), protected(busy("w2", Some(second()), 12, ms(45)))]);
    assert_eq!(commands.consumers.len(), 1);
    let rate = rate_of(&commands, 0);
    assert!((rate - 52.0).abs() < 0.5 && decision.gave_way.is_some(), "{decision}");
}

#[test]
fn what_the_law_has_no_use_for_is_refused() {
    let refused = |change: fn(&mut LoopConfig)| {
        let mut config = config(plain());
        assert!(config.validate().is_ok());
        change(&mut config);
        ControlLoop::new(config).unwrap_err().to_string()
    };
    assert!(refused(|c| c.knee = Some(KneeConfig::default())).contains("only the window law"));
    assert!(refused(|c| c.signal = SignalChoice::Reads).contains("own requests"));
    assert!(refused(|c| c.normalise = true).contains("without `normalise`"));
    assert!(refused(|c| c.smoothing = Smoothing::default()).contains("without `smoothing`"));
    let integral = |config| LawConfig::Integral(config);
    let mut wrong = config(IntegralConfig { floor: Iops::ZERO, ..plain() });
    assert!(wrong.validate().unwrap_err().to_string().contains("floor rate"));
    wrong.law = integral(IntegralConfig { greatest: Some(Iops::new(1.0)), ..plain() });
    assert!(wrong.validate().unwrap_err().to_string().contains("at most the greatest"));
    assert_eq!(config(plain()).interval, Duration::from_secs(1));
}

proptest! {
    /// Eqs. 6 to 8: what is left of an error after a period is p = 1 − K·G, for every K that is stable.
    #[test]
    fn on_the_linear_model_errors_shrink_by_the_pole(
        process in 0.05..5.0, pole in -0.95..0.95, at_contract in 5.0..15.0, literal: bool
    ) {
        let variant = if literal { IntegralVariant::LITERAL } else { PLAIN };
        let mut run = Run::new(IntegralConfig { variant, ..with_gain(process, pole) });
        let errors = errors(&mut run, &Linear { process, at_contract }, 40);
        for pair in errors.windows(2) {
            // Response times are whole nanoseconds.
            prop_assert!((pair[1] - pole * pair[0]).abs() < 1e-5, "{pole} {errors:?}");
        }
        let settled = ClosedLoopPole::new(pole).unwrap().settling_periods() as usize;
        if let Some(error) = errors.get(settled) {
            prop_assert!(error.abs() <= 0.05 * errors[0].abs() + 1e-4);
        }
    }

    /// Beyond 2/G errors grow, until the bounds hold them.
    #[test]
    fn beyond_the_stable_range_it_swings_between_its_bounds(process in 0.1..2.0, beyond in 1.05..5.0) {
        let gain = ProcessGain::new(process).unwrap().stable_below().iops_per_ms() * beyond;
        let gain = ControllerGain::new(gain).unwrap();
        let greatest = Some(Iops::new(40.0 + 60.0 / process));
        let integral = IntegralConfig { gain, greatest, ..literal() };
        let mut run = Run::new(integral);
        let errors = errors(&mut run, &Linear { process, at_contract: 28.0 }, 200);
        let late = &errors[150..];
        let (least, most) = late.iter().fold((f64::MAX, f64::MIN), |(a, b), &e| (a.min(e), b.max(e)));
        // From the rate that was promised to beyond the reference, for ever.
        prop_assert!((most - errors[0]).abs() < 1e-6 && least < -1.0, "{late:?}");
    }

    /// A process gain that is three times what it was taken for has the pole 1 − 3(1 − p), a third of it 1 −
    /// (1 − p)/3.
    #[test]
    fn a_gain_mistaken_by_three_does_what_theory_says(process in 0.1..2.0, pole in 0.4..0.95,
        factor in prop::sample::select(vec![3.0, 1.0 / 3.0])) {
        let mut run = Run::new(with_gain(process, pole));
        let really = Linear { process: process * factor, at_contract: 10.0 };
        let errors = errors(&mut run, &really, 30);
        let there = 1.0 - factor * (1.0 - pole);
        for pair in errors.windows(2) {
            prop_assert!((pair[1] - there * pair[0]).abs() < 1e-5, "{there} {errors:?}");
        }
    }

    /// Whatever returns, rates are together no more than what the storage sustains, or than what was
    /// promised.
    #[test]
    fn after_a_return_rates_fit_into_what_is_sustained(
        promised in prop::collection::vec((1.0..200.0, 0u64..400, any::<bool>()), 2..8),
        found in 1u64..60,
    ) {
        let mut run = Run::new(plain());
        let contracts: Vec<_> = promised.iter().map(|(iops, ..)| contract(*iops, 35, 29.0)).collect();
        let consumers = |returned: bool| {
            let one = |(at, (_, count, pauses)): (usize, &(f64, u64, bool))| {
                let name = format!("c{at}");
                let contract = (at % 3 != 2).then_some(contracts[at]);
                if *pauses && !returned { quiet(&name, contract) }
                    else { busy(&name, contract, *count, ms(10)) }
            };
            promised.iter().enumerate().map(one).collect::<Vec<_>>()
        };
        for _ in 0..found {
            run.step(consumers(false));
        }
        let (_, decision) = run.step(consumers(true));
        if let Some(gave_way) = decision.gave_way {
            let rates = || decision.rates.iter().filter(|rate| rate.input != SignalState::Idle);
            let sum: f64 = rates().map(|rate| rate.rate.per_second()).sum();
            prop_assert!(sum <= gave_way.sustained.per_second() * (1.0 + 1e-9), "{sum} {gave_way:?}");
            prop_assert!(gave_way.given_back > Iops::ZERO);
        }
    }
}

/// A storage that answers in 1/(C − X), as an M/M/1 queue does, and lets nobody wait longer than a second.
fn response(completed: f64) -> Latency {
    const CAPACITY: f64 = 110.0;
    let seconds = if completed < CAPACITY { 1.0 / (CAPACITY - completed) } else { 1.0 };
    Latency::from_secs_f64(seconds.min(1.0))
}

/// Pulses as in the paper's case 3: the first asks for all that it can get, the second, for five seconds in
/// ten, for all that it may have. In which part of the seconds requests take longer than promised, and what
/// the first gets. `at_once`: the loop is stepped as soon as the second returns, not only at the end of that
/// second.
fn pulses(variant: IntegralVariant, at_once: bool) -> (f64, f64) {
    const SECONDS: u32 = 1_000;
    let mut run = Run::new(IntegralConfig { variant, ..plain() });
    let (mut rates, mut late, mut served) = ([40.0, 20.0], 0, 0.0);
    for at in 0..SECONDS {
        let on = at % 10 < 5;
        let mut left = Duration::from_secs(1);
        if at_once && at % 10 == 0 {
            let early = Duration::from_millis(10);
            let returning = ConsumerObservation { queued: 1, ..quiet("w2", Some(second())) };
            let running = busy("w1", Some(first()), 1, response(rates[0]));
            let (commands, _) = run.after(early, vec![running, returning]);
            rates = [rate_of(&commands, 0), rate_of(&commands, 1)];
            left -= early;
        }
        let seen = response(rates[0] + if on { rates[1] } else { 0.0 });
        let using = |name, contract, rate: f64| busy(name, Some(contract), rate.round() as u64, seen);
        let other = if on { using("w2", second(), rates[1]) } else { quiet("w2", Some(second())) };
        let (commands, _) = run.after(left, vec![using("w1", first(), rates[0]), other]);
        late += u32::from(seen > first().response_time());
        served += rates[0];
        rates = [rate_of(&commands, 0), rate_of(&commands, 1)];
    }
    (f64::from(late) / f64::from(SECONDS), served / f64::from(SECONDS))
}

#[test]
fn of_a_pulse_the_first_second_is_late_and_none_when_the_loop_is_told_at_once() {
    let (literal, _) = pulses(IntegralVariant::LITERAL, false);
    let (improved, _) = pulses(PLAIN, false);
    let (told, served) = pulses(PLAIN, true);
    assert!(literal > 0.15, "{literal}");
    // One second in ten is over before anything can be done about it.
    assert!(improved <= 0.1, "{improved}");
    // The first pulses are how it learns what the storage sustains.
    assert!(told <= 0.01, "{told}");
    // Alone it has 75.6 IO/s at its reference, and beside the second 55.6.
    assert!(served >= 0.85 * (75.6 + 55.6) / 2.0, "{served}");
}
