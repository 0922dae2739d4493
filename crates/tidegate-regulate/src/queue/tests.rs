//! The queue against a model that remembers every request, and the way of commands.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use proptest::prelude::*;
use tidegate_control::{AutoConfig, Contract, IntegralConfig, LawConfig, LawKind, Observation};
use tidegate_sched::{BeyondLimit, ConsumerLimit, Discipline};
use tidegate_units::{ConsumerName, Iops, ResourceName};

use super::*;
use crate::request::OperationKind;

const EXTENT: StorageExtent = StorageExtent { offset: 0, bytes: 4_096 };
const CONSUMERS: usize = 3;

/// All response times, sorted when they are asked for.
#[derive(Debug, Default)]
struct ExactSamples(Vec<Latency>);

impl LatencySamples for ExactSamples {
    fn record(&mut self, latency: Latency) {
        self.0.push(latency);
    }

    fn take_quantile(&mut self, fraction: f64) -> Option<Latency> {
        let mut samples = std::mem::take(&mut self.0);
        samples.sort_unstable();
        let rank = (samples.len() as f64 * fraction).ceil() as usize;
        samples.get(rank.saturating_sub(1)).copied()
    }
}

type Account = ConsumerAccount<ExactSamples>;

fn at(millis: u64) -> Instant {
    Instant::from_nanos(millis * 1_000_000)
}

fn terms(name: &str) -> ConsumerTerms {
    ConsumerTerms::new(ConsumerName::new(name).unwrap())
}

fn contract(iops: f64, millis: u64) -> Option<Contract> {
    let response_time = Latency::from_millis(millis);
    Some(Contract::new(Iops::new(iops), response_time, response_time).unwrap())
}

fn integral_law() -> LoopConfig {
    let law = LawConfig::Integral(IntegralConfig::default());
    LoopConfig::new(ResourceName::new("pool").unwrap(), Latency::from_millis(35), law)
}

fn queue<T: fmt::Debug>(law: Option<LoopConfig>, depth: f64) -> RegulatedQueue<T> {
    let scheduler = SfqConfig { discipline: Discipline::FinishTags, batch: None, ..SfqConfig::default() };
    let depth = Window::new(depth);
    let config =
        QueueConfig { scheduler, depth, release: BucketRelease::default(), law, starts_throttled: true };
    RegulatedQueue::new(config).unwrap()
}

fn completed(released: Instant, dispatched: Instant) -> CompletedRequest {
    let kind = Some(OperationKind::Read);
    CompletedRequest { kind, bytes: 4_096, released, dispatched, is_sample: true }
}

/// Steps the loop, and carries out its commands.
fn step(queue: &mut RegulatedQueue<u32>, accounts: &mut [Account], now: Instant) -> Observation {
    let consumers = accounts.iter_mut().map(|account| queue.observe(account, [None; 2], now)).collect();
    let observation = Observation::new(ResourceName::new("pool").unwrap(), now, consumers);
    let (mut commands, _) = queue.decide(&observation).unwrap();
    for account in accounts {
        queue.carry_out(&mut commands, account, now);
    }
    observation
}

#[derive(Debug, Clone)]
enum Action {
    Enqueue(usize),
    Pull,
    /// Completes the oldest request at the resource of a consumer.
    Complete(usize, bool),
    Cancel(usize, u32),
    Lend(usize),
    Borrow(usize),
    Step,
    /// Switches the law off or on.
    Law(bool),
    Exempt {
        consumer: usize,
        protected: bool,
        released: bool,
    },
    Wait(u64),
}

fn action() -> impl Strategy<Value = Action> {
    let consumer = || 0..CONSUMERS;
    prop_oneof![
        6 => consumer().prop_map(Action::Enqueue),
        6 => Just(Action::Pull),
        6 => (consumer(), any::<bool>()).prop_map(|(consumer, sample)| Action::Complete(consumer, sample)),
        1 => (consumer(), 1u32..4).prop_map(|(consumer, divisor)| Action::Cancel(consumer, divisor)),
        1 => consumer().prop_map(Action::Lend),
        1 => consumer().prop_map(Action::Borrow),
        2 => Just(Action::Step),
        1 => any::<bool>().prop_map(Action::Law),
        1 => (consumer(), any::<bool>(), any::<bool>())
            .prop_map(|(consumer, protected, released)| Action::Exempt { consumer, protected, released }),
        4 => (0u64..400).prop_map(Action::Wait),
    ]
}

