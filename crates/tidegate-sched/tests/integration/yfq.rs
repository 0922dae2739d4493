//! YFQ: finish tags, against the published definition computed slowly, and in batches.

use std::collections::VecDeque;

use proptest::prelude::*;
use tidegate_sched::{Discipline, FlowConfig, FlowId, PullAnswer, RefillTime, Sfq, SfqConfig, StorageExtent};
use tidegate_units::{Instant, Shares, Window};

const KIB: u32 = 1024;
const NOW: Instant = Instant::ZERO;

/// YFQ as published, for a storage that serves one request at a time: a start and a finish tag for each
/// queue, whose request stays at its head while it is served. Tags are integers, with weights of powers of
/// two up to 2⁸ and costs in 1/16 I/O.
#[derive(Default)]
struct Published {
    queues: Vec<Queue>,
    serving: Option<usize>,
    /// What v was set to when the storage last became idle.
    idle_at: u64,
}

#[derive(Default)]
struct Queue {
    weight: u64,
    start: u64,
    finish: u64,
    /// Cost, request.
    requests: VecDeque<(u64, u64)>,
}

impl Queue {
    fn tag(&mut self, start: u64) {
        self.start = start;
        self.finish = start + self.requests[0].0 * 256 / self.weight;
    }
}

impl Published {
    fn busy(&self) -> impl Iterator<Item = &Queue> {
        self.queues.iter().filter(|queue| !queue.requests.is_empty())
    }

    fn virtual_work(&self) -> u64 {
        self.busy().map(|queue| queue.start).min().unwrap_or(self.idle_at)
    }

    fn arrive(&mut self, queue: usize, request: u64, sixteenths: u64) {
        let virtual_work = self.virtual_work();
        let queue = &mut self.queues[queue];
        queue.requests.push_back((sixteenths, request));
        if queue.requests.len() == 1 {
            queue.tag(queue.finish.max(virtual_work));
        }
    }

    /// Every request that may be served next: the definition leaves ties open.
    fn may_go(&self) -> Vec<(usize, u64)> {
        let least = self.busy().map(|queue| queue.finish).min();
        let busy = self.queues.iter().enumerate().filter(|(_, queue)| !queue.requests.is_empty());
        busy.filter(|(_, queue)| Some(queue.finish) == least)
            .map(|(at, queue)| (at, queue.requests[0].1))
            .collect()
    }

    fn done(&mut self) {
        let queue = &mut self.queues[self.serving.take().unwrap()];
        queue.requests.pop_front();
        if !queue.requests.is_empty() {
            queue.tag(queue.finish);
        } else if self.busy().next().is_none() {
            self.idle_at = self.queues.iter().map(|queue| queue.finish).max().unwrap();
        }
    }
}

fn yfq(window: f64, refill: RefillTime) -> SfqConfig {
    SfqConfig { refill, ..SfqConfig::yfq(Window::new(window)) }
}

fn weight(shares: u32) -> FlowConfig {
    FlowConfig { weight: Shares::new(shares).unwrap(), ..FlowConfig::default() }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    #[test]
    fn orders_as_published(
        weights in prop::collection::vec(0u32..9, 1..8),
        steps in prop::collection::vec((0u32..10, 0usize..8, 16u64..160), 1..400),
    ) {
        let mut scheduler = Sfq::new(yfq(1.0, RefillTime::OneByOne));
        let mut oracle = Published::default();
        let mut ids: Vec<FlowId> = Vec::new();
        for &exponent in &weights {
            ids.push(scheduler.add_flow(&weight(1 << exponent), NOW));
            oracle.queues.push(Queue { weight: 1 << exponent, ..Queue::default() });
        }
        for (request, &(action, flow, sixteenths)) in steps.iter().enumerate() {
            let request = request as u64;
            if action < 5 {
                let flow = flow % weights.len();
                let extent = StorageExtent { offset: 0, bytes: sixteenths as u32 * 4 * KIB };
                scheduler.enqueue(ids[flow], NOW, request, extent).unwrap();
                oracle.arrive(flow, request, sixteenths);
            } else if let Some(serving) = oracle.serving {
                prop_assert_eq!(scheduler.pull(NOW), PullAnswer::Nothing, "one at a time");
                scheduler.complete(ids[serving], NOW).unwrap();
                oracle.done();
            } else {
                let expected = oracle.may_go();
                match scheduler.pull(NOW) {
                    PullAnswer::Request { flow, request, .. } => {
                        let which = ids.iter().position(|&id| id == flow).unwrap();
                        prop_assert!(
                            expected.contains(&(which, request)),
                            "{which}/{request} went, {expected:?} might"
                        );
                        oracle.serving = Some(which);
                    }
                    other => prop_assert!(expected.is_empty(), "{other:?}, {expected:?} might go"),
                }
            }
        }
    }

    /// Weights are shares of what is dispatched in the long run, whatever is outstanding and however it is
    /// refilled.
    #[test]
    fn shares_a_long_backlog_by_weight(
        depth in 1u32..9,
        in_batches in any::<bool>(),
        weights in prop::collection::vec(1u32..20, 2..6),
        completions in prop::collection::vec(any::<usize>(), 1..20),
    ) {
        let refill = if in_batches { RefillTime::InBatches } else { RefillTime::OneByOne };
        let mut scheduler = Sfq::new(yfq(f64::from(depth), refill));
        let ids: Vec<FlowId> = weights.iter().map(|&shares| scheduler.add_flow(&weight(shares), NOW))
            .collect();
        for &id in ids.iter().chain(&ids) {
            scheduler.enqueue(id, NOW, (), StorageExtent::default()).unwrap();
        }
        let mut served = vec![0.0; ids.len()];
        let (mut running, mut completions) = (Vec::new(), completions.iter().cycle());
        for _ in 0..4_000 {
            while let PullAnswer::Request { flow, .. } = scheduler.pull(NOW) {
                scheduler.enqueue(flow, NOW, (), StorageExtent::default()).unwrap();
                served[ids.iter().position(|&id| id == flow).unwrap()] += 1.0;
                running.push(flow);
            }
            let flow = running.swap_remove(completions.next().unwrap() % running.len());
            scheduler.complete(flow, NOW).unwrap();
        }
        let (all, sum): (f64, u32) = (served.iter().sum(), weights.iter().sum());
        for (served, &shares) in served.iter().zip(&weights) {
            let entitled = all * f64::from(shares) / f64::from(sum);
            // The bound, in I/Os of this flow: two of the greatest c/φ.
            let apart = 2.0 * f64::from(shares) / f64::from(*weights.iter().min().unwrap());
            prop_assert!((served - entitled).abs() <= apart + 1e-6, "{served} of {all}, entitled to \
                {entitled}");
        }
    }

    /// A batch begins when nothing is outstanding, takes all that waits up to its size, and nothing joins it
    /// later.
    #[test]
    fn a_batch_is_full_or_takes_all_and_is_done_before_the_next(
        size in 1u32..6,
        discipline in prop_oneof![Just(Discipline::StartTags), Just(Discipline::FinishTags)],
        steps in prop::collection::vec((any::<bool>(), 0usize..4), 1..200),
    ) {
        let mut scheduler = Sfq::new(SfqConfig { discipline, ..yfq(f64::from(size), RefillTime::InBatches) });
        let ids: Vec<FlowId> = (1..5).map(|shares| scheduler.add_flow(&weight(shares), NOW)).collect();
        let mut running = Vec::new();
        for (arrive, which) in steps {
            if arrive {
                scheduler.enqueue(ids[which], NOW, (), StorageExtent::default()).unwrap();
            } else if !running.is_empty() {
                let flow = running.swap_remove(which % running.len());
                scheduler.complete(flow, NOW).unwrap();
            }
            let waiting = scheduler.queued();
            let expected = if running.is_empty() { waiting.min(size as usize) } else { 0 };
            for _ in 0..expected {
                let PullAnswer::Request { flow, .. } = scheduler.pull(NOW) else { panic!("{expected} of \
                    {waiting}") };
                running.push(flow);
            }
            prop_assert_eq!(scheduler.pull(NOW), PullAnswer::Nothing);
        }
    }
}

