//! The whole loop against processes that answer, and its rules for silence, clocks and churn.

use std::time::Duration;

use tidegate_control::{
    AutoConfig, Commands, ConsumerObservation, ControlLoop, Decision, LawAction, LawConfig, LawOutput,
    LoopConfig, MeanOutstanding, Observation, OperationTotals, OutputBound, PidConfig, SignalChoice,
    SignalRequests, SignalState, Smoothing, WindowConfig,
};
use tidegate_units::{Bytes, ConsumerName, Instant, Latency, ResourceName, Shares, Window};

const INTERVAL: Latency = Latency::from_millis(250);
const PID: fn() -> LawConfig = || LawConfig::Pid(PidConfig::default());
const WINDOW: fn() -> LawConfig = || LawConfig::Window(WindowConfig::default());

const fn ms(millis: u64) -> Latency {
    Latency::from_millis(millis)
}

fn config(law: LawConfig) -> LoopConfig {
    LoopConfig::new(ResourceName::new("sata").unwrap(), ms(15), law)
}

fn start(law: LawConfig) -> ControlLoop {
    ControlLoop::new(config(law)).unwrap()
}

fn done(count: u64, mean: Latency) -> OperationTotals {
    OperationTotals {
        count,
        bytes: Bytes::new(count * 4_096),
        total_latency: Latency::from_nanos(count * mean.as_nanos()),
        ..OperationTotals::default()
    }
}

fn flying(oldest: Latency) -> OperationTotals {
    OperationTotals { in_flight: 1, oldest_in_flight: Some(oldest), ..OperationTotals::default() }
}

fn reader(reads: OperationTotals) -> ConsumerObservation {
    let idle = ConsumerObservation::idle(ConsumerName::new("database").unwrap(), Shares::DEFAULT, true);
    ConsumerObservation { reads, mean_outstanding: MeanOutstanding::new(1.0), ..idle }
}

fn writer(index: usize, depth: f64) -> ConsumerObservation {
    let name = ConsumerName::new(&format!("backup-{index}")).unwrap();
    ConsumerObservation {
        writes: done(20, ms(20)),
        mean_outstanding: MeanOutstanding::new(depth),
        queued: 1,
        ..ConsumerObservation::idle(name, Shares::DEFAULT, false)
    }
}

/// A loop and its clock.
struct Run {
    control: ControlLoop,
    now: Instant,
}

impl Run {
    fn new(control: ControlLoop) -> Self {
        Self { control, now: Instant::from_nanos(7) }
    }

    fn step(&mut self, consumers: Vec<ConsumerObservation>) -> (Commands, Decision) {
        self.now = self.now + INTERVAL;
        let observation = Observation::new(self.control.config().resource.clone(), self.now, consumers);
        self.control.step(self.now, &observation)
    }

    /// A reader at `mean`, twelve busy writers.
    fn busy(&mut self, mean: Latency) -> (Commands, Decision) {
        self.with_reads(done(16, mean))
    }

    fn with_reads(&mut self, reads: OperationTotals) -> (Commands, Decision) {
        self.step(std::iter::once(reader(reads)).chain((0..12).map(|index| writer(index, 4.0))).collect())
    }

    /// Held tightly, by some intervals far above the target.
    fn held(law: LawConfig) -> Self {
        let mut run = Self::new(start(law));
        for _ in 0..8 {
            run.busy(ms(100));
        }
        run
    }
}

fn strictness(commands: &Commands) -> f64 {
    let delay = commands.consumers.iter().filter_map(|consumer| consumer.delay).max();
    delay.map_or(0.0, Latency::as_millis_f64) + commands.window.map_or(0.0, |window| 1.0 / window.get())
}

/// A closed network by exact mean value analysis: `requests` go round a queue and a delay. At most `window`
/// of them are at the queue, whose work is the sooner done the fewer they are.
fn response(requests: u32, window: f64, service: f64, delay: f64) -> f64 {
    let (mut queue, mut response) = (0.0, 0.0);
    for n in 1..=requests {
        response = service * (1.0 + queue);
        queue = response * f64::from(n) / (response + delay);
    }
    // A window cuts the queue; its fractions count.
    response.min(service * (1.0 + window))
}

#[test]
fn both_laws_bring_the_protected_reads_below_their_target_and_no_lower_than_needed() {
    for law in [PID(), WINDOW()] {
        let mut run = Run::new(start(law));
        let (mut window, mut delay) = (64.0, 0.0);
        let mut trace = Vec::new();
        for _ in 0..240 {
            let seen = response(48, window, 0.0025, delay);
            trace.push(seen * 1e3);
            let (commands, _) = run.busy(Latency::from_secs_f64(seen));
            window = commands.window.map_or(64.0, Window::get);
            delay = commands.consumers[1].delay.map_or(0.0, Latency::as_secs_f64);
        }
        assert!(trace[0] > 100.0, "unregulated: {trace:?}");
        let settled = trace.iter().rposition(|seen| *seen > 15.0).unwrap() + 1;
        assert!(settled <= 12, "three seconds at most: {trace:?}");
        let last = trace[239];
        assert!((11.0..=13.0).contains(&last), "{last}");
    }
}

