//! One decision: a request arrives, the next is dispatched, and it completes, while N flows are backlogged.
//! The budget (10 000 flows) is 150 ns.

use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use tidegate_sched::{
    BeyondLimit, ConsumerLimit, Discipline, FlowConfig, LeakyBucket, PullAnswer, Sfq, SfqConfig,
    StorageExtent,
};
use tidegate_units::{Instant, Iops, Latency, Shares, Window};

/// Requests queued in each flow.
const BACKLOG: u64 = 4;

/// A scheduler in which every one of `flows` is backlogged, and the window leaves room for one request more.
fn backlogged(flows: u64, config: SfqConfig, flow: FlowConfig) -> (Sfq<u64>, Instant) {
    let mut now = Instant::ZERO;
    let mut scheduler = Sfq::new(config);
    for index in 0..flows {
        let weight = Shares::new((index % 7 + 1) as u32 * 100).unwrap_or_default();
        let id = scheduler.add_flow(&FlowConfig { weight, ..flow }, now);
        for request in 0..BACKLOG {
            let extent = StorageExtent { offset: request << 30, bytes: 4_096 };
            scheduler.enqueue(id, now, request, extent).expect("the queue has room");
        }
    }
    now = now + Duration::from_secs(1);
    (scheduler, now)
}

/// Dispatches a request, completes it, and queues another in its flow.
fn decide(scheduler: &mut Sfq<u64>, now: &mut Instant) {
    *now = *now + Duration::from_micros(1);
    if let PullAnswer::Request { flow, request, .. } = scheduler.pull(*now) {
        scheduler.complete(flow, *now).expect("it was just dispatched");
        let extent = StorageExtent { offset: request << 30, bytes: 4_096 };
        scheduler.enqueue(flow, *now, black_box(request), extent).expect("the queue has room");
    }
}

fn decision(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("decision");
    let whole = SfqConfig { window: Some(Window::new(32.0)), ..SfqConfig::default() };
    let fractional = SfqConfig { window: Some(Window::new(31.5)), ..SfqConfig::default() };
    let finish_tags = SfqConfig { discipline: Discipline::FinishTags, ..whole };
    let plain = FlowConfig::default();
    let limited = FlowConfig {
        limit: Some(ConsumerLimit {
            iops: Some(Iops::new(1e9)),
            bytes_per_s: None,
            burst: Duration::from_secs(1),
            beyond: BeyondLimit::Wait,
        }),
        ..plain
    };
    // A decision takes a microsecond of the bench's time: of one flow in a hundred reserved requests are due
    // half of the time, of 10 000 always.
    let reserved = FlowConfig { reservation: Some(Iops::new(5_000.0)), ..plain };
    // A token for every request: what the queue behind the bucket costs.
    let bucket = LeakyBucket {
        rate: Iops::new(1e9),
        size: 1_000,
        tick: Duration::from_millis(1),
        ahead: None,
        dither: false,
    };
    let released = FlowConfig { bucket: Some(bucket), ..plain };
    let delayed = FlowConfig { delay: Latency::from_nanos(1), ..plain };
    for flows in [1, 100, 10_000] {
        for (name, config, flow) in [
            ("window", whole, plain),
            ("finish tags", finish_tags, plain),
            ("fractional window", fractional, plain),
            ("limit", whole, limited),
            ("leaky bucket", whole, released),
            ("delay", whole, delayed),
            ("reservation", whole, reserved),
        ] {
            let (mut scheduler, mut now) = backlogged(flows, config, flow);
            group.bench_function(BenchmarkId::new(name, flows), |bencher| {
                bencher.iter(|| decide(&mut scheduler, &mut now));
            });
        }
    }
    group.finish();
}

criterion_group!(benches, decision);
criterion_main!(benches);
