//! The stage of a pool whose law commands rates, at times that the test tells it.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::time::Duration;

use tidegate_control::{
    AutoConfig, Contract, IntegralConfig, LawConfig as ControlLaw, SelfTuningConfig, SignalStatistic,
    WindowConfig,
};
use tidegate_units::{Bytes, Iops, Latency};

use super::*;
use crate::config::{BackendConfig, ExportStore};
use crate::zeroing::RequestSlice;

const READ: CheckedOperation = CheckedOperation::Read { offset: 0, length: 4_096 };
const EXTENT: StorageExtent = StorageExtent { offset: 0, bytes: 4_096 };

fn at(millis: u64) -> Instant {
    Instant::from_nanos(millis * 1_000_000)
}

fn contract(iops: f64, millis: u64) -> Option<Contract> {
    let response_time = Latency::from_millis(millis);
    Some(Contract::new(Iops::new(iops), response_time, response_time).unwrap())
}

fn export(name: &str, contract: Option<Contract>) -> ExportConfig {
    let store = ExportStore::Size(Bytes::from_mib(1));
    ExportConfig { contract, ..ExportConfig::new(ConsumerName::new(name).unwrap(), store) }
}

fn law() -> LoopConfig {
    let law = ControlLaw::Integral(IntegralConfig::default());
    LoopConfig::new(ResourceName::new("p").unwrap(), Latency::from_millis(35), law)
}

fn stage(law: LoopConfig) -> PoolStage {
    let backend = BackendConfig::File { direct: false };
    let mut pool = PoolConfig::new(law.resource.clone(), backend, Vec::new());
    (pool.law, pool.depth, pool.discipline) = (Some(law), 1, Discipline::FinishTags);
    // As published: a release comes with its token, without dither.
    pool.release.ahead = None;
    PoolStage::new(&pool, PoolPartners::default(), at(0))
}

fn request(released: Instant, dispatched: Instant) -> ClientRequest {
    ClientRequest {
        released,
        dispatched: Some(dispatched),
        slice: RequestSlice::whole(4_096),
        ..ClientRequest::new(0, 0, 0, READ, Instant::ZERO)
    }
}

/// Dispatches what goes at once, and has it answered `took` later. When each was released, and when the stage
/// wants to be asked again.
fn serve(
    stage: &mut PoolStage,
    consumer: &mut StageConsumer,
    now: Instant,
    took: Duration,
) -> (Vec<Instant>, PullAnswer<usize>) {
    let mut releases = Vec::new();
    loop {
        match stage.pull(now) {
            PullAnswer::Request { released, .. } => {
                let released = PoolStage::dispatched(consumer, &READ, released, now);
                stage.completed(consumer, &request(released, now), now + took, true);
                releases.push(released);
            }
            other => return (releases, other),
        }
    }
}

fn step(stage: &mut PoolStage, consumers: &mut [&mut StageConsumer], now: Instant) -> bool {
    let before = stage.decisions();
    stage.step(now, consumers.iter_mut().enumerate().map(|(key, consumer)| (key, &mut **consumer)), |_| {
        [None; 2]
    });
    stage.decisions() > before
}

fn kept(stage: &PoolStage, consumer: &StageConsumer, now: Instant) -> crate::stats::ContractSnapshot {
    stage.snapshot(consumer, 0, false, now).tenant.unwrap().contract.unwrap()
}

#[test]
fn a_tenant_begins_at_what_was_promised_and_who_was_promised_nothing_at_the_floor() {
    let tenants = [export("w1", contract(40.0, 35)), export("rest", None)];
    for (config, next) in tenants.into_iter().zip([25, 500]) {
        let mut stage = stage(law());
        let mut consumer = stage.add(&config, at(0));
        for key in 0..3 {
            stage.enqueue(&mut consumer, key, EXTENT, at(0));
        }
        let (releases, then) = serve(&mut stage, &mut consumer, at(0), Duration::ZERO);
        assert_eq!(releases, [at(0); 2], "σ at once");
        assert_eq!(then, PullAnswer::NotBefore(at(next)));
        assert_eq!(serve(&mut stage, &mut consumer, at(next), Duration::ZERO).0, [at(next)]);
    }
}

