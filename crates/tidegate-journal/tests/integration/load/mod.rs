//! Loops under a simulated load, for the tests of the journal.

use std::time::Duration;

use rand::{RngExt as _, SeedableRng as _};
use rand_distr::{Distribution as _, LogNormal};
use rand_pcg::Pcg64;
use tidegate_control::{
    Commands, ConsumerCommand, ConsumerObservation, ControlLoop, Decision, LawConfig, LoopConfig,
    MeanOutstanding, Observation, OperationTotals,
};
use tidegate_journal::{ConsumerReading, ThrottleReading};
use tidegate_units::{Bytes, ConsumerName, Instant, Latency, ResourceName, Shares, Window};

/// Origin of the sensors' measurements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sensor {
    /// The gateway times each request, and rounds.
    Gateway,
    /// A sensor that rounds to whole microseconds.
    Micros,
    /// A sensor that does not round.
    Exact,
    /// The agent knows counts of each consumer and the latency of the device, in whole milliseconds.
    Agent,
}

/// Clients of a resource that keep a number of requests outstanding each, with the resource's loop.
pub(crate) struct LoadedResource {
    pub(crate) control: ControlLoop,
    clients: Vec<Client>,
    sensor: Sensor,
    random: Pcg64,
    decided: Instant,
    window: Option<Window>,
    in_force: Vec<ConsumerReading>,
}

struct Client {
    name: ConsumerName,
    /// Requests outstanding: times of dispatch and completion in nanoseconds, and whether they write.
    slots: Vec<(u64, u64, bool)>,
    /// Parts that write, in per cent.
    writes: u32,
    sizes: &'static [u64],
    observed: u64,
}

/// The outcome of one control interval.
pub(crate) struct Decided {
    pub(crate) observation: Observation,
    pub(crate) commands: Commands,
    pub(crate) decision: Decision,
    /// The throttle that was in force before.
    pub(crate) reading: ThrottleReading,
}

impl LoadedResource {
    pub(crate) fn new(number: u32, law: LawConfig, interval: Duration, clients: u32, sensor: Sensor) -> Self {
        let name = ResourceName::new(&format!("resource-{number}")).expect("a name");
        let config = LoopConfig { interval, ..LoopConfig::new(name, Latency::from_millis(5), law) };
        let client = |place: u32| Client {
            name: ConsumerName::new(&format!("consumer-{number}-{place}")).expect("a name"),
            slots: vec![(0, 0, false); 4 << (place % 3)],
            writes: [0, 100, 30, 0][place as usize % 4],
            sizes: [&[8_192][..], &[4_096], &[4_096, 8_192, 65_536], &[16_384]][place as usize % 4],
            observed: 0,
        };
        Self {
            control: ControlLoop::new(config).expect("a valid configuration"),
            clients: (0..clients).map(client).collect(),
            sensor,
            random: Pcg64::seed_from_u64(u64::from(number)),
            decided: Instant::ZERO,
            window: None,
            in_force: Vec::new(),
        }
    }

    /// Lets the clients work until now, and decides.
    pub(crate) fn step(&mut self, now: Instant) -> Decided {
        let latency = LogNormal::new((4e6_f64).ln(), 0.6).expect("a distribution");
        let random = &mut self.random;
        let observed = self.clients.iter_mut().map(|client| client.observe(now, &latency, random));
        let mut observed: Vec<_> = observed.collect();
        match self.sensor {
            Sensor::Gateway => observed = observed.into_iter().map(ConsumerObservation::rounded).collect(),
            Sensor::Micros => observed.iter_mut().for_each(in_micros),
            Sensor::Exact => {}
            Sensor::Agent => by_device(&mut observed, now.saturating_since(self.decided)),
        }
        self.decide(observed, now)
    }

    /// Decides without any request.
    pub(crate) fn idle(&mut self, now: Instant) -> Decided {
        let idle = |client: &Client| ConsumerObservation::idle(client.name.clone(), Shares::DEFAULT, false);
        let idle = self.clients.iter().map(idle).collect();
        self.decide(idle, now)
    }

