//! Properties of a regulated resource that hold whatever is observed, and whenever.

use std::collections::BTreeSet;
use std::ops::Range;
use std::time::Duration;

use proptest::prelude::*;
use tidegate_control::{
    LawConfig, LawKind, LawOutput, LoopConfig, OperationTotals, PidConfig, SignalChoice, WindowConfig,
};
use tidegate_regulate::{
    DeviceLoad, EligibleConsumer, InFlight, RegulatedResource, SentLoad, StorageLoad, ThrottleKind,
};
use tidegate_units::{Bytes, ConsumerName, Instant, Iops, Latency, ResourceName};

const INTERVAL: Duration = Duration::from_millis(100);
const LONGEST: Latency = Latency::from_millis(100);
const FLOOR: Iops = Iops::new(2.0);
const NAMES: [&str; 3] = ["a", "b", "c"];

fn config(law: LawConfig) -> LoopConfig {
    let resource = ResourceName::new("disk").expect("a valid name");
    LoopConfig { interval: INTERVAL, ..LoopConfig::new(resource, Latency::from_millis(10), law) }
}

fn laws() -> impl Strategy<Value = LawConfig> {
    prop_oneof![
        Just(LawConfig::Pid(PidConfig::default())),
        Just(LawConfig::Window(WindowConfig::default())),
        Just(LawConfig::of_kind(LawKind::Auto)),
    ]
}

fn throttles() -> impl Strategy<Value = ThrottleKind> {
    prop_oneof![
        Just(ThrottleKind::Delay { longest: LONGEST }),
        Just(ThrottleKind::WriteDelay { longest: LONGEST }),
        Just(ThrottleKind::Rates { floor: FLOOR, longest: LONGEST }),
    ]
}

/// One thing that a sensor or an administrator does.
#[derive(Debug, Clone)]
enum Step {
    /// These of [`NAMES`] are eligible.
    Eligible(BTreeSet<usize>),
    /// Requests of a consumer, by its place, or of others complete.
    Complete(usize, StorageLoad),
    /// Requests are in flight.
    InFlight(usize, u32, Latency),
    /// Consumers send requests to a device that completes some.
    Send {
        at: u64,
        elapsed: u64,
        sent: OperationTotals,
        is_new: bool,
        device: DeviceLoad,
    },
    /// Time passes on one clock, and another one, which may jump, says what it is.
    Pass {
        elapsed: u64,
        now: u64,
    },
    /// A decision is made although none is due.
    Decide {
        now: u64,
    },
    Release,
}

fn operations() -> impl Strategy<Value = OperationTotals> {
    (any::<u32>(), any::<u64>(), any::<u64>()).prop_map(|(count, bytes, nanos)| OperationTotals {
        count: count.into(),
        bytes: Bytes::new(bytes),
        total_latency: Latency::from_nanos(nanos),
        ..OperationTotals::default()
    })
}

fn loads() -> impl Strategy<Value = StorageLoad> {
    (operations(), operations(), 0.0..1e6).prop_map(|(reads, writes, outstanding_seconds)| StorageLoad {
        reads,
        writes,
        outstanding_seconds,
    })
}

fn devices() -> impl Strategy<Value = DeviceLoad> {
    let some = |any| prop_oneof![Just(OperationTotals::default()), any];
    (some(operations().boxed()), some(operations().boxed()), 0..100_u64)
        .prop_map(|(reads, writes, in_flight)| DeviceLoad { reads, writes, in_flight })
}

fn steps() -> impl Strategy<Value = Step> {
    let nanos = || prop_oneof![0..2_000_000_000_u64, any::<u64>()];
    prop_oneof![
        prop::collection::btree_set(0..NAMES.len(), 0..=NAMES.len()).prop_map(Step::Eligible),
        (0..=NAMES.len(), loads()).prop_map(|(place, load)| Step::Complete(place, load)),
        (0..=NAMES.len(), 0..9_u32, nanos()).prop_map(|(place, count, age)| Step::InFlight(
            place,
            count,
            Latency::from_nanos(age)
        )),
        (nanos(), nanos(), operations(), any::<bool>(), devices())
            .prop_map(|(at, elapsed, sent, is_new, device)| Step::Send { at, elapsed, sent, is_new, device }),
        (nanos(), nanos()).prop_map(|(elapsed, now)| Step::Pass { elapsed, now }),
        nanos().prop_map(|now| Step::Decide { now }),
        Just(Step::Release),
    ]
}

fn name(name: &str) -> ConsumerName {
    ConsumerName::new(name).expect("a valid name")
}