#[test]
fn a_pool_steers_by_the_percentile_of_the_protected_reads_alone() {
    let auto = ControlLaw::Auto(AutoConfig::default());
    let law = LoopConfig { statistic: SignalStatistic::P90, ..LoopConfig { law: auto, ..law() } };
    let mut stage = stage(law.clone());
    let database = ExportConfig { protected: true, ..export("database", None) };
    let (mut database, mut batch) = (stage.add(&database, at(0)), stage.add(&export("batch", None), at(0)));
    let mut now = 0;
    let mut interval = |stage: &mut PoolStage, database_took: &dyn Fn(u64) -> u64| {
        for number in 0..20 {
            for (consumer, took) in [(&mut database, database_took(number)), (&mut batch, 300)] {
                stage.enqueue(consumer, 0, EXTENT, at(now));
                serve(stage, consumer, at(now), Duration::from_millis(took));
            }
        }
        now += 1_000;
        assert!(step(stage, &mut [&mut database, &mut batch], at(now)));
        stage.recent().back().unwrap().measured.unwrap().as_millis_f64()
    };
    // At first it is not known that an export is protected.
    interval(&mut stage, &|_| 5);
    let near = |measured: f64, expected: f64| (measured / expected - 1.0).abs() < 0.02;
    let measured = interval(&mut stage, &|number| if number < 3 { 50 } else { 5 });
    assert!(near(measured, 50.0), "{measured}: one of ten takes longer than that");
    let measured = interval(&mut stage, &|number| if number < 1 { 50 } else { 5 });
    assert!(near(measured, 5.0), "{measured}: one of twenty is more than 90 % do not need");
    // A reload goes on by the mean.
    let by_mean = LoopConfig { statistic: SignalStatistic::Mean, ..law };
    stage.reconfigure(1, Some(&by_mean), BucketRelease::default(), at(3_000));
    let measured = interval(&mut stage, &|number| if number < 10 { 15 } else { 5 });
    assert!(near(measured, 10.0), "{measured}");
}

/// A goal reaches the law, and a first rate the bucket. Before the law has seen a consumer, none is
/// throttled.
#[test]
fn under_goals_a_consumer_begins_released_and_is_then_held_to_its_part() {
    let law = ControlLaw::SelfTuning(SelfTuningConfig::default());
    let law = LoopConfig::new(ResourceName::new("p").unwrap(), Latency::from_millis(35), law);
    let mut stage = stage(law);
    let goal = Some(Latency::from_millis(10));
    let mut consumer = stage.add(&ExportConfig { goal, ..export("w1", None) }, at(0));
    let keys = 0..100;
    for key in keys.clone() {
        stage.enqueue(&mut consumer, key, EXTENT, at(0));
    }
    assert_eq!(serve(&mut stage, &mut consumer, at(0), Duration::from_millis(16)).0, vec![at(0); keys.len()]);
    assert!(step(&mut stage, &mut [&mut consumer], at(1_000)));
    let decision = stage.recent.back().unwrap().clone();
    let point = decision.point.as_ref().unwrap();
    assert_eq!(point.regulators[0].goal, Latency::from_millis(8));
    // 100 IO/s at 16 ms: 50 at 8.
    assert_eq!(point.operating_point, Iops::new(50.0));
    let rate = stage.snapshot(&consumer, 0, false, at(1_000)).tenant.unwrap().rate;
    assert_eq!(rate, Some(Iops::new(50.0)));
    for key in keys {
        stage.enqueue(&mut consumer, key, EXTENT, at(1_000));
    }
    let (releases, then) = serve(&mut stage, &mut consumer, at(1_000), Duration::ZERO);
    assert!(releases.len() < 10 && matches!(then, PullAnswer::NotBefore(_)), "{releases:?} {then:?}");
}

