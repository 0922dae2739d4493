//! Fairness, against the published definition computed slowly, and against the published bound.

use std::time::Duration;

use proptest::prelude::*;
use tidegate_sched::{
    BeyondLimit, ConsumerLimit, CostModel, Discipline, FlowBatch, FlowConfig, FlowId, PullAnswer, RefillTime,
    RequestCost, Sfq, SfqConfig, StorageExtent,
};
use tidegate_units::{Bytes, Instant, Iops, Latency, Shares, Window};

const KIB: u32 = 1024;

/// SFQ as published: every request is tagged on arrival, and a list is searched for the least start tag.
/// Tags are exact: with weights that are powers of two up to 2⁸ and costs in 1/16 I/O they are integers.
#[derive(Default)]
struct Published {
    virtual_time: u64,
    greatest_finish: u64,
    last_finish: Vec<u64>,
    weights: Vec<u64>,
    /// (start tag, finish tag, flow, request)
    waiting: Vec<(u64, u64, usize, u64)>,
    outstanding: usize,
}

impl Published {
    fn arrive(&mut self, flow: usize, request: u64, sixteenths: u64) {
        let start = self.virtual_time.max(self.last_finish[flow]);
        let finish = start + sixteenths * 256 / self.weights[flow];
        self.last_finish[flow] = finish;
        self.waiting.push((start, finish, flow, request));
    }

    /// Every flow whose first request has the least start tag: the definition leaves ties open.
    fn may_go(&self) -> Vec<(usize, u64)> {
        let least = self.waiting.iter().map(|waiting| waiting.0).min();
        let firsts = (0..self.weights.len()).filter_map(|flow| self.waiting.iter().find(|w| w.2 == flow));
        firsts.filter(|first| Some(first.0) == least).map(|first| (first.2, first.3)).collect()
    }

    fn go(&mut self, request: u64) {
        let index = self.waiting.iter().position(|waiting| waiting.3 == request).unwrap();
        let (start, finish, ..) = self.waiting.remove(index);
        self.virtual_time = start;
        self.greatest_finish = self.greatest_finish.max(finish);
        self.outstanding += 1;
    }

    fn done(&mut self) {
        self.outstanding -= 1;
        if self.outstanding == 0 && self.waiting.is_empty() {
            self.virtual_time = self.greatest_finish;
        }
    }
}

fn discipline() -> impl Strategy<Value = Discipline> {
    prop_oneof![Just(Discipline::StartTags), Just(Discipline::FinishTags)]
}

/// The next request of a scheduler that always has one waiting; as many complete as it takes.
fn next_of<T>(scheduler: &mut Sfq<T>, running: &mut Vec<FlowId>, which: usize) -> (FlowId, T) {
    loop {
        if let PullAnswer::Request { flow, request, .. } = scheduler.pull(Instant::ZERO) {
            running.push(flow);
            return (flow, request);
        }
        assert!(!running.is_empty(), "backlogged, and nothing is outstanding");
        let flow = running.swap_remove(which % running.len());
        scheduler.complete(flow, Instant::ZERO).unwrap();
    }
}

fn plain(window: f64) -> SfqConfig {
    SfqConfig { window: Some(Window::new(window)), batch: None, ..SfqConfig::default() }
}