fn set_consumers(resource: &mut RegulatedResource, places: impl IntoIterator<Item = usize>) {
    resource.set_consumers(places.into_iter().map(|place| EligibleConsumer::new(name(NAMES[place]))));
}

/// Carries out a step, and returns true if a decision was made.
fn follow(resource: &mut RegulatedResource, step: Step) -> bool {
    let place =
        |resource: &RegulatedResource, at: usize| Some(at).filter(|at| *at < resource.consumers().len());
    match step {
        Step::Eligible(places) => set_consumers(resource, places),
        Step::Complete(at, load) => resource.complete(place(resource, at), &load),
        Step::InFlight(at, count, age) => {
            let reads = InFlight { count, oldest: Some(age) };
            resource.in_flight(place(resource, at), reads, InFlight::default());
        }
        Step::Send { at, elapsed, sent, is_new, device } => {
            let sent = SentLoad { reads: sent, writes: sent };
            let sent: Vec<_> = (0..resource.consumers().len()).map(|place| (place, sent)).collect();
            let elapsed = Duration::from_nanos(elapsed);
            resource.send(Instant::from_nanos(at), elapsed, sent, is_new, &device);
        }
        Step::Pass { elapsed, now } => {
            let since = resource.pass(Duration::from_nanos(elapsed));
            if since.is_some() {
                resource.decide(Instant::from_nanos(now), None);
            }
            return since.is_some();
        }
        Step::Decide { now } => {
            resource.decide(Instant::from_nanos(now), None);
            return true;
        }
        Step::Release => resource.release(),
    }
    false
}

fn rates(resource: &RegulatedResource) -> Vec<Option<f64>> {
    let least = |limits: tidegate_regulate::DirectionLimits| {
        limits.reads.requests.per_second().min(limits.writes.requests.per_second())
    };
    resource.limits().map(|(_, limits)| limits.map(least)).collect()
}

proptest! {
    /// Clocks stand still, jump, and go back. No load is too great, and none too strange.
    #[test]
    fn whatever_happens_the_throttling_is_within_its_bounds(
        law in laws(), throttle in throttles(), steps in prop::collection::vec(steps(), 1..60),
    ) {
        let greatest = match &law {
            LawConfig::Pid(pid) => pid.greatest,
            _ => LONGEST,
        };
        let mut resource = RegulatedResource::new(config(law), throttle).unwrap();
        for step in steps {
            let decides = follow(&mut resource, step);
            prop_assert!(resource.delay() <= greatest, "{}", resource.delay());
            for rate in rates(&resource).into_iter().flatten() {
                // Each direction has a sixteenth of the rate at least.
                prop_assert!(rate >= FLOOR.per_second() / 16.0, "{}", rate);
            }
            let is_by_rates = matches!(throttle, ThrottleKind::Rates { .. });
            prop_assert!(is_by_rates || rates(&resource).iter().all(Option::is_none));
            if decides && let Some(decision) = resource.decision() {
                let is_window = matches!(decision.bounded, LawOutput::Window(_)) && !is_by_rates;
                let told = Some(resource.delay()).filter(|delay| is_window && *delay > Latency::ZERO);
                prop_assert_eq!(decision.delay, told.filter(|_| resource.consumers().len() > 0));
                prop_assert!(!is_window || told.is_some() || decision.held == 0);
            }
        }
    }

    /// On a dry run the loop decides, and has no say.
    #[test]
    fn without_a_say_of_the_loop_no_consumer_is_throttled(
        law in laws(), throttle in throttles(), steps in prop::collection::vec(steps(), 1..60),
    ) {
        let law = LoopConfig { dry_run: true, ..config(law) };
        let mut resource = RegulatedResource::new(law, throttle).unwrap();
        set_consumers(&mut resource, 0..NAMES.len());
        for step in steps {
            resource.impose(LONGEST);
            if follow(&mut resource, step) {
                prop_assert_eq!(resource.delay(), Latency::ZERO);
                prop_assert!(rates(&resource).iter().all(Option::is_none));
            }
        }
    }

    /// A throttle may ask for what is to be in force as often as it likes, and the same consumers may be
    /// named again.
    #[test]
    fn asking_again_and_naming_the_same_consumers_changes_nothing(
        throttle in throttles(), steps in prop::collection::vec(steps(), 1..40),
    ) {
        let law = || config(LawConfig::Pid(PidConfig::default()));
        let mut once = RegulatedResource::new(law(), throttle).unwrap();
        let mut again = RegulatedResource::new(law(), throttle).unwrap();
        for step in steps {
            follow(&mut once, step.clone());
            let names: Vec<_> = again.consumers().cloned().collect();
            again.set_consumers(names.into_iter().map(EligibleConsumer::new));
            let _ = (again.delay(), rates(&again));
            follow(&mut again, step);
            prop_assert_eq!(once.delay(), again.delay());
            prop_assert_eq!(rates(&once), rates(&again));
            prop_assert_eq!(once.decision(), again.decision());
        }
    }

    /// However time is cut into samples, an interval has one decision.
    #[test]
    fn decisions_come_once_in_an_interval(samples in prop::collection::vec(1..100_u64, 1..200)) {
        let law = config(LawConfig::Pid(PidConfig::default()));
        let mut resource = RegulatedResource::new(law, ThrottleKind::Delay { longest: LONGEST }).unwrap();
        let (mut elapsed, mut decisions) = (Duration::ZERO, 0_u32);
        for millis in samples {
            let sample = Duration::from_millis(millis);
            elapsed += sample;
            let now = Instant::from_nanos(elapsed.as_nanos() as u64);
            decisions += u32::from(follow(&mut resource,
                Step::Pass { elapsed: millis * 1_000_000, now: now.as_nanos() }));
        }
        // A sample counts for the interval that it ends nearest to: each decision is off by half a sample.
        let least = elapsed.as_secs_f64() / 0.15 - 1.0;
        let most = elapsed.as_secs_f64() / 0.05 + 1.0;
        prop_assert!((least..=most).contains(&f64::from(decisions)), "{} in {:?}", decisions, elapsed);
    }
}