#[test]
fn late_is_what_takes_longer_than_promised_from_its_release_and_not_from_its_arrival() {
    let mut stage = stage(law());
    let mut consumer = stage.add(&export("w1", contract(2.0, 35)), at(0));
    for key in 0..3 {
        stage.enqueue(&mut consumer, key, EXTENT, at(0));
    }
    // The third waits half a second for its release; then it is as quick as the first two.
    let just = Duration::from_millis(35);
    assert_eq!(serve(&mut stage, &mut consumer, at(0), just).0.len(), 2);
    let (releases, _) = serve(&mut stage, &mut consumer, at(700), just);
    assert_eq!(releases, [at(500)], "released when its token came, dispatched later");
    let snapshot = kept(&stage, &consumer, at(1_000));
    assert_eq!((snapshot.requests, snapshot.late), (3, 1), "200 ms in the scheduler are part of the promise");
    assert_eq!(snapshot.active, Duration::from_millis(735));

    // Other terms are in force for what completes from now on.
    stage.reconfigure_consumer(&mut consumer, &export("w1", contract(2.0, 500)), at(1_000));
    stage.settle(&mut consumer, at(1_000));
    stage.enqueue(&mut consumer, 3, EXTENT, at(1_000));
    serve(&mut stage, &mut consumer, at(1_300), just);
    let snapshot = kept(&stage, &consumer, at(1_400));
    assert_eq!((snapshot.requests, snapshot.late), (4, 1));
    assert_eq!(snapshot.contract.unwrap().response_time(), Latency::from_millis(500));
}

#[test]
fn what_was_counted_by_day_is_not_lost_when_nothing_is_promised_by_night() {
    let mut stage = stage(law());
    let mut consumer = stage.add(&export("w1", contract(40.0, 35)), at(0));
    let just = Duration::from_millis(36);
    let request = |stage: &mut PoolStage, consumer: &mut StageConsumer, key, now| {
        stage.enqueue(consumer, key, EXTENT, at(now));
        serve(stage, consumer, at(now), just);
    };
    request(&mut stage, &mut consumer, 0, 0);
    let day = kept(&stage, &consumer, at(1_000));
    assert_eq!((day.requests, day.late, day.active), (1, 1, just));

    stage.reconfigure_consumer(&mut consumer, &export("w1", None), at(1_000));
    stage.settle(&mut consumer, at(1_000));
    request(&mut stage, &mut consumer, 1, 1_500);
    let night = kept(&stage, &consumer, at(2_000));
    assert_eq!((night.contract, night.requests, night.late, night.active), (None, 1, 1, just));

    stage.reconfigure_consumer(&mut consumer, &export("w1", contract(20.0, 40)), at(3_000));
    stage.settle(&mut consumer, at(3_000));
    request(&mut stage, &mut consumer, 2, 4_000);
    let morning = kept(&stage, &consumer, at(5_000));
    assert_eq!((morning.requests, morning.late, morning.active), (2, 1, 2 * just));
}