fn weight(shares: u32) -> FlowConfig {
    FlowConfig { weight: Shares::new(shares).unwrap(), ..FlowConfig::default() }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    #[test]
    fn orders_as_published(
        depth in 1u32..5,
        weights in prop::collection::vec(0u32..9, 1..8),
        steps in prop::collection::vec((0u32..10, 0usize..8, 16u64..160), 1..400),
    ) {
        let mut scheduler = Sfq::new(plain(f64::from(depth)));
        let mut oracle = Published::default();
        let mut ids: Vec<FlowId> = Vec::new();
        for &exponent in &weights {
            ids.push(scheduler.add_flow(&weight(1 << exponent), Instant::ZERO));
            oracle.weights.push(1 << exponent);
            oracle.last_finish.push(0);
        }
        let mut running: Vec<FlowId> = Vec::new();
        for (request, &(action, flow, sixteenths)) in steps.iter().enumerate() {
            let request = request as u64;
            if action < 5 {
                let flow = flow % weights.len();
                let extent = StorageExtent { offset: 0, bytes: sixteenths as u32 * 4 * KIB };
                scheduler.enqueue(ids[flow], Instant::ZERO, request, extent).unwrap();
                oracle.arrive(flow, request, sixteenths);
            } else if action < 8 {
                let expected = if oracle.outstanding < depth as usize { oracle.may_go() } else { Vec::new() };
                match scheduler.pull(Instant::ZERO) {
                    PullAnswer::Request { flow, request, .. } => {
                        let which = ids.iter().position(|&id| id == flow).unwrap();
                        prop_assert!(
                            expected.contains(&(which, request)),
                            "{which}/{request} went, {expected:?} might"
                        );
                        oracle.go(request);
                        running.push(flow);
                    }
                    other => prop_assert!(expected.is_empty(), "{other:?}, {expected:?} might go"),
                }
            } else if !running.is_empty() {
                let flow = running.swap_remove(flow % running.len());
                scheduler.complete(flow, Instant::ZERO).unwrap();
                oracle.done();
            }
        }
    }

    /// |W_i/φ_i − W_j/φ_j| ≤ (c_i + b)/φ_i + (c_j + b)/φ_j + k·max(1/φ_i, 1/φ_j), over **every** stretch of dispatches;
    /// with finish tags the bound has the greatest c/φ of all flows, and that of i or j, instead of that of i
    /// and of j.
    #[test]
    fn keeps_the_bound_over_every_stretch(
        discipline in discipline(),
        in_batches in any::<bool>(),
        completions in prop::collection::vec(any::<usize>(), 1..20),
        depth in 1u32..6,
        flows in prop::collection::vec((1u32..1_000, 1u32..64), 2..5),
        batch in prop::option::of((1u32..8, 1u32..20)),
        credit in 0u32..20,
        sizes in prop::collection::vec(0.0f64..1.0, 1..20),
        early in prop::collection::vec(0usize..5, 0..40),
    ) {
        let batch = batch.map(|(requests, ios)| FlowBatch {
            locality: Bytes::from_mib(4), requests, cost: RequestCost::from_ios(ios),
        });
        let refill = if in_batches { RefillTime::InBatches } else { RefillTime::OneByOne };
        let idle_credit = RequestCost::from_ios(credit);
        let config = SfqConfig { discipline, refill, batch, idle_credit, ..plain(f64::from(depth)) };
        let model = CostModel::default();
        let mut scheduler = Sfq::new(config);
        let ids: Vec<FlowId> =
            flows.iter().map(|&(shares, _)| scheduler.add_flow(&weight(shares), Instant::ZERO)).collect();
        let mut sizes = sizes.iter().cycle();
        let mut next = |scheduler: &mut Sfq<f64>, flow: usize| {
            let blocks = 1 + (sizes.next().unwrap() * f64::from(flows[flow].1 - 1)) as u32;
            let bytes = blocks * 16 * KIB;
            scheduler
                .enqueue(ids[flow], Instant::ZERO, model.cost(bytes).as_ios(),
                    StorageExtent { offset: 0, bytes })
                .unwrap();
        };
        // A history in which some were idle, so that credits and debts differ.
        let (mut running, mut completions) = (Vec::new(), completions.iter().copied().cycle());
        for &flow in &early {
            next(&mut scheduler, flow % flows.len());
            next_of(&mut scheduler, &mut running, completions.next().unwrap());
        }
        for flow in 0..flows.len() {
            next(&mut scheduler, flow);
            next(&mut scheduler, flow);
        }
        let mut work = vec![vec![0.0; flows.len()]];
        for _ in 0..150 {
            let (flow, request) = next_of(&mut scheduler, &mut running, completions.next().unwrap());
            let flow = ids.iter().position(|&id| id == flow).unwrap();
            next(&mut scheduler, flow);
            let mut sums = work.last().unwrap().clone();
            sums[flow] += request / f64::from(flows[flow].0);
            work.push(sums);
        }
        let extra = batch.map_or(0.0, |batch| batch.cost.as_ios());
        let per_weight: Vec<f64> = flows
            .iter()
            .map(|&(shares, blocks)| model.cost(blocks * 16 * KIB).as_ios() / f64::from(shares))
            .collect();
        let greatest_of_all = per_weight.iter().copied().fold(0.0, f64::max);
        for i in 0..flows.len() {
            for j in 0..i {
                let phi = [f64::from(flows[i].0), f64::from(flows[j].0)];
                let by_costs = match discipline {
                    Discipline::StartTags => per_weight[i] + per_weight[j],
                    Discipline::FinishTags => per_weight[i].max(per_weight[j]) + greatest_of_all,
                };
                let bound = by_costs
                    + extra / phi[0]
                    + extra / phi[1]
                    + f64::from(credit) / phi[0].min(phi[1]);
                for from in 0..work.len() {
                    for to in from..work.len() {
                        let apart = (work[to][i] - work[from][i]) - (work[to][j] - work[from][j]);
                        prop_assert!(apart.abs() <= bound * 1.000_01, "apart {apart}, bound {bound}");
                    }
                }
            }
        }
    }

    /// Work conservation: while anything waits, exactly ⌊D⌋ are outstanding.
    #[test]
    fn the_window_is_full_while_anything_waits(
        discipline in discipline(),
        depth in 1u32..6,
        steps in prop::collection::vec((any::<bool>(), 0usize..4), 1..200),
    ) {
        let mut scheduler = Sfq::new(SfqConfig { discipline, ..plain(f64::from(depth)) });
        let ids: Vec<FlowId> = (1..5).map(|shares| scheduler.add_flow(&weight(shares), Instant::ZERO))
            .collect();
        let mut running = Vec::new();
        for (arrive, which) in steps {
            if arrive {
                scheduler.enqueue(ids[which], Instant::ZERO, (), StorageExtent::default()).unwrap();
            } else if !running.is_empty() {
                let flow = running.swap_remove(which % running.len());
                scheduler.complete(flow, Instant::ZERO).unwrap();
            }
            while let PullAnswer::Request { flow, .. } = scheduler.pull(Instant::ZERO) {
                running.push(flow);
            }
            prop_assert!(scheduler.queued() == 0 || scheduler.outstanding() == depth);
        }
    }
}