/// The requests as the model remembers them.
#[derive(Default)]
struct Model {
    queued: [BTreeMap<u32, Instant>; CONSUMERS],
    /// Release and dispatch of each request at the resource.
    in_flight: [VecDeque<(Instant, Instant)>; CONSUMERS],
    /// Samples since the last observation: latencies at the resource.
    samples: [Vec<Latency>; CONSUMERS],
    /// Milliseconds since the last observation, each with the requests outstanding in it.
    history: [Vec<usize>; CONSUMERS],
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Every request that is queued leaves exactly once, and an observation reports exactly the requests
    /// since the one before.
    #[test]
    fn the_accounts_are_those_of_a_model_that_remembers_every_request(
        actions in prop::collection::vec(action(), 1..200),
    ) {
        let mut queue = queue::<u32>(Some(integral_law()), 2.0);
        let mut all: Vec<ConsumerTerms> = ["a", "b", "c"].map(terms).into();
        all[0].contract = contract(40.0, 35);
        let mut accounts: Vec<Account> =
            all.iter().map(|terms| queue.add(terms.clone(), at(0))).collect();
        let mut model = Model::default();
        let (mut millis, mut next) = (0u64, 0u32);
        for action in actions {
            let now = at(millis);
            match action {
                Action::Enqueue(consumer) => {
                    let _ = queue.enqueue(&mut accounts[consumer], next, EXTENT, now);
                    model.queued[consumer].insert(next, now);
                    next += 1;
                }
                Action::Pull => {
                    if let PullAnswer::Request { flow, request, released } = queue.pull(now) {
                        let consumer = accounts.iter().position(|account| account.flow == flow).unwrap();
                        let arrived = model.queued[consumer].remove(&request);
                        prop_assert!(arrived.is_some(), "request {} was not queued", request);
                        prop_assert!(arrived.unwrap() <= released && released <= now);
                        let counts = accounts[consumer].dispatched(Some(OperationKind::Read), released, now);
                        prop_assert_eq!(counts, released, "a bucket has released it");
                        model.in_flight[consumer].push_back((released, now));
                    }
                }
                Action::Complete(consumer, is_sample) => {
                    if let Some((released, dispatched)) = model.in_flight[consumer].pop_front() {
                        let request = CompletedRequest { is_sample, ..completed(released, dispatched) };
                        queue.completed(&mut accounts[consumer], &request, now);
                        if is_sample {
                            model.samples[consumer].push(now.latency_since(dispatched));
                        }
                    }
                }
                Action::Cancel(consumer, divisor) => {
                    let gone = |request: &u32| request.is_multiple_of(divisor);
                    let mut cancelled = queue.cancel(&mut accounts[consumer], now, gone);
                    cancelled.sort_unstable();
                    let expected: Vec<u32> =
                        model.queued[consumer].keys().copied().filter(|request| gone(request)).collect();
                    prop_assert_eq!(&cancelled, &expected);
                    cancelled.iter().for_each(|request| {
                        model.queued[consumer].remove(request);
                    });
                }
                Action::Lend(consumer) => {
                    queue.lend_slots(&mut accounts[consumer], now);
                    prop_assert_eq!(accounts[consumer].lent(), accounts[consumer].in_flight());
                }
                Action::Borrow(consumer) => {
                    accounts[consumer].borrow_slot(now);
                    let _ = accounts[consumer].dispatched(Some(OperationKind::Read), now, now);
                    model.in_flight[consumer].push_back((now, now));
                }
                Action::Step => {
                    if queue.law().is_none() {
                        continue;
                    }
                    let observation = step(&mut queue, &mut accounts, now);
                    for (consumer, observed) in observation.consumers.iter().enumerate() {
                        let samples = std::mem::take(&mut model.samples[consumer]);
                        let history = std::mem::take(&mut model.history[consumer]);
                        let total: u64 = samples.iter().map(|latency| latency.as_nanos()).sum();
                        prop_assert_eq!(observed.reads.count, samples.len() as u64);
                        prop_assert_eq!(observed.reads.bytes.get(), samples.len() as u64 * 4_096);
                        prop_assert_eq!(observed.reads.total_latency.as_nanos(), total);
                        prop_assert_eq!(observed.reads.in_flight as usize, model.in_flight[consumer].len());
                        prop_assert_eq!(observed.writes.count, 0);
                        prop_assert_eq!(observed.queued as usize, model.queued[consumer].len());
                        let expected = if history.is_empty() {
                            (model.queued[consumer].len() + model.in_flight[consumer].len()) as f64
                        } else {
                            history.iter().sum::<usize>() as f64 / history.len() as f64
                        };
                        let mean = observed.mean_outstanding.get();
                        prop_assert!((mean - expected).abs() < 1e-6, "{} instead of {}", mean, expected);
                    }
                }
                Action::Law(on) => {
                    let law = on.then(integral_law);
                    queue.reconfigure(Window::new(2.0), BucketRelease::default(), law.as_ref(), now).unwrap();
                    for account in &mut accounts {
                        queue.settle(account, now);
                        prop_assert_eq!(account.rates().is_some(), on);
                    }
                }
                Action::Exempt { consumer, protected, released } => {
                    let terms = ConsumerTerms { protected, released, ..all[consumer].clone() };
                    queue.reconfigure_consumer(&mut accounts[consumer], terms, now);
                    queue.settle(&mut accounts[consumer], now);
                }
                Action::Wait(wait) => {
                    for consumer in 0..CONSUMERS {
                        let outstanding = model.queued[consumer].len() + model.in_flight[consumer].len();
                        model.history[consumer].extend(std::iter::repeat_n(outstanding, wait as usize));
                    }
                    millis += wait;
                }
            }
            for (consumer, account) in accounts.iter().enumerate() {
                prop_assert_eq!(account.queued() as usize, model.queued[consumer].len());
                prop_assert_eq!(account.in_flight() as usize, model.in_flight[consumer].len());
                let outstanding = model.queued[consumer].len() + model.in_flight[consumer].len();
                prop_assert_eq!(account.outstanding().value(), outstanding as u64);
                prop_assert!(account.lent() <= account.in_flight());
                prop_assert!(!(account.terms().is_exempt() && account.rates()
                    .is_some_and(|rates| rates.bucket().is_some())));
            }
        }
        for (consumer, account) in accounts.iter().enumerate() {
            let left: Vec<u32> = model.queued[consumer].keys().copied().collect();
            prop_assert_eq!(queue.remove(account), left);
        }
    }
}