#[test]
fn whoever_returns_from_a_pause_has_the_law_stepped_at_once() {
    let mut stage = stage(law());
    let mut promised = stage.add(&export("w1", contract(40.0, 35)), at(0));
    let mut other = stage.add(&export("rest", None), at(0));
    let due = |stage: &PoolStage, now| stage.next_step().unwrap() <= now;
    stage.enqueue(&mut promised, 0, EXTENT, at(100));
    assert!(!due(&stage, at(100)), "it has been there for no longer than that");
    serve(&mut stage, &mut promised, at(100), Duration::ZERO);
    assert!(step(&mut stage, &mut [&mut promised, &mut other], at(1_000)));
    assert!(step(&mut stage, &mut [&mut promised, &mut other], at(2_000)));

    stage.enqueue(&mut promised, 1, EXTENT, at(2_099));
    assert!(!due(&stage, at(2_099)), "1.999 s are no pause");
    serve(&mut stage, &mut promised, at(2_100), Duration::ZERO);
    stage.enqueue(&mut other, 2, EXTENT, at(2_900));
    assert!(!due(&stage, at(2_900)), "nothing was promised to it");
    serve(&mut stage, &mut other, at(2_900), Duration::ZERO);
    for millis in [3_000, 4_000] {
        assert!(step(&mut stage, &mut [&mut promised, &mut other], at(millis)));
    }
    stage.enqueue(&mut promised, 3, EXTENT, at(4_100));
    assert!(due(&stage, at(4_100)));
    assert!(step(&mut stage, &mut [&mut promised, &mut other], at(4_100)));
    assert_eq!(stage.next_step(), Some(at(5_000)), "the regular steps stay where they were");
    assert!(!step(&mut stage, &mut [&mut promised, &mut other], at(4_101)));
}

/// The check of the configuration says the same.
#[test]
fn a_contract_has_no_effect_where_no_law_keeps_it() {
    let goals = || {
        let law = ControlLaw::SelfTuning(SelfTuningConfig::default());
        LoopConfig::new(ResourceName::new("p").unwrap(), Latency::from_millis(35), law)
    };
    let config = ExportConfig { bucket: 50, ..export("w1", contract(40.0, 35)) };
    let mut stage = stage(goals());
    let mut consumer = stage.add(&config, at(0));
    let returns = |stage: &mut PoolStage, consumer: &mut StageConsumer, now| {
        stage.enqueue(consumer, 0, EXTENT, now);
        let returned = stage.next_step().unwrap() <= now;
        serve(stage, consumer, now, Duration::ZERO);
        returned
    };
    let steps =
        |stage: &mut PoolStage, consumer: &mut StageConsumer, seconds: std::ops::RangeInclusive<u64>| {
            assert!(seconds.into_iter().all(|second| step(stage, &mut [&mut *consumer], at(1_000 * second))));
        };
    let terms = |stage: &PoolStage, consumer: &StageConsumer| {
        let rates = consumer.account.rates().unwrap();
        (
            stage.snapshot(consumer, 0, false, at(0)).tenant.unwrap().contract.is_some(),
            rates.next_bucket().size,
        )
    };
    assert!(!returns(&mut stage, &mut consumer, at(100)));
    steps(&mut stage, &mut consumer, 1..=3);
    assert!(
        !returns(&mut stage, &mut consumer, at(3_100)),
        "nothing was promised to it that it could return to"
    );
    assert_eq!(terms(&stage, &consumer), (false, BucketRelease::USUAL_SIZE));

    stage.reconfigure(1, Some(&law()), BucketRelease::default(), at(3_200));
    stage.settle(&mut consumer, at(3_200));
    assert_eq!(terms(&stage, &consumer), (true, 50));
    steps(&mut stage, &mut consumer, 4..=6);
    assert!(returns(&mut stage, &mut consumer, at(6_100)));

    stage.reconfigure(1, Some(&goals()), BucketRelease::default(), at(6_200));
    stage.settle(&mut consumer, at(6_200));
    assert_eq!(terms(&stage, &consumer), (false, BucketRelease::USUAL_SIZE));
}