/// Requests dispatched per flow while each of them always has `backlog` requests waiting.
fn dispatched(scheduler: &mut Sfq<()>, ids: &[FlowId], now: Instant, count: u32) -> Vec<f64> {
    let mut counts = vec![0.0; ids.len()];
    for &id in ids {
        while scheduler.status(id, now).unwrap().queued < 2 {
            scheduler.enqueue(id, now, (), StorageExtent::default()).unwrap();
        }
    }
    for _ in 0..count {
        let PullAnswer::Request { flow, .. } = scheduler.pull(now) else { panic!("backlogged") };
        scheduler.complete(flow, now).unwrap();
        scheduler.enqueue(flow, now, (), StorageExtent::default()).unwrap();
        counts[ids.iter().position(|&id| id == flow).unwrap()] += 1.0;
    }
    counts
}

#[test]
fn a_weight_changed_while_backlogged_counts_from_the_next_dispatch() {
    let mut scheduler = Sfq::new(plain(1.0));
    let ids = [100, 100].map(|shares| scheduler.add_flow(&weight(shares), Instant::ZERO));
    let before = dispatched(&mut scheduler, &ids, Instant::ZERO, 1_000);
    assert!((before[0] - before[1]).abs() <= 2.0, "{before:?}");
    scheduler.set_weight(ids[1], Shares::new(300).unwrap()).unwrap();
    let after = dispatched(&mut scheduler, &ids, Instant::ZERO, 4_000);
    assert!((after[0] - 1_000.0).abs() <= 2.0, "{after:?}");
}

#[test]
fn the_least_weight_is_not_starved_by_the_greatest() {
    let mut scheduler = Sfq::new(plain(1.0));
    let ids = [1, 1_000_000].map(|shares| scheduler.add_flow(&weight(shares), Instant::ZERO));
    let counts = dispatched(&mut scheduler, &ids, Instant::ZERO, 2_000_100);
    assert!((2.0..=4.0).contains(&counts[0]), "{counts:?}");
}

#[test]
fn a_flow_that_was_idle_does_not_catch_up() {
    let mut scheduler = Sfq::new(plain(1.0));
    let ids = [1, 1].map(|shares| scheduler.add_flow(&weight(shares), Instant::ZERO));
    dispatched(&mut scheduler, &ids[..1], Instant::ZERO, 10_000);
    let both = dispatched(&mut scheduler, &ids, Instant::ZERO, 100);
    assert!((both[0] - both[1]).abs() <= 2.0, "{both:?}");
}