fn command(name: &str, rate: Option<f64>, delay: Option<u64>) -> ConsumerCommand {
    let name = ConsumerName::new(name).unwrap();
    ConsumerCommand { name, delay: delay.map(Latency::from_millis), rate: rate.map(Iops::new) }
}

fn in_force(account: &Account) -> (Latency, Option<Iops>) {
    (account.delay(), account.rates().unwrap().bucket().map(|bucket| bucket.rate))
}

#[test]
fn commands_for_unknown_consumers_change_nothing_and_consumers_without_a_command_are_released() {
    let mut queue = queue::<u32>(Some(integral_law()), 2.0);
    let mut known: Account = queue.add(terms("known"), at(0));
    let mut carry_out = |commands: Vec<ConsumerCommand>| {
        let mut commands =
            PendingCommands { commands: Commands { consumers: commands, ..Commands::default() }, next: 0 };
        queue.carry_out(&mut commands, &mut known, at(1));
        in_force(&known)
    };
    let throttled = (Latency::from_millis(3), Some(Iops::new(50.0)));
    assert_eq!(carry_out(vec![command("known", Some(50.0), Some(3))]), throttled);
    assert_eq!(carry_out(vec![command("stranger", Some(1.0), Some(9))]), (Latency::ZERO, None));
    assert_eq!(carry_out(Vec::new()), (Latency::ZERO, None));
}