#[test]
fn nobody_is_held_on_a_dry_run_nor_when_protected_nor_when_the_law_is_gone() {
    let goes = |stage: &mut PoolStage, consumer: &mut StageConsumer, now| {
        for key in 0..50 {
            stage.enqueue(consumer, key, EXTENT, now);
        }
        serve(stage, consumer, now, Duration::ZERO).0.len()
    };
    let mut dry = stage(LoopConfig { dry_run: true, ..law() });
    let mut consumer = dry.add(&export("w1", contract(40.0, 35)), at(0));
    assert_eq!(goes(&mut dry, &mut consumer, at(0)), 50);
    assert!(step(&mut dry, &mut [&mut consumer], at(1_000)));
    assert_eq!(goes(&mut dry, &mut consumer, at(1_000)), 50);
    let requests = kept(&dry, &consumer, at(1_000)).requests;
    assert_eq!(requests, 100, "what is promised is counted all the same");

    let mut stage = stage(law());
    let config = export("w1", contract(40.0, 35));
    let protected = ExportConfig { protected: true, ..config.clone() };
    let mut consumer = stage.add(&protected, at(0));
    assert_eq!(goes(&mut stage, &mut consumer, at(0)), 50);
    // Throttled with the next step, and released at once.
    stage.reconfigure_consumer(&mut consumer, &config, at(10));
    stage.settle(&mut consumer, at(10));
    assert!(step(&mut stage, &mut [&mut consumer], at(1_000)));
    assert!(goes(&mut stage, &mut consumer, at(1_000)) <= 2);
    stage.reconfigure_consumer(&mut consumer, &protected, at(1_001));
    assert_eq!(serve(&mut stage, &mut consumer, at(1_001), Duration::ZERO).0.len(), 48);

    stage.reconfigure_consumer(&mut consumer, &config, at(1_010));
    stage.reconfigure(1, None, BucketRelease::default(), at(1_010));
    stage.settle(&mut consumer, at(1_010));
    assert_eq!(goes(&mut stage, &mut consumer, at(1_010)), 50);
    assert!(stage.snapshot(&consumer, 0, false, at(1_010)).tenant.is_none());
}

#[test]
fn slots_of_a_silent_volume_go_to_others_and_come_back_once() {
    let mut stage = stage(law());
    stage.reconfigure(1, None, BucketRelease::default(), at(0));
    let mut silent = stage.add(&export("silent", None), at(0));
    let mut other = stage.add(&export("other", None), at(0));
    let pulled = |stage: &mut PoolStage| match stage.pull(at(1)) {
        PullAnswer::Request { request, .. } => Some(request),
        PullAnswer::Nothing | PullAnswer::NotBefore(_) => None,
    };
    stage.enqueue(&mut silent, 0, EXTENT, at(0));
    assert_eq!(pulled(&mut stage), Some(0));
    let _ = PoolStage::dispatched(&mut silent, &READ, at(0), at(1));
    for key in 1..=3 {
        stage.enqueue(&mut other, key, EXTENT, at(1));
    }
    assert_eq!(pulled(&mut stage), None, "the depth is one");

    stage.lend_slots(&mut silent, at(1));
    assert_eq!(pulled(&mut stage), Some(1));
    let _ = PoolStage::dispatched(&mut other, &READ, at(1), at(1));
    // A request that looks whether the volume answers takes no slot either.
    PoolStage::borrow_slot(&mut silent, at(1));
    let _ = PoolStage::dispatched(&mut silent, &READ, at(1), at(1));
    assert_eq!((silent.account.lent(), silent.in_flight()), (2, 2));

    for _ in 0..2 {
        stage.completed(&mut silent, &request(at(0), at(0)), at(2), true);
        assert_eq!(pulled(&mut stage), None, "the slot is the other's");
    }
    assert_eq!((silent.account.lent(), silent.is_idle()), (0, true));
    stage.completed(&mut other, &request(at(1), at(1)), at(2), true);
    assert_eq!(pulled(&mut stage), Some(2));
}

