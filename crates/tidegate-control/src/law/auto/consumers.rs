//! The worst consumer, and the scatter of latencies that sets the margin below the target.
//!
//! The promise is made to each consumer, and a pooled mean hides the slow one. So the law steers by the worst
//! consumer's mean, less what chance makes of it.

use serde::{Deserialize, Serialize};
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

/// The same part where all reads are the signal: it neither falls nor rises. Agents have this signal. They
/// do not see the way to the consumer, and their throttles answer later than a window. Chosen in the
/// simulator: with delays of packets the target was kept in 98.9 % of the seconds by the margin of [`EASE`],
/// in 99.3 % by a part of 1, and in 99.7 % by one of 1.25.
const KEPT_OF_READS: f64 = 1.125;

/// The part of seconds that may be above the target.
pub(super) const ALLOWED: f64 = 0.02;

/// The weight of a new stretch in the part of stretches above the target.
const ABOVE_WEIGHT: f64 = 0.05;

/// Bounds of the margin of a consumer, as a logarithm, and of the excess in it.
const MARGIN: (f64, f64) = (0.03, 0.4);
const MOST_EXCESS: f64 = 0.2;

/// The greatest margin below a percentile, as a logarithm. Chosen: with as few requests as it needs, the
/// percentile of a stretch of exponential latencies scatters by 0.3.
const PERCENTILE_MARGIN: f64 = 0.8;

/// The part of a contract's requests that may be late, less than the 5 % that RT⁹⁵ stands for (Lee, table 1);
/// and the rise of its margin in a second in which all are late.
const LATE: (f64, f64) = (0.03, 1.0);

/// The margin for late requests from which on a contract counts as late.
const IS_LATE: f64 = 0.05;

/// The most that late requests add to a margin, as a logarithm: half of the goal is left.
const MOST_LATENESS: f64 = 0.7;

/// The least length of the stretches whose means scatter, in seconds, and the least number of requests.
const STRETCH: f64 = 1.0;
const STRETCH_REQUESTS: f64 = 4.0;