#[test]
fn a_released_consumer_has_neither_rate_nor_limit_until_its_release_ends() {
    let mut queue = queue::<u32>(Some(integral_law()), 100.0);
    let limit = ConsumerLimit {
        iops: Some(Iops::new(1.0)),
        bytes_per_s: None,
        burst: Duration::ZERO,
        beyond: BeyondLimit::Wait,
    };
    let limited = ConsumerTerms { limit: Some(limit), ..terms("a") };
    let mut account: Account = queue.add(limited.clone(), at(0));
    let enqueue = |queue: &mut RegulatedQueue<u32>, account: &mut Account, now| {
        for request in 0..10 {
            let _ = queue.enqueue(account, request, EXTENT, now);
        }
        std::iter::from_fn(|| matches!(queue.pull(now), PullAnswer::Request { .. }).then_some(())).count()
    };
    assert!(enqueue(&mut queue, &mut account, at(0)) <= 1, "it begins at the law's floor");
    queue.reconfigure_consumer(&mut account, ConsumerTerms { released: true, ..limited.clone() }, at(1));
    queue.settle(&mut account, at(1));
    assert!(enqueue(&mut queue, &mut account, at(1)) >= 10, "with those that waited");
    // A law goes on to command a rate, which is not carried out.
    let consumers = vec![queue.observe(&mut account, [None; 2], at(1_001))];
    let observation = Observation::new(ResourceName::new("r").unwrap(), at(1_001), consumers);
    let (mut commands, decision) = queue.decide(&observation).unwrap();
    queue.carry_out(&mut commands, &mut account, at(1_001));
    assert_eq!(in_force(&account), (Latency::ZERO, None));
    assert_eq!(decision.held, 0);
    queue.reconfigure_consumer(&mut account, limited, at(1_002));
    queue.settle(&mut account, at(1_002));
    assert!(enqueue(&mut queue, &mut account, at(1_002)) <= 1, "its limit is in force again");
}

#[test]
fn a_consumer_begins_at_its_contract_and_one_without_at_the_floor() {
    // The next token, and half of the time between two for dither.
    for (contract, token, dither) in [(contract(40.0, 35), 25, 13), (None, 500, 250)] {
        let mut queue = queue::<u32>(Some(integral_law()), 100.0);
        let mut account: Account = queue.add(ConsumerTerms { contract, ..terms("a") }, at(0));
        for request in 0..3 {
            let _ = queue.enqueue(&mut account, request, EXTENT, at(0));
        }
        for request in 0..2 {
            let flow = account.flow;
            assert_eq!(
                queue.pull(at(0)),
                PullAnswer::Request { flow, request, released: at(0) },
                "σ at once"
            );
        }
        let PullAnswer::NotBefore(next) = queue.pull(at(0)) else { panic!("no more than σ") };
        assert!((at(token)..=at(token + dither)).contains(&next), "{next:?}");
    }
}

#[test]
fn a_queue_that_starts_unthrottled_releases_everything_until_its_first_command() {
    let law = Some(integral_law());
    let depth = Window::new(100.0);
    let scheduler = SfqConfig::default();
    let config =
        QueueConfig { scheduler, depth, release: BucketRelease::default(), law, starts_throttled: false };
    let mut queue = RegulatedQueue::new(config).unwrap();
    let mut accounts: [Account; 1] = [queue.add(terms("a"), at(0))];
    for request in 0..20 {
        let _ = queue.enqueue(&mut accounts[0], request, EXTENT, at(0));
        assert!(matches!(queue.pull(at(0)), PullAnswer::Request { .. }));
        let _ = accounts[0].dispatched(Some(OperationKind::Read), at(0), at(0));
    }
    step(&mut queue, &mut accounts, at(1_000));
    assert!(accounts[0].rates().unwrap().bucket().is_some());
}

#[test]
fn only_a_consumer_with_a_contract_returns_from_a_pause() {
    let mut queue = queue::<u32>(Some(integral_law()), 100.0);
    let pause = integral_law().idle_half_life;
    let promised = ConsumerTerms { contract: contract(40.0, 35), ..terms("promised") };
    let mut accounts: [Account; 2] = [queue.add(promised, at(0)), queue.add(terms("rest"), at(0))];
    let after = Instant::ZERO + pause;
    let before = after - std::time::Duration::from_nanos(1);
    assert!(!queue.enqueue(&mut accounts[1], 0, EXTENT, after), "nothing was promised to it");
    assert!(!queue.enqueue(&mut accounts[0], 1, EXTENT, before));
    assert!(!queue.enqueue(&mut accounts[0], 2, EXTENT, after + pause), "something is outstanding");
    let mut fresh: Account =
        queue.add(ConsumerTerms { contract: contract(40.0, 35), ..terms("fresh") }, at(0));
    assert!(queue.enqueue(&mut fresh, 3, EXTENT, after));
}

