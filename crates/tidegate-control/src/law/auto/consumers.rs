//! The worst consumer, and the scatter of latencies that sets the margin below the target.
//!
//! The promise is made to each consumer, and a pooled mean hides the slow one. So the law steers by the worst
//! consumer's mean, less what chance makes of it.

use tidegate_units::{ConsumerName, Latency};

use crate::document::observation::ConsumerObservation;
use crate::document::signal::SignalRequests;

/// Seconds in which the memory of a consumer's latencies falls to 1/e.
const MEMORY: f64 = 5.0;

/// Requests in which it falls to 1/e if they take longer.
const MEMORY_REQUESTS: f64 = 60.0;

/// Requests that a consumer needs to be heard as the worst.
const HEARD: f64 = 20.0;

/// The most that the worst consumer counts for, as a multiple of the pooled mean.
const MOST: f64 = 4.0;

/// The weight of a new squared deviation in the scatter, and the stretches that the first scatter stands for.
const SCATTER_WEIGHT: f64 = 0.05;
const FIRST_STRETCHES: f64 = 4.0;

/// The scatter before anything is known, as a standard deviation of logarithms.
const FIRST_SCATTER: f64 = 0.11;

/// Standard deviations between a consumer's mean and the target: 5 % of normally distributed seconds are then
/// above it, and the excess takes care of the rest.
const DEVIATIONS: f64 = 1.6;

/// The excess grows by the first for each stretch above the target, and falls by the second for each other
/// one. It stands still at 1.5 % of stretches above, whatever their distribution.
const EXCESS: (f64, f64) = (0.12, 0.12 * 0.015 / 0.985);

/// The part by which the margin by scatter falls for each stretch within the target, its rise for each one
/// above, and its least.
const EASE: (f64, f64, f64) = (0.005, 0.5, 0.3);

/// The weight of a new stretch in the part of stretches above the target.
const ABOVE_WEIGHT: f64 = 0.05;

/// Bounds of the margin of a consumer, as a logarithm, and of the excess in it.
const MARGIN: (f64, f64) = (0.03, 0.4);
const MOST_EXCESS: f64 = 0.2;

/// The least length of the stretches whose means scatter, in seconds, and the least number of requests.
const STRETCH: f64 = 1.0;
const STRETCH_REQUESTS: f64 = 4.0;

#[derive(Debug, Clone)]
struct ConsumerMemory {
    /// `None`: all consumers together.
    name: Option<ConsumerName>,
    count: f64,
    total: f64,
    /// The part of the last stretches that were above the target.
    above: f64,
    /// The window is at work, in the present stretch.
    bound: bool,
    /// The present stretch.
    stretch: f64,
    stretch_count: f64,
    stretch_total: f64,
    /// The slow mean of logarithms of the stretches' means, and their mean squared deviation.
    slow: Option<f64>,
    scatter: f64,
    /// Number of squared deviations in it.
    stretches: f64,
    /// The part of the margin that the stretches above the target ask for.
    excess: f64,
    /// The part of the margin by scatter that is kept: less while no stretch is above the target.
    ease: f64,
}

impl ConsumerMemory {
    fn new(name: Option<ConsumerName>) -> Self {
        Self {
            name,
            count: 0.0,
            total: 0.0,
            above: 0.0,
            bound: false,
            stretch: 0.0,
            stretch_count: 0.0,
            stretch_total: 0.0,
            slow: None,
            scatter: FIRST_SCATTER * FIRST_SCATTER,
            stretches: FIRST_STRETCHES,
            excess: 0.0,
            ease: 1.0,
        }
    }

    /// The distance that the consumer's mean needs from the target, as a logarithm.
    fn margin(&self) -> f64 {
        (self.ease * DEVIATIONS * self.scatter.sqrt() + self.excess).clamp(MARGIN.0, MARGIN.1)
    }

    /// Takes note of an interval in which so many requests took so long in all.
    fn observe(&mut self, count: f64, total: f64, target: Latency, seconds: f64, binds: bool) {
        // A consumer with few requests is remembered for longer.
        let remaining = (-(seconds / MEMORY).min(count / MEMORY_REQUESTS)).exp();
        self.count = self.count * remaining + count;
        self.total = self.total * remaining + total;
        if binds != self.bound {
            (self.stretch, self.stretch_count, self.stretch_total) = (0.0, 0.0, 0.0);
            self.bound = binds;
        }
        self.stretch += seconds;
        self.stretch_count += count;
        self.stretch_total += total;
        if self.stretch >= STRETCH && self.stretch_count >= STRETCH_REQUESTS {
            let mean = (self.stretch_total / self.stretch_count).max(1e-9);
            (self.stretch, self.stretch_count, self.stretch_total) = (0.0, 0.0, 0.0);
            let target = target.as_secs_f64();
            self.above += ABOVE_WEIGHT * (f64::from(u8::from(mean > target)) - self.above);
            if binds {
                self.learn_margin(mean, target);
            }
        }
    }