#[test]
fn an_idle_credit_is_spent_first_and_is_bounded() {
    let config = SfqConfig { idle_credit: RequestCost::from_ios(10), ..plain(1.0) };
    let mut scheduler = Sfq::new(config);
    let ids = [1, 1].map(|shares| scheduler.add_flow(&weight(shares), Instant::ZERO));
    dispatched(&mut scheduler, &ids[..1], Instant::ZERO, 10_000);
    let first = dispatched(&mut scheduler, &ids, Instant::ZERO, 10);
    assert!(first[1] >= 9.0, "{first:?}");
    let then = dispatched(&mut scheduler, &ids, Instant::ZERO, 100);
    assert!((then[0] - then[1]).abs() <= 3.0, "{then:?}");
}

#[test]
fn a_new_flow_has_no_credit() {
    let config = SfqConfig { idle_credit: RequestCost::from_ios(10), ..plain(1.0) };
    let mut scheduler = Sfq::new(config);
    let old = scheduler.add_flow(&weight(1), Instant::ZERO);
    dispatched(&mut scheduler, &[old], Instant::ZERO, 1_000);
    let new = scheduler.add_flow(&weight(1), Instant::ZERO);
    let both = dispatched(&mut scheduler, &[old, new], Instant::ZERO, 20);
    assert!((both[0] - both[1]).abs() <= 2.0, "{both:?}");
}

/// Else a consumer would be rewarded, when it is let go, for the time in which it was held back.
#[test]
fn a_flow_that_was_limited_saved_up_nothing() {
    let mut scheduler = Sfq::new(plain(1.0));
    let ids = [1, 1].map(|shares| scheduler.add_flow(&weight(shares), Instant::ZERO));
    let limit = ConsumerLimit {
        iops: Some(Iops::ZERO),
        bytes_per_s: None,
        burst: Duration::ZERO,
        beyond: BeyondLimit::Wait,
    };
    scheduler.set_limit(ids[1], Some(limit), Instant::ZERO).unwrap();
    let held = dispatched(&mut scheduler, &ids, Instant::ZERO, 5_000);
    assert!(held[1] <= 1.0, "{held:?}");
    scheduler.set_limit(ids[1], None, Instant::ZERO).unwrap();
    let free = dispatched(&mut scheduler, &ids, Instant::ZERO, 100);
    assert!((free[0] - free[1]).abs() <= 2.0, "{free:?}");
}

#[test]
fn a_batch_follows_a_local_stream_and_no_other() {
    let batch = FlowBatch { locality: Bytes::from_mib(1), requests: 3, cost: RequestCost::from_ios(100) };
    let mut scheduler = Sfq::new(SfqConfig { batch: Some(batch), ..plain(100.0) });
    let ids = [1, 1, 1].map(|shares| scheduler.add_flow(&weight(shares), Instant::ZERO));
    for index in 0..8 {
        let near = StorageExtent { offset: index * 4_096, bytes: 4_096 };
        let far = StorageExtent { offset: index << 30, bytes: 4_096 };
        for (&id, (name, extent)) in ids.iter().zip([('s', near), ('q', far), ('r', far)]) {
            scheduler.enqueue(id, Instant::ZERO, name, extent).unwrap();
        }
    }
    assert_eq!(order(&mut scheduler), "ssssqrqrqrqrssssqrqrqrqr");
}

/// Everything that can go, in order.
fn order(scheduler: &mut Sfq<char>) -> String {
    let next = || match scheduler.pull(Instant::ZERO) {
        PullAnswer::Request { request, .. } => Some(request),
        _ => None,
    };
    std::iter::from_fn(next).collect()
}

#[test]
fn a_batch_is_no_debt_after_an_idle_time() {
    let mut scheduler = Sfq::new(SfqConfig { batch: Some(FlowBatch::default()), ..plain(100.0) });
    let ids = [1, 1].map(|shares| scheduler.add_flow(&weight(shares), Instant::ZERO));
    for _ in 0..8 {
        scheduler.enqueue(ids[0], Instant::ZERO, 'a', StorageExtent::default()).unwrap();
    }
    assert_eq!(order(&mut scheduler), "aaaaaaaa");
    for _ in 0..8 {
        scheduler.complete(ids[0], Instant::ZERO).unwrap();
    }
    for index in 0..4 {
        for (&id, name) in ids.iter().zip(['a', 'b']) {
            scheduler
                .enqueue(id, Instant::ZERO, name, StorageExtent { offset: index << 30, bytes: 0 })
                .unwrap();
        }
    }
    assert_eq!(order(&mut scheduler), "abababab");
}