/// Everything that can go, in order, when flows of equal weight come back from idleness with these requests.
fn order(discipline: Discipline, requests: &[(usize, u32)]) -> Vec<usize> {
    let mut scheduler = Sfq::new(SfqConfig { discipline, ..SfqConfig::yfq(Window::new(100.0)) });
    let ids = [1, 1].map(|shares| scheduler.add_flow(&weight(shares), NOW));
    for &(flow, kib) in requests {
        scheduler.enqueue(ids[flow], NOW, flow, StorageExtent { offset: 0, bytes: kib * KIB }).unwrap();
    }
    let next = || match scheduler.pull(NOW) {
        PullAnswer::Request { request, .. } => Some(request),
        _ => None,
    };
    std::iter::from_fn(next).collect()
}

#[test]
fn small_requests_go_before_a_large_one_that_starts_with_them() {
    let requests = [(0, 256), (1, 64), (1, 64), (1, 64)];
    assert_eq!(order(Discipline::StartTags, &requests), [0, 1, 1, 1]);
    assert_eq!(order(Discipline::FinishTags, &requests), [1, 1, 1, 0]);
}

#[test]
fn a_weight_changed_while_waiting_counts_at_once() {
    let mut scheduler = Sfq::new(yfq(100.0, RefillTime::OneByOne));
    let ids = [100, 200].map(|shares| scheduler.add_flow(&weight(shares), NOW));
    for &id in &ids {
        scheduler.enqueue(id, NOW, (), StorageExtent::default()).unwrap();
    }
    scheduler.set_weight(ids[0], Shares::new(300).unwrap()).unwrap();
    assert!(matches!(scheduler.pull(NOW), PullAnswer::Request { flow, .. } if flow == ids[0]));
}

/// The virtual work stays with the least start tag: who was idle does not wait behind what others have been
/// promised.
#[test]
fn a_flow_that_was_idle_starts_with_the_least_start_tag() {
    let mut scheduler = Sfq::new(yfq(1.0, RefillTime::OneByOne));
    let [large, small, idle] = [1, 1, 1].map(|shares| scheduler.add_flow(&weight(shares), NOW));
    scheduler.enqueue(large, NOW, 'l', StorageExtent { offset: 0, bytes: 640 * KIB }).unwrap();
    for _ in 0..9 {
        scheduler.enqueue(small, NOW, 's', StorageExtent::default()).unwrap();
    }
    let next = |scheduler: &mut Sfq<char>| {
        let PullAnswer::Request { flow, request, .. } = scheduler.pull(NOW) else {
            panic!("something waits")
        };
        scheduler.complete(flow, NOW).unwrap();
        request
    };
    assert!((0..8).all(|_| next(&mut scheduler) == 's'));
    for _ in 0..8 {
        scheduler.enqueue(idle, NOW, 'i', StorageExtent::default()).unwrap();
    }
    let order: String = (0..10).map(|_| next(&mut scheduler)).collect();
    assert_eq!(order, "iiiiiiiisl", "v is the start tag of the large request, 0");
}
