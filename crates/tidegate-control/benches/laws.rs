//! What one decision costs. Compare `step/1` with the agent's budget (1 000 resources of ten consumers each
//! at 100 ms: at most 5 % of a core, so 5 µs per step) and `step/10000` for the cost per consumer.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use tidegate_control::{
    AutoConfig, ConsumerObservation, ControlLoop, IntegralConfig, LawConfig, LoopConfig, MeanOutstanding,
    Observation, OperationTotals, PidConfig, SelfTuningConfig, WindowConfig,
};
use tidegate_units::{Bytes, ConsumerName, Instant, Latency, ResourceName, Shares};

fn observation(consumers: u32) -> Observation {
    let consumer = |index: u32| {
        let name = ConsumerName::new(&format!("consumer-{index}")).expect("a short name");
        let done = OperationTotals {
            count: 16,
            bytes: Bytes::from_kib(64),
            total_latency: Latency::from_millis(16 * 20),
            in_flight: 4,
            oldest_in_flight: Some(Latency::from_millis(30)),
        };
        ConsumerObservation {
            reads: done,
            writes: done,
            mean_outstanding: MeanOutstanding::new(4.0),
            queued: 3,
            ..ConsumerObservation::idle(name, Shares::DEFAULT, index == 0)
        }
    };
    let resource = ResourceName::new("sata").expect("a short name");
    Observation::new(resource, Instant::ZERO, (0..consumers).map(consumer).collect())
}

fn step(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("step");
    let laws = [
        ("auto", LawConfig::Auto(AutoConfig::default())),
        ("window", LawConfig::Window(WindowConfig::default())),
        ("pid", LawConfig::Pid(PidConfig::default())),
        ("integral", LawConfig::Integral(IntegralConfig::default())),
        ("self-tuning", LawConfig::SelfTuning(SelfTuningConfig::default())),
    ];
    for (name, law) in laws {
        for consumers in [1, 10, 10_000] {
            let observation = observation(consumers);
            let config = LoopConfig::new(observation.resource.clone(), Latency::from_millis(15), law);
            let mut control = ControlLoop::new(config).expect("the defaults are valid");
            let mut now = Instant::ZERO;
            group.bench_function(BenchmarkId::new(name, consumers), |bencher| {
                bencher.iter(|| {
                    now = now + Latency::from_millis(250);
                    control.step(now, black_box(&observation))
                });
            });
        }
    }
    group.finish();
}

criterion_group!(benches, step);
criterion_main!(benches);