#[test]
fn a_consumer_of_a_failed_queue_keeps_its_mean_and_loses_its_requests() {
    let mut old = queue::<u32>(Some(integral_law()), 100.0);
    let mut account: Account = old.add(terms("a"), at(0));
    for request in 0..2 {
        let _ = old.enqueue(&mut account, request, EXTENT, at(0));
    }
    assert!(matches!(old.pull(at(0)), PullAnswer::Request { .. }));
    let _ = account.dispatched(Some(OperationKind::Read), at(0), at(0));
    let mut new = queue::<u32>(Some(integral_law()), 100.0);
    new.add_again(&mut account, at(100));
    assert!(account.is_idle());
    assert_eq!(account.outstanding().integral(at(300)), 2 * 100_000_000);
    let _ = new.enqueue(&mut account, 2, EXTENT, at(300));
    assert!(matches!(new.pull(at(300)), PullAnswer::Request { request: 2, .. }));
}

fn auto_law() -> LoopConfig {
    let law = LawConfig::Auto(AutoConfig::default());
    LoopConfig::new(ResourceName::new("pool").unwrap(), Latency::from_millis(50), law)
}

#[test]
fn the_law_auto_takes_a_contract_as_reservation_and_goal_and_holds_nothing_back() {
    let mut queue = queue::<u32>(Some(auto_law()), 100.0);
    let goal = Some(Latency::from_millis(20));
    let promised = ConsumerTerms { contract: contract(40.0, 35), ..terms("promised") };
    let reserved = ConsumerTerms { reservation: Some(Iops::new(90.0)), goal, ..promised.clone() };
    let protected = ConsumerTerms { protected: true, ..promised.clone() };
    let mut accounts: Vec<Account> =
        [promised, reserved, protected, terms("rest")].map(|terms| queue.add(terms, at(0))).into();
    let mut dispatched = Vec::new();
    for request in 0..20 {
        let _ = queue.enqueue(&mut accounts[0], request, EXTENT, at(0));
        let PullAnswer::Request { released, .. } = queue.pull(at(0)) else { panic!("nothing holds it") };
        let counts = accounts[0].dispatched(Some(OperationKind::Read), released, at(0));
        let expected = [0, 0, 25].get(request as usize).copied().unwrap_or(50);
        assert_eq!(counts, at(expected), "σ at once, one ahead, the rest is surplus");
        dispatched.push(counts);
    }
    for counts in dispatched {
        queue.completed(&mut accounts[0], &completed(counts, at(0)), at(50));
    }
    let observation = step(&mut queue, &mut accounts, at(1_000));
    let seen: Vec<_> = observation
        .consumers
        .iter()
        .map(|each| (each.reservation.map(Iops::per_second), each.goal.map(Latency::as_nanos)))
        .collect();
    let ms = |millis| Some(Latency::from_millis(millis).as_nanos());
    assert_eq!(seen, [(Some(42.0), ms(35)), (Some(90.0), ms(20)), (None, ms(35)), (None, None)]);
    let record = accounts[0].rates().unwrap().contract().unwrap();
    assert_eq!(
        (record.requests(), record.late()),
        (20, 2),
        "50 ms for σ requests, at most 25 ms for the others"
    );
    assert!(accounts.iter().all(|account| account.rates().is_none_or(|rates| rates.bucket().is_none())));
    assert!(accounts[3].rates().is_none());
}

#[test]
fn requests_that_are_larger_than_an_io_reserve_as_many_ios_as_they_cost() {
    let mut queue = queue::<u32>(Some(auto_law()), 100.0);
    let promised = ConsumerTerms { contract: contract(40.0, 35), ..terms("promised") };
    let mut accounts: [Account; 1] = [queue.add(promised, at(0))];
    let _ = queue.enqueue(&mut accounts[0], 0, EXTENT, at(0));
    let _ = queue.pull(at(0));
    let released = accounts[0].dispatched(Some(OperationKind::Read), at(0), at(0));
    let large = CompletedRequest { bytes: 4 * 65_536, ..completed(released, at(0)) };
    queue.completed(&mut accounts[0], &large, at(5));
    let observation = step(&mut queue, &mut accounts, at(1_000));
    assert_eq!(observation.consumers[0].reservation, Some(Iops::new(42.0)), "in its own requests");
    assert_eq!(accounts[0].reserved(), Some(Iops::new(168.0)), "in I/Os of average size");
}