/// A credit puts a tag behind virtual time; virtual time must not follow it there.
#[test]
fn one_flows_credit_does_not_add_to_anothers() {
    let config = SfqConfig { idle_credit: RequestCost::from_ios(10), ..plain(1.0) };
    let mut scheduler = Sfq::new(config);
    let ids = [1, 1, 1].map(|shares| scheduler.add_flow(&weight(shares), Instant::ZERO));
    dispatched(&mut scheduler, &ids[..1], Instant::ZERO, 1_000);
    scheduler.enqueue(ids[1], Instant::ZERO, (), StorageExtent::default()).unwrap();
    assert!(matches!(scheduler.pull(Instant::ZERO), PullAnswer::Request { flow, .. } if flow == ids[1]));
    scheduler.complete(ids[1], Instant::ZERO).unwrap();
    let counts = dispatched(&mut scheduler, &[ids[0], ids[2]], Instant::ZERO, 100);
    assert!(counts[1] - counts[0] <= 12.0, "{counts:?}");
}

#[test]
fn a_flow_that_becomes_exempt_is_level_with_the_exempt() {
    let mut scheduler = Sfq::new(plain(1.0));
    let protected = scheduler.add_flow(&FlowConfig { exempt: true, ..weight(1) }, Instant::ZERO);
    let other = scheduler.add_flow(&weight(1), Instant::ZERO);
    dispatched(&mut scheduler, &[other], Instant::ZERO, 1_000);
    scheduler.set_exempt(other, true, Instant::ZERO).unwrap();
    let counts = dispatched(&mut scheduler, &[protected, other], Instant::ZERO, 100);
    assert!((counts[0] - counts[1]).abs() <= 2.0, "{counts:?}");
}

#[test]
fn an_exempt_flow_goes_first_and_leaves_window_and_shares_alone() {
    let mut scheduler = Sfq::new(plain(2.0));
    let ids = [1, 3].map(|shares| scheduler.add_flow(&weight(shares), Instant::ZERO));
    let protected = scheduler.add_flow(&FlowConfig { exempt: true, ..weight(1) }, Instant::ZERO);
    let mut counts = [0.0, 0.0];
    for _ in 0..1_000 {
        for id in [ids[0], ids[0], ids[1], ids[1], protected] {
            // What does not fit stays out: each flow is backlogged all the same.
            let _ = scheduler.enqueue(id, Instant::ZERO, (), StorageExtent::default());
        }
        let mut running = Vec::new();
        while let PullAnswer::Request { flow, .. } = scheduler.pull(Instant::ZERO) {
            running.push(flow);
        }
        assert_eq!(running[0], protected);
        assert_eq!((scheduler.exempt_outstanding(), scheduler.outstanding()), (1, 2));
        for flow in running {
            scheduler.complete(flow, Instant::ZERO).unwrap();
            for (count, &id) in counts.iter_mut().zip(&ids) {
                *count += f64::from(u8::from(id == flow));
            }
        }
    }
    assert!((counts[1] / counts[0] - 3.0).abs() < 0.05, "{counts:?}");
}

#[test]
fn a_flow_removed_with_requests_outstanding_keeps_their_place_in_the_window() {
    let mut scheduler = Sfq::new(plain(1.0));
    let old = scheduler.add_flow(&weight(1), Instant::ZERO);
    scheduler.enqueue(old, Instant::ZERO, 'a', StorageExtent::default()).unwrap();
    scheduler.enqueue(old, Instant::ZERO, 'b', StorageExtent::default()).unwrap();
    assert_eq!(
        scheduler.pull(Instant::ZERO),
        PullAnswer::Request { flow: old, request: 'a', released: Instant::ZERO }
    );
    assert_eq!(scheduler.remove_flow(old), Ok(vec!['b']));
    let new = scheduler.add_flow(&weight(1), Instant::ZERO);
    scheduler.enqueue(new, Instant::ZERO, 'c', StorageExtent::default()).unwrap();
    assert_eq!(scheduler.pull(Instant::ZERO), PullAnswer::Nothing);
    scheduler.complete(old, Instant::ZERO).unwrap();
    assert_eq!(
        scheduler.pull(Instant::ZERO),
        PullAnswer::Request { flow: new, request: 'c', released: Instant::ZERO }
    );
    assert!(scheduler.complete(old, Instant::ZERO).is_err());
}