#[test]
fn a_volume_that_hung_is_no_sample_of_load() {
    let mut stage = stage(law());
    let mut consumer = stage.add(&export("hung", None), at(0));
    stage.enqueue(&mut consumer, 0, EXTENT, at(0));
    let _ = stage.pull(at(0));
    let _ = PoolStage::dispatched(&mut consumer, &READ, at(0), at(0));
    let oldest = [Some(at(0)), None];
    assert_eq!(stage.observe(&mut consumer, oldest, at(1_000)).reads.in_flight, 1);
    consumer.set_hung(true, at(5_000));
    let observed = stage.observe(&mut consumer, oldest, at(5_000)).reads;
    assert_eq!((observed.in_flight, observed.oldest_in_flight), (0, None));
    consumer.set_hung(false, at(60_000));
    stage.completed(&mut consumer, &request(at(0), at(0)), at(60_000), true);
    assert_eq!(stage.observe(&mut consumer, [None; 2], at(60_001)).reads.count, 0);
    stage.enqueue(&mut consumer, 1, EXTENT, at(60_001));
    let _ = stage.pull(at(60_001));
    let _ = PoolStage::dispatched(&mut consumer, &READ, at(60_001), at(60_001));
    stage.completed(&mut consumer, &request(at(60_001), at(60_001)), at(60_002), true);
    assert_eq!(stage.observe(&mut consumer, [None; 2], at(60_003)).reads.count, 1);
}

#[test]
fn the_law_auto_counts_a_contract_and_holds_nothing_back() {
    let law = ControlLaw::of_kind(tidegate_control::LawKind::Auto);
    let law = LoopConfig::new(ResourceName::new("p").unwrap(), Latency::from_millis(35), law);
    let mut stage = stage(law);
    let mut consumer = stage.add(&export("w1", contract(40.0, 35)), at(0));
    for key in 0..6 {
        stage.enqueue(&mut consumer, key, EXTENT, at(0));
    }
    let (releases, answer) = serve(&mut stage, &mut consumer, at(0), Duration::from_millis(50));
    assert_eq!((releases.len(), answer), (6, PullAnswer::Nothing));
    let snapshot = stage.snapshot(&consumer, 1, false, at(50));
    let tenant = snapshot.tenant.unwrap();
    let kept = tenant.contract.unwrap();
    assert_eq!((kept.requests, kept.late, tenant.rate), (6, 2, None), "two from 0 ms on, one from 25 ms on");
    assert_eq!(snapshot.reserved.unwrap().rate, Iops::new(42.0));
}

/// A stage of a pool without a law, where one request is at the storage at a time.
fn plain_stage(change: impl FnOnce(&mut PoolConfig)) -> PoolStage {
    let backend = BackendConfig::File { direct: false };
    let mut pool = PoolConfig::new(ResourceName::new("p").unwrap(), backend, Vec::new());
    pool.depth = 1;
    change(&mut pool);
    PoolStage::new(&pool, PoolPartners::default(), at(0))
}

/// Serves so many requests of two consumers one by one. Returns the place of each one's consumer.
fn order(stage: &mut PoolStage, consumers: &mut [StageConsumer; 2], requests: usize) -> Vec<usize> {
    (0..requests)
        .map(|_| match stage.pull(at(0)) {
            PullAnswer::Request { request: place, released, .. } => {
                let _ = PoolStage::dispatched(&mut consumers[place], &READ, released, at(0));
                stage.completed(&mut consumers[place], &request(at(0), at(0)), at(0), true);
                place
            }
            other => panic!("{other:?}"),
        })
        .collect()
}

#[test]
fn batches_are_as_long_as_the_pool_says() {
    for (requests, longest) in [(0, 1), (3, 4)] {
        let batch = tidegate_sched::FlowBatch { requests, ..Default::default() };
        let mut stage = plain_stage(|pool| pool.batch = batch);
        let mut consumers = ["a", "b"].map(|name| stage.add(&export(name, None), at(0)));
        for (place, consumer) in consumers.iter_mut().enumerate() {
            for number in 0..16 {
                let extent = StorageExtent { offset: number * 4_096, bytes: 4_096 };
                stage.enqueue(consumer, place, extent, at(0));
            }
        }
        let order = order(&mut stage, &mut consumers, 16);
        let runs: Vec<usize> = order.chunk_by(|one, next| one == next).map(<[usize]>::len).collect();
        assert_eq!(runs.iter().max(), Some(&longest), "{order:?}");
    }
}