#[test]
fn nothing_is_held_while_the_target_is_met() {
    for law in [PID(), WINDOW()] {
        let mut run = Run::new(start(law));
        for _ in 0..100 {
            let (commands, decision) = run.busy(ms(8));
            assert!(commands.window.is_none_or(|window| window == Window::new(64.0)));
            assert!(commands.consumers.iter().all(|consumer| consumer.delay.is_none()));
            assert_eq!(decision.action, LawAction::Regulate);
        }
    }
}

#[test]
fn silence_with_an_old_request_in_flight_is_overload() {
    for law in [PID(), WINDOW()] {
        let mut run = Run::new(start(law));
        let (before, _) = run.busy(ms(5));
        let (after, decision) = run.with_reads(flying(ms(900)));
        assert_eq!(decision.input, SignalState::Overload { oldest: ms(900) });
        assert_eq!(decision.estimate, Some(ms(900)));
        assert!(strictness(&after) > strictness(&before));
    }
}

#[test]
fn silence_with_a_young_request_in_flight_is_unknown_and_changes_nothing() {
    for law in [PID(), WINDOW()] {
        let mut run = Run::held(law);
        let (before, _) = run.busy(ms(100));
        for _ in 0..50 {
            let (after, decision) = run.with_reads(flying(ms(3)));
            assert_eq!((decision.input, decision.action), (SignalState::Unknown, LawAction::Hold));
            assert_eq!(before, after);
        }
    }
}

#[test]
fn silence_with_nothing_outstanding_lets_go_by_halves() {
    for law in [PID(), WINDOW()] {
        let mut run = Run::held(law);
        let (held, _) = run.busy(ms(100));
        let mut last = strictness(&held);
        for interval in 1..=240 {
            let (commands, decision) = run.with_reads(OperationTotals::default());
            assert_eq!((decision.input, decision.action), (SignalState::Idle, LawAction::Relax));
            let now = strictness(&commands);
            assert!(now <= last, "interval {interval}");
            if interval == 8
                && let Some(delay) = commands.consumers[0].delay
            {
                let half = strictness(&held) / 2.0;
                assert!((delay.as_millis_f64() - half).abs() <= 0.5, "{delay} after two seconds");
            }
            last = now;
        }
        assert!(last <= 1.0 / 64.0 + 1e-3, "a minute later nothing is left: {last}");
    }
}

#[test]
fn the_first_sample_after_a_pause_counts_in_full() {
    let mut run = Run::held(PID());
    for _ in 0..8 {
        run.with_reads(OperationTotals::default());
    }
    let (_, decision) = run.busy(ms(4));
    assert_eq!(decision.estimate, Some(ms(4)));
}

#[test]
fn a_single_silent_interval_of_a_slow_reader_is_no_pause() {
    let mut run = Run::held(PID());
    run.with_reads(OperationTotals::default());
    let (_, decision) = run.busy(ms(4));
    // Half a second at a time constant of 0.2 s: exp(−2.5) of the past is left.
    let estimate = decision.estimate.unwrap().as_millis_f64();
    assert!((estimate - (4.0 + 96.0 * (-0.5_f64 / 0.2).exp())).abs() < 0.05, "{estimate}");
}

#[test]
fn writes_of_a_protected_consumer_are_not_the_signal() {
    let mut run = Run::new(start(PID()));
    let mut database = reader(done(16, ms(5)));
    database.writes = OperationTotals { in_flight: 1, ..done(100, ms(500)) };
    let (_, decision) = run.step(vec![database.clone(), writer(0, 4.0)]);
    assert_eq!((decision.input, decision.measured), (SignalState::Samples { count: 16 }, Some(ms(5))));
    database.reads = OperationTotals::default();
    let (_, decision) = run.step(vec![database, writer(0, 4.0)]);
    assert_eq!(decision.input, SignalState::Idle);
}

#[test]
fn with_nobody_protected_everything_is_the_signal_weighted_by_count() {
    let mut run = Run::new(start(WINDOW()));
    let mut first = writer(0, 4.0);
    first.reads = done(30, ms(10));
    first.writes = done(10, ms(50));
    let (commands, decision) = run.step(vec![first]);
    assert_eq!((decision.signal, decision.measured), (SignalRequests::Everything, Some(ms(20))));
    assert_eq!(commands.consumers.len(), 1);
}