#[derive(Debug, Clone, Serialize, Deserialize)]
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
    /// The part of the margin that late requests ask for.
    lateness: f64,
    /// The part of the margin by scatter that is kept: less while no stretch is above the target.
    ease: f64,
    /// The most of the margin without lateness.
    most_margin: f64,
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
            lateness: 0.0,
            ease: 1.0,
            most_margin: MARGIN.1,
        }
    }

    /// The distance that the consumer's mean needs from the target, as a logarithm.
    fn margin(&self) -> f64 {
        (self.ease * DEVIATIONS * self.scatter.sqrt() + self.excess).clamp(MARGIN.0, self.most_margin)
            + self.lateness
    }

    /// Takes the late ones of a contract's requests into account. Their part is what was promised, and no
    /// mean tells it.
    fn hear_late(&mut self, late: u64, count: f64, seconds: f64) {
        if count > 0.0 {
            let part = (late as f64 / count).min(1.0);
            let change = LATE.1 * seconds.min(1.0) * (part - LATE.0);
            self.lateness = (self.lateness + change).clamp(0.0, MOST_LATENESS);
        }
    }

    fn remember(&mut self, count: f64, total: f64, seconds: f64) {
        // A consumer with few requests is remembered for longer.
        let remaining = (-(seconds / MEMORY).min(count / MEMORY_REQUESTS)).exp();
        self.count = self.count * remaining + count;
        self.total = self.total * remaining + total;
    }

    /// Takes note of an interval in which so many requests took so long in all.
    fn observe(&mut self, count: f64, total: f64, target: Latency, seconds: f64, binds: bool) {
        self.remember(count, total, seconds);
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
            self.end_stretch(mean, target.as_secs_f64(), binds);
        }
    }

    /// Takes note of an interval of a percentile. `stretch` is the percentile of a stretch that ended.
    fn observe_percentile(&mut self, count: f64, stretch: Option<Latency>, target: Latency, binds: bool) {
        self.most_margin = PERCENTILE_MARGIN;
        // Under a window that was at work in a part of the stretch only, it says nothing about the margin.
        self.bound &= binds;
        self.stretch_count += count;
        let Some(stretch) = stretch else { return };
        if self.slow.is_none() && self.stretches <= FIRST_STRETCHES {
            self.scatter = self.scatter.max(self.stretch_count.max(1.0).recip());
        }
        let bound = std::mem::replace(&mut self.bound, true);
        self.stretch_count = 0.0;
        self.end_stretch(stretch.as_secs_f64().max(1e-9), target.as_secs_f64(), bound);
    }

    fn end_stretch(&mut self, latency: f64, target: f64, bound: bool) {
        self.above += ABOVE_WEIGHT * (f64::from(u8::from(latency > target)) - self.above);
        if bound {
            self.learn_margin(latency, target);
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
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct ConsumerLatencies {
    consumers: Vec<ConsumerMemory>,
}

/// The consumer that is nearest to its target.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct WorstConsumer {
    /// Its mean over the pooled mean, at least 1: the largest of several means is not below their mean.
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
            total = (total + wait(consumer)) * scale(consumer, target);
            if consumer.contract.is_some() {
                memory.hear_late(consumer.late, count, seconds);
            } else {
                memory.lateness = 0.0;
            }
            all_count += count;
            all_total += total;
            memory.observe(count, total, target, seconds, binds);
            if signal == SignalRequests::Reads {
                memory.ease = KEPT_OF_READS;
            }
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
        self.pooled().observe(count, total, target, seconds, binds);
        (count, total)
    }

    /// The same where the signal is a percentile. `stretch` is the percentile of a stretch that ended.
    pub(super) fn observe_percentile(
        &mut self,
        (count, total): (f64, f64),
        stretch: Option<Latency>,
        target: Latency,
        seconds: f64,
        binds: bool,
    ) -> (f64, f64) {
        let memory = self.pooled();
        memory.remember(count, total, seconds);
        memory.observe_percentile(count, stretch, target, binds);
        (count, total)
    }

    /// The memory of all consumers together.
    fn pooled(&mut self) -> &mut ConsumerMemory {
        self.consumers.truncate(1);
        if self.consumers.is_empty() {
            self.consumers.push(ConsumerMemory::new(None));
        }
        &mut self.consumers[0]
    }

    /// The latencies of the signal's requests together, as [`observe`](Self::observe) counts them.
    pub(super) fn total(consumers: &[ConsumerObservation], signal: SignalRequests, target: Latency) -> f64 {
        let heard = consumers
            .iter()
            .filter(|consumer| consumer.protected || signal != SignalRequests::ProtectedReads);
        let latency = |consumer: &ConsumerObservation| {
            let writes = (signal == SignalRequests::Everything).then_some(&consumer.writes);
            let all = std::iter::once(&consumer.reads).chain(writes);
            let at_resource: f64 = all.map(|operations| operations.total_latency.as_secs_f64()).sum();
            (at_resource + wait(consumer)) * scale(consumer, target)
        };
        heard.map(latency).sum()
    }

    /// Returns true if more of a contract's requests have been late, for some time, than may be.
    pub(super) fn contracts_late(&self) -> bool {
        self.consumers.iter().any(|memory| memory.lateness > IS_LATE)
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
                (memory.total / memory.count / pooled * (1.0 - chance)).clamp(1.0, MOST)
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

/// The seconds that a contract's requests waited after their virtual release, which count as if they were at
/// the resource.
fn wait(consumer: &ConsumerObservation) -> f64 {
    if consumer.contract.is_some() { consumer.scheduler_wait.as_secs_f64() } else { 0.0 }
}

/// The factor that makes a consumer's latencies comparable with the target of the resource.
fn scale(consumer: &ConsumerObservation, target: Latency) -> f64 {
    let goal = consumer.goal.filter(|goal| *goal > Latency::ZERO);
    goal.map_or(1.0, |goal| target.as_secs_f64() / goal.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use tidegate_units::{Bytes, Iops, Shares};

    use super::*;
    use crate::document::contract::Contract;
    use crate::document::observation::OperationTotals;

    const TARGET: Latency = Latency::from_millis(50);

    /// Forty requests in a second with a mean of 10 ms at the storage, and 5 ms before it.
    fn consumer(contract: bool, late: u64) -> ConsumerObservation {
        let name = ConsumerName::new(if contract { "kept" } else { "rest" }).unwrap();
        let contract = contract.then(|| {
            let times = [40, 25].map(Latency::from_millis);
            Contract::new(Iops::new(40.0), times[0], times[1]).unwrap()
        });
        let reads = OperationTotals {
            count: 40,
            bytes: Bytes::new(40 * 4_096),
            total_latency: Latency::from_millis(400),
            ..OperationTotals::default()
        };
        ConsumerObservation {
            goal: contract.map(|contract| contract.expected()),
            scheduler_wait: Latency::from_millis(if contract.is_some() { 200 } else { 0 }),
            contract,
            late,
            reads,
            ..ConsumerObservation::idle(name, Shares::DEFAULT, false)
        }
    }

    fn observe(latencies: &mut ConsumerLatencies, late: u64, seconds: u32) {
        let both = [consumer(true, late), consumer(false, 0)];
        for _ in 0..seconds {
            latencies.observe(&both, SignalRequests::Everything, TARGET, 1.0, false);
        }
    }

    #[test]
    fn latencies_are_scaled_to_goals_and_contracts_count_from_their_virtual_release() {
        let both = [consumer(true, 0), consumer(false, 0)];
        let total = ConsumerLatencies::total(&both, SignalRequests::Everything, TARGET);
        assert!((total - (0.6 * 2.0 + 0.4)).abs() < 1e-9, "{total}");
        let heard =
            ConsumerLatencies::default().observe(&both, SignalRequests::Everything, TARGET, 1.0, false);
        assert!((heard.0 - 80.0).abs() < 1e-9 && (heard.1 - total).abs() < 1e-9, "as other hosts hear it");
    }

    #[test]
    fn late_requests_widen_the_margin_until_few_enough_are_late() {
        let mut latencies = ConsumerLatencies::default();
        observe(&mut latencies, 1, 100);
        assert!(!latencies.contracts_late(), "2.5 % may be late");
        let margin = latencies.worst().margin;
        observe(&mut latencies, 8, 3);
        assert!(latencies.contracts_late());
        assert!(latencies.worst().margin > 1.3 * margin, "a fifth is late");
        observe(&mut latencies, 40, 1_000);
        assert!(latencies.worst().margin < 2.1 * margin, "half of the goal is left");
        observe(&mut latencies, 0, 30);
        assert!(!latencies.contracts_late() && latencies.worst().margin < 1.1 * margin);
    }
}