fn done(count: u64, millis: u64) -> OperationTotals {
    OperationTotals {
        count,
        bytes: Bytes::new(count * 4_096),
        total_latency: Latency::from_millis(count * millis),
        ..OperationTotals::default()
    }
}

/// Reads of others that take 50 ms where 10 ms are promised, beside the writes of `a`.
fn slow(resource: &mut RegulatedResource, from: u64, seconds: u64) -> u64 {
    let end = from + seconds * 10;
    for tenth in from..end {
        let reads = StorageLoad { reads: done(20, 50), outstanding_seconds: 1.0, ..StorageLoad::default() };
        let writes = StorageLoad { writes: done(20, 50), outstanding_seconds: 1.0, ..StorageLoad::default() };
        resource.complete(None, &reads);
        resource.complete(resource.place_of(&name("a")), &writes);
        if resource.pass(INTERVAL).is_some() {
            resource.decide(Instant::from_nanos(tenth * 100_000_000), None);
        }
    }
    end
}

/// Creates a resource with the consumer `a`, which the law `auto` regulates by a delay of packets.
fn by_auto(target: Latency) -> RegulatedResource {
    let law = LoopConfig { target, signal: SignalChoice::Reads, ..config(LawConfig::of_kind(LawKind::Auto)) };
    let mut resource =
        RegulatedResource::new(law, ThrottleKind::Delay { longest: LONGEST }).expect("a valid law");
    set_consumers(&mut resource, [0]);
    resource
}

/// The storage beside a delay: closed loops of `outstanding` writes, and a reader that waits for as long as
/// they do.
#[derive(Debug, Clone, Copy)]
struct ClosedLoops {
    outstanding: f64,
    /// Requests that the storage completes in a second, and the time that one takes at least.
    capacity: f64,
    service: f64,
    /// The number of times that a write waits for the delay.
    waits: f64,
}

/// A tenth of a second of these loops.
#[derive(Debug, Clone, Copy)]
struct Tenth {
    latency: f64,
    /// Writes per second.
    completed: f64,
}

impl ClosedLoops {
    /// Lets the loops run in these seconds under the delays that a resource puts into force.
    fn run(self, resource: &mut RegulatedResource, seconds: Range<u64>) -> Vec<Tenth> {
        let mut tenths = Vec::new();
        for tenth in seconds.start * 10 + 1..=seconds.end * 10 {
            let delay = self.waits * resource.delay().as_secs_f64();
            let completed = self.capacity.min(self.outstanding / (self.service + delay));
            let latency = self.outstanding / completed - delay;
            tenths.push(Tenth { latency, completed });
            let done = |per_second: f64| OperationTotals {
                count: (per_second / 10.0).round() as u64,
                bytes: Bytes::new(4_096),
                total_latency: Latency::from_secs_f64((per_second / 10.0).round() * latency),
                ..OperationTotals::default()
            };
            let reads = StorageLoad { reads: done(60.0), ..StorageLoad::default() };
            let outstanding_seconds = 0.1 * completed * latency;
            let writes =
                StorageLoad { writes: done(completed), outstanding_seconds, ..StorageLoad::default() };
            resource.complete(None, &reads);
            resource.complete(resource.place_of(&name("a")), &writes);
            if resource.pass(INTERVAL).is_some() {
                resource.decide(Instant::from_nanos(tenth * 100_000_000), None);
            }
        }
        tenths
    }
}