#[test]
fn with_reads_as_the_signal_whoever_reads_counts_and_whoever_writes_is_held() {
    let mut run =
        Run::new(ControlLoop::new(LoopConfig { signal: SignalChoice::Reads, ..config(PID()) }).unwrap());
    // One only reads and is in nobody's way; the other does both, and is to be held for its writes.
    let mut both = writer(0, 4.0);
    both.reads = done(10, ms(40));
    let (commands, decision) = run.step(vec![reader(done(30, ms(20))), both.clone()]);
    assert_eq!((decision.signal, decision.measured), (SignalRequests::Reads, Some(ms(25))));
    assert_eq!(commands.consumers.iter().filter(|consumer| consumer.delay.is_some()).count(), 1);
    assert!(decision.to_string().contains("reads 25.0ms against 12.0ms: writers throttled"), "{decision}");
    // Writes alone say nothing about what was promised.
    both.reads = OperationTotals::default();
    let (_, decision) = run.step(vec![both]);
    assert_eq!(decision.input, SignalState::Idle);
}

#[test]
fn when_the_last_protected_consumer_leaves_its_average_leaves_too() {
    let mut run = Run::new(start(WINDOW()));
    run.busy(ms(5));
    let (_, decision) = run.step(vec![writer(0, 4.0)]);
    assert_eq!((decision.signal, decision.estimate), (SignalRequests::Everything, Some(ms(20))));
}

#[test]
fn requests_that_wait_for_the_throttle_are_not_idleness() {
    let mut run = Run::new(start(WINDOW()));
    let mut waiting = writer(0, 4.0);
    waiting.writes = OperationTotals::default();
    waiting.queued = 3;
    let (_, decision) = run.step(vec![waiting]);
    assert_eq!(decision.input, SignalState::Unknown);
}

#[test]
fn larger_requests_are_not_taken_for_more_load_when_normalised() {
    let estimate = |normalise| {
        let config =
            LoopConfig { normalise, smoothing: Smoothing::TimeConstant(Duration::ZERO), ..config(WINDOW()) };
        let mut run = Run::new(ControlLoop::new(config).unwrap());
        // 5 ms and 50 µs per KiB: 5.2 ms at 4 KiB, 17.8 ms at 256 KiB.
        let sized = |kib: u64| OperationTotals {
            bytes: Bytes::from_kib(10 * kib),
            ..done(10, Latency::from_micros(5_000 + 50 * kib))
        };
        for kib in [4, 256, 4, 256] {
            run.step(vec![ConsumerObservation { writes: sized(kib), ..writer(0, 4.0) }]);
        }
        let (_, decision) = run.step(vec![ConsumerObservation { writes: sized(256), ..writer(0, 4.0) }]);
        decision.estimate.unwrap().as_millis_f64()
    };
    assert!((estimate(false) - 17.8).abs() < 0.01);
    assert!((estimate(true) - 5.4).abs() < 0.01, "{}", estimate(true));
}

#[test]
fn a_clock_that_stands_or_jumps_back_holds_the_command() {
    for law in [PID(), WINDOW()] {
        let mut run = Run::held(law);
        let (before, _) = run.busy(ms(100));
        for back in [Duration::ZERO, Duration::from_secs(3_600)] {
            run.now = run.now - INTERVAL.to_duration() - back;
            let (after, decision) = run.busy(ms(1));
            assert_eq!((decision.input, decision.elapsed), (SignalState::NoTime, Latency::ZERO));
            assert_eq!(before, after);
        }
        // Time goes on from where the clock is now, not only once it has caught up.
        assert_eq!(run.busy(ms(100)).1.elapsed, INTERVAL);
    }
}

#[test]
fn a_leap_forward_counts_ten_intervals() {
    let mut run = Run::held(PID());
    run.now = run.now + Duration::from_secs(86_400);
    let (commands, decision) = run.with_reads(OperationTotals::default());
    assert_eq!(decision.elapsed, Latency::from_millis(2_500));
    assert!(strictness(&commands) > 0.0, "not everything was let go");
}

#[test]
fn a_consumer_is_never_delayed_below_its_floor_rate() {
    let mut run = Run::new(start(PID()));
    let mut last = None;
    for _ in 0..20 {
        last = Some(run.step(vec![reader(done(16, ms(5_000))), writer(0, 0.1), writer(1, 8.0)]));
    }
    let (commands, decision) = last.unwrap();
    // 0.1 outstanding at 2 IO/s bear 50 ms; the other one's share of the law's second is not cut.
    let delays: Vec<_> = commands.consumers.iter().map(|consumer| consumer.delay).collect();
    assert_eq!(delays, [Some(ms(50)), Some(ms(1_000))]);
    // 2 IO/s of the one and 8 IO/s of the other: together one request every 100 ms.
    assert_eq!(commands.spacing, Some(ms(100)));
    assert_eq!((decision.held, decision.throttled, decision.bound), (2, 2, Some(OutputBound::Greatest)));
}