#[test]
fn an_idle_export_saves_up_as_many_requests_as_the_pool_says() {
    for (credit, first) in [(0, 1), (4, 5)] {
        let mut stage = plain_stage(|pool| {
            pool.batch.requests = 0;
            pool.idle_credit = tidegate_sched::RequestCost::from_ios(credit);
        });
        let mut consumers = ["busy", "bursty"].map(|name| stage.add(&export(name, None), at(0)));
        for _ in 0..64 {
            stage.enqueue(&mut consumers[0], 0, EXTENT, at(0));
        }
        assert_eq!(order(&mut stage, &mut consumers, 32), [0; 32]);
        for _ in 0..8 {
            stage.enqueue(&mut consumers[1], 1, EXTENT, at(0));
        }
        let order = order(&mut stage, &mut consumers, 12);
        let until_next = order.iter().skip_while(|place| **place == 0).take_while(|place| **place == 1);
        assert_eq!(until_next.count(), first, "{order:?}");
    }
}

#[test]
fn with_a_law_for_each_export_each_has_a_window_by_its_shares() {
    let window = WindowConfig { beta_gain: 0.1, ..WindowConfig::across_hosts() };
    let law = LoopConfig { law: ControlLaw::Window(window), ..law() };
    let mut stage = plain_stage(|pool| {
        (pool.law, pool.scope, pool.depth) = (Some(law.clone()), LawScope::Export, 64);
    });
    let shares = |shares| tidegate_units::Shares::new(shares).unwrap();
    let mut consumers = [100, 300].map(|own| {
        stage.add(&ExportConfig { shares: shares(own), ..export(&format!("of {own}"), None) }, at(0))
    });
    // One server of 100 IO/s in order of arrival: a request takes 10 ms for each that is before it.
    let (mut now, mut busy_until) = (at(0), at(0));
    let mut flying: std::collections::VecDeque<(usize, Instant, Instant)> = Default::default();
    let mut next_step = at(1_000);
    for (place, consumer) in consumers.iter_mut().enumerate() {
        for _ in 0..40 {
            stage.enqueue(consumer, place, EXTENT, at(0));
        }
    }
    while now < at(200_000) {
        let wake = match stage.pull(now) {
            PullAnswer::Request { request: place, released, .. } => {
                let _ = PoolStage::dispatched(&mut consumers[place], &READ, released, now);
                busy_until = busy_until.max(now) + Duration::from_millis(10);
                flying.push_back((place, now, busy_until));
                continue;
            }
            PullAnswer::NotBefore(wake) => wake,
            PullAnswer::Nothing => Instant::MAX,
        };
        let done = flying.front().map_or(Instant::MAX, |(_, _, done)| *done);
        now = wake.min(done).min(next_step);
        if now == done {
            let (place, dispatched, _) = flying.pop_front().unwrap();
            stage.completed(&mut consumers[place], &request(dispatched, dispatched), now, true);
            stage.enqueue(&mut consumers[place], place, EXTENT, now);
        }
        if now == next_step {
            let [one, other] = &mut consumers;
            step(&mut stage, &mut [one, other], now);
            next_step = now + Duration::from_secs(1);
        }
    }
    // Eq. 3 with C = 100 IO/s, a set point of 28 ms and β of 0.1 and 0.3: 0.1 + 0.1·2.8/0.4 = 0.8.
    let windows = [0, 1].map(|place| stage.snapshot(&consumers[place], 0, false, now).window.unwrap().get());
    assert!((windows[0] - 0.8).abs() < 0.1 && (windows[1] - 2.4).abs() < 0.3, "{windows:?}");
    assert!((stage.window().get() - windows[0] - windows[1]).abs() < 1e-9);
    let told = stage.recent().back().unwrap();
    assert_eq!((told.resource.as_str(), told.throttled), ("p", 2), "one decision tells of both");
    assert!((told.window().unwrap().get() - stage.window().get()).abs() < 1e-9, "{told}");
}