#[test]
fn a_contract_follows_the_law() {
    let mut queue = queue::<u32>(Some(auto_law()), 100.0);
    let promised = ConsumerTerms { contract: contract(40.0, 35), ..terms("promised") };
    let mut account: Account = queue.add(promised.clone(), at(0));
    let window = LawConfig::of_kind(LawKind::Window);
    let window = LoopConfig::new(ResourceName::new("pool").unwrap(), Latency::from_millis(50), window);
    let idle = LoopConfig { dry_run: true, ..auto_law() };
    let (rate, reserved) = (Some(Iops::new(40.0)), Some(Iops::new(42.0)));
    for (law, reserved, bucket, counts) in [
        (Some(auto_law()), reserved, None, true),
        (Some(integral_law()), None, rate, true),
        (Some(auto_law()), reserved, None, true),
        (Some(window), None, None, false),
        (Some(idle), None, None, true),
        (None, None, None, false),
    ] {
        queue.reconfigure(Window::new(100.0), BucketRelease::default(), law.as_ref(), at(1)).unwrap();
        queue.reconfigure_consumer(&mut account, promised.clone(), at(1));
        queue.settle(&mut account, at(1));
        assert_eq!(account.reserved(), reserved, "{law:?}");
        let in_force = account.rates().and_then(RateAccount::bucket).map(|bucket| bucket.rate);
        assert_eq!((in_force, account.rates().is_some()), (bucket, counts), "{law:?}");
    }
}

#[test]
fn counts_stay_while_nothing_is_promised() {
    for law in [auto_law(), integral_law()] {
        let mut queue = queue::<u32>(Some(law), 100.0);
        let promised = ConsumerTerms { contract: contract(40.0, 35), ..terms("promised") };
        let mut account: Account = queue.add(promised.clone(), at(0));
        for (request, terms) in [(0, promised.clone()), (1, terms("promised")), (2, promised)] {
            let now = at(1_000 * u64::from(request));
            queue.reconfigure_consumer(&mut account, terms, now);
            queue.settle(&mut account, now);
            let _ = queue.enqueue(&mut account, request, EXTENT, now);
            let PullAnswer::Request { released, .. } = queue.pull(now) else { panic!("it may go") };
            let counts = account.dispatched(Some(OperationKind::Read), released, now);
            let done = now + Latency::from_millis(40);
            queue.completed(&mut account, &completed(counts, now), done);
        }
        let record = account.rates().unwrap().contract().unwrap();
        assert_eq!((record.requests(), record.late()), (2, 2));
    }
}

/// Sixteen requests for a queue of eight: half of them wait, and not for a law that leaves the window open.
#[test]
fn who_waits_for_the_depth_of_the_queue_is_not_throttled() {
    let held = |target: u64| {
        let law = LawConfig::Auto(AutoConfig::default());
        let law = LoopConfig::new(ResourceName::new("pool").unwrap(), Latency::from_millis(target), law);
        let mut queue = queue::<u32>(Some(law), 8.0);
        let mut account: Account = queue.add(terms("busy"), at(0));
        let (mut most, mut at_resource) = (0, VecDeque::new());
        for millis in 1..20_000 {
            let now = at(millis);
            // A server that takes a millisecond for each request.
            if let Some(dispatched) = at_resource.pop_front() {
                queue.completed(&mut account, &completed(dispatched, dispatched), now);
            }
            while account.queued() + account.in_flight() < 16 {
                let _ = queue.enqueue(&mut account, 0, EXTENT, now);
            }
            while let PullAnswer::Request { released, .. } = queue.pull(now) {
                let _ = account.dispatched(Some(OperationKind::Read), released, now);
                at_resource.push_back(now);
            }
            if millis % 250 == 0 {
                let consumers = vec![queue.observe(&mut account, [None; 2], now)];
                let observation = Observation::new(ResourceName::new("pool").unwrap(), now, consumers);
                let (mut commands, decision) = queue.decide(&observation).unwrap();
                queue.carry_out(&mut commands, &mut account, now);
                most = most.max(decision.held);
            }
        }
        most
    };
    assert_eq!(held(100), 0, "eight requests take eight milliseconds");
    assert_eq!(held(4), 1);
}