#[test]
fn with_nobody_to_hold_there_are_no_commands_and_nothing_winds_up() {
    for law in [PID(), WINDOW()] {
        let mut run = Run::new(start(law));
        for _ in 0..100 {
            let (commands, decision) = run.step(vec![reader(done(16, ms(500)))]);
            assert_eq!(commands, Commands::default());
            assert_eq!((decision.throttled, decision.action), (0, LawAction::Relax));
        }
        // The first of the others is not met by a gate that closed while it was away.
        for _ in 0..8 {
            run.step(vec![reader(done(16, ms(8)))]);
        }
        let (commands, _) = run.busy(ms(8));
        assert!(strictness(&commands) < 0.02, "{commands:?}");
    }
}

#[test]
fn writers_that_stopped_do_not_stay_held_for_ever() {
    for law in [PID(), WINDOW()] {
        let mut run = Run::held(law);
        let mut resting = writer(0, 0.0);
        resting.writes = OperationTotals::default();
        resting.queued = 0;
        for _ in 0..240 {
            run.step(vec![reader(done(16, ms(13))), resting.clone()]);
        }
        let (commands, decision) = run.step(vec![reader(done(16, ms(13))), resting]);
        assert_eq!(decision.held, 0);
        assert!(strictness(&commands) < 0.02, "{commands:?}");
    }
}

#[test]
fn dry_run_says_what_it_would_do_and_does_nothing() {
    let mut run = Run::held(PID());
    let dry = LoopConfig { dry_run: true, ..run.control.config().clone() };
    run.control.reconfigure(dry).unwrap();
    let (commands, decision) = run.busy(ms(100));
    assert!(commands.window.is_none() && commands.consumers.iter().all(|consumer| consumer.delay.is_none()));
    assert!(matches!(decision.bounded, LawOutput::Delay(delay) if delay > ms(100)));
    assert!(decision.to_string().contains("would be throttled by up to"), "{decision}");
    assert_eq!(decision.held, 12);
}

/// On a dry run throttling has no effect, and so a law asks for ever more of it.
#[test]
fn after_a_dry_run_a_law_begins_as_if_it_were_new() {
    for law in [PID(), WINDOW(), AutoConfig::default().into()] {
        let mut run = Run::held(law);
        let real = run.control.config().clone();
        run.control.reconfigure(LoopConfig { dry_run: true, ..real.clone() }).unwrap();
        for _ in 0..100 {
            run.busy(ms(100));
        }
        run.control.reconfigure(real).unwrap();
        let (commands, _) = run.with_reads(flying(ms(1)));
        assert!(strictness(&commands) < 0.02, "{commands:?}");
    }
}

#[test]
fn a_new_target_or_bound_does_not_make_the_command_jump() {
    for law in [PID(), WINDOW()] {
        let mut run = Run::held(law);
        let (before, _) = run.busy(ms(100));
        let softer = LoopConfig { target: ms(20), ..run.control.config().clone() };
        run.control.reconfigure(softer).unwrap();
        // Young requests in flight: the command shown is the one in force.
        let (after, _) = run.with_reads(flying(ms(1)));
        assert_eq!(before, after);
    }
}

#[test]
fn a_configuration_that_is_not_valid_changes_nothing() {
    let mut run = Run::held(PID());
    let (before, _) = run.busy(ms(100));
    let wrong = LoopConfig { set_point_ratio: f64::NAN, ..run.control.config().clone() };
    assert!(run.control.reconfigure(wrong).is_err());
    assert_eq!(run.with_reads(flying(ms(1))).0, before);
}

#[test]
fn another_kind_of_law_begins_open() {
    let mut run = Run::held(PID());
    run.control.reconfigure(config(WINDOW())).unwrap();
    let (commands, _) = run.with_reads(flying(ms(1)));
    assert_eq!(commands.window, Some(Window::new(64.0)));
    assert!(commands.consumers.iter().all(|consumer| consumer.delay.is_none()));
}

#[test]
fn what_is_not_a_configuration_is_refused() {
    let refused = |change: fn(&mut LoopConfig)| {
        let mut config = config(PID());
        change(&mut config);
        ControlLoop::new(config).unwrap_err().to_string()
    };
    assert!(refused(|c| c.target = Latency::ZERO).contains("target"));
    assert!(refused(|c| c.set_point_ratio = 1.5).contains("set point ratio"));
    assert!(refused(|c| c.interval = Duration::ZERO).contains("control interval"));
    assert!(refused(|c| c.idle_half_life = Duration::ZERO).contains("half-life"));
    assert!(refused(|c| c.smoothing = Smoothing::PerInterval { past_weight: 1.0 }).contains("past"));
    assert!(
        refused(|c| c.law = LawConfig::Window(WindowConfig { gamma: 2.0, ..WindowConfig::default() }))
            .contains("gamma")
    );
}
