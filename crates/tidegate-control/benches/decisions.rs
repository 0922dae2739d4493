//! Processor time of the decisions of a large gateway or agent, in per cent of a core: the law `auto` beside
//! the law `window`, in turns.
//!
//! `cargo bench -p tidegate-control --bench decisions` prints a table; `-- --json FILE` writes it, too. The
//! budget is 5 % of a core for 1 000 resources with 10 consumers each at 100 ms. As a test it runs for a
//! moment, so that it does not rot.
//!
//! Each step is the observation's way through the loop: estimates, law and commands. Making the observation
//! is the sensors' work, and not in the time. Latencies swing around the target, so that the laws decide.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a bench measures and prints")]
#![allow(clippy::disallowed_methods, reason = "a bench writes its result")]

use std::hint::black_box;
use std::time::Duration;

use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64;
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};
use tidegate_control::{
    AutoConfig, ConsumerObservation, ControlLoop, LawConfig, LoopConfig, MeanOutstanding, Observation,
    OperationTotals, WindowConfig,
};
use tidegate_units::{Bytes, ConsumerName, Instant, Latency, ResourceName, Shares};

const INTERVAL: Duration = Duration::from_millis(100);
const TARGET: Latency = Latency::from_millis(15);

/// Turns of one law before the other has its turn, in intervals.
const TURN: u32 = 10;

/// Turns that are not counted: the laws begin open.
const UNCOUNTED: u32 = 3;

/// The control loops of one law at all resources.
struct Loops {
    loops: Vec<ControlLoop>,
    turns: Vec<Duration>,
}

impl Loops {
    fn new(law: LawConfig, resources: u32) -> Self {
        let new = |index: u32| {
            let resource = ResourceName::new(&format!("vg{index}")).unwrap();
            let config = LoopConfig { interval: INTERVAL, ..LoopConfig::new(resource, TARGET, law) };
            ControlLoop::new(config).unwrap()
        };
        Self { loops: (0..resources).map(new).collect(), turns: Vec::new() }
    }

    /// Steps every loop with its observation.
    fn step(&mut self, now: Instant, observations: &[Observation]) -> Duration {
        let begin = processor_time();
        for (control, observation) in self.loops.iter_mut().zip(observations) {
            black_box(control.step(now, black_box(observation)));
        }
        processor_time() - begin
    }

    /// The median turn, as a part of a core.
    fn part_of_core(&mut self) -> f64 {
        self.turns.sort();
        self.turns[self.turns.len() / 2].as_secs_f64() / (TURN * INTERVAL).as_secs_f64()
    }
}

fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).expect("processor time is not negative")
}

fn observations(resources: u32, consumers: u32) -> Vec<Observation> {
    let idle = |index: u32| {
        let name = ConsumerName::new(&format!("consumer-{index}")).unwrap();
        ConsumerObservation::idle(name, Shares::DEFAULT, index == 0 && consumers > 1)
    };
    let observation = |index: u32| {
        let resource = ResourceName::new(&format!("vg{index}")).unwrap();
        Observation::new(resource, Instant::ZERO, (0..consumers).map(idle).collect())
    };
    (0..resources).map(observation).collect()
}

/// The measurements of one more interval: 10 to 50 requests of each consumer, in 10 to 22 ms.
fn measure(observations: &mut [Observation], now: Instant, rng: &mut Pcg64) {
    for observation in observations {
        observation.at = now;
        let latency = rng.random_range(10.0..22.0);
        for consumer in &mut observation.consumers {
            let count = rng.random_range(5..25);
            let done = OperationTotals {
                count,
                bytes: Bytes::from_kib(4 * count),
                total_latency: Latency::from_millis_f64(latency * rng.random_range(0.9..1.1) * count as f64),
                in_flight: 2,
                oldest_in_flight: Some(Latency::from_millis(5)),
            };
            (consumer.reads, consumer.writes) = (done, done);
            consumer.mean_outstanding = MeanOutstanding::new(6.0);
            consumer.queued = 3;
        }
    }
}

fn compare(resources: u32, consumers: u32, turns: u32) -> Value {
    let mut rng = Pcg64::seed_from_u64(1_000_000);
    let mut observations = observations(resources, consumers);
    let mut now = Instant::ZERO;
    let mut window = Loops::new(LawConfig::Window(WindowConfig::default()), resources);
    let mut auto = Loops::new(LawConfig::Auto(AutoConfig::default()), resources);
    for turn in 0..turns + UNCOUNTED {
        let mut times = [Duration::ZERO; 2];
        for _ in 0..TURN {
            now = now + INTERVAL;
            measure(&mut observations, now, &mut rng);
            for (time, law) in times.iter_mut().zip([&mut window, &mut auto]) {
                *time += law.step(now, &observations);
            }
        }
        if turn >= UNCOUNTED {
            window.turns.push(times[0]);
            auto.turns.push(times[1]);
        }
    }
    let parts = [window.part_of_core(), auto.part_of_core()];
    let steps = f64::from(resources) / INTERVAL.as_secs_f64();
    let [window, auto] =
        parts.map(|part| json!({ "core_percent": 100.0 * part, "us_per_step": 1e6 * part / steps }));
    json!({
        "resources": resources, "consumers_each": consumers, "window": window, "auto": auto,
        "ratio": parts[1] / parts[0]
    })
}

fn main() {
    let mut arguments = std::env::args().skip_while(|argument| argument != "--json").skip(1);
    let full = std::env::args().any(|argument| argument == "--bench");
    let cases: &[(u32, u32)] = if full { &[(1, 10), (1_000, 10), (1, 10_000)] } else { &[(10, 10)] };
    let results: Vec<Value> = cases
        .iter()
        .map(|(resources, consumers)| compare(*resources, *consumers, if full { 30 } else { 1 }))
        .collect();
    println!("{:>9}  {:>9}  {:>12}  {:>12}  {:>9}", "resources", "consumers", "window %", "auto %", "ratio");
    for result in &results {
        let number = |path: &str| result.pointer(path).and_then(Value::as_f64).unwrap();
        println!(
            "{:>9}  {:>9}  {:>12.3}  {:>12.3}  {:>9.2}",
            number("/resources"),
            number("/consumers_each"),
            number("/window/core_percent"),
            number("/auto/core_percent"),
            number("/ratio")
        );
    }
    if let Some(path) = arguments.next() {
        std::fs::write(path, format!("{}\n", json!(results))).unwrap();
    }
}