proptest! {
    /// However fast the storage is, and however deep the queue. The greatest delay has to suffice.
    #[test]
    fn by_auto_a_delay_of_packets_keeps_the_target_and_no_more(
        outstanding in 8.0..60.0, capacity in 400.0..2_000.0, part in 1.3..4.0,
    ) {
        let free = outstanding / capacity;
        prop_assume!(free < 0.09);
        let target = Latency::from_secs_f64(free / part);
        let mut resource = by_auto(target);
        let loops = ClosedLoops { outstanding, capacity, service: 0.3 * target.as_secs_f64(), waits: 1.0 };
        for tenth in &loops.run(&mut resource, 0..60)[500..] {
            let part = tenth.latency / target.as_secs_f64();
            prop_assert!((0.6..=1.0).contains(&part), "{} of the target", part);
        }
    }
}

#[test]
fn a_delay_ends_with_the_load_that_it_was_for() {
    let mut resource = by_auto(Latency::from_millis(10));
    let many = ClosedLoops { outstanding: 24.0, capacity: 500.0, service: 0.003, waits: 1.0 };
    many.run(&mut resource, 0..20);
    assert!(resource.delay() > Latency::ZERO);
    let few = ClosedLoops { outstanding: 2.0, ..many };
    few.run(&mut resource, 20..40);
    assert_eq!(resource.delay(), Latency::ZERO, "two writes disturb no read");
    many.run(&mut resource, 40..60);
    set_consumers(&mut resource, []);
    few.run(&mut resource, 60..61);
    assert_eq!(resource.delay(), Latency::ZERO, "no consumer is left");
}

#[test]
fn how_often_a_write_waits_is_remembered_from_one_throttling_to_the_next() {
    let mut resource = by_auto(Latency::from_millis(10));
    let many = ClosedLoops { outstanding: 24.0, capacity: 500.0, service: 0.003, waits: 4.0 };
    let few = ClosedLoops { outstanding: 2.0, ..many };
    let completed = |tenths: &[Tenth]| tenths.iter().map(|tenth| tenth.completed).sum::<f64>();
    let first = many.run(&mut resource, 0..20);
    few.run(&mut resource, 20..40);
    assert_eq!(resource.delay(), Latency::ZERO);
    let second = many.run(&mut resource, 40..60);
    assert!(completed(&second) > 1.1 * completed(&first), "the first delay is about right");
    assert!(second.iter().all(|tenth| tenth.completed > 0.7 * many.capacity));

    // A number that is wrong costs no more than none: here each write waits but once.
    few.run(&mut resource, 60..80);
    let third = ClosedLoops { waits: 1.0, ..many }.run(&mut resource, 80..100);
    let target = resource.law().target.as_secs_f64();
    assert!(third[15..].iter().all(|tenth| tenth.latency <= target));
}

#[test]
fn a_release_lasts_until_the_next_decision() {
    let law = config(LawConfig::Pid(PidConfig::default()));
    let mut resource = RegulatedResource::new(law, ThrottleKind::Delay { longest: LONGEST }).unwrap();
    set_consumers(&mut resource, [0]);
    let now = slow(&mut resource, 1, 3);
    assert!(resource.delay() > Latency::ZERO);
    resource.release();
    assert_eq!(resource.delay(), Latency::ZERO);
    slow(&mut resource, now, 1);
    assert!(resource.delay() > Latency::ZERO);
}

#[test]
fn the_load_of_a_consumer_that_is_no_longer_eligible_becomes_the_others() {
    let law = config(LawConfig::Pid(PidConfig::default()));
    let mut resource = RegulatedResource::new(law, ThrottleKind::Delay { longest: LONGEST }).unwrap();
    set_consumers(&mut resource, [0, 1]);
    let load = StorageLoad { reads: done(20, 4), ..StorageLoad::default() };
    resource.complete(Some(0), &load);
    resource.complete(Some(1), &load);
    set_consumers(&mut resource, [1, 2]);
    assert_eq!(resource.consumers().map(ToString::to_string).collect::<Vec<_>>(), ["b", "c"]);
    assert_eq!((resource.place_of(&name("a")), resource.place_of(&name("c"))), (None, Some(1)));
    assert_eq!(resource.totals().reads.count, 40);
    assert!(resource.pass(INTERVAL).is_some());
    let decision = resource.decide(Instant::from_nanos(100_000_000), None);
    assert_eq!(decision.throttled, 2);
}