    fn decide(&mut self, observed: Vec<ConsumerObservation>, now: Instant) -> Decided {
        self.decided = now;
        let config = self.control.config();
        let at = if self.sensor == Sensor::Gateway { config.observation_time(now) } else { now };
        let observation = Observation::new(config.resource.clone(), at, observed);
        // As both sensors read it back: a gateway its window, an agent a limit for each consumer.
        let consumers = match self.sensor {
            Sensor::Gateway | Sensor::Micros | Sensor::Exact => Vec::new(),
            Sensor::Agent => self.in_force.clone(),
        };
        let reading = ThrottleReading { window: self.window.filter(|_| consumers.is_empty()), consumers };
        let (commands, decision) = self.control.step(at, &observation);
        self.window = commands.window;
        let in_force = |command: &ConsumerCommand| ConsumerReading {
            delay: command.delay,
            ..ConsumerReading::unlimited(command.name.clone())
        };
        self.in_force = commands.consumers.iter().map(in_force).collect();
        Decided { observation, commands, decision, reading }
    }
}

impl Client {
    fn observe(&mut self, now: Instant, latency: &LogNormal<f64>, random: &mut Pcg64) -> ConsumerObservation {
        let now = now.as_nanos();
        if self.observed == 0 {
            // The first interval is as long as any.
            self.observed = now - 100_000_000;
        }
        let mut totals = [OperationTotals::default(); 2];
        let mut outstanding_nanos = 0_u128;
        for slot in &mut self.slots {
            let mut since = self.observed;
            while slot.1 <= now {
                if slot.1 > 0 {
                    let operations = &mut totals[usize::from(slot.2)];
                    operations.count += 1;
                    let size = self.sizes[random.random_range(0..self.sizes.len())];
                    operations.bytes = Bytes::new(operations.bytes.get() + size);
                    operations.total_latency =
                        operations.total_latency.saturating_add(Latency::from_nanos(slot.1 - slot.0));
                    outstanding_nanos += u128::from(slot.1.saturating_sub(since));
                }
                // A client thinks for some microseconds before its next request.
                let begin = slot.1.max(self.observed) + random.random_range(2_000..20_000);
                since = begin;
                let takes = latency.sample(random) as u64 + 1;
                *slot = (begin, begin + takes, random.random_range(0..100) < self.writes);
            }
            outstanding_nanos += u128::from(now.saturating_sub(since.max(slot.0)));
            if slot.0 <= now {
                let operations = &mut totals[usize::from(slot.2)];
                operations.in_flight += 1;
                let age = Latency::from_nanos(now - slot.0);
                operations.oldest_in_flight = Some(operations.oldest_in_flight.unwrap_or_default().max(age));
            }
        }
        let elapsed = now - self.observed;
        self.observed = now;
        let [reads, writes] = totals;
        ConsumerObservation {
            reads,
            writes,
            mean_outstanding: MeanOutstanding::new(outstanding_nanos as f64 / elapsed as f64),
            ..ConsumerObservation::idle(self.name.clone(), Shares::DEFAULT, false)
        }
    }
}

fn in_micros(consumer: &mut ConsumerObservation) {
    let whole = |time: Latency| Latency::from_micros((time.as_nanos() + 500) / 1_000);
    for operations in [&mut consumer.reads, &mut consumer.writes] {
        operations.total_latency = whole(operations.total_latency);
        operations.oldest_in_flight = operations.oldest_in_flight.map(whole);
    }
}

/// Replaces what an agent does not know: latencies of single consumers, and requests in flight.
fn by_device(consumers: &mut [ConsumerObservation], elapsed: Duration) {
    let kinds: [fn(&mut ConsumerObservation) -> &mut OperationTotals; 2] =
        [|consumer| &mut consumer.reads, |consumer| &mut consumer.writes];
    for kind in kinds {
        let sum = |of: fn(&OperationTotals) -> u64, consumers: &mut [ConsumerObservation]| {
            consumers.iter_mut().map(|consumer| of(kind(consumer))).sum::<u64>()
        };
        let count = sum(|operations| operations.count, consumers).max(1);
        let millis = sum(|operations| operations.total_latency.as_nanos(), consumers) / 1_000_000;
        let mean = Latency::from_nanos(millis * 1_000_000 / count);
        for consumer in consumers.iter_mut() {
            let operations = kind(consumer);
            operations.total_latency = mean.scale(operations.count as f64);
            (operations.in_flight, operations.oldest_in_flight) = (0, None);
        }
    }
    for consumer in consumers {
        let total = consumer.reads.total_latency.as_secs_f64() + consumer.writes.total_latency.as_secs_f64();
        consumer.mean_outstanding = MeanOutstanding::new(total / elapsed.as_secs_f64());
    }
}