    /// Takes a stretch's mean into account, under a window that was at work.
    fn learn_margin(&mut self, mean: f64, target: f64) {
        let change = if mean > target { EXCESS.0 } else { -EXCESS.1 };
        self.excess = (self.excess + change).clamp(0.0, MOST_EXCESS);
        self.ease = if mean > target {
            (self.ease + EASE.1).min(1.0)
        } else {
            (self.ease * (1.0 - EASE.0)).max(EASE.2)
        };
        let Some(slow) = &mut self.slow else {
            self.slow = Some(mean.ln());
            return;
        };
        let deviation = mean.ln() - *slow;
        *slow += 0.2 * deviation;
        self.stretches += 1.0;
        let weight = SCATTER_WEIGHT.max(1.0 / self.stretches);
        self.scatter += weight * (deviation * deviation - self.scatter);
    }
}

/// The latencies of each consumer of the signal.
#[derive(Debug, Clone, Default)]
pub(super) struct ConsumerLatencies {
    consumers: Vec<ConsumerMemory>,
}

/// The consumer that is nearest to its target.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct WorstConsumer {
    /// Its mean over the pooled mean, at least 1 less the margin of others.
    pub(super) mean: f64,
    /// The factor that it has to stay below the target.
    pub(super) margin: f64,
}

impl ConsumerLatencies {
    /// Takes note of an interval. Returns the requests of the signal and the sum of their latencies, each
    /// scaled by the target over the consumer's own goal. `binds` says that the window is at work, so that
    /// the scatter is that of regulated storage.
    pub(super) fn observe(
        &mut self,
        consumers: &[ConsumerObservation],
        signal: SignalRequests,
        target: Latency,
        seconds: f64,
        binds: bool,
    ) -> (f64, f64) {
        let (mut all_count, mut all_total) = (0.0, 0.0);
        let heard = consumers
            .iter()
            .filter(|consumer| consumer.protected || signal != SignalRequests::ProtectedReads);
        let mut place = 0;
        for consumer in heard {
            self.seat(place, &consumer.name);
            let memory = &mut self.consumers[place];
            place += 1;
            let writes = (signal == SignalRequests::Everything).then_some(&consumer.writes);
            let (mut count, mut total) = (0.0, 0.0);
            for operations in std::iter::once(&consumer.reads).chain(writes) {
                count += operations.count as f64;
                total += operations.total_latency.as_secs_f64();
            }
            if let Some(goal) = consumer.goal.filter(|goal| *goal > Latency::ZERO) {
                total *= target.as_secs_f64() / goal.as_secs_f64();
            }
            all_count += count;
            all_total += total;
            memory.observe(count, total, target, seconds, binds);
        }
        self.consumers.truncate(place);
        (all_count, all_total)
    }

    /// The same where the signal is known of all consumers together only: they count as one.
    pub(super) fn observe_pooled(
        &mut self,
        count: f64,
        total: f64,
        target: Latency,
        seconds: f64,
        binds: bool,
    ) -> (f64, f64) {
        self.consumers.truncate(1);
        if self.consumers.is_empty() {
            self.consumers.push(ConsumerMemory::new(None));
        }
        self.consumers[0].observe(count, total, target, seconds, binds);
        (count, total)
    }

    /// Puts the memory of this consumer at a place.
    fn seat(&mut self, place: usize, name: &ConsumerName) {
        if self.consumers.get(place).is_some_and(|memory| memory.name.as_ref() == Some(name)) {
            return;
        }
        match self.consumers.iter().skip(place).position(|memory| memory.name.as_ref() == Some(name)) {
            Some(further) => self.consumers.swap(place, place + further),
            None => {
                self.consumers.push(ConsumerMemory::new(Some(name.clone())));
                let last = self.consumers.len() - 1;
                self.consumers.swap(place, last);
            }
        }
    }

    /// Requests of the last seconds, and the sum of their latencies.
    pub(super) fn recent(&self) -> (f64, f64) {
        self.consumers
            .iter()
            .fold((0.0, 0.0), |(count, total), memory| (count + memory.count, total + memory.total))
    }

    /// The consumer that is nearest to its target. Consumers with few requests count by the pooled mean.
    pub(super) fn worst(&self) -> WorstConsumer {
        let (count, total) = self.recent();
        let pooled = total / count.max(f64::MIN_POSITIVE);
        let among = 2.0 * (self.consumers.len().max(1) as f64).ln();
        let mut worst = WorstConsumer { mean: 1.0, margin: (DEVIATIONS * FIRST_SCATTER).exp() };
        let mut most = 0.0;
        for memory in self.consumers.iter().filter(|memory| memory.count > 0.0) {
            let mean = if memory.count >= HEARD && pooled > 0.0 {
                let chance = (among / memory.count).sqrt();
                (memory.total / memory.count / pooled * (1.0 - chance)).min(MOST)
            } else {
                1.0
            };
            let margin = memory.margin().exp();
            if mean * margin > most {
                most = mean * margin;
                worst = WorstConsumer { mean, margin };
            }
        }
        worst
    }

    /// The greatest part of the last stretches in which a consumer was above its target.
    pub(super) fn above(&self) -> f64 {
        self.consumers.iter().map(|memory| memory.above).fold(0.0, f64::max)
    }

    /// Forgets the slow means: the storage, or what it is asked, has changed.
    pub(super) fn begin_anew(&mut self) {
        for memory in &mut self.consumers {
            memory.slow = None;
        }
    }
}
