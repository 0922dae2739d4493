//! The worst consumer, and the scatter of latencies that sets the margin below the target.
//!
//! The promise is made to each consumer, and a pooled mean hides the slow one. So the law steers by the worst
//! consumer's mean, less what chance makes of it.

use tidegate_units::{ConsumerName, Latency};

use crate::document::observation::ConsumerObservation;
use crate::document::signal::SignalRequests;

/// Seconds in which the memory of a consumer's latencies falls to 1/e.
const MEMORY: f64 = 5.0;

/// Requests that a consumer needs to be heard as the worst.
const HEARD: f64 = 20.0;

/// The most that the worst consumer counts for, as a multiple of the pooled mean.
const MOST: f64 = 4.0;

/// The weight of a new squared deviation in the scatter.
const SCATTER_WEIGHT: f64 = 0.05;

/// The scatter before anything is known: the margin is then 0.8, as of other laws.
const FIRST_SCATTER: f64 = 0.11;

/// Deviations between goal and target: 2.3 % of normally distributed seconds are then above the target.
const DEVIATIONS: f64 = 2.0;

/// Bounds of the goal, as parts of the target.
const MARGIN: (f64, f64) = (0.6, 0.95);

/// The least length of the stretches whose means scatter, in seconds, and the least number of requests.
const STRETCH: f64 = 1.0;
const STRETCH_REQUESTS: f64 = 4.0;

#[derive(Debug, Clone)]
struct ConsumerMemory {
    name: ConsumerName,
    count: f64,
    total: f64,
    /// The present stretch.
    stretch: f64,
    stretch_count: f64,
    stretch_total: f64,
    /// The slow mean of logarithms of the stretches' means.
    slow: Option<f64>,
}

impl ConsumerMemory {
    fn new(name: ConsumerName) -> Self {
        Self {
            name,
            count: 0.0,
            total: 0.0,
            stretch: 0.0,
            stretch_count: 0.0,
            stretch_total: 0.0,
            slow: None,
        }
    }
}

/// The latencies of each consumer of the signal.
#[derive(Debug, Clone, Default)]
pub(super) struct ConsumerLatencies {
    consumers: Vec<ConsumerMemory>,
    /// Mean squared deviation of the logarithms of one-second means.
    scatter: Option<f64>,
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
        let remaining = (-seconds / MEMORY).exp();
        let (mut all_count, mut all_total) = (0.0, 0.0);
        let (mut deviations, mut deviating) = (0.0, 0.0);
        let heard = consumers.iter().filter(|consumer| {
            consumer.protected || signal != SignalRequests::ProtectedReads
        });
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
            memory.count = memory.count * remaining + count;
            memory.total = memory.total * remaining + total;
            if !binds {
                (memory.stretch, memory.stretch_count, memory.stretch_total) = (0.0, 0.0, 0.0);
                continue;
            }
            memory.stretch += seconds;
            memory.stretch_count += count;
            memory.stretch_total += total;
            if memory.stretch < STRETCH || memory.stretch_count < STRETCH_REQUESTS {
                continue;
            }
            let mean = (memory.stretch_total / memory.stretch_count).max(1e-9).ln();
            (memory.stretch, memory.stretch_count, memory.stretch_total) = (0.0, 0.0, 0.0);
            if let Some(slow) = &mut memory.slow {
                let deviation = mean - *slow;
                deviations += deviation * deviation;
                deviating += 1.0;
                *slow += 0.2 * deviation;
            } else {
                memory.slow = Some(mean);
            }
        }
        self.consumers.truncate(place);
        if deviating > 0.0 {
            let scatter = self.scatter.get_or_insert(FIRST_SCATTER * FIRST_SCATTER);
            *scatter += SCATTER_WEIGHT * (deviations / deviating - *scatter);
        }
        (all_count, all_total)
    }

    /// Puts the memory of this consumer at a place.
    fn seat(&mut self, place: usize, name: &ConsumerName) {
        if self.consumers.get(place).is_some_and(|memory| memory.name == *name) {
            return;
        }
        match self.consumers.iter().skip(place).position(|memory| memory.name == *name) {
            Some(further) => self.consumers.swap(place, place + further),
            None => {
                self.consumers.push(ConsumerMemory::new(name.clone()));
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

    /// The worst consumer's mean over the pooled mean, at least 1.
    pub(super) fn worst(&self) -> f64 {
        let (count, total) = self.recent();
        if !(count > 0.0 && total > 0.0) {
            return 1.0;
        }
        let pooled = total / count;
        let among = 2.0 * (self.consumers.len() as f64).ln();
        let mut worst: f64 = 1.0;
        for memory in self.consumers.iter().filter(|memory| memory.count >= HEARD) {
            let chance = (among / memory.count).sqrt();
            worst = worst.max(memory.total / memory.count / pooled * (1.0 - chance));
        }
        worst.min(MOST)
    }

    /// The goal as a part of the target.
    pub(super) fn margin(&self) -> f64 {
        let scatter = self.scatter.unwrap_or(FIRST_SCATTER * FIRST_SCATTER).sqrt();
        (-DEVIATIONS * scatter).exp().clamp(MARGIN.0, MARGIN.1)
    }

    /// Forgets the slow means: the storage, or what it is asked, has changed.
    pub(super) fn begin_anew(&mut self) {
        for memory in &mut self.consumers {
            memory.slow = None;
        }
    }
}