#[test]
fn a_delay_counts_from_arrival_and_changes_for_what_is_held() {
    let at = |millis: u64| Instant::from_nanos(millis * 1_000_000);
    let mut scheduler = Sfq::new(plain(8.0));
    let config = FlowConfig { delay: Latency::from_millis(10), ..weight(1) };
    let flow = scheduler.add_flow(&config, at(0));
    scheduler.enqueue(flow, at(0), 'a', StorageExtent::default()).unwrap();
    scheduler.enqueue(flow, at(4), 'b', StorageExtent::default()).unwrap();
    assert_eq!(scheduler.pull(at(4)), PullAnswer::NotBefore(at(10)));
    assert_eq!(scheduler.pull(at(10)), PullAnswer::Request { flow, request: 'a', released: at(10) });
    assert_eq!(scheduler.pull(at(10)), PullAnswer::NotBefore(at(14)));
    scheduler.set_delay(flow, Latency::from_millis(50), at(11)).unwrap();
    assert_eq!(scheduler.pull(at(14)), PullAnswer::NotBefore(at(54)));
    scheduler.set_delay(flow, Latency::from_millis(2), at(15)).unwrap();
    assert_eq!(scheduler.pull(at(15)), PullAnswer::Request { flow, request: 'b', released: at(6) });
}

/// It used to wait for the limit as well.
#[test]
fn a_request_beyond_a_soft_limit_goes_as_surplus_as_soon_as_its_delay_is_over() {
    let at = |millis: u64| Instant::from_nanos(millis * 1_000_000);
    let mut scheduler = Sfq::new(plain(8.0));
    let limit = ConsumerLimit {
        iops: Some(Iops::new(1.0)),
        bytes_per_s: None,
        burst: Duration::ZERO,
        beyond: BeyondLimit::Surplus,
    };
    let config = FlowConfig { delay: Latency::from_millis(10), limit: Some(limit), ..weight(1) };
    let flow = scheduler.add_flow(&config, at(0));
    scheduler.enqueue(flow, at(0), 'a', StorageExtent::default()).unwrap();
    scheduler.enqueue(flow, at(5), 'b', StorageExtent::default()).unwrap();
    assert_eq!(scheduler.pull(at(10)), PullAnswer::Request { flow, request: 'a', released: at(10) });
    assert_eq!(scheduler.pull(at(10)), PullAnswer::NotBefore(at(15)));
    assert_eq!(scheduler.pull(at(15)), PullAnswer::Request { flow, request: 'b', released: at(15) });
}

#[test]
fn a_clock_set_back_does_not_freeze_what_is_held() {
    let at = |millis: u64| Instant::from_nanos(millis * 1_000_000);
    let mut scheduler = Sfq::new(plain(8.0));
    let flow = scheduler.add_flow(&FlowConfig { delay: Latency::from_millis(10), ..weight(1) }, at(0));
    scheduler.enqueue(flow, at(3_600_000), (), StorageExtent::default()).unwrap();
    assert_eq!(scheduler.pull(at(5)), PullAnswer::NotBefore(at(15)));
    assert_eq!(scheduler.pull(at(15)), PullAnswer::Request { flow, request: (), released: at(15) });
}

#[test]
fn a_limit_is_kept_while_the_storage_is_idle() {
    let mut scheduler = Sfq::new(plain(8.0));
    let limit = ConsumerLimit {
        iops: Some(Iops::new(100.0)),
        bytes_per_s: None,
        burst: Duration::ZERO,
        beyond: BeyondLimit::Wait,
    };
    let flow = scheduler.add_flow(&FlowConfig { limit: Some(limit), ..weight(1) }, Instant::ZERO);
    let mut now = Instant::ZERO;
    for _ in 0..100 {
        scheduler.enqueue(flow, now, (), StorageExtent::default()).unwrap();
    }
    let mut count = 0;
    loop {
        match scheduler.pull(now) {
            PullAnswer::Request { .. } => {
                count += 1;
                scheduler.complete(flow, now).unwrap();
            }
            PullAnswer::NotBefore(then) => now = then,
            PullAnswer::Nothing => break,
        }
    }
    assert_eq!(count, 100);
    assert_eq!(now, Instant::from_nanos(990_000_000));
}
